"""benchmarks/ten_million.py with a few thousand pairs."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from small_runs import benchmark


@pytest.fixture(scope="module")
def ten_million() -> ModuleType:
    module = benchmark("ten_million")
    module.PHRASES, module.TYPES = 500, 1000
    return module


def test_the_pairs_are_like_real_ones(ten_million: ModuleType, tmp_path: Path) -> None:
    ten_million.write_pairs(tmp_path / "pairs.tsv", 3000)
    lines = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3000
    sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
    lengths = np.array([[len(side.split()) for side in pair] for pair in zip(sources, targets, strict=True)])
    assert 10 < lengths.mean() < 20
    assert lengths.max() <= 45
    assert sum("\u00a0" in line for line in lines) in range(20, 40)
    words = " ".join(targets).split()
    assert 500 < len(set(words)) < 3000
    assert len(lines) - len(set(lines)) >= 25


def test_memory_of_this_process(ten_million: ModuleType) -> None:
    gc.collect()  # nothing that others left is given back meanwhile
    before = ten_million.memory(os.getpid())
    with mmap.mmap(
        -1, 50_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    ) as kept:  # new memory, whatever else this process has left over
        for _ in range(50):  # not at once: what the allocator keeps of 50 MB that were freed would count, too
            kept.write(b"x" * 1_000_000)
        after = ten_million.memory(os.getpid())
    assert 45e6 < after.anonymous - before.anonymous < 60e6
    assert after.all > after.anonymous


@pytest.mark.slow
def test_two_starts(ten_million: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ten_million.write_pairs(tmp_path / "pairs.tsv", 60_000)
    for name in ("first", "second"):
        parts = ten_million.run(tmp_path / "pairs.tsv", tmp_path / name, 3, tmp_path / "cache")
        assert capsys.readouterr().out.count("read from the cache") == (0 if name == "first" else 2)
        assert [part.name for part in parts] == ["read and cleaned", "vocabularies, tokens", "steps"]
        assert all(1e8 < part.peak.anonymous < 2e9 for part in parts)
