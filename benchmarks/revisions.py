"""Compare the speed of two revisions of heedful on the CPU, in turns: training, translating and drawing.

python benchmarks/revisions.py OLD [--new REVISION] [--rounds 7] [--only train]

OLD is a commit; the new revision is the working tree, or `--new`. Each revision runs in a process of its own, with one
thread, through the public interface only. In a round every case is run by both processes, the first of them in turns.
Printed are CPU seconds, medians over the rounds, and the median of the ratios new / old: under 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHILD = """
import contextlib, io, json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
import heedful
from heedful.data.hindi import pairs

models = Path(sys.argv[1])
text = pairs(4000, max_words=12)
sentences = [source for source, _ in text[:128]]
translators = {}

def settings(family, steps):
    training = {"steps": steps, "valid_every": 100000, "log_every": 10, "threads": 1, "precision": "fp32"}
    return {"text": {"kind": "bpe", "size": 600}, "model": {"family": family, "width": 128}, "training": training}

def train(family, steps, out):
    times = {}
    def callback(progress):
        times.setdefault(progress.step, time.process_time())
    heedful.train(text, out, settings=settings(family, steps), preset="none", verbose=False, callback=callback)
    steps = sorted(times)
    return times[steps[-2]] - times[steps[1]]

def translator(family):
    if family not in translators:
        translators[family] = heedful.load(models / family, "cpu")
    return translators[family]

def run(case):
    kind, family = case.split()
    if kind == "make":
        return train(family, 300, models / family)
    if kind == "train":
        import shutil, tempfile
        out = tempfile.mkdtemp()
        try:
            return train(family, 60, out + "/m")
        finally:
            shutil.rmtree(out)
    begin = time.process_time()
    if kind == "greedy-1":
        for sentence in sentences[:24]:
            translator(family).translate(sentence)
    elif kind == "greedy-128":
        translator(family).translate(sentences)
    elif kind == "beam5-128":
        translator(family).translate(sentences, beam=5)
    elif kind == "draw":
        with contextlib.redirect_stdout(io.StringIO()):
            for translation in translator(family).translate(sentences[:24]):
                translation.show()
    return time.process_time() - begin

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):
        seconds = run(json.loads(line))
    print(json.dumps(seconds), flush=True)
"""


class Revision:
    """A process that runs cases with the package of one source tree."""

    def __init__(self, tree: Path, models: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HEEDFUL_CACHE": str(models / "c")}
        command = [sys.executable, "-c", CHILD, str(models)]
        self.process = subprocess.Popen(
            command, cwd=tree, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answer()

    def _answer(self) -> Any:  # noqa: ANN401
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended with exit status {self.process.wait()}")
        return json.loads(line)

    def run(self, case: str) -> float:
        """Return the CPU seconds of a case."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return float(self._answer())


def check_out(revision: str, folder: Path) -> Path:
    """Write the package of a commit to a folder."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", revision, "heedful"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit")
    parser.add_argument("--new", help="a commit; default: the working tree")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    options = parser.parse_args()
    cases = [
        f"{kind} {family}"
        for kind in ("train", "greedy-1", "greedy-128", "beam5-128", "draw")
        for family in ("rnn", "transformer")
        if options.only in f"{kind} {family}"
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = [
            check_out(options.old, folder / "old"),
            check_out(options.new, folder / "new") if options.new else ROOT,
        ]
        (models := folder / "models").mkdir()
        old, new = (Revision(tree, models) for tree in trees)
        for family in ("rnn", "transformer"):
            old.run(f"make {family}")
        times: dict[str, list[tuple[float, float]]] = {case: [] for case in cases}
        for number in range(options.rounds + 1):  # the first round warms up and is dropped
            for case in cases:
                if number % 2:
                    after, before = new.run(case), old.run(case)
                else:
                    before, after = old.run(case), new.run(case)
                if number:
                    times[case].append((before, after))
    print(f"{platform.processor() or platform.machine()}, 1 thread, {options.rounds} rounds, CPU seconds")
    print(f"{'case':24} {'old':>8} {'new':>8} {'new / old':>10}")
    for case, pairs in times.items():
        before, after = (statistics.median(each) for each in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"{case:24} {before:8.3f} {after:8.3f} {ratio:10.2f}")


if __name__ == "__main__":
    main()
