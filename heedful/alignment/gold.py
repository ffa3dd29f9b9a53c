"""Gold links and alignment error rate, after Och and Ney (2003): gold links are sure, or only possible."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from heedful.alignment.links import Links, flip
from heedful.alignment.symmetrize import HEURISTICS, symmetrize
from heedful.errors import ConfigError, DataError, choose

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})(?::[0-9][0-9.eE+-]{0,30})?")
_NAACL = re.compile(r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?")
FEW, SHARE = 5, 0.02  # links that `lenient` may leave out: this many, or this share of all
FORM = "expected links such as '0-0 1p2', sure and possible, or '1 0 0 S': sentence, source word, target word"
FIELDS = ("links", "alignment")  # of JSON lines


class Gold(NamedTuple):
    """The gold links of each sentence pair: the sure ones, and all possible ones, words counted from 0."""

    sure: list[Links]
    possible: list[Links]
    left_out: int = 0


class WrittenLink(NamedTuple):
    """A link as a file has it, and where."""

    where: str
    item: str
    sentence: int
    source: int
    target: int
    sure: bool


Lengths = tuple[int, int] | None  # words of the source and of the target; None if they are not known


def read_gold(
    lines: Iterable[str],
    lengths: Sequence[tuple[int, int]] | int,
    *,
    base: int = 0,
    name: str = "gold",
    lenient: bool = False,
) -> Gold:
    """Return the gold links of sentence pairs; `lengths` are their words, source and target, or how many there are.

    A line is a sentence pair, with links such as `0-0` (sure) and `1p2` or `1?2` (possible), perhaps after an id and a
    tab; or a JSON object with a list of links, `links` or `alignment`. Or a line is a link, in the format of the NAACL
    2003 shared task: sentence from 1, source word, target word, and S or P. `base` is what words are counted from.
    Raises DataError for a link outside of its sentences; `lenient` leaves out up to five such links, or 2 % of all.

    >>> gold = read_gold(["0-0 1p1"], [(2, 2)])
    >>> [sorted(links) for links in gold.sure], [sorted(links) for links in gold.possible]
    ([[(0, 0)]], [[(0, 0), (1, 1)]])
    """
    if base not in (0, 1):
        raise ConfigError(f"base is {base}; words are counted from 0 or 1")
    sizes: Sequence[Lengths] = [None] * lengths if isinstance(lengths, int) else lengths
    rows = list(lines)
    first = next((row.strip() for row in rows if row.strip()), "")
    naacl = _NAACL.fullmatch(first) is not None
    items = list(_by_link(rows, name) if naacl else (link for row in _by_sentence(rows, name) for link in row))
    if not naacl and len(rows) != len(sizes):
        raise DataError(
            f"{name} has {len(rows):,} line{'s' * (len(rows) != 1)} but there are {len(sizes):,} sentence pairs"
        )
    sure: list[set[tuple[int, int]]] = [set() for _ in sizes]
    possible: list[set[tuple[int, int]]] = [set() for _ in sizes]
    left_out = 0
    for where, item, sentence, source, target, certain in items:
        if not 0 <= sentence < len(sizes):
            raise DataError(f"{where}: there is no sentence pair {sentence + 1}, only 1 to {len(sizes)}")
        link = (source - base, target - base)
        if not _inside(link, sizes[sentence]):
            if not lenient:
                raise _outside(where, item, link, sizes[sentence], base, _swapped(items, sizes, base))
            left_out += 1
            continue
        possible[sentence].add(link)
        if certain:
            sure[sentence].add(link)
    if left_out > max(FEW, SHARE * len(items)):
        other = 1 - base
        then = sum(not _inside((s - other, t - other), sizes[number]) for _, _, number, s, t, _ in items)
        likely = _swapped(items, sizes, base) or (
            f"words are counted from {base} here, and from {other} it would be {then:,}: that is the likely base"
            if then < left_out
            else "do they belong to these sentences, in this order?"
        )
        raise DataError(f"{name}: {left_out:,} of {len(items):,} links are outside of their sentences; {likely}")
    return Gold(list(map(frozenset, sure)), list(map(frozenset, possible)), left_out)


def join_links(
    forward: Iterable[str],
    reverse: Iterable[str],
    symmetry: str = "grow-diag-final-and",
    *,
    flipped: bool = False,
    names: tuple[str, str] = ("forward", "reverse"),
) -> Iterator[Links]:
    """Yield the links of each sentence pair, joined from those of two directions: two open files, or lists of lines.

    Lines are source-target, in a format that `read_gold` reads. A possible link is a link, and a weight, as in
    `0-0:0.9`, is left out. With `flipped`, the lines of `reverse` are target-source, as an aligner writes them for
    swapped files. `symmetry` is one of HEURISTICS. `names` are for errors.

    >>> [sorted(links) for links in join_links(["0-0 1-1", ""], ["0-0 1-0", ""], "union", flipped=True)]
    [[(0, 0), (0, 1), (1, 1)], []]
    """
    choose("symmetry", symmetry, HEURISTICS)
    rows = zip_longest(*(_by_sentence(lines, name) for lines, name in zip((forward, reverse), names, strict=True)))
    for number, (one, other) in enumerate(rows):
        if one is None or other is None:
            counts = [number, number + 1 + sum(1 for _ in rows)]
            (short, few), (long, many) = zip(names if one is None else names[::-1], counts, strict=True)
            raise DataError(
                f"{long} has {many:,} line{'s' * (many != 1)} but {short} has {few:,}; expected a line for each "
                "sentence pair in both, a blank one for a pair without links"
            )
        first, second = (frozenset((link.source, link.target) for link in side) for side in (one, other))
        yield symmetrize(first, flip(second) if flipped else second, symmetry)


def _inside(link: tuple[int, int], lengths: Lengths) -> bool:
    if lengths is None:
        return min(link) >= 0
    return all(0 <= place < length for place, length in zip(link, lengths, strict=True))


def _swapped(items: Iterable[WrittenLink], lengths: Sequence[Lengths], base: int) -> str:
    """Return a message if all links fit with source and target swapped, and do not fit from the other base."""
    places = range(len(lengths))
    every = [(source, target, sizes) for _, _, n, source, target, _ in items if n in places and (sizes := lengths[n])]
    if not every or not all(_inside((target - base, source - base), sizes) for source, target, sizes in every):
        return ""
    if all(_inside((source - 1 + base, target - 1 + base), sizes) for source, target, sizes in every):
        return ""
    return f"source and target seem to be swapped: all {len(every):,} links fit if each is read as target-source"


def _by_sentence(rows: Iterable[str], name: str) -> Iterator[list[WrittenLink]]:
    """Yield the links of each line.

    Lines may begin with an id and a tab; whether they do shows the first line with a link or a tab.
    """
    ids: bool | None = None
    bare = ""  # the error of the first line with one word, which may be an id
    for number, row in enumerate(rows):
        where = f"{name}, line {number + 1}"
        items = row.split()
        if not items:
            yield []
            continue
        if items[0].startswith("{"):
            yield _of_record(row, where, number)
            continue
        head, tab, rest = row.partition("\t")
        linked = _LINK.fullmatch(items[0]) is not None
        if ids is None and (linked or (tab and head.strip())):
            ids = not linked
            if linked and bare:
                raise DataError(bare)
        if not linked and ids is not False and len(items) == 1:
            bare = bare or f"{where}: {FORM}, found '{items[0][:60]}'"
            items = []  # an id
        elif ids:
            if linked or not tab:
                raise DataError(
                    f"{where}: expected an id, a tab and links, as in the lines before, found '{row.strip()[:60]}'"
                )
            items = rest.split()
        matches = [(_LINK.fullmatch(item), item) for item in items]
        wrong = next((item for match, item in matches if match is None), None)
        if wrong is not None:
            raise DataError(f"{where}: {FORM}, found '{wrong[:60]}'")
        yield [
            WrittenLink(where, item, number, int(match[1]), int(match[3]), match[2] == "-")
            for match, item in matches
            if match is not None
        ]
    if bare and not ids:
        raise DataError(bare)


def _of_record(row: str, where: str, number: int) -> list[WrittenLink]:
    """Return the links of a JSON object, lists of source word, target word and perhaps a weight."""
    try:
        record = json.loads(row)
        links = next(record[field] for field in FIELDS if field in record)
        return [WrittenLink(where, f"{s}-{t}", number, _word(s), _word(t), True) for s, t, *_ in links]
    except (ValueError, TypeError, RecursionError, StopIteration):
        raise DataError(
            f"{where}: expected a JSON object with {' or '.join(FIELDS)}, a list such as [[0, 0], [1, 2]], found "
            f"'{row.strip()[:60]}'"
        ) from None


def _word(value: object) -> int:
    if type(value) is not int or not 0 <= value < 10**9:
        raise ValueError
    return value


def _by_link(rows: Sequence[str], name: str) -> Iterator[WrittenLink]:
    for number, row in enumerate(map(str.strip, rows), 1):
        if row:
            match = _NAACL.fullmatch(row)
            if match is None:
                raise DataError(f"{name}, line {number}: {FORM}, found '{row[:60]}'")
            sentence, sure = int(match[1]) - 1, match[4] != "P"
            yield WrittenLink(f"{name}, line {number}", row, sentence, int(match[2]), int(match[3]), sure)


def _outside(where: str, item: str, link: tuple[int, int], lengths: Lengths, base: int, swapped: str) -> DataError:
    if lengths is None:
        return DataError(f"{where}: words are counted from {base} here, found '{item}'; is the file counted from 0?")
    ranges = " and ".join(
        f"{side} words {base} to {length - 1 + base}" if length else f"no {side} words"
        for side, length in zip(("source", "target"), lengths, strict=True)
    )
    then = (link[0] + 2 * base - 1, link[1] + 2 * base - 1)  # what it would be if the file counted from the other
    likely = swapped or (
        f"is the file counted from {1 - base}?" if _inside(then, lengths) else "are these its sentences?"
    )
    return DataError(f"{where}: link '{item}' is outside of its sentences, which have {ranges}; {likely}")


class AlignmentScores(NamedTuple):
    """Precision, recall and alignment error rate, from 0 to 1; the numbers of links and of sure gold links."""

    precision: float
    recall: float
    error_rate: float
    links: int
    gold: int

    def __str__(self) -> str:
        return (
            f"alignment error rate {100 * self.error_rate:.2f} %, precision {100 * self.precision:.2f} %, "
            f"recall {100 * self.recall:.2f} % ({self.links:,} links, {self.gold:,} sure gold links)"
        )


def score(links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None) -> AlignmentScores:
    """Return the scores of the links A of a corpus against the sure gold links S and the possible ones P.

    Precision |A∩P| / |A|, recall |A∩S| / |S|, error rate 1 - (|A∩S| + |A∩P|) / (|A| + |S|), where each size is the sum
    over all sentences and P always includes S. An empty ratio is 1: no links at all have precision 1.

    >>> gold = frozenset({(0, 0), (1, 1)})
    >>> score([frozenset({(0, 0), (1, 2)})], [gold])
    AlignmentScores(precision=0.5, recall=0.5, error_rate=0.5, links=2, gold=2)
    """
    maybe = sure if possible is None else possible
    if not len(links) == len(sure) == len(maybe):
        counts = f"{len(links)} with links, {len(sure)} with sure links"
        raise DataError(
            f"sentences do not match: {counts}" + ("" if possible is None else f", {len(maybe)} with possible")
        )
    if not links:
        raise DataError("no sentences to score")
    right = sum(len(a & s) for a, s in zip(links, sure, strict=True))
    allowed = sum(len(a & (s | p)) for a, s, p in zip(links, sure, maybe, strict=True))
    size, gold = sum(map(len, links)), sum(map(len, sure))
    error_rate = 1 - _share(right + allowed, size + gold)
    return AlignmentScores(_share(allowed, size), _share(right, gold), error_rate, size, gold)


def standard_error(
    some: Sequence[Links], others: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]
) -> float:
    """Return the standard error of the difference of two error rates on the same sentences.

    An error rate is a ratio of sums over sentences, E / W. A sentence with e of E and w of W moves it by about
    (e - w E / W) / W; only the difference of the two moves counts. With fewer than two sentences it is infinity.

    >>> gold, wrong = [frozenset({(0, 0)})] * 4, [frozenset({(0, 1)})] * 4
    >>> standard_error(gold[:2] + wrong[2:], gold, gold, gold)  # √(4 / 3 · 4 · (1 / 8)²)
    0.28867513459481287
    """
    if len(sure) < 2:
        return math.inf
    moves = [_moves(links, sure, possible) for links in (some, others)]
    return math.sqrt(len(sure) / (len(sure) - 1) * sum((a - b) ** 2 for a, b in zip(*moves, strict=True)))


def _moves(links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> list[float]:
    """Return by how much each sentence moves the error rate."""
    rows = list(zip(links, sure, possible, strict=True))
    sizes = [len(a) + len(s) for a, s, _ in rows]
    whole, rate = max(1, sum(sizes)), score(links, sure, possible).error_rate
    return [
        (size * (1 - rate) - len(a & s) - len(a & (s | p))) / whole for size, (a, s, p) in zip(sizes, rows, strict=True)
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
