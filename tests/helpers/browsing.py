"""A real browser for tests of pages.

Without chromium these tests are skipped; with HEEDFUL_BROWSER=1 in the environment they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# The contrast of every text of a page with what is behind it, the lowest first.
CONTRAST = """() => {
  const numbers = text => {  // rgb(…) counts to 255, color(srgb …) to 1
    const all = text.match(/[0-9.]+/g).map(Number);
    return text.startsWith("color(") ? all.map((c, i) => i < 3 ? 255 * c : c) : all;
  };
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


def started() -> Iterator[Any]:
    """Start a browser, and close it afterwards."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        missing = "there is no chromium on this machine, so that nobody looks at the page"
        if os.environ.get("HEEDFUL_BROWSER") == "1":
            pytest.fail(f"HEEDFUL_BROWSER=1, but {missing}")
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def opening(browser: Any, folder: Path, wait_for: str = "", width: int = 1200) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens a page; at the end, requests and errors of the page fail the test.

    It waits for an element that scripts of the page make, unless scripts are off.
    """
    trouble: list[str] = []
    contexts = []

    def open_(text: str, width: int = width, scheme: str = "light", **options: Any) -> Any:
        path = folder / "page.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
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
        if wait_for and options.get("java_script_enabled", True):
            page.wait_for_selector(wait_for)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert trouble == []
