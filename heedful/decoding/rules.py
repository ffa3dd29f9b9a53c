"""What may be written: the shares of all words at a step, and what is forced or forbidden there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.settings import Decoding
from heedful.errors import ConfigError, NotFiniteError
from heedful.text import END, PAD, START

__all__ = ["Hypothesis", "Rules", "best", "log_probs", "log_probs_"]

BLOCK = 64


class Hypothesis(NamedTuple):
    """A decoded sentence: token ids, ending with `</s>`; the log-probability of each; whether the limit cut it short.

    It was cut short if `</s>` is in the last position allowed and would not have been chosen there freely: it was not
    drawn, or another token was more probable.

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


def log_probs(logits: Tensor) -> Tensor:
    """Return the log-probability of each word.  (…, V) -> (…, V).  `<s>` can follow nothing, and has no share."""
    return log_probs_(logits.clone())


def log_probs_(logits: Tensor) -> Tensor:
    """Do the same and write into what is given, which spares a copy."""
    logits = logits.float()
    logits[..., START] = -torch.inf
    return logits.log_softmax(-1)


def best(scores: Tensor, k: int, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row of rows and where, largest first.  scores (B, K, V) -> (B, k), (B, k).

    `plus` (B, K) is added to each row; places count over K·V. The k largest lie in the k blocks with the largest
    maxima: looking for those first spares sorting all, and adding to all.
    """
    B, K, V = scores.shape
    plus = scores.new_zeros(1, 1).expand(B, K) if plus is None else plus
    if B * K * V < 2**15 or 4 * k * BLOCK > K * V:
        every = (scores + plus[:, :, None]).flatten(1)
        return every.topk(k, dim=1) if k > 1 else every.max(dim=1, keepdim=True)
    n = V // BLOCK
    highest = scores[:, :, : n * BLOCK].view(B, K, n, BLOCK).amax(-1) + plus[:, :, None]
    blocks = highest.flatten(1).topk(k, dim=1).indices  # over K·n
    begin = blocks // n * V + blocks % n * BLOCK
    places = (begin[:, :, None] + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if V % BLOCK:  # and what no block holds
        rest = torch.arange(n * BLOCK, V, device=scores.device) + V * torch.arange(K, device=scores.device)[:, None]
        places = torch.cat([places, rest.flatten().expand(B, -1)], dim=1)
    values, i = (scores.flatten(1).gather(1, places) + plus.gather(1, places // V)).topk(k, dim=1)
    return values, places.gather(1, i)


class Rules:
    """What holds for each sentence b: at most `limits[b]` ≥ 1 tokens, `</s>` among them; `prefixes[b]` come first.

    `apply` is given R = B or B·K rows, K hypotheses for each sentence side by side.
    """

    def __init__(
        self,
        limits: Sequence[int],
        device: torch.device,
        settings: Decoding | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        settings = settings or Decoding()
        _check_room(limits, settings, prefixes)
        self.capacity = max(limits, default=0)
        self.shortest = min(limits, default=0)
        self.limits = torch.tensor(limits, dtype=torch.long, device=device)
        self.at_least, self.no_repeat = settings.min_length, settings.no_repeat
        self.forced = max((len(p) for p in prefixes or ()), default=0)
        self.prefixes = torch.full((len(limits), self.forced), -1, dtype=torch.long, device=device)
        for b, prefix in enumerate(prefixes or ()):
            self.prefixes[b, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)

    def select(self, rows: Tensor) -> None:
        """Keep some sentences."""
        self.limits, self.prefixes = self.limits[rows], self.prefixes[rows]
        self.shortest = int(self.limits.min()) if len(self.limits) else 0

    def apply(self, scores: Tensor, words: Tensor) -> Tensor:
        """Set to -∞, in place, what may not follow.  scores (R, V), words (R, t), those written so far.

        In the `last` place `</s>` follows, whatever is left here.
        """
        t = words.shape[1]
        K = scores.shape[0] // max(len(self.limits), 1)
        given = scores.clone() if t < self.forced else None
        scores[:, PAD] = -torch.inf
        end = scores[:, END].clone() if t < self.at_least else None
        if end is not None:
            scores[:, END] = -torch.inf
        if 0 < self.no_repeat <= t:
            self._forbid_repeats(scores, words)
            if end is not None:  # where every word would be a repetition, the sentence ends all the same
                scores[:, END] = torch.where(scores.amax(-1) == -torch.inf, end, -torch.inf)
        if given is not None:
            self._force(scores, given, self.prefixes[:, t].repeat_interleave(K))
        return scores

    def last(self, t: int) -> Tensor | None:
        """Return which sentences have to end with the word in place t, counted from 0: (B,), or None for none."""
        return self.limits == t + 1 if t + 1 >= self.shortest else None

    def end(self, scores: Tensor, t: int) -> Tensor | None:
        """Leave only `</s>` in the last place; return where another word was more probable: (R,), or None for none."""
        last = self.last(t)
        if last is None:
            return None
        last = last.repeat_interleave(scores.shape[0] // max(len(self.limits), 1))
        cut = last & (scores.amax(-1) > scores[:, END])
        self._force(scores, scores, torch.where(last, END, -1))
        return cut

    @staticmethod
    def _force(scores: Tensor, given: Tensor, words: Tensor) -> None:
        """Leave one word where it is not -1, with the score given to it.  scores, given (R, V), words (R,)."""
        rows = (words >= 0).nonzero()[:, 0]
        word = words[rows]
        value = given[rows, word]
        scores[rows] = -torch.inf
        scores[rows, word] = value

    def _forbid_repeats(self, scores: Tensor, words: Tensor) -> None:
        """Forbid what would complete a run of n tokens that was there before."""
        n = self.no_repeat
        followers = words[:, n - 1 :]  # of each run of n - 1 tokens but the last
        runs = words.unfold(1, n - 1, 1)[:, : followers.shape[1]] if n > 1 else words[:, :, None][:, :, :0]
        same = (runs == words[:, None, words.shape[1] - n + 1 :]).all(-1)
        scores.scatter_(1, torch.where(same, followers, PAD), -torch.inf)


def _check_room(limits: Sequence[int], settings: Decoding, prefixes: Sequence[Sequence[int]] | None) -> None:
    """Refuse limits that leave no room for what has to be written."""
    for b, limit in enumerate(limits):
        forced, least = len(prefixes[b]) if prefixes else 0, settings.min_length
        wants = ((0, "any"), (least, f"a min_length of {least}"), (forced, f"its prefix of {forced} tokens"))
        for size, what in wants:
            if limit <= size:
                raise ConfigError(
                    f"sentence {b + 1} of {len(limits)} may have {limit} tokens, `</s>` among them: "
                    f"this leaves no room for {what}"
                )
