"""The process: uvicorn, and how it ends."""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import FrameType

import uvicorn
from fastapi import FastAPI

from heedful.errors import ConfigError
from heedful.serve.app import build
from heedful.serve.connections import LINGERING, protocol
from heedful.serve.limits import Limits
from heedful.serve.receiving import KEPT
from heedful.serve.service import Service

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

__all__ = ["Server", "address", "bound", "configured", "fit_open_files", "loopback", "run"]

OPEN_FILES = 128  # for everything that is not a connection: models, pipes, other processes, logs
LEAST_CONNECTIONS = 16
SWITCH = 0.0002  # seconds after which a thread that computes lets others go on; Python's own are 0.005
FLUSH = 5  # seconds for answers to be sent when nothing is worked on any more


class Server(uvicorn.Server):
    """Ends when it has finished what it has, or when there is no time left; until then new requests get 503.

    A second signal ends it at once.
    """

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self.service, self.ready, self.until = service, ready, 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started and self.ready is not None:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.service.stopping:
            self.should_exit = self.force_exit = True
            return
        self.until = time.monotonic() + self.service.limits.drain
        self.service.stopping = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections, and log what was refused since the last line of the log."""
        try:
            await super().shutdown(sockets)
        finally:
            self.service.metrics.refusals.log(time.monotonic(), last=True)

    async def on_tick(self, counter: int) -> bool:
        """Ask, ten times a second, whether it is over."""
        self.service.metrics.refusals.log(time.monotonic())
        if self.service.stopping:
            self.service.bodies.stop()  # what is not whole was not accepted yet
        if self.service.stopping and not self.should_exit:
            if time.monotonic() >= self.until:
                self.service.abandon()
                return True
            if not self.service.active:
                return True
        return await super().on_tick(counter)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that has an address, and does not listen yet; refuse one that cannot be had."""
    made = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KEPT)  # connections inherit it
        made.bind(address)
    except (OSError, UnicodeError) as error:
        if made is not None:
            made.close()
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen at {host}, port {port}: {why}; choose another --host or --port") from None
    return made


def address(given: socket.socket) -> str:
    """Return where a socket is reached."""
    host, port = given.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    service: Service,
    given: socket.socket,
    host: str = "127.0.0.1",
    *,
    token: str = "",
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    ready: Callable[[], None] | None = None,
) -> None:
    """Serve at a bound socket until a signal comes.

    `host` is how the address was given, `hosts` are other names; pages of `origins` may ask from a browser.
    """
    gc.collect()
    gc.freeze()  # models and modules stay: to go through them again and again would stop everybody for up to 0.3 s
    sys.setswitchinterval(SWITCH)
    names = {"localhost", "127.0.0.1", "::1", host.lower(), *(name.lower() for name in hosts)}
    # Whoever listens to the world goes by names that only its owner knows.
    app = build(service, token, names if hosts or loopback(host) else None, origins)
    Server(configured(app, service), service, ready).run(sockets=[given])


def configured(app: FastAPI, service: Service) -> uvicorn.Config:
    """Return how uvicorn runs the application of a service."""
    return uvicorn.Config(
        app,
        http=protocol(service.limits, service.connections),
        ws="none",
        log_level=max(logging.WARNING, logging.getLogger("heedful").getEffectiveLevel()),  # --quiet: errors only
        use_colors=False,  # escape sequences are escaped
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks where a request came from
        timeout_graceful_shutdown=FLUSH,
        backlog=1024,
    )


def fit_open_files(limits: Limits, log: Callable[[str], None]) -> Limits:
    """Raise this process's limit of open files as far as the connections need it; return limits that it allows.

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


def loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> loopback("localhost"), loopback("127.0.0.1"), loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
