"""A word has one hue: in the picture, in its dots, on the page, in light, in dark, on paper and under every model."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browsing
import numpy as np
import pytest
import sample_traces as samples
from png_pixels import MISSING, dots

from heedful.draw.html import page, style
from heedful.draw.picture import DARK_RIBBONS, HUES, LIGHT_RIBBONS, RIBBONS
from heedful.draw.views import View, view
from heedful.trace import Trace

NS = "{http://www.w3.org/2000/svg}"
SCHEMES = {"light": LIGHT_RIBBONS, "dark": DARK_RIBBONS}
COLOURS = {scheme: dict(zip(RIBBONS, colours, strict=True)) for scheme, colours in SCHEMES.items()}
ORDER = (6, 0, 4, 2, 5, 1, 3, 7)  # the source word that each word looks at, with all its weight; the last is </s>


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


def crossing() -> Trace:
    """A trace of seven words that are written in another order."""
    made = samples.trace("a b c d e f g", "A B C D E F G", [[s] for s in ORDER])
    return replace(made, weights=np.eye(8, dtype=np.float32)[list(ORDER)][None, None])


def rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def links(drawn: str) -> dict[str, list[set[str]]]:
    """The classes of each ribbon's paths, by the link that its title tells."""
    groups = [g for g in ET.fromstring(drawn).iter(f"{NS}g") if "→" in (g.findtext(f"{NS}title") or "")]
    return {g.findtext(f"{NS}title"): [set(p.get("class").split()) for p in g.findall(f"{NS}path")] for g in groups}


@pytest.mark.parametrize("name", ["HINDI", "ARABIC", "EMOJI", "JAPANESE"])
def test_a_ribbon_of_the_picture_has_the_hue_of_its_source_word(name: str) -> None:
    trace: Trace = getattr(samples, name)
    hues = {word.text: i % HUES for i, word in enumerate(trace.source.words)}
    found = links(view([trace, trace], View("braid"), "", ["one", "two"]))
    assert found
    for told, (pale, full) in found.items():
        hue = hues[re.fullmatch(r".* → (.*) \d+ %", told)[1].strip("\u2068\u2069")]
        assert f"w{hue}" in pale, told
        assert f"d{hue}" in full, told


def test_the_page_has_the_colours_of_the_picture() -> None:
    """Of ribbons that have no weight and all of it, in light and in dark."""
    for name in ("w", "s"):
        for i in range(HUES):
            found = re.findall(rf"--v-{name}{i}: (#\w+);", style())
            told = "d" if name == "s" else "w"
            assert found == [COLOURS[scheme][f"{told}{i}"] for scheme in ("light", "dark")]


STROKES = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  return [...document.querySelectorAll(".v-source li")].map((word) => {
    word.focus();
    pen.fillStyle = getComputedStyle(document.querySelector(".v-ribbon.v-on path:last-child")).stroke;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  });
}"""


def test_on_paper_colours_are_light_whatever_the_screen_is(browser: Any, tmp_path: Path) -> None:
    for opened in browsing.opening(browser, tmp_path):
        tab = opened(page([crossing()]), 1000, "dark")
        tab.wait_for_selector(".v-ribbon")
        tab.emulate_media(media="print")
        tab.wait_for_timeout(200)  # colours go over into one another
        assert tab.evaluate(STROKES) == [rgb(COLOURS["light"][f"d{i % HUES}"]) for i in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_the_same_colour_in_dots_and_on_the_page(scheme: str, browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason=MISSING)
    pytest.importorskip("fontTools", reason=MISSING)
    from heedful.draw.png import render

    trace = crossing()
    drawn = view([trace], View("braid"))
    picture = dots(render(drawn, dark=scheme == "dark"))[..., :3].astype(int)
    for opened in browsing.opening(browser, tmp_path):
        tab = opened(page([trace]), 1000, scheme)
        tab.wait_for_selector(".v-ribbon")
        on_page = tab.evaluate(STROKES)
    rows = [g for g in ET.fromstring(drawn).iter(f"{NS}g") if g.get("transform", "").startswith("translate(8 ")]
    left, top = (float(n) for n in re.findall(r"[\d.]+", rows[0].get("transform")))
    for group in (g for g in rows[0].findall(f"{NS}g") if g.find(f"{NS}title") is not None):
        s = "abcdefg".find(re.search(r"→ (\S+) ", group.findtext(f"{NS}title"))[1]) % 8  # </s>, not found, is the last
        x, y = (float(n) for n in re.findall(r"[\d.]+", group.find(f"{NS}path").get("d"))[:2])
        dot = picture[int(2 * (y + top + 1)), int(2 * (x + left + 12))]  # just below the source word
        wanted = rgb(COLOURS[scheme][f"d{s % HUES}"])
        assert np.abs(dot - wanted).max() <= 2, (s, dot)
        assert np.abs(np.array(on_page[s]) - wanted).max() <= 2, (s, on_page[s])
