"""What the service answers is what the translator gives, and what is wrong is said with the field named."""

from __future__ import annotations

import asyncio
import html
import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel, ValidationError
from random_translators import random_translator
from running import Running, post, running

from heedful.decoding import Decoding
from heedful.serve.engine.request import prepare
from heedful.serve.http.schemas import Alignments, AlignRequest, Item, Models, Problem, TranslateRequest, Translations
from heedful.serve.limits import Limits
from heedful.text.codec import Codec

MODELS = {name: random_translator(name) for name in ("transformer", "rnn", "fixed")}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    limits = Limits(chars=500, items=10, beam=6, body=20_000)
    with running(MODELS, limits) as found:
        yield found


def ask(service: Running, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, Any]:
    """Ask and return status, headers and body; bytes are sent as they are."""
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
    try:
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        connection.request(method, path, sent, given)
        answer = connection.getresponse()
        content = answer.read()
        return (
            answer.status,
            answer.headers,
            json.loads(content) if "json" in answer.headers["Content-Type"] else content,
        )
    finally:
        connection.close()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_the_translator_s_own_translations(service: Running, name: str, beam: int) -> None:
    texts = ["a b c.", "b a! c d e.", "", "  h g f e d c b a", "a b. " * 12]
    items = service.client.translate(texts, model=name, beam=beam, n_best=beam, alignments=True)
    expected = MODELS[name].translate(texts, Decoding(beam=beam, n_best=beam))
    for item, translation in zip(items, expected, strict=True):
        Item.model_validate(item)
        assert (item["text"], item["source"]) == (translation.text, translation.source)
        assert item["score"] == pytest.approx(translation.score, abs=1e-3)
        assert [w["text"] for w in item["words"]] == [w.text for w in translation.trace.target.written]
        assert all(item["text"][w["start"] : w["end"]] == w["text"] for w in item["words"])
        sure = [
            c
            for w, c in zip(translation.trace.target.words, translation.trace.confidences(), strict=True)
            if w.text and not w.is_end
        ]
        assert [w["confidence"] for w in item["words"]] == pytest.approx(sure, abs=2e-4)
        if name == "fixed" and translation.text:
            assert item["alignment"] is None
        else:
            assert (item["alignment"] or {"pharaoh": ""})["pharaoh"] == str(translation.alignment)
        if beam > 1:
            assert [other["text"] for other in item["alternatives"]] == [o.text for o in translation.n_best]


def test_one_text_or_many(service: Running) -> None:
    one = service.client.translate("a b c")
    assert one == service.client.translate(["a b c"])[0]
    assert service.client.translate([]) == []
    assert one["text"] != service.client.translate("a b c", model="rnn")["text"]


def test_prefix(service: Running) -> None:
    assert service.client.translate("a b c", prefix="C A")["text"].startswith("C A")
    status, _, problem = ask(service, "POST", "/v1/translate", {"text": "a", "prefix": "ж"})
    assert (status, problem["field"]) == (422, "prefix")
    assert "ж" in problem["detail"]


def test_a_prefix_has_its_budget() -> None:
    translator = random_translator("rnn", max_length=20)
    with running({"m": translator}) as service:
        assert service.client.translate("a", prefix="a" * 20)["text"].startswith("a" * 20)
        status, _, problem = ask(service, "POST", "/v1/translate", {"text": "a", "prefix": "a" * 21})
        assert (status, problem["field"]) == (413, "prefix")
        assert "a prefix of 21 tokens is longer" in problem["detail"]
    encode, calls = translator.parts.target.encode, []
    translator.parts.target.encode = lambda text: calls.append(text) or encode(text)  # type: ignore[method-assign]
    prepared = prepare("m", translator, ["A b! C", "d"], Decoding(), "C A")
    assert calls == ["C A"]
    tokens = len(encode("C A").ids) - 1
    plain = [len(segment.encoded.ids) for segment in prepared.segments]
    assert [prepared.size(i) for i in range(3)] == [plain[0] + tokens, plain[1], plain[2] + tokens]


def test_markup(service: Running) -> None:
    item = service.client.translate("a <b>b</b> {x} c", markup=True)
    assert item["source"] == "a b c"
    assert item["text"] == service.client.translate("a b c")["text"]
    assert "<b>" in item["markup"]
    assert "{x}" in item["markup"]
    # Blocks are translated apart, and stay.
    item = service.client.translate("<p>a b</p> <br>c {x}", markup=True)
    ab, c = (service.client.translate(text)["text"] for text in ("a b", "c"))
    assert item["text"] == f"{ab}\n{c}"
    assert item["markup"] == f"<p>{html.escape(ab)}</p> <br>{html.escape(c)} {{x}}"
    # A tag is not looked into, and what cannot be read is kept, and said.
    tag = '<p title="<img src=x onerror=alert(1)>">'
    item = service.client.translate(f"{tag}a b<plaintext>c <b>", markup=True)
    assert item["markup"] == f"{tag}{html.escape(ab, quote=False)}<plaintext>c <b>"
    assert any("line 1, column 44: <plaintext>" in note for note in item["notes"])
    deep = service.client.translate("<b>" * 101 + "a", markup=True)
    assert deep["markup"].startswith("<b>" * 101)


@pytest.mark.parametrize("name", MODELS)
def test_a_stream_is_the_translation(service: Running, name: str) -> None:
    text = "a b c. d e! f"
    events = list(service.client.stream(text, model=name))
    start, tokens, (done,) = events[0][1], [e for n, e in events if n == "token"], [e for n, e in events if n == "done"]
    assert [n for n, _ in events] == ["start", *["token"] * len(tokens), "done"]
    whole = MODELS[name].translate(text)
    assert start["source"]["tokens"] == list(whole.trace.source.tokens)
    assert [t["token"] for t in tokens] == list(whole.trace.target.tokens)
    assert [t["at"] for t in tokens] == list(range(len(tokens)))
    assert done["translation"]["text"] == whole.text
    for number, part in enumerate(whole.sentences):
        mine = [t for t in tokens if t["sentence"] == number]
        assert mine[-1]["end"]
        assert mine[-1]["text"] == part.text
        assert whole.text[mine[-1]["start"] :].startswith(part.text)
        if name != "fixed":
            assert mine[0]["weights"] == pytest.approx(part.trace.tokens()[0].tolist(), abs=1e-3)
            assert mine[0]["source_first"] + len(mine[0]["weights"]) <= len(whole.trace.source.tokens)


def test_align(service: Running) -> None:
    pairs = [("a b", "A B"), ("c", "C D E"), ("", "A"), *[("a b c", "A C")] * 7]
    found = service.client.align(pairs)
    expected = MODELS["transformer"].align(*zip(*pairs, strict=True))
    assert [one["pharaoh"] for one in found] == [str(one) for one in expected]
    status, _, body = ask(service, "POST", "/v1/align", {"pairs": [{"source": "a", "target": "A"}]})
    Alignments.model_validate(body)
    assert status == 200
    assert ask(service, "POST", "/v1/align", {"pairs": [{"source": "a", "target": "A"}], "model": "fixed"})[0] == 422


@pytest.mark.parametrize(
    ("body", "kind", "begins"),
    [
        ({"text": "a b"}, "image/svg+xml", b"<svg"),
        ({"text": "a b. c", "view": "braid", "beam": 2}, "image/svg+xml", b"<svg"),
        ({"text": "a b", "target": "B A", "view": "heads"}, "image/svg+xml", b"<svg"),
        ({"text": "a b", "view": "self"}, "image/svg+xml", b"<svg"),
        ({"text": "a <b>", "format": "html"}, "text/html; charset=utf-8", b"<!doctype html>"),
        ({"text": "a b", "format": "png"}, "image/png", b"\x89PNG"),
    ],
)
def test_figures(service: Running, body: dict[str, str], kind: str, begins: bytes) -> None:
    status, headers, content = ask(service, "POST", "/v1/figure", body)
    assert (status, headers["Content-Type"]) == (200, kind)
    assert content.lower().startswith(begins.lower())


def test_about(service: Running) -> None:
    status, _, body = ask(service, "GET", "/v1/models")
    cards = Models.model_validate(body).models
    assert [(c.name, c.family, c.layers, c.heads, c.attention, c.default) for c in cards] == [
        ("transformer", "transformer", 2, 2, True, True),
        ("rnn", "rnn", 1, 1, True, False),
        ("fixed", "fixed", 0, 0, False, False),
    ]
    assert cards[0].weights == sum(w.numel() for w in MODELS["transformer"].parts.model.parameters())
    assert status == 200
    assert ask(service, "GET", "/health")[2]["status"] == ask(service, "GET", "/ready")[2]["status"] == "ok"
    status, _, body = ask(service, "GET", "/openapi.json")
    assert {"/v1/translate", "/v1/stream", "/v1/align", "/v1/figure", "/metrics", "/ready"} <= set(body["paths"])


def test_metrics(service: Running) -> None:
    def numbers() -> dict[str, float]:
        lines = ask(service, "GET", "/metrics")[2].decode().splitlines()
        return {k: float(v) for k, v in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    before = numbers()
    service.client.translate(["a b", "bead! Cafe"])
    after = numbers()
    assert after["heedful_sentences_total"] - before["heedful_sentences_total"] == 3
    counted = 'heedful_requests_total{route="/v1/translate",status="200"}'
    assert after[counted] - before.get(counted, 0) == 1
    for line, count in (("bucket", ',le="+Inf"'), ("count", "")):
        counted = f'heedful_request_seconds_{line}{{route="/v1/translate"{count}}}'
        assert after[counted] - before.get(counted, 0) == 1
    assert after["heedful_memory_bytes"] > 1e6
    assert after["heedful_active_requests"] == 0


@pytest.mark.parametrize(
    ("body", "status", "field", "says"),
    [
        ({"text": 5}, 422, "text", "valid string"),
        ({"text": ["a", 5]}, 422, "text.1", "valid string"),
        ({}, 422, "text", "required"),
        ({"text": "a", "beam": "4"}, 422, "beam", "integer"),
        ({"text": "a", "beam": True}, 422, "beam", "integer"),
        ({"text": "a", "beam": 0}, 422, "beam", "greater than or equal to 1"),
        ({"text": "a", "beam": 10**400}, 422, "beam", ""),
        ({"text": "a", "beam": 7}, 422, "beam", "up to 6"),
        ({"text": "a", "beam": 2, "n_best": 3}, 422, "n_best", "widen the beam"),
        ({"text": "a", "beem": 2}, 422, "beem", "not permitted"),
        ({"text": "a", "model": "transfomer"}, 404, "model", "Did you mean 'transformer'"),
        ({"text": "a", "model": "../../etc/passwd"}, 404, "model", "there is no model"),
        ({"text": "a" * 501}, 413, "text", "501 characters; 500 are allowed"),
        ({"text": ["a", "b" * 501]}, 413, "text.1", "501 characters"),
        ({"text": ["a"] * 11}, 413, "text", "11 text; 10 are allowed"),
        (b"{", 400, None, "JSON"),
        (b"[" * 19_000, 422, None, "more than 104 values"),
        (b"[" * 1_900, 400, None, ""),
        (b'{"text": ' + b"9" * 5000 + b"}", 400, None, ""),
        (b"\xff\xfe", 400, None, ""),
        (b"", 422, None, ""),
        (b'{"text": "\\ud800"}', 422, "text", ""),
        (b'{"text": NaN}', 422, "text", ""),
        (b'{"text": "a"}' + b" " * 20_000, 413, None, "bytes"),
    ],
)
def test_what_is_wrong_is_said(service: Running, body: object, status: int, field: str | None, says: str) -> None:
    found, headers, problem = ask(service, "POST", "/v1/translate", body)
    assert headers["Content-Type"] == "application/problem+json"
    Problem.model_validate(problem)
    assert (found, problem["status"], problem.get("field")) == (status, status, field)
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (TranslateRequest, {"text": [1] * 10_000}),
        (TranslateRequest, {"text": "a", **{f"x{i}": i for i in range(10_000)}}),
        (AlignRequest, {"pairs": [{}] * 10_000}),
        (AlignRequest, {"pairs": [{f"x{i}": i for i in range(10_000)}]}),
    ],
)
def test_few_faults_are_looked_for(kind: type[BaseModel], body: dict[str, object]) -> None:
    """Each costs time to find and to say: a request of two megabytes could hold up everybody else's."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() <= 3


def test_a_request_with_too_many_fields(service: Running) -> None:
    body = {"text": "a", **{f"x{i}": i for i in range(40)}}
    status, _, problem = ask(service, "POST", "/v1/translate", body)
    assert (status, problem["detail"]) == (422, "body: an object with 41 fields; at most 32")


def test_who_may_not_ask(service: Running) -> None:
    for path in ("/nothing", "/page/../app.py", "/page/%2e%2e%2fapp.py", "/page/..%5capp.py", "/page//etc/passwd"):
        status, headers, _ = ask(service, "GET", path)
        assert (status, headers["Content-Type"]) == (404, "application/problem+json")
    assert ask(service, "GET", "/v1/translate")[0] == 405
    assert ask(service, "POST", "/v1/translate", {"text": "a"}, Content_Type="text/plain")[0] == 415
    # A page elsewhere that was led here by a false name.
    assert ask(service, "GET", "/v1/models", Host="evil.example")[0] == 421
    assert ask(service, "GET", "/v1/models", Host="localhost:1")[0] == 200


def test_the_page_is_served_with_a_policy(service: Running) -> None:
    status, headers, body = ask(service, "GET", "/")
    assert status == 200
    assert b"<!doctype html>" in body.lower()
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_token_is_wanted() -> None:
    with running({"m": MODELS["rnn"]}, token="secret") as service:
        assert service.client.translate("a")["text"]
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            for given in ("", "Bearer", "Bearer no", "Basic s", "Bearer secret2"):
                status, headers, _ = ask(service, "GET", path, Authorization=given)
                assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert ask(service, "GET", "/health")[0] == 200
        document = ask(service, "GET", "/openapi.json", Authorization="Bearer secret")[2]
        assert document["paths"]["/v1/translate"]["post"]["security"] == [{"bearer": []}]
        assert ask(service, "POST", "/v1/translate", {"text": "a"})[0] == 401


def test_openapi_says_how_problems_are_sent(service: Running) -> None:
    for path in ("/health", "/ready"):
        assert ask_head(service, path) == 200
    document = ask(service, "GET", "/openapi.json")[2]
    responses = document["paths"]["/v1/translate"]["post"]["responses"]
    assert responses["422"]["content"] == {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }
    assert {"500", "503", "429"} <= set(responses)
    assert "Retry-After" in responses["429"]["headers"]
    assert "Problem" in document["components"]["schemas"]
    assert "security" not in document["paths"]["/v1/translate"]["post"]


def ask_head(service: Running, path: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
    try:
        connection.request("HEAD", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_answers_are_what_openapi_says(service: Running) -> None:
    body = {"text": ["a b.", "c"], "beam": 2, "n_best": 2, "alignments": True, "trace": True, "markup": True}
    _, _, answer = ask(service, "POST", "/v1/translate", body)
    assert Translations.model_validate(answer, strict=False).model == "transformer"
    assert answer["translations"][0]["figure"]["read"] is not None


@pytest.mark.parametrize("path", ["translate", "stream", "align", "figure"])
def test_a_request_has_one_deadline(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running({"m": random_translator("rnn")}) as service:
        calls, until = [], service.service.new_deadline

        def counted() -> float:
            calls.append(until())
            return calls[-1]

        monkeypatch.setattr(service.service, "new_deadline", counted)
        pairs = {"pairs": [{"source": "a b", "target": "A"}]}
        assert post(service.url, f"/v1/{path}", pairs if path == "align" else {"text": "a b"})[0] == 200
        assert len(calls) == 1


def test_waiting_to_look_at_a_body_counts_in_the_time_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(1000)

    with running({"m": random_translator("rnn")}, Limits(seconds=0.3)) as service:
        monkeypatch.setattr(service.service, "in_thread", never)
        assert post(service.url, "/v1/translate", {"text": "a, " * 3000})[0] == 504
        assert service.service.active == 0


def test_too_many_sentences_are_refused_before_they_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("encoded")

    with running({"m": random_translator("rnn")}, Limits(sentences=5)) as service:
        monkeypatch.setattr(Codec, "encode_all", never)
        status, content = post(service.url, "/v1/translate", {"text": "Bead cafe. " * 6})
        assert (status, "there are 6 sentences; 5 are allowed" in json.loads(content)["detail"]) == (413, True)
