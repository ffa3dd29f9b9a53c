"""From scores to weights to context."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from heedful.attention import attend, causal, masked_softmax, scaled, until
from heedful.errors import ShapeError

LN_2, LN_3 = 0.693147, 1.098612


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attend_by_hand():
    scores = torch.tensor([[[0.0, LN_2, 0.0]]])
    values = torch.tensor([[[4.0, 0.0], [0.0, 8.0], [0.0, 4.0]]])
    context, weights = attend(scores, values)
    # 1 : 2 : 1;  4/4, 8/2 + 4/4
    torch.testing.assert_close(weights, torch.tensor([[[0.25, 0.5, 0.25]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(context, torch.tensor([[[1.0, 5.0]]]), atol=1e-5, rtol=0)


def test_attend_under_a_mask_by_hand():
    scores = torch.tensor([[[0.0, LN_3, 5.0]]])
    values = torch.tensor([[[4.0, 0.0], [0.0, 8.0], [100.0, 100.0]]])
    context, weights = attend(scores, values, torch.tensor([[True, True, False]]))
    # 1 : 3 and nothing else;  4/4, 8·¾
    torch.testing.assert_close(weights, torch.tensor([[[0.25, 0.75, 0.0]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(context, torch.tensor([[[1.0, 6.0]]]), atol=1e-5, rtol=0)


def test_a_mask_can_differ_for_every_query():
    scores = torch.tensor([[[LN_3, 0.0], [LN_3, 0.0]]])
    _, weights = attend(scores, torch.ones(1, 2, 1), torch.tensor([[[True, False], [True, True]]]))
    torch.testing.assert_close(weights, torch.tensor([[[1.0, 0.0], [0.75, 0.25]]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["none", "sentence", "query"])
def test_equals_pytorchs_attention(kind):
    q, k, values = rand(3, 4, 8, seed=1), rand(3, 5, 8, seed=2), rand(3, 5, 6, seed=3)
    keep = {
        "none": None,
        "sentence": until(torch.tensor([5, 2, 1])),
        "query": causal(4, 5).expand(3, 4, 5) & until(torch.tensor([5, 3, 1]))[:, None],
    }[kind]
    theirs = keep[:, None] if kind == "sentence" else keep
    context, _ = attend(scaled(q, k), values, keep)
    torch.testing.assert_close(context, F.scaled_dot_product_attention(q, k, values, attn_mask=theirs))


@pytest.mark.parametrize("kind", ["none", "sentence", "query", "everyone"])
def test_heads_equal_pytorchs_attention(kind):
    q, k, values = rand(3, 2, 4, 8, seed=1), rand(3, 2, 5, 8, seed=2), rand(3, 2, 5, 6, seed=3)
    keep = {
        "none": None,
        "sentence": until(torch.tensor([5, 2, 1])),
        "query": causal(4, 5) & until(torch.tensor([5, 3, 1]))[:, None],
        "everyone": causal(4, 5),
    }[kind]
    theirs = {"none": None, "sentence": keep[:, None, None]}.get(kind, keep[:, None]) if keep is not None else None
    context, weights = attend(scaled(q, k), values, keep)
    torch.testing.assert_close(context, F.scaled_dot_product_attention(q, k, values, attn_mask=theirs))
    assert weights.shape == (3, 2, 4, 5)
    for head in range(2):
        alone = attend(scaled(q[:, head], k[:, head]), values[:, head], keep)
        torch.testing.assert_close((context[:, head], weights[:, head]), alone)


@pytest.mark.parametrize("heads", [(), (2,)])
def test_dropout_leaves_weights_out_of_the_sum_and_returns_them_whole(heads):
    scores, values = rand(3, *heads, 4, 50, seed=1), rand(3, *heads, 50, 6, seed=2)
    keep = until(torch.tensor([50, 20, 0]))
    _, whole = attend(scores, values, keep)
    torch.manual_seed(7)
    context, weights = attend(scores, values, keep, dropout=0.4)
    assert torch.equal(weights, whole)
    torch.manual_seed(7)
    left = (torch.nn.functional.dropout(torch.ones_like(whole), 0.4) > 0).double()
    assert 0.5 < left.mean().item() < 0.7
    # what stays is made larger by as much as is missing on average
    torch.testing.assert_close(context, (whole * left / 0.6) @ values)


@st.composite
def scores_and_keep(draw):
    B, T, S = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    size = B * T * S
    numbers = st.floats(-1e4, 1e4, width=32)
    scores = draw(st.lists(numbers, min_size=size, max_size=size))
    keep = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return torch.tensor(scores).view(B, T, S), torch.tensor(keep).view(B, T, S)


@settings(deadline=None)
@given(scores_and_keep())
def test_weights_sum_to_one_over_what_is_kept(drawn):
    scores, keep = drawn
    weights = masked_softmax(scores, keep)
    torch.testing.assert_close(weights.sum(-1), keep.any(-1).float())
    assert bool((weights >= 0).all())
    assert bool((weights[~keep] == 0).all())


@settings(deadline=None)
@given(scores_and_keep())
def test_weights_are_the_softmax_of_the_kept_scores_alone(drawn):
    scores, keep = drawn
    weights = masked_softmax(scores, keep)
    for b, t in torch.cartesian_prod(torch.arange(scores.shape[0]), torch.arange(scores.shape[1])).tolist():
        there = keep[b, t]
        torch.testing.assert_close(weights[b, t, there], torch.softmax(scores[b, t, there], -1))


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**6))
def test_padding_changes_nothing(B, T, S, more, seed):
    scores, values = rand(B, T, S, seed=seed), rand(B, S, 3, seed=seed + 1)
    lengths = torch.randint(1, S + 1, (B,), generator=torch.Generator().manual_seed(seed))
    context, weights = attend(scores, values, until(lengths, S))
    # what stands in the padding must not matter, however loud
    scores = torch.cat([scores, 1e6 * rand(B, T, more, seed=seed + 2)], dim=2)
    values = torch.cat([values, 1e6 * rand(B, more, 3, seed=seed + 3)], dim=1)
    wider, wider_weights = attend(scores, values, until(lengths, S + more))
    torch.testing.assert_close(wider, context)
    torch.testing.assert_close(wider_weights[..., :S], weights)
    assert not wider_weights[..., S:].any()


def test_scores_that_may_not_be_looked_at_can_be_anything():
    keep = torch.tensor([[[True, True, False, False, False]]])
    scores = torch.tensor([[[1.0, 2.0, float("nan"), float("inf"), -float("inf")]]], requires_grad=True)
    weights = masked_softmax(scores, keep)
    torch.testing.assert_close(weights[..., :2], torch.softmax(torch.tensor([[[1.0, 2.0]]]), -1))
    assert weights[..., 2:].tolist() == [[[0.0, 0.0, 0.0]]]
    weights[..., 0].sum().backward()
    assert bool(scores.grad.isfinite().all())


def test_a_row_with_nothing_to_look_at_gives_zeros_in_every_head():
    scores, values = rand(2, 3, 2, 4, seed=1).requires_grad_(), rand(2, 3, 4, 5, seed=2)
    context, weights = attend(scores, values, until(torch.tensor([0, 3]), 4))
    assert not weights[0].any()
    assert not context[0].any()
    torch.testing.assert_close(weights[1].sum(-1), torch.ones(3, 2, dtype=torch.float64))
    context.square().sum().backward()
    assert not scores.grad[0].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_row_with_nothing_to_look_at_gives_zeros(dtype):
    scores = rand(2, 2, 3).to(dtype).requires_grad_()
    values = rand(2, 3, 4).to(dtype).requires_grad_()
    context, weights = attend(scores, values, torch.tensor([[False] * 3, [True] * 3]))
    assert not weights[0].any()
    assert not context[0].any()
    context.square().sum().backward()
    assert not scores.grad[0].any()
    assert not values.grad[0].any()
    assert bool(scores.grad[1].isfinite().all())
    assert bool(scores.grad[1].any())


def test_no_positions_at_all_give_zeros():
    context, weights = attend(torch.zeros(2, 3, 0), torch.zeros(2, 0, 4), torch.ones(2, 0, dtype=torch.bool))
    assert weights.shape == (2, 3, 0)
    assert context.tolist() == torch.zeros(2, 3, 4).tolist()


KEEPS = {
    "everything": None,
    "some": torch.tensor([[[True, False, True, True]] * 3, [[False, True, True, False]] * 3]),
    "nothing": torch.tensor([[[False] * 4, [True] * 4, [False] * 4], [[False] * 4] * 3]),
}


@pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS)
def test_gradient_of_masked_softmax(keep):
    scores = rand(2, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: masked_softmax(e, keep), scores)


@pytest.mark.parametrize("keep", [*KEEPS.values(), until(torch.tensor([4, 2]))], ids=[*KEEPS, "padding"])
def test_gradient_of_attend(keep):
    scores, values = rand(2, 3, 4, seed=1).requires_grad_(), rand(2, 4, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda e, v: attend(e, v, keep), (scores, values))


def test_a_mask_for_all_sentences_is_used_for_each():
    scores, values = torch.randn(3, 3, 3), torch.randn(3, 3, 2)
    _, weights = attend(scores, values, causal(3))
    assert weights.triu(1).eq(0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 3))


@pytest.mark.parametrize("shape", [(2, 4), (3, 4, 5), (1, 1, 1, 4), (4,)])
def test_a_mask_that_does_not_fit_is_named(shape):
    with pytest.raises(ShapeError, match=r"keep.*\("):
        attend(torch.zeros(3, 2, 4), torch.zeros(3, 4, 5), torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"keep.*scores.*\(3, 2, 4\)"):
        attend(torch.zeros(3, 7, 2, 4), torch.zeros(3, 7, 4, 5), torch.ones(shape, dtype=torch.bool))


def test_heads_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"values.*\(3, 5, 4, 5\).*H is 5 .*7 in scores"):
        attend(torch.zeros(3, 7, 2, 4), torch.zeros(3, 5, 4, 5))
    with pytest.raises(ShapeError, match=r"values.*\(3, 4, 5\).*\(B=3, H=7, S=4, C\).*4 axes"):
        attend(torch.zeros(3, 7, 2, 4), torch.zeros(3, 4, 5))
