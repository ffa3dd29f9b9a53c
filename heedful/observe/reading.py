"""The attention of existing translations: they are decoded with teacher forcing, in one batch, with weights.

`read_attention` gives the weights of all layers and heads, `read_by_readout` one weight for each pair of tokens, which
is all that links need: the decoder stops there, and no scores of tokens are computed.
"""

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
    """The attention of one sentence: weights (L, H, T, S), and the log-probability of each token (T,).

    Optional: `after` (L, H, S), the weights of the step that reads `</s>`; `norms` (L, H, S), the length of the
    vector that each head takes from each source token; and `read` (T, S), the weights by a read-out. What was not asked
    for is None, and so are the weights of a model without attention.
    """

    weights: Weights | None
    log_probs: Weights | None
    after: Weights | None = None
    norms: Weights | None = None
    read: Weights | None = None

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
    log_probs: bool = True,
) -> list[AttentionReading]:
    """Decode target sentences, each ending with `</s>`, and return the attention of each, without padding.

    Without `weights`, only the log-probabilities of the tokens; without `log_probs`, only the weights. Row t of the
    weights is from the step that writes y_t and reads y_{t-1}; with `after` the model reads `</s>` as well, so that
    there is a row of the step that reads y_t for every token.
    """
    if not targets:
        return []
    need_weights = NeedWeights() if weights else None
    step_weights, values = _reread(model, memory, targets, need_weights, after, log_probs)
    alpha = None if step_weights is None else step_weights.float().cpu().numpy()
    sizes = model.norms(memory) if need_weights and norms else None
    lengths = None if sizes is None else sizes.float().cpu().numpy()
    readings = []
    for b, (target, S) in enumerate(zip(targets, _source_sizes(memory), strict=True)):
        n = len(target)
        # Copied: a view would keep the whole batch in memory, with its padding.
        readings.append(
            AttentionReading(
                None if alpha is None else _checked(alpha[b, :, :, :n, :S].copy(), values[b]),
                values[b],
                None if alpha is None or not after else alpha[b, :, :, n, :S].copy(),
                None if lengths is None else lengths[b, :, :, :S].copy(),
            )
        )
    return readings


@torch.inference_mode()
def read_by_readout(
    model: Seq2Seq,
    memory: Memory,
    targets: Sequence[Sequence[int]],
    readout: Readout,
    *,
    log_probs: bool = False,
) -> list[AttentionReading]:
    """Decode target sentences, each ending with `</s>`, and return `read` of each: the weights by a read-out, (T, S).

    The same as `read_attention(…)` and `AttentionReading.by(readout)`, to rounding, with less work: of the decoder only
    the layers up to the read-out's, and no output layer, unless `log_probs` are asked for.
    """
    if not targets:
        return []
    layer = None if readout.layer is None else readout.layer - 1
    later = readout.step == "next"
    weights, values = _reread(model, memory, targets, NeedWeights(layer=layer), later, log_probs)
    if weights is None:
        return [AttentionReading(None, one) for one in values]
    mixed = _mix(weights.float(), model.norms(memory) if readout.norms else None, readout)
    matrices = mixed.cpu().numpy()
    readings = []
    for b, (target, S) in enumerate(zip(targets, _source_sizes(memory), strict=True)):
        # Copied: a view would keep the whole batch in memory, with its padding.
        matrix = matrices[b, later : len(target) + later, :S].copy()
        readings.append(AttentionReading(None, values[b], read=_checked(matrix, values[b])))
    return readings


def _source_sizes(memory: Memory) -> list[int]:
    """Return the tokens of each source, with a `</s>` that the model does not read."""
    sizes: list[int] = (memory.keep.sum(1) + memory.unread).tolist()
    return sizes


def _reread(
    model: Seq2Seq,
    memory: Memory,
    targets: Sequence[Sequence[int]],
    need_weights: NeedWeights | None,
    after: bool,
    log_probs: bool,
) -> tuple[Tensor | None, list[Weights] | list[None]]:
    """Return the weights of the steps, (B, L, H, T, S), and the log-probabilities of each sentence's tokens.

    With `after`, there is one more step, which reads `</s>`.
    """
    extra = int(after and need_weights is not None)
    ids = pad([(START, *target) for target in targets])
    y = torch.from_numpy(ids if extra else ids[:, :-1]).to(memory.h.device)
    lengths = [len(target) + extra for target in targets]
    hidden, weights = model.reread(y, lengths, memory, need_weights, log_probs)
    if hidden is None:
        return weights, [None] * len(targets)
    if extra:  # nothing follows </s>
        ends = np.cumsum(lengths) - 1
        hidden = hidden[torch.from_numpy(np.delete(np.arange(len(hidden)), ends)).to(hidden.device)]
    tokens = torch.from_numpy(np.concatenate([np.asarray(target, np.int64) for target in targets])).to(hidden.device)
    # A part at a time: the scores of all tokens at all positions of a batch would fill the memory.
    parts = zip(torch.split(hidden, POSITIONS), torch.split(tokens, POSITIONS), strict=True)
    flat = torch.cat([_log_probs_of(model.logits(h), some) for h, some in parts]).cpu().numpy()
    values = np.split(flat, np.cumsum([len(target) for target in targets])[:-1])
    for one in values:
        if np.isnan(one).any():
            raise _not_finite("scores", len(one))
    return weights, values


def _mix(weights: Tensor, norms: Tensor | None, readout: Readout) -> Tensor:
    """Return what `Readout.mix` does, for a batch, before steps are shifted.  weights (B, L, H, T, S) -> (B, T, S).

    `weights` are those of the read-out's layer, or of all; `norms` (B, L, H, S) those of all.
    """
    readout.check(readout.layer or weights.shape[1], weights.shape[2])
    if readout.heads:
        weights = weights[:, :, [head - 1 for head in readout.heads]]
    if norms is not None:
        norms = norms if readout.layer is None else norms[:, readout.layer - 1 : readout.layer]
        norms = norms[:, :, [head - 1 for head in readout.heads]] if readout.heads else norms
        weights = weights * norms.float()[:, :, :, None]
        sums = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(sums > 0, sums, 1.0)
    return weights.mean((1, 2))


def _checked(weights: Weights, log_probs: Weights | None) -> Weights:
    """Return weights (…, T, S); raise NotFiniteError if they are NaN, and no log-probabilities were checked."""
    if log_probs is None and np.isnan(weights).any():
        raise _not_finite("attention weights", weights.shape[-2])
    return weights


def _not_finite(what: str, size: int) -> NotFiniteError:
    return NotFiniteError(
        f"the model's {what} for a translation of {size:,} tokens are not numbers: its weights are finite, but what "
        "they compute for this text overflows; the model is unusable for it"
    )


def _log_probs_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of tokens.  logits (N, V), tokens (N,) -> (N,)."""
    logits = logits.float()
    logits[..., START] = -torch.inf  # as in decoding: `<s>` follows nothing
    return logits.gather(-1, tokens[..., None])[..., 0] - logits.logsumexp(-1)
