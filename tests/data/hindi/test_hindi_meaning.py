"""Whether the two sentences of a pair say the same: tenses, questions, joining words, negation, links, `it`."""

import re
from collections import Counter

import pytest
from hindi_forms import ADJECTIVES, NOUNS, VERBS
from hindi_sample import ELSE, keys_of_forms, sample

from heedful.data.hindi.lexicon import lexicon, rows
from heedful.data.hindi.phrases import NUMERALS
from heedful.data.hindi.tenses import TENSES

# One verb in every tense, with the forms of the third person; in English as a statement, denied or asked.
PLAYED = {
    "habitual": ("खेल(ता|ती) है", "plays|(does|doesn't)( .*)? play"),
    "progressive": ("खेल (रहा|रही) है", "(is|isn't)( .*)? playing"),
    "perfect": ("खेल(ा|ी) है", "(has|hasn't|have|haven't)( .*)? played"),
    "can": ("खेल सक(ता|ती) है", "(can|can't)( .*)? play"),
    "want": ("खेलना (नहीं )?चाह(ता|ती) है", "wants to play|(does|doesn't)( .*)? want to play"),
    "must": ("खेलना है", "(has|have) to play"),
    "should": ("खेलना चाहिए", "(should|shouldn't)( .*)? play"),
    "love": ("खेलना पसंद (नहीं )?है", "(love|loves) to play"),
    "past": ("खेल(ा|ी|े|ीं)(?! है| हैं| हूँ| हो| था| थे| थी)", "played|(did|didn't)( .*)? play"),
    "was": ("खेल (रहा|रही) (था|थी)", "(was|wasn't)( .*)? playing"),
    "used": ("खेल(ता|ती) (था|थी)", "used to play|(did|didn't)( .*)? use to play"),
    "had": ("खेल(ा|ी) (था|थी)", "(had|hadn't)( .*)? played"),
    "could": ("खेल सक(ता|ती) (था|थी)", "(could|couldn't)( .*)? play"),
    "wanted": ("खेलना (नहीं )?चाह(ता|ती) (था|थी)", "wanted to play|(did|didn't)( .*)? want to play"),
    "needed": ("खेलना पड़ा", "had to play|(did|didn't)( .*)? have to play"),
    "began": ("खेलने लग(ा|ी)", "began to play|did( .*)? begin to play"),
    "loved": ("खेलना पसंद (नहीं )?था", "loved to play|(did|didn't)( .*)? love to play"),
    "future": ("खेल(ेगा|ेगी)", "(will|won't)( .*)? play|plays"),
    "able": ("खेल सके(गा|गी)", "(will|won't)( .*)? be able to play"),
    "forced": ("खेलना पड़ेगा", "(will|won't)( .*)? have to play"),
    "if": ("अगर [^ ]+ खेल(ेगा|ेगी) तो", "if( .*)? plays then"),
}


def padded(text):
    return f" {text} "


def test_every_tense_has_its_pattern():
    assert set(PLAYED) == {*TENSES, "if"}


@pytest.mark.parametrize("tense", PLAYED)
def test_tenses(tense):
    hindi, english = PLAYED[tense]
    found = [x for x in sample("train") if re.search(f" {hindi} ", padded(x.hindi))]
    assert found
    said = re.compile(f" ({english}) ", re.IGNORECASE)
    assert [x for x in found if not said.search(padded(x.english))] == []


BEGIN = "Am|Are|Can|Could|Did|Do|Does|Had|Has|Have|Is|Should|Was|Were|Will"
DO = "|".join(sorted({v.base for v in lexicon().verbs}))
REQUESTS = "|".join(sorted({VERBS[v.stem].command[1] for v in lexicon().verbs}))
KINDS = {  # what is in the Hindi sentence if and only if this is in the English one
    "yes or no": ("^ क्या ", f"^ (?!Don't ({DO}) )(({BEGIN})|({BEGIN})n't|Can't|Won't) "),
    "who": ("^ (कौन|किसने|किसे) ", "^ Who "),
    "what": ("^ (?!क्या ).* क्या ", "^ What "),
    "where": (" कहाँ ", "^ Where "),
    "when": (" कब ", "^ When (am|are|can|did|do|does|is|was|were|will) "),
    "why": (" क्यों ", "^ Why "),
    "how many": (" कितन[ेी] ", "^ How many "),
    "request": (f" ({REQUESTS}) $", "^ Please "),
    "do not": (" मत ", f"^ Don't ({DO}) "),
    "please do not": (" न ", "^ Please don't "),
    "if": (" अगर .* तो ", " [Ii]f .* then "),
    "when it was": (" जब .* तब ", " [Ww]hen (?!am |are |can |did |do |does |is |was |were |will )"),
    "because": (" क्योंकि ", " because "),
    "who does": (" (जो|जिस|जिन) .* (वह|वे|उसे|उसने|उन्हें|उन्होंने) | (वह|वे) .* जो ", " (who|that) "),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_sentences(kind):
    hindi, english = (re.compile(pattern) for pattern in KINDS[kind])
    here = [x for x in sample("train") if hindi.search(padded(x.hindi))]
    there = [x for x in sample("train") if english.search(padded(x.english))]
    if kind == "who does":  # `that` is a demonstrative and a conjunction as well
        there = here + [x for x in there if " who " in x.english and not x.english.startswith("Who")]
    assert here
    assert set(here) == set(there)


COUNTED = {
    "और": "and",
    "लेकिन": "but",
    "क्योंकि": "because",
    "इसलिए": "so",
    "अगर": "if",
    "जब": "when",
    "आज": "today",
    "अभी": "now",
    "रोज़": "every",
    "सुबह": "morning",
    "शाम": "evening",
    "रात": "night",
    "हमेशा": "always",
    "अक्सर": "often",
    "कभी-कभी": "sometimes",
    "ज़्यादा": "too",
    "साथ": "with",
    **{hindi: english for hindi, english in NUMERALS.items() if hindi != "दो"},
    **{name.hindi: name.english for name in lexicon().names},
}


def test_words_that_come_as_often_on_both_sides():
    for x in sample("train"):
        hindi = Counter(COUNTED[w] for w in x.hindi.split() if w in COUNTED)
        english = Counter(w if w[0].isupper() else w.removesuffix("'s") for w in x.english.split())
        first, *_ = x.english.split()
        english += Counter([first.lower()])
        english += Counter(w[:-2] for w in x.english.split() if w.endswith("'s"))
        for word in set(COUNTED.values()) - ({"when"} if first == "When" else set()):
            assert hindi[word] == english[word], (word, x)


def test_negation():
    for x in sample("train"):
        hindi = sum(w in ("नहीं", "मत", "न") for w in x.hindi.split())
        assert hindi == sum(w == "not" or w.endswith("n't") for w in x.english.split()), x
    apart = [x for x in sample("train") if " not " in x.english]
    assert apart
    assert all(re.search(r"\bI am not\b", x.english) for x in apart)


def translations():
    """What each word of the lexicon may be linked to, by its key."""
    found = {n.key: {n.english, f"{n.english}'s"} for n in lexicon().names}
    for noun in lexicon().nouns:
        one, many = noun.english, noun.plural
        found[noun.key] = {one, many, f"{one}'s", f"{many}'s", f"{many}'"} | ({"home"} if noun.has("home") else set())
    for adjective in lexicon().adjectives:
        found.setdefault(adjective.key, set()).update({adjective.english, adjective.comparative})
    for verb in lexicon().verbs:
        found.setdefault(verb.key, set()).update({verb.base, verb.past, verb.participle, verb.base + "s"})
    return found


def test_words_are_linked_to_their_translations():
    expected, forms = translations(), keys_of_forms()
    verbs = re.compile(".*(ing|es|ies)")
    for x in sample("train"):
        hindi, english = x.hindi.split(), x.english.split()
        for i, word in enumerate(hindi):
            if word not in forms or word in ELSE:
                continue
            linked = {english[j] for h, j in x.links if h == i}
            linked |= {w.lower() for w in linked}
            right = set().union(*(expected[key] for key in forms[word]))
            verb = any(key.startswith("verb") for key in forms[word])
            assert linked & right or (verb and any(verbs.fullmatch(w) for w in linked)), (word, linked, x)


def test_negation_and_adverbs_are_linked():
    adverbs = {row[0]: row[1].split() for row in rows("adverbs.txt", 4) if row[0] != "कल" and " " not in row[0]}
    adverbs["नहीं"] = []
    for x in sample("train"):
        hindi, english = x.hindi.split(), x.english.split()
        for i, word in enumerate(hindi):
            if word in adverbs:
                linked = [english[j].lower() for h, j in x.links if h == i]
                assert linked == adverbs[word] or (word == "नहीं" and linked[0].endswith(("n't", "not"))), x


NOUN_OF = {form: n for n in lexicon().nouns for form in NOUNS[n.hindi].forms[:1] + NOUNS[n.hindi].forms[1:2]}
GENDERS = {f: "f" for forms in ADJECTIVES.values() if len(forms) == 3 for f in forms[2].split()}
GENDERS |= {f: "m" for forms in ADJECTIVES.values() if len(forms) == 3 for f in " ".join(forms[:2]).split()}
GENDERS |= {"था": "m", "थी": "f"}


def its():
    """Each `it` that stands for a noun: the pair, and in both languages where it and the noun are."""
    for x in sample("train"):
        for (it, noun), (english_it, english_noun) in zip(x.hindi_antecedents, x.english_antecedents, strict=True):
            if x.english.split()[english_it] == "it":
                yield x, it, noun, english_it, english_noun


def test_what_it_means():
    meant = Counter()
    for x, it, noun, english_it, english_noun in its():
        hindi, english = x.hindi.split(), x.english.split()
        assert hindi[it] in ("वह", "उसे", "उसने", "उसके"), x
        assert (it, english_it) in x.links, x
        if hindi[noun] not in NOUN_OF:
            assert hindi[noun] in ("वह", "उसे", "उसने", "उसके"), x  # an `it` before it
            continue
        found = NOUN_OF[hindi[noun]]
        assert english[english_noun] == found.english, x
        said = [w for w in hindi[it + 1 : it + 5] if w not in ("बहुत", "ज़्यादा", "नहीं", "थका", "थकी")][:2]
        if hindi[it - 1] == "क्योंकि" and len(said) == 2 and said[1] in ("है", "था", "थी"):
            genders = {GENDERS[w] for w in said if w in GENDERS}
            assert genders <= {"f" if found.feminine else "m"}, x
            meant["animal" if found.has("animal") else "place"] += bool(genders)
    assert min(meant["animal"], meant["place"]) > 50, meant


def test_its_own_is_said_of_animals_only():
    animals = {w for n in lexicon().tagged("animal") for w in (n.english, n.plural)}
    for x in sample("train"):
        words = set(x.english.split())
        assert "its" not in words or words & animals, x


def test_everybody_sleeps_and_bathes_alone():
    together = re.compile(r" (sleep|sleeping|sleeps|slept|bathe|bathing|bathes|bathed)( \w+ly)? with ")
    assert [x.english for x in sample("train") if together.search(padded(x.english))] == []


def test_verbs_have_all_their_forms_somewhere():
    """The same forms of the verb come out in sentences as stand in the table, so far as one says them."""
    said = {w for x in sample("train") for w in x.hindi.split()}
    for verb in lexicon().verbs:
        if verb.frame != "that":
            forms = VERBS[verb.stem]
            assert len(forms.forms & said) > 0.5 * len(forms.forms), verb.stem
