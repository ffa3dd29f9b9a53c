"""The benchmarks on real data: what is kept apart, what is said, and that every recipe can be run."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT, TINY

sys.path.insert(0, str(ROOT / "benchmarks"))
import real
import real_run
import real_sets
import real_table
import real_tasks
from real_sets import Known, Row, Task

import heedful
from heedful.config import Config, read_recipe
from heedful.errors import DataError

RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


def write(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(line + end for line in lines).encode()))


def pair(x: str, y: str) -> Row:
    return Row(x, (y,))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("A dog.", "a  DOG !", True),
        ("l’été", "l'e\u0301te\u0301", True),
        ("पढ़ता हूँ।", "पढ\u093cता हूँ", True),
        ("पढ़ता हूँ", "पढ़ता हूं", False),
        ("कर्\u200dम", "कर्म", True),
        ("I am", "Iam", False),
        ("5 dogs", "6 dogs", False),
        ("?", "!", False),
    ],
)
def test_the_same_sentence_has_the_same_key(one: str, other: str, same: bool) -> None:
    assert (real_sets.key(one) == real_sets.key(other)) is same


def multi30k(data: Path) -> None:
    parts = {"train": "abcde", "val": "fg", "test_2016_flickr": "hi", "test_2017_flickr": "ja", "test_2017_mscoco": "k"}
    for part, letters in parts.items():
        write(data / f"multi30k/{part}.en.gz", [f"an {x}" for x in letters])
        write(data / f"multi30k/{part}.de.gz", [f"ein {x}" for x in letters])


def test_multi30k_is_taken_as_it_comes(tmp_path: Path) -> None:
    multi30k(tmp_path)
    task = real_tasks.multi30k(tmp_path)
    assert task.training == [pair(f"an {x}", f"ein {x}") for x in "abcde"]
    assert task.validation == [pair("an f", "ein f"), pair("an g", "ein g")]
    record = real_sets.write_task(task, tmp_path / "out")
    assert [(t["rows"], t["apart"]) for t in record["tests"].values()] == [(2, [0, 1]), (2, [0]), (1, [0])]


def french(data: Path, pairs: Iterable[tuple[str, str]]) -> None:
    write(data / "tatoeba-fra-eng/fra.txt.gz", [f"{english}\t{foreign}" for english, foreign in pairs])


def test_french_is_split_by_english_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_tasks, "FRENCH", 20)
    pairs = [(f"Sentence {n}.", f"Phrase {n}, {m} !") for n in range(200) for m in range(1 + n % 3)]
    pairs += [(f"SENTENCE {n}!", f"Encore {n}.") for n in range(0, 200, 5)]  # the same English, written otherwise
    pairs += [(f"Other {n}.", f"Phrase {n}, 0 !") for n in range(100)]  # the same French, of another English
    french(tmp_path, pairs)
    task = real_tasks.french_english(tmp_path)
    test = task.tests["tatoeba"]
    english = [{real_sets.key(r.references[0]) for r in rows} for rows in (test, task.validation, task.training)]
    assert len(english[0]) == 20
    assert 15 <= len(english[1]) <= 20
    assert len(test) > 20
    held = Known([*test, *task.validation])
    assert not any(real_sets.shares(row, held) for row in task.training)
    assert not any(real_sets.shares(row, Known(test)) for row in task.validation)
    # Every translation of a test sentence is in the test, and what is in no part shares French with a held-out pair.
    assert all(Row(f, (e,)) in test for e, f in pairs if real_sets.key(e) in english[0])
    assert 0 < task.left_out["pairs with a held-out French sentence"] < 50
    assert len(task.training) > 300
    french(tmp_path, reversed(pairs))
    assert set(real_tasks.french_english(tmp_path).tests["tatoeba"]) == set(test)


def hindi(data: Path) -> None:
    """Small sets with every kind of overlap; x and y are what a caption of each part is about."""
    captions = {
        "train": [*range(40), 101, 102, 301, 401, 901],
        "dev": [7, 201, 202, 203, 103],
        "test": [101, 104],
        "challenge-test-set": [102, 103],
    }
    for part, numbers in captions.items():
        lines = [f"1\t0\t0\t9\t9\tpicture {n}\tचित्र {n}" for n in numbers]
        write(data / f"hindi-visual-genome/hindi-visual-genome-{part}.txt.gz", lines, "\r\n")
    tatoeba = {"dev": [*range(500, 540), 600, 104], "test": [600, 601]}
    for part, numbers in tatoeba.items():
        lines = [f"eng\thin\tPicture {n}!\tचित्र {n}।" for n in [*numbers, *([301] if part == "test" else [])]]
        write(data / f"tatoeba-hin-eng/tatoeba-{part}-v2023-09-26.eng-hin.txt.gz", lines)
    wikipedia = {"dev": [*range(700, 720), 801], "devtest": [*range(720, 740)], "test": [801, 802]}
    for part, numbers in wikipedia.items():
        folder = data / "indian-parallel-hin-eng"
        write(folder / f"{part}.hi-en.hi.gz", [f"चित्र {n}" for n in numbers])
        for m in range(4):
            write(
                folder / f"{part}.hi-en.en.{m}.gz", ["" if m == 3 and n % 2 else f"picture {n} v{m}" for n in numbers]
            )
    for name, hindi_file, english_file, number in (
        ("flores200-devtest", "hin_Deva.devtest", "eng_Latn.devtest", 401),
        ("wmt14-hin-eng", "newstest2014.hi", "newstest2014.en", 901),
    ):
        write(data / name / f"{hindi_file}.gz", [f"दूसरा {number}", "चित्र"])
        write(data / name / f"{english_file}.gz", [f"picture {number}", "no picture"])


@pytest.fixture
def hindi_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setattr(real_tasks, "TATOEBA", 5)
    monkeypatch.setattr(real_tasks, "WIKIPEDIA", 3)
    hindi(tmp_path)
    return real_tasks.hindi_english(tmp_path)


def test_hindi_learns_nothing_of_another_sets_tests(hindi_task: Task) -> None:
    learned = {row.source for row in hindi_task.training}
    # Of its own tests a set keeps what it shares (captions 101 and 102, Tatoeba 600, Wikipedia 801) ...
    assert {"चित्र 101", "चित्र 102", "चित्र 600।", "चित्र 801"} <= learned
    # ... but not of others': 301 is in Tatoeba's, 401 and 901 have an English side in FLORES and in the news.
    assert not {"चित्र 301", "चित्र 401", "चित्र 901", "चित्र 104।"} & learned
    assert hindi_task.left_out == {
        "captions: pairs with a sentence of another set's test": 3,
        "tatoeba: pairs with a sentence of another set's test": 1,
        "wikipedia: pairs with a sentence of another set's test": 0,
        "pairs with a sentence of validation": 5 + sum(4 if n % 2 == 0 else 3 for n in held_wikipedia(hindi_task)),
    }


def held_wikipedia(task: Task) -> list[int]:
    numbers = [int(row.source.split()[1].rstrip("।")) for row in task.validation]
    return [n for n in numbers if 700 <= n < 800]


def test_hindi_validation_is_apart_from_training_and_tests(hindi_task: Task) -> None:
    known = Known([*hindi_task.training, *(row for rows in hindi_task.tests.values() for row in rows)])
    assert not any(real_sets.shares(row, known) for row in hindi_task.validation)
    assert len(hindi_task.validation) == 5 + 3 + 3  # of Tatoeba, of Wikipedia, and captions 201 to 203
    assert len(held_wikipedia(hindi_task)) == 3
    assert all(len(row.references) == 1 for row in hindi_task.validation)


def test_every_translation_of_a_sentence_is_learned_from_and_measured_with(hindi_task: Task) -> None:
    even, odd = (
        next(n for n in numbers if n not in held_wikipedia(hindi_task)) for numbers in ((700, 702), (701, 703))
    )
    for number, count in ((even, 4), (odd, 3)):
        wanted = [pair(f"चित्र {number}", f"picture {number} v{m}") for m in range(count)]
        assert [row for row in hindi_task.training if row.source == f"चित्र {number}"] == wanted
    assert [len(row.references) for row in hindi_task.tests["wikipedia"]] == [3, 4]
    assert list(hindi_task.tests) == [
        "tatoeba",
        "captions",
        "captions-challenge",
        "flores",
        "newstest2014",
        "wikipedia",
    ]


def test_a_task_is_written_and_read(hindi_task: Task, tmp_path: Path) -> None:
    record = real_sets.write_task(hindi_task, tmp_path / "out")
    again, rows = real_sets.read_task(tmp_path / "out")
    assert again == record
    assert rows.pop("valid") == hindi_task.validation
    assert rows == hindi_task.tests
    captions, wikipedia = record["tests"]["captions"], record["tests"]["wikipedia"]
    assert (captions["apart"], captions["source_in_training"], captions["target_in_training"]) == ([1], 1, 1)
    assert (wikipedia["apart"], wikipedia["references"]) == ([1], 4)
    train = (tmp_path / "out/train.tsv").read_text(encoding="utf-8").splitlines()
    assert len(train) == record["training"]
    assert all(line.count("\t") == 1 and "\r" not in line for line in train)


def test_one_side_in_training_is_an_overlap(tmp_path: Path) -> None:
    tests = {"a": [pair("x", "new"), pair("new", "y"), Row("other", ("new", "Y!")), pair("new", "new")]}
    record = real_sets.write_task(Task("t", [pair("x", "y")], [pair("v", "v")], tests), tmp_path)
    assert record["tests"]["a"]["apart"] == [3]
    assert (record["tests"]["a"]["source_in_training"], record["tests"]["a"]["target_in_training"]) == (1, 2)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    multi30k(tmp_path)
    write(tmp_path / "multi30k/train.de.gz", ["ein a"])
    with pytest.raises(DataError, match=r"train.en and its translations have 5, 1 lines"):
        real_tasks.multi30k(tmp_path)
    write(tmp_path / "tatoeba-fra-eng/fra.txt.gz", ["Go.\tVa !", "Go."])
    with pytest.raises(DataError, match=r"fra.txt, line 2: expected 2 columns separated by tabs, found 1"):
        real_tasks.french_english(tmp_path)
    with pytest.raises(DataError, match=r"holds no prepared task; give the folder of the data \(--data\)"):
        real_sets.read_task(tmp_path / "nowhere")


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
a   first              1–5: 32.0 (2)  41+: 30.0 (1)
a   second             1–5: 32.0 (2)  41+: 30.0 (1)
bb  first              1–5: 21.0 (2)  41+: 19.0 (1)
bb  second             1–5: 21.0 (2)  41+: 19.0 (1)

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
        (["hindi"], "unknown task 'hindi'; choose one of french-english, hindi-english, multi30k-en-de"),
        (
            ["repair", "hindi-english"],
            "'repair hindi-english' is not understood; expected a task, or prepare and a task",
        ),
        (["hindi-english", "--seeds", "1,x"], "--seeds 1,x: expected whole numbers separated by commas"),
        (["hindi-english", "--recipe", "no.toml"], "no.toml: there is no such recipe"),
        (["hindi-english"], "holds no prepared task; give the folder of the data (--data) to prepare it"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*words, "--out", tmp_path) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    multi30k(tmp_path)
    recipe = tmp_path / "small.toml"
    recipe.write_text("[model]\nwidht = 8\n", encoding="utf-8")
    assert command("multi30k-en-de", "--data", tmp_path, "--out", tmp_path, "--recipe", recipe) == 1
    said = capsys.readouterr().err
    assert "training small, seed 1, ended with code 2" in said
    assert "width" in said


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
    (again,) = json.loads((letters / "letters/results.json").read_text(encoding="utf-8"))["runs"]
    assert again["exam"]["alpha"] == 0.7
    assert again["training"] == results["runs"][0]["training"]
    more = ("--steps", 10**6, "--set", "training.patience=1000000", "--seconds", 4, "--seeds", 3)
    assert command(*common, *more) == 0
    (stopped,) = json.loads((letters / "letters/results.json").read_text(encoding="utf-8"))["runs"]
    assert stopped["training"]["stopped"]
    assert 4 <= stopped["training"]["training_seconds"] < 60


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_a_recipe_can_be_run(path: Path) -> None:
    config = Config.build(read_recipe(path))
    assert config.model == Config.build(config.plain()).model
    text = path.read_text(encoding="utf-8")
    task = next(task for task in real_tasks.TASKS if path.stem.startswith(f"{task}-"))
    assert f"# command: python benchmarks/real.py {task} --recipe recipes/{path.name} " in text
    assert "/" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
    assert path in real.recipes(task, None)
    if getattr(config.model, "tied", None) == "all":
        assert config.text.joint
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert f"recipes/{path.name}" in page


def test_the_families_are_compared_at_the_same_widths() -> None:
    rnn, fixed = (read_recipe(ROOT / f"recipes/multi30k-en-de-{name}.toml") for name in ("rnn", "fixed"))
    for name in ("cell", "width", "encoder_width", "embedding", "tied"):
        assert rnn["model"][name] == fixed["model"][name]
    assert rnn["text"] == fixed["text"]


def test_every_module_says_what_it_offers() -> None:
    modules: list[ModuleType] = [real, real_run, real_sets, real_table, real_tasks]
    for module in modules:
        assert all(hasattr(module, name) for name in module.__all__)
