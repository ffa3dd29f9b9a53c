"""Links of given pairs, and translating with links, before and after a revision: CPU time, and whether links are equal.

python benchmarks/reading.py OLD [--rounds 5] [--pairs 60] [--only align]

OLD is a commit; the new revision is the working tree. Each runs in a process of its own, with one thread; in a round
every case is run by both, the first of them in turns. Printed are milliseconds of CPU time for a sentence, medians over
the rounds, and the median of the ratios old / new: over 1 is faster now.

- `align, all layers` and `align, layer 5`: `heedful.align` with a Transformer of the size of an Opus-MT model (width
  512, inner 2048, 8 heads, 6 + 6 layers, a vocabulary of 65,002) and random weights; sentences of some 30 tokens. The
  read-out is the mean of all layers, or one head of layer 5. Links must be equal.
- `translate`, `… trace` and `… links`: a Transformer of width 128, trained for 300 updates, translates without traces,
  with all weights, and with what links need, and the links are printed (the old revision has all weights for both).
  Besides, in each revision, the time with links as a multiple of that without.
- `words`: texts of given tokens, with spans and words, of both sides.
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
from typing import Any, NamedTuple

from revisions import ROOT, check_out

CASES = ("align, all layers", "align, layer 5", "translate", "translate, trace", "translate, links", "words")
CHILD = """
import contextlib, inspect, json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
import heedful
from heedful.alignment.links import align_trace
from heedful.config import Config, TextConfig, TransformerConfig
from heedful.data.hindi import pairs
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import Codec
from heedful.trace.readout import Readout

folder, count = Path(sys.argv[1]), int(sys.argv[2])
short = pairs(4000, max_words=12)
long = [tuple(" ".join(side) for side in zip(*short[3 * i : 3 * i + 3])) for i in range(count)]
cached = {}

def large(layer):
    if "large" not in cached:
        codecs = [Codec.train([pair[side] for pair in short], TextConfig(kind="bpe", size=2000)) for side in (0, 1)]
        config = TransformerConfig(layers=6, width=512, heads=8, inner=2048, norm="post", activation="silu", bias=True)
        torch.manual_seed(1)
        cached["large"] = Config(model=config), build(config, 65002, 65002).eval(), *codecs
    if layer not in cached:
        rule = {"end": "drop", "marks": "apart", "even": True}
        readout = Readout(layer, (1,), **rule) if layer else Readout(**rule)
        cached[layer] = heedful.Translator(ModelParts(*cached["large"], readout=readout))
    return cached[layer]

def small():
    if "small" not in cached:
        cached["small"] = heedful.load(folder / "small", "cpu")
    return cached["small"]

def make():
    training = {"steps": 300, "valid_every": 100000, "threads": 1, "precision": "fp32"}
    model = {"family": "transformer", "width": 128}
    settings = {"text": {"kind": "bpe", "size": 600}, "model": model, "training": training}
    heedful.train(short, folder / "small", settings=settings, preset="none", verbose=False)

def links_of(done):
    try:
        from heedful.translator.aligning import align_translations
    except ImportError:
        return [str(align_trace(one.trace, spaced=True)) for one in done]
    return [str(one) for one in align_translations(done)]

def run(case):
    kind, _, what = case.partition(", ")
    if kind == "align":
        translator = large(5 if what == "layer 5" else None)
        begin = time.process_time()
        aligned = heedful.align(long, translator)
        return time.process_time() - begin, [sorted(links) for links in aligned.links], len(long)
    translator, texts = small(), [source for source, _ in short[:500]]
    if kind == "words":
        codec = translator.parts.target
        encoded = codec.encode_all([target for _, target in short])
        begin = time.process_time()
        for one, (_, target) in zip(encoded, short):
            codec.read(one.ids).words, codec.trace(target, one).words
        return time.process_time() - begin, [], len(encoded)
    known = "TraceChoice" in str(inspect.signature(translator.translate))
    trace = {"": False, "trace": True, "links": "links" if known else True}[what]
    begin = time.process_time()
    done = translator.translate(texts, trace=trace)
    links = links_of(done) if trace else []
    return time.process_time() - begin, links, len(texts)

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):
        case = json.loads(line)
        answer = make() if case == "make" else run(case)
    print(json.dumps(answer), flush=True)
"""


class Result(NamedTuple):
    """A run of a case: CPU milliseconds for a sentence, and the links."""

    milliseconds: float
    links: list[Any]


class Revision:
    """A process that runs cases with the package of one source tree."""

    def __init__(self, tree: Path, folder: Path, pairs: int) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HEEDFUL_CACHE": str(folder / "c")}
        command = [sys.executable, "-c", CHILD, str(folder), str(pairs)]
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

    def ask(self, case: str) -> Any:  # noqa: ANN401
        """Run a case and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def run(self, case: str) -> Result:
        """Return the time of a sentence, and the links."""
        seconds, links, count = self.ask(case)
        return Result(1000 * seconds / count, links)


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=60, help="pairs that are aligned")
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = (Revision(tree, folder, options.pairs) for tree in (check_out(options.old, folder / "old"), ROOT))
        if any("align" not in case for case in cases):
            old.ask("make")
        results: dict[str, list[tuple[Result, Result]]] = {case: [] for case in cases}
        for number in range(options.rounds + 1):  # the first round warms up and is dropped
            for case in cases:
                if number % 2:
                    after, before = new.run(case), old.run(case)
                else:
                    before, after = old.run(case), new.run(case)
                results[case] += [(before, after)] * bool(number)
    print(f"{platform.processor() or platform.machine()}, 1 thread, {options.rounds} rounds, CPU ms for a sentence")
    print(f"{'case':20} {'old':>9} {'new':>9} {'old / new':>10}  links")
    for case, rounds in results.items():
        times = [tuple(one.milliseconds for one in pair) for pair in rounds]
        before, after = (statistics.median(each) for each in zip(*times, strict=True))
        ratio = statistics.median(a / b for a, b in times)
        equal = sum(x == y for x, y in zip(rounds[-1][0].links, rounds[-1][1].links, strict=True))
        total = len(rounds[-1][1].links)
        print(f"{case:20} {before:9.3f} {after:9.3f} {ratio:10.2f}  {f'{equal} of {total} equal' if total else ''}")
    if {"translate", "translate, links"} <= results.keys():
        pairs = zip(results["translate, links"], results["translate"], strict=True)
        each = [[a.milliseconds / b.milliseconds for a, b in zip(*two, strict=True)] for two in pairs]
        before, after = (statistics.median(one) for one in zip(*each, strict=True))
        print(
            f"translating with links takes {before:.2f} times as long as without in the old revision, now {after:.2f}"
        )


if __name__ == "__main__":
    main()
