"""The words: tables that stand beside this file as text, one entry a line, columns separated by `|`."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from heedful.data.hindi.english import plural


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun or a name; `tags` say what it is."""

    hindi: str
    feminine: bool
    english: str
    plural: str
    article: str
    tags: frozenset[str]

    @property
    def key(self) -> str:
        """What it is known by among combinations of words."""
        return f"noun {self.hindi}"

    def has(self, *tags: str) -> bool:
        """Whether it is one of these."""
        return not self.tags.isdisjoint(tags)


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective, its comparative or "", and the tags of the nouns that it fits."""

    hindi: str
    english: str
    comparative: str
    of: frozenset[str]

    @property
    def key(self) -> str:
        """What it is known by among combinations of words."""
        return f"adjective {self.hindi}"

    @property
    def changes(self) -> bool:
        """Whether it agrees with its noun."""
        return self.hindi.endswith(("ा", "आ"))

    def fits(self, noun: Noun) -> bool:
        """Whether it fits a noun."""
        return not self.of.isdisjoint(noun.tags)


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in one frame; `nominal` is the word before the stem of a conjunct verb."""

    nominal: str
    stem: str
    base: str
    past: str
    participle: str
    particle: str
    frame: str
    nominal_gender: str
    animals: bool
    agent: bool
    willed: bool
    objects: frozenset[str] = field(repr=False)
    but: frozenset[str] = field(repr=False)

    @property
    def key(self) -> str:
        """What it is known by among combinations of words: the word that carries the meaning, whatever the frame."""
        return f"verb {self.nominal if self.stem == 'कर' else self.stem}"

    def takes(self, noun: Noun) -> bool:
        """Whether this noun can be its object."""
        return not self.objects.isdisjoint(noun.tags) and self.but.isdisjoint(noun.tags)


@dataclass(frozen=True, eq=False)
class HindiLexicon:
    """All words."""

    nouns: tuple[Noun, ...]
    names: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: tuple[Verb, ...]

    @cache  # noqa: B019  (there is one lexicon, for ever)
    def tagged(self, *tags: str) -> tuple[Noun, ...]:
        """Return the nouns with one of these tags."""
        return tuple(n for n in self.nouns if n.has(*tags))

    @cache  # noqa: B019
    def fitting(self, noun: Noun) -> tuple[Adjective, ...]:
        """Return the adjectives that fit a noun."""
        return tuple(a for a in self.adjectives if a.fits(noun))

    @cache  # noqa: B019
    def taken(self, verb: Verb) -> tuple[Noun, ...]:
        """Return the nouns that a verb takes."""
        return tuple(n for n in self.nouns if verb.takes(n))

    @cache  # noqa: B019
    def needs_dative(self, verb: Verb) -> bool:
        """Whether a verb always has somebody with को: a receiver, or an object that is a person or an animal."""
        if verb.frame == "to":
            return True
        return verb.frame in ("object", "state") and all(n.has("person", "animal") for n in self.taken(verb))

    @cache  # noqa: B019
    def framed(self, *frames: str, animals: bool = False, willed: bool = False) -> tuple[Verb, ...]:
        """Return the verbs of some frames; only those of animals, or only those that one wants, if so asked."""
        return tuple(
            v for v in self.verbs if v.frame in frames and (v.animals or not animals) and (v.willed or not willed)
        )


@cache
def lexicon() -> HindiLexicon:
    """Read the tables, once."""
    return HindiLexicon(
        nouns=tuple(_noun(*row) for row in rows("nouns.txt", 6)),
        names=tuple(
            Noun(hindi, gender == "f", english, "", "", frozenset(("person", "name")))
            for hindi, gender, english in rows("names.txt", 3)
        ),
        adjectives=tuple(
            Adjective(hindi, english, comparative, frozenset(of.split()))
            for hindi, english, comparative, of in rows("adjectives.txt", 4)
        ),
        verbs=tuple(_verb(*row) for row in rows("verbs.txt", 5)),
    )


def rows(name: str, columns: int, package: str = __package__) -> list[list[str]]:
    """Return the cells of a table of a package; equal letters get equal code points (NFC)."""
    text = unicodedata.normalize("NFC", files(package).joinpath(name).read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    for row in rows:
        if len(row) != columns:
            raise ValueError(f"{name}: expected {columns} columns, found {len(row)}: {' | '.join(row)}")
    return rows


def _noun(hindi: str, gender: str, english: str, many: str, article: str, tags: str) -> Noun:
    return Noun(hindi, gender == "f", english, many or plural(english), article, frozenset(tags.split()))


def _verb(hindi: str, english: str, frame: str, who: str, what: str) -> Verb:
    *nominal, stem = hindi.split()
    base, past, participle, *particle = english.split()
    frame, _, gender = frame.partition(".")
    tags = what.split()
    return Verb(
        nominal=" ".join(nominal),
        stem=stem,
        base=base,
        past=past,
        participle=participle,
        particle=" ".join(particle),
        frame=frame,
        nominal_gender=gender,
        animals=who[0] == "a",
        agent="+" in who,
        willed="!" not in who,
        objects=frozenset(t for t in tags if not t.startswith("-")),
        but=frozenset(t[1:] for t in tags if t.startswith("-")),
    )
