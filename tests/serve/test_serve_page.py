"""The page of `heedful serve` in a real browser, against a real service.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import re
from typing import Any

from page_service import Running, Visit, browser, done, plain, said, service, visit, word

__all__ = ["browser", "service", "visit"]  # fixtures

# What was drawn while a translation grew: words of the text, words and ribbons of the figure.
WATCH = """() => {
  window.seen = [];
  const count = (one) => document.querySelectorAll(one).length;
  new MutationObserver(() => {
    if (document.getElementById("result").hidden) return;
    seen.push([count(".t-word"), count(".v-target li"), count(".v-ribbon")]);
  }).observe(document.getElementById("figure"), { childList: true, subtree: true });
}"""


def test_type_and_see(visit: Visit) -> None:
    page = visit("attention")
    assert page.locator("#empty").is_visible()
    assert not page.locator("#result").is_visible()
    page.locator("#text").press_sequentially("a b c")
    done(page, "A B C")
    assert not page.locator("#empty").is_visible()
    assert page.locator(".v-source li").all_inner_texts() == ["a", "b", "c", "</s>"]
    assert page.locator(".v-target li").all_inner_texts() == ["A", "B", "C", "</s>"]
    assert page.locator(".v-ribbon").count() >= 4
    assert re.fullmatch(r"confidence \d+ %", plain(page.inner_text(".t-confidence")))
    assert page.inner_text("#spoken") == "A B C"
    page.fill("#text", "")
    page.wait_for_selector("#empty", state="visible")
    assert not page.locator("#result").is_visible()


def test_what_the_page_may_do_is_said_in_its_header(visit: Visit, service: Running) -> None:
    page = visit("attention")
    answer = page.goto(service.url)
    rules = answer.headers["content-security-policy"]
    assert rules.startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self';"
    )
    assert "unsafe" not in rules


def test_the_translation_grows_token_by_token_and_the_figure_with_it(visit: Visit) -> None:
    page = visit("attention")
    page.evaluate(WATCH)
    page.fill("#text", "a b c d e")
    done(page, "A B C D E")
    seen = page.evaluate("seen")
    words = [count for count, _, _ in seen]
    assert words == sorted(words)
    assert set(words) == {0, 1, 2, 3, 4, 5}
    # The figure is never far from the text: when there are three words, three or four are drawn, with their ribbons.
    for written in (1, 2, 3, 4):
        drawn = [(items, ribbons) for count, items, ribbons in seen if count == written]
        assert any(items == written and ribbons >= written for items, ribbons in drawn)


def test_no_motion_where_none_is_wanted(visit: Visit) -> None:
    page = visit("attention", reduced_motion="reduce")
    page.evaluate(WATCH)
    page.fill("#text", "a b c d e")
    done(page, "A B C D E")
    assert page.inner_text("#spoken").endswith("A B C D E")
    assert page.eval_on_selector(".t-text", "e => getComputedStyle(e, '::after').animationName") == "none"


def test_pointing_on_either_side(visit: Visit) -> None:
    page = visit("attention")
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.hover(word(2))
    assert said(page).startswith("B: b ")
    assert page.locator(".v-target .v-active").all_inner_texts() == ["B"]
    shares = page.eval_on_selector_all(
        ".v-source [data-share]", "all => all.map(e => [parseInt(e.dataset.share), e.innerText])"
    )
    assert max(shares)[1] == "b"
    assert page.locator(".t-active").all_inner_texts() == ["B"]
    page.hover(".v-source li:nth-child(3)")
    assert said(page).startswith("c: attended to by C ")
    assert "C" in page.locator(".t-partner").all_inner_texts()
    assert page.locator(".t-active").count() == 0
    page.check("input[value=tokens]", force=True)
    page.hover(word(1))
    assert said(page).startswith("▁A: ▁a ")
    page.mouse.move(1, 1)
    assert said(page) == ""


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit("attention")
    focused = "document.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.id") == "text"
    page.keyboard.type("a b c")
    done(page, "A B C")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(f"{focused}.matches('.t-word')"):
            break
    assert page.evaluate(f"{focused}.textContent") == "A"
    assert "confidence" in page.evaluate(f"{focused}.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("B: b ")
    outline = f"getComputedStyle({focused})"
    assert page.evaluate(f"[{outline}.outlineStyle, parseFloat({outline}.outlineWidth) >= 2]") == ["solid", True]
    page.keyboard.press("Enter")
    assert page.evaluate(f"[{focused}.tagName, {focused}.value]") == ["INPUT", "B"]
    page.keyboard.press("Escape")
    assert page.evaluate(f"{focused}.textContent") == "B"
    assert page.inner_text(".t-text") == "A B C"
    page.keyboard.press("F2")
    page.keyboard.type("H")
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    done(page)
    assert page.inner_text(".t-text").startswith("A H")
    assert page.evaluate(f"{focused}.textContent") == "H"  # one goes on from where one was
    # Then what can be chosen in the figure, and what can be saved, each reached by Tab.
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"{focused}.textContent || {focused}.value"))
    assert {"Undo", "Alternatives", "a", "A", "SVG", "PNG", "HTML"} <= reached
    # One place to tab to among the words, wherever one has been.
    assert page.locator(".t-word[tabindex='0']").count() == 1


def test_alternatives_are_found_and_shown(visit: Visit) -> None:
    page = visit("attention")
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.click("text=Alternatives")
    page.wait_for_selector(".t-alternatives button")
    texts = page.locator(".t-alternatives button span").all_inner_texts()
    assert texts[0] == "A B C"
    assert len(set(texts)) == len(texts) == 5
    assert page.locator(".t-alternatives [aria-pressed=true]").all_inner_texts()[0].startswith("A B C")
    assert (
        page.locator(".t-alternatives li:nth-child(2) b").count()
        + page.locator(".t-alternatives li:nth-child(3) b").count()
        > 0
    )
    page.click(".t-alternatives li:nth-child(2) button")
    done(page, texts[1])
    assert page.locator(".v-target li").all_inner_texts()[:-1] == texts[1].split()
    assert page.locator(".t-alternatives [aria-pressed=true] span").all_inner_texts() == [texts[1]]
    # What is open stays open, and follows the text.
    page.fill("#text", "h g")
    done(page, "H G")
    page.wait_for_function("() => document.querySelector('.t-alternatives button span')?.textContent === 'H G'")


def test_a_word_is_changed_and_the_model_goes_on(visit: Visit) -> None:
    page = visit("attention")
    asked: list[Any] = []
    page.on("request", lambda one: one.url.endswith("/v1/stream") and asked.append(one.post_data_json))
    page.fill("#text", "a b c d")
    done(page, "A B C D")
    page.click(word(2))
    assert page.locator(".t-discarded").all_inner_texts() == ["C", "D"]
    page.keyboard.type("G")
    page.click("text=Go on from here")
    page.wait_for_selector(".t-edited")
    done(page)
    assert asked[-1]["prefix"] == "A G"
    text = page.inner_text(".t-text")
    assert text.startswith("A G")
    assert text != "A B C D"
    assert page.locator(".t-edited").all_inner_texts() == ["G"]
    assert page.locator(".v-target li").all_inner_texts()[:2] == ["A", "G"]
    assert page.locator(".t-word.t-unsure.t-edited").count() == 1  # the model would not have written it
    page.click("text=Undo")
    done(page, "A B C D")
    assert page.locator(".t-edited").count() == 0
    page.click(word(3))
    page.click("text=Leave it")
    assert page.evaluate("document.activeElement.textContent") == "C"
    assert page.inner_text(".t-text") == "A B C D"
    assert "prefix" not in asked[-1]
    # Another text closes the field, and whoever types goes on typing.
    page.click(word(1))
    page.locator("#text").press_sequentially(" e")
    done(page, "A B C D E")
    assert page.locator(".t-field").count() == 0
    assert page.evaluate("document.activeElement.id") == "text"


def test_models_side_by_side(visit: Visit) -> None:
    page = visit()
    page.fill("#text", "a b c")
    done(page, "A B C", panel=2)
    done(page, "A B C", panel=3)
    assert page.locator(".v-head h2").all_inner_texts() == ["fixed", "attention", "transformer"]
    assert page.locator(".v-panel:nth-child(1) .v-bottleneck .v-vector").count() == 1
    assert page.locator(".v-panel:nth-child(2) .v-bottleneck").count() == 0
    # A word of the source that is pointed at is followed in every model.
    page.hover(".v-panel:nth-child(2) .v-source li:nth-child(2)")
    assert said(page, 3).startswith("b: attended to by")
    # A change concerns one model alone.
    page.click(word(1, panel=2))
    page.keyboard.type("D")
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    assert page.inner_text(".v-panel:nth-child(3) .t-text") == "A B C"
    page.uncheck("#models label:has-text('fixed') input", force=True)
    page.uncheck("#models label:has-text('attention') input", force=True)
    done(page, "A B C")
    assert page.locator(".v-head h2").all_inner_texts() == ["transformer"]
    # One model has to stay.
    page.click("#models label:has-text('transformer')")
    assert page.is_checked("#models label:has-text('transformer') input")


def test_heads_and_layers_stay_chosen(visit: Visit) -> None:
    page = visit("transformer")
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.check("input[value=heads]", force=True)
    assert page.locator(".v-thumb").count() == 4
    page.click("[data-map='3']")
    assert page.input_value(".v-head select") == "head:3"
    page.fill("#text", "d e")
    done(page, "D E")
    assert page.is_checked("input[value=heads]")
    assert page.input_value(".v-head select") == "head:3"
    assert plain(page.inner_text(".v-note")).startswith("Layer 2, head 2.")
