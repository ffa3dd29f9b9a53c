"""A process that hangs is told from one that is slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("fastapi")

from heedful.serve.engine.processes import Activity, IdleTimer, activity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def test_only_a_process_that_gets_no_time_and_wants_none_is_idle() -> None:
    watch = IdleTimer()
    asleep = Activity(False, 7)
    assert watch.seconds(0.0, asleep) == 0.0
    assert watch.seconds(2.0, asleep) == 2.0
    assert watch.seconds(3.0, Activity(False, 8)) == 0.0, "it has worked in between"
    assert watch.seconds(5.0, Activity(False, 8)) == 2.0
    assert watch.seconds(6.0, Activity(True, 8)) == 0.0, "it waits for a busy machine"
    assert watch.seconds(7.0, Activity(False, 8)) == 0.0
    assert watch.seconds(8.0, None) == 0.0, "nothing is known"


def test_a_process_that_is_stopped_is_not_busy_and_one_that_computes_is() -> None:
    endless = [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            seen = activity(process.pid)
            assert seen is not None
            assert seen.busy
            os.kill(process.pid, signal.SIGSTOP)
            for _ in range(500):
                if (seen := activity(process.pid)) and not seen.busy:
                    break
                time.sleep(0.01)
            assert seen is not None
            assert not seen.busy
            assert activity(process.pid) == seen
        finally:
            process.kill()
    assert activity(process.pid) is None
