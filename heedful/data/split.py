"""Holding pairs out for validation by their own hash, so that a file can grow without mixing up the two sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b

from heedful.data.pairs import Pair
from heedful.errors import DataError

__all__ = ["hold_out", "sentence_key"]

FRACTION = 0.02


def sentence_key(text: str) -> str:
    """Return what makes two strings the same sentence: NFC, and any white space alike."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def hold_out(pairs: Sequence[Pair], most: int) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into training and validation; no sentence stands on both sides, be it as source or as target.

    A pair is held out when its hash falls under 2 %, whatever else the file holds; in a file so small that none does,
    the one with the smallest hash is. Pairs that share a sentence with a held-out pair are left out of training. Of the
    held-out pairs, the `most` with the smallest hashes are used; the others are kept out of training all the same, so
    that they stay unseen when the file grows.
    """
    keys = [(sentence_key(p.source), sentence_key(p.target)) for p in pairs]
    order = {key: _hash(*key) for key in dict.fromkeys(keys)}
    smallest = min(order.values(), default=0.0)
    held = {key for key, value in order.items() if value < FRACTION or value == smallest}
    aside = {sentence for key in held for sentence in key}
    training = [p for p, key in zip(pairs, keys, strict=True) if aside.isdisjoint(key)]
    if not training:
        raise DataError(
            f"too few different sentences to hold some out for validation ({len(order)} different pairs); "
            "give more pairs, or a validation file with --valid"
        )
    chosen = sorted(held, key=lambda key: order[key])[:most]
    first = dict(zip(reversed(keys), reversed(pairs), strict=True))
    return training, [first[key] for key in chosen]


def _hash(source: str, target: str) -> float:
    """Return a number from 0 to 1 that depends on the pair alone."""
    digest = blake2b(f"{source}\t{target}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
