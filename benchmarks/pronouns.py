"""Where `it` looks: `heedful demo pronouns` with several seeds, and the median of its scores.

python benchmarks/pronouns.py [--out DIR] [--seeds 1 2 3] [--steps N] [--set SECTION.KEY=VALUE]

Each seed makes another corpus, other first weights and another order of the batches. The head is selected on
validation sentences and measured on test sentences, which have other combinations of words.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from heedful.cli.demo import LoggedLeaderboard
from heedful.demo.pronouns import PRONOUNS, PRONOUNS_FAST, PronounReport, run_pronouns

COLUMNS = ("antecedent", "nouns", "pronoun", "exact")


def table(reports: Sequence[PronounReport]) -> list[str]:
    """Return the scores of all runs in lines, and their medians: with all heads, without the best, without another."""
    lines = [f"{'':24}" + "".join(f"{name:>12}" for name in COLUMNS)]
    for i, kind in enumerate(("all heads", "without that head", "without another")):
        for report in reports:
            one = report.scores[i]
            name = f"seed {report.seed}, {kind}" if i else f"seed {report.seed}, {one.head}"
            lines.append(f"{name:24}" + "".join(f"{getattr(one, column):12.1f}" for column in COLUMNS))
        middle = (median(getattr(report.scores[i], column) for report in reports) for column in COLUMNS)
        lines.append(f"{'median, ' + kind:24}" + "".join(f"{value:12.1f}" for value in middle))
    for name, values in (
        ("nearest noun", [report.nearest[0] for report in reports]),
        ("decoder to the noun", [report.decoder[0] for report in reports]),
        ("decoder to `it`", [report.decoder[1] for report in reports]),
        ("seconds", [report.seconds for report in reports]),
    ):
        lines.append(f"{name}: {', '.join(f'{value:.1f}' for value in values)}; median {median(values):.1f}")
    return lines


def main() -> None:
    """Train, measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--out", type=Path, default=Path("runs/pronouns"), help="folder for the demos")
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--steps", type=int, help="steps of training instead of the demo's")
    options.add_argument("--fast", action="store_true", help="the fast demo")
    options.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = options.parse_args()
    plan = PRONOUNS_FAST if args.fast else PRONOUNS
    (model,) = plan.models
    plan = replace(
        plan, settings=(*plan.settings, *args.settings), models=(model._replace(steps=args.steps or model.steps),)
    )
    args.out.mkdir(parents=True, exist_ok=True)
    reports = [run_pronouns(plan, args.out / str(seed), seed, LoggedLeaderboard()) for seed in args.seeds]
    print("\n".join(table(reports)))


if __name__ == "__main__":
    main()
