"""Who is next: sentences of many requests, taken in turns, so that a long text does not hold up short ones."""

from __future__ import annotations

from collections import deque

from heedful.serve.work import Work

__all__ = ["Picked", "Queue"]

Picked = list[tuple[Work, int]]


class Queue:
    """Requests whose sentences wait, in the order in which they came; each gives one sentence when it is its turn."""

    def __init__(self) -> None:
        self.works: deque[Work] = deque()

    def __len__(self) -> int:
        """How many sentences wait."""
        return sum(len(work.waiting) for work in self.works)

    def add(self, work: Work) -> None:
        """Let a request wait."""
        if work.waiting:
            self.works.append(work)

    def sweep(self) -> None:
        """Forget the requests that were dropped, and those that have nothing left."""
        self.works = deque(work for work in self.works if work.waiting and not work.dropped)

    def oldest(self, newcomers: bool) -> Work | None:
        """Return the request that has waited longest; of `newcomers` alone, one that has no sentence being written."""
        given = (work for work in self.works if not (newcomers and work.running))
        return min(given, key=lambda work: work.born, default=None)

    def pick(self, first: Work, tokens: int, rows: int, newcomers: bool) -> Picked:
        """Take sentences that can be written with the first one of `first`, one of each request in turns.

        They are at most `rows`, and at most `tokens` with their padding, but one at least.
        """
        beam = max(first.prepared.writer.how.beam, first.prepared.writer.how.n_best)
        like = deque(w for w in self.works if w.key == first.key and (w is first or not (newcomers and w.running)))
        like.rotate(-like.index(first))
        picked: Picked = []
        widest = 0
        while like and len(picked) < rows:
            work = like.popleft()
            index = work.waiting[0]
            size = max(widest, len(work.prepared.found[index].encoded.ids))
            if picked and size * (len(picked) + 1) * beam > tokens:
                continue  # too long for this time; another request may have a shorter one
            widest = size
            picked.append((work, work.waiting.popleft()))
            work.running += 1
            if work.waiting:
                like.append(work)
        self.sweep()
        return picked
