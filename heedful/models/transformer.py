"""The Transformer: attention between the two sentences, and inside each of them, in place of recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import TransformerConfig
from heedful.errors import ConfigError, ShapeError
from heedful.kernels import Chance, relu_dropout
from heedful.models.cache import Cache
from heedful.models.dropout import dropout
from heedful.models.encoder import embedding
from heedful.models.heads import MultiHead, Sight
from heedful.models.protocol import Look, Memory, Step
from heedful.models.stream import Residual, Stream, add_and_norm
from heedful.models.swift import Swift
from heedful.models.swift_encoder import keys_of, read

__all__ = ["DecoderLayer", "EncoderLayer", "FeedForward", "MultiHead", "Residual", "Transformer", "positions"]

PLACES = 256  # positions that are worked out at first
FEW = 64  # rows up to which a product is small
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def positions(n: int, D: int, like: Tensor | None = None) -> Tensor:
    """Return p_t = [sin(t ω_1), …, sin(t ω_{D/2}), cos(t ω_1), …], ω_i = 10000^(-2(i-1)/D), for t = 0..n-1.  (n, D)."""
    t = torch.arange(n, dtype=torch.float64)[:, None]
    angles = t * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return table.float() if like is None else table.to(like)


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2, at every position alike."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.f, self.dropout = ACTIVATIONS[config.activation], config.inner_dropout
        self.W_1 = nn.Linear(config.width, config.inner)
        self.W_2 = nn.Linear(config.inner, config.width)

    def forward(self, x: Tensor, chance: Chance | None = None) -> Tensor:
        """x (B, n, D) -> (B, n, D). With a chance, by a kernel that has ReLU only."""
        if chance is not None and self.f is F.relu:
            x = F.linear(x, self.W_1.weight)
            return self.W_2(relu_dropout(x, self.W_1.bias, self.dropout, chance))  # type: ignore[no-any-return]
        x = self.f(self.W_1(x))
        return self.W_2(dropout(x, self.dropout) if self.training else x)  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inside, self.around_inside = MultiHead(config), Residual(config)
        self.forward_layer, self.around_forward = FeedForward(config), Residual(config)

    def forward(self, h: Stream, sight: Sight, look: bool) -> tuple[Stream, Tensor | None]:
        """h (B, S, D) -> (B, S, D), weights (B, H, S, S) if asked for."""
        h, n = self.around_inside.before(h)
        q, k, v = self.inside.project(n)
        g, weights = self.inside.attend(q, k, v, sight, look)
        h = self.around_inside.after(h, g)
        h, n = self.around_forward.before(h)
        return self.around_forward.after(h, self.forward_layer(n, h.chance)), weights


class DecoderLayer(nn.Module):
    """Self-attention to the words before, attention to the source, then the feed-forward layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inside, self.around_inside = MultiHead(config), Residual(config)
        self.across, self.around_across = MultiHead(config), Residual(config)
        self.forward_layer, self.around_forward = FeedForward(config), Residual(config)

    def forward(
        self, s: Stream, cache: Cache, layer: int, memory: Memory, sights: tuple[Sight, Sight], look: Look | None
    ) -> tuple[Stream, Tensor | None]:
        """s (R, n, D) -> (R, n, D), weights (R, H, n, S), or inside (R, H, n, t), if asked for."""
        s, n = self.around_inside.before(s)
        q, k, v = self.inside.project(n)
        k, v = cache.extend(layer, k, v)
        g, inside = self.inside.attend(q, k, v, sights[0], look is not None and look.inside)
        s = self.around_inside.after(s, g)

        k, v = memory.keys[2 * layer : 2 * layer + 2]
        s, n = self.around_across.before(s)
        R, B = n.shape[0], k.shape[0]
        # K hypotheses of one sentence are K·n queries: (B·K, n, D) is (B, K·n, D).
        q = self.across.query(n.view(B, -1, n.shape[-1]))
        g, across = self.across.attend(q, k, v, sights[1], look is not None and not look.inside)
        s = self.around_across.after(s, g.view_as(n))
        if across is not None and R > B:
            across = across.view(B, across.shape[1], -1, n.shape[1], across.shape[3]).transpose(1, 2).flatten(0, 1)

        s, n = self.around_forward.before(s)
        s = self.around_forward.after(s, self.forward_layer(n, s.chance))
        return s, across if inside is None else inside


class Transformer(nn.Module):
    """Encoder: h = layers(E x √D + p). Decoder: s = layers(E y √D + p), looking at h. Words: E s, or W_o s (+ b)."""

    def __init__(self, config: TransformerConfig, source: int, target: int) -> None:
        super().__init__()
        D = config.width
        self.scale, self.dropout, self.pre = math.sqrt(D) if config.scale else 1.0, config.dropout, config.norm == "pre"
        if config.tied == "all" and source != target:
            raise ConfigError(
                f"model.tied=all needs one vocabulary for both languages (text.joint=true), but there are "
                f"{source} source and {target} target tokens; or set model.tied=target"
            )
        self.channels = config.channels
        self.embedding = embedding(target, D)
        self.source = embedding(source, D) if config.tied != "all" else None
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.depth))
        self.LN_h = nn.LayerNorm(D) if self.pre else nn.Identity()
        self.LN_s = nn.LayerNorm(D) if self.pre else nn.Identity()
        self.W_o = nn.Parameter(embedding(target, D).weight.data) if config.tied == "none" else None
        self.b_o = nn.Parameter(torch.zeros(target)) if config.bias else None
        self.table: Tensor | None = None  # of positions; not a buffer, which processes would have to agree on
        self.earlier: list[Tensor] = []  # all such tables: a recorded step goes on reading its own
        self.laid_out: Tensor | None  # what writes words once more, for small products
        self.register_buffer("laid_out", None, persistent=False)
        self.laid_out_from = (0, 0)
        for module in [*self.encoder.modules(), *self.decoder.modules()]:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def places(self, n: int) -> Tensor:
        """Return the positions of n words or more, from a table that is made where the words are.  (≥ n, D)."""
        table, W = self.table, self.embedding.weight
        if table is None or len(table) < n or table.device != W.device or table.dtype != W.dtype:
            size = max(PLACES, 1 << (n - 1).bit_length())
            with torch.inference_mode(False):  # training will use it, too
                self.table = table = positions(size, W.shape[1], W.data)
            self.earlier.append(table)
        return table

    def embed(self, words: nn.Embedding, x: Tensor, p: Tensor) -> Tensor:
        """Return E x √D + p.  x (B, n), p (n, D) -> (B, n, D)."""
        e = torch.add(p, F.embedding(x, words.weight), alpha=self.scale)
        return dropout(e, self.dropout) if self.training else e

    @property
    def source_words(self) -> nn.Embedding:
        """The vectors of source words."""
        return self.source or self.embedding

    def encode(self, x: Tensor, keep: Tensor, look: Look | None = None) -> Memory:
        """Read the source and work out the keys.  x (B, S), keep (B, S) -> Memory."""
        h = self.embed(self.source_words, x, self.places(x.shape[1])[: x.shape[1]])
        quick = not (x.is_cuda or self.training or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
        if quick and look is None:
            padded = len(x) > 1 or not bool(keep.all())
            h = self.LN_h(read(h, self.encoder, Sight.of(keep, h) if padded else Sight(), self.pre))  # type: ignore[arg-type]
            return Memory(h, keep, keys_of(h, self.decoder), padded=padded)  # type: ignore[arg-type]
        sight, seen = Sight.of(keep, h), []
        stream = Stream.of(h, self.training)
        for layer in self.encoder:
            stream, weights = layer(stream, sight, look is not None)
            seen.append(weights)
        _, h = add_and_norm(stream, self.LN_h, self.dropout if self.training else 0.0)
        keys = tuple(part for layer in self.decoder for part in layer.across.keys(h))  # type: ignore[union-attr, operator]
        # A sentence alone has no padding, as a rule; but to look takes waiting for the device.
        padded = len(x) > 1 or torch.is_grad_enabled() or not bool(keep.all())
        return Memory(h, keep, keys, (), torch.stack(seen, dim=1) if look else None, padded)

    def start(self, memory: Memory, capacity: int) -> Cache:
        """Return an empty cache with room for `capacity` tokens."""
        cache = Cache(len(self.decoder), capacity, self.places)
        cache.fresh = memory.keep.shape[0]
        return cache

    def step(self, y: Tensor, state: Cache, memory: Memory, look: Look | None = None) -> Step:
        """Read n tokens.  y (R, n) -> hidden (R, n, D), the cache with them, weights (R, L, H, n, S) if asked for."""
        n = y.shape[1]
        s = self.embed(self.embedding, y, state.places(n))
        if n == 1 and look is None and not torch.is_grad_enabled() and not self.training and not state.strung:
            state.swift = state.swift or Swift(list(self.decoder), self.channels, self.pre)  # type: ignore[arg-type]
            s = state.swift(s[:, 0], state, memory)[:, None]
            state.advance(1)
            return Step(self.LN_s(s), state, None)
        if state.offset is not None:
            raise ShapeError("sentences that began at different times are read a word at a time, and not looked into")
        seen = []
        back = Sight.back(n, state.length + n, s)
        across = Sight.of(memory.keep, s) if memory.padded else Sight()
        stream = Stream.of(s, self.training)
        for number, layer in enumerate(self.decoder):
            seeing = look if look is not None and look.layer in (None, number) else None
            stream, weights = layer(stream, state, number, memory, (back, across), seeing)
            seen += [] if weights is None else [weights]
        state.advance(n)
        _, s = add_and_norm(stream, self.LN_s, self.dropout if self.training else 0.0)
        return Step(s, state, torch.stack(seen, dim=1) if look else None)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all words.  hidden (…, D) -> (…, V)."""
        W, twin = self._written_by, self.laid_out
        if twin is not None and hidden.shape[:-1].numel() <= FEW and not torch.is_grad_enabled():
            # As long as nobody has changed what it was made from.
            W = twin.t() if self.laid_out_from == (W.data_ptr(), W._version) else W
        return F.linear(hidden, W, self.b_o)

    def operands(self) -> list[Tensor]:
        """Return the weights and biases that nothing but the layers' products read."""
        products = [(name, module) for name, module in self.named_modules() if isinstance(module, nn.Linear)]
        biases = [module.bias for name, module in products if not name.endswith("W_1")]  # a kernel adds that one
        return [*(module.weight for _, module in products), *biases]

    def norms(self, memory: Memory) -> Tensor:
        """Return ‖W_o^i (W_v^i h_j + b_v)‖ of every layer's heads.  (B, L, H, S)."""
        values = zip(self.decoder, memory.keys[1::2], strict=True)
        return torch.stack([layer.across.norms(v) for layer, v in values], dim=1)  # type: ignore[union-attr, operator]

    @property
    def _written_by(self) -> Tensor:
        return self.embedding.weight if self.W_o is None else self.W_o

    def train(self, mode: bool = True) -> Transformer:
        """Go into training, or out of it; what training changes is not kept twice."""
        if mode:
            self.laid_out = None
        return super().train(mode)

    def lay_out(self, decoding: bool) -> None:
        """Keep what writes words in memory by its inputs, too, or no longer: as `layout` has it for other products."""
        W = self._written_by
        self.laid_out = W.detach().t().contiguous() if decoding and not self.training else None
        self.laid_out_from = (W.data_ptr(), W._version)
