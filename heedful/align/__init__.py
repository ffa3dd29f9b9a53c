"""Links between words: reading, writing and scoring them; finding them in sentence pairs, or in weights."""

from heedful.align.eflomal import eflomal_directions
from heedful.align.gold import Gold, read_gold
from heedful.align.pharaoh import Links, flip, parse, text
from heedful.align.readout import links
from heedful.align.scores import AlignmentScores, score, standard_error
from heedful.align.statistical import MOST_CELLS, ROUNDS, align_pairs, both_directions
from heedful.align.symmetry import SYMMETRIES, symmetrise
from heedful.align.ways import OneWay

__all__ = [
    "MOST_CELLS",
    "ROUNDS",
    "SYMMETRIES",
    "AlignmentScores",
    "Gold",
    "Links",
    "OneWay",
    "align_pairs",
    "both_directions",
    "eflomal_directions",
    "flip",
    "links",
    "parse",
    "read_gold",
    "score",
    "standard_error",
    "symmetrise",
    "text",
]
