"""Servers that are hostile or broken, and what `heedful translate --server` makes of them.

Each answer is served on a loopback port to a client that translates two lines. The client ends in time, without a
traceback, with an error or with two lines; escape sequences do not reach stderr; it takes no more than 200 MiB.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attack_commands import command

ABOUT = "An answer of a server to heedful translate --server."
MEMORY = 200.0  # MiB; the client alone takes about 40
LINES = b"one\ntwo\n"
SLOW = ("client-slow", "client-length")  # these take as long as the client waits


def answer(body: bytes, status: str = "200 OK", *headers: str, kind: str = "application/json") -> bytes:
    """Return a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("utf-8") + body


def item(text: object, **more: object) -> dict[str, object]:
    """Return a translation as the service writes it."""
    record = {"source": "one", "text": text, "score": -1.0, "confidence": 0.5, "words": [], "notes": []}
    return {**record, **more}


def translations(*items: object) -> bytes:
    """Return an answer with translations."""
    return answer(json.dumps({"model": "m", "translations": list(items)}).encode())


def endless(connection: socket.socket) -> None:
    """Send a body that does not end, as fast as it is taken, up to 3 GB."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    for _ in range(3000):
        connection.sendall(b" " * 1_000_000)


def endless_headers(connection: socket.socket) -> None:
    """Send headers without end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(3000):
        connection.sendall(b"X-A: aaaaaaaa\r\n" * 60_000)


def slow(connection: socket.socket) -> None:
    """Send a byte a second."""
    for byte in translations(item("a"), item("b")):
        connection.sendall(bytes([byte]))
        time.sleep(1)


def many_values(connection: socket.socket) -> None:
    """Send 63 MB of JSON that would be 21 million lists."""
    connection.sendall(answer(b'{"translations": [], "x": [' + b"[]," * 21_000_000 + b"[]]}"))


ANSWERS: dict[str, bytes | Callable[[socket.socket], None]] = {
    "client-nested": answer(b'{"translations":' * 20_000 + b"1"),
    "client-brackets": answer(b"[" * 5_000_000),
    "client-values": many_values,
    "client-alternatives": translations(*[item("a", alternatives=[item(x, rank_score=1.0) for x in "bcd"])] * 2),
    "client-notes": translations(*[item("a", notes=["x" * n for n in range(3000)])] * 2),
    "client-retry-after": answer(b"{}", "503 no", "Retry-After: \u00b2"),
    "client-retry-years": answer(b"{}", "429 no", "Retry-After: 99999999999999999999"),
    "client-no-lines": translations(),
    "client-one-line": translations(item("a")),
    "client-many-lines": translations(*[item("a")] * 1000),
    "client-numbers": translations(item(3), item(None)),
    "client-strings": translations("a", "b"),
    "client-list": answer(b"[1, 2]"),
    "client-null": answer(b"null"),
    "client-huge-number": answer(b'{"translations": ' + b"9" * 100_000 + b"}"),
    "client-escape-detail": answer(json.dumps({"detail": "\x1b]0;owned\x07\x1b[2J"}).encode(), "422 no"),
    "client-escape-raw": answer(b"\x1b[2J\x1b]0;owned\x07", "500 \x1b[31m"),
    "client-escape-notes": translations(*[item("a", notes=["\x1b[2J"])] * 2),
    "client-types": answer(b'{"detail": {"a": [1]}, "title": 7, "status": "x", "allowed": "y"}', "413 no"),
    "client-allowed": answer(b'{"detail": "too many", "allowed": 0, "field": "text"}', "413 no"),
    "client-latin": answer(b'{"detail": "\xff\xfe"}', "422 no"),
    "client-newline": translations(item("a\nb\rc"), item("d\u2028e")),
    "client-surrogate": answer(b'{"translations": [{"text": "\\ud800", "source": "one"}, {"text": "\\udfff"}]}'),
    "client-no-http": b"\x00\x01\x02 hello\r\n\r\n",
    "client-closed": b"",
    "client-half": answer(b"x" * 100)[:-50],
    "client-length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{}",
    "client-bad-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzzz\r\n{}",
    "client-redirect": answer(b"", "302 Found", "Location: file:///etc/passwd"),
    "client-endless": endless,
    "client-endless-headers": endless_headers,
    "client-slow": slow,
}


class Server(threading.Thread):
    """Gives one answer to everybody, on a loopback port."""

    def __init__(self, said: bytes | Callable[[socket.socket], None]) -> None:
        super().__init__(daemon=True)
        self.said = said
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def run(self) -> None:
        """Answer until it is closed."""
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """Answer every request of a connection."""
        with connection:
            connection.settimeout(30)
            try:
                while self._request(connection):
                    if callable(self.said):
                        self.said(connection)
                        return
                    connection.sendall(self.said)
                    if b"Connection: close" in self.said or not self.said.startswith(b"HTTP"):
                        return
            except OSError:
                return

    def _request(self, connection: socket.socket) -> bool:
        """Read a request to its end."""
        got = b""
        while b"\r\n\r\n" not in got:
            if not (more := connection.recv(65536)):
                return False
            got += more
        head, _, body = got.partition(b"\r\n\r\n")
        lengths = [int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
        left = (lengths[0] if lengths else 0) - len(body)
        while left > 0:
            left -= len(connection.recv(65536))
        return True


def run(name: str, code: Path) -> tuple[str, list[str]]:
    """Let a client meet a server; return what it did, and what it must not do."""
    outcomes, broken = [], []
    for options in ((),) if name in SLOW else ((), ("--stream",)):
        server = Server(ANSWERS[name])
        server.start()
        try:
            ended = command(
                ["translate", "-", "--server", server.url, "--patience", "1", *options], code, given=LINES, limit=15
            )
        finally:
            server.listening.close()
        outcome = f"{' '.join(options) or 'plain'}: {ended.code}, {ended.peak:.0f} MiB, {ended.seconds:.1f} s"
        outcomes.append(outcome)
        faults = ended.faults()
        if ended.peak > MEMORY:
            faults.append(f"{ended.peak:.0f} MiB")
        lines = ended.stdout.count(b"\n")
        if ended.code == 0 and lines != 2:
            faults.append(f"{lines} lines for 2, exit code 0")
        if ended.code not in (0, None) and not ended.stderr.strip():
            faults.append("no message")
        if b"\x1b" in ended.stdout and name != "client-escape-text":
            faults.append("an escape sequence on stdout")
        broken += [f"{' '.join(options) or 'plain'}: {fault}" for fault in faults]
    return "; ".join(outcomes), broken
