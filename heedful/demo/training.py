"""Train the models of the demo side by side, each by a `heedful train` process, and read their progress."""

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
from typing import NamedTuple

from heedful.errors import MachineError

# Sentences that are always shown, with their gold links.
EXAMPLES = (
    ("मैं खाना खा रहा हूँ", "I am eating", "0-0 1-2 2-2 3-1 4-1"),
    ("मुझे खाना पसंद है", "I love to eat", "0-0 1-2 1-3 2-1 3-1"),
    ("मैं खेलने जा रहा हूँ", "I am going to play", "0-0 1-3 1-4 2-2 3-1 4-1"),
)


class DemoModel(NamedTuple):
    """A model to train: its key, its title, its own settings, and the number of steps."""

    key: str
    title: str
    settings: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class Plan:
    """The size of the corpus, the common settings, and the models.

    `lengths` are word counts of further examples: the first test sentence in each range is shown.
    """

    pairs: int
    valid: int
    test: int
    max_words: int
    settings: tuple[str, ...]
    models: tuple[DemoModel, ...]
    lengths: tuple[tuple[int, int], ...]
    validations: int = 6


COMMON = ("text.kind=word", "model.dropout=0", "training.decay=cosine")
RECURRENT = ("model.width=128", "model.embedding=96")
# Each model has the settings that are best for it: the fixed context is an input at every step and is trained with a
# higher learning rate, the Transformer with smaller batches.
FIXED = DemoModel(
    "fixed", "fixed context", ("model.family=fixed", *RECURRENT, "model.context=every", "training.rate=0.008"), 1_950
)
ATTENTION = DemoModel("attention", "attention", ("model.family=rnn", *RECURRENT, "training.rate=0.006"), 1_130)
TRANSFORMER = DemoModel(
    "transformer",
    "Transformer",
    (
        "model.family=transformer",
        "model.width=96",
        "model.layers=2",
        "model.heads=4",
        "model.inner=256",
        "training.rate=0.005",
        "training.batch_tokens=512",
    ),
    2_700,
)
FULL = Plan(
    pairs=40_000,
    valid=200,
    test=1_500,
    max_words=50,
    settings=(*COMMON, "training.warmup=150", "training.batch_tokens=1024"),
    models=(FIXED, ATTENTION, TRANSFORMER._replace(settings=(*TRANSFORMER.settings, "training.warmup=250"))),
    lengths=((13, 16), (19, 22), (27, 31)),
)
FAST = Plan(
    pairs=5_000,
    valid=60,
    test=250,
    max_words=12,
    settings=(*COMMON, "training.warmup=60", "training.batch_tokens=512"),
    models=(FIXED._replace(steps=540), ATTENTION._replace(steps=390), TRANSFORMER._replace(steps=360)),
    lengths=((9, 9), (11, 11), (12, 12)),
    validations=2,
)


POLL = 0.2  # seconds between two polls
GRACE = 20.0  # seconds for a stopped run to write its checkpoint


@dataclass
class TrainingStatus:
    """The progress of one model; `curve` holds the seconds, BLEU and loss of each validation."""

    model: DemoModel
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


class TrainingProcess:
    """A training run in its own process."""

    def __init__(self, model: DemoModel, command: Sequence[str], out: Path, threads: int) -> None:
        self.status = TrainingStatus(model)
        self.metrics, self.log, self.position = out / model.key / "metrics.jsonl", out / f"{model.key}.log", 0
        environment = {**package_environment(), "OMP_NUM_THREADS": str(threads)}
        with self.log.open("wb") as log:
            # Its own session: Ctrl-C reaches only this process, which passes it on once; a second would kill the run.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.begin = time.monotonic()

    def poll(self) -> bool:
        """Read the metrics written since the last call; return whether the process is running."""
        running = self.process.poll() is None
        if running:
            self.status.seconds = time.monotonic() - self.begin
        if self.metrics.exists():
            with self.metrics.open("rb") as file:
                file.seek(self.position)
                for line in file.read().splitlines(keepends=True):
                    if line.endswith(b"\n"):
                        self.position += len(line)
                        self._read(json.loads(line))
        if not running and self.process.returncode:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise MachineError(
                f"training the model '{self.status.model.title}' ended with code {self.process.returncode}: "
                f"{lines[-1] if lines else 'no output'} (log: {self.log})"
            )
        return running

    def _read(self, record: dict[str, float]) -> None:
        now = self.status
        now.step = int(record["step"])
        if "valid_bleu" in record:
            now.curve.append((now.seconds, record["valid_bleu"], record["valid_loss"]))
        else:
            now.loss, now.accuracy, now.speed = record["loss"], record["accuracy"], record["tokens_per_second"]

    def stop(self) -> None:
        """Terminate the run; it writes a checkpoint."""
        if self.process.poll() is None:
            self.process.terminate()  # handled like Ctrl-C, which may be ignored in the background

    def end(self) -> None:
        """Wait for the process to end; kill it after GRACE seconds."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def package_environment() -> dict[str, str]:
    """Return an environment in which Python imports this copy of heedful."""
    here = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": here}


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, so that no child process is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, leave) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def train_models(
    plan: Plan,
    out: Path,
    pairs: Path,
    valid: Path,
    seed: int,
    report: Callable[[list[TrainingStatus]], None],
    options: Sequence[str] = (),
) -> tuple[list[TrainingStatus], float]:
    """Train all models side by side; `report` is called at every poll with their statuses.

    `options` are further ones of `heedful train`. Return the final statuses, and the peak memory of all processes in
    bytes.
    """
    processes: list[TrainingProcess] = []
    try:
        with exit_on_signals():
            highest = _poll_all(plan, out, (pairs, valid), seed, processes, report, options)
    except BaseException:
        try:
            for process in processes:
                process.stop()
            for process in processes:
                process.end()
        finally:  # also after a second Ctrl-C
            for process in processes:
                process.process.kill()
        raise
    statuses = [process.status for process in processes]
    report(statuses)
    return statuses, highest


def _poll_all(
    plan: Plan,
    out: Path,
    files: tuple[Path, Path],
    seed: int,
    processes: list[TrainingProcess],
    report: Callable[[list[TrainingStatus]], None],
    options: Sequence[str],
) -> float:
    """Start the processes and poll them until all have ended; return their peak memory in bytes."""
    threads = max(1, min(2, cores() // len(plan.models)))  # small models are no faster with more
    highest = 0.0
    for model in plan.models:
        command = [*_command(plan, model, out, *files, seed, threads), *options]
        processes.append(TrainingProcess(model, command, out, threads))
    while sum(process.poll() for process in processes):
        highest = max(highest, memory_of([os.getpid(), *(r.process.pid for r in processes)]))
        report([process.status for process in processes])
        time.sleep(POLL)
    return highest


def _command(plan: Plan, model: DemoModel, out: Path, pairs: Path, valid: Path, seed: int, threads: int) -> list[str]:
    every = -(-model.steps // plan.validations)
    own = (
        f"training.steps={model.steps}",
        f"training.seed={seed}",
        f"training.threads={threads}",
        f"training.valid_every={every}",
        f"training.checkpoint_every={model.steps}",
        "training.device=cpu",
        "training.precision=fp32",
    )
    settings = [part for setting in (*plan.settings, *model.settings, *own) for part in ("--set", setting)]
    files = [str(pairs), "--valid", str(valid), "--out", str(out / model.key)]
    return [sys.executable, "-P", "-m", "heedful", "train", *files, "--preset", "none", *settings]


def cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_of(processes: Sequence[int]) -> float:
    """Return the bytes of memory that processes of one program use now; 0 if the system does not tell.

    Private memory is summed. Pages of files (the program and its libraries) are shared: the largest share counts.
    """
    own = sum(_status(process, "RssAnon:") for process in processes)
    return own + max((_status(process, "RssFile:") for process in processes), default=0.0)


def peak_memory(process: int) -> float:
    """Return the peak memory of a process in bytes, or 0."""
    return _status(process, "VmHWM:")


def _status(process: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith(field)), 0.0)
