"""`heedful.read_pairs`: the clean pairs of a file, as a list."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.config import DataConfig
from heedful.data.formats import PairFile
from heedful.data.store import Chosen, open_store
from heedful.errors import ConfigError, DataError, guessing

__all__ = ["naming_arguments", "read_pairs"]

LOG = logging.getLogger("heedful.data")


@guessing
def read_pairs(
    file: str | Path,
    target: str | Path | None = None,
    *,
    columns: str | tuple[int | str, int | str] = "",
    format: str = "",  # noqa: A002  (what the option of `heedful train` is called)
    duplicates: bool = False,
) -> list[tuple[str, str]]:
    """Read sentence pairs as `heedful train` does, and return those that it would keep, in their order.

    A file is TSV, CSV with a header, or JSON lines, plain or gzip; with `target`, it holds the source sentences, and
    `target` their translations line by line. `columns` are those of source and target ("1,2", (1, 2), or names), and
    `format` (tsv, csv or jsonl) says what the file's name does not. Pairs that came before are left out unless
    `duplicates` is True. What was dropped or changed, and why, goes to the logger `heedful.data`: as a warning if there
    was anything.
    """
    paths = _path(file, "file"), "" if target is None else _path(target, "target")
    config = DataConfig(duplicates="keep" if duplicates else "drop")
    with naming_arguments("columns={}"):
        named = columns if isinstance(columns, str) else ",".join(map(str, columns))
        pair_file = PairFile(paths[0], format, named, paths[1])
        store, _ = open_store([pair_file], config, LOG.info, lambda done, what: None)
    level = logging.WARNING if store.report.counts or store.report.notes else logging.INFO
    LOG.log(level, "%s", _in_python("\n".join(store.report.lines()), "columns={}"))
    chosen = Chosen(store, store.split.first, "first")
    return list(zip(chosen.texts(0), chosen.texts(1), strict=True))


def _path(given: object, name: str) -> str:
    """Return a path as a string; say what was expected in place of anything else."""
    if isinstance(given, str | os.PathLike):
        return os.fsdecode(given)
    if isinstance(given, list | tuple):
        if given and isinstance(given[0], list | tuple):
            how = "pairs need not be read: give the list to heedful.train as it is"
        else:
            how = "read several files one after the other, and join the lists"
    elif isinstance(getattr(given, "name", None), str):
        how = f"of an open file give the name, {given.name!r:.100}"  # type: ignore[attr-defined]
    else:
        how = "such as 'pairs.tsv'"
    raise ConfigError(f"read_pairs: {name} is {given!r:.100}, expected the path of a file; {how}")


@contextmanager
def naming_arguments(columns: str) -> Iterator[None]:
    """Let errors name what a person writes in Python, and not the option --columns; `{}` are those to choose."""
    try:
        yield
    except (ConfigError, DataError) as error:
        if "--columns" not in str(error):
            raise
        raise type(error)(_in_python(str(error), columns)) from None


def _in_python(message: str, columns: str) -> str:
    """Return a message with an argument in place of the option --columns.

    >>> _in_python("say which, such as --columns en,hi; or give them with --columns", "columns={}")
    "say which, such as columns='en,hi'; or give them with columns=…"
    """
    found = re.compile(r"--columns( [^\s,;()]+,[^\s,;()]+)?")
    return found.sub(lambda m: columns.format(repr(m[1].strip()) if m[1] else "…"), message)
