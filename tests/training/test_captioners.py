"""Training on captions of images: what is read, held out, cached and guided, and that small captioners learn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Done
from safetensors.torch import load_file
from square_images import COLOURS, SETTINGS, Squares, draw_squares, settings

import heedful
from heedful.config import Config
from heedful.data.captions import CaptionFile, CaptionList
from heedful.data.corpus import ImageArray
from heedful.decoding import Hypothesis, greedy
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import read_model
from heedful.models import Memory, Network, build
from heedful.models.image import running_statistics
from heedful.trace.trace import ImageRegions
from heedful.training import Inputs, estimate_run, run_training
from heedful.training.callbacks import Reporter
from heedful.training.prepare import PairSets, TrainingData, learn_codecs, open_pairs, prepare
from heedful.training.step import TrainingStep
from heedful.translator.train import train_model

pytest.importorskip("PIL.Image")
Cli = Callable[..., Done]
FEW: dict[str, object] = {"steps": 4, "valid_every": 2, "device": "cpu"}


class Log(Reporter):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, message: str) -> None:
        self.lines.append(message)

    def warn(self, message: str) -> None:
        self.lines.append(message)

    def having(self, *parts: str) -> list[str]:
        """Return the lines that have all parts."""
        return [line for line in self.lines if all(part in line for part in parts)]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a cache of its own."""
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return


@pytest.fixture
def squares(tmp_path: Path) -> Squares:
    """Twelve images, each with one caption."""
    return draw_squares(tmp_path / "data", 12)


def opened(inputs: Inputs, **sections: dict[str, object]) -> tuple[PairSets, Log]:
    """Open the pairs of a run."""
    log = Log()
    return open_pairs(inputs, Config.build(settings(**sections)), log), log


def prepared(inputs: Inputs, **sections: dict[str, object]) -> tuple[TrainingData, Log]:
    """Prepare the data of a run."""
    pairs, log = opened(inputs, **sections)
    config = Config.build(settings(**sections))
    codec = learn_codecs(pairs, config, log)[1]
    return prepare(pairs, (codec,), config, log), log


@pytest.mark.parametrize(("family", "steps"), [("rnn", 250), ("transformer", 250), ("fixed", 600)])
def test_every_family_learns_to_caption(family: str, steps: int, tmp_path: Path) -> None:
    shown, unseen = draw_squares(tmp_path / "a", 300), draw_squares(tmp_path / "b", 60, seed=9)
    training = {"steps": steps, "valid_every": 200}
    captioner = heedful.train(
        shown.rows,
        tmp_path / "m",
        images=shown.images,
        settings=settings(family, training=training),
        preset="none",
        verbose=False,
    )
    outputs = captioner.caption([unseen.images / name for name, _ in unseen.rows])
    exact = np.mean([output.text == caption for output, (_, caption) in zip(outputs, unseen.rows, strict=True)])
    assert exact >= 0.95


@pytest.mark.parametrize("encoder", ["conv", "patches"])
def test_images_reach_the_model_as_they_are(encoder: str, squares: Squares) -> None:
    data, _ = prepared(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)), image={"encoder": encoder})
    batch = data.batches.batch(np.arange(3))
    assert batch.x.dtype == torch.uint8
    assert batch.x.shape == (3, 32, 32, 3)
    for row, x in zip(batch.rows, batch.x, strict=True):
        pair = data.corpus.pair(row)
        first = pair.target.split()[1]
        pixels = x[:, 4:10].reshape(-1, 3).float()  # in the left square, horizontally
        assert (pixels - torch.tensor(COLOURS[first]).float()).abs().sum(1).min() < 30
        assert pair.where.startswith("captions.csv:")
    assert data.corpus.lengths()[:, 0].tolist() == [1] * len(data.corpus)


def test_batches_of_fixed_shapes_pad_images_with_rows(squares: Squares) -> None:
    data, _ = prepared(Inputs((CaptionFile(str(squares.captions), str(squares.images), str(squares.regions)),)))
    batch = data.batches.batch(np.arange(3), fixed=True)
    assert batch.x.shape == (32, 32, 32, 3)  # training.batch_sentences
    assert batch.y.shape == (32, 9)
    assert torch.equal(batch.x[3:], batch.x[torch.arange(29) % 3])  # black ones would change batch normalisation
    assert not batch.y[3:].any()
    share = data.batches.batch(np.arange(3), rank=1, world=2)
    assert len(share.rows) == 1
    assert (share.x[0] == batch.x[1]).all()


def test_images_are_held_out_with_all_their_captions(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 150, captions=3)
    pairs, log = opened(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))
    training, valid = ({part[row].source for row in range(len(part))} for part in (pairs.training, pairs.valid))
    assert training.isdisjoint(valid)
    assert len(training) + len(valid) == 150
    assert len(pairs.training) + len(pairs.valid) == 450
    assert len(pairs.valid) == 3 * len(valid) >= 3
    assert log.having("150 images, 32 × 32 pixels")
    # More captions of other images do not move an image to the other side.
    more = draw_squares(tmp_path / "more", 170, captions=3)
    again, _ = opened(Inputs((CaptionFile(str(more.captions), str(more.images)),)))
    assert training.isdisjoint({again.valid[row].source for row in range(len(again.valid))})


def test_training_and_pointing_accuracy_mean_the_same_regions(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 200)
    generator = np.random.default_rng(3)
    boxes: dict[str, tuple[float, float, float, float]] = {}
    for i, (name, _) in enumerate(squares.rows):
        x, y, w, h = generator.uniform(0, (47, 31, 30, 30)) if i % 2 else generator.integers(0, (47, 31, 30, 30))
        boxes[name] = float(x), float(y), float(w) + 0.5 * (i % 3), float(h) + 0.5
    lines = [{"image": name, "word": 1, "x": x, "y": y, "w": w or 0.1, "h": h} for name, (x, y, w, h) in boxes.items()]
    squares.regions.write_text("\n".join(map(json.dumps, lines)))
    data, _ = prepared(Inputs((CaptionFile(str(squares.captions), str(squares.images), str(squares.regions)),)))
    links = data.corpus.links
    assert links is not None
    for row in range(len(data.corpus)):
        name = data.corpus.pair(row).source
        x, y, w, h = boxes[name]
        covered = ImageRegions(name, 48, 32, 4, 4).covered((x, y, w or 0.1, h))
        assert links.links[links.begins[row] : links.begins[row + 1]].tolist() == [[cell, 1] for cell in covered]


def test_the_column_split_is_kept_to(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 40)
    splits = {name: ("train", "train", "val", "test")[i % 4] for i, (name, _) in enumerate(squares.rows)}
    lines = [f"{name},{caption},{splits[name]}" for name, caption in squares.rows]
    squares.captions.write_text("\n".join(["image,caption,split", *lines]))
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions), split="train")
    pairs, log = opened(Inputs((source,)))
    assert {splits[pairs.training[row].source] for row in range(len(pairs.training))} == {"train"}
    assert {splits[pairs.valid[row].source] for row in range(len(pairs.valid))} == {"val"}
    assert (len(pairs.training), len(pairs.valid)) == (20, 10)
    assert log.having("split", "train 20", "val 10", "test 10", "training")
    data, _ = prepared(Inputs((source,)))
    assert data.corpus.links is not None
    # Validation captions of one's own come first.
    other = draw_squares(tmp_path / "other", 5, seed=4)
    assert len(opened(Inputs((source,), (CaptionFile(str(other.captions), str(other.images)),)))[0].valid) == 5


def test_equal_images_of_other_names_are_not_on_both_sides(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 60)
    rows = list(squares.rows)
    for name, caption in squares.rows:
        shutil.copy(squares.images / name, squares.images / f"copy-{name}")
        rows.append((f"copy-{name}", caption))
    pairs, log = opened(Inputs((CaptionList(rows, str(squares.images)),)))
    training, valid = (
        {(squares.images / part[row].source).read_bytes() for row in range(len(part))}
        for part in (pairs.training, pairs.valid)
    )
    assert valid
    assert training.isdisjoint(valid)
    dropped = 120 - len(pairs.training) - len(pairs.valid)
    assert dropped > 0
    assert log.having(f"{dropped} captions", "pixels")
    # Validation captions of one's own are used as they are, and the number of such images is logged.
    copies, originals = rows[60:], Inputs((CaptionList(rows[:60], str(squares.images)),))
    _, log = opened(Inputs(originals.training, (CaptionList(copies[:7], str(squares.images)),)))
    assert log.having("60 captions", "7 for validation", "7 of their sources")


def test_validation_has_whole_images(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 150, captions=3)
    for most, count in ((4, 3), (2, 3), (6, 6)):
        source = CaptionFile(str(squares.captions), str(squares.images))
        pairs, _ = opened(Inputs((source,)), training={"valid_pairs": most})
        assert len(pairs.valid) == count
        assert len({pairs.valid[row].source for row in range(count)}) == count // 3


def test_images_are_decoded_once_and_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squares = draw_squares(tmp_path / "data", 20, captions=5)
    decoded: list[str] = []
    load = heedful.data.corpus.load_image

    def counted(content: bytes, name: str, *more: object) -> object:
        decoded.append(name)
        return load(content, name, *more)

    monkeypatch.setattr("heedful.data.corpus.load_image", counted)
    inputs = Inputs((CaptionFile(str(squares.captions), str(squares.images)),))
    first, log = opened(inputs)
    assert sorted(decoded) == sorted({name for name, _ in squares.rows})
    second, again = opened(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))
    assert len(decoded) == 20
    assert second.digest == first.digest
    assert not log.having("20 images", "cache")
    assert again.having("20 images", "cache")
    # In memory the captions are not cached, but the images are.
    listed, _third = opened(Inputs((CaptionList(squares.rows, str(squares.images)),)))
    assert len(decoded) == 20
    assert listed.digest == first.digest
    # A file that no caption names changes nothing; one that a caption names does.
    (squares.images / "notes.txt").write_text("x")
    assert opened(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))[0].digest == first.digest
    assert len(decoded) == 20
    shutil.copy(squares.images / "001.png", squares.images / "000.png")
    assert opened(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))[0].digest != first.digest
    assert len(decoded) == 40
    opened(inputs, image={"pixels": 16, "patch": 4})
    assert len(decoded) == 60


def test_regions_guide_attention(squares: Squares) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    data, log = prepared(Inputs((source,)))
    assert data.guide is not None
    assert log.having("regions of words guide attention")
    boxes = {(box["image"], box["word"]): box for box in map(json.loads, squares.regions.read_text().splitlines())}
    rows = np.arange(len(data.corpus))
    batch = data.batches.batch(rows)
    assert batch.links is not None
    B, T, S = len(rows), batch.y.shape[1] - 1, 4 * 4 + 1
    linked = torch.zeros(B * T * S, dtype=torch.bool)
    linked[batch.links] = True
    for row, links in zip(rows, linked.view(B, T, S), strict=True):
        name = data.corpus.pair(row).source
        assert links.any(1).nonzero().flatten().tolist() == [1, 5]  # the colours
        for word in (1, 5):
            box = boxes[name, word]
            centres = [
                (column * 12 + 6, line * 8 + 4) for line in range(4) for column in range(4)
            ]  # of cells in an image of 48 × 32
            inside = [box["x"] <= x <= box["x"] + box["w"] and box["y"] <= y <= box["y"] + box["h"] for x, y in centres]
            assert links[word].tolist() == [*inside, False]
    agreeing = data.valid_batches.corpus.links
    assert agreeing is not None
    assert len(agreeing.links) > 0


def test_several_boxes_of_a_word_are_joined_and_clipped(squares: Squares) -> None:
    boxes = [
        {"x": -10, "y": -10, "w": 20, "h": 20},
        {"x": 40, "y": 28, "w": 100, "h": 4},
        {"x": 0, "y": 0, "w": 1, "h": 1},
    ]
    lines = [json.dumps({"image": name, "word": 0, **box}) for name, _ in squares.rows for box in boxes]
    squares.regions.write_text("\n".join(lines))
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    data, log = prepared(Inputs((source,)))
    batch = data.batches.batch(np.arange(1))
    assert batch.links is not None
    assert sorted(batch.links.tolist()) == [0, 15]  # the first cell of the grid, and the last
    assert log.having("clipped", f"{2 * (len(squares.rows) - 1)} of {3 * (len(squares.rows) - 1)}")


def test_a_box_outside_of_its_image_is_an_error_with_its_line(squares: Squares) -> None:
    lines = squares.regions.read_text().splitlines()
    lines[3] = json.dumps({**json.loads(lines[3]), "x": 48})
    squares.regions.write_text("\n".join(lines))
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    valid = CaptionFile(str(squares.captions), str(squares.images))
    with pytest.raises(DataError, match=r"regions\.jsonl, line 4.*x=48.*48 × 32"):
        prepared(Inputs((source,), (valid,)))


def test_bad_images_among_many_are_counted_and_training_goes_on(squares: Squares, tmp_path: Path) -> None:
    names = [name for name, _ in squares.rows]
    (squares.images / names[2]).write_bytes(b"<svg></svg>")
    good = (squares.images / names[3]).read_bytes()
    (squares.images / names[3]).write_bytes(good[: len(good) // 2])
    (squares.images / "more.png").write_bytes(good)
    source = CaptionFile(str(squares.captions), str(squares.images))
    pairs, log = opened(Inputs((source,)))
    assert {pairs.training[row].source for row in range(len(pairs.training))}.isdisjoint(names[2:4])
    assert len(pairs.training) + len(pairs.valid) == 10
    assert log.having("10 of 12 images", "read and resized")
    assert log.having("2 of 12 images", "left out")
    assert log.having(f"  captions.csv:4: {names[2]}", "SVG")
    assert log.having(f"  captions.csv:5: {names[3]}")
    assert log.having("1 of 13 images", "no captions")
    with pytest.raises(DataError, match=rf"(?s)not clean \(strict\).*{names[2]}.*leave out strict"):
        open_pairs(Inputs((source,), strict=True), Config.build(settings()), Log())
    out = tmp_path / "m"
    assert run_training(Inputs((source,)), out, settings(training=FEW), reporter=log, preset="none").step == 4
    for name in names[4:9]:
        (squares.images / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"(?s)7 of 12 images.*and 4 more"):
        opened(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))


def test_captions_are_cleaned_but_names_of_images_are_not(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 6)
    odd = squares.images / "two  words  and a very long name of a file \u00a0.png"
    shutil.copy(squares.images / "000.png", odd)
    rows = [*squares.rows, (odd.name, "ok"), (odd.name, " two   spaces "), (odd.name, ""), (odd.name, "ok")]
    pairs, _ = opened(Inputs((CaptionList(rows, str(squares.images)),)))
    store = pairs.training.store
    texts = [store.pair(row)[:2] for row in range(len(store))]
    assert (odd.name, "ok") in texts
    assert (odd.name, "two spaces") in texts
    assert store.report.counts == {"empty caption": 1, "extra spaces": 1, "duplicate": 1}


def test_a_run_is_resumed_exactly_and_only_with_the_same_images(squares: Squares, tmp_path: Path) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    chosen = settings(training={**FEW, "checkpoint_every": 2})
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run_training(Inputs((source,)), whole, chosen, preset="none")
    half = settings(training={**FEW, "checkpoint_every": 2, "steps": 2})
    run_training(Inputs((source,)), stopped, half, preset="none")
    run_training(Inputs(()), stopped, {"training": {"steps": 4}}, resume=True)
    weights = [read_model(path).model.state_dict() for path in (whole, stopped)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    shutil.copy(squares.images / "001.png", squares.images / "000.png")
    changed = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    with pytest.raises(DataError, match="stopped"):
        run_training(Inputs((changed,)), stopped, {"training": {"steps": 6}}, resume=True)


def test_the_moving_average_has_the_statistics_of_batch_normalisation(squares: Squares) -> None:
    data, _ = prepared(Inputs((CaptionFile(str(squares.captions), str(squares.images)),)))
    config = Config.build(settings(training={"ema": 0.3}))
    assert config.image is not None
    model = build(config.model, config.image, 20).train()
    before = {name: statistic.clone() for name, statistic in running_statistics(model).items()}
    step = TrainingStep(model, config.training, torch.device("cpu"), bf16=False)
    batch = data.batches.batch(np.arange(6))
    step([batch], batch.tokens, 1, 0.01)
    now = {name: statistic.clone() for name, statistic in running_statistics(model).items()}
    part = 1 - min(0.3, 2 / 11)
    assert step.average is not None
    step.average.swap()
    for name, statistic in running_statistics(model).items():
        assert not torch.equal(now[name], before[name])
        torch.testing.assert_close(statistic, before[name] + part * (now[name] - before[name]))
    step.average.swap()
    assert all(torch.equal(now[name], statistic) for name, statistic in running_statistics(model).items())


@pytest.mark.parametrize("frozen", [False, True])
def test_a_run_with_a_moving_average_is_resumed_exactly(frozen: bool, squares: Squares, tmp_path: Path) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images))
    image: dict[str, object] = {}
    if frozen:
        run_training(Inputs((source,)), tmp_path / "first", settings(training=FEW), preset="none")
        image = {"weights": str(tmp_path / "first"), "frozen": True}
    training = {**FEW, "checkpoint_every": 2, "ema": 0.5, "average": 2}
    run_training(Inputs((source,)), tmp_path / "whole", settings(training=training, image=image), preset="none")
    half = settings(training={**training, "steps": 2}, image=image)
    run_training(Inputs((source,)), tmp_path / "stopped", half, preset="none")
    log = Log()
    run_training(Inputs(()), tmp_path / "stopped", {"training": {"steps": 4}}, resume=True, reporter=log)
    assert log.having("resuming from step 2")
    for name in ("model", "checkpoints/000000004/model", "checkpoints/000000004/average"):
        whole, stopped = (load_file(tmp_path / run / f"{name}.safetensors") for run in ("whole", "stopped"))
        assert all(torch.equal(whole[key], stopped[key]) for key in whole), name


def test_a_frozen_encoder_is_computed_once(squares: Squares, tmp_path: Path) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images))
    first = tmp_path / "first"
    run_training(Inputs((source,)), first, settings(training=FEW), preset="none")
    before = {k: v for k, v in read_model(first).model.state_dict().items() if ".image." in k}
    chosen = settings("transformer", training=FEW, image={"weights": str(first), "frozen": True})
    logs = [Log(), Log()]
    for number, log in enumerate(logs):
        run_training(Inputs((source,)), tmp_path / str(number), chosen, reporter=log, preset="none")
    assert logs[0].having("features", "computed")
    assert logs[1].having("features", "cache")
    after = {k: v for k, v in read_model(tmp_path / "0").model.state_dict().items() if ".image." in k}
    assert len(after) == len(before) > 0
    assert all(torch.equal(x, y) for x, y in zip(before.values(), after.values(), strict=True))
    # The model captions pixels as it would caption features.
    captioner = heedful.load(tmp_path / "0")
    assert captioner.caption(squares.images / "000.png").text
    with pytest.raises(ConfigError, match=r"image\.patch is 8"):
        run_training(
            Inputs((source,)), tmp_path / "x", settings(image={"weights": str(first), "patch": 16}), preset="none"
        )
    with pytest.raises(ConfigError, match=r"image\.weights"):
        run_training(Inputs((source,)), tmp_path / "x", settings(image={"frozen": True}), preset="none")


def test_features_in_batches(squares: Squares) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images), str(squares.regions))
    pairs, log = opened(Inputs((source,)))
    config = Config.build(settings())
    calls: list[int] = []

    def features(pixels: np.ndarray) -> np.ndarray:
        calls.append(len(pixels))
        return pixels.reshape(len(pixels), 16, -1)[..., :5] * np.float32(1000)

    codec = learn_codecs(pairs, config, log)[1]
    data = prepare(pairs, (codec,), config, log, (features, "a"))
    batch = data.batches.batch(np.arange(2))
    assert batch.x.dtype == torch.float16
    assert batch.x.shape == (2, 16, 5)
    assert batch.x.max() == 65504  # the largest number, where 255,000 are too many
    assert isinstance(data.corpus.source, ImageArray)
    assert sum(calls) == 12
    prepare(pairs, (codec,), config, log, (features, "a"))
    assert sum(calls) == 12
    prepare(pairs, (codec,), config, log, (features, "other weights"))
    assert sum(calls) == 24


def test_a_captioner_begins_with_another(squares: Squares, tmp_path: Path) -> None:
    source = CaptionFile(str(squares.captions), str(squares.images))
    first = tmp_path / "first"
    run_training(Inputs((source,)), first, settings(training=FEW), preset="none")
    log = Log()
    second = {"training": {**FEW, "rate": 0.0}, "image": {"frozen": True}}
    run_training(Inputs((source,)), tmp_path / "second", second, init=first, reporter=log, preset="none")
    assert log.having("features")
    states = [read_model(tmp_path / name).model.state_dict() for name in ("first", "second")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert read_model(tmp_path / "second").config.image == Config.build(settings(image={"frozen": True})).image
    with pytest.raises(ConfigError, match=r"image\.pixels"):
        run_training(Inputs((source,)), tmp_path / "x", {"image": {"pixels": 64}}, init=first)
    with pytest.raises(ConfigError, match="captions images"):
        heedful.train([("a", "b")] * 9, tmp_path / "x", init=first, verbose=False)


def test_what_does_not_go_together(squares: Squares, tmp_path: Path) -> None:
    out = tmp_path / "m"
    for keywords in (
        {"links": ["0-0"], "images": squares.images},
        {"valid_images": squares.images, "images": squares.images},
        {"regions": squares.regions},
        {"joint": True, "images": squares.images},
        {"images": squares.images, "model": "transformer", "tied": "all"},
        {"pixels": 32},
        {"images": squares.images, "pixels": 30},
        {"images": squares.images, "regions": squares.regions, "model": "fixed"},
    ):
        with pytest.raises(ConfigError):
            heedful.train(str(squares.captions), out, verbose=False, **keywords)
    with pytest.raises(ConfigError, match="mixed"):
        Inputs((CaptionFile(str(squares.captions), str(squares.images)),), (heedful.data.PairFile("x.tsv"),))
    assert not out.exists()


def test_an_image_is_captioned_once_with_all_its_references(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 12, captions=3)
    valid = CaptionFile(str(squares.captions), str(squares.images))
    log: list[object] = []

    class Validations(Log):
        def validated(self, validation: object, better: bool) -> None:
            log.append(validation)

    inputs = Inputs((CaptionFile(str(squares.captions), str(squares.images)),), (valid,))
    run_training(inputs, tmp_path / "m", settings(training=FEW), reporter=Validations(), preset="none")
    samples = log[-1].samples  # type: ignore[attr-defined]
    assert len(samples) == 2
    assert all(sample.source.endswith(".png") for sample in samples)


def test_the_command_trains_and_estimates(squares: Squares, tmp_path: Path, heedful_cli: Cli) -> None:
    sets = [
        part
        for name, values in SETTINGS.items()
        for key, value in values.items()
        for part in ("--set", f"{name}.{key}={value}")
    ]
    sets += ["--set", "model.width=16", "--set", "model.embedding=8", "--steps", "4"]
    files = [squares.captions, "--images", squares.images, "--regions", squares.regions]
    done = heedful_cli("train", *files, "--out", tmp_path / "m", *sets, "--image-encoder", "patches")
    assert done.code == 0, done.err
    assert "heedful caption" in done.err
    assert "image encoder patches" in done.err
    assert read_model(tmp_path / "m").config.image is not None
    dry = heedful_cli("train", *files, "--out", tmp_path / "n", *sets, "--dry-run", "--valid", squares.captions)
    assert dry.code == 0, dry.err
    assert "captions" in dry.out
    assert "vocabulary" in dry.out
    resumed = heedful_cli("train", "--out", tmp_path / "m", "--resume", "--steps", "5")
    assert resumed.code == 0, resumed.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--images", "none"], "none"),
        (["--images", "captions.csv"], "captions.csv"),
        (["--images", "images", "--regions", "none.jsonl"], "none.jsonl"),
        (["--images", "images", "--links", "regions.jsonl"], "--regions"),
        (["--images", "images", "--source", "captions.csv"], "--source"),
        (["--images", "images", "--valid-images", "images"], "--valid"),
        (["--regions", "regions.jsonl"], "--images"),
        (["--image-encoder", "conv"], "--images"),
        ([], "--images"),
        (["--images", "images", "--image-encoder", "vgg"], "vgg"),
    ],
)
def test_wrong_options(
    options: list[str], part: str, squares: Squares, heedful_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(squares.captions.parent)
    done = heedful_cli("train", "captions.csv", "--out", "m", *options)
    assert done.code == 2
    assert part in done.err
    assert "Traceback" not in done.err


def test_estimates_have_no_source_tokens(squares: Squares) -> None:
    inputs = Inputs((CaptionFile(str(squares.captions), str(squares.images)),))
    estimate = estimate_run(inputs, settings(training=FEW), reporter=Log(), preset="none")
    assert estimate.vocabularies[0] == estimate.source_tokens == 0
    assert estimate.vocabularies[1] > 5
    assert estimate.expected_steps is None


def test_a_run_of_text_is_not_resumed_with_captions(squares: Squares, tmp_path: Path) -> None:
    chosen = {
        "training": {"steps": 2, "device": "cpu"},
        "model": {"width": 8, "embedding": 4},
        "text": {"kind": "word"},
    }
    heedful.train(
        [(f"a {i}", f"b {i}") for i in range(20)], tmp_path / "m", settings=chosen, preset="none", verbose=False
    )
    with pytest.raises(ConfigError, match="sentence pairs"):
        heedful.train(squares.rows, tmp_path / "m", images=squares.images, resume=True, verbose=False)


def test_presets_for_captions_are_logged(squares: Squares) -> None:
    log = Log()
    inputs = Inputs((CaptionFile(str(squares.captions), str(squares.images)),))
    estimate_run(inputs, {"training": {"steps": 2, "threads": 1}, "image": SETTINGS["image"]}, reporter=log)
    assert log.having("preset 'tiny'", "captions", "model.family=rnn")


def test_alarms_are_measured_on_validation_images(tmp_path: Path) -> None:
    squares = draw_squares(tmp_path / "data", 90, captions=2)
    source = CaptionFile(str(squares.captions), str(squares.images))
    log = Log()
    chosen = settings(training={**FEW, "metric": "loss"})
    train_model(Inputs((source,), (source,)), tmp_path / "m", chosen, reporter=log, preset="none")
    assert not log.having("could not be measured")
    readout = read_model(tmp_path / "m").readout
    assert readout is not None
    assert readout.alarms is not None
    assert readout.alarms.wrong + readout.alarms.right == 90


def test_the_longest_training_caption_limits_captions_in_validation_and_afterwards(
    squares: Squares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: set[int] = set()

    def counted(model: Network, memory: Memory, each: list[int]) -> list[Hypothesis]:
        limits.update(each)
        return greedy(model, memory, each)

    monkeypatch.setattr("heedful.training.checkpointing.greedy", counted)
    rows = [(name, caption) for name, caption in squares.rows if name != "000.png"]
    valid = [("000.png", "a square")]
    heedful.train(
        rows, tmp_path / "m", valid=valid, images=squares.images, settings=settings(training=FEW), verbose=False
    )
    assert limits == {2 * 8 + 20}
    for folder in (tmp_path / "m", *(tmp_path / "m" / "checkpoints").glob("0*")):
        assert read_model(folder).caption_length == 8  # the longest of training, with </s>


def test_captions_from_standard_input_and_images_from_an_archive(
    squares: Squares, tmp_path: Path, heedful_cli: Cli
) -> None:
    archive = shutil.make_archive(str(tmp_path / "images"), "gztar", squares.images)
    sets = ["--set", "model.width=16", "--set", "image.pixels=16", "--set", "training.threads=1", "--steps", "2"]
    done = heedful_cli(
        "train", "-", "--images", archive, "--out", tmp_path / "m", *sets, stdin=squares.captions.read_bytes()
    )
    assert done.code == 0, done.err
    assert "12 images, 16 × 16 pixels" in done.err
    assert read_model(tmp_path / "m").config.image is not None
