"""Inline markup carried over: tags and placeholders go with the words that their source words became."""

from heedful.markup.carry import carry
from heedful.markup.parse import parse
from heedful.markup.runs import Element, Marked, Point, Run

__all__ = ["Element", "Marked", "Point", "Run", "carry", "parse"]
