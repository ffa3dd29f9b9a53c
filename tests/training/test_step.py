"""One update: the same as PyTorch's own parts put together, whatever the batches it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_runs import pad
from torch.nn import functional as F

from heedful.config import RnnConfig, TrainingConfig, TransformerConfig
from heedful.data.batches import Batch
from heedful.models import NeedWeights, Network, build
from heedful.training.step import TrainingStep, loss, mean_weights

CPU = torch.device("cpu")
PAIRS = [([4, 5, 3], [2, 4, 3]), ([6, 3], [2, 5, 6, 4, 3]), ([8, 7, 4, 5, 3], [2, 3]), ([4, 4, 3], [2, 6, 6, 3])]


def make(dropout: float = 0.0, kind: str = "gru") -> Network:
    torch.manual_seed(0)
    if kind == "transformer":
        return build(TransformerConfig(layers=1, width=8, heads=2, inner=8, dropout=dropout), 9, 7).train()
    return build(RnnConfig(cell=kind, width=8, embedding=6, dropout=dropout), 9, 7).train()


def batch(*chosen: int) -> Batch:
    x, y = zip(*(PAIRS[i] for i in chosen), strict=True)
    return Batch(pad(x), pad(y), np.array(chosen), sum(len(row) - 1 for row in y))


def weights(model: Network) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


def after(batches: list[Batch], steps: int = 3, *, dropout: float = 0.0, rate: float = 0.01, **settings: object):
    model = make(dropout)
    updater = TrainingStep(model, TrainingConfig(**settings), CPU, bf16=False)  # type: ignore[arg-type]
    for step in range(1, steps + 1):
        updater(batches, sum(b.tokens for b in batches), step, rate)
    return weights(model), updater


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn", "transformer"])
@pytest.mark.parametrize("clip", [0.0, 0.05, 1e9])
def test_like_the_parts_that_everybody_uses(clip: float, kind: str) -> None:
    model, plain = make(kind=kind), make(kind=kind)
    updater = TrainingStep(model, TrainingConfig(clip=clip, smoothing=0.1), CPU, bf16=False)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.01)
    one = batch(0, 1, 2, 3)
    for step in range(1, 6):
        updater([one], one.tokens, step, 0.01)
        memory = plain.encode(one.x, one.x != 0)
        # With a look, which takes the Transformer's plain way; a recurrent one takes its loop.
        plain.unrolls = lambda *_: False
        hidden = plain.step(one.y[:, :-1], plain.start(memory, one.y.shape[1] - 1), memory, NeedWeights()).hidden
        wanted = F.cross_entropy(
            plain.logits(hidden).flatten(0, 1), one.y[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1
        )
        optimizer.zero_grad()
        wanted.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), clip or math.inf)
        optimizer.step()
        happened = updater.read()
        assert happened.loss / one.tokens == pytest.approx(wanted.item(), rel=1e-4)
        assert happened.first_nonfinite_step == 0
    for name, tensor in weights(plain).items():
        if kind != "transformer" or not name.endswith(
            "W.bias"
        ):  # a bias of the keys has no gradient but rounding, which Adam makes large
            torch.testing.assert_close(weights(model)[name], tensor, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn", "transformer"])
def test_gradients_add_up_and_share_no_memory(kind: str) -> None:
    model, one = make(kind=kind), batch(0, 1, 2, 3)
    first: dict[str, torch.Tensor] = {}
    for _ in range(2):
        loss(model, one).mean.backward()
        first = first or {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    places = set()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, 2 * first[name])
        places |= set(range(parameter.grad.data_ptr(), parameter.grad.data_ptr() + 4 * parameter.grad.numel(), 4))
    assert len(places) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", ["gru", "lstm", "transformer"])
def test_one_piece_of_work_is_the_same_to_the_bit(kind: str) -> None:
    """What a GPU records for a batch that comes alone, mixed with updates of several, beside what the CPU does."""
    found = []
    for whole in (False, True):
        model = make(kind=kind, dropout=0.2)
        updater = TrainingStep(model, TrainingConfig(ema=0.9), CPU, bf16=False)
        updater._single = updater._single_batch if whole else None  # type: ignore[assignment]
        for step, batches in enumerate(([batch(0, 1)], [batch(2)], [batch(0), batch(1, 3)], [batch(3)], [batch(1)]), 1):
            updater(batches, sum(b.tokens for b in batches), step, 0.01)
            if whole:
                alone = len(batches) == 1
                assert all((p.grad is None) == alone for p in model.parameters())
        assert all(not gradient.any() for gradient in updater.accumulated)
        assert bool(updater.accumulated) == whole
        average = updater.average
        assert average is not None
        found.append([*weights(model).values(), *average.values, updater.sums])
    assert all(map(torch.equal, *found))


def test_what_learns_nothing_decays_all_the_same() -> None:
    model = make()
    model.unused = torch.nn.Parameter(torch.ones(3))
    updater = TrainingStep(model, TrainingConfig(weight_decay=0.1), CPU, bf16=False)
    updater._single = updater._single_batch  # type: ignore[assignment]
    one = batch(0, 1)
    updater([one], one.tokens, 1, 0.01)
    torch.testing.assert_close(model.unused.data, torch.full((3,), 1 - 0.01 * 0.1))


def test_several_batches_are_like_one() -> None:
    whole, _ = after([batch(0, 1, 2, 3)])
    parts, updater = after([batch(0, 3), batch(2), batch(1)], accumulate=3)
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-4, atol=1e-6)
    assert updater.read().loss > 0


def test_rows_of_padding_change_nothing() -> None:
    one = batch(0, 1)
    zeros = torch.zeros(3, 1, dtype=torch.long)
    wide = Batch(
        torch.cat([one.x, zeros.expand(-1, one.x.shape[1])]), torch.cat([one.y, zeros.expand(-1, one.y.shape[1])]),
        one.rows, one.tokens,
    )  # fmt: skip
    plain, _ = after([one])
    padded, _ = after([wide])
    for name, tensor in plain.items():
        torch.testing.assert_close(padded[name], tensor)


def test_rdrop_needs_dropout_to_differ() -> None:
    plain, _ = after([batch(0, 1, 2)])
    same, _ = after([batch(0, 1, 2)], rdrop=5.0)
    for name, tensor in plain.items():
        torch.testing.assert_close(same[name], tensor, rtol=1e-4, atol=1e-6)
    torch.manual_seed(0)
    wide, lifted = (after([batch(0, 1, 2)], 1, dropout=0.5, rdrop=rdrop)[1] for rdrop in (0.0, 100.0))
    assert lifted.read().loss > wide.read().loss  # by the difference between the two passes


def test_nothing_moves_once_something_is_not_finite() -> None:
    model = make()
    updater = TrainingStep(model, TrainingConfig(ema=0.9), CPU, bf16=False)
    one = batch(0, 1)
    updater([one], one.tokens, 1, 0.01)
    assert updater.read().first_nonfinite_step == 0
    good = weights(model)
    averaged = [value.clone() for value in updater.average.values]  # type: ignore[union-attr]
    scale = torch.tensor(math.inf)
    model.embedding.weight.register_hook(lambda gradient: gradient * scale)  # type: ignore[union-attr]
    updater([one], one.tokens, 2, 0.01)
    scale.fill_(1.0)
    updater([one], one.tokens, 3, 0.01)
    assert updater.read().first_nonfinite_step == 2
    for name, tensor in good.items():
        torch.testing.assert_close(weights(model)[name], tensor, rtol=0, atol=0)
    for value, before in zip(updater.average.values, averaged, strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(value, before, rtol=0, atol=0)


def test_the_moving_average() -> None:
    model = make()
    wanted = weights(model)
    updater = TrainingStep(model, TrainingConfig(ema=0.3), CPU, bf16=False)
    one = batch(0, 1, 2)
    for step in range(1, 5):
        updater([one], one.tokens, step, 0.05)
        part = 1 - min(0.3, (1 + step) / (10 + step))
        wanted = {name: old + part * (weights(model)[name] - old) for name, old in wanted.items()}
    found = dict(zip(wanted, [v.clone() for v in updater.average.values], strict=True))  # type: ignore[union-attr]
    now = weights(model)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor)
    updater.average.swap()  # type: ignore[union-attr]
    assert all(torch.equal(weights(model)[name], tensor) for name, tensor in found.items())
    updater.average.swap()  # type: ignore[union-attr]
    assert all(torch.equal(weights(model)[name], tensor) for name, tensor in now.items())


def test_the_mean_of_models() -> None:
    models = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    assert mean_weights(models)["w"].tolist() == [2.0, 4.0]
