"""Long inputs on a GPU: 32,000 tokens, with memory that grows with the length and not with its square."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_transformers import make

import heedful

pytestmark = pytest.mark.gpu
SHORT, LONG = 8_000, 32_000
LAYERS, HEADS, KEY_HEADS = 4, 16, 4


@pytest.fixture(scope="module")
def llama() -> tuple[Any, Any]:
    """A Llama in bf16 with heads of 64 channels, and its tokenizer."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    sizes = {"hidden_size": 64 * HEADS, "intermediate_size": 128 * HEADS, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "head_dim": 64}
    model, tokenizer = make("llama", **sizes, **heads, max_position_embeddings=2 * LONG)
    return model.to("cuda", torch.bfloat16), tokenizer


def peak(work: Any) -> tuple[int, Any]:
    """How many bytes work holds at most beyond what is there before, and its result."""
    work()  # libraries allocate at the first call, and kernels are compiled
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before, result


def test_a_summary_of_every_layer(llama: tuple[Any, Any]) -> None:
    model, _ = llama

    def read(tokens: int) -> Any:
        ids = torch.randint(5, model.config.vocab_size, (1, tokens), device="cuda")
        with torch.no_grad(), heedful.watch(model, each=lambda call: call.weights.summary(8)) as seen:
            model(ids, use_cache=False, logits_to_keep=1)
        return seen

    short, _ = peak(lambda: read(SHORT))
    long, seen = peak(lambda: read(LONG))
    assert long < 1.1 * LONG / SHORT * short
    assert long < HEADS * LONG * LONG  # bytes: half of one layer's weights in bf16
    assert len(seen) == LAYERS
    for call in seen:
        received, entropy, top = call.kept
        assert call.shape == (1, HEADS, LONG, LONG)
        assert call.weights is None
        torch.testing.assert_close(
            received.sum(-1), torch.full((1, HEADS), float(LONG), device="cuda"), rtol=1e-2, atol=0
        )
        assert entropy[0, :, 0].abs().max() < 1e-2  # the first token has but itself
        assert (top.positions[0, :, 0, 1:] == -1).all()
        assert (top.positions <= torch.arange(LONG, device="cuda")[:, None]).all()


def test_see(llama: tuple[Any, Any]) -> None:
    model, tokenizer = llama
    word = "the animal "
    each = len(tokenizer(20 * word)["input_ids"]) / 20

    def read(tokens: int) -> Any:
        return heedful.see(model, tokenizer, int(tokens / each) * word)

    short, _ = peak(lambda: read(SHORT))
    long, seen = peak(lambda: read(LONG))
    assert long < 1.5 * LONG / SHORT * short
    assert long < HEADS * LONG * LONG
    group = seen.group()
    L, H, T, S = group.shape
    assert (L, H, T) == (LAYERS, HEADS, S)
    assert abs(T - LONG) < 0.1 * LONG
    assert group.weights is None
    assert len(group.top) == 8
    assert abs(group.received.sum() / (L * H * T) - 1) < 1e-2
