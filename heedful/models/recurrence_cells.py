"""The layers of `recurrence` for each cell: its gates there, and their slopes on the way back."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.models.recurrence import Layer, Views, steps

__all__ = ["LAYERS", "GruLayer", "LstmLayer", "RnnLayer"]


class RnnLayer(Layer):
    """s_t = tanh(x + u)."""

    blocks, inputs = 1, 1

    def cut(self) -> list[Views]:
        """The sum, and room for the state."""
        return steps(self.gates, self.s[:, 1:])

    def activate(self, views: Views) -> None:
        """s_t = tanh(x + u)."""
        a, s = views
        torch.tanh(a, out=s)

    def slopes(self, known: Views) -> None:
        """1 - s²."""
        _, _, s = known
        torch.square(s, out=self.slope).neg_().add_(1)

    def cut_back(self) -> list[Views]:
        """The gradients of the sum and of the state."""
        return steps(self.d, self.ds[:, 1:])

    def differentiate(self, i: int, views: Views) -> None:
        """ds (1 - s²)."""
        d, ds = views
        torch.mul(ds, self.slope[:, i], out=d)


class LstmLayer(Layer):
    """m_t = f m_{t-1} + i g, s_t = o tanh(m_t); the gates in the order i, f, g, o."""

    blocks, inputs = 4, 4
    m: Tensor
    dm: Tensor

    def cut(self) -> list[Views]:
        """i and f together, each gate, the cell state before, and room for both states."""
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

    def slopes(self, known: Views) -> None:
        """How much dm changes i, f and g, how much ds changes o, and how much ds changes dm."""
        i, f, g, o, _, _, before, m = known
        to_i, to_f, to_g, to_o = self.slopes_of
        bent = torch.tanh(m)
        torch.mul(i, g, out=to_i)
        torch.addcmul(i, to_i, g, value=-1, out=to_g)  # i (1 - g²)
        to_i.addcmul_(to_i, i, value=-1)  # g i (1 - i)
        torch.mul(before, f, out=to_f)
        to_f.addcmul_(to_f, f, value=-1)
        torch.mul(bent, o, out=to_o)
        self.to_m = torch.addcmul(o, to_o, bent, value=-1)  # o (1 - tanh² m)
        to_o.addcmul_(to_o, o, value=-1)

    def cut_back(self) -> list[Views]:
        """The gradients of i, f and g together, of o, of both states, and of the cell state before; the gate f."""
        d, f = self._blocks(self.d), self._blocks(self.gates)[..., 1, :]
        return steps(d[..., :3, :], d[..., 3, :], self.ds[:, 1:], self.dm[:, 1:], self.dm[:, :-1], f)

    def differentiate(self, i: int, views: Views) -> None:
        """dm += ds o (1 - tanh² m); di, df and dg of dm, do of ds; m_{t-1} gets dm f."""
        d_ifg, d_o, ds, dm, dm_before, f = views
        slope = self._blocks(self.slope[:, i])
        dm.addcmul_(ds, self.to_m[:, i])
        torch.mul(slope[..., :3, :], dm[..., None, :], out=d_ifg)
        torch.mul(slope[..., 3, :], ds, out=d_o)
        dm_before.addcmul_(dm, f)


class GruLayer(Layer):
    """s_t = (1 - z) n + z s_{t-1}, n = tanh(x + r u).

    The blocks are n, r, z, u: the input is added to the first three and the state to the last three.
    """

    blocks, state, inputs = 4, 1, 3

    def gather(self, b_W: Tensor, b_U: Tensor) -> Tensor:
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
        """Nothing of the input is in u."""
        super().add_bias(at)
        self.gates[:, at, :, 3 * self.D :] = self.bias[..., 3 * self.D :]

    def cut(self) -> list[Views]:
        """r and z together, each block, the state before, and room for the state."""
        r_z = self.gates[..., self.D : 3 * self.D]
        return steps(r_z, *self._blocks(self.gates).unbind(-2), self.s[:, :-1], self.s[:, 1:])

    def activate(self, views: Views) -> None:
        """n = tanh(x + r u), s_t = n + z (s_{t-1} - n)."""
        r_z, n, r, z, u, before, s = views
        r_z.sigmoid_()
        n.addcmul_(r, u).tanh_()
        torch.lerp(n, before, z, out=s)

    def slopes(self, known: Views) -> None:
        """How much ds changes each block; all of them are multiples of ds."""
        n, r, z, u, before, _ = known
        to_n, to_r, to_z, to_u = self.slopes_of
        free = 1 - z
        torch.mul(n, n, out=to_n)
        torch.addcmul(free, free, to_n, value=-1, out=to_n)  # (1 - z) (1 - n²)
        torch.mul(to_n, r, out=to_u)
        torch.mul(to_u, u, out=to_r)
        to_r.addcmul_(to_r, r, value=-1)
        torch.sub(before, n, out=to_z).mul_(free.mul_(z))

    def cut_back(self) -> list[Views]:
        """The gradients of the blocks, of the state, and of the state before; the gate z."""
        z = self._blocks(self.gates)[..., 2, :]
        return steps(self._blocks(self.d), self.ds[:, 1:], self.ds[:, :-1], z)

    def differentiate(self, i: int, views: Views) -> None:
        """All blocks at once; what ds gives to s_{t-1} directly is ds z."""
        d, ds, ds_before, z = views
        torch.mul(self._blocks(self.slope[:, i]), ds[..., None, :], out=d)
        ds_before.addcmul_(ds, z)


LAYERS: dict[str, type[Layer]] = {"rnn": RnnLayer, "lstm": LstmLayer, "gru": GruLayer}
