"""The service under load, on this machine alone: throughput, latency, overload.

python benchmarks/serving.py [MODEL] [--threads 2] [--seconds 10] [--overload 60] [--json FILE]

Without MODEL, a Transformer of the preset `small` (4 layers, width 256) is trained for a few steps, to write about as
many words as it reads: what it writes means nothing, but costs the same. Sentences are Hindi, of 2 to 12 words, from
the embedded corpus. The service is a process of its own, with as many threads as the offline run has.

throughput: 32 clients that ask again as soon as they have an answer, against `translate` of the same sentences 32 at a
time in one process; both in turns, several times, and the ratio of the medians is told.
latency: some of the sentences, with 32 clients, with one client alone, and at random times at half the rate that the
32 reached, one right after the other: a machine has no two minutes of the same speed, and half the load of these
sentences is not that of others. The 95th percentile against the median of one alone (long sentences among the short),
and against the same text alone; and that of one client alone, which is what the machine itself adds.
overload: ten times the capacity for a minute, with a beam of 5, so that the clients can ask as fast on the same cores:
every request is answered with a result, 429 or 504, every answer belongs to its question, and the memory of the service
does not grow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from serving_load import Service, closed, cpu, flood, opened

from heedful.data.hindi import generate

CLIENTS = 32
BEAM = 5  # of the overload
SOME = 40  # texts whose latency is measured one by one


def sentences(count: int) -> list[str]:
    """Return Hindi sentences, all different."""
    found: dict[str, None] = {}
    for example in generate(1, "train", 2, 12):
        found[example.seen_from("hi-en").source] = None
        if len(found) == count:
            break
    return list(found)


def make_model(path: Path) -> None:
    """Train a Transformer of the preset `small` for a few steps: its sentences end in time."""
    import heedful

    pairs = [(x.source, x.target) for x in islice((e.seen_from("hi-en") for e in generate(2, "train", 2, 12)), 4000)]
    settings = {
        "model": {"family": "transformer", "layers": 4, "width": 256, "heads": 4, "inner": 512},
        "training": {
            "steps": 150,
            "rate": 0.002,
            "warmup": 50,
            "batch_tokens": 1024,
            "device": "cpu",
            "metric": "loss",
        },
    }
    heedful.train(pairs, path, settings=settings, preset="none")


class Offline:
    """A process that translates 32 sentences at a time, when it is told to."""

    CODE = """
import sys, time, json
import heedful, torch
torch.set_num_threads(int(sys.argv[2]))
translator = heedful.load(sys.argv[1], "cpu")
texts = json.load(open(sys.argv[3], encoding="utf-8"))
translator.translate(texts[:64], trace=False)
print("ready", flush=True)
at = 0
for line in sys.stdin:
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < float(line):
        some = [texts[(at + i) % len(texts)] for i in range(32)]
        translator.translate(some, trace=False, batch_tokens=10**6)
        at, count = at + 32, count + 32
    print(count / (time.perf_counter() - begun), count, flush=True)
"""

    def __init__(self, model: str, threads: int, texts: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, model, str(threads), str(texts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def cpu(self) -> float:
        """Return how many seconds of CPU time it has had."""
        return cpu(self.process.pid)

    def rate(self, seconds: float) -> tuple[float, int]:
        """Return sentences a second over so many seconds, and how many there were."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        rate, count = self.process.stdout.readline().split()
        return float(rate), int(count)

    def end(self) -> None:
        """Stop it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def measure(model: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all of it."""
    texts = sentences(2000)
    file = folder / "texts.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    service = Service(model, options.threads, "--connections-per-address", "0")
    whole = service.all_there()
    idle = service.memory()
    print(
        f"started in {service.started:.1f} s (it says {service.said}), with its other process in {whole:.1f} s;",
        end=" ",
    )
    print(f"idle memory of both {idle:.0f} MiB", flush=True)
    offline = Offline(model, options.threads, file)
    record: dict[str, Any] = {"started": service.started, "both": whole, "idle_mib": idle}
    try:
        closed(service.place, texts, CLIENTS, 2)  # warm
        rates: list[tuple[float, float, float, float]] = []
        for _ in range(options.rounds):
            had = service.cpu(), offline.cpu()
            rate, took = closed(service.place, texts, CLIENTS, options.seconds)
            other, count = offline.rate(options.seconds)
            costs = (service.cpu() - had[0]) / len(took), (offline.cpu() - had[1]) / count
            rates.append((rate, other, *costs))
            print("  32 clients {:.0f}/s, offline {:.0f}/s".format(*rates[-1][:2]), flush=True)
        online, alone, cost, least = (statistics.median(column) for column in zip(*rates, strict=True))
        record |= {"online": online, "offline": alone, "ratio": online / alone, "cpu_s": cost, "offline_cpu_s": least}
        print(f"throughput: {online:.0f}/s of {alone:.0f}/s offline at batch 32, {online / alone:.0%};", end=" ")
        print(f"CPU time of a sentence {cost * 1e3:.1f} ms, offline {least * 1e3:.1f} ms", flush=True)
        record |= latency(service.place, texts[:SOME], options)
    finally:
        offline.end()
        ended = service.end()
    record["overload"] = overload(model, options, texts) if options.overload else {}
    print(f"the service ended with {ended}")
    return record


def latency(place: str, texts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Compare latencies at half load with those of one client alone: their 95th percentile, and text by text."""
    rounds = []
    for _ in range(options.rounds):
        full, _ = closed(place, texts, CLIENTS, options.seconds)
        _, alone = closed(place, texts, 1, options.seconds)
        own = [statistics.median(alone[i :: len(texts)]) for i in range(min(len(texts), len(alone)))]
        many = opened(place, texts, full / 2, options.seconds, 2 * CLIENTS)
        single, high = statistics.median(alone), percentile([took for _, took in many])
        slower = [took / own[which] for which, took in many if which < len(own)]
        still = percentile([took / own[i % len(texts)] for i, took in enumerate(alone)])
        rounds.append((high / single, percentile(slower), statistics.median(slower), single, high, still, full / 2))
        told = "  p95 {:.2f} times one alone; text by text {:.2f} times, median {:.2f} (alone {:.3f} s, p95 {:.3f} s;"
        print((told + " alone {:.2f} times; {:.0f}/s)").format(*rounds[-1]), flush=True)
    ratio, each, middle, single, high, still, rate = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"latency at half load, {rate:.0f}/s: p95 {high * 1e3:.0f} ms, {ratio:.2f} times one alone", end=" ")
    print(f"({single * 1e3:.0f} ms); text by text {each:.2f} times, median {middle:.2f}; alone {still:.2f}", flush=True)
    names = ("p95_ratio", "p95_slower", "median_slower", "single_s", "p95_s", "p95_alone", "half_rate")
    return dict(zip(names, (ratio, each, middle, single, high, still, rate), strict=True))


def percentile(values: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[18]


def overload(model: str, options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Flood a service with small limits, so that all of them are reached."""
    service = Service(model, options.threads, "--connections-per-address", "0")
    service.all_there()
    capacity, _ = closed(service.place, texts, CLIENTS, 5, BEAM)
    service.end()
    service = Service(model, options.threads, "--queue", "64", "--requests", "200", "--seconds", "2")
    flood(service, texts, 10 * capacity, 5, BEAM)  # warm, so that what is kept is there
    statuses, memory, asked = flood(service, texts, 10 * capacity, options.overload, BEAM)
    third = max(1, len(memory) // 3)
    growth = statistics.median(memory[-third:]) - statistics.median(memory[:third])
    ended = service.end()
    told = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
    print(f"overload: {asked:.0f} requests/s, {asked / capacity:.1f} times the capacity of {capacity:.0f}/s;", end=" ")
    print(f"{told}; memory {growth:+.0f} MiB; it ended with {ended}", flush=True)
    if set(statuses) - {200, 429, 504} or ended:
        raise SystemExit(f"answers {told}, ended with {ended}")
    found = {"asked": asked, "capacity": capacity, "memory_mib": growth}
    return {**found, "statuses": {str(k): v for k, v in statuses.items()}, "ended": ended}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a model folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload", type=float, default=60.0, help="seconds of overload; 0: none")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.model is None:
            make_model(folder / "model")
        record = measure(options.model or str(folder / "model"), options, folder)
    if options.json:
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
