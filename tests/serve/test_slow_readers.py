"""Who does not read what they asked for keeps no place and no memory; who reads slowly gets it all."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi")

from fastapi import Request
from random_translators import random_translator
from running import Running, running, until

from heedful.serve.http import server
from heedful.serve.http.connections import protocol
from heedful.serve.http.errors import HttpProblem
from heedful.serve.http.flow_control import SlowReaderProtocol
from heedful.serve.http.models import ModelRegistry
from heedful.serve.http.service import TranslationService
from heedful.serve.limits import Limits

LONG = "Bead cafe deaf face! "  # a sentence


def still(number: Callable[[], int]) -> bool:
    """Whether a number above 0 stays as it is for a while."""
    before = number()
    time.sleep(0.3)
    return 0 < before == number()


@contextmanager
def asked(service: Running, path: str, body: dict[str, object]) -> Iterator[socket.socket]:
    """Ask by a connection that has little room for the answer, and read nothing of it."""
    place, data = urlsplit(service.url), json.dumps(body).encode()
    with socket.socket() as sent:
        sent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent.connect((place.hostname, place.port))
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        sent.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        yield sent


def test_who_reads_no_events_is_given_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(server, "SEND_BUFFER", 4096)
    translator = random_translator("transformer")
    step = translator.parts.model.step

    def slowly(*arguments: object, **named: object) -> object:
        time.sleep(0.001)
        return step(*arguments, **named)

    monkeypatch.setattr(translator.parts.model, "step", slowly)
    with running({"m": translator}, Limits(seconds=2, cells=10**9)) as service:
        there, numbers = service.service, service.service.metrics
        with asked(service, "/v1/stream", {"text": LONG * 200}) as sent:
            until(lambda: there.active == 1)
            # It does not run ahead of its reader by more than the sentence that is being written.
            until(lambda: still(lambda: numbers.steps), 2)
            written = numbers.sentences
            assert 0 < written < 100
            assert there.active == 1
            until(lambda: there.active == 0, 5)
            until(lambda: not service.server.server_state.connections)
            assert numbers.sentences == written
            assert not there.engine.scheduler.batches
            assert not there.engine.waiting
            sent.settimeout(5)
            found = b""
            while more := sent.recv(1 << 16):
                found += more
            assert b"event: start" in found
            assert not found.endswith(b"0\r\n\r\n"), "it looks as if it were whole"
        assert service.client.translate("a b")["text"]
    gc.collect()
    assert [record.name for record in caplog.records] == ["heedful.serve"]
    assert re.search(r"\b1\b.*that their client did not read", caplog.text)


def test_an_answer_that_nobody_reads_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SEND_BUFFER", 4096)
    monkeypatch.setattr(server, "protocol", lambda limits, registry: protocol(replace(limits, seconds=1), registry))
    there = running({"m": random_translator("rnn")})
    body = {"text": ["a b c"] * 100, "alignments": True}
    with there as service, asked(service, "/v1/translate", body):
        until(lambda: service.service.metrics.requests["/v1/translate", 200] == 1)
        assert service.service.active == 0
        (connection,) = service.server.server_state.connections
        assert connection.transport.get_write_buffer_size() > 20_000
        until(lambda: not service.server.server_state.connections)


def test_who_reads_slowly_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SEND_BUFFER", 4096)
    monkeypatch.setattr(server, "protocol", lambda limits, registry: protocol(replace(limits, seconds=0.4), registry))
    with running({"m": random_translator("rnn")}) as service:
        with asked(service, "/v1/translate", {"text": ["a b c"] * 100, "alignments": True}) as sent:
            begun, found = time.monotonic(), b""
            sent.settimeout(5)
            while not found.endswith(b"]}"):
                found += sent.recv(2048)
                assert len(found) < 10**6
                time.sleep(0.02)
        assert time.monotonic() - begun > 0.8, "the answer is too short to tell"
        assert len(json.loads(found.partition(b"\r\n\r\n")[2])["translations"]) == 100


class Sent:
    """A transport with so many bytes left."""

    def __init__(self, left: int) -> None:
        self.left, self.aborted = left, False

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True


def test_the_watch_ends_with_what_it_watches() -> None:
    async def watched(then: Callable[[SlowReaderProtocol], None]) -> bool:
        protocol = SlowReaderProtocol()
        protocol.seconds, protocol.transport = 0.05, Sent(100)  # type: ignore[assignment]
        protocol.pause_writing()
        await asyncio.sleep(0.02)
        then(protocol)
        await asyncio.sleep(0.05)
        return protocol.transport.aborted  # type: ignore[attr-defined]

    assert asyncio.run(watched(lambda _: None))
    assert not asyncio.run(watched(lambda protocol: setattr(protocol.transport, "left", 50)))
    assert not asyncio.run(watched(lambda protocol: protocol.resume_writing()))
    assert not asyncio.run(watched(lambda protocol: protocol.connection_lost(None)))


def test_time_that_is_up_is_up_for_what_is_there_already() -> None:
    async def late() -> None:
        service = TranslationService(ModelRegistry({"m": random_translator("rnn")}), Limits())
        request = Request({"type": "http", "state": {"deadline": asyncio.get_running_loop().time() - 1}})
        async with service.deadline(request):
            pass

    with pytest.raises(HttpProblem, match="took longer than 30 s"):
        asyncio.run(late())
