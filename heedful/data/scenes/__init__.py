"""Drawn scenes with captions in English and Hindi, and a gold region for every content word.

    two red birds above a small blue house left of a large green tree
    दो लाल चिड़ियाँ एक छोटे नीले घर के ऊपर हैं जो एक बड़े हरे पेड़ के बाईं ओर है

A scene has one to four groups: one, two or three things of one kind and colour. Everything is chosen first, from a
seed, in whole units of 1/1024 of the picture; captions and boxes need no drawing. `Scene.draw` needs Pillow.

The picture determines the caption:

- The highest group is named first, the others follow clockwise around the middle of the picture. The centre of a
  group's box is its place; that of the highest is higher than all others by 9 % of the picture or more, and no other
  box reaches above its box. With three or four groups, two neighbours are at least 25 degrees apart, as seen from the
  middle.
- Between two groups that follow each other is the relation of the first to the second: above or below if their
  distance is mainly vertical, left of or right of if it is mainly horizontal; one is at least 1.4 times the other.
- A single thing is small or large, about 21 % or 38 % of the picture's side; two or three have one size, which is not
  named. Colours are always named. Background and clutter (clouds, grass, pebbles, waves, dots) never are.

No two groups of a scene have the same kind and colour. The region of a count, size or colour word and of a noun is the
box around its group. The article, relations and verbs have none.

Some combinations are kept for testing: a colour and a kind, or a kind, a relation and a kind. They are never in a
training scene, though each of their words is; every test scene has at least one. Validation has its own combinations.
Within a split all pictures differ, but captions of one or two groups repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from math import atan2, cos, degrees, radians, sin
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from heedful.data.scenes.drawing import BACKGROUNDS, UNITS, Placed, paint, pillow
from heedful.data.scenes.kinds import TILTS, drawing
from heedful.data.scenes.lexicon import COLOURS, LANGUAGES, RELATIONS, SIZES, kinds, noun_phrase
from heedful.errors import ConfigError, DataError, check_value, choose
from heedful.files import make_folder, write_whole, writing

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "COLOURS",
    "LANGUAGES",
    "MOST",
    "PIXELS",
    "RELATIONS",
    "SPLITS",
    "Scene",
    "SceneObject",
    "kept",
    "kinds",
    "order",
    "relation",
    "scenes",
    "write_scenes",
]

SPLITS = ("train", "valid", "test")
PIXELS = 128  # the side of a picture, unless another is asked for
MOST = 4  # groups
Box = tuple[int, int, int, int]  # x, y, width, height
SCALES = {"small": 216, "large": 390, "": 204}  # units that a thing is wide and high, about; "" is one of two or three
INSIDE = 14  # units between a box and the edge of the picture, at least
APART = 36  # units between two groups
HIGHER = 92  # units that the highest is above all others
MAINLY = 1.4  # times that a distance along one axis is that along the other
ANGLE = 25.0  # degrees between two neighbours, as seen from the middle
OFF_CENTRE = 90  # units from the middle, for three groups or more
TRIES = 40
FILES = ("images", "captions.csv", "regions.jsonl")
COMPRESSION = 1  # of PNG files: 9 is 10 times as slow, and the files are about a quarter smaller


@dataclass(frozen=True)
class SceneObject:
    """A group: one to three things of a kind and colour.

    `size` is small or large, or "" for two or three things. `box` is x, y, width and height in pixels; `boxes` are
    those of the single things.
    """

    kind: str
    colour: str
    count: int
    size: str
    box: Box
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Scene:
    """A scene: its groups in the order of the caption, `relations` between them, and what is drawn."""

    objects: tuple[SceneObject, ...]
    relations: tuple[str, ...]
    background: str
    language: str
    size: int
    things: tuple[Placed, ...]
    texture: int

    @property
    def caption(self) -> str:
        """The caption in the scene's language."""
        return self.captions[self.language]

    @property
    def captions(self) -> dict[str, str]:
        """The captions, by language."""
        return {language: " ".join(word for word, _ in self._words(language)) for language in LANGUAGES}

    @property
    def regions(self) -> list[tuple[int, int, int, int, int]]:
        """The gold regions of the caption: word index, x, y, width, height in pixels."""
        words = self._words(self.language)
        return [(i, *self.objects[index].box) for i, (_, index) in enumerate(words) if index >= 0]

    @property
    def region_kinds(self) -> list[str]:
        """The kind of word of each gold region: count, size, colour or noun."""
        kinds_of = [
            iter([*(["count"] if each.count > 1 else ["size"] * bool(each.size)), "colour", "noun"])
            for each in self.objects
        ]
        return [next(kinds_of[index]) for _, index in self._words(self.language) if index >= 0]

    def draw(self) -> np.ndarray:
        """Return the picture, uint8 (size, size, 3)."""
        return paint(self.background, list(self.things), self.texture, self.size)

    def _words(self, language: str) -> list[tuple[str, int]]:
        """Return the words of the caption, each with the index of its object, or -1 if it has no region."""
        phrases = [self._phrase(index, language) for index in range(len(self.objects))]
        made = list(phrases[0])
        for index, name in enumerate(self.relations):
            relation = RELATIONS[name][LANGUAGES.index(language)].split()
            if language == "en":
                made += [*((word, -1) for word in relation), *phrases[index + 1]]
                continue
            verb = "है" if self.objects[index].count == 1 else "हैं"
            made += [("जो", -1)] if index else []
            made += [*self._phrase(index + 1, language, oblique=True), *((word, -1) for word in (*relation, verb))]
        return made

    def _phrase(self, index: int, language: str, oblique: bool = False) -> list[tuple[str, int]]:
        thing = self.objects[index]
        words = noun_phrase(thing.count, thing.size, thing.colour, thing.kind, language, oblique)
        return [(word, -1 if thing.count == 1 and not place else index) for place, word in enumerate(words)]


def scenes(
    count: int,
    *,
    seed: int = 1,
    split: str = "train",
    language: str = "en",
    size: int = PIXELS,
    objects: tuple[int, int] = (1, MOST),
) -> Iterator[Scene]:
    """Return `count` scenes with this least and greatest number of groups, each number equally often.

    The same seed gives the same scenes in every language and size, and a larger count begins with the same scenes.

    >>> [scene.caption for scene in scenes(2, seed=1)]
    ['a large orange mushroom', 'two blue birds above a small red turtle']
    """
    choose("split", split, SPLITS)
    choose("language", language, LANGUAGES)
    check_value("count", count, int, lambda count: count >= 0, "a whole number")
    check_value("size", size, int, lambda size: 32 <= size <= 1024, "a whole number from 32 to 1024")
    least, most = objects
    if not 1 <= least <= most <= MOST:
        raise ConfigError(f"objects is {least} to {most}, expected whole numbers from 1 to {MOST}, the least first")
    random = Random(f"scenes {seed} {split}")
    numbers = (least + index % (most - least + 1) for index in range(count))
    return (_scene(random, number, split, language, size) for number in numbers)


def write_scenes(folder: str | Path, made: Iterable[Scene]) -> int:
    """Write scenes as images/000001.png …, captions.csv and regions.jsonl of a folder; return how many.

    Raise DataError if the folder has one of these already.
    """
    image, _ = pillow()
    folder = Path(folder)
    present = [name for name in FILES if (folder / name).exists()]
    if present:
        raise DataError(f"{folder} has {', '.join(present)} already; choose another folder, or remove them first")
    make_folder(folder / "images")
    rows, regions = ["image,caption\n"], []
    for number, scene in enumerate(made, 1):
        name = f"{number:06}.png"
        with writing(folder / "images" / name):
            image.fromarray(scene.draw()).save(folder / "images" / name, compress_level=COMPRESSION)
        rows.append(f"{name},{scene.caption}\n")
        for (word, x, y, w, h), kind in zip(scene.regions, scene.region_kinds, strict=True):
            box = {"x": x, "y": y, "w": w, "h": h}
            regions.append(json.dumps({"image": name, "word": word, **box, "kind": kind}) + "\n")
    write_whole(folder / "captions.csv", "".join(rows).encode())
    write_whole(folder / "regions.jsonl", "".join(regions).encode())
    return len(rows) - 1


def relation(first: tuple[int, int], second: tuple[int, int]) -> str:
    """Return the relation of a place (x, y) to another one, or "" if neither axis clearly has the larger distance.

    >>> relation((10, 10), (12, 90)), relation((90, 10), (10, 20)), relation((0, 0), (50, 50))
    ('above', 'right of', '')
    """
    across, down = second[0] - first[0], second[1] - first[1]
    if abs(down) >= MAINLY * abs(across):
        return "above" if down > 0 else "below"
    if abs(across) >= MAINLY * abs(down):
        return "left of" if across > 0 else "right of"
    return ""


def order(places: Sequence[tuple[int, int]], side: int = UNITS) -> list[int]:
    """Return the order in which groups are named, by their places (x, y): the highest, then clockwise.

    >>> order([(300, 800), (700, 200), (300, 300), (700, 700)])
    [1, 3, 0, 2]
    """
    angles = [degrees(atan2(y - side / 2, x - side / 2)) for x, y in places]
    first = min(range(len(places)), key=lambda i: places[i][1])
    return sorted(range(len(places)), key=lambda i: (i != first, (angles[i] - angles[first]) % 360))


@cache
def kept() -> dict[tuple[str, ...], str]:
    """Return the split of each combination that is kept for one: (colour, kind), and (kind, relation, kind)."""
    found: dict[tuple[str, ...], str] = {}
    for row, kind in enumerate(kinds()):
        for column, colour in enumerate(COLOURS):
            if (row + column) % len(COLOURS) == 0:
                found[colour, kind] = "test"
            elif (row + column) % len(COLOURS) == 4 and row % 2:
                found[colour, kind] = "valid"
        for name in RELATIONS:
            for other in kinds():
                digest = blake2b(f"{kind}\t{name}\t{other}".encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "big") % 1000
                if number < 120:
                    found[kind, name, other] = "test" if number < 80 else "valid"
    return found


def _belongs(found: set[str | None], split: str) -> bool:
    """Whether a scene with combinations that are kept for these splits belongs to a split."""
    if split == "train":
        return found <= {None}
    return split in found and (split == "test" or "test" not in found)


class _ObjectGroup:
    """A group while its place is looked for: its things around its centre, then where they are."""

    def __init__(self, random: Random, kind: str, colour: str) -> None:
        self.kind, self.colour = kind, colour
        chance = random.random()
        self.count = 1 if chance < 0.56 else 2 if chance < 0.8 else 3
        self.size = "" if self.count > 1 else list(SIZES)[random.random() < 0.5]
        upright = drawing(kind)
        length = SCALES[self.size]
        fitted = min(1.84 / (upright.width + upright.height), 1.12 / max(upright.width, upright.height))
        self.scale = round(length * fitted * 100)
        self.tilts = [TILTS[int(random.random() * 3)] for _ in range(self.count)]
        self.flips = [random.random() < 0.5 for _ in range(self.count)]
        turned = [drawing(kind, tilt) for tilt in self.tilts]
        self.sides = [(round(d.width * self.scale / 100), round(d.height * self.scale / 100)) for d in turned]
        self.places = self._arrange(random)
        left, top, right, bottom = self._extent()
        self.width, self.height = right - left, bottom - top
        self.places = [(x - (left + right) // 2, y - (top + bottom) // 2) for x, y in self.places]
        self.x = self.y = 0

    @property
    def top(self) -> int:
        """The upper edge of its box."""
        return self.y - self.height // 2

    @property
    def things(self) -> list[Placed]:
        """What is drawn."""
        each = zip(self.places, self.tilts, self.flips, strict=True)
        return [Placed(self.kind, self.colour, self.scale, self.x + x, self.y + y, t, f) for (x, y), t, f in each]

    def record(self, size: int) -> SceneObject:
        """Return the group with its boxes in pixels."""
        boxes = [
            _pixels(self.x + x - w / 2, self.y + y - h / 2, self.x + x + w / 2, self.y + y + h / 2, size)
            for (x, y), (w, h) in zip(self.places, self.sides, strict=True)
        ]
        left, top = min(x for x, _, _, _ in boxes), min(y for _, y, _, _ in boxes)
        right, bottom = max(x + w for x, _, w, _ in boxes), max(y + h for _, y, _, h in boxes)
        box = (left, top, right - left, bottom - top)
        return SceneObject(self.kind, self.colour, self.count, self.size, box, tuple(boxes))

    def _arrange(self, random: Random) -> list[tuple[int, int]]:
        """Return the places of the things: in a row, or two and one in the gap above or below them."""
        wide, high = max(w for w, _ in self.sides) + 14, max(h for _, h in self.sides) + 14
        lift = [int((random.random() - 0.5) * 40) for _ in range(self.count)]
        if self.count < 3 or 3 * wide < 500:
            return [(wide * i, lift[i]) for i in range(self.count)]
        down = high if random.random() < 0.5 else -high
        return [(0, 0), (wide, lift[1] // 2), (wide // 2 + lift[2], down)]

    def _extent(self) -> tuple[int, int, int, int]:
        spans = list(zip(self.places, self.sides, strict=True))
        return (
            min(x - w // 2 for (x, _), (w, _) in spans),
            min(y - h // 2 for (_, y), (_, h) in spans),
            max(x + w // 2 for (x, _), (w, _) in spans),
            max(y + h // 2 for (_, y), (_, h) in spans),
        )


def _pixels(left: float, top: float, right: float, bottom: float, size: int) -> Box:
    x, y, x1, y1 = (min(max(round(v * size / UNITS), 0), size) for v in (left, top, right, bottom))
    return x, y, x1 - x, y1 - y


def _scene(random: Random, number: int, split: str, language: str, size: int) -> Scene:
    drawn = None
    while drawn is None:
        drawn = _draw(random, number, split)
    groups, relations = drawn
    return Scene(
        objects=tuple(group.record(size) for group in groups),
        relations=relations,
        background=BACKGROUNDS[int(random.random() * len(BACKGROUNDS))],
        language=language,
        size=size,
        things=tuple(thing for group in groups for thing in group.things),
        texture=random.getrandbits(32),
    )


def _draw(random: Random, number: int, split: str) -> tuple[list[_ObjectGroup], tuple[str, ...]] | None:
    """Return groups in the order of the caption and their relations; None if these groups are not of the split."""
    names, colours = list(kinds()), list(COLOURS)
    chosen: list[tuple[str, str]] = []
    while len(chosen) < number:
        pair = (colours[int(random.random() * len(colours))], names[int(random.random() * len(names))])
        if pair not in chosen:
            chosen.append(pair)
    found = {kept().get(pair) for pair in chosen}
    if (split == "train" and found != {None}) or (split == "valid" and "test" in found):
        return None
    if number == 1 and not _belongs(found, split):
        return None
    groups = [_ObjectGroup(random, kind, colour) for colour, kind in chosen]
    for _ in range(TRIES):
        if not _place(random, groups):
            continue
        groups = [groups[i] for i in order([(group.x, group.y) for group in groups])]
        relations = tuple(relation((a.x, a.y), (b.x, b.y)) for a, b in pairwise(groups))
        if "" in relations:
            continue
        triples = [(a.kind, name, b.kind) for (a, b), name in zip(pairwise(groups), relations, strict=True)]
        if _belongs(found | {kept().get(triple) for triple in triples}, split):
            return groups, relations
    return None


def _place(random: Random, groups: list[_ObjectGroup]) -> bool:
    """Give groups new places; return whether they are apart from each other and their order is clear."""
    number = len(groups)
    start = random.random() * 360
    for index, group in enumerate(groups):
        edge = (INSIDE + group.width // 2 + 1, INSIDE + group.height // 2 + 1)
        if number == 1:
            x, y = (side + int((UNITS - 2 * side) * random.random()) for side in edge)
        else:
            angle = radians(start + 360 / number * (index + 0.5 * (random.random() - 0.5)))
            radius = (0.2 + 0.2 * random.random()) * UNITS / max(abs(cos(angle)), abs(sin(angle)))
            x, y = round(UNITS / 2 + radius * cos(angle)), round(UNITS / 2 + radius * sin(angle))
            x, y = (min(max(v, side), UNITS - side) for v, side in zip((x, y), edge, strict=True))
        group.x, group.y = x, y
        for other in groups[:index]:
            across, down = abs(x - other.x) * 2, abs(y - other.y) * 2
            wide, high = group.width + other.width + 2 * APART, group.height + other.height + 2 * APART
            if across < wide and down < high:
                return False
    first, *others = sorted(groups, key=lambda group: group.y)
    if any(first.top > group.top or first.y + HIGHER > group.y for group in others):
        return False
    if number > 2:
        middle = UNITS / 2
        if any(max(abs(group.x - middle), abs(group.y - middle)) < OFF_CENTRE for group in groups):
            return False
        angles = sorted(degrees(atan2(group.y - middle, group.x - middle)) for group in groups)
        gaps = [b - a for a, b in pairwise([*angles, angles[0] + 360])]
        return min(gaps) >= ANGLE
    return True
