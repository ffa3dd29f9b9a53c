"""What a person gave to be translated, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from heedful.decoding import Decoding, DecodingKeywords
from heedful.errors import ConfigError, DataError, known_arguments

__all__ = ["CHARACTERS", "SPLIT_CHARACTERS", "check_size", "checked", "checked_threads", "prefixes", "way"]

CHARACTERS = 100_000  # of a text that is taken as one: some fifty pages; the work may grow with the square
SPLIT_CHARACTERS = 1_000_000  # of a text that is split into sentences


def way(
    how: Decoding | None, keywords: Mapping[str, Any] | None = None, function: str = "", others: Sequence[str] = ()
) -> Decoding:
    """Return how to translate: as `how` says, changed by keywords; by default greedily.

    `function` and its `others`, the arguments that are not settings of decoding, are named for unknown keywords.
    """
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(
            f"how is {how!r}, expected heedful.Decoding(beam=5, …); settings can also be given by name, as beam=5"
        )
    settings = dict(keywords or {})
    known_arguments(function, settings, [*DecodingKeywords.__annotations__, *others])
    return replace(how or Decoding(), **settings) if settings else how or Decoding()


def checked_threads(threads: int) -> int:
    """Return a number of threads; 0 stands for as many as PyTorch takes."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 4096:
        raise ConfigError(f"threads is {threads!r}, expected a whole number from 1 to 4096, or 0: as PyTorch has it")
    return threads


def checked(texts: Sequence[str], most: int = CHARACTERS) -> list[str]:
    """Return texts of at most so many characters as a list; a string alone would be a list of its letters.

    Raises DataError for what is no list of texts, and for a text that is too long, with its index.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"{texts!r} is no list of texts; expected strings in a list")
    found = list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected a string, or a list of strings")
        which = f"text {number} of {len(found)} (index {number - 1})" if len(found) > 1 else "the text"
        check_size(text, which, most)
    return found


def check_size(text: str, what: str, most: int = CHARACTERS) -> None:
    """Raise DataError if a text is longer than what is translated as one."""
    if len(text) > most:
        whole = f" ({SPLIT_CHARACTERS:,} if it is split into sentences)" if most < SPLIT_CHARACTERS else ""
        raise DataError(
            f"{what} has {len(text):,} characters; at most {most:,} are translated as one text{whole}: give each "
            "paragraph as a text of its own (on the command line, as a line of its own)"
        )


def prefixes(given: str | Sequence[str] | None, count: int) -> list[str]:
    """Return a prefix for each text, or none at all."""
    found = [given] * count if isinstance(given, str) else checked(given or ())
    if found and len(found) != count:
        raise DataError(f"{count} texts but {len(found)} prefixes; give one for all, or one for each")
    return found
