"""Distributed training: the rank of this process, and communication between processes.

`torchrun -m heedful train …` starts the processes and sets the rank of each in its environment. With one
process, no communication takes place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from heedful.errors import ConfigError, HeedfulError, WorkerError
from heedful.training.callbacks import RESUME

Value = TypeVar("Value")
JOINING = timedelta(hours=1)  # machines may be started one by one
# A process that dies closes its connections, which the others notice at once. A timeout is needed only for a machine
# that vanishes: short in a step, where all compute, long while one process prepares or writes for all.
STEP, PREPARING = timedelta(minutes=10), timedelta(days=1)


@dataclass(frozen=True)
class Processes:
    """This process among `world`; the first one, of rank 0, writes files and reports for all.

    `restarts`: how often torchrun restarted it; `patient`: the process group for what may wait long for one process.
    """

    rank: int = 0
    world: int = 1
    local: int = 0
    restarts: int = 0
    patient: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this one writes files and reports."""
        return self.rank == 0

    def add_up(self, values: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.world > 1:
            with self.together():
                dist.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        if self.world == 1:
            return flag
        return bool(self.add_up(torch.tensor([float(flag)])).item())

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """Return the value of each process, in the order of ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        with self.together():
            dist.all_gather_object(values, value, group=self.patient)
        return values

    def share(self, make: Callable[[], Value]) -> Value:
        """Return the first process's result of `make` in all. If it fails, all fail, and the first reports why."""
        if self.world == 1:
            return make()
        results: list[Any] = [_result(make) if self.first else None]
        with self.together():
            dist.broadcast_object_list(results, group=self.patient, device=torch.device("cpu"))
        if isinstance(results[0], HeedfulError):
            results[0].reported = not self.first
            raise results[0]
        return results[0]  # type: ignore[no-any-return]

    def in_turn(self, make: Callable[[], Value]) -> Value:
        """Call `make` in the first process, then in all others, which may use what it wrote to disk."""
        results: list[Value] = []
        self.share(lambda: results.append(make()))
        return results[0] if results else make()

    def agree(self, facts: Mapping[str, object]) -> None:
        """Raise ConfigError if facts differ between processes, as on a machine with other files."""
        gathered = self.gather(dict(facts))
        for rank, theirs in enumerate(gathered):
            for what, value in theirs.items():
                if value != gathered[0][what]:
                    raise ConfigError(
                        f"process {rank} of {self.world} has another {what} than process 0 ({value!s:.40} and "
                        f"{gathered[0][what]!s:.40}); all machines need the same command, the same pairs and a "
                        "shared folder for the model"
                    )

    @contextmanager
    def together(self, working: bool = False) -> Iterator[None]:
        """Raise WorkerError if another process is lost.

        Communication fails for no other reason. With `working`, this process also computes, and its other errors are
        raised unchanged.
        """
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or (working and not _lost(error)):
                raise
            raise WorkerError(
                f"process {self.rank} of {self.world}: another process of this run has died or cannot be reached; "
                f"the last checkpoint is complete: start again with {RESUME}, or set max-restarts of torchrun"
            ) from None


ALONE = Processes()


class StopSignal:
    """Whether any process received a signal to stop. They exchange that about once a second, all at the same steps."""

    def __init__(self, stop: Callable[[], bool], processes: Processes, step: int) -> None:
        self.stop, self.processes = stop, processes
        self.last, self.when, self.next = step, time.perf_counter(), step

    def __call__(self, step: int) -> bool:
        """Whether the run should stop before another step."""
        if step < self.next:
            return False
        now = time.perf_counter()
        seconds = (now - self.when) / max(1, step - self.last)
        values = torch.tensor([float(self.stop()), seconds if self.processes.first else 0.0], dtype=torch.float64)
        stop, seconds = self.processes.add_up(values).tolist()
        # The first process's clock decides when to exchange again; the first step is too slow to measure.
        self.next = step + (max(1, min(100, int(1 / max(seconds, 1e-3)))) if step > self.last else 1)
        self.last, self.when = step, now
        return bool(stop)


def _result(make: Callable[[], Value]) -> Value | HeedfulError:
    try:
        return make()
    except HeedfulError as error:
        return error


def _lost(error: RuntimeError) -> bool:
    """Whether an error comes from communication between processes.

    NCCL and the store have their own classes. Gloo has none, but names its source file.
    """
    return isinstance(error, dist.DistError) or "/gloo/" in str(error).replace("\\", "/")


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the process group if torchrun started several processes, and leave it at the end.

    Objects and small tensors go over gloo; gradients on GPUs go over NCCL.
    """
    world = _number("WORLD_SIZE", 1)
    if world == 1 or dist.is_initialized():
        yield ALONE if world == 1 else _here(world)
        return
    me = _here(world)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with me.together():
        store, _, _ = next(rendezvous("env://", me.rank, me.world, timeout=JOINING))
        store = dist.PrefixStore(_new_name(store, me), store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=me.rank, world_size=me.world, timeout=STEP)
    try:
        with me.together():
            patient = dist.new_group(backend="gloo", timeout=PREPARING)
        yield replace(me, patient=patient)
    finally:
        dist.destroy_process_group()


def _new_name(store: Any, me: Processes) -> str:  # noqa: ANN401  (a class that PyTorch does not export)
    """Agree on a new prefix for this attempt in the store.

    When torchrun restarts the processes it keeps its store, with the addresses of those that died; a process that
    reads one of these never connects. So the first process draws a name, and answers each of the others.
    """
    own = uuid4().hex
    if me.first:
        store.set("heedful", own)
        for rank in range(1, me.world):
            store.set(f"{own}/{rank}", store.get(f"{own}/{rank}/asks"))
        return own
    end = time.monotonic() + JOINING.total_seconds()
    while time.monotonic() < end:
        name: str = store.get("heedful").decode()
        store.set(f"{name}/{me.rank}/asks", own)
        with suppress(dist.DistStoreError):  # no answer: the name is of an earlier attempt
            store.wait([f"{name}/{me.rank}"], timedelta(seconds=1))
            if store.get(f"{name}/{me.rank}").decode() == own:
                return name
        time.sleep(0.01)
    raise dist.DistStoreError("timed out")


def _here(world: int) -> Processes:
    return Processes(_number("RANK"), world, _number("LOCAL_RANK", 0), _number("TORCHELASTIC_RESTART_COUNT", 0))


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal():
        raise ConfigError(f"the environment variable {name} is '{text}', expected a number as torchrun sets it")
    return int(text)
