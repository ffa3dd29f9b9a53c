"""`heedful.read_pairs`: the clean pairs of a file, as a list."""

from __future__ import annotations

import logging
from pathlib import Path

from heedful.config import DataConfig
from heedful.data.formats import PairFile
from heedful.data.store import Chosen, open_store

__all__ = ["read_pairs"]

LOG = logging.getLogger("heedful.data")


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
    named = columns if isinstance(columns, str) else ",".join(map(str, columns))
    pair_file = PairFile(str(file), format, named, "" if target is None else str(target))
    config = DataConfig(duplicates="keep" if duplicates else "drop")
    store, _ = open_store([pair_file], config, LOG.info, lambda done, what: None)
    level = logging.WARNING if store.report.counts or store.report.notes else logging.INFO
    LOG.log(level, "%s", "\n".join(store.report.lines()))
    chosen = Chosen(store, store.split.first, "first")
    return list(zip(chosen.texts(0), chosen.texts(1), strict=True))
