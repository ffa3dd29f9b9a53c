"""Layers and heads at a glance: for each head, which word every word looks at most, by number."""

from __future__ import annotations

import numpy as np

from heedful.trace import Trace

__all__ = ["overview"]


def overview(trace: Trace, width: int = 80) -> str:
    """Return a table with a row for each head and a column for each word: the number of the word it looks at most.

    The numbers are those of the source words in the heat map. At the right stands the mean weight of these looks: of
    a head that looks at one place it is high. Long sentences get several panels; without weights there is no table.
    Heads are read as `trace.reading` says.
    """
    if trace.weights is None:
        return ""
    names, looks, means = [], [], []
    for (layer, head), words in trace.maps().items():
        names.append(f"{layer}.{head}")
        looks.append(words.argmax(1) + 1)
        means.append(float(words.max(1).mean()))
    return "\n".join(_panels(np.stack(looks), names, means, len(trace.source.words), width))


def _panels(looks: np.ndarray, names: list[str], means: list[float], most: int, width: int) -> list[str]:
    left, cell = max(map(len, [*names, "head"])), max(3, len(str(most)) + 1)
    size = max(1, (width - left - 6) // cell)
    lines: list[str] = []
    for first in range(0, looks.shape[1], size):
        columns = range(first, min(first + size, looks.shape[1]))
        lines += [""] * bool(lines)
        lines.append(f"{'head':<{left}}" + "".join(f"{c + 1:>{cell}}" for c in columns) + "  mean")
        for name, row, mean in zip(names, looks, means, strict=True):
            lines.append(f"{name:<{left}}" + "".join(f"{row[c]:>{cell}}" for c in columns) + f"  {mean:>4.0%}")
    return lines
