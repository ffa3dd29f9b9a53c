"""benchmarks/attention_additive.py without a GPU: its check with the interpreter, and its table."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from small_runs import benchmark

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return benchmark("attention_additive")


def test_what_is_right_passes_and_what_is_not_ends_it(
    made: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made, "ODD", ((1, 2, 3, 4),))
    made.check(torch.device(device))
    right = made.fused.kernel_attend
    monkeypatch.setattr(made.fused, "kernel_attend", lambda *given: [1.0001 * x for x in right(*given)])
    with pytest.raises(SystemExit, match=r"\(1, 2, 3, 4\), times 1, context: relative error .*, more than 1e-5"):
        made.check(torch.device(device))


def test_the_table(made: ModuleType) -> None:
    row = {"size": [16, 512, 512, 512], "what": "scores", "ceiling_ms": 0.5, "ours_ms": 0.4, "ours_mib": 64.0}
    row |= {"ours_called_ms": 0.45, "eager_ms": 12.0, "eager_mib": 16384.0, "times_eager": 30.0, "of_ceiling": 0.8}
    found = {"device": "a GPU", "torch": "2", "date": "today", "tanh_per_second": 3.9e12, "rows": [row]}
    head, _, names, line, cells = made.table(found).splitlines()
    assert head == "a GPU, torch 2, today; tanh.approx 3.90 T/s"
    assert names.count("|") == line.count("|") == cells.count("|")
    assert cells == (
        "| 16, 512, 512, 512 | scores | 0.500 ms | 0.400 ms, 64 MiB | 0.80 "
        "| 12.000 ms, 16384 MiB | 30.0 | – | – | 0.450 ms |"
    )


def test_without_a_gpu_it_says_so(made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["attention_additive.py"])
    with pytest.raises(SystemExit, match="there is no GPU here"):
        made.main()
