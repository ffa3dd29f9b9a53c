"""What a trained model scores: every test set of a task, translated with a beam of 5, by length and without overlaps.

python benchmarks/real_exam.py MODEL TASK_FOLDER --out FILE.json

How much a beam prefers long translations (alpha) is chosen on the validation set, like everything else: it is 1, the
plain mean, unless another is better there by more than chance.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

import torch
from real_sets import Row, read_task

import heedful
from heedful.decoding import Decoding
from heedful.errors import HeedfulError
from heedful.files import write_whole
from heedful.metrics import SentenceStats, differences, extract_stats, table
from heedful.text import count
from heedful.translator import Translator

__all__ = ["BEAM", "examine", "preferred"]

BEAM = 5
BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
USUAL = 1.0  # the length penalty that stays when nothing speaks against it


def examine(translator: Translator, folder: Path, alphas: Sequence[float], outputs: Path) -> dict[str, Any]:
    """Return the scores of a model on the test sets of a prepared task; the translations are written as `outputs`…"""
    begun = time.perf_counter()
    record, rows = read_task(folder)
    valid = rows.pop("valid")
    right = [row.references for row in valid]
    tried = {alpha: extract_stats(_write(translator, valid, alpha), right, ["bleu"]) for alpha in alphas}
    best = preferred(tried)
    tests = {}
    for name, test in rows.items():
        written = _write(translator, test, best)
        text = "".join(" ".join(line.split()) + "\n" for line in written)
        write_whole(outputs.with_name(f"{outputs.name}.{name}.txt"), text.encode())
        found = extract_stats(written, [row.references for row in test], ["bleu", "chrf", "exact"])
        scores = table([count(row.source) for row in test], found).plain()
        alone = record["tests"][name]["apart"]
        without = {"pairs": len(alone), **(found.scores(alone) if alone else {})}
        tests[name] = {**scores, "references": record["tests"][name]["references"], "apart": without}
    return {
        "beam": BEAM,
        "alpha": best,
        "validation_bleu_by_alpha": {str(alpha): one.scores()["bleu"] for alpha, one in tried.items()},
        "weights": sum(p.numel() for p in translator.parts.model.parameters()),
        "chosen": dict(translator.parts.notes),
        "tests": tests,
        "seconds": round(time.perf_counter() - begun, 1),
        "machine": machine(translator.device),
    }


def preferred(tried: Mapping[float, SentenceStats]) -> float:
    """Return the length penalty to measure with: 1 if it was tried and none is better by more than chance, or the best.

    Validation BLEU differs by tenths between penalties, and the largest of such numbers says nothing about a test.
    """
    best = max(tried, key=lambda alpha: (tried[alpha].scores()["bleu"], alpha == USUAL))
    if best == USUAL or USUAL not in tried:
        return best
    found = differences(tried[best], tried[USUAL], resamples=0)["bleu"]
    return best if found.verdict == "better" else USUAL


def machine(device: torch.device) -> dict[str, str]:
    """Return what computed."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


def _write(translator: Translator, rows: Sequence[Row], alpha: float) -> list[str]:
    """Translate every line as one sentence, whatever marks stand in it."""
    how = Decoding(beam=BEAM, alpha=alpha)
    size = BATCH_TOKENS.get(translator.device.type, 4096)
    sources = [row.source for row in rows]
    return [done.text for done in translator.translate(sources, how, split=False, trace=False, batch_tokens=size)]


def main() -> int:
    """Examine one model and write its scores; return the exit code."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("model", type=Path)
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--alphas", default="1.0")
    options.add_argument("--device", default="auto")
    given = options.parse_args()
    alphas = [float(alpha) for alpha in given.alphas.split(",")]
    try:
        found = examine(heedful.load(given.model, given.device), given.folder, alphas, given.model)
        write_whole(given.out, json.dumps(found).encode())
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
