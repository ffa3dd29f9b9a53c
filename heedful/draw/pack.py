"""The weights of a trace as a few bytes, for a page that draws them itself.

Every row is kept sparse: the columns and weights that are large enough, and the sum of those that are not. Weights are
sixteen bits wide. A small trace loses nothing that can be seen; of a large one, the largest weights are kept that the
room holds.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.figure import right_to_left, said
from heedful.errors import DataError
from heedful.trace import END, Text, Trace

__all__ = ["ROOM", "Packed", "pack", "plain", "shown"]

ROOM = 4_300_000  # bytes of a page for the weights and the words
FULL = 65_535  # the weight 1
FINEST = 0.0005  # the least weight that is kept: a tenth of it could not be seen
COARSEST = 0.1  # heads that could only be kept coarser than this are left out
ENTRY = 4  # bytes of a weight and its column, before they are text
LONGEST = 65_535  # tokens of a side
UNKNOWN = "<unk>"  # the token of what is not in a vocabulary


class Packed(NamedTuple):
    """Maps of weights, (M, T, S), as text: for each row how many weights it has and what is left out, then all of them.

    None over `floor` is left out; `lost` is the share of all weight that is.
    """

    counts: str
    rest: str
    columns: str
    weights: str
    floor: float
    lost: float


def pack(maps: NDArray[np.float32], room: int = ROOM) -> Packed:
    """Return maps (M, T, S) within about `room` bytes, as long as their rows alone do not need more."""
    M, T, S = maps.shape
    if not np.isfinite(maps).all():
        raise DataError("the weights of this trace are not all numbers: they cannot be drawn")
    if max(T, S) > LONGEST:
        raise DataError(f"this trace has {T:,} and {S:,} tokens; an interactive page holds at most {LONGEST:,} a side")
    most = max(0, room * 3 // 4 - 4 * M * T) // ENTRY
    kept = _largest(maps, most)
    counts, columns, weights, rest = [], [], [], []
    for one, where in zip(maps, kept, strict=True):
        counts.append(where.sum(1))
        columns.append(np.nonzero(where)[1])
        weights.append(one[where])
        rest.append(np.maximum(0, one.sum(1, dtype=np.float64) - np.where(where, one, 0).sum(1, dtype=np.float64)))
    left = float(np.concatenate(rest).sum())
    total = max(left + float(sum(w.sum(dtype=np.float64) for w in weights)), 1e-12)
    return Packed(
        _text(np.concatenate(counts)),
        _text(_short(np.concatenate(rest))),
        _text(np.concatenate(columns)),
        _text(_short(np.concatenate(weights))),
        max(FINEST, float(np.max(maps, where=~kept, initial=0))),
        left / total,
    )


def _largest(maps: NDArray[np.float32], most: int) -> NDArray[np.bool_]:
    """Return where the largest weights are, at most so many, and none that is too fine.  (M, T, S).

    Of weights that are all the same as many as there is room for, evenly over all rows: not all of them or none.
    """
    kept: NDArray[np.bool_] = maps >= FINEST
    fine = int(np.count_nonzero(kept))
    if fine <= most:
        return kept
    if not most:
        return np.zeros_like(kept)
    least = np.partition(maps[kept], fine - most)[fine - most]
    kept = maps > least
    same = np.flatnonzero(maps == least)
    free = most - int(np.count_nonzero(kept))
    kept.flat[same[np.linspace(0, len(same) - 1, free).astype(int)]] = True
    return kept


def _short(values: NDArray[Any]) -> NDArray[Any]:
    rounded: NDArray[Any] = np.rint(np.clip(values, 0, 1) * FULL)
    return rounded


def _text(values: NDArray[Any]) -> str:
    return base64.b64encode(values.astype("<u2").tobytes()).decode("ascii")


def plain(trace: Trace, name: str, room: int = ROOM) -> dict[str, Any]:
    """Return a trace as the page takes it: what JSON can hold, the weights of the read-out first, then each head's.

    It takes about `room` bytes. Words that are long, or of letters that take many bytes, leave less for the weights.
    """
    read = trace.tokens()
    record: dict[str, Any] = {
        "name": name,
        "source": _side(trace.source),
        "target": _side(trace.target),
        "logs": [round(float(x), 4) for x in np.nan_to_num(np.maximum(trace.log_probs, -99))],
        "readout": said(trace),
        "reading": trace.reading,
        "attention": trace.readout.attention,
        "alarm_rates": None if trace.readout.alarms is None else trace.readout.alarms.plain(),
        "self": trace.inside,
        "read": None,
        "heads": None,
        "layers": [],
        "each": [],
    }
    if read is None or not read.size:
        return record
    room -= min(room // 2, len(json.dumps([record["source"], record["target"]])))
    every = trace.each()
    heads = every if every is not None and every[:, :, 0, 0].size > 1 else None
    share = room if heads is None else room // 3
    packed = pack(read[None], share)
    record["read"] = packed._asdict()
    if heads is not None:
        L, H, T, S = heads.shape
        used = sum(len(text) for text in packed[:4])
        of_heads = pack(heads.reshape(L * H, T, S), room - used)
        record["heads"] = None if of_heads.floor > COARSEST else of_heads._asdict()
        record["layers"], record["each"] = map(list, trace.numbers())
    return record


def _side(text: Text) -> dict[str, Any]:
    words = [[w.text, w.first, w.last] for w in text.words]
    return {**shown(text), "words": words, "turned": right_to_left([text.text])}


def shown(text: Text) -> dict[str, Any]:
    """Return the tokens of a text as a person reads them, an unknown one by its characters, and which are unknown."""
    tokens, unknown = list(text.tokens), [i for i, token in enumerate(text.tokens) if token == UNKNOWN]
    for i in unknown:
        characters = text.text[slice(*text.spans[i])]
        if characters and characters != END:  # which would be taken for the end of a sentence
            tokens[i] = characters
    return {"tokens": tokens, "unknown": unknown}
