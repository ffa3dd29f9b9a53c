"""`heedful caption`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar

import typer

import heedful
from heedful.cli import options
from heedful.cli.output import error, log, print_json, print_translation, progress_bar, write_colours
from heedful.cli.translate import one_line, rank_score
from heedful.data.formats import portions
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.data.images import EncodedImage, LoadedImage


T = TypeVar("T")
STDIN = "-"
IMAGES, BYTES = 32, 48_000_000  # captioned at once: so many images, or about so many bytes of their pixels
PROGRESS = 50  # files from which on progress is shown


class _CaptionOutput(NamedTuple):
    """How captions are printed."""

    several: bool
    show: bool
    alignments: bool
    smooth: bool
    ascii_only: bool
    how: heedful.Decoding


def caption(
    model: options.Model,
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGE", help="PNG, JPEG, WebP or GIF files; - is one on stdin.", show_default=False),
    ],
    *,
    beam: options.Beam = 1,
    n_best: Annotated[int, typer.Option(metavar="N", help="Captions of each image.")] = 1,
    penalty: options.Penalty = "length",
    alpha: options.Alpha = 1.0,
    min_length: Annotated[int, typer.Option(metavar="N", help="Tokens of a caption at least.")] = 0,
    max_length: Annotated[
        int,
        typer.Option(metavar="N", help="Tokens at most, up to 10000; 0: twice the longest training caption plus 20."),
    ] = 0,
    no_repeat: options.NoRepeat = 0,
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.SampleSeed = 1,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The beginning of each caption.", show_default=False)
    ] = None,
    with_: options.With = None,
    show: Annotated[
        bool, typer.Option("--show", help="Draw each image, and its regions for every word of the caption.")
    ] = False,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="With --show, interpolate between the weights of the regions.")
    ] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Print a tab and the boxes of words after each caption.")
    ] = False,
    ascii_only: options.Ascii = False,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Use a server (heedful serve); MODEL is a name there, - its default."),
    ] = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to retry while the --server is down or busy.")
    ] = 60,
    json: options.Json = False,
) -> None:
    """Caption images with a model that was trained on captions (`heedful train --images`).

    One image gives one line. Of several, each line has the name of the file, a tab, and the caption; with --n-best, the
    rank and the score they are ranked by come before the caption. --alignments adds boxes, `2:40,0,120,80`: the number
    of a word, separated by white space and counted from 0, and x, y, width and height in pixels; words without a region
    have none. --json prints one object a line, and with --show or --alignments the weights over the regions and the
    boxes. A file that is no image is reported, and the others are captioned; the exit code is 2 then.

    With colours (NO_COLOR turns them off, FORCE_COLOR on), --show draws the image in half blocks. `heedful see` writes
    pictures and pages.
    """
    options.check_penalty(penalty, alpha, compared=beam > 1 or n_best > 1)
    options.check_sampling(sample, temperature, top_k, top_p, seed)
    drawing = {"--ascii": ascii_only, "--smooth": smooth}
    options.check_unused("with --json" if json else "without --show", drawing if json or not show else {})
    options.check_unused("with --ascii, which draws the grid", {"--smooth": ascii_only and smooth})
    if images.count(STDIN) > 1:
        raise ConfigError("- is standard input, which has one image; give it once")
    if server:
        here = {"--penalty": penalty != "length", "--alpha": alpha != 1, "--min-length": min_length != 0}
        here |= {"--max-length": max_length != 0, "--no-repeat": no_repeat != 0, "--sample": sample}
        here |= {"--with": bool(with_), "--device": device != "auto", "--threads": threads != 0}
        options.check_unused("with --server; it applies to models that are opened here", here)
    else:
        options.check_unused("without --server", {"--patience": patience != 60})
    with options.name_options(), ExitStack() as stack:
        how = options.decoding(locals())
        form = _CaptionOutput(len(images) > 1, show, alignments, smooth, ascii_only, how)
        if server:
            from heedful.cli.remote import RemoteCaptioner

            remote = RemoteCaptioner(server, patience, str(model), how, prefix, show, alignments)
            stack.callback(remote.client.close)
            files: _Files[Any] = _Files(images, lambda path: remote.caption(path, _content(path)))
            portion: Iterator[list[tuple[str, heedful.Translation]]] = ([one] for one in files)
        else:
            translator = options.open_model(model, with_, device, threads, links=alignments)
            reads = translator.parts.image_input  # raises ConfigError if the model translates text
            if show and translator.config.family == "fixed":
                log("this model has no attention: --show draws each image without the regions of words")
            files = _Files(images, lambda path: reads.encode(load_argument(path), show or alignments))
            portion = _captioned(translator, files, how, prefix, show or alignments)
        bar = len(images) >= PROGRESS and not sys.stdout.isatty()
        with progress_bar("images", len(images)) if bar else nullcontext(lambda count: None) as done:
            for some in portion:
                for path, made in some:
                    for note in made.notes:
                        log(f"{path}: {options.as_options(note)}")
                    if json:
                        print_json(_record(path, made, how))
                    else:
                        _print(path, made, form)
                done(len(some))
                sys.stdout.flush()
    if files.bad:
        raise typer.Exit(2)


def _captioned(
    translator: heedful.Translator, files: _Files[EncodedImage], how: heedful.Decoding, prefix: str | None, trace: bool
) -> Iterator[list[tuple[str, heedful.Translation]]]:
    """Yield the captions of some images at a time, with their paths."""
    for some in portions(files, IMAGES, BYTES, lambda pair: pair[1].pixels.nbytes):
        captions = translator.caption([image for _, image in some], how, prefix=prefix, trace=trace)
        yield [(path, made) for (path, _), made in zip(some, captions, strict=True)]


class _Files(Generic[T]):
    """What is made of files, with their paths; one that cannot be read is reported and counted, if there are others."""

    def __init__(self, paths: Sequence[str], make: Callable[[str], T]) -> None:
        self.paths, self.make, self.bad = paths, make, 0

    def __iter__(self) -> Iterator[tuple[str, T]]:
        for path in self.paths:
            try:
                yield path, self.make(path)
            except DataError as problem:
                if len(self.paths) == 1:
                    raise
                self.bad += 1
                error(str(problem))


def load_argument(path: str) -> LoadedImage:
    """Return the image of a file, or of standard input if the path is -."""
    from heedful.data.images import load_image

    content = _content(path)
    return load_image(content, "standard input" if path == STDIN else "")


def _content(path: str) -> str | bytes:
    """Return the bytes on standard input if the path is -, and otherwise the path."""
    from heedful.data.images import LIMITS

    if path != STDIN:
        return path
    if sys.stdin is None:
        raise DataError("standard input is closed, and - is the image on it")
    return sys.stdin.buffer.read(LIMITS.bytes + 1)


def _print(path: str, made: heedful.Translation, form: _CaptionOutput) -> None:
    """Print the captions of an image, and draw their regions."""
    from heedful.draw import regions

    for rank, one in enumerate(made.n_best or (made,), 1):
        parts = [path] if form.several else []
        if made.n_best:
            parts += [str(rank), f"{rank_score(one, form.how):.4f}"]
        columns = bool(parts or form.alignments)
        text = one_line(one.text).strip()
        parts.append(text.replace("\t", " ") if columns else text)
        if form.alignments:
            parts.append(" ".join(f"{number}:{_numbers(box)}" for number, _, box in word_boxes(one.trace) if box))
        print_translation("\t".join(parts))
        if form.show and one.text:
            colours = regions.terminal_colours(sys.stdout)
            drawn = regions.terminal(one.trace, options.width(), form.ascii_only, form.smooth, colours)
            write_colours(f"\n{drawn}\n")


def word_boxes(trace: heedful.Trace) -> Iterator[tuple[int, str, tuple[float, ...] | None]]:
    """Yield the words that white space separates in a caption: their numbers from 0, texts, and boxes in pixels."""
    spaced = trace.spaced()
    words = [(word, box) for word, box in zip(spaced.target.words, spaced.boxes(), strict=True) if not word.is_end]
    for number, (word, box) in enumerate(words):
        yield number, word.text, box


def _numbers(box: Sequence[float]) -> str:
    return ",".join(f"{number:.1f}".removesuffix(".0") for number in box)


def _record(path: str, made: heedful.Translation, how: heedful.Decoding) -> dict[str, Any]:
    """Return a caption as JSON can hold it."""
    record = {**made.plain(), "source": path}
    for plain, one in zip(record.get("n_best", ()), made.n_best, strict=True):
        plain.update(source=path, rank_score=rank_score(one, how))
    return record
