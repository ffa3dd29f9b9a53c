"""heedful: sequence-to-sequence models that show, for every word they write, which source words they attended to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from heedful.config import Config, read_recipe
from heedful.errors import HeedfulError, __version__

if TYPE_CHECKING:
    from heedful import observe
    from heedful.bulk.distill import distill
    from heedful.bulk.run import translate_files
    from heedful.client import Client
    from heedful.data.store import read_pairs
    from heedful.decoding import Decoding
    from heedful.evaluation.compare import compare
    from heedful.evaluation.evaluate import evaluate
    from heedful.evaluation.report import report
    from heedful.observe.seeing import see
    from heedful.observe.watching import watch
    from heedful.trace import Trace
    from heedful.translator import Translation, Translator, align, load
    from heedful.translator.select_readout import select_readout
    from heedful.translator.train import train

__all__ = [
    "Client",
    "Config",
    "Decoding",
    "HeedfulError",
    "Trace",
    "Translation",
    "Translator",
    "__version__",
    "align",
    "compare",
    "distill",
    "evaluate",
    "load",
    "observe",
    "read_pairs",
    "read_recipe",
    "report",
    "see",
    "select_readout",
    "train",
    "translate_files",
    "watch",
]

# Waiting threads of PyTorch sleep instead of spin: on a busy machine spinning threads keep the others from the cores,
# and two are up to a hundred times slower than one. OpenMP reads this once, when PyTorch is loaded.
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
if "torch" not in sys.modules and not any(name in os.environ for name in (*_WAITING, "GOMP_SPINCOUNT")):
    os.environ.update(_WAITING)

_LAZY = {
    "Client": "heedful.client",
    "Decoding": "heedful.decoding",
    "Trace": "heedful.trace",
    "Translation": "heedful.translator",
    "Translator": "heedful.translator",
    "align": "heedful.translator",
    "compare": "heedful.evaluation.compare",
    "distill": "heedful.bulk.distill",
    "evaluate": "heedful.evaluation.evaluate",
    "load": "heedful.translator",
    "read_pairs": "heedful.data.store",
    "report": "heedful.evaluation.report",
    "see": "heedful.observe.seeing",
    "select_readout": "heedful.translator",
    "train": "heedful.translator.train",
    "translate_files": "heedful.bulk.run",
    "watch": "heedful.observe.watching",
}
_ROOMS = ("observe",)  # heedful.observe.watch(model)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a name on first use, since torch and numpy take seconds; keep all names of modules that are loaded."""
    if name not in (*_LAZY, *_ROOMS):
        raise AttributeError(f"module 'heedful' has no attribute '{name}'")
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"heedful.{name}")
    importlib.import_module(_LAZY[name])
    for each, module in _LAZY.items():
        if module in sys.modules and each in vars(sys.modules[module]):
            globals().setdefault(each, vars(sys.modules[module])[each])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
