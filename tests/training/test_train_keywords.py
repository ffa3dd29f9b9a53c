"""Settings of `heedful.train` by name, and pairs from files."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest
from conftest import copies, write_pairs
from small_runs import small

import heedful
from heedful.errors import ArgumentError, ConfigError, DataError
from heedful.training.setup import with_keywords


def test_settings_by_name(tmp_path: Path) -> None:
    made = heedful.train(
        copies(), tmp_path / "m", verbose=False, model="fixed", steps=5, width=8, embedding=8, kind="word", device="cpu"
    )
    assert made.config.family == "fixed"
    assert made.config.training.steps == 5
    assert made.config.model.width == 8
    assert made.config.text.kind == "word"


@pytest.mark.parametrize(
    ("wrong", "guess"),
    [("step", "steps"), ("modle", "model"), ("batch_token", "batch_tokens"), ("callbacks", "callback"), ("lr", "rate")],
)
def test_an_unknown_argument_gets_a_guess(tmp_path: Path, wrong: str, guess: str) -> None:
    with pytest.raises(ArgumentError, match=f"train: unknown argument '{wrong}'.*'{guess}'"):
        heedful.train(copies(), tmp_path / "m", **{wrong: 1})
    assert not (tmp_path / "m").exists()


def test_what_is_no_list_of_pairs(tmp_path: Path) -> None:
    with pytest.raises(heedful.HeedfulError, match=r"list of \(sentence, translation\).*int"):
        heedful.train(5, tmp_path / "m")  # type: ignore[arg-type]


def test_watch_is_gone(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'watch'.*'callback'"):
        heedful.train(copies(), tmp_path / "m", watch=print)


def test_a_setting_is_given_once() -> None:
    with pytest.raises(ConfigError, match="training.steps.*twice"):
        with_keywords({"training": {"steps": 5}}, {"steps": 6}, heedful.train)
    assert with_keywords({"training": {"seed": 5}}, {"model": "rnn", "rate": 0.1}, heedful.train) == {
        "training": {"seed": 5, "rate": 0.1},
        "model": {"family": "rnn"},
    }
    assert with_keywords({}, {"batch_tokens": 9}, heedful.train) == {"training": {"batch_tokens": 9}}


def test_training_takes_the_name_of_a_file(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", copies())
    heedful.train(path, tmp_path / "a", settings=small(training={"steps": 5}), verbose=False)
    heedful.train(heedful.read_pairs(path), tmp_path / "b", settings=small(training={"steps": 5}), verbose=False)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


def test_read_pairs_of_every_format(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = [("ein Haus", "a house"), ("ein Hund", "a dog")]
    (tmp_path / "p.tsv").write_text("ein Haus\ta house\nein Hund\ta dog\n", encoding="utf-8")
    (tmp_path / "p.csv").write_text("de,en\nein Haus,a house\nein Hund,a dog\n", encoding="utf-8")
    (tmp_path / "p.jsonl").write_text(
        '{"de": "ein Haus", "en": "a house"}\n{"de": "ein Hund", "en": "a dog"}\n', encoding="utf-8"
    )
    (tmp_path / "p.tsv.gz").write_bytes(gzip.compress((tmp_path / "p.tsv").read_bytes()))
    (tmp_path / "p.de").write_text("ein Haus\nein Hund\n", encoding="utf-8")
    (tmp_path / "p.en").write_text("a house\na dog\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert heedful.read_pairs(tmp_path / "p.tsv") == expected
        assert heedful.read_pairs(tmp_path / "p.tsv.gz") == expected
        assert heedful.read_pairs(str(tmp_path / "p.csv"), columns="de,en") == expected
        assert heedful.read_pairs(str(tmp_path / "p.csv"), columns=("de", "en")) == expected
        assert heedful.read_pairs(tmp_path / "p.jsonl", columns="de,en") == expected
        assert heedful.read_pairs(tmp_path / "p.de", tmp_path / "p.en") == expected
        assert heedful.read_pairs(tmp_path / "p.tsv", columns="2,1")[0] == ("a house", "ein Haus")
    assert not caplog.messages
    with pytest.raises(DataError, match=r"no\.tsv"):
        heedful.read_pairs(tmp_path / "no.tsv")


def test_read_pairs_reports_what_it_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("a\tb\n\tc\na\tb\n", encoding="utf-8")
    assert heedful.read_pairs(path) == [("a", "b")]
    (message,) = caplog.messages
    assert "empty side" in message
    assert "p.tsv:2" in message
    assert len(heedful.read_pairs(path, duplicates=True)) == 2


def test_read_pairs_guesses(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="read_pairs: unknown argument 'column'.*'columns'"):
        heedful.read_pairs(tmp_path / "p.tsv", column="1,2")  # type: ignore[call-arg]


def test_read_pairs_says_that_it_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("a\tb\n", encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        for wrong, part in (
            (["p.tsv"], "p.tsv"),
            (None, "None"),
            ([("a", "b")], "heedful.train"),
            (file, str(path)),
            (b"p.tsv", "p.tsv"),
        ):
            with pytest.raises(ConfigError, match="expected the path of a file") as caught:
                heedful.read_pairs(wrong)  # type: ignore[arg-type]
            assert part in str(caught.value)
    with pytest.raises(ConfigError, match="target is 5, expected the path"):
        heedful.read_pairs(path, 5)  # type: ignore[arg-type]


def test_read_pairs_names_its_arguments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.tsv"
    for text, part in (
        ("source\ttarget\na\tb\n", "columns='source,target'"),
        ("1\ta\tb\n2\tc\td\n", "columns='2,3'"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError) as caught:
            heedful.read_pairs(path)
        assert part in str(caught.value)
        assert "--" not in str(caught.value)
        with pytest.raises(DataError, match=r"heedful\.read_pairs\(file, columns=") as caught:
            heedful.train(path, tmp_path / "m", verbose=False)
        assert part in str(caught.value)
        assert "--" not in str(caught.value)
    path.write_text("a\tb\tc\n", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        heedful.read_pairs(path)
    assert "columns='2,3'" in caplog.text
    assert "--columns" not in caplog.text


def test_errors_of_files_steer_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x\x1b[2J.tsv"
    for text in (None, "a\tb\n\x1b[2J\n"):
        if text is not None:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="x1b") as caught:
            heedful.read_pairs(path)
        assert "\x1b" not in str(caught.value)
