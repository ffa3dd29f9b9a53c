"""The worker process: decodes sentences that the engine has encoded, by continuous batching.

A service on the CPU starts it (see `worker_client`); the process of the service answers requests and encodes. One
Python process runs one thing at a time, so the steps of a process of its own are not interrupted.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.decoding import ContinuousBatch, Hypothesis
from heedful.errors import HeedfulError
from heedful.models import Memory
from heedful.models.shortlist import Allowed
from heedful.serve.engine.processes import PAUSE, Trimmer
from heedful.serve.engine.queue import TimeShare
from heedful.translator import load

PackedMemory = tuple[Any, Any, list[Any], list[Any], bool, Any]
BatchId = tuple[str, bool]  # a model, and whether the batch is for light requests
REPORT = 0.03  # seconds after which it reports, even if no sentence is finished


class AddSentences(NamedTuple):
    """Sentences to decode: their batch, their ids, their memory, and the arguments of `ContinuousBatch.join`."""

    batch: BatchId
    ids: list[int]
    memory: PackedMemory
    limits: list[int]
    prefixes: list[tuple[int, ...]]


class DropSentences(NamedTuple):
    """Sentences to stop."""

    batch: BatchId
    ids: list[int]


class StepReport(NamedTuple):
    """Finished sentences by batch and id, and the number of sentences of each step since the last report."""

    finished: list[tuple[BatchId, int, Hypothesis]]
    rows: list[int]


def pack(memory: Memory) -> PackedMemory:
    """Return a memory as arrays, which are sent faster than tensors."""
    keys, last = ([part.numpy() for part in parts] for parts in (memory.keys, memory.last))
    allowed = None if memory.allowed is None else memory.allowed.keep.numpy()
    return memory.h.numpy(), memory.keep.numpy(), keys, last, memory.zeroed, allowed


def unpack(packed: PackedMemory) -> Memory:
    """Return a memory from its arrays."""
    h, keep, keys, last, zeroed, mask = packed
    tensor = torch.from_numpy
    allowed = None if mask is None else Allowed(tensor(mask))
    parts = tuple(map(tensor, keys)), tuple(map(tensor, last))
    return Memory(tensor(h), tensor(keep), *parts, zeroed=zeroed, allowed=allowed)


def _messages(connection: Connection, wait: bool) -> Iterator[AddSentences | DropSentences]:
    """Yield the messages that have arrived; with `wait`, at least one."""
    while wait or connection.poll(0):
        yield connection.recv()
        wait = False


@torch.inference_mode()
def decode(connection: Connection, batches: dict[BatchId, ContinuousBatch]) -> None:
    """Decode what arrives until the connection is closed; light requests go first."""
    rows: list[int] = []
    reported = time.monotonic()
    share, trim = TimeShare(), Trimmer()
    while True:
        idle = not any(map(len, batches.values()))
        trim(idle=False)
        if idle and not connection.poll(PAUSE):
            trim(idle=True)
        for message in _messages(connection, wait=idle):
            match message:
                case AddSentences(which, ids, memory, limits, prefixes):
                    batches[which].join(unpack(memory), ids, limits, prefixes)
                case DropSentences(which, ids):
                    batches[which].drop(ids)
        live = [which for which, batch in batches.items() if len(batch)]
        light = [which for which in live if which[1]]
        started = time.monotonic()
        heavy = [which for which in live if not which[1]] if not light or share.due(started) else []
        finished: list[tuple[BatchId, int, Hypothesis]] = []
        for count, which in enumerate([*heavy, *light], 1):
            rows.append(len(batches[which]))
            finished += [(which, row, hypothesis) for row, hypothesis in batches[which].step()]
            if count == len(heavy):
                share.note(started, time.monotonic())
        if finished or time.monotonic() - reported > REPORT:
            connection.send(StepReport(finished, rows))
            rows, reported = [], time.monotonic()


def digest(model: nn.Module) -> str:
    """Return a digest of the weights.

    Their bits are added up as integers: in whatever order, the sum is the same.
    """
    parts = [
        (name, tuple(weight.shape), int(weight.detach().contiguous().view(torch.uint8).view(-1).sum(dtype=torch.long)))
        for name, weight in model.named_parameters()
    ]
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def main(socket: str, threads: str, models: str) -> None:
    """Load models, given as JSON by name, send their digests, and decode until the service ends."""
    torch.set_num_threads(int(threads))
    with Connection(int(socket)) as connection:
        try:
            loaded = {name: load(path, "cpu").parts.model for name, path in json.loads(models).items()}
        except HeedfulError as error:
            sys.exit(f"heedful: the worker process: {error}".encode("utf-8", "backslashreplace").decode())
        try:
            gc.collect()
            gc.freeze()  # models and modules stay
            connection.send({name: digest(model) for name, model in loaded.items()})
            decode(
                connection,
                {(name, light): ContinuousBatch(model) for name, model in loaded.items() for light in (True, False)},
            )
        except (EOFError, ConnectionError):
            pass  # the service has ended
