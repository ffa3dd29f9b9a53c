"""What a run leaves as it found it, where it finds its pairs again, and what Ctrl-C says before the first step."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import Done, copies, write_pairs
from recorded_runs import PAIRS, Crash, Ear, go
from small_runs import small

import heedful
from heedful.data import PairList
from heedful.errors import ConfigError, DataError
from heedful.files import open_plain
from heedful.training import Inputs, estimate_run, run_training

Cli = Callable[..., Done]
SETS = [
    part
    for name in ("text.kind=word", "model.width=8", "model.embedding=4", "training.device=cpu", "training.threads=1")
    for part in ("--set", name)
]


def train(cli: Cli, *more: object) -> Done:
    return cli("train", "--preset", "none", *SETS, *more)


# ---- the caller's own


@pytest.mark.parametrize("dry", [False, True])
def test_random_numbers_and_threads_are_the_callers(tmp_path: Path, dry: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    try:
        settings = small(training={"steps": 2, "threads": 1})
        if dry:
            estimate_run(PAIRS, settings)
        else:
            heedful.train(copies(), tmp_path / "m", settings=settings)
        assert torch.get_num_threads() == 3
        assert torch.equal(torch.rand(3), expected)
        with pytest.raises(DataError):
            run_training(Inputs((PairList([("a", " ")]),)), tmp_path / "n", small(training={"threads": 2}))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# ---- going on


def test_a_checkpoint_is_read_once(tmp_path: Path, heedful_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv", copies()), tmp_path / "m"
    assert train(heedful_cli, pairs, "--out", out, "--steps", 2).code == 0
    read = Counter[str]()

    def counted(path: Path) -> Any:
        read[path.name] += "checkpoints" in str(path)
        return open_plain(path)

    monkeypatch.setattr("heedful.interop.folder.open_plain", counted)
    assert heedful_cli("train", "--out", out, "--resume").code == 0
    assert read["model.safetensors"] == read["optimizer.safetensors"] == read["run.json"] == 1


def test_pairs_that_have_moved(tmp_path: Path, heedful_cli: Cli) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv", copies()), tmp_path / "m"
    valid = write_pairs(tmp_path / "valid.tsv", copies(20, seed=5))
    assert train(heedful_cli, pairs, "--valid", valid, "--out", out, "--steps", 2).code == 0
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.move(pairs, tmp_path / "elsewhere" / "renamed.tsv"))
    done = heedful_cli("train", "--out", out, "--resume", "--steps", 3)
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert last.startswith(f"heedful: {pairs}: there is no such file, and the run in {out} ")
    assert "name all their files again" in last
    done = heedful_cli("train", moved, "--valid", valid, "--out", out, "--resume", "--steps", 3)
    assert (done.code, "resuming from step 2" in done.err) == (0, True)
    assert heedful_cli("train", "--out", out, "--resume", "--steps", 4).code == 0  # and the new place is recorded


def test_without_a_whole_checkpoint_the_pairs_have_to_be_named(tmp_path: Path, heedful_cli: Cli) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv", copies()), tmp_path / "m"
    assert train(heedful_cli, pairs, "--out", out, "--steps", 2).code == 0
    for checkpoint in (out / "checkpoints").glob("0*"):
        (checkpoint / "model.safetensors").write_bytes(b"cut")
    done = heedful_cli("train", "--out", out, "--resume")
    assert done.code == 2
    assert "has no complete checkpoint that names the files of its pairs; name them again" in done.err
    assert "starting a new run" not in done.err


def test_what_to_do_is_said_for_python_too(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=12))
    with pytest.raises(ConfigError, match=r"continue it with resume=True"):
        go(tmp_path / "m")
    with pytest.raises(DataError, match=r"\(1 different pair\).*validation pairs"):
        heedful.train([("a", "b")] * 3, tmp_path / "n")


# ---- Ctrl-C


class Impatient(Ear):
    """Presses Ctrl-C as soon as it hears of pairs."""

    def preparing(self, done: int, what: str) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_pairs_are_prepared(tmp_path: Path) -> None:
    ear = Impatient()
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "m", ear)
    assert ear.said[-1].startswith("stopped before the first step: no step was done; ")
    assert not (tmp_path / "m").exists()
    go(tmp_path / "m", training={"steps": 2})
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "m", ear, resume=True)
    assert f"the run in {tmp_path / 'm'} is still at step 2;" in ear.said[-1]
    with pytest.raises(KeyboardInterrupt):
        estimate_run(Inputs((PairList(copies()),)), small(), reporter=ear)
    assert "nothing was measured" in ear.said[-1]


def test_ctrl_c_while_pairs_are_prepared_on_the_command_line(
    tmp_path: Path, heedful_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.training.setup.open_pairs", interrupted)
    done = train(heedful_cli, write_pairs(tmp_path / "pairs.tsv", copies()), "--out", tmp_path / "m")
    assert (done.code, done.out) == (130, "")
    assert done.err.startswith("stopped before the first step: no step was done")


# ---- how long it takes


def test_a_long_run_says_once_how_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1
        return now

    def said(name: str, **training: Any) -> list[str]:
        ear = Ear(crash_at=30)
        with pytest.raises(Crash):
            go(tmp_path / name, ear, training={"log_every": 10, **training})
        return [words for words in ear.said if "more steps take" in words]

    monkeypatch.setattr("heedful.training.loop.time", SimpleNamespace(perf_counter=tick))
    (words,) = said("long", steps=100_000)
    assert words.startswith("at this speed 99,990 more steps take ")
    assert words.endswith("Ctrl-C keeps the best model so far")
    assert said("short", steps=40) == []
