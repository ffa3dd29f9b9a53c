"""Translating text: `heedful.load(path).translate(text)` gives a `Translation`."""

from heedful.translator.aligning import AlignedPairs, align
from heedful.translator.select_readout import select_readout
from heedful.translator.translation import Token, Translation
from heedful.translator.translator import Translator, load

__all__ = ["AlignedPairs", "Token", "Translation", "Translator", "align", "load", "select_readout"]
