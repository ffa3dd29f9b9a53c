"""Faults of the worker process and of its connection: no request is lost, and none waits for ever."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from random_translators import random_folder
from running import children, process, running, slow, until, with_worker

import heedful
from heedful.serve.engine.batches import RunningBatch
from heedful.serve.engine.worker_client import WorkerClient
from heedful.serve.http.models import model_name
from heedful.serve.limits import Limits


def ask(url: str, body: object, timeout: float = 30) -> int:
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        line.request("POST", "/v1/translate", json.dumps(body), {"Content-Type": "application/json"})
        return line.getresponse().status
    except TimeoutError:
        return 0
    finally:
        line.close()


def test_a_process_that_hangs_does_not_stop_the_service(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.engine.worker_client.HANGS", 2)
    with with_worker(tiny, Limits(seconds=0.1)) as (service, worker):
        os.kill(worker.process.pid, signal.SIGSTOP)
        found = set()
        for _ in range(200):
            found.add(ask(service.url, {"text": "a b c d e f"}, 5))
            assert urllib.request.urlopen(f"{service.url}/health", timeout=3).status == 200
            if not service.service.engine.worker_ready:
                break
        assert {504} <= found <= {200, 504}, "0: the event loop stands still"
        assert ask(service.url, {"text": "a"}) in (200, 504)  # a tenth of a second
        until(lambda: worker.process.poll() is not None, 10)


def test_a_stopped_process_is_noticed_within_the_time_of_a_request(tiny: Path) -> None:
    with with_worker(tiny, Limits(seconds=2)) as (service, worker):
        os.kill(worker.process.pid, signal.SIGSTOP)
        assert ask(service.url, {"text": "a b"}) == 200
        until(lambda: worker.process.poll() is not None, 10)


def test_who_leaves_while_the_reader_reads_is_stopped(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.engine.worker_client.SILENT", 30)
    with with_worker(tiny, Limits(seconds=0.3)) as (service, worker):
        os.kill(worker.process.pid, signal.SIGSTOP)
        engine = service.service.engine
        busy = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, service.url, {"text": "a b"})
            until(lambda: any(batch.live for batch in engine.scheduler.batches), 5)
            # The reader has something else to do when the time of the request is up.
            loop = engine.scheduler.loop
            loop.call_soon_threadsafe(lambda: asyncio.ensure_future(engine.call(lambda: busy.wait(1.0)), loop=loop))
            assert asked.result() == 504
        until(lambda: not engine.scheduler.batches, 5)
        assert service.service.metrics.cancelled == 1
        os.kill(worker.process.pid, signal.SIGCONT)


def test_padding_counts_in_what_flows() -> None:
    """Forty sentences of a word and one of many: together they have at most so many tokens, padding included."""
    translator = slow(seconds=0.002)
    with running({"m": translator}, Limits(batch_tokens=300, seconds=60)) as service, ThreadPoolExecutor(41) as pool:
        scheduler, most, sizes = service.service.engine.scheduler, [], []
        count = RunningBatch.count

        def counted(batch: RunningBatch, *given: object) -> None:
            count(batch, *given)
            if batch.sizes:
                sizes.append(max(batch.sizes))
                most.append(batch.rows * max(batch.sizes))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunningBatch, "count", counted)
            texts = [*["a"] * 20, " ".join("abcdefgh" * 8), *["a"] * 20]
            found = list(pool.map(lambda text: ask(service.url, {"text": text}, 60), texts))
        assert set(found) == {200}
        assert max(sizes) > 60
        assert max(most) <= 300
        assert not scheduler.batches


def test_a_burst_after_single_requests_is_let_in() -> None:
    there = running(
        {"m": slow(seconds=0.03)}, Limits(seconds=12)
    )  # one takes over a second, sixty at once not much more
    with there as service, ThreadPoolExecutor(60) as pool:
        text = {"text": "bead cafe deaf face a b c d e f g h"}
        for _ in range(5):
            ask(service.url, text)
        found = list(pool.map(lambda _: ask(service.url, text), range(60)))
        assert set(found) == {200}, f"{found.count(429)} of 60 refused"


def test_idle_time_after_somebody_left_does_not_count(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.engine.worker_client.SILENT", 30)
    with with_worker(tiny, Limits(seconds=0.5)) as (service, worker):
        scheduler = service.service.engine.scheduler
        os.kill(worker.process.pid, signal.SIGSTOP)
        assert ask(service.url, {"text": "a"}) == 504
        until(lambda: not scheduler.batches, 5)
        os.kill(worker.process.pid, signal.SIGCONT)
        assert not scheduler.ahead()
        assert not scheduler.throughput.busy


def test_a_folder_with_a_sign_in_its_name(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "lr=3e-4", "rnn")
    worker = WorkerClient(dict([model_name(str(folder))]), 1)
    try:
        assert worker.connection.poll(60)
        assert set(worker.connection.recv()) == set(worker.models)
    finally:
        worker.close()


def test_nothing_is_imported_from_the_working_directory(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "signal.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    worker = WorkerClient({"m": str(tiny)}, 1)
    try:
        assert worker.connection.poll(60)
        assert set(worker.connection.recv()) == set(worker.models)
    finally:
        worker.close()


def test_a_folder_that_was_written_anew_is_not_mixed(tmp_path: Path) -> None:
    local = heedful.load(random_folder(tmp_path / "m", "transformer", seed=1), "cpu")
    random_folder(tmp_path / "other", "transformer", seed=5)
    wanted = local.translate("a b c").text
    with running({"m": local}, folders={"m": str(tmp_path / "other")}) as service:
        end = time.monotonic() + 15
        while time.monotonic() < end and not service.service.engine.worker_ready:
            time.sleep(0.05)
        assert service.client.translate("a b c")["text"] == wanted


def test_what_cannot_be_sent_is_said_and_survived(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> object:
        raise MemoryError

    with with_worker(tiny, Limits(seconds=2)) as (service, _):
        with monkeypatch.context() as patch:
            patch.setattr("heedful.serve.engine.worker_client.pack", fails)
            assert ask(service.url, {"text": "a"}) == 503
        assert ask(service.url, {"text": "a"}) == 200


def test_no_process_to_be_had_is_survived(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> object:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("heedful.serve.engine.processes.subprocess.Popen", fails)
    with running({"m": heedful.load(tiny, "cpu")}, folders={"m": str(tiny)}) as service:
        assert ask(service.url, {"text": "a"}) == 200


@pytest.mark.slow
def test_a_signal_while_it_starts(tiny: Path) -> None:
    with process(str(tiny)) as (service, _):
        (other,) = children(service.pid)
        time.sleep(0.3)  # it imports
        os.kill(other, signal.SIGINT)
        service.send_signal(signal.SIGINT)
        assert service.wait(20) == 0
        assert service.stderr is not None
        assert "Traceback" not in service.stderr.read()


def test_a_stopped_process_is_noticed_while_the_line_to_it_is_full(tiny: Path) -> None:
    """Whoever sends waits then; that is no reason to think that the process has nothing to do."""
    with with_worker(tiny, Limits(seconds=5)) as (service, worker), ThreadPoolExecutor(64) as pool:
        os.kill(worker.process.pid, signal.SIGSTOP)
        text = "bead cafe deaf face " * 10
        assert set(pool.map(lambda _: ask(service.url, {"text": text}), range(200))) <= {200, 429}
        until(lambda: worker.process.poll() is not None, 10)
