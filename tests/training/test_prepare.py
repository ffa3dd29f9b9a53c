"""From files to batches: what is said, what is held out, what is found again."""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, copies

from heedful.config import Config
from heedful.data import PairFile, PairList
from heedful.data.store import hashes, split
from heedful.errors import DataError
from heedful.text import Codec
from heedful.training import prepare as prepare_module
from heedful.training.callbacks import Reporter
from heedful.training.prepare import Inputs, PairSets, TrainingData, learn_codecs, open_pairs, prepare


class Listener(Reporter):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.steps: list[tuple[int, str]] = []

    def log(self, message: str) -> None:
        self.said.append(message)

    def preparing(self, done: int, what: str) -> None:
        self.steps.append((done, what))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path_factory.mktemp("cache")))


SENTENCES = [f"number {n} is {n * n}" for n in range(300)]
PAIRS = [(s, s.upper()) for s in SENTENCES]


def config(**sections: dict[str, object]) -> Config:
    return Config.build({**sections, "text": {"kind": "word", **sections.get("text", {})}})


def write(path: Path, pairs=PAIRS) -> PairFile:
    path.write_text("".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
    return PairFile(str(path))


def opened(*files: PairFile | PairList, valid=(), strict=False, settings: Config | None = None):
    listener = Listener()
    return open_pairs(Inputs(files, tuple(valid), strict), settings or config(), listener), listener.said


def texts(found: PairSets) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    return tuple([chosen[n][:2] for n in range(len(chosen))] for chosen in (found.training, found.valid))


def all_of(found: PairSets, settings: Config | None = None) -> tuple[TrainingData, list[str]]:
    listener = Listener()
    settings = settings or config()
    return prepare(found, learn_codecs(found, settings, listener), settings, listener), listener.said


def test_pairs_are_held_out_by_their_hash():
    found, said = opened(PairList(PAIRS))
    wanted = split(hashes(*zip(*PAIRS, strict=True)), duplicates=False)
    assert texts(found) == tuple([PAIRS[row] for row in rows] for rows in (wanted.training, wanted.held))
    assert found.count == len(wanted.training)
    assert said == [
        "read 300 pairs",
        "the first pair: number 0 is 0 → NUMBER 0 IS 0",
        f"{len(wanted.training)} pairs for training, {len(wanted.held)} held out for validation",
    ]


def test_what_is_aside_is_said():
    found, said = opened(PairList(PAIRS), settings=config(training={"valid_pairs": 2}))
    aside = len(PAIRS) - found.count - 2
    assert len(found.valid) == 2
    assert said[-1].startswith(f"{aside} more pairs are not used ({aside / 300:.1%})")


def test_pairs_for_validation_stay_as_they_are():
    # Duplicates and odd lengths are somebody's choice; an empty side is none.
    valid = [("number 1 is 1", "x"), ("new", "y" * 100), ("new", "y" * 100), ("number 2 is 4", ""), ("four", "4")]
    found, said = opened(
        PairList(PAIRS), valid=[PairList(valid, "valid")], settings=config(training={"valid_pairs": 3})
    )
    assert texts(found) == (PAIRS, valid[:3])
    assert said == [
        "read 300 pairs",
        "validation: read 5 pairs, kept 4",
        "validation: dropped 1 pair: an empty side",
        "validation:   valid:4: 'number 2 is 4' → ''",
        "the first pair: number 0 is 0 → NUMBER 0 IS 0",
        "validation uses the first 3 of 4 pairs (training.valid_pairs)",
        "300 pairs for training, 3 for validation (1 of their sources are also in training, so scores are too high)",
    ]


def test_too_few_pairs_to_hold_some_out():
    with pytest.raises(DataError, match=r"too few .*\(2 different pairs\).*validation pairs"):
        opened(PairList([("a", "b"), ("a", "b"), ("a", "c")]))


def test_strict_refuses_pairs_that_are_not_clean(tmp_path):
    opened(write(tmp_path / "clean.tsv"), strict=True)
    with pytest.raises(DataError, match="strict"):
        opened(write(tmp_path / "again.tsv", [*PAIRS, PAIRS[0]]), strict=True)
    with pytest.raises(DataError, match="strict"):
        opened(write(tmp_path / "again.tsv", [*PAIRS, PAIRS[0]]), strict=True)  # now from the cache
    with pytest.raises(DataError, match="strict"):
        opened(write(tmp_path / "clean.tsv"), valid=[PairList([("a ", "b")])], strict=True)


def test_the_checksum_is_of_the_pairs_alone(tmp_path):
    found, _ = opened(write(tmp_path / "a.tsv"))
    with (tmp_path / "b.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *PAIRS])
    same = [opened(PairFile(str(tmp_path / "b.csv")))[0], opened(PairList(PAIRS))[0]]
    assert {one.digest for one in same} == {found.digest}
    others = [opened(PairList(PAIRS[1:])), opened(PairList(PAIRS[::-1]))]
    others.append(opened(PairList(PAIRS), valid=[PairList(PAIRS)]))
    assert len({found.digest, *(other.digest for other, _ in others)}) == 4


def test_the_second_start_reads_from_the_cache(tmp_path, monkeypatch):
    file = write(tmp_path / "pairs.tsv")
    first, before = opened(file)
    data, said = all_of(first)
    assert not any("cache" in message for message in [*before, *said])
    monkeypatch.setattr(PairFile, "rows", lambda self: pytest.fail("read again"))
    monkeypatch.setattr(Codec, "train", lambda *_: pytest.fail("learned again"))
    second, after = opened(file)
    assert re.fullmatch(r"these pairs are read from the cache \(\d\.\d s\)", after.pop(1))
    assert after == before
    again, said = all_of(second)
    assert len(said) == 1
    assert re.fullmatch(r"their tokens are read from the cache \(\d\.\d s\)", said[0])
    assert (again.digest, again.valid_pairs) == (data.digest, data.valid_pairs)
    for rows in data.batches.epoch(0):
        one, two = data.batches.batch(rows), again.batches.batch(rows)
        assert torch.equal(one.x, two.x)
        assert torch.equal(one.y, two.y)


def test_batches_hold_the_pairs():
    found, _ = opened(PairList(PAIRS))
    data, _ = all_of(found)
    codecs = learn_codecs(found, config(), Reporter())
    assert len(data.corpus) == found.count
    seen = []
    for rows in data.batches.epoch(0):
        batch = data.batches.batch(rows)
        for row, x, y in zip(rows, batch.x, batch.y[:, 1:], strict=True):
            pair = data.corpus.pair(row)
            assert [[i for i in side.tolist() if i] for side in (x, y)] == [
                list(codec.ids([text])[0]) for codec, text in zip(codecs, pair[:2], strict=True)
            ]
            seen.append(pair[:2])
    assert sorted(seen) == sorted(texts(found)[0])
    assert [pair[:2] for pair in data.valid_pairs] == texts(found)[1]
    assert sum(len(rows) for rows in data.valid_batches.epoch(0)) == len(found.valid)


def test_long_pairs_are_left_out():
    pairs = [*PAIRS, ("many " * 20, "many " * 5), ("quite a few of them", "many " * 30)]
    found, _ = opened(PairList(pairs), valid=[PairList([("a b", "c"), ("a " * 50, "a " * 50)])])
    data, said = all_of(found, config(text={"max_length": 10}))
    assert len(data.corpus) == 300
    assert len(data.valid_pairs) == 1
    assert said == [
        "left out 2 of 302 pairs with a side of more than 10 tokens (text.max_length; the longest has 31)",
        "left out 1 of 2 validation pairs with a side of more than 10 tokens (text.max_length; the longest has 51)",
    ]
    with pytest.raises(DataError, match="all pairs have a side of more than 2 tokens; raise text.max_length"):
        all_of(found, config(text={"max_length": 2}))


def test_one_vocabulary_for_both():
    found, _ = opened(PairList(PAIRS))
    source, target = learn_codecs(found, config(text={"joint": True}), Reporter())
    assert source is target
    assert {"▁is", "▁IS"} <= {source.token(n) for n in range(len(source))}
    source, target = learn_codecs(found, config(), Reporter())
    assert {"▁is", "▁IS"} & {source.token(n) for n in range(len(source))} == {"▁is"}
    assert {"▁is", "▁IS"} & {target.token(n) for n in range(len(target))} == {"▁IS"}


def test_vocabularies_are_learned_from_an_even_sample(monkeypatch):
    found, _ = opened(PairList(PAIRS), valid=[PairList([("a", "b")])])
    monkeypatch.setattr(prepare_module, "LEARNED", 30)
    seen = []
    monkeypatch.setattr(Codec, "train", _remembering(Codec.train, seen))
    listener = Listener()
    learn_codecs(found, config(), listener)
    assert seen == [SENTENCES[::10], [s.upper() for s in SENTENCES[::10]]]
    assert listener.said == ["vocabularies are learned from 30 of the pairs, evenly spread"]


def _remembering(train, seen):
    def remember(sentences, text):
        seen.append(list(sentences))
        return train(seen[-1], text)

    return remember


def test_resuming_in_the_middle_of_an_epoch(tmp_path):
    # Another process, which maps what the first one wrote, goes on with the same batches.
    file = write(tmp_path / "pairs.tsv", copies(2000, longest=12))
    settings = config(text={"kind": "bpe", "regularise": 0.2}, training={"batch_tokens": 200})
    whole = all_of(opened(file, settings=settings)[0], settings)[0].batches
    again = all_of(opened(file, settings=settings)[0], settings)[0].batches
    for epoch in (0, 3):
        plan, other = whole.epoch(epoch), again.epoch(epoch)
        for number in random.Random(epoch).sample(range(len(plan)), 20):
            one, two = whole.batch(plan[number], epoch), again.batch(other[number], epoch)
            assert torch.equal(one.x, two.x)
            assert torch.equal(one.y, two.y)
    assert not np.array_equal(whole.epoch(0)[0], whole.epoch(1)[0])


SCRIPT = """
import sys
from heedful.config import Config
from heedful.data import PairList
from heedful.training.prepare import Inputs
from heedful.training.prepare import open_pairs
from heedful.training.callbacks import Reporter

class Watch(Reporter):
    def preparing(self, done, what):
        print(done, flush=True)

pairs = [(f"source {n}", f"target {n}") for n in range(2_000_000)]
print("ready", flush=True)
open_pairs(Inputs((PairList(pairs),)), Config.build({}), Watch())
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_workers(environment, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={**environment, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert any("10000" in line for line in process.stdout)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    cores = len(os.sched_getaffinity(0))
    assert len(children) == (cores if cores > 1 else 0)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not list(tmp_path.iterdir())


def test_workers_do_without_torch(environment):
    """They start quickly, and there is one for every core."""
    code = "import sys, heedful.data.store, heedful.data.corpus; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)
