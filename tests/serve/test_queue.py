"""Which sentences are decoded together: long ones leave room for short ones."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from types import SimpleNamespace

import pytest
import torch
from random_translators import random_translator

pytest.importorskip("fastapi")

from heedful.decoding import Decoding
from heedful.serve.desk import Desk, Task
from heedful.serve.lanes import Batch
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.queue import Queue
from heedful.serve.reader import Reader
from heedful.serve.scribe import write
from heedful.serve.sharing import may_begin
from heedful.serve.work import Work, prepare
from heedful.serve.writing import Steps


class Request:
    """What a queue sees of a request: the sizes of its sentences, and those that wait."""

    def __init__(self, *sizes: int, light: bool = True, client: str = "") -> None:
        self.sizes, self.waiting = sizes, deque(range(len(sizes)))
        self.running, self.dropped, self.key = 0, False, "model"
        self.light, self.client, self.flows, self.born = light, client, True, 0.0
        how = SimpleNamespace(beam=1, n_best=1)
        self.prepared = SimpleNamespace(size=lambda i: sizes[i], writer=SimpleNamespace(how=how))


def queue_of(*requests: Request) -> Queue:
    queue = Queue()
    for request in requests:
        queue.add(request)
    return queue


def sizes(picked) -> list[int]:
    return [work.sizes[i] for work, i in picked]


def join(queue: Queue, running: Counter[int], tokens: int = 4096, rows: int = 64) -> list[int]:
    """What joins, turn by turn, until nothing does."""
    joined: list[int] = []
    while queue.works and (some := sizes(queue.pick_joining(list(queue.works), tokens, rows, running))):
        running.update(some)
        joined += some
    return joined


def test_long_ones_take_half_of_the_batch() -> None:
    queue = queue_of(*(Request(*[256] * 40) for _ in range(4)))
    assert join(queue, Counter()) == [256] * 8


def test_short_ones_join_where_long_ones_wait() -> None:
    queue = queue_of(*(Request(*[256] * 40) for _ in range(4)))
    running: Counter[int] = Counter()
    join(queue, running)
    queue.add(Request(10, 12))
    assert join(queue, running) == [10, 12]


def test_long_ones_are_not_overtaken_for_ever() -> None:
    long = Request(256)
    queue = queue_of(long, *(Request(*[16] * 40) for _ in range(4)))
    running = Counter({16: 63})
    assert join(queue, running) == [], "a short one overtook a long one that has no room"
    running = Counter({16: 10})
    assert join(queue, running)[0] == 256


def test_one_that_is_longer_than_half_is_picked() -> None:
    assert join(queue_of(Request(300)), Counter(), tokens=400) == [300]
    assert join(queue_of(Request(300)), Counter(), tokens=200) == [300]


def test_a_turn_takes_a_quarter_of_the_tokens() -> None:
    queue = queue_of(*(Request(*[256] * 40) for _ in range(4)))
    assert sizes(queue.pick_joining(list(queue.works), 4096, 64, Counter())) == [256] * 4
    queue = queue_of(Request(*[12] * 64))
    assert sizes(queue.pick_joining(list(queue.works), 4096, 64, Counter())) == [12] * 64


def test_a_batch_of_its_own_takes_all() -> None:
    queue = queue_of(Request(*[256] * 40))
    assert sizes(queue.pick(list(queue.works), 4096, 64)) == [256] * 16


def test_who_asks_for_little_has_little_ahead(desk: Desk) -> None:
    desk.queue = queue_of(Request(*[256] * 160), Request(10))
    assert desk.ahead(1) == 2  # one of each request: they take turns
    assert desk.ahead(20) == 21
    assert desk.ahead() == 65


@pytest.fixture
def desk() -> Desk:
    loop = asyncio.new_event_loop()
    loop.close()
    return Desk(Limits(), Metrics(), loop, True)


def written(work: Request) -> list[SimpleNamespace]:
    """Return the sentences of a request, as they are when they are to be read again."""
    work.trace = True
    return [
        SimpleNamespace(lane=None, work=work, index=i, hypotheses=[SimpleNamespace(ids=[1] * size)])
        for i, size in enumerate(work.sizes)
    ]


def test_sentences_are_read_again_in_turns_with_new_ones(desk: Desk) -> None:
    for light, many in ((True, 16), (False, 1)):  # of 64 tokens each: a quarter of 4,096, and a slice
        desk.over = written(Request(*[64] * 40, light=light))
        assert [len(group) for group in Reader(desk, 1)._group(light)] == [many]
        assert len(desk.over) == 40 - many


def test_before_a_light_request_there_are_light_ones_only(desk: Desk) -> None:
    heavy = Request(*[64] * 40, light=False)
    desk.queue = queue_of(heavy, Request(10), Request(10))
    desk.over = written(heavy)
    desk.tasks.append(Task(lambda: None, None))
    assert desk.ahead(1, light=True) == 2
    assert desk.ahead(1) == 3 + 40 + 1


def test_light_work_is_taken_first_and_heavy_work_gets_a_third_of_the_time(desk: Desk) -> None:
    """A reader that has read a heavy piece for a second does no other one for two seconds, unless it is alone."""
    reader, light = Reader(desk, 1), Request(10)
    desk.light.add(light)
    desk.over = written(Request(*[64] * 40, light=False))
    assert reader._take(0.0)
    assert [len(group) for group in reader.finishing] == [1]
    reader.share.note(0.0, 1.0)
    assert not reader._take(2.9)
    assert reader._soon(2.5) == 0.5
    desk.over += written(light)
    assert reader._take(2.9)
    assert [[one.work for one in group] for group in reader.finishing] == [[light]]
    assert reader._take(3.0)
    assert [len(group) for group in reader.finishing] == [1]
    reader.share.note(3.0, 4.0)
    desk.light.clear()
    assert reader._take(4.0), "nobody else is there, and it waits"


def test_heavy_work_of_each_kind_has_its_turn(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(desk, 1)
    desk.queue = queue_of(*(Request(*[64] * 40, light=False) for _ in range(3)))
    desk.over = written(Request(*[64] * 40, light=False))
    desk.tasks.extend(Task(lambda: None, None) for _ in range(3))
    monkeypatch.setattr(reader, "_lane", lambda *_: Room())
    taken = []
    for now in range(6):
        assert reader._take(float(now))
        taken.append((len(reader.picked), len(reader.finishing), reader.task is not None))
        reader.task, reader.picked = None, []
    assert taken == [(1, 0, False), (0, 1, False), (0, 0, True)] * 2


def test_no_heavy_sentences_are_begun_while_a_batch_is_to_be_read_again(desk: Desk) -> None:
    desk.queue = queue_of(Request(64, light=False))
    desk.over = written(Request(*[64] * desk.limits.batch_rows, light=False))
    assert Reader(desk, 1)._pick(0.0, light=False) == []


def test_clients_take_turns_to_have_heavy_requests_begun() -> None:
    many = [Request(64, light=False, client="a") for _ in range(40)]
    other = Request(64, light=False, client="b")
    assert may_begin([*many, other], set()) == {*many[:15], other}
    begun = set(many[:16])
    assert may_begin([*many, other], begun) == begun, "there is room for no more"
    begun = set(many[:15])
    assert may_begin([*many, other], begun) == {*begun, other}


def test_a_decoder_thread_steps_heavy_lanes_in_turns_while_light_requests_are_there(desk: Desk) -> None:
    steps = Steps(desk, 1)
    light, *heavy = lanes = [Room(True), Room(False), Room(False)]
    steps._here = lambda: lanes
    assert steps._due(0.0) == lanes
    desk.light.add(Request(10))
    assert steps._due(0.0) == [light, heavy[0]]
    steps.share.note(0.0, 1.0)
    steps.turns += 1
    assert steps._due(2.9) == [light]
    assert steps._due(3.0) == [light, heavy[1]]


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

    monkeypatch.setattr("heedful.serve.scribe.time", SimpleNamespace(monotonic=lambda: clock[0]))
    flows = {("m", True): Written("l", 0.25, 11), ("m", False): Written("H", 1.0, 5)}
    with pytest.raises(EOFError):
        write(Line(), flows)
    assert "".join(steps) == "HllllllllHlllHHH"


def test_the_last_batch_is_for_light_requests(desk: Desk) -> None:
    reader = Reader(desk, 1)
    last = desk.limits.lanes - 1
    assert reader._batch("model", [Request(10, light=False)], 9.0, last) == []
    assert len(reader._batch("model", [Request(10, light=False)], 9.0, last - 1)) == 1
    assert len(reader._batch("model", [Request(10)], 9.0, last)) == 1


def test_a_heavy_batch_is_read_a_slice_at_a_time(desk: Desk) -> None:
    """In between, light requests are read; the batch is handed over when it is whole."""
    translator = random_translator("transformer")
    how = Decoding()
    loop = asyncio.new_event_loop()

    async def works() -> tuple[Work, Work]:
        long, short = (prepare("m", translator, [text], how, tokens=64) for text in ("a b c. " * 120, "a"))
        return Work(long, trace=False, tell=lambda _: None), Work(short, trace=False)

    heavy, light = loop.run_until_complete(works())
    loop.close()
    assert (heavy.light, light.light) == (False, True)
    reader = Reader(desk, 1)
    desk.queue.add(heavy)
    seen = []
    for turn in range(100):
        if turn == 1:
            desk.queue.add(light)
        assert reader._take(float(turn))
        seen.append([work is light for _, picked in reader.picked for work, _ in picked])
        assert reader._work(light=True) == (turn == 1)
        assert reader._work(light=False)
        batches = [lane for lane in desk.lanes if isinstance(lane, Batch)]
        if batches:
            break
        reader.turns = 0
    assert seen[:2] == [[], [True]], "the light one had to wait until the batch was read"
    assert len(seen) > 2
    (batch,) = batches
    alone = batch.cohort.pipeline.encode([segment.encoded for segment in batch.cohort.segments])
    assert torch.equal(alone.keep, batch.cohort.memory.keep)
    assert torch.allclose(alone.h[alone.keep], batch.cohort.memory.h[alone.keep], atol=1e-5)


class Room:
    """A lane that has room."""

    def __init__(self, light: bool = False) -> None:
        self.light, self.live, self.rows, self.sizes = light, {0: None}, 0, Counter()

    def count(self, picked) -> None:
        pass


def test_of_beams_over_long_texts_one_batch_is_written_at_a_time(desk: Desk) -> None:
    """On the CPU, and of a quarter of the tokens: the caches of two would take hundreds of megabytes."""
    desk.limits = Limits(wait=0)
    long = Request(*[256] * 8, light=False)
    long.prepared.writer.how = SimpleNamespace(beam=2, n_best=1)
    desk.queue = queue_of(long)
    reader = Reader(desk, 1)
    assert sizes(reader._batch("beam", [long], 0.0, 0)) == [256] * 2
    reader.partial = object()
    assert reader._batch("beam", [long], 0.0, 1) == []
    desk.turn = threading.Lock()  # on a GPU
    assert sizes(reader._batch("beam", [long], 0.0, 1)) == [256] * 6
