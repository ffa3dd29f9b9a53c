"""Clean pairs on disk: the same as in memory, whatever the files, and found again without reading them."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import DataConfig
from heedful.data import Pair, PairFile, PairList, clean
from heedful.data import store as store_module
from heedful.data.store import Store, StoreRows, open_store
from heedful.errors import DataError

WORDS = ["a", "b", "ab", "é", "e\u0301", "घर", "我", " ", "\u00a0", "x" * 30]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path_factory.mktemp("cache")))


def opened(*files: PairFile | PairList, config: DataConfig = DataConfig()) -> tuple[Store, bool]:  # noqa: B008
    said: list[str] = []
    found = open_store(files, config, said.append, lambda done, what: None)
    assert said == []
    return found


def every(store: Store) -> list[Pair]:
    return [store.pair(row) for row in range(len(store))]


def tsv(path: Path, pairs: list[tuple[str, str]]) -> PairFile:
    path.write_text("".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
    return PairFile(str(path))


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path):
    """Its bytes were looked at before: what is read now would be kept under the name of what was there then."""
    file = tsv(tmp_path / "p.tsv", [("a", "b")] * 3)

    def write_more(done, what):
        with (tmp_path / "p.tsv").open("a") as more:
            more.write("c\td\n")

    with pytest.raises(DataError, match=r"p\.tsv: .*changed while it was being read"):
        open_store([file], DataConfig(), print, write_more)
    assert not [path for path in Path(os.environ["HEEDFUL_CACHE"]).iterdir() if path.is_dir()]
    store, known = opened(file)
    assert not known
    assert store.report.read == 4


def test_what_is_said_of_a_file_is_said_again_from_the_cache(tmp_path):
    (tmp_path / "p.tsv").write_text("a\tb\t0-0\n")
    (tmp_path / "p.csv").write_text("\ufeffsource,target\nc,d\n")
    for again in (False, True):
        store, known = opened(PairFile(str(tmp_path / "p.tsv")), PairFile(str(tmp_path / "p.csv")))
        assert known == again
        read, columns, mark = store.report.lines()
        assert (read, columns[:16], mark) == ("read 2 pairs", "p.tsv: 3 columns", "p.csv: removed a byte order mark")
        assert "columns='2,3'" in columns
        with pytest.raises(DataError, match="3 columns"):
            store.report.check_clean()


@settings(deadline=None, max_examples=40)
@given(PAIRS, st.sampled_from(["drop", "keep"]))
def test_the_same_as_in_memory(pairs, duplicates):
    config = DataConfig(duplicates=duplicates)
    source = PairList([*pairs, ("one more", "pair")])
    wanted = clean(list(source.rows()), "pairs", config)
    store, known = opened(source, config=config)
    assert not known
    rows = zip(wanted.sources, wanted.targets, wanted.lines, strict=True)
    assert every(store) == [Pair(x, y, f"pairs:{line}") for x, y, line in rows]
    once = list(dict.fromkeys(pair[:2] for pair in every(store)))
    first = [pair[:2] for pair in (store.pair(int(row)) for row in store.split.first)]
    assert first == (once if duplicates == "drop" else [pair[:2] for pair in every(store)])
    again = len(wanted.lines) - len(once) if duplicates == "drop" else 0
    assert store.report.counts.get("duplicate", 0) == again
    assert store.report.kept == len(first)
    assert store.report.read == len(pairs) + 1
    assert len(store.report.examples.get("duplicate", [])) == min(again, 3)


def mixed(folder: Path) -> list[PairFile]:
    """Files of all formats, with a duplicate in another file."""
    (folder / "b.jsonl").write_text("".join(json.dumps({"hi": f"s {n}", "en": f"t {n}"}) + "\n" for n in (1, 2)))
    (folder / "c.src").write_bytes(b"s 3\n\ns 4\n")
    with gzip.open(folder / "c.tgt.gz", "wb") as file:
        file.write(b"t 3\n\nt 4\n")
    return [
        tsv(folder / "a.tsv", [("s 0", "t 0"), ("s  1", "t 1")]),
        PairFile(str(folder / "b.jsonl"), columns="hi,en"),
        PairFile(str(folder / "c.src"), target=str(folder / "c.tgt.gz")),
    ]


def test_several_files(tmp_path):
    files = mixed(tmp_path)
    store, _ = opened(*files)
    places = ["a.tsv:1", "a.tsv:2", "b.jsonl:1", "b.jsonl:2", "c.src:1", "c.src:3"]
    numbers = [0, 1, 1, 2, 3, 4]
    assert every(store) == [Pair(f"s {n}", f"t {n}", place) for n, place in zip(numbers, places, strict=True)]
    assert store.split.first.tolist() == [0, 1, 3, 4, 5]
    assert store.report.counts == {"extra spaces": 1, "blank line": 1, "duplicate": 1}
    assert store.report.examples["duplicate"] == ["b.jsonl:1: 's 1' → 't 1'"]
    again, known = opened(*files)
    assert known
    assert every(again) == every(store)
    assert again.report == store.report
    assert [a.tolist() for a in again.split[:3]] == [a.tolist() for a in store.split[:3]]


def test_chosen_pairs(tmp_path):
    store, _ = opened(*mixed(tmp_path))
    chosen = StoreRows(store, np.array([4, 0, 5]))
    assert len(chosen) == 3
    assert chosen[1] == Pair("s 0", "t 0", "a.tsv:1")
    assert [list(chosen.texts(side)) for side in (0, 1)] == [["s 3", "s 0", "s 4"], ["t 3", "t 0", "t 4"]]


def test_what_a_store_depends_on(tmp_path):
    file = tsv(tmp_path / "pairs.tsv", [("a", "b"), ("c", "d")])
    assert not opened(file)[1]
    assert opened(file)[1]
    assert not opened(replace(file, columns="2,1"))[1]
    assert not opened(file, config=DataConfig(max_ratio=3.0))[1]
    os.utime(file.path, (1, 1))
    assert opened(file)[1]
    (tmp_path / "elsewhere").mkdir()
    assert opened(tsv(tmp_path / "elsewhere" / "pairs.tsv", [("a", "b"), ("c", "d")]))[1]
    assert not opened(tsv(tmp_path / "another.tsv", [("a", "b"), ("c", "d")]))[1]  # it is named beside each line
    assert not opened(tsv(tmp_path / "pairs.tsv", [("a", "b"), ("c", "e")]))[1]


def test_pairs_in_memory_are_not_kept():
    pairs = PairList([("a", "b"), ("c", "d")])
    store, _ = opened(pairs)
    assert store.key is None
    folder = store.arrays.folder
    assert folder.exists()
    chosen = StoreRows(store, store.split.first)
    del store
    assert chosen[1].target == "d"
    del chosen
    assert not folder.exists()
    assert not opened(pairs)[1]


def give_stdin(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_stdin(monkeypatch):
    give_stdin(monkeypatch, b"a\tb\nc\td\n")
    store, known = opened(PairFile("-"))
    assert every(store) == [Pair("a", "b", "stdin:1"), Pair("c", "d", "stdin:2")]
    assert not known
    give_stdin(monkeypatch, b"a\tb\nc\td\n")
    assert opened(PairFile("-"))[1]
    give_stdin(monkeypatch, gzip.compress(b"a\tb\nc\te\n"))
    assert every(opened(PairFile("-"))[0])[1].target == "e"
    give_stdin(monkeypatch, b'{"source": "a", "target": "b"}\n')
    assert every(opened(PairFile("-", format="jsonl"))[0]) == [Pair("a", "b", "stdin:1")]


def test_an_error_in_stdin_names_it(monkeypatch):
    give_stdin(monkeypatch, b"a\tb\nc\n")
    with pytest.raises(DataError, match="^standard input, line 2: expected 2 columns"):
        opened(PairFile("-"))
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="^standard input: it is closed"):
        opened(PairFile("-"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_are_read_once(tmp_path):
    def write(path: Path, content: str) -> None:
        path.write_text(content)

    for known in (False, True):
        source, target = tmp_path / f"{known}.csv", tmp_path / f"{known}.de"
        for path in (source, target):
            os.mkfifo(path)
        writers = [threading.Thread(target=write, args=(path, "a\nb\n")) for path in (source, target)]
        for writer in writers:
            writer.start()
        store, _ = opened(PairFile(str(source), target=str(target)))
        for writer in writers:
            writer.join()
        assert every(store) == [Pair(x, x, f"{known}.csv:{n}") for n, x in ((1, "a"), (2, "b"))]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "gone.tsv: there is no such file"), ("", "gone.tsv: "), ("\n\n", "gone.tsv: "), ("a\tb\nc\n", "line 2")],
)
def test_a_bad_file_is_named_and_leaves_nothing(tmp_path, content, message):
    path = tmp_path / "gone.tsv"
    if content is not None:
        path.write_text(content)
    good = tsv(tmp_path / "good.tsv", [("a", "b")])
    with pytest.raises(DataError, match=message):
        opened(good, PairFile(str(path)))
    cache = Path(os.environ["HEEDFUL_CACHE"])
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_many_rows_are_shared_by_processes(tmp_path, monkeypatch):
    pairs = [(f"source {n % 900}  {n % 3}", f"target {n % 900}") for n in range(1000)]
    file = tsv(tmp_path / "pairs.tsv", pairs)
    alone, _ = opened(PairList(pairs, "pairs.tsv"))
    monkeypatch.setattr(store_module, "CHUNK", 100)
    monkeypatch.setattr("heedful.data.workers.cores", lambda: 2)
    seen: list[tuple[int, str]] = []
    shared, _ = open_store([file], DataConfig(), print, lambda done, what: seen.append((done, what)))
    assert every(shared) == every(alone)
    assert shared.report == alone.report
    assert shared.report.counts == {"extra spaces": 1000, "duplicate": 100}
    assert [a.tolist() for a in shared.split[:3]] == [a.tolist() for a in alone.split[:3]]
    assert seen == [(n, "pairs read and cleaned") for n in range(100, 1001, 100)]
