"""The page: well-formed whatever it holds, offline, and every number in it is one of the run's."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from sample_report import ALIGNMENT, full, hostile, report, side

from heedful.draw.html import policy, script
from heedful.draw.picture import number
from heedful.evaluation.page import duration, verdict
from heedful.evaluation.run_report import ExampleResult, run_page
from heedful.metrics import LengthTable
from heedful.trace import Trace
from heedful.trace.readout import Readout

SVG = "{http://www.w3.org/2000/svg}"


def tree(page: str) -> ET.Element:
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def visible(page: str) -> str:
    """The text that a reader sees, without pictures and commands."""
    parts: list[str] = []

    def walk(element: ET.Element) -> None:
        if element.tag in ("style", "script", "pre", f"{SVG}svg", "title"):
            return
        parts.append(element.text or "")
        for child in element:
            walk(child)
            parts.append(" " + (child.tail or ""))

    walk(tree(page))
    return re.sub(r"[\s\xa0]+", " ", "".join(parts))


@pytest.mark.parametrize("made", [report, full, hostile])
def test_it_is_one_document_that_loads_nothing(made):
    page = run_page(made())
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.encode()
    root = tree(page)
    tags = {e.tag.removeprefix(SVG) for e in root.iter()}
    ran = [e.text for e in root.iter("script") if e.get("type") != "application/json"]
    assert [text.strip() for text in ran] == [script().replace("//<![CDATA[", "//").replace("//]]>", "//").strip()]
    assert not tags & {"link", "img", "iframe", "object", "embed", "image", "use", "base", "form"}
    assert not [
        k for e in root.iter() for k in e.attrib if k in ("src", "srcset", "data", "action") or k.startswith("on")
    ]
    assert {e.get("href")[0] for e in root.iter() if e.get("href")} == {"#"}
    assert set(re.findall(r"https?://[^\"'\s<]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page
    meta = {
        (e.get("name") or e.get("http-equiv") or "charset"): e.get("content") or e.get("charset")
        for e in root.iter("meta")
    }
    assert meta["charset"] == "utf-8"
    assert meta["viewport"] == "width=device-width, initial-scale=1"
    assert meta["color-scheme"] == "light dark"
    assert meta["Content-Security-Policy"] == policy()
    assert "prefers-color-scheme: dark" in page


def test_hostile_text_is_only_text():
    page = run_page(hostile())
    assert set(re.findall("<script[^>]*>", page)) == {"<script>", '<script type="application/json">'}
    assert page.count("<script>") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", page)
    assert "<script>alert(1)</script> & \"'> [31m � </style> ]]> <!-- मैं" in visible(page)
    assert next(e.text for e in tree(page).iter("title")).startswith("<script>")


def test_links_lead_to_sections_and_no_id_is_there_twice():
    root = tree(run_page(report()))
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert {e.get("href") for e in root.iter("a")} == {
        "#scores",
        "#sentences",
        "#learning",
        "#alignment",
        "#run",
        "#next",
    }
    assert {e.get("href")[1:] for e in root.iter("a")} <= set(ids)


def test_it_opens_with_what_it_means():
    text = visible(run_page(report()))
    assert text.index("What attention is for") < text.index("this is the bottleneck") < text.index("Scores")
    assert "fixed context got 0.6 % exactly right and additive attention 83.2 %" in text


def test_hindi_is_marked_as_hindi():
    for element in tree(run_page(report())).iter("p"):
        if element.get("class") == "source":
            assert element.get("lang") == "hi"
    assert len(re.findall('class="source" lang="hi"', run_page(report()))) == 6


def forms(value: float) -> set[str]:
    """How a number may be written on the page."""
    shares = {value, 100 * value}
    return {form for v in shares for form in (f"{v:.1f}", number(v), f"{v:,.0f}", f"{v:.0f}")} | {f"{value / 1e6:.2f}"}


def numbers_of(record: object) -> set[str]:
    """All numbers of a record, as the page may write them."""
    if isinstance(record, str):
        return set(re.findall(r"\d[\d.,]*\d|\d", record))
    if isinstance(record, bool) or record is None:
        return set()
    if isinstance(record, int | float | np.floating):
        seconds = set(re.findall(r"[\d.]+", duration(float(record)))) if record < 1e6 else set()
        return forms(float(record)) | seconds
    if isinstance(record, Trace | np.ndarray):
        return set()
    if isinstance(record, dict):
        record = list(record.values())
    elif dataclasses.is_dataclass(record):
        record = [getattr(record, f.name) for f in dataclasses.fields(record)]
    return set().union(*(numbers_of(part) for part in record)) if record else set()


@pytest.mark.parametrize("made", [report, full])
def test_every_number_comes_from_the_run(made):
    the_run = made()
    allowed = numbers_of(the_run)
    for model in the_run.models:
        exact = [row.exact for row in model.scores.rows]
        allowed |= {number(exact[0] - exact[-1]), *(str(row.low) for row in model.scores.rows)}
    for example in the_run.examples:
        allowed.add(str(len(example.source.split())))
        for output in example.outputs.values():
            allowed |= set(re.findall(r"\d+", verdict(output, example.reference)))
    allowed |= {"20", "100", "0"}  # up to 20 words; a row adds up to 100; from 0 to 100
    found = set(re.findall(r"\d[\d.,]*\d|\d", visible(run_page(the_run))))
    assert len(found) > 60
    assert found <= allowed


def test_no_number_of_the_run_is_left_out():
    the_run = report()
    text = visible(run_page(the_run))
    for model in the_run.models:
        for row in (*model.scores.rows, model.scores.total):
            for score in (row.exact, row.bleu, row.chrf):
                assert f" {score:.1f} " in text
            assert f" {row.pairs:,} " in text
        assert f"{model.weights:,} weights, {model.steps:,} steps in 1 min 58 s, kept in {model.folder}" in text
        assert f"{max(p[1] for p in model.curve):.1f}" in text
        assert model.scores.bleu_signature in text
    for told in ("8.3 %", "91.3 %", "92.4 %", "1,800", ALIGNMENT.rule):
        assert told in text
    for told in ("23,517 sentence pairs, the longest of 40 words", "431 source words, 389 target words", "seed 17"):
        assert told in text
    assert "Of the 1,143 test sentences of up to 20 words, exactly right: fixed context 77.9 %" in text
    for told in (
        "4 min 28 s",
        "843 MB",
        "2 processor cores",
        "heedful 0.1.0, PyTorch 2.13.0, Python 3.11.7",
        "2026-11-15",
    ):
        assert told in text
    assert "cell gru, width 256" in text


def test_changed_numbers_change_the_page():
    the_run = report()
    other = replace(the_run.models[1], alignment=ALIGNMENT._replace(error_rate=0.4271))
    assert "42.7 %" not in visible(run_page(the_run))
    assert "42.7 %" in visible(run_page(replace(the_run, models=(the_run.models[0], other))))


def test_figures_hold_the_scores():
    root = tree(run_page(report()))
    told = [e.text for e in root.iter(f"{SVG}desc")]
    for model in report().models:
        for row in model.scores.rows:
            for value in (row.exact, row.bleu):
                assert (
                    sum(f"{model.title} {number(value)}" in (t or "") for t in told) >= 2
                )  # for wide and narrow screens


def test_right_and_wrong_are_said_in_words():
    text = visible(run_page(report()))
    assert "fixed context · Not the reference: one word missing Sita is not reading a book" in text
    assert "additive attention · Exactly right Sita is not reading a book" in text
    assert "in the training data" in text
    assert "not in the training data" in text
    page = run_page(report())
    assert "Sita is <del>not</del> reading a book" in page
    assert "<mark>home</mark> <del>school</del>" in page


def test_gold_links_are_drawn_only_on_the_words_they_belong_to():
    drawn = re.findall("<article>.*?</article>", run_page(report()), flags=re.DOTALL)
    assert ['class="o"' in part for part in drawn] == [True, True, True, False, True, True]
    assert ["Gold links are not drawn" in part for part in drawn] == [False] * 3 + [True] + [False] * 2


def test_all_but_the_first_long_picture_are_folded():
    drawn = re.findall("<article>.*?</article>", run_page(full()), flags=re.DOTALL)
    # Each has the picture of the attention, and the folded one of the Transformer.
    assert [part.count("<details>") for part in drawn] == [1] + [2] * 9
    assert [part.count('<details open="open">') for part in drawn] == [1] + [0] * 9
    assert "<details>" not in re.findall("<article>.*?</article>", run_page(report()), flags=re.DOTALL)[0]


def test_a_second_model_that_looks_has_its_picture():
    first = re.search("<article>.*?</article>", run_page(full()), flags=re.DOTALL)[0]
    attention, third = re.findall("<details.*?</details>", first, flags=re.DOTALL)
    assert "<summary>Attention of additive attention</summary>" in attention
    assert "<summary>Attention of Transformer</summary>" in third
    assert "Shown is the mean of two layers with two heads each." in third
    assert "Shown is the mean" not in attention
    chosen = full()  # a model that is read by one head says so on its picture
    seen = {key: replace(trace, readout=Readout(2, (1,))) for key, trace in chosen.examples[0].more.items()}
    drawn = run_page(replace(chosen, examples=(replace(chosen.examples[0], more=seen),)))
    assert "Shown is the mean" not in drawn
    assert "read-out: layer 2, head 1" in drawn
    assert 'class="o"' in third  # the gold links, as it wrote the reference
    cells = [re.findall('class="n[^>]*>([0-9]+)<', part) for part in (attention, third)]
    assert len(cells[1]) > 20
    assert cells[0] != cells[1]


def test_commands_keep_their_lines():
    commands = ["".join(e.itertext()) for e in tree(run_page(report())).iter("pre")]
    assert commands == [command for _, command in report().next]


def test_ten_long_sentences_make_a_page_that_can_be_sent():
    assert len(run_page(full()).encode()) < 2_000_000


def test_the_same_each_time():
    assert run_page(report()) == run_page(report())


def test_a_bare_report():
    made = report()
    rows = made.models[0].scores
    bare = replace(made.models[0], curve=(), scores=LengthTable((), rows.total, "", ""))
    nothing = side([])
    blank = ExampleResult("", "", False, {"fixed": ""}, Trace(nothing, nothing, None, np.zeros(1, dtype=np.float32)))
    page = run_page(replace(made, models=(bare,), examples=(blank,), unseen_exact={}, next=(), settings=()))
    text = visible(page)
    assert "58.5 % of all test sentences exactly right" in text
    assert "nothing" in text
    assert "<details" not in page
    assert {e.get("href") for e in tree(page).iter("a")} == {"#sentences", "#run"}
    empty = run_page(replace(made, models=(), examples=(), unseen_exact={}, next=()))
    assert {e.get("href") for e in tree(empty).iter("a")} == {"#run"}


def test_a_curve_of_one_point_and_a_loss_of_nothing():
    made = report()
    models = tuple(replace(m, curve=((1.5, 0.0, 0.0),)) for m in made.models)
    assert "logarithmic" not in run_page(replace(made, models=models))
    assert "logarithmic" in run_page(made)
