"""Who is next: sentences of many requests, taken in turns, so that a long text does not hold up short ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable

from heedful.serve.sharing import SLICE, may_begin
from heedful.serve.work import Work

__all__ = ["Picked", "Queue"]

Picked = list[tuple[Work, int]]
NOBODY: Counter[int] = Counter()
LONG = 64  # tokens: what is longer leaves room for what is not


class Queue:
    """Requests whose sentences wait: whoever has given one goes to the end."""

    def __init__(self) -> None:
        self.works: deque[Work] = deque()

    def __len__(self) -> int:
        """How many sentences wait."""
        return sum(len(work.waiting) for work in self.works)

    def load(self, most: int, light: bool = False) -> int:
        """Return how many sentences wait where each request counts for `most` at most; with `light`, of light ones."""
        return sum(min(len(work.waiting), most) for work in self.works if work.light or not light)

    def add(self, work: Work) -> None:
        """Let a request wait."""
        if work.waiting:
            self.works.append(work)

    def put_back(self, work: Work, index: int) -> None:
        """Let a sentence wait again that was picked before, and its request be the next."""
        work.waiting.appendleft(index)
        if work not in self.works and not work.dropped:
            self.works.appendleft(work)

    def sweep(self) -> None:
        """Forget the requests that were dropped, and those that have nothing left."""
        self.works = deque(work for work in self.works if work.waiting and not work.dropped)

    def kinds(self, begun: Collection[Work] | None = None) -> dict[Hashable, list[Work]]:
        """Return the light requests by what can be written together, as their turn comes.

        With the heavy ones that are `begun`, return the heavy requests that may be worked on.
        """
        found: dict[Hashable, list[Work]] = {}
        wanted = [work for work in self.works if work.light == (begun is None)]
        if begun is not None:
            allowed = may_begin(wanted, begun)
            wanted = [work for work in wanted if work in allowed]
        for work in wanted:
            found.setdefault(work.key, []).append(work)
        return found

    def pick(self, works: list[Work], tokens: int, rows: int) -> Picked:
        """Take sentences of requests of one kind, one of each in turns, to be decoded together.

        With their padding, times the width of the beam, all have at most `tokens`, unless one alone has more, and are
        at most `rows`.
        """
        return self._pick(works, tokens, rows, NOBODY, tokens, tokens)

    def pick_joining(self, works: list[Work], tokens: int, rows: int, running: Counter[int]) -> Picked:
        """Take sentences to join those that are `running`, counted by size.

        Long ones get half of the tokens and rows: the others are for short sentences, which would wait for hundreds of
        steps where long ones fill the batch. A quarter of the tokens is taken at once, so that the encoder
        does not hold up those who come next; of heavy requests a slice.
        """
        return self._pick(works, tokens, rows, running, tokens // 2, tokens // (4 if works[0].light else SLICE))

    def _pick(
        self, works: list[Work], tokens: int, rows: int, there: Counter[int], long_tokens: int, at_once: int
    ) -> Picked:
        """Take sentences; who is next and has no room yet is not overtaken by its like: it would wait for ever."""
        how = works[0].prepared.writer.how
        like, given = deque(works), dict.fromkeys(works, False)
        picked: Picked = []
        width = max(how.beam, how.n_best)
        count, widest, taken = there.total(), max(there, default=0), 0
        long = sum(number for size, number in there.items() if size > LONG)
        long_rows = rows if long_tokens == tokens else max(1, rows // 2)
        while like and count < rows:
            work = like.popleft()
            index = work.waiting[0]
            own = work.prepared.size(index)
            size = max(widest, own)
            if own > LONG and long and (size * (long + 1) * width > long_tokens or long >= long_rows):
                continue  # there is room for short ones only
            if picked and max(taken, own) * (len(picked) + 1) * width > at_once:
                break
            if count and size * (count + 1) * width > tokens:
                if not picked:
                    break
                continue  # too long for this time; another request may have a shorter one
            count, widest, given[work] = count + 1, size, True
            long, taken = long + (own > LONG), max(taken, own)
            picked.append((work, work.waiting.popleft()))
            work.running += 1
            if work.waiting:
                like.append(work)
        last = [work for work, gave in given.items() if gave]
        self.works = deque([*(work for work in self.works if not given.get(work)), *last])
        self.sweep()
        return picked
