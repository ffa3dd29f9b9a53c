"""`heedful translate --server`: the translations of a service, printed as those of a model here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from heedful.cli.options import print_json
from heedful.cli.translate import one_line
from heedful.client import Client, TooMuch

__all__ = ["Asking", "ask"]

CHUNK = 32  # lines of a request


class Asking(NamedTuple):
    """What is asked of a service; the model `-` is its default."""

    model: str
    beam: int
    n_best: int
    prefix: str | None
    alignments: bool
    html: bool

    @property
    def name(self) -> str | None:
        """The model's name, if one was given."""
        return None if self.model == "-" else self.model


def ask(url: str, asked: Asking, lines: Iterable[str], stream: bool, json: bool) -> None:
    """Let a service translate lines, and print what it answers; its token is in HEEDFUL_TOKEN."""
    with Client(url, os.environ.get("HEEDFUL_TOKEN", "")) as client:
        if stream:
            for number, line in enumerate(lines, 1):
                _stream(client, asked, number, line, json)
            return
        left = iter(lines)
        while chunk := list(islice(left, CHUNK)):
            for item in _translated(client, asked, chunk):
                if json:
                    print_json(item)
                else:
                    _print(item, asked)


def _translated(client: Client, asked: Asking, chunk: Sequence[str]) -> list[dict[str, Any]]:
    """Return the translations of some lines; where they are too many for the service, of one half and of the other."""
    try:
        return client.translate(
            chunk,
            model=asked.name,
            beam=asked.beam,
            n_best=asked.n_best,
            prefix=asked.prefix,
            alignments=asked.alignments,
            markup=asked.html,
        )
    except TooMuch:
        if len(chunk) == 1:
            raise
        half = len(chunk) // 2
        return [*_translated(client, asked, chunk[:half]), *_translated(client, asked, chunk[half:])]


def _print(item: dict[str, Any], asked: Asking) -> None:
    for rank, one in enumerate(item.get("alternatives") or [item], 1):
        text = one_line(one["markup"] if asked.html else one["text"]).strip()
        if asked.n_best > 1 or asked.alignments:
            text = text.replace("\t", " ")
        if asked.n_best > 1 and one["words"]:
            text = f"{rank}\t{one['rank_score']:.4f}\t{text}"
        if asked.alignments and one["words"]:
            text += f"\t{(one['alignment'] or {}).get('pharaoh', '')}"
        print(text, flush=True)


def _stream(client: Client, asked: Asking, number: int, line: str, json: bool) -> None:
    whole = shown = ""
    for name, record in client.stream(line, model=asked.name, prefix=asked.prefix):
        if name == "token" and json:
            print_json({"line": number, **record})
        elif name == "token" and record["text"]:
            # The space between two sentences comes with the first word of the second.
            whole = whole[: record["start"]].ljust(record["start"]) + record["text"]
            text = one_line(whole).lstrip()
            print(text[len(shown) :], end="", flush=True)
            shown = text
    if not json:
        print(flush=True)
