"""Drawn scenes: the picture determines the caption, right Hindi, gold regions, and splits that are apart."""

from __future__ import annotations

import csv
import json
import sys
import time
import unicodedata
from collections import Counter
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from heedful.data.captions import CaptionFile, read_regions
from heedful.data.scenes import (
    COLOURS,
    LANGUAGES,
    PIXELS,
    RELATIONS,
    SPLITS,
    Scene,
    SceneObject,
    kept,
    kinds,
    order,
    relation,
    scenes,
    write_scenes,
)
from heedful.data.scenes.drawing import Placed, paint
from heedful.data.scenes.kinds import DRAWINGS, TILTS, drawing
from heedful.data.scenes.lexicon import noun_phrase
from heedful.errors import ConfigError, DataError, HeedfulError

# Of the captions and regions of the first 200 scenes of seed 7. A change of the grammar changes it: write the new one.
DIGEST = "11fbc36319963b485ff9086bbb753928"


@cache
def sample(split: str = "train") -> tuple[Scene, ...]:
    return tuple(scenes(1200, seed=3, split=split))


def everything() -> list[Scene]:
    return [scene for split in SPLITS for scene in sample(split)]


def middle(thing: SceneObject) -> tuple[int, int]:
    """Twice the middle of its box in pixels."""
    x, y, w, h = thing.box
    return 2 * x + w, 2 * y + h


def combinations(scene: Scene) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = {(thing.colour, thing.kind) for thing in scene.objects}
    between = zip(pairwise(scene.objects), scene.relations, strict=True)
    return found | {(first.kind, name, second.kind) for (first, second), name in between}


# ---- choosing


def test_the_same_for_ever() -> None:
    lines = (f"{scene.captions}\t{scene.regions}\t{scene.background}\n" for scene in scenes(200, seed=7))
    assert blake2b("".join(lines).encode(), digest_size=16).hexdigest() == DIGEST


def test_a_seed_gives_the_same_scenes_in_each_language_and_size() -> None:
    first = list(scenes(20, seed=5))
    for size, language in ((64, "en"), (200, "hi")):
        other = list(scenes(20, seed=5, size=size, language=language))
        assert [scene.captions for scene in other] == [scene.captions for scene in first]
        assert [scene.things for scene in other] == [scene.things for scene in first]
    assert list(scenes(30, seed=5))[:20] == first
    assert [scene.caption for scene in scenes(20, seed=6)] != [scene.caption for scene in first]


def test_numbers_of_objects() -> None:
    assert Counter(len(scene.objects) for scene in sample("test")) == {1: 300, 2: 300, 3: 300, 4: 300}
    assert {len(scene.objects) for scene in scenes(30, objects=(2, 3))} == {2, 3}


def test_every_word_is_used() -> None:
    things = [thing for scene in sample() for thing in scene.objects]
    assert {thing.kind for thing in things} == set(kinds()) == set(DRAWINGS)
    assert {thing.colour for thing in things} == set(COLOURS)
    assert {(thing.count, thing.size) for thing in things} == {(1, "small"), (1, "large"), (2, ""), (3, "")}
    used = Counter(name for scene in sample() for name in scene.relations)
    assert set(used) == set(RELATIONS)
    assert min(used.values()) > 100


def test_the_boxes_alone_determine_order_and_relations() -> None:
    """Rounded to pixels: the margins are wider than that."""
    for scene in everything():
        places = [middle(thing) for thing in scene.objects]
        assert order(places, 2 * scene.size) == list(range(len(places)))
        assert all(places[0][1] < y - 0.16 * scene.size for _, y in places[1:])
        assert all(scene.objects[0].box[1] <= thing.box[1] for thing in scene.objects)
        for (a, b), name in zip(pairwise(places), scene.relations, strict=True):
            across, down = b[0] - a[0], b[1] - a[1]
            vertical, forward = abs(down) > abs(across), (down if abs(down) > abs(across) else across) > 0
            expected = ("above" if forward else "below") if vertical else ("left of" if forward else "right of")
            assert name == expected
            assert max(abs(across), abs(down)) > 1.25 * min(abs(across), abs(down))


def test_order_and_relation_of_places() -> None:
    assert order([(500, 900), (200, 400), (800, 100), (900, 700)]) == [2, 3, 0, 1]
    assert order([(100, 500), (900, 300)]) == [1, 0]
    assert [relation((500, 500), at) for at in [(510, 900), (510, 100), (900, 490), (100, 490), (800, 750)]] == [
        "above", "below", "left of", "right of", "",
    ]  # fmt: skip


def test_groups_are_apart_and_different() -> None:
    for scene in everything():
        assert len({(thing.kind, thing.colour) for thing in scene.objects}) == len(scene.objects)
        boxes = [thing.box for thing in scene.objects]
        for i, (x, y, w, h) in enumerate(boxes):
            for x2, y2, w2, h2 in boxes[:i]:
                assert x + w < x2 or x2 + w2 < x or y + h < y2 or y2 + h2 < y
        for thing in scene.objects:
            assert len(thing.boxes) == thing.count


def test_sizes_have_no_middle() -> None:
    sides = {
        size: [max(t.box[2:]) for s in sample() for t in s.objects if t.size == size] for size in ("small", "large")
    }
    assert max(sides["small"]) < 0.26 * PIXELS < 0.33 * PIXELS < min(sides["large"])


def test_splits_share_no_kept_combination() -> None:
    tables = {split: {c for c, s in kept().items() if s == split} for split in ("valid", "test")}
    assert min(len(c) for c in tables.values()) > 100
    for scene in sample("train"):
        assert not combinations(scene) & set(kept())
    for scene in sample("valid"):
        assert combinations(scene) & tables["valid"]
        assert not combinations(scene) & tables["test"]
    for scene in sample("test"):
        assert combinations(scene) & tables["test"]
    trained = set().union(*(combinations(scene) for scene in sample("train")))
    for kind in kinds():
        assert len({c[0] for c in trained if len(c) == 2 and c[1] == kind}) >= 6


# ---- captions and regions


def thing(kind: str, colour: str, count: int = 1, size: str = "", x: int = 0) -> SceneObject:
    return SceneObject(kind, colour, count, size, (x, 0, 10, 20), ((x, 0, 10, 20),) * count)


def scene_of(*things: SceneObject, relations: tuple[str, ...] = (), language: str = "en") -> Scene:
    return Scene(things, relations, "plain", language, PIXELS, (), 0)


@pytest.mark.parametrize(
    ("things", "relations", "english", "hindi"),
    [
        ([thing("house", "blue", 1, "small")], (), "a small blue house", "एक छोटा नीला घर"),
        ([thing("bird", "yellow", 1, "large")], (), "a large yellow bird", "एक बड़ी पीली चिड़िया"),
        ([thing("dog", "green", 3)], (), "three green dogs", "तीन हरे कुत्ते"),
        ([thing("fish", "blue", 2)], (), "two blue fish", "दो नीली मछलियाँ"),
        (
            [thing("bird", "red", 2), thing("house", "blue", 1, "small"), thing("tree", "green", 1, "large")],
            ("above", "left of"),
            "two red birds above a small blue house left of a large green tree",
            "दो लाल चिड़ियाँ एक छोटे नीले घर के ऊपर हैं जो एक बड़े हरे पेड़ के बाईं ओर है",
        ),
        (
            [thing("turtle", "yellow", 1, "large"), thing("dog", "white", 3), thing("boat", "green", 2)],
            ("right of", "below"),
            "a large yellow turtle right of three white dogs below two green boats",
            "एक बड़ा पीला कछुआ तीन सफ़ेद कुत्तों के दाईं ओर है जो दो हरी नावों के नीचे हैं",
        ),
        (
            [thing("star", "purple", 1, "small"), thing("balloon", "pink", 1, "large")],
            ("left of",),
            "a small purple star left of a large pink balloon",
            "एक छोटा बैंगनी तारा एक बड़े गुलाबी गुब्बारे के बाईं ओर है",
        ),
        (
            [thing("chair", "orange", 1, "small"), thing("key", "blue", 1, "small")],
            ("above",),
            "a small orange chair above a small blue key",
            "एक छोटी नारंगी कुर्सी एक छोटी नीली चाबी के ऊपर है",
        ),
    ],
)
def test_captions(things: list[SceneObject], relations: tuple[str, ...], english: str, hindi: str) -> None:
    captions = scene_of(*things, relations=relations).captions
    assert captions == {"en": english, "hi": unicode(hindi)}


def unicode(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def test_hindi_agrees_for_every_noun() -> None:
    for kind, noun in kinds().items():
        ending = "ी" if noun.feminine else "ा"
        assert noun_phrase(1, "small", "blue", kind, "hi")[1:3] == [f"छोट{ending}", f"नील{ending}"]
        for oblique in (False, True):
            words = noun_phrase(2, "", "blue", kind, "hi", oblique)
            assert words[1] == ("नीली" if noun.feminine else "नीले")
            assert words[2].endswith(("ों", "ओं")) is oblique
        if noun.hindi.endswith("ा") and not noun.feminine:
            assert noun.oblique == noun.hindi_plural == noun.hindi[:-1] + "े"
        if noun.feminine:
            assert noun.oblique == noun.hindi
            assert noun.hindi_plural.endswith(("ाँ", "ें"))


def test_regions_are_the_boxes_of_content_words() -> None:
    pair = (thing("bird", "red", 2, x=5), thing("house", "blue", 1, "small", x=50))
    made = scene_of(*pair, relations=("above",))
    assert made.regions == [(i, 5, 0, 10, 20) for i in (0, 1, 2)] + [(i, 50, 0, 10, 20) for i in (5, 6, 7)]
    made = scene_of(*pair, relations=("above",), language="hi")
    assert made.caption.split()[:7] == unicode("दो लाल चिड़ियाँ एक छोटे नीले घर").split()
    assert [region[0] for region in made.regions] == [0, 1, 2, 4, 5, 6]
    assert made.region_kinds == ["count", "colour", "noun", "size", "colour", "noun"]


def test_regions_are_inside_and_small() -> None:
    areas = []
    for language in LANGUAGES:
        for scene in scenes(600, seed=2, split="test", language=language):
            words = scene.caption.split()
            assert {words[word] for word, *_ in scene.regions}.isdisjoint({"a", "of", "above", "एक", "के", "है", "जो"})
            for _, x, y, w, h in scene.regions:
                assert min(x, y) >= 1
                assert max(x + w, y + h) <= PIXELS - 1
                areas.append(w * h / PIXELS**2)
    assert 0.05 < sum(areas) / len(areas) < 0.12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "tests"}, "Did you mean 'test'"),
        ({"language": "fr"}, "choose one of en, hi"),
        ({"objects": (0, 4)}, "objects is 0 to 4"),
        ({"objects": (3, 2)}, "objects is 3 to 2"),
        ({"objects": (1, 5)}, "from 1 to 4"),
        ({"size": 8}, "size is 8"),
    ],
)
def test_mistakes(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scenes(3, **options)  # type: ignore[arg-type]


# ---- drawing


def test_the_same_picture_twice() -> None:
    made = list(scenes(8, seed=4))
    for scene in made:
        picture = scene.draw()
        assert (picture.shape, picture.dtype) == ((PIXELS, PIXELS, 3), np.uint8)
        assert np.array_equal(picture, scene.draw())
    assert next(scenes(1, size=96)).draw().shape == (96, 96, 3)


def test_boxes_hold_what_is_drawn() -> None:
    """Outside the boxes, only the shadow changes the picture, by a little."""
    for scene in list(sample())[:60]:
        inside = np.zeros((PIXELS, PIXELS), bool)
        for thing in scene.objects:
            for x, y, w, h in thing.boxes:
                inside[max(y - 1, 0) : y + h + 1, max(x - 1, 0) : x + w + 1] = True
        empty = paint(scene.background, [], scene.texture, PIXELS).astype(int)
        changed = np.abs(scene.draw().astype(int) - empty).max(-1)
        assert changed[~inside].max() < 90
        for thing in scene.objects:
            for x, y, w, h in thing.boxes:
                for edge in (changed[y : y + 3, x : x + w], changed[y + h - 3 : y + h, x : x + w]):
                    assert edge.max() > 20
                for edge in (changed[y : y + h, x : x + 3], changed[y : y + h, x + w - 3 : x + w]):
                    assert edge.max() > 20


def alone(kind: str, colour: str, tilt: int = 0) -> np.ndarray:
    """A large thing in the middle of an empty picture."""
    scale = round(39000 / max(drawing(kind).width, drawing(kind).height))
    return paint("plain", [Placed(kind, colour, scale, 512, 512, tilt, False)], 0, PIXELS).astype(int)


def test_the_named_colour_dominates() -> None:
    """Of what is drawn, more is near the named colour than near any other."""
    table = np.array([colour.rgb for colour in COLOURS.values()])
    empty = paint("plain", [], 0, PIXELS).astype(int)
    for kind in DRAWINGS:
        for index, colour in enumerate(COLOURS):
            picture = alone(kind, colour)
            pixels = picture[np.abs(picture - empty).max(-1) > 12]
            distances = np.abs(pixels[:, None] - table).sum(-1)
            votes = np.bincount(distances.argmin(-1)[distances.min(-1) < 110], minlength=len(table))
            assert votes.argmax() == index, (kind, colour, votes)
            assert votes[index] > 0.3 * len(pixels), (kind, colour, votes[index] / len(pixels))


def test_kinds_are_drawn_differently() -> None:
    """Even at a quarter of the size, two kinds differ more than a kind and itself tilted."""

    def small(kind: str, tilt: int = 0) -> np.ndarray:
        return alone(kind, "red", tilt).reshape(PIXELS // 4, 4, PIXELS // 4, 4, 3).mean((1, 3))

    pictures = {kind: small(kind) for kind in DRAWINGS}
    for kind, picture in pictures.items():
        tilted = max(np.abs(small(kind, tilt) - picture).mean() for tilt in TILTS)
        for other in pictures.keys() - {kind}:
            assert np.abs(pictures[other] - picture).mean() > 1.1 * tilted, (kind, other)


# ---- files


def test_write_scenes(tmp_path: Path) -> None:
    from PIL import Image

    made = list(scenes(6, seed=9, language="hi", size=64))
    assert write_scenes(tmp_path / "new" / "folder", made) == 6
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["captions.csv", "images", "regions.jsonl"]
    with (folder / "captions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] for row in rows] == [scene.caption for scene in made]
    lines = [json.loads(line) for line in (folder / "regions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert list(lines[0]) == ["image", "word", "x", "y", "w", "h", "kind"]
    assert [tuple(line.values()) for line in lines] == [
        (row["image"], *region, kind)
        for row, scene in zip(rows, made, strict=True)
        for region, kind in zip(scene.regions, scene.region_kinds, strict=True)
    ]
    for row, scene in zip(rows, made, strict=True):
        with Image.open(folder / "images" / row["image"]) as picture:
            assert np.array_equal(np.asarray(picture), scene.draw())
    with pytest.raises(DataError, match="images, captions.csv, regions.jsonl"):
        write_scenes(folder, made)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    made = list(scenes(12, seed=9, size=64))
    write_scenes(tmp_path, made)
    names = (str(tmp_path / name) for name in ("captions.csv", "images", "regions.jsonl"))
    rows = list(CaptionFile(*names).rows())
    assert [row.target for row in rows] == [scene.caption for scene in made]
    regions = [(r.word, r.x, r.y, r.w, r.h) for r in read_regions(tmp_path / "regions.jsonl")]
    assert regions == [region for scene in made for region in scene.regions]


def test_without_pillow_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    made = list(scenes(2))
    assert len(made[1].regions) > 0
    with pytest.raises(HeedfulError, match=r"\[images\]"):
        write_scenes(tmp_path / "new", made)
    assert not (tmp_path / "new").exists()


def test_five_thousand_a_minute(tmp_path: Path) -> None:
    begin = time.process_time()
    write_scenes(tmp_path, scenes(400))
    assert time.process_time() - begin < 400 * 60 / 5000
