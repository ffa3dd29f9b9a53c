"""What the runs of a task found, put together: means over seeds, from the lowest to the highest, as tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["finished", "gather", "tables"]

Record = Mapping[str, Any]


def finished(folder: Path, task: Record) -> list[dict[str, Any]]:
    """Return every run in the folder of a task (`NAME/SEED.json`) that has an exam with the test sets of now."""
    counts = {name: test["rows"] for name, test in task["tests"].items()}
    files = [path for path in folder.glob("*/*.json") if path.stem.lstrip("-").isdecimal()]
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [r for r in runs if "exam" in r and {k: t["pairs"] for k, t in r["exam"]["tests"].items()} == counts]


def gather(task: Record, runs: Sequence[Record]) -> dict[str, Any]:
    """Return what `results.json` holds: the counts of the task, every run, and the means by recipe and test set."""
    counts = {name: {k: v for k, v in test.items() if k != "apart"} for name, test in task["tests"].items()}
    names = sorted({_called(run, runs) for run in runs})
    return {
        **{k: v for k, v in task.items() if k != "tests"},
        "tests": counts,
        "means": {name: _means([run for run in runs if _called(run, runs) == name]) for name in names},
        "signatures": _signatures(runs),
        "runs": sorted(runs, key=lambda run: (run["name"], run["seed"])),
    }


def tables(results: Record) -> str:
    """Return the means as a table for people, then BLEU by length, then how each run went."""
    parts = [_scores(results), _lengths(results), _training(results)]
    signatures = "\n".join(f"{name}: {text}" for name, text in results["signatures"].items())
    return "\n\n".join([*parts, signatures])


def _called(run: Record, runs: Sequence[Record]) -> str:
    """Return the name of a run; with what was changed in it, if not all runs of that name have it."""
    same = all(_changes(run) == _changes(other) for other in runs if other["name"] == run["name"])
    return run["name"] if same else f"{run['name']} ({_changes(run) or 'unchanged'})"


def _changes(run: Record) -> str:
    limits = [f"{run[name]:g} {name}" for name in ("steps", "seconds") if run.get(name)]
    return ", ".join([*run.get("settings", []), *run.get("more", []), *limits])


def _means(runs: Sequence[Record]) -> dict[str, Any]:
    """Return for each test set the means of the runs of one recipe, of all pairs and of those without overlap."""
    tests = [run["exam"]["tests"] for run in runs]
    found: dict[str, Any] = {}
    for name in tests[0]:
        mine = [test[name] for test in tests]
        rows = zip(*(test["by_length"] for test in mine), strict=True)
        found[name] = {
            "seeds": len(mine),
            "pairs": mine[0]["pairs"],
            **{score: _spread([test[score] for test in mine]) for score in ("bleu", "chrf")},
            "apart": {"pairs": mine[0]["apart"]["pairs"]}
            | {s: _spread([t["apart"][s] for t in mine]) for s in ("bleu", "chrf") if s in mine[0]["apart"]},
            "by_length": [
                {k: row[0][k] for k in ("low", "high", "pairs")} | {"bleu": _spread([r["bleu"] for r in row])}
                for row in rows
            ],
        }
    return found


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "low": min(values), "high": max(values)}


def _signatures(runs: Sequence[Record]) -> dict[str, str]:
    """Return sacrebleu's signatures, of each number of references."""
    found = {}
    for run in runs:
        for test in run["exam"]["tests"].values():
            references = f", {test['references']} references" if test["references"] > 1 else ""
            for score, name in (("bleu", "BLEU"), ("chrf", "chrF")):
                found[f"{name}{references}"] = test[f"{score}_signature"]
    return found


def _scores(results: Record) -> str:
    wide = _wide(results)
    head = f"{'recipe':<{wide}}  {'test set':<18} {'seeds':>5} {'pairs':>6} {'BLEU':>18} {'chrF':>6}"
    lines = [f"{results['task']}: beam 5; without overlap: neither side is in training"]
    lines += [f"{head}   {'without overlap':>15} {'BLEU':>6} {'chrF':>6}"]
    for name, tests in results["means"].items():
        for test, found in tests.items():
            bleu, alone = found["bleu"], found["apart"]
            scores = f"{bleu['mean']:6.2f} ({bleu['low']:.1f}–{bleu['high']:.1f})"
            line = f"{name:<{wide}}  {test:<18} {found['seeds']:>5} {found['pairs']:>6,} {scores:>18}"
            line += f" {found['chrf']['mean']:6.2f}   {alone['pairs']:>15,}"
            if "bleu" in alone:
                line += f" {alone['bleu']['mean']:6.2f} {alone['chrf']['mean']:6.2f}"
            lines.append(line)
    return "\n".join(lines)


def _lengths(results: Record) -> str:
    wide = _wide(results)
    lines = ["BLEU by source words (pairs)"]
    for name, tests in results["means"].items():
        for test, found in tests.items():
            cells = []
            for row in found["by_length"]:
                label = f"{row['low']}+" if row["high"] is None else f"{row['low']}–{row['high']}"
                cells.append(f"{label}: {row['bleu']['mean']:.1f} ({row['pairs']:,})")
            lines.append(f"{name:<{wide}}  {test:<18} {'  '.join(cells)}")
    return "\n".join(lines)


def _training(results: Record) -> str:
    wide = _wide(results)
    titles = "seed  weights      step  valid BLEU  alpha  set-up s  training s  tokens/s  exam s  device"
    lines = [f"{'recipe':<{wide}}  {titles}"]
    for run in results["runs"]:
        exam, training = run["exam"], run["training"] or {}
        chosen, scores = exam["chosen"], exam["chosen"].get("validation") or {}
        cells = [
            f"{run['name']:<{wide}}",
            f"{run['seed']:>4}",
            f"{exam['weights'] / 1e6:5.1f} M",
            f"{chosen.get('step', 0):>8,}",
            _number(scores.get("bleu"), 10, 2),
            f"{exam['alpha']:>5}",
            _number(training.get("setup_seconds"), 8, 1),
            _number(training.get("training_seconds"), 10, 1),
            _number(training.get("tokens_per_second"), 8, 0),
            f"{exam['seconds']:>6}",
            exam["machine"]["device"],
        ]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def _wide(results: Record) -> int:
    return max(map(len, ["recipe", *results["means"]]))


def _number(value: float | None, wide: int, places: int) -> str:
    return " " * (wide - 1) + "?" if value is None else f"{value:>{wide},.{places}f}"
