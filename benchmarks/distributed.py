"""Training speed with several processes on one machine's CPU, beside one process with as many threads.

python benchmarks/distributed.py --processes 2 --rounds 3

Both families train on made-up sentences of up to 20 words by `heedful train`, each process with one thread, all with
the same global batch; so all of them do the same work and must find the same losses, which is checked first. In a round
every way is taken in turn. Target tokens per second are those of `metrics.jsonl`, without the first lines; the median
over all rounds is printed, and its ratio to one process with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FAMILIES = {
    "rnn": {"width": 256, "embedding": 256},
    "transformer": {"width": 256, "inner": 1024, "layers": 3},
}
SETTINGS = {
    "text.kind": "word",
    "model.dropout": 0,
    "training.batch_tokens": 2048,
    "training.log_every": 4,
    "training.valid_every": 1_000_000,
    "training.checkpoint_every": 1_000_000,
    "training.valid_pairs": 8,
}
WARM = 2  # lines of metrics that are not counted


class Way(NamedTuple):
    """How many processes share the work, with how many threads each."""

    processes: int
    threads: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads} thread{'s' if self.threads > 1 else ''}"


class Found(NamedTuple):
    """What a run measured: tokens per second, line by line, the losses, and how many weights it has."""

    speeds: list[float]
    losses: list[float]
    weights: int


def write_pairs(path: Path, words: int = 4000, count: int = 4000) -> Path:
    """Write sentences of made-up words, to be written again in capitals."""
    pick = random.Random(0)
    known = ["".join(pick.choices("abcdefghijkl", k=5)) for _ in range(words)]
    sentences = [" ".join(pick.choices(known, k=pick.randint(5, 20))) for _ in range(count)]
    path.write_text("".join(f"{s}\t{s.upper()}\n" for s in sentences), encoding="utf-8")
    return path


def run(folder: Path, family: str, way: Way, steps: int) -> Found:
    """Train for some steps and return what was measured."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        out = Path(place) / "m"
        given = {**SETTINGS, **{f"model.{key}": value for key, value in FAMILIES[family].items()}}
        command = [sys.executable, "-m"]
        if way.processes > 1:
            command += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(way.processes), "-m"]
        command += ["heedful", "train", str(folder / "pairs.tsv"), "--out", str(out), "--model", family]
        command += ["--steps", str(steps), "--preset", "none", "--device", "cpu", "--precision", "fp32"]
        command += ["--threads", str(way.threads)]
        command += [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HEEDFUL_CACHE": str(folder / "cache")}
        environment["OMP_NUM_THREADS"] = str(way.threads)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{way}: status {done.returncode}\n{done.stderr}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        logged = [line for line in lines if "loss" in line]
        weights = (out / "model.safetensors").stat().st_size // 4
        return Found([line["tokens_per_second"] for line in logged[WARM:]], [line["loss"] for line in logged], weights)


def apart(one: list[float], other: list[float]) -> float:
    """Return the greatest difference between losses, relative to them."""
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def measure(folder: Path, family: str, ways: list[Way], rounds: int, steps: int) -> None:
    """Take every way in turn, and print a table."""
    found: dict[Way, list[Found]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(run(folder, family, way, steps))
    first = found[ways[0]]
    size = 4 * first[0].weights / 1e6
    print(f"{family}: {first[0].weights:,} weights, {size:.1f} MB of gradients in every step")
    for way in ways:
        speed = statistics.median(s for one in found[way] for s in one.speeds)
        ratios = [
            statistics.median(mine.speeds) / statistics.median(base.speeds)
            for mine, base in zip(found[way], first, strict=True)
        ]
        difference = max(apart(base.losses, mine.losses) for mine, base in zip(found[way], first, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"  {way!s:14}{speed:8,.0f} tokens/s  ratio {spread}  losses differ by {difference:.1e}", flush=True)


def main() -> None:
    """Measure both families."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=32)
    args = parser.parse_args()
    ways = [Way(1, 1), Way(1, args.processes), Way(args.processes, 1)]
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder) / "pairs.tsv")
        for family in FAMILIES:
            measure(Path(folder), family, ways, args.rounds, args.steps)


if __name__ == "__main__":
    main()
