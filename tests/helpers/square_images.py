"""Images of two coloured squares with their captions and regions: a task that a small captioner learns in seconds."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 30), "blue": (30, 30, 220)}
WIDTH, HEIGHT, SIDE = 48, 32, 14
LEFT, RIGHT = 4, 28  # where the squares begin
# Settings of a captioner that learns it; the grid has 4 × 4 regions.
SETTINGS: dict[str, dict[str, object]] = {
    "image": {"pixels": 32, "patch": 8, "filters": 8, "blocks": 0},
    "text": {"kind": "word"},
    "training": {"steps": 250, "valid_every": 125, "rate": 0.003, "warmup": 50, "batch_sentences": 32, "threads": 1},
}
SIZES: dict[str, dict[str, object]] = {
    "rnn": {"width": 64, "embedding": 32, "dropout": 0.0},
    "fixed": {"width": 64, "embedding": 32, "dropout": 0.0},
    "transformer": {"width": 64, "heads": 2, "inner": 64, "layers": 2, "dropout": 0.0},
}


class Squares(NamedTuple):
    """A folder of images, their captions, the file of captions, and that of regions."""

    images: Path
    rows: list[tuple[str, str]]
    captions: Path
    regions: Path


def settings(family: str = "rnn", **sections: dict[str, object]) -> dict[str, dict[str, object]]:
    """Return the settings of a small captioner, with some changed."""
    every = {**SETTINGS, "model": {"family": family, **SIZES[family]}}
    return {name: {**every.get(name, {}), **sections.get(name, {})} for name in {**every, **sections}}


def draw_squares(folder: Path, count: int, captions: int = 1, seed: int = 0) -> Squares:
    """Draw images of two squares, at random heights, with so many captions for each."""
    from PIL import Image

    random = np.random.default_rng(seed)
    images = folder / "images"
    images.mkdir(parents=True)
    rows: list[tuple[str, str]] = []
    regions = []
    for number in range(count):
        name, colours = f"{number:03d}.png", [list(COLOURS)[i] for i in random.integers(0, len(COLOURS), 2)]
        pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
        for word, colour, x in zip((1, 5), colours, (LEFT, RIGHT), strict=True):
            y = int(random.integers(0, HEIGHT - SIDE))
            pixels[y : y + SIDE, x : x + SIDE] = COLOURS[colour]
            regions.append({"image": name, "word": word, "x": x, "y": y, "w": SIDE, "h": SIDE})
        Image.fromarray(pixels).save(images / name)
        rows.append((name, f"a {colours[0]} square and a {colours[1]} square"))
        rows += [(name, f"{' '.join(colours)} {i}") for i in range(1, captions)]
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])
    (folder / "regions.jsonl").write_text("\n".join(map(json.dumps, regions)))
    return Squares(images, rows, folder / "captions.csv", folder / "regions.jsonl")
