"""Attention over cached keys: the reference against `attend`, and the kernel against the reference."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.attention import attend, scaled, until
from heedful.errors import ShapeError
from heedful.fused.triton import cached_attention
from heedful.fused.triton.cached_attention import attend_cache, attend_kernel, attend_source

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
WAYS = ("reference", "kernel")


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, device: str) -> str:
    monkeypatch.setattr(cached_attention, "usable", lambda x: request.param == "kernel")
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize(("H", "C"), [(1, 5), (4, 8), (2, 33)])
def test_attention_to_the_source_is_its_definition(device: str, K: int, H: int, C: int) -> None:
    lengths = torch.tensor([40, 1, 7, 0], device=device)
    k, v = draw(4, H, 41, C, seed=1, device=device), draw(4, H, 41, C, seed=2, device=device)
    keep = until(lengths, 41)
    k, v = (side.masked_fill(~keep[:, None, :, None], torch.nan) for side in (k, v))  # padding may hold anything
    q = draw(4 * K, H * C, seed=3, device=device)
    got = attend_source(q, k, v, lengths)
    there = [side.nan_to_num(0.0) for side in (k, v)]
    c, _ = attend(scaled(q.view(4, K, H, C).transpose(1, 2), there[0]), there[1], keep)
    torch.testing.assert_close(got, c.transpose(1, 2).reshape(4 * K, H * C))
    assert not got[3 * K :].any()  # nothing to attend to


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_token_is_written_to_the_cache_and_attends_to_those_before(device: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and device == "cpu":
        pytest.skip("the interpreter has no bf16")
    R, H, T, C = 3, 2, 70, 4
    cache = torch.full((2, R, H, T, C), torch.nan, device=device, dtype=dtype)
    t = torch.tensor([0, 5, 68], device=device)
    for r, n in enumerate(t.tolist()):
        cache[:, r, :, :n] = draw(2, H, n, C, seed=r, device=device, dtype=dtype)
    x = draw(R, 3 * H * C, seed=9, device=device, dtype=dtype)
    got = attend_cache(x, *cache, t)
    q, new_k, new_v = (part.view(R, H, C) for part in x.chunk(3, 1))
    for r, n in enumerate(t.tolist()):
        assert torch.equal(cache[0, r, :, n], new_k[r])
        assert torch.equal(cache[1, r, :, n], new_v[r])
        k, v = (side[None, r, :, : n + 1].float() for side in cache)
        c, _ = attend(scaled(q[None, r, :, None].float(), k), v, None)
        near = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(got[r].float(), c.flatten(), **near)


@pytest.mark.usefixtures("way")
def test_hypotheses_find_their_positions_in_rows_of_others(device: str) -> None:
    """Two sentences with three hypotheses each, reordered at random: as if whole caches were copied each time."""
    B, K, H, T, C = 2, 3, 2, 9, 4
    R = B * K
    cache = torch.full((2, R, H, T, C), torch.nan, device=device)
    rows = torch.zeros(R, T, dtype=torch.long, device=device)
    own = torch.arange(R, device=device)
    copied: list[list[Tensor]] = [[] for _ in range(R)]  # k and v of each position, for each hypothesis
    chance = torch.Generator().manual_seed(4)
    for step in range(T - 1):
        t = torch.full((B,), step, device=device)
        x = draw(R, 3 * H * C, seed=step, device=device)
        got = attend_cache(x, *cache, t, rows)
        q, k, v = (part.view(R, H, C) for part in x.chunk(3, 1))
        for r in range(R):
            copied[r] = [*copied[r], torch.stack([k[r], v[r]])]
            keys, values = torch.stack(copied[r], dim=2)  # (H, step + 1, C) each
            c, _ = attend(scaled(q[None, r, :, None], keys[None]), values[None], None)
            torch.testing.assert_close(got[r], c.flatten())
        assert torch.equal(rows[:, step], own)
        parents = torch.randint(K, (B, K), generator=chance).to(device) + torch.arange(B, device=device)[:, None] * K
        rows = rows[parents.flatten()]
        copied = [copied[p] for p in parents.flatten().tolist()]


def test_the_kernel_refuses_shapes_that_do_not_match(device: str) -> None:
    k = draw(2, 2, 5, 4, device=device)
    with pytest.raises(ShapeError, match="expected"):
        attend_kernel(draw(2, 9, device=device), k, k, torch.tensor([1, 1], device=device))
