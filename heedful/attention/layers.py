"""The scores as modules: here live the weights, and no further idea.

Each has `keys(h)`, worked out once for a sentence, and `forward(s, k)`, the scores of the asking states.
"""

from __future__ import annotations

from torch import Tensor, nn

from heedful.attention import scores
from heedful.errors import ConfigError, choose

__all__ = ["SCORES", "Additive", "Dot", "General", "ScaledDot", "Score", "build_score"]


class Score(nn.Module):
    """What all scores have in common.  D: width of s, E: width of h, A: width of the comparison."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__()

    def keys(self, h: Tensor) -> Tensor:
        """Return what the queries are compared with, k.  h (B, S, E) -> (B, S, A)."""
        return h

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = s_t · k_j, unless a score says otherwise.  s (B, T, D), k (B, S, A) -> (B, T, S)."""
        return scores.dot(s, k)


class Dot(Score):
    """e_tj = s_t · h_j: no weights, so both need the same width."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        if D != E:
            raise ConfigError(
                f"this score compares s_t and h_j as they are, but their widths are {D} and {E}; "
                f"make them equal (model.encoder_width=0), or choose additive or general"
            )


class ScaledDot(Dot):
    """e_tj = s_t · h_j / √D."""

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = s_t · h_j / √D.  s (B, T, D), k (B, S, D) -> (B, T, S)."""
        return scores.scaled(s, k)


class General(Score):
    """e_tj = s_t · W h_j."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        self.W = nn.Linear(E, D, bias=False)

    def keys(self, h: Tensor) -> Tensor:
        """Return W h_j.  h (B, S, E) -> (B, S, D)."""
        return self.W(h)  # type: ignore[no-any-return]


class Additive(Score):
    """e_tj = v · tanh(W s_t + U h_j): Bahdanau's, and Luong's concat with W_a = [W, U]."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        self.W = nn.Linear(D, A, bias=False)
        self.U = nn.Linear(E, A, bias=True)
        self.v = nn.Parameter(nn.init.uniform_(self.W.weight.new_empty(A), -(A**-0.5), A**-0.5))

    def keys(self, h: Tensor) -> Tensor:
        """Return U h_j + b.  h (B, S, E) -> (B, S, A)."""
        return self.U(h)  # type: ignore[no-any-return]

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = v · tanh(W s_t + k_j).  s (B, T, D), k = U h (B, S, A) -> (B, T, S)."""
        return scores.additive(self.W(s), k, self.v)


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled": ScaledDot,
    "general": General,
    "additive": Additive,
    "concat": Additive,
}


def build_score(name: str, D: int, E: int, A: int) -> Score:
    """Return the module of a score by its name."""
    return SCORES[choose("score", name, SCORES)](D, E, A)
