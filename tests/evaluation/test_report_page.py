"""The page about any systems on a test set: its numbers, its order, its figures, and text that is only text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from sample_report import outcome, report

from heedful.evaluation.page import AlignmentResult
from heedful.evaluation.report import report_page

HOSTILE = "<script>alert(1)</script> & \"'> \ud800 \u202e </style> ]]>"


def text_of(page: str) -> str:
    root = ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("style", "script") or child.tag.endswith("}svg"):
                child.text, child[:] = "", []
    return re.sub(r"[\s\xa0]+", " ", " ".join(root.itertext()))


def test_scores_intervals_and_verdicts_are_there():
    text = text_of(report_page(outcome(), "A title"))
    assert text.index("A title") < text.index("two systems".capitalize()) < text.index("56.1")
    assert "BLEU, 95 % interval 53.1 to 59.1" in text
    assert "worse, p = 0.007" in text
    assert "alignment error rate 8.3 %" in text
    assert "layer 5" in text
    assert "steps of training" not in text  # it stands in the pictures
    assert "intervals: bootstrap" in text


def test_the_worst_sentence_is_first_and_each_has_a_figure():
    page = report_page(outcome())
    articles = re.findall("<article>.*?</article>", page, flags=re.DOTALL)
    assert ["test.tsv:7" in one for one in articles] == [True, False]
    assert [one.count('class="heedful-view"') for one in articles] == [1, 1]
    assert [one.count('"name":') for one in articles] == [1, 2]
    assert "chrF 31.2" in articles[0]
    assert "<del>am eating food</del>" in articles[0]
    assert "I am eating</span></p>" in articles[1]
    assert page.count("<title>first and second</title>") == 1


def test_of_a_model_without_attention_that_is_said_and_nothing_is_drawn():
    made = outcome()
    blind = tuple(
        one._replace(traces=tuple(trace and replace(trace, weights=None) for trace in one.traces))
        for one in made.sentences
    )
    page = report_page(replace(made, sentences=blind))
    assert page.count("have no attention.") == 2
    assert 'class="heedful-view"' not in page


def test_three_names_are_a_list_and_columns_have_one_digit_after_the_point():
    made = outcome()
    exact = replace(made.models[0], title="third", alignment=AlignmentResult(0.1, 1.0, 0.004, 1800, "layer 5"))
    three = (*made.systems, made.systems[0]._replace(model=exact))
    page = report_page(replace(made, systems=three, sentences=()))
    assert "<h1>first, second and third</h1>" in page
    assert "alignment error rate 10.0 %" in text_of(page)
    assert "third 10.0 % 100.0 % 0.4 % 1,800 layer 5" in text_of(page)


def test_without_gold_curves_or_sentences_their_sections_are_not_there():
    made = outcome()
    bare = tuple(one._replace(model=replace(one.model, alignment=None, curve=())) for one in made.systems)
    page = report_page(replace(made, systems=bare, sentences=()))
    assert set(re.findall('href="#([a-z]+)"', page)) == {"scores"}
    assert set(re.findall('href="#([a-z]+)"', report_page(made))) == {"scores", "sentences", "alignment", "learning"}


@pytest.mark.parametrize("hostile", [HOSTILE, "</article><img src=x onerror=alert(1)>"])
def test_hostile_text_is_only_text(hostile):
    made = outcome()
    shown = made.sentences[0]._replace(where=hostile, source=hostile, references=(hostile,), outputs=(hostile, hostile))
    systems = tuple(one._replace(model=replace(one.model, title=hostile)) for one in made.systems)
    page = report_page(replace(made, test_set=hostile, notes=(hostile,), sentences=(shown,), systems=systems))
    assert page.encode()
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert text_of(page)


def test_what_json_holds():
    first, second = (one.plain() for one in outcome().systems)
    assert first["scores"]["bleu"] == 56.1
    assert first["alignment"]["error_rate"] == 0.0834
    assert second["alignment"] is None
    assert second["against"]["bleu"]["verdict"] == "worse"
    assert len(first["by_length"]) == len(report().models[0].scores.rows)
