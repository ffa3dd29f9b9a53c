"""What Hindi words look like, from tables written by hand: nothing here asks the code that is tested."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

HERE = Path(__file__).parent
V = TypeVar("V")


class Noun(NamedTuple):
    """A gender and four forms."""

    feminine: bool
    direct: str
    oblique: str
    direct_plural: str
    oblique_plural: str

    @property
    def forms(self) -> tuple[str, str, str, str]:
        return self[1:]


class Verb(NamedTuple):
    """The forms of a verb, by what they are; `future` is by person: I; we, आप, they; तुम; he, she, it."""

    habitual: tuple[str, ...]
    perfective: tuple[str, ...]
    infinitive: tuple[str, ...]
    future: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]

    @property
    def forms(self) -> set[str]:
        future = (form for pair in self.future for form in pair)
        return {*self.habitual, *self.perfective, *self.infinitive, *future, *self.command}


class Table(dict[str, V]):
    """A table by word that says where to write down what it lacks."""

    def __init__(self, name: str, items: Iterable[tuple[str, V]]) -> None:
        super().__init__(items)
        self.name = name

    def __missing__(self, word: str) -> V:
        raise AssertionError(f"write down the forms of {word} in {HERE / self.name}")


def cells(name: str) -> list[list[tuple[str, ...]]]:
    """The words in each cell of each line of a table."""
    text = unicodedata.normalize("NFC", (HERE / name).read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [[tuple(cell.split()) for cell in line.split("|")] for line in lines]


NOUNS = Table("nouns.txt", ((one[0], Noun(g == "f", *one, *many)) for (g,), one, many in cells("nouns.txt")))
# Three forms, or one; + is the space in a form of two words.
_FORMS = [tuple(form.replace("+", " ") for form in forms) for (forms,) in cells("adjectives.txt")]
ADJECTIVES = Table("adjectives.txt", ((forms[0], forms) for forms in _FORMS))
VERBS = Table(
    "verbs.txt",
    (
        (stem, Verb(habitual, perfective, infinitive, tuple(future), command))
        for (stem,), habitual, perfective, infinitive, *future, command in cells("verbs.txt")
    ),
)
