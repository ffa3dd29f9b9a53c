"""What cleaning does to a sentence, which pairs it drops, and what it says about it."""

import pickle
import unicodedata
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import DataConfig
from heedful.data import CleaningReport, Raw, clean
from heedful.data.cleaning import CHANGED, DROPPED, KNOWN_WORDS, REASONS, clean_text
from heedful.errors import DataError


def cleaned(*pairs, **settings):
    return clean([Raw(number, *pair) for number, pair in enumerate(pairs, 1)], "p.tsv", DataConfig(**settings))


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        # French: no-break spaces before marks, a composed accent, a soft hyphen.
        ("Quoi\u00a0? Non\u202f!", "Quoi ? Non !", ("odd spaces",)),
        ("e\u0301te\u0301", "été", ("not NFC",)),
        ("anti\u00adconstitu\u00adtionnel", "anticonstitutionnel", ("invisible characters",)),
        ("cafe\u00ad\u0301", "café", ("invisible characters", "not NFC")),
        # Devanagari: a letter with its dot is two characters in NFC; joiners are spelling.
        ("\u0932\u095c\u0915\u093e", "\u0932\u0921\u093c\u0915\u093e", ("not NFC",)),
        ("\u0928\u093c", "\u0929", ("not NFC",)),
        ("क्\u200dयों\u200b?", "क्\u200dयों ?", ("odd spaces",)),
        ("मैं\u00a0घर", "मैं घर", ("odd spaces",)),
        # Arabic and Persian: marks of direction go, the non-joiner stays.
        ("\u200fمرحبا\u200f \u202bبك\u202c", "مرحبا بك", ("invisible characters",)),
        ("می\u200cروم\u061c", "می\u200cروم", ("invisible characters",)),
        ("\u0627\u0653ب", "\u0622ب", ("not NFC",)),
        # Japanese: the wide space, a voiced mark of its own, a byte order mark inside.
        ("今日\u3000は", "今日 は", ("odd spaces",)),
        ("か\u3099", "が", ("not NFC",)),
        ("今日\ufeffは", "今日 は", ("odd spaces",)),
        # A zero width space, as in Thai and Khmer.
        ("ไป\u200bบ้าน", "ไป บ้าน", ("odd spaces",)),
        # Korean letters in parts.
        ("\u1112\u1161\u11ab", "한", ("not NFC",)),
        # Line ends and marks of the file.
        ("\ufeffa", "a", ("byte order mark",)),
        ("a\r", "a", ("carriage return",)),
        ("\ufeffa\r\r", "a", ("byte order mark", "carriage return")),
        # What stands inside a cell.
        ("a\tb\nc\r\nd", "a b c d", ("odd spaces", "extra spaces")),
        ("a\u2028b\x85c\x1ed", "a b c d", ("odd spaces",)),
        ("  a   b ", "a b", ("extra spaces",)),
        ("a\x00b\x07", "ab", ("control characters",)),
        ("a\x9f \x7f b", "a b", ("control characters", "extra spaces")),
        ("a\ud800b", "ab", ("control characters",)),
        ("\u2066a\u2069 \u2060b", "a b", ("invisible characters",)),
        ("\u00a0\u200b ", "", ("odd spaces", "extra spaces")),
    ],
)
def test_sentences_that_are_changed(before, after, reasons):
    assert clean_text(before) == (after, reasons)
    found = clean([Raw(1, before, before)], "p", DataConfig())
    assert found.sources == found.targets == ([after] if after else [])
    assert found.report.counts == (dict.fromkeys(reasons, 1) if after else {"blank line": 1})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "“Voilà ! C’est l’été…”",
        "मैं घर जाता हूँ। लड़का क्\u200dयों पढ़ता है?",
        "می‌روم ۱۲۳ كِتَابٌ",
        "今日は、暑いですね。「はい」ガ",
        "👩\u200d👩\u200d👧 ❤\ufe0f 🏴\U000e0067\U000e0062\U000e007f",
        "葛\U000e0100 \ue000 \u06dd١ ᠠ\u180eᠡ",
        "\u0378",
    ],
)
def test_sentences_that_stay(text):
    assert clean_text(text) == (text, ())
    assert clean([Raw(1, text, text)], "p", DataConfig()).report.counts.keys() <= {"blank line"}


def test_pairs_that_are_dropped():
    found = cleaned(
        ("good", "好"),
        ("", " "),
        ("a", "\u00a0"),
        ("x" * 31, "y" * 30),
        ("x" * 30, "y" * 9),
        ("ab", "y" * 21),
        ("a", "y" * 20),
        ("ab", "y" * 20),
        max_characters=30,
    )
    assert found.lines == [1, 5, 7, 8]
    assert found.sources == ["good", "x" * 30, "a", "ab"]
    assert found.targets == ["好", "y" * 9, "y" * 20, "y" * 20]
    assert found.report.counts == {"blank line": 1, "empty side": 1, "too long": 1, "length ratio": 1}
    assert (found.report.read, found.report.kept) == (8, 4)


def test_the_ratio_is_a_setting():
    pair = ("x" * 30, "y" * 10)
    assert cleaned(pair, max_ratio=3.0).report.kept == 1
    assert cleaned(pair, max_ratio=2.9).report.counts == {"length ratio": 1}
    assert cleaned(pair[::-1], max_ratio=2.9).report.counts == {"length ratio": 1}


def test_what_is_said():
    report = cleaned(
        ("\ufeffa", "b\r"),
        ("", ""),
        ("c", ""),
        ("d\u00a0!", "e\u00a0!"),
        ("f" * 50, "g"),
        ("h" * 60 + "\u00ad", "i" * 50),
    ).report
    report.drop("duplicate", "q.tsv:7", "मैं", "I")
    assert report.lines() == [
        "read 6 pairs, kept 2",
        "dropped 1 pair: a blank line",
        "  p.tsv:2",
        "dropped 1 pair: an empty side",
        "  p.tsv:3: 'c' → ''",
        "dropped 1 pair: one side is many times as long as the other (data.max_ratio)",
        f"  p.tsv:5: '{'f' * 40}…' → 'g'",
        "dropped 1 pair: repeated (data.duplicates=keep keeps it)",
        "  q.tsv:7: 'मैं' → 'I'",
        "cleaned 1 pair: removed a byte order mark",
        "  p.tsv:1: '\\ufeffa'",
        "cleaned 1 pair: removed a carriage return at the end",
        "  p.tsv:1: 'b\\r'",
        "cleaned 1 pair: removed invisible characters",
        f"  p.tsv:6: '…{'h' * 39}\\xad'",
        "cleaned 1 pair: replaced tabs, no-break and other spaces by plain spaces",
        "  p.tsv:4: 'd\\xa0!'",
    ]
    assert cleaned(("a", "b")).report.lines() == ["read 1 pair"]


def test_three_examples_and_all_counts():
    report = cleaned(*[("a", "")] * 1234).report
    assert report.lines()[1:] == [
        "dropped 1,234 pairs: an empty side",
        *(f"  p.tsv:{i}: 'a' → ''" for i in (1, 2, 3)),
    ]


def test_strict_refuses_all_of_it():
    cleaned(("a", "b"), ("मैं", "I")).report.check_clean()
    report = cleaned(("a", "b"), ("c", ""), ("d ", "e")).report
    with pytest.raises(DataError) as caught:
        report.check_clean()
    first, *lines, last = str(caught.value).splitlines()
    assert "not clean (strict)" in first
    assert lines == report.lines()
    assert "leave out strict" in last
    with pytest.raises(DataError, match="extra spaces"):
        cleaned(("a  b", "c")).report.check_clean()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "empty, expected sentence pairs"),
        ([("", "")] * 2, "only blank lines (2), expected sentence pairs"),
        ([("", ""), ("a", "")], "no pair has both a source and a target (1 have one empty side)"),
        (
            [("a", ""), ("a" * 99, "b")],
            "no sentence pair is left; dropped 1 pair: an empty side; "
            "dropped 1 pair: one side is many times as long as the other (data.max_ratio)",
        ),
    ],
)
def test_nothing_is_left(pairs, words):
    with pytest.raises(DataError) as caught:
        cleaned(*pairs).report.check_not_empty("p.tsv")
    assert str(caught.value) == f"p.tsv: {words}"
    cleaned(*pairs, ("a", "b")).report.check_not_empty("p.tsv")


def test_every_reason_has_its_words():
    assert (*DROPPED, *CHANGED) == REASONS
    report = CleaningReport(100)
    for reason in DROPPED:
        report.drop(reason, "p:1", "a", "b")
    for reason in CHANGED:
        report.change(reason, "p:1", "a", "b")
    assert len(report.lines()) == 1 + 2 * len(REASONS)
    assert report.kept == 100 - len(DROPPED)


def test_a_report_is_plain_data():
    report = cleaned(("a ", "b"), ("", "")).report
    assert CleaningReport(**asdict(report)) == report
    assert pickle.loads(pickle.dumps(cleaned(("a ", "b")))) == cleaned(("a ", "b"))


def test_known_words_do_not_hide_others():
    good, bad = "लड\u093cका", "\u0928\u093c"  # NFC has no letter for the first, and one for the second
    KNOWN_WORDS.clear()
    for _ in range(2):
        assert cleaned((good, "x"), (f"{good} {bad}", "x"), (f"{good} {good}", "x")).sources == [
            good,
            f"{good} \u0929",
            f"{good} {good}",
        ]
    assert good in KNOWN_WORDS
    assert bad not in KNOWN_WORDS


# ---- whatever the text

ODD = "\ufeff\u200b\u200c\u200d\u00a0\u00ad\u200f\u0301\u093c\u0928\u0653\u3099\r\n\t \x00\x85\u2028\u1161\u11ab\ud800"
TEXT = st.text(st.one_of(st.characters(), st.sampled_from(ODD + "abमか\u1112")), max_size=12)


@given(TEXT)
def test_cleaning_twice_changes_nothing_more(text):
    once, reasons = clean_text(text)
    assert clean_text(once) == (once, ())
    assert bool(reasons) == (once != text)


@given(TEXT)
def test_a_clean_sentence_is_what_the_module_says(text):
    found, _ = clean_text(text)
    assert unicodedata.is_normalized("NFC", found)
    assert found == " ".join(found.split())
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in found)
    assert not set(found) & set("\ufeff\u200b\u00ad\u200e\u200f\u2060")


@given(TEXT)
def test_letters_are_not_lost(text):
    """All that is taken out is white space, controls and what cannot be seen."""

    def letters(s):
        return [c for c in unicodedata.normalize("NFD", s) if unicodedata.category(c)[0] in "LMNPS"]

    # Marks may change their order when what stood between them is gone.
    assert sorted(letters(clean_text(text)[0])) == sorted(letters(text))


@given(st.lists(st.tuples(TEXT, TEXT)), st.integers(1, 12), st.integers(1, 5))
def test_nothing_is_lost_silently(pairs, most, size):
    rows = [Raw(number, *pair) for number, pair in enumerate(pairs, 1)]
    config = DataConfig(max_characters=most)
    whole = clean(rows, "p", config)
    report = whole.report
    assert report.read == len(rows) == report.kept + sum(report.counts.get(reason, 0) for reason in DROPPED)
    assert report.kept == len(whole.sources) == len(whole.targets) == len(whole.lines)
    for line, x, y in zip(whole.lines, whole.sources, whole.targets, strict=True):
        assert (x, y) == tuple(clean_text(side)[0] for side in pairs[line - 1])
    changed = {reason for line in whole.lines for side in pairs[line - 1] for reason in clean_text(side)[1]}
    assert changed == report.counts.keys() & CHANGED.keys()
    # In parts, by several processes, it is the same.
    total, sources = CleaningReport(), []
    for begin in range(0, len(rows), size):
        part = clean(rows[begin : begin + size], "p", config)
        total.add(part.report)
        sources += part.sources
    assert (total, sources) == (report, whole.sources)
