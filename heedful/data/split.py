"""Which pairs are learned from and which are held out, from hashes alone.

Pairs are held out by their own hash, so that a file can grow without mixing up the two sides. 64 bits tell ten million
sentences apart: that any two of them are taken for one happens once in some hundred thousand such files.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from heedful.data.corpus import Array

__all__ = ["Hashes", "Split", "among", "hashes", "sentence_key", "split"]

LIMIT = np.uint64(int(0.02 * 2**64))
LARGEST = np.uint64(2**64 - 1)
BLOCK = 1 << 20  # pairs looked at together


def sentence_key(text: str) -> str:
    """Return what makes two strings the same sentence: NFC, and any white space alike."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class Hashes(NamedTuple):
    """The hashes of pairs, of their sources and of their targets: uint64 (N,) each."""

    pairs: Array
    sources: Array
    targets: Array


def hashes(sources: Sequence[str], targets: Sequence[str]) -> Hashes:
    """Return the hashes of pairs; sentences that only look different have the same."""
    found = bytearray()
    for source, target in zip(sources, targets, strict=True):
        x, y = (sentence_key(side).encode("utf-8", "surrogatepass") for side in (source, target))
        for content in (x + b"\t" + y, x, y):
            found += blake2b(content, digest_size=8).digest()
    return Hashes(*np.frombuffer(found, ">u8").astype(np.uint64).reshape(-1, 3).T)


class Split(NamedTuple):
    """Rows of pairs: `first` without duplicates (or all), `training` and `held` of them, by hash; how many differ."""

    first: Array
    training: Array
    held: Array
    different: int


def split(found: Hashes, duplicates: bool) -> Split:
    """Split pairs; no sentence stands on both sides, be it as source or as target.

    A pair is held out when its hash falls under 2 %, whatever else the file holds; in a file so small that none does,
    the one with the smallest hash is. Pairs that share a sentence with a held-out pair are left out of training. With
    `duplicates`, pairs that came before stay in training; they are never held out twice. `held` is in the order of the
    hashes: of a file that grows, the beginning changes least.
    """
    again = _again(found.pairs)
    first = np.nonzero(~again)[0].astype(np.uint32)
    own = found.pairs[first]
    held = first[(own < LIMIT) | (own == own.min(initial=LARGEST))]
    held = held[np.argsort(found.pairs[held])]
    aside = np.concatenate([found.sources[held], found.targets[held]])
    apart = ~(among(found.sources, aside) | among(found.targets, aside))
    different = len(first)
    if duplicates:
        first = np.arange(len(again), dtype=np.uint32)
    else:
        apart &= ~again
    return Split(first, np.nonzero(apart)[0].astype(np.uint32), held, different)


def among(values: Array, known: Array) -> Array:
    """Return which values are among those that are known: bool (N,); `values` may be large and mapped."""
    known = np.unique(known)
    found = np.zeros(len(values), bool)
    for begin in range(0, len(values) if len(known) else 0, BLOCK):
        part = np.asarray(values[begin : begin + BLOCK])
        places = np.minimum(np.searchsorted(known, part), len(known) - 1)
        found[begin : begin + BLOCK] = known[places] == part
    return found


def _again(values: Array) -> Array:
    """Return which values came before: bool (N,)."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    found = np.zeros(len(values), bool)
    found[order[1:][ranked[1:] == ranked[:-1]]] = True
    return found
