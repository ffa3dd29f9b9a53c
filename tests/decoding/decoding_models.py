"""Small models for the tests of decoding, every output of them, and beam search in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from torch import Tensor

from heedful.attention import until
from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.decoding import Decoding
from heedful.models import Memory, NeedWeights, Step, build
from heedful.text import END, PAD, START

LENGTHS = [3, 7, 1, 5, 7, 2]
CONFIGS: dict[str, ModelConfig] = {
    "bahdanau": RnnConfig(width=8, embedding=6, layers=2, score="additive", cell="gru"),
    "luong": RnnConfig(width=8, embedding=6, score="general", order="luong", cell="lstm", tied=True),
    "dot": RnnConfig(width=8, embedding=6, score="dot", order="luong", cell="rnn", feed=False),
    "first": FixedConfig(width=8, embedding=6, cell="lstm", context="first"),
    "every": FixedConfig(width=8, embedding=6, cell="gru", context="every"),
    "transformer": TransformerConfig(layers=2, width=8, heads=2, inner=12, bias=True),
    "ssru": TransformerConfig(layers=1, decoder_layers=2, width=8, heads=2, inner=12, cell="ssru"),
    "ssru post": TransformerConfig(
        layers=1, width=8, heads=2, inner=12, norm="post", tied="none", cell="ssru", positions="marian"
    ),
    "recurrent ssru": RnnConfig(width=8, embedding=6, layers=2, cell="ssru"),
    "post": TransformerConfig(layers=1, decoder_layers=2, width=8, heads=4, inner=12, norm="post", tied="none"),
}
FEW = {name: CONFIGS[name] for name in ("bahdanau", "every", "transformer")}


def make(config: ModelConfig, vocabulary: int = 12, seed: int = 3, spread: float = 0.8):
    """A model with random weights, far from the start, where all words are about as probable."""
    torch.manual_seed(seed)
    model = build(config, vocabulary, vocabulary).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=spread)
    return model


def sentences(vocabulary: int = 12, lengths: Sequence[int] = LENGTHS) -> tuple[Tensor, Tensor]:
    """Random sources with padding on the right: x (B, S), keep (B, S)."""
    keep = until(torch.tensor(lengths))
    x = torch.randint(4, vocabulary, keep.shape, generator=torch.Generator().manual_seed(2))
    return x.masked_fill(~keep, PAD), keep


def alone(model, x: Tensor, keep: Tensor, b: int) -> Memory:
    """Sentence b without the others, and without padding."""
    size = int(keep[b].sum())
    with torch.no_grad():
        return model.encode(x[b : b + 1, :size], keep[b : b + 1, :size])


@dataclass(frozen=True)
class Told:
    """Which sentence a row belongs to, and how many tokens it has read."""

    who: Tensor
    read: Tensor

    def select(self, rows: Tensor) -> Told:
        return Told(self.who[rows], self.read[rows])


@dataclass
class Table:
    """A `Seq2Seq` without weights: memory.h[b, y] are the probabilities of what follows y in sentence b.

    They may be different at each step: memory.h[b, t, y].
    """

    sizes: list[int] = field(default_factory=list)
    capacity: int = -1

    def encode(self, x: Tensor, keep: Tensor | None = None, need_weights: NeedWeights | None = None) -> Memory:
        """Each sentence is its table; its number goes into `last`."""
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
        return Memory(x, keep, (), (torch.arange(len(x)),))

    def start(self, memory: Memory, capacity: int) -> Told:
        self.capacity = capacity
        return Told(memory.last[0], torch.zeros(len(memory.h), dtype=torch.long))

    def step(self, y: Tensor, state: Told, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        K = len(y) // len(memory.h)
        assert torch.equal(state.who, memory.last[0].repeat_interleave(K)), "state and memory: different sentences"
        assert need_weights is None, "weights are not needed for writing"
        assert bool((state.read < self.capacity).all()), "more tokens than were announced"
        self.sizes.append(len(y))
        row = torch.arange(len(memory.h)).repeat_interleave(K)[:, None]
        hidden = memory.h[row, y] if memory.h.dim() == 3 else memory.h[row, state.read[:, None], y]
        return Step(hidden, Told(state.who, state.read + y.shape[1]), None)

    def logits(self, hidden: Tensor) -> Tensor:
        # whatever is added to all logits must not matter
        return hidden.log() + 3.0


def random_tables(count: int, vocabulary: int, seed: int, sharp: float = 1.5, steps: int = 12) -> Tensor:
    """Tables (count, steps, V, V) with likely words and unlikely ones; `<s>` and `<pad>` have a share, too.

    They differ a little from step to step: the same pairs of words in another order would be exactly as probable else.
    """
    chance = torch.Generator().manual_seed(seed)
    always = torch.randn(count, 1, vocabulary, vocabulary, generator=chance)
    once = torch.randn(count, steps, vocabulary, vocabulary, generator=chance)
    return torch.softmax(sharp * (always + 0.3 * once), -1)


Following = Callable[[tuple[int, ...]], list[float]]


def following(model, memory: Memory) -> Following:
    """The log-probabilities of all words after some, for the one sentence of a memory; read from the start each time.

    `<s>` has no share.
    """

    if isinstance(model, Table):
        tables = _log_probs(memory.h[0]).tolist()
        return lambda ids: (tables[len(ids)] if memory.h.dim() == 4 else tables)[ids[-1] if ids else START]

    @cache
    def after(ids: tuple[int, ...]) -> list[float]:
        y = torch.tensor([[START, *ids]])
        with torch.no_grad():
            logits = model.logits(model.step(y, model.start(memory, y.shape[1]), memory).hidden)[0, -1]
        return _log_probs(logits.exp()).tolist()

    return after


def _log_probs(shares: Tensor) -> Tensor:
    shares = shares.double().index_fill(-1, torch.tensor(START), 0.0)
    return (shares / shares.sum(-1, keepdim=True)).log()


def allowed(
    chances: list[float], ids: tuple[int, ...], limit: int, how: Decoding, prefix: Sequence[int] = ()
) -> dict[int, float]:
    """The log-probabilities of the words that may follow `ids`."""
    t = len(ids)
    if t < len(prefix):
        return {prefix[t]: chances[prefix[t]]}
    if t == limit - 1:
        return {END: chances[END]}
    n = how.no_repeat
    seen = {ids[i : i + n] for i in range(t - n + 1)} if n else set()
    free = {w: v for w, v in enumerate(chances) if w not in (PAD, START, END)}
    free = {w: v for w, v in free.items() if not n or (*ids[t - n + 1 :], w) not in seen}
    if t >= how.min_length or not free:
        free[END] = chances[END]
    return free


def plain_beam(after: Following, limit: int, how: Decoding, prefix: Sequence[int] = (), n: int = 0) -> list[tuple]:
    """(score, ids) of the best n, or K, that a beam finds, best first, when it never stops before the limit."""
    K = how.beam
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done = []
    for t in range(limit):
        ahead = [
            (score + value, (*ids, word))
            for score, ids in live
            for word, value in allowed(after(ids), ids, limit, how, prefix).items()
        ]
        ahead = sorted(ahead, reverse=True)[: 2 * K]
        done += [(score / how.divisor(t + 1), ids) for score, ids in ahead[:K] if ids[-1] == END]
        live = [(score, ids) for score, ids in ahead if ids[-1] != END][:K]
    return sorted(done, reverse=True)[: n or K]


def plain_greedy(after: Following, limit: int, how: Decoding, prefix: Sequence[int] = ()) -> tuple[int, ...]:
    """The most probable word at every step."""
    ids: tuple[int, ...] = ()
    while END not in ids:
        free = allowed(after(ids), ids, limit, how, prefix)
        ids = (*ids, max(free, key=free.__getitem__))
    return ids


def outputs(after: Following, limit: int, how: Decoding, prefix: Sequence[int] = ()) -> dict[tuple[int, ...], float]:
    """Everything that may be written, with its log-probability."""
    found = {}
    waiting: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    while waiting:
        ids, score = waiting.pop()
        for word, value in allowed(after(ids), ids, limit, how, prefix).items():
            if word == END:
                found[(*ids, END)] = score + value
            else:
                waiting.append(((*ids, word), score + value))
    return found


def score(hypothesis, how: Decoding) -> float:
    """What a beam compares hypotheses by."""
    return sum(hypothesis.log_probs) / how.divisor(len(hypothesis.ids))


def same(found, wanted, how: Decoding) -> None:
    """The same hypotheses as [(score, ids), …], in the same order."""
    assert [h.ids for h in found] == [ids for _, ids in wanted]
    assert [score(h, how) for h in found] == pytest.approx([value for value, _ in wanted], abs=1e-4)
