"""The data of a run: from files of pairs to vocabularies, token ids, batches, and a checksum of the pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from heedful.config import Config, DataConfig, TextConfig
from heedful.data import Pair, PairFile, PairList
from heedful.data.batches import Batches
from heedful.data.cache import Writer, key_of, stored
from heedful.data.corpus import Corpus, tokenize
from heedful.data.files import check_there
from heedful.data.links import CorpusLinks, word_sizes
from heedful.data.store import CHUNK, Store, StoreRows, among, open_store
from heedful.errors import ConfigError, DataError
from heedful.text import START, Codec
from heedful.text.size import count_texts, resolve_size
from heedful.training.callbacks import Reporter
from heedful.training.guided import GuidedAttention
from heedful.training.losses import AuxiliaryLoss, auxiliary_losses

VERSION = 1
LEARNED = 1_000_000  # pairs that vocabularies are learned from at most
COUNTED = 500_000  # pairs that are counted to choose their size
# Validation pairs are kept as they are, except for empty ones.
WHOLE = DataConfig(max_characters=10**9, max_ratio=1e9, duplicates="keep")


@dataclass(frozen=True)
class Inputs:
    """The training pairs and, if there are any, the validation pairs; with `strict`, all must be clean already.

    Without training pairs, they are those of the run that is resumed.
    """

    training: tuple[PairFile | PairList, ...]
    valid: tuple[PairFile | PairList, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        if self._paths().count("-") > 1:
            raise ConfigError("standard input (-) can be read only once; use a file for one of the inputs")

    @property
    def piped(self) -> bool:
        """Whether any input is standard input."""
        return "-" in self._paths()

    @property
    def linked(self) -> bool:
        """Whether the training pairs have links between words."""
        return any(file.links not in ("", None) for file in self.training)

    @property
    def missing(self) -> list[str]:
        """The files that are missing."""
        return [path for path in self._paths() if path != "-" and not Path(path).exists()]

    def check(self) -> None:
        """Raise DataError for files that are missing or cannot be opened, before the first one is read."""
        for path in self._paths():
            check_there(Path(path))

    def absolute(self) -> dict[str, Any]:
        """Return the inputs with absolute paths, for the record; {} for pairs in memory."""
        if len(self._files()) < len(self.training) + len(self.valid):
            return {}
        sides = {"training": self.training, "valid": self.valid}
        return {side: [asdict(_absolute(f)) for f in files if isinstance(f, PairFile)] for side, files in sides.items()}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> Inputs | None:
        """Return the inputs of a record, if they are files."""
        if not record.get("training"):
            return None
        training, valid = (tuple(PairFile(**file) for file in record[side]) for side in ("training", "valid"))
        return cls(training, valid)

    def _paths(self) -> list[str]:
        return [path for file in self._files() for path in (file.path, file.target, file.links) if path]

    def _files(self) -> list[PairFile]:
        return [file for file in (*self.training, *self.valid) if isinstance(file, PairFile)]


def _absolute(file: PairFile) -> PairFile:
    names = (file.path, file.target, file.links)
    path, target, links = (name if name in ("", "-") else str(Path(name).resolve()) for name in names)
    return replace(file, path=path, target=target, links=links)


@dataclass(frozen=True)
class PairSets:
    """The training pairs and the validation pairs, on disk, and their checksum."""

    training: StoreRows
    valid: StoreRows
    digest: str

    @property
    def count(self) -> int:
        """The number of training pairs."""
        return len(self.training)


@dataclass(frozen=True)
class TrainingData:
    """Token ids and batches for training, pairs and batches for validation, and the checksum of the pairs.

    `losses` are the auxiliary losses of the run by name.
    """

    corpus: Corpus
    batches: Batches
    valid_pairs: list[Pair]
    valid_batches: Batches
    digest: str
    losses: dict[str, AuxiliaryLoss] = field(default_factory=dict)

    @property
    def guide(self) -> GuidedAttention | None:
        """The loss of guided attention, if there are links."""
        guided = self.losses.get("guided")
        return guided if isinstance(guided, GuidedAttention) else None


def open_pairs(inputs: Inputs, config: Config, reporter: Reporter) -> PairSets:
    """Read and clean the pairs, or map them from the cache; log the report and which are held out."""
    began = time.perf_counter()
    store, cached = open_store(inputs.training, config.data, reporter.log, reporter.preparing)
    if inputs.strict:
        store.report.check_clean()
    for line in store.report.lines():
        reporter.log(line)
    if cached:
        reporter.log(f"these pairs are read from the cache ({time.perf_counter() - began:.1f} s)")
    most = config.training.valid_pairs
    if inputs.valid:
        training = StoreRows(store, store.split.first, "first")
        valid = _validation(inputs, reporter)
        _log_validation(training, valid, most, reporter.log)
        valid = replace(valid, rows=valid.rows[:most])
    else:
        training, valid = _held_out(store, most, reporter.log)
    digest = _digest(training, valid)
    store.forget()
    return PairSets(training, valid, digest)


def _held_out(store: Store, most: int, log: Callable[[str], None]) -> tuple[StoreRows, StoreRows]:
    """Return the training pairs and the held-out pairs; log their numbers."""
    split = store.split
    if not len(split.training):
        raise DataError(
            f"too few different sentences to hold some out for validation ({split.distinct} different "
            f"pair{'s' if split.distinct != 1 else ''}); add more pairs, or give validation pairs"
        )
    training, valid = StoreRows(store, split.training, "training"), StoreRows(store, split.held[:most], "held")
    _show_first(training, log)
    log(f"{len(training):,} pairs for training, {len(valid):,} held out for validation")
    if unused := len(split.first) - len(training) - len(valid):
        are = "pair is" if unused == 1 else "pairs are"
        log(
            f"{unused:,} more {are} not used ({unused / len(split.first):.1%}): sentences shared with a validation "
            "pair, or held out beyond training.valid_pairs; with validation pairs of your own, all are used"
        )
    return training, valid


def _validation(inputs: Inputs, reporter: Reporter) -> StoreRows:
    """Return the validation pairs of the inputs."""
    store, _ = open_store(inputs.valid, WHOLE, reporter.log, reporter.preparing)
    if inputs.strict:
        store.report.check_clean()
    if store.report.counts or store.report.notes:
        for line in store.report.lines():
            reporter.log(f"validation: {line}")
    return StoreRows(store, store.split.first, "first")


def _log_validation(training: StoreRows, valid: StoreRows, most: int, log: Callable[[str], None]) -> None:
    _show_first(training, log)
    if len(valid) > most:
        log(f"validation uses the first {most:,} of {len(valid):,} pairs (training.valid_pairs)")
    sources = valid.store.hashes.sources[valid.rows[:most]]
    trained = training.store.hashes.sources
    both = int(among(sources, trained[among(trained, sources)]).sum())
    overlap = f" ({both:,} of their sources are also in training, so scores are too high)" if both else ""
    log(f"{len(training):,} pairs for training, {len(sources):,} for validation{overlap}")


def _show_first(pairs: StoreRows, log: Callable[[str], None]) -> None:
    """Log the first pair, which shows a wrong column at once."""
    log("the first pair: " + " → ".join(shorten(side, 60, placeholder=" …") for side in pairs[0][:2]))


def _digest(*sides: StoreRows) -> str:
    """Return a checksum of pairs and links, to compare them when a run is resumed."""
    total = sha256()
    for chosen in sides:
        hashes = chosen.store.hashes.pairs
        for begin in range(0, len(chosen), CHUNK):
            rows = chosen.rows[begin : begin + CHUNK]
            total.update(hashes[rows].tobytes())
            if chosen.store.linked:
                for numbers in chosen.store.links(rows):
                    total.update(numbers.astype(np.uint32).tobytes())
        total.update(b"\n")
    return total.hexdigest()


def learn_codecs(pairs: PairSets, config: Config, reporter: Reporter) -> tuple[Codec, Codec]:
    """Learn the vocabularies of source and target, or one for both, or read them from the cache."""
    text, store = config.text, pairs.training.store
    key = None
    if store.key is not None:
        which = text.kind, text.size, text.joint, version("tokenizers")
        key = key_of("vocabularies", VERSION, store.key, pairs.training.name, which)

    def fill(writer: Writer) -> None:
        sample = _some(pairs.training, LEARNED)
        if len(sample) < pairs.count:
            reporter.log(f"vocabularies are learned from {len(sample):,} of the pairs, evenly spread")
        for name, sides in vocabularies.items():
            writer.add(name, _learn(sample, sides, text, pairs.count, reporter).dump().encode())

    vocabularies = {"both": (0, 1)} if text.joint else {"source": (0,), "target": (1,)}
    arrays, _ = stored(key, fill, reporter.log)
    codecs = [Codec.parse(arrays[name].tobytes().decode()) for name in vocabularies]
    return codecs[0], codecs[-1]


def _learn(pairs: StoreRows, sides: Sequence[int], config: TextConfig, total: int, reporter: Reporter) -> Codec:
    if not config.size:
        counted = _some(pairs, COUNTED)
        config = resolve_size(count_texts(_texts(counted, sides, reporter), total / len(counted)), config)
    return Codec.train(_texts(pairs, sides, reporter), config)


def _texts(pairs: StoreRows, sides: Sequence[int], reporter: Reporter) -> Iterator[str]:
    for side in sides:
        for number, text in enumerate(pairs.texts(side)):
            if number % CHUNK == 0:
                reporter.preparing(number, "sentences read for a vocabulary")
            yield text


def _some(pairs: StoreRows, most: int) -> StoreRows:
    """Return at most `most` of the pairs, evenly spread."""
    if len(pairs) <= most:
        return pairs
    return replace(pairs, rows=pairs.rows[np.arange(most) * len(pairs) // most])


def prepare(pairs: PairSets, codecs: tuple[Codec, Codec], config: Config, reporter: Reporter) -> TrainingData:
    """Tokenize all pairs, or map their tokens from the cache; pairs over the length limit are logged and left out."""
    began = time.perf_counter()
    most = config.text.max_length
    tokens = tokenize(pairs.training, codecs, config.text, config.training.seed, reporter.log, reporter.preparing)
    _log_left_out(tokens.left_out, pairs.count, tokens.longest, "pairs", most, reporter.log)
    if tokens.cached:
        reporter.log(f"their tokens are read from the cache ({time.perf_counter() - began:.1f} s)")
    valid_pairs = [pairs.valid[row] for row in range(len(pairs.valid))]
    ids = [codec.ids([pair[side] for pair in valid_pairs]) for side, codec in enumerate(codecs)]
    longest = [max(len(x), len(y)) for x, y in zip(*ids, strict=True)]
    short = [row for row, length in enumerate(longest) if length <= most]
    _log_left_out(len(valid_pairs) - len(short), len(valid_pairs), max(longest), "validation pairs", most, reporter.log)
    losses = auxiliary_losses(config, pairs.training.store.linked)
    guide = losses.get("guided")
    if not isinstance(guide, GuidedAttention):
        tokens.corpus.links = None
    else:
        reporter.log(f"links between words guide attention: {guide}")
        if guide.ends and tokens.corpus.links is not None:
            _log_unlinked(*tokens.corpus.links.unlinked(), reporter.log)
    valid_pairs, rows = [valid_pairs[row] for row in short], pairs.valid.rows[short]
    links = None
    if guide is not None and pairs.valid.store.linked:
        words = [word_sizes(codec, [pair[side] for pair in valid_pairs]) for side, codec in enumerate(codecs)]
        links = CorpusLinks.of(pairs.valid.store.links(rows), *words)
    elif guide is not None:
        reporter.log("the validation pairs have no links (valid_links): agreement with links is not measured")
    valid = Corpus.of(*([side[row] for row in short] for side in ids), links=links)
    return TrainingData(
        tokens.corpus, _batches(tokens.corpus, config), valid_pairs, _batches(valid, config), pairs.digest, losses
    )


def _log_unlinked(without: int, words: int, log: Callable[[str], None]) -> None:
    """Log how many target words have no links: if links are only missing, teaching them to attend to </s> is wrong."""
    if without:
        verbs = ("has", "is") if without == 1 else ("have", "are")
        log(
            f"{without:,} of {words:,} target words in pairs with links {verbs[0]} none and {verbs[1]} taught to "
            "attend to </s>; if their links are only missing, set training.guided_unlinked=free"
        )


def _log_left_out(count: int, total: int, longest: int, what: str, most: int, log: Callable[[str], None]) -> None:
    """Log how many pairs are too long; raise DataError if all are."""
    if count == total:
        raise DataError(f"all {what} have a side of more than {most} tokens; raise text.max_length")
    if count:
        log(
            f"left out {count:,} of {total:,} {what} with a side of more than {most:,} tokens "
            f"(text.max_length; the longest has {longest:,})"
        )


def _batches(corpus: Corpus, config: Config) -> Batches:
    settings = config.training
    return Batches(
        corpus, start=START, tokens=settings.batch_tokens, sentences=settings.batch_sentences, seed=settings.seed
    )
