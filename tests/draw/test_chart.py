"""Charts: marks lie where the numbers say, ticks are round, and no name or number can break them."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.draw.chart import Series, bars, lines, log_ticks, rows, swatch, ticks
from heedful.draw.picture import clean, cut, decimal, number, width_of, wrap
from heedful.errors import DataError

NS = "{http://www.w3.org/2000/svg}"
HOSTILE = ["<script>", "&", "\"'>", "\x00\x1b", "\ud800", "लंबा", "x" * 200, ""]
NUMBERS = st.floats(0, 1e6, allow_subnormal=False) | st.floats(0, 1e-250, allow_subnormal=False)


def tree(drawn: str) -> ET.Element:
    assert drawn.encode()
    assert not re.search(r"nan|inf\b", re.sub("<(title|desc)[^>]*>[^<]*<", "", drawn))
    assert set(re.findall(r"https?:[^\"']*|url\([^)]*\)|href", drawn)) == {"http://www.w3.org/2000/svg"}
    return ET.fromstring(drawn)


def texts(drawn: str) -> list[str]:
    return [e.text or "" for e in tree(drawn).iter(f"{NS}text")]


def points(drawn: str) -> list[list[tuple[float, float]]]:
    """Where the points of each series lie, without those of the legend."""
    found = []
    for group in tree(drawn).findall(f"{NS}g"):
        if (group.get("class") or "").startswith("s"):
            moved = [g.get("transform") for g in group.findall(f"{NS}g")]
            found.append([tuple(map(float, re.findall(r"-?[\d.]+", m))) for m in moved])
    return found


def test_points_lie_where_the_numbers_say():
    drawn = lines([Series("a", (0, 50, 100), (0, 25, 100)), Series("b", (0, 100), (50, 50))], "T", "x", "y")
    (low, middle, high), (left, right) = points(drawn)
    assert low[0] == left[0] < middle[0] < high[0] == right[0]
    assert middle[0] == pytest.approx((low[0] + high[0]) / 2, abs=0.02)
    assert low[1] > middle[1] > high[1]  # down is more in SVG
    assert middle[1] == pytest.approx(low[1] + 0.25 * (high[1] - low[1]), abs=0.02)
    assert left[1] == right[1] == pytest.approx((low[1] + high[1]) / 2, abs=0.02)
    assert texts(drawn)[:4] == ["T", "a", "b", "y"]
    assert {"0", "20", "40", "60", "80", "100", "x"} <= set(texts(drawn))


def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_scale():
    ((_, a), (_, b), (_, c)) = points(lines([Series("a", (0, 1, 2), (0.1, 1, 10))], "T", "x", "y", log_y=True))[0]
    assert a - b == pytest.approx(b - c, abs=0.02)
    assert a > b > c
    with pytest.raises(DataError, match="a: 0 cannot be drawn on a logarithmic scale"):
        lines([Series("a", (0,), (0,))], "T", "x", "y", log_y=True)


def test_series_are_told_apart_without_colour():
    drawn = lines([Series(str(i), (0, 1), (i, i)) for i in range(4)], "T", "x", "y")
    groups = [g for g in tree(drawn).findall(f"{NS}g") if (g.get("class") or "").startswith("s")]
    assert len({g.find(f"{NS}path").get("stroke-dasharray") for g in groups}) == 4
    assert len({ET.tostring(list(g.find(f"{NS}g"))[1]) for g in groups}) == 4
    colours = [re.sub(r"class=\"s\d\"|class=\"heedful\"", "", swatch(i)) for i in range(3)]
    assert len(set(colours)) == 3


def test_many_points_are_thinned_but_the_last_is_kept():
    drawn = lines([Series("a", tuple(range(1000)), tuple(range(1000)))], "T", "x", "y")
    assert len(points(drawn)[0]) <= 25
    assert "<title>a: 999 at 999</title>" in drawn


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(DataError, match="fixed: -?(nan|inf) cannot be drawn"):
        lines([Series("fixed", (0, 1), (0, bad))], "T", "x", "y")
    with pytest.raises(DataError, match="fixed: -?(nan|inf) cannot be drawn"):
        lines([Series("fixed", (0, bad), (0, 1))], "T", "x", "y")
    for draw in (bars, rows):
        with pytest.raises(DataError, match="fixed: -?(nan|inf) cannot be drawn"):
            draw(["1–5"], [("fixed", [bad])], "T", "y")


def test_what_does_not_fit_is_refused():
    with pytest.raises(DataError, match="a: 2 x for 1 y"):
        lines([Series("a", (0, 1), (0,))], "T", "x", "y")
    for draw in (bars, rows):
        with pytest.raises(DataError, match="a: 1 values for 2 groups"):
            draw(["p", "q"], [("a", [1])], "T", "y")
        with pytest.raises(DataError, match="a: -1 cannot be drawn as a bar"):
            draw(["p"], [("a", [-1])], "T", "y")


def test_degenerate():
    for drawn in (lines([], "T", "x", "y"), lines([Series("a", (), ())], "T", "x", "y"), bars([], [], "T", "y")):
        assert texts(drawn) == ["T", "There is no data to draw."]
    single = lines([Series("a", (3.0,), (7.0,))], "T", "x", "y")
    assert len(points(single)[0]) == 1
    assert len(points(lines([Series("a", (0, 0), (0, 0))], "T", "x", "y"))[0]) == 2
    assert texts(bars(["p"], [("a", [0.0])], "T", "y")).count("0") >= 1
    tree(lines([Series("a", (5, 9), (4, 4))], "T", "x", "y", log_y=True))


@given(st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5), max_size=6), st.booleans(), st.sampled_from(HOSTILE))
@settings(max_examples=60, deadline=None)
def test_no_numbers_and_no_names_break_lines(given_points, log, name):
    shift = 1e-3 if log else 0
    series = [Series(name, tuple(x for x, _ in p), tuple(y + shift for _, y in p)) for p in given_points]
    drawn = lines(series, name, name, name, log_y=log)
    for x, y in (point for one in points(drawn) for point in one):
        assert -1 <= x <= 641
        assert 0 <= y <= 500
    assert drawn == lines(series, name, name, name, log_y=log)


def heights(drawn: str, classes: tuple[str, ...] = ("b", "b p")) -> list[tuple[float, float]]:
    """The widths and heights of all bars, after those of the legend."""
    found = [r for r in tree(drawn).iter(f"{NS}rect") if r.get("class") in classes]
    return [(float(r.get("width")), float(r.get("height"))) for r in found]


def test_bars_are_as_long_as_their_values():
    groups, series = ["1–5", "6–10"], [("fixed", [100.0, 25.0]), ("attention", [50.0, 0.0])]
    up = [h for _, h in heights(bars(groups, series, "T", "y"))][2:]
    assert [h / up[0] for h in up] == pytest.approx([1, 0.5, 0.25, 0], abs=0.001)
    along = [w for w, _ in heights(rows(groups, series, "T", "y"))][2:]
    assert [w / along[0] for w in along] == pytest.approx([1, 0.5, 0.25, 0], abs=0.001)


@pytest.mark.parametrize("draw", [bars, rows])
def test_the_value_stands_at_each_bar(draw):
    drawn = draw(["1–5", "6–10"], [("fixed", [98.25, 0.0]), ("attention", [100.0, 99.97])], "T", "per cent")
    assert {"98.2", "100", "0", "99.9", "1–5", "6–10", "T", "per cent", "fixed", "attention"} <= set(texts(drawn))
    assert (
        tree(drawn).find(f"{NS}desc").text == "per cent. 1–5: fixed 98.2, attention 100; 6–10: fixed 0, attention 99.9"
    )


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), NUMBERS), min_size=1, max_size=8), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_no_numbers_and_no_names_break_bars(named, count):
    groups, values = [g for g, _ in named], [v for _, v in named]
    for draw in (bars, rows):
        drawn = draw(groups, [(HOSTILE[i], values) for i in range(count)], "<T>", "&")
        assert not [s for s in heights(drawn) if min(s) < 0]
        assert "<script" not in drawn
        assert drawn == draw(groups, [(HOSTILE[i], values) for i in range(count)], "<T>", "&")


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 10))
@example(0.0, 1.0, 5)
@example(-3.0, 3.0, 2)
def test_ticks_enclose_and_are_round(low, span, count):
    high = low + span
    if not high > low or span < 1e-9 * abs(low):
        return
    found = ticks(low, high, count)
    slack = 1e-6 * span + 1e-9
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert list(found) == sorted(set(found))
    assert 2 <= len(found) <= count + 2
    assert f"{found[1] - found[0]:.2e}"[:3] in ("1.0", "2.0", "2.5", "5.0", "9.9")


def test_ticks_of_a_single_number():
    assert ticks(0, 0)[0] <= 0 <= ticks(0, 0)[-1]
    assert ticks(7, 7)[0] < 7 < ticks(7, 7)[-1]


@given(st.floats(1e-250, 1e6), st.floats(1, 1e6) | st.floats(1, 1e200))
@example(1.0, 1.0)
@example(1e-200, 1e200)
def test_log_ticks_enclose(low, ratio):
    found = log_ticks(low, low * ratio)
    assert 2 <= len(found) <= 12
    assert found[0] <= low * (1 + 1e-6)
    assert found[-1] >= low * ratio * (1 - 1e-6)
    assert list(found) == sorted(set(found))


@given(st.floats(0, 100))
@example(99.97)
@example(99.9999)
def test_only_a_hundred_is_a_hundred(value):
    assert (number(value) == "100") == (value == 100)
    assert abs(float(number(value)) - value) <= 0.0501 + (0.05 if value > 99.9 else 0)


@given(st.text(max_size=30), st.floats(10, 300))
def test_a_cut_text_fits_its_place(text, most):
    shown = cut(text, most)
    assert shown == text or ((width_of(shown) <= most or shown == "…") and text.startswith(shown.removesuffix("…")))


def test_a_text_is_never_cut_between_a_letter_and_its_marks():
    for most in range(15, 120):
        shown = cut("किताबें" * 3, most)
        rest = ("किताबें" * 3)[len(shown) - 1 :]
        assert rest[:1] not in "िाें"


def test_wrapping_keeps_all_words():
    assert " ".join(wrap("one two three four", 60)) == "one two three four"
    assert max(width_of(line) for line in wrap("one two three four", 60)) <= 60


@given(st.text())
@example("<>&\"'\x00\ud800\ufffe\U0010ffff\u2066")
def test_clean_text_can_stand_in_text_and_between_quotes(text):
    root = ET.fromstring(f'<a b="{clean(text)}">{clean(text)}</a>')
    assert (root.text or "") == root.get("b")


def test_coordinates_are_short():
    assert [decimal(v) for v in (0.1 + 0.2, -1e-9, 1e6, 12.346)] == ["0.3", "0", "1000000", "12.35"]


def test_a_bar_of_nothing_leaves_no_stripes():
    drawn = bars(["a"], [("one", [1.0]), ("two", [1.0]), ("three", [0.0])], "T", "per cent")
    assert drawn.count("stroke-dasharray") == 1  # of the legend alone
    assert bars(["a"], [("one", [1.0]), ("two", [1.0]), ("three", [0.5])], "T", "").count("stroke-dasharray") == 2
