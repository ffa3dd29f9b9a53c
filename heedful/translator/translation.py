"""The result of translating: a text, its log-probability, and the trace of its attention."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alignment.links import align_trace
from heedful.draw import heatmap, overview, regions, views
from heedful.errors import ConfigError, HeedfulError
from heedful.trace import Text, Trace
from heedful.trace.alarms import Alarm, alarms
from heedful.trace.alignment import Alignment, JoinedAlignment
from heedful.trace.trace import merge, unspaced


@dataclass(frozen=True)
class Token:
    """One token of a streamed translation: what it adds to the text, and its attention weights.

    `weights` (L, H, S) go over the tokens of `source`, the sentence that is being translated; None for a model without
    attention. Every sentence ends with a token that adds nothing, `</s>`, and has its `notes`.
    """

    text: str
    log_prob: float
    weights: NDArray[np.float32] | None
    source: Text
    end: bool
    notes: tuple[str, ...] = ()


class DecodedBy(NamedTuple):
    """The engine that decoded a translation, its precision, and the engine whose log-probability the score is."""

    name: str
    precision: str
    score: str


@dataclass(frozen=True)
class Translation:
    """A translation of `source`: its text, its log-probability `score`, and the trace of its attention.

    `length` counts the decoded tokens; `notes` are warnings for the reader. `n_best` holds the alternatives, if more
    than one was asked for, best first (samples as they were drawn), including this one; `sentences` are its sentences,
    or the parts of them that were translated at once, and `starts` where each begins in source and text. `engine` is
    None if heedful decoded it.
    """

    source: str
    text: str
    score: float
    length: int
    _trace: Trace | partial[Trace] | None = None  # that of a long text is large, and made on first use
    notes: tuple[str, ...] = ()
    n_best: tuple[Translation, ...] = ()
    sentences: tuple[Translation, ...] = ()
    starts: tuple[tuple[int, int], ...] = ()
    engine: DecodedBy | None = None

    @property
    def confidence(self) -> float:
        """The mean log-probability of the tokens, as a probability."""
        return math.exp(self.score / max(self.length, 1))

    @property
    def traced(self) -> bool:
        """Whether there is a trace."""
        return self._trace is not None

    @cached_property
    def trace(self) -> Trace:
        """The record of texts, tokens and attention weights."""
        if self._trace is None:
            raise HeedfulError("this translation was made without a trace; use translate(…, trace=True)")
        return self._trace if isinstance(self._trace, Trace) else self._trace()

    @cached_property
    def alignment(self) -> Alignment:
        """The links between words of source and translation, by the model's read-out.

        Words are those of the trace: in scripts without spaces each token is one.
        """
        return align_trace(self.trace)

    @cached_property
    def sentence_alignments(self) -> JoinedAlignment | None:
        """The alignments of all sentences, as words of the whole text; None if the model has no attention."""
        parts = self.sentences or (self,)
        if any(part.trace.weights is None and part.trace.read is None for part in parts):
            return None
        return JoinedAlignment(tuple(part.alignment for part in parts), self.starts or ((0, 0),))

    @cached_property
    def alarms(self) -> tuple[Alarm, ...]:
        """Warnings from the weights: words hardly attended to, repeated positions, sinks, uniform rows.

        Alarms that were measured to be near chance for the model are left out; `heedful.trace.alarms.alarms` has all.
        """
        return alarms(self.trace)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        kind = "Caption" if isinstance(self._trace, Trace) and self._trace.image is not None else "Translation"
        return f"{kind}({self.source!r} -> {self.text!r}, score={self.score:.4f}, confidence={self.confidence:.4f})"

    def show(self, width: int = 80, ascii_only: bool = False, view: str = "", sinks: str | None = None) -> None:
        """Print the heat map of the trace, at most `width` columns wide; one for each sentence.

        With view="heads" the word that each head attends to most is printed too; other views are pictures: see `save`.
        `sinks` is "apart" or "keep" (`heedful.trace.trace.sinks_apart`).
        Of the caption of an image, the image is printed for each word, with its weights; in colours on a terminal.
        """
        if view not in ("", "heatmap", "heads", "regions"):
            raise ConfigError(f'the view {view!r} is a picture: use save("x.svg", view="{view}")')
        if view == "regions" or (not view and self.trace.image is not None):
            print(regions.terminal(self.trace, width, ascii_only, colours=regions.terminal_colours(sys.stdout)))
            return
        for i, part in enumerate(self.sentences or (self,)):
            print("\n" * bool(i) + heatmap(part.trace, width=width, ascii_only=ascii_only, sinks=sinks))
            if view == "heads":
                print("\n" + overview(part.trace, width))

    def save(
        self, path: str | Path, view: str = "", title: str = "", dark: bool = False, sinks: str | None = None
    ) -> None:
        """Draw the attention to a file: .svg, .png or .html, or .json for the trace itself.

        Views are "heatmap", "braid" and "heads", and "regions" for captions of images; `dark` is for .png, the others
        follow their viewer's theme. See `heedful.draw.views` for more options.
        """
        views.write(Path(path), [self.trace], views.View(view, dark=dark, sinks=sinks), title)

    def _repr_html_(self) -> str | None:
        """The figure of each sentence as an image, readable in a notebook of any theme; None without a trace."""
        if self._trace is None:
            return None
        return "".join(f"<div>{views.picture([part.trace]).image()}</div>" for part in self.sentences or (self,))

    def plain(self) -> dict[str, Any]:
        """Return a JSON-serialisable record, with the weights between words and the links if there is a trace.

        A caption has the size of its image, and a record for each word: its box, and its weights over the regions.
        """
        record: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "confidence": self.confidence,
        }
        if self.engine is not None:
            record["engine"] = self.engine._asdict()
        if self.notes:
            record["notes"] = list(self.notes)
        if self._trace is not None and self.trace.image is not None:
            record["image"] = self.trace.image.sizes()
            record["words"] = self.trace.caption_words()
            record["alarms"] = [alarm.plain() for alarm in self.alarms]
        elif self._trace is not None:
            weights = self.trace.words()
            record["source_words"] = [list(w[:3]) for w in self.trace.source.words]
            record["target_words"] = [list(w[:3]) for w in self.trace.target.words]
            record["word_confidences"] = list(self.trace.confidences()) if self.trace.scored else None
            record["weights"] = None if weights is None else np.round(weights.astype(float), 4).tolist()
            record["alignment"] = None if weights is None else self.alignment.plain()
            record["alarms"] = [alarm.plain() for alarm in self.alarms]
        if self.n_best:
            record["n_best"] = [other.plain() for other in self.n_best]
        return record

    @classmethod
    def join(cls, source: str, spans: Sequence[tuple[int, int]], parts: Sequence[Translation]) -> Translation:
        """Put the translations of parts of a text together, with the spacing that the text had between them."""
        text, starts, at = "", [], 0
        for (start, end), part in zip(spans, parts, strict=True):
            gap = source[at:start] or gap_between(text, part.text)
            starts.append((start, len(text) + len(gap)))
            text += gap + part.text
            at = end
        text += source[at:]
        trace = None
        if parts and all(part._trace is not None for part in parts):
            trace = partial(Trace.join, source, text, starts, [part.trace for part in parts])
        notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
        score, length = sum(part.score for part in parts), sum(part.length for part in parts)
        engine = parts[0].engine if parts else None
        if engine is not None and len({part.engine for part in parts}) > 1:
            engine = engine._replace(score=f"{engine.name} and heedful")  # the sum of sentences of both
        return cls(
            source, text, score, length, trace, notes, sentences=tuple(parts), starts=tuple(starts), engine=engine
        )


def partial_trace(tokens: Sequence[Token]) -> Trace:
    """Return the trace of the tokens of a sentence that are decoded so far, at least one."""
    text, spans = "", []
    for token in tokens:
        piece = "" if token.end else token.text if text else token.text.lstrip()
        start = len(text) + len(piece) - len(piece.lstrip())
        text += piece
        spans.append((start, len(text)))
    words = merge(text, spans) if tokens[-1].end else merge(text, [*spans, (len(text), len(text))])[:-1]
    target = Text(text, tuple("</s>" if token.end else token.text for token in tokens), tuple(spans), words)
    rows = [token.weights for token in tokens if token.weights is not None]
    log_probs = np.array([token.log_prob for token in tokens], dtype=np.float32)
    return Trace(tokens[0].source, target, np.stack(rows, axis=2) if rows else None, log_probs)


def gap_between(before: str, after: str) -> str:
    """Return the space between two sentences that had none in the source: "" in scripts without spaces.

    >>> gap_between("I see.", "You go.")
    ' '
    >>> gap_between("我看。", "你去。")
    ''
    """
    if not before or not after or before[-1].isspace() or after[0].isspace():
        return ""
    return "" if unspaced(before[-1]) or unspaced(after[0]) else " "
