"""Who does not read: answers wait for their reader in bounded room, and not for ever."""

from __future__ import annotations

import asyncio

__all__ = ["KEPT", "Reading"]

RATE = 512  # bytes per second that a reader has to take at least

# Bytes of an answer that the system keeps for a reader; it doubles them, as a rule. As many as it likes would be
# megabytes, which hide for minutes whether somebody on a slow line reads.
KEPT = 128 * 1024


class Reading(asyncio.Protocol):
    """Cuts a connection off whose reader takes less than 512 bytes per second of what it was sent, over `seconds`.

    As long as there is something that was not taken, uvicorn lets nobody write: what is left becomes less, or nobody
    reads. Whoever writes is told that the reader has gone away, and what is still there is thrown away.
    """

    seconds = 30.0
    transport: asyncio.Transport  # uvicorn's
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch whatever the system does not take at once."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        """Begin to watch: there is something that was not taken."""
        super().pause_writing()
        self._again()

    def resume_writing(self) -> None:
        """Watch no longer: there is room again."""
        self._end()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Watch no longer: nobody is there."""
        self._end()
        super().connection_lost(exc)

    def _again(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._watch = asyncio.get_running_loop().call_later(self.seconds, self._look, left)

    def _look(self, before: int) -> None:
        if self.transport.get_write_buffer_size() <= max(0, before - RATE * self.seconds):
            self._again()
        else:
            self._not_read()

    def _not_read(self) -> None:
        """Cut the connection off."""
        self.transport.abort()

    def _end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
