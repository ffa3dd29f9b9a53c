"""What attackers send to the service: each attack is a coroutine that runs until its time is up.

python benchmarks/attack_requests.py NAME PORT PID SECONDS    prints what happened, as JSON

An attacker is a process of its own, bounded in time (SECONDS) and memory (1 GiB), and talks to 127.0.0.1 only. It needs
nothing but Python: it is quick to start, and its CPU time is that of the attack.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import random
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from attack_service import DECODER, PNG, children_with, end_with_parent

WORDS = ["राम", "ने", "आम", "खाया", "और", "सीता", "घर", "गई", "क्योंकि", "बारिश", "हो", "रही", "थी"]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Target:
    """The service that is attacked, until when, and what happened."""

    port: int
    pid: int
    until: float
    counts: Counter[str] = field(default_factory=Counter)
    pick: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.until - time.monotonic())

    async def connect(self, source: str = "127.0.0.1") -> Stream | None:
        """Open a connection, or count that it was refused."""
        try:
            async with asyncio.timeout(3):
                return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        except (OSError, TimeoutError) as error:
            self.counts[f"no connection ({type(error).__name__})"] += 1
            return None


def head(method: str, path: str, *lines: str) -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def post(path: str, body: object, *lines: str) -> bytes:
    """Return a whole request with a JSON body; bytes are sent as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(content)}", *lines) + content


async def answer(reader: asyncio.StreamReader, whole: bool = True) -> str:
    """Read an answer until the connection ends, or its first line; return its status, 'closed' if there is none."""
    try:
        first = await reader.readline()
        while whole and len(await reader.read(1 << 16)):
            pass
    except (OSError, ValueError):
        return "closed"
    return first.split()[1].decode("latin-1") if first.startswith(b"HTTP/") else "closed"


async def ask(target: Target, request: bytes, wait: float = 30.0) -> None:
    """Send a request, wait for its answer and count its status."""
    stream = await target.connect()
    if stream is None:
        await asyncio.sleep(0.05)
        return
    reader, writer = stream
    try:
        async with asyncio.timeout(min(wait, target.left)):
            for first in range(0, len(request), 1 << 16):
                writer.write(request[first : first + (1 << 16)])
                await writer.drain()
            target.counts[await answer(reader)] += 1
    except TimeoutError:
        target.counts["unanswered at the end"] += 1
    except OSError:
        target.counts["closed"] += 1
    finally:
        writer.transport.abort()


async def repeat(target: Target, many: int, make: Callable[[], bytes]) -> None:
    """Let some clients ask without pause; `Connection: close` is up to the request."""

    async def one() -> None:
        while target.left > 0:
            await ask(target, make())

    await asyncio.gather(*(one() for _ in range(many)))


async def hold(
    target: Target,
    many: int,
    first: bytes,
    trickle: Callable[[], bytes] | None = None,
    pause: float = 0.5,
    source: str = "127.0.0.1",
) -> None:
    """Open connections, send something, keep them open, trickling; count those that the service closes."""

    async def one() -> None:
        stream = await target.connect(source)
        if stream is None:
            return
        reader, writer = stream
        target.counts["opened"] += 1
        closed = asyncio.create_task(answer(reader))
        try:
            writer.write(first)
            while target.left > 0 and not closed.done():
                await asyncio.wait([closed], timeout=min(pause, target.left))
                if trickle is not None and not closed.done():
                    writer.write(trickle())
                    await writer.drain()
        except OSError:
            pass
        if not closed.done():
            await asyncio.wait([closed], timeout=0.05)
        if closed.done():
            said = closed.result()
            target.counts["closed by the service" if said == "closed" else f"answered {said}"] += 1
        else:
            closed.cancel()
            target.counts["still open at the end"] += 1
        writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(many)))


async def pour(target: Target, begin: bytes, chunk: bytes, total: int, many: int = 1) -> None:
    """Send an endless request as fast as it is taken, up to `total` bytes for each connection, reading nothing."""

    async def one() -> None:
        stream = await target.connect()
        if stream is None:
            return
        reader, writer = stream
        sent = len(begin)
        writer.transport.set_write_buffer_limits(high=1 << 18)
        said = "not answered"
        try:
            async with asyncio.timeout(target.left):
                writer.write(begin)
                while sent < total:
                    writer.write(chunk)
                    await writer.drain()
                    sent += len(chunk)
                target.counts["sent whole"] += 1
                said = await answer(reader, whole=False)
        except TimeoutError:
            said = "blocked"
        except OSError:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.5):
                    said = await answer(reader, whole=False)
        target.counts[said] += 1
        target.counts["MB taken"] += sent // 1_000_000
        writer.transport.abort()

    while target.left > 0.5:
        await asyncio.gather(*(one() for _ in range(many)))
        await asyncio.sleep(0.1)


# ------------------------------------------------------------------------------------------------ connections


async def idle(target: Target) -> None:
    """200 connections that send nothing."""
    await hold(target, 200, b"")


async def half_headers(target: Target) -> None:
    """200 connections that send half a header."""
    await hold(target, 200, b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-")


async def connections(target: Target) -> None:
    """1,300 connections at once from one address, opened again when they are closed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    async def one() -> None:
        while target.left > 0.2:
            await hold(target, 1, b"GET /health HT")
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one() for _ in range(1300)))


async def slow_headers(target: Target) -> None:
    """200 connections whose header comes a byte at a time, and never ends."""
    await hold(target, 200, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", lambda: b"a", 0.3)


async def slow_bodies(target: Target) -> None:
    """300 requests whose body comes a byte at a time."""
    first = head("POST", "/v1/translate", "Content-Type: application/json", "Content-Length: 100000") + b'{"text": "'
    await hold(target, 300, first, lambda: b"a", 0.5)


async def slow_readers(target: Target) -> None:
    """64 clients that ask for large answers and read nothing of them."""
    requests = head("GET", "/openapi.json") * 8

    async def one() -> None:
        while target.left > 0.2:
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.setblocking(False)
                try:
                    async with asyncio.timeout(3):
                        await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", target.port))
                        await asyncio.get_running_loop().sock_sendall(one, requests)
                    target.counts["asked"] += 1
                except (OSError, TimeoutError):
                    target.counts["no connection"] += 1
                await asyncio.sleep(target.left)

    await asyncio.gather(*(one() for _ in range(64)))


async def cancelled(target: Target) -> None:
    """Clients that ask, and go away at any moment."""

    async def one() -> None:
        while target.left > 0:
            stream = await target.connect()
            if stream is None:
                await asyncio.sleep(0.05)
                continue
            text = " ".join(target.pick.choices(WORDS, k=target.pick.randint(1, 60)))
            route = target.pick.choice(["translate", "stream", "figure", "translate"])
            request = post(f"/v1/{route}", {"text": text})
            stream[1].write(request[: target.pick.choice([len(request), len(request), len(request) // 2, 20])])
            await asyncio.sleep(target.pick.choice([0.0, 0.005, 0.02, 0.1]) * target.pick.random())
            stream[1].transport.abort()
            target.counts["cancelled"] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(one() for _ in range(4)))


# ------------------------------------------------------------------------------------------------ large requests


async def pipelined(target: Target) -> None:
    """65 MB of small requests on one connection, without reading an answer."""
    await pour(target, b"", head("GET", "/health") * 1500, 65_000_000)


async def pipelined_posts(target: Target) -> None:
    """65 MB of pipelined translations."""
    await pour(target, b"", post("/v1/translate", {"text": "राम"}) * 500, 65_000_000)


async def header(target: Target) -> None:
    """One header of 122 MB."""
    await pour(target, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ", b"a" * (1 << 17), 122_000_000)


async def headers(target: Target) -> None:
    """122 MB of short headers."""
    await pour(target, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-A: aaaaaaaaaaaaaaaa\r\n" * 4000, 122_000_000)


async def url(target: Target) -> None:
    """A URL of 100 MB."""
    await pour(target, b"GET /", b"a" * (1 << 17), 100_000_000)


async def trailers(target: Target) -> None:
    """A chunked body with 100 MB of trailers."""
    begin = head("POST", "/v1/translate", "Content-Type: application/json", "Transfer-Encoding: chunked")
    await pour(target, begin + b"2\r\n{}\r\n0\r\n", b"X-A: aaaaaaaaaaaaaaaa\r\n" * 4000, 100_000_000)


async def chunk_extension(target: Target) -> None:
    """A chunk with an extension of 100 MB."""
    begin = head("POST", "/v1/translate", "Content-Type: application/json", "Transfer-Encoding: chunked")
    await pour(target, begin + b"2;a=", b"a" * (1 << 17), 100_000_000)


async def body(target: Target) -> None:
    """A chunked body of 100 MB, from 16 clients."""
    begin = head("POST", "/v1/translate", "Content-Type: application/json", "Transfer-Encoding: chunked")
    await pour(target, begin, b"10000\r\n" + b" " * 65536 + b"\r\n", 100_000_000, 16)


async def large_bodies(target: Target) -> None:
    """64 clients with bodies of 1.9 MB that are allowed: 127 texts, whose strings take four bytes a character."""
    sentence = "bead cafe deaf face, " * 47 + "dead. "
    texts = ["😀" + sentence * 15] * 127
    request = post("/v1/translate", {"text": texts}, CLOSE)
    await repeat(target, 64, lambda: request)


async def small_chunks(target: Target) -> None:
    """24 clients with bodies in chunks of one byte."""
    begin = head("POST", "/v1/translate", "Content-Type: application/json", "Transfer-Encoding: chunked")
    request = begin + b"1\r\n \r\n" * 100_000
    await repeat(target, 24, lambda: request)


async def malformed(target: Target) -> None:
    """Requests that are none: two lengths, bad chunks, control characters, random bytes, other protocols."""
    samples = [
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab",
        b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n",
        b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\0Y: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"GET /%ff%fe%00/../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
    ]

    def make() -> bytes:
        if target.pick.random() < 0.3:
            return target.pick.randbytes(target.pick.randint(1, 4000)) + b"\r\n\r\n"
        return target.pick.choice(samples)

    async def one() -> None:
        while target.left > 0:
            await ask(target, make(), 1.0)

    await asyncio.gather(*(one() for _ in range(8)))


# ------------------------------------------------------------------------------------------------ expensive requests

CLOSE = "Connection: close"


def sentences(words: int) -> str:
    """Return a text of so many words, in sentences of eleven."""
    return " ".join(word + "।" * (i % 11 == 10) for i, word in enumerate((WORDS * 100)[:words]))


async def png(target: Target) -> None:
    """One PNG figure of 250 words at a time."""
    await repeat(target, 1, lambda: post("/v1/figure", {"text": sentences(250), "format": "png"}, CLOSE))


async def pngs(target: Target) -> None:
    """32 PNG figures of 120 words at once."""
    await repeat(target, 32, lambda: post("/v1/figure", {"text": sentences(120), "format": "png"}, CLOSE))


async def figures(target: Target) -> None:
    """8 figures of 120 words at once, of every view, as SVG and HTML."""

    def make() -> bytes:
        view = target.pick.choice(["heatmap", "braid", "heads", "self"])
        kind = target.pick.choice(["svg", "html"])
        request = {"text": sentences(120), "view": view, "format": kind, "title": "<script>" * 20}
        return post("/v1/figure", request, CLOSE)

    await repeat(target, 8, make)


async def cluster(target: Target) -> None:
    """One text of 9,999 × (woman + zero-width joiner), which is one grapheme cluster."""
    await repeat(target, 1, lambda: post("/v1/translate", {"text": "👩\u200d" * 9999}, CLOSE))


async def clusters(target: Target) -> None:
    """Four such texts at once."""
    await repeat(target, 4, lambda: post("/v1/translate", {"text": "👩\u200d" * 9999}, CLOSE))


async def marks(target: Target) -> None:
    """Four texts at once of one letter with 19,999 combining marks."""
    await repeat(target, 4, lambda: post("/v1/translate", {"text": "a" + "\u0301" * 19_999}, CLOSE))


async def flags(target: Target) -> None:
    """Four texts at once of 20,000 regional indicators."""
    await repeat(target, 4, lambda: post("/v1/translate", {"text": "🇮" * 20_000}, CLOSE))


async def one_word(target: Target) -> None:
    """Four texts at once that are one word of 20,000 letters."""
    await repeat(target, 4, lambda: post("/v1/translate", {"text": "क" * 20_000}, CLOSE))


async def align(target: Target) -> None:
    """8 requests at once to align 128 pairs of 60 words."""
    pair = {"source": " ".join((WORDS * 9)[:60]), "target": " ".join(["the boy ate"] * 20)}
    await repeat(target, 8, lambda: post("/v1/align", {"pairs": [pair] * 128}, CLOSE))


async def long_texts(target: Target) -> None:
    """4 requests at once of 64 texts with 1,500 sentences in all, with alignments."""
    texts = [sentences(11 * 23) for _ in range(64)]
    await repeat(target, 4, lambda: post("/v1/translate", {"text": texts, "alignments": True}, CLOSE))


async def beams(target: Target) -> None:
    """Beams: 16 for long texts, and values out of range."""

    def make() -> bytes:
        size = target.pick.choice([16, 16, 16, 17, 1000, 0, -1, 10**30])
        n_best = target.pick.choice([size, 1, 16, 1000])
        return post("/v1/translate", {"text": " ".join(WORDS * 20), "beam": size, "n_best": n_best}, CLOSE)

    await repeat(target, 4, make)


async def json_bodies(target: Target) -> None:
    """Bodies that are hard to parse: nested, huge numbers, invalid UTF-8, lone surrogates, many keys."""
    size = 1_900_000
    samples = [
        b"[" * size,
        b'{"text":' * (size // 8),
        b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"text": "a", "beam": ' + b"9" * size + b"}",
        b'{"text": "a", "beam": 1e' + b"9" * 1000 + b"}",
        b'{"text": "a", "beam": NaN}',
        b'{"text": "\xff\xfe\xc0\x80"}',
        b'{"text": "\\ud800\\udfff\\ud800"}',
        b'{"text": "\\u0000\\u001b[31m\\u202e"}',
        b"\xef\xbb\xbf" + b'{"text": "a"}',
        b"{" + b",".join(b'"k%d": 1' % i for i in range(100_000)) + b"}",
        b'{"text": [' + b",".join([b'""'] * 400_000) + b"]}",
        b'{"pairs": [' + b",".join([b"{}"] * 400_000) + b"]}",
        b'{"text": "' + b"\\u0930" * (size // 6) + b'"}',
        b"",
        b"null",
    ]
    routes = ["/v1/translate", "/v1/stream", "/v1/align", "/v1/figure"]
    await repeat(target, 4, lambda: post(target.pick.choice(routes), target.pick.choice(samples), CLOSE))


async def markup_texts(target: Target) -> None:
    """Texts with hostile markup: deep, broken, endless."""
    samples = [
        "<b>" * 6000,
        "<b>" * 99 + "राम" + "</b>" * 99,
        "<" * 20_000,
        "<!--" * 5000,
        "<a " + "x=1 " * 4900,
        "<a href='" + "a" * 19_000,
        "&" * 20_000,
        "&#x10ffff;" * 1900,
        '<p title="<img src=x onerror=alert(1)>">राम</p>',
        "<i>a</b>" * 2400,
        "<td><p>" * 2800,
        "{a}" * 6000,
        "<svg><style><!--</style><img src=x onerror=alert(1)>-->",
        "<![CDATA[" * 2000,
        "<script>" + "a" * 15_000,
        "".join(f"<i{i}>a</i{i}>" for i in range(1200)),
    ]
    await repeat(target, 4, lambda: post("/v1/translate", {"text": target.pick.choice(samples), "markup": True}, CLOSE))


async def streams(target: Target) -> None:
    """64 streams of long texts at once."""
    await repeat(target, 64, lambda: post("/v1/stream", {"text": " ".join(WORDS * 30)}, CLOSE))


async def page_requests(target: Target) -> None:
    """Requests for odd paths, methods and hosts, without pause; none is answered 500, none reflects a foreign name."""
    paths = [
        "/v1/models/",
        "/v1/models",
        "/docs/",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page/../../config.json",
        "//evil.example",
    ]

    async def one() -> None:
        while target.left > 0:
            stream = await target.connect()
            if stream is None:
                await asyncio.sleep(0.05)
                continue
            reader, writer = stream
            method = target.pick.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"])
            host = target.pick.choice(
                ["evil.example", "127.0.0.1", "127.0.0.1:1@evil.example", "localhost:80.evil.example"]
            )
            request = f"{method} {target.pick.choice(paths)} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            with contextlib.suppress(OSError, TimeoutError, asyncio.LimitOverrunError):
                async with asyncio.timeout(2):
                    writer.write(request.encode())
                    said = (await reader.read(1 << 16)).partition(b"\r\n\r\n")[0]
                    target.counts[said[9:12].decode("latin-1") or "closed"] += 1
                    if b"location" in said.lower() and b"evil" in said:
                        target.counts["redirects to a foreign host"] += 1
            writer.transport.abort()
            await asyncio.sleep(0.02)

    await asyncio.gather(*(one() for _ in range(4)))


async def panics(target: Target) -> None:
    """Long texts that make the tokenizer panic, four at once (the model `other` panics above 300 tokens)."""
    text = "☠ " + " ".join(WORDS * 60)
    await repeat(target, 4, lambda: post("/v1/translate", {"text": text, "model": "other"}, CLOSE))


# ------------------------------------------------------------------------------------------------ processes


async def _signalled(target: Target, word: str, number: int, use: bytes) -> None:
    """Send a signal to a process of the service in the middle of its work, once."""
    working = asyncio.create_task(repeat(target, 2, lambda: use))
    await asyncio.sleep(1.0)
    found = children_with(target.pid, word)
    for pid in found:
        os.kill(pid, number)
        target.counts[f"{signal.Signals(number).name} sent"] += 1
    if not found:
        target.counts["there is no such process"] += 1
    await working


TRANSLATION = post("/v1/translate", {"text": " ".join(WORDS * 3)}, CLOSE)
PICTURE = post("/v1/figure", {"text": " ".join(WORDS), "format": "png"}, CLOSE)


async def kill_decoder(target: Target) -> None:
    """SIGKILL for the decoding process."""
    await _signalled(target, DECODER, signal.SIGKILL, TRANSLATION)


async def hang_decoder(target: Target) -> None:
    """SIGSTOP for the decoding process."""
    await _signalled(target, DECODER, signal.SIGSTOP, TRANSLATION)


async def kill_png(target: Target) -> None:
    """SIGKILL for the process that draws PNGs."""
    await _signalled(target, PNG, signal.SIGKILL, PICTURE)


async def hang_png(target: Target) -> None:
    """SIGSTOP for the process that draws PNGs."""
    await _signalled(target, PNG, signal.SIGSTOP, PICTURE)


# ------------------------------------------------------------------------------------------------ main

ATTACKS: dict[str, Callable[[Target], Awaitable[None]]] = {
    name.replace("_", "-"): function
    for name, function in list(globals().items())
    if inspect.iscoroutinefunction(function) and list(inspect.signature(function).parameters) == ["target"]
}


async def _run(name: str, target: Target) -> dict[str, Any]:
    try:
        async with asyncio.timeout(target.left + 2):
            await ATTACKS[name](target)
    except TimeoutError:
        target.counts["attacker cut off"] += 1
    return dict(target.counts)


if __name__ == "__main__":
    end_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    given = Target(int(sys.argv[2]), int(sys.argv[3]), time.monotonic() + float(sys.argv[4]))
    print(json.dumps(asyncio.run(_run(sys.argv[1], given))))
