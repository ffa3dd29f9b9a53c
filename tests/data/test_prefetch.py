"""Prefetching: the same items in the same order, errors in their place, no thread left."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batches import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "heedful-prefetch"]


@given(st.lists(st.integers()), st.integers(1, 5))
def test_the_same_in_the_same_order(items, count):
    with prefetch(items, count) as made:
        assert list(made) == items
        assert next(made, "over") == "over"
    assert not threads()


def test_they_are_made_before_they_are_asked_for_but_not_many():
    made = []

    def items():
        for n in range(100):
            made.append(n)
            yield n

    with prefetch(items(), 3) as taken:
        until = time.time() + 60
        while len(made) < 4 and time.time() < until:
            time.sleep(0.01)
        time.sleep(0.05)
        assert made == [0, 1, 2, 3]  # three that wait, and one in the thread's hand
        assert next(taken) == 0
    assert not threads()
    assert len(made) < 10


def test_an_error_comes_in_its_place():
    def items():
        yield 1
        yield 2
        raise ValueError("no third")

    with prefetch(items(), 5) as made:
        assert [next(made), next(made)] == [1, 2]
        with pytest.raises(ValueError, match="no third"):
            next(made)
        assert next(made, "over") == "over"


def test_an_error_of_the_consumer_ends_the_thread():
    def for_ever():
        while True:
            yield 1

    def consume():
        with prefetch(for_ever(), 2) as made:
            raise ZeroDivisionError(next(made))

    with pytest.raises(ZeroDivisionError):
        consume()
    assert not threads()
