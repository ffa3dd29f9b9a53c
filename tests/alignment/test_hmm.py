"""The hidden Markov model against the sum over all alignments, one by one."""

from itertools import product

import numpy as np
import pytest

from heedful.alignment.statistical import REACH, Jumps, cooccurrence, encode_side, posterior


def by_enumeration(words, nothing, jumps, empty):
    """Where words come from, and which jumps are made, by adding up all ways.  words (T, S), nothing (T,)."""
    steps, places = words.shape
    links, none, between = np.zeros((steps, places)), np.zeros(steps), np.zeros(2 * REACH + 1)
    start = jumps.start[:places] / jumps.start[:places].sum()
    matrix = np.array([[jumps.between[REACH + b - a] for b in range(places)] for a in range(places)])
    matrix /= matrix.sum(1, keepdims=True)
    total = 0.0
    # The place before the first word is drawn as its own would be, and kept if the first words come from nothing.
    for first, *way in product(range(places), *[[*range(places), None]] * steps):
        p, at, made = start[first], first, []
        for t, place in enumerate(way):
            if place is None:
                p *= empty * nothing[t]
                continue
            p *= (1 - empty) * words[t, place] * (start[place] if t == 0 else matrix[at, place])
            made += [REACH + place - at] if t else []
            at = place
        total += p
        for t, place in enumerate(way):
            if place is None:
                none[t] += p
            else:
                links[t, place] += p
        np.add.at(between, made, p)
    return links / total, none / total, between / total


def test_all_ways_are_added_up():
    chance = np.random.default_rng(3)
    jumps = Jumps(chance.random(2 * REACH + 1) + 0.1, chance.random(REACH + 1) + 0.1)
    lengths = [(3, 4), (4, 2), (2, 3), (1, 1)]  # places, steps
    words = chance.random((4, 4, 4), np.float32)
    nothing = chance.random((4, 4), np.float32)
    keep = np.array([[s < places for s in range(4)] for places, _ in lengths])
    steps = np.array([[t < many for _, many in lengths] for t in range(4)])
    found = posterior(words * keep, nothing, keep, steps, jumps, 0.3)
    made = np.zeros(2 * REACH + 1)
    for b, (places, many) in enumerate(lengths):
        links, none, between = by_enumeration(words[:many, b, :places], nothing[:many, b], jumps, 0.3)
        np.testing.assert_allclose(found.links[:many, b, :places], links, atol=1e-5)
        np.testing.assert_allclose(found.nothing[:many, b], none, atol=1e-5)
        assert not found.links[many:, b].any()
        assert not found.links[:, b, places:].any()
        made += between
    np.testing.assert_allclose(found.jumps.between, made, atol=1e-4)
    np.testing.assert_allclose(found.jumps.start[:4], found.links[0].sum(0), atol=1e-5)


def test_level_jumps_are_model_one():
    chance = np.random.default_rng(4)
    words, nothing = chance.random((3, 1, 5), np.float32), chance.random((3, 1), np.float32)
    found = posterior(words, nothing, np.ones((1, 5), bool), np.ones((3, 1), bool), Jumps.uniform(), 0.2)
    linked = 0.8 * words / 5
    expected = linked / (linked.sum(2, keepdims=True) + 0.2 * nothing[:, :, None])
    np.testing.assert_allclose(found.links, expected, rtol=1e-4)


def test_a_long_sentence_does_not_underflow():
    words = np.full((400, 1, 300), 1e-12, np.float32)
    keep, steps = np.ones((1, 300), bool), np.ones((400, 1), bool)
    found = posterior(words, np.full((400, 1), 1e-12, np.float32), keep, steps, Jumps.uniform().smoothed(), 0.2)
    np.testing.assert_allclose(found.links.sum(2) + found.nothing, 1, atol=1e-3)


def test_smoothing_leaves_no_jump_out():
    jumps = Jumps(np.eye(2 * REACH + 1)[REACH + 1], np.zeros(REACH + 1)).smoothed()
    assert jumps.between.argmax() == REACH + 1
    assert min(jumps.between.min(), jumps.start.min()) > 0
    assert jumps.between.sum() == pytest.approx(1)


@pytest.mark.parametrize("room", [62, 0])
def test_every_cell_knows_its_words(room, monkeypatch):
    """Also with so many different words that a key and its place have no room in one number."""
    monkeypatch.setattr("heedful.alignment.statistical.KEY_BITS", room)
    source, target = ["a b a", "", "c", "b c d e", "a"], ["X y", "z", "x X", "y", ""]
    x, y = encode_side(source), encode_side(target)
    pairs = cooccurrence(x, y, 1000)
    seen = set()
    for batch in pairs.batches:
        for b, row in enumerate(batch.rows):
            seen.add(int(row))
            words = source[row].split(), target[row].lower().split()
            for t, s in np.ndindex(batch.cells.shape[0], batch.cells.shape[2]):
                cell = batch.cells[t, b, s]
                if s >= len(words[0]) or t >= len(words[1]):
                    assert cell == len(batch.types)
                    continue
                kind = batch.types[cell]
                pair = x.vocabulary[pairs.source[kind]], y.vocabulary[pairs.target[kind]]
                assert pair == (words[0][s], words[1][t])
    assert seen == {0, 2, 3}
    assert len(set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))) == len(pairs.source) == 8
    assert not cooccurrence(x, y, 1).batches
