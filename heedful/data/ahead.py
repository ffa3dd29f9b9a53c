"""Making the next few things in a thread while the last one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


class _Over(NamedTuple):
    """The last thing that the thread gives: why there are no more."""

    error: BaseException | None


@contextmanager
def ahead(items: Iterable[T], count: int) -> Iterator[Iterator[T]]:
    """Give the items in their order, up to `count` of them made before they are asked for.

    An error comes where the item that could not be made would have come. Leaving the block ends the thread.

    >>> with ahead(iter("abc"), 2) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    made: Queue[T | _Over] = Queue(max(1, count))
    stop = Event()

    def make() -> None:
        try:
            for item in items:
                made.put(item)
                if stop.is_set():
                    return
            made.put(_Over(None))
        except BaseException as error:
            made.put(_Over(error))

    def taken() -> Iterator[T]:
        while not isinstance(item := made.get(), _Over):
            yield item
        if item.error is not None:
            raise item.error

    thread = Thread(target=make, name="ahead", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        while thread.is_alive():  # it may be waiting for a place
            try:
                made.get_nowait()
            except Empty:
                thread.join(0.01)
