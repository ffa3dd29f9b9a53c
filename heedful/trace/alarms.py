"""Alarms: what the attention weights of a translation warn of, and how often that is right for a model.

An alarm has a measure from 0 (nothing wrong) to 1, and names the words it is about. A model's alarm rates say how often
each kind is raised for wrong and for right translations; kinds that are near chance are not shown.
docs/lab/alignments.md has the measured rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError
from heedful.trace.json_checks import field_of, whole_number, whole_numbers

if TYPE_CHECKING:
    from heedful.trace.trace import Trace


KINDS = ("unseen", "repeated", "sink", "flat")
NAMED = 5  # words that a message names
MOST_WARNINGS = 4  # that a figure has
ENOUGH = 20  # wrong translations, and right ones, needed to compare rates
OF_REGIONS = 2.0  # times as many rows as for words: "a small red bird" attends to one place
RARE = 10  # an alarm raised for fewer translations is not tested
Z = 1.96  # of a 95 % interval
MAX_COUNT = 10**9


class Alarm(NamedTuple):
    """A warning: its kind, its measure, the words it is about, and a message.

    `source` and `target` are indices of words of the trace, `</s>` included.
    """

    kind: str
    measure: float
    source: tuple[int, ...]
    target: tuple[int, ...]
    message: str

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {
            **self._asdict(),
            "measure": round(self.measure, 4),
            "source": list(self.source),
            "target": list(self.target),
        }


@dataclass(frozen=True)
class AlarmLimits:
    """The thresholds of the alarms.

    `unseen`: a source word and its neighbours, whose states know of it, each received at most this much attention, in
    rows. `repeated`: a source word received at least this many rows (up to twice as many where the source is shorter).
    `sink`: at least this share of all attention is on `</s>` and punctuation. `flat`: the entropy of a row is at least
    this share of the largest possible.

    Of a caption, most regions receive little attention, and several words name the same one: there is no `unseen`, and
    `repeated` takes OF_REGIONS times as many rows.
    """

    unseen: float = 0.3
    repeated: float = 3.0
    sink: float = 0.5
    flat: float = 0.85

    def __post_init__(self) -> None:
        """Raise ConfigError for a threshold that is not above 0."""
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ConfigError(f"the limit of the alarm '{each.name}' is {getattr(self, each.name)}; it is above 0")


class AlarmMeasures(NamedTuple):
    """One number for each kind of alarm, from 0 (nothing wrong) to 1.

    `unseen`: 1 - mean_j max_t α_tj. `repeated`: the share of target words whose largest weight is on a source word that
    has the largest weight of another one. `sink`: the share of attention on `</s>` and punctuation. `flat`: the mean
    entropy of a row, as a share of log S. In the caption of an image, `unseen` is 0: see `AlarmLimits`.
    """

    unseen: float
    repeated: float
    sink: float
    flat: float


class _WordWeights(NamedTuple):
    """The weights between words, without the row of `</s>`, and which words count."""

    weights: NDArray[np.float64]  # (target words, source words with </s>)
    real: NDArray[np.bool_]  # source words that are neither </s> nor punctuation
    written: NDArray[np.bool_]  # target words that are not punctuation
    rows: NDArray[np.intp]  # the indices of the target words
    sizes: NDArray[np.intp]  # for each, the number of source words of its sentence, with </s>


def _word_weights(trace: Trace) -> _WordWeights | None:
    """Return the weights of a whole translation; None for self-attention, and for weights that are not attention.

    Other libraries' models have no alarms: their weights are those of any head, and their texts end as they like.
    """
    if not trace.readout.attention or trace.inside or trace.caption:
        return None
    if not (trace.source.words[-1].is_end and trace.target.words[-1].is_end):
        return None
    weights = trace.words()
    if weights is None or not np.isfinite(weights).all():
        return None
    sources, targets = trace.source.words, trace.target.words
    real = np.array([not (word.is_special or word.is_mark) for word in sources])
    rows = np.flatnonzero([not word.is_end for word in targets])
    written = np.array([not targets[t].is_mark for t in rows], dtype=bool)
    # In a text of several sentences, each attends only to its own source.
    ends = np.cumsum([0, *(word.is_end for word in sources)])[:-1]
    sentence = np.cumsum([0, *(word.is_end for word in targets)])[rows]
    sizes = np.bincount(ends)[np.minimum(sentence, ends[-1])]
    return _WordWeights(weights[rows].astype(np.float64), real, written, rows, sizes)


def measure(trace: Trace) -> AlarmMeasures | None:
    """Return the measures of a sentence; None without attention, and for a blank sentence."""
    words = _word_weights(trace)
    return None if words is None else _measured(words, trace.image is not None)


def _measured(words: _WordWeights, image: bool) -> AlarmMeasures | None:
    if not words.real.any() or not words.written.any():
        return None
    unseen = 0.0 if image else 1 - float(np.minimum(words.weights.max(0)[words.real], 1).mean())
    repeated = 1 - len(set(words.weights.argmax(1).tolist())) / len(words.weights)
    return AlarmMeasures(unseen, repeated, _sunk(words), float(_flatness(words).mean()))


def alarms(trace: Trace, limits: AlarmLimits | None = None, *, every: bool = False) -> tuple[Alarm, ...]:
    """Return the alarms of a translation, in the order of `KINDS`.

    Kinds that are near chance for the model (`AlarmRates.shows`) are left out, unless `every` is True.
    """
    rates = trace.readout.alarms
    raised = _alarms(trace, limits)
    return raised if every or rates is None else tuple(alarm for alarm in raised if rates.shows(alarm.kind))


def warnings(trace: Trace) -> list[str]:
    """Return the messages of the alarms, for the caption of a figure."""
    messages = [f"warning: {alarm.message}" for alarm in alarms(trace)]
    more = len(messages) - MOST_WARNINGS
    return messages if more <= 0 else [*messages[:MOST_WARNINGS], f"warning: {more} more alarms"]


def _alarms(trace: Trace, limits: AlarmLimits | None) -> tuple[Alarm, ...]:
    limits, words, image = limits or AlarmLimits(), _word_weights(trace), trace.image is not None
    total = None if words is None else _measured(words, image)
    if words is None or total is None:
        return ()
    sources, targets = ([word.text for word in side.words] for side in (trace.source, trace.target))
    raised = []
    received, part = _received(words)
    unseen = () if image else _where(words.real & (_near(received) <= limits.unseen))
    if unseen:
        raised.append(Alarm("unseen", total.unseen, unseen, (), f"little attention on {_named(sources, unseen)}"))
    for s in _where(words.real & (received >= limits.repeated * (OF_REGIONS if image else part))):
        rows = _where(words.weights.argmax(1) == s, words.rows)
        name = "the region " * image + _named(sources, (s,))
        message = f"{name} has the attention of {received[s]:.1f} words: {_named(targets, rows)}"
        raised.append(Alarm("repeated", total.repeated, (s,), rows, message))
    if total.sink >= limits.sink:
        where = "no region of the image" if image else "punctuation and the end of the sentence"
        message = f"{total.sink:.0%} of the attention is on {where}"
        raised.append(Alarm("sink", total.sink, (), (), message))
    if rows := _where(words.written & (_flatness(words) >= limits.flat), words.rows):
        count = int(words.written.sum())
        # Most words being flat is rather about the read-out than about single words.
        which = f"{len(rows)} of {count} words" if len(rows) > max(2, count / 2) else _named(targets, rows)
        raised.append(Alarm("flat", total.flat, (), rows, f"attention is nearly uniform for {which}"))
    return tuple(raised)


def _received(words: _WordWeights) -> tuple[NDArray[np.float64], float]:
    """Return how much attention each source word received, in rows, and how much is its share: one row, or up to two.

    Two for a short source; not more, as a translation that repeats itself is long, too.
    """
    return words.weights.sum(0), min(max(1.0, len(words.weights) / max(1, int(words.real.sum()))), 2.0)


def _near(received: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the most that a word or one of its neighbours received; `</s>` is no neighbour."""
    words = np.pad(received[:-1], 1)
    near: NDArray[np.float64] = np.append(np.maximum(np.maximum(words[:-2], words[2:]), words[1:-1]), received[-1])
    return near


def _sunk(words: _WordWeights) -> float:
    rows = words.weights[words.written]
    return float(rows[:, ~words.real].sum() / max(rows.sum(), 1e-12))


def _flatness(words: _WordWeights) -> NDArray[np.float64]:
    """Return the entropy of each row as a share of the largest possible.  (target words,)."""
    shares = words.weights / np.maximum(words.weights.sum(1, keepdims=True), 1e-12)
    entropy = -(shares * np.log(np.maximum(shares, 1e-12))).sum(1)
    flat: NDArray[np.float64] = np.clip(entropy / np.log(np.maximum(2, words.sizes)), 0.0, 1.0)
    return flat


def _where(which: NDArray[np.bool_], numbers: NDArray[np.intp] | None = None) -> tuple[int, ...]:
    indices = np.flatnonzero(which)
    return tuple(map(int, indices if numbers is None else numbers[indices]))


def _named(words: Sequence[str], numbers: Sequence[int]) -> str:
    """Return words as a list in quotes, at most NAMED of them."""
    shown = [f"'{words[n]}'" for n in numbers[:NAMED]]
    more = len(numbers) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class AlarmRates:
    """How many translations were wrong and right, and how many of each had an alarm, by kind.

    A kind that is not in `raised` was not measured.
    """

    wrong: int
    right: int
    raised: tuple[tuple[str, int, int], ...]  # kind, for wrong ones, for right ones

    def __post_init__(self) -> None:
        """Raise DataError for counts that contradict each other."""
        for kind, wrong, right in self.raised:
            if kind not in KINDS:
                raise DataError(f"alarms: there is no alarm {kind[:60]!r}; they are {', '.join(KINDS)}")
            if not (0 <= wrong <= self.wrong and 0 <= right <= self.right):
                raise DataError(
                    f"alarms: {kind!r} was raised for {wrong} of {self.wrong} wrong and {right} of {self.right} right "
                    "translations; it can be raised for 0 up to all of them"
                )

    def shows(self, kind: str) -> bool:
        """Return whether an alarm is shown: unless it is near chance for the model.

        It is near chance if the 95 % interval of its rate for wrong translations minus that for right ones is not
        above 0. A rare alarm is shown, and so are all where there are too few wrong or right translations.

        >>> AlarmRates(100, 300, (("flat", 11, 36), ("unseen", 20, 15))).shows("flat")
        False
        >>> AlarmRates(100, 300, (("flat", 11, 36), ("unseen", 20, 15))).shows("unseen")
        True
        """
        counts = {name: (wrong, right) for name, wrong, right in self.raised}.get(kind)
        if counts is None or min(self.wrong, self.right) < ENOUGH or sum(counts) < RARE:
            return True
        return self.difference(*counts)[0] > 0

    def difference(self, wrong: int, right: int) -> tuple[float, float]:
        """Return the 95 % interval of the rate for wrong translations minus that for right ones (Newcombe 1998)."""
        (p, low, high), (q, least, most) = _wilson(wrong, self.wrong), _wilson(right, self.right)
        return p - q - math.hypot(p - low, most - q), p - q + math.hypot(high - p, q - least)

    def lines(self) -> list[str]:
        """Return a line for each kind: how often it was raised, and whether it is shown."""
        if min(self.wrong, self.right) < ENOUGH:
            return [f"all are shown: {self.wrong:,} wrong and {self.right:,} right translations are too few to compare"]
        lines = []
        for kind, wrong, right in self.raised:
            rates = f"{wrong / self.wrong:.1%} of wrong and {right / self.right:.1%} of right translations"
            verdict = "shown" if self.shows(kind) else "not shown, since that is near chance"
            lines.append(f"{kind}: {rates}; {'shown, too rare to judge' if wrong + right < RARE else verdict}")
        return lines

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; `build` reads it."""
        return {"wrong": self.wrong, "right": self.right, "raised": {kind: [w, r] for kind, w, r in self.raised}}

    @classmethod
    def build(cls, plain: object) -> AlarmRates:
        """Return the rates that `plain` was made from."""
        wrong, right = (
            whole_number(field_of(plain, name, "alarms: "), f"alarms: {name}") for name in ("wrong", "right")
        )
        raised = field_of(plain, "raised", "alarms: ")
        if not isinstance(raised, Mapping):
            raise DataError("alarms: 'raised' is not an object with two numbers for each alarm")
        counts = [(str(kind), whole_numbers(pair, f"alarms: {str(kind)[:60]!r}", 2)) for kind, pair in raised.items()]
        if not all(0 <= count <= MAX_COUNT for count in (wrong, right, *(n for _, pair in counts for n in pair))):
            raise DataError(f"alarms: all counts are whole numbers from 0 to {MAX_COUNT:,}")
        return cls(wrong, right, tuple((kind, w, r) for kind, (w, r) in counts))


def _wilson(count: int, total: int) -> tuple[float, float, float]:
    """Return a rate with its 95 % interval (Wilson 1927)."""
    if not total:
        return 0.0, 0.0, 1.0
    p, z = count / total, Z**2 / total
    middle, half = (p + z / 2) / (1 + z), Z * math.sqrt(p * (1 - p) / total + z / (4 * total)) / (1 + z)
    return p, max(0.0, middle - half), min(1.0, middle + half)
