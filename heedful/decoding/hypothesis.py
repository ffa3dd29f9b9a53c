"""What decoding gives."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Hypothesis"]


class Hypothesis(NamedTuple):
    """Token ids, ending with `</s>`; the log-probability of each; whether the limit cut it short.

    It was cut short if `</s>` stands in the last place there is and would not have been chosen there freely: it was
    not drawn, or another word was more probable.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    cut: bool = False
