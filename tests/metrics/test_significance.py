"""Intervals and tests: sacrebleu's own where it has them, and what has to hold of any."""

import random

import numpy as np
import pytest
from metric_samples import corpus, spoiled
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

import heedful.metrics.significance as significance
from heedful.errors import ConfigError, DataError
from heedful.metrics import Difference, Interval, compare_stats, differences, extract_stats, intervals

THEIRS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
NAMES = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}


@pytest.fixture(scope="module")
def systems():
    """References, outputs, and outputs that are a little worse."""
    outputs, references = corpus(90, seed=7)
    pick = random.Random(8)
    worse = [spoiled(text, pick, 0.5) if pick.random() < 0.25 else text for text in outputs]
    mixed = [
        one if pick.random() < 0.5 else spoiled(text, pick, 0.3) for one, text in zip(outputs, references, strict=True)
    ]
    return references, outputs, worse, mixed


def test_intervals_are_as_wide_as_sacrebleus(systems):
    references, outputs, *_ = systems
    found = intervals(extract_stats(outputs, references), resamples=400)
    for name, metric in THEIRS.items():
        score = metric().corpus_score(outputs, [references], n_bootstrap=400)
        assert (found[name].high - found[name].low) / 2 == pytest.approx(score._ci, rel=1e-3)  # theirs in float32


@pytest.mark.parametrize(("test", "theirs", "trials"), [("randomisation", "ar", 10_000), ("bootstrap", "bs", 1000)])
@pytest.mark.parametrize("other", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_probabilities_are_sacrebleus_but_for_ties(systems, test, theirs, trials, other, monkeypatch):
    """Chance that makes exactly the same difference counts here, and not there: by TER there is much of it."""
    references, outputs = systems[:2]
    first, second = extract_stats(outputs, references), extract_stats(systems[other], references)
    ours = differences(first, second, test)
    metrics = {name: metric() for name, metric in THEIRS.items()}
    named = [("first", outputs), ("second", systems[other])]
    _, wanted = PairedTest(named, metrics, [references], test_type=theirs, n_samples=trials)()
    monkeypatch.setattr(significance, "SLACK", -significance.SLACK)
    without_ties = differences(first, second, test)
    for name, title in NAMES.items():
        assert without_ties[name].p == pytest.approx(wanted[title][1].p_value, abs=0.001)
        assert (ours[name].first, ours[name].second) == pytest.approx([r.score for r in wanted[title]])
        assert ours[name].p >= without_ties[name].p


def test_blocks_change_nothing(systems, monkeypatch):
    references, outputs, worse, _ = systems
    first, second = extract_stats(outputs, references), extract_stats(worse, references)
    whole = intervals(first), differences(first, second)
    monkeypatch.setattr(significance, "BLOCK", 64 * len(outputs))
    assert (intervals(first), differences(first, second)) == whole


def test_an_interval_holds_the_score_and_shrinks_with_more_sentences():
    widths = []
    for count in (25, 100, 400, 1600):
        stats = extract_stats(*corpus(count, seed=2), ["bleu", "chrf", "exact"])
        found = intervals(stats, 300)
        for name, score in stats.scores().items():
            assert found[name].low < score < found[name].high
        widths.append([found[name].high - found[name].low for name in found])
    ratios = np.array(widths[:-1]) / np.array(widths[1:])
    assert ((ratios > 1.3) & (ratios < 3)).all()  # about twice as narrow with four times as many


def test_of_sentences_that_are_all_alike_there_is_no_spread():
    stats = extract_stats(["a b c d x"] * 20, ["a b c d e"] * 20)
    for name, interval in intervals(stats, 50).items():
        assert interval == pytest.approx([stats.scores()[name]] * 2)


def test_the_interval_is_the_middle_95_percent():
    assert significance._middle(np.arange(1000.0)[::-1]) == Interval(25.0, 974.0)
    assert significance._middle(np.array([3.0])) == Interval(3.0, 3.0)


@pytest.mark.parametrize("test", ["randomisation", "bootstrap"])
def test_a_system_does_not_differ_from_itself(systems, test):
    references, outputs, *_ = systems
    stats = extract_stats(outputs, references)
    for one in differences(stats, stats, test).values():
        assert one.p == 1.0
        assert str(one) == "no significant difference, p = 1.000"
        assert one.interval == Interval(0.0, 0.0)


@pytest.mark.parametrize("test", ["randomisation", "bootstrap"])
def test_what_is_clearly_better_is_said_to_be(systems, test):
    references, outputs, *_ = systems
    good, bad = extract_stats(references, references), extract_stats(outputs, references)
    for one in differences(good, bad, test).values():
        assert one.p < 0.01
        assert str(one).startswith("better, p < 0.001")
    for name, one in differences(bad, good, test).items():
        assert one.verdict == "worse"
        assert (one.value > 0) == (name == "ter")
        assert one.interval.low < one.value < one.interval.high


def test_chance_is_found_about_as_often_as_it_should_be():
    """Two systems that are the same but for luck: p under 0.2 in about a fifth of the cases."""
    low = 0
    for seed in range(60):
        pick = random.Random(seed)
        _, references = corpus(40, seed=seed)
        pair = [extract_stats([spoiled(r, pick, 0.3) for r in references], references, ["chrf"]) for _ in range(2)]
        low += differences(*pair, resamples=0)["chrf"].p < 0.2
    assert 4 <= low <= 22


def test_the_seed_decides(systems):
    references, outputs, *_ = systems
    stats = extract_stats(outputs, references)
    assert intervals(stats, 100, 1) == intervals(stats, 100, 1) != intervals(stats, 100, 2)


def test_words_and_records():
    one = Difference("ter", 40.0, 42.5, Interval(-4.0, -1.0), 0.0312)
    assert (str(one), one.value) == ("better, p = 0.031", -2.5)
    assert one.plain() == {
        "first": 40.0,
        "second": 42.5,
        "difference": -2.5,
        "interval": [-4.0, -1.0],
        "p": 0.0312,
        "verdict": "better",
    }
    assert str(Difference("bleu", 40.0, 42.5, None, 0.05)) == "no significant difference, p = 0.050"
    assert Difference("bleu", 40.0, 42.5, None, 0.0001).plain()["interval"] is None


def test_mistakes_are_named(systems):
    references, outputs, *_ = systems
    stats = extract_stats(outputs, references, ["chrf"])
    with pytest.raises(ConfigError, match="unknown test 'bootstrp'; choose one of bootstrap, randomisation. Did you"):
        differences(stats, stats, "bootstrp")
    with pytest.raises(DataError, match="90 translations of one system and 1 of the other"):
        differences(stats, extract_stats(["a"], ["a"], ["chrf"]))
    with pytest.raises(ConfigError, match="'bootstrap' needs resamples"):
        differences(stats, stats, "bootstrap", resamples=0)
    with pytest.raises(ConfigError, match="resamples are 0, expected 1 or more"):
        intervals(stats, 0)
    assert differences(stats, stats, resamples=0)["chrf"].interval is None


def test_sentences_side_by_side():
    first = extract_stats(
        ["a b c d", "x y z w", "same here", "far too long a thing"], references := ["a b c d", "p q", "s t", "far"]
    )
    second = extract_stats(["a b x d", "p q", "same here", "far"], references)
    for by in ("chrf", "bleu", "ter"):
        found = compare_stats(first, second, by)
        assert (found.wins, found.ties, found.losses) == (1, 1, 2)
        assert set(found.order()[:2]) == {1, 3}
        assert found.order()[2:] == [2, 0]
        gains = found.gains[found.order()]
        assert (np.diff(gains) >= 0).all()
        assert found.differences.keys() == {"bleu", "chrf", "ter", "exact"}
    with pytest.raises(ConfigError, match="unknown metric 'cherf'.* Did you mean 'chrf'"):
        compare_stats(first, second, "cherf")
