"""How many pairs a translator needs, and when training stops improving: many small runs, one record each.

    python3 benchmarks/data_needed.py --data FOLDER --out FOLDER [--jobs 16] [--minutes 8.5] [--only fra-eng,…]
    python3 benchmarks/data_needed.py --out FOLDER --table

Each run trains on the first N pairs of a corpus with the settings that `heedful train` chooses for N pairs on a CPU
(the device may be another), until training stops by itself. Then it translates 500 test sentences, greedily. Test
sentences are never in training, on either side. A record has the counts of the data (words, types, the share of
test words and word pairs that training does not have, vocabulary sizes), the whole curve, the best and the last step,
and BLEU and chrF on the test sentences. Records are written to OUT/CORPUS-N-SEED.json as runs end; a run that exists
is not repeated. When the time is over, runs that are still going are stopped and recorded as unfinished.

The rules in heedful/training/estimate.py were fitted to these records.
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
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the heedful of this checkout, also where it is not installed

from heedful.data.files import read_lines
from heedful.data.hindi import generate
from heedful.files import write_whole

Pairs = list[tuple[str, str]]

TEST = 500
SIZES = (1000, 10_000, 3000, 300, 30_000)  # in the order in which runs begin
GRACE = 20.0  # seconds for unfinished runs to write their records


def hindi(longest: int) -> Callable[[Path], Iterator[tuple[str, str]]]:
    """Return a reader of the embedded corpus, Hindi to English, of up to `longest` words."""

    def read(_: Path) -> Iterator[tuple[str, str]]:
        for example in islice(generate(1, "train", 2, longest), max(SIZES) + 2 * TEST):
            side = example.seen_from("hi-en")
            yield side.source, side.target

    return read


def columns(*files: str, source: int, target: int) -> Callable[[Path], Iterator[tuple[str, str]]]:
    """Return a reader of files with tab-separated columns, counted from 0."""

    def read(data: Path) -> Iterator[tuple[str, str]]:
        for file in files:
            for line in read_lines(data / file):
                cells = line.split("\t")
                yield cells[source], cells[target].rstrip("\r")

    return read


def parallel(source: str, target: str) -> Callable[[Path], Iterator[tuple[str, str]]]:
    """Return a reader of two files, line by line."""
    return lambda data: zip(read_lines(data / source), read_lines(data / target), strict=True)


_HINDI = "tatoeba-hin-eng/tatoeba-{}-v2023-09-26.eng-hin.txt.gz"
CORPORA: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    "hindi-short": hindi(10),
    "fra-eng": columns("tatoeba-fra-eng/fra.txt.gz", source=1, target=0),
    "multi30k-en-de": parallel("multi30k/train.en.gz", "multi30k/train.de.gz"),
    "deu-eng": columns("tatoeba-deu-eng/tatoeba-test-v2023-09-26.deu-eng.txt.gz", source=2, target=3),
    "hindi-long": hindi(40),
    "hin-eng": columns(_HINDI.format("dev"), _HINDI.format("test"), source=3, target=2),
    "captions-en-hi": columns("hindi-visual-genome/hindi-visual-genome-train.txt.gz", source=5, target=6),
}


def corpus(name: str, data: Path) -> tuple[Pairs, Pairs]:
    """Return test pairs, and all others in random order; no sentence comes twice, on either side."""
    pairs = list(CORPORA[name](data))
    random.Random(1).shuffle(pairs)
    known: set[str] = set()
    different = []
    for source, target in pairs:
        if source.strip() and target.strip() and known.isdisjoint((source, target)):
            known.update((source, target))
            different.append((source, target))
    return different[:TEST], different[TEST:]


def counts(train: Sequence[str], test: Sequence[str]) -> dict[str, float]:
    """Return what can be counted on one side before training."""
    words: Counter[str] = Counter(word for text in train for word in text.split())
    pairs = {pair for text in train for pair in _neighbours(text)}
    tested = [word for text in test for word in text.split()]
    tested_pairs = [pair for text in test for pair in _neighbours(text)]
    return {
        "words": sum(words.values()),
        "types": len(words),
        "once": sum(count == 1 for count in words.values()),
        "unseen": sum(word not in words for word in tested) / len(tested),
        "rare": sum(words[word] < 5 for word in tested) / len(tested),
        "unseen_pairs": sum(pair not in pairs for pair in tested_pairs) / max(1, len(tested_pairs)),
    }


def _neighbours(text: str) -> Iterator[tuple[str, str]]:
    words = text.split()
    return pairwise(words)


def one(name: str, size: int, seed: int, data: Path, out: Path, device: str, extra: dict[str, Any]) -> None:
    """Train once, translate the test sentences, and write the record."""
    from heedful.data import PairList
    from heedful.metrics import bleu, chrf
    from heedful.training import Inputs, run_training
    from heedful.training.setup import apply_preset
    from heedful.translator import load

    started = time.perf_counter()
    test, pairs = corpus(name, data)
    pairs = pairs[:size]
    record: dict[str, Any] = {"corpus": name, "pairs": len(pairs), "seed": seed}
    for side, title in enumerate(("source", "target")):
        record[title] = counts([pair[side] for pair in pairs], [pair[side] for pair in test])
    config, chosen = apply_preset({}, len(pairs), "auto", "cpu")
    settings = config.plain()
    settings["training"].update(device=device, precision="fp32", seed=seed, checkpoint_every=10**6, **extra)
    record["preset"] = chosen.split("'")[1]
    record["settings"] = {
        key: settings["training"][key] for key in ("steps", "valid_every", "patience", "batch_tokens")
    }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "m"
        try:
            outcome = run_training(Inputs((PairList(pairs),)), place, settings, preset="none")
            record |= {"reason": outcome.reason, "steps": outcome.step}
            if outcome.best is not None:
                record["best"] = outcome.best.plain()
        except KeyboardInterrupt:
            record["reason"] = "interrupted"
        record["seconds"] = round(time.perf_counter() - started, 1)
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        record["valid"] = [
            [r["step"], round(r["valid_loss"], 4), round(r["valid_bleu"], 2)] for r in lines if "valid_loss" in r
        ]
        record["train"] = [[r["step"], r["epoch"], round(r["loss"], 4)] for r in lines if "loss" in r][::5]
        write_whole(out, json.dumps(record).encode())
        if record["reason"] != "interrupted" or record["valid"]:
            translator = load(place, device)
            found = [done.text for done in translator.translate([pair[0] for pair in test], trace=False)]
            references = [pair[1] for pair in test]
            record["vocabularies"] = [len(translator.parts.source_codec), len(translator.parts.target)]
            record["test"] = {"bleu": round(bleu(found, references), 2), "chrf": round(chrf(found, references), 2)}
            record["samples"] = [[*pair, text] for pair, text in zip(test[:3], found, strict=False)]
    write_whole(out, json.dumps(record).encode())


def run(plan: Sequence[tuple[str, int, int]], given: argparse.Namespace) -> None:
    """Run the plan in processes of its own, so many at a time, until the time is over."""
    until = time.monotonic() + 60 * given.minutes
    waiting = [item for item in plan if not _path(given.out, item).exists()]
    running: dict[tuple[str, int, int], subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < given.jobs:
            item = waiting.pop(0)
            command = [sys.executable, __file__, "--one", *map(str, item), "--device", given.device]
            command += ["--data", str(given.data), "--out", str(given.out), "--extra", given.extra]
            log = (given.out / f"{_path(given.out, item).stem}.log").open("wb")
            running[item] = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            log.close()
        time.sleep(0.2)
        for item, child in list(running.items()):
            if child.poll() is not None:
                del running[item]
                print(
                    f"{time.monotonic() - until + 60 * given.minutes:5.0f} s  {line(_path(given.out, item))}",
                    flush=True,
                )
    for child in running.values():
        child.send_signal(signal.SIGINT)
    end = time.monotonic() + GRACE
    for item, child in running.items():
        try:
            child.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
        print(f"stopped  {line(_path(given.out, item))}", flush=True)
    if waiting:
        print("not begun: " + ", ".join(_path(given.out, item).stem for item in waiting))


def _path(out: Path, item: tuple[str, int, int]) -> Path:
    return out / f"{item[0]}-{item[1]}-{item[2]}.json"


def line(path: Path) -> str:
    """Return a record as a row of the table."""
    if not path.exists():
        return f"{path.stem:<24} no record"
    r = json.loads(path.read_text(encoding="utf-8"))
    best = r.get("best", {})
    test = r.get("test", {})
    return (
        f"{path.stem:<24} {r['reason']:<11} stop {r.get('steps', 0):>6,}  best {best.get('step', 0):>6,}  "
        f"valid BLEU {best.get('bleu', 0.0):5.1f}  test BLEU {test.get('bleu', 0.0):5.1f}  "
        f"chrF {test.get('chrf', 0.0):5.1f}  unseen {r['source']['unseen']:6.1%} {r['target']['unseen']:6.1%}  "
        f"words per type {r['source']['words'] / r['source']['types']:5.1f}  {r['seconds']:.0f} s"
    )


def main() -> None:
    """Make all runs, one of them, or the table of those that are made."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=Path(), help="folder of the data sets")
    options.add_argument("--out", type=Path, required=True, help="folder for the records")
    options.add_argument("--jobs", type=int, default=16)
    options.add_argument("--minutes", type=float, default=8.5)
    options.add_argument("--device", default="cuda")
    options.add_argument("--only", default=",".join(CORPORA))
    options.add_argument("--sizes", default=",".join(map(str, SIZES)))
    options.add_argument("--seeds", default="1")
    options.add_argument("--extra", default="{}", help="more training settings, as JSON (to try it out)")
    options.add_argument("--table", action="store_true", help="print the records that exist")
    options.add_argument("--one", nargs=3, metavar=("CORPUS", "PAIRS", "SEED"), help=argparse.SUPPRESS)
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.table:
        for path in sorted(given.out.glob("*-*-*.json")):
            print(line(path))
        return
    if given.one:
        item = (given.one[0], int(given.one[1]), int(given.one[2]))
        one(*item, given.data, _path(given.out, item), given.device, json.loads(given.extra))
        return
    sizes, seeds = ([int(number) for number in text.split(",")] for text in (given.sizes, given.seeds))
    plan = [(name, size, seed) for seed in seeds for size in sizes for name in given.only.split(",")]
    run([item for item in plan if not (item[0] == "hin-eng" and item[1] > 10_000)], given)


if __name__ == "__main__":
    main()
