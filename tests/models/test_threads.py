"""How many threads are used: measured with a clock, which here is made up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from conftest import ROOT

from heedful.models import device
from heedful.models.device import fastest_threads, may_choose, using_threads


class Machine:
    """A clock, and work that takes the seconds that it is told for each number of threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int, seconds: Callable[[int], float]) -> None:
        self.now, self.number, self.seconds = 0.0, cores, seconds
        self.tried: list[int] = []
        monkeypatch.setattr(device, "time", self)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.number)
        monkeypatch.setattr(torch, "set_num_threads", self.set)

    def set(self, number: int) -> None:
        self.number = number

    def perf_counter(self) -> float:
        return self.now

    def work(self) -> None:
        self.tried.append(self.number)
        self.now += self.seconds(self.number)

    def quick(self) -> None:
        self.now += self.seconds(self.number) / 100


def test_two_threads_that_are_faster_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 2, lambda number: 1.0 / number)
    assert fastest_threads(machine.work) == (2, {1: 1.0, 2: 0.5})
    assert machine.number == 2  # left as it was


def test_two_threads_that_wait_for_each_other_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 2, lambda number: 1.0 if number == 1 else 20.0)
    assert fastest_threads(machine.work).threads == 1
    machine.tried.clear()
    assert fastest_threads(machine.work, machine.quick) == (1, {})
    assert machine.tried == [2]  # only the work before the first measurement


def test_a_little_faster_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fastest_threads(Machine(monkeypatch, 2, lambda number: 1.0 if number == 1 else 0.95).work).threads == 1


def test_on_many_cores_the_search_ends_where_it_gets_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 24, lambda number: 1 / min(number, 4) + 0.01 * number)
    assert fastest_threads(machine.work).threads == 4
    assert set(machine.tried) == {24, 1, 2, 4, 8}


def test_slow_work_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 2, lambda number: 60.0 / number)
    assert fastest_threads(machine.work).threads == 2
    assert machine.tried == [2, 1, 2]


def test_what_the_environment_sets_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert may_choose()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not may_choose()
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert not may_choose()


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with using_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("PASSIVE", "0", None)),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ("ACTIVE", None, None)),
        ({"GOMP_SPINCOUNT": "5"}, (None, None, "5")),
        ({"KMP_BLOCKTIME": "200"}, (None, "200", None)),
    ],
)
def test_threads_wait_asleep_unless_the_user_says_otherwise(
    given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    names = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    code = f"import heedful, os; print(repr(tuple(map(os.environ.get, {names!r}))))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == repr(expected)


def test_nothing_is_set_when_it_would_be_too_late() -> None:
    names = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    code = "import sys, os; sys.modules['torch'] = sys; import heedful; print(os.environ.get('OMP_WAIT_POLICY'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "None"
