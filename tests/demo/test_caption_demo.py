"""`heedful demo captions`: a tiny run, what its report says, and how pointing is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import heedful
from heedful.config import Config, settings
from heedful.data.scenes import scenes
from heedful.demo import TrainingStatus
from heedful.demo.captions import (
    CAPTIONS,
    CAPTIONS_FAST,
    COMMON,
    ENCODER,
    CaptionReport,
    caption_page,
    caption_summary,
    gold_of,
    loading_seconds,
    run_captions,
)
from heedful.trace import ImageRegions
from heedful.trace.readout import STEPS

pytest.importorskip("PIL")

SMALLER = {"image.filters": "4", "image.blocks": "0", "model.width": "16", "model.embedding": "8", "model.inner": "16"}


def _smaller(given: Sequence[str]) -> tuple[str, ...]:
    """Return settings with smaller sizes."""
    pairs = (setting.split("=", 1) for setting in given)
    return tuple(f"{name}={SMALLER.get(name, value)}" for name, value in pairs)


TINY = replace(
    CAPTIONS,
    pairs=60,
    valid=16,
    test=24,
    settings=(*_smaller(COMMON), "training.warmup=2", "training.valid_pairs=8"),
    models=tuple(one._replace(settings=_smaller(one.settings), steps=3) for one in CAPTIONS.models),
    validations=1,
)


class Quiet:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.most = 0

    def log(self, message: str) -> None:
        self.messages.append(message)

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        self.most = max(self.most, len(statuses))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CaptionReport]:
    out = tmp_path_factory.mktemp("demo") / "captions"
    threads = torch.get_num_threads()
    display = Quiet()
    try:
        report = run_captions(TINY, out, 3, display)
    finally:
        torch.set_num_threads(threads)
    assert display.most == len(TINY.models)
    return out, report


def test_three_models_are_compared_by_the_number_of_objects(made: tuple[Path, CaptionReport]) -> None:
    _, report = made
    assert [model.key for model in report.models] == ["fixed", "attention", "transformer"]
    assert report.counts == {1: 6, 2: 6, 3: 6, 4: 6}
    for model in report.models:
        assert set(model.exact) == {1, 2, 3, 4}
        assert model.total == pytest.approx(sum(model.exact.values()) / 4)
        assert model.updates == 3
    assert 0 < report.coverage <= 12


def test_all_share_one_frozen_image_encoder(made: tuple[Path, CaptionReport]) -> None:
    out, _ = made
    weights = []
    for key in (ENCODER, "fixed", "attention", "transformer"):
        translator = heedful.load(out / key, "cpu")
        assert translator.config.image is not None
        assert translator.config.image.frozen == (key != ENCODER)
        state = translator.parts.model.state_dict()
        weights.append({name.split("image.")[1]: value for name, value in state.items() if "image." in name})
    assert len(weights[0]) > 3
    for other in weights[1:]:
        assert other.keys() == weights[0].keys()
        assert all(torch.equal(other[name], value) for name, value in weights[0].items())


def test_pointing_by_kind_and_step(made: tuple[Path, CaptionReport]) -> None:
    out, report = made
    fixed, *attending = report.models
    assert (fixed.pointing, fixed.steps) == (None, None)
    for model in attending:
        assert model.pointing is not None
        assert {row.kind for row in model.pointing.rows} == {"noun", "colour", "size", "count"}
        assert model.steps is not None
        assert tuple(model.steps) == STEPS
        assert all(one.readout.step == step for step, one in model.steps.items())
        saved = heedful.load(out / model.key, "cpu").readout
        assert str(saved) == model.readout
        assert saved.step in STEPS


def test_the_gold_words_of_a_scene() -> None:
    scene = next(s for s in scenes(40, split="test", size=64) if len(s.objects) == 2 and s.objects[0].count == 1)
    words = scene.caption.split()
    gold = gold_of(scene, ImageRegions("a.png", 64, 64, 8, 8))
    assert [one.kind for one in gold][:3] == ["size", "colour", "noun"]
    assert words[gold[0].word] in ("small", "large")
    assert words[gold[2].word] == scene.objects[0].kind
    x, y, w, h = scene.objects[0].box
    inside = {j for j in range(64) if x <= 8 * (j % 8) + 4 <= x + w and y <= 8 * (j // 8) + 4 <= y + h}
    assert gold[2].regions == inside


def test_the_report(made: tuple[Path, CaptionReport]) -> None:
    out, report = made
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page == caption_page(report)
    for scene in report.scenes:
        assert scene.caption in page
    assert [scene.objects for scene in report.scenes] == [1, 2, 3, 4]
    assert page.count('class="heedful-view"') == 2 * len(report.scenes)
    assert "img-src data:" in page
    text = caption_summary(report, out)
    for title in ("fixed context", "attention", "Transformer", "noun", "same step"):
        assert title in text
        assert title in page
    record = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert record["seconds"]["total"] >= record["seconds"]["drawing"] > 0
    assert record["test_scenes"] == {"1": 6, "2": 6, "3": 6, "4": 6}


def test_the_time_of_loading_is_read_from_the_log(made: tuple[Path, CaptionReport], tmp_path: Path) -> None:
    out, report = made
    log = tmp_path / "a.log"
    log.write_text("60 images, 64 × 64 pixels each, read and resized (1.5 s)\nother (9 s)\n", encoding="utf-8")
    assert loading_seconds(log) == 1.5
    assert re.search(r"images, .* \([0-9.]+ s\)", (out / f"{ENCODER}.log").read_text(encoding="utf-8"))
    assert report.seconds["loading"] >= 0


@pytest.mark.parametrize("plan", [CAPTIONS, CAPTIONS_FAST], ids=["full", "fast"])
def test_the_settings_of_the_plans(plan: object) -> None:
    assert isinstance(plan, type(CAPTIONS))
    for model in plan.models:
        config = Config.build(settings([*plan.settings, *model.settings]))
        assert config.image is not None
        assert config.image.pixels == 64
    assert plan.models[0].key == ENCODER
