"""The façade: `heedful.load(path).translate(text)` gives a `Translation`."""

from heedful.translator.opening import load
from heedful.translator.translation import Token, Translation
from heedful.translator.translator import Translator
from heedful.translator.writer import limit

__all__ = ["Token", "Translation", "Translator", "limit", "load"]
