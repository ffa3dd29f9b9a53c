"""Additive attention over all T x S on a GPU: right first, then how fast beside eager PyTorch and torch.compile.

    PYTHONPATH=$PWD python3 benchmarks/attention_additive.py [--rounds 20] [--seconds 45] [--json FILE]

Needs a GPU, Triton and a checkout, nothing else, and less than a minute. Outputs and all gradients are compared with
the definition in float64, at odd sizes, with masks and with numbers up to 1e4; a result that is not near ends the run.
Then, for each size: the scores alone, forward, and forward with backward; without a mask, fp32, D = A.

Times are medians of replayed CUDA graphs, the ways in turns; `called` is the same called from Python, one after
another. Memory is the peak beyond inputs, outputs and gradients. The ceiling is what a kernel needs that does one
tanh.approx for every element of B T S A and nothing else, at the rate measured here. torch.compile is left out for a
size that would begin after --seconds.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from gpu_timing import MEBI, Work, medians, peak, record
from torch import Tensor

from heedful.attention import additive, attend
from heedful.attention import additive_attend as additive_reference
from heedful.fused.triton import additive as fused
from heedful.fused.triton.launch import kernel
from heedful.fused.triton.policy import path

if TYPE_CHECKING:
    import triton.language as tl

SIZES = ((64, 64, 64, 512), (32, 128, 128, 1024), (16, 512, 512, 512))
ODD = ((1, 1, 1, 1), (2, 7, 33, 111), (1, 33, 7, 257), (3, 3, 257, 7), (2, 111, 5, 33), (2, 130, 140, 200))
NAMES = ("context", "weights", "dq", "dk", "dv", "dvalues")
Row = dict[str, Any]


def main() -> None:
    """Check, measure, print, and save if asked."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seconds", type=float, default=45.0, help="no torch.compile begins after these")
    options.add_argument("--json", type=Path, help="write everything measured to this file")
    given = options.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: this benchmark measures CUDA kernels and can do nothing without one")
    found = run(given.rounds, given.seconds)
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run(rounds: int = 20, seconds: float = 45.0) -> dict[str, Any]:
    """Check, then measure: {"device", "torch", "tanh_per_second", "rows": [...]}, ready for JSON."""
    began = time.perf_counter()
    device = torch.device("cuda")
    path(device, "kernel")  # or an error that says what is missing
    check(device)
    rate = tanh_rate(device)
    rows: list[Row] = []
    for size in SIZES:
        rows += measure(size, device, rate, rounds, time.perf_counter() - began < seconds)
    head = {"device": torch.cuda.get_device_name(device), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    return {**head, "tanh_per_second": rate, "seconds": round(time.perf_counter() - began, 1), "rows": rows}


def given_for(size: tuple[int, ...], device: torch.device, scale: float = 1.0) -> list[Tensor]:
    """Return q, k, v and values, D = A."""
    B, T, S, A = size
    q, k, values = (torch.randn(B, n, A, device=device) for n in (T, S, S))
    return [scale * q, scale * k, torch.randn(A, device=device) / A**0.5, values]


def check(device: torch.device) -> None:
    """End the run unless outputs and all gradients are near the definition in float64."""
    torch.manual_seed(0)
    for size in ODD:
        for scale in (1.0, 8.0, 1e4):
            B, T, S, _ = size
            tensors = given_for(size, device, scale)
            for keep in (None, torch.rand(B, S, device=device) > 0.3, torch.rand(B, T, S, device=device) > 0.3):
                pulls = [torch.randn(B, T, n, device=device) for n in (tensors[3].shape[2], S)]
                found = _learned(fused.kernel_attend, tensors, keep, pulls)
                wanted = _learned(additive_reference, [x.double() for x in tensors], keep, [p.double() for p in pulls])
                for name, one, other in zip(NAMES, found, wanted, strict=True):
                    error = (one.double() - other).abs().max() / other.abs().max().clamp(min=1.0)
                    if not error <= 1e-5:
                        raise SystemExit(f"{size}, times {scale:g}, {name}: relative error {error:.2e}, more than 1e-5")


def _learned(way: Callable[..., Any], tensors: list[Tensor], keep: Tensor | None, pulls: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in tensors]
    found = way(*leaves, keep)
    return [*(x.detach() for x in found), *torch.autograd.grad(found, leaves, pulls)]


@kernel()
def _tanhs(x, times, BLOCK: tl.constexpr) -> None:  # noqa: ANN001  (Triton has no types)
    at = x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(at)
    for _ in range(times):
        y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [y], tl.float32, True, 1)
    tl.store(at, y)


def tanh_rate(device: torch.device) -> float:
    """Return how many tanh.approx a second this GPU does."""
    block, times, programs = 2048, 512, 132 * 64
    x = torch.randn(block * programs, device=device)
    graph = record(lambda: _tanhs[(programs,)](x, times, block, num_warps=4))
    spent = medians({"tanh": graph.replay}, 20)["tanh"] / 1000
    return block * times * programs / spent


def measure(size: tuple[int, ...], device: torch.device, rate: float, rounds: int, compiled: bool) -> list[Row]:
    """Return three rows for a size: scores, forward, forward+backward."""
    B, T, S, A = size
    leaves = [x.requires_grad_() for x in given_for(size, device)]
    pull = torch.randn(B, T, A, device=device)

    def plain(q: Tensor, k: Tensor, v: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return attend(additive(q, k, v), values)

    ways: dict[str, Callable[..., Any]] = {"ours": fused.kernel_attend, "eager": plain}
    scores: dict[str, Callable[..., Any]] = {"ours": lambda q, k, v: fused._scores(q, k, v, None), "eager": additive}
    if compiled:
        torch._dynamo.reset()
        ways["compile"] = torch.compile(plain, dynamic=False)
        scores["compile"] = torch.compile(additive, dynamic=False)

    def forward(way: Callable[..., Any]) -> Work:
        def work() -> object:
            with torch.no_grad():
                return way(*leaves)

        return work

    def score(way: Callable[..., Any]) -> Work:
        def work() -> object:
            with torch.no_grad():
                return way(*leaves[:3])

        return work

    def both(way: Callable[..., Any]) -> Work:
        def work() -> object:
            found = way(*leaves)
            return (*found, *torch.autograd.grad(found[0], leaves, pull))

        return work

    kinds = {
        "scores": {name: score(way) for name, way in scores.items()},
        "forward": {name: forward(way) for name, way in ways.items()},
        "forward+backward": {name: both(way) for name, way in ways.items()},
    }
    ceiling = 1000 * B * T * S * A / rate
    return [_row(size, what, works, ceiling, rounds) for what, works in kinds.items()]


def _row(size: tuple[int, ...], what: str, works: dict[str, Work], ceiling: float, rounds: int) -> Row:
    row: Row = {"size": list(size), "what": what, "ceiling_ms": ceiling}
    graphs = {}
    for name, work in works.items():
        try:
            row[f"{name}_mib"] = _memory(work)
            row[f"{name}_called_ms"] = 1000 * _called(work)
            graphs[name] = record(work)
        except torch.OutOfMemoryError:
            row[f"{name}_ms"] = None
    for name, spent in medians({name: graph.replay for name, graph in graphs.items()}, rounds).items():
        row[f"{name}_ms"] = spent
    del graphs
    torch.cuda.empty_cache()
    for other in ("eager", "compile"):
        row[f"times_{other}"] = row[f"{other}_ms"] / row["ours_ms"] if row.get(f"{other}_ms") else None
    row["of_ceiling"] = row["ours_ms"] / ceiling
    return row


def _memory(work: Work) -> float:
    """Return the peak beyond what was there and what comes out, in MiB."""
    held, out = peak(work)
    kept: list[Tensor] = [out] if isinstance(out, Tensor) else list(out)  # type: ignore[call-overload]
    return held - sum(x.numel() * x.element_size() for x in kept) / MEBI


def _called(work: Work, times: int = 10) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def table(found: dict[str, Any]) -> str:
    """Return what was measured as Markdown."""

    def cell(row: Row, name: str) -> str:
        if row.get(f"{name}_ms") is None:
            return "–"
        return f"{row[f'{name}_ms']:.3f} ms, {row[f'{name}_mib']:.0f} MiB"

    lines = [
        f"{found['device']}, torch {found['torch']}, {found['date']}; "
        f"tanh.approx {found['tanh_per_second'] / 1e12:.2f} T/s",
        "",
        "| B, T, S, A | what | ceiling | kernels | of the ceiling | eager | times | torch.compile | times | called |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        times = [f"{row[f'times_{name}']:.1f}" if row.get(f"times_{name}") else "–" for name in ("eager", "compile")]
        size = ", ".join(map(str, row["size"]))
        cells = [size, row["what"], f"{row['ceiling_ms']:.3f} ms", cell(row, "ours"), f"{row['of_ceiling']:.2f}"]
        cells += [cell(row, "eager"), times[0], cell(row, "compile"), times[1], f"{row['ours_called_ms']:.3f} ms"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
