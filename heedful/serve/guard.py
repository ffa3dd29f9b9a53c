"""What stands before the routes: who may ask, how much, and how many at once; and what is counted of every request."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve.problems import Trouble, answer
from heedful.serve.service import Service

__all__ = ["Guard"]

HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
WORK = ("/v1/translate", "/v1/stream", "/v1/align", "/v1/figure")
ROUTES = frozenset(("/", "/health", "/ready", "/metrics", "/openapi.json", "/v1/models", *WORK))


class Guard:
    """Checks a request before anybody reads it.

    With a `token`, all but the page, /health and /ready wants it. `hosts` are the names that the service goes by;
    a request for another one comes from a page that was led here by a false address. None: any name.
    """

    def __init__(self, app: ASGIApp, service: Service, token: str = "", hosts: Collection[str] | None = None) -> None:
        self.app, self.service, self.token, self.hosts = app, service, token.encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 499  # what is written of those who went away
        path = scope["path"]

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        works = scope["method"] == "POST" and path.startswith("/v1/")
        self.service.active += works
        try:
            headers = dict(scope["headers"])
            self._check(scope, path, headers, works)
            body = await self._body(headers, receive) if works else None
            await self.app(scope, receive if body is None else _again(body, receive), counted)
        except Trouble as trouble:
            await answer(trouble)(scope, receive, counted)
        except _Left:
            pass
        except Exception:
            status = 500
            raise
        finally:
            self.service.active -= works
            route = path if path in ROUTES else "/page" if path.startswith("/page/") else "other"
            self.service.metrics.request(route, status, time.perf_counter() - begun)

    def _check(self, scope: Scope, path: str, headers: Mapping[bytes, bytes], works: bool) -> None:
        """Refuse who may not ask, and what there is no room for."""
        if self.hosts is not None and (name := _host(headers.get(b"host", b""))) not in self.hosts:
            raise Trouble(421, f"this service does not go by the name {name!r}; see heedful serve --allow-host")
        if self.token and (path.startswith("/v1/") or path in ("/metrics", "/openapi.json")):
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(given.strip(), self.token) or kind.lower() != b"bearer":
                raise Trouble(
                    401,
                    "this service wants a token: Authorization: Bearer TOKEN",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if not works:
            return
        limits = self.service.limits
        if self.service.stopping:
            raise Trouble(503, "the service is stopping", headers={"Retry-After": "5", "Connection": "close"})
        if self.service.active > limits.requests:
            after = str(self.service.batcher.patience())
            raise Trouble(
                429,
                f"{limits.requests} requests are being worked on; ask again in {after} s",
                headers={"Retry-After": after},
            )
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media != b"application/json":
            raise Trouble(415, "expected JSON: Content-Type: application/json")

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read what is asked, as much as is allowed."""
        most = self.service.limits.body
        said = headers.get(b"content-length", b"0")
        parts, size = [], 0
        if said.isdigit() and int(said[:20]) > most:
            raise Trouble(413, f"the request has {int(said[:20]):,} bytes; {most:,} are allowed")
        try:
            async with asyncio.timeout(self.service.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise Trouble(413, f"the request has more than {most:,} bytes, which are allowed")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Trouble(408, "the request did not come whole in time") from None


class _Left(Exception):
    """Whoever asked went away before the request was whole."""


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _host(header: bytes) -> str:
    """Return the name in a Host header, without its port.

    >>> _host(b"localhost:8000"), _host(b"[::1]:8000")
    ('localhost', '::1')
    """
    name = header.decode("latin-1").lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")
