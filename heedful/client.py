"""A client of `heedful serve`: the same translations, over HTTP, with retries.

It needs only the standard library. A request that is refused because the service is busy (429), or starts or stops
(503, or no connection), is repeated after the time that the service names, or after twice as long each time.

A service is not trusted: a response has at most `MAX_RESPONSE` bytes, and no more values than a JSON file may have
(`heedful.files`); it has to arrive within `timeout` seconds; it is checked before it is returned. Redirects are not
followed, so that a token is sent to the given address only.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import math
import os
import random
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast, overload
from urllib.parse import urlsplit

from heedful.errors import ConfigError, DataError, HeedfulError, MachineError, known_arguments, suggest_keywords
from heedful.files import megabytes, open_plain, too_many

__all__ = ["MAX_RESPONSE", "CaptionOptions", "Client", "RequestTooLargeError", "ServiceError", "TranslateOptions"]

MAX_RESPONSE = 64_000_000  # bytes of a response, or of all events of a stream
MAX_IMAGE = 64_000_000  # bytes of an image that is sent; a service allows fewer
MAX_PROBLEM = 65_536  # bytes of a response that is an error
MAX_MESSAGE = 500  # characters of an error that are passed on
MAX_PAUSE = 3600.0  # seconds that a service may ask to wait
RETRIED = (429, 502, 503)
Waits = Callable[[HeedfulError, float], object]
FIRST, LONGEST = 0.2, 10.0  # seconds between two tries
PHARAOH = re.compile(r"(\d{1,9}-\d{1,9}( \d{1,9}-\d{1,9})*)?", re.ASCII)


class TranslateOptions(TypedDict, total=False):
    """The options of `Client.translate`; see docs/guide/http-api.md."""

    model: str | None
    beam: int
    n_best: int
    prefix: str | None
    alignments: bool
    markup: bool
    trace: bool


class CaptionOptions(TypedDict, total=False):
    """The options of `Client.caption`; see docs/guide/http-api.md."""

    name: str
    model: str | None
    beam: int
    n_best: int
    prefix: str | None
    alignments: bool
    trace: bool


class ServiceError(MachineError):
    """A service that cannot be reached, or has no response: `status` is that of HTTP, 0 where there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RequestTooLargeError(DataError):
    """More than a service takes at once (413): the `field` to blame, and of too many texts how many are allowed."""

    def __init__(self, message: str, field: str = "", allowed: int | None = None) -> None:
        super().__init__(message)
        self.field, self.allowed = field, allowed


class Client:
    """A client of a service: `Client("http://localhost:8000").translate("…")`.

    A response may take `timeout` seconds, all tries together `patience` seconds. `waits` is called once before a
    request is repeated, with the reason and the seconds left. A client may be used by several threads at once;
    connections stay open until `close`.
    """

    @suggest_keywords
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
            raise ConfigError(f"{url!r} is not the address of a service; expected for example http://localhost:8000")
        if parts.username is not None:
            raise ConfigError("the address of a service cannot have a user name or password; use a token")
        if not (timeout > 0 and patience >= 0):
            raise ConfigError(f"timeout is {timeout} and patience {patience}; expected seconds")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("a token may only have printable ASCII characters")
        self.url, self.token, self.timeout, self.patience = url.rstrip("/"), token, timeout, patience
        self._parts, self._waits = parts, waits
        self._free: deque[_Connection] = deque()  # open and not in use

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def models(self) -> list[dict[str, Any]]:
        """Return the description of each model of the service, the default first."""
        records = self._json("GET", "/v1/models", "models")
        with self._checking():
            for i, model in enumerate(records):
                _text(model, "name", f"models[{i}]")
        return records

    def ready(self) -> bool:
        """Whether the service accepts requests."""
        connection = self._connection()
        try:
            return self._send(connection, "GET", "/ready", None).status == 200
        except (OSError, UnicodeError, http.client.HTTPException, _InvalidResponseError):
            return False
        finally:
            connection.close()

    @overload
    def translate(self, text: str, **options: Unpack[TranslateOptions]) -> dict[str, Any]: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], **options: Unpack[TranslateOptions]) -> list[dict[str, Any]]: ...
    def translate(
        self, text: str | Sequence[str], **options: Unpack[TranslateOptions]
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Translate a text, or many at once; each translation is an `Item` of docs/guide/http-api.md.

        The options are `model`, `beam`, `n_best`, `prefix`, `alignments`, `markup` and `trace`.
        """
        known_arguments("Client.translate", options, TranslateOptions.__annotations__)
        body = {"text": text if isinstance(text, str) else list(text), **options}
        records = self._json("POST", "/v1/translate", "translations", body)
        with self._checking():
            _check_count(records, 1 if isinstance(text, str) else len(text))
            for i, item in enumerate(records):
                _check_item(item, f"translations[{i}]", options)
        return records[0] if isinstance(text, str) else records

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        batch: int = 32,
        progress: Callable[[list[str]], object] | None = None,
        **options: Unpack[TranslateOptions],
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
            except RequestTooLargeError as error:
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

    def caption(self, image: str | os.PathLike[str] | bytes, **options: Unpack[CaptionOptions]) -> dict[str, Any]:
        """Caption an image, given as a file name or as bytes; the result is a `CaptionItem` of docs/guide/http-api.md.

        The options are `name`, `model`, `beam`, `n_best`, `prefix`, `alignments` and `trace`.
        """
        known_arguments("Client.caption", options, CaptionOptions.__annotations__)
        (record,) = self._json("POST", "/v1/caption", "caption", {**_image(image), **options})
        with self._checking():
            _check_caption(record, "caption", options)
        return record

    @suggest_keywords
    def stream_caption(
        self,
        image: str | os.PathLike[str] | bytes,
        *,
        name: str = "",
        model: str | None = None,
        prefix: str | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a caption while it is decoded: start, token …, done, each with its record."""
        options = {"model": model, "prefix": prefix, "stream": True, **({"name": name} if name else {})}
        return self._stream("/v1/caption", {**_image(image), **options})

    @suggest_keywords
    def align(self, pairs: Sequence[tuple[str, str]], *, model: str | None = None) -> list[dict[str, Any]]:
        """Return the links between the words of sentence pairs."""
        body = {"pairs": [{"source": x, "target": y} for x, y in pairs], "model": model}
        records = self._json("POST", "/v1/align", "alignments", body)
        with self._checking():
            _check_count(records, len(pairs))
            for i, links in enumerate(records):
                _check_links(links, f"alignments[{i}]")
        return records

    @suggest_keywords
    def stream(
        self, text: str, *, model: str | None = None, prefix: str | None = None
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a translation while it is decoded: start, token …, done, each with its record."""
        return self._stream("/v1/stream", {"text": text, "model": model, "prefix": prefix})

    def _stream(self, path: str, body: object) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a stream until `done`, each with its record."""
        connection, response = self._connection(), None
        try:
            response = self._request(connection, "POST", path, body)
            self._check_type(response, "text/event-stream")
            for name, record in _events(response):
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
        except _InvalidResponseError as error:
            raise self._invalid(error) from None
        finally:
            if response is not None:  # one with `Connection: close` is no longer the connection's
                response.close()
            connection.close()

    def close(self) -> None:
        """Close the connections."""
        while self._free:
            self._free.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _json(self, method: str, path: str, name: str, body: object = None) -> list[dict[str, Any]]:
        """Return the list of objects, or the one object, with this name in a response."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connection()
        whole = False
        try:
            response = self._request(connection, method, path, body)
            self._check_type(response, "application/json")
            records = _parse(_read(response, MAX_RESPONSE)).get(name)
            if name == "caption" and isinstance(records, dict):
                records = [records]
            if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
                raise _InvalidResponseError(f"it has no {'list of ' * (name != 'caption')}{name}")
            whole = True
        except TimeoutError:
            raise ServiceError(f"{self.url}: no whole answer within {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(f"{self.url}: the service broke off ({_why(error)})") from None
        except _InvalidResponseError as error:
            raise self._invalid(error) from None
        finally:
            if whole:
                self._free.append(connection)
            else:
                connection.close()
        return records

    def _request(self, connection: _Connection, method: str, path: str, record: object) -> http.client.HTTPResponse:
        """Send a request until there is a response, or patience ends: requests change nothing, and may be repeated."""
        body = None if record is None else json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        until, wait = time.monotonic() + self.patience, FIRST
        while True:
            used = connection.sock is not None
            try:
                response = self._send(connection, method, path, body)
                if response.status == 200:
                    return response
                after = _seconds(response.headers.get("Retry-After"))
                failure = self._problem(response)
                if not response.isclosed():  # there is more than was read
                    connection.close()
                if response.status not in RETRIED:
                    raise failure
            except TimeoutError:
                connection.close()
                raise ServiceError(f"{self.url}: no answer within {self.timeout:g} s") from None
            except _InvalidResponseError as error:
                connection.close()
                raise self._invalid(error) from None
            except (OSError, UnicodeError, http.client.HTTPException) as error:
                connection.close()
                if used and isinstance(error, ConnectionError):  # closed since the last request: open another one
                    continue
                failure, after = self._unreached(error), None
            pause = wait * random.uniform(0.5, 1.5) if after is None else max(after, FIRST) * random.uniform(1.0, 1.2)
            if time.monotonic() + pause > until:
                raise failure from None
            if wait == FIRST and self._waits is not None:
                self._waits(failure, until - time.monotonic())
            time.sleep(pause)
            wait = min(2 * wait, LONGEST)

    def _send(self, connection: _Connection, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.until, connection.left = time.monotonic() + self.timeout, MAX_RESPONSE
        connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
        return connection.getresponse()

    def _connection(self) -> _Connection:
        kind = _SecureConnection if self._parts.scheme == "https" else _Connection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self.timeout)

    def _problem(self, response: http.client.HTTPResponse) -> HeedfulError:
        """Return the error of a response that is not 200."""
        if 300 <= response.status < 400:
            place = str(response.headers.get("Location", ""))[:MAX_MESSAGE]
            return ServiceError(
                f"{self.url}: it redirects to {place!r}, which is not followed; give the address itself",
                response.status,
            )
        content = _read(response, MAX_PROBLEM, whole=False)
        try:
            problem = _parse(content)
        except _InvalidResponseError:
            problem = {"detail": content[:200].decode("utf-8", "replace")}
        return self._refusal(response.status, problem)

    def _refusal(self, status: object, problem: dict[str, Any]) -> HeedfulError:
        """Return the error of a problem: a mistake of the client, or the service's."""
        status = status if type(status) is int else 0
        texts = (problem.get(name) for name in ("detail", "title"))
        message = next((text for text in texts if isinstance(text, str) and text.strip()), "")
        message = message[:MAX_MESSAGE] or f"{self.url}: the service answered with status {status}"
        if status == 413:
            field, allowed = problem.get("field"), problem.get("allowed")
            many = allowed if type(allowed) is int and allowed > 0 else None
            return RequestTooLargeError(message, field if isinstance(field, str) else "", many)
        return DataError(message) if status in (400, 404, 415, 422) else ServiceError(message, status)

    def _unreached(self, error: Exception) -> HeedfulError:
        """Return the error of a service that cannot be reached; raise it if a retry cannot help."""
        failure = ServiceError(f"{self.url}: the service cannot be reached ({_why(error)})")
        if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
            message = str(error)[:100]
            raise ServiceError(
                f"{self.url}: this is no heedful service: its response is not HTTP ({message!r})"
            ) from None
        if isinstance(error, UnicodeError | ssl.SSLError):
            raise failure from None
        return failure

    def _check_type(self, response: http.client.HTTPResponse, expected: str) -> None:
        """Raise an error for another Content-Type."""
        kind = response.headers.get("Content-Type")
        if kind is not None and str(kind).partition(";")[0].strip().lower() != expected:
            raise _InvalidResponseError(f"its type is {str(kind)[:100]!r}, expected {expected}")

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """Name the service whose response is not valid."""
        try:
            yield
        except _InvalidResponseError as error:
            raise self._invalid(error) from None

    def _invalid(self, error: _InvalidResponseError) -> ServiceError:
        return ServiceError(f"{self.url}: this is no heedful service, or a broken one: its response: {error}", 200)


class _InvalidResponseError(Exception):
    """A response that no heedful service sends."""


class _Connection(http.client.HTTPConnection):
    """A connection with a deadline, `until`, and at most `left` more bytes to read."""

    until, left = math.inf, MAX_RESPONSE

    def connect(self) -> None:
        """Connect, and apply the deadline to all reads."""
        super().connect()
        self.sock = cast(Any, _TimedSocket(self.sock, self))


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _TimedSocket:
    """The part of a socket that http.client uses; no call lasts beyond the deadline of its connection."""

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
    """Reads from a socket; head, chunks and trailers of a response count as well as its content."""

    def __init__(self, raw: Any, sock: _TimedSocket) -> None:  # noqa: ANN401  (socket.SocketIO)
        self._raw, self._sock = raw, sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401
        self._sock.set_timeout()
        count = self._raw.readinto(buffer)
        self._sock.connection.left -= count or 0
        if self._sock.connection.left < 0:
            raise _InvalidResponseError(f"it has more than {MAX_RESPONSE:,} bytes")
        return cast("int | None", count)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _read(response: http.client.HTTPResponse, limit: int, whole: bool = True) -> bytes:
    """Return at most `limit` bytes of a response; raise IncompleteRead if it has to be `whole` and is not."""
    try:
        content = response.read(limit)
    except ValueError:  # the size of a chunk is negative
        raise http.client.IncompleteRead(b"") from None
    if response.length and whole:  # http.client does not report missing bytes
        raise http.client.IncompleteRead(b"", response.length)
    return content


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events."""
    name, data = "", list[bytes]()
    for line in response:
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
    """Return an object from JSON.

    Parsed JSON takes up to 25 times its size, so values are counted before they are parsed.
    """
    try:
        text = content.decode("utf-8")
        del content  # 64 MB
        if many := too_many(text):
            raise _InvalidResponseError(f"it has more than {many} (HEEDFUL_MAX_JSON allows more)")
        record = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise _InvalidResponseError("it is nested too deeply") from None
    except ValueError as error:
        raise _InvalidResponseError(f"it is not JSON ({str(error)[:100]})") from None
    if not isinstance(record, dict):
        raise _InvalidResponseError(f"it is not an object of JSON, but {_short(record)}")
    return record


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _check_count(records: Sequence[object], count: int) -> None:
    if len(records) != count:
        raise _InvalidResponseError(f"{count} results were asked for, and {len(records)} came")


def _image(image: str | os.PathLike[str] | bytes) -> dict[str, str]:
    """Return the fields of a request with an image: its file in base64, and its name."""
    name = ""
    if not isinstance(image, bytes):
        path = os.fsdecode(image)
        name = os.path.basename(path)
        try:
            with open_plain(Path(path)) as file:
                image = file.read(MAX_IMAGE + 1)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
        if len(image) > MAX_IMAGE:
            raise DataError(f"{path}: an image of more than {megabytes(MAX_IMAGE)} is not sent")
    return {"image": base64.b64encode(image).decode("ascii"), **({"name": name[-200:]} if name else {})}


def _check_caption(item: dict[str, Any], where: str, options: CaptionOptions, inner: bool = False) -> None:
    """Raise an error for a caption with a missing field, or one of another type."""
    wanted: TranslateOptions = {"alignments": options.get("alignments", False), "n_best": options.get("n_best", 1)}
    _check_item(item, where, wanted, inner)
    if not isinstance(item.get("image"), dict):
        raise _InvalidResponseError(f"{where}.image is {_short(item.get('image'))}, expected an object")
    for name in ("width", "height", "rows", "columns"):
        _number(item["image"], name, f"{where}.image")
    for i, word in enumerate(item["words"]):
        box = word.get("box")
        if box is not None and not (isinstance(box, list) and len(box) == 4):
            raise _InvalidResponseError(f"{where}.words[{i}].box is {_short(box)}, expected 4 numbers")
        for number in box or ():
            _number({"box": number}, "box", f"{where}.words[{i}]")
    for i, other in enumerate(() if inner else item.get("alternatives") or ()):
        _check_caption(other, f"{where}.alternatives[{i}]", options, inner=True)


def _check_item(item: dict[str, Any], where: str, options: TranslateOptions, inner: bool = False) -> None:
    """Raise an error for a translation with a missing field, or one of another type."""
    for name in ("source", "text"):
        _text(item, name, where)
    for name in ("score", "confidence"):
        _number(item, name, where)
    for i, word in enumerate(_objects(item, "words", where)):
        _text(word, "text", f"{where}.words[{i}]")
        for name in ("start", "end", "confidence"):
            _number(word, name, f"{where}.words[{i}]")
    if item.get("notes") is not None and not all(isinstance(note, str) for note in _list(item, "notes", where)):
        raise _InvalidResponseError(f"{where}.notes has something other than texts")
    if item.get("markup") is not None or options.get("markup"):
        _text(item, "markup", where)
    if item.get("rank_score") is not None:
        _number(item, "rank_score", where)
    if "alignment" not in item and options.get("alignments"):  # null for a model without attention
        raise _InvalidResponseError(f"{where}.alignment is missing, and was asked for")
    if item.get("alignment") is not None:
        _check_links(item["alignment"], f"{where}.alignment")
    if not isinstance(item.get("figure"), dict | None):
        raise _InvalidResponseError(f"{where}.figure is {_short(item['figure'])}, expected an object")
    if item.get("alternatives") is not None and not inner:
        others = _objects(item, "alternatives", where)
        most = n if (n := options.get("n_best", 1)) > 1 else 0
        if len(others) > most:
            raise _InvalidResponseError(f"{where}.alternatives are {len(others):,}, expected at most {most:,}")
        for i, other in enumerate(others):
            _check_item(other, f"{where}.alternatives[{i}]", options, inner=True)
            _number(other, "rank_score", f"{where}.alternatives[{i}]")


def _check_links(links: object, where: str) -> None:
    if not isinstance(links, dict):
        raise _InvalidResponseError(f"{where} is {_short(links)}, expected an object")
    _text(links, "pharaoh", where)
    if not PHARAOH.fullmatch(links["pharaoh"]):
        raise _InvalidResponseError(f"{where}.pharaoh is {_short(links['pharaoh'])}, expected links such as 0-0 1-2")
    for name in ("source_words", "target_words", "links"):
        if not all(isinstance(one, list) and len(one) == 3 for one in _list(links, name, where)):
            raise _InvalidResponseError(f"{where}.{name} has something other than lists of 3")


def _check_event(name: str, record: dict[str, Any]) -> None:
    if name == "token":
        _text(record, "text", name)
        if type(record.get("start")) is not int or record["start"] < 0:
            raise _InvalidResponseError(
                f"{name}.start is {_short(record.get('start'))}, expected a whole number from 0"
            )
    elif name == "done":
        if isinstance(record.get("caption"), dict):
            _check_caption(record["caption"], "done.caption", {})
        elif isinstance(record.get("translation"), dict):
            _check_item(record["translation"], "done.translation", {})
        else:
            raise _InvalidResponseError(f"done.translation is {_short(record.get('translation'))}, expected an object")


def _text(record: dict[str, Any], name: str, where: str) -> None:
    if not isinstance(record.get(name), str):
        raise _InvalidResponseError(f"{where}.{name} is {_short(record.get(name))}, expected a text")


def _number(record: dict[str, Any], name: str, where: str) -> None:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise _InvalidResponseError(f"{where}.{name} is {_short(value)}, expected a number")


def _list(record: dict[str, Any], name: str, where: str) -> list[Any]:
    value = record.get(name)
    if not isinstance(value, list):
        raise _InvalidResponseError(f"{where}.{name} is {_short(value)}, expected a list")
    return value


def _objects(record: dict[str, Any], name: str, where: str) -> list[dict[str, Any]]:
    records = _list(record, name, where)
    if not all(isinstance(one, dict) for one in records):
        raise _InvalidResponseError(f"{where}.{name} has something other than objects")
    return records


def _short(value: object) -> str:
    """Return a short description of a JSON value."""
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**20 else "a huge number"
    if isinstance(value, str):
        return repr(value[:40]) + "…" * (len(value) > 40)
    return "a list" if isinstance(value, list) else "an object"


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None for a date or anything else.

    >>> _seconds("2"), _seconds("soon"), _seconds("-1"), _seconds(None)
    (2.0, None, None, None)
    """
    return min(float(header), MAX_PAUSE) if header and header.isascii() and header.isdigit() else None


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
