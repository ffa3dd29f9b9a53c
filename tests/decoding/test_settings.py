"""The settings of decoding: an error names the setting, its value, and what is allowed."""

from __future__ import annotations

from math import inf, nan

import pytest

from heedful.decoding import Decoding
from heedful.errors import ConfigError

WHOLE = {"beam": 1, "n_best": 1, "min_length": 0, "max_length": 0, "no_repeat": 0, "top_k": 0, "seed": 0}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [-1, 1.5, nan, True, False, "3", None, 2**70, inf, [1]], ids=repr)
def test_whole_numbers(name, value):
    with pytest.raises(ConfigError) as caught:
        Decoding(**{name: value})
    for fact in (name, repr(value), f"whole number from {WHOLE[name]} to "):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("alpha", [-0.1, 10.1, nan, inf, -inf, True, "1", None], "from 0 to 10"),
        ("temperature", [0, 0.0, -1.0, nan, inf, True, "1", None], "above 0"),
        ("top_p", [0, 0.0, -0.5, 1.5, nan, inf, True, "0.9", None], "above 0 and at most 1"),
    ],
)
def test_numbers(name, values, expected):
    for value in values:
        with pytest.raises(ConfigError) as caught:
            Decoding(sample=True, **{name: value})
        for fact in (name, repr(value), expected):
            assert fact in str(caught.value)


@pytest.mark.parametrize("value", ["yes", 1, 0, None])
def test_sample_is_a_switch(value):
    with pytest.raises(ConfigError, match=f"sample.*{value!r}.*True.*False"):
        Decoding(sample=value)


@pytest.mark.parametrize("value", ["lenght", "", None, 3])
def test_the_penalty_is_one_of_three(value):
    with pytest.raises(ConfigError, match=f"penalty.*'{value}'.*gnmt, length, none"):
        Decoding(penalty=value)
    if value == "lenght":
        with pytest.raises(ConfigError, match="mean 'length'"):
            Decoding(penalty=value)


@pytest.mark.parametrize("value", [0, 1001])
@pytest.mark.parametrize("name", ["beam", "n_best"])
def test_sizes_of_beams(name, value):
    with pytest.raises(ConfigError, match=f"{name}.* {value}.*from 1 to 1000"):
        Decoding(**{name: value})


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"min_length": 5, "max_length": 4}, ["min_length", "5", "max_length", "4"]),
        ({"sample": True, "beam": 2}, ["sample", "beam"]),
        ({"n_best": 2}, ["n_best is 2", "beam of 1"]),
        ({"n_best": 6, "beam": 5}, ["n_best is 6", "beam of 5"]),
        ({"temperature": 0.5}, ["temperature is 0.5", "sample"]),
        ({"top_k": 3, "beam": 4}, ["top_k is 3", "sample"]),
        ({"top_p": 0.9}, ["top_p is 0.9", "sample"]),
    ],
)
def test_settings_that_contradict_each_other(settings, facts):
    with pytest.raises(ConfigError) as caught:
        Decoding(**settings)
    for fact in facts:
        assert fact in str(caught.value)


@pytest.mark.parametrize("name", ["min_length", "max_length"])
def test_a_length_without_end(name):
    with pytest.raises(ConfigError, match=f"{name}.* 1000000.*from 0 to 10000"):
        Decoding(**{name: 10**6})


def test_what_is_allowed():
    Decoding(beam=1000, n_best=1000)
    Decoding(sample=True, n_best=1000, temperature=1e-300, top_k=10**9, top_p=1, seed=2**63 - 1)
    Decoding(min_length=5)  # without a maximum there is none to be more than
    Decoding(min_length=5, max_length=5)
    Decoding(min_length=10_000, max_length=10_000)
    Decoding(alpha=0, penalty="gnmt")
    Decoding(temperature=1)


@pytest.mark.parametrize("penalty", ["gnmt", "length", "none"])
@pytest.mark.parametrize("alpha", [0, 0.3, 1, 10])
def test_the_divisor_never_falls(penalty, alpha):
    """The stopping rule of beam search rests on it."""
    divisors = [Decoding(penalty=penalty, alpha=alpha).divisor(n) for n in range(1, 200)]
    assert divisors == sorted(divisors)
    assert divisors[0] == 1
