"""The heat map: it fits, its numbers stand over its cells, and no word can break it."""

import re
import unicodedata

import numpy as np
import pytest
import sample_traces as samples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.draw import heatmap
from heedful.draw.terminal import SHADES, columns
from heedful.errors import DataError
from heedful.trace import Text, Trace, Word

SCRIPTS = st.sampled_from(
    [
        *("I", "eating", "Donaudampfschifffahrtsgesellschaftskapitän", "x" * 300),
        *("मैं", "ज़्यादा", "क्षत्रिय", "我", "吃饭", "東京特許許可局" * 5, "ﾊﾝｶｸ", "Ｗｉｄｅ", "한국어"),
        *("مرحبا", "السلام", "😀", "👨\u200d👩\u200d👧", "e\u0301", "\u0301" * 30, "ภาษาไทย", "</s>", "�"),
    ]
)
WORDS = SCRIPTS | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
quick = settings(max_examples=50, deadline=None)


def shade(weight: float, ascii_only: bool = False) -> str:
    """Return the shade of a weight from 0 to 1, by the table."""
    _, block, plain = next(s for s in reversed(SHADES) if weight >= s[0] or s[0] == 0.0)
    return plain if ascii_only else block


def side(words: list[str]) -> Text:
    """A text of one token to a word."""
    text, spans, made = " ".join(words), [], []
    for i, word in enumerate(words):
        start = sum(map(len, words[:i])) + i
        spans.append((start, start + len(word)))
        made.append(Word(word, *spans[-1], i, i + 1))
    end = len(text)
    return Text(
        text, (*words, "</s>"), (*spans, (end, end)), (*made, Word("</s>", end, end, len(words), len(words) + 1))
    )


def trace_of(source: list[str], target: list[str], weights: np.ndarray | None = None, seed: int = 0) -> Trace:
    x, y = side(source), side(target)
    random = np.random.default_rng(seed)
    if weights is None:
        weights = random.dirichlet(np.full(len(x.tokens), 0.3), size=len(y.tokens))
    log_probs = np.log(random.uniform(0.001, 1, len(y.tokens)))
    return Trace(x, y, np.asarray(weights, dtype=np.float32)[None, None], log_probs.astype(np.float32))


def cells(drawn: str, rows: int) -> tuple[dict[tuple[int, int], str], list[list[int]]]:
    """Read the map back: the two columns under each number, by (row, number), and the numbers of each panel."""
    found, panels, lines = {}, [], drawn.split("\n")
    for at, line in enumerate(lines):
        if not re.fullmatch(r" [\d ]*\d  conf", line):
            continue
        place, number, panel = 0, 1 + sum(map(len, panels)), []
        while (seen := re.match(rf" *{number}", line[place:])) and place < len(line) - len("  conf"):
            place += seen.end()
            panel.append(number)
            for row in range(1, rows + 1):
                below = lines[at + row]
                assert int(below[:4]) == row
                found[row, number] = below[place - 2 : place]
            number += 1
        panels.append(panel)
    return found, panels


def test_by_hand():
    trace = trace_of(["मैं", "घर"], ["I", "home"], [[0.9, 0.1, 0], [0.2, 0.7, 0.1], [0, 0.5, 0.5]])
    trace = Trace(trace.source, trace.target, trace.weights, np.log([1.0, 0.5, 0.07]).astype(np.float32))
    assert heatmap(trace).split("\n") == [
        "source: 1 मैं  2 घर  3 </s>",
        "",
        "      1  2  3  conf",
        "   1 ██ ··     100% I",
        "   2 ░░ ▓▓ ··   50% home",
        "   3    ▒▒ ▒▒    7% </s>",
        "",
        "weight from: [  ] 0%  [··] 5%  [░░] 15%  [▒▒] 35%  [▓▓] 60%  [██] 85%",
        "read-out: layer 1, head 1",
    ]
    assert heatmap(trace, ascii_only=True).split("\n")[3:6] == [
        "   1 @@ ..     100% I",
        "   2 -- ## ..   50% home",
        "   3    ++ ++    7% </s>",
    ]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_shades_rise_with_the_weight(ascii_only):
    order = [s[2 if ascii_only else 1] for s in SHADES]
    found = [shade(w, ascii_only) for w in np.linspace(0, 1, 101)]
    assert [order.index(s) for s in found] == sorted(order.index(s) for s in found)
    assert set(found) == set(order)
    for low, *marks in SHADES:
        assert shade(low, ascii_only) == marks[ascii_only]
        if low:
            assert shade(np.nextafter(low, 0), ascii_only) != marks[ascii_only]


@given(
    st.lists(WORDS, max_size=12), st.lists(WORDS, max_size=6), st.integers(40, 200), st.booleans(), st.integers(0, 9)
)
@example(["x" * 300] * 9, ["東京特許許可局" * 5], 40, True, 0)
@example([], [], 40, False, 0)
@quick
def test_no_line_is_wider_than_the_width(source, target, width, ascii_only, seed):
    drawn = heatmap(trace_of(source, target, seed=seed), width, ascii_only)
    assert max(map(columns, drawn.split("\n"))) <= width


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("count", [99, 150, 1001])
def test_no_line_is_wider_with_many_words(width, count):
    drawn = heatmap(trace_of(["東京", "a"] * (count // 2), ["b"]), width)
    assert max(map(columns, drawn.split("\n"))) <= width


@given(
    st.integers(0, 150),
    st.lists(SCRIPTS, max_size=3),
    st.integers(40, 200),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@example(149, ["I"], 80, False, 0)
@example(0, [], 40, False, 0)
@settings(max_examples=25, deadline=None)
def test_numbers_stand_over_their_cells(count, target, width, ascii_only, seed):
    trace = trace_of(["मैं", "我", "ab"] * (count // 3) + ["x"] * (count % 3), target, seed=seed)
    found, panels = cells(heatmap(trace, width, ascii_only), len(target) + 1)
    assert [n for panel in panels for n in panel] == list(range(1, count + 2))
    weights = trace.words()
    for (row, number), mark in found.items():
        assert mark == shade(float(weights[row - 1, number - 1]), ascii_only) * 2
    assert len(found) == (count + 1) * (len(target) + 1)


@pytest.mark.parametrize("count", [99, 149, 1100])
def test_numbers_stand_apart(count):
    drawn = heatmap(trace_of(["w"] * count, ["x"]), 100)
    headers = [line.removesuffix("  conf").split() for line in drawn.split("\n") if line.endswith("  conf")]
    assert [int(n) for header in headers for n in header] == list(range(1, count + 2))
    assert len(cells(drawn, 2)[0]) == 2 * (count + 1)


def test_a_panel_uses_the_width():
    _, panels = cells(heatmap(trace_of(["w"] * 59, ["x"]), 80), 2)
    assert [len(p) for p in panels] == [21, 21, 18]  # 80 less 4 for the row, 7 for the confidence, 4 for </s>; by 3


@given(st.lists(st.text("abcमैंहू我吃", min_size=1, max_size=8), max_size=40), st.integers(40, 120))
@quick
def test_the_legend_lists_every_word_by_number(source, width):
    legend = heatmap(trace_of(source, ["x"]), width, sinks="keep").split("\n\n")[0]
    assert legend.startswith("source: 1 ")
    entries = [e for line in legend.removeprefix("source:").split("\n") for e in line.strip().split("  ")]
    assert entries == [f"{n} {word}" for n, word in enumerate([*source, "</s>"], 1)]


def test_a_long_word_is_cut_and_marked():
    drawn = heatmap(trace_of(["x" * 300], ["東" * 30]), 60)
    assert f"1 {'x' * 43}…" in drawn
    assert f"% {'東' * 8}…\n" in drawn


def test_rows_carry_confidence_and_word():
    trace = trace_of(["a", "b"], ["मैं", "घर"])
    rows = heatmap(trace).split("\n")[3:6]
    for row, confidence, word in zip(rows, trace.confidences(), ["मैं", "घर", "</s>"], strict=True):
        assert row.endswith(f"  {confidence:>4.0%} {word}")


CONTROLS = st.characters(categories=["Cc"])


@given(st.lists(st.text(CONTROLS | st.sampled_from("ab我"), min_size=1, max_size=6), min_size=1, max_size=6))
@example(["a\nb", "\x1b[31m", "\x9b2J", "\r", "\t", "\x7f", "\x85"])
@quick
def test_control_characters_are_shown_and_not_sent(words):
    drawn = heatmap(trace_of(words, words))
    assert not [c for c in drawn.replace("\n", "") if unicodedata.category(c) == "Cc"]
    shown = ["".join("�" if unicodedata.category(c) == "Cc" else c for c in w) for w in words]
    assert drawn == heatmap(trace_of(shown, shown))


@pytest.mark.parametrize("characters", ["\u2028\u2029", "\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069"])
def test_characters_that_break_or_turn_lines_are_not_sent(characters):
    # A trace may come from a file. These end the line, or turn round everything after them on it.
    drawn = heatmap(trace_of([*characters, f"a{characters}b"], [f"a{characters}b"]))
    assert not set(characters) & set(drawn)
    assert drawn.splitlines() == drawn.split("\n")


def test_joiners_are_kept():
    assert "क्\u200dष" in heatmap(trace_of(["क्\u200dष"], ["می\u200cخواهم"]))
    assert "می\u200cخواهم" in heatmap(trace_of(["क्\u200dष"], ["می\u200cخواهم"]))


def test_half_a_surrogate_can_be_printed():
    assert heatmap(trace_of(["a\ud800"], ["\udfff"])).encode()


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=4), st.integers(40, 120))
@quick
def test_ascii_only_but_for_the_words(source, target, width):
    drawn = heatmap(trace_of(source, target), width, ascii_only=True)
    # A cut word may end in any mark; it is part of the word. The next test says what it is in plain ASCII.
    assert {c for c in drawn if not c.isascii()} <= {c for w in [*source, *target] for c in w} | set("…�")


@given(st.lists(st.text(st.characters(max_codepoint=127), min_size=1, max_size=60), max_size=8))
@example(["x" * 100])
@example(["\x1b"])
@quick
def test_ascii_words_give_pure_ascii(words):
    assert heatmap(trace_of(words, words), 60, ascii_only=True).isascii()


@given(st.lists(SCRIPTS, min_size=1, max_size=20), st.integers(40, 200), st.booleans())
@quick
def test_a_model_without_attention(source, width, ascii_only):
    whole = trace_of(source, ["x"])
    drawn = heatmap(Trace(whole.source, whole.target, None, whole.log_probs), width, ascii_only)
    assert drawn.startswith("source: 1 ")
    assert "This model has no attention" in " ".join(drawn.split())
    assert "conf" not in drawn
    assert max(map(columns, drawn.split("\n"))) <= width


def test_weights_that_are_not_numbers_are_refused():
    with pytest.raises(DataError, match="not all finite"):
        heatmap(trace_of(["a"], [], [[np.nan, 1.0]]))


def test_a_sign_is_never_cut_in_two():
    family = "👨\u200d👩\u200d👧"
    drawn = heatmap(trace_of(["a"], [family * 12, "किताब" * 9]))
    assert f" {family * 8}…\n" in drawn
    assert f" {'किताब' * 3}कि…\n" in drawn


def test_the_read_out_is_said():
    trace = trace_of(["a", "b"], ["A"])
    many = Trace(trace.source, trace.target, np.repeat(trace.weights, 2, axis=1), trace.log_probs)
    assert "\nread-out: mean of all layers and heads\n" in heatmap(many, sinks="keep")
    assert "\nread-out: layer 1, head 2\n" in heatmap(many.only(1, 2), sinks="keep")


def test_alarms_are_said_below():
    trace = trace_of(["a", "b", "c", "東京"], ["A"])
    weights = np.zeros_like(trace.weights)
    weights[:, :, 0, 0] = weights[:, :, -1, -1] = 1
    bad = Trace(trace.source, trace.target, weights, trace.log_probs)
    assert heatmap(bad).endswith("\nread-out: layer 1, head 1\nwarning: little attention on 'c', '東京'")
    assert heatmap(bad, width=24).endswith("\nwarning: little\nattention on 'c', '東京'")


def test_a_blank_sentence_has_nothing_to_look_at():
    blank = Text("", ("</s>",), ((0, 0),), (Word("</s>", 0, 0, 0, 1),))
    assert "no words" in heatmap(Trace(blank, blank, None, np.zeros(1, dtype=np.float32)))


def test_a_source_from_right_to_left_begins_at_the_right():
    lines = heatmap(samples.ARABIC).splitlines()
    # A mark after each word keeps the numbers in their order on terminals that know of directions.
    assert lines[0] == "source: 1 أكل\u200e  2 الولد\u200e  3 التفاحة\u200e  4 الحمراء\u200e  5 </s>"
    assert columns(lines[0]) == columns(lines[0].replace("\u200e", ""))
    assert lines[2].split() == ["5", "4", "3", "2", "1", "conf"]
    assert lines[3] == "   1          ██ ··   95% the"
    assert lines[5] == "   3             ██   77% ate"
    narrow = heatmap(samples.ARABIC, width=30)
    assert [line.split()[:-1] for line in narrow.splitlines() if line.endswith("conf")] == [list("4321"), ["5"]]
    assert heatmap(samples.TO_ARABIC).splitlines()[2].split()[:-1] == list("123456")
