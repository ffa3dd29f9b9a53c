"""What a text with tags is made of: runs of text between tags that stay, and what stands in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Element", "Marked", "Point", "Run"]


class Element(NamedTuple):
    """A tag with its end around the characters `start:end` of a run; `parent` is the number of what it is in."""

    open: str
    close: str
    start: int
    end: int
    parent: int  # -1: none


class Point(NamedTuple):
    """What stands between two characters: a placeholder, an empty tag, a comment.

    `spaces` says on which sides of a placeholder there was white space, or the end of the run; others have none.
    """

    raw: str
    at: int
    parent: int
    spaces: tuple[bool, bool] | None = None


@dataclass(frozen=True)
class Run:
    """Text between two tags that stay, without the tags in it, and these.

    Elements are in the order in which they begin, points as they come. `before` is what is written before it as it was;
    `start` is the character of the whole text that it begins at. `needed` says that the tags around it depend on its
    text, so that the run must not become empty.
    """

    text: str
    elements: tuple[Element, ...]
    points: tuple[Point, ...]
    before: str = ""
    start: int = 0
    needed: bool = False

    def chain(self, element: int) -> tuple[int, ...]:
        """Return the numbers of an element and of all that it is in, the outermost first."""
        numbers = []
        while element >= 0:
            numbers.append(element)
            element = self.elements[element].parent
        return tuple(reversed(numbers))


@dataclass(frozen=True)
class Marked:
    """A text without its tags, a line for each run that has words; the runs; and what is written after the last.

    `notes` say what was not read, and is kept as it was.
    """

    text: str
    runs: tuple[Run, ...]
    after: str = ""
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[int, ...]:
        """The numbers of the runs that are lines of the text: those with words; where there are none, the first."""
        return tuple(i for i, run in enumerate(self.runs) if run.text.strip()) or (0,)
