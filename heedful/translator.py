"""The façade: `heedful.load(path).translate(text)` gives a `Translation`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from heedful.data import pad
from heedful.decoding import greedy
from heedful.device import memory_guard, pick
from heedful.draw import heatmap
from heedful.errors import DataError, HeedfulError
from heedful.folder import Parts, read_model
from heedful.observe import read
from heedful.text import UNKNOWN, Encoded
from heedful.trace import Trace

__all__ = ["Translation", "Translator", "limit", "load"]


@dataclass(frozen=True)
class Translation:
    """A translation of `source`: its text, its log-probability `score`, its confidence, and where the model looked."""

    source: str
    text: str
    score: float
    confidence: float
    _trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """The record of where each word looked."""
        if self._trace is None:
            raise HeedfulError("this translation was made without a trace; use translate(…, trace=True)")
        return self._trace

    def __str__(self) -> str:
        return self.text

    def show(self, width: int = 80, ascii_only: bool = False) -> None:
        """Print the heat map of the trace, at most `width` columns wide."""
        print(heatmap(self.trace, width=width, ascii_only=ascii_only))

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold, with the weights between words when there is a trace."""
        record: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "confidence": self.confidence,
        }
        if self._trace is not None:
            weights = self._trace.words()
            record["source_words"] = [list(w[:3]) for w in self._trace.source.words]
            record["target_words"] = [list(w[:3]) for w in self._trace.target.words]
            record["word_confidences"] = list(self._trace.confidences())
            record["weights"] = None if weights is None else np.round(weights.astype(float), 4).tolist()
        return record


class Translator:
    """A model with its vocabularies, ready to translate."""

    def __init__(self, parts: Parts, device: torch.device | None = None) -> None:
        self.parts = parts
        self.config = parts.config
        self.device = device or torch.device("cpu")
        self._model = parts.model.to(self.device).eval()

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self, text: str, *, trace: bool = True, batch_tokens: int = 4096
    ) -> Translation: ...
    @overload
    def translate(self, text: Sequence[str], *, trace: bool = True, batch_tokens: int = 4096) -> list[Translation]: ...
    def translate(
        self, text: str | Sequence[str], *, trace: bool = True, batch_tokens: int = 4096
    ) -> Translation | list[Translation]:
        """Translate a sentence, or many at once; a blank one stays blank. `trace=False` saves the re-reading."""
        if isinstance(text, str):
            return self.translate([text], trace=trace, batch_tokens=batch_tokens)[0]
        encoded = self.parts.source.encode_all(list(text))
        done: dict[int, Translation] = {}
        for rows in _batches([len(e.ids) for e in encoded], batch_tokens):
            with memory_guard(f"translating {len(rows)} sentences", "translate fewer at once (--batch-tokens)"):
                batch = self._batch([text[r] for r in rows], [encoded[r] for r in rows], trace)
            done.update(zip(rows, batch, strict=True))
        return [done[i] for i in range(len(text))]

    def unknown(self, text: str) -> list[str]:
        """Return the pieces of a text that are not in the model's vocabulary: it translates without them."""
        encoded = self.parts.source.encode(text)
        spans = zip(encoded.ids, encoded.spans, strict=True)
        return [text[start:end] for index, (start, end) in spans if index == UNKNOWN]

    @torch.inference_mode()
    def reread(self, sources: Sequence[str], targets: Sequence[str], *, batch_tokens: int = 4096) -> list[Trace]:
        """Return where the model looks, and how probable it finds each word, when it reads given translations."""
        if isinstance(sources, str) or isinstance(targets, str):
            raise DataError("reread takes a list of sentences and a list of their translations")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sentences but {len(targets)} translations")
        x, y = self.parts.source.encode_all(list(sources)), self.parts.target.encode_all(list(targets))
        done: dict[int, Trace] = {}
        for rows in _batches([max(len(a.ids), len(b.ids)) for a, b in zip(x, y, strict=True)], batch_tokens):
            with memory_guard(f"reading {len(rows)} pairs", "read fewer at once (batch_tokens)"):
                ids = pad([x[r].ids for r in rows]).to(self.device)
                memory = self._model.encode(ids, ids != 0)
                readings = read(self._model, memory, [y[r].ids for r in rows])
            for row, reading in zip(rows, readings, strict=True):
                source = self.parts.source.trace(sources[row], x[row])
                target = self.parts.target.trace(targets[row], y[row])
                done[row] = Trace(source, target, reading.weights, reading.log_probs)
        return [done[i] for i in range(len(sources))]

    @torch.inference_mode()
    def _batch(self, texts: list[str], encoded: list[Encoded], trace: bool) -> list[Translation]:
        if len(encoded[0].ids) == 1:  # batches are sorted by length: these are all blank
            return [self._blank(text, e, trace) for text, e in zip(texts, encoded, strict=True)]
        x = pad([e.ids for e in encoded]).to(self.device)
        memory = self._model.encode(x, x != 0)
        found = greedy(self._model, memory, [limit(len(e.ids)) for e in encoded])
        readings = read(self._model, memory, [f.ids for f in found]) if trace else None
        translations = []
        for i, hypothesis in enumerate(found):
            target = self.parts.target.read(hypothesis.ids)
            seen = None
            if readings:
                source = self.parts.source.trace(texts[i], encoded[i])
                seen = Trace(source, target, readings[i].weights, readings[i].log_probs)
            score = float(np.sum(hypothesis.log_probs))
            confidence = float(np.exp(np.mean(hypothesis.log_probs)))
            translations.append(Translation(texts[i], target.text, score, confidence, seen))
        return translations

    def _blank(self, text: str, encoded: Encoded, trace: bool) -> Translation:
        source, target = self.parts.source.trace(text, encoded), self.parts.target.read(())
        seen = Trace(source, target, None, np.zeros(1, dtype=np.float32)) if trace else None
        return Translation(text, "", 0.0, 1.0, seen)


def load(path: str | Path, device: str = "auto") -> Translator:
    """Open the model in a folder."""
    chosen = pick(device)
    return Translator(read_model(Path(path), chosen), chosen)


def limit(length: int) -> int:
    """Return how many tokens a translation of `length` source tokens may have at most."""
    return 2 * length + 20


def _batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the indices of sentences of like length, under a budget; blank ones (length 1) apart."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        other = batch and (lengths[batch[0]] == 1) != (lengths[i] == 1)
        if batch and (other or lengths[i] * (len(batch) + 1) > tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
