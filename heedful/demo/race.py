"""Training several models at once, each as the `heedful train` that anybody can type, and watching how they stand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from heedful.demo.machine import cores, together
from heedful.demo.plan import Contestant, Plan
from heedful.errors import MachineError

__all__ = ["Racer", "Standing", "leaving", "race", "this_heedful"]

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
        environment = {**this_heedful(), "OMP_NUM_THREADS": str(threads)}
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C comes to us alone, and we hand it on once; a second would cut the run off.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.begin = time.monotonic()

    def look(self) -> bool:
        """Read what the run has measured since the last look; return whether it is still running."""
        running = self.process.poll() is None
        if running:
            self.standing.seconds = time.monotonic() - self.begin
        if self.metrics.exists():
            with self.metrics.open("rb") as file:
                file.seek(self.read)
                for line in file.read().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        self.read += len(line)
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
        """Ask the run to end; it writes down what it has."""
        if self.process.poll() is None:
            self.process.terminate()  # a run takes it as it takes Ctrl-C; in the background that may be ignored

    def end(self) -> None:
        """Wait until the run has ended, but not for ever."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def this_heedful() -> dict[str, str]:
    """Return an environment in which Python finds this very heedful, whatever else is called so elsewhere."""
    here = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": here}


@contextmanager
def leaving() -> Iterator[None]:
    """Leave in order when asked to end (SIGTERM) or when the terminal is closed, so that no process is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup wants it so
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def race(
    plan: Plan, out: Path, pairs: Path, valid: Path, seed: int, meanwhile: Callable[[list[Standing]], None]
) -> tuple[list[Standing], float]:
    """Train all contestants side by side; `meanwhile` is called again and again with how they stand.

    Return how they ended, and how many bytes of memory all of them together took at most.
    """
    racers: list[Racer] = []
    try:
        with leaving():
            highest = _watch(plan, out, (pairs, valid), seed, racers, meanwhile)
    except BaseException:
        try:
            for racer in racers:
                racer.stop()
            for racer in racers:
                racer.end()
        finally:  # also when somebody cannot wait
            for racer in racers:
                racer.process.kill()
        raise
    standings = [racer.standing for racer in racers]
    meanwhile(standings)
    return standings, highest


def _watch(
    plan: Plan,
    out: Path,
    files: tuple[Path, Path],
    seed: int,
    racers: list[Racer],
    meanwhile: Callable[[list[Standing]], None],
) -> float:
    """Start the racers and watch them until all have ended; return the most memory that all took together."""
    threads = max(1, min(2, cores() // len(plan.contestants)))  # small models gain nothing from more
    highest = 0.0
    for contestant in plan.contestants:
        racers.append(Racer(contestant, _command(plan, contestant, out, *files, seed, threads), out, threads))
    while sum(racer.look() for racer in racers):
        highest = max(highest, together([os.getpid(), *(r.process.pid for r in racers)]))
        meanwhile([racer.standing for racer in racers])
        time.sleep(POLL)
    return highest


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
        "training.precision=fp32",
    )
    settings = [part for setting in (*plan.settings, *contestant.settings, *own) for part in ("--set", setting)]
    files = [str(pairs), "--valid", str(valid), "--out", str(out / contestant.key)]
    return [sys.executable, "-P", "-m", "heedful", "train", *files, "--preset", "none", *settings]
