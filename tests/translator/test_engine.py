"""heedful/translator/engine.py: CTranslate2 decodes the words of heedful's own decoding; heedful re-reads them."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import copies
from random_translators import fits, random_folder, random_parts

import heedful
from heedful.errors import ConfigError
from heedful.files import cache_folder
from heedful.translator.engine import ENGINES, ROWS
from heedful.translator.translation import DecodedBy, Translation

pytest.importorskip("ctranslate2")

SETTINGS = {
    "model": {"family": "transformer", "width": 32, "heads": 2, "inner": 64, "layers": 1, "dropout": 0.0},
    "text": {"kind": "word"},
    "training": {
        "steps": 160, "warmup": 20, "valid_every": 160, "valid_pairs": 20, "batch_tokens": 512, "device": "cpu",
        "rate": 0.01, "threads": 1, "smoothing": 0.0,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("engine") / "model"
    heedful.train(copies(longest=6), out, settings=SETTINGS)
    return out


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def own(model: Path) -> heedful.Translator:
    return heedful.load(model, "cpu", threads=1)


@pytest.fixture(scope="module")
def fast(model: Path, cache: None) -> heedful.Translator:
    return heedful.load(model, "cpu", threads=1, engine="ctranslate2")


def lines(count: int, seed: int = 7) -> list[str]:
    pick = random.Random(seed)
    return [" ".join(pick.choices("abcdefgh", k=pick.randint(1, 7))) for _ in range(count)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"beam": 4, "penalty": "none"},
        {"max_length": 3},
        {"min_length": 6},
        {"no_repeat": 1},
        {"no_repeat": 2},
        {"prefix": "B A"},
    ],
    ids=str,
)
def test_the_words_and_scores_are_those_of_heedful(own, fast, how):
    texts = lines(3 * ROWS + 5)
    mine, theirs = (one.translate(texts, trace=False, **how) for one in (own, fast))
    assert len({one.text for one in mine}) > 20
    assert [one.text for one in theirs] == [one.text for one in mine]
    assert [one.notes for one in theirs] == [one.notes for one in mine]
    # <pad> has no share in the softmax of CTranslate2.
    np.testing.assert_allclose([one.score for one in theirs], [one.score for one in mine], atol=0.1)


def test_a_beam_ends_earlier_with_nearly_the_same_words(own, fast):
    texts = lines(100)
    mine, theirs = (one.translate(texts, trace=False, beam=4) for one in (own, fast))
    other = [(a, b) for a, b in zip(mine, theirs, strict=True) if a.text != b.text]
    assert len(other) <= 8
    for a, b in other:  # heedful's search goes on until nothing better can follow
        assert a.score / a.length > b.score / b.length - 1e-3


def test_traces_are_those_of_the_same_words(own, fast):
    texts = lines(40)
    mine, theirs = (one.translate(texts) for one in (own, fast))
    for a, b in zip(mine, theirs, strict=True):
        assert b.text == a.text
        np.testing.assert_allclose(b.trace.weights, a.trace.weights, atol=1e-5)
        np.testing.assert_allclose(b.trace.log_probs, a.trace.log_probs, atol=1e-4)
        assert b.score == pytest.approx(a.score, abs=1e-3)
        assert str(b.alignment) == str(a.alignment)
        fits(b.trace, a.source, a.text)
    assert theirs[0].engine == ("ctranslate2", "float32", "heedful")
    assert mine[0].engine is None


def test_links_need_no_log_probabilities(own, fast):
    texts = lines(10)
    for a, b in zip(own.translate(texts), fast.translate(texts, trace="alignment"), strict=True):
        assert str(b.alignment) == str(a.alignment)
        assert b.trace.weights is None
        assert not b.trace.scored
        assert b.score == pytest.approx(a.score, abs=0.1)
        assert b.engine == ("ctranslate2", "float32", "ctranslate2")
        record = json.loads(json.dumps(b.plain(), allow_nan=False))
        assert record["word_confidences"] is None
        assert heedful.Trace.build(b.trace.plain()).plain() == b.trace.plain()
        b.show()  # without a column of confidences


def test_links_of_a_cut_translation_have_its_score(own, fast):
    (a,), (b,) = (one.translate(["a b c d e f g h a"], trace="alignment", max_length=3) for one in (own, fast))
    assert (b.text, b.notes) == (a.text, a.notes)
    assert b.score == pytest.approx(a.score, abs=1e-3)
    assert b.engine.score == "heedful"


def test_n_best_are_different_and_ordered(own, fast):
    for one in fast.translate(lines(20), beam=5, n_best=3, penalty="none", trace="links"):
        assert len({each.text for each in one.n_best}) == len(one.n_best) == 3
        scores = np.array([each.score for each in one.n_best])
        assert (np.diff(scores) < 0.02).all()  # they are in the order of CTranslate2, with scores of heedful
        assert one.text == one.n_best[0].text
    mine, theirs = (t.translate("a b c", beam=5, n_best=3, penalty="none", trace=False) for t in (own, fast))
    assert [one.text for one in theirs.n_best] == [one.text for one in mine.n_best]


def test_blank_and_long_texts(own, fast):
    texts = ["", "  ", "a b. c d! e f?", " ".join("abcdefgh" * 60), "\n"]
    mine, theirs = (one.translate(texts, trace="links") for one in (own, fast))
    assert [one.text for one in theirs] == [one.text for one in mine]
    assert [one.notes for one in theirs] == [one.notes for one in mine]
    assert theirs[0].engine is None  # nothing was decoded
    assert fast.translate([]) == []


def test_progress_and_batches(fast):
    seen: list[tuple[int, int]] = []
    texts = lines(ROWS + 10)
    whole = fast.translate(texts, trace=False, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(ROWS, ROWS + 10), (ROWS + 10, ROWS + 10)]
    small = fast.translate(texts, trace=False, batch_tokens=20)
    assert [one.text for one in small] == [one.text for one in whole]


def test_unknown_words_are_copied(own, fast):
    texts = ["a zzz b", "zzz", "a b"]
    mine, theirs = (one.translate(texts, copy_unknown=True, trace=False) for one in (own, fast))
    assert [one.text for one in theirs] == [one.text for one in mine]


def test_int8_is_named_in_records_and_figures(model, tmp_path):
    small = heedful.load(model, "cpu", threads=1, engine="ctranslate2", int8=True)
    one = small.translate("a b c d. e f g")
    assert one.plain()["engine"] == {"name": "ctranslate2", "precision": "int8", "score": "heedful"}
    one.save(tmp_path / "x.svg")
    one.save(tmp_path / "x.json")
    caption = "decoded by CTranslate2 int8, attention by heedful fp32"
    drawn = re.sub(r"<[^>]*>", " ", (tmp_path / "x.svg").read_text())
    assert caption in " ".join(drawn.split())
    assert caption in heedful.Trace.build(json.loads((tmp_path / "x.json").read_text())).readout_caption
    assert "engine" not in heedful.load(model, "cpu").translate("a b").plain()
    parts = [Translation("a", "A", -1.0, 2, engine=DecodedBy("ctranslate2", "int8", by)) for by in ENGINES]
    assert Translation.join("a a", [(0, 1), (2, 3)], parts).engine.score == "ctranslate2 and heedful"


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ({"sample": True}, "sample"),
        ({"beam": 2, "penalty": "gnmt"}, "penalty is gnmt"),
        ({"max_length": 5000}, "max_length is 5,000"),
    ],
)
def test_settings_that_it_does_not_have_are_refused_by_name(fast, how, what):
    with pytest.raises(ConfigError, match=what):
        fast.translate("a b", **how)


def test_streams_and_other_models_are_refused_by_name(model, fast, tmp_path):
    with pytest.raises(ConfigError, match="stream"):
        next(fast.stream("a b"))
    with pytest.raises(ConfigError, match=r"model\.family is rnn"):
        heedful.load(random_folder(tmp_path / "rnn", "rnn"), "cpu", engine="ctranslate2")
    with pytest.raises(ConfigError, match="ensemble"):
        heedful.load([model, model], "cpu", engine="ctranslate2")
    with pytest.raises(ConfigError, match="unknown engine 'ctranslate'"):
        heedful.load(model, "cpu", engine="ctranslate")
    with pytest.raises(ConfigError, match="int8 needs the engine ctranslate2"):
        heedful.load(model, "cpu", int8=True)


def test_the_conversion_is_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    converted: list[bool] = []
    from heedful.translator import engine

    plain = engine.save_converted
    monkeypatch.setattr(engine, "save_converted", lambda *given: (converted.append(given[2]), plain(*given)))

    def opened(seed: int = 1, int8: bool = False) -> heedful.Translator:
        return heedful.Translator(random_parts("transformer", seed=seed)).use_engine("ctranslate2", int8)

    first = opened()
    opened()
    assert converted == [False]
    opened(int8=True)
    assert converted == [False, True]
    opened(seed=2)
    assert len(converted) == 3
    assert {folder for folder in tmp_path.iterdir() if not folder.name.startswith(".")} >= {first.engine.files.folder}
    # A damaged file is noticed, and the model converted again.
    (first.engine.files.folder / "model.bin").write_bytes(
        b"x" * (first.engine.files.folder / "model.bin").stat().st_size
    )
    assert opened().translate("a b", trace=False).text == first.translate("a b", trace=False).text
    assert len(converted) == 4


def test_threads_convert_once(tmp_path, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    texts: list[str] = []
    parts = random_parts("transformer")

    def work() -> None:
        translator = heedful.Translator(parts).use_engine("ctranslate2")
        texts.append(translator.translate("a b c", trace=False).text)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert len([folder for folder in cache_folder().iterdir() if not folder.name.startswith(".")]) == 1


def test_a_missing_package_is_named_with_its_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"CTranslate2 is needed.*\[fast\]"):
        heedful.load(model, "cpu", engine="ctranslate2")


def test_the_engine_follows_the_device(model):
    translator = heedful.load(model, "cpu", engine="ctranslate2", int8=True)
    before = translator.engine
    translator.to("cpu")
    assert translator.engine is not before
    assert translator.engine.precision == "int8"
    assert translator.use_engine("heedful").engine is None
