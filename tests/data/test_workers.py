"""Workers: results in order, errors that come through, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from worker_tasks import Double

from heedful.data.workers import in_order
from heedful.errors import DataError, WorkerError


class Fail:
    def __call__(self, item: int) -> int:
        if item == 3:
            raise DataError("three is not allowed")
        return item


class Die:
    def __call__(self, item: int) -> int:
        if item == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return item


class Environment:
    def __call__(self, item: int) -> tuple[str, str]:
        return os.environ["OMP_NUM_THREADS"], os.environ["TOKENIZERS_PARALLELISM"]


def alive(process: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    return False


def test_results_in_order_from_several_processes():
    found = list(in_order(Double(), range(20), processes=2))
    assert [made for made, _ in found] == [2 * n for n in range(20)]
    makers = {maker for _, maker in found}
    assert len(makers) == 2
    assert os.getpid() not in makers
    assert not any(alive(maker) for maker in makers)


def test_one_item_needs_no_process(capsys):
    assert list(in_order(Double(), [4], processes=2)) == [(8, os.getpid())]
    assert list(in_order(Double(), [4, 5], processes=1)) == [(8, os.getpid()), (10, os.getpid())]
    assert list(in_order(Double(), [])) == []


def test_workers_have_one_thread_each():
    assert set(in_order(Environment(), range(3), processes=2)) == {("1", "false")}


def test_an_error_comes_through():
    results = in_order(Fail(), range(100), processes=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="three is not allowed"):
        next(results)


def test_a_worker_that_is_killed_is_noticed():
    with pytest.raises(WorkerError, match="status -9"):
        list(in_order(Die(), range(100), processes=2))


def test_items_are_taken_a_few_ahead():
    taken = []

    def items():
        for n in range(1000):
            taken.append(n)
            yield n

    with closing(in_order(Double(), items(), processes=2)) as results:
        assert next(results)[0] == 0
        _, maker = next(results)
        assert len(taken) < 10
        assert alive(maker)
        assert os.getpgid(maker) != os.getpgid(0)  # Ctrl-C in a terminal is not for the workers
    assert not alive(maker)


SCRIPT = """
import sys
from heedful.data.workers import in_order
sys.path.insert(0, {folder!r})
from worker_tasks import Double

for made, maker in in_order(Double(), iter(int, 1), processes=2):
    print(maker, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nobody_stays_behind(number: signal.Signals, environment: dict[str, str], tmp_path: Path) -> None:
    # A script as people write them: without a word about __main__.
    (tmp_path / "script.py").write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    makers = {int(process.stdout.readline()) for _ in range(20)}
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert err.count("Traceback") == (number == signal.SIGINT)
    until = time.time() + 60
    while any(alive(maker) for maker in makers) and time.time() < until:
        time.sleep(0.05)
    assert not any(alive(maker) for maker in makers)
