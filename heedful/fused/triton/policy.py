"""Which way an operation is computed, by kernels in Triton or by the reference in PyTorch's own operations, and why.

This is the one place where it is decided. Left open (`how="auto"`), it is the kernels on a CUDA device where Triton
works, unless HEEDFUL_KERNELS is `off`. A caller that insists (`how="kernel"`) gets them or an error.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError, choose
from heedful.fused.triton.launch import interpreted, kernel

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["OPERATIONS", "SWITCH", "WAYS", "Operation", "Path", "Way", "path", "paths", "usable"]

SWITCH = "HEEDFUL_KERNELS"
WAYS = ("auto", "kernel", "reference")


class Operation(NamedTuple):
    """Something that kernels can do: its name, when it is done, where its reference stands, and what limits them."""

    name: str
    when: str
    otherwise: str
    only: str = ""


# One line for each: `heedful info` prints them.
OPERATIONS = (
    Operation("token_losses", "training", "heedful.training.losses"),
    Operation("residual_norm", "training", "heedful.models.transformer", "in bf16 or fp16"),
    Operation("relu_dropout", "training", "heedful.models.transformer", "in bf16 or fp16"),
    Operation("recurrence", "training and decoding", "heedful.fused.cpu.recurrence"),
    Operation("additive_attend", "all queries at once", "heedful.attention.additive_attend"),
    Operation("scaled_attend", "reading weights", "heedful.fused.triton.scaled_plain"),
)


class Path(NamedTuple):
    """Which way is gone on a device, "kernel" or "reference", and why."""

    device: str
    way: str
    why: str


class Way(NamedTuple):
    """How an operation is computed here."""

    operation: str
    way: str
    why: str


def path(device: torch.device | str, how: str = "auto", unfit: str = "") -> Path:
    """Return which way is gone on a device when somebody says `how`: auto, kernel or reference.

    `unfit` says why kernels cannot work with what was given, if so. Kernels that were asked for and cannot run are an
    error.
    """
    choose("way (how)", how, WAYS)
    place = str(device)
    if how == "reference":
        return Path(place, how, "asked for")
    if how == "auto" and (off := _switched_off(place)):
        return Path(place, "reference", off)
    if missing := _missing(place) or unfit:
        if how == "kernel":
            raise ConfigError(f"kernels cannot run on {place}: {missing}; choose how='auto' or how='reference'")
        return Path(place, "reference", missing)
    return Path(place, "kernel", "asked for" if how == "kernel" else "Triton works there")


def paths(device: torch.device | str | None = None) -> list[Way]:
    """Return for every operation which way it takes on a device when the choice is left open, and why.

    By itself it is the first CUDA device, or the CPU where there is none.
    """
    found = path(device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
    return [Way(one.name, found.way, f"{_told(one, found.way)} ({found.why})") for one in OPERATIONS]


def _told(one: Operation, way: str) -> str:
    """Say when an operation is done, and by what if not by kernels."""
    if way == "reference":
        return f"{one.when}; {one.otherwise}"
    return f"{one.when} {one.only}, else {one.otherwise}" if one.only else one.when


def usable(x: Tensor) -> bool:
    """Whether kernels can and may work on this tensor, when nobody said how: see `path`."""
    return x.is_cuda and path(x.device).way == "kernel"


def _switched_off(place: str) -> str:
    """Why the choice falls on the reference before anything is tried, or nothing."""
    off = choose(SWITCH, os.environ.get(SWITCH, "on"), ("on", "off")) == "off"
    if not place.startswith("cuda"):
        return "kernels are for CUDA devices"
    return f"{SWITCH}=off" if off else ""


def _missing(place: str) -> str:
    """What keeps kernels from running on a device, or nothing."""
    if not _installed():
        return "Triton is not installed"
    if interpreted():
        return ""
    if not place.startswith("cuda"):
        return "kernels need a CUDA device"
    return "" if _work_on(torch.device(place)) else "Triton does not work there"


# torch.compile asks once and takes the answer for good, rather than look inside; to say so by its own decorator,
# torch.compiler.assume_constant_result, would load the compiler, which takes seconds.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _installed() -> bool:
    """Whether Triton is there; looked up once, since decoding asks at every step."""
    return find_spec("triton") is not None


@cache
def _work_on(device: torch.device) -> bool:
    """Find out with a kernel that does next to nothing: Triton needs a C compiler, too, and not too old a GPU."""
    if not _installed():
        return False
    try:
        one = torch.zeros(1, device=device)
        with torch.cuda.device(device):
            _trial[(1,)](one)
        return one.item() == 1
    except Exception as error:  # whatever it is, there is another way
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"Triton's kernels do not work here ({type(error).__name__}: {reason}); PyTorch's own operations are "
            f"used, which are slower. {SWITCH}=off says nothing of it.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False


@kernel()
def _trial(x) -> None:  # type: ignore[no-untyped-def]
    tl.store(x, 1.0)
