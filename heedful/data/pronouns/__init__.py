"""An English–French grammar in which `it` has to be resolved: pairs with gold word links and marked antecedents.

    The animal did not cross the street because it was too tired    L'animal … parce qu'il était trop fatigué
    The animal did not cross the street because it was too wide     L'animal … parce qu'elle était trop large

English has one `it` for both nouns. French has `il` or `elle`, by the gender of the noun that is meant, and what is
said of `it` fits only one of the two. The tables `*.txt` have the words; this module has the rules of both languages,
and makes pairs without end that follow from a seed.

Each of the two nouns is meant as often as the other, and about half of the sentences have two nouns of one gender.
The three splits share no sentence. Some combinations of two words are kept for testing: the two nouns, the verb and
one of the nouns, or a noun and what is said of it. Such words are never together in a training sentence, though each
of them is in other ones; every test sentence has at least one such combination. Validation has its own combinations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import combinations, islice, product
from random import Random
from typing import NamedTuple

from heedful.data.hindi.phrases import LinkedWord, Phrase, Speaker, words
from heedful.data.pronouns.lexicon import PERSONS, FrenchNoun, FrenchVerb, Predicate, lexicon
from heedful.errors import ConfigError, choose

__all__ = ["LONGEST", "SHORTEST", "SPLITS", "PronounExample", "generate", "join_words", "kept", "pairs"]

SPLITS = ("train", "valid", "test")
SHORTEST, LONGEST = 3, 32
TRIES = 2000
PLAIN = 0.25  # share of sentences without a pronoun
VOWELS = "aâàeéèêiîoôuûœ"
ASPIRATED = ("hache", "harpe", "haut", "heurt", "hérisson")  # no elision before these
WEAK = {"le": "l'", "la": "l'", "ne": "n'", "de": "d'", "se": "s'", "que": "qu'", "puisque": "puisqu'"}
CONTRACTED = {("de", "le"): "du", ("à", "le"): "au"}
FITTING = ("fit", "cover")  # kinds of verbs that sizes decide on


class PronounExample(NamedTuple):
    """An English and a French sentence, their word links, and what `it` refers to.

    Words are what white space separates, counted from 0. `links` are (source, target), `antecedents` pairs of a
    pronoun's position in the source and that of the noun it refers to. `nouns` are the positions of the two nouns that
    it could refer to; both are empty for a sentence without a pronoun.
    """

    source: str
    target: str
    links: tuple[tuple[int, int], ...]
    antecedents: tuple[tuple[int, int], ...] = ()
    nouns: tuple[int, ...] = ()


def generate(
    seed: int = 1, split: str = "train", min_words: int = SHORTEST, max_words: int = LONGEST
) -> Iterator[PronounExample]:
    """Yield different sentences without end, with this number of English words."""
    choose("split", split, SPLITS)
    if not SHORTEST <= min_words <= max_words <= LONGEST:
        raise ConfigError(
            f"sentences of {min_words} to {max_words} words were asked for; they have from {SHORTEST} to {LONGEST}, "
            "and the least must not be above the most"
        )
    random = Random(f"pronouns {seed} {split}")
    seen: set[bytes] = set()
    fruitless = 0
    while fruitless < TRIES:
        s = Speaker(random)
        drawn = _sentence(s)
        fruitless += 1
        if drawn is None or not min_words <= len(drawn[0].english) <= max_words or not _belongs(s, split):
            continue
        example = _example(*drawn, s.antecedents)
        digest = blake2b(example.source.encode(), digest_size=16).digest()
        if digest in seen:
            continue
        fruitless = 0
        seen.add(digest)
        yield example
    raise ConfigError(
        f"after {len(seen):,} sentences of {min_words} to {max_words} words for {split}, no new one came up in "
        f"{TRIES:,} tries; allow other lengths, or ask for fewer"
    )


def pairs(
    count: int, seed: int = 1, split: str = "train", min_words: int = SHORTEST, max_words: int = LONGEST
) -> list[tuple[str, str]]:
    """Return `count` different (English, French) sentences, for `heedful.train`."""
    return [(e.source, e.target) for e in islice(generate(seed, split, min_words, max_words), count)]


@cache
def kept() -> dict[frozenset[str], str]:
    """Return the split of each combination that is kept for one, by the keys of its two words."""
    possible: set[frozenset[str]] = set()
    for verb in lexicon().verbs:
        first, second = (lexicon().of(classes) for classes in verb.nouns)
        possible |= {frozenset((one.key, other.key)) for one, other in product(first, second)}
        possible |= {frozenset((verb.key, noun.key)) for noun in first + second}
    possible |= {frozenset((p.key, n.key)) for p, n in product(lexicon().predicates, lexicon().nouns) if p.fits(n)}
    found = {}
    for pair in possible:
        digest = blake2b("\t".join(sorted(pair)).encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big") % 1000
        if number < 120:
            found[pair] = "test" if number < 80 else "valid"
    return found


def _belongs(s: Speaker, split: str) -> bool:
    """Whether a sentence has only combinations that its split may have, and one that is kept for it, if any are."""
    splits = {kept().get(frozenset(pair)) for pair in combinations(dict.fromkeys(s.used), 2)}
    related = {kept().get(frozenset(pair)) for pair in s.relations}
    if split == "train":
        return splits <= {None}
    return split in related and (split == "test" or "test" not in splits)


@dataclass(frozen=True)
class _PhrasePair:
    """The same in both languages; French words are not elided or contracted yet."""

    english: Phrase = ()
    french: Phrase = ()

    def __add__(self, other: _PhrasePair) -> _PhrasePair:
        return _PhrasePair(self.english + other.english, self.french + other.french)


class _NounIdea(NamedTuple):
    """A noun of a sentence, and its idea."""

    noun: FrenchNoun
    idea: int


ADVERBS = {"yesterday": "hier", "that day": "ce jour-là", "this morning": "ce matin", "last night": "hier soir"}
ADVERBS_NOW = {"today": "aujourd'hui", "now": "maintenant"}
DEGREES = {"too": "trop", "very": "très", "so": "si", "rather": "plutôt", "still": "encore", "already": "déjà", "": ""}
TRIED = {"refused to": "refusé", "tried to": "essayé"}
REASONS = {"because": "parce que", "since": "puisque", "as": "car"}
# Adjectives before or after a noun: English, masculine, feminine; classes.
LITTLE = ("little", "petit", "petite")
COLOURS = (
    ("black", "noir", "noire", "animal vehicle thing container cover"),
    ("white", "blanc", "blanche", "animal vehicle thing container cover"),
    ("grey", "gris", "grise", "animal vehicle container cover"),
    ("brown", "brun", "brune", "animal"),
    ("red", "rouge", "rouge", "vehicle thing container cover"),
    ("green", "vert", "verte", "vehicle thing container cover"),
    ("blue", "bleu", "bleue", "vehicle thing container cover"),
)
# What a person did, with avoir or être.
DEEDS = (
    ("laughed", "a", "ri"),
    ("cried", "a", "pleuré"),
    ("waited", "a", "attendu"),
    ("sang", "a", "chanté"),
    ("smiled", "a", "souri"),
    ("left", "est", "parti"),
    ("came back", "est", "revenu"),
    ("fell", "est", "tombé"),
)


def _both(english: str, french: str, *ideas: int) -> _PhrasePair:
    return _PhrasePair(words(english, *ideas), words(french, *ideas))


def _sentence(s: Speaker) -> tuple[_PhrasePair, tuple[_NounIdea, ...]] | None:
    """Return a sentence of one to three clauses, perhaps with an adverb, and what its pronoun may mean.

    None if nothing can be said of the noun that was drawn.
    """
    now = s.chance(0.15)
    nouns: tuple[_NounIdea, ...] = ()
    if s.chance(PLAIN):
        made, now = _plain(s, now)
    else:
        resolved = _with_pronoun(s, now)
        if resolved is None:
            return None
        made, now, nouns = resolved
        if not now and s.chance(0.1):
            made += _both("and", "et", s.idea()) + _deed(s)
    if s.chance(0.2):
        adverb = s.pick(list((ADVERBS_NOW if now else ADVERBS).items()))
        time = _both(*adverb, s.idea())
        made = time + made if s.chance(0.6) else made + time
    return made, nouns


def _plain(s: Speaker, now: bool) -> tuple[_PhrasePair, bool]:
    """Return a sentence without a pronoun, and whether it is in the present."""
    kind = s.weigh({"verb": 3.0, "being": 3.0, "deed": 0.5, "two": 1.5, "reason": 1.5})
    match kind:
        case "being":
            return _being(s, now), now
        case "deed":
            return _deed(s), False
        case "two":
            return _being(s, now) + _both("and", "et", s.idea()) + _being(s, now), now
    verb = s.pick(lexicon().verbs)
    first, second = (s.pick(lexicon().of(classes)) for classes in verb.nouns)
    mode = s.weigh(_modes(verb, first, now, ("positive", "negative", "trying")))
    made, _ = _main(s, verb, first, second, mode)
    now = MODES[mode].now
    if kind == "reason":
        made += _both(*s.pick(list(REASONS.items())), s.idea()) + (_being(s, now) if now or s.chance(0.5) else _deed(s))
    return made, now


def _being(s: Speaker, now: bool) -> _PhrasePair:
    """Return `the street was too wide`."""
    predicate = s.pick(lexicon().predicates)
    noun = s.pick([n for n in lexicon().nouns if predicate.fits(n)])
    phrase, _ = _noun_phrase(s, noun)
    s.relate(predicate.key, noun.key)
    return phrase + _said(s, predicate, noun.feminine, now, _degree(s, predicate, too=True))


def _deed(s: Speaker) -> _PhrasePair:
    """Return `the boy laughed`, of somebody who is not in the sentence yet."""
    person = s.pick([n for n in lexicon().of(PERSONS) if n.key not in s.used])
    phrase, _ = _noun_phrase(s, person)
    english, auxiliary, participle = s.pick(DEEDS)
    agreeing = "e" if person.feminine and auxiliary == "est" else ""
    return phrase + _both(english, f"{auxiliary} {participle}{agreeing}", s.idea())


def _with_pronoun(s: Speaker, now: bool) -> tuple[_PhrasePair, bool, tuple[_NounIdea, ...]] | None:
    """Return a clause with two nouns and what is said of one of them; whether it is in the present; possible nouns."""
    verb = s.pick(lexicon().verbs)
    first, second = (s.pick(lexicon().of(classes)) for classes in verb.nouns)
    trying = _modes(verb, first, now, ("trying",))
    connective = s.weigh({"because": 4.0, "since": 1.0, "as": 1.0})
    polarity = {"cause": ("positive",), "give": ("positive", "negative")}.get(verb.kind, ("negative",))
    if verb.kind == "against" and trying and s.chance(0.15):
        connective, polarity = "but", ("trying",)
    elif verb.kind in ("against", "cause") and s.chance(0.12):
        connective, polarity = "even though", ("positive",) if verb.kind == "against" else ("negative",)
    mode = s.weigh(_modes(verb, first, now, polarity))
    now = MODES[mode].now
    made, nouns = _main(s, verb, first, second, mode)
    meant, other = nouns[:2] if s.chance(0.5) else nouns[1::-1]
    if verb.given and s.chance(0.2):
        meant, other = nouns[2], nouns[0]
    said = [_about_it(s, verb, meant, other, now, too=connective != "even though", is_first=meant is nouns[0])]
    if connective != "even though" and s.chance(0.12):
        said.append(_about_it(s, verb, meant, other, now, too=True, is_first=meant is nouns[0]))
    if None in said or len({predicate.key for predicate, _ in filter(None, said)}) < len(said):
        return None
    french = {**REASONS, "but": "mais", "even though": "même si"}[connective]
    made += _both(connective, french, s.idea())
    again = "et que" if french.endswith("que") else "et"
    for number, (predicate, clause) in enumerate(filter(None, said)):
        s.relate(predicate.key, meant.noun.key)
        made += (_both("and", again, s.idea()) if number else _PhrasePair()) + clause
    possible = [noun for noun in nouns if noun.noun.pronoun == meant.noun.pronoun]
    return made, now, tuple(possible)


def _about_it(
    s: Speaker, verb: FrenchVerb, meant: _NounIdea, other: _NounIdea, now: bool, *, too: bool, is_first: bool
) -> tuple[Predicate, _PhrasePair] | None:
    """Return what fits the noun that is meant and not the other, with `it` before it; None if there is nothing."""
    it = s.idea()
    enough = False
    if verb.kind in FITTING:
        # What does not fit in something is too large for it; what does not cover something is too small.
        wanted = "large" if is_first == (verb.kind == "fit") else "small"
        options = lexicon().sizes(meant.noun)
        enough = s.chance(0.3)
        options = tuple(p for p in options if (p.kind == wanted) != enough)
    else:
        options = lexicon().said_of(meant.noun, other.noun)
    if not options:
        return None
    predicate = s.pick(options)
    degree = "enough" if enough else "too" if verb.kind in FITTING else _degree(s, predicate, too)
    s.antecedents.append((it, meant.idea))
    pronoun = _both(meant.noun.pronoun, "elle" if meant.noun.feminine else "il", it)
    return predicate, pronoun + _said(s, predicate, meant.noun.feminine, now, degree)


def _degree(s: Speaker, predicate: Predicate, too: bool) -> str:
    """Return the English word of degree, which may be none."""
    if predicate.kind == "verb":
        return ""
    if predicate.kind == "state":
        return s.weigh({"": 3.0, "still": 1.0, "already": 1.0})
    return s.weigh({"": 2.0, "very": 1.0, "so": 1.0, "rather": 0.5} | ({"too": 4.0} if too else {}))


def _said(s: Speaker, predicate: Predicate, feminine: bool, now: bool, degree: str) -> _PhrasePair:
    """Return `was too tired`: what is said of a noun, after it."""
    s.use(predicate.key)
    p = s.idea()
    english = "is" if now else "was"
    if predicate.kind == "verb":
        return _both(f"{english} {predicate.english}", predicate.forms[now], p)
    be = s.idea()
    french = ("a" if now else "avait") if predicate.kind == "have" else "est" if now else "était"
    said = _both(predicate.english, predicate.forms[feminine], p)
    if degree == "enough":
        n, d = s.idea(), s.idea()
        return _PhrasePair(
            words(english, be) + words("not", n) + said.english + words("enough", d),
            words("ne", n) + words(french, be) + words("pas", n) + words("assez", d) + said.french,
        )
    return _both(english, french, be) + _both(degree, DEGREES[degree], s.idea()) + said


def _noun_phrase(s: Speaker, noun: FrenchNoun) -> tuple[_PhrasePair, _NounIdea]:
    """Return a noun with its determiner and perhaps an adjective; and the noun with its idea."""
    i, d = s.idea(), s.idea()
    s.use(noun.key)
    head = _both(noun.english, noun.french, i)
    determiner = "the" if noun.is_person else s.weigh({"the": 8.0, "this": 1.0, "my": 1.0})
    if not noun.is_person and s.chance(0.12):
        fitting = [c for c in COLOURS if not noun.classes.isdisjoint(c[3].split())]
        english, *forms = s.pick([c[:3] for c in fitting]) if fitting and s.chance(0.7) else LITTLE
        described = _both(english, forms[noun.feminine], s.idea())
        french = described.french + head.french if english == LITTLE[0] else head.french + described.french
        head = _PhrasePair(described.english + head.english, french)
    vowel = _begins_with_vowel(head.french[0].text)
    french_forms = {
        "the": ("le", "la"),
        "this": ("cet" if vowel else "ce", "cette"),
        "my": ("mon", "mon" if vowel else "ma"),
    }
    return _both(determiner, french_forms[determiner][noun.feminine], d) + head, _NounIdea(noun, i)


class _Mode(NamedTuple):
    """A form of the main verb: whether something happened, its weight, who can be the subject, and its tense."""

    polarity: str
    weight: float
    willed: bool = False  # only somebody who has a will
    now: bool = False


MODES = {
    "": _Mode("positive", 1.0),
    "did not": _Mode("negative", 4.0),
    "could not": _Mode("negative", 1.5),
    "never": _Mode("negative", 1.0),
    "did not want to": _Mode("negative", 1.5, willed=True),
    "refused to": _Mode("negative", 1.0, willed=True),
    "wanted to": _Mode("trying", 1.0, willed=True),
    "tried to": _Mode("trying", 1.0, willed=True),
    "cannot": _Mode("negative", 1.0, now=True),
    "does not want to": _Mode("negative", 1.0, willed=True, now=True),
    "wants to": _Mode("trying", 1.0, willed=True, now=True),
    "does not": _Mode("negative", 1.0, now=True),
}
FITTING_MODES = ("did not", "does not")


def _modes(verb: FrenchVerb, first: FrenchNoun, now: bool, polarities: tuple[str, ...]) -> dict[str, float]:
    """Return the weights of the forms that a verb can have; those of the past, if there are none of the present."""
    willed = verb.given or first.is_person or "animal" in first.classes
    modes = {
        mode: one
        for mode, one in MODES.items()
        if one.polarity in polarities
        and (willed or not one.willed)
        and (mode in FITTING_MODES if verb.kind in FITTING else mode != "does not")
    }
    return {mode: one.weight for mode, one in modes.items() if one.now == now} or {
        mode: one.weight for mode, one in modes.items()
    }


def _main(
    s: Speaker, verb: FrenchVerb, first: FrenchNoun, second: FrenchNoun, mode: str
) -> tuple[_PhrasePair, tuple[_NounIdea, ...]]:
    """Return the main clause, its two nouns with their ideas, and then the person who is the subject, if any."""
    s.use(verb.key)
    s.relate(verb.key, first.key)
    s.relate(verb.key, second.key)
    s.relate(first.key, second.key)
    one, one_idea = _noun_phrase(s, first)
    other, other_idea = _noun_phrase(s, second)
    v = s.idea()
    after = _PhrasePair((), words(verb.preposition[1], v))
    if not verb.given:
        made = one + _verb_phrase(s, verb, v, mode, first.feminine) + after + other
        return made, (one_idea, other_idea)
    person = s.pick(lexicon().of(PERSONS))
    subject, subject_idea = _noun_phrase(s, person)
    after = _both(verb.preposition[0], verb.preposition[1], s.idea())
    made = subject + _verb_phrase(s, verb, v, mode, person.feminine) + one + after + other
    return made, (one_idea, other_idea, subject_idea)


def _verb_phrase(s: Speaker, verb: FrenchVerb, v: int, mode: str, feminine: bool) -> _PhrasePair:
    """Return the verb with its auxiliaries and negation; `v` is its idea."""
    m, n, to = s.idea(), s.idea(), s.idea()
    not_, base = words("not", n), words(verb.base, v)
    ne, pas = words("ne", n), words("pas", n)
    infinitive = words("se", v) + words(verb.infinitive, v) if verb.auxiliary == "se est" else words(verb.infinitive, v)
    participle = words(verb.past[0] + ("e" if feminine and verb.auxiliary != "a" else ""), v)
    wanting = {"did not want to": "voulait", "does not want to": "veut", "wanted to": "voulait", "wants to": "veut"}
    if verb.kind in FITTING:
        does, tense = mode.split()[0], verb.past[mode == "does not"]
        return _PhrasePair(words(does, m) + not_ + base, ne + words(tense, m, v) + pas)
    match mode:
        case "":
            return _PhrasePair(words(verb.simple_past, v), words(verb.auxiliary, v) + participle)
        case "did not":
            return _PhrasePair(words("did", m) + not_ + base, ne + words(verb.auxiliary, m) + pas + participle)
        case "never":
            never = ne + words(verb.auxiliary, v) + words("jamais", n) + participle
            return _PhrasePair(words("never", n) + words(verb.simple_past, v), never)
        case "could not":
            return _PhrasePair(words("could", m) + not_ + base, ne + words("pouvait", m) + pas + infinitive)
        case "cannot":
            return _PhrasePair(words("cannot", m, n) + base, ne + words("peut", m) + pas + infinitive)
        case "refused to" | "tried to":
            english = words(mode.split()[0], m) + words("to", to) + base
            return _PhrasePair(english, words("a", m) + words(TRIED[mode], m) + words("de", to) + infinitive)
        case "wanted to" | "wants to":
            return _PhrasePair(words(mode, m) + base, words(wanting[mode], m) + infinitive)
    does = mode.split()[0]
    english = words(does, m) + not_ + words("want to", m) + base
    return _PhrasePair(english, ne + words(wanting[mode], m) + pas + infinitive)


def _example(made: _PhrasePair, nouns: tuple[_NounIdea, ...], antecedents: list[tuple[int, int]]) -> PronounExample:
    """Return the words as text, with their links."""
    french = join_words(made.french)
    expressed: dict[int, list[int]] = {}
    for j, word in enumerate(french):
        for idea in word.ideas:
            expressed.setdefault(idea, []).append(j)
    links = {(i, j) for i, word in enumerate(made.english) for idea in word.ideas for j in expressed.get(idea, ())}
    at = {word.ideas[0]: i for i, word in enumerate(made.english)}
    source, target = (" ".join(word.text for word in phrase) for phrase in (made.english, french))
    return PronounExample(
        source[0].upper() + source[1:],
        target[0].upper() + target[1:],
        tuple(sorted(links)),
        tuple((at[pronoun], at[noun]) for pronoun, noun in antecedents),
        tuple(sorted(at[noun.idea] for noun in nouns)),
    )


def join_words(phrase: Phrase) -> Phrase:
    """Return French words with elision and contraction: le animal -> l'animal, de le -> du, que il -> qu'il.

    >>> [word.text for word in join_words(words("de le âne à le chien de la hache"))]
    ['de', "l'âne", 'au', 'chien', 'de', 'la', 'hache']
    """
    joined: list[LinkedWord] = []
    for text, ideas in reversed(phrase):
        after = joined[-1] if joined else LinkedWord("", ())
        together = CONTRACTED.get((text, after.text), "")
        if text in WEAK and _begins_with_vowel(after.text):
            together = WEAK[text] + after.text
        if text == "si" and after.text == "il":
            together = "s'il"
        if together:
            joined[-1] = LinkedWord(together, ideas + after.ideas)
        else:
            joined.append(LinkedWord(text, ideas))
    return tuple(reversed(joined))


def _begins_with_vowel(text: str) -> bool:
    """Whether a word begins with the sound of a vowel, as l'homme does and la hache does not."""
    return text.startswith(tuple(VOWELS)) or (text.startswith("h") and not text.startswith(ASPIRATED))
