"""benchmarks/attention_links.py: its training pairs, its measurements, and the table it prints."""

from __future__ import annotations

import importlib
import json
from itertools import pairwise
from types import ModuleType

import pytest
from conftest import ROOT, copies
from random_translators import random_folder

import heedful
from heedful.alignment import Gold, score
from heedful.errors import MachineError

PAIRS = [pair for pair in copies(60, seed=5) if len(pair[0].split()) > 1][:24]
GOLD = [frozenset((i, i) for i in range(len(x.split()))) for x, _ in PAIRS]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("attention_links")


@pytest.fixture
def data(bench: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """A set of pairs whose words stand in the same order; the last one is there twice, and one has an empty side."""
    sets = importlib.import_module("alignment_sets")
    found = sets.AlignmentSet("x-y 24", PAIRS, Gold(GOLD, GOLD), [PAIRS[-1], ("", "a"), ("b a", "b a")])
    monkeypatch.setitem(sets.SETS, "x-y", lambda folder: found)
    return found


def test_pairs_and_links_are_written_both_ways(bench, data, tmp_path):
    bench.prepare(tmp_path, "x-y", tmp_path / "x-y", 0.0)
    rows = {name: (tmp_path / "x-y" / name).read_text().splitlines() for name in ("there.tsv", "back.tsv")}
    different = list(dict.fromkeys([*PAIRS, ("b a", "b a")]))
    assert rows["there.tsv"] == ["\t".join(pair) for pair in different]
    assert rows["back.tsv"] == ["\t".join(reversed(pair)) for pair in different]
    links = [(tmp_path / "x-y" / f"{way}.links").read_text().splitlines() for way in ("there", "back")]
    assert [len(lines) for lines in links] == [len(different)] * 2
    turned = [" ".join(sorted("-".join(reversed(link.split("-"))) for link in line.split())) for line in links[0]]
    assert turned == [" ".join(sorted(line.split())) for line in links[1]]
    valid = (tmp_path / "x-y" / "there.valid.tsv").read_text().splitlines()
    assert valid == rows["there.tsv"][: len(set(PAIRS))]  # those with gold links
    (tmp_path / "x-y" / "there.tsv").write_text("")
    bench.prepare(tmp_path, "x-y", tmp_path / "x-y", 0.0)  # what is there is left as it is
    assert (tmp_path / "x-y" / "there.tsv").read_text() == ""


def test_gold_sentences_are_repeated_with_their_links(bench, data, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "repeats", lambda gold, every, share: 3)
    bench.prepare(tmp_path, "x-y", tmp_path, 0.5)
    rows, links = ((tmp_path / name).read_text().splitlines() for name in ("there.tsv", "there.links"))
    gold = len(set(PAIRS))
    more = len({*PAIRS, ("b a", "b a")}) - gold
    assert len(rows) == len(links) == 3 * gold + more
    assert rows[:gold] == rows[gold : 2 * gold] == rows[2 * gold : 3 * gold]
    assert links[:gold] == links[gold : 2 * gold] == links[2 * gold : 3 * gold]


def test_what_trains_a_model(bench, tmp_path):
    job = bench.Job(tmp_path, "transformer", "free", "back")
    budget = bench.Budget("small", 40, 0, 1, "cpu", ("model.dropout=0.3",))
    told = bench.command(job, budget)
    pairs = list(pairwise(told))
    assert ("train", str(tmp_path / "back.tsv")) in pairs
    assert ("--out", str(tmp_path / "transformer-free-back")) in pairs
    for change in ("training.steps=40", "training.decay=cosine", "model.layers=2", "text.joint=true"):
        assert ("--set", change) in pairs
    assert told[-1] == "model.dropout=0.3"
    assert "--links" not in told
    pairs = list(pairwise(bench.command(job._replace(kind="guided"), budget._replace(seconds=9))))
    assert ("--links", str(tmp_path / "back.links")) in pairs
    assert ("--set", "data.duplicates=keep") in pairs
    assert ("--set", "training.decay=root") in pairs  # it may be stopped at any step
    (tmp_path / "transformer-free-back" / "checkpoints").mkdir(parents=True)
    assert "--resume" in bench.command(job, budget)


def test_what_is_done_is_not_done_again_and_what_fails_is_said(bench, tmp_path, monkeypatch):
    jobs = [bench.Job(tmp_path, "rnn", "free", way) for way in bench.DIRECTIONS]
    jobs[0].done.write_text("{}")
    seen = []
    monkeypatch.setattr(bench, "train", lambda job, budget, children: seen.append(job))
    bench.train_all(jobs, bench.Budget("small", 1, 0, 2, "cpu"))
    assert seen == jobs[1:]
    monkeypatch.undo()
    monkeypatch.setattr(bench, "command", lambda job, budget: ["false"])
    with pytest.raises(MachineError, match=r"training .*rnn-free-back ended with code 1; what it said is in"):
        bench.train_all(jobs, bench.Budget("small", 1, 0, 2, "cpu"))


def test_models_are_measured(bench, data, tmp_path):
    tables = importlib.import_module("attention_tables")
    bench.prepare(tmp_path, "x-y", tmp_path, 0.0)
    for way in bench.DIRECTIONS:
        random_folder(tmp_path / f"transformer-free-{way}", "transformer")
    (tmp_path / "transformer-free-there.json").write_text(json.dumps({"steps": 1200}))
    assert tables.measure(data, tmp_path, "transformer", "guided", "cpu") is None
    found = tables.measure(data, tmp_path, "transformer", "free", "cpu")
    rates = found["rates"]
    # What is said of the usual read-out is what aligning gives, one way and both ways.
    there, back = (heedful.load(tmp_path / f"transformer-free-{way}") for way in bench.DIRECTIONS)
    sources, targets = zip(*PAIRS, strict=True)
    usual = [one.pairs for one in there.align(sources, targets)]
    assert rates["usual"]["all"] == pytest.approx(100 * score(usual, GOLD).error_rate)
    assert rates["usual"]["held_out"] == pytest.approx(100 * score(usual[1::2], GOLD[1::2]).error_rate)
    # The choice is never worse than the naive one where it was made, and it was made on the other half.
    chosen = rates["chosen"]["all"] * 2 - rates["chosen"]["held_out"]
    assert chosen <= rates["naive"]["all"] * 2 - rates["naive"]["held_out"] + 1
    assert rates["both_chosen"]["symmetry"] in heedful.trace.readout.SYMMETRIES
    assert "own" not in rates
    assert back.parts.readout is None
    lines = tables.table([found, found]).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("| x-y 24 | statistical aligner | |")
    assert lines[3].startswith(f"| | transformer, free | 1,200 | {rates['naive']['held_out']:.1f} | ")
    assert all(line.count("|") == lines[0].count("|") for line in lines)


@pytest.mark.slow
def test_all_of_it(bench, data, tmp_path, monkeypatch, capsys):
    """Two tiny models of either kind are trained and measured, by the command itself."""
    small = {"layers": 1, "width": 16, "heads": 2, "inner": 32, "tied": "all"}
    monkeypatch.setitem(bench.MODELS["small"], "transformer", small)
    options = ["--sets", "x-y", "--families", "transformer", "--steps", "4", "--device", "cpu", "--jobs", "2"]
    command = ["attention_links", "--data", str(tmp_path), "--out", str(tmp_path / "out"), *options]
    bench.prepare(tmp_path, "x-y", tmp_path / "out" / "x-y", 0.5)
    monkeypatch.setattr("sys.argv", [*command, "--only", "train"])
    bench.main()
    for name in ("transformer-free-there", "transformer-guided-back"):
        assert json.loads((tmp_path / "out" / "x-y" / f"{name}.json").read_text())["steps"] == 4
    for kind in bench.KINDS:
        bench.measure_models(tmp_path, tmp_path / "out", "cpu", "x-y", "transformer", kind)
    monkeypatch.setattr("sys.argv", [*command, "--only", "table"])
    bench.main()
    assert "| | transformer, guided | 4 |" in capsys.readouterr().out
