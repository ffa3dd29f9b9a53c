"""Who is next: sentences of many requests, taken in turns, so that a long text does not hold up short ones."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

from heedful.serve.work import Work

__all__ = ["Picked", "Queue"]

Picked = list[tuple[Work, int]]
NOBODY: Counter[int] = Counter()


class Queue:
    """Requests whose sentences wait: whoever has given one goes to the end."""

    def __init__(self) -> None:
        self.works: deque[Work] = deque()

    def __len__(self) -> int:
        """How many sentences wait."""
        return sum(len(work.waiting) for work in self.works)

    def load(self, most: int) -> int:
        """Return how many sentences wait where each request counts for `most` at most."""
        return sum(min(len(work.waiting), most) for work in self.works)

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

    def kinds(self) -> dict[Hashable, list[Work]]:
        """Return the requests by what can be written together, as their turn comes."""
        found: dict[Hashable, list[Work]] = {}
        for work in self.works:
            found.setdefault(work.key, []).append(work)
        return found

    def pick(self, works: list[Work], tokens: int, rows: int, there: Counter[int] = NOBODY) -> Picked:
        """Take sentences of requests of one kind, one of each in turns, to go with those that are `there`, by size.

        With their padding, times the width of the beam, all have at most `tokens`, unless one alone has more, and are
        at most `rows`. Who is next and has no room yet is not overtaken: it would wait for ever.
        """
        how = works[0].prepared.writer.how
        like, given = deque(works), dict.fromkeys(works, False)
        picked: Picked = []
        count, widest = there.total(), max(there, default=0)
        while like and count < rows:
            work = like.popleft()
            index = work.waiting[0]
            size = max(widest, work.prepared.size(index))
            if count and size * (count + 1) * max(how.beam, how.n_best) > tokens:
                if not picked:
                    break
                continue  # too long for this time; another request may have a shorter one
            count, widest, given[work] = count + 1, size, True
            picked.append((work, work.waiting.popleft()))
            work.running += 1
            if work.waiting:
                like.append(work)
        last = [work for work, gave in given.items() if gave]
        self.works = deque([*(work for work in self.works if not given.get(work)), *last])
        self.sweep()
        return picked
