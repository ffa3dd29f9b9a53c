"""The page of a caption in a real browser: words and regions that are pointed at, focused and pinned; grid and smooth.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browsing
import numpy as np
import pytest
import sample_traces as samples

from heedful.draw import regions
from heedful.draw.html import page, record
from heedful.draw.trace_codec import decode_trace, encode_trace
from heedful.draw.views import View
from heedful.errors import DataError

WORD, CELL = ".r-words li:nth-child({})", ".r-cells li:nth-child({})"
STAGE = ".r-stage canvas"
# The opacities of a canvas, row by row, from 0 to 255.
OPACITY = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).filter((_, i) => i % 4 === 3)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Any]:
    yield from browsing.opening(browser, tmp_path, wait_for=".r-stage", width=1000)


def status(shown: Any) -> str:
    return shown.inner_text(".v-status").replace("\u00a0", " ")


def test_the_picture_the_words_and_small_pictures(look: Any) -> None:
    trace = samples.caption()
    text = page([trace], "A caption")
    assert text.count(base64.b64encode(trace.image.picture).decode()) == 1
    shown = look(text)
    assert shown.inner_text("h1") == "A caption"
    assert shown.locator(".r-words li").all_inner_texts() == [*trace.target.text.split(), "</s>"]
    assert shown.locator(".r-thumb bdi").all_inner_texts() == trace.target.text.split()
    assert shown.locator(".r-cells li").count() == 6
    assert shown.evaluate("document.querySelector('.r-stage img').naturalWidth") == 60
    assert not shown.locator(STAGE).is_visible()
    box = shown.locator(".r-stage").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(1.5, abs=0.01)


def test_a_word_lights_up_its_region(look: Any) -> None:
    shown = look(page([samples.caption()]))
    shown.hover(WORD.format(2))
    assert status(shown).startswith("red – row 1, column 1: 80 %; row 1, column 2: 2 %")
    assert status(shown).endswith("no region: 10 % · confidence: 87 %")
    opacity = np.array(shown.locator(STAGE).evaluate(OPACITY))
    assert opacity.argmin() == 0
    assert opacity[0] == pytest.approx(255 * 0.8 * 0.1, abs=1)
    assert opacity[1:].min() > 195
    # The box of the linked region: the first of three columns, and of two rows.
    stage, box = (shown.locator(name).bounding_box() for name in (".r-stage", ".r-box"))
    assert box["width"] / stage["width"] == pytest.approx(1 / 3, abs=0.02)
    assert box["height"] / stage["height"] == pytest.approx(1 / 2, abs=0.02)
    assert shown.locator(".r-thumb.v-active bdi").inner_text() == "red"
    shown.mouse.move(1, 1)
    assert not shown.locator(STAGE).is_visible()


def test_a_region_lights_up_its_words(look: Any) -> None:
    shown = look(page([samples.caption()]))
    shown.hover(CELL.format(6))
    assert status(shown) == "row 2, column 3: blue 80 %, square 60 %, square 4 %, red 2 %, a 2 %, and 2 %, a 2 %"
    shares = {shown.locator(WORD.format(n)).get_attribute("data-share") for n in (6, 7)}
    assert shares == {"80\u00a0%", "60\u00a0%"}
    grounds = [
        shown.locator(f"{WORD.format(n)} span").evaluate("e => getComputedStyle(e).backgroundColor") for n in (2, 6)
    ]
    assert grounds[0] != grounds[1]


def test_by_keyboard(look: Any) -> None:
    shown = look(page([samples.caption()]))
    shown.locator(CELL.format(1)).focus()
    for key, place in (
        ("ArrowDown", "row 2, column 1"),
        ("ArrowRight", "row 2, column 2"),
        ("ArrowUp", "row 1, column 2"),
        ("ArrowUp", "row 1, column 2"),
        ("End", "row 2, column 3"),
    ):
        shown.keyboard.press(key)
        assert status(shown).startswith(f"{place}:")
    shown.keyboard.press("Enter")
    shown.keyboard.press("Tab")  # to the words
    assert status(shown).startswith("row 2, column 3:")  # which is pinned
    shown.keyboard.press("Escape")
    shown.keyboard.press("ArrowRight")
    assert status(shown).startswith("red")


def test_touch_pins(look: Any) -> None:
    shown = look(page([samples.caption()]), 390, has_touch=True, is_mobile=True)
    shown.tap(WORD.format(6))
    assert status(shown).startswith("blue")
    shown.tap(CELL.format(1))
    assert status(shown).startswith("row 1, column 1: red 80 %")
    assert shown.locator(CELL.format(1)).get_attribute("aria-selected") == "true"
    shown.tap(CELL.format(1))
    assert shown.locator(CELL.format(1)).get_attribute("aria-selected") == "false"
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390


def test_grid_and_smooth_say_which(look: Any) -> None:
    trace = samples.caption()
    shown = look(page([trace], view=View(smooth=True)))
    assert "smoothed by cubic interpolation" in shown.inner_text(".v-note")
    shown.click(WORD.format(2))
    high, wide = (shown.locator(STAGE).evaluate(f"c => c.{side}") for side in ("height", "width"))
    opacity = np.array(shown.locator(STAGE).evaluate(OPACITY)).reshape(high, wide)
    bright = regions.spread(regions.word_regions(trace)[1], high, wide, True)
    assert np.allclose(opacity, 255 * 0.8 * (1 - bright), atol=1)  # as the picture of views has it
    shown.check("input[value=grid]")
    assert "2 × 3 regions, not smoothed" in shown.inner_text(".v-note")
    assert status(shown).startswith("red")  # it stays pinned
    assert len(shown.locator(STAGE).evaluate(OPACITY)) == 6


def test_layers_and_heads(look: Any) -> None:
    shown = look(page([samples.caption(layers=2, count=2)]))
    shown.select_option("select", label="Layer 2, head 2")
    shown.hover(WORD.format(2))
    assert status(shown).startswith("red – row 1, column 3: 80 %")
    assert "Layer 2, head 2" in shown.inner_text(".v-note")
    assert not shown.locator(".r-box").is_visible()
    shown.check("input[value=heatmap]")
    assert shown.locator(".v-grid").is_visible()
    assert not shown.locator("[data-key=weights]").is_visible()


def test_two_models_of_one_image(look: Any) -> None:
    traces = [samples.caption(), samples.caption("a red circle")]
    text = page(traces, names=["one", "two"])
    assert text.count(base64.b64encode(traces[0].image.picture).decode()) == 1
    shown = look(text, 1280)
    assert shown.locator(".v-panel h2").all_inner_texts() == ["one", "two"]
    shown.locator(CELL.format(1)).first.hover()
    both = [text.replace("\u00a0", " ") for text in shown.locator(".v-status").all_inner_texts()]
    assert [text.split(",")[1] for text in both] == [" column 1: red 80 %"] * 2


def test_the_table_has_every_number(look: Any) -> None:
    shown = look(page([samples.caption()]))
    shown.click("summary")
    rows = [row.split("\t") for row in shown.locator(".r-table tbody tr").all_inner_texts()]
    plain = [[cell.replace("\u00a0", " ") for cell in row] for row in rows]
    assert plain[1] == ["red", "80 %", "1, 1", "10 %", "87 %", "0, 0, 200, 200"]
    assert plain[3][:4] == ["and", "2 %", "1, 1", "90 %"]


def test_without_scripts_there_is_the_picture(look: Any) -> None:
    shown = look(page([samples.caption()]), java_script_enabled=False)
    assert shown.locator(".v-static svg").is_visible()
    assert shown.locator(".v-static svg use").count() == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(look: Any, scheme: str) -> None:
    shown = look(page([samples.caption(layers=2, count=2)]), scheme=scheme)
    shown.click("summary")
    shown.hover(CELL.format(6))
    least, text = shown.evaluate(browsing.CONTRAST)[0]
    assert least >= 4.5, text


def test_hostile_words_and_names_are_text(look: Any) -> None:
    trace = samples.caption("<img/src=x> </script> & ' \"")
    named = replace(trace, image=replace(trace.image, name="</script><b>x"))
    shown = look(page([named], "<i>"))
    assert shown.locator(".r-words li").all_inner_texts()[:2] == ["<img/src=x>", "</script>"]


def test_a_model_without_attention_has_no_regions(browser: Any, tmp_path: Path) -> None:
    for opened in browsing.opening(browser, tmp_path):
        shown = opened(page([replace(samples.caption(), weights=None)]))
        shown.wait_for_selector(".v-panel")
        assert "whole image as one vector" in shown.inner_text(".v-note")


def test_without_a_picture_the_grid_is_shown(look: Any) -> None:
    trace = samples.caption()
    shown = look(page([replace(trace, image=replace(trace.image, picture=b""))]))
    shown.hover(WORD.format(2))
    assert status(shown).startswith("red – row 1, column 1: 80 %")


def test_the_record_of_a_caption() -> None:
    made = record([samples.caption()], View(smooth=True))
    (trace,) = made["traces"]
    assert (made["view"], made["smooth"]) == ("regions", True)
    assert trace["boxes"][:3] == [None, [0, 0, 200, 200], [0, 0, 200, 200]]
    assert len(trace["boxes"]) == 8
    assert {name: trace["image"][name] for name in ("width", "rows", "columns")} == {
        "width": 600,
        "rows": 2,
        "columns": 3,
    }
    assert "picture" not in trace["image"]
    assert "smooth" not in record([samples.HINDI])


def test_a_figure_comes_back_with_its_image() -> None:
    trace = samples.caption()
    plain = encode_trace(trace, "")
    back = decode_trace(plain, trace.source.text, trace.target.text)
    assert back.image == replace(trace.image, picture=b"")
    assert np.allclose(back.words(), trace.words(), atol=1e-4)
    with pytest.raises(DataError, match="4 regions"):
        decode_trace({**plain, "image": {**plain["image"], "columns": 2}}, trace.source.text, trace.target.text)
