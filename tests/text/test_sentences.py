"""A text into its sentences, and a long sentence into parts."""

import math
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.text import graphemes
from heedful.text.graphemes import LONGEST, boundary_after, boundary_before, is_boundary
from heedful.text.segments import cut, split

# Each text is written with | where one sentence ends and the next begins; the white space around it is the text's own.
WHOLE = [
    # English
    "Hello there. |How are you? |Fine!",
    "Pi is 3.14 and e is 2.718. |Both are numbers.",
    "Mr. Smith met Dr. Jones, Prof. Rao and Mrs. Lee. |They talked.",
    "Use a fruit, e.g. an apple, i.e. something sweet. |Or E.g. Apples.",
    "We bought pens, paper, etc. and left. |It was late.",
    "We bought pens, paper, etc. |Then we left.",
    "J. Smith and J. R. R. Tolkien wrote. |We read.",
    "The U.S. economy grew. |The U.S. Army too.",
    "He lives in the U.S. |She does not.",
    "It closed at 5 p.m. |The shop was dark.",
    "She has a Ph.D. in physics. |I do not.",
    "See https://example.org/a.b?c=d!e for more. |Or write to j.doe@example.org. |Please.",
    "It is on example.com. |Look there.",
    "I waited... and waited. |Then... |Nothing.",
    "I waited… and waited. |Then… |Nothing.",
    "Well . . . |That was it. . . |Was it?",
    '"Are you coming?" he asked. |"No!" she said. |"Why?" |"Because."',
    'He said "no." |Then he left (at last). |(We stayed.) |Good.',
    "What?! |Really?!! |Yes.",
    "hi! |how are you? |fine. thanks",
    "It grew by 5%.[1] |It fell by 3.[2][3] |Why?",
    "See No. 5 and Fig. 3 on p. 12. |No. |I mean it.",
    "On Jan. 5 he left. |He came in May.",
    "1. Open the box. |2. Take it out. |3.2. Close it. |IV. Done.",
    "Vitamin C. |The other is D. |They help.",
    "World War I. |It was long.",
    "He saw me. |Then he went on. |So did I.",
    "...and then it ended. |Good.",
    "- Yes. |- No.",
    "Version 2.0. |New things.",
    "Smith et al. (2020) agree. |We do not.",
    "Wait!...What? |Nothing.",
    "One.two three. |Four.",
    # German
    "Das kostet z. B. 5 Euro. |Am 3. Oktober kommt Dr. Meier. |Gut.",
    "Das ist z.B. Peter, d.h. Hans bzw. Karl usw. |Und so weiter.",
    "„Komm her!“, sagte er. |„Nein.“ |Sie ging. |»Was?« fragte sie.",
    "Im 19. Jahrhundert war es so. |Er wurde 1990. |Meister.",
    # French
    "M. Dupont et Mme Durand sont là. |« Bonjour ! » dit-il. |« Quoi ? » |Il part.",
    "C'est vrai\u00a0? |Oui\u00a0!",
    # Spanish, Italian
    "El Sr. García no vino. |¿Por qué? |¡No lo sé! |La Sra. López tampoco.",
    "Il Sig. Rossi è qui. |Bene!",
    # Russian, Greek
    "А. С. Пушкин родился в Москве. |Он писал стихи, т. е. поэт. |Да!",
    "Τι κάνεις\u037e |Καλά.",
    # Hindi and its neighbours
    "वह घर गया। |फिर वह सो गया॥ |क्यों? |पता नहीं।",
    "वह गया।|वह आया।|वह सोया",
    "डॉ. सिंह और श्री. राव आए। |ए. पी. जे. अब्दुल कलाम आए।",
    "मूल्य 3.14 रुपये है। |ठीक है.",
    "वह गया. |फिर आया.",
    "धर्मक्षेत्रे कुरुक्षेत्रे ॥१॥ |सञ्जय उवाच ॥ २ ॥ |अन्त",
    "সে গেল। |সে এল।",
    # Chinese and Japanese
    "你好。|我很好！|你呢？|好的",
    "他说：“你好。”然后走了。|我也走了。",
    "行きますか？|はい。|「行くの？」と言った。|「はい。」|「いいえ。」",
    "値は３．１４です。|本当?|はい!|そう……だね。",
    # Arabic, Urdu, Persian
    "كيف حالك؟ |أنا بخير. |شكرا!",
    "وہ گیا۔ |وہ آیا۔ |کیوں؟",
    # Armenian, Amharic, Georgian, Khmer, Burmese, Korean
    "Նա գնաց։ |Նա եկավ։",
    "ሄደ። |መጣ።|ተኛ።",
    "ის წავიდა. |ის მოვიდა.",
    "គាត់ទៅ។ |គាត់មក។",
    "သူသွား။ |သူလာ။",
    "그는 갔다. |그는 왔다. |왜?",
    # Thai has no marks
    "เขาไป เขามา",
    # no end, and only marks
    "no end at all",
    "...",
    "? ! ?",
    "😀",
]


@pytest.mark.parametrize("marked", WHOLE)
def test_sentences_of_many_languages(marked: str) -> None:
    text = marked.replace("|", "")
    assert [text[a:b] for a, b in split(text)] == [part.strip() for part in marked.split("|")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\u2029", "\x0b", "\f", "\x85", "\n \n\t\n"])
def test_a_line_break_always_ends_a_sentence(end: str) -> None:
    text = f" Mr.{end}a b,{end}cd. D "
    assert [text[a:b] for a, b in split(text)] == ["Mr.", "a b,", "cd.", "D"]


@pytest.mark.parametrize("text", ["", " ", "\n\r\n \t", "\u3000\u00a0\u2028"])
def test_white_space_has_no_sentences(text: str) -> None:
    assert split(text) == []


MARKS = ".!?…।॥。！？؟۔։።,;:—，、 \n\t\u00a0\u3000\"'()«»“”「」"
WORDS = "... Mr. e.g. U.S. 3.14 J. A b Wort डॉ. क्षि e\u0301 👩🏽\u200d🚀 🇮🇳 \ud83d \u0301 \u200d 한 각 漢字 ä 1 [1]"
PIECES = st.sampled_from([*MARKS, *WORDS.split(), "\r\n"])
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)
quick = settings(max_examples=300, deadline=None)


def hold(text: str, spans: list[tuple[int, int]], start: int = 0, end: int | None = None) -> None:
    """Spans are in order, apart and not empty, and leave out white space only: put back, they give the text."""
    end = len(text) if end is None else end
    gaps = [start, *(place for span in spans for place in span), end]
    assert gaps == sorted(gaps)
    assert all(a < b and not text[a].isspace() and not text[b - 1].isspace() for a, b in spans)
    between = [text[a:b] for a, b in zip(gaps[::2], gaps[1::2], strict=True)]
    assert all(not gap.strip() for gap in between)
    parts = [text[a:b] for a, b in spans]
    together = between[0] + "".join(part + gap for part, gap in zip(parts, between[1:], strict=True))
    assert together == text[start:end]


@quick
@given(TEXTS)
@example("a. B")
def test_nothing_is_lost_between_sentences(text: str) -> None:
    spans = split(text)
    hold(text, spans)
    assert bool(spans) == bool(text.strip())
    assert all(len(text[a:b].splitlines()) == 1 for a, b in spans)


@quick
@given(TEXTS)
def test_a_sentence_is_one_sentence(text: str) -> None:
    """Lines are independent of each other."""
    for line in text.splitlines():
        alone = split(line)
        assert [line[a:b] for a, b in alone] == [f"{line}\nX"[a:b] for a, b in split(f"{line}\nX")][:-1]


# ---- cutting


def parts(text: str, fits) -> list[str]:
    return [text[a:b] for a, b in cut(text, 0, len(text), fits)]


def at_most(n: int):
    return lambda part: len(part) <= n


def test_what_fits_is_not_cut() -> None:
    assert cut("a, b; c", 0, 7, at_most(7)) == [(0, 7)]
    assert cut("  a b ", 0, 6, at_most(3)) == [(2, 5)]
    assert cut("   ", 0, 3, at_most(1)) == []


def test_the_last_clause_mark_that_fits_comes_before_white_space() -> None:
    assert parts("one, two; three four five", at_most(18)) == ["one, two;", "three four five"]
    assert parts("one two three four", at_most(9)) == ["one two", "three", "four"]
    assert parts("a — b — c d e f", at_most(9)) == ["a — b —", "c d e f"]
    assert parts('He said "one," then left it', at_most(22)) == ['He said "one,"', "then left it"]
    assert parts("राम आया। श्याम गया और", at_most(15)) == ["राम आया।", "श्याम गया और"]
    assert parts("一二三，四五六、七八九十", at_most(9)) == ["一二三，四五六、", "七八九十"]


def test_a_mark_inside_a_number_or_an_address_is_none() -> None:
    assert parts("it is 1,000,000 or 12:30:15 now", at_most(14)) == ["it is", "1,000,000 or", "12:30:15 now"]


def test_a_mark_may_stand_right_at_the_limit() -> None:
    assert parts("abc, defg", at_most(4)) == ["abc,", "defg"]
    assert parts("abc defg", at_most(4)) == ["abc", "defg"]


def test_without_white_space_it_is_cut_between_characters() -> None:
    assert parts("abcdefgh", at_most(3)) == ["abc", "def", "gh"]
    assert parts("कीकीकी", at_most(3)) == ["की"] * 3
    assert parts("क्षक्ष", at_most(5)) == ["क्ष"] * 2
    assert parts("e\u0301e\u0301", at_most(3)) == ["e\u0301"] * 2
    assert parts("👩🏽‍🚀👩🏽‍🚀", at_most(5)) == ["👩🏽‍🚀"] * 2
    assert parts("🇮🇳🇫🇷🇩🇪", at_most(3)) == ["🇮🇳", "🇫🇷", "🇩🇪"]
    assert parts("\ud83d\ude00" * 2, at_most(3)) == ["\ud83d\ude00"] * 2
    assert parts("a\u00a0b c", at_most(3)) == ["a\u00a0b", "c"]


def test_what_fits_nowhere_is_a_part_all_the_same() -> None:
    assert parts("की ab", lambda part: False) == ["की", "a", "b"]
    assert parts("aaXa", lambda part: "X" not in part) == ["aa", "X", "a"]


@quick
@given(TEXTS, st.integers(1, 30), st.data())
def test_every_part_fits_and_nothing_is_lost(text: str, n: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    spans = cut(text, start, end, at_most(n))
    hold(text, spans, start, end)
    for a, b in spans:
        assert b - a <= n or min(boundary_after(text, a + 1, a), end) == b
    for (_, b), (a, _) in pairwise(spans):
        assert is_boundary(text, b, start)
        assert is_boundary(text, a, start)


@quick
@given(st.text("ab, ।की", max_size=60), st.integers(0, 6))
def test_a_measure_that_is_not_monotonous_is_kept_to(text: str, n: int) -> None:
    """A tokenizer may need fewer tokens for more characters."""

    def fits(part: str) -> bool:
        return len(part.replace("ab", "")) <= n

    spans = cut(text, 0, len(text), fits)
    hold(text, spans)
    assert all(fits(text[a:b]) or boundary_after(text, a + 1, a) == b for a, b in spans)


@pytest.mark.parametrize("text", ["word " * 2000, "a" * 10_000, "a, " * 3000, "की" * 5000])
def test_few_questions_are_asked(text: str) -> None:
    calls = 0

    def fits(part: str) -> bool:
        nonlocal calls
        calls += 1
        assert len(part) <= 500  # never anything near the whole
        return len(part) <= 100

    found = cut(text, 0, len(text), fits)
    assert calls <= len(found) * (2 * math.log2(100) + 4)


# ---- characters


@quick
@given(TEXTS)
def test_boundaries_are_found_from_both_sides(text: str) -> None:
    places = [i for i in range(len(text) + 1) if is_boundary(text, i)]
    assert places[0] == 0
    assert places[-1] == len(text)
    for i in range(len(text) + 1):
        assert boundary_after(text, i) == min(p for p in places if p >= i)
        assert boundary_before(text, i) == max(p for p in places if p <= i)


@settings(max_examples=500, deadline=None)
@given(TEXTS.map(lambda t: "".join(c for c in t if unicodedata.category(c) not in ("Cn", "Cs", "Co"))))
def test_no_cluster_of_unicode_is_parted(text: str) -> None:
    regex = pytest.importorskip("regex")
    clusters = {0, *(m.end() for m in regex.finditer(r"\X", text))}
    assert {i for i in range(len(text) + 1) if is_boundary(text, i)} <= clusters


def test_letters_of_hangul_stay_together() -> None:
    assert [is_boundary("\u1112\u1161\u11ab가\u11a8각나", i) for i in range(1, 7)] == [
        False,
        False,
        True,
        False,
        True,
        True,
    ]


# ---- texts without boundaries

HOSTILE = {
    "joined emoji": "👩\u200d" * 9_999,
    "marks": "a" + "\u0301" * 19_999,
    "flags": "🇮🇳" * 10_000,
    "half flags": "a" + "🇮" * 19_999,
    "virama": "क्" * 10_000,
    "prepended": "\u0600" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_cluster_without_end_is_cut_all_the_same(name: str) -> None:
    text, most = HOSTILE[name], 0

    def fits(part: str) -> bool:
        nonlocal most
        most = max(most, len(part))
        return len(part) <= 500

    spans = cut(text, 0, len(text), fits)
    hold(text, spans)
    assert all(end - start <= 500 for start, end in spans), "a part is longer than what fits"
    assert len(spans) <= 50, "parts are much shorter than what fits"
    assert most <= 2_500, "nothing near the whole is tokenized for a part"


@pytest.mark.parametrize("name", HOSTILE)
def test_boundaries_are_found_in_linear_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, steps = HOSTILE[name], 0

    def counted(character: str) -> int:
        nonlocal steps
        steps += 1
        return ord(character)

    monkeypatch.setattr(graphemes, "ord", counted, raising=False)
    pieces = graphemes.whole(text, ((i, i + 1) for i in range(0, len(text), 3)))
    assert steps < 200 * len(text), f"{steps / len(text):.0f} steps for each character"
    assert max(map(len, pieces)) <= len(text)
    steps = 0
    cut(text, 0, len(text), at_most(300))
    assert steps < 2_000 * len(text), f"{steps / len(text):.0f} steps for each character"


def test_flags_are_cut_between_flags() -> None:
    text = HOSTILE["flags"]
    assert all(start % 2 == end % 2 == 0 for start, end in cut(text, 0, len(text), at_most(501)))


def test_a_usual_cluster_is_never_parted() -> None:
    letter = "e" + "\u0301" * (LONGEST - 1)
    assert parts(letter * 3, at_most(10)) == [letter] * 3
