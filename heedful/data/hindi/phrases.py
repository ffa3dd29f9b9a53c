"""Phrases in both languages at once: random choices (`Speaker`), pronouns, names, nouns with their determiners."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar

from heedful.data.hindi.english import Person, article, possessive
from heedful.data.hindi.hindi import HindiAgreement, adjective, genitive, noun
from heedful.data.hindi.lexicon import Adjective, Noun, rows

T = TypeVar("T")


class LinkedWord(NamedTuple):
    """A written word and the ideas it expresses: a Hindi and an English word that share one are linked."""

    text: str
    ideas: tuple[int, ...]


Phrase = tuple[LinkedWord, ...]


def words(text: str, *ideas: int) -> Phrase:
    """Return the words of a text, all of which express these ideas."""
    if " " not in text:
        return (LinkedWord(text, ideas),) if text else ()
    return tuple([LinkedWord(word, ideas) for word in text.split()])


class Speaker:
    """Makes the random choices of one sentence and records them.

    Only `Random.random` is used: its numbers are the same in every version of Python.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ideas = count()
        self.relations: list[tuple[str, str]] = []  # keys of related words: verb and object, …
        self.used: list[str] = []  # keys of all words
        self.antecedents: list[tuple[int, int]] = []  # the idea of a pronoun, and of its antecedent
        self.previous: NounPhrase | None = None  # the subject of the clause before

    def idea(self) -> int:
        """Return a new idea."""
        return next(self._ideas)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options, each as likely as any other."""
        return options[int(self._random.random() * len(options))]

    def weigh(self, options: Mapping[T, float]) -> T:
        """Return one of the options with a probability by its weight."""
        left = self._random.random() * math.fsum(options.values())
        for option, weight in options.items():
            left -= weight
            if left < 0:
                return option
        return next(reversed(list(options)))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        return low + int(self._random.random() * (high - low + 1))

    def use(self, *keys: str) -> None:
        """Record that words are used."""
        self.used.extend(keys)

    def relate(self, one: str, other: str) -> None:
        """Record that two words are related."""
        self.relations.append((one, other))


NUMERALS = {"दो": "two", "तीन": "three", "चार": "four", "पाँच": "five", "दस": "ten"}


class Pronoun(NamedTuple):
    """The forms of a pronoun in both languages; gender is m, f or - for any."""

    direct: str
    agent: str
    dative: str
    genitive: str
    oblique: str
    gender: str
    agreement: HindiAgreement
    subject: str
    object: str
    possessive: str
    person: Person


@dataclass(frozen=True)
class NounPhrase:
    """Somebody or something, in every form that either language needs.

    `idea` is that of the head: a case marker without a partner in English is linked to it. `heads` are the nouns,
    `described` the adjectives.
    """

    agreement: HindiAgreement
    person: Person
    direct: Phrase
    oblique: Phrase
    subject: Phrase
    object: Phrase
    possessive: Phrase
    idea: int
    heads: tuple[Noun, ...] = ()
    pronoun: Pronoun | None = None
    described: tuple[Adjective, ...] = ()

    @property
    def is_third(self) -> bool:
        """Whether it is neither speaker nor listener."""
        return self.person.person == 3

    @property
    def keys(self) -> tuple[str, ...]:
        """What its nouns are known by among combinations of words."""
        return tuple(n.key for n in self.heads)

    def agent(self) -> Phrase:
        """Return it with ने."""
        if self.pronoun:
            return words(self.pronoun.agent, self.idea)
        return self.oblique + words("ने", self.idea)

    def dative(self, *ideas: int) -> Phrase:
        """Return it with को; `ideas` are those of को when English has a word for it."""
        if self.pronoun:
            return words(self.pronoun.dative, self.idea, *ideas)
        return self.oblique + words("को", *(ideas or (self.idea,)))

    def after(self, postposition: str, *ideas: int) -> Phrase:
        """Return it with a postposition; से grows together with a pronoun."""
        if not self.pronoun:
            return self.oblique + words(postposition, *(ideas or (self.idea,)))
        if postposition == "से":
            return words(self.pronoun.oblique + "से", self.idea, *ideas)
        return words(self.pronoun.oblique, self.idea) + words(postposition, *(ideas or (self.idea,)))

    def genitive(self, possessed: HindiAgreement, oblique: bool, *ideas: int) -> Phrase:
        """Return it as the owner of something: का, के or की agree with that."""
        if self.pronoun:
            form = adjective(self.pronoun.genitive, possessed.feminine, possessed.plural, oblique)
            return words(form, self.idea, *ideas)
        return self.oblique + words(genitive(possessed, oblique), *(ideas or (self.idea,)))

    def beside(self, place: str, *ideas: int) -> Phrase:
        """Return it with a postposition that takes के: के साथ, के पास."""
        own = self.genitive(HindiAgreement(), True, *(() if self.pronoun else ideas))
        return own + words(place, *ideas)


class Determiner(NamedTuple):
    """What opens a noun phrase: Hindi by agreement and case, English as it is, `the` and `a` by name."""

    hindi: Callable[[HindiAgreement, bool], Phrase]
    english: Phrase
    article: str = ""


@cache
def pronouns() -> dict[str, Pronoun]:
    """Return the pronouns by name: I, we, you, You (आप), he, she, it, they, who, जो, जो+ (plural)."""
    names = ("I", "we", "you", "You", "he", "she", "it", "they", "who", "जो", "जो+")
    pronouns = {}
    for name, row in zip(names, rows("pronouns.txt", 9), strict=True):
        direct, agent, dative, owner, oblique, gender, hindi, english, person = row
        agreement = HindiAgreement(int(hindi[0]), hindi[1] == "p", gender == "f")
        one, other, whose = english.split()
        forms = (direct, agent, dative, owner, oblique, gender, agreement, one, other, whose)
        pronouns[name] = Pronoun(*forms, Person(int(person[0]), person[1] == "p"))
    return pronouns


def pronominal(s: Speaker, name: str, feminine: bool | None = None, idea: int | None = None) -> NounPhrase:
    """Return a pronoun; where its gender is open, `feminine` or chance decides."""
    p = pronouns()[name]
    idea = s.idea() if idea is None else idea
    if p.gender == "-":
        feminine = s.chance(0.5) if feminine is None else feminine
        p = p._replace(agreement=p.agreement._replace(feminine=feminine))
    return NounPhrase(
        p.agreement,
        p.person,
        words(p.direct, idea),
        words(p.oblique, idea),
        words(p.subject, idea),
        words(p.object, idea),
        words(p.possessive, idea),
        idea,
        pronoun=p,
    )


def named(s: Speaker, name: Noun) -> NounPhrase:
    """Return a person by name."""
    idea = s.idea()
    s.use(name.key)
    english = words(name.english, idea)
    return NounPhrase(
        HindiAgreement(3, False, name.feminine),
        Person(3, False),
        words(name.hindi, idea),
        words(name.hindi, idea),
        english,
        english,
        words(possessive(name.english), idea),
        idea,
        (name,),
    )


def nominal(
    s: Speaker,
    head: Noun,
    determiner: Determiner,
    *,
    plural: bool = False,
    numeral: str = "",
    described: Sequence[Adjective] = (),
) -> NounPhrase:
    """Return a noun with what stands before it: determiner, numeral, adjectives."""
    idea = s.idea()
    s.use(head.key, *(a.key for a in described))
    agreement = HindiAgreement(3, plural or head.has("respect"), head.feminine)
    middle = [(numeral, NUMERALS[numeral], s.idea())] if numeral else []
    middle += [(a.hindi, a.english, s.idea()) for a in described]
    for a in described:
        s.relate(a.key, head.key)

    def hindi(oblique: bool) -> Phrase:
        phrase = determiner.hindi(agreement, oblique)
        for form, _, own in middle:
            phrase += words(adjective(form, head.feminine, agreement.plural, oblique), own)
        return phrase + words(noun(head.hindi, head.feminine, plural, oblique, head.has("fixed")), idea)

    english = tuple(w for _, form, own in middle for w in words(form, own))
    english += words(head.plural if plural else head.english, idea)
    if determiner.article:
        form = "the" if determiner.article == "the" else article(english[0].text)
        english = words(form, idea) + english
    english = determiner.english + english
    owner = (*english[:-1], english[-1]._replace(text=possessive(english[-1].text)))
    return NounPhrase(
        agreement,
        Person(3, plural),
        hindi(False),
        hindi(True),
        english,
        english,
        owner,
        idea,
        (head,),
        described=tuple(described),
    )


def bare(form: str = "") -> Determiner:
    """Return no determiner in Hindi, and in English `the`, `a` or nothing."""
    return Determiner(lambda agreement, oblique: (), (), form)


def demonstrative(s: Speaker, near: bool, plural: bool, idea: int | None = None) -> Determiner:
    """Return यह or वह, this or that."""
    idea = s.idea() if idea is None else idea
    forms = (("यह", "इस"), ("ये", "इन")) if near else (("वह", "उस"), ("वे", "उन"))
    english = (("this", "these") if near else ("that", "those"))[plural]
    return Determiner(lambda agreement, oblique: words(forms[agreement.plural][oblique], idea), words(english, idea))


def owned(owner: NounPhrase) -> Determiner:
    """Return whose it is: मेरा, राम का."""
    return Determiner(lambda agreement, oblique: owner.genitive(agreement, oblique), owner.possessive)


def own(s: Speaker, subject: NounPhrase) -> Determiner:
    """Return अपना, the subject's own; in English my, your, his …"""
    idea = s.idea()
    if subject.pronoun and not subject.heads:
        english = subject.pronoun.possessive
    elif subject.person.plural:
        english = "their"
    elif subject.heads[0].has("animal"):
        english = "its"
    else:
        english = "her" if subject.agreement.feminine else "his"
    return Determiner(
        lambda agreement, oblique: words(adjective("अपना", agreement.feminine, agreement.plural, oblique), idea),
        words(english, idea),
    )


def both(s: Speaker, one: NounPhrase, other: NounPhrase) -> NounPhrase:
    """Return two together: the verb has a plural, feminine only if both are."""
    idea = s.idea()
    hindi, english = words("और", idea), words("and", idea)
    feminine = one.agreement.feminine and other.agreement.feminine
    return NounPhrase(
        HindiAgreement(3, True, feminine),
        Person(3, True),
        one.direct + hindi + other.direct,
        one.oblique + hindi + other.oblique,
        one.subject + english + other.subject,
        one.object + english + other.object,
        one.object + english + other.possessive,
        other.idea,
        one.heads + other.heads,
    )
