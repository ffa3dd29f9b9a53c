"""Complements of a verb: subjects, objects, goals, places, purposes, companions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from heedful.data.hindi import hindi as hi
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import Adjective, Noun, Verb, lexicon
from heedful.data.hindi.phrases import (
    NUMERALS,
    Determiner,
    NounPhrase,
    Phrase,
    Speaker,
    bare,
    both,
    demonstrative,
    named,
    nominal,
    own,
    owned,
    pronominal,
    words,
)


class Complement(NamedTuple):
    """The words before the verb in Hindi and after it in English, and the agreement of a verb after ने."""

    hindi: Phrase
    english: Phrase
    agreement: HindiAgreement = HindiAgreement()


def adjectives(s: Speaker, head: Noun, rich: float) -> list[Adjective]:
    """Return an adjective that fits a noun, or none."""
    fitting = lexicon().fitting(head)
    return [s.pick(fitting)] if fitting and s.chance(0.4 * rich) else []


def subject(s: Speaker, visible: bool, rich: float, *, animals: bool = False, things: bool = False) -> NounPhrase:
    """Return a subject; `visible`: the Hindi verb shows its gender, so that वह is known to be he or she.

    `animals` and `things` say whether it may be one.
    """
    if (before := s.previous) and s.chance(0.45) and _may_return(before, animals, things):
        return _again(s, before)
    kind = s.weigh({"pronoun": 0.33, "name": 0.25, "noun": 0.3, "animal": 0.12 * animals, "both": 0.08 * rich})
    if kind == "pronoun":
        return _pronoun(s, visible)
    if kind == "both":
        one, other = named(s, s.pick(lexicon().names)), named(s, s.pick(lexicon().names))
        if one.heads != other.heads:
            return both(s, one, other)
    if kind in ("name", "both"):
        return named(s, s.pick(lexicon().names))
    nouns = lexicon().tagged("animal") if kind == "animal" else lexicon().tagged("person")
    return definite(s, s.pick(nouns), rich)


def _may_return(before: NounPhrase, animals: bool, things: bool) -> bool:
    """Whether a pronoun can stand for the subject of the clause before; not for one spoken of with respect."""
    if not before.is_third or any(n.has("respect") for n in before.heads):
        return False
    return not before.heads or before.heads[0].has("person", *["animal"] * animals) or things


def _again(s: Speaker, before: NounPhrase) -> NounPhrase:
    """Return the pronoun for the subject of the clause before."""
    if not before.heads and before.pronoun:
        name = before.pronoun.subject
    elif before.person.plural:
        name = "they"
    elif before.heads[0].has("person"):
        name = "she" if before.agreement.feminine else "he"
    else:
        name = "it"
    pronoun = replace(pronominal(s, name, before.agreement.feminine), heads=before.heads)
    if len(before.heads) <= 1:
        s.antecedents.append((pronoun.idea, before.idea))
    return pronoun


def _pronoun(s: Speaker, visible: bool) -> NounPhrase:
    """Return I, we, you, he, she or they; वह only where it cannot be taken for somebody else."""
    third = s.previous is not None and s.previous.is_third
    names = {"I": 4.0, "you": 2, "You": 1, "we": 2, "they": 0 if third else 2}
    if visible and not third:
        names |= {"he": 2, "she": 2}
    return pronominal(s, s.weigh(names))


def definite(
    s: Speaker, head: Noun, rich: float, without: NounPhrase | None = None, plural: bool | None = None
) -> NounPhrase:
    """Return a noun that is known: the, this, my …; `without` is the subject, whose own it would be अपना."""
    if plural is None:
        plural = s.chance(0.25) and not head.has("single")
    described = adjectives(s, head, rich)
    if head.has("kin"):
        return nominal(s, head, _owner(s, without), plural=plural, described=described)
    shown = rich * (not head.has("respect"))  # ये राजा are several kings
    kind = s.weigh({"the": 0.75, "this": 0.12 * shown, "that": 0.08 * shown, "owner": 0.1 * rich * head.has("animal")})
    if kind == "the":
        return nominal(s, head, bare("the"), plural=plural, described=described)
    determiner = _owner(s, without) if kind == "owner" else demonstrative(s, kind == "this", plural)
    return nominal(s, head, determiner, plural=plural, described=described)


def _owner(s: Speaker, user: NounPhrase | None) -> Determiner:
    """Return whose it is; what belongs to the subject is अपना."""
    if user and _owns(user) and s.chance(0.5):
        return own(s, user)
    person = user.person if user else None
    names = {"I": 3.0, "we": 1, "you": 2, "You": 1, "they": 1}
    if person and person.person < 3:
        names = {n: w for n, w in names.items() if n == "they" or (n in ("I", "we")) != (person.person == 1)}
    if person and person.person == 3 and person.plural:
        del names["they"]
    name = s.weigh(names | {"name": 2})
    if name != "name":
        return owned(pronominal(s, name))
    others = [n for n in lexicon().names if user is None or n not in user.heads]
    return owned(named(s, s.pick(others)))


def _owns(user: NounPhrase) -> bool:
    """Whether something can be the subject's own: a chair owns nothing, and who who is nobody knows."""
    if user.heads:
        return user.heads[0].has("person", "animal")
    return user.pronoun is not None and user.pronoun.subject != "who"


def person(s: Speaker, user: NounPhrase, rich: float) -> NounPhrase:
    """Return somebody other than the subject, as an object."""
    kind = s.weigh({"pronoun": 0.3, "name": 0.4, "noun": 0.3})
    if kind == "pronoun":
        first, second = user.person.person == 1, user.person.person == 2
        names = {"I": 2.0 * (not first), "we": 1.0 * (not first), "you": 1.0 * (not second), "You": 1.0 * (not second)}
        names["they"] = 1.0 * (not (user.is_third and user.person.plural))
        return pronominal(s, s.weigh(names))
    if kind == "name":
        return named(s, s.pick([n for n in lexicon().names if n not in user.heads]))
    return definite(s, s.pick([n for n in lexicon().tagged("person") if n not in user.heads]), rich, user)


def thing(s: Speaker, head: Noun, user: NounPhrase, rich: float, article: str = "") -> NounPhrase:
    """Return a thing as an object: a book, books, two books, this book, my book."""
    described = adjectives(s, head, rich)
    article = article or head.article
    many = not head.has("single")
    if article == "-":
        return nominal(s, head, bare(), described=described)
    if s.chance(0.3 * rich):
        kind = s.weigh({"this": 2.0, "that": 1, "owner": 4.0 * (not head.has("place"))})
        plural = many and s.chance(0.25) and (kind != "owner" or _shows(head))
        determiner = _owner(s, user) if kind == "owner" else demonstrative(s, kind == "this", plural)
        return nominal(s, head, determiner, plural=plural, described=described)
    if many and s.chance(0.12 * rich):
        return nominal(s, head, bare(), plural=True, numeral=s.pick(list(NUMERALS)), described=described)
    if many and s.chance(0.2) and _shows(head) and article == "a":
        return nominal(s, head, bare(), plural=True, described=described)
    return nominal(s, head, bare(article), described=described)


@cache
def _shows(head: Noun) -> bool:
    """Whether the noun itself shows that there are several: किताबें does, घर is one house or many."""
    return hi.noun(head.hindi, head.feminine, True, False, head.has("fixed")) != head.hindi


def complement(
    s: Speaker,
    verb: Verb,
    user: NounPhrase,
    v: int,
    rich: float,
    chosen: NounPhrase | None = None,
    *,
    dative: bool = True,
) -> Complement:
    """Return the complement of a verb; `chosen` is an object that the plan has.

    Without `dative` no object takes को: its subject does, and उसे मुझे ढूँढ़ना है leaves open who looks for whom.
    """
    nominal_word, particle = words(verb.nominal, v), words(verb.particle, v)
    match verb.frame:
        case "alone" | "that":
            return Complement((), ())
        case "done":
            return Complement(nominal_word, (), HindiAgreement(3, False, verb.nominal_gender == "f"))
        case "goal":
            return _goal(s, user, rich)
        case "place":
            where = s.pick(lexicon().taken(verb))
            s.relate(verb.key, where.key)
            return place(s, where, min(verb.objects), rich, user)
    nouns = lexicon().taken(verb)
    if not dative and verb.frame in ("object", "state"):
        nouns = tuple(n for n in nouns if not n.has("person", "animal"))
    noun = s.pick(nouns)
    if verb.frame in ("object", "state") and (chosen or not noun.has("person", "animal")):
        o = chosen or thing(s, noun, user, rich)
        _related(s, verb, o)
        return Complement(o.direct + nominal_word, particle + o.object, o.agreement)
    if verb.frame == "to":
        return _gift(s, verb, noun, user, rich)
    o = chosen or (person(s, user, rich) if noun.has("person") else definite(s, noun, rich, user))
    _related(s, verb, o)
    gendered = HindiAgreement(3, False, verb.nominal_gender == "f")
    # A postposition goes with the English particle (talk to, wait for), or with the noun.
    p = s.idea()
    linked, particle = (
        ((p,), words(verb.particle, p)) if verb.particle and verb.frame in ("से", "of") else ((), particle)
    )
    match verb.frame:
        case "से":
            return Complement(o.after("से", *linked) + nominal_word, particle + o.object, gendered)
        case "of":
            return Complement(o.genitive(gendered, False, *linked) + nominal_word, particle + o.object, gendered)
        case "on":
            return Complement(o.after("पर"), o.object)
    return Complement(o.dative() + nominal_word, particle + o.object)


def _related(s: Speaker, verb: Verb, o: NounPhrase) -> None:
    for key in o.keys:
        s.relate(verb.key, key)


def _gift(s: Speaker, verb: Verb, noun: Noun, user: NounPhrase, rich: float) -> Complement:
    """Return the object and the receiver."""
    o, receiver, to = thing(s, noun, user, rich), person(s, user, rich / 2), s.idea()
    _related(s, verb, o)
    english = o.object + words("to", to) + receiver.object
    return Complement(receiver.dative(to) + o.direct, english, o.agreement)


def _goal(s: Speaker, user: NounPhrase, rich: float) -> Complement:
    """Return where one goes: home, to school, to the market, to Ram's house; or nowhere in particular."""
    kind = s.weigh({"home": 2.0, "goal": 3, "house": 1.5 * rich, "none": 1.5})
    if kind == "none":
        return Complement((), ())
    home = next(n for n in lexicon().nouns if n.has("home"))
    if kind == "home":
        s.use(home.key)
        i = s.idea()
        return Complement(words(home.hindi, i), words("home", i))
    if kind == "house":
        o = nominal(s, home, _owner(s, user))
    else:
        noun = s.pick(lexicon().tagged("goal"))
        o = nominal(s, noun, bare("the"), described=adjectives(s, noun, rich))
        if noun.english == "school" and len(o.object) == 2:
            o = nominal(s, noun, bare())
    return Complement(o.oblique, words("to", o.idea) + o.object)


def place(s: Speaker, noun: Noun, where: str, rich: float, user: NounPhrase) -> Complement:
    """Return where it is: in the garden, on the table."""
    i = s.idea()
    if noun.has("place"):
        o = nominal(s, noun, bare("the"), described=adjectives(s, noun, rich))
    else:
        o = thing(s, noun, user, rich / 2, article="the")
    return Complement(o.after({"in": "में", "on": "पर"}[where], i), words(where, i) + o.object)


def companion(s: Speaker, user: NounPhrase, rich: float) -> Complement:
    """Return with whom."""
    i, other = s.idea(), person(s, user, rich / 2)
    return Complement(other.beside("साथ", i), words("with", i) + other.object)
