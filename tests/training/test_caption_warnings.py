"""What a run on captions says of its data: captions without images, too few images, rows and images that are bad."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from square_images import draw_squares, settings

import heedful
from heedful.config import ImageConfig
from heedful.errors import DataError
from heedful.training.estimate import LEAST_IMAGES, too_few_images

pytest.importorskip("PIL")
SHORT: dict[str, object] = {"steps": 1, "valid_every": 1}


def test_captions_are_not_translated(tmp_path: Path) -> None:
    rows = [(f"{number:06}.png", "a dog") for number in range(20)]
    (tmp_path / "rows.tsv").write_text("\n".join(map("\t".join, rows)))
    for pairs in (rows, tmp_path / "rows.tsv"):
        with pytest.raises(DataError, match="these are captions; set images="):
            heedful.train(pairs, tmp_path / "m", settings={"training": SHORT}, verbose=False)
    assert not (tmp_path / "m" / "config.json").exists()


def test_few_images_need_a_pretrained_encoder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    squares = draw_squares(tmp_path, 12)
    with caplog.at_level(logging.WARNING, "heedful.training"):
        made = heedful.train(
            squares.rows, tmp_path / "m", images=squares.images, settings=settings(training=SHORT), verbose=False
        )
    assert any("too few" in message and "image.encoder=timm" in message for message in caplog.messages)
    assert repr(made).startswith("Captioner(")
    assert repr(made.caption(squares.images / "000.png")).startswith("Caption('000.png' -> ")


def test_which_images_are_too_few() -> None:
    assert too_few_images(LEAST_IMAGES - 1, ImageConfig())
    assert not too_few_images(LEAST_IMAGES, ImageConfig())
    assert not too_few_images(9, ImageConfig(weights="hf:timm/resnet50.a1_in1k"))
