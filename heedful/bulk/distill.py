"""`heedful.distill`: a teacher translates the sources, and a student is trained on its translations.

This is sequence-level distillation (Kim and Rush 2016). What the student learns from is kept beside it, in
`distilled/`:

| file | content |
|---|---|
| distill.json | what was asked for: the teacher, settings, hashes and numbers of the inputs |
| source/ | the clean source sentences, each once, as JSON lines in several files |
| translated/ | the same with the teacher's translations, and the journal of `translate_files` |
| pairs.tsv | the pairs that the student is trained on |
| valid.tsv | the validation pairs with their references; the teacher never translates them |

Each step is complete or is done again by the same call: `prepare`, `translate`, `train`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from heedful.bulk.journal import Journal
from heedful.bulk.run import BulkKeywords, BulkProgress, BulkReport, translate_files
from heedful.bulk.units import Destination, Shard
from heedful.config import Config
from heedful.data import PairFile, PairList
from heedful.data.cache import Array
from heedful.data.cleaning import clean_text
from heedful.data.formats import PairSource
from heedful.data.store import CHUNK, Store, StoreRows, among, open_store
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError, __version__, known_arguments
from heedful.files import parse_json, read_bytes, read_json, whole_folder, write_whole, writing
from heedful.interop.hub import HUB
from heedful.models.device import pick, release_memory
from heedful.text import SPECIALS, UNKNOWN
from heedful.training import Callback, Estimate, Inputs, Progress, Reporter, RunOutcome, estimate_run
from heedful.training.checkpointing import folders
from heedful.training.loop import check_free
from heedful.training.prepare import WHOLE, open_pairs
from heedful.training.progress import showing
from heedful.training.setup import STUDENT, Settings, check_settings, with_keywords
from heedful.translator import Translator, load
from heedful.translator.train import train_model

FORMAT = 1
DISTILLED, RECORD, SOURCE, TRANSLATED = "distilled", "distill.json", "source", "translated"
PAIRS, VALID = "pairs.tsv", "valid.tsv"
VALID_SOURCES = "valid.jsonl"  # in `source/`, where there are no references
RECORD_SIZE = 1_000_000  # bytes at most
# Sentences of a file that is translated as a whole: what a stopped run does again. A GPU needs large portions.
FILE_ROWS, GPU_FILE_ROWS, MOST_FILES = 2_000, 100_000, 500
CHECKED = 500  # pairs by which a teacher of the other direction is noticed
TRIED, TRIED_SECONDS = (16, 64, 256, 1024, 4096), 4.0  # sentences that measure a teacher's speed, until it took so long
# What the teacher's translations may not be asked for: another column, several translations, devices of its own.
OWN = {"n_best", "column", "added_prefix", "alignments", "alarms", "shard", "ray", "device", "threads"}
UNK = SPECIALS[UNKNOWN]
OTHERS = "Use the same, or choose another folder"

Text = Sequence[str] | str | Path


@dataclass(frozen=True)
class Sources:
    """What is distilled: pairs, whose sources are translated, validation pairs, and sentences without translations."""

    pairs: Inputs
    text: tuple[PairSource, ...] = ()

    def __post_init__(self) -> None:
        if not (self.pairs.training or self.text):
            raise ConfigError("there is nothing to translate; give pairs, or text: sentences of the source language")
        if self.pairs.captions:
            raise ConfigError("captions of images cannot be distilled; give pairs of sentences")


@dataclass(frozen=True)
class DistillSettings:
    """Who translates and how, and the settings of the student as of `heedful.train`.

    `teacher` are model folders or names on the hub; several are an ensemble. `translating` are arguments of
    `translate_files`: beam, engine, int8, precision, workers. With `keep_original`, the student learns from the
    original pairs as well.
    """

    teacher: tuple[str, ...]
    translating: Mapping[str, Any]
    keep_original: bool = False
    settings: Settings | None = None
    preset: str = STUDENT
    init: str | None = None

    def __post_init__(self) -> None:
        if not self.teacher:
            raise ConfigError("there is no teacher; name the folder of a model")
        known_arguments("translate_files", self.translating, BulkKeywords.__annotations__)
        for name in OWN & self.translating.keys():
            raise ConfigError(f"{name} cannot be set for a teacher: one translation of each sentence is learned")
        _ = self.decoding  # raises ConfigError for what is not allowed

    @property
    def decoding(self) -> Decoding:
        """How the teacher decodes."""
        named = {each.name for each in fields(Decoding)}
        return Decoding(**{name: value for name, value in self.translating.items() if name in named})

    @property
    def config(self) -> Config:
        """The settings that do not depend on the number of pairs."""
        return check_settings(self.settings or {}, self.preset, self.init)

    def plain(self) -> dict[str, Any]:
        """Return them as JSON can hold them, with absolute paths."""
        plain = {**asdict(self), "settings": {name: dict(values) for name, values in (self.settings or {}).items()}}
        teacher = [_full_name(each) for each in self.teacher]
        return {**plain, "teacher": teacher, "init": self.init and _full_name(self.init)}


class DistilledRows(NamedTuple):
    """How many sentences the teacher has translated: all, and those without a translation that can be learned.

    `refused`: it could not; `empty`: to nothing; `unknown`: with a word that it does not know, `<unk>`.
    """

    sources: int
    refused: int
    empty: int
    unknown: int

    @property
    def kept(self) -> int:
        """The number of those with a translation."""
        return self.sources - self.refused - self.empty - self.unknown

    def __str__(self) -> str:
        """The numbers in words."""
        lost = {"could not be translated": self.refused, "became nothing": self.empty, f"became {UNK}": self.unknown}
        words = "".join(f"; {count:,} {what}" for what, count in lost.items() if count)
        return f"{self.kept:,} of {self.sources:,} sentences have a translation that can be learned{words}"


@dataclass(frozen=True)
class DistillEstimate:
    """What a distillation takes: the sentences, the teacher's size and measured speed, and its student.

    Where there are no references, the sentences themselves stand in for the teacher's translations in the numbers of
    the student.
    """

    sentences: int
    teacher_weights: int
    teacher_bytes: int
    sentences_per_second: float
    device: str
    student: Estimate

    @property
    def seconds(self) -> float:
        """The time of translating all sentences."""
        return self.sentences / self.sentences_per_second

    def plain(self) -> dict[str, object]:
        """Return everything by name."""
        return {**asdict(self), "seconds": self.seconds, "student": self.student.plain()}


class Distillation:
    """One distillation in the folder `out`: `prepare` its sources, `translate` them, `train` the student.

    Without `asked` and `sources`, it is the one that was begun in `out`, as it is recorded there, with `changes` of the
    student's settings.
    """

    def __init__(
        self,
        out: Path,
        asked: DistillSettings | None = None,
        sources: Sources | None = None,
        changes: Settings | None = None,
    ) -> None:
        self.out, self.folder, self.sources = out, out / DISTILLED, sources
        self.record = self._recorded()
        self.given = asked is not None
        self.asked = asked or self._asked(changes or {})
        self.config = self.asked.config

    def prepare(self, reporter: Reporter) -> None:
        """Write the sentences to translate and the validation pairs; if they are there, check that they are the same.

        Raises ConfigError for a folder with another model, and for other inputs than it was begun with.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError(
                "a distillation runs in one process; to train the student in several, train on "
                f"{self.folder / PAIRS} once it is there"
            )
        if not self.record:
            check_free(self.out)
            if self.folder.exists():
                raise ConfigError(f"{self.folder}: this was not written by a distillation; choose another folder")
        if self.sources is None:
            return
        chosen = _choose(self.sources, self.config, reporter)
        digest = chosen.digest(self.asked.keep_original)
        if not self.record:
            device = pick(self.config.training.device).type
            check_settings(self.asked.settings or {}, self.asked.preset, self.asked.init, len(chosen), device)
            self._check_teacher(chosen)
            self._write(chosen, digest, reporter)
            return
        for name in ("keep_original", "preset") if folders(self.out) else ("keep_original",):
            before, now = self.record.get(name), getattr(self.asked, name)
            if before != now:
                raise ConfigError(f"{self.out}: {name} was {before} when it was begun, and is {now}. {OTHERS}")
        if self.record.get("digest") != digest:
            raise DataError(
                f"{self.out}: the sentences are not those that it was begun with: a file or a setting of the section "
                f"data has changed. {OTHERS}"
            )

    def translate(self, progress: Callable[[BulkProgress], object] | None = None) -> BulkReport:
        """Translate what is not translated yet, and write the pairs to learn from.

        Raises ConfigError if another teacher or another beam has translated a part of it. Without a teacher of its own,
        a distillation that is resumed does not open the recorded one when all is done.
        """
        report = BulkReport()
        if self.given or not self._is_translated():
            report = translate_files(
                self._teacher,
                self.folder / SOURCE,
                self._outputs,
                column="source",
                device=self.config.training.device,
                threads=self.config.training.threads,
                progress=progress,
                **self.asked.translating,
            )
            release_memory(pick(self.config.training.device))
        if not folders(self.out):  # otherwise the run has its own; what is there is known to be this teacher's now
            self._keep({**self.record, **self.asked.plain()})
        if report.outputs or not (self.folder / PAIRS).exists():
            self._write_pairs()
        return report

    def train(self, reporter: Reporter) -> RunOutcome:
        """Train the student, or continue; its notes name the teacher."""
        files = [PairFile(str(self.folder / name), "tsv", "1,2") for name in (PAIRS, VALID)]
        inputs = Inputs((files[0],), (files[1],))
        resume, asked = bool(folders(self.out)), self.asked
        if not resume:
            reporter.log(f"{self.rows}")
        return train_model(
            inputs,
            self.out,
            asked.settings or {},
            resume=resume,
            reporter=reporter,
            init=asked.init,
            preset=asked.preset,
            teacher=self.notes,
        )

    def estimate(self, reporter: Reporter) -> DistillEstimate:
        """Measure the teacher on some sentences and the student in some steps; only the cache is written."""
        if self.sources is None:
            raise ConfigError("an estimate is for a new distillation; give its pairs or text")
        if self.asked.init:
            raise ConfigError("an estimate is for new weights; leave out init")
        chosen = _choose(self.sources, self.config, reporter)
        translator = self._check_teacher(chosen)
        speed, device = self._speed(translator, list(chosen.sentences(TRIED[-1]))), str(translator.device)
        weights = list(translator.parts.model.parameters())
        numbers = sum(weight.numel() for weight in weights), sum(weight.nbytes for weight in weights)
        del translator, weights
        release_memory(pick(self.config.training.device))
        with TemporaryDirectory(prefix="heedful-") as folder:
            files = [PairFile(str(Path(folder) / name), "tsv", "1,2") for name in (PAIRS, VALID)]
            _write_tsv(Path(files[0].path), chosen.stand_ins(self.asked.keep_original))
            valid = chosen.valid if chosen.references else ((text, text) for text in chosen.valid_texts())
            _write_tsv(Path(files[1].path), valid)
            inputs = Inputs((files[0],), (files[1],))
            student = estimate_run(inputs, self.asked.settings or {}, reporter=reporter, preset=self.asked.preset)
        return DistillEstimate(len(chosen), *numbers, speed, device, student)

    @property
    def rows(self) -> DistilledRows:
        """How many sentences were translated, and how many of them failed; once all are."""
        return DistilledRows(*(int(self.record["rows"][name]) for name in DistilledRows._fields))

    @property
    def notes(self) -> dict[str, object]:
        """The teacher for the notes of the student: its name, its checksum, and the beam."""
        names = [each if each.startswith(HUB) else Path(each).name for each in self.asked.plain()["teacher"]]
        checksum = self._journal.run().get("model")
        beam = self.asked.translating.get("beam", 1)
        return {"teacher": ", ".join(names), "teacher_checksum": str(checksum), "teacher_beam": beam}

    @property
    def _teacher(self) -> str | tuple[str, ...]:
        return self.asked.teacher[0] if len(self.asked.teacher) == 1 else self.asked.teacher

    @property
    def _outputs(self) -> Path:
        return self.folder / TRANSLATED

    @property
    def _journal(self) -> Journal:
        return Journal(Destination(self._outputs), Shard())

    def _recorded(self) -> dict[str, Any]:
        """Return what is recorded in the folder; {} if nothing is."""
        path = self.folder / RECORD
        if not path.exists():
            return {}
        record = parse_json(read_bytes(path, RECORD_SIZE, "a record", DataError), str(path), DataError)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise DataError(f"{path}: this is not the record of a distillation, or that of another version")
        return record

    def _asked(self, changes: Settings) -> DistillSettings:
        """Return what was asked for when it was begun, with changes of settings."""
        if not self.record:
            raise ConfigError(f"{self.out} has no distillation to resume; name the teacher and the pairs")
        try:
            names = ("translating", "keep_original", "preset", "init")
            asked = {name: self.record[name] for name in names}
            sections = {*self.record["settings"], *changes}
            settings = {name: {**self.record["settings"].get(name, {}), **changes.get(name, {})} for name in sections}
            return DistillSettings(tuple(self.record["teacher"]), settings=settings, **asked)
        except (KeyError, TypeError) as error:
            raise DataError(f"{self.folder / RECORD}: damaged ({error!s:.100}); choose another folder") from None

    def _keep(self, record: dict[str, Any]) -> None:
        self.record = record
        write_whole(self.folder / RECORD, _json(record))

    def _check_teacher(self, chosen: ChosenSources) -> Translator:
        """Open the teacher; raise an error for one that does not translate these sentences."""
        training, options = self.config.training, self.asked.translating
        opening = {name: options[name] for name in ("engine", "int8", "precision") if name in options}
        translator = load(self._teacher, training.device, threads=training.threads, **opening)
        name = ", ".join(self.asked.teacher)
        if translator.reads_images:
            raise ConfigError(f"{name} captions images; a teacher translates sentences")
        pairs = [*chosen.pairs_of(CHECKED)]
        if pairs and (why := translator.wrong_way([x for x, _ in pairs], [y for _, y in pairs])):
            raise DataError(f"{name}: {why}; swap the columns of the pairs, or name another teacher")
        return translator

    def _speed(self, translator: Translator, sentences: Sequence[str]) -> float:
        """Return how many sentences the teacher translates in a second, of more and more of them."""
        how = self.asked.decoding
        rest = iter(sentences)
        speed = 0.0
        for count in TRIED:
            texts = list(islice(rest, count))
            if speed and len(texts) < count:
                break
            began = time.perf_counter()
            translator.translate(texts, how)
            spent = time.perf_counter() - began
            speed = len(texts) / spent
            if spent > TRIED_SECONDS:
                break
        return speed

    def _write(self, chosen: ChosenSources, digest: str, reporter: Reporter) -> None:
        """Write all that is needed of the inputs into the folder, whole or not at all."""
        gpu = pick(self.config.training.device).type == "cuda"
        rows = max(GPU_FILE_ROWS if gpu else FILE_ROWS, -(-len(chosen) // MOST_FILES))
        with whole_folder(self.folder) as folder:
            (folder / SOURCE).mkdir()
            texts = chosen.sentences()
            for number in range(-(-len(chosen) // rows)):
                _write_lines(folder / SOURCE / f"{number:05}.jsonl", map(_source_line, islice(texts, rows)))
            if chosen.references:
                _write_tsv(folder / VALID, chosen.valid)
            else:
                _write_lines(folder / SOURCE / VALID_SOURCES, map(_source_line, chosen.valid_texts()))
            if self.asked.keep_original:
                _write_tsv(folder / "original.tsv", chosen.original())
            record = {"format": FORMAT, "heedful": __version__, **self.asked.plain(), "digest": digest}
            self.record = {**record, "sources": len(chosen), "references": chosen.references}
            (folder / RECORD).write_bytes(_json(self.record))
        reporter.log(f"{len(chosen):,} different sentences to translate")

    def _is_translated(self) -> bool:
        """Whether all is translated, by the manifest."""
        manifest = self._outputs / "manifest.json"
        if not manifest.exists():
            return False
        record = read_json(manifest, DataError)
        done = record.get("outputs") if isinstance(record, dict) else None
        names = {path.name for path in (self.folder / SOURCE).glob("*.jsonl")}
        return isinstance(done, dict) and names <= done.keys()

    def _write_pairs(self) -> None:
        """Write the translations that the student learns, those of the validation sources, and count what failed."""
        counts = dict.fromkeys(DistilledRows._fields[1:], 0)
        if not self.record["references"]:
            _write_tsv(self.folder / VALID, _translations([self._outputs / VALID_SOURCES], {**counts}))
        paths = sorted(path for path in self._outputs.glob("*.jsonl") if path.name != VALID_SOURCES)
        pairs: Iterator[tuple[str, str]] = _translations(paths, counts)
        if self.asked.keep_original:
            original = PairFile(str(self.folder / "original.tsv"), "tsv", "1,2")
            pairs = chain(pairs, ((row.source, row.target) for row in original.rows()))
        _write_tsv(self.folder / PAIRS, pairs)
        if sum(counts.values()) == self.record["sources"]:
            raise DataError(f"{self._outputs}: the teacher translated none of the sentences; the column error says why")
        self._keep({**self.record, "rows": {"sources": self.record["sources"], **counts}})


@dataclass(frozen=True)
class ChosenSources:
    """The sentences to translate, each once and none of the validation pairs, and the validation pairs.

    `parts` are rows of the pairs and of the text. `references` says whether the validation pairs have references;
    otherwise they are sentences of the text that the teacher translates. `training` are all pairs for training.
    """

    parts: tuple[StoreRows, ...]
    valid_rows: StoreRows
    references: bool
    training: StoreRows | None

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def valid(self) -> Iterator[tuple[str, str]]:
        """The validation pairs."""
        return zip(self.valid_rows.texts(0), self.valid_rows.texts(1), strict=True)

    def valid_texts(self) -> Iterator[str]:
        """Yield the sources of the validation pairs."""
        return self.valid_rows.texts(0)

    def sentences(self, most: int = 0) -> Iterator[str]:
        """Yield the sentences to translate; with `most`, so many of them, evenly spread."""
        for part in self.parts:
            yield from (_spread(part, most * len(part) // len(self)) if most else part).texts(0)

    def pairs_of(self, most: int) -> Iterator[tuple[str, str]]:
        """Yield some of the pairs for training, evenly spread."""
        if self.training is not None:
            some = _spread(self.training, most)
            yield from zip(some.texts(0), some.texts(1), strict=True)

    def original(self) -> Iterator[tuple[str, str]]:
        """Yield all pairs for training."""
        if self.training is not None:
            yield from zip(self.training.texts(0), self.training.texts(1), strict=True)

    def stand_ins(self, keep_original: bool) -> Iterator[tuple[str, str]]:
        """Yield the sentences with a target of a similar length: the reference, or the sentence itself."""
        for part in self.parts:
            yield from zip(part.texts(0), part.texts(1), strict=True)
        if keep_original:
            yield from self.original()

    def digest(self, keep_original: bool) -> str:
        """Return a checksum of all sentences, to compare them when the same call goes on."""
        total = sha256(b"references" if self.references else b"")
        sides = [(part, 1) for part in self.parts] + [(self.valid_rows, 0)]
        if keep_original and self.training is not None:
            sides.append((self.training, 0))
        for part, kind in sides:
            values = part.store.hashes[kind]
            for begin in range(0, len(part), CHUNK):
                total.update(np.ascontiguousarray(values[part.rows[begin : begin + CHUNK]]).tobytes())
            total.update(b"\n")
        return total.hexdigest()


def _choose(sources: Sources, config: Config, reporter: Reporter) -> ChosenSources:
    """Read and clean all inputs, and choose what is translated and what validates."""
    inputs, most = sources.pairs, config.training.valid_pairs
    training = valid = text = None
    inputs.check()
    if inputs.training:
        opened = open_pairs(inputs, config, reporter)
        training, valid = opened.training, opened.valid
    elif inputs.valid:
        store, _ = open_store(inputs.valid, WHOLE, reporter.log, reporter.preparing)
        valid = StoreRows(store, store.split.first[:most], "first")
    if sources.text:
        store = _open_text(sources.text, config, inputs.strict, reporter)
        text = StoreRows(store, store.split.first, "first")
        if valid is None:
            text, valid = _held_out(store, most, reporter)
    assert valid is not None, "there are pairs or texts"
    held = np.concatenate([valid.store.hashes[side][valid.rows] for side in (1, 2)])
    parts: list[StoreRows] = []
    for part in (training, text):
        if part is None:
            continue
        apart = _apart(part, held)
        if apart is not part:
            count = len(part) - len(apart)
            what = "sentence is not used: it is" if count == 1 else "sentences are not used: they are"
            reporter.log(f"{count:,} {what} in a validation pair, too")
        training = apart if part is training else training
        parts.append(_different(apart, parts))
    if not any(map(len, parts)):
        raise DataError("no sentence is left to translate besides those of the validation pairs; add more")
    return ChosenSources(tuple(parts), valid, bool(inputs.training or inputs.valid), training)


def _open_text(text: tuple[PairSource, ...], config: Config, strict: bool, reporter: Reporter) -> Store:
    """Read and clean sentences; each is a pair with itself, so that all rules of pairs hold for them."""
    store, _ = open_store(text, config.data, reporter.log, reporter.preparing)
    if strict:
        store.report.check_clean()
    for line in store.report.lines():
        if not line.startswith(" "):  # examples show both sides
            reporter.log(f"text: {line.replace(' pair', ' sentence')}")
    return store


def _held_out(store: Store, most: int, reporter: Reporter) -> tuple[StoreRows, StoreRows]:
    """Return sentences for training, and those that are held out; there are no references for either."""
    split = store.split
    if not len(split.training):
        raise DataError(f"too few different sentences to hold some out for validation ({split.distinct}); add more")
    valid = StoreRows(store, split.held[:most], "held")
    reporter.warn(
        f"there are no references: {len(valid):,} held-out sentences are validated against the teacher's translations, "
        "so the scores say how well the student imitates it; validation pairs measure how well it translates"
    )
    return StoreRows(store, split.training, "training"), valid


def _apart(rows: StoreRows, held: Array) -> StoreRows:
    """Return the rows that share no sentence with a validation pair; the same object if none does."""
    store = rows.store
    shared = among(store.hashes.sources[rows.rows], held) | among(store.hashes.targets[rows.rows], held)
    return replace(rows, rows=rows.rows[~shared], name=f"{rows.name} apart") if shared.any() else rows


def _different(rows: StoreRows, before: Sequence[StoreRows]) -> StoreRows:
    """Return the rows with the first of each source that other parts do not have."""
    values = np.asarray(rows.store.hashes.sources[rows.rows])
    first = np.zeros(len(values), bool)
    first[np.unique(values, return_index=True)[1]] = True
    for part in before:
        first &= ~among(values, part.store.hashes.sources[part.rows])
    return replace(rows, rows=rows.rows[first], name=f"{rows.name} once")


def _spread(rows: StoreRows, most: int) -> StoreRows:
    """Return at most `most` of the rows, evenly spread."""
    return replace(rows, rows=rows.rows[np.arange(most) * len(rows) // most]) if 0 < most < len(rows) else rows


def _translations(paths: Iterable[Path], counts: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the sentences and translations of outputs; count those without a translation, and leave them out."""
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                translation = row["translation"] and clean_text(row["translation"])[0]
                if translation and (UNK not in translation or UNK in row["source"]):
                    yield row["source"], translation
                else:
                    counts["refused" if row["error"] is not None else "unknown" if translation else "empty"] += 1


def _source_line(text: str) -> str:
    return json.dumps({"source": text}, ensure_ascii=False)


def _write_tsv(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    _write_lines(path, (f"{source}\t{target}" for source, target in pairs))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def _json(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def _full_name(name: str) -> str:
    """Return the name of a model for the record: a name on the hub, or an absolute path."""
    return name if name.startswith(HUB) else str(Path(name).resolve())


def distill(  # noqa: PLR0913  (the options of a run)
    teacher: str | Path | Sequence[str | Path],
    pairs: Sequence[tuple[str, str]] | str | Path | None,
    out: str | Path,
    *,
    text: Text | None = None,
    valid: Sequence[tuple[str, str]] | str | Path | None = None,
    beam: int = 5,
    keep_original: bool = False,
    translating: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    init: str | Path | None = None,
    preset: str = STUDENT,
    verbose: bool = True,
    callback: Callable[[Progress], object] | Callback | None = None,
    **keywords: object,
) -> Translator:
    """Train a small student on the translations of a teacher, write it to the folder `out` and return it.

    `teacher` is what `heedful.load` opens: a model folder or a name on the hub; several are an ensemble. It translates
    the sources of `pairs` (a list, or a file) and the sentences of `text` (a list, or a file with one a line; `pairs`
    may then be None) with a beam of 5. The student is trained on these translations, with `keep_original` on the
    original pairs as well; `out/distilled` keeps them. Validation uses the references of held-out pairs, or `valid`.

    Settings of the student are given as in `heedful.train`; the preset `student` makes it a Transformer whose decoder
    has two layers of SSRU. `translating` are other arguments of `heedful.translate_files` for the teacher, such as
    `{"engine": "ctranslate2", "int8": True}`. The device and the threads are those of the training.

    The same call goes on where it was stopped; Ctrl-C raises `KeyboardInterrupt`. Other sentences, or another teacher,
    are an error.
    """
    chosen = with_keywords(settings or {}, keywords, distill)
    names = (teacher,) if isinstance(teacher, str | Path) else tuple(teacher)
    asked = DistillSettings(
        tuple(map(str, names)),
        {"beam": beam, **(translating or {})},
        keep_original,
        chosen,
        preset,
        None if init is None else str(init),
    )
    sources = Sources(
        Inputs(
            () if pairs is None else (_source_of(pairs, "pairs"),),
            () if valid is None else (_source_of(valid, "validation pairs"),),
        ),
        () if text is None else (text_source(text),),
    )
    run = Distillation(Path(out), asked, sources)
    with showing(verbose, callback) as reporter:
        run.prepare(reporter)
        run.translate(lambda state: reporter.preparing(state.rows, "sentences translated"))
        outcome = run.train(reporter)
    if outcome.signal:
        raise KeyboardInterrupt
    return load(out, run.config.training.device)


def text_source(text: Text) -> PairSource:
    """Return sentences of a file, one a line, or of a list, as pairs of each with itself."""
    if isinstance(text, str | Path):
        if str(text) == "-":
            raise ConfigError("text cannot come from standard input; it is read twice: write it to a file")
        return PairFile(str(text), target=str(text))
    return PairList([(each, each) for each in text], "text")


def _source_of(pairs: Sequence[tuple[str, str]] | str | Path, name: str) -> PairSource:
    return PairFile(str(pairs)) if isinstance(pairs, str | Path) else PairList(pairs, name)
