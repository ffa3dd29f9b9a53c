"""Holding out: what is promised when a file grows, and that nothing leaks."""

import unicodedata
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.data import Pair
from heedful.data.store import among, hashes, sentence_key, split


def _hash(source: str, target: str) -> float:
    """A number from 0 to 1 that depends on the pair alone."""
    return int.from_bytes(blake2b(f"{source}\t{target}".encode(), digest_size=8).digest(), "big") / 2**64


def pair(n: int) -> Pair:
    return Pair(f"source {n}", f"target {n}")


UNDER = [pair(n) for n in range(3000) if _hash(*pair(n)[:2]) < 0.02]
OVER = [pair(n) for n in range(300) if _hash(*pair(n)[:2]) >= 0.02]
# Few sentences on each side, so that pairs share them.
MIXED = st.lists(
    st.builds(Pair, st.sampled_from("abcdefghijkl"), st.sampled_from("abcdefghijkl")), min_size=1, max_size=30
)
POOL = st.lists(st.sampled_from(UNDER) | st.sampled_from(OVER), min_size=1, max_size=30)


def hold_out(pairs, most=1000, duplicates=True):
    """Training and held-out pairs; None for a file that is too small."""
    found = split(hashes([p.source for p in pairs], [p.target for p in pairs]), duplicates)
    if not len(found.training):
        return None
    return [pairs[i] for i in found.training], [pairs[i] for i in found.held[:most]]


def naive(pairs, most=1000):
    """The same with Python's sets of sentences."""
    keys = [(sentence_key(p.source), sentence_key(p.target)) for p in pairs]
    order = {key: _hash(*key) for key in dict.fromkeys(keys)}
    smallest = min(order.values(), default=0.0)
    held = {key for key, value in order.items() if value < 0.02 or value == smallest}
    aside = {sentence for key in held for sentence in key}
    training = [p for p, key in zip(pairs, keys, strict=True) if aside.isdisjoint(key)]
    first = dict(zip(reversed(keys), reversed(pairs), strict=True))
    chosen = [first[key] for key in sorted(held, key=lambda key: order[key])[:most]]
    return (training, chosen) if training else None


def test_hash_by_hand():
    # blake2b of "a\tb" in 8 bytes; a run resumed with another version must find the same pairs.
    found = hashes(["a"], ["b"])
    assert [int(values[0]) for values in found] == [0x21F240A02AE87773, number("a"), number("b")]


def number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


@given(MIXED | POOL, st.integers(1, 3))
def test_the_same_as_with_sets_of_sentences(pairs, most):
    assert hold_out(pairs, most) == naive(pairs, most)


@given(MIXED | POOL)
def test_without_duplicates_the_first_of_each_stays(pairs):
    found = split(hashes([p.source for p in pairs], [p.target for p in pairs]), duplicates=False)
    first = {p[:2]: p for p in reversed(pairs)}
    once = [first[key] for key in dict.fromkeys(p[:2] for p in pairs)]
    assert [pairs[i] for i in found.first] == once
    assert found.distinct == len(once)
    assert hold_out(pairs, duplicates=False) == naive(once)


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_among(values, known):
    found = among(np.array(values, np.uint64), np.array(known, np.uint64))
    assert found.tolist() == [value in known for value in values]


def test_about_two_percent_are_held_out():
    training, held = hold_out([pair(n) for n in range(5000)], 1000)
    assert len(training) + len(held) == 5000
    assert 60 < len(held) < 140


@given(st.lists(st.sampled_from(UNDER), min_size=1, max_size=5), POOL, POOL)
def test_what_was_held_out_stays_out_of_training_when_the_file_grows(under, small, more):
    before, after = hold_out([*small, *under]), hold_out([*more, *small, *under])
    if before and after:
        assert not set(before[1]) & set(after[0])
        assert set(before[1]) <= set(after[1])


@given(MIXED, MIXED)
@example([pair(1), pair(2)], [pair(n) for n in range(3, 60)])
def test_what_was_learned_from_is_never_validated_on_when_the_file_grows(small, more):
    before, after = hold_out(small), hold_out([*small, *more])
    if before and after:
        assert not set(before[0]) & set(after[1])


@given(MIXED | POOL, st.integers(1, 3))
def test_no_sentence_on_both_sides(pairs, most):
    found = hold_out(pairs, most)
    if found:
        training, held = found
        assert 1 <= len(held) <= most
        assert not {s for p in training for s in p[:2]} & {s for p in held for s in p[:2]}
        assert set(training) | set(held) <= set(pairs)


@given(MIXED | POOL)
def test_only_pairs_that_share_a_sentence_are_lost(pairs):
    found = hold_out(pairs)
    if found:
        training, held = found
        for lost in set(pairs) - set(training) - set(held):
            assert any({*lost[:2]} & {*p[:2]} for p in held)


@given(POOL, st.randoms())
def test_the_order_of_the_file_does_not_matter(pairs, random):
    other = list(pairs)
    random.shuffle(other)
    found, again = (hold_out(p) for p in (pairs, other))
    assert (found is None) == (again is None)
    if found:
        assert sorted(found[0]) == sorted(again[0])
        assert found[1] == again[1]


def test_training_keeps_the_order_and_the_duplicates_of_the_file():
    some = [OVER[3], OVER[1], OVER[3], UNDER[0], OVER[2]]
    assert hold_out(some, 5) == ([OVER[3], OVER[1], OVER[3], OVER[2]], [UNDER[0]])


def test_a_duplicate_is_validated_on_once_and_is_the_first():
    first, second = UNDER[0]._replace(where="a:1"), UNDER[0]._replace(where="a:9")
    assert hold_out([first, OVER[0], second], 5) == ([OVER[0]], [first])


def test_sentences_that_only_look_different_are_the_same():
    held = Pair("cafe\u0301 \u095b", "x y")
    while _hash(sentence_key(held.source), sentence_key(held.target)) >= 0.02:
        held = held._replace(target=held.target + " y")
    alike = Pair("caf\u00e9\u00a0 ज\u093c", "something else")
    spaced = Pair("another", held.target.replace(" ", "\u3000 "))
    assert hold_out([held, alike, spaced, OVER[0]], 5) == ([OVER[0]], [held])


def test_the_smallest_are_used_and_the_rest_stays_out_of_training():
    training, held = hold_out([*UNDER[:10], *OVER[:10]], 3)
    assert held == sorted(UNDER[:10], key=lambda p: _hash(*p[:2]))[:3]
    assert training == OVER[:10]


def test_one_is_held_out_of_the_smallest_file():
    training, held = hold_out(OVER[:2], 10)
    assert held == [min(OVER[:2], key=lambda p: _hash(*p[:2]))]
    assert len(training) == 1


@pytest.mark.parametrize(
    ("pairs", "different"),
    [([], 0), ([pair(1)], 1), ([pair(1)] * 5, 1), ([Pair("a", "b"), Pair("a", "c"), Pair("a", "d")], 3)],
)
def test_too_few_to_hold_out(pairs, different):
    found = split(hashes([p.source for p in pairs], [p.target for p in pairs]), duplicates=False)
    assert (len(found.training), found.distinct) == (0, different)


@given(st.text())
def test_the_key_is_one_form(text):
    key = sentence_key(text)
    assert sentence_key(key) == key
    assert sentence_key(unicodedata.normalize("NFD", text)) == key
    assert sentence_key(f" {text}\u00a0\n") == key
    assert key == unicodedata.normalize("NFC", key)
