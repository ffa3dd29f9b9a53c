"""From cells to the values of the added columns, and from a unit to its output: read, translate, write, rename.

The cells of a unit are translated in portions. On a GPU, worker processes that share it translate several portions at
once, because Python beside it takes longer than the GPU itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import torch

from heedful.bulk.formats import (
    Cell,
    Columns,
    LineReader,
    LineWriter,
    Portion,
    Refused,
    RowReader,
    RowWriter,
    TextWriter,
    Value,
    packed,
    stamp,
)
from heedful.bulk.journal import PARTIAL, Record
from heedful.bulk.parquet import ParquetReader, ParquetWriter
from heedful.bulk.units import Unit
from heedful.data.workers import WorkerPool, cores
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError, ModelError, NotFiniteError
from heedful.files import make_folder, sync_folder, writing
from heedful.fused.cpu.linear import using_onednn
from heedful.models.device import DecodingLoad, free_memory, release_memory
from heedful.models.transformer import Transformer
from heedful.translator import Translation, Translator, load
from heedful.translator.aligning import link_lines
from heedful.translator.pipeline import TraceChoice
from heedful.translator.translator import CHARACTERS, SPLIT_CHARACTERS, LoadKeywords

ROWS = 1_000  # that are translated together, at least
TOKENS_OF_ROW = 8  # a larger batch takes more rows: one for each 8 tokens of batch_tokens
MOST_WORKERS = 6  # processes that share a GPU, by default
CONTEXT = 2**31  # bytes that each takes on the GPU besides batch and weights
SLACK = 1.25  # times what a batch and weights take: for the states of slots, and what PyTorch keeps
USUAL = (30, 40)  # source and target tokens of a sentence, for an estimate
ROW_CHARACTERS = 1_000  # for each of these rows, of all together

logger = logging.getLogger("heedful.bulk")


@dataclass(frozen=True)
class BulkSettings:
    """What decides the content of the outputs, besides the model and the inputs."""

    column: str = ""
    alignments: bool = False
    alarms: bool | None = None  # None: with alignments
    added_prefix: str = ""
    prefix: str | None = None
    split: bool = True
    copy_unknown: bool = False
    engine: str = "heedful"
    int8: bool = False
    precision: str = "fp32"
    shortlist: bool = True
    how: Decoding = field(default_factory=Decoding)

    @property
    def columns(self) -> Columns:
        """The column that is read, and those that are added."""
        asked = {"links": self.alignments, "alarms": self.has_alarms, "n_best": self.how.n_best > 1}
        more = [name for name, wanted in asked.items() if wanted]
        return Columns(self.column, ("translation", "score", "confidence", *more, "error"), self.added_prefix)

    @property
    def has_alarms(self) -> bool:
        """Whether there is a column of alarms."""
        return self.alignments if self.alarms is None else self.alarms

    @property
    def trace(self) -> TraceChoice:
        """What is needed of the attention: the weights by the read-out, or nothing."""
        return "alignment" if self.alignments or self.has_alarms else False

    @property
    def opening(self) -> LoadKeywords:
        """The arguments with which the model is opened."""
        how: LoadKeywords = {"engine": self.engine, "int8": self.int8, "precision": self.precision}
        return {**how, "shortlist": self.shortlist}

    def plain(self) -> dict[str, Any]:
        """Return all settings as JSON can hold them."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "how"}
        return {**own, **asdict(self.how)}


def fingerprint(translator: Translator) -> str:
    """Return a hash of what decides a translation: settings, weights, vocabularies and read-outs."""
    digest = hashlib.blake2b(digest_size=20)
    parts = translator.parts
    texts = [parts.source_codec.dump(), parts.target.dump(), json.dumps(translator.config.plain(), sort_keys=True)]
    texts += [json.dumps(translator.readout.plain(), sort_keys=True)]
    for text in texts:
        digest.update(text.encode() + b"\0")
    tensors = dict(parts.model.state_dict())
    if isinstance(parts.model, Transformer) and parts.model.shortlist is not None:
        tensors |= {f"shortlist.{name}": tensor for name, tensor in parts.model.shortlist.tensors().items()}
    for name, weight in sorted(tensors.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\0".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SharedModel:
    """What another process needs to open the model of a run, and to see that it is the same."""

    paths: tuple[str, ...]
    device: str
    threads: int
    fingerprint: str
    settings: BulkSettings
    batch_tokens: int
    onednn: bool
    rounded: bool = False  # whether a GPU may round the factors of products in fp32 to TF32
    memory_share: float = 1.0  # of the GPU's memory, where several processes use it
    opened: ClassVar[dict[SharedModel, Translator]] = {}  # the model of a worker process

    def open(self) -> Translator:
        """Return the model, opened once; raise ConfigError if it is not the one that the run was started with."""
        if self not in self.opened:
            self.opened.clear()
            if self.memory_share < 1:
                torch.cuda.set_per_process_memory_fraction(self.memory_share)
            if self.rounded and self.device == "cuda":
                torch.set_float32_matmul_precision("high")
            model = self.paths[0] if len(self.paths) == 1 else self.paths
            with using_onednn(self.onednn):
                translator = load(model, self.device, threads=self.threads, **self.settings.opening)
            if fingerprint(translator) != self.fingerprint:
                host = socket.gethostname()
                raise ConfigError(f"the model on {host} is not the same as where the run was started")
            self.opened[self] = translator
        return self.opened[self]

    def pool(self, translator: Translator, workers: int) -> WorkerPool[Sequence[Cell], PortionValues]:
        """Return worker processes that translate portions besides this one, each with its share of the GPU's memory."""
        share = memory_share(workers) if translator.device.type == "cuda" else 1.0
        return WorkerPool(replace(self, memory_share=share), workers, partial(self.values, translator))

    def values(self, translator: Translator, cells: Sequence[Cell]) -> PortionValues:
        """Translate a portion by a model that is open."""
        rows = RowTranslator(translator, self.settings, self.batch_tokens)
        return PortionValues(rows.values(rows.translate(cells)), rows.smallest, rows.notes)

    def __call__(self, cells: Sequence[Cell]) -> PortionValues:
        """Translate a portion: the job of a worker process."""
        return self.values(self.open(), cells)


def usual_workers(translator: Translator, batch_tokens: int, beam: int) -> int:
    """Return how many workers are used by default: on a GPU as many as its memory and half of the cores allow."""
    if translator.device.type != "cuda" or translator.engine is not None:
        return 1
    release_memory(translator.device)
    batch = batch_tokens * translator.batch_sizes.need.bytes_per_token(*USUAL, DecodingLoad(beam, 1))
    weights = sum(weight.nbytes for weight in translator.parts.model.parameters())
    need = SLACK * (batch + weights) + CONTEXT
    return max(1, min(MOST_WORKERS, cores() // 2, int((free_memory(translator.device) or 0) / need) - 1))


def memory_share(workers: int) -> float:
    """Return which share of a GPU's memory each worker may use, and the process that started them.

    It follows from their number alone, and so do the states that fit: it does not matter which of them translates a
    portion.
    """
    return 0.95 / (workers + 1)


@contextmanager
def sharing_memory(device: torch.device, workers: int) -> Iterator[None]:
    """Let this process use no more of a GPU's memory than each worker, for a while."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_per_process_memory_fraction(device)
    torch.cuda.set_per_process_memory_fraction(memory_share(workers), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)


class PortionValues(NamedTuple):
    """The values of the added columns of a portion, the smallest batch, and notes by kind."""

    values: list[Sequence[Value]]
    smallest: int
    notes: dict[str, tuple[str, int]]


class RowTranslator:
    """Translates the cells of one unit, in batches of at most `batch_tokens`; `notes` counts what translations warn of.

    Batches are halved when memory runs out, and begin with the full size in each portion: what the batches of a portion
    are does not depend on the portions before it, nor on the process that translates it. With a `pool`, its workers
    translate.
    """

    def __init__(
        self,
        translator: Translator,
        settings: BulkSettings,
        batch_tokens: int,
        pool: WorkerPool[Sequence[Cell], PortionValues] | None = None,
    ) -> None:
        self.translator, self.settings, self.batch_tokens, self.pool = translator, settings, batch_tokens, pool
        self.smallest = batch_tokens
        self.rows = max(ROWS, batch_tokens // TOKENS_OF_ROW)
        self.characters = self.rows * ROW_CHARACTERS
        whole = settings.trace or not settings.split
        self.longest = CHARACTERS if whole else SPLIT_CHARACTERS
        self.notes: dict[str, tuple[str, int]] = {}  # by their kind, without numbers: the first of it, and how many

    def translate(
        self, cells: Sequence[Cell], progress: Callable[[int, int], object] | None = None
    ) -> list[Translation | Refused | None]:
        """Translate cells; one without a text stays None, and one that cannot be translated has the reason."""
        self.translator.batch_sizes.forget()
        checked = [self._checked(cell) for cell in cells]
        texts = [cell for cell in checked if isinstance(cell, str)]
        translated = iter(self._translated(texts, progress) if texts else ())
        return [next(translated) if isinstance(cell, str) else cell for cell in checked]

    def values(self, translated: Sequence[Translation | Refused | None]) -> list[Sequence[Value]]:
        """Return the values of the added columns of each row."""
        done = [one for one in translated if isinstance(one, Translation)]
        links = iter(link_lines(done) if self.settings.alignments else ())
        empty = [None] * (len(self.settings.columns.kinds) - 1)
        return [
            self._row(one, next(links, ""))
            if isinstance(one, Translation)
            else [*empty, one.reason if isinstance(one, Refused) else None]
            for one in translated
        ]

    def by_workers(self, portions: Iterator[Portion]) -> Generator[tuple[Portion, list[Sequence[Value]]], None, None]:
        """Yield portions in order, with the values of their rows, translated by the worker processes."""
        assert self.pool is not None
        waiting = deque[Portion]()

        def cells() -> Iterator[Sequence[Cell]]:
            for portion in portions:
                waiting.append(portion)
                yield portion.cells

        with closing(self.pool.in_order(cells())) as results:
            for values, smallest, notes in results:
                self.smallest = min(self.smallest, smallest)
                for kind, (note, count) in notes.items():
                    first, before = self.notes.get(kind, (note, 0))
                    self.notes[kind] = first, before + count
                yield waiting.popleft(), values

    def _checked(self, cell: Cell) -> Cell:
        if isinstance(cell, str) and len(cell) > self.longest:
            return Refused(f"{len(cell):,} characters; at most {self.longest:,} are translated as one text")
        return cell

    def _translated(
        self, texts: Sequence[str], progress: Callable[[int, int], object] | None
    ) -> Sequence[Translation | Refused]:
        """Translate texts together; if that fails, each by itself, so that only those that cannot be are left out."""
        try:
            return self._together(texts, progress)
        except (DataError, ModelError, NotFiniteError) as error:
            first = error
        each: list[Translation | Refused] = []
        for text in texts:
            try:
                each += self._together([text], None)
            except (DataError, ModelError, NotFiniteError) as error:
                each.append(Refused(str(error)))
        if not any(isinstance(one, Translation) for one in each):
            raise first
        return each

    def _together(self, texts: Sequence[str], progress: Callable[[int, int], object] | None) -> list[Translation]:
        settings = self.settings
        translations = self.translator.translate(
            texts,
            settings.how,
            prefix=settings.prefix,
            split=settings.split,
            copy_unknown=settings.copy_unknown,
            trace=settings.trace,
            batch_tokens=self.batch_tokens,
            progress=progress,
        )
        self.smallest = min(self.smallest, self.translator.batch_tokens_used or self.smallest)
        return translations

    def _row(self, translation: Translation, links: str) -> list[Value]:
        for note in translation.notes:
            first, count = self.notes.get(without_numbers(note), (note, 0))
            self.notes[without_numbers(note)] = first, count + 1
        row: list[Value] = [translation.text, rounded(translation.score), rounded(translation.confidence)]
        if self.settings.alignments:
            row.append(links)
        if self.settings.has_alarms:
            row.append(alarm_kinds(translation))
        if self.settings.how.n_best > 1:
            row.append([{"text": one.text, "score": rounded(one.score)} for one in translation.n_best])
        return [*row, None]


def without_numbers(note: str) -> str:
    """Return the kind of a note: the same for notes that differ only in numbers.

    >>> without_numbers("cut off after 1,020 tokens")
    'cut off after # tokens'
    """
    return re.sub(r"\d[\d,]*", "#", note)


def rounded(number: float) -> float | None:
    """Return a number to six digits, which do not depend on the order of additions; None if it is not finite.

    >>> rounded(-12.3456789), rounded(math.inf)
    (-12.3457, None)
    """
    return float(f"{number:.6g}") if math.isfinite(number) else None


def alarm_kinds(translation: Translation) -> list[str]:
    """Return the kinds of alarms that any sentence of a translation raises, each once."""
    parts = translation.sentences or (translation,)
    return list(dict.fromkeys(alarm.kind for part in parts if part.length for alarm in part.alarms))


def open_reader(unit: Unit, columns: Columns) -> LineReader | ParquetReader:
    """Return the reader of a unit."""
    if unit.kind.format == "parquet":
        return ParquetReader(unit.path, unit.kind, columns, unit.group)
    return LineReader(unit.path, unit.kind, columns)


def _open_writer(file: IO[bytes], reader: RowReader, written: str) -> RowWriter:
    if isinstance(reader, LineReader) and written != "txt":
        return LineWriter(file, reader, written)
    return (
        ParquetWriter(file, reader) if isinstance(reader, ParquetReader) and written == "parquet" else TextWriter(file)
    )


def translate_unit(
    unit: Unit, output: Path, rows: RowTranslator, token: str, progress: Callable[[int, float], object] | None = None
) -> Record:
    """Translate a unit, write its output under another name and rename it; return its record.

    `token` makes that other name one that no other process uses. `progress` is called with the number of rows done, and
    the share of the unit. On an error nothing is left behind.
    """
    if unit.fault:
        raise DataError(unit.fault)
    began, before = time.perf_counter(), _stamp(unit.path)
    reader = open_reader(unit, rows.settings.columns)
    partial = output.with_name(f".{output.name}.{token}{PARTIAL}")
    make_folder(output.parent)
    try:
        with writing(output):
            with partial.open("wb") as file:
                counts = _write_rows(file, unit, reader, rows, progress or (lambda count, share: None))
                file.flush()
                os.fsync(file.fileno())
            if _stamp(unit.path) != before:
                raise DataError(
                    f"{unit.path}: the file changed while it was being read; start again when it is complete"
                )
            size = partial.stat().st_size
            partial.replace(output)
            sync_folder(output.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return {
        "unit": unit.name,
        "input": str(unit.path),
        **({} if unit.group is None else {"row_group": unit.group}),
        "blake2b": reader.digest(),
        **counts,
        "bytes": size,
        "batch_tokens": rows.smallest,
        "threads": rows.translator.threads,
        "device": rows.translator.device.type,
        "stamp": before,
        "seconds": round(time.perf_counter() - began, 3),
    }


def _stamp(path: Path) -> list[int]:
    try:
        return stamp(path)
    except OSError as error:
        raise DataError(f"{path}: it has vanished since the inputs were listed ({error.strerror})") from None


def _write_rows(
    file: IO[bytes], unit: Unit, reader: RowReader, rows: RowTranslator, progress: Callable[[int, float], object]
) -> Record:
    """Write all rows of a unit; return how many there are, are null, and are refused, and the notes on them."""
    counts = {"rows": 0, "null": 0, "refused": 0}
    rows.notes.clear()
    with packed(file, unit.written.packing) as stream:
        writer = _open_writer(stream, reader, unit.written.format)

        def write(portion: Portion, values: Sequence[Sequence[Value]]) -> None:
            writer.write(portion, values)
            counts["rows"] += len(values)
            counts["null"] += sum(cell is None for cell in portion.cells)
            counts["refused"] += sum(each[-1] is not None for each in values)

        portions = reader.portions(rows.rows, rows.characters)
        if rows.pool is not None:
            with closing(rows.by_workers(portions)) as translated:
                for portion, values in translated:
                    write(portion, values)
                    progress(counts["rows"], portion.share)
        else:
            _translate_and_write(portions, rows, write, progress)
        writer.close()
    return {**counts, **({"notes": dict(rows.notes.values())} if rows.notes else {})}


def _translate_and_write(
    portions: Iterator[Portion],
    rows: RowTranslator,
    write: Callable[[Portion, Sequence[Sequence[Value]]], None],
    progress: Callable[[int, float], object],
) -> None:
    """Translate portions in this process; links are read and rows are written while the next ones are decoded."""
    done, share = 0, 0.0
    with ThreadPoolExecutor(1, "heedful-bulk") as thread:
        writing_rows: Future[object] = thread.submit(int)
        for portion in portions:
            translated = rows.translate(portion.cells, _inside(progress, done, share, portion))
            writing_rows.result()
            writing_rows = thread.submit(lambda *each: write(each[0], rows.values(each[1])), portion, translated)
            done, share = done + len(translated), portion.share
            progress(done, share)
        writing_rows.result()


def _inside(
    progress: Callable[[int, float], object], rows: int, share: float, portion: Portion
) -> Callable[[int, int], object]:
    """Return the callback for the progress inside a portion, in sentences; `rows` and `share` are done before it."""
    size, more = len(portion.cells), portion.share - share
    return lambda done, of: progress(rows + size * done // of, share + more * done / of)
