"""Sentences to look at, made once for all tests of a process."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import islice

from hindi_forms import ADJECTIVES, NOUNS, VERBS

from heedful.data.hindi import HindiExample, generate
from heedful.data.hindi.lexicon import lexicon

SIZES = {"train": 20_000, "valid": 1_500, "test": 2_000}
# Forms of रह and दे that are auxiliaries and a numeral as well.
ELSE = {"रहा", "रहे", "रही", "दो"}


@cache
def sample(split: str) -> tuple[HindiExample, ...]:
    """The first sentences of a split."""
    return tuple(islice(generate(1, split), SIZES[split]))


@cache
def keys_of_forms() -> dict[str, frozenset[str]]:
    """The words of the lexicon that a Hindi word may be a form of, by the keys of the lexicon."""
    words, found = lexicon(), defaultdict(set)
    for name in words.names:
        found[name.hindi].add(name.key)
    for noun in words.nouns:
        for form in NOUNS[noun.hindi].forms:
            found[form].add(noun.key)
    for adjective in words.adjectives:
        for form in ADJECTIVES[adjective.hindi]:
            for word in form.split():
                found[word].add(adjective.key)
    for verb in words.verbs:
        for form in verb.nominal.split() or {verb.stem, *VERBS[verb.stem].forms}:
            found[form].add(verb.key)
    return {form: frozenset(keys) for form, keys in found.items()}


def possible(hindi: str) -> set[str]:
    """The keys of all words that a sentence may contain."""
    forms = keys_of_forms()
    return {key for word in hindi.split() for key in forms.get(word, ())}


def certain(hindi: str) -> set[str]:
    """The keys of the words that a sentence contains, whatever way it is read."""
    forms = keys_of_forms()
    known = (forms[word] for word in hindi.split() if word in forms and word not in ELSE)
    return {key for keys in known if len(keys) == 1 for key in keys}
