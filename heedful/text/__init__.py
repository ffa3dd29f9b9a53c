"""Strings to token ids and back; tokens to words with character spans."""

from heedful.text.tokenizer import END, PAD, SPECIALS, START, UNKNOWN, Codec, Encoded
from heedful.text.words import count, merge

__all__ = ["END", "PAD", "SPECIALS", "START", "UNKNOWN", "Codec", "Encoded", "count", "merge"]
