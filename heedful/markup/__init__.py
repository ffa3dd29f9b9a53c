"""Inline markup carried over: tags and placeholders go with the words that their source words became."""

from __future__ import annotations

from heedful.markup.carry import carry
from heedful.markup.parse import Element, Marked, Point, Run, parse

__all__ = ["Element", "Marked", "Point", "Run", "carry", "parse"]
