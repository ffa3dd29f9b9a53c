"""What a newcomer meets: a file's name for its text, progress, missing packages, completion."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Done
from hostile_server import hostile, item, sends, translations

import heedful
from heedful import errors
from heedful.cli.output import EscapedStream, line_progress

Run = Callable[..., Done]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# ---- the name of a file


def test_the_name_of_a_file_is_translated_and_the_way_to_translate_it_is_said(
    heedful_cli: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = heedful_cli("translate", tiny, "a b")
    Path("a b").write_text("c d\n")
    done = heedful_cli("translate", tiny, "a b")
    assert (done.code, done.out) == (0, plain.out)
    assert "< 'a b'" in done.err
    assert str(tiny) in done.err
    assert heedful_cli("translate", tiny, "a b", "--quiet").err == ""
    with hostile(sends(translations(item("A B")))) as (url, _):
        done = heedful_cli("translate", "-", "a b", "--server", url)
        assert done.out == "A B\n"
        assert f"--server {url} < 'a b'" in done.err
    Path("a b").unlink()
    assert "<" not in heedful_cli("translate", tiny, "a b").err


# ---- progress


def test_progress_has_lines_rate_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", EscapedStream(file))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    chunk = ["one", "मैं", "three"]
    size = sum(len(line.encode()) + 1 for line in chunk)
    with line_progress(2 * size) as progress:
        inside = progress.inside(chunk)
        assert inside is not None
        inside(1, 3)
        assert (progress.bar.tasks[0].completed, progress.bar.tasks[0].total) == (size // 3, 2 * size)  # type: ignore[union-attr]
        assert "1 lines" in progress.bar.tasks[0].fields["numbers"]  # type: ignore[union-attr]
        progress.add(chunk)
        assert progress.bar.tasks[0].completed == size  # type: ignore[union-attr]
        assert "3 lines" in progress.bar.tasks[0].fields["numbers"]  # type: ignore[union-attr]
        print("a result")  # stdout is not rich's
        progress.bar.refresh()  # type: ignore[union-attr]
    assert "lines/s" in file.getvalue()
    assert "left" in file.getvalue()
    assert "a result" not in file.getvalue()


def test_results_on_the_same_terminal_are_not_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", EscapedStream(file))
    monkeypatch.setattr(sys, "stdout", EscapedStream(file))
    monkeypatch.setenv("TERM", "xterm")
    with line_progress(None) as progress:
        with progress.paused():
            assert not progress.bar.live.is_started  # type: ignore[union-attr]
            print("a result")
        assert progress.bar.live.is_started  # type: ignore[union-attr]


def test_there_is_no_progress_without_a_terminal(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, stdin=b"a\nb\n")
    assert (done.code, len(done.out.splitlines()), done.err) == (0, 2, "")
    with line_progress(100) as progress:
        assert progress.inside(["a"]) is None
        progress.add(["a"])


def test_a_translator_says_how_far_it_is(tiny: Path) -> None:
    seen: list[tuple[int, int]] = []
    translator = heedful.load(tiny, "cpu")
    translator.translate(["a", "a b", "a b c"], batch_tokens=2, progress=lambda *numbers: seen.append(numbers))
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_progress_in_a_real_terminal(tiny: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """stdin a file, stdout a file, stderr a terminal."""
    import pty

    (tmp_path / "in.txt").write_text("a b c d e\n" * 3000)
    command = [sys.executable, "-m", "heedful", "translate", str(tiny), "--threads", "1"]
    ours, theirs = pty.openpty()
    with open(tmp_path / "in.txt", "rb") as given, open(tmp_path / "out.txt", "wb") as taken:
        environment = {**environment, "TERM": "xterm", "COLUMNS": "100"}
        running = subprocess.Popen(command, stdin=given, stdout=taken, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
        assert running.wait(120) == 0
    os.close(ours)
    assert b"lines/s" in shown
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines == lines[:1] * 3000


# ---- packages that are missing


def test_a_checkout_names_the_command_that_works_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / "check out"
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / "heedful").mkdir()
    (root / ".venv" / "bin" / "pip").touch()
    (root / "pyproject.toml").touch()
    monkeypatch.setattr(sys, "executable", str(root / ".venv" / "bin" / "python"))
    monkeypatch.setattr(errors, "__file__", str(root / "heedful" / "errors.py"))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(root)
    assert errors.install_command("serve") == ".venv/bin/pip install '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert errors.install_command("serve") == "'./check out/.venv/bin/pip' install './check out[serve]'"
    (root / ".venv" / "bin" / "pip").unlink()
    monkeypatch.chdir(root)
    assert errors.install_command("png") == ".venv/bin/python -m pip install '.[png]'"


def test_elsewhere_it_is_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "heedful" / "errors.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert errors.install_command("serve") == "pip install 'heedful[serve]'"


# ---- completion


@pytest.fixture
def shim(tmp_path: Path) -> dict[str, str]:
    """An environment of its own, with a program `heedful`."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "heedful"
    code = "import sys; sys.argv[0] = 'heedful'; from heedful.cli import main; main(); "
    code += "assert 'torch' not in sys.modules"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "home").mkdir()
    return {"PATH": path, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}


def bash(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    command = ["bash", "--norc", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_completion_is_installed_for_bash_and_completes(shim: dict[str, str]) -> None:
    done = bash("heedful --install-completion; exit $?", shim)
    assert done.returncode == 0, done.stderr
    (script,) = Path(shim["HOME"]).glob(".bash_completions/heedful*")
    assert str(script) in (Path(shim["HOME"]) / ".bashrc").read_text()
    words = (
        ("heedful tra", "train translate"),
        ("heedful translate m --be", "--beam"),
        ("heedful see m --qu", "--quiet"),
    )
    for typed, expected in words:
        parts = typed.split()
        code = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(parts) - 1}; "
        code += "_heedful_completion heedful; echo ${COMPREPLY[@]}"
        done = bash(code, shim)
        assert (done.stdout.strip(), done.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script_and_its_answers(shell: str, shim: dict[str, str]) -> None:
    shown = bash("heedful", {**shim, "_HEEDFUL_COMPLETE": f"source_{shell}"})
    assert f"complete_{shell}" in shown.stdout
    asked = {"_TYPER_COMPLETE_ARGS": "heedful trans", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked |= {"COMP_WORDS": "heedful trans", "COMP_CWORD": "1", "_HEEDFUL_COMPLETE": f"complete_{shell}"}
    done = bash("heedful", {**shim, **asked})
    assert "translate" in done.stdout
    assert "train" not in done.stdout.replace("translate", "")
    assert done.stderr == ""


# ---- what may not be meant


def test_a_text_like_the_name_of_a_file(heedful_cli: Run, tiny: Path) -> None:
    for text in ("page.html", "a/b.TXT", "notes.md"):
        done = heedful_cli("translate", tiny, text)
        assert done.code == 0
        assert f"there is no file {text}" in done.err
    for text in ("a", "a b.txt", "a.b"):
        assert "no file" not in heedful_cli("translate", tiny, text).err
    assert "no file" not in heedful_cli("translate", tiny, "page.html", "--quiet").err


def test_words_without_quotes(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, "a", "b", "c")
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert "'a b c'" in done.err
    for texts in (["a"], ["a b", "c d"], ["a", "b c"], ["", "a"], ["a.", "b."], ["家", "犬"], ["a.txt", "b.txt"]):
        assert "quotes" not in heedful_cli("translate", tiny, *texts).err


def test_a_keyboard_is_said_to_be_read(heedful_cli: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Ctrl-D"
    assert said not in heedful_cli("translate", tiny, stdin=b"a\n").err
    monkeypatch.setattr("heedful.cli.translate._is_terminal", lambda: True)
    done = heedful_cli("translate", tiny, stdin=b"a\n")
    assert done.code == 0
    assert done.err.count(said) == 1
    assert said not in heedful_cli("translate", tiny, "a").err
    assert said not in heedful_cli("translate", tiny, "--quiet", stdin=b"a\n").err


def test_options_in_the_wrong_place_or_of_another_name(heedful_cli: Run, tmp_path: Path) -> None:
    for option in ("--quiet", "-v"):
        done = heedful_cli(option, "translate", "m", "a")
        assert done.code == 2
        assert f"heedful COMMAND {option}" in done.err
    for option, setting in (
        ("--rate", "training.rate"),
        ("--lr", "training.rate"),
        ("--batch-size", "training.batch_tokens"),
        ("--width", "model.width"),
    ):
        done = heedful_cli("train", "p.tsv", "--out", tmp_path / "m", option, "1")
        assert done.code == 2
        assert f"--set {setting}=" in done.err
    assert "--set" not in heedful_cli("translate", "m", "a", "--lr", "1").err
    assert "--set" not in heedful_cli("train", "p.tsv", "--zzz").err
    done = heedful_cli("train", "p.tsv", "--out", tmp_path / "m", "--set", "rate=0.1")
    assert (done.code, "training.rate" in done.err) == (2, True)


def test_a_translation_without_end_is_refused(heedful_cli: Run, tiny: Path) -> None:
    done = heedful_cli("translate", tiny, "a b", "--show", "--no-split", "--max-length", "1000000")
    assert (done.code, done.out) == (2, "")
    assert "--max-length is 1000000" in done.err
    assert "10000" in done.err
    assert heedful_cli("translate", tiny, "a b", "--max-length", "5000").code == 0


def test_verbose_reports_the_size_of_batches(tiny: Path, heedful_cli) -> None:
    done = heedful_cli("translate", "--verbose", tiny, "a b", "c d e")
    assert "batches of 4,096 tokens, by " in done.err
    assert "GiB of free memory on cpu" in done.err
    assert "4,096 tokens at once" in done.err
    done = heedful_cli("translate", "--verbose", tiny, "--batch-tokens", "77", "a b", "c d e")
    assert "77 tokens at once" in done.err
    assert "free memory" not in done.err
