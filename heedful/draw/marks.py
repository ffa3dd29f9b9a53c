"""What all SVG pictures share: safe text, colours, ticks, legends and the document around them.

A picture carries its own colours, as CSS variables for light and for dark. Its ground is transparent, so that it can
stand inside a page of the same scheme; `Picture.image` gives it a ground of its own, for pages of any colour. How wide
a text will be is only guessed, on the generous side: none depends on a font.
"""

from __future__ import annotations

import base64
import math
import re
import unicodedata
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from heedful.errors import DataError

__all__ = [
    "DARK",
    "DARK_RIBBONS",
    "FONTS",
    "HUES",
    "LIGHT",
    "LIGHT_RIBBONS",
    "NAMES",
    "RIBBONS",
    "Entry",
    "Picture",
    "clean",
    "cut",
    "decimal",
    "finite",
    "isolate",
    "legend",
    "log_ticks",
    "number",
    "tick_label",
    "ticks",
    "width_of",
    "wrap",
]

FONTS = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Noto Sans Devanagari','Nirmala UI','Kohinoor Devanagari',"
    "'Noto Sans CJK SC','PingFang SC','Microsoft YaHei','Noto Naskh Arabic','Noto Sans Hebrew',sans-serif"
)
# Ink, softer ink, lines, ground, shade, a number on a pale and on a full shade, gold; then five series, full and pale.
NAMES = (
    *("ink", "soft", "line", "ground", "shade", "pale", "full", "gold"),
    *("s0", "s1", "s2", "s3", "s4", "p0", "p1", "p2", "p3", "p4"),
)
LIGHT = (
    *("#1d1c1a", "#5f5b55", "#dcd8d0", "#ffffff", "#06356a", "#000000", "#ffffff", "#c2500a"),
    *("#c2500a", "#0067a5", "#00795a", "#9b4584", "#5b6470"),
    *("#eed2c0", "#c0d7e5", "#c0dcd3", "#e5cfdd", "#d5d7d8"),
)
DARK = (
    *("#e9e6e1", "#a9a59e", "#383b41", "#14161a", "#64a8ea", "#ffffff", "#000000", "#f0a04b"),
    *("#f0a04b", "#6db8f2", "#3fcf9f", "#e29ac6", "#aab4c0"),
    *("#4e3d2d", "#2f4355", "#244841", "#4b3c4a", "#3d4249"),
)
HUES = 5  # of series, and of ribbons
# Colours of ribbons by hue: of no weight, and of all. view.css has the same, so that a word has one
# colour in every format.
RIBBONS = ("w0", "w1", "w2", "w3", "w4", "d0", "d1", "d2", "d3", "d4")
LIGHT_RIBBONS = (
    *("#cb6b30", "#3e8cbb", "#34947c", "#b270a0", "#7f868f"),
    *("#863707", "#005284", "#005a43", "#7a3668", "#484f59"),
)
DARK_RIBBONS = (
    *("#9a6630", "#46769b", "#277f62", "#926380", "#6c727a"),
    *("#f6c48e", "#a3d2f7", "#7ddfbe", "#edc0db", "#c6cdd5"),
)
INVISIBLE = {chr(c) for c in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xFFFE, 0xFFFF)}
ROW = 20  # height of a line of the legend


class Picture(NamedTuple):
    """A picture before it is a document: its size, its name, what it shows in words, and its elements."""

    width: float
    height: float
    title: str
    description: str
    body: str

    def __str__(self) -> str:
        """The document: one `<svg>` element that stands alone or inside a page."""
        return self._document(self.body)

    def image(self) -> str:
        """Return the picture as an `<img>` element on a ground of its own, readable on a page of any colour.

        An image shares neither style nor ids with the page, and notebooks show it even where they do not trust one.
        """
        ground = '<rect class="g" width="100%" height="100%"/>'
        data = base64.b64encode(self._document(f"{ground}\n{self.body}").encode()).decode()
        return (
            f'<img src="data:image/svg+xml;base64,{data}" alt="{clean(f"{self.title}. {self.description}")}" '
            f'width="{decimal(self.width)}" style="max-width:100%;height:auto"/>'
        )

    def _document(self, body: str) -> str:
        title, description = clean(self.title), clean(self.description)
        key = f"{zlib.crc32(f'{title}{description}{body}'.encode()):08x}"
        style = _STYLE + (_RIBBON_STYLE if 'class="u ' in body else "")  # most pictures have no ribbons
        size = f'width="{decimal(self.width)}" height="{decimal(self.height)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="heedful" role="img" {size} '
            f'viewBox="0 0 {decimal(self.width)} {decimal(self.height)}" aria-labelledby="t{key}" '
            f'aria-describedby="d{key}"><title id="t{key}">{title}</title><desc id="d{key}">{description}</desc>'
            f"<style>{style}</style>\n{body}\n</svg>\n"
        )


class Entry(NamedTuple):
    """An entry of a legend: its mark, drawn `width` wide and 14 high from (0, 0), and its text."""

    mark: str
    width: float
    text: str


def _colours(names: Sequence[str], light: Sequence[str], dark: Sequence[str], more: str = "") -> str:
    """Return the rules that name colours, for light, for dark and for paper, which is light."""
    on_light, on_dark = (
        ";".join(f"--h-{name}:{colour}" for name, colour in zip(names, colours, strict=True))
        for colours in (light, dark)
    )
    return (
        f".heedful{{{on_light}{more}}}@media(prefers-color-scheme:dark){{.heedful{{{on_dark}}}}}"
        f"@media print{{.heedful{{color-scheme:light;{on_light}}}}}"
    )


_STYLE = (
    _colours(
        *(NAMES, LIGHT, DARK),
        ";color-scheme:light dark;max-width:100%;height:auto;overflow:visible;"
        f"font-family:{FONTS};font-size:14px;font-variant-numeric:tabular-nums",
    )
    + ".heedful text{fill:var(--h-ink)}.heedful .h{font-weight:600;font-size:15px}"
    ".heedful .q{fill:var(--h-soft);font-size:12px}.heedful .r{text-anchor:end}.heedful .m{text-anchor:middle}"
    ".heedful .l{stroke:var(--h-line);fill:none}.heedful .o{stroke:var(--h-gold);stroke-width:2;fill:none}"
    ".heedful .g{fill:var(--h-ground)}.heedful .c{fill:var(--h-shade)}"
    ".heedful .n{fill:var(--h-pale);font-size:11px;text-anchor:middle;pointer-events:none}"
    ".heedful .y{font-weight:600}.heedful .f{fill:var(--h-full)}"
    ".heedful .w{fill:currentColor;stroke:currentColor;stroke-width:.75}.heedful .i{fill:var(--h-soft)}"
    ".heedful .e{fill:none;stroke:var(--h-soft)}.heedful .t{fill:var(--h-soft)}"
    ".heedful .a{stroke:currentColor;stroke-width:2;fill:none;stroke-linejoin:round}"
    ".heedful .b{fill:currentColor;stroke:currentColor}"
    + "".join(f".heedful .s{i}{{color:var(--h-s{i})}}.heedful .s{i} .p{{fill:var(--h-p{i})}}" for i in range(HUES))
)
_RIBBON_STYLE = (
    _colours(RIBBONS, LIGHT_RIBBONS, DARK_RIBBONS)
    + ".heedful .u{fill:currentColor}.heedful .k{stroke:var(--h-ground);stroke-width:2.5;paint-order:stroke}"
    + "".join(f".heedful .{kind}{i}{{color:var(--h-{kind}{i})}}" for kind in "wd" for i in range(HUES))
)


def clean(text: str) -> str:
    """Return a text that is safe in XML and HTML, also between quotes.

    Control characters and those that turn the line around are left out, white space is a space, half a surrogate is �.

    >>> clean("a <b> & 'c'\\x1b\\n d")
    'a &lt;b&gt; &amp; &#39;c&#39;  d'
    """
    kept = []
    for c in text:
        kind = unicodedata.category(c)
        if kind == "Cs":
            kept.append("�")
        elif c.isspace() and c != "\u00a0":
            kept.append(" ")
        elif kind != "Cc" and c not in INVISIBLE and ord(c) & 0xFFFE != 0xFFFE:
            kept.append(c)
    escapes = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
    return "".join(escapes.get(c, c) for c in kept)


def isolate(word: str) -> str:
    """Return a clean word; one that is written from right to left keeps its order among others that are not."""
    turned = any(unicodedata.bidirectional(c) in ("R", "AL") for c in word)
    return f"\u2068{clean(word)}\u2069" if turned else clean(word)


def width_of(text: str, size: float = 14) -> float:
    """Return about how wide a text will be, rather too much than too little."""
    total = 0.0
    for c in text:
        if unicodedata.east_asian_width(c) in "WF":
            total += 1.05
        elif unicodedata.category(c) in ("Mn", "Me", "Cf"):
            total += 0.1
        else:
            total += 0.9 if c in "mwMW@%" else 0.72 if c.isupper() else 0.62
    return total * size


def cut(text: str, most: float, size: float = 14) -> str:
    """Return a text that is not wider than `most`; never between a letter and its marks.

    >>> cut("abcdefgh", 40)
    'abc…'
    """
    if width_of(text, size) <= most:
        return text
    end = len(text) - 1
    while end > 0 and (width_of(text[:end] + "…", size) > most or _joined(text, end)):
        end -= 1
    return text[:end] + "…"


def _joined(text: str, at: int) -> bool:
    """Whether the character at this place belongs to the one before it."""
    return unicodedata.category(text[at])[0] == "M" or "\u200d" in text[at - 1 : at + 1]


def wrap(text: str, width: float, size: float = 14) -> list[str]:
    """Return a text as lines that are not wider than `width`, as far as its spaces allow."""
    lines: list[str] = []
    for word in filter(None, re.split(r"[^\S\u00a0]+", text)):
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, width, size))
    return lines


def legend(entries: Sequence[Entry], x: float, y: float, width: float) -> tuple[str, float]:
    """Return the entries from (x, y) on, as many on a line as fit, and the height they take."""
    parts, across, down = [], 0.0, 0.0
    for entry in entries:
        text = cut(entry.text, width - entry.width - 8, 12)
        needed = entry.width + 8 + width_of(text, 12) + 16
        if across and across + needed - 16 > width:
            across, down = 0.0, down + ROW
        at = f'transform="translate({decimal(x + across)} {decimal(y + down)})"'
        parts.append(
            f'<g {at}>{entry.mark}<text class="q" x="{decimal(entry.width + 7)}" y="11">{clean(text)}</text></g>'
        )
        across += needed
    return "\n".join(parts), (down + ROW if parts else 0.0)


def decimal(value: float) -> str:
    """Return a number as short as it can be written with two digits after the point.

    >>> decimal(1.5), decimal(2.0), decimal(-0.001)
    ('1.5', '2', '0')
    """
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def number(value: float) -> str:
    """Return a number for a person: one digit after the point, two that count when under 1, and 100 only for 100.

    >>> number(100.0), number(99.97), number(7.25), number(0.0312)
    ('100', '99.9', '7.2', '0.031')
    """
    if value and abs(value) < 1:
        return f"{value:.2g}"
    text = f"{value:.1f}".removesuffix(".0")
    return "99.9" if text == "100" and value < 100 else text


def finite(values: Sequence[float], what: str) -> None:
    """Refuse numbers that cannot be drawn."""
    for value in values:
        if not math.isfinite(value):
            raise DataError(f"{what}: {value} cannot be drawn")


def ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Return about `count` round numbers that enclose `low` to `high`.

    >>> ticks(0, 97)
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one number, as far as can be drawn
        low, high = (low - abs(low) / 2, low + abs(low) / 2) if low else (0.0, 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers that enclose `low` to `high`, for a scale on which each ratio has its length.

    >>> log_ticks(0.3, 8)
    (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps, every = ((1, 2, 5), 1) if last - first <= 3 else ((1,), 1 + (last - first) // 8)
    all_ = [float(f"{m}e{e}") for e in range(first, last + every, every) for m in steps]
    start = max((i for i, t in enumerate(all_) if t <= low), default=0)
    stop = next((i for i, t in enumerate(all_) if t >= high), len(all_) - 1)
    return tuple(all_[start : max(stop, start + 1) + 1])


def tick_label(value: float) -> str:
    """Return a tick as a person writes it.

    >>> tick_label(0.25), tick_label(20.0), tick_label(12000.0)
    ('0.25', '20', '12,000')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:.6g}"
