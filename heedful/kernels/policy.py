"""Which way an operation is computed here, and why: by kernels in Triton, or by PyTorch's own operations.

The policy is one sentence: kernels run on a CUDA device where Triton works, when HEEDFUL_KERNELS is `on`; they are off
unless asked for until they have been measured on a GPU. A caller that insists (`how="triton"`) gets them or an error.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError, choose
from heedful.kernels.launch import SWITCH, _work_on, usable

__all__ = ["OPERATIONS", "WAYS", "Operation", "Way", "by_kernels", "paths"]

WAYS = ("auto", "torch", "triton")


class Operation(NamedTuple):
    """Something that kernels can do: its name, when it is done, and what does it otherwise."""

    name: str
    when: str
    otherwise: str


# One line for each: `heedful info` prints them.
OPERATIONS = (
    Operation("word_losses", "training", "heedful.training.word_loss"),
    Operation("residual_norm", "training", "heedful.models.stream"),
    Operation("relu_dropout", "training", "heedful.models.transformer"),
    Operation("scaled_attend", "reading weights", "heedful.kernels.scaled_plain"),
)


class Way(NamedTuple):
    """How an operation is computed here: `path` is "triton" or "torch"."""

    operation: str
    path: str
    why: str


def paths(device: torch.device | None = None) -> list[Way]:
    """Return for every operation which way it takes on a device, by itself the first CUDA device, and why."""
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    path, why = _state(device)
    return [
        Way(one.name, path, f"{one.when}: {why}" + (f"; {one.otherwise}" if path == "torch" else ""))
        for one in OPERATIONS
    ]


def _state(device: torch.device) -> tuple[str, str]:
    if device.type != "cuda":
        return "torch", "no CUDA device" if device.type == "cpu" else f"{device.type} is not CUDA"
    if find_spec("triton") is None:
        return "torch", "Triton is not installed"
    if os.environ.get(SWITCH, "off") != "on":
        return "torch", f"{SWITCH} is not `on`"
    if not _work_on(device):
        return "torch", "Triton does not work here"
    return "triton", f"{SWITCH} is `on`, and Triton works on {torch.cuda.get_device_name(device)}"


def by_kernels(how: str, x: Tensor, unfit: str = "") -> bool:
    """Whether kernels are to work on a tensor.  `unfit` says why they cannot with what was given, if so.

    `how` is "auto" (kernels where they can and may), "torch" (never) or "triton" (an error where they cannot).
    """
    choose("way", how, WAYS)
    if how == "auto":
        return not unfit and usable(x)
    if how == "torch":
        return False
    if find_spec("triton") is None:
        unfit = "Triton is not installed"
    elif not x.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        unfit = f"the tensors are on {x.device}, and Triton's kernels need a CUDA device"
    elif x.is_cuda and not _work_on(x.device):
        unfit = f"Triton does not work on {x.device}"
    if unfit:
        raise ConfigError(f"how='triton' cannot be done: {unfit}; how='auto' takes PyTorch's own operations then")
    return True
