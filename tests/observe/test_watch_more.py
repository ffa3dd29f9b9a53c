"""Watching must not disturb: whatever goes wrong with it, the model and its errors stay as they are."""

from __future__ import annotations

import contextlib
import copy

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
