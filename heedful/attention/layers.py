"""The scores as modules: they hold the weights.

Each has `keys(h)`, computed once for a sentence, and `forward(s, k)`, the scores of the decoder's states. To add one,
write a module and set `SCORES["its name"]`: it trains and decodes by its `forward`. `fused` declares a fast version.
"""

from __future__ import annotations

from collections import UserDict
from typing import NamedTuple

from torch import Tensor, nn

from heedful.attention import scores
from heedful.config import SCORES as NAMES
from heedful.errors import ConfigError, choose

__all__ = ["SCORES", "Additive", "Dot", "FusedScore", "General", "ScaledDot", "Score", "build_score"]


class FusedScore(NamedTuple):
    """A score in the form that the fast versions in `heedful.fused` compute.

    With `v` (A,): e_tj = v · tanh(W s_t + k_j), W (A, D). Without: e_tj = scale · s_t · k_j.
    """

    scale: float = 1.0
    W: Tensor | None = None
    v: Tensor | None = None


class Score(nn.Module):
    """The base of all scores.  D: width of s, E: width of h, A: width of the comparison."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "fused" not in cls.__dict__:
            cls.fused = Score.fused  # type: ignore[method-assign]  # a subclass may compute something else

    def keys(self, h: Tensor) -> Tensor:
        """Return what the queries are compared with, k.  h (B, S, E) -> (B, S, A)."""
        return h

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = s_t · k_j, unless a score says otherwise.  s (B, T, D), k (B, S, A) -> (B, T, S)."""
        return scores.dot(s, k)

    def fused(self) -> FusedScore | None:
        """Return the form in which fast versions compute this score, or None to run `forward` everywhere.

        The declaration holds for the class that makes it. Subclasses do not inherit it.
        """
        return None


class Dot(Score):
    """e_tj = s_t · h_j: no weights, so both need the same width."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        if D != E:
            raise ConfigError(
                f"this score compares s_t and h_j as they are, but their widths are {D} and {E}; "
                f"make them equal (model.encoder_width=0), or choose additive or general"
            )

    def fused(self) -> FusedScore:
        """Return scale · s · k with scale 1."""
        return FusedScore()


class ScaledDot(Dot):
    """e_tj = s_t · h_j / √D."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        self.scale = D**-0.5

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = s_t · h_j / √D.  s (B, T, D), k (B, S, D) -> (B, T, S)."""
        return scores.scaled(s, k)

    def fused(self) -> FusedScore:
        """Return scale · s · k with scale 1/√D."""
        return FusedScore(self.scale)


class General(Score):
    """e_tj = s_t · W h_j."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        self.W = nn.Linear(E, D, bias=False)

    def keys(self, h: Tensor) -> Tensor:
        """Return W h_j.  h (B, S, E) -> (B, S, D)."""
        return self.W(h)  # type: ignore[no-any-return]

    def fused(self) -> FusedScore:
        """Return scale · s · k with scale 1: W is in the keys."""
        return FusedScore()


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

    def fused(self) -> FusedScore:
        """Return v · tanh(W s + k)."""
        return FusedScore(1.0, self.W.weight, self.v)


class _ScoreRegistry(UserDict[str, type[Score]]):
    """Scores by name. A name set here is allowed as the setting model.score."""

    def __setitem__(self, name: str, score: type[Score]) -> None:
        super().__setitem__(name, score)
        if name not in NAMES:
            NAMES.append(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        NAMES.remove(name)


SCORES = _ScoreRegistry(dot=Dot, scaled=ScaledDot, general=General, additive=Additive, concat=Additive)


def build_score(name: str, D: int, E: int, A: int) -> Score:
    """Return the module of a score by its name."""
    return SCORES[choose("score", name, SCORES)](D, E, A)
