"""The event loop is for everybody: nothing that takes long is done in it.

How long something takes by the clock says how busy the machine is. What is measured is the processor's time of the
event loop's thread between two beats of a coroutine, and who is asked to cut texts into tokens.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")

from hypothesis import given, settings
from hypothesis import strategies as st
from random_translators import random_translator
from running import Running, post, running

from heedful.serve.http.app import SMALL
from heedful.serve.http.security import count_values
from heedful.serve.limits import Limits
from heedful.text.codec import Codec, Encoded

MOST = 0.1  # seconds of the processor's time
WORDS = "Bead cafe deaf face! "
HOSTILE = {
    "long": ("/v1/translate", {"text": WORDS * 150}),
    "one cluster": ("/v1/translate", {"text": "👩\u200d" * 2_500}),
    "flags": ("/v1/translate", {"text": "🇮🇳" * 2_500}),
    "traced": ("/v1/translate", {"text": WORDS * 12, "trace": True}),
    "items": ("/v1/translate", {"text": [WORDS * 3] * 64, "alignments": True}),
    "brackets": ("/v1/translate", {"text": "[{" * 4_000}),
    "markup": ("/v1/translate", {"text": "<b>a</b> " * 300, "markup": True}),
    "stream": ("/v1/stream", {"text": WORDS * 12}),
    "align": ("/v1/align", {"pairs": [{"source": WORDS * 12, "target": WORDS * 12}] * 48}),
    "figure": ("/v1/figure", {"text": WORDS * 12, "target": WORDS * 12, "format": "svg"}),
    "nested": ("/v1/translate", {"text": [[["a"]]] * 100_000}),
    "objects": ("/v1/align", {"pairs": [{"source": []}] * 60_000}),
    "numbers": ("/v1/translate", {"text": [1] * 400_000}),
    "floats": ("/v1/translate", {"text": [1.5] * 390_000}),
    "keys": ("/v1/translate", {f"{i:x}": 0 for i in range(150_000)}),
}


class Beat:
    """The most processor time that the thread of an event loop took between two beats."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.most = 0.0
        self.thread = 0
        asyncio.run_coroutine_threadsafe(self._run(), loop)

    async def _run(self) -> None:
        self.thread = threading.get_ident()
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.002)
            self.most = max(self.most, time.thread_time() - before)


@contextmanager
def beating() -> Iterator[tuple[Running, Beat]]:
    with running({"m": random_translator("transformer", max_length=64)}, Limits(seconds=60)) as service:
        yield service, Beat(service.service.engine.scheduler.loop)


def test_nothing_blocks_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    encode, sizes = Codec.encode_all, []

    def watched(codec: Codec, texts: Sequence[str]) -> list[Encoded]:
        sizes.append((threading.get_ident(), sum(map(len, texts))))
        return encode(codec, texts)

    monkeypatch.setattr(Codec, "encode_all", watched)
    with beating() as (service, beat):
        post(service.url, "/v1/translate", {"text": "a"})  # what is imported late is imported
        post(service.url, "/v1/figure", {"text": "a", "target": "A"})
        for name, (path, body) in HOSTILE.items():
            beat.most = 0.0
            status, _ = post(service.url, path, body)
            assert status in ((422,) if name in ("nested", "objects", "numbers", "floats", "keys") else (200, 413)), (
                name
            )
            assert beat.most < MOST, f"{name}: {beat.most * 1e3:.0f} ms in the event loop"
        assert max(size for thread, size in sizes if thread == beat.thread) <= SMALL
        assert max(size for thread, size in sizes if thread != beat.thread) > SMALL


def test_translations_get_their_turn_between_slices_of_an_alignment() -> None:
    """An alignment is many calls to the model, none of more than a slice; others are translated in between."""
    translator = random_translator("transformer", max_length=64)
    read_pairs, calls, order = translator.pairs, [], []

    def watched(sources: Sequence[str], targets: Sequence[str], read: object) -> object:
        calls.append(sum(map(len, sources)))
        order.append("align")
        time.sleep(0.02)
        return read_pairs(sources, targets, read)  # type: ignore[arg-type]

    translator.pairs = watched  # type: ignore[method-assign,assignment]
    pairs = [{"source": WORDS * 3, "target": WORDS * 3}] * 100
    with running({"m": translator}, Limits(seconds=60, batch_tokens=256)) as service:
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                assert post(service.url, "/v1/translate", {"text": "a b"})[0] == 200
                order.append("translate")

        other = threading.Thread(target=ask)
        other.start()
        try:
            assert post(service.url, "/v1/align", {"pairs": pairs})[0] == 200
        finally:
            done.set()
            other.join()
    assert len(calls) > 8
    first, last = order.index("align"), len(order) - order[::-1].index("align")
    assert "translate" in order[first:last], "nobody got a turn before the alignment was done"


def test_an_alignment_stops_when_its_time_is_up() -> None:
    translator = random_translator("transformer", max_length=64)
    calls = []

    read_pairs = translator.pairs

    def slowly(sources: Sequence[str], targets: Sequence[str], read: object) -> object:
        calls.append(len(sources))
        time.sleep(0.2)
        return read_pairs(sources, targets, read)  # type: ignore[arg-type]

    translator.pairs = slowly  # type: ignore[method-assign,assignment]
    pairs = [{"source": WORDS * 3, "target": WORDS * 3}] * 128
    with running({"m": translator}, Limits(seconds=0.5)) as service:
        assert post(service.url, "/v1/align", {"pairs": pairs})[0] == 504
        made = len(calls)
        time.sleep(0.5)
        assert len(calls) <= made + 1, "it goes on for nobody"


JSON = st.recursive(
    st.text() | st.integers() | st.booleans(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=8
)


@settings(max_examples=40)
@given(JSON)
def test_values_are_counted_as_they_are_parsed(value: object) -> None:
    def count(one: object) -> int:
        if isinstance(one, dict):
            return max(1, len(one)) + sum(map(count, one.values()))
        return max(1, len(one)) + sum(map(count, one)) if isinstance(one, list) else 0

    for ascii_only in (True, False):
        body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "backslashreplace")
        assert count_values(body, 10**6) == count(value)
        assert count_values(body, 2) == min(count(value), 3)
