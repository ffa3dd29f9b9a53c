"""What stands before the routes: who may ask, how much, and how many at once; and what is counted of every request."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection, Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve.bodies import LATER, Held
from heedful.serve.problems import ClientGone, Trouble, answer
from heedful.serve.service import Service
from heedful.serve.structure import allowed, few, values

__all__ = ["Guard"]

HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
WORK = ("/v1/translate", "/v1/stream", "/v1/align", "/v1/figure")
# By status: why a request was refused, for the metrics, where `Trouble.reason` does not say it.
REASONS = {401: "token", 413: "body_size", 421: "host", 429: "requests", 503: "unavailable", 504: "request_time"}
ROUTES = frozenset(("/", "/health", "/ready", "/metrics", "/openapi.json", "/docs", "/v1/models", *WORK))
PAGES = ("/page", "/docs")  # their parts are counted together


class Guard:
    """Checks a request before anybody reads it.

    With a `token`, all but the pages (/ and /docs), /health and /ready wants it. `hosts` are the names that the service
    goes by; a request for another one comes from a page that was led here by a false address. None: any name.
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

        active, reason = 0, ""
        held: Held | None = None
        address = scope["client"][0] if scope.get("client") else ""
        try:
            headers = dict(scope["headers"])
            self._check(path, headers)
            if scope["method"] == "POST" and path in WORK:
                self._check_work(headers)
                body = await self.service.bodies.receive(receive)
                self._check_room()  # only now: a slow body takes no place from others
                held = self.service.bodies.hold(len(body))
                self.service.active += (active := 1)
                # The time of a request and its memory: routes find both in `request.state`.
                scope.setdefault("state", {}).update(until=self.service.until(), held=held)
                await self._check_structure(body, Request(scope, receive))
                receive = _again(body, receive)
                del body
            await self.app(scope, receive, counted)
        except Trouble as trouble:
            reason = trouble.reason
            await answer(trouble)(scope, receive, counted)
        except ClientGone:
            pass
        except Exception:
            status = 500
            raise
        finally:
            self.service.active -= active
            if held is not None:
                held.release()
            if not reason and (path in WORK or status in (401, 421)):
                reason = REASONS.get(status, "")
            if reason:
                self.service.metrics.refusals.add(reason, address)
            route = path if path in ROUTES else next((each for each in PAGES if path.startswith(f"{each}/")), "other")
            self.service.metrics.request(route, status, time.perf_counter() - begun)

    def _check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Refuse who may not ask."""
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

    def _check_work(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what need not be read."""
        self._check_room()
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media != b"application/json":
            raise Trouble(415, "expected JSON: Content-Type: application/json")
        most, length = self.service.limits.body, headers.get(b"content-length", b"0")
        size = int(length[:20]) if length.isdigit() else 0
        if size > most:
            raise Trouble(413, f"the request has {size:,} bytes; {most:,} are allowed")
        self.service.bodies.check(size)

    async def _check_structure(self, body: bytes, request: Request) -> None:
        """Refuse JSON with more values than a request can need: only to parse it would take long."""
        if few(body):
            return
        most = allowed(self.service.limits)
        if await self.service.patiently(request, self.service.away(lambda: values(body, most))) > most:
            raise Trouble(422, f"the request has more than {most:,} values: objects and arrays and what is in them")

    def _check_room(self) -> None:
        """Refuse what there is no room for."""
        limits = self.service.limits
        if self.service.stopping:
            raise Trouble(503, "the service is stopping", headers=LATER, reason="stopping")
        if self.service.active >= limits.requests:
            after = str(self.service.batcher.patience())
            raise Trouble(
                429,
                f"{limits.requests} requests are being worked on; ask again in {after} s",
                headers={"Retry-After": after},
            )


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes after it."""
    whole = [body]  # it is not kept here for as long as the request takes

    async def again() -> Message:
        if not whole:
            return await receive()
        return {"type": "http.request", "body": whole.pop(), "more_body": False}

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
