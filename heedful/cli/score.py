"""`heedful score`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from heedful.cli.decoding import With, naming_options, opened
from heedful.cli.notes import Notes
from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Format,
    Json,
    Model,
    PairFiles,
    Source,
    Target,
    Threads,
    pair_files,
    print_json,
    say,
)

if TYPE_CHECKING:
    from heedful.data import PairFile
    from heedful.translator import Translation

__all__ = ["score"]

CHUNK = 1000  # pairs that are read before they are scored, so that they can be sorted by length


def score(
    model: Model,
    pairs: PairFiles = None,
    *,
    source: Source = None,
    target: Target = None,
    columns: Columns = "",
    format_: Format = "",
    with_: With = None,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Say how probable given translations are: for each pair its log-probability, a tab, and its confidence.

    The confidence is the mean log-probability of the tokens, as a probability. A pair with an empty side is a blank
    line. --json gives one object a line, with the confidence of each word.
    """
    with naming_options():
        rows = _rows(pair_files(pairs, source, target, columns, format_))
        translator = opened(model, with_, device, threads)
        blank, notes = 0, Notes()
        while chunk := list(islice(rows, CHUNK)):
            whole = [(x, y) for x, y in chunk if x and y]
            blank += len(chunk) - len(whole)
            scored = iter(
                translator.score(*map(list, zip(*whole, strict=True)), weights=False, batch_tokens=batch_tokens)
                if whole
                else []
            )
            for x, y in chunk:
                notes.add((), [*translator.unknown(x), *translator.unknown(y, target=True)] if x and y else ())
                _print(x, y, next(scored) if x and y else None, json)
    notes.say()
    if blank:
        say(f"{blank:,} line{'s' * (blank > 1)} with an empty side have no score")


def _print(source: str, target: str, scored: Translation | None, json: bool) -> None:
    if not json:
        print(f"{scored.score:.4f}\t{scored.confidence:.4f}" if scored else "")
    elif scored is None:
        print_json({"source": source, "text": target, "score": None, "confidence": None})
    else:
        record = scored.plain()
        names = ("source", "text", "score", "confidence", "target_words", "word_confidences")
        print_json({name: record[name] for name in names})


def _rows(files: Sequence[PairFile]) -> Iterator[tuple[str, str]]:
    """Return the pairs, those with an empty side as well: a line in is a line out."""
    from heedful.data import sides

    return (pair for file in files for pair in sides(file.rows()))
