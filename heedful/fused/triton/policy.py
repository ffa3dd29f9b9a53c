"""Decides whether an operation is computed by Triton kernels or by the reference in PyTorch operations, and why.

With `how="auto"` it is the kernels on a CUDA device where Triton works, unless HEEDFUL_KERNELS is `off`; with
`how="kernel"`, the kernels or an error.
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


SWITCH = "HEEDFUL_KERNELS"
WAYS = ("auto", "kernel", "reference")


class Operation(NamedTuple):
    """An operation with kernels: its name, when it is used, where its reference is, and what limits the kernels."""

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
    Operation("additive_attend", "all queries in one call", "heedful.attention.additive_attend"),
    Operation("cached_attention", "decoding of a Transformer", "heedful.fused.triton.cached_attention"),
    Operation("scaled_attend", "reading weights", "heedful.fused.triton.scaled_plain"),
)


class Path(NamedTuple):
    """Which implementation is used on a device, "kernel" or "reference", and why."""

    device: str
    way: str
    why: str


class Way(NamedTuple):
    """How an operation is computed here."""

    operation: str
    way: str
    why: str


def path(device: torch.device | str, how: str = "auto", unfit: str = "") -> Path:
    """Return which implementation is used on a device; `how` is auto, kernel or reference.

    `unfit` is why kernels cannot take these tensors, or "". Raises ConfigError for `how="kernel"` if they cannot run.
    """
    choose("way (how)", how, WAYS)
    place = str(device)
    if how == "reference":
        return Path(place, how, "set by how")
    if how == "auto" and (off := _switched_off(place)):
        return Path(place, "reference", off)
    if missing := _missing(place) or unfit:
        if how == "kernel":
            raise ConfigError(f"kernels cannot run on {place}: {missing}; choose how='auto' or how='reference'")
        return Path(place, "reference", missing)
    return Path(place, "kernel", "set by how" if how == "kernel" else "Triton works there")


def paths(device: torch.device | str | None = None) -> list[Way]:
    """Return for every operation which implementation is used on a device with `how="auto"`, and why.

    The device is by default the first CUDA device, or the CPU where there is none.
    """
    chosen = path(device or ("cuda:0" if torch.cuda.is_available() else "cpu"))
    return [Way(one.name, chosen.way, f"{_usage(one, chosen.way)} ({chosen.why})") for one in OPERATIONS]


def _usage(one: Operation, way: str) -> str:
    """Return when an operation is used, and by what it is computed if not by kernels."""
    if way == "reference":
        return f"{one.when}; {one.otherwise}"
    return f"{one.when} {one.only}, else {one.otherwise}" if one.only else one.when


def usable(x: Tensor) -> bool:
    """Whether kernels are used for this tensor with `how="auto"`: see `path`."""
    return x.is_cuda and path(x.device).way == "kernel"


def _switched_off(place: str) -> str:
    """Return why the reference is used without a trial, or ""."""
    off = choose(SWITCH, os.environ.get(SWITCH, "on"), ("on", "off")) == "off"
    if not place.startswith("cuda"):
        return "kernels are for CUDA devices"
    return f"{SWITCH}=off" if off else ""


def _missing(place: str) -> str:
    """Return why kernels cannot run on a device, or ""."""
    if not _installed():
        return "Triton is not installed"
    if interpreted():
        return ""
    if not place.startswith("cuda"):
        return "kernels need a CUDA device"
    return "" if _work_on(torch.device(place)) else "Triton does not work there"


# torch.compile calls it once and takes the result as constant. Its own decorator for that,
# torch.compiler.assume_constant_result, would load the compiler, which takes seconds.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _installed() -> bool:
    """Whether Triton is installed; cached, since decoding needs it at every step."""
    return find_spec("triton") is not None


@cache
def _work_on(device: torch.device) -> bool:
    """Run a minimal kernel to check: Triton needs a C compiler, too, and not too old a GPU."""
    try:
        one = torch.zeros(1, device=device)
        with torch.cuda.device(device):
            _trial[(1,)](one)
        return one.item() == 1
    except Exception as error:  # of any kind: the reference is used
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"Triton's kernels do not work here ({type(error).__name__}: {reason}); PyTorch's own operations are "
            f"used, which are slower. {SWITCH}=off turns this warning off.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False


@kernel()
def _trial(x) -> None:  # type: ignore[no-untyped-def]
    tl.store(x, 1.0)
