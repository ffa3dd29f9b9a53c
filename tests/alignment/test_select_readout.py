"""Selecting a read-out: the right one is found where we hid it, and what is measured is what it would give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.alignment import DirectedLinks, score
from heedful.alignment.links import align_trace
from heedful.alignment.select_readout import (
    PairWeights,
    WeightTable,
    measure_readout,
    rank_readouts,
    rank_symmetries,
    select_pointing,
)
from heedful.errors import ConfigError, DataError
from heedful.metrics.pointing import GoldWord
from heedful.observe import AttentionReading
from heedful.text import merge
from heedful.trace import Text, Trace
from heedful.trace.readout import ENDS, MARKS, STEPS, SYMMETRIES, Readout
from heedful.trace.trace import ImageRegions

L, H = 3, 3


def text_of(words: list[str]) -> Text:
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    text = " ".join(words)
    spans.append((len(text), len(text)))
    return Text(text, (*words, "</s>"), tuple(spans), merge(text, spans))


def pair(rng: np.random.Generator, sharp: tuple[int, int, str] | None = None):
    """A pair with random weights and a random order of its words; one head at one step knows it."""
    n = int(rng.integers(2, 6))
    words = [*("abcdefgh"[:n]), "."]
    order = [*rng.permutation(n).tolist(), n]
    source, target = text_of(words), text_of([words[s].upper() for s in order])
    T = S = len(words) + 1
    rows = rng.dirichlet(np.ones(S), size=(L, H, T + 1)).astype(np.float32)
    if sharp:
        layer, head, step = sharp
        for t, s in enumerate(order):
            rows[layer - 1, head - 1, t + (step == "next")] = 0.6 * np.eye(S)[s] + 0.4 / S
    norms = rng.uniform(0.5, 2, (L, H, S)).astype(np.float32)
    reading = AttentionReading(rows[:, :, :T], np.zeros(T, np.float32), rows[:, :, T], norms)
    return source, target, reading, frozenset((s, t) for t, s in enumerate(order))


def pair_weights(source: Text, target: Text, reading: AttentionReading) -> PairWeights:
    return PairWeights.of(source, target, reading.weights, reading.after, reading.norms)


def many(count: int, sharp=None, seed=0):
    rng = np.random.default_rng(seed)
    pairs = [pair(rng, sharp) for _ in range(count)]
    return (
        pairs,
        WeightTable([pair_weights(x, y, reading) for x, y, reading, _ in pairs]),
        [links for *_, links in pairs],
    )


@pytest.mark.parametrize("sharp", [(2, 3, "same"), (1, 1, "next"), (3, 2, "next")])
def test_the_head_that_knows_is_found(sharp):
    _, table, links = many(40, sharp)
    rows = rank_readouts(table, table.gold_cells(links))
    best = rows[0].readout
    assert (best.layer, best.heads, best.step, best.norms) == (sharp[0], (sharp[1],), sharp[2], False)
    assert rows[0].rate < 0.02
    assert rows[0].held_out < 0.05
    assert rows == sorted(rows, key=lambda row: row.rate)
    others = [row for row in rows if row.readout.layer not in (None, sharp[0]) or row.readout.step != sharp[2]]
    assert min(row.rate for row in others) > 0.3


@pytest.mark.parametrize("both", [0, 1])
def test_nothing_is_chosen_on_the_half_that_is_held_out(both):
    """One half wants a low threshold, for it has both links of a word, the other a high one."""
    rows = np.array([[0.55, 0.45, 0.0], [0.0, 0.0, 1.0]], dtype=np.float32)[None, None]
    nothing = np.zeros((1, 1, 3), np.float32)
    seen = pair_weights(
        text_of(["a", "b"]), text_of(["A"]), AttentionReading(rows, np.zeros(2, np.float32), nothing, nothing + 1)
    )
    table = WeightTable([seen] * 20)
    links = [frozenset({(0, 0), (1, 0)} if i % 2 == both else {(0, 0)}) for i in range(20)]
    best = rank_readouts(table, table.gold_cells(links))[0]
    assert best.rate == 0
    assert best.held_out > 0.3


def test_heads_that_know_halves_are_put_together():
    """One head knows the even places, another the odd ones, and both say little where they know nothing."""
    rng = np.random.default_rng(5)
    read, links = [], []
    for _ in range(40):
        x, y, reading, gold = pair(rng)
        S = reading.weights.shape[-1]
        for t in range(len(y.tokens) - 1):
            s = next(s for s, other in gold if other == t)
            reading.weights[1, :, t] = np.stack([np.eye(S)[s] if t % 2 == h else np.ones(S) / S for h in (0, 1, 2)])
            reading.weights[1, 2, t] = np.eye(S)[(s + 1) % S]
        read.append(pair_weights(x, y, reading))
        links.append(gold)
    table = WeightTable(read)
    rows = rank_readouts(table, table.gold_cells(links))
    assert (rows[0].readout.layer, rows[0].readout.heads) == (2, (1, 2))
    assert rows[0].rate == pytest.approx(0, abs=1e-9)


READOUTS = st.builds(
    Readout,
    layer=st.none() | st.integers(1, L),
    heads=st.lists(st.integers(1, H), unique=True, max_size=2).map(tuple),
    step=st.sampled_from(STEPS),
    norms=st.booleans(),
    end=st.sampled_from(ENDS),
    marks=st.sampled_from(MARKS),
    threshold=st.sampled_from([1.0, 0.7, 0.31]),
    even=st.booleans(),
)


@given(READOUTS, st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_what_is_measured_is_what_aligning_gives(readout, seed):
    pairs, table, links = many(7, (1, 1, "next"), seed)
    found = []
    for x, y, reading, _ in pairs:
        trace = Trace(x, y, reading.weights, reading.log_probs, readout, reading.by(readout))
        found.append(align_trace(trace, spaced=True).pairs)
    assert table.links(readout) == found
    sure = [frozenset(sorted(each)[:2]) for each in links]
    row = measure_readout(table, table.gold_cells(sure, links), readout)
    assert row.rate == pytest.approx(score(found[::2], sure[::2], links[::2]).error_rate)
    assert row.held_out == pytest.approx(score(found[1::2], sure[1::2], links[1::2]).error_rate)


def test_symmetries_by_hand():
    _, table, links = many(12, (2, 2, "same"))
    rng = np.random.default_rng(1)
    readout = Readout(2, (2,), threshold=0.4)
    reverse = []
    for each, (T, S) in zip(links, table.cells.shapes, strict=True):
        weights = rng.random((T, S - 1))
        reverse.append(DirectedLinks(frozenset(link for link in each if rng.random() < 0.8) | {(0, 0)}, weights, 0.5))
    rows = rank_symmetries(table, reverse, links, links, readout)
    assert {row.readout.symmetry for row in rows} == set(SYMMETRIES)
    forward = table.directed(readout)
    assert [one.links for one in forward] == table.links(readout)
    for row in rows:
        joined = [a.combined(b, row.readout.symmetry) for a, b in zip(forward, reverse, strict=True)]
        assert row.rate == pytest.approx(score(joined[::2], links[::2]).error_rate)
        assert row.held_out == pytest.approx(score(joined[1::2], links[1::2]).error_rate)
    assert rows == sorted(rows, key=lambda row: row.rate)


def test_gold_past_the_end_is_refused():
    _, table, links = many(3)
    words = len(links[1])
    with pytest.raises(DataError, match=f"pair 2: the link {words}-0 is outside of its {words} source"):
        table.gold_cells([links[0], frozenset({(words, 0)}), links[2]])


def test_one_pair_with_nothing_on_a_side_counts_for_nothing():
    pairs, _, _ = many(4, (1, 1, "same"))
    x, _, _, _ = pairs[0]
    empty = text_of([])
    S = len(x.tokens)
    nothing = AttentionReading(
        np.ones((L, H, 1, S), np.float32),
        np.zeros(1, np.float32),
        np.ones((L, H, S), np.float32),
        np.ones((L, H, S), np.float32),
    )
    read = [pair_weights(x, y, reading) for x, y, reading, _ in pairs]
    table = WeightTable([*read[:2], pair_weights(x, empty, nothing), *read[2:]])
    assert table.links(Readout(1, (1,)))[2] == frozenset()
    assert table.links(Readout(1, (1,)))[3:] == WeightTable(read).links(Readout(1, (1,)))[2:]
    with pytest.raises(DataError, match="no pairs with words"):
        WeightTable([pair_weights(x, empty, nothing)])


def test_a_model_without_attention():
    with pytest.raises(ConfigError, match="no attention"):
        pair_weights(text_of(["a"]), text_of(["b"]), AttentionReading(None, np.zeros(2, np.float32)))


def pointing_pair(rng: np.random.Generator, sharp: tuple[int, int, str]):
    """A caption whose words each have two gold regions of nine; one head at one step attends to one of them."""
    image = ImageRegions("a.png", 90, 90, 3, 3)
    source, target = image.text(), text_of(["a", "red", "bird", "house"])
    T, S = 5, image.count + 1
    rows = rng.dirichlet(np.ones(S), size=(L, H, T + 1)).astype(np.float32)
    layer, head, step = sharp
    gold = []
    for t in range(1, 4):
        first = int(rng.integers(0, 3)) * 3 + int(rng.integers(0, 2))
        gold.append(GoldWord(t, frozenset({first, first + 1}), 2 / 9, False, "noun" if t > 1 else "colour"))
        rows[layer - 1, head - 1, t + (step == "next")] = 0.5 * np.eye(S)[first + int(rng.integers(2))] + 0.5 / S
    rows[layer - 1, head - 1, int(step == "next")] = 0.5 * np.eye(S)[-1] + 0.5 / S  # "a" has no region
    norms = np.ones((L, H, S), dtype=np.float32)
    weights = PairWeights.of(source, target, rows[:, :, :T], rows[:, :, T], norms)
    return weights, gold


@pytest.mark.parametrize("sharp", [(2, 3, "same"), (1, 1, "next")])
def test_the_head_that_points_is_found(sharp):
    rng = np.random.default_rng(5)
    pairs = [pointing_pair(rng, sharp) for _ in range(60)]
    table, gold = WeightTable([weights for weights, _ in pairs]), [words for _, words in pairs]
    defaults = {"naive": Readout(3), "usual": Readout(end="drop", even=True)}
    found = select_pointing(table, gold, defaults)
    best = found.readout
    assert (best.layer, best.heads, best.step) == (sharp[0], (sharp[1],), sharp[2])
    assert (found.best.rate, found.best.held_out) == (0, 0)
    assert best.end == "stop"  # "a" attends to </s>, and has no region
    assert (found.pointing.total.words, found.pointing.total.accuracy) == (90, 100)
    assert found.pointing.total.chance == pytest.approx(200 / 9)
    assert [(row.kind, row.words) for row in found.pointing.rows] == [("noun", 60), ("colour", 30)]
    steps = {(row.step, row.weights): 1 - row.measured.held_out for row in found.steps}
    assert set(steps) == {(step, label) for step in STEPS for label in ("mean", "best")}
    other = "next" if sharp[2] == "same" else "same"
    assert steps[sharp[2], "best"] == 1 > steps[sharp[2], "mean"] > steps[other, "best"] + 0.1
    for row in found.steps:
        assert row.held_out.total.accuracy == pytest.approx(100 * (1 - row.measured.held_out))
        assert [kind.kind for kind in row.held_out.rows] == ["noun", "colour"]
    record = found.plain()
    assert record["pointing"]["accuracy"] == 100
    assert {(each["step"], each["weights"]) for each in record["steps"]} == set(steps)
    assert f"1.000 at the {sharp[2]} step" in best.chosen
    assert not found.why_not_saved()
    present = select_pointing(table, gold, defaults, best)
    assert present.why_not_saved()
    assert "100.0    100.0" in found.table()


def test_pointing_needs_gold_words_in_both_halves():
    rng = np.random.default_rng(5)
    pairs = [pointing_pair(rng, (1, 1, "same")) for _ in range(4)]
    table, gold = WeightTable([weights for weights, _ in pairs]), [words for _, words in pairs]
    for few in ([[]] * 4, [gold[0], [], gold[2], []]):
        with pytest.raises(DataError):
            select_pointing(table, few, {"usual": Readout()})
