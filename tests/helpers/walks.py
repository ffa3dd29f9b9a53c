"""The files of the package that one training update, one translation and one drawing visit, by profiling each of them.

Run as a program, it prints them as JSON: for every walk the files in the order of the first visit, and how often
control moves from one file to another. One update is what happens between the second and the third optimizer step.
Only calls into `heedful` count, and no code that runs when a module is loaded; one thread on the CPU.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Walk", "walks"]

ROOT = Path(__file__).parents[2]
PACKAGE = f"{ROOT / 'heedful'}{os.sep}"


@dataclass
class Walk:
    """Files visited, in the order of the first visit, and the moves between them.

    `background` are the files that only other threads visited, which prepare batches ahead: whether they do so during
    the one update that is measured is a matter of time.
    """

    files: list[str] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    moves: int = 0


def walks() -> dict[str, Walk]:
    """Return every walk by its name, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HEEDFUL_CACHE": cache, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__))]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {name: Walk(**walk) for name, walk in json.loads(done.stdout).items()}


class _Profiler:
    """Records the calls into the package while it is switched on."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self.last = ""
        sys.setprofile(self._call)
        threading.setprofile(self._call)

    def start(self) -> None:
        self.walk, self.last = Walk(), ""

    def stop(self) -> Walk:
        walk, self.walk = self.walk, None
        assert walk is not None
        return walk

    def _call(self, frame: FrameType, event: str, _: object) -> None:
        if self.walk is None or event != "call" or frame.f_code.co_name == "<module>":
            return
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return
        file = Path(frame.f_code.co_filename).relative_to(ROOT).as_posix()
        main = threading.current_thread() is threading.main_thread()
        if main and file not in self.walk.files:
            self.walk.files.append(file)
            if file in self.walk.background:
                self.walk.background.remove(file)
        elif file not in (*self.walk.files, *self.walk.background):
            self.walk.background.append(file)
        if file != self.last:
            self.walk.moves += 1
            self.last = file


def _measure() -> dict[str, Walk]:
    """Train, translate and draw with both families, under the profiler."""
    profiler = _Profiler()
    import torch

    import heedful
    from heedful.data.hindi import pairs

    torch.set_num_threads(1)
    text = pairs(400, max_words=6)
    found: dict[str, Walk] = {}
    for family in ("rnn", "transformer"):
        with tempfile.TemporaryDirectory() as folder:
            found[f"update, {family}"] = _update(profiler, text, f"{folder}/m", family)
            translator = heedful.load(f"{folder}/m", "cpu")
            profiler.start()
            translation = translator.translate(text[0][0], heedful.Decoding(beam=3, max_length=5))
            found[f"translation, {family}"] = profiler.stop()
            profiler.start()
            with redirect_stdout(io.StringIO()):
                translation.show()
            found[f"drawing, {family}"] = profiler.stop()
    return found


def _update(profiler: _Profiler, text: list[tuple[str, str]], out: str, family: str) -> Walk:
    """Train for a few steps; return the walk of the third one."""
    import torch

    import heedful

    step, steps, walk = torch.optim.AdamW.step, 0, Walk()

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal steps, walk
        steps += 1
        result = step(*arguments, **keywords)
        if steps == 2:
            profiler.start()
        elif steps == 3:
            walk = profiler.stop()
        return result

    settings = {
        "text": {"kind": "bpe", "size": 300},
        "model": {"family": family, "width": 32},
        "training": {"steps": 6, "valid_every": 6, "checkpoint_every": 6, "log_every": 100, "device": "cpu"},
    }
    torch.optim.AdamW.step = counted  # type: ignore[method-assign]
    try:
        heedful.train(text, out, settings=settings, verbose=False)
    finally:
        torch.optim.AdamW.step = step  # type: ignore[method-assign]
    return walk


if __name__ == "__main__":
    print(json.dumps({name: vars(walk) for name, walk in _measure().items()}))
