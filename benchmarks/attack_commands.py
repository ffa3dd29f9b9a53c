"""Run a command of heedful as a process that is bounded in time and memory; say how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from attack_service import cpu_of, end_with_parent, family

TOO_MUCH = 1600.0  # MiB: it is killed before it harms this machine


class Ended(NamedTuple):
    """How a command ended: exit code (None: killed for its memory or its time), output, the peak in MiB, seconds."""

    code: int | None
    stdout: bytes
    stderr: str
    peak: float
    seconds: float

    def faults(self) -> list[str]:
        """Return what no command may do, whatever it is given."""
        faults = []
        if self.code is None:
            faults.append(f"killed after {self.seconds:.0f} s at {self.peak:.0f} MiB")
        elif self.code < 0:
            faults.append(f"died of signal {-self.code}")
        if "Traceback" in self.stderr or "panicked" in self.stderr:
            faults.append("a traceback")
        if "\x1b" in self.stderr:
            faults.append("a raw escape sequence on stderr")
        return faults


def rss(pids: Sequence[int]) -> float:
    """Return the resident memory of processes in MiB."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / 2**20


def command(
    arguments: Sequence[str | Path],
    code: Path,
    *,
    limit: float = 30.0,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `heedful ARGUMENTS` with the code of a checkout, and watch its memory and its CPU time (`limit`)."""
    variables = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "COLUMNS": "200", **(environment or {})}
    variables.pop("HEEDFUL_TOKEN", None)
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful", *map(os.fsencode, arguments)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=variables,
            cwd="/",
            preexec_fn=end_with_parent,
        )
        peak, cpu, killed = 0.0, 0.0, False
        while process.poll() is None:
            pids = family(process.pid)
            peak = max(peak, rss(pids))
            cpu = max(cpu, sum(map(cpu_of, pids)))
            if peak > TOO_MUCH or cpu > limit or time.monotonic() - begun > max(60.0, 5 * limit):
                killed = True
                for pid in reversed(pids):
                    try:
                        os.kill(pid, 9)
                    except OSError:
                        continue
                process.wait()
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        stdout.seek(0)
        stderr.seek(0)
        said = stderr.read(1 << 20).decode("utf-8", "replace")
        return Ended(None if killed else process.returncode, stdout.read(8 << 20), said, peak, seconds)
