"""The interactive figure: one HTML document that carries its data and its drawing code, and asks for nothing.

A figure is its data as JSON and, for readers without a script, the static picture; the files in `heedful/web/figure`
draw it. Text from the data never becomes markup: it is JSON here, and text nodes there.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from importlib.resources import files
from typing import Any

from heedful.config import __version__
from heedful.draw import heads, svg
from heedful.draw.marks import FONTS, clean
from heedful.draw.pack import ROOM, plain
from heedful.draw.views import View
from heedful.errors import ConfigError, DataError
from heedful.trace import Trace
from heedful.trace.alarms import Alarm
from heedful.trace.alarms import alarms as find_alarms

__all__ = ["document", "figure", "page", "policy", "record", "script", "style"]

PARTS = (
    *("weights.js", "sides.js", "braid.js", "grid.js", "bottleneck.js"),
    *("controls.js", "renew.js", "view.js"),
)
Links = AbstractSet[tuple[int, int]]
STATIC = 2500  # cells: a larger picture is not worth its bytes to those who cannot use the other


def page(
    traces: Sequence[Trace],
    title: str = "",
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
) -> str:
    """Return traces of the same sentence, by one model or by several, as one HTML document.

    Its heading is `title`, or says where the model looked; below it stand the sentence and what was made of it.
    `names` are the models'. `alarms` are found in the weights unless they are given: one sequence for each trace.
    """
    drawn = figure(traces, view, names, alarms)
    named = clean(title or "Where the model looked")
    body = f"<h1>{named}</h1>\n{_texts(traces, names)}{drawn}<script>{script()}</script>\n"
    return document(named, body, policy(), style(), __version__, "heedful-page")


def document(title: str, body: str, rules: str, looks: str, version: str, kind: str = "") -> str:
    """Return a page that loads nothing; title and body have to be clean already.

    `rules` say what it may run, `looks` is its style, and `kind` the class of its body.
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<meta http-equiv="Content-Security-Policy" content="{rules}"/>
<meta name="generator" content="heedful {clean(version)}"/>
<title>{title}</title>
<style>{looks}</style>
</head>
<body{f' class="{kind}"' if kind else ""}>
{body}</body>
</html>
"""


def _texts(traces: Sequence[Trace], names: Sequence[str]) -> str:
    """Return the sentence, and what each model wrote; what several wrote alike stands once."""
    found = {(trace.source.text, "" if trace.inside else "source"): [""] for trace in traces}
    for i, trace in enumerate(traces):
        if not trace.inside:
            found.setdefault((trace.target.text, "translation"), []).append(names[i] if names else "")
    written = sum(kind == "translation" for _, kind in found)
    lines = []
    for (text, kind), whose in found.items():
        who = ", ".join(filter(None, whose)) if kind == "translation" and written > 1 else kind
        label = f'<span class="v-label">{clean(who)}</span> ' if who else ""
        paragraphs = "\n".join(map(clean, text.splitlines()))
        lines.append(f'<p class="v-text">{label}<bdi>{paragraphs}</bdi></p>\n')
    return "".join(lines)


def figure(
    traces: Sequence[Trace],
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
    gold: Sequence[Links] = (),
    room: int = ROOM,
) -> str:
    """Return the figure alone, for a page that has `style()` in its head and `script()` at its end.

    `gold` are links as (source word, target word), a set for each trace; their cells are outlined. `room` is how many
    bytes the weights may take: where it is scarce, small weights are left out, and that is said.
    """
    data = json.dumps(record(traces, view, names, alarms, gold, room), separators=(",", ":"))
    # In a script element only "<" can end it or open a comment; in JSON it can be written otherwise. So can all else
    # that XML does not take.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    still = "".join(
        _still(trace, links) for trace, links in zip(traces, gold or [frozenset()] * len(traces), strict=True)
    )
    return (
        f'<div class="heedful-view"><script type="application/json">{safe}</script>\n'
        f'<div class="v-still scroll">{still}</div></div>\n'
    )


def record(
    traces: Sequence[Trace],
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
    gold: Sequence[Links] = (),
    room: int = ROOM,
) -> dict[str, Any]:
    """Return what the script draws from, as JSON can hold it."""
    if not traces:
        raise DataError("there is no trace to draw")
    how = view if isinstance(view, View) else View(view)
    how.check(traces)
    given = {"names": names or traces, "lists of alarms": traces if alarms is None else alarms, "gold": gold or traces}
    for what, some in given.items():
        if len(some) != len(traces):
            raise ConfigError(f"there are {len(traces)} traces and {len(some)} {what}; give one for each")
    found = [find_alarms(trace) for trace in traces] if alarms is None else alarms
    made = [
        plain(trace, name, room // len(traces)) for trace, name in zip(traces, names or [""] * len(traces), strict=True)
    ]
    for i, one in enumerate(made):
        one["alarms"] = [alarm.plain() for alarm in found[i]]
        one["gold"] = sorted(gold[i]) if gold else []
        one["chosen"], one["why"] = _chosen(traces[i], how) if how.name == "heads" else (None, "")
    return {"view": how.name, "keep": how.share(traces[0]), "traces": made}


def _chosen(trace: Trace, how: View) -> tuple[int | None, str]:
    """Return the number of the head that is enlarged, counted over all layers from 0, and why it is this one."""
    if trace.weights is None:
        return None, ""
    one, why = heads.chosen(trace, how.layer, how.head)
    (row,), (column,) = trace.places(*one)
    return row * int(trace.weights.shape[1]) + column, why


def _still(trace: Trace, gold: Links) -> str:
    """Return what those see who have no script: the picture if it is small, and the texts if not."""
    if len(trace.source.words) * len(trace.target.words) <= STATIC:
        return svg.heatmap(trace, gold=frozenset(gold) or None, confidence=not trace.inside)
    return "".join(f'<p dir="auto">{clean(side.text)}</p>' for side in (trace.source, trace.target))


@functools.cache
def script() -> str:
    """Return the drawing code: `heedful.view(element, record)`, called for every figure of the page that has data."""
    code = "\n".join(_file(name) for name in PARTS)
    # The marks let a page be XML as well.
    return f'//<![CDATA[\n(() => {{\n"use strict";\n{code}}})();\n//]]>\n'


@functools.cache
def style() -> str:
    """Return how figures look, in light, in dark and on paper."""
    return _file("view.css").replace("FONTS", FONTS)


@functools.cache
def policy() -> str:
    """Return what the page may do: run this one script, and load nothing."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return files("heedful").joinpath("web/figure", name).read_text(encoding="utf-8")
