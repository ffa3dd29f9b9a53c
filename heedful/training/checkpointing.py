"""Checkpoints, validation on held-out pairs, and selecting the best weights as the model of a run.

`checkpoints/STEP/` is a model folder that also holds what a run needs to continue. Besides the model:
`optimizer.safetensors`, `best.safetensors` (the best weights so far), `average.safetensors` (the moving average, if
there is one), `recent.safetensors` (the weights of the last validations, if they are to be averaged) and `run.json`.
The folder is filled under another name and renamed when it is complete; its `config.json` has the checksum of every
file.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heedful.data import Pair
from heedful.data.batches import Batch, Batches
from heedful.data.cache import Array
from heedful.data.corpus import ImageArray
from heedful.decoding import greedy, length_limit
from heedful.errors import DiskError, HeedfulError, ModelError, NewerFormatError, printable
from heedful.files import max_json, parse_json, whole_folder, writing
from heedful.interop.folder import (
    AVERAGE,
    BEST,
    CAPTION_LENGTH,
    LONGEST_CAPTION,
    OPTIMIZER,
    RECENT,
    RUN,
    ModelFolder,
    ModelParts,
    pack,
    write_model,
    write_readout,
)
from heedful.interop.hub import HUB
from heedful.metrics import bleu, chrf
from heedful.models import Network
from heedful.models.device import memory_guard
from heedful.models.image import running_statistics
from heedful.models.layers import padding_mask
from heedful.text import Codec
from heedful.trace.readout import Readout, read_readout
from heedful.training.callbacks import RESUME, MetricsFile, Reporter, RunOutcome, Sample, Validation
from heedful.training.distributed import ALONE, Processes
from heedful.training.guided import GuidedAttention, agreement
from heedful.training.prepare import TrainingData
from heedful.training.step import TrainingStep, loss, mean_weights

# Return the read-out of a model with its alarms measured on validation pairs, or None if that is not possible, from the
# model, its device, the pairs and the tokens in a batch.
MeasureAlarms = Callable[[ModelParts, torch.device, Sequence[tuple[Any, str]], int], Readout | None]
Tensors = dict[str, Tensor]
MOMENTS = 4  # tensors of an optimizer for each weight at most; AdamW has two, and the number of steps


@dataclass(frozen=True)
class Position:
    """The position of a run: updates done, the epoch and the batches done in it, and the best validation so far.

    `without_better` counts the validations since the best, `halved` how often the rate was halved on a plateau, and
    `waited` the validations since it was last halved, or since the best.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: Validation | None = None
    without_better: int = 0
    halved: int = 0
    waited: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run: the model, the optimizer's state, other weights, its position, and its record.

    The record `run` has the files of the pairs and their checksum, so that a run is resumed with the same pairs.
    """

    parts: ModelParts
    optimizer: dict[str, Tensor]
    position: Position
    run: dict[str, Any]
    best: dict[str, Tensor] | None = None
    average: dict[str, Tensor] | None = None
    recent: tuple[dict[str, Tensor], ...] = ()


def save(out: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint, then remove all but the newest `keep`."""
    path = out / "checkpoints" / f"{checkpoint.position.step:09d}"
    best = checkpoint.position.best
    run = {**checkpoint.run, "position": {**asdict(checkpoint.position), "best": best and best.plain()}}
    extra = {OPTIMIZER: pack(checkpoint.optimizer), RUN: json.dumps(run).encode()}
    if checkpoint.best is not None:
        extra[BEST] = pack(checkpoint.best)
    if checkpoint.average is not None:
        extra[AVERAGE] = pack(checkpoint.average)
    if checkpoint.recent:
        extra[RECENT] = pack({f"{i}.{k}": t for i, one in enumerate(checkpoint.recent) for k, t in one.items()})
    with whole_folder(path) as folder:
        write_model(folder, checkpoint.parts, extra)
    older = [folder for folder in folders(out) if int(folder.name) < checkpoint.position.step]
    for old in older[keep - 1 :]:
        shutil.rmtree(old, ignore_errors=True)


def folders(out: Path) -> list[Path]:
    """Return the checkpoint folders of a run, newest first, complete or not."""
    paths = [p for p in (out / "checkpoints").glob("*") if p.is_dir() and p.name.isdecimal()]
    return sorted(paths, key=lambda p: int(p.name), reverse=True)


def newest(out: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the newest complete checkpoint of a run, if there is one, and newer damaged ones with the reason.

    Raises NewerFormatError for one that a newer heedful wrote: it is not damaged, and resuming from an older one would
    lose it.
    """
    damaged: dict[Path, str] = {}
    for path in folders(out):
        try:
            return _read(path), damaged
        except NewerFormatError as error:
            error.args = (f"{error}, or start a run in another folder",)
            raise
        except HeedfulError as error:
            damaged[path] = str(error)
    return None, damaged


def remove_partial(out: Path, damaged: Iterable[Path]) -> None:
    """Rename damaged checkpoints, so that they are not resumed, and remove partial ones."""
    with writing(out):
        for path in damaged:
            renamed = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(renamed, ignore_errors=True)
            path.rename(renamed)
    for partial in (out / "checkpoints").glob(".*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def naming_last_checkpoint(out: Path) -> Iterator[None]:
    """Add to a DiskError the checkpoint from which the run can be resumed."""
    try:
        yield
    except DiskError as error:
        hint = "there is no checkpoint yet"
        if paths := folders(out):
            hint = f"the checkpoint of step {int(paths[0].name):,} is complete: make room, then continue with {RESUME}"
        error.args = (f"{error}; {hint}",)
        raise


def _read(path: Path) -> Checkpoint:
    folder = ModelFolder(path)
    files = folder.head["files"]
    if missing := {RUN, OPTIMIZER} - files.keys():
        raise ModelError(f"{path}: not a checkpoint: it has no {' and no '.join(sorted(missing))}")
    run = parse_json(folder.content(RUN, max_json(), "a JSON file (HEEDFUL_MAX_JSON)"), str(path / RUN))
    try:
        position = _position(run.pop("position"))
        optimizer = folder.tensors(OPTIMIZER, MOMENTS)
        _check_shapes(optimizer, folder.shapes, OPTIMIZER, scalars=True)
        return Checkpoint(
            folder.parts(),
            optimizer,
            position,
            run,
            _weights(folder, BEST) if BEST in files else None,
            _weights(folder, AVERAGE) if AVERAGE in files else None,
            _several(folder) if RECENT in files else (),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: not a checkpoint ({type(error).__name__}: {error!s:.200})") from None
    except ModelError as error:
        named = str(error).startswith(printable(str(path)))
        raise ModelError(str(error) if named else f"{path}: {error}") from None


def _position(plain: dict[str, Any]) -> Position:
    """Return the position of a run; raises ValueError for a value that is not a number."""
    best = plain.pop("best")
    if not all(type(number) is int and 0 <= number < 2**53 for number in plain.values()):
        raise ValueError(f"its position is {plain!s:.100}, expected whole numbers")
    if best is not None and not all(type(score) in (int, float) for score in best.values()):
        raise ValueError(f"its best validation is {best!s:.100}, expected numbers")
    return Position(**plain, best=None if best is None else Validation(**best))


def _weights(folder: ModelFolder, name: str) -> dict[str, Tensor]:
    """Return other weights of the same model."""
    tensors = folder.tensors(name)
    if tensors.keys() != folder.shapes.keys():
        raise ModelError(f"{name}: its weights are not those of the model")
    _check_shapes({f".{key}": tensor for key, tensor in tensors.items()}, folder.shapes, name)
    return tensors


def _check_shapes(
    tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], name: str, *, scalars: bool = False
) -> None:
    """Raise ModelError for tensors, named KIND.WEIGHT, that have not the shape of the weight; `scalars` are allowed."""
    for key, tensor in tensors.items():
        wanted, shape = shapes.get(key.partition(".")[2]), tuple(tensor.shape)
        if wanted is None:
            raise ModelError(f"{name}: '{key.partition('.')[2]:.80}' is not a weight of this model")
        if shape != wanted and not (scalars and shape == ()):
            raise ModelError(f"{name}: '{key}' has shape {shape}, expected {wanted}")


def _several(folder: ModelFolder) -> tuple[dict[str, Tensor], ...]:
    """Return several sets of weights, saved with a number before each name."""
    tensors = folder.tensors(RECENT, max(1, folder.config.training.average))
    _check_shapes(tensors, folder.shapes, RECENT)
    sets: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, rest = name.partition(".")
        sets.setdefault(int(number), {})[rest] = tensor
    return tuple(sets[number] for number in sorted(sets))


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """Return an optimizer's state as named tensors."""
    states = optimizer.state_dict()["state"]
    return {f"{key}.{names[i]}": tensor for i, state in states.items() for key, tensor in state.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Restore an optimizer's state."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key, _, parameter = name.partition(".")
        if parameter not in names:
            raise ModelError(f"{OPTIMIZER}: '{parameter}' is not a weight of this model")
        state.setdefault(names.index(parameter), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class Validator:
    """Validates a model on the same pairs each time; of several processes, each takes its share of the batches.

    With the loss as metric, only the samples are translated: translating takes most of the time. An image with several
    captions is captioned once, and all of them are its references.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        batches: Batches,
        target: Codec,
        device: torch.device,
        metric: str = "bleu",
        processes: Processes = ALONE,
        guide: GuidedAttention | None = None,
        caption_length: int = CAPTION_LENGTH,
    ) -> None:
        self.pairs = pairs
        self.images = isinstance(batches.corpus.source, ImageArray)
        first: dict[str, int] = {}
        # The first row with the same source, of images; each row itself, of sentences.
        self.first = [first.setdefault(p.source, row) if self.images else row for row, p in enumerate(pairs)]
        self.references: dict[int, list[str]] = {}
        for row, pair in zip(self.first, pairs, strict=True):
            self.references.setdefault(row, []).append(pair.target)
        # Neither the shortest nor the longest, and the same every time.
        side = int(self.images)
        order = sorted(self.references, key=lambda row: (len(pairs[row][side]), row))
        self.samples = sorted({order[len(order) // 3], order[2 * len(order) // 3]}) if order else []
        self.batches = batches
        self.caption_length = caption_length
        plan = batches.epoch(0)
        self.rows = [plan[i] for i in range(processes.rank, len(plan), processes.world)]
        self.target, self.device, self.metric, self.processes = target, device, metric, processes
        self.guide = guide if batches.corpus.links is not None else None

    @torch.inference_mode()
    def __call__(self, model: Network, step: int) -> Validation:
        """Return the scores of the model as it is; dropout is off meanwhile."""
        model.eval()
        sums = torch.zeros(5, dtype=torch.float64)
        outputs: dict[int, str] = {}
        for rows in self.rows:
            batch = self.batches.batch(rows).to(self.device)
            batch_loss = loss(model, batch)
            tokens = batch_loss.tokens
            sums[:3] += torch.tensor([float(batch_loss.mean) * tokens, float(batch_loss.correct), tokens])
            if self.guide is not None:
                sums[3:] += torch.stack(agreement(model, batch, self.guide)).cpu()
            if self.metric != "loss":
                once = np.array([row for row in rows.tolist() if self.first[row] == row], np.int64)
                if len(once) == len(rows):
                    outputs.update(self._translated(model, batch, rows))
                elif len(once):
                    outputs.update(self._translated(model, self.batches.batch(once).to(self.device), once))
        if self.metric == "loss" and self.processes.first and self.samples:
            rows = np.array(self.samples)
            outputs.update(self._translated(model, self.batches.batch(rows).to(self.device), rows))
        model.train()
        total, correct, tokens, hits, linked = self.processes.add_up(sums).tolist()
        links = hits / linked if linked else None
        if self.metric == "loss":
            samples = self._sampled(outputs)
            return Validation(step, total / tokens, correct / tokens, None, None, links, samples, self.images)
        everything = {row: text for share in self.processes.gather(outputs) for row, text in share.items()}
        texts = [everything[row] for row in self.references]
        references = list(self.references.values())
        score = chrf(texts, references) if self.metric == "chrf" else None
        scores = total / tokens, correct / tokens, bleu(texts, references), score, links
        return Validation(step, *scores, self._sampled(everything), self.images)

    def _sampled(self, outputs: Mapping[int, str]) -> tuple[Sample, ...]:
        return tuple(Sample(*self.pairs[row][:2], outputs[row]) for row in self.samples if row in outputs)

    def _translated(self, model: Network, batch: Batch, rows: Array) -> Iterator[tuple[int, str]]:
        """Yield the greedy translation of each row."""
        memory = model.encode(batch.x, padding_mask(batch.x))
        lengths = [self.caption_length] * len(batch.x) if self.images else memory.keep.sum(1).tolist()
        hypotheses = greedy(model, memory, [length_limit(length) for length in lengths])
        for row, hypothesis in zip(rows, hypotheses, strict=True):
            yield int(row), self.target.decode(hypothesis.ids)


class Checkpointer:
    """Validates the model of a run, keeps its best weights and checkpoints; of several processes the first writes."""

    def __init__(
        self,
        out: Path,
        parts: ModelParts,
        data: TrainingData,
        run: dict[str, Any],
        training_step: TrainingStep,
        processes: Processes,
        measure_alarms: MeasureAlarms | None = None,
    ) -> None:
        if parts.config.image is not None:
            longest = int(data.corpus.lengths()[:, 1].max(initial=1))
            parts = replace(parts, notes={**parts.notes, LONGEST_CAPTION: longest})
        self.out, self.parts, self.run, self.training_step, self.processes = out, parts, run, training_step, processes
        self.config, self.model, self.measure_alarms = parts.config.training, parts.model, measure_alarms
        self.pairs, self.guided = len(data.corpus), data.guide is not None
        self.validate = Validator(
            data.valid_pairs,
            data.valid_batches,
            parts.target,
            training_step.device,
            self.config.metric,
            processes,
            data.guide,
            self.parts.caption_length,
        )
        self.valid_pairs, self.valid_images = data.valid_pairs, data.valid_images
        self.names = [name for name, weight in self.model.named_parameters() if weight.requires_grad]
        self.averaged = [*self.names, *running_statistics(self.model)]  # what the moving average follows
        self.best: Tensors | None = None
        self.recent: deque[Tensors] = deque(maxlen=self.config.average)
        self.saved = 0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore the state of a checkpoint; the model already has its weights."""
        restore_optimizer(self.training_step.optimizer, self.names, checkpoint.optimizer)
        self.best, self.saved = checkpoint.best, checkpoint.position.step
        self.recent.extend(checkpoint.recent)
        if self.training_step.average is not None and checkpoint.average is not None:
            for name, value in zip(self.averaged, self.training_step.average.values, strict=True):
                value.copy_(checkpoint.average[name])

    def keep_initial(self, position: Position, reporter: Reporter, metrics: MetricsFile | None) -> Position:
        """Validate the pretrained model that the run begins with: if no validation is better, it is the result.

        Not with guided attention: the read-out of the result names heads that the pretrained model did not guide. The
        model is saved as a checkpoint, so that the run can be resumed without the pretrained model.
        """
        position = self.validated(position, reporter, metrics)
        if self.guided:
            self.best, position = None, replace(position, best=None)
            self.recent.clear()
        self.saved = -1
        self.save(position)
        return position

    def validated(self, position: Position, reporter: Reporter, metrics: MetricsFile | None) -> Position:
        """Validate the model, keep its weights if it is the best so far, and return the new position."""
        with self._averaged():
            validation = self._measure(position.step)
            better = validation.better_than(position.best, self.config.metric)
            weights = self._weights() if better or self.config.average > 1 else {}
        if self.config.average > 1:
            self.recent.append(weights)
        report_validation(validation, better, reporter, metrics)
        if better:
            self.best = weights
            return replace(position, best=validation, without_better=0, waited=0)
        waited = position.waited + 1
        halve = self.config.decay == "plateau" and waited >= self.config.plateau
        return replace(
            position,
            without_better=position.without_better + 1,
            halved=position.halved + halve,
            waited=0 if halve else waited,
        )

    def save(self, position: Position) -> None:
        """Write a checkpoint, unless this step has one."""
        if position.step != self.saved:
            self.processes.share(lambda: self._write(position))
        self.saved = position.step

    def _write(self, position: Position) -> None:
        average = self.training_step.average
        optimizer = optimizer_tensors(self.training_step.optimizer, self.names)
        averaged = None
        if average is not None:  # what is not trained is as in the model
            averaged = {**self.model.state_dict(), **dict(zip(self.averaged, average.values, strict=True))}
        checkpoint = Checkpoint(self.parts, optimizer, position, self.run, self.best, averaged, tuple(self.recent))
        save(self.out, checkpoint, self.config.keep)

    def finish(self, reason: str, position: Position, reporter: Reporter, metrics: MetricsFile | None) -> RunOutcome:
        """Write the best weights as the run's model.

        The last weights of a finished run are validated too, and the average of the last validations' weights. These
        are not part of the checkpoint, so a run that is extended later equals one planned with that length.
        """
        best, weights = position.best, self.best
        for candidate in self._candidates(reason, position):
            with self._holding(candidate):
                validation = self._measure(position.step)
            if better := validation.better_than(best, self.config.metric):
                best, weights = validation, candidate
            report_validation(validation, better, reporter, metrics, final=True)
        if position.step:
            notes = {
                **self.parts.notes,
                "step": best.step if best else position.step,
                "validation": None if best is None else best.plain(),
                "pairs": self.pairs,
                **({"init": _model_name(self.run["init"])} if self.run.get("init") else {}),
                **self.run.get("teacher", {}),
            }
            with self._holding(weights or self._last()):
                self.processes.share(lambda: write_model(self.out, replace(self.parts, notes=notes)))
                if reason != "interrupted":  # so that Ctrl-C does not take long
                    self.processes.share(lambda: self._add_alarm_rates(reporter))
        return RunOutcome(reason, position.step, best)

    def _add_alarm_rates(self, reporter: Reporter) -> None:
        """Measure the alarms of the model that was written, and add them to its read-out.

        An error, such as memory that runs out, is only logged: the model is complete without. A read-out that was
        selected for these weights before is kept.
        """
        saved, _ = read_readout(self.out, self.parts.config)
        if self.measure_alarms is None or not (saved is None or saved == self.parts.readout):
            return
        try:
            pairs: list[tuple[Any, str]] = [(pair.source, pair.target) for pair in self.valid_pairs]
            if self.valid_images is not None:  # each image once, with its first caption
                first = {pair.source: pair.target for pair in self.valid_pairs[::-1]}
                pairs = [(self.valid_images.square(name), caption) for name, caption in first.items()]
            readout = self.measure_alarms(self.parts, self.training_step.device, pairs, self.config.batch_tokens)
        except HeedfulError as error:
            reporter.log(f"the alarms of the model could not be measured: {error}")
            return
        if readout is not None:
            write_readout(self.out, readout)

    def _candidates(self, reason: str, position: Position) -> Iterator[Tensors]:
        """Yield weights that are not validated yet."""
        if reason == "steps" and position.step % self.config.valid_every:
            yield self._last()
        if reason != "interrupted" and len(self.recent) > 1:
            yield mean_weights(tuple(self.recent))

    def _measure(self, step: int) -> Validation:
        remedy = f"lower training.batch_tokens (now {self.config.batch_tokens}) or text.max_length"
        with memory_guard(f"validation at step {step}", remedy):
            return self.validate(self.model, step)

    def _last(self) -> Tensors:
        with self._averaged():
            return self._weights()

    def _weights(self) -> Tensors:
        """Return a copy of the weights on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.model.state_dict().items()}

    @contextmanager
    def _holding(self, weights: Tensors) -> Iterator[None]:
        """Load other weights into the model inside the block."""
        own = self._weights()
        self.model.load_state_dict(weights)
        try:
            yield
        finally:
            self.model.load_state_dict(own)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Load the moving average of the weights, if there is one, into the model inside the block."""
        average = self.training_step.average
        if average is None:
            yield
            return
        average.swap()
        try:
            yield
        finally:
            average.swap()


def report_validation(
    validation: Validation, better: bool, reporter: Reporter, metrics: MetricsFile | None, final: bool = False
) -> None:
    """Report scores; those at the end of a run are marked `final`, as a longer run does not have them."""
    reporter.validated(validation, better)
    if metrics is not None:
        scores = {f"valid_{k}": v for k, v in validation.plain().items() if k != "step"}
        metrics.write({"step": validation.step, **scores, "best": better, **({"final": True} if final else {})})


def _model_name(init: str) -> str:
    """Return the name of a pretrained model without the path on this machine."""
    return init if init.startswith(HUB) else Path(init).name
