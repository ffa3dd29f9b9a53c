"""`heedful translate`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.decoding import (
    Alpha,
    Beam,
    CopyUnknown,
    MaxLength,
    MinLength,
    NoRepeat,
    Penalty,
    With,
    check_penalty,
    naming_options,
    opened,
)
from heedful.cli.notes import Notes
from heedful.cli.options import Ascii, BatchTokens, Device, Json, Model, Threads, print_json, refuse_idle, width
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.decoding import Decoding
    from heedful.markup import Marked
    from heedful.translator import Translation

__all__ = ["one_line", "translate"]

CHUNK = 1000  # lines read from stdin before they are translated, so that they can be sorted by length
BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def translate(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; otherwise stdin, a sentence a line.")
    ] = None,
    *,
    beam: Beam = 1,
    n_best: Annotated[int, typer.Option(metavar="N", help="How many translations of each line.")] = 1,
    penalty: Penalty = "length",
    alpha: Alpha = 1.0,
    min_length: MinLength = 0,
    max_length: MaxLength = 0,
    no_repeat: NoRepeat = 0,
    sample: Annotated[bool, typer.Option("--sample", help="Draw words at random, as probable as they are.")] = False,
    temperature: Annotated[
        float, typer.Option(metavar="X", help="Under 1 the probable words gain, over 1 the others.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(metavar="N", help="Draw from the N most probable words; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(metavar="X", help="Draw from the fewest words that have X together.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="N", help="What is drawn follows from it.")] = 1,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What each translation has to begin with.", show_default=False)
    ] = None,
    copy_unknown: CopyUnknown = False,
    no_split: Annotated[bool, typer.Option("--no-split", help="Do not split lines into sentences.")] = False,
    with_: With = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each word as soon as it is decided.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Draw, for each word written, where the model looked.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="After each translation a tab and its links, source word-target word.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="The text is HTML: tags and {placeholders} go with their words.")
    ] = False,
    server: Annotated[
        str,
        typer.Option(metavar="URL", help="Ask a service (heedful serve); MODEL is a name there, - its default."),
    ] = "",
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a --server that is away or busy is asked again.")
    ] = 60.0,
    ascii_only: Ascii = False,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Translate sentences, one a line; a blank line stays blank.

    With --n-best every translation has a line: its rank, what they are compared by, and the text, separated by tabs.
    Links (--alignments) are Pharaoh's, `0-0 1-2`, between words as white space separates them, counted from 0.
    --json gives one object a line, with log-probability, confidence, and with --show or --alignments the weights
    between words and their links.
    How each way to write works: `docs/decoding.md`; what --html does with broken tags, and --server: `docs/serve.md`.
    """
    if stream:
        _refuse_stream(beam, n_best, copy_unknown, alignments, html)
        refuse_idle("with --stream, which writes one sentence at a time", {"--batch-tokens": batch_tokens != 4096})
    check_penalty(penalty, alpha, compared=beam > 1 or n_best > 1)
    if not sample:
        drawing = {"--temperature": temperature != 1, "--top-k": top_k != 0, "--top-p": top_p != 1, "--seed": seed != 1}
        refuse_idle("without --sample", drawing)
    refuse_idle("with --json" if json else "without --show", {"--ascii": ascii_only and (json or not show)})
    if server:
        here = {"--penalty": penalty != "length", "--alpha": alpha != 1, "--min-length": min_length != 0}
        here |= {"--max-length": max_length != 0, "--no-repeat": no_repeat != 0, "--sample": sample}
        here |= {"--copy-unknown": copy_unknown, "--no-split": no_split, "--with": bool(with_)}
        here |= {"--device": device != "auto", "--threads": threads != 0, "--batch-tokens": batch_tokens != 4096}
        refuse_idle("with --server: it is for models that are opened here", here)
        from heedful.cli.remote import CHUNK as AT_ONCE
        from heedful.cli.remote import Asking, Service, ask

        service = Service(server, patience, 1 if text is None and _typed() else AT_ONCE)
        asked = Asking(str(model), beam, n_best, prefix, alignments, html, show, ascii_only)
        ask(service, asked, text or _stdin(), stream, json)
        return
    refuse_idle("without --server", {"--patience": patience != 60})
    with naming_options():
        from heedful.decoding import Decoding

        how = Decoding(
            beam=beam,
            n_best=n_best,
            penalty=penalty,
            alpha=alpha,
            min_length=min_length,
            max_length=max_length,
            no_repeat=no_repeat,
            sample=sample,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        translator = opened(model, with_, device, threads, links=alignments)
        lines = iter(text) if text else _stdin()
        notes = Notes()
        if stream:
            from heedful.cli.stream import printer

            put = printer(show, ascii_only, json)
            for number, line in enumerate(lines, 1):
                said = put(number, translator.stream(line, how, prefix=prefix, split=not no_split))
                notes.add(said, translator.unknown(line))
        size = 1 if text is None and _typed() else CHUNK
        while chunk := list(islice(lines, size)):
            tagged = _parsed(chunk) if html else [None] * len(chunk)
            translated = translator.translate(
                [one.text for one in tagged if one] if html else chunk,
                how,
                prefix=prefix,
                split=not no_split,
                copy_unknown=copy_unknown,
                trace=show or alignments or html,
                batch_tokens=batch_tokens,
            )
            for done, tags in zip(translated, tagged, strict=True):
                unknown = translator.unknown(done.source)
                notes.add(done.notes, [word for word in unknown if not (copy_unknown and word in done.text)])
                if json:
                    print_json(_record(done, how, tags))
                else:
                    _print(done, how, (show, alignments), ascii_only, tags)
            sys.stdout.flush()
    notes.say()


def one_line(text: str) -> str:
    """Return a text as one line, with a space for every line break."""
    return BREAKS.sub(" ", text)


def _parsed(lines: list[str]) -> list[Marked | None]:
    """Return texts with their tags apart."""
    from heedful.markup import parse

    return [parse(line) for line in lines]


def _tagged(translation: Translation, tags: Marked | None) -> str:
    """Return a translation as text, or with the tags of its source."""
    if tags is None:
        return translation.text
    from heedful.alignment import Joined
    from heedful.markup import carry

    parts = translation.sentences or (translation,)
    looks = all(part.trace.weights is not None or part.trace.read is not None for part in parts)
    starts = translation.starts or ((0, 0),)
    linked = Joined(tuple(part.alignment for part in parts), starts) if looks else None
    return carry(tags, linked, translation.text)


def _refuse_stream(beam: int, n_best: int, copy_unknown: bool, alignments: bool, html: bool) -> None:
    """Refuse what cannot be decided word by word."""
    for name, given, why in (
        ("--beam", beam > 1, "a beam decides nothing before its end"),
        ("--n-best", n_best > 1, "several translations cannot be written at once"),
        ("--copy-unknown", copy_unknown, "it is worked out when the translation is whole"),
        ("--alignments", alignments, "links are read when the translation is whole"),
        ("--html", html, "tags are placed by links, which are read when the translation is whole"),
    ):
        if given:
            raise ConfigError(f"--stream and {name} exclude each other: {why}")


def _print(
    translation: Translation, how: Decoding, more: tuple[bool, bool], ascii_only: bool, tags: Marked | None
) -> None:
    from heedful.align.readout import align

    show, alignments = more
    for rank, one in enumerate(translation.n_best or (translation,), 1):
        # A line of a file is a line again; a text that was typed keeps the line breaks it had.
        columns = bool(translation.n_best or alignments)
        written = _tagged(one, tags)
        lines = written.split("\n") if "\n" in translation.source and not columns else [written]
        text = "\n".join(map(one_line, lines)).strip()
        text = text.replace("\t", " ") if columns else text
        if translation.n_best and one.length:
            text = f"{rank}\t{_compared(one, how):.4f}\t{text}"
        if alignments and one.length:
            text += f"\t{align(one.trace, spaced=True)}"
        print(text)
        if show:
            print()
            if one.text:
                one.show(width=width(), ascii_only=ascii_only)
                print()


def _record(translation: Translation, how: Decoding, tags: Marked | None) -> dict[str, Any]:
    record = translation.plain()
    if tags is not None:
        record["markup"] = _tagged(translation, tags)
    for plain, one in zip(record.get("n_best", ()), translation.n_best, strict=True):
        plain["rank_score"] = _compared(one, how)
        if tags is not None:
            plain["markup"] = _tagged(one, tags)
    return record


def _compared(translation: Translation, how: Decoding) -> float:
    """Return what the alternatives are compared by; the sentences of a text are searched each for itself."""
    return sum(one.score / how.divisor(max(one.length, 1)) for one in translation.sentences or (translation,))


def _typed() -> bool:
    """Whether lines are typed: each is translated when it is there."""
    return sys.stdin is not None and sys.stdin.isatty()


def _stdin() -> Iterator[str]:
    from heedful.data import decode

    if sys.stdin is None:
        raise DataError("standard input: it is closed, and no TEXT was given")
    return decode(sys.stdin.buffer, "standard input")
