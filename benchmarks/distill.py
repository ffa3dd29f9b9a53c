"""Distillation on Multi30k English–German: a student with two layers of SSRU, with and without its teacher.

python3 benchmarks/distill.py --data FOLDER --out FOLDER [--device cuda] [--seeds 1,2,3] [--teachers 1]
    [--only teacher|students|measure] [--steps N] [--small]

The teacher is the Transformer of recipes/multi30k-en-de-transformer.toml (with --teachers 3 an ensemble of three
seeds), the student the same encoder with a decoder of two SSRU layers, all other settings equal. Per seed, one student
learns the teacher's translations (beam 5) and one the references. BLEU is that of test_2016_flickr, greedy and with a
beam of 5. Times are CPU seconds (`time.process_time`, which other work on the machine hardly changes) of one sentence
after another on one thread, greedy; the models take turns, and a time is the median over rounds of the mean.

The full run takes a GPU. What is done is kept in OUT and not done again, so it can be run in pieces; a piece that was
stopped goes on. --small is a trial of the whole way on a CPU: few pairs, small models, few steps; its BLEU means
nothing. Beside it, times are of models of the full size that have hardly been trained, at 20 tokens a sentence.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

from real_sets import read_task, write_task
from real_tasks import TASKS

import heedful
from heedful.errors import ConfigError, HeedfulError
from heedful.files import write_whole
from heedful.metrics import bleu

__all__ = ["main", "student_settings"]

TASK, TEST = "multi30k-en-de", "test_2016_flickr"
RECIPE = Path(__file__).parents[1] / "recipes" / f"{TASK}-transformer.toml"
SMALL_PAIRS, SMALL_TEST = 1_000, 100
SMALL: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "width": 64, "inner": 128, "dropout": 0.1},
    "text": {"size": 1000},
    "training": {"steps": 150, "warmup": 50, "rdrop": 0.0, "batch_tokens": 512, "valid_pairs": 50},
}
TIMED, ROUNDS, TOKENS = 30, 5, 20

Nested = dict[str, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        _run(given)
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="the folder with multi30k/")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--device", default="auto")
    options.add_argument("--threads", type=int, default=0)
    options.add_argument("--seeds", default="1,2,3", help="of the students")
    options.add_argument("--teachers", type=int, default=1, help="how many seeds are the teacher together")
    options.add_argument("--only", choices=("teacher", "students", "measure"))
    options.add_argument("--steps", type=int, default=0, help="updates at most, instead of the recipe's")
    options.add_argument("--small", action="store_true", help="a trial on a CPU")
    return options


def student_settings(teacher: Nested) -> Nested:
    """Return the settings of the student: the teacher's, with a decoder of two SSRU layers."""
    return {**teacher, "model": {**teacher["model"], "cell": "ssru", "decoder_layers": 2}}


def _settings(given: argparse.Namespace) -> Nested:
    """Return the settings of the teacher."""
    settings: Nested = heedful.read_recipe(RECIPE)
    changes: list[Mapping[str, Mapping[str, Any]]] = [SMALL] if given.small else []
    changes += [{"training": {"device": given.device, "threads": given.threads, "checkpoint_every": 500}}]
    changes += [{"training": {"steps": given.steps}}] if given.steps else []
    for change in changes:
        for section, values in change.items():
            settings[section] = {**settings.get(section, {}), **values}
    return settings


def _run(given: argparse.Namespace) -> None:
    try:
        seeds = [int(seed) for seed in given.seeds.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds {given.seeds}: expected whole numbers separated by commas") from None
    data, settings = _data(given), _settings(given)
    teachers = [given.out / f"teacher-{seed}" for seed in range(1, given.teachers + 1)]
    if given.only in (None, "teacher"):
        for seed, out in enumerate(teachers, 1):
            _train(data / "train.tsv", data / "valid.tsv", out, settings, seed)
    models = {f"distilled-{seed}": given.out / f"distilled-{seed}" for seed in seeds}
    models |= {f"plain-{seed}": given.out / f"plain-{seed}" for seed in seeds}
    if given.only in (None, "students"):
        _students(given.out, teachers, data, student_settings(settings), seeds)
    if given.only in (None, "measure"):
        results = _measured(teachers, models, data, given)
        write_whole(given.out / "results.json", (json.dumps(results, indent=1) + "\n").encode())
        print(_table(results))


def _data(given: argparse.Namespace) -> Path:
    """Return the folder with the files of pairs, written once."""
    folder: Path = given.out / "data"
    if not (folder / "task.json").exists():
        write_task(TASKS[TASK](given.data), folder)
        if given.small:
            lines = (folder / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / "train.tsv").write_text("".join(lines[:SMALL_PAIRS]), encoding="utf-8")
    return folder


def _train(pairs: Path, valid: Path, out: Path, settings: Nested, seed: int) -> None:
    """Train a model, go on with it, or leave it as it is."""
    if (out / "done").exists():
        return
    chosen = {**settings, "training": {**settings["training"], "seed": seed}}
    began = time.perf_counter()
    resume = (out / "checkpoints").exists()
    heedful.train(pairs, out, valid=valid, settings=chosen, preset="none", resume=resume)
    _done(out, began)


def _done(out: Path, began: float) -> None:
    spent = time.perf_counter() - began
    write_whole(out / "done", f"{spent:.0f}\n".encode())
    print(f"{out.name}: {spent:.0f} s", flush=True)


def _students(out: Path, teachers: Sequence[Path], data: Path, settings: Nested, seeds: Sequence[int]) -> None:
    """Train the students; the teacher translates for the first seed, and the others learn the same translations."""
    first = out / f"distilled-{seeds[0]}"
    if not (first / "done").exists():
        began = time.perf_counter()
        chosen = {**settings, "training": {**settings["training"], "seed": seeds[0]}}
        files = data / "train.tsv", first
        heedful.distill(teachers, *files, valid=data / "valid.tsv", beam=5, settings=chosen, preset="none")
        _done(first, began)
    for seed in seeds:
        pairs, valid = (first / "distilled" / name for name in ("pairs.tsv", "valid.tsv"))
        _train(pairs, valid, out / f"distilled-{seed}", settings, seed)
        _train(data / "train.tsv", data / "valid.tsv", out / f"plain-{seed}", settings, seed)


def _measured(
    teachers: Sequence[Path], models: Mapping[str, Path], data: Path, given: argparse.Namespace
) -> dict[str, Any]:
    """Measure all models that are there: BLEU, size, time of a sentence."""
    rows = read_task(data)[1][TEST][: SMALL_TEST if given.small else None]
    sources, references = [row.source for row in rows], [row.references for row in rows]
    there = {"teacher": teachers, **{name: [path] for name, path in models.items() if (path / "done").exists()}}
    results: dict[str, Any] = {"small": given.small, "sentences": len(rows), "models": {}}
    for name, paths in there.items():
        model = heedful.load(paths[0] if len(paths) == 1 else paths, given.device, threads=given.threads)
        scores = {}
        for beam in (1, 5):
            outputs = [done.text for done in model.translate(sources, beam=beam)]
            scores[f"beam {beam}"] = round(bleu(outputs, [list(one) for one in references]), 2)
        weights = sum(path.stat().st_size for folder in paths for path in folder.glob("*.safetensors"))
        count = sum(weight.numel() for weight in model.parts.model.parameters())
        results["models"][name] = {"bleu": scores, "megabytes": round(weights / 1e6, 1), "weights": count}
        del model
    timed = {"teacher": teachers[0], **dict(islice(((n, p[0]) for n, p in there.items() if n != "teacher"), 1))}
    results["milliseconds"] = _times(timed, sources, heedful.Decoding())
    if given.small:
        results["untrained"] = _full_size(given, data, sources)
    return results


def _full_size(given: argparse.Namespace, data: Path, sources: Sequence[str]) -> dict[str, float]:
    """Measure models of the full size that were trained for a step, at the same number of tokens."""
    settings = heedful.read_recipe(RECIPE)
    once = {"steps": 1, "device": "cpu", "threads": given.threads, "valid_pairs": 10, "rdrop": 0.0}
    paths = {}
    for name, each in (("Transformer", settings), ("student", student_settings(settings))):
        paths[name] = given.out / f"untrained-{name}"
        if not (paths[name] / "config.json").exists():
            chosen = {**each, "training": {**each["training"], **once, "batch_tokens": 512}}
            heedful.train(data / "train.tsv", paths[name], valid=data / "valid.tsv", settings=chosen, preset="none")
    return _times(paths, sources, heedful.Decoding(min_length=TOKENS, max_length=TOKENS))


def _times(paths: Mapping[str, Path], sources: Sequence[str], how: heedful.Decoding) -> dict[str, float]:
    """Return the milliseconds of a sentence by each model, on one thread; the models take turns."""
    models = {name: heedful.load(path, "cpu", threads=1) for name, path in paths.items()}
    spent: dict[str, list[float]] = {name: [] for name in models}
    texts = sources[:TIMED]
    for model in models.values():
        model.translate(texts[:1], how)
    for _ in range(ROUNDS):
        for name, model in models.items():
            began = time.process_time()
            for text in texts:
                model.translate([text], how)
            spent[name].append(1000 * (time.process_time() - began) / len(texts))
    return {name: round(statistics.median(values), 2) for name, values in spent.items()}


def _table(results: dict[str, Any]) -> str:
    """Return the results as tables."""
    lines = ["| model | weights | MB | BLEU, greedy | BLEU, beam 5 |", "|---|---|---|---|---|"]
    for kind in ("teacher", "distilled", "plain"):
        found = [values for name, values in results["models"].items() if name.split("-")[0] == kind]
        if not found:
            continue
        scores = [[one["bleu"][f"beam {beam}"] for one in found] for beam in (1, 5)]
        words = [f"{statistics.mean(each):.1f} ({min(each):.1f}–{max(each):.1f})" for each in scores]
        size = f"{found[0]['weights'] / 1e6:.2f} M | {found[0]['megabytes']:.1f}"
        lines.append(f"| {kind}, {len(found)} | {size} | {' | '.join(words)} |")
    for name in ("milliseconds", "untrained"):
        if name in results:
            times = results[name]
            slow, fast = times.values() if len(times) == 2 else (0.0, 0.0)
            ratio = f"; {slow / fast:.2f} times" if fast else ""
            shown = ", ".join(f"{model} {value} ms" for model, value in times.items())
            what = "a sentence" if name == "milliseconds" else f"full size, {TOKENS} tokens"
            lines.append(f"\n{what}, one CPU thread: {shown}{ratio}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
