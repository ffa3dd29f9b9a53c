"""Many at once: each gets its own answer, the long do not hold up the short, and nobody is worked for who is gone."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from random_translators import random_translator
from running import Running, running, slow, until

from heedful.client import Client, ServiceError
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError
from heedful.serve.engine.batches import StaticBatch
from heedful.serve.limits import Limits

LETTERS = "abcdefgh"
LONG = "Bead cafe deaf face! "  # a sentence


def test_each_gets_its_own_answer() -> None:
    """Many clients with other texts, beams, models and wishes; every answer is checked against the translator's."""
    models = {"transformer": random_translator("transformer"), "rnn": random_translator("rnn", seed=2)}
    texts = [" ".join(LETTERS[(i * j) % 8] for j in range(1, 2 + i % 7)) for i in range(60)]

    def one(i: int) -> None:
        name, beam, n_best = ("transformer", "rnn")[i % 2], (1, 1, 3)[i % 3], (1, 1, 2)[i % 3]
        client = Client(service.url, timeout=60)
        try:
            item = client.translate(texts[i], model=name, beam=beam, n_best=n_best, alignments=i % 5 == 0)
            how = Decoding(beam=beam, n_best=n_best)
            assert (item["source"], item["text"]) == (texts[i], models[name].translate(texts[i], how).text)
            if i % 10 == 0:
                tokens = [event for kind, event in client.stream(texts[i], model=name) if kind == "token"]
                assert tokens[-1]["text"] == models[name].translate(texts[i]).text
        finally:
            client.close()

    with running(models) as service, ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(60)))
        assert service.service.metrics.rows.sum > len(service.service.metrics.rows.counts)
        assert max(i for i, count in enumerate(service.service.metrics.rows.counts) if count) > 0, "nothing was batched"
        assert service.service.engine.waiting == service.service.active == 0
        assert not service.service.engine.scheduler.batches


def test_a_long_text_does_not_hold_up_short_ones() -> None:
    limits = Limits(batch_rows=4, seconds=120)
    with running({"m": slow()}, limits) as service, ThreadPoolExecutor(1) as pool:
        alone = time.perf_counter()
        service.client.translate("a b")
        alone = time.perf_counter() - alone
        other = Client(service.url, timeout=120)
        long = pool.submit(other.translate, LONG * 60)
        until(lambda: service.service.engine.waiting > 0)
        begun = time.perf_counter()
        service.client.translate("a b")
        took = time.perf_counter() - begun
        assert not long.done(), "the long text is too short to tell"
        assert took < 6 * alone + 0.5, f"{took:.2f} s beside a long text, {alone:.2f} s alone"
        assert len(long.result()["text"]) > 100
        other.close()


def _gone(service: Running, path: str, body: dict[str, object], read: int = 0) -> None:
    """Ask, read some bytes of the answer, and go away."""
    place = urlsplit(service.url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as sent:
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        sent.sendall(head.encode() + b"\r\n\r\n" + data)
        if read:
            assert sent.recv(read)
        else:
            until(lambda: bool(service.service.engine.scheduler.batches))


@pytest.mark.parametrize(("path", "read"), [("/v1/translate", 0), ("/v1/stream", 300)])
@pytest.mark.parametrize("beam", [1, 2])
def test_who_goes_away_costs_nothing_more(path: str, read: int, beam: int) -> None:
    with running({"m": slow(seconds=0.02)}) as service:
        _gone(service, path, {"text": LONG * 20, "beam": beam}, read)
        until(lambda: service.service.active == 0)
        until(lambda: not service.service.engine.scheduler.batches and not service.service.engine.waiting)
        steps = service.service.metrics.steps
        assert steps < 40  # all of it would be over a hundred
        time.sleep(0.1)
        assert service.service.metrics.steps == steps
        # What was decoded together with it goes on.
        assert service.client.translate("a b", beam=beam)["text"]


def test_time_is_up() -> None:
    with running({"m": slow(seconds=0.05)}, Limits(seconds=0.3)) as service:
        begun = time.perf_counter()
        with pytest.raises(ServiceError, match="took longer than 0.3 s") as caught:
            service.client.translate(LONG * 5)
        assert caught.value.status == 504
        assert time.perf_counter() - begun < 3
        until(lambda: not service.service.engine.scheduler.batches and not service.service.engine.waiting, 3)
        steps = service.service.metrics.steps
        time.sleep(0.15)
        assert service.service.metrics.steps == steps
        with pytest.raises(ServiceError, match="took longer") as caught:
            list(service.client.stream(LONG * 5))
        assert caught.value.status == 504


def test_the_queue_is_full() -> None:
    limits = Limits(queue=3, batch_rows=1, batches=1, requests=50)
    with running({"m": slow(seconds=0.02)}, limits) as service, ThreadPoolExecutor(12) as pool:

        def one(_: int) -> int:
            connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
            try:
                connection.request("POST", "/v1/translate", b'{"text": "a"}', {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status == 429:
                    assert int(answer.headers["Retry-After"]) >= 1
                return answer.status
            finally:
                connection.close()

        found = list(pool.map(one, range(12)))
        assert set(found) == {200, 429}
        assert found.count(200) >= 4  # one that is written and three that wait
        # A client that is patient gets its answer.
        clients = [Client(service.url, patience=60) for _ in range(6)]
        for done in [pool.submit(client.translate, "a") for client in clients]:
            assert done.result()["text"]
        for client in clients:
            client.close()


def test_who_was_let_in_is_not_refused_later() -> None:
    limits = Limits(queue=2, batch_rows=1, batches=1)
    with running({"m": slow(seconds=0.01)}, limits) as service, ThreadPoolExecutor(4) as pool:
        events = service.client.stream("A! B! C!")
        seen = [next(events)[0], next(events)[0]]
        others = [Client(service.url, patience=0) for _ in range(4)]
        asked = [pool.submit(other.translate, [f"a {i}", "b", "c", "d"], beam=2) for i, other in enumerate(others)]
        until(lambda: service.service.engine.scheduler.queue.load(1) >= 2)
        with pytest.raises(ServiceError, match="sentences wait already") as caught:
            next(others[0].stream("A!"))
        assert caught.value.status == 429, "it is refused before it begins"
        with pytest.raises(ServiceError, match="sentences wait already"):
            others[0].align([("a", "A")])
        seen += [name for name, _ in events]
        assert seen[-1] == "done"
        assert seen.count("token") > 3
        for one in asked:
            assert one.exception() is None or isinstance(one.exception(), ServiceError)
        for other in others:
            other.close()


def test_one_request_does_not_fill_the_queue() -> None:
    limits = Limits(queue=10, batch_rows=4, sentences=60)
    with running({"m": slow(seconds=0.002)}, limits) as service, ThreadPoolExecutor(1) as pool:
        other = Client(service.url, timeout=60)
        long = pool.submit(other.translate, LONG * 40)
        until(lambda: service.service.engine.waiting > 12)
        assert service.client.translate("a b")["text"]
        assert long.result()["text"]
        with pytest.raises(DataError, match="61 sentences; 60 are allowed"):
            service.client.translate([LONG * 30, LONG * 31])
        other.close()


def test_too_many_requests_at_once() -> None:
    with running({"m": slow(seconds=0.02)}, Limits(requests=2)) as service, ThreadPoolExecutor(2) as pool:
        clients = [Client(service.url) for _ in range(2)]
        waiting = [pool.submit(client.translate, "a b c") for client in clients]
        until(lambda: service.service.active == 2)
        with pytest.raises(ServiceError, match="2 requests are being worked on") as caught:
            service.client.translate("a")
        assert caught.value.status == 429
        assert all(done.result()["text"] for done in waiting)
        assert service.client.ready()
        for client in clients:
            client.close()


def test_a_model_that_fails_is_said_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    translator = random_translator("rnn")
    good = translator.parts.model.step
    broken = threading.Event()

    def fails(*arguments: object, **named: object) -> object:
        if broken.is_set():
            raise RuntimeError("a fault of the test")
        return good(*arguments, **named)

    translator.parts.model.step = fails  # type: ignore[method-assign]
    with running({"m": translator}) as service:
        broken.set()
        with pytest.raises(ServiceError, match="its log says why") as caught:
            service.client.translate("a")
        assert caught.value.status == 500
        broken.clear()
        assert service.client.translate("a")["text"] == translator.translate("a").text
    assert "a fault of the test" in caplog.text


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("can't allocate memory")]
)
def test_no_memory_is_said_and_survived(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("rnn")

    def fails(*_: object) -> object:
        raise error

    with running({"m": translator}) as service:
        with monkeypatch.context() as patch:
            patch.setattr(translator.attention, "read", fails)
            with pytest.raises(ServiceError, match="out of memory") as caught:
                service.client.translate("a", alignments=True)
            assert caught.value.status == 503
        assert service.client.translate("a", alignments=True)["text"]


def test_what_is_read_again_has_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator("rnn")
    look, sizes = translator.attention.read, []

    def counted(memory: object, targets: list[list[int]], log_probs: object) -> object:
        sizes.append(len(targets) * max(map(len, targets)))
        return look(memory, targets, log_probs)

    monkeypatch.setattr(translator.attention, "read", counted)
    with running({"m": translator}, Limits(batch_tokens=80)) as service:
        items = service.client.translate(["a b c"] * 12, alignments=True, beam=2, n_best=2)
        assert len(items) == 12
        assert 0 < max(sizes) <= 80


def test_it_is_not_ready_without_its_thread() -> None:
    with running({"m": random_translator("rnn")}) as service:
        assert service.client.ready()
        service.service.engine.close()
        assert not service.client.ready()


def test_limits_that_let_nothing_through() -> None:
    for name, value in (("chars", 0), ("seconds", float("nan")), ("queue", -1), ("items", 10**13)):
        with pytest.raises(ConfigError, match=f"the limit {name} is"):
            Limits(**{name: value})


@pytest.mark.parametrize("ask", [{"beam": 4}, {"beam": 4, "trace": True}])
def test_what_was_written_is_not_kept(ask: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waits keeps nothing of its last batch: a beam over long texts is hundreds of megabytes."""
    kept: list[weakref.ref[StaticBatch]] = []
    begin = StaticBatch.__init__

    def noted(batch: StaticBatch, *arguments: Any, **named: Any) -> None:
        begin(batch, *arguments, **named)
        kept.append(weakref.ref(batch))

    monkeypatch.setattr(StaticBatch, "__init__", noted)
    with running({"m": random_translator("transformer")}, Limits(seconds=60)) as service:
        assert service.client.translate("bead cafe deaf face " * 5, **ask)["text"] is not None

        def gone() -> bool:
            gc.collect()
            return not any(one() for one in kept)

        assert kept
        until(gone)
