"""Clauses: statements, questions and commands with a verb, and clauses with है (be, have, like)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from heedful.data.hindi import english as en
from heedful.data.hindi import hindi as hi
from heedful.data.hindi.complements import Complement, companion, complement, definite, place, subject, thing
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import Adjective, Noun, Verb, lexicon, rows
from heedful.data.hindi.phrases import (
    NUMERALS,
    NounPhrase,
    Phrase,
    Speaker,
    bare,
    demonstrative,
    named,
    nominal,
    own,
    pronominal,
    words,
)
from heedful.data.hindi.tenses import TENSES, Group, arrange, english_group, hindi_group


class Clause(NamedTuple):
    """A clause in both languages, and its subject."""

    hindi: Phrase
    english: Phrase
    subject: NounPhrase | None = None


@dataclass(frozen=True)
class ClausePlan:
    """The fixed parts of a clause; all others are drawn at random."""

    when: str
    rich: float = 0.5
    subject: NounPhrase | None = None
    object: NounPhrase | None = None
    verb: Verb | None = None
    tense: str = ""
    plain: bool = False  # only the complements that the verb needs
    goal: bool = True  # whether a verb of motion has its goal
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
# Tenses of events that need no will; all others express will.
EVENTS = ("habitual", "progressive", "perfect", "past", "was", "used", "had", "began", "future", "if")


@cache
def _adverbs(kind: str) -> tuple[_Adverb, ...]:
    adverbs = (_Adverb(h, e, k, frozenset(fits.split())) for h, e, k, fits in rows("adverbs.txt", 4))
    return tuple(a for a in adverbs if a.kind == kind)


@dataclass(frozen=True)
class _ClauseParts:
    """A clause before its words are ordered; `taken` are the complements of the verb."""

    verb: Verb
    tense: str
    who: NounPhrase
    taken: Complement
    adverbs: _Adverbs
    v: int
    t: int
    negative: int | None

    def hindi(self, asked: Phrase = ()) -> Phrase:
        """Return the Hindi clause; a question word is right before the verb."""
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
    """Return क्या as an object; its English is at the front."""
    return NounPhrase(HindiAgreement(), en.Person(3, False), words("क्या", w), (), (), (), (), w)


def _parts(s: Speaker, plan: ClausePlan) -> _ClauseParts:
    """Choose all parts of a clause."""
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
    """Choose verb, tense and subject, and record that they occur together."""
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
    """Choose a verb: for the object, if the plan has one; for the subject; with few complements, for short sentences.

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
    """Return the words before the verb: मुझे खाना पसंद है, not खाना खाना."""
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
    """Choose adverbs of time, place, company and manner."""
    if plan.plain or verb.base == "live":
        return _Adverbs(NOTHING, NOTHING, NOTHING, NOTHING, ())
    time = where = company = how = NOTHING
    mid: Phrase = ()
    often = tense == "habitual" and s.chance(0.5 * plan.rich)
    if often:
        adverb = _adverb(s, s.pick(_adverbs("often")))
        time, mid = Complement(adverb.hindi, ()), adverb.english
    elif (times := [a for a in _adverbs("time") if tense in a.fits]) and s.chance(0.6 * plan.rich):
        time = _adverb(s, s.pick(times))
    if verb.frame in ("alone", "done", "object") and s.chance(0.35 * plan.rich):
        where = _adverb(s, s.pick(_adverbs("where")))
        if s.chance(0.75):
            where = place(s, s.pick([n for n in lexicon().tagged("in") if n.has("place")]), "in", plan.rich / 2, who)
    if verb.frame in ("alone", "done", "goal") and verb.base not in ALONE and s.chance(0.25 * plan.rich):
        company = companion(s, who, plan.rich)
    if (hows := [a for a in _adverbs("how") if verb.base in a.fits]) and s.chance(0.4 * plan.rich):
        how = _adverb(s, s.pick(hows))
    return _Adverbs(time, where, company, how, mid)


def _adverb(s: Speaker, adverb: _Adverb) -> Complement:
    i = s.idea()
    return Complement(words(adverb.hindi, i), words(adverb.english, i))


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
    trait: Adjective | None = None,
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
    a = trait or s.pick(fitting)
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
    """Whether an adjective fits a subject; a pronoun is a person, `it` an animal too."""
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
    """Return a clause, sometimes negative; नहीं is between the two parts of the Hindi."""
    who_is_asked = ask and who is not None and who.subject[0].text == "I"
    negative = s.idea() if not plan.polarity and not who_is_asked and s.chance(0.15) else None
    asked = s.idea() if ask else None
    no = () if negative is None else words("नहीं", negative)
    question = () if asked is None else words("क्या", asked)
    who_words, group, rest = english
    return Clause(
        question + hindi[0] + no + hindi[1],
        arrange(who_words, group, rest, negative=negative, whether=asked),
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
