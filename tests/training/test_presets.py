"""Settings that fit the data; what a person sets stays."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.config import Config, RnnConfig, TransformerConfig
from heedful.errors import ConfigError
from heedful.training.setup import PRESETS, apply_preset


@pytest.mark.parametrize("pairs", [1, 4_999, 5_000, 199_999, 200_000, 10**7, 10**9])
@pytest.mark.parametrize("family", [None, "rnn", "fixed", "transformer"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_choice_is_a_whole_set_of_settings(pairs: int, family: str | None, device: str) -> None:
    config, words = apply_preset({"model": {"family": family}} if family else {}, pairs, device=device)
    assert family in (None, config.family)
    assert f"for {pairs:,} pairs" in words


def test_more_pairs_get_larger_models() -> None:
    tiny, small, medium = (apply_preset({}, pairs, device="cuda")[0] for pairs in (1_000, 30_000, 1_000_000))
    assert isinstance(tiny.model, RnnConfig)
    assert isinstance(small.model, TransformerConfig)
    assert isinstance(medium.model, TransformerConfig)
    assert small.model.width < medium.model.width
    assert small.training.batch_tokens < medium.training.batch_tokens


def test_what_is_set_stays_and_is_not_said() -> None:
    config, words = apply_preset({"training": {"rate": "0.5"}, "model": {"dropout": "0.9"}}, 30_000)
    assert config.training.rate == 0.5
    assert config.model.dropout == 0.9
    assert "training.rate" not in words
    assert "model.dropout" not in words
    assert "model.width=256" in words


def test_who_says_joint_or_tied_says_both() -> None:
    config, _ = apply_preset({"text": {"joint": False}}, 30_000, device="cuda")
    assert isinstance(config.model, TransformerConfig)
    assert config.model.tied == "target"
    config, _ = apply_preset({"model": {"tied": "none"}}, 30_000, device="cuda")
    assert not config.text.joint


@pytest.mark.parametrize(
    ("asked", "family"),
    [
        ({"cell": "lstm"}, "rnn"),
        ({"score": "dot"}, "rnn"),
        ({"context": "every"}, "fixed"),
        ({"heads": 8}, "transformer"),
        ({"width": 64}, "transformer"),
        ({"tied": "none"}, "transformer"),
        ({"tied": "true"}, "rnn"),
    ],
)
def test_the_family_is_one_that_has_what_is_asked_for(asked: dict[str, object], family: str) -> None:
    assert apply_preset({"model": asked}, 30_000, device="cuda")[0].family == family


def test_a_family_that_a_setting_has_chosen_is_said() -> None:
    config, words = apply_preset({"model": {"heads": 8, "width": 64}}, 30_000)
    assert config.family == "transformer"
    assert words.endswith("; the family is transformer, not rnn, because of model.heads")
    assert "because" not in apply_preset({"model": {"heads": 8, "family": "transformer"}}, 30_000)[1]
    assert "because" not in apply_preset({"model": {"width": 64}}, 30_000)[1]


@pytest.mark.parametrize("name", ["small", "medium", "large"])
@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_a_cpu_has_less_to_do(name: str, family: str) -> None:
    there, here = (apply_preset({"model": {"family": family}}, 10, name, device)[0] for device in ("cuda", "cpu"))
    assert here.training.steps < there.training.steps
    assert here.training.batch_tokens < there.training.batch_tokens
    assert here.model.width <= there.model.width
    assert apply_preset({}, 10, name, "cpu")[0].family == "rnn"
    assert "pairs on a CPU: " in apply_preset({}, 10, name, "cpu")[1]


def test_values_tell_the_family_before_it_is_known_how_many_pairs_there_are() -> None:
    assert apply_preset({"model": {"tied": "all"}, "text": {"joint": "true"}}, 0)[0].family == "transformer"


def test_what_no_family_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'model.widht' .* Did you mean 'width'"):
        apply_preset({"model": {"widht": 3}}, 30_000)


def test_r_drop_is_for_gpus() -> None:
    assert apply_preset({}, 30_000, device="cuda")[0].training.rdrop > 0
    assert apply_preset({}, 30_000, device="cpu")[0].training.rdrop == 0
    assert apply_preset({"training": {"rdrop": 1}}, 30_000, device="cpu")[0].training.rdrop == 1


def test_by_name() -> None:
    assert apply_preset({}, 30_000, "none") == (Config(), "no preset: all other settings have their defaults")
    assert apply_preset({}, 10, "large", "cuda")[0].training.batch_tokens == 16_384
    with pytest.raises(ConfigError, match="unknown preset 'smal'; choose one of .* Did you mean 'small'"):
        apply_preset({}, 10, "smal")
    assert list(PRESETS) == ["none", "tiny", "small", "medium", "large"]


@pytest.mark.parametrize("settings", [{"steps": 5}, {"training.steps": 5}])
def test_settings_without_sections(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"expected settings by section, as in .* but '.*steps' is 5"):
        apply_preset(settings, 100)


@pytest.mark.parametrize("pairs", [1, 4_999, 5_000, 199_999, 200_000, 10**7, 10**9])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_student_has_a_decoder_of_two_ssru_layers(pairs: int, device: str) -> None:
    config, words = apply_preset({}, pairs, "student", device)
    assert isinstance(config.model, TransformerConfig)
    assert (config.model.cell, config.model.depth, config.model.width) == ("ssru", 2, 256)
    assert "student" in words
    assert config.training == apply_preset({"model": {"family": "transformer"}}, pairs, device=device)[0].training
    assert config.model.tied != "all" or config.text.joint


def test_a_student_of_another_family_is_possible() -> None:
    config, words = apply_preset({"model": {"cell": "lstm"}}, 30_000, "student")
    assert config.family == "rnn"
    assert "because of model.cell" in words
    with pytest.raises(ConfigError, match="captions"):
        apply_preset({"image": {}}, 30_000, "student")
