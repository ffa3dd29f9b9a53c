"""Microseconds of the products of decoding, by the libraries that PyTorch can call: which is fastest for which rows?

python benchmarks/products.py [--threads 1] [--rows 1 5 32 160] [--cold]

x Wᵀ + b in fp32 with the shapes of a small Transformer and of an Opus-MT. `linear` is PyTorch's own layout, `addmm` W
packed by its inputs (both by BLAS, MKL on x86), `onednn` W packed by oneDNN, `raw` oneDNN without packing, `mkl` MKL's
packed format. The shortest of several rounds, in turns. With --cold, all products of a decoding step follow each other
with weights of their own, as in a model, and the sum is printed: they do not stay in the caches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

SMALL, LARGE = (256, 1024, 8000, 3), (512, 2048, 65_002, 6)  # width, inner width, vocabulary, layers
Product = Callable[[], object]


def shapes(width: int, inner: int, vocabulary: int, layers: int) -> list[tuple[int, int]]:
    """Return the inputs and outputs of all products of a decoding step."""
    layer = [(width, 3 * width), *[(width, width)] * 3, (width, inner), (inner, width)]
    return layer * layers + [(width, vocabulary)]


def candidates(W: Tensor, b: Tensor, x: Tensor) -> dict[str, Product]:
    """Return every way to multiply."""
    onednn, mkl = torch.ops.mkldnn, torch.ops.mkl
    W_t, packed = W.t().contiguous(), onednn._reorder_linear_weight(W)
    ways: dict[str, Product] = {
        "linear": lambda: torch.nn.functional.linear(x, W, b),
        "addmm": lambda: torch.addmm(b, x, W_t),
        "onednn": lambda: onednn._linear_pointwise(x, packed, b, "none", [], ""),
        "raw": lambda: onednn._linear_pointwise(x, W, b, "none", [], ""),
    }
    if hasattr(mkl, "_mkl_reorder_linear_weight"):
        reordered = mkl._mkl_reorder_linear_weight(W, len(x))
        ways["mkl"] = lambda: mkl._mkl_linear(x, reordered, W, b, len(x))
    return ways


def shortest(works: dict[str, Product], rounds: int = 9, least: float = 0.002) -> dict[str, float]:
    """Return the shortest time of each piece of work in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            count, begin = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - begin < least:
                work()
                count += 1
            times[name].append((time.perf_counter() - begin) / count)
    return {name: 1e6 * min(each) for name, each in times.items()}


def random_product(inputs: int, outputs: int, rows: int) -> dict[str, Product]:
    """Return every way to multiply random weights."""
    return candidates(torch.randn(outputs, inputs), torch.randn(outputs), torch.randn(rows, inputs))


def one_after_the_other(works: list[Product]) -> Product:
    """Return all of the work as one piece."""

    def run() -> None:
        for work in works:
            work()

    return run


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 5, 8, 16, 32, 64, 160])
    parser.add_argument("--cold", action="store_true", help="all products of a step in turn")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads; microseconds")
    for size in (SMALL, LARGE):
        every = shapes(*size)
        for rows in options.rows:
            if options.cold:
                ways = [random_product(*shape, rows) for shape in every]
                works = {name: one_after_the_other([each[name] for each in ways]) for name in ways[0]}
                tables = {f"width {size[0]}, a step": works}
            else:
                tables = {f"{i} x {o}": random_product(i, o, rows) for i, o in sorted(set(every))}
            for what, works in tables.items():
                times = shortest(works)
                best = min(times, key=lambda name: times[name])
                each = "  ".join(f"{name} {spent:9.1f}" for name, spent in times.items())
                print(f"{what:<20} rows {rows:>4}   {each}   {best}")


if __name__ == "__main__":
    main()
