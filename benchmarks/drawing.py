"""How long drawing takes: each picture of sentences of several lengths, medians in milliseconds of the processor.

python benchmarks/drawing.py [--rounds 20] [--png] [--page]

The traces are made up: every word looks at two places, and a little everywhere. In a round every picture is drawn
once. What other programs take is not counted. The goals are for 30 × 30 words: the heat map under
50 ms as SVG and under 5 ms in the terminal. With --page pages of 2,000 × 2,000 tokens are opened in Chromium, by the
clock, from its address to its first picture: under 2 s and 5 MB are wanted. One has 2 layers of 4 heads, one has
8 heads whose weights are spread over all tokens, with long words of Devanagari, which take the most bytes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from heedful.draw import heatmap, views
from heedful.draw.html import page
from heedful.trace import Text, Trace, Word

LENGTHS = (10, 30, 100, 200)
GOALS = {("heat map, SVG", 30): 50.0, ("heat map, terminal", 30): 5.0}


def trace(words: int, layers: int = 2, heads: int = 4) -> Trace:
    """Return a trace of so many words on either side, `</s>` among them."""
    text = " ".join("word" for _ in range(words - 1))
    spans = [(5 * i, 5 * i + 4) for i in range(words - 1)] + [(len(text), len(text))]
    names = ["word"] * (words - 1) + ["</s>"]
    made = tuple(Word(name, *span, i, i + 1) for i, (name, span) in enumerate(zip(names, spans, strict=True)))
    side = Text(text, tuple(names), tuple(spans), made)
    weights = np.full((layers, heads, words, words), 0.1 / words, dtype=np.float32)
    rows = np.arange(words)
    weights[:, :, rows, rows] += 0.6
    weights[:, :, rows, rows[::-1]] += 0.3
    return Trace(side, side, weights, (-rows / 9).astype(np.float32))


def pictures(png: bool) -> dict[str, Callable[[Trace], object]]:
    """Return what is drawn, by name."""
    found: dict[str, Callable[[Trace], object]] = {
        "heat map, terminal": heatmap,
        "heat map, SVG": lambda one: views.view([one]),
        "braid, SVG": lambda one: views.view([one], views.View("braid")),
        "heads, SVG": lambda one: views.view([one], views.View("heads")),
    }
    if png:
        from heedful.draw.png import render

        found["heat map, PNG"] = lambda one: render(views.view([one]))
    return found


def measure(rounds: int, png: bool = False) -> dict[tuple[str, int], float]:
    """Return the median time of each picture at each length, in milliseconds."""
    drawn, traces = pictures(png), {length: trace(length) for length in LENGTHS}
    times: dict[tuple[str, int], list[float]] = {(name, length): [] for name in drawn for length in LENGTHS}
    for number in range(rounds + 1):
        for (name, length), found in times.items():
            begin = time.process_time()
            drawn[name](traces[length])
            if number:  # the first round is to get warm
                found.append(1000 * (time.process_time() - begin))
    return {key: statistics.median(found) for key, found in times.items()}


def spread(words: int, heads: int = 8) -> Trace:
    """Return a trace whose words look everywhere, at some places more than at others."""
    name = "अंतर्राष्ट्रीय"
    text, step = " ".join([name] * words), len(name) + 1
    spans = tuple((step * i, step * i + len(name)) for i in range(words))
    made = tuple(Word(name, *span, i, i + 1) for i, span in enumerate(spans))
    weights = np.exp(2.5 * np.random.default_rng(0).standard_normal((1, heads, words, words), dtype=np.float32))
    weights /= weights.sum(-1, keepdims=True)
    side = Text(text, (name,) * words, spans, made)
    return Trace(side, side, weights, np.full(words, -0.1, dtype=np.float32))


def open_page(rounds: int, traced: Trace, view: str = "braid") -> tuple[int, float]:
    """Return how many bytes the page of a trace has, and the median seconds until it shows something."""
    from playwright.sync_api import sync_playwright

    text = page([traced], view=view)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "page.html").write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        spent = []
        for _ in range(rounds):
            tab = browser.new_page()
            begin = time.perf_counter()
            tab.goto((Path(folder) / "page.html").as_uri())
            tab.wait_for_selector(".v-panel")
            spent.append(time.perf_counter() - begin)
            tab.close()
        browser.close()
    return len(text.encode()), statistics.median(spent)


def main() -> None:
    """Measure, print a table, and say whether the goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--png", action="store_true", help="PNG too, which takes about a second each")
    parser.add_argument("--page", action="store_true", help="pages of 2,000 tokens in Chromium, and nothing else")
    given = parser.parse_args()
    if given.page:
        for name, traced in (("2 layers of 4 heads", trace(2000)), ("8 heads, spread out", spread(2000))):
            for view in ("braid", "heads"):
                size, seconds = open_page(given.rounds, traced, view)
                print(f"2,000 × 2,000 tokens, {name}, {view}: {size / 1e6:.2f} MB, open after {seconds:.2f} s")
        return
    found = measure(given.rounds, given.png)
    print("| milliseconds |" + "".join(f" {n} × {n} |" for n in LENGTHS))
    print("|---" * (len(LENGTHS) + 1) + "|")
    for name in pictures(given.png):
        print(f"| {name} |" + "".join(f" {found[name, n]:.1f} |" for n in LENGTHS))
    for (name, length), goal in GOALS.items():
        reached = "yes" if found[name, length] < goal else "NO"
        print(f"{reached}: {name}, {length} × {length} words: {found[name, length]:.1f} ms, goal under {goal:g} ms")


if __name__ == "__main__":
    main()
