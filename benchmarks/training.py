"""Target tokens per second in training, beside a straightforward PyTorch loop over GRUCell on the same batches.

python benchmarks/training.py --data DIR     (DIR/multi30k holds train.en.gz and train.de.gz)

A GRU with additive attention: hidden 256 (encoder 256 per direction), embeddings 256, batches of 64, vocabularies of
8,000, Multi30k English to German. Both models have the same weights and must give the same loss before anything is
timed. The plain one is taken twice, with PyTorch's default AdamW and with the fused one that heedful uses. In a round
each batch is taken by all in turn; the ratios are taken within a round, and medians over rounds are printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import RnnConfig, TextConfig
from heedful.data import Batch, Batches, Corpus, read_lines
from heedful.models import Network, build
from heedful.text import START, Codec
from heedful.training.loss import loss

V, D = 8000, 256


class Plain(nn.Module):
    """What a good tutorial would write: a packed bidirectional GRU, then a loop over GRUCell; keys projected once."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(V, D), nn.Embedding(V, D)
        self.encoder = nn.GRU(D, D, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * D, D)
        self.W, self.U, self.v = nn.Linear(D, D, bias=False), nn.Linear(2 * D, D), nn.Linear(D, 1, bias=False)
        self.cell = nn.GRUCell(3 * D, D)
        self.output = nn.Linear(3 * D, V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, S), y (B, T) -> [s_t; c_t] (B, T, 3D)."""
        keep = x != 0
        packed = nn.utils.rnn.pack_padded_sequence(self.source(x), keep.sum(1), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        s = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        k, e, known = self.U(h), self.target(y), []
        for t in range(y.shape[1]):
            scores = self.v(torch.tanh(self.W(s)[:, None] + k))[..., 0].masked_fill(~keep, -torch.inf)
            c = torch.bmm(torch.softmax(scores, dim=-1)[:, None], h)[:, 0]
            s = self.cell(torch.cat([e[:, t], c], dim=-1), s)
            known.append(torch.cat([s, c], dim=-1))
        return torch.stack(known, dim=1)


def copy_weights(plain: Plain, ours: Network) -> None:
    """Give heedful's model the weights of the plain one."""
    p = plain.state_dict()
    renamed = {
        "encoder.embedding.weight": p["source.weight"],
        **{name.replace("encoder.", "encoder.rnn."): t for name, t in p.items() if name.startswith("encoder.")},
        "bridge.W.0.weight": p["bridge.weight"],
        "bridge.W.0.bias": p["bridge.bias"],
        "embedding.weight": p["target.weight"],
        "score.v": p["v.weight"][0],
        "score.W.weight": p["W.weight"],
        "score.U.weight": p["U.weight"],
        "score.U.bias": p["U.bias"],
        "stack.cells.0.W.0.weight": p["cell.weight_ih"][:, :D],
        "stack.cells.0.W.0.bias": p["cell.bias_ih"],
        "stack.cells.0.W.1.weight": p["cell.weight_ih"][:, D:],
        "stack.cells.0.U.weight": p["cell.weight_hh"],
        "stack.cells.0.U.bias": p["cell.bias_hh"],
        "output.W.weight": p["output.weight"],
        "output.W.bias": p["output.bias"],
    }
    ours.load_state_dict(renamed)


def plain_loss(plain: Plain, batch: Batch, vocabulary: bool) -> Tensor:
    """The plain model's loss; without the vocabulary projection, a stand-in that sends a gradient everywhere else."""
    hidden: Tensor = plain(batch.x, batch.y[:, :-1])
    if not vocabulary:
        return hidden.square().mean()
    return F.cross_entropy(plain.output(hidden).flatten(0, 1), batch.y[:, 1:].flatten(), ignore_index=0)


def our_loss(ours: Network, batch: Batch, vocabulary: bool) -> Tensor:
    """The same of heedful's model."""
    if vocabulary:
        return loss(ours, batch).mean
    memory = ours.encode(batch.x, batch.x != 0)
    return ours.step(batch.y[:, :-1], ours.start(memory, batch.y.shape[1]), memory).hidden.square().mean()


def read(data: Path) -> Batches:
    """Multi30k as batches of 64."""
    sides = [[line.strip() for line in read_lines(data / "multi30k" / f"train.{lang}.gz")] for lang in ("en", "de")]
    ids = [[e.ids for e in Codec.train(side, TextConfig(size=V)).encode_all(side)] for side in sides]
    return Batches(Corpus.of(*ids), start=START, tokens=10**9, sentences=64, seed=1)


def padding(batches: Batches) -> float:
    """Return the share of padding among all source and target positions of an epoch."""
    total = filled = 0
    for rows in batches.epoch(0):
        batch = batches.batch(rows)
        total += batch.x.numel() + batch.y[:, 1:].numel()
        filled += int((batch.x != 0).sum()) + batch.tokens
    return 1 - filled / total


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--batches", type=int, default=24, help="batches in a round")
    options.add_argument("--rounds", type=int, default=7)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    batches = read(args.data)
    plain, ours = Plain(), build(RnnConfig(width=D, encoder_width=D, embedding=D, dropout=0.0), V, V)
    copy_weights(plain, ours)
    chosen = [batches.batch(rows) for rows in batches.epoch(0)[: args.batches]]
    for vocabulary in (True, False):
        a, b = plain_loss(plain, chosen[0], vocabulary).item(), our_loss(ours, chosen[0], vocabulary).item()
        if abs(a - b) > 1e-4 * max(1.0, abs(a)):
            raise SystemExit(f"the two do not compute the same: {a} and {b}")
    tokens = sum(batch.tokens for batch in chosen)
    fused = torch.optim.AdamW(plain.parameters(), fused=True)
    kinds: dict[str, tuple[nn.Module, Callable[[Batch, bool], Tensor], torch.optim.Optimizer]] = {
        "plain": (plain, lambda b, v: plain_loss(plain, b, v), torch.optim.AdamW(plain.parameters())),
        "plain, fused AdamW": (plain, lambda b, v: plain_loss(plain, b, v), fused),
        "heedful": (ours, lambda b, v: our_loss(ours, b, v), torch.optim.AdamW(ours.parameters(), fused=True)),
    }
    speeds: dict[bool, dict[str, list[float]]] = {v: {name: [] for name in kinds} for v in (True, False)}
    for turn in range(args.rounds + 1):  # the first warms up and is left out
        for vocabulary in (True, False):
            spent = dict.fromkeys(kinds, 0.0)
            for i, batch in enumerate(chosen):
                for name in sorted(kinds, reverse=i % 2 == 1):  # in turn, batch by batch: the machine's moods hit both
                    model, found, optimizer = kinds[name]
                    begin = time.perf_counter()
                    optimizer.zero_grad()
                    found(batch, vocabulary).backward()  # type: ignore[no-untyped-call]
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    spent[name] += time.perf_counter() - begin
            if turn:
                for name in kinds:
                    speeds[vocabulary][name].append(tokens / spent[name])
    for vocabulary, found_speeds in speeds.items():
        record: dict[str, object] = {"step": "whole" if vocabulary else "without the vocabulary projection"}
        for name, values in found_speeds.items():
            ratios = [ours / theirs for ours, theirs in zip(found_speeds["heedful"], values, strict=True)]
            record[name] = {
                "tokens_per_second": round(statistics.median(values)),
                "heedful_is_faster_by": round(statistics.median(ratios), 3),
                "lowest_and_highest": [round(min(ratios), 3), round(max(ratios), 3)],
            }
        print(json.dumps(record))
    where = {"machine": platform.processor() or platform.machine(), "threads": args.threads, "torch": torch.__version__}
    print(json.dumps({"padding": round(padding(batches), 4), **where}))


if __name__ == "__main__":
    main()
