"""The explorer in a real browser: heads, words, several words, two heads, two texts, finding, and the address.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsing
import explorer_runs
import numpy as np
import pytest

from heedful.draw import explorer
from heedful.draw.model_attention import AttentionView, ModelAttention
from heedful.trace import Text, Word
from heedful.trace.model_attention import AttentionGroup

TROPHY = "The trophy did not fit in the suit|case because it was too big ."


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from browsing.started()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open the page of some runs and wait until all heads are drawn."""
    for opened in browsing.opening(browser, tmp_path):

        def open_(*runs: ModelAttention, width: int = 1200, opened: Any = opened, **options: Any) -> Any:
            how = {name: options.pop(name) for name in AttentionView._fields if name in options}
            found = opened(explorer.page(runs, AttentionView(**how)), width, **options)
            found.set_default_timeout(8000)
            if options.get("java_script_enabled", True):
                found.wait_for_selector(".x-heads[data-drawn]")
            return found

        yield open_


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def said(found: Any, panel: int = 1) -> str:
    return plain(found.inner_text(f".x-panel:nth-child({panel}) .v-status"))


def unit(found: Any, text: str, panel: int = 1) -> Any:
    return found.locator(f".x-panel:nth-child({panel}) .x-unit", has_text=text).first


def chosen(found: Any, panel: int = 1) -> list[str]:
    units: list[str] = found.locator(f".x-panel:nth-child({panel}) .x-unit[aria-selected=true]").all_inner_texts()
    return units


def address(found: Any) -> str:
    return str(found.evaluate("location.hash"))


def shown(found: Any) -> list[str]:
    picks: list[str] = found.eval_on_selector_all(".x-pick", "all => all.map(one => one.value)")
    return picks


def test_what_is_seen_first(look):
    run = explorer_runs.street()
    found = look(run)
    assert found.inner_text("h1") == "tiny-bert"
    about = plain(found.inner_text(".x-about"))
    for fact in ("2 layers × 3 heads", "15 words, 16 tokens", "flash for the CPU", "[CLS] 30 %", "all heads"):
        assert fact in about
    assert found.locator(".x-cell").count() == 6
    first = "{}.{}".format(*run.groups[0].rank()[0])
    assert shown(found) == [first]
    assert found.locator(".x-cell[aria-selected=true]").get_attribute("aria-label").startswith("layer 1, head 1, sharp")
    assert found.inner_text(".x-text").split() == [
        *("[CLS]", "The", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "too"),
        *("tired.", "[SEP]"),
    ]
    colours = """e => {
      const tile = document.querySelector(".x-tile");
      const scale = tile.width / tile.offsetWidth;
      const size = Math.round(e.firstChild.offsetWidth * scale);
      const { data } = tile.getContext("2d").getImageData(e.offsetLeft * scale, e.offsetTop * scale, size, size);
      return new Set(data.filter((_, i) => i % 4 === 3)).size;
    }"""
    assert found.eval_on_selector(".x-cell[data-i='1']", colours) >= 3  # the diagonal, [CLS], the rest
    assert address(found) == ""


def test_a_word_shades_what_it_attends_to(look):
    found = look(explorer_runs.street(), layer=2, head=3)
    unit(found, "it").click()
    assert said(found).startswith("it attends to animal 69 %, tired 4 %, [CLS] 2 %")
    animal = unit(found, "animal")
    assert "x-full" in animal.get_attribute("class")
    assert plain(animal.get_attribute("data-share")) == "69 %"
    level = "e => getComputedStyle(e).getPropertyValue('--w')"
    assert animal.evaluate(level) == "100%"
    assert unit(found, "street").evaluate(level) == "3%"
    assert chosen(found) == ["it"]
    unit(found, "street").hover()
    assert plain(found.inner_text(".x-pointed")) == "street 2 %"
    unit(found, "it").click()
    assert chosen(found) == []
    found.mouse.move(2, 2)
    assert "receives" in said(found)


def test_pointing_at_a_word_is_enough_until_one_is_selected(look):
    found = look(explorer_runs.street(), layer=2, head=3)
    unit(found, "it").hover()
    assert said(found).startswith("it attends to animal 69 %")
    assert chosen(found) == []
    found.mouse.move(2, 2)
    assert "receives" in said(found)


def test_the_other_direction(look):
    found = look(explorer_runs.street(), layer=2, head=3)
    found.check("input[value=by]")
    unit(found, "animal").click()
    assert said(found).startswith("animal is attended to by it 69 %, animal 16 %")
    assert found.get_attribute(".x-panel", "data-direction") == "by"
    assert "direction=by" in address(found)


def test_several_words_by_ctrl_shift_and_dragging(look):
    run = explorer_runs.street()
    found = look(run, layer=1, head=1)
    weights = run.groups[0].weights[0, 0]
    unit(found, "animal").click()
    unit(found, "it").click(modifiers=["Control"])
    assert chosen(found) == ["animal", "it"]
    on_did = (weights[2, 3] + weights[9, 3]) / 2
    assert f"did {on_did:.0%}".replace("%", " %") in said(found)
    assert "rows of 2 words summed and divided by 2" in said(found)
    unit(found, "animal").click(modifiers=["Control"])
    assert chosen(found) == ["it"]
    unit(found, "not").click()
    unit(found, "street").click(modifiers=["Shift"])
    assert chosen(found) == ["not", "cross", "the", "street"]
    unit(found, "because").hover()
    found.mouse.down()
    unit(found, "it").hover()
    unit(found, "was").hover()
    found.mouse.up()
    assert chosen(found) == ["because", "it", "was"]
    found.keyboard.press("Escape")
    unit(found, "was").focus()
    found.keyboard.press("Escape")
    assert chosen(found) == []
    found.check("input[value=by]")
    unit(found, "animal").click()
    unit(found, "street").click(modifiers=["Control"])
    assert "columns of 2 words summed" in said(found)


def test_words_or_pieces(look):
    run = explorer_runs.street()
    found = look(run, layer=1, head=1)
    unit(found, "tired").click()
    on_end = (run.groups[0].weights[0, 0, 12:14, 14]).mean()
    assert f". {on_end:.0%}".replace("%", " %") in said(found)
    found.check("input[value=tokens]")
    assert found.locator(".x-unit").count() == 16
    assert chosen(found) == ["ti", "red"]
    assert found.get_attribute(".x-text", "aria-label") == "text, 16 tokens"
    unit(found, "red").click()
    assert said(found).startswith("red attends to")


def test_sinks_are_set_apart_and_the_rest_is_scaled(look):
    run = explorer_runs.street()
    found = look(run, layer=1, head=1, word="animal")
    row = run.groups[0].weights[0, 0, 2]
    assert f"did {row[3]:.0%}".replace("%", " %") in said(found)
    found.check("input[value=apart]")
    assert f"did {row[3] / (1 - row[0]):.0%}".replace("%", " %") in said(found)
    assert f"set apart: [CLS] {row[0]:.0%}".replace("%", " %") in said(found)
    assert "x-apart" in unit(found, "[CLS]").get_attribute("class")
    assert unit(found, "[CLS]").get_attribute("data-share") is None
    assert "sinks=apart" in address(found)
    found.check("input[value=heatmap]")
    assert "[CLS]" not in found.locator(".v-grid .v-source li").all_inner_texts()
    assert "[CLS]" in found.locator(".v-grid .v-target li").all_inner_texts()


def test_with_sinks_apart_a_word_has_one_row_in_both_directions_and_in_the_heat_map(look):
    text = explorer_runs.text_of(explorer_runs.words("is bad un|happi|ness"), end="")
    weights = np.zeros((1, 1, 6, 6), dtype=np.float32)
    weights[..., :3, 0] = 1
    for token, row in {3: (0.98, 0.02, 0), 4: (0.2, 0, 0.8), 5: (0.98, 0.02, 0)}.items():
        weights[0, 0, token, :3] = row
    group = AttentionGroup.from_weights("self", (text, text), ("a",), "math", weights)
    found = look(ModelAttention("m", [group]), layer=1, head=1, word="unhappiness", sinks="apart")
    assert said(found).startswith("unhappiness attends to bad 95 %, is 5 %")
    found.check("input[value=by]")
    unit(found, "bad").click()
    assert said(found).startswith("bad is attended to by unhappiness 95 %")
    unit(found, "is").click()
    assert said(found).startswith("is is attended to by unhappiness 5 %")
    assert group.trace(1, 1, sinks="apart").words()[3, 1] == pytest.approx(0.95, abs=0.005)
    found.check("input[value=heatmap]")
    shades = (
        "Array.from(document.querySelectorAll('.v-grid rect[fill-opacity]'), (c) => +c.getAttribute('fill-opacity'))"
    )
    assert sorted(found.evaluate(shades)) == pytest.approx([0.048, 0.952], abs=0.002)


def test_prompt_and_generated_tokens_are_apart(look):
    found = look(explorer_runs.generated())
    assert found.locator(".x-part").all_inner_texts() == ["prompt", "generated"]
    assert found.locator(".x-generated .x-unit").all_inner_texts() == ["there", "was", "light"]
    assert found.is_checked("input[value=apart]")  # the sink has over half of the weight
    unit(found, "light").click()
    assert "set apart: Once" in said(found)


def test_heads_by_mouse_and_keys(look):
    found = look(explorer_runs.street())
    found.click(".x-cell[data-i='5']")
    assert shown(found) == ["2.3"]
    assert found.evaluate("document.activeElement.dataset.i") == "5"
    found.keyboard.press("ArrowUp")
    assert shown(found) == ["1.3"]
    found.keyboard.press("ArrowLeft")
    assert shown(found) == ["1.2"]
    found.keyboard.press("Home")
    assert shown(found) == ["1.1"]
    found.keyboard.press("ArrowUp")
    assert shown(found) == ["1.1"]
    assert found.locator(".x-cell[tabindex='0']").count() == 1
    found.keyboard.press("Shift+ArrowRight")
    found.keyboard.press("Shift+Enter")
    assert shown(found) == ["1.1", "1.2"]
    found.select_option(".x-panel:nth-child(2) .x-pick", "mean")
    assert shown(found) == ["1.1", "mean"]


def test_heads_are_ranked_by_a_measure(look):
    run = explorer_runs.street()
    found = look(run)
    found.select_option(".x-heads select", "entropy")
    found.check("input[value=rank]")
    order = "all => all.map(e => [+e.style.order, e.querySelector('.x-name').textContent]).sort((a, b) => a[0] - b[0])"
    ranked = [name for _, name in found.eval_on_selector_all(".x-cell", order)]
    assert ranked == ["{}.{}".format(*at) for at in run.groups[0].rank("entropy")]
    places = found.eval_on_selector_all(".x-cell", "all => all.map(e => [e.getBoundingClientRect().x, e.textContent])")
    assert [text[:3] for _, text in sorted(places)] == ranked
    value = run.groups[0].measures().entropy[1, 2]
    assert found.inner_text(".x-cell[data-i='5'] .x-value") == f"{value:.2f}"
    found.focus(f".x-cell[data-i='{3 * (int(ranked[0][0]) - 1) + int(ranked[0][2]) - 1}']")
    found.keyboard.press("ArrowRight")
    assert shown(found) == [ranked[1]]
    assert "measure=entropy" in address(found)
    assert "order=rank" in address(found)


def test_heads_are_ranked_by_the_selected_word(look):
    found = look(explorer_runs.street(), word="it")
    assert shown(found) == ["2.3"]
    found.wait_for_function("document.querySelector('.x-cell[data-i=\"5\"] .x-value').textContent.startsWith('69')")
    assert found.eval_on_selector(".x-cell[data-i='5']", "e => e.style.order") == "0"
    assert found.inner_text(".x-cell[data-i='5'] .x-word") == "animal"
    assert found.inner_text(".x-cell[data-i='0'] .x-word") == "was"
    unit(found, "street").click()
    found.wait_for_function("document.querySelector('.x-cell[data-i=\"5\"]').style.order !== '0'")


def test_two_heads_side_by_side(look):
    found = look(explorer_runs.street(), layer=2, head=3, width=1800)
    found.click("text=Compare")
    assert found.locator(".x-panel").count() == 2
    found.click(".x-cell[data-i='0']")
    assert shown(found) == ["2.3", "1.1"]
    unit(found, "it").click()
    assert said(found).startswith("it attends to animal 69 %")
    assert said(found, 2).startswith("it attends to was 51 %")
    boxes = [found.locator(".x-panel").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert "heads=2.3,1.1" in address(found)
    found.click(".x-cell[data-i='1']", modifiers=["Shift"])
    assert shown(found) == ["2.3", "1.2"]
    found.click(".x-panel:nth-child(2) >> text=Close")
    assert shown(found) == ["2.3"]


def test_two_texts_side_by_side(look):
    found = look(explorer_runs.street(), explorer_runs.street(text=TROPHY), word="it")
    assert shown(found) == ["2.3", "2.3"]
    assert chosen(found) == chosen(found, 2) == ["it"]
    assert said(found, 2).startswith("it attends to trophy 69 %")
    unit(found, "big", 2).click()
    assert (chosen(found), chosen(found, 2)) == (["it"], ["big"])
    found.click(".x-cell[data-i='1']")
    assert shown(found) == ["1.2", "1.2"]
    found.select_option(".x-panel:nth-child(2) .x-pick", "1.3")
    assert shown(found) == ["1.2", "1.3"]
    assert "heads=1.2,2:1.3" in address(found)
    assert "tokens2=" in address(found)
    found.reload()
    assert shown(found) == ["1.2", "1.3"]
    assert (chosen(found), chosen(found, 2)) == (["it"], ["big"])


def test_cross_attention_has_two_texts(look):
    found = look(explorer_runs.translation())
    assert found.is_checked("input[value=cross]")
    assert "eager" in found.inner_text(".x-about")
    assert found.locator("input[value=by]").count() == 0
    unit(found, "eating").click()
    assert said(found).startswith("eating attends to ")
    lit = found.locator(".x-side").nth(1).locator(".x-full")
    assert lit.count() >= 1
    assert found.locator(".x-side").nth(0).locator(".x-lit").count() == 0
    unit(found, "खाना").click()
    assert said(found).startswith("खाना is attended to by ")
    assert chosen(found) == ["खाना"]
    found.check("input[value=encoder]")
    assert chosen(found) == ["खाना"]
    assert said(found).startswith("खाना attends to खाना")
    assert found.locator(".x-side").count() == 1
    found.check("input[value=decoder]")
    assert chosen(found) == []
    assert found.inner_text(".x-text").startswith("I am eating")


def test_mean_and_rollout(look):
    run = explorer_runs.street()
    found = look(run, word="it", mean=True)
    assert shown(found) == ["mean"]
    group = run.groups[0]
    assert f"was {group.matrix()[9, 10]:.0%}".replace("%", " %") in said(found)
    found.select_option(".x-pick", "2.*")
    assert f"animal {group.matrix(2)[9, 2]:.0%}".replace("%", " %") in said(found)
    found.select_option(".x-pick", "rollout")
    assert f"it {group.matrix(rollout=True)[9, 9]:.0%}".replace("%", " %") in said(found)
    found.goto(found.url.split("#")[0] + "#heads=*.3")
    assert shown(found) == ["*.3"]
    assert f"animal {group.matrix(head=3)[9, 2]:.0%}".replace("%", " %") in said(found)


def test_heat_map_and_braid(look):
    found = look(explorer_runs.street(), layer=2, head=3, view="heatmap")
    assert found.locator(".v-grid .v-target li").count() == 15
    found.hover(".v-target li:nth-child(10)")
    assert said(found).startswith("it attends to animal 69 %")
    found.click(".v-target li:nth-child(10)")
    assert "tokens=10" in address(found)
    found.click(".v-source li:nth-child(3)")
    assert said(found).startswith("animal is attended to by it 69 %")
    assert found.is_checked("input[value=by]")
    found.check("input[value=braid]")
    assert found.locator(".v-ribbon").count() > 15
    assert found.locator(".v-source [aria-selected=true]").all_inner_texts() == ["animal"]
    found.fill("input[type=range]", "5")
    few = found.locator(".v-ribbon").count()
    assert few == 15
    found.check("input[value=text]")
    assert chosen(found) == ["animal"]


def test_find(look):
    found = look(explorer_runs.street())
    found.fill("input[type=search]", "the")
    assert found.inner_text(".x-count") == "1 of 2"
    assert found.locator(".x-found").all_inner_texts() == ["The"]
    found.press("input[type=search]", "Enter")
    assert found.locator(".x-found").all_inner_texts() == ["the"]
    found.press("input[type=search]", "Enter")
    assert found.locator(".x-found").all_inner_texts() == ["The"]
    found.click("[aria-label='previous place']")
    assert found.inner_text(".x-count") == "2 of 2"
    found.click("[aria-label='select the found word']")
    assert chosen(found) == ["the"]
    found.fill("input[type=search]", "cross the")
    assert found.locator(".x-found").all_inner_texts() == ["cross", "the"]
    found.fill("input[type=search]", "[sep]")
    assert found.locator(".x-found").all_inner_texts() == ["[SEP]"]
    found.fill("input[type=search]", "zebra")
    assert found.inner_text(".x-count") == "not found"
    found.press("input[type=search]", "Escape")
    assert found.locator(".x-found").count() == 0


def test_the_address_restores_all_and_goes_back(look):
    found = look(explorer_runs.street())
    start = found.url
    found.click(".x-cell[data-i='5']")
    unit(found, "it").click()
    found.check("input[value=tokens]")
    found.check("input[value=braid]")
    found.check("input[value=braid]")
    told = address(found)
    assert told == "#view=braid&by=tokens&heads=2.3&tokens=10"
    found.go_back()
    assert address(found) == "#by=tokens&heads=2.3&tokens=10"
    assert found.is_checked("input[value=text]")
    found.go_back()
    assert found.is_checked("input[value=words]")
    found.go_back()
    assert chosen(found) == []
    found.go_back()
    assert shown(found) == ["1.1"]
    found.go_forward()
    assert shown(found) == ["2.3"]
    found.goto("about:blank")
    found.goto(start + told)
    assert shown(found) == ["2.3"]
    assert found.locator(".v-target [aria-selected=true]").all_inner_texts() == ["it"]
    for wrong in ("#heads=9.9&tokens=99&view=x&by=__proto__&kind=cross", "#%&&==;tokens=1-", "#tokens=7:1&heads=,,"):
        found.goto("about:blank")
        found.goto(start + wrong)
        assert shown(found) == ["1.1"]
        assert chosen(found) == []


def test_the_keyboard_is_enough(look):
    found = look(explorer_runs.street(), layer=2, head=3)
    assert found.locator(".x-unit[tabindex='0']").count() == 1
    unit(found, "[CLS]").focus()
    for _ in range(9):
        found.keyboard.press("ArrowRight")
    assert found.evaluate("document.activeElement.textContent") == "it"
    found.keyboard.press("Enter")
    assert said(found).startswith("it attends to animal 69 %")
    outline = "getComputedStyle(document.activeElement)"
    assert found.evaluate(f"[{outline}.outlineStyle, parseFloat({outline}.outlineWidth) >= 2]") == ["solid", True]
    found.keyboard.press("Shift+ArrowRight")
    assert chosen(found) == ["it", "was"]
    found.keyboard.press("Home")
    assert found.evaluate("document.activeElement.textContent") == "[CLS]"
    found.keyboard.press("Control+Enter")
    assert chosen(found) == ["[CLS]", "it", "was"]
    found.keyboard.press("Escape")
    assert chosen(found) == []
    assert found.locator(".x-unit[tabindex='0']").all_inner_texts() == ["[CLS]"]


def test_touch_on_a_narrow_screen(look):
    found = look(explorer_runs.street(), layer=2, head=3, width=390, has_touch=True)
    assert found.evaluate("document.documentElement.scrollWidth") == 390
    unit(found, "it").tap()
    assert said(found).startswith("it attends to animal 69 %")
    found.tap("text=Several words")
    unit(found, "was").tap()
    assert chosen(found) == ["it", "was"]
    found.tap(".x-cell[data-i='1']")
    assert shown(found) == ["1.2"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(look, scheme):
    found = look(explorer_runs.street(), layer=2, head=3, word="it", scheme=scheme)
    found.wait_for_timeout(200)
    (lowest, text), *_ = found.evaluate(browsing.CONTRAST)
    assert lowest >= 4.5, text


def test_screen_readers_are_told_what_there_is(look):
    found = look(explorer_runs.street(), layer=2, head=3, word="it")
    snapshot = found.locator("body").aria_snapshot()
    for name in ('listbox "2 layers of 3 heads"', 'listbox "text, 15 words"', 'option "it" [selected]', "status"):
        assert name in snapshot
    assert 'option "layer 2, head 3, selected word 69' in plain(snapshot)


def test_without_scripts_there_is_a_picture(look):
    found = look(explorer_runs.street(), view="heatmap", java_script_enabled=False)
    assert found.locator("noscript svg, .v-static svg").first.is_visible()


def test_printing_shows_the_text_without_controls(look):
    found = look(explorer_runs.street(), word="it")
    found.emulate_media(media="print")
    assert not found.locator(".x-controls").is_visible()
    assert not found.locator(".x-heads").is_visible()
    assert unit(found, "animal").is_visible()
    assert found.inner_text(".x-printed") == "Layer 2, head 3"


def test_hostile_text_is_only_text(look):
    one = explorer_runs.text_of([["</script><img src=x onerror=alert(1)>"], ["b"]])
    n = len(one.tokens)
    weights = np.full((1, 1, n, n), 1 / n, dtype=np.float32)
    groups = [AttentionGroup.from_weights("self", (one, one), ("<b>",), "<i>x</i>", weights)]
    found = look(ModelAttention("<b>bold</b>", groups))
    assert found.locator("img, b > b, i").count() == 0
    assert found.inner_text("h1") == "<b>bold</b>"
    unit(found, "onerror").click()
    assert "<img src=x" in said(found)
    found.check("input[value=heatmap]")
    found.check("input[value=braid]")


SCRIPTS = {
    "devanagari": ("जान|वर ने सड़क पार नहीं की क्योंकि वह थका था ।", " "),
    "arabic": ("لم يعبر الحيوان الشا|رع لأنه كان متعبا", " "),
    "chinese": ("动物 没有 过 马路 因为 它 太 累 了 。", ""),
    "emoji": ("I 😀 love 👩‍👩‍👧 emo|ji 🎉🎉 !", " "),
}


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_scripts(look, name):
    words, space = SCRIPTS[name]
    one = explorer_runs.text_of(explorer_runs.words(words), space=space)
    n = len(one.tokens)
    weights = np.stack([np.stack([explorer_runs.rows(n, n, 0.6, shift) for shift in (1, -1)])])
    run = ModelAttention(name, [AttentionGroup.from_weights("self", (one, one), ("a",), "math", weights)])
    found = look(run, layer=1, head=2)
    assert found.get_attribute(".x-text", "dir") == ("rtl" if name == "arabic" else "ltr")
    assert found.inner_text(".x-text") == f"[CLS] {one.text} [SEP] "
    found.locator(".x-unit").nth(3).click()
    assert said(found).startswith(f"{one.words[3].text} attends to {one.words[2].text} 6")
    found.locator(".x-unit").nth(3).focus()
    found.keyboard.press("ArrowRight")
    after = one.words[2 if name == "arabic" else 4].text
    assert found.evaluate("document.activeElement.textContent") == after


def test_tokens_that_are_bytes_of_one_character(look):
    tokens = ("a", "<0xF0>", "<0x9F>", "b")
    spans = ((0, 1), (2, 3), (2, 3), (4, 5))
    words = (Word("a", 0, 1, 0, 1), Word("😀", 2, 3, 1, 3), Word("b", 4, 5, 3, 4))
    one = Text("a 😀 b", tokens, spans, words)
    groups = [
        AttentionGroup.from_weights("self", (one, one), ("a",), "math", explorer_runs.rows(4, 4, 0.5)[None, None])
    ]
    found = look(ModelAttention("bytes", groups))
    assert found.locator(".x-unit").all_inner_texts() == ["a", "😀", "b"]
    found.check("input[value=tokens]")
    assert found.locator(".x-unit").all_inner_texts() == list(tokens)


def test_a_long_text(look):
    run = explorer_runs.long(4000)
    found = look(run)
    about = found.inner_text(".x-about")
    assert "of 2 heads the 8 largest weights of every token" in about
    assert "Other weights are not in it" in about
    assert found.locator(".x-unit").count() < 1500
    found.keyboard.press("Tab")
    found.fill("input[type=search]", ".")
    assert found.inner_text(".x-count") == f"1 of {4000 // 30}"
    found.press("input[type=search]", "Shift+Enter")
    # The first match is far away now; its mark is removed in one of the next frames.
    found.wait_for_function("document.querySelectorAll('.x-found').length === 1")
    last = found.locator(".x-found")
    assert last.get_attribute("data-i") == "3989"
    frame = found.locator(".x-text-scroll").bounding_box()
    box = last.bounding_box()
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]
    last.click()
    top = run.groups[0].top[1, 1]
    strongest = run.groups[0].target.tokens[top.positions[3989, 0]]
    assert said(found).startswith(f". attends to {strongest} {top.weights[3989, 0]:.0%}".replace("%", " %"))
    assert "not in this file 10 %" in said(found)
    found.locator(".x-go").nth(3).click()  # scrolls to that word
    goal = found.locator(".x-go").nth(3).inner_text()
    assert goal in found.locator(".x-unit[data-share]").all_inner_texts()
    last.focus()
    found.keyboard.press("End")
    assert found.evaluate("document.activeElement.dataset.i") == "3999"
    found.keyboard.press("ArrowUp")
    assert 3960 < int(found.evaluate("document.activeElement.dataset.i")) < 3999
    # A head of which there are block means only.
    found.click(".x-cell[data-i='5']")
    assert "means of blocks of about 83 tokens" in plain(found.inner_text(".v-note"))
    assert "the shaded blocks" in said(found)
    found.check("input[value=heatmap]")
    canvas = found.locator(".x-blocks")
    size = canvas.bounding_box()
    found.mouse.move(size["x"] + 2, size["y"] + 2)
    assert found.inner_text(".x-pointed").startswith("tokens 1 to 83 attend to tokens 1 to 83 with ")
    assert found.locator("input[value=braid]").count() == 0


def test_a_line_divides_prompt_and_generated_words_in_the_heat_map(look):
    run = explorer_runs.generated()
    found = look(run)
    found.check("input[value=heatmap]")
    prompt = sum(word.first < run.groups[0].generated for word in run.groups[0].target.words)
    path = found.locator(".v-divider").get_attribute("d")
    high = float(found.locator(".v-grid svg").get_attribute("height")) / len(run.groups[0].target.words)
    assert path.startswith(f"M0 {prompt * high:g}H")
    assert "V" in path
    assert "between prompt and generated" in found.inner_text(".v-legend")


def test_nothing_after_a_token_is_shaded_by_blocks_of_causal_attention(look):
    found = look(explorer_runs.long(4000))
    found.click(".x-cell[data-i='5']")
    found.locator(".x-unit[data-i='40']").click()
    assert "the shaded blocks" in said(found)
    units = (found.locator(f".x-unit[data-i='{i}']") for i in (39, 42))
    before, after = (unit.evaluate("e => e.style.getPropertyValue('--w')") for unit in units)
    assert before not in ("", "0%")
    assert after in ("", "0%")


def test_the_element_alone_and_twice_in_a_page(browser, tmp_path):
    """An empty page around it stands for a notebook: nothing is asked for, and each works by itself."""
    one = explorer.element([explorer_runs.street()], AttentionView(layer=2, head=3))
    for text in (one, one + explorer.element([explorer_runs.generated()], AttentionView())):
        for opened in browsing.opening(browser, tmp_path):
            found = opened(f'<!DOCTYPE html><meta charset="utf-8"><title>n</title><body>{text}', 900)
            frames = [frame for frame in found.frames if frame != found.main_frame]
            for frame in frames:
                frame.wait_for_selector(".x-heads[data-drawn]")
            assert len(frames) == text.count("<iframe")
            frames[0].locator(".x-unit", has_text="it").first.click()
            assert plain(frames[0].inner_text(".v-status")).startswith("it attends to animal 69 %")
            assert found.locator("img").first.is_hidden()
            assert "#" not in found.url
            heights = [frame.evaluate("[innerHeight, document.documentElement.scrollHeight]") for frame in frames]
            for inner, whole in heights:
                assert whole <= inner + 260
                assert inner <= whole + 260
    # The policy of the frames in which VS Code shows what a cell returns.
    rules = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; child-src data:"
    meta = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{rules}">'
    for opened in browsing.opening(browser, tmp_path):
        found = opened(f"<!DOCTYPE html>{meta}<title>n</title><body>{one}", 900)
        found.frames[1].wait_for_selector(".x-heads[data-drawn]")
    for opened in browsing.opening(browser, tmp_path):
        bare = one.replace("<iframe", "<template").replace("</iframe", "</template")  # as where frames are removed
        found = opened(f'<!DOCTYPE html><meta charset="utf-8"><title>n</title><body>{bare}', 900)
        assert found.locator("img").first.is_visible()


def test_runs_with_different_kinds_of_attention(look):
    found = look(explorer_runs.street(), explorer_runs.translation())
    assert found.locator("input[data-key=kind]").count() == 4
    assert "no attention of this kind" in found.inner_text(".x-panel:nth-child(2)")
    found.check("input[value=cross]")
    assert "no attention of this kind" in found.inner_text(".x-panel:nth-child(1)")
    unit(found, "eating", 2).click()
    assert said(found, 2).startswith("eating attends to")
    found.check("input[value=self]")
    unit(found, "it").click()
    assert chosen(found) == ["it"]


def test_controls_keep_the_focus(look):
    found = look(explorer_runs.translation())
    for control in (".x-pick", ".x-heads select", "input[value=rank]", "input[value=decoder]", "input[value=tokens]"):
        found.focus(control)
        if "input" in control:
            found.keyboard.press("Space")
        else:
            found.select_option(control, index=2)
        assert found.evaluate("c => document.activeElement === document.querySelector(c)", control), control


def test_keys_in_a_heat_map(look):
    found = look(explorer_runs.street(), layer=2, head=3, view="heatmap")
    found.focus(".v-target li[tabindex='0']")
    for _ in range(9):
        found.keyboard.press("ArrowDown")
    assert said(found).startswith("it attends to animal 69 %")
    found.keyboard.press("Enter")
    assert found.locator(".v-target [aria-selected=true]").all_inner_texts() == ["it"]
    assert "tokens=10" in address(found)
    found.keyboard.press("Escape")
    assert found.locator(".v-target [aria-selected=true]").count() == 0
