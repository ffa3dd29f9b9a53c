"""Image encoders: pixels -> features of regions -> h, with 2-D positions.

`encode` of a model takes uint8 pixels (B, P, P, 3), or features (B, S, F) that an image encoder has computed before.
The result has one row for each region of a grid, row by row, and a last one that is no region: a learned vector, to
which a word that names nothing in the image can attend, as words can attend to `</s>` of a sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.config import ImageConfig, RecurrentConfig
from heedful.errors import ConfigError, ModelError, install_command, nearest
from heedful.models.layers import Dropout

WIDER = 4  # times the filters: the channels of the last convolution
PATCH_WIDTH = 8  # times the filters: the width of patches
PATCH_HEADS = 32  # channels of a head of their self-attention


class ImageEncoder(nn.Module):
    """The protocol of an image encoder: `forward` gives features (B, S, width) of regions, row by row."""

    width: int

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of all regions.  pixels uint8 (B, P, P, 3) -> (B, S, width)."""
        raise NotImplementedError


def centred(pixels: Tensor, like: Tensor) -> Tensor:
    """Return pixels as numbers from -1 to 1, by channel.  uint8 (B, P, P, 3) -> (B, 3, P, P)."""
    return (pixels.to(like.dtype) / 127.5 - 1).permute(0, 3, 1, 2)


class BatchNorm(nn.Module):
    """Batch normalisation: a channel over all pixels of all images; at inference with running means and variances.

    With layer normalisation over the channels of a pixel instead, drawn scenes are learned more slowly.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel.  (B, C, P, P) -> the same; one pixel alone is normalised as at inference.

        Running statistics of a channel that would not be finite are kept as they were: an update that is skipped, as
        its loss is not finite, leaves the model as it was.
        """
        if not self.training or x.numel() == x.shape[1]:
            return F.batch_norm(x, self.mean, self.variance, self.scale, self.shift)
        mean, variance = self.mean.clone(), self.variance.clone()
        y = F.batch_norm(x, mean, variance, self.scale, self.shift, training=True)
        with torch.no_grad():
            finite = torch.isfinite(mean) & torch.isfinite(variance)
            self.mean.copy_(torch.where(finite, mean, self.mean))
            self.variance.copy_(torch.where(finite, variance, self.variance))
        return y


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Return the running means and variances of batch normalisation that training changes, by their names."""
    return {
        f"{name}.{kind}": statistic
        for name, module in model.named_modules()
        if isinstance(module, BatchNorm) and module.scale.requires_grad
        for kind, statistic in module.named_buffers(recurse=False)
    }


def convolution(inputs: int, outputs: int) -> nn.Sequential:
    """Return a convolution of 3 × 3 pixels, normalised."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), BatchNorm(outputs))


def halving(inputs: int, outputs: int) -> nn.Sequential:
    """Return a convolution of 4 × 4 pixels that halves the image, normalised.

    Each of its pixels lies in the middle of the four that it sums up, so that a region is where the image has it: with
    3 × 3 pixels it would lie at their upper left, and regions of a stride of 8 pixels would be 3.5 pixels off.
    """
    return nn.Sequential(nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), BatchNorm(outputs))


class ResidualBlock(nn.Module):
    """x + g(x), two convolutions on the grid: each region sees its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = convolution(width, width), convolution(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum.  (B, C, rows, columns) -> the same."""
        return F.relu(x + cast(Tensor, self.second(F.relu(self.first(x)))))


class ConvEncoder(ImageEncoder):
    """Convolutions that halve the image until a pixel is a region, then residual blocks on the grid of regions.

    After each halving but the first is a convolution that keeps the size.
    """

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        halvings = int(math.log2(config.patch))
        if 2**halvings != config.patch or halvings < 1:
            raise ConfigError(
                f"image.patch is {config.patch}; image.encoder=conv halves images several times: choose 2, 4, 8, 16 …"
            )
        widths = [3, *(config.filters * min(2**i, WIDER) for i in range(halvings))]
        self.halvings = nn.ModuleList(halving(a, b) for a, b in pairwise(widths))
        self.between = nn.ModuleList(convolution(width, width) for width in widths[2:])
        self.blocks = nn.ModuleList(ResidualBlock(widths[-1]) for _ in range(config.blocks))
        self.width = widths[-1]

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of all regions.  uint8 (B, P, P, 3) -> (B, S, width)."""
        x = centred(pixels, next(self.parameters())).contiguous(memory_format=torch.channels_last)
        for layer in (self.halvings[0], *chain(*zip(self.halvings[1:], self.between, strict=True))):
            x = F.relu(layer(x))
        for block in self.blocks:
            x = block(x)
        return x.flatten(2).transpose(1, 2)


class PatchEncoder(ImageEncoder):
    """Patches, as in ViT (Dosovitskiy et al. 2021): a linear map of each patch, then layers of self-attention."""

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        D = self.width = PATCH_WIDTH * config.filters
        self.patch = config.patch
        self.W = nn.Linear(3 * config.patch**2, D)
        self.positions = GridPositions(config.side, config.side, D)
        heads = next(n for n in range(max(1, D // PATCH_HEADS), 0, -1) if D % n == 0)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, heads, 2 * D, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(config.blocks)
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of all patches.  uint8 (B, P, P, 3) -> (B, S, width)."""
        B, P, n = pixels.shape[0], self.patch, pixels.shape[1] // self.patch
        x = pixels.to(self.W.weight.dtype) / 127.5 - 1
        x = x.view(B, n, P, n, P, 3).permute(0, 1, 3, 2, 4, 5).reshape(B, n * n, -1)
        h = self.W(x) + self.positions()
        for layer in self.layers:
            h = layer(h)
        return h  # type: ignore[no-any-return]


NETWORK_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)  # of timm; its names with `:` download settings or read folders


def timm_network(backbone: str, **options: Any) -> Any:  # noqa: ANN401  (a module of an extra)
    """Return a network of timm with random weights; raise ConfigError if there is none, or no timm."""
    try:
        import timm
    except ImportError:
        raise ConfigError(f"image.encoder=timm needs timm: {install_command('vision')}") from None
    except Exception as error:  # torchvision, which timm imports, raises RuntimeError if it does not fit torch
        raise ConfigError(
            f"image.encoder=timm: timm cannot be imported ({error!s:.200}); it needs the torchvision that was built "
            f"for torch {torch.__version__}"
        ) from None
    if not backbone:
        raise ConfigError("image.encoder=timm needs image.backbone, the name of a network, such as resnet18")
    if not NETWORK_NAME.fullmatch(backbone):
        raise ConfigError(f"image.backbone is '{backbone:.100}', which is not a name of timm, such as resnet18")
    try:
        return timm.create_model(backbone, pretrained=False, **options)
    except Exception as error:  # timm raises whatever its networks raise
        names = timm.list_models() if "nknown model" in str(error) else []
        guess = nearest(backbone.partition(".")[0], names)
        raise ConfigError(
            f"image.backbone is '{backbone:.100}': timm cannot make it ({error!s:.200}).{guess}"
        ) from None


def library_versions(config: ImageConfig) -> str:
    """Return the versions of the libraries that compute the features of an image."""
    versions = [f"torch {torch.__version__}"]
    if config.encoder == "timm":
        import timm

        versions.append(f"timm {getattr(timm, '__version__', '')}")
    return ", ".join(versions)


def timm_sizes(backbone: str) -> tuple[int, int]:
    """Return the pixels that a network of timm was made for, and the pixels of a region after its last layer."""
    with torch.device("meta"):
        network = timm_network(backbone, features_only=True)
    patch = network.feature_info.reduction()[-1]
    return network.pretrained_cfg["input_size"][-1] // patch * patch, patch


class TimmEncoder(ImageEncoder):
    """A network of `timm`: the features of the last layer whose regions have a side of `image.patch` pixels.

    Layers after it are left out. The statistics of batch normalisation stay those of the network, also when it is
    trained further.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: ImageConfig) -> None:
        super().__init__()
        with torch.device("meta"):
            whole = timm_network(config.backbone, features_only=True)
        reductions, known = whole.feature_info.reduction(), whole.pretrained_cfg
        if config.patch not in reductions:
            sides = ", ".join(map(str, sorted(set(reductions))))
            raise ConfigError(
                f"image.patch is {config.patch}, but the regions of {config.backbone} have sides of {sides} pixels; "
                "choose one of these"
            )
        last = len(reductions) - 1 - reductions[::-1].index(config.patch)
        options: dict[str, object] = {"out_indices": (whole.feature_info.out_indices[last],)}
        if known.get("fixed_input_size") and known["input_size"][-1] != config.pixels:
            options["img_size"] = config.pixels
        self.network = timm_network(config.backbone, features_only=True, **options)
        self.width = self.network.feature_info.channels()[-1]
        self.channels_last = str(getattr(self.network, "output_fmt", "")).endswith("NHWC")
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor([255.0 * value for value in known[name]]))
        for module in batch_norms(self):
            module.track_running_stats, module.num_batches_tracked = False, None  # statistics stay; none are counted

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features of all regions.  uint8 (B, P, P, 3) -> (B, S, width)."""
        x: Tensor = self.network(((pixels - self.mean) / self.std).permute(0, 3, 1, 2))[-1]
        return x.flatten(1, 2) if self.channels_last else x.flatten(2).transpose(1, 2)

    def train(self, mode: bool = True) -> TimmEncoder:
        """Set the mode of all modules but batch normalisation, whose statistics stay."""
        super().train(mode)
        for module in batch_norms(self):
            module.eval()
        return self


def batch_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the batch normalisations inside a module."""
    return [inner for inner in module.modules() if isinstance(inner, nn.modules.batchnorm._BatchNorm)]


# To add one: a class as these, and its name in `heedful.config.ImageConfig.encoder`.
IMAGE_ENCODERS: dict[str, Callable[[ImageConfig], ImageEncoder]] = {
    "conv": ConvEncoder,
    "patches": PatchEncoder,
    "timm": TimmEncoder,
}


class GridPositions(nn.Module):
    """A learned vector for each row and each column of a grid; their sum is the position of a region."""

    def __init__(self, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.empty(rows, width).normal_(std=width**-0.5))
        self.column = nn.Parameter(torch.empty(columns, width).normal_(std=width**-0.5))

    def forward(self) -> Tensor:
        """Return the positions of all regions, row by row.  (S, width)."""
        return (self.row[:, None] + self.column[None]).flatten(0, 1)


class Regions(nn.Module):
    """h_j = LN(W f_j + row + column) for the features f_j of region j, and last a learned vector that is no region."""

    def __init__(self, config: ImageConfig, width: int, dropout: float) -> None:
        super().__init__()
        self.side, self.frozen = config.side, config.frozen
        self.image = IMAGE_ENCODERS[config.encoder](config).requires_grad_(not config.frozen)
        self.LN_f = nn.LayerNorm(self.image.width)  # features of a foreign network may have any size
        self.W = nn.Linear(self.image.width, width)
        self.positions = GridPositions(self.side, self.side, width)
        self.LN = nn.LayerNorm(width)
        self.end = nn.Parameter(torch.empty(width).normal_())
        self.dropout = Dropout(dropout)

    def features(self, pixels: Tensor) -> Tensor:
        """Return what the image encoder computes.  uint8 (B, P, P, 3) -> (B, S, F)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features: Tensor = self.image(pixels)
        if features.shape[1] != self.side**2:
            raise ModelError(
                f"the image encoder gave {features.shape[1]} regions, expected {self.side} × {self.side}: its images "
                "have another size than image.pixels, or its regions than image.patch"
            )
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return the regions.  x uint8 pixels (B, P, P, 3) or features (B, S, F) -> h (B, S + 1, width)."""
        features = self.features(x) if x.ndim == 4 else x.to(self.W.weight.dtype)
        h = self.LN(self.W(self.LN_f(features)) + self.positions())
        return self.dropout(torch.cat([h, self.end.expand(len(h), 1, -1).to(h.dtype)], dim=1))  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> Regions:
        """Set the mode; a frozen image encoder stays as it is for inference."""
        super().train(mode)
        if self.frozen:
            self.image.eval()
        return self


def regions_of(model: nn.Module) -> Regions:
    """Return the part of a model that encodes images; raise ConfigError for a model of text."""
    for module in model.modules():
        if isinstance(module, Regions):
            return module
    raise ConfigError("this model reads text: it has no image encoder")


class RegionEncoder(nn.Module):
    """The encoder of a recurrent model of images: h, and for the first state the mean of tanh(W h_j), as h(T)."""

    def __init__(self, image: ImageConfig, config: RecurrentConfig, states: int) -> None:
        super().__init__()
        E = config.memory_width
        self.regions = Regions(image, E, config.dropout)
        self.W = nn.Linear(E, E)
        self.states = config.layers * states

    def forward(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Encode images.  x uint8 (B, P, P, 3) or (B, S, F) -> h (B, S + 1, E), and the decoder's first states."""
        h = self.regions(x)
        mean = torch.tanh(self.W(h[:, :-1])).mean(1)
        return h, (mean,) * self.states
