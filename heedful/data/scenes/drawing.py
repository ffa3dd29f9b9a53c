"""Scenes as pixels, by Pillow: each object is drawn four times as large and scaled down, once, and kept."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heedful.data.scenes.kinds import EDGE, drawing
from heedful.data.scenes.lexicon import COLOURS
from heedful.errors import HeedfulError, install_command

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

ZOOM = 4  # pixels drawn for each pixel of the picture, along each side
UNITS = 1024  # the side of a picture in the units of sizes and positions
BACKGROUNDS = ("meadow", "sea", "night", "desert", "snow", "room", "plain")
VARIANTS = 10  # of each background
RGB = tuple[int, int, int]
SHADE = (30, 28, 48)  # of shadows
PAINTS: dict[str, RGB] = {
    "ink": (48, 42, 58),
    "white": (252, 252, 250),
    "cream": (246, 232, 208),
    "skin": (202, 205, 150),
    "beak": (238, 170, 70),
    "blush": (240, 170, 175),
    "collar": (205, 70, 80),
    "wood": (128, 88, 60),
    "brick": (168, 104, 84),
    "stem": (92, 150, 84),
    "gold": (242, 200, 90),
    "flame": (250, 168, 60),
    "pane": (205, 230, 240),
    "tyre": (70, 68, 78),
    "steel": (200, 200, 206),
}


class Placed(NamedTuple):
    """One drawn thing: its kind, colour, scale (units for 100 of its drawing) and centre in units."""

    kind: str
    colour: str
    scale: int
    x: int
    y: int
    tilt: int
    flip: bool


def paint(background: str, things: list[Placed], texture: int, size: int) -> np.ndarray:
    """Return a picture (size, size, 3) of things on a background; `texture` chooses its variant and its clutter."""
    image, _ = pillow()
    random = Random(texture)
    picture = _background(background, texture % VARIANTS, size)
    picture = picture.transpose(image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else picture.copy()
    for name, x, y in _clutter(background, random):
        mark = _mark(name, int(random.random() * 4), background, size)
        picture.paste(mark, (round(x * size) - mark.width // 2, round(y * size) - mark.height // 2), mark)
    for thing in things:
        sprite = _sprite(thing.kind, thing.colour, thing.scale, thing.tilt, size)
        sprite = sprite.transpose(image.Transpose.FLIP_LEFT_RIGHT) if thing.flip else sprite
        x, y = thing.x * size / UNITS - sprite.width / 2, thing.y * size / UNITS - sprite.height / 2
        picture.paste(sprite, (round(x), round(y)), sprite)
    return np.asarray(picture)


@lru_cache(maxsize=4096)
def _sprite(kind: str, colour: str, scale: int, tilt: int, size: int) -> Image:
    """Return a thing on a transparent ground, with its outline, its shading and a soft shadow."""
    image, draw = pillow()
    from PIL import ImageFilter

    made = drawing(kind, tilt)
    unit = scale / 100 * size / UNITS * ZOOM  # pixels for a unit of the drawing, before scaling down
    room = 2 * max(3, round(3 * size / 128))  # for the shadow
    side = [-(-round(length * unit) // ZOOM) + room for length in (made.width, made.height)]
    x0, y0 = side[0] * ZOOM / 2, side[1] * ZOOM / 2
    paints = _paints(colour)
    canvas = image.new("RGBA", (side[0] * ZOOM, side[1] * ZOOM), (*PAINTS["ink"], 0))
    pen = draw.Draw(canvas)
    ready = [(piece, [(x0 + x * unit, y0 + y * unit) for x, y in piece.points]) for piece in made.pieces]
    edge = max(EDGE * unit, 0.55 * ZOOM)
    ink = (*(int(0.75 * a + 0.25 * b * 0.35) for a, b in zip(PAINTS["ink"], paints["main"], strict=True)), 255)
    for piece, points in ready:
        if piece.edged and piece.width:
            _stroke(pen, points, piece.width * unit + 2 * edge, ink)
        elif piece.edged:
            _stroke(pen, [*points, points[0]], 2 * edge, ink)
    for piece, points in ready:
        fill = (*paints[piece.paint], 255)
        if piece.width:
            _stroke(pen, points, max(piece.width * unit, 0.8 * ZOOM), fill)
        else:
            if piece.edged:
                _stroke(pen, [*points, points[0]], edge * 0.9, ink)
            pen.polygon(points, fill=fill)
    small = canvas.resize((side[0], side[1]), image.Resampling.BOX)
    pixels = np.asarray(small).astype(np.float32)
    light = np.linspace(1.07, 0.9, side[1], dtype=np.float32)[:, None, None]
    pixels[..., :3] = np.clip(pixels[..., :3] * light, 0, 255)
    blurred = np.asarray(small.getchannel("A").filter(ImageFilter.GaussianBlur(size / 107))).astype(np.float32)
    shadow = np.zeros_like(blurred)[..., None]
    down, across = max(1, size // 64), max(1, size // 128)
    shadow[down:, across:, 0] = blurred[:-down, :-across] / 255 * 0.32
    alpha = pixels[..., 3:] / 255
    whole = alpha + shadow * (1 - alpha)
    colour_part, shade_part = pixels[..., :3] * alpha, np.array(SHADE, np.float32) * shadow * (1 - alpha)
    pixels[..., :3] = (colour_part + shade_part) / np.maximum(whole, 1e-6)
    pixels[..., 3:] = whole * 255
    sprite: Image = image.fromarray(np.round(pixels).astype(np.uint8))
    return sprite


def _stroke(pen: ImageDraw, points: list[tuple[float, float]], width: float, fill: tuple[int, ...]) -> None:
    """Draw a line with round joints and ends."""
    whole = max(1, round(width))
    pen.line(points, fill=fill, width=whole)
    r = (whole - 1) / 2
    for x, y in points:
        pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)


def _paints(colour: str) -> dict[str, RGB]:
    """Return the paints of an object of a colour."""
    rgb = COLOURS[colour].rgb
    dark = (180, 186, 206) if colour == "white" else _mixed(rgb, (40, 20, 50), 0.24)
    return {**PAINTS, "main": rgb, "dark": dark, "light": _mixed(rgb, (255, 255, 255), 0.42)}


def _mixed(a: RGB, b: RGB, share: float) -> RGB:
    """Return colour a with a share of colour b."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


# Colours of the sky or wall at the top and at the horizon, of the ground at the horizon and at the bottom; marks on
# the sky and on the ground. All are pale or dull, so that objects of every colour stand out.
GROUNDS: dict[str, tuple[RGB, RGB, RGB, RGB, tuple[str, ...], tuple[str, ...]]] = {
    "meadow": ((172, 210, 236), (222, 238, 244), (186, 212, 150), (150, 186, 118), ("cloud",), ("blade", "pebble")),
    "sea": ((196, 218, 236), (240, 234, 224), (150, 196, 206), (112, 164, 186), ("cloud",), ("wave",)),
    "night": ((62, 64, 104), (104, 100, 140), (92, 104, 110), (70, 82, 92), ("spark",), ("blade", "pebble")),
    "desert": ((236, 222, 206), (246, 236, 216), (224, 202, 160), (206, 178, 132), ("cloud",), ("pebble",)),
    "snow": ((178, 194, 214), (208, 218, 230), (226, 232, 240), (204, 214, 228), ("spark",), ("pebble",)),
    "room": ((216, 206, 196), (222, 212, 202), (190, 162, 136), (168, 138, 114), ("dot",), ()),
    "plain": ((222, 220, 212), (226, 224, 216), (226, 224, 216), (214, 210, 204), ("dot",), ("dot",)),
}


@lru_cache(maxsize=256)
def _background(name: str, variant: int, size: int) -> Image:
    """Return one of the variants of a background: a horizon at another height, other hills."""
    image, draw = pillow()
    random = Random(f"{name} {variant}")
    top, middle, near, bottom, _, _ = GROUNDS[name]
    tint = [(random.random() - 0.5) * 14 for _ in range(3)]
    side = size * 2
    horizon = 0.45 + 0.3 * random.random()
    rows = np.minimum(np.linspace(0, 1 / horizon, side), 1)[:, None]
    column = np.clip((1 - rows) * top + rows * middle + np.array(tint), 0, 255).round().astype(np.uint8)
    canvas = image.fromarray(np.repeat(column[:, None], side, axis=1))
    pen = draw.Draw(canvas)
    layers = {"plain": 0, "sea": 1, "room": 1}.get(name, 3)
    if name == "room":
        width = side // (8 + int(random.random() * 8))
        stripe = _mixed(middle, (255, 255, 255), 0.3)
        for x in range(0, side, 2 * width):
            pen.rectangle((x, 0, x + width, side), fill=stripe)
    for layer in range(layers):
        share = (layer + 1) / layers
        fill = _mixed(near, bottom, share if layers > 1 else 0.3)
        height = horizon + 0.16 * layer
        wave = 0.0 if layers == 1 else 0.02 + 0.04 * random.random()
        phase, length = random.random() * 6.28, 3 + 4 * random.random()
        xs = np.linspace(0, 1, 25)
        ys = height + wave * np.sin(xs * length + phase)
        points = [(float(x) * side, float(y) * side) for x, y in zip(xs, ys, strict=True)]
        pen.polygon([*points, (side, side), (0, side)], fill=fill)
    if name == "room":
        pen.rectangle((0, horizon * side, side, (horizon + 0.025) * side), fill=(238, 232, 224))
        for board in range(4):
            y = (horizon + 0.1 + 0.13 * board) * side
            pen.line((0, y, side, y), fill=_mixed(bottom, (90, 60, 50), 0.15), width=2)
    picture: Image = canvas.resize((size, size), image.Resampling.BOX)
    return picture


def _clutter(background: str, random: Random) -> list[tuple[str, float, float]]:
    """Return marks that no caption names: their names and places."""
    sky, ground = GROUNDS[background][4:]
    many = {"cloud": 3, "spark": 14, "dot": 12, "blade": 12, "pebble": 6, "wave": 12}
    marks = []
    for names, low, high in ((sky, 0.02, 0.42), (ground, 0.62, 0.98)):
        for name in names:
            if name == "dot":
                low, high = (0.02, 0.42) if background == "room" else (0.0, 1.0)
            for _ in range(1 + int(random.random() * many[name])):
                marks.append((name, random.random(), low + (high - low) * random.random()))
    return marks


@lru_cache(maxsize=64)
def _mark(name: str, variant: int, background: str, size: int) -> Image:
    """Return a piece of clutter on a transparent ground, in a colour near that of the background."""
    image, draw = pillow()
    random = Random(f"{name} {variant}")
    side = 26 if name == "cloud" else 9
    pixel = size / 128 * ZOOM
    canvas = image.new("RGBA", (round(side * pixel),) * 2, (255, 255, 255, 0))
    pen = draw.Draw(canvas)
    c = side / 2

    def oval(x: float, y: float, rx: float, ry: float, fill: tuple[int, ...]) -> None:
        pen.ellipse(tuple(v * pixel for v in (x - rx, y - ry, x + rx, y + ry)), fill=fill)

    _, sky, near, ground, _, _ = GROUNDS[background]
    deep = _mixed(ground, (40, 50, 50), 0.28)
    match name:
        case "cloud":
            for _ in range(4):
                x, y = c + (random.random() - 0.5) * 14, c + (random.random() - 0.5) * 4
                oval(x, y, 3 + 3 * random.random(), 3.2, (250, 250, 252, 150))
            oval(c, c + 2, 10, 2.6, (250, 250, 252, 150))
        case "spark":
            r = 0.5 + 0.35 * variant / 3
            oval(c, c, r, r, (*_mixed(sky, (255, 255, 245), 0.75), 230))
        case "dot":
            r = 0.7 + 0.3 * variant
            oval(c, c, r, r, (*_mixed(sky, (130, 120, 130), 0.3), 200))
        case "pebble":
            oval(c, c, 1.3 + 0.3 * variant, 1 + 0.2 * variant, (*deep, 255))
            oval(c - 0.3, c - 0.4, 0.8 + 0.2 * variant, 0.5 + 0.1 * variant, (*_mixed(near, (255, 255, 255), 0.2), 255))
        case "blade":
            for lean in (-1.6, 0.0, 1.6):
                end = ((c + lean + random.random() - 0.5) * pixel, (c - 3 + random.random()) * pixel)
                pen.line((c * pixel, (c + 2) * pixel, *end), fill=(*deep, 255), width=round(0.7 * pixel))
        case _:
            light = (*_mixed(ground, (255, 255, 255), 0.4), 255)
            for x in (-3.6, 0.0):
                ends = tuple(v * pixel for v in (c + x, c - 1.6, c + x + 3.6, c + 1.6))
                pen.arc(ends, 0, 180, light, round(0.7 * pixel))
    mark: Image = canvas.resize((round(side * size / 128),) * 2, image.Resampling.BOX)
    return mark


def pillow() -> tuple[Any, Any]:
    """Return Pillow's modules Image and ImageDraw; raise HeedfulError if it is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise HeedfulError(f"pictures need the extra images: {install_command('images')}") from None
    return Image, ImageDraw
