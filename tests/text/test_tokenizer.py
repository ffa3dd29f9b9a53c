"""Codecs: spans index the string that was given, nothing is lost, and nothing typed becomes a special token."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import ANYTHING, CODECS, CORPUS, FRAGMENTS, KINDS, folded, space

from heedful.config import TextConfig
from heedful.errors import HeedfulError, ModelError
from heedful.text import END, PAD, SPECIALS, START, UNKNOWN, Codec, pad

CURATED = st.lists(FRAGMENTS, max_size=10).map("".join)
quick = settings(max_examples=60, deadline=None)


def trained(kind: str, *texts: str, size: int = 4000) -> Codec:
    return Codec.train(texts, TextConfig(kind=kind, size=size))


def tokens(codec: Codec, text: str) -> list[str]:
    return [codec.token(i) for i in codec.encode(text).ids]


def test_words_by_hand():
    assert tokens(CODECS["word"], "मैं खाना  खा रहा हूँ।") == ["▁मैं", "▁खाना", "▁खा", "▁रहा", "▁हूँ", "।", "</s>"]
    assert tokens(CODECS["word"], "Don't you, café?") == ["▁Don't", "▁you", ",", "▁café", "?", "</s>"]


def test_characters_by_hand():
    encoded = CODECS["char"].encode(" am\u00a0 I.")
    assert [CODECS["char"].token(i) for i in encoded.ids] == ["▁", "a", "m", "▁", "I", ".", "</s>"]
    assert encoded.spans == ((1, 1), (1, 2), (2, 3), (5, 5), (5, 6), (6, 7), (7, 7))


def test_pieces_by_hand():
    # "ab" is the only pair seen often; then "▁ab"; then there is no room.
    codec = trained("bpe", "ab ab ab ab cb", size=4 + 4 + 2)
    assert tokens(codec, "ab cb abb") == ["▁ab", "▁", "c", "b", "▁ab", "b", "</s>"]
    assert codec.encode("ab cb abb").spans == ((0, 2), (3, 3), (3, 4), (4, 5), (6, 8), (8, 9), (9, 9))


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANYTHING)
@example(text="e\u0301 x")
@example(text="I zz am")
@example(text="I \u0301x")
@quick
def test_spans_cover_the_given_string_in_order(kind, text):
    encoded = CODECS[kind].encode(text)
    assert len(encoded.ids) == len(encoded.spans)
    assert encoded.ids[-1] == END
    assert encoded.spans[-1] == (len(text), len(text))
    covered = set()
    for start, end in encoded.spans:
        assert 0 <= start <= end <= len(text)
        assert not any(map(space, text[start:end])), (start, end)
        covered |= set(range(start, end))
    assert {i for i, c in enumerate(text) if not space(c)} <= covered
    starts, ends = zip(*encoded.spans, strict=True)
    assert list(starts) == sorted(starts)
    assert list(ends) == sorted(ends)


@pytest.mark.parametrize("kind", KINDS)
@given(text=CURATED)
@example(text="cafe\u0301")
@example(text="\u095b")
@quick
def test_a_token_stands_in_its_span(kind, text):
    codec = trained(kind, text)
    encoded = codec.encode(text)
    for index, (start, end) in zip(encoded.ids[:-1], encoded.spans, strict=False):
        token = codec.token(index).removeprefix("▁")
        assert token in unicodedata.normalize("NFC", text[start:end])
        if kind != "char":  # a character may be one of those a letter came apart into
            assert (start == end) == (token == "")


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANYTHING)
@quick
def test_decoding_gives_the_sentence_back(kind, text):
    codec = trained(kind, text)
    encoded = codec.encode(text)
    assert UNKNOWN not in encoded.ids
    assert codec.decode(encoded.ids) == folded(text)


@pytest.mark.parametrize("kind", KINDS)
@given(ids=st.lists(st.integers(0, 40), max_size=12))
@example(ids=[])
@example(ids=[UNKNOWN, END, 7, UNKNOWN])
@example(ids=[5, 6, END])
@quick
def test_decoding_any_tokens_is_reading_them(kind, ids):
    codec = CODECS[kind]
    ids = [i % len(codec) for i in ids]
    assert codec.decode(ids) == codec.decode(tuple(ids)) == codec.read(ids).text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("separator", ["\x1c", "\x1d", "\x1e", "\x1f"])
def test_separators_that_only_python_calls_space(kind, separator):
    for text in (separator, f"a{separator}b", f"{separator}a", f"a {separator}"):
        spans = CODECS[kind].encode(text).spans
        assert list(spans) == sorted(spans), repr(text)
        assert all(start <= end for start, end in spans)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.sampled_from([*SPECIALS, " ", "a"]), min_size=1, max_size=8).map("".join))
@settings(max_examples=30, deadline=None)
def test_typed_specials_are_text(kind, text):
    codec = trained(kind, text, text)
    for codec_ in (codec, Codec.parse(codec.dump())):
        encoded = codec_.encode(text)
        assert not {PAD, UNKNOWN, START, END} & set(encoded.ids[:-1])
        assert codec_.decode(encoded.ids) == folded(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", SPECIALS)
def test_typed_specials_never_seen_before(kind, special):
    assert not {PAD, START, END} & set(CODECS[kind].encode(f"I {special}{special} am").ids[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_characters_keep_their_place(kind):
    codec = trained(kind, "a b ab")
    encoded = codec.encode("a  ξ b")
    unknown = [span for index, span in zip(encoded.ids, encoded.spans, strict=True) if index == UNKNOWN]
    assert unknown == [(3, 4)]
    assert codec.decode(encoded.ids) == "a <unk> b"
    assert [w.text for w in codec.trace("a  ξ b", encoded).words] == ["a", "ξ", "b", "</s>"]


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_an_unknown_character_inside_a_word(kind):
    codec = trained(kind, "ab ba")
    encoded = codec.encode("ba aξb")
    assert encoded.ids.count(UNKNOWN) == 1
    assert encoded.spans[encoded.ids.index(UNKNOWN)] == (4, 5)
    assert codec.decode(encoded.ids) == "ba a<unk>b"


def test_an_unknown_word_is_one_token():
    encoded = trained("word", "a b").encode("a ज़्यादा! b")
    assert encoded.ids.count(UNKNOWN) == 2
    assert encoded.spans == ((0, 1), (2, 9), (9, 10), (11, 12), (12, 12))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", " ", "\u3000\t \u00a0", "▁"])
def test_blank_text_is_its_end(kind, text):
    encoded = CODECS[kind].encode(text)
    assert encoded.ids == (END,)
    assert encoded.spans == ((len(text), len(text)),)
    assert CODECS[kind].decode(encoded.ids) == ""
    assert [w[:3] for w in CODECS[kind].trace(text, encoded).words] == [("</s>", len(text), len(text))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_string_that_is_not_unicode_is_unknown_or_refused_in_words(kind):
    # JSON may carry half of a surrogate pair; a service must not answer with a TypeError about its own arguments.
    try:
        encoded = CODECS[kind].encode("a \ud800 b")
    except HeedfulError:
        return
    assert UNKNOWN in encoded.ids


@pytest.mark.parametrize("kind", KINDS)
def test_dump_and_parse(kind):
    codec = CODECS[kind]
    again = Codec.parse(codec.dump())
    assert len(again) == len(codec)
    assert [again.token(i) for i in range(len(codec))] == [codec.token(i) for i in range(len(codec))]
    for text in [*CORPUS, "unseen ξ text", "", "  a</s>b"]:
        assert again.encode(text) == codec.encode(text)
    assert again.dump() == codec.dump()


@pytest.mark.parametrize("change", [lambda d: "", lambda d: "{}", lambda d: "null", lambda d: d[: len(d) // 2]])
def test_what_is_not_a_tokenizer(change):
    with pytest.raises(ModelError, match="tokenizer"):
        Codec.parse(change(CODECS["bpe"].dump()))


def test_a_tokenizer_with_other_specials():
    with pytest.raises(ModelError, match="<bad>.*<pad>, <unk>, <s>, </s>"):
        Codec.parse(CODECS["word"].dump().replace("<pad>", "<bad>"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5, 10, 30, 60, 100])
def test_the_vocabulary_keeps_to_its_size(kind, size):
    codec = trained(kind, *CORPUS, size=size)
    assert len(codec) <= size
    assert tuple(codec.token(i) for i in range(4)) == SPECIALS
    for text in CORPUS:
        assert max(codec.encode(text).ids) < size


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_holds_the_frequent(kind):
    codec = trained(kind, "a a a a b b b c c d", size=4 + 3)
    assert "<unk>" not in tokens(codec, "a")
    assert "<unk>" in tokens(codec, "d")


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(kind):
    # Many ties: only a rule decides which goes first.
    texts = [f"{a}{b} {b}{a}" for a in "abcdefghij" for b in "klmnopqrst"]
    dumps = {trained(kind, *texts, size=60).dump() for _ in range(5)}
    assert len(dumps) == 1


SYLLABLE = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["क", "ख", "र", "ज\u093c", "\u095c", "क्ष", "त्र\u200d"]),
    st.sampled_from(["", "्\u200dय", "्\u200cय"]),
    st.sampled_from(["", "ा", "ि", "ी", "ु", "े", "ै", "ो", "ौ", "ृ"]),
    st.sampled_from(["", "ं", "ँ", "ः"]),
)


@given(st.lists(st.lists(SYLLABLE, min_size=1, max_size=4).map("".join), min_size=1, max_size=5))
@quick
def test_devanagari_words_are_never_cut(words):
    text = " ".join(words)
    codec = trained("word", text)
    assert tokens(codec, text) == ["▁" + unicodedata.normalize("NFC", w) for w in words] + ["</s>"]
    assert len(CODECS["word"].encode(text).ids) == len(words) + 1  # nor when they are unknown
    assert [text[a:b] for a, b in CODECS["word"].encode(text).spans[:-1]] == words


def test_devanagari_punctuation_stands_apart():
    assert tokens(trained("word", "क्या? हाँ। १२ वाँ"), "क्या? हाँ।") == ["▁क्या", "?", "▁हाँ", "।", "</s>"]


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(ANYTHING, max_size=4))
@settings(max_examples=20, deadline=None)
def test_many_at_once_are_each_alone(kind, texts):
    assert CODECS[kind].encode_all(texts) == [CODECS[kind].encode(t) for t in texts]


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(ANYTHING, max_size=4))
@example([])
@example(["", "I am eating.", "\ud800", "ξ ज\u093c"])
@settings(max_examples=20, deadline=None)
def test_ids_alone_are_those_with_spans(kind, texts):
    assert CODECS[kind].ids(texts) == [e.ids for e in CODECS[kind].encode_all(texts)]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@quick
def test_reading_any_ids(kind, data):
    """Whatever a model writes, its spans index the text and its words are those of the text."""
    codec = CODECS[kind]
    ids = data.draw(st.lists(st.integers(UNKNOWN, len(codec) - 1).filter(lambda i: i not in (START, END)), max_size=12))
    read = codec.read(ids)
    assert read == codec.read([*ids, END])
    assert read.tokens == tuple(codec.token(i) for i in [*ids, END])
    assert read.text == codec.decode(ids) == re.sub(r"^ +| +$", "", read.text)
    assert len(read.spans) == len(ids) + 1
    assert list(read.spans) == sorted(read.spans)
    for token, (start, end) in zip(read.tokens[:-1], read.spans, strict=False):
        assert read.text[start:end] == token.replace("▁", " ").strip(" ")
    assert all(w.text == read.text[w.start : w.end] for w in read.words[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_can_be_read_again(kind):
    codec = CODECS[kind]
    for text in CORPUS:
        encoded = codec.encode(text)
        read, given_ = codec.read(encoded.ids), codec.trace(text, encoded)
        assert read == given_  # the corpus is NFC with single spaces, so nothing changes


def test_pad_by_hand():
    assert pad([[1, 2, 3], [4], [5, 6]]).tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]
    assert pad([[1]]).dtype == np.int64
