"""The parts of the page that hold the numbers: scores, learning, alignment, the run itself, and what to try next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heedful.draw import chart
from heedful.draw.marks import clean
from heedful.metrics.lengths import LengthRow
from heedful.report.meaning import contrast
from heedful.report.phrases import duration, listed, percent, tenth
from heedful.report.records import Model, Report

__all__ = ["alignment", "by_length", "cards", "facts", "learning", "links_table", "run", "scores", "scroll", "try_next"]


def cards(report: Report) -> str:
    """Return the main numbers of each model side by side."""
    found, made = contrast(report), []
    for i, model in enumerate(report.models):
        rows = {(row.low, row.high): row for row in model.scores.rows}
        row = rows.get((found.long[0].low, found.long[0].high)) if found else None
        of = f"the longest sentences ({row.label} words)" if row else "all test sentences"
        total = model.scores.total
        told = [("of all sentences", tenth(total.exact))] if row else []
        if model.key in report.unseen_exact:
            told.append(("up to 20 words", tenth(report.unseen_exact[model.key])))
        told.append(("BLEU", f"{total.bleu:.1f}"))
        if model.alignment:
            told.append(("alignment error rate", tenth(100 * model.alignment.error_rate)))
        made.append(
            f'<div class="card"><h3>{chart.swatch(i)}{clean(model.title)}</h3>'
            f'<p class="big">{tenth((row or total).exact)}</p><p class="small">of {of} exactly right</p>'
            f"{facts(told)}</div>"
        )
    return f'<div class="cards">{"".join(made)}</div>'


def scores(report: Report) -> str:
    """Return the figures by sentence length, and the table with all their numbers."""
    if not _lengths(report.models):
        return ""
    told = ""
    if report.unseen_exact:
        exact = [
            f"{clean(m.title)} {percent(report.unseen_exact[m.key])}"
            for m in report.models
            if m.key in report.unseen_exact
        ]
        many = f"the {report.unseen_pairs:,} " if report.unseen_pairs else "the "
        told = f"<p>Of {many}test sentences of up to 20 words, exactly right: {listed(exact)}.</p>"
    return by_length(report.models, told)


def by_length(models: Sequence[Model], told: str = "") -> str:
    """Return the section of scores by the length of the source; `told` stands below its table."""
    keys = _lengths(models)
    exact = _bars(models, "Exactly right, by sentence length", "per cent of the test sentences", lambda row: row.exact)
    bleu = _bars(models, "BLEU, by sentence length", "BLEU, from 0 to 100", lambda row: row.bleu)
    return f"""<section id="scores"><h2>By sentence length</h2>
{exact}
<p class="small">Exactly right means the same words as the reference, and no others. Lengths are those of the source, in
words.</p>
{bleu}
<p class="small">BLEU counts shared runs of up to four words, and so also sees what is nearly right.</p>
{_table(models, keys, told)}</section>"""


def learning(models: Sequence[Model], unit: str = "seconds of training") -> str:
    """Return the learning curves: BLEU and loss on held-out pairs against the seconds, or steps, of training."""
    models = [m for m in models if m.curve]
    if not models:
        return ""
    scored = [chart.Series(m.title, *_columns(m, 1)) for m in models]
    lost = [chart.Series(m.title, *_columns(m, 2)) for m in models]
    bleu = _lines(scored, "BLEU on held-out pairs", "BLEU", unit)
    loss = _lines(lost, "Loss on held-out pairs", "loss per token", unit)
    best = listed([f"{clean(m.title)} {max(point[1] for point in m.curve):.1f}" for m in models])
    return f"""<section id="learning"><h2>While they learned</h2>
<p>Each point is a validation on pairs that were held out from training. The best BLEU reached there: {best}.</p>
{bleu}
{loss}
<p class="small">The loss is how surprised a model is by each token of the right translation; lower is better.</p>
</section>"""


def alignment(report: Report) -> str:
    """Return how well the weights found the gold links, and what that means; nothing if nobody looked."""
    models = [m for m in report.models if m.alignment]
    if not models:
        return ""
    who = "it" if len(models) == 1 else "they"
    return f"""<section id="alignment"><h2>Did {who} look at the right words?</h2>
<p>Nobody told a model which word comes from which: it only ever saw whole sentences. The corpus knows, though. Its
gold links say for each word where it comes from, and the links read from the weights are held against them.</p>
{links_table(models)}</section>"""


def links_table(models: Sequence[Model]) -> str:
    """Return how well the links read from the weights agree with gold links, and what the numbers mean."""
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
that were found. The alignment error rate takes both together: at 0 % none is missing and none is too many, at 100 %
none is right.</p>"""


def run(report: Report) -> str:
    """Return how the run was made: corpus, models, settings and machine."""
    corpus, machine = report.corpus, report.machine
    known = [
        ("learned from", f"{corpus.pairs:,} sentence pairs, the longest of {corpus.longest} words"),
        ("tested on", f"{corpus.test_pairs:,} sentence pairs"),
        ("different words", f"{corpus.source_words:,} in the source, {corpus.target_words:,} in the target"),
        ("seed", str(corpus.seed)),
    ]
    for model in report.models:
        told = f"{model.weights:,} weights, {model.steps:,} steps in {duration(model.seconds)}"
        known.append((model.title, f"{told}, kept in {model.folder}"))
    known += report.settings
    known += [
        ("time in all", duration(report.seconds)),
        *([("memory at most", f"{report.memory:,.0f} MB")] if report.memory else []),
        ("machine", f"{machine.cpus} processor core{'' if machine.cpus == 1 else 's'}"),
        ("software", f"heedful {machine.heedful}, PyTorch {machine.torch}, Python {machine.python}"),
        ("date", machine.date),
    ]
    return f"""<section id="run" class="facts"><h2>How the run was made</h2>
{facts(known)}</section>"""


def try_next(report: Report) -> str:
    """Return what to try next, each with its command; nothing if there is nothing."""
    if not report.next:
        return ""
    steps = ""
    for what, command in report.next:
        lines = "\n".join(clean(line) for line in command.split("\n"))
        steps += f'<p>{clean(what)}</p>\n<pre tabindex="0">{lines}</pre>\n'
    return f'<section id="next" class="try"><h2>What to try next</h2>\n{steps}</section>'


def _lengths(models: Sequence[Model]) -> list[tuple[int, int | None]]:
    """Return the lengths for which all models have scores, in their order."""
    found = [[(row.low, row.high) for row in m.scores.rows] for m in models]
    return [key for key in found[0] if all(key in other for other in found)] if found else []


def _bars(models: Sequence[Model], title: str, label: str, of: Callable[[LengthRow], float]) -> str:
    keys = _lengths(models)
    rows = [{(row.low, row.high): row for row in m.scores.rows} for m in models]
    groups = [rows[0][key].label for key in keys]
    series = [(m.title, [of(mine[key]) for key in keys]) for m, mine in zip(models, rows, strict=True)]
    return _figure(chart.bars(groups, series, title, label), chart.rows(groups, series, title, label), title)


def _lines(series: Sequence[chart.Series], title: str, label: str, unit: str) -> str:
    """Return a chart of lines over the training; the loss, which falls by ratios, on a logarithmic scale."""
    log = label.startswith("loss") and all(y > 0 for one in series for y in one.y)
    label += ", logarithmic scale" if log else ""
    wide, narrow = (chart.lines(series, title, unit, label, log, width) for width in (chart.WIDTH, chart.NARROW))
    return _figure(wide, narrow, title)


def _table(models: Sequence[Model], keys: Sequence[tuple[int, int | None]], told: str) -> str:
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
    return f'{scroll(table, "All scores")}{told}<p class="small">Scores by sacrebleu: {made}</p>'


def _cells(rows: Sequence[LengthRow]) -> str:
    return "".join(
        f'<td class="first">{row.exact:.1f}</td><td>{row.bleu:.1f}</td><td>{row.chrf:.1f}</td>' for row in rows
    )


def _columns(model: Model, which: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(point[0] for point in model.curve), tuple(point[which] for point in model.curve)


def facts(known: Sequence[tuple[str, str]]) -> str:
    """Return names and what is known of them as a list."""
    return f"<dl>{''.join(f'<dt>{clean(name)}</dt><dd>{clean(value)}</dd>' for name, value in known)}</dl>"


def _figure(wide: str, narrow: str, label: str) -> str:
    """Return a picture in two shapes: the page shows the one that fits the screen."""
    shown = scroll(wide, label, "chart")
    return f'<figure><div class="on-wide">{shown}</div><div class="on-narrow">{narrow}</div></figure>'


def scroll(inside: str, label: str, kind: str = "") -> str:
    """Return a box that scrolls sideways by itself, also by the keyboard."""
    kinds = f"scroll {kind}".strip()
    return f'<div class="{kinds}" tabindex="0" role="region" aria-label="{clean(label)}">{inside}</div>'
