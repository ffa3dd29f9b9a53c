"""Connections: how many there may be, and what each may send before it is read into memory.

uvicorn's protocol passes every byte to its parser as it arrives: headers, URLs and trailers of any size, and any number
of pipelined requests, are kept. `HttpConnection` finds the end of each part of a request by itself, within limits, and
gives the parser (llhttp, strict) one part at a time. The next request is parsed when the last one is answered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections import Counter
from enum import Enum
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.serve.http.flow_control import ReceiveRate, SlowReaderProtocol, ThrottledFlow
from heedful.serve.http.metrics import Refusals
from heedful.serve.limits import Limits

REQUEST_LINE = 8 * 1024  # bytes of method, URL and version
HEADER = 32 * 1024  # bytes of the request line and all header fields; and of all trailers
FIELDS = 100  # header fields
CHUNK_LINE = 1024  # bytes of a chunk's size and extensions
CHUNKS = 1_000  # chunks of a body, besides one for each CHUNK_BYTES
CHUNK_BYTES = 512
STEPS = 16  # parts of a request that are parsed in one turn of the event loop
PIPELINED = 64 * 1024  # bytes of later requests that are kept while one is answered
DRAINED = 64 * 1024  # bytes of a body that are discarded, after an early response, to keep the connection
DRAIN_SECONDS = 5.0

# The system resets a connection that is closed while its client still sends, and the client may lose the response.
# So what arrives is discarded for a while first.
LINGER_SECONDS = 2.0
LINGER_BYTES = 8 * 1024 * 1024
LINGER_RATE = 16 * 1024 * 1024  # bytes per second of all connections together
LINGERING = 64  # refused connections that may linger

REQUEST_COST = 16 * 1024  # bytes that a connection and a request count for, besides their own
CHUNK_COST = 2 * 1024  # bytes that a chunk counts for, besides its own

EVICTABLE = 0.2  # seconds that a connection has waited for its client before it may be closed to make room

BARE_LF = re.compile(rb"(?<!\r)\n")
EMPTY_LINES = re.compile(rb"(?:\r\n)*")
UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class ConnectionState(Enum):
    """The state of a connection."""

    IDLE = "waits for a request"
    HEADER = "receives a header"
    BODY = "receives a body"
    ANSWER = "has a whole request, which is being answered"
    CLOSING = "is answered, or refused, and discards what still arrives"


class Connections:
    """The open connections of a service, in all and by address.

    When there are too many, the one that has waited longest for its client (for a request, or the rest of one) is
    closed to make room. If none has waited for 0.2 s, the new connection is refused.
    """

    def __init__(self, limits: Limits, refusals: Refusals) -> None:
        self.limits, self.refusals = limits, refusals
        self.open: dict[HttpConnection, str] = {}  # the key of its address
        self.by_address: Counter[str] = Counter()
        self.waiting: dict[HttpConnection, float] = {}  # since when; the longest first
        self.received = ReceiveRate()
        self.lingering = 0  # refused, and not closed yet
        self.idle_closed = 0
        self._second, self._discarded = 0.0, 0  # bytes that lingering connections discarded since then

    def admit(self, connection: HttpConnection, address: str, now: float) -> str:
        """Add a connection; return the reason if it has to be refused, or an empty string."""
        most, key = self.limits.connections_per_address, address_key(address)
        if most and key and self.by_address[key] >= most and not self._make_room(now, key):
            return "connections_per_address"
        if len(self.open) >= self.limits.connections and not self._make_room(now):
            return "connections"
        self.open[connection] = key
        self.by_address[key] += 1
        return ""

    def remove(self, connection: HttpConnection) -> None:
        """Remove a connection, if it is there."""
        key = self.open.pop(connection, None)
        self.waiting.pop(connection, None)
        if key is not None:
            self.by_address[key] -= 1
            if not self.by_address[key]:
                del self.by_address[key]

    def wait(self, connection: HttpConnection, now: float) -> None:
        """Note that a connection waits for its client from now on."""
        if connection in self.open:
            self.waiting.pop(connection, None)
            self.waiting[connection] = now

    def busy(self, connection: HttpConnection) -> None:
        """Note that a connection does not wait for its client."""
        self.waiting.pop(connection, None)

    def may_discard(self, size: int, now: float) -> bool:
        """Whether connections may discard more bytes in this second: that takes time, too."""
        if now - self._second >= 1:
            self._second, self._discarded = now, 0
        self._discarded += size
        return self._discarded <= LINGER_RATE

    def _make_room(self, now: float, key: str | None = None) -> bool:
        for connection, since in self.waiting.items():
            if now - since < EVICTABLE:
                return False
            # Unsent bytes would be lost (`SlowReaderProtocol` closes those), and a throttled connection waits for us.
            waits = not (connection.transport.get_write_buffer_size() or connection.flow.throttled)
            if key in (None, self.open[connection]) and waits:
                self.refusals.add("evicted", connection.address)
                self.remove(connection)
                connection.transport.close()
                return True
        return False


class HttpConnection(SlowReaderProtocol, HttpToolsProtocol):
    """One connection: a request at a time, each part of it within limits."""

    limits: Limits
    registry: Connections
    refusals: Refusals

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **named)
        self.state = ConnectionState.IDLE
        self.address = ""
        self._rest = bytearray()  # received, and not given to the parser
        self._searched = 0  # bytes of it in which the header does not end
        self._parsed = False  # the parser agrees that the header is whole
        self._chunked = self._in_trailer = self._whole = False
        self._left = 0  # bytes of the body, or of a chunk with its end of line, that are still to come
        self._trailers = 0  # bytes of trailers
        self._chunks = self._chunk_bytes = 0  # chunks of the body so far, and what they hold
        self._continues = False  # there is more to parse in the next turn of the event loop
        self._discarded = 0  # bytes
        self._reading_stopped = False  # nothing more is read before the response
        self._timer: asyncio.TimerHandle | None = None
        self._throttle: asyncio.TimerHandle | None = None
        self._key = ""  # of its address, for the registry
        self._extra = False  # refused, and not in the registry

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse a client."""
        super().connection_made(transport)
        self.flow: ThrottledFlow = ThrottledFlow(transport)
        self.address = self.client[0] if self.client else ""
        self._key = address_key(self.address)
        if reason := self.registry.admit(self, self.address, self.loop.time()):
            linger = self.registry.lingering < LINGERING
            if linger:
                self._extra = True
                self.registry.lingering += 1
            self._refuse(503, reason, "there are too many connections; try again later", linger=linger)
            return
        self._wait(ConnectionState.IDLE, self.limits.idle, self._idle_over)
        self._charge(REQUEST_COST)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._cancel()
        if self._throttle is not None:
            self._throttle.cancel()
        self.registry.remove(self)
        if self._extra:
            self._extra = False
            self.registry.lingering -= 1
        self._rest.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, keep it, or discard it."""
        if self.state is ConnectionState.CLOSING:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES or not self.registry.may_discard(len(data), self.loop.time()):
                self.transport.abort()
            return
        if self._reading_stopped:
            return
        self._charge(len(data))
        self._rest += data
        if self._continues:
            self.flow.pause_reading()  # until what is here is parsed
            return
        if self.state is not ConnectionState.ANSWER:
            self._advance()
        if self.state is ConnectionState.ANSWER and len(self._rest) > PIPELINED:
            # No response can be sent before the one that is due: the connection ends with that one.
            self.refusals.add("pipelined", self.address)
            self._stop_reading()

    def _charge(self, cost: int) -> None:
        """Count what the address has sent; stop reading for a while if that is too much."""
        if not self._key or not self.limits.connections_per_address:  # behind a proxy all are of one address
            return
        if delay := self.registry.received.charge(self._key, cost, self.loop.time()):
            self.flow.throttle()  # each time: uvloop starts reading after `connection_made`
            if self._throttle is None:
                self._throttle = self.loop.call_later(delay, self._release)

    def _release(self) -> None:
        self._throttle = None
        if not (self._reading_stopped or self.transport.is_closing()):
            self.flow.release()
            if self._continues:
                self._continue()

    def shutdown(self) -> None:
        """End, or end after the response, because the server stops."""
        if self.state is ConnectionState.CLOSING:
            self.transport.abort()
        else:
            super().shutdown()

    def _advance(self) -> None:
        """Parse what belongs to this request, or to the next if this one is over."""
        steps = 0
        try:
            while self._rest and self._step():
                steps += 1
                if steps >= STEPS and self._rest and self.state is ConnectionState.BODY:
                    self._continues = True
                    self.flow.pause_reading()
                    if not self.flow.throttled:  # else later, by `_release`
                        self.loop.call_soon(self._continue)
                    return
        except httptools.HttpParserError:
            self._refuse(400, "invalid", "this is not an HTTP/1.1 request")
            return
        if self.state is ConnectionState.IDLE and self._rest:
            self._wait(ConnectionState.HEADER, self.limits.header_seconds, self._header_over)

    def _continue(self) -> None:
        """Parse what was left for the next turn of the event loop."""
        self._continues = False
        if self.state is ConnectionState.CLOSING or self._reading_stopped or self.transport.is_closing():
            return
        self._advance()
        if not self._continues:
            self.flow.resume_reading()

    def _step(self) -> bool:
        """Parse one part; False if that part is not whole yet, or nothing may be parsed now."""
        if self.state in (ConnectionState.IDLE, ConnectionState.HEADER):
            return self._header()
        if self.state is ConnectionState.BODY:
            if self._left:
                return self._data()
            return self._trailer() if self._in_trailer else self._chunk()
        return False

    def _header(self) -> bool:
        rest = self._rest
        if rest.startswith(b"\r\n"):  # old clients send it after a body
            del rest[: EMPTY_LINES.match(rest).end()]  # type: ignore[union-attr]
            if not rest:
                return False
        line = rest.find(b"\r\n", 0, REQUEST_LINE + 2)
        if line < 0 and len(rest) > REQUEST_LINE:
            return self._refuse(414, "url_size", f"the request line is longer than {REQUEST_LINE:,} bytes")
        end = rest.find(b"\r\n\r\n", max(0, self._searched - 3))
        if BARE_LF.search(rest, self._searched, end if end >= 0 else len(rest)):
            raise httptools.HttpParserError("a line ends without CR")
        if (end if end >= 0 else len(rest)) > HEADER:
            return self._refuse(431, "header_size", f"the header is larger than {HEADER:,} bytes")
        if end < 0:
            self._searched = len(rest)
            return False
        block = bytes(rest[: end + 4])
        del rest[: end + 4]
        self._searched = 0
        self._charge(REQUEST_COST)
        if block.count(b"\r\n") > FIELDS + 2:
            return self._refuse(431, "header_size", f"the header has more than {FIELDS} fields")
        if block.startswith(b"CONNECT "):
            raise httptools.HttpParserError("this is not a proxy")
        self._parsed = self._chunked = self._in_trailer = self._whole = False
        self._left = self._trailers = self._discarded = self._chunks = self._chunk_bytes = 0
        # No other protocol is offered. The parser would take what follows for that protocol, and not for a body.
        self.parser.feed_data(UPGRADE.sub(b"", block))
        if not self._parsed:
            raise httptools.HttpParserError("the header does not end where it seems to")
        if self._whole:
            self._busy()
        else:
            self._wait(ConnectionState.BODY)
        return True

    def _data(self) -> bool:
        data = bytes(self._rest[: self._left])
        del self._rest[: len(data)]
        self._left -= len(data)
        self._feed_body(data)
        return True

    def _chunk(self) -> bool:
        line = self._line(CHUNK_LINE)
        if line is None:
            if len(self._rest) > CHUNK_LINE:
                raise httptools.HttpParserError("the line of a chunk is too long")
            return False
        self._feed_body(line)
        size = int(line.partition(b";")[0], 16)  # the parser has checked that it is a number
        self._left, self._in_trailer = size + 2 if size else 0, not size
        self._chunks += 1
        self._chunk_bytes += size
        self._charge(CHUNK_COST)
        if self._chunks > CHUNKS + self._chunk_bytes // CHUNK_BYTES:
            return self._refuse(
                400, "invalid", f"the body has more than {CHUNKS:,} chunks of less than {CHUNK_BYTES} bytes"
            )
        return True

    def _trailer(self) -> bool:
        line = self._line(HEADER)
        self._trailers += len(line or b"")
        if self._trailers > HEADER or (line is None and len(self._rest) > HEADER):
            return self._refuse(431, "header_size", f"the trailers are larger than {HEADER:,} bytes")
        if line is None:
            return False
        self._feed_body(line)
        return True

    def _line(self, most: int) -> bytes | None:
        """Remove and return a line with its end, if there is a whole one."""
        end = self._rest.find(b"\n", 0, most)
        if end < 0:
            return None
        line = bytes(self._rest[: end + 1])
        del self._rest[: end + 1]
        return line

    def _feed_body(self, data: bytes) -> None:
        self.parser.feed_data(data)
        if self._whole:
            if self.cycle.response_complete:
                self._wait(ConnectionState.IDLE, self.limits.idle, self._idle_over)
            else:
                self._busy()
        elif self.cycle.response_complete:
            self._discarded += len(data)
            if self._discarded > DRAINED:
                self._linger()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field. Trailers are ignored: the header has been checked already."""
        if self.state is not ConnectionState.BODY:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check what llhttp leaves to its user, and start the response."""
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise httptools.HttpParserError("the version is not 1.0 or 1.1")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            raise httptools.HttpParserError("a request has one Host")
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and [value.strip().lower() for value in codings] != [b"chunked"]:
            raise httptools.HttpParserError("a body is sent as it is, or in chunks")
        self._chunked = bool(codings)
        if not self.url.startswith(b"/"):
            self._absolute()
        for name, value in self.headers:
            if name == b"content-length" and not self._chunked:
                self._left = int(value)
        super().on_headers_complete()
        self._parsed = True
        self.cycle.transport = _CycleTransport(self)  # type: ignore[assignment]

    def _absolute(self) -> None:
        """Use the host of an absolute URL instead of the header (RFC 9112)."""
        url = httptools.parse_url(self.url)
        if not url.host or not url.path:
            raise httptools.HttpParserError("the URL has no path")
        host = url.host + (b":%d" % url.port if url.port else b"")
        self.headers[:] = [field for field in self.headers if field[0] != b"host"] + [(b"host", host)]

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request; discard the rest of this one if it was answered early."""
        self.server_state.total_requests += 1
        if self.state is ConnectionState.CLOSING or self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._whole:
            self._wait(ConnectionState.IDLE, self.limits.idle, self._idle_over)
            self._advance()
        elif self.expect_100_continue or (self._left > DRAINED and not self._chunked):
            self._linger()
        else:
            self._wait(ConnectionState.BODY, DRAIN_SECONDS, self._linger)

    def end(self) -> None:
        """Close the connection after a response."""
        if self._whole and not self._rest and not self._reading_stopped:
            self.transport.close()
        else:
            self._linger()

    def _refuse(self, status: int, reason: str, detail: str, linger: bool = True) -> bool:
        """Refuse a request, and end the connection; return False, for `_step`."""
        self.refusals.add(reason, self.address)
        cycle = self.cycle
        answered = cycle is not None and cycle.response_complete and self.state is ConnectionState.BODY
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:  # the connection ends with the response
                self._stop_reading()
                return False
            cycle.disconnected = True  # for the application the client is gone
            cycle.message_event.set()
        if not answered:
            self.transport.write(_response(status, detail, self.server_state.default_headers))
        if linger:
            self._linger()
        else:
            self.transport.close()
        return False

    def _stop_reading(self) -> None:
        """Read nothing more, and let the connection end with the current response."""
        self._rest.clear()
        self._reading_stopped = True
        self.cycle.keep_alive = False
        self.transport.pause_reading()

    def _linger(self) -> None:
        """Send what is left, discard what arrives, and close soon."""
        self._rest.clear()
        self._discarded = 0
        self._wait(ConnectionState.CLOSING, LINGER_SECONDS, self._linger_over)
        if not self.transport.is_closing():
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.flow.resume_reading()
            self.transport.resume_reading()

    def _linger_over(self) -> None:
        if self.transport.get_write_buffer_size():  # `SlowReaderProtocol` ends it if the client does not read
            self._timer = self.loop.call_later(LINGER_SECONDS, self._linger_over)
        else:
            self.transport.abort()

    def _idle_over(self) -> None:
        self.registry.idle_closed += 1
        self.transport.close()

    def _header_over(self) -> None:
        self._refuse(408, "header_time", f"the header was not whole after {self.limits.header_seconds:g} s")

    def _not_read(self) -> None:
        self.refusals.add("slow_reader", self.address)
        super()._not_read()

    def _wait(self, state: ConnectionState, seconds: float | None = None, then: Any = None) -> None:  # noqa: ANN401
        """Wait for the client from now on; call `then` if that takes too long."""
        self._cancel()
        self.state = state
        self.registry.wait(self, self.loop.time())
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, then)

    def _busy(self) -> None:
        """Note that there is a whole request."""
        self._cancel()
        self.state = ConnectionState.ANSWER
        self.registry.busy(self)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _CycleTransport:
    """The transport of a response: `close` leaves the response time to arrive."""

    def __init__(self, connection: HttpConnection) -> None:
        self.write, self.is_closing = connection.transport.write, connection.transport.is_closing
        self.close = connection.end


def _response(status: int, detail: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    title = HTTPStatus(status).phrase
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
    lines = [b"HTTP/1.1 %d %s" % (status, title.encode()), *(b"%s: %s" % field for field in headers)]
    lines += [b"content-type: application/problem+json", b"x-content-type-options: nosniff"]
    lines += [b"content-length: %d" % len(body), b"connection: close"]
    lines += [b"retry-after: 5"] if status == HTTPStatus.SERVICE_UNAVAILABLE else []
    return b"\r\n".join([*lines, b"", body])


def address_key(address: str) -> str:
    """Return the key that connections are counted by: an IPv4 address, or the /64 network of an IPv6 address.

    One machine usually has a whole /64 to choose addresses from.

    >>> address_key("192.0.2.7"), address_key("::ffff:192.0.2.7"), address_key("2001:db8:0:1:2:3:4:5")
    ('192.0.2.7', '192.0.2.7', '2001:db8:0:1::/64')
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def protocol(limits: Limits, registry: Connections) -> type[asyncio.Protocol]:
    """Return the protocol class that uvicorn uses for each connection."""
    names = {"seconds": limits.seconds, "limits": limits, "registry": registry, "refusals": registry.refusals}
    return type("Http", (HttpConnection,), names)
