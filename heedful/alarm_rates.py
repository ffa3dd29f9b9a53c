"""How often a model's alarms are raised for wrong and for right translations, and which of them are worth showing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heedful.errors import DataError
from heedful.saved import field_of, whole_number, whole_numbers

__all__ = ["KINDS", "AlarmRates"]

KINDS = ("unseen", "repeated", "sink", "flat")
ENOUGH = 20  # wrong translations, and right ones, at least: fewer tell nothing
RARE = 10  # an alarm raised for fewer translations is not judged
Z = 1.96  # of a 95 % interval
MOST = 10**9


@dataclass(frozen=True)
class AlarmRates:
    """How many of some translations are wrong and right, and how many of each had an alarm, by its kind.

    A kind that `raised` lacks was not measured.
    """

    wrong: int
    right: int
    raised: tuple[tuple[str, int, int], ...]  # kind, for wrong ones, for right ones

    def __post_init__(self) -> None:
        """Refuse counts that contradict each other."""
        for kind, wrong, right in self.raised:
            if kind not in KINDS:
                raise DataError(f"alarms: there is no alarm {kind[:60]!r}; they are {', '.join(KINDS)}")
            if not (0 <= wrong <= self.wrong and 0 <= right <= self.right):
                raise DataError(
                    f"alarms: {kind!r} was raised for {wrong} of {self.wrong} wrong and {right} of {self.right} right "
                    "translations; it can be raised for 0 up to all of them"
                )

    def shows(self, kind: str) -> bool:
        """Return whether an alarm is worth showing: unless it was measured to be near chance.

        It is near chance when it is not clearly more frequent for wrong translations than for right ones: when the
        95 % interval of the difference of both rates is not above 0. An alarm that is rare is shown, and so are all of
        them where there are too few wrong or right translations.

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
        """Return for each kind how often it was raised, and whether it is shown."""
        if min(self.wrong, self.right) < ENOUGH:
            return [
                f"all are shown: {self.wrong:,} wrong and {self.right:,} right translations are too few to judge by"
            ]
        found = []
        for kind, wrong, right in self.raised:
            rates = f"{wrong / self.wrong:.1%} of wrong and {right / self.right:.1%} of right translations"
            verdict = "shown" if self.shows(kind) else "not shown, since that is near chance"
            found.append(f"{kind}: {rates}; {'shown, too rare to judge' if wrong + right < RARE else verdict}")
        return found

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; `build` takes it back."""
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
        if not all(0 <= count <= MOST for count in (wrong, right, *(n for _, pair in counts for n in pair))):
            raise DataError(f"alarms: all counts are whole numbers from 0 to {MOST:,}")
        return cls(wrong, right, tuple((kind, w, r) for kind, (w, r) in counts))


def _wilson(count: int, total: int) -> tuple[float, float, float]:
    """Return a rate with its 95 % interval (Wilson 1927)."""
    if not total:
        return 0.0, 0.0, 1.0
    p, z = count / total, Z**2 / total
    middle, half = (p + z / 2) / (1 + z), Z * math.sqrt(p * (1 - p) / total + z / (4 * total)) / (1 + z)
    return p, max(0.0, middle - half), min(1.0, middle + half)
