"""A curve in the terminal: how a number went, step by step."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["curve"]

# The bits of the eight dots of a braille character, from the left column's top.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def curve(
    points: Sequence[tuple[float, float]], title: str, width: int = 60, height: int = 8, ascii_only: bool = False
) -> list[str]:
    """Return the lines of a picture: the title with the last value, the curve with its highest and lowest, the ends.

    >>> for line in curve([(0, 1), (50, 3), (100, 2)], "BLEU", width=16, height=2, ascii_only=True): print(line)
    BLEU 2.00
    3.00 |   *******
    1.00 |***
          0      100
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    labels = [_number(value) for value in (high, low, ys[-1])]
    margin = max(map(len, labels[:2])) + 2
    across, down = (1, 1) if ascii_only else (2, 4)
    columns, rows = max(4, width - margin) * across, height * down
    span = (xs[-1] - xs[0]) or 1.0
    cells = [[0] * (columns // across) for _ in range(height)]
    for column, value in enumerate(_values(points, columns, xs[0], span)):
        row = round((high - value) / ((high - low) or 1.0) * (rows - 1))
        bit = 1 if ascii_only else DOTS[column % 2][row % 4]
        cells[row // down][column // across] |= bit
    lines = [f"{title} {labels[2]}"]
    for number, cell in enumerate(cells):
        label = labels[0] if number == 0 else labels[1] if number == height - 1 else ""
        drawn = "".join((" *"[bit > 0]) if ascii_only else chr(0x2800 + bit) if bit else " " for bit in cell)
        lines.append(f"{label:>{margin - 2}} {'|' if ascii_only else '│'}{drawn}".rstrip())
    first, last = f"{xs[0]:,.0f}", f"{xs[-1]:,.0f}"
    return [*lines, " " * margin + first + last.rjust(max(len(last) + 1, columns // across - len(first)))]


def _values(points: Sequence[tuple[float, float]], columns: int, begin: float, span: float) -> list[float]:
    """Return the value in the middle of each column, on straight lines between the points."""
    found, at = [], 0
    for column in range(columns):
        x = begin + span * column / max(columns - 1, 1)
        while at + 2 < len(points) and points[at + 1][0] < x:
            at += 1
        (x0, y0), (x1, y1) = points[at], points[min(at + 1, len(points) - 1)]
        share = min(1.0, max(0.0, (x - x0) / (x1 - x0))) if x1 > x0 else 1.0
        found.append(y0 + share * (y1 - y0))
    return found


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
