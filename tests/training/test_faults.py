"""Runs that are killed from outside, and disks that are full: nothing is lost, and nothing changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Done
from small_runs import benchmark

faults = benchmark("faults")
Cli = Callable[..., Done]
# A file of more bytes than these cannot be written: the weights are less, the optimizer's memory is more.
SMALL_FILES = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
runpy.run_module("heedful", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_kills_change_nothing(tmp_path: Path) -> None:
    story = faults.ordeal(tmp_path, "rnn", kills=2, seed=11)
    assert (story.different, story.kills.total()) == ([], 2)
    assert story.passed_over == story.damaged


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_many_kills_change_nothing(tmp_path: Path, family: str) -> None:
    story = faults.ordeal(tmp_path, family, kills=20, seed=2)
    assert (story.different, story.kills.total()) == ([], 20)
    assert story.passed_over == story.damaged > 0
    assert story.half_written > 0


def train(pairs: Path, out: Path, steps: int) -> list[str]:
    return ["train", str(pairs), "--out", str(out), *faults.options("rnn", steps)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of a file")
def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint(
    tmp_path: Path, heedful_cli: Cli, environment: dict[str, str]
) -> None:
    pairs, out = faults.write_pairs(tmp_path / "pairs.tsv"), tmp_path / "m"
    for name, steps in (("whole", 9), ("m", 4)):
        assert heedful_cli(*train(pairs, tmp_path / name, steps)).code == 0
    command = [sys.executable, "-c", SMALL_FILES, *train(pairs, out, 9), "--resume"]
    stopped = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    last = stopped.stderr.strip().splitlines()[-1]
    assert last.startswith(f"heedful: {out}/checkpoints/.000000006.partial/optimizer.safetensors: cannot be written")
    assert "the checkpoint of step 4 is complete" in last
    assert last.endswith("--resume")
    assert not list(out.rglob("*.partial"))
    resumed = heedful_cli(*train(pairs, out, 9), "--resume")
    assert resumed.code == 0
    assert "resuming from step 4" in resumed.err
    assert faults.different(tmp_path / "whole", out, 9) == []


SMALL_DISK = """
mount -t tmpfs -o size=1m none "$0" || exit 77
"$@"; echo "status $?"
mount -o remount,size=16m "$0" && "$@"; echo "status $?"
cp -r "$0" "$0.kept"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="a file system of its own needs Linux")
def test_a_small_file_system_that_is_full(tmp_path: Path, heedful_cli: Cli, environment: dict[str, str]) -> None:
    pairs, out = faults.write_pairs(tmp_path / "pairs.tsv"), tmp_path / "m"
    out.mkdir()
    assert heedful_cli(*train(pairs, tmp_path / "whole", 15)).code == 0
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, str(out)]
    command += [sys.executable, "-m", "heedful", *train(pairs, out, 15), "--resume"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if "status" not in done.stdout:
        pytest.skip(f"no file system may be mounted here: {done.stderr}")
    assert done.stdout.split() == ["status", "1", "status", "0"], done.stderr
    assert "No space left on device" in done.stderr
    assert "is complete: make room, then continue with --resume" in done.stderr
    assert faults.different(tmp_path / "whole", tmp_path / "m.kept", 15) == []
