"""Token ids on disk: those of the codec, for all pairs that are not too long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import DataConfig, TextConfig
from heedful.data import PairFile, PairList
from heedful.data import corpus as tokens_module
from heedful.data.corpus import Corpus, StoredTokens, tokenize
from heedful.data.store import StoreRows, open_store
from heedful.text import Codec

SENTENCES = [
    "the cat sat on the mat",
    "a dog",
    "घर में पानी है",
    "what a long long sentence this is",
    "x",
    "no no no",
]
CODECS = tuple(Codec.train(SENTENCES, TextConfig(size=size)) for size in (60, 80))
PAIRS = st.lists(st.tuples(st.sampled_from(SENTENCES), st.sampled_from(SENTENCES)), min_size=1, max_size=20)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path_factory.mktemp("cache")))


def nothing(*_: object) -> None:
    pass


def chosen_of(source: PairFile | PairList) -> StoreRows:
    store, _ = open_store([source], DataConfig(duplicates="keep", max_ratio=1e9), nothing, nothing)
    return StoreRows(store, store.split.first, "first")


def cut(chosen: StoreRows, config: TextConfig, seed: int = 1, codecs=CODECS) -> StoredTokens:
    return tokenize(chosen, codecs, config, seed, nothing, nothing)


def sides(corpus: Corpus, epoch: int = 0) -> list[list[list[int]]]:
    return [[[i for i in row if i] for row in side.tolist()] for side in corpus.sides(np.arange(len(corpus)), epoch)]


@settings(deadline=None, max_examples=40)
@given(PAIRS, st.integers(3, 20))
def test_the_ids_are_those_of_the_codecs(pairs, most):
    pairs = [("x", "x"), *pairs]
    wanted = [tuple(codec.ids([text])[0] for codec, text in zip(CODECS, pair, strict=True)) for pair in pairs]
    short = [n for n, ids in enumerate(wanted) if max(map(len, ids)) <= most]
    found = cut(chosen_of(PairList(pairs)), TextConfig(max_length=most))
    corpus = found.corpus
    assert len(corpus) == len(short)
    assert sides(corpus) == sides(corpus, 7) == [[list(wanted[n][side]) for n in short] for side in (0, 1)]
    assert corpus.lengths().tolist() == [[len(side) for side in wanted[n]] for n in short]
    assert [corpus.pair(n)[:2] for n in range(len(corpus))] == [pairs[n] for n in short]
    assert [corpus.where(n) for n in range(len(corpus))] == [f"pairs:{n + 1}" for n in short]
    assert found.left_out == len(pairs) - len(short)
    assert found.longest == max(len(ids) for pair in wanted for ids in pair)


def test_what_tokens_depend_on(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{x}\t{x}\n" for x in SENTENCES), encoding="utf-8")
    chosen = chosen_of(PairFile(str(path)))
    config = TextConfig(max_length=50)
    assert not cut(chosen, config).cached
    assert cut(chosen, config).cached
    assert cut(chosen, config, seed=2).cached
    assert not cut(chosen, TextConfig(max_length=9)).cached
    assert not cut(chosen, config, codecs=CODECS[::-1]).cached
    assert not cut(StoreRows(chosen.store, chosen.rows[:2], "training"), config).cached
    assert not cut(chosen, TextConfig(max_length=50, regularise=0.1)).cached
    assert cut(chosen, TextConfig(max_length=50, regularise=0.1), seed=2).cached
    assert sides(cut(chosen, config).corpus)[0] == [list(ids) for ids in CODECS[0].ids(SENTENCES)]


def test_tokens_of_pairs_in_memory_last_as_long_as_the_corpus():
    corpus = cut(chosen_of(PairList([("a dog", "x")])), TextConfig()).corpus
    assert sides(corpus)[0] == [list(CODECS[0].ids(["a dog"])[0])]
    assert corpus.pair(0)[:2] == ("a dog", "x")


def test_regularised_tokens_are_other_cuts_of_the_same_text():
    pairs = [(x, y) for x in SENTENCES for y in SENTENCES]
    found = cut(chosen_of(PairList(pairs)), TextConfig(max_length=100, regularise=0.5))
    corpus = found.corpus
    epochs = [sides(corpus, epoch) for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert sides(corpus, 1) == epochs[1]
    for epoch, found_sides in enumerate(epochs):
        assert corpus.lengths(epoch).tolist() == [[len(x), len(y)] for x, y in zip(*found_sides, strict=True)]
        for codec, rows, texts in zip(CODECS, found_sides, zip(*pairs, strict=True), strict=True):
            assert [codec.decode(row) for row in rows] == [codec.decode(ids) for ids in codec.ids(texts)]
    other = cut(chosen_of(PairList(pairs)), TextConfig(max_length=100, regularise=0.5), seed=2)
    assert sides(other.corpus) != epochs[0]


@pytest.mark.parametrize("regularise", [0.0, 0.3])
def test_many_rows_are_shared_by_processes(monkeypatch, regularise):
    chosen = chosen_of(PairList([(x, y) for x in SENTENCES for y in SENTENCES] * 3))
    config = TextConfig(max_length=12, regularise=regularise)
    alone = cut(chosen, config)
    monkeypatch.setattr(tokens_module, "CHUNK", 10)
    monkeypatch.setattr("heedful.data.workers.cores", lambda: 2)
    seen: list[tuple[int, str]] = []
    shared = tokenize(chosen, CODECS, config, 1, nothing, lambda done, what: seen.append((done, what)))
    assert sides(shared.corpus) == sides(alone.corpus)
    assert shared[1:] == alone[1:]
    assert shared.left_out > 0
    assert [done for done, what in seen if what == "pairs tokenized"] == [*range(10, 101, 10), 108]


def test_large_vocabularies_have_wide_ids(monkeypatch):
    class Large:
        """A codec with more tokens than 16 bits can tell apart."""

        def __len__(self) -> int:
            return 70_000

        def dump(self) -> str:
            return "large"

        def ids_and_lengths(self, texts):
            return np.full(len(texts), 69_999, np.int32), np.ones(len(texts), np.int32)

    monkeypatch.setattr(Codec, "parse", lambda dump: Large())
    corpus = cut(chosen_of(PairList([("a", "b"), ("c", "d")])), TextConfig(), codecs=(Large(), Large())).corpus
    assert corpus.source.ids.dtype == np.uint32
    assert sides(corpus)[1] == [[69_999], [69_999]]
