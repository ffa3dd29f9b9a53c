"""benchmarks/alarms.py: areas under curves worked out by hand, and a run on a small model."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from small_runs import benchmark

import heedful
from heedful.metrics import extract_stats


def test_the_area_by_counting_pairs() -> None:
    found = benchmark("alarms")
    random = np.random.default_rng(1)
    scores, bad = random.integers(0, 5, 40).astype(float), random.random(40) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[bad] for b in scores[~bad]]
    assert found.auc(scores, bad) == pytest.approx(np.mean(pairs))


@pytest.mark.slow
def test_both_tables_of_a_tiny_model(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = ["a b c", "b a", "c c a b", "a", "b b b", "c a"]
    targets = ["a b c", "b b", "c c a b", "a", "b b c", "a a"]
    paths = [tmp_path / name for name in ("source", "target")]
    for path, lines in zip(paths, (sources, targets), strict=True):
        path.write_text("\n".join(lines) + "\n")
    arguments = [str(tiny), "--source", str(paths[0]), "--target", str(paths[1]), "--beam", "1"]
    monkeypatch.setattr(sys, "argv", ["alarms.py", *arguments])
    benchmark("alarms").main()
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\| (unseen|repeated|sink|flat|1 - confidence) \| [01]\.\d{3} \|", printed, re.M)) == 5
    assert re.search(r"^\| leave-one-out \| [+-]\d\.\d{3} \|", printed, re.M)
    done = heedful.load(tiny, "cpu").translate(sources, split=False)
    table, marks = benchmark("alarms").predictors(
        done, extract_stats([d.text for d in done], targets).sentences("chrf")
    )
    assert [row.name for row in table][-1] == "1 - confidence"
    assert 0 <= marks[-1].marked <= marks[-2].marked <= 1
