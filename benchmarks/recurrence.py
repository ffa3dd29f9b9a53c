"""An LSTM decoder with additive attention, forward and backward, on a GPU: right first, then how fast.

    PYTHONPATH=$PWD python3 benchmarks/recurrence.py [--rounds 20] [--compile] [--json FILE]
    PYTHONPATH=$PWD python3 benchmarks/recurrence.py --calculate      # what is to be expected; needs no GPU

Needs a GPU, Triton and a checkout, and less than 90 seconds, without --compile. Bahdanau's order: s_{t-1} asks, and
what it finds enters the cell; x (T, B, E), states, memory and comparison H wide; the keys' projection is part of the
work. "eager" is the loop that one would write with nn.LSTMCell. Everything is first compared with that loop in float64,
at odd sizes and at the first row's; a result that is not near ends the run. Times are medians, all ways in turns;
products in TF32. Memory is the peak of one pass beyond weights and inputs, not recorded.

What it does to training is told by benchmarks/gpu_training.py --only rnn, with HEEDFUL_KERNELS=off and without.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from gpu_timing import Work, medians, peak, record
from torch import Tensor, nn

from heedful.attention import additive, attend, until
from heedful.fused.triton.policy import SWITCH, usable
from heedful.fused.unrolled import DecoderSpec, unrolled_decoder

PLAN = DecoderSpec("lstm", 1, "before")
CUDNN = "cuDNN LSTM, no attention"


class Sizes(NamedTuple):
    """What is measured, and what it is held to: milliseconds of the CUDA graph of eager, and of cuDNN, on an H200."""

    B: int
    T: int
    S: int
    E: int
    H: int
    graph: float = 0.0
    cudnn: float = 0.0


# The marks to reach: medians of one H200 with torch 2.11, taken before this was written (docs/lab/kernels.md).
ROWS = (
    Sizes(64, 30, 30, 256, 256, 4.2, 2.9),
    Sizes(128, 50, 50, 512, 512, 13.2, 3.35),
    Sizes(80, 50, 50, 620, 1000, 19.3, 4.1),
)
ODD = (Sizes(1, 1, 1, 1, 1), Sizes(3, 7, 33, 7, 33), Sizes(7, 3, 111, 5, 257), Sizes(2, 4, 1000, 9, 16))


class Decoder(nn.Module):
    """The weights, and both ways through T steps.  x (T, B, E), h (B, S, H), keep (B, S), s, m (B, H)."""

    def __init__(self, E: int, H: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(E + H, H)
        self.W, self.U = nn.Linear(H, H, bias=False), nn.Linear(H, H)
        self.v = nn.Parameter(torch.randn(H) * H**-0.5)
        self.E = E

    def loop(self, x: Tensor, h: Tensor, keep: Tensor, s: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """One step after the other."""
        keys, states, contexts = self.U(h), [], []
        for x_t in x:
            c, _ = attend(additive(self.W(s)[:, None], keys, self.v), h, keep)
            s, m = self.cell(torch.cat([x_t, c[:, 0]], dim=-1), (s, m))
            states.append(s)
            contexts.append(c[:, 0])
        return torch.stack(states), torch.stack(contexts)

    def at_once(self, x: Tensor, h: Tensor, keep: Tensor, s: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """As one operation."""
        W, W_fed = torch.split(self.cell.weight_ih, [self.E, h.shape[-1]], dim=1)
        found = unrolled_decoder(
            PLAN,
            {
                "x": x, "W0": W, "b_W0": self.cell.bias_ih, "U0": self.cell.weight_hh, "b_U0": self.cell.bias_hh,
                "s0": s, "m0": m, "keys": self.U(h), "values": h, "keep": keep,
                "W_q": self.W.weight, "v": self.v, "W_fed": W_fed,
            },
        )  # fmt: skip
        assert found.c is not None
        return found.s, found.c


class Case:
    """A decoder of some sizes with random inputs, and gradients that come from above."""

    def __init__(self, sizes: Sizes, device: torch.device, kind: torch.dtype = torch.float32) -> None:
        B, T, S, E, H, *_ = sizes
        torch.manual_seed(0)
        self.decoder = Decoder(E, H).to(device, kind)
        shapes = ((T, B, E), (B, S, H), (B, H), (B, H))
        self.inputs = [torch.randn(shape, device=device, dtype=kind).requires_grad_() for shape in shapes]
        lengths = S - torch.arange(B, device=device) % (S // 4 + 1)
        self.keep = until(lengths, S)
        self.above = tuple(torch.randn(T, B, H, device=device, dtype=kind) for _ in range(2))
        self.lstm = nn.LSTM(E, H).to(device, kind)

    def as_double(self) -> Case:
        """The same in float64."""
        other = object.__new__(Case)
        other.decoder = Decoder(self.decoder.E, self.decoder.v.shape[0]).to(self.keep.device, torch.float64)
        other.decoder.load_state_dict(self.decoder.state_dict())
        other.inputs = [t.detach().double().requires_grad_() for t in self.inputs]
        other.keep, other.above = self.keep, tuple(t.double() for t in self.above)
        return other

    def run(self, way: Callable[..., tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Forward and backward: what comes out, and all gradients."""
        leaves = [*self.inputs, *self.decoder.parameters()]
        x, h, s, m = self.inputs
        found = way(x, h, self.keep, s, m)
        return [*found, *torch.autograd.grad(found, leaves, self.above)]

    def cudnn(self) -> None:
        """The LSTM that cuDNN has, over the same words, without attention."""
        x, _, s, m = self.inputs
        found, _ = self.lstm(x, (s[None], m[None]))
        torch.autograd.grad(found, [x, s, m, *self.lstm.parameters()], self.above[0])


def main() -> None:
    """Check, then measure; or only calculate."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--compile", action="store_true", help="torch.compile of the loop, too: a minute a row")
    options.add_argument("--calculate", action="store_true", help="only what is to be expected; needs no GPU")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    if given.calculate:
        for sizes in ROWS:
            print(f"{title(sizes)}: {calculated(sizes)}")
        return
    os.environ[SWITCH] = "on"
    if not torch.cuda.is_available() or not usable(torch.zeros(1, device="cuda")):
        raise SystemExit("this needs a CUDA device and Triton; --calculate needs neither")
    device = torch.device("cuda")
    check(device)
    torch.set_float32_matmul_precision("high")
    results = [measure(sizes, device, given.rounds, given.compile) for sizes in ROWS]
    if given.json is not None:
        about = {"device": torch.cuda.get_device_name(device), "torch": torch.__version__, "rounds": given.rounds}
        given.json.write_text(json.dumps(about | {"rows": results}, indent=1) + "\n", encoding="utf-8")


def check(device: torch.device) -> None:
    """Compare with the loop in float64, in fp32 without TF32, with kernels and without; and repeat to the bit."""
    torch.set_float32_matmul_precision("highest")
    for sizes in (*ODD, ROWS[0]):
        case = Case(sizes, device)
        wanted = case.as_double()
        exact = wanted.run(wanted.decoder.loop)
        for switch in ("on", "off"):
            os.environ[SWITCH] = switch
            found = case.run(case.decoder.at_once)
            for number, (one, other) in enumerate(zip(found, exact, strict=True)):
                error = float((one.detach().double() - other).abs().max() / other.abs().max().clamp(min=1e-2))
                if not error <= 2e-4:
                    raise SystemExit(f"{title(sizes)}, kernels {switch}: result {number} is off by {error:.1e}")
            if switch == "on" and not all(map(torch.equal, found, case.run(case.decoder.at_once))):
                raise SystemExit(f"{title(sizes)}: not the same bits again")
    os.environ[SWITCH] = "on"
    print("all sizes agree with the loop in float64, and repeat to the bit", flush=True)


def measure(sizes: Sizes, device: torch.device, rounds: int, compiled: bool) -> dict[str, object]:
    """Return and print what one row takes."""
    case = Case(sizes, device)
    decoder, loop = case.decoder, case.decoder.loop
    ways: dict[str, tuple[str, Work]] = {
        "eager": ("off", lambda: _none(case.run(loop))),
        CUDNN: ("off", case.cudnn),
        "one operation": ("off", lambda: _none(case.run(decoder.at_once))),
        "one operation, kernels": ("on", lambda: _none(case.run(decoder.at_once))),
    }
    if compiled:
        fast = torch.compile(loop)
        ways["torch.compile"] = ("off", lambda: _none(case.run(fast)))
    memory = {name: _memory(*way) for name, way in ways.items()}
    runs = {name: _switched(*way) for name, way in ways.items() if name != "one operation"}
    for name in ("eager", "one operation", "one operation, kernels"):
        runs[f"{name}, CUDA graph"] = _recorded(*ways[name])
    times = medians(runs, rounds)
    ours, graph, cudnn = (times[n] for n in ("one operation, kernels, CUDA graph", "eager, CUDA graph", CUDNN))
    print(f"\n{title(sizes)}   calculated: {calculated(sizes)}")
    for name, ms in times.items():
        peak = memory.get(name)
        print(f"  {name:36} {ms:8.2f} ms   {ms / ours:5.2f} x ours" + (f"   {peak:6.0f} MiB" if peak else ""))
    reached = {"half the graph of eager": ours <= graph / 2, "twice cuDNN without attention": ours <= 2 * cudnn}
    print("  " + ", ".join(f"{'reached' if yes else 'NOT REACHED'}: at most {name}" for name, yes in reached.items()))
    return {**sizes._asdict(), "milliseconds": times, "mebibytes": memory, "reached": reached}


def _none(found: object) -> None:
    """Let go of what was found."""


def _switched(switch: str, work: Work) -> Work:
    def run() -> None:
        os.environ[SWITCH] = switch
        work()

    return run


def _recorded(switch: str, work: Work) -> Work:
    os.environ[SWITCH] = switch
    return record(work).replay


def _memory(switch: str, work: Work) -> float:
    os.environ[SWITCH] = switch
    return peak(work)[0]


def title(sizes: Sizes) -> str:
    """B 64, T 30, …"""
    return ", ".join(f"{name} {getattr(sizes, name)}" for name in "BTSEH")


def calculated(sizes: Sizes) -> str:
    """What a recorded pass should take on an H200: the longest of latency, memory and arithmetic, launch by launch.

    Assumed: 4.5 µs for a product and 2.5 µs for a kernel at least, in a graph; 4.24 TB/s, so 32 bytes/ns for each of
    132 multiprocessors, which does 27 exponentials or reciprocals/ns, two for a tanh; products of a step at 150 TFLOP/s
    in TF32, those over all steps at 250.
    """
    B, T, S, E, H, *_ = sizes
    waves = -(-B // 132)

    def product(rows: int, columns: int, inner: int) -> float:
        memory = 4 * (rows * inner + columns * inner + 2 * rows * columns) / 4.24e6
        return max(4.5, memory, 2 * rows * columns * inner / 150e6)

    question = 2.5 + waves * max(8 * S * H / 32e3, 2 * (1 << (S - 1).bit_length()) * H / 27e3)
    cell = max(2.5, 4 * B * H * 14 / 4.24e6)
    step = cell + question + product(B, 5 * H, H) + product(B, 4 * H, H)
    back = cell + question + product(B, H, 5 * H) + product(B, H, 4 * H)
    over_all = 2 * T * B * 4 * H * (3 * E + 2 * H) + 2 * B * S * H * H * 3 + 2 * T * B * H * H + 2 * B * T * S * H
    rest = over_all / 250e6 + 2 * B * T * S * H / 3.6e6 + 20 * 5
    total = (T * (step + back) + rest) / 1000
    share = f"{step:.0f} + {back:.0f} µs a step, 4 + 4 launches, {rest:.0f} µs once"
    goal = min(sizes.graph / 2, 2 * sizes.cudnn)
    return f"{total:.1f} ms ({share}); the goal is {goal:.1f} ms"


if __name__ == "__main__":
    main()
