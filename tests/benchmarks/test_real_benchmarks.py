"""The benchmarks on real data: which sentences are kept out of training."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import real_sets
import real_tasks
from real_sets import Known, Row, Task

from heedful.errors import DataError


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
    monkeypatch.setattr(real_tasks, "FRENCH", 60)
    pairs = [(f"Sentence {n}.", f"Phrase {n}, {m} !") for n in range(200) for m in range(1 + n % 3)]
    pairs += [(f"SENTENCE {n}!", f"Encore {n}.") for n in range(0, 200, 5)]  # the same English, written otherwise
    pairs += [(f"Other {n}.", f"Phrase {n}, 0 !") for n in range(100)]  # the same French, of another English
    french(tmp_path, pairs)
    task = real_tasks.french_english(tmp_path)
    test = task.tests["tatoeba"]
    english = [{real_sets.key(r.references[0]) for r in rows} for rows in (test, task.validation, task.training)]
    assert len(english[0]) == 60
    assert 40 <= len(english[1]) < 60
    assert len(test) > 60
    held = Known([*test, *task.validation])
    assert not any(real_sets.shares(row, held) for row in task.training)
    assert not any(real_sets.shares(row, Known(test)) for row in task.validation)
    # Every translation of a test sentence is in the test, and what is in no part shares French with a held-out pair.
    assert all(Row(f, (e,)) in test for e, f in pairs if real_sets.key(e) in english[0])
    assert 0 < task.left_out["pairs with a held-out French sentence"] < 60
    assert len(task.training) > 200
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


def test_hindi_the_other_way_round(hindi_task: Task, tmp_path: Path) -> None:
    task = real_tasks.english_hindi(tmp_path)
    assert [Row(row.references[0], (row.source,)) for row in task.training] == hindi_task.training
    assert task.tests["wikipedia"] == [pair("picture 801 v0", "चित्र 801"), pair("picture 802 v0", "चित्र 802")]


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
