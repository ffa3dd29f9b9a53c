"""Hindi paradigms, cell by cell, against tables written by hand."""

from random import Random

import pytest
from hindi_forms import ADJECTIVES, NOUNS, VERBS

from heedful.data.hindi import hindi
from heedful.data.hindi.hindi import HindiAgreement
from heedful.data.hindi.lexicon import lexicon, rows
from heedful.data.hindi.phrases import Speaker, bare, named, nominal, own, pronominal, pronouns

FIXED = {"राजा", "पिता"}
CASES = [(False, False), (False, True), (True, False), (True, True)]  # plural, oblique
MAN, MEN, WOMAN, WOMEN = (HindiAgreement(3, p, f) for f in (False, True) for p in (False, True))
I_M, I_F, WE_M, WE_F = (HindiAgreement(1, p, f) for p in (False, True) for f in (False, True))
YOU_M, YOU_F = HindiAgreement(2, True, False), HindiAgreement(2, True, True)


def text(phrase):
    return " ".join(word.text for word in phrase)


@pytest.mark.parametrize("word", NOUNS)
def test_nouns(word):
    expected = NOUNS[word]
    found = tuple(hindi.noun(word, expected.feminine, *case, fixed=word in FIXED) for case in CASES)
    assert found == expected.forms


@pytest.mark.parametrize("noun", lexicon().nouns, ids=lambda n: n.hindi)
def test_nouns_of_the_lexicon_have_their_gender_and_say_whether_they_are_fixed(noun):
    assert noun.feminine == NOUNS[noun.hindi].feminine
    assert noun.has("fixed") == (noun.hindi in FIXED)


@pytest.mark.parametrize("word", ADJECTIVES)
def test_adjectives(word):
    forms = ADJECTIVES[word]
    one, other, feminine = forms if len(forms) == 3 else forms * 3
    expected = {
        (False, False, False): one,
        (False, False, True): other,
        (False, True, False): other,
        (False, True, True): other,
        (True, False, False): feminine,
        (True, False, True): feminine,
        (True, True, False): feminine,
        (True, True, True): feminine,
    }
    assert {form: hindi.adjective(word, *form) for form in expected} == expected


@pytest.mark.parametrize("adjective", lexicon().adjectives, ids=lambda a: f"{a.hindi} {a.english}")
def test_adjectives_of_the_lexicon_know_whether_they_change(adjective):
    assert adjective.changes == (len(ADJECTIVES[adjective.hindi]) == 3)


def test_the_genitive_agrees_with_what_is_owned():
    assert [hindi.genitive(a, False) for a in (MAN, MEN, WOMAN, WOMEN)] == ["का", "के", "की", "की"]
    assert [hindi.genitive(a, True) for a in (MAN, MEN, WOMAN, WOMEN)] == ["के", "के", "की", "की"]


# Verbs whose subject has no ने in the past, besides खेल without what is played; all others have it.
NO_AGENT = "सो दौड़ हँस रो नाच तैर गिर रुक नहा बैठ रह जा आ लौट चल बोल ला मिल चढ़"
GENDERS = {"खाना": "m", "काम": "m", "आराम": "m", "पढ़ाई": "f", "बात": "f", "प्यार": "m", "मदद": "f", "इंतज़ार": "m"}


@pytest.mark.parametrize("verb", lexicon().verbs, ids=lambda v: f"{v.nominal} {v.stem}")
def test_verbs_of_the_lexicon(verb):
    assert VERBS[verb.stem]
    assert verb.agent == (verb.stem not in NO_AGENT.split() and (verb.stem, verb.frame) != ("खेल", "alone"))
    assert verb.nominal_gender == GENDERS.get(verb.nominal, "")


@pytest.mark.parametrize("stem", VERBS)
def test_participles_and_infinitives(stem):
    verb = VERBS[stem]
    m, mm, f = verb.habitual
    assert [hindi.habitual(stem, a) for a in (MAN, MEN, WOMAN, WOMEN)] == [m, mm, f, f]
    assert [hindi.habitual(stem, a) for a in (I_M, WE_M, I_F, WE_F, YOU_M, YOU_F)] == [m, mm, f, f, mm, f]
    m, mm, f, ff = verb.perfective
    assert [hindi.perfective(stem, a) for a in (MAN, MEN, WOMAN, WOMEN)] == [m, mm, f, ff]
    # Before an auxiliary the plural is the auxiliary's: उसने किताबें पढ़ी हैं.
    assert [hindi.perfective(stem, a, last=False) for a in (MAN, MEN, WOMAN, WOMEN)] == [m, mm, f, f]
    m, mm, f = verb.infinitive
    assert [hindi.infinitive(stem, a) for a in (MAN, MEN, WOMAN, WOMEN)] == [m, mm, f, f]
    assert (hindi.infinitive(stem), hindi.infinitive(stem, oblique=True)) == (m, mm)


@pytest.mark.parametrize("stem", VERBS)
def test_futures_and_commands(stem):
    verb = VERBS[stem]
    i, we, you, it = verb.future
    assert tuple(hindi.future(stem, a) for a in (I_M, I_F)) == i
    assert tuple(hindi.future(stem, a) for a in (WE_M, WE_F)) == we
    assert tuple(hindi.future(stem, a) for a in (MEN, WOMEN)) == we
    assert tuple(hindi.future(stem, a) for a in (YOU_M, YOU_F)) == you
    assert tuple(hindi.future(stem, a) for a in (MAN, WOMAN)) == it
    if stem != "हो":  # nobody is told to be
        assert tuple(hindi.imperative(stem, polite) for polite in (False, True)) == verb.command


def test_the_copula_and_the_progressive():
    everybody = (I_M, I_F, WE_M, WE_F, YOU_M, YOU_F, MAN, WOMAN, MEN, WOMEN)
    present = "हूँ हूँ हैं हैं हो हो है है हैं हैं"
    past = "था थी थे थीं थे थीं था थी थे थीं"
    going_on = "रहा रही रहे रही रहे रही रहा रही रहे रही"
    assert " ".join(hindi.present(a) for a in everybody) == present
    assert " ".join(hindi.was(a) for a in everybody) == past
    assert " ".join(hindi.progressive(a) for a in everybody) == going_on


# direct | with ने | with को | genitive m, m plural or oblique, f | with से | with के साथ
PRONOUNS = {
    "I": "मैं | मैंने | मुझे | मेरा मेरे मेरी | मुझसे | मेरे साथ",
    "we": "हम | हमने | हमें | हमारा हमारे हमारी | हमसे | हमारे साथ",
    "you": "तुम | तुमने | तुम्हें | तुम्हारा तुम्हारे तुम्हारी | तुमसे | तुम्हारे साथ",
    "You": "आप | आपने | आपको | आपका आपके आपकी | आपसे | आपके साथ",
    "he": "वह | उसने | उसे | उसका उसके उसकी | उससे | उसके साथ",
    "she": "वह | उसने | उसे | उसका उसके उसकी | उससे | उसके साथ",
    "it": "वह | उसने | उसे | उसका उसके उसकी | उससे | उसके साथ",
    "they": "वे | उन्होंने | उन्हें | उनका उनके उनकी | उनसे | उनके साथ",
    "who": "कौन | किसने | किसे | किसका किसके किसकी | किससे | किसके साथ",
    "जो": "जो | जिसने | जिसे | जिसका जिसके जिसकी | जिससे | जिसके साथ",
    "जो+": "जो | जिन्होंने | जिन्हें | जिनका जिनके जिनकी | जिनसे | जिनके साथ",
}
# Person, plural and gender: what the verb agrees with; m, f, or - for either. आप and they are third persons for it.
AGREES = {
    "I": (1, False, "-"),
    "we": (1, True, "m"),
    "you": (2, True, "-"),
    "You": (3, True, "-"),
    "he": (3, False, "m"),
    "she": (3, False, "f"),
    "it": (3, False, "-"),
    "they": (3, True, "-"),
    "who": (3, False, "m"),
    "जो": (3, False, "-"),
    "जो+": (3, True, "-"),
}


def test_no_pronoun_is_without_its_table():
    assert set(PRONOUNS) == set(AGREES) == set(pronouns())
    assert len(pronouns()) == len(rows("pronouns.txt", 9))


@pytest.mark.parametrize("name", PRONOUNS)
@pytest.mark.parametrize("feminine", [False, True])
def test_pronouns(name, feminine):
    who = pronominal(Speaker(Random(0)), name, feminine)
    owned = " ".join(text(who.genitive(a, oblique)) for a, oblique in ((MAN, False), (MEN, False), (WOMAN, False)))
    found = [who.direct, who.agent(), who.dative()], [who.after("से"), who.beside("साथ")]
    assert " | ".join([*map(text, found[0]), owned, *map(text, found[1])]) == PRONOUNS[name]
    assert text(who.genitive(MAN, True)) == PRONOUNS[name].split(" | ")[3].split()[1]
    assert text(who.genitive(WOMEN, True)) == PRONOUNS[name].split(" | ")[3].split()[2]
    person, plural, gender = AGREES[name]
    assert who.agreement == HindiAgreement(person, plural, feminine if gender == "-" else gender == "f")


def noun(word):
    return next(n for n in lexicon().nouns if n.hindi == word)


def test_nouns_with_postpositions():
    s = Speaker(Random(0))
    boy = nominal(s, noun("लड़का"), bare())
    girls = nominal(s, noun("लड़की"), bare(), plural=True)
    ram = named(s, next(n for n in lexicon().names if n.hindi == "राम"))
    assert [text(p) for p in (boy.direct, boy.agent(), boy.dative(), boy.after("से"))] == [
        "लड़का",
        "लड़के ने",
        "लड़के को",
        "लड़के से",
    ]
    assert [text(p) for p in (girls.direct, girls.agent(), girls.beside("पास"))] == [
        "लड़कियाँ",
        "लड़कियों ने",
        "लड़कियों के पास",
    ]
    assert [text(ram.genitive(a, False)) for a in (MAN, MEN, WOMAN)] == ["राम का", "राम के", "राम की"]


def test_one_king_is_spoken_of_in_the_plural():
    s = Speaker(Random(0))
    bad = next(a for a in lexicon().adjectives if a.hindi == "बूढ़ा")
    king = nominal(s, noun("राजा"), bare("the"), described=[bad])
    assert (text(king.direct), text(king.agent())) == ("बूढ़े राजा", "बूढ़े राजा ने")
    assert (king.agreement.plural, king.person.plural) == (True, False)
    assert text(king.subject) == "the old king"


def test_what_is_ones_own():
    s = Speaker(Random(0))
    determiner = own(s, pronominal(s, "I"))
    assert [text(determiner.hindi(a, False)) for a in (MAN, MEN, WOMAN, WOMEN)] == ["अपना", "अपने", "अपनी", "अपनी"]
    assert text(determiner.hindi(MAN, True)) == "अपने"
    owners = [text(own(s, pronominal(s, name)).english) for name in ("I", "we", "you", "You", "he", "she", "they")]
    assert owners == ["my", "our", "your", "your", "his", "her", "their"]
    kinds = {word: text(own(s, nominal(s, noun(word), bare())).english) for word in ("लड़का", "लड़की", "राजा", "गाय")}
    assert kinds == {"लड़का": "his", "लड़की": "her", "राजा": "his", "गाय": "its"}
    assert text(own(s, nominal(s, noun("गाय"), bare(), plural=True)).english) == "their"
