"""`heedful compare`: two systems side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.dom import minidom

import pytest
import sacrebleu
from conftest import Done, write_pairs
from random_translators import random_folder

Run = Callable[..., Done]

ROWS = [
    ("मैं घर जाता हूँ", "I go home every day"),
    ("वह सोता है", "he is sleeping now"),
    ("<i>हाँ</i>", "yes of course"),
    ("नहीं", "no never"),
    ("", ""),
    ("शायद", "perhaps tomorrow we will see"),
]
FIRST = ["I go home every day", "he sleep now", "yes of course", "never", "", "perhaps today we will see"]
SECOND = ["I go home all days", "he is sleeping now", "yes of course", "no never", "", "maybe tomorrow we will know"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of translations and the test set."""
    for name, texts in (("a.txt", FIRST), ("b.txt", SECOND)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return [tmp_path / "a.txt", tmp_path / "b.txt", write_pairs(tmp_path / "t.tsv", ROWS)]


@pytest.mark.parametrize("by", ["chrf", "bleu", "ter"])
def test_worst_first(heedful_cli: Run, files: list[Path], by: str) -> None:
    code, out, err = heedful_cli("compare", *files, "--json", "--by", by)
    assert (code, err) == (0, "skipped 1 line with an empty side\n")
    record = json.loads(out)
    assert record["by"] == by
    score = {"chrf": sacrebleu.sentence_chrf, "bleu": sacrebleu.sentence_bleu, "ter": sacrebleu.sentence_ter}[by]
    shown = record["sentences"]
    assert len(shown) == 4  # what both translate alike is not shown
    for one in shown:
        row = int(one["where"].removeprefix("t.tsv:")) - 1
        assert (one["source"], one["references"]) == (ROWS[row][0], [ROWS[row][1]])
        assert (one["a"], one["b"]) == (FIRST[row], SECOND[row])
        assert one["a_score"] == pytest.approx(score(one["a"], one["references"]).score)
        assert one["b_score"] == pytest.approx(score(one["b"], one["references"]).score)
        assert one["difference"] == pytest.approx(one["a_score"] - one["b_score"])
    gains = [one["difference"] * (-1 if by == "ter" else 1) for one in shown]
    assert gains == sorted(gains)
    assert gains[0] < 0 < gains[-1]
    assert (record["wins"], record["ties"], record["losses"]) == (2, 1, 2)
    assert record["pairs"] == 5


def test_for_people(heedful_cli: Run, files: list[Path]) -> None:
    code, out, _ = heedful_cli("compare", *files, "--top", "2")
    assert code == 0
    lines = out.splitlines()
    assert lines[:3] == [f"A  {files[0]}", f"B  {files[1]}", f"5 sentences of {files[2]}"]
    bleu = [
        sacrebleu.corpus_bleu([t for t in texts if t], [[y for _, y in ROWS if y]]).score for texts in (FIRST, SECOND)
    ]
    assert next(line for line in lines if line.startswith("A   ")).split()[1] == f"{bleu[0]:.1f}"
    assert next(line for line in lines if line.startswith("B   ")).split()[1] == f"{bleu[1]:.1f}"
    assert "By chrF of single sentences, A is better in 2, B in 2, and 1 are equal." in lines
    assert "Where A is worst relative to B, by chrF" in lines
    assert "BLEU   no significant difference, p = " in out
    assert "p: approximate randomisation, 10,000 trials, seed 12345" in lines
    assert "A          he [sleep] now" in lines
    assert "B          he [is sleeping] now" in lines
    assert "\n2. t.tsv:" in out
    assert "\n3. t.tsv:" not in out
    assert "\x1b" not in out
    assert max(map(len, lines[3:])) <= 80


def test_the_page(heedful_cli: Run, files: list[Path], tmp_path: Path) -> None:
    code, out, err = heedful_cli("compare", *files, "--to", tmp_path / "c.html")
    assert (code, out) == (0, "")
    assert f"the page is in {tmp_path / 'c.html'}" in err
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    minidom.parseString(page)
    assert "he <mark>is sleeping</mark> now" in page
    assert "perhaps tomorrow we will see" in page


def test_models_and_files_together(heedful_cli: Run, files: list[Path], tmp_path: Path) -> None:
    models = [random_folder(tmp_path / f"m{seed}", "rnn", seed=seed) for seed in (1, 2)]
    pairs = write_pairs(tmp_path / "p.tsv", [("a b c", "A B C"), ("d e", "D E"), ("f g h", "F G H")])
    both = json.loads(heedful_cli("compare", *models, pairs, "--json", "--device", "cpu").out)
    saved = tmp_path / "saved"
    heedful_cli("evaluate", models[1], pairs, "--save", saved, "--device", "cpu")
    mixed = json.loads(heedful_cli("compare", models[0], saved, pairs, "--json", "--device", "cpu").out)
    assert mixed["b"] == str(saved)
    assert {**mixed, "b": ""} == {**both, "b": ""}
    assert both["sentences"]


def test_the_same_twice(heedful_cli: Run, files: list[Path]) -> None:
    out = heedful_cli("compare", files[0], files[0], files[2]).out
    assert out.rstrip().endswith("the same translation of every sentence.")
    assert out.count("no significant difference, p = 1.000") == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "cherf"], "unknown metric 'cherf'; choose one of bleu, chrf, ter. Did you mean 'chrf'?"),
        (["--test", "x"], "unknown test 'x'; choose one of bootstrap, randomisation."),
        (["--to", "c.pdf"], "--to c.pdf: the page is written as .html; choose a name that ends with it"),
        (["--test", "bootstrap", "--resamples", "0"], "'bootstrap' needs resamples; choose more than 0"),
    ],
)
def test_what_is_wrong_is_said(heedful_cli: Run, files: list[Path], options: list[str], message: str) -> None:
    code, out, err = heedful_cli("compare", *files, *options)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("verb", ["compare", "evaluate"])
def test_what_is_missing_is_said_before_anything_is_translated(
    heedful_cli: Run, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a model was opened")

    monkeypatch.setattr("heedful.cli.options.open_model", opened)
    (tmp_path / "model").mkdir()
    missing = [tmp_path / "missing.txt"] if verb == "compare" else []
    more = [] if missing else ["--against", tmp_path / "missing.txt"]
    done = heedful_cli(verb, tmp_path / "model", *missing, files[2], *more)
    assert (done.code, done.out) == (2, "")
    assert "missing.txt" in done.err
