"""Training processes as small scripts in place of `heedful train`: their metrics are read, and none is left running."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from heedful.demo import DemoModel, Plan, TrainingStatus
from heedful.demo import training as training
from heedful.demo.training import TrainingProcess, train_models
from heedful.errors import MachineError

PLAN = Plan(
    pairs=10,
    valid=2,
    test=2,
    max_words=5,
    settings=("text.kind=word", "training.warmup=3"),
    models=(
        DemoModel("fixed", "fixed context", ("model.family=fixed",), 100),
        DemoModel("attention", "attention", ("model.family=rnn",), 40),
    ),
    lengths=(),
    validations=3,
)
# What every script begins with. None lives longer than two minutes, whatever goes wrong.
PRELUDE = """
import json, os, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[1])
out.mkdir()
file = (out / "metrics.jsonl").open("a")
begin = time.monotonic()

def write(text):
    file.write(text)
    file.flush()

def step(n, loss=1.0):
    write(json.dumps({"step": n, "epoch": 1, "loss": loss, "accuracy": 0.5, "tokens_per_second": 1000.0}) + "\\n")

def wait(name):
    while not (out.parent / name).exists() and time.monotonic() - begin < 120:
        time.sleep(0.01)
"""
Scripts = Callable[..., list[TrainingProcess]]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Let these scripts race instead; the list is filled with the processes as they start."""
    monkeypatch.setattr(training, "POLL", 0.02)
    processes: list[TrainingProcess] = []

    class Spied(TrainingProcess):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            processes.append(self)

    def use(**code: str) -> list[TrainingProcess]:
        def command(plan: Plan, model: DemoModel, out: Path, *rest: object) -> list[str]:
            return [sys.executable, "-c", PRELUDE + code[model.key], str(out / model.key)]

        monkeypatch.setattr(training, "_command", command)
        monkeypatch.setattr(training, "TrainingProcess", Spied)
        return processes

    return use


def go(out: Path, meanwhile: Callable[[list[TrainingStatus]], None]) -> tuple[list[TrainingStatus], float]:
    return train_models(PLAN, out, out / "train.tsv", out / "valid.tsv", 1, meanwhile)


def ended(processes: Sequence[TrainingProcess]) -> bool:
    """Whether all processes are gone: they have been waited for, and nobody answers to their number."""
    for process in processes:
        if process.process.returncode is None:
            return False
        with pytest.raises(ProcessLookupError):
            os.kill(process.process.pid, 0)
    return len(processes) == 2


# ---- what is read


def test_standings_and_curves(scripts: Scripts, tmp_path: Path) -> None:
    scripts(
        fixed="""
step(10, 3.5)
write('{"step": 20, "valid_loss": 3.25, "valid_accuracy": 0.1, "valid_bleu": 4.5, "best": true}\\n')
wait("twenty")
write('{"step": 40, "epoch": 2, "loss": 2.5, "accuracy": 0.25, "rate": 0.1, "tokens_per_second": 4321.0}\\n')
write('{"step": 40, "valid_loss": 2.75, "valid_accuracy": 0.2, "valid_bleu": 12.5, "best": true, "final": true}\\n')
""",
        attention="step(40, 0.5)",
    )
    early: list[tuple[int, float, float | None]] = []

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        fixed, _ = statuses
        if fixed.curve and not early:
            early.append((fixed.step, fixed.loss, fixed.bleu))
            (tmp_path / "twenty").touch()

    (fixed, attention), memory = go(tmp_path, meanwhile)
    assert early == [(20, 3.5, 4.5)]
    assert (fixed.model, attention.model) == PLAN.models
    assert (fixed.step, fixed.loss, fixed.accuracy, fixed.speed) == (40, 2.5, 0.25, 4321.0)
    assert [point[1:] for point in fixed.curve] == [(4.5, 3.25), (12.5, 2.75)]
    assert 0 < fixed.curve[0][0] <= fixed.curve[1][0] <= fixed.seconds
    assert fixed.bleu == 12.5
    assert (attention.step, attention.loss, attention.curve, attention.bleu) == (40, 0.5, [], None)
    if sys.platform == "linux":
        assert memory > 5e6  # of three interpreters


def test_half_a_line_is_left_until_it_is_whole(scripts: Scripts, tmp_path: Path) -> None:
    scripts(
        fixed="""
step(10)
write('{"step": 20, "epoch": 1, "loss": 1.0, "accu')
(out.parent / "half").touch()
wait("seen")
write('racy": 0.75, "tokens_per_second": 1000.0}\\n')
step(30)
""",
        attention="",
    )
    looks: list[int] = []

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        if (tmp_path / "half").exists() and not (tmp_path / "seen").exists():
            looks.append(statuses[0].step)
            if len(looks) == 3:
                (tmp_path / "seen").touch()

    (fixed, _), _ = go(tmp_path, meanwhile)
    assert looks[1:] == [10, 10]
    assert (fixed.step, fixed.accuracy) == (30, 0.5)


def test_what_is_written_last_is_read_too(scripts: Scripts, tmp_path: Path) -> None:
    """A run may measure and end between two looks."""
    scripts(fixed="step(7)", attention="step(8)")
    seen: list[list[int]] = []
    go(tmp_path, lambda statuses: seen.append([s.step for s in statuses]))
    assert seen[-1] == [7, 8]


def test_seconds_stop_when_a_racer_ends(scripts: Scripts, tmp_path: Path) -> None:
    scripts(fixed="", attention="wait('enough')")
    times: list[tuple[float, float]] = []

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        times.append((statuses[0].seconds, statuses[1].seconds))
        if len(times) > 5 and len({first for first, _ in times[-5:]}) == 1:
            (tmp_path / "enough").touch()

    (fixed, attention), _ = go(tmp_path, meanwhile)
    assert (tmp_path / "enough").exists()
    still = [both for both in times[:-1] if both[0] == fixed.seconds]
    assert len(still) >= 5
    assert len({second for _, second in still}) >= 5
    assert 0 < fixed.seconds < attention.seconds


@pytest.mark.parametrize(("cores", "share"), [(1, 1), (3, 1), (4, 2), (64, 2)])
def test_each_has_its_share_of_the_threads_and_a_log(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, share: int
) -> None:
    monkeypatch.setattr("heedful.demo.training.cores", lambda: cores)
    code = 'print(out.name, os.environ["OMP_NUM_THREADS"], "मैं"); print("and this", file=sys.stderr)'
    scripts(fixed=code, attention=code)
    go(tmp_path, lambda statuses: None)
    for key in ("fixed", "attention"):
        said = (tmp_path / f"{key}.log").read_text(encoding="utf-8").splitlines()
        assert sorted(said) == ["and this", f"{key} {share} मैं"]


def test_the_command_is_one_that_anybody_can_type(tmp_path: Path) -> None:
    model = PLAN.models[0]
    pairs, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    command = training._command(PLAN, model, tmp_path, pairs, valid, 7, 2)
    files = [str(pairs), "--valid", str(valid), "--out", str(tmp_path / "fixed")]
    assert command[: 5 + len(files)] == [sys.executable, "-P", "-m", "heedful", "train", *files]
    assert command[5 + len(files) :][:2] == ["--preset", "none"]
    options = command[7 + len(files) :]
    assert set(options[::2]) == {"--set"}
    settings = dict(setting.split("=") for setting in options[1::2])
    assert settings == {
        "text.kind": "word",
        "training.warmup": "3",
        "model.family": "fixed",
        "training.steps": "100",
        "training.seed": "7",
        "training.threads": "2",
        "training.valid_every": "34",  # three times in 100 steps, the last time with the last step or after it
        "training.checkpoint_every": "100",
        "training.device": "cpu",
        "training.precision": "fp32",
    }


# ---- what goes wrong


def test_a_racer_that_fails_is_named_and_the_other_stopped(scripts: Scripts, tmp_path: Path) -> None:
    processes = scripts(
        fixed="step(1); wait('never')",
        attention="""
wait("running")
print("heedful: something else first", flush=True)
print("heedful: no room for the weights", file=sys.stderr)
sys.exit(3)
""",
    )

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        if statuses[0].step:
            (tmp_path / "running").touch()

    with pytest.raises(MachineError) as caught:
        go(tmp_path, meanwhile)
    message = str(caught.value)
    for fact in ("'attention'", "code 3", "heedful: no room for the weights", str(tmp_path / "attention.log")):
        assert fact in message
    assert ended(processes)
    assert processes[0].process.returncode != 0  # it did not end by itself


def test_a_racer_that_fails_without_a_word(scripts: Scripts, tmp_path: Path) -> None:
    processes = scripts(fixed="os.kill(os.getpid(), signal.SIGKILL)", attention="wait('never')")
    with pytest.raises(MachineError, match="'fixed context' ended with code -9: no output"):
        go(tmp_path, lambda statuses: None)
    assert ended(processes)


def test_a_racer_that_cannot_start_stops_the_first(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = scripts(fixed="wait('never')", attention="")
    usual = training._command

    def command(plan: Plan, model: DemoModel, *rest: object) -> list[str]:
        if model.key == "attention":
            return [str(tmp_path / "no such program")]
        return usual(plan, model, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "_command", command)
    with pytest.raises(FileNotFoundError):
        go(tmp_path, lambda statuses: None)
    (first,) = processes
    assert first.process.returncode is not None


def interrupt(statuses: list[TrainingStatus]) -> None:
    """Ctrl-C, as soon as both are under way."""
    if all(standing.step for standing in statuses):
        raise KeyboardInterrupt


def test_ctrl_c_stops_both_and_lets_them_write(scripts: Scripts, tmp_path: Path) -> None:
    code = """
def written(*_):
    time.sleep(0.1)
    (out / "checkpoint").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, written)
step(1)
wait("never")
"""
    processes = scripts(fixed=code, attention=code)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, interrupt)
    assert ended(processes)
    assert [process.process.returncode for process in processes] == [143, 143]
    assert (tmp_path / "fixed" / "checkpoint").exists()
    assert (tmp_path / "attention" / "checkpoint").exists()


def test_a_racer_that_does_not_listen_is_killed(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "GRACE", 0.3)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); step(1); wait('never')"
    processes = scripts(fixed=deaf, attention=deaf)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, interrupt)
    assert ended(processes)
    assert [process.process.returncode for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_kill_leaves_no_run_behind(scripts: Scripts, tmp_path: Path, number: signal.Signals) -> None:
    processes = scripts(fixed="step(1); wait('never')", attention="step(1); wait('never')")
    heard: list[int] = []

    def hear(number: int, frame: object) -> None:
        heard.append(number)

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        if all(standing.step for standing in statuses):
            signal.raise_signal(number)

    before = signal.signal(number, hear)  # otherwise a race that does not listen would take this process with it
    try:
        with pytest.raises(SystemExit) as caught:
            go(tmp_path, meanwhile)
        assert signal.getsignal(number) is hear
    finally:
        signal.signal(number, before)
    assert caught.value.code == 128 + number
    assert heard == []
    assert ended(processes)


def test_a_signal_that_is_ignored_stays_ignored(scripts: Scripts, tmp_path: Path) -> None:
    """So that `nohup heedful demo` outlives its terminal."""
    scripts(fixed="step(1)", attention="step(1)")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        (fixed, _), _ = go(tmp_path, lambda statuses: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert fixed.step == 1


def test_a_second_ctrl_c_leaves_nobody_behind(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An impatient person presses Ctrl-C again: then nobody is waited for, and nobody is left."""
    processes = scripts(fixed="step(1); wait('never')", attention="step(1); wait('never')")

    def again(self: TrainingProcess) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingProcess, "end", again)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, interrupt)
    assert {process.process.wait(20) for process in processes} <= {-signal.SIGTERM, -signal.SIGKILL}


def test_ctrl_c_in_a_terminal_comes_to_the_race_alone(scripts: Scripts, tmp_path: Path) -> None:
    """It hands it on, once: a second would cut short what a run writes down."""
    processes = scripts(fixed="wait('enough')", attention="wait('enough')")
    sessions: list[int] = []

    def meanwhile(statuses: list[TrainingStatus]) -> None:
        if not sessions:
            sessions.extend(os.getsid(process.process.pid) for process in processes)
            (tmp_path / "enough").touch()

    go(tmp_path, meanwhile)
    assert len({os.getsid(0), *sessions}) == 3
