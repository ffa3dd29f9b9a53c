"""benchmarks/recurrence.py at small sizes; times are not checked."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest
import torch
from conftest import ROOT
from small_runs import benchmark


@pytest.fixture(scope="module")
def recurrence() -> ModuleType:
    return benchmark("recurrence")


def test_both_ways_compute_the_same(recurrence):
    """What is timed against each other has to be the same work."""
    case = recurrence.Case(recurrence.Sizes(3, 4, 5, 2, 6), torch.device("cpu")).as_double()
    assert not bool(case.keep.all())
    torch.testing.assert_close(case.run(case.decoder.at_once), case.run(case.decoder.loop))


def test_the_lstm_beside_it_runs(recurrence):
    recurrence.Case(recurrence.Sizes(3, 4, 5, 2, 6), torch.device("cpu")).cudnn()


def test_what_is_expected_is_within_the_goals(recurrence):
    """4 + 4 launches of at least 2.5 and 4.5 µs: 2 · (2 · 2.5 + 2 · 4.5) = 28 µs a step are the floor."""
    for sizes in recurrence.ROWS:
        told = recurrence.calculated(sizes)
        total, goal = float(told.split(" ms")[0]), float(told.rsplit(" ", 2)[1])
        assert 28e-3 * sizes.T < total < goal


@pytest.mark.slow
def test_without_a_gpu_it_says_so():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    command = [sys.executable, str(ROOT / "benchmarks" / "recurrence.py")]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "this needs a CUDA device and Triton; --calculate needs neither\n"
