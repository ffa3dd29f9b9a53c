"""Connections that are idle, half-open, too many or send too much: bounded, counted, and nobody else waits."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
from random_translators import random_translator
from running import Running, running, until
from uvicorn import Config
from uvicorn.server import ServerState

from heedful.errors import ConfigError
from heedful.serve.http import bodies, connections, flow_control, metrics, server
from heedful.serve.http.bodies import Bodies
from heedful.serve.http.connections import address_key
from heedful.serve.http.errors import HttpProblem
from heedful.serve.http.flow_control import ReceiveRate
from heedful.serve.http.metrics import Refusals
from heedful.serve.limits import Limits

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TEXT = b'{"text": "a b"}'
TRANSLATOR: list[Any] = []  # one for all tests


@contextmanager
def serving(token: str = "", **limits: Any) -> Iterator[Running]:
    if not TRANSLATOR:
        TRANSLATOR.append(random_translator("rnn"))
    with running({"m": TRANSLATOR[0]}, Limits(**limits), token) as service:
        yield service


class Peer:
    """A client that sends bytes."""

    def __init__(self, service: Running, source: str = "127.0.0.1") -> None:
        place = urlsplit(service.url)
        assert place.hostname
        assert place.port
        self.socket = socket.create_connection((place.hostname, place.port), 20, (source, 0))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Peer:
        self.socket.sendall(data)
        return self

    def rest(self) -> bytes:
        """Everything until the service closes."""
        found = b""
        try:
            while more := self.socket.recv(1 << 16):
                found += more
        except ConnectionResetError:
            pass
        return found

    def answer(self) -> tuple[int, bytes]:
        """One answer, which has a length: its status and its body."""
        found = b""
        while b"\r\n\r\n" not in found:
            more = self.socket.recv(1)
            assert more, f"closed after {found!r}"
            found += more
        head, length = found.lower(), 0
        if match := re.search(rb"content-length: (\d+)", head):
            length = int(match[1])
        body = b""
        while len(body) < length:
            body += self.socket.recv(length - len(body))
        return int(head.split()[1]), body


def status(answer: bytes) -> int:
    return int(answer.split(maxsplit=2)[1])


def counts(service: Running) -> dict[str, int]:
    return {reason: count for reason, count in service.service.metrics.refusals.counts.items() if count}


def healthy(service: Running, source: str = "127.0.0.1") -> bool:
    with Peer(service, source) as peer:
        return peer.send(GET).answer()[0] == 200


# Idle and half-open connections


def test_idle_and_half_open_connections_are_closed() -> None:
    with serving(idle=0.3, header_seconds=0.3) as service, ExitStack() as stack:
        idle = [stack.enter_context(Peer(service)) for _ in range(20)]
        used = stack.enter_context(Peer(service))
        assert used.send(GET).answer()[0] == 200
        half = [stack.enter_context(Peer(service)).send(GET[:30]) for _ in range(20)]
        again = stack.enter_context(Peer(service))
        assert again.send(GET).answer()[0] == 200
        again.send(GET[:1])
        assert {peer.rest() for peer in (*idle, used)} == {b""}
        answers = [peer.rest() for peer in (*half, again)]
        assert {status(answer) for answer in answers} == {408}
        assert all(b"connection: close" in answer for answer in answers)
        until(lambda: not service.service.connections.open)
        assert counts(service) == {"header_time": 21}
        assert service.service.connections.idle_closed == 21
        assert not service.service.connections.by_address


def test_the_time_of_a_header_is_a_total() -> None:
    """A byte now and then does not prolong it."""
    with serving(header_seconds=0.5) as service, Peer(service) as peer:
        peer.socket.setblocking(False)
        found = b""
        for byte in GET[:-1] * 100:
            try:
                peer.socket.send(bytes([byte]))
                found = peer.socket.recv(4096)
                break
            except BlockingIOError:
                time.sleep(0.02)
        assert status(found) == 408


def test_a_header_in_pieces_is_read() -> None:
    with serving() as service, Peer(service) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\n" + GET:
            peer.send(bytes([byte]))
        assert peer.answer()[0] == 200


def test_connections_over_the_limit_of_an_address_are_refused() -> None:
    with serving(connections_per_address=5) as service, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(Peer(service))
        until(lambda: len(service.service.connections.open) == 5)
        refused = [stack.enter_context(Peer(service)).rest() for _ in range(3)]
        assert {status(answer) for answer in refused} == {503}
        assert all(b"connection: close" in answer and b"retry-after" in answer for answer in refused)
        assert healthy(service, "127.0.0.2")
        assert counts(service) == {"connections_per_address": 3}


@pytest.mark.parametrize("per_address", [0, 256])
def test_connections_over_the_limit_are_refused(per_address: int) -> None:
    with serving(connections=5, connections_per_address=per_address) as service:
        with ExitStack() as stack:
            for number in range(5):
                stack.enter_context(Peer(service, f"127.0.0.{number + 1}"))
            until(lambda: len(service.service.connections.open) == 5)
            with Peer(service) as peer:
                assert status(peer.send(GET).rest()) == 503
        until(lambda: not service.service.connections.open)
        assert counts(service) == {"connections": 1}
        assert healthy(service)


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_who_waited_the_longest_makes_room(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that idle connections do not keep others out, from wherever they come."""
    monkeypatch.setattr(connections, "EVICTABLE", 0)
    with serving(**{limit: 3}) as service, ExitStack() as stack:
        first, second, third = (stack.enter_context(Peer(service)) for _ in range(3))
        until(lambda: len(service.service.connections.open) == 3)
        assert first.send(GET).answer()[0] == 200  # it waits since now
        assert healthy(service)
        assert second.rest() == b""
        third.send(GET[:20])
        first.send(GET[:20])
        until(lambda: len(service.service.connections.open) == 2)
        with Peer(service), Peer(service):
            assert third.rest() == b""
        assert counts(service) == {"evicted": 2}


def test_who_is_being_answered_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "EVICTABLE", 0)
    with serving(connections=1) as service, Peer(service) as peer:
        begun, go = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(service.service, "translate", _waits(begun, go, service.service.translate))
        peer.send(POST + b"Content-Length: 15\r\n\r\n" + TEXT)
        until(begun.is_set)
        with Peer(service) as other:
            assert status(other.rest()) == 503
        go.set()
        assert peer.answer()[0] == 200


def _waits(begun: asyncio.Event, go: asyncio.Event, then: Callable[..., Any]) -> Callable[..., Any]:
    async def finish(*arguments: Any) -> Any:
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        return await then(*arguments)

    return finish


def test_addresses() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:2") != address_key("2001:db8:0:1::1")
    assert address_key("fe80::1%eth0") == "fe80::/64"
    assert address_key("") == ""


# What one client may send


TOO_LARGE = [
    (b"GET /" + b"a" * 10_000, 414, "url_size"),
    (b"GET /" + b"a" * 8_180 + b" HTTP/1.1\r\n\r\n", 414, "url_size"),
    (GET[:-2] + b"X: " + b"a" * 40_000, 431, "header_size"),
    (GET[:-2] + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431, "header_size"),
    (GET[:-2] + b"a" * 40_000, 431, "header_size"),
    (GET[:-2] + b"X: y\r\n" * 101 + b"\r\n", 431, "header_size"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 2_000, 400, "invalid"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 40_000, 431, "header_size"),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: yyyy\r\n" * 10_000, 431, "header_size"),
]


def test_headers_urls_and_trailers_are_bounded() -> None:
    """The answer comes although what was sent is not whole: it is not collected until then."""
    with serving() as service:
        for data, code, reason in TOO_LARGE:
            before = counts(service).get(reason, 0)
            with Peer(service) as peer:
                answer = peer.send(data).rest()
            assert (data[:100], status(answer)) == (data[:100], code)
            assert b"connection: close" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == code
            assert counts(service)[reason] == before + 1
        assert sum(counts(service).values()) == len(TOO_LARGE)
        assert healthy(service)


def test_what_is_within_the_limits_is_read() -> None:
    fields = b"".join(b"X%d: %s\r\n" % (number, b"a" * 300) for number in range(90))
    with serving() as service, Peer(service) as peer:
        assert peer.send(GET[:-2] + fields + b"\r\n").answer()[0] == 200
        assert peer.send(GET.replace(b"/health", b"/health?" + b"a" * 8_000)).answer()[0] == 200
        chunked = b"%x;name=value\r\n%s\r\n%x\r\n%s\r\n0\r\nX: y\r\n\r\n" % (5, TEXT[:5], len(TEXT) - 5, TEXT[5:])
        assert peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked).answer()[0] == 200
        for byte in POST + b"Transfer-Encoding: Chunked\r\n\r\n" + chunked:
            peer.send(bytes([byte]))
        assert peer.answer()[0] == 200
        assert counts(service) == {}


def test_trailers_are_not_headers() -> None:
    with serving("secret") as service, Peer(service) as peer:
        end = b"0\r\nAuthorization: Bearer secret\r\n\r\n"
        assert peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + end).answer()[0] == 401


def test_pipelined_requests_are_answered_in_turn() -> None:
    with serving() as service, Peer(service) as peer:
        for text in ("a", "b", "c", "d"):
            body = json.dumps({"text": text}).encode()
            peer.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        peer.send(GET * 200)
        answers = [peer.answer() for _ in range(204)]
        assert {code for code, _ in answers} == {200}
        assert [json.loads(body)["translations"][0]["source"] for _, body in answers[:4]] == ["a", "b", "c", "d"]
        assert counts(service) == {}


def test_pipelined_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    with serving() as service:
        monkeypatch.setattr(service.service, "translate", _waits(begun, go, service.service.translate))
        with Peer(service) as peer:
            peer.send(POST + b"Content-Length: 15\r\n\r\n" + TEXT)
            until(begun.is_set)
            peer.socket.settimeout(1)
            with suppress(TimeoutError):  # the service does not read more
                for count in range(500):
                    peer.send(GET * 2_000)
                    assert count < 400
            (connection,) = service.service.connections.open
            assert not connection._rest
            assert not connection.pipeline
            go.set()
            peer.socket.settimeout(20)
            answer = peer.rest()
            assert (status(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)
        assert counts(service) == {"pipelined": 1}
        assert healthy(service)


# Bodies


def test_slow_bodies_hold_no_place() -> None:
    with serving(requests=2, body_seconds=20) as service, ExitStack() as stack:
        slow = [
            stack.enter_context(Peer(service)).send(POST + b"Content-Length: 15\r\n\r\n" + TEXT[:7]) for _ in range(10)
        ]
        until(lambda: len(service.service.bodies.open) == 10)
        assert service.service.active == 0
        assert service.client.translate("a b")["text"]
        assert slow[3].send(TEXT[7:]).answer()[0] == 200
        assert "heedful_receiving_bodies 9" in service.service.metrics.text(service.service.gauges())


def test_the_time_of_a_body_is_a_total() -> None:
    with serving(body_seconds=0.5) as service:
        with Peer(service) as peer:
            peer.send(POST + b"Content-Length: 1000\r\n\r\n")
            peer.socket.setblocking(False)
            found = b""
            for _ in range(1_000):
                try:
                    peer.socket.send(b" ")
                    found = peer.socket.recv(4096)
                    break
                except BlockingIOError:
                    time.sleep(0.02)
            assert status(found) == 408
        assert counts(service) == {"body_time": 1}
        assert service.service.metrics.requests["/v1/translate", 408] == 1


def test_places_are_checked_when_a_body_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    with serving(requests=1) as service, Peer(service) as slow, Peer(service) as first:
        monkeypatch.setattr(service.service, "translate", _waits(begun, go, service.service.translate))
        slow.send(POST + b"Content-Length: 15\r\n\r\n" + TEXT[:7])
        until(lambda: len(service.service.bodies.open) == 1)
        first.send(POST + b"Content-Length: 15\r\n\r\n" + TEXT)
        until(begun.is_set)
        assert slow.send(TEXT[7:]).answer()[0] == 429
        go.set()
        assert first.answer()[0] == 200
        assert counts(service) == {"requests": 1}


def test_the_memory_of_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SMALL", 10)
    monkeypatch.setattr(bodies, "ROOM", 100)

    async def several() -> list[object]:
        every = Bodies(Limits(body=50))
        queues: list[asyncio.Queue[dict[str, object]]] = [asyncio.Queue() for _ in range(5)]
        tasks = [asyncio.create_task(every.receive(queue.get)) for queue in queues]

        async def more(number: int, size: int, end: bool = False) -> None:
            queues[number].put_nowait({"type": "http.request", "body": b"a" * size, "more_body": not end})
            await asyncio.sleep(0.01)

        await more(0, 10)  # all of it is small
        await more(1, 50)
        await more(2, 50)
        assert every.used == 80
        await more(3, 40)  # makes it 110: the first one that is not small is refused
        assert every.used == 70
        await more(4, 10)
        for number in (0, 2, 3, 4):
            await more(number, 0, end=True)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert (every.used, len(every.open)) == (0, 0)
        return [(one.status, one.reason) if isinstance(one, HttpProblem) else len(one) for one in found]  # type: ignore[arg-type]

    assert asyncio.run(several()) == [10, (503, "body_memory"), 50, 40, 10]


def test_the_memory_of_whole_requests_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a body, and the tokens of its texts, are counted until the request is answered."""
    begun, go = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(bodies, "RESERVED", 25_000)
    body = b'{"text": "a b"}'.ljust(1_000)
    request = POST + b"Content-Length: 1000\r\n\r\n" + body
    with serving(body=1_000) as service, Peer(service) as first, Peer(service) as second, Peer(service) as third:
        there = service.service
        monkeypatch.setattr(there, "translate", _waits(begun, go, there.translate))
        first.send(request)
        until(begun.is_set)
        reserved = sum(there.bodies.reserved.values())
        assert reserved > bodies.BODY_COST * len(body), "the tokens of its text are not counted"
        second.send(request)
        until(lambda: there.active == 2)
        refused = third.send(request).answer()
        assert refused[0] == 429
        assert there.active == 2
        go.set()
        assert (first.answer()[0], second.answer()[0]) == (200, 200)
        until(lambda: not there.bodies.reserved)
        assert third.send(request).answer()[0] == 200
        assert counts(service) == {"request_memory": 1}


def test_a_request_that_is_alone_always_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "RESERVED", 1)
    every = Bodies(Limits(body=10))
    reserved = every.reserve(1_000)
    reserved.tokens(1_000)
    with pytest.raises(HttpProblem) as caught:
        every.reserve(1)
    assert (caught.value.status, caught.value.reason) == (429, "request_memory")
    reserved.release()
    every.reserve(1_000)


@pytest.mark.parametrize("why", ["stop", "room"])
def test_a_body_whose_time_is_up_can_still_be_refused(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timeout has expired in the same turn of the event loop, and its task has not seen it yet."""
    monkeypatch.setattr(bodies, "SMALL", 0)
    monkeypatch.setattr(bodies, "ROOM", 10)

    async def both() -> tuple[object, ...]:
        every = Bodies(Limits(body=5))
        queues: list[asyncio.Queue[dict[str, object]]] = [asyncio.Queue() for _ in range(3)]
        late, *others = (asyncio.ensure_future(every.receive(queue.get)) for queue in queues)
        for queue in queues[:2]:
            queue.put_nowait({"type": "http.request", "body": b"12345", "more_body": True})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        next(iter(every.open)).timeout.reschedule(0)
        await asyncio.sleep(0)
        if why == "stop":
            every.stop()
        else:
            queues[2].put_nowait({"type": "http.request", "body": b"1", "more_body": False})
        return tuple(await asyncio.gather(late, others[1], return_exceptions=True))

    late, other = asyncio.run(both())
    assert isinstance(late, HttpProblem)
    assert late.status == 408
    assert other == b"1" if why == "room" else isinstance(other, HttpProblem)


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
def test_a_body_that_is_refused_early_is_not_read(expect: bytes) -> None:
    with serving(body=1_000) as service:
        with Peer(service) as peer:
            peer.send(POST + expect + b"Content-Length: 1000000000\r\n\r\n")
            assert peer.answer()[0] == 413
            peer.socket.settimeout(20)
            peer.send(b"a" * 100_000)
            assert peer.rest() == b""
        assert counts(service) == {"body_size": 1}
        with Peer(service) as peer:  # a short one is thrown away, and the connection is kept
            peer.send(POST.replace(b"json", b"text") + b"Content-Length: 15\r\n\r\n" + TEXT[:3])
            assert peer.answer()[0] == 415
            assert peer.send(TEXT[3:] + GET).answer()[0] == 200


def test_what_is_thrown_away_is_bounded() -> None:
    registry = connections.Connections(Limits(), Refusals())
    most = connections.LINGER_RATE
    assert registry.may_discard(most, 10)
    assert not registry.may_discard(1, 10.9)
    assert registry.may_discard(most, 11)
    with serving(body=1_000) as service, Peer(service) as peer:
        peer.send(POST + b"Content-Length: 1000000000\r\n\r\n")
        with suppress(ConnectionError):
            for count in range(10_000):
                peer.send(b" " * 65_536)
                assert count < 9_999


def test_a_body_that_is_expected_is_asked_for() -> None:
    with serving() as service, Peer(service) as peer:
        peer.send(POST + b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n")
        assert peer.answer()[0] == 100
        assert peer.send(TEXT).answer()[0] == 200


def test_a_chunked_body_without_end_is_not_thrown_away_for_ever() -> None:
    with serving() as service, Peer(service) as peer:
        peer.send(GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
        assert peer.answer()[0] == 200
        with suppress(ConnectionError):
            for count in range(10_000):
                peer.send(b"1000\r\n" + b"a" * 4096 + b"\r\n")
                assert count < 9_999


def test_a_half_sent_body_does_not_hold_a_shutdown() -> None:
    with serving(body_seconds=1_000, drain=1_000, header_seconds=1_000, idle=1_000) as service, ExitStack() as stack:
        body, header, idle = (stack.enter_context(Peer(service)) for _ in range(3))
        body.send(POST + b"Content-Length: 15\r\n\r\n" + TEXT[:7])
        header.send(GET[:20])
        until(lambda: len(service.service.bodies.open) == 1)
        service.server.handle_exit(15, None)
        assert status(body.rest()) == 503
        assert (header.rest(), idle.rest()) == (b"", b"")
        # That the service ends is seen by `running`.


# What is not plain HTTP/1.1


INVALID = [
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5, 5\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\nabcde",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeX\r\n0\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    b"GET /health HTTP/1.1\nHost: localhost\n\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /health\r\n\r\n",
    b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET \x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
]


def test_what_is_refused_as_invalid(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as service:
        for number, data in enumerate(INVALID, 1):
            with Peer(service) as peer:
                answer = peer.send(data).rest()
            assert (data, re.findall(rb"HTTP/1.1 (\d+)", answer)) == (data, [b"400"])
            assert (data, counts(service)) == (data, {"invalid": number})
        until(lambda: not service.service.connections.open)
    assert {record.name for record in caplog.records} == {"heedful.serve"}  # and not a line for each


def test_the_host_of_a_url_counts() -> None:
    with serving() as service, Peer(service) as peer:
        assert peer.send(b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").answer()[0] == 421
        assert peer.send(b"GET http://localhost:1/health HTTP/1.1\r\nHost: evil.example\r\n\r\n").answer()[0] == 200


def test_upgrades_are_ignored() -> None:
    """curl --http2 asks for one with every request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    websocket = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: YQ==\r\n"
    with serving() as service, Peer(service) as peer:
        assert peer.send(POST + upgrade + b"Content-Length: 15\r\n\r\n" + TEXT).answer()[0] == 200
        assert peer.send(GET[:-2] + websocket + b"\r\n").answer()[0] == 200
        assert counts(service) == {}


def test_http_1_0_and_close() -> None:
    with serving() as service:
        for data in (b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", GET[:-2] + b"Connection: close\r\n\r\n"):
            with Peer(service) as peer:
                answer = peer.send(data + GET).rest()
                assert (status(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)


def test_clients_that_go_away() -> None:
    with serving() as service:
        for data in (b"", GET[:10], POST + b"Content-Length: 15\r\n\r\n" + TEXT[:5], GET * 100):
            for reset in (False, True):
                with Peer(service) as peer:
                    peer.send(data)
                    if reset:
                        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    else:
                        peer.socket.shutdown(socket.SHUT_WR)
        until(lambda: not service.service.connections.open)
        until(lambda: not service.service.bodies.open)
        assert healthy(service)
        assert counts(service) == {}


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.sent, self.closing = b"", False

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = write_eof = close

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the method, the path and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    body = f"{scope['method']} {scope['path']} {len(scope['headers'])} ".encode() + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def spoken(pieces: list[bytes], config: Any) -> tuple[bytes, Refusals]:
    """What is answered to bytes that come in pieces; raises what a connection raises."""
    every = Refusals()
    state = ServerState()
    limits = Limits()
    connection: Any = connections.protocol(limits, connections.Connections(limits, every))(
        config=config, server_state=state, app_state={}
    )
    wire = Wire()
    connection.connection_made(wire)
    for piece in pieces:
        connection.data_received(piece)
        while state.tasks:
            await asyncio.sleep(0)
            if connection.state is connections.ConnectionState.BODY:
                break
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(connection._rest) <= connections.HEADER + 4
    connection.connection_lost(None)
    while state.tasks:
        await asyncio.sleep(0)
    assert not connection.registry.open
    return wire.sent, every


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.sample(range(len(data) + 1), min(len(data), chance.choice((0, 1, 3, 40)))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


CHUNKED = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED += b"5;x=y\r\nabcde\r\n3\r\n\r\n\n\r\n0\r\nT: u\r\n\r\n"
PLAIN = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n\r\n\r\n"
SIMPLE = b"GET /g HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"


def test_however_requests_are_cut_they_are_read_the_same() -> None:
    chance, config = random.Random(1), Config(echo, lifespan="off", log_config=None)
    for _ in range(100):
        kinds = chance.choices((CHUNKED, PLAIN, SIMPLE), k=chance.randint(1, 6))
        answers = {CHUNKED: b"POST /c 2 abcde\r\n\n", PLAIN: b"POST /p 2 \r\n\r\n", SIMPLE: b"GET /g 2 "}
        sent, every = asyncio.run(spoken(cut(b"".join(kinds), chance), config))
        found = re.sub(rb"HTTP/1.1 200 OK\r\ncontent-length: \d+\r\n\r\n", b"|", sent)
        assert found == b"".join(b"|" + answers[kind] for kind in kinds)
        assert not sum(every.counts.values())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_sent_a_connection_raises_nothing(seed: int) -> None:
    chance, config = random.Random(seed), Config(echo, lifespan="off", log_config=None)
    parts = (
        b"\r\n",
        b"\n",
        b"\r",
        b":",
        b" ",
        b"0",
        b"f",
        b";",
        b"\x00",
        b"\xff",
        b"Content-Length: 3\r\n",
        b"%",
        b"/",
    )
    for _ in range(150):
        data = bytearray(b"".join(chance.choices((CHUNKED, PLAIN, SIMPLE), k=chance.randint(1, 3))))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 0, 1, 5))] = chance.choice(parts) * chance.choice((1, 1, 2, 50))
        sent, _ = asyncio.run(spoken(cut(bytes(data), chance), config))
        assert set(re.findall(rb"HTTP/1.1 (\d+) [A-Z]", sent)) <= {b"200", b"400", b"414", b"431"}


# Counting, and the limit of open files


def test_refusals_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    every = Refusals()
    every.log(0)
    assert caplog.records == []
    every.add("connections", "192.0.2.1")
    every.log(0)
    every.add("connections", "192.0.2.2")
    for now in (1, 30, 59):
        every.add("header_time")
        every.log(now)
    assert len(caplog.records) == 1
    every.log(60)
    every.log(1_000)
    assert len(caplog.records) == 2
    message = caplog.records[1].getMessage()
    for part in ("3 headers", "1 connections", "192.0.2.2"):
        assert part in message
    assert 'heedful_refused_total{reason="connections"} 2' in list(every.lines())
    with pytest.raises(KeyError):
        every.add("because")


def test_every_reason_is_in_the_docs() -> None:
    from conftest import ROOT

    text = (ROOT / "docs/guide/deploy.md").read_text(encoding="utf-8")
    assert [reason for reason in metrics.REASONS if f"`{reason}`" not in text] == []


class Resource:
    """Stands in for the module `resource`."""

    RLIMIT_NOFILE, RLIM_INFINITY = 7, -1

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = (soft, hard)

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        assert limits[0] <= limits[1] or limits[1] < 0
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [(10**6, 10**6, 1_000, 10**6), (1024, 4096, 1_000, 1_202), (1024, -1, 1_000, 1_202), (256, 500, 298, 500)],
)
def test_the_limit_of_open_files_is_raised_as_needed(
    soft: int, hard: int, connections: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, said = Resource(soft, hard), []
    monkeypatch.setattr(server, "resource", there)
    monkeypatch.setattr(server, "_open_files", lambda: 10)
    found = server.fit_open_files(Limits(), said.append)
    assert (found.connections, there.limits[0]) == (connections, raised)
    assert len(said) == (connections < 1_000)
    for message in said:
        for part in ("at most 298 connections", "1,202 open files", "500", "ulimit -n"):
            assert part in message


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "resource", Resource(64, 200))
    with pytest.raises(ConfigError, match="may have 200: raise that limit"):
        server.fit_open_files(Limits(), print)


def test_a_body_in_many_small_chunks_is_refused() -> None:
    with serving() as service, Peer(service) as peer:
        peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 1_100)
        assert peer.answer()[0] == 400
        assert counts(service) == {"invalid": 1}
        assert service.client.translate("a b")["text"]


def test_small_chunks_are_parsed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn in between, and nothing is lost."""
    turns, resume = 0, connections.HttpConnection._continue

    def next_turn(connection: connections.HttpConnection) -> None:
        nonlocal turns
        turns += 1
        resume(connection)

    monkeypatch.setattr(connections.HttpConnection, "_continue", next_turn)
    body = TEXT + b" " * 600
    with serving() as service, Peer(service) as peer:
        for _ in range(2):
            chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
            peer.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
            assert peer.answer()[0] == 200
    assert turns >= 10


def test_what_an_address_sends_is_counted_by_its_rate() -> None:
    rate = ReceiveRate(rate=100, burst=50)
    assert rate.charge("a", 50, 10.0) == 0  # at once
    assert rate.charge("a", 50, 10.0) == pytest.approx(0.5)
    assert rate.charge("b", 50, 10.0) == 0  # another address
    assert rate.charge("a", 0, 10.5) == 0  # a second's worth is 100 bytes
    assert rate.charge("a", 100, 11.0) == pytest.approx(0.5)


def test_addresses_that_sent_nothing_lately_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "ADDRESSES", 3)
    rate = ReceiveRate(rate=100, burst=50)
    for key in "abc":
        rate.charge(key, 100, 0.0)
    rate.charge("c", 100, 1.5)
    rate.charge("d", 1, 2.0)
    assert set(rate.levels) == {"c", "d"}
    assert rate.charge("c", 50, 2.0) == pytest.approx(0.5)


def test_a_connection_is_not_read_for_a_second_at_most() -> None:
    """Whoever has gone away meanwhile is noticed then."""
    rate = ReceiveRate(rate=100, burst=50)
    assert rate.charge("a", 10**9, 0.0) == pytest.approx(flow_control.RECEIVE_PAUSE)


def test_who_sends_too_much_is_read_later_and_nobody_else() -> None:
    """An allowed body at a byte a second does not get through; other addresses are answered."""
    body = TEXT.ljust(1_900_000)
    with serving() as service, Peer(service) as sender:
        there = service.service.connections
        usual, there.received = there.received, ReceiveRate(rate=1, burst=100_000)
        sender.socket.settimeout(0.5)
        with suppress(TimeoutError):
            sender.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: any(one.flow.throttled for one in there.open))
        with Peer(service) as newcomer:  # of the same address, over its rate from the start
            newcomer.socket.settimeout(0.5)
            with suppress(TimeoutError):
                newcomer.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            with pytest.raises(TimeoutError):
                newcomer.socket.recv(1)
        with Peer(service, "127.0.0.2") as other:
            assert other.send(GET).answer()[0] == 200
        assert service.service.bodies.open, "the body is whole"
        there.received = usual
        with Peer(service) as again:  # the same address, at the usual rate
            sent = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
            assert again.send(sent).answer()[0] == 200


def test_a_request_there_is_no_memory_for_is_refused_before_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "RESERVED", 100)
    with serving(body=1_000) as service:
        reserved = service.service.bodies.reserve(1_500)
        with Peer(service) as sender:  # sends no body at all
            sender.send(POST + b"Content-Length: 900\r\n\r\n")
            status, content = sender.answer()
        assert status == 429
        assert b"memory" in content
        reserved.release()


def test_behind_a_proxy_nobody_is_throttled() -> None:
    body = TEXT.ljust(1_900_000)
    with serving(connections_per_address=0) as service, Peer(service) as sender:
        service.service.connections.received = ReceiveRate(rate=1, burst=1)
        assert sender.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body).answer()[0] == 200
        assert not any(one.flow.throttled for one in service.service.connections.open)
