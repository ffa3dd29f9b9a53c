"""The attention of existing translations: they are decoded with teacher forcing, in one batch, with weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.errors import NotFiniteError
from heedful.models import Memory, NeedWeights, Seq2Seq
from heedful.text import START, pad
from heedful.trace.readout import Readout, Weights

POSITIONS = 1024  # of a block of logits


class AttentionReading(NamedTuple):
    """The attention of one sentence: weights (L, H, T, S) or None, and the log-probability of each token (T,).

    Optional: `after` (L, H, S), the weights of the step that reads `</s>`; and `norms` (L, H, S), the length of the
    vector that each head takes from each source token.
    """

    weights: Weights | None
    log_probs: Weights
    after: Weights | None = None
    norms: Weights | None = None

    def by(self, readout: Readout) -> Weights | None:
        """Return one weight for each pair of tokens, by a read-out.  (T, S)."""
        return None if self.weights is None else readout.mix(self.weights, self.after, self.norms)


@torch.inference_mode()
def read_attention(
    model: Seq2Seq,
    memory: Memory,
    targets: Sequence[Sequence[int]],
    weights: bool = True,
    *,
    after: bool = False,
    norms: bool = False,
) -> list[AttentionReading]:
    """Decode target sentences, each ending with `</s>`, and return the attention of each, without padding.

    Without `weights`, only the log-probabilities of the tokens. Row t of the weights is from the step that writes y_t
    and reads y_{t-1}; with `after` the model reads `</s>` as well, so that there is a row of the step that reads y_t
    for every token.
    """
    if not targets:
        return []
    y = torch.from_numpy(pad([(START, *target) for target in targets])).to(memory.h.device)
    T = y.shape[1] - 1
    need_weights = NeedWeights() if weights else None
    inputs = y if need_weights and after else y[:, :-1]
    hidden, _, step_weights = model.step(inputs, model.start(memory, inputs.shape[1]), memory, need_weights)
    # A few sentences at a time: the scores of all tokens at all positions of a batch would fill the memory.
    rows = max(1, POSITIONS // T)
    parts = zip(torch.split(hidden[:, :T], rows), torch.split(y[:, 1:], rows), strict=True)
    log_probs = torch.cat([_log_probs_of(model.logits(h), tokens) for h, tokens in parts]).cpu().numpy()
    for b, target in enumerate(targets):
        if np.isnan(log_probs[b, : len(target)]).any():
            raise NotFiniteError(
                f"the model's scores for a translation of {len(target):,} tokens are not numbers: its weights are "
                "finite, but what they compute for this text overflows; the model is unusable for it"
            )
    alpha = None if step_weights is None else step_weights.float().cpu().numpy()
    sizes = model.norms(memory) if need_weights and norms else None
    lengths = None if sizes is None else sizes.float().cpu().numpy()
    readings = []
    for b, (target, S) in enumerate(zip(targets, memory.keep.sum(1).tolist(), strict=True)):
        n = len(target)
        # Copied: a view would keep the whole batch in memory, with its padding.
        readings.append(
            AttentionReading(
                None if alpha is None else alpha[b, :, :, :n, :S].copy(),
                log_probs[b, :n],
                None if alpha is None or not after else alpha[b, :, :, n, :S].copy(),
                None if lengths is None else lengths[b, :, :, :S].copy(),
            )
        )
    return readings


def _log_probs_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of tokens.  logits (R, T, V), tokens (R, T) -> (R, T)."""
    logits = logits.float()
    logits[..., START] = -torch.inf  # as in decoding: `<s>` follows nothing
    return logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1)
