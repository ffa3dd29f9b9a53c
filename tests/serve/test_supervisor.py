"""Workers that panic, die or hang: requests are answered all the same, /ready tells the truth, and all recovers."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

from random_translators import random_translator
from running import get, post, running, slow, until, with_worker

from heedful.decoding import ContinuousBatch
from heedful.errors import ModelError
from heedful.serve.engine import supervisor as supervision
from heedful.serve.engine.batches import GreedyBatch, RunningBatch
from heedful.serve.engine.engine import EncoderThread
from heedful.serve.engine.request import Sentence
from heedful.serve.engine.scheduler import Scheduler
from heedful.serve.engine.supervisor import Backoff, SupervisedThread, Supervisor
from heedful.serve.http import service as service_module
from heedful.serve.limits import Limits
from heedful.text.codec import Codec

LONG = "bead cafe deaf face! " * 150  # longer than what is cut in the event loop


class PanicException(BaseException):
    """As pyo3 raises it."""


def restarts(url: str, worker: str) -> int:
    lines = get(url, "/metrics")[1].decode().splitlines()
    (value,) = (
        line.split()[-1] for line in lines if line.startswith(f'heedful_worker_restarts_total{{worker="{worker}"')
    )
    return int(value)


def test_a_tokenizer_that_panics_leaks_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("rnn")
    with running({"m": translator}, Limits(seconds=20)) as service:
        with monkeypatch.context() as patch:
            for error, status in ((PanicException("index out of bounds"), 500), (ModelError("cannot read"), 422)):

                def panics(*_: object, error: BaseException = error) -> object:
                    raise error

                patch.setattr(Codec, "encode_all", panics)
                for _ in range(2 * service_module.HELPERS):
                    assert post(service.url, "/v1/translate", {"text": LONG})[0] == status
        assert post(service.url, "/v1/translate", {"text": LONG})[0] == 200
        assert get(service.url, "/ready")[0] == 200


@pytest.mark.parametrize("where", ["encode", "step", "logits"])
@pytest.mark.parametrize("asked", [{}, {"beam": 2}, {"alignments": True}], ids=["greedy", "beam", "traced"])
def test_a_panic_in_a_worker_is_an_error_and_nothing_more(
    where: str, asked: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = random_translator("transformer")
    threads = set()
    with running({"m": translator}) as service:
        workers = service.service.engine.supervisor.workers
        threads = {worker.thread for worker in workers}

        def panics(*_: object, **__: object) -> object:
            raise PanicException("not yet implemented")

        with monkeypatch.context() as patch:
            patch.setattr(translator.parts.model, where, panics)
            assert post(service.url, "/v1/translate", {"text": "a b", **asked})[0] == 500
        assert post(service.url, "/v1/translate", {"text": "a b", **asked})[0] == 200
        assert {worker.thread for worker in workers} == threads, "a thread ended"


def test_one_that_cannot_be_read_does_not_fail_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of several requests that are read together: only the one to blame is refused."""
    translator = random_translator("transformer", kind="word")
    model, begun, go = translator.parts.model, threading.Event(), threading.Event()
    bad, encode = translator.parts.source.encode("g").ids[0], model.encode

    def read(x: object, *rest: object) -> object:
        if not begun.is_set():
            begun.set()
            go.wait(10)
        if bool((x == bad).any()):  # type: ignore[attr-defined]
            raise PanicException("g")
        return encode(x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "encode", read)
    with running({"m": translator}) as service, ThreadPoolExecutor(4) as pool:
        first = pool.submit(post, service.url, "/v1/translate", {"text": "a"})
        assert begun.wait(10)
        others = [pool.submit(post, service.url, "/v1/translate", {"text": text}) for text in ("b c", "g", "d e")]
        until(lambda: service.service.engine.waiting == 3)
        go.set()
        assert first.result()[0] == 200
        assert [one.result()[0] for one in others] == [200, 500, 200]


@pytest.mark.parametrize("body", [{"text": "a b c"}, {"text": "a b c", "beam": 2}])
def test_a_thread_that_dies_is_replaced_and_nothing_is_lost(
    body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = random_translator("transformer")
    begin = EncoderThread.encode
    died = 0

    def dies(reader: EncoderThread, *picked: object) -> None:
        nonlocal died
        if not died:
            died += 1
            raise PanicException("a bug of ours")
        begin(reader, *picked)  # type: ignore[arg-type]

    monkeypatch.setattr(EncoderThread, "encode", dies)
    with running({"m": translator}) as service:
        status, content = post(service.url, "/v1/translate", body)
        assert (status, died) == (200, 1)
        from heedful.decoding import Decoding

        how = Decoding(beam=int(str(body.get("beam", 1))))
        assert json.loads(content)["translations"][0]["text"] == translator.translate("a b c", how).text
        assert restarts(service.url, "encoder thread") == 1
        assert get(service.url, "/ready")[0] == 200


@pytest.mark.parametrize(
    "body", [{"text": "a b c"}, {"text": "a b c", "beam": 2}, None], ids=["greedy", "beam", "stream"]
)
def test_a_thread_that_hangs_is_replaced_and_nothing_is_lost(
    body: dict[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third step hangs: what was written is written anew, and a stream does not say it twice."""
    translator = random_translator("transformer")
    wanted = translator.translate("a b c").text
    model, steps, hang = translator.parts.model, 0, threading.Event()
    step = model.step

    def hangs(*arguments: object, **named: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 3:
            hang.wait(60)
        return step(*arguments, **named)  # type: ignore[arg-type]

    with running({"m": translator}) as service:
        assert post(service.url, "/v1/translate", body or {"text": "a b c"})[0] == 200  # the first call takes longer
        monkeypatch.setattr(supervision, "HANGS", 2.0)
        monkeypatch.setattr(model, "step", hangs)
        if body is None:
            events = list(service.client.stream("a b c"))
            tokens = [event for kind, event in events if kind == "token"]
            assert [event["at"] for event in tokens] == list(range(len(tokens)))
            assert tokens[-1]["text"] == events[-1][1]["translation"]["text"] == wanted
        else:
            assert post(service.url, "/v1/translate", body)[0] == 200
        assert restarts(service.url, "decoder thread") >= 1
        hang.set()
        until(lambda: not service.service.engine.supervisor.abandoned)
        assert post(service.url, "/v1/translate", {"text": "a b c"})[0] == 200
        until(lambda: not service.service.engine.scheduler.batches)


@pytest.mark.parametrize("fails", ["hangs", "raises", "raises early"])
def test_sentences_that_join_when_the_decoder_fails(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were entered already are put back once, and those that were not are answered."""
    translator = random_translator("transformer")
    begun, go, back = threading.Event(), threading.Event(), []
    join, rules, requeue = ContinuousBatch.join, GreedyBatch.rules, Scheduler.requeue

    def joins(*arguments: object) -> None:
        if begun.is_set():
            join(*arguments)  # type: ignore[arg-type]
            return
        begun.set()
        if fails == "raises":
            raise PanicException("a bug of ours")
        go.wait(60)

    def asks(batch: GreedyBatch, picked: list[Sentence]) -> object:
        if fails == "raises early" and not begun.is_set():
            begun.set()
            raise PanicException("a bug of ours")
        return rules(batch, picked)

    def puts_back(scheduler: Scheduler, batch: RunningBatch | None, picked: list[Sentence]) -> None:
        back.extend(picked)
        requeue(scheduler, batch, picked)

    with running({"m": translator}) as service, ThreadPoolExecutor(1) as pool:
        supervisor = service.service.engine.supervisor
        monkeypatch.setattr(ContinuousBatch, "join", joins)
        monkeypatch.setattr(GreedyBatch, "rules", asks)
        monkeypatch.setattr(Scheduler, "requeue", puts_back)
        answer = pool.submit(post, service.url, "/v1/translate", {"text": ["a b c", "d e"]})
        assert begun.wait(20)
        if fails == "hangs":
            (worker,) = (one for one in supervisor.workers if one.name == "decoder thread")
            supervisor._fail(worker, "hangs", 0.0)
            assert answer.result()[0] == 200
            assert {work.failures for work, _ in back} == {1}
            assert sorted(index for _, index in back) == list(range(len(back)))
            assert {(work.running, work.dropped) for work, _ in back} == {(0, False)}
            go.set()
        else:
            assert answer.result()[0] == 500
        assert post(service.url, "/v1/translate", {"text": "a b c"})[0] == 200
        until(lambda: not service.service.engine.scheduler.batches)


def test_ready_tells_of_a_worker_that_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = slow("rnn", 0.001)
    hang = threading.Event()
    step = translator.parts.model.step

    def hangs(*arguments: object, **named: object) -> object:
        hang.wait(60)
        return step(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(supervision, "ABANDONED", 1)
    with running({"m": translator}, Limits(seconds=60)) as service:
        assert post(service.url, "/v1/translate", {"text": "a"})[0] == 200  # the first call takes longer
        monkeypatch.setattr(supervision, "HANGS", 1.0)
        monkeypatch.setattr(translator.parts.model, "step", hangs)
        limits, service.service.limits = service.service.limits, Limits(seconds=2)
        assert post(service.url, "/v1/translate", {"text": "a"})[0] == 504
        service.service.limits = limits
        until(lambda: get(service.url, "/ready")[0] == 503)
        assert "hang" in json.loads(get(service.url, "/ready")[1])["detail"]
        assert get(service.url, "/health")[0] == 200
        hang.set()
        until(lambda: get(service.url, "/ready")[0] == 200)
        assert post(service.url, "/v1/translate", {"text": "a"})[0] == 200


def test_a_request_that_fails_its_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise PanicException("a bug of ours")

    with running({"m": random_translator("rnn")}, Limits(seconds=20)) as service:
        supervisor = service.service.engine.supervisor
        for backoff in supervisor.backoffs.values():
            backoff.first = 0.01
        with monkeypatch.context() as patch:
            patch.setattr(EncoderThread, "encode", dies)
            status, content = post(service.url, "/v1/translate", {"text": "a"})
        assert (status, "3 times" in json.loads(content)["detail"]) == (500, True)
        assert post(service.url, "/v1/translate", {"text": "a"})[0] == 200


@pytest.mark.slow
def test_the_decoding_process_is_started_again(tiny: Path) -> None:
    with with_worker(tiny, Limits(seconds=30)) as (service, worker):
        text = {"text": "a b c d"}
        before = json.loads(post(service.url, "/v1/translate", text)[1])["translations"][0]["text"]
        os.kill(worker.process.pid, signal.SIGKILL)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: post(service.url, "/v1/translate", text), range(12)))
        assert {status for status, _ in answers} == {200}
        assert {json.loads(content)["translations"][0]["text"] for _, content in answers} == {before}
        until(lambda: service.service.engine.worker_ready and service.service.engine.worker is not worker, 60)
        assert restarts(service.url, "decoding process") == 1
        assert post(service.url, "/v1/translate", text)[0] == 200
        assert get(service.url, "/ready")[0] == 200


def test_helper_threads_that_hang_are_told_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    encode = Codec.encode_all

    def hangs(codec: Codec, texts: list[str]) -> object:
        hang.wait(60)
        return encode(codec, texts)

    monkeypatch.setattr(service_module, "GRACE", 0.0)
    monkeypatch.setattr(service_module, "STUCK", 2)
    with running({"m": random_translator("rnn")}, Limits(seconds=0.5)) as service, ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(Codec, "encode_all", hangs)
        found = pool.map(lambda _: post(service.url, "/v1/translate", {"text": LONG})[0], range(2))
        assert set(found) == {504}
        until(lambda: get(service.url, "/ready")[0] == 503)
        assert "helper threads" in json.loads(get(service.url, "/ready")[1])["detail"]
        hang.set()
        until(lambda: get(service.url, "/ready")[0] == 200)
        until(lambda: service.service.helper_slots._value == service_module.HELPERS)


def test_what_is_slow_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of work may take ten times the longest one so far; another worker in its place knows of it."""
    now = 0.0
    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=lambda: now))
    end = threading.Event()

    class Worker(SupervisedThread):
        def run(self) -> None:
            end.wait(60)

        def recover(self) -> None:
            pass

        def wait(self) -> bool:
            return False

        def turn(self) -> None:
            pass

    worker = Worker(None)  # type: ignore[arg-type]
    worker.start()
    try:
        worker.begin_work()
        assert (worker.fault(19.0), worker.fault(21.0)) == ("", "hangs")
        now = 5.0
        worker.end_work()
        worker.begin_work()
        assert (worker.fault(now + 49.0), worker.fault(now + 51.0)) == ("", "hangs")
        now = 1_000.0
        worker.end_work()
        assert worker.limit == supervision.MOST_SECONDS
        scheduler = SimpleNamespace(metrics=SimpleNamespace(restarts=Counter()))
        supervisor = Supervisor(scheduler, [worker])  # type: ignore[arg-type]
        supervisor.failed["thread"] = "hangs"
        supervisor._replace(0, now)
        assert supervisor.workers[0] is not worker
        assert supervisor.workers[0].limit == worker.limit
    finally:
        end.set()


def test_a_decoding_process_that_loads_slowly_gets_more_time() -> None:
    given_up = []
    worker = SimpleNamespace(
        gone=False,
        ready=False,
        late=False,
        mismatched=False,
        started=0.0,
        why="",
        give_up=lambda: given_up.append(worker),
    )
    scheduler = SimpleNamespace(closed=False, batches=[], worker=worker, metrics=SimpleNamespace(restarts=Counter()))
    supervisor = Supervisor(scheduler, [], lambda: None)  # type: ignore[arg-type]
    supervisor.check(supervision.LOADS - 1)
    assert not given_up
    supervisor.check(supervision.LOADS + 1)
    supervisor.check(supervision.LOADS + 2)
    assert (len(given_up), supervisor.loads) == (1, 2 * supervision.LOADS)
    worker.started, worker.late = 1_000.0, False  # another one
    supervisor.check(1_000.0 + 2 * supervision.LOADS - 1)
    assert len(given_up) == 1
    worker.ready = True
    supervisor.check(2_000.0)
    assert supervisor.loads == supervision.LOADS


def test_backoff_doubles_and_forgets() -> None:
    backoff = Backoff(first=1.0, most=8.0, healthy=60.0)
    backoff.start(0.0)
    assert [backoff.fail(1.0) for _ in range(6)] == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff.not_before == 9.0
    backoff.start(10.0)
    assert backoff.fail(100.0) == 0.0
