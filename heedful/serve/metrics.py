"""Numbers of a running service, as Prometheus reads them: counters, gauges and histograms in its text format."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from heedful.serve.refusals import Refusals

__all__ = ["Histogram", "Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Of whole requests: what is given up, after 30 s unless told otherwise, is apart from what was only just answered.
REQUESTS = (*SECONDS[:-1], 20.0, 30.0, 60.0, 120.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
WORKERS = ("encoder thread", "decoder thread", "decoding process", "drawing process")


class Histogram:
    """How often a value was at most each of some bounds, their sum and their number."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, label: str = "") -> Iterator[str]:
        """Yield the lines of the text format; `label` is `name="value"`, or nothing."""
        total, one = 0, f"{{{label}}}" if label else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{label + "," if label else ""}le="{bound}"}} {total}'
        yield f"{name}_sum{one} {self.sum:.6f}"
        yield f"{name}_count{one} {total}"


class Metrics:
    """What is counted. The event loop counts requests, the one that reads how long they waited; the rest is locked."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(REQUESTS))  # by route
        self.rows = Histogram(ROWS)
        self.waited = Histogram(SECONDS)
        self.steps = self.tokens = self.sentences = self.cancelled = 0
        self.refusals = Refusals()
        self.restarts: Counter[str] = Counter()  # of workers that died or hung, by name

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[route, status] += 1
        self.seconds[route].add(seconds)

    def began(self, waited: Iterable[float]) -> None:
        """Count how long sentences that begin have waited."""
        for seconds in waited:
            self.waited.add(seconds)

    def stepped(self, rows: int) -> None:
        """Count a step of so many sentences."""
        self.steps += 1
        self.rows.add(rows)

    def text(self, now: Mapping[str, float]) -> str:
        """Return all of it; `now` are gauges, by name."""
        lines = ["# TYPE heedful_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'heedful_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE heedful_request_seconds histogram")
        for route, histogram in sorted(self.seconds.items()):
            lines += histogram.lines("heedful_request_seconds", f'route="{route}"')
        for name, histogram in (("heedful_step_sentences", self.rows), ("heedful_wait_seconds", self.waited)):
            lines += [f"# TYPE {name} histogram", *histogram.lines(name)]
        for name, count in (
            ("heedful_sentences_total", self.sentences),
            ("heedful_tokens_total", self.tokens),
            ("heedful_steps_total", self.steps),
            ("heedful_cancelled_sentences_total", self.cancelled),
        ):
            lines += [f"# TYPE {name} counter", f"{name} {count}"]
        lines += self.refusals.lines()
        lines.append("# TYPE heedful_worker_restarts_total counter")
        for worker in WORKERS:
            lines.append(f'heedful_worker_restarts_total{{worker="{worker}"}} {self.restarts[worker]}')
        gauges = {**now, "heedful_start_time_seconds": self.begun}
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
