"""The Transformer's state: keys and values of all words so far, in room that is made beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.errors import ShapeError

if TYPE_CHECKING:
    from heedful.fused.cpu.fast_decode import FastDecoder

__all__ = ["Cache"]

ROWS = 2  # so many times the rows there is place for when others join
FIRST = 32  # words there is room for at first; when it is full, the room is doubled


class Cache:
    """Keys and values of `length` words in each of L layers; at most `capacity` will come.

    They lie in one tensor (L, 2, R, H, room, C): a new word is written into its place, and all words so far are a view
    of it. While gradients are wanted nothing may be written over, and the words are strung together instead.

    Sentences may `join` that begin later: all have their last words in the same place, and `offset` (R,) says how many
    places before their first word are none of theirs. Only one word at a time can be read then.
    """

    def __init__(self, L: int, capacity: int, positions: Callable[[int], Tensor]) -> None:
        self.L, self.capacity, self.positions = L, capacity, positions
        self.table: Tensor | None = None  # of the first positions
        self.length = 0
        self.room: Tensor | None = None
        self.spare: Tensor | None = None  # where the rows that are selected go, and the other way next time
        self.rows: Tensor | None = None  # what the room is the first rows of, so that others can join
        self.strung: dict[int, Tensor] = {}
        self.fast: FastDecoder | None = None
        self.offset: Tensor | None = None
        self.fresh = 0  # sentences that it was started for

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of n words in a layer; return those of all.  (R, H, n, C) -> (R, H, t, C) each."""
        n, t = k.shape[2], self.length
        if n == self.capacity:  # all words at once: nothing will follow
            return k, v
        kv = torch.stack([k, v])
        if torch.is_grad_enabled() or self.strung:
            before = self.strung.get(layer)
            if before is None and self.room is not None:
                before = self.room[layer, :, :, :, :t]
            kv = kv if before is None else torch.cat([before, kv], dim=3)
            self.strung[layer] = kv
            k, v = kv.unbind(0)
        else:
            room = self.make_room(kv, kv.shape[1], kv.shape[2], kv.shape[4], n)[layer]
            room[:, :, :, t : t + n] = kv
            k, v = room[:, :, :, : t + n].unbind(0)
        return k, v

    def places(self, n: int) -> Tensor:
        """Return the positions of the next n words, (n, D), or (R, 1, D) where sentences began at different times."""
        if self.length + n > self.capacity:
            raise ShapeError(f"{self.length + n} words, but the state was started for {self.capacity} at most")
        wanted = self.length + n
        if self.table is None or len(self.table) < wanted:
            self.table = self.positions(wanted)
        if self.offset is not None:
            return self.table[self.length - self.offset][:, None]
        return self.table[self.length : wanted]

    def advance(self, n: int) -> None:
        """Take the last n words as read, by all layers."""
        self.length += n

    def select(self, rows: Tensor) -> Cache:
        """Keep some hypotheses, in the order of `rows`; what the others had is gone."""
        self.strung = {layer: kv[:, rows] for layer, kv in self.strung.items()}
        self.offset = None if self.offset is None else self.offset[rows]
        if self.room is not None and self.length:
            R, size = len(rows), self.room.shape[4]
            if self.spare is None or self.spare.shape[2] < R or self.spare.shape[4] != size:
                self.spare = self._empty(R, size)
            there, before = self.spare[:, :, :R], self.room if self.rows is None else self.rows
            torch.index_select(self.room[..., : self.length, :], 2, rows, out=there[..., : self.length, :])
            self.room, self.rows, self.spare = there, self.spare, before
        return self

    def join(self, other: Cache) -> Cache:
        """Take in sentences that begin now, behind these."""
        begun = self._begun(other)
        if self.room is None or begun is None:
            self.room, self.fresh = None, self.fresh + other.fresh
            return self
        R, more, size = self.room.shape[2], self.room.shape[2] + other.fresh, self.room.shape[4]
        if self.rows is None or self.rows.shape[2] < more:
            self.rows, self.spare = self._empty(max(more, ROWS * R), size), None
            self.rows[:, :, :R, :, : self.length] = self.room[..., : self.length, :]
        self.room = self.rows[:, :, :more]
        # What is none of a sentence's is masked, but must be a number.
        self.room[:, :, R:, :, : self.length] = 0
        self.offset = torch.cat([begun, begun.new_full((other.fresh,), self.length)])
        return self

    def put(self, rows: Tensor, other: Cache) -> Cache:
        """Let others begin in the places of some sentences: what those had is masked from now on."""
        begun = self._begun(other)
        self.offset = None if begun is None else begun.index_fill(0, rows, self.length)
        return self

    def _begun(self, other: Cache) -> Tensor | None:
        """Make sure that others can begin now, and return where each of these began; None if they all begin now."""
        if self.strung or other.length or other.strung:
            raise ShapeError("only sentences that begin can join others, and only where words are read one at a time")
        self.capacity = max(self.capacity, self.length + other.capacity)
        if self.room is None or not self.length:
            return None
        return self.room.new_zeros(self.room.shape[2], dtype=torch.long) if self.offset is None else self.offset

    def make_room(self, like: Tensor, R: int, H: int, C: int, n: int = 1) -> Tensor:
        """Return (L, 2, R, H, room, C) with the words so far, and place for n more."""
        if self.room is not None and self.room.shape[4] >= self.length + n:
            return self.room
        # Places that nobody has words in any more are given up.
        gone = 0 if self.offset is None else int(self.offset.min())
        old, kept = self.room, self.length - gone
        self.length, self.capacity = kept, self.capacity - gone
        size = min(max(FIRST, kept + n, 2 * kept), self.capacity)
        self.room, self.rows = like.new_empty(self.L, 2, R, H, size, C), None
        if self.offset is not None:
            self.offset = self.offset - gone
        if old is not None:
            self.room[..., :kept, :] = old[..., gone : gone + kept, :]
        return self.room

    def _empty(self, R: int, size: int) -> Tensor:
        assert self.room is not None
        L, two, _, H, _, C = self.room.shape
        return self.room.new_empty(L, two, R, H, size, C)
