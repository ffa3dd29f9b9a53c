"""What is saved of the page stands where it is seen, and in alternatives the words that differ are bold.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from page_service import Visit, browser, done, saved, service, visit, word

__all__ = ["browser", "service", "visit"]  # fixtures

SPACE = "{http://www.w3.org/2000/svg}"
# Of each word of the translation: its text, and the left, the middle and the right of its letters, without its marks.
PLACES = """() => [...document.querySelectorAll(".t-word")].map((word) => {
  const range = document.createRange();
  range.selectNodeContents(word.firstChild);
  const { left, right } = range.getBoundingClientRect();
  return [word.textContent, left, (left + right) / 2, right];
})"""


def texts(root: ElementTree.Element, size: str) -> list[tuple[str, float, dict[str, str]]]:
    """The texts of a picture in letters of some size, where their middle is, and how they look."""
    found = [element for element in root.iter(f"{SPACE}text") if element.attrib["font-size"] == size]
    return [(element.text or "", float(element.attrib["x"]), element.attrib) for element in found]


@pytest.mark.parametrize(("text", "new"), [("a b c d", "H"), ("क ख ग घ", "ماء")])
def test_a_changed_word_is_saved_where_it_is_seen(visit: Visit, tmp_path: Path, text: str, new: str) -> None:
    page = visit("attention")
    page.fill("#text", text)
    done(page)
    page.click(word(2))
    page.keyboard.type(new)
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    done(page)
    assert page.locator(".v-dimmed").count() == 1  # the word has the focus
    root = ElementTree.parse(saved(page, "svg", tmp_path)).getroot()
    places = page.evaluate(PLACES)
    drawn = texts(root, page.eval_on_selector(".t-text", "e => String(parseFloat(getComputedStyle(e).fontSize))"))
    assert [one[0] for one in drawn] == [one[0] for one in places]
    shift = drawn[0][1] - places[0][2]
    assert [x for _, x, _ in drawn] == pytest.approx([middle + shift for _, _, middle, _ in places], abs=0.5)
    assert [i for i, (_, _, look) in enumerate(drawn) if look.get("font-style") == "italic"] == [1]
    # The mark is beside its word, on the side where the text goes on, and before the next word.
    (mark,) = [element for element in root.iter(f"{SPACE}text") if element.text == "✎"]
    (_, left, _, right), (_, after, _, before) = places[1], places[2] if len(places) > 2 else (0, 1e9, 0, -1e9)
    at = float(mark.attrib["x"]) - shift
    assert right < at < after if after > left else before < at < left
    # What is under the word that the model was not sure of begins where the word does, or its mark.
    dots = [e.attrib["d"] for e in root.iter(f"{SPACE}path") if "stroke-dasharray" in e.attrib]
    starts = [float(re.match(r"M(\S+) ", d)[1]) - shift for d in dots]
    assert any(abs(start - left) < 3 or abs(start - at) < 12 for start in starts)
    # The focus went to the button: nothing is dimmed any more, however lately.
    assert [e for e in root.iter(f"{SPACE}path") if "stroke-opacity" in e.attrib] == []


def test_a_saved_map_cannot_be_scrolled(visit: Visit, tmp_path: Path) -> None:
    page = visit("attention")
    page.set_viewport_size({"width": 390, "height": 800})
    page.fill("#text", "a b c d e f g h " * 4)
    done(page)
    page.check("input[value=heatmap]")
    assert "scroll sideways" in page.inner_text(".v-note")
    root = ElementTree.parse(saved(page, "svg", tmp_path)).getroot()
    said = " ".join(element.text or "" for element in root.iter(f"{SPACE}text"))
    assert "of the weight" in said
    assert "sideways" not in said


@pytest.mark.parametrize("view", ["braid", "heatmap"])
def test_a_word_that_is_pinned_can_be_read(visit: Visit, tmp_path: Path, view: str) -> None:
    page = visit("attention")
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.check(f"input[value={view}]", force=True)
    side, name = (".v-target", "B") if view == "braid" else (".v-source", "b")
    page.click(f"{side} li:nth-child(2)")
    root = ElementTree.parse(saved(page, "svg", tmp_path)).getroot()
    ground = next(root.iter(f"{SPACE}rect")).attrib["fill"]
    (pinned,) = [e for e in root.iter(f"{SPACE}text") if e.text == name and float(e.attrib["font-size"]) < 20]
    x, y = float(pinned.attrib["x"]), float(pinned.attrib["y"])
    behind = [
        one["fill"]
        for one in (e.attrib for e in root.iter(f"{SPACE}rect"))
        if "rx" in one
        and float(one["x"]) <= x <= float(one["x"]) + float(one["width"])
        and float(one["y"]) <= y <= float(one["y"]) + float(one["height"])
    ]
    assert len(behind) == 1
    assert behind[0] not in (ground, pinned.attrib["fill"])
    if view == "braid":
        shares = page.eval_on_selector_all("[data-share]", "all => all.map((e) => e.dataset.share)")
        assert shares
        assert [e.text for e in root.iter(f"{SPACE}text") if e.text in shares] == shares


@pytest.mark.slow
@pytest.mark.parametrize(
    ("best", "other", "bold"),
    [
        ("A B C D", "X A B C D", ["X"]),  # by their places all of them differ
        ("A B C D", "B C D", []),
        ("A B", "A X Y B", ["X", "Y"]),
        ("b c d a", "a b", ["b"]),
        ("the cat the dog", "the the dog", []),
        ("I see it.", "So I see it!", ["So", "!"]),
        ("我喜欢猫", "我喜欢狗", ["狗"]),
        ("A  B", "A B", []),
    ],
)
def test_the_words_that_differ_are_bold_and_nothing_else(visit: Visit, best: str, other: str, bold: list[str]) -> None:
    page = visit("attention")
    items = [{"text": best, "confidence": 0.9}, {"text": other, "confidence": 0.5}]
    body: dict[str, Any] = {"model": "attention", "translations": [{**items[0], "alternatives": items}]}
    page.route("**/v1/translate", lambda route: route.fulfill(json=body))
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.click("text=Alternatives")
    page.wait_for_selector(".t-alternatives button")
    rows = page.locator(".t-alternatives button > span")
    assert rows.all_text_contents() == [best, other]
    assert rows.nth(0).locator("b").count() == 0
    assert rows.nth(1).locator("b").all_text_contents() == bold
    # One that is shown is marked otherwise.
    page.eval_on_selector(".t-alternatives li:last-child button", "e => e.setAttribute('aria-pressed', 'true')")
    weights = "all => all.map((e) => [e.tagName, getComputedStyle(e).fontWeight])"
    found = page.eval_on_selector_all(".t-alternatives button, .t-alternatives button *", weights)
    assert {weight for tag, weight in found if tag != "B"} == {"400"}
    assert {weight for tag, weight in found if tag == "B"} <= {"700"}
