"""`heedful translate --server`: the translations of a service, printed as those of a model here."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

from heedful.cli.options import Notes, width
from heedful.cli.output import LineProgress, debug, log, print_json, print_translation
from heedful.cli.translate import check_columns, one_line, printed_markup
from heedful.client import Client, ServiceError, TooMuch
from heedful.errors import DataError, HeedfulError

__all__ = ["CHUNK", "Asking", "Service", "ask"]

CHUNK = 32  # lines of a request


class Asking(NamedTuple):
    """What is asked of a service; the model `-` is its default."""

    model: str
    beam: int
    n_best: int
    prefix: str | None
    alignments: bool
    html: bool
    show: bool = False
    ascii_only: bool = False

    @property
    def name(self) -> str | None:
        """The model's name, if one was given."""
        return None if self.model == "-" else self.model

    @property
    def columns(self) -> str:
        """The option that has results printed in columns, if one was given."""
        return "--n-best" if self.n_best > 1 else "--alignments" if self.alignments else ""


class Service(NamedTuple):
    """Where it is, how many seconds it may be away, and how many lines it is asked for at once."""

    url: str
    patience: float = 60.0
    chunk: int = CHUNK


def ask(
    service: Service,
    asked: Asking,
    lines: Iterable[str],
    stream: bool,
    json: bool,
    progress: LineProgress,
) -> None:
    """Let a service translate lines, and print what it answers; its token is in HEEDFUL_TOKEN."""
    token = os.environ.get("HEEDFUL_TOKEN", "")
    notes = Notes(here=None)
    with Client(service.url, token, patience=service.patience, waits=_Waiting()) as client:
        if stream:
            for number, line in enumerate(lines, 1):
                notes.add(_stream(client, asked, number, line, json))
                debug(f"line {number:,} is done")
            notes.log()
            return
        breaks: deque[bool] = deque()  # whether a line has line breaks in it, of those that were sent

        def sent() -> Iterator[str]:
            for number, line in enumerate(lines, 1):
                if asked.html and asked.columns and not json:
                    check_columns(line, f"line {number:,}", asked.columns)
                breaks.append("\n" in line)
                yield line

        for item in _translated(client, asked, sent(), service.chunk, progress):
            broken = breaks.popleft()
            notes.add(item.get("notes") or ())
            with progress.paused(), _naming(service.url):
                if json:
                    _print_json(service.url, _record(item) if asked.show else item)
                else:
                    _print(item, asked, broken)
        notes.log()


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Let an error in what a service sent, such as a figure that is none, name the service."""
    try:
        yield
    except DataError as error:
        raise ServiceError(f"{url}: {error}", 200) from None


class _Waiting:
    """Says that a service is asked again, and for how long; what was said of the last request is not said again."""

    def __init__(self) -> None:
        self.said = ""

    def __call__(self, why: HeedfulError, seconds: float) -> None:
        if str(why) != self.said:
            self.said = str(why)
            log(f"{why}; trying again for {seconds:.0f} s (--patience)")


def _translated(
    client: Client, asked: Asking, lines: Iterable[str], most: int, progress: LineProgress
) -> Iterator[dict[str, Any]]:
    """Yield the translations of lines, some of them at once.

    Where these are too many for the service, it says how many it takes, and gets no more from then on. Where they are
    too long together, the next request has half of them, and those after it twice as many again.
    """
    left, waiting, done, size = iter(lines), list[str](), 0, most
    while True:
        waiting += islice(left, max(0, size - len(waiting)))
        if not waiting:
            return
        some = waiting[:size]
        try:
            items = _asked(client, asked, some)
        except TooMuch as error:
            number = error.field.removeprefix("text.")
            if len(some) == 1 or number == "0":
                raise DataError(f"line {done + 1:,}: {error}") from None
            if error.allowed and error.allowed < len(some):
                size = most = error.allowed
                continue
            # What stands before a line that is too long by itself is translated; fewer are asked for in any case.
            before = int(number) if number in map(str, range(1, len(some))) else 0
            size = before or len(some) // 2
            continue
        progress.add(some)
        yield from items
        done, waiting, size = done + len(some), waiting[size:], min(most, 2 * size)


def _asked(client: Client, asked: Asking, some: list[str]) -> list[dict[str, Any]]:
    return client.translate(
        some,
        model=asked.name,
        beam=asked.beam,
        n_best=asked.n_best,
        prefix=asked.prefix,
        alignments=asked.alignments or asked.show,
        markup=asked.html,
        trace=asked.show,
    )


def _record(item: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed as JSON with --show: the weights between words in place of the page's figure."""
    from heedful.draw.trace_codec import decode_trace

    record = {name: value for name, value in item.items() if name != "figure"}
    if item.get("alternatives"):
        record["alternatives"] = [_record(other) for other in item["alternatives"]]
    if item.get("figure"):
        trace = decode_trace(item["figure"], item["source"], item["text"])
        weights = trace.words()
        record["source_words"] = [list(word[:3]) for word in trace.source.words]
        record["target_words"] = [list(word[:3]) for word in trace.target.words]
        record["word_confidences"] = list(trace.confidences())
        record["weights"] = None if weights is None else weights.astype(float).round(4).tolist()
    return record


def _print_json(url: str, record: dict[str, Any]) -> None:
    try:
        print_json(record)
    except RecursionError:
        raise ServiceError(f"{url}: the answer of the service is nested too deeply") from None


def _print(item: dict[str, Any], asked: Asking, breaks: bool) -> None:
    for rank, one in enumerate(item.get("alternatives") or [item], 1):
        if asked.html and not (asked.n_best > 1 or asked.alignments):
            text = printed_markup(one["markup"], breaks)
        else:  # the source has no line breaks or tabs, so that of the markup only its text can have any
            text = one_line(one["markup"] if asked.html else one["text"]).strip()
        if asked.n_best > 1 or asked.alignments:
            text = text.replace("\t", " ")
        if asked.n_best > 1 and one["words"]:
            compared = one["score"] if one.get("rank_score") is None else one["rank_score"]
            text = f"{rank}\t{compared:.4f}\t{text}"
        if asked.alignments and one["words"]:
            if one.get("alignment") is None:
                raise DataError("it sent no links: its model has no attention; leave out --alignments")
            text += f"\t{one['alignment']['pharaoh']}"
        print_translation(text, flush=True)
        if asked.show:
            _show(one, asked.ascii_only)


def _show(one: dict[str, Any], ascii_only: bool) -> None:
    """Draw where the model looked, a map for each sentence."""
    from heedful.draw import heatmap
    from heedful.draw.trace_codec import decode_trace, split_sentences

    print()
    if one["text"]:
        whole = decode_trace(one.get("figure"), one["source"], one["text"])
        print("\n\n".join(heatmap(part, width(), ascii_only) for part in split_sentences(whole)))
        print()


def _stream(client: Client, asked: Asking, number: int, line: str, json: bool) -> list[str]:
    """Print words as they come; where the model looked is told when all of them are there. Return the notes."""
    whole = shown = ""
    translation: dict[str, Any] = {}
    try:
        for name, record in client.stream(line, model=asked.name, prefix=asked.prefix):
            if name == "token" and json:
                _print_json(client.url, {"line": number, **record})
            elif name == "token" and record["text"]:
                # The space between two sentences comes with the first word of the second, and is that of the source.
                start = record["start"]
                if start > len(whole) + len(line) + 1:
                    raise ServiceError(f"{client.url}: a token begins at character {start:,}, after {len(whole):,}")
                whole = whole[:start].ljust(start) + record["text"]
                text = one_line(whole).lstrip()
                print_translation(text[len(shown) :], end="", flush=True)
                shown = text
            elif name == "done":
                translation = record["translation"]
    finally:
        if not json:
            print(flush=True)  # also after half a line
    with _naming(client.url):
        if asked.show and json:
            _print_json(client.url, {"line": number, **_record(translation)})
        elif asked.show:
            _show(translation, asked.ascii_only)
    return translation.get("notes") or []
