"""Pretrained image encoders: weights of networks of timm in a file or on the hub, or those of another captioner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import ImageConfig
from heedful.data.columns import some
from heedful.errors import ConfigError, ModelError
from heedful.interop.folder import WIDEST, ModelFolder, check_finite, unpack
from heedful.interop.hub import HUB, parse_name, snapshot
from heedful.interop.marian import BIN, SAFE, content
from heedful.interop.pickles import load_pickle
from heedful.models import Network
from heedful.models.image import TimmEncoder, regions_of, timm_network, timm_sizes

SHAPE = ("encoder", "pixels", "patch", "filters", "blocks", "backbone")  # settings that the weights depend on
PICKLED = (".pth", ".pt", ".bin", ".tar")
INSIDE = ("state_dict", "model")  # where training scripts put the weights of a network
COPIES = 4  # of each weight that a file may have: an average, and the state of an optimizer


def image_settings(image: Mapping[str, object]) -> dict[str, object]:
    """Return settings of the section `image`; what is not set is what the pretrained image encoder has.

    Raises ConfigError for a network that timm does not have, and ModelError for a folder without a captioner.
    """
    weights, backbone = str(image.get("weights") or ""), str(image.get("backbone") or "")
    if weights and not weights.startswith(HUB):
        if Path(weights).is_dir():
            known = _captioner(weights)[1]
            return {**{name: getattr(known, name) for name in SHAPE}, **image}
        if not Path(weights).exists():
            raise ModelError(f"{weights}: there is no such file of weights, nor a captioner's folder (image.weights)")
    settings = dict(image)
    if weights.startswith(HUB) and not backbone:
        settings["backbone"] = backbone = parse_name(weights)[0].rpartition("/")[2]
    if backbone:
        settings.setdefault("encoder", "timm")
    if settings.get("encoder") == "timm" and not {"pixels", "patch"} <= settings.keys():
        pixels, stride = timm_sizes(backbone)
        patch = str(settings.setdefault("patch", stride))
        if patch.isdecimal() and int(patch):  # otherwise an error, of which the settings tell
            settings.setdefault("pixels", pixels // int(patch) * int(patch))
    return settings


def load_image_encoder(model: Network, config: ImageConfig) -> str:
    """Load the image encoder of `image.weights` into a new model, and return a line for the log.

    Raises ModelError for weights that do not fit, and ConfigError for settings that do not.
    """
    if not config.weights:
        if config.frozen:
            raise ConfigError(
                "image.frozen=true needs image.weights: random weights would never be trained; give a file of weights, "
                "hf:NAME, or the folder of a captioner"
            )
        return ""
    image = regions_of(model).image
    if not config.weights.startswith(HUB) and Path(config.weights).is_dir():
        folder, known = _captioner(config.weights)
        others = [
            f"image.{name} is {getattr(known, name)} there and cannot be {getattr(config, name)}"
            for name in SHAPE
            if getattr(known, name) != getattr(config, name)
        ]
        if others:
            raise ConfigError(f"{config.weights}: this captioner has another image encoder: {'; '.join(others)}")
        image.load_state_dict(regions_of(folder.parts().model).image.state_dict())
        return f"the image encoder is that of {config.weights}"
    if not isinstance(image, TimmEncoder):
        raise ConfigError(
            f"image.weights is {config.weights}, which is not the folder of a captioner: other weights are for "
            f"image.encoder=timm, not {config.encoder}"
        )
    with torch.device("meta"):
        whole = timm_network(config.backbone).state_dict()
    path, weights = _read(config.weights, sum(weight.numel() for weight in whole.values()))
    network = image.network
    network.load_state_dict(_fitting(weights, network.state_dict(), list(whole), f"{path}", config))
    return f"the image encoder is {config.backbone} with the weights in {config.weights}"


def _captioner(path: str) -> tuple[ModelFolder, ImageConfig]:
    """Return the folder of a captioner and its settings; raise ModelError for another model."""
    folder = ModelFolder(Path(path))
    if folder.config.image is None:
        raise ModelError(f"{path}: this model reads text: it has no image encoder that image.weights could take")
    return folder, folder.config.image


def _read(name: str, numbers: int) -> tuple[Path, dict[str, Tensor]]:
    """Return the path of a file of weights, downloaded if it is on the hub, and what is in it."""
    if name.startswith(HUB):
        folder = snapshot(name, [SAFE], "vision")
        path = folder / SAFE if (folder / SAFE).exists() else snapshot(name, [BIN], "vision") / BIN
    else:
        path = Path(name)
    if path.suffix not in (".safetensors", *PICKLED):
        raise ModelError(
            f"{path}: expected a file of weights (.safetensors, {', '.join(PICKLED)}), hf:NAME, or a captioner's folder"
        )
    packed = content(path, COPIES * (WIDEST * numbers + 2_000_000), "a file of weights of this network")
    return path, unpack(packed, str(path)) if path.suffix == ".safetensors" else load_pickle(packed, str(path), INSIDE)


def _fitting(
    weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor], whole: Sequence[str], file: str, config: ImageConfig
) -> dict[str, Tensor]:
    """Return the weights that a network wants; raise ModelError if some are missing, unknown or have other shapes.

    `whole` has the names of all weights of the network: those of its classifier and of layers left out are ignored.
    """
    known = {_key(name) for name in whole}
    file_names = {_key(name): name for name in weights if not name.endswith("num_batches_tracked")}
    missing = [name for name in wanted if _key(name) not in file_names]
    unknown = sorted(name for key, name in file_names.items() if key not in known)
    fitting = {name: weights[file_names[_key(name)]] for name in wanted if _key(name) in file_names}
    shapes = [
        f"{file_names[_key(name)]} has {tuple(weight.shape)}, expected {tuple(wanted[name].shape)}"
        for name, weight in fitting.items()
        if weight.shape != wanted[name].shape or not weight.is_floating_point()
    ]
    faults = {"missing": missing, "unknown": unknown, "of another shape": shapes}
    if any(faults.values()):
        told = "; ".join(f"{len(names):,} {what}: {some(names[:3])}" for what, names in faults.items() if names)
        raise ModelError(
            f"{file}: these are not weights of {config.backbone} for images of {config.pixels} pixels ({told})"
        )
    for name, weight in fitting.items():
        check_finite(f"{file}: '{name}'", weight)
    return fitting


def _key(name: str) -> str:
    """Return the name of a weight without what wrappers add to it: timm's networks of features rename some parts."""
    return name.removeprefix("module.").removeprefix("model.").replace(".", "_")
