"""Estimates of a run: its memory and time by a few steps, the step at which it stops, and whether its pairs suffice.

The rules for the last two were fitted to 34 runs: seven corpora (Tatoeba French, German and Hindi to English, Multi30k
English to German, Hindi Visual Genome, the embedded grammar with short and long sentences), 300 to 30,000 pairs of
each, trained with the presets for a CPU until they stopped by themselves (benchmarks/data_needed.py, one H200,
2026-11-17; docs/lab/training.md has the table).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn

from heedful.config import Config, ImageConfig, TrainingConfig
from heedful.interop.folder import ModelParts
from heedful.models.device import fast_products, memory_guard
from heedful.text.size import count_texts
from heedful.training.callbacks import Reporter
from heedful.training.device_setup import DeviceSetup, smaller_batches
from heedful.training.prepare import TrainingData
from heedful.training.step import TrainingStep

WARM, MEASURED = 4, 12  # repetitions of a batch on a GPU before it is measured, and measured steps
LONGEST = 30.0  # seconds after the first step, at which measuring ends; at least one step is measured
# The best validation of the 21 runs with fewer than 5,000 pairs came at step 3,000 (the median; half of them between
# 2,000 and 6,000). Of the 13 runs with 7,954 to 30,000 pairs, 11 used all of their 5,000 steps, the others 4,000 and
# 4,750.
FEW_PAIRS = 5_000
BEST_STEP = 3_000
MANY_PAIRS, ALL_STEPS = 50_000, 5_000
# How often a word occurs on average, on the side where that is less. All 15 runs up to 4.7 stayed under 14 BLEU on test
# sentences; 18 of the 19 runs from 5.7 up reached 16 to 99. The other one, with 8, had 300 pairs, as few as
# the six others that stayed under 6.
WORD_COUNT = 5.0
LEAST_PAIRS = 500
LEAST_IMAGES = 500  # for an image encoder without pretrained weights


@dataclass(frozen=True)
class Estimate:
    """Counts of a run, and measured values: seconds per step, tokens per second, peak memory in bytes.

    Captions have no source tokens and no source vocabulary: both are 0.

    `bytes_kept` are the best weights and a checkpoint that is being written, in CPU memory.
    """

    pairs: int
    valid_pairs: int
    source_tokens: int
    target_tokens: int
    vocabularies: tuple[int, int]
    weights: int
    steps_per_epoch: int
    steps: int
    seconds_per_step: float
    tokens_per_second: float
    bytes_at_most: int
    bytes_kept: int
    threads: int
    expected_steps: int | None

    def plain(self) -> dict[str, object]:
        """Return everything by name."""
        more = {"seconds_per_epoch": self.seconds_per_epoch, "expected_seconds": self.expected_seconds}
        return {**asdict(self), **more, "seconds": self.seconds}

    @property
    def seconds_per_epoch(self) -> float:
        """The time of one epoch."""
        return self.seconds_per_step * self.steps_per_epoch

    @property
    def expected_seconds(self) -> float | None:
        """The time until similar runs usually stop, if that is known."""
        return None if self.expected_steps is None else self.seconds_per_step * self.expected_steps

    @property
    def seconds(self) -> float:
        """The time of all steps, without validations and checkpoints; patience may end a run earlier."""
        return self.seconds_per_step * self.steps


def estimate(
    parts: ModelParts, data: TrainingData, device_setup: DeviceSetup, reporter: Reporter, threads: int
) -> Estimate:
    """Measure a few steps, the first with the largest batch; the trained weights are discarded.

    `threads` is the number that PyTorch uses, for the result.
    """
    config = parts.config.training
    model = parts.model.to(device_setup.device).train()
    training_step = TrainingStep(
        model, config, device_setup.device, device_setup.bf16, device_setup.processes, data.losses
    )
    plan = data.batches.epoch(0)
    lengths = data.corpus.lengths(0)
    largest = max(range(len(plan)), key=lambda i: int(lengths[plan[i]].max(0).sum()) * len(plan[i]))
    chosen = [largest, *np.linspace(0, len(plan) - 1, MEASURED).astype(int).tolist()]
    reporter.log(f"measuring {len(chosen)} steps, the first with the largest batch")
    times: list[float] = []
    tokens: list[int] = []
    first_done = 0.0
    memory = memory_guard("trying the largest batch", smaller_batches(config))
    with memory, fast_products(device_setup.device), closing(training_step):
        for at in chosen:
            if len(times) > 1 and time.perf_counter() - first_done > LONGEST:
                reporter.log(f"{len(times)} steps are measured, enough for steps as slow as these")
                break
            rows = [plan[(at + offset) % len(plan)] for offset in range(config.accumulate)]
            tokens.append(sum(data.batches.tokens(part) for part in rows))
            for _ in range(WARM if device_setup.fixed else 1):  # until the step is captured as a CUDA graph
                begin = time.perf_counter()
                batches = [data.batches.batch(part, fixed=device_setup.fixed).to(device_setup.device) for part in rows]
                training_step(batches, tokens[-1], 1, 0.0)
                training_step.read()
                spent = time.perf_counter() - begin
            times.append(spent)
            first_done = first_done or time.perf_counter()
            reporter.preparing(len(times), "step measured" if len(times) == 1 else "steps measured")
    seconds = sum(times[1:])
    return Estimate(
        pairs=len(data.corpus),
        valid_pairs=len(data.valid_pairs),
        source_tokens=0 if parts.config.image else int(lengths[:, 0].sum()),
        target_tokens=int(lengths[:, 1].sum()),
        vocabularies=(0 if parts.config.image else len(parts.source_codec), len(parts.target)),
        weights=sum(p.numel() for p in model.parameters()),
        steps_per_epoch=-(-len(plan) // config.accumulate),
        steps=config.steps,
        seconds_per_step=seconds / len(times[1:]),
        tokens_per_second=sum(tokens[1:]) / seconds,
        bytes_at_most=_peak_memory(device_setup.device),
        bytes_kept=_kept_memory(model, config),
        threads=threads,
        expected_steps=expected_steps(parts.config, len(data.corpus)),
    )


def _peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of the device, or of this process for the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _kept_memory(model: nn.Module, config: TrainingConfig) -> int:
    """Return the bytes of copies of the weights and of a checkpoint that is being written."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    recent = config.average if config.average > 1 else 0
    copies = 1 + recent  # the best weights, those of the last validations
    checkpoint = 3 + copies + int(config.ema > 0)  # the model, two moments of AdamW, these copies, the moving average
    return int(size * (copies + checkpoint))


def expected_steps(config: Config, pairs: int) -> int | None:
    """Return the step at which a run will probably stop, or None if no similar run was measured."""
    training = config.training
    if config.image is not None or config.family != "rnn" or training.metric != "bleu":
        return None
    if pairs < FEW_PAIRS:
        return min(training.steps, BEST_STEP + training.patience * training.valid_every)
    return training.steps if pairs <= MANY_PAIRS and training.steps <= ALL_STEPS else None


def too_little_data(pairs: int, sides: Mapping[str, Iterable[str]]) -> str:
    """Return a warning if there are probably too few pairs, or ""; `sides` are their texts by name."""
    if pairs > MANY_PAIRS:
        return ""
    counts = {name: count_texts(texts) for name, texts in sides.items()}
    often = {name: count.words / max(1, count.types) for name, count in counts.items()}
    name = min(often, key=lambda side: often[side])
    if pairs >= LEAST_PAIRS and often[name] >= WORD_COUNT:
        return ""
    if often[name] < WORD_COUNT:
        fact = f"a {name} word occurs {often[name]:.1f} times on average, and 5 to 10 times are needed"
    else:
        fact = f"{LEAST_PAIRS} are the least for the simplest language"
    return (
        f"{pairs:,} pairs are probably too few: {fact}. Expect a BLEU under 14 on new sentences. Add "
        "pairs, restrict them to one kind of text, or begin with a pretrained model"
    )


def too_few_images(images: int, config: ImageConfig | None) -> str:
    """Return a warning if there are probably too few images to train an image encoder from scratch, or ""."""
    if images >= LEAST_IMAGES or config is None or config.weights:
        return ""
    return (
        f"{images:,} images are probably too few to train an image encoder from scratch; add images, or use a "
        "pretrained one: image.encoder=timm with image.backbone and image.weights (docs/guide/captions.md)"
    )
