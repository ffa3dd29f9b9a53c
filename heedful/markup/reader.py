"""Tags as they come, one after the other, into runs of text and what stands in them."""

from __future__ import annotations

import html
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise

from heedful.errors import DataError
from heedful.markup.runs import Element, Marked, Point, Run

__all__ = ["DEEPEST", "Reader"]

DEEPEST = 100  # tags inside each other
# Blocks that end where one of the same kind begins, as browsers have it: few people close an <li>.
ENDS = {
    "p": ("p",),
    "li": ("li",),
    "option": ("option",),
    "dt": ("dt", "dd"),
    "dd": ("dt", "dd"),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("td", "th", "tr"),
}


@dataclass
class _Open:
    """A tag that waits for its end: its number in the run, and how many points there were when it began there.

    `written` says whether something was in it before, in this run or in another.
    """

    raw: str
    name: str
    number: int
    points: int
    written: bool = False


@dataclass
class Reader:
    """What has been read so far."""

    parts: list[str] = field(default_factory=list)  # of a run, as are elements and points
    size: int = 0
    solid: int = 0  # without the white space at the end
    apart: bool = False  # the end of a block that never began stands between what is there and what comes
    elements: list[Element] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)  # the names of those that wait for their end
    before: list[str] = field(default_factory=list)  # tags of blocks since the last run
    runs: list[Run] = field(default_factory=list)

    @property
    def inner(self) -> int:
        """The number of the tag that what comes stands in, or -1."""
        return self.stack[-1].number if self.stack else -1

    def add(self, text: str) -> None:
        """Take text."""
        if self.apart and text and self.size == self.solid > 0 and not text[0].isspace():
            text = "\n" + text
        if text:
            self.apart = False
            self.parts.append(text)
            self.solid = self.size + len(text.rstrip()) if text.strip() else self.solid
            self.size += len(text)

    def point(self, raw: str, placeholder: bool = False) -> None:
        """Take what stands between two characters."""
        self.points.append(Point(raw, self.size, self.inner, (True, True) if placeholder else None))

    def begin(self, raw: str, name: str) -> None:
        """Take a tag in a run."""
        self._check_depth()
        self._open(_Open(raw, name, 0, 0))

    def end(self, name: str) -> None:
        """Take the end of a tag; those in it that were not closed begin again. One that never began is nothing."""
        if all(one.name.lower() != name.lower() for one in self.stack):
            return
        again = []
        while self.stack[-1].name.lower() != name.lower():
            again.append(self._close())
        self._close(whole=True)
        for one in reversed(again):
            self._open(one)

    def begin_block(self, raw: str, name: str, empty: bool) -> None:
        """Take the tag of a block; it may end the one that it stands in."""
        self._cut()
        while self.blocks and self.blocks[-1].lower() in ENDS.get(name.lower(), ()):
            self.before.append(f"</{self.blocks.pop()}>")
        self.before.append(raw)
        if not empty:
            self._check_depth()
            self.blocks.append(name)

    def end_block(self, raw: str, name: str) -> None:
        """End a block, and those in it that were never closed; one that never began is as good as a line break."""
        if all(one.lower() != name.lower() for one in self.blocks):
            self.apart = True
            return
        self._cut()
        while (inner := self.blocks.pop()).lower() != name.lower():
            self.before.append(f"</{inner}>")
        self.before.append(raw)

    def done(self) -> Marked:
        """Close what is open, and return all."""
        while self.stack:
            self._close(whole=True)
        self._cut()
        after = "".join([*self.before, *(f"</{name}>" for name in reversed(self.blocks))])
        if not self.runs:
            self.runs, after = [Run("", (), (), after)], ""
        at, placed = 0, []
        for run in self.runs:
            placed.append(replace(run, start=at))
            at += len(run.text) + 1 if run.text.strip() else 0
        marked = Marked("", tuple(placed), after)
        return replace(marked, text="\n".join(placed[i].text for i in marked.lines))

    def _check_depth(self) -> None:
        if len(self.stack) + len(self.blocks) >= DEEPEST:
            raise DataError(f"tags stand inside each other {DEEPEST + 1} deep; {DEEPEST} are allowed")

    def _open(self, one: _Open) -> None:
        self.elements.append(Element(one.raw, f"</{one.name}>", self.size, -1, self.inner))
        one.number, one.points = len(self.elements) - 1, len(self.points)
        self.stack.append(one)

    def _close(self, whole: bool = False) -> _Open:
        """End the innermost tag; `whole`: it does not begin again."""
        top = self.stack.pop()
        element = self.elements[top.number] = self.elements[top.number]._replace(end=self.size)
        bare = top.number == len(self.elements) - 1 and top.points == len(self.points)
        if bare and element.start >= self.solid and (top.written or not whole):
            self.elements.pop()  # what is in it comes, or has been
        elif bare and element.start == element.end:
            # Nothing is in it: it stands between two characters, as a whole.
            self.elements.pop()
            self.point(element.open + element.close)
        else:
            top.written = True
        return top

    def _cut(self) -> None:
        """End a run at a tag of a block; tags that wait for their end begin again behind it."""
        again = [self._close() for _ in range(len(self.stack))]
        text = "".join(self.parts)
        alone = bool(text) and not self.runs and not any(self.before)
        if self.points or self.elements or text.strip() or alone:
            self.runs.append(_closed_up(text, self.elements, self.points, "".join(self.before)))
            self.before = []
        elif text:
            self.before.append(html.escape(text, quote=False))
        self.parts, self.elements, self.points, self.size, self.solid, self.apart = [], [], [], 0, 0, False
        for one in reversed(again):
            self._open(one)


def _closed_up(text: str, elements: list[Element], points: list[Point], before_it: str) -> Run:
    """Take out the spaces that placeholders leave behind: `see {name}.` is read as `see.`"""
    removed: list[int] = []
    seen: list[Point] = []
    for number, point in enumerate(points):
        if point.spaces is None:
            seen.append(point)
            continue
        beside = [
            0 <= i < len(points) and points[i].spaces is not None and points[i].at == point.at
            for i in (number - 1, number + 1)
        ]
        before, after = text[point.at - 1 : point.at] if point.at else "", text[point.at : point.at + 1]
        spaces = not (before and not before.isspace()), not (after and not after.isspace())
        seen.append(point._replace(spaces=(spaces[0] and not beside[0], spaces[1] and not beside[1])))
        if before == " " and not after.isalnum():
            removed += [point.at - 1] if removed[-1:] != [point.at - 1] else []
        elif not before and after == " ":
            removed += [point.at] if removed[-1:] != [point.at] else []

    def moved(at: int) -> int:
        return at - bisect_left(removed, at)

    return Run(
        _without(text, removed),
        tuple(one._replace(start=moved(one.start), end=moved(one.end)) for one in elements),
        tuple(point._replace(at=moved(point.at)) for point in seen),
        before_it,
    )


def _without(text: str, removed: list[int]) -> str:
    places = [-1, *removed, len(text)]
    return "".join(text[i + 1 : j] for i, j in pairwise(places))
