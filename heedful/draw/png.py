"""A picture as PNG, without a browser: our SVG, drawn by resvg, which shapes every script."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

from heedful.draw.fonts import Face, Fonts
from heedful.draw.marks import DARK, DARK_RIBBONS, LIGHT, LIGHT_RIBBONS, NAMES, RIBBONS
from heedful.draw.runs import Run, runs
from heedful.errors import DataError, HeedfulError, foreign, install_command

__all__ = ["render"]

ZOOM = 2.0  # dots to a unit: sharp on today's screens and in print
MOST = 16_000  # dots across or down, as far as viewers go
PIXELS = 64_000_000  # dots in all: resvg takes about eight bytes for each
SMALLEST = 0.25  # dots to a unit: below that no word can be read
GROUNDS = {"light": "#ffffff", "dark": "#14161a"}  # what pages of ours have
TEXT = re.compile(r"(<text\b[^>]*>)([^<]*)</text>")
TURN, TURN_BACK = "\u202e", "\u202c"
MOVES = {"r": -1.0, "m": -0.5, "n": -0.5}  # classes of texts that do not begin at their place: by which part of a width
FILTERS = "".join(
    f'<filter id="h-move-{name}" primitiveUnits="objectBoundingBox" color-interpolation-filters="sRGB" '
    f'x="-2" y="-2" width="5" height="5"><feOffset dx="{part}" dy="0"/></filter>'
    for name, part in MOVES.items()
)


def render(svg: str, font: Path | None = None, dark: bool = False, pixels: int = PIXELS) -> bytes:
    """Return a picture of ours, an SVG document, as the bytes of a PNG file, in light colours or in dark ones.

    Each character is written in a font of the system that has it, or in `font` where it has it. The picture has at most
    `pixels`: a larger one is drawn smaller, and refused where nothing could be read any more.
    """
    try:
        import resvg_py
    except ImportError:
        raise HeedfulError(f"pictures as .png need more: {install_command('png')}") from None
    zoom = _zoom(svg, pixels)
    fonts = Fonts(font)
    shown = "".join(html.unescape(text) for _, text in TEXT.findall(svg))
    faces, plain = fonts.choose(shown), fonts.plain()
    if plain is None:
        raise DataError("no font found; install one (on Debian: fonts-noto-core), or name a file with --font")
    files = list(dict.fromkeys(str(face.path) for face in (plain, *faces.values())))
    heavy = [file.replace("Regular", "Bold") for file in files]  # of headings
    files += [file for file in heavy if file not in files and Path(file).is_file()]
    ready = TEXT.sub(lambda m: _in_runs(m[1], html.unescape(m[2]), faces, plain), _coloured(svg, dark))
    ready = ready.replace("</style>", f"</style><defs>{FILTERS}</defs>", 1)
    with foreign("the picture cannot be drawn", DataError):
        return bytes(
            resvg_py.svg_to_bytes(
                svg_string=ready,
                background=GROUNDS["dark" if dark else "light"],
                zoom=zoom,
                skip_system_fonts=True,
                font_files=files,
                sans_serif_family=plain.family,
            )
        )


def _zoom(svg: str, pixels: int) -> float:
    """Return how many dots a unit of a picture has."""
    wide, high = (float(n) for n in re.findall(r' (?:width|height)="([\d.]+)"', svg[: svg.index(">")]))
    zoom = min(ZOOM, MOST / max(wide, high), math.sqrt(pixels / (wide * high)))
    if zoom < SMALLEST:
        raise DataError(
            f"a picture of {wide:,.0f} × {high:,.0f} units is too large for PNG: with {pixels / 1e6:,.0f} million dots "
            "nothing could be read; write .svg or .html, or take fewer words"
        )
    return zoom


def _coloured(svg: str, dark: bool) -> str:
    """Return the picture with its colours put in: resvg knows neither variables nor the viewer's wishes."""
    start, end = svg.index("<style>"), svg.index("</style>")
    style = re.sub(r"@media[^{]*\{[^{}]*\{[^{}]*\}\}", "", svg[start:end])
    colours = (*DARK, *DARK_RIBBONS) if dark else (*LIGHT, *LIGHT_RIBBONS)
    for name, colour in zip((*NAMES, *RIBBONS), colours, strict=True):
        style = style.replace(f"var(--h-{name})", colour)
    style = re.sub(r"--h-\w+:[^;}]*;?", "", style)
    style = re.sub(r"font-family:[^;}]*", "font-family:sans-serif", style)  # which is the plain one
    return svg[:start] + style + svg[end:]


def _in_runs(start: str, text: str, faces: dict[str, Face], plain: Face) -> str:
    """Return a text, after the tag that starts it, with its runs one after the other, each shaped by itself.

    resvg shapes at once what has one place, with the script of its first letter. A run that is given its height is a
    place of its own, and goes on where the one before it ended. What is written from right to left is told so.
    """
    found = runs(text, faces, plain)
    if all(run.face == plain and not run.turned for run in found) and len({run.script for run in found} - {""}) < 2:
        return start + html.escape(text) + "</text>"
    height = re.search(r' y="([^"]*)"', start)
    place = f' y="{height[1] if height else 0}"' if len(found) > 1 else ""
    parts = [
        f'<tspan font-family="{_quoted(run.face.family)}"{place}>{html.escape(_turned(run))}</tspan>' for run in found
    ]
    return (_moved(start) if place else start) + "".join(parts) + "</text>"


def _quoted(family: str) -> str:
    """Return the name of a family as resvg reads it, whatever signs it has: between quotes, and it knows no escapes."""
    quote = '"' if "'" in family else "'"
    return html.escape(f"{quote}{family}{quote}")


def _turned(run: Run) -> str:
    """Return the text of a run; one from right to left is told so, with the spaces of its end at its left."""
    if not run.turned:
        return run.text
    text = run.text.strip()
    before = run.text[: len(run.text) - len(run.text.lstrip())]
    after = run.text[len(run.text.rstrip()) :]
    return f"{after}{TURN}{text}{TURN_BACK}{before}" if text else run.text


def _moved(start: str) -> str:
    """Return the tag of a text of several runs: one that ends at its place, or has it in the middle, is moved there.

    resvg would move each run by its own width. So they begin at the place, and a filter moves all by that of all.
    """
    classes = re.search(r'class="([^"]*)"', start)
    move = next((name for name in (classes[1].split() if classes else ()) if name in MOVES), None)
    return f'{start[:-1]} style="text-anchor:start" filter="url(#h-move-{move})">' if move else start
