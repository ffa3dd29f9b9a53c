"""English morphology: plurals, the third person, -ing, comparatives, articles, auxiliaries."""

from __future__ import annotations

from typing import NamedTuple

VOWELS = "aeiou"
# What is not simply the word with n't.
CONTRACTIONS = {"will": "won't", "can": "can't"}


class Person(NamedTuple):
    """Who a verb agrees with: 1, 2 or 3, and number; `you` counts as plural."""

    person: int
    plural: bool

    @property
    def is_third(self) -> bool:
        """Whether a verb takes -s."""
        return self.person == 3 and not self.plural


def plural(noun: str) -> str:
    """Return a regular plural.

    >>> plural("book"), plural("box"), plural("city"), plural("toy")
    ('books', 'boxes', 'cities', 'toys')
    """
    return _s(noun)


def third(verb: str) -> str:
    """Return the third person singular.

    >>> third("eat"), third("go"), third("cry"), third("watch"), third("play")
    ('eats', 'goes', 'cries', 'watches', 'plays')
    """
    return verb + "es" if verb.endswith("o") else _s(verb)


def ing(verb: str) -> str:
    """Return the -ing form.

    >>> ing("eat"), ing("dance"), ing("swim"), ing("open"), ing("play"), ing("cry")
    ('eating', 'dancing', 'swimming', 'opening', 'playing', 'crying')
    """
    if verb.endswith("e"):
        return verb[:-1] + "ing"
    syllables = sum(c in VOWELS and (i == 0 or verb[i - 1] not in VOWELS) for i, c in enumerate(verb))
    doubles = len(verb) > 2 and syllables == 1 and verb[-1] not in VOWELS + "wxy"
    if doubles and verb[-2] in VOWELS and verb[-3] not in VOWELS:
        return verb + verb[-1] + "ing"
    return verb + "ing"


def article(next_word: str) -> str:
    """Return a or an.

    >>> article("book"), article("apple"), article("umbrella"), article("old")
    ('a', 'an', 'an', 'an')
    """
    return "an" if next_word[0].lower() in VOWELS else "a"


def possessive(noun: str) -> str:
    """Return the genitive of a noun: boy's, boys', children's."""
    return noun + ("'" if noun.endswith("s") else "'s")


def be(p: Person) -> str:
    """Return am, are or is."""
    return "are" if p.plural else "am" if p.person == 1 else "is"


def was(p: Person) -> str:
    """Return was or were."""
    return "were" if p.plural else "was"


def have(p: Person) -> str:
    """Return have or has."""
    return "has" if p.is_third else "have"


def do(p: Person) -> str:
    """Return do or does."""
    return "does" if p.is_third else "do"


def negated(auxiliary: str) -> str:
    """Return an auxiliary with its not; `am` keeps its own apart.

    >>> negated("is"), negated("will"), negated("can")
    ("isn't", "won't", "can't")
    """
    return CONTRACTIONS.get(auxiliary, auxiliary + "n't")


def _s(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"
