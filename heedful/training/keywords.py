"""Settings by name: `heedful.train(pairs, out, steps=500, model="transformer")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from heedful.config import MODELS, DataConfig, TextConfig, TrainingConfig
from heedful.errors import ConfigError, known_arguments

__all__ = ["SECTIONS", "with_keywords"]

Settings = Mapping[str, Mapping[str, object]]


def _sections() -> dict[str, str]:
    """Return the section of each setting; `model` stands for the family of the model. No name is in two sections."""
    found = {"model": "model"}
    kinds: dict[str, list[type[Any]]] = {
        "data": [DataConfig],
        "text": [TextConfig],
        "training": [TrainingConfig],
        "model": list(MODELS.values()),
    }
    for section, classes in kinds.items():
        for kind in classes:
            found.update({field.name: section for field in fields(kind)})
    return found


SECTIONS = _sections()


def with_keywords(settings: Settings, keywords: Mapping[str, object], function: Callable[..., object]) -> Settings:
    """Return nested settings with those that were given by name.

    Raises ArgumentError for an unknown name, and ConfigError for a setting that is given twice.
    """
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    known_arguments(function.__name__, keywords, [*named, *SECTIONS])
    merged = {section: dict(values) if isinstance(values, Mapping) else values for section, values in settings.items()}
    for name, value in keywords.items():
        section, key = SECTIONS[name], "family" if name == "model" else name
        if key in merged.setdefault(section, {}):
            raise ConfigError(f"{section}.{key} is given twice: as {name}= and in settings; leave one of them out")
        merged[section][key] = value
    return merged
