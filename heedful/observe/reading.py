"""Re-reading: the chosen words are read once more by teacher forcing, all in one batch, and the weights are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data import pad
from heedful.models import Look, Memory, Seq2Seq
from heedful.text import START

__all__ = ["Reading", "read"]

PLACES = 1024


class Reading(NamedTuple):
    """What a model saw in one sentence: weights (L, H, T, S) or None, and the log-probability of each token (T,)."""

    weights: NDArray[np.float32] | None
    log_probs: NDArray[np.float32]


@torch.inference_mode()
def read(model: Seq2Seq, memory: Memory, targets: Sequence[Sequence[int]], weights: bool = True) -> list[Reading]:
    """Read given target sentences, each ending with `</s>`, and say where each token looked; padding is cut off.

    Without `weights`, only how probable each token is.
    """
    if not targets:
        return []
    y = pad([(START, *target) for target in targets]).to(memory.h.device)
    look = Look() if weights else None
    hidden, _, looked = model.step(y[:, :-1], model.start(memory, y.shape[1] - 1), memory, look)
    # A few sentences at a time: the scores of all words at all places of a batch would fill the memory.
    some = max(1, PLACES // hidden.shape[1])
    parts = zip(torch.split(hidden, some), torch.split(y[:, 1:], some), strict=True)
    log_probs = torch.cat([_of_words(model.logits(h), words) for h, words in parts]).cpu().numpy()
    lengths = memory.keep.sum(1).tolist()
    seen = None if looked is None else looked.float().cpu().numpy()
    # Copied: a part would keep the whole batch in memory, with its padding.
    return [
        Reading(
            None if seen is None else seen[b, :, :, : len(target), : lengths[b]].copy(), log_probs[b, : len(target)]
        )
        for b, target in enumerate(targets)
    ]


def _of_words(logits: Tensor, words: Tensor) -> Tensor:
    """Return the log-probabilities of some words.  logits (R, T, V), words (R, T) -> (R, T)."""
    logits = logits.float()
    logits[..., START] = -torch.inf  # as in decoding: `<s>` can follow nothing
    return logits.gather(-1, words[..., None])[..., 0] - logits.logsumexp(-1)
