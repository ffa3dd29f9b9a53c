"""The definition of attention: masks, scores and `attend` as pure functions, then the scores as modules with weights.

Faster implementations, in `heedful.fused`, pass the same tests (`tests/attention/test_attention_contract.py`).
To add a score, write a `Score` and set `SCORES["its name"]`: it trains and decodes by its `forward`; `fused` declares a
fast version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.config import SCORES as SCORE_NAMES
from heedful.config import Registry
from heedful.errors import ConfigError, ShapeError, check_shapes, choose

__all__ = [
    "SCORES",
    "Additive",
    "Dot",
    "FusedScore",
    "General",
    "PredictedPosition",
    "ScaledDot",
    "Score",
    "additive",
    "additive_attend",
    "attend",
    "attend_by",
    "build_score",
    "causal",
    "concat",
    "dot",
    "gaussian",
    "general",
    "kept_by_any",
    "local_attend",
    "lowest",
    "mask_bias",
    "masked_softmax",
    "scaled",
    "until",
    "window",
]


def until(lengths: Tensor, size: int | None = None) -> Tensor:
    """Return keep (B, S): the first `lengths[b]` positions of each row.  lengths (B,) -> (B, S).

    >>> until(torch.tensor([1, 3])).int().tolist()
    [[1, 0, 0], [1, 1, 1]]
    """
    size = int(lengths.max()) if size is None else size
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def causal(T: int, S: int | None = None, device: torch.device | None = None) -> Tensor:
    """Return keep (1, T, S), the same for all sentences: each position attends to itself and those before it.

    The last query attends to every position, also when there are more of them than queries.

    >>> causal(3)[0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    S = T if S is None else S
    return torch.ones(1, T, S, dtype=torch.bool, device=device).tril(S - T)


def kept_by_any(keep: Tensor) -> Tensor:
    """Return the positions that any query may attend to.  keep (B, T, S) -> (B, S)."""
    if keep.stride(1) == 0 and keep.shape[1]:
        return keep[:, 0]
    return keep.any(1)


def lowest(dtype: torch.dtype) -> float:
    """Return the score of a position that may not be attended to: the one mask constant.

    It is finite, because a row of -inf and its gradient would be NaN. It is half of the lowest number, so that a score
    can be added to it.
    """
    return torch.finfo(dtype).min / 2


def mask_bias(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to scores: 0 where `keep` is True, `lowest` elsewhere.  The shape of keep."""
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, lowest(dtype))


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Luong's dot score, e_tj = q_t · k_j.  q (B, T, A), k (B, S, A) -> (B, T, S).

    With heads, q (B, H, T, C), k (B, H, S, C) -> (B, H, T, S).
    """
    if q.dim() not in (3, 4) or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        axes = ("B H T C", "B H S C") if q.dim() == 4 else ("B T A", "B S A")
        check_shapes(q=(q, axes[0]), k=(k, axes[1]))
    return q @ k.transpose(-2, -1)


def scaled(q: Tensor, k: Tensor) -> Tensor:
    """Scaled dot score, e_tj = q_t · k_j / √A.  q (B, T, A), k (B, S, A) -> (B, T, S); heads as in `dot`.

    The sum of A products of unit variance has variance A; dividing by √A keeps the softmax from saturating.
    """
    return dot(q / math.sqrt(q.shape[-1]), k)


def general(q: Tensor, k: Tensor, W: Tensor) -> Tensor:
    """Luong's multiplicative score, e_tj = q_t · W k_j.  q (B, T, A), k (B, S, D), W (A, D) -> (B, T, S)."""
    check_shapes(q=(q, "B T A"), k=(k, "B S D"), W=(W, "A D"))
    return dot(q, k @ W.T)


def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Bahdanau's score, e_tj = v · tanh(q_t + k_j).  q (B, T, A), k (B, S, A), v (A,) -> (B, T, S).

    q is W s and k is U h, the projections: k is computed once for a sentence, not at every step.
    """
    # The full check, with its message, takes longer than a step of decoding can spare.
    if not (q.dim() == k.dim() == 3 and q.shape[0] == k.shape[0] and q.shape[2:] == k.shape[2:] == v.shape):
        check_shapes(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"))
    return torch.tanh(q[:, :, None] + k[:, None]) @ v


def concat(s: Tensor, h: Tensor, W: Tensor, v: Tensor) -> Tensor:
    """Luong's concat score, e_tj = v · tanh(W [s_t; h_j]).  s (B, T, D), h (B, S, E), W (A, D+E), v (A,) -> (B, T, S).

    It is Bahdanau's in other notation: W [s; h] = W_s s + W_h h.
    """
    check_shapes(s=(s, "B T D"), h=(h, "B S E"), W=(W, "A D+E"), v=(v, "A"))
    width = s.shape[-1]
    if W.shape[1] != width + h.shape[-1]:
        raise ShapeError(f"W has shape {tuple(W.shape)}, expected (A, D+E) with D={width} and E={h.shape[-1]}")
    return additive(s @ W[:, :width].T, h @ W[:, width:].T, v)


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Return α_tj = exp e_tj / Σ_i exp e_ti over positions to keep.  scores (…, T, S), keep like it -> (…, T, S).

    A row with nothing to attend to gives zeros, never NaN, and so does its gradient.
    """
    if keep is None:
        return torch.softmax(scores, dim=-1)
    blocked = ~keep
    weights = torch.softmax(scores.masked_fill(blocked, lowest(scores.dtype)), dim=-1)
    return weights.masked_fill(blocked, 0.0)


def attend(scores: Tensor, values: Tensor, keep: Tensor | None = None, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α.  scores (B, T, S), values (B, S, D) -> (B, T, D), (B, T, S).

    With heads: scores (B, H, T, S), values (B, H, S, C) -> (B, H, T, C), (B, H, T, S).
    `keep` marks the positions that may be attended to, for all heads alike: (B, S), or (B, T, S) where an axis of size
    1 is broadcast, as in `causal`. Masked values must be finite: their weight is 0, and 0 · NaN is NaN (see
    `attend_by`). `dropout` is the share of weights that are left out of the sum; the returned weights are complete.
    """
    if scores.dim() not in (3, 4) or scores.shape[:-2] != values.shape[:-2] or scores.shape[-1] != values.shape[-2]:
        heads = "H " if scores.dim() == 4 else ""
        check_shapes(scores=(scores, f"B {heads}T S"), values=(values, f"B {heads}S {'C' if heads else 'D'}"))
    if keep is not None:
        keep = keep[:, None] if keep.dim() == 2 else keep
        wanted = (scores.shape[0], *scores.shape[-2:])
        if keep.dim() != 3 or any(size not in (1, full) for size, full in zip(keep.shape, wanted, strict=True)):
            raise ShapeError(f"keep has shape {tuple(keep.shape)}, expected (B, S) or (B, T, S) for scores {wanted}")
        keep = keep[:, None] if scores.dim() == 4 else keep
    weights = masked_softmax(scores, keep)
    return (functional.dropout(weights, dropout) if dropout else weights) @ values, weights


def attend_by(
    score: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c and α of a score, e = score(q, k).  q (B, T, A), k (B, S, A), values (B, S, D), keep as in `attend`.

    Positions that no query may attend to may hold anything, also NaN.
    """
    if keep is not None:
        blocked = ~(keep if keep.dim() == 2 else kept_by_any(keep))[..., None]
        k, values = k.masked_fill(blocked, 0), values.masked_fill(blocked, 0)  # 0 · NaN would be NaN
    return attend(score(q, k), values, keep)


def additive_attend(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α = softmax_j v · tanh(q_t + k_j): `attend_by` of `additive`.

    q (B, T, A), k (B, S, A), v (A,), values (B, S, D), keep as in `attend` -> (B, T, D), (B, T, S). It allocates
    (B, T, S, A). It computes in fp32 or wider, also under autocast: a sum of A terms in bf16 would keep two digits.
    """
    wide = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.promote_types(v.dtype, values.dtype))
    wide = torch.promote_types(wide, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        v = v.to(wide)
        context, weights = attend_by(lambda q, k: additive(q, k, v), q.to(wide), k.to(wide), values.to(wide), keep)
        return context.to(values.dtype), weights


def window(p: Tensor, S: int, D: float) -> Tensor:
    """Return the positions from p_t - D to p_t + D.  p (B, T) -> keep (B, T, S).

    >>> window(torch.tensor([[0.0, 2.4]]), 5, 1)[0].int().tolist()
    [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]]
    """
    return (torch.arange(S, device=p.device) - p[..., None]).abs() <= D


def gaussian(p: Tensor, S: int, D: float) -> Tensor:
    """Return exp(-(j - p_t)² / 2σ²) with σ = D/2: 1 at p_t, 0.14 at the ends of the window.  p (B, T) -> (B, T, S)."""
    return torch.exp(-2 * ((torch.arange(S, device=p.device) - p[..., None]) / D) ** 2)


def local_attend(
    scores: Tensor, values: Tensor, p: Tensor, D: float, keep: Tensor | None = None, peaked: bool = False
) -> tuple[Tensor, Tensor]:
    """Return c_t and α of Luong's local attention, to the positions from p_t - D to p_t + D: `attend` in a `window`.

    scores (B, T, S), values (B, S, D), p (B, T), keep (B, S) -> (B, T, D), (B, T, S). With `peaked`, weights are
    multiplied by `gaussian` after the softmax, as local-p does, so that a gradient reaches p; they sum to less than 1
    then. A window outside the sentence gives zeros.
    """
    if p.shape != scores.shape[:2]:
        check_shapes(scores=(scores, "B T S"), p=(p, "B T"))
    S = scores.shape[-1]
    inside = window(p, S, D)
    c, weights = attend(scores, values, inside if keep is None else inside & keep[:, None])
    if not peaked:
        return c, weights
    weights = weights * gaussian(p, S, D).to(weights.dtype)
    return weights @ values, weights


class FusedScore(NamedTuple):
    """A score in the form that the fast versions in `heedful.fused` compute.

    With `v` (A,): e_tj = v · tanh(W s_t + k_j), W (A, D). Without: e_tj = scale · s_t · k_j.
    """

    scale: float = 1.0
    W: Tensor | None = None
    v: Tensor | None = None


class Score(nn.Module):
    """The base class of scores as modules.  D: width of s, E: width of h, A: width of the comparison."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "fused" not in cls.__dict__:
            cls.fused = Score.fused  # type: ignore[method-assign]  # a subclass may compute something else

    def keys(self, h: Tensor) -> Tensor:
        """Return the keys k, computed once for a sentence.  h (B, S, E) -> (B, S, A)."""
        return h

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        """Return e_tj = s_t · k_j, unless a subclass defines another score.  s (B, T, D), k (B, S, A) -> (B, T, S)."""
        return dot(s, k)

    def fused(self) -> FusedScore | None:
        """Return the form in which fast versions compute this score, or None to run `forward` everywhere.

        The declaration holds for the class that makes it. Subclasses do not inherit it.
        """
        return None


class Dot(Score):
    """e_tj = s_t · h_j. It has no weights, so s and h need the same width."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        if D != E:
            raise ConfigError(
                f"score {type(self).__name__} compares s_t and h_j as they are, but their widths are {D} and {E}; "
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
        return scaled(s, k)

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
        return additive(self.W(s), k, self.v)

    def fused(self) -> FusedScore:
        """Return v · tanh(W s + k)."""
        return FusedScore(1.0, self.W.weight, self.v)


class PredictedPosition(nn.Module):
    """p_t = S · σ(v_p · tanh(W_p s_t)): where local-p attends to, from 0 to the length S of each sentence."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.W = nn.Linear(D, D, bias=False)
        self.v = nn.Parameter(nn.init.uniform_(self.W.weight.new_empty(D), -(D**-0.5), D**-0.5))

    def forward(self, s: Tensor, lengths: Tensor) -> Tensor:
        """Return the positions.  s (B, T, D), lengths (B,) -> (B, T)."""
        return lengths[:, None] * torch.sigmoid(torch.tanh(self.W(s)) @ self.v)


# To add one, see CONTRIBUTING.md, "Add a score".
SCORES: Registry[type[Score]] = Registry(
    SCORE_NAMES,
    {
        "dot": Dot,
        "scaled": ScaledDot,
        "general": General,
        "additive": Additive,
        "concat": Additive,
    },
)


def build_score(name: str, D: int, E: int, A: int) -> Score:
    """Return the module of a score by its name."""
    return SCORES[choose("score", name, SCORES)](D, E, A)
