"""The façade: `heedful.load(path).translate(text)` gives a `Translation`."""

from heedful.translator.aligning import AlignedPairs, align
from heedful.translator.opening import load
from heedful.translator.select_readout import select_readout
from heedful.translator.translation import Token, Translation
from heedful.translator.translator import Translator
from heedful.translator.writer import limit

__all__ = ["AlignedPairs", "Token", "Translation", "Translator", "align", "limit", "load", "select_readout"]
