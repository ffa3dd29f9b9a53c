"""Heat maps for the terminal: target words down, source words across as numbers.

Only numbers and shades have to line up. The words are in a legend and at the ends of the rows, so any script can be
shown in any font; the shades need no colour.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from rich.cells import cell_len

from heedful.draw import all_heads
from heedful.draw.picture import NO_WEIGHTS, NO_WORDS
from heedful.trace import END, Text, Trace
from heedful.trace.alarms import warnings
from heedful.trace.model_attention import AttentionGroup
from heedful.trace.trace import right_to_left, sinks_apart

# The least weight of each shade, with block characters and in plain ASCII.
SHADES = ((0.0, " ", " "), (0.05, "·", "."), (0.15, "░", "-"), (0.35, "▒", "+"), (0.60, "▓", "#"), (0.85, "█", "@"))
LEFT = 4  # columns of the row's number
WORD = 18  # columns for the word at the end of a row at most
SHORT = 32  # words of a side of the heat map below the table of heads
ROWS = 24  # heads in the table of a word
PANELS = 3  # of that table, if all words are shown
NARROWEST = 12  # columns of a pair of words
LEFT_TO_RIGHT = "\u200e"
CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = {chr(c) for c in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def heatmap(
    trace: Trace, width: int = 80, ascii_only: bool = False, confidence: bool = True, sinks: str | None = None
) -> str:
    """Return the weights between words as text of at most `width` columns; long sentences get several panels.

    At the right are the confidences of the target words, unless `confidence` is False or the trace has none. The
    read-out and the warnings follow below. `sinks` is "apart" or "keep", as in `sinks_apart`.
    """
    whole, trace = trace, sinks_apart(trace, sinks)
    weights = trace.checked_words()
    if weights is None and trace.source.tokens == (END,):
        return NO_WORDS
    if weights is None:
        return "\n".join([*_legend(trace, width, ascii_only), *textwrap.wrap(NO_WEIGHTS, width)])
    targets = [cut_columns(w.text, WORD, ascii_only) for w in trace.target.words]
    if confidence and trace.scored and not (trace.inside or trace.caption):
        targets = [f"{share:>4.0%} {word}" for share, word in zip(trace.confidences(), targets, strict=True)]
        right = "  conf"
    else:
        right = ""
    first = trace.generated_from
    rows = _RowLabels([str(n) for n in range(1, len(targets) + 1)], targets, first.target)
    map_ = _Map(weights, _numbers(trace.source, trace.target if trace.inside else None), first.source)
    panels = _panels(map_, rows, trace.source.right_to_left, (width, ascii_only), right)
    captions = [trace.readout_caption, *warnings(whole)]
    if first.target is not None:
        captions.insert(0, f"{'|' if ascii_only else '│'} generated from word {first.target + 1} on")
    below = [line for text in captions for line in _lines(text, width, ascii_only)]
    scale = _scale("weight" if trace.readout.attention else "share", width, ascii_only)
    return "\n".join([*_legend(trace, width, ascii_only), "", *panels, *scale, *below])


class _Map(NamedTuple):
    """The weights of a heat map, the numbers of its columns, and before which one a line is drawn."""

    weights: NDArray[np.float32]
    numbers: Sequence[int]
    line: int | None = None


class _RowLabels(NamedTuple):
    """The rows of a heat map: what is at their left and at their right, and before which one a line is drawn."""

    left: Sequence[str]
    right: Sequence[str]
    line: int | None = None


def _panels(map_: _Map, rows: _RowLabels, reverse: bool, how: tuple[int, bool], right: str = "") -> list[str]:
    """Return the map in as many panels as the width needs, an empty line after each.

    With `reverse` the first column is at the right. `how` is the width, and whether only ASCII is used; `right` is the
    heading of what is at the right.
    """
    width, ascii_only = how
    left = max(LEFT, *map(columns, rows.left))
    tail = 2 + max(map(columns, rows.right), default=0)
    cell = max(3, len(str(max(map_.numbers, default=1))) + 1)  # with the space before it
    size = max(1, (width - left - tail) // cell)
    count = len(map_.numbers)
    # From right to left, the line is at the left of the last word of the prompt.
    line = None if map_.line is None else map_.line - reverse
    panels: list[str] = []
    for start in range(0, count, size):
        panel = range(start, min(start + size, count))[:: -1 if reverse else 1]
        heading = "".join(f"{map_.numbers[c]:>{cell}}" for c in panel) + right
        at = panel.index(line) if line is not None and line in panel else None
        panels += [*_panel(map_.weights[:, panel], cell, (left, at), heading, rows, ascii_only), ""]
    return panels


def _numbers(source: Text, target: Text | None) -> list[int]:
    """Return the numbers of the source words; in self-attention those that they have among all words, the target."""
    rows = {} if target is None else {word.first: n for n, word in enumerate(target.words, 1)}
    return [rows.get(word.first, n) for n, word in enumerate(source.words, 1)]


def _panel(
    weights: NDArray[np.float32],
    cell: int,
    place: tuple[int, int | None],
    heading: str,
    rows: _RowLabels,
    ascii_only: bool,
) -> list[str]:
    """Return the rows of one panel: the numbers of its columns over the shades, the words at the right.

    `place` is the width of what is at the left, and the column before which a line is drawn.
    """
    left, line = place
    lines = [f"{'':{left}}{heading}"]
    shades = [f"{(plain if ascii_only else block) * 2:>{cell}}" for _, block, plain in SHADES]
    levels = np.searchsorted([low for low, _, _ in SHADES[1:]], weights.astype(float), side="right").tolist()
    across, down, both = "-|+" if ascii_only else "─│┼"
    for number, (row, name, word) in enumerate(zip(levels, rows.left, rows.right, strict=True)):
        cells = [shades[level] for level in row]
        if line is not None:
            cells[line] = down + cells[line][1:]
        if number == rows.line:
            rule = [across * cell] * len(cells)
            if line is not None:
                rule[line] = both + across * (cell - 1)
            lines.append(" " * left + "".join(rule))
        lines.append(f"{name:>{left}}{''.join(cells)}  {word}")
    return lines


def _legend(trace: Trace, width: int, ascii_only: bool, target: Text | None = None) -> list[str]:
    """Return `source: 1 मैं  2 खाना …`, or `words:` in self-attention, wrapped between words.

    `target` is the text that the words are counted in, if that is not the target of the trace.

    After a word from right to left a mark makes the line go on from left to right; a terminal that applies the
    bidirectional algorithm would otherwise reverse the numbers between such words.
    """
    cut = [cut_columns(word, max(width - 16, 4), ascii_only) for word in trace.source_labels]
    marked = [word + LEFT_TO_RIGHT if right_to_left(word) else word for word in cut]
    inside = target or (trace.target if trace.inside else None)
    entries = [f"{n} {word}" for n, word in zip(_numbers(trace.source, inside), marked, strict=True)]
    source = "source:" if trace.image is None else "regions as row,column:"
    return _wrap(source if inside is None else "words:", entries, width)


def _scale(name: str, width: int, ascii_only: bool) -> list[str]:
    """Return the least weight of each shade; `name` is what weights are called."""
    shades = [(low, plain if ascii_only else block) for low, block, plain in SHADES]
    return _wrap(f"{name} from:", [f"[{sign * 2}] {low:.0%}" for low, sign in shades], width)


def _wrap(title: str, entries: Sequence[str], width: int) -> list[str]:
    """Return entries on lines of at most `width` columns, the first after the title, the others indented below it."""
    lines = [title]
    used = columns(title)
    for entry in entries:
        if used + 2 + columns(entry) > width:
            lines.append(" " * (len(title) - 1))
            used = len(title) - 1
        lines[-1] += ("  " if lines[-1].strip() != title else " ") + entry
        used += 2 + columns(entry)
    return lines


def _lines(text: str, width: int, ascii_only: bool) -> list[str]:
    """Return a text on lines of at most `width` columns."""
    lines = [""]
    for word in (cut_columns(word, width, ascii_only) for word in _spaced(text).split(" ")):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


def visible(text: str, ascii_only: bool = False) -> str:
    """Return a text that is safe on a terminal: characters that move the cursor or change direction become �."""
    bad = "?" if ascii_only else "�"
    return "".join(bad if unicodedata.category(c) in CONTROLS or c in DIRECTIONS else c for c in text)


def cut_columns(word: str, most: int, ascii_only: bool) -> str:
    """Return a word shortened to at most `most` columns."""
    word, more = visible(word, ascii_only), "~" if ascii_only else "…"
    if columns(word) <= most:
        return word
    kept, used = "", 0
    for cluster in regex.findall(r"\X", word):
        used += columns(cluster)
        if used > most - 1:
            break
        kept += cluster
    return kept + more


def columns(text: str) -> int:
    """Return how many columns a terminal needs for a text; where terminals differ, rather too many than too few.

    `cell_len` of rich gives no column to spacing vowel signs (की), and joins all that follows a joiner (क्\u200dष);
    xterm and the terminals of GNOME and KDE do not.

    >>> columns("home"), columns("हूँ"), columns("की"), columns("東京"), columns("👨\u200d👩\u200d👧"), columns("❤️")
    (4, 1, 2, 4, 2, 2)
    """
    if text.isascii():
        return len(text)
    spacing = sum(unicodedata.category(c) == "Mc" for c in text)
    return spacing + sum(map(cell_len, regex.findall(r"\X", text)))


def overview(trace: Trace, width: int = 80) -> str:
    """Return a table of all heads: for each target word, the number of the source word with the largest weight.

    The numbers are those of the heat map. The last column is the mean of these largest weights, which is high for a
    head that attends to one word at a time. Long sentences get several panels; without weights there is no table.
    Heads are read as `trace.reading` says.
    """
    if trace.weights is None:
        return ""
    heads = {f"{layer}.{head}": words for (layer, head), words in trace.maps().items()}
    left, cell = max(map(len, [*heads, "head"])), max(3, len(str(len(trace.source.words))) + 1)
    size = max(1, (width - left - 6) // cell)
    count = len(trace.target.words)
    lines: list[str] = []
    for first in range(0, count, size):
        panel = slice(first, min(first + size, count))
        lines += [""] * bool(lines)
        lines.append(f"{'head':<{left}}" + "".join(f"{c + 1:>{cell}}" for c in range(count)[panel]) + "  mean")
        for name, words in heads.items():
            largest = "".join(f"{s + 1:>{cell}}" for s in words.argmax(1)[panel])
            lines.append(f"{name:<{left}}{largest}  {float(words.max(1).mean()):>4.0%}")
    return "\n".join(lines)


def heads_table(
    group: AttentionGroup,
    rank: str = "sharpness",
    width: int = 80,
    ascii_only: bool = False,
    layer: int | None = None,
    head: int | None = None,
    sinks: str | None = None,
    limit: int = all_heads.FIRST,
) -> str:
    """Return all heads as a grid of shades, the first ones by a measure as a table, and the first as a heat map.

    Rows of the grid are layers. The table is of the heads of `layer` and with the number `head`, if they are given; the
    heat map is left out if the text is too long for the width.
    """
    first = all_heads.ranked_heads(group, rank, layer, head, limit)
    measure = all_heads.measures_of(group)[rank]
    L, H = group.shape[:2]
    counts = f"{L} layer{'s' * (L > 1)} of {H} head{'s' * (H > 1)}"
    above = _lines(f"{group.title}, {counts}, by {measure.noun}: {measure.meaning}", width, ascii_only)
    others = (one for name, one in all_heads.measures_of(group).items() if name != rank)
    captions = ["; ".join(f"{one.name}: {one.meaning}" for one in others), group.origin]
    if found := group.sinks_in_words():
        captions.insert(1, f"sinks: {found} of all weight")
    below = [line for text in captions for line in _lines(text, width, ascii_only)]
    grid = _head_grid(getattr(group.measures(), rank), measure, width, ascii_only)
    lines = [*above, "", *grid, "", *_ranking(group, first, rank, width, ascii_only), "", *below]
    best, words = first[0], max(len(group.source.words), len(group.target.words))
    if group.weights is not None and words <= min(SHORT, (width - LEFT - WORD - 2) // 3):
        trace = group.trace(best.layer, best.head, sinks=sinks)
        lines += ["", f"Layer {best.layer}, head {best.head}", "", heatmap(trace, width, ascii_only)]
    return "\n".join(lines)


def _head_grid(values: NDArray[np.float32], measure: all_heads.Measure, width: int, ascii_only: bool) -> list[str]:
    """Return a grid of layers and heads, the darker the larger the measure, and the least value of each shade."""
    H = values.shape[1]
    left = 6 + len(str(len(values)))
    # If not all heads have two columns and a space, they have no space, and every fifth is numbered.
    cell = 3 if left + 3 * H <= width else 2
    left += cell == 2
    size = (width - left) // cell
    lows = [float(values.max()) * i / len(SHADES) for i in range(len(SHADES))]
    levels = np.searchsorted(lows[1:], values.astype(float), side="right")
    shades = [f"{(plain if ascii_only else block) * 2:>{cell}}" for _, block, plain in SHADES]
    lines: list[str] = []
    for start in range(0, H, size):
        panel = range(start, min(start + size, H))
        numbers = [f"{n + 1 if cell == 3 or not (n + 1) % 5 else '':>{cell}}" for n in panel]
        lines += [""] * bool(lines) + [f"{'head':>{left}}{''.join(numbers)}"]
        for number, row in enumerate(levels[:, panel].tolist(), 1):
            lines.append(f"{f'layer {number}':<{left}}{''.join(shades[level] for level in row)}".rstrip())
    signs = [plain if ascii_only else block for _, block, plain in SHADES]
    entries = [f"[{sign * 2}] {_spaced(measure.text(low))}" for low, sign in zip(lows, signs, strict=True)]
    return [*lines, *_wrap(f"{measure.noun} from:", entries, width)]


def _spaced(text: str) -> str:
    """Return a number as terminals have it, with no space before the per cent sign."""
    return text.replace("\u00a0", "")


def _ranking(
    group: AttentionGroup, first: Sequence[all_heads.RankedHead], rank: str, width: int, ascii_only: bool
) -> list[str]:
    """Return the table of the first heads, with the measure that ranks them first."""
    measures = all_heads.measures_of(group)
    order = [rank, *(name for name in measures if name != rank)]
    line = f"{'head':<6}" + "".join(f"{measures[name].name:>10}" for name in order)
    space = width - len(line) - 2
    if space < NARROWEST:  # no words
        return [line[:width], *(_measured(one, order)[:width] for one in first)]
    lines = [f"{line}  {'largest weight' if space >= 14 else 'largest'}"]
    return lines + [f"{_measured(one, order)}  {_pair(one, space, ascii_only)}".rstrip() for one in first]


def _measured(one: all_heads.RankedHead, order: Sequence[str]) -> str:
    return f"{one.name:<6}" + "".join(f"{_spaced(one.measures[name]):>10}" for name in order)


def _pair(one: all_heads.RankedHead, width: int, ascii_only: bool) -> str:
    """Return the largest weight of a head, `it → animal 66%`, in at most `width` columns."""
    if not one.query:
        return ""
    arrow, weight = " -> " if ascii_only else " → ", f" {one.weight:.0%}"
    space = width - len(arrow) - len(weight)
    # The shorter word leaves its space to the other.
    wide = columns(visible(one.query)), columns(visible(one.key))
    query = min(wide[0], max(space // 2, space - wide[1]))
    words = cut_columns(one.query, query, ascii_only), cut_columns(one.key, space - query, ascii_only)
    return arrow.join(word + LEFT_TO_RIGHT * right_to_left(word) for word in words) + weight


def _largest_words(group: AttentionGroup, words: Sequence[int], trace: Trace, ascii_only: bool) -> list[str]:
    """Return for each row of a trace the largest weight on a word that is neither a sink nor among `words`."""
    weights = trace.checked_words()
    assert weights is not None
    own = {group.target.words[i].first for i in words} if group.inside else set()
    apart = {group.source.words[sink.word].first for sink in group.sinks()}
    others = [i for i, word in enumerate(trace.source.words) if word.first not in own | apart]
    if not others:
        return [""] * len(weights)
    largest = []
    for row in weights[:, others]:
        best = int(row.argmax())
        text = cut_columns(trace.source.words[others[best]].text, WORD, ascii_only)
        largest.append(f"{float(row[best]):>4.0%} {text}{LEFT_TO_RIGHT * right_to_left(text)}")
    return largest


def word_table(
    group: AttentionGroup,
    words: Sequence[int],
    width: int = 80,
    ascii_only: bool = False,
    layer: int | None = None,
    head: int | None = None,
    sinks: str | None = None,
    limit: int = ROWS,
) -> str:
    """Return the mean row of some target words with one line for each head, and its largest other word at the right.

    Of more than `limit` heads, those with the largest weight on another word, the largest first.
    """
    count = len(group.source.words)
    fit = max(SHORT // 4, (width - 2 * LEFT - WORD) // max(3, len(str(count)) + 1))
    limits = all_heads.WordLimits(limit, None if count <= PANELS * fit else fit)
    trace = all_heads.word_rows(group, words, layer, head, sinks, limits)
    weights = trace.checked_words()
    assert weights is not None
    target = group.target if group.inside else None
    whole = all_heads.word_rows(group, words, layer, head, sinks, limits._replace(words=None))
    largest = _largest_words(group, words, whole, ascii_only)
    heads_ = [word.text for word in trace.target.words]
    first = replace(trace, inside=group.inside, generated=group.generated).generated_from.source
    map_ = _Map(weights, _numbers(trace.source, target), first)
    panels = _panels(map_, _RowLabels(heads_, largest), trace.source.right_to_left, (width, ascii_only), "  largest")
    captions = [trace.readout_caption]
    if first is not None:
        number = sum(word.first < (group.generated or 0) for word in group.target.words) + 1
        captions.insert(0, f"{'|' if ascii_only else '│'} generated from word {number} on")
    below = [line for text in captions for line in _lines(text, width, ascii_only)]
    scale = _scale("weight", width, ascii_only)
    return "\n".join([*_legend(trace, width, ascii_only, target), "", *panels, *scale, *below])
