"""Sentence pairs: reading (`files`, `formats`), cleaning, caching (`store`), token ids (`corpus`) and `batches`.

The embedded corpora are `heedful.data.hindi`, `pronouns` and `scenes`. This module loads neither torch nor numpy.
"""

from heedful.data.cleaning import CleaningReport, clean
from heedful.data.files import decode, read_lines
from heedful.data.formats import Pair, PairFile, PairList, Raw, sides

__all__ = ["CleaningReport", "Pair", "PairFile", "PairList", "Raw", "clean", "decode", "read_lines", "sides"]
