"""Alignments: links as people and programs write them, and nothing lost on the way through JSON."""

import json

import numpy as np
import pytest

from heedful.errors import DataError
from heedful.trace import Word
from heedful.trace.alignment import Alignment, Link
from heedful.trace.readout import Readout

SOURCE = (Word("मैं", 0, 3, 0, 1), Word("खाता", 4, 8, 1, 3), Word("हूँ", 9, 12, 3, 4))
TARGET = (Word("I", 0, 1, 0, 1), Word("eat", 2, 5, 1, 2))
WEIGHTS = np.array([[0.75, 0.0, 0.25], [0.03, 0.5, 0.25]], dtype=np.float32)
FOUND = Alignment(SOURCE, TARGET, (Link(0, 0, 0.75), Link(1, 1, 0.5), Link(2, 1, 0.25)), WEIGHTS, Readout(2, (1,)))


def test_as_pharaoh():
    assert str(FOUND) == "0-0 1-1 2-1"
    assert str(Alignment((), (), (), np.zeros((0, 0), np.float32))) == ""
    assert FOUND.pairs == {(0, 0), (1, 1), (2, 1)}


def test_the_soft_form():
    assert FOUND.soft() == (Link(0, 0, 0.75), Link(1, 1, 0.5), Link(2, 0, 0.25), Link(2, 1, 0.25))
    assert FOUND.soft(0.5) == (Link(0, 0, 0.75), Link(1, 1, 0.5))


def test_nothing_is_lost_in_json():
    again = Alignment.build(json.loads(json.dumps(FOUND.plain())))
    assert (again.links, again.readout, str(again)) == (FOUND.links, FOUND.readout, str(FOUND))
    np.testing.assert_allclose(again.weights, WEIGHTS)
    assert [word[:3] for word in again.source] == [word[:3] for word in SOURCE]
    assert [word[:3] for word in again.target] == [word[:3] for word in TARGET]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"links": [[0, 2, 0.5]]}, "link 0-2: .*3 source and 2 target words"),
        ({"links": [[3, 0, 0.5]]}, "link 3-0: .*3 source and 2 target words"),
        ({"links": [[-1, 0, 0.5]]}, "link -1-0"),
        ({"links": [[0, 0]]}, "alignment"),
        ({"soft": [[0.5]]}, "alignment"),
        ({"readout": {"layer": "x"}}, "read-out"),
        ({"source_words": None}, "alignment"),
    ],
)
def test_what_is_none_is_refused(change, words):
    with pytest.raises(DataError, match=words):
        Alignment.build({**FOUND.plain(), **change})
