"""What the OpenAPI document says is allowed at most is what this service allows, and no more."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest
from pydantic import ValidationError
from random_translators import random_translator
from running import Running, running

from heedful.errors import DataError
from heedful.serve.http.schemas import TranslateRequest
from heedful.serve.limits import Limits


def document(service: Running) -> dict[str, Any]:
    with urlopen(f"{service.url}/openapi.json", timeout=20) as answer:
        return json.loads(answer.read())


def test_limits_stand_in_the_document_as_they_are_set() -> None:
    with running({"m": random_translator("rnn")}, Limits(chars=70, items=5, beam=3)) as service:
        found = document(service)
        schemas = found["components"]["schemas"]
        assert "x-" not in json.dumps(schemas)
        for name in ("TranslateRequest", "StreamRequest", "FigureRequest"):
            fields = schemas[name]["properties"]
            assert fields["prefix"]["anyOf"][0] == {"type": "string", "maxLength": 70}
            assert (fields["beam"]["maximum"], fields["n_best"]["maximum"]) == (3, 3)
        one, several = schemas["TranslateRequest"]["properties"]["text"]["anyOf"]
        assert one == several["items"] == {"type": "string", "maxLength": 70}
        assert several["maxItems"] == 5
        assert schemas["StreamRequest"]["properties"]["text"]["maxLength"] == 70
        assert schemas["FigureRequest"]["properties"]["target"]["anyOf"][0]["maxLength"] == 70
        assert schemas["TextPair"]["properties"]["source"]["maxLength"] == 70
        assert schemas["TextPair"]["properties"]["target"]["maxLength"] == 70
        assert schemas["AlignRequest"]["properties"]["pairs"]["maxItems"] == 5
        assert "maxLength" not in schemas["Item"]["properties"]["text"], "an answer may be longer"
        assert document(service) == found
        # As much is taken, and one more is not.
        client = service.client
        assert len(client.translate(["न" * 70] * 5, beam=3, n_best=3, prefix="")) == 5
        assert len(client.align([("a" * 70, "B" * 70)] * 5)) == 5
        for call in (
            lambda: client.translate("न" * 71),
            lambda: client.translate("a", prefix="a" * 71),
            lambda: client.translate(["a"] * 6),
            lambda: client.translate("a", beam=4),
            lambda: client.align([("a", "B")] * 6),
            lambda: client.align([("a", "B" * 71)]),
        ):
            with pytest.raises(DataError):
                call()


def test_two_services_have_each_their_own() -> None:
    model = {"m": random_translator("rnn")}
    with running(model, Limits(chars=3_000_000, beam=2_000)) as large, running(model, Limits(beam=2)) as small:
        assert document(large)["components"]["schemas"]["StreamRequest"]["properties"]["text"]["maxLength"] == 3_000_000
        assert document(large)["components"]["schemas"]["StreamRequest"]["properties"]["beam"]["maximum"] == 1_000
        assert document(small)["components"]["schemas"]["StreamRequest"]["properties"]["beam"]["maximum"] == 2
    # No type refuses what the limit would let through; a beam of more than 1000 is refused by its type.
    assert TranslateRequest.model_validate({"text": "a" * 2_000_000}).beam == 1
    with pytest.raises(ValidationError):
        TranslateRequest.model_validate({"text": "a", "beam": 1_001})
