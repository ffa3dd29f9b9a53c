"""Alignment error rates of attention on gold links: RNN and Transformer, free and guided, read in several ways.

python benchmarks/attention_links.py --data DIR --out DIR [--sets de-en,en-fr] [--families transformer] [--kinds free]
    [--only prepare|train|measure|table] [--size small|large] [--steps N] [--seconds N] [--jobs N] [--device cuda]

Every set of `alignment_sets` gets models in both directions, trained on its text and the gold sentences without their
links, which are repeated until they are --share of all: there are few of them, and many of their words are nowhere
else. They also tell how training goes. Guided models have the links of our statistical aligner besides, made from the
same text. Gold links measure, and choose a read-out on one half of the sentences, which is then measured on the other
half; nothing is trained on them. All is kept under --out: a second run skips what is done, goes on with what was begun,
with the same options, and a part may be asked for alone. The results are in SET/FAMILY-KIND.links.json; the table is
printed from all that there are.

On an H200, side by side by NVIDIA's MPS, 32 runs of `--size large --steps 4000`, two of them of 8,000 steps, took
eight minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from alignment_sets import SETS, read_set
from attention_tables import measure, table
from real_run import Children, Watched

from heedful import align
from heedful.alignment import flip, text
from heedful.demo.training import cores
from heedful.errors import HeedfulError, MachineError, choose
from heedful.files import write_whole

PARTS = ("prepare", "train", "measure", "table")
FAMILIES = ("transformer", "rnn")
KINDS = ("free", "guided")
DIRECTIONS = ("there", "back")
VALID = 200  # gold sentences, without their links, that tell how training goes
POLL = 0.2  # seconds between looks at a run
TRAINING = {
    "metric": "loss",
    "valid_pairs": VALID,
    "valid_every": 500,
    "checkpoint_every": 500,
    "patience": 1000,
    "threads": 1,
}
MODELS: dict[str, dict[str, dict[str, object]]] = {
    "small": {
        "transformer": {"layers": 2, "decoder_layers": 3, "width": 128, "heads": 4, "inner": 256, "tied": "all"},
        "rnn": {"width": 128, "embedding": 96, "encoder_width": 64, "tied": True},
    },
    "large": {
        "transformer": {"layers": 3, "decoder_layers": 4, "width": 256, "heads": 8, "inner": 1024, "tied": "all"},
        "rnn": {"width": 256, "embedding": 192, "encoder_width": 192, "tied": True},
    },
}
SIZES: dict[str, dict[str, dict[str, object]]] = {
    "small": {
        "text": {"joint": True, "size": 4000},
        "training": {
            "batch_tokens": 1024,
            "batch_sentences": 96,
            "rate": 0.003,
            "warmup": 300,
            "ema": 0.995,
            "steps": 2500,
        },
    },
    "large": {
        "text": {"joint": True, "size": 8000},
        "training": {
            "batch_tokens": 4096,
            "batch_sentences": 512,
            "rate": 0.002,
            "warmup": 1000,
            "ema": 0.999,
            "steps": 12000,
        },
    },
}
SHARE = 0.03  # of the pairs are gold sentences, by repeating them


class Job(NamedTuple):
    """One model: of which set, family and kind, and in which direction."""

    folder: Path
    family: str
    kind: str
    direction: str

    @property
    def place(self) -> Path:
        """The folder of the model."""
        return self.folder / f"{self.family}-{self.kind}-{self.direction}"

    @property
    def done(self) -> Path:
        """The file that says that it is trained, and for how long."""
        return self.place.with_name(f"{self.place.name}.json")


class Budget(NamedTuple):
    """What all runs have in common."""

    size: str
    steps: int
    seconds: float
    jobs: int
    device: str
    changes: tuple[str, ...] = ()


def main() -> None:
    """Do what is asked for, part by part."""
    given = arguments()
    out: Path = given.out
    names = [choose("set", name, SETS) for name in given.sets.split(",")]
    families = [choose("family", name, FAMILIES) for name in given.families.split(",")]
    kinds = [choose("kind", name, KINDS) for name in given.kinds.split(",")]
    parts = [choose("part", name, PARTS) for name in given.only.split(",")]
    if "prepare" in parts:
        work = [(given.data, name, out / name, given.share) for name in names]
        side_by_side(prepare, work, given.jobs)
    if "train" in parts:
        budget = Budget(given.size, given.steps, given.seconds, given.jobs, given.device, tuple(given.set))
        models = [(name, family, kind) for kind in kinds for family in families for name in names]
        train_all([Job(out / name, family, kind, way) for name, family, kind in models for way in DIRECTIONS], budget)
    if "measure" in parts:
        models = [(name, family, kind) for name in names for family in families for kind in kinds]
        side_by_side(measure_models, [(given.data, out, given.device, *model) for model in models], given.jobs)
    if "table" in parts:
        files = [out / name / f"{family}-{kind}.links.json" for name in names for family in families for kind in kinds]
        print(table([json.loads(file.read_bytes()) for file in files if file.exists()]))


def side_by_side(work: Callable[..., None], given: Sequence[tuple[Any, ...]], jobs: int) -> None:
    """Do the same work on several things, each in a process of its own."""
    with ProcessPoolExecutor(max(1, min(jobs, len(given))), get_context("spawn")) as processes:
        list(processes.map(work, *zip(*given, strict=True)))


def measure_models(data: Path, out: Path, device: str, name: str, family: str, kind: str) -> None:
    """Measure two models, and write down what was found."""
    torch.set_num_threads(1)
    if found := measure(read_set(data, name), out / name, family, kind, device):
        write_whole(out / name / f"{family}-{kind}.links.json", json.dumps(found, indent=1).encode())
        say(f"{name}: {family}, {kind} is measured")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="the folder with multi30k/, word-alignment/ and others"
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for pairs, models and results")
    parser.add_argument("--sets", default="de-en,en-fr,en-cs,en-hi")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts, in their order")
    parser.add_argument("--size", default="small", choices=list(SIZES))
    parser.add_argument("--share", type=float, default=SHARE, help="of gold sentences in the pairs, without links")
    parser.add_argument("--steps", type=int, default=0, help="updates of a model [as the size has them]")
    parser.add_argument("--seconds", type=float, default=0, help="of training a model at most [any]")
    parser.add_argument("--jobs", type=int, default=cores(), help="trainings at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="for all models")
    return parser.parse_args()


def prepare(data: Path, name: str, folder: Path, share: float) -> None:
    """Write the pairs of a set in both directions, the gold sentences first, and the teacher's links for them."""
    if (folder / "back.links").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    found = read_set(data, name)
    rows = [row for row in dict.fromkeys([*found.pairs, *found.extra]) if all(row)]
    links = align(rows).links
    gold = len({pair for pair in found.pairs if all(pair)})
    order = [*list(range(gold)) * repeats(gold, len(rows), share), *range(gold, len(rows))]
    for direction, sides in zip(DIRECTIONS, ((0, 1), (1, 0)), strict=True):
        lines = ["\t".join(row[side] for side in sides) + "\n" for row in rows]
        pharaoh = [text(one if direction == "there" else flip(one)) + "\n" for one in links]
        write_whole(folder / f"{direction}.tsv", "".join(lines[i] for i in order).encode())
        write_whole(folder / f"{direction}.valid.tsv", "".join(lines[: min(gold, VALID)]).encode())
        write_whole(folder / f"{direction}.links", "".join(pharaoh[i] for i in order).encode())
    say(f"{name}: {gold:,} different pairs with gold links, {len(rows):,} to learn from, {len(order):,} with repeats")


def repeats(gold: int, every: int, share: float) -> int:
    """Return how often the gold sentences are to be there, so that they are such a share of all.

    >>> repeats(100, 1000, 0.25), repeats(100, 1000, 0)
    (3, 1)
    """
    return max(1, round(share / (1 - share) * (every - gold) / gold))


def train_all(jobs: Sequence[Job], budget: Budget) -> None:
    """Train what is not trained yet, several models at a time; when one fails, the others are ended."""
    children, failed = Children(), threading.Event()

    def one(job: Job) -> None:
        if failed.is_set() or job.done.exists():
            return
        try:
            train(job, budget, children)
        except BaseException:
            failed.set()
            raise

    try:
        with ThreadPoolExecutor(max(1, budget.jobs)) as threads:
            for done in [threads.submit(one, job) for job in jobs]:
                done.result()
    finally:
        children.end()


def train(job: Job, budget: Budget, children: Children) -> None:
    """Train one model until its steps or its seconds are over, and write down how long that was."""
    watched, log = Watched(job.place / "metrics.jsonl", time.monotonic()), job.place.with_name(f"{job.place.name}.log")
    child = children.start(command(job, budget), log, 1)
    stopped = False
    while child.poll() is None:
        time.sleep(POLL)
        watched.look()
        if budget.seconds and not stopped and watched.trained > budget.seconds:
            stopped = True
            child.terminate()  # taken as Ctrl-C is: the best weights become the model
    if child.returncode not in ((0, 143) if stopped else (0,)):
        raise MachineError(f"training {job.place} ended with code {child.returncode}; what it said is in {log}")
    last = json.loads((job.place / "metrics.jsonl").read_bytes().splitlines()[-1])
    record = {"steps": last["step"], "seconds": round(watched.trained), "stopped": stopped, "size": budget.size}
    write_whole(job.done, json.dumps(record).encode())
    say(f"{job.place.parent.name}/{job.place.name}: {last['step']:,} steps, {watched.trained:.0f} s")


def command(job: Job, budget: Budget) -> list[str]:
    """Return what trains a model, or goes on with one that was begun."""
    sections = {name: dict(values) for name, values in SIZES[budget.size].items()}
    sections["training"] |= TRAINING
    sections["model"] = dict(MODELS[budget.size][job.family])
    steps = budget.steps or int(str(sections["training"]["steps"]))
    sections["training"] |= {
        "steps": steps,
        "decay": "root" if budget.seconds else "cosine",  # a cosine that is cut short never cools down
        "device": budget.device,
    }
    sections["data"] = {"duplicates": "keep"}
    files = [str(job.folder / f"{job.direction}.tsv"), "--valid", str(job.folder / f"{job.direction}.valid.tsv")]
    more = ["--links", str(job.folder / f"{job.direction}.links")] if job.kind == "guided" else []
    more += ["--resume"] if (job.place / "checkpoints").exists() else ["--model", job.family]
    changes = [f"{section}.{key}={_value(value)}" for section, of in sections.items() for key, value in of.items()]
    changes += budget.changes
    settings = [part for change in changes for part in ("--set", change)]
    heedful = [sys.executable, "-P", "-m", "heedful", "train"]
    return [*heedful, *files, "--out", str(job.place), "--preset", "none", *more, *settings]


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def say(words: str) -> None:
    """Say on stderr how it goes."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except HeedfulError as error:
        raise SystemExit(f"attention_links: {error}") from None
