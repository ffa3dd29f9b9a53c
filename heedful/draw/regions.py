"""A caption and the regions of its image: the picture once for each word, bright where its weights are.

Brightness is the weight as a share of the word's largest one, times the share of the word's weight that is on the
picture at all: a word that attends to no region leaves it dark. Weights are drawn as the grid has them, or smoothed by
cubic interpolation between the centres of the cells; every figure says which.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from heedful.draw.picture import Entry, Picture, clean, cut, decimal, heading, isolate, legend, message, notes, text_at
from heedful.draw.picture import wrap as wrap_text
from heedful.draw.terminal import columns, cut_columns, visible
from heedful.draw.trace_codec import image_key
from heedful.errors import ConfigError
from heedful.trace import Box, ImageRegions, Trace, Word
from heedful.trace.alarms import warnings

Numbers = NDArray[np.float64]
NOT_SMOOTHED = "not smoothed"
SMOOTHED = "smoothed by cubic interpolation"
NO_REGION = "no region: weight on no part of the picture"
CONFIDENCE = "conf: probability of the word"
NO_PICTURE = "the trace holds no picture"
VEIL, DARKEST = (9, 11, 15), 0.8  # colour over the regions without weight, and its opacity
STEPS = 64  # of its opacity, in the file of a veil
WIDE, HIGH = 176.0, 190.0  # of a small picture at most
GAP = 14.0
LABELS = 46.0  # height of the labels below a small picture
ACROSS = 5  # small pictures in a line at most
ACROSS_IN_PAGE = 3  # in a page, which may be narrow
EDGE = 16  # pixels of a cell in the file of a veil
LARGEST_VEIL = 192  # pixels of its side, except for larger grids
NARROW, WIDEST = 14, 48  # columns of a small picture in the terminal at least, and of the whole one at most
SMALL = 24  # columns of a small picture in the terminal, about
SHADES = ((0.0, "·", "."), (0.15, "░", "-"), (0.35, "▒", "+"), (0.60, "▓", "#"), (0.85, "█", "@"))
RAMPS = {False: " ░▒▓█", True: " .:-=+*#%@"}  # for the picture without colours, from dark to bright
DIM = 0.28  # brightness without weight in a terminal
RESET = "\x1b[0m"
CUBE = (0, 95, 135, 175, 215, 255)  # levels of the colours 16 to 231 of 256
GREY, DARK = 24, 70  # differences between red, green and blue, and values, below which a colour of 256 is a grey


class WordRegions(NamedTuple):
    """A word of a caption: its weights over the grid (rows, columns), the weight on no region, and its confidence.

    `box` is that of its regions in pixels (`Trace.boxes`); None if it has none.
    """

    word: Word
    weights: Numbers
    no_region: float
    confidence: float
    box: Box | None = None

    @property
    def largest(self) -> float:
        """The largest weight on a region."""
        return float(self.weights.max(initial=0.0))

    def brightness(self, values: Numbers | None = None) -> Numbers:
        """Return the brightness of the regions, or of weights `values` between them, from 0 to 1."""
        total = float(self.weights.sum()) + self.no_region
        share = float(self.weights.sum()) / total if total > 0 else 0.0
        shown = self.weights if values is None else values
        return np.clip(shown / self.largest, 0, 1) * share if self.largest > 0 else np.zeros_like(shown)


def image_of(trace: Trace) -> ImageRegions:
    """Return the image of a trace; raise ConfigError if it is not one of a caption."""
    if trace.image is None:
        raise ConfigError("the view 'regions' is for captions of images, but this trace has no image")
    return trace.image


def word_regions(trace: Trace) -> list[WordRegions]:
    """Return the words of a caption with their weights over the image, without `</s>`; none without attention."""
    image, weights = image_of(trace), trace.checked_words()
    if weights is None:
        return []
    rows = zip(trace.target.words, weights.astype(float), trace.confidences(), trace.boxes(), strict=True)
    grid = image.rows, image.columns
    return [
        WordRegions(word, row[:-1].reshape(grid), float(row[-1]), sure, box)
        for word, row, sure, box in rows
        if word.text and not word.is_end
    ]


def smoothed(weights: Numbers, high: int, wide: int) -> Numbers:
    """Return weights over a grid at `high` × `wide` points, by cubic convolution (Keys 1981), none below 0.

    At the centre of a cell it is the weight of the cell.
    """
    rows, across = weights.shape
    values: Numbers = np.maximum(_cubic(rows, high) @ weights @ _cubic(across, wide).T, 0)
    return values


def _cubic(cells: int, points: int) -> Numbers:
    """Return the matrix that interpolates `cells` values at `points` places; the first and last value go on outside."""
    at = (np.arange(points) + 0.5) * cells / points - 0.5
    first = np.floor(at).astype(int)
    matrix = np.zeros((points, cells))
    for step in range(-1, 3):
        distance = np.abs(at - (first + step))
        near = 1.5 * distance**3 - 2.5 * distance**2 + 1
        far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
        np.add.at(matrix, (np.arange(points), np.clip(first + step, 0, cells - 1)), np.where(distance < 1, near, far))
    return matrix


def spread(one: WordRegions, high: int, wide: int, smooth: bool) -> Numbers:
    """Return the brightness of a picture of `high` × `wide` pixels."""
    rows, across = one.weights.shape
    if smooth:
        return one.brightness(smoothed(one.weights, high, wide))
    down = (np.arange(high) * rows) // high
    values: Numbers = one.brightness()[down][:, (np.arange(wide) * across) // wide]
    return values


# SVG and PNG


def picture(trace: Trace, title: str = "", smooth: bool = False, most: int = ACROSS) -> Picture:
    """Return the picture of an image, and once more for each word of its caption, with the word's weights over it.

    `most` is the number of pictures in a line at most.
    """
    image, words = image_of(trace), word_regions(trace)
    if not words:
        return message(trace, title)
    scale = min(WIDE / image.width, HIGH / image.height)
    wide, high = max(image.width * scale, 24.0), max(image.height * scale, 24.0)
    pitch, lines = max(wide, 132.0) + GAP, -(-(len(words) + 1) // most)
    across = -(-(len(words) + 1) // lines)
    width = max(across * pitch - GAP + 16, 420.0)
    body, y = heading(title, width)
    caption = wrap_text(trace.target.text, width - 16, 15)
    body += [text_at(8, y + 20 + 22 * i, isolate(line), "" if title else "h") for i, line in enumerate(caption)]
    y += 22 * len(caption) + 10
    definition, key = _definition(image, wide, high)
    body.append(definition)
    for n in range(len(words) + 1):
        row, column = divmod(n, across)
        at = f'transform="translate({decimal(8 + column * pitch)} {decimal(y + row * (high + LABELS + 8))})"'
        drawn = (
            _word(image, words[n - 1], (wide, high), key, smooth, pitch - GAP) if n else _whole(image, wide, high, key)
        )
        body.append(f"<g {at}>{drawn}</g>")
    y += lines * (high + LABELS + 8) + 2
    key_text, key_height = legend(_entries(words), 8, y, width - 16)
    captions = [_weights(image, smooth), trace.readout_caption, f"{NO_REGION}; the more of it, the darker the picture"]
    captions += [CONFIDENCE, *warnings(trace)]
    below, below_height = notes(captions, y + key_height, width)
    body += [key_text, *below]
    described = "; ".join(_describe(image, one) for one in words)
    description = f"The image {image.name}, and for each word of its caption the regions with weight. {described}"
    titled = title or f"Attention of a caption over the regions of {image.name}"
    return Picture(width, y + key_height + below_height + 6, titled, description, "\n".join(body))


def _definition(image: ImageRegions, wide: float, high: float) -> tuple[str, str]:
    """Return the picture of the image as a definition, and its id: it is in a file once, and drawn many times."""
    size = f'width="{decimal(wide)}" height="{decimal(high)}"'
    if not image.picture:
        key = f"h-grid-{image.rows}-{image.columns}"
        return f'<defs><rect id="{key}" {size} fill="#b9b4aa"/></defs>', key
    key = image_key(image)
    return f'<defs><image id="{key}" {size} preserveAspectRatio="none" href="{data_uri(image.picture)}"/></defs>', key


def embedded_once(body: str) -> str:
    """Return SVG elements in which every picture is defined once, also if several models read the same image."""
    defined: set[str] = set()

    def first(match: re.Match[str]) -> str:
        again = match[1] in defined
        defined.add(match[1])
        return "" if again else match[0]

    return re.sub(r'<defs><image id="(h-image-[^"]*)"[^>]*></defs>', first, body)


def data_uri(picture_: bytes) -> str:
    """Return a PNG, JPEG or WebP file as a data URI."""
    kinds = {b"\x89PNG": "png", b"\xff\xd8": "jpeg", b"RIFF": "webp"}
    kind = next((kind for start, kind in kinds.items() if picture_.startswith(start)), "png")
    return f"data:image/{kind};base64,{base64.b64encode(picture_).decode('ascii')}"


def _whole(image: ImageRegions, wide: float, high: float, key: str) -> str:
    """Return the picture itself, with its name and size."""
    size = f"{image.width} × {image.height} pixels"
    return "".join(
        [
            f'<use href="#{key}"/>{_frame(wide, high)}',
            text_at(0, high + 18, isolate(cut(image.name, max(wide, 132), 13)), "", ' font-size="13"'),
            text_at(0, high + 34, size if image.picture else NO_PICTURE, "q"),
        ]
    )


def _word(
    image: ImageRegions, one: WordRegions, size: tuple[float, float], key: str, smooth: bool, space: float
) -> str:
    """Return the picture with the weights of a word over it, and its labels below."""
    wide, high = size
    sure = f"conf {_percent(one.confidence)}"
    weights = f"largest {_percent(one.largest)} · no region {_percent(one.no_region)}"
    parts = [
        f"<title>{clean(_describe(image, one))}</title>",
        f'<use href="#{key}"/><image width="{decimal(wide)}" height="{decimal(high)}" preserveAspectRatio="none" '
        f'style="image-rendering:{"auto" if smooth else "pixelated"}" href="{data_uri(veil(image, one, smooth))}"/>',
        _frame(wide, high),
    ]
    if one.box is not None:
        x, y, w, h = one.box
        across, down = wide / image.width, high / image.height
        box = f'x="{decimal(x * across + 1)}" y="{decimal(y * down + 1)}" '
        box += (
            f'width="{decimal(max(w * across - 2, 1))}" height="{decimal(max(h * down - 2, 1))}" rx="1.5" fill="none"'
        )
        parts.append(f'<rect {box} stroke="#000" stroke-opacity=".55" stroke-width="3"/>')
        parts.append(f'<rect {box} stroke="#ffd34d" stroke-width="1.5"/>')
    parts += [
        text_at(0, high + 18, isolate(cut(one.word.text, space - 66)), "y"),
        text_at(space, high + 18, clean(sure), "q r"),
        text_at(0, high + 34, clean(weights), "q"),
    ]
    return "".join(parts)


def _frame(wide: float, high: float) -> str:
    return f'<rect class="l" x="-.5" y="-.5" width="{decimal(wide + 1)}" height="{decimal(high + 1)}"/>'


def veil(image: ImageRegions, one: WordRegions, smooth: bool) -> bytes:
    """Return the veil over a picture as a PNG file: opaque where a word has no weight, transparent where it has."""
    side = max(image.rows, image.columns)
    scale = max(1, min(EDGE, LARGEST_VEIL // side))
    bright = spread(one, image.rows * scale, image.columns * scale, smooth)
    return _png(np.rint((1 - bright) * (STEPS - 1)).astype(np.uint8))


def _png(steps: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of the colour VEIL, with an opacity of 0 to STEPS - 1 steps for each pixel."""
    high, wide = steps.shape
    opacity = np.rint(np.linspace(0, DARKEST * 255, STEPS)).astype(np.uint8)
    up = np.diff(steps.astype(np.int16), axis=0, prepend=0).astype(np.uint8)  # each line as the difference to the last
    lines = np.concatenate([np.full((high, 1), 2, np.uint8), up], axis=1).tobytes()
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0),
        b"PLTE": bytes(VEIL) * STEPS,
        b"tRNS": opacity.tobytes(),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    packed = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks.items())
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _entries(words: Sequence[WordRegions]) -> list[Entry]:
    """Return the legend."""
    veiled = f'fill="rgb{VEIL}"'.replace(" ", "")
    steps = "".join(
        f'<rect x="{13 * i}" width="13" height="14" fill="#e6c98f"/>'
        f'<rect x="{13 * i}" width="13" height="14" {veiled} fill-opacity="{decimal(DARKEST * (1 - i / 4))}"/>'
        for i in range(5)
    )
    entries = [Entry(steps, 65, "weight, from 0 to the largest of the word")]
    if any(one.box for one in words):
        box = '<rect x="1" y="1" width="18" height="12" rx="1.5" fill="#5b6470"/>'
        box += '<rect x="1" y="1" width="18" height="12" rx="1.5" fill="none" stroke="#ffd34d" stroke-width="1.5"/>'
        entries.append(Entry(box, 20, "box: connected regions with at least half of the largest weight"))
    return entries


def _describe(image: ImageRegions, one: WordRegions) -> str:
    """Return the weights of a word in words: its largest one, and that on no region."""
    row, column = divmod(int(one.weights.argmax()), image.columns)
    where = f"largest weight {_percent(one.largest)} in row {row + 1}, column {column + 1}"
    return f"{one.word.text}: {where}, no region {_percent(one.no_region)}, confidence {_percent(one.confidence)}"


def _weights(image: ImageRegions, smooth: bool) -> str:
    return f"weights of {image.rows} × {image.columns} regions, {SMOOTHED if smooth else NOT_SMOOTHED}"


def _percent(share: float) -> str:
    """Return a share in per cent; one above 0 is never shown as 0."""
    return "<1\u00a0%" if 0 < share < 0.005 else f"{100 * share:.0f}\u00a0%"


# The terminal


def terminal_colours(stream: TextIO, environment: Mapping[str, str] = os.environ) -> int:
    """Return how many colours to draw with on a stream: 2^24, 256, or 0 if it is no terminal or colours are unwanted.

    NO_COLOR turns colours off; FORCE_COLOR turns them on where there is no terminal.
    """
    forced = environment.get("FORCE_COLOR", "") not in ("", "0", "false")
    if environment.get("NO_COLOR") or not (forced or (stream.isatty() and environment.get("TERM") != "dumb")):
        return 0
    term, program = environment.get("TERM", ""), environment.get("COLORTERM", "").lower()
    direct = program in ("truecolor", "24bit") or "direct" in term or "kitty" in term or "WT_SESSION" in environment
    return 2**24 if direct or environment.get("FORCE_COLOR") == "3" else 256


def terminal(trace: Trace, width: int = 80, ascii_only: bool = False, smooth: bool = False, colours: int = 0) -> str:
    """Return the picture, and once more for each word, as text of at most `width` columns.

    With `colours` (256, or 2^24) each character is two pixels, one above the other. Without, or in ASCII, the picture
    is drawn in shades, and the weights are a grid of shades.
    """
    image, words = image_of(trace), word_regions(trace)
    size = f"{image.width} × {image.height} pixels, {image.rows} × {image.columns} regions"
    above = textwrap.wrap(visible(f"{image.name}, {size}", ascii_only), width)
    if ascii_only:
        above = [line.replace("×", "x") for line in above]
    drawing = _Blocks(image, ascii_only, smooth, 0 if ascii_only else colours, width)
    lines = [*above, *drawing.whole(min(width, WIDEST))]
    for row in _in_lines([drawing.word(one) for one in words], width):
        lines += ["", *row]
    weights = _weights(image, smooth and drawing.pixels)
    captions = [drawing.legend(), CONFIDENCE, NO_REGION, weights, trace.readout_caption, *warnings(trace)]
    if not words:
        captions = ["this model has no attention weights to draw"]
    text = "; ".join(captions).replace("\u00a0", "")
    below = textwrap.wrap(visible(text.replace("×", "x") if ascii_only else text, ascii_only), width)
    return "\n".join([*lines, "", *below])


class _Blocks:
    """Draws an image with the characters of a terminal."""

    def __init__(self, image: ImageRegions, ascii_only: bool, smooth: bool, colours: int, width: int = 80) -> None:
        self.image, self.ascii_only, self.smooth, self.colours = image, ascii_only, smooth, colours
        self.pixels = colours > 0
        # Pixels of a cell across and down: whole numbers, so that the cells of the grid are equal.
        self.across = max(1, min(round(SMALL / image.columns), width // image.columns))
        self.cell = 2 if 2 * image.columns <= width else 1  # columns of a cell without colours
        shape = (image.height / image.rows) / (image.width / image.columns)
        self.down = max(1, round(self.across * shape))

    def whole(self, wide: int) -> list[str]:
        """Return the picture of the image; without colours in shades."""
        high = max(2, 2 * round(wide * self.image.height / self.image.width / 2))
        if high > wide * 1.5:  # a tall picture would fill several screens
            wide, high = max(8, round(wide * wide * 1.5 / high)), 2 * round(wide * 0.75)
        pixels = decoded(self.image, wide, high)
        if pixels is None:
            return []
        if self.pixels:
            return half_blocks(pixels, self.colours)
        light = pixels.astype(float) @ (0.299, 0.587, 0.114) / 255
        light = light.reshape(high // 2, 2, wide).mean(1)
        light = (light - light.min()) / max(float(np.ptp(light)), 1e-6)
        ramp = RAMPS[self.ascii_only]
        levels = np.minimum((light * len(ramp)).astype(int), len(ramp) - 1)
        return ["".join(ramp[level] for level in row).rstrip() for row in levels]

    def word(self, one: WordRegions) -> list[str]:
        """Return the picture of a word with its labels below, each line as wide as the others."""
        image, more = self.image, "largest {}|no region {}|conf {}"
        if self.pixels:
            wide, high = image.columns * self.across, image.rows * self.down
            pixels = decoded(image, wide, high)
            if pixels is None:
                pixels = np.full((high, wide, 3), 185, dtype=np.uint8)
            bright = DIM + (1 - DIM) * spread(one, high, wide, self.smooth)[..., None]
            lines = half_blocks((pixels * bright).astype(np.uint8), self.colours)
        else:
            wide = self.cell * image.columns
            levels = np.searchsorted([low for low, _, _ in SHADES[1:]], one.brightness(), side="right")
            signs = [plain if self.ascii_only else block for _, block, plain in SHADES]
            lines = ["".join(signs[level] * self.cell for level in row) for row in levels]
        space = max(wide, NARROW)
        lines = [line + " " * (space - wide) for line in lines]
        numbers = more.format(_short(one.largest), _short(one.no_region), _short(one.confidence)).split("|")
        word = cut_columns(one.word.text, space, self.ascii_only)
        return [*lines, *(text + " " * max(0, space - columns(text)) for text in (word, *numbers))]

    def legend(self) -> str:
        """Return what the brightness means."""
        scale = "weight as a share of the word's largest"
        if self.pixels:
            return f"brightness: {scale}"
        signs = [f"[{(plain if self.ascii_only else block) * 2}] {low:.0%}" for low, block, plain in SHADES]
        return f"shade: {scale}, from {' '.join(signs)}"


def _short(share: float) -> str:
    return _percent(share).replace("\u00a0", "")


def _in_lines(blocks: Sequence[list[str]], width: int) -> list[list[str]]:
    """Return blocks side by side, as many as fit into the width."""
    if not blocks:
        return []
    size = columns(blocks[0][-1])
    count = max(1, (width + 2) // (size + 2))
    rows = []
    for start in range(0, len(blocks), count):
        beside = zip(*blocks[start : start + count], strict=True)
        rows.append(["  ".join(parts).rstrip() for parts in beside])
    return rows


def decoded(image: ImageRegions, wide: int, high: int) -> NDArray[np.uint8] | None:
    """Return the picture as pixels (high, wide, 3); None if there is none, or no Pillow to decode it."""
    import io

    try:
        from PIL import Image
    except ImportError:
        return None
    if not image.picture:
        return None
    try:
        with Image.open(io.BytesIO(image.picture)) as opened:
            return np.asarray(opened.convert("RGB").resize((wide, high), Image.Resampling.BOX), dtype=np.uint8)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


def half_blocks(pixels: NDArray[np.uint8], colours: int) -> list[str]:
    """Return pixels (high, wide, 3) as lines of half blocks, two pixels above each other in a character."""
    if len(pixels) % 2:
        pixels = np.concatenate([pixels, np.zeros_like(pixels[:1])])
    return [_coloured_line(top, bottom, colours) for top, bottom in zip(pixels[::2], pixels[1::2], strict=True)]


def _coloured_line(top: NDArray[np.uint8], bottom: NDArray[np.uint8], colours: int) -> str:
    """Return a line of half blocks; a colour is set only where it changes."""
    parts, before = [], ("", "")
    for upper, lower in zip(top.tolist(), bottom.tolist(), strict=True):
        now = _code(38, upper, colours), _code(48, lower, colours)
        codes = ";".join(code for code, last in zip(now, before, strict=True) if code != last)
        parts.append((f"\x1b[{codes}m" if codes else "") + "▀")
        before = now
    return "".join(parts) + RESET


def _code(kind: int, rgb: Sequence[int], colours: int) -> str:
    """Return the number of a colour in an escape sequence: of 2^24, or the nearest of 256."""
    if colours > 256:
        return f"{kind};2;{rgb[0]};{rgb[1]};{rgb[2]}"
    if max(rgb) - min(rgb) < GREY or max(rgb) < DARK:  # the cube has few greys, and few dark colours
        return f"{kind};5;{232 + min(23, max(0, round((sum(rgb) / 3 - 8) / 10)))}"
    red, green, blue = (int(np.abs(np.array(CUBE) - c).argmin()) for c in rgb)
    return f"{kind};5;{16 + 36 * red + 6 * green + blue}"
