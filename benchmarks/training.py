"""Target tokens per second in training, beside a straightforward PyTorch loop over nn.GRUCell or nn.LSTMCell.

python benchmarks/training.py --data DIR     (DIR/multi30k holds train.en.gz and train.de.gz)

Additive attention, hidden 256 (encoder 256 per direction), embeddings 256, vocabularies of 8,000, Multi30k English to
German, batches of 2,048 tokens. `gru` is heedful's default: Bahdanau's order, s_t and c_t write the word. `lstm` is
what Joey NMT trains by that name: Luong's order with input feeding, 8.6 M weights. Three take each batch in turn: the
plain loop, heedful's own plain loop with a packed encoder, and heedful as it trains. All have the same weights, must
give the same loss before anything is timed, and use the fused AdamW. The ratios are taken within a round, and medians
over rounds are printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import RnnConfig, TextConfig
from heedful.data import read_lines
from heedful.data.batches import Batch, Batches
from heedful.data.corpus import Corpus
from heedful.models import Network, build
from heedful.text import START, Codec
from heedful.training.step import loss

V, D = 8000, 256
GRU = RnnConfig(width=D, encoder_width=D, embedding=D, dropout=0.0)
CONFIGS = {"gru": GRU, "lstm": replace(GRU, cell="lstm", order="luong")}


class Plain(nn.Module):
    """What a good tutorial would write: a packed encoder, keys projected once, a loop over cells."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.lstm = kind == "lstm"
        self.source, self.target = nn.Embedding(V, D), nn.Embedding(V, D)
        self.encoder = (nn.LSTM if self.lstm else nn.GRU)(D, D, batch_first=True, bidirectional=True)
        self.bridge = nn.ModuleList(nn.Linear(2 * D, D) for _ in range(1 + self.lstm))
        self.W, self.U, self.v = nn.Linear(D, D, bias=False), nn.Linear(2 * D, D), nn.Linear(D, 1, bias=False)
        self.cell = nn.LSTMCell(2 * D, D) if self.lstm else nn.GRUCell(3 * D, D)
        self.mix = nn.Linear(3 * D, D) if self.lstm else None
        self.output = nn.Linear(D if self.lstm else 3 * D, V)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x (B, S), y (B, T) -> what writes the words, (B, T, …)."""
        keep = x != 0
        packed = nn.utils.rnn.pack_padded_sequence(self.source(x), keep.sum(1), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        k, e, known = self.U(h), self.target(y), []

        def ask(s: Tensor) -> Tensor:
            scores = self.v(torch.tanh(self.W(s)[:, None] + k))[..., 0].masked_fill(~keep, -torch.inf)
            return torch.bmm(torch.softmax(scores, dim=-1)[:, None], h)[:, 0]

        ends = [torch.cat([side[0], side[1]], dim=-1) for side in (last if self.lstm else (last,))]
        s = torch.tanh(self.bridge[0](ends[0]))
        if self.mix is None:
            for t in range(y.shape[1]):
                c = ask(s)
                s = self.cell(torch.cat([e[:, t], c], dim=-1), s)
                known.append(torch.cat([s, c], dim=-1))
        else:
            m, a = self.bridge[1](ends[1]), torch.zeros_like(s)
            for t in range(y.shape[1]):
                s, m = self.cell(torch.cat([e[:, t], a], dim=-1), (s, m))
                a = torch.tanh(self.mix(torch.cat([s, ask(s)], dim=-1)))
                known.append(a)
        return torch.stack(known, dim=1)


def copy_weights(plain: Plain, ours: Network) -> None:
    """Give heedful's model the weights of the plain one."""
    p = plain.state_dict()
    parts = {"source": "encoder.embedding", "encoder": "encoder.rnn", "bridge": "bridge.W", "target": "embedding"}
    parts |= {"W": "score.W", "U": "score.U", "output": "output.W", "mix": "mix"}
    renamed = {
        f"{parts[first]}.{rest}": tensor
        for (first, _, rest), tensor in ((n.partition("."), t) for n, t in p.items())
        if first in parts
    }
    renamed |= {
        "score.v": p["v.weight"][0],
        "stack.cells.0.W.0.weight": p["cell.weight_ih"][:, :D],
        "stack.cells.0.W.0.bias": p["cell.bias_ih"],
        "stack.cells.0.W.1.weight": p["cell.weight_ih"][:, D:],
        "stack.cells.0.U.weight": p["cell.weight_hh"],
        "stack.cells.0.U.bias": p["cell.bias_hh"],
    }
    ours.load_state_dict(renamed)


def step_by_step(ours: Network) -> Network:
    """Keep heedful's model from taking all steps in one operation, and its encoder from doing so."""
    ours.unrolls = lambda *_: False  # type: ignore[assignment]
    ours.encoder._learn = ours.encoder._packed  # type: ignore[union-attr]
    return ours


def plain_loss(plain: Plain, batch: Batch) -> Tensor:
    """The plain model's loss."""
    hidden = plain(batch.x, batch.y[:, :-1])
    return F.cross_entropy(plain.output(hidden).flatten(0, 1), batch.y[:, 1:].flatten(), ignore_index=0)


def read(data: Path, tokens: int) -> Batches:
    """Multi30k in batches."""
    sides = [[line.strip() for line in read_lines(data / "multi30k" / f"train.{lang}.gz")] for lang in ("en", "de")]
    ids = [[e.ids for e in Codec.train(side, TextConfig(size=V)).encode_all(side)] for side in sides]
    return Batches(Corpus.of(*ids), start=START, tokens=tokens, sentences=10**6, seed=1)


def padding(batches: Batches) -> float:
    """Return the share of padding among all source and target positions of an epoch."""
    total = filled = 0
    for rows in batches.epoch(0):
        batch = batches.batch(rows)
        total += batch.x.numel() + batch.y[:, 1:].numel()
        filled += int((batch.x != 0).sum()) + batch.tokens
    return 1 - filled / total


Contestant = tuple[nn.Module, Callable[[Batch], Tensor], torch.optim.Optimizer]


def contestants(kind: str, first: Batch) -> dict[str, Contestant]:
    """Return who takes part; stop if they do not compute the same."""
    torch.manual_seed(1)
    plain, ours, slow = Plain(kind), build(CONFIGS[kind], V, V), step_by_step(build(CONFIGS[kind], V, V))
    losses: dict[str, tuple[nn.Module, Callable[[Batch], Tensor]]] = {
        "plain": (plain, lambda batch: plain_loss(plain, batch)),
        "heedful, step by step": (slow, lambda batch: loss(slow, batch).mean),
        "heedful": (ours, lambda batch: loss(ours, batch).mean),
    }
    for model in (ours, slow):
        copy_weights(plain, model)
    found = {name: take(first).item() for name, (_, take) in losses.items()}
    if max(found.values()) - min(found.values()) > 1e-4:
        raise SystemExit(f"they do not compute the same: {found}")
    return {name: (*both, torch.optim.AdamW(both[0].parameters(), fused=True)) for name, both in losses.items()}


def race(kinds: dict[str, Contestant], chosen: list[Batch], rounds: int) -> dict[str, list[float]]:
    """Return the target tokens per second of each in every round; one more round warms up."""
    speeds: dict[str, list[float]] = {name: [] for name in kinds}
    tokens = sum(batch.tokens for batch in chosen)
    for turn in range(rounds + 1):
        spent = dict.fromkeys(kinds, 0.0)
        for i, batch in enumerate(chosen):
            for name in sorted(kinds, reverse=i % 2 == 1):  # in turn, batch by batch: the machine's moods hit all
                model, take, optimizer = kinds[name]
                begin = time.perf_counter()
                optimizer.zero_grad()
                take(batch).backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                spent[name] += time.perf_counter() - begin
        for name in kinds if turn else ():
            speeds[name].append(tokens / spent[name])
    return speeds


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--cells", default="lstm,gru")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--tokens", type=int, default=2048, help="tokens in a batch")
    options.add_argument("--batches", type=int, default=16, help="batches in a round")
    options.add_argument("--rounds", type=int, default=7)
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    batches = read(args.data, args.tokens)
    chosen = [batches.batch(rows) for rows in islice(batches.epoch(0), args.batches)]
    for kind in args.cells.split(","):
        kinds = contestants(kind, chosen[0])
        speeds = race(kinds, chosen, args.rounds)
        weights = sum(weight.numel() for weight in kinds["heedful"][0].parameters())
        record: dict[str, object] = {"cell": kind, "weights": weights}
        for name, values in speeds.items():
            ratios = [ours / theirs for ours, theirs in zip(speeds["heedful"], values, strict=True)]
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
