"""Greedy decoding: over a table that is no model of ours, and over real ones with random weights."""

from __future__ import annotations

from math import log

import pytest
import torch
from decoding_models import CONFIGS, LENGTHS, Table, alone, make, sentences
from torch import Tensor

from heedful.decoding import greedy
from heedful.observe import read_attention
from heedful.text import END, PAD, START, UNKNOWN

A, B, V = 4, 5, 6  # two words after <pad>, <unk>, <s>, </s>


def table(**rows: tuple[float, ...]) -> Tensor:
    """Probabilities of pad, unk, <s>, </s>, a, b after the tokens named; elsewhere even, without <s>."""
    chances = torch.full((V, V), 1 / (V - 1)).index_fill(1, torch.tensor([START]), 0.0)
    for name, row in rows.items():
        chances[{"start": START, "a": A, "b": B}[name]] = torch.tensor(row)
    return chances


# <s> a b </s>
STRAIGHT = table(start=(0.1, 0.2, 0, 0.1, 0.5, 0.1), a=(0.2, 0.1, 0, 0.2, 0.1, 0.4), b=(0, 0, 0, 0.7, 0.2, 0.1))
# <s> b a b a … and never an end
ROUND = table(start=(0, 0, 0, 0.1, 0.1, 0.8), a=(0, 0, 0, 0.2, 0.2, 0.6), b=(0, 0, 0, 0.2, 0.5, 0.3))
# <s> </s>
SHORT = table(start=(0, 0, 0, 0.9, 0.1, 0))
# what may not be written is the most probable
SPECIAL = table(start=(0.5, 0, 0.2, 0, 0.25, 0.05), a=(0.4, 0, 0.3, 0.2, 0, 0.1))


def decode(tables: list[Tensor], limits: list[int]):
    model = Table()
    x = torch.stack(tables)
    return greedy(model, model.encode(x, torch.ones(x.shape[:2], dtype=torch.bool)), limits), model


def same(got, ids: list[int], chances: list[float]) -> None:
    assert got.ids == tuple(ids)
    assert got.log_probs == pytest.approx([log(p) for p in chances], abs=1e-5)


def test_a_sentence_by_hand():
    (straight,), _ = decode([STRAIGHT], [9])
    same(straight, [A, B, END], [0.5, 0.4, 0.7])


def test_a_batch_by_hand():
    (round_, short, straight), model = decode([ROUND, SHORT, STRAIGHT], [5, 5, 5])
    same(round_, [B, A, B, A, END], [0.8, 0.5, 0.6, 0.5, 0.2])
    same(short, [END], [0.9])
    same(straight, [A, B, END], [0.5, 0.4, 0.7])
    assert model.sizes == [3, 2, 2, 1, 1], "sentences that are done leave the batch"
    assert model.capacity == 5


def test_each_sentence_has_its_own_limit():
    limits = [1, 4, 2, 3, 2]
    found, _ = decode([ROUND, ROUND, STRAIGHT, STRAIGHT, ROUND], limits)
    same(found[0], [END], [0.1])
    same(found[1], [B, A, B, END], [0.8, 0.5, 0.6, 0.2])
    same(found[2], [A, END], [0.5, 0.2])
    same(found[3], [A, B, END], [0.5, 0.4, 0.7])
    same(found[4], [B, END], [0.8, 0.2])


def test_what_is_cut_short():
    limits = [5, 9, 3, 2, 4]
    found, _ = decode([ROUND, SHORT, STRAIGHT, STRAIGHT, ROUND], limits)
    # the third wanted to end in the last place there is
    assert [h.cut for h in found] == [True, False, False, True, True]


def test_padding_and_start_are_never_written():
    (special,), _ = decode([SPECIAL], [9])
    # <s> has no share, since it can follow nothing; otherwise the probabilities are the model's own, not shared out
    # among what is left
    same(special, [A, END], [0.25 / 0.8, 0.2 / 0.7])


def test_unknown_may_be_written():
    (unknown,), _ = decode([table(start=(0.1, 0.6, 0, 0.1, 0.1, 0.1))], [2])
    same(unknown, [UNKNOWN, END], [0.6, 1 / (V - 1)])


def test_no_sentences_give_none():
    model = Table()
    assert greedy(model, model.encode(torch.zeros(0, V, V), torch.ones(0, V, dtype=torch.bool)), []) == []


LIMITS = [4, 12, 1, 12, 9, 12]
models = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@models
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(config):
    model, (x, keep) = make(config), sentences()
    together = greedy(model, model.encode(x, keep), LIMITS)
    assert len({h.ids for h in together}) > 3, "the sentences are too alike to tell them apart"
    for b, length in enumerate(LENGTHS):
        (single,) = greedy(model, model.encode(x[b : b + 1, :length], keep[b : b + 1, :length]), [LIMITS[b]])
        assert single.ids == together[b].ids
        assert single.log_probs == pytest.approx(together[b].log_probs, abs=1e-4)


@models
@pytest.mark.parametrize("last", range(len(LENGTHS)))
@torch.no_grad()
def test_the_last_of_a_batch_still_has_its_padding(config, last):
    model, (x, keep) = make(config), sentences()
    limits = [9 if b == last else 1 for b in range(len(LENGTHS))]
    together = greedy(model, model.encode(x, keep), limits)
    (single,) = greedy(model, alone(model, x, keep, last), [9])
    assert single.ids == together[last].ids
    assert single.log_probs == pytest.approx(together[last].log_probs, abs=1e-4)


@models
@torch.no_grad()
def test_what_is_written_is_well_formed(config):
    model, (x, keep) = make(config), sentences()
    found = greedy(model, model.encode(x, keep), LIMITS)
    for hypothesis, limit in zip(found, LIMITS, strict=True):
        assert 1 <= len(hypothesis.ids) <= limit
        assert len(hypothesis.log_probs) == len(hypothesis.ids)
        assert hypothesis.ids.index(END) == len(hypothesis.ids) - 1
        assert not {PAD, START} & set(hypothesis.ids)


@models
@torch.no_grad()
def test_log_probs_are_those_of_reading_it_again(config):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    found = greedy(model, memory, LIMITS)
    for hypothesis, reading in zip(found, read_attention(model, memory, [h.ids for h in found]), strict=True):
        assert hypothesis.log_probs == pytest.approx(reading.log_probs.tolist(), abs=1e-4)


@models
@torch.no_grad()
def test_each_word_is_the_most_probable(config):
    model, (x, keep) = make(config), sentences()
    for b, length in enumerate(LENGTHS):
        memory = model.encode(x[b : b + 1, :length], keep[b : b + 1, :length])
        (found,) = greedy(model, memory, [LIMITS[b]])
        y = torch.tensor([[START, *found.ids[:-1]]])
        logits = model.logits(model.step(y, model.start(memory, y.shape[1]), memory).hidden)[0]
        logits[:, [PAD, START]] = -torch.inf
        best = logits.argmax(-1).tolist()
        assert best[:-1] == list(found.ids[:-1])
        assert found.ids[-1] == END
        assert best[-1] == END or len(found.ids) == LIMITS[b]


@torch.no_grad()
def test_the_gradient_is_not_kept():
    model, (x, keep) = make(CONFIGS["bahdanau"]), sentences()
    with torch.enable_grad():
        memory = model.encode(x, keep)
        found = greedy(model, memory, LIMITS)
    assert isinstance(found[0].log_probs[0], float)
    assert all(weight.grad is None for weight in model.parameters())
