"""What HTML reports are made of: the document with its style, sections that several share, word diffs, numbers.

A page is one file that needs no network, in light and dark colours.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from heedful.draw import chart
from heedful.draw import html as drawn
from heedful.draw.picture import FONTS, clean, number
from heedful.metrics import exact_match
from heedful.metrics.scores import LengthRow, LengthTable
from heedful.text.graphemes import boundary_after
from heedful.trace.trace import unspaced

# The browser loads nothing and runs nothing, whatever a sentence holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class AlignmentResult(NamedTuple):
    """Scores of a model's links against gold links, from 0 to 1, over how many pairs, and how links were read."""

    error_rate: float
    precision: float
    recall: float
    pairs: int
    rule: str


@dataclass(frozen=True)
class ModelResult:
    """One model of a comparison.

    The key `fixed` is for the model without attention. The curve holds, for each validation, the seconds of training
    (or its steps), BLEU and loss.
    """

    key: str
    title: str
    weights: int
    seconds: float
    steps: int
    curve: tuple[tuple[float, float, float], ...]
    scores: LengthTable
    folder: str
    alignment: AlignmentResult | None = None


def document(title: str, version: str, body: str, figures: bool = False) -> str:
    """Return a page with its style; the body has to be escaped already.

    With `figures` it includes the script that draws them, and may run only that.
    """
    style = files("heedful").joinpath("web/report/page.css").read_text(encoding="utf-8").replace("FONTS", FONTS)
    code = drawn.script(drawn.has_images(body))
    policy, style = (drawn.policy(code), style + drawn.style(drawn.has_images(body))) if figures else (POLICY, style)
    end = f"<script>{code}</script>\n" if figures else ""
    return drawn.document(clean(title), body + end, policy, style, version)


def facts(known: Sequence[tuple[str, str]]) -> str:
    """Return names and values as a definition list."""
    return f"<dl>{''.join(f'<dt>{clean(name)}</dt><dd>{clean(value)}</dd>' for name, value in known)}</dl>"


def figure_in_two_widths(wide: str, narrow: str, label: str) -> str:
    """Return a picture in two widths; the page shows the one that fits the screen."""
    shown = scroll(wide, label, "chart")
    return f'<figure><div class="on-wide">{shown}</div><div class="on-narrow">{narrow}</div></figure>'


def scroll(inside: str, label: str, kind: str = "") -> str:
    """Return a box that scrolls sideways, also by the keyboard."""
    kinds = f"scroll {kind}".strip()
    return f'<div class="{kinds}" tabindex="0" role="region" aria-label="{clean(label)}">{inside}</div>'


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
<p class="small">BLEU counts n-grams of one to four words that are in the reference.</p>
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
<p class="small">Precision is the share of the links that are gold links; recall is the share of the gold links that
are among the links. The alignment error rate combines both; 0 % is perfect.</p>"""


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


LANGUAGES = {"hi": "Hindi", "en": "English", "de": "German", "fr": "French", "zh": "Chinese", "ar": "Arabic"}
ONES = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class DiffPart(NamedTuple):
    """Consecutive words that are the `same` as in the reference, `extra`, or `missing`."""

    kind: str
    words: str


def diff(output: str, reference: str) -> list[DiffPart]:
    """Return the differences of a translation from its reference, in the order of the words.

    >>> [tuple(part) for part in diff("I see the cat", "I hear the cat now")]
    [('same', 'I'), ('extra', 'see'), ('missing', 'hear'), ('same', 'the cat'), ('missing', 'now')]
    """
    written, wanted = _words(output), _words(reference)
    parts = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, written, wanted, autojunk=False).get_opcodes():
        if tag == "equal":
            parts.append(DiffPart("same", " ".join(written[a:b])))
            continue
        if b > a:
            parts.append(DiffPart("extra", " ".join(written[a:b])))
        if d > c:
            parts.append(DiffPart("missing", " ".join(wanted[c:d])))
    return parts


def verdict(output: str, reference: str) -> str:
    """Return in words whether a translation equals its reference.

    >>> verdict("I see it", "I see it"), verdict("I it", "I see it")
    ('Exactly right', 'Not the reference: one word missing')
    """
    if exact_match(output, reference):
        return "Exactly right"
    parts = diff(output, reference)
    extra, missing = (sum(len(p.words.split()) for p in parts if p.kind == kind) for kind in ("extra", "missing"))
    errors = [f"{count(missing, 'word')} missing"] if missing else []
    errors += [f"{count(extra, 'word' if not missing else '')} too many".replace("  ", " ")] if extra else []
    return "Not the reference: " + ", ".join(errors)


class DiffWord(NamedTuple):
    """A word, or a character of a script without spaces; `glued` means that no space precedes it."""

    text: str
    glued: bool = False
    changed: bool = False


def diff_words(text: str) -> list[DiffWord]:
    """Return the words that a text is compared by.

    >>> [piece.text for piece in diff_words("I like 北京.")]
    ['I', 'like', '北', '京', '.']
    """
    words = []
    for word in unicodedata.normalize("NFC", text).split():
        start = at = 0
        while at < len(word):
            end = boundary_after(word, at + 1, at)
            if end == len(word) or unspaced(word[at]) or unspaced(word[end]):
                words.append(DiffWord(word[start:end], glued=start > 0))
                start = end
            at = end
    return words


def mark_differences(first: str, second: str) -> tuple[list[DiffWord], list[DiffWord]]:
    """Return the words of two texts; those that the other does not have at that place are `changed`.

    >>> sides = mark_differences("I see the cat", "I hear the cat now")
    >>> [[word.text for word in side if word.changed] for side in sides]
    [['see'], ['hear', 'now']]
    """
    sides = diff_words(first), diff_words(second)
    left, right = ([piece.text for piece in side] for side in sides)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            for side, begin, end in ((sides[0], a, b), (sides[1], c, d)):
                side[begin:end] = [piece._replace(changed=True) for piece in side[begin:end]]
    return sides


def _words(text: str) -> list[str]:
    return unicodedata.normalize("NFC", text).split()


def count(how_many: int, what: str) -> str:
    """Return a number of things; up to ten as a word.

    >>> count(1, "word"), count(2, "word"), count(12000, "pair")
    ('one word', 'two words', '12,000 pairs')
    """
    spelled = ONES[how_many] if 0 <= how_many < len(ONES) else f"{how_many:,}"
    return f"{spelled} {what}{'' if how_many == 1 or not what else 's'}".strip()


def percent(value: float) -> str:
    """Return a percentage.

    >>> percent(97.25), percent(100)
    ('97.2\\xa0%', '100\\xa0%')
    """
    return f"{number(value)}\u00a0%"


def tenth(value: float) -> str:
    """Return a percentage for a column: always one digit after the point.

    >>> tenth(97.25), tenth(100)
    ('97.2\\xa0%', '100.0\\xa0%')
    """
    return f"{value:.1f}\u00a0%"


def million(value: int) -> str:
    """Return a large number.

    >>> million(1234567), million(999)
    ('1.23\\xa0million', '999')
    """
    return f"{value / 1e6:.2f}\u00a0million" if value >= 1_000_000 else f"{value:,}"


def duration(seconds: float) -> str:
    """Return a time.

    >>> duration(134.2), duration(9.26)
    ('2\\xa0min 14\\xa0s', '9.3\\xa0s')
    """
    if seconds < 60:
        return f"{number(seconds)}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}\u00a0min {rest}\u00a0s"


def listed(items: Sequence[str]) -> str:
    """Return several as one.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
