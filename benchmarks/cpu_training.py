"""Target tokens per second in training on the CPU, beside plain PyTorch and Joey NMT, in turns in one run.

python benchmarks/cpu_training.py --data DIR [--joey PYTHON]     (DIR/multi30k holds train.en.gz and train.de.gz)

Two models, in fp32, with dropout 0.1, label smoothing 0.1 and AdamW, on Multi30k English to German with one BPE
vocabulary of 8,000:

- `rnn`: a bidirectional LSTM of 256 per direction, embeddings 256, a decoder LSTM of 256 that asks after the cell with
  the additive score and is fed what it wrote with (Luong's order: what Joey NMT has); 8.5 million weights.
- `transformer`: 3 + 3 layers, width 256, inner 1,024, one table of words; 7.6 million.

All have the same budget of padded tokens for a batch and make their batches their own way: heedful and the plain loops
with buckets of like length, Joey NMT without. Tokens are counted without padding. `--joey` names a Python that has
joeynmt 2.3; without it only the others are measured. Each makes some updates, then it is the next one's turn; the first
round is left out. Ratios are taken within a round. `per CPU second` is what matters where others use the machine, too.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import ModelConfig, RnnConfig, TextConfig, TrainingConfig, TransformerConfig
from heedful.data import read_lines
from heedful.data.batches import Batch, Batches
from heedful.data.corpus import Corpus, TokenArray
from heedful.models import build
from heedful.models.transformer import positions
from heedful.text import START, Codec
from heedful.training.step import TrainingStep

V, D, DROPOUT, SMOOTHING, RATE = 8000, 256, 0.1, 0.1, 3e-4
CONFIGS: dict[str, ModelConfig] = {
    "rnn": RnnConfig(
        cell="lstm", width=D, encoder_width=D, embedding=D, order="luong", score="additive", dropout=DROPOUT
    ),
    "transformer": TransformerConfig(layers=3, width=D, heads=4, inner=1024, tied="all", dropout=DROPOUT),
}


class Turn(NamedTuple):
    """What was done in a turn: target tokens without padding, seconds, and seconds of the CPU."""

    tokens: int
    seconds: float
    cpu: float


Turns = Generator[Turn, None, None]


class PlainRnn(nn.Module):
    """What a good tutorial would write: a packed bidirectional LSTM, then a loop over LSTMCell; keys projected once."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target, self.drop = nn.Embedding(V, D), nn.Embedding(V, D), nn.Dropout(DROPOUT)
        self.encoder = nn.LSTM(D, D, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * D, D)
        self.W, self.U, self.v = nn.Linear(D, D, bias=False), nn.Linear(2 * D, D), nn.Linear(D, 1, bias=False)
        self.cell, self.mix, self.output = nn.LSTMCell(2 * D, D), nn.Linear(3 * D, D), nn.Linear(D, V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, S), y (B, T) -> (B, T, V)."""
        keep = x != 0
        e = self.drop(self.source(x))
        packed = nn.utils.rnn.pack_padded_sequence(e, keep.sum(1), batch_first=True, enforce_sorted=False)
        states, (last, _) = self.encoder(packed)
        h = self.drop(nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0])
        s = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        a = c = torch.zeros_like(s)
        k, e, written = self.U(h), self.drop(self.target(y)), []
        for t in range(y.shape[1]):
            s, c = self.cell(torch.cat([e[:, t], a], dim=-1), (s, c))
            scores = self.v(torch.tanh(self.W(s)[:, None] + k))[..., 0].masked_fill(~keep, -torch.inf)
            context = torch.bmm(torch.softmax(scores, dim=-1)[:, None], h)[:, 0]
            a = torch.tanh(self.mix(torch.cat([s, context], dim=-1)))
            written.append(a)
        return self.output(self.drop(torch.stack(written, dim=1)))  # type: ignore[no-any-return]


class PlainTransformer(nn.Module):
    """nn.Transformer with one table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.drop = nn.Embedding(V, D), nn.Dropout(DROPOUT)
        nn.init.normal_(self.words.weight, std=D**-0.5)
        self.layers = nn.Transformer(D, 4, 3, 3, 1024, DROPOUT, batch_first=True, norm_first=True)
        self.register_buffer("places", positions(512, D))

    def embed(self, x: Tensor) -> Tensor:
        """x (B, n) -> (B, n, D)."""
        return self.drop(self.words(x) * math.sqrt(D) + self.places[: x.shape[1]])  # type: ignore[index, no-any-return]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, S), y (B, T) -> (B, T, V)."""
        later = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
        own = {"src_key_padding_mask": x == 0, "memory_key_padding_mask": x == 0, "tgt_is_causal": True}
        hidden = self.layers(self.embed(x), self.embed(y), tgt_mask=later, **own)
        return F.linear(hidden, self.words.weight)


def read(data: Path, pairs: int) -> list[list[list[int]]]:
    """Return the token ids of both sides, each sentence closed by `</s>`."""
    sides = [[line.strip() for line in read_lines(data / "multi30k" / f"train.{lang}.gz")] for lang in ("en", "de")]
    codec = Codec.train([*sides[0], *sides[1]], TextConfig(size=V))
    return [[list(encoded.ids) for encoded in codec.encode_all(side[:pairs])] for side in sides]


def endless(batches: Batches) -> Iterator[Batch]:
    """Go through the epochs, one after the other."""
    epoch = 0
    while True:
        for rows in batches.epoch(epoch):
            yield batches.batch(rows, epoch)
        epoch += 1


def paced(batches: Batches, updates: int, update: Callable[[Batch, int], object]) -> Turns:
    """Make some updates at a time."""
    source, step = endless(batches), 0
    while True:
        tokens, begin, used = 0, time.perf_counter(), time.process_time()
        for _ in range(updates):
            batch = next(source)
            step += 1
            update(batch, step)
            tokens += batch.tokens
        yield Turn(tokens, time.perf_counter() - begin, time.process_time() - used)


def heedful(kind: str, batches: Batches, updates: int) -> tuple[int, Turns]:
    """Return how many weights heedful's model has, and its turns."""
    model = build(CONFIGS[kind], V, V).train()
    config = TrainingConfig(smoothing=SMOOTHING, clip=1.0)
    updater = TrainingStep(model, config, torch.device("cpu"), bf16=False)
    turns = paced(batches, updates, lambda batch, step: updater([batch], batch.tokens, step, RATE))
    return sum(p.numel() for p in model.parameters()), turns


def plain(kind: str, batches: Batches, updates: int) -> tuple[int, Turns]:
    """The same of the plain loops."""
    model = (PlainRnn() if kind == "rnn" else PlainTransformer()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    def update(batch: Batch, step: int) -> None:
        optimizer.zero_grad()
        logits = model(batch.x, batch.y[:, :-1]).flatten(0, 1)
        F.cross_entropy(logits, batch.y[:, 1:].flatten(), ignore_index=0, label_smoothing=SMOOTHING).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return sum(p.numel() for p in model.parameters()), paced(batches, updates, update)


def write_for_joey(sides: Sequence[Sequence[Sequence[int]]], folder: Path) -> None:
    """Write the same pairs as words that are token numbers; Joey NMT closes sentences itself."""
    for side, name in zip(sides, ("src", "trg"), strict=True):
        lines = [" ".join(f"t{token}" for token in row[:-1]) for row in side]
        (folder / f"train.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / f"dev.{name}").write_text("\n".join(lines[:20]) + "\n", encoding="utf-8")
    words = ["<unk>", "<pad>", "<s>", "</s>", *(f"t{i}" for i in range(4, V))]
    (folder / "vocabulary").write_text("\n".join(words) + "\n", encoding="utf-8")


def joey(python: str, kind: str, folder: Path, tokens: int, threads: int, updates: int) -> tuple[int, Turns]:
    """The same of Joey NMT, in a process of its own that waits when it is not its turn."""
    worker = Path(__file__).with_name("joey_worker.py")
    command = [python, str(worker), kind, str(folder), str(tokens), str(threads), str(updates)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def turns() -> Turns:
        try:
            while True:
                questions.write("go\n")
                questions.flush()
                yield Turn(*json.loads(answers.readline()))
        finally:
            questions.close()
            process.wait()

    return int(answers.readline()), turns()


def measure(contenders: dict[str, Turns], rounds: int) -> dict[str, list[Turn]]:
    """Let each have its turn in every round; the first is left out."""
    found: dict[str, list[Turn]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in sorted(contenders, reverse=number % 2 == 1):
            turn = next(contenders[name])
            if number:
                found[name].append(turn)
    return found


def report(found: dict[str, list[Turn]]) -> dict[str, object]:
    """Return medians of each one's speeds and of the ratios to it."""
    result: dict[str, object] = {}
    for name, turns in found.items():
        record: dict[str, object] = {}
        for label, pick in (("tokens_per_second", 1), ("per_cpu_second", 2)):
            speeds = [turn[0] / turn[pick] for turn in turns]
            ratios = [(a[0] / a[pick]) / s for a, s in zip(found["heedful"], speeds, strict=True)]
            record[label] = round(statistics.median(speeds))
            if name != "heedful":
                record[f"{label}_heedful_is_faster_by"] = round(statistics.median(ratios), 2)
                record[f"{label}_lowest_and_highest"] = [round(min(ratios), 2), round(max(ratios), 2)]
        result[name] = record
    return result


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--joey", help="a Python interpreter that has joeynmt 2.3")
    options.add_argument("--models", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--tokens", type=int, default=2048, help="padded tokens of the longer side in a batch")
    options.add_argument("--pairs", type=int, default=6000)
    options.add_argument("--updates", type=int, default=8, help="updates in a turn")
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    sides = read(args.data, args.pairs)
    corpus = Corpus(TokenArray.of(sides[0]), TokenArray.of(sides[1]))
    batches = Batches(corpus, start=START, tokens=args.tokens, sentences=10**6, seed=1)
    for kind in args.models:
        with tempfile.TemporaryDirectory() as folder:
            made = {"heedful": heedful(kind, batches, args.updates), "plain": plain(kind, batches, args.updates)}
            if args.joey:
                write_for_joey(sides, Path(folder))
                made["joey"] = joey(args.joey, kind, Path(folder), args.tokens, args.threads, args.updates)
            found = measure({name: turns for name, (_, turns) in made.items()}, args.rounds)
            for _, turns in made.values():
                turns.close()
            weights = {name: size for name, (size, _) in made.items()}
            print(json.dumps({"model": kind, **report(found), "weights": weights}), flush=True)
    where = {"machine": platform.processor() or platform.machine(), "threads": args.threads, "torch": torch.__version__}
    print(json.dumps({"batch_tokens": args.tokens, "pairs": args.pairs, **where}))


if __name__ == "__main__":
    main()
