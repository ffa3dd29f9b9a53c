"""The interactive page of long texts in Chromium: its size, when it is loaded, and the longest task of what people do.

python benchmarks/explorer.py [--tokens 4000 32000] [--layers 22] [--heads 32]

The bars: 20 MB, the load event within 2 s, and no task over 100 ms while scrolling.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from heedful.draw.explorer import page
from heedful.draw.model_attention import AttentionView, ModelAttention
from heedful.trace import Text, Word
from heedful.trace.model_attention import HELD, TOP, AttentionGroup, TopWeights, block_edges

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TEXT = "the model reads every token of a long document and attends to it again where some names had come before"
WORDS = TEXT.split()
TASKS = ("RunTask", "ThreadControllerImpl::RunTask")


def text_of(count: int, random: np.random.Generator) -> Text:
    """Return a text of so many tokens: words of one or two tokens, sentences and paragraphs."""
    tokens: list[str] = []
    spans: list[tuple[int, int]] = []
    words: list[Word] = []
    parts: list[str] = []
    at = 0
    while len(tokens) < count:
        word = "." if len(words) % 24 == 23 else WORDS[random.integers(len(WORDS))]
        gap = "" if not words or word == "." else "\n\n" if len(words) % 240 == 0 else " "
        cut = len(word) if len(word) < 6 or len(tokens) + 1 == count else 4
        pieces = [piece for piece in (word[:cut], word[cut:]) if piece]
        at += len(gap)
        first, start = len(tokens), at
        for piece in pieces:
            spans.append((at, at + len(piece)))
            at += len(piece)
        tokens += pieces
        words.append(Word(word, start, at, first, len(tokens)))
        parts += [gap, word]
    return Text("".join(parts), tuple(tokens), tuple(spans), tuple(words))


def run_of(count: int, layers: int, heads: int) -> ModelAttention:
    """Return a run of a decoder-only model with random weights: a summary of every head, and the largest of some."""
    random = np.random.default_rng(0)
    text = text_of(count, random)
    b = len(block_edges(count))
    blocks = np.tril(random.random((layers, heads, b, b), dtype=np.float32) ** 8)
    blocks[..., np.arange(b), np.arange(b)] += 3 * random.random((layers, heads, 1), dtype=np.float32)
    blocks[..., 0] += 0.5
    blocks /= blocks.sum(-1, keepdims=True)
    top = {}
    for n in range(HELD):
        positions = np.sort(random.integers(0, np.arange(1, count + 1)[:, None], (count, TOP)), axis=1)
        doubled = np.diff(positions, axis=1, prepend=-1) == 0
        weights = random.random((count, TOP), dtype=np.float32)
        weights *= 0.8 / weights.sum(1, keepdims=True)
        weights[doubled] = 0
        top[n + 1, 1] = TopWeights(np.where(doubled, -1, positions).astype(np.int32), weights)
    received = random.random((layers, heads, count), dtype=np.float32)
    received[..., 0] = count / 3
    group = AttentionGroup(
        *("self", text, text, tuple(f"layers.{i}" for i in range(layers)), "flash"),
        received=received,
        entropy=random.random((layers, heads, count), dtype=np.float32),
        distance=random.random((layers, heads), dtype=np.float32) * 1000,
        sharpness=random.random((layers, heads), dtype=np.float32),
        blocks=blocks,
        top=top,
        causal=True,
    )
    return ModelAttention("random weights", [group])


def scroll(opened: Any) -> None:  # noqa: ANN401
    """Scroll through the text: by the wheel, slowly and fast, to the end and back."""
    box = opened.locator(".x-text-scroll").bounding_box()
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for distance, times in ((120, 40), (900, 40), (5000, 20), (-20000, 10)):
        for _ in range(times):
            opened.mouse.wheel(0, distance)
            opened.wait_for_timeout(16)
    for place in (0.5, 1, 0):
        opened.eval_on_selector(".x-text-scroll", f"e => {{ e.scrollTop = {place} * e.scrollHeight; }}")
        opened.wait_for_timeout(300)


def select(opened: Any) -> None:  # noqa: ANN401
    """Select a token, both directions, and several."""
    opened.locator(".x-unit").nth(40).click()
    opened.wait_for_timeout(200)
    opened.check("input[value=by]")
    opened.wait_for_timeout(200)
    opened.locator(".x-unit").nth(44).click(modifiers=["Shift"])
    opened.wait_for_timeout(200)


def choose(opened: Any) -> None:  # noqa: ANN401
    """Choose a held head, one that is not held, and rank all."""
    for i in (32, 3, 64):
        opened.locator(f".x-cell[data-i='{i}']").click()
        opened.wait_for_timeout(200)
    opened.check("input[value=rank]")
    opened.wait_for_timeout(300)


def find(opened: Any) -> None:  # noqa: ANN401
    """Find a word that is there often, and go to its last place."""
    opened.fill("input[type=search]", "model")
    opened.wait_for_timeout(200)
    opened.press("input[type=search]", "Shift+Enter")
    opened.wait_for_timeout(300)


def pieces(opened: Any) -> None:  # noqa: ANN401
    """Change from words to tokens."""
    opened.check("input[value=tokens]")
    opened.wait_for_timeout(500)


def load(opened: Any) -> None:  # noqa: ANN401
    """Load the page again and wait until all heads are drawn."""
    opened.reload()
    opened.wait_for_selector(".x-heads[data-drawn]")


def longest(trace: bytes) -> tuple[float, float]:
    """Return the longest task of the page by the clock, and the longest by the time of the processor, in milliseconds.

    On a machine with nothing else to do they are nearly the same.
    """
    events = json.loads(trace)["traceEvents"]
    named = (one for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain")
    main = {(one["pid"], one["tid"]) for one in named}
    tasks = [one for one in events if one["name"] in TASKS and (one["pid"], one["tid"]) in main]
    wall, processor = ([one.get(key, 0) / 1000 for one in tasks] for key in ("dur", "tdur"))
    return max(wall, default=0), max(processor, default=0)


def measure(browser: Any, path: Path) -> None:  # noqa: ANN401
    """Print the time of the load event, and the longest task of each activity."""
    opened = browser.new_page(viewport={"width": 1280, "height": 860})
    opened.goto(path.as_uri())
    opened.wait_for_selector(".x-heads[data-drawn]")
    event = opened.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f"  load event after {event:.0f} ms", flush=True)
    activities: tuple[Callable[[Any], None], ...] = (load, scroll, select, choose, find, pieces)
    for activity in activities:
        browser.start_tracing(page=opened, categories=["toplevel"])
        activity(opened)
        opened.wait_for_timeout(300)
        wall, processor = longest(browser.stop_tracing())
        print(f"  {activity.__name__:<8} longest task {wall:4.0f} ms; processor {processor:4.0f} ms", flush=True)
    opened.close()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[4000, 32_000])
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--heads", type=int, default=32)
    options = parser.parse_args()
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit("there is no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for count in options.tokens:
            run = run_of(count, options.layers, options.heads)
            begin = time.perf_counter()
            text = page([run], AttentionView())
            seconds = time.perf_counter() - begin
            file = Path(folder) / "page.html"
            file.write_text(text, encoding="utf-8")
            print(f"{count:,} tokens: {file.stat().st_size / 1e6:.1f} MB, made in {seconds:.1f} s", flush=True)
            measure(browser, file)
        browser.close()


if __name__ == "__main__":
    main()
