"""Captions over HTTP: what the captioner gives, in every form of request; and what is refused."""

from __future__ import annotations

import base64
import http.client
import io
import json
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from random_translators import random_translator
from running import Running, get, running, until
from tiny_captioner import captioner, picture

import heedful
from heedful.client import Client
from heedful.data.images import load_image
from heedful.errors import ConfigError, DataError
from heedful.serve.http.bodies import IMAGE_COST, PARTS, Bodies, RequestMemory
from heedful.serve.http.errors import HttpProblem
from heedful.serve.http.schemas import Caption, CaptionItem, CaptionRequest, Models
from heedful.serve.limits import Limits

Image = pytest.importorskip("PIL.Image")
MODELS = {
    "text": random_translator("rnn"),
    "rnn": captioner("rnn"),
    "transformer": captioner("transformer"),
    "fixed": captioner("fixed"),
}
LIMITS = Limits(beam=4, body=2_000, image_bytes=20_000, image_pixels=10_000)
BOUNDARY = "frontier"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def file(kind: str = "PNG", seed: int = 0, **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(picture(seed).pixels).save(content, kind, **options)
    return content.getvalue()


PNG = file()


def field(name: str, value: bytes, file_name: str = "") -> tuple[bytes, bytes]:
    more = f'; filename="{file_name}"' if file_name else ""
    return f'Content-Disposition: form-data; name="{name}"{more}'.encode(), value


def form(*parts: tuple[bytes, bytes]) -> bytes:
    edge = BOUNDARY.encode()
    return b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (edge, *part) for part in parts) + b"--%b--\r\n" % edge


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(MODELS, LIMITS) as found:
        yield found


def send(
    service: Running,
    body: bytes,
    kind: str = "application/json",
    path: str = "/v1/caption",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=20)
    try:
        connection.request("POST", path, body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if "json" in answer.headers["Content-Type"] else content.decode()
    finally:
        connection.close()


def ask(service: Running, image: bytes = PNG, **fields: object) -> tuple[int, Any]:
    return send(service, json.dumps({"image": base64.b64encode(image).decode(), **fields}).encode())


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    lines = [event.split("\n") for event in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


@pytest.mark.parametrize("model", ["rnn", "transformer", "fixed"])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_captioner_s_own_captions(service: Running, model: str, beam: int) -> None:
    status, record = ask(service, model=model, beam=beam, n_best=beam, alignments=True, name="a.png")
    assert status == 200
    Caption.model_validate(record)
    expected = MODELS[model].caption(picture(), beam=beam, n_best=beam)
    item = record["caption"]
    assert (record["model"], item["text"], item["source"]) == (model, expected.text, "a.png")
    assert item["score"] == pytest.approx(expected.score, abs=1e-3)
    assert item["image"] == {"name": "a.png", "width": 48, "height": 40, "rows": 4, "columns": 4}
    assert item["notes"] == list(expected.notes)
    words = [word for word in expected.trace.target.words if word.text and not word.is_end]
    assert [word["text"] for word in item["words"]] == [word.text for word in words]
    if model == "fixed":
        assert all(word["box"] is None and word["weights"] is None for word in item["words"])
        assert item["alignment"] is None
    else:
        weights = expected.trace.words()
        assert weights is not None
        for word, row, box in zip(item["words"], weights, expected.trace.boxes(), strict=False):
            assert word["weights"] == pytest.approx(row[:16], abs=1e-3)
            assert (word["box"] is None) == (box is None)
            assert box is None or word["box"] == pytest.approx(box, abs=0.01)
        assert item["alignment"]["pharaoh"] == str(expected.alignment)
    if beam > 1:
        assert [other["text"] for other in item["alternatives"]] == [other.text for other in expected.n_best]
        assert all(other["image"] == item["image"] for other in item["alternatives"])


def test_every_form_of_request_gives_the_same(service: Running) -> None:
    _, plain = ask(service, model="rnn", beam=2, n_best=2, trace=True, name="ड.png")
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    asked = {"image": url, "model": "rnn", "beam": 2, "n_best": 2, "trace": True, "name": "../x/ड.png"}
    assert send(service, json.dumps(asked).encode()) == (200, plain)
    fields = [field("model", b"rnn"), field("beam", b"2"), field("n_best", b"2"), field("trace", b"true")]
    assert send(service, form(*fields, field("image", PNG, "ड.png")), FORM) == (200, plain)
    named = form(field("image", PNG, "other.png"), *fields, field("name", "ड.png".encode()))
    assert send(service, named, FORM) == (200, plain)
    assert plain["caption"]["figure"]["source"]["tokens"][-1] == "</s>"


def test_the_default_is_the_first_model_of_its_kind(service: Running) -> None:
    assert ask(service)[1]["model"] == "rnn"
    assert service.client.translate("a b")["text"] == MODELS["text"].translate("a b").text
    cards = json.loads(get(service.url, "/v1/models")[1])
    Models.model_validate(cards)
    assert [card["reads_images"] for card in cards["models"]] == [False, True, True, True]
    assert [card["example"] for card in cards["models"][1:]] == ["", "", ""]
    assert (cards["image_bytes"], cards["image_pixels"]) == (20_000, 10_000)


@pytest.mark.parametrize("model", ["rnn", "transformer", "fixed"])
def test_a_stream(service: Running, model: str) -> None:
    status, text = ask(service, model=model, stream=True, name="a.png")
    assert status == 200
    (start, first), *tokens, (done, last) = events(text)
    assert (start, done) == ("start", "done")
    assert first["image"] == {"name": "a.png", "width": 48, "height": 40, "rows": 4, "columns": 4}
    assert {name for name, _ in tokens} == {"token"}
    item = last["caption"]
    CaptionItem.model_validate(item)
    assert tokens[-1][1]["text"] == item["text"] == ask(service, model=model)[1]["caption"]["text"]
    assert tokens[-1][1]["end"]
    if model == "fixed":
        assert all(token["weights"] is None for _, token in tokens)
    else:
        expected = MODELS[model].caption(picture()).trace.tokens()
        for (_, token), row in zip(tokens, expected, strict=True):
            assert token["weights"] == pytest.approx(row, abs=1e-3)
            assert token["weights_of"] == token["at"]


def test_a_stream_of_a_beam_has_no_tokens(service: Running) -> None:
    names = [name for name, _ in events(ask(service, stream=True, beam=2)[1])]
    assert names == ["start", "done"]


def test_a_caption_goes_on_from_a_prefix(service: Running) -> None:
    for model in ("rnn", "transformer"):
        item = ask(service, model=model, prefix="two small")[1]["caption"]
        assert item["text"].startswith("two small ")
        assert item["text"] == MODELS[model].caption(picture(), prefix="two small").text
        *_, (_, done) = events(ask(service, model=model, prefix="two small", stream=True)[1])
        assert done["caption"]["text"] == item["text"]
    status, problem = ask(service, prefix="purple")
    assert (status, problem["field"]) == (422, "prefix")
    assert "purple" in problem["detail"]


def test_images_of_all_kinds(service: Running) -> None:
    for kind in ("JPEG", "WEBP", "GIF"):
        assert ask(service, file(kind))[0] == 200
    frames = [Image.fromarray(picture(seed).pixels) for seed in (1, 2)]
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    notes = ask(service, content.getvalue(), name="a.gif")[1]["caption"]["notes"]
    assert any("a.gif" in note and "first frame" in note for note in notes)


def wide_png(width: int, height: int) -> bytes:
    """Return a PNG that says it is as large as that, and has no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + header + struct.pack(">I", zlib.crc32(header))


def scan_bomb() -> bytes:
    """Return a progressive JPEG with 300 scans."""
    Image.new("RGB", (64, 64)).save(drawn := io.BytesIO(), "JPEG", progressive=True)
    content = drawn.getvalue()
    return content[:-2] + content[content.rindex(b"\xff\xda") : -2] * 300 + content[-2:]


@pytest.mark.parametrize(
    ("image", "status", "fact"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "SVG"),
        (PNG[: len(PNG) // 2], 422, "damaged"),
        (b"hello", 422, "text"),
        (b"\0" * 100, 422, "not an image"),
        (wide_png(30_000, 30_000), 413, "30,000"),
        (wide_png(101, 100), 413, "101"),
        (b"\0" * 20_001, 413, "20,001"),
        (scan_bomb(), 422, "scans"),
    ],
)
def test_an_image_that_cannot_be_captioned(service: Running, image: bytes, status: int, fact: str) -> None:
    for given, problem in (ask(service, image), send(service, form(field("image", image, "x.png")), FORM)):
        assert given == status
        assert (problem["status"], problem["field"]) == (status, "image")
        assert fact in problem["detail"]


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"image": "no base64!"}, "image"),
        ({"image": "नमस्ते"}, "image"),
        ({"image": ""}, "image"),
        ({"image": "data:image/png,abc"}, "image"),
        ({"image": "data:"}, "image"),
        ({"image": 5}, "image"),
        ({}, "image"),
        ({"image": "aaaa", "markup": True}, "markup"),
        ({"image": "aaaa", "beam": "2"}, "beam"),
        ({"image": "aaaa", "beam": 5}, "beam"),
        ({"image": "aaaa", "n_best": 2}, "n_best"),
        ({"image": "aaaa", "name": "a" * 201}, "name"),
    ],
)
def test_a_wrong_field(service: Running, fields: dict[str, object], at: str) -> None:
    status, problem = send(service, json.dumps(fields).encode())
    assert (status, problem["field"]) == (422, at)


def test_the_kind_of_model(service: Running) -> None:
    status, problem = ask(service, model="text")
    assert (status, problem["field"]) == (422, "model")
    with pytest.raises(ConfigError) as error:
        MODELS["text"].caption(picture())
    assert problem["detail"] == str(error.value)
    assert ask(service, model="nobody")[0] == 404
    bodies = {
        "/v1/translate": {"text": "a"},
        "/v1/stream": {"text": "a"},
        "/v1/figure": {"text": "a"},
        "/v1/align": {"pairs": [{"source": "a", "target": "a"}]},
    }
    for path, body in bodies.items():
        status, problem = send(service, json.dumps({**body, "model": "rnn"}).encode(), path=path)
        assert (status, problem["field"]) == (422, "model")


def test_a_service_without_captioners_does_not_receive_images() -> None:
    with running({"m": MODELS["text"]}, LIMITS) as service:
        status, problem = send(service, b" " * 25_000)
        assert (status, problem["field"]) == (422, "model")
        assert service.service.bodies.room == Bodies(LIMITS).room
    with running({"m": MODELS["rnn"]}, LIMITS) as service:
        status, problem = send(service, json.dumps({"text": "a"}).encode(), path="/v1/translate")
        assert (status, problem["field"]) == (422, "model")


EDGE = BOUNDARY.encode()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (form(field("image", PNG)), "multipart/form-data", 400),
        (form(field("image", PNG)), f"multipart/form-data; boundary={'x' * 71}", 400),
        (form(field("image", PNG)), "multipart/form-data; boundary=other", 400),
        (form(field("image", PNG))[:-6], FORM, 400),
        (b"", FORM, 400),
        (b"junk", FORM, 400),
        (b"--%b\r\n" % EDGE, FORM, 400),
        (form((b"X: y", PNG)), FORM, 400),
        (form((b'Content-Disposition: attachment; name="image"', PNG)), FORM, 400),
        (form((b"Content-Disposition: form-data", PNG)), FORM, 400),
        (form(field("image" * 21, PNG)), FORM, 400),
        (form((b'Content-Disposition: form-data; name="image"\r\nContent-Transfer-Encoding: base64', PNG)), FORM, 400),
        (form((b"X: " + b"y" * 2_000, PNG)), FORM, 400),
        (form((b"\r\n".join(b"X: y" for _ in range(20)), PNG)), FORM, 400),
        (form((b"\0\xff: y", PNG)), FORM, 400),
        (form(*(field(f"f{i}", b"") for i in range(PARTS + 1))), FORM, 413),
        (form(*(field(f"f{i}", b"") for i in range(PARTS))), FORM, 422),
        (form(field("beam", b"1")), FORM, 422),
        (form(field("image", PNG), field("image", PNG)), FORM, 422),
        (form(field("image", PNG), field("beam", b"two")), FORM, 422),
        (form(field("image", PNG), field("prefix", b"\xff")), FORM, 422),
        (form(field("image", PNG), field("unknown", b"1")), FORM, 422),
        (form(field("image", b"a" * 30_000)), FORM, 413),
        (b"image=abc", "application/x-www-form-urlencoded", 415),
        (PNG, "image/png", 415),
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 3_000 + b"]" * 3_000, "application/json", 422),
        (b'{"image": "' + b"a" * 30_000 + b'"}', "application/json", 413),
        (b"null", "application/json", 422),
    ],
)
def test_hostile_bodies(service: Running, body: bytes, kind: str, status: int) -> None:
    given, problem = send(service, body, kind)
    assert given == status, problem
    assert problem["status"] == status
    assert ask(service)[0] == 200


OWN, SITE = "http://{}", "https://example.org"


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": OWN}, True),
        ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "http://localhost:1"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": OWN, "Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": SITE, "Sec-Fetch-Site": "cross-site"}, None),
    ],
)
def test_forms_of_other_pages(service: Running, headers: dict[str, str], allowed: bool | None) -> None:
    """A browser sends them without asking first; None: allowed if the origin is named."""
    netloc = urlsplit(service.url).netloc
    named = {name: value.format(netloc) for name, value in headers.items()}
    body = form(field("image", PNG))
    status, answer = send(service, body, FORM, headers=named)
    assert (status == 200) == bool(allowed), answer
    assert status in (200, 403)
    assert ask(service)[0] == 200
    if allowed is None:
        for origins in ((SITE,), ("*",)):
            with running({"m": MODELS["rnn"]}, LIMITS, origins=origins) as other:
                assert send(other, body, FORM, headers=named)[0] == 200


def test_two_images_are_decoded_at_once_also_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    going, most = 0, 0
    lock, end = threading.Lock(), threading.Event()

    def slow(*arguments: Any) -> Any:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        end.wait(30)
        with lock:
            going -= 1
        return load_image(*arguments)

    monkeypatch.setattr("heedful.serve.http.app.load_image", slow)
    limits = Limits(beam=4, body=2_000, image_bytes=20_000, image_pixels=10_000, seconds=0.3)
    with running({"m": MODELS["rnn"]}, limits) as service:
        assert [ask(service)[0] for _ in range(4)] == [504] * 4
        assert (going, most) == (2, 2)
        end.set()
        until(lambda: going == 0)
        until(lambda: ask(service)[0] == 200)
        assert most == 2


def test_how_to_send_the_picture_is_said(service: Running) -> None:
    status, problem = send(service, form(field("file", PNG, "x.png")), FORM)
    assert (status, problem["field"]) == (422, "file")
    assert "as 'image'" in problem["detail"]
    assert "image=@" in send(service, PNG, "image/png")[1]["detail"]


def test_a_form_is_for_captions_only(service: Running) -> None:
    assert send(service, form(field("text", b"a")), FORM, "/v1/translate")[0] == 415


def test_the_limit_of_a_body() -> None:
    limits = Limits(image_bytes=10, body=100)
    assert (limits.caption_body(), limits.caption_body(form=True)) == (116, 110)


def test_memory_of_images() -> None:
    bodies = Bodies(Limits(), images=True)
    largest = Limits().caption_body()
    assert bodies.room == 4 * largest
    held = [bodies.reserve(largest, image=True) for _ in range(4)]
    assert sum(bodies.reserved.values()) == 4 * IMAGE_COST * largest == bodies.most_reserved
    with pytest.raises(HttpProblem) as refused:
        bodies.reserve(1, image=True)
    assert refused.value.status == 429
    held[0].shrink(1_000)
    assert isinstance(bodies.reserve(largest - 1_000, image=True), RequestMemory)


def test_after_a_request_no_memory_is_reserved(service: Running) -> None:
    ask(service)
    ask(service, b"hello")
    until(lambda: not service.service.bodies.reserved)
    assert service.service.active == 0


def test_the_worker_process_writes_captions(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    MODELS["rnn"].save(folder)
    with running({"m": heedful.load(folder, "cpu")}, LIMITS, folders={"m": str(folder)}) as service:
        engine = service.service.engine
        until(lambda: engine.worker_ready, 60)
        images = [picture(seed) for seed in range(4)]
        for seed, image in enumerate(images):
            assert ask(service, file(seed=seed))[1]["caption"]["text"] == MODELS["rnn"].caption(image).text
        assert engine.worker_ready


def test_many_at_once_are_what_each_is_alone(service: Running) -> None:
    options: list[dict[str, object]] = [{}, {"beam": 3}, {"prefix": "two"}, {"stream": True}, {"model": "transformer"}]
    asked = [(seed, options[seed % len(options)]) for seed in range(20)]

    def one(seed: int, fields: dict[str, object]) -> str:
        status, answer = ask(service, file(seed=seed), **fields)
        assert status == 200
        return (events(answer)[-1][1] if fields.get("stream") else answer)["caption"]["text"]

    with ThreadPoolExecutor(10) as pool:
        captions = list(pool.map(lambda pair: one(*pair), asked))
    for (seed, fields), text in zip(asked, captions, strict=True):
        how = {name: value for name, value in fields.items() if name in ("beam", "prefix")}
        assert text == MODELS[str(fields.get("model", "rnn"))].caption(picture(seed), **how).text


def test_the_document(service: Running) -> None:
    found = json.loads(get(service.url, "/openapi.json")[1])
    operation = found["paths"]["/v1/caption"]["post"]
    assert set(operation["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    assert set(operation["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    schemas = found["components"]["schemas"]
    assert schemas["CaptionForm"]["properties"]["image"]["format"] == "binary"
    assert schemas["CaptionRequest"]["properties"]["beam"]["maximum"] == 4
    assert set(schemas["CaptionForm"]["properties"]) == set(CaptionRequest.model_fields)


def test_metrics_count_captions(service: Running) -> None:
    ask(service)
    assert 'heedful_requests_total{route="/v1/caption",status="200"}' in get(service.url, "/metrics")[1].decode()


def test_the_client(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    expected = MODELS["rnn"].caption(path, beam=2)
    for image in (path, str(path)):
        item = service.client.caption(image, beam=2, alignments=True)
        assert (item["text"], item["source"]) == (expected.text, "a.png")
    assert service.client.caption(PNG, name="b.png", model="transformer")["source"] == "b.png"
    names = [name for name, _ in service.client.stream_caption(path, prefix="two")]
    assert (names[0], names[-1]) == ("start", "done")
    with pytest.raises(DataError, match="no-such"):
        service.client.caption(tmp_path / "no-such.png")
    with pytest.raises(DataError, match="SVG"):
        service.client.caption(b"<svg ></svg>")
    with pytest.raises(ConfigError, match="beam"):
        service.client.caption(PNG, beem=2)  # type: ignore[call-arg]


def test_the_client_checks_captions(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    good = service.client.caption(PNG)
    broken: list[dict[str, Any]] = [
        {**good, "image": None},
        {**good, "image": {**good["image"], "rows": "4"}},
        {**good, "words": [{**good["words"][0], "box": [1, 2, 3]}]},
        {**good, "words": [{**good["words"][0], "box": [1, 2, 3, None]}]},
        {**good, "text": None},
    ]
    for record in broken:
        monkeypatch.setattr(Client, "_json", lambda *_, record=record: [record])
        with pytest.raises(heedful.client.ServiceError):
            service.client.caption(PNG)


def test_a_model_of_images_chooses_its_threads() -> None:
    from heedful.decoding import Decoding
    from heedful.translator.threads import _measured

    assert _measured(MODELS["rnn"], ["", ""], Decoding(max_length=2), 10) >= 1
    assert np.isfinite(MODELS["rnn"].caption(picture()).score)
