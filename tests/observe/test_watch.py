"""Watching models that are not ours: the same output bit for bit, and the weights of eager attention."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import heedful
from heedful.errors import ConfigError
from heedful.fused.triton.scaled import scaled_attend
from heedful.observe import AttentionCall, WatchedCalls, watch

SMALL = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16, "intermediate_size": 16}
MARIAN = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))}
MARIAN |= {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 40, "pad_token_id": 0}
MARIAN |= {"decoder_start_token_id": 0, "max_position_embeddings": 16}
IDS = torch.randint(5, 40, (2, 11), generator=torch.Generator().manual_seed(0))
RIGHT, LEFT = torch.ones_like(IDS), torch.ones_like(IDS)
RIGHT[1, 7:] = 0
LEFT[1, :4] = 0


def made(kind: str, way: str) -> nn.Module:
    """A small model of `transformers` with random weights, the same for both ways."""
    import transformers as t

    config, model = {
        "llama": (t.LlamaConfig(**SMALL, num_key_value_heads=2), t.LlamaForCausalLM),
        "gpt2": (t.GPT2Config(vocab_size=40, n_layer=2, n_head=4, n_embd=16, n_positions=16), t.GPT2LMHeadModel),
        "bert": (t.BertConfig(**SMALL), t.BertModel),
        "marian": (t.MarianConfig(**MARIAN), t.MarianMTModel),
    }[kind]
    torch.manual_seed(0)
    return model._from_config(config, attn_implementation=way).eval()


def run(model: nn.Module, kind: str, mask: Tensor | None, **more: Any) -> Any:
    given: dict[str, Any] = {"attention_mask": mask, **more}
    if kind == "marian":
        given |= {"decoder_input_ids": IDS[:, :5]}
    with torch.no_grad():
        return model(IDS, **given, **({} if kind == "bert" else {"use_cache": False}))


def tensors(output: Any) -> list[Tensor]:
    return [x for x in output.values() if isinstance(x, Tensor)]


@pytest.mark.parametrize(
    ("kind", "mask"),
    [("llama", None), ("llama", LEFT), ("gpt2", None), ("gpt2", RIGHT), ("bert", RIGHT), ("marian", RIGHT)],
    ids=lambda x: "" if x is None else "left" if x is LEFT else "right" if x is RIGHT else x,
)
def test_models_of_transformers(kind: str, mask: Tensor | None) -> None:
    model, eager = made(kind, "sdpa"), made(kind, "eager")
    before = run(model, kind, mask)
    with heedful.observe.watch(model) as seen:
        during = run(model, kind, mask)
    after = run(model, kind, mask)
    for one, other, third in zip(tensors(before), tensors(during), tensors(after), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
    told = run(eager, kind, mask, output_attentions=True)
    if kind == "marian":
        assert seen.modules[-1] == "model.decoder.layers.1.encoder_attn"
        groups = {"*encoder.layers*": told.encoder_attentions, "*decoder*self_attn": told.decoder_attentions}
        groups |= {"*encoder_attn": told.cross_attentions}
    else:
        groups = {"*": told.attentions}
    assert len(seen) == sum(map(len, groups.values()))
    for pattern, attentions in groups.items():
        for call, wanted in zip(seen[pattern], attentions, strict=True):
            found = call.weights.block()
            there = found.sum(-1) > 0
            # Eager attention spreads the weight of a query with nothing to look at; here it is 0.
            assert there.all() or mask is LEFT
            assert torch.equal(there[1, 0], LEFT[1] > 0) or mask is not LEFT
            torch.testing.assert_close(found[there], wanted[there], rtol=0.0, atol=1e-6)


def test_words_written_one_by_one() -> None:
    """With a cache the last query sees all keys so far; the reader has them as they were."""
    model = made("llama", "sdpa")
    with watch(model, only="*layers.1*") as seen:
        words = model.generate(IDS, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert [call.shape for call in seen] == [(2, 4, 11, 11), (2, 4, 1, 12), (2, 4, 1, 13)]
    assert torch.equal(words, model.generate(IDS, max_new_tokens=3, do_sample=False, pad_token_id=0))
    torch.testing.assert_close(seen[2].weights.block().sum(-1), torch.ones(2, 4, 1))


def test_multihead_attention_of_pytorch() -> None:
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, 5, 16)
    past = torch.ones(5, 5, dtype=torch.bool).triu(1)
    output = model(x, x, x, need_weights=False, attn_mask=past)[0]
    with watch(model) as seen:
        assert torch.equal(model(x, x, x, need_weights=False, attn_mask=past)[0], output)
        assert len(seen) == 1
        weights = model(x, x, x, attn_mask=past)[1]  # which needs no fused attention
    assert len(seen) == 1
    torch.testing.assert_close(seen[0].weights.mean(), weights, rtol=0.0, atol=1e-6)


def test_transformer_encoder_of_pytorch() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 5, 16)
    output = model(x)
    with watch(model) as seen:
        assert torch.equal(model(x), output)
    assert seen.modules == ["layers.0.self_attn", "layers.1.self_attn"]
    model.eval()
    with torch.no_grad():
        fast = model(x)  # by a kernel for the whole layer, where PyTorch has no attention of its own
        with watch(model) as seen:
            torch.testing.assert_close(model(x), fast)
    assert len(seen) == 2


class Two(nn.Module):
    """Attention twice, with dropout, and perhaps a mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({"a": Ask(), "b": Ask()})

    def forward(self, x: Tensor, dropout: float = 0.0, fail: bool = False) -> Tensor:
        x = self.inner["a"](x, dropout)
        if fail:
            raise ValueError("no")
        return self.inner["b"](x, dropout)


class Ask(nn.Module):
    def forward(self, x: Tensor, dropout: float = 0.0) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=dropout)


def given(*shape: int) -> Tensor:
    return torch.randn(*(shape or (1, 2, 3, 4)), generator=torch.Generator().manual_seed(1))


def test_dropout_is_told_and_weights_are_from_before_it() -> None:
    model, x = Two(), given()
    torch.manual_seed(3)
    output = model(x, 0.5)
    torch.manual_seed(3)
    with watch(model) as seen:
        assert torch.equal(model(x, 0.5), output)
    assert [call.dropout for call in seen] == [0.5, 0.5]
    torch.testing.assert_close(seen[0].weights.block().sum(-1), torch.ones(1, 2, 3))


def test_gradients_are_the_same() -> None:
    model, x = Two(), given().requires_grad_()
    (wanted,) = torch.autograd.grad(model(x).sum(), x)
    with watch(model) as seen:
        (found,) = torch.autograd.grad(model(x).sum(), x)
    assert torch.equal(found, wanted)
    assert not seen[0].weights.block().requires_grad


def test_all_is_as_before_after_a_mistake() -> None:
    model, x = Two(), given()
    with pytest.raises(ValueError, match="no"), watch(model) as seen:
        model(x, fail=True)
    assert seen.modules == ["inner.a"]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    model(x)
    assert len(seen) == 1
    with watch(model) as seen:
        with pytest.raises(ValueError, match="no"):
            model(x, fail=True)
        F.scaled_dot_product_attention(x, x, x)  # of no module, though one was left by an error
        model(x)
    assert [call.module for call in seen] == ["inner.a", "inner.a", "inner.b"]
    assert [call.number for call in seen] == [0, 1, 0]


def test_one_inside_the_other() -> None:
    model, x = Two(), given()
    with watch(model) as outer:
        with watch(model.inner["b"]) as inner:
            model(x)
        model(x)
    assert [call.module for call in outer] == ["inner.a", "inner.b"] * 2
    assert [call.module for call in inner] == [""]
    assert torch.equal(inner[0].weights.block(), outer[1].weights.block())


def test_ours_inside_it() -> None:
    class Ours(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return scaled_attend(x, x, x, causal=True)[0]

    with pytest.warns(UserWarning, match="scaled_dot_product_attention"), watch(Ours()) as seen:
        own = scaled_attend(given(), given(), given(), causal=True)[1]
    assert len(seen) == 0  # not called by the model
    model = Ours()
    with watch(model) as seen:
        model(given())
    assert torch.equal(seen[0].weights.block(), own.block())


def test_other_threads_are_left_alone() -> None:
    model, x = Two(), given()
    with watch(model) as seen:
        other = threading.Thread(target=lambda: model(x))
        other.start()
        other.join()
        assert len(seen) == 0
        model(x)
    assert len(seen) == 2


def test_what_is_kept() -> None:
    model, x = Two(), given()
    with watch(model, only=["*.b"], last=2) as seen:
        for _ in range(5):
            model(x)
    assert [(call.module, call.number) for call in seen] == [("inner.b", 3), ("inner.b", 4)]
    with watch(model, each=lambda call: call.weights.entropy(), after="free") as seen:
        model(x)
    assert seen.memory == 0
    torch.testing.assert_close(seen[0].kept, scaled_attend(x, x, x)[1].entropy())
    with watch(model, after="free") as seen:
        model(x)
        assert seen.memory == (2 * 24 + 2 * 6) * 4  # x and what inner.a made of it, as q and k; two log-sum-exps
        assert "inner.a: 1 × (1 × 2 × 3 × 3) by flash for the CPU" in str(seen)
    assert (seen.memory, seen[0].weights) == (0, None)
    with watch(model, after="cpu") as seen:
        model(x)
    assert seen[1].weights.block().device.type == "cpu"


def test_keys_that_are_written_to_later() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", given())

        def forward(self, x: Tensor) -> Tensor:
            found = F.scaled_dot_product_attention(x, self.cache, self.cache)
            self.cache.zero_()
            return found

    model, x = Writes(), given()
    with watch(model) as seen:
        model(x)
    with pytest.raises(ConfigError, match="were written to after the call"):
        seen[0].weights.block()
    model = Writes()
    with watch(model, copy=True) as seen:
        model(x)
    torch.testing.assert_close(seen[0].weights.block(), scaled_attend(x, given(), given())[1].block())


SHAPES: list[tuple[Callable[[Tensor], Tensor], tuple[int, ...], tuple[int, ...]]] = [
    (lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(2, 3, 3).tril().bool()), (2, 3, 4), (2, 1, 3, 3)),
    (lambda x: F.scaled_dot_product_attention(x, x, value=x, is_causal=True, scale=2.0), (3, 4), (1, 1, 3, 3)),
    (lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True), (2, 4, 3, 4), (2, 4, 3, 3)),
]


@pytest.mark.parametrize(("ask", "shape", "wanted"), SHAPES)
def test_every_way_of_calling(ask: Callable[[Tensor], Tensor], shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ask(x)

    model, x = Asks(), given(*shape)
    with watch(model) as seen:
        output = model(x)
    values = x[:, :1] if len(shape) == 4 else x
    assert seen[0].shape == wanted
    torch.testing.assert_close((seen[0].weights.block().reshape(*shape[:-1], 3) @ values), output)


def test_what_cannot_be_read_is_told_and_not_touched() -> None:
    x = given(1, 1, 2, 3, 4)
    with watch(model := Ask()) as seen:
        assert torch.equal(model(x), F.scaled_dot_product_attention(x, x, x))
    assert len(seen) == 0
    assert seen.unread == [("", "q of 5 axes and k of 5; 2 to 4 can be read")]
    assert "(the model): not read, q of 5 axes" in str(seen)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"only": "inner.bb"}, "'inner.bb'.*'inner.b'"),
        (
            {"after": "fee"},
            "after.*'fee'.*cpu, free, keep.*mean 'free'",
        ),
        ({"after": None}, "after.*'None'.*cpu, free, keep"),
        ({"last": 0}, "last=0.* 1 or more"),
        ({"last": -1}, "last=-1"),
        ({"last": 1.5}, "last=1.5"),
        ({"last": "2"}, "last='2'"),
        ({"last": True}, "last=True"),
        ({"each": "entropy"}, "each='entropy'.*function"),
        ({"copy": "no"}, "copy='no'.*True or False"),
        ({"only": []}, r"only=\[\]"),
        ({"only": None}, "only=None"),
        ({"only": ["*", 3]}, "only=.*3"),
        ({"how": "fast"}, "how.*'fast'.*auto, kernel, reference"),
        ({"how": 1}, "how.*'1'.*auto, kernel, reference"),
    ],
)
def test_what_is_asked_wrongly(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words), watch(Two(), **more):
        pass


def test_what_is_no_model_or_was_not_seen() -> None:
    with pytest.raises(ConfigError, match="torch.nn.Module.*str"), watch("model"):  # type: ignore[arg-type]
        pass
    compiled = torch.compile(Two(), backend="eager")
    with pytest.raises(ConfigError, match="compiled"), watch(compiled):
        pass
    seen = WatchedCalls()
    seen.calls.append(AttentionCall("inner.a", 0, (1, 1, 1, 1), "math", 0.0, None))
    with pytest.raises(ConfigError, match="'inner.b'.*inner.a.*mean 'inner.a'"):
        seen["inner.b"]
