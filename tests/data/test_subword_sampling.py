"""Words that are cut differently in every epoch: from the seed, the epoch and the place alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import TextConfig
from heedful.data import corpus as subword_sampling
from heedful.data.corpus import RARE_WAYS, WAYS, ResampledTokens, Table, WordLexicon, draw_table
from heedful.text import END, Codec

TEXTS = [
    *(f"{a}ing {b}ing the {b}{a} understanding." for a in ("walk", "talk", "jump") for b in ("look", "play", "need")),
    "",
    "standing under 東京へ行く the understanding",
    *["the the looking"] * 3,
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def codec(request):
    return Codec.train(TEXTS, TextConfig(kind=request.param, size=120))


def side(codec: Codec, texts: list[str], rate: float = 0.2, seed: int = 1, most: int = 1000) -> ResampledTokens:
    """One side of a corpus, gathered piece by piece as it is when the data is large."""
    lexicon = WordLexicon()
    flat, lengths = [], [np.zeros(0, np.int32)]
    for begin in range(0, len(texts), 4):
        words, indices, counts = codec.numbered(texts[begin : begin + 4])
        flat.append(lexicon.add(words, indices))
        lengths.append(counts)
    table = draw_table(codec, lexicon.words, lexicon.counts, rate, seed)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.uint64)
    return ResampledTokens(np.concatenate(flat), offsets, table, seed=seed, side="source", most=most)


def rows(corpus: ResampledTokens, indices: list[int], epoch: int | None) -> list[tuple[int, ...]]:
    ids, lengths = corpus.rows(np.array(indices, np.int64), epoch)
    return [tuple(part.tolist()) for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_the_plain_way_is_the_codecs(codec):
    corpus = side(codec, TEXTS)
    assert len(corpus) == len(TEXTS)
    assert rows(corpus, list(range(len(TEXTS))), None) == codec.ids(TEXTS)
    assert corpus.lengths(None).tolist() == [len(row) for row in codec.ids(TEXTS)]


def test_every_epoch_says_the_same_in_other_pieces(codec):
    corpus = side(codec, TEXTS)
    plain = [codec.decode(row) for row in codec.ids(TEXTS)]
    seen = set()
    for epoch in range(6):
        found = rows(corpus, list(range(len(TEXTS))), epoch)
        assert [codec.decode(row) for row in found] == plain
        assert all(row[-1] == END and END not in row[:-1] for row in found)
        assert corpus.lengths(epoch).tolist() == [len(row) for row in found]
        seen.add(tuple(found))
    assert len(seen) == 6
    # The same words at other places are cut in other ways.
    assert len({found for epoch in range(6) for found in rows(corpus, [11, 12, 13], epoch)}) > 2


def test_any_row_at_any_time(codec):
    corpus, again = side(codec, TEXTS), side(codec, TEXTS)
    whole = rows(corpus, list(range(len(TEXTS))), 7)
    assert rows(again, [9, 2, 2, 0], 7) == [whole[9], whole[2], whole[2], whole[0]]
    assert rows(corpus, [5], 7) == [whole[5]]
    other = ResampledTokens(corpus.words, corpus.offsets, corpus.table, seed=1, side="target", most=1000)
    assert rows(other, list(range(len(TEXTS))), 7) != whole
    assert rows(side(codec, TEXTS, seed=2), list(range(len(TEXTS))), 7) != whole


def test_blocks_do_not_matter(codec, monkeypatch):
    corpus = side(codec, TEXTS)
    whole = corpus.lengths(3).tolist()
    for block in (1, 2, 7, 50):
        monkeypatch.setattr(subword_sampling, "BLOCK", block)
        assert corpus.lengths(3).tolist() == whole


def test_what_would_be_too_long_is_cut_plainly(codec):
    most = int(side(codec, TEXTS).lengths(None).max())
    free, bound = (side(codec, TEXTS, rate=0.2, most=limit) for limit in (1000, most))
    everything, long = list(range(len(TEXTS))), 0
    for epoch in range(4):
        found, drawn = rows(bound, everything, epoch), rows(free, everything, epoch)
        assert bound.lengths(epoch).tolist() == [len(row) for row in found]
        expected = zip(drawn, codec.ids(TEXTS), strict=True)
        assert found == [plain if len(row) > most else row for row, plain in expected]
        long += sum(len(row) > most for row in drawn)
    assert 0 < long < 4 * len(TEXTS)


def test_rare_words_have_fewer_ways(codec):
    table = draw_table(codec, ["▁the", "▁standing"], np.array([4, 3]), 0.2, 1)
    assert np.diff(table.starts).tolist() == [1 + WAYS, 1 + RARE_WAYS]
    assert table.ids.dtype == np.uint16
    assert len(table.offsets) == table.starts[-1] + 1
    assert table.offsets[-1] == len(table.ids)
    alone = draw_table(codec, ["▁standing"], np.array([3]), 0.2, 1)
    assert table.ids[table.offsets[1 + WAYS] :].tolist() == alone.ids.tolist()


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=6), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_by_a_plain_loop(sentences, epoch):
    """Arrays against lists: the ways to cut four words are made up, with their number and way in each id."""
    ways = [[(100 * word + way,) * (1 + (word + way) % 3) for way in range(3 + word)] for word in range(4)]
    flat = [way for word in ways for way in word]
    table = Table(
        np.array([i for way in flat for i in way], np.uint16),
        np.cumsum([0, *map(len, flat)]).astype(np.uint32),
        np.cumsum([0, *map(len, ways)]).astype(np.uint32),
    )
    words = np.array([word for sentence in sentences for word in sentence], np.uint32)
    offsets = np.cumsum([0, *map(len, sentences)]).astype(np.uint64)
    corpus = ResampledTokens(words, offsets, table, seed=5, side="source", most=8)
    for i, (row, sentence) in enumerate(zip(rows(corpus, list(range(len(sentences))), epoch), sentences, strict=True)):
        assert row[-1] == END
        assert corpus.lengths(epoch)[i] == len(row)
        at, drawn = 0, set()
        for word in sentence:  # each word begins with an id of its own, which says how long it is
            way = row[at] - 100 * word
            assert row[at : at + len(ways[word][way])] == ways[word][way]
            at += len(ways[word][way])
            drawn.add(way)
        assert at == len(row) - 1
        assert 0 not in drawn or drawn == {0}


def test_from_the_disk(codec, tmp_path):
    corpus = side(codec, TEXTS)
    arrays = {"words": corpus.words, "sentences": corpus.offsets, **corpus.table._asdict()}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    read = {path.stem: np.load(path, mmap_mode="r") for path in tmp_path.glob("*.npy")}
    table = Table(read["ids"], read["offsets"], read["starts"])
    mapped = ResampledTokens(read["words"], read["sentences"], table, seed=1, side="source", most=1000)
    assert rows(mapped, list(range(len(TEXTS))), 2) == rows(corpus, list(range(len(TEXTS))), 2)
    assert mapped.lengths(2).tolist() == corpus.lengths(2).tolist()
    assert type(mapped.lengths(2)) is np.ndarray
