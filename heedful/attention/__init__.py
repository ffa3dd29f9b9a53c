"""The definitions: scores as pure functions, masks, attend, and the modules that own the weights."""

from heedful.attention.attend import additive_attend, attend, attend_by, kept_by_any, lowest, mask_bias, masked_softmax
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
    "attend_by",
    "build_score",
    "causal",
    "concat",
    "dot",
    "general",
    "kept_by_any",
    "lowest",
    "mask_bias",
    "masked_softmax",
    "scaled",
    "until",
]
