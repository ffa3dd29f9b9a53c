"""Which columns of a file, or fields of a record, are the source and the target."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.errors import ConfigError, DataError, nearest

__all__ = ["find", "guess", "no_guess", "parse_columns", "positions"]

# What people call the two sides when they do not name the languages.
USUAL = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("input", "output"),
    ("text", "translation"),
)
SENTENCE_ENDS = (".", "!", "?", "।", "؟", "。", "！", "？", "…")


def parse_columns(text: str, most: int = 2) -> tuple[str, ...]:
    """Read which columns are wanted, by their names or by numbers from 1; at least two, source first.

    >>> parse_columns("2,1"), parse_columns("en, hi")
    (('2', '1'), ('en', 'hi'))
    """
    parts = tuple(part.strip() for part in text.split(","))
    numbers = all(part.isdecimal() for part in parts)
    if not 2 <= len(parts) <= most or not all(parts) or (numbers and not all(map(int, parts))):
        how = "two numbers from 1, or two names, source then target"
        raise ConfigError(f"columns are '{text}', expected {how}, such as 2,1 or en,hi")
    if len(set(parts)) < len(parts):
        raise ConfigError(f"columns are '{text}'; the same one is given twice")
    return parts


def positions(columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return where columns given by numbers stand, from 0; None for names.

    >>> positions(["2", "1"]), positions(["en", "hi"])
    ((1, 0), None)
    """
    return tuple(int(c) - 1 for c in columns) if all(c.isdecimal() for c in columns) else None


def find(names: Sequence[str], wanted: Sequence[str], where: str, what: str = "column") -> tuple[int, ...]:
    """Return where the wanted names stand among those of a file, from 0; `where` is for the error."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{where}: there is no {what} '{name}', only {', '.join(names)}.{nearest(name, names)}")
    return tuple(names.index(name) for name in wanted)


def guess(names: Sequence[str]) -> tuple[int, int] | None:
    """Return which names are source and target: usual words, or else the only two there are.

    >>> guess(["id", "Target", "Source"]), guess(["hi", "en"]), guess(["id", "hi", "en"])
    ((2, 1), (0, 1), None)
    """
    small = [name.lower() for name in names]
    for source, target in USUAL:
        if source in small and target in small:
            return small.index(source), small.index(target)
    # A pair of sentences is no header: whoever forgot the header should not lose a pair without a word.
    if len(names) == 2 and not any(name.endswith(SENTENCE_ENDS) for name in names):
        return 0, 1
    return None


def no_guess(names: Sequence[str], where: str, what: str = "columns") -> DataError:
    """Return the error for names that do not tell which are source and target."""
    if len(names) < 2:
        return DataError(f"{where}: expected {what} for source and target with their names, found only '{names[0]}'")
    if len(names) == 2:
        return DataError(
            f"{where}: expected the names of the {what}, found sentences: '{names[0]}' and '{names[1]}'; "
            "put a line such as source,target above them"
        )
    return DataError(
        f"{where}: the {what} are {', '.join(names)}; say which hold source and target, "
        f"such as --columns {names[-2]},{names[-1]}"
    )
