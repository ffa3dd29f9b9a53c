"""Options that several commands share, the checks of what they mean together, and opening a model by them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size, which
from typing import TYPE_CHECKING, Annotated, Any

import typer

import heedful
from heedful.cli.output import debug, log
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.data import PairFile
    from heedful.translator.translator import LoadKeywords


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or hf:ORG/NAME.", show_default=False)]
PairFiles = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PAIRS", help="TSV, CSV or JSON lines, plain or .gz; - is stdin.", show_default=False),
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="S,T",
        help="The columns of source and target: numbers from 1, or names [1,2 in TSV].",
        show_default=False,
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="tsv|csv|jsonl", help="The format of PAIRS [by the name].", show_default=False),
]
Source = Annotated[Path | None, typer.Option(metavar="FILE", help="Source sentences, one per line, instead of PAIRS.")]
Target = Annotated[Path | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="The device to compute on.")]
Threads = Annotated[int, typer.Option(min=0, metavar="N", help="CPU threads; 0: chosen automatically.")]
BatchTokens = Annotated[
    int, typer.Option(min=0, metavar="N", help="Source tokens in a batch; 0: as many as the memory allows.")
]
Engine = Annotated[
    str, typer.Option(metavar="heedful|ctranslate2", help="What decodes; heedful computes the attention.")
]
Int8 = Annotated[bool, typer.Option("--int8", help="With ctranslate2: weights of 8 bits, faster and less exact.")]
Precision = Annotated[
    str, typer.Option(metavar="fp32|bf16", help="Numbers of a Transformer; bf16 is faster on a GPU, but rounds.")
]
NoShortlist = Annotated[
    bool, typer.Option("--no-shortlist", help="Allow all tokens, in a model with a shortlist of those that may follow.")
]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="MODEL", help="One more model, as an ensemble; may be repeated.", show_default=False
    ),
]
Beam = Annotated[int, typer.Option(metavar="N", help="Beam size: hypotheses kept at every step; 1: greedy.")]
Penalty = Annotated[
    str, typer.Option(metavar="length|gnmt|none", help="How hypotheses of different lengths are compared.")
]
Alpha = Annotated[float, typer.Option(metavar="X", help="The strength of the length penalty, from 0.")]
MinLength = Annotated[int, typer.Option(metavar="N", help="Tokens of a translation at least.")]
MaxLength = Annotated[
    int, typer.Option(metavar="N", help="Tokens at most, up to 10000; 0: twice the source tokens plus 20.")
]
NoRepeat = Annotated[int, typer.Option(metavar="N", help="Block n-grams of N tokens that occurred before; 0: off.")]
Sample = Annotated[bool, typer.Option("--sample", help="Sample tokens from their probabilities.")]
Temperature = Annotated[
    float, typer.Option(metavar="X", help="Below 1 probable tokens become more probable, above 1 less.")
]
TopK = Annotated[int, typer.Option(metavar="N", help="Sample from the N most probable tokens; 0: from all.")]
TopP = Annotated[float, typer.Option(metavar="X", help="Sample from the fewest tokens of probability X.")]
SampleSeed = Annotated[int, typer.Option(metavar="N", help="The seed of the samples.")]
CopyUnknown = Annotated[
    bool, typer.Option("--copy-unknown", help="Replace <unk> by the source word with the largest attention weight.")
]
GoldBase = Annotated[
    int, typer.Option(min=0, max=1, metavar="0|1", help="The number of the first word in the gold file.")
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Skip gold links outside of their sentences, and report how many.")
]
NOTE_KINDS, NOTE_LENGTH = 20, 500  # kinds of notes that are printed, and characters of each: a server may send any


def decoding(values: Mapping[str, Any]) -> heedful.Decoding:
    """Return the settings of decoding among the values of a command's options, by name."""
    names = [field.name for field in fields(heedful.Decoding)]
    return heedful.Decoding(**{name: values[name] for name in names})


def pair_files(
    pairs: list[Path] | None, source: Path | None, target: Path | None, columns: str, format_: str
) -> tuple[PairFile, ...]:
    """Return the files to read pairs from: PAIRS, or --source with --target."""
    from heedful.data import PairFile
    from heedful.data.columns import parse_columns

    if columns:
        parse_columns(columns)
    if not (pairs or source or target):
        raise ConfigError("no sentence pairs: name files of PAIRS, or use --source and --target")
    check_sides(bool(pairs), source, target)
    if source:
        if columns or format_:
            raise ConfigError("--columns and --format apply to PAIRS; --source and --target have one sentence a line")
        return (PairFile(str(source), target=str(target)),)
    return tuple(PairFile(str(path), format_, columns) for path in pairs or ())


def pair_rows(files: Iterable[PairFile]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of files, also those with an empty side: a line in is a line out."""
    from heedful.data import sides

    for file in files:
        yield from sides(file.rows(log_for(file.name)))


def check_sides(
    pairs: bool,
    source: Path | None,
    target: Path | None,
    names: tuple[str, str, str] = ("PAIRS", "--source", "--target"),
) -> None:
    """Raise ConfigError for parallel files beside other pairs, or one without the other."""
    if pairs and (source or target):
        raise ConfigError(f"give either {names[0]} or {names[1]} and {names[2]}, not both")
    if bool(source) != bool(target):
        raise ConfigError(f"{names[1]} and {names[2]} go together; only one of them was given")


def check_unused(when: str, options: Mapping[str, bool]) -> None:
    """Raise ConfigError for an option that is set (True) but has no effect; `when` says in which case."""
    for option, is_set in options.items():
        if is_set:
            raise ConfigError(f"{option} has no effect {when}; leave it out")


def check_penalty(penalty: str, alpha: float, compared: bool) -> None:
    """Raise ConfigError for a length penalty where no hypotheses are compared by it."""
    if not compared:
        check_unused("without --beam", {"--penalty": penalty != "length", "--alpha": alpha != 1.0})
    check_unused("with --penalty none", {"--alpha": penalty == "none" and alpha != 1.0})


def check_sampling(sample: bool, temperature: float, top_k: int, top_p: float, seed: int) -> None:
    """Raise ConfigError for options of sampling without --sample."""
    if not sample:
        changed = {"--temperature": temperature != 1, "--top-k": top_k != 0, "--top-p": top_p != 1, "--seed": seed != 1}
        check_unused("without --sample", changed)


def check_writable(option: str, path: Path | None, ending: str = "") -> None:
    """Raise ConfigError for a file that could not be written, before the work for it is done."""
    if path is None:
        return
    if ending and path.suffix.lower() != ending:
        raise ConfigError(f"{option} {path}: the page is written as {ending}; choose a name that ends with it")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ConfigError(f"{option} {path}: {what}; choose another name")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{option} {path}: no permission to write to {path.parent}; choose another folder")


def use_threads(threads: int) -> None:
    """Set the number of PyTorch's threads; 0 leaves it."""
    if threads:
        import torch

        torch.set_num_threads(threads)


def log_for(name: str) -> Callable[[str], None]:
    """Return a function that prints messages about a file of that name."""
    return lambda message: log(f"{name}: {message}")


def width() -> int:
    """Return the number of columns of stdout; 80 if it is not a terminal."""
    return max(40, get_terminal_size().columns) if sys.stdout.isatty() else 80


def program() -> str:
    """Return the command that this user runs heedful with."""
    if which("heedful"):
        return "heedful"
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{quote(Path(sys.executable).name)} -m heedful"
    try:
        return quote(str(started.resolve().relative_to(Path.cwd())))
    except ValueError:
        return quote(str(started))


def open_model(
    model: Path,
    others: list[str] | None,
    device: str,
    threads: int,
    links: bool = True,
    engine: str = "heedful",
    int8: bool = False,
    precision: str = "fp32",
    shortlist: bool = True,
) -> heedful.Translator:
    """Open a model, or an ensemble of it with others; without `links`, a broken read-out is only logged."""
    use_threads(threads)
    began = time.perf_counter()
    models: Path | list[str | Path] = [model, *others] if others else model
    faults = None if links else log_fault
    how: LoadKeywords = {"engine": engine, "int8": int8, "precision": precision, "shortlist": shortlist}
    translator = heedful.load(models, device, faults, **how)
    import torch

    size = sum(weight.numel() for weight in translator.parts.model.parameters())
    debug(
        f"opened {model} in {time.perf_counter() - began:.2f} s: {size:,} weights in {precision} on "
        f"{translator.device}, {torch.get_num_threads()} threads"
    )
    if translator.engine is not None:
        debug(f"decoded by {translator.engine.title} {translator.engine.precision}, attention by heedful fp32")
    return translator


def check_direction(
    model: Path, translator: heedful.Translator, pairs: Sequence[tuple[str, str]], columns: str | None = ""
) -> None:
    """Raise DataError for a model that translates the other way; `columns` is None if there is no such option."""
    whole = [pair for pair in pairs if all(pair)]
    if why := translator.wrong_way([x for x, _ in whole], [y for _, y in whole]):
        first, _, second = (columns or "1,2").partition(",")
        other = f"--columns {second.strip()},{first.strip()}" + (f" in place of {columns}" if columns else "")
        how = "" if columns is None or "," in second else f" (in a file of pairs: {other})"
        raise DataError(f"{model}: {why}; swap the two sides{how}, or name another model")


def log_fault(fault: str) -> None:
    """Print what is wrong with a read-out where it is not needed."""
    log(f"{fault}; the default read-out is used")


@contextmanager
def name_options() -> Iterator[None]:
    """Rewrite settings in errors as the options that were typed: `--n-best`, not `n_best`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(as_options(str(error))) from None


def as_options(message: str, has_options: bool = True, command: str = "translate") -> str:
    """Return a message with the settings of decoding written as options; quoted text is not changed.

    Without `has_options`, they are called those of another `command`.

    >>> as_options("the prefix 'a beam' has 2 tokens, more than max_length, 1")
    "the prefix 'a beam' has 2 tokens, more than --max-length, 1"
    """
    others = ("copy_unknown", "batch_tokens", "int8", "precision")
    names = "|".join([*(field.name for field in fields(heedful.Decoding)), *others])
    setting = re.compile(rf"'[^']*'|(?<![\w.-])({names})(?!\w)")  # text.max_length is a model's, and no option
    whose = "" if has_options else f" of heedful {command}"
    return setting.sub(lambda m: f"--{m[1].replace('_', '-')}{whose}" if m[1] else m[0], message)


class Notes:
    """Notes on lines, and unknown words, printed once at the end; notes that differ only in numbers are one kind.

    `has_options` says whether the command has the decoding options that notes name; None leaves the names as they are.
    """

    def __init__(self, has_options: bool | None = True) -> None:
        self.has_options = has_options
        self.lines = 0
        self.kinds: dict[str, tuple[int, str, int]] = {}  # the first line, its note, how many lines
        self.words: dict[str, None] = {}

    def add(self, notes: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Add the notes and the unknown words of the next line."""
        self.lines += 1
        self.words |= dict.fromkeys(unknown)
        for kind, note in {re.sub(r"\d[\d,]*", "#", note): note for note in notes}.items():
            first, text, count = self.kinds.get(kind, (self.lines, note[:NOTE_LENGTH], 0))
            self.kinds[kind] = (first, text, count + 1)

    def log(self) -> None:
        """Print each kind once, with the first line that it is about and the number of other lines."""
        for first, note, count in islice(self.kinds.values(), NOTE_KINDS):
            where = f"line {first:,}: " if self.lines > 1 else ""
            others = f"; the same in {count - 1:,} other line{'s' * (count > 2)}" if count > 1 else ""
            log(f"{where}{note if self.has_options is None else as_options(note, self.has_options)}{others}")
        if len(self.kinds) > NOTE_KINDS:
            log(f"and {len(self.kinds) - NOTE_KINDS:,} other kinds of notes")
        if self.words:
            some = ", ".join(islice(self.words, 5)) + (" …" if len(self.words) > 5 else "")
            many = f"{len(self.words):,} unknown word{'s' * (len(self.words) > 1)}"
            log(f"{many}, read as <unk>: {some}")
