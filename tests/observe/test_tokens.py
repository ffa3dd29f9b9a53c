"""Tokens, spans and words of the tokenizers of transformers, in every script."""

from __future__ import annotations

import json
import time
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny_transformers as tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import ConfigError, DataError
from heedful.observe.tokens import check_length, positions, text_of, tokenize, words_of
from heedful.trace import Text
from heedful.trace.json_checks import check_text

pytest.importorskip("transformers")
KINDS = {
    "bytes": ("bytes", "<s>", "</s>"),
    "plain bytes": ("bytes", "", ""),
    "wordpiece": ("wordpiece", "[CLS]", "[SEP]"),
    "unigram": ("unigram", "", "</s>"),
    "sentencepiece": ("sentencepiece", "", ""),
}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    return {name: tiny.make_tokenizer(*kind) for name, kind in KINDS.items()}


def words(text: Text) -> list[str]:
    return [word.text for word in text.words]


def check(text: Text) -> None:
    """Spans are in order and inside the text; every token is in one word; a word has the characters of its tokens."""
    check_text(text, "")
    assert len(text.tokens) == len(text.spans)
    assert all(token and "\n" not in token and not token.startswith(" ") for token in text.tokens)
    starts = [start for start, _ in text.spans]
    assert starts == sorted(starts)
    at = 0
    for word in text.words:
        assert word.first == at
        assert word.last > word.first
        at = word.last
        if word.start < word.end and not text.text[word.start : word.end].isspace():
            assert word.text == text.text[word.start : word.end]
            spans = [text.spans[i] for i in range(word.first, word.last)]
            assert word.start >= min(start for start, _ in spans)
            assert word.end == max(end for _, end in spans)
    assert at == len(text.tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_every_script(kind: str, tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers[kind]
    first, last = {"sentencepiece": ("__en__", "</s>")}.get(kind, KINDS[kind][1:])
    for text, wanted in (
        ("The animal isn't tired.", ["The", "animal", "isn't", "tired", "."]),
        ("a well-known (model): yes!", ["a", "well-known", "(", "model", ")", ":", "yes", "!"]),
        ("वह बिल्ली देखती है।", ["वह", "बिल्ली", "देखती", "है", "।"]),
        ("القطة تنظر إلى الكلب.", ["القطة", "تنظر", "إلى", "الكلب", "."]),
        ("a 😀 ❤️ 👩‍👩‍👧‍👦 🇫🇷 b", ["a", "😀", "❤️", "👩‍👩‍👧‍👦", "🇫🇷", "b"]),
        ("été e\u0301te\u0301", ["été", "e\u0301te\u0301"]),
    ):
        ids, found = tokenize(tokenizer, text)
        assert words(found) == [*([first] if first else []), *wanted, *([last] if last else [])]
        assert found.text == text
        assert len(ids) == len(found.tokens)
        assert ids == tokenizer(text)["input_ids"]
        check(found)


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_without_spaces_have_a_word_for_every_token(kind: str, tokenizers: dict[str, Any]) -> None:
    _, found = tokenize(tokenizers[kind], "那只动物。")
    inner = [word for word in found.words if word.start < word.end]
    assert "".join(word.text for word in inner) == "那只动物。"
    # Some of these bytes are of two characters, which are then one word.
    assert len(inner) > (1 if kind.endswith("bytes") else 2)
    assert inner[-1].text == "。"


def test_special_tokens_are_words_with_empty_spans(tokenizers: dict[str, Any]) -> None:
    _, found = tokenize(tokenizers["bytes"], "one</s>two")
    assert words(found) == ["<s>", "one", "</s>", "two", "</s>"]
    assert [found.spans[word.first] for word in found.words if word.text.endswith("s>")] == [(0, 0), (3, 3), (10, 10)]
    _, found = tokenize(tokenizers["wordpiece"], "the [MASK] cat ẞ")
    assert words(found) == ["[CLS]", "the", "[MASK]", "cat", "ẞ", "[SEP]"]
    assert found.spans[found.tokens.index("[MASK]")] == (4, 10)
    assert "[UNK]" in found.tokens


def test_tokens_as_people_read_them(tokenizers: dict[str, Any]) -> None:
    _, found = tokenize(tokenizers["plain bytes"], "The animal\n\tअ 😀🚀")
    assert found.tokens[0] == "The"
    assert [t for t in found.tokens if not t.isascii()] or "<0xF0>" in "".join(found.tokens)
    assert "\\n" in found.tokens
    assert "\\t" in found.tokens
    rocket = [(t, s) for t, s in zip(found.tokens, found.spans, strict=True) if s == (15, 16)]
    assert len(rocket) > 1
    assert "".join(t for t, _ in rocket) == "<0xF0><0x9F><0x9A><0x80>"
    assert words(found)[-1] == "😀🚀"
    _, found = tokenize(tokenizers["wordpiece"], "Attention weights")
    assert found.tokens[1:-1] == ("a", "##t", "##t", "##en", "##t", "##i", "##on", "weights")
    assert words(found) == ["[CLS]", "Attention", "weights", "[SEP]"]
    _, found = tokenize(tokenizers["unigram"], "The animal")
    assert found.tokens[:2] == ("The", "▁")
    assert found.words[1] == ("animal", 4, 10, 1, len(found.tokens) - 1)


def test_white_space(tokenizers: dict[str, Any]) -> None:
    _, found = tokenize(tokenizers["plain bytes"], "a  b\n\nc ")
    assert words(found) == ["a", "▁", "b", "\\n", "\\n", "c", "▁"]
    ids = tokenizers["plain bytes"]("a  b")["input_ids"]
    assert words(text_of(tokenizers["plain bytes"], ids)) == ["a", "▁", "b"]
    # The sign itself is a space to SentencePiece, and a character to all others.
    assert words(tokenize(tokenizers["plain bytes"], "a▁b")[1]) == ["a▁b"]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_become_the_text_again(kind: str, tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers[kind]
    for text in tiny.TEXTS[:6]:
        ids, found = tokenize(tokenizer, text)
        again = text_of(tokenizer, ids)
        check(again)
        assert again.tokens == found.tokens
        if kind == "wordpiece":  # which has no capital letters and no accents
            assert words(again)[1:3] == [word.lower() for word in words(found)[1:3]] or not text.isascii()
        elif "<unk>" not in found.tokens:
            assert (again.text, again.spans, words(again)) == (found.text, found.spans, words(found))


def test_the_bytes_of_a_character_that_is_not_whole(tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers["plain bytes"]
    ids = tokenizer("🚀")["input_ids"]
    assert len(ids) > 1
    found = text_of(tokenizer, ids[:-1])
    check(found)
    assert set(found.text) == {"\ufffd"}
    assert "".join(found.tokens).startswith("<0xF0><0x9F>")


def test_a_text_that_goes_on(tokenizers: dict[str, Any]) -> None:
    """No word has tokens of the prompt and of what was generated."""
    for kind in ("plain bytes", "unigram"):
        tokenizer = tokenizers[kind]
        ids = tokenizer("The animal", add_special_tokens=False)["input_ids"]
        for cut in range(1, len(ids)):
            prompt = text_of(tokenizer, ids[:cut])
            whole = text_of(tokenizer, ids[cut:], after=prompt)
            check(whole)
            assert whole.text == "The animal"
            assert any(word.first == cut for word in whole.words)
            assert whole.tokens[:cut] == prompt.tokens
            assert whole.spans[:cut] == prompt.spans


def test_tokens_without_words(tokenizers: dict[str, Any]) -> None:
    for tokenizer in tokenizers.values():
        ids, found = tokenize(tokenizer, "The animal isn't tired.", words=False)
        assert words(found) == list(found.tokens)
        assert words(text_of(tokenizer, ids, words=False)) == list(found.tokens)


class WithoutOffsets:
    """A tokenizer of whole words and of letters that says nothing about characters, as some in plain Python do."""

    is_fast = False
    all_special_ids = (0,)

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [*(ord(c) for c in text), 0]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return ["<end>" if i == 0 else f"_{chr(i)}" for i in ids]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


def test_a_tokenizer_without_offsets() -> None:
    tokenizer = WithoutOffsets()
    with pytest.raises(ConfigError, match="WithoutOffsets.*words=False"):
        tokenize(tokenizer, "it is")
    ids, found = tokenize(tokenizer, "it is", words=False)
    assert ids == [*map(ord, "it is"), 0]
    assert found.tokens == ("i", "t", "▁", "i", "s", "<end>")
    assert found.spans == ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 5))
    again = text_of(tokenizer, ids)
    assert (again.text, words(again)) == ("it is", ["it", "is", "<end>"])


def test_sentencepiece_gives_exact_spans(tokenizers: dict[str, Any]) -> None:
    _, found = tokenize(tokenizers["sentencepiece"], "ﬁne  é</s> x")
    assert words(found) == ["__en__", "ﬁne", "é", "</s>", "x", "</s>"]
    assert [found.spans[i] for i in range(1, 3)] == [(0, 1), (0, 1)]  # f and i of the ligature
    _, target = tokenize(tokenizers["sentencepiece"], "La souris", target=True)
    assert words(target) == ["__fr__", "La", "souris", "</s>"]
    assert words(tokenize(tokenizers["sentencepiece"], "La souris")[1])[0] == "__en__"


def test_marian(tmp_path: Path) -> None:
    """Marian has a SentencePiece model for each language, and the code of a language at the beginning of a text."""
    from transformers import MarianTokenizer

    processor = tiny._processor()
    names = ["</s>", "<unk>", *(processor.IdToPiece(i) for i in range(3, len(processor))), ">>fra<<", "<pad>"]
    files = [tmp_path / name for name in ("source.spm", "target.spm", "vocab.json")]
    files[2].write_text(json.dumps({name: i for i, name in enumerate(names)}))
    for file in files[:2]:
        file.write_bytes(tiny._sentencepiece())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends another package
        tokenizer = MarianTokenizer(*map(str, files))
    _, found = tokenize(tokenizer, ">>fra<< The animal isn't tired.")
    assert words(found) == [">>fra<<", "The", "animal", "isn't", "tired", ".", "</s>"]
    assert found.tokens[0] == ">>fra<<"
    check(found)
    assert words(tokenize(tokenizer, "La souris.", target=True)[1]) == ["La", "souris", ".", "</s>"]


def test_bytes_of_characters_that_are_not_in_the_vocabulary() -> None:
    """As Llama 2 and Gemma have them: spaces become ▁, and what is unknown becomes bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdt", "▁a", "▁c", "▁ca", "▁cat"]
    merges = [("▁", "a"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    text = "a cat é 😀 dd\nab"
    ids, found = tokenize(tokenizer, text)
    assert words(found) == ["a", "cat", "é", "😀", "dd", "\\n", "ab"]
    assert [t for t, s in zip(found.tokens, found.spans, strict=True) if s == (8, 9)] == [
        *("<0xF0>", "<0x9F>", "<0x98>", "<0x80>"),
    ]
    check(found)
    again = text_of(tokenizer, ids)
    assert (again.text, again.tokens, words(again)) == (text, found.tokens, words(found))
    assert again.text == tokenizer.decode(ids)


def test_nothing_to_read(tokenizers: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no tokens"):
        tokenize(tokenizers["plain bytes"], "")
    assert words(tokenize(tokenizers["bytes"], "")[1]) == ["<s>", "</s>"]
    assert text_of(tokenizers["bytes"], []).tokens == ()
    found = tokenize(tokenizers["bytes"], "a\ud800b")[1]
    assert found.text == "a\ufffdb"


ALPHABETS = st.one_of(
    st.text(st.sampled_from("the animal isn't. Tired-WELL \n\t(“”)’é1,"), max_size=30),
    st.text(st.sampled_from("वह बूढ़ी बिल्ली देखती है।"), max_size=20),
    st.text(st.sampled_from("القطة الكبيرة تنظر إلى.،؟"), max_size=20),
    st.text(st.sampled_from("那只动物没有过马路，因为。 a"), max_size=20),
    st.text(st.sampled_from("😀🚀❤️👩‍👧🇫🇷 a!"), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(st.sampled_from("<s>/[CLS]▁ Ġ#ﬁ½ⅷ\u0301\u200b\u00a0\u3000"), max_size=15),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=ALPHABETS)
def test_any_text(kind: str, tokenizers: dict[str, Any], text: str) -> None:
    tokenizer = tokenizers[kind]
    if not tokenizer(text)["input_ids"]:
        return
    ids, found = tokenize(tokenizer, text)
    assert found.text == text
    check(found)
    special = set(tokenizer.all_special_tokens) | {"__en__"}
    covered = {i for start, end in found.spans for i in range(start, end)}
    inner = found.tokens[1:-1] if kind == "bytes" else found.tokens
    if not special & set(inner) and kind.endswith("bytes"):
        # Nothing is lost in bytes: every character that is no space belongs to a token.
        assert all(i in covered or c.isspace() for i, c in enumerate(text))
    check(text_of(tokenizer, ids))
    if kind == "plain bytes" and not special & set(found.tokens):
        again = text_of(tokenizer, ids)
        assert again.text == text
        assert words(again) == words(found)


@settings(max_examples=200, deadline=None)
@given(text=ALPHABETS)
def test_words_are_what_white_space_separates(text: str) -> None:
    """With a token for every character, words joined again are the text; punctuation stands alone."""
    spans = [(i, i + 1) for i, c in enumerate(text) if not c.isspace()]
    tokens = [text[i] for i, _ in spans]
    found = words_of(text, tokens, spans)
    assert "".join(word.text for word in found) == "".join(tokens)
    assert not any(c.isspace() for word in found for c in word.text)
    for word in found:
        marks = [c for c in word.text if unicodedata.category(c)[0] == "P" and c not in "'’-‐‑"]
        assert not marks or len(word.text) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_take_linear_time(kind: str, tokenizers: dict[str, Any]) -> None:
    tokenizer = tokenizers[kind]
    spent = []
    for count in (15, 120):
        text = " ".join(tiny.TEXTS[:6] * count)
        begin = time.process_time()
        ids, found = tokenize(tokenizer, text)
        assert text_of(tokenizer, ids).tokens == found.tokens
        spent.append(time.process_time() - begin)
    assert len(found.tokens) > 10_000
    assert spent[1] < 3.0
    assert spent[1] < 30 * spent[0] + 0.3  # 8 if it is linear, 64 if it is quadratic


@pytest.mark.parametrize(
    ("architecture", "limit"),
    [
        ("bert", 256),
        ("gpt2", 256),
        ("opt", 256),
        ("bart", 256),
        ("m2m_100", 256),
        ("marian", 256),
        ("llama", 512),
        ("t5", None),
    ],
)
def test_positions_of_a_model(architecture: str, limit: int | None) -> None:
    model, _ = tiny.make(architecture)
    assert positions(model) == limit
    if limit is None:
        check_length(model, 1_000_000)
        return
    check_length(model, limit)
    with pytest.raises(DataError, match=rf"{limit + 1}\b.*\b{limit}\b"):
        check_length(model, limit + 1)


def test_the_positions_of_roberta_begin_after_the_padding() -> None:
    import torch

    model, _ = tiny.make("roberta", pad_token_id=1, max_position_embeddings=18)
    assert positions(model) == 16
    with torch.no_grad():
        model(torch.full((1, 16), 5))
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, 17), 5))
