"""What only a GPU can show: python -m pytest -m gpu."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import copies, write_pairs
from small_runs import small, train_tiny

import heedful

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture
def little_memory() -> Iterator[None]:
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + 2**28  # what other tests still hold is not counted
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.get_device_properties(0).total_memory)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.parametrize("family", ["rnn", "fixed"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_model_trained_on_the_gpu_translates_alike_on_the_cpu(tmp_path: Path, family: str, cell: str) -> None:
    out = train_tiny(tmp_path / "m", model={"family": family, "cell": cell}, training={"device": "cuda", "steps": 60})
    texts = [x for x, _ in copies(40, seed=5)]
    there, here = heedful.load(out, "cuda").translate(texts), heedful.load(out, "cpu").translate(texts)
    same = [(a, b) for a, b in zip(there, here, strict=True) if a.text == b.text]
    assert len(same) >= 36  # after 60 steps two words may be as good as each other; then either is written
    for a, b in same:
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
def test_out_of_memory_in_translation_halves_the_batch(tiny: Path) -> None:
    translator, texts = heedful.load(tiny, "cuda"), ["a b c d e f g h"] * 200_000
    expected = translator.translate(texts[0]).text
    assert {one.text for one in translator.translate(texts, trace=False, batch_tokens=10**9)} == {expected}
    assert 0 < translator.batch_tokens_used < 10**9


def test_automatic_batches_fill_the_memory(tiny: Path) -> None:
    translator = heedful.load(tiny, "cuda")
    translator.translate(["a b c", "d e f"])
    assert translator.batch_tokens_used > 4_096


TRANSFORMER = {"family": "transformer", "width": 32, "heads": 4, "inner": 64, "layers": 2, "dropout": 0.0}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    settings = small(training={"device": "cuda", "steps": 200})
    settings["model"] = TRANSFORMER  # that of a recurrent model has other settings
    out = tmp_path_factory.mktemp("gpu") / "m"
    heedful.train(copies(), out, settings=settings)
    return out


WAYS = {
    "greedy": heedful.Decoding(),
    "beam": heedful.Decoding(beam=4, n_best=3, penalty="gnmt", alpha=0.6),
    "rules": heedful.Decoding(beam=3, min_length=2, max_length=7, no_repeat=2),
    "sample": heedful.Decoding(sample=True, n_best=2, top_k=5, top_p=0.95, seed=3),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_is_the_same_on_the_gpu(transformer: Path, way: str) -> None:
    texts = [x for x, _ in copies(30, seed=5)]
    there, here = (
        heedful.load(transformer, device).translate(texts, WAYS[way], prefix="A" if way == "rules" else None)
        for device in ("cuda", "cpu")
    )
    same = [a.text == b.text for a, b in zip(there, here, strict=True)]
    assert sum(same) >= len(same) - 1  # rounding may turn a tie
    for a, b, alike in zip(there, here, same, strict=True):
        if alike:
            assert a.score == pytest.approx(b.score, abs=1e-2)
            np.testing.assert_allclose(a.trace.weights, b.trace.weights, atol=2e-3)


def test_bf16_and_plain_decoding_on_the_gpu(transformer: Path) -> None:
    texts = [x for x, _ in copies(30, seed=5)]
    for how in WAYS.values():
        captured, plain = (heedful.load(transformer, "cuda") for _ in range(2))
        plain.slots = None
        same = [
            a.text == b.text for a, b in zip(captured.translate(texts, how), plain.translate(texts, how), strict=True)
        ]
        assert sum(same) >= len(same) - 1  # rounding may turn a tie
    rounded = heedful.load(transformer, "cuda", precision="bf16").translate(texts)
    exact = heedful.load(transformer, "cuda").translate(texts)
    assert sum(a.text == b.text for a, b in zip(rounded, exact, strict=True)) >= 20


def test_streams_ensembles_and_the_view_inside_on_the_gpu(transformer: Path) -> None:
    there, here = (heedful.load([transformer, transformer], device) for device in ("cuda", "cpu"))
    assert there.translate("a b c").text == here.translate("a b c").text
    tokens = list(there.stream("a b c"))
    assert "".join(token.text for token in tokens) == there.translate("a b c").text
    assert all(token.weights is not None for token in tokens)
    np.testing.assert_allclose(there.self_attention("a b c").weights, here.self_attention("a b c").weights, atol=2e-3)


@pytest.mark.parametrize(
    "model", [{"family": "rnn", "cell": "lstm"}, {"family": "transformer", "heads": 2, "inner": 16}]
)
def test_recorded_steps_do_what_others_do(tmp_path: Path, model: dict[str, object]) -> None:
    losses = []
    for capture in (True, False):
        training = {"device": "cuda", "precision": "fp32", "capture": capture, "steps": 60}
        given = {"width": 16, **({"embedding": 8} if model["family"] == "rnn" else {}), "dropout": 0.0, **model}
        settings = {**small(training=training), "model": given}
        translator = heedful.train(copies(), tmp_path / str(capture), settings=settings)
        losses.append(translator.parts.notes["validation"]["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_recorded_updates_of_three_batches_and_of_one_alone(kind: str) -> None:
    """Those of three add to gradients that stay, one alone has its own; recorded or not, weights move alike."""
    import torch
    from small_runs import pad

    from heedful.config import RnnConfig, TrainingConfig, TransformerConfig
    from heedful.data.batches import Batch
    from heedful.models import build
    from heedful.training.step import TrainingStep

    def batch(number: int) -> Batch:
        pick = np.random.default_rng(number)
        x, y = ([[*pick.integers(4, 9, 4 + number % 2).tolist(), 3] for _ in range(6)] for _ in range(2))
        y = [[2, *row] for row in y]
        return Batch(pad(x), pad(y), np.arange(6), sum(len(row) - 1 for row in y)).to(device)

    def moved(capture: bool) -> tuple[dict[str, torch.Tensor], TrainingStep]:
        torch.manual_seed(0)
        rnn = RnnConfig(cell="lstm", width=8, embedding=6, dropout=0.0)
        transformer = TransformerConfig(layers=1, width=8, heads=2, inner=8, dropout=0.0)
        model = build(rnn if kind == "lstm" else transformer, 9, 9).to(device).train()
        updater = TrainingStep(model, TrainingConfig(accumulate=3, capture=capture), device, bf16=False)
        for step in range(1, 25):
            # Seven batches: three, three, and the last one alone; so often that all that can be is replayed.
            some = [batch(n) for n in ((0, 1, 2), (3, 4, 5), (6,))[step % 3]]
            updater(some, sum(b.tokens for b in some), step, 0.005)
        # A bias of keys changes no weight: its gradient is rounding, which AdamW makes as large as any other.
        return {n: p.detach().cpu() for n, p in model.named_parameters() if not n.endswith("W.bias")}, updater

    device = torch.device("cuda")
    (there, recorded), (here, plain) = moved(True), moved(False)
    assert all(work.graphs for work in (recorded._backward, recorded._apply, recorded._single))
    assert plain._single is None
    torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-4)
    recorded.close()
