"""`heedful translate --stream`: words as they come, plain, as JSON, as lines, and the map that grows in a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT

import heedful
from heedful.cli.translate import printer
from heedful.draw import heatmap
from heedful.translator.translation import partial_trace

Run = Callable[..., tuple[int, str, str]]
NEVER = "--min-length", "10000"  # a translation that takes far longer than a test


@pytest.mark.parametrize("text", ["a b c d", "A b! C d!", "  A b!\n\nC d! ", ""])
def test_a_stream_prints_the_translation(heedful_cli: Run, tiny: Path, text: str) -> None:
    wanted = heedful_cli("translate", tiny, text, "e", "--sample").out
    assert heedful_cli("translate", tiny, text, "e", "--stream", "--sample").out == wanted


def test_a_stream_as_json(heedful_cli: Run, tiny: Path) -> None:
    lines = heedful_cli("translate", tiny, "a b c", "", "--stream", "--show", "--json").out.splitlines()
    records = [json.loads(line) for line in lines]
    whole = heedful.load(tiny, "cpu").translate("a b c")
    assert "".join(r["text"] for r in records if r["line"] == 1) == whole.text
    assert [r["end"] for r in records] == [False] * (len(records) - 2) + [True, True]
    assert sum(r["log_prob"] for r in records) == pytest.approx(whole.score, abs=1e-4)
    weights = whole.trace.words()
    assert weights is not None
    assert records[0]["weights"] == pytest.approx(weights[0].tolist(), abs=1e-3)
    assert records[-1]["line"] == 2


def test_a_stream_shown_to_no_terminal_has_a_line_for_each_word(heedful_cli: Run, tiny: Path) -> None:
    out = heedful_cli("translate", tiny, "a b c", "d", "--stream", "--show").out
    first, second = out.split("\n\n")
    whole = heedful.load(tiny, "cpu").translate("a b c").trace
    weights, sure = whole.words(), whole.confidences()
    assert weights is not None
    assert len(first.splitlines()) == len(whole.target.words)
    for line, word, row, share in zip(first.splitlines(), whole.target.words, weights, sure, strict=True):
        most = whole.source.words[int(row.argmax())].text
        assert line.startswith(f"{word.text} ({share:.0%}) ← {most} {row.max():.0%}")
    assert second.splitlines()[-1].startswith("</s> (")
    plain = heedful_cli("translate", tiny, "a b c", "--stream", "--show", "--ascii").out
    assert plain.isascii()
    assert " <- " in plain


def test_a_partial_trace_becomes_the_trace(tiny: Path) -> None:
    translator = heedful.load(tiny, "cpu")
    tokens = list(translator.stream("a b c"))
    whole = translator.translate("a b c").trace
    assert partial_trace(tokens).target.words == whole.target.words
    assert partial_trace(tokens).target.spans == whole.target.spans
    for n in range(1, len(tokens)):
        part = partial_trace(tokens[:n])
        assert [w.text for w in part.target.words] == whole.target.text.split()[:n]
        rows = part.words()
        assert rows is not None
        assert rows.shape == (n, len(whole.source.words))


class Terminal(io.StringIO):
    """A terminal as far as Python asks."""

    def isatty(self) -> bool:
        return True


def screen(written: str, rows: int) -> str:
    """What a terminal of so many rows shows, with what has scrolled away: lines can be cleared while they are seen."""
    lines, at = [""], 0
    for piece in re.findall(r"\x1b\[\??\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if piece == "\n":
            at += 1
            lines += [""] * (at == len(lines))
        elif piece.endswith("A") and piece.startswith("\x1b"):
            at = max(at - int(piece[2:-1]), len(lines) - rows, 0)
        elif piece == "\x1b[2K":
            lines[at] = ""
        elif piece[0] not in "\x1b\r":
            lines[at] += piece
    return "\n".join(line.rstrip() for line in lines).strip("\n")


@pytest.mark.parametrize("rows", [30, 9])
def test_in_a_terminal_the_map_grows_and_is_there_once_in_the_end(
    tiny: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COLUMNS", "60"), ("LINES", str(rows)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    translator = heedful.load(tiny, "cpu")
    assert printer(True, False, False)(1, translator.stream("a b! C d!")) == []
    written = sys.stdout.getvalue()  # type: ignore[attr-defined]
    parts = [f"{one.text}\n\n{heatmap(one.trace, 60)}" for one in translator.translate("a b! C d!").sentences]
    assert screen(written, rows) == "\n\n".join(parts)
    assert written.count("weight from:") > 2 * len(parts)  # it was drawn again and again


def test_in_a_terminal_a_large_map_is_left_out(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COLUMNS", "60"), ("LINES", "30"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr("heedful.cli.translate.MAP_CELLS", 10)
    translator = heedful.load(tiny, "cpu")
    notes = printer(True, False, False)(1, translator.stream("a b c d"))
    written = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert screen(written, 30) == translator.translate("a b c d").text
    assert "weight from:" in written  # as long as it was small
    assert "more than 10 source tokens × target tokens" in notes[0]


def test_ctrl_c_ends_a_stream_cleanly(tiny: Path) -> None:
    command = [sys.executable, "-m", "heedful", "translate", str(tiny), "a b", "--stream", *NEVER]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert out.endswith(b"\n")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_ctrl_c_leaves_a_terminal_as_it_was(tiny: Path) -> None:
    import pty

    here, there = pty.openpty()
    command = [sys.executable, "-m", "heedful", "translate", str(tiny), "a b", "--stream", "--show", *NEVER]
    environment = {**os.environ, "TERM": "xterm", "LINES": "20", "COLUMNS": "60"}
    process = subprocess.Popen(command, cwd=ROOT, stdout=there, stderr=subprocess.PIPE, env=environment)
    os.close(there)
    written = b""
    while b"weight from:" not in written:
        written += os.read(here, 65536)
    process.send_signal(2)
    try:
        while some := os.read(here, 65536):
            written += some
    except OSError:  # the other end is closed
        pass
    _, err = process.communicate(timeout=60)
    os.close(here)
    assert (process.returncode, err) == (130, b"")
    assert written.count(b"\x1b[?25l") == written.count(b"\x1b[?25h") == 1  # the cursor is shown again
