"""Everything that only a GPU can show, one part after another: its tests, then every benchmark that needs one.

    python3 benchmarks/on_gpu.py --data FOLDER --out FOLDER [--minutes 9] [--only tests,kernels] [--again]

Tests come first and times second, while nothing else runs; models are trained last, several at a time. What a part
prints goes to OUT/PART.log, and its end is repeated here. A part that has ended well is not run again unless --again
says so; one that ran out of time goes on where it stopped, if it trains, or begins anew. No part begins when less than
half of the minutes that it takes are left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

from heedful.errors import HeedfulError, choose
from heedful.files import write_whole

__all__ = ["PARTS", "Part", "go", "main"]

ROOT = Path(__file__).parents[1]
REAL = ("benchmarks/real.py", "{task}", "--data", "{data}", "--out", "{out}", "--seeds", "1,2,3", "--jobs", "6")
GRACE = 10.0  # seconds in which a part that is told to stop writes down what it has
SHOWN = 25  # last lines of a part


@dataclass(frozen=True)
class Part:
    """Commands that belong together, what they add to the environment, and about how many minutes they take."""

    commands: tuple[tuple[str, ...], ...]
    minutes: float
    environment: Mapping[str, str] = field(default_factory=dict)


def _real(task: str, minutes: float) -> Part:
    return Part((tuple(word.replace("{task}", task) for word in REAL),), minutes)


_TRAINING = ("benchmarks/gpu_training.py", "--data", "{data}/multi30k", "--ways", "captured bf16,captured fp32")
_DECODING = ("benchmarks/gpu_decoding.py", "--data", "{data}/multi30k", "--out", "{out}/decoding")
_LINKS = ("benchmarks/attention_links.py", "--data", "{data}", "--out", "{out}/links", "--size", "large")
_PHOTOS = ("benchmarks/photo_captions.py", "--data", "{data}/image-captions", "--out", "{out}/photos")
PARTS = {
    "tests": Part((("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"),), 4),
    "kernels": Part((("benchmarks/kernels_gpu.py",),), 1),
    "attention": Part((("benchmarks/attention.py", "--json", "{out}/attention.json"),), 2),
    "watch": Part((("benchmarks/watch.py", "--json", "{out}/watch.json"),), 3),
    "recurrence": Part((("benchmarks/recurrence.py", "--json", "{out}/recurrence.json"),), 2),
    "decoding": Part(((*_DECODING, "--json", "{out}/gpu_decoding.json"),), 6),
    "training": Part((_TRAINING,), 1.5),
    "training-plain": Part((_TRAINING,), 1.5, {"HEEDFUL_KERNELS": "off"}),
    "hindi-english": _real("hindi-english", 8),
    "french-english": _real("french-english", 8),
    "caption-training": Part((("benchmarks/caption_training.py", "--json", "{out}/caption_training.json"),), 2),
    "photo-captions": Part((_PHOTOS,), 6),
    "links": Part(((*_LINKS, "--jobs", "16", "--steps", "4000"),), 12),
}


def go(part: Part, names: Mapping[str, str], log: Path, until: float) -> str:
    """Run the commands of a part until they are done, one fails, or the time is over; return which of these it was."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **part.environment}
    with log.open("wb") as file:
        for command in part.commands:
            words = [sys.executable, *(word.format(**names) for word in command)]
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
            try:
                code = child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(child)
                return "out of time"
            except BaseException:
                _end(child)
                raise
            if code:
                return f"failed with code {code}"
    return "done"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started: asked first, then made to."""
    for sign, wait in ((signal.SIGINT, GRACE), (signal.SIGKILL, GRACE)):
        try:
            os.killpg(child.pid, sign)
            child.wait(wait)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def main(arguments: Sequence[str] | None = None, parts: Mapping[str, Part] = PARTS) -> int:
    """Run the parts that are asked for; return 1 if one of them failed."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    options.add_argument(
        "--out", type=Path, required=True, help="for logs, results and models; to go on, the same again"
    )
    options.add_argument("--minutes", type=float, default=60.0, help="that all of it may take")
    options.add_argument("--only", default="", metavar="PART,…", help=", ".join(parts))
    options.add_argument(
        "--again", action="store_true", help="run parts that are done already, too; what they have trained stays"
    )
    given = options.parse_args(arguments)
    until = time.monotonic() + 60 * given.minutes
    try:
        chosen = [choose("part", name, parts) for name in given.only.split(",") if name] or list(parts)
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    given.out.mkdir(parents=True, exist_ok=True)
    names = {"data": str(given.data.resolve()), "out": str(given.out.resolve())}
    file = given.out / "parts.json"
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in chosen:
        part, begun = parts[name], time.monotonic()
        if record.get(name, {}).get("ended") == "done" and not given.again:
            continue
        if until - begun < 30 * part.minutes:
            record[name] = {"ended": "not begun: too little time was left"}
        else:
            ended = go(part, names, given.out / f"{name}.log", until)
            record[name] = {"ended": ended, "seconds": round(time.monotonic() - begun)}
            last = (given.out / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN:]
            print("\n".join([f"== {name}: {ended}, {record[name]['seconds']} s", *last]), flush=True)
        write_whole(file, json.dumps(record, indent=1).encode())
    print("\n".join(["== all parts", *(f"{name}: {record[name]['ended']}" for name in chosen)]))
    return int(any(record[name]["ended"] != "done" for name in chosen))


if __name__ == "__main__":
    raise SystemExit(main())
