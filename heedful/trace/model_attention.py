"""The attention of a model of any library, as records without torch: weights of every head, measures, sinks, rollout.

All weights of a short text are held, up to `DENSE`. Of a longer one a summary is held: sums over queries, entropies
and block means of every head, and the largest weights of each token of some heads.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError, choose, nearest
from heedful.trace.json_checks import (
    ROUNDING,
    check_rows,
    check_text,
    field_of,
    listed,
    numbers,
    truth,
    whole_number,
    whole_numbers,
)
from heedful.trace.readout import Readout, Weights
from heedful.trace.trace import SINK_SHARE, SINKS, Text, Trace, Word, percent, set_apart, sink_candidates

KINDS = ("self", "encoder", "decoder", "cross")
TITLES = {
    "self": "Self-attention",
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}
DENSE = 32_000_000  # weights of all layers and heads that are held whole: 128 MB
NESTED = 200_000  # numbers of an array that JSON holds as lists; of more, their bytes in base64
BLOCKS = 48  # rows and columns of the block means of a head
TOP = 8  # weights held of each token of a long text
HELD = 8  # heads whose largest weights are held of a long text
MEASURES = ("sharpness", "entropy", "distance", "sink", "received")
EAGER, OWN = "eager", "heedful"  # what computed the attention, besides kernels of PyTorch
MATH = "math"  # PyTorch's own operations, one after the other: no fused kernel
Positions = NDArray[np.int32]


class TopWeights(NamedTuple):
    """For every query the keys with the largest weights, largest first.  (…, T, count).

    Where fewer may be attended to, the position is -1 and the weight 0.
    """

    positions: Positions
    weights: Weights


class Sink(NamedTuple):
    """A word that receives much weight from all words, whatever they are: its number, text, and share of all weight."""

    word: int
    text: str
    share: float


class HeadMeasures(NamedTuple):
    """Measures of every head, each (L, H).

    `sharpness`: the largest weight on a token that is no sink candidate, mean over queries. `entropy`: in nats, mean
    over queries. `distance`: mean of |t - j| in tokens, for cross-attention of |t/T - j/S|. `sink`: the share of the
    weight on sinks. `received`: the largest share of the weight that a single token receives that is no sink.
    """

    sharpness: Weights
    entropy: Weights
    distance: Weights
    sink: Weights
    received: Weights


@dataclass(frozen=True)
class AttentionGroup:
    """The attention of all layers of one kind: which text attends to which, with all weights or a summary of them.

    `source` are the keys and `target` the queries; they are equal unless the kind is "cross". `modules` has one name
    for each layer, and `backend` is what computed the attention: a kernel of `scaled_dot_product_attention`, or
    "eager". `received` (L, H, S) is the sum over the queries of the weight on a key, `entropy` (L, H, T) is in nats,
    `distance` and `sharpness` (L, H) are as in `HeadMeasures`. `blocks` (L, H, b, c): for each block of queries, the
    mean weight on each block of keys. `weights` (L, H, T, S), or None for a long text. `top` and `rows` are held of a
    long text: the largest weights of every token by (layer, head), from 1; and all weights of single queries by token,
    (L, H, S). `generated` is the number of the first generated token of the target.
    """

    kind: str
    source: Text
    target: Text
    modules: tuple[str, ...]
    backend: str
    received: Weights
    entropy: Weights
    distance: Weights
    sharpness: Weights
    blocks: Weights
    weights: Weights | None = None
    top: Mapping[tuple[int, int], TopWeights] = field(default_factory=dict)
    rows: Mapping[int, Weights] = field(default_factory=dict)
    generated: int | None = None
    causal: bool = False

    @classmethod
    def from_weights(
        cls,
        kind: str,
        texts: tuple[Text, Text],
        modules: Sequence[str],
        backend: str,
        weights: Weights,
        generated: int | None = None,
    ) -> AttentionGroup:
        """Return the group of all weights (L, H, T, S); `texts` are source and target, keys and queries."""
        choose("kind of attention", kind, KINDS)
        source, target = texts
        L, H, T, S = weights.shape
        if (len(target.tokens), len(source.tokens)) != (T, S) or len(modules) != L:
            raise DataError(
                f"weights of {L} layers, {T} queries and {S} keys, but there are {len(modules)} modules, "
                f"{len(target.tokens)} target and {len(source.tokens)} source tokens"
            )
        weights = np.asarray(weights, dtype=np.float32)
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        total = np.maximum(weights.sum((2, 3), dtype=np.float64), 1e-12)
        distances = token_distances(T, S, kind == "cross")
        words = ~sink_candidates(source)
        sharpness = weights[..., words].max(-1, initial=0).mean(-1) if words.any() else np.zeros((L, H))
        return cls(
            kind,
            source,
            target,
            tuple(modules),
            backend,
            weights.sum(2),
            -np.einsum("lhts,lhts->lht", weights, logs),
            (np.einsum("lhts,ts->lh", weights, distances) / total).astype(np.float32),
            sharpness.astype(np.float32),
            block_means(weights),
            weights,
            generated=generated,
            causal=kind != "cross" and T == S and not np.triu(weights, 1).any() and T > 1,
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of the weights: (L, H, T, S)."""
        L, H, S = self.received.shape
        return L, H, self.entropy.shape[2], S

    @property
    def title(self) -> str:
        """The kind of attention in words."""
        return TITLES[self.kind]

    @property
    def inside(self) -> bool:
        """Whether a text attends to itself."""
        return self.kind != "cross"

    @property
    def origin(self) -> str:
        """Where the weights come from, in words."""
        if self.backend == OWN:
            return "weights of single heads"
        if self.backend == EAGER:
            return "eager attention, as the model returned it"
        if self.backend == MATH:
            return "exact weights from queries and keys (PyTorch's math attention)"
        return f"exact weights from fused attention ({self.backend})"

    def by_pieces(self) -> AttentionGroup:
        """Return the same with every token as a word of its own."""
        source = by_tokens(self.source)
        return replace(self, source=source, target=source if self.target == self.source else by_tokens(self.target))

    def heads(self, layer: int | None = None, head: int | None = None) -> list[tuple[int, int]]:
        """Return the heads of a layer, or with a number, or all, as (layer, head) from 1; raise ConfigError if none."""
        L, H = self.shape[:2]
        for what, number, count in (("layer", layer, L), ("head", head, H)):
            if number is not None and not 1 <= number <= count:
                raise ConfigError(f"there is no {what} {number}; choose one from 1 to {count}")
        layers = range(1, L + 1) if layer is None else (layer,)
        return [(m, n) for m in layers for n in (range(1, H + 1) if head is None else (head,))]

    def sinks(self) -> tuple[Sink, ...]:
        """Return the sinks, the largest first: special tokens, the first word and punctuation that receive much weight.

        Each has at least `SINK_SHARE` of the weight of all heads, and twice its part if all weights were equal.
        """
        return self._sinks

    @cached_property
    def _sinks(self) -> tuple[Sink, ...]:
        candidates, shares = sink_candidates(self.source), self._shares(self.received.sum((0, 1)))
        least = max(SINK_SHARE, 2 / len(self.source.words))
        sinks = [
            Sink(i, word.text, float(share))
            for i, (word, share) in enumerate(zip(self.source.words, shares, strict=True))
            if share >= least and (word.first == 0 or candidates[word.first : word.last].all())
        ]
        return tuple(sorted(sinks, key=lambda sink: -sink.share))

    def sinks_in_words(self, shares: NDArray[Any] | None = None) -> str:
        """Return the sinks with their shares, as captions have them: "[CLS] 47 %, 'The' 5 %"; "" if there are none.

        `shares` are those of all words in one map; by default in all heads.
        """
        names = []
        for number, text, share in self.sinks():
            part = share if shares is None else float(shares[number])
            names.append(f"{text if self.source.words[number].is_special else repr(text)} {percent(part)}")
        return ", ".join(names)

    def _shares(self, received: NDArray[Any]) -> NDArray[Any]:
        """Return the share of all weight that each source word receives.  (…, S) -> (…, words)."""
        before = np.zeros((*received.shape[:-1], received.shape[-1] + 1))  # the sum of all tokens before each
        np.cumsum(received, axis=-1, dtype=np.float64, out=before[..., 1:])
        first, last = ([getattr(word, name) for word in self.source.words] for name in ("first", "last"))
        shares: NDArray[Any] = (before[..., last] - before[..., first]) / np.maximum(before[..., -1:], 1e-12)
        return shares

    def measures(self) -> HeadMeasures:
        """Return the measures of every head."""
        return self._measures

    @cached_property
    def _measures(self) -> HeadMeasures:
        shares = self._shares(self.received)
        sinks = [sink.word for sink in self.sinks()]
        others = np.delete(shares, sinks, axis=-1)
        return HeadMeasures(
            self.sharpness,
            self.entropy.mean(-1),
            self.distance,
            shares[..., sinks].sum(-1).astype(np.float32),
            others.max(-1, initial=0).astype(np.float32),
        )

    def rank(self, by: str = "sharpness") -> list[tuple[int, int]]:
        """Return all heads, (layer, head) from 1, by a measure: the largest first, of entropy the smallest."""
        choose("measure of heads", by, MEASURES)
        values: Weights = getattr(self.measures(), by)
        order = np.argsort(values if by == "entropy" else -values, axis=None, kind="stable")
        H = self.shape[1]
        return [(int(i) // H + 1, int(i) % H + 1) for i in order]

    def matrix(self, layer: int | None = None, head: int | None = None, rollout: bool = False) -> Weights:
        """Return weights between tokens: of one head, of the mean of several, or by rollout.  (T, S)."""
        weights = self._all_weights()
        if rollout:
            if self.kind == "cross":
                raise ConfigError("rollout follows self-attention through the layers; choose encoder or decoder")
            if layer is not None or head is not None:
                raise ConfigError("rollout is of all layers and heads; leave out layer and head")
            return attention_rollout(weights)
        at = self.heads(layer, head)
        mean: Weights = np.mean([weights[m - 1, n - 1] for m, n in at], axis=0, dtype=np.float32)
        return mean

    def _all_weights(self) -> Weights:
        if self.weights is None:
            T, S = self.shape[2:]
            raise ConfigError(
                f"this text is too long for all of its weights ({T:,} × {S:,} tokens): single words (word=…), the view "
                "'heads' and the interactive page (.html) show it"
            )
        return self.weights

    def trace(
        self,
        layer: int | None = None,
        head: int | None = None,
        *,
        rollout: bool = False,
        sinks: str | None = None,
    ) -> Trace:
        """Return one map as a trace, for figures: of a head, of the mean of several, or by rollout.

        `sinks` is "keep", or "apart": their columns are left out, and rows of words rescaled to 1; by default they are
        set apart if they have over half of the weight. The caption says so, with their shares.
        """
        weights = self.matrix(layer, head, rollout)
        what = "attention rollout over all layers" if rollout else _described(self.shape[:2], layer, head)
        numbers = () if layer is None else (layer,), () if head is None else (head,)
        return self._figure(weights, self.target, what, sinks, numbers)

    def word_trace(
        self,
        words: Sequence[int],
        layer: int | None = None,
        head: int | None = None,
        *,
        sinks: str | None = None,
        most: int | None = None,
    ) -> Trace:
        """Return the mean row of some target words in every head as a trace, whose rows are heads: "3.5".

        With `most`, only so many heads: those with the largest weights on words that are neither sinks nor among
        these words.
        """
        at, every = self.heads(layer, head), self.rows_of(words)
        rows = np.stack([every[m - 1, n - 1] for m, n in at])
        text = " ".join(self.target.words[i].text for i in words)
        what = f"rows of '{text}'" if len(words) == 1 else f"mean of the rows of '{text}'"
        what += f" in {'all' if len(at) == self.received[..., 0].size else 'these'} heads (layer.head)"
        if most is not None and len(at) > most:
            shares = self._shares(rows)
            shares[:, [sink.word for sink in self.sinks()]] = 0
            if self.inside:
                shares[:, list(words)] = 0
            order = np.argsort(-shares.max(-1), kind="stable")[:most]
            at, rows = [at[i] for i in order], rows[order]
            what += f", the {most} with the largest weight on another word"
        names = [f"{m}.{n}" for m, n in at]
        spans, begin = [], 0
        for name in names:
            spans.append((begin, begin + len(name)))
            begin += len(name) + 1
        heads = by_tokens(Text(" ".join(names), tuple(names), tuple(spans), ()))
        return replace(self._figure(rows, heads, what, sinks), inside=False, generated=None)

    def _figure(
        self,
        weights: Weights,
        target: Text,
        what: str,
        sinks: str | None,
        numbers: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> Trace:
        """Return one map (T, S) as a trace, with sinks as `trace` has them."""
        choose("treatment of sinks", sinks or "keep", SINKS)
        source, caption, found = self.source, f"{what}; {self.origin}", self.sinks()
        if found:
            shares = self._shares(weights.sum(0))
            share = float(sum(shares[sink.word] for sink in found))
            each = self.sinks_in_words(shares)
            if (sinks or ("apart" if share > 0.5 else "keep")) == "apart":
                source, weights = set_apart((source, target), weights, [sink.word for sink in found])
                caption += f"; set apart: {each} of the weight, the rest is scaled to 100\u00a0%"
            else:
                caption += f"; sinks: {each} of the weight"
        nothing = np.zeros(len(target.tokens), dtype=np.float32)
        return Trace(
            *(source, target, weights[None, None].astype(np.float32), nothing),
            Readout(label=what),
            inside=self.inside,
            layers=numbers[0],
            heads=numbers[1],
            caption=caption,
            generated=self.generated,
        )

    def rows_of(self, words: Sequence[int]) -> Weights:
        """Return the mean row of some target words, each the mean of its tokens, in every head.  -> (L, H, S)."""
        rows = np.zeros(self.received.shape, dtype=np.float32)
        for word in (self.target.words[number] for number in words):
            tokens = range(word.first, word.last)
            if self.weights is None and (missing := [i for i in tokens if i not in self.rows]):
                raise ConfigError(
                    f"the rows of '{self.target.tokens[missing[0]]}' are not held: this text is too long for all "
                    "weights; name the word when the model is run"
                )
            for i in tokens:
                row = self.rows[i] if self.weights is None else self.weights[:, :, i]
                rows += row / np.float32(len(tokens) * len(words))
        return rows

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it: all weights if they are held, otherwise the summary."""
        record = {
            "kind": self.kind,
            "source": self.source.plain(),
            "target": self.target.plain(),
            "modules": list(self.modules),
            "backend": self.backend,
            "generated": self.generated,
            "causal": self.causal,
            "weights": None if self.weights is None else _plain_array(self.weights),
        }
        if self.weights is not None:
            return record
        return {
            **record,
            **{name: _plain_array(getattr(self, name)) for name in SUMMARY},
            "top": [
                {"layer": m, "head": n, "positions": _plain_array(one.positions), "weights": _plain_array(one.weights)}
                for (m, n), one in self.top.items()
            ],
            "rows": [{"token": token, "weights": _plain_array(row)} for token, row in self.rows.items()],
        }

    def largest(self, heads: Iterable[tuple[int, int]], count: int = TOP) -> dict[tuple[int, int], TopWeights]:
        """Return the largest weights of every token of some heads, (layer, head) from 1."""
        if self.weights is None:
            have = ", ".join(f"{m}.{n}" for m, n in self.top)
            for at in heads:
                if at not in self.top:
                    raise ConfigError(f"head {at[0]}.{at[1]} is not held of this long text; held are {have or 'none'}")
            return {at: TopWeights(self.top[at].positions[:, :count], self.top[at].weights[:, :count]) for at in heads}
        return {(m, n): top_weights(self.weights[m - 1, n - 1], count) for m, n in heads}

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> AttentionGroup:
        """Return the group that `plain` was made from; raise DataError if it is not one."""
        kind = str(field_of(plain, "kind"))
        if kind not in KINDS:
            raise DataError(f"kind: {kind!r:.60} is not one of {', '.join(KINDS)}")
        source, target = (Text.build(field_of(plain, name), f"{name}: ") for name in ("source", "target"))
        check_text(source, "source: ")
        check_text(target, "target: ")
        modules = tuple(map(str, listed(field_of(plain, "modules"), "modules")))
        T, S = len(target.tokens), len(source.tokens)
        generated = plain.get("generated")
        if generated is not None and not 0 <= whole_number(generated, "generated") <= T:
            raise DataError(f"generated: {generated!r:.40} is no number of a token; there are {T}")
        backend, causal = str(field_of(plain, "backend")), truth(plain.get("causal", False), "causal")
        if kind != "cross" and source != target:
            raise DataError(f"source, target: the texts of {kind} attention differ; only those of cross attention may")
        if plain.get("weights") is not None:
            weights = _array(plain["weights"], "weights", (T, S))
            if weights.ndim != 4 or 0 in weights.shape:
                raise DataError("weights: expected lists in 4 levels (layers, heads, target tokens, source tokens)")
            check_rows(weights, "weights", whole=False)  # rows of models with learned sinks sum to less than 1
            return replace(
                cls.from_weights(kind, (source, target), modules, backend, weights, generated), causal=causal
            )
        arrays = {name: _array(field_of(plain, name), name) for name in SUMMARY}
        L, H = arrays["distance"].shape if arrays["distance"].ndim == 2 else (0, 0)
        farthest = max(T, S) if kind != "cross" else 1
        wanted = {  # shapes, and the largest number
            "received": ((L, H, S), T),
            "entropy": ((L, H, T), math.log(S)),
            "distance": ((L, H), farthest),
            "sharpness": ((L, H), 1),
        }
        for name, (shape, most) in wanted.items():
            if arrays[name].shape != shape or 0 in shape:
                raise DataError(f"{name}: expected {' × '.join(map(str, shape))} numbers, found {arrays[name].shape}")
            _check_range(arrays[name], name, most)
        _check_range(arrays["received"].sum(-1), "received: the sum of a head", T)
        rows, columns = min(BLOCKS, T), min(BLOCKS, S)
        found = arrays["blocks"].shape
        if len(found) != 4 or found[:2] != (L, H) or not (1 <= found[2] <= rows and 1 <= found[3] <= columns):
            raise DataError(
                f"blocks: expected {L} × {H} heads of 1 to {rows} rows and 1 to {columns} columns, found {found}"
            )
        if len(modules) != L:
            raise DataError(f"modules: expected {L} names, one for each layer, found {len(modules)}")
        check_rows(arrays["blocks"], "blocks", whole=False)
        return cls(
            kind,
            source,
            target,
            modules,
            backend,
            **arrays,
            top=_read_top(listed(plain.get("top", []), "top"), (L, H, T, S)),
            rows=_read_rows(listed(plain.get("rows", []), "rows"), (L, H, T, S)),
            generated=generated,
            causal=causal,
        )


SUMMARY = ("received", "entropy", "distance", "sharpness", "blocks")


def _plain_array(array: NDArray[Any]) -> Any:  # noqa: ANN401  (lists of lists, or an object)
    """Return an array as JSON can hold it: lists of numbers, or shape and bytes of one with more than NESTED."""
    if array.size <= NESTED:
        return array.tolist() if array.dtype.kind == "i" else np.round(array.astype(np.float64), 6).tolist()
    return {"shape": list(array.shape), "float32": base64.b64encode(array.astype("<f4").tobytes()).decode("ascii")}


def _array(value: object, where: str, tokens: tuple[int, int] | None = None) -> Weights:
    """Return the array that `_plain_array` was given; `tokens` are as in `numbers`."""
    if not isinstance(value, Mapping):
        return numbers(value, where, tokens)
    sizes = listed(field_of(value, "shape", f"{where}: "), f"{where}: shape")
    shape = tuple(whole_numbers(sizes, f"{where}: shape", len(sizes)))
    try:
        data = base64.b64decode(field_of(value, "float32", f"{where}: "), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise DataError(f"{where}: float32: this is not base64") from None
    if min(shape, default=0) < 1 or 4 * math.prod(shape) != len(data):
        sizes_ = " × ".join(map(str, shape))[:60]
        raise DataError(f"{where}: float32: {len(data):,} bytes are not {sizes_} numbers of 4 bytes")
    array: Weights = np.frombuffer(data, "<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(array).all():
        raise DataError(f"{where}: not all numbers are finite, but they must be")
    return array


def _check_range(array: NDArray[Any], name: str, most: float) -> None:
    """Raise DataError for a number below 0 or above `most`, but for rounding."""
    low, high = float(array.min()), float(array.max())
    if low < -ROUNDING / 1000 or high > most + ROUNDING * max(1, most):
        wrong = low if low < -ROUNDING / 1000 else high
        raise DataError(f"{name}: {wrong:g} is not from 0 to {most:.4g}")


def _read_top(plain: Sequence[Any], shape: tuple[int, int, int, int]) -> dict[tuple[int, int], TopWeights]:
    """Return the largest weights of some heads from their record; raise DataError if they are not of this shape."""
    L, H, T, S = shape
    top = {}
    for one in plain:
        at = (whole_number(field_of(one, "layer", "top: "), "top"), whole_number(field_of(one, "head", "top: "), "top"))
        where = f"top: head {at[0]}.{at[1]}"
        if not (1 <= at[0] <= L and 1 <= at[1] <= H):
            raise DataError(f"{where}: there is no such head; there are {L} layers of {H} heads, counted from 1")
        if at in top:
            raise DataError(f"{where}: it is there twice")
        found = _array(field_of(one, "positions", f"{where}: "), f"{where}: positions")
        positions = found.astype(np.int32)
        values = _array(field_of(one, "weights", f"{where}: "), f"{where}: weights")
        inside = positions.size and found.min() >= -1 and found.max() < S and (positions == found).all()
        if positions.ndim != 2 or positions.shape != values.shape or len(positions) != T or not inside:
            raise DataError(f"{where}: expected positions from -1 to {S - 1} for {T} tokens, and their weights")
        check_rows(values, f"{where}: weights", whole=False)
        top[at] = TopWeights(positions, values)
    return top


def _read_rows(plain: Sequence[Any], shape: tuple[int, int, int, int]) -> dict[int, Weights]:
    """Return the rows of single tokens from their record; raise DataError if they are not of this shape."""
    L, H, T, S = shape
    rows = {}
    for one in plain:
        token = whole_number(field_of(one, "token", "rows: "), "rows: token")
        if not 0 <= token < T or token in rows:
            why = "it is there twice" if token in rows else f"there are tokens from 0 to {T - 1}"
            raise DataError(f"rows: token {token!s:.20}: {why}")
        row = _array(field_of(one, "weights", "rows: "), "rows")
        if row.shape != (L, H, S):
            raise DataError(f"rows: expected {L} × {H} × {S} numbers, found {row.shape}")
        check_rows(row[:, :, None], f"rows: token {token}", whole=False)
        rows[token] = row
    return rows


def _described(shape: tuple[int, int], layer: int | None, head: int | None) -> str:
    """Return which heads a mean is of, in words."""
    L, H = shape
    if layer is not None and (head is not None or H == 1):
        return f"layer {layer}, head {head or 1}"
    if layer is not None:
        return f"layer {layer}, mean of its {H} heads"
    if head is not None:
        return f"head {head}, mean of all {L} layers"
    return "mean of all layers and heads"


def token_distances(T: int, S: int, cross: bool) -> Weights:
    """Return |t - j|, or for cross-attention |t/T - j/S|.  -> (T, S)."""
    t, j = np.arange(T, dtype=np.float32), np.arange(S, dtype=np.float32)
    return np.abs((t / T)[:, None] - j / S) if cross else np.abs(t[:, None] - j)


def block_edges(count: int) -> NDArray[np.int64]:
    """Return where blocks of nearly equal size begin: at most `BLOCKS` of `count` tokens."""
    blocks = min(BLOCKS, count)
    return np.arange(blocks) * count // max(1, blocks)


def block_means(weights: Weights) -> Weights:
    """Return for each block of queries the mean weight on each block of keys.  (…, T, S) -> (…, b, c)."""
    rows, columns = block_edges(weights.shape[-2]), block_edges(weights.shape[-1])
    sums = np.add.reduceat(np.add.reduceat(weights, columns, axis=-1), rows, axis=-2)
    counts = np.diff([*rows, weights.shape[-2]])
    means: Weights = (sums / counts[:, None]).astype(np.float32)
    return means


def top_weights(weights: Weights, count: int = TOP) -> TopWeights:
    """Return the largest weights of every row, of equal ones the first.  (…, T, S) -> (…, T, count)."""
    most = min(count, weights.shape[-1])
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :most]
    values = np.take_along_axis(weights, order, axis=-1)
    positions = np.where(values > 0, order, -1).astype(np.int32)
    space = [(0, 0)] * (weights.ndim - 1) + [(0, count - most)]
    return TopWeights(np.pad(positions, space, constant_values=-1), np.pad(values, space))


def attention_rollout(weights: Weights) -> Weights:
    """Return attention rollout (Abnar & Zuidema 2020): the product over layers of (mean of heads + I)/2.  -> (T, T)."""
    T = weights.shape[-1]
    product = np.eye(T, dtype=np.float32)
    for layer in weights.mean(1, dtype=np.float32):
        product = (0.5 * layer + 0.5 * np.eye(T, dtype=np.float32)) @ product
    rows: Weights = product / np.maximum(product.sum(-1, keepdims=True), 1e-12)
    return rows


def by_tokens(text: Text) -> Text:
    """Return a text with every token as a word of its own."""
    words = (Word(token, *span, i, i + 1) for i, (token, span) in enumerate(zip(text.tokens, text.spans, strict=True)))
    return replace(text, words=tuple(words))


def find_words(text: Text, phrase: str | Sequence[str]) -> list[int]:
    """Return the numbers of the words of a phrase: "it", "New York", or "it#2" for its second occurrence.

    Of several phrases, those of all of them. Upper and lower case are the same unless both occur. Raise DataError if
    the phrase is not in the text.
    """
    if not isinstance(phrase, str):
        return sorted({number for one in phrase for number in find_words(text, one)})
    wanted, _, which = phrase.rpartition("#")
    wanted, number = (wanted, int(which)) if wanted.strip() and which.isdecimal() else (phrase, 1)
    wanted = wanted.strip()
    found = _occurrences(text, wanted, exact=True) or _occurrences(text, wanted, exact=False)
    if not found:
        guess = nearest(wanted, dict.fromkeys(word.text for word in text.words))
        raise DataError(f"'{wanted}' is not a word of the text.{guess}")
    if not 1 <= number <= len(found):
        times = "once" if len(found) == 1 else f"{len(found)} times"
        raise DataError(f"'{wanted}' occurs {times} in the text; there is no number {number}")
    return found[number - 1]


def _occurrences(text: Text, phrase: str, exact: bool) -> list[list[int]]:
    """Return the words of each occurrence of a phrase."""
    special = [[i] for i, word in enumerate(text.words) if word.start == word.end and word.text == phrase]
    if special or not phrase:
        return special
    pattern = r"\s+".join(re.escape(part) for part in phrase.split())
    order = sorted(range(len(text.words)), key=lambda i: text.words[i].start)
    starts = [text.words[i].start for i in order]
    ends = list(accumulate((text.words[i].end for i in order), max))  # the last end of all words up to each
    found = []
    for match in re.finditer(rf"(?<!\w){pattern}(?!\w)", text.text, 0 if exact else re.IGNORECASE):
        near = order[bisect_right(ends, match.start()) : bisect_left(starts, match.end())]
        words = sorted(i for i in near if text.words[i].end > match.start())
        found += [words] if words else []
    # In scripts without spaces there are letters on both sides.
    return found or [[i] for i, w in enumerate(text.words) if w.text == phrase]
