"""How good the model is on pairs it does not learn from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from heedful.data import Batches, Pair
from heedful.decoding import greedy
from heedful.metrics import bleu, chrf
from heedful.models import Network
from heedful.text import Codec
from heedful.training.loss import loss
from heedful.training.processes import ALONE, Processes
from heedful.training.records import Validation
from heedful.translator import limit

__all__ = ["Validator"]


class Validator:
    """Measures a model on the same pairs each time; of several processes, each takes its share of the batches."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        batches: Batches,
        target: Codec,
        device: torch.device,
        metric: str = "bleu",
        processes: Processes = ALONE,
    ) -> None:
        self.references = [p.target for p in pairs]
        self.batches = batches
        plan = batches.epoch(0)
        self.rows = [plan[i] for i in range(processes.rank, len(plan), processes.world)]
        self.target, self.device, self.metric, self.processes = target, device, metric, processes

    @torch.inference_mode()
    def __call__(self, model: Network, step: int) -> Validation:
        """Return the scores of the model as it is; dropout is off meanwhile."""
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        outputs: dict[int, str] = {}
        for rows in self.rows:
            batch = self.batches.batch(rows).to(self.device)
            found = loss(model, batch)
            sums += torch.tensor([float(found.mean) * found.tokens, float(found.right), found.tokens])
            memory = model.encode(batch.x, batch.x != 0)
            lengths = (batch.x != 0).sum(1).tolist()
            for row, hypothesis in zip(rows, greedy(model, memory, [limit(n) for n in lengths]), strict=True):
                outputs[int(row)] = self.target.decode(hypothesis.ids)
        model.train()
        total, right, tokens = self.processes.add_up(sums).tolist()
        everything = {row: text for share in self.processes.gather(outputs) for row, text in share.items()}
        texts = [everything[row] for row in range(len(self.references))]
        score = chrf(texts, self.references) if self.metric == "chrf" else None
        return Validation(step, total / tokens, right / tokens, bleu(texts, self.references), score)
