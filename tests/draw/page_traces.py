"""Traces with known numbers for the tests of the interactive page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.trace import Text, Trace, Word


def side(words: Sequence[Sequence[str]]) -> Text:
    """A text of words that are given as their pieces; the last is `</s>`."""
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    made, at = [], 0
    for pieces in words:
        first, start = len(tokens), at
        for piece in pieces:
            tokens.append(piece)
            spans.append((at, at + len(piece)))
            at += len(piece)
        made.append(Word("".join(pieces), start, at, first, len(tokens)))
        at += 1
    text = " ".join(word.text for word in made)
    n = len(text)
    made.append(Word("</s>", n, n, len(tokens), len(tokens) + 1))
    return Text(text, (*tokens, "</s>"), (*spans, (n, n)), tuple(made))


HINDI = side([["मैं"], ["खाना"], ["खा"], ["रहा"], ["हूँ"]])
ENGLISH = side([["I"], ["am"], ["eat", "ing"], ["food"]])
ROWS = (
    (0.90, 0.02, 0.02, 0.02, 0.02, 0.02),  # I
    (0.02, 0.02, 0.02, 0.40, 0.50, 0.04),  # am
    (0.00, 0.70, 0.20, 0.10, 0.00, 0.00),  # eat
    (0.00, 0.52, 0.40, 0.08, 0.00, 0.00),  # ing
    (0.00, 0.95, 0.05, 0.00, 0.00, 0.00),  # food
    (0.10, 0.10, 0.10, 0.10, 0.10, 0.50),  # </s>
)


def known() -> Trace:
    """One head: `eating` looks at खाना with 61 %, at खा with 30 %, and at रहा with 9 %; it is not sure of `food`."""
    log_probs = np.log(np.array([0.9, 0.9, 0.8, 0.8, 0.3, 0.9], dtype=np.float32))
    return Trace(HINDI, ENGLISH, np.array(ROWS, dtype=np.float32)[None, None], log_probs)


def heads(layers: int = 2, count: int = 3) -> Trace:
    """Many heads: head h of layer l looks at the word (t + l + h) mod S alone."""
    T, S = len(ENGLISH.tokens), len(HINDI.tokens)
    weights = np.zeros((layers, count, T, S), dtype=np.float32)
    for layer in range(layers):
        for head in range(count):
            for t in range(T):
                weights[layer, head, t, (t + layer + head) % S] = 1
    return Trace(HINDI, ENGLISH, weights, np.zeros(T, dtype=np.float32) - 0.1)


def inside() -> Trace:
    """A sentence that looks at itself, each word at the one before it."""
    n = len(HINDI.tokens)
    weights = np.roll(np.eye(n, dtype=np.float32), -1, axis=1)[None, None]
    return Trace(HINDI, HINDI, weights, np.zeros(n, dtype=np.float32), inside=True)


def plain_words(source: str, target: str, at: Sequence[int] = ()) -> Trace:
    """A trace of words of one piece; word t looks with 80 % at word `at[t]`, or t."""
    x, y = (side([[word] for word in text.split()]) for text in (source, target))
    T, S = len(y.tokens), len(x.tokens)
    weights = np.full((T, S), 0.2 / S, dtype=np.float32)
    for t in range(T):
        weights[t, at[t] if t < len(at) else min(t, S - 1)] += 0.8
    return Trace(x, y, weights[None, None], np.full(T, -0.1, dtype=np.float32))


def long(words: int, layers: int = 1, count: int = 1) -> Trace:
    """A long sentence that looks along the diagonal, and with a tenth of its weight anywhere."""
    random = np.random.default_rng(0)
    text = side([[f"w{i}"] for i in range(words - 1)])
    weights = random.random((layers, count, words, words), dtype=np.float32) ** 8
    weights *= 0.1 / weights.sum(-1, keepdims=True)
    here = np.clip(np.arange(words) + random.integers(-2, 3, words), 0, words - 1)
    weights[:, :, np.arange(words), here] += 0.9
    return Trace(text, text, weights, np.full(words, -0.1, dtype=np.float32))


def unpack(packed: dict[str, Any], T: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """The maps and what was left out of each row, as the script reads them."""
    counts, rest, columns, weights = (
        np.frombuffer(base64.b64decode(packed[name]), dtype="<u2") for name in ("counts", "rest", "columns", "weights")
    )
    maps = np.zeros((len(counts), S))
    maps[np.repeat(np.arange(len(counts)), counts), columns] = weights / 65535
    return maps.reshape(-1, T, S), (rest / 65535).reshape(-1, T)
