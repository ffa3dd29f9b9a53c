"""A stand-in for `timm` with one small network, `tiny`: tests of what heedful does with a network need no timm."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn

SIZES = {"input_size": (3, 16, 16), "mean": (0.5, 0.25, 0.0), "std": (0.5, 0.25, 1.0)}


class Tiny(nn.Module):
    """Two convolutions of stride 2 with batch normalisation, and a classifier."""

    pretrained_cfg = SIZES

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 2, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.blocks = nn.Sequential(nn.Conv2d(4, 6, 2, 2, bias=False), nn.BatchNorm2d(6), nn.ReLU())
        self.classifier = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.blocks(self.stem(x)).mean((2, 3)))


class FeatureInfo:
    def __init__(self, out_indices: tuple[int, ...]) -> None:
        self.out_indices = out_indices

    def reduction(self) -> list[int]:
        return [(2, 4)[i] for i in self.out_indices]

    def channels(self) -> list[int]:
        return [(4, 6)[i] for i in self.out_indices]


class TinyFeatures(nn.Module):
    """The layers up to the last one asked for; `stem.0` is called `stem_0`, as in some of timm's networks."""

    pretrained_cfg = SIZES

    def __init__(self, out_indices: tuple[int, ...]) -> None:
        super().__init__()
        tiny = Tiny()
        self.feature_info = FeatureInfo(out_indices)
        self.stem_0, self.stem_1 = tiny.stem[0], tiny.stem[1]
        self.blocks = tiny.blocks if 1 in out_indices else None
        # A table that is not saved, as some of timm's networks have.
        self.register_buffer("ones", torch.ones(4, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> list[Tensor]:
        layers = [torch.relu(self.stem_1(self.stem_0(x) * self.ones))]
        layers += [] if self.blocks is None else [self.blocks(layers[0])]
        return [layers[i] for i in self.feature_info.out_indices]


def create_model(
    name: str, pretrained: bool = False, features_only: bool = False, out_indices: tuple[int, ...] = (0, 1)
) -> nn.Module:
    if name != "tiny":
        raise RuntimeError(f"Unknown model ({name})")
    assert not pretrained
    return TinyFeatures(out_indices) if features_only else Tiny()


def tiny_timm() -> SimpleNamespace:
    """Return the module, for `monkeypatch.setitem(sys.modules, "timm", …)`."""
    return SimpleNamespace(create_model=create_model, list_models=lambda: ["tiny"])
