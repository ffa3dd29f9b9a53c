"""`heedful translate`."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from shlex import quote
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
from heedful.cli.options import (
    Ascii,
    BatchTokens,
    Device,
    Json,
    Model,
    Threads,
    print_json,
    program,
    refuse_idle,
    say,
    width,
)
from heedful.cli.output import debug, print_translation, warn
from heedful.cli.progress import LineProgress, line_progress
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.files import portions

if TYPE_CHECKING:
    from heedful.decoding import Decoding
    from heedful.markup import Marked
    from heedful.translator import Translation

__all__ = ["check_columns", "one_line", "printed_markup", "translate"]

CHUNK = 1000  # lines read from stdin before they are translated, so that they can be sorted by length
CHARACTERS = 1_000_000  # of them, where they are long
MAP_CELLS = 500_000  # source tokens × target tokens of the maps of a line, as `heedful serve --cells`
BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
NO_COLUMN = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# A word that may have lost its quotes: no name of a file, no end of a sentence, no script written without spaces.
WORD = re.compile(r"[^\s.!?।؟。！？\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
LIKE_FILES = frozenset((".txt", ".tsv", ".csv", ".html", ".htm", ".json", ".jsonl", ".md", ".xml", ".gz"))


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
    How each way to write works: `docs/guide/decoding.md`; what --html does with broken tags, and --server:
    `docs/guide/serve.md`.
    """
    if stream:
        _refuse_stream(beam, n_best, copy_unknown, alignments, html)
        refuse_idle("with --stream, which writes one sentence at a time", {"--batch-tokens": batch_tokens != 4096})
    columns = "" if json else "--n-best" if n_best > 1 else "--alignments" if alignments else ""
    if html and columns:
        for one in text or ():
            check_columns(one, "this text", columns)
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
        _hint(text, str(model), server)
        with line_progress(_stdin_size()) if _follows(text, stream) else nullcontext(LineProgress()) as progress:
            ask(service, asked, text or _stdin(), stream, json, progress)
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
        _hint(text, str(model))
        translator = opened(model, with_, device, threads, links=alignments)
        whole = no_split or ((show or alignments) and not html)
        lines = _Sized(text or _stdin(), "TEXT" if text else "standard input, line", whole, columns if html else "")
        notes = Notes()
        translator.trace_cells = None if alignments or html else MAP_CELLS
        if stream:
            from heedful.cli.stream import printer

            put = printer(show, ascii_only, json)
            if not threads:
                translator.choose_threads([], how)
            for number, line in enumerate(lines, 1):
                said = put(number, translator.stream(line, how, prefix=prefix, split=not no_split))
                notes.add(said, translator.unknown(line))
        size = 1 if text is None and _typed() else CHUNK
        first = not threads
        with line_progress(_stdin_size()) if _follows(text, stream) else nullcontext(LineProgress()) as progress:
            for chunk in portions(lines, size, CHARACTERS, len):
                began = time.perf_counter()
                if first:
                    translator.choose_threads(chunk, how)
                    first = False
                tagged = _parsed(chunk) if html else [None] * len(chunk)
                translated = translator.translate(
                    [one.text for one in tagged if one] if html else chunk,
                    how,
                    prefix=prefix,
                    split=not no_split,
                    copy_unknown=copy_unknown,
                    trace=show or alignments or html,
                    batch_tokens=batch_tokens,
                    progress=progress.inside(chunk),
                )
                progress.add(chunk)
                took = time.perf_counter() - began
                debug(f"{len(chunk):,} lines in {took:.2f} s, {batch_tokens:,} tokens at once")
                with progress.paused():
                    for line, done, tags in zip(chunk, translated, tagged, strict=True):
                        unknown = translator.unknown(done.source)
                        notes.add(
                            [*done.notes, *_markup_notes(tags, text is None)],
                            [word for word in unknown if not (copy_unknown and word in done.text)],
                        )
                        if json:
                            print_json(_record(done, how, tags))
                        else:
                            _print(done, how, (show, alignments), ascii_only, (tags, "\n" in line))
                    sys.stdout.flush()
        notes.say()
        lines.check()


def one_line(text: str) -> str:
    """Return a text as one line, with a space for every line break."""
    return BREAKS.sub(" ", text)


def check_columns(markup: str, where: str, option: str) -> None:
    """Raise ConfigError for HTML that cannot be printed as a column: no character of a tag or script may be changed."""
    if found := NO_COLUMN.search(markup):
        what = "a tab" if found[0] == "\t" else f"the line break {found[0]!a}"
        raise ConfigError(
            f"--html and {option}: {where} has {what}, and columns are printed in a line, separated by tabs; use --json"
        )


def printed_markup(markup: str, breaks: bool) -> str:
    """Return HTML as it is printed: as it is if its source has line `breaks`, and otherwise on a line.

    Then only its text can have any: what stays is never changed, since a line break may end a comment in a script.
    """
    return markup if breaks else " ".join(filter(None, map(str.strip, markup.split("\n"))))


def _markup_notes(tags: Marked | None, read: bool) -> Iterator[str]:
    """Yield what is to be said of HTML; `read`: it is a line of standard input."""
    for note in tags.notes if tags else ():
        yield f"{note} (each line is a text of its own; a page is given whole, as TEXT)" if read else note


def _parsed(lines: list[str]) -> list[Marked | None]:
    """Return texts with their tags apart."""
    from heedful.markup import parse

    return [parse(line) for line in lines]


def _tagged(translation: Translation, tags: Marked | None) -> str:
    """Return a translation as text, or with the tags of its source."""
    if tags is None:
        return translation.text
    from heedful.markup import carry
    from heedful.trace.alignment import JoinedAlignment

    parts = translation.sentences or (translation,)
    looks = all(part.trace.weights is not None or part.trace.read is not None for part in parts)
    starts = translation.starts or ((0, 0),)
    linked = JoinedAlignment(tuple(part.alignment for part in parts), starts) if looks else None
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
    translation: Translation,
    how: Decoding,
    more: tuple[bool, bool],
    ascii_only: bool,
    markup: tuple[Marked | None, bool],
) -> None:
    """Print a translation; `markup` is the source with its tags, and whether it has line breaks."""
    from heedful.alignment.links import align_trace

    (show, alignments), (tags, breaks) = more, markup
    for rank, one in enumerate(translation.n_best or (translation,), 1):
        # A line of a file is a line again; a text that was typed keeps the line breaks it had.
        columns = bool(translation.n_best or alignments)
        written = _tagged(one, tags)
        if tags is not None and not columns:
            text = printed_markup(written, breaks)
        else:
            lines = written.split("\n") if "\n" in translation.source and not columns else [written]
            text = "\n".join(map(one_line, lines)).strip()
            text = text.replace("\t", " ") if columns else text
        if translation.n_best and one.length:
            text = f"{rank}\t{_compared(one, how):.4f}\t{text}"
        if alignments and one.length:
            text += f"\t{align_trace(one.trace, spaced=True)}"
        print_translation(text)
        if show:
            print()
            if one.text and _drawable(one):
                one.show(width=width(), ascii_only=ascii_only)
                print()


def _drawable(translation: Translation) -> bool:
    """Whether the maps of a translation are small enough for a terminal."""
    if not translation.traced:
        return False
    parts = [part.trace for part in translation.sentences or (translation,)]
    return sum(len(part.source.tokens) * len(part.target.tokens) for part in parts) <= MAP_CELLS


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


def _hint(texts: list[str] | None, model: str, server: str = "") -> None:
    """Say what may not be meant: the name of a file as the text, words without quotes, a terminal as standard input."""
    command = f"{program()} translate {quote(model)}" + (f" --server {quote(server)}" if server else "")
    if texts is None:
        if _typed():
            say("reading sentences from the keyboard, one a line; Ctrl-D ends")
        return
    for text in texts:
        if os.path.isfile(text):
            how = f"{command} < {quote(text)}"
            warn(f"{text} is a file, but its name was translated, not its lines; to translate them: {how}")
    if len(texts) == 1 and _like_a_file(texts[0]) and not os.path.exists(texts[0]):
        warn(f"there is no file {texts[0]}: these words are translated as a text")
    if len(texts) > 1 and all(map(WORD.fullmatch, texts[:-1])) and len(texts[-1].split()) == 1:
        joined = " ".join(texts)
        joined = quote(joined if len(joined) <= 60 else f"{joined[:60]}…")
        warn(f"each of these {len(texts)} words is translated as a text; quotes make them one: {command} {joined}")


def _like_a_file(text: str) -> bool:
    return not any(map(str.isspace, text)) and os.path.splitext(text)[1].lower() in LIKE_FILES


def _follows(text: list[str] | None, stream: bool) -> bool:
    """Whether progress is of use: lines come from a file or a pipe, and nothing is printed word by word."""
    return text is None and not stream and not _typed()


def _stdin_size() -> int | None:
    """Return how many bytes standard input still has, if it is a file."""
    try:
        found = os.fstat(sys.stdin.fileno())
        return found.st_size - sys.stdin.buffer.tell() if stat.S_ISREG(found.st_mode) else None
    except (OSError, ValueError, AttributeError):  # no file at all
        return None


def _typed() -> bool:
    """Whether lines are typed: each is translated when it is there."""
    return sys.stdin is not None and sys.stdin.isatty()


class _Sized:
    """Lines up to the first that cannot be translated: one that is too long, that cannot be read, or not be printed.

    Its error is raised by `check`, when the lines before it were translated and printed.
    """

    def __init__(self, lines: Iterable[str], what: str, whole: bool, columns: str) -> None:
        from heedful.translator.translator import CHARACTERS, SPLIT_CHARACTERS

        # Read once: with --stream nothing is left for what comes after it.
        self.lines, self.what, self.most = iter(lines), what, CHARACTERS if whole else SPLIT_CHARACTERS
        self.columns = columns  # the option that has HTML printed in columns
        self.error: HeedfulError | None = None

    def __iter__(self) -> Iterator[str]:
        from heedful.translator.translator import check_size

        try:
            for number, line in enumerate(self.lines, 1):
                which = f"{self.what} {number}:" if number > 1 or self.what != "TEXT" else "TEXT:"
                check_size(line, which, self.most)
                if self.columns:
                    check_columns(line, which.removesuffix(":"), self.columns)
                yield line
        except HeedfulError as error:
            self.error = error

    def check(self) -> None:
        """Raise the error of the line that could not be translated, if there was one."""
        if self.error is not None:
            raise self.error


def _stdin() -> Iterator[str]:
    from heedful.data import decode

    if sys.stdin is None:
        raise DataError("standard input: it is closed, and no TEXT was given")
    return decode(sys.stdin.buffer, "standard input")
