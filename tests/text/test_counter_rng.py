"""Random numbers that follow from a key and a place alone."""

import numpy as np

from heedful.text.counter_rng import below, key, mixed, spread, uniform


def test_the_mixing_is_splitmix64():
    # The first numbers that are published for the seed 1234567.
    found = mixed(np.array([1234567], np.uint64), np.arange(1, 6))
    known = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)
    assert tuple(found.tolist()) == known


def test_keys_differ_in_every_part():
    keys = [key("a", 1), key("a", 2), key("b", 1), key("a1"), key("a", "1"), key("a", 1, 0), key("\ud800")]
    assert len(set(keys)) == len(keys)
    assert key("a", 1) == np.uint64(key("a", 1))


def test_all_numbers_come_equally_often():
    places = np.arange(64_000)
    for ends in (8, 32, 7):
        counts = np.bincount(below(np.atleast_1d(key("cut", 1, 0)), places, np.array([ends])), minlength=ends)
        assert counts.shape == (ends,)
        assert ((counts - 64_000 / ends) ** 2 / (64_000 / ends)).sum() < 3 * ends + 10  # χ² with ends - 1 degrees
    found = uniform(np.atleast_1d(key("u")), places)
    assert 0 <= found.min() <= found.max() < 1
    assert abs(found.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.02


def test_two_keys_have_nothing_in_common():
    places = np.arange(20_000)
    one, two = (below(np.atleast_1d(key("cut", 1, e)), places, np.array([32])) for e in (0, 1))
    assert abs((one == two).mean() - 1 / 32) < 0.01


def test_spread_by_hand():
    assert spread(np.array([4, 0], np.uint32), np.array([1, 3], np.uint16)).tolist() == [4, 0, 1, 2]
    assert spread(np.zeros(0), np.zeros(0)).tolist() == []
