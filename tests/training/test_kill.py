"""SIGKILL at random moments, from outside; afterwards the weights are those of a run that was never killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, copies, write_pairs

SETTINGS = {
    "text.kind": "word",
    "model.width": 16,
    "model.embedding": 8,
    "training.batch_sentences": 8,
    "training.valid_every": 50,
    "training.checkpoint_every": 3,
    "training.log_every": 1,
    "training.valid_pairs": 5,
}


def start(pairs: Path, out: Path, steps: int) -> subprocess.Popen[bytes]:
    options = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "heedful", "train", pairs, "--out", out, "--resume", "--steps", str(steps)]
    command += ["--device", "cpu", "--threads", "1", *options]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)


def steps_done(out: Path) -> int:
    try:
        return (out / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def kill_and_resume(tmp_path: Path, kills: int, steps: int, seed: int) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", copies())
    whole = start(pairs, tmp_path / "whole", steps)
    pick = random.Random(seed)
    for _ in range(kills):
        process = start(pairs, tmp_path / "killed", steps)
        while not (begun := steps_done(tmp_path / "killed")) and process.poll() is None:
            time.sleep(0.01)
        aim = begun + pick.randint(1, max(steps // kills, 2))
        while steps_done(tmp_path / "killed") < aim and process.poll() is None:
            time.sleep(0.001)
        time.sleep(pick.random() * 0.02)  # anywhere in a step, and inside the writing of checkpoints
        process.kill()
        process.communicate()
    last = start(pairs, tmp_path / "killed", steps)
    for process in (whole, last):
        _, err = process.communicate()
        assert process.returncode == 0, err.decode()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_three_kills_change_nothing(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=3, steps=120, seed=1)


@pytest.mark.slow
def test_thirty_kills_change_nothing(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=30, steps=1500, seed=2)
