"""Systems under evaluation: models, or translations that exist already; and their translations of a test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from heedful.data.files import called, read_lines
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError
from heedful.evaluation.test_set import TestSet
from heedful.metrics import SentenceStats, extract_stats
from heedful.translator import Translation, Translator, load
from heedful.translator.aligning import wrong_way

__all__ = ["AnySystem", "ProgressBar", "System", "SystemOutput", "no_progress", "read_translations", "run"]

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
    def of(cls, system: AnySystem, name: str = "", default: str = "system") -> System:
        """Return a system from a translator, a model's folder or hf: name, or a list of translations.

        Without a `name`, a folder is called by its path, and anything else by `default`.
        """
        if isinstance(system, System):
            return replace(system, name=name) if name else system
        if isinstance(system, Translator):
            return cls(name or default, open=lambda: system)
        if isinstance(system, str | Path):
            return cls(name or str(system), open=lambda: load(str(system)), path=Path(system))
        return cls(name or default, translations=list(system))

    def model(self) -> Translator:
        """Open the model."""
        if self.open is None:
            raise ConfigError(f"{self.name}: this system has no model, only translations")
        return self.open()


AnySystem = System | Translator | str | Path | Sequence[str]


class SystemOutput(NamedTuple):
    """A system's translations of the lines of a test set, with notes, and the statistics of those that are measured.

    For lines that are not measured, the text is "".
    """

    name: str
    texts: list[str]
    notes: list[tuple[str, ...]]
    stats: SentenceStats

    def measured(self, test_set: TestSet) -> list[str]:
        """Return the translations of the lines that are measured."""
        return [text for text, line in zip(self.texts, test_set.lines, strict=True) if line.measured]


def run(
    system: System,
    test_set: TestSet,
    decoding: Decoding,
    *,
    translator: Translator | None = None,
    copy_unknown: bool = False,
    batch_tokens: int = 4096,
    progress: ProgressBar = no_progress,
) -> SystemOutput:
    """Translate a test set, each line as one sentence, and compute the statistics of every metric.

    `translator` is the system's model, if it is open already.
    """
    lines, rows = test_set.lines, test_set.rows
    notes: list[tuple[str, ...]] = [()] * len(lines)
    if system.translations is not None:
        if len(system.translations) != len(lines):
            raise DataError(
                f"{system.name}: {len(system.translations):,} translations for the {len(lines):,} lines of "
                f"{test_set.name}; give one for each line, blank ones too"
            )
        texts = [text.strip() if line.measured else "" for text, line in zip(system.translations, lines, strict=True)]
    else:
        translator = translator or system.model()
        if why := wrong_way(translator, [row.source for row in rows], [row.references[0] for row in rows]):
            raise DataError(f"{system.name}: {why}; swap sources and references, or take another model")
        done: list[Translation] = []
        with progress(f"translating with {system.name}", len(rows)) as count:
            for first in range(0, len(rows), CHUNK):
                sources = [row.source for row in rows[first : first + CHUNK]]
                done += translator.translate(
                    sources,
                    decoding,
                    split=False,
                    copy_unknown=copy_unknown,
                    trace=False,
                    batch_tokens=batch_tokens,
                )
                count(len(sources))
        each = iter(done)
        translations = [next(each) if line.measured else None for line in lines]
        texts = [one.text if one else "" for one in translations]
        notes = [one.notes if one else () for one in translations]
    with progress(f"scoring {system.name}", len(rows)) as count:
        measured = [text for text, line in zip(texts, lines, strict=True) if line.measured]
        stats = extract_stats(measured, [row.references for row in rows], progress=count)
    return SystemOutput(system.name, texts, notes, stats)


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
