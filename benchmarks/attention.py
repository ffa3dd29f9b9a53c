"""Attention that keeps its weights, on a GPU: right first, then how fast beside what one would do without it.

    PYTHONPATH=$PWD python3 benchmarks/attention.py [--only scaled|additive] [--json attention.json]

Needs a GPU, Triton and a checkout, and less than a minute. Everything is compared with float64 first; a result that is
not near ends the run. Times are medians of CUDA events; memory is what the allocator held at most beyond the inputs.
`forward` is PyTorch's scaled_dot_product_attention alone, the fastest backend it takes by itself; `eager` keeps all
weights and takes the same from them; `compiled` is that under torch.compile. FlexAttention returns the log-sum-exp,
too, but neither received weight nor entropy nor a top: only its forward is shown. The row `read` is the reader alone.
The additive attention is measured by `benchmarks/attention_additive.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attention_additive
import torch
from gpu_timing import medians, peak
from torch import Tensor
from torch.nn import functional as F

from heedful.errors import HeedfulError
from heedful.fused.triton.policy import SWITCH, usable
from heedful.fused.triton.scaled import ScaledWeights, scaled_attend
from heedful.fused.triton.scaled_plain import Summary

HEADS, WIDTH, COUNT = 16, 64, 8
SIZES = (2048, 8192, 16_384)
LONG = 131_072
CHECKS = ((1, 1), (7, 33), (111, 257), (257, 111), (1030, 2050))
# Every kernel is compiled for each of them, which takes seconds: type, causal, padded.
CASES = (
    (torch.bfloat16, False, False),
    (torch.bfloat16, True, False),
    (torch.float16, True, True),
    (torch.float32, False, True),
)
# Of weights: the log-sum-exp is the backend's own, and some take exp less exactly when they give an output in halves.
NEAR = {torch.float32: 1e-5, torch.float16: 2e-4, torch.bfloat16: 2e-4}
Row = dict[str, Any]


def main() -> None:
    """Check, then measure."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--only", choices=("scaled", "additive"))
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--compiled", action="store_true", help="torch.compile and FlexAttention, too: a minute more")
    options.add_argument("--json", type=Path, help="where rows are written as JSON")
    given = options.parse_args()
    os.environ[SWITCH] = "on"
    if not torch.cuda.is_available() or not usable(torch.zeros(1, device="cuda")):
        raise SystemExit("no GPU, or no Triton that works there: nothing can be measured here")
    begin = time.perf_counter()
    rows: list[Row] = []
    if given.only != "additive":
        check_scaled()
        print("all weights agree with float64", flush=True)
        rows += measure_scaled(given.rounds, given.compiled)
    if given.only != "scaled":
        found = attention_additive.run()
        print(attention_additive.table(found), flush=True)
        rows += found["rows"]
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - begin, 1),
        "rows": rows,
    }
    print(json.dumps(record, ensure_ascii=False))
    if given.json:
        given.json.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def draw(T: int, S: int, kind: torch.dtype, heads: tuple[int, int] = (HEADS, HEADS)) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (1, H, T, C), k and values (1, G, S, C)."""
    (H, G), made = heads, {"device": "cuda", "dtype": kind}
    return torch.randn(1, H, T, WIDTH, **made), torch.randn(1, G, S, WIDTH, **made), torch.randn(1, G, S, WIDTH, **made)  # type: ignore[call-overload]


def check_scaled() -> None:
    """Output, weights, received weight, entropy and top at odd sizes, in all types, plain, causal and with padding."""
    for T, S in CHECKS:
        for kind, causal, padded in CASES:
            q, k, values = draw(T, S, kind, (4, 2))
            keep = torch.rand(1, S, device="cuda") < 0.8 if padded else None
            where = f"{T} x {S}, {kind}, causal {causal}, padded {padded}"
            output, weights = scaled_attend(q, k, values, keep=keep, causal=causal, how="kernel")
            _compare(where, output, weights, (q, k, values), keep)


def _compare(
    where: str,
    output: Tensor,
    weights: ScaledWeights,
    given: tuple[Tensor, Tensor, Tensor],
    keep: Tensor | None,
) -> None:
    q, k, values = (x.double() for x in given)
    k, values = k.repeat_interleave(2, 1), values.repeat_interleave(2, 1)
    scores = q @ k.mT / math.sqrt(WIDTH)
    T, S = scores.shape[2:]
    hidden = torch.zeros(1, 1, T, S, dtype=torch.bool, device="cuda")
    if weights.scores.causal:
        hidden = hidden | (torch.arange(S, device="cuda") > torch.arange(T, device="cuda")[:, None])
    if keep is not None:
        hidden = hidden | ~keep[:, None, None]
    exact = scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)
    tolerance = NEAR[given[0].dtype]
    rough = {torch.float32: 2e-3, torch.float16: 2e-3, torch.bfloat16: 2e-2}[given[0].dtype]
    near(f"{where}, output by {weights.backend}", output, exact @ values, rough)
    near(f"{where}, weights", weights.block(), exact, tolerance)
    found = weights.summary(COUNT)
    near(f"{where}, received", found.received, exact.sum(2), tolerance)
    near(f"{where}, entropy", found.entropy, torch.special.entr(exact).sum(-1), 10 * tolerance)
    assert found.top is not None
    most = min(COUNT, S)
    wanted = exact.topk(most, -1).values
    near(f"{where}, top", found.top.weights[..., :most], wanted, tolerance)
    # Another position than that of float64 is right only where the weights are closer than rounding.
    at = exact.gather(-1, found.top.positions[..., :most].clamp(min=0))
    near(f"{where}, positions", at * (found.top.positions[..., :most] >= 0), wanted, tolerance)
    again = weights.summary(COUNT)
    if not torch.equal(again.received, found.received) or not torch.equal(again.entropy, found.entropy):
        raise SystemExit(f"{where}: other bits the second time")


def near(name: str, found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """End the run if two results differ by more than a share of the largest value, or of 1."""
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1.0)
    if not error <= tolerance:
        raise SystemExit(f"{name}: error {error:.2e}, at most {tolerance:.0e} allowed")


def eager(q: Tensor, k: Tensor, values: Tensor, count: int) -> tuple[Tensor, Summary | tuple[Tensor, ...]]:
    """Keep all weights, and take the same from them."""
    weights = (q @ k.mT / math.sqrt(WIDTH)).softmax(-1)
    found = weights.sum(2, dtype=torch.float32), torch.special.entr(weights.float()).sum(-1)
    return weights @ values, (*found, *(weights.topk(count, -1) if count else ()))


def measure_scaled(rounds: int, compiled: bool) -> list[Row]:
    """Time and memory at all sizes; ratios to the fused forward alone and to eager."""
    rows: list[Row] = []
    print(f"{'N':>8} {'way':26} {'ms':>9} {'MiB':>9} {'to forward':>11} {'to eager':>9}")
    for N in SIZES:
        q, k, values = draw(N, N, torch.bfloat16)
        backend = scaled_attend(q, k, values)[1].backend

        def forward(q: Tensor = q, k: Tensor = k, values: Tensor = values) -> object:
            return F.scaled_dot_product_attention(q, k, values)

        def ours(count: int, q: Tensor = q, k: Tensor = k, values: Tensor = values) -> object:
            output, weights = scaled_attend(q, k, values, how="kernel")
            return output, weights.summary(count)

        ways: dict[str, Callable[[], object]] = {
            f"forward ({backend})": forward,
            "eager": lambda q=q, k=k, values=values: eager(q, k, values, 0),  # type: ignore[misc]
            f"eager, top {COUNT}": lambda q=q, k=k, values=values: eager(q, k, values, COUNT),  # type: ignore[misc]
            "heedful": lambda ours=ours: ours(0),  # type: ignore[misc]
            f"heedful, top {COUNT}": lambda ours=ours: ours(COUNT),  # type: ignore[misc]
        }
        if compiled:
            fast = torch.compile(eager)
            ways["compiled eager"] = lambda q=q, k=k, values=values, fast=fast: fast(q, k, values, 0)  # type: ignore[misc]
            ways["flex, forward"] = flex(q, k, values)
        rows += _rows(N, ways, rounds)
    q, k, values = draw(LONG, LONG, torch.bfloat16)
    weights = scaled_attend(q, k, values, how="kernel")[1]
    reading: dict[str, Callable[[], object]] = {
        f"forward ({weights.backend})": lambda: F.scaled_dot_product_attention(q, k, values),
        "read": weights.summary,
        f"read, top {COUNT}": lambda: weights.summary(COUNT),
    }
    return rows + _rows(LONG, reading, 2)


def flex(q: Tensor, k: Tensor, values: Tensor) -> Callable[[], object]:
    """Return FlexAttention's forward, compiled."""
    from torch.nn.attention.flex_attention import flex_attention

    fast = torch.compile(flex_attention)
    return lambda: fast(q, k, values)


def _rows(N: int, ways: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    rows: list[Row] = []
    spent: dict[str, float] = {}
    for name, work in ways.items():
        try:
            spent[name], memory = timed(work, rounds)
        except (torch.OutOfMemoryError, HeedfulError) as error:
            print(f"{N:8,} {name:26} {type(error).__name__}", flush=True)
            continue
        base = next(iter(spent.values()))
        beside = spent.get(f"eager, top {COUNT}" if "top" in name else "eager")
        row: Row = {"attention": "scaled", "N": N, "way": name, "ms": spent[name], "MiB": memory}
        row |= {"to_forward": spent[name] / base, "to_eager": beside and spent[name] / beside}
        rows.append(row)
        share = f"{row['to_eager']:9.3f}" if beside else f"{'':9}"
        print(f"{N:8,} {name:26} {spent[name]:9.3f} {memory:9.1f} {row['to_forward']:11.2f} {share}", flush=True)
    return rows


def timed(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the median milliseconds, and how many MiB were held at most beyond what was there."""
    memory = peak(work)[0]  # and not its result, which may be most of the memory there is
    return medians({"work": work}, rounds)["work"], memory


if __name__ == "__main__":
    main()
