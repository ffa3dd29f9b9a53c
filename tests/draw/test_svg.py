"""The heat map as SVG: cells say what the weights say, no word can break it, and it is legible in light and dark."""

import itertools
import re
import unicodedata
import xml.etree.ElementTree as ET
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_traces import HOSTILE, WORDS

from heedful.draw import picture, svg
from heedful.draw.picture import notes
from heedful.errors import DataError
from heedful.trace import Text, Trace, Word

NS = "{http://www.w3.org/2000/svg}"


def side(words: list[str]) -> Text:
    """A text of one token to a word; the last is `</s>`."""
    every = [*words, "</s>"]
    return Text(
        " ".join(words),
        tuple(every),
        ((0, 0),) * len(every),
        tuple(Word(w, 0, 0, i, i + 1) for i, w in enumerate(every)),
    )


def trace(source: list[str], target: list[str], weights=None, confidence=0.5) -> Trace:
    x, y = side(source), side(target)
    if weights is None:
        weights = np.random.default_rng(0).dirichlet(np.full(len(x.tokens), 0.3), size=len(y.tokens))
    log_probs = np.full(len(y.tokens), np.log(confidence), dtype=np.float32)
    return Trace(x, y, np.asarray(weights, dtype=np.float32)[None, None], log_probs)


def tree(drawn: str) -> ET.Element:
    root = ET.fromstring(drawn)
    assert root.tag == f"{NS}svg"
    return root


def cells(root: ET.Element) -> dict[str, tuple[float, float, str]]:
    """The corner and the opacity of each cell, by its tooltip."""
    found = {}
    for group in root.iter(f"{NS}g"):
        moved = [float(n) for n in re.findall(r"[\d.]+", group.get("transform", ""))]
        for path in group.findall(f"{NS}path"):
            title = path.find(f"{NS}title")
            if title is not None:
                x = float(re.match(r"M([\d.]+) 0h", path.get("d"))[1])
                found[title.text] = (moved[0] + x, moved[1], path.get("opacity"))
    return found


def texts(root: ET.Element, kind: str) -> list[str]:
    return [e.text for e in root.iter(f"{NS}text") if kind in (e.get("class") or "").split()]


def test_by_hand():
    root = tree(svg.heatmap(trace(["मैं", "घर"], ["I", "home"], [[0.9, 0.1, 0], [0.2, 0.76, 0.04], [0, 0.5, 0.5]], 0.07)))
    found = cells(root)
    assert {told: opacity for told, (_, _, opacity) in found.items()} == {
        "I → मैं 90 %": "0.9",
        "I → घर 10 %": "0.1",
        "home → मैं 20 %": "0.2",
        "home → घर 76 %": "0.76",
        "home → </s> 4 %": "0.04",
        "</s> → घर 50 %": "0.5",
        "</s> → </s> 50 %": "0.5",
    }
    # Target words go down, source words across, at even distances.
    assert found["I → मैं 90 %"][1] < found["home → मैं 20 %"][1]
    assert found["I → मैं 90 %"][0] == found["home → मैं 20 %"][0]
    assert found["I → मैं 90 %"][0] < found["I → घर 10 %"][0]
    assert found["I → मैं 90 %"][1] == found["I → घर 10 %"][1]
    # 4 % is shaded but too little to be written.
    assert [n for n in texts(root, "n") if n] == ["90", "10", "20", "76", "50", "50", "0", "25", "50", "75", "100"]
    assert [t for t in texts(root, "q") if t.endswith(" %")] == ["7 %"] * 3
    assert root.find(f"{NS}title").text == "Attention weights"
    told = "Largest weight of each target word. I: मैं 90 %; home: घर 76 %; </s>: घर 50 %. Read-out: layer 1, head 1"
    assert root.find(f"{NS}desc").text == told
    assert "read-out: layer 1, head 1 · nothing is hidden" in " ".join(texts(root, "q")).replace("\u00a0", " ")


def test_the_strong_numbers_stand_on_strong_shades():
    root = tree(svg.heatmap(trace(["a"], [], [[0.95, 0.05]])))
    strong = [e.text for e in root.iter(f"{NS}text") if e.get("class") == "n y f"]
    assert strong == ["95", "75", "100"]


def test_gold_links_outline_their_cells():
    gold = frozenset({(1, 0), (0, 1)})
    one = trace(["a", "b"], ["A", "B"], np.full((3, 3), 1 / 3))
    root = tree(svg.heatmap(one, gold=gold))
    found = cells(root)
    outlines = [(float(r.get("x")), float(r.get("y"))) for r in root.iter(f"{NS}rect") if r.get("class") == "o"]
    expected = [found[told][:2] for told in ("B → a 33 %", "A → b 33 %")]
    assert [(x - 1.5, y - 1.5) for x, y in outlines[:-1]] == expected
    assert "gold link" in texts(root, "q")
    without = svg.heatmap(one)
    assert 'class="o"' not in without
    assert "gold link" not in without
    assert "gold link" in svg.heatmap(one, gold=frozenset())  # asked for, and there are none


@pytest.mark.parametrize("link", [(3, 0), (0, 3), (-1, 0)])
def test_gold_links_of_other_words_are_refused(link):
    with pytest.raises(DataError, match=f"gold link {link[0]}-{link[1]}: there are 3 source and 3 target words"):
        svg.heatmap(trace(["a", "b"], ["A", "B"]), gold=frozenset({link}))


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=4), WORDS)
@example(HOSTILE, HOSTILE, "<b>")
@settings(max_examples=60, deadline=None)
def test_no_text_can_break_it(source, target, title):
    drawn = svg.heatmap(trace(source, target), title)
    root = tree(drawn)
    assert drawn.encode()
    assert not [c for c in drawn if unicodedata.category(c) == "Cc" and c != "\n"]
    assert {e.tag.removeprefix(NS) for e in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "style",
        "text",
        "g",
        "path",
        "rect",
    }
    assert not re.search("<script|<img|\u202e", drawn)


def test_words_are_there_as_written():
    root = tree(svg.heatmap(trace(["a<b>&\"c'"], ["क्\u200dष"])))
    words = [e.text for e in root.iter(f"{NS}text")]
    assert "a<b>&\"c'" in words
    assert "क्\u200dष" in words


def test_words_from_right_to_left_are_kept_apart():
    words = [e.text for e in tree(svg.heatmap(trace(["مرحبا!"], ["hello"]))).iter(f"{NS}text")]
    assert "\u2068مرحبا!\u2069" in words
    assert "hello" in words


def labels(root, slanted=False):
    """The words over the columns, written horizontally or aslant."""
    horizontal = [e.text for e in root.iter(f"{NS}text") if e.get("class") == "m"]
    aslant = [e.text for e in root.iter(f"{NS}text") if "rotate" in (e.get("transform") or "")]
    assert not (horizontal and aslant)
    return aslant if slanted else horizontal


@pytest.mark.parametrize(
    ("words", "slanted"),
    [
        (["रानी", "घर", "जाती", "है"], False),
        (["the", "schoolteacher", "left"], True),  # one word is wider than a cell may be
        (["a"] * 15, False),
        (["about"] * 15, True),  # all columns together would be too wide
    ],
)
def test_words_over_columns_are_horizontal_where_they_fit(words, slanted):
    root = tree(svg.heatmap(trace(words, ["x"])))
    assert labels(root, slanted) == [*words, "</s>"]
    if not slanted:
        places = [e for e in root.iter(f"{NS}text") if e.get("class") == "m"]
        centres = [float(e.get("x")) for e in places]
        gaps = np.diff(centres)
        for i, gap in enumerate(gaps):  # no word reaches into the next one's cell
            assert picture.width_of(words[i]) < gap
        right = max(float(v) for v in root.get("viewBox").split())
        assert centres[-1] + gaps[0] / 2 < right


def test_a_source_from_right_to_left_begins_at_the_right():
    weights = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]])
    made = trace(["مرحبا", "عالم"], ["hello", "world"], weights)
    root = tree(svg.heatmap(made, gold=frozenset({(0, 0)})))
    assert labels(root) == ["</s>", "\u2068عالم\u2069", "\u2068مرحبا\u2069"]
    rows = [g for g in root.iter(f"{NS}g") if g.get("class") == "c"]
    across = [[float(re.match(r"M([\d.]+)", p.get("d"))[1]) for p in row.findall(f"{NS}path")] for row in rows]
    wide = across[0][0]
    assert across == [[wide, 2 * wide], [0, wide], [0]]  # the first word has the last column
    told = [t.text for t in rows[0].iter(f"{NS}title")]
    assert told == ["hello → \u2068عالم\u2069 10 %", "hello → \u2068مرحبا\u2069 90 %"]
    left = float(re.match(r"translate\(([\d.]+)", rows[0].get("transform"))[1])
    (outline,) = [e for e in root.iter(f"{NS}rect") if e.get("class") == "o" and e.get("pointer-events")]
    assert float(outline.get("x")) == pytest.approx(left + 2 * wide + 1.5, abs=0.02)
    assert root.find(f"{NS}desc").text.startswith(
        "Largest weight of each target word. hello: مرحبا 90 %; world: عالم 80 %"
    )


def test_a_model_without_attention():
    whole = trace(["a"], ["b"])
    root = tree(svg.heatmap(Trace(whole.source, whole.target, None, whole.log_probs), "T"))
    assert [e.text for e in root.iter(f"{NS}text")] == ["T", "This model has no attention weights to draw."]
    blank = side([])
    assert "There are no words to draw." in svg.heatmap(Trace(blank, blank, None, np.zeros(1, dtype=np.float32)))


def test_degenerate():
    assert list(cells(tree(svg.heatmap(trace([], [], [[1.0]]))))) == ["</s> → </s> 100 %"]
    assert cells(tree(svg.heatmap(trace(["a"], ["b"], np.zeros((2, 2)))))) == {}
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="not all finite"):
            svg.heatmap(trace(["a"], [], [[bad, 1.0]]))


def test_the_same_each_time():
    one = trace(["मैं", "घर"], ["I", "home"])
    gold = {(0, 0), (1, 1), (1, 0)}
    assert svg.heatmap(one, "t", frozenset(gold)) == svg.heatmap(one, "t", frozenset(sorted(gold, reverse=True)))


def test_long_sentences_keep_their_numbers_and_stay_small():
    drawn = svg.heatmap(trace(["लड़की"] * 40, ["something"] * 45))
    assert len(drawn.encode()) < 250_000
    root = tree(drawn)
    assert len([n for n in texts(root, "n") if n]) > 100
    corners = sorted({x for x, _, _ in cells(root).values()})
    assert min(b - a for a, b in itertools.pairwise(corners)) >= 24


def test_very_long_sentences_have_no_numbers():
    root = tree(svg.heatmap(trace(["a"] * 120, ["b"] * 3)))
    assert texts(root, "n") == ["0", "25", "50", "75", "100"]  # those of the legend
    assert cells(root)


def test_nothing_is_loaded():
    assert re.findall(r"https?:[^\"']*|url\([^)]*\)|href", svg.heatmap(trace(["a"], ["b"]))) == [
        "http://www.w3.org/2000/svg"
    ]


def test_every_colour_is_there_in_light_and_in_dark():
    drawn = svg.heatmap(trace(["a"], ["b"]), gold=frozenset({(0, 0)}))
    style = tree(drawn).find(f"{NS}style").text
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    used = set(re.findall(r"var\((--h-\w+)\)", style))
    assert len(used) > 10
    for part in (light, dark.split("@media print")[0]):
        assert used <= set(re.findall(r"(--h-\w+):#", part))


def luminance(colour: str | tuple[float, ...]) -> float:
    if isinstance(colour, str):
        colour = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(a, b) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


GROUNDS = [
    (picture.LIGHT, "#ffffff"),
    (picture.LIGHT, "#fcfbf9"),
    (picture.DARK, "#14161a"),
    (picture.DARK, "#1b1e23"),
    (picture.DARK, "#0d1117"),
]


@pytest.mark.parametrize(("colours", "ground"), GROUNDS)
def test_what_is_written_can_be_read(colours, ground):
    named = dict(zip(picture.NAMES, colours, strict=True))
    for name in ("ink", "soft"):
        assert contrast(named[name], ground) >= 4.5
    for name in ("gold", "s0", "s1", "s2", "s3", "s4"):
        assert contrast(named[name], ground) >= 3


@pytest.mark.parametrize("ground", ["ground", "paper"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_in_cells_can_be_read(scheme, ground):
    """Cells of a picture lie on its own ground, and those of a page on its panel."""
    named = dict(zip(picture.NAMES, {"light": picture.LIGHT, "dark": picture.DARK}[scheme], strict=True))
    style = files("heedful").joinpath("web/figure/figure.css").read_text()
    papers = dict(zip(("light", "dark"), re.findall(r"--v-paper: (#\w+)", style), strict=False))
    base, full = (
        [int(c[i : i + 2], 16) for i in (1, 3, 5)]
        for c in (named["ground"] if ground == "ground" else papers[scheme], named["shade"])
    )
    for weight in np.linspace(svg.NUMBER, 1, 191):
        cell = tuple(weight * f + (1 - weight) * b for f, b in zip(full, base, strict=True))
        assert contrast(named["full" if weight >= svg.FULL else "pale"], cell) >= 4.5, weight


def test_cells_lie_on_a_ground_of_their_own():
    root = tree(svg.heatmap(trace(["a", "b"], ["A", "B"])))
    (ground,) = [e for e in root.iter(f"{NS}rect") if e.get("class") == "g"]
    rows = [g for g in root.iter(f"{NS}g") if g.get("class") == "c"]
    assert rows[0].get("transform") == f"translate({ground.get('x')} {ground.get('y')})"
    lines = root.find(f".//{NS}path[@class='l'][@pointer-events]").get("d")
    assert f"H{float(ground.get('x')) + float(ground.get('width')):.2f}" in lines  # as wide as the lines are
    assert float(ground.get("height")) == 3 * 30


def test_a_list_of_words_from_right_to_left_keeps_its_order() -> None:
    line, height = notes(["warning: little attention on 'أكل', 'שלום', 'the' <b>"], 0, 900)
    assert height == 17
    assert line[0].endswith("on &#39;\u2068أكل\u2069&#39;, &#39;\u2068שלום\u2069&#39;, &#39;the&#39; &lt;b&gt;</text>")
