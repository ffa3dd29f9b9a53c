"""Settings by name: `heedful.train(pairs, out, steps=500, model="transformer")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from heedful.config import section_of
from heedful.errors import ConfigError, known_arguments

__all__ = ["SECTIONS", "with_keywords"]

Settings = Mapping[str, Mapping[str, object]]


SECTIONS = section_of()


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
