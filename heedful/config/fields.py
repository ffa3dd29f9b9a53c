"""What a setting is: a field that knows what it allows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from heedful.errors import ConfigError, choose, nearest

__all__ = ["choice", "real", "section", "switch", "weights", "whole"]

Section = TypeVar("Section")
MOST = 1000.0  # of a weight


def choice(default: str, *allowed: str, doc: str) -> Any:  # noqa: ANN401  (dataclasses.field is Any too)
    """A word out of a few; the default is one of them."""
    return field(default=default, metadata={"allowed": (default, *allowed), "doc": doc})


def whole(default: int, low: int, high: int, doc: str) -> Any:  # noqa: ANN401
    """A whole number between two."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def real(default: float, low: float, high: float, doc: str) -> Any:  # noqa: ANN401
    """A number between two."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def switch(default: bool, doc: str) -> Any:  # noqa: ANN401
    """Yes or no."""
    return field(default=default, metadata={"doc": doc})


def weights(doc: str) -> Any:  # noqa: ANN401
    """Numbers by name, kept as text: "coverage=0.1,entropy=0.5"."""
    return field(default="", metadata={"weights": True, "doc": doc})


def section(name: str, kind: type[Section], given: Mapping[str, object], whose: str = "") -> Section:
    """Return settings of a kind with the given values, each checked."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in given.items():
        if key not in fields:
            allowed = ", ".join(sorted(fields))
            unknown = f"unknown setting '{name}.{key:.100}'{whose}"
            raise ConfigError(f"{unknown}; choose one of {allowed}.{nearest(key[:100], fields)}")
        values[key] = _value(f"{name}.{key}", fields[key], value)
    return kind(**values)


def _value(name: str, wanted: dataclasses.Field[Any], value: object) -> object:
    if "allowed" in wanted.metadata:
        return choose(name, str(value), wanted.metadata["allowed"])
    if isinstance(wanted.default, bool):
        switches = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}
        found = value if isinstance(value, bool) else switches.get(str(value).lower())
        if found is None:
            raise ConfigError(f"{name} is '{value!s:.100}', expected true or false")
        return found
    if "weights" in wanted.metadata:
        return _named_weights(name, value)
    low, high = wanted.metadata["low"], wanted.metadata["high"]
    kind = int if isinstance(wanted.default, int) else float
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = kind(value)
        if number != float(value) or not low <= number <= high:
            raise ValueError
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} is '{value!s:.100}', expected {what} from {low} to {high}") from None
    return number


def _named_weights(name: str, value: object) -> str:
    """Return numbers by name as text, from text or from a mapping."""
    try:
        if not isinstance(value, str | Mapping):
            raise ValueError
        parts = value if isinstance(value, Mapping) else dict(p.partition("=")[::2] for p in value.split(",") if p)
        found = {str(key).strip(): float(str(number)) for key, number in parts.items()}
        if not all(key and not set(key) & set(",=") and 0 <= number <= MOST for key, number in found.items()):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{name} is '{value!s:.100}', expected NAME=WEIGHT,…, weights from 0 to {MOST:g}") from None
    return ",".join(f"{key}={number}" for key, number in found.items())
