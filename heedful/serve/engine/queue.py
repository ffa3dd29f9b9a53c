"""The queue of requests, and how time is shared between light and heavy ones.

Requests take turns, one sentence at a time, so that a long text does not hold up short ones. A request is light if all
its sentences together have few tokens, and heavy otherwise. While a light request is active, a worker spends a third of
its time on heavy work, a piece at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable

from heedful.serve.engine.request import EngineRequest, Sentence

LONG = 64  # tokens: longer sentences leave room for shorter ones
HEAVY = 16  # heavy requests that run at once; the others wait
SLICE = 64  # batch_tokens / SLICE: tokens of heavy work that are encoded at once
PART = 3  # heavy work gets 1 / PART of the time


class RequestQueue:
    """Requests with sentences that wait; a request of which a sentence was taken goes to the end."""

    def __init__(self) -> None:
        self.requests: deque[EngineRequest] = deque()

    def __len__(self) -> int:
        """Return the number of sentences that wait."""
        return sum(len(request.waiting) for request in self.requests)

    def load(self, most: int, light: bool = False) -> int:
        """Return the number of waiting sentences, at most `most` of each request; with `light`, of light ones only."""
        return sum(min(len(request.waiting), most) for request in self.requests if request.light or not light)

    def add(self, request: EngineRequest) -> None:
        """Append a request."""
        if request.waiting:
            self.requests.append(request)

    def put_back(self, request: EngineRequest, index: int) -> None:
        """Requeue a sentence that was taken before, with its request at the front."""
        request.waiting.appendleft(index)
        if request not in self.requests and not request.dropped:
            self.requests.appendleft(request)

    def sweep(self) -> None:
        """Remove requests that were dropped, and those without waiting sentences."""
        self.requests = deque(request for request in self.requests if request.waiting and not request.dropped)

    def groups(self, started: Collection[EngineRequest] | None = None) -> dict[Hashable, list[EngineRequest]]:
        """Return the light requests by what can be decoded together, in the order of the queue.

        With the heavy requests that are `started`, return the heavy requests that may run.
        """
        requests = [request for request in self.requests if request.light == (started is None)]
        if started is not None:
            allowed = startable(requests, started)
            requests = [request for request in requests if request in allowed]
        groups: dict[Hashable, list[EngineRequest]] = {}
        for request in requests:
            groups.setdefault(request.key, []).append(request)
        return groups

    def pick(self, requests: list[EngineRequest], tokens: int, rows: int) -> list[Sentence]:
        """Take sentences of requests of one group, one of each in turn, to be decoded together.

        They are at most `rows`, and have at most `tokens` with padding, times the beam width, unless one alone has
        more.
        """
        return self._pick(requests, tokens, rows, Counter(), tokens, tokens)

    def pick_joining(
        self, requests: list[EngineRequest], tokens: int, rows: int, running: Counter[int]
    ) -> list[Sentence]:
        """Take sentences to join those that are `running`, counted by size.

        Long ones get half of the tokens and rows; the rest is for short sentences, which would wait for hundreds of
        steps if long ones filled the batch. At most a quarter of the tokens is taken at once, of heavy requests a
        slice, so that the encoder does not hold up later requests.
        """
        at_once = tokens // (4 if requests[0].light else SLICE)
        return self._pick(requests, tokens, rows, running, tokens // 2, at_once)

    def _pick(
        self,
        requests: list[EngineRequest],
        tokens: int,
        rows: int,
        running: Counter[int],
        long_tokens: int,
        at_once: int,
    ) -> list[Sentence]:
        """Take sentences. One that is next and does not fit yet is not overtaken by others like it."""
        how = requests[0].prepared.pipeline.how
        turns, took = deque(requests), dict.fromkeys(requests, False)
        picked: list[Sentence] = []
        width = max(how.beam, how.n_best)
        count, widest, widest_picked = running.total(), max(running, default=0), 0
        long = sum(number for size, number in running.items() if size > LONG)
        long_rows = rows if long_tokens == tokens else max(1, rows // 2)
        while turns and count < rows:
            request = turns.popleft()
            own = request.prepared.size(request.waiting[0])
            size = max(widest, own)
            if own > LONG and long and (size * (long + 1) * width > long_tokens or long >= long_rows):
                continue  # the room that is left is for short ones
            if picked and max(widest_picked, own) * (len(picked) + 1) * width > at_once:
                break
            if count and size * (count + 1) * width > tokens:
                if not picked:
                    break
                continue  # too long now; another request may have a shorter one
            count, widest, took[request] = count + 1, size, True
            long, widest_picked = long + (own > LONG), max(widest_picked, own)
            picked.append((request, request.waiting.popleft()))
            request.running += 1
            if request.waiting:
                turns.append(request)
        last = [request for request, taken in took.items() if taken]
        self.requests = deque([*(request for request in self.requests if not took.get(request)), *last])
        self.sweep()
        return picked


def startable(waiting: Iterable[EngineRequest], started: Collection[EngineRequest]) -> set[EngineRequest]:
    """Return the heavy requests that may run: those that are `started`, and others as long as there is room.

    Clients, identified by address, take turns: the one with the fewest running requests comes first.
    """
    count = Counter(request.client for request in started)
    turns = []
    for order, request in enumerate(request for request in waiting if request not in started):
        turns.append((count[request.client], order, request))
        count[request.client] += 1
    turns.sort(key=lambda turn: turn[:2])
    return {*started, *(request for _, _, request in turns[: max(0, HEAVY - len(started))])}


class TimeShare:
    """When a worker may do heavy work although light requests are active."""

    def __init__(self) -> None:
        self.until = -float("inf")

    def due(self, now: float) -> bool:
        """Whether heavy work may run."""
        return now >= self.until

    def left(self, now: float) -> float:
        """Return the seconds until it may."""
        return max(0.0, self.until - now)

    def note(self, started: float, ended: float) -> None:
        """Note that heavy work ran: the time after it, twice as long, is for light work."""
        self.until = ended + (PART - 1) * (ended - started)
