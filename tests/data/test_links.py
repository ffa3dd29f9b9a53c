"""Given links: read and clean_links, kept with their pairs, and projected to the tokens of every cut."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import DataConfig, TextConfig
from heedful.data import PairFile, PairList, Raw, clean
from heedful.data import store as store_module
from heedful.data.batches import Batches
from heedful.data.corpus import tokenize
from heedful.data.links import CorpusLinks, LinkChunk, as_lines, clean_links, word_sizes
from heedful.data.store import Store, StoreRows, open_store
from heedful.errors import DataError
from heedful.text import START, Codec

SENTENCES = ["the cat sat on the mat", "a dog", "घर में पानी है", "what a long long sentence", "x", "no no, no!"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path_factory.mktemp("cache")))


def nothing(*_: object) -> None:
    pass


def opened(*files: PairFile | PairList, config: DataConfig = DataConfig()) -> Store:  # noqa: B008
    return open_store(files, config, nothing, nothing)[0]


def every(store: Store) -> list[list[tuple[int, int]]]:
    flat, counts = store.links(np.arange(len(store)))
    return [[tuple(link) for link in part.tolist()] for part in np.split(flat, np.cumsum(counts)[:-1])]


def write(folder: Path, pairs: str, links: str) -> PairFile:
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    (folder / "links.txt").write_text(links, encoding="utf-8")
    return PairFile(str(folder / "pairs.tsv"), links=str(folder / "links.txt"))


def test_links_stay_with_their_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "CHUNK", 2)
    pairs = "a b\tA B\n\none\t\nc d\tC D\na b\tA B\ne\tE\n"
    store = opened(write(tmp_path, pairs, "0-1 1-0\n\n0-0\n1-1\n0-0\n\n"))
    assert [store.pair(row).target for row in range(len(store))] == ["A B", "C D", "A B", "E"]
    assert store.linked
    assert every(store) == [[(0, 1), (1, 0)], [(1, 1)], [(0, 0)], []]
    assert store.links(np.array([3, 1]))[0].tolist() == [[1, 1]]


def test_of_pairs_that_come_again_the_first_links_count_and_that_is_said(tmp_path):
    told = "of repeated pairs, the links of the first are used"
    pairs = "a b\tA B\nc\tC\na b\tA B\na b\tA B\nc\tC\n"
    store = opened(write(tmp_path, pairs, "0-0 1-1\n0-0\n0-0 1-1\n0-1 1-0\n\n"))
    assert f"{told}; 2 had other links, first pairs.tsv:4" in store.report.lines()
    assert store.links(store.split.first)[0].tolist() == [[0, 0], [1, 1], [0, 0]]
    store = opened(write(tmp_path, pairs, "0-0 1-1\n0-0\n0-0 1-1\n1-1 0-0\n0-0\n"))
    assert f"{told}; all others have the same" in store.report.lines()
    # Without links, without pairs that come again, and where these are kept, there is nothing to say.
    kept = opened(write(tmp_path, pairs, "0-0\n\n\n\n\n"), config=DataConfig(duplicates="keep"))
    once = opened(write(tmp_path, "a\tA\n", "0-0\n"))
    bare = opened(PairFile(str(write(tmp_path, pairs, "").path)))
    assert not any(told in line for store in (kept, once, bare) for line in store.report.lines())


def test_files_without_links_may_stand_beside_one_with(tmp_path):
    one = write(tmp_path, "a b\tA B\n", "0-1\n")
    store = opened(PairList([("x", "X"), ("y", "Y")]), one, PairList([("z", "Z")], links=["0-0"]))
    assert every(store) == [[], [], [(0, 1)], [(0, 0)]]
    assert not opened(PairList([("x", "X")])).linked


def test_other_links_are_another_store(tmp_path):
    one = opened(write(tmp_path, "a b\tA B\n", "0-1\n"))
    other = opened(write(tmp_path, "a b\tA B\n", "0-0\n"))
    without = opened(PairFile(str(tmp_path / "pairs.tsv")))
    assert len({one.key, other.key, without.key}) == 3
    assert every(other) == [[(0, 0)]]


def test_links_from_a_pipe(tmp_path):
    file = write(tmp_path, "a b\tA B\n", "")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("0-1\n"))
    writer.start()
    assert every(opened(PairFile(file.path, links=str(pipe)))) == [[(0, 1)]]
    writer.join()


@pytest.mark.parametrize(
    ("links", "wanted"),
    [
        ("0-0\n2-0\n", r"links.txt, line 2: the link '2-0' points past the end of the source, which has 2 words, "
         r"counted from 0; does the file count from 1\?"),
        ("0-0\n0-5\n", r"links.txt, line 2: the link '0-5' points past the end of the target, which has 1 word, "
         r"counted from 0$"),
        ("0-0\n0-1\n", r"links.txt, line 2: the link '0-1' points past the end of the target, which has 1 word, "
         r"counted from 0; source and target seem to be swapped: the links fit as target-source$"),
        ("0-0 0-9\n0-1\n", r"links.txt, line 1: the link '0-9' points past the end of the target, which has . words?, "
         r"counted from 0$"),
        ("0-0\n0:0\n", r"links.txt, line 2: expected links such as '0-0 1-2', .* found '0:0'"),
        ("0-0\n", r"links.txt: only 1 lines, but more pairs in .*pairs.tsv"),
        ("0-0\n\n0-0\n", r"links.txt, line 3: no pair for these links; 2 pairs in .*pairs.tsv"),
    ],
)  # fmt: skip
def test_wrong_links_are_refused_with_their_line(links, wanted, tmp_path):
    with pytest.raises(DataError, match=wanted):
        opened(write(tmp_path, "a b\tA B\nc d\tCD\n", links))


def test_links_that_are_not_there(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"no\.txt: there is no such file"):
        opened(PairFile(str(tmp_path / "pairs.tsv"), links=str(tmp_path / "no.txt")))


def test_cleaning_moves_links_with_their_words():
    """A word that cannot be seen is gone, one with a zero width space in it is two."""
    raw = [Raw(1, "\ufeff a\u00a0b \u200e c", "A\u200bB  C\r"), Raw(2, "", "x"), Raw(3, "d", "D")]
    found = clean(raw, "pairs", DataConfig())
    flat, counts = clean_links(LinkChunk("links", 1, ["0-0 1-0 2-1 3-1 4-1", "0-0", "0-0"]), raw, found)
    assert (found.sources[0], found.targets[0]) == ("a b c", "A B C")
    assert flat.tolist() == [[0, 0], [0, 1], [1, 2], [2, 2], [0, 0]]
    assert counts.tolist() == [4 + 0, 1]


PIECES = st.sampled_from(
    ["a", "é", "e\u0301", "घर", " ", "\u00a0", "\u200b", "\ufeff", "\u200e", "\x07", "\r", "\u0301"]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_no_word_is_lost_on_the_way(text):
    """Every word of a clean text comes from exactly one word of the text as it was, in order."""
    raw = [Raw(1, text, "x")]
    found = clean(raw, "pairs", DataConfig())
    words = text.split()
    if found.sources:
        links = " ".join(f"{i}-0" for i in range(len(words)))
        flat, _ = clean_links(LinkChunk("links", 1, [links]), raw, found)
        assert flat[:, 0].tolist() == list(range(len(found.sources[0].split())))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "sentencepiece"])
def test_sizes_of_words_are_those_of_their_tokens(kind):
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece")
    codec = Codec.train(SENTENCES * 5, TextConfig(kind=kind, size=60))
    texts = [*SENTENCES, "cats sat, qqq 9 dogs!", "▁ a▁b"]
    sizes, counts = word_sizes(codec, texts)
    assert counts.tolist() == [len(text.split()) for text in texts]
    rows = np.split(sizes, np.cumsum(counts)[:-1])
    for text, row in zip(texts, rows, strict=True):
        assert row.sum() == len(codec.encode(text).ids) - 1
        if "▁" not in text:
            assert row.tolist() == [len(codec.encode(word).ids) - 1 for word in text.split()]


def slow_links(codecs, pair, links, ids) -> set[tuple[int, int]]:
    """Token links of a pair by hand: which tokens, joined, are which word."""
    owners = []
    for codec, text, row in zip(codecs, pair, ids, strict=True):
        words, at, own = text.split(" "), -1, []
        for token in (codec.token(i) for i in row):
            at += token.startswith("▁")
            own.append(at)
        assert at == len(words) - 1
        owners.append(own)
    return {
        (t, s) for t, y in enumerate(owners[1]) for s, x in enumerate(owners[0]) if (x, y) in links
    }  # fmt: skip


@pytest.mark.parametrize("regularise", [0.0, 0.5])
def test_links_between_tokens(regularise):
    """In every epoch the links are between all tokens of the words, however these are cut."""
    pick = random.Random(1)
    texts = [s for s in SENTENCES if s.isascii()]
    codecs = tuple(Codec.train(texts, TextConfig(size=size)) for size in (60, 30))
    pairs = [tuple(pick.choices(texts, k=2)) for _ in range(30)]
    words = [[len(side.split()) for side in pair] for pair in pairs]
    links = [{(pick.randrange(n), pick.randrange(m)) for _ in range(pick.randrange(5))} for n, m in words]
    lines = [" ".join(f"{i}-{j}" for i, j in one) for one in links]
    config = TextConfig(max_length=12, regularise=regularise)
    store = opened(PairList(pairs, links=lines), config=DataConfig(duplicates="keep", max_ratio=1e9))
    chosen = StoreRows(store, store.split.first, "first")
    corpus = tokenize(chosen, codecs, config, 1, nothing, nothing).corpus
    assert len(corpus) < len(pairs)  # some sentences are too long
    numbers = [int(corpus.where(row).split(":")[1]) - 1 for row in range(len(corpus))]
    batches = Batches(corpus, start=START, tokens=400, sentences=9, seed=1)
    seen = set()
    for epoch in range(3):
        for rows in batches.epoch(epoch):
            batch = batches.batch(rows, epoch)
            B, T, S = batch.y.shape[0], batch.y.shape[1] - 1, batch.x.shape[1]
            b, t, s = np.unravel_index(batch.links.numpy(), (B, T, S))
            for n, row in enumerate(rows):
                ids = [[i for i in side.tolist() if i > 3 or i == 1] for side in (batch.x[n], batch.y[n])]
                wanted = slow_links(codecs, pairs[numbers[row]], links[numbers[row]], ids)
                assert {(int(y), int(x)) for y, x in zip(t[b == n], s[b == n], strict=True)} == wanted
                seen.add((int(row), *map(len, ids)))
    assert (len(seen) > len(corpus)) == (regularise > 0)


def test_fixed_batches_have_few_shapes_and_shares_have_their_own_links():
    pairs = [(f"a{i} b", f"A B{i}") for i in range(12)]
    store = opened(PairList(pairs, links=["0-1 1-0"] * 12))
    chosen = StoreRows(store, store.split.first, "first")
    codec = Codec.train([text for pair in pairs for text in pair], TextConfig(kind="word", size=100))
    corpus = tokenize(chosen, (codec, codec), TextConfig(), 1, nothing, nothing).corpus
    batches = Batches(corpus, start=START, tokens=400, sentences=16, seed=1)
    rows = np.arange(5)
    plain = batches.batch(rows)
    assert plain.links.tolist() == [9 * n + place for n in range(5) for place in (3, 1)]
    fixed = batches.batch(rows, fixed=True)
    B, T, S = fixed.y.shape[0], fixed.y.shape[1] - 1, fixed.x.shape[1]
    assert len(fixed.links) == B * T
    assert fixed.links[:2].tolist() == [S, 1]
    assert fixed.links[10:].unique().tolist() == [B * T * S]
    share = batches.batch(rows, rank=1, world=2)
    assert share.links.tolist() == [9 * n + place for n in range(2) for place in (3, 1)]
    assert batches.batch(rows[:1], rank=1, world=2).links.tolist() == []


def test_links_in_memory_that_are_none():
    with pytest.raises(DataError, match=r"'links\.txt', expected"):
        as_lines("links.txt")
    with pytest.raises(DataError, match=r"the links of pair 2 are \[3\], expected '0-0 1-2' or"):
        as_lines(["", [3]])


def test_words_without_links_are_counted_where_there_are_some(monkeypatch):
    links = CorpusLinks.of(
        (np.array([[0, 2], [1, 2], [0, 0], [0, 1], [1, 0]]), np.array([2, 0, 1, 2])),
        (np.ones(8, np.int64), np.array([2, 2, 2, 2])),
        (np.ones(10, np.int64), np.array([3, 4, 1, 2])),
    )
    for many in (1, 2, 3, 100):
        monkeypatch.setattr("heedful.data.links.CHUNK", many)
        assert links.unlinked() == (2, 6)  # two of the first pair's three; the second pair has no links at all


def test_more_links_than_tokens():
    links = CorpusLinks.of(
        (np.array([[x, y] for x in range(3) for y in range(2)]), np.array([6])),
        (np.array([1, 2, 1]), np.array([3])),
        (np.array([1, 1]), np.array([2])),
    )
    row, t, s = links.tokens(np.array([0]), (None, None))
    assert sorted(zip(t.tolist(), s.tolist(), strict=True)) == [(t, s) for t in range(2) for s in range(4)]
    assert row.tolist() == [0] * 8
