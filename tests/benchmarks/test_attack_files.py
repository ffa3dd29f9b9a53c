"""benchmarks/attack_files.py: 200 mutations of each kind of file give a clear error or are read without one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT
from small_runs import benchmark

files = benchmark("attack_files")
MUTATIONS = 200


def attack(environment: dict[str, str], *kinds: str, mutations: int = MUTATIONS) -> None:
    """In a process of its own, which forks, and whose children have little memory."""
    script = str(ROOT / "benchmarks" / "attack_files.py")
    command = [sys.executable, script, "--mutations", str(mutations), "--jobs", "1", "--seconds", "120"]
    done = subprocess.run([*command, "--kinds", *kinds], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:-1]}
    assert set(rows) == set(kinds)
    for row in rows.values():
        total, *outcomes = (int(cell.replace(",", "")) for cell in row[:7])
        assert total == sum(outcomes[:5]) == mutations
        assert outcomes[1] < total  # it is not always harmless


def test_links_gold_readouts_and_traces(environment: dict[str, str]) -> None:
    attack(environment, "links", "gold", "readouts", "traces")


def test_some_models_and_caches(environment: dict[str, str]) -> None:
    attack(environment, "models", "caches", "pairs", "xlit", mutations=20)


@pytest.mark.slow
def test_models_caches_and_pairs(environment: dict[str, str]) -> None:
    attack(environment, "models", "caches", "pairs", "xlit")


def test_what_is_wrong_is_found(tmp_path, monkeypatch) -> None:
    """A reader that lets everything through is caught, whatever it does: the benchmark can fail."""
    from heedful.errors import DataError, DiskError

    class Bad(files.Kind):
        outcomes = iter([ValueError("x"), DataError("y" * 3000), DiskError("z"), ("read", "other"), DataError("fine")])

        def make(self) -> None:
            (self.folder / "it.json").write_text("{}")

        def spoil(self, case, pick) -> None:
            super().spoil(case, pick)
            case.free = False

        def read(self, case):
            if case.folder == self.folder:
                return "read", "whole"
            outcome = next(self.outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    kind = Bad(tmp_path / "whole")
    found = [files.one(kind, "bad", number, 1, tmp_path) for number in range(5)]
    assert [result.failure.partition(" ")[0] for result in found] == ["ValueError", "a", "exit", "another", ""]
    assert found[-1].word == "refused"


def test_a_child_that_hangs_dies_or_takes_memory_is_a_failure(environment: dict[str, str]) -> None:
    script = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
import attack_files as files

class Bad(files.Kind):
    def make(self):
        (self.folder / "it.json").write_text("{}")
    def read(self, case):
        match int(case.folder.name.rpartition("-")[2]) if case.folder != self.folder else 9:
            case 0:
                time.sleep(600)
            case 1:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 2:
                bytearray(4 << 30)
        return "read", "whole"

files.KINDS["gold"] = Bad
sys.exit(files.main(["--kinds", "gold", "--mutations", "4", "--jobs", "1", "--seconds", "3"]))
"""
    command = [sys.executable, "-c", script, str(ROOT / "benchmarks")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(": ")[1].split()[0] for line in lines[:3]] == ["more", "the", "MemoryError"]
    assert lines[-1] == "4 mutations, 3 failures"
