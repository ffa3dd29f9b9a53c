"""What `watch` joins: only calls that fit the tokens, and only tokens that were really read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from eager_attention import SETTINGS, SHORT, check, eager, padded
from tiny_transformers import make
from torch import Tensor, nn
from torch.nn import functional as F

import heedful
from heedful.errors import ConfigError


def test_an_encoder_and_a_decoder_of_pytorch() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True).eval()
    with torch.no_grad(), heedful.watch(nn.Sequential(model)) as seen:
        model(torch.randn(1, 7, 16), torch.randn(1, 5, 16))
    attention = seen.attention()
    assert [(group.kind, group.shape) for group in attention.groups] == [
        ("encoder", (2, 2, 7, 7)),
        ("decoder", (2, 2, 5, 5)),
        ("cross", (2, 2, 5, 7)),
    ]
    for group in attention.groups:
        assert group.weights is not None
        for layer, name in zip(group.weights, group.modules, strict=True):
            np.testing.assert_allclose(layer, seen[name][0].array()[0], atol=1e-6)


@pytest.mark.parametrize("S", [5, 7])
def test_a_decoder_of_pytorch_alone(S: int) -> None:
    """Its attention to the memory is apart, also if that is as long as the text."""
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 2).eval()
    with torch.no_grad(), heedful.watch(model) as seen:
        model(torch.randn(1, 5, 16), torch.randn(1, S, 16))
    groups = seen.attention().groups
    assert [(group.kind, group.shape) for group in groups] == [("self", (2, 2, 5, 5)), ("cross", (2, 2, 5, S))]
    assert groups[1].modules == ("layers.0.multihead_attn", "layers.1.multihead_attn")


def test_a_name_of_cross_attention_alone_is_self_attention() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.multihead_attn = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.multihead_attn(x, x, x, need_weights=False)[0]

    model = Own()
    with torch.no_grad(), heedful.watch(model) as seen:
        model(torch.randn(1, 5, 16))
    assert seen.attention().group().kind == "self"


class Lengths:
    """A cache that tells its length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def get_seq_length(self) -> int:
        return self.length


class Larger(nn.Module):
    """Attention to 8 keys, with a mask or without."""

    def forward(self, input_ids: Tensor, past_key_values: Lengths, mask: Tensor | None = None) -> Tensor:
        q = torch.ones(1, 1, input_ids.shape[1], 4)
        return F.scaled_dot_product_attention(q, torch.ones(1, 1, 8, 4), torch.ones(1, 1, 8, 4), mask)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_more_keys_than_tokens_have_no_weight_or_are_not_shown(kind: str) -> None:
    model, ids, mask = Larger(), torch.tensor([[1, 2, 3]]), torch.ones(3, 8).tril().bool()
    numbers = torch.zeros(3, 8).masked_fill(~mask, torch.finfo(torch.float32).min)
    with heedful.watch(model) as seen:
        model(ids, Lengths(0), mask if kind == "bool" else numbers)
    weights = seen.attention().group().weights
    assert weights is not None
    np.testing.assert_allclose(weights[0, 0], np.tril(np.ones((3, 3))) / np.array([[1], [2], [3]]), atol=1e-6)
    for wrong in (None, torch.ones(3, 8).tril(1).bool()):
        with heedful.watch(model) as seen:
            model(ids, Lengths(0), wrong)
        with pytest.raises(ConfigError, match="fits the tokens"):
            seen.attention()


def test_a_loop_that_writes_the_next_token_into_the_same_tensors() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    buffer, keep, cache = torch.tensor([row[:1]]), torch.ones(1, len(row), dtype=torch.long), None
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        for i, token in enumerate(row):
            buffer.fill_(token)
            cache = model(buffer, attention_mask=keep[:, : i + 1], past_key_values=cache, use_cache=True)[1]
        keep.zero_()
    group = seen.attention().group()
    assert group.source.tokens == heedful.see(model, tokenizer, SHORT).group().source.tokens
    check(seen.attention(), eager(model, row))


def test_further_turns_after_an_end() -> None:
    model, tokenizer = make("llama")
    row, end = tokenizer(SHORT)["input_ids"], 9
    assert end not in row
    ids = [*row, end, *row[:4], end, end]
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        cache = None
        for i in range(len(row), len(ids) + 1):
            some = ids[:i] if cache is None else ids[i - 1 : i]
            cache = model(torch.tensor([some]), past_key_values=cache, use_cache=True).past_key_values
    check(seen.attention(), eager(model, ids[:-1]))  # the second end pads the first
    assert seen.attention().group().generated == len(row)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3_text"])
def test_left_padding_with_a_static_cache(name: str) -> None:
    model, tokenizer = make(name)
    batch, rows = padded(tokenizer, "left")
    settings = {**SETTINGS, "cache_implementation": "static", "disable_compile": True}
    with heedful.watch(model, tokenizer, copy=True) as seen:
        written = model.generate(**batch, **settings, pad_token_id=tokenizer.pad_token_id)
    length = batch["input_ids"].shape[1]
    for i, row in enumerate(rows):
        check(seen.attention(i), eager(model, [*row, *written[i, length:-1].tolist()]))


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_no_row_of_a_beam_search_is_joined(name: str) -> None:
    model, tokenizer = make(name)
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])
    with heedful.watch(model, tokenizer) as seen:
        model.generate(ids, **{**SETTINGS, "num_beams": 3, "min_new_tokens": 3, "max_new_tokens": 3})
    for row in range(3):
        with pytest.raises(ConfigError, match="num_beams=1"):
            seen.attention(row)


def test_a_part_that_is_called_alone_can_be_joined_twice() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model.model(torch.tensor([row]))
    for _ in range(2):
        check(seen.attention(), eager(model, row))
    assert {call.run for call in seen} == {-1}


def test_a_prompt_that_is_read_in_parts() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(torch.tensor([row]), **SETTINGS, prefill_chunk_size=4)
    check(seen.attention(), eager(model, written[0, :-1].tolist()))
    assert seen.attention().group().generated is None


def test_rejected_tokens_of_assisted_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("llama")
    helper, _ = make("llama", num_hidden_layers=1)
    row = tokenizer(SHORT)["input_ids"]
    settings = {**SETTINGS, "min_new_tokens": None}
    plain = model.generate(torch.tensor([row]), **settings)[0].tolist()
    model.generation_config.eos_token_id = plain[len(row) + 5]  # written after a draft that is rejected
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(torch.tensor([row]), **settings, assistant_model=helper)
    ids = written[0].tolist()
    read = max(one.past + one.ids.shape[1] for one in seen.passes if one.ids is not None)
    assert ids == plain[: len(row) + 6]
    assert read > len(ids) - 1
    check(seen.attention(), eager(model, ids[:-1]))
    short = seen.attention().group()
    assert short.shape[2] == len(ids) - 1
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    long = seen.attention().group()
    assert long.weights is None
    np.testing.assert_allclose(long.received, short.received, atol=2e-4)
    np.testing.assert_allclose(long.entropy, short.entropy, atol=2e-4)


def test_what_is_printed_if_calls_cannot_be_joined() -> None:
    model, tokenizer = make("llama")
    with heedful.watch(model, tokenizer, last=1) as seen:
        model.generate(torch.tensor([tokenizer(SHORT)["input_ids"]]), **SETTINGS)
    assert repr(seen) == str(seen)
    assert "model.layers.0.self_attn: 1 ×" in repr(seen)
    shown = seen._repr_html_()
    assert "model.layers.0.self_attn: 1 ×" in shown
    assert "without last" in shown


@pytest.mark.parametrize("name", ["llama", "gpt2", "bart", "mistral"])
def test_the_memory_of_a_generation_grows_with_its_length(name: str) -> None:
    """And not with its square, though the cache makes a copy of all keys at every step."""
    model, tokenizer = make(name)
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])
    held = []
    for count in (30, 60, 120):
        with heedful.watch(model, tokenizer) as seen:
            written = model.generate(ids, **{**SETTINGS, "max_new_tokens": count, "min_new_tokens": count})
        held.append(seen.memory)
    assert held[2] - held[1] < 2.2 * (held[1] - held[0])
    if name != "bart":
        check(seen.attention(), eager(model, written[0, :-1].tolist()))


def test_keys_that_do_not_continue_those_before_stay() -> None:
    class Grows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = torch.zeros(1, 1, 0, 4)

        def forward(self, x: Tensor, change: bool) -> Tensor:
            self.keys = torch.cat([self.keys + change, x], 2)
            return F.scaled_dot_product_attention(x, self.keys, self.keys)

    model, wanted, queries = Grows(), [], []
    torch.manual_seed(0)
    with heedful.watch(model) as seen:
        for step in range(60):
            q = torch.randn(1, 1, 1, 4)
            queries.append(q)
            model(q, change=step in (0, 20, 33, 59))
            wanted.append((q @ model.keys.mT / 2).softmax(-1))
            if step == 10:
                queries[3].zero_()
        model.keys.zero_()
    for number, (call, weights) in enumerate(zip(seen, wanted, strict=True)):
        if number in (3, 59):  # whose query or keys were written to
            with pytest.raises(ConfigError, match="written to"):
                call.weights.block()
            continue
        torch.testing.assert_close(call.weights.block(), weights, rtol=0.0, atol=1e-6)


def test_keys_that_cannot_be_compared_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("llama")
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])

    def fail(*_: object) -> bool:
        raise RuntimeError("vmap")

    monkeypatch.setattr("heedful.fused.triton.scaled.ScaledWeights.has_first_keys", fail)
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(ids, **{**SETTINGS, "max_new_tokens": 20, "min_new_tokens": 20})
    check(seen.attention(), eager(model, written[0, :-1].tolist()))
