"""Metrics of a running service in the text format of Prometheus, and refused requests by reason."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from heedful.serve.engine.metrics import SECONDS, EngineMetrics, Histogram

# With bounds beyond `Limits.seconds`, 30 by default: abandoned requests are apart from those that were just in time.
REQUEST_SECONDS = (*SECONDS[:-1], 20.0, 30.0, 60.0, 120.0)
WORKERS = ("encoder thread", "decoder thread", "decoding process", "drawing process")
LOG_SECONDS = 60  # between two lines of the log

# By reason: what it means, for the log. The label `reason` of heedful_refused_total has no other values.
REASONS = {
    "connections": "connections over --connections",
    "connections_per_address": "connections over --connections-per-address",
    "evicted": "connections that waited for their client, closed to make room",
    "header_time": "headers that took longer than --header-seconds",
    "header_size": "headers or trailers that were too large",
    "url_size": "URLs that were too long",
    "pipelined": "connections with too many pipelined bytes",
    "invalid": "requests that were not HTTP",
    "slow_reader": "responses that their client did not read",
    "body_time": "bodies that took longer than --body-seconds",
    "body_size": "requests over --body or another limit of size",
    "body_memory": "slow bodies that made room for others",
    "request_memory": "requests with large bodies that there was no memory for",
    "requests": "requests over --requests, --queue or what can be done in time",
    "request_time": "requests that took longer than --seconds",
    "stopping": "requests while the service was stopping",
    "unavailable": "requests that could not be worked on",
    "token": "requests without the token",
    "host": "requests for another host name",
    "origin": "forms of pages of other origins",
}


class Refusals:
    """Counts refusals; `log`, called often, writes a summary of the new ones at most once a minute, and at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._new: Counter[str] = Counter()
        self._address = ""  # of the last one
        self._logged = float("-inf")

    def add(self, reason: str, address: str = "") -> None:
        """Count a refusal of a client at an address."""
        if reason not in REASONS:
            raise KeyError(reason)
        self.counts[reason] += 1
        self._new[reason] += 1
        self._address = address or self._address

    def log(self, now: float, last: bool = False) -> None:
        """Log the refusals since the last line, if that was a minute ago, or this is the `last` call."""
        if not self._new or (now - self._logged < LOG_SECONDS and not last):
            return
        summary = "; ".join(f"{count} {REASONS[reason]}" for reason, count in self._new.most_common())
        address = f" (last from {self._address})" if self._address else ""
        self._new.clear()
        self._logged = now
        logging.getLogger("heedful.serve").warning("refused: %s%s", summary, address)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text format."""
        yield "# TYPE heedful_refused_total counter"
        for reason, count in self.counts.items():
            yield f'heedful_refused_total{{reason="{reason}"}} {count}'


class ServiceMetrics(EngineMetrics):
    """The counters of the engine, and of requests, which the event loop counts."""

    def __init__(self) -> None:
        super().__init__()
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(REQUEST_SECONDS))  # by route
        self.refusals = Refusals()

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[route, status] += 1
        self.seconds[route].add(seconds)

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics, with `gauges` by name."""
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
        for name, value in {**gauges, "heedful_start_time_seconds": self.started}.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
