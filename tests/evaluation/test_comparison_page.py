"""The page of two systems side by side: all that it should say, and nothing that a sentence could do to it."""

import json
from xml.dom import minidom

from heedful.evaluation.compare import ComparedSentence, SystemComparison, comparison_page
from heedful.metrics import compare_stats, extract_stats

OUTPUTS = ["the cat <b>sat</b> on it", "मैं घर जाता हूँ", "same"], ["the cat lay on it", "मैं घर गया", "same"]
REFERENCES = ["the cat lay on it", "मैं घर जाता हूँ", "same"]


def made(notes=("BLEU: x", "seed 1")):
    first, second = (extract_stats(outputs, REFERENCES) for outputs in OUTPUTS)
    found = compare_stats(first, second)
    shown = tuple(
        ComparedSentence(
            f"t.tsv:{i + 1}",
            "<script>alert(1)</script>",
            (REFERENCES[i], "or \u202eso"),
            OUTPUTS[0][i],
            OUTPUTS[1][i],
            *(float(side[i]) for side in (found.first, found.second)),
        )
        for i in found.order()
        if i != 2
    )
    return SystemComparison("a & b", "m<2>", "t.tsv", found, shown, notes)


def test_the_page_is_whole_and_safe():
    page = comparison_page(made())
    minidom.parseString(page)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "A: a &amp; b" in page
    assert "default-src" in page


def test_the_page_says_what_was_found():
    page = comparison_page(made())
    assert "By chrF of single sentences, A is better in 1, B in 1, and 1 are equal." in page
    assert "no significant difference, p = 1.000" in page
    assert page.index("t.tsv:1") < page.index("t.tsv:2")
    assert "the cat <mark>&lt;b&gt;sat&lt;/b&gt;</mark> on it" in page
    assert "the cat <mark>lay</mark> on it" in page
    assert "मैं घर <mark>जाता हूँ</mark>" in page
    assert "BLEU: x<br/>seed 1" in page
    assert page.count("<article>") == 2
    assert page.count(">reference<") == 4


def test_the_record():
    plain = json.loads(json.dumps(made().plain()))
    assert plain.keys() == {"a", "b", "pairs", "scores", "by", "wins", "ties", "losses", "sentences"}
    assert (plain["pairs"], plain["wins"], plain["ties"], plain["losses"]) == (3, 1, 1, 1)
    assert plain["scores"]["chrf"].keys() == {"a", "b", "difference", "interval", "p", "verdict"}
    worst = plain["sentences"][0]
    assert worst["b_score"] == 100.0
    assert worst["difference"] == worst["a_score"] - 100.0 < 0
    assert worst["references"] == ["the cat lay on it", "or \u202eso"]


def test_of_the_same_translations_there_is_nothing_to_show():
    stats = extract_stats(REFERENCES, REFERENCES)
    same = SystemComparison("a", "b", "t", compare_stats(stats, stats, "ter"), (), ())
    assert "same translation" in same.heading()
    assert "Marked" not in comparison_page(same)
    assert made().heading() == "Where A is worst relative to B, by chrF"
