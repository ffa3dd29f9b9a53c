"""`heedful score`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING

import heedful
from heedful.cli import options
from heedful.cli.evaluate import Images
from heedful.cli.output import log, print_json
from heedful.data.formats import portions
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.data.captions import CaptionFile
    from heedful.data.images import EncodedImage

CHARACTERS = 1_000_000  # at most in these pairs
IMAGES = 64  # captions of images scored at once


def score(
    model: options.Model,
    pairs: options.PairFiles = None,
    *,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    images: Images = None,
    with_: options.With = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Score existing translations.

    Prints the log-probability, a tab, and the confidence of each pair. The confidence is exp of the mean
    log-probability of the tokens. A pair with an empty side, or too long for the model, gives a blank line. --json
    prints one object a line, with the confidence of each word. With --images, PAIRS are captions, and the model is one
    that captions images; a caption whose image cannot be read has no score.
    """
    if images is not None:
        unused = {"--source": source is not None, "--target": target is not None}
        options.check_unused("with --images", unused)
        with options.name_options():
            translator = options.open_model(model, with_, device, threads, links=False)
            _score_captions(model, translator, pairs, images, (columns, format_), batch_tokens, json)
        return
    with options.name_options():
        rows = options.pair_rows(options.pair_files(pairs, source, target, columns, format_))
        translator = options.open_model(model, with_, device, threads, links=False)
        if translator.reads_images:
            raise ConfigError(f"{model}: this model captions images; name their folder or archive with --images")
        blank, notes = 0, options.Notes()
        size = translator.texts_at_once(trace=True)
        for chunk in portions(rows, size, CHARACTERS, lambda row: len(row[0]) + len(row[1])):
            if not notes.lines:
                options.check_direction(model, translator, chunk, columns)
            blank += sum(not (x and y) for x, y in chunk)
            longs = translator.pairs_too_long(*([pair[side] for pair in chunk] for side in (0, 1)))
            long = [why if x and y else "" for (x, y), why in zip(chunk, longs, strict=True)]
            whole = [bool(x and y and not why) for (x, y), why in zip(chunk, long, strict=True)]
            sides = [[pair[side] for pair in compress(chunk, whole)] for side in (0, 1)]
            scored = iter(translator.score(*sides, weights=False, batch_tokens=batch_tokens))
            unknown = (translator.unknown_pieces([pair[side] for pair in chunk], target=bool(side)) for side in (0, 1))
            for (x, y), why, read, *pieces in zip(chunk, long, whole, *unknown, strict=True):
                notes.add([f"{why}; it has no score"] if why else (), chain.from_iterable(pieces) if read else ())
                _print(x, y, next(scored) if read else None, json)
    notes.log()
    if not notes.lines:
        log("no pairs to score")
    if blank:
        log(f"{blank:,} line{'s' * (blank > 1)} with an empty side have no score")


def _score_captions(
    model: Path,
    translator: heedful.Translator,
    files: list[Path] | None,
    images: Path,
    reading: tuple[str, str],
    batch_tokens: int,
    json: bool,
) -> None:
    """Print the scores of captions; `reading` are the columns and the format of their files."""
    if not translator.reads_images:
        raise ConfigError(f"{model}: this model translates text and cannot read images; leave out --images")
    if not files:
        raise ConfigError("no captions: name files of PAIRS, with columns image and caption")
    notes = options.Notes()
    rows = _encoded(translator, files, images, *reading)
    for chunk in portions(rows, IMAGES, CHARACTERS, lambda row: len(row[1])):
        known = [(image, caption) for _, caption, image, _ in chunk if image is not None]
        scored = iter(
            translator.score(*map(list, zip(*known, strict=True)), weights=False, batch_tokens=batch_tokens)
            if known
            else []
        )
        for name, caption, image, why in chunk:
            unknown = translator.unknown(caption, target=True) if image else ()
            notes.add([f"{why}; it has no score"] if why else (), unknown)
            _print(name, caption, next(scored) if image is not None else None, json)
    notes.log()
    if not notes.lines:
        log("no captions to score")


def _encoded(
    translator: heedful.Translator, files: list[Path], images: Path, columns: str, format_: str
) -> Iterator[tuple[str, str, EncodedImage | None, str]]:
    """Yield image name, caption, the image as the model reads it, and why there is none, of every row."""
    from heedful.data.captions import CaptionFile

    last: tuple[str, EncodedImage | None, str] = ("", None, "")
    for path in files:
        file = CaptionFile(str(path), str(images), format=format_, columns=columns)
        for _, name, caption in file.cells(options.log_for(file.name)):
            if name != last[0]:
                last = (name, *_load(translator, file, name))
            why = last[2] or ("" if caption.strip() else "the caption is empty")
            if not why:
                why = translator.why_too_long(0, len(translator.parts.target.encode(caption).ids))
            yield name, caption, None if why else last[1], why


def _load(translator: heedful.Translator, file: CaptionFile, name: str) -> tuple[EncodedImage | None, str]:
    """Return an image as the model reads it, or why it cannot be read."""
    from heedful.data.captions import find_image

    try:
        found = find_image(file.image_files, name, file.name)
        if found is None:
            return None, f"'{name}' is not in {file.images}"
        return translator.parts.image_input.encode(file.image_files.load(found), picture=False), ""
    except DataError as error:
        return None, str(error)


def _print(source: str, target: str, scored: heedful.Translation | None, json: bool) -> None:
    if not json:
        print(f"{scored.score:.4f}\t{scored.confidence:.4f}" if scored else "")
    elif scored is None:
        print_json({"source": source, "text": target, "score": None, "confidence": None})
    else:
        record = scored.plain()
        names = ("source", "text", "score", "confidence", "target_words", "word_confidences")
        print_json({name: record[name] for name in names})
