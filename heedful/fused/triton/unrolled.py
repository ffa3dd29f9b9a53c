"""The steps of `heedful.fused.cpu.recurrence` by kernels: one for what stands between two products.

They keep the same for the backward pass, so that either can take what the other has left.

On a GPU every launch has its price. U s, W_q s and W_s s read the same s: with the matrices below each other and the
sums side by side they are one product, and so are their gradients (`JoinedProducts`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.fused.cpu.recurrence import AdditiveSteps, DotSteps, GruLayer, Layer, LstmLayer, Mix, Views
from heedful.fused.triton.recurrent_attention import AttendSteps
from heedful.fused.triton.recurrent_cells import GruSteps, LstmSteps


class _KernelLayer(Layer):
    """A layer whose gates are computed by one kernel, forward and backward."""

    kernels: LstmSteps | GruSteps

    def cut(self) -> list[Views]:
        """Nothing: a kernel finds its place by t."""
        self.kernels = self.make_kernels()
        return []

    def make_kernels(self) -> LstmSteps | GruSteps:
        """Return the kernels for this layer's buffers."""
        raise NotImplementedError

    def gate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.forward(t)

    def prepare_backward(self) -> None:
        """No slopes: they are computed where they are needed."""
        self.kernels = self.make_kernels()
        self.kernels.begin_backward(self.d, *(side for side in (self.ds, self.dm) if side is not None))

    def ungate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.backward(t)


class KernelLstm(_KernelLayer, LstmLayer):
    """The LSTM's layer by kernels."""

    def make_kernels(self) -> LstmSteps:
        """Return the LSTM's kernels."""
        return LstmSteps(self.gates, self.s, self.m)


class KernelGru(_KernelLayer, GruLayer):
    """The GRU's layer by kernels."""

    def make_kernels(self) -> GruSteps:
        """Return the GRU's kernels."""
        return GruSteps(self.gates, self.s)


# The plain RNN is one operation a step in both passes as it is.
KERNEL_LAYERS: dict[str, type[Layer]] = {"lstm": KernelLstm, "gru": KernelGru}


class KernelAdditive(AdditiveSteps):
    """e_tj = v · tanh(q_t + k_j) with q = W s: one product and one kernel for a query, and for its gradient."""

    def prepare(self) -> None:
        """Nothing but the kernels themselves."""
        self.kernels = AttendSteps((self.keys, self.values, self.keep), self.saved, self.v)
        self.W_t = self.W.t()

    def forward(self, t: int) -> None:
        """Compute weights and context of query t."""
        s, q, _, _ = self.views[t]
        torch.mm(s, self.W_t, out=q)
        self.kernels.forward(t, q)

    def begin_backward(self, ds: Tensor, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> None:
        """Begin the backward pass."""
        self.ds, self.dc = ds, dc
        d_weights = None if d_weights is None else d_weights.contiguous()
        self.dq, self.de = self.kernels.begin_backward(dc, d_weights, dq)

    def backward(self, t: int) -> None:
        """Take query t back; `dc[t]` must be complete. The gradient of s is added to `ds[t]`."""
        ds = self.ds[t]
        self.kernels.backward(t, ds)
        self.unquery(self.dq[t], ds)

    def d_keys(self) -> Tensor:
        """Return the gradient of the keys, (B, S, A); that of v comes with it."""
        d_keys, self.dv = self.kernels.d_keys()
        return d_keys


class KernelDot(DotSteps):
    """e_tj = q_t · k_j with q = scale · s: one kernel for a query, and for its gradient."""

    def prepare(self) -> None:
        """Nothing but the kernels themselves."""
        self.kernels = AttendSteps((self.keys, self.values, self.keep), self.saved, scale=self.scale)

    def forward(self, t: int) -> None:
        """Compute weights and context of query t."""
        self.kernels.forward(t, self.views[t][0])

    def begin_backward(self, ds: Tensor, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> None:
        """Begin the backward pass."""
        self.ds, self.dc = ds, dc
        d_weights = None if d_weights is None else d_weights.contiguous()
        self.dq, self.de = self.kernels.begin_backward(dc, d_weights, dq)

    def backward(self, t: int) -> None:
        """Take query t back; `dc[t]` must be complete. The gradient of s is added to `ds[t]`."""
        self.kernels.backward(t, self.ds[t])


class JoinedAdditive(KernelAdditive):
    """Additive queries where `JoinedProducts` computes W s, and the gradient of s."""

    def forward(self, t: int) -> None:
        """Compute weights and context of the query that lies in `q[t]`."""
        self.kernels.forward(t, self.q)

    def backward(self, t: int) -> None:
        """Take query t back as far as `dq[t]`; `dc[t]` must be complete."""
        self.kernels.backward(t, self.q)


class JoinedMix(Mix):
    """a_t where `JoinedProducts` computes W_s s + b_a, and the gradient of s."""

    def forward(self, t: int) -> None:
        """Compute a_t."""
        a, _, c = self.views[t]
        a.addmm_(c, self.W_c.t()).tanh_()

    def give_state(self, ds: Tensor, da: Tensor) -> None:
        """`JoinedProducts` adds the gradient of s_t."""


class JoinedProducts:
    """All that reads the states s (T+1, B, D) of one layer: U (gates·D, D), and the others' weights (…, D) by name.

    Row j is what is read from s_j: the sums of the step that begins with it (`gates`) and beside them the `others`. If
    these are late, they belong to the step that ends with s_j, and there is one row more: only the layer reads the
    first state, and only the others the last. Rows hold sums in the forward pass, their gradients in the backward pass.
    """

    def __init__(
        self, kind: type[Layer], U: Tensor, others: dict[str, Tensor], late: bool, sizes: tuple[int, int]
    ) -> None:
        (T, B), D = sizes, U.shape[1]
        self.T, self.late, self.own = T, late, U.shape[0]
        self.W = torch.cat([U, *others.values()])
        widths = [kind.blocks * D, *(weights.shape[0] for weights in others.values())]
        rows = U.new_empty(T + late, B, sum(widths))
        self.rows = rows[..., kind.state * D :]  # what products have to do with
        gates, *parts = torch.split(rows, widths, -1)
        self.gates: Tensor = gates[None, :T]  # (1, T, B, blocks·D)
        self.others: dict[str, Tensor] = dict(zip(others, parts, strict=True))  # each (T or T+1, B, …)
        self.products: list[Views] = []

    @property
    def q(self) -> Tensor | None:
        """The buffer for queries, or for their gradients: (T, B, A)."""
        return self.others["q"][self.late :] if "q" in self.others else None

    def _cut(self, s: Tensor) -> list[Views]:
        """Return what each product sees: s_j or its gradient, what is read from it, and the weights."""
        views: list[Views] = []
        for j, row in enumerate(self.rows.unbind(0)):
            begin, end = self.own if j == self.T else 0, self.own if self.late and j == 0 else None
            views.append((s[j], row[:, begin:end], self.W[begin:end]))
        return views

    def begin_forward(self, s: Tensor, b_a: Tensor | None) -> None:
        """Begin the forward pass.  s (T+1, B, D); what is read from it is added to what lies in the rows.

        What products add to must be there before the first step, because some are a step ahead.
        """
        if "q" in self.others:
            self.others["q"].zero_()
        if b_a is not None:
            self.others["a"][1:] = b_a
        self.products = [(s_j, row, W.t()) for s_j, row, W in self._cut(s)]

    def forward_before(self, t: int) -> None:
        """Read what can be read before step t."""
        if t == 0 or not self.late:
            self._read(t)

    def forward_after(self, t: int) -> None:
        """Read what can be read when the layer has taken step t."""
        if self.late:
            self._read(t + 1)

    def _read(self, j: int) -> None:
        s, row, W_t = self.products[j]
        row.addmm_(s, W_t)

    def begin_backward(self, ds: Tensor) -> None:
        """Begin the backward pass.  ds (T+1, B, D) is added to."""
        self.products = self._cut(ds)

    def backward_after(self, t: int) -> None:
        """`forward_after`, back: before the layer takes step t back."""
        if self.late:
            self._give(t + 1)

    def backward_before(self, t: int) -> None:
        """`forward_before`, back: when all else of step t has been taken back."""
        if t == 0 or not self.late:
            self._give(t)

    def _give(self, j: int) -> None:
        ds, d, W = self.products[j]
        ds.addmm_(d, W)
