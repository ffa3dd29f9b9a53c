"""Batches by the device's memory: automatic sizes, and halved ones after memory ran out, with the same results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from random_translators import random_translator

import heedful
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, DeviceMemoryError
from heedful.models import Memory, Network
from heedful.translator import pipeline
from heedful.translator.pipeline import BatchSizes

TEXTS = ["a b c", "h", "c d e f g", "b a", "", "a b c. D e f! G h?", "g f e d c b a h", "d", "b a c a f"]
TARGETS = ["c b a", "h", "g f e d", "a b", "", "f e d", "h a b", "d", "f a c"]


class SmallMemory:
    """A device with little memory: a model that encodes more than `most` source tokens at once raises `error`."""

    def __init__(
        self,
        translator: heedful.Translator,
        monkeypatch: pytest.MonkeyPatch,
        most: int,
        error: Callable[[], Exception] = lambda: torch.OutOfMemoryError("CUDA out of memory"),
    ) -> None:
        self.sizes: list[int] = []  # of the batches that fitted
        self.failed = 0
        encode = translator.parts.model.encode

        def limited(x: torch.Tensor, *more: object) -> Memory:
            if x.numel() > most:
                self.failed += 1
                raise error()
            self.sizes.append(x.numel())
            return encode(x, *more)

        monkeypatch.setattr(translator.parts.model, "encode", limited)


def same(one: list[heedful.Translation], two: list[heedful.Translation]) -> None:
    assert [(t.source, t.text, t.notes) for t in one] == [(t.source, t.text, t.notes) for t in two]
    for mine, other in zip(one, two, strict=True):
        assert mine.score == pytest.approx(other.score, abs=1e-4)
        assert mine.traced == other.traced
        if mine.traced and mine.trace.weights is not None:
            np.testing.assert_allclose(mine.trace.weights, other.trace.weights, atol=1e-5)


@pytest.mark.parametrize("name", ["rnn", "transformer"])
@pytest.mark.parametrize("settings", [{}, {"beam": 3, "n_best": 2}, {"sample": True, "n_best": 2}])
def test_half_a_batch_is_tried_again(
    name: str, settings: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    translator = random_translator(name)
    whole = translator.translate(TEXTS, **settings)
    memory = SmallMemory(translator, monkeypatch, most=18)
    with caplog.at_level(logging.WARNING, "heedful.translator"):
        done: list[tuple[int, int]] = []
        halved = translator.translate(TEXTS, progress=lambda *numbers: done.append(numbers), **settings)
    same(whole, halved)
    assert memory.failed
    assert max(memory.sizes) <= 18
    # Every sentence once, counted upwards: those that fitted before are not translated again.
    assert done == sorted(set(done))
    assert done[-1][0] == done[-1][1]
    # One warning with both sizes, however often it was halved.
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "out of memory" in record.message
    assert translator.batch_tokens_used <= 18 * max(settings.get("beam", 1), settings.get("n_best", 1))


def test_the_smaller_size_is_kept_for_later_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("transformer")
    memory = SmallMemory(translator, monkeypatch, most=20)
    translator.translate(TEXTS)
    failed, used = memory.failed, translator.batch_tokens_used
    assert failed
    translator.translate(TEXTS)
    translator.translate(TEXTS, batch_tokens=10**6)
    assert memory.failed == failed
    assert translator.batch_tokens_used == used
    # But not by other settings, which need other amounts.
    translator.translate(TEXTS, trace=False)
    assert memory.failed > failed


def test_given_pairs_are_halved_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("transformer")
    pairs = [(x, y) for x, y in zip(TEXTS, TARGETS, strict=True) if x]
    sources, targets = [x for x, _ in pairs], [y for _, y in pairs]
    scored, aligned = translator.score(sources, targets), translator.align(sources, targets)
    memory = SmallMemory(translator, monkeypatch, most=20)
    same(scored, translator.score(sources, targets))
    assert memory.failed
    assert [one.pairs for one in aligned] == [one.pairs for one in translator.align(sources, targets)]
    count = len(memory.sizes)
    rows = [row for row, *_ in translator.pairs(sources, targets, lambda memory, ids: [None] * len(ids))]
    assert sorted(rows) == list(range(len(pairs)))
    assert len(memory.sizes) > count + 1


@pytest.mark.parametrize(
    "error",
    [
        lambda: torch.OutOfMemoryError("CUDA out of memory"),
        lambda: RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        MemoryError,
    ],
)
def test_a_sentence_that_does_not_fit_alone_is_named(
    error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = random_translator("transformer")
    SmallMemory(translator, monkeypatch, 8, error)
    texts = ["a", "b c", "g f e d c b a h", "d"]
    with pytest.raises(DeviceMemoryError, match=r"sentence 3 of 4, 'g f e d c b a h', 9 tokens: cpu") as found:
        translator.translate(texts, trace=False)
    assert "beam" not in str(found.value)
    with pytest.raises(DeviceMemoryError, match=r"9 tokens and 4 hypotheses.*a smaller beam"):
        translator.translate(texts, beam=4)
    with pytest.raises(DeviceMemoryError, match=r"pair 2 of 2, 'g f e d c b a h', 9 tokens"):
        translator.score(["a", texts[2]], ["a", "b"])


def test_other_errors_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("transformer")
    memory = SmallMemory(translator, monkeypatch, 8, lambda: RuntimeError("another error"))
    with pytest.raises(RuntimeError, match="another error"):
        translator.translate(TEXTS)
    assert memory.failed == 1


def test_a_batch_that_is_tried_again_does_not_count_its_cells_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out when attention is read, after the cells of the traces were counted."""
    translator = random_translator("transformer")
    texts = ["a b c. D e f! G h?", "c d e. F g!"]
    translator.trace_cells = max(
        sum(len(part.trace.source.tokens) * len(part.trace.target.tokens) for part in one.sentences)
        for one in translator.translate(texts)
    )
    whole = translator.translate(texts)
    # The cells of a text are counted over all batches: with one less, some of its attention is left out.
    translator.trace_cells -= 1
    assert not all(one.traced for one in translator.translate(texts, batch_tokens=1))
    translator.trace_cells += 1
    read = translator.attention.read
    full = iter([True])

    def limited(*arguments: object) -> object:
        if next(full, False):
            raise torch.OutOfMemoryError
        return read(*arguments)

    monkeypatch.setattr(translator.attention, "read", limited)
    again = translator.translate(texts)
    assert next(full, None) is None
    assert all(one.traced for one in again)
    same(whole, again)


def test_the_size_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    translator = random_translator("transformer")
    assert translator.batch_tokens_used == 0
    translator.translate(TEXTS)
    assert translator.batch_tokens_used == 4_096
    memory = SmallMemory(translator, monkeypatch, 10**6)
    monkeypatch.setattr(pipeline, "free_memory", lambda _: 2**20)
    with caplog.at_level(logging.DEBUG, "heedful.translator"):
        translator.translate(TEXTS, trace=False)
    less = translator.batch_tokens_used
    assert less < 100
    assert max(memory.sizes) <= less
    assert len(memory.sizes) > 1
    assert f"batches of {less} tokens" in caplog.text
    assert "0.0 GiB" in caplog.text
    translator.translate(TEXTS, trace=False, batch_tokens=33)
    assert translator.batch_tokens_used == 33


def test_one_sentence_needs_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("transformer")
    monkeypatch.setattr(pipeline, "free_memory", lambda _: pytest.fail("the memory was looked up"))
    assert translator.translate("a b c").text == translator.translate(["a b c"])[0].text
    assert translator.translate([""])[0].text == ""


def test_another_device_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("transformer")
    with monkeypatch.context() as limited:
        SmallMemory(translator, limited, most=20)
        translator.translate(TEXTS)
    assert translator.batch_tokens_used < 4_096
    translator.to("cpu").translate(TEXTS)
    assert translator.batch_tokens_used == 4_096


def test_an_ensemble_needs_more() -> None:
    one, two = (random_translator("transformer", seed=seed).parts for seed in (1, 2))
    need = BatchSizes(one, torch.device("cpu")).need
    both = replace(one, model=cast(Network, Ensemble([one.model, two.model])))
    assert BatchSizes(both, torch.device("cpu")).need == tuple(2 * numbers for numbers in need)


@pytest.mark.parametrize("size", [-1, 1.5, True, "4096"])
def test_a_size_is_a_whole_number(size: object) -> None:
    with pytest.raises(ConfigError, match="batch_tokens is .*, expected a whole number"):
        random_translator("transformer").translate(TEXTS, batch_tokens=size)  # type: ignore[call-overload]
