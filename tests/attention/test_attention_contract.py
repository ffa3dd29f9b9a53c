"""The contract of attention: every implementation computes what the definition in `heedful.attention` says.

Each takes states s (B, T, D), keys k (B, S, D), values (B, S, D) and keep (B, S), and gives the context (B, T, D) and,
where it has them, the weights (B, T, S). To add an implementation, add a line to IMPLEMENTATIONS. The models, which
choose among them, are held to the same in the second half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from small_networks import filled
from torch import Tensor
from torch.nn import functional as F

import heedful.attention as definition
from heedful.attention import until
from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.fused.cpu.recurrence import AdditiveSteps, AttentionSteps, DotSteps
from heedful.fused.cpu.transformer import FastDecoder, FastLayers, fast_encode
from heedful.fused.triton.additive import kernel_attend
from heedful.fused.triton.recurrent_attention import attend_step
from heedful.fused.triton.scaled import scaled_attend
from heedful.fused.triton.unrolled import JoinedAdditive, KernelAdditive, KernelDot
from heedful.models import Memory, NeedWeights, Network
from heedful.models.transformer import Cache, DecoderLayer, EncoderLayer, Mask, MultiHead

pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
    pytest.mark.usefixtures("one_thread"),
]
Result = tuple[Tensor, Tensor | None]


class Problem(NamedTuple):
    """What an implementation is given; W (D, D) and v (D,) are the weights of the additive score."""

    s: Tensor
    k: Tensor
    values: Tensor
    W: Tensor
    v: Tensor
    keep: Tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self[:-1]

    def to(self, *where: Any) -> Problem:
        """The same elsewhere, or in another precision; what is no mask may be learned."""
        return Problem(*(x.detach().to(*where).requires_grad_() for x in self.tensors), self.keep.to(self.keep.device))


def problem(lengths: list[int], T: int, S: int, D: int) -> Problem:
    generator = torch.Generator().manual_seed(0)
    shapes = ((len(lengths), T, D), (len(lengths), S, D), (len(lengths), S, D), (D, D), (D,))
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    tensors[0] = F.layer_norm(tensors[0], (D,), eps=0.0)  # what a Transformer's layer queries with
    return Problem(*tensors, until(torch.tensor(lengths), S))


def defined(score: str, p: Problem) -> Result:
    """The definition."""
    match score:
        case "additive":
            return definition.additive_attend(F.linear(p.s, p.W), p.k, p.v, p.values, p.keep)
        case "dot":
            return definition.attend_by(definition.dot, p.s, p.k, p.values, p.keep)
    return definition.attend_by(definition.scaled, p.s, p.k, p.values, p.keep)


class _Steps(torch.autograd.Function):
    """The steps of an unrolled decoder's attention, forward and backward, as `unrolled_decoder` takes them."""

    @staticmethod
    def make(ctx: Any, tensors: tuple[Tensor, ...], saved: tuple[Tensor, ...]) -> AttentionSteps:
        s, k, values, W, v = tensors
        memory = (k, values, ctx.keep)
        if issubclass(ctx.kind, AdditiveSteps):
            return ctx.kind(memory, s.transpose(0, 1).contiguous(), saved, (W, v))
        return ctx.kind(memory, s.transpose(0, 1).contiguous(), saved, ctx.scale)

    @staticmethod
    def forward(ctx: Any, kind: type, scale: float, keep: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        s, k, values, W, _ = tensors
        ctx.kind, ctx.scale, ctx.keep = kind, scale, keep
        saved = AttentionSteps.allocate(s.shape[1], k, values)
        if kind is JoinedAdditive:  # whoever joins products has computed the queries
            saved[0].copy_(F.linear(s, W).transpose(0, 1))
        steps = _Steps.make(ctx, tensors, saved)
        for t in range(s.shape[1]):
            steps.forward(t)
        ctx.save_for_backward(*tensors, *steps.saved)
        return steps.c.transpose(0, 1), steps.weights.transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, dc: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        tensors, saved = ctx.saved_tensors[:5], ctx.saved_tensors[5:]
        steps = _Steps.make(ctx, tensors, saved)
        ds = torch.zeros_like(steps.s)
        steps.begin_backward(ds, dc.transpose(0, 1).contiguous(), d_weights.transpose(0, 1).contiguous())
        for t in reversed(range(len(ds))):
            steps.backward(t)
        if ctx.kind is JoinedAdditive:
            ds += steps.dq @ tensors[3]
        d_keys, own = steps.d_keys(), steps.d_weights_of_score()
        return None, None, None, ds.transpose(0, 1), d_keys, steps.d_values(), own.get("W_q"), own.get("v")


def steps(kind: type[AttentionSteps], scale: Callable[[int], float] = lambda _: 1.0) -> Callable[[Problem], Result]:
    return lambda p: _Steps.apply(kind, scale(p.s.shape[-1]), p.keep, *p.tensors)


def one_query_at_a_time(score: str) -> Callable[[Problem], Result]:
    """`attend_step`, all queries of a sentence being hypotheses of it."""

    def run(p: Problem) -> Result:
        B, T, D = p.s.shape
        q = (F.linear(p.s, p.W) if score == "additive" else p.s).reshape(B * T, D)
        v, scale = (p.v, 1.0) if score == "additive" else (None, D**-0.5 if score == "scaled" else 1.0)
        c, weights = attend_step(q, p.k, p.values, p.keep, v, scale)
        return c.view(B, T, -1), weights.view(B, T, -1)

    return run


def _identity(module: torch.nn.Module, D: int) -> None:
    """Make all of a layer but its attention do nothing: it adds its context to its input."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.fill_(1.0) if name.endswith("LN.weight") else weight.zero_()
        for part in module.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.eps = 0.0
            if isinstance(part, MultiHead):
                part.W.weight.copy_(torch.eye(D).repeat(3, 1))
                part.W_o.weight.copy_(torch.eye(D))


def config(D: int) -> Any:
    """The settings of a layer with one head, of any width."""
    drop = {"dropout": 0.0, "attention_dropout": 0.0, "inner_dropout": 0.0}
    return SimpleNamespace(width=D, channels=D, inner=1, norm="pre", activation="relu", cell="self-attention", **drop)


def multi_head(look: bool) -> Callable[[Problem], Result]:
    """The Transformer's attention: PyTorch's, or with weights."""

    def run(p: Problem) -> Result:
        heads = MultiHead(config(p.s.shape[-1])).to(p.s)
        _identity(heads, p.s.shape[-1])
        with torch.no_grad():
            heads.W_o.weight.copy_(torch.eye(p.s.shape[-1]))
        k, values = (x.masked_fill(~p.keep[..., None], 0) for x in (p.k, p.values))  # as the model's padding is
        c, weights = heads.attend(p.s[:, None], k[:, None], values[:, None], Mask.of(p.keep, p.s), look)
        return c, None if weights is None else weights[:, 0]

    return run


@torch.no_grad()
def decode_fast(p: Problem) -> Result:
    """`FastDecoder`, all queries of a sentence being hypotheses of it."""
    B, T, D = p.s.shape
    layer = DecoderLayer(config(D)).to(p.s)
    _identity(layer, D)
    layer.inside.W_o.weight.zero_()
    memory = Memory(p.values, p.keep, (p.k[:, None], p.values[:, None]))
    s = p.s.reshape(B * T, D)
    return (FastDecoder(FastLayers([], [layer], D, True))(s, Cache(1, 1, lambda n: s), memory) - s).view(B, T, D), None


@torch.no_grad()
def encode_fast(p: Problem) -> Result:
    """`fast_encode`."""
    layer = EncoderLayer(config(p.s.shape[-1])).to(p.s)
    _identity(layer, p.s.shape[-1])
    mask = Mask.of(p.keep, p.s)
    return fast_encode(p.s, FastLayers([layer], [], p.s.shape[-1], True), mask.bias, mask.some) - p.s, None


def watched(how: str) -> Callable[[Problem], Result]:
    """PyTorch's attention with weights that are read afterwards."""

    def run(p: Problem) -> Result:
        k, values = (x.masked_fill(~p.keep[..., None], 0) for x in (p.k, p.values))  # PyTorch's own reads all
        c, weights = scaled_attend(p.s[:, None], k[:, None], values[:, None], keep=p.keep, how=how)
        return c[:, 0], weights.block()[:, 0]

    return run


@dataclass(frozen=True)
class Implementation:
    """What computes attention: by which score, whether it has gradients (of weights, too), in which precision."""

    run: Callable[[Problem], Result]
    score: str
    gradients: bool = True
    weights_learn: bool = True
    dtype: torch.dtype = torch.float64
    kernel: bool = False
    self_attention: bool = False


IMPLEMENTATIONS = {
    "unrolled additive": Implementation(steps(AdditiveSteps), "additive"),
    "unrolled dot": Implementation(steps(DotSteps), "dot"),
    "unrolled scaled": Implementation(steps(DotSteps, lambda D: D**-0.5), "scaled"),
    "unrolled additive by kernels": Implementation(steps(KernelAdditive), "additive", kernel=True),
    "unrolled additive by kernels, joined": Implementation(steps(JoinedAdditive), "additive", kernel=True),
    "unrolled dot by kernels": Implementation(steps(KernelDot), "dot", kernel=True),
    "unrolled scaled by kernels": Implementation(steps(KernelDot, lambda D: D**-0.5), "scaled", kernel=True),
    "additive kernels": Implementation(
        lambda p: kernel_attend(F.linear(p.s, p.W), p.k, p.v, p.values, p.keep),
        "additive",
        dtype=torch.float32,
        kernel=True,
    ),
    "additive step by a kernel": Implementation(
        one_query_at_a_time("additive"), "additive", gradients=False, kernel=True
    ),
    "dot step by a kernel": Implementation(one_query_at_a_time("dot"), "dot", gradients=False, kernel=True),
    "scaled step by a kernel": Implementation(one_query_at_a_time("scaled"), "scaled", gradients=False, kernel=True),
    "multi-head": Implementation(multi_head(look=False), "scaled"),
    "multi-head with weights": Implementation(multi_head(look=True), "scaled"),
    "fast_decode": Implementation(decode_fast, "scaled", gradients=False),
    "fast_encode": Implementation(encode_fast, "scaled", gradients=False, self_attention=True),
    "scaled_attend": Implementation(watched("reference"), "scaled", weights_learn=False),
    "scaled_attend by kernels": Implementation(
        watched("kernel"), "scaled", weights_learn=False, dtype=torch.float32, kernel=True
    ),
}
NEAR = {torch.float64: {"rtol": 1e-8, "atol": 1e-10}, torch.float32: {"rtol": 1e-3, "atol": 2e-5}}


@pytest.fixture(params=IMPLEMENTATIONS)
def one(request: pytest.FixtureRequest, device: str) -> Implementation:
    made = IMPLEMENTATIONS[request.param]
    where = device if made.kernel else "cpu"
    return replace(made, run=lambda p: made.run(Problem(*(x.to(where) for x in p))))


def check(one: Implementation, p: Problem) -> None:
    """Values and gradients are those of the definition in float64."""
    if one.self_attention:  # positions are queries, keys and values at once
        h = F.layer_norm(p.k, p.k.shape[-1:], eps=0.0)
        p = p._replace(s=h, k=h, values=h)
    exact, given = p.to(torch.float64), p.to(one.dtype)
    context, weights = defined(one.score, exact)
    found, found_weights = one.run(given)
    rows = p.keep if one.self_attention else slice(None)
    torch.testing.assert_close(found.double().cpu()[rows], context[rows], **NEAR[one.dtype])
    if found_weights is not None:
        torch.testing.assert_close(found_weights.double().cpu(), weights, **NEAR[one.dtype])
    if not one.gradients:
        return
    generator = torch.Generator().manual_seed(1)
    wishes = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in (context, weights)]

    def slopes(result: Result, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        learn = [(result[0], wishes[0])]
        if one.weights_learn and found_weights is not None and result[1] is not None:
            learn.append((result[1], wishes[1]))
        total = sum((x * wish.to(x)).sum() for x, wish in learn)
        gradients = torch.autograd.grad(total, inputs, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients, strict=True)]

    wanted = slopes((context, weights), exact.tensors)
    for name, gradient, wish in zip(
        Problem._fields, slopes((found, found_weights), given.tensors), wanted, strict=False
    ):
        torch.testing.assert_close(
            gradient.double().cpu(), wish, **NEAR[one.dtype], msg=lambda m, n=name: f"gradient of {n}: {m}"
        )


def test_values_and_gradients(one: Implementation) -> None:
    check(one, problem([4, 4], T=3, S=4, D=6))


def test_masks(one: Implementation) -> None:
    p = problem([5, 1, 3], T=2, S=5, D=4)
    check(one, p)
    check(one, p._replace(keep=torch.tensor([[True, False, True, False, True], [False] * 4 + [True], [True] * 5])))


def test_a_row_with_nothing_to_attend_to_gives_zeros(one: Implementation) -> None:
    p = problem([3, 0, 1], T=2, S=3, D=4)
    check(one, p)
    if not one.self_attention:
        found, weights = one.run(p.to(one.dtype))
        assert not found[1].any()
        assert weights is None or not weights[1].any()


def test_padding_may_hold_anything(one: Implementation) -> None:
    p = problem([4, 2, 0], T=2, S=4, D=4)
    if one.self_attention:
        pytest.skip("its padding is what the model embeds: see test_a_model_does_not_read_padding")
    for poison in (float("nan"), float("inf")):
        blocked = ~p.keep[..., None]
        check(one, p._replace(k=p.k.masked_fill(blocked, poison), values=p.values.masked_fill(blocked, poison)))


@pytest.mark.parametrize(("T", "S", "D"), [(1, 1, 2), (1, 7, 3), (5, 2, 13), (2, 33, 17)])
def test_odd_sizes(one: Implementation, T: int, S: int, D: int) -> None:
    check(one, problem([S, max(1, S // 2)], T, S, D))


def test_scores_far_apart_overflow_nowhere(one: Implementation) -> None:
    p = problem([3, 2], T=2, S=3, D=4)
    far = 1e3 if one.dtype == torch.float64 and not one.self_attention else 10.0
    check(replace(one, gradients=False), p._replace(k=p.k * far))


# Models: what they choose among gives what the plain way gives.

SIZES = {"width": 6, "dropout": 0.0}
MODELS: dict[str, ModelConfig] = {
    "bahdanau additive gru": RnnConfig(**SIZES, embedding=3, encoder_width=3, score_width=5),
    "bahdanau dot lstm": RnnConfig(**SIZES, embedding=3, score="dot", cell="lstm"),
    "luong scaled gru": RnnConfig(**SIZES, embedding=3, score="scaled", order="luong"),
    "luong additive rnn": RnnConfig(**SIZES, embedding=3, order="luong", feed=False, cell="rnn"),
    "luong general lstm": RnnConfig(**SIZES, embedding=3, score="general", order="luong", cell="lstm", layers=2),
    "fixed gru": FixedConfig(**SIZES, embedding=3),
    "transformer pre": TransformerConfig(**SIZES, heads=2, inner=5, layers=2),
    "transformer post": TransformerConfig(**SIZES, heads=3, inner=5, layers=2, norm="post", activation="gelu"),
}
V, T = 9, 4


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Network:
    return filled(MODELS[request.param], V, V)


def batch(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    keep = until(torch.tensor(lengths))
    x = torch.randint(1, V, keep.shape, generator=generator).masked_fill(~keep, 0)
    return x, keep, torch.randint(1, V, (len(lengths), T), generator=generator)


def plainly(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> Tensor:
    """By the definition: step by step, with weights."""
    memory = model.encode(x, keep, NeedWeights())
    state, hidden = model.start(memory, T), []
    for t in range(T):
        step = model.step(y[:, t : t + 1], state, memory, NeedWeights())
        state = step.state
        hidden.append(step.hidden)
    return model.logits(torch.cat(hidden, 1))


def trained(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> Tensor:
    """As training does: all tokens in one step, with gradients."""
    memory = model.encode(x, keep)
    return model.logits(model.step(y, model.start(memory, T), memory).hidden)


@torch.no_grad()
def decoded(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> Tensor:
    """As decoding does: one token a step, without weights and gradients."""
    memory = model.encode(x, keep)
    state, hidden = model.start(memory, T), []
    for t in range(T):
        step = model.step(y[:, t : t + 1], state, memory)
        state = step.state
        hidden.append(step.hidden)
    return model.logits(torch.cat(hidden, 1))


@torch.no_grad()
def read_again(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> Tensor:
    """As re-reading does: all tokens in one step, with weights, without gradients."""
    memory = model.encode(x, keep)
    return model.logits(model.step(y, model.start(memory, T), memory, NeedWeights()).hidden)


@pytest.mark.parametrize("lengths", [[5, 5], [5, 1, 3], [3, 0, 2]], ids=["whole", "padded", "empty"])
@pytest.mark.parametrize("way", [trained, decoded, read_again])
def test_a_model_computes_the_same_every_way(model: Network, way: Callable[..., Tensor], lengths: list[int]) -> None:
    """One step of T tokens is T steps of one, in training, decoding and re-reading."""
    given = batch(lengths)
    with torch.no_grad():
        wanted = plainly(model, *given)
    torch.testing.assert_close(way(model, *given), wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("lengths", [[5, 1, 3], [3, 0, 2]], ids=["padded", "empty"])
def test_training_has_the_gradients_of_the_definition(model: Network, lengths: list[int]) -> None:
    given = batch(lengths)
    wish = torch.randn(len(lengths), T, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = dict(model.named_parameters())
    found, wanted = (
        torch.autograd.grad((way(model, *given) * wish).sum(), list(weights.values()), allow_unused=True)
        for way in (trained, plainly)
    )
    for name, gradient, other in zip(weights, found, wanted, strict=True):
        assert (gradient is None) == (other is None), name
        if gradient is not None:
            torch.testing.assert_close(gradient, other, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("way", [trained, decoded, read_again, plainly])
def test_a_model_does_not_read_padding(model: Network, way: Callable[..., Tensor]) -> None:
    """The vector of <pad> may be NaN, and gets no gradient."""
    given = batch([5, 1, 0])
    wanted = way(model, *given)
    table = model.source_words.weight  # type: ignore[union-attr]
    with torch.no_grad():
        table[0] = float("nan")
    found = way(model, *given)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    if way is trained:
        found.sum().backward()
        assert all(weight.grad is None or bool(weight.grad.isfinite().all()) for weight in model.parameters())
        assert not table.grad[0].any()
