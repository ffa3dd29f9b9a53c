"""What may be written, by a beam and by greedy decoding: lengths, repetitions, prefixes; and the k largest."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
import torch
from decoding_models import (
    FEW,
    Table,
    following,
    make,
    plain_beam,
    plain_greedy,
    random_tables,
    same,
    sentences,
)

from heedful.decoding import Decoding, beam, greedy
from heedful.decoding.rules import best
from heedful.errors import ConfigError
from heedful.observe import read_attention
from heedful.text import END, PAD

A, B = 4, 5
few = pytest.mark.parametrize("config", FEW.values(), ids=FEW)


@pytest.mark.parametrize(("least", "most"), [(0, 3), (2, 6), (3, 3), (5, 6)])
def test_the_lengths_are_kept(least, most):
    model, x = Table(), random_tables(6, 9, seed=least)
    how = Decoding(beam=4, n_best=4, min_length=least, max_length=most)
    for b, found in enumerate(beam(model, model.encode(x), [most + 1] * len(x), how)):
        assert all(least <= len(h.ids) - 1 <= most for h in found)
        same(found, plain_beam(following(model, model.encode(x[b : b + 1])), most + 1, how), how)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_nothing_is_repeated(n):
    model, x = Table(), random_tables(6, 8, seed=n)
    free = Decoding(beam=3, n_best=3, penalty="none", min_length=6 if n > 1 else 3)
    how = replace(free, no_repeat=n)
    limits = [12, 10, 8, 12, 9, 11]
    unruled = beam(model, model.encode(x), limits, free)
    assert any(repeats(h.ids, n) for each in unruled for h in each), "nothing was repeated without the rule either"
    for b, found in enumerate(beam(model, model.encode(x), limits, how)):
        assert not any(repeats(h.ids, n) for h in found)
        same(found, plain_beam(following(model, model.encode(x[b : b + 1])), limits[b], how), how)


def repeats(ids: tuple[int, ...], n: int) -> bool:
    runs = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return len(set(runs)) < len(runs)


@pytest.mark.parametrize("K", [1, 3])
def test_where_every_word_would_be_a_repetition_the_sentence_ends(K):
    model, x = Table(), random_tables(2, 6, seed=5)
    how = Decoding(beam=K, min_length=8, no_repeat=1)
    for (found,) in beam(model, model.encode(x), [12, 12], how):
        assert sorted(found.ids) == [1, END, A, B]  # three words and no more, then </s>
        assert found.ids[-1] == END
        assert min(found.log_probs) > -inf


PREFIXES = [(5,), (), (7, 7, 4), (11,), (4, 5, 6, 7, 8, 9, 10), ()]


@pytest.mark.parametrize(
    "how",
    [Decoding(beam=3, n_best=3), Decoding(), Decoding(beam=3, n_best=2, min_length=1, no_repeat=2)],
    ids=["beam", "greedy", "rules"],
)
def test_a_prefix_comes_first(how):
    model, x = Table(), random_tables(6, 12, seed=8)
    limits = [6, 6, 4, 2, 9, 7]
    for b, found in enumerate(beam(model, model.encode(x), limits, how, PREFIXES)):
        assert all(h.ids[: len(PREFIXES[b])] == PREFIXES[b] for h in found)
        after = following(model, model.encode(x[b : b + 1]))
        if how.beam > 1:
            same(found, plain_beam(after, limits[b], how, PREFIXES[b])[: how.n_best], how)
        else:
            assert found[0].ids == plain_greedy(after, limits[b], how, PREFIXES[b])


@few
@torch.no_grad()
def test_a_prefix_has_the_probability_that_the_model_gives_it(config):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    found = beam(model, memory, [9] * 6, Decoding(beam=2), PREFIXES)
    assert [h.ids[: len(prefix)] for (h,), prefix in zip(found, PREFIXES, strict=True)] == PREFIXES
    for (h,), reading in zip(found, read_attention(model, memory, [h.ids for (h,) in found]), strict=True):
        assert h.log_probs == pytest.approx(reading.log_probs.tolist(), abs=1e-4)


def test_a_prefix_may_repeat_itself_and_be_short():
    model, x = Table(), random_tables(1, 6, seed=6)
    how = Decoding(beam=2, no_repeat=1, min_length=2)
    ((found,),) = beam(model, model.encode(x), [5], how, [(A, A)])
    assert found.ids[:2] == (A, A)
    assert A not in found.ids[2:]


@pytest.mark.parametrize("way", [beam, greedy])
def test_limits_that_leave_no_room_are_refused(way):
    model, x = Table(), random_tables(2, 6, seed=6)
    memory = model.encode(x)
    with pytest.raises(ConfigError, match="sentence 2 of 2 .* 3 .*min_length of 3"):
        way(model, memory, [9, 3], Decoding(min_length=3))
    with pytest.raises(ConfigError, match="sentence 1 of 2 .* 2 .*prefix of 2"):
        way(model, memory, [2, 3], Decoding(), [(A, A), ()])
    with pytest.raises(ConfigError, match="sentence 2 of 2 .* 0 "):
        way(model, memory, [2, 0], Decoding())


# --- the k largest


@pytest.mark.parametrize("V", [6, 64, 1000, 4096, 8191, 8193])
@pytest.mark.parametrize(("K", "k"), [(1, 1), (1, 5), (3, 6), (6, 12)])
def test_best_is_topk(V, K, k):
    chance = torch.Generator().manual_seed(V + k)
    scores = torch.randn(24, K, V, generator=chance)
    plus = torch.randn(24, K, generator=chance)
    plus[1, 1:] = -inf  # as at the beginning, when one of K counts
    plus[2] = -inf
    scores[:, :, PAD] = -inf
    scores[3] = -inf
    scores[3, -1, V - 1] = -1.0  # all but the very last
    scores[4, :, : V - 2] = -inf
    scores[5] = -inf
    scores[6, :, 2:] = -inf
    for added in (None, plus):
        whole = (scores if added is None else scores + added[:, :, None]).flatten(1)
        values, places = best(scores.clone(), k, added)
        assert torch.equal(values, whole.topk(k, dim=1).values)
        assert torch.equal(whole.gather(1, places), values)
        assert all(len(set(row)) == k for row in places.tolist())
        assert places[3, 0] == K * V - 1
