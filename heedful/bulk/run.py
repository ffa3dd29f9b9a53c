"""`heedful.translate_files`: translate files into a folder, exactly once, and continue where a run was stopped."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import torch

from heedful.alignment.links import align_trace
from heedful.bulk.formats import Cell, stamp
from heedful.bulk.journal import Journal, Record
from heedful.bulk.rows import (
    ROW_CHARACTERS,
    ROWS,
    BulkSettings,
    PortionValues,
    RowTranslator,
    SharedModel,
    fingerprint,
    open_reader,
    sharing_memory,
    translate_unit,
    usual_workers,
    without_numbers,
)
from heedful.bulk.units import Destination, Shard, Unit, plan
from heedful.data.workers import WorkerPool
from heedful.decoding import Decoding, DecodingKeywords
from heedful.errors import ConfigError, DataError, DiskError, HeedfulError, MachineError, check_value, known_arguments
from heedful.fused.cpu.linear import onednn_is_faster, using_onednn
from heedful.fused.triton.scaled_plain import products_are_rounded
from heedful.models import pack_weights
from heedful.models.device import MOST_TOKENS
from heedful.translator import Translator, load

if TYPE_CHECKING:
    from heedful.bulk.ray_cluster import RayCluster

LOG = logging.getLogger("heedful.bulk")
SAMPLE = 200  # rows that threads are measured with
SHOWN = 20  # failures in a message
BATCH_TOKENS = {"cuda": 131_072}  # half of what is used elsewhere, as several processes share the GPU

Model = Translator | str | Path | Sequence[str | Path]


class BulkKeywords(DecodingKeywords, total=False):
    """The keyword arguments of `translate_files`, for the type checker."""

    column: str
    alignments: bool
    alarms: bool | None
    added_prefix: str
    prefix: str | None
    split: bool
    copy_unknown: bool
    shard: str
    batch_tokens: int
    workers: int
    threads: int
    device: str
    engine: str
    int8: bool
    precision: str
    shortlist: bool
    ray: str


class BulkProgress(NamedTuple):
    """How far a run is: units and rows that it has translated, and the share of its bytes, from 0 to 1."""

    unit: str
    units: int
    all_units: int
    rows: int
    share: float


@dataclass
class BulkReport:
    """The result of a run: rows and outputs that it wrote, units that were done before, and what failed."""

    rows: int = 0
    null: int = 0
    refused: int = 0
    outputs: list[str] = field(default_factory=list)
    before: int = 0
    missing: int = 0
    seconds: float = 0.0
    failures: dict[str, HeedfulError] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Count a unit."""
        self.outputs.append(record["unit"])
        for name in ("rows", "null", "refused"):
            setattr(self, name, getattr(self, name) + record[name])
        for note, count in record.get("notes", {}).items():
            same = next((one for one in self.notes if without_numbers(one) == without_numbers(note)), note)
            self.notes[same] = self.notes.get(same, 0) + count

    def check(self) -> None:
        """Raise an error with all failures, if there are any: MachineError if one of them is, otherwise DataError."""
        if not self.failures:
            return
        kind = MachineError if any(isinstance(one, MachineError) for one in self.failures.values()) else DataError
        shown = [f"  {error}" for error in islice(self.failures.values(), SHOWN)]
        more = [f"  and {len(self.failures) - SHOWN:,} more"] * (len(self.failures) > SHOWN)
        count = len(self.failures)
        what = f"{count:,} {'inputs' if count > 1 else 'input'} failed; {len(self.outputs) + self.before:,} are done"
        remedy = "Correct them" if kind is DataError else "When that is mended"
        error = kind("\n".join([f"{what}. {remedy}, and run the same command again", *shown, *more]))
        error.multiline = True
        raise error


def translate_files(
    model: Model,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    how: Decoding | None = None,
    *,
    progress: Callable[[BulkProgress], object] | None = None,
    **options: Unpack[BulkKeywords],
) -> BulkReport:
    """Translate files (.parquet, .jsonl, .tsv, .txt, each also .gz or .zst): the same rows, with columns added.

    `out` is a folder, or for one input the name of a file. Every input, and every row group of Parquet, becomes one
    output. What is done is recorded in `manifest.json` there; the same call again does only what is missing. `column`
    is the one to translate, by default `text`, or a number for TSV without a header. The added columns are
    translation, score (the log-probability), confidence and error; with `alignments` also links and, unless `alarms`
    is False, the kinds of alarms; with `n_best` above 1 n_best. Their names begin with `added_prefix`.

    On a GPU, `workers` processes translate portions of a file at the same time, by default as many as its memory and
    half of the cores allow; for a Transformer in fp32 the outputs do not depend on their number. `shard="3/64"` does
    every 64th unit, beginning with the third; `ray` is the address of a Ray cluster that does the units. Settings of
    decoding are given by name, or as a `Decoding`; `model` is a Translator, or a folder (several: an ensemble), opened
    as by `heedful.load` with `device`, `threads`, `engine`, `int8`, `precision` and `shortlist`.

    Inputs that cannot be read do not stop the others: an error at the end names them all.
    """
    settings, rest = _settings(how, options)
    shard = Shard.parse(rest.get("shard", ""))
    for name in ("batch_tokens", "workers"):
        check_value(name, rest.get(name, 0), int, lambda n: n >= 0, "a whole number from 0 (automatic)")
    names = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    destination, units = plan(names, out, settings.columns)
    journal = Journal(destination, shard)
    with journal.locked(), _connected(rest.get("ray", "")) as cluster:
        run = BulkRun(model, settings, rest, journal, units, cluster)
        run.open()
        report = run.translate(progress)
    report.check()
    return report


@contextmanager
def _connected(address: str) -> Iterator[RayCluster | None]:
    if not address:
        yield None
        return
    from heedful.bulk.ray_cluster import connect

    with connect(address) as cluster:
        yield cluster


def _settings(how: Decoding | None, options: Mapping[str, Any]) -> tuple[BulkSettings, dict[str, Any]]:
    """Return the settings that decide the outputs, and the other options."""
    known_arguments("translate_files", options, BulkKeywords.__annotations__)
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(f"how is {how!r}, expected heedful.Decoding(beam=5, …); or give settings by name, as beam=5")
    left = dict(options)
    decoding = {each.name: left.pop(each.name) for each in fields(Decoding) if each.name in left}
    own = {each.name: left.pop(each.name) for each in fields(BulkSettings) if each.name in left}
    plain = {each.name: getattr(how, each.name) for each in fields(Decoding)} if how else {}
    return BulkSettings(**own, how=Decoding(**{**plain, **decoding})), left


class BulkRun:
    """One run of one shard: opens the model, compares it with what is there, and translates what is missing."""

    def __init__(
        self,
        model: Model,
        settings: BulkSettings,
        options: Mapping[str, Any],
        journal: Journal,
        units: list[Unit],
        cluster: RayCluster | None = None,
    ) -> None:
        self.model, self.settings, self.options, self.journal, self.units = model, settings, options, journal, units
        self.cluster = cluster
        self.report = BulkReport()
        self.began = time.perf_counter()

    @property
    def destination(self) -> Destination:
        """Where the outputs go."""
        return self.journal.destination

    def open(self) -> None:
        """Open the model, check the settings, and fix the number of threads and the size of batches."""
        threads, batch_tokens = self.options.get("threads", 0), self.options.get("batch_tokens", 0)
        known = self.journal.run()
        with using_onednn(known["onednn"]) if "onednn" in known else nullcontext():  # another would round differently
            self._open_model(threads)
            onednn = onednn_is_faster()
        self._check_settings()
        self.fingerprint = fingerprint(self.translator)
        workers = int(self.options.get("workers", 0))
        if workers > 1 and isinstance(self.model, Translator):
            raise ConfigError(f"workers is {workers}, and each opens the model: give its folder, not a Translator")
        self.mine = self.units[self.journal.shard.number - 1 :: self.journal.shard.of]
        computes = self.cluster.device if self.cluster else self.translator.device.type
        sizes = {
            "threads": threads or known.get("threads") or self.translator.threads or self._measured_threads(),
            "batch_tokens": batch_tokens or known.get("batch_tokens") or BATCH_TOKENS.get(computes, MOST_TOKENS["cpu"]),
            "onednn": onednn,
            "workers": workers or known.get("workers") or self._usual_workers(batch_tokens),
        }
        first = self.journal.settle(self.fingerprint, self.settings.plain(), sizes)
        self.onednn = bool(first["onednn"])
        if self.onednn != onednn and self.translator.device.type == "cpu":  # another process was first
            with using_onednn(self.onednn):
                pack_weights(self.translator.parts.model)
        self.translator.threads = threads or first["threads"]
        self.batch_tokens = batch_tokens or first["batch_tokens"]
        self.workers = workers or first["workers"]
        LOG.debug(
            "batches of at most %s tokens on %s, %d worker(s), %d thread(s) each",
            f"{self.batch_tokens:,}",
            computes,
            self.workers,
            self.translator.threads,
        )

    def _usual_workers(self, batch_tokens: int) -> int:
        if isinstance(self.model, Translator) or self.cluster is not None:
            return 1
        return usual_workers(self.translator, batch_tokens or BATCH_TOKENS["cuda"], self.settings.how.beam)

    def _shared(self) -> SharedModel:
        """Return how other processes open the model."""
        assert not isinstance(self.model, Translator)
        models = (self.model,) if isinstance(self.model, str | Path) else self.model
        return SharedModel(
            tuple(os.path.abspath(one) if os.path.exists(one) else str(one) for one in models),
            self.cluster.device if self.cluster else self.translator.device.type,
            self.translator.threads,
            self.fingerprint,
            self.settings,
            self.batch_tokens,
            self.onednn,
            products_are_rounded(),
        )

    @contextmanager
    def _pool(self) -> Iterator[None]:
        """Have worker processes meanwhile, if there are to be any; on a GPU this process uses as much as each."""
        self.pool: WorkerPool[Sequence[Cell], PortionValues] | None = None
        if self.cluster is not None or self.workers < 2:
            yield
            return
        with sharing_memory(self.translator.device, self.workers):
            self.pool = self._shared().pool(self.translator, self.workers)
            try:
                yield
            finally:
                self.pool.close()

    def _open_model(self, threads: int) -> None:
        settings, path = self.settings, self.model
        if isinstance(path, Translator):
            engine = path.engine
            self.translator, how = path, (engine.name, engine.precision == "int8") if engine else ("heedful", False)
            self.settings = replace(settings, engine=how[0], int8=how[1], precision=path.precision)
            return
        device = "cpu" if self.cluster else self.options.get("device", "auto")  # workers open it where they compute
        self.translator = load(path, device, threads=threads, **settings.opening)

    def _check_settings(self) -> None:
        """Raise an error for a prefix with unknown words, and for a model without the attention that is needed."""
        settings = self.settings
        self.translator.translate([""], settings.how, prefix=settings.prefix, copy_unknown=settings.copy_unknown)
        if settings.trace:
            align_trace(self.translator.score(["a"], ["a"])[0].trace)

    def _measured_threads(self) -> int:
        """Measure with how many threads the first rows are translated fastest."""
        if self.cluster:
            return 1
        texts: list[str] = []
        for unit in self.mine:
            if unit.fault:
                continue
            try:
                portion = next(open_reader(unit, self.settings.columns).portions(SAMPLE, SAMPLE * 1000), None)
            except DataError:
                continue
            texts = [cell for cell in portion.cells if isinstance(cell, str) and len(cell) < 10_000] if portion else []
            break
        return self.translator.choose_threads(texts, self.settings.how) or torch.get_num_threads()

    def translate(self, progress: Callable[[BulkProgress], object] | None) -> BulkReport:
        """Translate all units of this shard that are not done."""
        self.journal.load()
        pending = [unit for unit in self.mine if self._is_pending(unit)]
        self.journal.remove_partial(pending)
        self.journal.write_manifest(self.units)
        try:
            with self._pool():
                for unit, result in self._results(pending, _Meter(progress, pending)):
                    if isinstance(result, HeedfulError):
                        self._fail(unit, result)
                    else:
                        self.journal.done(result)
                        self.report.add(result)
                    self.journal.write_manifest(self.units, now=False)
        finally:
            self.journal.write_manifest(self.units)
        self.journal.remove_partial(pending)
        self.report.missing = sum(unit.name not in self.journal.records for unit in self.units)
        self.report.seconds = time.perf_counter() - self.began
        return self.report

    def _results(self, pending: Sequence[Unit], meter: _Meter) -> Iterator[tuple[Unit, Record | HeedfulError]]:
        """Yield each unit with its record, or why it failed."""
        for unit, result in self._on_cluster(pending) if self.cluster else self._here(pending, meter):
            if isinstance(result, DiskError):
                raise result  # the next unit would fail as well
            yield unit, result
            meter.finish(unit, result["rows"] if isinstance(result, dict) else 0)

    def _on_cluster(self, pending: Sequence[Unit]) -> Iterator[tuple[Unit, Record | HeedfulError]]:
        from heedful.bulk.ray_cluster import RayJob

        assert self.cluster is not None
        if isinstance(self.model, Translator):
            raise ConfigError("on a Ray cluster every worker opens the model: give its folder, not a Translator")
        where = replace(self.destination, folder=Path(os.path.abspath(self.destination.folder)))
        for unit in pending:
            self.journal.begin(unit)
        yield from self.cluster.results(
            RayJob(self._shared(), where, self.workers if self.cluster.gpus else 1), pending
        )

    def _here(self, pending: Sequence[Unit], meter: _Meter) -> Iterator[tuple[Unit, Record | HeedfulError]]:
        for unit in pending:
            self.journal.begin(unit)
            yield unit, self._translated(unit, meter)

    def _translated(self, unit: Unit, meter: _Meter) -> Record | HeedfulError:
        rows = RowTranslator(self.translator, self.settings, self.batch_tokens, self.pool)
        output = self.destination.folder / unit.name
        try:
            return translate_unit(
                unit, output, rows, str(self.journal.shard), lambda n, share: meter.show(unit, n, share)
            )
        except HeedfulError as error:
            return error
        except MemoryError:
            return MachineError(f"{unit.path}: out of memory; set a smaller batch_tokens")

    def _fail(self, unit: Unit, error: HeedfulError) -> None:
        name = str(unit.path)
        message = str(error) if name in str(error) else f"{name}: {error}"
        self.report.failures[unit.name] = type(error)(message)
        self.journal.fail(unit, message)
        LOG.warning("%s; going on with the others", message)

    def _is_pending(self, unit: Unit) -> bool:
        """Whether a unit has to be translated; one whose input is damaged since it was translated has failed."""
        try:
            return not self._is_done(unit)
        except DataError as error:
            self._fail(unit, error)
            return False

    def _is_done(self, unit: Unit) -> bool:
        """Whether the output of a unit is there, from the same input; raises ConfigError for what does not match."""
        output, record = self.destination.folder / unit.name, self.journal.records.get(unit.name)
        if record is None:
            if output.exists() and unit.name not in self.journal.begun:
                raise ConfigError(f"{output}: there is a file that this command did not write; choose another folder")
            return False
        if not output.exists():
            self.journal.records.pop(unit.name)
            return False
        if (size := output.stat().st_size) != record["bytes"]:
            raise ConfigError(
                f"{output}: has {size:,} bytes, but {record['bytes']:,} were written; remove it to translate it again"
            )
        if not unit.fault and not self._same_input(unit, record):
            if os.path.abspath(record["input"]) != os.path.abspath(unit.path):
                raise ConfigError(
                    f"{output} is the translation of {record['input']}, and {unit.path} is another file of that name; "
                    "choose another folder, or translate both with one command"
                )
            raise ConfigError(
                f"{unit.path}: has changed since it was translated; remove {output} to translate it again, "
                "or choose another folder"
            )
        self.report.before += 1
        return True

    def _same_input(self, unit: Unit, record: Record) -> bool:
        try:
            if stamp(unit.path) == record["stamp"]:
                return True
        except OSError:
            return True  # it is gone, and its output is there
        reader = open_reader(unit, self.settings.columns)
        for _ in reader.portions(ROWS, ROWS * ROW_CHARACTERS):
            if reader.digest():  # of a row group, it is known at once
                break
        return reader.digest() == str(record["blake2b"])


class _Meter:
    """Adds up the progress of units by their bytes."""

    def __init__(self, progress: Callable[[BulkProgress], object] | None, units: Sequence[Unit]) -> None:
        self.progress, self.count = progress, len(units)
        self.total = max(1, sum(unit.size for unit in units))
        self.units = self.rows = self.bytes = 0

    def show(self, unit: Unit, rows: int, share: float) -> None:
        """Report the progress inside a unit."""
        if self.progress is not None:
            done = (self.bytes + share * unit.size) / self.total
            self.progress(BulkProgress(unit.name, self.units, self.count, self.rows + rows, done))

    def finish(self, unit: Unit, rows: int) -> None:
        """Count a unit that is done or has failed."""
        self.show(unit, rows, 1.0)
        self.units, self.rows, self.bytes = self.units + 1, self.rows + rows, self.bytes + unit.size
