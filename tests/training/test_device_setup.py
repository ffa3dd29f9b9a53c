"""Where a run computes, and in which numbers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from heedful.config import TrainingConfig
from heedful.errors import ConfigError
from heedful.training import device_setup as device
from heedful.training.device_setup import choose_device, faster_in_bf16

CPU = torch.device("cpu")


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A processor that announces bf16; what its trial gives, and how often it was made."""
    found = SimpleNamespace(returncode=0, stdout="3.0\n", times=0, meanwhile=lambda: None)

    def run(*args: object, **more: object) -> SimpleNamespace:
        found.times += 1
        found.meanwhile()
        return found

    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "_has_matrix_bf16", lambda: True)
    monkeypatch.setattr(subprocess, "run", run)
    device._try_bf16.cache_clear()
    yield found
    device._try_bf16.cache_clear()  # what was made up here must not be believed elsewhere


@pytest.mark.parametrize(("status", "said", "fast"), [(0, "3.0\n", True), (0, "1.1\n", False), (-4, "", False)])
def test_bf16_on_a_cpu_where_it_pays(trial: SimpleNamespace, status: int, said: str, fast: bool) -> None:
    trial.returncode, trial.stdout = status, said
    assert faster_in_bf16(CPU) is fast
    assert choose_device(TrainingConfig(device="cpu")).bf16 is fast
    assert choose_device(TrainingConfig(device="cpu", precision="fp32")).bf16 is False


def test_the_answer_is_kept(trial: SimpleNamespace, tmp_path: Path) -> None:
    for _ in range(3):
        device._try_bf16.cache_clear()  # as in another process
        assert faster_in_bf16(CPU)
    assert trial.times == 1
    (kept,) = tmp_path.glob("bf16-*.json")
    assert json.loads(kept.read_text()) == [0, 3.0]
    kept.write_text("broken")
    device._try_bf16.cache_clear()
    assert faster_in_bf16(CPU)
    assert trial.times == 2


def test_of_two_trials_at_once_the_first_answer_holds(trial: SimpleNamespace, tmp_path: Path) -> None:
    assert faster_in_bf16(CPU)
    (kept,) = tmp_path.glob("bf16-*.json")
    kept.unlink()
    device._try_bf16.cache_clear()
    trial.meanwhile = lambda: kept.write_text("[0, 1.1]")
    assert not faster_in_bf16(CPU)
    assert kept.read_text() == "[0, 1.1]"


def test_a_resumed_run_keeps_its_numbers_on_the_same_kind_of_device(trial: SimpleNamespace) -> None:
    assert choose_device(TrainingConfig(device="cpu"), before=["cpu", False]).bf16 is False
    assert choose_device(TrainingConfig(device="cpu"), before=["cuda", False]).bf16 is True
    assert choose_device(TrainingConfig(device="cpu", precision="bf16"), before=["cpu", False]).bf16 is True


def test_bf16_that_crashes_is_refused(trial: SimpleNamespace) -> None:
    trial.returncode, trial.stdout = -4, ""
    with pytest.raises(ConfigError, match=r"products in bf16 fail on this CPU \(exit status -4\)"):
        choose_device(TrainingConfig(device="cpu", precision="bf16"))
