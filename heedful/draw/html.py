"""Interactive figures: HTML documents with their data and drawing code, which load nothing.

A figure is its data as JSON and, for readers without scripts, the static picture; the scripts in `heedful/web/figure`
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

from heedful.draw import heads, regions, svg
from heedful.draw.picture import FONTS, clean, labels_of
from heedful.draw.trace_codec import MAX_BYTES, encode_trace
from heedful.draw.views import View
from heedful.errors import ConfigError, DataError, __version__
from heedful.trace import Trace
from heedful.trace.alarms import Alarm
from heedful.trace.alarms import alarms as find_alarms
from heedful.trace.trace import sinks_apart

SCRIPTS = ("weights", "words", "braid", "heatmap", "bottleneck", "controls", "figure")
Links = AbstractSet[tuple[int, int]]
STATIC = 2500  # cells of the largest static picture in a page


def page(
    traces: Sequence[Trace],
    title: str = "",
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
) -> str:
    """Return traces of the same sentence, by one model or by several, as one HTML document.

    Its heading is `title`, or the caption of an image; below it are the sentence and its translations, or the name of
    the image. `names` are those of the models. `alarms`
    are read from the weights by default: one sequence for each trace.
    """
    drawn = figure(traces, view, names, alarms)
    heading = clean(title or _heading(traces))
    code, css = script(has_images(drawn)), style(has_images(drawn))
    body = f"<h1>{heading}</h1>\n{_texts(traces, names)}{drawn}<script>{code}</script>\n"
    return document(heading, body, policy(code), css, __version__, "heedful-page")


def document(title: str, body: str, rules: str, css: str, version: str, kind: str = "") -> str:
    """Return a page that loads nothing; title and body have to be escaped already.

    `rules` is its content security policy, `css` its style, and `kind` the class of its body.
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
<style>{css}</style>
</head>
<body{f' class="{kind}"' if kind else ""}>
{body}</body>
</html>
"""


def _heading(traces: Sequence[Trace]) -> str:
    """Return the heading of a page without a title: the caption of an image, if there is one that all models write."""
    captions = {trace.target.text for trace in traces if trace.image is not None}
    if not captions:
        return labels_of(traces[0]).title
    return captions.pop() or "An empty caption" if len(captions) == 1 else f"{len(traces)} captions of an image"


def _texts(traces: Sequence[Trace], names: Sequence[str]) -> str:
    """Return the sentence and the translations, or the names of images; equal ones once.

    Captions of images are in their figure.
    """
    writers: dict[tuple[str, str], list[str]] = {}
    for i, trace in enumerate(traces):
        if trace.image is not None:
            writers[trace.image.name, "image"] = []
            continue
        writers[trace.source.text, "" if trace.inside else "source"] = []
        if not trace.inside:
            writers.setdefault((trace.target.text, "translation"), []).append(names[i] if names else "")
    translations = sum(kind == "translation" for _, kind in writers)
    lines = []
    for (text, kind), models in sorted(writers.items(), key=lambda item: item[0][1] == "translation"):
        name = ", ".join(filter(None, models)) if kind == "translation" and translations > 1 else kind
        label = f'<span class="v-label">{clean(name)}</span> ' if name else ""
        paragraphs = "\n".join(map(clean, text.splitlines()))
        lines.append(f'<p class="v-text">{label}<bdi>{paragraphs}</bdi></p>\n')
    return "".join(lines)


def figure(
    traces: Sequence[Trace],
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
    gold: Sequence[Links] = (),
    max_bytes: int = MAX_BYTES,
) -> str:
    """Return the figure alone, for a page that has `style` in its head and `script` at its end.

    `gold` are links as (source word, target word), a set for each trace; their cells are outlined. To keep weights and
    words within `max_bytes`, small weights are left out, with a note.
    """
    if not any(gold):  # which count the words of the whole source
        how = view if isinstance(view, View) else View(view)
        if how.of(traces).name in ("heatmap", "braid"):
            traces, alarms = _apart(traces, how.sinks, alarms)
    data = json.dumps(record(traces, view, names, alarms, gold, max_bytes), separators=(",", ":"))
    # "<" could end the script element or open a comment, and XML allows none of the three.
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    links = gold or [frozenset()] * len(traces)
    smooth = isinstance(view, View) and view.smooth
    static = regions.embedded_once("".join(_static(trace, of, smooth) for trace, of in zip(traces, links, strict=True)))
    return (
        f'<div class="heedful-view"><script type="application/json">{safe}</script>\n'
        f'<div class="v-static scroll">{static}</div></div>\n'
    )


def _apart(
    traces: Sequence[Trace], sinks: str | None, alarms: Sequence[Sequence[Alarm]] | None
) -> tuple[list[Trace], Sequence[Sequence[Alarm]] | None]:
    """Return traces with their sinks set apart, and the alarms of all of their weights, if any has sinks."""
    apart = [sinks_apart(trace, sinks) for trace in traces]
    if all(one is trace for one, trace in zip(apart, traces, strict=True)):
        return list(traces), alarms
    return apart, [find_alarms(trace) for trace in traces] if alarms is None else alarms


def record(
    traces: Sequence[Trace],
    view: str | View = "braid",
    names: Sequence[str] = (),
    alarms: Sequence[Sequence[Alarm]] | None = None,
    gold: Sequence[Links] = (),
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Return the data of a figure as JSON can hold it."""
    if not traces:
        raise DataError("there is no trace to draw")
    how = (view if isinstance(view, View) else View(view)).of(traces)
    how.check(traces)
    count = len(traces)
    lengths = {
        "names": len(names or traces),
        "lists of alarms": len(traces if alarms is None else alarms),
        "gold": len(gold or traces),
    }
    for what, length in lengths.items():
        if length != count:
            raise ConfigError(f"there are {count} traces and {length} {what}; give one for each")
    records = []
    for i, trace in enumerate(traces):
        chosen, why = _chosen(trace, how) if how.name == "heads" else (None, "")
        shown = find_alarms(trace) if alarms is None else alarms[i]
        records.append(
            {
                **encode_trace(trace, names[i] if names else "", max_bytes // count),
                "alarms": [alarm.plain() for alarm in shown],
                "gold": sorted(gold[i]) if gold else [],
                "chosen": chosen,
                "why": why,
            }
        )
    smooth = {"smooth": how.smooth} if how.name == "regions" else {}
    return {"view": how.name, "keep": how.share(traces[0]), **smooth, "traces": records}


def _chosen(trace: Trace, how: View) -> tuple[int | None, str]:
    """Return the index of the enlarged head among all heads of all layers, and the reason."""
    if trace.weights is None:
        return None, ""
    one, why = heads.choose_head(trace, how.layer, how.head)
    (row,), (column,) = trace.places(*one)
    return row * int(trace.weights.shape[1]) + column, why


def _static(trace: Trace, gold: Links, smooth: bool = False) -> str:
    """Return the content for readers without scripts: the picture if it is small, or else the texts."""
    if trace.image is not None:  # which the script takes from here
        return str(regions.picture(trace, smooth=smooth, most=regions.ACROSS_IN_PAGE))
    if len(trace.source.words) * len(trace.target.words) <= STATIC:
        return svg.heatmap(trace, gold=frozenset(gold) or None, confidence=not trace.inside)
    return "".join(f'<p dir="auto">{clean(side.text)}</p>' for side in (trace.source, trace.target))


def has_images(body: str) -> bool:
    """Return whether a page has figures of captions of images, for `script` and `style`."""
    return '"image":{' in body


@functools.cache
def script(images: bool = False) -> str:
    """Return the drawing code: `heedful.view(element, record)`, called for every figure of the page.

    With `images` it draws captions of images, too.
    """
    code = "\n".join(web_file("figure", f"{name}.js") for name in (*SCRIPTS, *(["regions"] if images else ())))
    # With CDATA, a page is valid XML too.
    return f'//<![CDATA[\n(() => {{\n"use strict";\n{code}}})();\n//]]>\n'


@functools.cache
def style(images: bool = False) -> str:
    """Return the style sheet of figures, for light, dark and print; with `images` those of captions, too."""
    names = ("figure", "regions") if images else ("figure",)
    return "".join(web_file("figure", f"{name}.css") for name in names).replace("FONTS", FONTS)


@functools.cache
def policy(code: str | None = None) -> str:
    """Return the content security policy of a page: only its script, `code`, may run, and nothing is loaded.

    Pictures are part of the page.
    """
    digest = base64.b64encode(hashlib.sha256((code or script()).encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def web_file(folder: str, name: str) -> str:
    """Return a script or a style sheet of `heedful/web`."""
    return files("heedful").joinpath("web", folder, name).read_text(encoding="utf-8")
