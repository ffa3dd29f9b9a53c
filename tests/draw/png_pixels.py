"""The pixels of a PNG file."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

MISSING = "resvg or fontTools is not here (pip install 'heedful[png]'), so that nobody looks at PNG files"


def dots(png: bytes) -> NDArray[np.uint8]:
    """The dots of a PNG file of 8 bits with an alpha channel.  (height, width, 4)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        head, data = (body if kind == b"IHDR" else head), data + (body if kind == b"IDAT" else b"")
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    assert (depth, colour) == (8, 6)
    lines = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(height, 1 + 4 * width)
    found = np.zeros((height, 4 * width), dtype=np.uint8)
    for y, (how, *_) in enumerate(lines):
        found[y] = _unfiltered(int(how), lines[y, 1:].copy(), found[y - 1] if y else np.zeros(4 * width, np.uint8))
    return found.reshape(height, width, 4)


def _unfiltered(how: int, line: NDArray[np.uint8], above: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if how == 0:
        return line
    if how == 2:
        return line + above
    out = line.astype(int).tolist()
    up = above.astype(int).tolist()
    for i in range(len(out)):
        left, corner = (out[i - 4], up[i - 4]) if i >= 4 else (0, 0)
        if how == 1:
            guess = left
        elif how == 3:
            guess = (left + up[i]) // 2
        else:
            near = [(abs(left + up[i] - corner - n), order, n) for order, n in enumerate((left, up[i], corner))]
            guess = min(near)[2]
        out[i] = (out[i] + guess) % 256
    return np.array(out, dtype=np.uint8)
