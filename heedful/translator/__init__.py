"""Translating text: `heedful.load(path).translate(text)` gives a `Translation`."""

from heedful.translator.translation import Token, Translation
from heedful.translator.translator import Translator, load

__all__ = ["Token", "Translation", "Translator", "load"]
