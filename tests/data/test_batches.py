"""Batches: every pair once, within the budget, the same for the same seed, with little padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import Batch, Batches, pad

START, END = 2, 3
LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=40)


def sentences(lengths) -> list[list[int]]:
    """Sentences of given lengths, all different, none with a 0, each ending with END."""
    return [[10 + i] * (int(n) - 1) + [END] for i, n in enumerate(lengths)]


def batches(lengths, tokens=30, sentences_=8, seed=1) -> Batches:
    x, y = zip(*lengths, strict=True)
    return Batches(sentences(x), sentences(y), start=START, tokens=tokens, sentences=sentences_, seed=seed)


def test_pad_by_hand():
    assert pad([[1, 2, 3], [4], [5, 6]]).tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert pad([(1,), (2, 3)], value=9).tolist() == [[1, 9], [2, 3]]
    assert pad([[1]]).dtype == torch.long


def test_a_batch_by_hand():
    data = Batches([[7, 3], [8, 8, 3]], [[5, 6, 3], [4, 3]], start=START, tokens=9, sentences=9, seed=0)
    batch = data.batch([1, 0])
    assert batch.x.tolist() == [[8, 8, 3], [7, 3, 0]]
    assert batch.y.tolist() == [[2, 4, 3, 0], [2, 5, 6, 3]]
    assert batch.rows == (1, 0)
    assert batch.tokens == 5  # 4 </s> and 5 6 </s>; <s> is not predicted


@given(LENGTHS, st.integers(1, 60), st.integers(1, 10), st.integers(0, 5))
def test_every_pair_once_within_the_budget(lengths, tokens, most, epoch):
    data = batches(lengths, tokens, most)
    found = data.epoch(epoch)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert 1 <= len(rows) <= most
        batch = data.batch(rows)
        longer = max(batch.x.shape[1], batch.y.shape[1] - 1)  # <s> is given, not predicted
        assert longer * len(rows) <= tokens or len(rows) == 1


@given(LENGTHS, st.integers(1, 60), st.integers(1, 10))
def test_a_batch_holds_its_sentences_and_zeros_on_the_right(lengths, tokens, most):
    data = batches(lengths, tokens, most)
    for rows in data.epoch(0):
        batch = data.batch(rows)
        assert batch.rows == rows
        for i, row in enumerate(rows):
            x, y = batch.x[i].tolist(), batch.y[i].tolist()
            assert x == data.sources[row] + [0] * (batch.x.shape[1] - len(data.sources[row]))
            assert y == [START, *data.targets[row]] + [0] * (batch.y.shape[1] - 1 - len(data.targets[row]))
        assert batch.x[:, -1].any()  # no wider than the longest
        assert batch.y[:, -1].any()
        assert batch.tokens == sum(len(data.targets[r]) for r in rows)


@given(LENGTHS, st.integers(0, 2**31 - 1), st.integers(0, 100))
def test_the_same_seed_gives_the_same_batches(lengths, seed, epoch):
    first, second = batches(lengths, seed=seed), batches(lengths, seed=seed)
    second.epoch(epoch + 1)  # an epoch needs nothing but its number: resuming skips the ones before
    assert first.epoch(epoch) == second.epoch(epoch)


def realistic(count: int) -> list[tuple[int, int]]:
    """Lengths like those of a corpus: most of some 15 tokens, a few of 100; sides that differ by a quarter."""
    random = np.random.default_rng(0)
    x = np.clip(random.lognormal(2.7, 0.6, count), 1, 200).astype(int)
    y = np.clip(x * random.lognormal(0, 0.25, count), 1, 200).astype(int)
    return list(zip(x.tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize(("change", "number"), [({"seed": 2}, 0), ({}, 1)])
def test_another_seed_or_epoch_gives_another_order_and_mixture(change, number):
    lengths = realistic(5000)
    first, other = batches(lengths, 2048, 256).epoch(0), batches(lengths, 2048, 256, **change).epoch(number)
    assert first != other
    mixtures = {frozenset(rows) for rows in first}, {frozenset(rows) for rows in other}
    assert len(mixtures[0] & mixtures[1]) < len(first) / 2


def test_short_sentences_do_not_come_first():
    data = batches(realistic(2000), 400, 64)
    longest = [max(len(data.targets[r]) for r in rows) for rows in data.epoch(0)]
    half = len(longest) // 2
    assert abs(np.mean(longest[:half]) - np.mean(longest[half:])) < 0.25 * np.mean(longest)
    assert longest != sorted(longest)


def test_batches_for_ever():
    # A run that is resumed with a later version goes on with the same batches.
    lengths = [(3, 2), (1, 4), (2, 2), (5, 5), (1, 1), (4, 3)]
    assert batches(lengths, 10, 3).epoch(0) == [(3,), (4, 0, 2), (5, 1)]
    assert batches(lengths, 10, 3).epoch(1) == [(1, 3), (2, 5), (4, 0)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_little_padding_on_lengths_like_a_corpus(epoch):
    lengths = np.array(realistic(20_000))
    data = batches(lengths.tolist(), 2048, 256)
    found = data.epoch(epoch)
    padded = sum(len(rows) * int(lengths[list(rows)].max(axis=0).sum()) for rows in found)
    assert lengths.sum() / padded > 0.9
    # Full batches, too: no more of them than a fifth over what the tokens of the longer side need.
    assert len(found) < 1.2 * lengths.max(axis=1).sum() / 2048 + 1


def test_a_sentence_over_the_budget_is_alone():
    found = batches([(50, 2), (2, 2), (2, 2)], tokens=10).epoch(0)
    assert sorted(map(sorted, found)) == [[0], [1, 2]]


def test_sides_of_different_number_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        Batches([[1]], [], start=START, tokens=9, sentences=9, seed=0)


def test_no_pairs_no_batches():
    assert Batches([], [], start=START, tokens=9, sentences=9, seed=0).epoch(0) == []


def test_a_batch_moves_whole():
    moved = Batch(torch.ones(1, 2), torch.ones(1, 3), (0,)).to(torch.device("meta"))
    assert (moved.x.device.type, moved.y.device.type, moved.rows) == ("meta", "meta", (0,))
