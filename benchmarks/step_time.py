"""Why the Transformer replaced the RNN: the time of a training step by the length of the sentences.

python benchmarks/step_time.py [--device cuda] [--markdown] [--figure docs/pictures/step-time.svg]

A step is forward, backward and update. Every batch has the same number of tokens, in fewer sentences when they are
longer, so that only the length changes; source and target are equally long. All models have the same width and write
their words with the same product. In a round each length is taken by all models in turn; medians over rounds are
printed.

"In a row" is the longest chain of matrix products in the forward pass of which each needs the one before: what no
machine can do at the same time. It is counted in the graph that PyTorch keeps for the backward pass.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.config import ModelConfig, RnnConfig, TransformerConfig
from heedful.data.batches import Batch
from heedful.draw import chart
from heedful.models import Network, build
from heedful.training.step import loss

V, D = 2000, 256
LENGTHS = (10, 20, 50, 100, 200, 400)
RNN, SHORT = "RNN, additive", "Transformer, 1 + 1 layers"
PRODUCTS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Mv", "Addmv", "Linear")


class Row(NamedTuple):
    """What was found at one length: seconds of a step by model, and the products in a row."""

    length: int
    sentences: int
    seconds: dict[str, float]
    chain: dict[str, int]


def configs(width: int) -> dict[str, ModelConfig]:
    """Return the models by name: the RNN with two scores, the Transformer with as many layers and with its default."""
    rnn = {"width": width, "embedding": width, "tied": True, "dropout": 0.0}
    transformer = {"width": width, "inner": 4 * width, "dropout": 0.0}
    return {
        RNN: RnnConfig(**rnn),  # type: ignore[arg-type]
        "RNN, scaled dot": RnnConfig(score="scaled", **rnn),  # type: ignore[arg-type]
        SHORT: TransformerConfig(layers=1, **transformer),  # type: ignore[arg-type]
        "Transformer, 3 + 3 layers": TransformerConfig(layers=3, **transformer),  # type: ignore[arg-type]
    }


def batch_of(sentences: int, length: int, device: torch.device) -> Batch:
    """Return sentences of random words, all of one length."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randint(4, V, (sentences, length), generator=generator)
    y = torch.randint(4, V, (sentences, length + 1), generator=generator)
    return Batch(x, y, np.arange(sentences), y[:, 1:].numel()).to(device)


def products_in_a_row(result: Tensor, length: int = 1) -> int:
    """Return the most matrix products on a path through the graph of a result, for sentences of some length.

    Operations that hold several count as what they do one after the other. PyTorch's attention: the scores, and the sum
    of the values. Our recurrences: one product for a source word, and four for a target word (q, e_t, c_t, W c_t).
    """
    several = {"_Encode": length, "_Decode": 4 * length}
    longest: dict[Any, int] = {}
    waiting: list[tuple[Any, bool]] = [(result.grad_fn, False)]
    while waiting:
        node, seen = waiting.pop()
        if node is None or (node in longest and not seen):
            continue
        before = [following for following, _ in node.next_functions if following is not None]
        if seen:
            name = node.name().removesuffix("0").removesuffix("Backward").split("::")[-1]
            here = 2 if name.startswith("ScaledDotProduct") else several.get(name, int(name in PRODUCTS))
            longest[node] = here + max((longest[one] for one in before), default=0)
        else:
            waiting.append((node, True))
            waiting.extend((one, False) for one in before if one not in longest)
    return longest[result.grad_fn]


def update(model: Network, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """Take one training step; return how many seconds it took."""
    _wait(batch.x.device)
    begin = time.perf_counter()
    optimizer.zero_grad()
    loss(model, batch).mean.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    _wait(batch.x.device)
    return time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(lengths: Sequence[int], tokens: int, rounds: int, device: torch.device, width: int = D) -> list[Row]:
    """Time all models at all lengths, in turn; the first round warms up and is left out."""
    torch.manual_seed(1)
    models = {name: build(config, V, V).to(device) for name, config in configs(width).items()}
    optimizers = {name: torch.optim.AdamW(m.parameters(), fused=True) for name, m in models.items()}
    batches = {length: batch_of(max(1, tokens // length), length, device) for length in lengths}
    spent: dict[tuple[int, str], list[float]] = {(length, name): [] for length in lengths for name in models}
    for turn in range(rounds + 1):
        for length in lengths:
            for name in sorted(models, reverse=turn % 2 == 1):
                seconds = update(models[name], optimizers[name], batches[length])
                if turn:
                    spent[length, name].append(seconds)
    small = {name: build(config, V, V) for name, config in configs(8).items()}
    rows = []
    for length in lengths:
        one = batch_of(1, length, torch.device("cpu"))
        chain = {name: products_in_a_row(loss(model, one).mean, length) for name, model in small.items()}
        median = {name: statistics.median(spent[length, name]) for name in models}
        rows.append(Row(length, len(batches[length].rows), median, chain))
    return rows


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Return milliseconds and products in a row by length."""
    names = list(rows[0].seconds)
    head = ["words", "sentences", *names, "RNN / Transformer", "in a row: RNN", "Transformer, 1 + 1"]
    body = [
        [
            f"{row.length}",
            f"{row.sentences}",
            *(f"{1000 * row.seconds[name]:,.0f} ms" for name in names),
            f"{row.seconds[RNN] / row.seconds[SHORT]:.1f}",
            f"{row.chain[RNN]:,}",
            f"{row.chain[SHORT]}",
        ]
        for row in rows
    ]
    if markdown:
        return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    return "\n".join("  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in [head, *body])


def figure(rows: Sequence[Row], where: str) -> str:
    """Return the times as an SVG document."""
    lengths = tuple(float(row.length) for row in rows)
    series = [chart.Series(name, lengths, tuple(1000 * row.seconds[name] for row in rows)) for name in rows[0].seconds]
    return chart.lines(
        series,
        f"A training step: equally many words, longer sentences ({where})",
        "words in a sentence",
        "milliseconds (equal ratios are equally far apart)",
        log_y=True,
    )


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--device", default="cpu")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options.add_argument("--tokens", type=int, default=3200, help="words of a batch, on each side")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options.add_argument("--figure", type=Path, help="an SVG file to write")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    rows = measure(args.lengths, args.tokens, args.rounds, device)
    print(table(rows, args.markdown))
    sizes = {name: sum(p.numel() for p in build(c, V, V).parameters()) for name, c in configs(D).items()}
    print("\nweights: " + "; ".join(f"{name}: {size:,}" for name, size in sizes.items()))
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU"
    print(f"machine: {machine}, {args.threads} threads, torch {torch.__version__}, medians of {args.rounds} rounds")
    if args.figure:
        where = "GPU" if device.type == "cuda" else "CPU"
        args.figure.write_text(figure(rows, where), encoding="utf-8")


if __name__ == "__main__":
    main()
