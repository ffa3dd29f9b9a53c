"""Attention on the way through T steps, with its gradient written by hand; see `recurrence`.

What grows with T·S·A is never kept: the additive score's tanh is worked out a second time on the way back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from heedful.models.recurrence import Views

__all__ = ["Additive", "Asking", "Dot"]


class Asking(ABC):
    """T questions to one memory: scores, weights α (T, B, S) and contexts c (T, B, E).

    `q` (T, B, A) are the questions as they are compared with the keys (B, S, A); `keep` (B, S) is True where may be
    looked. How they are compared is said by the kinds.
    """

    def __init__(self, keys: Tensor, values: Tensor, keep: Tensor, kept: tuple[Tensor, ...]) -> None:
        self.keys, self.values, self.keep = keys, values, keep
        self.q, self.weights, self.c = kept
        self.steps: list[Views] = list(zip(*(buffer.unbind(0) for buffer in kept), strict=True))
        self.ready()

    def ready(self) -> None:
        """Work out what all questions need."""
        self.there = self.keep.to(self.keys.dtype)
        self.blocked = torch.zeros_like(self.there).masked_fill_(~self.keep, torch.finfo(self.keys.dtype).min)

    @staticmethod
    def room(T: int, keys: Tensor, values: Tensor, q: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return room for T questions: what is kept for the way back.  q (T, B, A): room for them, if there is any."""
        B, S, A = keys.shape
        q = keys.new_empty(T, B, A) if q is None else q
        return q, keys.new_empty(T, B, S), keys.new_empty(T, B, values.shape[2])

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What the way back needs."""
        return self.q, self.weights, self.c

    def go(self, t: int, s: Tensor) -> Tensor:
        """Ask.  s (B, D) -> c (B, E)."""
        q, weights, c = self.steps[t]
        torch.softmax(self.score(q, s), -1, out=weights)
        weights.mul_(self.there)  # a sentence with nothing to look at gives zeros
        torch.bmm(weights[:, None], self.values, out=c[:, None])
        return c

    def turn(self, dc: Tensor, d_weights: Tensor | None = None, dq: Tensor | None = None) -> None:
        """Begin the way back.  dc (T, B, E): what is known of the contexts' gradients; it may be added to.

        d_weights (T, B, S): the gradients of the weights themselves, besides what they get from the contexts.
        dq (T, B, A): room for the questions' gradients, if there is any.
        """
        self.dc, self.d_weights = dc, d_weights
        self.dq = torch.empty_like(self.q) if dq is None else dq
        self.de = torch.empty_like(self.weights)
        self.steps_back: list[Views] = list(zip(self.dq.unbind(0), self.de.unbind(0), dc.unbind(0), strict=True))

    def back(self, t: int, ds: Tensor) -> None:
        """Take question t back; `dc[t]` must be whole. What s gets is added to ds (B, D)."""
        (q, weights, _), (dq, de, dc) = self.steps[t], self.steps_back[t]
        torch.bmm(self.values, dc[..., None], out=de[..., None])
        if self.d_weights is not None:
            de.add_(self.d_weights[t])
        de.sub_((de * weights).sum(-1, keepdim=True)).mul_(weights)
        self.unscore(q, dq, de)
        self.give(dq, ds)

    def d_values(self) -> Tensor:
        """The gradient of the values: (B, S, E)."""
        return torch.bmm(self.weights.permute(1, 2, 0), self.dc.transpose(0, 1))

    @abstractmethod
    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Write the question of s (B, D) into q (B, A), and return its scores (B, S): the lowest where not to look."""

    @abstractmethod
    def unscore(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """From the gradient of the scores, de (B, S), to that of the question, dq (B, A)."""

    @abstractmethod
    def give(self, dq: Tensor, ds: Tensor) -> None:
        """Add what s gets.  dq (B, A), ds (B, D)."""


class Dot(Asking):
    """e_tj = q_t · k_j with q = scale · s."""

    def __init__(
        self, keys: Tensor, values: Tensor, keep: Tensor, kept: tuple[Tensor, ...], scale: float = 1.0
    ) -> None:
        self.scale = scale
        super().__init__(keys, values, keep, kept)

    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Return scale · s · k_j.  s (B, D) -> (B, S)."""
        torch.mul(s, self.scale, out=q)
        return torch.baddbmm(self.blocked[:, None], q[:, None], self.keys.transpose(1, 2))[:, 0]

    def unscore(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """dq = Σ_j de_j k_j."""
        torch.bmm(de[:, None], self.keys, out=dq[:, None])

    def give(self, dq: Tensor, ds: Tensor) -> None:
        """ds += scale · dq."""
        ds.add_(dq, alpha=self.scale)

    def d_keys(self) -> Tensor:
        """The gradient of the keys: (B, S, A)."""
        return torch.bmm(self.de.permute(1, 2, 0), self.q.transpose(0, 1))


class Additive(Asking):
    """e_tj = v · tanh(q_t + k_j) with q = W s.

    Of f = tanh(q + k), a slope 1 - f² is asked for at every t and j. The de_j of a question add up to 0, because its
    weights add up to 1, so that dq = v Σ_j de_j (1 - f_j²) = -v Σ_j de_j f_j²; what the keys get waits until the end.
    """

    def __init__(
        self, keys: Tensor, values: Tensor, keep: Tensor, kept: tuple[Tensor, ...], weights: tuple[Tensor, Tensor]
    ) -> None:
        self.W, self.v = weights
        super().__init__(keys, values, keep, kept)

    def ready(self) -> None:
        """Make room for tanh, too."""
        super().ready()
        self.f = torch.empty_like(self.keys)
        self.rows = self.f.flatten(0, 1)

    def bend(self, q: Tensor) -> Tensor:
        """Return tanh(q + k_j), (B·S, A)."""
        torch.add(self.keys, q[:, None], out=self.f).tanh_()
        return self.rows

    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Return v · tanh(W s + k_j).  s (B, D) -> (B, S)."""
        torch.mm(s, self.W.t(), out=q)
        return torch.addmv(self.blocked.flatten(), self.bend(q), self.v).view_as(self.blocked)

    def turn(self, dc: Tensor, d_weights: Tensor | None = None, dq: Tensor | None = None) -> None:
        """Begin the way back."""
        super().turn(dc, d_weights, dq)
        self.dv = torch.zeros_like(self.v)
        self.dk = torch.zeros_like(self.keys)

    def unscore(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """dq = -v Σ_j de_j f_j²; dv and the keys' gradient are added up."""
        f = self.bend(q)
        self.dv.addmv_(f.t(), de.flatten())
        f.square_()
        torch.bmm(de[:, None], self.f, out=dq[:, None])
        dq.mul_(self.v).neg_()
        self.dk.addcmul_(self.f, de[..., None])

    def give(self, dq: Tensor, ds: Tensor) -> None:
        """ds += dq W."""
        ds.addmm_(dq, self.W)

    def d_keys(self) -> Tensor:
        """The gradient of the keys: (B, S, A)."""
        return (self.de.sum(0)[..., None] - self.dk).mul_(self.v)

    def dW(self, s: Tensor) -> Tensor:
        """The gradient of W.  s (T, B, D): who asked -> (A, D)."""
        return self.dq.flatten(0, 1).t() @ s.flatten(0, 1)
