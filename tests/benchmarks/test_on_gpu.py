"""benchmarks/on_gpu.py: its parts run one after the other; here with short commands."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT
from small_runs import benchmark


@pytest.fixture(scope="module")
def on_gpu() -> ModuleType:
    return benchmark("on_gpu")


def write(text: str) -> tuple[str, ...]:
    return ("-c", f"import os, pathlib; {text}")


def ended(out: Path) -> dict[str, str]:
    return {name: part["ended"] for name, part in json.loads((out / "parts.json").read_text()).items()}


def test_parts_run_once_and_what_failed_runs_again(
    on_gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    count = write(
        "p = pathlib.Path(r'{out}') / os.environ['FILE']; p.write_text(p.read_text() + 'x' if p.exists() else 'x')"
    )
    parts = {
        "good": on_gpu.Part((count, count), 0, {"FILE": "a"}),
        "bad": on_gpu.Part((write("print('{data}'); raise SystemExit(3)"), count), 0, {"FILE": "b"}),
        "long": on_gpu.Part((count,), 10, {"FILE": "c"}),
    }
    command = ["--data", str(tmp_path), "--out", str(out), "--minutes", "1"]
    for _ in range(2):
        assert on_gpu.main(command, parts) == 1
        assert ended(out) == {
            "good": "done",
            "bad": "failed with code 3",
            "long": "not begun: too little time was left",
        }
    assert (out / "a").read_text() == "xx"  # both commands, once each
    assert not (out / "b").exists()  # what comes after a failure is not run
    assert not (out / "c").exists()
    assert str(tmp_path) in capsys.readouterr().out  # what a part said last
    assert on_gpu.main([*command, "--only", "good", "--again"], parts) == 0
    assert (out / "a").read_text() == "xxxx"


def test_a_part_that_takes_too_long_is_ended_with_all_it_started(on_gpu: ModuleType, tmp_path: Path) -> None:
    child = "import time, pathlib; time.sleep(2); pathlib.Path(r'{out}/late').write_text('')"
    parent = write(f'import subprocess, sys; subprocess.run([sys.executable, "-c", {child!r}])')
    begun = time.monotonic()
    assert on_gpu.go(on_gpu.Part((parent,), 0), {"out": str(tmp_path)}, tmp_path / "log", begun + 0.5) == "out of time"
    assert time.monotonic() - begun < 10
    time.sleep(max(0.0, begun + 3 - time.monotonic()))
    assert not (tmp_path / "late").exists()


def test_a_part_that_is_none_is_refused(on_gpu: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert on_gpu.main(["--data", ".", "--out", str(tmp_path), "--only", "tets"]) == 2
    assert "Did you mean 'tests'?" in capsys.readouterr().err


def test_what_the_parts_run_is_there(on_gpu: ModuleType) -> None:
    files = [word for part in on_gpu.PARTS.values() for command in part.commands for word in command[:1]]
    assert all(word == "-m" or (ROOT / word).is_file() for word in files), files
