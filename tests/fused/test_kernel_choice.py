"""Which way is gone where, kernels or the plain code, when it is left open and when it is not."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor, nn

from heedful.attention import additive, attend
from heedful.errors import ConfigError, ShapeError
from heedful.fused.triton import additive as fused
from heedful.fused.triton import policy
from heedful.fused.triton.additive import additive_attend
from heedful.fused.triton.policy import path, paths, usable

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


def given(kind: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
    """Return q, k, v and values: B 2, T 3, S 5, A 4, D 6."""
    draw = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4), (2, 5, 4), (4,), (2, 5, 6))
    return [torch.randn(*shape, generator=draw).to(device, kind) for shape in shapes]


def test_the_reference_is_the_two_definitions_one_after_the_other() -> None:
    q, k, v, values = given(torch.float64)
    keep = torch.tensor([[True, True, False, True, False], [False] * 5])
    wanted = attend(additive(q, k, v), values, keep)
    for mask in (keep, keep[:, None], keep[:, None].expand(2, 3, 5)):
        found = additive_attend(q, k, v, values, mask)
        for one, other in zip(found, wanted, strict=True):
            assert one is not None
            torch.testing.assert_close(one, other, rtol=0, atol=1e-15)


def test_the_gradient_of_the_reference() -> None:
    leaves = [x.requires_grad_() for x in given(torch.float64)]
    keep = torch.tensor([[True, True, False, True, False], [False] * 5])
    assert torch.autograd.gradcheck(lambda *given: additive_attend(*given, keep), leaves)


@pytest.mark.parametrize("switch", ["on", "off", None])
def test_on_the_cpu_an_open_choice_is_the_reference(monkeypatch: pytest.MonkeyPatch, switch: str | None) -> None:
    _switch(monkeypatch, switch)
    assert path("cpu") == ("cpu", "reference", "kernels are for CUDA devices")
    assert path("cpu", "reference") == ("cpu", "reference", "set by how")
    ways = paths("cpu")
    assert [way.operation for way in ways] == [one.name for one in policy.OPERATIONS]
    assert {way.way for way in ways} == {"reference"}
    assert all("kernels are for CUDA devices" in way.why for way in ways)
    assert not usable(torch.zeros(1))


def _switch(monkeypatch: pytest.MonkeyPatch, switch: str | None) -> None:
    monkeypatch.delenv("HEEDFUL_KERNELS", raising=False)
    if switch is not None:
        monkeypatch.setenv("HEEDFUL_KERNELS", switch)


def test_kernels_that_cannot_run_are_an_error_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "interpreted", lambda: False)
    with pytest.raises(ConfigError, match="cpu.*CUDA.*how='auto'"):
        additive_attend(*given(), how="kernel")
    monkeypatch.setattr(policy, "_installed", lambda: False)
    with pytest.raises(ConfigError, match="Triton.*not installed"):
        path("cuda:0", "kernel")
    _switch(monkeypatch, None)
    assert path("cuda:0") == ("cuda:0", "reference", "Triton is not installed")
    with pytest.raises(ConfigError, match="'kernels'.*auto, kernel, reference.*mean 'kernel'"):
        additive_attend(*given(), how="kernels")


def test_the_switch_decides_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "interpreted", lambda: False)
    monkeypatch.setattr(policy, "_installed", lambda: True)
    for works, switch, way, why in (
        (True, None, "kernel", "Triton works there"),  # on unless switched off
        (True, "on", "kernel", "Triton works there"),
        (True, "off", "reference", "HEEDFUL_KERNELS=off"),
        (False, None, "reference", "Triton does not work there"),
    ):
        monkeypatch.setattr(policy, "_work_on", lambda device, works=works: works)
        _switch(monkeypatch, switch)
        assert path("cuda:0") == ("cuda:0", way, why)
        if works:
            assert path("cuda:0", "kernel").way == "kernel"


@pytest.mark.parametrize("wrong", ["yes", "ON", "1", ""])
def test_a_switch_that_is_neither_on_nor_off_is_an_error(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("HEEDFUL_KERNELS", wrong)
    for device in ("cuda:0", "cpu"):
        with pytest.raises(ConfigError, match=f"HEEDFUL_KERNELS.*'{wrong}'.*off, on"):
            path(device)
    assert path("cuda:0", "reference").way == "reference"  # nobody asks the switch


def test_what_is_told_of_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are for some types only say so, and what is used for the others."""
    monkeypatch.setattr(policy, "_missing", lambda place: "")
    _switch(monkeypatch, None)
    told = {way.operation: way for way in paths("cuda:0")}
    assert {way.way for way in told.values()} == {"kernel"}
    assert told["token_losses"].why == "training (Triton works there)"
    assert told["residual_norm"].why == "training in bf16 or fp16, else heedful.models.transformer (Triton works there)"
    _switch(monkeypatch, "off")
    told = {way.operation: way for way in paths("cuda:0")}
    assert {way.way for way in told.values()} == {"reference"}
    assert told["residual_norm"].why == "training; heedful.models.transformer (HEEDFUL_KERNELS=off)"


def test_float64_is_for_the_reference(device: str) -> None:
    tensors = given(torch.float64, device)
    assert additive_attend(*tensors)[1].dtype == torch.float64
    with pytest.raises(ShapeError, match="q .*torch.float64.*torch.float32"):
        additive_attend(*tensors, how="kernel")


@pytest.mark.parametrize("how", ["kernel", "reference"])
def test_what_does_not_fit_is_refused(device: str, how: str) -> None:
    q, k, v, values = given(device=device)
    keep = torch.ones(2, 5, dtype=torch.bool, device=device)
    for wrong, words in (
        ((q, k[:, :, :3], v, values, None), r"k .*\(2, 5, 3\).*\(B=2, S, A=4\)"),
        ((q, k, v[:3], values, None), r"v .*\(3,\).*\(A=4\)"),
        ((q, k, v, values[:, :4], None), r"values .*\(2, 4, 6\)"),
        ((q[0], k, v, values, None), "q .*3 axes"),
        (
            (q, k, v, values, keep[:, :4]),
            r"keep .*\(2, 4\).*\(B, S\) or \(B, T, S\).*scores \(2, 3, 5\)",
        ),
        ((q, k, v, values, keep[0]), r"keep .*\(5,\)"),
        ((q, k, v, values, keep.float()), "keep .*torch.float32.*torch.bool"),
        ((q.long(), k, v, values, None), "q .*torch.int64.*torch.float64"),
        ((q, k, v.to("meta"), values, None), "q on .*v on meta"),
        ((q, k, v, values, keep.to("meta")), "keep on meta"),
    ):
        with pytest.raises(ShapeError, match=words):
            additive_attend(*wrong, how=how)


def test_the_kernels_refuse_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "interpreted", lambda: False)
    q, k, v, values = given()
    with pytest.raises(ShapeError, match="CUDA.*cpu"):
        fused.kernel_attend(q, k, v, values)
    monkeypatch.setattr(fused, "MOST", 1)
    with pytest.raises(ShapeError, match="at most 1 .* 2"):
        fused.additive_weights(q, k, v)


class Asking(nn.Module):
    """A model around the attention."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.W, self.U, self.v = nn.Linear(6, 4), nn.Linear(6, 4), nn.Parameter(torch.ones(4))

    def forward(self, s: Tensor, h: Tensor, keep: Tensor) -> Tensor:
        context, weights = additive_attend(self.W(s), self.U(h), self.v, h, keep, self.how)
        assert weights is not None
        return context.sin().sum() + weights.square().sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["auto", "kernel"])
def test_a_compiled_model(device: str, how: str) -> None:
    """One graph, forward and backward, and the same numbers."""
    torch.manual_seed(0)
    model = Asking(how).to(device)
    s, h = torch.randn(2, 3, 6, device=device), torch.randn(2, 5, 6, device=device)
    keep = torch.tensor([[True, True, False, True, False], [False] * 5], device=device)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(model(s, h, keep), parameters)
    found = torch.autograd.grad(compiled(s, h, keep), parameters)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_finding_out_the_way_does_not_break_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    @cache
    def work_on(device: torch.device) -> bool:
        tried.append(device)
        return torch.ones(1).item() == 1

    monkeypatch.setattr(policy, "_work_on", work_on)
    monkeypatch.setattr(policy, "interpreted", lambda: False)
    monkeypatch.setattr(policy, "_installed", lambda: True)
    _switch(monkeypatch, None)
    torch._dynamo.reset()

    @torch.compile(backend="eager", fullgraph=True)
    def work(x: Tensor) -> Tensor:
        return x * 2 if path("cuda:0").way == "kernel" else x * 3

    assert work(torch.ones(2)).tolist() == [2, 2]
    assert tried == [torch.device("cuda:0")]


def test_neither_triton_nor_the_compiler_is_loaded_early(environment: dict[str, str]) -> None:
    code = "import sys, heedful.attention; print([m for m in ('triton', 'torch._dynamo') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
