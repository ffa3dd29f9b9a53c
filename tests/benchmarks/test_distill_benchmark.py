"""The benchmark of distillation: all of its way, with tiny models; stopped and continued in pieces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import copies
from small_runs import benchmark

distill = benchmark("distill")
PARTS = {"train": 200, "val": 20, "test_2016_flickr": 10, "test_2017_flickr": 5, "test_2017_mscoco": 5}


def written(folder: Path) -> Path:
    """Write pairs as Multi30k lies on disk."""
    (folder / "multi30k").mkdir(parents=True)
    for seed, (part, count) in enumerate(PARTS.items(), 1):
        for language, side in (("en", 0), ("de", 1)):
            text = "".join(f"{pair[side]}\n" for pair in copies(count, seed))
            (folder / "multi30k" / f"{part}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_the_student_differs_in_its_decoder_only() -> None:
    teacher: dict[str, dict[str, Any]] = {
        "model": {"family": "transformer", "width": 8, "layers": 4},
        "text": {"size": 9},
    }
    student = distill.student_settings(teacher)
    assert student == {**teacher, "model": {**teacher["model"], "cell": "ssru", "decoder_layers": 2}}


@pytest.mark.slow
def test_all_of_it_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {
        "model": {"layers": 1, "width": 16, "inner": 16, "heads": 2, "dropout": 0.1},
        "text": {"size": 60},
        "training": {"steps": 4, "warmup": 2, "rdrop": 0.0, "batch_tokens": 256, "valid_every": 2},
    }
    monkeypatch.setattr(distill, "SMALL", small)
    monkeypatch.setattr(distill, "TIMED", 2)
    monkeypatch.setattr(distill, "ROUNDS", 1)
    data, out = written(tmp_path / "data"), tmp_path / "out"
    command = ["--data", str(data), "--out", str(out), "--device", "cpu", "--threads", "1", "--small"]
    for piece in (
        ["--only", "teacher"],
        ["--only", "students", "--seeds", "1"],
        ["--seeds", "1,2"],
        ["--seeds", "2,1"],
    ):
        assert distill.main([*command, *piece]) == 0
    results = json.loads((out / "results.json").read_text())
    assert set(results["models"]) == {"teacher", *(f"{kind}-{n}" for kind in ("distilled", "plain") for n in (1, 2))}
    pairs = (out / "distilled-1" / "distilled" / "pairs.tsv").read_text().splitlines()
    assert len(pairs) > 50
    assert "| distilled, 2 |" in capsys.readouterr().out
    assert distill.main([*command, "--seeds", "a"]) == 2
