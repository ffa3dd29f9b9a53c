"""The product on tensor cores against `F.linear`; the interpreter does not round, a GPU does."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor
from torch.nn import functional as F

from heedful.fused.triton import linear as module
from heedful.fused.triton.linear import TILES, choose_tile, fits, linear, linear_kernel

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("f", [None, F.relu, F.silu, F.gelu])
@pytest.mark.parametrize(("M", "N", "K"), [(1, 33, 64), (17, 40, 128)])
def test_it_is_f_linear(device: str, M: int, N: int, K: int, f, monkeypatch: pytest.MonkeyPatch) -> None:
    for tile in TILES:
        monkeypatch.setattr(module, "TILES", (tile._replace(least=0),))
        x, W, b = draw(M, 2 * K)[:, :K], draw(N, K, seed=1), draw(N, seed=2)  # rows that are not side by side
        for bias in (b, None):
            y = F.linear(x.double(), W.double(), None if bias is None else bias.double())
            wanted = y if f is None else f(y)
            given = [None if each is None else each.to(device) for each in (x, W, bias)]
            got = linear_kernel(*given, f)
            assert got.dtype == torch.float32
            torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_of_nan_stays_alone(device: str) -> None:
    x, W = draw(20, 64).to(device), draw(16, 64, seed=1).to(device)
    x[3] = torch.nan
    y = linear_kernel(x, W, None, F.relu)
    assert y[3].isnan().all()
    others = [row for row in range(20) if row != 3]
    torch.testing.assert_close(y[others], linear_kernel(x[others], W, None, F.relu))


def test_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interpreted", lambda: True)
    x, W = draw(16, 64), draw(8, 64)
    assert fits(x, W)
    assert fits(x[None], W)
    assert not fits(x[:, :48], W[:, :48])
    assert not fits(x.double(), W.double())
    assert not fits(x, W.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert not fits(x, W)
    before = torch.backends.cuda.matmul.fp32_precision
    try:  # PyTorch's newer settings, after which the older cannot be read
        for precision in ("tf32", "ieee"):
            torch.backends.cuda.matmul.fp32_precision = precision
            assert fits(x, W) == (precision == "ieee")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert fits(x, W)
    torch.testing.assert_close(linear(x, W, None, F.silu), F.silu(x @ W.t()))  # on a CPU, PyTorch's own


def test_a_gpu_gets_enough_tiles() -> None:
    assert [choose_tile(M, 256).rows for M in (1, 16, 160, 1024, 5120)] == [16, 16, 16, 64, 64]
    assert [choose_tile(M, 8000).rows for M in (1, 32, 160, 1024, 5120)] == [16, 16, 128, 128, 128]


@pytest.fixture
def cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("N", "K"), [(768, 256), (8000, 256), (256, 1024)])
def test_a_row_has_the_same_bits_in_every_batch(N: int, K: int) -> None:
    W, b, x = draw(N, K, seed=1).cuda(), draw(N, seed=2).cuda(), draw(5120, K).cuda()
    whole = linear_kernel(x, W, b, F.silu)
    for M in (1, 5, 16, 33, 160, 300, 1024):
        assert torch.equal(linear_kernel(x[:M], W, b, F.silu), whole[:M])
        assert torch.equal(linear_kernel(x[-M:], W, b, F.silu), whole[-M:])


@pytest.mark.gpu
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("N", "K"), [(768, 256), (8000, 256), (256, 1024)])
def test_it_is_as_close_to_the_exact_product_as_cublas(N: int, K: int) -> None:
    W, b = (draw(N, K, seed=1) * K**-0.5).cuda(), draw(N, seed=2).cuda()
    for M in (16, 160, 1024):
        x = draw(M, K).cuda()
        exact = F.linear(x.double(), W.double(), b.double())
        ours, theirs = ((y.double() - exact).norm() / exact.norm() for y in (linear(x, W, b), F.linear(x, W, b)))
        assert fits(x, W)
        assert ours < 3 * theirs
        assert ours < 3e-7
