"""What decoding gives."""

from __future__ import annotations

import math
from typing import NamedTuple

from heedful.errors import NotFiniteError

__all__ = ["Hypothesis"]


class Hypothesis(NamedTuple):
    """Token ids, ending with `</s>`; the log-probability of each; whether the limit cut it short.

    It was cut short if `</s>` stands in the last place there is and would not have been chosen there freely: it was
    not drawn, or another word was more probable.

    Where a model computes something that is not a number, the sentence ends at once, with NaN for its last
    log-probability; `check` raises an error for such a one.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    cut: bool = False

    @property
    def finite(self) -> bool:
        """Whether the model computed numbers."""
        return not (self.log_probs and math.isnan(self.log_probs[-1]))

    def check(self) -> None:
        """Raise NotFiniteError if the model computed something that is not a number."""
        if not self.finite:
            raise NotFiniteError(
                f"the model's scores for token {len(self.ids)} of a translation are not numbers: its weights are "
                "finite, but what they compute for this text overflows; the model is unusable for it"
            )
