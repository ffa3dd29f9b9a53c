"""A client of a service that `heedful serve` runs: the same translations, over HTTP, with patience.

It needs nothing but Python. A request that the service has no room for (429), or that meets it while it starts or stops
(503, or nobody listening), is asked again after a while: as long as the service says, or twice as long each time.

A service is not trusted: an answer has at most `MAX_ANSWER` bytes, and no more values than a JSON file may have
(`heedful.files`); it has to be there, whole, within `timeout` seconds; it is checked before it is returned. Redirects
are not followed, so that a token is sent to the given address only.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import random
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, cast, overload
from urllib.parse import urlsplit

from heedful.errors import ConfigError, DataError, HeedfulError, MachineError, guessing
from heedful.files import too_many

__all__ = ["MAX_ANSWER", "Client", "ServiceError", "TooMuch"]

MAX_ANSWER = 64_000_000  # bytes of an answer, or of all events of a stream
MAX_PROBLEM = 65_536  # bytes of an answer that is an error
MAX_MESSAGE = 500  # characters of an error that are passed on
MAX_PAUSE = 3600.0  # seconds that a service may ask to wait
AGAIN = (429, 502, 503)
Waits = Callable[[HeedfulError, float], object]
FIRST, LONGEST = 0.2, 10.0  # seconds between two tries
PHARAOH = re.compile(r"(\d{1,9}-\d{1,9}( \d{1,9}-\d{1,9})*)?", re.ASCII)


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

    @guessing
    def __init__(
        self, url: str, token: str = "", *, timeout: float = 60.0, patience: float = 60.0, waits: Waits | None = None
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), -1
        plain = url.isprintable() and parts.path.isascii() and not set(" ?#") & set(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or not plain:
            raise ConfigError(f"{url!r} is no address of a service; expected http://localhost:8000, say")
        if parts.username is not None:
            raise ConfigError("the address of a service has no user name or password; services take a token")
        if not (timeout > 0 and patience >= 0):
            raise ConfigError(f"timeout is {timeout} and patience {patience}; expected seconds")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("a token is made of letters, digits and marks of ASCII")
        self.url, self.token, self.timeout, self.patience = url.rstrip("/"), token, timeout, patience
        self._parts, self._waits = parts, waits
        self._free: deque[_Connection] = deque()  # open, and used by nobody

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def models(self) -> list[dict[str, Any]]:
        """Return what there is to say of each model of the service, the default first."""
        found = self._json("GET", "/v1/models", "models")
        with self._checking():
            for i, model in enumerate(found):
                _text(model, "name", f"models[{i}]")
        return found

    def ready(self) -> bool:
        """Whether the service takes requests now."""
        connection = self._connection()
        try:
            return self._sent(connection, "GET", "/ready", None).status == 200
        except (OSError, UnicodeError, http.client.HTTPException, _WrongAnswerError):
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
    @guessing
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
        """Translate a text, or many at once; each translation is an `Item` of docs/guide/http-api.md."""
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
        with self._checking():
            _check_count(found, 1 if isinstance(text, str) else len(text))
            for i, item in enumerate(found):
                _check_item(item, f"translations[{i}]", _Expected(n_best, alignments, markup))
        return found[0] if isinstance(text, str) else found

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        batch: int = 32,
        progress: Callable[[list[str]], object] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[dict[str, Any]]:
        """Yield the translation of each line, `batch` of them in a request; `options` are those of `translate`.

        If a request has too many lines for the service, the next ones have as many as it allows. If they are too long
        together, the next request has half of them, and those after it twice as many again. `progress` is called with
        the lines of each request that is done.
        """
        left, waiting, done, size = iter(lines), list[str](), 0, batch
        while True:
            waiting += islice(left, max(0, size - len(waiting)))
            if not waiting:
                return
            some = waiting[:size]
            try:
                items = self.translate(some, **options)
            except TooMuch as error:
                number = error.field.removeprefix("text.")
                if len(some) == 1 or number == "0":
                    raise DataError(f"line {done + 1:,}: {error}") from None
                if error.allowed and error.allowed < len(some):
                    size = batch = error.allowed
                    continue
                # The lines before one that is too long by itself are translated; fewer are sent in any case.
                before = int(number) if number in map(str, range(1, len(some))) else 0
                size = before or len(some) // 2
                continue
            if progress is not None:
                progress(some)
            yield from items
            done, waiting, size = done + len(some), waiting[size:], min(batch, 2 * size)

    @guessing
    def align(self, pairs: Sequence[tuple[str, str]], *, model: str | None = None) -> list[dict[str, Any]]:
        """Return which words of given pairs belong together."""
        asked = {"pairs": [{"source": x, "target": y} for x, y in pairs], "model": model}
        found = self._json("POST", "/v1/align", "alignments", asked)
        with self._checking():
            _check_count(found, len(pairs))
            for i, links in enumerate(found):
                _check_links(links, f"alignments[{i}]")
        return found

    @guessing
    def stream(
        self, text: str, *, model: str | None = None, prefix: str | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a translation while it is written: start, token …, done, each with its record."""
        asked = {"text": text, "model": model, "prefix": prefix}
        connection, answer = self._connection(), None
        try:
            answer = self._asked(connection, "POST", "/v1/stream", asked)
            self._check_type(answer, "text/event-stream")
            for name, record in _events(answer):
                if name == "error":
                    raise self._refusal(record.get("status"), record)
                _check_event(name, record)
                yield name, record
                if name == "done":
                    return
                connection.until = time.monotonic() + self.timeout  # for the next event
            raise ServiceError(f"{self.url}: the service broke off in the middle of a translation")
        except TimeoutError:
            raise ServiceError(f"{self.url}: nothing came for {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(f"{self.url}: the service broke off ({_why(error)})") from None
        except _WrongAnswerError as error:
            raise self._wrong(error) from None
        finally:
            if answer is not None:  # one with `Connection: close` is no longer the connection's
                answer.close()
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
        """Return the list of objects that an answer has by some name."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connection()
        whole = False
        try:
            answer = self._asked(connection, method, path, asked)
            self._check_type(answer, "application/json")
            found = _parse(_read(answer, MAX_ANSWER)).get(name)
            if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
                raise _WrongAnswerError(f"it has no list of {name}")
            whole = True
        except TimeoutError:
            raise ServiceError(f"{self.url}: no whole answer within {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(f"{self.url}: the service broke off ({_why(error)})") from None
        except _WrongAnswerError as error:
            raise self._wrong(error) from None
        finally:
            if whole:
                self._free.append(connection)
            else:
                connection.close()
        return found

    def _asked(self, connection: _Connection, method: str, path: str, asked: object) -> http.client.HTTPResponse:
        """Ask until there is an answer, or patience ends; what is asked changes nothing, and so may be asked twice."""
        body = None if asked is None else json.dumps(asked, ensure_ascii=False).encode("utf-8", "backslashreplace")
        until, wait = time.monotonic() + self.patience, FIRST
        while True:
            used = connection.sock is not None
            try:
                answer = self._sent(connection, method, path, body)
                if answer.status == 200:
                    return answer
                after = _seconds(answer.headers.get("Retry-After"))
                trouble = self._problem(answer)
                if not answer.isclosed():  # there is more than was read
                    connection.close()
                if answer.status not in AGAIN:
                    raise trouble
            except TimeoutError:
                connection.close()
                raise ServiceError(f"{self.url}: no answer within {self.timeout:g} s") from None
            except _WrongAnswerError as error:
                connection.close()
                raise self._wrong(error) from None
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                connection.close()
                if used and isinstance(error, ConnectionError):  # closed since the last request: open another one
                    continue
                trouble, after = self._unreached(error), None
            pause = wait * random.uniform(0.5, 1.5) if after is None else max(after, FIRST) * random.uniform(1.0, 1.2)
            if time.monotonic() + pause > until:
                raise trouble from None
            if wait == FIRST and self._waits is not None:
                self._waits(trouble, until - time.monotonic())
            time.sleep(pause)
            wait = min(2 * wait, LONGEST)

    def _sent(self, connection: _Connection, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.until, connection.left = time.monotonic() + self.timeout, MAX_ANSWER
        connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        return connection.getresponse()

    def _connection(self) -> _Connection:
        kind = _SecureConnection if self._parts.scheme == "https" else _Connection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout)

    def _problem(self, answer: http.client.HTTPResponse) -> HeedfulError:
        """Return the error that an answer other than 200 is."""
        if 300 <= answer.status < 400:
            place = str(answer.headers.get("Location", ""))[:MAX_MESSAGE]
            return ServiceError(
                f"{self.url}: it redirects to {place!r}, which is not followed; give the address itself", answer.status
            )
        content = _read(answer, MAX_PROBLEM, whole=False)
        try:
            problem = _parse(content)
        except _WrongAnswerError:
            problem = {"detail": content[:200].decode("utf-8", "replace")}
        return self._refusal(answer.status, problem)

    def _refusal(self, status: object, problem: dict[str, Any]) -> HeedfulError:
        """Return the error that a problem is: the asker's mistake, or the service's."""
        status = status if type(status) is int else 0
        texts = (problem.get(name) for name in ("detail", "title"))
        message = next((text for text in texts if isinstance(text, str) and text.strip()), "")
        message = message[:MAX_MESSAGE] or f"{self.url}: the service answered with status {status}"
        if status == 413:
            field, allowed = problem.get("field"), problem.get("allowed")
            many = allowed if type(allowed) is int and allowed > 0 else None
            return TooMuch(message, field if isinstance(field, str) else "", many)
        return DataError(message) if status in (400, 404, 415, 422) else ServiceError(message, status)

    def _unreached(self, error: Exception) -> HeedfulError:
        """Return the error of a service that cannot be reached; raise it if asking again cannot help."""
        trouble = ServiceError(f"{self.url}: the service cannot be reached ({_why(error)})")
        if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
            said = str(error)[:100]
            raise ServiceError(f"{self.url}: this is no heedful service: no answer of HTTP ({said!r})") from None
        if isinstance(error, UnicodeError | ssl.SSLError):
            raise trouble from None
        return trouble

    def _check_type(self, answer: http.client.HTTPResponse, expected: str) -> None:
        """Refuse an answer that says itself that it is something else."""
        given = answer.headers.get("Content-Type")
        if given is not None and str(given).partition(";")[0].strip().lower() != expected:
            raise _WrongAnswerError(f"its type is {str(given)[:100]!r}, expected {expected}")

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Say whose answer is wrong."""
        try:
            yield
        except _WrongAnswerError as error:
            raise self._wrong(error) from None

    def _wrong(self, error: _WrongAnswerError) -> ServiceError:
        return ServiceError(f"{self.url}: this is no heedful service, or one that is broken: its answer: {error}", 200)


class _WrongAnswerError(Exception):
    """An answer that is not what a heedful service sends."""


class _Connection(http.client.HTTPConnection):
    """A connection on which nothing is waited for after `until`, and no more read than `left` bytes."""

    until, left = math.inf, MAX_ANSWER

    def connect(self) -> None:
        """Connect, and read from then on until the deadline only."""
        super().connect()
        self.sock = cast(Any, _TimedSocket(self.sock, self))


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _TimedSocket:
    """What http.client needs of a socket, each call no longer than until the deadline of its connection."""

    def __init__(self, sock: Any, connection: _Connection) -> None:  # noqa: ANN401  (a socket, plain or TLS)
        self._sock, self.connection = sock, connection

    def makefile(self, mode: str) -> io.BufferedReader:
        raw = self._sock.makefile(mode, buffering=0)
        return cast(io.BufferedReader, io.BufferedReader(_BoundedReader(raw, self)))

    def sendall(self, data: bytes) -> None:
        self.set_timeout()
        self._sock.sendall(data)

    def set_timeout(self) -> None:
        left = self.connection.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(None if left == math.inf else left)

    def close(self) -> None:
        self._sock.close()


class _BoundedReader(io.RawIOBase):
    """Reads from a socket; head, chunks and trailers of an answer count as well as its content."""

    def __init__(self, raw: Any, sock: _TimedSocket) -> None:  # noqa: ANN401  (socket.SocketIO)
        self._raw, self._sock = raw, sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401
        self._sock.set_timeout()
        count = self._raw.readinto(buffer)
        self._sock.connection.left -= count or 0
        if self._sock.connection.left < 0:
            raise _WrongAnswerError(f"it has more than {MAX_ANSWER:,} bytes")
        return cast("int | None", count)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _read(answer: http.client.HTTPResponse, limit: int, whole: bool = True) -> bytes:
    """Return at most so many bytes of an answer; one that is not `whole` in them is refused if it has to be."""
    try:
        content = answer.read(limit)
    except ValueError:  # the size of a chunk is negative
        raise http.client.IncompleteRead(b"") from None
    if answer.length and whole:  # http.client says nothing of bytes that did not come
        raise http.client.IncompleteRead(b"", answer.length)
    return content


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events."""
    name, data = "", list[bytes]()
    for line in answer:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data.append(value)
        elif line in (b"\n", b"\r\n"):
            if name:
                yield name, _parse(b"\n".join(data))
            name, data = "", []


def _parse(content: bytes) -> dict[str, Any]:
    """Return the object that JSON is.

    What Python makes of JSON takes up to 25 times its size, so values are counted before they are parsed.
    """
    try:
        text = content.decode("utf-8")
        del content  # 64 MB
        if many := too_many(text):
            raise _WrongAnswerError(f"it has more than {many} (HEEDFUL_MAX_JSON allows more)")
        found = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise _WrongAnswerError("it is nested too deeply") from None
    except ValueError as error:
        raise _WrongAnswerError(f"it is not JSON ({str(error)[:100]})") from None
    if not isinstance(found, dict):
        raise _WrongAnswerError(f"it is not an object of JSON, but {_short(found)}")
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _check_count(found: Sequence[object], count: int) -> None:
    if len(found) != count:
        raise _WrongAnswerError(f"{count} results were asked for, and {len(found)} came")


class _Expected(NamedTuple):
    """What was asked for of each translation."""

    n_best: int = 1
    alignments: bool = False
    markup: bool = False


def _check_item(item: dict[str, Any], where: str, expected: _Expected, inner: bool = False) -> None:
    """Refuse a translation that lacks what every translation has, or has it in another type."""
    for name in ("source", "text"):
        _text(item, name, where)
    for name in ("score", "confidence"):
        _number(item, name, where)
    for i, word in enumerate(_objects(item, "words", where)):
        _text(word, "text", f"{where}.words[{i}]")
        for name in ("start", "end", "confidence"):
            _number(word, name, f"{where}.words[{i}]")
    if item.get("notes") is not None and not all(isinstance(note, str) for note in _list(item, "notes", where)):
        raise _WrongAnswerError(f"{where}.notes has something other than texts")
    if item.get("markup") is not None or expected.markup:
        _text(item, "markup", where)
    if item.get("rank_score") is not None:
        _number(item, "rank_score", where)
    if "alignment" not in item and expected.alignments:  # null where a model does not look at the source
        raise _WrongAnswerError(f"{where}.alignment is missing, and was asked for")
    if item.get("alignment") is not None:
        _check_links(item["alignment"], f"{where}.alignment")
    if not isinstance(item.get("figure"), dict | None):
        raise _WrongAnswerError(f"{where}.figure is {_short(item['figure'])}, expected an object")
    if item.get("alternatives") is not None and not inner:
        others = _objects(item, "alternatives", where)
        most = expected.n_best if expected.n_best > 1 else 0
        if len(others) > most:
            raise _WrongAnswerError(f"{where}.alternatives are {len(others):,}, expected at most {most:,}")
        for i, other in enumerate(others):
            _check_item(other, f"{where}.alternatives[{i}]", expected, inner=True)
            _number(other, "rank_score", f"{where}.alternatives[{i}]")


def _check_links(links: object, where: str) -> None:
    if not isinstance(links, dict):
        raise _WrongAnswerError(f"{where} is {_short(links)}, expected an object")
    _text(links, "pharaoh", where)
    if not PHARAOH.fullmatch(links["pharaoh"]):
        raise _WrongAnswerError(f"{where}.pharaoh is {_short(links['pharaoh'])}, expected links such as 0-0 1-2")
    for name in ("source_words", "target_words", "links"):
        if not all(isinstance(one, list) and len(one) == 3 for one in _list(links, name, where)):
            raise _WrongAnswerError(f"{where}.{name} has something other than lists of 3")


def _check_event(name: str, record: dict[str, Any]) -> None:
    if name == "token":
        _text(record, "text", name)
        if type(record.get("start")) is not int or record["start"] < 0:
            raise _WrongAnswerError(f"{name}.start is {_short(record.get('start'))}, expected a whole number from 0")
    elif name == "done":
        if not isinstance(record.get("translation"), dict):
            raise _WrongAnswerError(f"done.translation is {_short(record.get('translation'))}, expected an object")
        _check_item(record["translation"], "done.translation", _Expected())


def _text(record: dict[str, Any], name: str, where: str) -> None:
    if not isinstance(record.get(name), str):
        raise _WrongAnswerError(f"{where}.{name} is {_short(record.get(name))}, expected a text")


def _number(record: dict[str, Any], name: str, where: str) -> None:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise _WrongAnswerError(f"{where}.{name} is {_short(value)}, expected a number")


def _list(record: dict[str, Any], name: str, where: str) -> list[Any]:
    value = record.get(name)
    if not isinstance(value, list):
        raise _WrongAnswerError(f"{where}.{name} is {_short(value)}, expected a list")
    return value


def _objects(record: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    found = _list(record, name, where)
    if not all(isinstance(one, dict) for one in found):
        raise _WrongAnswerError(f"{where}.{name} has something other than objects")
    return found


def _short(value: object) -> str:
    """Return a value of JSON in a few words; what is large or nested is only named."""
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "a huge number"
    if isinstance(value, str):
        return repr(value[:40]) + "…" * (len(value) > 40)
    return "a list" if isinstance(value, list) else "an object"


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; a date, or nonsense, is none.

    >>> _seconds("2"), _seconds("soon"), _seconds("-1"), _seconds(None)
    (2.0, None, None, None)
    """
    return min(float(header), MAX_PAUSE) if header and header.isascii() and header.isdigit() else None


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
