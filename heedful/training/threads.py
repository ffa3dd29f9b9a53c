"""How many threads a run on the CPU uses: as set, as when it began, or measured on steps that are thrown away."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch

from heedful.data.corpus import Array
from heedful.folder import Parts
from heedful.threads import fastest_threads, may_choose
from heedful.training.memory import batch_guard
from heedful.training.place import Place
from heedful.training.prepare import Prepared
from heedful.training.records import Watch
from heedful.training.update import Updater

__all__ = ["choose_threads"]

STEPS = 2  # measured together, with batches of the most usual size
SAMPLE = 50  # batches among which these are looked for
FEW = 4  # pairs in the quick trial


def choose_threads(parts: Parts, data: Prepared, place: Place, watch: Watch, before: object = None) -> int:
    """Set the number of threads of a run and return it.

    `training.threads` decides, then `before` (the number that the resumed run began with), then the environment
    (OMP_NUM_THREADS). Otherwise the number is measured with a copy of the model. Weights, random numbers and the order
    of the data stay as they are, so that the run has the same bits as one that was told the number.
    """
    config = parts.config.training
    if config.threads or place.device.type != "cpu" or place.processes.world > 1:
        return torch.get_num_threads()
    if isinstance(before, int) and not isinstance(before, bool) and before > 0:
        torch.set_num_threads(before)
        return before
    if not may_choose():
        return torch.get_num_threads()
    model = copy.deepcopy(parts.model).train()
    updater = Updater(model, config, place.device, place.bf16, guide=data.guide)
    plan = data.batches.epoch(0)
    some = [plan[at] for at in np.unique(np.linspace(0, len(plan) - 1, SAMPLE).astype(int))]
    rows = sorted(some, key=data.batches.tokens)[len(some) // 2 :][:STEPS]
    with torch.random.fork_rng(devices=()), batch_guard("measuring threads", config):
        found = fastest_threads(_steps(updater, data, rows), _steps(updater, data, [rows[0][:FEW]]))
    torch.set_num_threads(found.threads)
    tokens = sum(map(data.batches.tokens, rows))
    speeds = ", ".join(f"{tokens / seconds:,.0f} with {number}" for number, seconds in sorted(found.seconds.items()))
    watch.say(
        f"using {found.threads} thread{'s' * (found.threads > 1)}: target tokens/s measured here and now are {speeds} "
        "(training.threads sets the number)"
    )
    return found.threads


def _steps(updater: Updater, data: Prepared, rows: list[Array]) -> Callable[[], None]:
    """Return what takes one step for each of some batches, at a rate of 0."""

    def work() -> None:
        for some in rows:
            updater([data.batches.batch(some)], data.batches.tokens(some), 1, 0.0)

    return work
