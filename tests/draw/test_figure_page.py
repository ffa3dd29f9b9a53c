"""The interactive page in a real browser: what is seen, pointed at, focused, pinned, kept, printed and said.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import browsing
import numpy as np
import page_traces
import pytest
import sample_traces

from heedful.draw import heads
from heedful.draw.html import figure, page, record
from heedful.draw.trace_codec import encode_maps
from heedful.draw.views import View, picture, view
from heedful.trace.alarms import Alarm
from heedful.trace.readout import Readout

SPOKEN = "eating: खाना 61 %, खा 30 % · hidden 9 % · confidence 80 %"
ALL_SPOKEN = "eating: खाना 61 %, खा 30 %, रहा 9 % · confidence 80 %"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a page and wait until it is drawn."""
    yield from browsing.opening(browser, tmp_path, wait_for=".v-panel", width=1000)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def said(found: Any, panel: int = 1) -> str:
    return plain(found.inner_text(f".v-panel:nth-child({panel}) .v-status"))


def note(found: Any, panel: int = 1) -> str:
    return plain(found.inner_text(f".v-panel:nth-child({panel}) .v-note"))


def word(side: str, number: int) -> str:
    return f".v-{side} li:nth-child({number})"


def lit(found: Any) -> int:
    return found.locator(".v-dimmed .v-ribbon.v-on").count()


def test_what_is_seen_first(look):
    found = look(page([page_traces.known()], "A title"))
    assert found.inner_text("h1") == "A title"
    assert found.locator(".v-source li").all_inner_texts() == ["मैं", "खाना", "खा", "रहा", "हूँ", "</s>"]
    assert found.locator(".v-target li").all_inner_texts() == ["I", "am", "eating", "food", "</s>"]
    assert found.locator(".v-across svg").is_visible()
    # Kept of each row until it is 90 %: 1, 2, 2, 1 and 5 links.
    assert found.locator(".v-ribbon").count() == 11
    readout = page_traces.known().readout_caption.removeprefix("read-out")
    assert note(found).startswith(f"Read-out{readout}. Showing 91 % of the weight; hidden 9 %.")
    kept = "Ribbons: the largest weights of each target word that hold 90 % of its weight."
    assert kept in note(found)
    assert plain(found.inner_text(".v-slider")).split("\n") == ["Draw the largest", "90 %", "of each word’s weight"]
    assert found.locator(".v-unsure").all_inner_texts() == ["food"]
    dots = "e => [getComputedStyle(e).textDecorationLine, getComputedStyle(e).textDecorationStyle]"
    assert found.eval_on_selector(".v-unsure > span", dots) == ["underline", "dotted"]
    assert not found.locator(".v-static").is_visible()


def test_ribbons_are_as_wide_as_their_weights_and_end_at_their_words(look):
    found = look(page([page_traces.known()]))
    ribbons = found.evaluate(
        "[...document.querySelectorAll('.v-ribbon')].map(g => [+g.style.getPropertyValue('--w'), "
        "+g.lastChild.getAttribute('stroke-width'), g.lastChild.getAttribute('d')])"
    )
    for weight, width, _ in ribbons:
        assert width == pytest.approx(max(1.2, 26 * weight), abs=0.1)
    _, _, widest = max(ribbons)
    ends = [float(n) for n in re.findall(r"[\d.]+", widest)]
    boxes = [found.locator(word(*one)).bounding_box() for one in (("source", 2), ("target", 4))]
    left = found.locator(".v-across svg").bounding_box()["x"]
    for x, box in zip((ends[0], ends[-2]), boxes, strict=True):
        assert box["x"] - 20 <= left + x <= box["x"] + box["width"] + 20


def test_pointing_at_a_word_shows_its_links_and_numbers(look):
    found = look(page([page_traces.known()]))
    found.hover(word("target", 3))
    assert said(found) == SPOKEN
    assert lit(found) == 2
    shares = found.eval_on_selector_all("[data-share]", "all => all.map(e => [e.textContent, e.dataset.share])")
    assert [[text, plain(share)] for text, share in shares] == [["खाना", "61 %"], ["खा", "30 %"]]
    found.wait_for_timeout(200)
    faded = found.eval_on_selector(".v-ribbon:not(.v-on) path:last-child", "e => getComputedStyle(e).strokeOpacity")
    assert float(faded) < 0.3
    found.hover(word("source", 1))
    assert said(found) == "मैं: attended to by I 90 %, </s> 10 % · hidden 2 %"
    found.mouse.move(1, 1)
    assert said(found) == ""
    assert lit(found) == 0


def test_the_keyboard_is_enough(look):
    found = look(page([page_traces.known()]))
    assert found.locator(".v-side [tabindex='0']").count() == 2
    found.focus("select, input[type=range]")
    found.keyboard.press("Tab")
    assert found.evaluate("document.activeElement.innerText") == "मैं"
    found.keyboard.press("ArrowRight")
    found.keyboard.press("ArrowRight")
    found.keyboard.press("ArrowLeft")
    assert said(found).startswith("खाना: attended to by food 95 %, eating 61 %")
    outline = "getComputedStyle(document.activeElement.firstChild)"
    assert found.evaluate(f"[{outline}.outlineStyle, parseFloat({outline}.outlineWidth) >= 2]") == ["solid", True]
    found.keyboard.press("Tab")
    found.keyboard.press("End")
    found.keyboard.press("Home")
    found.keyboard.press("ArrowDown")
    found.keyboard.press("ArrowDown")
    assert said(found) == SPOKEN
    found.keyboard.press("Enter")
    assert found.locator("[aria-selected=true]").all_inner_texts() == ["eating"]
    found.hover(word("source", 1))
    found.keyboard.press("ArrowDown")
    assert said(found) == SPOKEN
    found.keyboard.press("Escape")
    assert found.locator("[aria-selected=true]").count() == 0
    assert said(found).startswith("food: ")
    found.keyboard.press("Shift+Tab")
    assert found.evaluate("document.activeElement.innerText") == "खाना"
    # One place to tab to on each side, wherever one has been.
    assert found.locator(".v-side [tabindex='0']").all_inner_texts() == ["खाना", "food"]


def test_a_touch_pins_and_frees(look):
    found = look(page([page_traces.known()]), 380, has_touch=True)
    found.tap(word("target", 3))
    assert said(found) == SPOKEN
    found.tap(word("target", 3))
    assert found.locator("[aria-selected=true]").count() == 0


def test_what_is_kept_can_be_moved_and_what_is_hidden_is_said(look):
    found = look(page([page_traces.known()]))
    found.fill("input[type=range]", "50")
    assert found.locator(".v-ribbon").count() == 5
    assert plain(found.inner_text(".v-slider output")) == "50 %"
    kept = (0.9 + 0.5 + 0.61 + 0.95 + 0.5) / 5
    assert f"Showing {kept:.0%} of the weight; hidden {1 - kept:.0%}.".replace("%", " %") in note(found)
    found.fill("input[type=range]", "100")
    assert note(found).count("Showing 100 % of the weight; nothing is hidden.") == 1
    assert "that hold" not in note(found)
    # What is told of a word is what is drawn, and how much is not.
    found.hover(word("target", 3))
    assert said(found) == ALL_SPOKEN
    found.fill("input[type=range]", "50")
    found.hover(word("target", 3))
    assert said(found) == "eating: खाना 61 % · hidden 39 % · confidence 80 %"
    assert lit(found) == found.locator("[data-share]").count() == 1
    found.hover(word("source", 3))  # of eating it has 30 %, and 2, 2, 5 and 10 % of others
    assert said(found) == "खा: attended to by no word · hidden 49 %"
    found.check("input[value=heatmap]")  # which leaves out nothing that can be seen
    found.hover(word("target", 3))
    assert said(found) == ALL_SPOKEN


def test_words_or_pieces(look):
    found = look(page([page_traces.known()]))
    found.check("input[value=tokens]")
    assert found.locator(".v-target li").all_inner_texts() == ["I", "am", "eat", "ing", "food", "</s>"]
    found.hover(word("target", 4))
    assert said(found) == "ing: खाना 52 %, खा 40 % · hidden 8 % · confidence 80 %"
    assert found.get_attribute(".v-target", "aria-label") == "translation, 6 tokens"


def test_the_heat_map(look):
    found = look(page([page_traces.known()], view="heatmap"))
    cells = found.eval_on_selector_all(".v-cell text", "all => all.map(e => +e.textContent)")
    assert sorted(cells) == [5, 9, 10, 10, 10, 10, 10, 30, 40, 50, 50, 61, 90, 95]
    assert not found.locator(".v-slider").is_visible()
    assert found.locator(".v-confidence span").all_inner_texts() == [f"{n}\u00a0%" for n in (90, 90, 80, 30, 90)]
    assert "weight in per cent, with numbers from 5 on · confidence" in found.inner_text(".v-legend")
    assert [found.locator(".v-scale span").nth(i).inner_text() for i in range(5)] == ["0", "25", "50", "75", "100"]
    found.hover(word("target", 3))
    assert found.locator(".v-cell.v-on").count() == 3  # all that is said of the word
    dim = "getComputedStyle(document.querySelector('.v-cell:not(.v-on) {}'))"
    assert found.evaluate(dim.format("text") + ".fill") == "rgb(29, 28, 26)"
    shown = found.evaluate(f"[{dim.format('text')}.opacity, {dim.replace(' {}', '')}.opacity]")
    assert shown == ["1", "1"]
    assert found.evaluate(dim.format("rect") + ".opacity") == "0.25"
    band = found.locator(".v-band").bounding_box()
    row = found.locator(word("target", 3)).bounding_box()
    assert abs(band["y"] - row["y"]) < 3
    found.hover(word("source", 5))
    column = found.locator(".v-band").bounding_box()
    head = found.locator(word("source", 5)).bounding_box()
    assert abs(column["x"] - head["x"]) < 3
    svg = found.locator(".v-grid svg").bounding_box()
    found.mouse.move(svg["x"] + 5, svg["y"] + 2.5 * svg["height"] / 5)
    assert said(found) == ALL_SPOKEN


def test_gold_links_are_outlined_in_the_heat_map(look):
    head, foot = page([page_traces.known()]).split('<div class="heedful-view">')
    text = head + figure([page_traces.known()], "heatmap", gold=[frozenset({(1, 2), (2, 2)})])
    found = look(text + foot[foot.rindex("<script>") :])
    gold, cells = (found.locator(one) for one in (".v-gold", ".v-cell.v-on"))
    found.hover(word("target", 3))
    assert (gold.count(), cells.count()) == (2, 3)
    for i in range(2):
        inner, outer = gold.nth(i).bounding_box(), cells.nth(i).bounding_box()
        assert 0 < inner["x"] - outer["x"] < 4
        assert 0 < inner["y"] - outer["y"] < 4
    assert "Outlined: gold links." in note(found)
    found.check("input[value=tokens]")
    assert gold.count() == 0


def test_all_heads_and_one_of_them_large(look):
    found = look(page([page_traces.heads()], view="heads"))
    assert found.locator(".v-thumb").count() == 6
    painted = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v)"
    assert found.eval_on_selector(".v-thumb canvas", f"c => ({painted})(c).length") == 6
    found.click("[data-map='4']")
    assert found.input_value("select") == "head:4"
    assert note(found).startswith("Layer 2, head 2. Showing 100 %")
    found.hover(word("target", 1))
    assert said(found).startswith("I: खा 100 %")
    found.focus("[data-map='4']")
    found.keyboard.press("ArrowUp")  # what has the focus is large, and its number is said
    assert found.input_value("select") == "head:1"
    assert found.inner_text(".v-which") == "Layer 1, head 2: selected"
    found.hover(word("target", 1))
    assert said(found).startswith("I: खाना 100 %")
    found.keyboard.press("ArrowLeft")
    assert found.input_value("select") == "head:0"
    assert found.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 1, head 1"
    assert found.locator(".v-thumb[aria-selected=true]").count() == 1


def test_what_is_no_attention_is_not_called_so(look):
    shares = replace(page_traces.known(), readout=Readout(label="leave-one-out", attention=False))
    found = look(page([shares]))
    assert "the largest shares of each target word that hold 90 % of its shares." in note(found)
    assert re.match(r"leave-one-out\. Showing \d+ % of the shares", note(found), re.I)
    found.hover(word("source", 2))
    assert said(found).startswith("खाना: influence on food 95 %")
    assert "of each word’s shares" in found.inner_text(".v-slider")
    found.check("input[value=heatmap]", force=True)
    assert found.inner_text(".v-legend").endswith(
        "share in per cent, with numbers from 5 on · confidence: probability of the word"
    )
    assert not re.search("weight|look", found.inner_text(".v-panel"))
    both = look(page([page_traces.known(), shares], names=["a", "b"]))
    assert "of each word’s weight or shares" in both.inner_text(".v-slider")


def test_every_choice_is_read_as_the_readout_is(look):
    trace = sample_traces.read_later()
    cells = ".v-cell text"
    found = look(page([trace], view="heatmap", alarms=[[Alarm("flat", 0.9, (), (), "look again")]]))
    numbers = found.locator(cells).all_text_contents()
    assert "alarms" not in note(found)
    for choice, cut in (("head:6", trace.only(2, 3)), ("head:3", trace.only(1, 4)), ("layer:1", trace.only(2))):
        found.select_option("select", choice)
        wanted = [round(100 * float(w)) for row in cut.words() for w in sorted(row)[::-1] if w >= 0.05]
        shown = [int(number) for number in found.locator(cells).all_text_contents()]
        assert np.abs(np.array(shown) - wanted).max() <= 1  # but for the rounding of 16 bits
        assert (found.locator(cells).all_text_contents() == numbers) is (choice == "head:6")
        name = str(cut.readout).split(";")[0] + ", mean of heads" * (choice == "layer:1")
        said_ = f"{name.capitalize()}; read at the next step; weighted by norms. Showing"
        assert note(found).startswith(said_)
        assert "The alarms are those of the read-out." in note(found)


@pytest.mark.parametrize(("how", "shown"), [(View("heads", None, 2, 1), "2, head 1"), (View("heads"), "1, head 1")])
def test_heads_open_with_the_one_that_the_picture_enlarges(look, how, shown):
    trace = page_traces.heads()
    found = look(page([trace], view=how))
    assert note(found).startswith(f"Layer {shown}. ")
    why = heads.choose_head(trace, how.layer, how.head).why
    assert why
    assert found.inner_text(".v-which") == f"Layer {shown}: {why}"
    found.select_option("select", "read")
    assert found.inner_text(".v-which").startswith("Read-out: mean of all layers and heads. Choose a head above")
    found.select_option("select", f"head:{record([trace], how)['traces'][0]['chosen']}")
    assert found.inner_text(".v-which") == f"Layer {shown}: {why}"
    assert f">Layer {shown}<" in view([trace], how)
    assert found.locator(".v-thumb[aria-selected=true]").count() == 1


@pytest.mark.parametrize(
    ("trace", "how", "share"),
    [
        (page_traces.known(), View("braid", 0.3), "30 %"),
        (page_traces.known(), View("heatmap", 0.3), "30 %"),
        (page_traces.known(), View("braid"), "90 %"),
        (page_traces.inside(), View("self"), "50 %"),
        (page_traces.inside(), View("self", 0.8), "80 %"),
    ],
)
def test_ribbons_open_with_the_mass_of_the_picture(look, trace, how, share):
    found = look(page([trace], view=how))
    assert plain(found.text_content(".v-slider output")) == share
    assert found.input_value("input[type=range]") == share.removesuffix(" %")
    assert found.locator(".v-slider").is_visible() == (how.name != "heatmap")


def test_heat_maps_that_do_not_fit_get_smaller_cells_or_stand_below_one_another(look):
    words = "one two three four five six seven eight nine ten eleven"
    trace = page_traces.plain_words(words, words)
    cut_off = "[...document.querySelectorAll('.v-grid')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    tops = "[...document.querySelectorAll('.v-panel')].map(e => e.getBoundingClientRect().top)"
    found = look(page([trace] * 3, view="heatmap", names=["a", "b", "c"]), 1200)
    assert found.evaluate(cut_off) == 0
    assert len(set(found.evaluate(tops))) == 3
    found.check("input[value=braid]")
    assert len(set(found.evaluate(tops))) == 1
    small = page_traces.plain_words("one two", "one two")
    found = look(page([small] * 3, view="heatmap", names=["a", "b", "c"]), 1200)
    assert len(set(found.evaluate(tops))) == 1
    found = look(page([trace], view="heatmap"), 390)
    assert found.evaluate(cut_off) == 0
    assert found.locator(".v-confidence-head").inner_text() == "conf"


def test_a_heat_map_that_is_cut_off_says_so_and_fades(look):
    words = " ".join(f"word{i}" for i in range(40))
    found = look(page([page_traces.plain_words(words, words)], view="heatmap"), 390)
    assert "Continues at the right: scroll sideways." in note(found)
    mask = "getComputedStyle(document.querySelector('.v-grid')).maskImage"
    assert found.evaluate(mask).startswith("linear-gradient")
    found.evaluate("document.querySelector('.v-grid').scrollLeft = 1e6")
    found.wait_for_selector(".v-grid:not(.v-more)")
    assert found.evaluate(mask) == "none"


def test_a_layer_is_the_mean_of_its_heads(look):
    found = look(page([page_traces.heads()]))
    found.select_option("select", "layer:0")
    found.hover(word("target", 1))
    assert said(found).startswith("I: मैं 33 %, खाना 33 %, खा 33 %")
    assert note(found).startswith("Layer 1, mean of heads.")
    found.select_option("select", "read")
    assert note(found).startswith("Read-out: mean of all layers and heads.")


def test_a_sentence_that_looks_at_itself(look):
    found = look(page([page_traces.inside()], view="self"))
    assert found.locator(".v-choices").first.inner_text().split() == ["View", "Braid", "Heat", "map"]
    assert found.locator(".v-label").all_inner_texts() == ["attended to", "attending"]
    found.hover(word("target", 2))
    assert said(found) == "खाना: मैं 100 %"


def test_models_side_by_side(look):
    traces = [replace(page_traces.known(), weights=None), page_traces.known(), page_traces.heads()]
    found = look(page(traces, names=["fixed", "attention", "many"]), 1400)
    assert found.locator(".v-head h2").all_inner_texts() == ["fixed", "attention", "many"]
    tops = [found.locator(f".v-panel:nth-child({i})").bounding_box()["y"] for i in (1, 2, 3)]
    assert len(set(tops)) == 1
    assert note(found, 1) == "This model has no attention: the decoder gets the whole source as one vector."
    found.hover(f".v-panel:nth-child(2) {word('source', 2)}")
    assert said(found, 2).startswith("खाना: attended to by food 95 %")
    assert said(found, 3).startswith("खाना: attended to by")
    # Every word goes into the one vector, or comes out of it, and the word pointed at is followed to it.
    neck = found.locator(".v-panel:nth-child(1) .v-bottleneck")
    assert neck.locator(".v-ribbon").count() == neck.locator("li").count() == 6 + 5
    assert neck.locator(".v-ribbon.v-on").count() == 1
    found.hover(f".v-panel:nth-child(2) {word('target', 2)}")
    assert said(found, 3) == ""
    assert neck.locator(".v-ribbon.v-on").count() == 0


def test_alarms_are_told_and_their_words_marked(look):
    found = look(page([page_traces.plain_words("a b c d e", "w x", [0, 1])]))
    assert found.locator(".v-alarms li").all_inner_texts() == ["little attention on 'd', 'e'"]
    assert found.locator(".v-alarm").all_inner_texts() == ["d", "e"]


def test_hostile_text_is_shown_as_text(look):
    words = "<script>alert(1)</script> </script> <img onerror=alert(1) src=x> <!-- ${alert(1)}"
    made = page_traces.plain_words(words, words)
    found = look(page([made, made], title=words, names=[words, "b"]))
    assert found.locator(".v-panel:nth-child(1) .v-source li").all_inner_texts() == [*words.split(), "</s>"]
    assert found.inner_text("h1") == words
    found.hover(word("target", 1))
    assert said(found).startswith("<script>alert(1)</script>: <script>alert(1)</script> 8")
    assert found.locator("img, .v-panel script").count() == 0


def test_right_to_left_words_stand_from_right_to_left(look):
    found = look(page([page_traces.plain_words("أكل الولد التفاحة", "the boy ate it", [1, 1, 0, 2])]))
    places = [found.locator(word("source", i)).bounding_box()["x"] for i in (1, 2, 3)]
    assert places == sorted(places, reverse=True)
    found.focus(word("source", 1))
    found.keyboard.press("ArrowLeft")
    assert found.evaluate("document.activeElement.innerText") == "الولد"
    places = [found.locator(word("target", i)).bounding_box()["x"] for i in (1, 2, 3)]
    assert places == sorted(places)


def test_a_heat_map_of_a_right_to_left_source_begins_at_the_right(look):
    trace = page_traces.plain_words("أكل الولد التفاحة", "the boy ate it", [1, 1, 0, 2])
    found = look(page([trace], view="heatmap"))
    places = [found.locator(word("source", i)).bounding_box() for i in (1, 2, 3, 4)]
    assert [p["x"] for p in places] == sorted((p["x"] for p in places), reverse=True)
    # The cell of "ate" that is darkest stands below the first word, at the right.
    cells = found.eval_on_selector_all(
        ".v-cell rect",
        "all => all.map(e => [+e.getAttribute('fill-opacity'), e.getBoundingClientRect()].flat())"
        ".filter(([w]) => w > 0.5).map(([w, box]) => [box.x + box.width / 2, box.y])",
    )
    middles = [p["x"] + p["width"] / 2 for p in places]
    assert [x for x, _ in sorted(cells, key=lambda cell: cell[1])][:4] == pytest.approx(
        [middles[1], middles[1], middles[0], middles[2]], abs=1
    )
    found.focus(word("source", 1))
    found.keyboard.press("ArrowLeft")
    assert found.evaluate("document.activeElement.innerText") == "الولد"
    band = found.locator(".v-band").bounding_box()
    assert band["x"] + band["width"] / 2 == pytest.approx(middles[1], abs=2)
    # One that is too wide begins where the sentence does, and says where it goes on.
    far = look(page([page_traces.plain_words("الولد " * 80, "boy " * 80)], view="heatmap"), 500)
    assert far.evaluate("(e => e.scrollLeft + e.clientWidth >= e.scrollWidth - 1)(document.querySelector('.v-grid'))")
    assert "Continues at the left" in note(far)


def test_most_letters_say_where_a_sentence_begins(look):
    found = look(page([page_traces.plain_words("BBC نشرت الخبر الجديد", "the BBC published it", [1, 0, 1, 2])]))
    places = [found.locator(word("source", i)).bounding_box()["x"] for i in (1, 2, 3)]
    assert places == sorted(places, reverse=True)


@pytest.mark.parametrize("view", ["braid", "heatmap", "heads"])
def test_a_phone_has_room_for_it(look, view):
    found = look(page([page_traces.heads()], "A title that is rather long for a phone", view), 360)
    assert found.evaluate("document.documentElement.scrollWidth") <= 360
    outside = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.v-grid, svg, option, optgroup') && "
    outside += "e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    assert found.evaluate(outside) == []
    if view == "braid":
        wide = look(page([page_traces.known()]), 300)
        assert wide.locator(".v-down, .v-across").count() == 1


RIBBONS = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = colour => {
    pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = c => rgb(c).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(getComputedStyle(document.querySelector(".v-panel")).backgroundColor);
  return [...document.querySelectorAll(".v-ribbon path:last-child")].map(p => {
    const [a, b] = [light(getComputedStyle(p).stroke), ground].sort((x, y) => y - x);
    return [+p.parentElement.style.getPropertyValue("--w"), (a + 0.05) / (b + 0.05)];
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(look, scheme):
    trace = page_traces.plain_words("a b c d e f", "q r s t u v", [0, 1, 2, 3, 4, 5])
    found = look(page([trace, page_traces.known()], "Title"), 1200, scheme)
    found.fill("input[type=range]", "100")
    lowest = found.evaluate(browsing.CONTRAST)
    assert len(lowest) > 20
    assert lowest[0][0] >= 4.5, lowest[:3]
    ribbons = found.evaluate(RIBBONS)
    assert min(contrast for _, contrast in ribbons) >= 3
    strong = [contrast for weight, contrast in ribbons if weight > 0.8]
    weak = [contrast for weight, contrast in ribbons if weight < 0.1]
    assert min(strong) > max(weak)


def test_light_and_dark_are_light_and_dark(look):
    grounds = []
    for scheme in ("light", "dark"):
        found = look(page([page_traces.known()]), scheme=scheme)
        colour = found.eval_on_selector(".v-panel", "e => getComputedStyle(e).backgroundColor")
        grounds.append(sum(map(int, re.findall(r"\d+", colour))))
    assert grounds[0] > 600 > 200 > grounds[1]


def test_it_is_printed_as_it_stands_without_its_controls(look):
    found = look(page([page_traces.heads()]), scheme="dark")
    found.click(word("target", 3))
    found.emulate_media(media="print")
    assert not found.locator(".v-controls").is_visible()
    assert not found.locator("select").is_visible()
    assert found.locator(".v-ribbon.v-on").count() > 0
    assert said(found).startswith("eating: ")
    assert found.eval_on_selector("body", "e => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"


def test_a_long_one_is_printed_whole(look):
    found = look(page([page_traces.long(120)]))
    ends = "(() => { const box = s => document.querySelector(s).getBoundingClientRect(); const word = s => "
    ends += "box(`.v-${s} li span`); const drawn = box('.v-ribbon path'); "
    ends += "return [drawn.left - box('.v-source').right, box('.v-target').left - drawn.right] })()"
    found.emulate_media(media="print")
    found.set_viewport_size({"width": 700, "height": 900})
    found.wait_for_timeout(100)
    assert all(abs(gap) < 8 for gap in found.evaluate(ends))  # ribbons reach the words, wherever the columns stand
    texts = "[...document.querySelectorAll('.v-text, .v-scroll')].map(e => e.scrollHeight - e.clientHeight)"
    assert max(found.evaluate(texts)) <= 1
    assert found.eval_on_selector(".v-panel", "e => getComputedStyle(e).breakInside") == "auto"
    short = look(page([page_traces.known()]))
    short.emulate_media(media="print")
    assert short.eval_on_selector(".v-panel", "e => getComputedStyle(e).breakInside") == "avoid"


def test_without_a_script_there_is_the_static_picture(look):
    found = look(page([page_traces.known()]), java_script_enabled=False)
    assert found.locator(".v-static svg").is_visible()


def test_long_ones_scroll_in_a_frame_and_draw_what_is_near(look):
    found = look(page([page_traces.long(300)]))
    assert found.locator(".v-target li").count() == 300
    assert "Showing 90 % of the weight; hidden 10 %." in note(found)
    found.fill("input[type=range]", "100")
    assert "Links under 3 % are too thin to draw." in note(found)
    drawn = found.locator(".v-ribbon").count()
    assert 20 < drawn < 250
    first = found.locator(".v-ribbon path").first.get_attribute("d")
    found.focus(word("target", 1))
    found.keyboard.press("End")
    found.wait_for_function(f"document.querySelector('.v-ribbon path').getAttribute('d') !== {first!r}")
    box = found.locator(word("target", 300)).bounding_box()
    assert 0 < box["y"] < 800
    assert said(found).startswith("</s>: ")
    found.check("input[value=heatmap]")
    assert found.locator(".v-cell").count() < 300


def test_of_weights_that_are_spread_it_says_that_nothing_is_drawn(look):
    made = page_traces.plain_words("w " * 150, "w " * 150)
    even = replace(made, weights=np.full((1, 2, 151, 151), 1 / 151, dtype=np.float32))
    found = look(page([even]))
    assert found.locator(".v-ribbon").count() == 0
    assert "hidden 100 %. No link reaches 3 %" in note(found)
    assert "that hold" not in note(found)
    found.check("input[value=heatmap]")
    assert "No cell reaches 1 %" in note(found)


def test_what_a_file_lacks_is_said(look):
    random = np.random.default_rng(0)
    made = page_traces.plain_words("w " * 150, "w " * 150)
    spread = random.dirichlet(np.full(151, 0.2), size=(1, 2, 151)).astype(np.float32)
    head, foot = page([page_traces.known()]).split('<div class="heedful-view">')
    trace = replace(made, weights=spread)
    found = look(head + figure([trace], "braid", max_bytes=40_000) + foot[foot.rindex("<script>") :])
    read = record([trace], max_bytes=40_000)["traces"][0]["read"]
    told = re.search(r"lacks small weights, none over ([\d.]+) %, together (\d+) % of all weight", note(found))
    assert float(told[1]) == pytest.approx(100 * read["floor"], abs=0.01)
    assert float(told[1]) >= 100 * read["floor"]
    assert int(told[2]) == round(100 * read["lost"]) > 0


def test_two_thousand_tokens_open(look):
    made = page_traces.long(2000)
    text = page([made])
    assert len(text.encode()) < 5_000_000
    found = look(text)
    assert found.locator(".v-source li").count() == 2000
    assert found.evaluate("document.querySelectorAll('*').length") < 12_000


def test_a_page_can_draw_other_data_in_the_same_place(look):
    """As the service does while a translation grows: what was chosen stays."""
    text = page([page_traces.known()])
    found = look(text)
    grown = """data => {
      const root = document.querySelector('.heedful-view');
      const shown = heedful.view(root, data.first);
      document.querySelector('input[value=heatmap]').click();
      shown.update(data.second);
    }"""
    data = {"first": record([page_traces.known()]), "second": record([page_traces.plain_words("a b", "c d")])}
    found.evaluate(grown, data)
    assert found.locator(".v-grid").count() == 1
    assert found.locator(".v-target li").all_inner_texts() == ["c", "d", "</s>"]


def test_a_panel_takes_another_trace_and_all_else_stays(look):
    found = look(page([page_traces.known()]))
    whole = record([page_traces.known(), page_traces.heads()], names=["one", "two"])
    begun = dict(whole["traces"][0], growing=True)
    tokens, words = begun["target"]["tokens"], begun["target"]["words"]
    begun["target"] = {"tokens": tokens[:2], "words": words[:2]}
    begun["read"] = encode_maps(page_traces.known().tokens()[None, :2])._asdict()
    data = {"begun": {**whole, "traces": [begun, whole["traces"][1]]}, "done": whole["traces"][0]}
    found.evaluate(
        "data => { window.shown = heedful.view(document.querySelector('.heedful-view'), data.begun); }", data
    )
    first, second = (f".v-panel:nth-child({i})" for i in (1, 2))
    assert found.locator(f"{first} .v-target li").all_inner_texts() == ["I", "am"]
    # Words keep their places while others come: there is room for as many as the source has.
    place = found.locator(f"{first} {word('target', 1)}").bounding_box()["x"]
    assert place < found.locator(f"{first} {word('source', 2)}").bounding_box()["x"]
    found.check("input[value=heatmap]", force=True)
    found.select_option(f"{second} select", "head:3")
    found.click(f"{first} {word('source', 1)}")
    found.focus(f"{first} {word('target', 2)}")
    found.evaluate("data => shown.replaceTrace(0, data.done)", data)
    assert found.locator(f"{first} .v-target li").all_inner_texts() == ["I", "am", "eating", "food", "</s>"]
    assert found.locator(f"{first} [aria-selected=true]").all_inner_texts() == ["मैं"]
    assert found.evaluate("document.activeElement.innerText") == "am"
    assert found.is_checked("input[value=heatmap]")
    assert found.input_value(f"{second} select") == "head:3"
    # Another sentence has other words: nothing of it is pinned.
    other = record([page_traces.plain_words("a b", "c d")])["traces"][0]
    found.evaluate("trace => shown.replaceTrace(0, trace)", other)
    assert found.locator("[aria-selected=true]").count() == 0
    assert found.locator(f"{first} .v-target li").all_inner_texts() == ["c", "d", "</s>"]


def test_words_over_columns_are_horizontal_where_they_fit(look):
    boxes = """all => all.map((e) => {
      const { left, right } = e.getBoundingClientRect();
      return [getComputedStyle(e).transform === "none", left, right];
    })"""
    for trace in (sample_traces.HINDI, sample_traces.ARABIC):
        found = look(page([trace], view="heatmap"))
        labels = found.eval_on_selector_all(".v-grid .v-source span", boxes)
        assert all(flat for flat, _, _ in labels)
        # Each has a cell for itself: the text is not wider, and does not lie over another.
        wide = found.eval_on_selector_all(
            ".v-grid .v-source span",
            """all => all.map((e) => { const range = document.createRange(); range.selectNodeContents(e);
            return range.getBoundingClientRect().width <= e.parentElement.offsetWidth; })""",
        )
        assert all(wide)
        places = sorted((left, right) for _, left, right in labels)
        assert all(right <= left + 0.5 for (_, right), (left, _) in pairwise(places))
    narrow = look(page([sample_traces.HINDI], view="heatmap"), width=320)
    assert not any(flat for flat, _, _ in narrow.eval_on_selector_all(".v-grid .v-source span", boxes))


def test_unknown_words_are_shown_as_words(look):
    trace = page_traces.known()
    source = replace(trace.source, tokens=("<unk>", *trace.source.tokens[1:]))
    eating = next(one for one in trace.target.words if one.text == "eating")
    target = replace(
        trace.target,
        text=trace.target.text.replace("eating", "<unk>"),
        tokens=tuple("<unk>" if eating.first <= i < eating.last else t for i, t in enumerate(trace.target.tokens)),
        words=tuple(w._replace(text="<unk>") if w.text == "eating" else w for w in trace.target.words),
    )
    found = look(page([replace(trace, source=source, target=target)]))
    assert found.locator(".v-source .v-missing").all_inner_texts() == ["मैं"]
    assert found.locator(".v-target .v-missing").all_inner_texts() == ["खाना"]  # that it looked at most
    assert "Dashed:" in note(found)
    found.check("input[value=tokens]", force=True)
    assert found.locator(".v-source li").all_inner_texts()[0] == "मैं"


# How much of what is behind an image is seen through it, 0 to 255, and the lightest and darkest of its dots.
THROUGH = """() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 300, height: 280 });
  const pen = canvas.getContext("2d");
  const [a, b] = ["#000", "#fff"].map((ground) => {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, 300, 280);
    pen.drawImage(document.images[0], 0, 0);
    return pen.getImageData(2, 2, 296, 276).data;
  });
  const [most, low, high] = [(x, y) => Math.max(x, y), (x, y) => Math.min(x, y), (x, y) => Math.max(x, y)];
  return [a.map((x, i) => Math.abs(x - b[i])).reduce(most), a.reduce(low), a.reduce(high), a[0]];
}"""


def test_a_picture_in_a_notebook_is_readable_in_every_theme(browser):
    """An image has its ground with it, in the colours of its ink, whatever the page around it looks like."""
    image = picture([sample_traces.HINDI]).image()
    for scheme, ground in (("light", 0xFF), ("dark", 0x14)):
        context = browser.new_context(color_scheme=scheme)
        opened = context.new_page()
        for colours in ("background: #fff; color: #000", "background: #111; color: #eee"):
            opened.set_content(f'<body style="{colours}">{image}{image}</body>')
            opened.wait_for_function("() => [...document.images].every((one) => one.complete && one.naturalWidth)")
            assert opened.evaluate("document.querySelectorAll('[id]').length") == 0
            through, darkest, lightest, corner = opened.evaluate(THROUGH)
            assert through <= 2
            assert corner == ground
            assert lightest - darkest > 200  # ink on it
        context.close()
