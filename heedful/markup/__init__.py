"""Inline markup carried over: tags and placeholders are placed at the words that their source words are linked to."""

from heedful.markup.carry import carry
from heedful.markup.parse import Marked, MarkupRun, parse

__all__ = ["Marked", "MarkupRun", "carry", "parse"]
