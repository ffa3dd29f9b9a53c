"""The page in a real browser: offline, without errors, without sideways overflow, and legible in light and dark.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsing
import pytest
from sample_report import full, hostile, outcome, report

from heedful.evaluation.report import report_page
from heedful.evaluation.run_report import run_page

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
    yield from browsing.started()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a page; at the end, whatever it asked for or complained of is an error."""
    for opened in browsing.opening(browser, tmp_path):

        def open_(text: str, width: int = 1200, scheme: str = "light", opened: Any = opened) -> Any:
            page = opened(text, width, scheme)
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
            return page

        yield open_


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("made", [report, full])
def test_it_fits_and_can_be_read(look, made, width, scheme):
    page = look(run_page(made()), width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = (
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg, .v-grid, select') && "
    )
    outside += "e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    assert page.evaluate(outside) == []
    assert page.evaluate(CLASHES) == []
    lowest = page.evaluate(browsing.CONTRAST)
    assert len(lowest) > 50
    assert lowest[0][0] >= 4.5, lowest[:3]


@pytest.mark.parametrize(
    ("scheme", "colours"), [("light", ("0, 0, 0", "255, 255, 255")), ("dark", ("255, 255, 255", "0, 0, 0"))]
)
def test_numbers_stand_out_from_their_shades(look, scheme, colours):
    page = look(run_page(report()), scheme=scheme)
    for kind, colour in zip(("text.n:not(.f)", "text.n.f"), colours, strict=True):
        assert page.evaluate(f"getComputedStyle(document.querySelector('{kind}')).fill") == f"rgb({colour})"


def test_light_and_dark_are_light_and_dark(look):
    grounds = []
    for scheme in ("light", "dark"):
        page = look(run_page(report()), scheme=scheme)
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
    page = look(run_page(report()), width)
    seen = page.evaluate(
        "[...document.querySelectorAll('.on-wide, .on-narrow')].filter(e => e.offsetWidth)"
        f".map(e => e.matches('{shown}'))"
    )
    assert seen == [True] * 4


def test_hostile_text_does_nothing(look):
    page = look(run_page(hostile()), 360)
    data = "[...document.scripts].filter(e => e.type === 'application/json').length"
    assert page.evaluate(f"document.scripts.length - {data}") == 1  # our own
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_it_can_be_printed(look):
    page = look(run_page(report()), scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = (
        "[...document.querySelectorAll('.scroll > svg')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.evaluate(f"{wide}.length") == 0


@pytest.mark.parametrize("width", [360, 1200])
def test_figures_are_alive(look, width):
    page = look(report_page(outcome()), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    first = page.locator("article").first
    first.scroll_into_view_if_needed()
    first.locator(".v-panel").wait_for()
    first.locator(".v-target li").nth(2).hover()
    assert first.locator(".v-ribbon.v-on").count() > 0
    assert first.locator(".v-status").inner_text().startswith("eating: ")
    assert first.locator(".v-static").count() == 0
