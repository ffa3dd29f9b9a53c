"""The commands of the README can be pasted as they stand, in order, into bash or zsh."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
NETWORK, MINUTES = "<!-- needs the network -->", "<!-- takes minutes -->"


class Commands(NamedTuple):
    """A block of commands, its line in the README, and the comment before it."""

    line: int
    mark: str
    code: str


def command_blocks(text: str) -> list[Commands]:
    """The blocks that are to be pasted into a shell."""
    found = []
    for match in re.finditer(r"^(<!--[^\n]*-->\n)?```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        found.append(Commands(text[: match.start()].count("\n") + 1, (match[1] or "").strip(), match[2]))
    return found


BLOCKS = command_blocks(README)


def test_there_are_blocks_and_all_commands_are_in_one() -> None:
    assert len(BLOCKS) > 5
    bare = re.sub(r"^```sh\n.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^(\$ )?(\.venv/bin/|heedful |pip |make )", bare, flags=re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_can_be_pasted(block: Commands) -> None:
    assert block.mark in ("", NETWORK, MINUTES)
    for line in block.code.splitlines():
        # zsh takes a comment for arguments; a prompt, or dots for something to fill in, are no commands.
        assert not re.search(r"(^|\s)#|^\$|…|\.\.\.", line), line
        assert re.match(r"(\.venv/bin/(heedful|pip)|make|cut) ", line), line
        if re.search(r"hf:|pip install", line):
            assert block.mark == NETWORK, line
    serving = [line for line in block.code.splitlines() if " serve " in line]
    assert not serving or serving == block.code.splitlines(), "what runs until Ctrl-C has a block of its own"


# Training is cut to a few steps and the corpus to a twentieth; everything else is what a reader runs.
SHIM = """#!{python}
import sys
arguments = sys.argv[1:]
if arguments[0] == "train" and "--resume" not in arguments:
    arguments += ["--threads", "1", "--set", "training.steps=6", "--set", "training.valid_every=3"]
if arguments[0] == "corpus":
    at = arguments.index("--pairs") + 1
    arguments[at] = str(int(arguments[at]) // 20)
if arguments[0] == "serve":
    arguments += ["--port", "0", "--threads", "1"]
sys.argv = ["heedful", *arguments]
from heedful.cli import main
main()
"""


@contextmanager
def serving(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a service in the background; give its address."""
    running = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"at (http://\S+)", said)):
            line = running.stderr.readline()
            assert line, said
            said += line
        yield found[1]
    finally:
        running.kill()
        running.wait(10)
        running.stderr.close()


@pytest.mark.slow
def test_the_commands_run_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("fastapi", reason="a command of the README serves")
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shim = tmp_path / ".venv" / "bin" / "heedful"
    shim.write_text(SHIM.format(python=sys.executable), encoding="utf-8")
    shim.chmod(0o755)
    environment = {**environment, "OMP_NUM_THREADS": "1", "HEEDFUL_CACHE": str(tmp_path / "cache")}
    address = ""
    for block in BLOCKS:
        if block.mark:
            continue
        if " serve " in block.code:
            with serving(block.code.strip(), tmp_path, environment) as address:
                following = BLOCKS[BLOCKS.index(block) + 1] if block is not BLOCKS[-1] else block
                if "--server" in following.code:
                    shell(following, tmp_path, environment, address)
        elif "--server" not in block.code:
            shell(block, tmp_path, environment)
    assert address
    header, *rows = (tmp_path / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert "translation" in header.split("\t")
    assert len(rows) == 15
    assert (tmp_path / "page.html").is_file()
    assert (tmp_path / "report.html").is_file()


def shell(block: Commands, folder: Path, environment: dict[str, str], address: str = "") -> None:
    """Run a block as a person would who pastes it; every command of it has to succeed."""
    code = re.sub(r"http://127\.0\.0\.1:8000", address, block.code) if address else block.code
    command = ["bash", "-e", "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"README.md, line {block.line}: {done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
