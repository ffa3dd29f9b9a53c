"""Every backend of PyTorch's attention on a GPU: its own log-sum-exp is taken, and is what the weights need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`, and Triton's interpreter)
from scaled_reference import KINDS, draw, eager, hidden_by
from torch import Tensor

from heedful.errors import ConfigError
from heedful.fused.triton import scaled_kernels
from heedful.fused.triton.scaled import scaled_attend

BACKENDS = {"FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "efficient", "CUDNN_ATTENTION": "cudnn", "MATH": "math"}
T, S = 37, 45  # more than the 32 rows by which some fill up their sums, and multiples of nothing
NAMES = ["nothing", "causal", "keep", "keep, causal", "mask", "added", "nothing at all"]


def given(name: str, kind: torch.dtype) -> dict[str, Any]:
    chance = torch.Generator().manual_seed(1)
    keep = torch.arange(S)[None] >= torch.tensor([[2], [0]])  # with causal, two rows have nothing to look at
    return {
        "nothing": {},
        "causal": {"causal": True},
        "keep": {"keep": keep},
        "keep, causal": {"keep": keep, "causal": True},
        "mask": {"mask": torch.rand(2, 1, T, S, generator=chance) < 0.6},
        "added": {"mask": torch.randn(T, S, generator=chance).to(kind)},
        "nothing at all": {"mask": torch.zeros(1, 1, T, S, dtype=torch.bool)},
    }[name]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::UserWarning")  # by which PyTorch tells why a backend does not take something
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_every_backend_of_a_gpu(backend: str, name: str, kind: torch.dtype) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    q, k, values = (x.cuda() for x in draw(2, 4, 2 if name == "nothing" else 4, T, S, 64, kind))
    here = given(name, kind)
    there = {key: x.cuda() if isinstance(x, Tensor) else x for key, x in here.items()}
    try:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            output, weights = scaled_attend(q, k, values, **there, how="kernel")
    except RuntimeError as error:
        if "No available kernel" not in str(error):
            raise
        pytest.skip(f"{backend} does not take this")
    assert weights.backend == BACKENDS[backend]
    assert (weights._lse is None) == (backend == "MATH")
    wanted = eager(q.cpu(), k.cpu(), hidden_by(here, T, S), here["mask"] if name == "added" else None)
    torch.testing.assert_close(weights.block().cpu().double(), wanted, rtol=0.0, atol=2e-5)
    torch.testing.assert_close(weights.received().cpu().double(), wanted.sum(2), rtol=0.0, atol=1e-4)
    exact = wanted @ values.cpu().double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    torch.testing.assert_close(output.cpu().double(), exact, rtol=KINDS[kind], atol=max(KINDS[kind], 1e-5))


@pytest.mark.parametrize("name", NAMES)
def test_the_cpu_at_the_same_sizes(name: str) -> None:
    q, k, values = draw(2, 4, 2, T, S, 64)
    here = given(name, torch.float32)
    weights = scaled_attend(q, k, values, **here)[1]
    assert weights.backend == "flash for the CPU"
    assert weights._lse is not None
    wanted = eager(q, k, hidden_by(here, T, S), here["mask"] if name == "added" else None)
    torch.testing.assert_close(weights.block().double(), wanted, rtol=0.0, atol=3e-6)


def test_a_device_with_little_shared_memory_is_not_for_wide_heads(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """101,376 bytes are those of compute capability 8.6 and 8.9; fp32 of 200 channels needs 106,496."""
    monkeypatch.setattr(scaled_kernels, "_available", lambda place: 101_376)
    wide, narrow = (torch.zeros(1, 1, 2, C, device=device) for C in (200, 128))
    assert scaled_attend(narrow, narrow, narrow, how="kernel")[1].by_kernels()
    assert scaled_attend(wide.half(), wide.half(), wide.half(), how="kernel")[1].by_kernels()
    assert not scaled_attend(wide, wide, wide, how="auto")[1].by_kernels()
    with pytest.raises(ConfigError, match="106,496 .*101,376"):
        scaled_attend(wide, wide, wide, how="kernel")
