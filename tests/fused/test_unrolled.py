"""The recurrence as one operation: by gradcheck, against the plain loop, and as a guest in training."""

from __future__ import annotations

from itertools import chain, product

import pytest
import torch
from small_networks import filled, padded
from torch import Tensor, nn

from heedful.attention import Dot, until
from heedful.config import FixedConfig, RecurrentConfig, RnnConfig
from heedful.fused.cpu import recurrence
from heedful.fused.unrolled import DecoderSpec, unrolled_decoder
from heedful.models import NeedWeights, Network, build, rnn
from heedful.models.rnn import RecurrentState, kind_of

pytestmark = pytest.mark.usefixtures("one_thread")
SCORES = ("additive", "concat", "dot", "general", "scaled")
V = 9
LENGTHS = [4, 6, 1, 3]
B, S, T = 4, 6, 5


def configs() -> dict[str, RecurrentConfig]:
    """Every cell, order, score and number of layers; h_j is as wide as s_t only where it has to be."""
    found: dict[str, RecurrentConfig] = {}
    for cell, layers in product(recurrence.LAYERS, (1, 2)):
        shape = {"cell": cell, "layers": layers, "width": 4, "embedding": 3, "dropout": 0.3}
        for (order, feed), score in product((("bahdanau", True), ("luong", True), ("luong", False)), SCORES):
            own = {"order": order, "feed": feed, "score": score, "score_width": 5}
            own |= {"encoder_width": 0 if score in ("dot", "scaled") else 3, "tied": layers == 2}
            found[f"{order}-{feed}-{score}-{cell}-{layers}"] = RnnConfig(**shape, **own)
        for context in ("first", "every"):
            found[f"fixed-{context}-{cell}-{layers}"] = FixedConfig(**shape, context=context)
        for output in ("before", "state"):
            shape |= {"output": output, "decoder_layers": 2, "tied": layers == 2}
            found[f"{output}-{cell}-{layers}"] = RnnConfig(**shape, score_width=5)
    for layers, (order, feed) in product((1, 2), (("bahdanau", True), ("luong", True), ("luong", False))):
        shape = {"cell": "rnn", "nonlinearity": "relu", "layers": layers, "width": 4, "embedding": 3, "dropout": 0.3}
        found[f"{order}-{feed}-relu-{layers}"] = RnnConfig(**shape, order=order, feed=feed, output_inner=6)
    return found


CONFIGS = configs()
every = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def make(config: RecurrentConfig) -> Network:
    return filled(config, V, V, seed=3)


def sentences(lengths: list[int] = LENGTHS) -> tuple[Tensor, Tensor, Tensor]:
    return padded(lengths, V, V, T)


def plain(model: Network) -> Network:
    """Make a model take the plain loop, always."""
    model.unrolls = lambda *_: False
    return model


def teach(model: Network) -> tuple[list[Tensor], list[Tensor | None]]:
    """One round of teacher forcing: what comes out, weights too, and the gradients of all parameters."""
    x, keep, y = sentences()
    memory = model.encode(x, keep)
    step = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert isinstance(step.state, RecurrentState)
    found = [step.hidden, *chain.from_iterable(step.state.cells)]
    found += [] if step.state.feed is None else [step.state.feed]
    found += [] if step.weights is None else [step.weights]
    generator = torch.Generator().manual_seed(1)
    wishes = [torch.randn(f.shape, generator=generator, dtype=f.dtype) for f in found]
    loss = sum((f * wish).sum() for f, wish in zip(found, wishes, strict=True))
    return found, list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))


@every
@pytest.mark.parametrize("together", [False, True], ids=["step by step", "together"])
def test_it_is_the_plain_loop(config, together, monkeypatch):
    """What a GPU takes together is taken together here, too."""
    if together:
        monkeypatch.setattr(recurrence, "span", lambda T, device: T)
    model = make(config)
    (found, gradients), (wanted, wanted_gradients) = teach(model), teach(plain(make(config)))
    torch.testing.assert_close(found, wanted)
    names = [name for name, _ in model.named_parameters()]
    for name, gradient, wish in zip(names, gradients, wanted_gradients, strict=True):
        nothing = torch.zeros(())
        torch.testing.assert_close(
            nothing if gradient is None else gradient,
            nothing if wish is None else wish,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def given(spec: DecoderSpec, additive: bool, feed: bool) -> dict[str, Tensor]:
    """Random tensors for `unrolled_decoder`, all of different widths where they may differ."""
    D, E, A, K, B, S, T = 2, 2 if spec.query else 0, 3 if additive else 2, 3, 2, 3, 2
    G = kind_of(spec.cell).gates * D
    shapes = {"x": (T, B, K)}
    for layer in range(spec.layers):
        shapes |= {f"W{layer}": (G, D if layer else K), f"U{layer}": (G, D), f"b_W{layer}": (G,), f"b_U{layer}": (G,)}
        shapes |= {f"{side}{layer}": (B, D) for side in spec.states}
    if spec.query:
        shapes |= {"keys": (B, S, A), "values": (B, S, E)}
        shapes |= {"W_q": (A, D), "v": (A,)} if additive else {}
    if feed:
        shapes |= {"W_fed": (G, D if spec.query == "after" else E)}
        shapes |= {"W_a": (D, D + E), "b_a": (D,), "a": (B, D)} if spec.query == "after" else {}
    torch.manual_seed(0)
    found = {name: torch.randn(shape, dtype=torch.float64, requires_grad=True) for name, shape in shapes.items()}
    if spec.query:
        found["keep"] = until(torch.tensor([3, 2]))
    if spec.layers > 1:
        found["drop1"] = 2 * torch.randint(2, (T, B, D), dtype=torch.float64)
    return found


KINDS = {"fixed": ("", False, False)} | {
    f"{ask}-{'additive' if additive else 'dot'}{'-fed' if feed else ''}": (ask, additive, feed)
    for ask, feed in (("before", True), ("after", True), ("after", False))
    for additive in (True, False)
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", recurrence.LAYERS)
def test_gradient(cell, layers, kind):
    ask, additive, feed = KINDS[kind]
    spec = DecoderSpec(cell, layers, ask, 1.0 if additive else 0.7)
    tensors = given(spec, additive, feed)
    names = [name for name, tensor in tensors.items() if tensor.requires_grad]

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        found = unrolled_decoder(spec, tensors | dict(zip(names, values, strict=True)))
        outputs = (found.s, found.c, found.weights, found.a, *chain.from_iterable(found.last))
        return tuple(output for output in outputs if output is not None)

    assert torch.autograd.gradcheck(function, [tensors[name] for name in names], fast_mode=layers > 1)


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[DecoderSpec]:
    """Count how often the operation is used."""
    calls: list[DecoderSpec] = []
    own = rnn.unrolled_decoder
    monkeypatch.setattr(rnn, "unrolled_decoder", lambda spec, tensors: (calls.append(spec), own(spec, tensors))[1])
    return calls


def test_it_is_used_where_all_steps_are_known_and_gradients_are_wanted(monkeypatch):
    calls = count_writes(monkeypatch)
    model, (x, keep, y) = make(RnnConfig(width=4, embedding=3)), sentences()
    memory = model.encode(x, keep)
    model.step(y, model.start(memory, T), memory)
    assert len(calls) == 1
    model.step(y[:, :1], model.start(memory, T), memory)
    twice = torch.arange(B).repeat_interleave(2)
    model.step(y[twice], model.start(memory, T).select(twice), memory)
    with torch.no_grad():
        model.step(y, model.start(memory, T), memory)
    assert len(calls) == 1


def test_somebodys_own_score_goes_step_by_step(monkeypatch):
    class Negative(Dot):
        def forward(self, s: Tensor, k: Tensor) -> Tensor:
            return -super().forward(s, k)

    calls = count_writes(monkeypatch)
    model, (x, keep, y) = make(RnnConfig(width=4, embedding=3, score="dot")), sentences()
    model.score = Negative(4, 4, 4)
    memory = model.encode(x, keep)
    model.step(y, model.start(memory, T), memory)
    assert calls == []


def test_a_sentence_with_nothing_to_look_at_does_no_harm():
    model, (x, keep, y) = make(RnnConfig(width=4, embedding=3, order="luong")), sentences()
    keep[2] = False
    memory = model.encode(x, keep)
    found = model.step(y, model.start(memory, T), memory).hidden
    torch.testing.assert_close(found, plain(model).step(y, model.start(memory, T), memory).hidden)
    found.square().sum().backward()
    assert all(bool(weight.grad.isfinite().all()) for weight in model.parameters() if weight.grad is not None)


def test_dropout_between_layers_follows_the_seed_and_keeps_the_mean():
    torch.manual_seed(0)
    stack = rnn.Stack(RnnConfig(layers=3, width=8, dropout=0.25), (3,))
    states = tuple((torch.zeros(50, 8),) for _ in range(3))

    def drops(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        found = stack.tensors(states, 40)
        assert "drop0" not in found
        return [found["drop1"], found["drop2"]]

    one, other = drops(1)
    assert torch.equal(one, drops(1)[0])
    assert not torch.equal(one, drops(2)[0])
    assert not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])
    assert one.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float(one.mean()) == pytest.approx(1.0, abs=0.02)
    stack.eval()
    assert "drop1" not in stack.tensors(states, 40)


def test_training_repeats_itself_to_the_bit():
    config = RnnConfig(cell="lstm", layers=2, width=16, embedding=8, dropout=0.3, order="luong")
    model, (x, keep, y) = make(config).float().train(), sentences()

    def gradients() -> list[Tensor]:
        torch.manual_seed(4)
        memory = model.encode(x, keep)
        loss = model.logits(model.step(y, model.start(memory, T), memory).hidden).square().mean()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    assert all(map(torch.equal, gradients(), gradients()))


def test_nothing_of_all_steps_positions_and_channels_is_kept():
    B, S, T, D = 3, 20, 20, 16
    model = build(RnnConfig(width=D, embedding=4, dropout=0.0), V, V)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        x = torch.randint(1, V, (B, S))
        memory = model.encode(x, x != 0)
        model.step(torch.randint(1, V, (B, T)), model.start(memory, T), memory)
    assert len(kept) > 20
    assert max(tensor.numel() for tensor in kept) <= 2 * S * B * 4 * D < B * S * T * D


def test_a_weight_that_changes_on_the_way_is_noticed():
    spec = DecoderSpec("gru", 1)
    tensors = given(spec, additive=False, feed=False)
    found = unrolled_decoder(spec, tensors).s.sum()
    with torch.no_grad():
        tensors["U0"].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.backward()


@pytest.mark.parametrize("additive", [True, False])
def test_autocast_does_not_reach_inside(additive):
    """In half precision only what is given: some CPUs die of products in it."""
    spec = DecoderSpec("lstm", 2, "after")
    tensors = {
        name: (tensor.float() if tensor.is_floating_point() else tensor).detach().requires_grad_(tensor.requires_grad)
        for name, tensor in given(spec, additive, feed=True).items()
    }
    rounded = tensors | {"keys": tensors["keys"].bfloat16(), "s0": tensors["s0"].bfloat16()}
    exact = tensors | {name: rounded[name].float() for name in ("keys", "s0")}
    wanted = unrolled_decoder(spec, exact)
    with torch.autocast("cpu", torch.bfloat16):
        found = unrolled_decoder(spec, rounded)
        gradients = torch.autograd.grad(found.known.sum(), (tensors["U0"], tensors["keys"]))
    assert torch.equal(found.known, wanted.known)
    assert torch.equal(gradients[0], torch.autograd.grad(wanted.known.sum(), tensors["U0"])[0])
    assert gradients[1].dtype == torch.float32


class _Own(nn.Module):
    """What a training step does besides: a loss."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        memory = self.model.encode(x, x != 0)
        return self.model.logits(self.model.step(y, self.model.start(memory, T), memory).hidden).square().mean()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", recurrence.LAYERS)
@pytest.mark.parametrize("order", ["bahdanau", "luong", "fixed"])
def test_training_depends_on_no_value_and_waits_for_no_device(order, cell, layers):
    """On a device without values, whoever asks for one fails: so a GPU's work can be recorded and played again."""
    shape = {"cell": cell, "layers": layers, "width": 4, "embedding": 3, "dropout": 0.2}
    config = FixedConfig(**shape) if order == "fixed" else RnnConfig(**shape, order=order)
    step = _Own(build(config, V, V)).train().to("meta")
    x, _, y = (tensor.to("meta") for tensor in sentences())
    step(x, y).backward()
    assert all(weight.grad is not None for weight in step.parameters())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("cell", recurrence.LAYERS)
@pytest.mark.parametrize("order", ["bahdanau", "luong", "fixed"])
def test_a_gpu_computes_the_same_without_waiting(order, cell):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    shape = {"cell": cell, "layers": 2, "width": 16, "embedding": 8, "dropout": 0.0}
    model = make(FixedConfig(**shape) if order == "fixed" else RnnConfig(**shape, order=order))
    x, _, y = sentences()
    here, there = (
        _Own(model),
        _Own(build(FixedConfig(**shape) if order == "fixed" else RnnConfig(**shape, order=order), V, V)),
    )
    there.double().load_state_dict(here.state_dict())
    there.eval().cuda()
    x_there, y_there = x.cuda(), y.cuda()
    here(x, y).backward()
    there(x_there, y_there).backward()
    there.zero_grad()
    torch.cuda.set_sync_debug_mode("error")
    try:
        there(x_there, y_there).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for wanted, found in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(found.grad.cpu(), wanted.grad)
