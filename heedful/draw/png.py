"""SVG pictures of this package as PNG, rendered by resvg."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path

from heedful.draw.fonts import Face, Fonts
from heedful.draw.picture import DARK, DARK_RIBBONS, LIGHT, LIGHT_RIBBONS, NAMES, RIBBONS
from heedful.draw.shaping import TextRun, text_runs
from heedful.errors import DataError, HeedfulError, foreign, install_command

ZOOM = 2.0  # pixels per unit: sharp on current screens and in print
MOST = 16_000  # pixels across or down, as many as viewers support
PIXELS = 64_000_000  # in all: resvg takes about eight bytes for each
SMALLEST = 0.25  # pixels per unit: below that no word can be read
BACKGROUNDS = {"light": "#ffffff", "dark": "#14161a"}
TEXT = re.compile(r"(<text\b[^>]*>)([^<]*)</text>")
OVERRIDE, END_OVERRIDE = "\u202e", "\u202c"  # right to left
SHIFTS = {"r": -1.0, "m": -0.5, "n": -0.5}  # of text by its CSS class, as a part of its width
FILTERS = "".join(
    f'<filter id="h-shift-{name}" primitiveUnits="objectBoundingBox" color-interpolation-filters="sRGB" '
    f'x="-2" y="-2" width="5" height="5"><feOffset dx="{part}" dy="0"/></filter>'
    for name, part in SHIFTS.items()
)


def render(svg: str, font: Path | None = None, dark: bool = False, pixels: int = PIXELS) -> bytes:
    """Return an SVG document of this package as the bytes of a PNG file, in light or dark colours.

    Each character is drawn with `font` if that has it, or with a font of the system. The picture has at most `pixels`;
    a larger one is scaled down. Raise DataError if no word could be read then, or if a script has no font.
    """
    try:
        import resvg_py
    except ImportError:
        raise HeedfulError(f"pictures as .png need the extra png: {install_command('png')}") from None
    zoom = _zoom(svg, pixels)
    fonts = Fonts(font)
    texts = "".join(html.unescape(text) for _, text in TEXT.findall(svg))
    faces, plain = fonts.choose(texts), fonts.plain()
    if plain is None:
        raise DataError("no font found; install one (on Debian: fonts-noto-core), or name a font file")
    files = list(dict.fromkeys(str(face.path) for face in (plain, *faces.values())))
    heavy = [file.replace("Regular", "Bold") for file in files]  # of headings
    files += [file for file in heavy if file not in files and Path(file).is_file()]
    ready = TEXT.sub(lambda m: _split(m[1], html.unescape(m[2]), faces, plain), _coloured(svg, dark))
    ready = ready.replace("</style>", f"</style><defs>{FILTERS}</defs>", 1)
    with foreign("the picture cannot be drawn", DataError):
        return bytes(
            resvg_py.svg_to_bytes(
                svg_string=ready,
                background=BACKGROUNDS["dark" if dark else "light"],
                zoom=zoom,
                skip_system_fonts=True,
                font_files=files,
                sans_serif_family=plain.family,
            )
        )


def _zoom(svg: str, pixels: int) -> float:
    """Return the number of pixels per unit."""
    wide, high = (float(n) for n in re.findall(r' (?:width|height)="([\d.]+)"', svg[: svg.index(">")]))
    zoom = min(ZOOM, MOST / max(wide, high), math.sqrt(pixels / (wide * high)))
    if zoom < SMALLEST:
        raise DataError(
            f"a picture of {wide:,.0f} × {high:,.0f} units is too large for PNG: with {pixels / 1e6:,.0f} million "
            "pixels no word could be read; write .svg or .html, or draw fewer words"
        )
    return zoom


def _coloured(svg: str, dark: bool) -> str:
    """Return the picture with its colours filled in: resvg supports neither CSS variables nor media queries."""
    start, end = svg.index("<style>"), svg.index("</style>")
    style = re.sub(r"@media[^{]*\{[^{}]*\{[^{}]*\}\}", "", svg[start:end])
    colours = (*DARK, *DARK_RIBBONS) if dark else (*LIGHT, *LIGHT_RIBBONS)
    for name, colour in zip((*NAMES, *RIBBONS), colours, strict=True):
        style = style.replace(f"var(--h-{name})", colour)
    style = re.sub(r"--h-\w+:[^;}]*;?", "", style)
    style = re.sub(r"font-family:[^;}]*", "font-family:sans-serif", style)  # which is the plain one
    return svg[:start] + style + svg[end:]


def _split(start: str, text: str, faces: dict[str, Face], plain: Face) -> str:
    """Return a text element, from its start tag on, with each run in an element of its own.

    resvg shapes all characters of one position together, with the script of the first letter. A run with a y of its own
    has its own position, and follows the run before it. Runs from right to left are marked with an override.
    """
    runs = text_runs(text, faces, plain)
    scripts = {run.script for run in runs} - {""}
    if len(scripts) < 2 and all(run.face == plain and not run.right_to_left for run in runs):
        return start + html.escape(text) + "</text>"
    y = re.search(r' y="([^"]*)"', start)
    place = f' y="{y[1] if y else 0}"' if len(runs) > 1 else ""
    parts = [
        f'<tspan font-family="{_quoted(run.face.family)}"{place}>{html.escape(_marked(run))}</tspan>' for run in runs
    ]
    return (_shifted(start) if place else start) + "".join(parts) + "</text>"


def _quoted(family: str) -> str:
    """Return the name of a font family in quotes; resvg knows no escapes inside them."""
    quote = '"' if "'" in family else "'"
    return html.escape(f"{quote}{family}{quote}")


def _marked(run: TextRun) -> str:
    """Return the text of a run; one from right to left is marked so, with the spaces of its end at its left."""
    text = run.text.strip()
    if not run.right_to_left or not text:
        return run.text
    before, after = run.text.split(text)
    return f"{after}{OVERRIDE}{text}{END_OVERRIDE}{before}"


def _shifted(start: str) -> str:
    """Return the start tag of a text of several runs that ends at its position, or has it in the middle.

    resvg would shift each run by its own width. So they begin at the position, and a filter shifts them together.
    """
    classes = re.search(r'class="([^"]*)"', start)
    shift = next((name for name in (classes[1].split() if classes else ()) if name in SHIFTS), None)
    return f'{start[:-1]} style="text-anchor:start" filter="url(#h-shift-{shift})">' if shift else start
