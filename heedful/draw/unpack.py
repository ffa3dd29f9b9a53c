"""Traces from what `pack.plain` made of them: for drawing here what was worked out elsewhere."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.draw.pack import FULL, UNKNOWN
from heedful.errors import DataError
from heedful.trace import END, Text, Trace, Word
from heedful.trace.alarms import AlarmRates
from heedful.trace.json_checks import check_text
from heedful.trace.readout import Readout

__all__ = ["sentences", "unpack"]

READ = "read-out: "
MOST_CELLS = 25_000_000  # source times target tokens: 100 MB


def unpack(plain: Mapping[str, Any] | None, source: str, target: str) -> Trace:
    """Return the trace of two texts: `read` (T, S) as the read-out has it, and no single heads.

    Weights under the floor that they were packed with are 0, and all of them are exact to one part in 65,535.
    """
    if not isinstance(plain, Mapping):
        raise DataError("this is no figure: expected an object")
    try:
        texts = _text(plain["source"], source), _text(plain["target"], target)
        told, packed = str(plain["readout"]), plain["read"]
        weights = None if packed is None else _weights(packed, len(texts[1].tokens), len(texts[0].tokens))
        logs = np.array(plain["logs"], dtype=np.float32)
        rates = None if plain.get("alarm_rates") is None else AlarmRates.build(plain["alarm_rates"])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, binascii.Error) as error:
        missing = isinstance(error, KeyError)
        why = f"it has no {error}" if missing else f"{type(error).__name__}: {error}"
        raise DataError(f"this is no figure: {why:.120}") from None
    for text, side in zip(texts, ("source", "target"), strict=True):
        check_text(text, f"this is no figure: {side}: ")
    if logs.shape != (len(texts[1].tokens),) or not np.isfinite(logs).all():
        raise DataError(f"this is no figure: it needs a log-probability for each of {len(texts[1].tokens)} tokens")
    attention = told.startswith(READ) or weights is None
    readout = Readout(label=told.removeprefix(READ), attention=attention, alarms=rates)
    return Trace(*texts, None, logs, readout, weights, bool(plain.get("self")))


def sentences(trace: Trace) -> list[Trace]:
    """Return the traces of the sentences of a text, each by itself; where they do not go together, the whole."""
    ends = [[i + 1 for i, word in enumerate(side.words) if word.is_end] for side in (trace.source, trace.target)]
    if len(ends[0]) != len(ends[1]) or len(ends[0]) < 2:
        return [trace]
    found, x, y = [], 0, 0
    for i, j in zip(*ends, strict=True):
        columns, rows = _tokens(trace.source, x, i), _tokens(trace.target, y, j)
        read = None if trace.read is None else trace.read[rows, columns]
        texts = _part(trace.source, x, i), _part(trace.target, y, j)
        found.append(Trace(*texts, None, trace.log_probs[rows], trace.readout, read))
        x, y = i, j
    return found


def _tokens(side: Text, first: int, last: int) -> slice:
    return slice(side.words[first].first, side.words[last - 1].last)


def _part(side: Text, first: int, last: int) -> Text:
    """Return the words `first:last` of a text, as a text."""
    words, tokens = side.words[first:last], _tokens(side, first, last)
    begin, end = words[0].start, words[-1].end
    moved = (Word(w.text, w.start - begin, w.end - begin, w.first - tokens.start, w.last - tokens.start) for w in words)
    spans = ((i - begin, j - begin) for i, j in side.spans[tokens])
    return Text(side.text[begin:end], side.tokens[tokens], tuple(spans), tuple(moved))


def _text(plain: Mapping[str, Any], text: str) -> Text:
    """Return one side; its words are looked for in the text, in their order. One that is not there has no place."""
    given, words, at = plain["tokens"], [], 0
    if not all(isinstance(token, str) for token in given):
        raise TypeError("a token is no text")
    missing = set(plain.get("unknown", ()))
    tokens = tuple(UNKNOWN if i in missing else token for i, token in enumerate(given))
    spans = [(0, 0)] * len(tokens)
    for word, first, last in plain["words"]:
        if not 0 <= first <= last <= len(tokens):
            raise ValueError(f"the tokens {first} to {last} of {len(tokens)}")
        end = word == END and tokens[first:last] == (END,)
        start = at if end else text.find(word, at)
        start, at = (at, at) if end or start < 0 else (start, start + len(word))
        words.append(Word(word, start, at, first, last))
        spans[first:last] = [(start, at)] * (last - first)
    return Text(text, tokens, tuple(spans), tuple(words))


def _weights(packed: Mapping[str, Any], T: int, S: int) -> NDArray[np.float32]:
    """Return the weights of one map.  (T, S)."""
    counts, columns, weights = (
        np.frombuffer(base64.b64decode(packed[name]), dtype="<u2") for name in ("counts", "columns", "weights")
    )
    if T * S > MOST_CELLS:
        raise ValueError(f"{T:,} times {S:,} tokens; {MOST_CELLS:,} cells are the most that is drawn")
    if len(counts) != T or not len(columns) == len(weights) == counts.sum() or (columns >= S).any():
        raise ValueError(f"weights of {len(counts)} tokens, where {T} look at {S}")
    read = np.zeros((T, S), dtype=np.float32)
    read[np.repeat(np.arange(T), counts), columns] = weights.astype(np.float32) / FULL
    return read
