"""A process that writes: sentences that others have read come to it, and go back as words.

It is started by a service on the CPU, whose own process answers requests and reads (see `distance`). One Python process
runs one thing at a time: a process of its own takes every step as if nothing else were there.
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

from heedful.decoding import Flow, Hypothesis
from heedful.errors import HeedfulError
from heedful.models import Memory
from heedful.serve.memory import PAUSE, Trimmer
from heedful.serve.sharing import Share
from heedful.translator import load

__all__ = ["Drop", "Join", "Stepped", "digest", "main", "packed", "said", "unpacked", "write"]

Packed = tuple[Any, Any, list[Any], list[Any]]
Name = tuple[str, bool]  # of a flow: its model, and whether it is for light requests
OFTEN = 0.03  # seconds after which it says a word, even if nothing is over


class Join(NamedTuple):
    """Sentences that begin: in which flow, their names, what was read of them, and what `Flow.join` takes."""

    flow: Name
    names: list[int]
    memory: Packed
    limits: list[int]
    prefixes: list[tuple[int, ...]]


class Drop(NamedTuple):
    """Sentences that nobody waits for any more."""

    flow: Name
    names: list[int]


class Stepped(NamedTuple):
    """What is over, by flow and name; and how many sentences were in each step since the last time."""

    over: list[tuple[Name, int, Hypothesis]]
    rows: list[int]


def packed(memory: Memory) -> Packed:
    """Return a memory as arrays, which are sent more quickly than tensors."""
    keys, last = ([part.numpy() for part in parts] for parts in (memory.keys, memory.last))
    return memory.h.numpy(), memory.keep.numpy(), keys, last


def unpacked(given: Packed) -> Memory:
    """Return a memory from its arrays."""
    h, keep, keys, last = given
    tensor = torch.from_numpy
    return Memory(tensor(h), tensor(keep), tuple(map(tensor, keys)), tuple(map(tensor, last)))


def said(line: Connection, wait: bool) -> Iterator[Join | Drop]:
    """Yield what has come; with `wait`, at least one message."""
    while wait or line.poll(0):
        yield line.recv()
        wait = False


@torch.inference_mode()
def write(line: Connection, flows: dict[Name, Flow]) -> None:
    """Write what comes, until nobody is there any more; light requests go first."""
    rows: list[int] = []
    told = time.monotonic()
    share = Share()
    trim = Trimmer()
    while True:
        idle = not any(map(len, flows.values()))
        trim(idle=False)
        if idle and not line.poll(PAUSE):
            trim(idle=True)
        for message in said(line, wait=idle):
            match message:
                case Join(which, names, memory, limits, prefixes):
                    flows[which].join(unpacked(memory), names, limits, prefixes)
                case Drop(which, names):
                    flows[which].drop(names)
        over: list[tuple[Name, int, Hypothesis]] = []
        light = [which for which, flow in flows.items() if which[1] and len(flow)]
        heavy = [which for which, flow in flows.items() if not which[1] and len(flow)]
        begun = time.monotonic()
        if light and not share.due(begun):
            heavy = []
        for which in heavy:
            rows.append(len(flows[which]))
            over += [(which, name, hypothesis) for name, hypothesis in flows[which].step()]
        if heavy:
            share.note(begun, time.monotonic())
        for which in light:
            rows.append(len(flows[which]))
            over += [(which, name, hypothesis) for name, hypothesis in flows[which].step()]
        if over or time.monotonic() - told > OFTEN:
            line.send(Stepped(over, rows))
            rows, told = [], time.monotonic()


def digest(model: nn.Module) -> str:
    """Return what is the same for the same weights, and hardly for others.

    Their bits are added up as integers: in whatever order, the sum is the same.
    """
    parts = [
        (name, tuple(weight.shape), int(weight.detach().contiguous().view(torch.uint8).view(-1).sum(dtype=torch.long)))
        for name, weight in model.named_parameters()
    ]
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def main(socket: str, threads: str, models: str) -> None:
    """Load models, given as JSON by name, say what was loaded, and write; end when the service does."""
    torch.set_num_threads(int(threads))
    with Connection(int(socket)) as line:
        try:
            loaded = {name: load(path, "cpu").parts.model for name, path in json.loads(models).items()}
        except HeedfulError as error:
            sys.exit(f"heedful: the decoding process: {error}".encode("utf-8", "backslashreplace").decode())
        try:
            gc.collect()
            gc.freeze()  # models and modules stay
            line.send({name: digest(model) for name, model in loaded.items()})
            write(line, {(name, light): Flow(model) for name, model in loaded.items() for light in (True, False)})
        except (EOFError, ConnectionError):
            pass  # the service has ended
