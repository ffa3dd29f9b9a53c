"""Records: weights between words worked by hand, and nothing lost on the way through JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from heedful.errors import ConfigError, DataError
from heedful.metrics import LengthRow, LengthTable
from heedful.trace import Text, Trace, Word
from heedful.trace.readout import RAW, Readout


def text_of(*pieces: int) -> Text:
    """A text whose words have so many tokens of one letter each, and the end."""
    text = " ".join("abcdefgh"[:n] for n in pieces)
    tokens, spans, words, at = [], [], [], 0
    for n in pieces:
        words.append(Word(text[at : at + n], at, at + n, len(tokens), len(tokens) + n))
        for i in range(n):
            tokens.append(("▁" if i == 0 else "") + text[at + i])
            spans.append((at + i, at + i + 1))
        at += n + 1
    words.append(Word("</s>", len(text), len(text), len(tokens), len(tokens) + 1))
    return Text(text, (*tokens, "</s>"), (*spans, (len(text), len(text))), tuple(words))


def test_words_by_hand():
    # Source: a word of two tokens, then the end. Target: a word of one, a word of two, the end.
    weights = np.array([[[[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]]]], dtype=np.float32)
    trace = Trace(text_of(2), text_of(1, 2), weights, np.zeros(4, dtype=np.float32))
    # Over the source's tokens the sum; over the target's the mean: (1.0 + 0.4) / 2.
    np.testing.assert_allclose(trace.words(), [[0.75, 0.25], [0.7, 0.3], [0.0, 1.0]], atol=1e-6)
    assert trace.words().dtype == np.float32


def test_layers_and_heads_are_averaged():
    # Two layers of two heads, one token and the end on both sides; the first row is asked for.
    first = np.array([[1.0, 0.5], [0.25, 0.25]])
    weights = np.zeros((2, 2, 2, 2), dtype=np.float32)
    weights[:, :, 0, 0], weights[:, :, 0, 1], weights[:, :, 1, 1] = first, 1 - first, 1
    trace = Trace(text_of(1), text_of(1), weights, np.zeros(2, dtype=np.float32))
    np.testing.assert_allclose(trace.words(), [[0.5, 0.5], [0, 1]])


@given(
    st.lists(st.integers(1, 4), max_size=4),
    st.lists(st.integers(1, 4), max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_rows_sum_to_one(source, target, layers, heads, seed):
    x, y = text_of(*source), text_of(*target)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(x.tokens)), size=(layers, heads, len(y.tokens)))
    words = Trace(x, y, weights.astype(np.float32), np.zeros(len(y.tokens), dtype=np.float32)).words()
    assert words.shape == (len(target) + 1, len(source) + 1)
    np.testing.assert_allclose(words.sum(1), 1, atol=1e-5)
    assert words.min() >= 0


def test_a_model_without_attention_has_no_words():
    assert Trace(text_of(1), text_of(1), None, np.zeros(2, dtype=np.float32)).words() is None


def test_confidences_by_hand():
    log_probs = np.log(np.array([0.5, 0.9, 0.4, 1.0], dtype=np.float32))
    trace = Trace(text_of(1), text_of(1, 2), None, log_probs)
    found = trace.confidences()
    # The second word: the mean of logarithms is the geometric mean of 0.9 and 0.4, which is 0.6.
    assert found == pytest.approx((0.5, 0.6, 1.0), abs=1e-6)
    assert all(type(c) is float for c in found)


FLOATS = st.floats(0, 1, width=32)


@st.composite
def traces(draw):
    x = text_of(*draw(st.lists(st.integers(1, 3), max_size=3)))
    y = text_of(*draw(st.lists(st.integers(1, 3), max_size=3)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 2)), len(y.tokens), len(x.tokens))
    weights = draw(st.none() | hnp.arrays(np.float32, shape, elements=FLOATS))
    if weights is not None:  # every row sums to 1, or to 0
        weights /= np.maximum(weights.sum(-1, keepdims=True), np.float32(1e-30))
    return Trace(x, y, weights, draw(hnp.arrays(np.float32, len(y.tokens), elements=st.floats(-50, 0, width=32))))


@given(traces())
def test_json_round_trip(trace):
    back = Trace.build(json.loads(json.dumps(trace.plain(), allow_nan=False)))
    assert (back.source, back.target) == (trace.source, trace.target)
    assert all(type(w) is Word for w in back.source.words)
    assert (back.weights is None) == (trace.weights is None)
    if trace.weights is not None:
        assert back.weights.dtype == np.float32
        np.testing.assert_array_equal(back.weights, trace.weights)  # every bit
    assert back.log_probs.dtype == np.float32
    np.testing.assert_array_equal(back.log_probs, trace.log_probs)
    assert back.confidences() == trace.confidences()


@given(st.text(), st.text())
def test_any_string_survives_json(text, token):
    whole = Text(text, (token, "</s>"), ((0, len(text)), (len(text), len(text))), (Word(token, 0, len(text), 0, 1),))
    assert Text.build(json.loads(json.dumps(whole.plain()))) == whole


PLAIN = Trace(text_of(2), text_of(1), np.zeros((1, 1, 2, 3), dtype=np.float32), np.zeros(2, dtype=np.float32)).plain()


@pytest.mark.parametrize(
    "name", sorted(set(PLAIN) - {"read", "readout", "inside", "layers", "heads", "after", "norms"})
)
def test_a_missing_part_is_named(name):
    with pytest.raises(DataError, match=f"trace.*'{name}'"):
        Trace.build({k: v for k, v in PLAIN.items() if k != name})


@pytest.mark.parametrize(
    "changed",
    [
        None,
        [],
        "trace",
        PLAIN | {"weights": "heavy"},
        PLAIN | {"weights": [[1.0], [1.0, 2.0]]},
        PLAIN | {"weights": {"a": 1}},
        PLAIN | {"log_probs": ["x"]},
        PLAIN | {"source": None},
        PLAIN | {"source": []},
        PLAIN | {"source": PLAIN["source"] | {"tokens": 3}},
        PLAIN | {"source": PLAIN["source"] | {"spans": [[0]]}},
        PLAIN | {"source": PLAIN["source"] | {"spans": [[0, math.inf]]}},  # Python's JSON reads Infinity
        PLAIN | {"source": PLAIN["source"] | {"words": [["a", 0, 1, 0, 1]]}},
        PLAIN | {"source": PLAIN["source"] | {"words": [{"text": "a"}]}},
    ],
)
def test_what_is_not_a_trace_is_refused(changed):
    with pytest.raises(DataError, match="trace"):
        Trace.build(changed)


def source(**change):
    """The trace with another source."""
    return PLAIN | {"source": PLAIN["source"] | change}


def first_word(**change):
    words = PLAIN["source"]["words"]
    return source(words=[words[0] | change, *words[1:]])


def rows(*first):
    """The trace with another first row of weights."""
    return PLAIN | {"weights": [[[list(first), [0, 0, 1]]]]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (rows(0, 0, 7), "weights: layer 1, head 1, row 1 sums to 7; a row of weights sums to 1, or to 0"),
        (rows(1, 1, 1), "weights: layer 1, head 1, row 1 sums to 3"),
        (rows(0.1, 0.2, 0.1), "row 1 sums to 0.4"),
        (rows(1.5, -0.5, 0), "weights: -0.5 .*layer 1, head 1, row 1"),
        (rows("x", 0, 1), "weights: 'x'"),
        (rows("1", 0, 0), "weights: '1'"),
        (rows(0, 1), "weights: layer 1, head 1, row 1 .* 2 .* 3 source tokens"),
        (
            PLAIN | {"weights": [[[[0, 0, 1], [0, 0, 1]], [[0, 0, 1]]]]},
            "weights: layer 1, head 2 .* 1 row.* 2 target tokens",
        ),
        (
            PLAIN | {"weights": [[[[0, 0, 1]] * 2] * 2, [[[0, 0, 1]] * 2]]},
            "weights: layer 2 .* 1 head.*layer 1 .* 2",
        ),
        (rows([0, 0], 0, 1), "weights: .*rows"),
        (rows(0, 10**400, 1), "weights: 1000"),
        (PLAIN | {"read": [[0, 1, 0], [1]]}, "read: row 2 .* 1 .* 3 source tokens"),
        (rows(None, 0, 1), "weights: .*number"),
        (PLAIN | {"log_probs": [math.nan, 0]}, "log_probs: nan .* 1 "),
        (rows(0, math.nan, 1), "weights: nan .*layer 1, head 1, row 1, column 2"),
        (rows(0, 1e39, 1), "weights: inf .*layer 1, head 1, row 1, column 2"),
        (
            PLAIN | {"weights": [[[[0, 0, 1]]]]},
            "weights: .*1 target and 3 source tokens.* 2 target",
        ),
        (PLAIN | {"weights": [[0, 0, 1], [0, 0, 1]]}, "weights: .* 4 levels.*2 × 3"),
        (PLAIN | {"read": [[0, 1], [0, 1]]}, "read: .*2 target and 2 source tokens"),
        (PLAIN | {"log_probs": [0]}, "log_probs: .*2 target tokens.* 1"),
        (PLAIN | {"log_probs": 0}, "log_probs: .*2 target tokens.* one number"),
        (PLAIN | {"inside": "yes"}, "inside: 'yes'.*true.*false"),
        (
            PLAIN | {"inside": True},
            "inside: .*source and target",
        ),
        (PLAIN | {"layers": [1, 2]}, r"layers: .* 1, .*\[1, 2\]"),
        (PLAIN | {"heads": [0]}, r"heads: \[0\] .* 1 "),
        (PLAIN | {"readout": {"layer": 2}}, "layer 2.*1 to 1"),
        (PLAIN | {"read": [[1, 1, 0], [0, 0, 1]]}, "read: row 1 sums to 2.* 1 "),
        (source(spans=[[0, 1], [1, 9], [2, 2]]), "source: token 2 .*1 to 9 .* 2"),
        (source(spans=[[0, 1], [1, 2]]), "source: 3 tokens.* 2 spans"),
        (source(words=[]), "source: .*words"),
        (source(tokens=[], spans=[]), "source: .*tokens"),
        (source(tokens="abc"), "source: tokens: .*list.*'abc'"),
        (source(spans=[[0, 1, 2]]), r"source: spans: .* 2, .*\[0, 1, 2\]"),
        (first_word(last=9), "source: word 1, 'ab'.*0 to 9 of 3"),
        (first_word(first=2, last=1), "source: word 1, 'ab'.*2 to 1 of 3"),
        (first_word(last=3), "source: word 2, '</s>'.*token 2"),
        (first_word(last=10**4000), f"0 to 1{'0' * 19} of 3"),
        (source(spans=[[0, 1], [1, 10**4000], [2, 2]]), f"1 to 1{'0' * 19} "),
        (first_word(start=-1), "source: word 1 .*-1 to 2 .* 2"),
        (first_word(end="x"), "source: words: 'x'.*whole"),
        (source(words=[{"text": "a"}]), "source: words: .*'start'"),
        (PLAIN | {"readout": {"threshold": "x"}}, "read-out: .*threshold: 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_words(changed, words):
    with pytest.raises(DataError, match=f"trace.*{words}"):
        Trace.build(changed)


@pytest.mark.parametrize("first", [(0, 0, 0), (0, 1, 0), (0.3333, 0.3333, 0.3333)])
def test_rows_of_nothing_and_rounded_ones_are_taken(first):
    assert Trace.build(rows(*first)).weights[0, 0, 0].tolist() == pytest.approx(first)


def test_what_was_read_by_norms_may_sum_to_less():
    plain = PLAIN | {"readout": Readout(norms=True).plain(), "read": [[0.2, 0.2, 0.1], [0, 0, 1]]}
    assert Trace.build(plain).read.sum() == pytest.approx(1.5)


def test_length_labels():
    assert LengthRow(6, 10, 3, 1.0, 2.0, 3.0).label == "6–10"
    assert LengthRow(41, None, 3, 1.0, 2.0, 3.0).label == "41+"


def test_length_table_plain():
    row, total = LengthRow(1, 5, 2, 10.0, 20.0, 30.0), LengthRow(1, None, 2, 11.0, 21.0, 31.0)
    assert json.loads(json.dumps(LengthTable((row,), total, "b", "c").plain())) == {
        "pairs": 2,
        "bleu": 11.0,
        "chrf": 21.0,
        "exact": 31.0,
        "bleu_signature": "b",
        "chrf_signature": "c",
        "by_length": [{"low": 1, "high": 5, "pairs": 2, "bleu": 10.0, "chrf": 20.0, "exact": 30.0}],
    }


def test_tokens_are_as_the_readout_has_them():
    weights = np.arange(16, dtype=np.float32).reshape(2, 2, 2, 2)
    trace = Trace(text_of(1), text_of(1), weights, np.zeros(2, dtype=np.float32))
    np.testing.assert_array_equal(trace.tokens(), weights.mean((0, 1)))
    np.testing.assert_array_equal(replace(trace, readout=Readout(2, (1,))).tokens(), weights[1, 0])
    # What was read from other steps, or by norms, is there already.
    read = np.array([[0.25, 0.75], [1, 0]], dtype=np.float32)
    np.testing.assert_array_equal(replace(trace, readout=Readout(1, step="next"), read=read).words(), read)
    # One layer, or head, of such a trace is what it is, not what was read.
    np.testing.assert_array_equal(replace(trace, read=read).only(2, 2).tokens(), weights[1, 1])
    np.testing.assert_array_equal(
        replace(trace, readout=Readout(2, (2,)), read=read).only(head=1).tokens(), [[4, 5], [6, 7]]
    )


def spaced(text: str, spans: list[tuple[int, int]], ends: set[int]) -> list[tuple[str, int, int]]:
    tokens = tuple("</s>" if i in ends else text[a:b] for i, (a, b) in enumerate(spans))
    return [(w.text, w.first, w.last) for w in Text(text, tokens, tuple(spans), ()).spaced().words]


@pytest.mark.parametrize(
    ("text", "spans", "ends", "wanted"),
    [
        ("ab c", [(0, 1), (1, 2), (3, 4), (4, 4)], {3}, [("ab", 0, 2), ("c", 2, 3), ("</s>", 3, 4)]),
        ("", [(0, 0)], {0}, [("</s>", 0, 1)]),
        # A word that no token stands for has none.
        ("a ☃ b", [(0, 1), (4, 5), (5, 5)], {2}, [("a", 0, 1), ("☃", 1, 1), ("b", 1, 2), ("</s>", 2, 3)]),
        ("a ☃", [(0, 1), (3, 3)], {1}, [("a", 0, 1), ("☃", 1, 1), ("</s>", 1, 2)]),
        # In scripts without spaces, what white space separates is long.
        ("我看 你", [(0, 1), (1, 2), (3, 4), (4, 4)], {3}, [("我看", 0, 2), ("你", 2, 3), ("</s>", 3, 4)]),
        # Two sentences: each keeps its end.
        ("a. b", [(0, 2), (2, 2), (3, 4), (4, 4)], {1, 3}, [("a.", 0, 1), ("</s>", 1, 2), ("b", 2, 3), ("</s>", 3, 4)]),
        # Side by side, they share a word.
        ("看。去", [(0, 2), (2, 2), (2, 3), (3, 3)], {1, 3}, [("看。去", 0, 3), ("</s>", 3, 4)]),
        # A token of a space alone.
        ("a b", [(0, 1), (2, 2), (2, 3), (3, 3)], {3}, [("a", 0, 1), ("b", 1, 3), ("</s>", 3, 4)]),
    ],
)
def test_words_as_white_space_has_them(text, spans, ends, wanted):
    assert spaced(text, spans, ends) == wanted


def test_what_is_punctuation_and_what_is_the_end():
    assert [Word(text, 0, len(text), 0, 1).is_mark for text in ("।", "--", "؟", "a.", "</s>", "$", "")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert Word("</s>", 4, 4, 0, 1).is_end
    assert not Word("</s>", 0, 4, 0, 1).is_end
    assert not Word("</s>", 4, 4, 0, 1).is_mark


def test_a_text_that_says_how_a_sentence_ends_ends_where_it_ends():
    text = Text("</s> a", ("</s>", "a", "</s>"), ((0, 4), (5, 6), (6, 6)), ())
    assert text.ends == (False, False, True)
    assert [(w.text, w.is_end) for w in text.spaced().words] == [("</s>", False), ("a", False), ("</s>", True)]


@pytest.mark.parametrize(("layer", "head"), [(2, None), (None, 3), (2, 3), (1, 1)])
def test_a_cut_trace_is_read_back_as_it_was(layer, head):
    weights = np.random.default_rng(1).dirichlet(np.ones(3), (2, 3, 2)).astype(np.float32)
    trace = Trace(text_of(2), text_of(1), weights, np.zeros(2, dtype=np.float32)).only(layer, head)
    again = Trace.build(json.loads(json.dumps(trace.plain())))
    assert again.readout == trace.readout
    assert again.numbers() == trace.numbers()
    np.testing.assert_array_equal(again.words(), trace.words())
    # A record from before they were written down: what was cut to one layer or head says so by its read-out.
    old = Trace.build({k: v for k, v in trace.plain().items() if k not in ("layers", "heads", "inside")})
    assert old.numbers() == trace.numbers()
    np.testing.assert_array_equal(old.words(), trace.words())


def test_layers_and_heads_keep_their_numbers():
    weights = np.random.default_rng(1).dirichlet(np.ones(3), (3, 4, 2)).astype(np.float32)
    trace = Trace(text_of(2), text_of(1), weights, np.zeros(2, dtype=np.float32))
    assert trace.numbers() == ((1, 2, 3), (1, 2, 3, 4))
    layer = trace.only(2)
    assert (layer.numbers(), layer.readout) == (((2,), (1, 2, 3, 4)), Readout(2))
    # What was cut once is cut again by the numbers that the model has.
    both = layer.only(head=3)
    assert (both.numbers(), both.readout) == (((2,), (3,)), Readout(2, (3,)))
    np.testing.assert_array_equal(both.weights, weights[1:2, 2:3])
    np.testing.assert_array_equal(both.only(2, 3).tokens(), weights[1, 2])
    np.testing.assert_array_equal(replace(layer, readout=Readout(None, (2, 4))).tokens(), weights[1, [1, 3]].mean(0))
    assert Trace.join("ab", "a", [(0, 0)], [both]).numbers() == ((2,), (3,))
    with pytest.raises(ConfigError, match="layer 1.* 2"):
        both.only(1)
    with pytest.raises(ConfigError, match="head 5.*1 to 4"):
        layer.only(head=5)


def test_what_looks_inside_says_so():
    text, nothing = text_of(1, 2), np.zeros(4, dtype=np.float32)
    weights = np.full((1, 1, 4, 4), 0.25, dtype=np.float32)
    # A translation may be what its source is, and the model may be sure of it: that is no self-attention.
    assert not Trace.build(Trace(text, text, weights, nothing).plain()).inside
    inside = Trace(text, text, weights, nothing, inside=True)
    assert Trace.build(inside.plain()).inside
    assert inside.only(1, 1).inside
    assert Trace.join("a ab", "a ab", [(0, 0)], [inside]).inside


def test_a_read_out_that_takes_more_than_the_weights_needs_what_was_read():
    plain = {**PLAIN, "readout": Readout(step="next").plain()}
    with pytest.raises(DataError, match="'read'"):
        Trace.build(plain)
    assert Trace.build({**plain, "read": np.zeros((2, 3)).tolist()}).readout.step == "next"


def test_a_word_without_tokens_has_full_confidence_and_no_warning():
    text = Text("a b", ("a", "</s>"), ((0, 1), (3, 3)), (Word("a", 0, 1, 0, 1), Word("</s>", 3, 3, 1, 2)))
    trace = Trace(text, text.spaced(), None, np.log(np.array([0.5, 0.25], dtype=np.float32)))
    assert trace.confidences() == pytest.approx((0.5, 1.0, 0.25))


def seen(readout: Readout, seed: int = 1, words: tuple[int, int] = (2, 2)) -> Trace:
    """Two layers of three heads, with all that reading them at the next step and by norms takes."""
    chance, (x, y) = np.random.default_rng(seed), map(text_of, words)
    T, S = len(y.tokens), len(x.tokens)
    rows = chance.dirichlet(np.ones(S), (2, 3, T + 1)).astype(np.float32)
    norms = chance.uniform(0.5, 2, (2, 3, S)).astype(np.float32)
    weights, after = rows[:, :, :-1], rows[:, :, -1]
    read = readout.mix(weights, after, norms) if readout.reading else None
    return Trace(x, y, weights, np.zeros(T, dtype=np.float32), readout, read, after=after, norms=norms)


READ = [Readout(1, (2,), "next"), Readout(1, (2,), norms=True), Readout(1, (2,), "next", norms=True, end="drop")]


@pytest.mark.parametrize("readout", [*READ, Readout(1, (2,))], ids=str)
def test_every_head_is_read_as_the_readout_reads(readout):
    trace = seen(readout)
    assert (trace.raw, trace.reading) == (False, readout.reading)
    for layer, heads in ((1, (2,)), (2, (3,)), (2, ()), (None, (1,))):
        other = replace(readout, layer=layer, heads=heads)
        cut = trace.only(layer, heads[0] if heads else None)
        wanted = other.mix(trace.weights, trace.after, trace.norms)
        np.testing.assert_allclose(cut.tokens(), wanted, atol=1e-6)
        assert cut.readout == other
        again = Trace.build(json.loads(json.dumps(cut.plain())))  # a record can be read as well, and cut again
        np.testing.assert_allclose(again.only(*(layer, heads[0] if heads else None)).tokens(), wanted, atol=1e-6)
        assert again.readout == other
    # The head of the read-out is the read-out.
    np.testing.assert_array_equal(trace.only(1, 2).words(), trace.words())
    for (layer, head), words in trace.maps().items():
        np.testing.assert_allclose(words, trace.only(layer, head).words(), atol=1e-6)


@pytest.mark.parametrize("readout", READ, ids=str)
def test_every_sentence_of_a_text_is_read_for_itself(readout):
    parts = [seen(readout, 1, (2, 1)), seen(readout, 2, (3, 2))]
    whole = Trace.join("ab abc", "a ab", [(0, 0), (3, 2)], parts)
    wanted = np.zeros((2, 3, 5, 7))
    wanted[:, :, :2, :3], wanted[:, :, 2:, 3:] = (part.each() for part in parts)
    np.testing.assert_allclose(whole.each(), wanted, atol=1e-6)
    np.testing.assert_allclose(whole.only(1, 2).words(), whole.words(), atol=1e-6)
    assert Trace.join("ab abc", "a ab", [(0, 0), (3, 2)], [parts[0], replace(parts[1], after=None, norms=None)]).raw


@pytest.mark.parametrize("readout", READ, ids=str)
def test_heads_that_cannot_be_read_so_say_that_they_are_raw(readout):
    plain = {k: v for k, v in seen(readout).plain().items() if k not in ("after", "norms")}  # an older record
    trace = Trace.build(plain)
    assert (trace.raw, trace.reading) == (True, RAW)
    np.testing.assert_array_equal(trace.each(), trace.weights)
    cut = Trace.build(trace.only(2).plain()).only(head=1)  # it is said of all that is cut from it
    np.testing.assert_array_equal(cut.tokens(), trace.weights[1, 0])
    assert str(cut.readout) == f"layer 2, head 1; {RAW}"
    # Of the read-out's own head there is what it read.
    np.testing.assert_array_equal(trace.only(1, 2).tokens(), trace.read)
    assert trace.only(1, 2).readout == readout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": [[[0.5, 0.5]]]}, "after: .*1 × 1 × 3 .*1 × 1 × 2"),
        ({"norms": [0.5]}, "norms: .*1 × 1 × 3 .* 1$"),
        ({"norms": [[[1, -1, 1]]]}, "norms: -1"),
        ({"after": [[["a", 0, 0]]]}, "after: 'a'"),
    ],
)
def test_what_cannot_stand_beside_weights_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        Trace.build(PLAIN | change)
