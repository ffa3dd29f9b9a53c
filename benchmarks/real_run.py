"""One run of a benchmark: `heedful train` in a process of its own, watched; then the model's exam in another.

What is done is not done again: a run with an exam is left as it is, a model that is trained gets its exam, and one that
has a checkpoint goes on from there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.config import read_recipe
from heedful.demo.training import cores, package_environment
from heedful.errors import ConfigError, MachineError, ModelError
from heedful.files import locked, write_whole

__all__ = ["Children", "Plan", "Run", "go"]

POLL = 0.1  # seconds between looks
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Plan:
    """What all runs have in common; `folder` holds the prepared task under `data`, and each run's files.

    `more` are files of pairs that are learned from besides; `again` says that what is there is to be made anew.
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
    again: bool = False


@dataclass(frozen=True)
class Run:
    """One recipe with one seed; `name` is that of the recipe, and of what was changed in it."""

    name: str
    recipe: Path
    seed: int

    def place(self, plan: Plan) -> Path:
        """Return the folder of the model."""
        return plan.folder / self.name / str(self.seed)

    def __str__(self) -> str:
        """What it is called."""
        return f"{self.name}, seed {self.seed}"


class Children:
    """All processes that were started, to be ended with the one that started them."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[bytes]] = []
        self.lock, self.over = threading.Lock(), False

    def start(self, command: Sequence[str], log: Path, threads: int) -> subprocess.Popen[bytes]:
        """Start a process; all it says goes to a file."""
        environment = {"OMP_NUM_THREADS": str(threads), **package_environment()}
        with self.lock:
            if self.over:
                raise MachineError("stopped")
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                # A session of its own: Ctrl-C comes to us alone and is handed on once; a second would cut the run off.
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            self.running.append(child)
        return child

    def tidy(self, *folders: Path) -> None:
        """Remove folders that are empty, while nothing is started that writes there."""
        with self.lock:
            for folder in folders:
                with suppress(OSError):  # it holds something, or is not there
                    folder.rmdir()

    def end(self) -> None:
        """Ask all to end that still run, and start no more."""
        with self.lock:
            self.over = True
        for child in self.running:
            if child.poll() is None:
                child.terminate()


@dataclass
class Watched:
    """What a run in training wrote to `metrics.jsonl`, and when.

    A run that goes on after a step writes the file anew, up to there: as long as it is the `old` one, nothing is read.
    What was measured up to `after` is part of the curve, but not new, and its seconds are not known.
    """

    path: Path
    began: float
    after: int = -1
    old: int | None = None  # the file's number in its file system
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
        if not self.path.exists() or self.path.stat().st_ino == self.old:
            return []
        if self.first is None:
            self.first = time.monotonic()
        with self.path.open("rb") as file:
            file.seek(self.at)
            whole = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self.at += sum(map(len, whole))
        known: list[dict[str, Any]] = []
        new: list[dict[str, Any]] = []
        for record in map(json.loads, whole):
            (known if record["step"] <= self.after and not record.get("final") else new).append(record)
        self.speeds += [r["tokens_per_second"] for r in new if "tokens_per_second" in r]
        found = [{"seconds": round(self.trained, 1), **r} for r in new if "valid_bleu" in r]
        self.curve += [r for r in known if "valid_bleu" in r] + found
        return found

    def plain(self, stopped: bool) -> dict[str, Any]:
        """Return what JSON can hold; call it when the run has ended."""
        steady = sorted(self.speeds[len(self.speeds) // 4 :])  # the first steps record graphs and warm up
        return {
            "setup_seconds": round((self.first or self.began) - self.began, 1),
            "training_seconds": round(self.trained, 1),
            "stopped": stopped,
            **({"went_on_after": self.after} if self.after >= 0 else {}),
            "tokens_per_second": round(steady[len(steady) // 2]) if steady else None,
            "validations": self.curve,
        }


def go(run: Run, plan: Plan, children: Children) -> dict[str, Any]:
    """Train and examine, write `SEED.json` beside the model, and return what it holds; what is done is left alone."""
    place = run.place(plan)
    try:
        record = _trained(run, plan, children)
        if not plan.only_evaluate and _examined(record, plan.alphas):
            _say(f"{run} is done already")
            return record
        return _examine(run, plan, children, record)
    finally:
        children.tidy(place, place.parent)  # where a run failed before it wrote anything


def _trained(run: Run, plan: Plan, children: Children) -> dict[str, Any]:
    """Return what is known of a run whose model is trained, after training it if need be."""
    place = run.place(plan)
    result = _beside(place, ".json")
    made: dict[str, Any] = {"settings": list(plan.settings), "more": [path.name for path in plan.more]}
    made |= {"steps": plan.steps, "seconds": plan.seconds, "recipe": read_recipe(run.recipe)}
    record = {"name": run.name, "seed": run.seed, **made, "training": None}
    if plan.again and not plan.only_evaluate:
        _remove(place)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
    if plan.only_evaluate:
        if not (place / "config.json").is_file():
            raise ModelError(f"{run}: {place} holds no model to measure; train it without --only-evaluate")
        return found or record
    if found and found.get("training") is None and _checkpoint(place) is None:
        found = {}  # it was begun, and nothing is left of it
    other = [name for name, value in made.items() if found.get(name, value) != value]
    if found and found.get("training") is None:  # a run that is not over may be made longer, or shorter
        other = [name for name in other if name != "seconds" and not (name == "steps" and plan.steps)]
    if other:
        raise ConfigError(
            f"{run}: {place} was made otherwise ({', '.join(other)}); --again makes it anew, --name NAME another one"
        )
    if found.get("training") is not None:
        return found
    try:
        record["training"] = _train(run, plan, children, record)
    except BaseException:
        if _checkpoint(place) is None:
            result.unlink(missing_ok=True)
        raise
    write_whole(result, json.dumps(record).encode())
    return record


def _examined(record: dict[str, Any], alphas: str) -> bool:
    """Whether a model has its exam, with these length penalties."""
    tried = record.get("exam", {}).get("validation_bleu_by_alpha", {})
    return set(map(float, tried)) == set(map(float, alphas.split(",")))


def _examine(run: Run, plan: Plan, children: Children, record: dict[str, Any]) -> dict[str, Any]:
    place = run.place(plan)
    scores = _beside(place, ".exam.json")
    command = [sys.executable, str(HERE / "real_exam.py"), str(place), str(plan.folder / "data"), "--out", str(scores)]
    child = children.start([*command, "--alphas", plan.alphas, "--device", plan.device], _log(place), _threads(plan))
    _check(child.wait(), (0,), f"the exam of {run},", _log(place))
    record = {**record, "exam": json.loads(scores.read_text(encoding="utf-8"))}
    write_whole(_beside(place, ".json"), json.dumps(record).encode())
    scores.unlink()
    return record


def _train(run: Run, plan: Plan, children: Children, record: dict[str, Any]) -> dict[str, Any]:
    """Train a model, or go on with it, until it is done or its seconds are over; tell of each validation."""
    place = run.place(plan)
    watched, stopped, more = Watched(place / "metrics.jsonl", time.monotonic()), False, []
    if (step := _checkpoint(place)) is not None:
        _say(f"{run} goes on from step {step:,}")
        watched.after, more = step, ["--resume"]
        watched.old = watched.path.stat().st_ino if watched.path.exists() else None
    elif (place / "config.json").exists():
        raise ConfigError(f"{run}: {place} holds a model of which nothing is known; --only-evaluate measures it")
    else:
        _remove(place)  # without a checkpoint there is nothing to go on with
    # What it is made with is written down before anything of it: who goes on with it has to ask for the same.
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(_beside(place, ".json"), json.dumps(record).encode())
    child = children.start([*_command(run, plan), *more], _log(place), _threads(plan))
    running = True
    while running:
        time.sleep(POLL)
        running = child.poll() is None  # asked before looking, so that the last look sees all
        for found in watched.look():
            said = f"step {found['step']:,}: BLEU {found['valid_bleu']:.2f}, loss {found['valid_loss']:.3f}"
            _say(f"{run}, {found['seconds']:.0f} s, {said}{' *' if found.get('best') else ''}")
        if plan.seconds and not stopped and watched.trained > plan.seconds:
            stopped = True
            child.terminate()  # which a run takes as it takes Ctrl-C: its best weights become its model
    # It writes its model and says that it was asked to end, or it was done just then.
    _check(child.returncode, (0, 143) if stopped else (0,), f"training {run},", _log(place))
    return watched.plain(stopped)


def _checkpoint(place: Path) -> int | None:
    """Return the step of a run's newest checkpoint, if it has any."""
    return max((int(p.name) for p in (place / "checkpoints").glob("*") if p.name.isdecimal()), default=None)


def _remove(place: Path) -> None:
    """Remove a model, or what was to become one, and what stands beside it; refuse while a run writes there."""
    if place.exists():
        with locked(place / "checkpoints"):
            shutil.rmtree(place)
    for path in place.parent.glob(f"{place.name}.*"):
        if path.is_file():
            path.unlink()


def _command(run: Run, plan: Plan) -> list[str]:
    data = plan.folder / "data"
    pairs = [str(data / "train.tsv"), *map(str, plan.more)]
    files = [*pairs, "--valid", str(data / "valid.tsv"), "--out", str(run.place(plan))]
    named = ["--recipe", str(run.recipe), "--seed", str(run.seed), "--device", plan.device]
    steps = ["--steps", str(plan.steps)] if plan.steps else []
    changes = [part for setting in plan.settings for part in ("--set", setting)]
    return [sys.executable, "-P", "-m", "heedful", "train", *files, *named, *steps, *changes]


def _threads(plan: Plan) -> int:
    return max(1, cores() // max(1, plan.jobs))


def _log(place: Path) -> Path:
    return _beside(place, ".log")


def _beside(place: Path, end: str) -> Path:
    return place.with_name(f"{place.name}{end}")


def _check(code: int, allowed: Sequence[int], what: str, log: Path) -> None:
    if code not in allowed:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise MachineError(
            f"{what} ended with code {code}: {said[-1] if said else 'it said nothing'} (all it said is in {log})"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
