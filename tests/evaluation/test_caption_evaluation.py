"""`heedful.evaluate` and `compare` of captions: all references of an image, pointing accuracy, images that are bad."""

from __future__ import annotations

import json
import weakref
from collections import defaultdict
from pathlib import Path

import pytest
from random_translators import random_translator
from tiny_captioner import CAPTIONS, captioner, write_captions

import heedful
from heedful.data.captions import Region, read_regions
from heedful.data.images import ImageFiles, LoadedImage
from heedful.errors import ConfigError, DataError
from heedful.evaluation import systems
from heedful.evaluation.systems import TestSet, read_caption_set
from heedful.metrics import extract_stats
from heedful.trace import Trace

COUNT, BAD = 24, {"3.png", "4.png"}
GOOD = [f"{i}.png" for i in range(COUNT) if f"{i}.png" not in BAD]
REFERENCES = {f"{i}.png": [CAPTIONS[(i + k) % 3] for k in range(1 + i % 2)] for i in range(COUNT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions(tmp_path_factory.mktemp("captions") / "c", COUNT)


@pytest.fixture(scope="module")
def tests(folder: Path) -> TestSet:
    return read_caption_set([folder / "captions.csv"], folder / "images", folder / "regions.jsonl")


def points(trace: Trace, region: Region) -> bool:
    """Whether the word of a region has its largest weight, by hand, in a cell with its centre in the box."""
    assert trace.image is not None
    weights = trace.words()
    assert weights is not None
    x, y, w, h = trace.image.box(int(weights[region.word, :-1].argmax()))
    return region.x <= x + w / 2 <= region.x + region.w and region.y <= y + h / 2 <= region.y + region.h


def test_one_image_is_decoded_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Besides those that are kept for the next system."""
    monkeypatch.setattr(systems, "MAX_BYTES", 0)
    alive: list[weakref.ref[LoadedImage]] = []
    most: list[int] = []
    load = ImageFiles.load

    def counted(*arguments: object) -> LoadedImage:
        loaded = load(*arguments)  # type: ignore[arg-type]
        alive.append(weakref.ref(loaded))
        most.append(sum(one() is not None for one in alive))
        return loaded

    monkeypatch.setattr(ImageFiles, "load", counted)
    images = read_caption_set([folder / "captions.csv"], folder / "images", folder / "regions.jsonl")
    output = systems.run(systems.System.of(captioner("rnn")), images, heedful.Decoding())
    assert output.pointing is not None
    assert len(most) == 2 * len(GOOD)  # once to know which can be read
    assert max(most[len(GOOD) + 1 :]) == 1


def test_an_image_is_a_line_with_all_its_captions(tests: TestSet) -> None:
    assert {line.source: list(line.references) for line in tests.rows} == {name: REFERENCES[name] for name in GOOD}
    assert tests.images is not None
    assert set(tests.images.bad) == BAD
    assert all(name in message for name, message in tests.images.bad.items())
    assert tests.lines[1].where == "captions.csv:3"
    assert tests.images.objects["1.png"] == 1  # "two small birds" has one word with a box
    assert tests.images.objects["0.png"] == 3


@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_scores_are_those_of_the_captions(folder: Path, tests: TestSet, family: str) -> None:
    translator = captioner(family)
    made = heedful.evaluate(translator, tests, heedful.Decoding(beam=2, max_length=6), resamples=50)
    images = [folder / "images" / name for name in GOOD]
    texts = [one.text for one in translator.caption(images, beam=2, max_length=6, trace=False)]
    assert [text for text, line in zip(made.outputs[0].texts, tests.lines, strict=True) if line.measured] == texts
    expected = extract_stats(texts, [REFERENCES[name] for name in GOOD], ["bleu", "chrf", "cider", "rouge", "exact"])
    total = made.scores.total
    assert expected.scores() == pytest.approx(
        {name: getattr(total, name) for name in ("bleu", "chrf", "cider", "rouge", "exact")}
    )
    assert total.ter is None
    # The pointing accuracy, from traces of the first captions.
    regions = defaultdict(list)
    for region in read_regions(folder / "regions.jsonl"):
        regions[region.image].append(region)
    traces = translator.reread(images, [REFERENCES[name][0] for name in GOOD])
    right = {
        kind: [
            points(trace, r) for name, trace in zip(GOOD, traces, strict=True) for r in regions[name] if r.kind in kind
        ]
        for kind in (("noun",), ("colour",), ("noun", "colour"))
    }
    pointing = made.outputs[0].pointing
    assert pointing is not None
    assert {row.kind: row.words for row in pointing.rows} == {kind: len(right[kind,]) for kind in ("noun", "colour")}
    for row in pointing.rows:
        assert row.accuracy == pytest.approx(100 * sum(right[row.kind,]) / row.words)
    every = right["noun", "colour"]
    assert total.pointing == pytest.approx(100 * sum(every) / len(every)) == pytest.approx(pointing.total.accuracy)
    assert 0 < pointing.total.chance < 20
    assert set(made.intervals) == {*expected.counts, "pointing"}


def test_tables_by_length_and_by_objects(tests: TestSet) -> None:
    made = heedful.evaluate(captioner(), tests, heedful.Decoding(max_length=6), resamples=0)
    assert sum(row.pairs for row in made.scores.rows) == len(GOOD)
    assert made.by_objects is not None
    numbers = [len(text[0].split()) // 2 for name, text in REFERENCES.items() if name in GOOD]
    assert {row.label: row.pairs for row in made.by_objects.rows} == {str(n): numbers.count(n) for n in set(numbers)}
    record = json.loads(json.dumps(made.plain()))
    assert [row["low"] for row in record["by_objects"]] == sorted(set(numbers))
    assert {row["kind"] for row in record["pointing_words"]["by_kind"]} == {"noun", "colour"}
    assert set(record["bad_images"]) == BAD
    assert record["cider_signature"].endswith(f"images:{len(GOOD)}")
    lines = made.table().splitlines()
    assert lines[0].split()[-3:] == ["exact", "%", "pointing"]
    assert any(line.startswith("noun ") for line in lines)
    assert any("layer 1, head 1" in note for note in made.notes())


def test_against_existing_captions_and_a_model_without_attention(tests: TestSet) -> None:
    perfect = [line.references[0] if line.references else "" for line in tests.lines]
    made = heedful.evaluate(captioner(), tests, heedful.Decoding(max_length=6), against=perfect, resamples=0)
    assert made.differences["cider"].verdict == made.differences["exact"].verdict == "worse"
    assert "pointing" not in made.differences
    fixed = heedful.evaluate(captioner("fixed"), tests, heedful.Decoding(max_length=6), resamples=0)
    assert fixed.outputs[0].pointing is fixed.scores.total.pointing is None
    comparison = heedful.compare(perfect, captioner("fixed"), tests, heedful.Decoding(max_length=6), by="cider")
    assert comparison.comparison.wins == len(GOOD)
    with pytest.raises(ConfigError, match="ter"):
        heedful.compare(perfect, perfect, tests, by="ter")
    with pytest.raises(DataError, match=f"{COUNT} images"):
        heedful.evaluate(perfect[1:], tests)


def test_rows_and_regions_from_python(folder: Path) -> None:
    rows = list(REFERENCES.items())
    regions = [Region("0.png", 2, 0, 0, 24, 20)]
    made = heedful.evaluate(
        captioner(), rows, heedful.Decoding(max_length=4), images=folder / "images", regions=regions, resamples=0
    )
    pointing = made.outputs[0].pointing
    assert pointing is not None
    assert (pointing.total.words, pointing.total.chance, pointing.rows) == (1, 25.0, ())
    assert made.by_objects is not None
    assert [(row.label, row.pairs) for row in made.by_objects.rows] == [("1", 1)]  # of the others it is not known
    assert "–" in made.table()
    with pytest.raises(ConfigError, match="images"):
        heedful.evaluate(captioner(), rows, regions=regions)


def test_one_image_has_no_cider(folder: Path) -> None:
    made = heedful.evaluate(["two small birds"], [("1.png", "two small birds")], images=folder / "images", resamples=0)
    assert (made.scores.total.cider, made.scores.total.exact) == (0, 100)
    assert any("one image" in note for note in made.notes())


def test_models_of_the_other_kind(tests: TestSet) -> None:
    with pytest.raises(ConfigError, match="translates text"):
        heedful.evaluate(random_translator("rnn"), tests)
    with pytest.raises(ConfigError, match="captions images"):
        heedful.evaluate(captioner(), [("a b", "A B")])


def test_only_bad_images(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no image of 2.*3\.png"):
        TestSet.of([("3.png", "a"), ("4.png", "b")], folder / "images")


def test_only_rows_for_testing_are_measured(folder: Path, tmp_path: Path) -> None:
    names = sorted(GOOD)[:6]
    rows = [f"{name},a caption,{split}" for name, split in zip(names, ("train", "test", "val") * 2, strict=True)]
    (tmp_path / "c.csv").write_text("\n".join(["image,caption,split", *rows]))
    notes: list[str] = []
    measured = read_caption_set(
        [tmp_path / "c.csv"], folder / "images", report=lambda name, message: notes.append(message)
    )
    assert [line.source for line in measured.rows] == [names[1], names[4]]
    assert any("train 2" in note and "test 2" in note for note in notes)
