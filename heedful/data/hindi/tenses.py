"""Verb groups: the forms of a verb in each tense, aspect or modal, in Hindi and in English."""

from __future__ import annotations

from typing import NamedTuple

from heedful.data.hindi import english as en
from heedful.data.hindi import hindi as hi
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import Verb
from heedful.data.hindi.phrases import LinkedWord, Phrase, words


class Tense(NamedTuple):
    """When it is, and the case of its subject: direct, agent (ने, if the verb takes it) or dative (को)."""

    when: str
    case: str = "direct"
    often: float = 1.0


# `if` (खाएगा, eats) is besides these: the future after अगर, which English has in the present.
TENSES = {
    "habitual": Tense("present", often=3),  # खाता है, eats
    "progressive": Tense("present", often=3),  # खा रहा है, is eating
    "perfect": Tense("present", "agent"),  # खाया है, has eaten
    "can": Tense("present"),  # खा सकता है, can eat
    "want": Tense("present"),  # खाना चाहता है, wants to eat
    "must": Tense("present", "dative"),  # खाना है, has to eat
    "should": Tense("present", "dative"),  # खाना चाहिए, should eat
    "love": Tense("present", "dative"),  # खाना पसंद है, loves to eat
    "past": Tense("past", "agent", often=4),  # खाया, ate
    "was": Tense("past", often=2),  # खा रहा था, was eating
    "used": Tense("past"),  # खाता था, used to eat
    "had": Tense("past", "agent"),  # खाया था, had eaten
    "could": Tense("past", often=0.5),  # खा सकता था, could eat
    "wanted": Tense("past"),  # खाना चाहता था, wanted to eat
    "needed": Tense("past", "dative"),  # खाना पड़ा, had to eat
    "began": Tense("past", often=0.5),  # खाने लगा, began to eat
    "loved": Tense("past", "dative", often=0.5),  # खाना पसंद था, loved to eat
    "future": Tense("future", often=4),  # खाएगा, will eat
    "able": Tense("future"),  # खा सकेगा, will be able to eat
    "forced": Tense("future", "dative"),  # खाना पड़ेगा, will have to eat
}


class Group(NamedTuple):
    """An English verb group: an auxiliary, or the form of `do` that stands in for one, and what follows.

    `finite` and `base` are the first word after the subject without and with `do`.
    """

    auxiliary: Phrase
    do: Phrase
    finite: Phrase
    base: Phrase
    rest: Phrase


def hindi_group(
    verb: Verb, tense: str, subject: HindiAgreement, thing: HindiAgreement, v: int, t: int
) -> tuple[Phrase, Phrase]:
    """Return the words before and after नहीं; `v` is the idea of the verb, `t` that of its tense.

    `thing` is what the verb agrees with where that is not the subject: the object, or the third person masculine.
    """
    stem = verb.stem
    match tense:
        case "habitual" | "used":
            return (), words(hi.habitual(stem, subject), v) + _is(tense == "used", subject, t)
        case "progressive" | "was":
            return (), words(stem, v) + words(hi.progressive(subject), t) + _is(tense == "was", subject, t)
        case "past":
            return (), words(hi.perfective(stem, _ergative(verb, subject, thing)), v, t)
        case "perfect" | "had":
            a = _ergative(verb, subject, thing)
            return (), words(hi.perfective(stem, a, last=False), v) + _is(tense == "had", a, t)
        case "future":
            return (), words(hi.future(stem, subject), v, t)
        case "if":
            return (), words(hi.future(stem, subject), v)
        case "can" | "could":
            return (), words(stem, v) + words(hi.habitual("सक", subject), t) + _is(tense == "could", subject, t)
        case "able":
            return (), words(stem, v) + words(hi.future("सक", subject), t)
        case "want" | "wanted":
            wants = words(hi.habitual("चाह", subject), t) + _is(tense == "wanted", subject, t)
            return words(hi.infinitive(stem), v), wants
        case "began":
            return words(hi.infinitive(stem, oblique=True), v), words(hi.perfective("लग", subject), t)
        case "love" | "loved":
            return words(hi.infinitive(stem), v) + words("पसंद", t), _is(tense == "loved", HindiAgreement(), t)
    infinitive = words(hi.infinitive(stem, thing), v)
    obligation = {
        "must": hi.present(thing),
        "should": "चाहिए",
        "needed": hi.perfective("पड़", thing),
        "forced": hi.future("पड़", thing),
    }
    return (), infinitive + words(obligation[tense], t)


def english_group(verb: Verb, tense: str, p: en.Person, v: int, t: int) -> Group:
    """Return the English group of a tense; the ideas are as in `hindi_group`."""
    plain = words(verb.base, v)
    to = words("to", v) + plain
    third = (en.third(verb.base) if p.is_third else verb.base, verb.base)
    match tense:
        case "progressive" | "was":
            be = en.was(p) if tense == "was" else en.be(p)
            return _with(be, t, words(en.ing(verb.base), v))
        case "perfect" | "had":
            return _with(en.have(p) if tense == "perfect" else "had", t, words(verb.participle, v))
        case "future" | "can" | "could" | "should":
            return _with("will" if tense == "future" else tense, t, plain)
        case "able":
            return _with("will", t, words("be able to", t) + plain)
        case "forced":
            return _with("will", t, words("have", t) + to)
        case "used":
            return _without("did", "used", "use", t, words("to", t) + plain)
        case "past":
            return Group((), words("did", t), words(verb.past, v, t), plain, ())
        case "habitual" | "if":
            return Group((), words(en.do(p), t), words(third[0], v, t), plain, ())
        case "must":
            return _without(en.do(p), en.have(p), "have", t, to)
        case "needed":
            return _without("did", "had", "have", t, to)
        case "began":
            return _without("did", "began", "begin", t, to)
    base = "want" if tense.startswith("want") else "love"
    if tense in ("wanted", "loved"):
        return _without("did", tense, base, t, to)
    return _without(en.do(p), en.third(base) if p.is_third else base, base, t, to)


def arrange(
    subject: Phrase,
    group: Group,
    rest: Phrase,
    *,
    mid: Phrase = (),
    negative: int | None = None,
    asked: bool = False,
    whether: int | None = None,
) -> Phrase:
    """Return an English clause in order; `asked` turns it around into a question.

    `negative` is the idea of its not, `whether` that of क्या, which English has in the order of its words.
    """
    asked = asked or whether is not None
    if not group.auxiliary and negative is None and not asked:
        return subject + mid + group.finite + group.rest + rest
    first = (group.auxiliary or group.do)[0]
    not_apart: Phrase = ()
    if negative is not None and first.text == "am":
        not_apart = words("not", negative)
    elif negative is not None:
        first = LinkedWord(en.negated(first.text), (*first.ideas, negative))
    follows = not_apart + mid + (() if group.auxiliary else group.base) + group.rest + rest
    if not asked:
        return (*subject, first, *follows)
    if whether is not None:
        first = LinkedWord(first.text, (*first.ideas, whether))
    return (first, *subject, *follows)


def _is(past: bool, a: HindiAgreement, t: int) -> Phrase:
    return words(hi.was(a) if past else hi.present(a), t)


def _ergative(verb: Verb, subject: HindiAgreement, thing: HindiAgreement) -> HindiAgreement:
    """Return what a perfective agrees with: after ने never the subject."""
    return thing if verb.agent else subject


def _with(auxiliary: str, t: int, rest: Phrase) -> Group:
    return Group(words(auxiliary, t), (), (), (), rest)


def _without(do: str, finite: str, base: str, t: int, rest: Phrase) -> Group:
    return Group((), words(do, t), words(finite, t), words(base, t), rest)
