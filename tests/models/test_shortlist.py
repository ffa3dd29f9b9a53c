"""What a shortlist allows: the same log-probabilities as with all scores masked, for any rows, in any order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.models.shortlist import Allowed, Shortlist

V, D, K = 400, 8, 3


class Output:
    """An output layer with random weights."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.W, self.b = torch.randn(V, D), torch.randn(V)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens."""
        return hidden @ self.W.t() + self.b

    def output_rows(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights of some tokens."""
        return self.W[tokens], self.b[tokens]


def shortlist(each: int) -> Shortlist:
    """Return a shortlist with so many candidates of each of 50 source tokens."""
    candidates = torch.randint(0, V, (50 * each,), generator=torch.Generator().manual_seed(4))
    return Shortlist(torch.arange(51) * each, candidates, torch.tensor([3, 7]), V)


def check(allowed: Allowed, keep: Tensor) -> None:
    """Compare the log-probabilities with those of masked scores."""
    model, hidden = Output(), torch.randn(len(keep) * K, D)
    masked = model.logits(hidden).masked_fill(~keep.repeat_interleave(K, 0), -torch.inf)
    torch.testing.assert_close(allowed.log_probs(model, hidden), masked.log_softmax(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("each", [2, 40], ids=["few", "many"])
def test_log_probs_are_those_of_masked_scores(each: int) -> None:
    x = torch.tensor([[5, 6, 7], [8, 9, 0], [10, 0, 0], [6, 6, 11]])
    some = shortlist(each)
    allowed = some.allowed(x, x != 0)
    keep = torch.zeros(4, V, dtype=torch.bool)
    keep[:, [3, 7]] = True
    for row, tokens in enumerate(x.tolist()):
        for token in filter(None, tokens):
            keep[row, some.candidates[each * token : each * token + each]] = True
    assert torch.equal(allowed.keep, keep)
    check(allowed, keep)
    for rows in ([2, 0, 1], [3, 3], [1]):
        check(allowed.select(torch.tensor(rows)), keep[rows])
    check(allowed.part(slice(1, 3), Output()), keep[1:3])
    check(allowed.select(torch.tensor([2, 0, 1])).select(torch.tensor([1, 2])), keep[[0, 1]])
    both = allowed.join(some.allowed(x[:1], x[:1] != 0))
    check(both, torch.cat([keep, keep[:1]]))
    check(both.put(torch.tensor([1]), some.allowed(x[2:3], x[2:3] != 0)), torch.cat([keep[[0, 2, 2, 3, 0]]]))
