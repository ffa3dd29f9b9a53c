"""The training loop. Everything random follows from the seed and the step, so a run can stop and go on anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heedful.data import Batch
from heedful.data.ahead import ahead
from heedful.data.corpus import Array
from heedful.device import fast_products
from heedful.errors import DiskError, NotFiniteError
from heedful.folder import Parts
from heedful.training.checkpoint import Checkpoint, Position
from heedful.training.expectations import expected_steps
from heedful.training.interrupt import Heard
from heedful.training.keeper import Keeper
from heedful.training.memory import batch_guard, model_guard
from heedful.training.meter import Meter
from heedful.training.metrics_file import MetricsFile
from heedful.training.place import Place
from heedful.training.prepare import Prepared
from heedful.training.records import Outcome, Watch
from heedful.training.schedule import rate
from heedful.training.update import Updater

__all__ = ["Run", "Work"]

FEW = 10  # updates that tell how fast a run is
AHEAD = 4  # updates whose batches are made while the device is busy with earlier ones


@dataclass(frozen=True)
class Work:
    """The batches of one update, the rows of each, all their target tokens, and where the run stands after it."""

    batches: list[Batch]
    rows: list[Array]
    tokens: int
    epoch: int
    after: tuple[int, int]


class Run:
    """One run: a model, what updates it, what is kept of it, and where it stands."""

    def __init__(
        self, out: Path, parts: Parts, data: Prepared, run: dict[str, Any], watch: Watch, place: Place
    ) -> None:
        self.out, self.data, self.run, self.watch, self.place = out, data, run, watch, place
        self.processes = place.processes
        self.config = parts.config.training
        with model_guard("moving the model to the device"):
            parts = replace(parts, model=parts.model.to(place.device).train())
        self.updater = Updater(parts.model, self.config, place.device, place.bf16, self.processes, data.guide)
        self.keeper = Keeper(out, parts, data, run, self.updater, self.processes)
        self.position = Position()
        self.expected = expected_steps(parts.config, len(data.corpus))
        self.told = False  # how long it will take
        self.recent: dict[int, Work] = {}  # the updates that the device has not told of yet, without their batches

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; the model is already its."""
        self.keeper.restore(checkpoint)
        self.position = checkpoint.position

    def go(self, stop: Callable[[], bool]) -> Outcome:
        """Train until steps or patience are used up, or `stop` says so; leave a checkpoint and the best model."""
        metrics = MetricsFile(self.out, self.position.step) if self.processes.first else None
        if metrics is not None and self.position.step:
            self.watch.resumed(metrics.validations())
        if self.run.get("init") and self.position.step == 0 and self.position.best is None:
            self.position = self.keeper.keep_origin(self.position, self.watch, metrics)
        meter = Meter(self.config.steps)
        heard = Heard(stop, self.processes, self.position.step)
        with fast_products(self.place.device), closing(self.updater), ahead(self._works(), AHEAD) as works:
            while not (reason := self._over(heard)):
                self._one(next(works), meter, metrics)
        try:
            self.keeper.save(self.position)
        except DiskError:  # a disk too full for the checkpoint may still have room for the model
            self.keeper.finish(reason, self.position, self.watch, metrics)
            raise
        return self.keeper.finish(reason, self.position, self.watch, metrics)

    def _one(self, work: Work, meter: Meter, metrics: MetricsFile | None) -> None:
        """Learn from one update's batches; report, validate and save when it is time."""
        config = self.config
        step = self.position.step + 1
        self.position = replace(self.position, step=step, epoch=work.after[0], batch=work.after[1])
        self.recent[step] = replace(work, batches=[])
        self._update(work)
        meter.count(work.tokens)
        logged = step % config.log_every == 0
        validated = step % config.valid_every == 0
        saved = step % config.checkpoint_every == 0
        # On the CPU asking costs nothing; all processes have to ask at the same steps.
        if logged or validated or saved or (meter.due() if self.processes.world == 1 else False):
            self._look(meter)
            progress = meter.read(step, work.epoch, rate(step, config, self.position.halved))
            self.watch.progress(progress._replace(expected=self._expected()))
            self._say_how_long(meter)
            if logged and metrics:
                metrics.write({k: v for k, v in progress._asdict().items() if k != "steps" and v is not None})
            if logged:
                meter.clear()
        if validated:
            self.position = self.keeper.validated(self.position, self.watch, metrics)
        if saved:
            self.keeper.save(self.position)
        if validated or saved:
            meter.pause()

    def _expected(self) -> int | None:
        """Return the step at which the run will probably end; it does not before its patience is used up."""
        if self.expected is None:
            return None
        best = self.position.best.step if self.position.best else 0
        return min(self.config.steps, max(self.expected, best + self.config.patience * self.config.valid_every))

    def _say_how_long(self, meter: Meter) -> None:
        """Say once how long a run on a CPU will take, if that is more than a minute or two."""
        if self.told or meter.updates < FEW or self.place.device.type != "cpu":
            return
        self.told = True
        left = self.config.steps - self.position.step
        seconds = meter.spent / meter.updates
        if seconds * left <= 120:
            return
        expected = self._expected()
        usual = ""
        if expected is not None and expected < self.config.steps:
            usual = f"; such runs usually end by step {expected:,} ({_time(seconds * (expected - self.position.step))})"
        self.watch.say(
            f"at this speed {left:,} more steps take {_time(seconds * left)}, besides validations{usual}; it ends "
            "sooner when nothing gets better (training.patience), and Ctrl-C leaves the best model so far"
        )

    def _works(self) -> Iterator[Work]:
        """Yield the batches of every update from here on."""
        batches, rank, world = self.data.batches, self.processes.rank, self.processes.world
        epoch, number = self.position.epoch, self.position.batch
        plan = batches.epoch(epoch)
        while True:
            begun, rows, made, tokens = epoch, [], [], 0
            for _ in range(self.config.accumulate):
                if number == len(plan):
                    epoch, number = epoch + 1, 0
                    plan = batches.epoch(epoch)
                rows.append(plan[number])
                batch = batches.batch(plan[number], epoch, rank=rank, world=world, fixed=self.place.fixed)
                made.append(batch.pin() if self.place.device.type == "cuda" else batch)
                tokens += batch.tokens if world == 1 else batches.tokens(plan[number], epoch)
                number += 1
            yield Work(made, rows, tokens, begun, (epoch, number))

    def _over(self, stop: Heard) -> str:
        """Return why the run is over, or nothing."""
        if self.position.without_better >= self.config.patience:
            return "patience"
        if self.position.step >= self.config.steps:
            return "steps"
        return "interrupted" if stop(self.position.step) else ""

    def _update(self, work: Work) -> None:
        step, config = self.position.step, self.config
        shape = [max(b.x.shape[1] for b in work.batches), max(b.y.shape[1] for b in work.batches)]
        sizes = f"{max(map(len, work.rows))} pairs of up to {shape[0]} and {shape[1]} tokens"
        with batch_guard(f"step {step}, a batch of {sizes}", config):
            batches = [b.to(self.place.device) for b in work.batches]
            self.updater(batches, work.tokens, step, rate(step, config, self.position.halved))
        if self.place.device.type == "cpu" and self.updater.bad:
            self._not_finite(step)

    def _look(self, meter: Meter) -> None:
        """Ask the device what happened."""
        happened = self.updater.read()
        meter.add(happened.loss, happened.right, happened.guided, happened.linked)
        if happened.bad:
            self._not_finite(happened.bad)
        self.recent.clear()

    def _not_finite(self, step: int) -> None:
        work = self.recent.get(step)
        rows = [int(row) for part in work.rows for row in part] if work else []
        places = [self.data.corpus.where(row) for row in rows]
        some = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        epoch = f", in epoch {work.epoch + 1} on the batch of {some}" if work else ""
        clip = f"lower training.clip (now {self.config.clip})" if self.config.clip else "set training.clip=1"
        raise NotFiniteError(
            f"step {step}: the loss or its gradient is not finite{epoch}. The weights were left as they were, and "
            f"earlier checkpoints are whole. Lower training.rate (now {self.config.rate}), {clip}, "
            "or look at these pairs"
        )


def _time(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.0f} minutes"
