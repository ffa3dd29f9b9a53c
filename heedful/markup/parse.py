"""From a text with tags to the text alone, and what stood where.

What is not a tag is text: `1 < 2` is. Tags that were never closed end with the text, ends without a beginning are left
out, and of tags that overlap the inner one ends with the outer and begins again: what comes out is always well-formed.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from heedful.errors import DataError

__all__ = ["DEEPEST", "Element", "Marked", "Point", "parse"]

DEEPEST = 100  # tags inside each other
# A tag, or a placeholder, which is written as it is and so has nothing in it that HTML reads.
TAGS = (
    r"</(?P<end>[A-Za-z][\w:.-]*)\s*>"
    r"""|<(?P<tag>[A-Za-z][\w:.-]*)(?P<rest>(?:\s+[^\s"'<>/=]+(?:\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'=<>`]+))?)*)"""
    r"\s*(?P<alone>/?)>"
    r"|(?P<name>\{\{[^{}\s<>&]{1,100}\}\}|\$?\{[^{}\s<>&]{0,100}\})"
)
TAG = re.compile(TAGS)
# And where a comment begins, or what must not be translated, with all that is in it.
PIECES = re.compile(rf"(?P<comment><!--)|<(?P<raw>(?ai:script|style|template|textarea))\b[^<>]{{0,2000}}>|{TAGS}")
# A comment ends as browsers end it: at once, `<!-->` and `<!--->`, or at `-->` and `--!>`.
# What is written has the one end that everybody knows.
AT_ONCE, COMMENT_END = re.compile("-?>"), re.compile("--!?>")
ODD_END = re.compile(r"(?<=^<!--)-?>$|--!>$")
EMPTY = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
# Words on either side of these do not belong together, though no space is between them.
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br dd div dl dt figure footer h1 h2 h3 h4 h5 h6 header hr li main nav ol p "
        "section table tbody td th thead tr ul",
    )
)


class Element(NamedTuple):
    """A tag with its end around the characters `start:end` of the text; `parent` is the number of what it is in."""

    open: str
    close: str
    start: int
    end: int
    parent: int  # -1: none


class Point(NamedTuple):
    """What stands between two characters: a placeholder, an empty tag, a comment.

    `spaces` says on which sides of a placeholder there was white space, or the end of the text; others have none.
    """

    raw: str
    at: int
    parent: int
    spaces: tuple[bool, bool] | None = None


@dataclass(frozen=True)
class Marked:
    """A text without its tags, and these; elements in the order in which they begin, points as they come."""

    text: str
    elements: tuple[Element, ...]
    points: tuple[Point, ...]

    def chain(self, element: int) -> tuple[int, ...]:
        """Return the numbers of an element and of all that it is in, the outermost first."""
        found = []
        while element >= 0:
            found.append(element)
            element = self.elements[element].parent
        return tuple(reversed(found))


class _Open(NamedTuple):
    """A tag that waits for its end: its number, its name, and how many points there were when it began."""

    number: int
    name: str
    points: int


@dataclass
class _Reader:
    """What has been read so far."""

    parts: list[str] = field(default_factory=list)
    size: int = 0
    last: str = ""  # character of the text
    apart: bool = False  # a block stands between what is there and what comes
    elements: list[Element] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)

    @property
    def inner(self) -> int:
        return self.stack[-1].number if self.stack else -1

    def add(self, text: str) -> None:
        if self.apart and text and self.last and not (self.last.isspace() or text[0].isspace()):
            text = "\n" + text
        if text:
            self.apart = False
            self.parts.append(text)
            self.size += len(text)
            self.last = text[-1]

    def point(self, raw: str, placeholder: bool = False) -> None:
        self.points.append(Point(raw, self.size, self.inner, (True, True) if placeholder else None))

    def begin(self, raw: str, name: str) -> None:
        if len(self.stack) >= DEEPEST:
            raise DataError(f"tags stand inside each other {DEEPEST + 1} deep; {DEEPEST} are allowed")
        self.elements.append(Element(raw, f"</{name}>", self.size, -1, self.inner))
        self.stack.append(_Open(len(self.elements) - 1, name.lower(), len(self.points)))

    def close(self) -> None:
        top = self.stack.pop()
        element = self.elements[top.number] = self.elements[top.number]._replace(end=self.size)
        if element.start == element.end and top.number == len(self.elements) - 1 and top.points == len(self.points):
            # Nothing is in it: it stands between two characters, as a whole.
            self.elements.pop()
            self.point(element.open + element.close)

    def end(self, name: str) -> None:
        name = name.lower()
        if all(one.name != name for one in self.stack):
            return
        again = []
        while self.stack[-1].name != name:
            top = self.elements[self.stack[-1].number]
            again.append((top.open, top.close[2:-1]))
            self.close()
        self.close()
        for raw, other in reversed(again):
            self.begin(raw, other)


def parse(source: str) -> Marked:
    """Return the text of an HTML fragment with its tags and placeholders apart.

    >>> marked = parse("I <b>see</b> {name}.")
    >>> marked.text, marked.elements[0][:4], marked.points[0][:2]
    ('I see.', ('<b>', '</b>', 2, 5), ('{name}', 5))
    """
    reader, at = _Reader(), 0
    for piece, end in _pieces(source):
        reader.add(html.unescape(source[at : piece.start()]))
        at = end
        if end > piece.end():
            whole = source[piece.start() : end]
            reader.point(ODD_END.sub("-->", whole) if piece["comment"] else whole)
        elif piece["end"]:
            reader.end(piece["end"])
            reader.apart |= piece["end"].lower() in BLOCKS
        elif piece["tag"]:
            name = piece["tag"]
            reader.apart |= name.lower() in BLOCKS
            if piece["alone"] or name.lower() in EMPTY:
                reader.point(piece[0] if piece["alone"] else f"{piece[0][:-1].rstrip()}/>")
            else:
                reader.begin(piece[0], name)
        else:
            reader.point(piece[0], placeholder=True)
    reader.add(html.unescape(source[at:]))
    while reader.stack:
        reader.close()
    return _closed_up("".join(reader.parts), reader.elements, reader.points)


def _pieces(source: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield what is no text, and where it ends.

    A comment ends at its mark, and what must not be translated at its tag. Where there is none, there is none for those
    that begin later either, and nobody looks again: a text of beginnings is read once.
    """
    at, endless = 0, set[str]()
    while piece := PIECES.search(source, at):
        at, name = piece.end(), (piece["comment"] or piece["raw"] or "").lower()
        if not name:
            yield piece, at
            continue
        ends = COMMENT_END if piece["comment"] else re.compile(rf"(?ai:</{name}\s*>)")
        over = AT_ONCE.match(source, at) if piece["comment"] else None
        if over or (name not in endless and (over := ends.search(source, at))):
            at = over.end()
            yield piece, at
            continue
        endless.add(name)
        if tag := TAG.match(source, piece.start()):
            at = tag.end()
            yield tag, at
        elif piece["raw"]:
            at = piece.start() + 1


def _closed_up(text: str, elements: list[Element], points: list[Point]) -> Marked:
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

    return Marked(
        _without(text, removed),
        tuple(one._replace(start=moved(one.start), end=moved(one.end)) for one in elements),
        tuple(point._replace(at=moved(point.at)) for point in seen),
    )


def _without(text: str, removed: list[int]) -> str:
    places = [-1, *removed, len(text)]
    return "".join(text[i + 1 : j] for i, j in pairwise(places))
