"""Parts of all SVG pictures: escaped text, colours, legends, captions, stacks, and the document around them.

A picture carries its own colours, as CSS variables for light and for dark. Its background is transparent, so that it
can be part of a page of the same scheme; `Picture.image` adds a background, for pages of any colour. The width of a
text is an estimate on the generous side: none depends on a font.
"""

from __future__ import annotations

import base64
import re
import unicodedata
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from heedful.trace import END, Trace

FONTS = (
    "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','Noto Sans Devanagari','Nirmala UI','Kohinoor Devanagari',"
    "'Noto Sans CJK SC','PingFang SC','Microsoft YaHei','Noto Naskh Arabic','Noto Sans Hebrew',sans-serif"
)
# Text, softer text, lines, background, shade, a number on a pale and on a full shade, gold links; five series, full
# and pale.
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
# Colours of ribbons by hue: of weight 0 and of weight 1. The style sheet of the interactive figure has the same.
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
LINE = 24  # of a heading
NOTE = 17  # of a caption
NO_WEIGHTS = "This model has no attention weights to draw."
NO_WORDS = "There are no words to draw."


class Picture(NamedTuple):
    """A picture before it is a document: its size, title, description in words, and SVG elements."""

    width: float
    height: float
    title: str
    description: str
    body: str

    def __str__(self) -> str:
        """The document: one `<svg>` element, alone or inside a page."""
        return self._document(self.body)

    def image(self) -> str:
        """Return the picture as an `<img>` element with a background, readable on a page of any colour.

        An image shares neither style nor ids with the page, and notebooks show it even if they are not trusted.
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
    """An entry of a legend: its symbol, `width` wide and 14 high from (0, 0), and its text."""

    symbol: str
    width: float
    text: str


def _colours(names: Sequence[str], light: Sequence[str], dark: Sequence[str], more: str = "") -> str:
    """Return the CSS rules of colours, for light, for dark, and for print, which is light."""
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

    Control characters and those that change its direction are left out, white space is a space, half a surrogate is �.

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
    """Return a clean word; one that is written from right to left is isolated from the text around it."""
    isolated = any(unicodedata.bidirectional(c) in ("R", "AL") for c in word)
    return f"\u2068{clean(word)}\u2069" if isolated else clean(word)


def width_of(text: str, size: float = 14) -> float:
    """Return an upper estimate of the width of a text."""
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
    """Return a text that is not wider than `most`, cut between grapheme clusters.

    >>> cut("abcdefgh", 40)
    'abc…'
    """
    if width_of(text, size) <= most:
        return text
    clusters = regex.findall(r"\X", text)
    while clusters and width_of("".join(clusters) + "…", size) > most:
        clusters.pop()
    return "".join(clusters) + "…"


def wrap(text: str, width: float, size: float = 14) -> list[str]:
    """Return a text as lines that are not wider than `width`, as far as its spaces allow."""
    lines: list[str] = []
    for word in filter(None, re.split(r"[^\S\u00a0]+", text)):
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(cut(word, width, size))
    return lines


def text_at(x: float, y: float, content: str, kind: str = "", more: str = "") -> str:
    """Return a text element; `content` is clean, `kind` are CSS classes, and `more` other attributes."""
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes}{more} x="{decimal(x)}" y="{decimal(y)}">{content}</text>'


def rect(corner: tuple[float, float], size: tuple[float, float], kind: str, more: str = "") -> str:
    """Return a rectangle; `kind` are CSS classes, and `more` other attributes."""
    (x, y), (width, height) = (map(decimal, pair) for pair in (corner, size))
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"{more}/>'


def legend(entries: Sequence[Entry], x: float, y: float, width: float) -> tuple[str, float]:
    """Return the entries from (x, y) on, as many on a line as fit, and the height of all."""
    parts, across, down = [], 0.0, 0.0
    for entry in entries:
        text = cut(entry.text, width - entry.width - 8, 12)
        needed = entry.width + 8 + width_of(text, 12) + 16
        if across and across + needed - 16 > width:
            across, down = 0.0, down + ROW
        at = f'transform="translate({decimal(x + across)} {decimal(y + down)})"'
        parts.append(f"<g {at}>{entry.symbol}{text_at(entry.width + 7, 11, clean(text), 'q')}</g>")
        across += needed
    return "\n".join(parts), (down + ROW if parts else 0.0)


def decimal(value: float) -> str:
    """Return a number with at most two decimals.

    >>> decimal(1.5), decimal(2.0), decimal(-0.001)
    ('1.5', '2', '0')
    """
    short = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def number(value: float) -> str:
    """Return a number with one decimal, with two significant digits if under 1, and as 100 only if it is 100.

    >>> number(100.0), number(99.97), number(7.25), number(0.0312)
    ('100', '99.9', '7.2', '0.031')
    """
    if value and abs(value) < 1:
        return f"{value:.2g}"
    text = f"{value:.1f}".removesuffix(".0")
    return "99.9" if text == "100" and value < 100 else text


class Labels(NamedTuple):
    """What the numbers of a trace are called, one of them and all of them; the title of a figure; what a row is of."""

    one: str
    all: str
    title: str
    row: str = "target word"


def labels_of(trace: Trace) -> Labels:
    """Return the labels of a trace: weights, or shares where the numbers are not attention."""
    if not trace.readout.attention:
        return Labels("share", "shares", "Influence of source words")
    if trace.inside:
        return Labels("weight", "weight", "Self-attention", "word")
    return Labels("weight", "weight", "Attention weights")


class Kept(NamedTuple):
    """Which weights are drawn, and the share of all weight that is not."""

    mask: NDArray[np.bool_]
    hidden: float

    def caption(self, what: str, all_: str = "weight") -> str:
        """Return a caption for what is not drawn: `what`, and its share of `all_`."""
        share = 100 * self.hidden
        return "nothing is hidden" if share < 0.05 else f"hidden: {what}, together {number(share)}\u00a0% of all {all_}"


def keep(weights: NDArray[np.float32], mass: float = 1.0, least: float = 0.0, most: int | None = None) -> Kept:
    """Keep the largest weights of each row, up to a share `mass` of it or `most` of them, none under `least`.  (T, S).

    >>> kept = keep(np.array([[0.6, 0.3, 0.08, 0.02]], dtype=np.float32), mass=0.9)
    >>> kept.mask.tolist(), kept.caption("the rest")
    ([[True, True, False, False]], 'hidden: the rest, together 10\\xa0% of all weight')
    """
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1).astype(float)
    before = np.cumsum(ranked, axis=1) - ranked
    chosen = (before < mass * ranked.sum(1, keepdims=True) - 1e-6) & (ranked >= max(least, 1e-9))
    if most is not None:
        chosen[:, most:] = False
    mask = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(mask, order, chosen, axis=1)
    total = float(weights.sum(dtype=float))
    return Kept(mask, max(0.0, 1 - float(weights[mask].sum(dtype=float)) / total) if total else 0.0)


def heading(title: str, width: float, line: int = LINE) -> tuple[list[str], float]:
    """Return a title on as many lines as it needs, each `line` high, and the height of all."""
    lines = wrap(title, width - 16, 15)
    return [text_at(8, 20 + line * i, clean(text), "h") for i, text in enumerate(lines)], float(line * len(lines))


def notes(texts: Sequence[str], y: float, width: float) -> tuple[list[str], float]:
    """Return the caption below a picture, from `y` on, and its height.

    Words from right to left, in quotes, keep their order in a list.
    """
    lines = wrap("\u00a0· ".join(texts), width - 16, 12)
    isolated = ("".join(isolate(part) for part in re.split(r"([\s']+)", line)) for line in lines)
    return [text_at(8, y + 11 + NOTE * i, line, "q") for i, line in enumerate(isolated)], float(NOTE * len(lines))


def message(trace: Trace, title: str) -> Picture:
    """Return the picture of a trace without weights: a line that says so."""
    text = NO_WORDS if trace.source.tokens == (END,) else NO_WEIGHTS
    body, y = heading(title, 400)
    body.append(text_at(8, y + 20, text, "q"))
    return Picture(400, y + 34, title or labels_of(trace).title, text, "\n".join(body))


def stacked(pictures: Sequence[Picture], space: float = 10.0) -> Picture:
    """Return the parts of one picture one below the other, without lines between them."""
    parts, y = [], 0.0
    for part in pictures:
        parts.append(f'<g transform="translate(0 {decimal(y)})">{part.body}</g>')
        y += part.height + space
    width, description = max(part.width for part in pictures), " ".join(part.description for part in pictures)
    return Picture(width, y - space, pictures[0].title, description, "\n".join(parts))


def stack(pictures: Sequence[Picture], title: str, default_title: str) -> Picture:
    """Return pictures one below the other as one: a sentence under several models."""
    if len(pictures) == 1:
        return pictures[0]
    width = max(picture.width for picture in pictures)
    body, y = heading(title, width)
    y += 8 * bool(title)
    for i, picture in enumerate(pictures):
        if i:
            body.append(f'<path class="l" d="M8 {decimal(y + 10)}H{decimal(width - 8)}"/>')
            y += 22
        body.append(f'<g transform="translate(0 {decimal(y)})">{picture.body}</g>')
        y += picture.height
    description = " ".join(f"{picture.title}: {picture.description}." for picture in pictures)
    return Picture(width, y, title or default_title, description, "\n".join(body))
