"""What watching costs: a forward pass of a Llama with a summary of every layer's attention, beside the pass alone.

    PYTHONPATH=$PWD python3 benchmarks/watch.py [--lengths 2048,8192,32768] [--json watch.json]
    PYTHONPATH=$PWD python3 benchmarks/watch.py --small

The model has 1.1 billion random weights in bf16: 22 layers, 32 heads of which 8 for keys. Needs a GPU and
transformers, and some minutes. `watch` reads nothing, `summary` received weight and entropy of every layer, `top` also
the 8 largest weights of every query. `eager` is what BertViz needs: eager attention with `output_attentions=True`,
where it fits. All of them run in turns; times are medians by the GPU's clock, and the output must be the same bit for
bit. Memory is what a pass holds at most beyond the pass alone, and how many times that is what its results hold.

`--small` runs a model of the same shape, but with few channels, on the CPU: there arithmetic is next to nothing, and
what is left is the cost in Python. Times are CPU time of one thread, so that other processes do not count. `launched`
is the same with kernels that are not launched: what Python does on a GPU, without Triton's own part.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from gpu_timing import MEBI, Work, medians, peak
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from heedful.fused.triton import policy
from heedful.fused.triton.launch import Kernel
from heedful.observe import AttentionCall, WatchedCalls, watch

TOP = 8
LAYERS, HEADS, KEY_HEADS = 22, 32, 8
# Times of the pass alone that are allowed, without and with the top.
BARS = {2048: (1.5, 1.6), 8192: (1.2, 1.6), 32_768: (1.4, 2.0)}
MEMORY_BAR = 1.1
SMALL_LENGTHS = (8, 64)


@dataclass(frozen=True)
class Measured:
    """One way at one length: milliseconds, times the pass alone, MiB beyond it, MiB of its results."""

    tokens: int
    way: str
    ms: float
    times: float
    beyond: float
    held: float


def main(arguments: list[str] | None = None) -> None:
    """Measure all ways at all lengths."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--small", action="store_true", help="few channels, on the CPU: what it costs in Python")
    options.add_argument("--lengths", help="numbers of tokens, separated by commas")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--json", type=Path, help="where rows are written as JSON")
    given = options.parse_args(arguments)
    if not given.small and not torch.cuda.is_available():
        raise SystemExit("no GPU: only --small can be measured here")
    lengths = [int(n) for n in given.lengths.split(",")] if given.lengths else SMALL_LENGTHS if given.small else BARS
    device = torch.device("cpu" if given.small else "cuda")
    rows: list[Measured] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if given.small else threads)
    try:
        models = {way: build(device, given.small, way) for way in ("sdpa", "eager")}
        share_weights(models["sdpa"], models["eager"])
        with torch.no_grad():
            for tokens in lengths:
                rows += measure(models, tokens, given.rounds)
                print(table([row for row in rows if row.tokens == tokens], given.small), flush=True)
    finally:
        torch.set_num_threads(threads)
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": "CPU" if given.small else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rows": [vars(row) for row in rows],
    }
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def build(device: torch.device, small: bool, way: str) -> nn.Module:
    """Return a Llama with random weights: TinyLlama's sizes, or few channels."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "vocab_size": 32_000}
    if small:
        sizes = {"hidden_size": 4 * HEADS, "intermediate_size": 64, "vocab_size": 64}
    config = LlamaConfig(
        **sizes,  # type: ignore[arg-type]
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=1 << 17,
    )
    torch.manual_seed(0)
    with torch.device(device):
        # Each model with a config of its own: the way is set there.
        model = LlamaForCausalLM._from_config(  # type: ignore[no-untyped-call]
            copy.deepcopy(config), attn_implementation=way, dtype=torch.float32 if small else torch.bfloat16
        )
    return model.eval()  # type: ignore[no-any-return]


def share_weights(model: nn.Module, other: nn.Module) -> None:
    """Give another model of the same shape the very weights of the first."""
    for one, two in zip(model.modules(), other.modules(), strict=True):
        two._parameters = one._parameters


def measure(models: Mapping[str, nn.Module], tokens: int, rounds: int) -> list[Measured]:
    """Check that outputs are the same, then measure time and memory of every way."""
    model = models["sdpa"]
    device = next(model.parameters()).device
    ids = torch.randint(next(iter(model.parameters())).shape[0], (1, tokens), device=device)

    def forward(which: str = "sdpa", **more: object) -> Any:  # noqa: ANN401
        return models[which](ids, use_cache=False, logits_to_keep=1, **more)

    def watched(count: int | None, how: str = "auto") -> WatchedCalls:
        def read(call: AttentionCall) -> object:
            return None if call.weights is None or count is None else call.weights.summary(count)

        with watch(model, each=read, how=how) as calls:
            forward()
        return calls

    check(model, forward, tokens)
    ways: dict[str, Work] = {
        "forward": forward,
        "watch": lambda: watched(None),
        "summary": lambda: watched(0),
        f"top {TOP}": lambda: watched(TOP),
        "eager": lambda: forward("eager", output_attentions=True).attentions,
    }
    if device.type == "cpu":
        ways["launched"] = lambda: nothing_launched(lambda: watched(0, "kernel"))
        ways[f"launched, top {TOP}"] = lambda: nothing_launched(lambda: watched(TOP, "kernel"))
    if not fits(tokens, device):
        del ways["eager"]
    memory = {}
    for name, work in ways.items():
        held_most, result = peak(work) if device.type == "cuda" else peak_of_cpu(work)
        memory[name] = held_most, 0.0 if name == "forward" else results(result)
        del result
    spent = medians(ways, rounds) if device.type == "cuda" else medians_of_cpu(ways, rounds)
    base, alone = spent["forward"], memory["forward"][0]
    return [
        Measured(tokens, name, spent[name], spent[name] / base, memory[name][0] - alone, memory[name][1])
        for name in ways
    ]


def nothing_launched(work: Work) -> object:
    """Do work whose kernels take no time and compute nothing; its results are whatever lies in memory."""
    launch, missing = Kernel.__getitem__, policy._missing
    Kernel.__getitem__ = lambda self, grid: lambda *args, **options: None  # type: ignore[method-assign]
    policy._missing = lambda place: ""
    try:
        return work()
    finally:
        Kernel.__getitem__, policy._missing = launch, missing  # type: ignore[method-assign]


def check(model: nn.Module, forward: Callable[[], Any], tokens: int) -> None:
    """End the run if watching changes the output, or if the weights of a row do not sum to 1."""
    plain = forward().logits
    with watch(model, each=lambda call: call.weights and call.weights.summary(TOP)) as calls:
        seen = forward().logits
    if not torch.equal(plain, seen):
        raise SystemExit("the output is another one when the model is watched")
    if len(calls) != LAYERS:
        raise SystemExit(f"{len(calls)} calls were recorded, not {LAYERS}")
    for call in calls:
        received: Tensor = call.kept.received  # type: ignore[attr-defined]
        total = received.sum(-1).double() / tokens
        if not (total - 1).abs().max() < 1e-2:
            raise SystemExit(f"{call.module}: the weights of a row sum to {total.min():.4f} … {total.max():.4f}")


def fits(tokens: int, device: torch.device) -> bool:
    """Whether the weights of all layers fit, with three times a layer's in fp32 beside them."""
    if device.type != "cuda":
        return True
    weights = HEADS * tokens * tokens
    return weights * (2 * LAYERS + 3 * 4) < 0.9 * torch.cuda.mem_get_info()[0]


def results(result: object) -> float:
    """Return how many MiB the tensors of a result hold, each storage once."""
    held: dict[int, int] = {}
    stack: list[object] = [[call.kept for call in result] if isinstance(result, WatchedCalls) else result]
    while stack:
        one = stack.pop()
        if isinstance(one, Tensor):
            held[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, list | tuple):
            stack += one
    return sum(held.values()) / MEBI


def medians_of_cpu(runs: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of CPU time of each, in turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.thread_time()
            run()
            spent[name].append(1e3 * (time.thread_time() - begin))
    return {name: statistics.median(times) for name, times in spent.items()}


def peak_of_cpu(work: Work) -> tuple[float, object]:
    """Return how many MiB work holds at most beyond what lies there before, and its result."""
    work()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = work()
    assert seen.profiler is not None
    events = seen.profiler.kineto_results.events()
    held = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / MEBI, result


def table(rows: list[Measured], small: bool) -> str:
    """Return the rows of one length as text."""
    lines = [f"{rows[0].tokens:,} tokens"]
    base = rows[0].ms
    for row in rows:
        line = f"  {row.way:16} {row.ms:10.2f} ms"
        if row.way != "forward":
            line += f"  {row.times:6.2f} times"
            bars = BARS.get(row.tokens, (0.0, 0.0))
            bar = {"summary": bars[0], f"top {TOP}": bars[1]}.get(row.way)
            line += f" (at most {bar})" if bar and not small else ""
            line += f"  {1e3 * (row.ms - base) / LAYERS:8.1f} µs more for a layer"
            line += f"  {row.beyond:9.1f} MiB beyond the pass, results {row.held:9.1f}"
            if row.way in ("summary", f"top {TOP}"):
                line += f": {row.beyond / row.held:5.2f} times" + ("" if small else f" (at most {MEMORY_BAR})")
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
