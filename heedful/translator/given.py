"""What a person gave to be translated, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError

__all__ = ["checked", "prefixes", "way"]


def way(how: Decoding | None) -> Decoding:
    """Return how to translate: greedily, if nothing was said."""
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(f"{how!r} says not how to translate; expected heedful.Decoding(beam=5), say")
    return how or Decoding()


def checked(texts: Sequence[str]) -> list[str]:
    """Return texts as a list; a string alone is refused, which would be a list of its letters."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"{texts!r} is no list of texts; expected strings in a list")
    found = list(texts)
    for text in found:
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected a string, or a list of strings")
    return found


def prefixes(given: str | Sequence[str] | None, count: int) -> list[str]:
    """Return a prefix for each text, or none at all."""
    found = [given] * count if isinstance(given, str) else checked(given or ())
    if found and len(found) != count:
        raise DataError(f"{count} texts but {len(found)} prefixes; give one for all, or one for each")
    return found
