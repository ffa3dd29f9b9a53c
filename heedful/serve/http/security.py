"""Checks before the routes: host, token, origin, size and structure of a request, and free slots.

Python's JSON parser holds the interpreter lock from beginning to end: 2 MB of `[[[]]]` or `[0,0,0]` are up to a million
values, and would block the event loop for up to half a second. So values are counted before they are parsed: a request
needs a few for each of its items, and a few more.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.errors import ConfigError
from heedful.serve.http.bodies import CLOSE_LATER, RequestMemory
from heedful.serve.http.errors import ClientGoneError, HttpProblem, response
from heedful.serve.http.service import TranslationService

HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
CAPTION, FORM = "/v1/caption", b"multipart/form-data"
WORK = ("/v1/translate", "/v1/stream", "/v1/align", "/v1/figure", CAPTION)
# By status: why a request was refused, for the metrics, where `HttpProblem.reason` is empty.
REASONS = {
    401: "token",
    403: "origin",
    413: "body_size",
    421: "host",
    429: "requests",
    503: "unavailable",
    504: "request_time",
}
ROUTES = frozenset(("/", "/health", "/ready", "/metrics", "/openapi.json", "/docs", "/v1/models", *WORK))
PAGES = ("/page", "/docs")  # their files are counted together
FEW = 2_000  # brackets and commas, inside of strings or not, that are parsed fast in any case
MORE = 64  # values besides those of the items
_JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[{,]', re.DOTALL)


class SecurityMiddleware:
    """Checks a request before its body is parsed, and counts it when it is answered.

    With a `token`, all but the pages (/ and /docs), /health and /ready requires it. `hosts` are the names of the
    service, None: any; a request for another name comes from a page that was led here by DNS rebinding. Pages of
    `origins` may send forms, `*` is any page; browsers do not ask before they send a form, as they do for JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: TranslationService,
        token: str = "",
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
    ) -> None:
        self.app, self.service, self.token, self.hosts = app, service, token.encode(), hosts
        self.origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 499  # the status of requests whose client is gone
        path = scope["path"]

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        active, reason = 0, ""
        memory: RequestMemory | None = None
        try:
            headers = dict(scope["headers"])
            self._check_access(path, headers)
            if scope["method"] == "POST" and path in WORK:
                image, form = path == CAPTION, _media(headers) == FORM
                body = await self.service.bodies.receive(receive, self._check_header(headers, image))
                self._check_slots()  # only now: a slow body takes no slot
                memory = self.service.bodies.reserve(len(body), image)
                self.service.active += (active := 1)
                scope.setdefault("state", {}).update(deadline=self.service.new_deadline(), memory=memory)
                if not form:
                    await self._check_structure(body, Request(scope, receive))
                receive = _replay(body, receive)
                del body
            await self.app(scope, receive, counted)
        except HttpProblem as problem:
            reason = problem.reason
            await response(problem)(scope, receive, counted)
        except ClientGoneError:
            pass
        except Exception:
            status = 500
            raise
        finally:
            self.service.active -= active
            if memory is not None:
                memory.release()
            if not reason and (path in WORK or status in (401, 421)):
                reason = REASONS.get(status, "")
            if reason:
                self.service.metrics.refusals.add(reason, scope["client"][0] if scope.get("client") else "")
            route = path if path in ROUTES else next((each for each in PAGES if path.startswith(f"{each}/")), "other")
            self.service.metrics.count_request(route, status, time.perf_counter() - started)

    def _check_access(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpProblem for another host name (421), or without the token (401)."""
        if self.hosts is not None and (name := _host(headers.get(b"host", b""))) not in self.hosts:
            raise HttpProblem(421, f"the Host header {name!r} is not allowed; see heedful serve --allow-host")
        if self.token and (path.startswith("/v1/") or path in ("/metrics", "/openapi.json")):
            kind, _, token = headers.get(b"authorization", b"").partition(b" ")
            if not hmac.compare_digest(token.strip(), self.token) or kind.lower() != b"bearer":
                message = "this service wants a token: Authorization: Bearer TOKEN"
                raise HttpProblem(401, message, headers={"WWW-Authenticate": "Bearer"})

    def _check_header(self, headers: Mapping[bytes, bytes], image: bool) -> int:
        """Return the most bytes of a request; raise HttpProblem if its body need not be received."""
        self._check_slots()
        media, limits = _media(headers), self.service.limits
        if media != b"application/json" and not (image and media == FORM):
            how = "; send the file as a form (curl -F image=@FILE), or as JSON with base64"
            form = ", or a form: Content-Type: multipart/form-data" if image else ""
            raise HttpProblem(415, f"expected JSON: Content-Type: application/json{form}{how if image else ''}")
        if media == FORM:
            self._check_origin(headers)
        if image and not self.service.models.reads_images:
            self.service.models.find(None, images=True)  # raises HttpProblem
        most = limits.caption_body(media == FORM) if image else limits.body
        length = headers.get(b"content-length", b"0")
        size = int(length[:20]) if length.isdigit() else 0
        if size > most:
            raise HttpProblem(413, f"the request has {size:,} bytes; {most:,} are allowed")
        self.service.bodies.check(size, image)
        return most

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise HttpProblem (403) for a form that a browser sends for a page of another origin that is not allowed.

        Clients that are no browsers send neither header. Browsers send no Sec-Fetch-Site to services without TLS that
        are not on their machine.
        """
        origin = headers.get(b"origin", b"").decode("latin-1").strip().lower()
        site = headers.get(b"sec-fetch-site", b"").decode("latin-1").strip().lower()
        if "*" in self.origins or (origin and origin in self.origins):
            return
        own = site in ("same-origin", "none") if site else not origin or _is_own(origin, headers.get(b"host", b""))
        if not own:
            page = f"pages of {origin:.100}" if origin else "pages of other sites"
            raise HttpProblem(403, f"{page} may not send forms to this service; see heedful serve --cors")

    async def _check_structure(self, body: bytes, request: Request) -> None:
        """Raise HttpProblem (422) for JSON with more values than a request can need."""
        if body.count(b"[") + body.count(b"{") + body.count(b",") <= FEW:
            return
        most = 4 * self.service.limits.items + MORE  # a pair has three: itself and two texts
        count = self.service.in_thread(lambda: count_values(body, most))
        if await self.service.wait_for(request, count) > most:
            message = f"the request has more than {most:,} values: objects and arrays and what is in them"
            raise HttpProblem(422, message)

    def _check_slots(self) -> None:
        """Raise HttpProblem if the service is stopping (503), or has too many requests (429)."""
        limits = self.service.limits
        if self.service.stopping:
            raise HttpProblem(503, "the service is stopping", headers=CLOSE_LATER, reason="stopping")
        if self.service.active >= limits.requests:
            after = str(self.service.engine.admission.retry_after())
            message = f"{limits.requests} requests are being worked on; ask again in {after} s"
            raise HttpProblem(429, message, headers={"Retry-After": after})


def _media(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the media type of a body."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns a body that was received already, and then what follows it."""
    bodies = [body]  # not kept for as long as the request takes

    async def replay() -> Message:
        if not bodies:
            return await receive()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    return replay


def _host(header: bytes) -> str:
    """Return the name in a Host header, without its port.

    >>> _host(b"localhost:8000"), _host(b"[::1]:8000")
    ('localhost', '::1')
    """
    name = header.decode("latin-1").lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_own(origin: str, host: bytes) -> bool:
    """Return whether an origin is that of the service itself, which is called by its Host header.

    >>> _is_own("http://localhost:8000", b"localhost:8000"), _is_own("https://a.org", b"a.org:443")
    (True, True)
    >>> _is_own("http://localhost:3000", b"localhost:8000"), _is_own("null", b"localhost:8000")
    (False, False)
    """
    scheme, _, name = origin.partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme, "")
    own = host.decode("latin-1").strip().lower()
    return bool(name) and name.removesuffix(default) == own.removesuffix(default)


def count_values(body: bytes, most: int) -> int:
    """Return an upper bound of the values in JSON: opening brackets and commas. Counting stops at `most` + 1.

    >>> count_values(b'{"text": ["a, [b] {c}", "\\\\"["]}', 10)
    3
    """
    count = 0
    for match in _JSON_TOKEN.finditer(body):
        if body[match.start()] != ord('"'):
            count += 1
            if count > most:
                break
    return count


def check_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """Return origins as browsers send them; raise ConfigError for a string that is not one.

    >>> check_origins(["https://Example.org", "http://localhost:3000", "https://example.org:443/"])
    ('https://example.org', 'http://localhost:3000')
    """
    return tuple(dict.fromkeys(_origin(origin) for origin in origins))


def _origin(origin: str) -> str:
    if origin == "*":
        return origin
    allowed = "an origin is a scheme, a host and perhaps a port, such as https://example.org or http://localhost:3000"
    try:
        url = urlsplit(origin)
        port = url.port
    except ValueError:
        raise ConfigError(f"{origin!r} is not an origin: {allowed}") from None
    host = url.hostname or ""
    named = host.isascii() and host.isprintable() and not set(host) & set(" *,;\\\"'<>")
    if url.scheme not in ("http", "https") or not host or not named or "@" in url.netloc:
        hint = " (a host outside ASCII is written as xn--…)" if host and not host.isascii() else ""
        raise ConfigError(f"{origin!r} is not an origin: {allowed}, or '*' for any page{hint}")
    if url.path not in ("", "/") or url.query or url.fragment:
        raise ConfigError(f"{origin!r} has a path, which an origin does not have: {allowed}")
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[url.scheme]
    return f"{url.scheme}://{host}" + (f":{port}" if port not in (None, default) else "")


def allow_origins(app: FastAPI, origins: Collection[str]) -> None:
    """Let pages of some origins use the service from a browser; `*` is any page. Cookies are not used."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            allow_private_network=True,  # a page of the web may use a service on this machine if its origin is listed
            expose_headers=["Retry-After"],
            max_age=600,
        )
