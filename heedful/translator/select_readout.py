"""`heedful.select_readout`: read the weights of a model for given pairs, and select how links are read from them.

For a model of images, pairs are captions of images, and gold regions say where their words are.

`measure_alarms` measures how often alarms are raised for wrong and for right translations of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from heedful.alignment.gold import Gold
from heedful.alignment.links import Links
from heedful.alignment.select_readout import (
    GOLD,
    ReadoutSelection,
    ReferenceLinks,
    select,
    select_pointing,
)
from heedful.alignment.symmetrize import DirectedLinks
from heedful.data.captions import CaptionSource, Region, caption_source
from heedful.data.formats import spread_first
from heedful.data.images import EncodedImage, LoadedImage
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import write_readout
from heedful.metrics import extract_stats
from heedful.metrics.pointing import GoldWord, gold_words
from heedful.trace.alarms import ENOUGH, KINDS, AlarmRates, alarms
from heedful.trace.readout import BY_RULE, Readout
from heedful.translator.aligning import align, check_reverse
from heedful.translator.default_readout import default_readout, has_rule, own_pairs, weight_table
from heedful.translator.translator import Translator

WORST = 0.25  # share of translations with the lowest chrF; those that differ from their reference are wrong
PAIRS = 500  # to translate at most
SEED = 1  # of the choice of captions
FEWEST = round(ENOUGH / WORST)  # pairs: with fewer, there cannot be enough wrong translations


def select_readout(  # noqa: PLR0913  (the options of the command)
    translator: Translator,
    pairs: Sequence[tuple[str, str]] = (),
    gold: Gold | Sequence[Links] | None = None,
    *,
    text: Sequence[str] = (),
    reverse: Translator | None = None,
    reverse_name: str = "the reverse model",
    max_pairs: int = 1000,
    batch_tokens: int = 0,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    regions: Sequence[Region] | str | Path | None = None,
) -> ReadoutSelection:
    """Select how links are read from a model's attention weights: layer, heads, step, norms and link rule.

    All read-outs are tried on `max_pairs` of the pairs. Their links are measured against `gold` links (of each pair, in
    order; see `heedful.alignment.read_gold`), or those of a `reverse` model, or those of the statistical aligner, which
    learns from all pairs. With gold links and a reverse model, the way to combine both directions is selected, too.
    The alarms of the selected read-out are measured on up to 500 translations.

    With `text`, sentences of the source language, no pairs are needed: the model translates them itself, `max_pairs` of
    them at most, and the words in them alone. The links are those of the statistical aligner, which learns from all of
    that, and there are no alarm rates.

    The result's `readout` is the one to use: the best, unless `why_not_saved()` says why the present one stays. It is
    written to the model folder `folder` as readout.json, if one is given and there is something new to write.

    For a model of images, `pairs` are (name of an image, caption), `images` is their folder or archive, and `regions`
    are gold regions of words, or a file of them; `select_by_regions` does the work.
    """
    if text or not pairs:
        _check_text(translator, text, [pairs, gold, reverse, images, regions])
        return _select_by_text(translator, text, max_pairs, batch_tokens, folder)
    if translator.reads_images or images is not None or regions is not None:
        if gold is not None or reverse is not None:
            raise ConfigError("gold links and reverse models are for models of text; give images and regions instead")
        source = _captions(translator, pairs, images, regions)
        return select_by_regions(translator, source, max_pairs=max_pairs, batch_tokens=batch_tokens, folder=folder)
    if gold is None:
        pairs = spread_first(list(pairs), max_pairs)
    chosen = [i for i, (x, y) in enumerate(pairs[:max_pairs]) if x and y and not translator.too_long(x, y)]
    if reverse is not None:
        chosen = [i for i in chosen if not reverse.too_long(*reversed(pairs[i]))]
    if len(chosen) < 2:
        raise DataError(f"{len(chosen)} of {len(pairs)} pairs can be read; selecting a read-out takes at least two")
    sources, targets = ([pairs[i][side] for i in chosen] for side in (0, 1))
    backward = None
    if reverse is not None:
        check_reverse(translator, reverse, sources, targets)
        backward = [DirectedLinks.of(one).flipped() for one in reverse.align(targets, sources)]
    if gold is not None:
        known = gold if isinstance(gold, Gold) else Gold(list(gold), list(gold))
        sure, possible = ([links[i] for i in chosen] for links in known[:2])
        reference = ReferenceLinks(sure, possible, GOLD, backward)
    elif backward is not None:
        links = [one.links for one in backward]
        reference = ReferenceLinks(links, links, f"the links of {reverse_name}")
    else:
        links = align(list(zip(sources, targets, strict=True)), extra=pairs[max_pairs:]).links
        reference = ReferenceLinks(links, links, "the statistical aligner's links")
    table = weight_table(translator, sources, targets, batch_tokens)
    selection = select(table, reference, _defaults(translator), own_readout(translator))
    used = list(zip(sources, targets, strict=True))
    alarms = measure_alarms(translator, used, selection.readout, batch_tokens)
    selection = selection._replace(alarms=alarms, skipped=len(pairs[:max_pairs]) - len(chosen))
    if folder is not None and (not selection.why_not_saved() or alarms is not None):
        write_readout(Path(folder), selection.readout)
    return selection


def _check_text(translator: Translator, text: Sequence[str], others: Sequence[object]) -> None:
    """Raise ConfigError or DataError if a read-out cannot be selected by a text."""
    if any(one is not None and (not isinstance(one, Sized) or len(one)) for one in others):
        raise ConfigError("text cannot be combined with pairs, gold links, a reverse model, images or regions")
    if translator.reads_images:
        raise ConfigError("this model captions images: its read-out is selected with images and regions, not by a text")
    if isinstance(text, str):
        raise DataError("text is one str, expected a list of sentences")
    if not any(one.strip() for one in text):
        raise DataError(
            "there is nothing to select a read-out on: give pairs, or text, sentences of the source language"
        )


def _select_by_text(
    translator: Translator, text: Sequence[str], max_pairs: int, batch_tokens: int, folder: str | Path | None
) -> ReadoutSelection:
    """Select a read-out by the model's own translations of sentences."""
    own = own_pairs(translator, text, max_pairs, batch_tokens)
    if len(own.sources) < 2:
        raise DataError(f"{len(own.sources)} sentences can be translated; selecting a read-out takes at least two")
    links = align(own.words, extra=own.extra).links
    reference = ReferenceLinks(links, links, "the statistical aligner's links of the model's own translations")
    table = weight_table(translator, own.sources, own.targets, batch_tokens, apart=True)
    selection = select(table, reference, _defaults(translator), own_readout(translator))
    if folder is not None and not selection.why_not_saved():
        write_readout(Path(folder), selection.readout)
    return selection


def _defaults(translator: Translator) -> dict[str, Readout]:
    """Return the read-outs to compare with: the naive and the usual one, and of an opened model that by rule."""
    config = translator.config
    defaults = {"naive": Readout.naive(config.model), "usual": Readout.usual(config)}
    return {**defaults, **({BY_RULE: default_readout(translator)} if has_rule(translator.parts) else {})}


def _captions(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    images: str | Path | None,
    regions: Sequence[Region] | str | Path | None,
) -> CaptionSource:
    """Return captions with their images and regions; raise ConfigError if they do not fit the model."""
    if not translator.reads_images:
        raise ConfigError("this model translates text: its read-out is selected without images and regions")
    if images is None:
        raise ConfigError("this model captions images: its read-out is selected with images, their folder or archive")
    return caption_source(pairs, images, regions=regions)


def select_by_regions(
    translator: Translator,
    captions: CaptionSource,
    *,
    max_pairs: int = 1000,
    batch_tokens: int = 0,
    folder: str | Path | None = None,
    log: Callable[[str], None] | None = None,
) -> ReadoutSelection:
    """Select the read-out of a model of images: layer, heads, step and norms by pointing accuracy.

    The captions are those with gold regions, at most `max_pairs`; images that cannot be read are left out. `log`
    receives messages about the files. The rest is as in `select_readout`.
    """
    index = captions.boxes(log)
    if index is None:
        raise ConfigError(
            "the read-out of a model of images is selected by gold regions, and there are none; "
            'give regions, JSON lines such as {"image": "a.png", "word": 1, "x": 10, "y": 20, "w": 32, "h": 32}'
        )
    rows = list(captions.rows(log))
    linked = [(row, regions) for row, regions in zip(rows, index.take(rows), strict=True) if regions]
    if log is not None:
        index.end(log)
    # At random: rows may go in turns, such as by the number of objects, and every other one is held out.
    linked = Random(SEED).sample(linked, min(max_pairs, len(linked)))
    encoded: dict[str, EncodedImage | None] = {}
    used: list[tuple[EncodedImage, str]] = []
    gold: list[list[GoldWord]] = []
    for (_, image, caption), regions in linked:
        if image not in encoded:
            encoded[image] = _readable(translator, captions, image, log)
        code = encoded[image]
        if code is not None and not translator.why_too_long(0, len(translator.parts.target.encode(caption).ids)):
            used.append((code, caption))
            gold.append(gold_words(code.regions, ((r.word, (r.x, r.y, r.w, r.h), r.kind) for r in regions)))
    if len(used) < 2:
        raise DataError(
            f"{len(used)} of {len(linked)} captions with regions can be read; selecting a read-out takes at least two"
        )
    table = weight_table(translator, [code for code, _ in used], [caption for _, caption in used], batch_tokens)
    selection = select_pointing(table, gold, _defaults(translator), own_readout(translator))
    pictures = [(LoadedImage(code.regions.name, code.pixels), caption) for code, caption in used]
    alarms = measure_alarms(translator, pictures, selection.readout, batch_tokens)
    selection = selection._replace(alarms=alarms, skipped=len(linked) - len(used))
    if folder is not None and (not selection.why_not_saved() or alarms is not None):
        write_readout(Path(folder), selection.readout)
    return selection


def _readable(
    translator: Translator, captions: CaptionSource, image: str, log: Callable[[str], None] | None
) -> EncodedImage | None:
    """Return an image as the model reads it, or None if it cannot be read."""
    try:
        return translator.parts.image_input.encode(captions.image_files.load(image), picture=False)
    except DataError as error:
        if log is not None:
            log(f"skipped {error}")
        return None


def own_readout(translator: Translator) -> Readout | None:
    """Return the read-out that was selected for a model, or written by hand; None for the default."""
    own = translator.parts.readout
    return None if own is None or own.is_usual(translator.config) else own


def measure_alarms(
    translator: Translator, pairs: Sequence[tuple[Any, str]], readout: Readout | None = None, batch_tokens: int = 0
) -> AlarmRates | None:
    """Translate the sources of pairs, texts or images, and count the alarms of wrong and right ones, by a read-out.

    A translation is wrong if it differs from its reference and its chrF is in the lowest quarter; all others are right.
    Returns None for too few pairs, and for a model without attention.
    """
    chosen = [
        pair
        for pair in spread_first(list(pairs), PAIRS)[:PAIRS]
        if pair[1].strip() and (not isinstance(pair[0], str) or pair[0].strip())
    ]
    if len(chosen) < FEWEST or translator.config.family == "fixed":
        return None
    reader = translator if readout is None else Translator(translator.parts, translator.device, [readout])
    sources = [source for source, _ in chosen]
    write = reader.caption if reader.reads_images else reader.translate
    done = write(sources, batch_tokens=batch_tokens)
    stats = extract_stats([one.text for one in done], [target for _, target in chosen], ("chrf", "exact"))
    worst = np.argsort(stats.sentences("chrf"), kind="stable")[: round(WORST * len(done))]
    wrong = np.zeros(len(done), dtype=bool)
    wrong[worst] = True
    wrong &= stats.sentences("exact") == 0
    kinds = [
        {alarm.kind for part in one.sentences or (one,) for alarm in alarms(part.trace, every=True)} for one in done
    ]
    raised = {kind: np.array([kind in each for each in kinds]) for kind in KINDS}
    counts = ((kind, int(marked[wrong].sum()), int(marked[~wrong].sum())) for kind, marked in raised.items())
    return AlarmRates(int(wrong.sum()), int((~wrong).sum()), tuple(counts))
