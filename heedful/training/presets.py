"""Settings that fit the data: what an expert would choose for so many pairs on such a device.

What a person sets stays; the rest comes from the first row that the pairs fit. docs/lab/recipes.md says which of these
numbers were measured, and on what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heedful.config import MODELS, Config
from heedful.errors import ConfigError, choose

__all__ = ["ON_CPU", "PRESETS", "Preset", "fit"]

Settings = Mapping[str, Mapping[str, object]]


class Preset(NamedTuple):
    """The pairs that it is for, less than so many; the family that does best with them, and settings for each."""

    pairs: float
    family: str
    common: Settings
    rnn: Settings
    transformer: Settings

    @property
    def steps(self) -> int:
        """Updates at most."""
        return Config.build({"training": self.common.get("training", {})}).training.steps


PRESETS = {
    "none": Preset(0, "rnn", {}, {}, {}),
    "tiny": Preset(5_000, "rnn", {}, {}, {}),
    "small": Preset(
        200_000,
        "transformer",
        {
            "text": {"joint": True},
            "training": {
                "batch_tokens": 4096,
                "batch_sentences": 1024,
                "rate": 0.002,
                "ema": 0.999,
                "steps": 10_000,
                "patience": 12,
            },
        },
        {
            "model": {"width": 512, "embedding": 256, "tied": True, "dropout": 0.3},
            "training": {"warmup": 500, "rdrop": 3.0},
        },
        {
            "model": {"layers": 4, "width": 256, "inner": 512, "heads": 4, "dropout": 0.3, "tied": "all"},
            "training": {"warmup": 1000, "rdrop": 5.0},
        },
    ),
    "medium": Preset(
        2_000_000,
        "transformer",
        {
            "training": {
                "batch_tokens": 8192,
                "batch_sentences": 2048,
                "steps": 60_000,
                "ema": 0.9995,
                "valid_every": 1000,
            }
        },
        {
            "model": {"width": 512, "embedding": 512, "tied": True, "dropout": 0.2},
            "training": {"rate": 0.001, "warmup": 2000},
        },
        {
            "model": {"layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1, "tied": "target"},
            "training": {"rate": 0.0007, "warmup": 4000},
        },
    ),
    "large": Preset(
        float("inf"),
        "transformer",
        {
            "training": {
                "batch_tokens": 16_384,
                "batch_sentences": 4096,
                "steps": 200_000,
                "ema": 0.9999,
                "valid_every": 2000,
                "patience": 20,
            }
        },
        {
            "model": {"width": 1024, "embedding": 512, "layers": 2, "cell": "lstm", "tied": True, "dropout": 0.2},
            "training": {"rate": 0.0007, "warmup": 4000},
        },
        {
            "model": {"layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1, "tied": "target"},
            "training": {"rate": 0.0007, "warmup": 4000, "accumulate": 2},
        },
    ),
}

# A CPU learns from a hundredth of the words in the same time. What its products cost there is the vocabulary and the
# width, so both are small; a Transformer of that size is half as fast as an RNN. No more steps than an evening has.
SMALL_RNN: Settings = {
    "model": {"width": 256, "embedding": 256, "tied": True, "dropout": 0.3},
    "training": {"warmup": 300},
}
SMALL_TRANSFORMER: Settings = {
    "model": {"layers": 2, "width": 256, "inner": 512, "heads": 4, "dropout": 0.2, "tied": "target"},
    "training": {"warmup": 600},
}
ON_CPU = {
    "small": Preset(
        200_000,
        "rnn",
        {"training": {"ema": 0.998, "steps": 5_000, "valid_every": 250}},
        SMALL_RNN,
        SMALL_TRANSFORMER,
    ),
    "medium": Preset(2_000_000, "rnn", {"training": {"ema": 0.999, "steps": 20_000}}, SMALL_RNN, SMALL_TRANSFORMER),
    "large": Preset(float("inf"), "rnn", {"training": {"ema": 0.999, "steps": 40_000}}, SMALL_RNN, SMALL_TRANSFORMER),
}


def fit(settings: Settings, pairs: int, name: str = "auto", device: str = "cpu") -> tuple[Config, str]:
    """Return all settings for so many pairs on a kind of device, and what was chosen, in words."""
    choose("preset", name, ("auto", *PRESETS))
    for section, values in settings.items():
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"settings are given by section, as in {{'training': {{'steps': 500}}}}, but '{section}' is {values!r}"
            )
    if name == "auto":
        name = next(name for name, preset in PRESETS.items() if pairs < preset.pairs)
    preset = ON_CPU.get(name, PRESETS[name]) if device == "cpu" else PRESETS[name]
    family, because = _family(settings.get("model", {}), preset.family)
    own = preset.transformer if family == "transformer" else preset.rnn
    chosen: dict[str, dict[str, object]] = {"model": {"family": family}}
    for layer in (preset.common, own):
        for section, values in layer.items():
            chosen.setdefault(section, {}).update(values)
    asked = {(section, key) for section, values in settings.items() for key in values}
    # Ties and joint vocabularies go together: who says one of them says both.
    if ("text", "joint") in asked or ("model", "tied") in asked:
        chosen.get("model", {}).pop("tied", None)
        chosen.get("text", {}).pop("joint", None)
    kept = {
        section: {key: value for key, value in values.items() if (section, key) not in asked}
        for section, values in chosen.items()
    }
    merged = {section: {**kept.get(section, {}), **settings.get(section, {})} for section in {**kept, **settings}}
    words = ", ".join(f"{section}.{key}={value}" for section, values in kept.items() for key, value in values.items())
    if name == "none":
        return Config.build(merged), f"no preset: what is not set has its default{because}"
    where = " on a CPU" if name in ON_CPU and device == "cpu" else ""
    return Config.build(merged), f"preset '{name}' for {pairs:,} pairs{where}: {words or 'the defaults'}{because}"


def _family(asked: Mapping[str, object], preferred: str) -> tuple[str, str]:
    """Return the family that was asked for, or the preferred one, or one that has the settings asked for, and why."""
    if "family" in asked:
        return choose("model", str(asked["family"]), MODELS), ""
    having = [name for name in ("rnn", "fixed", "transformer") if _builds(name, asked)]
    if preferred in having or not having:
        return preferred, ""
    lacking = ", ".join(f"model.{key}" for key, value in asked.items() if not _builds(preferred, {key: value}))
    return having[0], f"; the family is {having[0]}, not {preferred}, because of {lacking}"


def _builds(family: str, asked: Mapping[str, object]) -> bool:
    """Whether a family has such settings, and allows such values."""
    try:
        Config.build({"model": {"family": family, **asked}})
    except ConfigError:
        return False
    return True
