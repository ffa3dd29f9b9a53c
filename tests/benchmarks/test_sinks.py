"""benchmarks/sinks.py: changed texts, what is measured, and the table; with SmolLM2 if HEEDFUL_MODELS is set."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from small_runs import benchmark
from tiny_transformers import make

import heedful


@pytest.fixture(scope="module")
def sinks() -> ModuleType:
    return benchmark("sinks")


def test_changed_texts(sinks):
    text = "Water expands when it freezes which is why ice floats on all the lakes in winter"
    assert sinks.replaced(text, "Green") == f"Green{text[5:]}"
    words = sinks.moved(text).split()
    assert (words[0], words[12]) == ("Expands", "water")
    assert sorted(word.lower() for word in words) == sorted(word.lower() for word in text.split())


def test_texts_are_long_enough(sinks):
    for text in sinks.TEXTS:
        assert 90 < len(text.split()) < 200
        assert len(sinks.moved(text).split()) == len(text.split())


def test_the_first_token_of_a_word(sinks):
    _, tokenizer = make("llama")
    text = "the cat sat on the mat"
    number = sinks.token_of(tokenizer, text, 2)
    _, read = heedful.observe.tokens.tokenize(tokenizer, text)
    assert text[read.spans[number][0] :].startswith("sat")
    assert sinks.token_of(tokenizer, text, 0) == next(i for i, (a, b) in enumerate(read.spans) if a < b)


def test_equal_weights(sinks):
    # queries 17 and 18 have 17 and 18 keys
    assert sinks.equal_share([18]) == pytest.approx((1 / 17 + 1 / 18) / 2)


def test_the_share_is_the_mean_over_heads_and_late_queries(sinks):
    model, tokenizer = make("llama")
    text = " ".join(["the cat sat on the mat and looked at the dog"] * 3)
    weights = heedful.see(model, tokenizer, text).group().weights
    expected = [weights[0, :, sinks.FROM :, j].mean() for j in (0, 3)]
    assert sinks.share(model, tokenizer, text, (0, 3))[:, 0] == pytest.approx(expected, abs=1e-6)


def test_lengths_of_values(sinks):
    model, tokenizer = make("llama")
    text = " ".join(["the cat sat on the mat and looked at the dog"] * 3)
    ratios = sinks.value_lengths(model, tokenizer, text)
    assert ratios.shape == (model.config.num_hidden_layers,)
    assert (ratios > 0).all()
    assert not any(part._forward_hooks for part in model.modules())


def test_the_table(sinks):
    table = sinks.SinkTable(*(np.array([0.1 * i, 0.2 * i]) for i in range(1, 8)))
    lines = sinks.report(table, 0.02, markdown=True)
    assert lines[-2] == "| 2 | 20.0 | 40.0 | 60.0 | 80.0 | 100.0 | 120.0 | 1.40 |"
    assert lines[-1].startswith("| mean | 15.0 | 30.0 |")


@pytest.mark.slow
def test_smollm2_has_a_sink_at_the_first_position(sinks):
    folder = os.environ.get("HEEDFUL_MODELS")
    if not folder:
        pytest.skip("HEEDFUL_MODELS is not set: the folder that SmolLM2 is fetched into")
    opened = sinks.open_transformers(str(sinks.fetch(sinks.SMOLLM, Path(folder))))
    table = sinks.measure(opened.model, opened.tokenizer, sinks.TEXTS[:1])
    late = slice(12, 30)
    assert table.plain[late].mean() > 0.4
    assert abs(table.replaced[late] - table.plain[late]).max() < 0.05  # another word in its place: the same
    assert table.bos[late].mean() > 0.4
    assert max(table.second[late].mean(), table.moved[late].mean()) < 0.02  # the same word elsewhere: nothing
    assert table.value[late].mean() < 0.5
