"""Charts as SVG: lines with points, and bars in groups. Each series has its symbol, so that colour is not needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from heedful.draw.picture import Entry, Picture, clean, cut, decimal, heading, legend, number, rect, text_at, width_of
from heedful.errors import DataError

WIDTH = 640
NARROW = 340  # of what is meant for a phone
PLOT = 240  # height of the part inside the axes
# By series: the dashes of its line, and its point, drawn around (0, 0).
DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2")
POINTS = (
    '<circle r="3.5"/>',
    '<path d="M-3.5-3.5h7v7h-7z"/>',
    '<path d="M0-4.5L4.3 3.3H-4.3z"/>',
    '<path d="M0-4.8L4.8 0L0 4.8L-4.8 0z"/>',
    '<path d="M-3.5-3.5L3.5 3.5M3.5-3.5L-3.5 3.5" stroke-width="2"/>',
)


class Series(NamedTuple):
    """One line of a chart: its name, and as many x as y."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class _Frame(NamedTuple):
    """The part inside the axes."""

    left: float
    top: float
    right: float
    bottom: float


def lines(
    series: Sequence[Series], title: str, x_label: str, y_label: str, log_y: bool = False, width: float = WIDTH
) -> str:
    """Return a line chart as an SVG document; with `log_y`, the y axis is logarithmic and every y above 0."""
    for one in series:
        if len(one.x) != len(one.y):
            raise DataError(f"{one.name}: {len(one.x)} x for {len(one.y)} y")
        _check_finite([*one.x, *one.y], one.name)
        if log_y and any(y <= 0 for y in one.y):
            raise DataError(f"{one.name}: {min(one.y)} cannot be drawn on a logarithmic scale")
    xs, ys = [x for one in series for x in one.x], [y for one in series for y in one.y]
    if not xs:
        return _empty(title)
    x_ticks = ticks(min(0.0, *xs), max(xs), max(2, int(width // 100)))
    y_ticks = log_ticks(min(ys), max(ys)) if log_y else ticks(min(0.0, *ys), max(ys))
    head, top = _head(title, y_label, [Entry(_line_symbol(i), 34, one.name) for i, one in enumerate(series)], width)
    frame = _frame(top, y_ticks, width)
    scale = math.log10 if log_y else float
    x_at, y_at = _scale(x_ticks, frame.left, frame.right), _scale([scale(t) for t in y_ticks], frame.bottom, frame.top)
    body = [*head, *_levels(frame, y_ticks, lambda y: y_at(scale(y)))]
    body += [text_at(x_at(tick), frame.bottom + 18, _tick_label(tick), "q m") for tick in x_ticks]
    for i, one in enumerate(series):
        body.append(_line(i, one, [(x_at(x), y_at(scale(y))) for x, y in zip(one.x, one.y, strict=True)]))
    body.append(text_at((frame.left + frame.right) / 2, frame.bottom + 38, clean(x_label), "q m"))
    ends = "; ".join(f"{one.name}: {number(one.y[-1])} at {number(one.x[-1])}" for one in series if one.x)
    return str(Picture(width, frame.bottom + 48, title, f"{y_label} by {x_label}. {ends}", "\n".join(body)))


def bars(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], title: str, y_label: str) -> str:
    """Return bars in groups as an SVG document; each has its value above it, which must not be negative."""
    if not _bars_can_be_drawn(groups, series):
        return _empty(title)
    y_ticks = ticks(0.0, max(max(values) for _, values in series))
    width = max(WIDTH, 70 + (len(series) * 30 + 22) * len(groups))
    head, top = _head(title, y_label, _bar_entries(series), width)
    frame = _frame(top, y_ticks, width)
    y_at = _scale(y_ticks, frame.bottom, frame.top)
    body = [*head, *_levels(frame, y_ticks, y_at)]
    each = (frame.right - frame.left) / len(groups)
    wide = min((each - 18) / len(series), 46)
    for g, group in enumerate(groups):
        middle = frame.left + (g + 0.5) * each
        for i, (name, values) in enumerate(series):
            x, y = middle + (i - len(series) / 2) * wide, y_at(values[g])
            label = text_at(x + wide / 2, y - 6, number(values[g]), "q m")
            drawn = _bar(i, x + 1.5, y, wide - 3, frame.bottom - y)
            body.append(f"<g><title>{clean(f'{group}, {name}: {number(values[g])}')}</title>{drawn}{label}</g>")
        body.append(text_at(middle, frame.bottom + 19, clean(cut(group, each - 4)), "m"))
    body.append(f'<path class="l" d="M{decimal(frame.left)} {decimal(frame.bottom)}H{decimal(frame.right)}"/>')
    return str(Picture(width, frame.bottom + 32, title, _description(groups, series, y_label), "\n".join(body)))


def rows(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], title: str, label: str) -> str:
    """Return the bars of `bars` horizontally, for narrow screens; a value is at the end of its bar."""
    if not _bars_can_be_drawn(groups, series):
        return _empty(title)
    head, top = _head(title, label, _bar_entries(series), NARROW)
    left = 16 + min(120, max(width_of(group) for group in groups))
    most = ticks(0.0, max(max(values) for _, values in series))[-1]
    x_at = _scale((0.0, most), left, NARROW - 46)
    y, body = top + 14, list(head)
    for g, group in enumerate(groups):
        body.append(text_at(left - 8, y + 9 * len(series) + 4, clean(cut(group, 120)), "r"))
        for i, (_, values) in enumerate(series):
            value = text_at(x_at(values[g]) + 6, y + 18 * i + 12, number(values[g]), "q")
            body.append(_bar(i, left, y + 18 * i, x_at(values[g]) - left, 15) + value)
        y += 18 * len(series) + 14
    return str(Picture(NARROW, y, title, _description(groups, series, label), "\n".join(body)))


def swatch(i: int) -> str:
    """Return the symbol of series `i`, for a page that names it beside its chart."""
    bar = _bar(i, 1, 1, 20, 12)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="heedful" width="22" height="14" aria-hidden="true">{bar}</svg>'
    )


def _bars_can_be_drawn(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]]) -> bool:
    """Raise DataError for values that are no bars; return False if there are none."""
    for name, values in series:
        if len(values) != len(groups):
            raise DataError(f"{name}: {len(values)} values for {len(groups)} groups")
        _check_finite(values, name)
        if any(value < 0 for value in values):
            raise DataError(f"{name}: {min(values)} cannot be drawn as a bar: it is negative")
    return bool(groups and series)


def _bar_entries(series: Sequence[tuple[str, Sequence[float]]]) -> list[Entry]:
    return [Entry(_bar(i, 2, -1, 20, 15), 24, name) for i, (name, _) in enumerate(series)]


def _description(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], label: str) -> str:
    """Return all bars as text."""
    each = [f"{g}: " + ", ".join(f"{name} {number(v[i])}" for name, v in series) for i, g in enumerate(groups)]
    return f"{label}. {'; '.join(each)}"


def _head(title: str, label: str, entries: Sequence[Entry], width: float) -> tuple[list[str], float]:
    """Return title, legend and axis label, and the y below them."""
    titles, height = heading(title, width, 22)
    top = height + 12
    key, height = legend(entries, 8, top, width - 16)
    top += height + 16
    return [*titles, key, text_at(8, top, clean(label), "q")], top


def _frame(top: float, y_ticks: Sequence[float], width: float) -> _Frame:
    """Return the part inside the axes, under a head that ends at `top`."""
    left = 18 + max(width_of(_tick_label(t), 12) for t in y_ticks)
    return _Frame(left, top + 30, width - 16, top + 30 + PLOT)


def _levels(frame: _Frame, y_ticks: Sequence[float], y_at: Callable[[float], float]) -> list[str]:
    """Return the horizontal lines, with their numbers at the left."""
    left, right = decimal(frame.left), decimal(frame.right)
    return [
        f'<path class="l" d="M{left} {decimal(y_at(tick))}H{right}"/>'
        + text_at(frame.left - 7, y_at(tick) + 4, _tick_label(tick), "q r")
        for tick in y_ticks
    ]


def _scale(marks: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    """Return the map from numbers to coordinates with the first mark at `start` and the last at `end`."""
    low, high = marks[0], marks[-1]
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _line(i: int, one: Series, places: Sequence[tuple[float, float]]) -> str:
    """Return one line with at most about 24 of its points."""
    path = "".join(f"{'L' if n else 'M'}{decimal(x)} {decimal(y)}" for n, (x, y) in enumerate(places))
    every = max(1, math.ceil(len(places) / 24))
    parts = [f'<g class="s{i % 5}">']
    if len(places) > 1:
        parts.append(f'<path class="a" stroke-dasharray="{DASHES[i % 5] or "none"}" d="{path}"/>')
    for n, (x, y) in enumerate(places):
        if n % every == 0 or n == len(places) - 1:
            label = clean(f"{one.name}: {number(one.y[n])} at {number(one.x[n])}")
            at = f"translate({decimal(x)} {decimal(y)})"
            parts.append(f'<g class="b" transform="{at}"><title>{label}</title>{POINTS[i % 5]}</g>')
    return "".join(parts) + "</g>"


def _line_symbol(i: int) -> str:
    line = f'<path class="a" stroke-dasharray="{DASHES[i % 5] or "none"}" d="M0 7H34"/>'
    return f'<g class="s{i % 5}">{line}<g class="b" transform="translate(17 7)">{POINTS[i % 5]}</g></g>'


def _bar(i: int, x: float, y: float, wide: float, high: float) -> str:
    """Return a bar: pale with an outline, full, or striped, so that series differ without colour."""
    kind = i % 3
    box = rect((x, y), (wide, high), "b" if kind == 1 else "b p", ' rx="1.5"')
    if kind == 2 and high >= 0.5:  # stripes are a wide dashed line; one of length 0 would be drawn as a line
        middle, low = decimal(x + wide / 2), decimal(y + high)
        box += (
            f'<path d="M{middle} {low}V{decimal(y)}" stroke="currentColor" stroke-width="{decimal(wide)}" '
            'stroke-dasharray="2 3"/>'
        )
    return f'<g class="s{i % 5}">{box}</g>'


def _empty(title: str) -> str:
    message = "There is no data to draw."
    body = text_at(8, 20, clean(cut(title, 380, 15)), "h") + text_at(8, 44, message, "q")
    return str(Picture(400, 58, title, message, body))


def _check_finite(values: Sequence[float], what: str) -> None:
    """Raise DataError for a number that is not finite."""
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
    """Return round numbers that enclose `low` to `high`, for a logarithmic scale.

    >>> log_ticks(0.3, 8)
    (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps, every = ((1, 2, 5), 1) if last - first <= 3 else ((1,), 1 + (last - first) // 8)
    all_ = [float(f"{m}e{e}") for e in range(first, last + every, every) for m in steps]
    start = max((i for i, t in enumerate(all_) if t <= low), default=0)
    stop = next((i for i, t in enumerate(all_) if t >= high), len(all_) - 1)
    return tuple(all_[start : max(stop, start + 1) + 1])


def _tick_label(value: float) -> str:
    """Return the label of a tick.

    >>> _tick_label(0.25), _tick_label(20.0), _tick_label(12000.0)
    ('0.25', '20', '12,000')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:.6g}"
