"""Clauses around a verb: statements, questions, commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from heedful.data.hindi import english as en
from heedful.data.hindi import hindi as hi
from heedful.data.hindi.complements import Complement, companion, complement, place, subject
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import Verb, lexicon, rows
from heedful.data.hindi.phrases import NounPhrase, pronominal
from heedful.data.hindi.speaker import Phrase, Speaker, words
from heedful.data.hindi.tenses import TENSES, arrange, english_group, hindi_group

__all__ = ["Clause", "ClausePlan", "clause", "command", "question"]


class Clause(NamedTuple):
    """A clause in both languages, and its subject."""

    hindi: Phrase
    english: Phrase
    subject: NounPhrase | None = None


@dataclass(frozen=True)
class ClausePlan:
    """What is decided about a clause beforehand; what is not is left to chance."""

    when: str
    rich: float = 0.5
    subject: NounPhrase | None = None
    object: NounPhrase | None = None
    verb: Verb | None = None
    tense: str = ""
    plain: bool = False  # nothing besides what the verb needs
    goal: bool = True  # whether to say where one goes
    polarity: str = ""  # positive, negative


class _Adverb(NamedTuple):
    hindi: str
    english: str
    kind: str
    fits: frozenset[str]


class _Adverbs(NamedTuple):
    """Hindi: all before the verb, in this order. English: `mid` after the auxiliary, the others at the end."""

    time: Complement
    where: Complement
    company: Complement
    how: Complement
    mid: Phrase

    @property
    def hindi(self) -> Phrase:
        return self.time.hindi + self.where.hindi + self.company.hindi + self.how.hindi

    @property
    def english(self) -> Phrase:
        return self.how.english + self.company.english + self.where.english + self.time.english


NOTHING = Complement((), ())
# बैठा है is "is sitting", and बैठ रहा है is "is sitting down": of sitting one says less here.
SITTING = {"progressive": "habitual", "perfect": "habitual", "was": "past", "had": "past"}
ALONE = ("sleep", "bathe")  # one does it without company
# What may befall one; all other tenses have something to do with wanting.
EVENTS = ("habitual", "progressive", "perfect", "past", "was", "used", "had", "began", "future", "if")


@cache
def _adverbs(kind: str) -> tuple[_Adverb, ...]:
    found = (_Adverb(h, e, k, frozenset(fits.split())) for h, e, k, fits in rows("adverbs.txt", 4))
    return tuple(a for a in found if a.kind == kind)


@dataclass(frozen=True)
class _ClauseParts:
    """A clause before its words are put in order; `taken` is what the verb takes."""

    verb: Verb
    tense: str
    who: NounPhrase
    taken: Complement
    adverbs: _Adverbs
    v: int
    t: int
    negative: int | None

    def hindi(self, asked: Phrase = ()) -> Phrase:
        """Return the Hindi clause; a question word stands right before the verb."""
        lead, tail = hindi_group(self.verb, self.tense, self.who.agreement, self.taken.agreement, self.v, self.t)
        no = () if self.negative is None else words("नहीं", self.negative)
        taken = _without_food(self.verb, self.tense, self.taken.hindi)
        return _cased(self.verb, self.tense, self.who) + self.adverbs.hindi + taken + asked + lead + no + tail

    def english(self, asked: bool = False, whether: int | None = None) -> Phrase:
        """Return the English clause; `asked`: turned around; `whether` is the idea of क्या."""
        group = english_group(self.verb, self.tense, self.who.person, self.v, self.t)
        rest = self.taken.english + self.adverbs.english
        return arrange(
            self.who.subject, group, rest, mid=self.adverbs.mid, negative=self.negative, asked=asked, whether=whether
        )


def clause(s: Speaker, plan: ClausePlan) -> Clause:
    """Return a statement."""
    parts = _parts(s, plan)
    return Clause(parts.hindi(), parts.english(), parts.who)


def question(s: Speaker, plan: ClausePlan) -> Clause:
    """Return a question: yes or no, who, what, where, when or why."""
    w = s.idea()
    kind = s.weigh({"yes": 5.0, "who": 1, "what": 1.5, "where": 1, "when": 1, "why": 1})
    if kind == "yes":
        parts = _parts(s, plan)
        if parts.negative is not None and parts.who.subject[0].text == "I":
            parts = replace(parts, negative=None)  # nobody says "amn't I"
        return Clause(words("क्या", w) + parts.hindi(), parts.english(whether=w))
    if kind == "who":
        parts = _parts(s, replace(plan, subject=pronominal(s, "who", idea=w)))
        return Clause(parts.hindi(), parts.english())
    if kind == "what":
        verb = s.pick([x for x in lexicon().framed("object") if not x.objects & {"person", "animal"}])
        parts = _parts(s, replace(plan, verb=verb, object=_what(w), polarity="positive"))
        return Clause(parts.hindi(), words("what", w) + parts.english(asked=True))
    if kind == "where":
        verb = s.pick(lexicon().framed("goal", "alone", "object"))
        parts = _parts(s, replace(plan, verb=verb, plain=True, polarity="positive", goal=False))
        return Clause(parts.hindi(words("कहाँ", w)), words("where", w) + parts.english(asked=True))
    if kind == "when":
        parts = _parts(s, replace(plan, plain=True, polarity="positive", tense=s.pick(["habitual", "past", "future"])))
        return Clause(parts.hindi(words("कब", w)), words("when", w) + parts.english(asked=True))
    parts = _parts(s, plan)
    if parts.negative is not None and parts.who.subject[0].text == "I":
        parts = replace(parts, negative=None)
    return Clause(parts.hindi(words("क्यों", w)), words("why", w) + parts.english(asked=True))


def command(s: Speaker, rich: float) -> Clause:
    """Return a command to तुम, or a request to आप with please."""
    polite = s.chance(0.4)
    who = pronominal(s, "You" if polite else "you")
    verb = _verb(s, ClausePlan("present", rich), willed=True)
    s.use(verb.key)
    v, t, n = s.idea(), s.idea(), s.idea()
    taken = complement(s, verb, who, v, rich)
    adverbs = _choose_adverbs(s, verb, "", who, ClausePlan("present", rich))
    negative = s.chance(0.25)
    no = words("न" if polite else "मत", n) if negative else ()
    hindi = adverbs.hindi + taken.hindi + no + words(hi.imperative(verb.stem, polite), v, *([t] if polite else []))
    english = words("please", t) * polite + words("don't", n) * negative + words(verb.base, v)
    return Clause(hindi, english + taken.english + adverbs.english)


def _what(w: int) -> NounPhrase:
    """Return क्या as an object; its English stands at the front."""
    return NounPhrase(HindiAgreement(), en.Person(3, False), words("क्या", w), (), (), (), (), w)


def _parts(s: Speaker, plan: ClausePlan) -> _ClauseParts:
    """Choose all there is to choose about a clause."""
    verb, tense, who = _choose(s, plan)
    v, t = s.idea(), s.idea()
    nowhere = verb.frame == "goal" and not plan.goal
    dative = _dative(tense)
    taken = NOTHING if nowhere else complement(s, verb, who, v, plan.rich, plan.object, dative=dative)
    if verb.frame == "goal" and not plan.plain and s.chance(0.35):
        taken = _purpose(s, taken, who, plan.rich, dative)
    adverbs = _choose_adverbs(s, verb, tense, who, plan)
    free = not plan.polarity and tense not in ("began", "if") and not adverbs.mid
    negative = plan.polarity == "negative" or (free and s.chance(0.17))
    return _ClauseParts(verb, tense, who, taken, adverbs, v, t, s.idea() if negative else None)


def _choose(s: Speaker, plan: ClausePlan) -> tuple[Verb, str, NounPhrase]:
    """Choose verb, tense and subject, and remember that they stand together."""
    tense = plan.tense or s.weigh(_tenses(plan.when))
    if plan.verb and lexicon().needs_dative(plan.verb) and not _dative(tense):
        tense = s.weigh(_tenses(plan.when, dative=False))
    verb = plan.verb or _verb(s, plan, willed=tense not in EVENTS, dative=_dative(tense))
    if verb.base == "sit":
        tense = SITTING.get(tense, tense)
    who = plan.subject or subject(s, _case(verb, tense) == "direct", plan.rich, animals=verb.animals)
    s.use(verb.key)
    for key in who.keys:
        s.relate(key, verb.key)
    return verb, tense, who


@cache
def _tenses(when: str, dative: bool = True) -> dict[str, float]:
    return {name: t.often for name, t in TENSES.items() if t.when == when and (dative or t.case != "dative")}


def _dative(tense: str) -> bool:
    """Whether an object may take को: not where the subject does."""
    return tense == "if" or TENSES[tense].case != "dative"


def _verb(s: Speaker, plan: ClausePlan, willed: bool = False, dative: bool = True) -> Verb:
    """Choose a verb: one for the object, if that is given; one for the subject; one that needs little, for brevity.

    Without `dative`, one that can do without an object with को.
    """
    animals = plan.subject is not None and any(n.has("animal") for n in plan.subject.heads)
    if plan.object:
        head = plan.object.heads[0]
        return s.pick([v for v in lexicon().framed("object", "state") if v.takes(head)])
    simple = s.chance(0.35 + 0.4 * (plan.rich < 0.2))
    frames = ("alone", "done", "goal") if simple else ("place", "object", "state", "to", "से", "of", "on")
    fitting = lexicon().framed(*frames, animals=animals, willed=willed)
    return s.pick([v for v in fitting if dative or not lexicon().needs_dative(v)])


def _case(verb: Verb, tense: str) -> str:
    case = TENSES[tense].case if tense != "if" else "direct"
    return "direct" if case == "agent" and not verb.agent else case


def _cased(verb: Verb, tense: str, who: NounPhrase) -> Phrase:
    match _case(verb, tense):
        case "agent":
            return who.agent()
        case "dative":
            return who.dative()
    return who.direct


def _without_food(verb: Verb, tense: str, hindi: Phrase) -> Phrase:
    """Return what stands before the verb; one says मुझे खाना पसंद है, not खाना खाना."""
    return () if tense in ("love", "loved") and verb.nominal == "खाना" else hindi


def _purpose(s: Speaker, goal: Complement, who: NounPhrase, rich: float, dative: bool) -> Complement:
    """Add what one goes for: खेलने जाना, to go to play."""
    fitting = ("alone", "done") if s.chance(0.6) else ("object", "से")
    animals = any(n.has("animal") for n in who.heads)
    verbs = [v for v in lexicon().framed(*fitting, animals=animals, willed=True) if v.base not in ALONE]
    verb = s.pick([v for v in verbs if dative or not lexicon().needs_dative(v)])
    s.use(verb.key)
    v = s.idea()
    taken = complement(s, verb, who, v, rich / 2, dative=dative)
    hindi = taken.hindi + words(hi.infinitive(verb.stem, oblique=True), v) + goal.hindi
    return Complement(hindi, goal.english + words(f"to {verb.base}", v) + taken.english)


def _choose_adverbs(s: Speaker, verb: Verb, tense: str, who: NounPhrase, plan: ClausePlan) -> _Adverbs:
    """Choose what else is said."""
    if plan.plain or verb.base == "live":
        return _Adverbs(NOTHING, NOTHING, NOTHING, NOTHING, ())
    time = where = company = how = NOTHING
    mid: Phrase = ()
    often = tense == "habitual" and s.chance(0.5 * plan.rich)
    if often:
        adverb = _said(s, s.pick(_adverbs("often")))
        time, mid = Complement(adverb.hindi, ()), adverb.english
    elif (times := [a for a in _adverbs("time") if tense in a.fits]) and s.chance(0.6 * plan.rich):
        time = _said(s, s.pick(times))
    if verb.frame in ("alone", "done", "object") and s.chance(0.35 * plan.rich):
        where = _said(s, s.pick(_adverbs("where")))
        if s.chance(0.75):
            where = place(s, s.pick([n for n in lexicon().tagged("in") if n.has("place")]), "in", plan.rich / 2, who)
    if verb.frame in ("alone", "done", "goal") and verb.base not in ALONE and s.chance(0.25 * plan.rich):
        company = companion(s, who, plan.rich)
    if (hows := [a for a in _adverbs("how") if verb.base in a.fits]) and s.chance(0.4 * plan.rich):
        how = _said(s, s.pick(hows))
    return _Adverbs(time, where, company, how, mid)


def _said(s: Speaker, adverb: _Adverb) -> Complement:
    i = s.idea()
    return Complement(words(adverb.hindi, i), words(adverb.english, i))
