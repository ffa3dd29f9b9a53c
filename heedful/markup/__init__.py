"""Inline markup carried over: tags and placeholders go with the words that their source words became."""

from heedful.markup.carry import carry
from heedful.markup.parse import Element, Marked, Point, parse

__all__ = ["Element", "Marked", "Point", "carry", "parse"]
