"""The benchmarks on real data: runs, their results, and that every recipe can be run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT, TINY

sys.path.insert(0, str(ROOT / "benchmarks"))
import real
import real_back
import real_run
import real_sets
import real_table
import real_tasks
from real_sets import Row, Task

import heedful
from heedful.config import Config, read_recipe

RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


def pair(x: str, y: str) -> Row:
    return Row(x, (y,))


def multi30k(data: Path) -> Path:
    """A data folder with a few captions."""
    folder = data / "multi30k"
    folder.mkdir()
    parts = {"train": "abcde", "val": "fg", "test_2016_flickr": "hi", "test_2017_flickr": "ja", "test_2017_mscoco": "k"}
    for part, letters in parts.items():
        for language, word in (("en", "an"), ("de", "ein")):
            (folder / f"{part}.{language}").write_text("".join(f"{word} {x}\n" for x in letters), encoding="utf-8")
    return data


def run_record(name: str, seed: int, bleu: float, step: int = 500) -> dict[str, Any]:
    row = {"low": 1, "high": 5, "pairs": 2, "bleu": bleu + 1, "chrf": 1.0, "exact": 0.0}
    test = {
        "pairs": 3,
        "bleu": bleu,
        "chrf": 2 * bleu,
        "by_length": [row, {**row, "low": 41, "high": None, "pairs": 1, "bleu": bleu - 1}],
        "bleu_signature": "B",
        "chrf_signature": "C",
        "references": 1,
        "apart": {"pairs": 2, "bleu": bleu - 2, "chrf": bleu},
    }
    exam = {
        "alpha": 1.0,
        "weights": 7_320_000,
        "chosen": {"step": step, "validation": {"bleu": bleu}},
        "tests": {"first": test, "second": {**test, "apart": {"pairs": 0}, "references": 4, "bleu_signature": "B4"}},
        "seconds": 3.4,
        "machine": {"device": "a machine"},
    }
    training = {"setup_seconds": 4.25, "training_seconds": 61.0, "tokens_per_second": 123456} if seed == 1 else None
    return {"name": name, "seed": seed, "training": training, "exam": exam}


TABLE = """\
t: beam 5; without overlap: neither side is in training
recipe  test set           seeds  pairs               BLEU   chrF   without overlap   BLEU   chrF
a       first                  2      3  31.00 (30.0–32.0)  62.00                 2  29.00  31.00
a       second                 2      3  31.00 (30.0–32.0)  62.00                 0
bb      first                  1      3  20.00 (20.0–20.0)  40.00                 2  18.00  20.00
bb      second                 1      3  20.00 (20.0–20.0)  40.00                 0

BLEU by source words (pairs)
a       first              1–5: 32.0 (2)  41+: 30.0 (1)
a       second             1–5: 32.0 (2)  41+: 30.0 (1)
bb      first              1–5: 21.0 (2)  41+: 19.0 (1)
bb      second             1–5: 21.0 (2)  41+: 19.0 (1)

recipe  seed  weights      step  valid BLEU  alpha  set-up s  training s  tokens/s  exam s  device
a          1    7.3 M     9,500       32.00    1.0       4.2        61.0   123,456     3.4  a machine
a          2    7.3 M       500       30.00    1.0         ?           ?         ?     3.4  a machine
bb         1    7.3 M       500       20.00    1.0       4.2        61.0   123,456     3.4  a machine

BLEU: B
chrF: C
BLEU, 4 references: B4
chrF, 4 references: C"""


def test_the_table_has_means_and_spread_over_seeds() -> None:
    task = {"task": "t", "training": 9, "tests": {"first": {"rows": 3, "apart": [0, 1]}}}
    results = real_table.gather(
        task, [run_record("bb", 1, 20.0), run_record("a", 2, 30.0), run_record("a", 1, 32.0, 9500)]
    )
    assert results["means"]["a"]["first"]["bleu"] == {"mean": 31.0, "low": 30.0, "high": 32.0}
    assert results["tests"] == {"first": {"rows": 3}}
    assert real_table.tables(json.loads(json.dumps(results))).replace(" \n", "\n") == TABLE


def test_a_run_is_watched_by_what_it_writes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    watched = real_run.Watched(path, 0.0)
    assert watched.look() == []
    assert watched.trained == 0
    path.write_text('{"step": 20, "tokens_per_second": 5}\n{"step": 40, "valid_bleu": 7, "valid_lo', encoding="utf-8")
    assert watched.look() == []
    with path.open("a", encoding="utf-8") as file:
        file.write('ss": 2.0, "best": true}\n{"step": 40, "tokens_per_second": 9}\n')
    (found,) = watched.look()
    assert (found["step"], found["valid_bleu"], found["valid_loss"]) == (40, 7, 2.0)
    plain = watched.plain(False)
    assert plain["tokens_per_second"] == 9
    assert plain["validations"] == [found]
    assert plain["setup_seconds"] > plain["training_seconds"] >= 0


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A prepared task like that of the small model that all tests use: letters to be written again."""
    rows = [pair(" ".join(text), " ".join(text).upper()) for text in ("ab", "bad", "cab", "dead", "fed", "hag", "bee")]
    training = [
        pair(" ".join(text), " ".join(text).upper())
        for text in ("ab", *(f"{x}{y}c" for x in "abcdefgh" for y in "abcdefgh"))
    ]
    real_sets.write_task(Task("letters", training, rows[3:], {"all": rows[:3]}), tmp_path / "letters/data")
    return tmp_path


def test_a_model_is_examined(tiny: Path, letters: Path) -> None:
    import real_exam

    found = real_exam.examine(heedful.load(tiny, "cpu"), letters / "letters/data", [0.5, 1.0], letters / "1")
    written = (letters / "1.all.txt").read_text(encoding="utf-8").splitlines()
    assert len(written) == 3
    assert found["alpha"] in (0.5, 1.0)
    assert found["validation_bleu_by_alpha"].keys() == {"0.5", "1.0"}
    scores = found["tests"]["all"]
    assert (scores["pairs"], scores["apart"]["pairs"]) == (3, 2)
    assert scores["chrf"] == pytest.approx(heedful.metrics.chrf(written, ["A B", "B A D", "C A B"]))
    assert scores["apart"]["chrf"] == pytest.approx(heedful.metrics.chrf(written[1:], ["B A D", "C A B"]))
    assert "tok:13a" in scores["bleu_signature"]
    assert found["chosen"]["step"] > 0


def test_a_length_penalty_other_than_1_must_be_better_by_more_than_chance() -> None:
    from real_exam import preferred

    from heedful.metrics import extract_stats

    right = [f"w{i} x{i} y{i} z{i}" for i in range(40)]
    wrong = [text.replace("x", "q") for text in right]

    def stats(mistakes: int) -> heedful.metrics.SentenceStats:
        return extract_stats([*wrong[:mistakes], *right[mistakes:]], right, ["bleu"])

    assert preferred({0.6: stats(30), 1.0: stats(11), 1.4: stats(10)}) == 1.0
    assert preferred({0.6: stats(30), 1.0: stats(30), 1.4: stats(2)}) == 1.4
    assert preferred({0.6: stats(5), 1.0: stats(5)}) == 1.0
    assert preferred({0.6: stats(11), 1.4: stats(10)}) == 1.4


def test_sentences_without_a_source_get_one(tiny: Path, letters: Path) -> None:
    """Of the English there is, only what no part of the task knows is translated."""
    (letters / "tatoeba-fra-eng").mkdir()
    (letters / "multi30k").mkdir()
    english = ["B A D", "a b!", "H A G", "new one", "New one.", "f a"]  # of the test, of training, of validation
    (letters / "tatoeba-fra-eng/fra.txt").write_text("".join(f"{x}\tf\n" for x in english), encoding="utf-8")
    (letters / "multi30k/train.en").write_text("g e\nf a\n", encoding="utf-8")
    sentences, tests = real_back.alone(letters, letters / "letters/data")
    assert sentences == ["new one", "f a", "g e"]
    assert tests.sources == {"a b", "b a d", "c a b", "d e a d", "f e d", "h a g", "b e e"}
    rows = real_back.back(heedful.load(tiny, "cpu"), ["f a", "g e"], 1, "¤")
    assert [row.references for row in rows] == [("f a",), ("g e",)]
    assert all(row.source.startswith("¤ ") for row in rows)


def command(*words: object) -> int:
    return real.main([str(word) for word in words])


def test_preparing_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    multi30k(tmp_path)
    assert command("prepare", "multi30k-en-de", "--data", tmp_path, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "multi30k-en-de: 5 pairs to learn from, 2 for validation"
    assert said[2] == "  test test_2017_flickr: 2 rows; 1 sources and 1 targets are in training; 1 without overlap"
    assert (tmp_path / "out/multi30k-en-de/data/test-test_2016_flickr.tsv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hindi"], "unknown task 'hindi'; choose one of english-hindi, french-english, hindi-english, multi30k-en-de"),
        (
            ["repair", "hindi-english"],
            "'repair hindi-english' is not understood; expected a task, or prepare and a task",
        ),
        (["hindi-english", "--seeds", "1,x"], "--seeds 1,x: expected whole numbers separated by commas"),
        (["hindi-english", "--alphas", "a"], "--alphas a: expected numbers from 0 to 10 separated by commas"),
        (["hindi-english", "--alphas", "1,nan"], "--alphas 1,nan: expected numbers from 0 to 10 separated by commas"),
        (["hindi-english", "--recipe", "no.toml"], "no.toml: there is no such recipe"),
        (["hindi-english"], "holds no prepared task; give the folder of the data (--data) to prepare it"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words, "--out", tmp_path) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    multi30k(tmp_path)
    recipe = tmp_path / "small.toml"
    recipe.write_text("[model]\nwidth = 8\n", encoding="utf-8")
    given = ("multi30k-en-de", "--data", tmp_path, "--out", tmp_path, "--recipe", recipe)
    assert command(*given, "--set", "model.widht=8") == 1
    said = capsys.readouterr().err
    assert "training small, seed 1, ended with code 2" in said
    assert "width" in said
    recipe.write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert command(*given) == 2  # refused before anything is trained
    said = capsys.readouterr().err
    assert "small.toml: unknown model setting 'widht'" in said
    assert "training" not in said


@pytest.mark.slow
def test_recipes_are_trained_side_by_side_and_measured(
    letters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "TASKS", {"letters": None})
    recipe = letters / "small.toml"
    lines = [f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in TINY[name].items()) for name in TINY]
    recipe.write_text("\n".join(lines), encoding="utf-8")
    common = ("letters", "--out", letters, "--recipe", recipe, "--device", "cpu", "--name", "x")
    assert command(*common, "--seeds", "1,2", "--jobs", 2, "--steps", 60, "--set", "training.log_every=7") == 0
    results = json.loads((letters / "letters/results.json").read_text(encoding="utf-8"))
    assert [(run["name"], run["seed"]) for run in results["runs"]] == [("small-x", 1), ("small-x", 2)]
    for run in results["runs"]:
        assert run["settings"] == ["training.log_every=7"]
        assert [v["step"] for v in run["training"]["validations"]][:3] == [20, 40, 60]
        assert run["training"]["training_seconds"] > 0
    assert "small-x" in capsys.readouterr().out
    assert command(*common, "--only-evaluate", "--alphas", "0.7") == 0
    again, other = json.loads((letters / "letters/results.json").read_text(encoding="utf-8"))["runs"]
    assert again["exam"]["alpha"] == 0.7
    assert other == results["runs"][1]  # what an earlier command made stays
    assert again["training"] == results["runs"][0]["training"]
    more = ("--steps", 10**6, "--set", "training.patience=1000000", "--seconds", 4, "--seeds", 3)
    assert command(*common, *more) == 0
    *_, stopped = json.loads((letters / "letters/results.json").read_text(encoding="utf-8"))["runs"]
    assert stopped["seed"] == 3
    assert stopped["training"]["stopped"]
    assert 4 <= stopped["training"]["training_seconds"] < 60


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_a_recipe_can_be_run(path: Path) -> None:
    config = Config.build(read_recipe(path))
    assert config.model == Config.build(config.plain()).model
    text = path.read_text(encoding="utf-8")
    header = re.search(
        rf"^# command: python benchmarks/real.py (\S+) --recipe recipes/{path.name} ", text, re.MULTILINE
    )
    assert header is not None
    assert header[1] in real_tasks.TASKS
    assert (path in real.recipes(header[1], None)) is path.stem.startswith(header[1])
    assert "/" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
    if getattr(config.model, "tied", None) == "all":
        assert config.text.joint
    page = (ROOT / "docs" / "lab" / "recipes.md").read_text(encoding="utf-8")
    assert f"recipes/{path.name}" in page


def test_the_families_are_compared_at_the_same_widths() -> None:
    rnn, fixed = (read_recipe(ROOT / f"recipes/multi30k-en-de-{name}.toml") for name in ("rnn", "fixed"))
    for name in ("cell", "width", "encoder_width", "embedding", "tied"):
        assert rnn["model"][name] == fixed["model"][name]
    assert rnn["text"] == fixed["text"]


def test_every_module_says_what_it_offers() -> None:
    modules: list[ModuleType] = [real, real_back, real_run, real_sets, real_table, real_tasks]
    for module in modules:
        assert all(hasattr(module, name) for name in module.__all__)
