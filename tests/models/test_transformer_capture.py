"""Ready for a CUDA graph: nothing waits for a value, nothing comes from the host; PyTorch's attention is ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.attention import until
from heedful.config import TransformerConfig
from heedful.models import NeedWeights, Network, build
from heedful.models.transformer import POSITIONS

V, B, S, T = 11, 4, 7, 5
VALUES = ("_local_scalar_dense", "nonzero", "masked_select", "index.Tensor")  # their results hang on values


def make(**own: object) -> Network:
    torch.manual_seed(0)
    settings = {"layers": 2, "width": 16, "heads": 2, "inner": 12, "dropout": 0.0, **own}
    return build(TransformerConfig(**settings), V, V)  # type: ignore[arg-type]


def sentences() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    keep = until(torch.tensor([5, 7, 0, 2]), S)  # one has nothing to look at
    return (
        torch.randint(1, V, (B, S), generator=generator).masked_fill(~keep, 0),
        keep,
        torch.randint(1, V, (B, T), generator=generator),
    )


def read(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> Tensor:
    memory = model.encode(x, keep)
    return model.logits(model.step(y, model.start(memory, y.shape[1]), memory).hidden)


class Watch(TorchDispatchMode):
    """Refuses what cannot be captured."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device, self.calls = device, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        self.calls += 1
        assert not any(name in str(func) for name in VALUES), f"{func} waits for values"
        for tensor in _tensors([args, kwargs or {}, found]):
            assert tensor.device.type == self.device, f"{func} takes from the host, or gives to it"
        return found


def _tensors(tree: object) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from _tensors(part)


@pytest.mark.parametrize(
    "own",
    [{"dropout": 0.1, "attention_dropout": 0.1, "inner_dropout": 0.1}, {"norm": "post"}, {"cell": "ssru"}],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, B])
def test_a_training_step_needs_nothing_from_the_host(own: dict[str, object], rows: int) -> None:
    model = make(**own).to("meta").train()
    x, keep, y = (tensor[:rows].to("meta") for tensor in sentences())
    read(model, x, keep, y)  # the table of positions is made
    with Watch("meta") as watch:
        read(model, x, keep, y).sum().backward()
    assert watch.calls > 100
    longer = torch.ones(rows, POSITIONS, dtype=torch.long, device="meta")
    with Watch("meta"):
        read(model, longer, longer > 0, longer).sum().backward()


def test_the_watch_sees_what_it_is_for() -> None:
    with Watch("cpu"), pytest.raises(AssertionError, match="waits for values"):
        bool(torch.ones(3).all())
    with Watch("meta"), pytest.raises(AssertionError, match="from the host"):
        torch.ones(3).to("meta")


def test_the_table_of_positions_grows_and_stays() -> None:
    model = make()
    first = model.position_vectors(3)
    assert len(first) == POSITIONS
    assert model.position_vectors(POSITIONS) is first
    assert len(model.position_vectors(POSITIONS + 1)) == 2 * POSITIONS
    assert torch.equal(model.position_vectors(5)[:POSITIONS], first)
    assert model.double().position_vectors(1).dtype == torch.float64
    assert not any("table" in name for name in model.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_pytorchs_attention_is_ours(norm: str) -> None:
    """States and gradients, with a sentence that has nothing to look at. Looking, attention is ours, else PyTorch's."""
    model, (x, keep, y) = make(norm=norm).double(), sentences()
    found = []
    for encoder, decoder in (
        (None, None),
        (NeedWeights(), NeedWeights()),
        (NeedWeights(), NeedWeights(self_attention=True)),
    ):
        memory = model.encode(x, keep, encoder)
        logits = model.logits(model.step(y, model.start(memory, T), memory, decoder).hidden)
        found.append((logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))))
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


@torch.no_grad()
def test_pytorchs_attention_after_a_prefix_and_for_hypotheses() -> None:
    model, (x, keep, y) = make().eval(), sentences()
    memory, rows = model.encode(x, keep), torch.arange(B).repeat_interleave(3)
    y = torch.cat([y] * 3).view(B * 3, T)
    wanted, found = (model.start(memory, 9).select(rows) for _ in range(2))
    for piece in y.split([3, 2], dim=1):  # one word alone is swift
        ours = model.step(piece, wanted, memory, NeedWeights())
        theirs = model.step(piece, found, memory)
        torch.testing.assert_close(theirs.hidden, ours.hidden, atol=1e-5, rtol=1e-5)
        assert theirs.weights is None


def test_a_table_of_positions_stays_where_it_is() -> None:
    """A recorded step reads it by its address, whatever longer tables are made afterwards."""
    model = build(TransformerConfig(layers=1, width=8, heads=2, inner=8), 9, 9)
    with torch.inference_mode():
        first = model.position_vectors(3)  # type: ignore[operator]
    assert not first.is_inference()  # training reads it, too
    address = first.data_ptr()
    del first
    longer = model.position_vectors(10 * POSITIONS)  # type: ignore[operator]
    assert len(longer) >= 10 * POSITIONS
    assert any(table.data_ptr() == address for table in model.earlier)  # type: ignore[union-attr]
