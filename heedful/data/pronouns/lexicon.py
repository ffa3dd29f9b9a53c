"""The words of the English–French grammar: tables that stand beside this file, one entry a line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from heedful.data.hindi.lexicon import rows

SIZES = ("large", "small")  # kinds of predicates
PERSONS = frozenset(("person",))


@dataclass(frozen=True, eq=False)
class FrenchNoun:
    """A noun."""

    english: str
    french: str
    feminine: bool
    classes: frozenset[str]

    @property
    def key(self) -> str:
        """What it is known by among combinations of words."""
        return f"noun {self.english}"

    @property
    def is_person(self) -> bool:
        """Whether it is a person, who is not called `it`."""
        return "person" in self.classes

    @property
    def pronoun(self) -> str:
        """The English pronoun."""
        return ("she" if self.feminine else "he") if self.is_person else "it"


@dataclass(frozen=True, eq=False)
class Predicate:
    """What can be said of a noun: an adjective in two genders, a noun after `avoir`, or a verb in two tenses."""

    english: str
    forms: tuple[str, str]
    kind: str
    classes: frozenset[str]

    @property
    def key(self) -> str:
        """What it is known by among combinations of words."""
        return f"predicate {self.english}"

    def fits(self, noun: FrenchNoun) -> bool:
        """Whether it can be said of a noun."""
        return not self.classes.isdisjoint(noun.classes)


@dataclass(frozen=True, eq=False)
class FrenchVerb:
    """A verb between two nouns.

    `past` is the participle, or imperfect and present; `auxiliary` is `a` (of avoir), `est` or `se est` (of être). The
    prepositions are English and French, before the second noun.
    """

    base: str
    simple_past: str
    infinitive: str
    past: tuple[str, ...]
    auxiliary: str
    preposition: tuple[str, str]
    kind: str
    nouns: tuple[frozenset[str], frozenset[str]]

    @property
    def given(self) -> bool:
        """Whether a person is the subject, and the two nouns are object and place."""
        return self.kind == "give"

    @property
    def key(self) -> str:
        """What it is known by among combinations of words."""
        return f"verb {self.infinitive}"


@dataclass(frozen=True, eq=False)
class FrenchLexicon:
    """All words."""

    nouns: tuple[FrenchNoun, ...]
    predicates: tuple[Predicate, ...]
    verbs: tuple[FrenchVerb, ...]

    @cache  # noqa: B019  (there is one lexicon, for ever)
    def of(self, classes: frozenset[str]) -> tuple[FrenchNoun, ...]:
        """Return the nouns of these classes."""
        return tuple(n for n in self.nouns if not classes.isdisjoint(n.classes))

    @cache  # noqa: B019
    def said_of(self, meant: FrenchNoun, other: FrenchNoun) -> tuple[Predicate, ...]:
        """Return what fits the noun that is meant, and not the other if they have the same pronoun."""
        return tuple(
            p
            for p in self.predicates
            if p.kind not in SIZES and p.fits(meant) and not (p.fits(other) and meant.pronoun == other.pronoun)
        )

    @cache  # noqa: B019
    def sizes(self, noun: FrenchNoun) -> tuple[Predicate, ...]:
        """Return the sizes that a noun can have."""
        return tuple(p for p in self.predicates if p.kind in SIZES and p.fits(noun))


@cache
def lexicon() -> FrenchLexicon:
    """Read the tables, once."""
    return FrenchLexicon(
        tuple(
            FrenchNoun(english, french, gender == "f", frozenset(classes.split()))
            for english, french, gender, classes in rows("nouns.txt", 4, __package__)
        ),
        tuple(
            Predicate(english, (first, second), kind, frozenset(classes.split()))
            for english, first, second, kind, classes in rows("predicates.txt", 5, __package__)
        ),
        tuple(_verb(*row) for row in rows("verbs.txt", 6, __package__)),
    )


def _verb(english: str, french: str, past: str, kind: str, first: str, second: str) -> FrenchVerb:
    base, simple_past = english.split(", ")
    infinitive, _, preposition = french.partition(", ")
    after = ""
    if kind == "give":
        simple_past, _, after = simple_past.partition(" ")
    return FrenchVerb(
        base=base,
        simple_past=simple_past,
        infinitive=infinitive.removeprefix("+").removeprefix("s'"),
        past=tuple(past.split()),
        auxiliary="est" if infinitive[0] == "+" else "se est" if infinitive.startswith("s'") else "a",
        preposition=(after, preposition),
        kind=kind,
        nouns=(frozenset(first.split()), frozenset(second.split())),
    )
