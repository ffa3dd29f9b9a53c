"""The page of `heedful serve` with models that caption images, in a real browser.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import browsing
import pytest
from page_service import Running, Visit, browser, done, plain, said, saved, trained, visit, word
from tiny_captioner import captioner, picture

from heedful.translator import Translator

Image = pytest.importorskip("PIL.Image")
__all__ = ["browser", "visit"]  # fixtures


def sharp(family: str, sign: int = 1) -> Translator:
    """Return a captioner whose words attend to few regions."""
    model = captioner(family)
    dict(model.parts.model.named_parameters())["score.v"].data.mul_(60 * sign)
    return model


CAPTIONERS = {"one": sharp("rnn"), "other": sharp("rnn", -1), "fixed": captioner("fixed")}
LIMITS = {"chars": 400, "image_bytes": 12_000, "image_pixels": 20_000}


def file(seed: int = 0, width: int = 48, height: int = 40, kind: str = "PNG") -> dict[str, Any]:
    content = io.BytesIO()
    Image.fromarray(picture(seed, width, height).pixels).save(content, kind)
    return {"name": f"a{seed}.{kind.lower()}", "mimeType": f"image/{kind.lower()}", "buffer": content.getvalue()}


@pytest.fixture(scope="module")
def service(browser: Any) -> Iterator[Running]:
    """A service with captioners, and a model that translates text."""
    running = Running({**CAPTIONERS, "text": trained()["attention"]}, **LIMITS)
    yield running
    running.stop()


def caption(model: str, seed: int = 0, **options: Any) -> str:
    return CAPTIONERS[model].caption(picture(seed), **options).text


# What was on the page while a caption was written: words, the word that is marked, whether the picture has a veil, and
# whether the status is announced.
WATCH = """() => {
  window.seen = [];
  const one = (some) => document.querySelector(some);
  new MutationObserver(() => {
    if (!one(".t-streaming") || !one(".r-stage canvas")) return;
    const words = document.querySelectorAll(".t-word").length;
    seen.push([words, one(".t-active")?.dataset.i ?? null, !one(".r-stage canvas").hidden, one(".v-status").ariaLive]);
  }).observe(document.getElementById("figure"), { childList: true, subtree: true, attributes: true });
}"""


def test_choose_a_picture_and_see(visit: Visit) -> None:
    page = visit("one")
    assert page.locator("#empty").is_visible()
    assert page.locator("#empty svg:visible").count() == 1
    assert "regions" in page.inner_text("#empty")
    assert not page.locator("#text").is_visible()
    page.evaluate(WATCH)
    page.set_input_files("#file", file())
    done(page, caption("one"))
    assert page.locator("#image-input img").is_visible()
    assert page.inner_text("[data-name]") == "a0.png"
    assert page.inner_text("#spoken") == caption("one")
    assert page.locator(".r-stage img").evaluate("e => [e.naturalWidth, e.naturalHeight]") == [48, 40]
    assert page.locator(".r-cells li").count() == 16
    # While it was written, the last word was marked, and its regions were light.
    lit = [(words, int(active)) for words, active, veil, live in page.evaluate("seen") if active is not None and veil]
    assert len({words for words, _ in lit}) > 10
    assert sum(active == words - 1 for words, active in lit) > len(lit) / 2
    assert {live for _, active, veil, live in page.evaluate("seen") if active is not None and veil} == {"off"}
    assert page.locator(".t-active").count() == 0
    assert page.locator(".r-stage canvas").first.is_hidden()
    hint = page.eval_on_selector(".v-status", "e => getComputedStyle(e, '::before').content")
    assert "caption" in hint
    assert "translation" not in hint


def test_words_and_regions(visit: Visit) -> None:
    page = visit("one")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    trace = CAPTIONERS["one"].caption(picture()).trace
    weights = trace.words()
    assert weights is not None
    page.hover(word(1))
    assert page.locator(".r-stage canvas").first.is_visible()
    best = int(weights[0, :16].argmax())
    assert f"row {best // 4 + 1}, column {best % 4 + 1}: {100 * weights[0, best]:.0f} %" in said(page)
    page.hover(f".r-cells li:nth-child({best + 1})")
    assert said(page).startswith(f"row {best // 4 + 1}, column {best % 4 + 1}: ")
    partners = [int(i) for i in page.eval_on_selector_all(".t-partner", "all => all.map(e => e.dataset.i)")]
    words = [t for t in range(len(trace.target.words) - 1) if weights[t, best] >= 0.055]
    assert set(words) <= set(partners)
    assert 0 in partners


@pytest.mark.parametrize("how", ["paste", "drop"])
def test_paste_and_drop(visit: Visit, how: str) -> None:
    page = visit("one")
    sent = file(2)
    page.evaluate(
        """([how, text, name]) => {
          const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], name, { type: "image/png" }));
          if (how === "paste") {
            document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
            return;
          }
          for (const name of ["dragenter", "dragover"]) {
            document.body.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true }));
          }
          window.dropping = document.body.classList.contains("p-dropping");
          const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
          window.taken = !document.body.dispatchEvent(drop);
        }""",
        [how, base64.b64encode(sent["buffer"]).decode(), sent["name"]],
    )
    done(page, caption("one", 2))
    if how == "drop":
        assert page.evaluate("[dropping, taken]") == [True, True]
    assert page.locator(".p-dropping").count() == 0


def test_change_a_word_and_it_goes_on_from_there(visit: Visit) -> None:
    page = visit("one")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    first = caption("one").split()[0]
    page.click(word(2))
    page.keyboard.type("tree")
    page.keyboard.press("Enter")
    done(page, caption("one", prefix=f"{first} tree"))
    assert page.locator(".t-edited").all_inner_texts() == ["tree"]
    page.click("text=Undo")
    done(page, caption("one"))
    page.click(word(1))
    page.keyboard.type("zebra")
    page.keyboard.press("Enter")
    page.wait_for_selector(".t-translation .p-problem:has-text('zebra')")
    assert page.inner_text(".t-text") == caption("one")


def test_alternatives(visit: Visit) -> None:
    page = visit("one")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    page.click("text=Alternatives")
    page.wait_for_selector(".t-alternatives button")
    expected = CAPTIONERS["one"].caption(picture(), beam=5, n_best=5).n_best
    shown = page.locator(".t-alternatives button span").all_inner_texts()
    assert shown == [one.text for one in expected]
    page.click(".t-alternatives li:nth-child(2) button")
    assert page.inner_text(".t-text") == expected[1].text
    assert page.locator(".r-stage img").is_visible()


def test_models_side_by_side(visit: Visit) -> None:
    page = visit("one", "other", "fixed")
    page.set_input_files("#file", file())
    for panel, model in enumerate(("one", "other", "fixed"), 1):
        done(page, caption(model), panel)
        assert page.locator(f".v-panel:nth-child({panel}) .r-stage img").is_visible()
    assert "no attention" in page.inner_text(".v-panel:nth-child(3) .v-note")
    page.hover(".v-panel:nth-child(1) .r-cells li:nth-child(6)")
    for panel in (1, 2):
        assert said(page, panel).startswith("row 2, column 2")
    # Another picture takes the place of the first in all of them.
    page.set_input_files("#file", file(2))
    for panel, model in enumerate(("one", "other", "fixed"), 1):
        done(page, caption(model, 2), panel)


def test_the_input_is_that_of_the_chosen_model(visit: Visit) -> None:
    page = visit("text")
    assert page.locator("#text").is_visible()
    assert not page.locator("#image-input").is_visible()
    page.fill("#text", "a b c")
    done(page, "A B C")
    page.check("#models label:has-text('one') input", force=True)
    assert not page.locator("#text").is_visible()
    assert page.locator("#image-input").is_visible()
    assert page.locator("#models input:checked + span").all_inner_texts() == ["one"]
    assert "captioner" in page.inner_text(".p-top")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    page.check("#models label:has-text('text') input", force=True)
    done(page, "A B C")
    assert page.locator(".v-ribbon").count() > 0
    assert page.locator(".r-stage").count() == 0
    # A picture that is pasted is meant for a captioner; a text with a picture of itself is not.
    paste = """(types) => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
      return new Promise((resolve) => canvas.toBlob((blob) => {
        const data = new DataTransfer();
        data.items.add(new File([blob], "x.png", { type: "image/png" }));
        for (const type of types) data.setData(type, "text");
        document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
        resolve();
      }));
    }"""
    page.evaluate(paste, ["text/plain"])
    assert page.locator("#text").is_visible()
    page.evaluate(paste, [])
    page.wait_for_selector("#image-input img:not([hidden])")
    assert page.locator("#models input:checked + span").all_inner_texts() == ["one"]
    page.click("#clear")
    assert page.locator("#empty").is_visible()
    assert page.evaluate("document.activeElement.id") == "file"


def test_a_large_picture_is_made_smaller(visit: Visit) -> None:
    page = visit("one")
    large = file(3, 400, 300)
    assert len(large["buffer"]) > LIMITS["image_bytes"]
    page.evaluate("""() => {
      window.sent = [];
      const send = window.fetch;
      window.fetch = (path, options) => {
        if (options?.body instanceof FormData) {
          const image = options.body.get("image");
          createImageBitmap(image).then(({ width, height }) => sent.push([image.size, width, height]));
        }
        return send(path, options);
      };
    }""")
    page.set_input_files("#file", large)
    done(page)
    ((size, width, height),) = page.evaluate("sent")
    assert 0 < size <= LIMITS["image_bytes"]
    assert 0 < width * height <= LIMITS["image_pixels"]
    assert width / height == pytest.approx(4 / 3, rel=0.05)
    assert re.search(r"too large.*JPEG at \d+ %", plain(page.inner_text("[data-name]")))
    page.set_input_files("#file", {"name": "b.bmp", "mimeType": "image/bmp", "buffer": file(0, kind="BMP")["buffer"]})
    page.wait_for_selector("[data-name]:has-text('b.bmp')")
    done(page)
    assert "JPEG" in page.inner_text("[data-name]")


def test_what_is_no_picture(visit: Visit) -> None:
    page = visit("one")
    svg = {"name": "a.svg", "mimeType": "image/svg+xml", "buffer": b"<svg xmlns='http://www.w3.org/2000/svg'></svg>"}
    page.set_input_files("#file", svg)
    page.wait_for_selector("#problem:has-text('SVG')")
    assert page.get_attribute("#file", "aria-invalid") == "true"
    assert not page.locator("#result").is_visible()
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"\0" * 20_000})
    page.wait_for_selector("#problem:has-text('a.png')")
    assert "0.02" in page.inner_text("#problem") or "MB" in page.inner_text("#problem")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    assert page.inner_text("#problem") == ""
    assert page.get_attribute("#file", "aria-invalid") == "false"
    page.set_input_files("#file", svg)  # the picture before and its caption stay
    page.wait_for_selector("#problem:has-text('a.svg')")
    assert page.locator("#result").is_visible()
    assert page.locator("#image-input img").is_visible()


def test_the_keyboard_is_enough(visit: Visit) -> None:
    page = visit("one")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    outline = "getComputedStyle(document.activeElement.nextElementSibling)"
    assert page.evaluate(f"[{outline}.outlineStyle, parseFloat({outline}.outlineWidth) >= 2]") == ["solid", True]
    page.set_input_files("#file", file())
    done(page, caption("one"))
    seen = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        seen |= set(page.evaluate("document.activeElement.className").split())
        if page.evaluate("document.activeElement.matches('.t-word')"):
            page.keyboard.press("ArrowRight")
            assert page.evaluate("document.activeElement.dataset.i") == "1"
            assert page.locator(".r-stage canvas").first.is_visible()
        if page.evaluate("document.activeElement.matches('.r-cells li')"):
            page.keyboard.press("ArrowDown")
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "row\u00a02, column\u00a01"
            break
    else:
        raise AssertionError(seen)
    assert "t-word" in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_width_and_both_schemes(visit: Visit, width: int, scheme: str) -> None:
    page = visit("one", "fixed", width=width, scheme=scheme)
    page.set_input_files("#file", file())
    done(page, caption("one"))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    lowest = page.evaluate(browsing.CONTRAST)[0]
    assert lowest[0] >= 4.5, lowest


def test_a_camera_is_offered_where_there_is_touch(visit: Visit) -> None:
    assert not visit("one").locator(".p-camera").is_visible()
    touch = visit("one", width=390, has_touch=True, is_mobile=True)
    assert touch.locator(".p-camera").is_visible()
    assert touch.get_attribute("#camera", "capture") == "environment"


def test_saved_files_hold_the_picture(visit: Visit, tmp_path: Path, browser: Any) -> None:
    page = visit("one")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    root = ElementTree.parse(saved(page, "svg", tmp_path)).getroot()
    images = root.findall("{http://www.w3.org/2000/svg}image")
    count = len(caption("one").split())
    assert len(images) == 1 + 2 * count  # the picture, and for each word the picture and its veil
    assert all(one.attrib["href"].startswith("data:image/") for one in images)
    with Image.open(saved(page, "png", tmp_path)) as drawn:
        assert drawn.size[0] > 1000
    text = saved(page, "html", tmp_path).read_text(encoding="utf-8")
    assert "blob:" not in text
    context = browser.new_context()
    try:
        kept = context.new_page()
        trouble: list[str] = []
        kept.on("console", lambda message: trouble.append(message.text))
        kept.goto(next(tmp_path.glob("*.html")).as_uri())
        kept.wait_for_selector(".r-stage img")
        assert kept.eval_on_selector(".r-stage img", "e => e.naturalWidth") == 48
        assert kept.locator(".v-text bdi").all_inner_texts() == [caption("one")]
        assert trouble == []
    finally:
        context.close()


def test_a_service_that_is_gone_keeps_the_picture(visit: Visit, service: Running) -> None:
    page = visit("one")
    page.set_input_files("#file", file())
    done(page, caption("one"))
    service.stop()
    try:
        page.set_input_files("#file", file(4))
        page.wait_for_selector("#offline:not([hidden])")
    finally:
        service.start()
    done(page, caption("one", 4))
