"""Settings: what each field allows, what is refused and in which words, and that nothing is lost on the way."""

import dataclasses
import json
import math
import typing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.config import (
    MODELS,
    Config,
    DataConfig,
    FixedConfig,
    RnnConfig,
    TextConfig,
    TrainingConfig,
    read_recipe,
    settings,
)
from heedful.errors import ConfigError

KINDS = {("model", name): kind for name, kind in MODELS.items()} | {
    ("data", ""): DataConfig,
    ("text", ""): TextConfig,
    ("training", ""): TrainingConfig,
}
FIELDS = [
    pytest.param(section, family, field, id=f"{family or section}.{field.name}")
    for (section, family), kind in KINDS.items()
    for field in dataclasses.fields(kind)
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def one(section: str, family: str, name: str, value: object) -> object:
    """The field's value after building a configuration with nothing else given."""
    given_ = {name: value} | ({"family": family} if family else {})
    return getattr(getattr(Config.build({section: given_}), section), name)


def kind_of(field: dataclasses.Field) -> str:
    if "allowed" in field.metadata:
        return "choice"
    return type(field.default).__name__


@pytest.mark.parametrize(("section", "family", "field"), FIELDS)
def test_default_is_allowed_and_explained(section, family, field):
    found = one(section, family, field.name, field.default)
    assert found == field.default
    assert type(found) is type(field.default)
    assert field.metadata["doc"]


@pytest.mark.parametrize(("section", "family", "field"), FIELDS)
def test_the_ends_are_allowed_and_no_more(section, family, field):
    kind, allowed = kind_of(field), field.metadata
    if kind == "choice":
        inside, outside = allowed["allowed"], ["", "none of these", allowed["allowed"][0] + "x"]
    elif kind == "bool":
        inside, outside = [True, False], ["", "maybe", 0, 1, 2]
    elif kind == "str":
        inside = ["", "coverage=0.1", "coverage=0.1,entropy=2.0"]
        outside = ["coverage", "coverage=", "=1.0", "coverage=-1", "coverage=nan", "coverage=1e9", 3, [], {"a=b": 1}]
    elif kind == "int":
        inside, outside = [allowed["low"], allowed["high"]], [allowed["low"] - 1, allowed["high"] + 1]
    else:
        inside = [allowed["low"], allowed["high"]]
        outside = [math.nextafter(allowed["low"], -math.inf), math.nextafter(allowed["high"], math.inf)]
    for value in inside:
        assert one(section, family, field.name, value) == value
        assert one(section, family, field.name, str(value)) == value  # as the command line gives it
    for value in outside:
        with pytest.raises(ConfigError, match=rf"{section}\.{field.name}\b"):
            one(section, family, field.name, value)


@pytest.mark.parametrize(("section", "family", "field"), FIELDS)
def test_what_no_field_takes(section, family, field):
    for value in (None, [], [1], {}, {"a": 1}, math.nan, math.inf, -math.inf, "nan", "inf", "1e400", "\x00"):
        if kind_of(field) == "str" and isinstance(value, dict):
            assert one(section, family, field.name, value) == ",".join(f"{key}={float(n)}" for key, n in value.items())
            continue
        with pytest.raises(ConfigError, match=rf"{section}\.{field.name}\b"):
            one(section, family, field.name, value)
    if kind_of(field) != "bool":
        with pytest.raises(ConfigError, match=rf"{section}\.{field.name}\b"):
            one(section, family, field.name, True)


@given(st.integers(0, len(FIELDS) - 1).map(lambda i: FIELDS[i].values), JSON)
@example(("training", "", TrainingConfig.__dataclass_fields__["steps"]), 10**400)
@example(("training", "", TrainingConfig.__dataclass_fields__["steps"]), "9" * 5000)
@example(("training", "", TrainingConfig.__dataclass_fields__["rate"]), "9" * 5000)
@example(("training", "", TrainingConfig.__dataclass_fields__["rate"]), 10**400)
def test_any_json_is_taken_within_bounds_or_refused(where, value):
    section, family, field = where
    try:
        found = one(section, family, field.name, value)
    except ConfigError:
        return
    assert type(found) is type(field.default)
    kind = kind_of(field)
    if kind == "choice":
        assert found in field.metadata["allowed"]
    elif kind == "str":
        assert one(section, family, field.name, found) == found
    elif kind != "bool":
        assert field.metadata["low"] <= found <= field.metadata["high"]


@given(st.dictionaries(st.sampled_from(["model", "text", "training", "x"]), JSON, max_size=3))
@example({"model": {"family": None}})
@example({"model": {"family": ["rnn"]}})
@example({"model": {"family": {}}})
def test_any_json_object_builds_or_is_refused(given_):
    try:
        assert isinstance(Config.build(given_), Config)
    except ConfigError:
        return  # any other error is a failure


WORDS = [
    ({"model": {"widht": 3}}, "unknown setting 'model.widht' of the model 'rnn'; ", "Did you mean 'width'?"),
    ({"model": {"family": "fixed", "score": "dot"}}, "unknown setting 'model.score' of the model 'fixed'; ", ""),
    (
        {"text": {"knid": "bpe"}},
        "unknown setting 'text.knid'; choose one of joint, kind, max_length, normalization, regularise, size.",
        "'kind'?",
    ),
    (
        {"model": {"family": "rmn"}},
        "unknown model 'rmn'; choose one of fixed, rnn, transformer.",
        "Did you mean 'rnn'?",
    ),
    ({"model": {"cell": "GRU"}}, "unknown model.cell 'GRU'; choose one of gru, lstm, ", "Did you mean 'gru'?"),
    (
        {"trainig": {}},
        "unknown section 'trainig'; choose one of data, image, model, text, training.",
        "Did you mean 'training'?",
    ),
    ({"text": None}, "text is None, expected settings by name", ""),
    ({"model": []}, "model is [], expected settings by name", ""),
    ({"model": {"layers": 0}}, "model.layers is '0', expected a whole number from 1 to 32", ""),
    ({"model": {"layers": 1.5}}, "model.layers is '1.5', expected a whole number from 1 to 32", ""),
    ({"model": {"layers": "two"}}, "model.layers is 'two', expected a whole number from 1 to 32", ""),
    ({"model": {"layers": True}}, "model.layers is 'True', expected a whole number from 1 to 32", ""),
    ({"model": {"dropout": "0,2"}}, "model.dropout is '0,2', expected a number from 0.0 to 0.95", ""),
    ({"model": {"dropout": False}}, "model.dropout is 'False', expected a number from 0.0 to 0.95", ""),
    ({"model": {"tied": "ja"}}, "model.tied is 'ja', expected true or false", ""),
]


@pytest.mark.parametrize(("given_", "begins", "ends"), WORDS)
def test_words_of_refusals(given_, begins, ends):
    with pytest.raises(ConfigError) as caught:
        Config.build(given_)
    assert str(caught.value).startswith(begins)
    assert str(caught.value).endswith(ends)


@pytest.mark.parametrize("value", ["true", "yes", "on", "TRUE", True])
def test_switches_on(value):
    assert one("text", "", "joint", value) is True


@pytest.mark.parametrize("value", ["false", "no", "off", "False", False])
def test_switches_off(value):
    assert one("model", "rnn", "bidirectional", value) is False


def test_a_whole_number_written_as_a_real_one_becomes_whole():
    found = one("training", "", "steps", 300.0)  # JSON writers of other languages know no integers
    assert found == 300
    assert type(found) is int


def value_of(field: dataclasses.Field) -> st.SearchStrategy:
    kind, allowed = kind_of(field), field.metadata
    if kind == "choice":
        return st.sampled_from(tuple(allowed["allowed"]))  # names may be added to the list itself later
    if kind == "bool":
        return st.booleans()
    if kind == "str":
        return st.sampled_from(["", "coverage=0.1", "coverage=0.1,entropy=2.0"])
    if kind == "int":
        return st.integers(allowed["low"], allowed["high"])
    return st.floats(allowed["low"], allowed["high"])


def section_of(kind: type) -> st.SearchStrategy:
    return st.builds(kind, **{f.name: value_of(f) for f in dataclasses.fields(kind)})


CONFIGS = st.builds(
    Config,
    model=st.one_of([section_of(kind) for kind in MODELS.values()]),
    text=section_of(TextConfig),
    training=section_of(TrainingConfig),
)


@given(CONFIGS)
def test_round_trip_through_json(config):
    assert Config.build(json.loads(json.dumps(config.plain()))) == config


@given(CONFIGS)
def test_round_trip_through_the_command_line(config):
    pairs = [f"{s}.{k}={v}" for s, values in config.plain().items() for k, v in values.items()]
    assert Config.build(settings(pairs)) == config


def test_nothing_given_is_the_default():
    assert Config.build({}) == Config() == Config(RnnConfig(), DataConfig(), TextConfig(), TrainingConfig())


def test_family():
    assert Config().family == "rnn"
    assert Config(model=FixedConfig()).family == "fixed"
    assert Config.build({"model": {"family": "fixed"}}).model == FixedConfig()


def test_build_leaves_what_it_was_given_alone():
    given_ = {"model": {"family": "fixed", "width": 64}}
    Config.build(given_)
    assert given_ == {"model": {"family": "fixed", "width": 64}}


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().text.size = 3


def test_annotations_agree_with_defaults():
    for kind in KINDS.values():
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            assert type(field.default) is hints[field.name], field.name


@pytest.mark.parametrize(
    ("assignments", "nested"),
    [
        ([], {}),
        (["a.b=c"], {"a": {"b": "c"}}),
        ([" a.b = c "], {"a": {"b": "c"}}),
        (["a.b=1", "a.c=2", "d.e=3"], {"a": {"b": "1", "c": "2"}, "d": {"e": "3"}}),
        (["a.b=1", "a.b=2"], {"a": {"b": "2"}}),
        (["a.b=c=d"], {"a": {"b": "c=d"}}),
        (["a.b="], {"a": {"b": ""}}),
    ],
)
def test_settings(assignments, nested):
    assert settings(assignments) == nested


@pytest.mark.parametrize("text", ["", "=", "a", "a.b", "a=b", ".b=c", "a.=c", "=a.b", "."])
def test_settings_that_cannot_be_read(text):
    with pytest.raises(ConfigError) as caught:
        settings([text])
    assert str(caught.value) == f"cannot read the setting '{text}'; expected section.key=value"


def test_widths_by_hand():
    both = RnnConfig(width=256)
    assert (both.directions, both.per_direction, both.memory_width) == (2, 128, 256)
    one_way = RnnConfig(width=255, bidirectional=False)
    assert (one_way.directions, one_way.per_direction, one_way.memory_width) == (1, 255, 255)
    given_ = RnnConfig(width=255, encoder_width=100)
    assert (given_.per_direction, given_.memory_width) == (100, 200)


def test_an_odd_width_cannot_be_shared():
    with pytest.raises(ConfigError, match=r"model\.width is 255, which two directions cannot share"):
        _ = RnnConfig(width=255).memory_width


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[trainin]\nsteps = 3",
            "unknown section 'trainin'; choose one of data, image, model, text, training. Did you",
        ),
        ("[training]\nstepps = 3", "unknown setting 'training.stepps'; choose one of "),
        ("[training]\nsteps = 0", "training.steps is '0', expected a whole number from 1 to "),
        ('[text]\nkind = "bep"', "unknown text.kind 'bep'; choose one of "),
        ('[model]\nfamily = "rn"', "unknown model 'rn'; choose one of fixed, rnn, transformer. Did you mean 'rnn'?"),
        ('[model]\nfamily = "fixed"\nscore = "dot"', "unknown setting 'model.score' of the model 'fixed'"),
        ("[model]\nhaeds = 8", "unknown model setting 'haeds'; choose one of "),
        ('[model]\nscore = "dto"', "unknown model.score 'dto'; choose one of "),
        ("[model]\ndropout = 3", "model.dropout is '3', expected a number from 0.0 to 0.95"),
        ("steps = 3", "'steps' stands outside the sections [model], [data], [text], [training]"),
        ("[model", "this is not TOML ("),
        (None, "there is no such file"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_with_its_name(tmp_path, text, words):
    path = tmp_path / "r.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_recipe(path)
    assert str(caught.value).startswith(f"{path}: {words}")


@pytest.mark.parametrize("text", ["[model]\nheads = 8", '[model]\nscore = "dot"', '[model]\ntied = "all"'])
def test_a_recipe_need_not_say_its_family(tmp_path, text):
    path = tmp_path / "r.toml"
    path.write_text(text)
    read_recipe(path)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("rate=0.1", "training.rate"),
        ("lr=1", "training.rate"),
        ("widht=8", "model.width"),
        ("model=rnn", "model.family"),
    ],
)
def test_a_setting_without_its_section_gets_a_guess(text: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}'.*did you mean {guess}"):
        settings([text])


def test_a_value_of_another_family_names_that_family() -> None:
    with pytest.raises(ConfigError, match=r"'lstm'.*self-attention.*model\.family=.*rnn"):
        Config.build({"model": {"family": "transformer", "cell": "lstm"}})
