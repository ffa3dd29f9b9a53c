"""Measures on sentences made by hand, with translators that only pretend."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sample_report import side

from heedful.data.hindi import SentenceSide
from heedful.demo import FULL
from heedful.demo.run import alignment, examples
from heedful.demo.training import EXAMPLES
from heedful.evaluation.run_report import exact_up_to, length_scores
from heedful.trace import Readout, Trace
from heedful.translator import Translation

TEST = (
    SentenceSide("a b", "X Y", ((0, 0), (1, 1)), ()),
    SentenceSide("a b c", "X Y Z", (), ()),
    SentenceSide("a b c d e f", "X Y Z U V W", (), ()),
    SentenceSide("a b c d e f g h i j k", "X Y Z U V W A B C D E", (), ()),
)
PAIRS = [(side.source, side.target) for side in TEST]


def weighted(source: str, target: str, *rows: list[float]) -> Trace:
    """A trace of one token to a word with these weights, the last of each row that of `</s>`."""
    x, y = side(source.split()), side(target.split())
    weights = np.array(rows or np.full((len(y.tokens), len(x.tokens)), 1 / len(x.tokens)), dtype=np.float32)
    return Trace(x, y, weights[None, None], np.zeros(len(y.tokens), dtype=np.float32))


class Pretender:
    """Gives the traces and translations it was given, and remembers what it was asked."""

    def __init__(self, traces: dict[tuple[str, str], Trace] | None = None, says: dict[str, str] | None = None) -> None:
        self.traces, self.says = traces or {}, says or {}
        self.asked: list[Any] = []

    def reread(self, sources: list[str], targets: list[str]) -> list[Trace]:
        self.asked.append(list(zip(sources, targets, strict=True)))
        return [self.traces[pair] for pair in self.asked[-1]]

    def translate(self, sources: list[str]) -> list[Translation]:
        self.asked.append(list(sources))
        outputs = [self.says.get(source, "Something") for source in sources]
        return [Translation(x, y, -1.0, 0.5, weighted(x, y)) for x, y in zip(sources, outputs, strict=True)]


# ---- scores


def test_exact_up_to() -> None:
    outputs = ["X Y", "X Z Y", "X Y Z U V W", "wrong"]
    assert exact_up_to(2, outputs, PAIRS) == (100.0, 1)
    assert exact_up_to(5, outputs, PAIRS) == (50.0, 2)
    assert exact_up_to(6, outputs, PAIRS) == (pytest.approx(200 / 3), 3)
    assert exact_up_to(10, outputs, PAIRS) == (pytest.approx(200 / 3), 3)
    assert exact_up_to(11, outputs, PAIRS) == (50.0, 4)
    with pytest.raises(ValueError, match="zip"):
        exact_up_to(20, outputs[:3], PAIRS)


def test_exact_means_every_letter() -> None:
    assert exact_up_to(2, ["x Y"], PAIRS[:1]) == (0.0, 1)
    assert exact_up_to(2, ["X Y Z"], PAIRS[:1]) == (0.0, 1)


def test_scores_by_source_length() -> None:
    table = length_scores(["X Y", "X Z Y", "X Y Z U V W", "wrong"], PAIRS)
    assert [(row.label, row.pairs, row.exact) for row in table.rows] == [
        ("1–5", 2, 50.0),
        ("6–10", 1, 100.0),
        ("11–15", 1, 0.0),
    ]
    assert (table.total.pairs, table.total.exact) == (4, 50.0)
    assert table.rows[1].bleu == pytest.approx(100)
    assert table.rows[2].bleu < 1


# ---- links

# Here the gold links are those of half the largest weight and more ...
VALID = SentenceSide("a b c", "X", ((0, 0), (1, 0)), ())
VALID_TRACE = weighted("a b c", "X", [0.5, 0.3, 0.12, 0.08], [0.0, 0.0, 0.0, 1.0])
# ... and here those of the largest alone: with a half, as many wrong ones are result.
CROSSED = TEST[0]
CROSSED_TRACE = weighted("a b", "X Y", [0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0])


def pretender() -> Pretender:
    pairs = {(VALID.source, VALID.target): VALID_TRACE, (CROSSED.source, CROSSED.target): CROSSED_TRACE}
    return Pretender(pairs)


def test_the_threshold_is_chosen_on_validation_pairs() -> None:
    translator = pretender()
    result = alignment(translator, [VALID], [CROSSED])  # type: ignore[arg-type]
    assert "at least 50% of its largest weight" in result.rule
    assert result.rule.endswith("on validation pairs")
    # Four links, two of them right, both gold ones result: 1 - (2 + 2) / (4 + 2).
    assert (result.error_rate, result.precision, result.recall, result.pairs) == (pytest.approx(1 / 3), 0.5, 1.0, 1)
    assert translator.asked == [[("a b c", "X")], [("a b", "X Y")]]


def test_the_read_out_of_the_model_makes_no_difference() -> None:
    """The demo compares models by one rule, whatever read-out is recorded with them."""
    usual = Readout(end="drop", marks="apart", even=True)
    pairs = {(VALID.source, VALID.target): VALID_TRACE, (CROSSED.source, CROSSED.target): CROSSED_TRACE}
    translator = Pretender({pair: replace(trace, readout=usual) for pair, trace in pairs.items()})
    expected = alignment(pretender(), [VALID], [CROSSED])  # type: ignore[arg-type]
    assert alignment(translator, [VALID], [CROSSED]) == expected  # type: ignore[arg-type]


def test_with_the_two_exchanged_the_other_is_chosen() -> None:
    result = alignment(pretender(), [CROSSED], [VALID])  # type: ignore[arg-type]
    assert result.rule.startswith("a word is linked to the source word with its largest weight;")
    # One link of two, and it is right: 1 - (1 + 1) / (1 + 2).
    assert (result.error_rate, result.precision, result.recall) == (pytest.approx(1 / 3), 1.0, 0.5)


def test_a_model_without_weights_finds_no_links() -> None:
    blind = Pretender({(CROSSED.source, CROSSED.target): replace(CROSSED_TRACE, weights=None)})
    result = alignment(blind, [CROSSED], [CROSSED])  # type: ignore[arg-type]
    assert (result.error_rate, result.precision, result.recall) == (1.0, 1.0, 0.0)


def test_layers_and_heads_are_averaged_and_it_says_so() -> None:
    """Each head alone finds one of the links, and their mean both."""
    heads = np.array([[[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0, 0, 1]], [[0.4, 0.6, 0.0], [0.1, 0.9, 0.0], [0, 0, 1]]])
    several = replace(CROSSED_TRACE, weights=heads[None].astype(np.float32))
    result = alignment(Pretender({(CROSSED.source, CROSSED.target): several}), [CROSSED], [CROSSED])  # type: ignore[arg-type]
    assert "in the mean of all layers and heads" in result.rule
    assert result.error_rate == 0


# ---- what is shown


def test_examples() -> None:
    plan = replace(FULL, lengths=((6, 10), (3, 3), (40, 50)))
    first, *_ = (x for x, _, _ in EXAMPLES)
    translators = {"fixed": Pretender(says={first: "I am"}), "attention": Pretender(says={first: "I am eating"})}
    shown = examples(translators, plan, {first, "a b c"}, TEST, ["attention"])  # type: ignore[arg-type]
    assert [e.source for e in shown] == [*(x for x, _, _ in EXAMPLES), "a b c d e f", "a b c"]
    assert [e.reference for e in shown[3:]] == ["X Y Z U V W", "X Y Z"]
    assert [e.seen for e in shown] == [True, False, False, False, True]
    assert len({e.note for e in shown[:3]}) == len({e.note for e in shown[3:]}) == 1
    assert shown[0].note != shown[3].note
    assert shown[0].outputs == {"fixed": "I am", "attention": "I am eating"}
    assert shown[1].outputs == {"fixed": "Something", "attention": "Something"}
    assert all((e.traced, e.trace.source.text) == ("attention", e.source) for e in shown)
    assert shown[0].trace.target.text == "I am eating"
    assert examples(translators, plan, set(), TEST, ["fixed"])[0].trace.target.text == "I am"  # type: ignore[arg-type]


def test_further_models_that_are_shown() -> None:
    first, *_ = (x for x, _, _ in EXAMPLES)
    says = {"fixed": "I am", "attention": "I am eating", "transformer": "I eat"}
    translators = {key: Pretender(says={first: text}) for key, text in says.items()}
    shown = examples(translators, FULL, set(), TEST, ["attention", "transformer"])  # type: ignore[arg-type]
    assert (shown[0].traced, shown[0].trace.target.text) == ("attention", "I am eating")
    assert {key: trace.target.text for key, trace in shown[0].more.items()} == {"transformer": "I eat"}
    assert shown[0].outputs == says


def test_gold_links_of_examples() -> None:
    plan = replace(FULL, lengths=((2, 2),))
    shown = examples({"attention": Pretender()}, plan, set(), TEST, ["attention"])  # type: ignore[dict-item]
    assert shown[3].gold == {(0, 0), (1, 1)}
    assert shown[1].gold == {(0, 0), (1, 2), (1, 3), (2, 1), (3, 1)}


@pytest.mark.parametrize(
    ("number", "links"),
    [
        (0, "मैं=I खाना=eating खा=eating रहा=am हूँ=am"),
        (1, "मुझे=I खाना=to खाना=eat पसंद=love है=love"),
        (2, "मैं=I खेलने=to खेलने=play जा=going रहा=am हूँ=am"),
    ],
)
def test_the_links_of_the_famous_sentences_by_hand(number: int, links: str) -> None:
    source, target, gold = EXAMPLES[number]
    x, y = source.split(), target.split()
    pairs = [tuple(map(int, link.split("-"))) for link in gold.split()]
    assert pairs == sorted(set(pairs))
    assert [f"{x[i]}={y[j]}" for i, j in pairs] == links.split()
    assert {i for i, _ in pairs} == set(range(len(x)))
    assert {j for _, j in pairs} == set(range(len(y)))
