"""Counter-based random numbers: each is a function of a key and a position, without a state.

The mixing is that of SplitMix64, which passes the usual tests of randomness on consecutive numbers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: int | str) -> np.uint64:
    """Return 64 bits that follow from numbers and strings."""
    return np.uint64(int.from_bytes(blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=8).digest()))


def mixed(keys: Keys, places: npt.NDArray[Any]) -> Keys:
    """Return 64 random bits for places, each with its key or all with one."""
    bits = np.atleast_1d(places.astype(np.uint64) * _STEP + keys)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


def uniform(keys: Keys, places: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return numbers from 0 up to 1 for places, each with its key or all with one."""
    return (mixed(keys, places) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(keys: Keys, places: npt.NDArray[Any], ends: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return whole numbers from 0 up to `ends`, each below 2³², for places.

    >>> below(np.array([7], np.uint64), np.arange(8), np.array([3])).tolist()
    [0, 1, 0, 2, 1, 1, 0, 1]
    """
    half = np.uint64(32)
    return (((mixed(keys, places) >> half) * ends.astype(np.uint64)) >> half).astype(np.int64)


def spread(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the places of stretches in a flat array, one after the other.

    >>> spread(np.array([10, 3, 7]), np.array([2, 0, 3])).tolist()
    [10, 11, 7, 8, 9]
    """
    lengths = lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    shifts: npt.NDArray[np.int64] = np.repeat(starts.astype(np.int64) - (ends - lengths), lengths)
    return np.arange(total, dtype=np.int64) + shifts
