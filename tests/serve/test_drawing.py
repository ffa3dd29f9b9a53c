"""Figures are drawn by another process: nothing else waits for it, and it is replaced when it fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from random_translators import random_translator
from running import Running, post, running

from heedful.errors import DataError, WorkerError
from heedful.serve.engine import drawing
from heedful.serve.engine.drawing import DrawingPool, DrawRequest, OverloadedError
from heedful.serve.limits import Limits
from heedful.trace import Trace

# A drawing process that does what the title says, and draws in no time.
FAKE = """
import os, time
from heedful.serve.engine import drawing
class Panic(BaseException): pass
def draw(request):
    kind, _, value = request.title.partition(" ")
    if kind == "sleep": time.sleep(float(value))
    if kind == "die": os._exit(3)
    if kind == "panic": raise Panic("not yet implemented")
    if kind == "fill": return bytes(bytearray(int(value)))
    if kind == "wrong": raise drawing.DataError("no font")
    return f"{os.getpid()} {request.title}".encode()
drawing.draw = draw
main = drawing.main
"""


def trace() -> Trace:
    return random_translator("rnn").translate("a b c").trace


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], DrawingPool]]:
    (tmp_path / "fake_drawing.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.setattr(drawing, "BACKOFF", (0.01, 0.05))
    made: list[DrawingPool] = []

    def make(size: int = 1) -> DrawingPool:
        made.append(DrawingPool(size, "fake_drawing"))
        return made[-1]

    yield make
    for pool in made:
        pool.close()
        assert not pool.processes


def test_a_process_that_dies_or_panics_is_replaced(fake: Callable[[], DrawingPool]) -> None:
    one = trace()

    async def all_of_it() -> None:
        pool = fake()

        async def ask(title: str) -> str:
            return (await pool.draw(DrawRequest(one, "heatmap", "svg", title))).decode()

        first = (await ask("a")).split()[0]
        assert await ask("b") == f"{first} b", "the process stays"
        with pytest.raises(DataError, match="no font"):
            await ask("wrong")
        with pytest.raises(RuntimeError, match="not yet implemented"):
            await ask("panic")
        assert await ask("c") == f"{first} c", "an error ends no process"
        assert pool.restarts == 0
        with pytest.raises(WorkerError, match="exit code 3"):
            await ask("die")
        second = (await ask("d")).split()[0]
        assert second != first
        os.kill(int(second), signal.SIGKILL)  # between two figures: the next one is drawn all the same
        while os.path.exists(f"/proc/{second}") and "Z" not in Path(f"/proc/{second}/stat").read_text().split()[2]:
            await asyncio.sleep(0.01)
        assert (await ask("e")).split()[1] == "e"
        assert pool.restarts == 2
        with pytest.raises(MemoryError):
            await ask(f"fill {2 * drawing.MEMORY}")
        assert (await ask("f")).split()[1] == "f"

    asyncio.run(all_of_it())


def test_who_gives_up_frees_the_process_and_the_queue_is_bounded(
    fake: Callable[[], DrawingPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trace()
    monkeypatch.setattr(drawing, "WAITING", 2)

    async def all_of_it() -> None:
        pool = fake()
        first = (await pool.draw(DrawRequest(one, "heatmap", "svg", "x"))).split()[0]
        long = asyncio.ensure_future(pool.draw(DrawRequest(one, "heatmap", "svg", "sleep 1000")))
        await asyncio.sleep(0)
        while pool.jobs.qsize():
            await asyncio.sleep(0.01)
        waits = [asyncio.ensure_future(pool.draw(DrawRequest(one, "heatmap", "svg", f"{i}"))) for i in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await pool.draw(DrawRequest(one, "heatmap", "svg", "y"))
        monkeypatch.setattr(drawing, "WAITING", 10)
        pool.seconds = 3.0  # seconds for a figure: there are two before
        with pytest.raises(OverloadedError) as caught:
            await pool.draw(DrawRequest(one, "heatmap", "svg", "y"), within=5.0)
        assert caught.value.after == 6
        waits[0].cancel()
        long.cancel()  # as the end of a request's time does
        assert (await waits[1]).split()[1] == b"1"
        assert (await waits[1]).split()[0] != first, "the process that slept is gone"

    asyncio.run(asyncio.wait_for(all_of_it(), 60))


def test_dropped_figures_do_not_wait_and_bytes_are_bounded(
    fake: Callable[[], DrawingPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = trace()
    size = drawing._trace_bytes(one)
    monkeypatch.setattr(drawing, "WAITING", 2)

    async def all_of_it() -> None:
        pool = fake()

        def ask(title: str) -> asyncio.Future[bytes]:
            return asyncio.ensure_future(pool.draw(DrawRequest(one, "heatmap", "svg", title)))

        long = ask("sleep 1000")
        await asyncio.sleep(0)
        while not all(job.started for job in pool.live):
            await asyncio.sleep(0.01)
        waits = [ask("a"), ask("b")]
        await asyncio.sleep(0)
        jobs = [job for job in pool.live if not job.started]
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert [job.request for job in jobs] == [None, None], "their traces stay in memory"
        assert pool.jobs.qsize() == 2
        last = ask("c")  # the two that were dropped are in its way no more
        await asyncio.sleep(0)
        assert not last.done()
        monkeypatch.setattr(drawing, "WAITING", 10)
        monkeypatch.setattr(drawing, "WAITING_BYTES", 3 * size - 1)
        with pytest.raises(OverloadedError, match="no memory"):
            await ask("d")
        long.cancel()
        assert (await last).split()[1] == b"c"
        monkeypatch.setattr(drawing, "WAITING_BYTES", 1)
        assert (await ask("e")).split()[1] == b"e", "one alone always fits"
        assert not pool.live

    asyncio.run(asyncio.wait_for(all_of_it(), 60))


def test_a_process_that_cannot_be_started_is_tried_again(
    fake: Callable[[], DrawingPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, spawn, tries = trace(), drawing.spawn, 0

    def fails_once(*arguments: object, **named: object) -> object:
        nonlocal tries
        tries += 1
        if tries == 1:
            for side in ("ours", "theirs"):
                named[side].close()  # type: ignore[attr-defined]
            raise AssertionError("pass_fds not supported on Windows.")
        return spawn(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(drawing, "spawn", fails_once)

    async def ask() -> bytes:
        return await fake().draw(DrawRequest(one, "heatmap", "svg", "a"))

    assert asyncio.run(asyncio.wait_for(ask(), 60)).split()[1] == b"a"
    assert tries == 2


def test_without_processes_a_thread_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    one = trace()
    monkeypatch.setattr(drawing, "PROCESSES", False)

    async def ask() -> tuple[bytes, list[int]]:
        pool = DrawingPool(1)
        try:
            return await pool.draw(DrawRequest(one, "heatmap", "svg", "a")), pool.processes
        finally:
            pool.close()

    content, processes = asyncio.run(ask())
    assert content.startswith(b"<svg")
    assert not processes


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    translator = random_translator("transformer", kind="word", max_length=400)
    with running({"m": translator}, Limits(png_cells=100)) as found:
        yield found


def test_nothing_is_drawn_in_the_process_of_the_service(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here drawing fails: what comes back was drawn elsewhere."""

    def never(*_: object, **__: object) -> object:
        raise AssertionError("drawn in the process of the service")

    for name in ("heedful.draw.views.view", "heedful.draw.html.page", "heedful.draw.png.render"):
        monkeypatch.setattr(name, never)
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<svg"), ("html", b"<!doctype")):
        status, content = post(service.url, "/v1/figure", {"text": "a b c", "target": "A B", "format": kind})
        assert (status, content[: len(begins)].lower()) == (200, begins.lower())
    (pid,) = service.service.drawing.processes
    assert pid != os.getpid()


def test_a_png_of_too_many_cells_is_refused(service: Running) -> None:
    text = " ".join("abcdefgh" * 2)
    for asked in ({"target": text}, {"view": "self"}):
        body = {"text": text, **asked}
        status, content = post(service.url, "/v1/figure", {**body, "format": "png"})
        problem = json.loads(content)
        assert (status, problem["field"], problem["allowed"]) == (413, "format", 100)
        assert "289 cells" in problem["detail"]
        assert post(service.url, "/v1/figure", {**body, "format": "svg"})[0] == 200


def test_all_figures_have_a_limit_of_cells(service: Running) -> None:
    text = " ".join("abcdefgh" * 45)
    limits, service.service.limits = service.service.limits, replace(service.service.limits, cells=1000)
    try:
        for asked in ({"target": text}, {"view": "self"}, {}):
            status, content = post(service.url, "/v1/figure", {"text": text, "format": "svg", **asked})
            assert (status, "1,000 are allowed" in json.loads(content)["detail"]) == (413, True), asked
    finally:
        service.service.limits = limits


def test_a_figure_counts_in_the_time_of_its_request(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> bytes:
        await asyncio.sleep(1000)
        return b""

    monkeypatch.setattr(service.service.drawing, "draw", never)
    limits, service.service.limits = service.service.limits, replace(service.service.limits, seconds=0.3)
    try:
        assert post(service.url, "/v1/figure", {"text": "a b", "target": "A", "format": "png"})[0] == 504
    finally:
        service.service.limits = limits


def test_a_picture_without_a_service_has_a_bound_too() -> None:
    pytest.importorskip("resvg_py")
    from heedful.draw.png import render

    head = '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{0}"><style></style><text>a</text></svg>'
    with pytest.raises(DataError, match="80,000 × 80,000 units is too large for PNG"):
        render(head.format(80_000))
    small = render(head.format(2_000), pixels=1_000_000)
    assert int.from_bytes(small[16:20], "big") == 1_000  # the width in the header
