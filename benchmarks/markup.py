"""Markup carried over on the embedded corpus: how many tags land on the words that gold links say.

python benchmarks/markup.py [MODEL …] [--pairs 10000] [--test 1000] [--gold]

Without MODEL, a small Transformer is trained on Hindi-English pairs with the corpus's own links (as guided.py does).
Then every test sentence, which holds combinations of words that training has not, gets tags around one to three
words at random, and is translated. A tag lands when it covers every target word that the gold links give its words, and
no target word that they give to others alone; target words without gold links count neither way, and a tag whose words
have no gold links is not counted. Gold links are known for the reference: translations that are the same are counted,
and besides, all references are read by the model and tagged by its own links. --gold tags by the gold links
themselves: what the placing alone can do.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import guided
import numpy as np

import heedful
from heedful.data.hindi import SentenceSide
from heedful.markup import carry, parse
from heedful.trace import Word
from heedful.trace.alignment import Alignment, Link
from heedful.translator import Translator


class Case(NamedTuple):
    """A pair, and the first and last source word of each tag."""

    side: SentenceSide
    tags: tuple[tuple[int, int], ...]

    @property
    def source(self) -> str:
        """The source with its tags; each has a number of its own."""
        words = self.side.source.split()
        for number, (first, last) in enumerate(self.tags):
            words[first] = f'<b id="{number}">{words[first]}'
            words[last] += "</b>"
        return " ".join(words)


def cases(count: int, seed: int = 1) -> Iterator[Case]:
    """Yield test sentences with one or two tags that do not overlap."""
    pick = random.Random(seed)
    for side in guided.sides(count, "test"):
        size, tags, at = len(side.source.split()), [], 0
        for _ in range(2):
            first = pick.randint(at, max(at, size - 1))
            last = min(size - 1, first + pick.choice((0, 0, 1, 2)))
            if first >= size:
                break
            tags.append((first, last))
            at = last + 1
        yield Case(side, tuple(tags))


def landed(case: Case, out: str) -> tuple[int, int]:
    """Return how many tags landed, and how many are counted, in the reference with tags."""
    marked = parse(out)
    assert marked.text == case.side.target, (marked.text, case.side.target)
    places = [(m.start(), m.end()) for m in re.finditer(r"\S+", marked.text)]
    hits = counted = 0
    for number, (first, last) in enumerate(case.tags):
        gold = {t for s, t in case.side.links if first <= s <= last}
        others = {t for _, t in case.side.links} - gold
        covered = {
            t
            for element in marked.runs[0].elements
            if element.open == f'<b id="{number}">'
            for t, (start, end) in enumerate(places)
            if element.start < end and start < element.end
        }
        counted += bool(gold)
        hits += bool(gold) and gold <= covered and not covered & others
    return hits, counted


def by_gold(side: SentenceSide) -> Alignment:
    """Return the gold links as an alignment."""
    x, y = (
        tuple(Word(m[0], m.start(), m.end(), i, i + 1) for i, m in enumerate(re.finditer(r"\S+", text)))
        for text in (side.source, side.target)
    )
    weights = np.zeros((len(y), len(x)), dtype=np.float32)
    for s, t in side.links:
        weights[t, s] = 1
    return Alignment(x, y, tuple(Link(s, t, 1.0) for s, t in sorted(side.links)), weights)


def tell(what: str, rows: Sequence[tuple[int, int]]) -> None:
    """Print the share of tags that landed."""
    hits, counted = sum(row[0] for row in rows), sum(row[1] for row in rows)
    print(f"{what}: {hits}/{counted} tags land, {hits / max(1, counted):.2%} ({len(rows)} sentences)", flush=True)


def measure(name: str, translator: Translator, given: Sequence[Case]) -> None:
    """Measure a model: on references that it reads, and on its own translations that are the reference."""
    marked = [parse(case.source) for case in given]
    sources, targets = [one.text for one in marked], [case.side.target for case in given]
    links = translator.align(sources, targets)
    tell(
        f"{name}, references read",
        [landed(c, carry(m, a, c.side.target)) for c, m, a in zip(given, marked, links, strict=True)],
    )
    done = translator.translate(sources)
    same = [
        landed(c, carry(m, t.alignment, t.text))
        for c, m, t in zip(given, marked, done, strict=True)
        if t.text == c.side.target
    ]
    tell(f"{name}, own translations that are the reference", same)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="model folders for Hindi to English")
    parser.add_argument("--pairs", type=int, default=10_000, help="pairs to train on")
    parser.add_argument("--test", type=int, default=1_000, help="test sentences")
    parser.add_argument("--gold", action="store_true", help="tag by the gold links, too")
    options = parser.parse_args()
    given = list(islice(cases(options.test), options.test))
    if options.gold:
        tell(
            "gold links",
            [landed(case, carry(parse(case.source), by_gold(case.side), case.side.target)) for case in given],
        )
    for path in options.models:
        measure(path, heedful.load(path), given)
    if not options.models:
        with tempfile.TemporaryDirectory() as folder:
            pairs = guided.sides(options.pairs, "train")
            translator, seconds = guided.train("transformer", pairs, True, Path(folder) / "model")
            print(f"trained on {len(pairs):,} pairs with their links in {seconds:.0f} s", flush=True)
            measure("guided transformer", translator, given)


if __name__ == "__main__":
    main()
