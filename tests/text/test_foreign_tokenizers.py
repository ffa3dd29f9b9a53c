"""Tokenizers of strangers: what heedful does not write is refused by name, before it can take memory or time."""

from __future__ import annotations

import json
import tempfile
from io import BytesIO
from typing import Any

import pytest

from heedful.config import TextConfig
from heedful.errors import ModelError
from heedful.text import Codec

TEXTS = ["I am eating a green apple.", "the old cat sees a small dog"]
DUMPS = {
    kind: json.loads(Codec.train(TEXTS, TextConfig(kind=kind, size=60)).dump())
    for kind in ("bpe", "unigram", "word", "char")
}
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 16}
PADDING = {
    "strategy": {"Fixed": 2_000_000_000},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}
TEMPLATE = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
TRUNCATION = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}


@pytest.mark.parametrize("kind", DUMPS)
def test_ours_are_read(kind: str) -> None:
    codec = Codec.parse(json.dumps(DUMPS[kind]))
    assert codec.decode(codec.encode(TEXTS[1]).ids) == TEXTS[1]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"padding": PADDING}, "padding"),
        ({"truncation": TRUNCATION}, "truncation"),
        ({"post_processor": TEMPLATE}, "post_processor.*TemplateProcessing"),
        ({"decoder": {"type": "ByteLevel"}}, "decoder.*ByteLevel"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [GROWING] * 9}},
            "normalizer.*Sequence, Replace, Replace",
        ),
        ({"normalizer": None}, "normalizer.*None"),
        ({"normalizer": {"type": "Lowercase"}}, "normalizer.*Lowercase"),
        ({"pre_tokenizer": None}, "pre_tokenizer.*None"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}}}, "pre_tokenizer.*Split"),
        ({"added_tokens": []}, "token"),
        ({"added_tokens": 3}, "token.* 3"),
        ({"model": {"type": "WordPiece"}}, "model.*'WordPiece'"),
        ({"model": None}, "model"),
    ],
)
def test_what_heedful_does_not_write_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        Codec.parse(json.dumps({**DUMPS["bpe"], **changes}))


@pytest.mark.parametrize(("key", "value"), [("dropout", 0.5), ("byte_fallback", True), ("end_of_word_suffix", "x")])
def test_options_of_the_model(key: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{key}.*{value!r}"):
        Codec.parse(json.dumps({**DUMPS["bpe"], "model": {**DUMPS["bpe"]["model"], key: value}}))


def test_an_endless_token() -> None:
    model = DUMPS["word"]["model"]
    with pytest.raises(ModelError, match="20,000"):
        Codec.parse(json.dumps({**DUMPS["word"], "model": {**model, "vocab": {**model["vocab"], "x" * 20_000: 99}}}))


def test_long_tokens_of_unigram_models() -> None:
    """The time to cut a text grows with the square of their length."""
    model = DUMPS["unigram"]["model"]
    for length in (64, 65):
        text = json.dumps({**DUMPS["unigram"], "model": {**model, "vocab": [*model["vocab"], ["x" * length, -9.0]]}})
        if length == 64:
            Codec.parse(text)
        else:
            with pytest.raises(ModelError, match="65.* 64"):
                Codec.parse(text)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char"])
@pytest.mark.parametrize("word", ["a" * 10_500, "अंतर्राष्ट्रीयकरण" * 40], ids=["latin", "hindi"])
def test_whatever_is_learned_can_be_read(kind: str, word: str) -> None:
    codec = Codec.train([f"{word} b c"] * 3, TextConfig(kind=kind, size=200))
    again = Codec.parse(codec.dump())
    assert again.encode(f"{word[:50]} b").ids == codec.encode(f"{word[:50]} b").ids
    assert max(len(again.token(i)) for i in range(len(again))) <= 10_000


def test_longer_tokens_are_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.text.tokenizer.LONGEST", 12)
    for kind in ("bpe", "word"):
        codec = Codec.train(["abcdefghijklmnop abc"] * 9 + ["abcdefghijk"] * 9, TextConfig(kind=kind, size=60))
        tokens = [codec.token(i) for i in range(len(codec))]
        assert 8 < max(map(len, tokens)) <= 12
        assert Codec.parse(codec.dump()).encode("abcdefghijk abc").ids == codec.encode("abcdefghijk abc").ids
    assert codec.token(codec.encode("abcdefghijklmnop").ids[0]) == "<unk>"


def test_a_message_of_another_library_is_cut() -> None:
    model = DUMPS["bpe"]["model"]
    with pytest.raises(ModelError, match="invalid type: string") as error:
        Codec.parse(json.dumps({**DUMPS["bpe"], "model": {**model, "vocab": {**model["vocab"], "▁a": "A" * 100_000}}}))
    assert len(str(error.value)) < 600


def test_what_is_checked_is_what_is_read() -> None:
    """A key that stands there twice: the last counts, here as there."""
    text = json.dumps(DUMPS["bpe"])
    twice = text.replace('"padding": null', f'"padding": {json.dumps(PADDING)}, "padding": null')
    assert len(Codec.parse(twice).encode("a cat").ids) < 20
    with pytest.raises(ModelError, match="padding"):
        Codec.parse(text.replace('"padding": null', f'"padding": null, "padding": {json.dumps(PADDING)}'))


def sentencepiece_model(rules: str = "", **options: object) -> bytes:
    package = pytest.importorskip("sentencepiece")
    into = BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write(rules)
        file.flush()
        more = {"normalization_rule_tsv": file.name} if rules else {}
        package.SentencePieceTrainer.Train(
            sentence_iterator=iter(TEXTS * 20),
            model_writer=into,
            vocab_size=40,
            hard_vocab_limit=False,
            minloglevel=3,
            **more,
            **options,
        )
    return into.getvalue()


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


TOKENS = ("<pad>", "<unk>", "<s>", "</s>", "a")
GROUP = varint(1000 << 3 | 3) + varint(1000 << 3 | 4)  # protocol buffers skip it


@pytest.mark.parametrize(
    ("before", "named"),
    [
        (b"", "200.* 100"),
        (varint(1000 << 3) + b"\x01", "200 bytes"),  # a field that is not known
        (GROUP, "1000.*wire type 3"),
        (varint(1000 << 3 | 4), "wire type 4"),
        (varint(1000 << 3 | 6), "wire type 6"),
        (varint(1000 << 3 | 2) + varint(10**9), "field 1000"),
        (b"\x00\x00", "field.* 0"),
        (varint((1 << 32) + (3 << 3 | 2)), "field"),
        (b"\xff" * 11, "number"),
    ],
)
def test_a_sentencepiece_model_that_makes_much_of_a_letter(before: bytes, named: str) -> None:
    model = sentencepiece_model("61\t" + " ".join(["62"] * 200) + "\n")
    from heedful.text.sentencepiece import SentencePieces

    with pytest.raises(ModelError, match=named):
        SentencePieces(before + model, TOKENS)


def test_a_sentencepiece_model_with_a_group_in_its_normalizer() -> None:
    model = sentencepiece_model()
    inner = GROUP + b"\x12" + varint(4 + 5000) + bytes(4) + b"b" * 5000
    from heedful.text.sentencepiece import SentencePieces

    with pytest.raises(ModelError, match="wire type 3"):
        SentencePieces(model + varint(3 << 3 | 2) + varint(len(inner)) + inner, TOKENS)


def test_a_sentencepiece_model_with_an_endless_piece() -> None:
    from heedful.text.sentencepiece import SentencePieces

    text = b"\x0a" + varint(1001) + b"a" * 1001
    with pytest.raises(ModelError, match="1,001.* 1,000"):
        SentencePieces(sentencepiece_model() + b"\x0a" + varint(len(text)) + text, TOKENS)


@pytest.mark.parametrize("rule", ["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"])
def test_usual_sentencepiece_models_are_read(rule: str) -> None:
    model = sentencepiece_model(normalization_rule_name=rule)
    from heedful.text.sentencepiece import SentencePieces

    assert SentencePieces(model, TOKENS).encode("a ﬁn").ids[-1] == 3
