"""The Transformer, trained by the same code as all other models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import copies, write_pairs
from recorded_runs import Crash, Ear, Never
from safetensors import safe_open
from small_runs import small

import heedful
from heedful.config import TransformerConfig
from heedful.data import PairList
from heedful.errors import ConfigError
from heedful.interop.folder import read_model
from heedful.models import build
from heedful.training import Inputs, run_training

Run = Callable[..., tuple[int, str, str]]
SIZE = {"width": 32, "heads": 2, "inner": 64, "layers": 1}
TRAINING = {"rate": 0.01, "warmup": 20}


def transformer(training: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **model: Any) -> Any:
    settings = small(text=text or {}, training={**TRAINING, **(training or {})})
    return {**settings, "model": {"family": "transformer", **SIZE, **model}}


def go(out: Path, settings: Any, watch: Ear | None = None, resume: bool = False) -> Ear:
    watch = watch or Ear()
    run_training(Inputs((PairList(copies()),)), out, settings, resume=resume, reporter=watch)
    return watch


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("learned") / "m"
    training = {"steps": 300, "rate": 0.005, "batch_sentences": 64, "valid_every": 150, "checkpoint_every": 300}
    heedful.train(copies(1500), out, settings=transformer(training, dropout=0.0))
    return out


@pytest.mark.slow
def test_it_learns_to_copy_letters(learned: Path) -> None:
    held = sorted(set(copies(250, seed=77)) - set(copies(1500)))[:100]
    model = heedful.load(learned, "cpu")
    translations = model.translate([x for x, _ in held])
    right = sum(t.text == y for t, (_, y) in zip(translations, held, strict=True))
    assert right >= 95
    assert len(held) == 100
    for translation in translations:
        weights = translation.trace.weights
        assert weights is not None
        assert weights.shape[:2] == (1, 2)  # layers, heads
        np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)


@pytest.mark.slow
def test_the_commands_work_on_it(heedful_cli: Run, learned: Path, tmp_path: Path) -> None:
    shown = heedful_cli("translate", learned, "a b c", "--show", "--device", "cpu")[1]
    assert shown.startswith("A B C\n")
    assert "source: 1 a  2 b  3 c  4 </s>" in shown
    pairs = write_pairs(tmp_path / "pairs.tsv", copies(50, seed=5))
    scores = json.loads(heedful_cli("evaluate", learned, pairs, "--json", "--device", "cpu")[1])
    assert scores["exact"] >= 90
    assert 'family = "transformer"' in heedful_cli("info", learned)[1]


def test_the_command_trains_and_resumes_it(heedful_cli: Run, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", copies(60))
    options = [f"--set=model.{key}={value}" for key, value in SIZE.items()]
    options += ["--set=text.kind=word", "--device=cpu", "--threads=1"]
    for out, steps in (("whole", 6), ("m", 3)):
        done = heedful_cli("train", pairs, "--out", tmp_path / out, "--model=transformer", f"--steps={steps}", *options)
        assert done[0] == 0
    assert heedful_cli("train", "--out", tmp_path / "m", "--resume", "--steps=6")[0] == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, norm: str) -> None:
    """With every dropout there is, and every weight that may be there."""
    settings = transformer(norm=norm, attention_dropout=0.1, inner_dropout=0.1, bias=True, tied="none")
    go(tmp_path / "whole", settings)
    for step in (9, 25):
        with pytest.raises(Crash):
            go(tmp_path / f"{step}", settings | {"training": {**settings["training"], "log_every": 1}}, Ear(step))
        go(tmp_path / f"{step}", settings, resume=True)
        assert (tmp_path / f"{step}/model.safetensors").read_bytes() == (
            tmp_path / "whole/model.safetensors"
        ).read_bytes()


@pytest.mark.parametrize(("tied", "joint"), [("target", False), ("target", True), ("all", True), ("none", False)])
def test_word_vectors_are_shared_as_asked_and_written_once(tmp_path: Path, tied: str, joint: bool) -> None:
    settings = transformer({"steps": 20, "valid_every": 10}, {"joint": joint}, tied=tied)
    ear = go(tmp_path / "m", settings)
    assert ear.validations[-1].loss < ear.validations[0].loss
    parts = read_model(tmp_path / "m")
    assert isinstance(parts.config.model, TransformerConfig)
    assert parts.config.model.tied == tied
    tables = {"all": 1, "target": 2, "none": 3}[tied]
    size, width = len(parts.target), SIZE["width"]
    for name in ("m/model.safetensors", "m/checkpoints/000000020/best.safetensors"):
        with safe_open(tmp_path / name, "pt") as file:
            found = [key for key in file.keys() if file.get_tensor(key).shape[0] == size]  # noqa: SIM118
            total = sum(file.get_tensor(key).numel() for key in file.keys())  # noqa: SIM118
        assert len(found) == tables, found
        assert total == sum(p.numel() for p in parts.model.parameters())
    with safe_open(tmp_path / "m/checkpoints/000000020/optimizer.safetensors", "pt") as file:
        moments = [key for key in file.keys() if file.get_tensor(key).shape == (size, width)]  # noqa: SIM118
    assert len(moments) == 2 * tables  # AdamW keeps two for each
    assert (tmp_path / "m" / "tokenizer.json").exists() == joint
    assert heedful.load(tmp_path / "m", "cpu").translate("a b").text is not None


def test_a_joint_table_learns_from_both_languages(tmp_path: Path) -> None:
    """A letter that stands in sources only is moved, too: its row is the one that the source reads."""
    settings = transformer({"steps": 1, "keep": 9, "warmup": 0}, {"joint": True}, tied="all")
    go(tmp_path / "m", settings)
    parts = read_model(tmp_path / "m")
    torch.manual_seed(settings["training"].get("seed", 1))
    before = build(parts.config.model, len(parts.source), len(parts.target)).state_dict()["embedding.weight"]
    moved = (parts.model.state_dict()["embedding.weight"] - before).abs().amax(1)
    ids = parts.source.ids(["a b c d e f g h", "A B C D E F G H"])
    assert all(moved[i] > 1e-4 for row in ids for i in row)


def test_one_table_needs_one_vocabulary_and_that_is_said_before_anything_is_read(tmp_path: Path) -> None:
    never = Inputs((Never([]),))
    # Letters and capital letters are equally many: the shapes alone would not have told.
    with pytest.raises(ConfigError, match=r"model.tied=all needs one vocabulary .* set text.joint=true as well, or"):
        run_training(never, tmp_path / "m", transformer(tied="all"))
    for wrong, message in (({"heads": 3}, "3 heads .* cannot share evenly"), ({"width": 7, "heads": 1}, "even number")):
        with pytest.raises(ConfigError, match=message):
            run_training(never, tmp_path / "m", transformer(**wrong))
    assert not (tmp_path / "m").exists()
