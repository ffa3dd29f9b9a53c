"""How many threads a translator uses on the CPU: measured on a sample of the texts, if there are enough."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from heedful.data.images import LoadedImage
from heedful.decoding import Decoding
from heedful.models.device import fastest_threads, may_choose, numbers_to_try, using_threads

if TYPE_CHECKING:
    from heedful.translator.translator import Translator


LARGE = 20_000_000  # weights; products of smaller models are too small to be shared for a few sentences
SHARE = 0.1  # of all the work at most is spent on measuring
TOKENS = 8  # written for each text of the sample
LEAST, MOST = 8, 64  # texts of a sample
SERVED = 4  # sentences that a service decodes at once, when threads are measured for it


def measured_threads(translator: Translator, texts: Sequence[str], how: Decoding) -> int:
    """Return the number of threads that is fastest for texts; 0 leaves the choice to PyTorch.

    If there are enough texts, a sample of medium length is translated in part, which takes at most a tenth of the time
    for all. Otherwise a model with less than 20 million weights uses one thread, a larger one as many as PyTorch does.
    """
    if translator.device.type != "cpu" or not may_choose():
        return 0
    weights = sum(weight.numel() for weight in translator.parts.model.parameters())
    rule = 1 if weights < LARGE else torch.get_num_threads()
    texts = sorted((text for text in texts if text.strip()), key=len)
    tokens = sum(max(len(text.split()), len(text) // 6) for text in texts)
    times = 2 * len(numbers_to_try()) - 1  # the sample is translated that often
    rows = min(MOST, int(SHARE * tokens / (TOKENS * times)))
    if rows < LEAST:
        return rule
    middle = len(texts) // 2 - rows // 2
    sample = texts[middle : middle + rows]
    short = replace(how, max_length=TOKENS, min_length=0)
    return _measured(translator, sample, short, logging.DEBUG)


def measured_serving_threads(translator: Translator, text: str) -> int:
    """Return the number of threads for a service that encodes and decodes at the same time; 0 is PyTorch's choice.

    Each of the two gets half of the threads, so up to half of them are tried, on a few sentences at once.
    """
    half = torch.get_num_threads() // 2
    if translator.device.type != "cpu" or not may_choose() or half < 2:
        return 0
    with using_threads(half):
        return 2 * _measured(translator, [text] * SERVED, Decoding(max_length=TOKENS), logging.INFO)


def _measured(translator: Translator, texts: Sequence[str], how: Decoding, level: int) -> int:
    def work() -> None:
        if translator.reads_images:
            side = translator.parts.image_input.config.pixels
            blank = LoadedImage("", np.zeros((side, side, 3), np.uint8))
            translator.caption([blank] * len(texts), how, trace=False)
        else:
            translator.translate(texts, how, split=False, trace=False)

    times = fastest_threads(work, rounds=1)
    seconds = ", ".join(f"{1000 * spent:,.0f} ms with {number}" for number, spent in sorted(times.seconds.items()))
    logging.getLogger("heedful.translator").log(
        level,
        "decoding with %d thread%s: the first tokens of %d sentences took %s",
        times.threads,
        "s" * (times.threads > 1),
        len(texts),
        seconds,
    )
    return times.threads
