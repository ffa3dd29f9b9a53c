"""Checkpoints: `checkpoints/STEP/` is a model folder that also holds all that a run needs to go on.

Besides the model: `optimizer.safetensors`, `best.safetensors` (the best weights so far), `average.safetensors` (the
moving average, if there is one), `recent.safetensors` (the weights of the last validations, if they are to be averaged)
and `run.json`. The folder is filled under another name and renamed when it is whole, and its `config.json` has
everything's checksum.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.bounded import max_json, parse_json
from heedful.disk import whole_folder, writing
from heedful.errors import DiskError, HeedfulError, ModelError, NewerFormatError
from heedful.escapes import printable
from heedful.folder import (
    AVERAGE,
    BEST,
    OPTIMIZER,
    RECENT,
    RUN,
    ModelFolder,
    Parts,
    pack,
    write_model,
)
from heedful.training.records import RESUME, Validation

__all__ = [
    "Checkpoint",
    "Position",
    "folders",
    "newest",
    "optimizer_tensors",
    "restore_optimizer",
    "save",
    "saying_what_is_left",
    "tidy",
]

MOMENTS = 4  # of each weight, that an optimizer may remember; AdamW has two, and the number of steps


@dataclass(frozen=True)
class Position:
    """Where a run stands: updates done, the epoch and the batches done in it, and the best validation so far.

    `without_better` counts the validations since then, `halved` how often the rate was halved on a plateau, and
    `waited` the validations since it was last halved, or since the best.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: Validation | None = None
    without_better: int = 0
    halved: int = 0
    waited: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment: the model, the optimizer's memory, other weights, where it stands, and what it is.

    `run` tells where the pairs came from and their checksum, so that a run goes on with what it began with.
    """

    parts: Parts
    optimizer: dict[str, Tensor]
    position: Position
    run: dict[str, Any]
    best: dict[str, Tensor] | None = None
    average: dict[str, Tensor] | None = None
    recent: tuple[dict[str, Tensor], ...] = ()


def save(out: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, then remove all but the newest `keep`."""
    path = out / "checkpoints" / f"{checkpoint.position.step:09d}"
    best = checkpoint.position.best
    run = {**checkpoint.run, "position": {**asdict(checkpoint.position), "best": best and best.plain()}}
    extra = {OPTIMIZER: pack(checkpoint.optimizer), RUN: json.dumps(run).encode()}
    if checkpoint.best is not None:
        extra[BEST] = pack(checkpoint.best)
    if checkpoint.average is not None:
        extra[AVERAGE] = pack(checkpoint.average)
    if checkpoint.recent:
        extra[RECENT] = pack({f"{i}.{k}": t for i, one in enumerate(checkpoint.recent) for k, t in one.items()})
    with whole_folder(path) as folder:
        write_model(folder, checkpoint.parts, extra)
    older = [folder for folder in folders(out) if int(folder.name) < checkpoint.position.step]
    for old in older[keep - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def folders(out: Path) -> list[Path]:
    """Return the checkpoint folders of a run, newest first, whole or not."""
    found = [p for p in (out / "checkpoints").glob("*") if p.is_dir() and p.name.isdecimal()]
    return sorted(found, key=lambda p: int(p.name), reverse=True)


def newest(out: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the newest whole checkpoint of a run, if there is one, and newer damaged ones with the reason.

    Raises NewerFormatError for one that a newer heedful wrote: it is not damaged, and what came after an older one in
    its place would be lost.
    """
    damaged: dict[Path, str] = {}
    for path in folders(out):
        try:
            return _read(path), damaged
        except NewerFormatError as error:
            error.args = (f"{error}, or begin a run in another folder",)
            raise
        except HeedfulError as error:
            damaged[path] = str(error)
    return None, damaged


def tidy(out: Path, damaged: Iterable[Path]) -> None:
    """Put damaged checkpoints aside, so that they are not taken for the newest, and remove what was half written."""
    with writing(out):
        for path in damaged:
            aside = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    for partial in (out / "checkpoints").glob(".*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def saying_what_is_left(out: Path) -> Iterator[None]:
    """Add to an error of the disk where the run can go on from when the disk can be written again."""
    try:
        yield
    except DiskError as error:
        left = "there is no checkpoint yet"
        if found := folders(out):
            left = f"the checkpoint of step {int(found[0].name):,} is whole: make room, then go on with {RESUME}"
        error.args = (f"{error}; {left}",)
        raise


def _read(path: Path) -> Checkpoint:
    folder = ModelFolder(path)
    files = folder.head["files"]
    if missing := {RUN, OPTIMIZER} - files.keys():
        raise ModelError(f"{path}: not a checkpoint, as it has no {' and no '.join(sorted(missing))}")
    run = parse_json(folder.content(RUN, max_json(), "a JSON file (HEEDFUL_MAX_JSON)"), str(path / RUN))
    try:
        position = _position(run.pop("position"))
        optimizer = folder.tensors(OPTIMIZER, MOMENTS)
        _check_shapes(optimizer, folder.shapes, OPTIMIZER, alone=True)
        return Checkpoint(
            folder.parts(),
            optimizer,
            position,
            run,
            _weights(folder, BEST) if BEST in files else None,
            _weights(folder, AVERAGE) if AVERAGE in files else None,
            _several(folder) if RECENT in files else (),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: not a checkpoint ({type(error).__name__}: {error!s:.200})") from None
    except ModelError as error:
        named = str(error).startswith(printable(str(path)))
        raise ModelError(str(error) if named else f"{path}: {error}") from None


def _position(plain: dict[str, Any]) -> Position:
    """Return where a run stands; what is no number is a ValueError."""
    best = plain.pop("best")
    if not all(type(number) is int and 0 <= number < 2**53 for number in plain.values()):
        raise ValueError(f"its position is {plain!s:.100}, expected whole numbers")
    if best is not None and not all(type(score) in (int, float) for score in best.values()):
        raise ValueError(f"its best validation is {best!s:.100}, expected numbers")
    return Position(**plain, best=None if best is None else Validation(**best))


def _weights(folder: ModelFolder, name: str) -> dict[str, Tensor]:
    """Return other weights of the same model."""
    tensors = folder.tensors(name)
    if tensors.keys() != folder.shapes.keys():
        raise ModelError(f"{name}: its weights are not those of the model")
    _check_shapes({f".{key}": tensor for key, tensor in tensors.items()}, folder.shapes, name)
    return tensors


def _check_shapes(
    tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], name: str, *, alone: bool = False
) -> None:
    """Refuse tensors, named KIND.WEIGHT, that do not have the shape of the weight; `alone` allows a single number."""
    for key, tensor in tensors.items():
        wanted, shape = shapes.get(key.partition(".")[2]), tuple(tensor.shape)
        if wanted is None:
            raise ModelError(f"{name}: '{key.partition('.')[2]:.80}' is not a weight of this model")
        if shape != wanted and not (alone and shape == ()):
            raise ModelError(f"{name}: '{key}' has shape {shape}, expected {wanted}")


def _several(folder: ModelFolder) -> tuple[dict[str, Tensor], ...]:
    """Take apart what was packed with a number before each name."""
    tensors = folder.tensors(RECENT, max(1, folder.config.training.average))
    _check_shapes(tensors, folder.shapes, RECENT)
    found: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, rest = name.partition(".")
        found.setdefault(int(number), {})[rest] = tensor
    return tuple(found[number] for number in sorted(found))


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """Return an optimizer's memory as named tensors."""
    states = optimizer.state_dict()["state"]
    return {f"{key}.{names[i]}": tensor for i, state in states.items() for key, tensor in state.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Give an optimizer its memory back."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, _, parameter = name.partition(".")
        if parameter not in names:
            raise ModelError(f"{OPTIMIZER}: '{parameter}' is not a weight of this model")
        state.setdefault(names.index(parameter), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
