"""Inline markup carried over: tags and placeholders are placed at the words that their source words are linked to."""

from heedful.markup.carry import carry
from heedful.markup.parse import Element, Marked, MarkupRun, Point, parse

__all__ = ["Element", "Marked", "MarkupRun", "Point", "carry", "parse"]
