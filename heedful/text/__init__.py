"""Strings to token ids and back; tokens to words with character spans."""

from heedful.text.codec import END, PAD, SPECIALS, START, UNKNOWN, Codec, Encoded, count, pad
from heedful.trace.trace import merge

__all__ = ["END", "PAD", "SPECIALS", "START", "UNKNOWN", "Codec", "Encoded", "count", "merge", "pad"]
