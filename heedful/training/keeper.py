"""What is kept of a run: its best weights, its checkpoints, and in the end its model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.device import memory_guard
from heedful.errors import HeedfulError
from heedful.folder import Parts, write_model, write_readout
from heedful.trace.readout import read_readout
from heedful.training.average import mean
from heedful.training.checkpoint import Checkpoint, Position, optimizer_tensors, restore_optimizer, save
from heedful.training.metrics_file import MetricsFile
from heedful.training.origin import name_of
from heedful.training.prepare import Prepared
from heedful.training.processes import Processes
from heedful.training.records import Outcome, Validation, Watch
from heedful.training.update import Updater
from heedful.training.validation import Validator
from heedful.translator import Translator
from heedful.translator.alarm_rates import FEWEST, measure_alarms

__all__ = ["Keeper", "tell"]

Tensors = dict[str, Tensor]


class Keeper:
    """Measures the model of a run and keeps what is worth keeping; of several processes the first one writes."""

    def __init__(
        self, out: Path, parts: Parts, data: Prepared, run: dict[str, Any], updater: Updater, processes: Processes
    ) -> None:
        self.out, self.parts, self.run, self.updater, self.processes = out, parts, run, updater, processes
        self.config, self.model = parts.config.training, parts.model
        self.pairs, self.guided = len(data.corpus), data.guide is not None
        self.validate = Validator(
            data.valid_pairs,
            data.valid_batches,
            parts.target,
            updater.device,
            self.config.metric,
            processes,
            data.guide,
        )
        self.valid_pairs = data.valid_pairs
        self.names = [name for name, _ in self.model.named_parameters()]
        self.best: Tensors | None = None
        self.recent: deque[Tensors] = deque(maxlen=self.config.average)
        self.saved = 0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over what a checkpoint kept; the model is already its."""
        restore_optimizer(self.updater.optimizer, self.names, checkpoint.optimizer)
        self.best, self.saved = checkpoint.best, checkpoint.position.step
        self.recent.extend(checkpoint.recent)
        if self.updater.average is not None and checkpoint.average is not None:
            for name, value in zip(self.names, self.updater.average.values, strict=True):
                value.copy_(checkpoint.average[name])

    def keep_origin(self, position: Position, watch: Watch, metrics: MetricsFile | None) -> Position:
        """Measure the model that the run begins with: if nothing better comes of it, it is the result.

        Not where links guide the run: that model has not seen them, though it may write better words, and the read-out
        that comes with the result names heads that were not taught.
        It is the first checkpoint, too, so that the run goes on even when the model it began with is gone.
        """
        position = self.validated(position, watch, metrics)
        if self.guided:
            self.best, position = None, replace(position, best=None)
            self.recent.clear()
        self.saved = -1
        self.save(position)
        return position

    def validated(self, position: Position, watch: Watch, metrics: MetricsFile | None) -> Position:
        """Measure the model, remember it if it is the best so far, and return where the run stands then."""
        with self._averaged():
            found = self._measure(position.step)
            better = found.better_than(position.best, self.config.metric)
            weights = self._weights() if better or self.config.average > 1 else {}
        if self.config.average > 1:
            self.recent.append(weights)
        tell(found, better, watch, metrics)
        if better:
            self.best = weights
            return replace(position, best=found, without_better=0, waited=0)
        waited = position.waited + 1
        halve = self.config.decay == "plateau" and waited >= self.config.plateau
        return replace(
            position,
            without_better=position.without_better + 1,
            halved=position.halved + halve,
            waited=0 if halve else waited,
        )

    def save(self, position: Position) -> None:
        """Write a checkpoint, unless this one is written."""
        if position.step != self.saved:
            self.processes.share(lambda: self._write(position))
        self.saved = position.step

    def _write(self, position: Position) -> None:
        average = self.updater.average
        optimizer = optimizer_tensors(self.updater.optimizer, self.names)
        averaged = None if average is None else dict(zip(self.names, average.values, strict=True))
        kept = Checkpoint(self.parts, optimizer, position, self.run, self.best, averaged, tuple(self.recent))
        save(self.out, kept, self.config.keep)

    def finish(self, reason: str, position: Position, watch: Watch, metrics: MetricsFile | None) -> Outcome:
        """Write the best weights as the run's model.

        The last weights of a finished run are measured too, and the average of the last validations' weights. That is
        not part of the checkpoint, so a run that is made longer afterwards is the run that was that long from the
        beginning.
        """
        best, weights = position.best, self.best
        for candidate in self._candidates(reason, position):
            with self._holding(candidate):
                found = self._measure(position.step)
            if better := found.better_than(best, self.config.metric):
                best, weights = found, candidate
            tell(found, better, watch, metrics, final=True)
        if position.step:
            notes = {
                "step": best.step if best else position.step,
                "validation": None if best is None else best.plain(),
                "pairs": self.pairs,
                **({"init": name_of(self.run["init"])} if self.run.get("init") else {}),
            }
            with self._holding(weights or self._last()):
                self.processes.share(lambda: write_model(self.out, replace(self.parts, notes=notes)))
                if reason != "interrupted":  # whoever stops a run does not want to wait
                    self.processes.share(lambda: self._measure_alarms(watch))
        return Outcome(reason, position.step, best)

    def _measure_alarms(self, watch: Watch) -> None:
        """Measure the alarms of the model that was written, where there are pairs enough, and add them to its read-out.

        The model is there already: if this fails, as on a device without memory for it, that is reported and no more.
        A read-out that was chosen for these very weights before is left alone.
        """
        there, _ = read_readout(self.out, self.parts.config)
        if len(self.valid_pairs) < FEWEST or not (there is None or there == self.parts.readout):
            return
        pairs = [(pair.source, pair.target) for pair in self.valid_pairs]
        try:
            translator = Translator(self.parts, self.updater.device)
            rates = measure_alarms(translator, pairs, batch_tokens=self.config.batch_tokens)
        except HeedfulError as error:
            watch.say(f"the alarms of the model could not be measured: {error}")
            return
        if rates is not None:
            write_readout(self.out, replace(translator.readout, alarms=rates))

    def _candidates(self, reason: str, position: Position) -> Iterator[Tensors]:
        """Yield weights that have not been measured yet."""
        if reason == "steps" and position.step % self.config.valid_every:
            yield self._last()
        if reason != "interrupted" and len(self.recent) > 1:
            yield mean(tuple(self.recent))

    def _measure(self, step: int) -> Validation:
        remedy = f"lower training.batch_tokens (now {self.config.batch_tokens}) or text.max_length"
        with memory_guard(f"validation at step {step}", remedy):
            return self.validate(self.model, step)

    def _last(self) -> Tensors:
        with self._averaged():
            return self._weights()

    def _weights(self) -> Tensors:
        """Return a copy in the CPU's memory: there may be many of them, and a checkpoint's are there, too."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.model.state_dict().items()}

    @contextmanager
    def _holding(self, weights: Tensors) -> Iterator[None]:
        """Give the model other weights for a while."""
        kept = self._weights()
        self.model.load_state_dict(weights)
        try:
            yield
        finally:
            self.model.load_state_dict(kept)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Give the model the moving average of its weights for a while, if there is one."""
        average = self.updater.average
        if average is None:
            yield
            return
        average.swap()
        try:
            yield
        finally:
            average.swap()


def tell(found: Validation, better: bool, watch: Watch, metrics: MetricsFile | None, final: bool = False) -> None:
    """Report scores; those of the end are no part of a run that is made longer, and are marked for that."""
    watch.validated(found, better)
    if metrics is not None:
        scores = {f"valid_{k}": v for k, v in found.plain().items() if k != "step"}
        metrics.write({"step": found.step, **scores, "best": better, **({"final": True} if final else {})})
