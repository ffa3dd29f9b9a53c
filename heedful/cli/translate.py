"""`heedful translate`: texts from arguments or stdin, and with --out files."""

from __future__ import annotations

import gc
import os
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import heedful
from heedful.cli import options
from heedful.cli.output import (
    LineProgress,
    debug,
    line_progress,
    log,
    print_json,
    print_translation,
    shows_progress,
    terminal_console,
    warn,
)
from heedful.errors import ConfigError, DataError, HeedfulError, printable

if TYPE_CHECKING:
    from heedful.bulk.run import BulkProgress, BulkReport
    from heedful.markup import Marked
    from heedful.translator import Token
    from heedful.translator.pipeline import TraceChoice


FIRST = 1000  # lines read from stdin before they are translated, so that they can be sorted by length
CHARACTERS, MOST_CHARACTERS = 1_000, 4_000_000  # of the lines that are read at once: for each on average, and of all
MAP_CELLS = 500_000  # source tokens × target tokens of the heat maps of a line, as `heedful serve --cells`
BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
NO_COLUMN = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# A word that may lack quotes: no file name, no end of a sentence, no script without spaces.
WORD = re.compile(r"[^\s.!?।؟。！？\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")
LIKE_FILES = frozenset((".txt", ".tsv", ".csv", ".html", ".htm", ".json", ".jsonl", ".md", ".xml", ".gz"))


def translate(
    model: options.Model,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts, or with --out files; otherwise stdin, one per line."),
    ] = None,
    *,
    beam: options.Beam = 1,
    n_best: Annotated[int, typer.Option(metavar="N", help="Translations of each line.")] = 1,
    penalty: options.Penalty = "length",
    alpha: options.Alpha = 1.0,
    min_length: options.MinLength = 0,
    max_length: options.MaxLength = 0,
    no_repeat: options.NoRepeat = 0,
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.SampleSeed = 1,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The beginning of each translation.", show_default=False)
    ] = None,
    copy_unknown: options.CopyUnknown = False,
    no_split: Annotated[bool, typer.Option("--no-split", help="Do not split lines into sentences.")] = False,
    with_: options.With = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each word as soon as it is decoded.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Draw the attention weights as a heat map.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Print a tab and the word links after each translation.")
    ] = False,
    html: Annotated[
        bool, typer.Option("--html", help="The text is HTML: tags and {placeholders} are placed by the links.")
    ] = False,
    server: Annotated[
        str,
        typer.Option(metavar="URL", help="Use a server (heedful serve); MODEL is a name there, - its default."),
    ] = "",
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to retry while the --server is down or busy.")
    ] = 60.0,
    ascii_only: options.Ascii = False,
    engine: options.Engine = "heedful",
    int8: options.Int8 = False,
    device: options.Device = "auto",
    precision: options.Precision = "fp32",
    no_shortlist: options.NoShortlist = False,
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR|FILE", help="Translate files into this folder, or one into this file; may be resumed."
        ),
    ] = "",
    column: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="With --out: the column to translate [text]; a number in TSV without a header."
        ),
    ] = "",
    added_prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="With --out: what the names of added columns begin with.")
    ] = "",
    alarms: Annotated[
        bool | None,
        typer.Option("--alarms/--no-alarms", help="With --out: a column with the kinds of alarms [with --alignments]."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(metavar="N", help="With --out: processes that share a GPU; 0 is automatic, one on a CPU.", min=0),
    ] = 0,
    shard: Annotated[str, typer.Option(metavar="I/N", help="With --out: only part I of N, on one of N machines.")] = "",
    ray: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --out: on this Ray cluster; auto: the running one.")
    ] = "",
) -> None:
    """Translate texts, one per line; a blank line stays blank. With --out, the arguments are files.

    With --n-best every translation has a line: its rank, the score they are ranked by, and the text, separated by tabs.
    Links (--alignments) are in the Pharaoh format, `0-0 1-2`: source word-target word, separated by white space and
    counted from 0. --json prints one object a line, with log-probability and confidence, and with --show or
    --alignments the weights between words and their links.
    Decoding: `docs/guide/decoding.md`; --html and --server: `docs/guide/serve.md`; --out: `docs/guide/bulk.md`.
    """
    if out:
        options.check_penalty(penalty, alpha, compared=beam > 1 or n_best > 1)
        options.check_sampling(sample, temperature, top_k, top_p, seed)
        _translate_files(locals())
        return
    _check_no_files(locals())
    if stream:
        _check_stream(beam, n_best, copy_unknown, alignments, html)
        options.check_unused(
            "with --stream, which decodes one sentence at a time", {"--batch-tokens": batch_tokens != 0}
        )
    columns = "" if json else "--n-best" if n_best > 1 else "--alignments" if alignments else ""
    if html and columns:
        for one in text or ():
            check_columns(one, "this text", columns)
    options.check_penalty(penalty, alpha, compared=beam > 1 or n_best > 1)
    options.check_sampling(sample, temperature, top_k, top_p, seed)
    options.check_unused("with --json" if json else "without --show", {"--ascii": ascii_only and (json or not show)})
    if server:
        here = {"--penalty": penalty != "length", "--alpha": alpha != 1, "--min-length": min_length != 0}
        here |= {"--max-length": max_length != 0, "--no-repeat": no_repeat != 0, "--sample": sample}
        here |= {"--engine": engine != "heedful", "--int8": int8}
        here |= {"--copy-unknown": copy_unknown, "--no-split": no_split, "--with": bool(with_)}
        here |= {"--device": device != "auto", "--threads": threads != 0, "--batch-tokens": batch_tokens != 0}
        here |= {"--precision": precision != "fp32", "--no-shortlist": no_shortlist}
        options.check_unused("with --server; it applies to models that are opened here", here)
        from heedful.cli.remote import BATCH, RemoteOptions, translate_remotely

        batch = 1 if text is None and _is_terminal() else BATCH
        request = (str(model), beam, n_best, prefix, alignments, html, show, ascii_only, json)
        _hint(text, str(model), server)
        with line_progress(_stdin_size()) if _has_progress(text, stream) else nullcontext(LineProgress()) as progress:
            remote = RemoteOptions(server, patience, batch, *request)
            translate_remotely(remote, text or _stdin(), stream, progress)
        return
    options.check_unused("without --server", {"--patience": patience != 60})
    with options.name_options():
        how = options.decoding(locals())
        _hint(text, str(model))
        opening = engine, int8, precision, not no_shortlist
        translator = options.open_model(model, with_, device, threads, alignments, *opening)
        # With --json there are confidences of words; weights of single heads are never printed.
        reading: TraceChoice = True if show else "links" if json else "alignment"
        whole = no_split or ((show or alignments) and not html)
        lines = _ValidLines(
            text or _stdin(), "TEXT" if text else "standard input, line", whole, columns if html else ""
        )
        notes = options.Notes()
        translator.trace_cells = None if alignments or html else MAP_CELLS
        if stream:
            print_tokens = printer(show, ascii_only, json)
            if not threads:
                translator.choose_threads([], how)
            for number, line in enumerate(lines, 1):
                line_notes = print_tokens(number, translator.stream(line, how, prefix=prefix, split=not no_split))
                notes.add(line_notes, translator.unknown(line))
        traced = show or alignments or html
        most = 1 if text is None and _is_terminal() else translator.texts_at_once(traced)
        first = not threads
        bar = line_progress(_stdin_size()) if _has_progress(text, stream) else nullcontext(LineProgress())
        with bar as progress, _frozen_objects():
            for chunk in _chunks(lines, most, text is not None or _stdin_size() is not None):
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
                    trace=traced and reading,
                    batch_tokens=batch_tokens,
                    progress=progress.inside(chunk),
                )
                progress.add(chunk)
                took = time.perf_counter() - began
                debug(f"{len(chunk):,} lines in {took:.2f} s, {translator.batch_tokens_used:,} tokens at once")
                pieces = translator.unknown_pieces([done.source for done in translated])
                linked = _linked(translated) if alignments and not json else None
                with progress.paused():
                    for line, done, tags, unknown in zip(chunk, translated, tagged, pieces, strict=True):
                        notes.add(
                            [*done.notes, *_markup_notes(tags, text is None)],
                            [word for word in unknown if not (copy_unknown and word in done.text)],
                        )
                        if json:
                            print_json(_record(done, how, tags), flush=False)
                        else:
                            _print(done, how, show, linked, ascii_only, (tags, "\n" in line))
                    sys.stdout.flush()
        notes.log()
        lines.check()


@contextmanager
def _frozen_objects() -> Iterator[None]:
    """Leave what is loaded out of garbage collections; each would visit all objects of PyTorch."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _chunks(lines: Iterable[str], most: int, at_hand: bool) -> Iterator[list[str]]:
    """Yield the first `FIRST` lines, and then up to `most` at once, as long as reading more does not wait.

    Without `at_hand`, lines come from a pipe, and are translated before others arrive.
    """
    first, characters = min(FIRST, most), min(CHARACTERS * most, MOST_CHARACTERS)
    enough, chunk, size = first, list[str](), 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        waits = len(chunk) >= first and not at_hand and not _input_waits()
        if len(chunk) >= enough or waits or size > characters:
            yield chunk
            enough, chunk, size = most, [], 0
    if chunk:
        yield chunk


def _input_waits() -> bool:
    """Whether standard input can be read without waiting; at its end, too."""
    try:
        return bool(select.select([sys.stdin.fileno()], [], [], 0)[0])
    except (OSError, ValueError):  # no pipe or socket; on Windows no file can be asked
        return False


def one_line(text: str) -> str:
    """Return a text as one line, with a space for every line break."""
    return BREAKS.sub(" ", text)


def check_columns(markup: str, where: str, option: str) -> None:
    """Raise ConfigError for HTML with tabs or line breaks, which cannot be printed as a column unchanged."""
    if match := NO_COLUMN.search(markup):
        what = "a tab" if match[0] == "\t" else f"the line break {match[0]!a}"
        raise ConfigError(f"--html and {option}: {where} has {what}, which cannot be printed in a column; use --json")


def printed_markup(markup: str, breaks: bool) -> str:
    """Return HTML as it is printed: unchanged if its source has line `breaks`, and otherwise as one line.

    Without breaks in the source, only the translated text can have any, so that no tag or script is changed.
    """
    return markup if breaks else " ".join(filter(None, map(str.strip, markup.split("\n"))))


def _markup_notes(tags: Marked | None, read: bool) -> Iterator[str]:
    """Yield the notes on HTML; `read`: it is a line of standard input."""
    for note in tags.notes if tags else ():
        yield f"{note} (each line is one text; give a whole page as TEXT)" if read else note


def _parsed(lines: list[str]) -> list[Marked | None]:
    """Return HTML texts without their tags."""
    from heedful.markup import parse

    return [parse(line) for line in lines]


def _tagged(translation: heedful.Translation, tags: Marked | None) -> str:
    """Return a translation as text, or with the tags of its source."""
    if tags is None:
        return translation.text
    from heedful.markup import carry

    return carry(tags, translation.sentence_alignments, translation.text)


def _check_stream(beam: int, n_best: int, copy_unknown: bool, alignments: bool, html: bool) -> None:
    """Raise ConfigError for options that need the whole translation."""
    excluded = {"--beam": beam > 1, "--n-best": n_best > 1, "--copy-unknown": copy_unknown}
    for name, is_set in {**excluded, "--alignments": alignments, "--html": html}.items():
        if is_set:
            raise ConfigError(f"--stream and {name} exclude each other: {name} needs the whole translation")


def _print(
    translation: heedful.Translation,
    how: heedful.Decoding,
    show: bool,
    linked: Iterator[str] | None,
    ascii_only: bool,
    markup: tuple[Marked | None, bool],
) -> None:
    """Print a translation; `linked` gives its links if they are printed, and those of the alternatives.

    `markup` is the source with its tags, and whether it has line breaks.
    """
    tags, breaks = markup
    for rank, one in enumerate(translation.n_best or (translation,), 1):
        # A line of a file gives one line; a text argument keeps its line breaks.
        columns = bool(translation.n_best or linked)
        written = _tagged(one, tags)
        if tags is not None and not columns:
            text = printed_markup(written, breaks)
        else:
            lines = written.split("\n") if "\n" in translation.source and not columns else [written]
            text = "\n".join(map(one_line, lines)).strip()
            text = text.replace("\t", " ") if columns else text
        if translation.n_best and one.length:
            text = f"{rank}\t{rank_score(one, how):.4f}\t{text}"
        if linked and one.length:
            text += f"\t{next(linked)}"
        print_translation(text)
        if show:
            print()
            if one.text and _drawable(one):
                one.show(width=options.width(), ascii_only=ascii_only)
                print()


def _linked(translations: Iterable[heedful.Translation]) -> Iterator[str]:
    """Return the links of translations and of their alternatives, in the order in which they are printed."""
    from heedful.translator.aligning import link_lines

    every = (one for translation in translations for one in translation.n_best or (translation,))
    return iter(link_lines([one for one in every if one.length]))


def _drawable(translation: heedful.Translation) -> bool:
    """Whether the heat maps of a translation are small enough for a terminal."""
    if not translation.traced:
        return False
    parts = [part.trace for part in translation.sentences or (translation,)]
    return sum(len(part.source.tokens) * len(part.target.tokens) for part in parts) <= MAP_CELLS


def _record(translation: heedful.Translation, how: heedful.Decoding, tags: Marked | None) -> dict[str, Any]:
    record = translation.plain()
    if tags is not None:
        record["markup"] = _tagged(translation, tags)
    for plain, one in zip(record.get("n_best", ()), translation.n_best, strict=True):
        plain["rank_score"] = rank_score(one, how)
        if tags is not None:
            plain["markup"] = _tagged(one, tags)
    return record


def rank_score(translation: heedful.Translation, how: heedful.Decoding) -> float:
    """Return the score that the alternatives are ranked by; each sentence of a text is decoded by itself."""
    return sum(one.score / how.divisor(max(one.length, 1)) for one in translation.sentences or (translation,))


def _hint(texts: list[str] | None, model: str, server: str = "") -> None:
    """Warn of likely mistakes: the name of a file as the text, words without quotes; report reading from a terminal."""
    command = f"{options.program()} translate {quote(model)}" + (f" --server {quote(server)}" if server else "")
    if texts is None:
        if _is_terminal():
            log("reading texts from the terminal, one per line; end with Ctrl-D")
        return
    for text in texts:
        if os.path.isfile(text):
            output = "" if server else _output(text)
            how = f"{command} {quote(text)} --out {quote(output)}" if output else f"{command} < {quote(text)}"
            warn(f"{text} is a file; its name is translated, not its content; to translate the content: {how}")
    if len(texts) == 1 and _like_a_file(texts[0]) and not os.path.exists(texts[0]):
        warn(f"there is no file {texts[0]}; the argument is translated as a text")
    if len(texts) > 1 and all(map(WORD.fullmatch, texts[:-1])) and len(texts[-1].split()) == 1:
        joined = " ".join(texts)
        joined = quote(joined if len(joined) <= 60 else f"{joined[:60]}…")
        warn(
            f"these {len(texts)} words are translated as {len(texts)} texts; quote them to make one: {command} {joined}"
        )


def _output(text: str) -> str:
    """Return a name for the translation of a file; "" if it is of a kind that --out does not read."""
    stem, dot, ending = os.path.basename(text).partition(".")
    known = f".{ending}".lower().removesuffix(".gz").removesuffix(".zst") in (".txt", ".tsv", ".jsonl", ".parquet")
    return f"{stem}.translated{dot}{ending}" if known else ""


def _like_a_file(text: str) -> bool:
    return not any(map(str.isspace, text)) and os.path.splitext(text)[1].lower() in LIKE_FILES


def _has_progress(text: list[str] | None, stream: bool) -> bool:
    """Whether to show progress: lines are read from a file or a pipe, and words are not printed one by one."""
    return text is None and not stream and not _is_terminal()


def _stdin_size() -> int | None:
    """Return the number of bytes left in standard input, if it is a file."""
    try:
        status = os.fstat(sys.stdin.fileno())
        return status.st_size - sys.stdin.buffer.tell() if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError, AttributeError):  # not a file
        return None


def _is_terminal() -> bool:
    """Whether lines are typed at a terminal: each is translated at once."""
    return sys.stdin is not None and sys.stdin.isatty()


class _ValidLines:
    """Lines up to the first that is invalid: too long, unreadable, or not printable as a column.

    Its error is raised by `check`, after the lines before it are translated and printed.
    """

    def __init__(self, lines: Iterable[str], what: str, whole: bool, columns: str) -> None:
        from heedful.translator.translator import CHARACTERS, SPLIT_CHARACTERS

        # An iterator, read once: after --stream no lines are left for the loop that follows.
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
        """Raise the error of the first invalid line, if there was one."""
        if self.error is not None:
            raise self.error


def _stdin() -> Iterator[str]:
    from heedful.data import decode

    if sys.stdin is None:
        raise DataError("standard input is closed, and there is no TEXT")
    return decode(sys.stdin.buffer, "standard input")


Printer: TypeAlias = "Callable[[int, Iterator[Token]], list[str]]"
LEAST, MOST = 0.05, 3  # the least weight of a source word in a plain line, and how many words it has


def printer(show: bool, ascii_only: bool, json: bool) -> Printer:
    """Return a function that prints the tokens of line number n as they are decoded, and returns the notes."""
    if json:
        return lambda number, tokens: _json(number, tokens, show)
    if not show:
        return lambda _, tokens: _plain(tokens)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return lambda _, tokens: _live(tokens, ascii_only)
    return lambda number, tokens: _lines(number, tokens, ascii_only)


def _sentences(tokens: Iterator[Token], notes: list[str]) -> Iterator[list[Token]]:
    """Yield the tokens of the current sentence, after each new one."""
    written: list[Token] = []
    for token in tokens:
        written.append(token)
        yield written
        if token.end:
            notes += token.notes
            written = []


def _plain(tokens: Iterator[Token]) -> list[str]:
    notes: list[str] = []
    held, begun = "", False  # space is printed when a word follows it
    try:
        for written in _sentences(tokens, notes):
            # A text that was typed keeps its line breaks; a line of a file has none.
            piece = held + "\n".join(one_line(line) for line in written[-1].text.split("\n"))
            body = piece.rstrip()
            held = piece[len(body) :]
            print_translation(body if begun else body.lstrip(), end="", flush=True)
            begun = begun or bool(body)
    finally:
        print(flush=True)
    return notes


def _json(number: int, tokens: Iterator[Token], show: bool) -> list[str]:
    from heedful.translator.translation import partial_trace

    notes: list[str] = []
    blank = True
    for written in _sentences(tokens, notes):
        blank, token = False, written[-1]
        record = {"line": number, "text": token.text, "log_prob": token.log_prob, "end": token.end}
        if show:
            weights = partial_trace([token]).words()
            record["source_words"] = [list(word[:3]) for word in token.source.words]
            record["weights"] = None if weights is None else weights[-1].astype(float).round(4).tolist()
        print_json(record)
    if blank:
        print_json({"line": number, "text": "", "log_prob": 0.0, "end": True})
    return notes


def _lines(number: int, tokens: Iterator[Token], ascii_only: bool) -> list[str]:
    """Print a line for each complete word: its confidence, and the source words with the largest weights."""
    from heedful.translator.translation import partial_trace

    notes: list[str] = []
    if number > 1:
        print()
    for written in _sentences(tokens, notes):
        trace = partial_trace(written)
        whole = len(trace.target.words) - (not written[-1].end)  # the last word may get more tokens
        for at in range(whole):
            print(_line(trace, at, ascii_only), flush=True)
        if whole > 0:  # the printed words are not needed again
            del written[: trace.target.words[whole - 1].last]
    return notes


def _line(trace: heedful.Trace, at: int, ascii_only: bool) -> str:
    word, sure, weights = trace.target.words[at].text, trace.confidences()[at], trace.words()
    if weights is None:
        return f"{word} ({sure:.0%})"
    most = sorted(zip(weights[at].tolist(), trace.source.words, strict=True), key=lambda pair: -pair[0])[:MOST]
    largest = ", ".join(f"{source.text} {weight:.0%}" for weight, source in most if weight >= LEAST)
    return f"{word} ({sure:.0%}) {'<-' if ascii_only else '←'} {largest or 'no large weight'}"


def _live(tokens: Iterator[Token], ascii_only: bool) -> list[str]:
    """Redraw the heat map after each token; one that is higher than the terminal shows its end while it grows."""
    from rich.live import Live
    from rich.text import Text as Rich

    from heedful.draw import heatmap
    from heedful.translator.translation import partial_trace

    notes: list[str] = []
    console = terminal_console(stderr=False)
    live: Live | None = None
    try:
        for written in _sentences(tokens, notes):
            if live is None:
                live = Live(console=console, auto_refresh=False, vertical_overflow="visible")
                live.start()
            end, large = written[-1].end, len(written[0].source.tokens) * len(written) > MAP_CELLS
            if large:
                written[-1] = replace(written[-1], weights=None)
                if written[0].weights is not None:
                    written[:] = [replace(token, weights=None) for token in written]
            trace = partial_trace(written)
            text = Rich(printable(one_line(trace.target.text))).wrap(console, console.width)
            drawn = (
                [] if large else heatmap(trace, options.width(), ascii_only, sinks=None if end else "keep").splitlines()
            )
            if large and end:
                notes.append(f"the heat map is omitted: it has more than {MAP_CELLS:,} source tokens × target tokens")
            frame = [*(line.plain for line in text), "", *drawn, ""]
            frame = frame if end else frame[-(console.height - 1) :]
            live.update(Rich("\n".join(frame), no_wrap=True, overflow="ignore"), refresh=not end)
            if end:
                live.stop()
                live = None
    finally:
        if live is not None:
            live.stop()
    return notes


EVERY = 60.0  # seconds between two lines of progress where there is no terminal
OF_FILES = ("column", "added_prefix", "alarms", "workers", "shard", "ray")  # options that need --out
OF_BOTH = ("alignments", "prefix", "copy_unknown", "threads", "device", "engine", "int8", "precision")
OF_TEXTS = ("show", "stream", "html", "server", "ascii_only")


def _translate_files(values: Mapping[str, Any]) -> None:
    """Translate files, by the values of the options of `heedful translate`; print a summary, with --json a record."""
    unused = {f"--{name.removesuffix('_only')}": bool(values[name]) for name in OF_TEXTS}
    options.check_unused("with --out, which writes files", {**unused, "--patience": values["patience"] != 60})
    if not values["text"]:
        raise ConfigError("--out: there are no files to translate; name them after the model")
    settings = {name: values[name] for name in (*OF_FILES, *OF_BOTH)}
    settings |= {"split": not values["no_split"], "batch_tokens": values["batch_tokens"]}
    settings["shortlist"] = not values["no_shortlist"]
    model = [str(values["model"]), *(values["with_"] or ())]
    # Ray prints what happens to its workers on stdout, which is for results.
    apart = redirect_stdout(sys.stderr) if values["ray"] else nullcontext()
    try:
        with apart, options.name_options(), bulk_progress() as progress:
            report = heedful.translate_files(
                model if len(model) > 1 else model[0],
                values["text"],
                values["out"],
                options.decoding(values),
                progress=progress,
                **settings,
            )
    except KeyboardInterrupt:
        log("stopped; the same command goes on")
        raise
    log_bulk_report(report, values["out"])
    if values["json"]:
        counts = ("rows", "null", "refused", "before", "missing", "seconds")
        print_json({"outputs": report.outputs, **{name: getattr(report, name) for name in counts}})


def _check_no_files(values: Mapping[str, Any]) -> None:
    """Raise ConfigError for options that need --out."""
    given = {f"--{name.replace('_', '-')}": values[name] not in ("", None) for name in OF_FILES if name != "workers"}
    options.check_unused("without --out", {**given, "--workers": bool(values["workers"])})


def log_bulk_report(report: BulkReport, out: str) -> None:
    """Print what was translated, and what was not."""
    for note, count in report.notes.items():
        log(f"{options.as_options(note)}; in {count:,} row{'s' * (count > 1)}")
    if report.refused:
        warn(f"{report.refused:,} of {report.rows:,} rows have no translation; the column error says why")
    null = f", {report.null:,} of them null" if report.null else ""
    before = f"; {report.before:,} were done before" if report.before else ""
    missing = f"; {report.missing:,} are missing (see the manifest)" if report.missing else ""
    count, rate = len(report.outputs), report.rows / max(report.seconds, 1e-3)
    if not count:
        log(f"{out}: nothing to do{before}{missing}")
        return
    done = f"{count:,} file{'s' * (count != 1)} written, {report.rows:,} rows{null}, in {report.seconds:,.1f} s"
    log(f"{out}: {done}, {rate:,.0f} rows/s{before}{missing}")


@contextmanager
def bulk_progress() -> Iterator[Callable[[BulkProgress], None]]:
    """Give a function that shows progress: a bar with the rate and the time left, or without a terminal lines."""
    if not shows_progress():
        yield _ProgressLines()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    numbers = TextColumn("{task.fields[numbers]}", markup=False)
    columns = (numbers, BarColumn(), TimeRemainingColumn(compact=True), TextColumn("left"))
    bar = Progress(*columns, console=terminal_console(), refresh_per_second=4, transient=True)
    began: list[float] = []

    def show(state: BulkProgress) -> None:
        if not began:
            began.append(time.monotonic())
            bar.start()
            bar.add_task("", total=1.0, numbers="")
        bar.update(bar.task_ids[0], completed=state.share, numbers=_numbers(state, began[0]))

    try:
        yield show
    finally:
        bar.stop()


class _ProgressLines:
    """Prints a line of progress from time to time."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()

    def __call__(self, state: BulkProgress) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY and state.share < 1:
            self.last = now
            left = (now - self.began) * (1 - state.share) / max(state.share, 1e-6)
            log(f"{_numbers(state, self.began)}, {state.share:.0%} done, {_duration(left)} left")


def _numbers(state: BulkProgress, began: float) -> str:
    rate = state.rows / max(time.monotonic() - began, 1e-3)
    speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    return f"file {min(state.units + 1, state.all_units):,} of {state.all_units:,}, {state.rows:,} rows, {speed} rows/s"


def _duration(seconds: float) -> str:
    """Return a time as text.

    >>> _duration(59), _duration(3600), _duration(200_000)
    ('59 s', '1 h 0 min', '2 d 7 h')
    """
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if minutes < 1:
        return f"{seconds:.0f} s"
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
