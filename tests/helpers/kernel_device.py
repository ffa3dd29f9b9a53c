"""Kernels on the CPU, by Triton's interpreter, or with -m gpu on a GPU."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import pytest
import torch

__all__ = ["kernel_device"]

# Triton looks at it when it is loaded, and no test is run before all files are read.
if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(name="device", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def kernel_device(request: pytest.FixtureRequest) -> str:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    if torch.cuda.is_available() != (request.param == "cuda"):
        pytest.skip("no CUDA device" if request.param == "cuda" else "kernels are compiled here: use -m gpu")
    assert request.param == "cuda" or os.environ.get("TRITON_INTERPRET") == "1", "Triton was loaded before"
    return str(request.param)
