"""Strings to token ids and back; tokens to words with character spans."""

from heedful.text.codec import END, PAD, SPECIALS, START, UNKNOWN, Codec, Encoded, count, merge
from heedful.text.sentencepiece import SentencePieces

__all__ = ["END", "PAD", "SPECIALS", "START", "UNKNOWN", "Codec", "Encoded", "SentencePieces", "count", "merge"]
