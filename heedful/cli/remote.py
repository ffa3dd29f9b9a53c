"""`heedful translate --server` and `heedful caption --server`: results of a server, as those of a local model."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import heedful
from heedful.cli.options import Notes, width
from heedful.cli.output import LineProgress, debug, log, print_json, print_translation
from heedful.cli.translate import check_columns, one_line, printed_markup
from heedful.errors import DataError, HeedfulError, MachineError

BATCH = 32  # lines of a request


class RemoteOptions(NamedTuple):
    """The options of `heedful translate` with --server; the model `-` is the server's default."""

    url: str
    patience: float
    batch: int
    model: str
    beam: int
    n_best: int
    prefix: str | None
    alignments: bool
    html: bool
    show: bool
    ascii_only: bool
    json: bool

    @property
    def name(self) -> str | None:
        """The name of the model, None for the default."""
        return None if self.model == "-" else self.model

    @property
    def columns(self) -> str:
        """The option that prints results in columns, or ""."""
        return "--n-best" if self.n_best > 1 else "--alignments" if self.alignments else ""


def translate_remotely(request: RemoteOptions, lines: Iterable[str], stream: bool, progress: LineProgress) -> None:
    """Translate lines by a server and print the results; its token is in HEEDFUL_TOKEN."""
    token = os.environ.get("HEEDFUL_TOKEN", "")
    notes = Notes(has_options=None)
    with heedful.Client(request.url, token, patience=request.patience, waits=_Retrying()) as client:
        if stream:
            for number, line in enumerate(lines, 1):
                notes.add(_stream(client, request, number, line))
                debug(f"line {number:,} is done")
            notes.log()
            return
        breaks: deque[bool] = deque()  # whether each line that was sent has line breaks

        def sent() -> Iterator[str]:
            for number, line in enumerate(lines, 1):
                if request.html and request.columns and not request.json:
                    check_columns(line, f"line {number:,}", request.columns)
                breaks.append("\n" in line)
                yield line

        items = client.translate_lines(
            sent(),
            batch=request.batch,
            progress=progress.add,
            model=request.name,
            beam=request.beam,
            n_best=request.n_best,
            prefix=request.prefix,
            alignments=request.alignments or request.show,
            markup=request.html,
            trace=request.show,
        )
        for item in items:
            has_breaks = breaks.popleft()
            notes.add(item.get("notes") or ())
            with progress.paused(), _naming(request.url):
                if request.json:
                    _print_json(_record(item) if request.show else item)
                else:
                    _print(item, request, has_breaks)
        notes.log()


class RemoteCaptioner:
    """Captions of images by a server; with `show` and `alignments` they have traces."""

    def __init__(
        self,
        url: str,
        patience: float,
        model: str,
        how: heedful.Decoding,
        prefix: str | None,
        show: bool,
        alignments: bool,
    ) -> None:
        token = os.environ.get("HEEDFUL_TOKEN", "")
        self.client = heedful.Client(url, token, patience=patience, waits=_Retrying())
        self.model, self.how, self.prefix = None if model == "-" else model, how, prefix
        self.show, self.traced = show, show or alignments

    def caption(self, name: str, image: str | bytes) -> heedful.Translation:
        """Return the caption of an image, given by its path or its bytes."""
        item = self.client.caption(
            image,
            name="standard input" if isinstance(image, bytes) else os.path.basename(image)[-200:],
            model=self.model,
            beam=self.how.beam,
            n_best=self.how.n_best,
            prefix=self.prefix,
            trace=True,
        )
        picture = b""
        if self.show:
            from heedful.data.images import load_image, small_picture

            picture = small_picture(load_image(image))
        with _naming(self.client.url):
            made = self._translation(item, picture)
            others = tuple(self._translation(other, picture) for other in item.get("alternatives") or ())
        return replace(made, n_best=others) if others else made

    def _translation(self, item: dict[str, Any], picture: bytes) -> heedful.Translation:
        from heedful.draw.trace_codec import decode_trace

        trace = decode_trace(item.get("figure"), item["source"], item["text"])
        if trace.image is None:
            raise DataError("the answer has no regions of an image")
        trace = replace(trace, source=trace.image.text(), image=replace(trace.image, picture=picture))
        length, notes = len(trace.target.tokens), tuple(item.get("notes") or ())
        record = trace if self.traced else None
        return heedful.Translation(item["source"], item["text"], item["score"], length, record, notes)


class _Retrying:
    """Prints why a request is retried, and for how long; the same reason is not printed twice in a row."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, why: HeedfulError, seconds: float) -> None:
        if str(why) != self.last:
            self.last = str(why)
            log(f"{why}; trying again for {seconds:.0f} s (--patience)")


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Name the server in the error for an invalid answer."""
    try:
        yield
    except DataError as error:
        raise MachineError(f"{url}: {error}") from None


def _print_json(record: dict[str, Any]) -> None:
    try:
        print_json(record)
    except RecursionError:
        raise DataError("the answer of the service is nested too deeply") from None


def _record(item: dict[str, Any]) -> dict[str, Any]:
    """Return the record that is printed with --show: the weights between words in place of the web page's figure."""
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


def _print(item: dict[str, Any], request: RemoteOptions, breaks: bool) -> None:
    for rank, one in enumerate(item.get("alternatives") or [item], 1):
        if request.html and not request.columns:
            text = printed_markup(one["markup"], breaks)
        else:  # the source has no line breaks or tabs, so that of the markup only its text can have any
            text = one_line(one["markup"] if request.html else one["text"]).strip()
        if request.columns:
            text = text.replace("\t", " ")
        if request.n_best > 1 and one["words"]:
            rank_score = one["score"] if one.get("rank_score") is None else one["rank_score"]
            text = f"{rank}\t{rank_score:.4f}\t{text}"
        if request.alignments and one["words"]:
            if one.get("alignment") is None:
                raise DataError("the answer has no links: the model has no attention; leave out --alignments")
            text += f"\t{one['alignment']['pharaoh']}"
        print_translation(text, flush=True)
        if request.show:
            _show(one, request.ascii_only)


def _show(one: dict[str, Any], ascii_only: bool) -> None:
    """Draw the attention weights, a heat map for each sentence."""
    from heedful.draw import heatmap
    from heedful.draw.trace_codec import decode_trace, split_sentences

    print()
    if one["text"]:
        whole = decode_trace(one.get("figure"), one["source"], one["text"])
        print("\n\n".join(heatmap(part, width(), ascii_only) for part in split_sentences(whole)))
        print()


def _stream(client: heedful.Client, request: RemoteOptions, number: int, line: str) -> list[str]:
    """Print words as they are decoded, and with --show the attention at the end; return the notes."""
    whole = shown = ""
    translation: dict[str, Any] = {}
    try:
        for name, record in client.stream(line, model=request.name, prefix=request.prefix):
            if name == "token" and request.json:
                with _naming(client.url):
                    _print_json({"line": number, **record})
            elif name == "token" and record["text"]:
                # The space between two sentences comes with the first word of the second, as in the source.
                start = record["start"]
                if start > len(whole) + len(line) + 1:
                    raise MachineError(f"{client.url}: a token begins at character {start:,}, after {len(whole):,}")
                whole = whole[:start].ljust(start) + record["text"]
                text = one_line(whole).lstrip()
                print_translation(text[len(shown) :], end="", flush=True)
                shown = text
            elif name == "done":
                translation = record["translation"]
    finally:
        if not request.json:
            print(flush=True)  # also after half a line
    with _naming(client.url):
        if request.show and request.json:
            _print_json({"line": number, **_record(translation)})
        elif request.show:
            _show(translation, request.ascii_only)
    return translation.get("notes") or []
