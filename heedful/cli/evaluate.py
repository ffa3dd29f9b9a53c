"""`heedful evaluate`, and what `compare` and `report` share with it: options, the test set, the systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import heedful
from heedful.cli import options
from heedful.cli.output import log, print_json, progress_bar
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.evaluation.systems import System, SystemOutput, TestSet


EXAMPLES = 5  # messages about images that cannot be read
SYSTEM = "A model folder, hf:ORG/NAME, or a file of translations, one per line."
TestFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PAIRS", help="Files of sentences and references, plain or .gz; - is stdin.", show_default=False
    ),
]
ReferenceColumns = Annotated[
    str,
    typer.Option(
        metavar="S,R,…",
        help="The columns of the source and of its references: numbers from 1, or names [1,2].",
        show_default=False,
    ),
]
ReferenceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference", "--target", metavar="FILE", help="References, line by line; may be repeated.", show_default=False
    ),
]
Images = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder, zip or tar of images; PAIRS are their captions.", show_default=False),
]
Regions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Gold regions: JSON lines of image, word, x, y, w, h in pixels.", show_default=False
    ),
]
Test = Annotated[
    str,
    typer.Option(metavar="randomisation|bootstrap", help="The significance test for the difference of two systems."),
]
Resamples = Annotated[
    int, typer.Option(min=0, metavar="N", help="Resamples of the bootstrap, for the intervals; 0: no intervals.")
]
Tokenize = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The tokenizer of BLEU: 13a, intl, char, flores200, none or zh [13a; zh or char for scripts without "
        "spaces].",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The seed of the random numbers.")]


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help=SYSTEM, show_default=False)],
    pairs: TestFiles = None,
    *,
    source: options.Source = None,
    reference: ReferenceFiles = None,
    columns: ReferenceColumns = "",
    format_: options.Format = "",
    images: Images = None,
    regions: Regions = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="Another model, or a file of translations, to compare with.", show_default=False
        ),
    ] = None,
    test: Test = "randomisation",
    tokenize: Tokenize = "",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations, one per line.", show_default=False)
    ] = None,
    beam: options.Beam = 1,
    penalty: options.Penalty = "length",
    alpha: options.Alpha = 1.0,
    min_length: options.MinLength = 0,
    max_length: options.MaxLength = 0,
    no_repeat: options.NoRepeat = 0,
    copy_unknown: options.CopyUnknown = False,
    with_: options.With = None,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Translate test sentences and score the translations.

    The scores are BLEU, chrF, TER and exact match, by source length, with 95 % confidence intervals by the bootstrap.
    --against tests for each metric whether another system is better or worse. A file of translations can take the place
    of any model: a line for each line of the test set. Every line is translated as one sentence. What the numbers mean:
    `docs/guide/evaluate.md`.

    With --images, the model captions images, and PAIRS are files with columns image and caption. All captions of an
    image are its references. The scores are BLEU, chrF, CIDEr-D, ROUGE-L and exact match, by the mean length of the
    references; a file of captions has a line for each image. With --regions also by the number of objects, and the
    pointing accuracy: the share of words of the references whose largest attention weight is on their gold region.
    """
    from heedful.evaluation.evaluate import check_test, difference_table
    from heedful.metrics import check_tokenizer

    options.check_writable("--save", save)
    check_test(test, resamples if against else 1)
    check_tokenizer(tokenize)
    options.check_penalty(penalty, alpha, compared=beam > 1)
    if not against:
        options.check_unused("without --against", {"--test": test != "randomisation"})
        options.check_unused("with --resamples 0", {"--seed": seed != 12345 and not resamples})
    options.check_unused("with --images", {"--copy-unknown": copy_unknown and images is not None})
    tests = read_any_tests(pairs, source, reference, columns, format_, images, regions)
    with options.name_options():
        how = heedful.Decoding(
            beam=beam,
            penalty=penalty,
            alpha=alpha,
            min_length=min_length,
            max_length=max_length,
            no_repeat=no_repeat,
        )
        translating = Translating(how, device, threads, batch_tokens, copy_unknown)
        first, *other = systems([model, against] if against else [model], tests, translating, with_, columns=columns)
        evaluation = heedful.evaluate(
            first,
            tests,
            against=other[0] if other else None,
            test=test,
            resamples=resamples,
            seed=seed,
            copy_unknown=copy_unknown,
            progress=progress_bar,
            decoding=how,
            batch_tokens=batch_tokens,
            tokenize=tokenize,
        )
    print_notes(evaluation.outputs, max_length=True)
    if save:
        evaluation.outputs[0].save(save)
    if json:
        print_json(evaluation.plain())
        return
    print(evaluation.table())
    if evaluation.differences:
        print(f"\nagainst {against}\n" + difference_table("", evaluation.differences, ("", "its scores")))
    print("\n".join(["", *evaluation.notes()]))


@dataclass(frozen=True)
class Translating:
    """How models translate, by the options."""

    decoding: heedful.Decoding
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 0
    copy_unknown: bool = False


def read_tests(
    pairs: Sequence[Path] | None,
    source: Path | None = None,
    references: Sequence[Path] | None = None,
    columns: str = "",
    format_: str = "",
) -> TestSet:
    """Read a test set; report how many lines are skipped."""
    from heedful.evaluation.systems import read_test_set

    options.check_sides(
        bool(pairs), source, references[0] if references else None, ("PAIRS", "--source", "--reference")
    )
    if not pairs and not source:
        raise ConfigError("no test sentences: name files of PAIRS, or use --source and --reference")
    if source:
        why = "with --source and --reference, which have one sentence a line"
        options.check_unused(why, {"--columns": bool(columns), "--format": bool(format_)})
    read = read_test_set(pairs, source, references, columns, format_, lambda name, message: log(f"{name}: {message}"))
    if read.skipped:
        log(f"skipped {read.skipped:,} line{'s' * (read.skipped > 1)} with an empty side")
    return read


def read_any_tests(
    pairs: Sequence[Path] | None,
    source: Path | None,
    references: Sequence[Path] | None,
    columns: str,
    format_: str,
    images: Path | None,
    regions: Path | None,
) -> TestSet:
    """Read a test set of text, or with --images one of images."""
    if images is None:
        options.check_unused("without --images", {"--regions": regions is not None})
        return read_tests(pairs, source, references, columns, format_)
    options.check_unused("with --images", {"--source": source is not None, "--reference": bool(references)})
    return read_caption_tests(pairs, images, regions, columns, format_)


def read_caption_tests(
    captions: Sequence[Path] | None, images: Path, regions: Path | None, columns: str = "", format_: str = ""
) -> TestSet:
    """Read a test set of images; report how many cannot be read."""
    from heedful.evaluation.systems import read_caption_set

    if not captions:
        raise ConfigError("no captions: name files of PAIRS, with columns image and caption")
    read = read_caption_set(
        captions, images, regions, columns, format_, lambda name, message: log(f"{name}: {message}"), progress_bar
    )
    bad = read.images.bad if read.images else {}
    if bad:
        log(f"skipped {len(bad):,} of {len(read.lines):,} images, which cannot be read:")
        for message in islice(bad.values(), EXAMPLES):
            log(f"  {message}")
    if read.skipped > len(bad):
        log(f"skipped {read.skipped - len(bad):,} images without a caption")
    return read


def systems(
    paths: Sequence[Path],
    test_set: TestSet,
    how: Translating,
    others: list[str] | None = None,
    *,
    columns: str | None = None,
    links: bool = False,
) -> list[System]:
    """Return the systems to evaluate: files are read now, models are opened when they are needed.

    `others` make an ensemble with the first. `columns` is the option's value, None if the command has no such option;
    `links` says whether a broken read-out is an error.
    """
    from heedful.evaluation.systems import System, read_translations

    if all(map(_is_file, paths)):
        _check_unused(paths, how)
    if others and _is_file(paths[0]):
        raise ConfigError(f"--with adds models to a model, but {paths[0]} is a file of translations")
    if [*map(str, paths), *test_set.files].count("-") > 1:
        raise ConfigError("only one file can be read from standard input, but several are -")
    for path in paths:
        if not _is_file(path) and not path.exists() and not str(path).startswith("hf:"):
            raise DataError(f"{path}: there is no such model folder, nor such a file of translations")
    lines = test_set.rows

    def opener(path: Path, others: list[str] | None) -> Callable[[], heedful.Translator]:
        def open_() -> heedful.Translator:
            translator = options.open_model(path, others, how.device, how.threads, links=links)
            if translator.reads_images and test_set.images is None:
                how_to = "name their folder or archive with --images"
                if columns is None:
                    how_to = "heedful evaluate and compare take them, with --images"
                raise ConfigError(f"{path}: this model captions images; {how_to}")
            if translator.reads_images:
                return translator
            if test_set.images is not None:
                raise ConfigError(f"{path}: this model translates text and cannot caption images; leave out --images")
            options.check_direction(path, translator, [(line.source, line.references[0]) for line in lines], columns)
            if not how.threads:
                translator.choose_threads([line.source for line in lines], how.decoding)
            return translator

        return open_

    return [
        System(str(path), translations=read_translations(path, test_set), path=path)
        if _is_file(path)
        else System(str(path), opener(path, others if i == 0 else None), path=path)
        for i, path in enumerate(paths)
    ]


def print_notes(outputs: Iterable[SystemOutput], max_length: bool = False) -> None:
    """Print the notes on translations, once each; `max_length` says whether the command has that option."""
    for each in outputs:
        notes = options.Notes(max_length)
        for line in each.notes:
            notes.add(line)
        notes.log()


def _check_unused(paths: Sequence[Path], how: Translating) -> None:
    """Raise ConfigError for options of translating where nothing is translated."""
    plain = Translating(heedful.Decoding())
    changed = {}
    for mine, default in ((how.decoding, plain.decoding), (how, plain)):
        for field in fields(mine):
            if field.name != "decoding":
                option = f"--{field.name.replace('_', '-')}"
                changed[option] = getattr(mine, field.name) != getattr(default, field.name)
    what = "is a file of translations" if len(paths) == 1 else "are files of translations"
    options.check_unused(f"where {' and '.join(map(str, paths))} {what}", changed)


MODEL_FILES = (".argosmodel", ".bin", ".npz", ".yml")  # endings of files that are models, or name them


def _is_file(path: Path) -> bool:
    """Whether this is a file of translations, and no model."""
    return str(path) == "-" or (path.is_file() and path.suffix.lower() not in MODEL_FILES)
