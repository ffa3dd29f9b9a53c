"""Training: what it leaves behind, and that stopping changes nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, copies
from recorded_runs import PAIRS, Crash, Ear, Never, go, weights
from small_runs import small

import heedful
from heedful.data import PairList
from heedful.errors import ConfigError, DataError, DeviceMemoryError, DiskError, ModelError, NotFiniteError
from heedful.interop.folder import read_model
from heedful.training import Inputs, Progress, Validation, run_training
from heedful.training.step import ModelWithLoss


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a run that never stopped."""
    out = tmp_path_factory.mktemp("whole") / "m"
    go(out)
    return weights(out)


def test_the_same_seed_gives_the_same_bits(whole: bytes, tmp_path: Path) -> None:
    go(tmp_path / "m")
    assert weights(tmp_path / "m") == whole
    go(tmp_path / "other", training={"seed": 2})
    assert weights(tmp_path / "other") != whole


@pytest.mark.parametrize("step", [1, 9, 10, 11, 19, 20, 21, 39, 40])
def test_a_crash_at_any_step_changes_nothing(whole: bytes, tmp_path: Path, step: int) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=step))
    ear = go(tmp_path / "m", resume=True)
    assert weights(tmp_path / "m") == whole
    resumed = (step - 1) // 10 * 10
    assert any(("starting a new run" if resumed == 0 else f"resuming from step {resumed}") in said for said in ear.said)
    assert ear.steps == list(range(resumed + 1, 41))


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"cell": "lstm"}, {"cell": "rnn", "layers": 2}, {"family": "fixed", "cell": "lstm"}])
def test_a_crash_changes_nothing_in_other_models(tmp_path: Path, model: dict[str, Any]) -> None:
    go(tmp_path / "whole", model=model)
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=13), model=model)
    go(tmp_path / "m", resume=True, model=model)
    assert weights(tmp_path / "m") == weights(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, 24, 2))
def test_a_crash_inside_a_checkpoint_changes_nothing(
    whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    count = 0

    def fsync(handle: int) -> None:
        nonlocal count
        count += 1
        if count == call:
            raise Crash

    monkeypatch.setattr("os.fsync", fsync)
    # A killed process cannot tidy up after itself.
    monkeypatch.setattr("shutil.rmtree", lambda *args, **more: None)
    with pytest.raises(Crash):
        go(tmp_path / "m")
    monkeypatch.undo()
    go(tmp_path / "m", resume=True)
    assert weights(tmp_path / "m") == whole
    assert not list((tmp_path / "m" / "checkpoints").glob(".*.partial"))


def test_a_run_made_longer_is_the_longer_run(whole: bytes, tmp_path: Path) -> None:
    # 13 is neither a validation nor a checkpoint: the extra one at the end must not count.
    go(tmp_path / "m", training={"steps": 13})
    go(tmp_path / "m", resume=True, training={"steps": 40})
    assert weights(tmp_path / "m") == whole


@pytest.mark.slow
@pytest.mark.parametrize("step", [7, 20, 33])
def test_a_crash_changes_nothing_with_a_cosine(tmp_path: Path, step: int) -> None:
    go(tmp_path / "whole", training={"decay": "cosine"})
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=step), training={"decay": "cosine"})
    go(tmp_path / "m", resume=True, training={"decay": "cosine"})
    assert weights(tmp_path / "m") == weights(tmp_path / "whole")


def test_the_cosine_is_what_the_run_follows(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"decay": "cosine", "steps": 30})
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    rates = {r["step"]: r["rate"] for r in records if "rate" in r}
    # The warm-up of 10 steps goes up to 0.02; 20 is half-way from there to the end.
    assert (rates[5], rates[10], rates[20], rates[30]) == pytest.approx((0.01, 0.02, 0.01, 0.0))


def test_a_run_with_a_cosine_keeps_its_length(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"decay": "cosine", "steps": 13})
    before = weights(tmp_path / "m")
    for steps in (12, 40):
        with pytest.raises(ConfigError) as caught:
            go(tmp_path / "m", resume=True, training={"decay": "cosine", "steps": steps})
        assert str(caught.value) == (
            f"training.steps is 13 in the run in {tmp_path / 'm'} and cannot become {steps}: "
            "its rate falls to 0 with the last step (training.decay=cosine)"
        )
    assert weights(tmp_path / "m") == before
    assert go(tmp_path / "m", resume=True, training={"decay": "cosine", "steps": 13}).steps == []
    with pytest.raises(ConfigError, match=r"training.decay is cosine in the run in .* and cannot become root"):
        go(tmp_path / "m", resume=True, training={"decay": "root", "steps": 40})


def test_a_finished_run_resumed_stays_as_it_is(whole: bytes, tmp_path: Path) -> None:
    go(tmp_path / "m")
    ear = go(tmp_path / "m", resume=True)
    assert ear.steps == []
    assert weights(tmp_path / "m") == whole


def test_the_newest_whole_checkpoint_is_taken_and_the_others_named(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=35))
    newest = tmp_path / "m" / "checkpoints" / "000000030"
    (newest / "optimizer.safetensors").write_bytes(b"cut")
    ear = go(tmp_path / "m", resume=True)
    assert "optimizer.safetensors" in ear.said[0]
    assert ear.said[1] == "resuming from step 20"
    assert weights(tmp_path / "m") == whole
    assert read_model(newest.parent / "000000040")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "run.json", "model.safetensors", "best.safetensors", None])
def test_with_no_whole_checkpoint_it_starts_over_and_says_so(whole: bytes, tmp_path: Path, name: str | None) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=35))
    for checkpoint in (tmp_path / "m" / "checkpoints").glob("0*"):
        if name is None:
            shutil.rmtree(checkpoint)
        elif (checkpoint / name).exists():
            (checkpoint / name).write_bytes(b"{}")
    ear = go(tmp_path / "m", resume=True)
    assert any("has no complete checkpoint: starting a new run" in said for said in ear.said)
    assert weights(tmp_path / "m") == whole


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    go(tmp_path / "m")
    names = sorted(p.name for p in (tmp_path / "m" / "checkpoints").glob("0*"))
    assert names == ["000000030", "000000040"]


def test_a_checkpoint_is_a_model(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=15))
    assert heedful.load(tmp_path / "m" / "checkpoints" / "000000010", "cpu").translate("a b").text is not None


def test_metrics_have_each_step_once_after_a_crash(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=17))
    with (tmp_path / "m" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 18, "lo')
    go(tmp_path / "m", resume=True)
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if "loss" in r] == list(range(1, 41))
    assert [r["step"] for r in records if "valid_bleu" in r] == [20, 40]
    assert {"loss", "accuracy", "rate", "tokens_per_second", "epoch"} <= records[0].keys()


def test_the_finished_weights_are_the_best_on_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([10.0, 50.0, 30.0, 50.0])
    seen: dict[int, torch.Tensor] = {}

    def validator(self: object, model: torch.nn.Module, step: int) -> Validation:
        seen[step] = model.state_dict()["embedding.weight"].clone()
        return Validation(step, 1.0, 0.5, next(scores))

    monkeypatch.setattr("heedful.training.checkpointing.Validator.__call__", validator)
    go(tmp_path / "m", training={"valid_every": 10})
    parts = read_model(tmp_path / "m")
    assert parts.notes["step"] == 20
    assert parts.notes["validation"]["bleu"] == 50.0
    assert torch.equal(parts.model.state_dict()["embedding.weight"], seen[20])
    assert not torch.equal(seen[20], seen[40])


def test_patience_ends_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "heedful.training.checkpointing.Validator.__call__",
        lambda self, model, step: Validation(step, float(step), 0.5, 0.0),
    )
    ear = go(tmp_path / "m", training={"valid_every": 5, "patience": 3})
    assert [v.step for v in ear.validations] == [5, 10, 15, 20]
    assert read_model(tmp_path / "m").notes["step"] == 5


def test_a_signal_lets_the_step_end_and_leaves_a_checkpoint(whole: bytes, tmp_path: Path) -> None:
    class Impatient(Ear):
        def progress(self, progress: Progress) -> None:
            super().progress(progress)
            if progress.step == 23:
                signal.raise_signal(signal.SIGINT)

    watch = Impatient()
    settings = small(training={"log_every": 1})
    outcome = run_training(PAIRS, tmp_path / "m", settings, reporter=watch)
    assert (outcome.reason, outcome.step, outcome.signal) == ("interrupted", 23, signal.SIGINT)
    assert (tmp_path / "m" / "checkpoints" / "000000023").is_dir()
    assert heedful.load(tmp_path / "m", "cpu").parts.notes["step"] == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    go(tmp_path / "m", resume=True)
    assert weights(tmp_path / "m") == whole


def test_a_loss_that_is_not_finite_names_step_and_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = ModelWithLoss.forward, 0

    def broken(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal calls
        calls += 1
        total, right = real(*args)
        return (total * math.nan if calls == 26 else total), right

    monkeypatch.setattr(ModelWithLoss, "forward", broken)
    message = r"step 26: the loss or its gradient is not finite, in epoch \d+ on the batch of pairs.tsv:\d+, "
    with pytest.raises(NotFiniteError, match=message):
        go(tmp_path / "m", training={"valid_every": 1000})
    kept = read_model(tmp_path / "m" / "checkpoints" / "000000020").model.state_dict()
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_out_of_memory_says_what_to_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ModelWithLoss, "forward", full)
    with pytest.raises(
        DeviceMemoryError, match=r"step 1, a batch of 32 pairs .* lower training.batch_tokens \(now 2048\)"
    ):
        go(tmp_path / "m")


def test_a_full_disk_leaves_the_last_good_checkpoint(
    whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Path.open, 0

    def full(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        nonlocal calls
        if "w" in mode and "000000020" in str(self):
            calls += 1
            if calls == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DiskError, match=r"000000020.*No space left on device"):
        go(tmp_path / "m")
    monkeypatch.undo()
    assert [p.name for p in (tmp_path / "m" / "checkpoints").glob("0*")] == ["000000010"]
    ear = go(tmp_path / "m", resume=True)
    assert "resuming from step 10" in ear.said
    assert weights(tmp_path / "m") == whole


def test_a_folder_that_holds_a_model_is_refused_and_left_alone(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 2})
    before = {p: p.read_bytes() for p in (tmp_path / "m").rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="already has a model"):
        go(tmp_path / "m")
    assert {p: p.read_bytes() for p in (tmp_path / "m").rglob("*") if p.is_file()} == before


def test_a_folder_that_holds_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=12))
    with pytest.raises(ConfigError, match="unfinished run is in this folder; continue it with resume=True"):
        go(tmp_path / "m")


def test_a_model_without_checkpoints_is_kept_aside_when_its_run_starts_over(whole: bytes, tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 2})
    before = weights(tmp_path / "m")
    shutil.rmtree(tmp_path / "m" / "checkpoints")
    ear = go(tmp_path / "m", resume=True)
    assert any("has no complete checkpoint: starting a new run" in said for said in ear.said)
    assert any(said.endswith("earlier-1") for said in ear.said)
    assert weights(tmp_path / "m") == whole
    assert weights(tmp_path / "m" / "earlier-1") == before
    assert heedful.load(tmp_path / "m" / "earlier-1", "cpu")


def test_damaged_checkpoints_do_not_push_out_good_ones(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=35))
    for checkpoint in (tmp_path / "m" / "checkpoints").glob("0*"):
        (checkpoint / "run.json").write_bytes(b"{}")
    with pytest.raises(Crash):  # starts over, and is killed before it is as far as the damaged ones
        go(tmp_path / "m", Ear(crash_at=15), resume=True)
    names = sorted(p.name for p in (tmp_path / "m" / "checkpoints").glob("0*"))
    assert names == ["000000010", "000000020.damaged", "000000030.damaged"]
    assert "resuming from step 10" in go(tmp_path / "m", resume=True).said


def test_two_runs_cannot_write_to_one_folder(tmp_path: Path) -> None:
    class Second(Ear):
        def progress(self, progress: Progress) -> None:
            if progress.step == 3:
                with pytest.raises(ConfigError, match="another run is writing to this folder"):
                    go(tmp_path / "m", resume=True)
                self.said.append("refused")

    assert "refused" in go(tmp_path / "m", Second()).said


@pytest.mark.slow
@pytest.mark.parametrize("call", range(1, 12))
def test_a_crash_while_the_model_is_replaced_leaves_none_or_a_whole_one(
    whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    go(tmp_path / "m", training={"steps": 10})
    assert weights(tmp_path / "m") != whole
    count = 0
    real = os.fsync

    def fsync(handle: int) -> None:
        nonlocal count
        name = os.readlink(f"/proc/self/fd/{handle}")
        count += "checkpoints" not in name and "metrics" not in name
        if count == call:
            raise Crash
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    with contextlib.suppress(Crash):
        go(tmp_path / "m", resume=True, training={"steps": 40})
    monkeypatch.undo()
    if (tmp_path / "m" / "config.json").exists():
        assert heedful.load(tmp_path / "m", "cpu")
    else:
        with pytest.raises(ModelError, match="its training was not finished: resume it"):
            heedful.load(tmp_path / "m", "cpu")
    go(tmp_path / "m", resume=True, training={"steps": 40})
    assert weights(tmp_path / "m") == whole


def test_the_last_validation_is_recorded_once(tmp_path: Path) -> None:
    for _ in range(3):
        go(tmp_path / "m", resume=True, training={"steps": 13})
    records = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if "valid_bleu" in r] == [13]


def test_strange_bytes_in_the_metrics_do_not_stop_a_run(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 13})
    with (tmp_path / "m" / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe[1]\n[1]\n")
    assert go(tmp_path / "m", resume=True, training={"steps": 14}).steps == [14]


def test_out_of_memory_in_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("heedful.training.checkpointing.greedy", full)
    with pytest.raises(DeviceMemoryError, match="validation at step 20: .*lower training.batch_tokens"):
        go(tmp_path / "m")


def test_ctrl_c_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def impatient(progress: Progress) -> None:
        if progress.step == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        heedful.train(copies(), tmp_path / "m", settings=small(), callback=impatient)
    assert capsys.readouterr().err.count("stopping after this step") == 1
    assert (tmp_path / "m" / "checkpoints" / "000000001").is_dir()


@pytest.mark.parametrize("pair", [("a b", None), ("a", "b", "c"), (1, 2)])
def test_pairs_that_are_no_pairs(tmp_path: Path, pair: tuple[Any, ...]) -> None:
    with pytest.raises(DataError, match="pair 401 is .* expected two strings"):
        heedful.train([*copies(), pair], tmp_path / "m")


@pytest.mark.parametrize("pairs", ["pairs.tsv", Path("pairs.tsv")])
def test_a_name_is_that_of_a_file(tmp_path: Path, pairs: Any) -> None:
    with pytest.raises(DataError, match=r"pairs\.tsv: there is no such file"):
        heedful.train(pairs, tmp_path / "m")
    with pytest.raises(DataError, match="pair 1 is 'ab', expected two strings"):
        heedful.train(["ab", "cd"], tmp_path / "m")  # type: ignore[list-item]


def test_a_resumed_run_keeps_its_family(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 2})
    with pytest.raises(ConfigError, match="trains a model of the family rnn, which cannot become transformer"):
        run_training(PAIRS, tmp_path / "m", {"model": {"family": "transformer"}}, resume=True)


def test_what_cannot_work_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for settings in ({"model": {"score": "dot", "encoder_width": 5}}, {"training": {"device": "nowhere"}}):
        with pytest.raises(ConfigError):
            run_training(Inputs((Never([]),)), tmp_path / "m", settings)
    assert not (tmp_path / "m").exists()


def test_the_out_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("mine")
    with pytest.raises(ConfigError, match="this is a file"):
        go(tmp_path / "m")
    assert (tmp_path / "m").read_text() == "mine"


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 10})
    with pytest.raises(ConfigError, match=r"model.width is 16 in the run in .* and cannot become 32"):
        go(tmp_path / "m", resume=True, model={"width": 32})


def test_a_resumed_run_needs_the_same_pairs(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"steps": 10})
    fewer = Inputs((PairList(copies()[:-1]),))
    with pytest.raises(DataError, match=r"not those that the run in .* began with"):
        run_training(fewer, tmp_path / "m", small(training={"steps": 20}), resume=True)


def test_long_pairs_are_counted_and_training_goes_on(tmp_path: Path) -> None:
    ear = go(tmp_path / "m", text={"max_length": 4}, training={"steps": 2})
    said = next(s for s in ear.said if s.startswith("left out"))
    assert "pairs with a side of more than 4 tokens (text.max_length; the longest has 6)" in said
    with pytest.raises(DataError, match="all pairs have a side of more than 1 tokens"):
        go(tmp_path / "n", text={"max_length": 1}, training={"steps": 2})


def test_given_validation_pairs_are_used_and_overlap_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "heedful")
    valid = [("a b", "A B"), ("q q q", "Q Q Q")]
    heedful.train(copies(), tmp_path / "m", valid=valid, settings=small(training={"steps": 2}), verbose=False)
    assert (
        "289 pairs for training, 2 for validation (1 of their sources are also in training, so scores are too high)"
        in caplog.messages
    )


def test_training_without_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pair has both a source and a target"):
        heedful.train([("a", " ")], tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_bf16_trains(tmp_path: Path, environment: dict[str, str]) -> None:
    # In a process of its own: the variable has to be set before torch is loaded, and keeps broken CPUs from dying.
    folders = [str(ROOT / "tests" / name) for name in (".", "helpers", "training")]
    code = f"""
import sys; sys.path[:0] = {folders!r}
from pathlib import Path
from recorded_runs import go
validations = go(Path({str(tmp_path / "m")!r}), training={{"precision": "bf16"}}).validations
assert validations[-1].loss < validations[0].loss
"""
    environment = {**environment, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert read_model(tmp_path / "m").model.state_dict()["embedding.weight"].dtype == torch.float32


@pytest.fixture
def forgotten_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What another test may have found out about this CPU is not known here, and what is made up is forgotten."""
    from heedful.training.device_setup import _try_bf16

    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    _try_bf16.cache_clear()
    yield
    _try_bf16.cache_clear()


@pytest.mark.usefixtures("forgotten_trial")
def test_bf16_on_a_cpu_that_crashes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *args, **more: subprocess.CompletedProcess([], -signal.SIGILL))
    with pytest.raises(ConfigError, match="products in bf16 fail on this CPU .*precision=fp32"):
        go(tmp_path / "m", training={"precision": "bf16"})


def test_a_disk_too_full_for_the_last_checkpoint_still_gets_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if "w" in mode and "optimizer" in self.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DiskError, match="No space left on device"):
        go(tmp_path / "m", training={"steps": 8})
    monkeypatch.undo()
    assert heedful.load(tmp_path / "m", "cpu").translate("a b").source == "a b"


def test_a_little_bleu_does_not_beat_a_better_loss() -> None:
    early, late = Validation(100, 4.3, 0.2, 0.5), Validation(200, 3.2, 0.3, 0.0)
    assert late.better_than(early)
    assert not early.better_than(late)
    assert Validation(300, 5.0, 0.1, 1.5).better_than(late)
