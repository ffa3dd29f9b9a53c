"""The training loop. Everything random follows from the seed and the step, so a run can stop and go on anywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.device import memory_guard, pick
from heedful.errors import DiskError, NotFiniteError
from heedful.folder import Parts, write_model
from heedful.training.checkpoint import Checkpoint, Position, optimizer_tensors, restore_optimizer, save
from heedful.training.loss import loss
from heedful.training.metrics_file import MetricsFile
from heedful.training.origin import name_of
from heedful.training.prepare import Prepared
from heedful.training.records import Outcome, Progress, Validation, Watch
from heedful.training.schedule import rate
from heedful.training.validation import Validator

__all__ = ["Meter", "Run"]

Tensors = dict[str, Tensor]


class Run:
    """One run: a model, its optimizer, and where it stands."""

    def __init__(self, out: Path, parts: Parts, data: Prepared, run: dict[str, Any], watch: Watch) -> None:
        self.out, self.data, self.run, self.watch = out, data, run, watch
        self.config = parts.config.training
        self.device = pick(self.config.device)
        with memory_guard("moving the model to the device", "make it smaller (model.width, model.layers, text.size)"):
            self.parts = replace(parts, model=parts.model.to(self.device).train())
        self.model = self.parts.model
        self.names = [name for name, _ in self.model.named_parameters()]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=self.config.weight_decay, fused=True
        )
        self.validate = Validator(data.valid_pairs, data.valid_batches, parts.target, self.device)
        self.position = Position()
        self.best: Tensors | None = None
        self.saved = 0
        self.epoch: tuple[int, list[tuple[int, ...]]] = (-1, [])

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; the model is already its."""
        restore_optimizer(self.optimizer, self.names, checkpoint.optimizer)
        self.position, self.best, self.saved = checkpoint.position, checkpoint.best, checkpoint.position.step

    def go(self, stop: Callable[[], bool]) -> Outcome:
        """Train until steps or patience are used up, or `stop` says so; leave a checkpoint and the best model."""
        metrics = MetricsFile(self.out, self.position.step)
        if self.run.get("init") and self.position.step == 0 and self.position.best is None:
            self._keep_origin(metrics)
        meter = Meter(self.config.steps)
        while not (reason := self._over(stop)):
            rows, epoch = self._next()
            step = self.position.step
            mean, tokens, right = self._update(rows, epoch)
            meter.add(mean, tokens, right)
            logged = step % self.config.log_every == 0
            if logged or meter.due():
                progress = meter.read(step, epoch, rate(step, self.config))
                self.watch.progress(progress)
            if logged:
                metrics.write({k: v for k, v in progress._asdict().items() if k != "steps"})
                meter.clear()
            if step % self.config.valid_every == 0:
                self._validated(metrics)
                meter.pause()
            if step % self.config.checkpoint_every == 0:
                self._save()
                meter.pause()
        try:
            self._save()
        except DiskError:
            self._finish(reason, metrics)  # a disk too full for the checkpoint may still have room for the model
            raise
        return self._finish(reason, metrics)

    def _keep_origin(self, metrics: MetricsFile) -> None:
        """Measure the model that the run begins with: if nothing better comes of it, it is the result.

        It is the first checkpoint, too, so that the run goes on even when the model it began with is gone.
        """
        self._validated(metrics)
        self.saved = -1
        self._save()

    def _over(self, stop: Callable[[], bool]) -> str:
        """Return why the run is over, or nothing."""
        if self.position.without_better >= self.config.patience:
            return "patience"
        if self.position.step >= self.config.steps:
            return "steps"
        return "interrupted" if stop() else ""

    def _next(self) -> tuple[tuple[int, ...], int]:
        """Return the rows of the next batch and its epoch, and move on."""
        at = self.position
        batches = self._epoch(at.epoch)
        rows = batches[at.batch]
        ahead = (at.epoch, at.batch + 1) if at.batch + 1 < len(batches) else (at.epoch + 1, 0)
        self.position = replace(at, step=at.step + 1, epoch=ahead[0], batch=ahead[1])
        return rows, at.epoch

    def _epoch(self, number: int) -> list[tuple[int, ...]]:
        """Return the batches of an epoch; those of the current one are remembered."""
        if self.epoch[0] != number:
            self.epoch = (number, self.data.batches.epoch(number))
        return self.epoch[1]

    def _update(self, rows: tuple[int, ...], epoch: int) -> tuple[float, int, int]:
        """Learn from one batch; return its loss, its tokens and how many of them were right."""
        step, config = self.position.step, self.config
        # Seeded anew at every step: dropout needs no memory of earlier steps.
        torch.manual_seed(config.seed * 1_000_003 + step)
        batch = self.data.batches.batch(rows).to(self.device)
        sizes = f"{len(rows)} pairs of up to {batch.x.shape[1]} and {batch.y.shape[1]} tokens"
        with memory_guard(
            f"step {step}, a batch of {sizes}", f"lower training.batch_tokens (now {config.batch_tokens})"
        ):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                found = loss(self.model, batch, config.smoothing)
            self.optimizer.zero_grad(set_to_none=True)
            found.mean.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip or math.inf)
            mean = found.mean.item()
            if not (math.isfinite(mean) and math.isfinite(norm.item())):
                self._not_finite(mean, rows, epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = rate(step, config)
            self.optimizer.step()
        return mean, found.tokens, int(found.right)

    def _not_finite(self, mean: float, rows: tuple[int, ...], epoch: int) -> None:
        what = "the gradient is not finite" if math.isfinite(mean) else f"the loss is {mean}"
        places = [self.data.pairs[row].where or f"pair {row + 1}" for row in rows]
        some = ", ".join(places[:5]) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
        raise NotFiniteError(
            f"step {self.position.step}: {what}, in epoch {epoch + 1} on the batch of {some}. The weights were left as "
            f"they were; the last checkpoint is whole. Lower training.rate (now {self.config.rate}) or training.clip "
            f"(now {self.config.clip}), or look at these pairs"
        )

    def _validated(self, metrics: MetricsFile) -> None:
        """Measure the model and remember it if it is the best so far."""
        found = self._measure()
        better = found.better_than(self.position.best)
        if better:
            self.best = self._weights()
            self.position = replace(self.position, best=found, without_better=0)
        else:
            self.position = replace(self.position, without_better=self.position.without_better + 1)
        self._tell(found, better, metrics)

    def _measure(self) -> Validation:
        remedy = f"lower training.batch_tokens (now {self.config.batch_tokens}) or text.max_length"
        with memory_guard(f"validation at step {self.position.step}", remedy):
            return self.validate(self.model, self.position.step)

    def _tell(self, found: Validation, better: bool, metrics: MetricsFile, final: bool = False) -> None:
        """Report scores; those of the end are no part of a run that is made longer, and are marked for that."""
        self.watch.validated(found, better)
        scores = {f"valid_{k}": v for k, v in found._asdict().items() if k != "step"}
        metrics.write({"step": found.step, **scores, "best": better, **({"final": True} if final else {})})

    def _weights(self) -> Tensors:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _save(self) -> None:
        if self.position.step == self.saved:
            return
        optimizer = optimizer_tensors(self.optimizer, self.names)
        save(self.out, Checkpoint(self.parts, optimizer, self.best, self.position, self.run), self.config.keep)
        self.saved = self.position.step

    def _finish(self, reason: str, metrics: MetricsFile) -> Outcome:
        """Write the best weights as the run's model.

        The last weights of a finished run are measured too. That is not part of the checkpoint, so a run that is made
        longer afterwards is the run that was that long from the beginning.
        """
        best, weights = self.position.best, self.best
        if reason == "steps" and self.position.step % self.config.valid_every:
            found = self._measure()
            if better := found.better_than(best):
                best, weights = found, self._weights()
            self._tell(found, better, metrics, final=True)
        if self.position.step:
            last = self._weights()
            self.model.load_state_dict(weights or last)
            scores = None if best is None else best._asdict()
            notes = {
                "step": best.step if best else self.position.step,
                "validation": scores,
                "pairs": len(self.data.pairs),
                **({"init": name_of(self.run["init"])} if self.run.get("init") else {}),
            }
            write_model(self.out, replace(self.parts, notes=notes))
            self.model.load_state_dict(last)
        return Outcome(reason, self.position.step, best)


class Meter:
    """Adds up what happened since the last report; pauses do not count as training time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.shown = 0.0
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.begin, self.spent = time.perf_counter(), 0.0
        self.loss, self.tokens, self.right = 0.0, 0, 0

    def add(self, mean: float, tokens: int, right: int) -> None:
        """Take in one update."""
        now = time.perf_counter()
        self.spent += now - self.begin
        self.begin = now
        self.loss += mean * tokens
        self.tokens += tokens
        self.right += right

    def due(self) -> bool:
        """Whether the last report is more than two seconds old: slow steps are shown one by one."""
        return time.perf_counter() - self.shown > 2

    def pause(self) -> None:
        """Leave out the time since the last update."""
        self.begin = time.perf_counter()

    def read(self, step: int, epoch: int, learning_rate: float) -> Progress:
        """Return the report."""
        self.shown = time.perf_counter()
        n = max(self.tokens, 1)
        speed = self.tokens / max(self.spent, 1e-9)
        return Progress(step, self.steps, epoch + 1, self.loss / n, self.right / n, learning_rate, speed)
