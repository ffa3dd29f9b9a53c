"""Twins in bf16 of the weights that products read, all rounded at once.

Autocast rounds each weight by a kernel of its own, and takes each gradient back to fp32 by another: 160 in a step of a
Transformer with 4 + 4 layers, of a microsecond or two each. Here both are done for all weights together, with the same
numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.models import Network
from heedful.models.transformer import Transformer

__all__ = ["Twins"]


class Twins:
    """A module that learns a `model`, to be called with twins in place of its weights, where these have one.

    Only a Transformer's have: recurrent models compute in fp32.
    """

    def __init__(self, learner: nn.Module, model: Network) -> None:
        self.learner = learner
        self.weights: list[Tensor] = model.operands() if isinstance(model, Transformer) else []
        self.twins = [torch.empty_like(w, dtype=torch.bfloat16, requires_grad=True) for w in self.weights]
        names = {id(weight): name for name, weight in learner.named_parameters()}
        self.named = {names[id(weight)]: twin for weight, twin in zip(self.weights, self.twins, strict=True)}

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Round the weights as they are now, and call the module; under autocast, which rounds the rest."""
        if not self.twins:
            return self.learner(*inputs)  # type: ignore[no-any-return]
        with torch.no_grad():
            torch._foreach_copy_(self.twins, self.weights)
        for twin in self.twins:
            twin.grad = None  # of a step that did not come to its end
        return torch.func.functional_call(self.learner, self.named, inputs)  # type: ignore[no-any-return]

    def give(self) -> None:
        """Give what the twins have learned to the weights, as their gradients."""
        learned = [(w, t.grad) for w, t in zip(self.weights, self.twins, strict=True) if t.grad is not None]
        if not learned:
            return
        slopes = [torch.empty_like(weight) for weight, _ in learned]
        torch._foreach_copy_(slopes, [slope for _, slope in learned])
        for (weight, _), slope in zip(learned, slopes, strict=True):
            weight.grad = slope
        for twin in self.twins:
            twin.grad = None  # what was recorded may use its memory for something else
