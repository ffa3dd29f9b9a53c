"""Weights rounded to bf16 together, for training.

Autocast rounds each weight by a kernel of its own, and takes each gradient back to fp32 by another: 160 in a step of a
Transformer with 4 + 4 layers, of a microsecond or two each. `Bf16Weights` does both for all weights together, with the
same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Bf16Weights:
    """A module that computes a loss, called with bf16 copies in place of some of its weights.

    `weights` are those that the model declares (`bf16_weights()`): a Transformer's; recurrent models compute in fp32.
    """

    def __init__(self, module: nn.Module, weights: Sequence[Tensor]) -> None:
        self.module, self.weights = module, list(weights)
        self.copies = [torch.empty_like(w, dtype=torch.bfloat16, requires_grad=True) for w in self.weights]
        names = {id(weight): name for name, weight in module.named_parameters()}
        self.named = {names[id(weight)]: copy for weight, copy in zip(self.weights, self.copies, strict=True)}

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Round the weights as they are now, and call the module; under autocast, which rounds the rest."""
        if not self.copies:
            return self.module(*inputs)  # type: ignore[no-any-return]
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.weights)
        for copy in self.copies:
            copy.grad = None  # of a step that was interrupted
        return torch.func.functional_call(self.module, self.named, inputs)  # type: ignore[no-any-return]

    def set_gradients(self) -> None:
        """Set the weights' gradients to those of their copies."""
        pairs = [(w, c.grad) for w, c in zip(self.weights, self.copies, strict=True) if c.grad is not None]
        if not pairs:
            return
        gradients = [torch.empty_like(weight) for weight, _ in pairs]
        torch._foreach_copy_(gradients, [gradient for _, gradient in pairs])
        for (weight, _), gradient in zip(pairs, gradients, strict=True):
            weight.grad = gradient
        for copy in self.copies:
            copy.grad = None  # a captured CUDA graph may reuse its memory
