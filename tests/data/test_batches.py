"""Batches: every pair once, within the budget, the same for the same seed, with little padding and few shapes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batches import Batch, Batches, rounded
from heedful.data.corpus import Corpus, ImageArray, TokenArray

START, END = 2, 3
LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=40)


def sentences(lengths) -> list[list[int]]:
    """Sentences of given lengths, all different, none with a 0, each ending with END."""
    return [[10 + i] * (int(n) - 1) + [END] for i, n in enumerate(lengths)]


def batches(lengths, tokens=30, sentences_=8, seed=1) -> Batches:
    x, y = zip(*lengths, strict=True)
    return Batches(Corpus.of(sentences(x), sentences(y)), start=START, tokens=tokens, sentences=sentences_, seed=seed)


def plain(plan) -> list[list[int]]:
    return [rows.tolist() for rows in plan]


def by_hand() -> Batches:
    corpus = Corpus.of([[7, 3], [8, 8, 3]], [[5, 6, 3], [4, 3]])
    return Batches(corpus, start=START, tokens=24, sentences=9, seed=0)


def test_a_batch_by_hand():
    batch = by_hand().batch(np.array([1, 0]))
    assert batch.x.tolist() == [[8, 8, 3], [7, 3, 0]]
    assert batch.y.tolist() == [[2, 4, 3, 0], [2, 5, 6, 3]]
    assert batch.rows.tolist() == [1, 0]
    assert batch.tokens == 5  # 4 </s> and 5 6 </s>; <s> is not predicted


def test_a_fixed_batch_by_hand():
    # 8 positions are the fewest, and three sentences of 8 tokens fit into 24.
    batch = by_hand().batch(np.array([1, 0]), fixed=True)
    nothing = [0] * 8
    assert batch.x.tolist() == [[8, 8, 3, 0, 0, 0, 0, 0], [7, 3, 0, 0, 0, 0, 0, 0], nothing]
    assert batch.y.tolist() == [[2, 4, 3, 0, 0, 0, 0, 0, 0], [2, 5, 6, 3, 0, 0, 0, 0, 0], [*nothing, 0]]
    assert (batch.rows.tolist(), batch.tokens) == ([1, 0], 5)


def test_shares_of_a_batch_by_hand():
    data = by_hand()
    first, second, third = (data.batch(np.array([1, 0]), rank=rank, world=3) for rank in range(3))
    assert (first.x.tolist(), first.y.tolist(), first.tokens) == ([[8, 8, 3]], [[2, 4, 3, 0]], 2)
    assert (second.x.tolist(), second.y.tolist(), second.tokens) == ([[7, 3, 0]], [[2, 5, 6, 3]], 3)
    assert (third.x.tolist(), third.y.tolist(), third.tokens, len(third.rows)) == ([[0] * 3], [[0] * 4], 0, 0)
    assert data.tokens(np.array([1, 0])) == 5


@given(LENGTHS, st.integers(1, 100), st.integers(1, 10), st.integers(0, 5))
def test_every_pair_once_within_the_budget(lengths, tokens, most, epoch):
    data = batches(lengths, tokens, most)
    found = data.epoch(epoch)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert 1 <= len(rows) <= most
        batch = data.batch(rows, fixed=True)
        longer = max(batch.x.shape[1], batch.y.shape[1] - 1)  # <s> is given, not predicted
        assert longer * len(batch.x) <= tokens or len(batch.x) == 1
        # The number of sentences follows from the lengths.
        assert len(batch.x) == max(1, min(most, tokens // longer))


@given(LENGTHS, st.integers(1, 100), st.integers(1, 10), st.booleans())
def test_a_batch_holds_its_sentences_and_zeros(lengths, tokens, most, fixed):
    data = batches(lengths, tokens, most)
    sources, targets = (sentences(side) for side in zip(*lengths, strict=True))
    for rows in data.epoch(0):
        batch = data.batch(rows, fixed=fixed)
        assert batch.rows.tolist() == rows.tolist()
        for i, row in enumerate(rows):
            x, y = batch.x[i].tolist(), batch.y[i].tolist()
            assert x == sources[row] + [0] * (batch.x.shape[1] - len(sources[row]))
            assert y == [START, *targets[row]] + [0] * (batch.y.shape[1] - 1 - len(targets[row]))
        assert not batch.x[len(rows) :].any()
        assert not batch.y[len(rows) :].any()
        own = max(len(sources[r]) for r in rows), max(len(targets[r]) for r in rows)
        shape = batch.x.shape[1], batch.y.shape[1] - 1
        assert shape == (tuple(rounded(np.array(own))) if fixed else own)
        assert len(batch.x) == len(rows) or fixed
        assert batch.tokens == data.tokens(rows) == sum(len(targets[r]) for r in rows)


@given(LENGTHS, st.integers(20, 100), st.integers(1, 5), st.booleans())
def test_shares_make_the_whole(lengths, tokens, world, fixed):
    data = batches(lengths, tokens, 10)
    for rows in data.epoch(1):
        whole = data.batch(rows, fixed=fixed)
        shares = [data.batch(rows, rank=rank, world=world, fixed=fixed) for rank in range(world)]
        assert sum(share.tokens for share in shares) == whole.tokens
        for rank, share in enumerate(shares):
            count = len(share.rows)
            assert share.rows.tolist() == rows[rank::world].tolist()
            assert torch.equal(share.x[:count], whole.x[: len(rows)][rank::world])
            assert torch.equal(share.y[:count], whole.y[: len(rows)][rank::world])
            assert (share.x.shape[1], share.y.shape[1]) == (whole.x.shape[1], whole.y.shape[1])
            assert not share.x[count:].any()
            assert len(share.x) >= 1
        if fixed:
            assert len({len(share.x) for share in shares}) == 1


@given(LENGTHS, st.integers(0, 2**31 - 1), st.integers(0, 100))
def test_the_same_seed_gives_the_same_batches(lengths, seed, epoch):
    first, second = batches(lengths, seed=seed), batches(lengths, seed=seed)
    second.epoch(epoch + 1)  # an epoch needs nothing but its number: resuming skips the ones before
    assert plain(first.epoch(epoch)) == plain(second.epoch(epoch))


def realistic(count: int) -> np.ndarray:
    """Lengths like those of a corpus: most of some 15 tokens, a few of 100; sides that differ by a quarter."""
    random = np.random.default_rng(0)
    x = np.clip(random.lognormal(2.7, 0.6, count), 1, 200).astype(int)
    y = np.clip(x * random.lognormal(0, 0.25, count), 1, 200).astype(int)
    return np.stack([x, y], axis=1)


def corpus_of(lengths: np.ndarray) -> Corpus:
    """A corpus of such lengths, quickly."""
    ends = np.concatenate([np.zeros((1, 2), int), np.cumsum(lengths, axis=0)])
    return Corpus(*(TokenArray(np.ones(ends[-1, side], np.uint16), ends[:, side]) for side in (0, 1)))


def realistic_batches(count=20_000, tokens=2048, seed=1) -> Batches:
    return Batches(corpus_of(realistic(count)), start=START, tokens=tokens, sentences=256, seed=seed)


@pytest.mark.parametrize(("change", "number"), [({"seed": 2}, 0), ({}, 1)])
def test_another_seed_or_epoch_gives_another_order_and_mixture(change, number):
    first, other = plain(realistic_batches(5000).epoch(0)), plain(realistic_batches(5000, **change).epoch(number))
    assert first != other
    mixtures = {frozenset(rows) for rows in first}, {frozenset(rows) for rows in other}
    assert len(mixtures[0] & mixtures[1]) < len(first) / 2


def test_short_sentences_do_not_come_first():
    lengths = realistic(2000)
    longest = [lengths[rows].max() for rows in realistic_batches(2000, 400).epoch(0)]
    half = len(longest) // 2
    assert abs(np.mean(longest[:half]) - np.mean(longest[half:])) < 0.25 * np.mean(longest)
    assert longest != sorted(longest)


def test_batches_for_ever():
    # A run that is resumed with a later version goes on with the same batches.
    lengths = [(3, 2), (1, 4), (2, 2), (5, 5), (1, 1), (4, 3), (12, 9)]
    assert plain(batches(lengths, 24, 3).epoch(0)) == [[6], [4, 2, 0], [5, 1, 3]]
    assert plain(batches(lengths, 24, 3).epoch(1)) == [[1, 3], [2, 0, 5], [4], [6]]


@pytest.mark.parametrize("epoch", [0, 1])
def test_little_padding_and_few_shapes_on_lengths_like_a_corpus(epoch):
    lengths = realistic(20_000)
    found = realistic_batches().epoch(epoch)
    padded = sum(len(rows) * int(lengths[rows].max(axis=0).sum()) for rows in found)
    assert lengths.sum() / padded > 0.94
    # Full batches, too: no more of them than a fifth over what the tokens of the longer side need.
    assert len(found) < 1.2 * lengths.max(axis=1).sum() / 2048 + 1
    shapes = [tuple(rounded(lengths[rows].max(axis=0))) for rows in found]
    fixed = sum(min(256, 2048 // max(shape)) * sum(shape) for shape in shapes)
    assert lengths.sum() / fixed > 0.85
    assert len(set(shapes)) < 70


def test_the_grid_has_four_steps_to_a_doubling():
    steps = rounded(np.arange(1, 2000))
    assert sorted(set(steps.tolist()))[:14] == [8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80]
    assert (steps >= np.arange(1, 2000)).all()
    assert (steps[7:] <= 1.25 * np.arange(8, 2000)).all()


def test_a_sentence_over_the_budget_is_alone():
    found = plain(batches([(50, 2), *[(2, 2)] * 20], tokens=16).epoch(0))
    assert [0] in found
    assert max(map(len, found)) == 2


def test_a_plan_is_a_sequence():
    plan = realistic_batches(2000).epoch(0)
    every = plain(plan)
    assert len(every) == len(plan)
    assert plan[-1].tolist() == every[-1]
    with pytest.raises(IndexError):
        plan[len(plan)]


def test_sides_of_different_number_are_refused():
    with pytest.raises(ValueError, match="1 sources and 0 targets"):
        Corpus.of([[1]], [])


def test_no_pairs_no_batches():
    assert len(Batches(Corpus.of([], []), start=START, tokens=9, sentences=9, seed=0).epoch(0)) == 0


def test_a_batch_moves_whole():
    moved = Batch(torch.ones(1, 2), torch.ones(1, 3), np.array([0]), 2).to(torch.device("meta"))
    assert (moved.x.device.type, moved.y.device.type, moved.rows.tolist(), moved.tokens) == ("meta", "meta", [0], 2)


def test_where_a_pair_without_a_file_is():
    corpus = Corpus.of([[7, 3]], [[5, 3]])
    assert corpus.where(0) == "pair 1"


def test_an_epoch_of_many_pairs_needs_little_memory():
    import tracemalloc

    data = Batches(corpus_of(realistic(1_000_000)), start=START, tokens=4096, sentences=256, seed=1)
    tracemalloc.start()
    plan = data.epoch(0)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(plan[i]) for i in range(0, len(plan), 1000)) > 0
    assert peak < 50e6  # for ten million ten times as much: 500 MB
    assert kept < 10e6


@pytest.mark.parametrize("fixed", [False, True])
def test_images_kept_on_a_device_make_the_same_batches(fixed: bool) -> None:
    features = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float16)
    source = ImageArray(features, np.array([4, 0, 0, 2, 1, 3, 3]), 5)
    corpus = Corpus(source, TokenArray.of([[5, 6, 3], [7, 3], [5, 3], [8, 9, 3], [4, 3], [6, 3], [7, 8, 3]]))
    copied, kept = (Batches(corpus, start=2, tokens=100, sentences=3, seed=1) for _ in range(2))
    assert not kept.keep_images(torch.device("cpu"), features.nbytes - 1)
    assert kept.keep_images(torch.device("cpu"), features.nbytes)
    for rows in copied.epoch(0):
        a, b = (batches.batch(rows, fixed=fixed) for batches in (copied, kept))
        assert b.x.ndim == 1
        a, b = a.to(torch.device("cpu")), b.to(torch.device("cpu"))
        assert b.images is None
        assert torch.equal(a.x[: len(rows)], b.x[: len(rows)])
        assert a.x.shape == b.x.shape
        assert torch.equal(a.y, b.y)
        assert a.tokens == b.tokens
