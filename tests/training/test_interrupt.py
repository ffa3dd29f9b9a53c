"""Which signals a run listens to, and how several processes agree to stop."""

from __future__ import annotations

import signal

import pytest
import torch
from torch import Tensor

from heedful.training.distributed import Processes, StopSignal
from heedful.training.loop import catch_signals


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP on Windows")
def test_the_closing_of_the_terminal_stays_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with catch_signals() as stop:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGTERM)
            assert stop.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_is_kept_until_it_is_asked_for() -> None:
    with catch_signals() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


class Together(Processes):
    """One of two processes; the other one says what it is told to say."""

    def add_up(self, values: Tensor) -> Tensor:
        asked.append(values.tolist())
        return values + torch.tensor(other.pop(0), dtype=values.dtype)


asked: list[list[float]] = []
other: list[list[float]] = []


def test_several_processes_ask_each_other_at_the_same_steps() -> None:
    asked.clear()
    other[:] = [[0.0, 0.0], [0.0, 0.25], [0.0, 5.0], [0.0, 1e-9], [1.0, 0.25]]
    heard = StopSignal(lambda: False, Together(rank=1, world=2), 10)
    found = {step: heard(step) for step in range(10, 118)}
    # At the first step and the next; then as often as the first process's clock says: 4 steps a second, then one in
    # five seconds, then a hundred at the most.
    assert len(asked) == 5
    assert all(mine == [0.0, 0.0] for mine in asked)  # the second one's clock does not count
    assert [step for step, stop in found.items() if stop] == [116]


def test_the_wish_to_stop_is_told_with_the_time_of_a_step() -> None:
    asked.clear()
    other[:] = [[0.0, 0.0]]
    heard = StopSignal(lambda: True, Together(rank=0, world=2), 0)
    assert heard(0)
    assert asked[0][0] == 1.0


def test_one_process_asks_nobody() -> None:
    asked.clear()
    heard = StopSignal(lambda: True, Processes(), 5)
    assert heard(5)
    assert heard(6)
    assert asked == []
