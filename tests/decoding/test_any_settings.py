"""Whatever the settings, what is written obeys them."""

from __future__ import annotations

import torch
from decoding_models import CONFIGS, Table, alone, make, random_tables, sentences
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decoding import Decoding, beam, sample
from heedful.text import END, PAD, START, UNKNOWN

V = 8
WORDS = {UNKNOWN, *range(4, V)}
MODELS = {name: make(CONFIGS[name], V) for name in ("bahdanau", "every", "transformer")}


@st.composite
def ways(draw):
    """Settings that do not contradict each other."""
    least = draw(st.integers(0, 5))
    how = {
        "min_length": least,
        "max_length": draw(st.one_of(st.just(0), st.integers(max(least, 1), 9))),
        "no_repeat": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        return Decoding(
            sample=True,
            n_best=draw(st.integers(1, 4)),
            temperature=draw(st.floats(1e-320, 1e300, allow_subnormal=True)),
            top_k=draw(st.integers(0, 10)),
            top_p=draw(st.floats(0, 1, exclude_min=True, allow_subnormal=True)),
            seed=draw(st.integers(0, 2**63 - 1)),
            **how,
        )
    K = draw(st.integers(1, 10))
    penalty = draw(st.sampled_from(["none", "length", "gnmt"]))
    return Decoding(beam=K, n_best=draw(st.integers(1, K)), penalty=penalty, alpha=draw(st.floats(0, 10)), **how)


@st.composite
def tasks(draw):
    how = draw(ways())
    B = draw(st.integers(1, 4))
    prefixes, limits = [], []
    for _ in range(B):
        prefix = draw(st.lists(st.sampled_from(sorted(WORDS)), max_size=how.max_length or 4))
        prefixes.append(tuple(prefix))
        lowest = max(how.min_length, len(prefix)) + 1
        limits.append(how.max_length + 1 if how.max_length else draw(st.integers(lowest, lowest + 6)))
    return how, limits, draw(st.sampled_from([prefixes, prefixes, None]))


def obeys(ids: tuple[int, ...], limit: int, how: Decoding, prefix: tuple[int, ...]) -> None:
    assert ids.index(END) == len(ids) - 1
    assert len(ids) <= limit
    assert not {PAD, START} & set(ids)
    assert ids[: len(prefix)] == prefix
    n, forbidden = how.no_repeat, set()
    if n:
        runs = [ids[i : i + n] for i in range(len(ids) - n + 1)]
        for i, run in enumerate(runs):
            assert run not in runs[:i] or i + n <= len(prefix), "a run outside the prefix was there before"
        tail = ids[len(ids) - n : -1]
        forbidden = {w for w in WORDS if (*tail, w) in runs}
    assert len(ids) > how.min_length or forbidden == WORDS


def check(model, encode, task) -> None:
    how, limits, prefixes = task
    B = len(limits)
    sources = [(4, b, END) for b in range(B)]

    def decode(rows: list[int]):
        some = [prefixes[b] for b in rows] if prefixes else None
        these = [limits[b] for b in rows]
        if how.sample:
            return sample(model, encode(rows), these, how, [sources[b] for b in rows], some)
        return beam(model, encode(rows), these, how, some)

    together = decode(list(range(B)))
    assert len(together) == B
    for b, found in enumerate(together):
        assert 1 <= len(found) <= how.n_best
        for h in found:
            obeys(h.ids, limits[b], how, prefixes[b] if prefixes else ())
            assert len(h.log_probs) == len(h.ids)
            assert all(-1e4 < value <= 1e-5 for value in h.log_probs)
        assert how.sample or len({h.ids for h in found}) == len(found)
        assert [h.ids for h in decode([b])[0]] == [h.ids for h in found]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(task=tasks(), seed=st.integers(0, 20))
def test_a_table_obeys(task, seed):
    model, x = Table(), random_tables(4, V, seed, steps=20)
    check(model, lambda rows: model.encode(x[rows]), task)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(task=tasks(), name=st.sampled_from(sorted(MODELS)))
def test_a_model_obeys(task, name):
    model, (x, keep) = MODELS[name], sentences(V, [3, 5, 1, 4])

    def encode(rows: list[int]):
        if len(rows) == 1:
            return alone(model, x, keep, rows[0])
        with torch.no_grad():
            return model.encode(x[rows], keep[rows])

    check(model, encode, task)
