"""A server that is hostile or broken: one clear error each, nothing raw on the terminal, a line in is a line out."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Done
from hostile_server import Script, answer, events, forever, hostile, item, sends, steers, translations

from heedful import client as client_module
from heedful.client import Client, ServiceError
from heedful.errors import DataError, HeedfulError

Run = Callable[..., Done]
DEEP = b"[" * 100_000 + b"]" * 100_000
ESCAPE = "\x1b]0;owned\x07\x9b2J\u202e"


def body(content: str | bytes) -> Script:
    return sends(answer(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")))


def one(**changes: object) -> Script:
    return sends(translations(item(**changes)))  # type: ignore[arg-type]


FIGURE = {
    "source": {"tokens": ["a", "</s>"], "words": [["a", 0, 1], ["</s>", 1, 2]]},
    "target": {"tokens": ["B", "</s>"], "words": [["B", 0, 1], ["</s>", 1, 2]]},
    "readout": "read-out: layer 1",
    "read": None,
    "logs": [-0.1, -0.1],
}
LINKS = {"source_words": [["a", 0, 1]], "target_words": [["B", 0, 1]], "links": [[0, 0, 1.0]], "pharaoh": "0-0"}
WORD = {"text": "B", "start": 0, "end": 1, "confidence": 0.9}
WRONG: dict[str, Script] = {
    "not JSON": body("hello"),
    "nothing": body(""),
    "null": body("null"),
    "list": body("[]"),
    "number": body("7"),
    "empty object": body("{}"),
    "nested": body(DEEP),
    "nested in a field": body(b'{"translations": [{"source": "a", "text": ' + DEEP + b"}]}"),
    "no list": body('{"translations": {"0": {}}}'),
    "empty list": body('{"translations": []}'),
    "too many": sends(translations(item(), item())),
    "list of null": body('{"translations": [null]}'),
    "list of texts": body('{"translations": ["B"]}'),
    "no text": body('{"translations": [{"source": "a", "score": 0, "confidence": 1, "words": []}]}'),
    "text null": one(text=None),
    "text number": one(text=5),
    "text list": one(text=["B"]),
    "source missing": one(source=None),
    "words null": one(words=None),
    "words text": one(words="B"),
    "words of numbers": one(words=[1]),
    "word's text": one(words=[{**WORD, "text": 1}]),
    "score text": one(score="0"),
    "score true": one(score=True),
    "score NaN": one(score=float("nan")),
    "score infinite": one(score=float("inf")),
    "score 1e999": body(json.dumps({"translations": [item(score=7777)]}).replace("7777", "1e999")),
    "score huge": body(json.dumps({"translations": [item(score=7777)]}).replace("7777", "9" * 400)),
    "score of 10,000 digits": body(json.dumps({"translations": [item(score=7777)]}).replace("7777", "9" * 10_000)),
    "notes": one(notes=[{}]),
    "alternatives": one(alternatives=[5]),
    "alternative": one(alternatives=[item(rank_score=None)]),
    "alternatives nested": one(alternatives=[item(text=5, rank_score=1.0)]),
    "alternatives that nobody asked for": one(alternatives=[item(text, rank_score=0.0) for text in "BCD"]),
    "alignment": one(alignment=[]),
    "pharaoh": one(alignment={"pharaoh": 5}),
    "markup": one(markup=5),
    "figure": one(figure=[]),
    "UTF-16": body('{"translations": []}'.encode("utf-16")),
    "invalid UTF-8": body(b'{"translations": [{"text": "\xff\xfe"}]}'),
    "HTML": sends(answer(b"<html>", kind="text/html")),
    "stream for JSON": sends(answer(translations(item()).partition(b"\r\n\r\n")[2], kind="text/event-stream")),
    "gzip": sends(answer(b"\x1f\x8b\x08\x00\x00", "200 OK", "application/json", "Content-Encoding: gzip")),
    "redirect": sends(answer(b"", "302 Found", "text/html", "Location: file:///etc/passwd")),
    "redirect elsewhere": sends(answer(b"", "307 Temporary Redirect", "text/html", "Location: http://127.0.0.1:1/")),
    "no content": sends(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "HTTP/0.9": sends(b'{"translations": []}'),
    "another protocol": sends(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "binary": sends(b"\x00\x15\x03\x01\x00\x02\x02\x0a" * 20),
    "status 99999": sends(b"HTTP/1.1 99999 OK\r\n\r\n"),
    "status text": sends(b"HTTP/1.1 abc OK\r\n\r\n"),
    "long status line": sends(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n"),
    "long header": sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n{}"),
    "many headers": sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n{}"),
    "cut off": sends(translations(item())[:-20]),
    "chunks of nonsense": sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    "a chunk cut off": sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n{}"),
    "a negative chunk": sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n"),
    "a chunk without end": forever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 65536),
    "a negative length": sends(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
    "a length of text": sends(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}"),
    "problem of wrong types": sends(answer(b'{"detail": {"a": []}, "title": 7}', "500 Error")),
    "413 of wrong types": sends(answer(b'{"detail": 5, "field": [], "allowed": -3}', "413 Too Large")),
    "escape sequences": sends(answer(json.dumps({"detail": ESCAPE}).encode(), "500 Error")),
    "a nested problem": sends(answer(DEEP, "500 Error")),
    "a huge problem": sends(answer(b"x" * 1_000_000, "500 Error")),
    "an escape as status": sends(b"HTTP/1.1 500 \x1b[31m\r\nContent-Length: 0\r\n\r\n"),
    "an escape as type": sends(answer(b"{}", kind="text/\x1b[31mhtml")),
    "an escape as place": sends(answer(b"", "301 Moved", "text/html", "Location: \x1b[31m")),
    "a banner of escapes": sends(b"\x1b[2J\x1b]0;owned\x07\r\n\r\n"),
}
SHOWN: dict[str, Script] = {
    "no figure": one(alignment=None),
    "an empty figure": one(alignment=None, figure={}),
    "tokens": one(alignment=None, figure={**FIGURE, "source": {"tokens": 5, "words": []}}),
    "tokens of null": one(alignment=None, figure={**FIGURE, "source": {"tokens": [None], "words": []}}),
    "no words": one(alignment=None, figure={**FIGURE, "source": {"tokens": ["a"], "words": []}}),
    "words elsewhere": one(alignment=None, figure={**FIGURE, "source": {"tokens": ["a"], "words": [["a", 0, 9]]}}),
    "words twice": one(
        alignment=None, figure={**FIGURE, "target": {"tokens": ["B"], "words": [["B", 0, 1], ["B", 0, 1]]}}
    ),
    "words of numbers": one(alignment=None, figure={**FIGURE, "source": {"tokens": ["a"], "words": [[5, 0, 1]]}}),
    "logs": one(alignment=None, figure={**FIGURE, "logs": ["x", []]}),
    "logs huge": one(alignment=None, figure={**FIGURE, "logs": [10**30, 10**400]}),
    "weights": one(alignment=None, figure={**FIGURE, "read": {"counts": "@", "columns": 5, "weights": None}}),
    "too large": one(
        alignment=None,
        figure={
            **FIGURE,
            "source": {"tokens": ["a"] * 6000, "words": [["a", 0, 6000]]},
            "target": {"tokens": ["a"] * 6000, "words": [["a", 0, 6000]]},
            "logs": [0] * 6000,
            "read": {"counts": "", "columns": "", "weights": ""},
        },
    ),
}


def one_error(done: Done) -> None:
    """Nothing was translated, one line says why, and it steers nothing."""
    assert done.code in (1, 2)
    assert done.out.strip() == ""
    (line,) = done.err.splitlines()
    assert line.startswith("heedful: ")
    assert len(line) < 1000
    assert not steers(line)


@pytest.mark.parametrize("name", WRONG)
def test_one_clear_error(heedful_cli: Run, name: str) -> None:
    with hostile(WRONG[name]) as (url, requests):
        options = ["--html"] if name == "markup" else []
        one_error(heedful_cli("translate", "-", "a", "--server", url, "--patience", "0", *options))
        assert len(requests) == 1


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("option", [[], ["--json"]], ids=["drawn", "json"])
def test_a_figure_that_is_none(heedful_cli: Run, name: str, option: list[str]) -> None:
    with hostile(SHOWN[name]) as (url, _):
        done = heedful_cli("translate", "-", "a", "--show", *option, "--server", url, "--patience", "0")
    if "figure" in name and option:  # then there are no weights to print
        assert json.loads(done.out)["text"] == "B"
        return
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith(f"heedful: {url}: ")
    assert "KeyError" not in line


STREAMS = {
    "nothing": events(),
    "a name only": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: token\n\n",
    "no JSON": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: token\ndata: x\n\n",
    "a list": events(("token", [])),
    "no text": events(("token", {"start": 0})),
    "a number": events(("token", {"text": 5, "start": 0})),
    "start text": events(("token", {"text": "B", "start": "0"})),
    "start negative": events(("token", {"text": "B", "start": -1})),
    "start far away": events(("token", {"text": "B", "start": 10**12})),
    "done without translation": events(("done", {})),
    "done with a wrong one": events(("done", {"translation": {"text": 5}})),
    "an error of wrong types": events(("error", {"status": "x", "detail": [1]})),
    "an error with escapes": events(("error", {"status": 500, "detail": ESCAPE})),
    "broken off": events(("token", {"text": "B", "start": 0})),
    "not a stream": translations(item()),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_wrong(heedful_cli: Run, name: str) -> None:
    with hostile(sends(STREAMS[name])) as (url, _):
        done = heedful_cli("translate", "-", "a", "--stream", "--server", url, "--patience", "0")
    assert done.code in (1, 2)
    assert done.out in ("\n", "B\n")  # half a line is ended
    (line,) = done.err.splitlines()
    assert line.startswith("heedful: ")
    assert not steers(line)


def test_escapes_in_a_translation_reach_no_terminal(heedful_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [{**WORD, "text": ESCAPE}]
    with hostile(one(text=ESCAPE, words=words, alignment=LINKS)) as (url, _):
        options = ("--server", url, "--alignments")
        raw = heedful_cli("translate", "-", "a", *options)
        assert raw.out == f"{ESCAPE}\t0-0\n"  # a file or a pipe gets what there is
        assert not steers(heedful_cli("translate", "-", "a", *options, "--json").out)
        monkeypatch.setattr("heedful.cli.output.EscapedStream.isatty", lambda _: True)
        monkeypatch.setenv("TERM", "dumb")
        shown = heedful_cli("translate", "-", "a", *options).out
        assert not steers(shown)
        assert "\\x1b]0;owned" in shown


def test_a_line_in_is_a_line_out(heedful_cli: Run) -> None:
    texts = [item("one\ntwo\r\nthree\u2028four\x85five"), item(""), item("\n")]
    with hostile(sends(translations(*texts))) as (url, _):
        done = heedful_cli("translate", "-", "--server", url, stdin=b"a\n\nb\n")
        assert done == (0, "one two three four five\n\n\n", "")
        done = heedful_cli("translate", "-", "--server", url, stdin=b"a\nb\n")  # three answers for two lines
        assert (done.code, done.out) == (1, "")
        assert "2" in done.err
        assert "3" in done.err


@pytest.mark.parametrize("header", ["²", "-5", "1e9", "nan", "9" * 5000, "soon", "\x1b[31m", "0"])
def test_a_pause_that_is_nonsense(header: str) -> None:
    reply = answer(b'{"detail": "later"}', "503 Busy", "application/json", f"Retry-After: {header}")
    with hostile(sends(reply.replace(b"?", b"\xb2"))) as (url, requests), Client(url, patience=0.3) as client:
        begun = time.monotonic()
        with pytest.raises(ServiceError, match="later"):
            client.models()
        assert time.monotonic() - begun < 30
        assert 1 <= len(requests) <= 4  # not asked again and again without a pause


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_RESPONSE", 200_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: {}\r\n\r\n"
    plain, stream = (head.replace(b"{}", kind) for kind in (b"application/json", b"text/event-stream"))
    part = b"x" * 65536
    ends = {
        "a body": (plain + b'{"a": "', part, False),
        "one line of a stream": (stream + b"data: ", part, True),
        "comments": (stream, b": ping\n" * 10_000, True),
        "data": (stream, b"data: x\n" * 10_000, True),
        "events": (stream, b'event: more\ndata: {"text": "xxxxxxxxxxxxxxxxxxxxxxxxxxx"}\n\n' * 1000, True),
    }
    for first, more, streamed in ends.values():
        limit = pytest.raises(ServiceError, match="200,000")
        with hostile(forever(first, more)) as (url, _), Client(url, timeout=60, patience=0) as client, limit:
            list(client.stream("a")) if streamed else client.models()


def test_a_length_that_is_not_true_takes_no_memory() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{}"
    with hostile(sends(head)) as (url, _), Client(url, patience=0) as client, pytest.raises(ServiceError):
        client.models()


def trickle(first: bytes, part: bytes = b" ") -> tuple[Script, threading.Event]:
    """A script that sends a byte now and then until the event is set: never silent, never done."""
    over = threading.Event()

    def script(connection: socket.socket) -> None:
        connection.sendall(first)
        while not over.wait(0.02):
            connection.sendall(part)

    return script, over


@pytest.mark.parametrize(
    ("first", "part", "streamed"),
    [
        (b"", b"H", False),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b": ping\n\n", True),
    ],
    ids=["status", "header", "continue", "body", "chunks", "trailers", "stream"],
)
def test_a_slow_answer_has_to_be_whole_in_time(first: bytes, part: bytes, streamed: bool) -> None:
    script, over = trickle(first, part)
    with hostile(script) as (url, _), Client(url, timeout=0.4, patience=0) as client:
        try:
            with pytest.raises(ServiceError, match=r"0\.4 s"):
                list(client.stream("a")) if streamed else client.models()
        finally:
            over.set()


def test_a_token_goes_nowhere_else() -> None:
    with hostile(sends(answer(b"{}"))) as (other, leaked):
        place = f"Location: {other}/v1/models"
        for status in ("301 Moved", "302 Found", "307 Temporary", "308 Permanent"):
            with hostile(sends(answer(b"", status, "text/html", place))) as (url, requests):
                with Client(url, "s3cret", patience=0) as client, pytest.raises(ServiceError, match=other):
                    client.models()
                assert b"Bearer s3cret" in requests[0]
        assert leaked == []


@pytest.mark.parametrize(
    "problem",
    [
        {"detail": "x", "field": "text.²"},
        {"detail": "x", "field": "text.99"},
        {"detail": "x", "field": "text.-1"},
        {"detail": "x", "allowed": 0},
        {"detail": "x", "allowed": -1},
        {"detail": "x", "allowed": True},
        {"detail": "x", "allowed": 10**30},
    ],
    ids=str,
)
def test_too_much_ends_also_where_it_says_nothing_of_use(heedful_cli: Run, problem: dict[str, Any]) -> None:
    reply = answer(json.dumps(problem).encode(), "413 Too Large")
    with hostile(sends(reply)) as (url, requests):
        done = heedful_cli("translate", "-", "--server", url, stdin=b"a\n" * 8)
        assert done.code == 2
        assert "line 1" in done.err
        assert len(requests) <= 8


def test_a_host_that_cannot_be_is_one_error(heedful_cli: Run) -> None:
    for url in (
        "http://" + "a" * 300,
        "http://\u0301.example",
        "http://[::1",
        "http://a b",
        "http://x:y@localhost",
        "http://h/\x1b",
    ):
        done = heedful_cli("translate", "-", "a", "--server", url, "--patience", "0")
        assert done.code in (1, 2)
        assert not steers(done.err)
        assert len(done.err.splitlines()) == 1


def test_any_change_of_an_answer_is_taken_or_refused_in_words(heedful_cli: Run, tmp_path: object) -> None:
    """Random values in random places of a real answer."""
    pick = random.Random(1)
    values: list[Any] = [None, True, -1, 0, 10**25, 0.5, "", "\x1b[31m", "0-0", [], [[]], [1, 2, 3], {}, {"a": 1}]
    options = [["--show"], ["--json"], ["--show", "--json"], ["--html"], ["--n-best", "2", "--beam", "2"]]
    whole = item(figure=FIGURE, alignment=LINKS, markup="B", rank_score=-0.1)
    left: list[bytes] = []
    with hostile(lambda connection: connection.sendall(left[-1])) as (url, _):
        for _ in range(60):
            option = pick.choice(options)
            others = {"alternatives": [whole]} if "--n-best" in option else {}
            changed = json.loads(json.dumps({**whole, **others}))
            place = changed
            while True:
                key = pick.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if isinstance(place[key], dict | list) and place[key] and pick.random() < 0.8:
                    place = place[key]
                    continue
                place[key] = pick.choice(values)
                break
            left.append(translations(changed))
            done = heedful_cli("translate", "-", "a", "--server", url, "--patience", "0", *option)
            assert done.code in (0, 1, 2)
            assert len(done.err.splitlines()) == (done.code > 0)


@pytest.mark.parametrize(
    ("reply", "ask", "error"),
    [
        (translations(), lambda client: client.translate("a"), ServiceError),
        (translations(item()), lambda client: client.translate(["a", "b"]), ServiceError),
        (answer(b'{"alignments": [{}]}'), lambda client: client.align([("a", "b")]), ServiceError),
        (answer(b'{"models": [{"name": 5}]}'), lambda client: client.models(), ServiceError),
        (answer(b'{"detail": "wrong"}', "422 X"), lambda client: client.models(), DataError),
    ],
    ids=["none", "one of two", "links", "models", "422"],
)
def test_in_python_it_is_an_error_of_heedful(
    reply: bytes, ask: Callable[[Client], object], error: type[HeedfulError]
) -> None:
    with hostile(sends(reply)) as (url, _), Client(url) as client, pytest.raises(error):
        ask(client)


def test_nonsense_is_not_ready() -> None:
    with hostile(sends(b"\xff\xff")) as (url, _), Client(url) as client:
        assert not client.ready()


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    with hostile(sends(answer(b'{"models": []}'))) as (url, requests), Client(url, patience=0) as client:
        for _ in range(3):
            assert client.models() == []
        assert len(requests) == 3


def test_as_many_alternatives_as_were_asked_for(heedful_cli: Run) -> None:
    options = ("--beam", "3", "--n-best", "2")
    for count in (0, 1, 2, 3):
        others = [item(text, rank_score=-1.0) for text in "BCD"[:count]]
        with hostile(one(alternatives=others)) as (url, _):
            done = heedful_cli("translate", "-", "a", "--server", url, *options)
        assert done.code == (count > 2)
        assert len(done.out.splitlines()) == (0 if count > 2 else max(count, 1))


def test_values_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(client_module.json, "loads", parsed)
    content = b'{"translations": [], "x": [' + b"[]," * 2_000_000 + b"[]]}"
    with pytest.raises(client_module._InvalidResponseError, match="objects and lists"):
        client_module._parse(content)
    with pytest.raises(AssertionError):
        client_module._parse(json.dumps({"text": "[" * 2_000_000}).encode())  # brackets of a text are no lists


@pytest.mark.parametrize(
    "links",
    [
        {},
        {"alignment": None},
        {"alignment": {**LINKS, "pharaoh": "0-0\t1-1"}},
        {"alignment": {**LINKS, "pharaoh": "a"}},
    ],
    ids=["missing", "null", "a tab", "no links"],
)
def test_links_that_were_asked_for(heedful_cli: Run, links: dict[str, Any]) -> None:
    with hostile(one(**links)) as (url, _):
        done = heedful_cli("translate", "-", "a", "--alignments", "--server", url)
        one_error(done)
        assert url in done.err


@pytest.mark.parametrize("stream", [False, True])
def test_notes_are_said_as_those_of_a_model_here(heedful_cli: Run, stream: bool) -> None:
    notes = [f"cut off after {ESCAPE} 7 tokens", *(f"note {'x' * i}" for i in range(60)), "y" * 5000]
    done_event = ("done", {"translation": item(notes=notes)})
    script = sends(events(("token", {"text": "B", "start": 0}), done_event)) if stream else one(notes=notes)
    with hostile(script) as (url, _):
        done = heedful_cli("translate", "-", "a", "--server", url, *["--stream"] * stream)
    assert (done.code, done.out) == (0, "B\n")
    lines = done.err.splitlines()
    assert "7 tokens" in lines[0]
    assert not any(map(steers, lines))
    assert len(lines) == 21  # a service may not flood a terminal
    assert "42" in lines[-1]
    assert len(done.err) < 20_000
    with hostile(script) as (url, _):
        assert heedful_cli("translate", "-", "a", "--server", url, "--quiet").err == "" or stream


def test_html_in_columns_is_not_changed(heedful_cli: Run, tiny: Any) -> None:
    with hostile(one(alignment=LINKS, markup="B")) as (url, requests):
        for there in ([tiny], ["-", "--server", url]):
            for found, shown in (("\r", "\\r"), ("\u2028", "\\u2028"), ("\t", "tab"), ("\f", "\\x0c"), ("\n", "\\n")):
                text = f"<script>// c{found}f()</script> a"
                for option in (["--alignments"], ["--beam", "2", "--n-best", "2"]):
                    done = heedful_cli("translate", *there, text, "--html", *option)
                    assert (done.code, done.out) == (2, "")
                    assert shown in done.err
                    assert option[-2 if len(option) > 1 else 0] in done.err
                if found in "\t\f":
                    done = heedful_cli("translate", *there, "--html", "--alignments", stdin=text.encode())
                    assert (done.code, done.out) == (2, "")
                    assert "line 1" in done.err
        assert requests == []


def test_a_status_is_a_number() -> None:
    with hostile(sends(events(("error", {"status": True, "detail": ""})))) as (url, _), Client(url) as client:
        with pytest.raises(ServiceError, match="status 0") as caught:
            list(client.stream("a"))
        assert caught.value.status == 0
