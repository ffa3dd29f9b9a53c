"""`metrics.jsonl`: what a run measured, one JSON object on a line; for TensorBoard, too, where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from heedful.disk import write_whole, writing

__all__ = ["MetricsFile"]


class MetricsFile:
    """Appends records; when a run is resumed, records after its checkpoint are dropped first."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / "metrics.jsonl"
        there = step and self.path.exists()
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines() if there else []
        write_whole(self.path, "".join(f"{line}\n" for line in lines if self._kept(line, step)).encode())
        self.board = _board(out, step)

    @staticmethod
    def _kept(line: str, step: int) -> bool:
        try:
            record = json.loads(line)
            return int(record["step"]) <= step and not record.get("final")
        except (ValueError, KeyError, TypeError, AttributeError):  # a line cut short when the run was killed
            return False

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


def _board(out: Path, step: int) -> Any:  # noqa: ANN401  (a class of a package that need not be there)
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    with writing(out / "tensorboard"):
        return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1 if step else None)
