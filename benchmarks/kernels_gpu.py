"""The fused kernels on a GPU: right first, then how fast beside what PyTorch does without them.

    PYTHONPATH=$PWD python3 benchmarks/kernels_gpu.py [--rows 4096] [--rounds 30]

Needs a GPU, Triton and a checkout, nothing else, and less than a minute. Everything is compared with the pure reference
in float64 at odd sizes; a result that is not near ends the run. Times are medians of replayed CUDA graphs, forward and
backward together, each graph holding ten times the work, the two ways in turns; without kernels
is the same code with HEEDFUL_KERNELS=off, under bf16 autocast as in training. The last line is a whole step of the
Transformer of benchmarks/gpu_training.py, without its update.
"""

from __future__ import annotations

import argparse
import os

import torch
from gpu_timing import Work, medians, record
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import TransformerConfig
from heedful.fused.triton.policy import SWITCH, usable
from heedful.fused.triton.sublayers import DropoutMasks, relu_dropout, residual_norm
from heedful.fused.triton.token_loss import token_losses
from heedful.models import build
from heedful.training.losses import cross_entropy
from heedful.training.step import ModelWithLoss

TIMES = 10
SIZES = ((1, 1), (7, 7), (33, 33), (111, 257), (257, 111), (4099, 256), (513, 1000))
SCORES = ((2, 1), (14, 7), (66, 33), (8, 111), (34, 257), (6, 8001), (4, 40_003))


def main() -> None:
    """Check, then measure."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rows", type=int, default=4096)
    options.add_argument("--rounds", type=int, default=30)
    given = options.parse_args()
    device = torch.device("cuda")
    os.environ[SWITCH] = "on"
    if not usable(torch.zeros(1, device=device)):
        raise SystemExit("no GPU, or no Triton that works there")
    torch.set_float32_matmul_precision("high")
    check_word_loss(device)
    check_layers(device)
    print("all kernels agree with the reference in float64")
    print(f"{'':44} {'kernels':>9} {'without':>9} {'ratio':>6}")
    for name, work in works(given.rows, device).items():
        fast, slow = measure(work, given.rounds)
        print(f"{name:44} {fast:6.0f} µs {slow:6.0f} µs {slow / fast:6.2f}", flush=True)


def near(name: str, found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """End the run if two results differ by more than a share of the largest value, or of 0.1."""
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=0.1)
    if not error <= tolerance:
        raise SystemExit(f"{name}: relative error {error:.2e}, at most {tolerance:.0e} allowed")


def check_word_loss(device: torch.device) -> None:
    """Losses, hits and gradients at odd sizes, in all types, with and without R-Drop; rows of weight 0 between."""
    for N, V in SCORES:
        for kind, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-3), (torch.float16, 1e-3)):
            for rdrop in (0.0, 3.0):
                scores = (3 * torch.randn(N, V, device=device)).to(kind)
                words = torch.randint(V, (N // 2,), device=device).repeat(2)
                weights = ((torch.arange(N // 2, device=device) % 3 != 1) * 0.1).repeat(2)
                exact = scores.double().requires_grad_()
                total, right = cross_entropy(exact * 1.0, words, weights.double(), 0.1, rdrop)
                (slope,) = torch.autograd.grad(total, exact)
                losses, hits = token_losses(scores, words, weights, 0.1, rdrop)
                where = f"word_loss {N} x {V}, {kind}, R-Drop {rdrop}"
                near(where, losses.sum(), total.detach(), 1e-5)
                near(where + ", gradient", scores, slope, tolerance)
                if not torch.equal(hits, right & (weights > 0)) or scores[weights == 0].any():
                    raise SystemExit(f"{where}: hits, or rows of weight 0")


def check_layers(device: torch.device) -> None:
    """Sum, dropout and LN, and bias, ReLU and dropout: results and all gradients."""
    for N, D in SIZES:
        for kind, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 1e-2)):
            x, g, up, up_n = (torch.randn(N, D, device=device) for _ in range(4))
            g = g.to(kind).requires_grad_()
            x.requires_grad_()
            LN, chance = nn.LayerNorm(D, device=device), DropoutMasks(device)
            nn.init.normal_(LN.weight)
            total, n = residual_norm(x, g, LN, 0.2, chance, kind)
            mask = _mask(N, D, 0.2, chance)
            torch.autograd.backward((total, n), (up, up_n.to(kind)))
            leaves = [t.detach().double().requires_grad_() for t in (x, g, LN.weight, LN.bias)]
            exact = leaves[0] + leaves[1] * mask
            wanted = F.layer_norm(exact, (D,), leaves[2], leaves[3], LN.eps)
            torch.autograd.backward((exact, wanted), (up.double(), up_n.to(kind).double()))
            where = f"residual_norm {N} x {D}, {kind}"
            near(where, total.detach(), exact.detach(), 1e-5)
            near(where + ", norm", n.detach(), wanted.detach(), tolerance)
            for name, leaf, same in zip(("x", "g", "γ", "β"), (x, g, LN.weight, LN.bias), leaves, strict=True):
                near(f"{where}, gradient of {name}", _slope(leaf), _slope(same), 10 * tolerance)
            _check_relu(g.detach(), up.to(kind), tolerance)


def _mask(N: int, D: int, p: float, chance: DropoutMasks) -> Tensor:
    again = DropoutMasks(chance.key.device)
    again.key = chance.key
    zeros, ones = chance.key.new_zeros(N, D, dtype=torch.float32), chance.key.new_ones(N, D, dtype=torch.float32)
    total, _ = residual_norm(zeros, ones, nn.LayerNorm(D, device=zeros.device), p, again, torch.float32)
    if N * D > 10_000 and abs((total > 0).float().mean().item() - (1 - p)) > 0.01:
        raise SystemExit("dropout leaves out another share than it should")
    return total.detach().double()


def _slope(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad


def _check_relu(given: Tensor, up: Tensor, tolerance: float) -> None:
    x, b = given.requires_grad_(), torch.randn(given.shape[-1], device=given.device, requires_grad=True)
    x.grad = None
    y = relu_dropout(x, b, 0.2, DropoutMasks(x.device))
    y.backward(up)  # type: ignore[no-untyped-call]
    exact, shift = x.detach().double().requires_grad_(), b.detach().double().requires_grad_()
    relu = (exact + shift).relu()
    wanted = relu * ((y.detach() != 0) | (relu == 0)) / 0.8
    wanted.backward(up.double())  # type: ignore[no-untyped-call]
    where = f"relu_dropout {tuple(x.shape)}, {x.dtype}"
    near(where, y.detach(), wanted.detach(), tolerance)
    near(f"{where}, gradient of x", _slope(x), _slope(exact), tolerance)
    near(f"{where}, gradient of b", _slope(b), _slope(shift), tolerance)


def works(N: int, device: torch.device) -> dict[str, Work]:
    """Return what is measured, each as a function without arguments; which way it goes is decided when it runs."""
    V, D, inner, p = 8000, 256, 512, 0.1
    bf16 = {"device": device, "dtype": torch.bfloat16, "requires_grad": True}
    scores = torch.randn(N, V, **bf16)  # type: ignore[call-overload]
    words = torch.randint(V, (N,), device=device)
    weights = (torch.rand(N, device=device) < 0.88) / N
    x, g = torch.randn(N, D, device=device, requires_grad=True), torch.randn(N, D, **bf16)  # type: ignore[call-overload]
    LN, up, up_n = nn.LayerNorm(D, device=device), torch.randn(N, D, device=device), torch.randn(N, D, device=device)
    inside, b = torch.randn(N, inner, **bf16), torch.zeros(inner, device=device, requires_grad=True)  # type: ignore[call-overload]
    up_inside = torch.randn(N, inner, device=device, dtype=torch.bfloat16)

    def loss(rdrop: float) -> None:
        total, _ = cross_entropy(scores * 1, words, weights, 0.1, rdrop)
        total.backward()  # type: ignore[no-untyped-call]

    def norm() -> None:
        if usable(x):
            pair = residual_norm(x, g, LN, p, DropoutMasks(device), torch.bfloat16)
        else:
            total = x + F.dropout(g, p)
            pair = total, LN(total).bfloat16()
        torch.autograd.backward(pair, (up, up_n.bfloat16()))

    def relu() -> None:
        # Without kernels the bias is added by the product; its gradient is a sum of its own.
        if usable(inside):
            y = relu_dropout(inside, b, p, DropoutMasks(device))
        else:
            y = F.dropout(F.relu(inside + b.bfloat16()), p)
        y.backward(up_inside)  # type: ignore[no-untyped-call]

    config = TransformerConfig(layers=4, width=D, inner=inner, heads=4, tied="all", dropout=p)
    learner = ModelWithLoss(build(config, V, V).to(device).train(), 0.1)
    sentences, share = (max(1, N // 32), 32), torch.tensor(1 / N, device=device)
    source, target = torch.randint(4, V, sentences, device=device), torch.randint(4, V, sentences, device=device)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            total = learner(source, target, share)[0]
        total.backward()

    return {
        f"word loss, {N:,} x {V:,} bf16, and a copy": lambda: loss(0.0),
        "the same with R-Drop": lambda: loss(3.0),
        f"x + dropout(g) and LN, {N:,} x {D}": norm,
        f"dropout(relu(x + b)), {N:,} x {inner}": relu,
        "a step of the Transformer, 4+4 layers": step,
    }


def measure(work: Work, rounds: int) -> tuple[float, float]:
    """Return the median microseconds with kernels and without, in turns."""
    graphs = {}
    for way in ("on", "off"):
        os.environ[SWITCH] = way
        graphs[way] = record(work, TIMES)
    os.environ[SWITCH] = "on"
    spent = medians({way: graph.replay for way, graph in graphs.items()}, rounds)
    return 1000 * spent["on"] / TIMES, 1000 * spent["off"] / TIMES


if __name__ == "__main__":
    main()
