"""What is read on the page of `heedful serve`: paragraphs, unknown words, what is copied, figures that stay.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from page_service import Running, Visit, browser, done, service, visit, word

__all__ = ["browser", "service", "visit"]  # fixtures

# Where the figure and its source words are, in every frame of an edited word and of what follows from it.
RECORD = """() => {
  window.frames_seen = [];
  const place = (e) => { const { x, y } = e.getBoundingClientRect(); return [Math.round(x), Math.round(y + scrollY)]; };
  const look = () => {
    const lane = document.querySelector(".t-translation");
    const state = lane.querySelector(".t-bar") ? "edited" : lane.matches(".t-streaming") ? "growing" : "";
    const panel = document.querySelector(".v-panel");
    const words = [...document.querySelectorAll(".v-source li")].map(place);
    if (state) frames_seen.push([state, place(panel.querySelector(".v-box")), panel.offsetHeight, words, scrollY]);
    requestAnimationFrame(look);
  };
  look();
}"""


def sent(service: Running, text: str, model: str = "attention") -> list[tuple[str, Any]]:
    """What the service answers as a stream of events."""
    body = json.dumps({"text": text, "model": model, "trace": True}).encode()
    request = urllib.request.Request(f"{service.url}v1/stream", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:  # its own service
        events = answer.read().decode().strip().split("\n\n")
    pairs = [event.split("\n") for event in events]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def answered(page: Any, events: list[tuple[str, Any]]) -> None:
    """Let the page have these events for whatever it asks."""
    body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
    page.route("**/v1/stream", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def test_paragraphs_are_kept(visit: Visit) -> None:
    page = visit("attention")
    page.evaluate(
        """() => { window.texts = new Set();
        new MutationObserver(() => texts.add(document.querySelector(".t-text").textContent))
          .observe(document.getElementById("figure"), { childList: true, subtree: true, characterData: true }); }"""
    )
    page.fill("#text", "a b.\n\nc d.\ne f.")
    done(page)
    page.wait_for_function("() => document.querySelector('.t-text').textContent.split('\\n').length === 4")
    shown = page.inner_text(".t-text")
    assert [bool(line) for line in shown.split("\n")] == [True, False, True, True]  # inner_text: as it is seen
    # While it grows it is never on one line either.
    grown = [text for text in page.evaluate("[...texts]") if text.startswith(shown.split("\n")[0] + "\n")]
    assert grown
    assert all("\n\n" in text for text in grown)


@pytest.mark.parametrize("clipboard", [True, False])
def test_the_translation_is_copied_with_its_paragraphs(visit: Visit, clipboard: bool) -> None:
    page = visit("attention", permissions=["clipboard-read", "clipboard-write"] if clipboard else [])
    if not clipboard:  # as without https, or where the reader said no
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.fill("#text", "a b.\n\nc d.")
    done(page)
    page.wait_for_function("() => document.querySelector('.t-text').textContent.includes('\\n\\n')")
    page.click(".t-copy")
    page.wait_for_function("() => document.querySelector('.t-copy').textContent === 'Copied'")
    assert page.inner_text("#spoken") == "The translation is copied."
    assert page.get_attribute("#spoken", "role") == "status"
    assert page.evaluate("document.activeElement.matches('.t-copy')")  # the focus stays
    shown = page.eval_on_selector(".t-text", "e => e.textContent")
    page.fill("#text", "")
    page.focus("#text")
    page.keyboard.press("Control+V")
    assert page.input_value("#text") == shown


def test_what_cannot_be_copied_is_said(visit: Visit) -> None:
    page = visit("attention")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.evaluate("document.execCommand = () => false")
    page.fill("#text", "a b")
    done(page, "A B")
    page.click(".t-copy")
    page.wait_for_function("() => document.querySelector('.t-copy').textContent === 'Not copied'")
    assert "could not be copied" in page.inner_text("#spoken")


def test_unknown_words_of_the_source_are_shown_as_words(visit: Visit) -> None:
    page = visit("attention")
    page.fill("#text", "a zebra b")
    done(page)
    assert page.locator(".v-source li").all_inner_texts() == ["a", "zebra", "b", "</s>"]
    assert page.locator(".v-source .v-missing").all_inner_texts() == ["zebra"]
    assert "vocabulary" in page.inner_text(".t-notes")
    page.check("input[value=tokens]", force=True)
    pieces = page.locator(".v-source li").all_inner_texts()
    assert "<unk>" not in pieces
    assert "zebra" in "".join(pieces)


def unknown(service: Running) -> list[tuple[str, Any]]:
    """A stream in which the model wrote an unknown word for the second word of its source."""
    events = sent(service, "a b c")
    for name, data in events:
        if name == "token" and data["token"] == "▁B":
            data["token"] = "<unk>"
        if name == "done":
            figure = data["translation"]["figure"]["target"]
            figure["unknown"] = [figure["tokens"].index("▁B")]
            figure["tokens"] = ["<unk>" if token == "▁B" else token for token in figure["tokens"]]
            figure["words"] = [["<unk>" if word[0] == "B" else word[0], *word[1:]] for word in figure["words"]]
        item = data.get("translation", data)
        if name != "start":
            spelled = item["text"].replace("B", "<unk>")
            for one in item["words"]:
                if one["text"] == "B":
                    one.update(text="<unk>", end=one["start"] + 5)
                elif one["text"] == "C":
                    one.update(start=one["start"] + 4, end=one["end"] + 4)
            item["text"] = spelled
    return events


def test_unknown_words_of_the_translation_are_those_of_the_source(visit: Visit, service: Running) -> None:
    page = visit("attention", permissions=["clipboard-read", "clipboard-write"])
    answered(page, unknown(service))
    page.fill("#text", "a b c")
    done(page, "A b C")
    assert page.locator(".t-copied").all_inner_texts() == ["b"]
    assert "copied from the source" in page.get_attribute(word(2), "title")
    assert page.locator(".v-target li").all_inner_texts() == ["A", "b", "C", "</s>"]
    page.click(".t-copy")
    page.wait_for_function("() => document.querySelector('.t-copy').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == "A b C"
    assert "<unk>" not in page.inner_text("main")


def test_without_weights_an_unknown_word_is_only_named_so(visit: Visit, service: Running) -> None:
    page = visit("attention")
    events = unknown(service)
    for name, data in events:
        if name == "done":
            data["translation"]["figure"].update(read=None, heads=None)
    answered(page, [event for event in events if event[0] != "token"])
    page.fill("#text", "a b c")
    done(page, "A [unknown] C")


@pytest.mark.parametrize(
    ("text", "view", "wide"),
    [
        ("a b c d", "braid", 560),
        ("a b c d e f g h a b c d", "braid", 390),
        pytest.param("a b c d", "heatmap", 560, marks=pytest.mark.slow),
    ],
)
def test_the_figure_stays_in_place_while_a_word_is_changed(visit: Visit, text: str, view: str, wide: int) -> None:
    page = visit("attention", width=wide)
    page.fill("#text", text)
    page.wait_for_selector(".t-word")
    done(page)
    page.check(f"input[value={view}]", force=True)
    page.click("text=Alternatives")
    page.wait_for_selector(".t-alternatives button")
    page.evaluate("scrollTo(0, 200)")
    page.evaluate(RECORD)
    page.click(word(2))
    page.keyboard.type("G")
    page.wait_for_timeout(100)  # some frames with the field
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    done(page)
    frames = page.evaluate("frames_seen")
    assert {state for state, *_ in frames} == {"edited", "growing"}
    _, box, high, words, scrolled = frames[0]
    for state, *now in frames:
        assert abs(now[0][0] - box[0]) <= 1, state
        assert abs(now[0][1] - box[1]) <= 1, state
        assert now[1] >= high - 1, state  # what is below does not come up
        assert len(now[2]) == len(words), state
        moved = [abs(a - b) for x, y in zip(now[2], words, strict=True) for a, b in zip(x, y, strict=True)]
        assert max(moved) <= 8, state  # a word that is looked at more than before takes some more room
        assert now[3] == scrolled


@pytest.mark.parametrize(
    "models", [("attention",), pytest.param(("fixed", "attention", "transformer"), marks=pytest.mark.slow)]
)
def test_on_a_phone_the_translation_is_on_the_first_screen(visit: Visit, models: tuple[str, ...]) -> None:
    page = visit(*models, width=390)
    page.set_viewport_size({"width": 390, "height": 844})
    text = "a b c d e f g h. " * 8  # more than the field shows
    for typed in ("a b c", text):
        page.fill("#text", typed)
        done(page)
        page.wait_for_function("() => !document.querySelector('.t-streaming')")
        assert page.evaluate("scrollY") == 0
        box = page.eval_on_selector(
            ".t-text", "e => { const b = e.getBoundingClientRect(); return [b.top, b.bottom]; }"
        )
        assert box[0] > 0
        assert min(box[1], box[0] + 100) <= 844 - 40  # three lines of it, and what is below
    figure = page.eval_on_selector(".v-box", "e => e.getBoundingClientRect().top")
    assert figure > 0
    # Nothing is wider than the screen but what scrolls by itself.
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_list_of_alarms_keeps_the_order_of_words_from_right_to_left(visit: Visit, service: Running) -> None:
    page = visit("attention")
    events = sent(service, "क ख ग")
    words = ["قطة", "كلب", "בית"]
    text = "hardly looked at " + ", ".join(f"'{one}'" for one in words)
    alarm = {"kind": "unseen", "measure": 0.5, "source": [0], "target": [], "words": words, "text": text}
    events[-1][1]["translation"]["alarms"] = [alarm]
    answered(page, events)
    page.fill("#text", "क ख ग")
    done(page)
    assert page.inner_text(".v-alarms li") == text
    places = page.eval_on_selector_all(".v-alarms bdi", "all => all.map((e) => e.getBoundingClientRect().left)")
    assert page.locator(".v-alarms bdi").all_inner_texts() == words
    assert places == sorted(places)
    assert page.eval_on_selector(".v-alarms li", "e => getComputedStyle(e).direction") == "ltr"
