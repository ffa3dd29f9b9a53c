"""What only a GPU can show: python -m pytest -m gpu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import copies, write_pairs
from tests_helpers import small, train_tiny

import heedful
from heedful.errors import DeviceMemoryError

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture
def little_memory() -> Iterator[None]:
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2**28 / total)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("family", ["rnn", "fixed"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_model_trained_on_the_gpu_translates_alike_on_the_cpu(tmp_path: Path, family: str, cell: str) -> None:
    out = train_tiny(tmp_path / "m", model={"family": family, "cell": cell}, training={"device": "cuda", "steps": 60})
    texts = [x for x, _ in copies(40, seed=5)]
    there, here = heedful.load(out, "cuda").translate(texts), heedful.load(out, "cpu").translate(texts)
    assert [t.text for t in there] == [t.text for t in here]
    for a, b in zip(there, here, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-2)
        if a.trace.weights is not None:
            np.testing.assert_allclose(a.trace.weights, b.trace.weights, atol=2e-3)


def test_a_run_on_the_gpu_can_be_resumed(tmp_path: Path) -> None:
    out = train_tiny(tmp_path / "m", training={"device": "cuda", "steps": 20})
    heedful.train(copies(), out, settings=small(training={"device": "cuda", "steps": 40}), resume=True)
    assert heedful.load(out).translate("a b").text


def test_bf16_learns(tmp_path: Path) -> None:
    training = {"device": "cuda", "precision": "bf16", "steps": 400, "batch_sentences": 64}
    out = train_tiny(tmp_path / "m", model={"width": 64, "embedding": 32, "dropout": 0.0}, training=training)
    texts = copies(50, seed=9)
    right = sum(
        t.text == y for t, (_, y) in zip(heedful.load(out).translate([x for x, _ in texts]), texts, strict=True)
    )
    assert right >= 40


@pytest.mark.usefixtures("little_memory")
def test_out_of_memory_in_training_says_what_to_lower(tmp_path: Path, heedful_cli) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", [(f"{x} {i}", y) for i, (x, y) in enumerate(copies(4000))])
    options = ["--device", "cuda", "--set", "training.batch_tokens=1000000", "--set", "training.batch_sentences=100000"]
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", *options, "--set", "model.width=256")
    assert done.code == 1
    assert "ran out of memory; lower training.batch_tokens (now 1000000)" in done.err


@pytest.mark.usefixtures("little_memory")
def test_out_of_memory_in_translation_says_what_to_lower(tiny: Path) -> None:
    with pytest.raises(DeviceMemoryError, match="translate fewer at once"):
        heedful.load(tiny, "cuda").translate(["a b c d e f g h"] * 200_000, batch_tokens=10**9)
