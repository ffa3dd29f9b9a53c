"""Re-reading: the chosen words are read once more by teacher forcing, all in one batch, and the weights are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data import pad
from heedful.errors import NotFiniteError
from heedful.models import Look, Memory, Seq2Seq
from heedful.text import START
from heedful.trace.readout import Readout, Weights

__all__ = ["Reading", "read"]

PLACES = 1024


class Reading(NamedTuple):
    """What a model saw in one sentence: weights (L, H, T, S) or None, and the log-probability of each token (T,).

    If asked for: `after` (L, H, S), where it looked when it had read `</s>`, too; and `norms` (L, H, S), the length of
    the vector that each head takes from each source token.
    """

    weights: Weights | None
    log_probs: Weights
    after: Weights | None = None
    norms: Weights | None = None

    def by(self, readout: Readout) -> Weights | None:
        """Return one weight for each pair of tokens, as a read-out has it.  (T, S)."""
        return None if self.weights is None else readout.mix(self.weights, self.after, self.norms)


@torch.inference_mode()
def read(
    model: Seq2Seq,
    memory: Memory,
    targets: Sequence[Sequence[int]],
    weights: bool = True,
    *,
    after: bool = False,
    norms: bool = False,
) -> list[Reading]:
    """Read given target sentences, each ending with `</s>`, and say where each token looked; padding is cut off.

    Without `weights`, only how probable each token is. Row t of the weights is from the step that writes y_t, when
    y_{t-1} is read; with `after` the model reads `</s>` as well, so that the row of the step that reads y_t is there
    for every token.
    """
    if not targets:
        return []
    y = pad([(START, *target) for target in targets]).to(memory.h.device)
    T = y.shape[1] - 1
    look = Look() if weights else None
    given = y if look and after else y[:, :-1]
    hidden, _, looked = model.step(given, model.start(memory, given.shape[1]), memory, look)
    # A few sentences at a time: the scores of all words at all places of a batch would fill the memory.
    some = max(1, PLACES // T)
    parts = zip(torch.split(hidden[:, :T], some), torch.split(y[:, 1:], some), strict=True)
    log_probs = torch.cat([_of_words(model.logits(h), words) for h, words in parts]).cpu().numpy()
    for b, target in enumerate(targets):
        if np.isnan(log_probs[b, : len(target)]).any():
            raise NotFiniteError(
                f"the model's scores for a translation of {len(target):,} tokens are not numbers: its weights are "
                "finite, but what they compute for this text overflows; the model is unusable for it"
            )
    seen = None if looked is None else looked.float().cpu().numpy()
    sizes = model.norms(memory) if look and norms else None
    let_through = None if sizes is None else sizes.float().cpu().numpy()
    found = []
    for b, (target, S) in enumerate(zip(targets, memory.keep.sum(1).tolist(), strict=True)):
        n = len(target)
        # Copied: a part would keep the whole batch in memory, with its padding.
        found.append(
            Reading(
                None if seen is None else seen[b, :, :, :n, :S].copy(),
                log_probs[b, :n],
                None if seen is None or not after else seen[b, :, :, n, :S].copy(),
                None if let_through is None else let_through[b, :, :, :S].copy(),
            )
        )
    return found


def _of_words(logits: Tensor, words: Tensor) -> Tensor:
    """Return the log-probabilities of some words.  logits (R, T, V), words (R, T) -> (R, T)."""
    logits = logits.float()
    logits[..., START] = -torch.inf  # as in decoding: `<s>` can follow nothing
    return logits.gather(-1, words[..., None])[..., 0] - logits.logsumexp(-1)
