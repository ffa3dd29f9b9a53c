"""`metrics.jsonl`: what a run measured, one JSON object on a line."""

from __future__ import annotations

import json
from pathlib import Path

from heedful.disk import write_whole, writing

__all__ = ["MetricsFile"]


class MetricsFile:
    """Appends records; when a run is resumed, records after its checkpoint are dropped first."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / "metrics.jsonl"
        there = step and self.path.exists()
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines() if there else []
        write_whole(self.path, "".join(f"{line}\n" for line in lines if self._kept(line, step)).encode())

    @staticmethod
    def _kept(line: str, step: int) -> bool:
        try:
            record = json.loads(line)
            return int(record["step"]) <= step and not record.get("final")
        except (ValueError, KeyError, TypeError, AttributeError):  # a line cut short when the run was killed
            return False

    def write(self, record: dict[str, object]) -> None:
        """Append one record."""
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
