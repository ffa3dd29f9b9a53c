"""Clauses around है: what somebody is, where something is, what there is, what one has and what one likes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from heedful.data.hindi import english as en
from heedful.data.hindi import hindi as hi
from heedful.data.hindi.clauses import Clause, ClausePlan
from heedful.data.hindi.complements import definite, place, subject, thing
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import Adjective, Noun, lexicon
from heedful.data.hindi.phrases import NUMERALS, NounPhrase, bare, demonstrative, named, nominal, own
from heedful.data.hindi.speaker import Phrase, Speaker, words
from heedful.data.hindi.tenses import Group, arrange

__all__ = ["being", "how_many", "quality"]


def being(s: Speaker, plan: ClausePlan, ask: bool = False) -> Clause:
    """Return a clause of one of these kinds, as a statement or as a yes-or-no question."""
    kinds = {"quality": 4.0, "job": 1, "where": 1.5, "compare": 1}
    if not plan.subject:
        kinds |= {"there": 1.0, "have": 1.5, "like": 2}
    elif plan.subject.heads and not plan.subject.heads[0].has("person"):
        kinds = {"quality": 1.0, "where": 0.5}
    kind = s.weigh(kinds)
    if kind in ("like", "have") and plan.when == "future":
        kind = "quality"
    match kind:
        case "quality" | "compare":
            return quality(s, plan, ask, compared=kind == "compare")
        case "job":
            return _job(s, plan, ask)
        case "where":
            return _where(s, plan, ask)
        case "there":
            return _there(s, plan, ask)
        case "have":
            return _have(s, plan, ask)
    return _like(s, plan, ask)


def quality(
    s: Speaker,
    plan: ClausePlan,
    ask: bool = False,
    *,
    compared: bool = False,
    said: Adjective | None = None,
    degree: str = "",
) -> Clause:
    """Return that somebody or something is as an adjective says: बीमार, बहुत लंबा, सीता से लंबा."""
    who = plan.subject or _anybody(s, plan, compared)
    # है does not show whether वह is he or she: then the adjective has to.
    hidden = plan.when == "present" and who.pronoun is not None and not who.heads and who.person.is_third
    fitting = [
        a
        for a in lexicon().adjectives
        if _fits(a, who) and a not in who.described and (a.comparative or not compared) and (a.changes or not hidden)
    ]
    a = said or s.pick(fitting)
    s.use(a.key)
    for key in who.keys:
        s.relate(a.key, key)
    i = s.idea()
    hindi = words(hi.adjective(a.hindi, who.agreement.feminine, who.agreement.plural, False), i)
    english = words(a.comparative if compared else a.english, i)
    if compared:
        than, thing = s.idea(), bool(who.heads) and not who.heads[0].has("person")
        if thing:  # this book is bigger than that book
            other = nominal(s, who.heads[0], demonstrative(s, False, False))
        else:
            other = named(s, s.pick([n for n in lexicon().names if n not in who.heads]))
        hindi, english = other.after("से", than) + hindi, english + words("than", than) + other.object
    elif degree or s.chance(0.3 * plan.rich):
        very, d = degree or "बहुत", s.idea()
        hindi, english = words(very, d) + hindi, words("too" if degree else "very", d) + english
    return _copula(s, plan, ask, who, hindi, english)


def how_many(s: Speaker, plan: ClausePlan) -> Clause:
    """Return the question how many of something somebody has."""
    who = subject(s, False, plan.rich)
    w, t = s.idea(), s.idea()
    past = plan.when == "past"
    things = [n for n in lexicon().tagged("object") if not n.has("single")]
    o = nominal(s, s.pick(things), bare(), plural=True)
    many = words(hi.adjective("कितना", o.agreement.feminine, True, False), w)
    has = words(hi.was(o.agreement) if past else hi.present(o.agreement), t)
    group = Group((), words("did" if past else en.do(who.person), t), (), words("have", t), ())
    english = words("how many", w) + o.object + arrange(who.subject, group, (), asked=True)
    return Clause(who.beside("पास", t) + many + o.direct + has, english)


def _anybody(s: Speaker, plan: ClausePlan, compared: bool) -> NounPhrase:
    """Return a subject; of things one says that they are big, not that they do something."""
    if compared and s.chance(0.4):
        noun = s.pick([n for n in lexicon().nouns if not n.has("person", "mass") and _graded(n)])
        return nominal(s, noun, demonstrative(s, True, False))
    if compared or s.chance(0.6):
        return subject(s, True, plan.rich, animals=not compared, things=not compared)
    noun = s.pick(_things())
    return definite(s, noun, plan.rich, plural=False if noun.article == "-" else None)


@cache
def _graded(noun: Noun) -> bool:
    """Whether two of them can be compared."""
    return any(a.comparative for a in lexicon().fitting(noun))


@cache
def _things() -> tuple[Noun, ...]:
    """Return what is neither somebody nor an animal and can be described."""
    return tuple(n for n in lexicon().nouns if lexicon().fitting(n) and not n.has("person", "animal"))


def _fits(a: Adjective, who: NounPhrase) -> bool:
    """Whether an adjective is said of a subject; a pronoun is a person, `it` and both an animal."""
    if not who.heads:
        return "person" in a.of and (who.pronoun is None or who.pronoun.subject != "it" or "animal" in a.of)
    return all(a.fits(n) for n in who.heads)


def _verb_be(plan: ClausePlan, a: HindiAgreement, p: en.Person, t: int) -> tuple[Phrase, Group]:
    """Return है or था or होगा, and is or was or will be."""
    match plan.when:
        case "past":
            return words(hi.was(a), t), Group(words(en.was(p), t), (), (), (), ())
        case "future":
            return words(hi.future("हो", a), t), Group(words("will", t), (), (), (), words("be", t))
    return words(hi.present(a), t), Group(words(en.be(p), t), (), (), (), ())


def _copula(s: Speaker, plan: ClausePlan, ask: bool, who: NounPhrase, hindi: Phrase, english: Phrase) -> Clause:
    """Put subject, predicate, not and है together."""
    verb, group = _verb_be(plan, who.agreement, who.person, s.idea())
    return _clause(s, plan, ask, (who.direct + hindi, verb), (who.subject, group, english), who)


def _clause(
    s: Speaker,
    plan: ClausePlan,
    ask: bool,
    hindi: tuple[Phrase, Phrase],
    english: tuple[Phrase, Group, Phrase],
    who: NounPhrase | None = None,
) -> Clause:
    """Return a clause, sometimes negative; नहीं stands between the two parts of the Hindi."""
    who_is_asked = ask and who is not None and who.subject[0].text == "I"
    negative = s.idea() if not plan.polarity and not who_is_asked and s.chance(0.15) else None
    asked = s.idea() if ask else None
    no = () if negative is None else words("नहीं", negative)
    question = () if asked is None else words("क्या", asked)
    said, group, rest = english
    return Clause(
        question + hindi[0] + no + hindi[1],
        arrange(said, group, rest, negative=negative, whether=asked),
        None if ask else who,
    )


def _job(s: Speaker, plan: ClausePlan, ask: bool) -> Clause:
    """Return what somebody is by trade, or whose friend."""
    who = plan.subject or subject(s, plan.when != "present", plan.rich)
    if who.agreement.plural or any(n.has("animal", "job.m", "job.f") for n in who.heads):
        return quality(s, replace(plan, subject=who), ask)
    o = nominal(s, s.pick(lexicon().tagged("job.f" if who.agreement.feminine else "job.m")), bare("a"))
    for key in who.keys:
        s.relate(o.heads[0].key, key)
    return _copula(s, plan, ask, who, o.direct, o.object)


def _where(s: Speaker, plan: ClausePlan, ask: bool) -> Clause:
    """Return where somebody or something is."""
    if plan.subject or s.chance(0.5):
        who = plan.subject or subject(s, plan.when != "present", plan.rich, animals=True)
        inside = [n for n in lexicon().tagged("in") if n.has("place")]
        where = place(s, s.pick(inside), "in", plan.rich, who)
    else:
        who = definite(s, s.pick([n for n in lexicon().tagged("object") if not n.has("furniture")]), plan.rich)
        where = place(s, s.pick(lexicon().tagged("furniture")), "on", plan.rich, who)
    return _copula(s, plan, ask, who, where.hindi, where.english)


def _there(s: Speaker, plan: ClausePlan, ask: bool) -> Clause:
    """Return what there is in a place: मेज़ पर किताब है, there is a book on the table."""
    noun = s.pick([n for n in lexicon().tagged("object", "fruit", "animal") if not n.has("furniture")])
    where = s.pick(lexicon().tagged("furniture")) if noun.has("thing") else s.pick(lexicon().tagged("in"))
    numeral = s.pick(list(NUMERALS)) if s.chance(0.4) else ""
    o = nominal(s, noun, bare("" if numeral else "a"), plural=bool(numeral), numeral=numeral)
    t = s.idea()
    at = place(s, where, "on" if where.has("furniture") else "in", plan.rich / 2, o)
    verb, group = _verb_be(plan, o.agreement, o.person, t)
    return _clause(s, plan, ask, (at.hindi + o.direct, verb), (words("there", t), group, o.object + at.english))


def _have(s: Speaker, plan: ClausePlan, ask: bool) -> Clause:
    """Return what somebody has with them: मेरे पास किताब है."""
    who, t = subject(s, False, plan.rich), s.idea()
    o = thing(s, s.pick(lexicon().tagged("object", "vehicle", "fruit")), who, 0.0)
    if s.chance(0.3):
        o = nominal(s, o.heads[0], bare(), plural=True, numeral=s.pick(list(NUMERALS)))
    past = plan.when == "past"
    verb = words(hi.was(o.agreement) if past else hi.present(o.agreement), t)
    do, finite = ("did", "had") if past else (en.do(who.person), en.have(who.person))
    group = Group((), words(do, t), words(finite, t), words("have", t), ())
    return _clause(s, plan, ask, (who.beside("पास", t) + o.direct, verb), (who.subject, group, o.object), who)


def _like(s: Speaker, plan: ClausePlan, ask: bool) -> Clause:
    """Return what somebody likes: मुझे चाय पसंद है, मुझे आम पसंद हैं, मुझे यह गाना पसंद है."""
    who, t = subject(s, False, plan.rich), s.idea()
    noun = s.pick(lexicon().tagged("fruit", "drink", "text", "song", "film", "object", "sport", "animal"))
    if noun.article == "-":
        o = nominal(s, noun, bare())
    elif s.chance(0.5):
        o = nominal(s, noun, bare(), plural=True)
    else:
        determiner = own(s, who) if s.chance(0.3) else demonstrative(s, s.chance(0.6), False)
        o = nominal(s, noun, determiner)
    past = plan.when == "past"
    verb = words(hi.was(o.agreement) if past else hi.present(o.agreement), t)
    do, finite = ("did", "liked") if past else (en.do(who.person), "likes" if who.person.is_third else "like")
    group = Group((), words(do, t), words(finite, t), words("like", t), ())
    hindi = who.dative() + o.direct + words("पसंद", t)
    return _clause(s, plan, ask, (hindi, verb), (who.subject, group, o.object), who)
