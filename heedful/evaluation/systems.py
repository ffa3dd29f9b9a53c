"""Systems under evaluation: models, or translations that exist already; and their translations of a test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from heedful.data.files import called, read_lines
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError
from heedful.evaluation.test_set import TestSet
from heedful.metrics import SentenceStats, extract_stats
from heedful.translator import Translator, load
from heedful.translator.aligning import wrong_way

__all__ = ["AnySystem", "Evaluated", "ProgressBar", "System", "Translations", "no_progress", "read_translations", "run"]

CHUNK = 1000  # sentences translated between two calls of `progress`; enough to sort them by length

# Called with a description and a total; gives a function that takes how many more are done.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


@contextmanager
def no_progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda more: None


@dataclass(frozen=True)
class System:
    """A system with a name: `open` gives its model, or `translations` are its output, a text for each line."""

    name: str
    open: Callable[[], Translator] | None = None
    translations: Sequence[str] | None = None
    path: Path | None = None

    @classmethod
    def of(cls, system: AnySystem, name: str = "system") -> System:
        """Return a system from a translator, a model's folder or hf: name, or a list of translations."""
        if isinstance(system, System):
            return system
        if isinstance(system, Translator):
            return cls(name, open=lambda: system)
        if isinstance(system, str | Path):
            return cls(str(system), open=lambda: load(str(system)), path=Path(system))
        return cls(name, translations=list(system))


AnySystem = System | Translator | str | Path | Sequence[str]


class Translations(NamedTuple):
    """A system's translations of the lines of a test set, with notes; "" for lines that are not measured."""

    name: str
    texts: list[str]
    notes: list[tuple[str, ...]]

    def measured(self, test_set: TestSet) -> list[str]:
        """Return the translations of the lines that are measured."""
        return [text for text, line in zip(self.texts, test_set.lines, strict=True) if line.measured]


class Evaluated(NamedTuple):
    """A system after its run: its model, if it has one, its translations, and their statistics."""

    system: System
    translator: Translator | None
    translations: Translations
    stats: SentenceStats


def run(
    system: System,
    test_set: TestSet,
    decoding: Decoding,
    *,
    copy_unknown: bool = False,
    batch_tokens: int = 4096,
    progress: ProgressBar = no_progress,
) -> Evaluated:
    """Translate a test set, each line as one sentence, and compute the statistics of every metric."""
    translator = None
    if system.translations is not None:
        if len(system.translations) != len(test_set.lines):
            raise DataError(
                f"{system.name}: {len(system.translations):,} translations for the {len(test_set.lines):,} lines of "
                f"{test_set.name}; give one for each line, blank ones too"
            )
        texts = [
            t.strip() if line.measured else "" for t, line in zip(system.translations, test_set.lines, strict=True)
        ]
        translations = Translations(system.name, texts, [()] * len(texts))
    else:
        if system.open is None:
            raise ConfigError(f"{system.name}: a system is a model, or a list of translations")
        translator = system.open()
        translations = _translate(system.name, translator, test_set, decoding, copy_unknown, batch_tokens, progress)
    with progress(f"scoring {system.name}", len(test_set.rows)) as count:
        references = [line.references for line in test_set.rows]
        stats = extract_stats(translations.measured(test_set), references, progress=count)
    return Evaluated(system, translator, translations, stats)


def _translate(
    name: str,
    translator: Translator,
    test_set: TestSet,
    decoding: Decoding,
    copy_unknown: bool,
    batch_tokens: int,
    progress: ProgressBar,
) -> Translations:
    rows = test_set.rows
    sources = [line.source for line in rows]
    if why := wrong_way(translator, sources, [line.references[0] for line in rows]):
        raise DataError(f"{name}: {why}; swap sources and references, or take another model")
    done = []
    with progress(f"translating with {name}", len(sources)) as count:
        for first in range(0, len(sources), CHUNK):
            done += translator.translate(
                sources[first : first + CHUNK],
                decoding,
                split=False,
                copy_unknown=copy_unknown,
                trace=False,
                batch_tokens=batch_tokens,
            )
            count(len(done) - first)
    each = iter(done)
    lines = [next(each) if line.measured else None for line in test_set.lines]
    return Translations(name, [one.text if one else "" for one in lines], [one.notes if one else () for one in lines])


def read_translations(path: Path, test_set: TestSet) -> list[str]:
    """Read a file of translations, one line for each line of a test set."""
    reading = read_lines(path)
    lines = list(islice(reading, len(test_set.lines)))
    if (count := len(lines) + sum(1 for _ in reading)) != len(test_set.lines):  # the rest is counted, and not kept
        raise DataError(
            f"{called(path)} has {count:,} lines but {test_set.name} has {len(test_set.lines):,}; "
            "translations need a line for each line of the test set, blank ones too"
        )
    return lines
