"""Small tasks learned end to end to a stated accuracy: every score, every cell, both orders; what attention cures."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from small_runs import pad

from heedful.config import FixedConfig, RecurrentConfig, RnnConfig
from heedful.data.batches import Batch
from heedful.decoding import greedy
from heedful.models import Network, build
from heedful.observe import read_attention
from heedful.text import END, START
from heedful.training.step import loss

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = range(4, 12)  # after <pad>, <unk>, <s>, </s>
SHORT, LONG = (3, 6), (10, 14)
SIZE = {"width": 32, "embedding": 16, "dropout": 0.0}

SCORES = ("dot", "scaled", "general", "additive", "concat")
QUICK = [
    ("dot", "rnn", "luong"),
    ("scaled", "rnn", "bahdanau"),
    ("general", "gru", "luong"),
    ("additive", "gru", "bahdanau"),
    ("concat", "lstm", "luong"),
]
FIRST = (("dot", "rnn", "luong"), ("additive", "gru", "bahdanau"))  # those that `make test` runs
REST = sorted(set(product(SCORES, ("rnn", "lstm", "gru"), ("bahdanau", "luong"))) - set(QUICK))


def sentences(task: str, count: int, lengths: tuple[int, int], random: np.random.Generator) -> Batch:
    words = random.integers(WORDS.start, WORDS.stop, (count, lengths[1])).tolist()
    rows = [row[:n] for row, n in zip(words, random.integers(*lengths, count, endpoint=True), strict=True)]
    wanted = rows if task == "copy" else [row[::-1] for row in rows]
    return Batch(
        pad([(*row, END) for row in rows]),
        pad([(START, *row, END) for row in wanted]),
        np.arange(count),
        sum(map(len, rows)) + count,
    )


@cache
def learn(config: RecurrentConfig, task: str, lengths: tuple[int, int], steps: int, count: int = 64) -> Network:
    """Learn from batches of `count` sentences, new ones at every step; the rate rises, stays and falls."""
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    model = build(config, WORDS.stop, WORDS.stop).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), fused=True)
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = 0.005 * min(1.0, step / 20, (steps + 1 - step) / (0.3 * steps))
        mean = loss(model, sentences(task, count, lengths, random)).mean
        optimizer.zero_grad()
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def exact(model: Network, task: str, lengths: tuple[int, int], count: int = 200) -> float:
    """How many of the sentences held out are written without a mistake."""
    held = sentences(task, count, lengths, np.random.default_rng(99))
    written = greedy(model, model.encode(held.x, held.x != 0), [lengths[1] + 2] * count)
    wanted = [tuple(w for w in y[1:] if w) for y in held.y.tolist()]
    return sum(h.ids == y for h, y in zip(written, wanted, strict=True)) / count


def check(score: str, cell: str, order: str, task: str, steps: int) -> None:
    config = RnnConfig(score=score, cell=cell, order=order, **SIZE)
    assert exact(learn(config, task, SHORT, steps), task, SHORT) >= 0.95


@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize(
    ("score", "cell", "order"),
    [each if each in FIRST else pytest.param(*each, marks=pytest.mark.slow) for each in QUICK],
)
def test_copying_and_reversing_are_learned(score, cell, order, task):
    # states are small and √D makes their products smaller still: the scaled score takes longer to find its place
    check(score, cell, order, task, 400 if score == "scaled" else 200)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["copy", "reverse"])
@pytest.mark.parametrize(("score", "cell", "order"), REST)
def test_copying_and_reversing_are_learned_by_all_the_others(score, cell, order, task):
    check(score, cell, order, task, 1000)


@pytest.mark.slow
def test_a_fixed_context_forgets_what_attention_remembers():
    """The same size, the same steps, the same sentences; and the fixed context is no fool when they are short."""
    attention, fixed = RnnConfig(**SIZE), FixedConfig(context="every", **SIZE)
    assert exact(learn(attention, "copy", LONG, 300, count=32), "copy", LONG) >= 0.9
    assert exact(learn(fixed, "copy", LONG, 300, count=32), "copy", LONG) <= 0.2
    assert exact(learn(fixed, "copy", (1, 3), 300, count=32), "copy", (1, 3)) >= 0.9


def test_reversing_looks_along_the_other_diagonal():
    model = learn(RnnConfig(score="additive", cell="gru", order="bahdanau", **SIZE), "reverse", SHORT, 200)
    held = sentences("reverse", 50, SHORT, np.random.default_rng(7))
    targets = [[w for w in y[1:] if w] for y in held.y.tolist()]
    hits = words = 0
    for reading in read_attention(model, model.encode(held.x, held.x != 0), targets):
        looked = reading.weights[0, 0, :-1].argmax(-1)  # </s> may look where it likes
        n = len(looked)
        hits += int((looked == np.arange(n)[::-1]).sum())
        words += n
    assert hits / words >= 0.9
