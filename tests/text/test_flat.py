"""Many sentences at once: looked up where that is exact, and always what the tokenizer says."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import ANYTHING, CODECS, CORPUS, KINDS

from heedful.config import TextConfig
from heedful.text import Codec, tokenizer

AGAIN = {kind: Codec.parse(codec.dump()) for kind, codec in CODECS.items()}


def alike(codec: Codec, texts: list[str], reference: Codec) -> None:
    ids, lengths = codec.ids_and_lengths(texts)
    rows = reference.ids(texts)
    assert ids.tolist() == [i for row in rows for i in row]
    assert lengths.tolist() == [len(row) for row in rows]
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(ANYTHING, max_size=5))
@example(texts=[])
@example(texts=["", " ", "\ud800 a", "\x1ca\x85b\u180ec\u200bd", " \u0301x", "x" * 100, "a\u2581b"])
@settings(max_examples=60, deadline=None)
def test_flat_is_ids(kind, texts):
    # The codec that looks up has seen all texts before this one.
    alike(CODECS[kind], texts, AGAIN[kind])


def test_sentencepiece():
    pytest.importorskip("sentencepiece")
    codec = Codec.train(CORPUS, TextConfig(kind="sentencepiece", size=200))
    alike(codec, [*CORPUS, "", "ﬁ"], codec)
    alike(codec, [], codec)


def test_only_so_much_is_remembered(monkeypatch):
    monkeypatch.setattr(tokenizer, "CACHED", 3)
    codec = Codec.parse(CODECS["bpe"].dump())
    for _ in range(3):
        for text in (*CORPUS, "a b c d e f", "x" * 100):
            alike(codec, [text], AGAIN["bpe"])
    assert len(codec._ids) <= 10
    assert "x" * 100 not in codec._ids


def test_a_tokenizer_of_the_first_versions():
    # To it U+001C is no white space, so that nothing may be looked up by what Python calls white space.
    found = json.loads(CODECS["bpe"].dump())
    found["normalizer"]["normalizers"][1]["pattern"]["Regex"] = "[\\s▁]+"
    codec = Codec.parse(json.dumps(found))
    texts = ["I am  eating", "CAFÉ\x1cam"]
    alike(codec, texts, codec)
    assert codec.ids_and_lengths(texts)[0].tolist() != CODECS["bpe"].ids_and_lengths(texts)[0].tolist()
