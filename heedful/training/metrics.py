"""Running averages between two reports, and `metrics.jsonl`: one JSON object a line; also for TensorBoard."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.bounded import megabytes, open_plain
from heedful.disk import write_whole, writing
from heedful.errors import DataError
from heedful.training.callbacks import Progress, Validation
from heedful.training.step import StepStats

__all__ = ["MetricsFile", "RunningMetrics", "read_metrics"]

MOST = 1_000_000_000  # bytes; a run of a million steps writes some 50 MB
RECORD = 100_000  # bytes of a record, which has some hundred


class RunningMetrics:
    """Sums since the last report; pauses do not count as training time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.shown = 0.0
        self.clear()

    def clear(self) -> None:
        """Reset the sums."""
        self.begin, self.spent = time.perf_counter(), 0.0
        self.loss, self.right, self.tokens, self.updates = 0.0, 0.0, 0, 0
        self.auxiliary: dict[str, tuple[float, float]] = {}

    def count(self, tokens: int) -> None:
        """Count one update of so many tokens."""
        self.tokens += tokens
        self.updates += 1

    def add(self, stats: StepStats) -> None:
        """Add the sums of the updates since the last time."""
        now = time.perf_counter()
        self.spent += now - self.begin
        self.begin = now
        self.loss += stats.loss
        self.right += stats.right
        for name, (value, count) in stats.auxiliary.items():
            before = self.auxiliary.get(name, (0.0, 0.0))
            self.auxiliary[name] = before[0] + value, before[1] + count

    def due(self) -> bool:
        """Whether the last report is more than two seconds old: slow steps are shown one by one."""
        return time.perf_counter() - self.shown > 2

    def pause(self) -> None:
        """Leave out the time since `add`."""
        self.begin = time.perf_counter()

    def read(self, step: int, epoch: int, rate: float) -> Progress:
        """Return the report."""
        self.shown = time.perf_counter()
        n = max(self.tokens, 1)
        speed = self.tokens / max(self.spent, 1e-9)
        losses = {name: value / count for name, (value, count) in self.auxiliary.items() if count}
        return Progress(step, self.steps, epoch + 1, self.loss / n, self.right / n, rate, speed, losses)


class MetricsFile:
    """Appends records; when a run is resumed, records after its checkpoint are dropped first."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / "metrics.jsonl"
        if step and self.path.exists():
            self._drop_after(step)
        else:
            write_whole(self.path, b"")
        self.board = _board(out, step)

    def _drop_after(self, step: int) -> None:
        """Drop the records after a step, and what is none; a file that is far too large is put aside."""
        if self.path.stat().st_size > MOST:
            aside = self.path.with_name("metrics.damaged.jsonl")
            logging.getLogger("heedful").warning(
                "%s has more than %s, more than metrics ever have; it was renamed %s, and the curve begins anew",
                self.path,
                megabytes(MOST),
                aside.name,
            )
            with writing(self.path):
                self.path.replace(aside)
            write_whole(self.path, b"")
            return
        partial = self.path.with_name(f".{self.path.name}.partial")
        with writing(self.path):
            try:
                with partial.open("wb") as file:
                    for line in read_metrics(self.path):
                        if self._kept(line, step):
                            file.write(line.rstrip(b"\r\n") + b"\n")
                partial.replace(self.path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    @staticmethod
    def _kept(line: bytes, step: int) -> bool:
        try:
            record = json.loads(line)
            return int(record["step"]) <= step and not record.get("final")
        # A line cut short when the run was killed, or something else.
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return False

    def validations(self) -> list[Validation]:
        """Return the validations so far; what is not a whole record of one is passed over."""
        found = []
        for line in read_metrics(self.path):
            record = json.loads(line)  # an object with a step: others were dropped when the file was opened
            names = {
                "step": "step",
                **{name: f"valid_{name}" for name in ("loss", "accuracy", "bleu", "chrf", "links")},
            }
            scores = {name: record.get(key) for name, key in names.items()}
            numbers = {name: value for name, value in scores.items() if type(value) in (int, float)}
            if {"step", "loss", "accuracy"} <= numbers.keys():
                found.append(Validation(**numbers))
        return found

    def write(self, record: dict[str, Any]) -> None:
        """Append one record."""
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            with writing(self.path.parent / "tensorboard"):
                for name, value in record.items():
                    if name not in ("step", "best", "final") and value is not None:
                        group = "valid/" + name.removeprefix("valid_") if name.startswith("valid_") else f"train/{name}"
                        self.board.add_scalar(group, value, record["step"])
                self.board.flush()


def read_metrics(path: Path) -> Iterator[bytes]:
    """Yield the lines of a `metrics.jsonl`; one that is too long for a record is damaged, and left out with a warning.

    Raises DataError if the file cannot be read, or is far too large.
    """
    try:
        with open_plain(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > MOST:
                raise DataError(f"{path}: has {megabytes(size)}; metrics may have at most {megabytes(MOST)}")
            number = 0
            while line := file.readline(RECORD + 1):
                number += 1
                if len(line) <= RECORD:
                    yield line
                    continue
                logging.getLogger("heedful").warning(
                    "%s, line %d: longer than %s, which no record is; it was left out", path, number, megabytes(RECORD)
                )
                while line and not line.endswith(b"\n"):
                    line = file.readline(1 << 20)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _board(out: Path, step: int) -> Any:  # noqa: ANN401  (a class of a package that need not be there)
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    with writing(out / "tensorboard"):
        return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1 if step else None)
