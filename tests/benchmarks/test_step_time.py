"""benchmarks/step_time.py at small sizes; times are not checked."""

from __future__ import annotations

import sys
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch
from small_runs import benchmark


@pytest.fixture(scope="module")
def step_time() -> ModuleType:
    return benchmark("step_time")


def test_products_by_hand(step_time):
    a, b, c = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    assert step_time.products_in_a_row((a @ b).sum()) == 1
    assert step_time.products_in_a_row((a @ b @ c).sum()) == 2
    assert step_time.products_in_a_row((a @ b + c @ a + b @ c).sum()) == 1  # side by side
    assert step_time.products_in_a_row(((a @ b) @ (c @ a)).tanh().mean()) == 2
    assert step_time.products_in_a_row(torch.nn.functional.linear((a @ b)[None], c, b[0]).sum()) == 2


def test_the_chain_grows_with_the_length_for_the_rnn_alone(step_time):
    rows = step_time.measure((3, 7), tokens=14, rounds=1, device=torch.device("cpu"), width=8)
    assert [(row.length, row.sentences) for row in rows] == [(3, 4), (7, 2)]
    short, long = (row.chain for row in rows)
    assert set(short) == set(step_time.configs(8)) == set(rows[0].seconds)
    # one product for each source word, and four for each target word: q, e_t, c_t, and W c_t
    assert long[step_time.RNN] - short[step_time.RNN] == 4 * (1 + 4)
    # 6 in the encoder's layer, the keys, 5 from the scores on, and the words
    assert long[step_time.SHORT] == short[step_time.SHORT] == 13
    assert long["Transformer, 3 + 3 layers"] == short["Transformer, 3 + 3 layers"] == 45
    assert all(seconds > 0 for row in rows for seconds in row.seconds.values())


@pytest.mark.slow
def test_what_it_writes(step_time, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "a.svg"
    threads = torch.get_num_threads()
    options = ["--lengths", "2", "4", "--tokens", "8", "--rounds", "1", "--threads", str(threads), "--markdown"]
    monkeypatch.setattr(sys, "argv", ["step_time.py", *options, "--figure", str(picture)])
    step_time.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("| words | sentences | RNN, additive |")
    assert printed[2].startswith("| 2 | 4 | ")
    assert printed[3].startswith("| 4 | 2 | ")
    assert {line.count("|") for line in printed[:4]} == {10}
    assert any(line.startswith("weights: RNN, additive: ") for line in printed)
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    monkeypatch.setattr(sys, "argv", ["step_time.py", *[o for o in options if o != "--markdown"]])
    step_time.main()
    assert "|" not in capsys.readouterr().out


def test_the_table_has_what_was_measured(step_time):
    names = list(step_time.configs(8))
    row = step_time.Row(100, 32, dict(zip(names, (1.5, 1.0, 0.25, 0.75), strict=True)), dict.fromkeys(names, 12))
    cells = step_time.table([row], markdown=True).splitlines()[2].strip("| ").split(" | ")
    assert cells == ["100", "32", "1,500 ms", "1,000 ms", "250 ms", "750 ms", "6.0", "12", "12"]
