"""What the demo found, in words and tables for a terminal of any width from 60 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from heedful.draw import heatmap
from heedful.evaluation.meaning import meaning
from heedful.evaluation.records import ExampleResult, RunReport
from heedful.metrics import exact_match

__all__ = ["summary"]


def summary(report: RunReport, out: Path, width: int = 80, ascii_only: bool = False) -> str:
    """Return the whole result as text."""
    parts = [
        *(_example(example, report, width, ascii_only) for example in report.examples),
        _table(report),
        *_alignments(report, width),
        _wrap(" ".join(meaning(report)), width),
        _files(report, out, width),
        "Try next:\n" + "\n".join(f"# {what}\n{command}" for what, command in report.next),
    ]
    return "\n\n".join(parts) + "\n"


def _example(example: ExampleResult, report: RunReport, width: int, ascii_only: bool) -> str:
    """Return a sentence, what each model made of it, and where one with attention looked."""
    titles = {model.key: model.title for model in report.models}
    indent = 2 + max(len("should be"), *(len(title) for title in titles.values())) + 2
    seen = "was in the training data" if example.seen else "was not in the training data"
    lines = [*textwrap.wrap(example.source, width), _wrap(f"({example.note}; it {seen})", width)]
    rows = [("should be", example.reference)]
    for key, text in example.outputs.items():
        rows.append((titles[key], f"{text}  [{'right' if exact_match(text, example.reference) else 'wrong'}]"))
    for name, text in rows:
        lines += textwrap.wrap(
            f"  {name:<{indent - 2}}{text}", width, subsequent_indent=" " * indent, break_long_words=False
        )
    looked = f"where {titles.get(example.traced, example.traced)} looked:"
    return "\n".join([*lines, "", looked, heatmap(example.trace, width=width, ascii_only=ascii_only)])


def _table(report: RunReport) -> str:
    """Return exact match and BLEU by source length, a pair of columns for each model."""
    wide = max(14, *(len(model.title) + 2 for model in report.models))
    head = f"{'':<20}" + "".join(f"{model.title:>{wide}}" for model in report.models)
    lines = ["On sentences that no model has seen, by source length:", "", head]
    lines.append(f"{'source words':<12} {'pairs':>7}" + "".join(f"{'exact %   BLEU':>{wide}}" for _ in report.models))
    tables = [model.scores for model in report.models]
    for i, row in enumerate([*tables[0].rows, tables[0].total]):
        label = "all" if i == len(tables[0].rows) else row.label
        cells = [[*table.rows, table.total][i] for table in tables]
        numbers = "".join(f"{f'{cell.exact:.1f}  {cell.bleu:5.1f}':>{wide}}" for cell in cells)
        lines.append(f"{label:<12} {row.pairs:>7,}{numbers}")
    return "\n".join(lines)


def _alignments(report: RunReport, width: int) -> Iterator[str]:
    for model in report.models:
        if found := model.alignment:
            yield _wrap(
                f"Alignment error rate of the {model.title} model against the gold links of {found.pairs:,} pairs: "
                f"{found.error_rate:.3f} (precision {found.precision:.2f}, recall {found.recall:.2f}; {found.rule}). "
                "0 would be all links found and no others.",
                width,
            )


def _files(report: RunReport, out: Path, width: int) -> str:
    lines = [f"Open {out / 'report.html'} in a browser: all of this with pictures, to show to somebody else."]
    lines += [f"{model.folder}: the {model.title} model, {model.weights:,} weights" for model in report.models]
    lines.append(f"It took {report.seconds:.0f} seconds" + (f" and {report.memory:,.0f} MB." if report.memory else "."))
    return "\n".join(_wrap(line, width) for line in lines)


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
