"""Anything that can be sent gets an answer, and none of them is an error of the service."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_translators import random_translator
from running import Running, running
from tiny_captioner import captioner

from heedful.serve.limits import Limits

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    models = {name: random_translator(name, max_length=20) for name in ("transformer", "fixed")}
    models["captioner"] = captioner()
    with running(models, Limits(chars=400, items=6, beam=4, seconds=20)) as found:
        yield found


def test_every_operation(service: Running) -> None:
    """Requests made from the OpenAPI document, right ones and wrong ones: no server error, answers as it says."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
    seen = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        seen.add(operation.label)

        @given(case=operation.as_strategy())
        @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        def sent(case) -> None:
            case.call_and_validate(checks=checks, timeout=30)

        sent()
    assert {
        "POST /v1/caption",
        "POST /v1/translate",
        "POST /v1/stream",
        "POST /v1/align",
        "POST /v1/figure",
        "GET /v1/models",
    } <= seen


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(categories=["Mn", "Cf", "Lo", "So", "Zs", "Cc"]), max_size=40),
    st.lists(st.sampled_from(["<b>", "</b>", "<i x='y'>", "</i>", "<", "{n}", "&amp;", "a", "b.", " ", "\n", "<!--"]))
    .map("".join)
    .map(lambda text: text[:300]),
)


def _sent(service: Running, path: str, body: bytes, kind: bytes | str = "application/json") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=30)
    try:
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_translated(service: Running, data: st.DataObject) -> None:
    text = data.draw(TEXTS)
    asked = {"text": text, "beam": data.draw(st.integers(1, 3)), "markup": True, "alignments": data.draw(st.booleans())}
    asked["model"] = data.draw(st.sampled_from(["transformer", "fixed"]))
    status, body = _sent(service, "/v1/translate", json.dumps(asked).encode())
    assert status == 200, body
    (item,) = json.loads(body)["translations"]
    assert item["markup"] is not None
    status, body = _sent(service, "/v1/stream", json.dumps({"text": text, "model": asked["model"]}).encode())
    assert status == 200
    assert body.count(b"event: done\n") == 1, body


@given(
    body=st.one_of(st.binary(max_size=40), JSON.map(lambda value: json.dumps(value).encode())), path=st.integers(0, 4)
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_else_is_refused(service: Running, body: bytes, path: int) -> None:
    name = ("/v1/translate", "/v1/stream", "/v1/align", "/v1/figure", "/v1/caption")[path]
    status, answer = _sent(service, name, body)
    assert status in (400, 422), answer
    assert json.loads(answer)["detail"]


@given(body=st.binary(max_size=200), boundary=st.binary(max_size=20), shape=st.integers(0, 3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_form_is_refused(service: Running, body: bytes, boundary: bytes, shape: int) -> None:
    edge = bytes(byte for byte in boundary if 32 < byte < 127) or b"x"
    head = b'Content-Disposition: form-data; name="image"'
    whole = (body, b"--%b\r\n%b" % (edge, body), b"--%b\r\n%b\r\n--%b--" % (edge, body, edge), b"")[shape]
    whole = whole or b"--%b\r\n%b\r\n\r\n%b\r\n--%b--\r\n" % (edge, head, body, edge)
    status, answer = _sent(service, "/v1/caption", whole, b"multipart/form-data; boundary=" + edge)
    assert status in (400, 422), answer
    assert json.loads(answer)["detail"]
