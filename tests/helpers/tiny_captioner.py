"""An untrained captioner of small images, and images to caption."""

from __future__ import annotations

import numpy as np
import torch

from heedful.config import Config
from heedful.data.images import ImageInput, LoadedImage
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import Codec
from heedful.translator import Translator

CAPTIONS = ["a red square above a blue circle", "two small birds", "a large green tree left of a house"]


def captioner(family: str = "rnn", encoder: str = "conv", **model: object) -> Translator:
    """Return an untrained captioner that reads images of 32 × 32 pixels as 4 × 4 regions."""
    sizes: dict[str, object] = (
        {"width": 16, "heads": 2, "inner": 16, "layers": 2}
        if family == "transformer"
        else {
            "width": 16,
            "embedding": 8,
        }
    )
    image = {"encoder": encoder, "pixels": 32, "patch": 8, "filters": 4, "blocks": 1}
    config = Config.build({"model": {"family": family, **sizes, **model}, "image": image, "text": {"kind": "word"}})
    assert config.image is not None
    codec = Codec.train(iter(CAPTIONS), config.text)
    torch.manual_seed(1)
    network = build(config.model, config.image, len(codec)).eval()
    return Translator(ModelParts(config, network, ImageInput(config.image), codec))


def picture(seed: int = 0, width: int = 48, height: int = 40, name: str = "a.png") -> LoadedImage:
    """Return an image of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return LoadedImage(name, pixels)
