"""Records of the attention of any model: measures, sinks, rollout, rows of one word, JSON."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heedful.draw.terminal import word_table
from heedful.errors import ConfigError, DataError
from heedful.trace import Text, Word
from heedful.trace.model_attention import (
    AttentionGroup,
    TopWeights,
    attention_rollout,
    block_means,
    by_tokens,
    find_words,
    sink_candidates,
    top_weights,
)


def sentence(words: str = "the tired animal , it slept") -> Text:
    """`[CLS]`, some words of one token each but `tired` of two, `[SEP]`."""
    tokens, spans, units, at = ["[CLS]"], [(0, 0)], [Word("[CLS]", 0, 0, 0, 1)], 0
    for word in words.split():
        first = len(tokens)
        cuts = (2, len(word)) if word == "tired" else (len(word),)
        begin = at
        for cut in cuts:
            tokens.append(words[begin : at + cut])
            spans.append((begin, at + cut))
            begin = at + cut
        units.append(Word(word, at, at + len(word), first, len(tokens)))
        at += len(word) + 1
    end = len(words)
    return Text(
        words, (*tokens, "[SEP]"), (*spans, (end, end)), (*units, Word("[SEP]", end, end, len(tokens), len(tokens) + 1))
    )


def random_weights(L: int, H: int, T: int, S: int, seed: int = 0) -> np.ndarray:
    weights = np.random.default_rng(seed).dirichlet(np.full(S, 0.3), size=(L, H, T))
    return weights.astype(np.float32)


def group(weights: np.ndarray | None = None) -> AttentionGroup:
    text = sentence()
    n = len(text.tokens)
    weights = random_weights(2, 3, n, n) if weights is None else weights
    return AttentionGroup.from_weights("self", (text, text), ["a", "b"], "math", weights)


def on_sink(share: float) -> np.ndarray:
    """Weights with a share on `[SEP]`, the last token, and the rest as it is."""
    weights = random_weights(2, 3, 9, 9)
    weights *= 1 - share
    weights[..., -1] += share
    return weights


def test_summaries_are_those_of_the_definition() -> None:
    weights = random_weights(2, 3, 9, 9)
    made = group(weights)
    np.testing.assert_allclose(made.received, weights.sum(2), atol=1e-5)
    logs = np.log(np.maximum(weights, 1e-30))
    np.testing.assert_allclose(made.entropy, -(weights * logs).sum(-1), atol=1e-5)
    t, j = np.indices((9, 9))
    np.testing.assert_allclose(made.distance, (weights * abs(t - j)).sum((2, 3)) / 9, atol=1e-5)
    no_sinks = [2, 3, 4, 6, 7]  # "the" is the second token, after [CLS]: only [CLS] is the first
    ordinary = ~sink_candidates(made.source)
    assert set(no_sinks) <= set(np.flatnonzero(ordinary).tolist())
    np.testing.assert_allclose(made.sharpness, weights[..., ordinary].max(-1).mean(-1), atol=1e-6)
    np.testing.assert_allclose(made.blocks, weights, atol=1e-6)  # a block for each token


def test_blocks_of_a_long_text_are_means_of_rows() -> None:
    weights = random_weights(1, 1, 100, 200)
    blocks = block_means(weights)
    assert blocks.shape == (1, 1, 48, 48)
    np.testing.assert_allclose(blocks.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(blocks[0, 0, 0, 0], weights[0, 0, :2, :4].sum(-1).mean(), atol=1e-6)


def test_sinks_are_special_first_or_punctuation_and_take_much() -> None:
    made = group(on_sink(0.6))
    (sink, *others) = made.sinks()
    assert (sink.text, sink.word) == ("[SEP]", len(made.source.words) - 1)
    assert 0.6 <= sink.share <= 0.7
    assert all(other.share < sink.share for other in others)
    ordinary = on_sink(0)
    ordinary[..., 4] += 9  # "animal" takes nearly all, but is a word as any other
    ordinary /= ordinary.sum(-1, keepdims=True)
    assert "animal" not in [sink.text for sink in group(ordinary).sinks()]


def test_a_word_with_a_token_of_white_space_is_no_sink_for_that() -> None:
    text = sentence("the big old animal, it slept")
    first, last = text.words[3].first, text.words[3].last  # as ▁ and old
    blank = replace(text, tokens=(*text.tokens[:first], "▁", *text.tokens[first:]))
    begin = text.spans[first][0]
    spans = (*text.spans[:first], (begin - 1, begin), *text.spans[first:])
    shifted = [w if w.first < first else w._replace(first=w.first + 1, last=w.last + 1) for w in text.words]
    shifted[3] = shifted[3]._replace(first=first)
    blank = replace(blank, spans=spans, words=tuple(shifted))
    n = len(blank.tokens)
    weights = np.full((1, 1, n, n), 0.01, dtype=np.float32)
    weights[..., last] = 1 - 0.01 * (n - 1)
    assert AttentionGroup.from_weights("self", (blank, blank), ["a"], "math", weights).sinks() == ()


def test_sinks_over_half_are_set_apart_unless_told_otherwise() -> None:
    made = group(on_sink(0.7))
    apart, kept = made.trace(1, 2), made.trace(1, 2, sinks="keep")
    assert "[SEP]" not in [word.text for word in apart.source.words]
    assert "[SEP]" in [word.text for word in kept.source.words]
    words = apart.words()
    assert words is not None
    np.testing.assert_allclose(words.sum(1), 1, atol=1e-5)
    assert "set apart: [SEP]" in apart.caption
    assert "sinks: [SEP]" in kept.caption
    few = group(on_sink(0.3))
    assert len(few.trace(1, 2).source.words) == len(few.source.words)
    assert len(few.trace(1, 2, sinks="apart").source.words) < len(few.source.words)
    with pytest.raises(ConfigError, match="apart, keep"):
        made.trace(1, 2, sinks="away")


def test_a_trace_is_of_one_head_or_of_a_mean() -> None:
    weights = random_weights(2, 3, 9, 9)
    made = group(weights)
    for options, expected, label in (
        ((2, 3), weights[1, 2], "layer 2, head 3"),
        ((2, None), weights[1].mean(0), "layer 2, mean of its 3 heads"),
        ((None, 1), weights[:, 0].mean(0), "head 1, mean of all 2 layers"),
        ((None, None), weights.mean((0, 1)), "mean of all layers and heads"),
    ):
        trace = made.trace(*options, sinks="keep")
        np.testing.assert_allclose(trace.tokens(), expected, atol=1e-6)
        assert trace.caption.startswith(label)
    with pytest.raises(ConfigError, match="no layer 3; choose one from 1 to 2"):
        made.trace(3, 1)


def test_rollout_is_the_product_of_layers_with_their_residuals() -> None:
    weights = random_weights(3, 2, 5, 5)
    expected = np.eye(5)
    for layer in weights.astype(float):
        expected = (layer.mean(0) + np.eye(5)) / 2 @ expected
    np.testing.assert_allclose(attention_rollout(weights), expected, atol=1e-5)
    assert "rollout" in group().trace(rollout=True).caption
    with pytest.raises(ConfigError, match="layer and head"):
        group().trace(1, rollout=True)


def test_the_row_of_a_word_is_the_mean_of_its_tokens_in_every_head() -> None:
    weights = random_weights(2, 3, 9, 9)
    made = group(weights)
    (tired,) = find_words(made.target, "tired")
    np.testing.assert_allclose(made.rows_of([tired]), weights[:, :, 2:4].mean(2), atol=1e-6)
    trace = made.word_trace([tired], sinks="keep")
    assert [word.text for word in trace.target.words] == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    np.testing.assert_allclose(trace.tokens(), weights[:, :, 2:4].mean(2).reshape(6, 9), atol=1e-6)
    few = made.word_trace([tired], most=2)
    assert len(few.target.words) == 2


def test_words_are_found_by_text_case_and_number() -> None:
    text = sentence("It slept and it saw the New York street , it did")
    word = {number: find_words(text, f"it#{number}") for number in (1, 2)}
    assert [text.words[i].text for (i,) in word.values()] == ["it", "it"]
    assert word[1] < word[2]
    assert [text.words[i].text for i in find_words(text, "new york")] == ["New", "York"]
    assert find_words(text, "[CLS]") == [0]
    with pytest.raises(DataError, match="'street'"):
        find_words(text, "streets")
    with pytest.raises(DataError, match="occurs 2 times.* number 3"):
        find_words(text, "it#3")


def test_heads_are_ranked_by_every_measure() -> None:
    weights = random_weights(2, 3, 9, 9)
    weights[1, 2] = np.eye(9, dtype=np.float32)[::-1]  # sharpest, lowest entropy, most distant
    made = group(weights)
    for measure in ("sharpness", "entropy", "distance"):
        assert made.rank(measure)[0] == (2, 3)
        assert sorted(made.rank(measure)) == made.heads()
    with pytest.raises(ConfigError, match="entropy"):
        made.rank("entropie")


def test_the_largest_weights() -> None:
    weights = np.array([[0.2, 0.5, 0.3, 0], [0, 0, 1, 0]], dtype=np.float32)
    top = top_weights(weights, 3)
    assert top.positions.tolist() == [[1, 2, 0], [2, -1, -1]]
    assert top.weights[0].tolist() == pytest.approx([0.5, 0.3, 0.2])
    assert top_weights(weights, 6).positions.shape == (2, 6)


def summary_of(made: AttentionGroup) -> AttentionGroup:
    """The same as a long text has it: the largest weights of the sharpest heads, and the rows of one token."""
    assert made.weights is not None
    return replace(made, weights=None, top=made.largest(made.rank()[:8]), rows={5: made.weights[:, :, 5]})


@pytest.mark.parametrize("nested", [200_000, 10])
def test_json_is_read_as_it_was_written(nested: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.trace.model_attention.NESTED", nested)
    made = group()
    plain = json.loads(json.dumps(made.plain()))
    assert isinstance(plain["weights"], list if nested > 10 else dict)
    again = AttentionGroup.build(plain)
    assert made.weights is not None
    assert again.weights is not None
    np.testing.assert_allclose(again.weights, made.weights, atol=1e-6 if nested > 10 else 0)
    assert again.source == made.source
    plain = json.loads(json.dumps(summary_of(made).plain()))
    assert plain["weights"] is None
    summary = AttentionGroup.build(plain)
    np.testing.assert_allclose(summary.received, made.received, atol=1e-5)
    np.testing.assert_allclose(summary.rows[5], made.weights[:, :, 5], atol=1e-5)
    assert set(summary.top) == set(made.rank()[:8])
    for at, top in made.largest(made.rank()[:8]).items():
        assert (summary.top[at].positions == top.positions).all()
    with pytest.raises(ConfigError, match="too long"):
        summary.trace(1, 1)
    with pytest.raises(ConfigError, match="not held"):
        summary.rows_of([2])


def test_json_of_many_weights_holds_all_of_them() -> None:
    text = by_tokens(Text("a" * 80, tuple("a" * 80), tuple((i, i + 1) for i in range(80)), ()))
    weights = random_weights(22, 32, 80, 80)  # over 4 million
    made = AttentionGroup.from_weights("self", (text, text), list(map(str, range(22))), "math", weights)
    plain = made.plain()
    assert len(json.dumps(plain)) < 6 * weights.size
    again = AttentionGroup.build(plain)
    assert again.weights is not None
    assert (again.weights == weights).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "both"}, "kind"),
        ({"weights": [[1]]}, "weights"),
        ({"modules": ["a"]}, "modules"),
        ({"generated": 99}, "generated"),
        ({"source": {"text": ""}}, "source"),
        ({"weights": None}, "received"),
    ],
)
def test_wrong_records_are_refused_with_the_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        AttentionGroup.build({**group().plain(), **change})


def wrong_bytes(shape: list[int], data: bytes) -> dict[str, object]:
    return {"shape": shape, "float32": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"shape": [2, 3, 9, 9]}, "float32"),
        ({"shape": [2, 3, 9, 9], "float32": "*"}, "base64"),
        ({"shape": [2, 3, 9, 9], "float32": 3}, "base64"),
        ({"shape": [2, 3, "9", 9], "float32": ""}, "whole number"),
        (wrong_bytes([2, 3, 9, 9], bytes(40)), "40 bytes"),
        (wrong_bytes([2, -3, 9, -9], bytes(4 * 2 * 3 * 81)), "-3"),
        (wrong_bytes([0, 3, 9, 9], b""), "0 bytes"),
        (wrong_bytes([], bytes(4)), "bytes"),
        (wrong_bytes([1, 1, 1, 1], np.float32("nan").tobytes()), "finite"),
        (wrong_bytes([1, 1, 1, 1], np.float32(0.5).tobytes()), "1 queries"),
        (wrong_bytes([2, 3, 9, 9], np.full((2, 3, 9, 9), 7, dtype=np.float32).tobytes()), "sums to 63"),
    ],
)
def test_wrong_bytes_of_weights_are_refused(weights: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        AttentionGroup.build({**group().plain(), "weights": weights})


def edited(**changes: object) -> dict[str, object]:
    """The record of a summary with other values: `top.layer` is that of its first head, and so on."""
    plain: dict[str, Any] = json.loads(json.dumps(summary_of(group()).plain()))
    for name, value in changes.items():
        place, _, inner = name.partition("__")
        if inner:
            plain[place][0][inner] = value(plain[place][0][inner]) if callable(value) else value
        else:
            plain[place] = value(np.array(plain[place])).tolist() if callable(value) else value
    return plain


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top__layer": 99}, r"top: head 99\."),
        ({"top__layer": -1}, r"top: head -1\."),
        ({"top__head": 0}, r"top: head \d\.0"),
        ({"top__weights": lambda x: (50 * np.array(x)).tolist()}, "top.*weights"),
        ({"top__positions": lambda x: (np.array(x) + 0.5).tolist()}, "top.*positions"),
        ({"top": lambda x: np.array([x[0], x[0]])}, "twice"),
        ({"rows__token": 99}, "rows: token 99"),
        ({"rows__token": -1}, "rows: token -1"),
        ({"rows__weights": lambda x: (9 * np.array(x)).tolist()}, "rows: token 5.*layer 1, head 1"),
        ({"received": lambda x: -x}, "received"),
        ({"received": lambda x: 3 * x}, "received"),
        ({"entropy": lambda x: -x}, "entropy"),
        ({"entropy": lambda x: x + 9}, "entropy"),
        ({"distance": lambda x: x + 99}, "distance"),
        ({"sharpness": lambda x: x + 1}, "sharpness"),
        ({"blocks": lambda x: x[:, :, :0]}, "blocks"),
        ({"blocks": lambda x: np.repeat(x, 2, axis=2)}, "blocks: .* 1 to 9 rows"),
        ({"blocks": lambda x: 2 * x}, "blocks"),
        ({"modules": ["a"]}, "modules"),
        ({"target": sentence("the tired animal , he slept").plain()}, "differ"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_the_place(changes: dict[str, object], message: str) -> None:
    AttentionGroup.build(edited())
    with pytest.raises(DataError, match=message):
        AttentionGroup.build(edited(**changes))


def test_with_sinks_apart_a_word_has_one_row_in_all_figures() -> None:
    text = Text(
        "is bad unhappiness",
        ("[CLS]", "is", "bad", "un", "happi", "ness"),
        ((0, 0), (0, 2), (3, 6), (7, 9), (9, 14), (14, 18)),
        (Word("[CLS]", 0, 0, 0, 1), Word("is", 0, 2, 1, 2), Word("bad", 3, 6, 2, 3), Word("unhappiness", 7, 18, 3, 6)),
    )
    weights = np.zeros((1, 1, 6, 6), dtype=np.float32)
    weights[..., :3, 0] = 1
    for token, row in {3: (0.98, 0.02, 0), 4: (0.2, 0, 0.8), 5: (0.98, 0.02, 0)}.items():
        weights[0, 0, token, :3] = row
    made = AttentionGroup.from_weights("self", (text, text), ["a"], "math", weights)
    assert [sink.text for sink in made.sinks()] == ["[CLS]"]
    expected = [0.04 / 0.84, 0.8 / 0.84, 0]  # is, bad, unhappiness
    heat, row = made.trace(1, 1, sinks="apart"), made.word_trace([3], sinks="apart")
    for found in (heat.words()[3], row.words()[0]):
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert heat.words()[:3].sum() == 0  # all of their weight is on the sink
    assert heat.tokens().max() <= 1
    pieces = made.by_pieces().trace(1, 1, sinks="apart").words()
    assert pieces[3:].argmax(1).tolist() == [0, 1, 0]


def test_words_count_the_same_in_a_mean_whatever_their_tokens() -> None:
    weights = random_weights(2, 3, 9, 9)
    made = group(weights)
    tired, animal = find_words(made.target, "tired animal")
    expected = (weights[:, :, 2:4].mean(2) + weights[:, :, 4]) / 2
    np.testing.assert_allclose(made.rows_of([tired, animal]), expected, atol=1e-6)
    long = replace(made, weights=None, rows={i: weights[:, :, i] for i in (2, 3, 4)})
    np.testing.assert_allclose(long.rows_of([tired, animal]), expected, atol=1e-6)


def test_a_frequent_word_of_a_long_text_is_found_at_once() -> None:
    text = sentence("the " * 20_000 + "end")
    begin = time.process_time()
    assert find_words(text, "the#19999") == [19_999]
    assert time.process_time() - begin < 2  # 9 s if all words are looked at for each


def test_several_phrases_are_all_found() -> None:
    text = sentence("it slept and it saw the New York street")
    assert [text.words[i].text for i in find_words(text, ["new york", "it#2"])] == ["it", "New", "York"]
    with pytest.raises(DataError, match="zebra"):
        find_words(text, ["it", "zebra"])


def test_long_texts_hold_the_heads_that_were_kept() -> None:
    whole = group()
    assert whole.weights is not None
    held = TopWeights(*top_weights(whole.weights[0, 1], 8))
    long = replace(whole, weights=None, top={(1, 2): held}, rows={5: whole.weights[:, :, 5]})
    assert long.largest([(1, 2)], 2)[1, 2].positions.shape == (9, 2)
    with pytest.raises(ConfigError, match=r"2\.1 is not held.*1\.2"):
        long.largest([(2, 1)])
    (word,) = [i for i, w in enumerate(whole.target.words) if w.first == 5]
    np.testing.assert_allclose(long.rows_of([word]), whole.weights[:, :, 5])


def test_the_largest_word_of_a_long_text_is_true_although_few_columns_are_shown() -> None:
    words = [f"w{i}" for i in range(600)]
    text = sentence(" ".join(words))
    n = len(text.tokens)
    weights = np.full((6, 8, n, n), 0.2 / n, dtype=np.float32)
    for layer in range(6):
        for head in range(8):
            weights[layer, head, :, 20 + 9 * (8 * layer + head)] += 0.8
    made = AttentionGroup.from_weights("self", (text, text), list("abcdef"), "math", weights)
    out = word_table(made, find_words(text, "w3"), limit=48)
    for layer in range(6):
        for head in range(8):
            word = text.tokens[20 + 9 * (8 * layer + head)]
            (line,) = [row for row in out.splitlines() if row.split()[:1] == [f"{layer + 1}.{head + 1}"]]
            assert line.endswith(f" 80% {word}")
