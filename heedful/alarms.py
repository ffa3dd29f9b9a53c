"""What the weights of a translation warn of: words left out, places looked at again and again, looking nowhere.

Each alarm has a measure, a number from 0 (nothing) to 1, and the words it is about. The measures are of one sentence;
docs/alignments.md says how well each of them tells bad translations from good ones, and how that is measured for each
model (`heedful.alarm_rates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alarm_rates import KINDS
from heedful.errors import ConfigError
from heedful.trace import Trace

__all__ = ["KINDS", "Alarm", "Limits", "Measures", "alarms", "measure"]

MOST = 5  # words that a message names


class Alarm(NamedTuple):
    """Something to be looked into: its kind, its measure, the words it is about, and what it says to a person.

    `source` and `target` are the numbers of words of the trace, counted from 0, `</s>` among them.
    """

    kind: str
    measure: float
    source: tuple[int, ...]
    target: tuple[int, ...]
    message: str

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            **self._asdict(),
            "measure": round(self.measure, 4),
            "source": list(self.source),
            "target": list(self.target),
        }


@dataclass(frozen=True)
class Limits:
    """From where on a measure is an alarm.

    `unseen`: a source word was hardly looked at when it and its neighbours, whose states know of it, each got at most
    this share of one row, all rows together. `repeated`: a source word that got as much as this many rows was looked at
    again and again (up to twice as many where the source is shorter). `sink`: the share of all weight that went to
    `</s>` and punctuation. `flat`: how even a row is, 1 being all words alike.
    """

    unseen: float = 0.3
    repeated: float = 3.0
    sink: float = 0.5
    flat: float = 0.85

    def __post_init__(self) -> None:
        """Refuse what can never, or must always, be reached."""
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ConfigError(f"the limit of the alarm '{each.name}' is {getattr(self, each.name)}; it is above 0")


class Measures(NamedTuple):
    """One number for each kind of alarm, from 0, nothing, to 1.

    `unseen`: 1 - mean_j max_t α_tj, how much the best look at each source word lacked. `repeated`: the share of target
    words that look most where another one looked most already. `sink`: the share that went to
    `</s>` and punctuation. `flat`: the mean entropy of a row, log S being 1.
    """

    unseen: float
    repeated: float
    sink: float
    flat: float


class _Seen(NamedTuple):
    """The weights between words without the row of `</s>`, and what is asked of them."""

    weights: NDArray[np.float64]  # (target words, source words with </s>)
    real: NDArray[np.bool_]  # source words that are neither </s> nor punctuation
    written: NDArray[np.bool_]  # target words that are not punctuation
    rows: NDArray[np.intp]  # the numbers of those target words
    sizes: NDArray[np.intp]  # how many source words, with </s>, the sentence of each of them has


def _seen(trace: Trace) -> _Seen | None:
    """Return what is asked of a whole translation; of a sentence's own words, and of no attention, nothing is."""
    if not trace.readout.attention or trace.inside or not trace.target.words[-1].is_end:
        return None
    weights = trace.words()
    if weights is None or not np.isfinite(weights).all():
        return None
    sources, targets = trace.source.words, trace.target.words
    real = np.array([not (word.is_end or word.is_mark) for word in sources])
    rows = np.flatnonzero([not word.is_end for word in targets])
    written = np.array([not targets[t].is_mark for t in rows], dtype=bool)
    # In a text of several sentences, each looks only at its own source.
    ends = np.cumsum([0, *(word.is_end for word in sources)])[:-1]
    sentence = np.cumsum([0, *(word.is_end for word in targets)])[rows]
    sizes = np.bincount(ends)[np.minimum(sentence, ends[-1])]
    return _Seen(weights[rows].astype(np.float64), real, written, rows, sizes)


def measure(trace: Trace) -> Measures | None:
    """Return the measures of a sentence; None for a model that has nothing to look at, and for a blank one."""
    seen = _seen(trace)
    if seen is None or not seen.real.any() or not seen.written.any():
        return None
    unseen = 1 - float(np.minimum(seen.weights.max(0)[seen.real], 1).mean())
    repeated = 1 - len(set(seen.weights.argmax(1).tolist())) / len(seen.weights)
    return Measures(unseen, repeated, _sunk(seen), float(_flatness(seen).mean()))


def alarms(trace: Trace, limits: Limits | None = None, *, every: bool = False) -> tuple[Alarm, ...]:
    """Return what the weights of a sentence warn of, in the order of `KINDS`.

    Kinds that were measured to be near chance for the model are left out (`AlarmRates.shows`), unless `every` is True.
    """
    rates = trace.readout.alarms
    found = _alarms(trace, limits)
    return found if every or rates is None else tuple(alarm for alarm in found if rates.shows(alarm.kind))


def _alarms(trace: Trace, limits: Limits | None) -> tuple[Alarm, ...]:
    limits, seen, total = limits or Limits(), _seen(trace), measure(trace)
    if seen is None or total is None:
        return ()
    sources, targets = ([word.text for word in side.words] for side in (trace.source, trace.target))
    found = []
    received, part = _received(seen)
    if unseen := _where(seen.real & (_near(received) <= limits.unseen)):
        found.append(Alarm("unseen", total.unseen, unseen, (), f"hardly looked at {_named(sources, unseen)}"))
    for s in _where(seen.real & (received >= limits.repeated * part)):
        rows = _where(seen.weights.argmax(1) == s, seen.rows)
        told = f"{received[s]:.1f} words' worth of looking went to {_named(sources, (s,))}: {_named(targets, rows)}"
        found.append(Alarm("repeated", total.repeated, (s,), rows, told))
    if total.sink >= limits.sink:
        told = f"{total.sink:.0%} of the looking went to punctuation and the end of the sentence"
        found.append(Alarm("sink", total.sink, (), (), told))
    if rows := _where(seen.written & (_flatness(seen) >= limits.flat), seen.rows):
        told, words = f"looked everywhere and nowhere for {_named(targets, rows)}", int(seen.written.sum())
        if len(rows) > max(2, words / 2):  # rather a matter of the read-out than of the words
            told = f"looked everywhere and nowhere for {len(rows)} of {words} words: these weights say little"
        found.append(Alarm("flat", total.flat, (), rows, told))
    return tuple(found)


def _received(seen: _Seen) -> tuple[NDArray[np.float64], float]:
    """Return how much each source word got of all rows, and what its part is: a row, or two for a short source.

    Not more: a translation that goes round in circles is long, too.
    """
    return seen.weights.sum(0), min(max(1.0, len(seen.weights) / max(1, int(seen.real.sum()))), 2.0)


def _near(received: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the most that a word or one of its neighbours got; `</s>` is nobody's neighbour."""
    words = np.pad(received[:-1], 1)
    near: NDArray[np.float64] = np.append(np.maximum(np.maximum(words[:-2], words[2:]), words[1:-1]), received[-1])
    return near


def _sunk(seen: _Seen) -> float:
    rows = seen.weights[seen.written]
    return float(rows[:, ~seen.real].sum() / max(rows.sum(), 1e-12))


def _flatness(seen: _Seen) -> NDArray[np.float64]:
    """Return the entropy of each row as a share of the largest there can be.  (target words,)."""
    shares = seen.weights / np.maximum(seen.weights.sum(1, keepdims=True), 1e-12)
    entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(1)
    flat: NDArray[np.float64] = np.clip(entropy / np.log(np.maximum(2, seen.sizes)), 0.0, 1.0)
    return flat


def _where(which: NDArray[np.bool_], numbers: NDArray[np.intp] | None = None) -> tuple[int, ...]:
    found = np.flatnonzero(which)
    return tuple(map(int, found if numbers is None else numbers[found]))


def _named(words: Sequence[str], numbers: Sequence[int]) -> str:
    """Return words as a person lists them, the first of many."""
    shown = [f"'{words[n]}'" for n in numbers[:MOST]]
    more = len(numbers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
