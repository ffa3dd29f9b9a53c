"""Alignment error rate of the statistical aligners on gold links, with every symmetrisation.

python benchmarks/aligners.py --data DIR [--sets en-fr,de-en,en-hi,en-cs] [--methods ibm,eflomal] [--json FILE]

Both learn from the same text: the pairs of `alignment_sets` and the gold sentences without their links. eflomal is
measured if its program is there. Seconds are those of the whole method, on as many cores as there are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from alignment_sets import SETS, AlignmentSet, read_set

from heedful.alignment import HEURISTICS, Links, both_directions, eflomal_directions, score, symmetrize
from heedful.alignment.statistical import PROGRAM
from heedful.errors import choose

METHODS: dict[str, Callable[..., Iterator[tuple[int, Links, Links]]]] = {
    "ibm": both_directions,
    "eflomal": eflomal_directions,
}


def main() -> None:
    """Measure, print a table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder with multi30k/, word-alignment/ and others"
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sets = [choose("set", name, SETS) for name in given.sets.split(",")]
    methods = [choose("method", name, METHODS) for name in given.methods.split(",")]
    if "eflomal" in methods and shutil.which(PROGRAM) is None:
        print(f"{PROGRAM} is not installed; eflomal is left out")
        methods.remove("eflomal")
    rows = []
    print("| gold | trained on | aligner | " + " | ".join(HEURISTICS) + " | seconds |")
    print("|---|---|---|" + "---|" * (len(HEURISTICS) + 1))
    for name in sets:
        data = read_set(given.data, name)
        for method in methods:
            rows.append(measure(data, method))
            print(line(rows[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def measure(data: AlignmentSet, method: str) -> dict[str, Any]:
    """Return the error rate of a method with each symmetrisation, in percent, and how long it took."""
    begun = time.perf_counter()
    forward: list[Links] = [frozenset()] * len(data.pairs)
    reverse = list(forward)
    sources, targets = [x for x, _ in data.pairs], [y for _, y in data.pairs]
    for row, x, y in METHODS[method](sources, targets, extra=data.extra):
        forward[row], reverse[row] = x, y
    seconds = time.perf_counter() - begun
    rates = {}
    for how in HEURISTICS:
        found = [symmetrize(x, y, how) for x, y in zip(forward, reverse, strict=True)]
        rates[how] = 100 * score(found, data.gold.sure, data.gold.possible).error_rate
    pairs = len(data.pairs) + len(data.extra)
    return {"gold": data.title, "pairs": pairs, "aligner": method, "error_rate": rates, "seconds": seconds}


def line(row: dict[str, Any]) -> str:
    """Return a row of the table, the best rate in bold."""
    best = min(row["error_rate"].values())
    rates = [f"**{rate:.1f}**" if rate == best else f"{rate:.1f}" for rate in row["error_rate"].values()]
    return "| " + " | ".join([row["gold"], f"{row['pairs']:,}", row["aligner"], *rates, f"{row['seconds']:.0f}"]) + " |"


if __name__ == "__main__":
    main()
