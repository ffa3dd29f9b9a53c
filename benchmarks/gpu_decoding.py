"""How fast a GPU decodes: captured steps beside plain ones and `transformers`' `generate`, bf16, and whole commands.

    python3 benchmarks/gpu_decoding.py [--data FOLDER] [--out FOLDER] [--only speed,commands,files] [--json FILE]

speed: the Transformer of `benchmarks/decoding.py` with random weights, sources of 20 tokens, exactly 20 tokens written;
one sentence at a time, and 32, 256 and 1,024 at once, greedily and with a beam of 5. In a round all ways run in turn;
medians of the ratios within a round are printed, how many sentences are translated alike by both (greedily it must be
all of them), and how many kernels a step launches.

commands: a Transformer of 4 + 4 layers (7.3 M weights) is trained on Multi30k for --steps updates, unless OUT/model is
there. Then `heedful translate` of all 29,000 English training sentences, as a whole process, greedily and with a beam
of 5, with and without --alignments, and of a single line; and how many sentences bf16 and plain decoding change.

files: `heedful translate … --out` with that model, as a whole process: --rows rows of .jsonl, greedily, with links; a
tenth of them by several workers and by one, whose outputs must be the same byte for byte, and with alarms, too.

With --device cpu everything runs, too, to try it: use --sizes 1,4 --rounds 1 --lines 50 --steps 10 --rows 100.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

import torch
from decoding import LENGTH, V, generate, ours, peer, sentences, write
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import heedful
from heedful.data import read_lines
from heedful.decoding import Decoding, SlotDecoder
from heedful.decoding.slot_decoder import SlotEntry
from heedful.models import Network, pack_weights

__all__ = ["commands", "files", "launches", "main", "speed"]

MODEL: dict[str, object] = {"family": "transformer", "layers": 4, "width": 256, "inner": 512, "heads": 4, "tied": "all"}
BEAMS = (1, 5)
SINGLE = 10  # sentences in a round, one at a time
VIEWS = re.compile(
    "view|t|transpose|unsqueeze|expand|slice|select|_unsafe_view|detach|alias|unbind|permute|split|as_strided|squeeze|"
    "lift_fresh|empty|new_empty|reshape|flatten|unfold|to|chunk"
)
Run = Callable[[Tensor], list[tuple[int, ...]]]


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a run."""
    synchronize(device)
    begin = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - begin


def _all(run: Run, parts: Sequence[Tensor]) -> list[tuple[int, ...]]:
    """Return what is written for some batches, one after the other."""
    return [ids for part in parts for ids in run(part)]


@torch.inference_mode()
def captured(decoder: SlotDecoder, x: Tensor, K: int) -> list[tuple[int, ...]]:
    """Write exactly 20 tokens for each sentence in slots."""
    memory = decoder.model.encode(x, x != 0)
    how = Decoding(beam=K, min_length=LENGTH - 1, max_length=LENGTH - 1)
    return [each[0].ids for each in decoder.decode(memory, [LENGTH] * len(x), how)]


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that are no views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.operations[function.__name__.split(".")[0]] += 1
        return function(*args, **(kwargs or {}))


@torch.inference_mode()
def launches(model: Network, x: Tensor, K: int) -> int:
    """Return how many kernels a step launches on a GPU; on a CPU, how many operations that are no views it has."""
    memory = model.encode(x, x != 0)
    decoder = SlotDecoder(model)
    batch = decoder._batch(memory, Decoding(beam=K), 0, len(x), 60)
    positions = batch.state.memory.keep.shape[1]  # type: ignore[attr-defined]
    some = torch.arange(min(len(x), batch.B), device=x.device)
    batch.enter(memory.select(some).pad_to(positions), [SlotEntry(i, 60, ()) for i in range(len(some))])
    for _ in range(2):
        batch._step()
    if not x.is_cuda:
        with _Count() as count:
            batch._step()
        return sum(times for name, times in count.operations.items() if not VIEWS.fullmatch(name))
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        batch._step()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in profile.events() or ())


def speed(device: torch.device, rounds: int, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return sentences per second of every way, by beam and batch."""
    torch.manual_seed(1)
    theirs = peer()
    mine = ours(theirs)
    pack_weights(mine, device.type == "cpu")
    mine, theirs = mine.to(device), theirs.to(device)
    decoder, rows = SlotDecoder(mine), []
    for size in sizes:
        for K in BEAMS:
            x = sentences(SINGLE if size == 1 else size).to(device)
            ways: dict[str, Run] = {
                "captured": partial(captured, decoder, K=K),
                "plain": partial(write, mine, K=K),
                "generate": partial(generate, theirs, K=K),
            }
            # In batches of the size that is measured; the third call of a shape is the first that is replayed.
            parts = [x[i : i + size] for i in range(0, len(x), size)]
            written = {name: _all(way, parts) for name, way in ways.items()}
            same = {
                other: sum(a == b for a, b in zip(written["captured"], written[other], strict=True))
                for other in ("plain", "generate")
            }
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, way in ways.items():
                    times[name].append(timed(partial(_all, way, parts), device))
            row: dict[str, Any] = {
                "beam": K,
                "batch": size,
                "sentences": len(x),
                "launches": launches(mine, x[:size], K),
            }
            for name, seconds in times.items():
                row[name] = len(x) / statistics.median(seconds)
            for other in ("plain", "generate"):
                ratios = [b / a for a, b in zip(times["captured"], times[other], strict=True)]
                row[f"against {other}"] = statistics.median(ratios)
                row[f"same as {other}"] = same[other]
            rows.append(row)
            print(
                f"beam {K}, batch {size:>5}: captured {row['captured']:>9.1f}, plain {row['plain']:>9.1f}, generate "
                f"{row['generate']:>9.1f} sentences/s; {row['against generate']:.2f} × generate, "
                f"{row['against plain']:.2f} × plain; same tokens: {same['plain']} and {same['generate']} of {len(x)}; "
                f"{row['launches']} launches a step",
                flush=True,
            )
            decoder.close()
    return rows


def trained(data: Path, out: Path, device: str, steps: int) -> Path:
    """Return the folder of a model of Multi30k, trained if it is not there."""
    folder = out / "model"
    if not folder.exists():
        sides = [list(read_lines(data / f"train.{language}.gz")) for language in ("en", "de")]
        pairs = [(x.strip(), y.strip()) for x, y in zip(*sides, strict=True)]
        settings: dict[str, dict[str, object]] = {
            "model": MODEL,
            "text": {"size": 8000, "joint": True},
            "training": {"device": device, "steps": steps, "batch_tokens": 4096},
        }
        heedful.train(pairs, folder, settings=settings)
    return folder


def translate(model: Path, lines: Sequence[str], device: str, *options: str) -> tuple[float, list[str]]:
    """Return the seconds of a whole `heedful translate` process, and what it prints."""
    command = [sys.executable, "-m", "heedful", "translate", str(model), "--device", device, "--quiet", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    begin = time.perf_counter()
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    return time.perf_counter() - begin, done.stdout.splitlines()


def commands(data: Path, out: Path, device: str, steps: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """Return the seconds of whole commands, and how many sentences change in bf16 and in plain decoding."""
    model = trained(data, out, device, steps)
    lines = [line.strip() for line in read_lines(data / "train.en.gz")][:count]
    translate(model, lines[:1], device)  # Triton's cache is warm from here on
    rows = []
    for K in BEAMS:
        exact: list[str] = []
        for name, more in (("fp32", ()), ("links", ("--alignments",)), ("bf16", ("--precision", "bf16"))):
            runs = [translate(model, lines, device, "--beam", str(K), *more) for _ in range(rounds)]
            alone = translate(model, lines[:1], device, "--beam", str(K), *more)[0]
            exact = runs[0][1] if name == "fp32" else exact
            changed = sum(a.split("\t")[0] != b for a, b in zip(runs[0][1], exact, strict=True))
            row = {"beam": K, "way": name, "lines": len(lines), "seconds": statistics.median(s for s, _ in runs)}
            rows.append({**row, "one line": alone, "changed": changed})
            print(
                f"heedful translate --beam {K} {' '.join(more):<18} {row['seconds']:6.2f} s for {len(lines):,} lines, "
                f"{alone:.2f} s for one; {changed} of {len(lines):,} lines differ from fp32",
                flush=True,
            )
        translator = heedful.load(model, device)
        some = lines[: len(lines) // 6]
        found = [translator.translate(some, beam=K, trace=False, batch_tokens=size) for size in (4096, 262_144)]
        changed = sum(a.score != b.score or a.text != b.text for a, b in zip(*found, strict=True))
        rows.append({"beam": K, "way": "batches of 4,096", "lines": len(some), "changed": changed})
        print(f"beam {K}: {changed} of {len(some):,} lines differ in a bit with other batches", flush=True)
        translator.slots = None
        plain = translator.translate(lines, beam=K, trace=False, batch_tokens=65_536)
        margins = [
            one.score - translator.score([line], [text])[0].score
            for line, one, text in zip(lines, plain, exact, strict=True)
            if one.text != text
        ]
        rows.append({"beam": K, "way": "plain", "lines": len(lines), "changed": len(margins), "margins": margins})
        shown = ", ".join(f"{margin:.1e}" for margin in margins[:8])
        print(
            f"beam {K}: {len(margins)} of {len(lines):,} lines differ between captured and plain decoding; "
            f"differences of log-probability: {shown or 'none'}",
            flush=True,
        )
    return rows


def translate_rows(model: Path, rows: Path, out: Path, device: str, *options: str) -> float:
    """Return the seconds of a whole `heedful translate … --out` process."""
    command = [
        sys.executable,
        "-m",
        "heedful",
        "translate",
        str(model),
        str(rows),
        "--out",
        str(out),
        "--device",
        device,
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    begin = time.perf_counter()
    subprocess.run([*command, "--quiet", *options], env=environment, check=True)
    return time.perf_counter() - begin


def files(data: Path, out: Path, device: str, steps: int, count: int) -> list[dict[str, Any]]:
    """Return rows per second from file to file."""
    model = trained(data, out, device, steps)
    lines = [line.strip() for line in read_lines(data / "train.en.gz")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, number in (("all", count), ("few", count // 10)):
            with (place / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                for i in range(number):
                    file.write(json.dumps({"id": i, "text": lines[i % len(lines)]}) + "\n")
        links = ("--threads", "1", "--alignments", "--no-alarms")
        for name, number, options in (
            ("all", count, links),
            ("few", count // 10, links),
            ("few", count // 10, (*links, "--workers", "1")),
            ("few", count // 10, ("--threads", "1", "--alignments")),
        ):
            seconds = translate_rows(model, place / f"{name}.jsonl", place / f"{len(rows)}.jsonl", device, *options)
            rows.append({"options": " ".join(options), "rows": number, "seconds": seconds, "speed": number / seconds})
            print(
                f"{number:,} rows {' '.join(options):<38} {seconds:6.1f} s, {number / seconds:,.0f} rows/s", flush=True
            )
        same = (place / "1.jsonl").read_bytes() == (place / "2.jsonl").read_bytes()
        print(f"one worker and several write {'the same' if same else 'DIFFERENT'} bytes")
        rows.append({"same bytes": same})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of Multi30k, with train.en.gz and train.de.gz")
    parser.add_argument("--out", type=Path, default=Path("gpu_decoding"), help="for the model")
    parser.add_argument("--only", default="speed,commands")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="1,32,256,1024")
    parser.add_argument("--steps", type=int, default=2000, help="updates of the training")
    parser.add_argument("--lines", type=int, default=29_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of files")
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"torch {torch.__version__}, {name}, a vocabulary of {V:,}; TF32 {torch.backends.cuda.matmul.allow_tf32}")
    results: dict[str, Any] = {"device": name, "torch": torch.__version__}
    if "speed" in options.only:
        results["speed"] = speed(device, options.rounds, [int(size) for size in options.sizes.split(",")])
    if "commands" in options.only:
        if options.data is None:
            parser.error("commands need --data")
        rounds = max(1, options.rounds // 2)
        results["commands"] = commands(options.data, options.out, options.device, options.steps, options.lines, rounds)
    if "files" in options.only:
        if options.data is None:
            parser.error("files need --data")
        results["files"] = files(options.data, options.out, options.device, options.steps, options.rows)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
