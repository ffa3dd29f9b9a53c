"""`heedful demo` as a person types it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import heedful
from heedful.draw.terminal import columns

Run = Callable[..., tuple[int, str, str]]
DEMO = [sys.executable, "-m", "heedful", "demo"]


def variables(environment: dict[str, str]) -> dict[str, str]:
    """No colours, no terminal."""
    plain = {**environment, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}
    return {name: value for name, value in plain.items() if name not in ("FORCE_COLOR", "OMP_NUM_THREADS")}


def test_help(heedful_cli: Run) -> None:
    code, out, err = heedful_cli("demo", "--help")
    assert (code, err) == (0, "")
    assert "nothing to download" in " ".join(out.split())
    assert all(option in out for option in ("--out", "--fast", "--seed", "--ascii"))
    assert "hindi|pronouns" in out
    assert "demo" in heedful_cli("--help").out


def test_folders_that_are_not_its_own(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    code, out, err = heedful_cli("demo", "--fast", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert f"{tmp_path}: this folder is not empty" in err
    code, out, err = heedful_cli("demo", "--fast", "--out", tmp_path / "file")
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'file'}: this is a file, expected a folder for the demo" in err
    assert {p: p.read_text() for p in tmp_path.iterdir()} == {tmp_path / "file": "mine"}


@pytest.mark.parametrize("options", [["--seed", "-1"], ["--seed", "x"], ["--quick"], ["here"]])
def test_options_that_are_none(heedful_cli: Run, options: list[str]) -> None:
    code, out, err = heedful_cli("demo", *options)
    assert (code, out) == (2, "")
    assert options[0] in err


@pytest.mark.parametrize(("name", "folder"), [((), "demo"), (("hindi",), "demo"), (("pronouns",), "demo-pronouns")])
def test_each_demo_has_its_own_folder(
    heedful_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: tuple[str, ...], folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).write_text("mine")
    code, out, err = heedful_cli("demo", *name, "--fast")
    assert (code, out) == (2, "")
    assert f"{folder}: this is a file" in err


def test_an_unknown_demo(heedful_cli: Run) -> None:
    code, out, err = heedful_cli("demo", "pronoun")
    assert (code, out) == (2, "")
    assert "'pronoun'" in err
    assert "hindi, pronouns" in err


def processes(out: Path) -> list[bytes]:
    """The commands of those who work on a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(path.read_bytes())
    return [command for command in found if str(out).encode() in command]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_demo_that_is_stopped_leaves_no_process_behind(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    """While the models are trained; those are asked to end as well."""
    out = tmp_path / "demo"
    process = subprocess.Popen(
        [*DEMO, "--fast", "--out", out],
        cwd=ROOT,
        env=variables(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 300
    while not (out / "fixed.log").exists() or b"pairs for training" not in (out / "fixed.log").read_bytes():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(processes(out)) > 1  # the demo, and those that have not finished yet
    process.send_signal(number)
    said, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert said == b""
    assert b"Traceback" not in err
    assert (b"stopped" in err and str(out).encode() in err) == (number == signal.SIGINT)
    assert processes(out) == []


@pytest.mark.slow
def test_the_fast_demo_without_a_terminal(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with (tmp_path / "out").open("wb") as stdout, (tmp_path / "err").open("wb") as stderr:
        command = [*DEMO, "--fast", "--out", out]
        done = subprocess.run(command, cwd=ROOT, env=variables(environment), stdout=stdout, stderr=stderr)
    text, err = ((tmp_path / name).read_text(encoding="utf-8") for name in ("out", "err"))
    assert done.returncode == 0, err
    assert "\x1b" not in text + err
    assert "\r" not in text + err
    shown = text.splitlines()
    words = shown[: shown.index("Next steps:")]  # the commands after it are not broken, and paths nowhere
    assert max(columns(line) for line in words if str(out) not in line) <= 80
    assert err.splitlines()[-1] == f"done; the report is in {out / 'report.html'}"
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")
    record = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert {model["key"] for model in record["models"]} == {"fixed", "attention", "transformer"}
    for model in record["models"]:
        assert f"{model['scores']['exact']:.1f}" in text
        assert heedful.load(out / model["key"], "cpu").translate("मैं खाना खा रहा हूँ").text
    for example in record["examples"]:
        for key in ("fixed", "attention", "transformer"):
            assert example["outputs"][key] in " ".join(text.split())


@pytest.mark.slow
def test_the_head_that_resolves_it(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = subprocess.run(
        [*DEMO, "pronouns", "--out", out], cwd=ROOT, env=variables(environment), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    whole, knocked, other = record["scores"]
    # Seed 1 has 98 % where it was measured; with two of five seeds no single head resolves it, and rounding is a seed.
    assert whole["antecedent"] >= 40
    assert whole["pronoun"] >= 90
    assert knocked["pronoun"] < min(whole["pronoun"], other["pronoun"])
    assert knocked["antecedent"] < whole["antecedent"]
    assert "qu'il était trop fatigué" in done.stdout
    assert "qu'elle était trop large" in done.stdout


@pytest.mark.slow
def test_the_full_demo_shows_what_attention_is_for(environment: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [*DEMO, "--out", out]
    done = subprocess.run(command, cwd=ROOT, env=variables(environment), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    fixed, attention, transformer = record["models"]
    assert min(record["unseen_exact"][key] for key in ("attention", "transformer")) >= 70
    assert [e["outputs"]["attention"] for e in record["examples"][:3]] == [
        "I am eating",
        "I love to eat",
        "I am going to play",
    ]
    assert max(m["alignment"]["error_rate"] for m in (attention, transformer)) <= 0.25
    assert next(row for row in fixed["scores"]["by_length"] if row["low"] == 31)["exact"] <= 10
    assert record["memory_mb"] <= 2000
