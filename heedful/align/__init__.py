"""Links between words: reading and writing them, scoring them, and finding them in the weights of attention."""

from heedful.align.pharaoh import Links, flip, parse, text
from heedful.align.readout import links
from heedful.align.scores import AlignmentScores, score

__all__ = ["AlignmentScores", "Links", "flip", "links", "parse", "score", "text"]
