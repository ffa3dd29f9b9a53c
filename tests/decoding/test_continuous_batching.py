"""Sentences that come and go are written as if each were alone."""

from __future__ import annotations

import random

import pytest
import torch
from random_translators import LOCAL, MODELS, random_parts
from small_runs import pad

from heedful.decoding import ContinuousBatch, Hypothesis, greedy
from heedful.decoding.ensemble import Ensemble
from heedful.models import Memory, Seq2Seq
from heedful.text import PAD


def read(model: Seq2Seq, ids: list[tuple[int, ...]]) -> Memory:
    x = pad(ids)
    with torch.inference_mode():
        return model.encode(x, x != PAD, None)


@pytest.mark.parametrize("name", [*MODELS, *LOCAL, "ensemble"])
@pytest.mark.parametrize("seed", range(3))
def test_company_changes_nothing(name: str, seed: int) -> None:
    """Sentences of all lengths join at random steps, some are dropped; the others become what they are alone."""
    names = ("transformer", "luong") if name == "ensemble" else (name,)
    parts = [random_parts(each, seed=2) for each in names]
    model = Ensemble([p.model for p in parts]).eval() if name == "ensemble" else parts[0].model
    codec, pick = parts[0].source, random.Random(seed)
    texts = [" ".join(pick.choices("abcdefgh", k=pick.randint(1, 12))) for _ in range(24)]
    ids = [codec.encode(text).ids for text in texts]
    limits = [pick.choice((1, 3, 2 * len(i) + 5, 40)) for i in ids]
    begun = [tuple(codec.encode("C A").ids[:-1]) if most > 5 and pick.random() < 0.3 else () for most in limits]
    batch, waiting, found, dropped = ContinuousBatch(model), list(range(len(texts))), {}, set()
    while waiting or len(batch):
        if waiting and (not len(batch) or pick.random() < 0.3):
            some, waiting = waiting[: (n := pick.randint(1, 5))], waiting[n:]
            batch.join(read(model, [ids[i] for i in some]), some, [limits[i] for i in some], [begun[i] for i in some])
        if len(batch) > 3 and pick.random() < 0.05:
            gone = next(row.id for row in batch.rows[1:] if row is not None)
            batch.drop([gone])
            dropped.add(gone)
        found.update(batch.step())
    assert set(found) | dropped == set(range(len(texts)))
    assert dropped.isdisjoint(found)
    for i, hypothesis in found.items():
        (alone,) = greedy(model, read(model, [ids[i]]), [limits[i]], prefixes=[begun[i]])
        assert isinstance(hypothesis, Hypothesis)
        assert (hypothesis.ids, hypothesis.cut) == (alone.ids, alone.cut)
        assert hypothesis.log_probs == pytest.approx(alone.log_probs, abs=2e-4)


def test_places_that_nobody_has_words_in_are_given_up() -> None:
    """However long it goes on, a batch needs no more room than its longest sentence."""
    parts = random_parts("transformer", seed=2)
    batch = ContinuousBatch(parts.model)
    ids = parts.source.encode("a b c").ids
    for name in range(100):
        batch.join(read(parts.model, [ids]), [name], [8], [()])
        for _ in range(4):
            if len(batch):
                batch.step()
    assert batch.tensors is None or batch.tensors.state.buffer.shape[4] <= 64


def test_an_empty_place_does_not_hold_the_room() -> None:
    """Who comes takes the place that has been empty for longest, so that none stays behind."""
    parts = random_parts("transformer", seed=2)
    batch, names = ContinuousBatch(parts.model), iter(range(10**6))
    x = pad([parts.source.encode("a b c").ids])

    def join(size: int) -> None:  # a sentence of `size` words exactly
        with torch.inference_mode():
            batch.join(parts.model.encode(x, x != PAD, None), [next(names)], [size], [(5,) * (size - 1)])

    for size in (8, 9, 10, 11, 12, 13, 14, 15, 3):
        join(size)
    for _ in range(400):
        for name, _ in batch.step():
            if name != 8:  # eight sentences at once, always, and a place that is empty
                join(16)
    assert len(batch) == 8
    assert batch.tensors.state.buffer.shape[4] <= 64
