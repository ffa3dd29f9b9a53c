"""Translators that decode in slots, as on a GPU, and translators in bf16."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from random_translators import MODELS, TEXTS, random_folder, random_parts, random_translator
from tiny_captioner import captioner, picture

import heedful
from heedful.decoding.slot_decoder import SlotDecoder
from heedful.errors import ConfigError
from heedful.translator import Translator

WAYS = {
    "greedy": {},
    "beam": {"beam": 4, "n_best": 3, "penalty": "gnmt", "alpha": 0.6},
    "rules": {"beam": 3, "min_length": 2, "max_length": 9, "no_repeat": 2, "prefix": "A"},
    "sample": {"sample": True, "n_best": 2, "top_k": 5, "top_p": 0.95, "seed": 3},
    "copied": {"copy_unknown": True},
}


def in_slots(translator: Translator, rows: int = 16) -> Translator:
    translator.slots = SlotDecoder(translator.parts.model, rows)
    return translator


def check(found: Sequence[heedful.Translation], wanted: Sequence[heedful.Translation]) -> None:
    assert [one.text for one in found] == [one.text for one in wanted]
    assert [one.notes for one in found] == [one.notes for one in wanted]
    for a, b in zip(found, wanted, strict=True):
        assert [one.text for one in a.n_best] == [one.text for one in b.n_best]
        assert a.score == pytest.approx(b.score, abs=1e-3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_the_same_translations(name: str, way: str) -> None:
    if name == "fixed" and way == "copied":
        pytest.skip("there is no attention to copy by")
    texts = [*TEXTS[:12], TEXTS[-2], "", "A q b"]
    plain = random_translator(name).translate(texts, **WAYS[way])  # type: ignore[arg-type]
    check(in_slots(random_translator(name)).translate(texts, **WAYS[way]), plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_the_same_captions(family: str) -> None:
    images = [picture(seed) for seed in range(5)]
    for how in ({}, {"beam": 3, "n_best": 2}):
        check(
            in_slots(captioner(family)).caption(images, trace=False, **how),  # type: ignore[arg-type]
            captioner(family).caption(images, trace=False, **how),  # type: ignore[arg-type]
        )


def test_slots_are_released_when_the_model_moves() -> None:
    translator = in_slots(random_translator("transformer"))
    slots = translator.slots
    assert slots is not None
    translator.translate("a b c")
    assert slots.batches
    translator.to("cpu")
    assert not slots.batches
    assert translator.slots is None  # on the CPU, shapes that shrink are faster


@pytest.mark.parametrize("slots", [False, True], ids=["plain", "slots"])
@pytest.mark.parametrize("name", ["transformer", "post"])
def test_in_bf16_probabilities_are_near(name: str, slots: bool) -> None:
    exact = random_translator(name, spread=0.3)
    rounded = Translator(random_parts(name, spread=0.3), precision="bf16")
    assert {weight.dtype for weight in rounded.parts.model.parameters()} == {torch.bfloat16}
    assert (rounded.precision, exact.precision) == ("bf16", "fp32")
    texts, targets = TEXTS[:20], TEXTS[20:40]
    for a, b in zip(rounded.score(texts, targets), exact.score(texts, targets), strict=True):
        assert a.trace.log_probs.dtype == np.float32
        np.testing.assert_allclose(a.trace.log_probs, b.trace.log_probs, atol=0.15)
        assert a.trace.weights is not None
        assert b.trace.weights is not None
        np.testing.assert_allclose(a.trace.weights, b.trace.weights, atol=0.05)
    # Token by token the same numbers are computed as with teacher forcing, to rounding.
    for how in ({}, {"beam": 3}):
        for one in (in_slots(rounded) if slots else rounded).translate(texts, **how):  # type: ignore[arg-type]
            assert one.score / one.length == pytest.approx(one.trace.log_probs.mean(), abs=0.05)


def test_logits_of_a_model_in_bf16_are_not_rounded() -> None:
    """Of logits near 100, those in bf16 would be multiples of 0.5."""
    model = random_parts("post").model.to(torch.bfloat16)
    hidden = torch.full((2, 3, 12), 9.0, dtype=torch.bfloat16)
    with torch.inference_mode():
        logits = model.logits(hidden)
    W, b = (weight.float() for weight in (model.embedding.weight, model.b_o))
    torch.testing.assert_close(logits, hidden.float() @ W.t() + b)
    assert logits.dtype == torch.float32


def test_captions_in_bf16() -> None:
    exact, parts = captioner("transformer"), captioner("transformer").parts
    rounded = Translator(parts, precision="bf16")
    images = [picture(seed) for seed in range(4)]
    for a, b in zip(rounded.caption(images), exact.caption(images), strict=True):
        assert a.score / max(a.length, 1) == pytest.approx(b.score / max(b.length, 1), abs=0.2)


def test_what_is_not_possible_in_bf16(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recurrent"):
        Translator(random_parts("luong"), precision="bf16")
    with pytest.raises(ConfigError, match="fp32"):
        Translator(random_parts("transformer"), precision="bf16").save(tmp_path / "m")
    with pytest.raises(ConfigError, match="'fp16'"):
        Translator(random_parts("transformer"), precision="fp16")


def test_the_command_names_the_precision(tmp_path: Path, heedful_cli) -> None:
    model = random_folder(tmp_path / "m", "transformer")
    done = heedful_cli("translate", model, "a b c", "--json", "--precision", "bf16", "--verbose")
    assert json.loads(done.out)["engine"] == {"name": "heedful", "precision": "bf16", "score": "heedful"}
    assert "weights in bf16" in done.err
    plain = heedful_cli("translate", model, "a b c", "--json")
    assert "engine" not in json.loads(plain.out)
    refused = heedful_cli("translate", random_folder(tmp_path / "r", "rnn"), "a", "--precision", "bf16")
    assert refused.code == 2
    assert "--precision" in refused.err
