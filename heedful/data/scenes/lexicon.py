"""The words of the scenes in English and Hindi: kinds (`kinds.txt`), colours, sizes, counts and relations."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from heedful.data.hindi.lexicon import rows

LANGUAGES = ("en", "hi")


class ColourWord(NamedTuple):
    """A colour: its Hindi name and what is painted for it."""

    hindi: str
    rgb: tuple[int, int, int]


COLOURS = {
    "red": ColourWord("लाल", (224, 48, 48)),
    "orange": ColourWord("नारंगी", (246, 138, 30)),
    "yellow": ColourWord("पीला", (250, 214, 48)),
    "green": ColourWord("हरा", (52, 164, 72)),
    "blue": ColourWord("नीला", (46, 112, 226)),
    "purple": ColourWord("बैंगनी", (140, 66, 190)),
    "pink": ColourWord("गुलाबी", (246, 142, 188)),
    "white": ColourWord("सफ़ेद", (248, 248, 246)),
}
SIZES = {"small": "छोटा", "large": "बड़ा"}
COUNTS = {1: ("a", "एक"), 2: ("two", "दो"), 3: ("three", "तीन")}
RELATIONS = {
    "above": ("above", "के ऊपर"),
    "below": ("below", "के नीचे"),
    "left of": ("left of", "के बाईं ओर"),
    "right of": ("right of", "के दाईं ओर"),
}


class KindNoun(NamedTuple):
    """The noun of a kind: its two English forms; the four Hindi ones, direct and oblique; its gender in Hindi."""

    singular: str
    plural: str
    hindi: str
    oblique: str
    hindi_plural: str
    oblique_plural: str
    feminine: bool


@cache
def kinds() -> dict[str, KindNoun]:
    """Return the nouns of all kinds, by their English singular."""
    table = rows("kinds.txt", 7, __package__)
    return {row[0]: KindNoun(row[0], row[1], row[2], row[3], row[4], row[5], row[6] == "f") for row in table}


def noun_phrase(count: int, size: str, colour: str, kind: str, language: str, oblique: bool = False) -> list[str]:
    """Return the words of `two red birds` or `a small blue house`; `oblique` is the case before a postposition.

    >>> noun_phrase(2, "", "red", "bird", "en"), noun_phrase(1, "small", "blue", "house", "hi", oblique=True)
    (['two', 'red', 'birds'], ['एक', 'छोटे', 'नीले', 'घर'])
    """
    noun = kinds()[kind]
    if language == "en":
        return [COUNTS[count][0], *([size] if size else []), colour, noun.singular if count == 1 else noun.plural]
    forms = (noun.hindi, noun.oblique) if count == 1 else (noun.hindi_plural, noun.oblique_plural)
    changed = count > 1 or oblique
    adjectives = [*([SIZES[size]] if size else []), COLOURS[colour].hindi]
    return [COUNTS[count][1], *(_agree(a, noun.feminine, changed) for a in adjectives), forms[oblique]]


def _agree(adjective: str, feminine: bool, changed: bool) -> str:
    """Return a Hindi adjective that agrees with its noun; one that does not end in ा never changes."""
    if not adjective.endswith("ा"):
        return adjective
    return adjective[:-1] + ("ी" if feminine else "े" if changed else "ा")
