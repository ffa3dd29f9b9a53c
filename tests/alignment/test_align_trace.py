"""From a trace to links: what is done with `</s>`, with punctuation, with pieces, with texts of several sentences."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import links
from heedful.alignment.links import align_texts, align_trace, between_words
from heedful.errors import ConfigError
from heedful.text import merge
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout


def text_of(*words: str) -> Text:
    """A text of words, each of them one token, or more where a word is written with a bar."""
    tokens, spans, text = [], [], ""
    for word in words:
        text += " " if text else ""
        for piece in word.split("|"):
            tokens.append(piece)
            spans.append((len(text), len(text) + len(piece)))
            text += piece
    spans.append((len(text), len(text)))
    return Text(text, (*tokens, "</s>"), tuple(spans), merge(text, spans))


def trace_of(source: Text, target: Text, rows: list[list[float]], readout: Readout | None = None) -> Trace:
    weights = np.array(rows, dtype=np.float32)[None, None]
    return Trace(source, target, weights, np.zeros(len(rows), np.float32), readout or Readout())


# Source: two words, a full stop, the end. Target: two words, a full stop, the end.
SOURCE, TARGET = text_of("x", "y", "."), text_of("a", "b", ".")
ROWS = [[0.6, 0.3, 0.0, 0.1], [0.1, 0.2, 0.5, 0.2], [0.3, 0.1, 0.2, 0.4], [0.0, 0.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("readout", "links"),
    [
        (Readout(), "0-0 2-1"),  # the third row's best is </s>
        (Readout(end="drop"), "0-0 0-2 2-1"),
        (Readout(threshold=0.5), "0-0 1-0 2-1"),
        # Punctuation belongs to punctuation; but 0.2 is less than what </s> has of the third row.
        (Readout(marks="apart"), "0-0 1-1"),
        (Readout(marks="apart", end="drop"), "0-0 1-1 2-2"),
        (Readout(marks="apart", end="drop", threshold=0.5), "0-0 1-0 0-1 1-1 2-2"),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{given.end}-{given.marks}-{given.threshold}",
)
def test_by_hand(readout, links):
    wanted = sorted(tuple(map(int, link.split("-"))) for link in links.split())
    own = align_trace(trace_of(SOURCE, TARGET, ROWS, readout))
    assert [link[:2] for link in own.links] == wanted
    assert own.readout == readout
    # The same rule, given beside a trace that has another.
    assert align_trace(trace_of(SOURCE, TARGET, ROWS), readout) == own
    np.testing.assert_allclose(own.weights, np.array(ROWS)[:3, :3])
    assert all(link.weight == pytest.approx(ROWS[link.target][link.source]) for link in own.links)


def test_pieces_are_summed_over_the_source_and_averaged_over_the_target():
    trace = trace_of(
        text_of("u|v", "w"), text_of("a", "b|c"), [[0.3, 0.3, 0.4, 0], [0, 0, 1, 0], [0.5, 0.3, 0.1, 0.1], [0, 0, 0, 1]]
    )
    found = align_trace(trace)
    np.testing.assert_allclose(found.weights, [[0.6, 0.4], [0.4, 0.55]], atol=1e-6)
    assert str(found) == "0-0 1-1"
    assert [word.text for word in found.source] == ["uv", "w"]


def test_several_sentences():
    one = trace_of(text_of("x", "y"), text_of("a"), [[0.2, 0.7, 0.1], [0, 0, 1]])
    two = trace_of(text_of("z"), text_of("b", "c"), [[0.8, 0.2], [0.1, 0.9], [0, 1]])
    joined = Trace.join("x y z", "a b c", [(0, 0), (4, 2)], [one, two])
    for spaced in (False, True):
        found = align_trace(joined, spaced=spaced)
        assert str(found) == "1-0 2-1"  # c looks at the end of its own sentence
        assert [word.text for word in (*found.source, *found.target)] == ["x", "y", "z", "a", "b", "c"]
        np.testing.assert_allclose(found.weights, [[0.2, 0.7, 0], [0, 0, 0.8], [0, 0, 0.1]], atol=1e-6)


def test_side_by_side_sentences_share_a_word_but_not_their_ends():
    one = trace_of(text_of("看"), text_of("a"), [[0.9, 0.1], [0, 1]])
    two = trace_of(text_of("去"), text_of("b"), [[0.4, 0.6], [0, 1]])
    joined = Trace.join("看去", "a b", [(0, 0), (1, 2)], [one, two])
    assert str(align_trace(joined)) == "0-0"
    found = align_trace(joined, spaced=True)
    assert (str(found), [word.text for word in found.source]) == ("0-0", ["看去"])
    np.testing.assert_allclose(found.weights, [[0.9], [0.4]], atol=1e-6)


def test_a_side_without_words_has_no_links():
    empty = text_of()
    for source, target in ((empty, TARGET), (SOURCE, empty), (empty, empty)):
        found = align_trace(Trace(source, target, None, np.zeros(len(target.tokens), np.float32)))
        assert (found.links, found.weights.shape) == ((), (len(found.target), len(found.source)))


def test_without_attention_there_are_no_links():
    with pytest.raises(ConfigError, match="this model has no attention"):
        align_trace(Trace(SOURCE, TARGET, None, np.zeros(4, np.float32)))


WORDS = st.lists(st.sampled_from(["a", "b|c", "d|e|f", ".", ",|.", "g"]), min_size=1, max_size=5)


@given(WORDS, WORDS, st.integers(0, 2**32 - 1))
def test_what_goes_to_words_and_to_the_end_is_all(source, target, seed):
    x, y = text_of(*source), text_of(*target)
    tokens = np.random.default_rng(seed).dirichlet(np.ones(len(x.tokens)), len(y.tokens)).astype(np.float32)
    found = between_words(tokens, x, y)
    assert found.shape == (len(target), len(source) + 1)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    whole = Trace(x, y, tokens[None, None], np.zeros(len(y.tokens), np.float32)).words()
    np.testing.assert_allclose(found, whole[:-1], atol=1e-6)


def test_many_pairs_are_linked_as_each_by_itself():
    traces = [
        trace_of(SOURCE, TARGET, ROWS),
        trace_of(text_of(), TARGET, [[1.0]] * 4),
        trace_of(text_of("x|y"), text_of("a", "b|c"), [[0.5, 0.2, 0.3], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0, 0, 1]]),
        trace_of(SOURCE, text_of(), ROWS[:1]),
    ]
    for readout in (Readout(), Readout(marks="apart", end="drop", even=True, threshold=0.5)):
        for spaced in (False, True):
            found = align_texts([(one.tokens(), one.source, one.target) for one in traces], readout, spaced)
            wanted = [align_trace(one, readout, spaced) for one in traces]
            assert found == wanted
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one.weights, other.weights)
            assert found[0].links
            assert found[2].links
    assert align_texts([], Readout()) == []


WORDS = st.lists(st.sampled_from(("a", "b|c", "d|e|f", ".", "</s>")), max_size=5)


@given(WORDS, WORDS, st.booleans(), st.integers(0, 3))
def test_sums_over_neighbours_are_those_of_all_tokens(source, target, spaced, seed):
    """The weights between words, whichever way they are summed."""
    one, other = text_of(*source), text_of(*target)
    if spaced:  # with a word that has no token
        one, other = (replace(side, text=f"{side.text} x" if seed else side.text).spaced() for side in (one, other))
    weights = np.random.default_rng(seed).random((2, len(other.tokens), len(one.tokens)), dtype=np.float32)
    found = between_words(weights, one, other)
    into, of = links._tokens(one), links._tokens(other)[:-1]
    of /= np.maximum(of.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(found, of @ weights @ into.T, atol=1e-6)
    assert found.shape == (2, len(other.written), len(one.written) + 1)
