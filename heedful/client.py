"""A client of a service that `heedful serve` runs: the same translations, over HTTP, with patience.

It needs nothing but Python. A request that the service has no room for (429), or that meets it while it starts or stops
(503, or nobody listening), is asked again after a while: as long as the service says, or twice as long each time.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload
from urllib.parse import urlsplit

from heedful.errors import ConfigError, DataError, HeedfulError, MachineError

__all__ = ["Client", "ServiceError", "TooMuch"]

AGAIN = (429, 502, 503)
Waits = Callable[[HeedfulError, float], object]
FIRST, LONGEST = 0.2, 10.0  # seconds between two tries


class ServiceError(MachineError):
    """A service that cannot be reached, or has no answer: `status` is that of HTTP, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class TooMuch(DataError):
    """More than a service takes at once (413): the `field` to blame, and of too many texts how many are allowed."""

    def __init__(self, message: str, field: str = "", allowed: int | None = None) -> None:
        super().__init__(message)
        self.field, self.allowed = field, allowed


class Client:
    """Asks a service: `Client("http://localhost:8000").translate("…")`.

    `timeout` is how many seconds an answer may take; `patience`, how long all tries together may. `waits` is told why
    a request has to be asked again, once, and for how many seconds it will be. A client may be used by several threads
    at once; connections stay open until `close`.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout: float = 60.0, patience: float = 60.0, waits: Waits | None = None
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} is no address of a service; expected http://localhost:8000, say")
        if not (timeout > 0 and patience >= 0):
            raise ConfigError(f"timeout is {timeout} and patience {patience}; expected seconds")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("a token is made of letters, digits and marks of ASCII")
        self.url, self.token, self.timeout, self.patience = url.rstrip("/"), token, timeout, patience
        self._parts, self._waits = parts, waits
        self._free: deque[http.client.HTTPConnection] = deque()  # open, and used by nobody

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def models(self) -> list[dict[str, Any]]:
        """Return what there is to say of each model of the service, the default first."""
        return self._json("GET", "/v1/models", "models")

    def ready(self) -> bool:
        """Whether the service takes requests now."""
        connection = self._connection()
        try:
            return self._sent(connection, "GET", "/ready", None).status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        text: str,
        *,
        model: str | None = None,
        beam: int = 1,
        n_best: int = 1,
        prefix: str | None = None,
        alignments: bool = False,
        markup: bool = False,
        trace: bool = False,
    ) -> dict[str, Any]: ...
    @overload
    def translate(
        self,
        text: Sequence[str],
        *,
        model: str | None = None,
        beam: int = 1,
        n_best: int = 1,
        prefix: str | None = None,
        alignments: bool = False,
        markup: bool = False,
        trace: bool = False,
    ) -> list[dict[str, Any]]: ...
    def translate(
        self,
        text: str | Sequence[str],
        *,
        model: str | None = None,
        beam: int = 1,
        n_best: int = 1,
        prefix: str | None = None,
        alignments: bool = False,
        markup: bool = False,
        trace: bool = False,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Translate a text, or many at once; each translation is an `Item` of docs/serve.md."""
        asked = {
            "text": text if isinstance(text, str) else list(text),
            "model": model,
            "beam": beam,
            "n_best": n_best,
            "prefix": prefix,
            "alignments": alignments,
            "markup": markup,
            "trace": trace,
        }
        found = self._json("POST", "/v1/translate", "translations", asked)
        return found[0] if isinstance(text, str) else found

    def align(self, pairs: Sequence[tuple[str, str]], *, model: str | None = None) -> list[dict[str, Any]]:
        """Return which words of given pairs belong together."""
        asked = {"pairs": [{"source": x, "target": y} for x, y in pairs], "model": model}
        return self._json("POST", "/v1/align", "alignments", asked)

    def stream(
        self, text: str, *, model: str | None = None, prefix: str | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a translation while it is written: start, token …, done, each with its record."""
        asked = {"text": text, "model": model, "prefix": prefix}
        connection = self._connection()
        try:
            answer = self._asked(connection, "POST", "/v1/stream", asked)
            for name, record in _events(answer):
                if name == "error":
                    raise _refusal(record.get("status", 0), record)
                yield name, record
                if name == "done":
                    return
            raise ServiceError(f"{self.url}: the service broke off in the middle of a translation")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServiceError(f"{self.url}: the service broke off ({error})") from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connections."""
        while self._free:
            self._free.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _json(self, method: str, path: str, name: str, asked: object = None) -> list[dict[str, Any]]:
        """Return what an answer has by some name."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connection()
        try:
            found = _record(self._asked(connection, method, path, asked).read()).get(name)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServiceError(f"{self.url}: the service broke off ({error})") from None
        except HeedfulError:
            connection.close()
            raise
        self._free.append(connection)
        if not isinstance(found, list):
            raise ServiceError(f"{self.url}: this is no heedful service: its answer has no {name}", 200)
        return found

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, path: str, asked: object
    ) -> http.client.HTTPResponse:
        """Ask until there is an answer, or patience ends; what is asked changes nothing, and so may be asked twice."""
        body = None if asked is None else json.dumps(asked, ensure_ascii=False).encode("utf-8", "backslashreplace")
        until, wait = time.monotonic() + self.patience, FIRST
        while True:
            try:
                answer = self._sent(connection, method, path, body)
                if answer.status == 200:
                    return answer
                trouble: HeedfulError = _refusal(answer.status, _record(answer.read()))
                if answer.status not in AGAIN:
                    raise trouble
                after = _seconds(answer.headers.get("Retry-After"))
            except TimeoutError:
                connection.close()
                raise ServiceError(f"{self.url}: no answer within {self.timeout:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                trouble, after = ServiceError(f"{self.url}: the service cannot be reached ({_why(error)})"), None
            pause = wait * random.uniform(0.5, 1.5) if after is None else after * random.uniform(1.0, 1.2)
            if time.monotonic() + pause > until:
                raise trouble from None
            if wait == FIRST and self._waits is not None:
                self._waits(trouble, until - time.monotonic())
            time.sleep(pause)
            wait = min(2 * wait, LONGEST)

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        return connection.getresponse()

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events."""
    name, data = "", b""
    for line in answer:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode()
        elif field == b"data":
            data = value
        elif not field and name:
            yield name, _record(data)
            name = ""


def _record(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": content[:200].decode("utf-8", "replace")}


def _refusal(status: int, problem: dict[str, Any]) -> HeedfulError:
    """Return the error that a problem is: the asker's mistake, or the service's."""
    message = str(problem.get("detail") or problem.get("title") or f"status {status}")
    if status == 413:
        allowed = problem.get("allowed")
        return TooMuch(message, str(problem.get("field") or ""), allowed if isinstance(allowed, int) else None)
    if status in (400, 404, 415, 422):
        return DataError(message)
    return ServiceError(message, status)


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; a date, or nonsense, is none.

    >>> _seconds("2"), _seconds("soon"), _seconds(None)
    (2.0, None, None)
    """
    return min(float(header), 3600.0) if header and header.isdigit() else None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
