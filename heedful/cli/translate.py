"""`heedful translate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import BatchTokens, Device, Json, Model, Threads, print_json, say, use_threads, width

if TYPE_CHECKING:
    from heedful.translator import Translation

__all__ = ["translate"]

CHUNK = 1000  # lines read from stdin before they are translated, so that they can be sorted by length


def translate(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; otherwise stdin, a sentence a line.")
    ] = None,
    *,
    show: Annotated[bool, typer.Option("--show", help="Draw, for each word written, where the model looked.")] = False,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")] = False,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Translate sentences, one a line; a blank line stays blank.

    --json gives one object a line, with log-probability, confidence, and with --show the weights between words.
    """
    from heedful.translator import load

    use_threads(threads)
    translator = load(model, device)
    lines = iter(text) if text else _stdin()
    size = 1 if text is None and sys.stdin.isatty() else CHUNK
    unknown: dict[str, None] = {}
    while chunk := list(islice(lines, size)):
        unknown |= dict.fromkeys(piece for line in chunk for piece in translator.unknown(line))
        for translation in translator.translate(chunk, trace=show, batch_tokens=batch_tokens):
            if json:
                print_json(translation.plain())
            else:
                _print(translation, show, ascii_only)
        sys.stdout.flush()
    if unknown:
        some = ", ".join(islice(unknown, 5)) + (" …" if len(unknown) > 5 else "")
        say(f"the model does not know {len(unknown):,} of these words, and translates as if they were one: {some}")


def _print(translation: Translation, show: bool, ascii_only: bool) -> None:
    print(" ".join(translation.text.split()))
    if show:
        print()
        if translation.text:
            translation.show(width=width(), ascii_only=ascii_only)
            print()


def _stdin() -> Iterator[str]:
    from heedful.data import decode

    return decode(sys.stdin.buffer, "standard input")
