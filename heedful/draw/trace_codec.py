"""A trace as compact JSON for interactive figures, and back.

Rows of weights are sparse: the columns and values of those that are large enough, and the sum of the rest. Values have
16 bits. A small trace loses nothing visible; of a large one, the largest weights that fit are kept.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.trace import END, ImageRegions, Readout, Text, Trace, Word
from heedful.trace.alarms import AlarmRates
from heedful.trace.json_checks import check_text

MAX_BYTES = 4_300_000  # of a page, for weights and words
FULL = 65_535  # the weight 1
FINEST = 0.0005  # the least weight that is kept
COARSEST = 0.1  # heads are left out if larger weights than this would have to be
ENTRY = 4  # bytes of a weight and its column, before base64
LONGEST = 65_535  # tokens of a side
MAX_CELLS = 25_000_000  # source times target tokens: 100 MB
UNKNOWN = "<unk>"
READOUT = "read-out: "


def encode_trace(trace: Trace, name: str, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return a trace as JSON can hold it, in about `max_bytes`: the weights of the read-out, and of each head."""
    read = trace.tokens()
    record: dict[str, Any] = {
        "name": name,
        "source": _encode_text(trace.source),
        "target": _encode_text(trace.target),
        "logs": [round(float(x), 4) for x in np.nan_to_num(np.maximum(trace.log_probs, -99))],
        "readout": trace.readout_caption,
        "reading": trace.reading,
        "attention": trace.readout.attention,
        "alarm_rates": None if trace.readout.alarms is None else trace.readout.alarms.plain(),
        "self": trace.inside,
        "read": None,
        "heads": None,
        "layers": [],
        "each": [],
    }
    if trace.image is not None:
        record["image"] = {**trace.image.plain(), "key": image_key(trace.image)}
        del record["image"]["picture"]  # which a page has once
    if read is None or not read.size:
        return record
    if trace.image is not None:
        record["boxes"] = [None if box is None else [round(n, 2) for n in box] for box in trace.boxes()]
    max_bytes -= min(max_bytes // 2, len(json.dumps([record["source"], record["target"]])))
    every = trace.each()
    heads = every if every is not None and every[:, :, 0, 0].size > 1 else None
    maps = encode_maps(read[None], max_bytes if heads is None else max_bytes // 3)
    record["read"] = maps._asdict()
    if heads is not None:
        L, H, T, S = heads.shape
        used = sum(len(text) for text in maps[:4])
        of_heads = encode_maps(heads.reshape(L * H, T, S), max_bytes - used)
        record["heads"] = None if of_heads.floor > COARSEST else of_heads._asdict()
        record["layers"], record["each"] = map(list, trace.numbers())
    return record


def image_key(image: ImageRegions) -> str:
    """Return the id of an image in the pages and pictures that show it."""
    return f"h-image-{zlib.crc32(image.picture):08x}"


def _encode_text(text: Text) -> dict[str, Any]:
    words = [[w.text, w.first, w.last] for w in text.words]
    return {**readable_tokens(text), "words": words, "turned": text.right_to_left}


def readable_tokens(text: Text) -> dict[str, Any]:
    """Return the tokens of a text, with the characters of unknown ones in their place, and which are unknown."""
    tokens, unknown = list(text.tokens), [i for i, token in enumerate(text.tokens) if token == UNKNOWN]
    for i in unknown:
        characters = text.text[slice(*text.spans[i])]
        if characters and characters != END:  # which would end the sentence
            tokens[i] = characters
    return {"tokens": tokens, "unknown": unknown}


class _SparseMaps(NamedTuple):
    """Maps of weights, (M, T, S), in base64: for each row the number of weights and the rest, then columns and weights.

    No weight above `floor` is left out; `lost` is the share of all weight that is.
    """

    counts: str
    rest: str
    columns: str
    weights: str
    floor: float
    lost: float


def encode_maps(maps: NDArray[np.float32], max_bytes: int = MAX_BYTES) -> _SparseMaps:
    """Return maps (M, T, S) in about `max_bytes`, or what their row counts alone need."""
    M, T, S = maps.shape
    if not np.isfinite(maps).all():
        raise DataError("the weights of this trace are not all finite numbers: they cannot be drawn")
    if max(T, S) > LONGEST:
        raise DataError(f"this trace has {T:,} and {S:,} tokens; an interactive page holds at most {LONGEST:,} a side")
    kept = largest(maps, max(0, max_bytes * 3 // 4 - 4 * M * T) // ENTRY)
    rest = np.maximum(0, maps.sum(2, dtype=np.float64) - maps.sum(2, dtype=np.float64, where=kept))
    weights, lost = maps[kept], float(rest.sum())
    return _SparseMaps(
        _base64(kept.sum(2)),
        _base64(_sixteen_bits(rest)),
        _base64(np.nonzero(kept)[2]),
        _base64(_sixteen_bits(weights)),
        max(FINEST, float(np.max(maps, where=~kept, initial=0))),
        lost / max(lost + float(weights.sum(dtype=np.float64)), 1e-12),
    )


def largest(maps: NDArray[np.float32], most: int) -> NDArray[np.bool_]:
    """Return the mask of the largest weights, at most `most`, and none under FINEST.  (M, T, S).

    Of equal weights, as many are kept as fit, evenly over all rows.
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


def _sixteen_bits(values: NDArray[Any]) -> NDArray[Any]:
    rounded: NDArray[Any] = np.rint(np.clip(values, 0, 1) * FULL)
    return rounded


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.astype("<u2").tobytes()).decode("ascii")


def decode_trace(plain: Mapping[str, Any] | None, source: str, target: str) -> Trace:
    """Return the trace of two texts from its record: `read` (T, S) by the read-out, and no single heads.

    Weights under the floor of the record are 0, and all are exact to one part in 65,535.
    """
    if not isinstance(plain, Mapping):
        raise DataError("this is not a figure: expected an object")
    try:
        texts = _decode_text(plain["source"], source), _decode_text(plain["target"], target)
        caption, maps = str(plain["readout"]), plain["read"]
        weights = None if maps is None else _decode_map(maps, len(texts[1].tokens), len(texts[0].tokens))
        logs = np.array(plain["logs"], dtype=np.float32)
        image = None if plain.get("image") is None else ImageRegions.build({"picture": "", **plain["image"]})
        rates = None if plain.get("alarm_rates") is None else AlarmRates.build(plain["alarm_rates"])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError, binascii.Error) as error:
        missing = isinstance(error, KeyError)
        why = f"it has no {error}" if missing else f"{type(error).__name__}: {error}"
        raise DataError(f"this is not a figure: {why:.120}") from None
    for text, side in zip(texts, ("source", "target"), strict=True):
        check_text(text, f"this is not a figure: {side}: ")
    if logs.shape != (len(texts[1].tokens),) or not np.isfinite(logs).all():
        raise DataError(f"this is not a figure: it needs a log-probability for each of {len(texts[1].tokens)} tokens")
    attention = caption.startswith(READOUT) or weights is None
    readout = Readout(label=caption.removeprefix(READOUT), attention=attention, alarms=rates)
    if image is not None and image.count + 1 != len(texts[0].tokens):
        raise DataError(f"this is not a figure: {image.count} regions, but {len(texts[0].tokens)} source tokens")
    return Trace(*texts, None, logs, readout, weights, bool(plain.get("self")), image=image)


def _decode_text(plain: Mapping[str, Any], text: str) -> Text:
    """Return one side; its words are searched for in the text, in their order. A missing one has an empty span."""
    words, at = [], 0
    if not all(isinstance(token, str) for token in plain["tokens"]):
        raise TypeError("a token is not a string")
    unknown = set(plain.get("unknown", ()))
    tokens = tuple(UNKNOWN if i in unknown else token for i, token in enumerate(plain["tokens"]))
    spans = [(0, 0)] * len(tokens)
    for word, first, last in plain["words"]:
        if not 0 <= first <= last <= len(tokens):
            raise ValueError(f"the tokens {first} to {last} of {len(tokens)}")
        end = word == END and tokens[first:last] == (END,)
        start = at if end else text.find(word, at)
        start, at = (at, at) if end or start < 0 else (start, start + len(word))
        words.append(Word(word, start, at, first, last))
        spans[first:last] = [(start, at)] * (last - first)
    return Text(text, tokens, tuple(spans), tuple(words))


def _decode_map(maps: Mapping[str, Any], T: int, S: int) -> NDArray[np.float32]:
    """Return the weights of one map.  (T, S)."""
    counts, columns, weights = (
        np.frombuffer(base64.b64decode(maps[name]), dtype="<u2") for name in ("counts", "columns", "weights")
    )
    if T * S > MAX_CELLS:
        raise ValueError(f"{T:,} times {S:,} tokens; at most {MAX_CELLS:,} cells are drawn")
    if len(counts) != T or not len(columns) == len(weights) == counts.sum() or (columns >= S).any():
        raise ValueError(f"weights of {len(counts)} tokens, where there are {T} target and {S} source tokens")
    read = np.zeros((T, S), dtype=np.float32)
    read[np.repeat(np.arange(T), counts), columns] = weights.astype(np.float32) / FULL
    return read


def split_sentences(trace: Trace) -> list[Trace]:
    """Return the traces of the sentences of a decoded trace; the whole if source and target have different numbers."""
    sources, targets = _sentences(trace.source), _sentences(trace.target)
    if len(sources) != len(targets) or len(sources) < 2:
        return [trace]
    parts = []
    for (source, columns), (target, rows) in zip(sources, targets, strict=True):
        read = None if trace.read is None else trace.read[rows, columns]
        parts.append(Trace(source, target, None, trace.log_probs[rows], trace.readout, read, engine=trace.engine))
    return parts


def _sentences(side: Text) -> list[tuple[Text, slice]]:
    """Return the sentences of a text, each with its tokens."""
    sentences = []
    for i, j in pairwise([0, *(n for n, word in enumerate(side.words, 1) if word.is_end)]):
        words = side.words[i:j]
        start, end, tokens = words[0].start, words[-1].end, slice(words[0].first, words[-1].last)
        moved = (w._replace(start=w.start - start, end=w.end - start) for w in words)
        numbered = (w._replace(first=w.first - tokens.start, last=w.last - tokens.start) for w in moved)
        spans = ((a - start, b - start) for a, b in side.spans[tokens])
        sentences.append((Text(side.text[start:end], side.tokens[tokens], tuple(spans), tuple(numbered)), tokens))
    return sentences
