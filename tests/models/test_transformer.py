"""The Transformer beside PyTorch's own, its positions, its masks, what it shows, and where it drops out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.attention import causal, until
from heedful.config import TransformerConfig
from heedful.errors import ConfigError
from heedful.models import NeedWeights, Network, build, transformer
from heedful.models.layers import dropout
from heedful.models.transformer import ACTIVATIONS, FeedForward, MultiHead, positions

pytestmark = pytest.mark.usefixtures("one_thread")
D, H, INNER, SOURCE, TARGET = 12, 3, 20, 11, 9
B, S, T = 3, 7, 5
LENGTHS, TARGET_LENGTHS = [5, 7, 2], [5, 2, 4]
SHAPE = {"layers": 2, "decoder_layers": 3, "width": D, "heads": H, "inner": INNER}


def shake(module: nn.Module) -> nn.Module:
    """Move biases and norms away from 0 and 1, where a mistake would not show."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return module


def make(**own: object) -> Network:
    settings = {**SHAPE, "dropout": 0.0, **own}
    torch.manual_seed(0)
    return shake(build(TransformerConfig(**settings), SOURCE, TARGET)).eval()


def sentences() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x and keep, y and which of its words are there."""
    generator = torch.Generator().manual_seed(5)
    keep, there = until(torch.tensor(LENGTHS)), until(torch.tensor(TARGET_LENGTHS))
    x = torch.randint(1, SOURCE, (B, S), generator=generator).masked_fill(~keep, 0)
    return x, keep, torch.randint(1, TARGET, (B, T), generator=generator).masked_fill(~there, 0), there


# Positions


@pytest.mark.parametrize("t", [0, 1, 7, 100, 10_000])
def test_positions_are_the_papers(t):
    """PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) its cosine; ours has all sines first."""
    got = positions(10_001, 512)[t]
    for i in range(256):
        angle = t / 10000.0 ** (2 * i / 512)
        assert got[i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert got[256 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_positions_by_hand():
    # ω = 1 and 10000^(-2/4) = 0.01
    wanted = [[0.0, 0.0, 1.0, 1.0], [0.841471, 0.0099998, 0.540302, 0.99995]]
    torch.testing.assert_close(positions(2, 4), torch.tensor(wanted), atol=1e-6, rtol=0)


def test_a_position_does_not_depend_on_how_many_follow():
    assert torch.equal(positions(50, 6)[:20], positions(20, 6))


# Beside PyTorch's modules


def copy_attention(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.W.weight.data, ours.W.bias.data
    theirs.out_proj.load_state_dict(ours.W_o.state_dict())


def copy_rest(ours: nn.Module, theirs: nn.Module, arounds: tuple[str, ...]) -> None:
    theirs.linear1.load_state_dict(ours.forward_layer.W_1.state_dict())
    theirs.linear2.load_state_dict(ours.forward_layer.W_2.state_dict())
    for i, around in enumerate(arounds, start=1):
        getattr(theirs, f"norm{i}").load_state_dict(getattr(ours, around).LN.state_dict())


def pytorchs(model: Network, norm: str, activation: str) -> nn.Transformer:
    """nn.Transformer with our weights; with post-norm, without the norm that it adds after the last layer."""
    own = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre", "activation": activation}
    final = [nn.LayerNorm(D) if norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(D, H, INNER, **own), 2, final[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, INNER, **own), 3, final[1])
    theirs = nn.Transformer(D, H, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    for one, other in zip(model.encoder, encoder.layers, strict=True):
        copy_attention(one.inside, other.self_attn)
        copy_rest(one, other, ("around_inside", "around_forward"))
    for one, other in zip(model.decoder, decoder.layers, strict=True):
        copy_attention(one.inside, other.self_attn)
        copy_attention(one.across, other.multihead_attn)
        copy_rest(one, other, ("around_inside", "around_across", "around_forward"))
    if norm == "pre":
        encoder.norm.load_state_dict(model.LN_h.state_dict())
        decoder.norm.load_state_dict(model.LN_s.state_dict())
    return theirs.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_equals_pytorchs_transformer(norm, activation):
    model = make(norm=norm, activation=activation)
    theirs = pytorchs(model, norm, activation)
    x, keep, y, there = sentences()
    e_x = model.source.weight[x] * math.sqrt(D) + positions(S, D)
    e_y = model.embedding.weight[y] * math.sqrt(D) + positions(T, D)
    memory = model.encode(x, keep)
    h = theirs.encoder(e_x, src_key_padding_mask=~keep)
    torch.testing.assert_close(memory.h[keep], h[keep], atol=1e-5, rtol=0)
    wanted = theirs(
        e_x,
        e_y,
        tgt_mask=~causal(T)[0],
        src_key_padding_mask=~keep,
        tgt_key_padding_mask=~there,
        memory_key_padding_mask=~keep,
    )
    hidden = model.step(y, model.start(memory, T), memory).hidden
    torch.testing.assert_close(hidden[there], wanted[there], atol=1e-5, rtol=0)
    assert wanted[there].std() > 0.1


@torch.no_grad()
def test_heads_equal_pytorchs_with_their_weights():
    attention = shake(MultiHead(TransformerConfig(**SHAPE)))
    theirs = nn.MultiheadAttention(D, H, batch_first=True).eval()
    copy_attention(attention, theirs)
    s, h, keep = torch.randn(B, T, D), torch.randn(B, S, D), until(torch.tensor(LENGTHS))
    for look, (q, k, v), mask in (
        ((s, h, h), (attention.query(s), *attention.keys(h)), keep),  # across
        ((h, h, h), attention.project(h), keep),  # inside
        ((h, h, h), attention.project(h), causal(S) & keep[:, None]),
    ):
        blocked = {"key_padding_mask": ~keep}
        if mask.dim() == 3:
            blocked["attn_mask"] = ~causal(S)[0]
        wanted, wanted_weights = theirs(*look, average_attn_weights=False, **blocked)
        found, weights = attention(q, k, v, mask)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(weights, wanted_weights, atol=1e-6, rtol=0)
        assert weights.shape == (B, H, *found.shape[1:2], S)


@torch.no_grad()
def test_one_head_by_hand():
    attention = MultiHead(TransformerConfig(width=2, heads=1, inner=1))
    attention.W.weight.copy_(torch.cat([math.log(2) * math.sqrt(2) * torch.eye(2), torch.eye(2), 10 * torch.eye(2)]))
    attention.W.bias.zero_()
    attention.W_o.load_state_dict({"weight": torch.eye(2), "bias": torch.tensor([0.0, 1.0])})
    c, weights = attention(*attention.project(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])), None)
    # each asks log 2 of itself and 0 of the other: 2 : 1
    torch.testing.assert_close(weights, torch.tensor([[[[2 / 3, 1 / 3], [1 / 3, 2 / 3]]]]))
    torch.testing.assert_close(c, torch.tensor([[[20 / 3, 13 / 3], [10 / 3, 23 / 3]]]))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@torch.no_grad()
def test_feed_forward(activation):
    functions = {
        "relu": lambda x: x.clamp(min=0),
        "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        "silu": lambda x: x / (1 + torch.exp(-x)),
    }
    layer, x = shake(FeedForward(TransformerConfig(**SHAPE, activation=activation))), torch.randn(B, T, D)
    inner = functions[activation](x @ layer.W_1.weight.T + layer.W_1.bias)
    torch.testing.assert_close(layer(x), inner @ layer.W_2.weight.T + layer.W_2.bias)


# What it shows


@torch.no_grad()
def test_the_encoder_shows_its_self_attention():
    model, (x, keep, _, _) = make(), sentences()
    assert model.encode(x, keep).weights is None
    memory = model.encode(x, keep, NeedWeights())
    assert memory.weights.shape == (B, 2, H, S, S)
    torch.testing.assert_close(memory.weights.sum(-1), torch.ones(B, 2, H, S))
    assert not memory.weights.masked_select(~keep[:, None, None, None]).any()
    torch.testing.assert_close(memory.h[keep], model.encode(x, keep).h[keep], rtol=0, atol=1e-5)
    # each layer shows its own: the lowest's weights are worked out from the words alone
    layer = model.encoder[0]
    e = (model.source.weight[x] * math.sqrt(D) + positions(S, D)) * keep[..., None]  # padding is read as zeros
    q, k, _ = layer.inside.project(layer.around_inside.LN(e))
    scores = torch.einsum("bhtc,bhsc->bhts", q, k) / math.sqrt(D / H)
    wanted = torch.softmax(scores.masked_fill(~keep[:, None, None], -torch.inf), -1)
    torch.testing.assert_close(memory.weights[:, 0], wanted)
    assert not torch.allclose(memory.weights[:, 0], memory.weights[:, 1], atol=0.01)
    rows = torch.tensor([2, 0])
    assert torch.equal(memory.select(rows).weights, memory.weights[rows])


@torch.no_grad()
def test_the_decoder_shows_its_self_attention():
    model, (x, keep, y, _) = make(), sentences()
    memory = model.encode(x, keep)
    whole = model.step(y, model.start(memory, T), memory, NeedWeights(self_attention=True))
    assert whole.weights.shape == (B, 3, H, T, T)
    assert not whole.weights.triu(1).any()
    torch.testing.assert_close(whole.weights.sum(-1), torch.ones(B, 3, H, T))
    state = model.start(memory, T)
    for t in range(T):
        step = model.step(y[:, t : t + 1], state, memory, NeedWeights(self_attention=True))
        state = step.state
        torch.testing.assert_close(step.weights[:, :, :, 0], whole.weights[:, :, :, t, : t + 1])
    across = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert across.weights.shape == (B, 3, H, T, S)
    torch.testing.assert_close(across.hidden, whole.hidden, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_sentence_with_nothing_to_look_at_gives_zeros(norm):
    model, (x, keep, y, _) = make(norm=norm), sentences()
    keep[1] = False
    memory = model.encode(x, keep, NeedWeights())
    hidden, _, weights = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert not memory.weights[1].any()
    assert not weights[1].any()
    assert bool(weights[0].any())
    hidden.square().sum().backward()
    assert bool(hidden.isfinite().all())
    assert all(bool(w.grad.isfinite().all()) for w in model.parameters())


# Dropout


def dropped(monkeypatch: pytest.MonkeyPatch, **own: float) -> list[tuple[float, tuple[int, ...]]]:
    """Where something is dropped in a pass through one layer each: with what probability, in which shape."""
    found: list[tuple[float, tuple[int, ...]]] = []
    attention = F.scaled_dot_product_attention

    def left_out(x: Tensor, p: float) -> Tensor:
        if p:
            found.append((p, tuple(x.shape)))
        return dropout(x, p)

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, p: float, is_causal: bool) -> Tensor:
        if p:
            found.append((p, (*q.shape[:3], k.shape[2])))
        return attention(q, k, v, bias, p, is_causal=is_causal)

    monkeypatch.setattr(transformer, "dropout", left_out)
    monkeypatch.setattr(transformer, "dropout", left_out)
    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    model, (x, keep, y, _) = make(layers=1, decoder_layers=1, **own).train(), sentences()
    memory = model.encode(x, keep)
    model.step(y, model.start(memory, T), memory)
    return found


def test_dropout_is_where_the_paper_has_it(monkeypatch):
    # the sum of word and position, and what each of the sub-layers adds: two in the encoder, three in the decoder
    assert dropped(monkeypatch, dropout=0.3) == [(0.3, (B, S, D))] * 3 + [(0.3, (B, T, D))] * 4


def test_dropout_of_weights_and_inside(monkeypatch):
    shapes = [(B, H, S, S), (B, H, T, T), (B, H, T, S)]
    assert dropped(monkeypatch, attention_dropout=0.3) == [(0.3, shape) for shape in shapes]
    assert dropped(monkeypatch, inner_dropout=0.3) == [(0.3, (B, S, INNER)), (0.3, (B, T, INNER))]


def test_weights_are_shown_whole_in_training():
    model, (x, keep, y, _) = make(attention_dropout=0.5).train(), sentences()
    memory = model.encode(x, keep, NeedWeights())
    _, _, weights = model.step(y, model.start(memory, T), memory, NeedWeights())
    torch.testing.assert_close(memory.weights.sum(-1), torch.ones(B, 2, H, S))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 3, H, T))
    model.eval()
    whole = model.encode(x, keep, NeedWeights())
    torch.testing.assert_close(memory.weights[:, 0], whole.weights[:, 0])
    assert not torch.allclose(memory.h, whole.h)  # and yet some were left out of the sum


# Words


def test_one_table_for_both_languages():
    model = shake(build(TransformerConfig(**SHAPE, tied="all", dropout=0.0), SOURCE, SOURCE)).eval()
    tables = [name for name, w in model.named_parameters() if w.shape[0] == SOURCE]
    assert tables == ["embedding.weight"]
    other = build(TransformerConfig(**SHAPE, tied="target", dropout=0.0), SOURCE, SOURCE).eval()
    other.load_state_dict({**model.state_dict(), "source.weight": model.embedding.weight})
    x, keep, y, _ = sentences()
    memory, wanted = model.encode(x, keep), other.encode(x, keep)
    torch.testing.assert_close(memory.h, wanted.h)
    hidden = model.step(y, model.start(memory, T), memory).hidden
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embedding.weight.T)


@pytest.mark.parametrize(("tied", "bias"), [("target", False), ("target", True), ("none", False), ("none", True)])
def test_words_are_written(tied, bias):
    model, hidden = make(tied=tied, bias=bias), torch.randn(B, T, D)
    W = model.embedding.weight if tied == "target" else model.W_o
    b = model.b_o if bias else torch.zeros(TARGET)
    torch.testing.assert_close(model.logits(hidden), hidden @ W.T + b)
    assert ("W_o" in model.state_dict()) == (tied == "none")
    assert ("b_o" in model.state_dict()) == bias


@torch.no_grad()
def test_word_vectors_are_scaled_or_not():
    scaled, plain = make(), make(scale=False)
    plain.load_state_dict(scaled.state_dict())
    plain.source.weight.mul_(math.sqrt(D))
    x, keep, _, _ = sentences()
    torch.testing.assert_close(plain.encode(x, keep).h, scaled.encode(x, keep).h)


def test_a_new_model_is_near_the_uniform_distribution():
    torch.manual_seed(0)
    model = build(TransformerConfig(dropout=0.0), 500, 500).eval()
    x = torch.randint(1, 500, (4, 9))
    memory = model.encode(x, x > 0)
    logits = model.logits(model.step(x, model.start(memory, 9), memory).hidden)
    # neither asleep nor certain before it has learned anything
    assert 0.3 < logits.std().item() < 2.0
    assert F.cross_entropy(logits.flatten(0, 1), x.flatten()).item() < math.log(500) + 1.5


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"heads": 5}, r"model\.width is 12.* 5 .*model\.heads"),
        ({"width": 15}, r"model\.width is 15.*even"),
        (
            {"tied": "all"},
            r"model\.tied=all.* 11 .* 9 .*model\.tied=",
        ),
    ],
)
def test_settings_that_cannot_be(own, words):
    with pytest.raises(ConfigError, match=words):
        make(**own)
