"""The process of a service: its socket, uvicorn, limits of open files, its log, and how it ends."""

from __future__ import annotations

import gc
import io
import ipaddress
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from heedful.errors import ConfigError, printable
from heedful.serve.http.app import build
from heedful.serve.http.connections import LINGERING, protocol
from heedful.serve.http.flow_control import SEND_BUFFER
from heedful.serve.http.service import TranslationService
from heedful.serve.limits import Limits

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]


OPEN_FILES = 128  # for everything that is not a connection: models, pipes, other processes, logs
LEAST_CONNECTIONS = 16
SWITCH = 0.0002  # seconds after which a thread that computes yields to others; Python's default is 0.005
LOG_BUFFER = 1_000_000  # characters that wait to be written; more is dropped
LOG_CLOSE_SECONDS = 1.0
FLUSH = 5  # seconds to send responses when no request is active any more


class Server(uvicorn.Server):
    """Ends when all requests are answered, or when there is no time left; until then new requests get 503.

    A second signal ends it at once.
    """

    def __init__(
        self, config: uvicorn.Config, service: TranslationService, ready: Callable[[], None] | None = None
    ) -> None:
        super().__init__(config)
        self.service, self.ready, self.until = service, ready, 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and call `ready`."""
        await super().startup(sockets)
        if self.started and self.ready is not None:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.service.stopping:
            self.should_exit = self.force_exit = True
            return
        self.until = time.monotonic() + self.service.limits.drain
        self.service.stopping = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections, and log the last refusals."""
        try:
            await super().shutdown(sockets)
        finally:
            self.service.metrics.refusals.log(time.monotonic(), last=True)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to exit; called ten times a second."""
        self.service.metrics.refusals.log(time.monotonic())
        if self.service.stopping:
            self.service.bodies.stop()  # bodies that are not whole are not accepted yet
        if self.service.stopping and not self.should_exit:
            if time.monotonic() >= self.until:
                self.service.abandon()
                return True
            if not self.service.active:
                return True
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket with an address that does not listen yet; raise ConfigError if that is not possible."""
    made = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        made.bind(address)
    except (OSError, UnicodeError) as error:
        if made is not None:
            made.close()
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen at {host}, port {port}: {why}; choose another --host or --port") from None
    return made


def url_of(bound: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    service: TranslationService,
    bound: socket.socket,
    host: str = "127.0.0.1",
    *,
    token: str = "",
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    ready: Callable[[], None] | None = None,
) -> None:
    """Serve at a bound socket until a signal arrives.

    `host` is the name of its address, `hosts` are other names; pages of `origins` may use it from a browser.
    """
    gc.collect()
    gc.freeze()  # models and modules stay: to traverse them again and again would block all threads for up to 0.3 s
    sys.setswitchinterval(SWITCH)
    names = {"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in hosts)}
    # The names of a public address are known only to its owner.
    app = build(service, token, names if hosts or is_loopback(host) else None, origins)
    Server(uvicorn_config(app, service), service, ready).run(sockets=[bound])


def uvicorn_config(app: FastAPI, service: TranslationService) -> uvicorn.Config:
    """Return the configuration of uvicorn for the application of a service."""
    return uvicorn.Config(
        app,
        http=protocol(service.limits, service.connections),
        ws="none",
        log_level=max(logging.WARNING, logging.getLogger("heedful").getEffectiveLevel()),  # --quiet: errors only
        use_colors=False,  # escape sequences are escaped
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the address of a client is that of its connection
        timeout_graceful_shutdown=FLUSH,
        backlog=1024,
    )


def fit_open_files(limits: Limits, log: Callable[[str], None]) -> Limits:
    """Raise this process's limit of open files to what the connections need; return limits that fit it.

    Raises ConfigError if it does not allow even a few connections.
    """
    if resource is None:
        return limits
    need = limits.connections + LINGERING + OPEN_FILES + _open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return limits
    most = need if hard == resource.RLIM_INFINITY else min(need, hard)
    if most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            most = soft
    if most == need:
        return limits
    fewer = limits.connections - (need - most)
    rule = f"{limits.connections:,} connections need {need:,} open files, and this process may have {most:,}"
    if fewer < LEAST_CONNECTIONS:
        raise ConfigError(f"{rule}: raise that limit (ulimit -n, or LimitNOFILE= of a systemd unit)")
    log(f"at most {fewer:,} connections: {rule} (ulimit -n, or LimitNOFILE= of a systemd unit)")
    return replace(limits, connections=fewer)


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 32


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class LogStream(io.TextIOBase):
    """A text stream to a file descriptor that neither raises nor blocks: a full disk does not stop the service.

    A thread writes. What cannot be written is dropped, and the number of lost lines is written as soon as possible.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: deque[str] = deque()
        self._kept = self._lost = 0
        self._ended = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="heedful-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue a text to be written."""
        with self._change:
            if self._ended or self._kept + len(text) > LOG_BUFFER:
                self._lost += text.count("\n")
            else:
                self._texts.append(text)
                self._kept += len(text)
                self._change.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: logging does not wait."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def end(self) -> None:
        """Write what is left, if that takes no longer than a second, and accept no more."""
        with self._change:
            self._ended = True
            self._change.notify_all()
        self._thread.join(LOG_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._texts and not self._ended:
                    self._change.wait()
                if not self._texts:
                    return
                text, lost = "".join(self._texts), self._lost
                self._texts.clear()
                self._kept = self._lost = 0
            note = f"heedful: {lost} lines of the log could not be written\n" if lost else ""
            if not self._put(note + text):
                with self._change:
                    self._lost += lost + text.count("\n")

    def _put(self, text: str) -> bool:
        data = printable(text).encode(
            "utf-8", "backslashreplace"
        )  # control characters of a request must not reach a terminal
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return False
        return True


@contextmanager
def log_stream() -> Iterator[None]:
    """Make sys.stderr a `LogStream` for as long as the block lasts."""
    before, stream = sys.stderr, None
    with suppress(OSError, AttributeError, ValueError):  # closed, or not a file
        sys.stderr = stream = LogStream(before.fileno())
    try:
        yield
    finally:
        sys.stderr = before
        if stream is not None:
            stream.end()
