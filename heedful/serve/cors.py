"""Cross-origin requests: which other sites' pages may use the service from a browser."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from heedful.errors import ConfigError

__all__ = ["check_origins", "install"]


def check_origins(origins: Iterable[str]) -> tuple[str, ...]:
    """Return origins as browsers send them; raises ConfigError for what is not one.

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


def install(app: FastAPI, origins: Collection[str]) -> None:
    """Let pages of some origins ask and read the answers; `*` is any page. Cookies are not used."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            allow_private_network=True,  # a page of the web may ask a service on this machine if it was named
            expose_headers=["Retry-After"],
            max_age=600,
        )
