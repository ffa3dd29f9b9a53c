"""Training of captions on cached features: heedful beside a plain eager loop of PyTorch, in turns in one run.

    python3 benchmarks/caption_training.py [--device cuda] [--precision fp32,bf16] [--rounds 7] [--json FILE]

Both read the same batches of features, 7 × 7 regions of 320 numbers as EfficientNet-Lite0 gives, and captions of 7 to
18 random tokens: the time does not depend on what they are. Both are an LSTM of 512 with the additive score over the
regions (Bahdanau's order), embeddings of 512 and a vocabulary of 8,000, with dropout, label smoothing, gradient
clipping and AdamW. `PlainCaptioner` below is what a good tutorial writes: an `nn.LSTMCell` and one query for each step,
keys projected once; it may use PyTorch's fused AdamW, and TF32 as heedful does. Each makes some updates, then it is the
next one's turn; rounds that warm up are left out. Ratios are taken within a round. Tokens are counted without padding.
On a CPU that others use, too, the ratio of tokens for each second of the CPU says more than that of all seconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the heedful of this checkout

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import ImageConfig, RnnConfig, TrainingConfig
from heedful.data.batches import Batch, Batches, prefetch
from heedful.data.corpus import Corpus, ImageArray, TokenArray
from heedful.files import write_whole
from heedful.models import build
from heedful.text import END, SPECIALS, START
from heedful.training.step import TrainingStep

V, D, FEATURES, SIDE = 8000, 512, 320, 7
DROPOUT, SMOOTHING, CLIP, RATE, DECAY = 0.3, 0.1, 1.0, 3e-4, 0.01
SHORTEST, LONGEST = 7, 18  # tokens of a caption
IMAGES, CAPTIONS = 400, 6400


class Turn(NamedTuple):
    """What was done in a turn: target tokens without padding, seconds, and seconds of the CPU."""

    tokens: int
    seconds: float
    cpu: float


Turns = Generator[Turn, None, None]


class PlainCaptioner(nn.Module):
    """Show, attend and tell with the same sizes: one query and one step of the cell for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.W_h, self.norm_h = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, D), nn.LayerNorm(D)
        self.first, self.s_0, self.c_0 = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.words, self.drop = nn.Embedding(V, D), nn.Dropout(DROPOUT)
        self.W, self.U, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 1, bias=False)
        self.cell = nn.LSTMCell(2 * D, D)
        self.output = nn.Linear(2 * D, V)

    def forward(self, features: Tensor, y: Tensor) -> Tensor:
        """features (B, S, F), y (B, T) -> (B, T, V)."""
        h = self.drop(self.norm_h(self.W_h(self.norm(features))))
        mean = torch.tanh(self.first(h)).mean(1)
        s, c = torch.tanh(self.s_0(mean)), self.c_0(mean)
        k, e, written = self.U(h), self.drop(self.words(y)), []
        for t in range(y.shape[1]):
            scores = self.v(torch.tanh(self.W(s)[:, None] + k))[..., 0]
            context = torch.bmm(torch.softmax(scores, dim=-1)[:, None].to(h.dtype), h)[:, 0]
            s, c = self.cell(torch.cat([e[:, t], context.to(e.dtype)], dim=-1), (s, c))
            written.append(torch.cat([s, context], dim=-1))
        return self.output(self.drop(torch.stack(written, dim=1)))  # type: ignore[no-any-return]


def make_batches(sentences: int) -> Batches:
    """Return batches of random captions for random features."""
    generator = np.random.default_rng(1)
    features = generator.standard_normal((IMAGES, SIDE * SIDE, FEATURES), np.float32).astype(np.float16)
    lengths = generator.integers(SHORTEST, LONGEST + 1, CAPTIONS)
    captions = [[*generator.integers(len(SPECIALS), V, length).tolist(), END] for length in lengths]
    source = ImageArray(features, np.arange(CAPTIONS) % IMAGES, SIDE * SIDE + 1)
    return Batches(Corpus(source, TokenArray.of(captions)), start=START, tokens=10**6, sentences=sentences, seed=1)


def endless(batches: Batches, cuda: bool) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of all epochs, with their tokens; on a GPU from pinned memory."""
    for epoch in count():
        for rows in batches.epoch(epoch):
            batch = batches.batch(rows, epoch, fixed=cuda)
            yield (batch.pin() if cuda else batch), batches.tokens(rows, epoch)


def paced(batches: Batches, device: torch.device, updates: int, update: Callable[[Batch, int, int], object]) -> Turns:
    """Make some updates at a time, with batches that are prepared meanwhile."""
    cuda, step = device.type == "cuda", 0
    with prefetch(endless(batches, cuda), 8) as works:
        while True:
            tokens, begin, used = 0, time.perf_counter(), time.process_time()
            for _ in range(updates):
                batch, here = next(works)
                step, tokens = step + 1, tokens + here
                update(batch.to(device), here, step)
            if cuda:
                torch.cuda.synchronize(device)
            yield Turn(tokens, time.perf_counter() - begin, time.process_time() - used)


def heedful_turns(batches: Batches, device: torch.device, updates: int, bf16: bool) -> tuple[int, Turns]:
    """Return the number of weights that heedful trains, and its turns."""
    torch.manual_seed(1)
    image = ImageConfig(pixels=32 * SIDE, patch=32, filters=FEATURES // 4, blocks=0, frozen=True)
    rnn = RnnConfig(cell="lstm", width=D, encoder_width=D // 2, embedding=D, order="bahdanau", dropout=DROPOUT)
    model = build(rnn, image, V).to(device).train()
    config = TrainingConfig(smoothing=SMOOTHING, clip=CLIP, weight_decay=DECAY)
    updater = TrainingStep(model, config, device, bf16)

    def update(batch: Batch, tokens: int, step: int) -> None:
        updater([batch], tokens, step, RATE)

    return sum(weight.numel() for weight in updater.parameters), paced(batches, device, updates, update)


def plain_turns(batches: Batches, device: torch.device, updates: int, bf16: bool) -> tuple[int, Turns]:
    """The same of the plain loop."""
    torch.manual_seed(1)
    model = PlainCaptioner().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=DECAY, fused=True)

    def update(batch: Batch, tokens: int, step: int) -> None:
        optimizer.zero_grad()
        precision: AbstractContextManager[object] = (
            torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()
        )
        with precision:
            logits = model(batch.x.float(), batch.y[:, :-1]).flatten(0, 1)
            y = batch.y[:, 1:].flatten()
            loss = F.cross_entropy(logits.float(), y, ignore_index=0, label_smoothing=SMOOTHING)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return sum(weight.numel() for weight in model.parameters()), paced(batches, device, updates, update)


def measure(args: argparse.Namespace, bf16: bool) -> dict[str, Any]:
    """Let each have its turns, and return medians of the speeds, and of the ratios within a round."""
    batches, device = make_batches(args.batch), torch.device(args.device)
    if device.type == "cuda":
        batches.keep_images(device, 10**10)  # as training does
    made = {"heedful": heedful_turns, "plain": plain_turns}
    contenders = {name: make(batches, device, args.updates, bf16) for name, make in made.items()}
    turns: dict[str, list[Turn]] = {name: [] for name in contenders}
    for number in range(args.warmup + args.rounds):
        for name in sorted(contenders, reverse=number % 2 == 1):
            turn = next(contenders[name][1])
            if number >= args.warmup:
                turns[name].append(turn)
    for _, generator in contenders.values():
        generator.close()
    rounds = list(zip(turns["heedful"], turns["plain"], strict=True))
    ratios = [(a.tokens / a.seconds) / (b.tokens / b.seconds) for a, b in rounds]
    return {
        "precision": "bf16" if bf16 else "fp32",
        **{name: round(statistics.median(turn.tokens / turn.seconds for turn in each)) for name, each in turns.items()},
        "ratio": round(statistics.median(ratios), 2),
        "lowest_and_highest": [round(min(ratios), 2), round(max(ratios), 2)],
        "ratio_of_cpu_seconds": round(statistics.median((a.tokens / a.cpu) / (b.tokens / b.cpu) for a, b in rounds), 2),
        "weights": {name: weights for name, (weights, _) in contenders.items()},
    }


def main() -> None:
    """Measure and print a table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--precision", default="fp32,bf16", help="(default: fp32,bf16)")
    options.add_argument("--batch", type=int, default=128, help="captions in a batch (default: 128)")
    options.add_argument("--updates", type=int, default=0, help="updates in a turn (default: 4, on a GPU 50)")
    options.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    options.add_argument("--warmup", type=int, default=1, help="rounds that are left out (default: 1)")
    options.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    options.add_argument("--json", type=Path, help="file for the results")
    args = options.parse_args()
    args.updates = args.updates or (50 if args.device == "cuda" else 4)
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    results = [measure(args, precision == "bf16") for precision in args.precision.split(",")]
    cuda = args.device == "cuda"
    where = (
        torch.cuda.get_device_name()
        if cuda
        else f"{platform.processor() or platform.machine()}, {args.threads} threads"
    )
    print(f"target tokens a second, batches of {args.batch} captions, {where}, torch {torch.__version__}\n")
    print("| precision | heedful | plain loop | ratio | lowest and highest | CPU seconds |\n|---|---|---|---|---|---|")
    for one in results:
        speeds = [f"{one[name]:,}" for name in ("heedful", "plain")]
        cells = [one["precision"], *speeds, *(one[n] for n in ("ratio", "lowest_and_highest", "ratio_of_cpu_seconds"))]
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"\n{json.dumps(results)}")
    if args.json:
        write_whole(args.json, json.dumps({"where": where, "results": results}, indent=1).encode())


if __name__ == "__main__":
    main()
