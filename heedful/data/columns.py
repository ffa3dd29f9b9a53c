"""Which columns of a file, or fields of a record, hold source and target, and whether a line is a header."""

from __future__ import annotations

import re
from collections.abc import Sequence

from heedful.errors import ConfigError, DataError, nearest

# Usual names of the two sides, where they are not languages.
USUAL = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("input", "output"),
    ("text", "translation"),
)
MORE = ("sentence", "original", "translated", "reference", "question", "answer", "prompt", "completion")
# Languages by their codes, of two letters and the most common ones of three, and by name.
CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg
ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn
no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu ara ben bul cat ces cmn dan deu
ell eng est eus fas fin fra fre ger glg guj hau heb hin hrv hun ind isl ita jpn kan kat kaz khm kor lat lav lit mal
mar mkd mon nep nld nob nor ori pan pol por ron rus sin slk slv spa sqi srp swa swe tam tel tgl tha tur ukr urd uzb
vie yor zho zul
"""
NAMES = """
arabic basque bengali bulgarian catalan chinese croatian czech danish dutch english estonian finnish french german
greek gujarati hebrew hindi hungarian icelandic indonesian italian japanese kannada korean latin latvian lithuanian
malayalam marathi nepali norwegian persian polish portuguese punjabi romanian russian sanskrit serbian slovak
slovenian spanish swahili swedish tamil telugu thai turkish ukrainian urdu vietnamese
"""
REGION = re.compile(r"[-_][A-Za-z]{2,4}$")  # en-US, eng_Latn


def parse_columns(text: str, most: int = 2) -> tuple[str, ...]:
    """Parse columns, by their names or by numbers from 1; at least two, source first.

    >>> parse_columns("2,1"), parse_columns("en, hi")
    (('2', '1'), ('en', 'hi'))
    """
    parts = tuple(part.strip() for part in text.split(","))
    numbers = all(part.isdecimal() for part in parts)
    if not 2 <= len(parts) <= most or not all(parts) or (numbers and not all(map(int, parts))):
        how = "two numbers from 1, or two names, source then target"
        raise ConfigError(f"columns are '{text}', expected {how}, such as 2,1 or en,hi")
    if len(set(parts)) < len(parts):
        raise ConfigError(f"columns are '{text}'; the same column is named twice")
    return parts


def positions(columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the positions of columns given by numbers, from 0; None for names.

    >>> positions(["2", "1"]), positions(["en", "hi"])
    ((1, 0), None)
    """
    return tuple(int(c) - 1 for c in columns) if all(c.isdecimal() for c in columns) else None


def find(names: Sequence[str], wanted: Sequence[str], where: str, what: str = "column") -> tuple[int, ...]:
    """Return the positions of the wanted names among those of a file, from 0; `where` is for the error."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{where}: there is no {what} '{name}', only {some(names)}.{nearest(name, names)}")
    return tuple(names.index(name) for name in wanted)


def guess(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the positions of source and target among names: usual words, or else the only two names.

    >>> guess(["id", "Target", "Source"]), guess(["hi", "en"]), guess(["id", "hi", "en"])
    ((2, 1), (0, 1), None)
    """
    return usual(names) or ((0, 1) if len(names) == 2 else None)


def usual(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the positions of usual words for source and target.

    >>> usual(["id", "Target", "Source"]), usual(["hi", "en"])
    ((2, 1), None)
    """
    small = [name.lower() for name in names]
    for source, target in USUAL:
        if source in small and target in small:
            return small.index(source), small.index(target)
    return None


def surely_names(cells: Sequence[str]) -> bool:
    """Return whether all cells are names of columns: usual words, languages, or words with an underscore.

    >>> surely_names(["en", "Hindi"]), surely_names(["text_en", "source"]), surely_names(["Hi", "Salut"])
    (True, True, False)
    """
    return all(map(_surely_name, cells))


def _surely_name(cell: str) -> bool:
    small, code = cell.lower(), REGION.sub("", cell)
    words = {*NAMES.split(), *MORE, *(word for pair in USUAL for word in pair)}
    return (
        small.rstrip("0123456789 ") in words
        or ("_" in cell and " " not in cell)
        or (code in (code.lower(), code.upper()) and code.lower() in CODES.split())  # "No" is not a language code
    )


def ids_first(rows: Sequence[Sequence[str]]) -> str:
    """Return the columns to use instead of the first two when column 1 of all rows is a number; otherwise "".

    >>> ids_first([["1", "a", "7", "b"], ["2", "c", "8", "d"]]), ids_first([["2", "two", "0-0"], ["x", "y", "z"]])
    ('2,4', '')
    """
    numbers = [all(cell.strip().isdecimal() for cell in column) for column in zip(*rows, strict=False)]
    words = [str(i) for i, number in enumerate(numbers, 1) if not number]
    return ",".join(words[:2]) if len(numbers) > 2 and numbers[0] and len(words) > 1 else ""


def no_guess(names: Sequence[str], where: str, what: str = "columns") -> DataError:
    """Return the error for names among which source and target cannot be guessed."""
    if {"image", "caption"} <= {name.lower() for name in names}:
        return DataError(f"{where}: these are captions; set images='DIR' to the folder or archive of their images")
    if len(names) < 2:
        return DataError(
            f"{where}: expected {what} for source and target with their names, found only '{shortened(names[0])}'"
        )
    if len(names) == 2:
        return DataError(
            f"{where}: '{shortened(names[0])}' and '{shortened(names[1])}' may be a header or a pair; set columns to "
            "the two names if they are a header, and columns='1,2' if they are a pair"
        )
    pair = f"; if this is a pair and not a header, such as columns='{len(names) - 1},{len(names)}'"
    pair = "" if what == "fields" or surely_names(names[-2:]) else pair
    return DataError(
        f"{where}: the {what} are {some(names)}; choose those of source and target, "
        f"such as columns='{shortened(names[-2])},{shortened(names[-1])}'{pair}"
    )


def some(names: Sequence[str]) -> str:
    """Return names as a list for a message, the first 20 of them.

    >>> some(["en", "hi"])
    'en, hi'
    """
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return ", ".join(map(shortened, names[:20])) + more


def shortened(text: str, length: int = 60) -> str:
    """Return a text of at most `length` characters, with `…` for the rest."""
    return text if len(text) <= length else text[: length - 1] + "…"
