"""Scores for people, as `heedful evaluate` and `heedful compare` print them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.errors import ConfigError, choose

if TYPE_CHECKING:
    from heedful.metrics import Difference, Interval
    from heedful.metrics.lengths import LengthRow, LengthTable

__all__ = ["Resamples", "Seed", "Test", "check_test", "measured", "scores_table", "versus"]

Test = Annotated[
    str, typer.Option(metavar="randomisation|bootstrap", help="What says whether two systems differ by chance.")
]
Resamples = Annotated[
    int, typer.Option(min=0, metavar="N", help="Resamples of the bootstrap, for the intervals; 0: no intervals.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="What is drawn follows from it.")]

WIDTHS = {"bleu": 6, "chrf": 6, "ter": 6, "exact": 8}
ENDS = (("95 % from", "low"), ("95 % to", "high"))


def check_test(test: str, resamples: int) -> None:
    """Refuse a test that cannot be done, before the work for it is done."""
    from heedful.metrics import TESTS

    if choose("test", test, TESTS) == "bootstrap" and not resamples:
        raise ConfigError("--test bootstrap needs --resamples; choose more than 0, or --test randomisation")


def scores_table(scores: LengthTable, spread: Mapping[str, Interval]) -> str:
    """Return scores by length, with the intervals of the last row under it."""
    lines = [f"{'source words':<12} {'pairs':>7} {_titles()}"]
    lines += [_row(row.label, row) for row in scores.rows]
    lines.append(_row("all", scores.total))
    for label, end in ENDS if spread else ():
        lines.append(_line(label, {name: getattr(one, end) for name, one in spread.items()}))
    return "\n".join(lines)


def versus(title: str, apart: Mapping[str, Difference], names: tuple[str, str]) -> str:
    """Return the scores of two systems by metric, the difference with its interval, and what that says in words.

    A system without a name has its scores elsewhere.
    """
    from heedful.metrics import METRICS

    lines = [f"{title:<20} {_titles()}"]
    for name, which in zip(names, ("first", "second"), strict=True):
        lines += [_line(name, {key: getattr(one, which) for key, one in apart.items()})] if name else []
    lines.append(_line("difference", {key: one.value for key, one in apart.items()}, "+"))
    for label, end in ENDS if all(one.interval for one in apart.values()) else ():
        lines.append(_line(label, {key: getattr(one.interval, end) for key, one in apart.items()}, "+"))
    return "\n".join([*lines, "", *(f"{METRICS[key].removesuffix(' %'):<7}{one}" for key, one in apart.items())])


def measured(signatures: Mapping[str, str], tested: str, resamples: int, seed: int) -> tuple[str, ...]:
    """Say how the scores were computed, in sacrebleu's words, and what was drawn; `tested`: the test, if there was one.

    With the defaults, every line has less than 80 columns.
    """
    from heedful.metrics import METRICS, TRIALS

    tests = {"randomisation": f"approximate randomisation, {TRIALS:,} trials", "bootstrap": "paired bootstrap"}
    return (
        *(f"{METRICS[name] + ':':<6}{text}" for name, text in signatures.items()),
        "all of NFC text; of TER, lower is better",
        *([f"intervals: bootstrap, {resamples:,} resamples, seed {seed}"] if resamples else []),
        *([f"p: {tests[tested]}, seed {seed}"] if tested else []),
    )


def _titles() -> str:
    from heedful.metrics import METRICS

    return " ".join(f"{METRICS[name]:>{wide}}" for name, wide in WIDTHS.items())


def _row(label: str, row: LengthRow) -> str:
    return f"{label:<12} {row.pairs:>7,} {_cells(row.plain())}"


def _line(label: str, values: Mapping[str, Any], sign: str = "") -> str:
    return f"{label:<20} {_cells(values, sign)}"


def _cells(values: Mapping[str, Any], sign: str = "") -> str:
    return " ".join(f"{values[name]:>{sign}{wide}.1f}" for name, wide in WIDTHS.items())
