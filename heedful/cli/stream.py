"""A translation while it is being written: its words, the heat map as it grows, plain lines, or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich.live import Live
from rich.text import Text as Rich

from heedful.cli.options import print_json, width
from heedful.cli.output import print_translation, terminal_console
from heedful.cli.translate import MAP_CELLS, one_line
from heedful.draw import heatmap
from heedful.errors import printable
from heedful.text.codec import merge
from heedful.trace import Text, Trace
from heedful.translator import Token

__all__ = ["Printer", "printer", "so_far"]

Printer = Callable[[int, Iterator[Token]], list[str]]
LEAST, MOST = 0.05, 3  # the least weight of a word that a plain line names, and how many it names


def printer(show: bool, ascii_only: bool, json: bool) -> Printer:
    """Return what writes the tokens of line number n on stdout as they come, and then gives their notes."""
    if json:
        return lambda number, tokens: _json(number, tokens, show)
    if not show:
        return lambda _, tokens: _plain(tokens)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return lambda _, tokens: _live(tokens, ascii_only)
    return lambda number, tokens: _lines(number, tokens, ascii_only)


def so_far(tokens: Sequence[Token]) -> Trace:
    """Return the trace of what has been written of a sentence: at least one token, `</s>` perhaps not yet."""
    text, spans = "", []
    for token in tokens:
        piece = "" if token.end else token.text if text else token.text.lstrip()
        start = len(text) + len(piece) - len(piece.lstrip())
        text += piece
        spans.append((start, len(text)))
    words = merge(text, spans) if tokens[-1].end else merge(text, [*spans, (len(text), len(text))])[:-1]
    target = Text(text, tuple("</s>" if token.end else token.text for token in tokens), tuple(spans), words)
    given = [token.weights for token in tokens if token.weights is not None]
    weights = np.stack(given, axis=2) if given else None
    return Trace(tokens[0].source, target, weights, np.array([token.log_prob for token in tokens], dtype=np.float32))


def _sentences(tokens: Iterator[Token], notes: list[str]) -> Iterator[list[Token]]:
    """Yield what there is of the sentence being written, after each of its tokens."""
    written: list[Token] = []
    for token in tokens:
        written.append(token)
        yield written
        if token.end:
            notes += token.notes
            written = []


def _plain(tokens: Iterator[Token]) -> list[str]:
    notes: list[str] = []
    held, begun = "", False  # space is held back until a word follows it
    try:
        for written in _sentences(tokens, notes):
            # A text that was typed keeps its line breaks; a line of a file has none.
            piece = held + "\n".join(one_line(line) for line in written[-1].text.split("\n"))
            body = piece.rstrip()
            held = piece[len(body) :]
            print_translation(body if begun else body.lstrip(), end="", flush=True)
            begun = begun or bool(body)
    finally:
        print(flush=True)
    return notes


def _json(number: int, tokens: Iterator[Token], show: bool) -> list[str]:
    notes: list[str] = []
    blank = True
    for written in _sentences(tokens, notes):
        blank, token = False, written[-1]
        record = {"line": number, "text": token.text, "log_prob": token.log_prob, "end": token.end}
        if show:
            weights = so_far([token]).words()
            record["source_words"] = [list(word[:3]) for word in token.source.words]
            record["weights"] = None if weights is None else np.round(weights[-1].astype(float), 4).tolist()
        print_json(record)
    if blank:
        print_json({"line": number, "text": "", "log_prob": 0.0, "end": True})
    return notes


def _lines(number: int, tokens: Iterator[Token], ascii_only: bool) -> list[str]:
    """Print a line for each word when it is whole: how sure the model was, and the words it looked at most."""
    notes: list[str] = []
    if number > 1:
        print()
    for written in _sentences(tokens, notes):
        trace = so_far(written)
        whole = len(trace.target.words) - (not written[-1].end)  # the last word may get more tokens
        for at in range(whole):
            print(_line(trace, at, ascii_only), flush=True)
        if whole > 0:  # what was printed need not be gone through again
            del written[: trace.target.words[whole - 1].last]
    return notes


def _line(trace: Trace, at: int, ascii_only: bool) -> str:
    word, sure, weights = trace.target.words[at].text, trace.confidences()[at], trace.words()
    if weights is None:
        return f"{word} ({sure:.0%})"
    most = sorted(zip(weights[at].tolist(), trace.source.words, strict=True), key=lambda pair: -pair[0])[:MOST]
    looked = ", ".join(f"{source.text} {weight:.0%}" for weight, source in most if weight >= LEAST)
    return f"{word} ({sure:.0%}) {'<-' if ascii_only else '←'} {looked or 'everywhere'}"


def _live(tokens: Iterator[Token], ascii_only: bool) -> list[str]:
    """Draw the heat map anew after each token; a map that is higher than the terminal shows its end while it grows."""
    notes: list[str] = []
    console = terminal_console(stderr=False)
    live: Live | None = None
    try:
        for written in _sentences(tokens, notes):
            if live is None:
                live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
                live.start()
            end, large = written[-1].end, len(written[0].source.tokens) * len(written) > MAP_CELLS
            if large:
                written[-1] = replace(written[-1], weights=None)
                if written[0].weights is not None:
                    written[:] = [replace(token, weights=None) for token in written]
            trace = so_far(written)
            text = Rich(printable(one_line(trace.target.text))).wrap(console, console.width)
            drawn = [] if large else heatmap(trace, width(), ascii_only).splitlines()
            if large and end:
                notes.append(f"the map is left out: it has more than {MAP_CELLS:,} source tokens × target tokens")
            frame = [*(line.plain for line in text), "", *drawn, ""]
            frame = frame if end else frame[-(console.height - 1) :]
            live.update(Rich("\n".join(frame), no_wrap=True, overflow="ignore"), refresh=not end)
            if end:
                live.stop()
                live = None
    finally:
        if live is not None:
            live.stop()
    return notes
