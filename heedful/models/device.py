"""Where to compute: the device, its precision, how many threads, what fits into its memory, and errors when it is full.

The number of threads on the CPU is measured, since on a busy machine more threads can be slower. Each parallel
operation ends when its last thread is done. Where other programs use the cores, that thread may wait for a core for
milliseconds, thousands of times a step. `import heedful` also lets waiting threads sleep instead of spin
(`heedful/__init__.py`). On two busy cores, two spinning threads trained at a tenth of the speed of one and decoded at a
hundredth; two sleeping ones at about the speed of one.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.config import ModelConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError, DeviceMemoryError, choose

FASTER = 1.1  # times as fast as fewer threads: for less, fewer threads are used
HOPELESS = 4.0  # times as slow as one thread in the quick trial: not tried on the whole work
ROUNDS = 3
LONGEST = 10.0  # seconds after which no further round begins
# Tokens of all hypotheses in an automatic batch at most. On the CPU more were not faster (docs/lab/performance.md).
MOST_TOKENS = {"cpu": 4_096, "mps": 4_096, "cuda": 262_144}
SHARE = {"cpu": 0.25, "mps": 0.25, "cuda": 0.6}  # of the free memory that a batch may need by the estimate
FLOAT = 4  # bytes


def pick(name: str) -> torch.device:
    """Return the device of a name; `auto` takes CUDA, then Apple's MPS, then the CPU."""
    choose("device", name, ("auto", "cpu", "cuda", "mps"))
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, there in available.items() if there]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise ConfigError(f"device '{name}' is not available; choose one of auto, {', '.join(sorted(usable))}")
    return torch.device(name)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the factors of products in fp32 to 11 bits (TF32) for a while, as training allows."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The CPU's allocator and MPS have no error class of their own.
    message = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in message or "out of memory" in message)


@contextmanager
def memory_guard(what: str, remedy: str) -> Iterator[None]:
    """Raise DeviceMemoryError, with what was being done and a remedy, when memory runs out."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise DeviceMemoryError(f"{what}: the device ran out of memory; {remedy}") from None
    except RuntimeError as error:
        if out_of_memory(error):
            raise DeviceMemoryError(f"{what}: out of memory; {remedy}") from None
        raise


def free_memory(device: torch.device) -> int | None:
    """Return how many bytes of memory a device has left for tensors; None if that is unknown."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        # What PyTorch has reserved and does not use is not free to other programs, but to tensors.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    known = [size for size in (_available(), _left_in_group()) if size is not None]
    return min(known, default=None)


def _available(table: Path = Path("/proc/meminfo")) -> int | None:
    """Return the memory that programs can still get without swapping, as Linux reports it."""
    try:
        lines = dict(line.split(":", 1) for line in table.read_text("ascii").splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None


def _left_in_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that is left of a container's limit (cgroup v2); None without a limit."""
    try:
        limit, used = (int((folder / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # the limit is the word "max", or there is none
        return None
    return max(0, limit - used)


def release_memory(device: torch.device) -> None:
    """Give back memory that PyTorch has reserved and does not use, after memory ran out."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


class DecodingLoad(NamedTuple):
    """What decoding a batch holds for each sentence: `beam` hypotheses, and attention weights of `traced` of them."""

    beam: int = 1
    traced: int = 0


class MemoryNeed(NamedTuple):
    """Numbers that decoding keeps in memory, by what they grow with."""

    source: int  # each source token: encoder output, keys, the encoder's activations
    query: int  # each source token, for each hypothesis: the scores of one step
    target: int  # each target token of a hypothesis: the decoder's cache, or its activations when it is read again
    step: int  # each hypothesis: the scores of all tokens
    weights: int  # each source token × target token of a traced hypothesis: attention weights

    @classmethod
    def of(cls, config: ModelConfig, vocabulary: int, models: int = 1) -> MemoryNeed:
        """Return what an ensemble of so many models with `vocabulary` target tokens needs, rather too much than less.

        What is copied when finished sentences leave the batch counts twice; scores are there three times: as logits,
        as log-probabilities, and masked by the rules.
        """
        D, V = config.width, vocabulary
        if isinstance(config, TransformerConfig):
            L, H = config.depth, config.heads
            layer = config.inner + 8 * D  # the activations of one layer
            state = 4 * L * D  # of each token with self-attention, once of all tokens with a recurrent cell
            each, once = (state, 0) if config.cell == "self-attention" else (0, state)
            one = cls(2 * (1 + 2 * L) * D + layer, 2 * H, max(each, layer), 3 * V + once, 2 * (L + 1) * H)
        else:
            E, A = config.memory_width, config.score_width or D if isinstance(config, RnnConfig) else 0
            one = cls(10 * E + 2 * A, 2 * A, E + 6 * D, 3 * V + 8 * config.layers * D, 2)
        return cls(*(models * numbers for numbers in one))

    def bytes_per_token(self, S: int, T: int, load: DecodingLoad) -> float:
        """Return the bytes for each of the `beam` · S tokens of a sentence, with T tokens of each hypothesis.

        >>> MemoryNeed(source=40, query=1, target=10, step=300, weights=2).bytes_per_token(10, 20, DecodingLoad())
        364.0
        """
        hypothesis = self.query + (self.target * T + self.step) / S
        return FLOAT * (self.source / load.beam + hypothesis + self.weights * T * load.traced / load.beam)


def batch_tokens_for(
    need: MemoryNeed, device: str, free: int | None, sizes: Sequence[tuple[int, int]], load: DecodingLoad
) -> int:
    """Return how many tokens, of all hypotheses together, a batch may have on a kind of device with `free` bytes.

    `sizes` are the source and target tokens of the shortest and the longest sentence. The bytes of a token are largest
    for one of them: short sentences have the most hypotheses, long ones the most attention weights.
    """
    most = MOST_TOKENS.get(device, MOST_TOKENS["cpu"])
    if free is None or not sizes:
        return most
    most_bytes = max(need.bytes_per_token(S, T, load) for S, T in sizes)
    return max(1, min(most, int(SHARE.get(device, SHARE["cpu"]) * free / most_bytes)))


class ThreadTimes(NamedTuple):
    """The fastest number of threads, and the mean seconds that the work took with each number that was tried."""

    threads: int
    seconds: dict[int, float]


def may_choose() -> bool:
    """Whether the number of threads is open: more than one is possible, and the environment does not set it."""
    return torch.get_num_threads() > 1 and not any(map(os.environ.get, ("OMP_NUM_THREADS", "MKL_NUM_THREADS")))


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let PyTorch use some number of threads for a while; 0 leaves it as it is."""
    before = torch.get_num_threads()
    if threads and threads != before:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def numbers_to_try() -> list[int]:
    """Return 1, 2, 4, … and the number of threads that PyTorch uses now."""
    most = torch.get_num_threads()
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def fastest_threads(
    work: Callable[[], object], quick: Callable[[], object] | None = None, rounds: int = ROUNDS
) -> ThreadTimes:
    """Return the number of threads with which `work` is fastest: 1, 2, 4, … up to what PyTorch uses now.

    Each number is compared with the best one so far, in turns, because the load of the machine changes. The
    first that is not clearly faster ends the search. `quick` is a small part of the work; a number of threads that is
    far slower there is not tried on the whole of it.
    """
    numbers = numbers_to_try()
    times: dict[int, list[float]] = {number: [] for number in numbers}
    begun = time.perf_counter()
    work()  # the first time memory is allocated and kernels are prepared
    best = numbers.pop(0)
    for number in numbers:
        if quick is not None and _seconds(quick, number) > HOPELESS * _seconds(quick, 1):
            break
        pair: dict[int, list[float]] = {best: [], number: []}
        for done in range(rounds):
            if done and time.perf_counter() - begun > LONGEST:
                break
            for one, seconds in pair.items():
                seconds.append(_seconds(work, one))
        for one, seconds in pair.items():
            times[one] += seconds
        if sum(pair[number]) * FASTER > sum(pair[best]):
            break
        best = number
    return ThreadTimes(best, {number: sum(each) / len(each) for number, each in times.items() if each})


def _seconds(work: Callable[[], object], threads: int) -> float:
    with using_threads(threads):
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
