"""The options of decoding, which several verbs share; errors name them as they are typed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import refuse_idle, say, use_threads
from heedful.cli.output import debug
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.translator import Translator

__all__ = [
    "Alpha",
    "Beam",
    "CopyUnknown",
    "MaxLength",
    "MinLength",
    "NoRepeat",
    "Penalty",
    "With",
    "as_options",
    "check_penalty",
    "naming_options",
    "opened",
    "refuse_wrong_way",
    "say_fault",
]

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="MODEL", help="One more model, as an ensemble; may be repeated.", show_default=False
    ),
]
Beam = Annotated[int, typer.Option(metavar="N", help="Hypotheses that are kept at every step; 1: greedy.")]
Penalty = Annotated[
    str, typer.Option(metavar="length|gnmt|none", help="How a beam compares hypotheses of different lengths.")
]
Alpha = Annotated[float, typer.Option(metavar="X", help="How much the length counts, from 0.")]
MinLength = Annotated[int, typer.Option(metavar="N", help="Tokens of a translation at least.")]
MaxLength = Annotated[
    int, typer.Option(metavar="N", help="Tokens at most, up to 10000; 0: 20 more than twice the source has.")
]
NoRepeat = Annotated[int, typer.Option(metavar="N", help="Let no N tokens in a row come twice; 0: let them.")]
CopyUnknown = Annotated[
    bool, typer.Option("--copy-unknown", help="For an unknown word, write the source word it looked at.")
]


def opened(model: Path, others: list[str] | None, device: str, threads: int, links: bool = True) -> Translator:
    """Open a model, or an ensemble of it with others; without `links` a read-out that is broken is only said."""
    from heedful.translator import load

    use_threads(threads)
    began = time.perf_counter()
    translator = load([model, *others] if others else model, device, None if links else say_fault)
    import torch

    size = sum(weight.numel() for weight in translator.parts.model.parameters())
    debug(
        f"opened {model} in {time.perf_counter() - began:.2f} s: {size:,} weights on {translator.device}, "
        f"{torch.get_num_threads()} threads"
    )
    return translator


def refuse_wrong_way(
    model: Path, translator: Translator, pairs: Sequence[tuple[str, str]], columns: str | None = ""
) -> None:
    """Refuse a model that translates the other way; `columns` are those that were given, None: there is no option."""
    from heedful.translator.aligning import wrong_way

    whole = [pair for pair in pairs if all(pair)]
    if why := wrong_way(translator, [x for x, _ in whole], [y for _, y in whole]):
        first, _, second = (columns or "1,2").partition(",")
        other = f"--columns {second.strip()},{first.strip()}" + (f" in place of {columns}" if columns else "")
        how = "" if columns is None or "," in second else f" (in a file of pairs: {other})"
        raise DataError(f"{model}: {why}; swap the two sides{how}, or name another model")


def say_fault(fault: str) -> None:
    """Say what is wrong with a read-out where it is not needed."""
    say(f"{fault}; for now weights are read as is usual for such a model")


def check_penalty(penalty: str, alpha: float, compared: bool) -> None:
    """Refuse a penalty where no translations are compared by it."""
    if not compared:
        refuse_idle("without --beam", {"--penalty": penalty != "length", "--alpha": alpha != 1.0})
    refuse_idle("with --penalty none", {"--alpha": penalty == "none" and alpha != 1.0})


@contextmanager
def naming_options() -> Iterator[None]:
    """Let errors name what a person typed, `--n-best`, and not what Python calls it, `n_best`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(as_options(str(error))) from None


def as_options(message: str, here: bool = True) -> str:
    """Return a message with the settings of decoding written as options; what stands in quotes stays as it is.

    Where the verb has no such options, not `here`, they are said to be those of `heedful translate`.

    >>> as_options("the prefix 'a beam' has 2 tokens, more than max_length, 1")
    "the prefix 'a beam' has 2 tokens, more than --max-length, 1"
    """
    from dataclasses import fields

    from heedful.decoding import Decoding

    names = "|".join([*(field.name for field in fields(Decoding)), "copy_unknown", "batch_tokens"])
    found = re.compile(rf"'[^']*'|(?<![\w.-])({names})(?!\w)")  # text.max_length is a model's, and no option
    whose = "" if here else " of heedful translate"
    return found.sub(lambda m: f"--{m[1].replace('_', '-')}{whose}" if m[1] else m[0], message)
