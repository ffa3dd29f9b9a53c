"""The trace of a translation: the attention weights of a model that reads its own output, as a plain record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError
from heedful.trace.json_checks import (
    beside,
    check_rows,
    check_shapes,
    check_text,
    field_of,
    numbering,
    numbers,
    truth,
)
from heedful.trace.readout import RAW, Readout
from heedful.trace.text_records import END, Text, Word

__all__ = ["END", "Text", "Trace", "Word"]


@dataclass(frozen=True)
class Trace:
    """The attention weights of a model that re-reads a translation by teacher forcing.

    `weights` is (L, H, T, S) over tokens, or None for a model without attention. `log_probs` (T,) are the
    log-probabilities of the target tokens. `read` (T, S) are the weights as `readout` has them, where that takes more
    than a mean: another step, or norms. `inside` marks self-attention: source and target are the same sentence.
    `layers` and `heads` are the numbers of those that `weights` holds, if not all; () means 1 to L, or to H.

    `after` and `norms`, both (L, H, S), are needed to read single heads as the read-out does: the weights of the step
    that reads `</s>`, and the norms of the value vectors (`Readout.mix`). In a text of several sentences, each sentence
    has those of its own source tokens.
    """

    source: Text
    target: Text
    weights: NDArray[np.float32] | None
    log_probs: NDArray[np.float32]
    readout: Readout = field(default_factory=Readout)
    read: NDArray[np.float32] | None = None
    inside: bool = False
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    after: NDArray[np.float32] | None = None
    norms: NDArray[np.float32] | None = None

    def numbers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers, from 1, of the layers and of the heads that the trace holds."""
        L, H = (0, 0) if self.weights is None else self.weights.shape[:2]
        return self.layers or tuple(range(1, L + 1)), self.heads or tuple(range(1, H + 1))

    def only(self, layer: int | None = None, head: int | None = None) -> Trace:
        """Return the trace of one layer, one head, or one head of one layer; counted from 1, as in the model.

        It is read at the step of the read-out, and by norms if that has them; see `raw`.
        """
        if self.weights is None or (layer is None and head is None):
            return self
        rows, columns = self.places(layer, head)
        layers, heads = (tuple(have[i] for i in at) for have, at in zip(self.numbers(), (rows, columns), strict=True))
        # If the trace holds one layer or head only, that one is selected.
        which = layers[0] if len(layers) == 1 else None, heads if len(heads) == 1 else ()
        weights = self.weights[rows][:, columns]
        after, norms = (None if one is None else one[rows][:, columns] for one in (self.after, self.norms))
        part = replace(self, weights=weights, after=after, norms=norms, layers=layers, heads=heads)
        by, have = self.readout, self.numbers()
        if set(layers) == {by.layer or n for n in have[0]} and set(heads) == set(by.heads or have[1]):
            return part if by.label else replace(part, readout=by.of(*which))  # exactly what the read-out takes
        chosen = by.of(*which, self.raw)
        read = part.each() if chosen.reading else None
        return replace(part, readout=chosen, read=None if read is None else _mean(read))

    @property
    def raw(self) -> bool:
        """Whether single heads can only be shown by raw weights, because what the read-out needs is missing."""
        by, present = self.readout, (self.after, self.norms)
        lacking = any(
            needed and one is None for needed, one in zip((by.step == "next", by.norms), present, strict=True)
        )
        # The mean of several models, each by its own read-out, has no single heads.
        mixed = self.read is not None and by.attention and bool(by.label) and not by.reading
        return lacking or mixed or by.label.endswith(RAW)

    @property
    def reading(self) -> str:
        """How single heads are read, in words: as the read-out says, or raw; "" if that is the same."""
        return RAW if self.raw else self.readout.reading

    def each(self) -> NDArray[np.float32] | None:
        """Return the weights of all heads, read as `reading` says.  (L, H, T, S)."""
        if self.weights is None or self.raw:
            return self.weights
        rows, lasts = (np.flatnonzero(side.ends).tolist() for side in (self.target, self.source))
        firsts = [0, *(last + 1 for last in lasts)]
        # Each sentence attends only to its own source.
        ends = [(row, slice(first, last + 1)) for row, first, last in zip(rows, firsts, lasts, strict=False)]
        return self.readout.every(self.weights, self.after, self.norms, ends)

    def maps(self) -> dict[tuple[int, int], NDArray[np.float32]]:
        """Return the weights between words of each head, by (layer, head), read as in `each`."""
        every = self.each()
        if every is None:
            return {}
        layers, heads = self.numbers()
        return {(m, n): self._between(every[i, j]) for i, m in enumerate(layers) for j, n in enumerate(heads)}

    def places(self, layer: int | None = None, head: int | None = None) -> tuple[list[int], list[int]]:
        """Return the indices into `weights` of a layer and a head, or of all; raise ConfigError if there is no such."""
        indices = []
        for what, number, have in zip(("layer", "head"), (layer, head), self.numbers(), strict=True):
            if number is not None and number not in have:
                whole = have == tuple(range(1, len(have) + 1))
                range_ = (
                    f"choose one from 1 to {len(have)}"
                    if whole
                    else f"of these, the trace holds {', '.join(map(str, have))}"
                )
                raise ConfigError(f"there is no {what} {number}; {range_}")
            indices.append(list(range(len(have))) if number is None else [have.index(number)])
        return indices[0], indices[1]

    def spaced(self) -> Trace:
        """Return the trace with words as white space separates them, in every script."""
        return replace(self, source=self.source.spaced(), target=self.target.spaced())

    def tokens(self) -> NDArray[np.float32] | None:
        """Return the weights between tokens, by the read-out.  (T, S)."""
        if self.read is not None or self.weights is None:
            return self.read
        rows, _ = self.places(self.readout.layer)
        columns = [self.places(head=head)[1][0] for head in self.readout.heads] or slice(None)
        return _mean(self.weights[rows][:, columns])

    def words(self) -> NDArray[np.float32] | None:
        """Return the weights between words, (words of the target, words of the source), each row summing to 1.

        They are the mean over the layers and heads of the read-out, the sum over the tokens of a source word, and the
        mean over the tokens of a target word. The row of a word without tokens is 0.
        """
        tokens = self.tokens()
        return None if tokens is None else self._between(tokens)

    def _between(self, tokens: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights between words from weights between tokens.  (T, S) -> (target words, source words)."""
        columns = np.stack([tokens[:, w.first : w.last].sum(1) for w in self.source.words], axis=1)
        sums = np.stack([columns[w.first : w.last].sum(0) for w in self.target.words])
        counts = np.array([[max(1, w.last - w.first)] for w in self.target.words])
        rows: NDArray[np.float32] = (sums / counts).astype(np.float32)
        return rows

    @classmethod
    def join(cls, source: str, target: str, starts: Sequence[tuple[int, int]], parts: Sequence[Trace]) -> Trace:
        """Return the trace of two texts from the traces of their parts; `starts` are their first characters.

        Each part attends only to its own source; its `</s>` stays where the part ends.
        """
        texts = (
            Text.join(source, [start for start, _ in starts], [part.source for part in parts]),
            Text.join(target, [start for _, start in starts], [part.target for part in parts]),
        )
        places, row, column = [], 0, 0
        for part in parts:
            T, S = len(part.target.tokens), len(part.source.tokens)
            places.append((slice(row, row + T), slice(column, column + S)))
            row, column = row + T, column + S

        def placed(arrays: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
            present = [(place, array) for place, array in zip(places, arrays, strict=True) if array is not None]
            if not present:
                return None
            whole = np.zeros((*present[0][1].shape[:-2], row, column), dtype=np.float32)
            for (rows, columns), array in present:
                whole[..., rows, columns] = array
            return whole

        weights, read = placed([part.weights for part in parts]), placed([part.read for part in parts])
        log_probs = np.concatenate([part.log_probs for part in parts])
        first = parts[0]
        after, norms = (_beside(parts, name) for name in ("after", "norms"))
        numbers = first.layers, first.heads
        return cls(*texts, weights, log_probs, first.readout, read, first.inside, *numbers, after, norms)

    def confidences(self) -> tuple[float, ...]:
        """Return the confidence of each target word: the mean log-probability of its tokens, as a probability."""
        return tuple(
            float(np.exp(self.log_probs[w.first : w.last].sum() / max(1, w.last - w.first))) for w in self.target.words
        )

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; `build` reads it."""
        return {
            "source": self.source.plain(),
            "target": self.target.plain(),
            "weights": None if self.weights is None else self.weights.tolist(),
            "log_probs": self.log_probs.tolist(),
            "readout": self.readout.plain(),
            "read": None if self.read is None else self.read.tolist(),
            "inside": self.inside,
            "layers": list(self.numbers()[0]),
            "heads": list(self.numbers()[1]),
            "after": None if self.after is None else self.after.tolist(),
            "norms": None if self.norms is None else self.norms.tolist(),
        }

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> Trace:
        """Return the trace that `plain` was made from; raise DataError if it is not one."""
        try:
            return cls._checked(plain)
        except (DataError, ConfigError) as error:
            raise DataError(f"this is not a trace: {error}") from None

    @classmethod
    def _checked(cls, plain: Mapping[str, Any]) -> Trace:
        source, target = (Text.build(field_of(plain, name), f"{name}: ") for name in ("source", "target"))
        check_text(source, "source: ")
        check_text(target, "target: ")
        T, S = len(target.tokens), len(source.tokens)
        weights = None if field_of(plain, "weights") is None else numbers(plain["weights"], "weights", (T, S))
        read = None if plain.get("read") is None else numbers(plain["read"], "read", (T, S))
        log_probs = numbers(field_of(plain, "log_probs"), "log_probs")
        check_shapes(weights, read, log_probs, (T, S))
        readout = Readout.build(plain.get("readout", {}))
        shape = (0, 0) if weights is None else weights.shape[:2]
        layers = numbering(plain.get("layers"), "layers", shape[0], () if readout.layer is None else (readout.layer,))
        heads = numbering(plain.get("heads"), "heads", shape[1], readout.heads)
        if weights is not None:
            check_rows(weights, "weights", whole=True)
        if read is not None:
            check_rows(read, "read", whole=False)
        inside = truth(plain.get("inside", False), "inside")
        if inside and source != target:
            raise DataError("inside: this is the self-attention of one sentence, but source and target differ")
        wide = (*shape, S)
        after, norms = (beside(plain.get(name), name, wide) for name in ("after", "norms"))
        if after is not None and sum(source.ends) != sum(target.ends):
            raise DataError(f"after: the source has {sum(source.ends)} sentences, and the target {sum(target.ends)}")
        trace = cls(source, target, weights, log_probs, readout, read, inside, layers, heads, after, norms)
        if weights is not None and read is None:
            if readout.step == "next" or readout.norms:
                raise DataError("its read-out takes more than the weights, and there is no 'read'")
            trace.tokens()  # raises if the layers and heads of the read-out are not there
        return trace


def _mean(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over layers and heads.  (L, H, T, S) -> (T, S)."""
    mean: NDArray[np.float32] = weights.mean(axis=(0, 1), dtype=np.float32)
    return mean


def _beside(parts: Sequence[Trace], name: str) -> NDArray[np.float32] | None:
    """Return the `after` or the `norms` of all parts, concatenated; None if a part with weights lacks them."""
    looking = [part for part in parts if part.weights is not None]
    if not looking or any(getattr(part, name) is None for part in looking):
        return None
    shape = looking[0].numbers()
    nothing = np.zeros((len(shape[0]), len(shape[1]), 1), dtype=np.float32)
    arrays = ((getattr(part, name), len(part.source.tokens)) for part in parts)
    return np.concatenate([nothing.repeat(S, -1) if one is None else one for one, S in arrays], axis=-1)
