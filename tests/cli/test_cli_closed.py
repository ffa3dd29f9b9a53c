"""Standard streams that were closed before the start, and bytes that are no text."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.errors import DataError

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("closed", "code", "out", "err"),
    [
        (">&-", 1, "", "heedful: the output cannot be written (Bad file descriptor)\n"),
        ("2>&-", 2, "", ""),  # and nothing is said on stdout instead
    ],
)
def test_closed_output(environment: dict[str, str], closed: str, code: int, out: str, err: str) -> None:
    name = "hindi" if code == 1 else "hindee"
    command = f"{sys.executable} -m heedful corpus {name} --pairs 1 {closed}"
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_closed_input(monkeypatch: pytest.MonkeyPatch) -> None:
    from heedful.cli.translate import _stdin

    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed"):
        _stdin()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "a b".encode("utf-16"),
            "byte 1 is 0xff, which is not UTF-8; it is UTF-16, which iconv -f utf-16 -t utf-8 converts",
        ),
        (gzip.compress(b"a b", mtime=0), "byte 2 is 0x8b, which is not UTF-8; it is gzip, which zcat unpacks"),
        (b"caf\xe9", "byte 4 is 0xe9, which is not UTF-8; convert the file to UTF-8 first"),
    ],
)
def test_what_is_no_text(heedful_cli: Run, tiny: Path, content: bytes, words: str) -> None:
    assert heedful_cli("translate", tiny, stdin=content) == (2, "", f"heedful: standard input, line 1: {words}\n")


def test_nothing_to_score(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("")
    assert heedful_cli("score", tiny, tmp_path / "p.tsv") == (0, "", "no pairs to score\n")


def test_a_pair_that_is_too_long_has_no_score(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    long = " ".join("a" * 300)
    (tmp_path / "p.tsv").write_text(f"a b\tA B\n{long}\tA\nc\tC\n")
    code, out, err = heedful_cli("score", tiny, tmp_path / "p.tsv")
    assert code == 0
    assert [bool(line) for line in out.splitlines()] == [True, False, True]
    said = "a sentence of 301 tokens is longer than this model reads at once (256, text.max_length); it has no score"
    assert err == f"line 2: {said}\n"
    code, out, err = heedful_cli("see", tiny, long, "--target", "A")
    assert (code, out) == (2, "")
    assert "a sentence of 301 tokens is longer than this model reads at once" in err


def test_a_system_that_is_not_there(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tA\n")
    code, _, err = heedful_cli("evaluate", tmp_path / "m", tmp_path / "t.tsv")
    assert code == 2
    assert err == f"heedful: {tmp_path / 'm'}: there is no such model folder, nor such a file of translations\n"
