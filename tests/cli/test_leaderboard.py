"""How models that race are shown: rows in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.console import Console

from heedful.cli.demo import LiveLeaderboard, LoggedLeaderboard, display
from heedful.demo import FULL, DemoModel, TrainingStatus

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7]|10[0-7])\b")
START = [
    TrainingStatus(DemoModel("fixed", "fixed context", (), 2_700)),
    TrainingStatus(DemoModel("attention", "attention", (), 1_600)),
]
UNDER_WAY = [
    TrainingStatus(START[0].model, 1_350, 1.2345, 0.5, 12345.6, 10.0, [(5.0, 12.34, 2.0), (9.0, 23.45, 1.5)]),
    TrainingStatus(START[1].model, 99, 7.5, 0.0625, 6543.2, 10.0),
]
# As wide as it gets in the demo.
END = [TrainingStatus(c, c.steps, 9.9994, 1.0, 999999.4, 300.0, [(299.0, 100.0, 0.0)]) for c in FULL.models]


# ---- rows


def drawn(*frames: list[TrainingStatus], width: int = 80) -> str:
    """What a terminal is sent."""
    rows, file = LiveLeaderboard(), io.StringIO()
    rows.console = Console(file=file, force_terminal=True, width=width, highlight=False)
    for frame in frames:
        rows.update(frame)
    rows.close()
    return file.getvalue()


def lines(text: str) -> list[str]:
    """What stands there in the end: that which was drawn since the last erasing."""
    return [line.rstrip() for line in ESCAPE.sub("", text.rpartition("\x1b[2K")[2]).splitlines() if line.strip()]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("frame", [START, UNDER_WAY, END], ids=["start", "under way", "end"])
def test_rows_fit_eighty_columns(frame: list[TrainingStatus], plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if plain:
        monkeypatch.setenv("NO_COLOR", "1")
    text = drawn(frame)
    found = lines(text)
    # A heading and one line for each model: nothing was wrapped or cut.
    assert len(found) == 1 + len(frame)
    assert max(map(len, found)) <= 80
    assert "…" not in text
    if plain:
        assert not COLOUR.search(text)


def test_rows_have_all_numbers() -> None:
    heading, fixed, attention = lines(drawn(UNDER_WAY))
    assert heading.split() == ["step", "train", "loss", "valid", "BLEU", "tokens/s"]
    assert fixed.split() == ["fixed", "context", "━" * 8, "1,350/2,700", "1.234", "23.4", "12,346"]
    assert attention.split() == ["attention", "99/1,600", "7.500", "6,543"]
    # Numbers stand under their headings.
    assert heading.index("loss") + len("loss") == fixed.index("1.234") + 5 == attention.index("7.500") + 5


def test_rows_of_models_that_have_not_begun() -> None:
    _, fixed, attention = lines(drawn(START))
    assert fixed.split() == ["fixed", "context", "starting"]
    assert attention.split() == ["attention", "starting"]


def test_bars_grow_to_their_end() -> None:
    assert ["".join(lines(drawn(frame))).count("━") for frame in (START, UNDER_WAY, END)] == [0, 8, 48]


def test_what_is_said_is_no_markup() -> None:
    rows, file = LiveLeaderboard(), io.StringIO()
    rows.console = Console(file=file, force_terminal=True, width=80, highlight=False)
    rows.log("[bold]one[/bold]")
    rows.update(UNDER_WAY)
    rows.log("two")
    assert rows.live is None  # the rows stay where they are, and what follows stands below them
    text = ESCAPE.sub("", file.getvalue())
    assert text.index("[bold]one[/bold]") < text.index("fixed context") < text.index("two")
    rows.close()  # once more does no harm


# ---- lines


def test_not_more_than_a_line_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    watch = LoggedLeaderboard()
    printed = []
    for tenth in range(350):
        now = 100.0 + tenth / 10
        watch.update(UNDER_WAY)
        if capsys.readouterr().err:
            printed.append(now)
    assert printed == [110.0, 120.0, 130.0]


def test_a_line_has_all_models(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    watch = LoggedLeaderboard()
    watch.log("training 2 models")
    for frame in (START, UNDER_WAY):
        now += 10.0
        watch.update(frame)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "training 2 models",
        "fixed context: starting; attention: starting",
        "fixed context: step 1,350/2,700 loss 1.234 BLEU 23.4; attention: step 99/1,600 loss 7.500",
    ]


# ---- which of them


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with display() as watch:
        assert isinstance(watch, LoggedLeaderboard)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with display() as watch:
        assert isinstance(watch, LoggedLeaderboard)


def test_rows_in_a_terminal_and_it_is_left_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)

    def interrupted() -> None:
        with display() as watch:
            assert isinstance(watch, LiveLeaderboard)
            watch.update(UNDER_WAY)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = screen.getvalue()
    assert "fixed context" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again
