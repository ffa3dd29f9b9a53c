"""The page where things are not as usual: bad input, no service, a phone, the dark, other scripts, hostile text.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import browsing
import pytest
from page_service import Running, Visit, browser, done, plain, said, saved, service, trained, visit, word

from heedful.serve.http.models import EXAMPLES, example
from heedful.serve.http.static import page_files
from heedful.text import Codec

__all__ = ["browser", "service", "visit"]  # fixtures

HOSTILE = "a <img src=x onerror=alert(1)> b </script><script>alert(2)</script>"
ROOM = 200_000  # bytes
DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_small_and_names_nothing_outside() -> None:
    found = page_files()
    size = sum(len(body) for body, _ in found.values())
    assert size < ROOM
    lines = re.findall(r".*drawing code.*", (DOCS / "lab/performance.md").read_text())  # which says how much it is
    (claimed,) = re.findall(r"(\d+) KB", " ".join(lines))
    assert abs(int(claimed) - size / 1000) < 2
    for name, (body, _) in found.items():
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, name
        assert "innerHTML =" not in text, name


def test_bad_input_is_told_at_the_field(visit: Visit) -> None:
    page = visit("attention")
    page.fill("#text", "a b")
    done(page, "A B")
    page.fill("#text", "a " * 250)
    page.wait_for_selector("#problem:not(:empty)")
    assert page.inner_text("#problem") == "a text of 500 characters; 400 are allowed"
    assert page.get_attribute("#text", "aria-invalid") == "true"
    assert page.get_attribute("#text", "aria-describedby") == "problem"
    assert page.input_value("#text") == "a " * 250
    # What was shown is of another text.
    assert not page.locator("#result").is_visible()
    page.fill("#text", "c d")
    done(page, "C D")
    assert page.inner_text("#problem") == ""
    assert page.get_attribute("#text", "aria-invalid") == "false"


def test_what_concerns_one_model_is_told_there(visit: Visit) -> None:
    page = visit("attention")
    problem = '{"status": 504, "detail": "this took too long"}'
    page.route("**/v1/stream", lambda route: route.fulfill(status=504, body=problem))
    page.fill("#text", "a b")
    page.wait_for_selector(".t-translation .p-problem:not(:empty)")
    assert page.inner_text(".t-translation .p-problem") == "this took too long"


def test_a_busy_service_is_asked_again(visit: Visit) -> None:
    page = visit("attention")
    busy = {"status": 429, "headers": {"Retry-After": "1"}, "body": '{"status": 429, "detail": "ask again in 1 s"}'}
    page.route("**/v1/stream", lambda route: route.fulfill(**busy), times=1)
    page.fill("#text", "a b")
    page.wait_for_selector(".t-translation .p-problem:not(:empty)")
    done(page, "A B")
    assert page.locator(".t-translation .p-problem:not(:empty)").count() == 0


def test_the_service_is_gone_and_comes_back(visit: Visit) -> None:
    own = Running(trained())
    try:
        page = visit("attention", url=own.url)
        page.fill("#text", "a b")
        done(page, "A B")
        own.stop()
        page.fill("#text", "a b c")
        page.wait_for_selector("#offline:not([hidden])")
        assert "does not answer" in page.inner_text("#offline")
        assert "What you typed is kept" in page.inner_text("#offline")
        assert page.input_value("#text") == "a b c"
        with page.expect_event("requestfailed", lambda one: one.url.endswith("/v1/stream")):
            page.fill("#text", "a b c d")
        own.start()  # and nobody does anything
        done(page, "A B C D")
        assert not page.locator("#offline").is_visible()
        # The tab keeps what was typed.
        page.reload()
        done(page, "A B C D")
    finally:
        own.stop()


def test_a_token_is_asked_for(visit: Visit) -> None:
    own = Running(trained(), token="tell-nobody")
    try:
        page = visit("attention", url=own.url)
        page.wait_for_selector("#pass:not([hidden])")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#pass:not([hidden]) >> text=This token was not accepted.")
        page.fill("#token", "tell-nobody")
        page.keyboard.press("Enter")
        page.wait_for_selector("#models label", state="attached")
        page.fill("#text", "a b")
        done(page, "A B")
        assert not page.locator("#pass").is_visible()
    finally:
        own.stop()


@pytest.mark.parametrize("models", [("attention",), ()])
def test_a_phone(visit: Visit, models: tuple[str, ...]) -> None:
    page = visit(*models, width=320, has_touch=True)
    panel = 1 if models else 2
    page.fill("#text", "a b c d e")
    done(page, "A B C D E", panel)
    for view in ("braid", "heatmap"):
        page.check(f"input[value={view}]", force=True)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
    # A tap shows where a word looked; a second one changes it.
    page.tap(word(2, panel))
    assert said(page, panel).startswith("B: ")
    assert page.locator(".t-field").count() == 0
    page.tap(word(2, panel))
    assert page.input_value(".t-field") == "B"
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    small = "all => all.filter(e => e.offsetHeight && e.offsetHeight < 24).map(e => e.textContent)"
    assert page.eval_on_selector_all("button, #models span", small) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_light_and_dark(visit: Visit, scheme: str) -> None:
    page = visit(scheme=scheme)
    assert page.evaluate(browsing.CONTRAST)[0][0] >= 4.5
    page.fill("#text", "a b c")
    done(page, "A B C", 2)
    done(page, "", 1)
    page.click(".v-panel:nth-child(2) >> text=Alternatives")
    page.wait_for_selector(".t-alternatives button")
    page.hover(word(1, 2))
    lowest, text = page.evaluate(browsing.CONTRAST)[0]
    assert lowest >= 4.5, text


def test_words_from_right_to_left(visit: Visit) -> None:
    page = visit("attention")
    page.fill("#text", "क ख ग घ")
    done(page, "قطة كلب بيت شجرة")
    places = [page.locator(word(i)).bounding_box()["x"] for i in (1, 2, 3, 4)]
    assert places == sorted(places, reverse=True)
    assert page.locator(".v-target li").all_inner_texts() == ["قطة", "كلب", "بيت", "شجرة", "</s>"]
    page.focus(word(1))
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.textContent") == "كلب"
    page.keyboard.press("Enter")
    page.keyboard.type("ماء")
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    done(page)
    assert page.inner_text(".t-text").startswith("قطة ماء")
    page.fill("#text", "مرحبا")
    assert page.eval_on_selector("#text", "e => getComputedStyle(e).direction") == "rtl"


def test_places_are_counted_in_characters_not_in_halves_of_them(visit: Visit) -> None:
    page = visit("attention")
    page.evaluate(
        """() => {
          window.broken = [];
          new MutationObserver(() => document.querySelectorAll(".t-word").forEach(({ textContent: text }) => {
            if (!text.isWellFormed() || text !== text.trim()) broken.push(text);
          })).observe(document.getElementById("figure"), { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.fill("#text", "झ ख झ ग")
    done(page, "🐘 كلب 🐘 بيت")
    assert page.locator(".t-word").all_inner_texts() == ["🐘", "كلب", "🐘", "بيت"]
    assert page.evaluate("broken") == []
    asked: list[Any] = []
    page.on("request", lambda one: one.url.endswith("/v1/stream") and asked.append(one.post_data_json))
    page.click(word(4))
    page.keyboard.type("قمر")
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-edited")
    assert asked[0]["prefix"] == "🐘 كلب 🐘 قمر"
    # And on the side of the source, where one sign may be several characters.
    source = "a 😀 b 👩‍🚀 c"
    page.fill("#text", source)
    done(page)
    page.wait_for_function("() => document.querySelectorAll('.v-source li').length === 6")
    assert page.locator(".v-source li").all_inner_texts() == [*source.split(), "</s>"]


def test_markup_is_inert(visit: Visit) -> None:
    page = visit()
    page.fill("#text", HOSTILE)
    done(page, "", 2)
    assert page.locator("img:not(#image-input img), script:not([src])").count() == 0
    assert page.locator(".v-panel:nth-child(2) .v-source li").all_inner_texts()[:3] == ["a", "<img", "src=x"]
    page.click(word(1, 2))
    page.keyboard.type("<img src=x onerror=alert(3)>")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    # Not even when the service would send it, as a problem, as a model's name, or as a translation.
    problem = '{"status": 422, "detail": "<img src=x onerror=alert(4)>", "field": "text"}'
    page.route("**/v1/stream", lambda route: route.fulfill(status=422, body=problem))
    page.fill("#text", "b")
    page.wait_for_selector("#problem:not(:empty)")
    assert page.inner_text("#problem") == "<img src=x onerror=alert(4)>"
    assert page.locator("img:not(#image-input img)").count() == 0


@pytest.mark.parametrize("view", ["braid", "heatmap"])
def test_pictures_are_saved_as_they_are_seen(visit: Visit, tmp_path: Path, view: str) -> None:
    page = visit()
    page.fill("#text", HOSTILE)
    done(page, "", 1)
    done(page, "", 2)
    done(page, "", 3)
    page.check(f"input[value={view}]", force=True)
    path = saved(page, "svg", tmp_path)
    assert path.name == f"heedful-{view}.svg"
    root = ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{space}text")]
    shown = page.locator(".v-side li").all_inner_texts()
    assert [text for text in shown if text not in texts] == []
    names = page.locator(".v-head h2").all_inner_texts()
    assert texts.count("</s>") == 2 * len(names)
    ribbons = page.locator(".v-ribbon path" if view == "braid" else ".v-ribbon path, .v-cell rect").count()
    drawn = len(list(root.iter(f"{space}path"))) + len(list(root.iter(f"{space}rect")))
    assert drawn >= ribbons > 0
    for element in root.iter():
        assert not any("url(" in value or "oklab" in value for value in element.attrib.values())
    image = saved(page, "png", tmp_path).read_bytes()
    wide, high = struct.unpack(">II", image[16:24])
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert (wide, high) == (2 * int(root.attrib["width"]), 2 * int(root.attrib["height"]))
    # While it is saved nothing moves for good.
    assert page.locator(".p-picture").count() == 0
    assert page.locator(".v-controls").is_visible()


def test_the_figure_is_saved_as_a_document_of_its_own(visit: Visit, browser: Any, tmp_path: Path) -> None:
    page = visit("transformer")
    page.fill("#text", HOSTILE)
    done(page)
    page.check("input[value=heads]", force=True)
    page.click("[data-map='2']")
    text = saved(page, "html", tmp_path).read_text(encoding="utf-8")
    for opened in browsing.opening(browser, tmp_path):
        found = opened(text)
        found.wait_for_selector(".v-panel")
        assert found.is_checked("input[value=heads]")
        assert found.input_value(".v-head select") == "head:2"
        assert found.locator(".v-text bdi").first.inner_text() == HOSTILE
        assert found.locator(".v-source li").all_inner_texts()[:2] == ["a", "<img"]
        assert found.locator("img").count() == 0


def test_an_example_fits_the_model(visit: Visit) -> None:
    page = visit("attention")
    assert not page.locator("#example").is_visible()  # letters that are spelled say nothing
    models = [{"name": "m", "layers": 1, "heads": 1, "attention": True, "default": True, "example": "b a"}]
    page.route("**/v1/models", lambda route: route.fulfill(json={"models": models}))
    page.reload()
    page.wait_for_selector("#example:not([hidden])")
    page.unroute("**/v1/models")
    page.route(
        "**/v1/stream", lambda route: route.continue_(post_data=route.request.post_data.replace('"m"', '"attention"'))
    )
    page.click("#example button")
    done(page, "B A")
    assert page.input_value("#text") == "b a"
    assert plain(page.inner_text("#spoken")) == "B A"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2, 3, 13])
def test_the_example_is_the_sentence_that_the_vocabulary_knows_best(number: int) -> None:
    class Known:
        reads_images = False

        def __init__(self, codec: Codec) -> None:
            self.parts = type("Parts", (), {"source": codec, "source_codec": codec})

        def unknown(self, text: str) -> list[str]:
            encoded = self.parts.source.encode(text)
            return [text for index in encoded.ids if index == 1]

    from heedful.config import Config

    texts = [EXAMPLES[number]] * 20 + ["".join(dict.fromkeys("".join(EXAMPLES)))]
    codec = Codec.train(texts, Config.build({"text": {"kind": "bpe", "size": 1000}}).text)
    assert example(Known(codec)) == EXAMPLES[number]
