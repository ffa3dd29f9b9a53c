"""A model with its vocabularies, ready to translate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

import numpy as np
import torch

from heedful.decoding import Decoding, Ensemble
from heedful.device import memory_guard
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts, holds_model, write_model
from heedful.models import Look, lay_out
from heedful.observe import read
from heedful.text import UNKNOWN
from heedful.text.segments import Segment, segments
from heedful.trace import Trace
from heedful.translator.translation import Token, Translation
from heedful.translator.writer import Writer, batches

__all__ = ["Translator"]


class Translator:
    """A model with its vocabularies, ready to translate."""

    def __init__(self, parts: Parts, device: torch.device | None = None) -> None:
        self.parts = parts
        self.config = parts.config
        self.device = device or torch.device("cpu")
        parts.model.to(self.device).eval()
        if self.device.type == "cpu":
            lay_out(parts.model)

    def __repr__(self) -> str:
        sizes = f"{len(self.parts.source):,} source tokens, {len(self.parts.target):,} target tokens"
        return f"Translator({self.config.family}, {sizes}, on {self.device})"

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        text: str,
        how: Decoding | None = None,
        *,
        prefix: str | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        text: Sequence[str],
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
    ) -> list[Translation]: ...
    def translate(
        self,
        text: str | Sequence[str],
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
    ) -> Translation | list[Translation]:
        """Translate a text, or many at once; a blank one stays blank.

        Texts of several sentences are split, unless `split` says no, and put together again with their spacing; a
        sentence of more tokens than `text.max_length` is cut where it hurts least, which its `notes` say. `prefix` is
        what a translation has to begin with, one for all or one for each. With `copy_unknown`, an unknown word is
        replaced by the source word that it looked at most. `trace=False` saves the re-reading.
        """
        if isinstance(text, str):
            return self.translate(
                [text],
                how,
                prefix=prefix,
                split=split,
                copy_unknown=copy_unknown,
                trace=trace,
                batch_tokens=batch_tokens,
            )[0]
        texts = _checked(text)
        writer = Writer(self.parts, self.device, _way(how))
        found = segments(texts, self.parts.source, self.config.text.max_length, split)
        prefixes = writer.prefixes(found, _prefixes(prefix, len(texts)))
        done = writer.write(found, prefixes, trace, copy_unknown, batch_tokens)
        mine: list[list[int]] = [[] for _ in texts]
        for i, segment in enumerate(found):
            mine[segment.number].append(i)
        return [
            self._join(each, [found[i] for i in rows], [done[i] for i in rows], writer.how.n_best, trace)
            for each, rows in zip(texts, mine, strict=True)
        ]

    def _join(
        self, text: str, found: list[Segment], done: list[tuple[Translation, ...]], n_best: int, trace: bool
    ) -> Translation:
        """Return the translation of a text; its n-th alternative has the n-th of each segment, or the last there is."""
        if not found:
            empty = self.parts.source.trace(text, self.parts.source.encode(text)), self.parts.target.read(())
            seen = Trace(*empty, None, np.zeros(1, dtype=np.float32)) if trace else None
            blank = Translation(text, "", 0.0, 0, seen)
            return replace(blank, n_best=(blank,)) if n_best > 1 else blank
        spans = [(segment.start, segment.end) for segment in found]
        count = max(map(len, done))
        all_ = tuple(
            Translation.join(text, spans, [each[min(n, len(each) - 1)] for each in done]) for n in range(count)
        )
        return replace(all_[0], n_best=all_) if n_best > 1 else all_[0]

    def stream(
        self, text: str, how: Decoding | None = None, *, prefix: str | None = None, split: bool = True
    ) -> Iterator[Token]:
        """Translate a text and give each token as soon as it is decided, greedily or at random.

        Joined, the tokens' texts are the translation that `translate` gives, and their weights those of its trace.
        """
        how = _way(how)
        if how.beam > 1 or how.n_best > 1:
            raise ConfigError("a beam decides nothing before its end; stream greedily (beam 1), or one sample")
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; a stream translates one string")
        writer = Writer(self.parts, self.device, how)
        found = segments([text], self.parts.source, self.config.text.max_length, split)
        return writer.stream(text, found, writer.prefixes(found, _prefixes(prefix, 1)))

    def unknown(self, text: str, *, target: bool = False) -> list[str]:
        """Return the pieces of a text that are not in the model's vocabulary, of the source or of the target.

        Those of a source are translated as if they were one word, and those of a target are scored so.
        """
        encoded = (self.parts.target if target else self.parts.source).encode(text)
        spans = zip(encoded.ids, encoded.spans, strict=True)
        return [text[start:end] for index, (start, end) in spans if index == UNKNOWN]

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 4096
    ) -> list[Translation]:
        """Return given translations as the model sees them: how probable, word by word, and where it looks.

        `weights=False` leaves out where it looks, which for many long pairs is a lot of memory.
        """
        sources = _checked(sources)
        if blank := [i for i, source in enumerate(sources, 1) if not source.strip()]:
            raise DataError(f"source {blank[0]} of {len(sources)} is empty: there is nothing to translate")
        found = []
        for trace in self.reread(sources, targets, weights=weights, batch_tokens=batch_tokens):
            total = float(trace.log_probs.sum(dtype=np.float64))
            found.append(Translation(trace.source.text, trace.target.text, total, len(trace.log_probs), trace))
        return found

    @torch.inference_mode()
    def reread(
        self, sources: Sequence[str], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 4096
    ) -> list[Trace]:
        """Return where the model looks, and how probable it finds each word, when it reads given translations."""
        sources, targets = _checked(sources), _checked(targets)
        x, y = self.parts.source.encode_all(sources), self.parts.target.encode_all(targets)
        if len(x) != len(y):
            raise DataError(f"{len(x)} sentences but {len(y)} translations")
        writer = Writer(self.parts, self.device, Decoding())
        done: dict[int, Trace] = {}
        for rows in batches([max(len(a.ids), len(b.ids)) for a, b in zip(x, y, strict=True)], batch_tokens):
            with memory_guard(f"reading {len(rows)} pairs", "read fewer at once (batch_tokens)"):
                memory = writer.encode([x[r] for r in rows])
                readings = read(self.parts.model, memory, [y[r].ids for r in rows], weights)
            for row, reading in zip(rows, readings, strict=True):
                source = self.parts.source.trace(sources[row], x[row])
                target = self.parts.target.trace(targets[row], y[row])
                done[row] = Trace(source, target, reading.weights, reading.log_probs)
        return [done[i] for i in range(len(x))]

    @torch.inference_mode()
    def inside(self, text: str) -> Trace:
        """Return where each word of a sentence looks in the sentence itself: the encoder's self-attention."""
        (text,) = _checked([text])
        encoded = self.parts.source.encode(text)
        if len(encoded.ids) == 1:
            raise DataError("the text is empty: there are no words to look at")
        weights = Writer(self.parts, self.device, Decoding()).encode([encoded], Look()).weights
        if weights is None:
            raise ConfigError(
                f"a model of the family '{self.config.family}' reads by recurrence and has no self-attention; "
                "a Transformer has (heedful train --model transformer)"
            )
        sentence = self.parts.source.trace(text, encoded)
        nothing = np.zeros(len(encoded.ids), dtype=np.float32)
        return Trace(sentence, sentence, weights[0].float().cpu().numpy(), nothing)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of heedful's own; one that holds a model already is refused."""
        if isinstance(self.parts.model, Ensemble):
            raise ConfigError("an ensemble is several models; save each of them")
        if holds_model(Path(path)):
            raise ConfigError(f"{path}: this folder already holds a model; choose another one")
        write_model(Path(path), self.parts)


def _way(how: Decoding | None) -> Decoding:
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(f"{how!r} says not how to translate; expected heedful.Decoding(beam=5), say")
    return how or Decoding()


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"{texts!r} is no list of texts; expected strings in a list")
    found = list(texts)
    for text in found:
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected a string, or a list of strings")
    return found


def _prefixes(given: str | Sequence[str] | None, count: int) -> list[str]:
    """Return a prefix for each text, or none at all."""
    found = [given] * count if isinstance(given, str) else _checked(given or ())
    if found and len(found) != count:
        raise DataError(f"{count} texts but {len(found)} prefixes; give one for all, or one for each")
    return found
