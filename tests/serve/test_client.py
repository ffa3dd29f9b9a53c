"""The client asks again when it makes sense, and says what is wrong otherwise."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from random_translators import random_translator
from running import running

import heedful
from heedful.client import ServiceError
from heedful.errors import ConfigError, DataError
from heedful.serve.limits import Limits


@contextmanager
def answering(*answers: tuple[int, dict[str, str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """A service that gives some answers, one after the other, the last one for ever; and what it was asked."""
    left, asked = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path} {self.headers.get('Authorization', '')}".strip())
            status, headers, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MODELS = (200, {}, json.dumps({"models": [{"name": "m"}]}).encode())
BUSY = (429, {"Retry-After": "1"}, b'{"detail": "later"}')


def test_it_waits_as_long_as_it_is_told() -> None:
    with answering(BUSY, (503, {}, b"{}"), MODELS) as (url, asked), heedful.Client(url, "t0ken") as client:
        begun = time.perf_counter()
        assert client.models() == [{"name": "m"}]
        assert time.perf_counter() - begun >= 1.0
        assert asked == ["GET /v1/models Bearer t0ken"] * 3


def test_letters_are_sent_as_they_are() -> None:
    """Escaped, a text in Devanagari would be twice as long, and the service counts bytes."""
    with running({"m": random_translator("rnn")}, Limits(body=300)) as service:
        with pytest.raises(DataError, match="there is no model"):
            service.client.translate("न" * 50, model="x")
        with pytest.raises(DataError, match="text: "):
            service.client.translate("\ud800")


def test_patience_ends() -> None:
    with answering(BUSY) as (url, asked), heedful.Client(url, patience=1.5) as client:
        with pytest.raises(ServiceError, match="later") as caught:
            client.models()
        assert caught.value.status == 429
        assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((422, {}, b'{"detail": "beam: wrong"}'), DataError, "beam: wrong"),
        ((401, {}, b'{"detail": "a token"}'), ServiceError, "a token"),
        ((500, {}, b"<html>"), ServiceError, "<html>"),
        ((200, {}, b"hello"), ServiceError, "this is no heedful service"),
    ],
)
def test_what_is_not_asked_again(answer: tuple[int, dict[str, str], bytes], error: type[Exception], says: str) -> None:
    with answering(answer) as (url, asked), heedful.Client(url) as client:
        with pytest.raises(error, match=says):
            client.translate("a")
        assert len(asked) == 1


def test_nobody_there() -> None:
    with answering(MODELS) as (url, _):
        pass
    client = heedful.Client(url, patience=0.5)
    assert not client.ready()
    with pytest.raises(ServiceError, match="cannot be reached \\(Connection refused\\)"):
        client.models()
    with pytest.raises(ServiceError, match="cannot be reached"):
        list(client.stream("a"))


def test_a_service_that_starts_late_is_waited_for() -> None:
    with running({"m": random_translator("rnn")}) as first:
        port = int(first.url.rpartition(":")[2])
    client = heedful.Client(f"http://127.0.0.1:{port}", patience=20)
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(client.models()))
    asking.start()
    time.sleep(0.3)
    server = ThreadingHTTPServer(("127.0.0.1", port), _Models)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    serving.start()
    asking.join(20)
    client.close()
    server.shutdown()
    serving.join()
    server.server_close()
    assert found == [[{"name": "m"}]]


class _Models(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(MODELS[2])))
        self.end_headers()
        self.wfile.write(MODELS[2])

    def log_message(self, *_: object) -> None:
        pass


def test_it_waits_no_longer_than_its_timeout() -> None:
    held = threading.Event()
    with _silent(held) as url:
        with pytest.raises(ServiceError, match="no answer within 0.3 s"):
            heedful.Client(url, timeout=0.3).models()
        held.set()


@contextmanager
def _silent(held: threading.Event) -> Iterator[str]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: heedful.Client("localhost:8000"),
        lambda: heedful.Client("ftp://localhost"),
        lambda: heedful.Client("http://localhost:99999"),
        lambda: heedful.Client("http://localhost", "tökén"),
        lambda: heedful.Client("http://localhost", "a\nb"),
        lambda: heedful.Client("http://localhost", timeout=0),
    ],
)
def test_what_is_no_address(make: Callable[[], heedful.Client]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_refused_stream_says_why() -> None:
    with running({"m": random_translator("rnn")}) as service:
        with pytest.raises(DataError, match="there is no model"):
            list(service.client.stream("a", model="x"))
        assert list(service.client.stream(""))[-1][0] == "done"
