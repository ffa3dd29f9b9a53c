"""Validation: loss, BLEU and chrF of the model on held-out pairs, decoded greedily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from heedful.data import Batch, Batches, Pair
from heedful.data.corpus import Array
from heedful.decoding import greedy, length_limit
from heedful.metrics import bleu, chrf
from heedful.models import Network
from heedful.text import Codec
from heedful.training.callbacks import Sample, Validation
from heedful.training.distributed import ALONE, Processes
from heedful.training.guided import GuidedAttention, agreement
from heedful.training.step import loss

__all__ = ["Validator"]


class Validator:
    """Validates a model on the same pairs each time; of several processes, each takes its share of the batches.

    Where the loss is the metric, only the samples are translated: translating takes most of a validation's time.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        batches: Batches,
        target: Codec,
        device: torch.device,
        metric: str = "bleu",
        processes: Processes = ALONE,
        guide: GuidedAttention | None = None,
    ) -> None:
        self.pairs = pairs
        self.references = [p.target for p in pairs]
        # Neither the shortest nor the longest, and the same ones every time.
        order = sorted(range(len(pairs)), key=lambda row: (len(pairs[row].source), row))
        self.samples = sorted({order[len(order) // 3], order[2 * len(order) // 3]}) if order else []
        self.batches = batches
        plan = batches.epoch(0)
        self.rows = [plan[i] for i in range(processes.rank, len(plan), processes.world)]
        self.target, self.device, self.metric, self.processes = target, device, metric, processes
        self.guide = guide if batches.corpus.links is not None else None

    @torch.inference_mode()
    def __call__(self, model: Network, step: int) -> Validation:
        """Return the scores of the model as it is; dropout is off meanwhile."""
        model.eval()
        sums = torch.zeros(5, dtype=torch.float64)
        outputs: dict[int, str] = {}
        for rows in self.rows:
            batch = self.batches.batch(rows).to(self.device)
            found = loss(model, batch)
            sums[:3] += torch.tensor([float(found.mean) * found.tokens, float(found.right), found.tokens])
            if self.guide is not None:
                sums[3:] += torch.stack(agreement(model, batch, self.guide)).cpu()
            if self.metric != "loss":
                outputs.update(self._translated(model, batch, rows))
        if self.metric == "loss" and self.processes.first and self.samples:
            rows = np.array(self.samples)
            outputs.update(self._translated(model, self.batches.batch(rows).to(self.device), rows))
        model.train()
        total, right, tokens, hits, linked = self.processes.add_up(sums).tolist()
        links = hits / linked if linked else None
        if self.metric == "loss":
            return Validation(step, total / tokens, right / tokens, links=links, samples=self._sampled(outputs))
        everything = {row: text for share in self.processes.gather(outputs) for row, text in share.items()}
        texts = [everything[row] for row in range(len(self.references))]
        score = chrf(texts, self.references) if self.metric == "chrf" else None
        scores = total / tokens, right / tokens, bleu(texts, self.references), score, links
        return Validation(step, *scores, self._sampled(everything))

    def _sampled(self, outputs: Mapping[int, str]) -> tuple[Sample, ...]:
        return tuple(Sample(*self.pairs[row][:2], outputs[row]) for row in self.samples if row in outputs)

    def _translated(self, model: Network, batch: Batch, rows: Array) -> Iterator[tuple[int, str]]:
        """Yield the greedy translation of each row."""
        keep = batch.x != 0
        memory = model.encode(batch.x, keep)
        found = greedy(model, memory, [length_limit(n) for n in keep.sum(1).tolist()])
        for row, hypothesis in zip(rows, found, strict=True):
            yield int(row), self.target.decode(hypothesis.ids)
