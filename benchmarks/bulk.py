"""Rows per second of `heedful.translate_files`, what reading and writing files cost, and the memory that it takes.

python benchmarks/bulk.py [--rows 4000] [--rounds 3] [--formats jsonl,parquet] [--units 1] [--model DIR] [--json FILE]

Made-up sentences of 20 tokens, and 20 tokens written for each, by a Transformer with random weights (width 256, inner
width 1024, 4 heads, 3 + 3 layers, 8,000 tokens), or sentences and model of your own: --model, --input FILE.jsonl. In a
round, the same sentences are translated in memory, in portions of the same size, and from files to files, with links;
medians over rounds, and the ratio within a round. The share outside `Translator.translate` is the time for reading,
links and writing. Beside the time there is that of the CPU, of all threads: on a busy machine it says more. Memory is
the largest of the process so far. CPU time outside `translate` is right with one thread only.
On a GPU: --rows 1000000 --rounds 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

import torch

import heedful
from heedful.bulk.formats import PACKINGS, packed
from heedful.bulk.rows import BulkSettings, RowTranslator
from heedful.bulk.run import BulkProgress
from heedful.config import Config
from heedful.decoding import Decoding
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.models.device import MOST_TOKENS, pick
from heedful.text import Codec

__all__ = ["main", "sentences"]

WORDS, LENGTH, SIZE = 4_000, 20, 8_000
MODEL = {"family": "transformer", "width": 256, "heads": 4, "inner": 1024, "layers": 3}


def sentences(count: int, seed: int = 1) -> list[str]:
    """Return made-up sentences of about `LENGTH` tokens: words of two to three syllables, frequent ones first."""
    draw = random.Random(seed)
    syllables = [c + v for c in "bdfghklmnprstw" for v in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(2, 3))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    return [" ".join(draw.choices(words, weights, k=LENGTH - 4)) for _ in range(count)]


def random_translator(device: str, threads: int) -> heedful.Translator:
    """Return a translator with random weights, whose texts are noise."""
    config = Config.build({"model": MODEL, "text": {"kind": "bpe", "size": SIZE, "joint": True}})
    codec = Codec.train(sentences(5_000, seed=0), config.text)
    torch.manual_seed(1)
    model = build(config.model, len(codec), len(codec)).eval()
    return heedful.Translator(ModelParts(config, model, codec, codec), pick(device), threads=threads)


def write_rows(path: Path, texts: Sequence[str]) -> Path:
    """Write texts as rows with a number: .jsonl, .jsonl.gz, .jsonl.zst or .parquet."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"id": list(range(len(texts))), "text": list(texts)}), path)
        return path
    content = "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)).encode()
    with path.open("wb") as file, packed(file, path.suffix if path.suffix in PACKINGS else "") as stream:
        stream.write(content)
    return path


class Clock:
    """Adds up seconds, and those of the CPU, of all threads and of its own, of what is done inside of it."""

    def __init__(self) -> None:
        self.seconds = self.cpu = self.thread = 0.0

    def __enter__(self) -> Clock:
        self.began = time.perf_counter(), time.process_time(), time.thread_time()
        return self

    def __exit__(self, *error: object) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.began[0]
        self.cpu += time.process_time() - self.began[1]
        self.thread += time.thread_time() - self.began[2]


def timed(function: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    """Return a function whose time is added to a clock."""

    def call(*args: Any, **keywords: Any) -> Any:  # noqa: ANN401
        with clock:
            return function(*args, **keywords)

    return call


class FileTimes(NamedTuple):
    """The time for files, the part of it in `translate`, the CPU time of each unit, and bytes of a row in and out."""

    all: Clock
    inside: Clock
    units: list[float]
    bytes_in: float
    bytes_out: float


def in_memory(translator: heedful.Translator, texts: Sequence[str], how: Decoding, batch_tokens: int) -> Clock:
    """Return the time for translating texts, with traces, in the portions that files are translated in."""
    rows = RowTranslator(translator, BulkSettings(alignments=True, how=how), batch_tokens).rows
    with Clock() as clock:
        for first in range(0, len(texts), rows):
            translator.translate(texts[first : first + rows], how, trace=True, batch_tokens=batch_tokens)
    return clock


def from_files(
    translator: heedful.Translator, folder: Path, texts: Sequence[str], ending: str, units: int, how: Decoding
) -> FileTimes:
    """Return the time for translating files with these texts, the part of it in `translate`, and that of each unit."""
    size = -(-len(texts) // units)
    parts = [texts[first : first + size] for first in range(0, len(texts), size)]
    files = [write_rows(folder / f"{n}.{ending}", part) for n, part in enumerate(parts)]
    inside, translate = Clock(), translator.translate
    ends = {"": time.process_time()}  # of each unit, in CPU time

    def progress(state: BulkProgress) -> None:
        ends[state.unit] = time.process_time()

    translator.translate = timed(translate, inside)  # type: ignore[method-assign]
    try:
        with Clock() as clock:
            report = heedful.translate_files(translator, files, folder / "out", how, alignments=True, progress=progress)
    finally:
        translator.translate = translate  # type: ignore[method-assign]
    assert report.rows == len(texts)
    times = [end - begin for begin, end in pairwise(ends.values())]
    outputs = [path.stat().st_size for path in (folder / "out").glob(f"*.{ending}")]
    sizes = [sum(path.stat().st_size for path in files) / len(texts), sum(outputs) / len(texts)]
    return FileTimes(clock, inside, times, *sizes)


def summary(rows: int, rounds: Sequence[tuple[Clock, FileTimes]]) -> dict[str, float]:
    """Return medians over rounds, and the ratio of times within a round."""
    median, (_, last) = statistics.median, rounds[-1]
    return {
        "rows/s": rows / median(files.all.seconds for _, files in rounds),
        "rows per CPU second": rows / median(files.all.cpu for _, files in rounds),
        "of the rate in memory": median(plain.seconds / files.all.seconds for plain, files in rounds),
        "of it by CPU time": median(plain.cpu / files.all.cpu for plain, files in rounds),
        "µs of CPU a row outside translate": median(1e6 * (f.all.cpu - f.inside.thread) / rows for _, f in rounds),
        "spread of unit times": _spread([seconds for _, files in rounds for seconds in files.units]),
        "bytes a row in": last.bytes_in,
        "bytes a row out": last.bytes_out,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _spread(times: Sequence[float]) -> float:
    return statistics.stdev(times) / statistics.mean(times) if len(times) > 1 else 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", type=int, default=1, help="files that the rows are divided into")
    parser.add_argument("--formats", default="jsonl", help="such as jsonl,jsonl.gz,parquet")
    parser.add_argument("--model", default="", help="a model folder, with --input")
    parser.add_argument("--input", default="", help="a .jsonl file with texts, instead of made-up ones")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    if given.model:
        translator, how = heedful.load(given.model, given.device, threads=given.threads), Decoding()
    else:
        translator = random_translator(given.device, given.threads)
        how = Decoding(min_length=LENGTH - 1, max_length=LENGTH - 1)
    texts = sentences(given.rows)
    if given.input:
        with open(given.input, encoding="utf-8") as file:
            texts = [json.loads(line)["text"] for line in file][: given.rows]
    batch_tokens = MOST_TOKENS.get(translator.device.type, MOST_TOKENS["cpu"])
    print(
        f"{platform.processor() or platform.machine()}, {translator.device}, {given.threads} threads, "
        f"torch {torch.__version__}"
    )
    print(f"{len(texts):,} sentences, greedy, with links, batches of {batch_tokens:,} tokens, {given.units} files")
    translator.translate(texts[:64], how)  # the first call prepares kernels
    results: dict[str, Any] = {}
    for ending in given.formats.split(","):
        rounds = []
        for _ in range(given.rounds):
            plain = in_memory(translator, texts, how, batch_tokens)
            with tempfile.TemporaryDirectory() as folder:
                rounds.append((plain, from_files(translator, Path(folder), texts, ending, given.units, how)))
        found = summary(len(texts), rounds)
        print(f".{ending}: " + ", ".join(f"{value:,.3g} {name}" for name, value in found.items()))
        results[ending] = {**found, "unit CPU seconds": [seconds for _, files in rounds for seconds in files.units]}
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
