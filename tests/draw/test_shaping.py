"""Lines in runs, each of one script, one font and one direction, in the order in which they are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from heedful.draw.fonts import Face, script_of
from heedful.draw.shaping import bidi_levels, text_runs, visual_order

LATIN = [*range(0x20, 0x250), *range(0x370, 0x530), 0x2026]
DIGITS = [ord(c) for c in " '0123456789"]


def face(name: str, *codes: int) -> Face:
    return Face(Path(f"/{name}.ttf"), name, frozenset(codes))


PLAIN = face("plain", *LATIN)
FACES = {
    "LATIN": PLAIN,
    "CYRILLIC": PLAIN,
    "DEVANAGARI": face("deva", *range(0x900, 0x980), *DIGITS),
    "ARABIC": face("arab", *range(0x600, 0x700), 0x20),
    "HEBREW": face("hebr", *range(0x590, 0x600), *DIGITS),
    "CJK": face("wide", *range(0x3000, 0xA000), *LATIN, *range(0xFF00, 0xFFF0)),
    "EMOJI": face("emoji", *range(0x1F000, 0x20000), 0x2764),
}
FACES |= {"HIRAGANA": FACES["CJK"], "KATAKANA": FACES["CJK"]}
LINES = (
    *("hardly looked at 'का', 'कुत्ता', 'हैं' and 17 more", "लेकिन 12 % है। ok", "'लेकिन'"),
    *("at 'مرحبا', 'كتاب' (12) end", "\u2068كتاب iPhone ١٢ جديد!\u2069 x", "שלום كتاب a"),
    *("weight of 家東, 2020年。 at 'ありがとう' カタカナー", "a👨\u200d👩\u200d👧b ❤️ क्\u200cष Привет, é e\u0301"),
)


def split(text: str) -> list[tuple[str, str]]:
    faces = {c: FACES.get(script_of(c), PLAIN) for c in text if not c.isspace() and c not in "\u2068\u2069\u200d\u200c"}
    return [(run.text, run.face.family) for run in text_runs(text, faces, PLAIN)]


@pytest.mark.parametrize("line", LINES)
def test_no_letter_is_without_a_glyph(line: str) -> None:
    by_name = {f.family: f for f in FACES.values()}
    found = split(line)
    for text, family in found:
        seen = [c for c in text if c not in "\u200d\u200c\ufe0f" and c != "\u0301"]
        assert all(ord(c) in by_name[family].characters or (c == " " and family == "emoji") for c in seen), text
        assert len({script_of(c) for c in text if c.isalpha()} - {"LATIN", "COMBINING"}) <= 1, text
    assert sorted("".join(t for t, _ in found)) == sorted(line.replace("\u2068", "").replace("\u2069", ""))


def test_a_word_is_one_run_with_its_marks_and_quotes() -> None:
    assert split("look at 'का', 'कुत्ता' more") == [
        *(("look at '", "plain"), ("का'", "deva"), (",", "plain"), (" 'कुत्ता' ", "deva"), ("more", "plain")),
    ]
    assert split("'हैं' 12") == [("'हैं' 12", "deva")]
    assert split("2020年。 ok") == [("2020年。 ", "wide"), ("ok", "plain")]
    assert split("क्\u200cष") == [("क्\u200cष", "deva")]
    assert split("x👨\u200d👩\u200d👧!") == [("x", "plain"), ("👨\u200d👩\u200d👧", "emoji"), ("!", "plain")]
    assert split("12 %") == [("12 %", "plain")]


def test_one_font_of_two_scripts_is_still_two_runs() -> None:
    both = face("both", *LATIN, *range(0x900, 0x980))
    found = text_runs("at लेकिन!", dict.fromkeys("at लेकिन!", both), both)
    assert [(run.text, run.script) for run in found] == [("at ", "LATIN"), ("लेकिन!", "DEVANAGARI")]


def test_right_to_left_runs_stand_as_they_are_seen() -> None:
    assert split("ab مرحبا 12 cd") == [("ab ", "plain"), ("12", "plain"), ("مرحبا ", "arab"), (" cd", "plain")]
    assert [t for t, _ in split("\u2068كتاب Mac جديد\u2069 is")] == [" جديد", "Mac", "كتاب ", " is"]
    assert [t for t, _ in split("\u2068אב\u2069, \u2068גד\u2069")] == ["אב", ", ", "גד"]  # isolates keep their order


def test_levels_by_hand() -> None:
    # Worked by UAX #9, for a line that begins at the left.
    for text, wanted in (
        ("a 1", "000"),
        ("אב", "11"),
        ("א 1-2", "11222"),  # a sign inside a number
        ("א 5%", "1122"),
        ("م 1-2", "11212"),  # after Arabic it is none
        ("א, a", "1000"),
        ("א, ב", "1111"),
        ("(א) ב", "01001"),  # both brackets go with the line
        ("ב (א)", "11111"),
        ("א (a) ב", "1000001"),
        ("א\u05b0", "11"),
        ("a\u2068א!\u2069b", "001100"),
        ("a\u2068b\u2069א", "00201"),
        ("\u2067a\u2069", "020"),
    ):
        assert "".join(map(str, bidi_levels(text))) == wanted, text


def test_order_is_turned_level_by_level() -> None:
    assert visual_order("abCDef", [0, 0, 1, 1, 0, 0]) == list("abDCef")
    assert visual_order("AB12C", [1, 1, 2, 2, 1]) == list("C12BA")
    assert visual_order("", []) == []
