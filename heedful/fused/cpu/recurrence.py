"""The steps of a recurrent layer and of attention with hand-written gradients, which training on a CPU runs.

`heedful.models.rnn` and `heedful.attention` are the definition. Here the same is computed in place, in buffers for all
T steps, without autograd. The backward pass computes step by step only what depends on the next step; the gradients of
all weights are a few large products over all T·B rows at the end. Nothing of size T·S·A is stored: the additive score's
tanh is computed again. `heedful.fused.unrolled` makes autograd functions of these steps, and
`heedful.fused.triton.unrolled` has the same steps by kernels.

N layers run in parallel (the two directions of an encoder; 1 for a decoder), each with its own weights. Every part has
`forward(t)` and `backward(t)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from heedful.attention import mask_bias

Views = tuple[Tensor, ...]  # of one step, into some buffers


def span(T: int, device: torch.device) -> int:
    """Return how many steps are computed together where they do not depend on each other.

    One on the CPU, where the data of a step is still in the cache; all on a GPU, where every launch costs time.
    """
    return 1 if device.type == "cpu" else T


def steps(*buffers: Tensor) -> list[Views]:
    """Return the views of each step into some buffers (N, T, …): made once, since one costs as much as a small sum."""
    return list(zip(*(buffer.unbind(1) for buffer in buffers), strict=True))


class Layer(ABC):
    """N layers over T steps.

    `gates` (N, T, B, blocks·D) holds the activated gates, `s` (N, T+1, B, D) the states from s_0 on, `m` the LSTM's
    cell states. U s is added to the blocks from `state` on, W x to the first `inputs` blocks.
    """

    blocks: ClassVar[int]
    state: ClassVar[int] = 0  # the first block that U s is added to
    inputs: ClassVar[int]  # how many blocks W x is added to

    bias: Tensor  # (N, 1, 1, blocks·D), in the forward pass
    ds: Tensor  # in the backward pass: the states' gradients, and those of the sums in the gates
    dm: Tensor | None
    d: Tensor

    def __init__(self, U: Tensor, gates: Tensor, s: Tensor, m: Tensor | None = None) -> None:
        self.U, self.gates, self.s, self.m = U, gates, s, m
        self.D, T = s.shape[-1], gates.shape[1]
        self.span = span(T, gates.device)
        self.by_input = self._parts(gates)[1]
        self.U_t = U.transpose(1, 2)
        self.bias_missing = False  # whether `forward` adds the bias

    def _parts(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        return gates[..., self.state * self.D :], gates[..., : self.inputs * self.D]

    def _blocks(self, gates: Tensor) -> Tensor:
        return gates.view(*gates.shape[:-1], self.blocks, self.D)

    @classmethod
    def allocate(
        cls,
        T: int,
        U: Tensor,
        bias: tuple[Tensor, Tensor],
        first: tuple[Tensor, ...],
        gates: Tensor | None = None,
    ) -> Layer:
        """Return a layer with buffers.  U (N, gates·D, D), bias: of the input and of the state, (N, gates·D).

        first (N, B, D): the first states; gates (N, T, B, blocks·D): their buffer, if it is allocated already.
        """
        N, B, D = first[0].shape
        states = [side.new_empty(N, T + 1, B, D) for side in first]
        for buffer, side in zip(states, first, strict=True):
            buffer[:, 0] = side
        layer = cls(U, U.new_empty(N, T, B, cls.blocks * D) if gates is None else gates, *states)
        layer.bias = layer.gather_bias(*bias)[:, None, None]
        layer.sums = steps(*layer._parts(layer.gates), layer.s[:, :-1])
        layer.views = layer.step_views()
        return layer

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """The tensors for the backward pass, in the order of the constructor's arguments."""
        return (self.U, self.gates, self.s) if self.m is None else (self.U, self.gates, self.s, self.m)

    def gather_bias(self, b_W: Tensor, b_U: Tensor) -> Tensor:
        """Return one bias for all blocks.  b_W, b_U (N, gates·D) -> (N, blocks·D)."""
        return b_W + b_U

    def arrange(self, W: Tensor) -> Tensor:
        """Return an input's weights with the gates in the order of the blocks.  W (N, gates·D, K) -> the same."""
        return W

    def restore(self, d: Tensor, dim: int) -> Tensor:
        """Undo `arrange` for a gradient."""
        return d

    def project(self, x: Tensor, W: Tensor) -> None:
        """Compute W x of an input that is known for all steps.  x (N, T, B, K), W (N, gates·D, K), arranged."""
        for inputs, weights, sums in zip(x, W, self.by_input, strict=True):
            torch.mm(inputs.flatten(0, 1), weights.t(), out=sums.flatten(0, 1))
        self.bias_missing = True

    def add_bias(self, at: slice) -> None:
        """Add the bias to the projected input of some steps."""
        self.by_input[:, at].add_(self._parts(self.bias)[1])

    def forward(self, t: int) -> None:
        """Compute step t: `s[:, t + 1]` from `s[:, t]`."""
        if self.bias_missing and t % self.span == 0:
            self.add_bias(slice(t, t + self.span))
        by_state, _, s = self.sums[t]
        by_state.baddbmm_(s, self.U_t)
        self.gate(t)

    def gate(self, t: int) -> None:
        """Compute the gates of step t from their sums, and the next state."""
        self.activate(self.views[t])

    @abstractmethod
    def step_views(self) -> list[Views]:
        """Return the arguments of `activate` for each step."""

    @abstractmethod
    def activate(self, views: Views) -> None:
        """Compute the gates from their sums, and the next state."""

    def begin_backward(self, ds: Tensor, dm: Tensor | None = None, d: Tensor | None = None) -> None:
        """Begin the backward pass.  ds, dm (N, T+1, B, D): known gradients of the states; they are added to.

        d (N, T, B, blocks·D): the buffer for the gates' gradients, if it is allocated already.
        """
        self.ds, self.dm = ds, dm
        self.d = torch.empty_like(self.gates) if d is None else d
        self.d_state, self.d_input = self._parts(self.d)
        self.sums = steps(self.d_state, self.d_input, ds[:, :-1])
        self.prepare_backward()

    def prepare_backward(self) -> None:
        """Allocate the derivatives, and make the views for `gate_backward`."""
        N, _, B, width = self.gates.shape
        self.derivative = self.gates.new_empty(N, self.span, B, width)
        self.by_block = [*self._blocks(self.derivative).unbind(-2)]
        buffers = [*self._blocks(self.gates).unbind(-2)]
        for states in self.saved[2:]:
            buffers += [states[:, :-1], states[:, 1:]]
        self.spans = list(zip(*(torch.split(buffer, self.span, 1) for buffer in buffers), strict=True))
        self.views = self.backward_views()

    def backward(self, t: int) -> None:
        """Compute the gradients of step t; `ds[:, t + 1]` must be complete. That of s is added to `ds[:, t]`."""
        self.gate_backward(t)
        d, _, ds = self.sums[t]
        ds.baddbmm_(d, self.U)

    def gate_backward(self, t: int) -> None:
        """Compute the gradient of the sums in the gates from that of the state after step t."""
        if (t + 1) % self.span == 0:
            self.derivatives(self.spans[t // self.span])
        self.differentiate(t % self.span, self.views[t])

    @abstractmethod
    def derivatives(self, views: Views) -> None:
        """Compute the derivatives of a span's gates.  `views`: the blocks; the states before and after."""

    @abstractmethod
    def backward_views(self) -> list[Views]:
        """Return the arguments of `differentiate` for each step."""

    @abstractmethod
    def differentiate(self, i: int, views: Views) -> None:
        """Compute the gradient of the sums in the gates from the next state's; i is the step's index in the span."""

    def dx(self, W: Tensor) -> Tensor:
        """Return the gradient of the projected input.  W (N, gates·D, K), arranged -> (N, T, B, K)."""
        return torch.bmm(self.d_input.flatten(1, 2), W).view(*self.gates.shape[:3], -1)

    def dW(self, x: Tensor) -> Tensor:
        """Return the gradient of the weights of an input.  x (N, T, B, K) -> (N, gates·D, K)."""
        return self.restore(torch.bmm(self.d_input.flatten(1, 2).transpose(1, 2), x.flatten(1, 2)), 1)

    def dU(self) -> Tensor:
        """Return the gradient of U: (N, gates·D, D)."""
        return torch.bmm(self.d_state.flatten(1, 2).transpose(1, 2), self.s[:, :-1].flatten(1, 2))

    def db(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the biases of the input and of the state: (N, gates·D)."""
        of_state, of_input = self._parts(self.d.sum((1, 2)))
        # Copies: for some cells both are the same tensor, and two weights must not share one gradient.
        return self.restore(of_input, 1).clone(), of_state.clone()


class RnnLayer(Layer):
    """s_t = tanh(x + u)."""

    blocks, inputs = 1, 1

    def step_views(self) -> list[Views]:
        """The sum, and the next state."""
        return steps(self.gates, self.s[:, 1:])

    def activate(self, views: Views) -> None:
        """s_t = tanh(x + u)."""
        a, s = views
        torch.tanh(a, out=s)

    def derivatives(self, views: Views) -> None:
        """1 - s²."""
        _, _, s = views
        torch.square(s, out=self.derivative).neg_().add_(1)

    def backward_views(self) -> list[Views]:
        """The gradients of the sum and of the state."""
        return steps(self.d, self.ds[:, 1:])

    def differentiate(self, i: int, views: Views) -> None:
        """ds (1 - s²)."""
        d, ds = views
        torch.mul(ds, self.derivative[:, i], out=d)


class ReluLayer(RnnLayer):
    """s_t = max(x + u, 0)."""

    def activate(self, views: Views) -> None:
        """s_t = max(x + u, 0)."""
        a, s = views
        torch.clamp(a, min=0, out=s)

    def derivatives(self, views: Views) -> None:
        """1 where s > 0."""
        _, _, s = views
        self.derivative.copy_(s > 0)


class LstmLayer(Layer):
    """m_t = f m_{t-1} + i g, s_t = o tanh(m_t); the gates in the order i, f, g, o."""

    blocks, inputs = 4, 4
    m: Tensor
    dm: Tensor

    def step_views(self) -> list[Views]:
        """i and f together, each gate, the cell state before, and both next states."""
        i_f = self.gates[..., : 2 * self.D]
        return steps(i_f, *self._blocks(self.gates).unbind(-2), self.m[:, :-1], self.m[:, 1:], self.s[:, 1:])

    def activate(self, views: Views) -> None:
        """m_t = f m_{t-1} + i g, s_t = o tanh(m_t)."""
        i_f, i, f, g, o, before, m, s = views
        i_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(f, before, out=m)
        m.addcmul_(i, g)
        torch.tanh(m, out=s)
        s.mul_(o)

    def derivatives(self, views: Views) -> None:
        """∂m/∂i, ∂m/∂f, ∂m/∂g and ∂s/∂o by the sums in the gates, and ∂s/∂m."""
        i, f, g, o, _, _, before, m = views
        to_i, to_f, to_g, to_o = self.by_block
        tanh_m = torch.tanh(m)
        torch.mul(i, g, out=to_i)
        torch.addcmul(i, to_i, g, value=-1, out=to_g)  # i (1 - g²)
        to_i.addcmul_(to_i, i, value=-1)  # g i (1 - i)
        torch.mul(before, f, out=to_f)
        to_f.addcmul_(to_f, f, value=-1)
        torch.mul(tanh_m, o, out=to_o)
        self.to_m = torch.addcmul(o, to_o, tanh_m, value=-1)  # o (1 - tanh² m)
        to_o.addcmul_(to_o, o, value=-1)

    def backward_views(self) -> list[Views]:
        """The gradients of i, f and g together, of o, of both states, and of the cell state before; the gate f."""
        d, f = self._blocks(self.d), self._blocks(self.gates)[..., 1, :]
        return steps(d[..., :3, :], d[..., 3, :], self.ds[:, 1:], self.dm[:, 1:], self.dm[:, :-1], f)

    def differentiate(self, i: int, views: Views) -> None:
        """dm += ds o (1 - tanh² m); di, df and dg from dm, do from ds; dm_{t-1} += dm f."""
        d_ifg, d_o, ds, dm, dm_before, f = views
        derivative = self._blocks(self.derivative[:, i])
        dm.addcmul_(ds, self.to_m[:, i])
        torch.mul(derivative[..., :3, :], dm[..., None, :], out=d_ifg)
        torch.mul(derivative[..., 3, :], ds, out=d_o)
        dm_before.addcmul_(dm, f)


class GruLayer(Layer):
    """s_t = (1 - z) n + z s_{t-1}, n = tanh(x + r u).

    The blocks are n, r, z, u: the input is added to the first three and the state to the last three.
    """

    blocks, state, inputs = 4, 1, 3

    def gather_bias(self, b_W: Tensor, b_U: Tensor) -> Tensor:
        """The input's bias for n, both for r and z, the state's for u."""
        D = self.D
        return torch.cat([b_W[:, 2 * D :], b_W[:, : 2 * D] + b_U[:, : 2 * D], b_U[:, 2 * D :]], dim=1)

    def arrange(self, W: Tensor) -> Tensor:
        """r, z, n -> n, r, z."""
        return torch.cat([W[:, 2 * self.D :], W[:, : 2 * self.D]], dim=1)

    def restore(self, d: Tensor, dim: int) -> Tensor:
        """n, r, z -> r, z, n."""
        n, r_z = torch.split(d, [self.D, 2 * self.D], dim)
        return torch.cat([r_z, n], dim)

    def add_bias(self, at: slice) -> None:
        """Add the bias; u, which has no input, is set to it."""
        super().add_bias(at)
        self.gates[:, at, :, 3 * self.D :] = self.bias[..., 3 * self.D :]

    def step_views(self) -> list[Views]:
        """r and z together, each block, the state before, and the next state."""
        r_z = self.gates[..., self.D : 3 * self.D]
        return steps(r_z, *self._blocks(self.gates).unbind(-2), self.s[:, :-1], self.s[:, 1:])

    def activate(self, views: Views) -> None:
        """n = tanh(x + r u), s_t = n + z (s_{t-1} - n)."""
        r_z, n, r, z, u, before, s = views
        r_z.sigmoid_()
        n.addcmul_(r, u).tanh_()
        torch.lerp(n, before, z, out=s)

    def derivatives(self, views: Views) -> None:
        """∂s by the sum of each block."""
        n, r, z, u, before, _ = views
        to_n, to_r, to_z, to_u = self.by_block
        one_minus_z = 1 - z
        torch.mul(n, n, out=to_n)
        torch.addcmul(one_minus_z, one_minus_z, to_n, value=-1, out=to_n)  # (1 - z) (1 - n²)
        torch.mul(to_n, r, out=to_u)
        torch.mul(to_u, u, out=to_r)
        to_r.addcmul_(to_r, r, value=-1)
        torch.sub(before, n, out=to_z).mul_(one_minus_z.mul_(z))

    def backward_views(self) -> list[Views]:
        """The gradients of the blocks, of the state, and of the state before; the gate z."""
        z = self._blocks(self.gates)[..., 2, :]
        return steps(self._blocks(self.d), self.ds[:, 1:], self.ds[:, :-1], z)

    def differentiate(self, i: int, views: Views) -> None:
        """All blocks in one product with ds; ds_{t-1} += ds z."""
        d, ds, ds_before, z = views
        torch.mul(self._blocks(self.derivative[:, i]), ds[..., None, :], out=d)
        ds_before.addcmul_(ds, z)


LAYERS: dict[str, type[Layer]] = {"rnn": RnnLayer, "rnn-relu": ReluLayer, "lstm": LstmLayer, "gru": GruLayer}


class AttentionSteps(ABC):
    """Attention of T queries: scores, weights α (T, B, S) and contexts c (T, B, E).

    `s` (T, B, D) are the decoder states, `q` (T, B, A) the queries made from them; keys (B, S, A), values (B, S, E);
    `keep` (B, S) is True for positions to attend to. Subclasses define the score. A row with nothing to attend to gives
    zeros; masked positions may hold anything, NaN too.
    """

    def __init__(self, memory: tuple[Tensor, Tensor, Tensor], s: Tensor, saved: tuple[Tensor, ...]) -> None:
        self.keys, self.values, self.keep = memory
        self.s, (self.q, self.weights, self.c) = s, saved
        self.views: list[Views] = list(zip(*(buffer.unbind(0) for buffer in (s, *saved)), strict=True))
        self.prepare()

    def prepare(self) -> None:
        """Mask the keys and values, once for all queries."""
        blocked = ~self.keep[..., None]
        self.keys, self.values = self.keys.masked_fill(blocked, 0), self.values.masked_fill(blocked, 0)
        self.kept, self.bias = self.keep.to(self.keys.dtype), mask_bias(self.keep, self.keys.dtype)

    @staticmethod
    def allocate(T: int, keys: Tensor, values: Tensor, q: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return buffers for q, α and c of T queries.  q (T, B, A): the first, if it is allocated already."""
        B, S, A = keys.shape
        q = keys.new_empty(T, B, A) if q is None else q
        return q, keys.new_empty(T, B, S), keys.new_empty(T, B, values.shape[2])

    @property
    def saved(self) -> tuple[Tensor, ...]:
        """The tensors for the backward pass."""
        return self.q, self.weights, self.c

    def forward(self, t: int) -> None:
        """Compute the weights and the context of query t."""
        s, q, weights, c = self.views[t]
        torch.softmax(self.score(q, s), -1, out=weights)
        weights.mul_(self.kept)  # a row with nothing to attend to gives zeros
        torch.bmm(weights[:, None], self.values, out=c[:, None])

    def begin_backward(self, ds: Tensor, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> None:
        """Begin the backward pass.  ds (T, B, D), dc (T, B, E): known gradients of the states and contexts.

        d_weights (T, B, S): the gradients of the weights from other uses than the contexts.
        dq (T, B, A): the buffer for the queries' gradients, if it is allocated already.
        """
        self.ds, self.dc, self.d_weights = ds, dc, d_weights
        self.dq = torch.empty_like(self.q) if dq is None else dq
        self.de = torch.empty_like(self.weights)
        buffers = (ds, self.dq, self.de, dc)
        self.views_back: list[Views] = list(zip(*(buffer.unbind(0) for buffer in buffers), strict=True))

    def backward(self, t: int) -> None:
        """Run query t backward; `dc[t]` must be complete. The gradient of s is added to `ds[t]`."""
        (_, q, weights, _), (ds, dq, de, dc) = self.views[t], self.views_back[t]
        torch.bmm(self.values, dc[..., None], out=de[..., None])
        if self.d_weights is not None:
            de.add_(self.d_weights[t])
        de.sub_((de * weights).sum(-1, keepdim=True)).mul_(weights)
        self.score_backward(q, dq, de)
        self.query_backward(dq, ds)

    def d_values(self) -> Tensor:
        """Return the gradient of the values: (B, S, E)."""
        return torch.bmm(self.weights.permute(1, 2, 0), self.dc.transpose(0, 1))

    @abstractmethod
    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Write the query of s (B, D) into q (B, A), and return its scores with the mask added (B, S)."""

    @abstractmethod
    def score_backward(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """Compute the gradient of the query, dq (B, A), from that of the scores, de (B, S)."""

    @abstractmethod
    def query_backward(self, dq: Tensor, ds: Tensor) -> None:
        """Add the gradient of s.  dq (B, A), ds (B, D)."""

    @abstractmethod
    def d_keys(self) -> Tensor:
        """Return the gradient of the keys: (B, S, A)."""

    def d_weights_of_score(self) -> dict[str, Tensor]:
        """Return the gradients of the score's own weights, by name; after `d_keys`."""
        return {}


class DotSteps(AttentionSteps):
    """e_tj = q_t · k_j with q = scale · s."""

    def __init__(
        self, memory: tuple[Tensor, Tensor, Tensor], s: Tensor, saved: tuple[Tensor, ...], scale: float = 1.0
    ) -> None:
        self.scale = scale
        super().__init__(memory, s, saved)

    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Return scale · s · k_j.  s (B, D) -> (B, S)."""
        torch.mul(s, self.scale, out=q)
        return torch.baddbmm(self.bias[:, None], q[:, None], self.keys.transpose(1, 2))[:, 0]

    def score_backward(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """dq = Σ_j de_j k_j."""
        torch.bmm(de[:, None], self.keys, out=dq[:, None])

    def query_backward(self, dq: Tensor, ds: Tensor) -> None:
        """ds += scale · dq."""
        ds.add_(dq, alpha=self.scale)

    def d_keys(self) -> Tensor:
        """Return the gradient of the keys: (B, S, A)."""
        return torch.bmm(self.de.permute(1, 2, 0), self.q.transpose(0, 1))


class AdditiveSteps(AttentionSteps):
    """e_tj = v · tanh(q_t + k_j) with q = W s.

    The derivative of f = tanh(q + k) is 1 - f². The de_j of a query sum to 0, because its weights sum to 1, so that
    dq = v Σ_j de_j (1 - f_j²) = -v Σ_j de_j f_j². The gradient of the keys is computed at the end.
    """

    def __init__(
        self,
        memory: tuple[Tensor, Tensor, Tensor],
        s: Tensor,
        saved: tuple[Tensor, ...],
        weights: tuple[Tensor, Tensor],
    ) -> None:
        self.W, self.v = weights
        super().__init__(memory, s, saved)

    def prepare(self) -> None:
        """Mask the keys and values, and allocate tanh."""
        super().prepare()
        self.f = torch.empty_like(self.keys)
        self.rows, self.flat_bias, self.W_t = self.f.flatten(0, 1), self.bias.flatten(), self.W.t()

    def tanh(self, q: Tensor) -> Tensor:
        """Return tanh(q + k_j), (B·S, A)."""
        torch.add(self.keys, q[:, None], out=self.f).tanh_()
        return self.rows

    def score(self, q: Tensor, s: Tensor) -> Tensor:
        """Return v · tanh(W s + k_j).  s (B, D) -> (B, S)."""
        torch.mm(s, self.W_t, out=q)
        return torch.addmv(self.flat_bias, self.tanh(q), self.v).view_as(self.bias)

    def begin_backward(self, ds: Tensor, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> None:
        """Begin the backward pass."""
        super().begin_backward(ds, dc, d_weights, dq)
        self.dv = torch.zeros_like(self.v)
        self.dk = torch.zeros_like(self.keys)

    def score_backward(self, q: Tensor, dq: Tensor, de: Tensor) -> None:
        """dq = -v Σ_j de_j f_j²; dv and the keys' gradient are added up."""
        f = self.tanh(q)
        self.dv.addmv_(f.t(), de.flatten())
        f.square_()
        torch.bmm(de[:, None], self.f, out=dq[:, None])
        dq.mul_(self.v).neg_()
        self.dk.addcmul_(self.f, de[..., None])

    def query_backward(self, dq: Tensor, ds: Tensor) -> None:
        """ds += dq W."""
        ds.addmm_(dq, self.W)

    def d_keys(self) -> Tensor:
        """Return the gradient of the keys: (B, S, A)."""
        return (self.de.sum(0)[..., None] - self.dk).mul_(self.v)

    def d_weights_of_score(self) -> dict[str, Tensor]:
        """Return the gradients of W (A, D) and v (A,)."""
        return {"W_q": self.dq.flatten(0, 1).t() @ self.s.flatten(0, 1), "v": self.dv}


class Feed:
    """An input of a layer that is computed in the loop: W x_t is added to the sums.

    x (T, B, K), W (1, gates·D, K), arranged; `drop` (T, B, K), if there is one, multiplies x.
    """

    def __init__(self, layer: Layer, W: Tensor, x: Tensor, drop: Tensor | None = None) -> None:
        self.layer, self.W, self.x, self.drop = layer, W, x, drop
        self.W_t, self.inputs = W.transpose(1, 2), x[:, None].unbind(0)

    def forward(self, t: int) -> None:
        """Add W x_t."""
        x = self.inputs[t] if self.drop is None else self.inputs[t] * self.drop[t]
        self.layer.sums[t][1].baddbmm_(x, self.W_t)

    def begin_backward(self, dx: Tensor) -> None:
        """Begin the backward pass.  dx (T, B, K) is added to."""
        self.d_inputs = dx[:, None].unbind(0)

    def backward(self, t: int) -> None:
        """Add the gradient of x_t."""
        if self.drop is None:
            self.d_inputs[t].baddbmm_(self.layer.sums[t][1], self.W)
        else:
            self.d_inputs[t].addcmul_(self.layer.sums[t][1] @ self.W, self.drop[t])

    def dW(self) -> Tensor:
        """Return the gradient of W: (gates·D, K)."""
        return self.layer.dW((self.x if self.drop is None else self.x * self.drop)[None])[0]


class Mix:
    """Luong's attentional state, a_t = tanh(W_a [s_t; c_t] + b_a).  a (T+1, B, D), a_0 included."""

    def __init__(self, a: Tensor, W_a: Tensor, b_a: Tensor, s: Tensor, c: Tensor) -> None:
        self.a, self.b, self.s, self.c = a, b_a, s, c
        self.W_s, self.W_c = torch.split(W_a, [s.shape[2], c.shape[2]], dim=1)
        self.views: list[Views] = list(zip(a[1:].unbind(0), s.unbind(0), c.unbind(0), strict=True))

    def forward(self, t: int) -> None:
        """Compute a_t."""
        a, s, c = self.views[t]
        torch.addmm(self.b, s, self.W_s.t(), out=a)
        a.addmm_(c, self.W_c.t()).tanh_()

    def begin_backward(self, da: Tensor, ds: Tensor, dc: Tensor) -> None:
        """Begin the backward pass.  da (T+1, B, D); ds, dc (T, B, …) are added to."""
        self.da = da
        self.views_back: list[Views] = list(zip(da[1:].unbind(0), ds.unbind(0), dc.unbind(0), strict=True))

    def backward(self, t: int) -> None:
        """Add the gradients of s_t and c_t; `da[t + 1]` must be complete, and becomes that of the sum inside tanh."""
        a, (da, ds, dc) = self.views[t][0], self.views_back[t]
        da.addcmul_(da * a, a, value=-1)
        self.state_backward(ds, da)
        dc.addmm_(da, self.W_c)

    def state_backward(self, ds: Tensor, da: Tensor) -> None:
        """Add the gradient of s_t."""
        ds.addmm_(da, self.W_s)

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients of W_a, b_a and a_0."""
        da = self.da[1:].flatten(0, 1)
        inputs = torch.cat([self.s, self.c], dim=-1).flatten(0, 1)
        return {"W_a": da.t() @ inputs, "b_a": da.sum(0), "a": self.da[0]}
