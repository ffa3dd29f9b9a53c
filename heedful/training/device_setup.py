"""The device of a run, its precision and threads, and errors when memory runs out."""

from __future__ import annotations

import copy
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch

from heedful.config import TrainingConfig
from heedful.data.cache import Array
from heedful.errors import ConfigError, DiskError, ModelError, __version__
from heedful.files import cache_folder, make_folder, parse_json, read_bytes, write_whole
from heedful.fused.triton.policy import paths
from heedful.interop.folder import ModelParts
from heedful.models.device import fastest_threads, may_choose, memory_guard, pick
from heedful.training.callbacks import Reporter
from heedful.training.distributed import ALONE, Processes
from heedful.training.prepare import TrainingData
from heedful.training.step import TrainingStep

STEPS = 2  # measured together, with batches of the most usual size
SAMPLE = 50  # batches from which these are chosen
FEW = 4  # pairs in the quick trial
TRIAL = """
import time, torch
def best(kind):
    a = torch.ones(2048, 256, dtype=kind), torch.ones(256, 1024, dtype=kind)
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        a[0] @ a[1]
        times.append(time.perf_counter() - begin)
    return min(times)
print(best(torch.float32) / best(torch.bfloat16))
"""

SMALLER_MODEL = "make it smaller (model.width, model.layers, text.size)"  # advice if memory runs out


@dataclass(frozen=True)
class DeviceSetup:
    """The device, whether it computes in bf16, and the processes of the run."""

    device: torch.device
    bf16: bool = False
    processes: Processes = ALONE

    @property
    def fixed(self) -> bool:
        """Whether batches are padded to a few shapes, so that CUDA graphs can be replayed."""
        return self.device.type == "cuda"

    def __str__(self) -> str:
        many = f", {self.processes.world} processes" if self.processes.world > 1 else ""
        return f"{self.device.type}{' in bf16' if self.bf16 else ''}{many}"


@contextmanager
def restoring_torch_state() -> Iterator[None]:
    """Restore the random state, threads and current GPU of the process after a run."""
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


def choose_device(config: TrainingConfig, processes: Processes = ALONE, before: Sequence[object] = ()) -> DeviceSetup:
    """Choose the device and its precision; raises ConfigError if they are not available.

    `before` are the kind of device and the choice of bf16 of the run that is resumed, kept on the same kind of device.
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
        return DeviceSetup(device, config.precision == "bf16", processes)
    if len(before) == 2 and before[0] == device.type:
        return DeviceSetup(device, bool(before[1]), processes)
    # Measured in the first process, for all.
    return DeviceSetup(device, processes.share(lambda: faster_in_bf16(device)), processes)


def smaller_batches(config: TrainingConfig) -> str:
    """Return advice for smaller batches."""
    return f"lower training.batch_tokens (now {config.batch_tokens}) and raise training.accumulate"


def choose_threads(
    parts: ModelParts, data: TrainingData, device_setup: DeviceSetup, reporter: Reporter, before: object = None
) -> int:
    """Set the number of threads of a run and return it.

    `training.threads` decides, then `before` (the number that the resumed run began with), then the environment
    (OMP_NUM_THREADS). Otherwise the number is measured with a copy of the model. Weights, random numbers and the order
    of the data do not change, so the run has the same bits as one with this number in its settings.
    """
    config = parts.config.training
    if config.threads or device_setup.device.type != "cpu" or device_setup.processes.world > 1:
        return torch.get_num_threads()
    if isinstance(before, int) and not isinstance(before, bool) and before > 0:
        torch.set_num_threads(before)
        return before
    if not may_choose():
        return torch.get_num_threads()
    model = copy.deepcopy(parts.model).train()
    training_step = TrainingStep(model, config, device_setup.device, device_setup.bf16, auxiliary=data.losses)
    plan = data.batches.epoch(0)
    some = [plan[at] for at in np.unique(np.linspace(0, len(plan) - 1, SAMPLE).astype(int))]
    rows = sorted(some, key=data.batches.tokens)[len(some) // 2 :][:STEPS]
    with torch.random.fork_rng(devices=()), memory_guard("measuring threads", smaller_batches(config)):
        fastest = fastest_threads(_steps(training_step, data, rows), _steps(training_step, data, [rows[0][:FEW]]))
    torch.set_num_threads(fastest.threads)
    tokens = sum(map(data.batches.tokens, rows))
    speeds = ", ".join(f"{tokens / seconds:,.0f} with {number}" for number, seconds in sorted(fastest.seconds.items()))
    reporter.log(
        f"using {fastest.threads} thread{'s' * (fastest.threads > 1)}: measured target tokens/s are {speeds} "
        "(training.threads sets the number)"
    )
    return fastest.threads


def _steps(training_step: TrainingStep, data: TrainingData, rows: list[Array]) -> Callable[[], None]:
    """Return a function that takes one step for each of some batches, at a rate of 0."""

    def work() -> None:
        for some in rows:
            training_step([data.batches.batch(some)], data.batches.tokens(some), 1, 0.0)

    return work


def describe_machine() -> dict[str, object]:
    """Return versions, devices, and which implementation every operation with a kernel uses."""
    cuda = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return {
        "heedful": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "devices": [*cuda, *["mps"] * torch.backends.mps.is_available(), f"cpu, {torch.get_num_threads()} threads"],
        "paths": [path._asdict() for path in paths()],
    }


def check_bf16(device: torch.device) -> None:
    """Raise ConfigError on a CPU where products in bf16 crash.

    Some virtual machines announce matrix instructions that programs may not use; then the process is killed. So another
    process tries first.
    """
    if device.type != "cpu":
        return
    status, _ = _try_bf16()
    if status:
        raise ConfigError(
            f"products in bf16 fail on this CPU (exit status {status}); set training.precision=fp32, or the "
            "environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 to avoid its matrix instructions"
        )


def faster_in_bf16(device: torch.device) -> bool:
    """Whether products in bf16 are worth it: on GPUs that have them, and on CPUs where a trial is much faster."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type != "cpu" or not _has_matrix_bf16():
        return False
    status, ratio = _try_bf16()
    return status == 0 and ratio > 1.5


def _has_matrix_bf16() -> bool:
    """Whether the CPU announces products in bf16; if not, they are slow, and not worth a trial."""
    announced = torch.backends.cpu.get_cpu_capability() in ("AVX512", "SVE256")
    return announced and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def _try_bf16() -> tuple[int, float]:
    """Return another process's exit status after products in bf16, and how much faster they were than in fp32.

    It takes seconds, so the result is cached in a file, for this processor and this PyTorch. Times vary: of several
    processes that try at the same time, all use the result that is written first.
    """
    facts = (_processor(), torch.__version__, os.environ.get("ONEDNN_MAX_CPU_ISA", ""))
    known = cache_folder() / f"bf16-{blake2b(repr(facts).encode(), digest_size=8).hexdigest()}.json"
    if (cached := _cached_trial(known)) is not None:
        return cached
    done = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False, text=True)
    result = done.returncode, float(done.stdout or 0.0)
    if (cached := _cached_trial(known)) is not None:
        return cached
    with suppress(DiskError):
        make_folder(known.parent)
        write_whole(known, json.dumps(result).encode())
    return result


def _cached_trial(known: Path) -> tuple[int, float] | None:
    """Return the result of an earlier trial, if there was one."""
    try:
        status, ratio = parse_json(read_bytes(known, 1000, "the result of a trial"), str(known))
        return int(status), float(ratio)
    except (OSError, ValueError, TypeError, OverflowError, ModelError):
        return None


def _processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    # Only where it is needed: Python may start a program for it.
    return next((line for line in lines if line.startswith("model name")), None) or platform.processor()
