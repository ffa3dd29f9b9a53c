"""A run that is killed again and again ends with the bits of a run that was never killed.

python benchmarks/faults.py --kills 50 --seed 1

A small model of each family is trained by `heedful train`, with everything on that a run has to remember: dropout,
regularised subwords, accumulation, a rate that halves on a plateau, a moving average of the weights and the mean of the
last validations'. The process is killed with SIGKILL while it starts, anywhere in a step, inside the writing of a
checkpoint, and at its end while the model is written. Now and then the newest checkpoint is damaged as well, which the
next start has to say. When it has been killed often enough it is left to finish. Then the model, the last checkpoint
with all its files, and all measured losses and scores are compared, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAMILIES = {
    "rnn": {"width": 16, "embedding": 8},
    "transformer": {"width": 16, "heads": 2, "inner": 32, "layers": 1},
}
SETTINGS = {
    "text.size": 120,
    "text.regularise": 0.1,
    "training.batch_sentences": 16,
    "training.accumulate": 2,
    "training.precision": "fp32",  # not what a clock says
    "training.rate": 0.02,
    "training.warmup": 10,
    "training.decay": "plateau",
    "training.plateau": 1,
    "training.patience": 1_000_000,
    "training.ema": 0.9,
    "training.average": 3,
    "training.valid_every": 5,
    "training.valid_pairs": 8,
    "training.checkpoint_every": 3,
    "training.keep": 3,
    "training.log_every": 1,
}
PASSED_OVER = "skipped a damaged checkpoint"


@dataclass
class Story:
    """What happened to a run: kills by kind, those that left something half written, damaged checkpoints, words."""

    kills: Counter[str] = field(default_factory=Counter)
    half_written: int = 0
    damaged: int = 0
    passed_over: int = 0
    different: list[str] = field(default_factory=list)


def write_pairs(path: Path, seed: int = 0) -> Path:
    """Write sentences of made-up words, to be written again in capitals."""
    pick = random.Random(seed)
    words = ["".join(pick.choices("abcdefgh", k=pick.randint(2, 6))) for _ in range(60)]
    sentences = [" ".join(pick.choices(words, k=pick.randint(1, 7))) for _ in range(400)]
    path.write_text("".join(f"{s}\t{s.upper()}\n" for s in sentences), encoding="utf-8")
    return path


def options(family: str, steps: int) -> list[str]:
    """Return what follows `heedful train PAIRS --out DIR`."""
    model = {f"model.{key}": value for key, value in FAMILIES[family].items()}
    given = [part for key, value in {**SETTINGS, **model}.items() for part in ("--set", f"{key}={value}")]
    return ["--model", family, "--steps", str(steps), "--preset", "none", "--device", "cpu", "--threads", "1", *given]


class Runs:
    """Starts runs on the same pairs in folders of their own."""

    def __init__(self, folder: Path, family: str, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.pairs = write_pairs(folder / "pairs.tsv")
        self.options = options(family, steps)

    def start(self, out: Path) -> subprocess.Popen[str]:
        """Begin or resume a run."""
        command = [sys.executable, "-m", "heedful", "train", str(self.pairs), "--out", str(out), "--resume"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HEEDFUL_CACHE": str(self.folder / "cache")}
        command += self.options
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=quiet, stderr=subprocess.PIPE)

    def finish(self, process: subprocess.Popen[str], *allowed: int) -> str:
        """Wait until a run is done, or has died in a way that is allowed, and return what it said."""
        _, said = process.communicate()
        if process.returncode not in (0, *allowed):
            raise SystemExit(f"the run ended with status {process.returncode}:\n{said}")
        return said


def step_of(out: Path) -> int:
    """Return the last step that the metrics tell of."""
    try:
        last = (out / "metrics.jsonl").read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return int(json.loads(last)["step"])
    except (OSError, ValueError):
        return 0


def half_written(out: Path) -> bool:
    """Whether something is being written, or was when the writer died."""
    try:
        names = [*os.listdir(out / "checkpoints"), *os.listdir(out)]
    except OSError:
        return False
    return any(name.endswith(".partial") for name in names)


def until(happened: Callable[[], bool], process: subprocess.Popen[str], pause: float) -> None:
    """Wait for something to happen, or for the process to end."""
    while process.poll() is None and not happened():
        time.sleep(pause)


def kill(process: subprocess.Popen[str], out: Path, kind: str, pick: random.Random, steps: int) -> None:
    """Kill a process that has just been started, at a moment of some kind."""
    begun = step_of(out)
    if kind == "start":
        time.sleep(pick.random() * 5)
    else:
        # Beginning again drops what comes after the checkpoint; from then on steps are counted.
        until(lambda: step_of(out) < begun or step_of(out) > begun, process, 0.005)
        aim = steps if kind == "end" else min(steps, step_of(out) + pick.randint(1, 12))
        until(lambda: step_of(out) >= aim, process, 0.0005)
    if kind in ("checkpoint", "end"):
        while not caught_writing(process, out, pick.random() * 0.004):
            pass
    elif kind == "step":
        time.sleep(pick.random() * 0.02)
    process.kill()


def caught_writing(process: subprocess.Popen[str], out: Path, pause: float) -> bool:
    """Hold a process a moment after it began to write; return whether it still wrote then, or has ended."""
    until(lambda: half_written(out), process, 0)
    time.sleep(pause)
    if process.poll() is not None:
        return True
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if half_written(out):
        return True
    process.send_signal(signal.SIGCONT)
    return False


def damage(out: Path, pick: random.Random) -> bool:
    """Truncate, change or remove a file of the newest checkpoint, if it is not the only one."""
    folders = sorted(p for p in (out / "checkpoints").glob("*") if p.name.isdecimal())
    if len(folders) < 2:
        return False
    files = [p for p in folders[-1].iterdir() if not p.name.startswith(".") and p.stat().st_size > 2]
    if not files:  # all that it had is damaged already
        return False
    file = pick.choice(sorted(files))
    content = bytearray(file.read_bytes())
    at = pick.randrange(len(content) - 2)  # without its last brace, JSON is none; without its last newline, it is
    content[at] ^= 1
    match pick.choice(("truncate", "change", "remove")):
        case "truncate":
            file.write_bytes(content[:at])
        case "change" if file.name != "config.json":  # a letter of a note is not held to a checksum
            file.write_bytes(content)
        case _:
            file.unlink()
    return True


def different(one: Path, other: Path, steps: int) -> list[str]:
    """Return the names of what two runs do not have in common."""
    last = Path("checkpoints", f"{steps:09d}")
    names = {
        p.relative_to(out)
        for out in (one, other)
        for p in (*out.glob("*"), *(out / last).glob("*"))
        if p.is_file() and p.name not in ("metrics.jsonl",)
    }
    found = [str(name) for name in sorted(names) if _bytes(one / name) != _bytes(other / name)]
    return found + (["metrics.jsonl"] if _metrics(one) != _metrics(other) else [])


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _metrics(out: Path) -> list[dict[str, object]]:
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "tokens_per_second"} for line in lines]


def ordeal(folder: Path, family: str, kills: int, seed: int) -> Story:
    """Kill a run so many times, let it finish, and compare it with one that was left alone."""
    steps = max(18, 6 * kills)
    runs, story, pick = Runs(folder, family, steps), Story(), random.Random(seed)
    whole = runs.start(folder / "whole")
    out = folder / "killed"
    ends = kills // 10
    expected = False
    for number in range(kills):
        kind = "end" if number >= kills - ends else pick.choice(("start", "step", "checkpoint", "checkpoint"))
        process = runs.start(out)
        kill(process, out, kind, pick, steps)
        said = runs.finish(process, -signal.SIGKILL)
        if expected and PASSED_OVER in said:  # not if it was killed before it came to that
            story.passed_over, expected = story.passed_over + 1, False
        story.kills[kind] += 1
        story.half_written += kind != "start" and half_written(out)  # one killed early has not tidied up yet
        if pick.random() < 0.2 and not expected:
            expected = damage(out, pick)
            story.damaged += expected
    said = runs.finish(runs.start(out))
    story.passed_over += expected and PASSED_OVER in said
    runs.finish(whole)
    story.different = different(folder / "whole", out, steps)
    return story


def main() -> None:
    """Put both families to the test and say what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="for each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", choices=[*FAMILIES, "both"], default="both")
    args = parser.parse_args()
    failed = False
    for family in FAMILIES if args.family == "both" else [args.family]:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            story = ordeal(Path(folder), family, args.kills, args.seed)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(story.kills.items()))
        print(
            f"{family}: {story.kills.total()} kills ({kinds}), {story.half_written} of them with something half "
            f"written; {story.damaged} checkpoints damaged, {story.passed_over} times said; "
            f"{time.perf_counter() - began:.0f} s; different: {', '.join(story.different) or 'nothing'}",
            flush=True,
        )
        failed |= bool(story.different) or story.passed_over != story.damaged
    sys.exit(failed)


if __name__ == "__main__":
    main()
