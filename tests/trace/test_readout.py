"""Read-outs: what they say, what they refuse, and what they make of weights, by hand."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import Config, FixedConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError, DataError
from heedful.trace.alarms import AlarmRates
from heedful.trace.readout import ENDS, MARKS, STEPS, SYMMETRIES, Readout, weighted

# Two layers of two heads, two target tokens, two source tokens.
WEIGHTS = np.array(
    [
        [[[0.1, 0.9], [0.2, 0.8]], [[0.3, 0.7], [0.4, 0.6]]],
        [[[0.5, 0.5], [0.6, 0.4]], [[0.7, 0.3], [0.8, 0.2]]],
    ],
    dtype=np.float32,
)
AFTER = np.array([[[1.0, 0.0], [0.9, 0.1]], [[0.25, 0.75], [0.0, 1.0]]], dtype=np.float32)
NORMS = np.array([[[1.0, 3.0], [2.0, 2.0]], [[0.0, 1.0], [4.0, 1.0]]], dtype=np.float32)


@pytest.mark.parametrize(
    ("readout", "wanted"),
    [
        (Readout(), [[0.4, 0.6], [0.5, 0.5]]),
        (Readout(1), [[0.2, 0.8], [0.3, 0.7]]),
        (Readout(2, (2,)), [[0.7, 0.3], [0.8, 0.2]]),
        (Readout(None, (1,)), [[0.3, 0.7], [0.4, 0.6]]),
        (Readout(2, (2, 1)), [[0.6, 0.4], [0.7, 0.3]]),
        # The row of a token is that of the step which reads it: the first one's is the second row.
        (Readout(1, (1,), "next"), [[0.2, 0.8], [1.0, 0.0]]),
        (Readout(2, step="next"), [[0.7, 0.3], [0.125, 0.875]]),
        # 0.1 · 1 and 0.9 · 3 are 0.1 and 2.7 of 2.8.
        (Readout(1, (1,), norms=True), [[0.1 / 2.8, 2.7 / 2.8], [0.2 / 2.6, 2.4 / 2.6]]),
        (Readout(2, (1,), norms=True), [[0, 1], [0, 1]]),
        # Each head is made shares of its own before the mean is taken.
        (Readout(2, norms=True), [[2.8 / 3.1 / 2, (1 + 0.3 / 3.1) / 2], [3.2 / 3.4 / 2, (1 + 0.2 / 3.4) / 2]]),
        (Readout(1, (1,), "next", norms=True), [[0.2 / 2.6, 2.4 / 2.6], [1, 0]]),
    ],
    ids=str,
)
def test_mix_by_hand(readout, wanted):
    found = readout.mix(WEIGHTS, AFTER, NORMS)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert found.dtype == np.float32


def test_what_lets_nothing_through_is_zero():
    np.testing.assert_array_equal(weighted(np.ones((1, 2), np.float32) / 2, np.zeros(2, np.float32)), np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("readout", "words"),
    [
        (Readout(), "mean of all layers and heads"),
        (Readout(3), "layer 3"),
        (Readout(3, (2,)), "layer 3, head 2"),
        (Readout(None, (1, 2)), "heads 1, 2"),
        (Readout(1, (1,), "next", norms=True), "layer 1, head 1; read at the next step; weighted by norms"),
        (Readout(3, even=True), "layer 3"),
        (Readout(2, label="mean of 2 models"), "mean of 2 models"),
    ],
)
def test_it_says_what_it_is(readout, words):
    assert str(readout) == words


@pytest.mark.parametrize(
    ("readout", "words"),
    [
        (Readout(3, (1,), "next", norms=True), []),
        (Readout(end="drop", even=True), ["evened", "</s> left out"]),
        (Readout(marks="apart", threshold=0.25), ["at least 0.25 of the largest weight", "punctuation apart"]),
        (Readout(symmetry="product"), ["product of two directions"]),
    ],
)
def test_it_says_what_makes_links(readout, words):
    assert readout.rules == words


READOUTS = st.builds(
    Readout,
    layer=st.none() | st.integers(1, 12),
    heads=st.lists(st.integers(1, 16), unique=True, max_size=4).map(tuple),
    step=st.sampled_from(STEPS),
    norms=st.booleans(),
    end=st.sampled_from(ENDS),
    marks=st.sampled_from(MARKS),
    threshold=st.floats(0.01, 1),
    symmetry=st.sampled_from(SYMMETRIES),
    chosen=st.text(max_size=5),
    label=st.text(max_size=5),
    even=st.booleans(),
)


@given(READOUTS)
def test_nothing_is_lost_in_json(readout):
    assert Readout.build(json.loads(json.dumps(readout.plain()))) == readout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step": "last"}, "step.*'last'.*same, next"),
        ({"end": "keep"}, "end.*'keep'.*stop, drop"),
        ({"marks": ""}, "marks.*''.*keep, apart"),
        ({"symmetry": "both"}, "symmetry.*'both'.*none, product, intersection"),
        ({"heads": (1, 1)}, "head"),
        ({"threshold": 0.0}, "0.0.* 1"),
        ({"threshold": 1.5}, "1.5.* 1"),
        ({"threshold": float("nan")}, "nan.* 1"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        Readout(**given)
    with pytest.raises(DataError, match=f"here: read-out: .*{words}"):
        Readout.build(given, "here")


@pytest.mark.parametrize(
    "plain", [[], "layer", {"layers": 2}, {"layer": "two"}, {"heads": 3}, {"threshold": "much"}, {"heads": [None]}]
)
def test_what_is_no_readout_is_refused(plain):
    with pytest.raises(DataError, match="there: .*read-out"):
        Readout.build(plain, "there")


@pytest.mark.parametrize(("readout", "what"), [(Readout(3), "layer 3"), (Readout(0), "layer 0")])
def test_a_layer_that_is_not_there(readout, what):
    with pytest.raises(ConfigError, match=f"{what}.*1 to 2"):
        readout.mix(WEIGHTS)


@pytest.mark.parametrize("heads", [(3,), (1, 0)])
def test_a_head_that_is_not_there(heads):
    with pytest.raises(ConfigError, match=f"head {heads[-1]}.*1 to 2"):
        Readout(1, heads).mix(WEIGHTS)


def test_the_usual_and_the_naive():
    deep = TransformerConfig(layers=2, decoder_layers=5)
    evened = Readout(end="drop", marks="apart", even=True)
    assert (Readout.naive(deep), Readout.usual(Config(deep))) == (Readout(5), evened)
    alone = replace(evened, layer=1, heads=(1,))
    assert (Readout.naive(RnnConfig()), Readout.usual(Config())) == (Readout(1), alone)
    assert Readout.usual(Config(FixedConfig())) == alone


def test_every_field_goes_there_and_back():
    rates = AlarmRates(30, 90, (("flat", 11, 2), ("sink", 0, 90)))
    odd = Readout(2, (3,), "next", True, "drop", "apart", 0.5, "union", "by hand", "a label", False, True, rates)
    assert all(getattr(odd, f.name) != getattr(Readout(), f.name) for f in fields(Readout))
    assert Readout.build(odd.plain()) == odd


def test_a_number_of_thousands_of_digits_is_not_quoted_whole():
    huge = 10**4000
    for broken in (Readout(layer=huge), Readout(heads=(huge,))):
        with pytest.raises(ConfigError) as error:
            broken.check(2, 4)
        assert len(str(error.value)) < 200
    for plain in ({"alarms": {"wrong": huge, "right": 1, "raised": {}}}, {"alarms": {"raised": huge}}):
        with pytest.raises(DataError) as refused:
            Readout.build(plain)
        assert len(str(refused.value)) < 200
    kinds = {"wrong": 1, "right": 1, "raised": {"x" * 5000: [0, 0]}}
    with pytest.raises(DataError) as refused:
        Readout.build({"alarms": kinds})
    assert len(str(refused.value)) < 300
