"""The braid: ribbons are as wide as the weights, nothing is lost between rows, and no word can break it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import sample_traces as samples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_traces import HOSTILE, WORDS

from heedful.draw import braid, svg
from heedful.draw.picture import keep, width_of
from heedful.errors import DataError
from heedful.trace import Trace

NS = "{http://www.w3.org/2000/svg}"


class Ribbon(NamedTuple):
    told: str
    above: tuple[float, float]
    below: tuple[float, float]


def drawn_braid(trace: Trace, title: str = "", width: float = 880, mass: float = 0.9) -> str:
    return str(braid.picture(trace, title, width, mass))


def rows(drawn: str) -> list[ET.Element]:
    """The groups that stand for rows: those with ribbons, moved to their place."""
    groups = ET.fromstring(drawn).findall(f"{NS}g")
    return [
        g
        for g in groups
        if g.get("transform", "").startswith("translate(8 ") and g.find(f"{NS}g/{NS}title") is not None
    ]


def ribbons(group: ET.Element) -> list[Ribbon]:
    found = []
    for one in group.findall(f"{NS}g"):
        pale, full = one.findall(f"{NS}path")
        assert pale.get("d") == full.get("d")
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", pale.get("d", ""))]
        a, b, d, c = numbers[0], numbers[6], numbers[8], numbers[13]
        found.append(Ribbon(one.find(f"{NS}title").text or "", (a, c), (b, d)))
    return found


def bars(group: ET.Element, kind: str) -> list[tuple[float, float]]:
    found = [r for r in group.findall(f"{NS}rect") if r.get("class", "").split()[0] == kind]
    return sorted((float(r.get("x")), float(r.get("x")) + float(r.get("width"))) for r in found)


def words(group: ET.Element) -> list[tuple[float, float, str]]:
    return [(float(t.get("y")), float(t.get("x")), t.text or "") for t in group.findall(f"{NS}text")]


ALL = ("HINDI", "ARABIC", "TO_ARABIC", "CHINESE", "JAPANESE", "EMOJI", "UNSEEN")


@pytest.mark.parametrize("mass", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", ALL)
def test_widths_add_up_to_the_kept_mass(name: str, mass: float) -> None:
    trace: Trace = getattr(samples, name)
    weights = trace.words()
    kept = keep(weights, mass, braid.LEAST)
    (row,) = rows(drawn_braid(trace, mass=mass))
    found = ribbons(row)
    assert len(found) == kept.mask.sum()
    for ends in ([r.above for r in found], [r.below for r in found]):
        widths = [b - a for a, b in ends]
        assert sum(widths) / braid.UNIT == pytest.approx(weights[kept.mask].sum(), abs=0.02)
    # Each bar is as wide as what comes to it, and ribbons lie on bars, side by side.
    drawn = np.where(kept.mask, weights, 0)
    for kind, sums, ends in (("b", drawn.sum(0), "above"), ("i", drawn.sum(1), "below")):
        there = bars(row, kind)
        assert sorted(b - a for a, b in there) == pytest.approx(sorted(braid.UNIT * s for s in sums if s), abs=0.02)
        places = sorted(getattr(r, ends) for r in found)
        for left, right in pairwise(places):
            assert left[1] <= right[0] + 0.02
        for a, b in places:
            assert any(x - 0.02 <= a and b <= y + 0.02 for x, y in there)


def test_by_hand() -> None:
    trace = samples.trace("a b", "A B", [[0], [1], [2]])
    weights = np.array([[0.0, 0.75, 0.25], [1.0, 0, 0], [0, 0, 1.0]], dtype=np.float32)
    drawn = drawn_braid(replace(trace, weights=weights[None, None]), mass=1.0)
    (row,) = rows(drawn)
    found = {r.told: r for r in ribbons(row)}
    assert set(found) == {"A → b 75 %", "A → </s> 25 %", "B → a 100 %", "</s> → </s> 100 %"}
    assert found["A → b 75 %"].below[0] < found["A → </s> 25 %"].below[0]  # in the order of where they go
    assert found["A → </s> 25 %"].above[0] < found["</s> → </s> 100 %"].above[0]
    described = ET.fromstring(drawn).find(f"{NS}desc").text
    assert described.startswith(
        "Largest weights of each target word. A: b 75 %, </s> 25 %; B: a 100 %; </s>: </s> 100 %"
    )


@pytest.mark.parametrize(("name", "above", "below"), [("ARABIC", -1, 1), ("TO_ARABIC", 1, -1), ("HINDI", 1, 1)])
def test_words_go_the_way_they_are_read(name: str, above: int, below: int) -> None:
    trace: Trace = getattr(samples, name)
    (row,) = rows(drawn_braid(trace))
    for y, text, way in ((min, trace.source, above), (max, trace.target, below)):
        line = [(x, word.strip("\u2068\u2069")) for at, x, word in words(row) if at == y(w[0] for w in words(row))]
        assert [word for _, word in sorted(line, reverse=way < 0)] == [word.text for word in text.words]


def test_words_that_nobody_looks_at_have_an_empty_bar_and_are_pale() -> None:
    drawn = drawn_braid(samples.UNSEEN)
    (row,) = rows(drawn)
    assert len(bars(row, "e")) == 2
    pale = [t.text for t in row.findall(f"{NS}text") if "t" in t.get("class", "").split()]
    assert pale == ["the", "well", "</s>", "</s>"]
    assert "no ribbon</text>" in drawn
    assert "no ribbon</text>" not in drawn_braid(samples.JAPANESE, mass=1.0)


@pytest.mark.parametrize("width", [400.0, 880.0])
def test_long_sentences_go_on_and_lose_nothing(width: float) -> None:
    trace = samples.long(200)
    drawn = drawn_braid(trace, width=width)
    root = ET.fromstring(drawn)
    assert float(root.get("width")) <= max(width, 376)
    groups = rows(drawn)
    assert len(groups) > 5
    kept = keep(trace.words(), braid.MASS, braid.LEAST)
    assert sum(len(ribbons(group)) for group in groups) == kept.mask.sum()
    below = [word for group in groups for y, x, word in sorted(words(group), key=lambda w: w[1]) if y > 60]
    assert below == [word.text for word in trace.target.words]
    marks = sum(word == braid.LEFT_OUT for group in groups for _, _, word in words(group))
    seen_above = sum(len(words(group)) for group in groups) - len(below) - marks
    assert seen_above >= len(trace.source.words)  # those that nobody looks at too


def scattered(letters: str, places: int = 12) -> Trace:
    """A sentence of 40 different words that all look at many places, each at others, and the last 6 at nothing."""
    names = [f"{letters}{i}" for i in range(40)]
    trace = samples.trace(" ".join(names), " ".join(names), [[i] for i in range(41)])
    weights = np.zeros((41, 41), dtype=np.float32)
    for t in range(41):
        for rank in range(places):
            weights[t, (7 * t + 3 * rank) % 35] += 1 + 0.1 * rank
    return replace(trace, weights=(weights / weights.sum(1, keepdims=True))[None, None])


@pytest.mark.parametrize(("letters", "way"), [("w", 1), ("ولد", -1)])
def test_words_left_out_are_marked(letters: str, way: int) -> None:
    trace = scattered(letters)
    numbers = {word.text: i for i, word in enumerate(trace.source.words)}
    drawn = drawn_braid(trace)
    groups = rows(drawn)
    assert len(groups) > 2
    for group in groups:
        top = min(y for y, _, _ in words(group))
        line = [(x, word.strip("\u2068\u2069")) for y, x, word in words(group) if y == top]
        line = [word for _, word in sorted(line, reverse=way < 0)]
        shown = [numbers[word] for word in line if word != "…"]
        expected: list[str] = []
        for a, b in pairwise([-1, *shown, len(numbers)]):
            expected += (["…"] if b > a + 1 else []) + ([trace.source.words[b].text] if b < len(numbers) else [])
        assert line == expected
        assert "…" in line
    marks = [t for t in ET.fromstring(drawn).iter(f"{NS}text") if t.text == "…"]
    assert all(t.get("aria-hidden") == "true" and "t" in t.get("class", "").split() for t in marks)
    assert "words left out in this row" in drawn
    assert "…" not in drawn_braid(samples.HINDI)
    assert "…" not in (ET.fromstring(drawn).find(f"{NS}desc").text or "")


def test_words_that_look_everywhere_share_rows() -> None:
    trace = scattered("w")
    found = rows(drawn_braid(trace))
    assert len(found) <= 14  # with all their ribbons nearly every word has a row of its own
    assert len(rows(drawn_braid(trace, mass=1.0))) > 20
    told = [ribbon.told.split(" → ")[0] for group in found for ribbon in ribbons(group)]
    assert {told.count(word.text) for word in trace.target.words} == {braid.FEW}
    assert "at most 5 in a long sentence" in description(drawn_braid(trace))
    assert "at most" not in description(drawn_braid(samples.long(60)))  # it has fewer
    # A sentence that fits has all its ribbons.
    short = samples.trace("a b c d e f g h", "A", [[0], [8]])
    even = replace(short, weights=np.full((1, 1, 2, 9), 1 / 9, dtype=np.float32))
    assert len(ribbons(rows(drawn_braid(even, mass=0.95))[0])) == 18


def test_words_that_nobody_looks_at_part_no_others() -> None:
    trace = samples.trace(" ".join(f"w{i}" for i in range(30)), "A B", [[0], [1], [30]])
    weights = np.zeros((1, 1, 3, 31), dtype=np.float32)
    weights[0, 0, 0, [0, 1]] = 0.5
    weights[0, 0, 1, 28:30] = 0.5
    weights[0, 0, 2, 30] = 1.0
    weights[0, 0, :2] += 1e-4  # the words between are hardly looked at, by the first most
    weights[0, 0, 0] += 1e-4
    for width, others in ((700, 1), (320, 4)):
        drawn = ET.fromstring(drawn_braid(replace(trace, weights=weights), width=width))
        assert float(drawn.get("width")) <= max(width, 376)
        groups = [g for g in drawn.findall(f"{NS}g") if len(g.findall(f"{NS}rect")) > 1]
        assert len(rows(ET.tostring(drawn, "unicode"))) == 1
        assert len(groups) == 1 + others  # those without room stand by themselves, with their empty bars
        shown = [word for group in groups for _, _, word in words(group) if word != "…"]
        assert sorted(shown) == sorted([*(f"w{i}" for i in range(30)), "A", "B", "</s>", "</s>"])


def test_a_row_may_have_no_ribbons() -> None:
    trace = samples.long(60)
    flat = np.full(trace.weights.shape, 1 / trace.weights.shape[-1], dtype=np.float32)
    drawn = drawn_braid(replace(trace, weights=flat))  # each weight is under 2 %
    assert ET.fromstring(drawn).find(f"{NS}desc").text.count(": none") == 61


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_outside(name: str) -> None:
    drawn = drawn_braid(
        getattr(samples, name), "A title that is rather long, so that it needs a second line or a third"
    )
    root = ET.fromstring(drawn)
    width, height = float(root.get("width")), float(root.get("height"))
    (row,) = rows(drawn)
    left, top = (float(n) for n in re.findall(r"[\d.]+", row.get("transform")))
    for ribbon in ribbons(row):
        assert -left <= min(*ribbon.above, *ribbon.below)
        assert max(*ribbon.above, *ribbon.below) + left <= width
    for y, x, word in words(row):
        assert -left <= x - width_of(word) / 2
        assert x + left + width_of(word) / 2 <= width
        assert 10 <= y + top <= height


@given(st.lists(WORDS, min_size=1, max_size=6), st.lists(WORDS, min_size=1, max_size=4), WORDS)
@example(HOSTILE, HOSTILE, "<b>")
@settings(max_examples=40, deadline=None)
def test_no_text_can_break_it(source: list[str], target: list[str], title: str) -> None:
    x, y = samples.side(source), samples.side(target)
    weights = np.full((1, 1, len(target) + 1, len(source) + 1), 1 / (len(source) + 1), dtype=np.float32)
    drawn = drawn_braid(Trace(x, y, weights, np.zeros(len(target) + 1, dtype=np.float32)), title)
    tags = {e.tag.removeprefix(NS) for e in ET.fromstring(drawn).iter()}
    assert tags <= {"svg", "title", "desc", "style", "text", "g", "path", "rect"}
    assert drawn.encode()
    assert not re.search("<script|<img|\u202e", drawn)


def broken(name: str, value: Any) -> Trace:
    weights = samples.HINDI.weights.copy()
    if name == "count":
        return replace(samples.HINDI, weights=weights[:, :, :, :value])
    weights[0, 0, 1, 1] = value
    return replace(samples.HINDI, weights=weights)


@pytest.mark.parametrize("draw", [drawn_braid, svg.heatmap])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight", np.nan, "not all finite"),
        ("weight", np.inf, "not all finite"),
        ("weight", -0.5, "go down to -0.5"),
        ("count", 3, "the weights are of 6 target and 3 source tokens, but the trace has 6 and 7"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Any, name: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        draw(broken(name, value))


def test_what_is_hidden_is_said() -> None:
    told = {mass: description(drawn_braid(samples.HINDI, mass=mass)) for mass in (0.5, 1.0)}
    hidden = 1 - samples.HINDI.words()[keep(samples.HINDI.words(), 0.5, braid.LEAST).mask].sum() / 6
    assert "the largest weights of each target word that hold 50 % of its weight" in told[0.5]
    assert f"hidden: smaller weights, together {100 * hidden:.1f} % of all weight" in told[0.5]
    assert "ribbons: all weights" in told[1.0]
    assert "read-out: layer 1, head 1" in told[1.0]


def test_what_is_too_thin_is_said_where_there_is_such_a_ribbon() -> None:
    trace = samples.trace("a b c", "A", [[0], [3]])
    rows = np.array([[0.97, 0.01, 0.01, 0.01], [0.0, 0.0, 0.0, 1.0]], dtype=np.float32)
    made = replace(trace, weights=rows[None, None])
    # 3 % of one of two rows: 1.5 % of all.
    assert "hidden: weights under 2 %, together 1.5 % of all weight" in description(drawn_braid(made, mass=1.0))
    assert "hidden: smaller weights, and all under 2 %, together 1.5 %" in description(drawn_braid(made, mass=0.99))
    assert "hidden: smaller weights, together 1.5 %" in description(drawn_braid(made, mass=0.9))
    whole = replace(trace, weights=np.eye(4, dtype=np.float32)[None, None, :2])
    assert "nothing is hidden" in description(drawn_braid(whole))


def description(drawn: str) -> str:
    return ET.fromstring(drawn).find(f"{NS}desc").text.replace("\u00a0", " ")


@given(st.integers(1, 8), st.integers(1, 8), st.floats(0.05, 1.0), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_at_least_the_mass_is_kept_and_no_more_than_needed(T: int, S: int, mass: float, seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(S, 0.4), size=T).astype(np.float32)
    kept = keep(weights, mass)
    for row, mask in zip(weights, kept.mask, strict=True):
        assert row[mask].sum() >= mass - 1e-4
        assert row[mask].sum() - row[mask].min() < mass
        assert mask.all() or row[mask].min() >= row[~mask].max()
    assert kept.hidden == pytest.approx(1 - weights[kept.mask].sum() / weights.sum(), abs=1e-5)
