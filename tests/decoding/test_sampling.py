"""Sampling: what is drawn has the distribution that it should have, and follows from the seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, sqrt

import pytest
import torch
from decoding_models import (
    CONFIGS,
    FEW,
    LENGTHS,
    Table,
    allowed,
    alone,
    following,
    make,
    random_tables,
    sentences,
)

from heedful.decoding import Decoding, Sampler, greedy, sample
from heedful.observe import read_attention
from heedful.text import END, PAD, START

few = pytest.mark.parametrize("config", FEW.values(), ids=FEW)
models = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
LIMITS = [4, 12, 1, 12, 9, 12]
SOURCES = [(7, 8, END), (9, END), (4, 4, 4, END), (5, 6, END), (10, 11, END), (6, END)]


def cut_off(free: dict[int, float], how: Decoding) -> dict[int, float]:
    """The shares that words are drawn with, by the definition: temperature, then the k best, then the fewest with p."""
    shares = {word: exp(value / how.temperature) for word, value in free.items()}
    ranked = sorted(shares, key=shares.__getitem__, reverse=True)[: how.top_k or None]
    total = sum(shares[w] for w in ranked)
    kept, heap = [], 0.0
    for word in ranked:
        if heap < how.top_p:
            kept.append(word)
            heap += shares[word] / total
    rest = sum(shares[w] for w in kept)
    return {w: shares[w] / rest for w in kept}


def distribution(after, limit: int, how: Decoding, prefix: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The probability that each sentence is drawn with."""
    found, waiting = {}, [((), 1.0)]
    while waiting:
        ids, share = waiting.pop()
        for word, p in cut_off(allowed(after(ids), ids, limit, how, prefix), how).items():
            if word == END:
                found[(*ids, END)] = share * p
            else:
                waiting.append(((*ids, word), share * p))
    return found


def fits(drawn: Counter, wanted: dict[tuple[int, ...], float]) -> None:
    """Pearson's chi-squared, what is expected fewer than 5 times put together; refused once in ten thousand times."""
    n = drawn.total()
    assert sum(wanted.values()) == pytest.approx(1, abs=1e-6)
    assert drawn.keys() <= wanted.keys(), "something was drawn that has no share"
    common = {ids: p for ids, p in wanted.items() if n * p >= 5}
    cells = [(drawn[ids], n * p) for ids, p in common.items()]
    rest = n * (1 - sum(common.values()))
    if rest >= 5:
        cells.append((n - sum(drawn[ids] for ids in common), rest))
    assert len(cells) >= 3, "too few sentences to tell"
    squares = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    # Wilson and Hilferty: the cube root of chi-squared over its freedom is nearly normal.
    z = ((squares / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / sqrt(2 / (9 * freedom))
    assert z < 3.72, f"chi-squared is {squares:.1f} with {freedom} degrees of freedom"


WAYS = {
    "plain": Decoding(sample=True),
    "hot": Decoding(sample=True, temperature=1.7),
    "cold": Decoding(sample=True, temperature=0.6),
    "top-k": Decoding(sample=True, top_k=2),
    "top-p": Decoding(sample=True, top_p=0.7),
    "all": Decoding(sample=True, temperature=1.3, top_k=3, top_p=0.85),
    "rules": Decoding(sample=True, min_length=1, no_repeat=1, top_p=0.9),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_the_distribution_is_the_exact_one(how):
    how = replace(how, n_best=1000)
    model, x = Table(), random_tables(1, 7, seed=3, sharp=1.0)
    drawn: Counter = Counter()
    for seed in range(5):
        ((found),) = sample(model, model.encode(x), [5], replace(how, seed=seed), [(4, 5, END)])
        drawn.update(h.ids for h in found)
    fits(drawn, distribution(following(model, model.encode(x)), 5, how))


@few
def test_the_distribution_of_a_model(config):
    model, (x, keep) = make(config, vocabulary=7, spread=0.6), sentences(7, [4])
    how, memory = Decoding(sample=True, n_best=1000, temperature=1.2, top_k=4), alone(model, x, keep, 0)
    drawn: Counter = Counter()
    for seed in range(4):
        (found,) = sample(model, memory, [4], replace(how, seed=seed), [(4, 5, END)], [(5,)])
        drawn.update(h.ids for h in found)
    fits(drawn, distribution(following(model, memory), 4, how, (5,)))


def test_the_test_of_the_distribution_can_fail():
    how = Decoding(sample=True, n_best=1000)
    model, x = Table(), random_tables(1, 7, seed=3, sharp=1.0)
    (found,) = sample(model, model.encode(x), [5], how, [(4, END)])
    drawn = Counter(h.ids for h in found)
    after = following(model, model.encode(x))
    fits(drawn, distribution(after, 5, how))
    with pytest.raises(AssertionError, match="chi-squared"):
        fits(drawn, distribution(after, 5, replace(how, temperature=1.3)))


def test_sentences_are_drawn_independently():
    # The first word of one sentence says nothing of the first word of another, with the same table and seed.
    model, x = Table(), random_tables(1, 7, seed=3, sharp=0.5)
    how = Decoding(sample=True, n_best=1000)
    one, two = sample(model, model.encode(x.repeat(2, 1, 1, 1)), [3, 3], how, [(4, END), (5, END)])
    pairs = Counter((a.ids[:1], b.ids[:1]) for a, b in zip(one, two, strict=True))
    words = sorted({a for a, _ in pairs} | {b for _, b in pairs})
    left = {w: sum(pairs[w, v] for v in words) for w in words}
    right = {v: sum(pairs[w, v] for w in words) for v in words}
    squares = sum(
        (pairs[w, v] - left[w] * right[v] / 1000) ** 2 / (left[w] * right[v] / 1000) for w in words for v in words
    )
    assert squares < 50  # 16 degrees of freedom: once in 40 thousand


@models
@torch.no_grad()
def test_the_seed_decides(config):
    model, (x, keep) = make(config), sentences()
    how, memory = Decoding(sample=True, n_best=3, temperature=1.5), model.encode(x, keep)
    first = sample(model, memory, LIMITS, how, SOURCES)
    assert sample(model, memory, LIMITS, how, SOURCES) == first
    assert sample(model, memory, LIMITS, replace(how, seed=2), SOURCES) != first
    assert len({h.ids for h in first[1]}) > 1, "samples of one sentence are not all the same"


@models
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(config):
    model, (x, keep) = make(config), sentences()
    for how in (Decoding(sample=True, n_best=4), Decoding(sample=True, temperature=2.0, top_p=0.9, no_repeat=2)):
        together = sample(model, model.encode(x, keep), LIMITS, how, SOURCES)
        for b in range(len(LENGTHS)):
            (single,) = sample(model, alone(model, x, keep, b), LIMITS[b : b + 1], how, SOURCES[b : b + 1])
            assert [h.ids for h in single] == [h.ids for h in together[b]]
            for mine, theirs in zip(single, together[b], strict=True):
                assert mine.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)


@few
@torch.no_grad()
def test_fewer_samples_are_the_first_of_more(config):
    model, (x, keep) = make(config), sentences()
    how, memory = Decoding(sample=True, n_best=5), model.encode(x, keep)
    more = sample(model, memory, LIMITS, how, SOURCES)
    fewer = sample(model, memory, LIMITS, replace(how, n_best=2), SOURCES)
    assert [[h.ids for h in each] for each in fewer] == [[h.ids for h in each[:2]] for each in more]


@pytest.mark.parametrize(
    "how",
    [
        Decoding(sample=True, top_k=1, temperature=5.0),
        Decoding(sample=True, temperature=1e-4),
        Decoding(sample=True, temperature=1e-310),
        Decoding(sample=True, top_p=1e-9),
        Decoding(sample=True, top_k=10**9, top_p=1e-300, temperature=0.01),
    ],
    ids=["top_k=1", "cold", "next to nothing", "top_p", "all"],
)
@few
@torch.no_grad()
def test_at_its_end_it_is_greedy(config, how):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    assert [h for (h,) in sample(model, memory, LIMITS, how, SOURCES)] == greedy(model, memory, LIMITS)


@few
@torch.no_grad()
def test_log_probs_are_the_models_own(config):
    """Neither the temperature nor what was cut off changes how probable the model finds a word."""
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    found = [h for (h,) in sample(model, memory, LIMITS, Decoding(sample=True, temperature=2.0, top_k=5), SOURCES)]
    for hypothesis, reading in zip(found, read_attention(model, memory, [h.ids for h in found]), strict=True):
        assert hypothesis.log_probs == pytest.approx(reading.log_probs.tolist(), abs=1e-4)


def test_what_is_forbidden_is_never_drawn():
    model, x = Table(), random_tables(1, 6, seed=2).fill_(1e-12)
    x[..., PAD] = x[..., START] = 1.0  # all but impossible: everything that may be written
    (found,) = sample(model, model.encode(x), [6], Decoding(sample=True, n_best=500, min_length=2), [(END,)])
    words = Counter(word for h in found for word in h.ids)
    assert set(words) == {1, END, 4, 5}
    assert all(2 <= len(h.ids) - 1 <= 5 for h in found)


@pytest.mark.parametrize(
    "how", [Decoding(sample=True), Decoding(sample=True, top_k=3), Decoding(sample=True, top_p=0.9)]
)
def test_the_ends_of_the_range(how):
    """0 draws the first word that has a share, and a number that rounds to 1 the last: never one without any."""
    scores = torch.tensor([[-torch.inf, 0.5, -torch.inf, 0.3, 0.2, -torch.inf]]).log_softmax(-1)
    for number, wanted in ((0.0, 1), (1 - 2**-53, 4), (1.0, 4)):
        draw = Sampler(how, [(END,)], [0])
        draw.random = [Fixed(number)]
        assert draw(scores, [0], 0).tolist() == [wanted]


class Fixed:
    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number
