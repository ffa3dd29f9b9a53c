"""The encoder: its two ways must give what PyTorch's own modules give sentence by sentence, without padding."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from heedful.attention import until
from heedful.config import FixedConfig
from heedful.fused.cpu import recurrence
from heedful.fused.unrolled import reverse_sentences, unrolled_encoder
from heedful.models.rnn import CELLS, Encoder

MODULES = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
VARIANTS = list(product(MODULES, (1, 2), (False, True)))
LENGTHS = [3, 6, 1, 4]  # neither sorted nor equal, the longest not first
W = 3

every = pytest.mark.parametrize(
    ("cell", "layers", "both"), VARIANTS, ids=["-".join((c, str(n), "both" if b else "one")) for c, n, b in VARIANTS]
)


def build(cell: str, layers: int, both: bool) -> Encoder:
    torch.manual_seed(0)
    config = FixedConfig(
        cell=cell, layers=layers, bidirectional=both, width=8, encoder_width=W, embedding=5, dropout=0.5
    )
    encoder = Encoder(config, 11).double().eval()
    for name, weight in encoder.rnn.named_parameters():
        if "bias" in name:  # zeros would hide a bias in the wrong place
            nn.init.normal_(weight)
    return encoder


def sentences() -> tuple[Tensor, Tensor]:
    keep = until(torch.tensor(LENGTHS))
    x = torch.randint(1, 11, keep.shape, generator=torch.Generator().manual_seed(0))
    return x.masked_fill(~keep, 0), keep


@every
@pytest.mark.parametrize("learning", [False, True])
def test_equals_pytorchs_modules_sentence_by_sentence(cell, layers, both, learning):
    encoder, (x, keep) = build(cell, layers, both), sentences()
    theirs = MODULES[cell](5, W, layers, batch_first=True, bidirectional=both).double()
    theirs.load_state_dict(encoder.rnn.state_dict())
    with torch.set_grad_enabled(learning):
        h, last = encoder(x, keep)
    assert h.shape == (4, 6, W * (1 + both))
    assert len(last) == layers * (2 if cell == "lstm" else 1)
    for b, length in enumerate(LENGTHS):
        states, ends = theirs(encoder.embedding.weight[x[b, :length]][None])
        torch.testing.assert_close(h[b, :length], states[0])
        sides = [side[:, 0] for side in (ends if cell == "lstm" else (ends,))]
        directions = 1 + both
        wanted = [
            torch.cat([side[layer * directions + d] for d in range(directions)])
            for side in sides
            for layer in range(layers)
        ]
        torch.testing.assert_close([side[b] for side in last], wanted)


@every
@torch.no_grad()
def test_last_state_is_where_each_direction_stopped_reading(cell, layers, both):
    encoder, (x, keep) = build(cell, layers, both), sentences()
    h, last = encoder(x, keep)
    top = last[layers - 1]
    for b, length in enumerate(LENGTHS):
        torch.testing.assert_close(top[b, :W], h[b, length - 1, :W])
        if both:
            torch.testing.assert_close(top[b, W:], h[b, 0, W:])


@torch.no_grad()
@pytest.mark.parametrize("cell", MODULES)
def test_lower_layer_ends_where_an_encoder_of_one_layer_would(cell):
    tall, (x, keep) = build(cell, 2, True), sentences()
    low = build(cell, 1, True)
    low.load_state_dict({key: w for key, w in tall.state_dict().items() if "_l1" not in key})
    wanted, got = low(x, keep)[1], tall(x, keep)[1]
    torch.testing.assert_close(got[0], wanted[0])
    if cell == "lstm":
        torch.testing.assert_close(got[2], wanted[1])


@every
@torch.no_grad()
def test_padding_changes_nothing(cell, layers, both):
    encoder, (x, keep) = build(cell, layers, both), sentences()
    h, last = encoder(x, keep)
    rubbish = torch.where(keep, x, torch.tensor(7))
    h_rubbish, last_rubbish = encoder(rubbish, keep)
    torch.testing.assert_close(h_rubbish[keep], h[keep])
    torch.testing.assert_close(last_rubbish, last)


@every
@torch.no_grad()
def test_more_columns_of_padding_change_nothing(cell, layers, both):
    encoder, (x, keep) = build(cell, layers, both), sentences()
    h, last = encoder(x, keep)
    wider = torch.cat([x, torch.zeros(4, 3, dtype=torch.long)], dim=1)
    h_wider, last_wider = encoder(wider, until(torch.tensor(LENGTHS), 9))
    assert h_wider.shape[1] == 9
    torch.testing.assert_close(h_wider[:, :6], h)
    assert not h_wider[:, 6:].any()
    torch.testing.assert_close(last_wider, last)


@torch.no_grad()
def test_a_sentence_of_padding_alone_is_read_without_harm():
    encoder, (x, keep) = build("gru", 1, True), sentences()
    h, last = encoder(x, keep)
    keep[2] = False
    h_empty, last_empty = encoder(x, keep)
    others = [0, 1, 3]
    torch.testing.assert_close(h_empty[others], h[others])
    torch.testing.assert_close(last_empty[0][others], last[0][others])
    assert bool(h_empty.isfinite().all())


def test_dropout_works_in_training_alone():
    encoder, (x, keep) = build("gru", 2, True), sentences()
    assert torch.equal(encoder(x, keep)[0], encoder(x, keep)[0])
    encoder.train()
    assert not torch.equal(encoder(x, keep)[0], encoder(x, keep)[0])


@every
def test_every_weight_learns(cell, layers, both):
    encoder, (x, keep) = build(cell, layers, both), sentences()
    h, last = encoder(x, keep)
    (h.square().sum() + sum(side.square().sum() for side in last)).backward()
    assert [key for key, w in encoder.named_parameters() if w.grad is None or not w.grad.any()] == []


def test_recurrent_weights_begin_orthogonal_and_the_forget_gate_open():
    torch.manual_seed(0)
    rnn = Encoder(FixedConfig(cell="lstm", layers=2, width=8, embedding=5), 11).rnn
    for end in ("l0", "l0_reverse", "l1", "l1_reverse"):
        for gate in getattr(rnn, f"weight_hh_{end}").detach().split(4):
            torch.testing.assert_close(gate @ gate.T, torch.eye(4), atol=1e-5, rtol=0)
        assert getattr(rnn, f"bias_hh_{end}").tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8


def learned(encoder: Encoder, way: str, x: Tensor, keep: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Read in one of the encoder's two ways: what comes out, and the gradients of all weights."""
    h, last = getattr(encoder, way)(encoder.embedding(x), keep.sum(1))
    generator = torch.Generator().manual_seed(1)
    loss = sum((f * torch.randn(f.shape, generator=generator, dtype=f.dtype)).sum() for f in (h, *last))
    return [h, *last], torch.autograd.grad(loss, list(encoder.parameters()))


@every
@pytest.mark.parametrize("together", [False, True], ids=["step by step", "together"])
def test_learning_equals_packing_and_so_do_its_gradients(cell, layers, both, together, monkeypatch):
    if together:  # as on a GPU
        monkeypatch.setattr(recurrence, "span", lambda T, device: T)
    encoder, (x, keep) = build(cell, layers, both), sentences()
    found, wanted = (learned(encoder, way, x, keep) for way in ("_unrolled", "_packed"))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("cell", MODULES)
def test_gradient_of_the_operation(cell):
    N, S, B, K, D, gates = 2, 3, 2, 2, 2, CELLS[cell].gates
    shapes = [(N, S, B, K), (N, gates * D, K), (N, gates * D, D), (N, gates * D), (N, gates * D)]
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    lengths = torch.tensor([2, 3])

    def function(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        s, last = unrolled_encoder(cell, x, weights, lengths)
        return s, *last

    assert torch.autograd.gradcheck(function, tensors)


def test_a_sentence_is_turned_round_within_its_length():
    x = torch.arange(8.0).view(4, 2, 1).requires_grad_()
    found = reverse_sentences(x, torch.tensor([4, 2]))
    assert found[..., 0].T.tolist() == [[6, 4, 2, 0], [3, 1, 5, 7]]
    wish = torch.randn(4, 2, 1)
    (gradient,) = torch.autograd.grad(found, x, wish)
    assert torch.equal(gradient, reverse_sentences(wish, torch.tensor([4, 2])))
    assert torch.autograd.gradcheck(lambda x: reverse_sentences(x, torch.tensor([4, 2])), x.double())


def test_padding_gets_no_gradient():
    encoder, (x, keep) = build("lstm", 2, True), sentences()
    e = encoder.embedding(x).detach().requires_grad_()
    h, last = encoder._unrolled(e, keep.sum(1))
    (h.sum() + sum(side.sum() for side in last)).backward()
    assert e.grad is not None
    assert not e.grad[~keep].any()
    assert bool(e.grad[keep].any(-1).all())
