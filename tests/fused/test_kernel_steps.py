"""Steps by kernels: in models, while decoding, what they refuse, where they are used, and beside torch.compile."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.attention import additive, attend, scaled, until
from heedful.config import RnnConfig
from heedful.errors import ConfigError, ShapeError
from heedful.fused import unrolled
from heedful.fused.cpu.recurrence import LAYERS
from heedful.fused.triton import recurrent_attention as attention
from heedful.fused.triton.recurrent_attention import AttendSteps, attend_step
from heedful.fused.triton.recurrent_cells import (
    GruSteps,
    LstmSteps,
    gru_cell,
    in_units,
    lstm_cell,
    row_stride,
    steppable,
)
from heedful.fused.triton.unrolled import KernelGru, KernelLstm
from heedful.fused.unrolled import unrolled_encoder
from heedful.models import NeedWeights, build, rnn

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
NEAR = {"rtol": 1e-9, "atol": 1e-11}
GATES = {"lstm": (lstm_cell, 4), "gru": (gru_cell, 3)}


def draw(*shape: int, seed: int = 0, device: str = "cpu") -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


@pytest.mark.parametrize("D", [1, 33, 257])
@pytest.mark.parametrize("cell", GATES)
def test_a_cell_is_its_definition(device: str, cell: str, D: int) -> None:
    kernel, gates = GATES[cell]
    x, u = draw(3, 2 * gates * D, seed=1, device=device)[:, ::2], draw(3, gates * D, seed=2, device=device)
    state = tuple(draw(3, D, seed=seed, device=device) for seed in range(3, 5))[: rnn.kind_of(cell).states]
    before = [t.clone() for t in (x, u, *state)]
    torch.testing.assert_close(kernel(x, u, state), rnn.kind_of(cell).function(x, u, state), **NEAR)
    assert all(map(torch.equal, before, (x, u, *state)))


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
def test_gates_that_are_wide_open_or_shut(device: str) -> None:
    """i = 1, f = 0, g = ±1, o = 1, worked by hand; sums of ±1e4 must not overflow into NaN."""
    x = torch.tensor([[1e4, -1e4, 1e4, 1e4], [1e4, -1e4, -1e4, 1e4]], device=device)
    m = torch.tensor([[5.0], [5.0]], device=device)
    s, m_after = lstm_cell(x, torch.zeros_like(x), (torch.zeros_like(m), m))
    assert m_after.tolist() == [[1.0], [-1.0]]
    torch.testing.assert_close(s, torch.tanh(m_after))


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", ["additive", "scaled"])
def test_queries_of_several_hypotheses(device: str, kind: str, K: int) -> None:
    B, S, A, E = 2, 5, 4, 7
    q, keys, values = (
        draw(*shape, seed=i, device=device) for i, shape in enumerate(((B * K, A), (B, S, A), (B, S, E)))
    )
    keep, v = until(torch.tensor([5, 2])).to(device), draw(A, seed=5, device=device)
    each = q.view(B, K, A)
    wanted = attend(additive(each, keys, v) if kind == "additive" else scaled(each, keys), values, keep)
    found = (
        attend_step(q, keys, values, keep, v)
        if kind == "additive"
        else attend_step(q, keys, values, keep, scale=A**-0.5)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.flatten(0, 1), **NEAR)


@pytest.mark.parametrize(
    ("cell", "order", "score"),
    [("lstm", "bahdanau", "additive"), ("gru", "luong", "general"), ("rnn", "luong", "scaled")],
)
def test_a_model_decodes_the_same(
    device: str, cell: str, order: str, score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hypotheses for each sentence, two words; and kernels are what computes it."""
    torch.manual_seed(0)
    config = RnnConfig(cell=cell, order=order, score=score, layers=2, width=4, embedding=3, dropout=0.0)
    model = build(config, 9, 9).double().to(device).eval()
    x = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]], device=device)
    y = torch.tensor([[3, 4], [5, 6], [7, 8], [4, 4]], device=device)
    asked: list[bool] = []
    results = []
    for fused in (False, True):
        monkeypatch.setattr(rnn, "by_kernels", lambda _, fused=fused: asked.append(fused) or fused)
        with torch.no_grad():
            memory = model.encode(x, x != 0)
            state = model.start(memory, 2).select(torch.tensor([0, 0, 1, 1], device=device))
            results.append(model.logits(model.step(y, state, memory).hidden))
    torch.testing.assert_close(results[1], results[0], **NEAR)
    assert any(asked)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_an_encoder_reads_both_ways_by_kernels(device: str, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gates, B, S, D = rnn.kind_of(cell).gates, 3, 4, 5
    torch.manual_seed(0)
    shapes = ((2, gates * D, 6), (2, gates * D, D), (2, gates * D), (2, gates * D))
    weights = tuple(torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True) for shape in shapes)
    x = torch.randn(2, S, B, 6, dtype=torch.float64, device=device, requires_grad=True)
    results = []
    for fused in (False, True):
        monkeypatch.setattr(unrolled, "steppable", lambda _, fused=fused: fused)
        s, last = unrolled_encoder(cell, x, weights, torch.tensor([4, 1, 3], device=device))
        total = s.sin().sum() + sum(side.cos().sum() for side in last)
        results.append([s, *last, *torch.autograd.grad(total, (x, *weights))])
    torch.testing.assert_close(results[1], results[0], **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "order", "score"),
    [
        ("lstm", "bahdanau", "additive"),
        ("gru", "bahdanau", "general"),
        ("lstm", "luong", "scaled"),
        ("gru", "luong", "concat"),
        ("lstm", "luong", "dot"),
    ],
)
def test_a_model_learns_what_the_plain_loop_says(
    device: str, cell: str, order: str, score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = RnnConfig(cell=cell, order=order, score=score, width=4, embedding=3, dropout=0.0)
    model = build(config, 9, 9).double().to(device)
    x, y = torch.randint(1, 9, (2, 4), device=device), torch.randint(1, 9, (2, 3), device=device)
    x[1, 2:] = 0

    def teach() -> list[Tensor]:
        memory = model.encode(x, x != 0)
        step = model.step(y, model.start(memory, 3), memory, NeedWeights())
        assert step.weights is not None
        total = step.hidden.sin().sum() + step.weights.square().sum()
        return [step.hidden, step.weights, *torch.autograd.grad(total, list(model.parameters()), allow_unused=True)]

    monkeypatch.setattr(unrolled, "steppable", lambda _: True)
    found = teach()
    monkeypatch.setattr(unrolled, "steppable", lambda _: False)
    model.unrolls = lambda *_: False
    for one, other in zip(found, teach(), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, **NEAR)


def test_decoding_in_several_types_goes_the_pure_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels want one type; the definition does not mind."""
    monkeypatch.setattr(rnn, "by_kernels", lambda _: True)
    kind = rnn.CELLS["lstm"]
    one, other = torch.zeros(1, 4), torch.zeros(1, 1, dtype=torch.bfloat16)
    with torch.no_grad():
        assert kind.best(one, one, other, other) is rnn.lstm
        assert kind.best(one, one, one, one) is lstm_cell
    assert kind.best(one, one, one, one) is rnn.lstm  # who learns needs the gradient
    with torch.no_grad():
        assert rnn.CELLS["rnn"].best(one, one, one) is rnn.rnn


def test_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    U, keys = torch.zeros(1, 4, 1), torch.zeros(1, 3, 2)
    assert not steppable(U)  # which is not on a GPU
    assert unrolled.layer_type("lstm", U) is LAYERS["lstm"]
    assert not unrolled.attention_by_kernels(keys)
    monkeypatch.setattr("heedful.fused.triton.recurrent_cells.usable", lambda _: True)
    assert steppable(U)
    assert not steppable(U.bfloat16())
    assert unrolled.layer_type("lstm", U) is KernelLstm
    assert unrolled.layer_type("gru", U) is KernelGru
    assert unrolled.layer_type("rnn", U) is LAYERS["rnn"]
    assert unrolled.layer_type("gru", U.bfloat16()) is LAYERS["gru"]
    assert unrolled.attention_by_kernels(keys)
    monkeypatch.setattr(attention, "LONGEST", 2)
    assert not unrolled.attention_by_kernels(keys)


def kept(T: int = 1, B: int = 2, S: int = 3, A: int = 4, E: int = 5) -> tuple[Tensor, ...]:
    return torch.empty(T, B, A), torch.empty(T, B, S), torch.empty(T, B, E)


def test_how_far_apart_rows_lie() -> None:
    wide = torch.zeros(2, 3, 4, 10)
    assert row_stride("rows", wide) == 10
    assert row_stride("rows", wide[..., 2:7]) == 10  # parts of wider rows
    assert row_stride("rows", wide[:1, 1:, :, 2:7]) == 10  # of one piece less
    assert row_stride("rows", torch.zeros(2, 3, 1, 12)[..., :5]) == 12
    row_stride("rows", wide[:, :2, :0])  # nothing to be uneven
    assert row_stride("rows", wide[:1, :1, :1, :5]) == 5  # one row alone
    for uneven in (wide[:, :2], wide[..., ::2], wide.transpose(0, 1), wide[:, :, :2]):
        with pytest.raises(ShapeError, match="rows"):
            row_stride("rows", uneven)


def test_widths_are_counted_in_fours_where_all_are_multiples() -> None:
    assert in_units(1000, 5000) == (250, 1250, 4)
    assert in_units(1000, 5001) == (1000, 5001, 1)


def test_errors_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    gates, s = torch.zeros(1, 2, 3, 8), torch.zeros(1, 3, 3, 2)
    with pytest.raises(ShapeError, match=r"m .*\(1, 3, 3, 1\).*\(1, 3, 3, 2\)"):
        LstmSteps(gates, s, s[..., :1])
    with pytest.raises(ShapeError, match="gates is torch.bfloat16.*torch.float32"):
        GruSteps(gates.bfloat16(), s)
    with pytest.raises(ShapeError, match="s is torch.float64.*gates is torch.float32"):
        GruSteps(gates, s.double())
    with pytest.raises(ShapeError, match="s .*'meta'.*gates .*'cpu'"):
        GruSteps(gates, s.to("meta"))
    with pytest.raises(ShapeError, match="s has strides"):
        GruSteps(gates, torch.zeros(1, 3, 2, 3).transpose(2, 3))
    with pytest.raises(ShapeError, match="gates has strides"):
        GruSteps(torch.zeros(1, 2, 4, 8)[:, :, :3], s)
    with pytest.raises(ShapeError, match="d has strides"):
        GruSteps(gates, s).begin_backward(torch.zeros(1, 2, 8, 3).transpose(2, 3), torch.zeros_like(s))
    with pytest.raises(ShapeError, match="ds .*shape"):
        GruSteps(gates, s).begin_backward(torch.empty_like(gates), s[:, 1:])
    with pytest.raises(ShapeError, match=r"\(R, 4·D\) and 2 .*\(1, 4\) and 1"):
        lstm_cell(torch.zeros(1, 4), torch.zeros(1, 4), (torch.zeros(1, 1),))
    keys, values, keep = torch.zeros(2, 3, 4), torch.zeros(2, 3, 5), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"values .*\(2, 4, 5\).*\(2, 3, 5\)"):
        AttendSteps((keys, torch.zeros(2, 4, 5), keep), kept())
    with pytest.raises(ShapeError, match="q has strides"):
        AttendSteps((keys, values, keep), (torch.empty(1, 4, 2).transpose(1, 2), *kept()[1:]))
    with pytest.raises(ShapeError, match="weights has strides"):
        AttendSteps((keys, values, keep), (kept()[0], torch.empty(1, 2, 6)[..., :3], kept()[2]))
    with pytest.raises(ShapeError, match=r"dq .*\(1, 2, 3\).*\(1, 2, 4\)"):
        AttendSteps((keys, values, keep), kept(), torch.zeros(4)).begin_backward(kept()[2], None, torch.empty(1, 2, 3))
    with pytest.raises(ShapeError, match="keep is torch.float32.*bool"):
        AttendSteps((keys, values, keep.float()), kept())
    with pytest.raises(ShapeError, match=r"v .*\(3,\).*\(4,\)"):
        AttendSteps((keys, values, keep), kept(), torch.zeros(3))
    with pytest.raises(ShapeError, match="q is torch.float64.*keys is torch.float32"):
        attend_step(torch.zeros(2, 4).double(), keys, values, keep)
    with pytest.raises(ShapeError, match="3 queries.* 2 sentences"):
        attend_step(torch.zeros(3, 4), keys, values, keep)
    with pytest.raises(ShapeError, match="at most 1024 .* 1025"):
        attend_step(torch.zeros(1, 1), torch.zeros(1, 1025, 1), torch.zeros(1, 1025, 1), torch.ones(1, 1025) > 0)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ConfigError, match="gates .*'cpu'.*CUDA"):
        GruSteps(gates, s)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler has many of its own
def test_a_compiled_model_trains_with_them(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile goes round the operation; what comes out is the same."""
    monkeypatch.setattr(unrolled, "steppable", lambda _: True)
    torch.manual_seed(0)
    model = build(RnnConfig(cell="lstm", width=4, embedding=3, dropout=0.0), 9, 9).double().to(device)
    x, y = torch.randint(1, 9, (2, 3), device=device), torch.randint(1, 9, (2, 2), device=device)

    def teach(x: Tensor, y: Tensor) -> Tensor:
        memory = model.encode(x, x != 0)
        return model.logits(model.step(y, model.start(memory, 2), memory).hidden).sin().sum()

    results = []
    for function in (teach, torch.compile(teach, backend="eager")):
        total = function(x, y)
        results.append([total, *torch.autograd.grad(total, list(model.parameters()))])
    torch.testing.assert_close(results[1], results[0], **NEAR)
