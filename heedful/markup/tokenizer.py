"""Tags, comments and text of an HTML source, with their places, as the HTML standard cuts them (13.2.5).

The standard's tokenizer is followed in what decides where a token begins and ends: quoted and unquoted attribute
values, comments, bogus comments (`<?php … ?>`, `<![CDATA[ … ]]>`), and the elements whose content is no markup
(`<script>`, `<style>`, `<title>`, …). Attribute values are not parsed: a tag is copied unchanged.

Three things depend on where a browser would put an element, and so on more than the tokens: `<svg>` and `<math>`,
whose content has rules of its own; `<noscript>`, which is text where scripts may run and markup where not; and elements
in a `<select>`, which new browsers keep and old ones drop. Where all readings agree on the tokens, they are read.
Where they may not, the rest of the source is one token, `REST`, that is to be kept as it is.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from html.entities import html5
from typing import NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\S+", text))


SPACE = "\t\n\f\r "  # white space as HTML has it: a no-break space is none
# Formatting elements: a misnested end tag closes them, and the text that follows opens them again.
FORMATTING = _names("a b big code em font i nobr s small strike strong tt u")
# Elements without content and without an end tag.
VOID = _names(
    "area base basefont bgsound br col embed frame hr image img input keygen link meta param source track wbr"
)
# Elements whose content is text up to their end tag.
RAW = _names("script style textarea title xmp iframe noembed noframes")
# Tags that end an <svg> or <math> around them.
BREAKOUT = _names(
    "b big blockquote body br center code dd div dl dt em embed font h1 h2 h3 h4 h5 h6 head hr i img li listing menu "
    "meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
)
# Elements of <svg> and <math> that may hold HTML, and the HTML that is read in them: what nothing else closes.
HOLDS_HTML = {
    "svg": frozenset(("foreignobject", "desc", "title")),
    "math": frozenset(("mi", "mo", "mn", "ms", "mtext")),
}
# What is not read in a <noscript>.
RISKY = _names("noscript svg math template select plaintext frameset")
PLAIN_BLOCKS = _names("article div footer header main nav p section")
PLAIN = PLAIN_BLOCKS | _names("b bdi code em i kbd label mark q s small span strong sub sup time u var")

NAME = re.compile(r"[^\t\n\f\r />]*")
BETWEEN = re.compile(r"[\t\n\f\r /]*")  # attributes
ATTRIBUTE = re.compile(r"=?[^\t\n\f\r />=]*")
EQUALS = re.compile(r"[\t\n\f\r ]*=[\t\n\f\r ]*")
UNQUOTED = re.compile(r"[^\t\n\f\r >]*")
EMPTY_COMMENT, COMMENT_END = re.compile("-?>"), re.compile("--!?>")
RAW_ENDS = {name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.ASCII | re.IGNORECASE) for name in (*RAW, "noscript")}
SCRIPT_MARKS = re.compile(r"-->|<!--|<(/?)script(?=[\t\n\f\r />])", re.ASCII | re.IGNORECASE)
REFERENCE = re.compile(r"&(?:#([0-9]+);?|#[xX]([0-9a-fA-F]+);?|([A-Za-z][A-Za-z0-9]{0,31};?))")
DEEPEST = 200  # elements inside each other in an <svg> or <math>
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
LOWER = {ord(letter): letter.lower() for letter in LETTERS}  # ASCII only: the Kelvin sign is not a k


class Kind(Enum):
    """What a token is."""

    TEXT = auto()
    START = auto()
    END = auto()
    COMMENT = auto()  # and bogus comments
    DOCTYPE = auto()
    WHOLE = auto()  # an element with its content, which is not translated
    KEPT = auto()  # text that is not translated: in <?php … ?>
    REST = auto()  # the rest of the source, which is not translated


class MarkupToken(NamedTuple):
    """A token, `source[start:end]`.

    `name` is that of the tag, in lower case, and for REST the reason. `slash`: a tag ends in `/>`;
    `fixed`: it may be in a `<select>`. `inner` has the tags in a `<noscript>`, the parts of a `<title>`, and the
    tag in a text that never ends.
    """

    kind: Kind
    start: int
    end: int
    name: str = ""
    slash: bool = False
    fixed: bool = False
    inner: tuple[MarkupToken, ...] = ()


def tokenize(source: str) -> list[MarkupToken]:
    """Return the tokens of a source, which cover it without a gap."""
    scanner = _Scanner(source)
    tokens: list[MarkupToken] = []
    at = begin = kept = 0  # where to go on, where the text begins, and up to where it is kept
    cut: MarkupToken | None = None  # a tag that never ends

    def add_text(end: int) -> None:
        middle = min(max(begin, kept), end)
        tokens.extend(
            MarkupToken(kind, first, last)
            for kind, first, last in ((Kind.KEPT, begin, middle), (Kind.TEXT, middle, end))
            if first < last
        )

    while (at := source.find("<", at)) >= 0:
        token = scanner.element(at)
        if token is None:
            at += 1
            continue
        if token.kind is Kind.TEXT:  # with all its content
            cut = token
            break
        add_text(token.start)
        if token.kind is Kind.COMMENT and (stop := scanner.code_end(token)) > token.end:
            if source.find("<", token.end, stop) < 0:
                token = token._replace(end=stop)
            else:
                kept = stop
        tokens += token.inner if token.name == "title" and token.inner else (token,)
        at = begin = token.end
    add_text(len(source))
    if cut:
        tokens[-1] = tokens[-1]._replace(inner=(cut,))
    return tokens


def unescape(text: str) -> str:
    """Return text with its character references replaced, and without NULs, as browsers read it."""
    return REFERENCE.sub(_character, text.replace("\0", "")) if "&" in text or "\0" in text else text


def _character(reference: re.Match[str]) -> str:
    decimal, hexadecimal, name = reference.groups()
    if name:
        ends = (end for end in range(len(name), 1, -1) if name[:end] in html5)
        end = next(ends, 0)
        return html5[name[:end]] + name[end:] if end else reference[0]
    digits = (decimal or hexadecimal).lstrip("0")
    code = int(digits or "0", 10 if decimal else 16) if len(digits) < 9 else 0
    if not 0 < code < 0x110000 or 0xD800 <= code < 0xE000:
        return "\ufffd"
    if 0x80 <= code < 0xA0:
        return bytes([code]).decode("cp1252", errors="ignore") or chr(code)
    return chr(code)


class _Scanner:
    """Scans tokens at places of a source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.size = len(source)
        self.select = False  # we may be in a <select>
        self.code_stop = 0  # after the last ?> that was searched; the size if there is none

    def element(self, at: int) -> MarkupToken | None:
        """Return the token at a `<`, a tag with its content where that is no markup; None where the `<` is text."""
        token = self.tag(at)
        if token is None or token.kind not in (Kind.START, Kind.END):
            return token
        name = token.name
        if token.kind is Kind.END:
            self.select = self.select and name != "select"
        elif name in RAW:
            if self.select and name not in ("script", "textarea"):
                return self._rest(at, f"<{name}> in <select>")
            end = self.raw_end(name, token.end)
            title = (token, MarkupToken(Kind.TEXT, token.end, end.start), end) if end and name == "title" else ()
            return self._whole(token, end.end if end else 0)._replace(inner=title)
        elif name == "plaintext":
            return self._rest(at, "<plaintext>")
        elif name == "noscript":
            return self._noscript(token)
        elif name in ("svg", "math"):
            if self.select:
                return self._rest(at, f"<{name}> in <select>")
            return self._whole(token, token.end if token.slash else self.foreign_end(token))
        elif name == "template":
            return self._template(token)
        elif name == "select":
            self.select = True
            return token._replace(fixed=True)
        return token._replace(fixed=self.select)

    def code_end(self, token: MarkupToken) -> int:
        """Return where `<?php … ?>` or `<?= … ?>` ends for PHP; 0 where a comment is none of these."""
        if self.source[token.start : token.start + 5].lower() != "<?php" and not self.source.startswith(
            "<?=", token.start
        ):
            return 0
        if token.start > self.code_stop - 2:  # otherwise the last answer holds for this one, too
            end = self.source.find("?>", token.start)
            self.code_stop = end + 2 if end >= 0 else self.size + 3
        return self.code_stop if self.code_stop <= self.size else 0

    def tag(self, at: int) -> MarkupToken | None:
        """Return the tag, comment or doctype at a `<`; None if it is text; TEXT to the end if it never ends."""
        source = self.source
        following = source[at + 1 : at + 2]
        if following in LETTERS:
            return self._tag(Kind.START, at, at + 1)
        if following == "/":
            after = source[at + 2 : at + 3]
            if after in LETTERS:
                return self._tag(Kind.END, at, at + 2)
            return self._to_angle(Kind.COMMENT, at, at + 2) if after else None
        if following == "!":
            if source.startswith("--", at + 2):
                over = EMPTY_COMMENT.match(source, at + 4) or COMMENT_END.search(source, at + 4)
                return (
                    MarkupToken(Kind.COMMENT, at, over.end())
                    if over
                    else self._rest(at, "a comment that is not closed")
                )
            doctype = source[at + 2 : at + 9].translate(LOWER) == "doctype"
            return self._to_angle(Kind.DOCTYPE if doctype else Kind.COMMENT, at, at + 2)
        return self._to_angle(Kind.COMMENT, at, at + 1) if following == "?" else None

    def raw_end(self, name: str, at: int) -> MarkupToken | None:
        """Return the end tag of an element whose content, text, begins at `at`; None where it has none."""
        if name == "script":
            begin = self._script_end(at)
        else:
            match = RAW_ENDS[name].search(self.source, at)
            begin = match.start() if match else -1
        tag = self.tag(begin) if begin >= 0 else None
        return tag if tag and tag.kind is Kind.END else None

    def foreign_end(self, token: MarkupToken) -> int:
        """Return where an `<svg>` or `<math>` ends; 0 where it is not well-formed, and its end may be elsewhere."""
        source, at = self.source, token.end
        stack: list[tuple[str, str]] = [(token.name, token.name)]  # names, and their namespace: svg, math or html
        while stack:
            if len(stack) > DEEPEST:
                return 0
            at = source.find("<", at)
            if at < 0:
                return 0
            name, space = stack[-1]
            if space != "html" and source.startswith("<![CDATA[", at):
                at = source.find("]]>", at) + 3
                if at < 3:
                    return 0
                continue
            tag = self.tag(at)
            if tag is None:
                at += 1
                continue
            if tag.kind in (Kind.TEXT, Kind.REST):
                return 0
            at = tag.end
            if tag.kind is Kind.END:
                if stack.pop()[0] != tag.name:
                    return 0
            elif tag.kind is Kind.START:
                html = space == "html" or name in HOLDS_HTML[space]
                at = self._html_in_foreign(tag, stack) if html else _foreign_in_foreign(tag, stack)
                if not at:
                    return 0
        return at

    def _html_in_foreign(self, tag: MarkupToken, stack: list[tuple[str, str]]) -> int:
        """Return where to read on after an HTML tag in a `<foreignObject>`, or the like; 0 if it is not a plain one."""
        if tag.name in ("svg", "math"):
            if not tag.slash:
                stack.append((tag.name, tag.name))
        elif tag.name in ("script", "style", "textarea"):
            end = self.raw_end(tag.name, tag.end)
            return end.end if end else 0
        elif tag.name in PLAIN:
            if tag.name in PLAIN_BLOCKS and ("p", "html") in stack:
                return 0
            stack.append((tag.name, "html"))
        elif tag.name not in ("br", "img", "input", "wbr"):
            return 0
        return tag.end

    def _tag(self, kind: Kind, start: int, at: int) -> MarkupToken:
        source = self.source
        named = NAME.match(source, at)
        assert named is not None
        name, at = named[0].translate(LOWER), named.end()
        while True:
            between = BETWEEN.match(source, at)
            assert between is not None
            at = between.end()
            if source.startswith(">", at):
                return MarkupToken(kind, start, at + 1, name, slash=between[0].endswith("/"))
            attribute = ATTRIBUTE.match(source, at)
            assert attribute is not None
            at = attribute.end()
            if equals := EQUALS.match(source, at):
                at = equals.end()
                if source[at : at + 1] in ('"', "'"):
                    at = source.find(source[at], at + 1) + 1
                    if at == 0:
                        return MarkupToken(Kind.TEXT, start, self.size)
                else:
                    value = UNQUOTED.match(source, at)
                    assert value is not None
                    at = value.end()
            if at >= self.size:
                return MarkupToken(Kind.TEXT, start, self.size)

    def _to_angle(self, kind: Kind, start: int, at: int) -> MarkupToken:
        end = self.source.find(">", at)
        return MarkupToken(kind, start, end + 1) if end >= 0 else self._rest(start, "a declaration that is not closed")

    def _whole(self, token: MarkupToken, end: int) -> MarkupToken:
        why = f"<{token.name}> that is not closed" + (" tag by tag" if token.name in ("svg", "math") else "")
        return token._replace(kind=Kind.WHOLE, end=end) if end else self._rest(token.start, why)

    def _rest(self, start: int, why: str) -> MarkupToken:
        return MarkupToken(Kind.REST, start, self.size, why)

    def _script_end(self, at: int) -> int:
        """Return where the end tag of a script begins: one in `<!-- <script> … -->` is not meant."""
        depth = 0  # 0: script; 1: in <!--; 2: in a <script> in that
        while mark := SCRIPT_MARKS.search(self.source, at):
            at = mark.end()
            if mark[0] == "-->":
                depth = 0
            elif mark[0] == "<!--":
                depth, at = max(depth, 1), at - 2  # <!--> ends there
            elif not mark[1]:
                depth = 2 if depth else 0
            elif depth == 2:
                depth = 1
            else:
                return mark.start()
        return -1

    def _noscript(self, token: MarkupToken) -> MarkupToken:
        """Return a `<noscript>` whole where it ends at the same place whether its content is text or markup."""
        end = self.raw_end("noscript", token.end)
        at, inner, same = token.end, list[MarkupToken](), end is not None and not self.select
        while same and end and (at := self.source.find("<", at)) >= 0 and at < end.start:
            tag = self.tag(at)
            if tag is None:
                at += 1
                continue
            last: MarkupToken | None = tag
            if tag.kind is Kind.START and tag.name in RAW:
                last = self.raw_end(tag.name, tag.end)
            inner.append(tag)
            same = tag.kind not in (Kind.TEXT, Kind.REST) and tag.name not in RISKY
            if last is None or last.end > end.start:
                same = False
            else:
                at = last.end
        if not same or not end:
            return self._rest(token.start, "<noscript> that could end at several places")
        return token._replace(kind=Kind.WHOLE, end=end.end, inner=tuple(inner))

    def _template(self, token: MarkupToken) -> MarkupToken:
        """Return a `<template>` whole, with those in it."""
        select, self.select = self.select, False
        at, depth = token.end, 1
        while depth and (at := self.source.find("<", at)) >= 0:
            if self.source[at + 1 : at + 9].translate(LOWER) == "template":
                inner = self.tag(at)  # without its content: they may be nested a thousand deep
                assert inner is not None
                if inner.name == "template" and inner.kind is Kind.START:
                    depth, at = depth + 1, inner.end
                    continue
            inner = self.element(at)
            if inner is not None and inner.kind in (Kind.TEXT, Kind.REST):
                break
            depth -= inner is not None and inner.kind is Kind.END and inner.name == "template"
            at = inner.end if inner else at + 1
        self.select = select
        return self._whole(token, 0 if depth else at)


def _foreign_in_foreign(tag: MarkupToken, stack: list[tuple[str, str]]) -> int:
    """Return where to read on after a tag in an `<svg>` or `<math>`; 0 if it may end it, or be HTML."""
    name, space = stack[-1]
    if tag.name in BREAKOUT or (name, space) == ("annotation-xml", "math"):
        return 0
    if not tag.slash:
        stack.append((tag.name, space))
    return tag.end
