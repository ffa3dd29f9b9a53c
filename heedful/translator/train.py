"""`heedful.train`: train a translator in one call. `train_model` is the same for a command, with files and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heedful.data import PairFile, PairList
from heedful.data.captions import Region, caption_source
from heedful.data.links import as_lines
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import ModelParts
from heedful.trace.readout import Readout
from heedful.training import Callback, Inputs, Progress
from heedful.training.loop import run_training
from heedful.training.progress import showing
from heedful.training.setup import Settings, with_keywords
from heedful.translator import Translator, load
from heedful.translator.select_readout import FEWEST, measure_alarms

Links = Sequence[str | Iterable[tuple[int, int]]]


def train(  # noqa: PLR0913  (the options of a run)
    pairs: Sequence[tuple[str, str]] | str | Path,
    out: str | Path,
    *,
    valid: Sequence[tuple[str, str]] | str | Path | None = None,
    links: Links | None = None,
    valid_links: Links | None = None,
    images: str | Path | None = None,
    valid_images: str | Path | None = None,
    regions: Sequence[Region] | str | Path | None = None,
    valid_regions: Sequence[Region] | str | Path | None = None,
    settings: Settings | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    preset: str = "auto",
    verbose: bool = True,
    callback: Callable[[Progress], object] | Callback | None = None,
    **keywords: object,
) -> Translator:
    """Train a translator on sentence pairs, or on captions of images, write it to the folder `out` and return it.

    `pairs` and `valid` are lists of (sentence, translation), or names of files that `heedful train` reads. Every
    setting can be given by name: `model="transformer", steps=500, batch_tokens=4096, threads=2`; or nested by section,
    as in `config.json`: `settings={"model": {"family": "fixed"}, "training": {"steps": 500}}`. What is not set is
    chosen to fit the pairs (`preset="none"`: the plain defaults). With `init`, the run begins with the weights and
    vocabularies of another model, which is not changed. With `links`, for each pair either `"0-0 1-2"` or the same as
    numbers, source word and target word from 0, attention is trained to follow them; `valid_links` are those of
    `valid`, on which it is measured.

    With `images`, a folder or a zip or tar archive, the model captions images: `pairs` and `valid` are lists of (image
    name, caption), or files of captions (CSV, TSV, JSON); those of `valid` may be in `valid_images`. `regions`, a file
    of JSON lines or a list of `heedful.data.captions.Region`, are boxes in pixels that words of captions name, which
    attention is trained to follow. The result has `caption`.

    Ctrl-C writes a checkpoint and raises `KeyboardInterrupt`; `resume=True`, with the
    same pairs, continues from there.

    Progress is shown as a bar in a terminal or a notebook, elsewhere as a line a minute; `verbose=False` shows nothing.
    Messages go to the logger `heedful.training`. `callback` is a function that is called with a `Progress` (step, loss,
    tokens_per_second, …; after a validation its `validation` has the scores and samples), or an object with the
    methods `on_step(progress)` and `on_validation(validation)`.
    """
    chosen = with_keywords(settings or {}, keywords, train)
    if valid_links is not None and (links is None or valid is None):
        raise ConfigError("valid_links are the links of valid, and need links and valid; give both")
    if images is None:
        if valid_images is not None or regions is not None or valid_regions is not None:
            raise ConfigError("valid_images and regions go with captions of images; give images")
        validation = () if valid is None else (_pair_source(valid, "validation pairs", valid_links),)
        inputs = Inputs((_pair_source(pairs, "", links),), validation)
    else:
        if links is not None:
            raise ConfigError("links are between words of two sentences; captions of images have regions")
        if valid is None and (valid_images is not None or valid_regions is not None):
            raise ConfigError("valid_images and valid_regions go with valid; give all")
        held = () if valid is None else (valid,)
        inputs = Inputs(
            (caption_source(pairs, images, "captions", regions, "train"),),
            tuple(
                caption_source(one, valid_images or images, "validation captions", valid_regions, "valid")
                for one in held
            ),
        )
    with _suggesting_read_pairs(), showing(verbose, callback) as reporter:
        outcome = train_model(inputs, Path(out), chosen, resume=resume, reporter=reporter, init=init, preset=preset)
    if outcome.signal:
        raise KeyboardInterrupt
    training = chosen.get("training", {})
    return load(out, str(training.get("device", "auto")))


@contextmanager
def _suggesting_read_pairs() -> Iterator[None]:
    """Add to an error about the columns of a file how to choose them in Python."""
    try:
        yield
    except DataError as error:
        if "columns=" in str(error):
            error.args = (f"{error}; heedful.read_pairs(file, columns=…) reads such a file",)
        raise


def _pair_source(pairs: Sequence[tuple[str, str]] | str | Path, name: str, links: Links | None) -> PairFile | PairList:
    """Return pairs as a file or a list, with their links."""
    lines = None if links is None else as_lines(links)
    if isinstance(pairs, str | Path):
        if lines is not None:
            raise ConfigError("links go with a list of pairs; read the file first: heedful.read_pairs(file)")
        return PairFile(str(pairs))
    if not hasattr(pairs, "__len__"):
        kind = type(pairs).__name__
        raise DataError(f"expected pairs as a list of (sentence, translation), or the name of a file; found {kind}")
    return PairList(pairs, name, links=lines) if name else PairList(pairs, links=lines)


def _measured_readout(
    parts: ModelParts, device: torch.device, pairs: Sequence[tuple[Any, str]], batch_tokens: int
) -> Readout | None:
    """Return the read-out of a model with the rates of its alarms, or without them for too few pairs.

    None for a model without attention, and for one that keeps the read-out it has.
    """
    translator = Translator(parts, device)
    rates = measure_alarms(translator, pairs, batch_tokens=batch_tokens) if len(pairs) >= FEWEST else None
    if rates is None:
        return translator.parts_to_write().readout if parts.readout is None else None
    return replace(translator.readout, alarms=rates)


train_model = partial(run_training, measure_alarms=_measured_readout)  # what `heedful train` calls
