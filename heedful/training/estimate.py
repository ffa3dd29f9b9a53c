"""What a run would take: memory, and time from a few measured steps."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np

from heedful.device import fast_products
from heedful.folder import Parts
from heedful.training.expectations import expected_steps
from heedful.training.memory import batch_guard, kept, peak
from heedful.training.place import Place
from heedful.training.prepare import Prepared
from heedful.training.records import Watch
from heedful.training.update import Updater

__all__ = ["Estimate", "estimate"]

WARM, MEASURED = 4, 12  # times that a GPU meets a batch before it counts, and steps that count
LONGEST = 30.0  # seconds after the first step, the largest; no further one is begun then, but one always counts


@dataclass(frozen=True)
class Estimate:
    """What was counted, and what was measured: seconds a step, tokens a second, bytes at most.

    `bytes_kept` are those of the best weights and of a checkpoint that is written, in the CPU's memory.
    """

    pairs: int
    valid_pairs: int
    source_tokens: int
    target_tokens: int
    vocabularies: tuple[int, int]
    weights: int
    steps_per_epoch: int
    steps: int
    seconds_per_step: float
    tokens_per_second: float
    bytes_at_most: int
    bytes_kept: int
    threads: int
    expected_steps: int | None

    def plain(self) -> dict[str, object]:
        """Return everything by name."""
        more = {"seconds_per_epoch": self.seconds_per_epoch, "expected_seconds": self.expected_seconds}
        return {**asdict(self), **more, "seconds": self.seconds}

    @property
    def seconds_per_epoch(self) -> float:
        """How long all pairs take once."""
        return self.seconds_per_step * self.steps_per_epoch

    @property
    def expected_seconds(self) -> float | None:
        """How long the steps take until such a run usually stops, if that is known."""
        return None if self.expected_steps is None else self.seconds_per_step * self.expected_steps

    @property
    def seconds(self) -> float:
        """How long all steps take, validation and checkpoints not counted; patience may end a run before."""
        return self.seconds_per_step * self.steps


def estimate(parts: Parts, data: Prepared, place: Place, watch: Watch, threads: int) -> Estimate:
    """Train for a few steps, the first of them with the largest batch, and throw the weights away; say so.

    `threads` is the number that PyTorch uses, for the report.
    """
    config = parts.config.training
    model = parts.model.to(place.device).train()
    updater = Updater(model, config, place.device, place.bf16, place.processes, data.guide)
    plan = data.batches.epoch(0)
    lengths = data.corpus.lengths(0)
    largest = max(range(len(plan)), key=lambda i: int(lengths[plan[i]].max(0).sum()) * len(plan[i]))
    chosen = [largest, *np.linspace(0, len(plan) - 1, MEASURED).astype(int).tolist()]
    watch.say(f"measuring {len(chosen)} steps, the first with the largest batch")
    times: list[float] = []
    tokens: list[int] = []
    known = 0.0
    with batch_guard("trying the largest batch", config), fast_products(place.device), closing(updater):
        for at in chosen:
            if len(times) > 1 and time.perf_counter() - known > LONGEST:
                watch.say(f"{len(times)} steps are measured; that is enough for steps as slow as these")
                break
            rows = [plan[(at + offset) % len(plan)] for offset in range(config.accumulate)]
            tokens.append(sum(data.batches.tokens(part) for part in rows))
            for _ in range(WARM if place.fixed else 1):  # as often as it takes until a step is recorded
                begin = time.perf_counter()
                batches = [data.batches.batch(part, fixed=place.fixed).to(place.device) for part in rows]
                updater(batches, tokens[-1], 1, 0.0)
                updater.read()
                spent = time.perf_counter() - begin
            times.append(spent)
            known = known or time.perf_counter()
            watch.preparing(len(times), "step measured" if len(times) == 1 else "steps measured")
    seconds = sum(times[1:])
    return Estimate(
        pairs=len(data.corpus),
        valid_pairs=len(data.valid_pairs),
        source_tokens=int(lengths[:, 0].sum()),
        target_tokens=int(lengths[:, 1].sum()),
        vocabularies=(len(parts.source), len(parts.target)),
        weights=sum(p.numel() for p in model.parameters()),
        steps_per_epoch=-(-len(plan) // config.accumulate),
        steps=config.steps,
        seconds_per_step=seconds / len(times[1:]),
        tokens_per_second=sum(tokens[1:]) / seconds,
        bytes_at_most=peak(place.device),
        bytes_kept=kept(model, config),
        threads=threads,
        expected_steps=expected_steps(parts.config, len(data.corpus)),
    )
