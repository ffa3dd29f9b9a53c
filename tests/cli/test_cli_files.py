"""`heedful translate --out`: files as arguments, options that go together, messages and exit codes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

Run = Callable[..., Done]


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for file in files:
        file.write_text('{"id": 1, "text": "a b"}\n{"id": 2, "text": null}\n', encoding="utf-8")
    return files


def test_files_are_translated_once(heedful_cli: Run, tiny: Path, tmp_path: Path, corpus: list[Path]) -> None:
    command = (
        "translate",
        tiny,
        *corpus,
        "--out",
        tmp_path / "done",
        "--alignments",
        "--alarms",
        "--beam",
        2,
        "--n-best",
        2,
    )
    done = heedful_cli(*command)
    assert (done.code, done.out) == (0, "")
    assert "2 files written, 4 rows, 2 of them null" in done.err
    first, second = (tmp_path / "done" / "a.jsonl").read_text(encoding="utf-8").splitlines()
    added = ["translation", "score", "confidence", "links", "alarms", "n_best", "error"]
    assert list(json.loads(first)) == ["id", "text", *added]
    assert [json.loads(second)[name] for name in added] == [None] * 7
    again = heedful_cli(*command)
    assert (again.code, again.out) == (0, "")
    assert "nothing to do; 2 were done before" in again.err


def test_one_file_and_a_record_of_the_run(heedful_cli: Run, tiny: Path, tmp_path: Path, corpus: list[Path]) -> None:
    done = heedful_cli("translate", tiny, corpus[0], "--out", tmp_path / "x.jsonl.gz", "--json", "--quiet")
    record = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (record["outputs"], record["rows"], record["null"]) == (["x.jsonl.gz"], 2, 1)
    with gzip.open(tmp_path / "x.jsonl.gz", "rt") as file:
        assert len(file.readlines()) == 2


def test_a_file_without_out_is_a_text_and_the_hint_names_out(
    heedful_cli: Run, tiny: Path, tmp_path: Path, corpus: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = heedful_cli("translate", tiny, "a.jsonl")
    assert f"translate {tiny} a.jsonl --out a.translated.jsonl" in done.err
    done = heedful_cli("translate", tiny, "a.jsonl", "--out", "a.translated.jsonl")
    assert done.code == 0
    (tmp_path / "notes").write_text("a", encoding="utf-8")
    assert "< notes" in heedful_cli("translate", tiny, "notes").err


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--show"], ("--show", "--out")),
        (["--stream"], ("--stream", "--out")),
        (["--html"], ("--html", "--out")),
        (["--ascii"], ("--ascii", "--out")),
        (["--server", "http://x"], ("--server", "--out")),
        (["--patience", "3"], ("--patience", "--out")),
        (["--alpha", "2"], ("--alpha", "--beam")),
        (["--top-k", "2"], ("--top-k", "--sample")),
        (["--column", "txt"], ("a.jsonl, line 1", "'txt'", "Did you mean 'text'")),
        (["--column", "id", "--beam", "0"], ("--beam",)),
        (["--shard", "3/2"], ("3/2", "3/64")),
        (["--prefix", "zzz"], ("zzz",)),
    ],
)
def test_options_that_do_not_go_with_files(
    heedful_cli: Run, tiny: Path, tmp_path: Path, corpus: list[Path], options: list[str], facts: tuple[str, ...]
) -> None:
    done = heedful_cli("translate", tiny, *corpus, "--out", tmp_path / "done", *options)
    assert done.code == 2
    assert all(fact in done.err for fact in facts), done.err


@pytest.mark.parametrize(
    "option", [["--column", "x"], ["--shard", "1/2"], ["--ray", "auto"], ["--added-prefix", "x"], ["--alarms"]]
)
def test_options_that_need_out(heedful_cli: Run, tiny: Path, option: list[str]) -> None:
    done = heedful_cli("translate", tiny, "a", *option)
    assert done.code == 2
    assert option[0] in done.err
    assert "--out" in done.err


def test_out_needs_files(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    done = heedful_cli("translate", tiny, "--out", tmp_path / "done", stdin=b"a\n")
    assert done.code == 2
    assert "no files" in done.err


def test_messages_name_options(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("en\ttranslation\na\tb\n", encoding="utf-8")
    command = ("translate", tiny, tmp_path / "x.tsv", "--out", tmp_path / "done")
    assert "--column 1" in heedful_cli(*command).err
    assert "--added-prefix mt_" in heedful_cli(*command, "--column", "en").err
    assert heedful_cli(*command, "--column", "en", "--added-prefix", "mt_").code == 0


def test_a_damaged_file_is_listed_at_the_end(heedful_cli: Run, tiny: Path, tmp_path: Path, corpus: list[Path]) -> None:
    bad = tmp_path / "bad\x1b.jsonl.gz"
    bad.write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:-20])
    done = heedful_cli("translate", tiny, *corpus, bad, "--out", tmp_path / "done")
    assert done.code == 2
    *_, summary, last = done.err.splitlines()
    assert "1 input failed; 2 are done" in summary
    assert "bad\\x1b.jsonl.gz" in last
    assert "\x1b" not in done.err
