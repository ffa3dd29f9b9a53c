"""How many lines `heedful translate` reads before it translates them: more on a GPU, but never by waiting for them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from random_translators import random_translator

from heedful.cli import translate
from heedful.cli.translate import FIRST, MOST_CHARACTERS, _chunks, _frozen_objects, _input_waits


def sizes(lines: Iterator[str] | list[str], most: int, at_hand: bool = True) -> list[int]:
    return [len(chunk) for chunk in _chunks(lines, most, at_hand)]


def test_the_first_chunk_is_small_and_the_others_are_not() -> None:
    assert sizes(["a"] * (FIRST + 5_000), 2_000) == [FIRST, 2_000, 2_000, 1_000]
    assert sizes(["a"] * 10, 2_000) == [10]
    assert sizes([], 2_000) == []
    assert sizes(["a"] * 3, 1) == [1, 1, 1]
    lines = [str(i) for i in range(FIRST + 7)]
    assert [line for chunk in _chunks(lines, 2_000, True) for line in chunk] == lines


def test_long_lines_make_smaller_chunks() -> None:
    # On the CPU at most a million characters, on a GPU four million.
    assert sizes(["a" * 400_000] * 7, 1_000) == [3, 3, 1]
    assert MOST_CHARACTERS == 4_000_000
    assert sizes(["a" * 400_000] * 23, 32_768) == [11, 11, 1]


def test_lines_that_have_not_arrived_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = FIRST + 1_500
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for _ in range(3 * FIRST):
            read += 1
            yield "a"

    monkeypatch.setattr(translate, "_input_waits", lambda: read != arrived)
    assert sizes(lines(), 32_768, at_hand=False) == [FIRST, 1_500, 500]


def test_a_pipe_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = os.pipe()
    with os.fdopen(ends[0], encoding="utf-8") as reading, os.fdopen(ends[1], "w", encoding="utf-8") as writing:
        monkeypatch.setattr(sys, "stdin", reading)
        assert not _input_waits()
        writing.write("a\n")
        writing.flush()
        assert _input_waits()
        assert reading.readline() == "a\n"
        assert not _input_waits()
        writing.close()
        assert _input_waits()  # the end
    with (tmp_path / "lines").open("w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert _input_waits()


def test_a_gpu_gets_more_texts_at_once() -> None:
    translator = random_translator("transformer")
    assert translator.texts_at_once(trace=True) == translator.texts_at_once(trace=False) == FIRST
    translator.device = torch.device("cuda")
    assert FIRST < translator.texts_at_once(trace=True) < translator.texts_at_once(trace=False)


def test_what_is_loaded_is_left_out_of_collections_and_back_afterwards() -> None:
    with _frozen_objects():
        assert gc.get_freeze_count() > 1_000
    assert gc.get_freeze_count() == 0
