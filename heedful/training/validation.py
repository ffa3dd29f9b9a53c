"""How good the model is on pairs it does not learn from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from heedful.data import Batches, Pair
from heedful.decoding import greedy
from heedful.metrics import bleu
from heedful.models import Network
from heedful.text import Codec
from heedful.training.loss import loss
from heedful.training.records import Validation
from heedful.translator import limit

__all__ = ["Validator"]


class Validator:
    """Measures a model on the same pairs each time."""

    def __init__(self, pairs: Sequence[Pair], batches: Batches, target: Codec, device: torch.device) -> None:
        self.references = [p.target for p in pairs]
        self.batches = batches
        self.rows = batches.epoch(0)
        self.target, self.device = target, device

    @torch.inference_mode()
    def __call__(self, model: Network, step: int) -> Validation:
        """Return the scores of the model as it is; dropout is off meanwhile."""
        model.eval()
        total, right, tokens = 0.0, 0, 0
        outputs = [""] * len(self.references)
        for rows in self.rows:
            batch = self.batches.batch(rows).to(self.device)
            found = loss(model, batch)
            total += float(found.mean) * found.tokens
            right += int(found.right)
            tokens += found.tokens
            memory = model.encode(batch.x, batch.x != 0)
            lengths = (batch.x != 0).sum(1).tolist()
            for row, hypothesis in zip(rows, greedy(model, memory, [limit(n) for n in lengths]), strict=True):
                outputs[row] = self.target.decode(hypothesis.ids)
        model.train()
        return Validation(step, total / tokens, right / tokens, bleu(outputs, self.references))
