"""An untrained captioner of small images, and images to caption."""

from __future__ import annotations

import json
from pathlib import Path

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


def write_captions(folder: Path, count: int = 24) -> Path:
    """Write images, captions.csv (one or two captions an image) and regions.jsonl; two images are damaged.

    Every other word of the first caption of an image has a gold region, nouns and colours in turn.
    """
    from PIL import Image

    (folder / "images").mkdir(parents=True)
    rows, regions = ["image,caption"], []
    for i in range(count):
        name, path = f"{i}.png", folder / "images" / f"{i}.png"
        Image.fromarray(picture(i).pixels).save(path)
        rows += [f"{name},{CAPTIONS[(i + k) % 3]}" for k in range(1 + i % 2)]
        for word in range(1, len(CAPTIONS[i % 3].split()), 2):
            box = {"x": word * 7 % 30, "y": i * 5 % 28, "w": 14, "h": 12}
            kind = "noun" if word % 4 == 1 else "colour"
            regions.append(json.dumps({"image": name, "word": word, **box, "kind": kind}))
    (folder / "images" / "3.png").write_bytes(b"no image")
    (folder / "images" / "4.png").write_bytes((folder / "images" / "4.png").read_bytes()[:900])
    (folder / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "regions.jsonl").write_text("\n".join(regions) + "\n", encoding="utf-8")
    return folder
