"""A picture as PNG, without a browser: our SVG, drawn by resvg, which shapes every script."""

from __future__ import annotations

import html
import re
from pathlib import Path

from heedful.draw.fonts import Face, Fonts
from heedful.draw.marks import DARK, DARK_RIBBONS, LIGHT, LIGHT_RIBBONS, NAMES, RIBBONS
from heedful.draw.widths import signs
from heedful.errors import DataError, HeedfulError

__all__ = ["render"]

ZOOM = 2.0  # dots to a unit: sharp on today's screens and in print
MOST = 16_000  # dots across or down, as far as viewers go
GROUNDS = {"light": "#ffffff", "dark": "#14161a"}  # what pages of ours have
TEXT = re.compile(r"(<text\b[^>]*>)([^<]*)(</text>)")


def render(svg: str, font: Path | None = None, dark: bool = False) -> bytes:
    """Return a picture of ours, an SVG document, as the bytes of a PNG file, in light colours or in dark ones.

    Each character is written in a font of the system that has it, or in `font` where it has it.
    """
    try:
        import resvg_py
    except ImportError:
        raise HeedfulError("pictures as .png need more: pip install 'heedful[png]'") from None
    fonts = Fonts(font)
    shown = "".join(html.unescape(text) for _, text, _ in TEXT.findall(svg))
    faces, plain = fonts.choose(shown), fonts.plain()
    if plain is None:
        raise DataError("no font found; install one (on Debian: fonts-noto-core), or name a file with --font")
    files = list(dict.fromkeys(str(face.path) for face in (plain, *faces.values())))
    heavy = plain.path.with_name(plain.path.name.replace("Regular", "Bold"))  # of headings
    files += [str(heavy)] * (heavy != plain.path and heavy.is_file())
    ready = TEXT.sub(lambda m: m[1] + _in_faces(html.unescape(m[2]), faces, plain) + m[3], _coloured(svg, plain, dark))
    size = max(float(n) for n in re.findall(r'(?:width|height)="([\d.]+)"', svg[: svg.index(">")]))
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=ready,
            background=GROUNDS["dark" if dark else "light"],
            zoom=min(ZOOM, MOST / size),
            skip_system_fonts=True,
            font_files=files,
            sans_serif_family=plain.family,
        )
    )


def _coloured(svg: str, plain: Face, dark: bool) -> str:
    """Return the picture with its colours put in: resvg knows neither variables nor the viewer's wishes."""
    start, end = svg.index("<style>"), svg.index("</style>")
    style = re.sub(r"@media[^{]*\{[^{}]*\{[^{}]*\}\}", "", svg[start:end])
    colours = (*DARK, *DARK_RIBBONS) if dark else (*LIGHT, *LIGHT_RIBBONS)
    for name, colour in zip((*NAMES, *RIBBONS), colours, strict=True):
        style = style.replace(f"var(--h-{name})", colour)
    style = re.sub(r"--h-\w+:[^;}]*;?", "", style)
    style = re.sub(r"font-family:[^;}]*", f"font-family:'{plain.family}',sans-serif", style)
    return svg[:start] + style + svg[end:]


def _in_faces(text: str, faces: dict[str, Face], plain: Face) -> str:
    """Return a text with the family of each part that is not in the plain one; what is one sign stays in one part."""
    parts: list[tuple[str, str]] = []
    for sign in signs(text):
        face = next((faces[c] for c in sign if c in faces), plain)
        # What stands between two parts of one family belongs to them: a space must not tear a phrase apart.
        family = parts[-1][0] if parts and sign.isspace() else face.family
        if parts and parts[-1][0] == family:
            parts[-1] = (family, parts[-1][1] + sign)
        else:
            parts.append((family, sign))
    return "".join(
        html.escape(part) if family == plain.family else f'<tspan font-family="{family}">{html.escape(part)}</tspan>'
        for family, part in parts
    )
