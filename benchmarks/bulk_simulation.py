"""A billion rows on many GPUs, simulated: what failures, slow machines and the size of a unit cost.

python benchmarks/bulk_simulation.py [--rate 9000] [--hours 200,5] [--journal FILE …] [--seeds 10]

Every worker translates `rate` rows per second; the times of units vary as those of measured units do (--journal: the
journals of runs, otherwise the spread in `SPREAD`). A worker fails once in so many hours, loses the unit that it works
on, and is back after ten minutes; one in fifty is half as fast for the whole run. Units are given out in three ways: to
fixed shards (--shard), from a queue (--ray), and from a queue with a second copy of the unit that ends last, where
workers have nothing else to do. Means over seeds; the same seeds give the same numbers.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cluster", "Outcome", "main", "simulate"]

# CPU seconds of 32 measured units of 50 rows, divided by their mean: see docs/lab/scale.md.
SPREAD = (
    *(1.1, 0.98, 0.99, 0.97, 0.95, 0.95, 1.02, 0.99, 1.01, 1.02, 1.05, 1.01, 1.01, 1.03, 1.01, 0.99),
    *(1.18, 1.03, 1.03, 1.01, 1.0, 0.98, 0.96, 0.94, 0.99, 0.97, 0.96, 0.96, 0.95, 0.99, 1.01, 0.97),
)
WAYS = ("shards", "queue", "copies")


@dataclass(frozen=True)
class Cluster:
    """Workers, hours between two failures of one, minutes until it is back, and the share and speed of slow ones."""

    workers: int
    hours_to_failure: float = 200.0
    minutes_back: float = 10.0
    slow_share: float = 0.02
    slow_speed: float = 0.5


@dataclass(frozen=True)
class Outcome:
    """Seconds until the last unit is done, seconds of work that was lost, and how many failures there were."""

    seconds: float
    lost: float
    failures: int


class _Simulation:
    """Runs units on workers, event by event: a unit is done, a worker fails, a worker is back."""

    def __init__(self, cluster: Cluster, units: Sequence[float], way: str, seed: int) -> None:
        self.cluster, self.units, self.way, self.draw = cluster, units, way, random.Random(seed)
        slow = [self.draw.random() < cluster.slow_share for _ in range(cluster.workers)]
        self.speed = [cluster.slow_speed if one else 1.0 for one in slow]
        self.queues = [deque(range(worker, len(units), cluster.workers)) for worker in range(cluster.workers)]
        self.queue = deque(range(len(units)))
        self.failing = [self._next_failure(0.0) for _ in range(cluster.workers)]
        self.running: dict[int, tuple[int, float, float]] = {}  # worker: unit, begin, end
        self.done: set[int] = set()
        self.events: list[tuple[float, int, int]] = []  # time, worker, number of the worker's event
        self.turn = [0] * cluster.workers
        self.idle: set[int] = set()
        self.lost, self.failures, self.end = 0.0, 0, 0.0

    def _next_failure(self, now: float) -> float:
        hours = self.cluster.hours_to_failure
        return now + self.draw.expovariate(1 / (3600 * hours)) if hours else float("inf")

    def _plan(self, worker: int, time: float) -> None:
        self.turn[worker] += 1
        heapq.heappush(self.events, (time, worker, self.turn[worker]))

    def _next_unit(self, worker: int) -> int | None:
        queue = self.queues[worker] if self.way == "shards" else self.queue
        while queue:
            if (unit := queue.popleft()) not in self.done:
                return unit
        if self.way == "copies":
            copies = [unit for unit, _, _ in self.running.values()]
            alone = {unit: end for unit, _, end in self.running.values() if copies.count(unit) == 1}
            if alone:
                return max(alone, key=lambda unit: alone[unit])
        return None

    def _begin(self, worker: int, now: float) -> None:
        unit = self._next_unit(worker)
        if unit is None:
            self.idle.add(worker)
            return
        end = now + self.units[unit] / self.speed[worker]
        self.running[worker] = (unit, now, end)
        self._plan(worker, min(end, self.failing[worker]))

    def _finish(self, worker: int, now: float) -> None:
        unit, began, end = self.running.pop(worker)
        if now < end:  # it failed
            self.failures += 1
            self.lost += now - began
            (self.queues[worker] if self.way == "shards" else self.queue).appendleft(unit)
            back = now + 60 * self.cluster.minutes_back
            self.failing[worker] = self._next_failure(back)
            self._plan(worker, back)
            return
        self.done.add(unit)
        self.end = now
        for other, (same, since, _) in list(self.running.items()):
            if same == unit:  # its copy stops
                self.running.pop(other)
                self.lost += now - since
                self._begin(other, now)
        self._begin(worker, now)

    def run(self) -> Outcome:
        """Run until all units are done."""
        for worker in range(self.cluster.workers):
            self._begin(worker, 0.0)
        while len(self.done) < len(self.units):
            now, worker, turn = heapq.heappop(self.events)
            if turn != self.turn[worker]:
                continue
            if worker in self.running:
                self._finish(worker, now)
            else:
                self._begin(worker, now)
            if self.way != "shards" and self.queue:
                for each in sorted(self.idle):
                    self.idle.discard(each)
                    self._begin(each, now)
        return Outcome(self.end, self.lost, self.failures)


def simulate(cluster: Cluster, units: Sequence[float], way: str, seed: int = 1) -> Outcome:
    """Return what happens to units of so many seconds on a cluster."""
    return _Simulation(cluster, units, way, seed).run()


def unit_seconds(rows: int, size: int, rate: float, spread: Sequence[float], seed: int) -> list[float]:
    """Return the seconds of each unit of `size` rows, with the spread of measured ones."""
    draw = random.Random(seed)
    return [min(size, rows - first) / rate * draw.choice(spread) for first in range(0, rows, size)]


def read_spread(paths: Sequence[str]) -> list[float]:
    """Return the seconds per row of the units in journals, divided by their mean."""
    lines = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    each = [line["seconds"] / line["rows"] for line in lines if line.get("rows")]
    return [one * len(each) / sum(each) for one in each]


def main() -> None:
    """Simulate and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--rate", type=float, default=9_000, help="rows per second of a GPU")
    parser.add_argument("--journal", nargs="*", default=[])
    parser.add_argument("--gpus", default="1,8,256")
    parser.add_argument("--sizes", default="100000,1000000,5000000", help="rows of a unit")
    parser.add_argument("--hours", default="200,5", help="hours between two failures of a worker")
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    spread = read_spread(given.journal) if given.journal else list(SPREAD)
    print("| hours to a failure | GPUs | rows of a unit | ideal, h | shards | queue | and copies | lost work (queue) |")
    print("|---|---|---|---|---|---|---|---|")
    for hours in map(float, given.hours.split(",")):
        for workers in map(int, given.gpus.split(",")):
            for size in map(int, given.sizes.split(",")):
                print(row(given.rows, size, given.rate, spread, Cluster(workers, hours), range(1, given.seeds + 1)))


def row(rows: int, size: int, rate: float, spread: Sequence[float], cluster: Cluster, seeds: Sequence[int]) -> str:
    """Return a row of the table: times as multiples of the ideal one, and the lost work as a share of all."""
    ideal = rows / rate / cluster.workers
    ratios: dict[str, float] = dict.fromkeys(WAYS, 0.0)
    lost = 0.0
    for seed in seeds:
        units = unit_seconds(rows, size, rate, spread, seed)
        outcomes = {way: simulate(cluster, units, way, seed) for way in WAYS}
        for way, outcome in outcomes.items():
            ratios[way] += outcome.seconds / ideal / len(seeds)
        lost += outcomes["queue"].lost / (rows / rate) / len(seeds)
    times = " | ".join(f"{ratio:.2f}×" for ratio in ratios.values())
    return (
        f"| {cluster.hours_to_failure:g} | {cluster.workers} | {size:,} | {ideal / 3600:.2f} | {times} | {lost:.2%} |"
    )


if __name__ == "__main__":
    main()
