"""What a run shows in a terminal, in a notebook and elsewhere, and what a callback is told."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import copies
from rich.console import Console
from small_runs import small

import heedful
from heedful.errors import ConfigError
from heedful.training import Progress, Sample, Validation
from heedful.training.progress import LineReporter, NotebookReporter, TerminalReporter, TimeLeft, showing, status_line

AT = Progress(step=50, steps=200, epoch=1, loss=1.2345, accuracy=0.5, rate=0.1, tokens_per_second=12345.6)
SAMPLE = Sample("ein Haus", "a house", "a mouse")


@pytest.fixture(autouse=True)
def printed() -> Iterator[None]:
    """Messages are shown as the commands show them."""
    from heedful.cli.output import HANDLER, set_up_logging

    logger = logging.getLogger("heedful")
    level, there = logger.level, HANDLER in logger.handlers
    set_up_logging()
    yield
    logger.setLevel(level)
    if not there:
        logger.removeHandler(HANDLER)


def live(width: int) -> tuple[TerminalReporter, io.StringIO]:
    file = io.StringIO()
    return TerminalReporter(Console(file=file, force_terminal=True, width=width, highlight=False)), file


def test_the_live_line_has_loss_accuracy_speed_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    shown, file = live(100)
    shown.progress(AT._replace(step=10))
    shown.progress(AT)
    shown.validated(Validation(50, 0.9, 0.6, 12.34, samples=(SAMPLE,)), True)
    shown.close()
    text = file.getvalue() + capsys.readouterr().err
    for part in ("step 50/200", "loss 1.234", "accuracy 50.0%", "12,346 tokens/s", "left", "BLEU 12.3"):
        assert part in text, part
    for part in SAMPLE:
        assert part in text, part


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
@pytest.mark.parametrize("left", ["11:22:33 left", "about 1:02:03 left, at most 11:22:33"])
def test_the_time_left_is_never_cut_off(width: int, left: str) -> None:
    progress = AT._replace(step=12_500, steps=20_000, losses={"guided": 0.5})
    line = status_line(progress, left, width)
    assert line.endswith(left)
    assert len(line) <= max(width, len(left))
    if width == 60:
        assert "step 12,500/20,000" in line
    if width == 120:
        assert "accuracy" in line


def test_the_expected_end_stands_beside_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    left = TimeLeft()
    assert left(AT._replace(step=10)) == ""
    now = 140.0  # a second for each step
    assert left(AT) == "2:30 left"
    assert left(AT._replace(expected=110)) == "about 1:00 left, at most 2:30"
    assert left(AT._replace(expected=200)) == "2:30 left"


def test_plain_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = LineReporter()
    lines.progress(AT._replace(step=10))
    now = 101.0
    lines.progress(AT._replace(step=11))
    now = 140.0
    lines.progress(AT)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    # 40 steps took 40 s, 150 are left.
    assert err[1] == "step 50 of 200: loss 1.234, accuracy 50.0%, 12,346 tokens/s, 2:30 left"


def test_the_learning_curve_is_of_the_loss_and_then_of_bleu() -> None:
    shown, file = live(60)
    shown.progress(AT._replace(step=10, loss=5.0))
    assert len(shown.picture(57)) == 1  # one point is no curve
    shown.progress(AT._replace(step=20, loss=3.0))
    assert shown.picture(57)[1] == "loss 3.00"
    shown.validated(Validation(20, 0.9, 0.6, 12.0), True)
    shown.validated(Validation(40, 0.9, 0.6, 20.5), True)
    shown.progress(AT._replace(step=41))
    assert shown.picture(57)[1] == "validation BLEU 20.50"
    # Behind the last line the terminal writes ^C: were there no room, the line would wrap and be drawn twice.
    assert max(map(len, shown.picture(57))) <= 57
    shown.close()
    assert "validation BLEU 20.50" in file.getvalue()


def test_a_resumed_run_begins_with_its_curve(capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = live(60)
    shown.resumed([Validation(20, 0.9, 0.6, 12.0), Validation(40, 0.9, 0.6, 20.5)])
    shown.progress(AT)
    assert shown.picture(57)[1] == "validation BLEU 20.50"
    shown.close()
    assert "BLEU 20.5" in capsys.readouterr().err


def test_preparing_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown, file = live(60)
    shown.preparing(20_000, "pairs read")
    shown.close()
    assert "20,000 pairs read" in file.getvalue()
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = LineReporter()
    lines.preparing(1, "pairs read")  # not at once: most files are short
    now = 111.0
    lines.preparing(30_000, "pairs read")
    assert capsys.readouterr().err == "30,000 pairs read\n"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """A notebook's kernel; what its cell shows, one update after the other."""
    shown: list[dict[str, str]] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> SimpleNamespace:
        assert raw
        assert display_id
        shown.append(data)
        return SimpleNamespace(update=lambda data, raw: shown.append(data))

    package: Any = ModuleType("IPython")
    package.get_ipython = lambda: SimpleNamespace(kernel=1)
    package.display = ModuleType("IPython.display")
    package.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    return shown


def test_a_notebook_cell_is_updated_in_place(notebook: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with showing(True) as watch:
        assert isinstance(watch, NotebookReporter)
        watch.progress(AT)
        now = 100.5
        watch.progress(AT._replace(step=51))
        assert len(notebook) == 1
        now = 102.0
        watch.progress(AT._replace(step=52))
    assert "step 52/200" in notebook[-1]["text/plain"]
    assert notebook[-1]["text/html"].startswith("<pre>")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_only_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with showing(True) as watch:
        assert isinstance(watch, LineReporter)
        assert watch.every == 60
    monkeypatch.setattr(sys, "stderr", Terminal())
    with showing(True) as watch:
        assert isinstance(watch, TerminalReporter)
    with showing(False) as watch:
        assert not isinstance(watch, TerminalReporter | LineReporter)


class Quiet:
    """The library's logger as a program has it that has set nothing up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        logger = logging.getLogger("heedful")
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "level", logging.NOTSET)
        logger.manager._clear_cache()  # type: ignore[attr-defined]


def test_python_shows_what_was_dropped_unless_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Quiet(monkeypatch)
    pairs = [*copies(200), ("", "nothing"), ("a", "A")]
    heedful.train(pairs, tmp_path / "m", settings=small(training={"steps": 20, "valid_every": 10}))
    err = capsys.readouterr().err
    assert "empty side" in err
    assert "validation at step 10" in err
    assert "  reference  " in err
    heedful.train(pairs, tmp_path / "n", settings=small(training={"steps": 20}), verbose=False)
    assert capsys.readouterr() == ("", "")


def test_messages_are_not_printed_twice_where_logging_shows_them(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Quiet(monkeypatch)
    with caplog.at_level(logging.INFO):
        heedful.train(copies(200), tmp_path / "m", settings=small(training={"steps": 5}))
    assert capsys.readouterr().err == ""
    assert any("pairs for training" in message for message in caplog.messages)


def test_a_function_is_told_steps_and_validations(tmp_path: Path) -> None:
    told: list[Progress] = []
    settings = small(training={"steps": 20, "valid_every": 10})
    heedful.train(copies(200), tmp_path / "m", settings=settings, verbose=False, callback=told.append)
    steps = [progress for progress in told if progress.validation is None]
    assert steps[-1].step == 20
    assert steps[-1].tokens_per_second > 0
    assert 0 < steps[-1].loss < 10
    found = [progress.validation for progress in told if progress.validation is not None]
    assert [validation.step for validation in found] == [10, 20]
    assert all(validation.bleu is not None for validation in found)
    assert [len(validation.samples) for validation in found] == [2, 2]
    assert found[0].samples[0].source == found[1].samples[0].source


def test_an_object_is_told_by_its_methods(tmp_path: Path) -> None:
    class Scores:
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_validation(self, validation: Validation) -> None:
            self.losses.append(validation.loss)

    scores: Any = Scores()
    settings = small(training={"steps": 20, "valid_every": 10, "metric": "loss"})
    heedful.train(copies(200), tmp_path / "m", settings=settings, verbose=False, callback=scores)
    assert len(scores.losses) == 2
    wrong: Any = "print"
    with pytest.raises(ConfigError, match="'print'.*on_step"):
        heedful.train(copies(200), tmp_path / "n", verbose=False, callback=wrong)
    assert not (tmp_path / "n").exists()


def test_earlier_validations_are_read_from_the_metrics(tmp_path: Path) -> None:
    from heedful.training.callbacks import MetricsFile

    lines = [
        '{"step": 10, "loss": 3.0}',
        '{"step": 10, "valid_loss": 2.0, "valid_accuracy": 0.5, "valid_bleu": 7.5, "best": true}',
        '{"step": 20, "valid_loss": "x", "valid_accuracy": 0.5}',
        '{"step": 20, "valid_loss": [1], "valid_accuracy": null, "valid_bleu": {}}',
        '{"step": 30, "valid_loss": 1.0, "valid_accuracy": 0.6, "valid_chrf": 20.0, "best": true}',
        '{"step": 40, "valid_loss": 1.0, "valid_accuracy": 0.6, "best": true, "final": true}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert MetricsFile(tmp_path, 40).validations() == [
        Validation(10, 2.0, 0.5, 7.5),
        Validation(30, 1.0, 0.6, chrf=20.0),
    ]


def test_damage_in_the_metrics_does_not_prevent_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from heedful.training import callbacks as metrics_module

    path = tmp_path / "metrics.jsonl"
    good = [f'{{"step": {n}, "valid_loss": 2.0, "valid_accuracy": 0.5}}' for n in (1, 2, 3)]
    path.write_text("\n".join([good[0], "\0" * 11_000_000, good[1], good[2], "x" * 200_000]), encoding="utf-8")
    metrics = metrics_module.MetricsFile(tmp_path, 2)
    assert [one.step for one in metrics.validations()] == [1, 2]
    assert path.read_text(encoding="utf-8").splitlines() == good[:2]
    assert [name.name for name in tmp_path.glob("*metrics*")] == ["metrics.jsonl"]
    assert "line 2: skipped" in caplog.text
    assert "line 5: skipped" in caplog.text
    monkeypatch.setattr(metrics_module, "METRICS", 50)
    assert metrics_module.MetricsFile(tmp_path, 2).validations() == []
    assert (tmp_path / "metrics.damaged.jsonl").read_text(encoding="utf-8").splitlines() == good[:2]
