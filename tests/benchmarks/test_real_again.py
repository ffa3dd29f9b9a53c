"""The benchmarks on real data: finished parts are not run again, and interrupted ones resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TINY

sys.path.insert(0, str(ROOT / "benchmarks"))
import real
import real_back
import real_run
import real_sets
import real_table
import real_tasks
from real_sets import Row, Task

from heedful.errors import ConfigError, MachineError, ModelError


class Child:
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    def wait(self) -> int:
        return self.returncode


class Pretended(real_run.Children):
    """Children that only write what a training run and an exam write; `asked` is what they were to do."""

    code = 0

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def start(self, command: Sequence[str], log: Path, threads: int) -> Any:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("broken", encoding="utf-8")
        if "train" not in command:
            self.asked.append("exam")
            alphas = command[command.index("--alphas") + 1].split(",")
            found = {"validation_bleu_by_alpha": dict.fromkeys(alphas, 1.0)}
            Path(command[command.index("--out") + 1]).write_text(json.dumps(found), encoding="utf-8")
            return Child(0)
        self.asked.append("resume" if "--resume" in command else "train")
        place = Path(command[command.index("--out") + 1])
        assert ("--resume" in command) == place.exists()
        if not self.code:
            place.mkdir(exist_ok=True)
            (place / "config.json").touch()
        return Child(self.code)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    monkeypatch.setattr(real_run, "POLL", 0.0)
    return Pretended()


@pytest.fixture
def run(tmp_path: Path) -> real_run.Run:
    recipe = tmp_path / "r.toml"
    recipe.write_text("[model]\nwidth = 8\n", encoding="utf-8")
    return real_run.Run("r", recipe, 1)


def test_what_is_done_is_left_alone(
    tmp_path: Path, run: real_run.Run, children: Pretended, capsys: pytest.CaptureFixture[str]
) -> None:
    first = real_run.go(run, real_run.Plan(tmp_path), children)
    assert capsys.readouterr().err == ""
    assert real_run.go(run, real_run.Plan(tmp_path), children) == first
    assert children.asked == ["train", "exam"]
    assert capsys.readouterr().err == "r, seed 1 is done already\n"
    other = real_run.go(run, real_run.Plan(tmp_path, alphas="1.0,2.0"), children)
    assert children.asked == ["train", "exam", "exam"]
    assert json.loads((tmp_path / "r/1.json").read_text(encoding="utf-8")) == other
    (tmp_path / "r/1.json").write_text(json.dumps({**first, "exam": {}}), encoding="utf-8")  # as before its exam
    assert real_run.go(run, real_run.Plan(tmp_path), children) == first
    assert children.asked == ["train", "exam", "exam", "exam"]
    real_run.go(run, real_run.Plan(tmp_path, again=True), children)
    assert children.asked[4:] == ["train", "exam"]
    real_run.go(run, real_run.Plan(tmp_path, again=True, only_evaluate=True), children)
    assert children.asked[6:] == ["exam"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"settings": ("model.width=9",)}, "settings"),
        ({"more": (Path("more.tsv"),)}, "more"),
        ({"steps": 7}, "steps"),
        ({"seconds": 7.0}, "seconds"),
        ({}, "recipe"),
    ],
)
def test_what_was_made_otherwise_is_not_taken_for_done(
    changed: dict[str, Any], named: str, tmp_path: Path, run: real_run.Run, children: Pretended
) -> None:
    real_run.go(run, real_run.Plan(tmp_path), children)
    if not changed:
        run.recipe.write_text("[model]\nwidth = 9\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"r, seed 1: .* was made otherwise \({named}\); --again makes it anew"):
        real_run.go(run, real_run.Plan(tmp_path, **changed), children)
    assert children.asked == ["train", "exam"]
    assert real_run.go(run, real_run.Plan(tmp_path, again=True, **changed), children)["exam"]


def test_what_was_begun_goes_on_if_it_has_a_checkpoint(
    tmp_path: Path, run: real_run.Run, children: Pretended, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "r/1"
    (place / "checkpoints").mkdir(parents=True)
    (place / "metrics.jsonl").touch()
    real_run.go(run, real_run.Plan(tmp_path), children)  # the child sees that nothing is left
    assert children.asked == ["train", "exam"]
    (tmp_path / "r/1.json").unlink()
    with pytest.raises(ConfigError, match="holds a model of which nothing is known; --only-evaluate measures it"):
        real_run.go(run, real_run.Plan(tmp_path), children)
    for step in (900, 1000):
        (place / f"checkpoints/{step:09d}").mkdir(parents=True)
    found = real_run.go(run, real_run.Plan(tmp_path), children)
    assert children.asked[2:] == ["resume", "exam"]
    assert found["training"]["went_on_after"] == 1000
    assert capsys.readouterr().err == "r, seed 1 goes on from step 1,000\n"


def test_what_was_begun_goes_on_only_as_it_was_begun(tmp_path: Path, run: real_run.Run, children: Pretended) -> None:
    begun = real_run.Plan(tmp_path, settings=("training.rate=0.1",), steps=20)

    def cut_off(_: object, log: Path, __: object) -> Child:
        (tmp_path / "r/1/checkpoints/000000010").mkdir(parents=True)
        log.write_text("ended", encoding="utf-8")
        return Child(143)

    start, children.start = children.start, cut_off  # type: ignore[method-assign, assignment]
    with pytest.raises(MachineError, match="ended with code 143"):
        real_run.go(run, begun, children)
    children.start = start  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"was made otherwise \(settings, steps\)"):
        real_run.go(run, real_run.Plan(tmp_path), children)
    begun = real_run.Plan(tmp_path, settings=begun.settings, steps=40, seconds=9.0)  # longer
    found = real_run.go(run, begun, children)
    assert (found["settings"], found["steps"]) == (["training.rate=0.1"], 40)
    assert children.asked == ["resume", "exam"]


def test_a_run_that_goes_on_is_watched_from_its_first_new_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"

    def line(step: int, **more: object) -> str:
        return json.dumps({"step": step, "valid_bleu": 7, "valid_loss": 2.0, **more}) + "\n"

    path.write_text(line(20) + line(40) + line(60) + line(60, final=True), encoding="utf-8")
    watched = real_run.Watched(path, 0.0, after=50, old=path.stat().st_ino)
    assert watched.look() == []
    assert watched.trained == 0
    new = path.with_name("new")
    new.write_text(line(20) + line(40) + '{"step": 40, "tokens_per_second": 5}\n', encoding="utf-8")
    new.replace(path)  # as a run does when it goes on
    assert watched.look() == []
    assert watched.first is not None
    with path.open("a", encoding="utf-8") as file:
        file.write(line(60) + '{"step": 60, "tokens_per_second": 9}\n' + line(40, final=True))
    assert [found["step"] for found in watched.look()] == [60, 40]
    plain = watched.plain(False)
    assert [(v["step"], "seconds" in v) for v in plain["validations"]] == [
        (20, False),
        (40, False),
        (60, True),
        (40, True),
    ]
    assert plain["tokens_per_second"] == 9


def test_a_run_that_fails_leaves_no_empty_folder(tmp_path: Path, run: real_run.Run, children: Pretended) -> None:
    with pytest.raises(ModelError, match=r"r, seed 1: .* holds no model to measure; train it without --only-evaluate"):
        real_run.go(run, real_run.Plan(tmp_path, only_evaluate=True), children)
    assert not (tmp_path / "r").exists()
    ended = real_run.Children()
    ended.end()
    (tmp_path / "r/1/checkpoints").mkdir(parents=True)  # of a run without a checkpoint
    with pytest.raises(MachineError, match="stopped"):
        real_run.go(run, real_run.Plan(tmp_path), ended)
    assert not (tmp_path / "r").exists()
    children.code = 3
    with pytest.raises(MachineError, match=r"training r, seed 1, ended with code 3: broken \(all it said is in"):
        real_run.go(run, real_run.Plan(tmp_path), children)
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["1.log"]


@pytest.mark.slow
def test_an_exam_that_fails_says_so_in_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/real_exam.py", str(tmp_path / "m"), str(tmp_path), "--out", "x"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: {tmp_path / 'm'}: there is no such model folder")


def test_models_that_are_not_there_cannot_be_measured(
    tmp_path: Path, run: real_run.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "TASKS", {"t": None})
    rows = [Row("x", ("y",))]
    real_sets.write_task(Task("t", rows, rows, {"all": rows}), tmp_path / "t/data")
    assert real.main(["t", "--out", str(tmp_path), "--recipe", str(run.recipe), "--only-evaluate"]) == 2
    place = tmp_path / "t/r/1"
    said = capsys.readouterr().err
    assert said == f"error: r, seed 1: {place} holds no model to measure; train it without --only-evaluate\n"


def test_all_runs_of_a_folder_are_found(tmp_path: Path) -> None:
    def write(name: str, record: object) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record), encoding="utf-8")

    def done(name: str, seed: int, pairs: int = 3) -> dict[str, Any]:
        return {"name": name, "seed": seed, "exam": {"tests": {"all": {"pairs": pairs}}}}

    write("a/1.json", done("a", 1))
    write("a/2.json", {"name": "a", "seed": 2, "training": None})  # still without an exam
    write("a/3.json", done("a", 3, pairs=4))  # measured with what is the test set no more
    write("b/1.json", done("b", 1))
    write("b/2.exam.json", {"tests": {}})
    write("data/task.json", {"tests": {}})
    found = real_table.finished(tmp_path, {"tests": {"all": {"rows": 3, "apart": []}}})
    assert sorted((run["name"], run["seed"]) for run in found) == [("a", 1), ("b", 1)]


def test_runs_that_were_made_otherwise_have_means_of_their_own() -> None:
    def ran(seed: int, bleu: float, **more: object) -> dict[str, Any]:
        scores = {"pairs": 3, "bleu": bleu, "chrf": bleu}
        test = {**scores, "by_length": [], "references": 1, "bleu_signature": "B", "chrf_signature": "C"}
        return {"name": "a", "seed": seed, "exam": {"tests": {"all": {**test, "apart": scores}}}, **more}

    runs = [ran(1, 20.0), ran(2, 30.0, settings=[], more=[], steps=0, seconds=0.0)]
    assert list(real_table.gather({"tests": {}}, runs)["means"]) == ["a"]
    runs.append(ran(3, 1.0, settings=["model.width=9"], more=["b.tsv"], steps=60))
    means = real_table.gather({"tests": {}}, runs)["means"]
    found = {name: one["all"]["bleu"]["mean"] for name, one in means.items()}
    assert found == {"a (model.width=9, b.tsv, 60 steps)": 1.0, "a (unchanged)": 25.0}


def test_back_translation_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert real_back.main([str(tmp_path / "m"), "--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'm'}: there is no such model folder")


@pytest.mark.slow
def test_back_translation_prepares_its_task(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tiny), "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert real_back.main(words) == 2  # there are no data sets
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}")
    for name, text in (("tatoeba-fra-eng/fra.txt", "a b\tx\n"), ("multi30k/train.en", "c d\ne f\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="utf-8")
    task = Task("hindi-english", [Row("x", ("c d",))], [Row("v", ("v",))], {"all": [Row("t", ("t",))]})
    monkeypatch.setitem(real_tasks.TASKS, "hindi-english", lambda data: task)
    assert real_back.main(words) == 0
    rows = real_sets.rows_of(tmp_path / "out/hindi-english/back.tsv")
    assert [row.references for row in rows] == [("a b",), ("e f",)]
    monkeypatch.setitem(real_tasks.TASKS, "hindi-english", None)
    assert real_back.main(words) == 0  # it is prepared by now


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "multi30k").mkdir()
    for part in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for language, word in (("en", "an"), ("de", "ein")):
            text = "".join(f"{word} {x}\n" for x in "abcde")
            (tmp_path / f"multi30k/{part}.{language}").write_text(text, encoding="utf-8")
    recipe = tmp_path / "small.toml"
    settings = {**TINY, "training": {**TINY["training"], "patience": 10**6}}  # type: ignore[dict-item]
    lines = [
        f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in part.items()) for name, part in settings.items()
    ]
    recipe.write_text("\n".join(lines), encoding="utf-8")
    words = ["multi30k-en-de", "--data", str(tmp_path), "--out", str(tmp_path), "--recipe", str(recipe)]
    words += ["--device", "cpu", "--alphas", "1.0"]
    place = tmp_path / "multi30k-en-de/small/1"
    begun = subprocess.Popen(
        [sys.executable, "benchmarks/real.py", *words, "--steps", str(10**6)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 120
    while not (place / "checkpoints/000000020").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 130
    assert said.endswith("stopped; the same command again goes on from here\n")
    assert "Traceback" not in said
    log = (tmp_path / "multi30k-en-de/small/1.log").read_text(encoding="utf-8")
    assert "stopped after step" in log  # it was asked once, and left in order
    step = max(int(path.name) for path in (place / "checkpoints").glob("0*"))
    assert real.main([*words, "--steps", str(step + 50)]) == 0
    said = capsys.readouterr().err
    assert f"small, seed 1 goes on from step {step:,}\n" in said
    (run,) = json.loads((tmp_path / "multi30k-en-de/results.json").read_text(encoding="utf-8"))["runs"]
    validations = run["training"]["validations"]
    assert validations[0]["step"] == 20
    assert all(("seconds" in v) == (v["step"] > step) for v in validations if not v.get("final"))
    assert said.count(" BLEU ") == sum("seconds" in v for v in validations) >= 2
    assert real.main([*words, "--steps", str(step + 50)]) == 0
    assert capsys.readouterr().err == "small, seed 1 is done already\n"
