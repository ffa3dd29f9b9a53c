"""Small runs for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conftest import TINY, copies

import heedful


def small(**sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of a small run, with changes."""
    return {name: {**values, **sections.get(name, {})} for name, values in TINY.items()}


def train_tiny(out: Path, **sections: dict[str, Any]) -> Path:
    heedful.train(copies(), out, settings=small(**sections))
    return out
