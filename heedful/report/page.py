"""The page: one HTML document that carries all it shows, and opens with what it means."""

from __future__ import annotations

import re

from heedful.draw import html as drawn
from heedful.draw.marks import clean
from heedful.report.meaning import meaning, setting
from heedful.report.phrases import duration
from heedful.report.records import Report
from heedful.report.sections import alignment, cards, learning, run, scores, try_next
from heedful.report.sentences import sentences
from heedful.report.style import STYLE

__all__ = ["document", "html"]

# Whatever a sentence holds, the browser loads nothing and runs nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html(report: Report) -> str:
    """Return the report as one HTML document that is well-formed XML too, and needs no other file."""
    sections = [
        ("scores", "Scores", scores(report)),
        ("sentences", "Sentences", sentences(report)),
        ("learning", "Learning", learning(report.models)),
        ("alignment", "Alignment", alignment(report)),
        ("run", "The run", run(report)),
        ("next", "Next", try_next(report)),
    ]
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, text in sections if text)
    lead = "".join(f"<p>{_strong(text)}</p>\n" for text in meaning(report))
    body = "\n".join(text for _, _, text in sections)
    machine = report.machine
    return document(
        report.title,
        machine.heedful,
        f"""<header>
<h1>{clean(report.title)}</h1>
<div class="lead">
{lead}<p class="small">{clean(setting(report))}</p>
</div>
</header>
<main>
{cards(report)}
<nav aria-label="Contents"><ul>{links}</ul></nav>
{body}
</main>
<footer><p class="small">Made by heedful {clean(machine.heedful)} in {duration(report.seconds)}, {clean(machine.date)}.
All numbers on this page come from this run.</p></footer>
""",
        figures=any(example.trace.weights is not None for example in report.examples),
    )


def document(title: str, version: str, body: str, figures: bool = False) -> str:
    """Return a page that carries its style and loads nothing; the body has to be clean already.

    With `figures` it carries the script that draws them, and may run that one alone.
    """
    policy, style = (drawn.policy(), STYLE + drawn.style()) if figures else (POLICY, STYLE)
    end = f"<script>{drawn.script()}</script>\n" if figures else ""
    return drawn.document(clean(title), body + end, policy, style, version)


def _strong(text: str) -> str:
    """Return a text with its percentages in bold, and its lengths kept on one line."""
    text = re.sub(r"[0-9.]+\u00a0%", r"<strong>\g<0></strong>", clean(text))
    return re.sub(r"[0-9]+(–[0-9]+|\+) words", r'<span class="keep">\g<0></span>', text)
