"""Beam search: against every output there is, against a plain search that never stops early."""

from __future__ import annotations

from math import log

import pytest
import torch
from decoding_models import (
    CONFIGS,
    FEW,
    LENGTHS,
    Table,
    alone,
    following,
    make,
    outputs,
    plain_beam,
    plain_greedy,
    random_tables,
    same,
    score,
    sentences,
)

from heedful.decoding import Decoding, beam, greedy
from heedful.observe import read_attention
from heedful.text import END, START

A, B = 4, 5
models = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
few = pytest.mark.parametrize("config", FEW.values(), ids=FEW)
PENALTIES = [("none", 1.0), ("length", 0.3), ("length", 1.0), ("length", 2.5), ("gnmt", 0.6), ("gnmt", 1.5)]
penalties = pytest.mark.parametrize(("penalty", "alpha"), PENALTIES, ids=str)


# --- the true best


@penalties
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_true_best_of_a_table(penalty, alpha, seed):
    how = Decoding(beam=90, n_best=10, penalty=penalty, alpha=alpha)
    model, x = Table(), random_tables(3, 6, seed)
    for b, found in enumerate(beam(model, model.encode(x), [5, 4, 5], how)):
        every = outputs(following(model, model.encode(x[b : b + 1])), [5, 4, 5][b], how)
        assert len(every) == (121, 40, 121)[b]
        ranked = sorted(((value / how.divisor(len(ids)), ids) for ids, value in every.items()), reverse=True)
        same(found, ranked[:10], how)


@penalties
@few
def test_a_wide_beam_finds_the_true_best_of_a_model(config, penalty, alpha):
    how = Decoding(beam=30, n_best=5, penalty=penalty, alpha=alpha)
    model, (x, keep) = make(config, vocabulary=6, spread=1.2), sentences(6, [2, 4])
    for b, found in enumerate(beam(model, model.encode(x, keep), [4, 4], how)):
        every = outputs(following(model, alone(model, x, keep, b)), 4, how)
        ranked = sorted(((value / how.divisor(len(ids)), ids) for ids, value in every.items()), reverse=True)
        same(found, ranked[:5], how)


def test_the_penalties_change_what_is_best():
    # </s> at once has log 0.5; "a </s>" has log 0.4 together, and is longer.
    x = torch.full((1, 6, 6), 1e-9)
    x[0, START, END], x[0, START, A], x[0, A, END] = 0.5, 0.45, 0.9
    model = Table()
    for how, wanted in (
        (Decoding(beam=4, penalty="none"), (END,)),
        (Decoding(beam=4, penalty="length", alpha=0.0), (END,)),
        (Decoding(beam=4, penalty="length"), (A, END)),
        (Decoding(beam=4, penalty="gnmt", alpha=0.2), (END,)),
        (Decoding(beam=4, penalty="gnmt", alpha=10.0), (A, END)),
    ):
        ((found,),) = beam(model, model.encode(x), [4], how)
        assert found.ids == wanted, how


def test_divisors_by_hand():
    assert Decoding(penalty="none", alpha=2.0).divisor(7) == 1
    assert Decoding(penalty="length", alpha=2.0).divisor(3) == 9
    assert Decoding(penalty="gnmt", alpha=2.0).divisor(7) == 4


# --- the stopping rule


@penalties
@pytest.mark.parametrize(("K", "n_best"), [(2, 1), (2, 2), (3, 1), (4, 3), (5, 5)])
def test_nothing_is_lost_by_stopping(penalty, alpha, K, n_best):
    how = Decoding(beam=K, n_best=n_best, penalty=penalty, alpha=alpha)
    count, limit = 12, 9
    x = random_tables(count, 7, seed=100 * K + n_best, sharp=2.0)
    model, stopped = Table(), 0
    for b in range(count):
        model.sizes.clear()
        memory = model.encode(x[b : b + 1])
        (found,) = beam(model, memory, [limit], how)
        stopped += len(model.sizes) < limit
        same(found, plain_beam(following(model, memory), limit, how)[:n_best], how)
    if penalty == "none" or alpha < 1:
        assert stopped > 0, "none stopped early: nothing was tested"


@pytest.mark.parametrize("K", [2, 4])
@few
def test_nothing_is_lost_by_stopping_with_models(config, K):
    (x, keep), limits = sentences(), [6, 8, 1, 7, 8, 5]
    for seed in range(2):
        model = make(config, seed=seed)
        how = Decoding(beam=K, n_best=K, penalty=("length", "gnmt")[seed])
        found = beam(model, model.encode(x, keep), limits, how)
        for b, limit in enumerate(limits):
            same(found[b], plain_beam(following(model, alone(model, x, keep, b)), limit, how), how)


def test_a_later_one_can_be_the_best():
    # After </s> at once, the longer one is behind until its very end.
    x = torch.full((1, 6, 6), 1e-9)
    x[0, START, END], x[0, START, A], x[0, A, A], x[0, A, END] = 0.55, 0.45, 0.9, 0.1
    model = Table()
    ((found,),) = beam(model, model.encode(x), [8], Decoding(beam=2))
    assert len(found.ids) == 8
    assert score(found, Decoding()) > log(0.55)


def test_it_stops_as_soon_as_nothing_can_come():
    x = torch.full((1, 6, 6), 0.01)
    x[0, START, END] = 1.0
    model = Table()
    ((found,),) = beam(model, model.encode(x), [50], Decoding(beam=3, penalty="none"))
    assert found.ids == (END,)
    assert model.sizes == [3]


def test_sentences_that_are_done_leave_the_batch():
    x = torch.full((2, 6, 6), 0.01)
    x[0, START, END] = 1.0
    x[1, START, A] = x[1, A, B] = x[1, B, END] = 1.0
    model = Table()
    found = beam(model, model.encode(x), [9, 9], Decoding(beam=2, penalty="none"))
    assert [h.ids for (h,) in found] == [(END,), (A, B, END)]
    assert model.sizes == [4, 2, 2]


# --- greedy, n-best


@pytest.mark.parametrize(("penalty", "alpha"), [("none", 1.0), ("length", 2.5), ("gnmt", 1.0)], ids=str)
@few
@torch.no_grad()
def test_a_beam_of_1_is_greedy(config, penalty, alpha):
    model, (x, keep) = make(config), sentences()
    memory, limits = model.encode(x, keep), [4, 12, 1, 12, 9, 12]
    how = Decoding(penalty=penalty, alpha=alpha)
    found = beam(model, memory, limits, how)
    assert [[h] for h in greedy(model, memory, limits)] == found
    for b, limit in enumerate(limits):
        assert found[b][0].ids == plain_greedy(following(model, alone(model, x, keep, b)), limit, how)


@models
@torch.no_grad()
def test_n_best_is_sorted_and_distinct(config):
    model, (x, keep) = make(config), sentences()
    for how in (Decoding(beam=6, n_best=6), Decoding(beam=8, n_best=4, penalty="gnmt"), Decoding(beam=3, n_best=3)):
        for found in beam(model, model.encode(x, keep), [9] * len(LENGTHS), how):
            scores = [score(h, how) for h in found]
            assert scores == sorted(scores, reverse=True)
            assert len({h.ids for h in found}) == len(found) == how.n_best


def test_fewer_are_found_where_there_are_fewer():
    model, x = Table(), random_tables(2, 6, seed=1)
    found = beam(model, model.encode(x), [1, 2], Decoding(beam=5, n_best=5))
    assert [h.ids for h in found[0]] == [(END,)]
    assert sorted(h.ids for h in found[1]) == [(1, END), (END,), (A, END), (B, END)]


@pytest.mark.parametrize("vocabulary", [5, 6])
def test_a_vocabulary_smaller_than_the_beam(vocabulary):
    how = Decoding(beam=12, n_best=12)
    model, x = Table(), random_tables(3, vocabulary, seed=4)
    for b, found in enumerate(beam(model, model.encode(x), [4, 4, 3], how)):
        after = following(model, model.encode(x[b : b + 1]))
        same(found, plain_beam(after, [4, 4, 3][b], how), how)


# --- batches


@models
def test_a_sentence_does_not_depend_on_its_batch(config):
    model, (x, keep) = make(config), sentences()
    limits, prefixes = [4, 12, 1, 12, 9, 12], [(), (5, 6), (), (), (9,), ()]
    for how in (Decoding(beam=4, n_best=3), Decoding(beam=2, penalty="gnmt", no_repeat=2)):
        with torch.no_grad():
            together = beam(model, model.encode(x, keep), limits, how, prefixes)
        for b in range(len(LENGTHS)):
            (single,) = beam(model, alone(model, x, keep, b), [limits[b]], how, [prefixes[b]])
            assert [h.ids for h in single] == [h.ids for h in together[b]]
            for mine, theirs in zip(single, together[b], strict=True):
                assert mine.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)
                assert mine.cut == theirs.cut


@models
@torch.no_grad()
def test_log_probs_are_those_of_reading_it_again(config):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    found = beam(model, memory, [12] * len(LENGTHS), Decoding(beam=4, n_best=4))
    rows = torch.tensor([b for b, each in enumerate(found) for _ in each])
    every = [h for each in found for h in each]
    for hypothesis, reading in zip(
        every, read_attention(model, memory.select(rows), [h.ids for h in every]), strict=True
    ):
        assert hypothesis.log_probs == pytest.approx(reading.log_probs.tolist(), abs=1e-4)


def test_no_sentences_give_none():
    model = Table()
    assert beam(model, model.encode(torch.zeros(0, 6, 6)), [], Decoding(beam=3)) == []


def test_cut_short():
    x = torch.full((1, 6, 6), 0.02)
    x[0, START, A] = x[0, A, A] = 1.0
    model = Table()
    ((found,),) = beam(model, model.encode(x), [4], Decoding(beam=2))
    assert found.ids == (A, A, A, END)
    assert found.cut
    x[0, A, END] = 20.0  # now the end was likely anyway
    ((found,),) = beam(model, model.encode(x), [4], Decoding(beam=2, min_length=3))
    assert found.ids == (A, A, A, END)
    assert not found.cut


def test_what_is_cut_short_is_known_and_not_guessed():
    """Of what ends in the last place there is, some wanted to end there, however improbable `</s>` was."""
    x = torch.full((1, 6, 6), 0.1)
    x[0, START, A] = x[0, START, B] = 1.0
    x[0, A, END] = 0.12  # the most probable of all, with a share of less than a quarter
    x[0, B, B] = 0.12
    model = Table()
    (found,) = beam(model, model.encode(x), [2], Decoding(beam=3, n_best=3))
    assert {h.ids: h.cut for h in found}[A, END] is False
    assert {h.ids: h.cut for h in found}[B, END] is True
    (found,) = beam(model, model.encode(x), [9], Decoding(beam=3, n_best=3, max_length=8))
    assert {h.cut for h in found if len(h.ids) < 9} <= {False}


@pytest.mark.parametrize("K", [2, 4])
def test_more_can_be_asked_for_than_the_beam_is_wide(K):
    model, x = Table(), random_tables(3, 7, seed=3)
    how = Decoding(beam=K, n_best=K)
    few, many = (beam(model, model.encode(x), [8, 3, 8], how, n=n) for n in (K, 3 * K))
    for b, (some, more) in enumerate(zip(few, many, strict=True)):
        assert [h.ids for h in more[:K]] == [h.ids for h in some]
        after = following(model, model.encode(x[b : b + 1]))
        same(more, plain_beam(after, [8, 3, 8][b], how, n=3 * K), how)
        assert len(more) > K


@pytest.mark.parametrize("settings", [{}, {"min_length": 3}, {"no_repeat": 2}, {"max_length": 4}])
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_scores_computed_a_few_rows_at_a_time_are_the_same(
    monkeypatch: pytest.MonkeyPatch, rows: int, settings: dict[str, int]
) -> None:
    """With prefixes and limits of their own, which belong to some of the sentences only."""
    import importlib

    module = importlib.import_module("heedful.decoding.beam")
    model = make(CONFIGS["transformer"])
    x, keep = sentences()
    with torch.no_grad():
        memory = model.encode(x, keep)
    how = Decoding(beam=3, n_best=2, **settings)
    limits = [how.max_length + 1 if how.max_length else limit for limit in (9, 5, 7, 12, 6, 8)]
    prefixes = [[], [5], [6, 7], [], [4], []]
    calls: list[int] = []
    logits = model.logits
    monkeypatch.setattr(model, "logits", lambda hidden: calls.append(len(hidden)) or logits(hidden))
    wanted = beam(model, memory, limits, how, prefixes)
    assert max(calls) == len(x) * 3
    calls.clear()
    monkeypatch.setattr(module, "ROWS", rows)
    found = beam(model, memory, limits, how, prefixes)
    assert max(calls) == max(1, rows // 3) * 3
    assert [[h.ids for h in each] for each in found] == [[h.ids for h in each] for each in wanted]
    assert [[h.cut for h in each] for each in found] == [[h.cut for h in each] for each in wanted]
    for each, others in zip(found, wanted, strict=True):
        for one, other in zip(each, others, strict=True):
            torch.testing.assert_close(torch.tensor(one.log_probs), torch.tensor(other.log_probs))
