"""Flow control of connections: clients that send too much, and clients that do not read their response."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

# What one address may send. More is read later: parsing it would take the time of the event loop from others.
RECEIVE_RATE = 32 * 1024 * 1024  # bytes per second, on average
RECEIVE_BURST = 8 * 1024 * 1024  # bytes at once
RECEIVE_PAUSE = 1.0  # seconds for which a connection is not read, at most
ADDRESSES = 1_024  # addresses whose rate is stored before those that sent nothing for a while are forgotten

READ_RATE = 512  # bytes per second that a client has to read at least
# Bytes of a response that the system buffers for a client, and usually doubles. By default that would be megabytes,
# which hide for minutes whether a client on a slow line reads.
SEND_BUFFER = 128 * 1024


class ReceiveRate:
    """A token bucket for the bytes of each address."""

    def __init__(self, rate: float = RECEIVE_RATE, burst: float = RECEIVE_BURST) -> None:
        self.rate, self.burst = rate, burst
        self.levels: dict[str, tuple[float, float]] = {}  # bytes in the bucket, at a time

    def charge(self, key: str, cost: int, now: float) -> float:
        """Count bytes of an address; return the seconds for which its connection is not read."""
        level = min(self._level(key, now) + cost, self.burst + RECEIVE_PAUSE * self.rate)
        if key not in self.levels and len(self.levels) >= ADDRESSES:
            self.levels = {each: entry for each, entry in self.levels.items() if self._level(each, now)}
        self.levels[key] = level, now
        return max(0.0, level - self.burst) / self.rate

    def _level(self, key: str, now: float) -> float:
        level, then = self.levels.get(key, (0.0, now))
        return max(0.0, level - self.rate * (now - then))


class ThrottledFlow(FlowControl):
    """uvicorn's flow control; a throttled connection is not read."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self.throttled = False

    def resume_reading(self) -> None:
        """Resume reading, unless throttled."""
        if self.read_paused:
            self.read_paused = False
            if not self.throttled:
                self._transport.resume_reading()

    def throttle(self) -> None:
        """Stop reading for now."""
        self.throttled = True
        self._transport.pause_reading()

    def release(self) -> None:
        """Resume reading, unless paused for another reason."""
        self.throttled = False
        if not self.read_paused:
            self._transport.resume_reading()


class SlowReaderProtocol(asyncio.Protocol):
    """Aborts a connection whose client reads less than 512 bytes per second of its response, over `seconds`.

    While there are unsent bytes, uvicorn accepts no more: their number falls, or the client does not read. The
    application sees a client that has disconnected.
    """

    seconds = 30.0
    transport: asyncio.Transport  # uvicorn's
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Report whatever the system does not take at once."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        """Start the timer: there are unsent bytes."""
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        """Stop the timer: all is sent."""
        self._stop_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._read_timer = asyncio.get_running_loop().call_later(self.seconds, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        if self.transport.get_write_buffer_size() <= max(0, before - READ_RATE * self.seconds):
            self._start_timer()
        else:
            self._not_read()

    def _not_read(self) -> None:
        """Abort the connection."""
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
