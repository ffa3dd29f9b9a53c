"""The page in a real browser: offline, without errors, without sideways overflow, and legible in light and dark.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_report import full, report
from test_page import hostile

from heedful.report import html

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

CONTRAST = """() => {
  const numbers = text => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = numbers(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    throw new Error("no ground");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("svg")) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.data.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""

# Text of a picture that reaches out of it, or numbers over bars that stand on each other.
CLASHES = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg[role=img]")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect(), t]);
    for (const [text, box] of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) found.push("outside: " + text);
    }
    const level = texts.filter(([text, , t]) => !t.hasAttribute("transform") && text.trim());
    for (const [i, [one, a]] of level.entries()) for (const [other, b] of level.slice(i + 1)) {
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 4) found.push(`overlap: ${one} | ${other}`);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        missing = "there is no chromium on this machine, so that nobody looks at the page"
        if os.environ.get("HEEDFUL_BROWSER") == "1":
            pytest.fail(f"HEEDFUL_BROWSER=1, but {missing}")
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a page; at the end, whatever it asked for or complained of is an error."""
    trouble: list[str] = []
    contexts = []

    def open_(text: str, width: int = 1200, scheme: str = "light") -> Any:
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()

        def request(route: Any) -> None:
            if route.request.url == path.as_uri():
                route.continue_()
            else:
                trouble.append(f"asked for {route.request.url}")
                route.abort()

        page.route("**/*", request)
        page.on("console", lambda message: trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert trouble == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("made", [report, full])
def test_it_fits_and_can_be_read(look, made, width, scheme):
    page = look(html(made()), width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg') && "
    outside += "e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    assert page.evaluate(outside) == []
    assert page.evaluate(CLASHES) == []
    lowest = page.evaluate(CONTRAST)
    assert len(lowest) > 50
    assert lowest[0][0] >= 4.5, lowest[:3]


@pytest.mark.parametrize(
    ("scheme", "colours"), [("light", ("0, 0, 0", "255, 255, 255")), ("dark", ("255, 255, 255", "0, 0, 0"))]
)
def test_numbers_stand_out_from_their_shades(look, scheme, colours):
    page = look(html(report()), scheme=scheme)
    for kind, colour in zip(("text.n:not(.f)", "text.n.f"), colours, strict=True):
        assert page.evaluate(f"getComputedStyle(document.querySelector('{kind}')).fill") == f"rgb({colour})"


def test_light_and_dark_are_light_and_dark(look):
    grounds = []
    for scheme in ("light", "dark"):
        page = look(html(report()), scheme=scheme)
        colours = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, "
            "getComputedStyle(document.querySelector('svg[role=img] text')).fill]"
        )
        grounds.append([sum(map(int, colour[4:-1].split(","))) for colour in colours])
    (paper, ink, fill), (dark_paper, dark_ink, dark_fill) = grounds
    assert paper > 600 > 200 > ink
    assert dark_paper < 200 < 600 < dark_ink
    assert fill == ink
    assert dark_fill == dark_ink


@pytest.mark.parametrize(("width", "shown"), [(360, ".on-narrow"), (1200, ".on-wide")])
def test_each_chart_is_shown_once(look, width, shown):
    page = look(html(report()), width)
    seen = page.evaluate(
        "[...document.querySelectorAll('.on-wide, .on-narrow')].filter(e => e.offsetWidth)"
        f".map(e => e.matches('{shown}'))"
    )
    assert seen == [True] * 4


def test_hostile_text_does_nothing(look):
    page = look(html(hostile()), 360)
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_it_can_be_printed(look):
    page = look(html(report()), scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = (
        "[...document.querySelectorAll('.scroll > svg')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.evaluate(f"{wide}.length") == 0
