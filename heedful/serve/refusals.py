"""Refusals by reason: counted for the metrics, logged at most once a minute."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

__all__ = ["REASONS", "Refusals"]

SECONDS = 60  # between two lines of the log

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
    "slow_reader": "answers that their client did not read",
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
}


class Refusals:
    """Counts refusals; `log`, called often, writes a summary of the new ones at most once a minute, and at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._new: Counter[str] = Counter()
        self._address = ""  # of the last one
        self._logged = float("-inf")

    def add(self, reason: str, address: str = "") -> None:
        """Count a refusal, of a client at an address."""
        if reason not in REASONS:
            raise KeyError(reason)
        self.counts[reason] += 1
        self._new[reason] += 1
        self._address = address or self._address

    def log(self, now: float, last: bool = False) -> None:
        """Log what was refused since the last line, if that was a minute ago, or this is the `last`; `now`: seconds."""
        if not self._new or (now - self._logged < SECONDS and not last):
            return
        what = "; ".join(f"{count} {REASONS[reason]}" for reason, count in self._new.most_common())
        whose = f" (last from {self._address})" if self._address else ""
        self._new.clear()
        self._logged = now
        logging.getLogger("heedful.serve").warning("refused: %s%s", what, whose)

    def lines(self) -> Iterator[str]:
        """Yield the lines of Prometheus' text format."""
        yield "# TYPE heedful_refused_total counter"
        for reason, count in self.counts.items():
            yield f'heedful_refused_total{{reason="{reason}"}} {count}'
