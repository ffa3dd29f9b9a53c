"""SentencePiece's subwords: spans index the string that was given, whatever its normalisation makes of it."""

from __future__ import annotations

import base64
import builtins
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import ANYTHING, CORPUS

from heedful.config import TextConfig
from heedful.errors import ConfigError, ModelError, install_command
from heedful.text import END, PAD, SPECIALS, START, UNKNOWN, Codec
from heedful.text.segments import segments
from heedful.text.sentencepiece import SentencePieces

pytest.importorskip("sentencepiece")
quick = settings(max_examples=60, deadline=None)
ODD = ["½ of it…", "x² ﬁne ™", "Ａ ① ㍿", "क्\u200cष a", "été c’est"]
TEXTS = [*CORPUS, *(f"{a}{b} {b}{a} fine office" for a in "abcdef" for b in "ghijkl")]


def trained(*texts: str, size: int = 200) -> SentencePieces:
    codec = Codec.train(texts, TextConfig(kind="sentencepiece", size=size))
    assert isinstance(codec, SentencePieces)
    return codec


CODEC = trained(*TEXTS)
PIECES = SentencePieces(CODEC.model, [*CODEC.tokens, ">>fra<<", ">>hi_Deva<<"])


def cut(codec: Codec, text: str) -> list[tuple[str, str]]:
    """The tokens of a text, each with the characters it stands for."""
    encoded = codec.encode(text)
    return [(codec.token(i), text[a:b]) for i, (a, b) in zip(encoded.ids, encoded.spans, strict=True)]


def test_spans_by_hand():
    codec = trained("fine fine office office a a")
    letters = SentencePieces(codec.model, (*SPECIALS, "▁", *"fineoca"))
    assert cut(codec, "  fine   a ") == [("▁fine", "fine"), ("▁a", "a"), ("</s>", "")]
    assert codec.encode("  fine   a ").spans == ((2, 6), (9, 10), (11, 11))
    # One character that is read as two: in one token, or in two that share it.
    assert cut(codec, "a ﬁne") == [("▁a", "a"), ("▁fine", "ﬁne"), ("</s>", "")]
    assert [t for t, _ in cut(letters, "fine")] == ["<unk>", "</s>"]  # the pieces are the model's; only some are known


def test_two_tokens_of_one_character():
    codec = trained("f i f i n e", "f i n e n", "e i f")
    assert cut(codec, "ﬁ") == [("▁f", "ﬁ"), ("i", "ﬁ"), ("</s>", "")]
    assert codec.encode("n  ﬁ").spans == ((0, 1), (3, 4), (3, 4), (4, 4))


def test_text_is_normalised_or_left_as_it_is(capfd):
    how = TextConfig(kind="sentencepiece", size=300, normalization="none")
    plain = Codec.train([*TEXTS, *ODD], how)
    assert plain.dump() == Codec.train([*TEXTS, *ODD], how).dump(), "always the same from the same texts"
    nfkc = trained(*TEXTS, *ODD, size=300)
    assert nfkc.decode(nfkc.encode(ODD[0]).ids) == "1⁄2 of it..."
    for codec in (plain, Codec.parse(plain.dump())):
        for text in ODD:
            assert codec.decode(codec.encode(text).ids) == text
            assert codec.decode(codec.ids([text])[0]) == text
    # Other spaces separate words, as they do by NFKC, and spans index the text.
    assert [part for _, part in cut(plain, "½\u00a0…") if part] == ["½", "…"]
    assert plain.ids(["½\u00a0of\t…"]) == plain.ids(["½ of …"]) != plain.ids(["½of…"])
    assert Codec.train([], how).decode([UNKNOWN]) == "<unk>"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char"])
def test_only_sentencepiece_can_leave_text_as_it_is(kind):
    with pytest.raises(ConfigError, match=f"text.normalization=none is for text.kind=sentencepiece; text.kind={kind}"):
        Codec.train(TEXTS, TextConfig(kind=kind, size=300, normalization="none"))


@given(text=ANYTHING)
@example(text="e\u0301 x")
@example(text="…!")
@example(text="a ㍿x")
@example(text="\u200b a\u200bb")
@example(text=" \u00a8´")
@example(text=">>fra<<  ﬁ")
@example(text="a \ud800 b")
@example(text="\x85\ufeff\x85")
@settings(max_examples=200, deadline=None)
def test_spans_index_the_given_string(text):
    encoded = PIECES.encode(text)
    assert len(encoded.ids) == len(encoded.spans)
    assert encoded.ids[-1] == END
    assert encoded.spans[-1] == (len(text), len(text))
    for start, end in encoded.spans:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip(" \t\u3000▁")
    starts, ends = zip(*encoded.spans, strict=True)
    assert list(starts) == sorted(starts)
    assert list(ends) == sorted(ends)
    assert PIECES.ids([text]) == [encoded.ids]
    assert not {PAD, START, END} & set(encoded.ids[:-1])
    PIECES.trace(text, encoded)


@given(
    st.lists(st.sampled_from(["I", "am", "eating.", "café", "हूँ।", "मैं", "fine", "gh", "東京へ"]), min_size=1, max_size=8)
)
@quick
def test_what_is_known_is_covered_and_comes_back(words):
    text = " ".join(words)
    encoded = CODEC.encode(text)
    assert UNKNOWN not in encoded.ids
    covered = {i for start, end in encoded.spans for i in range(start, end)}
    assert covered == {i for i, c in enumerate(text) if c != " "}
    assert CODEC.decode(encoded.ids) == text
    assert CODEC.read(encoded.ids).words == CODEC.trace(text, encoded).words


def test_unknown_characters_keep_their_place():
    assert [piece for token, piece in cut(CODEC, "I  ξζ am") if token == "<unk>"] == ["ξζ"]
    assert CODEC.decode(CODEC.encode("I ξ am").ids) == "I <unk> am"
    assert [w.text for w in CODEC.trace("I ξ am", CODEC.encode("I ξ am")).words] == ["I", "ξ", "am", "</s>"]


@pytest.mark.parametrize("text", ["", " ", "\u3000\t \u00a0", "▁"])
def test_blank_text_is_its_end(text):
    assert CODEC.encode(text).ids == (END,)
    assert CODEC.encode(text).spans == ((len(text), len(text)),)


def test_languages():
    assert cut(PIECES, ">>fra<<I")[0] == (">>fra<<", ">>fra<<")
    assert cut(PIECES, ">>fra<< I am")[1:3] == cut(PIECES, "I am")[:2]
    assert cut(PIECES, ">>xyz<< I")[0] == ("<unk>", ">>xyz<<")
    assert cut(PIECES, "I >>fra<<")[0][0] != ">>fra<<"
    assert ">>fra<<" not in [t for t, _ in cut(PIECES, " >>fra<< I")]
    # Without languages in its vocabulary, such a text is text.
    assert "I" in [token for token, _ in cut(CODEC, ">>I<< am")]


def test_the_language_is_that_of_every_sentence():
    text = ">>fra<< I am eating. Don't you, café?"
    first, second = segments([text], PIECES, 100)
    code = PIECES.tokens.index(">>fra<<")
    assert first.encoded.ids[0] == second.encoded.ids[0] == code
    assert (first.encoded.ids.count(code), second.encoded.ids.count(code)) == (1, 1)
    assert second.text == "Don't you, café?"
    assert second.encoded.ids[1:] == PIECES.encode(second.text).ids
    assert PIECES.trace(second.text, second.encoded).words[0].text == "Don't"
    assert [s.encoded.ids[0] for s in segments([text], PIECES, 6)] == [code] * len(segments([text], PIECES, 6))
    assert all(len(s.encoded.ids) <= 6 for s in segments([text], PIECES, 6))
    assert all(code not in s.encoded.ids for s in segments(["I am eating. Don't you?"], PIECES, 100))


def test_typed_specials_are_text():
    texts = ["<s> </s> <unk> <pad>", "</s>", "a</s>b"]
    for codec in (CODEC, trained(*texts)):
        for text in texts:
            assert not {PAD, START, END} & set(codec.encode(text).ids[:-1])


def test_dump_and_parse():
    again = Codec.parse(PIECES.dump())
    assert isinstance(again, SentencePieces)
    assert (again.model, again.tokens, len(again)) == (PIECES.model, PIECES.tokens, len(PIECES))
    assert again.encode_all(TEXTS) == PIECES.encode_all(TEXTS)
    assert again.dump() == PIECES.dump()
    assert set(json.loads(PIECES.dump())) == {"sentencepiece", "tokens"}


def changed(**changes: object) -> str:
    return json.dumps({**json.loads(CODEC.dump()), **changes})


@pytest.mark.parametrize(
    ("dump", "says"),
    [
        (CODEC.dump()[:-40], "tokenizer"),
        (changed(sentencepiece="!"), "tokenizer"),
        (changed(sentencepiece=3), "tokenizer"),
        (changed(sentencepiece=""), "SentencePiece.*empty"),
        (changed(sentencepiece=base64.b64encode(b"nothing").decode()), "SentencePiece"),
        (changed(sentencepiece=base64.b64encode(CODEC.model[:-9]).decode()), "SentencePiece"),
        (changed(tokens=3), "tokens"),
        (changed(tokens=[*SPECIALS, 3]), "tokens"),
        (changed(tokens=["<pad>"]), "<pad>, <unk>, <s>, </s>"),
        (changed(tokens=[*SPECIALS, "a", "a"]), "'a'"),
        (changed(tokens=[*SPECIALS, "<s>"]), "'<s>'"),
        (changed(tokens=[*SPECIALS, "\ud800"]), "token"),
        ('{"sentencepiece": ' + "[" * 100_000, "tokenizer"),
    ],
)
def test_what_is_not_a_tokenizer(dump, says):
    with pytest.raises(ModelError, match=says):
        Codec.parse(dump)


@pytest.mark.parametrize("size", [5, 6, 7, 10, 30, 60, 100])
def test_the_vocabulary_keeps_to_its_size(size):
    codec = trained(*TEXTS, size=size)
    assert 4 <= len(codec) <= size
    assert codec.tokens[:4] == SPECIALS
    assert max(i for text in TEXTS for i in codec.encode(text).ids) < size


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["  "],
        ["a"],
        ["a", ""],
        ["\u2585"],
        ["\x00"],
        ["\ud800"],
        ["<s>"],
        ["x" * 5000],
        ["a b"] * 3,
        ["ｱ" * 9],
    ],
)
@pytest.mark.parametrize("size", [5, 50, 1_000_000])
def test_tiny_corpora(texts, size):
    codec = trained(*texts, size=size)
    assert len(codec) <= max(size, 5)
    encoded = codec.encode("a b")
    assert encoded.ids[-1] == END


def test_the_characters_come_first():
    codec = trained(*TEXTS, size=400)
    assert all(UNKNOWN not in codec.encode(text).ids for text in TEXTS if "😀" not in text)


def test_training_is_deterministic_and_silent(capfd):
    dumps = {trained(*TEXTS, size=60).dump() for _ in range(3)}
    assert len(dumps) == 1
    assert capfd.readouterr() == ("", "")


def test_without_the_package(monkeypatch):
    plain = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "sentencepiece":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for action in (lambda: trained("a b"), lambda: Codec.parse(CODEC.dump())):
        with pytest.raises(ModelError, match=re.escape(install_command("opus"))):
            action()


@given(st.data())
@quick
def test_reading_any_ids(data):
    ids = data.draw(st.lists(st.integers(4, len(CODEC) - 1) | st.just(UNKNOWN), max_size=12))
    read = CODEC.read(ids)
    assert read.text == CODEC.decode(ids)
    assert len(read.spans) == len(ids) + 1
    for token, (start, end) in zip(read.tokens[:-1], read.spans, strict=False):
        assert read.text[start:end] == token.replace("▁", " ").strip(" ")


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_models(data):
    """A damaged model is refused, or it cuts text in some other way; it never does anything else."""
    at, noise = data.draw(st.integers(0, len(CODEC.model) - 1)), data.draw(st.binary(min_size=1, max_size=20))
    try:
        codec = SentencePieces(CODEC.model[:at] + noise + CODEC.model[at + len(noise) :], CODEC.tokens)
        codec.encode("I am fine ﬁ")
    except ModelError:
        return
