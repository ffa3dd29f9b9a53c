"""Runs of models with known numbers for the tests of the explorer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heedful.draw.model_attention import ModelAttention
from heedful.trace import Text, Word
from heedful.trace.model_attention import AttentionGroup, Weights, block_edges

STREET = "The animal did not cross the street because it was too tired."


def text_of(words: Sequence[Sequence[str]], begin: str = "[CLS]", end: str = "[SEP]", space: str = " ") -> Text:
    """Return a text of words that are given as their pieces; the first and the last token are special."""
    tokens, spans, made, whole = [], [], [], ""

    def special(name: str) -> None:
        if name:
            n = len(tokens)
            tokens.append(name)
            spans.append((len(whole), len(whole)))
            made.append(Word(name, len(whole), len(whole), n, n + 1))

    special(begin)
    for i, pieces in enumerate(words):
        whole += space if i and pieces[0] not in ".,;!?।。،" else ""
        first, start = len(tokens), len(whole)
        for piece in pieces:
            tokens.append(piece)
            spans.append((len(whole), len(whole) + len(piece)))
            whole += piece
        made.append(Word("".join(pieces), start, len(whole), first, len(tokens)))
    special(end)
    return Text(whole, tuple(tokens), tuple(spans), tuple(made))


def words(text: str) -> list[list[str]]:
    """Return the words of a text; `ti|red` has two pieces."""
    return [word.split("|") for word in text.split()]


def rows(T: int, S: int, peak: float, shift: int = 0, sink: float = 0.0, causal: bool = False) -> Weights:
    """Return weights whose row t has `peak` on column t + shift, `sink` on the first, and the rest everywhere."""
    weights = np.full((T, S), 1.0, dtype=np.float32)
    if causal:
        weights = np.tril(weights)
    weights *= (1 - peak - sink) / weights.sum(-1, keepdims=True)
    weights[np.arange(T), np.clip(np.arange(T) * S // T + shift, 0, np.arange(T) if causal else S - 1)] += peak
    weights[:, 0] += sink
    return weights


def street(
    name: str = "tiny-bert", text: str = "The animal did not cross the street because it was too ti|red ."
) -> ModelAttention:
    """A BERT of 2 layers and 3 heads: in head 2.3 `it` attends to `animal` with 69 %; the others have shifts.

    [CLS] receives 30 % in all heads but 2.3.
    """
    one = text_of(words(text))
    n = len(one.tokens)
    weights = np.stack(
        [np.stack([rows(n, n, 0.5, shift, 0.3) for shift in shifts]) for shifts in ((1, 1, -2), (-1, 1, -2))]
    )
    weights[1, 2] = rows(n, n, 0.1)
    it = one.tokens.index("it") if "it" in one.tokens else n // 2
    weights[1, 2, it] = 0.31 / (n - 1)
    weights[1, 2, it, 2] = 0.69
    return ModelAttention(
        name, [AttentionGroup.from_weights("self", (one, one), ("a", "b"), "flash for the CPU", weights)]
    )


def generated() -> ModelAttention:
    """A decoder-only model: 4 tokens of prompt, 3 generated; the first token is a sink with over half of the weight."""
    one = text_of(words("Once upon a time there was light"), "", "")
    n = len(one.tokens)
    weights = np.stack([np.stack([rows(n, n, 0.2, -1 - h, 0.6, True) for h in range(2)]) for _ in range(2)])
    return ModelAttention("tiny-gpt", [AttentionGroup.from_weights("self", (one, one), ("a", "b"), "math", weights, 4)])


def translation() -> ModelAttention:
    """An encoder-decoder, read with eager attention: three groups."""
    x = text_of(words("मैं खाना खा रहा हूँ ।"), "", "</s>")
    y = text_of(words("I am eat|ing food ."), "", "</s>")
    S, T = len(x.tokens), len(y.tokens)
    groups = []
    for kind, (source, target), (t, s) in (
        ("encoder", (x, x), (S, S)),
        ("decoder", (y, y), (T, T)),
        ("cross", (x, y), (T, S)),
    ):
        weights = np.stack([np.stack([rows(t, s, 0.7, shift) for shift in (0, 1)])])
        groups.append(AttentionGroup.from_weights(kind, (source, target), ("a",), "eager", weights))
    return ModelAttention("tiny-marian", groups)


def long(count: int, layers: int = 2, heads: int = 4, held: int = 2, seed: int = 0) -> ModelAttention:
    """A long text of a decoder-only model, whose weights are not held: a summary of every head, top 8 of some."""
    from heedful.trace.model_attention import BLOCKS, TopWeights

    random = np.random.default_rng(seed)
    vocabulary = [
        "the",
        "model",
        "reads",
        "every",
        "token",
        "of",
        "a",
        "long",
        "document",
        "and",
        "attends",
        "to",
        "it",
        "again",
    ]
    picked = [vocabulary[i] for i in random.integers(0, len(vocabulary), count)]
    for i in range(29, count, 30):
        picked[i] = "."
    spans, parts, at = [], [], 0
    for i, word in enumerate(picked):
        gap = "" if i == 0 or word == "." else " "
        at += len(gap)
        spans.append((at, at + len(word)))
        parts.append(gap + word)
        at += len(word)
    made = tuple(Word(w, a, b, i, i + 1) for i, (w, (a, b)) in enumerate(zip(picked, spans, strict=True)))
    one = Text("".join(parts), tuple(picked), tuple(spans), made)
    b = len(block_edges(count))
    assert b <= BLOCKS
    blocks = np.tril(random.random((layers, heads, b, b), dtype=np.float32) ** 6)
    blocks[..., np.arange(b), np.arange(b)] += random.random((layers, heads, 1), dtype=np.float32)
    blocks[..., 0] += 0.4
    blocks /= blocks.sum(-1, keepdims=True)
    top = {}
    for n in range(held):
        near = np.arange(count)[:, None] - np.array([0, 1, 2, 3, 5, 8, 13, 34 + n])
        near[:, 7] = 0
        weights = np.sort(random.random((count, 8), dtype=np.float32) ** 2 + 0.01, axis=1)[:, ::-1].copy()
        weights *= 0.9 / weights.sum(1, keepdims=True)
        weights[near < 0] = 0
        top[n // heads % layers + 1, n % heads + 1] = TopWeights(np.where(near < 0, -1, near).astype(np.int32), weights)
    received = random.random((layers, heads, count), dtype=np.float32)
    received[..., 0] = count / 4
    group = AttentionGroup(
        *("self", one, one, tuple(f"layers.{i}" for i in range(layers)), "flash"),
        received=received,
        entropy=np.full((layers, heads, count), 2.0, dtype=np.float32),
        distance=random.random((layers, heads), dtype=np.float32) * 100,
        sharpness=np.linspace(0.9, 0.1, layers * heads, dtype=np.float32).reshape(layers, heads),
        blocks=blocks,
        top=top,
        causal=True,
    )
    return ModelAttention("tiny-llama", [group])
