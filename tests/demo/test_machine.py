from __future__ import annotations

import os
import subprocess
import sys

import pytest

from heedful.demo.training import memory_of


@pytest.mark.skipif(sys.platform != "linux", reason="the system says it only on Linux")
def test_what_this_process_holds() -> None:
    before = memory_of([os.getpid()])
    assert 5e6 < before < 20e9
    held = bytearray(64_000_000)
    held[::4096] = b"x" * len(held[::4096])  # touched, so that it is really there
    assert memory_of([os.getpid()]) - before > 50e6


@pytest.mark.skipif(sys.platform != "linux", reason="the system says it only on Linux")
def test_what_another_process_holds() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", "input('ready')"], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.read(5) == b"ready"
        assert 1e6 < memory_of([process.pid]) < 1e9
        process.communicate(b"\n")


def test_a_process_that_has_ended_holds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert memory_of([process.pid]) == 0.0  # the system still knows of it
    process.wait()
    assert memory_of([process.pid]) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="the system says it only on Linux")
def test_what_all_have_in_common_counts_once() -> None:
    """This process twice: what it has for itself counts twice, its program once."""
    me = os.getpid()
    with open("/proc/self/status", encoding="ascii") as file:
        pages = next(1024 * int(line.split()[1]) for line in file if line.startswith("RssFile:"))
    alone, twice = memory_of([me]), memory_of([me, me])
    assert pages > 1e6
    assert twice == pytest.approx(2 * alone - pages, rel=0.02)
    assert memory_of([]) == 0.0
