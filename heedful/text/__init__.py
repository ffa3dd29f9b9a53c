"""Strings to token ids and back; tokens to words with character spans."""

from heedful.text.codec import END, PAD, SPECIALS, START, UNKNOWN, Codec, Encoded
from heedful.text.sentencepiece import SentencePieces
from heedful.text.words import count, merge

__all__ = ["END", "PAD", "SPECIALS", "START", "UNKNOWN", "Codec", "Encoded", "SentencePieces", "count", "merge"]
