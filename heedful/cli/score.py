"""`heedful score`."""

from __future__ import annotations

from itertools import compress

import heedful
from heedful.cli import options
from heedful.cli.output import log, print_json
from heedful.data.formats import portions

CHUNK = 1000  # pairs read at once, enough to sort them by length
CHARACTERS = 1_000_000  # at most in these pairs


def score(
    model: options.Model,
    pairs: options.PairFiles = None,
    *,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    with_: options.With = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 4096,
    json: options.Json = False,
) -> None:
    """Score existing translations.

    Prints the log-probability, a tab, and the confidence of each pair. The confidence is exp of the mean
    log-probability of the tokens. A pair with an empty side, or too long for the model, gives a blank line. --json
    prints one object a line, with the confidence of each word.
    """
    with options.name_options():
        rows = options.pair_rows(options.pair_files(pairs, source, target, columns, format_))
        translator = options.open_model(model, with_, device, threads, links=False)
        blank, notes = 0, options.Notes()
        for chunk in portions(rows, CHUNK, CHARACTERS, lambda row: len(row[0]) + len(row[1])):
            if not notes.lines:
                options.check_direction(model, translator, chunk, columns)
            blank += sum(not (x and y) for x, y in chunk)
            long = [translator.too_long(x, y) if x and y else "" for x, y in chunk]
            whole = [bool(x and y and not why) for (x, y), why in zip(chunk, long, strict=True)]
            sides = [[pair[side] for pair in compress(chunk, whole)] for side in (0, 1)]
            scored = iter(translator.score(*sides, weights=False, batch_tokens=batch_tokens))
            for (x, y), why, read in zip(chunk, long, whole, strict=True):
                unknown = [*translator.unknown(x), *translator.unknown(y, target=True)] if read else ()
                notes.add([f"{why}; it has no score"] if why else (), unknown)
                _print(x, y, next(scored) if read else None, json)
    notes.log()
    if not notes.lines:
        log("no pairs to score")
    if blank:
        log(f"{blank:,} line{'s' * (blank > 1)} with an empty side have no score")


def _print(source: str, target: str, scored: heedful.Translation | None, json: bool) -> None:
    if not json:
        print(f"{scored.score:.4f}\t{scored.confidence:.4f}" if scored else "")
    elif scored is None:
        print_json({"source": source, "text": target, "score": None, "confidence": None})
    else:
        record = scored.plain()
        names = ("source", "text", "score", "confidence", "target_words", "word_confidences")
        print_json({name: record[name] for name in names})
