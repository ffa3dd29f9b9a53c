"""Building groups of layers from attention weights: all of them, or a summary for long texts.

Weights arrive as tiles, some rows of some heads at a time. Those of a short text are put together; of a long one only
the summary that `AttentionGroup` has is computed, in memory that grows with the length and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.errors import ConfigError, ModelError
from heedful.fused.triton.scaled_plain import pack, unpack
from heedful.trace import Text
from heedful.trace.model_attention import (
    DENSE,
    HELD,
    TOP,
    AttentionGroup,
    TopWeights,
    block_edges,
)
from heedful.trace.readout import Weights
from heedful.trace.trace import sink_candidates

TINY = 1e-30  # 0 · log TINY is 0
Tile = tuple[slice, Tensor]  # some rows, and their weights on the keys 0..s: (h, t, s)
Tiles = Callable[[Sequence[int] | None], Iterator[Tile]]  # the tiles of some heads; None: of all
Hold = tuple[int | None, int | None]  # layer and head, from 1; None: all


@dataclass
class GroupBuilder:
    """Builds the group of one kind, layer by layer; `dense` keeps all weights.

    `texts` are source and target; `hold` are the heads whose largest weights are held of a long text, by default the
    sharpest ones; `rows` are the target tokens whose weights are held.
    """

    kind: str
    texts: tuple[Text, Text]
    dense: bool
    hold: Sequence[Hold] = ()
    rows: Sequence[int] = ()
    generated: int | None = None
    modules: list[str] = field(default_factory=list)
    backends: list[str] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)
    summaries: list[_LayerSummary] = field(default_factory=list)
    top: dict[tuple[int, int], TopWeights] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of queries and of keys."""
        source, target = self.texts
        return len(target.tokens), len(source.tokens)

    def add(self, module: str, backend: str, heads: int, tiles: Tiles) -> None:
        """Add one layer."""
        T, S = self.sizes
        if self.dense:
            weights = np.zeros((heads, T, S), dtype=np.float32)
            for rows, tile in tiles(None):
                weights[:, rows, : tile.shape[-1]] = tile.float().cpu().numpy()
            self.weights.append(weights)
        else:
            self.summaries.append(_summarised(tiles, heads, (T, S), self.texts[0], self.kind == "cross", self.rows))
            self._hold(heads, tiles)
        self.modules.append(module)
        self.backends.append(backend)

    def _hold(self, heads: int, tiles: Tiles) -> None:
        """Find the largest weights of the last layer's heads that are held."""
        layer, sharpness = len(self.summaries), [one.sharpness for one in self.summaries]
        if self.hold:
            every = range(1, heads + 1)
            wanted = {(layer, h) for m, n in self.hold for h in every if m in (None, layer) and n in (None, h)}
        else:
            of = {at: float(sharpness[at[0] - 1][at[1] - 1]) for at in self.top}
            of |= {(layer, h + 1): float(value) for h, value in enumerate(sharpness[-1])}
            wanted = set(sorted(of, key=lambda at: (-of[at], at))[:HELD])
            self.top = {at: one for at, one in self.top.items() if at in wanted}
        if own := sorted(h for m, h in wanted if m == layer):
            largest = _largest(tiles, [h - 1 for h in own], self.sizes[0])
            self.top |= {(layer, h): one for h, one in zip(own, largest, strict=True)}

    def build(self) -> AttentionGroup:
        """Return the group of all layers."""
        backend = ", ".join(dict.fromkeys(self.backends))
        if len({len(one) for one in self.weights} | {len(one.sharpness) for one in self.summaries}) > 1:
            raise ModelError("layers with different numbers of heads cannot be read")
        if self.dense:
            weights = np.stack(self.weights)
            return AttentionGroup.from_weights(self.kind, self.texts, self.modules, backend, weights, self.generated)
        parts = self.summaries
        group = AttentionGroup(
            *(self.kind, *self.texts, tuple(self.modules), backend),
            np.stack([one.received for one in parts]),
            np.stack([one.entropy for one in parts]),
            np.stack([one.distance for one in parts]),
            np.stack([one.sharpness for one in parts]),
            np.stack([one.blocks for one in parts]),
            rows={t: np.stack([one.rows[i] for one in parts]) for i, t in enumerate(self.rows)},
            generated=self.generated,
            causal=all(one.causal for one in parts),
        )
        order = {at: i for i, at in enumerate(group.rank())}
        return replace(group, top={at: self.top[at] for at in sorted(self.top, key=order.__getitem__)})


class _LayerSummary(NamedTuple):
    """The summary of one layer: as in `AttentionGroup`, without the axis of layers; `rows` (rows, H, S)."""

    causal: bool
    received: Weights
    entropy: Weights
    distance: Weights
    sharpness: Weights
    blocks: Weights
    rows: Weights


@torch.no_grad()
def _summarised(
    tiles: Tiles, heads: int, sizes: tuple[int, int], source: Text, cross: bool, rows: Sequence[int]
) -> _LayerSummary:
    """Summarise the weights of one layer in one pass."""
    T, S = sizes
    totals: _Totals | None = None
    for at, tile in tiles(None):
        totals = totals or _Totals(heads, T, S, source, cross, rows, tile.device)
        totals.add(at, tile)
    if totals is None:
        raise ConfigError("a text without tokens has no attention")
    return totals.summary()


class _Totals:
    """Sums over the tiles of one layer."""

    def __init__(
        self, H: int, T: int, S: int, source: Text, cross: bool, rows: Sequence[int], device: torch.device
    ) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, device=device)

        edges, row_edges = block_edges(S), block_edges(T)
        self.T, self.S, self.cross, self.device = T, S, cross, device
        self.received, self.entropy = zeros(H, S), zeros(H, T)
        self.distance, self.weight, self.largest = zeros(H), zeros(H), zeros(H)
        self.blocks = zeros(H, len(row_edges), len(edges))
        block_of = np.searchsorted(edges, np.arange(S), side="right") - 1
        self.row_block = torch.from_numpy(np.searchsorted(row_edges, np.arange(T), side="right") - 1).to(device)
        self.members = torch.from_numpy(np.eye(len(edges), dtype=np.float32)[block_of]).to(device)
        self.counts = torch.from_numpy(np.diff([*row_edges, T])).to(device)
        self.words = torch.from_numpy(~sink_candidates(source)).to(device)
        self.keys = torch.arange(S, device=device)
        self.held, self.held_rows = list(rows), zeros(len(rows), H, S)
        self.causal = not cross and T == S and T > 1
        self.above = torch.zeros((), dtype=torch.bool, device=device)  # whether there is weight on a later token

    def add(self, rows: slice, tile: Tensor) -> None:
        p = tile.float()
        s, queries = p.shape[-1], torch.arange(rows.start, rows.stop, device=self.device)
        for i, token in enumerate(self.held):
            if rows.start <= token < rows.stop:
                self.held_rows[i, :, :s] = p[:, token - rows.start]
        if self.causal:
            self.above |= p[..., rows.start + 1 :].triu().any()
            if not rows.start:  # mostly the first rows tell; reading it for all would make a GPU wait
                self.causal = not bool(self.above)
        self.received[:, :s] += p.sum(1)
        self.entropy[:, rows] = -p.clamp(min=TINY).log_().mul_(p).sum(-1)
        t, j = (queries / self.T, self.keys[:s] / self.S) if self.cross else (queries.float(), self.keys[:s].float())
        self.distance += (p * (t[:, None] - j).abs()).sum((1, 2))
        columns = p @ self.members[:s]
        self.weight += columns.sum((1, 2))
        self.blocks.index_add_(1, self.row_block[rows], columns)
        self.largest += (p * self.words[:s]).amax(-1).sum(-1)

    def summary(self) -> _LayerSummary:
        means = self.blocks / self.counts[:, None]
        distance, sharpness = self.distance / self.weight.clamp(min=1e-12), self.largest / self.T
        arrays = (self.received, self.entropy, distance, sharpness, means, self.held_rows)
        return _LayerSummary(self.causal and not bool(self.above), *(x.cpu().numpy() for x in arrays))


@torch.no_grad()
def _largest(tiles: Tiles, heads: Sequence[int], T: int) -> list[TopWeights]:
    """Return the largest weights of every row of some heads."""
    positions = np.full((len(heads), T, TOP), -1, dtype=np.int32)
    weights = np.zeros((len(heads), T, TOP), dtype=np.float32)
    for rows, tile in tiles(heads):
        count = min(TOP, tile.shape[-1])
        packed = pack(tile.float(), torch.arange(tile.shape[-1], device=tile.device))
        at, values = unpack(packed.topk(count, -1).values)
        positions[:, rows, :count] = at.masked_fill(values <= 0, -1).cpu().numpy()
        weights[:, rows, :count] = values.cpu().numpy()
    return [TopWeights(p, w) for p, w in zip(positions, weights, strict=True)]


def is_dense(layers: int, heads: int, T: int, S: int) -> bool:
    """Whether all weights of a group are held."""
    return layers * heads * T * S <= DENSE
