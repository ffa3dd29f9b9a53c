"""Masks: True means may be looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful
from heedful.attention import causal, until


def test_until_by_hand():
    assert until(torch.tensor([2, 0, 3])).tolist() == [[True, True, False], [False] * 3, [True] * 3]


def test_until_can_be_wider_than_the_longest():
    assert until(torch.tensor([1, 2]), 4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]


def test_causal_by_hand():
    assert causal(3)[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_the_last_query_sees_everything():
    assert causal(2, 4)[0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal(1, 3)[0].int().tolist() == [[1, 1, 1]]


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 3))
def test_until_counts_what_it_keeps(lengths, more):
    keep = until(torch.tensor(lengths), max(lengths) + more)
    assert keep.dtype == torch.bool
    assert keep.tolist() == [[j < n for j in range(max(lengths) + more)] for n in lengths]


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 4))
def test_causal_sees_the_past_and_itself(T, before):
    keep = causal(T, T + before)[0]
    assert keep.dtype == torch.bool
    assert keep.tolist() == [[j <= before + t for j in range(T + before)] for t in range(T)]


def test_the_file_draws_its_masks():
    done = subprocess.run(
        [sys.executable, "-m", "heedful.attention.masks"],
        cwd=Path(heedful.__file__).parents[1],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "████····\n████████\n██······\n" in done.stdout
    assert done.stdout.endswith("██········\n████······\n██████····\n████████··\n██████████\n")
    assert done.stderr == ""
