"""What commands print cannot steer a terminal; --quiet and --verbose."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from hostile_server import steers
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli.output import EscapedStream, log, print_json, print_translation, set_up_logging, terminal_console
from heedful.errors import DataError, escape_json, printable

Run = Callable[..., Done]
HOSTILE = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\x7f\r\u202ec\u2066\u2028\udcff"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text(st.characters()))
def test_what_is_printable_steers_nothing_and_the_rest_is_untouched(text: str) -> None:
    shown = printable(text)
    assert not steers(shown)
    assert printable(shown) == shown
    assert "\n" not in printable(text, newlines=False)
    if not steers(text):
        assert shown == text


@pytest.mark.parametrize(
    "text",
    ["שלום \u200fעולם\u200e", "مرحبا\u061c بالعالم", "मैं खाना क्\u200dष", "👩\u200d👩\u200d👧", "a\tb\nc", "\\x1b [red]"],
    ids=["hebrew", "arabic", "hindi", "family", "white", "marks"],
)
def test_text_in_any_script_and_direction_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text(st.characters()))
def test_json_is_safe_and_means_the_same(text: str) -> None:
    made = escape_json(json.dumps({"a": text}, ensure_ascii=False))
    assert not steers(made)
    assert json.loads(made) == {"a": text}


def test_everything_printed_is_escaped_even_tracebacks_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    stream = EscapedStream(io.StringIO())
    print(HOSTILE, file=stream)
    stream.writelines([HOSTILE, "\n"])
    assert not steers(stream.getvalue())
    assert "\\x1b]0;owned\\x07" in stream.getvalue()
    log(HOSTILE)
    print_json({HOSTILE: [HOSTILE]})
    out, err = capsys.readouterr()
    assert not steers(out + err)
    assert json.loads(out) == {HOSTILE: [HOSTILE]}


def test_a_message_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log("a\nheedful: all is well")
    assert capsys.readouterr().err == "a\\nheedful: all is well\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_translations_are_escaped_on_a_terminal_only(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", EscapedStream(inside))
    print_translation("a\x1b[31mb")
    assert inside.getvalue() == ("a\\x1b[31mb\n" if terminal else "a\x1b[31mb\n")


def test_a_console_draws_data_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    file = Terminal()
    monkeypatch.setattr(sys, "stderr", EscapedStream(file))
    monkeypatch.setenv("TERM", "xterm")
    console = terminal_console()
    console.print("[red]x[/red] :smile: \x1b]0;owned\x07")
    table = Table()
    table.add_column("[bold]\x9bhead")
    table.add_row(Text("\x1b[2Jcell"))
    with Live(table, console=console, auto_refresh=False):
        log("said \x1b[5mmeanwhile")  # rich has put itself in the place of stderr
    written = file.getvalue()
    for shown in ("[red]x[/red] :smile: \\x1b]0;owned\\x07", "[bold]\\x9b", "\\x1b[2Jcel", "\\x1b[5mmeanwhile"):
        assert shown in written
    assert not any(raw in written for raw in ("\x1b]0", "\x9b", "\x1b[2J", "\x1b[5m"))


def test_stderr_that_cannot_be_written_changes_nothing(environment: dict[str, str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    command = [sys.executable, "-m", "heedful", "corpus", "hindee"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


# ---- --quiet and --verbose


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ["info", "warning", "error"]),
        ({"quiet": True}, ["error"]),
        ({"verbose": True}, ["debug", "info", "warning", "error"]),
    ],
)
def test_log_records_of_the_library_reach_stderr(
    options: dict[str, bool], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging(**options)
    try:
        log = logging.getLogger("heedful.training")
        for level in ("debug", "info", "warning", "error"):
            getattr(log, level)("%s \x1b[31m", level)
    finally:
        set_up_logging()
    lines = [line.removeprefix("heedful.training: ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"{level} \\x1b[31m" for level in shown]


def test_every_command_is_quiet_and_verbose(heedful_cli: Run) -> None:
    from heedful.cli.app import COMMANDS

    for verb in COMMANDS:
        done = heedful_cli(verb.__name__, "--help")
        assert "--quiet" in done.out
        assert "--verbose" in done.out


def test_quiet_leaves_results_and_errors(heedful_cli: Run, tiny: Path, tmp_path: Path) -> None:
    plain = heedful_cli("translate", tiny, "a zzz")
    assert "zzz" in plain.err
    assert heedful_cli("translate", tiny, "a zzz", "--quiet") == (0, plain.out, "")
    wrong = heedful_cli("translate", tmp_path / "nothing", "a", "-q")
    assert wrong.code == 2
    assert "nothing" in wrong.err


def test_quiet_and_verbose_exclude_each_other(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, "a", "--quiet", "--verbose")
    assert done.code == 2
    assert "--quiet" in done.err
    assert "--verbose" in done.err


# ---- hostile names and data


@pytest.mark.parametrize("name", ["x\x1b[31m", "x\nheedful: all is well", os.fsdecode(b"x\xff\x9b")], ids=repr)
@pytest.mark.parametrize(
    "command",
    [
        ["info", "{}"],
        ["translate", "{}", "a"],
        ["see", "{}", "a"],
        ["train", "{}", "--out", "m"],
        ["evaluate", "{}", "{}"],
        ["compare", "{}", "{}", "{}"],
        ["align", "{}"],
        ["score", "{}", "{}"],
        ["convert", "{}", "--out", "m"],
        ["readout", "{}", "{}"],
        ["report", "{}", "{}", "--out", "r.html"],
        ["train", "p.tsv", "--out", "m", "--set", "{}"],
        ["train", "p.tsv", "--out", "m", "--recipe", "{}"],
        ["translate", "m", "a", "--{}"],
        ["translate", "m", "a", "--beam", "{}"],
        ["translate", "m", "a", "--device", "{}"],
        ["translate", "m", "a", "--server", "{}"],
        ["{}"],
    ],
    ids=" ".join,
)
def test_an_argument_is_shown_escaped(
    heedful_cli: Run, command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = heedful_cli(*(part.replace("{}", name) for part in command))
    assert done.code == 2
    assert not steers(done.out + done.err)
    assert "\nheedful: all is well" not in done.err


def test_an_error_of_several_lines_keeps_them(heedful_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("a\tb\nc\x1b[31m\td\n\te\n", encoding="utf-8")
    done = heedful_cli("train", tmp_path / "p.tsv", "--out", tmp_path / "m", "--strict")
    assert done.code == 2
    assert not steers(done.err)
    assert len(done.err.splitlines()) > 2


def test_a_message_has_no_line_breaks_unless_it_says_so() -> None:
    assert not DataError("a\nb").multiline


def test_warnings_are_escaped(monkeypatch: pytest.MonkeyPatch, heedful_cli: Run) -> None:
    def warns(**_: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(False)
            logging.captureWarnings(True)
            warnings.warn("odd \x1b[31m", UserWarning, stacklevel=1)

    monkeypatch.setattr("heedful.training.device_setup.describe_machine", warns)
    monkeypatch.setattr("heedful.cli.info._machine_text", lambda _: "")
    done = heedful_cli("info")
    assert "odd \\x1b[31m" in done.err
    assert "odd" not in heedful_cli("info", "--quiet").err


# ---- the environment


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("LOCAL_RANK", "\x1b[31m", 2),
        ("HEEDFUL_KERNELS", "\x1b[31m", 2),
        ("HEEDFUL_TOKEN", "\x1b[31m", 2),
        ("COLUMNS", "wide", 0),
        ("TERM", "\x1b", 0),
    ],
)
def test_an_odd_environment_is_no_traceback(
    heedful_cli: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, code: int, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, value)
    command: dict[str, list[object]] = {
        "LOCAL_RANK": ["info", tmp_path / "nothing"],
        "HEEDFUL_TOKEN": ["translate", "-", "a", "--server", "http://127.0.0.1:1", "--patience", "0"],
    }
    done = heedful_cli(*command.get(name, ["info"]))
    assert done.code == code
    assert not steers(done.out + done.err)
    assert bool(done.err) == bool(code)


@pytest.mark.parametrize("argument", ["--json", "--show"])
def test_a_folder_whose_name_is_no_text(heedful_cli: Run, tiny: Path, tmp_path: Path, argument: str) -> None:
    import shutil

    folder = tmp_path / os.fsdecode(b"m\xff\x1b[31m")
    try:
        shutil.copytree(tiny, folder)
    except OSError:
        pytest.skip("this file system has no such names")
    done = heedful_cli("translate", folder, "a", argument)
    assert (done.code, steers(done.out + done.err)) == (0, False)
    done = heedful_cli("info", folder, *(["--json"] if argument == "--json" else []))
    assert (done.code, steers(done.out + done.err)) == (0, False)
    if argument == "--json":
        assert json.loads(done.out)["path"] == str(folder)
    else:
        assert "\\udcff\\x1b[31m" in done.out
