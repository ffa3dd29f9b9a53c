"""The drawings of the kinds: polygons and lines on a square of 100 × 100, y downwards, each with the name of a paint.

`main`, `dark` and `light` are the object's colour and its two shades; the other paints are the same for every object.
Nothing is drawn here; this module imports no library for images, so that boxes can be computed without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import cos, pi, radians, sin
from typing import NamedTuple

Point = tuple[float, float]
Points = list[Point]

EDGE = 2.2  # half the width of the outline; it belongs to the box
TILTS = (-7, 0, 7)  # degrees


class Piece(NamedTuple):
    """A filled polygon, or a line if it has a width. The outline is drawn around all `edged` pieces together."""

    paint: str
    points: Points
    width: float = 0.0
    edged: bool = True


class Drawing(NamedTuple):
    """A kind at one tilt: its pieces around the origin, and its width and height with the outline."""

    pieces: tuple[Piece, ...]
    width: float
    height: float


@cache
def drawing(kind: str, tilt: int = 0) -> Drawing:
    """Return the drawing of a kind, turned by `tilt` degrees; the centre of its box is the origin."""
    c, s = cos(radians(tilt)), sin(radians(tilt))
    turned = [p._replace(points=[(x * c - y * s, x * s + y * c) for x, y in p.points]) for p in DRAWINGS[kind]]
    left, top, right, bottom = _extent(turned)
    x0, y0 = (left + right) / 2, (top + bottom) / 2
    pieces = tuple(p._replace(points=[(x - x0, y - y0) for x, y in p.points]) for p in turned)
    return Drawing(pieces, round(right - left, 6), round(bottom - top, 6))


def _extent(pieces: Sequence[Piece]) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of what is drawn."""
    spans = [(x, y, piece.width / 2 + EDGE * piece.edged) for piece in pieces for x, y in piece.points]
    return (
        min(x - r for x, _, r in spans),
        min(y - r for _, y, r in spans),
        max(x + r for x, _, r in spans),
        max(y + r for _, y, r in spans),
    )


def _points(points: str | Points) -> Points:
    """Return points that may be written as `x,y x,y`."""
    if not isinstance(points, str):
        return points
    numbers = [tuple(map(float, point.split(","))) for point in points.split()]
    return [(x, y) for x, y in numbers]


def _smooth(text: str, closed: bool = True, steps: int = 6) -> Points:
    """Return a Catmull–Rom curve through points."""
    points = _points(text)
    n = len(points)
    made: Points = []
    for i in range(n if closed else n - 1):
        four = [points[j % n if closed else min(max(j, 0), n - 1)] for j in (i - 1, i, i + 1, i + 2)]
        for step in range(steps):
            t = step / steps
            weights = (
                -0.5 * t + t * t - 0.5 * t**3,
                1 - 2.5 * t * t + 1.5 * t**3,
                0.5 * t + 2 * t * t - 1.5 * t**3,
                -0.5 * t * t + 0.5 * t**3,
            )
            made.append(
                (
                    sum(w * p[0] for w, p in zip(weights, four, strict=True)),
                    sum(w * p[1] for w, p in zip(weights, four, strict=True)),
                )
            )
    return made if closed else [*made, points[-1]]


def _oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0, arc: tuple[float, float] = (0, 360)) -> Points:
    """Return an ellipse, turned by some degrees, or a part of it from one angle to another."""
    c, s = cos(radians(turn)), sin(radians(turn))
    angles = [radians(arc[0] + (arc[1] - arc[0]) * i / 36) for i in range(36 + (arc != (0, 360)))]
    return [(x + rx * cos(a) * c - ry * sin(a) * s, y + rx * cos(a) * s + ry * sin(a) * c) for a in angles]


def _box(x0: float, y0: float, x1: float, y1: float, r: float = 0.0) -> Points:
    """Return a rectangle with rounded corners."""
    if not r:
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    corners = ((x1 - r, y1 - r, 0), (x0 + r, y1 - r, 90), (x0 + r, y0 + r, 180), (x1 - r, y0 + r, 270))
    return [point for x, y, a in corners for point in _oval(x, y, r, r, a, (0, 90))]


def _star(x: float, y: float, outer: float, inner: float, points: int = 5) -> Points:
    angles = [(pi * i / points - pi / 2, inner if i % 2 else outer) for i in range(2 * points)]
    return [(x + r * cos(a), y + r * sin(a)) for a, r in angles]


def _body(paint: str, points: str | Points) -> Piece:
    """Return a part of the silhouette with straight edges."""
    return Piece(paint, _points(points))


def _blob(paint: str, points: str) -> Piece:
    """Return a part of the silhouette with a curved edge."""
    return Piece(paint, _smooth(points))


def _inner(paint: str, points: str | Points) -> Piece:
    """Return a detail, without an outline."""
    return Piece(paint, _points(points), edged=False)


def _line(paint: str, width: float, points: str) -> Piece:
    """Return a curve of some width, a part of the silhouette."""
    return Piece(paint, _smooth(points, closed=False) if points.count(",") > 2 else _points(points), width)


def _inner_line(paint: str, width: float, points: str) -> Piece:
    return _line(paint, width, points)._replace(edged=False)


def _scallop(x: float) -> Points:
    """Return a piece of the lower edge of an umbrella, from right to left."""
    return _oval(x, 54, 17.5, 9, 0, (360, 180))


def _eye(x: float, y: float, r: float = 4.5) -> tuple[Piece, Piece]:
    return _inner("white", _oval(x, y, r, r)), _inner("ink", _oval(x + r * 0.2, y, r * 0.62, r * 0.62))


def _wheel(x: float, y: float, r: float) -> tuple[Piece, Piece]:
    return _body("tyre", _oval(x, y, r, r)), _inner("steel", _oval(x, y, r * 0.45, r * 0.45))


PETALS = [(50 + 21 * sin(radians(a)), 34 - 21 * cos(radians(a))) for a in range(0, 360, 60)]
TOWER = "0,38 7,38 7,46 11,46 11,38 17,38 17,46 21,46 21,38 28,38 28,98 0,98"
DRAWINGS: dict[str, tuple[Piece, ...]] = {
    "bird": (
        _line("beak", 4, "46,70 44,88"),
        _line("beak", 4, "58,70 58,88"),
        _blob("dark", "26,52 4,34 0,48 6,62 24,66"),
        _body("beak", "88,26 104,33 88,40"),
        _blob("main", "16,56 34,42 54,36 62,22 76,14 90,24 88,42 78,62 58,76 34,72"),
        _inner("dark", _smooth("30,50 48,46 64,52 54,64 38,62")),
        _inner("light", _oval(70, 58, 8, 10, 30)),
        *_eye(77, 28, 6),
    ),
    "fish": (
        _body("dark", _smooth("30,50 16,34 0,16 4,36 9,50 4,64 0,84 16,66")),
        _blob("dark", "44,32 50,10 66,10 76,18 72,32"),
        _blob("dark", "50,68 54,88 64,88 68,66"),
        _blob("main", "22,50 38,30 64,22 88,34 100,51 88,66 64,77 38,70"),
        _inner("dark", _smooth("38,33 44,29 47,50 44,71 38,67 41,50")),
        _inner("dark", _smooth("58,25 65,24 68,50 65,76 58,75 61,50")),
        _inner("light", _smooth("72,66 84,62 92,60 82,70")),
        *_eye(84, 43, 6.5),
    ),
    "cat": (
        _line("main", 9, "66,84 90,82 92,62 84,48"),
        _blob("main", "36,48 64,48 74,76 72,96 50,98 28,96 26,76"),
        _body("main", "22,30 22,0 44,14"),
        _body("main", "78,30 78,0 56,14"),
        _blob("main", "50,10 74,16 82,36 70,54 50,58 30,54 18,36 26,16"),
        _inner("blush", "26,18 26,8 35,14"),
        _inner("blush", "74,18 74,8 65,14"),
        _inner("light", _oval(50, 80, 11, 14)),
        _inner_line("dark", 3, "40,97 40,86"),
        _inner_line("dark", 3, "60,97 60,86"),
        *_eye(37, 33, 7),
        *_eye(61, 33, 7),
        _inner("blush", "46,43 54,43 50,48"),
    ),
    "dog": (
        _line("main", 8, "12,46 2,36 0,20"),
        _body("main", _box(14, 60, 24, 94, 4)),
        _body("dark", _box(28, 60, 37, 92, 4)),
        _body("dark", _box(52, 60, 61, 92, 4)),
        _body("main", _box(64, 60, 74, 94, 4)),
        _blob("main", "10,46 30,40 60,42 76,44 78,66 56,74 24,74 10,66"),
        _blob("main", "60,14 76,8 90,18 104,28 104,40 90,46 80,54 64,50 56,32"),
        _blob("dark", "62,10 72,12 70,34 62,46 52,40 52,22"),
        _inner("ink", _oval(102, 28, 5, 5)),
        _inner("light", _oval(44, 68, 18, 5)),
        _inner_line("collar", 5, "64,52 80,54"),
        *_eye(83, 22, 5.5),
    ),
    "rabbit": (
        _body("light", _oval(14, 78, 11, 11)),
        _body("main", _oval(50, 16, 8, 24, -12)),
        _body("main", _oval(68, 16, 8, 24, 10)),
        _blob("main", "14,76 24,56 46,50 62,60 70,80 72,98 44,100 18,96"),
        _blob("main", "60,34 80,38 88,52 80,64 62,66 46,58 46,42"),
        _inner("blush", _oval(50, 16, 3.5, 15, -12)),
        _inner("blush", _oval(68, 16, 3.5, 15, 10)),
        _inner_line("dark", 3, "28,94 26,80 38,72"),
        _inner("blush", _oval(87, 52, 4, 3.5)),
        *_eye(71, 47, 6),
    ),
    "butterfly": (
        _inner_line("ink", 2.5, "48,24 42,10 34,6"),
        _inner_line("ink", 2.5, "52,24 58,10 66,6"),
        _blob("main", "49,44 34,16 10,8 0,24 8,46 28,54"),
        _blob("main", "51,44 66,16 90,8 100,24 92,46 72,54"),
        _blob("dark", "48,50 26,52 12,66 20,88 36,86 46,66"),
        _blob("dark", "52,50 74,52 88,66 80,88 64,86 54,66"),
        _inner("light", _oval(20, 27, 9, 8)),
        _inner("light", _oval(80, 27, 9, 8)),
        _inner("main", _oval(28, 70, 6, 7)),
        _inner("main", _oval(72, 70, 6, 7)),
        _body("wood", _oval(50, 50, 4.5, 28)),
    ),
    "turtle": (
        _blob("skin", "16,62 0,66 8,74 24,72"),
        _body("skin", _oval(30, 74, 9, 12, 10)),
        _body("skin", _oval(68, 74, 9, 12, -10)),
        _blob("skin", "74,58 84,40 98,38 106,50 98,62 82,70"),
        _blob("main", "10,66 16,40 34,22 56,22 74,40 82,66 46,72"),
        _inner_line("dark", 3.5, "36,24 32,46 36,68"),
        _inner_line("dark", 3.5, "56,24 60,46 58,68"),
        _inner_line("dark", 3.5, "14,48 46,44 78,48"),
        _inner_line("light", 3, "28,32 44,27 56,29"),
        *_eye(96, 47, 5),
    ),
    "snail": (
        _line("skin", 4, "88,50 84,28"),
        _line("skin", 4, "94,50 100,30"),
        _blob("skin", "2,90 20,76 60,76 76,66 80,50 96,46 102,58 98,78 84,90 40,92"),
        _body("main", _oval(42, 48, 37, 35)),
        _inner_line("dark", 5.5, "74,60 62,74 36,76 16,58 20,34 42,24 62,36 62,56 46,64 34,54 40,42 48,46"),
        _inner_line("light", 4, "20,32 34,19 50,19"),
        *_eye(94, 58, 4.5),
    ),
    "elephant": (
        _line("dark", 4, "8,44 0,56 2,68"),
        _body("main", _box(14, 60, 29, 96, 4)),
        _body("dark", _box(32, 60, 45, 94, 4)),
        _body("main", _box(50, 60, 65, 96, 4)),
        _blob("main", "6,50 16,26 40,18 62,24 70,50 64,74 38,78 12,74"),
        _blob("main", "60,22 78,16 94,28 98,54 96,76 104,82 104,92 92,94 84,80 84,60 66,60 56,44"),
        _blob("white", "84,58 92,64 104,62 94,72 84,68"),
        _blob("dark", "52,20 68,22 72,42 64,60 48,54 42,36"),
        _inner("light", _oval(56, 38, 7, 11, -15)),
        *_eye(84, 36, 5.5),
    ),
    "snake": (
        _inner_line("collar", 2.5, "90,26 106,30"),
        _line("main", 15, "4,88 22,94 44,90 46,76 26,66 24,48 44,40 68,52 80,46 78,30"),
        _inner_line("light", 4.5, "6,88 22,93 44,89 46,76 26,66 24,48 44,40 68,52 80,46"),
        _blob("main", "66,28 72,12 88,12 98,24 92,34 74,38"),
        *_eye(84, 21, 5.5),
    ),
    "tree": (
        _body("wood", "43,60 57,60 60,100 40,100"),
        _blob("main", "50,2 70,8 78,22 92,34 90,54 74,66 58,70 42,70 26,66 10,54 8,34 22,22 30,8"),
        _inner("light", _oval(38, 22, 12, 8, -30)),
        _inner_line("dark", 4, "24,52 32,58 42,56"),
        _inner_line("dark", 4, "60,46 70,48 77,41"),
        _inner_line("dark", 4, "52,32 60,34 66,28"),
    ),
    "flower": (
        _line("stem", 5, "50,50 49,76 50,100"),
        _body("stem", _oval(36, 84, 14, 6, 25)),
        _body("stem", _oval(64, 88, 14, 6, -25)),
        *(_body("main", _oval(x, y, 14, 14)) for x, y in PETALS),
        *(_inner("main", _oval(x, y, 14, 14)) for x, y in PETALS),
        *(_inner("dark", _oval(x, y, 4, 4)) for x, y in PETALS),
        _inner("wood", _oval(50, 34, 11, 11)),
        _inner("gold", _oval(50, 34, 8, 8)),
    ),
    "mushroom": (
        _blob("cream", "36,50 64,50 66,76 72,96 50,100 28,96 34,76"),
        _blob("main", "2,54 8,24 32,4 50,2 68,4 92,24 98,54 74,60 50,58 26,60"),
        _inner("white", _oval(32, 26, 9, 8)),
        _inner("white", _oval(62, 20, 7, 6)),
        _inner("white", _oval(76, 42, 7, 6)),
        _inner("white", _oval(50, 44, 6, 5)),
        _inner("white", _oval(17, 46, 5, 5)),
        *_eye(42, 74, 4),
        *_eye(57, 74, 4),
    ),
    "house": (
        _body("brick", _box(70, 8, 82, 34)),
        _body("main", _box(12, 46, 88, 98)),
        _body("dark", "50,2 102,50 -2,50"),
        _inner_line("main", 3.5, "20,40 80,40"),
        _inner_line("main", 3.5, "32,29 68,29"),
        _inner("ink", _box(41, 66, 61, 98)),
        _inner("wood", _box(43, 68, 59, 98)),
        _inner("ink", _box(18, 58, 36, 76)),
        _inner("pane", _box(20, 60, 34, 74)),
        _inner("ink", _box(66, 58, 84, 76)),
        _inner("pane", _box(68, 60, 82, 74)),
    ),
    "castle": (
        _inner_line("ink", 2.5, "50,28 50,-4"),
        _inner("collar", "50,-6 68,0 50,7"),
        _body("dark", "34,28 41,28 41,34 46,34 46,28 54,28 54,34 59,34 59,28 66,28 66,70 34,70"),
        _body("main", _box(22, 56, 78, 98)),
        *(_body("main", [(x + left, y) for x, y in _points(TOWER)]) for left in (-2, 74)),
        _inner("ink", [*_oval(50, 78, 12, 12, 0, (180, 360)), (62, 98), (38, 98)]),
        _inner("wood", [*_oval(50, 79, 9.5, 10, 0, (180, 360)), (59.5, 98), (40.5, 98)]),
        _inner("ink", _box(8, 56, 16, 72, 3)),
        _inner("ink", _box(84, 56, 92, 72, 3)),
        _inner("ink", _box(46, 42, 54, 54, 3)),
        _inner_line("dark", 3, "28,64 36,64"),
        _inner_line("dark", 3, "64,88 70,88"),
    ),
    "car": (
        _blob("main", "2,66 6,50 24,46 34,26 52,22 70,26 82,46 100,52 104,68 98,76 50,77 6,76"),
        _inner("pane", "30,46 38,31 50,29 50,46"),
        _inner("pane", "55,46 55,29 66,31 75,46"),
        _inner_line("dark", 3, "52,48 52,72"),
        _inner_line("light", 3.5, "8,57 98,57"),
        _inner("gold", _oval(100, 61, 4, 5)),
        *_wheel(24, 76, 13),
        *_wheel(80, 76, 13),
    ),
    "bus": (
        _body("main", _box(0, 20, 104, 78, 8)),
        *(_inner("pane", _box(x, 28, x + 17, 48, 2)) for x in (7, 28, 49)),
        _inner("pane", _box(72, 28, 98, 48, 3)),
        _inner("dark", _box(72, 52, 90, 76)),
        _inner_line("light", 5, "3,60 68,60"),
        _inner("gold", _oval(100, 66, 4, 4)),
        *_wheel(22, 80, 12),
        *_wheel(82, 80, 12),
    ),
    "boat": (
        _line("wood", 5, "48,0 48,70"),
        _body("white", "53,8 53,58 92,58"),
        _body("light", "43,16 43,58 12,58"),
        _blob("main", "0,66 50,68 102,64 90,84 76,94 28,94 12,84"),
        _inner_line("dark", 4, "10,78 50,80 90,77"),
    ),
    "plane": (
        _body("dark", "8,44 -2,16 14,16 30,42"),
        _body("dark", "44,40 34,16 46,16 66,42"),
        _blob("main", "0,50 16,40 50,38 84,38 102,48 104,56 92,64 50,66 16,60"),
        _body("main", "40,56 66,56 36,88 22,88"),
        _inner("pane", _smooth("84,42 96,45 98,51 86,51")),
        *(_inner("pane", _oval(x, 48, 3.6, 3.6)) for x in (34, 46, 58, 70)),
        _inner("dark", "8,50 30,50 30,55 10,55"),
    ),
    "rocket": (
        _blob("flame", "40,78 50,76 60,78 56,94 50,106 44,94"),
        _blob("dark", "34,52 20,66 16,88 28,82 40,78"),
        _blob("dark", "66,52 80,66 84,88 72,82 60,78"),
        _blob("main", "50,-6 64,12 70,40 66,66 60,80 40,80 34,66 30,40 36,12"),
        _inner("dark", _smooth("50,-5 60,7 62,16 50,18 38,16 40,7")),
        _inner("ink", _oval(50, 36, 11, 11)),
        _inner("pane", _oval(50, 36, 8.5, 8.5)),
        _inner_line("light", 4, "38,66 50,68 62,66"),
    ),
    "balloon": (
        _inner_line("ink", 2.5, "50,70 56,80 46,90 50,102"),
        _body("dark", "50,64 58,76 42,76"),
        _blob("main", "50,0 74,8 82,32 70,56 50,70 30,56 18,32 26,8"),
        _inner("light", _oval(36, 24, 6, 12, 25)),
    ),
    "umbrella": (
        _line("wood", 5, "50,40 50,84 56,96 68,94 69,84"),
        _line("wood", 5, "50,6 50,-2"),
        _body("main", [*_oval(50, 54, 52, 48, 0, (180, 360)), *(point for x in (85, 50, 15) for point in _scallop(x))]),
        _inner(
            "dark", [*_oval(50, 54, 50, 46, 0, (180, 270)), *_smooth("50,8 38,24 33,53", closed=False), *_scallop(15)]
        ),
        _inner("light", [*_smooth("33,53 38,24 50,8 62,24 67,53", closed=False), *_scallop(50)]),
    ),
    "kite": (
        _inner_line("ink", 2.5, "50,66 58,78 46,88 52,102"),
        _body("main", "50,-6 84,26 50,70 16,26"),
        _inner("light", "50,-4 50,26 18,26"),
        _inner("dark", "50,26 82,26 50,68"),
        _body("collar", "53,80 62,74 63,86"),
        _body("collar", "53,80 44,75 44,87"),
    ),
    "cup": (
        _line("main", 8, "74,40 96,38 98,58 74,70"),
        _body("light", _oval(46, 94, 44, 7)),
        _blob("main", "8,26 46,30 84,26 82,60 70,86 46,91 22,86 10,60"),
        _body("light", _oval(46, 26, 38, 10)),
        _inner("wood", _oval(46, 27, 31, 6.5)),
        _inner_line("white", 5, "36,12 31,4 38,-4"),
        _inner_line("white", 5, "56,12 51,4 58,-4"),
        _inner_line("dark", 5, "14,56 46,61 79,56"),
    ),
    "key": (
        _line("main", 12, "40,50 100,50"),
        _body("main", _box(70, 50, 80, 74, 2)),
        _body("main", _box(88, 50, 98, 78, 2)),
        _body("main", _oval(24, 50, 27, 27)),
        _inner("ink", _oval(21, 50, 13, 13)),
        _inner("pane", _oval(21, 50, 10.5, 10.5)),
        _inner_line("light", 3.5, "52,47.5 98,47.5"),
        _inner_line("light", 4, "6,38 16,29 28,28"),
    ),
    "bell": (
        _line("gold", 6, "44,10 44,1 56,1 56,10"),
        _body("gold", _oval(50, 92, 11, 9)),
        _blob("main", "50,6 68,14 76,40 82,66 98,86 50,90 2,86 18,66 24,40 32,14"),
        _inner("dark", _smooth("14,74 50,80 86,74 94,85 50,89 6,85")),
        _inner_line("light", 6, "36,24 31,44 28,60"),
    ),
    "chair": (
        _line("dark", 7, "28,62 28,92"),
        _line("dark", 7, "72,62 72,92"),
        _body("main", _box(16, -2, 84, 46, 12)),
        _inner("dark", _box(27, 9, 73, 46, 7)),
        _inner("pane", _box(29.5, 11.5, 70.5, 46, 6)),
        _inner("dark", _box(36.5, 8, 45, 46)),
        _inner("main", _box(38, 8, 43.5, 46)),
        _inner("dark", _box(55, 8, 63.5, 46)),
        _inner("main", _box(56.5, 8, 62, 46)),
        _line("main", 9, "10,66 7,104"),
        _line("main", 9, "90,66 93,104"),
        _body("main", "18,44 82,44 97,64 97,74 3,74 3,64"),
        _inner("light", "20,46 80,46 92,62 8,62"),
    ),
    "star": (
        _body("main", _star(50, 54, 54, 24)),
        _inner("light", "50,6 50,54 37,35"),
        _inner("dark", "50,54 100,39 72,61"),
        _inner("dark", "50,54 80,96 50,78"),
        _inner("light", "50,54 0,38 34,38"),
    ),
    "heart": (
        _blob("main", "50,96 24,74 4,50 2,24 18,6 38,8 50,24 62,8 82,6 98,24 96,50 76,74"),
        _inner("light", _oval(22, 26, 7, 12, 30)),
        _inner_line("dark", 4, "60,82 78,64 90,46"),
    ),
    "triangle": (
        _body("main", "50,4 104,94 -4,94"),
        _inner("dark", "4,93 96,93 88,80 12,80"),
        _inner_line("light", 4.5, "47,22 24,60"),
    ),
    "square": (
        _body("main", _box(6, 6, 94, 94)),
        _inner("dark", "94,6 94,94 6,94 20,80 80,80 80,20"),
        _inner("light", "6,6 94,6 88,12 12,12 12,88 6,94"),
    ),
    "apple": (
        _line("wood", 6, "50,24 51,10 57,0"),
        _blob("stem", "54,16 66,2 84,2 78,14 64,19"),
        _blob("main", "50,24 66,18 88,24 97,48 88,78 68,98 50,93 32,98 12,78 3,48 12,24 34,18"),
        _inner("light", _oval(24, 42, 7, 13, 15)),
        _inner_line("dark", 5, "72,86 84,70 88,56"),
    ),
    "banana": (
        _body("wood", "84,0 95,3 91,18 80,16"),
        _blob("main", "82,12 92,14 98,40 86,70 58,90 24,94 2,84 2,74 30,74 56,62 72,42 78,24"),
        _inner_line("dark", 4, "86,24 82,48 62,70 32,83"),
        _inner_line("light", 3.5, "79,32 70,53 52,68"),
        _inner("wood", _oval(3, 79, 4, 6)),
    ),
    "carrot": (
        _body("stem", _oval(62, 12, 7, 19, -18)),
        _body("stem", _oval(88, 38, 7, 19, -72)),
        _body("stem", _oval(83, 17, 7, 21, 45)),
        _blob("main", "62,22 78,38 70,58 44,78 8,98 1,92 22,56 42,30"),
        _inner_line("dark", 3.5, "40,36 50,46"),
        _inner_line("dark", 3.5, "56,66 46,57"),
        _inner_line("dark", 3.5, "24,58 32,66"),
        _inner_line("light", 4, "54,31 44,40"),
    ),
}
