"""Products of fp32 stay in fp32 where weights are read, in both of PyTorch's ways to say what they are rounded to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from heedful.fused.triton.scaled import scaled_attend
from heedful.fused.triton.scaled_plain import exact_products, products_are_rounded

MATMUL = torch.backends.cuda.matmul
NEW = hasattr(MATMUL, "fp32_precision")
new = pytest.mark.skipif(not NEW, reason="this PyTorch has no fp32_precision")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = MATMUL.fp32_precision if NEW else MATMUL.allow_tf32
    yield
    if NEW:
        MATMUL.allow_tf32 = False
        MATMUL.fp32_precision = before
    else:
        MATMUL.allow_tf32 = before


def test_said_in_the_old_way() -> None:
    assert not products_are_rounded()
    MATMUL.allow_tf32 = True
    assert products_are_rounded()
    with exact_products():
        assert not products_are_rounded()
    assert products_are_rounded()
    assert MATMUL.allow_tf32  # and can still be asked in the old way
    with pytest.raises(ValueError, match="no"), exact_products():
        raise ValueError("no")
    assert products_are_rounded()


@new
def test_said_in_the_new_way() -> None:
    """Asked in the old way afterwards, PyTorch raises an error; here that is none."""
    for said, rounded in (("tf32", True), ("ieee", False)):
        MATMUL.fp32_precision = said
        assert products_are_rounded() == rounded
        with exact_products():
            assert MATMUL.fp32_precision == "ieee"
        assert MATMUL.fp32_precision == said


def test_what_cannot_be_told_counts_as_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mixed:
        fp32_precision = "none"

        @property
        def allow_tf32(self) -> bool:
            raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch.backends.cuda, "matmul", Mixed())
    assert products_are_rounded()


class Products(TorchFunctionMode):
    """What was said when matrices were multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: list[bool] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.__matmul__ or func is torch.Tensor.matmul:
            self.rounded.append(products_are_rounded())
        return func(*args, **(kwargs or {}))


def test_the_reader_multiplies_exactly() -> None:
    MATMUL.allow_tf32 = True
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 7, 8)
    weights = scaled_attend(q, k, k)[1]
    with Products() as products:
        weights.block()
        weights.block(heads=[0])
    assert products.rounded == [False, False]
