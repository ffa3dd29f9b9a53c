"""`heedful distill`: what it prints, its dry run, going on with --resume, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done, copies, write_pairs

from heedful.training import Reporter

Cli = Callable[..., Done]
STUDENT = ("text.kind=word", "model.width=8", "model.heads=2", "model.inner=16", "model.layers=1")
SETS = [part for name in (*STUDENT, "training.valid_every=4") for part in ("--set", name)]
SMALL = ["--steps", 8, "--device", "cpu", "--threads", 1, *SETS]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.tsv", copies(200, seed=6))


def test_a_student_is_made_and_described(tiny: Path, pairs: Path, tmp_path: Path, heedful_cli: Cli) -> None:
    out = tmp_path / "s"
    done = heedful_cli("distill", tiny, pairs, "--out", out, *SMALL, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["teacher"], record["teacher_beam"], record["reason"]) == (tiny.name, 5, "steps")
    assert record["kept"] == record["sources"] == len((out / "distilled" / "pairs.tsv").read_text().splitlines())
    assert "preset 'tiny, student'" in done.err
    assert f"try: heedful translate {out}" in done.err
    info = heedful_cli("info", out).out
    assert f"learned the translations of {tiny.name} (beam 5; checksum {record['teacher_checksum']})" in info
    assert 'cell = "ssru"' in info
    assert "decoder_layers = 2" in info


def test_what_was_stopped_goes_on(
    tiny: Path, pairs: Path, tmp_path: Path, heedful_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["distill", tiny, pairs, "--out", tmp_path / "s", *SMALL]
    stop = {"what": "sentences translated"}

    def interrupt(*_: object) -> None:
        if stop.pop("what", ""):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("heedful.bulk.run._Meter.show", interrupt)
        done = heedful_cli(*command)
    assert done.code == 130
    assert "stopped; the same command goes on" in done.err
    assert not (tmp_path / "s" / "config.json").exists()
    # Wrong options of a run that goes on.
    assert "--beam has no effect" in heedful_cli("distill", "--out", tmp_path / "s", "--resume", "--beam", 3).err
    done = heedful_cli("distill", "--out", tmp_path / "s", "--resume")
    assert done.code == 0, done.err
    done = heedful_cli(*command)
    assert done.code == 0
    assert "resuming from step 8" in done.err
    done = heedful_cli("distill", "--out", tmp_path / "s", "--resume", "--steps", 10)
    assert "after step 10" in done.err


def test_a_dry_run_estimates_both_models_and_writes_nothing(
    tiny: Path, pairs: Path, tmp_path: Path, heedful_cli: Cli
) -> None:
    command = ["distill", tiny, pairs, "--out", tmp_path / "s", *SMALL, "--dry-run"]
    table = heedful_cli(*command).out
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["teacher", "sentences", "student", "pairs"]
    record = json.loads(heedful_cli(*command, "--json").out)
    assert record["sentences"] == record["student"]["pairs"]
    assert record["seconds"] == pytest.approx(record["sentences"] / record["sentences_per_second"])
    assert record["teacher_weights"] > record["student"]["weights"] / 100
    assert not (tmp_path / "s").exists()


def test_text_without_references(tiny: Path, tmp_path: Path, heedful_cli: Cli) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{source}\n" for source, _ in copies(150, seed=8)))
    done = heedful_cli("distill", tiny, "--text", text, "--out", tmp_path / "s", *SMALL)
    assert done.code == 0, done.err
    assert "there are no references" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the TEACHER and PAIRS"),
        (["--resume"], "no distillation to resume"),
        (["TINY"], "no sentence pairs"),
        (["TINY", "PAIRS", "--beam", "0"], "beam"),
        (["TINY", "PAIRS", "--preset", "studnet"], "Did you mean 'student'?"),
        (["TINY", "PAIRS", "--cell", "sru"], "ssru"),
        (["TINY", "PAIRS", "--set", "model.heads=3", "--set", "model.width=8"], "heads"),
        (["TINY", "missing.tsv"], "there is no such file"),
        (["missing", "PAIRS"], "missing"),
        (["TINY", "--text", "missing.txt"], "there is no such file"),
        (["TINY", "--text", "-"], "standard input"),
        (["TINY", "PAIRS", "--int8"], "int8"),
        (["TINY", "PAIRS", "--init", "TINY", "--cell", "ssru"], "cell"),
        (["TINY", "PAIRS", "--init", "TINY", "--dry-run"], "init"),
        (["TINY", "PAIRS", "--resume"], "no distillation to resume"),
    ],
)
def test_errors_come_before_the_work(
    tiny: Path, pairs: Path, tmp_path: Path, heedful_cli: Cli, arguments: list[str], message: str
) -> None:
    named = {"TINY": tiny, "PAIRS": pairs}
    done = heedful_cli("distill", *(named.get(one, one) for one in arguments), "--out", tmp_path / "s")
    assert done.code == 2, done.err
    assert message in done.err
    assert not (tmp_path / "s").exists()


def test_ctrl_c_in_training_names_the_command(
    tiny: Path, pairs: Path, tmp_path: Path, heedful_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    def validated(self: Reporter, validation: object, best: bool) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("heedful.training.progress.LineReporter.validated", validated)
    done = heedful_cli("distill", tiny, pairs, "--out", tmp_path / "s", *SMALL)
    assert done.code == 130
    assert f"to continue: heedful distill --out {tmp_path / 's'} --resume" in done.err
