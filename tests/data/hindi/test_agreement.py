"""Hindi grammar looked for in the sentences themselves, with lists of words and not with the rules that made them."""

import re
from itertools import pairwise

import pytest
from hindi_forms import ADJECTIVES, NOUNS, VERBS
from hindi_readings import AUXILIARIES, modifier_readings, noun_readings, perfectives
from hindi_sample import sample

from heedful.data.hindi.lexicon import lexicon

NAMES = {n.hindi for n in lexicon().names}
JOINS = re.compile(" (?:और|लेकिन|क्योंकि|इसलिए|कि|तो|तब|अगर|जब|जो|जिस|जिन)(?= )")  # where another clause may begin
NOT = {"नहीं"}
POSTPOSITIONS = {"ने", "को", "से", "में", "पर", "का", "के", "की"}
TIMES = {("शाम", "को"), ("रात", "को"), ("ध्यान", "से")}
DATIVES = {"को", "मुझे", "हमें", "तुम्हें", "आपको", "उसे", "उन्हें", "किसे"}
BACK = {"वह", "वे", "उसे", "उन्हें", "उसने", "उन्होंने"}  # what जो is taken up by
AGENTS = {"ने", "मैंने", "हमने", "तुमने", "आपने", "उसने", "उन्होंने", "किसने"}


def sentences():
    return [x.hindi for x in sample("train")]


def clauses():
    """The pieces between joining words, as lists of words; a piece may be less than a clause, never more."""
    for sentence in sentences():
        for piece in JOINS.split(f" {sentence} "):
            if words := piece.split():
                yield words


def neighbours(*sets):
    """All runs of neighbouring words that are in these sets."""
    for sentence in sentences():
        words = sentence.split()
        for i in range(len(words) - len(sets) + 1):
            run = words[i : i + len(sets)]
            if all(word in allowed for word, allowed in zip(run, sets, strict=True)):
                yield run, sentence


def test_participles_agree_with_their_auxiliaries():
    participles = {"रहा": {"m1"}, "रहे": {"m2"}, "रही": {"f1", "f2"}}
    for verb in VERBS.values():
        for form, reading in zip(verb.habitual, ({"m1"}, {"m2"}, {"f1", "f2"}), strict=True):
            participles[form] = reading
    participles |= {f: r for f, r in perfectives().items() if f not in noun_readings() and f not in modifier_readings()}
    seen = set()
    for (one, other), sentence in neighbours(participles, AUXILIARIES):
        assert participles[one] & AUXILIARIES[other], sentence
        seen.add(other)
    assert {"हूँ", "है", "हैं", "हो", "था", "थे", "थी", "थीं"} <= seen


def test_a_participle_before_an_auxiliary_has_no_plural_of_its_own():
    ending = re.compile("(?<!नह)(ीं|ईं) (हूँ|है|हैं|हो|था|थे|थी|थीं)( |$)")
    assert not [s for s in sentences() if ending.search(s)]
    assert any(re.search("(?<!नह)(ीं|ईं)( |$)", s) for s in sentences())


LAST = {  # the verb that may end a clause after these words
    "मैं": r"हूँ|था|थी|.*(ूँ|ऊँ)(गा|गी)",
    "हम": r"हैं|थे|.*(ें|एँ|हों)गे",
    "तुम": r"हो|थे|थीं|.*(ो|ओ)(गे|गी)",
    "आप": r"हैं|थे|थीं|.*(ें|एँ|हों)(गे|गी)",
    "वे": r"हैं|थे|थीं|.*(ें|एँ|हों)(गे|गी)",
    "वह": r"है|था|थी|.*(े|ए|हो)(गा|गी)",
    "कौन": r"है|था|.*(े|ए|हो)गा",
}
FINITE = re.compile("हूँ|हैं?|हो|था|थे|थीं?|.*(गा|गे|गी)")
ENDS = {"मैं": (0, 2), "हम": (1,), "तुम": (1, 3), "आप": (1, 3), "वे": (1, 3), "वह": (0, 2), "कौन": (0,)}


@pytest.mark.parametrize("pronoun", LAST)
def test_verbs_agree_with_pronouns(pronoun):
    """Without ने and को the verb has the subject's person, number and gender."""
    allowed = {verb.perfective[i] for verb in VERBS.values() for i in ENDS[pronoun]}
    seen = 0
    for words in clauses():
        if words[0] == pronoun and len(words) > 2 and not AGENTS & set(words):
            if not FINITE.fullmatch(words[-1]) and words[-1] not in perfectives():
                continue  # the clause goes on behind a joining word
            assert words[-1] in allowed or re.fullmatch(LAST[pronoun], words[-1]), words
            seen += 1
    assert seen > 10


def test_verbs_agree_with_two_together():
    """राम और सीता आए, गीता और सीता आईं: feminine only if both are."""
    women, seen = {n.hindi for n in lexicon().names if n.feminine}, set()
    for sentence in sentences():
        one, join, other, *rest = sentence.split() if sentence.count(" ") > 3 else (sentence, "", "")
        words = JOINS.split(f" {' '.join(rest)} ")[0].split()
        if not {one, other} <= NAMES or join != "और" or len(words) < 2 or words[0] in {"ने", "को", "के"}:
            continue
        verb = words[-2] if words[-1] == "हैं" else words[-1]
        if verb.endswith(("े", "ी", "ीं", "ए", "ई", "ईं")) and verb not in NOT and verb not in NOUNS:
            feminine = {one, other} <= women
            assert verb.endswith(("ी", "ीं", "ई", "ईं")) == feminine or len(ADJECTIVES.get(verb, ())) == 1, sentence
            seen.add(feminine)
    assert seen == {True, False}


def test_what_follows_नहीं_is_a_verb():
    verbs = {*AUXILIARIES, *VERBS, *(form for verb in VERBS.values() for form in verb.forms)}
    after = {sentence.split()[i + 1] for sentence, i in denied()}
    assert after <= verbs
    assert len(after) > 200


def denied():
    """Where नहीं stands, in every sentence that has it; something has to follow."""
    for sentence in sentences():
        words = sentence.split()
        assert words[-1] not in NOT, sentence
        yield from ((sentence, i) for i, word in enumerate(words) if word in NOT)


def test_what_stands_before_a_postposition_is_oblique():
    readings, others, seen = noun_readings(), set(), 0
    for sentence in sentences():
        words = sentence.split()
        for one, other in pairwise(words):
            if other not in POSTPOSITIONS or (one, other) in TIMES or one in NAMES:
                continue
            if other == "की" and not readings.get(one, set()) & {"mo", "mO", "fo", "fO"}:
                continue  # पढ़ाई की, साफ़ की, नहीं की: that is a verb
            if one in readings:
                assert {r[1] for r in readings[one]} & {"o", "O"}, sentence
                seen += 1
            else:
                others.add(one)
    assert not others
    assert seen > 5000


def test_what_stands_before_a_noun_agrees_with_it():
    """बड़े घर में, मेरी किताब, राम के भाई को: gender, number and case."""
    modifiers, nouns = modifier_readings(), noun_readings()
    found = list(neighbours(modifiers, nouns))
    for (one, other), sentence in found:
        # घर stands alone where one goes, in the oblique: अपने घर.
        assert modifiers[one] & nouns[other], sentence
    for (one, other), sentence in neighbours(modifiers, modifiers):
        assert modifiers[one] & modifiers[other], sentence
    for (one, noun, _), sentence in neighbours(modifiers, nouns, {"ने", "को", "से", "में", "पर"}):
        assert modifiers[one] & nouns[noun] & {"mo", "mO", "fo", "fO"}, sentence
    assert {one for (one, _), _ in found} >= {"का", "के", "की", "मेरा", "मेरे", "मेरी", "अपना", "बड़ा", "नई", "कितने"}


def test_where_one_goes_is_oblique_without_a_postposition():
    """अच्छे गाँव गया, मेरे घर आओ."""
    going = {form for stem in ("जा", "आ", "लौट") for form in (stem, *VERBS[stem].forms)}
    goals = {n.hindi for n in lexicon().tagged("goal", "home")}
    found = list(neighbours(modifier_readings(), goals, going))
    for (one, noun, _), sentence in found:
        assert modifier_readings()[one] & noun_readings()[noun] & {"mo", "mO", "fo", "fO"}, sentence
    assert len(found) > 50


def test_he_and_she_can_be_told_apart():
    """Nothing but the verb or the adjective says who वह is, where nobody was spoken of before."""
    shows = {form: r for form, r in perfectives().items() if {g[0] for g in r} != {"m", "f"}}
    shows |= {form: r for form, r in modifier_readings().items() if form not in ("का", "के", "की")}
    shows |= {form: {"m1"} for verb in VERBS.values() for form in (verb.habitual[0], "रहा")}
    shows |= {form: {"f1"} for verb in VERBS.values() for form in (verb.habitual[2], "रही")}
    seen = 0
    for x in sample("train"):
        words = JOINS.split(f" {x.hindi} ")[0].split()
        words = words[1:] if words[:1] == ["क्या"] else words
        assert words[:1] not in (["उसे"], ["उसने"], ["उसके"]), x
        if words[:1] == ["वह"] and re.match("(He|She) |[A-Z][a-z]+(n't)? (he|she) ", x.english) and len(words) > 1:
            last = [w for w in words[-3:] if w not in NOT]
            verb = last[-2] if last[-1] == "है" else last[-1]
            assert verb in shows or verb.endswith(("था", "थी", "गा", "गी")), x
            seen += 1
    assert seen > 300


def test_के_stands_before_साथ_and_पास():
    before = {w[0] for w, _ in neighbours(re_words("(का|के|की|मेर.*|हमार.*|.*का|.*के|.*की|तुम्हार.*)"), {"साथ", "पास"})}
    assert before >= {"के", "मेरे", "हमारे", "तुम्हारे", "आपके", "उनके"}
    assert all(word.endswith("े") for word in before)


def re_words(pattern):
    """The words that a pattern fits."""
    return {word for sentence in sentences() for word in sentence.split() if re.fullmatch(pattern, word)}


def test_pronouns_grow_together_with_their_case():
    apart = re.compile("(^| )(मैं|मुझ|मेरा|हम|तुम|आप|वह|उस|वे|उन|कौन|किस|जो) (ने|को|से|का|के|की|में|पर)( |$)")
    assert not [s for s in sentences() if apart.search(s)]


def test_after_ने_the_verb_agrees_with_its_object():
    nouns, seen = noun_readings(), 0
    for words in clauses():
        if not AGENTS & set(words) or BACK & set(words[1:]):
            continue
        tail = words[:-1] if words[-1] in AUXILIARIES else words
        if tail[-1] not in perfectives() or len(tail) < 3:
            continue
        agrees = perfectives()[tail[-1]]
        agrees = agrees & AUXILIARIES[words[-1]] if len(tail) < len(words) else agrees
        before = tail[-2] if tail[-2] not in NOT else tail[-3]
        if before in DATIVES:
            assert "m1" in agrees, words
            seen += 1
        elif before in nouns and nouns[before] & {"m1", "m2", "f1", "f2"}:
            assert agrees & nouns[before], words
            seen += 1
    assert seen > 500


def test_what_one_has_to_do_agrees_with_its_object():
    """मुझे किताबें पढ़नी हैं, उसे केले काटने पड़े."""
    infinitives = {
        form: reading
        for verb in VERBS.values()
        for form, reading in zip(verb.infinitive, ({"m1"}, {"m2"}, {"f1", "f2"}), strict=True)
    }
    for going in ("जाना", "आना", "लौटना"):  # दुकान जाना है: where one goes is no object
        del infinitives[going]
    duties = {f: r for f, r in perfectives().items() if f.startswith("पड़")}
    duties |= {"पड़ेगा": {"m1"}, "पड़ेंगे": {"m2"}, "पड़ेगी": {"f1"}, "पड़ेंगी": {"f2"}, "चाहिए": {"m1", "m2", "f1", "f2"}}
    duties |= {"है": {"m1", "f1"}, "हैं": {"m2", "f2"}}
    nouns, seen = noun_readings(), 0
    for words in clauses():
        if len(words) < 4 or words[-1] not in duties or words[-2] not in infinitives:
            continue
        agrees = infinitives[words[-2]] & duties[words[-1]]
        before = words[-3] if words[-3] not in NOT else words[-4]
        if before in nouns and not before.endswith(("ओं", "ों")):
            assert agrees & nouns[before], words
            seen += 1
    assert seen > 300


def test_what_is_said_of_a_noun_agrees_with_it():
    """दीवार ऊँची थी, राजा भूखे हैं."""
    nouns, modifiers, seen = noun_readings(), modifier_readings(), 0
    for words in clauses():
        while len(words) > 1 and words[-2] in NOT:
            words = [*words[:-2], words[-1]]
        if len(words) == 3 and words[0] in nouns and words[1] in modifiers and words[2] in AUXILIARIES:
            assert nouns[words[0]] & modifiers[words[1]] & AUXILIARIES[words[2]], words
            seen += 1
    assert seen > 100


def test_one_of_subject_and_object_has_को():
    """Not उसे मुझे ढूँढ़ना है, nor राम को सीता को देखना पसंद है: who looks for whom would be open."""
    infinitives = {form for verb in VERBS.values() for form in verb.infinitive}
    duties = {"चाहिए", "पसंद", "है", "हैं", *(f for f in perfectives() if f.startswith("पड़"))}
    duties |= {"पड़ेगा", "पड़ेंगे", "पड़ेगी", "पड़ेंगी"}
    seen = 0
    for words in clauses():
        if BACK & set(words[1:]):
            continue  # जिस चिड़िया को खेलना है उसे …: two clauses
        # शाम को and रात को say when.
        datives = [w for one, w in pairwise(["", *words]) if w in DATIVES and (one, w) not in TIMES]
        if any(one in infinitives and other in duties for one, other in pairwise(words)) and datives:
            assert len(datives) == 1, words
            seen += 1
    assert seen > 500


def test_those_who_are_respected_are_spoken_of_in_the_plural():
    """माँ सो रही हैं, अध्यापक आए: one of them, and a verb for many."""
    respected = {"राजा", "पिता", "अध्यापक", "रानी", "माँ", "दादी"}
    assert respected == {n.hindi for n in lexicon().tagged("respect")}
    owners = re_words("मेर.*|हमार.*|तुम्हार.*|आपक.*|उनक.*")
    seen = set()
    for words in clauses():
        first, *rest = words[1:] if words[0] in owners and len(words) > 1 else words
        ends = [w for w in rest if w in AUXILIARIES]
        two_clauses = BACK & set(rest)
        if first in respected and ends and rest[0] not in POSTPOSITIONS and not two_clauses:
            assert AUXILIARIES[ends[0]] & {"m2", "f2"}, words
            seen.add(first)
    assert seen == respected


def test_sweets_are_made_and_not_cooked():
    cooked = {"पका", *VERBS["पका"].forms}
    made = {"बना", *VERBS["बना"].forms}
    sweets = [s for s in sentences() if "मिठाई" in s]
    assert any(re.search(f"मिठाई (नहीं )?({'|'.join(made)})", s) for s in sweets)
    assert not [s for s in sweets if re.search(f"मिठाई(याँ|यों)? (नहीं )?({'|'.join(cooked)})( |$)", s)]
    assert not [s for s in sentences() if re.search("(^| )थक(ा|े|ी) (?!हु(आ|ए|ई)( |$))", s)]
