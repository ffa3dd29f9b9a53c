"""Model folders and checkpoints of an earlier commit load, translate and resume as they did then.

`tests/fixtures/before_house` was written by commit a359a6d: a run of each family for 8 steps (fixed with weights
averaged over validations, rnn with a moving average and R-Drop, transformer guided by links), what each translates, and
the weights that it had when it was resumed to step 14.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from safetensors.numpy import load_file

import heedful

OLD = ROOT / "tests" / "fixtures" / "before_house"
FAMILIES = ("fixed", "rnn", "transformer")
EXPECTED = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))["translations"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_translates_as_it_did(family: str) -> None:
    translator = heedful.load(OLD / family, "cpu")
    expected = EXPECTED[family]
    done = translator.translate([one["source"] for one in expected], heedful.Decoding(beam=3, max_length=5))
    for one, before in zip(done, expected, strict=True):
        assert one.text == before["text"]
        assert one.score == pytest.approx(before["score"], rel=1e-4)
        if before["weights"] is None:
            assert one.trace.weights is None
        else:
            assert one.trace.weights is not None
            np.testing.assert_allclose(one.trace.weights.ravel(), before["weights"], atol=1e-4)
    if family == "transformer":
        assert translator.readout.chosen == "guided by given links"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_resumes_to_the_same_weights(family: str, tmp_path: Path) -> None:
    out = tmp_path / family
    shutil.copytree(OLD / family, out)
    pairs = [(x, y) for x, y in (line.split("\t") for line in (OLD / "pairs.tsv").read_text().splitlines())]
    links = [" ".join(f"{i}-{i}" for i in range(len(x.split()))) for x, _ in pairs] if family == "transformer" else None
    settings = {"training": {"steps": 14}}
    heedful.train(pairs, out, settings=settings, links=links, verbose=False, resume=True)
    found = load_file(out / "checkpoints" / "000000014" / "model.safetensors")
    before = load_file(OLD / f"{family}_step_14.safetensors")
    assert found.keys() == before.keys()
    for name, weights in before.items():
        if re.search(r"(inside|across)\.W\.bias", name):
            # A bias of the keys changes no weight of attention: its gradient is rounding, which depends on the machine,
            # and Adam makes a step of full size of it.
            q, _, v = np.split(np.arange(len(weights)), 3)
            found[name], weights = (values[np.concatenate([q, v])] for values in (found[name], weights))
        np.testing.assert_allclose(found[name], weights, rtol=1e-4, atol=1e-5, err_msg=name)
