"""The conclusions that benchmarks draw from a run; the runs are not repeated here."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from sample_report import report
from small_runs import benchmark

from heedful.evaluation.run_report import RunReport


@pytest.fixture(scope="module")
def hindi() -> ModuleType:
    return benchmark("hindi")


def changed(unseen: float, long: tuple[float, float], gap: float, rate: float, seconds: float) -> RunReport:
    """A run with these numbers; `long` are the exact matches of both on 31–40 words."""
    made = report()
    models = []
    for model, exact, bleu in zip(made.models, long, (30.0, 30.0 + gap), strict=True):
        rows = tuple(r._replace(exact=exact, bleu=bleu) if r.low == 31 else r for r in model.scores.rows)
        alignment = model.alignment and model.alignment._replace(error_rate=rate)
        models.append(replace(model, scores=replace(model.scores, rows=rows), alignment=alignment))
    return replace(made, models=tuple(models), unseen_exact={"fixed": 1.0, "attention": unseen}, seconds=seconds)


def test_everything_is_reached(hindi: ModuleType) -> None:
    *checks, sizes = hindi.reached(changed(90.0, (10.0, 50.0), 20.0, 0.20, 600.0))
    assert [line.split()[0] for line in checks] == ["yes"] * 6
    assert sizes == "weights: fixed context 1,213,411, additive attention 1,241,923"


def test_nothing_is_reached(hindi: ModuleType) -> None:
    *checks, _ = hindi.reached(changed(89.9, (10.1, 49.9), 19.9, 0.201, 600.1))
    assert [line.split()[0] for line in checks] == ["NO"] * 6
    assert [line.rpartition(" ")[2] for line in checks] == ["89.900", "49.900", "10.100", "19.900", "0.201", "600.100"]


@pytest.mark.parametrize(
    ("number", "made"),
    [
        (0, changed(89.9, (0.0, 95.0), 60.0, 0.1, 100.0)),
        (1, changed(99.0, (0.0, 40.0), 60.0, 0.1, 100.0)),
        (2, changed(99.0, (20.0, 95.0), 60.0, 0.1, 100.0)),
        (3, changed(99.0, (0.0, 95.0), 10.0, 0.1, 100.0)),
        (4, changed(99.0, (0.0, 95.0), 60.0, 0.3, 100.0)),
        (5, changed(99.0, (0.0, 95.0), 60.0, 0.1, 900.0)),
    ],
)
def test_one_is_not(hindi: ModuleType, number: int, made: RunReport) -> None:
    checks = hindi.reached(made)[:-1]
    assert [i for i, line in enumerate(checks) if not line.startswith("yes")] == [number]


def test_without_links_they_are_all_wrong(hindi: ModuleType) -> None:
    made = changed(99.0, (0.0, 95.0), 60.0, 0.1, 100.0)
    made = replace(made, models=tuple(replace(m, alignment=None) for m in made.models))
    assert "NO   attention, alignment error rate <= 0.20: 1.000" in hindi.reached(made)


def test_the_plan_is_the_demo_with_more_of_everything(hindi: ModuleType) -> None:
    from heedful.demo import FULL

    assert hindi.PLAN.pairs > FULL.pairs
    assert hindi.PLAN.settings == FULL.settings
    assert [c.key for c in hindi.PLAN.models] == ["fixed", "attention"]
    for longer, usual in zip(hindi.PLAN.models, FULL.models, strict=False):
        assert longer.steps > usual.steps
        assert longer._replace(steps=usual.steps) == usual
