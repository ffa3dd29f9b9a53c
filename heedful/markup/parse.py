"""From a text with tags to the text alone, and what stood where.

Tags of blocks, `<p>`, `<li>`, `<br>` …, part the text into runs, each a line of it; other tags and placeholders stand
in a run. What is not a tag is text: `1 < 2` is. Tags that were never closed end with the text, ends without a beginning
are left out, and of tags that overlap the inner one ends with the outer and begins again, as one around blocks does in
each of them: what comes out is always well-formed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from heedful.markup.reader import Reader
from heedful.markup.runs import Marked

__all__ = ["parse"]

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
# They have no end.
EMPTY = frozenset(re.findall(r"\w+", "area base br col embed hr img input link meta param source track wbr"))
# Words on either side of these are of different sentences.
BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body br caption col colgroup dd details dialog dir div dl dt fieldset "
        "figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol "
        "optgroup option p pre search section select summary table tbody td tfoot th thead title tr ul",
    )
)


def parse(source: str) -> Marked:
    """Return the text of an HTML fragment with its tags and placeholders apart.

    >>> marked = parse("<p>I <b>see</b> {name}.</p>")
    >>> (run,) = marked.runs
    >>> marked.text, run.before, run.elements[0][:4], run.points[0][:2], marked.after
    ('I see.', '<p>', ('<b>', '</b>', 2, 5), ('{name}', 5), '</p>')
    """
    reader, at = Reader(), 0
    for piece, end in _pieces(source):
        reader.add(html.unescape(source[at : piece.start()]))
        at = end
        name = (piece["end"] or piece["tag"] or "").lower()
        empty = bool(piece["tag"] and (piece["alone"] or name in EMPTY))
        if end > piece.end():
            whole = source[piece.start() : end]
            reader.point(ODD_END.sub("-->", whole) if piece["comment"] else whole)
        elif not name:
            reader.point(piece[0], placeholder=True)
        elif piece["end"]:
            (reader.end_block(piece[0], name) if name in BLOCKS else reader.end(name))
        elif name in BLOCKS:
            reader.begin_block(piece[0], piece["tag"], empty)
        elif empty:
            reader.point(piece[0])
        else:
            reader.begin(piece[0], piece["tag"])
    reader.add(html.unescape(source[at:]))
    return reader.done()


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
