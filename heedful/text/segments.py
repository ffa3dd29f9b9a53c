"""Segments to translate: the sentences of texts, and parts of a sentence that is too long for the model.

`split` and `cut` return spans of characters and leave out nothing but white space, so that translations of the spans
can be joined with the spacing of the original. In doubt there is no boundary: a model translates two sentences at once
better than half of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from heedful.errors import DataError
from heedful.text.codec import Codec, Encoded
from heedful.text.graphemes import boundary_after, boundary_before, is_boundary

AT_ONCE = 100_000  # characters that are encoded at once: the tokenizer's output is several times as large as the ids
READ = 2_048  # tokens that are read at once, whatever text.max_length says: attention takes the square of it

Span = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """A part of text number `number`: its characters `start:end`, its tokens, and notes for the reader."""

    number: int
    start: int
    end: int
    text: str
    encoded: Encoded
    notes: tuple[str, ...] = ()


class TooManyError(DataError):
    """Texts have more segments than are allowed: at least `count`."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"the texts have {count:,} sentences; {limit:,} are allowed")
        self.count = count


def segments(
    texts: Sequence[str],
    codec: Codec,
    most: int,
    sentences: bool = True,
    limit: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[Segment]:
    """Return the sentences of texts, or each text as one, and those of more than `most` tokens in parts that fit.

    A sentence that is too long is cut after the last clause that fits, otherwise after the last word, otherwise
    anywhere; every part has a note. A blank text has no segments, and with a vocabulary of letters the words alone are
    segments (`Codec.parts`). Raises TooManyError if there are more than `limit`, if possible before anything is
    encoded. `check` is called before each sentence, and may raise.
    """
    places = []
    for number, text in enumerate(texts):
        whole = [(len(text) - len(text.lstrip()), len(text.rstrip()))] if text.strip() else []
        own = codec.parts(text)
        spans = own if own is not None else split(text) if sentences else whole
        places += [(number, start, end) for start, end in spans]
    if limit is not None and len(places) > limit:
        raise TooManyError(len(places), limit)
    parts: list[Segment] = []
    for (number, start, end), tokens in zip(places, _encoded(texts, places, codec), strict=True):
        if check is not None:
            check()
        head = codec.head(texts[number])
        if len(head) + len(tokens.ids) <= max(most, 2):
            part = texts[number][start:end]
            parts.append(Segment(number, start, end, part, _led(tokens, () if codec.head(part) else head)))
        else:
            parts += _parts(number, texts[number], (start, end), codec, most)
        if limit is not None and len(parts) > limit:
            raise TooManyError(len(parts), limit)
    return parts


def _encoded(texts: Sequence[str], places: Sequence[tuple[int, int, int]], codec: Codec) -> Iterator[Encoded]:
    """Yield the tokens of parts of texts, encoding so many characters at once."""
    first = chars = 0
    for last, (_, start, end) in enumerate(places, 1):
        chars += end - start
        if chars >= AT_ONCE or last == len(places):
            yield from codec.encode_all([texts[number][a:b] for number, a, b in places[first:last]])
            first, chars = last, 0


def read_rule(most: int) -> str:
    """Return why a model reads at most so many tokens at once."""
    return "text.max_length" if most < READ else "the most of any model"


def _led(encoded: Encoded, head: tuple[int, ...]) -> Encoded:
    """Prepend the head of the whole text, the code of the target language, to a part of it."""
    return Encoded((*head, *encoded.ids), (*((0, 0) for _ in head), *encoded.spans)) if head else encoded


def _parts(number: int, text: str, span: tuple[int, int], codec: Codec, most: int) -> Iterator[Segment]:
    head = codec.head(text)
    size = len(codec.encode(text[slice(*span)]).ids)
    spans = cut(text, *span, lambda part: len(head) + len(codec.ids([part])[0]) <= max(most, 2))
    note = (
        f"a sentence of {size:,} tokens is longer than this model reads at once ({most:,}, {read_rule(most)}); "
        f"it was translated in {len(spans)} parts"
    )
    for start, end in spans:
        part = text[start:end]
        yield Segment(number, start, end, part, _led(codec.encode(part), () if codec.head(part) else head), (note,))


def _table(*words: str) -> frozenset[str]:
    return frozenset(" ".join(words).split())


_LINES = re.compile("[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")

_PLAIN = ".!?…‼⁇⁈⁉\u037e؟۔։"  # white space follows where they end a sentence
_ALONE = "।॥。！？｡．።។៕။"  # a sentence may follow without any
_CLOSING = "\"'”’“»«›‹)\\]}」』）】〉》〕"
_OPENING = "\"'“”„‘‚«»‹›([{「『（【〈《¿¡*_–—-"
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Japanese and Chinese

# Marks, also with spaces between them (". . .") and a verse's number (॥१॥); then quotes and brackets that close, and
# notes' numbers ([1]).
_END = re.compile(
    rf"॥\s*[\d.–-]+\s*॥|[{_PLAIN}{_ALONE}]++(?:[ \u00a0\u202f]++[{_PLAIN}]++(?![^\s{_CLOSING}]))*+"
    rf"(?:[{_CLOSING}]|[ \u00a0\u202f][»›](?![^\s.,;:!?)]))*+(?:\[\d{{1,3}}\])*+"
)
_MARKS = re.compile(rf"[{_PLAIN}{_ALONE}\s\d–-]+")
_NEXT = re.compile(rf"[{re.escape(_OPENING)}\s]*+")
_WORD = re.compile(r"\w[\w'’]*")
_LETTER_OR_DIGIT = re.compile(r"\w")

# What stands before a full stop that does not end a sentence, whatever follows. Small letters may be capitals, too.
_ABBREVIATIONS = _table(
    "Mr Mrs Ms Mx Messrs Dr Prof Rev Hon Gen Col Lt Sgt Capt Cmdr Maj Adm Gov Sen Rep Pres Supt Insp Mt St Ste Ft",
    "e.g i.e eg ie viz cf vs approx al incl excl esp resp",
    "Hr Hrn Fr Frl Dipl Ing Str bzw z.b d.h u.a z.t i.d.r s.o s.u o.ä u.ä v.a ca zzgl inkl exkl evtl ggf sog vgl geb",
    "M MM Mme Mmes Mlle Mlles Mgr c.-à-d p.ex env",
    "Sr Sra Srta Sres Sras Dña Dra Ud Uds Vd Vds Lic Arq Avda p.ej ej aprox",
    "Sig Sigg Sig.ra Sig.na Dott Dott.ssa Avv Exmo Exma Profa",
    "dhr mevr mw drs bijv d.w.z o.a bl.a f.eks t.ex",
    "гг ул проф акад св т.е т.к т.н напр",
    "डॉ डा श्री श्रीमती सुश्री प्रो पं स्व कु मो रु कि मी सं क्र",
    # the names of letters, as in ए. पी. जे. कलाम
    "ए बी सी डी एफ एच जे के एल एम एन पी क्यू आर एस टी यू वी डब्ल्यू एक्स वाई जेड",
)
# … and what stands before a number.
_BEFORE_NUMBERS = _table(
    "no nos p pp pg art arts fig figs vol vols ch chap sec sect eq ed op ver bk",
    "nr nrn núm num pag pág págs abb abs tab bd kap ziff стр рис табл гл пп",
    "jan feb mar apr jun jul aug sep sept oct nov dec jän okt dez",
)
# … and, between a number and one of these: am 3. Oktober.
_COUNTED = _table(
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember",
    "Jan Feb Apr Aug Sept Okt Nov Dez Quartal Jahrhundert Jh Jahrhunderts Klasse Kapitel Weltkrieg",
)
# After J. or U.S. most capitals begin a name (J. Smith, U.S. Army); these words begin a sentence.
_BEGINNINGS = _table(
    "the he she it they we you this that these those there but and in on at if when while after before as for however",
    "his her its their our my what who why how where so yet then",
    "er sie es wir ihr das dies il elle ils elles nous vous ce cette ella ellos nosotros esto он она они мы это",
)
# 1. or 3.2. or iv. or b. at the beginning count what follows.
_COUNTER = re.compile(r"[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|x{0,3}(?:ix|iv|v?i{1,3}|v)|x{1,3}|[^\W\d_])", re.IGNORECASE)

# Where a long sentence is cut by choice: after marks inside a sentence, with what closes behind them.
_CLAUSE = re.compile(rf"(?:[,;:–…]['\"”’»)\]]*+(?=\s)|[—，、；：،؛।॥。！？｡][{_CLOSING}]*+)")
_TIED = "\u00a0\u202f\u2007"  # white space at which no line breaks, either


def split(text: str) -> list[Span]:
    """Return the spans of a text's sentences, without the white space between them.

    >>> text = "Dr. Rao paid 3.14 dollars. वह गया। Why?"
    >>> [text[start:end] for start, end in split(text)]
    ['Dr. Rao paid 3.14 dollars.', 'वह गया।', 'Why?']
    """
    return [span for line in _LINES.finditer(text) for span in _line(text, *line.span())]


def _line(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the sentences of one line."""
    start, end = _trim(text, start, end)
    if start == end:
        return
    word = _first_word(text, start, end)
    for mark in _END.finditer(text, start, end):
        # Marks alone are no sentence: they stay with what follows.
        if mark.end() < end and mark.start() > word and _ends(text, start, mark, end):
            yield start, mark.end()
            start = _trim(text, mark.end(), end)[0]
            word = _first_word(text, start, end)
    yield start, end


def _first_word(text: str, start: int, end: int) -> int:
    match = _LETTER_OR_DIGIT.search(text, start, end)
    return match.start() if match else end


def _ends(text: str, start: int, mark: re.Match[str], end: int) -> bool:
    """Whether a mark inside a line ends the sentence that began at `start`."""
    marks = cast(re.Match[str], _MARKS.match(text, *mark.span()))
    closed = marks.end() < mark.end()  # by a quote or a bracket
    following = text[mark.end()]
    kinds = set(marks[0])
    if kinds & set(_ALONE) and not following.isspace():
        # 「行くの？」と言った: the quotation is part of a sentence. ３．１４ is a number.
        goes_on = (closed and following.isalpha()) or (kinds == {"．"} and following.isdigit())
        return not goes_on and is_boundary(text, mark.end())
    if not following.isspace():
        ends = not kinds <= set(".…") and not closed
        return ends and bool(re.match(f"[{_UNSPACED}]", following))
    if kinds & set(_ALONE + "؟۔։"):
        return True
    first = cast(re.Match[str], _NEXT.match(text, mark.end(), end)).end()
    lower = first < end and _is_small(text[first])
    if not kinds <= set(". …\u00a0\u202f"):
        return not (closed and lower)  # "Why?" he ends.
    if lower:
        return False
    return marks[0].strip() != "." or _full_stop(text, start, mark.start(), first, end)


def _is_small(character: str) -> bool:
    """Whether a character is a small letter in a script that has capitals, too; in Georgian's use there are none."""
    return character.islower() and not "\u10d0" <= character <= "\u10ff"


def _full_stop(text: str, start: int, stop: int, first: int, end: int) -> bool:
    """Whether the full stop at `stop` ends a sentence, when the text goes on at `first` with no small letter."""
    if stop - start < 12 and _COUNTER.fullmatch(text, start, stop):
        return False
    near = text[max(start, stop - 16) : stop].split()
    word = near[-1].lstrip(_OPENING) if near else ""
    if _listed(word, _ABBREVIATIONS) or (_listed(word, _BEFORE_NUMBERS) and text[first : first + 1].isdigit()):
        return False
    begun = _WORD.match(text, first, end)
    following = begun[0] if begun else ""
    if word.isdigit() and len(word) <= 2 and following in _COUNTED:
        return False
    parts = word.split(".")
    initials = all(p.isalpha() and len(p) <= 3 for p in parts) and 1 in map(len, parts) and len(parts[-1]) <= 2
    cased = word.lower() != word.upper()
    return not (initials and cased) or _listed(following, _BEGINNINGS)


def _listed(word: str, table: frozenset[str]) -> bool:
    return word in table or word.lower() in table


def cut(text: str, start: int, end: int, fits: Callable[[str], bool]) -> list[Span]:
    """Cut a sentence that is too long into parts that fit, and return their spans.

    Each part is as long as it can be and ends at the last clause mark that fits; where there is none, at the last white
    space; where there is none either, between two characters that may be parted. Every part `fits`; only a single
    character for which that is false is a part all the same.

    >>> text = "one, two three four"
    >>> [text[start:end] for start, end in cut(text, 0, len(text), lambda part: len(part) <= 10)]
    ['one,', 'two three', 'four']
    """
    parts: list[Span] = []
    start, end = _trim(text, start, end)
    size = 64
    while start < end:
        reach = _reach(text, start, end, fits, size)
        stop = end if reach == end else _best(text, start, reach, fits)
        stop = _trim(text, start, stop)[1]
        parts.append((start, stop))
        size = max(8, reach - start)
        start = _trim(text, stop, end)[0]
    return parts


def _reach(text: str, start: int, end: int, fits: Callable[[str], bool], size: int) -> int:
    """Return how far a part that begins at `start` may go: a length is doubled, then what lies between is halved."""
    low, high = start, end
    while True:
        probe = min(boundary_after(text, min(start + size, end), start), end)
        if not fits(text[start:probe]):
            high = probe
            break
        if probe == end:
            return end
        low, size = probe, 2 * (probe - start)
    while True:
        middle = (low + high) // 2
        probe = boundary_after(text, middle, start) if middle > low else high
        if probe >= high:
            probe = boundary_before(text, middle, start)
        if probe <= low:
            break
        low, high = (probe, high) if fits(text[start:probe]) else (low, probe)
    return low if low > start else min(boundary_after(text, start + 1, start), end)


def _best(text: str, start: int, reach: int, fits: Callable[[str], bool]) -> int:
    """Return where to cut a part that may go up to `reach`; a shorter part may have more tokens, so `fits` is asked."""
    marks = [m.end() for m in _CLAUSE.finditer(text, start, reach + 1) if m.end() <= reach]
    space = reach
    while space > start and (not text[space].isspace() or text[space] in _TIED or not _parted(text, space)):
        space -= 1
    for place in (*marks[:-2:-1], space):
        if place > start and is_boundary(text, place) and fits(text[start:place].rstrip()):
            return place
    return reach


def _parted(text: str, space: int) -> bool:
    """Whether the white space at `space` carries no accent of its own."""
    return is_boundary(text, space) and is_boundary(text, space + 1)


def _trim(text: str, start: int, end: int) -> Span:
    """Return a span without the white space at its ends."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
