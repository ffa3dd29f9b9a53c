"""A server that answers as no service should: raw bytes, one script for each connection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Script = Callable[[socket.socket], object]


def item(text: object = "B", source: str = "a", **more: object) -> dict[str, Any]:
    """A translation as a service sends it, with changes."""
    word = {"text": "B", "start": 0, "end": 1, "confidence": 0.9}
    plain = {"source": source, "text": text, "score": -0.1, "confidence": 0.9, "words": [word], "notes": []}
    return {**plain, **more}


def answer(body: bytes, status: str = "200 OK", kind: str = "application/json", *headers: str) -> bytes:
    """An answer of HTTP."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def translations(*items: object) -> bytes:
    """The answer that translations are."""
    return answer(json.dumps({"model": "m", "translations": list(items)}).encode())


def events(*pairs: tuple[str, object]) -> bytes:
    """A stream of server-sent events."""
    body = "".join(f"event: {name}\ndata: {json.dumps(record)}\n\n" for name, record in pairs).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body


def sends(*parts: bytes) -> Script:
    """A script that sends some bytes and closes the connection."""

    def script(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return script


def forever(first: bytes, part: bytes) -> Script:
    """A script that never stops sending."""

    def script(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(part)

    return script


@contextmanager
def hostile(script: Script) -> Iterator[tuple[str, list[bytes]]]:
    """Run a script for every request; give the address, and the list of the requests' heads."""
    requests: list[bytes] = []
    threads: list[threading.Thread] = []
    held: list[socket.socket] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            content = b""
            while b"\r\n\r\n" not in content:
                if not (part := connection.recv(65536)):
                    return
                content += part
            head, _, body = content.partition(b"\r\n\r\n")
            sizes = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            while len(body) < int(sizes[0] if sizes else 0):
                body += connection.recv(65536)
            requests.append(head)
            script(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            held.append(connection)
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join(10)
        for connection in held:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


def steers(text: str) -> bool:
    """Whether a text holds anything that a terminal would act on, besides tabs and line breaks."""
    return any(
        (ord(c) < 32 and c not in "\t\n")
        or 0x7F <= ord(c) < 0xA0
        or 0xD800 <= ord(c) < 0xE000
        or c in "\u2028\u2029"
        or 0x202A <= ord(c) <= 0x202E
        or 0x2066 <= ord(c) <= 0x2069
        for c in text
    )
