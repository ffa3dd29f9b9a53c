"""Ten million sentence pairs: how long they take to prepare, how soon the second start trains, what memory it needs.

python benchmarks/ten_million.py [--pairs 10000000] [--steps 300] [--folder DIR]

The pairs are made up: phrases of made-up words, Devanagari on one side and Latin on the other, whose frequencies fall
as those of real words do (Zipf), joined to sentences of 3 to 40 words, one in five with a name that hardly ever comes
twice. One in a hundred is a duplicate, one in a hundred holds an odd space. (The grammar of `heedful corpus hindi`
would take an hour for so many.) They are trained on by `heedful train`, twice, with an empty cache the first time; the
model is so small that steps cost little. Memory is that of all processes together, looked at five times a second:
anonymous memory is theirs alone; the rest is the disk's, mapped, and given back when somebody needs it.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

PHRASES, TYPES, NAMES, CHUNK = 200_000, 400_000, 5000, 50_000
SYLLABLES = (
    [c + v for c in "कखगघचजटडतदनपबभमयरलवसह" for v in ("", "ा", "ि", "ी", "ु", "े", "ो")],
    [
        c + v
        for c in ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "w", "ch", "st")
        for v in "aeiou"
    ],
)
SETTINGS = {
    "model.family": "rnn",
    "model.width": 32,
    "model.embedding": 32,
    "model.layers": 1,
    "training.batch_tokens": 2048,
    "training.valid_pairs": 100,
    "training.valid_every": 10**6,
    "training.checkpoint_every": 10**6,
    "training.device": "cpu",
}
# What `heedful train` says when it comes to the end of a part.
MARKS = {
    "pairs for training": "read and cleaned",
    "weights, vocabularies of": "vocabularies, tokens",
    "all steps done": "steps",
}


class Memory(NamedTuple):
    """Bytes in use by all processes: anonymous ones, and all, mapped files among them."""

    anonymous: int
    all: int


class Part(NamedTuple):
    """A part of a run: what it was, how long it took, and the most memory in use meanwhile."""

    name: str
    seconds: float
    peak: Memory


def words(side: int, count: int, random: np.random.Generator) -> list[str]:
    """Return made-up words, the frequent ones short."""
    syllables = SYLLABLES[side]
    lengths = 1 + np.minimum(4, np.log10(1 + np.arange(count)) * random.uniform(0.3, 1.0, count)).astype(int)
    picked = random.integers(len(syllables), size=(count, 5))
    return ["".join(syllables[i] for i in row[:n]) for row, n in zip(picked.tolist(), lengths.tolist(), strict=True)]


def phrases(random: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return phrases in two languages, of three to eight words; a word of one has its word in the other."""
    lengths = random.integers(3, 9, PHRASES)
    # The inverse of a distribution in which the n-th word is n times as rare as the first.
    ranks = (TYPES ** random.random((PHRASES, 8))).astype(int).tolist()
    sides = []
    for side in (0, 1):
        lexicon = words(side, TYPES + 1, random)
        sides.append([" ".join(lexicon[i] for i in row[:n]) for row, n in zip(ranks, lengths.tolist(), strict=True)])
    return sides[0], sides[1]


def write_pairs(path: Path, count: int, seed: int = 1) -> None:
    """Write a file of made-up pairs."""
    random = np.random.default_rng(seed)
    sources, targets = phrases(random)
    names = [words(side, NAMES, random) for side in (0, 1)]
    with path.open("w", encoding="utf-8") as file:
        for begin in range(0, count, CHUNK):
            size = min(CHUNK, count - begin)
            joined = 1 + random.binomial(4, 0.45, size)
            picked = random.integers(PHRASES, size=(size, 5)).tolist()
            called = random.integers(5 * NAMES, size=(size, 2)).tolist()
            lines = []
            for row, n, (a, b) in zip(picked, joined.tolist(), called, strict=True):
                sides = [", ".join([side[i] for i in row[:n]]) for side in (sources, targets)]
                if a < NAMES:
                    sides = [f"{own[a]}{own[b % NAMES]} {side}" for own, side in zip(names, sides, strict=True)]
                lines.append(f"{sides[0]} ।\t{sides[1]}.\n")
            for at in random.integers(1, size, size // 100) if size > 1 else ():
                lines[at] = lines[at - 1]
            for at in random.integers(size, size=size // 100):
                lines[at] = lines[at].replace(" ", "\u00a0", 1)
            file.writelines(lines)


def memory(process: int) -> Memory:
    """Return what a process and those it started have in use; nothing where there is no /proc."""
    sizes = {"RssAnon": 0, "VmRSS": 0}
    waiting = [process]
    while waiting:
        one = waiting.pop()
        try:
            status = Path(f"/proc/{one}/status").read_text()
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # it ended
            continue
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in sizes:
                sizes[name] += 1024 * int(value.split()[0])
    return Memory(sizes["RssAnon"], sizes["VmRSS"])


def run(pairs: Path, out: Path, steps: int, cache: Path) -> list[Part]:
    """Train, and return how long each part took and what it needed."""
    options = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "heedful", "train", str(pairs), "--out", str(out), "--steps", str(steps), *options]
    environment = {**os.environ, "HEEDFUL_CACHE": str(cache)}
    began = time.perf_counter()
    peaks = [Memory(0, 0)]

    def look() -> None:
        while process.poll() is None:
            peaks[0] = Memory(*map(max, peaks[0], memory(process.pid)))
            time.sleep(0.2)

    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        looking = threading.Thread(target=look)
        looking.start()
        parts = list(_parts(process, peaks, began))
        looking.join()
    if process.returncode:
        raise SystemExit(f"training ended with status {process.returncode}")
    return parts


def _parts(process: subprocess.Popen[str], peaks: list[Memory], began: float) -> Iterator[Part]:
    for line in process.stderr or ():
        print(f"  {time.perf_counter() - began:7.1f} s  {line}", end="", flush=True)
        for mark, name in MARKS.items():
            if mark in line:
                now, here = time.perf_counter(), memory(process.pid)
                yield Part(name, now - began, Memory(*map(max, peaks[0], here)))
                began, peaks[0] = now, here  # a part that is over before the next look has what it began with


def report(name: str, parts: list[Part]) -> None:
    """Print a table of what was found."""
    print(f"\n| {name} | s | anonymous memory, MB | with mapped files, MB |\n|---|---|---|---|")
    for part in parts:
        print(f"| {part.name} | {part.seconds:.1f} | {part.peak.anonymous / 1e6:,.0f} | {part.peak.all / 1e6:,.0f} |")


def main() -> None:
    """Make the pairs, train twice, and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--pairs", type=int, default=10_000_000)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--folder", type=Path, help="where to leave the pairs, 3.2 GB, and the cache; used if there")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        pairs, cache = folder / "pairs.tsv", folder / "cache"
        began = time.perf_counter()
        if not pairs.exists():
            write_pairs(pairs, given.pairs)
        print(f"{pairs.stat().st_size / 1e9:.2f} GB of pairs, made in {time.perf_counter() - began:.0f} s")
        first = run(pairs, Path(name) / "first", given.steps, cache)
        second = run(pairs, Path(name) / "second", given.steps, cache)
        used = sum(file.stat().st_size for file in cache.rglob("*"))
        report("first start", first)
        report("second start", second)
        print(f"\ncache: {used / 1e9:.2f} GB; {os.cpu_count()} cores, {platform.processor() or platform.machine()}")


if __name__ == "__main__":
    main()
