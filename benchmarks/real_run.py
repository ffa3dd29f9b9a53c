"""One run of a benchmark: `heedful train` in a process of its own, watched; then the model's exam in another."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.demo.machine import cores
from heedful.demo.race import this_heedful
from heedful.disk import write_whole
from heedful.errors import MachineError

__all__ = ["Children", "Plan", "Run", "go"]

POLL = 0.1  # seconds between looks
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plan:
    """What all runs have in common; `folder` holds the prepared task under `data`, and each run's files.

    `more` are files of pairs that are learned from besides.
    """

    folder: Path
    settings: tuple[str, ...] = ()
    more: tuple[Path, ...] = ()
    device: str = "auto"
    steps: int = 0
    seconds: float = 0.0
    alphas: str = "1.0"
    jobs: int = 1
    only_evaluate: bool = False


@dataclass(frozen=True)
class Run:
    """One recipe with one seed; `name` is that of the recipe, and of what was changed in it."""

    name: str
    recipe: Path
    seed: int

    def place(self, plan: Plan) -> Path:
        """Return the folder of the model."""
        return plan.folder / self.name / str(self.seed)


class Children:
    """All processes that were started, to be ended with the one that started them."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.lock, self.over = threading.Lock(), False

    def start(self, command: Sequence[str], log: Path, threads: int) -> subprocess.Popen[bytes]:
        """Start a process; all it says goes to a file."""
        environment = {"OMP_NUM_THREADS": str(threads), **this_heedful()}
        with self.lock, log.open("ab") as file:
            if self.over:
                raise MachineError("stopped")
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment
            )
            self.running.append(child)
        return child

    def end(self) -> None:
        """Ask all to end that still run, and start no more."""
        with self.lock:
            self.over = True
        for child in self.running:
            if child.poll() is None:
                child.terminate()


@dataclass
class Watched:
    """What a run in training wrote to `metrics.jsonl`, and when."""

    path: Path
    began: float
    first: float | None = None
    at: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    @property
    def trained(self) -> float:
        """The seconds since the first step, validations included."""
        return 0.0 if self.first is None else time.monotonic() - self.first

    def look(self) -> list[dict[str, Any]]:
        """Read what is new and return the validations among it."""
        if not self.path.exists():
            return []
        if self.first is None:
            self.first = time.monotonic()
        with self.path.open("rb") as file:
            file.seek(self.at)
            whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self.at += sum(map(len, whole))
        records = [json.loads(line) for line in whole]
        self.speeds += [r["tokens_per_second"] for r in records if "tokens_per_second" in r]
        found = [{"seconds": round(self.trained, 1), **r} for r in records if "valid_bleu" in r]
        self.curve += found
        return found

    def plain(self, stopped: bool) -> dict[str, Any]:
        """Return what JSON can hold; call it when the run has ended."""
        steady = sorted(self.speeds[len(self.speeds) // 4 :])  # the first steps record graphs and warm up
        return {
            "setup_seconds": round((self.first or self.began) - self.began, 1),
            "training_seconds": round(self.trained, 1),
            "stopped": stopped,
            "tokens_per_second": round(steady[len(steady) // 2]) if steady else None,
            "validations": self.curve,
        }


def go(run: Run, plan: Plan, children: Children) -> dict[str, Any]:
    """Train and examine, write `SEED.json` beside the model, and return what it holds."""
    place = run.place(plan)
    place.parent.mkdir(parents=True, exist_ok=True)
    result, scores = (place.with_name(f"{place.name}{end}") for end in (".json", ".exam.json"))
    record: dict[str, Any] = {"name": run.name, "seed": run.seed, "settings": list(plan.settings)}
    record |= {"more": [path.name for path in plan.more], "training": None}
    if not plan.only_evaluate:
        record["training"] = _train(run, plan, children)
        write_whole(result, json.dumps(record).encode())
    elif result.exists():
        record = json.loads(result.read_text(encoding="utf-8"))
    command = [sys.executable, str(HERE / "real_exam.py"), str(place), str(plan.folder / "data"), "--out", str(scores)]
    child = children.start([*command, "--alphas", plan.alphas, "--device", plan.device], _log(place), _threads(plan))
    _check(child.wait(), (0,), f"the exam of {run.name}, seed {run.seed},", _log(place))
    record["exam"] = json.loads(scores.read_text(encoding="utf-8"))
    write_whole(result, json.dumps(record).encode())
    scores.unlink()
    return record


def _train(run: Run, plan: Plan, children: Children) -> dict[str, Any]:
    """Train a model, until it is done or its seconds are over; tell of each validation."""
    place = run.place(plan)
    watched, stopped = Watched(place / "metrics.jsonl", time.monotonic()), False
    child = children.start(_command(run, plan), _log(place), _threads(plan))
    running = True
    while running:
        time.sleep(POLL)
        running = child.poll() is None  # asked before looking, so that the last look sees all
        for found in watched.look():
            said = f"step {found['step']:,}: BLEU {found['valid_bleu']:.2f}, loss {found['valid_loss']:.3f}"
            _say(f"{run.name}, seed {run.seed}, {found['seconds']:.0f} s, {said}{' *' if found.get('best') else ''}")
        if plan.seconds and not stopped and watched.trained > plan.seconds:
            stopped = True
            child.terminate()  # which a run takes as it takes Ctrl-C: its best weights become its model
    # It writes its model and says that it was asked to end, or it was done just then.
    _check(child.returncode, (0, 143) if stopped else (0,), f"training {run.name}, seed {run.seed},", _log(place))
    return watched.plain(stopped)


def _command(run: Run, plan: Plan) -> list[str]:
    data = plan.folder / "data"
    pairs = [str(data / "train.tsv"), *map(str, plan.more)]
    files = [*pairs, "--valid", str(data / "valid.tsv"), "--out", str(run.place(plan))]
    named = ["--recipe", str(run.recipe), "--seed", str(run.seed), "--device", plan.device]
    steps = ["--steps", str(plan.steps)] if plan.steps else []
    changes = [part for setting in plan.settings for part in ("--set", setting)]
    return [sys.executable, "-P", "-m", "heedful", "train", *files, *named, *steps, *changes]


def _threads(plan: Plan) -> int:
    return max(1, cores() // plan.jobs)


def _log(place: Path) -> Path:
    return place.with_name(f"{place.name}.log")


def _check(code: int, allowed: Sequence[int], what: str, log: Path) -> None:
    if code not in allowed:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise MachineError(
            f"{what} ended with code {code}: {said[-1] if said else 'it said nothing'} (all it said is in {log})"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
