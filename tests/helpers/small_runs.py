"""Small training runs, and the import of benchmarks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from conftest import ROOT, TINY, copies
from torch import Tensor

import heedful
import heedful.text


def small(**sections: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of a small run with some changed."""
    return {name: {**values, **sections.get(name, {})} for name, values in TINY.items()}


def train_tiny(out: Path, **sections: dict[str, Any]) -> Path:
    heedful.train(copies(), out, settings=small(**sections))
    return out


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the ids of sentences as a tensor (B, longest)."""
    return torch.from_numpy(heedful.text.pad(rows))


def benchmark(name: str) -> ModuleType:
    """Import a file of benchmarks/, which is no package, so that it finds its neighbours as when it is run."""
    if str(ROOT / "benchmarks") not in sys.path:
        sys.path.append(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
