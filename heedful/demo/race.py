"""Training several models at once, each as the `heedful train` that anybody can type, and watching how they stand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.demo.memory import resident
from heedful.demo.plan import Contestant, Plan
from heedful.errors import MachineError

__all__ = ["Racer", "Standing", "race"]

POLL = 0.2  # seconds between looks
GRACE = 20.0  # seconds for a run that is stopped to write what it has


@dataclass
class Standing:
    """How one model stands; `curve` holds the seconds, BLEU and loss of each validation."""

    contestant: Contestant
    step: int = 0
    loss: float = 0.0
    accuracy: float = 0.0
    speed: float = 0.0
    seconds: float = 0.0
    curve: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def bleu(self) -> float | None:
        """The last BLEU on validation pairs, if there is one."""
        return self.curve[-1][1] if self.curve else None


class Racer:
    """One training run in a process of its own."""

    def __init__(self, contestant: Contestant, command: Sequence[str], out: Path, threads: int) -> None:
        self.standing = Standing(contestant)
        self.metrics, self.log, self.read = out / contestant.key / "metrics.jsonl", out / f"{contestant.key}.log", 0
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONIOENCODING": "utf-8"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self.begin = time.monotonic()

    def look(self) -> bool:
        """Read what the run has measured since the last look; return whether it is still running."""
        running = self.process.poll() is None
        if running:
            self.standing.seconds = time.monotonic() - self.begin
        if self.metrics.exists():
            with self.metrics.open(encoding="utf-8") as file:
                file.seek(self.read)
                for line in file.read().splitlines(keepends=True):
                    if line.endswith("\n"):
                        self.read += len(line.encode())
                        self._take(json.loads(line))
        if not running and self.process.returncode:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise MachineError(
                f"training the model '{self.standing.contestant.title}' ended with code {self.process.returncode}: "
                f"{lines[-1] if lines else 'it said nothing'} (all it said is in {self.log})"
            )
        return running

    def _take(self, record: dict[str, float]) -> None:
        now = self.standing
        now.step = int(record["step"])
        if "valid_bleu" in record:
            now.curve.append((now.seconds, record["valid_bleu"], record["valid_loss"]))
        else:
            now.loss, now.accuracy, now.speed = record["loss"], record["accuracy"], record["tokens_per_second"]

    def stop(self) -> None:
        """End the run; it writes down what it has."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def race(
    plan: Plan, out: Path, pairs: Path, valid: Path, seed: int, meanwhile: Callable[[list[Standing]], None]
) -> tuple[list[Standing], float]:
    """Train all contestants side by side; `meanwhile` is called again and again with how they stand.

    Return how they ended, and how many bytes of memory all of them together took at most.
    """
    threads = max(1, (os.cpu_count() or 1) // len(plan.contestants))
    racers: list[Racer] = []
    highest = 0.0
    try:
        for contestant in plan.contestants:
            command = _command(plan, contestant, out, pairs, valid, seed, threads)
            racers.append(Racer(contestant, command, out, threads))
        while sum(racer.look() for racer in racers):
            highest = max(highest, sum(map(resident, [os.getpid(), *(r.process.pid for r in racers)])))
            meanwhile([racer.standing for racer in racers])
            time.sleep(POLL)
    except BaseException:
        for racer in racers:
            racer.stop()
        raise
    standings = [racer.standing for racer in racers]
    meanwhile(standings)
    return standings, highest


def _command(
    plan: Plan, contestant: Contestant, out: Path, pairs: Path, valid: Path, seed: int, threads: int
) -> list[str]:
    every = -(-contestant.steps // plan.validations)
    own = (
        f"training.steps={contestant.steps}",
        f"training.seed={seed}",
        f"training.threads={threads}",
        f"training.valid_every={every}",
        f"training.checkpoint_every={contestant.steps}",
        "training.device=cpu",
    )
    settings = [part for setting in (*plan.settings, *contestant.settings, *own) for part in ("--set", setting)]
    files = [str(pairs), "--valid", str(valid), "--out", str(out / contestant.key)]
    return [sys.executable, "-m", "heedful", "train", *files, *settings]
