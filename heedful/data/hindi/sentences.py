"""Sentences: clauses alone, asked or commanded, with relative clauses, and joined to others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heedful.data.hindi.clauses import Clause, ClausePlan, clause, command, question
from heedful.data.hindi.complements import adjectives
from heedful.data.hindi.copulas import being, how_many, quality
from heedful.data.hindi.lexicon import Adjective, Noun, lexicon
from heedful.data.hindi.phrases import NounPhrase, bare, nominal, pronominal, pronouns
from heedful.data.hindi.speaker import Phrase, Speaker, words

__all__ = ["alone", "because_it", "joined", "unit"]

# Joining words; `same`: both clauses speak of the same time.
JOINS = {"और": "and", "लेकिन": "but", "क्योंकि": "because", "इसलिए": "so"}
TIMES = {"present": 3.0, "past": 4, "future": 2}


def alone(s: Speaker, rich: float) -> Clause:
    """Return a sentence that stands by itself: a question or a command."""
    plan = ClausePlan(s.weigh(TIMES), rich)
    kind = s.weigh({"question": 5.0, "being": 1.5, "many": 0.5, "command": 3})
    match kind:
        case "question":
            return question(s, plan)
        case "being":
            return being(s, plan, ask=True)
        case "many":
            return how_many(s, plan if plan.when != "future" else ClausePlan("present", rich))
    return command(s, rich)


def unit(s: Speaker, when: str, rich: float, room: int) -> Clause:
    """Return a statement of one or two clauses, the longer kinds only where there is room."""
    kinds: dict[Callable[[Speaker, ClausePlan], Clause], float] = {clause: 6.0, being: 2.0}
    if room >= 8:
        kinds |= {_who_clause: 0.8, _which_clause: 0.5, _that_clause: 0.8, _knows: 0.6, _when: 0.5, _if: 0.5}
        kinds |= {because_it: 0.7}
    return s.weigh(kinds)(s, ClausePlan(when, rich))


def joined(s: Speaker, first: Clause, when: str, rich: float, room: int) -> Clause:
    """Return a statement with another one joined to it."""
    reasoned = any(w.text in ("क्योंकि", "इसलिए") for w in first.hindi[-14:])
    join = s.weigh({"और": 4.0, "लेकिन": 2.0} if reasoned else {"और": 4.0, "लेकिन": 2.0, "क्योंकि": 3.0, "इसलिए": 2.0})
    if join == "क्योंकि" and when == "future":
        when = "present"
    i = s.idea()
    s.previous = first.subject
    second = unit(s, when, rich, room)
    hindi = first.hindi + words(join, i) + second.hindi
    return Clause(hindi, first.english + words(JOINS[join], i) + second.english, second.subject)


def because_it(s: Speaker, plan: ClausePlan) -> Clause:
    """Return what an animal did not do because it was too tired, or because it, the street, was too wide.

    Where the two have different genders, which is mostly so, Hindi shows by agreement which of them is meant; English
    does not.
    """
    verb = s.pick(lexicon().framed("state", "on", animals=True))
    noun = s.pick(lexicon().taken(verb))
    animals = lexicon().tagged("animal")
    animal = s.pick([a for a in animals if a.feminine != noun.feminine] if s.chance(0.8) else animals)
    past = plan.when != "present"
    of_animal, of_place = (
        [a for a in _only(*nouns) if a.changes or past] for nouns in ((animal, noun), (noun, animal))
    )
    who = nominal(s, animal, bare("the"), described=adjectives(s, animal, plan.rich / 2))
    what = nominal(s, noun, bare("the"))
    mine = s.chance(0.5)
    meant, said = (who, s.pick(of_animal)) if mine else (what, s.pick(of_place))
    tense = {"past": s.pick(["past", "past", "could", "wanted"]), "present": s.pick(["progressive", "can", "want"])}
    when = "past" if past else "present"
    first = clause(
        s, ClausePlan(when, subject=who, object=what, verb=verb, tense=tense[when], plain=True, polarity="negative")
    )
    it = replace(pronominal(s, "it", meant.agreement.feminine), heads=meant.heads)
    s.antecedents.append((it.idea, meant.idea))
    degree = "बहुत ज़्यादा" if s.chance(0.7) else ""
    second = quality(s, ClausePlan(when, 0.0, it, polarity="positive"), said=said, degree=degree)
    s.relate(said.key, meant.keys[0])
    i = s.idea()
    hindi = first.hindi + words("क्योंकि", i) + second.hindi
    return Clause(hindi, first.english + words("because", i) + second.english, it)


def _only(one: Noun, other: Noun) -> list[Adjective]:
    """Return the adjectives that are said of one noun and not of the other."""
    return [a for a in lexicon().adjectives if a.fits(one) and not a.fits(other)]


def _relative(head: NounPhrase, i: int, alone: bool = False) -> NounPhrase:
    """Return जो with its noun, or alone, as the subject of a relative clause about `head`."""
    p = pronouns()["जो+" if head.agreement.plural else "जो"]
    who = words("who" if head.heads[0].has("person") else "that", i)
    direct, oblique = words(p.direct, i), words(p.oblique, i)
    if alone:
        return replace(head, direct=direct, oblique=oblique, subject=who, idea=i, pronoun=p)
    return replace(head, direct=direct + head.direct, oblique=oblique + head.oblique, subject=who)


def _correlative(s: Speaker, head: NounPhrase, after: Phrase) -> NounPhrase:
    """Return वह or वे in the main clause; in English the noun with its relative clause."""
    d = s.idea()
    p = pronouns()["they" if head.agreement.plural else "it"]
    english = words("the", d) + head.object + after
    return replace(head, direct=words(p.direct, d), oblique=words(p.oblique, d), subject=english, idea=d, pronoun=p)


def _who_clause(s: Speaker, plan: ClausePlan) -> Clause:
    """Return जो लड़का खेल रहा है वह मेरा दोस्त है, the boy who is playing is my friend."""
    noun = s.pick([n for n in lexicon().tagged("person", "animal") if not n.has("kin", "name")])
    plural = s.chance(0.3) and not noun.has("single")
    head = nominal(s, noun, bare(), plural=plural, described=adjectives(s, noun, plan.rich / 2))
    i = s.idea()
    about = clause(s, ClausePlan(s.weigh(TIMES), plan.rich / 2, _relative(head, i)))
    main = _correlative(s, head, about.english)
    rest = (clause if s.chance(0.6) else being)(s, ClausePlan(plan.when, plan.rich / 2, main))
    return Clause(about.hindi + rest.hindi, rest.english, head)


def _that_clause(s: Speaker, plan: ClausePlan) -> Clause:
    """Return मैंने वह किताब पढ़ी जो मेज़ पर है, I read the book that is on the table."""
    noun = s.pick([n for n in lexicon().tagged("object", "text", "fruit") if not n.has("single")])
    head = nominal(s, noun, bare(), described=adjectives(s, noun, plan.rich / 2))
    i, d = s.idea(), s.idea()
    about = being(s, ClausePlan(s.pick(["present", "past"]), plan.rich / 2, _relative(head, i, alone=True)))
    english = words("the", d) + head.object + about.english
    what = replace(head, direct=words("वह", d) + head.direct, object=english)
    main = clause(s, ClausePlan(plan.when, plan.rich / 2, object=what, plain=True))
    return Clause(main.hindi + about.hindi, main.english, main.subject)


def _which_clause(s: Speaker, plan: ClausePlan) -> Clause:
    """Return राम ने जो किताब पढ़ी वह नई है, the book that Ram read is new."""
    noun = s.pick([n for n in lexicon().tagged("object", "text", "fruit", "washable") if not n.has("single")])
    head = nominal(s, noun, bare())
    i = s.idea()
    what = replace(head, direct=words("जो", i) + head.direct, object=())
    about = clause(s, ClausePlan(s.pick(["past", "present"]), plan.rich / 2, object=what, plain=True))
    main = _correlative(s, head, words("that", i) + about.english)
    rest = quality(s, ClausePlan(plan.when, plan.rich / 2, main))
    return Clause(about.hindi + rest.hindi, rest.english, head)


def _knows(s: Speaker, plan: ClausePlan) -> Clause:
    """Return राम जानता है कि …, Ram knows that …"""
    verb = s.pick(lexicon().framed("that"))
    first = clause(s, ClausePlan("present", plan.rich / 2, verb=verb, tense="habitual", plain=True))
    i = s.idea()
    s.previous = first.subject
    second = (clause if s.chance(0.7) else being)(s, ClausePlan(plan.when, plan.rich))
    hindi = first.hindi + words("कि", i) + second.hindi
    return Clause(hindi, first.english + words("that", i) + second.english, second.subject)


def _when(s: Speaker, plan: ClausePlan) -> Clause:
    """Return जब राम आया तब सीता सो रही थी, when Ram came Sita was sleeping."""
    i = s.idea()
    when, tenses = ("past", ["past", "was"]) if plan.when == "past" else ("present", ["habitual"])
    first = clause(s, ClausePlan(when, plan.rich / 2, tense=tenses[0], polarity="positive"))
    s.previous = first.subject
    second = clause(s, ClausePlan(when, plan.rich, tense=s.pick(tenses)))
    hindi = words("जब", i) + first.hindi + words("तब", i) + second.hindi
    return Clause(hindi, words("when", i) + first.english + second.english, second.subject)


def _if(s: Speaker, plan: ClausePlan) -> Clause:
    """Return अगर राम आएगा तो सीता गाएगी, if Ram comes then Sita will sing: a future there, a present here."""
    i, j = s.idea(), s.idea()
    first = clause(s, ClausePlan("future", plan.rich / 2, tense="if"))
    s.previous = first.subject
    second = clause(s, ClausePlan("future", plan.rich))
    hindi = words("अगर", i) + first.hindi + words("तो", j) + second.hindi
    return Clause(hindi, words("if", i) + first.english + words("then", j) + second.english, second.subject)
