"""Beginning a run with the weights of another model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY, copies, write_pairs
from recorded_runs import Crash, Ear, Never

from heedful.config import Config
from heedful.data import PairList
from heedful.errors import ConfigError, ModelError
from heedful.interop.folder import ModelParts, read_model, write_model
from heedful.models import build
from heedful.text import Codec
from heedful.training import Inputs, Validation, checkpointing, run_training

Run = Callable[..., tuple[int, str, str]]
OTHERS = copies(200, seed=3)


def go(
    out: Path,
    init: Path | str | None,
    watch: Ear | None = None,
    resume: bool = False,
    pairs: list[tuple[str, str]] = OTHERS,
    **sections: dict[str, Any],
) -> Ear:
    watch = watch or Ear()
    training = {**TINY["training"], "steps": 30, "log_every": 1, **sections.pop("training", {})}
    found = Inputs((PairList(pairs),))
    run_training(found, out, {**sections, "training": training}, resume=resume, reporter=watch, init=init)
    return watch


def same(left: ModelParts, right: ModelParts) -> bool:
    a, b = left.model.state_dict(), right.model.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a run that began with `tiny` and never stopped."""
    out = tmp_path_factory.mktemp("whole") / "m"
    go(out, tiny)
    return (out / "model.safetensors").read_bytes()


def test_the_first_checkpoint_is_the_model_it_began_with(tiny: Path, tmp_path: Path) -> None:
    before = files(tiny)
    ear = go(tmp_path / "m", tiny, training={"steps": 30, "keep": 9})
    assert files(tiny) == before
    origin, first, last = (read_model(p) for p in (tiny, tmp_path / "m/checkpoints/000000000", tmp_path / "m"))
    assert same(origin, first)
    assert not same(origin, last)
    assert (last.source.dump(), last.target.dump()) == (origin.source.dump(), origin.target.dump())
    assert (last.config.model, last.config.text) == (origin.config.model, origin.config.text)
    assert last.config.training.steps == 30
    assert json.loads((tmp_path / "m/checkpoints/000000030/run.json").read_text())["init"] == str(tiny.resolve())
    assert last.notes["init"] == tiny.name  # the path is nobody else's business
    assert f"beginning with the weights of {tiny.resolve()}" in ear.said
    assert ear.validations[0].step == 0


def test_it_knows_more_than_a_new_model(tiny: Path, tmp_path: Path) -> None:
    begun, new = go(tmp_path / "m", tiny), go(tmp_path / "n", None, text=TINY["text"], model=TINY["model"])
    assert begun.validations[-1].loss < new.validations[-1].loss - 0.1
    assert begun.validations[-1].loss < begun.validations[0].loss


def test_training_that_only_harms_leaves_the_model_as_it_was(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "heedful.training.checkpointing.Validator.__call__",
        lambda self, model, step: Validation(step, 1.0, 0.5, 50.0 - step),
    )
    go(tmp_path / "m", tiny)
    result = read_model(tmp_path / "m")
    assert result.notes["step"] == 0
    assert same(result, read_model(tiny))


def test_the_settings_of_training_are_those_of_the_run(tiny: Path, tmp_path: Path) -> None:
    assert any("training.rate is 0.002, as for new weights" in s for s in hints(tiny, tmp_path / "m", {}))
    assert not any("training.rate is" in s for s in hints(tiny, tmp_path / "n", {"rate": 0.001}))
    assert read_model(tmp_path / "m").config.training.warmup == 400


def hints(tiny: Path, out: Path, training: dict[str, Any]) -> list[str]:
    ear = Ear()
    fast = {"steps": 1, "device": "cpu", "threads": 1, **training}
    run_training(Inputs((PairList(OTHERS),)), out, {"training": fast}, init=str(tiny), reporter=ear)
    return ear.said


def test_the_same_settings_may_be_given_again(tiny: Path, tmp_path: Path) -> None:
    model = {"family": "rnn", **{key: str(value) for key, value in TINY["model"].items()}}
    go(tmp_path / "m", tiny, model=model, text={"kind": "word", "size": 12}, training={"steps": 1})
    assert read_model(tmp_path / "m").config.model == read_model(tiny).config.model


def test_other_settings_are_refused_by_name_before_anything_is_read(tiny: Path, tmp_path: Path) -> None:
    never = Inputs((Never([]),))
    given = {"model": {"width": "32", "dropout": "0.3", "cell": "lstm", "embedding": 8}, "text": {"size": 10}}
    with pytest.raises(ConfigError) as caught:
        run_training(never, tmp_path / "m", given, init=tiny)
    assert str(caught.value) == (
        f"a run that begins with {tiny} keeps the settings that its weights and vocabularies were made with: "
        "model.cell is gru and cannot become lstm; model.width is 16 and cannot become 32; "
        "text.size is 12 and cannot become 10"
    )
    wrong: list[tuple[dict[str, dict[str, Any]], str]] = [
        ({"model": {"family": "transformer"}}, "is a model of the family rnn, which cannot become transformer"),
        ({"model": {"family": "transfomer"}}, "unknown model 'transfomer'.*Did you mean 'transformer'"),
        ({"model": {"heads": 4}}, "unknown setting 'model.heads' of the model 'rnn'"),
        ({"text": {"joint": True}}, "text.joint is False and cannot become True"),
        ({"modle": {}}, "unknown section 'modle'"),
    ]
    for settings, message in wrong:
        with pytest.raises(ConfigError, match=message):
            run_training(never, tmp_path / "m", settings, init=tiny)
    with pytest.raises(ModelError, match="there is no such model folder"):
        run_training(never, tmp_path / "m", {}, init=tmp_path / "nowhere")
    assert not (tmp_path / "m").exists()


def test_dropout_and_the_longest_pair_may_change(tiny: Path, tmp_path: Path) -> None:
    ear = go(tmp_path / "m", tiny, model={"dropout": 0.5}, text={"max_length": 4}, training={"steps": 1, "keep": 9})
    parts = read_model(tmp_path / "m")
    assert (parts.config.model.dropout, parts.config.text.max_length) == (0.5, 4)
    assert any(s.startswith("left out") for s in ear.said)
    assert same(read_model(tmp_path / "m/checkpoints/000000000"), read_model(tiny))


def test_the_new_dropout_is_what_trains(tiny: Path, tmp_path: Path) -> None:
    found = {}
    for rate in (0.0, 0.9):
        go(tmp_path / f"{rate}", tiny, model={"dropout": rate}, training={"steps": 1, "keep": 9})
        records = map(json.loads, (tmp_path / f"{rate}" / "metrics.jsonl").read_text().splitlines())
        found[rate] = next(r["loss"] for r in records if "loss" in r)
    assert found[0.0] < found[0.9] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 10, 11, 29])
def test_a_crash_changes_nothing_even_if_the_origin_is_gone(
    whole: bytes, tiny: Path, tmp_path: Path, step: int
) -> None:
    shutil.copytree(tiny, tmp_path / "origin")
    with pytest.raises(Crash):
        go(tmp_path / "m", tmp_path / "origin", Ear(crash_at=step))
    shutil.rmtree(tmp_path / "origin")
    ear = go(tmp_path / "m", None, resume=True)
    assert f"resuming from step {(step - 1) // 10 * 10}" in ear.said
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == whole
    assert read_model(tmp_path / "m").notes["init"] == "origin"


def test_a_crash_before_the_first_checkpoint_needs_the_origin_again(
    whole: bytes, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*args: object) -> None:
        raise Crash

    monkeypatch.setattr(checkpointing, "save", crash)
    with pytest.raises(Crash):
        go(tmp_path / "m", tiny)
    monkeypatch.undo()
    ear = go(tmp_path / "m", tiny, resume=True)
    assert any("starting a new run" in s for s in ear.said)
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == whole


def test_a_resumed_run_cannot_begin_elsewhere(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(tiny, tmp_path / "other")
    go(tmp_path / "m", tiny, training={"steps": 3})
    go(tmp_path / "n", None, text=TINY["text"], model=TINY["model"], training={"steps": 3})
    monkeypatch.chdir(tiny.parent)
    assert go(tmp_path / "m", tiny.name, resume=True, training={"steps": 4}).steps == [4]
    with pytest.raises(ConfigError, match=r"began with the weights of .*; leave out init when resuming"):
        go(tmp_path / "m", tmp_path / "other", resume=True)
    with pytest.raises(ConfigError, match="began with new weights; leave out init when resuming"):
        go(tmp_path / "n", tiny, resume=True)


def test_what_the_vocabulary_does_not_know_is_said(tiny: Path, tmp_path: Path) -> None:
    strange = [(f"{x} q", y) for x, y in OTHERS[:20]]
    ear = go(tmp_path / "m", tiny, pairs=[*OTHERS, *strange], training={"steps": 1})
    (said,) = [s for s in ear.said if "vocabulary" in s and "%" in s]
    # 20 of some 620 tokens, less those that are held out
    assert 0.02 < float(said.split("%")[0]) / 100 < 0.04
    assert said.endswith(
        f"of the source tokens are not in the vocabulary of {tiny.resolve()} ('q'): it cannot learn them"
    )
    ear = go(tmp_path / "n", tiny, pairs=[*OTHERS, *strange[:2]], training={"steps": 1})
    assert not any("vocabulary of" in s for s in ear.said)


def test_one_table_for_two_tokenizers_can_be_trained_on(tmp_path: Path) -> None:
    """Marian's way: one vocabulary, but each language is cut by rules of its own."""
    config = Config.build(
        {"model": {"family": "transformer", "width": 8, "heads": 2, "inner": 8, "layers": 1, "tied": "all"}}
    )
    config = replace(config, text=replace(config.text, kind="word"))
    source, target = (Codec.train([p[i] for p in OTHERS], config.text) for i in (0, 1))
    write_model(tmp_path / "origin", ModelParts(config, build(config.model, len(source), len(target)), source, target))
    go(tmp_path / "m", tmp_path / "origin", training={"steps": 2})
    assert go(tmp_path / "m", None, resume=True, training={"steps": 3}).steps == [3]


def test_a_name_on_the_hub_is_kept_as_it_is(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def open_parts(path: str | Path, device: torch.device, warn: Callable[[str], None] | None) -> ModelParts:
        asked.append((path, device.type))
        return read_model(tiny, device)

    monkeypatch.setattr("heedful.training.setup.open_parts", open_parts)
    go(tmp_path / "m", "hf:org/name", training={"steps": 1})
    assert asked == [("hf:org/name", "cpu")]
    assert read_model(tmp_path / "m").notes["init"] == "hf:org/name"
    assert go(tmp_path / "m", "hf:org/name", resume=True, training={"steps": 2}).steps == [2]
    assert len(asked) == 1


def test_on_the_command_line(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", OTHERS)
    fast = ("--steps", "3", "--device", "cpu", "--threads", "1", "--set", "training.rate=0.001")
    code, _, err = heedful_cli("train", pairs, "--out", tmp_path / "m", "--init", tiny, *fast)
    assert code == 0
    assert f"beginning with the weights of {tiny.resolve()}\n" in err
    assert f"started from the weights of {tiny.name}\n" in heedful_cli("info", tmp_path / "m")[1]
    assert heedful_cli("train", "--out", tmp_path / "m", "--resume", "--steps", "5")[0] == 0
    assert heedful_cli("translate", tmp_path / "m", "a b", "--device", "cpu")[0] == 0
    code, _, err = heedful_cli("train", pairs, "--out", tmp_path / "n", "--init", tiny, "--model", "fixed", *fast)
    assert code == 2
    assert "family rnn, which cannot become fixed" in err


@pytest.mark.parametrize("name", ["init", "teacher", "teacher_checksum"])
def test_notes_that_name_no_origin_are_damaged(tiny: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(tiny, tmp_path / "m")
    head = json.loads((tmp_path / "m" / "config.json").read_text())
    head["notes"][name] = 5
    (tmp_path / "m" / "config.json").write_text(json.dumps(head))
    with pytest.raises(ModelError, match=f"'{name}' in the notes is 5, expected a name"):
        read_model(tmp_path / "m")
