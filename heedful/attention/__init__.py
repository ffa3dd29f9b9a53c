"""The heart: scores as pure functions, masks, attend, and the modules that own the weights."""

from heedful.attention.additive import additive_attend
from heedful.attention.attend import attend, masked_softmax
from heedful.attention.layers import SCORES, Additive, Dot, FusedScore, General, ScaledDot, Score, build_score
from heedful.attention.masks import causal, until
from heedful.attention.scores import additive, concat, dot, general, scaled

__all__ = [
    "SCORES",
    "Additive",
    "Dot",
    "FusedScore",
    "General",
    "ScaledDot",
    "Score",
    "additive",
    "additive_attend",
    "attend",
    "build_score",
    "causal",
    "concat",
    "dot",
    "general",
    "masked_softmax",
    "scaled",
    "until",
]
