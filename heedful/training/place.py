"""Where a run computes: the device, the numbers' precision, and the processes that share the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from heedful.config import TrainingConfig
from heedful.device import check_bf16, faster_in_bf16, pick
from heedful.training.processes import ALONE, Processes

__all__ = ["Place", "left_as_found", "settle"]


@dataclass(frozen=True)
class Place:
    """A device, whether products are in bf16 there, and who shares the work. `fixed`: few shapes are worth padding."""

    device: torch.device
    bf16: bool = False
    processes: Processes = ALONE

    @property
    def fixed(self) -> bool:
        """Whether batches are padded to a few shapes, so that a recorded step can be replayed."""
        return self.device.type == "cuda"

    def __str__(self) -> str:
        many = f", {self.processes.world} processes" if self.processes.world > 1 else ""
        return f"{self.device.type}{' in bf16' if self.bf16 else ''}{many}"


@contextmanager
def left_as_found() -> Iterator[None]:
    """Give the caller back what a run changes for the whole process: random numbers, threads, the current GPU."""
    threads = torch.get_num_threads()
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.cuda.current_device() if used else 0
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if used else ()):
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            if used:
                torch.cuda.set_device(device)


def settle(config: TrainingConfig, processes: Processes = ALONE, before: Sequence[object] = ()) -> Place:
    """Find out where to compute; what cannot work is refused.

    `before` are the kind of device and the choice of bf16 in the run that is resumed: on the same kind it stays.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    device = pick(config.device)
    if device.type == "cuda":
        device = torch.device("cuda", processes.local)
        torch.cuda.set_device(device)
    if config.precision == "bf16":
        check_bf16(device)
    if config.precision != "auto":
        return Place(device, config.precision == "bf16", processes)
    if len(before) == 2 and before[0] == device.type:
        return Place(device, bool(before[1]), processes)
    # It is found out with a clock: all processes go by the first one's.
    return Place(device, processes.share(lambda: faster_in_bf16(device)), processes)
