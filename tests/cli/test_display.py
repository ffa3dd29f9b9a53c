from __future__ import annotations

import io

import pytest
from rich.console import Console

from heedful.cli.display import Lines, Live
from heedful.training import Progress, Validation

AT = Progress(step=50, steps=200, epoch=1, loss=1.2345, accuracy=0.5, rate=0.1, tokens_per_second=12345.6)


def test_the_live_line_has_loss_accuracy_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live()
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, highlight=False)
    live.console = live.bar.live.console = console
    live.progress(AT._replace(step=10))
    live.say("[bold]not markup[/bold]")
    live.progress(AT)
    live.validated(Validation(50, 0.9, 0.6, 12.34), True)
    live.bar.stop()
    text = file.getvalue()
    for part in (
        "step 50/200",
        "loss 1.234",
        "accuracy 50.0%",
        "12,346 tokens/s",
        "left",
        "BLEU 12.3",
        "[bold]not markup",
    ):
        assert part in text, part


def test_plain_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = Lines()
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
    live = Live()
    file = io.StringIO()
    live.console = live.bar.live.console = Console(file=file, force_terminal=True, width=60, highlight=False)
    live.progress(AT._replace(step=10, loss=5.0))
    assert live.bar.lines == []  # one point is no curve
    live.progress(AT._replace(step=20, loss=3.0))
    assert live.bar.lines[0] == "loss 3.00"
    live.validated(Validation(20, 0.9, 0.6, 12.0), True)
    live.validated(Validation(40, 0.9, 0.6, 20.5), True)
    live.progress(AT._replace(step=41))
    live.bar.stop()
    assert live.bar.lines[0] == "validation BLEU 20.50"
    assert max(map(len, live.bar.lines)) < 60
    assert "validation BLEU 20.50" in file.getvalue()


def test_preparing_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    live = Live()
    file = io.StringIO()
    live.console = live.bar.live.console = Console(file=file, force_terminal=True, width=60, highlight=False)
    live.preparing(20_000, "pairs read")
    live.bar.stop()
    assert "20,000 pairs read" in file.getvalue()
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lines = Lines()
    lines.preparing(1, "pairs read")  # not at once: most files are short
    now = 111.0
    lines.preparing(30_000, "pairs read")
    assert capsys.readouterr().err == "30,000 pairs read\n"
