"""Plain records of what a model did, without torch: they can be saved, sent and drawn anywhere."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError
from heedful.readout import Readout
from heedful.saved import check_rows, check_text, field_of, listed, numbers, whole_numbers

__all__ = ["END", "LengthRow", "LengthTable", "Text", "Trace", "Word"]

PLACES = ("start", "end", "first", "last")
END = "</s>"  # the token, and the word, that ends a sentence


class Word(NamedTuple):
    """A word: its characters `text[start:end]` and its tokens `first:last`."""

    text: str
    start: int
    end: int
    first: int
    last: int

    @property
    def is_end(self) -> bool:
        """Whether this is no word of the text, but the end of a sentence."""
        return self.text == END and self.start == self.end

    @property
    def is_mark(self) -> bool:
        """Whether this is punctuation and nothing else."""
        return bool(self.text) and not self.is_end and all(unicodedata.category(c)[0] == "P" for c in self.text)


@dataclass(frozen=True)
class Text:
    """One side of a trace: the string, its tokens with character spans, and the words they make.

    The last token and the last word are always the end of the sentence, `</s>`, with an empty span. A text of several
    sentences has one for each.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[Word, ...]

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "spans": [list(s) for s in self.spans],
            "words": [w._asdict() for w in self.words],
        }

    def spaced(self) -> Text:
        """Return the same text with words as white space separates them, in every script: what Pharaoh lines count.

        A word that no token stands for has none of them: its `first` is its `last`. Sentences that stand side by side
        without a space share a word, with the `</s>` between them.
        """
        words, at = [], 0
        for match in re.finditer(r"\S+", self.text):
            while at < len(self.tokens) and self.ends[at] and self.spans[at][0] <= match.start():
                words.append(self._end(at))
                at += 1
            first = at
            while at < len(self.tokens) - 1 and self.spans[at][0] < match.end():
                at += 1
            words.append(Word(match[0], match.start(), match.end(), first, at))
        return replace(self, words=(*words, *(self._end(i) for i in range(at, len(self.tokens)) if self.ends[i])))

    @property
    def ends(self) -> tuple[bool, ...]:
        """Which tokens end a sentence."""
        return tuple(t == END and a == b for t, (a, b) in zip(self.tokens, self.spans, strict=True))

    @property
    def written(self) -> tuple[Word, ...]:
        """The words that can be seen: without `</s>`, and without a token that is nothing but a space."""
        return tuple(word for word in self.words if word.text and not word.is_end)

    def _end(self, at: int) -> Word:
        return Word(END, *self.spans[at], at, at + 1)

    @classmethod
    def join(cls, text: str, starts: Sequence[int], parts: Sequence[Text]) -> Text:
        """Return the text that parts make, which begin at the given characters of it."""
        tokens = tuple(token for part in parts for token in part.tokens)
        spans, words, first = [], [], 0
        for begin, part in zip(starts, parts, strict=True):
            spans += [(begin + start, begin + end) for start, end in part.spans]
            words += [Word(w.text, begin + w.start, begin + w.end, first + w.first, first + w.last) for w in part.words]
            first += len(part.tokens)
        return cls(text, tokens, tuple(spans), tuple(words))

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "") -> Text:
        """Return the text that `plain` was made from; `where`, with its colon, begins the errors."""
        lists = {name: listed(field_of(plain, name, where), f"{where}{name}") for name in ("tokens", "spans", "words")}
        at = f"{where}words: "
        return cls(
            str(field_of(plain, "text", where)),
            tuple(map(str, lists["tokens"])),
            tuple((i, j) for i, j in (whole_numbers(span, f"{where}spans", 2) for span in lists["spans"])),
            tuple(
                Word(
                    str(field_of(word, "text", at)), *whole_numbers([field_of(word, n, at) for n in PLACES], at[:-2], 4)
                )
                for word in lists["words"]
            ),
        )


@dataclass(frozen=True)
class Trace:
    """What a model saw when it re-read its own words: for each token written, where it looked.

    `weights` is (L, H, T, S) over tokens, or None for a model that has nothing to look at.
    `log_probs` is (T,): how probable each token was. `read` (T, S) is what `readout` makes of the weights, where that
    takes more than a mean of them: another step, or norms.
    """

    source: Text
    target: Text
    weights: NDArray[np.float32] | None
    log_probs: NDArray[np.float32]
    readout: Readout = field(default_factory=Readout)
    read: NDArray[np.float32] | None = None

    def only(self, layer: int | None = None, head: int | None = None) -> Trace:
        """Return the trace as one layer, or one head, or one head of one layer has it; counted from 1."""
        if self.weights is None or (layer is None and head is None):
            return self
        chosen = Readout(layer, () if head is None else (head,))
        chosen.check(*self.weights.shape[:2])
        layers, heads = (slice(None) if i is None else slice(i - 1, i) for i in (layer, head))
        return replace(self, weights=self.weights[layers, heads], readout=chosen, read=None)

    def spaced(self) -> Trace:
        """Return the trace with words as white space separates them, in every script."""
        return replace(self, source=self.source.spaced(), target=self.target.spaced())

    def tokens(self) -> NDArray[np.float32] | None:
        """Return the weights between tokens as the read-out has them.  (T, S)."""
        if self.read is not None or self.weights is None:
            return self.read
        L, H = self.weights.shape[:2]
        # Of a trace that holds one layer alone, or one head (`only`), it is that one.
        layer, heads = (None if L == 1 else self.readout.layer), (() if H == 1 else self.readout.heads)
        return Readout(layer, heads).mix(self.weights)

    def words(self) -> NDArray[np.float32] | None:
        """Return the weights between words, (words of the target, words of the source), each row summing to 1.

        Layers and heads are those of the read-out, averaged. The weight of a source word is the sum over its tokens;
        that of a target word is the mean over its tokens. The row of a word without tokens is 0.
        """
        tokens = self.tokens()
        if tokens is None:
            return None
        columns = np.stack([tokens[:, w.first : w.last].sum(1) for w in self.source.words], axis=1)
        sums = np.stack([columns[w.first : w.last].sum(0) for w in self.target.words])
        counts = np.array([[max(1, w.last - w.first)] for w in self.target.words])
        rows: NDArray[np.float32] = (sums / counts).astype(np.float32)
        return rows

    @classmethod
    def join(cls, source: str, target: str, starts: Sequence[tuple[int, int]], parts: Sequence[Trace]) -> Trace:
        """Return the trace of two texts from those of their parts, which begin at the given characters of either.

        Each part looks only at its own source; its `</s>` stays where the part ends.
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
            given = [(place, array) for place, array in zip(places, arrays, strict=True) if array is not None]
            if not given:
                return None
            whole = np.zeros((*given[0][1].shape[:-2], row, column), dtype=np.float32)
            for (rows, columns), array in given:
                whole[..., rows, columns] = array
            return whole

        weights, seen = placed([part.weights for part in parts]), placed([part.read for part in parts])
        log_probs = np.concatenate([part.log_probs for part in parts])
        return cls(*texts, weights, log_probs, parts[0].readout, seen)

    def confidences(self) -> tuple[float, ...]:
        """Return the confidence of each target word: the mean log-probability of its tokens, as a probability."""
        return tuple(
            float(np.exp(self.log_probs[w.first : w.last].sum() / max(1, w.last - w.first))) for w in self.target.words
        )

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; `build` takes it back."""
        return {
            "source": self.source.plain(),
            "target": self.target.plain(),
            "weights": None if self.weights is None else self.weights.tolist(),
            "log_probs": self.log_probs.tolist(),
            "readout": self.readout.plain(),
            "read": None if self.read is None else self.read.tolist(),
        }

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> Trace:
        """Return the trace that `plain` was made from."""
        try:
            return cls._checked(plain)
        except (DataError, ConfigError) as error:
            raise DataError(f"this is not a trace: {error}") from None

    @classmethod
    def _checked(cls, plain: Mapping[str, Any]) -> Trace:
        source, target = (Text.build(field_of(plain, name), f"{name}: ") for name in ("source", "target"))
        check_text(source, "source: ")
        check_text(target, "target: ")
        weights = None if field_of(plain, "weights") is None else numbers(plain["weights"], "weights")
        seen = None if plain.get("read") is None else numbers(plain["read"], "read")
        log_probs = numbers(field_of(plain, "log_probs"), "log_probs")
        T, S = len(target.tokens), len(source.tokens)
        fits = weights is None or (weights.ndim == 4 and weights.shape[2:] == (T, S) and 0 not in weights.shape)
        if not fits or log_probs.shape != (T,) or (seen is not None and seen.shape != (T, S)):
            raise DataError(f"its numbers do not fit {T} target and {S} source tokens")
        readout = Readout.build(plain.get("readout", {}))
        if weights is not None:
            check_rows(weights, "weights", whole=True)
        if weights is not None and seen is None:
            if readout.step == "next" or readout.norms:
                raise DataError("its read-out takes more than the weights, and there is no 'read'")
            # Of what was cut out of a trace (`only`), its layer and its head are the only ones.
            L, H = weights.shape[:2]
            Readout(None if L == 1 else readout.layer, () if H == 1 else readout.heads).check(L, H)
        if seen is not None:
            check_rows(seen, "read", whole=False)
        return cls(source, target, weights, log_probs, readout, seen)


class LengthRow(NamedTuple):
    """The scores of the sentences of `low` to `high` source words; `high` None: no upper end."""

    low: int
    high: int | None
    pairs: int
    bleu: float
    chrf: float
    exact: float
    ter: float | None = None

    @property
    def label(self) -> str:
        """The lengths as a person writes them."""
        return f"{self.low}+" if self.high is None else f"{self.low}–{self.high}"

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; what was not measured is left out."""
        return {name: value for name, value in self._asdict().items() if name != "ter" or value is not None}


@dataclass(frozen=True)
class LengthTable:
    """Scores by source length, the row of all sentences, and sacrebleu's signatures. Scores are percentages."""

    rows: tuple[LengthRow, ...]
    total: LengthRow
    bleu_signature: str
    chrf_signature: str
    ter_signature: str = ""

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; TER only where it was measured."""
        total = {k: v for k, v in self.total.plain().items() if k not in ("low", "high")}
        return {
            **total,
            "bleu_signature": self.bleu_signature,
            "chrf_signature": self.chrf_signature,
            **({"ter_signature": self.ter_signature} if self.ter_signature else {}),
            "by_length": [row.plain() for row in self.rows],
        }
