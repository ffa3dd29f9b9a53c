"""Recurrent translators: an encoder, a decoder with or without attention, and the output.

The loops of `step` are the definition, one token at a time, and what decoding runs. Where gradients are wanted and the
cell and the score declare a fast version, all steps are one operation (`heedful.fused.unrolled`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.attention import FusedScore, Score, attend, build_score, until
from heedful.config import CELLS as CELL_NAMES
from heedful.config import FixedConfig, ImageConfig, RecurrentConfig, Registry, RnnConfig
from heedful.errors import ConfigError, ShapeError
from heedful.fused.triton.additive import additive_attend, unfit
from heedful.fused.triton.policy import usable
from heedful.fused.triton.recurrent_attention import attend_step, attendable
from heedful.fused.triton.recurrent_cells import gru_cell, lstm_cell, steppable
from heedful.fused.unrolled import (
    DecoderOutput,
    DecoderSpec,
    Tensors,
    reverse_sentences,
    unrolled_decoder,
    unrolled_encoder,
)
from heedful.models.image import RegionEncoder
from heedful.models.layers import Dropout, Linear, embedding
from heedful.models.protocol import Memory, NeedWeights, Reread, Seq2Seq, Step
from heedful.models.slots import RecurrentSlots

CellState = tuple[Tensor, ...]  # (s,), or (s, m) for the LSTM with its cell state m; each (B, D)


def by_kernels(x: Tensor) -> bool:
    """Whether kernels compute a step of decoding on this tensor; on the CPU no Triton module is asked."""
    return x.is_cuda and steppable(x)


def rnn(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """s_t = tanh(x + u).  x (B, D), u (B, D) -> s (B, D)."""
    return (torch.tanh(x + u),)


def lstm(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """m_t = f m_{t-1} + i g, s_t = o tanh(m_t).  x (B, 4D), u (B, 4D), m (B, D) -> s, m (B, D).

    Input, forget and output gate i, f, o = σ(x + u), candidate g = tanh(x + u); in the order i, f, g, o.
    """
    i, f, g, o = (x + u).chunk(4, dim=-1)
    m = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(m), m


def gru(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """s_t = (1 - z) n + z s_{t-1}.  x (B, 3D), u (B, 3D), s (B, D) -> s (B, D).

    Reset and update gate r, z = σ(x + u), candidate n = tanh(x + r u); in the order r, z, n.
    """
    D = state[0].shape[-1]
    # Split, not sliced: the gradient of a slice is written into zeros of the whole.
    x_gates, x_n = torch.split(x, [2 * D, D], dim=-1)
    u_gates, u_n = torch.split(u, [2 * D, D], dim=-1)
    r, z = torch.sigmoid(x_gates + u_gates).chunk(2, dim=-1)
    n = torch.tanh(torch.addcmul(x_n, r, u_n))
    return (torch.lerp(n, state[0], z),)


def ssru(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """c_t = f c_{t-1} + (1 - f) g, s_t = relu(c_t); there is no u.  x (B, 2D), c (B, D) -> s, c (B, D).

    Forget gate f = σ(x), candidate g = x; in the order f, g.
    """
    f, g = x.chunk(2, dim=-1)
    c = torch.lerp(g, state[1], torch.sigmoid(f))
    return torch.relu(c), c


Function = Callable[[Tensor, Tensor, CellState], CellState]


class CellKind(NamedTuple):
    """A cell: its function, the number of gates in x and u, and the number of tensors in its state.

    Without more, it trains and decodes by its function. A fast version is declared: `module` is PyTorch's module of the
    same cell, which `heedful.fused.unrolled` has, too, by the cell's name; `kernel` is the function on a GPU without a
    gradient.

    A cell whose recurrence has no matrix U has `output`, which makes s_t from c_t, the second tensor of its state;
    its u is s_{t-1} itself.
    """

    function: Function
    gates: int
    states: int = 1
    module: type[nn.RNN] | type[nn.LSTM] | type[nn.GRU] | None = None
    kernel: Function | None = None
    output: Callable[[Tensor], Tensor] | None = None

    def best(self, *tensors: Tensor) -> Function:
        """Return the function for these tensors: the kernel where kernels are usable, without gradients."""
        if self.kernel is None or torch.is_grad_enabled() or not by_kernels(tensors[0]):
            return self.function
        return self.kernel if all(tensor.dtype == tensors[0].dtype for tensor in tensors) else self.function


# To add one, see CONTRIBUTING.md, "Add a cell".
CELLS: Registry[CellKind] = Registry(
    CELL_NAMES,
    {
        "rnn": CellKind(rnn, 1, 1, nn.RNN),
        "lstm": CellKind(lstm, 4, 2, nn.LSTM, lstm_cell),
        "gru": CellKind(gru, 3, 1, nn.GRU, gru_cell),
        "ssru": CellKind(ssru, 2, 2, output=torch.relu),
    },
)


@torch.no_grad()
def initialise(U: Tensor, b: Tensor, D: int, forget: bool) -> None:
    """Make each gate's recurrent weights orthogonal, so that gradients keep their norm; open an LSTM's forget gate."""
    for gate in torch.split(U, D):
        nn.init.orthogonal_(gate)
    b.zero_()
    if forget:
        b[D : 2 * D] = 1.0


CellStates = tuple[CellState, ...]  # of the decoder's layers, bottom first
Attended = tuple[Tensor, CellStates, Tensor | None]  # [s_t; c_t] (B, n, …), the last states, weights


@dataclass(frozen=True)
class RecurrentState:
    """The states of the decoder's layers, bottom first, and the attentional state with input feeding."""

    cells: CellStates
    feed: Tensor | None = None

    @property
    def top(self) -> Tensor:
        """s_t of the uppermost layer, (B, D): the query."""
        return self.cells[-1][0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors of the state, in order; each (R, D)."""
        cells = tuple(tensor for cell in self.cells for tensor in cell)
        return cells if self.feed is None else (*cells, self.feed)

    def select(self, rows: Tensor) -> RecurrentState:
        """Return the state of some sentences, in the order of `rows`."""
        cells = tuple(tuple(tensor[rows] for tensor in cell) for cell in self.cells)
        return RecurrentState(cells, None if self.feed is None else self.feed[rows])

    def join(self, other: RecurrentState) -> RecurrentState:
        """Return the state of these sentences and of others."""
        return self._with(other, lambda ours, theirs: torch.cat([ours, theirs]))

    def put(self, rows: Tensor, other: RecurrentState) -> RecurrentState:
        """Return the state with others in the places of some sentences."""
        return self._with(other, lambda ours, theirs: ours.index_copy(0, rows, theirs))

    def _with(self, other: RecurrentState, both: Callable[[Tensor, Tensor], Tensor]) -> RecurrentState:
        pairs = zip(self.cells, other.cells, strict=True)
        cells = tuple(tuple(both(*pair) for pair in zip(one, two, strict=True)) for one, two in pairs)
        feed = None if self.feed is None or other.feed is None else both(self.feed, other.feed)
        return RecurrentState(cells, feed)


class CellWeights(nn.Module):
    """The encoder's weights of a cell that PyTorch has no module for, shaped and named as in `nn.GRU`."""

    def __init__(self, kind: CellKind, inputs: int, width: int, layers: int, directions: int) -> None:
        super().__init__()
        self._all_weights: list[list[str]] = []
        gates = kind.gates
        for layer in range(layers):
            sizes = {"weight_ih": (inputs,), "weight_hh": (width,), "bias_ih": (), "bias_hh": ()}
            if kind.output is not None:
                sizes = {"weight_ih": (inputs,), "bias_ih": ()}
            for side in ("", "_reverse")[:directions]:
                self._all_weights.append([f"{name}_l{layer}{side}" for name in sizes])
                for name, size in zip(self._all_weights[-1], sizes.values(), strict=True):
                    weight = torch.empty(gates * width, *size).uniform_(-(width**-0.5), width**-0.5)
                    self.register_parameter(name, nn.Parameter(weight))
            inputs = width * directions


def plain_encoder(
    kind: CellKind, x: Tensor, weights: tuple[Tensor, ...], lengths: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Compute what `unrolled_encoder` computes by the cell's function, one step after the other."""
    inside = (torch.arange(x.shape[1], device=x.device)[:, None] < lengths)[..., None]  # (S, B, 1)
    outputs, ends = [], []
    for direction, *own in zip(x, *weights, strict=True):
        W, *U = own[: len(own) // 2]
        b_W, *b_U = own[len(own) // 2 :]
        inputs = F.linear(direction, W, b_W)
        state: CellState = (inputs.new_zeros(inputs.shape[1], W.shape[0] // kind.gates),) * kind.states
        s = []
        for t, projected in enumerate(inputs):
            u = F.linear(state[0], U[0], b_U[0]) if U else state[0]
            after = kind.function(projected, u, state)
            state = tuple(torch.where(inside[t], new, old) for new, old in zip(after, state, strict=True))
            s.append(state[0])
        outputs.append(torch.stack(s))
        ends.append(state)
    return torch.stack(outputs), tuple(torch.stack(sides) for sides in zip(*ends, strict=True))


class Encoder(nn.Module):
    """Any number of layers, one or both directions; the states of both directions are concatenated."""

    def __init__(self, config: RecurrentConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, config.embedding)
        self.dropout = Dropout(config.dropout)
        self.kind, E, directions = CELLS[config.cell], config.per_direction, config.directions
        self.rnn: CellWeights | nn.RNNBase
        if self.kind.module is None:
            self.rnn = CellWeights(self.kind, config.embedding, E, config.layers, directions)
        else:
            both, dropout = config.bidirectional, config.dropout if config.layers > 1 else 0.0
            self.rnn = self.kind.module(
                config.embedding, E, config.layers, batch_first=True, bidirectional=both, dropout=dropout
            )
        for names in self.rnn._all_weights if self.kind.output is None else ():
            initialise(getattr(self.rnn, names[1]), getattr(self.rnn, names[3]), E, config.cell == "lstm")
        self.between = Dropout(config.dropout)
        self.cell, self.layers, self.directions = config.cell, config.layers, config.directions

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Encode sentences.  x (B, S), keep (B, S) -> h (B, S, E), and h(T) of each layer (B, E).

        For the LSTM the cell states follow the states, layer by layer.
        """
        e = self.dropout(self.embedding(x)).masked_fill(~keep[..., None], 0)  # whatever the padding's vector is
        lengths = keep.sum(1).clamp(min=1)
        packs = self.kind.module is not None and not torch.is_grad_enabled()
        h, last = (self._packed if packs else self._unrolled)(e, lengths)
        return self.dropout(h), last

    def _packed(self, e: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Encode with PyTorch's module: packing keeps the padding out of the direction from right to left."""
        packed = pack_padded_sequence(e, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.rnn(packed)
        h, _ = pad_packed_sequence(states, batch_first=True, total_length=e.shape[1])
        tensors = last if isinstance(last, tuple) else (last,)
        return h, tuple(side for tensor in tensors for side in self._by_layer(tensor))

    def _unrolled(self, e: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same with the module's weights and `unrolled_encoder`, whose backward pass is several times faster.

        A cell that PyTorch has no module for takes its steps by `plain_encoder`.
        """
        padding = (torch.arange(e.shape[1], device=e.device)[:, None] >= lengths)[..., None]
        h, ends = e.transpose(0, 1), []
        for layer in range(self.layers):
            names = self.rnn._all_weights[layer * self.directions :][: self.directions]
            weights = tuple(torch.stack([getattr(self.rnn, n[i]) for n in names]) for i in range(len(names[0])))
            if layer:
                h = self.between(h)
            sides = torch.stack([h, reverse_sentences(h, lengths)][: self.directions])
            if self.kind.module is None:
                s, last = plain_encoder(self.kind, sides, weights, lengths)
            else:
                s, last = unrolled_encoder(self.cell, sides, weights, lengths)
            ends.append([side.transpose(0, 1).flatten(1) for side in last])
            h = torch.cat([s[0], reverse_sentences(s[1], lengths)], dim=-1) if self.directions == 2 else s[0]
            h = h.masked_fill(padding, 0)
        return h.transpose(0, 1), tuple(side for sides in zip(*ends, strict=True) for side in sides)

    def _by_layer(self, last: Tensor) -> list[Tensor]:
        """(L·directions, B, W) -> L times (B, directions·W)."""
        sides = last.view(self.layers, self.directions, *last.shape[1:])
        return [layer.transpose(0, 1).flatten(1) for layer in sides]


class Bridge(nn.Module):
    """From the encoder's last states h(T) to the decoder's first: s_0 = h(T), or s_0 = tanh(W h(T) + b)."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.output, self.layers = CELLS[config.cell].output, config.layers
        states = 1 if self.output is not None else CELLS[config.cell].states
        E, D = config.memory_width, config.width
        if config.bridge == "copy" and E != D:
            raise ConfigError(
                f"model.bridge=copy needs an encoder as wide as the decoder, but their widths are {E} and {D}; "
                "set model.encoder_width=0 or model.bridge=learn"
            )
        count = self.layers * states if config.bridge == "learn" else 0
        self.W = nn.ModuleList(nn.Linear(E, D) for _ in range(count))

    def forward(self, last: tuple[Tensor, ...]) -> tuple[CellState, ...]:
        """Return the first state of each layer.  `last`: the states, then for the LSTM the cell states, each (B, E)."""
        if self.output is not None:
            cells = last[self.layers :]
            cells = tuple(W(side) for W, side in zip(self.W, cells, strict=True)) if len(self.W) else cells
            return tuple((self.output(c), c) for c in cells)
        if len(self.W):
            # The LSTM's cell state is not bounded by a tanh, so neither is what it starts from.
            mapped = [W(side) for W, side in zip(self.W, last, strict=True)]
            last = tuple(torch.tanh(side) if i < self.layers else side for i, side in enumerate(mapped))
        return tuple(last[layer :: self.layers] for layer in range(self.layers))


class Cell(nn.Module):
    """One layer of a decoder: the weights U of the state, and W of each part of the input.

    The input is a concatenation, [c_t; y_{t-1}] say; its parts keep weights of their own, because
    W[c; y] = W_c c + W_y y, and parts that are known for all steps are projected before the loop.
    """

    def __init__(self, kind: str, parts: tuple[int, ...], D: int) -> None:
        super().__init__()
        self.kind = CELLS[kind]
        self.W = nn.ModuleList(Linear(part, self.kind.gates * D, bias=i == 0) for i, part in enumerate(parts))
        self.U = Linear(D, self.kind.gates * D) if self.kind.output is None else None
        if self.U is not None:
            initialise(self.U.weight, self.U.bias, D, forget=kind == "lstm")

    def project(self, part: int, x: Tensor) -> Tensor:
        """Return one part of the input's share.  x (…, part) -> (…, gates·D)."""
        return self.W[part](x)  # type: ignore[no-any-return]

    def weights(self, part: int) -> Tensor:
        """Return W of one part of the input: (gates·D, part)."""
        return self.W[part].weight  # type: ignore[return-value]

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the first part of the input and of the state, and their biases, by name."""
        W, U = self.W[0], self.U
        assert U is not None
        return {"W": W.weight, "b_W": W.bias, "U": U.weight, "b_U": U.bias}  # type: ignore[dict-item]

    def forward(self, x: Tensor, state: CellState) -> CellState:
        """Go one step.  x (B, gates·D), projected; state before -> state after."""
        u = state[0] if self.U is None else self.U(state[0])
        return self.kind.best(x, u, *state)(x, u, state)


class Stack(nn.Module):
    """The decoder's layers; the input of the lowest comes projected, that of the others is the state below."""

    def __init__(self, config: RecurrentConfig, parts: tuple[int, ...]) -> None:
        super().__init__()
        below = [parts, *[(config.width,)] * (config.layers - 1)]
        self.cells = nn.ModuleList(Cell(config.cell, inputs, config.width) for inputs in below)
        self.dropout = Dropout(config.dropout)
        self.cell = config.cell

    def project(self, part: int, x: Tensor) -> Tensor:
        """Return the share of one part of the lowest layer's input.  x (…, part) -> (…, gates·D)."""
        return self.cells[0].project(part, x)  # type: ignore[operator, no-any-return]

    def forward(self, x: Tensor, states: tuple[CellState, ...]) -> tuple[CellState, ...]:
        """Go one step through all layers.  x (B, gates·D), projected."""
        after: list[CellState] = []
        for cell, state in zip(self.cells, states, strict=True):
            if after:
                x = cell.project(0, self.dropout(after[-1][0]))  # type: ignore[operator]
            after.append(cell(x, state))
        return tuple(after)

    def weights(self, part: int) -> Tensor:
        """Return the lowest layer's weights of one part of its input: (gates·D, part)."""
        return self.cells[0].weights(part)  # type: ignore[operator, no-any-return]

    def tensors(self, states: tuple[CellState, ...], T: int) -> Tensors:
        """Return weights and first states as `unrolled_decoder` takes them, with dropout between the layers."""
        tensors = Tensors()
        for number, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            own: Tensors = cell.tensors() | dict(zip("sm", state, strict=False))  # type: ignore[operator]
            if number and self.training and self.dropout.p:
                own["drop"] = self.dropout(torch.ones(T, *state[0].shape, device=state[0].device))
            tensors |= {f"{name}{number}": tensor for name, tensor in own.items()}
        return tensors


class Output(nn.Module):
    """From the decoder's state to tokens: W_o[s_t; c_t] + b_o, or, tied, E·tanh(W[s_t; c_t; y_{t-1}])."""

    def __init__(self, width: int, target: nn.Embedding, config: RecurrentConfig) -> None:
        super().__init__()
        self.target = [target]  # in a list: the weights belong to the decoder, not to both
        self.dropout = Dropout(config.dropout)
        self.tied = config.tied
        if self.tied:
            self.W = Linear(width + target.embedding_dim, target.embedding_dim, bias=False)
        else:
            self.W = Linear(width, target.num_embeddings)

    def hidden(self, features: Tensor, e: Tensor) -> Tensor:
        """Return what `logits` takes.  features, [s_t; c_t] say, (B, n, width), e (B, n, embedding) -> (B, n, …)."""
        if self.tied:
            features = torch.tanh(self.W(torch.cat([features, e], dim=-1)))
        return self.dropout(features)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens.  hidden (…, width) -> (…, V)."""
        return F.linear(hidden, self.target[0].weight) if self.tied else self.W(hidden)


class Recurrent(nn.Module):
    """The common part of a recurrent translator; its kinds add `step`."""

    output: Output
    stack: Stack
    score: Score | None

    def __init__(self, config: RecurrentConfig, source: int | ImageConfig, target: int) -> None:
        super().__init__()
        self.encoder: Encoder | RegionEncoder
        if isinstance(source, ImageConfig):
            self.encoder = RegionEncoder(source, config, CELLS[config.cell].states)
        else:
            self.encoder = Encoder(config, source)
        self.bridge = Bridge(config)
        self.embedding = embedding(target, config.embedding)
        self.dropout = Dropout(config.dropout)

    @property
    def source_words(self) -> nn.Embedding | None:
        """The embedding of source tokens; None in a model of images."""
        return self.encoder.embedding if isinstance(self.encoder, Encoder) else None

    def encode(self, x: Tensor, keep: Tensor | None, need_weights: NeedWeights | None = None) -> Memory:
        """Encode the source, and compute the keys.  x (B, S), keep (B, S) -> Memory."""
        h, last = self.encoder(x, keep)
        keep = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if keep is None else keep
        return Memory(h, keep, () if self.score is None else (self.score.keys(h),), last)

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        """Return s_0, made from h(T). A recurrent state needs no capacity."""
        return RecurrentState(self.bridge(memory.last))

    @abstractmethod
    def step(self, y: Tensor, state: RecurrentState, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        """Decode n tokens.  y (R, n) -> hidden (R, n, …), the state after them, weights (R, 1, 1, n, S) if needed."""

    def reread(
        self,
        y: Tensor,
        lengths: Sequence[int],
        memory: Memory,
        need_weights: NeedWeights | None = None,
        need_hidden: bool = True,
    ) -> Reread:
        """Decode whole sentences with teacher forcing.  y (B, T) -> hidden (N, …), weights (B, 1, 1, T, S)."""
        hidden, _, weights = self.step(y, self.start(memory, y.shape[1]), memory, need_weights)
        real = until(torch.tensor(lengths, device=y.device), y.shape[1])
        return Reread(hidden[real] if need_hidden else None, weights)

    def slots(self, memory: Memory, K: int, capacity: int) -> RecurrentSlots:
        """Return a decoder over static shapes; a recurrent state needs no capacity."""
        return RecurrentSlots(cast(Seq2Seq, self), memory, K)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens.  hidden (…, width) -> (…, V)."""
        return self.output.logits(hidden)

    def bf16_weights(self) -> list[Tensor]:
        """Return no weights: recurrent models compute in fp32."""
        return []

    def norms(self, memory: Memory) -> Tensor | None:
        """Return ‖h_j‖, as a context is a weighted sum of h_j; None without attention.  (B, 1, 1, S)."""
        return memory.h.norm(dim=-1)[:, None, None] if memory.keys else None

    def query(self, s: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the context and weights of queries.  s (R, D) -> c (R, E), weights (R, S).

        K hypotheses of one sentence are K queries: (B·K, D) is (B, K, D).
        """
        h, keep, k, score = memory.h, memory.keep, memory.keys[0], self.score
        assert score is not None
        if not torch.is_grad_enabled() and s.dtype == h.dtype == k.dtype and by_kernels(s):
            fused = score.fused()
            if fused is not None and attendable(h.shape[1]):
                q = s if fused.W is None else F.linear(s, fused.W)
                return attend_step(q, k, h, keep, fused.v, fused.scale)
        scores = score(s.view(h.shape[0], -1, s.shape[-1]), k)
        if scores.shape != (expected := (h.shape[0], len(s) // h.shape[0], h.shape[1])):
            raise ShapeError(
                f"score {type(score).__name__} returned {tuple(scores.shape)}, expected (B, T, S) = {expected}"
            )
        c, weights = attend(scores, h, keep)
        return c.flatten(0, 1), weights.flatten(0, 1)

    @staticmethod
    def requested(weights: Tensor | None, need_weights: NeedWeights | None) -> Tensor | None:
        """Return the weights if they are needed; raise ConfigError for a layer other than the only one."""
        if need_weights is not None and need_weights.layer is not None:
            need_weights.layer_of(1)
        return weights if need_weights else None

    def embed(self, y: Tensor) -> Tensor:
        """Return the vectors of target tokens.  y (B, n) -> (B, n, embedding); they lie in memory by their steps."""
        return self.dropout(self.embedding(y.t())).transpose(0, 1)  # type: ignore[no-any-return]

    def unrolls(self, y: Tensor, memory: Memory) -> bool:
        """Whether all steps are one operation: there are several, gradients are wanted, cell and score declare it."""
        declared = CELLS[self.stack.cell].module is not None and (self.score is None or self.score.fused() is not None)
        return torch.is_grad_enabled() and y.shape[1] > 1 and y.shape[0] == memory.h.shape[0] and declared

    def unrolled(
        self, e: Tensor, state: RecurrentState, more: Tensors, query: str = "", memory: Memory | None = None
    ) -> DecoderOutput:
        """Take all steps of teacher forcing in one operation.  e (B, T, …); `more`, `query`: see `unrolled_decoder`."""
        tensors = {"x": e.transpose(0, 1), **self.stack.tensors(state.cells, e.shape[1]), **more}
        fused = None if self.score is None or memory is None else self.score.fused()
        if memory is not None:
            tensors |= {"keys": memory.keys[0], "values": memory.h, "keep": memory.keep}
        if fused is not None and fused.W is not None and fused.v is not None:
            tensors |= {"W_q": fused.W, "v": fused.v}
        scale = 1.0 if fused is None else fused.scale
        return unrolled_decoder(DecoderSpec(self.stack.cell, len(self.stack.cells), query, scale), tensors)


Mixed = tuple[Tensor, Tensor | None, RecurrentState, Tensor | None]  # [s_t; c_t], a_t, the state after, weights


class Fixed(Recurrent):
    """A fixed context: all that the decoder knows of the sentence is h(T).

    s_0 from h(T), s_t = RNN(s_{t-1}, y_{t-1}); or, with `context="every"`, s_t = RNN(s_{t-1}, [y_{t-1}; h(T)]).
    """

    def __init__(self, config: FixedConfig, source: int | ImageConfig, target: int) -> None:
        super().__init__(config, source, target)
        context = (config.memory_width,) if config.context == "every" else ()
        self.every = bool(context)
        self.layers, self.score = config.layers, None
        self.stack = Stack(config, (config.embedding, *context))
        self.output = Output(config.width + sum(context), self.embedding, config)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        """Decode n tokens.  y (R, n) -> hidden (R, n, …), the state after them; there are no weights."""
        e = self.embed(y)
        K = y.shape[0] // memory.h.shape[0]
        context = memory.last[self.layers - 1].repeat_interleave(K, 0)[:, None].expand(-1, y.shape[1], -1)
        run = self._unrolled if self.unrolls(y, memory) else self._step_by_step
        s, cells = run(e, state, context)
        features = torch.cat([s, context], dim=-1) if self.every else s
        return Step(self.output.hidden(features, e), RecurrentState(cells), None)

    def _step_by_step(self, e: Tensor, state: RecurrentState, context: Tensor) -> tuple[Tensor, CellStates]:
        inputs = self.stack.project(0, e)
        if self.every:
            inputs = inputs + self.stack.project(1, context)
        cells, tops = state.cells, []
        for x in inputs.unbind(1):
            cells = self.stack(x, cells)
            tops.append(cells[-1][0])
        return torch.stack(tops, dim=1), cells

    def _unrolled(self, e: Tensor, state: RecurrentState, context: Tensor) -> tuple[Tensor, CellStates]:
        more = {}
        if self.every:  # W_e e + W_c c = [W_e, W_c] [e; c]
            e = torch.cat([e, context], dim=-1)
            more = {"W0": torch.cat([self.stack.weights(0), self.stack.weights(1)], dim=1)}
        output = self.unrolled(e, state, more)
        return output.known, output.last


class Bahdanau(Recurrent):
    """Bahdanau's order: s_{t-1} queries, and c_t enters the cell.

    c_t from s_{t-1}; s_t = RNN(s_{t-1}, [c_t, y_{t-1}]); W_o[s_t; c_t] + b_o.
    """

    score: Score

    def __init__(self, config: RnnConfig, source: int | ImageConfig, target: int) -> None:
        super().__init__(config, source, target)
        D, E = config.width, config.memory_width
        self.score = build_score(config.score, D, E, config.score_width or D)
        self.stack = Stack(config, (config.embedding, E))
        self.output = Output(D + E, self.embedding, config)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        """Decode n tokens.  y (R, n) -> hidden (R, n, …), the state after them, weights (R, 1, 1, n, S) if needed."""
        e = self.embed(y)
        run = self._unrolled if self.unrolls(y, memory) else self._step_by_step
        features, cells, weights = run(e, state, memory)
        return Step(self.output.hidden(features, e), RecurrentState(cells), self.requested(weights, need_weights))

    def _step_by_step(self, e: Tensor, state: RecurrentState, memory: Memory) -> Attended:
        cells = state.cells
        features, weights = [], []
        for x in self.stack.project(0, e).unbind(1):
            c, alpha = self.query(cells[-1][0], memory)
            cells = self.stack(x + self.stack.project(1, c), cells)
            features.append(torch.cat([cells[-1][0], c], dim=-1))
            weights.append(alpha)
        return torch.stack(features, dim=1), cells, torch.stack(weights, dim=1)[:, None, None]

    def _unrolled(self, e: Tensor, state: RecurrentState, memory: Memory) -> Attended:
        output = self.unrolled(e, state, {"W_fed": self.stack.weights(1)}, "before", memory)
        return output.known, output.last, output.step_weights


class Luong(Recurrent):
    """Luong's order: the cell goes first, its new state queries, and both make the attentional state.

    s_t = RNN(s_{t-1}, [y_{t-1}; a_{t-1}]); c_t from s_t; a_t = tanh(W_a[s_t; c_t]); W_o a_t + b_o.

    Without input feeding the cell sees y_{t-1} alone. With tied embeddings the logits are as everywhere,
    E·tanh(W[s_t; c_t; y_{t-1}]).
    """

    score: Score

    def __init__(self, config: RnnConfig, source: int | ImageConfig, target: int) -> None:
        super().__init__(config, source, target)
        D, E = config.width, config.memory_width
        self.feed, self.tied = config.feed, config.tied
        self.score = build_score(config.score, D, E, config.score_width or D)
        self.stack = Stack(config, (config.embedding, D) if config.feed else (config.embedding,))
        self.mix = Linear(D + E, D) if config.feed or not config.tied else None
        self.output = Output(D + E if config.tied else D, self.embedding, config)

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        """Return s_0, made from h(T), and a_0 = 0 with input feeding."""
        state = super().start(memory, capacity)
        return RecurrentState(state.cells, torch.zeros_like(state.top) if self.feed else None)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        """Decode n tokens.  y (R, n) -> hidden (R, n, …), the state after them, weights (R, 1, 1, n, S) if needed."""
        e = self.embed(y)
        run = self._unrolled if self.unrolls(y, memory) else self._step_by_step
        features, mixed, after, weights = run(e, state, memory)
        return Step(self._hidden(features, mixed, e), after, self.requested(weights, need_weights))

    def _step_by_step(self, e: Tensor, state: RecurrentState, memory: Memory) -> Mixed:
        cells, fed = state.cells, state.feed
        features, mixed, weights = [], [], []
        for x in self.stack.project(0, e).unbind(1):
            cells = self.stack(x if fed is None else x + self.stack.project(1, fed), cells)
            s = cells[-1][0]
            c, alpha = self.query(s, memory)
            features.append(torch.cat([s, c], dim=-1))
            weights.append(alpha)
            if fed is not None and self.mix is not None:
                fed = torch.tanh(self.mix(features[-1]))
                mixed.append(fed)
        a = torch.stack(mixed, dim=1) if mixed else None
        step_weights = torch.stack(weights, dim=1)[:, None, None]
        return torch.stack(features, dim=1), a, RecurrentState(cells, fed), step_weights

    def _unrolled(self, e: Tensor, state: RecurrentState, memory: Memory) -> Mixed:
        fused = self.score.fused()
        if state.feed is None and fused is not None and self._all_queries_fit(fused, e, memory):
            return self._query_together(fused, e, state, memory)
        more = {}
        if state.feed is not None and self.mix is not None:
            more = {"W_fed": self.stack.weights(1), "a": state.feed, "W_a": self.mix.weight, "b_a": self.mix.bias}
        output = self.unrolled(e, state, more, "after", memory)
        if output.a is None:
            return output.known, None, RecurrentState(output.last), output.step_weights
        a = output.a
        return output.known, a.transpose(0, 1), RecurrentState(output.last, a[-1]), output.step_weights

    @staticmethod
    def _all_queries_fit(fused: FusedScore, e: Tensor, memory: Memory) -> bool:
        """Whether kernels can compute all queries in one call: those of the additive score."""
        return fused.v is not None and usable(e) and not unfit(e, memory.keys[0], fused.v)

    def _query_together(self, fused: FusedScore, e: Tensor, state: RecurrentState, memory: Memory) -> Mixed:
        """Compute all states, then all queries by one call of the kernels: no context is fed into the next step."""
        assert fused.W is not None
        assert fused.v is not None
        output = self.unrolled(e, state, {})
        s = output.s.transpose(0, 1)
        q = F.linear(s, fused.W)
        c, weights = additive_attend(q, memory.keys[0], fused.v, memory.h, memory.keep, "kernel")
        return torch.cat([s, c], dim=-1), None, RecurrentState(output.last), weights[:, None, None]

    def _hidden(self, features: Tensor, mixed: Tensor | None, e: Tensor) -> Tensor:
        """Return what `logits` takes; without input feeding the attentional states are computed here, for all steps."""
        if self.tied or self.mix is None:
            return self.output.hidden(features, e)
        return self.output.hidden(torch.tanh(self.mix(features)) if mixed is None else mixed, e)
