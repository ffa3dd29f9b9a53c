"""A Hindi–English grammar that makes sentence pairs with gold word links: lexicon, morphology and rules.

The tables `*.txt` have the words, `hindi` and `english` their morphology. `phrases`, `complements`, `tenses` and
`clauses` combine them, in both languages at once. This module makes sentences of clauses, and pairs without end that
follow from a seed. A Hindi and an English word that express the same idea are linked.

The three splits share no sentence. Some combinations of words are kept for testing: a verb and its object, a subject
and its verb, an adjective and its noun. The two words of such a combination are never in one training sentence; every
test sentence has at least one. Validation has its own combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import NamedTuple

from heedful.data.hindi.clauses import Clause, ClausePlan, being, clause, command, how_many, quality, question
from heedful.data.hindi.complements import adjectives
from heedful.data.hindi.lexicon import Adjective, Noun, lexicon
from heedful.data.hindi.phrases import NounPhrase, Phrase, Speaker, bare, nominal, pronominal, pronouns, words
from heedful.errors import ConfigError, choose

__all__ = [
    "DIRECTIONS",
    "LONGEST",
    "SHORTEST",
    "SPLITS",
    "HindiExample",
    "SentenceSide",
    "alone",
    "because_it",
    "generate",
    "joined",
    "kept",
    "pairs",
    "unit",
]

SPLITS = ("train", "valid", "test")
DIRECTIONS = ("hi-en", "en-hi")
SHORTEST, LONGEST = 2, 50
TRIES = 500
FEW = 6
PATIENCE = 200
Positions = tuple[tuple[int, int], ...]


class SentenceSide(NamedTuple):
    """A pair in one direction: links are (source, target), antecedents (pronoun, noun) of the source."""

    source: str
    target: str
    links: Positions
    antecedents: Positions


class HindiExample(NamedTuple):
    """A sentence in both languages, the links between its words (Hindi, English), and what its pronouns mean.

    Words are what white space separates, counted from 0. `hindi_antecedents` and `english_antecedents` are pairs of
    a pronoun's position and that of the noun it refers to.
    """

    hindi: str
    english: str
    links: Positions
    hindi_antecedents: Positions = ()
    english_antecedents: Positions = ()

    def seen_from(self, direction: str) -> SentenceSide:
        """Return it as a pair to translate in a direction, `hi-en` or `en-hi`."""
        if choose("direction", direction, DIRECTIONS) == "hi-en":
            return SentenceSide(self.hindi, self.english, self.links, self.hindi_antecedents)
        links = tuple(sorted((j, i) for i, j in self.links))
        return SentenceSide(self.english, self.hindi, links, self.english_antecedents)


def generate(
    seed: int = 1,
    split: str = "train",
    min_words: int = SHORTEST,
    max_words: int = LONGEST,
    count_english: bool = False,
) -> Iterator[HindiExample]:
    """Yield different sentences without end, with this number of Hindi (or English) words."""
    choose("split", split, SPLITS)
    _check(min_words, max_words)
    random = Random(f"{seed} {split}")
    seen: set[bytes] = set()
    fruitless = 0
    while True:
        made = _sentence(random, split, min_words, max_words, count_english)
        mark = b"" if made is None else blake2b(f"{made.hindi}\t{made.english}".encode(), digest_size=16).digest()
        if made is None or mark in seen:
            fruitless += 1
            if fruitless > PATIENCE:
                raise ConfigError(
                    f"after {len(seen):,} sentences of {min_words} to {max_words} words for {split}, no new one came "
                    f"up in {PATIENCE} tries; allow longer ones, or ask for fewer"
                )
            continue
        fruitless = 0
        seen.add(mark)
        yield made


def pairs(
    count: int, seed: int = 1, split: str = "train", min_words: int = SHORTEST, max_words: int = LONGEST
) -> list[tuple[str, str]]:
    """Return `count` different (Hindi, English) sentences, for `heedful.train`."""
    return [(e.hindi, e.english) for e in islice(generate(seed, split, min_words, max_words), count)]


def _check(low: int, high: int) -> None:
    if not SHORTEST <= low <= high <= LONGEST:
        raise ConfigError(
            f"sentences of {low} to {high} words were asked for; they have from {SHORTEST} to {LONGEST}, "
            "and the least must not be above the most"
        )


@cache
def kept() -> dict[frozenset[str], str]:
    """Return the split of each combination that is kept for one, by the keys of its two words."""
    words = lexicon()
    people = (*words.names, *words.tagged("person", "animal"))
    relations = (
        ({v.key: {n.key for n in words.nouns if v.takes(n)} for v in words.verbs}, 50, 75),
        ({a.key: {n.key for n in words.nouns if a.fits(n)} for a in words.adjectives}, 50, 75),
        ({v.key: {n.key for n in people if v.animals or n.has("person")} for v in words.verbs}, 30, 45),
    )
    combinations: dict[frozenset[str], str] = {}
    for partners, test, valid in relations:
        for key, others in partners.items():
            # A word with few partners would have too few training sentences.
            for other in others if len(others) >= FEW else ():
                digest = blake2b("\t".join(sorted((key, other))).encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "big") % 1000
                if number < valid:
                    combinations[frozenset((key, other))] = "test" if number < test else "valid"
    return combinations


@cache
def _apart(split: str) -> dict[str, frozenset[str]]:
    """Return for each word those that may not be in one sentence of the split with it."""
    others = {"train": ("valid", "test"), "valid": ("test",), "test": ()}[split]
    apart: dict[str, set[str]] = {}
    for pair, its in kept().items():
        if its in others:
            one, other = pair
            apart.setdefault(one, set()).add(other)
            apart.setdefault(other, set()).add(one)
    return {key: frozenset(value) for key, value in apart.items()}


def _allowed(s: Speaker, split: str) -> bool:
    apart, used = _apart(split), set(s.used)
    return all(key not in apart or apart[key].isdisjoint(used) for key in used)


def _belongs(s: Speaker, split: str) -> bool:
    """Whether a sentence has a combination that is kept for its split; always for training."""
    return split == "train" or any(kept().get(frozenset(pair)) == split for pair in s.relations)


def _sentence(random: Random, split: str, low: int, high: int, count_english: bool) -> HindiExample | None:
    """Draw a length, then try to make a sentence of it: lengths are drawn alike for every split."""
    wanted = Speaker(random).weigh(_lengths(low, high))
    for _ in range(TRIES):
        s = Speaker(random)
        made = _attempt(s, split, wanted, count_english)
        if made and low <= _size(made, count_english) <= min(high, wanted + 2) and _belongs(s, split):
            return _example(made.hindi, made.english, s.antecedents)
    return None


def _attempt(s: Speaker, split: str, wanted: int, count_english: bool) -> Clause | None:
    """Return a sentence of about the wanted length, or None."""
    when = s.weigh(TIMES)
    single = wanted <= 14 and s.chance(0.25)
    made: Clause | None = alone(s, _rich(wanted)) if single else unit(s, when, _rich(wanted), wanted)
    if not _allowed(s, split):
        return None
    while made and not single and _size(made, count_english) < wanted - 1:
        made = _longer(s, made, when, split, wanted - _size(made, count_english) - 1, count_english)
    return made


def _size(made: Clause, count_english: bool) -> int:
    return len(made.english if count_english else made.hindi)


def _longer(s: Speaker, made: Clause, when: str, split: str, room: int, count_english: bool) -> Clause | None:
    """Join another statement that fits and is allowed; None if ten attempts fail."""
    before = len(s.relations), len(s.used), len(s.antecedents)
    size = _size(made, count_english)
    for _ in range(10):
        now = when if s.chance(0.8) else s.weigh(TIMES)
        longer = joined(s, made, now, _rich(room), room)
        if _size(longer, count_english) - size <= room + 2 and _allowed(s, split):
            return longer
        del s.relations[before[0] :], s.used[before[1] :], s.antecedents[before[2] :]
    return None


@cache
def _lengths(low: int, high: int) -> dict[int, float]:
    """Return the weight of each length: most sentences are short, some very long."""
    return {n: 1.0 if n <= 12 else 0.5 if n <= 20 else 0.25 if n <= 30 else 0.15 for n in range(low, high + 1)}


def _rich(room: int) -> float:
    """Return the probability of optional parts."""
    return 0.05 if room < 4 else 0.3 if room < 7 else 0.6 if room < 12 else 0.9


def _example(hindi: Phrase, english: Phrase, antecedents: list[tuple[int, int]]) -> HindiExample:
    """Return the words as text, and their links."""
    at_hindi, at_english = _positions(hindi), _positions(english)
    links = {(i, j) for idea, positions in at_hindi.items() for i in positions for j in at_english.get(idea, ())}
    text = " ".join(w.text for w in english)
    return HindiExample(
        " ".join(w.text for w in hindi),
        text[0].upper() + text[1:],
        tuple(sorted(links)),
        tuple((at_hindi[p][0], at_hindi[a][0]) for p, a in antecedents),
        tuple((at_english[p][-1], at_english[a][-1]) for p, a in antecedents),
    )


def _positions(phrase: Phrase) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    for i, word in enumerate(phrase):
        for idea in word.ideas:
            positions.setdefault(idea, []).append(i)
    return positions


# Conjunctions.
JOINS = {"और": "and", "लेकिन": "but", "क्योंकि": "because", "इसलिए": "so"}
TIMES = {"present": 3.0, "past": 4, "future": 2}


def alone(s: Speaker, rich: float) -> Clause:
    """Return a question or a command."""
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
    meant, trait = (who, s.pick(of_animal)) if mine else (what, s.pick(of_place))
    tense = {"past": s.pick(["past", "past", "could", "wanted"]), "present": s.pick(["progressive", "can", "want"])}
    when = "past" if past else "present"
    first = clause(
        s, ClausePlan(when, subject=who, object=what, verb=verb, tense=tense[when], plain=True, polarity="negative")
    )
    it = replace(pronominal(s, "it", meant.agreement.feminine), heads=meant.heads)
    s.antecedents.append((it.idea, meant.idea))
    degree = "बहुत ज़्यादा" if s.chance(0.7) else ""
    second = quality(s, ClausePlan(when, 0.0, it, polarity="positive"), trait=trait, degree=degree)
    s.relate(trait.key, meant.keys[0])
    i = s.idea()
    hindi = first.hindi + words("क्योंकि", i) + second.hindi
    return Clause(hindi, first.english + words("because", i) + second.english, it)


def _only(one: Noun, other: Noun) -> list[Adjective]:
    """Return the adjectives that fit one noun and not the other."""
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
