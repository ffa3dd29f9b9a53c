"""Short training runs, recorded by their reporter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conftest import copies
from small_runs import small

from heedful.data import PairList, Raw
from heedful.training import Inputs, Progress, Reporter, Validation, run_training

PAIRS = Inputs((PairList(copies(), "pairs.tsv"),))


class Never(PairList):
    """Pairs that nobody may read."""

    def rows(self) -> Iterator[Raw]:
        raise AssertionError("read")


class Crash(BaseException):
    """What a kill looks like from inside."""


class Ear(Reporter):
    """Remembers what was said; crashes, or asks to stop, at a step."""

    def __init__(self, crash_at: int = 0) -> None:
        self.said: list[str] = []
        self.steps: list[int] = []
        self.validations: list[Validation] = []
        self.crash_at = crash_at

    def log(self, message: str) -> None:
        self.said.append(message)

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress.step)
        if progress.step == self.crash_at:
            raise Crash

    def validated(self, validation: Validation, best: bool) -> None:
        self.validations.append(validation)


def go(out: Path, watch: Ear | None = None, resume: bool = False, **sections: dict[str, Any]) -> Ear:
    watch = watch or Ear()
    settings = small(**{**sections, "training": {"log_every": 1, **sections.get("training", {})}})
    run_training(PAIRS, out, settings, resume=resume, reporter=watch)
    return watch


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()
