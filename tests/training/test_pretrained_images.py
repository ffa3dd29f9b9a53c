"""Captioners that begin with a pretrained image encoder: frozen, trained further, and shared."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_timm import Tiny, tiny_timm

import heedful
from heedful.errors import ConfigError
from heedful.models.image import TimmEncoder, regions_of

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (extra images)")
TRAINING = {
    **{"steps": 6, "valid_every": 2, "checkpoint_every": 6, "batch_sentences": 8, "rate": 0.01, "warmup": 0},
    **{"weight_decay": 1.0, "ema": 0.5, "average": 2, "threads": 1, "device": "cpu"},
}
SMALL = {
    "fixed": {"family": "fixed", "width": 8, "embedding": 6},
    "rnn": {"family": "rnn", "width": 8, "embedding": 6},
    "transformer": {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 1},
}


@pytest.fixture
def weights(tmp_path, monkeypatch) -> str:
    monkeypatch.setitem(sys.modules, "timm", tiny_timm())
    torch.manual_seed(5)
    torch.save(Tiny().state_dict(), tmp_path / "w.pth")
    return str(tmp_path / "w.pth")


@pytest.fixture
def images(tmp_path) -> Path:
    (tmp_path / "images").mkdir()
    generator = np.random.default_rng(0)
    for number in range(16):
        pixels = generator.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    return tmp_path / "images"


def train(images: Path, out: Path, family: str = "rnn", training: dict[str, object] | None = None, **image: object):
    rows = [(f"{number}.png", f"a {colour} thing") for number in range(16) for colour in ("red", "blue")]
    settings = {
        "model": SMALL[family],
        "training": {**TRAINING, **(training or {})},
        "image": image,
        "text": {"kind": "word"},
    }
    return heedful.train(rows, out, images=images, settings=settings, preset="none", verbose=False)


def encoder(captioner: heedful.Translator) -> dict[str, torch.Tensor]:
    return regions_of(captioner.parts.model).image.state_dict()


@pytest.mark.parametrize("family", SMALL)
def test_a_frozen_encoder_does_not_change(weights, images, tmp_path, family) -> None:
    """Not by weight decay, moving averages or averages of validations; batch statistics stay, too."""
    captioner = train(images, tmp_path / "m", family, backbone="tiny", weights=weights, frozen=True)
    before = {name.replace(".", "_"): weight for name, weight in torch.load(weights, weights_only=True).items()}
    after = {name.removeprefix("network."): weight for name, weight in encoder(captioner).items()}
    compared = [name for name in after if name not in ("mean", "std")]
    assert len(compared) == 10
    for name in compared:
        assert torch.equal(after[name], before[name.replace(".", "_")]), name
    Path(weights).unlink()
    again = heedful.load(tmp_path / "m")
    picture = np.full((20, 20, 3), 100, np.uint8)
    assert again.caption(picture).text == captioner.caption(picture).text


def test_an_encoder_that_is_not_frozen_changes_but_not_its_statistics(weights, images, tmp_path) -> None:
    captioner = train(images, tmp_path / "m", backbone="tiny", weights=weights)
    before = {name.replace(".", "_"): weight for name, weight in torch.load(weights, weights_only=True).items()}
    for name, weight in encoder(captioner).items():
        if name not in ("mean", "std"):
            same = torch.equal(weight, before[name.removeprefix("network.").replace(".", "_")])
            assert same == ("running" in name), name


def test_a_captioner_of_timm_begins_a_run(weights, images, tmp_path) -> None:
    """Also where a setting changes, so that the model is built again, with tables that are in no file."""
    first = train(images, tmp_path / "first", backbone="tiny", weights=weights)
    rows = [(f"{number}.png", f"a {colour} thing") for number in range(16) for colour in ("red", "blue")]
    for number, sections in enumerate(({}, {"image": {"frozen": True}}, {"model": {"dropout": 0.4}})):
        settings = {"training": {**TRAINING, "rate": 0.0, "ema": 0.0, "average": 1}, **sections}
        second = heedful.train(
            rows, tmp_path / str(number), images=images, settings=settings, init=tmp_path / "first", verbose=False
        )
        same = encoder(second)
        assert all(torch.equal(same[name], weight) for name, weight in encoder(first).items())
        picture = np.full((20, 20, 3), 100, np.uint8)
        ours, theirs = (captioner.caption(picture).trace.log_probs for captioner in (first, second))
        assert ours.tolist() == theirs.tolist()


def test_features_are_computed_again_by_other_versions(weights, images, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    chosen = {"backbone": "tiny", "weights": weights, "frozen": True}
    calls: list[int] = []
    forward = TimmEncoder.forward

    def counted(self, pixels):
        calls.append(len(pixels))
        return forward(self, pixels)

    def images_encoded(name: str) -> int:
        calls.clear()
        train(images, tmp_path / name, training={"valid_every": 100, "metric": "loss"}, **chosen)
        return sum(calls)

    monkeypatch.setattr(TimmEncoder, "forward", counted)
    once = images_encoded("a")
    assert images_encoded("b") == once - 16
    monkeypatch.setattr(sys.modules["timm"], "__version__", "9.9", raising=False)
    assert images_encoded("c") == once
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert images_encoded("d") == once
    assert images_encoded("e") == once - 16


def test_captioners_share_an_encoder(images, tmp_path) -> None:
    first = train(images, tmp_path / "first", pixels=16, patch=4, filters=4, blocks=1)
    shared = train(images, tmp_path / "second", "transformer", weights=str(tmp_path / "first"), frozen=True)
    assert shared.parts.config.image.pixels == 16
    ours, theirs = encoder(shared), encoder(first)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_training_on_cached_features_is_training_on_images(weights, images, tmp_path, monkeypatch) -> None:
    """The same losses, to the precision of cached features, whether these are computed once or in every update."""
    seen: dict[str, list[float]] = {"cached": [], "computed": []}
    for name, frozen in (("cached", True), ("computed", False)):
        training = {**TRAINING, "rate": 1e-12, "weight_decay": 0.0, "log_every": 1, "ema": 0.0}
        rows = [(f"{number}.png", f"a {number % 3} thing") for number in range(16)]
        heedful.train(
            rows,
            tmp_path / name,
            images=images,
            settings={
                "model": {**SMALL["rnn"], "dropout": 0.0},
                "training": training,
                "image": {"backbone": "tiny", "weights": weights, "frozen": frozen},
                "text": {"kind": "word"},
            },
            preset="none",
            verbose=False,
            callback=lambda progress, name=name: seen[name].append(progress.loss),
        )
    assert len(seen["cached"]) >= 6
    assert seen["cached"] == pytest.approx(seen["computed"], rel=1e-3)


def test_a_frozen_encoder_without_weights(images, tmp_path) -> None:
    with pytest.raises(ConfigError, match="image.weights"):
        train(images, tmp_path / "m", frozen=True)
