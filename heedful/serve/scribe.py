"""A process that writes: sentences that others have read come to it, and go back as words.

It is started by a service on the CPU, whose own process answers requests and reads (see `distance`). One Python process
runs one thing at a time: a process of its own takes every step as if nothing else were there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.decoding import Flow, Hypothesis
from heedful.models import Memory
from heedful.translator import load

__all__ = ["Drop", "Join", "Stepped", "digest", "main", "packed", "said", "unpacked", "write"]

Packed = tuple[Any, Any, list[Any], list[Any]]
OFTEN = 0.5  # seconds after which it says a word, even if nothing is over


class Join(NamedTuple):
    """Sentences that begin: of which model, their names, what was read of them, and what `Flow.join` takes."""

    model: str
    names: list[int]
    memory: Packed
    limits: list[int]
    prefixes: list[tuple[int, ...]]


class Drop(NamedTuple):
    """Sentences that nobody waits for any more."""

    model: str
    names: list[int]


class Stepped(NamedTuple):
    """What is over, by model and name; and how many sentences were in each step since the last time."""

    over: list[tuple[str, int, Hypothesis]]
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
def write(line: Connection, flows: dict[str, Flow]) -> None:
    """Write what comes, until nobody is there any more."""
    rows: list[int] = []
    told = time.monotonic()
    while True:
        live = [name for name, flow in flows.items() if len(flow)]
        for message in said(line, not live):
            match message:
                case Join(model, names, memory, limits, prefixes):
                    flows[model].join(unpacked(memory), names, limits, prefixes)
                case Drop(model, names):
                    flows[model].drop(names)
        over: list[tuple[str, int, Hypothesis]] = []
        for model, flow in flows.items():
            if len(flow):
                rows.append(len(flow))
                over += [(model, name, hypothesis) for name, hypothesis in flow.step()]
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
        loaded = {name: load(path, "cpu").parts.model for name, path in json.loads(models).items()}
        try:
            line.send({name: digest(model) for name, model in loaded.items()})
            write(line, {name: Flow(model) for name, model in loaded.items()})
        except (EOFError, ConnectionError):
            pass  # the service has ended
