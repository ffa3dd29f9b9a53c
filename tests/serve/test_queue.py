"""Which sentences are decoded together: long ones leave room for short ones."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from types import SimpleNamespace

import pytest
import torch
from random_translators import random_translator

pytest.importorskip("fastapi")

from heedful.decoding import Decoding
from heedful.serve.engine.engine import DecoderThread, EncoderThread
from heedful.serve.engine.metrics import EngineMetrics
from heedful.serve.engine.queue import RequestQueue, startable
from heedful.serve.engine.request import EngineRequest, prepare
from heedful.serve.engine.scheduler import ModelTask, Scheduler
from heedful.serve.engine.worker import decode
from heedful.serve.limits import Limits


class FakeRequest:
    """What a queue needs of a request: the sizes of its sentences, and those that wait."""

    def __init__(self, *sizes: int, light: bool = True, client: str = "") -> None:
        self.sizes, self.waiting = sizes, deque(range(len(sizes)))
        self.running, self.dropped, self.key = 0, False, "model"
        self.light, self.client, self.continuous, self.arrived = light, client, True, 0.0
        how = SimpleNamespace(beam=1, n_best=1)
        self.prepared = SimpleNamespace(size=lambda i: sizes[i], pipeline=SimpleNamespace(how=how))


def queue_of(*requests: FakeRequest) -> RequestQueue:
    queue = RequestQueue()
    for request in requests:
        queue.add(request)
    return queue


def sizes(picked) -> list[int]:
    return [request.sizes[i] for request, i in picked]


def join(queue: RequestQueue, running: Counter[int], tokens: int = 4096, rows: int = 64) -> list[int]:
    """What joins, turn by turn, until nothing does."""
    joined: list[int] = []
    while queue.requests and (some := sizes(queue.pick_joining(list(queue.requests), tokens, rows, running))):
        running.update(some)
        joined += some
    return joined


def test_long_ones_take_half_of_the_batch() -> None:
    queue = queue_of(*(FakeRequest(*[256] * 40) for _ in range(4)))
    assert join(queue, Counter()) == [256] * 8


def test_short_ones_join_where_long_ones_wait() -> None:
    queue = queue_of(*(FakeRequest(*[256] * 40) for _ in range(4)))
    running: Counter[int] = Counter()
    join(queue, running)
    queue.add(FakeRequest(10, 12))
    assert join(queue, running) == [10, 12]


def test_long_ones_are_not_overtaken_for_ever() -> None:
    long = FakeRequest(256)
    queue = queue_of(long, *(FakeRequest(*[16] * 40) for _ in range(4)))
    running = Counter({16: 63})
    assert join(queue, running) == [], "a short one overtook a long one that has no room"
    running = Counter({16: 10})
    assert join(queue, running)[0] == 256


def test_one_that_is_longer_than_half_is_picked() -> None:
    assert join(queue_of(FakeRequest(300)), Counter(), tokens=400) == [300]
    assert join(queue_of(FakeRequest(300)), Counter(), tokens=200) == [300]


def test_a_turn_takes_a_quarter_of_the_tokens() -> None:
    queue = queue_of(*(FakeRequest(*[256] * 40) for _ in range(4)))
    assert sizes(queue.pick_joining(list(queue.requests), 4096, 64, Counter())) == [256] * 4
    queue = queue_of(FakeRequest(*[12] * 64))
    assert sizes(queue.pick_joining(list(queue.requests), 4096, 64, Counter())) == [12] * 64


def test_a_batch_of_its_own_takes_all() -> None:
    queue = queue_of(FakeRequest(*[256] * 40))
    assert sizes(queue.pick(list(queue.requests), 4096, 64)) == [256] * 16


def test_who_asks_for_little_has_little_ahead(scheduler: Scheduler) -> None:
    scheduler.queue = queue_of(FakeRequest(*[256] * 160), FakeRequest(10))
    assert scheduler.ahead(1) == 2  # one of each request: they take turns
    assert scheduler.ahead(20) == 21
    assert scheduler.ahead() == 65


@pytest.fixture
def scheduler() -> Scheduler:
    loop = asyncio.new_event_loop()
    loop.close()
    return Scheduler(Limits(), EngineMetrics(), loop, True)


def finished(request: FakeRequest) -> list[SimpleNamespace]:
    """Return the sentences of a request, as they are when they are to be read again."""
    request.trace = True
    return [
        SimpleNamespace(batch=None, request=request, index=i, hypotheses=[SimpleNamespace(ids=[1] * size)])
        for i, size in enumerate(request.sizes)
    ]


def test_sentences_are_read_again_in_turns_with_new_ones(scheduler: Scheduler) -> None:
    for light, many in ((True, 16), (False, 1)):  # of 64 tokens each: a quarter of 4,096, and a slice
        scheduler.finished = finished(FakeRequest(*[64] * 40, light=light))
        assert [len(group) for group in scheduler.take_finished(light)] == [many]
        assert len(scheduler.finished) == 40 - many


def test_before_a_light_request_there_are_light_ones_only(scheduler: Scheduler) -> None:
    heavy = FakeRequest(*[64] * 40, light=False)
    scheduler.queue = queue_of(heavy, FakeRequest(10), FakeRequest(10))
    scheduler.finished = finished(heavy)
    scheduler.tasks.append(ModelTask(lambda: None, None))
    assert scheduler.ahead(1, light=True) == 2
    assert scheduler.ahead(1) == 3 + 40 + 1


def test_light_work_is_taken_first_and_heavy_work_gets_a_third_of_the_time(scheduler: Scheduler) -> None:
    """A reader that has read a heavy piece for a second does no other one for two seconds, unless it is alone."""
    reader, light = EncoderThread(scheduler, 1), FakeRequest(10)
    scheduler.light.add(light)
    scheduler.finished = finished(FakeRequest(*[64] * 40, light=False))
    assert reader.take(0.0)
    assert [len(group) for group in reader.finished] == [1]
    reader.share.note(0.0, 1.0)
    assert not reader.take(2.9)
    assert scheduler.next_check(2.5, reader.share.left(2.5)) == 0.5
    scheduler.finished += finished(light)
    assert reader.take(2.9)
    assert [[one.request for one in group] for group in reader.finished] == [[light]]
    assert reader.take(3.0)
    assert [len(group) for group in reader.finished] == [1]
    reader.share.note(3.0, 4.0)
    scheduler.light.clear()
    assert reader.take(4.0), "nobody else is there, and it waits"


def test_heavy_work_of_each_kind_has_its_turn(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = EncoderThread(scheduler, 1)
    scheduler.queue = queue_of(*(FakeRequest(*[64] * 40, light=False) for _ in range(3)))
    scheduler.finished = finished(FakeRequest(*[64] * 40, light=False))
    scheduler.tasks.extend(ModelTask(lambda: None, None) for _ in range(3))
    monkeypatch.setattr(scheduler, "continuous_batch", lambda *_: Room())
    taken = []
    for now in range(6):
        assert reader.take(float(now))
        taken.append((len(reader.picked), len(reader.finished), reader.task is not None))
        reader.task, reader.picked = None, []
    assert taken == [(1, 0, False), (0, 1, False), (0, 0, True)] * 2


def test_no_heavy_sentences_are_begun_while_a_batch_is_to_be_read_again(scheduler: Scheduler) -> None:
    scheduler.queue = queue_of(FakeRequest(64, light=False))
    scheduler.finished = finished(FakeRequest(*[64] * scheduler.limits.batch_rows, light=False))
    assert scheduler.pick(0.0, light=False) == []


def test_clients_take_turns_to_have_heavy_requests_begun() -> None:
    many = [FakeRequest(64, light=False, client="a") for _ in range(40)]
    other = FakeRequest(64, light=False, client="b")
    assert startable([*many, other], set()) == {*many[:15], other}
    begun = set(many[:16])
    assert startable([*many, other], begun) == begun, "there is room for no more"
    begun = set(many[:15])
    assert startable([*many, other], begun) == {*begun, other}


def test_a_decoder_thread_steps_heavy_batches_in_turns_while_light_requests_are_there(scheduler: Scheduler) -> None:
    steps = DecoderThread(scheduler, 1)
    light, *heavy = batches = [Room(True), Room(False), Room(False)]
    steps.batches = lambda: batches
    assert steps.due(0.0) == batches
    scheduler.light.add(FakeRequest(10))
    assert steps.due(0.0) == [light, heavy[0]]
    steps.share.note(0.0, 1.0)
    steps.turns += 1
    assert steps.due(2.9) == [light]
    assert steps.due(3.0) == [light, heavy[1]]


def test_the_decoding_process_writes_heavy_sentences_in_a_third_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a heavy step takes a second, and a light one a quarter."""
    clock, steps = [0.0], []

    class Written:
        def __init__(self, name: str, seconds: float, many: int) -> None:
            self.name, self.seconds, self.left = name, seconds, many

        def __len__(self) -> int:
            return min(1, self.left)

        def step(self) -> list[object]:
            clock[0] += self.seconds
            self.left -= 1
            steps.append(self.name)
            return []

    class Line:
        def poll(self, _: float) -> bool:
            return False

        def recv(self) -> object:
            raise EOFError  # nothing is left to write

        def send(self, _: object) -> None:
            pass

    monkeypatch.setattr("heedful.serve.engine.worker.time", SimpleNamespace(monotonic=lambda: clock[0]))
    batches = {("m", True): Written("l", 0.25, 11), ("m", False): Written("H", 1.0, 5)}
    with pytest.raises(EOFError):
        decode(Line(), batches)
    assert "".join(steps) == "HllllllllHlllHHH"


def test_the_last_batch_is_for_light_requests(scheduler: Scheduler) -> None:
    last = scheduler.limits.batches - 1
    assert scheduler.pick_static("model", [FakeRequest(10, light=False)], 9.0, last) == []
    assert len(scheduler.pick_static("model", [FakeRequest(10, light=False)], 9.0, last - 1)) == 1
    assert len(scheduler.pick_static("model", [FakeRequest(10)], 9.0, last)) == 1


def test_a_heavy_batch_is_read_a_slice_at_a_time(scheduler: Scheduler) -> None:
    """In between, light requests are read; the batch is handed over when it is whole."""
    translator = random_translator("transformer")
    how = Decoding()
    loop = asyncio.new_event_loop()

    async def works() -> tuple[EngineRequest, EngineRequest]:
        long, short = (prepare("m", translator, [text], how, tokens=64) for text in ("a b c. " * 120, "a"))
        return EngineRequest(long, trace=False, on_token=lambda _: None), EngineRequest(short, trace=False)

    heavy, light = loop.run_until_complete(works())
    loop.close()
    assert (heavy.light, light.light) == (False, True)
    reader = EncoderThread(scheduler, 1)
    scheduler.queue.add(heavy)
    seen = []
    for turn in range(100):
        if turn == 1:
            scheduler.queue.add(light)
        assert reader.take(float(turn))
        seen.append([request is light for _, picked in reader.picked for request, _ in picked])
        assert reader.work(light=True) == (turn == 1)
        assert reader.work(light=False)
        batches = [batch for batch in scheduler.batches if not batch.continuous]
        if batches:
            break
        reader.turns = 0
    assert seen[:2] == [[], [True]], "the light one had to wait until the batch was read"
    assert len(seen) > 2
    (batch,) = batches
    alone = batch.decode_batch.pipeline.encode([segment.encoded for segment in batch.decode_batch.segments])
    assert torch.equal(alone.keep, batch.decode_batch.memory.keep)
    assert torch.allclose(alone.h[alone.keep], batch.decode_batch.memory.h[alone.keep], atol=1e-5)


class Room:
    """A batch with room."""

    def __init__(self, light: bool = False) -> None:
        self.light, self.live, self.rows, self.sizes, self.worker = light, {0: None}, 0, Counter(), None

    def count(self, picked) -> None:
        pass

    def chunked(self, picked) -> None:
        pass


def test_of_beams_over_long_texts_one_batch_is_written_at_a_time(scheduler: Scheduler) -> None:
    """On the CPU, and of a quarter of the tokens: the caches of two would take hundreds of megabytes."""
    scheduler.limits = Limits(wait=0)
    long = FakeRequest(*[256] * 8, light=False)
    long.prepared.pipeline.how = SimpleNamespace(beam=2, n_best=1)
    scheduler.queue = queue_of(long)
    assert sizes(scheduler.pick_static("beam", [long], 0.0, 0)) == [256] * 2
    scheduler.chunked = object()
    assert scheduler.pick_static("beam", [long], 0.0, 1) == []
    scheduler.on_cpu = False
    assert sizes(scheduler.pick_static("beam", [long], 0.0, 1)) == [256] * 6
