"""The steps of `heedful.fused.cpu.recurrence` by Triton kernels, one kernel for all that is between two products.

They save the same tensors for the backward pass, so that either version can run it.

On a GPU every launch costs time. U s, W_q s and W_s s have the same factor s: with the matrices concatenated they are
one product, and so are their gradients (`JoinedProducts`).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from heedful.fused.cpu.recurrence import AdditiveSteps, AttentionSteps, DotSteps, GruLayer, Layer, LstmLayer, Mix, Views
from heedful.fused.triton.recurrent_attention import AttendSteps
from heedful.fused.triton.recurrent_cells import GruSteps, LstmSteps


class _KernelLayer(Layer):
    """A layer whose gates are computed by one kernel, forward and backward."""

    steps: ClassVar[type[LstmSteps] | type[GruSteps]]

    def step_views(self) -> list[Views]:
        """Return no views: a kernel finds its offsets from t."""
        self.kernels = self.steps(*self.saved[1:])
        return []

    def gate(self, t: int) -> None:
        """Compute the gates of step t and the next state."""
        self.kernels.forward(t)

    def prepare_backward(self) -> None:
        """Allocate no derivatives: the kernel computes them."""
        self.kernels = self.steps(*self.saved[1:])
        self.kernels.begin_backward(self.d, *(gradient for gradient in (self.ds, self.dm) if gradient is not None))

    def gate_backward(self, t: int) -> None:
        """Compute the gradient of the sums in the gates of step t."""
        self.kernels.backward(t)


class KernelLstm(_KernelLayer, LstmLayer):
    """The LSTM's layer by kernels."""

    steps = LstmSteps


class KernelGru(_KernelLayer, GruLayer):
    """The GRU's layer by kernels."""

    steps = GruSteps


# A step of the plain RNN is one operation in both passes already.
KERNEL_LAYERS: dict[str, type[Layer]] = {"lstm": KernelLstm, "gru": KernelGru}


class _KernelAttention(AttentionSteps):
    """The backward pass of attention by kernels, for both scores."""

    kernels: AttendSteps

    def begin_backward(self, ds: Tensor, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> None:
        """Begin the backward pass."""
        self.ds, self.dc = ds, dc
        d_weights = None if d_weights is None else d_weights.contiguous()
        self.dq, self.de = self.kernels.begin_backward(dc, d_weights, dq)


class KernelAdditive(_KernelAttention, AdditiveSteps):
    """e_tj = v · tanh(q_t + k_j) with q = W s: one product and one kernel for a query, and for its gradient."""

    def prepare(self) -> None:
        """Make the kernels."""
        self.kernels = AttendSteps((self.keys, self.values, self.keep), self.saved, self.v)
        self.W_t = self.W.t()

    def forward(self, t: int) -> None:
        """Compute the weights and the context of query t."""
        s, q, _, _ = self.views[t]
        torch.mm(s, self.W_t, out=q)
        self.kernels.forward(t, q)

    def backward(self, t: int) -> None:
        """Run query t backward; `dc[t]` must be complete. The gradient of s is added to `ds[t]`."""
        ds = self.ds[t]
        self.kernels.backward(t, ds)
        self.query_backward(self.dq[t], ds)

    def d_keys(self) -> Tensor:
        """Return the gradient of the keys, (B, S, A), and set that of v."""
        d_keys, self.dv = self.kernels.d_keys()
        return d_keys


class KernelDot(_KernelAttention, DotSteps):
    """e_tj = q_t · k_j with q = scale · s: one kernel for a query, and for its gradient."""

    def prepare(self) -> None:
        """Make the kernels."""
        self.kernels = AttendSteps((self.keys, self.values, self.keep), self.saved, scale=self.scale)

    def forward(self, t: int) -> None:
        """Compute the weights and the context of query t."""
        self.kernels.forward(t, self.views[t][0])

    def backward(self, t: int) -> None:
        """Run query t backward; `dc[t]` must be complete. The gradient of s is added to `ds[t]`."""
        self.kernels.backward(t, self.ds[t])


class JoinedAdditive(KernelAdditive):
    """Additive queries where `JoinedProducts` computes W s, and the gradient of s."""

    def forward(self, t: int) -> None:
        """Compute the weights and the context of the query in `q[t]`."""
        self.kernels.forward(t, self.q)

    def backward(self, t: int) -> None:
        """Run query t backward as far as `dq[t]`; `dc[t]` must be complete."""
        self.kernels.backward(t, self.q)


class JoinedMix(Mix):
    """a_t where `JoinedProducts` computes W_s s + b_a, and the gradient of s."""

    def forward(self, t: int) -> None:
        """Compute a_t."""
        a, _, c = self.views[t]
        a.addmm_(c, self.W_c.t()).tanh_()

    def state_backward(self, ds: Tensor, da: Tensor) -> None:
        """Add nothing: `JoinedProducts` adds the gradient of s_t."""


class JoinedProducts:
    """All products with the states s (T+1, B, D) of one layer: U (gates·D, D), and the others' weights (…, D) by name.

    Row j is what is computed from s_j: the sums of the step that begins with it (`gates`), then the `others`. If these
    are `late`, they belong to the step that ends with s_j, and there is one row more: the first state is multiplied by
    U only, and the last by the others only. Rows hold sums in the forward pass, their gradients in the backward pass.
    """

    def __init__(
        self, kind: type[Layer], U: Tensor, others: dict[str, Tensor], late: bool, sizes: tuple[int, int]
    ) -> None:
        (T, B), D = sizes, U.shape[1]
        self.T, self.late, self.own = T, late, U.shape[0]
        self.W = torch.cat([U, *others.values()])
        widths = [kind.blocks * D, *(weights.shape[0] for weights in others.values())]
        rows = U.new_empty(T + late, B, sum(widths))
        self.rows = rows[..., kind.state * D :]  # the columns that products are added to
        gates, *parts = torch.split(rows, widths, -1)
        self.gates: Tensor = gates[None, :T]  # (1, T, B, blocks·D)
        self.others: dict[str, Tensor] = dict(zip(others, parts, strict=True))  # each (T or T+1, B, …)
        self.products: list[Views] = []

    @property
    def q(self) -> Tensor | None:
        """The buffer for queries, or for their gradients: (T, B, A)."""
        return self.others["q"][self.late :] if "q" in self.others else None

    def _views(self, s: Tensor) -> list[Views]:
        """Return for each product s_j or its gradient, the row computed from it, and the weights."""
        views: list[Views] = []
        for j, row in enumerate(self.rows.unbind(0)):
            begin, end = self.own if j == self.T else 0, self.own if self.late and j == 0 else None
            views.append((s[j], row[:, begin:end], self.W[begin:end]))
        return views

    def begin_forward(self, s: Tensor, b_a: Tensor | None) -> None:
        """Begin the forward pass.  s (T+1, B, D); the products are added to the rows.

        The rows are initialised before the first step, because some products are one step ahead.
        """
        if "q" in self.others:
            self.others["q"].zero_()
        if b_a is not None:
            self.others["a"][1:] = b_a
        self.products = [(s_j, row, W.t()) for s_j, row, W in self._views(s)]

    def forward_before(self, t: int) -> None:
        """Compute the products that come before step t."""
        if t == 0 or not self.late:
            self._product(t)

    def forward_after(self, t: int) -> None:
        """Compute the products that come after step t of the layer."""
        if self.late:
            self._product(t + 1)

    def _product(self, j: int) -> None:
        s, row, W_t = self.products[j]
        row.addmm_(s, W_t)

    def begin_backward(self, ds: Tensor) -> None:
        """Begin the backward pass.  ds (T+1, B, D) is added to."""
        self.products = self._views(ds)

    def backward_after(self, t: int) -> None:
        """Run `forward_after` backward, before step t of the layer."""
        if self.late:
            self._product_backward(t + 1)

    def backward_before(self, t: int) -> None:
        """Run `forward_before` backward, after everything else of step t."""
        if t == 0 or not self.late:
            self._product_backward(t)

    def _product_backward(self, j: int) -> None:
        ds, d, W = self.products[j]
        ds.addmm_(d, W)
