"""Free memory is given back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heedful.serve.engine import processes as module
from heedful.serve.engine.processes import Trimmer, memory


def test_trims_are_rare_and_only_when_there_is_more_than_at_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    now, held, trims = [10.0], [100 << 20], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "memory", lambda: held[0])

    def trim(_: int) -> int:
        trims.append(now[0])
        held[0] -= 30 << 20
        return 1

    trimmer = Trimmer()
    trimmer.trim = trim
    trimmer(idle=True)  # the least is 100 MiB
    held[0] = 102 << 20
    now[0] = 12.0
    trimmer(idle=True)
    assert trims == []
    held[0] = 180 << 20
    now[0] = 12.5
    trimmer(idle=True)  # too early
    for now[0] in (14.0, 16.0, 18.0):  # 150 MiB are left, and in use
        trimmer(idle=True)
    assert trims == [14.0]
    held[0] += 20 << 20
    now[0] = 22.0
    trimmer(idle=False)  # it has something else to do
    assert len(trims) == 1
    held[0] += 40 << 20
    now[0] = 24.0
    trimmer(idle=False)
    assert len(trims) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_what_is_free_is_given_back() -> None:
    """Many blocks, too small to be mapped by themselves, are freed under one that is still in use."""
    program = """
from heedful.serve.engine.processes import Trimmer, memory
trim = Trimmer()
if trim.trim is None:
    print("no malloc_trim")
else:
    trim(idle=True)
    least = memory()
    blocks = [bytearray(64 * 1024) for _ in range(2000)]
    last = bytearray(64 * 1024)
    full = memory() - least
    del blocks
    kept = memory() - least
    trim.next = 0.0
    trim(idle=True)
    print(full >> 20, kept >> 20, (memory() - least) >> 20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    if done.stdout.strip() == "no malloc_trim":
        pytest.skip("another C library")
    full, kept, after = map(int, done.stdout.split())
    assert full > 100
    assert kept > 100  # glibc keeps it
    assert after < 20


def test_memory_of_a_process() -> None:
    assert memory() > 1 << 20
    assert memory(2**22 + 1) == 0
