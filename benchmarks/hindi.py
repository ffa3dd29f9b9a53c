"""How good the demo's models get in ten minutes on two cores: exact match, BLEU by length, alignment error rate.

python benchmarks/hindi.py [--out DIR]

The comparison of `heedful demo` between the fixed context and the attention, with more sentences and longer training.
The last lines say which of the numbers that this project wants are reached.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from heedful.cli.demo import LoggedLeaderboard
from heedful.demo import FULL, run
from heedful.evaluation.run_report import RunReport, summary

STEPS = {"fixed": 8_000, "attention": 4_700}
PLAN = replace(
    FULL,
    pairs=100_000,
    test=3_000,
    models=tuple(c._replace(steps=STEPS[c.key]) for c in FULL.models if c.key in STEPS),
)


def reached(report: RunReport) -> list[str]:
    """Return each wanted number with what was found."""
    long = {m.key: next(r for r in m.scores.rows if r.low == 31) for m in report.models}
    gap = long["attention"].bleu - long["fixed"].bleu
    rates = {m.key: m.alignment.error_rate for m in report.models if m.alignment}
    checks = [
        ("attention, up to 20 words, exact % >= 90", report.unseen_exact["attention"], 90.0, 1),
        ("attention, 31-40 words, exact % >= 50", long["attention"].exact, 50.0, 1),
        ("fixed context, 31-40 words, exact % <= 10", long["fixed"].exact, 10.0, -1),
        ("BLEU between them on 31-40 words >= 20", gap, 20.0, 1),
        ("attention, alignment error rate <= 0.20", rates.get("attention", 1.0), 0.20, -1),
        ("seconds <= 600", report.seconds, 600.0, -1),
    ]
    sizes = "weights: " + ", ".join(f"{m.title} {m.weights:,}" for m in report.models)
    lines = [
        f"{'yes' if sign * found >= sign * mark else 'NO ':<4} {what}: {found:.3f}"
        for what, found, mark, sign in checks
    ]
    return [*lines, sizes]


def main() -> None:
    """Run the comparison and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/hindi"), help="folder for the models and the report")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    report = run(PLAN, given.out, given.seed, LoggedLeaderboard())
    print(summary(report, given.out))
    print("\n".join(reached(report)))


if __name__ == "__main__":
    main()
