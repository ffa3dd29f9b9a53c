"""How much memory a run takes, and what to say when there is not enough."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from heedful.config import TrainingConfig
from heedful.device import memory_guard

__all__ = ["batch_guard", "kept", "model_guard", "peak"]


@contextmanager
def model_guard(what: str) -> Iterator[None]:
    """Turn running out of memory into an error that says how to make the model smaller."""
    with memory_guard(what, "make it smaller (model.width, model.layers, text.size)"):
        yield


@contextmanager
def batch_guard(what: str, config: TrainingConfig) -> Iterator[None]:
    """Turn running out of memory into an error that says how to make batches smaller."""
    remedy = f"lower training.batch_tokens (now {config.batch_tokens}) and raise training.accumulate"
    with memory_guard(what, remedy):
        yield


def peak(device: torch.device) -> int:
    """Return the most bytes that were in use so far: on the device, or for the CPU in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def kept(model: nn.Module, config: TrainingConfig) -> int:
    """Return the bytes of what is kept besides the steps: copies of the weights, and a checkpoint that is written."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    recent = config.average if config.average > 1 else 0
    copies = 1 + recent  # the best weights, those of the last validations
    checkpoint = 3 + copies + int(config.ema > 0)  # the model, what AdamW remembers, these copies, the moving average
    return int(size * (copies + checkpoint))
