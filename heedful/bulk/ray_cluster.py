"""Units on a Ray cluster: tasks that open the model once in a worker process, translate a unit and rename its output.

Ray only decides where a unit runs. What is done is decided by the driver's journal: a unit that runs twice, because a
worker, a node or the driver was killed, writes the same output under the same name twice. Inputs, model and outputs
have the same paths on all nodes, on a file system that they share.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.bulk.formats import Cell
from heedful.bulk.journal import RUN, Record
from heedful.bulk.rows import PortionValues, RowTranslator, SharedModel, sharing_memory, translate_unit
from heedful.bulk.units import Destination, Unit
from heedful.data.workers import WorkerPool
from heedful.errors import ConfigError, HeedfulError, MachineError, WorkerError, install_command

RETRIES = 5  # of a unit whose worker or node dies
WAITING = 2  # units for each that can run, that Ray knows of
POLL = 1.0  # seconds after which Ctrl-C is noticed


@dataclass(frozen=True)
class RayJob:
    """What a worker needs to translate units."""

    model: SharedModel
    destination: Destination
    workers: int = 1  # processes that share a GPU


class RayCluster:
    """A connection to a cluster; `gpus` is the number of its GPUs."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401  (a module)
        self.ray = ray
        resources = ray.cluster_resources()
        self.gpus, self.cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))

    @property
    def device(self) -> str:
        """Where workers compute: on GPUs, if there are any."""
        return "cuda" if self.gpus else "cpu"

    def results(self, job: RayJob, units: Sequence[Unit]) -> Iterator[tuple[Unit, Record | HeedfulError]]:
        """Yield each unit, as soon as it is done, with its record, or why it failed."""
        # Given by `options`: as arguments of `remote`, num_gpus would end a worker after each task, and its model.
        needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_gpus": 0, "num_cpus": job.model.threads}
        task = self.ray.remote(_translate).options(**needs, max_retries=RETRIES)
        slots = self.gpus or max(1, self.cpus // job.model.threads)
        shared = self.ray.put(job)
        left, running = iter(units), dict[Any, Unit]()
        while True:
            while len(running) < WAITING * slots and (unit := next(left, None)) is not None:
                running[task.remote(shared, replace(unit, path=Path(os.path.abspath(unit.path))))] = unit
            if not running:
                return
            ready, _ = self.ray.wait(list(running), timeout=POLL)
            for reference in ready:
                unit = running.pop(reference)
                yield unit, self._result(reference, unit)

    def _result(self, reference: Any, unit: Unit) -> Record | HeedfulError:  # noqa: ANN401
        try:
            result: Record | HeedfulError = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            return WorkerError(f"{unit.path}: its worker failed ({reason:.300})")
        return {**result, "input": str(unit.path)} if isinstance(result, dict) else result


@contextmanager
def connect(address: str) -> Iterator[RayCluster]:
    """Connect to a cluster: `auto` is the one that runs on this machine, `local` starts one for this process.

    Raises ConfigError if Ray is not installed, and MachineError if there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(f"a Ray cluster needs the package ray: {install_command('ray')}") from None
    ours = not ray.is_initialized()
    if ours:
        where: dict[str, Any] = {"include_dashboard": False} if address == "local" else {"address": address}
        try:
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise MachineError(f"there is no Ray cluster at '{address}' ({reason:.300})") from None
    try:
        yield RayCluster(ray)
    finally:
        if ours:
            ray.shutdown()


_pools: dict[RayJob, WorkerPool[Sequence[Cell], PortionValues]] = {}  # the workers of this process


def _translate(job: RayJob, unit: Unit) -> Record | HeedfulError:
    """Translate a unit on a worker; return its record, or why it failed."""
    try:
        if not (job.destination.journal / RUN).exists():
            raise ConfigError(
                f"{job.destination.name} is not there on {socket.gethostname()}: inputs, model and outputs have to be "
                "on a file system that all nodes share"
            )
        translator = job.model.open()
        if job not in _pools:
            for pool in _pools.values():
                pool.close()
            _pools.clear()
            if job.workers > 1:
                _pools[job] = job.model.pool(translator, job.workers)
        with sharing_memory(translator.device, job.workers) if job.workers > 1 else nullcontext():
            rows = RowTranslator(translator, job.model.settings, job.model.batch_tokens, _pools.get(job))
            return translate_unit(unit, job.destination.folder / unit.name, rows, uuid.uuid4().hex)
    except HeedfulError as error:
        return error
    except MemoryError:
        return MachineError(f"{unit.path}: out of memory on {socket.gethostname()}; set a smaller batch_tokens")
