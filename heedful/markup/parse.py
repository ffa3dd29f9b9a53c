"""Parse HTML into runs of text, with their tags and placeholders apart.

There are two kinds of tags. Inline tags, `<b>`, `<a>`, `<span>` and those that HTML does not define, move with their
words: they are removed from a run of text and put around the words of its translation. All others, `<p>`, `<li>`,
`<br>`, `<table>`, `<script>` …, stay: they are copied unchanged, in the same order, and the text between two of them is
a run. So a browser parses the tags that stay as it did in the source, and inline tags that are opened and closed
within a run do not change that, wherever they are placed in it.

Inline tags stay, too, if they are not opened and closed in the same paragraph. Character references are decoded, `<`
without a tag is text, and source that is ambiguous is copied unchanged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from heedful.markup.tokenizer import FORMATTING, SPACE, VOID, Kind, MarkupToken, tokenize, unescape


class Element(NamedTuple):
    """An inline element around the characters `start:end` of a run; `parent` is the index of the element around it."""

    open: str
    close: str
    start: int
    end: int
    parent: int  # -1: none


class Point(NamedTuple):
    """A placeholder, an empty tag or a comment between two characters.

    `spaces` are flags: whether there is white space, or the end of the run, before and after a placeholder; None for
    other points.
    """

    raw: str
    at: int
    parent: int
    spaces: tuple[bool, bool] | None = None


@dataclass(frozen=True)
class MarkupRun:
    """The text between two tags that stay, and its inline tags and points.

    Elements are in the order of their starts, points in that of the source. `before` is copied unchanged before the
    run; `start` is its first character in the whole text. `needed`: the tags around the run depend on its text, so
    that its translation must not be empty.
    """

    text: str
    elements: tuple[Element, ...]
    points: tuple[Point, ...]
    before: str = ""
    start: int = 0
    needed: bool = False

    def chain(self, element: int) -> tuple[int, ...]:
        """Return the indices of an element and of all around it, the outermost first."""
        numbers = []
        while element >= 0:
            numbers.append(element)
            element = self.elements[element].parent
        return tuple(reversed(numbers))


@dataclass(frozen=True)
class Marked:
    """The text without tags, a line for each run that has words; the runs; and what follows the last one.

    `notes` describe source that was not parsed, and is copied unchanged.
    """

    text: str
    runs: tuple[MarkupRun, ...]
    after: str = ""
    notes: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[int, ...]:
        """The indices of the runs that are lines of the text: those with words, or the first if none has any."""
        return tuple(i for i, run in enumerate(self.runs) if run.text.strip()) or (0,)


DEEPEST = 32  # inline tags inside each other that go with their words
REOPENED = 1000  # inline tags that are closed and opened again in a paragraph, by <br> or by misnested ends
# A placeholder, which is written as it is and so has nothing in it that HTML reads.
PLACEHOLDER = re.compile(r"\{\{[^{}\s<>&]{1,100}\}\}|\$?\{[^{}\s<>&]{0,100}\}")
# Elements without content that a browser inserts as it inserts text; they go with their words.
EMPTY_INLINE = frozenset(("area", "embed", "image", "img", "input", "keygen", "wbr"))
# What stays, besides: all that has rules of its own in a browser's parser, or parts sentences.
STAYS = VOID.union(
    re.findall(
        r"\S+",
        "address applet article aside audio blockquote body button canvas caption center colgroup datalist dd details "
        "dialog dir div dl dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup "
        "html iframe legend li listing main map marquee menu menuitem nav noembed noframes noscript object ol optgroup "
        "option p picture plaintext pre rb rp rt rtc ruby script search section select selectedcontent style summary "
        "table tbody td template textarea tfoot th thead title tr ul video xmp",
    )
).difference(EMPTY_INLINE)
# Elements that are allowed before the body of a document.
OF_HEAD = frozenset(
    re.findall(r"\S+", "base basefont bgsound head html link meta noframes noscript script style template title")
)


def parse(source: str) -> Marked:
    """Return the text of an HTML fragment or document with its tags and placeholders apart.

    >>> marked = parse("<p>I <b>see</b> {name}.</p>")
    >>> (run,) = marked.runs
    >>> marked.text, run.before, run.elements[0][:4], run.points[0][:2], marked.after
    ('I see.', '<p>', ('<b>', '</b>', 2, 5), ('{name}', 5), '</p>')
    """
    tokens = tokenize(source)
    frames = next((token for token in tokens if token.kind is Kind.START and token.name == "frameset"), None)
    if frames:
        note = _note(source, frames.start, "<frameset>", "the whole text is kept as it is, and not translated")
        return Marked("", (MarkupRun("", (), (), source),), "", (note,))
    return _RunReader(source, tokens).read()


def _note(source: str, at: int, why: str, what: str) -> str:
    line, column = source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)
    return f"markup, line {line}, column {column}: {why}: {what}"


@dataclass
class _Open:
    """An open inline tag: its index in the run, and the number of points when it began there.

    `written`: it had content before, in this run or in another.
    """

    raw: str
    name: str
    number: int = 0
    points: int = 0
    written: bool = False


@dataclass
class _Runs:
    """The runs so far, and the one that is being parsed."""

    parts: list[str] = field(default_factory=list)  # of a run, as are elements and points
    raws: list[str] = field(default_factory=list)  # the parts as they were written
    size: int = 0
    solid: int = 0  # without the white space at the end
    elements: list[Element] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # what stays, since the last run
    runs: list[MarkupRun] = field(default_factory=list)
    at: int = 0  # where the next run begins in the whole text
    needed: bool = False  # the run must not become empty, if it has text
    first_needed: bool = False  # or if it is the first that has any
    has_text: bool = False  # some run has, outside of a <title>

    @property
    def nothing(self) -> bool:
        """Whether nothing but white space and comments was parsed."""
        return not (self.runs or self.before or self.elements or self.stack or self.solid)

    @property
    def inner(self) -> int:
        """The index of the innermost open tag, or -1."""
        return self.stack[-1].number if self.stack else -1

    def add(self, text: str, raw: str) -> None:
        """Add text."""
        self.raws.append(raw)
        self.parts.append(text)
        self.solid = self.size + len(text.rstrip()) if text.strip() else self.solid
        self.size += len(text)

    def point(self, raw: str, placeholder: bool = False) -> None:
        """Add a point."""
        self.points.append(Point(raw, self.size, self.inner, (True, True) if placeholder else None))

    def begin(self, raw: str, name: str) -> None:
        """Open an inline tag."""
        self._open(_Open(raw, name))

    def end(self, name: str) -> None:
        """Close an open inline tag; formatting tags in it that were not closed are opened again."""
        again = []
        while self.stack[-1].name != name:
            formatting = self.stack[-1].name in FORMATTING
            top = self._close(whole=not formatting)
            again += [top] if formatting else []
        self._close(whole=True)
        for one in reversed(again):
            self._open(one)

    def close(self) -> None:
        """Close all open tags."""
        while self.stack:
            self._close(whole=True)

    def cut(self, title: bool = False) -> None:
        """End the run; open inline tags are opened again in the next. `title`: it is the text of a <title>."""
        again = [self._close() for _ in range(len(self.stack))]
        text = "".join(self.parts)
        if self.points or self.elements or text.strip():
            solid = not title and bool(text.strip(SPACE))
            needed = solid and (self.needed or (self.first_needed and not self.has_text))
            self.has_text |= solid
            text, elements, points = _closed_up(text, self.elements, self.points)
            self.runs.append(MarkupRun(text, elements, points, "".join(self.before), self.at, needed))
            self.at += len(text) + 1 if text.strip() else 0
            self.before = []
        else:
            self.before += self.raws
        self.parts, self.raws, self.elements, self.points, self.size, self.solid = [], [], [], [], 0, 0
        for one in reversed(again):
            self._open(one)

    def _open(self, one: _Open) -> None:
        close = f"</{re.split(f'[{SPACE}/>]', one.raw[1:], maxsplit=1)[0]}>"
        self.elements.append(Element(one.raw, close, self.size, -1, self.inner))
        one.number, one.points = len(self.elements) - 1, len(self.points)
        self.stack.append(one)

    def _close(self, whole: bool = False) -> _Open:
        """Close the innermost tag; `whole`: it is not opened again."""
        top = self.stack.pop()
        element = self.elements[top.number] = self.elements[top.number]._replace(end=self.size)
        bare = top.number == len(self.elements) - 1 and top.points == len(self.points)
        if bare and element.start >= self.solid and (top.written or not whole):
            self.elements.pop()  # it has content elsewhere
        elif bare and element.start == element.end:
            # Without content it is a point.
            self.elements.pop()
            self.point(element.open + element.close)
        else:
            top.written = True
        return top


class _RunReader:
    """Parses tokens into runs."""

    def __init__(self, source: str, tokens: Sequence[MarkupToken]) -> None:
        self.source = source
        self.tokens = tokens
        self.runs = _Runs()
        tags = [tag for token in tokens for tag in (token, *token.inner)]
        self.ended = {tag.name for tag in tags if tag.kind is Kind.END}
        self.has_rest = bool(tokens) and tokens[-1].kind is Kind.REST
        self.opened: set[str] = set()  # the names of inline tags that stayed
        self.unclosed: Counter[str] = Counter()  # how many of them are open
        self.in_body = False  # a tag has begun the body of a document
        heads = [token.start for token in tokens if _is_of_head(token)]
        self.last_of_head = heads[-1] if heads else -1
        rest = source[tokens[-1].start :] if self.has_rest else ""
        self.frames = re.search("<frameset", rest, re.IGNORECASE) is not None
        self.at = 0  # text before this place has been read
        self.title = False
        self.last = ""  # the tag that stayed last
        self.notes: list[str] = []

    def read(self) -> Marked:
        group: list[MarkupToken] = []
        for token in self.tokens:
            if not self._stays(token):
                group.append(token)
                continue
            self._read_group(group, last=False)
            self._stay(token)
            group = []
        self._read_group(group, last=True)
        runs = self.runs
        runs.close()
        text, after = "".join(runs.parts), ""
        if not (runs.runs or runs.before or runs.points or runs.elements):
            runs.runs = [MarkupRun(text, (), ())]
        else:
            self._cut_before(None)
            after = "".join(runs.before)
            if not runs.runs:
                runs.runs, after = [MarkupRun("", (), (), after)], ""
        marked = Marked("", tuple(runs.runs), after, tuple(self.notes))
        return replace(marked, text="\n".join(marked.runs[i].text for i in marked.lines))

    def _stays(self, token: MarkupToken) -> bool:
        if token.kind in (Kind.START, Kind.END):
            soft = token.kind is Kind.START and token.name == "br"
            return token.fixed or (token.name in STAYS and not soft)
        if token.kind is Kind.WHOLE:
            return token.name not in ("svg", "math")
        return token.kind not in (Kind.TEXT, Kind.COMMENT)

    def _stay(self, token: MarkupToken) -> None:
        """Copy a token unchanged."""
        end = token.end
        if token.kind is Kind.START and token.name in ("pre", "listing"):  # a line break after it is none
            end = next((end + len(mark) for mark in ("\r\n", "\n", "\r") if self.source.startswith(mark, end)), end)
            self.at = end
        if token.kind is Kind.REST:
            what = "the text from there on is kept as it is, and not translated"
            self.notes.append(_note(self.source, token.start, token.name, what))
        self._cut_before(token)
        self.runs.before.append(self.source[token.start : end])
        self.title = token.kind is Kind.START and token.name == "title"
        for tag in (token, *(token.inner if token.kind is Kind.WHOLE else ())):
            if tag.kind is Kind.START and tag.name not in STAYS:
                self.opened.add(tag.name)
                self.unclosed[tag.name] += 1
            elif tag.kind is Kind.END and self.unclosed[tag.name]:
                self.unclosed[tag.name] -= 1

    def _cut_before(self, token: MarkupToken | None) -> None:
        """End the run at what stays, or at the end.

        Some text has an effect on the tags that stay, and so must not become empty. The first text of a document begins
        its body, if no tag has: what belongs to a head and follows is in the body, and so is the <p> that a </p> makes.
        In a body without any text, a <frameset> takes its place. Text opens formatting tags again that were not closed,
        and ends a <colgroup>.
        """
        self.runs.needed = not self.opened.isdisjoint(FORMATTING) or self.last in ("col", "colgroup")
        ahead = token is not None and self.last_of_head >= token.start
        self.runs.first_needed = self.frames or (ahead and not self.in_body)
        self.runs.cut(self.title)
        if token is not None:
            self.last = token.name if token.kind is Kind.START else ""
            self.in_body |= token.kind in (Kind.START, Kind.WHOLE) and token.name not in OF_HEAD

    def _read_group(self, group: Sequence[MarkupToken], last: bool) -> None:
        """Parse the tokens between two tags that stay; inline tags stay if they are not well-formed."""
        moves = self._well_formed(group, last)
        for token in group:
            raw = self.source[token.start : token.end]
            if token.kind is Kind.TEXT:
                self._read_text(token)
            elif token.kind is Kind.COMMENT:
                self.runs.point(_closed(raw))
            elif token.kind is Kind.WHOLE or (token.kind is Kind.START and token.name in EMPTY_INLINE):
                self.runs.point(raw)
            elif token.name == "br":
                self._cut_before(token)
                self.runs.before.append(raw)
            elif not moves:
                self._stay(token)
            elif token.kind is Kind.START and self._is_empty(token):
                self.runs.point(raw)
            elif token.kind is Kind.START:
                self.runs.begin(raw, token.name)
            elif any(one.name == token.name for one in self.runs.stack):
                self.runs.end(token.name)
            elif self.runs.nothing:
                self._stay(token)  # a doctype after it has no effect

    def _well_formed(self, group: Sequence[MarkupToken], last: bool) -> bool:
        """Whether the inline tags of a group may go with their words, as a browser would see them opened and closed.

        Misnested ends, `<b>a <i>b</b> c</i>`, are read as browsers do; ends that close nothing are left out.
        """
        stack: list[str] = []
        reopened = 0
        for token in group:
            name = token.name
            if token.kind is Kind.START and name == "br":
                reopened += len(stack)
            elif token.kind is Kind.START and name not in EMPTY_INLINE and not self._is_empty(token):
                # A link in a link ends the outer one.
                if len(stack) == DEEPEST or (name in ("a", "nobr") and (name in stack or self.unclosed[name])):
                    return False
                stack.append(name)
            elif token.kind is Kind.END and name in stack:
                at = len(stack) - 1 - stack[::-1].index(name)
                again = [one for one in stack[at + 1 :] if one in FORMATTING]
                reopened += len(again)
                stack[at:] = again
            elif token.kind is Kind.END and name in self.opened:
                return False
            if reopened > REOPENED:
                return False
        return last or not stack

    def _is_empty(self, token: MarkupToken) -> bool:
        """Whether a tag is meant to be empty, `<x id="1"/>`: to browsers it is open, but nothing ever closes it."""
        closed = token.name in self.ended or self.has_rest
        return token.slash and token.name not in FORMATTING and not closed

    def _read_text(self, token: MarkupToken) -> None:
        at, source = max(token.start, self.at), self.source
        for mark in PLACEHOLDER.finditer(source, at, token.end):
            self._add(at, mark.start())
            self.runs.point(mark[0], placeholder=True)
            at = mark.end()
        self._add(at, token.end)
        for tag in token.inner:
            self.notes.append(_note(source, tag.start, "a tag that is not closed", "it is read as text"))

    def _add(self, start: int, end: int) -> None:
        if raw := self.source[start:end]:
            self.runs.add(unescape(raw), raw)


def _closed(comment: str) -> str:
    """Return a comment with the end that everybody knows."""
    if not comment.startswith("<!--"):
        return comment
    return "<!---->" if comment in ("<!-->", "<!--->") else re.sub("--!>$", "-->", comment)


def _is_of_head(token: MarkupToken) -> bool:
    """Whether a token means something else before the body of a document than in it.

    `</p>` does: where no <p> is open it makes an empty one in the body, and is left out before it. `</br>` makes a <br>
    in either place, and no other end tag makes an element.
    """
    tag = token.kind in (Kind.START, Kind.WHOLE) and token.name in OF_HEAD
    end = token.kind is Kind.END and token.name == "p"
    return tag or end or token.kind in (Kind.DOCTYPE, Kind.REST)


def _closed_up(
    text: str, elements: list[Element], points: list[Point]
) -> tuple[str, tuple[Element, ...], tuple[Point, ...]]:
    """Take out the spaces that placeholders leave behind: `see {name}.` is read as `see.`"""
    if all(point.spaces is None for point in points):
        return text, tuple(elements), tuple(points)
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

    return (
        _without(text, removed),
        tuple(one._replace(start=moved(one.start), end=moved(one.end)) for one in elements),
        tuple(point._replace(at=moved(point.at)) for point in seen),
    )


def _without(text: str, removed: list[int]) -> str:
    places = [-1, *removed, len(text)]
    return "".join(text[i + 1 : j] for i, j in pairwise(places))
