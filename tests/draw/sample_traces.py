"""Traces to draw: several scripts, heads, a long sentence, words that nobody looks at. Nothing in them is chance."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from heedful.trace import ImageRegions, Text, Trace, Word
from heedful.trace.model_attention import AttentionGroup
from heedful.trace.readout import Readout


def side(words: Sequence[str]) -> Text:
    """A text of one token to a word; the last is `</s>`."""
    text, spans, made = " ".join(words), [], []
    for i, word in enumerate(words):
        start = sum(map(len, words[:i])) + i
        spans.append((start, start + len(word)))
        made.append(Word(word, *spans[-1], i, i + 1))
    n = len(text)
    return Text(text, (*words, "</s>"), (*spans, (n, n)), (*made, Word("</s>", n, n, len(words), len(words) + 1)))


def looking(at: Sequence[Sequence[int]], sources: int, sure: float = 0.8) -> NDArray[np.float32]:
    """Rows that look at the given places, the first most, and a little around them."""
    weights = np.zeros((len(at), sources))
    for row, places in zip(weights, at, strict=True):
        for rank, place in enumerate(places):
            row[place] += sure / 2**rank
            row[max(0, place - 1)] += 0.06
            row[min(sources - 1, place + 1)] += 0.04
        row += 0.03 / sources
        row /= row.sum()
    return weights.astype(np.float32)


def trace(source: str, target: str, at: Sequence[Sequence[int]]) -> Trace:
    """A trace of two sentences; `at` says for each target word, and for `</s>`, where it looks."""
    x, y = side(source.split()), side(target.split())
    log_probs = np.log(np.linspace(0.95, 0.4, len(y.tokens))).astype(np.float32)
    return Trace(x, y, looking(at, len(x.tokens))[None, None], log_probs)


HINDI = trace("मैं घर में खाना खाता हूँ", "I eat food at home", [[0], [4, 5], [3], [2], [1], [6, 5]])
ARABIC = trace("أكل الولد التفاحة الحمراء", "the boy ate the red apple", [[1], [1], [0], [3, 2], [3], [2], [4]])
TO_ARABIC = trace("the boy ate the apple", "أكل الولد التفاحة", [[2], [1, 0], [4, 3], [5]])
CHINESE = trace("他 昨天 在 家 吃饭 。", "he ate at home yesterday .", [[0], [4], [2], [3], [1], [5], [6]])
JAPANESE = trace("私 は 東京 で 本 を 読みました", "I read a book in Tokyo", [[0], [6], [4], [4, 5], [3], [2], [7]])
EMOJI = trace(
    "👍🏽 we 👨\u200d👩\u200d👧 ❤️ 🇮🇳",
    "👍🏽 हम भारत से प्यार करते 👨\u200d👩\u200d👧",
    [[0], [1], [4], [4, 3], [3], [3], [2], [5]],
)
UNSEEN = trace("the old king never slept well", "राजा सोया", [[2], [4], [6]])


def heads(layers: int = 2, count: int = 4) -> Trace:
    """The Hindi sentence as many heads see it, each its own way."""
    x, y = HINDI.source, HINDI.target
    T, S = len(y.tokens), len(x.tokens)
    weights = np.zeros((layers, count, T, S), dtype=np.float32)
    for layer in range(layers):
        for head in range(count):
            at = [[(t * (head + 1) + layer) % S, (t + head) % S] for t in range(T)]
            weights[layer, head] = looking(at, S, 0.3 + 0.2 * head)
    return Trace(x, y, weights, HINDI.log_probs, Readout())


def read_later() -> Trace:
    """The same, read at the next step and by norms: head 3 of layer 2 looks at a word when it has been written."""
    trace = heads()
    assert trace.weights is not None
    right = looking([[6], [0], [4, 5], [3], [2], [1], [6, 5]], len(trace.source.tokens))
    weights, after = trace.weights.copy(), trace.weights[:, :, 0].copy()
    weights[1, 2], after[1, 2] = right[:-1], right[-1]
    norms = np.ones_like(after)
    norms[:, :, -1] = 0.2  # `</s>` lets little through
    readout = Readout(2, (3,), "next", norms=True)
    read = readout.mix(weights, after, norms)
    return Trace(trace.source, trace.target, weights, trace.log_probs, readout, read, after=after, norms=norms)


def inside() -> Trace:
    """A sentence that looks inside itself, with 2 layers of 2 heads."""
    x = side(["the", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "tired"])
    n = len(x.tokens)
    weights = np.stack(
        [
            np.stack([looking([[max(0, i - 1)] for i in range(n)], n), looking([[1, i] for i in range(n)], n, 0.5)]),
            np.stack([looking([[i] for i in range(n)], n), looking([[(i + 1) % n] for i in range(n)], n)]),
        ]
    )
    return Trace(x, x, weights, np.zeros(n, dtype=np.float32), inside=True)


def long(words: int = 200) -> Trace:
    """A long sentence whose halves of ten words are exchanged, and in which every seventeenth word is not looked at."""
    ferry = "so the old ferry carried letters across quiet water and nobody asked from whom they came"
    some = ferry.split()
    x = [some[(7 * i) % len(some)] for i in range(words)]
    at = [[i // 10 * 10 + (i + 5) % 10] for i in range(words)]
    at = [[place + (1 if place % 17 == 16 else 0)] for (place,) in at]
    y = [some[(3 * i + 1) % len(some)] for i in range(words)]
    return trace(" ".join(x), " ".join(y), [*at, [words]])


def special_side(words: Sequence[str], first: Sequence[str] = (), last: Sequence[str] = ()) -> Text:
    """A text of one token to a word, between special tokens, as those of other libraries' models."""
    plain = side(words)
    n = len(plain.text)
    tokens = (*first, *words, *last)
    spans = (*((0, 0) for _ in first), *plain.spans[:-1], *((n, n) for _ in last))
    made = (Word(token, *span, i, i + 1) for i, (token, span) in enumerate(zip(tokens, spans, strict=True)))
    return Text(plain.text, tokens, spans, tuple(made))


def encoder_group(
    words: str = "the animal was tired because it ran", layers: int = 2, count: int = 3
) -> AttentionGroup:
    """The self-attention of an encoder: much on `[CLS]`, the rest each head its own way; 2.2 is it -> animal."""
    x = special_side(words.split(), ["[CLS]"], ["[SEP]"])
    n = len(x.tokens)
    weights = np.zeros((layers, count, n, n), dtype=np.float32)
    for layer in range(layers):
        for head in range(count):
            at = [[(t + head + layer) % n] for t in range(n)]
            weights[layer, head] = looking(at, n, 0.2 + 0.2 * head)
    weights[1, 1] = looking([[2 if t == 6 else t] for t in range(n)], n, 0.9)
    weights *= 0.7
    weights[..., 0] += 0.3
    modules = [f"encoder.layer.{i}.attention" for i in range(layers)]
    return AttentionGroup.from_weights("self", (x, x), modules, "flash for the CPU", weights)


def decoder_group() -> AttentionGroup:
    """The causal self-attention of a decoder-only model with 2 heads, of a prompt and two words that it wrote."""
    x = special_side(["Paris", "is", "the", "capital", "of", "France"], ["<s>"])
    n = len(x.tokens)
    weights = np.stack([looking([[max(0, t - back)] for t in range(n)], n, 0.5) for back in (0, 1)])[None]
    weights = np.tril(weights)
    weights *= 0.6 / weights.sum(-1, keepdims=True)
    weights[..., 0] += 0.4
    return AttentionGroup.from_weights("self", (x, x), ["layers.0.self_attn"], "eager", weights, generated=5)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file of pixels (high, wide, 3)."""
    high, wide, _ = pixels.shape
    lines = np.concatenate([np.zeros((high, 1), np.uint8), pixels.reshape(high, -1)], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    packed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def scene() -> NDArray[np.uint8]:
    """A picture of 60 × 40 pixels: a red square at the upper left, a blue one at the lower right, on white."""
    pixels = np.full((40, 60, 3), 255, dtype=np.uint8)
    pixels[:20, :20] = (200, 30, 30)
    pixels[20:, 40:] = (30, 60, 200)
    return pixels


def caption(
    text: str = "a red square and a blue square", layers: int = 1, count: int = 1, name: str = "s.png"
) -> Trace:
    """A caption over 2 × 3 regions of `scene`: 'red square' attends to region 0, 'blue square' to region 5.

    'red' and 'blue' have 80 % on the region and 10 % on none, 'square' 60 % and 20 %, the other words 90 % on none.
    In head h of layer l of several, regions are shifted by l + h.
    """
    image = ImageRegions("s.png", 600, 400, 2, 3, png(scene()))
    x, y = image.text(), side(text.split())
    T, S = len(y.tokens), len(x.tokens)
    weights = np.zeros((layers, count, T, S), dtype=np.float32)
    at = [None, (0, 0.8, 0.1), (0, 0.6, 0.2), None, None, (5, 0.8, 0.1), (5, 0.6, 0.2)]
    for layer in range(layers):
        for head in range(count):
            for t in range(T):
                region, weight, none = (at[t] if t < len(at) else None) or (0, 0.1 / 6, 0.9)
                weights[layer, head, t] = (1 - weight - none) / (S - 2)
                weights[layer, head, t, (region + layer + head) % (S - 1)] = weight
                weights[layer, head, t, -1] = none
    log_probs = np.log(np.linspace(0.95, 0.4, T)).astype(np.float32)
    return Trace(x, y, weights, log_probs, image=image)


HOSTILE = [
    *(
        "<script>alert(1)</script>",
        "&amp;",
        "]]>",
        '"><img src=x>',
        "'",
        "</svg>",
        "<!--",
        "\x00a\x1b[31m",
        "\ud800",
        "\udfff",
    ),
    *("\ufffe", "\U0001ffff", "a\u202eb", "\u2028", "ﷺ", "क्\u200dष", "مرحبا!", "東京", "😀", "x" * 300, "\u0301" * 20),
]


WORDS = st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=8)
