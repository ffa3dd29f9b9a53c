"""Whether products of fp32 matrices are rounded to TF32 on a GPU, and a block in which they are not.

PyTorch has two ways to say so, `allow_tf32` and `fp32_precision`, and reading the older one is an error once somebody
has used the newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["exact_products", "products_are_rounded"]


def products_are_rounded() -> bool:
    """Whether CUDA may round factors of fp32 to TF32; where that cannot be told, it may."""
    try:
        if (said := getattr(torch.backends.cuda.matmul, "fp32_precision", "none")) != "none":
            return bool(said != "ieee")
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except Exception:  # whatever it is, it is no reason for attention to fail
        return True


@contextmanager
def exact_products() -> Iterator[None]:
    """Keep products of fp32 matrices in fp32; afterwards it is as it was. A compiler that looks on changes nothing."""
    if torch.compiler.is_compiling() or not products_are_rounded():
        yield
        return
    matmul = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", False)
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
