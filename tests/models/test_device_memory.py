"""What fits into a device's memory: reading how much is free, the estimate of a batch, and its limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from heedful.config import FixedConfig, RnnConfig, TransformerConfig
from heedful.models import device
from heedful.models.device import MOST_TOKENS, DecodingLoad, MemoryNeed, batch_tokens_for, free_memory

NEED = MemoryNeed(source=60, query=2, target=8, step=100, weights=3)
GIB = 2**30


def test_the_bytes_of_a_token_worked_out_by_hand() -> None:
    # 10 source and 20 target tokens: 60 + 2 + (8 · 20 + 100) / 10 = 88 numbers of 4 bytes.
    assert NEED.bytes_per_token(10, 20, DecodingLoad()) == 4 * 88
    # With its attention weights, 3 · 20 more.
    assert NEED.bytes_per_token(10, 20, DecodingLoad(traced=1)) == 4 * 148
    # Four hypotheses share a source, and two of them have weights: 15 + 28 + 3 · 20 · 2 / 4.
    assert NEED.bytes_per_token(10, 20, DecodingLoad(beam=4, traced=2)) == 4 * 73


def test_a_batch_takes_a_share_of_the_free_memory() -> None:
    size = batch_tokens_for(NEED, "cuda", 352 * 10_000, [(10, 20)], DecodingLoad())
    assert size == 6_000  # 0.6 of 10,000 tokens
    assert batch_tokens_for(NEED, "cpu", 352 * 10_000, [(10, 20)], DecodingLoad()) == 2_500


def test_the_sentence_with_the_most_bytes_a_token_counts() -> None:
    short, long = (2, 24), (100, 220)
    for load, most in ((DecodingLoad(), short), (DecodingLoad(traced=1), long)):
        both = batch_tokens_for(NEED, "cuda", 2**20, [short, long], load)
        assert both == batch_tokens_for(NEED, "cuda", 2**20, [most], load)
        assert both < batch_tokens_for(NEED, "cuda", 2**20, [long if most is short else short], load)


def test_a_batch_has_a_limit_and_at_least_one_token() -> None:
    for kind, most in MOST_TOKENS.items():
        assert batch_tokens_for(NEED, kind, 2**60, [(10, 20)], DecodingLoad()) == most
        assert batch_tokens_for(NEED, kind, None, [(10, 20)], DecodingLoad()) == most  # unknown
    assert batch_tokens_for(NEED, "cuda", 0, [(10, 20)], DecodingLoad()) == 1
    assert MOST_TOKENS["cuda"] > MOST_TOKENS["cpu"]


def test_larger_models_need_more() -> None:
    small, V = TransformerConfig(), 8_000
    need = MemoryNeed.of(small, V)
    assert need.step == 3 * V
    for larger in (TransformerConfig(width=512), TransformerConfig(layers=6), TransformerConfig(inner=4096)):
        assert MemoryNeed.of(larger, V).source > need.source
    assert MemoryNeed.of(TransformerConfig(decoder_layers=6), V).target > need.target
    assert MemoryNeed.of(TransformerConfig(heads=8), V).weights == 2 * need.weights
    assert MemoryNeed.of(small, V, models=3) == tuple(3 * numbers for numbers in need)
    # The additive score has A numbers for each source token and hypothesis; without attention there are none.
    assert MemoryNeed.of(RnnConfig(score_width=100), V).query == 200
    assert MemoryNeed.of(RnnConfig(width=64), V).query == 128
    assert MemoryNeed.of(FixedConfig(), V).query == 0


def test_an_h200_takes_full_batches_and_a_small_gpu_does_not() -> None:
    """The Multi30k Transformer, and an Opus-MT with 65,000 tokens, for sentences of 4 to 50 tokens."""
    sizes = [(4, 28), (50, 120)]
    multi30k = MemoryNeed.of(TransformerConfig(), 8_000)
    opus = MemoryNeed.of(TransformerConfig(layers=6, width=512, heads=8, inner=2048), 65_000)
    plain, traced = DecodingLoad(), DecodingLoad(beam=5, traced=1)
    assert batch_tokens_for(multi30k, "cuda", 138 * GIB, sizes, plain) == 262_144
    assert batch_tokens_for(multi30k, "cuda", 138 * GIB, sizes, traced) == 262_144
    assert 4_000 < batch_tokens_for(opus, "cuda", 6 * GIB, sizes, plain) < 10_000
    assert batch_tokens_for(multi30k, "cpu", 2 * GIB, sizes, traced) == 4_096


class TestFree:
    def test_cuda_counts_what_is_reserved_and_unused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1_000, 8_000))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 600)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 250)
        assert free_memory(torch.device("cuda")) == 1_350

    def test_mps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 900)
        monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 300)
        assert free_memory(torch.device("mps")) == 600

    def test_on_the_cpu_a_containers_limit_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = tmp_path / "meminfo"
        table.write_text("MemTotal:       9000 kB\nMemAvailable:   4000 kB\n")
        (tmp_path / "memory.max").write_text("3000000\n")
        (tmp_path / "memory.current").write_text("1000000\n")
        available, left = device._available(table), device._left_in_group(tmp_path)
        assert (available, left) == (4_096_000, 2_000_000)
        monkeypatch.setattr(device, "_available", lambda: available)
        monkeypatch.setattr(device, "_left_in_group", lambda: left)
        assert free_memory(torch.device("cpu")) == 2_000_000

    def test_without_a_limit_and_without_linux(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "memory.max").write_text("max\n")
        assert device._left_in_group(tmp_path) is None
        assert device._available(tmp_path / "none") is None
        monkeypatch.setattr(device, "_available", lambda: None)
        monkeypatch.setattr(device, "_left_in_group", lambda: None)
        assert free_memory(torch.device("cpu")) is None
