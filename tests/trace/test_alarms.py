"""What weights warn of, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from heedful.draw.html import record
from heedful.draw.trace_codec import decode_trace, encode_trace
from heedful.draw.views import view
from heedful.errors import ConfigError, DataError
from heedful.trace import Text, Trace, Word
from heedful.trace.alarms import KINDS, Alarm, AlarmLimits, AlarmRates, alarms, measure
from heedful.trace.readout import Readout


def text_of(sentence: str) -> Text:
    """A sentence with one token for each word."""
    words, at = [], 0
    for i, word in enumerate(sentence.split()):
        start = sentence.index(word, at)
        at = start + len(word)
        words.append(Word(word, start, at, i, i + 1))
    n = len(words)
    words.append(Word("</s>", len(sentence), len(sentence), n, n + 1))
    return Text(sentence, tuple(w.text for w in words), tuple((w.start, w.end) for w in words), tuple(words))


def trace_of(source: str, target: str, rows: Sequence[Sequence[float]]) -> Trace:
    weights = np.array(rows, dtype=np.float32)[None, None]
    return Trace(text_of(source), text_of(target), weights, np.zeros(len(rows), dtype=np.float32))


GOOD = trace_of(
    "a b c .", "x y z !", [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
)


def test_a_good_one_has_none() -> None:
    assert alarms(GOOD) == ()
    found = measure(GOOD)
    assert found is not None
    assert found == pytest.approx((0, 0, 0, 0), abs=1e-9)


def test_words_that_nothing_looked_at() -> None:
    """The neighbours' states know of a word: it counts as looked at when they are."""
    rows: list[list[float]] = [[0.95, 0, 0, 0.05, 0, 0], [0, 0.1, 0.2, 0.2, 0.5, 0], [0, 0, 0, 0, 0, 1]]
    trace = trace_of("a b c d e", "x z", rows)
    (found,) = alarms(trace)
    assert found._replace(measure=0) == Alarm("unseen", 0, (2,), (), "little attention on 'c'")
    assert found.measure == pytest.approx(1 - (0.95 + 0.1 + 0.2 + 0.2 + 0.5) / 5)
    assert alarms(trace, AlarmLimits(unseen=0.2)) == ()  # 'd' got 0.25


def test_looking_again_and_again() -> None:
    rows = [[0, 0.96, 0.02, 0.02, 0]] * 5 + [[0.9, 0, 0.1, 0, 0], [0, 0, 0, 0, 1]]
    trace = trace_of("a b c d", "x x x x x y", rows)
    found = [alarm for alarm in alarms(trace) if alarm.kind == "repeated"]
    assert [(alarm.source, alarm.target) for alarm in found] == [((1,), (0, 1, 2, 3, 4))]
    assert found[0].measure == pytest.approx(4 / 6)
    assert found[0].message == "'b' has the attention of 4.8 words: 'x', 'x', 'x', 'x', 'x'"
    assert not any(alarm.kind == "repeated" for alarm in alarms(trace, AlarmLimits(repeated=3.3)))
    assert any(alarm.kind == "repeated" for alarm in alarms(trace, AlarmLimits(repeated=3.1)))


def test_a_short_source_is_looked_at_often_by_right() -> None:
    trace = trace_of("a", "w x y z", [[1, 0]] * 4 + [[0, 1]])
    assert alarms(trace) == ()


def test_going_round_in_circles() -> None:
    trace = trace_of("a b", "x " * 30, [[1, 0, 0]] * 30 + [[0, 0, 1]])
    assert "repeated" in [alarm.kind for alarm in alarms(trace)]


def test_mass_lost_to_sinks() -> None:
    trace = trace_of("a b .", "x y .", [[0.4, 0, 0.3, 0.3], [0, 0.5, 0.2, 0.3], [0, 0, 1, 0], [0, 0, 0, 1]])
    (found,) = alarms(trace)
    assert found.kind == "sink"
    assert found.measure == pytest.approx(1.1 / 2)
    assert found.message == "55% of the attention is on punctuation and the end of the sentence"
    assert alarms(trace, AlarmLimits(sink=0.56)) == ()


def test_flat_rows_are_of_words() -> None:
    trace = trace_of("a b c", "x y .", [[1, 0, 0, 0], [0.25, 0.3, 0.25, 0.2], [0.25] * 4, [0, 0, 0, 1]])
    found = [alarm for alarm in alarms(trace) if alarm.kind == "flat"]
    assert [(alarm.target, alarm.message) for alarm in found] == [((1,), "attention is nearly uniform for 'y'")]


def test_weights_that_are_flat_for_most_words_say_little() -> None:
    even = [0.25, 0.3, 0.25, 0.2]
    trace = trace_of("a b c", "w x y z", [[1, 0, 0, 0], even, even, even, [0, 0, 0, 1]])
    (found,) = [alarm for alarm in alarms(trace) if alarm.kind == "flat"]
    assert found.target == (1, 2, 3)
    assert found.message == "attention is nearly uniform for 3 of 4 words"


def test_many_words_are_not_all_named() -> None:
    trace = trace_of("a b c d e f g h", "x", [[1] + [0] * 8, [0] * 8 + [1]])
    (found,) = alarms(trace)
    assert found.source == (2, 3, 4, 5, 6, 7)
    assert found.message == "little attention on 'c', 'd', 'e', 'f', 'g' and 1 more"


def test_nothing_to_look_at() -> None:
    nothing = Trace(text_of("a"), text_of("x"), None, np.zeros(2, dtype=np.float32))
    assert measure(nothing) is None
    assert alarms(nothing) == ()
    assert alarms(trace_of("", "", [[1]])) == ()
    assert alarms(trace_of("! ?", "x", [[0.5, 0.5, 0], [0, 0, 1]])) == ()


def test_sentences_of_a_text_end_each_for_itself() -> None:
    whole = Trace.join("a b c . a b c .", "x y z ! x y z !", [(0, 0), (8, 8)], [GOOD, GOOD])
    assert alarms(whole) == ()
    bad = trace_of("a b c d", "x y", [[0.4, 0, 0.6, 0, 0], [0.2, 0.2, 0.2, 0.2, 0.2], [0, 0, 0, 0, 1]])
    both = Trace.join("a b c . a b c d", "x y z ! x y", [(0, 0), (8, 8)], [GOOD, bad])
    (found,) = alarms(bad)
    (again,) = alarms(both)
    assert (found.kind, found.target, again.target) == ("flat", (1,), (6,))
    assert found.message == again.message


def test_what_is_no_whole_translation_by_attention_has_none() -> None:
    trace = trace_of("a b c", "x", [[1, 0, 0, 0], [0, 0, 0, 1]])
    assert alarms(trace)
    assert not alarms(replace(trace, readout=Readout(attention=False)))
    assert not alarms(replace(trace, target=replace(trace.target, words=trace.target.words[:-1])))


def test_as_json() -> None:
    (found,) = alarms(trace_of("a b c", "x", [[1, 0, 0, 0], [0, 0, 0, 1]]))
    assert found.plain() == {
        "kind": "unseen",
        "measure": 0.6667,
        "source": [2],
        "target": [],
        "message": "little attention on 'c'",
    }
    assert found.kind in KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_limits_are_above_zero(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}' is 0"):
        AlarmLimits(**{kind: 0.0})


# Rates as measured on the demo, where an alarm is as frequent for right translations, and those of a useful alarm.
CHANCE = AlarmRates(200, 300, (("unseen", 22, 36), ("repeated", 40, 15), ("sink", 0, 3), ("flat", 30, 60)))


def test_alarms_near_chance_are_not_shown() -> None:
    assert [CHANCE.shows(kind) for kind in KINDS] == [False, True, True, False]  # sink is too rare to judge
    rows = [[0.25, 0.25, 0.25, 0.25, 0], [0, 0.96, 0.02, 0.02, 0], *[[0, 0.96, 0.02, 0.02, 0]] * 4, [0, 0, 0, 0, 1]]
    trace = trace_of("a b c d", "w x x x x x", rows)
    assert {alarm.kind for alarm in alarms(trace)} == {"repeated", "flat"}  # not measured: all are shown
    measured = replace(trace, readout=replace(trace.readout, alarms=CHANCE))
    assert {alarm.kind for alarm in alarms(measured)} == {"repeated"}
    assert alarms(measured, every=True) == alarms(trace)
    # And so in pictures, on pages, and in what is sent to a client.
    assert "nearly uniform" in view([trace])
    assert "nearly uniform" not in view([measured])
    assert [alarm["kind"] for alarm in record([measured])["traces"][0]["alarms"]] == ["repeated"]
    sent = decode_trace(encode_trace(measured, ""), measured.source.text, measured.target.text)
    assert {alarm.kind for alarm in alarms(sent)} == {"repeated"}


@pytest.mark.parametrize(
    ("wrong", "right", "raised", "shown"),
    [
        (100, 300, (9, 9), True),  # 9 % and 3 %
        (100, 300, (9, 18), False),  # 9 % and 6 %: within chance
        (1000, 3000, (90, 180), True),  # the same rates, measured on more
        (100, 300, (0, 30), False),  # more often for right ones
        (19, 300, (0, 150), True),  # too few wrong ones to judge by
        (300, 19, (0, 19), True),  # and too few right ones
        (100, 300, (4, 5), True),  # too rare to judge
        (20, 20, (20, 0), True),
        (20, 20, (20, 20), False),
    ],
)
def test_the_rule_for_near_chance(wrong: int, right: int, raised: tuple[int, int], shown: bool) -> None:
    rates = AlarmRates(wrong, right, (("flat", *raised),))
    assert rates.shows("flat") is shown
    assert rates.shows("unseen")  # not measured
    low, high = rates.difference(*raised)
    assert low <= raised[0] / wrong - raised[1] / right <= high
    assert -1 <= low < high <= 1


def test_the_interval_is_newcombes() -> None:
    """His example (1998, table II, method 10): 56 of 70 and 48 of 80."""
    assert AlarmRates(70, 80, ()).difference(56, 48) == pytest.approx((0.0524, 0.3339), abs=1e-4)


@pytest.mark.parametrize(
    ("plain_", "fault"),
    [
        ([], "expected an object"),
        ({"wrong": 1, "right": 1}, "raised"),
        ({"wrong": "1", "right": 1, "raised": {}}, "wrong"),
        ({"wrong": 1, "right": 1, "raised": []}, "raised"),
        ({"wrong": 1, "right": 1, "raised": {"loud": [0, 0]}}, "'loud'"),
        ({"wrong": 1, "right": 1, "raised": {"flat": [2, 0]}}, "'flat'.* 2 of 1 wrong"),
        ({"wrong": 1, "right": 1, "raised": {"flat": [0]}}, "'flat'"),
        ({"wrong": 1, "right": 1, "raised": {"flat": [0.5, 0]}}, "0.5"),
        ({"wrong": -1, "right": 1, "raised": {}}, "from 0"),
        ({"wrong": 10**400, "right": 1, "raised": {}}, "1,000,000,000"),
    ],
)
def test_rates_of_strangers_are_checked(plain_: object, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        Readout.build({"alarms": plain_})


def test_a_readout_without_rates_still_loads_and_shows_all() -> None:
    old = Readout().plain()
    del old["alarms"]
    assert Readout.build(old) == Readout()
    assert Readout.build(old).alarms is None
