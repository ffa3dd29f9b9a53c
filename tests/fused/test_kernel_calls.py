"""What a call costs besides its kernels: at small sizes that is most of its time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`, and Triton's interpreter)
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.fused.triton import policy
from heedful.fused.triton.additive import additive_weights
from heedful.fused.triton.launch import Kernel
from heedful.fused.triton.scaled import scaled_attend

VIEWS = {"alias", "detach", "empty", "empty_like", "new_empty", "select", "slice", "view"}  # no work for a GPU


class Counted(TorchDispatchMode):
    """Inside it, `names` are those of all operations that a GPU would have to do."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.names += [name] * (name not in VIEWS)
        return func(*args, **(kwargs or {}))


def counted(work: Callable[[], object]) -> list[str]:
    with Counted() as seen:
        work()
    return sorted(seen.names)


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are launched and do nothing: Triton's interpreter would take operations of its own."""
    # Or one would be tried, found to do nothing, and that would be remembered.
    monkeypatch.setattr(policy, "_missing", lambda place: "")
    monkeypatch.setattr(Kernel, "__getitem__", lambda self, grid: lambda *args, **options: None)


@pytest.mark.usefixtures("unseen")
def test_reading_takes_few_operations(device: str) -> None:
    q, k, values = (torch.randn(1, 2, 40, 16, device=device) for _ in range(3))
    weights = scaled_attend(q, k, values, how="kernel")[1]
    weights.summary()  # the log-sum-exp is ready
    # None but the kernels: they write all that is there.
    assert counted(weights.summary) == []
    assert counted(lambda: weights.summary(3)) == []


@pytest.mark.slow
def test_slabs_are_put_together(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entropy of queries that were read in several goes is that of one."""
    from heedful.fused.triton import scaled_kernels

    q, k, values = (torch.randn(1, 2, 150, 16, device=device) for _ in range(3))
    weights = scaled_attend(q, k, values, how="kernel")[1]
    wanted = weights.summary(3)
    monkeypatch.setattr(scaled_kernels, "BUFFER", 1)
    monkeypatch.setattr(scaled_kernels, "BY_QUERIES", 0)
    found = weights.summary(3)
    assert torch.equal(found.entropy, wanted.entropy)
    assert found.top is not None
    assert wanted.top is not None
    assert torch.equal(found.top.positions, wanted.top.positions)
    torch.testing.assert_close(found.received, wanted.received)


def test_nothing_to_look_at_is_told_as_zeros(device: str) -> None:
    q, k = torch.randn(1, 2, 5, 16, device=device), torch.randn(1, 2, 0, 16, device=device)
    received, entropy, top = scaled_attend(q, k, k, how="kernel")[1].summary(2)
    assert received.shape == (1, 2, 0)
    assert torch.equal(entropy, torch.zeros(1, 2, 5, device=device))
    assert top is not None
    assert (top.positions == -1).all()
    assert not top.weights.any()
    assert not top.mass.any()


@pytest.mark.usefixtures("unseen")
def test_additive_weights_take_few_operations(device: str) -> None:
    q, k, v = (torch.randn(*shape, device=device) for shape in ((2, 3, 128), (2, 5, 128), (128,)))
    assert counted(lambda: additive_weights(q, k, v)) == []
    assert counted(lambda: additive_weights(q[..., :7], k[..., :7], v[:7])) == ["clone", "clone", "constant_pad_nd"]


def test_additive_weights_are_those_that_a_compiler_sees(device: str) -> None:
    """Without a compiler they are called by a shorter way: the same bits, and so are the gradients."""
    shapes = ((2, 3, 7), (2, 5, 7), (7,))
    leaves = [torch.randn(*shape, device=device, requires_grad=True) for shape in shapes]
    keep = (torch.arange(5, device=device) < 4).expand(2, 3, 5)
    slope = torch.randn(2, 3, 5, device=device)
    found, wanted = additive_weights(*leaves, keep), torch.ops.heedful.additive_weights(*leaves, keep)
    assert torch.equal(found, wanted)
    for one, other in zip(
        torch.autograd.grad(found, leaves, slope), torch.autograd.grad(wanted, leaves, slope), strict=True
    ):
        assert torch.equal(one, other)


def test_a_gradient_of_the_gradient_is_refused(device: str) -> None:
    q, k, v = (torch.randn(*shape, device=device, requires_grad=True) for shape in ((1, 2, 3), (1, 2, 3), (3,)))
    (slope,) = torch.autograd.grad(additive_weights(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_the_compiler_is_not_loaded_to_catch_a_log_sum_exp(environment: dict[str, str]) -> None:
    code = (
        "import sys, torch; from heedful.fused.triton.scaled import scaled_attend; x = torch.ones(1, 1, 2, 2); "
        "print(scaled_attend(x, x, x)[1].backend, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "flash for the CPU False"


def test_no_slab_has_more_queries_than_a_grid_has_programs() -> None:
    from heedful.fused.triton import scaled_kernels

    found = list(scaled_kernels.slabs(1, 1, 200_000, 8))
    assert [end - begin for begin, end in found] == [65_472, 65_472, 65_472, 3_584]
