"""Word alignment: links between the words of sentence pairs, read from weights or learned; gold links, error rate.

`heedful.align` is the function that aligns pairs; this room is called `alignment` so that the two do not collide.
"""

from heedful.alignment.gold import AlignmentScores, Gold, join_links, read_gold, score, standard_error
from heedful.alignment.links import Links, align_trace, flip, parse, text
from heedful.alignment.select_readout import MeasuredReadout, ReadoutSelection, WeightTable
from heedful.alignment.statistical import MOST_CELLS, ROUNDS, both_directions, eflomal_directions
from heedful.alignment.symmetrize import HEURISTICS, DirectedLinks, symmetrize
from heedful.trace.readout import Readout

__all__ = [
    "HEURISTICS",
    "MOST_CELLS",
    "ROUNDS",
    "AlignmentScores",
    "DirectedLinks",
    "Gold",
    "Links",
    "MeasuredReadout",
    "Readout",
    "ReadoutSelection",
    "WeightTable",
    "align_trace",
    "both_directions",
    "eflomal_directions",
    "flip",
    "join_links",
    "parse",
    "read_gold",
    "score",
    "standard_error",
    "symmetrize",
    "text",
]
