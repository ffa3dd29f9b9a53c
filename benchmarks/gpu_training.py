"""How fast a GPU trains: target tokens a second, padding not counted, recorded and not, in bf16 and not.

    python3 benchmarks/gpu_training.py --data FOLDER [--seconds 8] [--only transformer] [--profile]

FOLDER holds Multi30k's `train.en.gz` and `train.de.gz`. The two models are those that Joey NMT 2.3 was measured with on
the same kind of GPU: a Transformer of 4+4 layers (7.3 M weights) at 37,600 tokens/s, and a GRU of 256 with additive
attention (6.0 M) at about 19,000; batches of 4,096 tokens, one vocabulary of 8,000 tokens. HEEDFUL_KERNELS=off leaves
heedful's kernels out; each line says whether they were on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch

from heedful.config import Config
from heedful.data import read_lines
from heedful.data.batches import Batch, Batches, prefetch
from heedful.data.corpus import Corpus
from heedful.fused.triton.policy import usable
from heedful.models import build
from heedful.text import START, Codec
from heedful.training.step import TrainingStep

JOEY = {"transformer": 37_600, "rnn": 19_000}
MODELS = {
    "transformer": {"family": "transformer", "layers": 4, "width": 256, "inner": 512, "heads": 4, "tied": "all"},
    "rnn": {"family": "rnn", "width": 256, "encoder_width": 256, "embedding": 256, "tied": True},
}


def main() -> None:
    """Measure every way, and print a line for each."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--seconds", type=float, default=8.0)
    options.add_argument("--tokens", type=int, default=4096)
    options.add_argument("--only", choices=sorted(MODELS))
    options.add_argument("--ways", default="captured bf16,captured fp32,eager bf16,eager fp32")
    options.add_argument("--device", default="cuda")
    options.add_argument("--profile", action="store_true")
    given = options.parse_args()
    sides = [list(read_lines(given.data / f"train.{language}.gz")) for language in ("en", "de")]
    settings = Config.build({"text": {"size": 8000, "joint": True}})
    codec = Codec.train([*sides[0], *sides[1]], settings.text)
    corpus = Corpus.of(*(codec.ids(side) for side in sides))
    batches = Batches(corpus, start=START, tokens=given.tokens, sentences=10**6, seed=1)
    for name, model in MODELS.items():
        if given.only in (None, name):
            for way in given.ways.split(","):
                training = {"capture": "eager" not in way}
                config = Config.build({"model": model, "text": {"joint": True}, "training": training})
                measure(name, way, config, batches, len(codec), given)


def endless(batches: Batches, fixed: bool, pin: bool) -> Iterator[tuple[Batch, int]]:
    """Yield all batches of all epochs with their tokens."""
    for epoch in count():
        for rows in batches.epoch(epoch):
            batch = batches.batch(rows, epoch, fixed=fixed)
            yield (batch.pin() if pin else batch), batches.tokens(rows, epoch)


def measure(name: str, way: str, config: Config, batches: Batches, size: int, given: argparse.Namespace) -> None:
    """Train for a while and print the speed."""
    device = torch.device(given.device)
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    model = build(config.model, size, size).to(device).train()
    updater = TrainingStep(model, config.training, device, "bf16" in way)
    weights = sum(p.numel() for p in model.parameters()) / 1e6
    shapes, begun = set(), time.perf_counter()
    with prefetch(endless(batches, cuda, cuda), 8) as works:
        step = 0

        def go(seconds: float) -> tuple[int, int, float]:
            nonlocal step
            tokens = steps = 0
            begin = time.perf_counter()
            while time.perf_counter() - begin < seconds:
                batch, here = next(works)
                step, tokens, steps = step + 1, tokens + here, steps + 1
                shapes.add((batch.x.shape, batch.y.shape))
                updater([batch.to(device)], here, step, 1e-3 * min(1, step / 400))
                if steps % 20 == 0:
                    updater.read()
            happened = updater.read()
            assert not happened.first_nonfinite_step, happened
            return tokens, steps, time.perf_counter() - begin

        go(given.seconds)  # shapes are met and recorded
        ready = time.perf_counter() - begun
        tokens, steps, spent = go(given.seconds)
        speed = tokens / spent
        memory = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
        kernels = "on" if usable(updater.per_token) else "off"
        print(
            f"{name:<12} {way:<14} kernels {kernels:<3} {weights:.1f} M  {speed:>9,.0f} tokens/s  "
            f"{speed / JOEY[name]:>5.1f} x Joey  {1000 * spent / steps:.2f} ms a step of {tokens / steps:,.0f} tokens, "
            f"{len(shapes)} shapes, {ready:.0f} s before, {memory:.1f} GiB",
            flush=True,
        )
        if given.profile and cuda:
            profile(updater, [next(works) for _ in range(10)], device)


def profile(updater: TrainingStep, works: list[tuple[Batch, int]], device: torch.device) -> None:
    """Print where the device's time goes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for batch, tokens in works:
            updater([replace(batch).to(device)], tokens, 10**6, 1e-5)
        torch.cuda.synchronize()
    print(found.key_averages().table(sort_by="cuda_time_total", row_limit=22, max_name_column_width=70))


if __name__ == "__main__":
    main()
