"""`metrics.jsonl`: what a run measured, one JSON object a line; also for TensorBoard, if it is installed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heedful.errors import DataError
from heedful.files import megabytes, open_plain, write_whole, writing
from heedful.training.callbacks import Validation

__all__ = ["MetricsFile", "read_metrics"]

MOST = 1_000_000_000  # bytes; a run of a million steps writes some 50 MB
RECORD = 100_000  # bytes of a record, which has some hundred


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
