"""One word at a time with few operations: the same as the layers that say what is meant."""

from __future__ import annotations

import pytest
import torch

from heedful.attention import until
from heedful.config import RnnConfig, TransformerConfig
from heedful.fused.cpu.transformer import fast_encode
from heedful.models import Memory, NeedWeights, Network, build, pack_weights

V, B = 30, 3


def make(**settings: object) -> tuple[Network, Memory]:
    torch.manual_seed(2)
    config = TransformerConfig(width=16, heads=4, inner=24, layers=2, **settings)  # type: ignore[arg-type]
    model = build(config, V, V).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
        keep = until(torch.tensor([5, 2, 7]))
        return model, model.encode(torch.randint(4, V, keep.shape), keep)


SETTINGS = [
    {"norm": norm, "activation": activation, "scale": scale}
    for norm, activation, scale in (("pre", "relu", True), ("post", "silu", False), ("post", "gelu", True))
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['norm']}-{s['activation']}")
@pytest.mark.parametrize("K", [1, 3])
@torch.no_grad()
def test_it_is_the_decoder(settings: dict[str, object], K: int) -> None:
    """Looking, a step goes through the layers; not looking, it is fast. Rows are reordered on the way."""
    model, memory = make(**settings)
    rows = torch.arange(B).repeat_interleave(K)
    plain, fast = (model.start(memory, 40).select(rows) for _ in range(2))
    for t in range(36):  # beyond the first room
        y = torch.randint(4, V, (B * K, 1))
        wanted = model.step(y, plain, memory, NeedWeights())
        found = model.step(y, fast, memory)
        assert fast.fast is not None
        assert plain.fast is None
        torch.testing.assert_close(found.hidden, wanted.hidden, rtol=1e-5, atol=1e-5)
        if t % 5 == 2:
            order = (torch.arange(B)[:, None] * K + torch.randint(K, (B, K))).flatten()
            plain, fast = plain.select(order), fast.select(order)


@torch.no_grad()
def test_sentences_that_leave_take_their_keys_along() -> None:
    model, memory = make(norm="post")
    plain, fast = model.start(memory, 9), model.start(memory, 9)
    y = torch.randint(4, V, (B, 1))
    model.step(y, plain, memory, NeedWeights())
    model.step(y, fast, memory)
    kept = torch.tensor([1])  # the shortest, with its padding
    memory, plain, fast, y = memory.select(kept), plain.select(kept), fast.select(kept), y[kept]
    wanted = model.step(y, plain, memory, NeedWeights()).hidden
    torch.testing.assert_close(model.step(y, fast, memory).hidden, wanted, rtol=1e-5, atol=1e-5)


def test_it_keeps_away_from_gradients_and_dropout() -> None:
    model, memory = make(dropout=0.5)
    y = torch.randint(4, V, (B, 1))
    state = model.start(memory, 3)
    assert model.step(y, state, memory).hidden.requires_grad
    assert state.fast is None  # type: ignore[attr-defined]
    model.train()
    with torch.no_grad():
        state = model.start(memory, 3)
        model.step(y, state, memory)
    assert state.fast is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("config", [TransformerConfig(width=16, heads=4, inner=24), RnnConfig(width=16, embedding=8)])
@torch.no_grad()
def test_the_layout_changes_no_value(config: TransformerConfig | RnnConfig) -> None:
    model = build(config, V, V).eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    x, y = torch.randint(4, V, (2, 6)), torch.randint(4, V, (2, 4))

    def hidden() -> torch.Tensor:
        memory = model.encode(x, x != 0)
        return model.step(y, model.start(memory, 4), memory).hidden

    wanted = hidden()
    pack_weights(model)
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert linear
    for m in linear:  # by their shorter side
        assert (m.weight.t() if len(m.weight) >= m.weight.shape[1] else m.weight).is_contiguous()
    torch.testing.assert_close(hidden(), wanted)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])
    pack_weights(model, decoding=False)
    assert all(m.weight.is_contiguous() for m in linear)
    assert torch.equal(hidden(), wanted)  # to the bit: a run that goes on depends on it


def test_packed_weights_are_dropped_when_weights_change() -> None:
    model, _ = make(norm="post")
    pack_weights(model)
    hidden = torch.randn(3, 16)
    with torch.no_grad():
        before = model.logits(hidden)
        torch.testing.assert_close(before, hidden @ model.embedding.weight.t())  # type: ignore[union-attr, operator]
        model.embedding.weight.mul_(2.0)  # type: ignore[union-attr, operator]
        torch.testing.assert_close(model.logits(hidden), 2 * before)
    pack_weights(model)
    model.load_state_dict({name: weight * 3 for name, weight in model.state_dict().items()})
    with torch.no_grad():
        torch.testing.assert_close(model.logits(hidden), 6 * before)
    pack_weights(model)
    model.train()
    assert model.packed is None  # type: ignore[attr-defined]
    model.logits(hidden).sum().backward()  # type: ignore[no-untyped-call]
    assert bool((model.embedding.weight.grad.abs().sum(1) > 0).all())  # type: ignore[union-attr]


@torch.no_grad()
def test_the_numbers_are_of_the_weights_kind() -> None:
    """In double precision here: some CPUs die of products in half precision."""
    model, _ = make(norm="pre")
    model.double()
    x = torch.randint(4, V, (2, 5))
    memory = model.encode(x, x != 0)
    y = torch.randint(4, V, (2, 1))
    fast = model.step(y, model.start(memory, 4), memory).hidden
    plain = model.step(y, model.start(memory, 4), memory, NeedWeights()).hidden
    assert memory.h.dtype == fast.dtype == plain.dtype == torch.float64
    torch.testing.assert_close(fast, plain)


@torch.no_grad()
def test_room_is_made_for_what_is_written_not_for_what_may_be() -> None:
    """A limit of a million words costs nothing until they come."""
    from heedful.decoding import Decoding, beam, greedy

    model, memory = make(norm="post")
    model.embedding.weight[3] = 5 * model.embedding.weight.abs().max()  # type: ignore[union-attr, operator, index]
    short = Decoding(beam=3, alpha=0.0)
    limits = [10**6] * B
    assert max(len(h.ids) for h in greedy(model, memory, limits, Decoding(no_repeat=2))) < 1000
    assert max(len(found[0].ids) for found in beam(model, memory, limits, short)) < 1000


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['norm']}-{s['activation']}")
@pytest.mark.parametrize("sizes", [[5, 2, 7], [6], [3, 0]])
def test_it_is_the_encoder(settings: dict[str, object], sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With gradients a sentence is read by the layers that say what is meant; without, with few operations."""
    model, _ = make(**settings)
    keep = until(torch.tensor(sizes))
    x = torch.randint(4, V, keep.shape)
    wanted = model.encode(x, keep)
    asked: list[int] = []
    monkeypatch.setattr("heedful.models.transformer.fast_encode", lambda *given: asked.append(1) or fast_encode(*given))
    with torch.no_grad():
        found = model.encode(x, keep)
    assert asked
    assert found.padded == (len(sizes) > 1)
    for part, other in zip((found.h, *found.keys), (wanted.h, *wanted.keys), strict=True):
        torch.testing.assert_close(
            part[keep] if part.ndim == 3 else part.transpose(1, 2)[keep],
            other[keep] if part.ndim == 3 else other.transpose(1, 2)[keep],
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s['norm']}-{s['activation']}")
@pytest.mark.parametrize("K", [1, 2])
@torch.no_grad()
def test_a_row_with_nothing_to_attend_to_gives_zeros(settings: dict[str, object], K: int) -> None:
    """Encoding and decoding equal the layers that attend by the definition."""
    model, _ = make(**settings)
    keep = until(torch.tensor([3, 0, 7]))
    x = torch.randint(4, V, keep.shape)
    wanted, memory = model.encode(x, keep, NeedWeights()), model.encode(x, keep)
    torch.testing.assert_close(memory.h[keep], wanted.h[keep], rtol=1e-5, atol=1e-5)
    rows = torch.arange(B).repeat_interleave(K)
    y = torch.randint(4, V, (B * K, 1))
    plain, fast = (model.start(memory, 4).select(rows) for _ in range(2))
    looked = model.step(y, plain, memory, NeedWeights())
    assert not looked.weights[K : 2 * K].any()  # type: ignore[index]
    torch.testing.assert_close(model.step(y, fast, memory).hidden, looked.hidden, rtol=1e-5, atol=1e-5)
