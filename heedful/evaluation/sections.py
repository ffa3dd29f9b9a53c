"""Sections that several pages share: scores by length, learning curves, links, marked translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heedful.draw import chart
from heedful.draw.picture import clean
from heedful.evaluation.page import figure_in_two_widths, scroll
from heedful.evaluation.phrases import diff, listed, tenth
from heedful.evaluation.records import ModelResult
from heedful.metrics.scores import LengthRow

__all__ = ["ROOM", "by_length", "learning", "lengths", "links_table", "marked"]

ROOM = 30_000  # bytes for the weights of a figure: a page has many
TAGS = {"same": "", "extra": "mark", "missing": "del"}


def by_length(models: Sequence[ModelResult], note: str = "") -> str:
    """Return the section of scores by source length; `note` is put below its table."""
    keys = lengths(models)
    exact = _bars(models, "Exactly right, by sentence length", "per cent of the test sentences", lambda row: row.exact)
    bleu = _bars(models, "BLEU, by sentence length", "BLEU, from 0 to 100", lambda row: row.bleu)
    return f"""<section id="scores"><h2>By sentence length</h2>
{exact}
<p class="small">Exactly right means the same words as the reference, and no others. Lengths are those of the source, in
words.</p>
{bleu}
<p class="small">BLEU counts shared sequences of up to four words: nearly right counts, too.</p>
{_table(models, keys, note)}</section>"""


def learning(models: Sequence[ModelResult], unit: str = "seconds of training") -> str:
    """Return the learning curves: BLEU and loss on held-out pairs against the seconds, or steps, of training."""
    models = [m for m in models if m.curve]
    if not models:
        return ""
    scored = [chart.Series(m.title, *_columns(m, 1)) for m in models]
    lost = [chart.Series(m.title, *_columns(m, 2)) for m in models]
    bleu = _lines(scored, "BLEU on held-out pairs", "BLEU", unit)
    loss = _lines(lost, "Loss on held-out pairs", "loss per token", unit)
    best = listed([f"{clean(m.title)} {max(point[1] for point in m.curve):.1f}" for m in models])
    return f"""<section id="learning"><h2>Learning curves</h2>
<p>Each point is a validation on pairs that were held out from training. The best BLEU reached there: {best}.</p>
{bleu}
{loss}
<p class="small">The loss is the mean negative log-probability of the tokens of the reference; lower is better.</p>
</section>"""


def links_table(models: Sequence[ModelResult]) -> str:
    """Return the scores of links against gold links as a table, and what the numbers mean."""
    rows = "".join(
        f"<tr><td>{clean(m.title)}</td><td>{tenth(100 * a.error_rate)}</td><td>{tenth(100 * a.precision)}</td>"
        f'<td>{tenth(100 * a.recall)}</td><td>{a.pairs:,}</td><td class="text">{clean(a.rule)}</td></tr>'
        for m in models
        if (a := m.alignment)
    )
    names = "".join(f"<th>{name}</th>" for name in ("model", "error rate", "precision", "recall", "pairs"))
    head = f'<tr>{names}<th class="text">how links were read</th></tr>'
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return f"""{scroll(table, "Alignment error rate")}
<p class="small">Precision is the share of the links found that are gold links; recall is the share of the gold links
that were found. The alignment error rate combines both: at 0 % none is missing and none is wrong, at 100 % none is
right.</p>"""


def lengths(models: Sequence[ModelResult]) -> list[tuple[int, int | None]]:
    """Return the lengths for which all models have scores, in their order."""
    keys = [[(row.low, row.high) for row in m.scores.rows] for m in models]
    return [key for key in keys[0] if all(key in other for other in keys)] if keys else []


def _bars(models: Sequence[ModelResult], title: str, label: str, of: Callable[[LengthRow], float]) -> str:
    keys = lengths(models)
    rows = [{(row.low, row.high): row for row in m.scores.rows} for m in models]
    groups = [rows[0][key].label for key in keys]
    series = [(m.title, [of(mine[key]) for key in keys]) for m, mine in zip(models, rows, strict=True)]
    return figure_in_two_widths(
        chart.bars(groups, series, title, label), chart.rows(groups, series, title, label), title
    )


def _lines(series: Sequence[chart.Series], title: str, label: str, unit: str) -> str:
    """Return a chart of lines over the training; the loss, which falls by ratios, on a logarithmic scale."""
    log = label.startswith("loss") and all(y > 0 for one in series for y in one.y)
    label += ", logarithmic scale" if log else ""
    wide, narrow = (chart.lines(series, title, unit, label, log, width) for width in (chart.WIDTH, chart.NARROW))
    return figure_in_two_widths(wide, narrow, title)


def _table(models: Sequence[ModelResult], keys: Sequence[tuple[int, int | None]], note: str) -> str:
    """Return all scores: a row to a length, three columns to a model."""
    rows = [{(row.low, row.high): row for row in m.scores.rows} for m in models]
    body = "".join(
        f"<tr><th>{rows[0][key].label}</th><td>{rows[0][key].pairs:,}</td>{_cells([mine[key] for mine in rows])}</tr>"
        for key in keys
    )
    totals = [m.scores.total for m in models]
    names = "".join(f'<th class="first" colspan="3">{clean(m.title)}</th>' for m in models)
    heads = '<th class="first">exact %</th><th>BLEU</th><th>chrF</th>' * len(models)
    signatures = sorted({s for m in models for s in (m.scores.bleu_signature, m.scores.chrf_signature)})
    table = (
        f"<table><caption>All scores by the length of the source</caption><thead><tr><th></th><th></th>{names}</tr>"
        f"<tr><th>words</th><th>sentences</th>{heads}</tr></thead><tbody>{body}</tbody>"
        f"<tfoot><tr><th>all</th><td>{totals[0].pairs:,}</td>{_cells(totals)}</tr></tfoot></table>"
    )
    made = " · ".join(f"<code>{clean(s)}</code>" for s in signatures)
    return f'{scroll(table, "All scores")}{note}<p class="small">Scores by sacrebleu: {made}</p>'


def _cells(rows: Sequence[LengthRow]) -> str:
    return "".join(
        f'<td class="first">{row.exact:.1f}</td><td>{row.bleu:.1f}</td><td>{row.chrf:.1f}</td>' for row in rows
    )


def _columns(model: ModelResult, which: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(point[0] for point in model.curve), tuple(point[which] for point in model.curve)


def marked(output: str, reference: str) -> str:
    """Return a translation with its extra words and the missing ones marked."""
    if not output.split():
        return '<em class="soft">nothing</em>'
    parts = []
    for kind, words in diff(output, reference):
        tag = TAGS[kind]
        parts.append(f"<{tag}>{clean(words)}</{tag}>" if tag else clean(words))
    return " ".join(parts)
