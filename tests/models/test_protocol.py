"""The protocol, for every kind of model: what the rest of the library relies on, and the papers' formulas."""

from __future__ import annotations

import math
from itertools import cycle, product

import pytest
import torch
from small_networks import filled, padded
from torch import Tensor, nn

from heedful.attention import until
from heedful.config import FixedConfig, ModelConfig, RecurrentConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError
from heedful.models import Memory, NeedWeights, Network, State, build
from heedful.models.rnn import RecurrentState
from heedful.models.transformer import Cache, SsruState

pytestmark = pytest.mark.usefixtures("one_thread")
SCORES = ("dot", "scaled", "general", "additive", "concat")
CELLS = ("rnn", "lstm", "gru")
D, EMBEDDING, A, SOURCE, TARGET = 4, 3, 5, 11, 9  # all different: a weight the wrong way round does not fit
LENGTHS = [4, 6, 1, 3]
B, S, T, K = 4, 6, 5, 3


def recurrent_variants() -> dict[str, RecurrentConfig]:
    """Every order, score and cell with the switches in turn; then the switches' own products."""
    configs: list[RecurrentConfig] = []

    def add(kind: type[RecurrentConfig], layers: int, both: bool, tied: bool, copy: bool, **own: object) -> None:
        # h_j is as wide as s_t only where it has to be
        equal = copy or own.get("score") in ("dot", "scaled")
        shape = {"layers": layers, "bidirectional": both, "width": D, "encoder_width": 0 if equal else 3}
        switches = {"tied": tied, "bridge": "copy" if copy else "learn", "dropout": 0.3}
        configs.append(kind(embedding=EMBEDDING, **shape, **switches, **own))

    # 30 rows against 16: every score and cell meets many of the switches
    turn = cycle(product((1, 2), (True, False), (False, True), (False, True)))
    for order, score, cell in product(("bahdanau", "luong"), SCORES, CELLS):
        add(RnnConfig, *next(turn), cell=cell, score=score, order=order, score_width=A, feed=cell != "rnn")
    for layers, tied, feed, copy in product((1, 2), (False, True), (False, True), (False, True)):
        add(RnnConfig, layers, True, tied, copy, cell="gru", score="additive", order="luong", feed=feed)
    for layers, both, tied, copy in product((1, 2), (False, True), (False, True), (False, True)):
        add(RnnConfig, layers, both, tied, copy, cell="lstm", score="general", order="bahdanau")
    for context, cell, tied, layers in product(("first", "every"), CELLS, (False, True), (1, 2)):
        add(FixedConfig, layers, layers == 1, tied, tied == (cell == "gru"), cell=cell, context=context)
    # what is rarer: each in both orders where it can be, with more layers in the decoder than in the encoder, too
    turn = cycle(product((1, 2), (True, False), (False, True)))
    for own in RARE:
        for order in ("bahdanau", "luong")[: 1 if "output" in own else 2]:
            for decoder_layers in (0, 3):
                layers, both, tied = next(turn)
                copy = own.get("bridge") == "copy"
                rare = {"tied": tied and "output_inner" not in own, "layers": layers, "bidirectional": both}
                rare |= {"decoder_layers": decoder_layers, "encoder_width": 0 if copy else 3, "dropout": 0.3}
                if own.get("bridge") == "directions":
                    rare |= {"decoder_layers": layers * (2 if both else 1), "encoder_width": D}
                configs.append(RnnConfig(embedding=EMBEDDING, width=D, order=order, score_width=A, **rare, **own))
    for copy in (False, True):
        add(FixedConfig, 1, True, False, copy, cell="rnn", nonlinearity="relu", output_inner=7, decoder_layers=2)
    return {name(config): config for config in configs}


RARE: list[dict[str, object]] = [
    {"query": "sum", "cell": "lstm"},
    {"query": "sum", "score": "general", "bridge": "copy"},
    {"output": "before"},
    {"output": "before", "cell": "lstm", "query": "sum"},
    {"output": "state", "output_inner": 7, "output_activation": "leaky_relu", "cell": "lstm"},
    {"output_inner": 7, "output_activation": "relu"},
    {"output_activation": "leaky_relu"},
    {"cell": "rnn", "nonlinearity": "relu"},
    {"cell": "rnn", "nonlinearity": "relu", "bridge": "copy"},
    {"bridge": "directions", "cell": "lstm"},
    {"window": "monotonic", "window_width": 1},
    {"window": "monotonic", "window_width": 2, "cell": "lstm", "feed": False},
    {"window": "predictive", "window_width": 2},
    {"window": "predictive", "window_width": 1, "query": "sum", "feed": False},
    {"window": "predictive", "window_width": 3, "score": "general", "output": "before"},
]


def name(c: RecurrentConfig) -> str:
    """A name for a test's id, with every switch in it."""
    if isinstance(c, RnnConfig):
        fed = ["feed" if c.feed else "no-feed"] if c.order == "luong" else []
        own = [c.order, c.score, *fed]
        own += [f"by-{c.query}"] * (c.query != "top") + [f"from-{c.output}"] * (c.output != "after")
        own += [f"{c.window}-{c.window_width}"] * (c.window != "global")
    else:
        own = ["fixed", c.context]
    switches = ["both" if c.bidirectional else "one", "tied" if c.tied else "untied", c.bridge]
    switches += [f"inner-{c.output_inner}"] * bool(c.output_inner) + [c.output_activation] * (
        c.output_activation != "tanh"
    )
    return "-".join([*own, c.full_cell, str(c.layers), *[str(c.depth)] * bool(c.decoder_layers), *switches])


def transformer_variants() -> dict[str, TransformerConfig]:
    """Every norm, activation and tie, with the other switches in turn."""
    found = {}
    turn = cycle(product((1, 2), (0, 1, 3), (1, 2), (True, False), (False, True)))
    for norm, activation, tied in product(("pre", "post"), ("relu", "gelu", "silu"), ("target", "none")):
        layers, decoder_layers, heads, scale, bias = next(turn)
        own = {"norm": norm, "activation": activation, "tied": tied, "layers": layers, "decoder_layers": decoder_layers}
        switches = {"heads": heads, "scale": scale, "bias": bias, "dropout": 0.3, "attention_dropout": 0.1}
        parts = ["transformer", norm, activation, tied, str(layers), str(decoder_layers), f"{heads}-heads"]
        parts += [word for word, on in (("scaled", scale), ("bias", bias)) if on]
        found["-".join(parts)] = TransformerConfig(width=D, inner=7, **own, **switches)
    for norm, layers in (("pre", 2), ("post", 1)):
        found[f"ssru-{norm}-{layers}"] = TransformerConfig(
            width=D, inner=7, heads=2, cell="ssru", norm=norm, layers=1, decoder_layers=layers, dropout=0.3
        )
    return found


RECURRENT = recurrent_variants()
VARIANTS: dict[str, ModelConfig] = {**RECURRENT, **transformer_variants()}
every = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
every_recurrent = pytest.mark.parametrize("config", RECURRENT.values(), ids=RECURRENT)


def looks(config: ModelConfig) -> tuple[int, int] | None:
    """How many layers and heads look at the source; None when there is nothing to look at."""
    if isinstance(config, TransformerConfig):
        return config.depth, config.heads
    return (1, 1) if isinstance(config, RnnConfig) else None


@torch.no_grad()
def make(config: ModelConfig) -> Network:
    model = filled(config, SOURCE, TARGET)
    if getattr(config, "nonlinearity", "") == "relu":
        # Without this, of four units some are never above 0, or states grow until a tanh after them is 1.
        for key, weight in model.named_parameters():
            if "bias" in key:
                weight.abs_().add_(0.5)
            else:
                weight.mul_(0.3)
    return model


def sentences(lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor, Tensor]:
    return padded(lengths, SOURCE, TARGET, T)


def tensors(state: State) -> list[Tensor]:
    """What can be compared of a state; a cache's room can be full in more than one way."""
    if isinstance(state, Cache):
        return []
    if isinstance(state, SsruState):
        return [] if state.cells is None else [state.cells.transpose(0, 1)]
    assert isinstance(state, RecurrentState)
    return list(state.tensors)


def run(model: Network, memory: Memory, y: Tensor, *sizes: int) -> tuple[Tensor, State, Tensor | None]:
    """Read y in pieces of given sizes; put the pieces together."""
    state, hidden, weights = model.start(memory, T), [], []
    for piece in y.split(list(sizes), dim=1):
        step = model.step(piece, state, memory, NeedWeights())
        state = step.state
        hidden.append(step.hidden)
        weights.append(step.weights)
    seen = None if weights[0] is None else torch.cat(weights, dim=3)
    return torch.cat(hidden, dim=1), state, seen


def same_run(got: tuple[Tensor, State, Tensor | None], wanted: tuple[Tensor, State, Tensor | None]) -> None:
    torch.testing.assert_close(got[0], wanted[0])
    torch.testing.assert_close(tensors(got[1]), tensors(wanted[1]))
    assert (got[2] is None) == (wanted[2] is None)
    if wanted[2] is not None:
        torch.testing.assert_close(got[2], wanted[2])


@every
@torch.no_grad()
def test_one_step_of_all_tokens_equals_a_step_for_each(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    whole = run(model, memory, y, T)
    same_run(run(model, memory, y, *[1] * T), whole)
    same_run(run(model, memory, y, 2, T - 2), whole)


@every
@torch.no_grad()
def test_shapes(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    assert memory.h.shape == (B, S, D if isinstance(config, TransformerConfig) else config.memory_width)
    assert torch.equal(memory.keep, keep)
    hidden, _, weights = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert hidden.shape[:2] == (B, T)
    assert model.logits(hidden).shape == (B, T, TARGET)
    assert model.logits(hidden[:, 0]).shape == (B, TARGET)
    seen = looks(config)
    assert (None if weights is None else weights.shape) == (None if seen is None else (B, *seen, T, S))


@every
@torch.no_grad()
def test_weights_only_when_asked_for(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    blind, looking = (model.step(y, model.start(memory, T), memory, look) for look in (None, NeedWeights()))
    assert blind.weights is None
    torch.testing.assert_close(blind.hidden, looking.hidden)


@every
@torch.no_grad()
def test_weights_of_one_layer(config):
    if (shape := looks(config)) is None:
        return
    layers, model, (x, keep, y) = shape[0], make(config), sentences()
    memory = model.encode(x, keep)

    def weights(layer: int | None) -> torch.Tensor:
        return model.step(y, model.start(memory, T), memory, NeedWeights(layer=layer)).weights

    for layer in (0, layers - 1, -1, -layers):
        torch.testing.assert_close(weights(layer), weights(None)[:, [layer]])
    for layer in (layers, -layers - 1):
        with pytest.raises(ConfigError, match=rf"layer {layer} .* from {-layers} to {layers - 1}"):
            weights(layer)


@every
@torch.no_grad()
def test_weights_sum_to_one_and_are_zero_on_padding(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    weights = model.step(y, model.start(memory, T), memory, NeedWeights()).weights
    if looks(config) is None:
        assert weights is None
        return
    assert not weights.masked_select(~keep[:, None, None, None]).any()
    if getattr(config, "window", "global") != "global":
        sums = weights.sum(-1)
        assert bool((sums <= 1 + 1e-9).all())
        assert bool((sums > 0).any())
        if config.window == "monotonic":  # 1, or 0 where the window is behind the end
            inside = torch.arange(T) - config.window_width < keep.sum(1)[:, None]
            torch.testing.assert_close(sums[:, 0, 0], inside.to(sums.dtype))
        return
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, *looks(config), T, dtype=torch.float64))
    assert bool((weights.masked_select(keep[:, None, None, None]) > 0).all())


@every
@torch.no_grad()
def test_neither_padding_nor_batch_mates_change_anything(config):
    model, (x, keep, y) = make(config), sentences()
    hidden, state, weights = run(model, model.encode(x, keep), y, T)
    for b, length in enumerate(LENGTHS):
        alone = model.encode(x[b : b + 1, :length], keep[b : b + 1, :length])
        hidden_alone, state_alone, weights_alone = run(model, alone, y[b : b + 1], T)
        torch.testing.assert_close(hidden_alone[0], hidden[b])
        torch.testing.assert_close([t[0] for t in tensors(state_alone)], [t[b] for t in tensors(state)])
        if weights is not None:
            torch.testing.assert_close(weights_alone[0], weights[b, ..., :length])


@every
@torch.no_grad()
def test_rubbish_in_the_padding_changes_nothing(config):
    model, (x, keep, y) = make(config), sentences()
    wanted = run(model, model.encode(x, keep), y, T)
    same_run(run(model, model.encode(torch.where(keep, x, torch.tensor(7)), keep), y, T), wanted)


@every
@torch.no_grad()
def test_selected_rows_go_on_as_if_alone(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    _, state, _ = run(model, memory, y[:, :2], 2)
    rows = torch.tensor([3, 1, 1])  # out of order, one twice, some left out: what a beam does
    after = model.step(y[rows, 2:], state.select(rows), memory.select(rows), NeedWeights())
    wanted = run(model, model.encode(x[rows], keep[rows]), y[rows], 2, T - 2)
    same_run((after.hidden, after.state, after.weights), (wanted[0][:, 2:], wanted[1], _tail(wanted[2])))


def _tail(weights: Tensor | None) -> Tensor | None:
    return None if weights is None else weights[:, :, :, 2:]


@every
@torch.no_grad()
def test_hypotheses_of_a_sentence_are_as_many_sentences(config):
    """R = B·K rows that share a memory of B sentences, as a beam has them: reordered, then some sentences are done."""
    model, (x, keep, _) = make(config), sentences()
    each = torch.arange(B).repeat_interleave(K)
    y = torch.randint(1, TARGET, (B * K, T), generator=torch.Generator().manual_seed(6))
    moved = each * K + torch.tensor([2, 0, 0, 1, 2, 0, 1, 1, 1, 0, 2, 1])  # within a sentence
    left = torch.tensor([7, 7, 0, 2])  # two hypotheses of the third sentence, and two of the first

    def read(shared: bool) -> list[tuple[Tensor, Tensor | None]]:
        memory = model.encode(x, keep) if shared else model.encode(x[each], keep[each])
        state = model.start(memory, T)
        state, found = state.select(each) if shared else state, []
        for piece, rows in ((y[:, :1], moved), (y[moved, 1:3], moved), (y[moved[moved], 3:4], left)):
            step = model.step(piece, state, memory, NeedWeights())
            state = step.state.select(rows)
            found.append((step.hidden, step.weights))
        memory = memory.select(torch.tensor([2, 0]) if shared else left)
        last = model.step(y[moved[moved][left], 4:], state, memory, NeedWeights())
        return [*found, (last.hidden, last.weights)]

    for (hidden, weights), (wanted, wanted_weights) in zip(read(shared=True), read(shared=False), strict=True):
        torch.testing.assert_close(hidden, wanted)
        assert (weights is None) == (wanted_weights is None) == (looks(config) is None)
        if weights is not None:
            torch.testing.assert_close(weights, wanted_weights)


@every
@torch.no_grad()
def test_a_later_word_changes_nothing_before_it(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    hidden, _, weights = run(model, memory, y, T)
    other = y.clone()
    other[:, 3] = y[:, 3] % (TARGET - 1) + 1
    changed, _, changed_weights = run(model, memory, other, T)
    torch.testing.assert_close(changed[:, :3], hidden[:, :3], rtol=0, atol=0)
    assert not (changed[:, 3:] == hidden[:, 3:]).all(-1).any()
    if weights is not None:
        torch.testing.assert_close(changed_weights[:, :, :, :3], weights[:, :, :, :3], rtol=0, atol=0)


@every
@torch.no_grad()
def test_step_leaves_its_state_and_memory_alone(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    state = model.start(memory, T)
    held = [*tensors(state), memory.h, memory.keep, *memory.keys, *memory.last]
    before = [t.clone() for t in held]
    first = model.step(y, state, memory).hidden
    assert all(map(torch.equal, held, before))
    again = state if isinstance(state, RecurrentState) else model.start(memory, T)  # a Transformer's is written into
    assert torch.equal(model.step(y, again, memory).hidden, first)


@every
def test_every_weight_learns(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    model.logits(model.step(y, model.start(memory, T), memory).hidden).square().mean().backward()
    assert [key for key, w in model.named_parameters() if w.grad is None or not w.grad.any()] == []


@every
@torch.no_grad()
def test_dropout_works_in_training_alone(config):
    model, (x, keep, y) = make(config), sentences()

    def hidden() -> Tensor:
        memory = model.encode(x, keep)
        return model.step(y, model.start(memory, T), memory).hidden

    assert torch.equal(hidden(), hidden())
    model.train()
    assert not torch.equal(hidden(), hidden())


# The formulas once more, word by word and sentence by sentence, with PyTorch's cells on the concatenated input.

MODULES = {
    "rnn": nn.RNNCell,
    "rnn-relu": lambda K, D: nn.RNNCell(K, D, nonlinearity="relu"),
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
}
FUNCTIONS = {"tanh": torch.tanh, "relu": lambda x: x * (x > 0), "leaky_relu": lambda x: x * (0.01 + 0.99 * (x > 0))}


def their_cell(config: RecurrentConfig, weights: dict[str, Tensor], layer: int) -> nn.Module:
    """PyTorch's cell with the decoder's weights; its input is all parts side by side."""
    parts = [w for key, w in weights.items() if key.startswith(f"stack.cells.{layer}.W.") and key.endswith("weight")]
    W = torch.cat(parts, dim=1)
    cell = MODULES[config.full_cell](W.shape[1], config.width).double()
    own = {"weight_ih": W, "bias_ih": weights[f"stack.cells.{layer}.W.0.bias"]}
    own |= {f"{kind}_hh": weights[f"stack.cells.{layer}.U.{kind}"] for kind in ("weight", "bias")}
    cell.load_state_dict(own)
    return cell


def energy(config: RnnConfig, weights: dict[str, Tensor], s: Tensor, h: Tensor) -> Tensor:
    """e_j of one state s (D,) against h (S, E)."""
    match config.score:
        case "dot":
            return h @ s
        case "scaled":
            return h @ s / math.sqrt(len(s))
        case "general":
            return torch.stack([s @ (weights["score.W.weight"] @ h_j) for h_j in h])
    W, U, b = weights["score.W.weight"], weights["score.U.weight"], weights["score.U.bias"]
    W_a = torch.cat([W, U], dim=1)
    return torch.stack([weights["score.v"] @ torch.tanh(W_a @ torch.cat([s, h_j]) + b) for h_j in h])


class Reference:
    """One sentence through the papers' formulas; it shares only the encoder, which has tests of its own."""

    def __init__(self, model: Network, config: RecurrentConfig, x: Tensor) -> None:
        self.config, self.weights = config, model.state_dict()
        h, last = model.encoder(x[None], torch.ones(1, len(x), dtype=torch.bool))
        self.h = h[0]
        last = [side[0] for side in last]
        self.top = last[config.layers - 1]
        L = config.layers
        if config.bridge == "directions":
            last = [side for state in last for side in torch.split(state, config.width)]
        elif config.decoder_layers:
            groups = [last[i : i + L] for i in range(0, len(last), L)]
            last = [(group + [group[-1]] * 9)[layer] for group in groups for layer in range(config.decoder_layers)]
        L = config.decoder_layers or L
        if config.bridge == "learn":
            last = [
                self.weights[f"bridge.W.{i}.weight"] @ side + self.weights[f"bridge.W.{i}.bias"]
                for i, side in enumerate(last)
            ]
            # the states are bounded by a tanh; the LSTM's cell states, which come after them, are not
            last = [torch.tanh(side) if i < L else side for i, side in enumerate(last)]
        self.s, self.m, self.t = last[:L], last[L:], 0
        self.a = torch.zeros(config.width, dtype=torch.float64)
        self.cells = [their_cell(config, self.weights, layer) for layer in range(L)]

    def go(self, *inputs: Tensor) -> None:
        """s_t = RNN(s_{t-1}, [inputs]), through all layers."""
        below = torch.cat(inputs)
        for layer, cell in enumerate(self.cells):
            if self.config.cell == "lstm":
                self.s[layer], self.m[layer] = cell(below, (self.s[layer], self.m[layer]))
            else:
                self.s[layer] = cell(below, self.s[layer])
            below = self.s[layer]

    def ask(self) -> tuple[Tensor, Tensor]:
        """c_t and α_t, the state at the top asking, or all states together; in a window around p_t."""
        q = sum(self.s) if self.config.query == "sum" else self.s[-1]
        alpha = torch.exp(energy(self.config, self.weights, q, self.h))
        S, width, p = len(self.h), self.config.window_width, float(self.t)
        if self.config.window == "predictive":
            mapped = torch.tanh(self.weights["place.W.weight"] @ q)
            p = S / (1 + math.exp(-float(self.weights["place.v"] @ mapped)))
        if self.config.window != "global":
            alpha = torch.stack([a if p - width <= j <= p + width else 0 * a for j, a in enumerate(alpha)])
        alpha = alpha / alpha.sum() if alpha.any() else alpha
        if self.config.window == "predictive":
            sigma = width / 2
            alpha = torch.stack([a * math.exp(-((j - p) ** 2) / (2 * sigma**2)) for j, a in enumerate(alpha)])
        self.t += 1
        return sum(a * h_j for a, h_j in zip(alpha, self.h, strict=True)), alpha

    def write(self, y: Tensor, *known: Tensor) -> Tensor:
        """W_o[known] + b_o, or E·tanh(W[known; y])."""
        W = self.weights["output.W.weight"]
        f = FUNCTIONS[self.config.output_activation]
        if self.config.tied:
            return self.weights["embedding.weight"] @ f(W @ torch.cat([*known, y]))
        if getattr(self.config, "output", "") == "before":
            known = (*known, y)
        if self.config.output_inner:
            known = (f(self.weights["output.W_1.weight"] @ torch.cat(known) + self.weights["output.W_1.bias"]),)
        return W @ torch.cat(known) + self.weights["output.W.bias"]

    def step(self, token: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logits of the next word, and α_t."""
        y, c, alpha = self.weights["embedding.weight"][token], None, None
        match self.config:
            case FixedConfig(context="first"):
                self.go(y)
                return self.write(y, self.s[-1]), None
            case FixedConfig():
                self.go(y, self.top)
                return self.write(y, self.s[-1], self.top), None
            case RnnConfig(order="bahdanau"):
                before, (c, alpha) = self.s[-1], self.ask()
                self.go(y, c)
                match self.config.output:
                    case "state":
                        return self.write(y, self.s[-1]), alpha
                    case "before":
                        return self.write(y, before, c), alpha
                return self.write(y, self.s[-1], c), alpha
        self.go(*((y, self.a) if self.config.feed else (y,)))
        c, alpha = self.ask()
        if "mix.weight" in self.weights:
            both = torch.cat([self.s[-1], c])
            self.a = torch.tanh(self.weights["mix.weight"] @ both + self.weights["mix.bias"])
        return self.write(y, self.s[-1], c) if self.config.tied else self.write(y, self.a), alpha


@every_recurrent
@torch.no_grad()
def test_equals_the_formulas_word_by_word(config):
    model, (x, keep, y) = make(config), sentences()
    memory = model.encode(x, keep)
    hidden, _, weights = model.step(y, model.start(memory, T), memory, NeedWeights())
    logits = model.logits(hidden)
    for b, length in enumerate(LENGTHS):
        reference = Reference(model, config, x[b, :length])
        for t in range(T):
            wanted, alpha = reference.step(y[b, t])
            torch.testing.assert_close(logits[b, t], wanted)
            if alpha is not None:
                torch.testing.assert_close(weights[b, 0, 0, t, :length], alpha)


@torch.no_grad()
def test_bahdanau_by_its_own_letters():
    """s_t = GRU(s_{t-1}, [c_t, y_{t-1}]), c_t = Σ_j α_tj h_j, α_t = softmax v·tanh(W s_{t-1} + U h_j + b)."""
    config = RnnConfig(width=D, encoder_width=3, embedding=EMBEDDING, score_width=A, dropout=0.0)
    model, (x, keep, y) = make(config), sentences([S] * B)
    memory = model.encode(x, keep)
    weights, h = model.state_dict(), memory.h
    W_y, W_c = weights["stack.cells.0.W.0.weight"], weights["stack.cells.0.W.1.weight"]
    gru = nn.GRUCell(6 + EMBEDDING, D).double()
    gru.weight_ih.copy_(torch.cat([W_c, W_y], dim=1))  # [c, y], as the paper has it
    gru.bias_ih.copy_(weights["stack.cells.0.W.0.bias"])
    gru.weight_hh.copy_(weights["stack.cells.0.U.weight"])
    gru.bias_hh.copy_(weights["stack.cells.0.U.bias"])
    s = torch.tanh(memory.last[0] @ weights["bridge.W.0.weight"].T + weights["bridge.W.0.bias"])
    logits = []
    for t in range(T):
        asked = s @ weights["score.W.weight"].T
        offered = h @ weights["score.U.weight"].T + weights["score.U.bias"]
        alpha = torch.softmax(torch.tanh(asked[:, None] + offered) @ weights["score.v"], dim=1)
        c = torch.einsum("bs,bse->be", alpha, h)
        s = gru(torch.cat([c, weights["embedding.weight"][y[:, t]]], dim=1), s)
        logits.append(torch.cat([s, c], dim=1) @ weights["output.W.weight"].T + weights["output.W.bias"])
    got = model.logits(model.step(y, model.start(memory, T), memory).hidden)
    torch.testing.assert_close(got, torch.stack(logits, dim=1))


TINY = {
    "bahdanau-additive-gru": RnnConfig(width=2, embedding=2, dropout=0.0),
    "luong-general-lstm": RnnConfig(
        width=2, encoder_width=1, embedding=2, dropout=0.0, cell="lstm", score="general", order="luong", tied=True
    ),
    "fixed-rnn": FixedConfig(width=2, embedding=2, dropout=0.0, cell="rnn", context="every"),
    "transformer-pre": TransformerConfig(layers=1, width=4, heads=2, inner=3, activation="gelu", dropout=0.0),
    "ssru": TransformerConfig(layers=1, width=4, heads=2, inner=3, cell="ssru", activation="gelu", dropout=0.0),
    "transformer-post": TransformerConfig(
        layers=1, width=4, heads=1, inner=3, norm="post", activation="silu", tied="all", bias=True, dropout=0.0
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("config", TINY.values(), ids=TINY)
def test_gradient_through_the_whole_model(config):
    torch.manual_seed(0)
    model = build(config, 4, 4).double()
    x, keep = torch.tensor([[1, 2, 3], [3, 1, 0]]), until(torch.tensor([3, 2]))
    y = torch.tensor([[2, 1, 3], [3, 2, 1]])

    def logits(*weights: Tensor) -> Tensor:
        memory = model.encode(x, keep)
        return model.logits(model.step(y, model.start(memory, 3), memory).hidden)

    # gradcheck moves the weights in place, so the model sees them move
    assert torch.autograd.gradcheck(logits, tuple(model.parameters()))


def test_copying_needs_equal_widths():
    with pytest.raises(ConfigError, match=r"model\.bridge=copy.* 6 and 4.*model\.encoder_width=0"):
        build(RnnConfig(width=4, encoder_width=3, embedding=3, bridge="copy"), SOURCE, TARGET)


def test_two_directions_cannot_share_an_odd_width():
    with pytest.raises(ConfigError, match=r"model\.width is 5.*model\.bidirectional"):
        build(RnnConfig(width=5, embedding=3), SOURCE, TARGET)


def test_settings_of_no_model_are_refused():
    with pytest.raises(ConfigError, match="RecurrentConfig"):
        build(RecurrentConfig(), SOURCE, TARGET)


@torch.no_grad()
def test_a_sentence_with_nothing_to_look_at_gives_numbers():
    model, (x, keep, y) = make(RnnConfig(width=D, embedding=EMBEDDING)), sentences()
    keep[2] = False
    memory = model.encode(x, keep)
    hidden, _, weights = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert bool(hidden.isfinite().all())
    assert not weights[2].any()
