"""Pairs from files, held-out pairs, batches."""

from heedful.data.batches import Batch, Batches, pad
from heedful.data.files import decode, read_lines
from heedful.data.pairs import Pair, Pairs, parse_columns, read_parallel, read_tsv
from heedful.data.split import hold_out, sentence_key

__all__ = [
    "Batch",
    "Batches",
    "Pair",
    "Pairs",
    "decode",
    "hold_out",
    "pad",
    "parse_columns",
    "read_lines",
    "read_parallel",
    "read_tsv",
    "sentence_key",
]
