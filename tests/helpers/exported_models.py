"""Small Transformers of heedful with random weights, to be exported and opened again."""

from __future__ import annotations

from typing import Any

import torch

from heedful.config import Config
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import PAD, Codec

TEXTS = ["A b, c. Then d! E f? (g h) bead cafe, deaf; face: a.", "the quick brown fox jumps over the lazy dog"]


def parts_of(joint: bool = True, seed: int = 1, **settings: Any) -> ModelParts:
    """Return a small Transformer with random weights in which `<pad>` is improbable, as in a trained one."""
    model = {
        "family": "transformer",
        "width": 16,
        "heads": 2,
        "inner": 24,
        "layers": 2,
        "decoder_layers": 3,
        **settings,
    }
    config = Config.build({"model": model, "text": {"kind": "bpe", "size": 60, "joint": joint, "max_length": 40}})
    source = Codec.train(TEXTS, config.text)
    target = source if joint else Codec.train([text.upper() for text in TEXTS], config.text)
    torch.manual_seed(seed)
    network = build(config.model, len(source), len(target)).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.add_(0.3 * torch.randn_like(weight))
            if name in ("embedding.weight", "W_o"):
                weight[PAD] = 0
    return ModelParts(config, network, source, target)
