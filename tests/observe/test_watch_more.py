"""Watching must not disturb: whatever goes wrong with it, the model and its errors stay as they are."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.errors import ConfigError
from heedful.observe import watch, watching


class Ask(nn.Module):
    def forward(self, x: Tensor, k: Tensor | None = None) -> Tensor:
        k = x if k is None else k
        return F.scaled_dot_product_attention(x, k, k)


class Two(nn.Module):
    """Attention twice; the keys of the first call are written to before the second."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Ask(), Ask()

    def forward(self, x: Tensor) -> Tensor:
        k = x.clone()
        x = self.a(x, k)
        k.add_(1.0)
        return self.b(x, k)


X = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(1))


def test_no_error_of_ours_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **more: object) -> None:
        raise RuntimeError("mix of the legacy\nand new APIs")

    wanted = Ask()(X)
    monkeypatch.setattr(watching, "scaled_scores", fail)
    with watch(model := Ask()) as seen:
        assert torch.equal(model(X), wanted)
    assert seen.unread == [("", "RuntimeError: mix of the legacy and new APIs")]
    assert "RuntimeError: mix" in str(seen)


def test_an_error_of_each_is_the_callers() -> None:
    def fail(call: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), watch(model := Ask(), each=fail):
        model(X)


def test_nothing_seen_is_said() -> None:
    class Eager(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x @ x.mT).softmax(-1) @ x

    with (
        pytest.warns(UserWarning, match="eager.*flex.*compiled") as told,
        watch(model := Eager()) as seen,
    ):
        model(X)
    assert told[0].filename == __file__
    assert str(seen).startswith("no call of scaled_dot_product_attention")
    with pytest.raises(KeyError, match="mine"), watch(model):  # whose error needs no warning beside it
        raise KeyError("mine")


def test_what_cannot_be_moved_is_let_go() -> None:
    with watch(model := Two(), after="cpu") as seen:
        model(X)
    assert seen[0].weights is None
    assert seen[1].weights is not None
    assert [name for name, _ in seen.unread] == ["a"]
    assert "a: not read, q, k or the mask were written to after the call" in str(seen)
    with pytest.raises(KeyError, match="mine"), watch(model, after="cpu"):
        raise KeyError(model(X), "mine")


@pytest.mark.parametrize("which", ["", "a"])
def test_compiled_in_place(which: str) -> None:
    model = Two()
    model.get_submodule(which).compile(backend="eager")
    with (
        pytest.raises(ConfigError, match=rf"{which or '.the model.'} is compiled"),
        watch(model),
    ):
        pass


def test_a_compiled_part() -> None:
    model = Two()
    model.b = torch.compile(model.b, backend="eager")
    with pytest.raises(ConfigError, match="b is compiled"), watch(model):
        pass


def test_a_copy_made_inside_is_not_watched() -> None:
    with watch(model := Two()) as seen:
        other = copy.deepcopy(model)
        other(X)
        assert len(seen) == 0
        model(X)
    assert seen.modules == ["a", "b"]
    other(X)
    assert len(seen) == 2


def test_a_hook_that_fails_before_ours_takes_no_name_away() -> None:
    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.inner = nn.Identity(), Ask()

        def forward(self, x: Tensor) -> Tensor:
            with contextlib.suppress(ValueError):
                self.bad(x)
            return F.scaled_dot_product_attention(x, x, x)

    def fail(module: nn.Module, given: object) -> None:
        raise ValueError

    model = nn.Sequential(Tries())
    model[0].bad.register_forward_pre_hook(fail)
    with watch(model) as seen:
        model(X)
    assert seen.modules == ["0"]


def test_nothing_is_left_on_after_an_interruption() -> None:
    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Ask()

        def forward(self, x: Tensor, stop: bool) -> Tensor:
            x = self.inner(x)
            if stop:
                raise KeyboardInterrupt  # after which PyTorch calls no hooks
            return self.inner(x)

    model = Stops()
    with pytest.raises(KeyboardInterrupt), watch(model) as seen:
        model(X, True)
    assert len(seen) == 1
    model(X, False)
    assert len(seen) == 1
    assert not watching._ACTIVE.watchers
    assert not torch._C._dispatch_tls_local_include_set().has(watching._key())
    with watch(model) as seen:
        model(X, False)
    assert seen.modules == ["inner"]


def test_the_model_is_not_changed_inside() -> None:
    model = Two()
    before = [dict(vars(module)) for module in model.modules()]
    with watch(model):
        assert [dict(vars(module)) for module in model.modules()] == before
        assert not any(module._forward_hooks for module in model.modules())
        assert [bool(module._forward_pre_hooks) for module in model.modules()] == [True, False, False]  # for its inputs
        assert not torch.overrides._get_current_function_mode_stack()  # which every operation would go through
        model(X)
    assert not model._forward_pre_hooks


def test_a_module_that_is_not_of_the_model_counts_for_the_one_that_calls_it() -> None:
    class Calls(nn.Module):
        def __init__(self, other: nn.Module) -> None:
            super().__init__()
            self.others = [other]  # a list, so not registered

        def forward(self, x: Tensor) -> Tensor:
            return self.others[0](x)

    model = nn.Sequential(Calls(Ask()), Ask())
    with watch(model) as seen:
        model(X)
        model[0].others[0](X)  # called by no module of the model
    assert [call.module for call in seen] == ["0", "1"]
    with watch(model, only="1") as seen:
        model(X)
    assert [call.module for call in seen] == ["1"]


def test_calls_from_each_and_from_below_python() -> None:
    class Below(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aten.scaled_dot_product_attention(x, x, x)

    model = Below()

    def again(call: object) -> Tensor:
        return model(X)  # which is not recorded: it is not the model's own

    with watch(model, each=again) as seen:
        output = model(X)
    assert len(seen) == 1
    assert torch.equal(seen[0].kept, output)


def test_recomputed_in_the_backward_pass() -> None:
    from torch.utils.checkpoint import checkpoint

    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Ask()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.inner, x, use_reentrant=False)

    x = X.clone().requires_grad_()
    model = Saves()
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    with watch(model) as seen:
        (found,) = torch.autograd.grad(model(x).sum(), x)
    assert torch.equal(found, wanted)
    assert seen.modules == ["inner"]
    assert torch.equal(seen[0].weights.block(), seen[-1].weights.block())


def test_a_call_costs_little_of_python() -> None:
    """The number of Python functions that one watched call takes, which is the same on every machine."""
    model = nn.Sequential(*(Ask() for _ in range(8)), *(nn.Linear(4, 4) for _ in range(64)))

    def calls(work: Callable[[], object]) -> int:
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        work()
        sys.setprofile(profile)
        try:
            work()
        finally:
            sys.setprofile(None)
        return count

    with torch.no_grad():
        plain = calls(lambda: model(X))
        with watch(model, each=lambda call: None):
            watched = calls(lambda: model(X))
    assert (watched - plain) / 8 < 60


@pytest.mark.filterwarnings("ignore")  # of PyTorch: tracing is deprecated, and batching of attention slow
def test_a_model_that_is_traced_or_transformed_inside() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Ask())
    wanted = model(X)
    with watch(model) as seen:
        traced = torch.jit.trace(model, X)  # which compares the graphs of two runs
        several = torch.func.vmap(model)(torch.stack([X, X]))
        model(X)
    assert torch.equal(traced(X), wanted)
    torch.testing.assert_close(several, torch.stack([wanted, wanted]))
    torch.testing.assert_close(seen[-1].weights.block().sum(-1), torch.ones(1, 2, 3))
