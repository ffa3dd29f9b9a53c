"""Names of emoji from their drawings, on kinds that were never seen: English and Hindi, an image encoder from scratch.

    python3 benchmarks/emoji_captions.py --data FOLDER --out FOLDER [--languages en,hi] [--steps 4000]

FOLDER of --data holds `twemoji`: captions.tsv.gz with the columns file, en and hi, and twemoji-72x72.zip. A kind is a
name without skin tones and directions, so that all variants of "woman golfing" are one kind. Kinds are held out, in a
fixed random order, while every word of their names, in both languages, remains in at least two kinds for training:
"woman golfing" can be named by a model that has seen women and golf, but not both at once. Exact match and chrF are
those of the drawings of held-out kinds, beside the name of the nearest training drawing by its pixels.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # the heedful of this checkout

import numpy as np

import heedful
from heedful.data.images import ImageFiles, LoadedImage, resized
from heedful.files import write_whole
from heedful.metrics import chrf

LANGUAGES = {"en": "English", "hi": "Hindi"}
HELD_OUT = 0.12  # share of the drawings
REMAINING = 2  # kinds for training that have each word of a held-out kind
TONES = re.compile(r"(?:light|medium-light|medium|medium-dark|dark) skin tone|facing right")
SIDE = 24  # pixels of the drawings that are compared by their pixels
SETTINGS: dict[str, Any] = {
    "model": {"family": "rnn", "width": 160, "embedding": 96, "tied": True, "dropout": 0.1},
    "image": {"pixels": 64, "patch": 8, "filters": 16, "blocks": 2},
    "text": {"kind": "word"},
    "training": {
        **{"batch_sentences": 32, "rate": 0.002, "warmup": 200, "decay": "cosine", "smoothing": 0.05, "ema": 0.99},
        **{"valid_every": 500, "metric": "loss", "patience": 20},
    },
}


class Emoji(NamedTuple):
    """A drawing: its file, its names by language, and its kind."""

    file: str
    names: dict[str, str]
    kind: str


def kind_of(name: str) -> str:
    """Return an English name without skin tones and directions.

    >>> kind_of("kiss: man, man, dark skin tone"), kind_of("woman running: dark skin tone, facing right")
    ('kiss: man, man', 'woman running')
    """
    base, _, details = name.partition(": ")
    rest = [part for part in details.split(", ") if part and not TONES.fullmatch(part)]
    return f"{base}: {', '.join(rest)}" if rest else base


def words(name: str) -> set[str]:
    """Return the words of a name."""
    return set(re.findall(r"[^\s:,]+", name.lower()))


def read_emoji(path: Path) -> list[Emoji]:
    """Return all emoji of a table."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Emoji(row["file"], {name: row[name] for name in LANGUAGES}, kind_of(row["en"])) for row in rows]


def split(emoji: Sequence[Emoji]) -> tuple[list[Emoji], list[Emoji]]:
    """Return the drawings for training, and those of held-out kinds."""
    kinds: dict[str, list[Emoji]] = defaultdict(list)
    for one in emoji:
        kinds[one.kind].append(one)
    own = {
        kind: {word for one in each for name in one.names.values() for word in words(name)}
        for kind, each in kinds.items()
    }
    left = Counter(word for each in own.values() for word in each)
    held: set[str] = set()
    total = 0
    for kind in sorted(kinds, key=lambda kind: hashlib.sha256(kind.encode()).digest()):
        fits = total + len(kinds[kind]) <= HELD_OUT * len(emoji)
        if fits and all(left[word] > REMAINING for word in own[kind]):
            held.add(kind)
            total += len(kinds[kind])
            left.subtract(own[kind])
    return [one for one in emoji if one.kind not in held], [one for one in emoji if one.kind in held]


def nearest(training: Sequence[LoadedImage], test: Sequence[LoadedImage]) -> list[int]:
    """Return for each drawing the training drawing with the most similar pixels."""
    known, asked = (
        np.stack([resized(image.pixels, SIDE).astype(np.float32).ravel() / 255 for image in images])
        for images in (training, test)
    )
    distances = (known**2).sum(1) - 2 * asked @ known.T
    return [int(index) for index in distances.argmin(1)]


def scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the share of names that are exactly right, and chrF."""
    exact = sum(a == b for a, b in zip(outputs, references, strict=True)) / len(references)
    return {"exact": 100 * exact, "chrf": chrf(list(outputs), list(references))}


def main() -> None:
    """Train a model for each language, name the held-out drawings, and print a table and JSON."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="folder that holds twemoji, or that folder")
    options.add_argument("--out", type=Path, required=True, help="for models and results")
    options.add_argument("--languages", default="en,hi", help="(default: en,hi)")
    options.add_argument("--steps", type=int, default=4000, help="updates (default: 4000)")
    options.add_argument("--threads", type=int, default=0, help="CPU threads (default: the fastest number, measured)")
    args = options.parse_args()
    folder = args.data / "twemoji" if (args.data / "twemoji").is_dir() else args.data
    training, test = split(read_emoji(folder / "captions.tsv.gz"))
    files = ImageFiles(folder / "twemoji-72x72.zip")
    loaded = [[files.load(one.file) for one in side] for side in (training, test)]
    near = nearest(*loaded)
    counts = {"training": len(training), "test": len(test), "kinds": len({one.kind for one in test})}
    print(json.dumps(counts), file=sys.stderr, flush=True)
    results: list[dict[str, Any]] = []
    for language in args.languages.split(","):
        out = args.out / language
        begun = time.perf_counter()
        if (out / "config.json").exists():
            translator = heedful.load(out)
        else:
            rows = [(one.file, one.names[language]) for one in training]
            run = {**SETTINGS["training"], "steps": args.steps, "threads": args.threads}
            translator = heedful.train(
                [row for number, row in enumerate(rows) if number % 12],
                out,
                valid=rows[::12],
                images=folder / "twemoji-72x72.zip",
                settings={**SETTINGS, "training": run},
                preset="none",
                verbose=False,
            )
        seconds = round(time.perf_counter() - begun)
        references = [one.names[language] for one in test]
        outputs = [one.text for one in translator.caption(loaded[1], trace=False)]
        again = [one.text for one in translator.caption(loaded[0][::12], trace=False)]
        copied = [training[index].names[language] for index in near]
        known = scores(again, [one.names[language] for one in training[::12]])
        results += [
            {"language": language, "names": "nearest training drawing", **scores(copied, references)},
            {"language": language, "names": "attention", **scores(outputs, references), "seconds": seconds},
            {"language": language, "names": "attention, drawings held out at random", **known},
        ]
        shown = [{"name": a, "written": b} for a, b in zip(references, outputs, strict=True)]
        write_whole(out / "names.json", json.dumps(shown, indent=1, ensure_ascii=False).encode())
    print("| language | names | exact match | chrF |\n|---|---|---|---|")
    for one in results:
        print(f"| {LANGUAGES[one['language']]} | {one['names']} | {one['exact']:.1f} % | {one['chrf']:.1f} |")
    print(f"\n{json.dumps({**counts, 'results': results})}")


if __name__ == "__main__":
    main()
