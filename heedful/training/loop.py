"""The training loop, and starting, resuming or estimating a run.

Everything random follows from the seed and the step, so a run can stop and continue at any step.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from heedful.data.batches import Batch, prefetch
from heedful.data.cache import Array
from heedful.errors import ConfigError, DataError, DiskError, NotFiniteError
from heedful.files import locked
from heedful.interop.folder import ModelParts, holds_model, set_aside
from heedful.models.device import fast_products, memory_guard
from heedful.training.callbacks import RESUME, LoggingReporter, MetricsFile, Progress, Reporter, RunOutcome
from heedful.training.checkpointing import (
    Checkpoint,
    Checkpointer,
    MeasureAlarms,
    Position,
    folders,
    naming_last_checkpoint,
    newest,
    remove_partial,
)
from heedful.training.device_setup import (
    SMALLER_MODEL,
    DeviceSetup,
    choose_threads,
    restoring_torch_state,
    smaller_batches,
)
from heedful.training.distributed import ALONE, StopSignal, joined
from heedful.training.estimate import Estimate, estimate, expected_steps
from heedful.training.prepare import Inputs, TrainingData
from heedful.training.setup import RunSetup, Settings, set_up
from heedful.training.step import StepStats, TrainingStep, learning_rate

FEW = 10  # updates after which the speed of a run is known
PREFETCH = 4  # updates whose batches are made while the device is busy with earlier ones
STOPPING = "stopping after this step and writing a checkpoint (again to stop at once)"
# Ctrl-C, kill, and (not on Windows) a closed terminal.
CAUGHT = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True)
class UpdateBatches:
    """The batches of one update, the rows of each, their target tokens, and the epoch and batch that come next."""

    batches: list[Batch]
    rows: list[Array]
    tokens: int
    epoch: int
    after: tuple[int, int]


class RunningMetrics:
    """Sums since the last report; pauses do not count as training time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.shown = 0.0
        self.clear()

    def clear(self) -> None:
        """Reset the sums."""
        self.begin, self.spent = time.perf_counter(), 0.0
        self.loss, self.correct, self.tokens, self.updates = 0.0, 0.0, 0, 0
        self.auxiliary: dict[str, tuple[float, float]] = {}

    def count(self, tokens: int) -> None:
        """Count one update with this number of tokens."""
        self.tokens += tokens
        self.updates += 1

    def add(self, stats: StepStats) -> None:
        """Add the sums of the updates since the last time."""
        now = time.perf_counter()
        self.spent += now - self.begin
        self.begin = now
        self.loss += stats.loss
        self.correct += stats.correct
        for name, (value, count) in stats.auxiliary.items():
            before = self.auxiliary.get(name, (0.0, 0.0))
            self.auxiliary[name] = before[0] + value, before[1] + count

    def due(self) -> bool:
        """Whether the last report is more than two seconds old: slow steps are shown one by one."""
        return time.perf_counter() - self.shown > 2

    def pause(self) -> None:
        """Do not count the time since `add`."""
        self.begin = time.perf_counter()

    def read(self, step: int, epoch: int, rate: float) -> Progress:
        """Return the report."""
        self.shown = time.perf_counter()
        n = max(self.tokens, 1)
        speed = self.tokens / max(self.spent, 1e-9)
        losses = {name: value / count for name, (value, count) in self.auxiliary.items() if count}
        return Progress(step, self.steps, epoch + 1, self.loss / n, self.correct / n, rate, speed, losses)


class TrainingRun:
    """One run: a model, its training step, its checkpoints, and the current position."""

    def __init__(
        self,
        out: Path,
        parts: ModelParts,
        data: TrainingData,
        run: dict[str, Any],
        reporter: Reporter,
        device_setup: DeviceSetup,
        measure_alarms: MeasureAlarms | None = None,
    ) -> None:
        self.out, self.data, self.run, self.reporter, self.device_setup = out, data, run, reporter, device_setup
        self.processes = device_setup.processes
        self.config = parts.config.training
        self.fixed, self.remedy = device_setup.fixed, smaller_batches(self.config)
        with memory_guard("moving the model to the device", SMALLER_MODEL):
            parts = replace(parts, model=parts.model.to(device_setup.device).train())
        self.training_step = TrainingStep(
            parts.model, self.config, device_setup.device, device_setup.bf16, self.processes, data.losses
        )
        if device_setup.device.type == "cuda":
            with memory_guard("copying images to the device", "lower image.pixels"):
                data.batches.keep_images(device_setup.device)
        self.checkpointer = Checkpointer(out, parts, data, run, self.training_step, self.processes, measure_alarms)
        self.position = Position()
        self.expected = expected_steps(parts.config, len(data.corpus))
        self.time_logged = False
        self.recent: dict[int, UpdateBatches] = {}  # updates since the device was last read, without their batches

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint; the model already has its weights."""
        self.checkpointer.restore(checkpoint)
        self.position = checkpoint.position

    def train(self, stop: Callable[[], bool]) -> RunOutcome:
        """Train until steps or patience are used up, or `stop` returns True; write a checkpoint and the best model."""
        metrics = MetricsFile(self.out, self.position.step) if self.processes.first else None
        if metrics is not None and self.position.step:
            self.reporter.resumed(metrics.validations())
        if self.run.get("init") and self.position.step == 0 and self.position.best is None:
            self.position = self.checkpointer.keep_initial(self.position, self.reporter, metrics)
        running = RunningMetrics(self.config.steps)
        stopped = StopSignal(stop, self.processes, self.position.step) if self.processes.world > 1 else lambda _: stop()
        with (
            fast_products(self.device_setup.device),
            closing(self.training_step),
            prefetch(self._batches(), PREFETCH) as updates,
        ):
            while not (reason := self._stop_reason(stopped)):
                self._one_update(next(updates), running, metrics)
        try:
            self.checkpointer.save(self.position)
        except DiskError:  # a disk too full for the checkpoint may still have room for the model
            self.checkpointer.finish(reason, self.position, self.reporter, metrics)
            raise
        return self.checkpointer.finish(reason, self.position, self.reporter, metrics)

    def _one_update(self, work: UpdateBatches, running: RunningMetrics, metrics: MetricsFile | None) -> None:
        """Update the weights; log, validate and save a checkpoint at their steps."""
        config = self.config
        step = self.position.step + 1
        self.position = replace(self.position, step=step, epoch=work.after[0], batch=work.after[1])
        self.recent[step] = replace(work, batches=[])
        self._update(work)
        running.count(work.tokens)
        logged = step % config.log_every == 0
        validated = step % config.valid_every == 0
        saved = step % config.checkpoint_every == 0
        # On the CPU reading costs nothing; all processes have to read at the same steps.
        if logged or validated or saved or (running.due() if self.processes.world == 1 else False):
            self._read_stats(running)
            progress = running.read(step, work.epoch, learning_rate(step, config, self.position.halved))
            self.reporter.progress(progress._replace(expected=self._expected()))
            self._log_time_needed(running)
            if logged and metrics:
                names = ("step", "epoch", "loss", "accuracy", "rate", "tokens_per_second")
                metrics.write({**{name: getattr(progress, name) for name in names}, **progress.losses})
            if logged:
                running.clear()
        if validated:
            self.position = self.checkpointer.validated(self.position, self.reporter, metrics)
        if saved:
            self.checkpointer.save(self.position)
        if validated or saved:
            running.pause()

    def _expected(self) -> int | None:
        """Return the step at which the run will probably end: not before its patience is used up."""
        if self.expected is None:
            return None
        best = self.position.best.step if self.position.best else 0
        return min(self.config.steps, max(self.expected, best + self.config.patience * self.config.valid_every))

    def _log_time_needed(self, running: RunningMetrics) -> None:
        """Log once how long a run on a CPU will take, if that is more than two minutes."""
        if self.time_logged or running.updates < FEW or self.device_setup.device.type != "cpu":
            return
        self.time_logged = True
        left = self.config.steps - self.position.step
        seconds = running.spent / running.updates
        if seconds * left <= 120:
            return
        expected = self._expected()
        usual = ""
        if expected is not None and expected < self.config.steps:
            usual = f"; usually runs end by step {expected:,} ({_time(seconds * (expected - self.position.step))})"
        self.reporter.log(
            f"at this speed {left:,} more steps take {_time(seconds * left)}, without validations{usual}; the run "
            "stops earlier if validations do not improve (training.patience), and Ctrl-C keeps the best model so far"
        )

    def _batches(self) -> Iterator[UpdateBatches]:
        """Yield the batches of every update from the current position."""
        batches, rank, world = self.data.batches, self.processes.rank, self.processes.world
        epoch, number = self.position.epoch, self.position.batch
        plan = batches.epoch(epoch)
        while True:
            first, rows, batched, tokens = epoch, [], [], 0
            for _ in range(self.config.accumulate):
                if number == len(plan):
                    epoch, number = epoch + 1, 0
                    plan = batches.epoch(epoch)
                rows.append(plan[number])
                batch = batches.batch(plan[number], epoch, rank=rank, world=world, fixed=self.fixed)
                batched.append(batch.pin() if self.device_setup.device.type == "cuda" else batch)
                tokens += batch.tokens if world == 1 else batches.tokens(plan[number], epoch)
                number += 1
            yield UpdateBatches(batched, rows, tokens, first, (epoch, number))

    def _stop_reason(self, stop: Callable[[int], bool]) -> str:
        """Return why the run is over, or ""."""
        if self.position.without_better >= self.config.patience:
            return "patience"
        if self.position.step >= self.config.steps:
            return "steps"
        return "interrupted" if stop(self.position.step) else ""

    def _update(self, work: UpdateBatches) -> None:
        step, config = self.position.step, self.config
        shape = [max(b.x.shape[-1] for b in work.batches), max(b.y.shape[1] for b in work.batches)]
        longest = f"{shape[0]} and {shape[1]}" if work.batches[0].x.ndim == 2 else shape[1]
        sizes = f"{max(map(len, work.rows))} pairs of up to {longest} tokens"
        with memory_guard(f"step {step}, a batch of {sizes}", self.remedy):
            batches = [b.to(self.device_setup.device) for b in work.batches]
            self.training_step(batches, work.tokens, step, learning_rate(step, config, self.position.halved))
        if self.device_setup.device.type == "cpu" and self.training_step.first_nonfinite_step:
            self._not_finite(step)

    def _read_stats(self, running: RunningMetrics) -> None:
        """Read the sums of the last updates from the device."""
        stats = self.training_step.read()
        running.add(stats)
        if stats.first_nonfinite_step:
            self._not_finite(stats.first_nonfinite_step)
        self.recent.clear()

    def _not_finite(self, step: int) -> None:
        work = self.recent.get(step)
        rows = [int(row) for part in work.rows for row in part] if work else []
        pairs = [self.data.corpus.where(row) for row in rows]
        some = ", ".join(pairs[:5]) + (f" and {len(pairs) - 5} more" if len(pairs) > 5 else "")
        epoch = f", in epoch {work.epoch + 1} on the batch of {some}" if work else ""
        clip = f"lower training.clip (now {self.config.clip})" if self.config.clip else "set training.clip=1"
        raise NotFiniteError(
            f"step {step}: the loss or its gradient is not finite{epoch}. The weights were not updated, and earlier "
            f"checkpoints are intact. Lower training.rate (now {self.config.rate}), {clip}, or check these pairs"
        )


def _time(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.0f} minutes"


@restoring_torch_state()
def run_training(  # noqa: PLR0913  (the options of a run)
    inputs: Inputs,
    out: Path,
    settings: Settings,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    init: str | Path | None = None,
    preset: str = "auto",
    measure_alarms: MeasureAlarms | None = None,
    teacher: Mapping[str, object] | None = None,
) -> RunOutcome:
    """Start a run in the folder `out`, or resume the one in it; `inputs` and `init` are recorded with it.

    `teacher` are notes on the model that wrote the translations, for the notes of the model that learns them.
    `measure_alarms` measures the alarms of the finished model on the validation pairs, for its read-out.
    """
    with joined() as processes:
        reporter = (reporter or LoggingReporter()) if processes.first else Reporter()
        # After a process died, torchrun runs the same command again: the run is resumed.
        again = processes.any(processes.restarts > 0)  # restarts are counted on each machine, so they may differ
        resume = resume or processes.share(lambda: again and bool(folders(out)))
        checkpoint, damaged = processes.in_turn(lambda: _find(out, reporter)) if resume else (None, {})
        processes.agree({"checkpoint": checkpoint and checkpoint.position.step})
        if not resume:
            processes.share(lambda: check_free(out))
        if not inputs.training:
            inputs = replace(_recorded(out, checkpoint), strict=inputs.strict)
        elif resume and checkpoint is None:
            reporter.log(f"{out} has no complete checkpoint: starting a new run")
        resumed = None if checkpoint is None else (out, checkpoint)
        with reporting_interrupt(reporter.log, _state(out, checkpoint)):
            setup = set_up(inputs, settings, processes, reporter, init, preset, resumed)
            reporter.log(_summary(setup.parts, setup.device_setup))
            before = None if checkpoint is None else checkpoint.run.get("threads")
            threads = choose_threads(setup.parts, setup.data, setup.device_setup, reporter, before)
        processes.agree(_facts(setup))
        with ExitStack() as stack:
            processes.share(lambda: stack.enter_context(locked(out / "checkpoints")))
            processes.share(lambda: _clear(out, resume, checkpoint is None, damaged, reporter))
            record = {
                "inputs": inputs.absolute(),
                "digest": setup.data.digest,
                "init": setup.init,
                "teacher": _teacher(checkpoint, teacher),
                "numbers": [setup.device_setup.device.type, setup.device_setup.bf16],
                "threads": threads if setup.device_setup.device.type == "cpu" else None,
            }
            run = TrainingRun(out, setup.parts, setup.data, record, reporter, setup.device_setup, measure_alarms)
            if checkpoint is not None:
                run.restore(checkpoint)
            with catch_signals(reporter.log if processes.first else None) as stop, naming_last_checkpoint(out):
                outcome = run.train(stop)
                signal = max(processes.gather(stop.received)) if outcome.reason == "interrupted" else 0
                return outcome._replace(signal=signal)


@restoring_torch_state()
def estimate_run(
    inputs: Inputs, settings: Settings, *, reporter: Reporter | None = None, preset: str = "auto"
) -> Estimate:
    """Estimate what a run takes from a few steps; only the cache of the data is written."""
    reporter = reporter or LoggingReporter()
    with reporting_interrupt(reporter.log, "nothing was measured"):
        setup = set_up(inputs, settings, ALONE, reporter, preset=preset)
        reporter.log(_summary(setup.parts, setup.device_setup))
        threads = choose_threads(setup.parts, setup.data, setup.device_setup, reporter)
        return estimate(setup.parts, setup.data, setup.device_setup, reporter, threads)


def _clear(out: Path, resume: bool, new: bool, damaged: dict[Path, str], reporter: Reporter) -> None:
    """Prepare the folder of a run that holds its lock."""
    if not resume:
        check_free(out)  # again: another run may have started in it
    remove_partial(out, damaged)
    if new and holds_model(out):
        reporter.log(f"the model that was in {out} is now in {set_aside(out)}")


def check_free(out: Path) -> None:
    """Raise ConfigError for a folder with a model or a run: neither is ever overwritten."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: this is a file, expected a folder to write the model to")
    if holds_model(out) and not folders(out):
        raise ConfigError(f"{out}: this folder already has a model, and no checkpoint to resume from; {_another(out)}")
    if holds_model(out):
        raise ConfigError(
            f"{out}: this folder already has a model; choose another one, or continue its training with {RESUME}"
        )
    if folders(out):
        raise ConfigError(
            f"{out}: an unfinished run is in this folder; continue it with {RESUME}, or choose another folder"
        )


def _teacher(checkpoint: Checkpoint | None, teacher: Mapping[str, object] | None) -> dict[str, object]:
    """Return the notes on the teacher of a run: those that are given, or of a resumed run its own."""
    own = None if checkpoint is None else checkpoint.run.get("teacher")
    return dict(teacher or (own if isinstance(own, dict) else {}))


def _another(out: Path) -> str:
    """Return how to continue from a finished model."""
    return f"choose another folder; set init={str(out)!r} to begin with this model"


def _find(out: Path, reporter: Reporter) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the newest complete checkpoint, if there is one, and newer ones that are damaged; log both."""
    checkpoint, damaged = newest(out)
    for reason in damaged.values():
        reporter.log(f"skipped a damaged checkpoint: {reason}")
    if checkpoint is not None:
        reporter.log(f"resuming from step {checkpoint.position.step:,}")
    return checkpoint, damaged


def _recorded(out: Path, checkpoint: Checkpoint | None) -> Inputs:
    """Return the inputs of the run in a folder; raises ConfigError or DataError if they are not available."""
    inputs = None if checkpoint is None else Inputs.recorded(checkpoint.run.get("inputs") or {})
    if inputs is None and not (out / "checkpoints").is_dir():
        hint = f", only a model; {_another(out)}" if holds_model(out) else ""
        raise ConfigError(f"{out} has no run to resume{hint}")
    if inputs is None:
        raise ConfigError(f"{out} has no complete checkpoint that names the files of its pairs; name them again")
    if inputs.piped and sys.stdin.isatty():
        raise ConfigError(f"the run in {out} read its pairs from standard input; pipe them in again")
    if missing := inputs.missing:
        raise DataError(
            f"{', '.join(missing)}: there is no such file, and the run in {out} read its pairs from it; if the pairs "
            "have moved, name all their files again when resuming"
        )
    return inputs


def _state(out: Path, checkpoint: Checkpoint | None) -> str:
    """Return the state of a run that is stopped before its first step, in words."""
    return (
        "no step was done" if checkpoint is None else f"the run in {out} is still at step {checkpoint.position.step:,}"
    )


def _facts(setup: RunSetup) -> dict[str, object]:
    """Return the facts that must be the same in all processes."""
    settings = {f"{s}.{k}": v for s, values in setup.parts.config.plain().items() for k, v in values.items()}
    return {"device": setup.device_setup.device.type, **settings, "set of sentence pairs": setup.data.digest}


def _summary(parts: ModelParts, device_setup: DeviceSetup) -> str:
    weights = sum(p.numel() for p in parts.model.parameters())
    if (image := parts.config.image) is None:
        sizes = f"vocabularies of {len(parts.source_codec):,} and {len(parts.target):,} tokens"
    else:
        frozen = " (frozen)" * image.frozen
        sizes = (
            f"image encoder {image.encoder}{frozen}, images of {image.pixels} × {image.pixels} pixels as "
            f"{image.side} × {image.side} regions, a vocabulary of {len(parts.target):,} tokens"
        )
    return f"{parts.config.family} model with {weights:,} weights, {sizes}, on {device_setup}"


class Signals:
    """The signal that was received, or 0; a second one stops at once."""

    def __init__(self) -> None:
        self.received = 0

    def __call__(self) -> bool:
        """Whether the run should stop after this step."""
        return self.received != 0

    def catch(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; raise KeyboardInterrupt on the second."""
        if self.received:
            raise KeyboardInterrupt
        self.received = number


@contextmanager
def reporting_interrupt(log: Callable[[str], None], state: str) -> Iterator[None]:
    """Log the state of the run if Ctrl-C stops it before the first step."""
    try:
        yield
    except KeyboardInterrupt:
        log(f"stopped before the first step: {state}; prepared pairs stay in the cache")
        raise


@contextmanager
def catch_signals(log: Callable[[str], None] | None = None) -> Iterator[Signals]:
    """Catch Ctrl-C and similar signals during a run, and log the first one.

    Does nothing outside the main thread, where Python does not allow it.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    messages: list[threading.Thread] = []

    def handler(number: int, frame: FrameType | None) -> None:
        signals.catch(number, frame)
        if log is not None:
            # In a thread: the signal may interrupt printing, which is not re-entrant.
            message = threading.Thread(target=log, args=(STOPPING,), name="heedful-stopping")
            messages.append(message)
            message.start()

    caught = [n for n in CAUGHT if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]  # as nohup does
    before = {number: signal.signal(number, handler) for number in caught}
    try:
        yield signals
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        for message in messages:
            message.join()
