"""Long texts: what is told of them grows with the text, and not with its square, and is done in time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from random_translators import random_translator
from running import running

from heedful.client import ServiceError
from heedful.errors import DataError
from heedful.serve.http import app
from heedful.serve.limits import Limits
from heedful.trace import Trace
from heedful.trace.alignment import JoinedAlignment

TEXT = "A bead! Cafe deaf. C d! " * 4


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_sentences_are_told_without_weights_between_all_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = random_translator(name)
    whole = translator.translate(TEXT)
    assert len(whole.sentences) > 4
    expected, sure = whole.alignment, whole.trace.confidences()
    seen = [w for w in zip(whole.trace.target.words, sure, strict=True) if w[0].text and not w[0].is_end]

    def dense(*_: object) -> Trace:
        raise AssertionError("the weights of the whole text were made")

    monkeypatch.setattr(Trace, "join", dense)
    with running({"m": translator}) as service:
        item = service.client.translate(f"<p>{TEXT}</p>", alignments=True, markup=True)
    assert item["text"] == whole.text
    assert item["alignment"]["pharaoh"] == str(expected)
    assert item["alignment"]["target_words"] == [list(word[:3]) for word in expected.target]
    assert item["alignment"]["source_words"] == [list(word[:3]) for word in expected.source]
    assert [word["confidence"] for word in item["words"]] == pytest.approx([c for _, c in seen], abs=2e-4)
    assert [(word["text"], word["start"]) for word in item["words"]] == [(w.text, w.start) for w, _ in seen]
    for alarm in item["alarms"]:
        side = whole.trace.source if alarm["source"] else whole.trace.target
        assert alarm["words"] == [side.words[i].text for i in alarm["source"] or alarm["target"]]


def test_joined_alignments_are_those_of_the_whole() -> None:
    whole = random_translator("transformer").translate(TEXT)
    joined = JoinedAlignment(tuple(part.alignment for part in whole.sentences), whole.starts)
    assert [link[:2] for link in joined.links] == [link[:2] for link in whole.alignment.links]
    for chosen in ([0], [1, 2, 7], range(len(joined.source))):
        np.testing.assert_allclose(joined.attention_to(chosen), whole.alignment.attention_to(chosen), atol=1e-5)


def test_a_figure_has_a_largest() -> None:
    with running({"m": random_translator("rnn")}, Limits(cells=400)) as service:
        client = service.client
        assert client._json("POST", "/v1/translate", "translations", {"text": "a b", "trace": True})[0]["figure"]
        assert client.translate([TEXT] * 2, alignments=True)
        for path, body in (("/v1/translate", {"trace": True}), ("/v1/stream", {}), ("/v1/figure", {})):
            with pytest.raises(DataError, match="too long for a figure: source tokens times"):
                client._json("POST", path, "translations", {"text": TEXT, **body})


def test_what_comes_after_decoding_has_to_be_done_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "item", lambda *_: time.sleep(1) or {})
    with running({"m": random_translator("rnn")}, Limits(seconds=0.4)) as service:
        with pytest.raises(ServiceError, match="took longer than 0.4 s") as caught:
            service.client.translate("a", alignments=True)
        assert caught.value.status == 504
