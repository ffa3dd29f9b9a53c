"""Pretrained image encoders: from files of weights, from the hub, and from captioners."""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tiny_captioner import captioner
from tiny_timm import Tiny, tiny_timm
from torch import Tensor

from heedful.config import Config, ImageConfig
from heedful.data.images import ImageInput
from heedful.errors import ConfigError, HeedfulError, ModelError
from heedful.interop import image_settings, image_weights, load_image_encoder
from heedful.interop.folder import ModelParts, read_model, write_model
from heedful.models import Network, build
from heedful.models.image import regions_of

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", tiny_timm())


def network_weights() -> dict[str, Tensor]:
    torch.manual_seed(5)
    return Tiny().state_dict()


def captions(**image: object) -> tuple[Network, ImageConfig]:
    """Return a new model with a network of timm, and its settings."""
    settings = image_settings({"encoder": "timm", "backbone": "tiny", **image})
    config = Config.build({"model": {"family": "rnn", "width": 8, "embedding": 6}, "image": settings})
    assert config.image is not None
    torch.manual_seed(6)
    return build(config.model, config.image, 9), config.image


def saved(path: Path, weights: object) -> str:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(weights, path)  # type: ignore[arg-type]
    else:
        torch.save(weights, path)
    return str(path)


def features(weights: dict[str, Tensor], pixels: Tensor) -> Tensor:
    network = Tiny().eval()
    network.load_state_dict(weights)
    x = (pixels / 255 - torch.tensor([0.5, 0.25, 0.0])) / torch.tensor([0.5, 0.25, 1.0])
    return network.blocks(network.stem(x.permute(0, 3, 1, 2))).flatten(2).transpose(1, 2)


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt", "w.bin"])
def test_a_file_of_weights(tmp_path, name) -> None:
    weights = network_weights()
    model, image = captions(weights=saved(tmp_path / name, weights))
    assert (image.pixels, image.patch) == (16, 4)  # the network's own
    assert "tiny" in load_image_encoder(model, image)
    pixels = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    assert torch.allclose(regions_of(model.eval()).features(pixels), features(weights, pixels), atol=1e-6)


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_weights_inside_a_checkpoint(tmp_path, key) -> None:
    weights = network_weights()
    wrapped = {"epoch": 3, key: {f"module.{name}": weight for name, weight in weights.items()}}
    model, image = captions(weights=saved(tmp_path / "w.pth", wrapped))
    load_image_encoder(model, image)
    assert torch.equal(regions_of(model).image.state_dict()["network.stem_0.weight"], weights["stem.0.weight"])


def test_a_classifier_of_any_size_and_layers_left_out_are_ignored(tmp_path) -> None:
    weights = network_weights()
    weights["classifier.weight"] = torch.zeros(3, 6)
    model, image = captions(weights=saved(tmp_path / "w.safetensors", weights), patch=2)
    assert image.pixels == 16
    load_image_encoder(model, image)
    without = {name: weight for name, weight in weights.items() if not name.startswith(("classifier", "blocks"))}
    load_image_encoder(model, replace(image, weights=saved(tmp_path / "v.safetensors", without)))


def changed(name: str, weight: Tensor | None) -> dict[str, Tensor]:
    weights = network_weights()
    weights.pop(name, None)
    return weights if weight is None else {**weights, name: weight}


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        (changed("blocks.0.weight", None), "1 missing: blocks.0.weight"),
        (changed("stem.0.weight", None), "1 missing: stem_0.weight"),
        (changed("stem.9.weight", torch.zeros(1)), "1 unknown: stem.9.weight"),
        (
            changed("stem.0.weight", torch.zeros(4, 3, 3, 3)),
            r"stem.0.weight has \(4, 3, 3, 3\), expected \(4, 3, 2, 2\)",
        ),
        (changed("stem.0.weight", torch.zeros(4, 3, 2, 2, dtype=torch.int64)), "1 of another shape: stem.0.weight"),
        (changed("stem.0.weight", torch.full((4, 3, 2, 2), torch.nan)), "not a number"),
        ({"w": torch.zeros(1)}, "10 missing"),
    ],
)
def test_weights_that_do_not_fit(tmp_path, weights, named) -> None:
    file = saved(tmp_path / "w.safetensors", weights)
    model, image = captions(weights=file)
    with pytest.raises(ModelError, match=named) as error:
        load_image_encoder(model, image)
    assert file in str(error.value)


class Command:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("w.pth", pickle.dumps({"a": Command()}), "not plain weights"),
        ("w.pth", b"no weights", "not plain weights"),
        ("w.safetensors", b"no weights", "not a safetensors file"),
        ("w.txt", b"no weights", ".safetensors, .pth"),
    ],
)
def test_files_that_are_not_weights(tmp_path, capsys, name, content, named) -> None:
    (tmp_path / name).write_bytes(content)
    model, image = captions(weights=str(tmp_path / name))
    with pytest.raises(ModelError, match=named) as error:
        load_image_encoder(model, image)
    assert name in str(error.value)
    assert capsys.readouterr().out == ""


def test_a_file_far_larger_than_the_network(tmp_path) -> None:
    file = saved(tmp_path / "w.safetensors", {"w": torch.zeros(5_000_000)})
    model, image = captions(weights=file)
    with pytest.raises(ModelError, match="w.safetensors.*at most"):
        load_image_encoder(model, image)


def test_weights_on_the_hub(tmp_path, monkeypatch) -> None:
    weights = network_weights()
    asked = []

    def snapshot(name: str, patterns: list[str], extra: str) -> Path:
        asked.append((name, *patterns, extra))
        if patterns == ["pytorch_model.bin"]:
            saved(tmp_path / "pytorch_model.bin", weights)
        return tmp_path

    monkeypatch.setattr(image_weights, "snapshot", snapshot)
    settings = image_settings({"weights": "hf:timm/tiny"})
    assert settings == {"weights": "hf:timm/tiny", "backbone": "tiny", "encoder": "timm", "pixels": 16, "patch": 4}
    model, image = captions(**settings)
    load_image_encoder(model, image)
    assert torch.equal(regions_of(model).image.state_dict()["network.stem_0.weight"], weights["stem.0.weight"])
    assert asked == [
        ("hf:timm/tiny", "model.safetensors", "vision"),
        ("hf:timm/tiny", "pytorch_model.bin", "vision"),
    ]


@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_the_encoder_of_a_captioner(tmp_path, family) -> None:
    first = captioner("rnn").parts
    write_model(tmp_path / "first", first)
    settings = image_settings({"weights": str(tmp_path / "first"), "frozen": True})
    assert (settings["pixels"], settings["patch"], settings["filters"]) == (32, 8, 4)
    config = Config.build({"model": {"family": family, "width": 8}, "image": settings})
    assert config.image is not None
    model = build(config.model, config.image, 9)
    load_image_encoder(model, config.image)
    pixels = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    shared = regions_of(model.eval()).features(pixels)
    assert torch.equal(shared, regions_of(first.model).features(pixels))
    assert not shared.requires_grad


def test_a_captioner_with_another_encoder(tmp_path) -> None:
    write_model(tmp_path / "first", captioner("rnn").parts)
    settings = image_settings({"weights": str(tmp_path / "first"), "filters": 8})
    config = Config.build({"image": settings})
    assert config.image is not None
    with pytest.raises(ConfigError, match="image.filters is 4 there and cannot be 8"):
        load_image_encoder(build(config.model, config.image, 9), config.image)


def test_a_folder_without_a_captioner(tmp_path) -> None:
    with pytest.raises(ModelError, match="config.json"):
        image_settings({"weights": str(tmp_path)})


def test_weights_for_an_encoder_that_is_not_of_timm(tmp_path) -> None:
    file = saved(tmp_path / "w.safetensors", network_weights())
    config = Config.build({"image": image_settings({"weights": file})})
    assert config.image is not None
    with pytest.raises(ConfigError, match="image.encoder=timm, not conv"):
        load_image_encoder(build(config.model, config.image, 9), config.image)


def test_a_frozen_encoder_needs_weights() -> None:
    model, image = captions(frozen=True)
    with pytest.raises(ConfigError, match="image.frozen=true needs image.weights"):
        load_image_encoder(model, image)


def test_no_such_file(tmp_path) -> None:
    with pytest.raises(ModelError, match="nothing.pth.*image.weights"):
        image_settings({"backbone": "tiny", "weights": str(tmp_path / "nothing.pth")})


def test_a_size_of_regions_as_text() -> None:
    settings = image_settings({"backbone": "tiny", "patch": "3"})
    assert settings["pixels"] == 15


@pytest.mark.parametrize("image", [{"pixels": 32}, {"patch": 2}, {"patch": "x"}, {"patch": 0}])
def test_what_is_set_stays(image) -> None:
    settings = image_settings({"backbone": "tiny", **image})
    assert {**settings, **image} == settings


def test_settings_of_a_network_that_there_is_not() -> None:
    with pytest.raises(HeedfulError, match="Did you mean 'tiny'"):
        image_settings({"backbone": "tinny"})


def test_a_folder_holds_the_weights_of_its_network(tmp_path) -> None:
    """It loads without the file that these came from."""
    file = saved(tmp_path / "w.pth", network_weights())
    model, image = captions(weights=file, frozen=True)
    load_image_encoder(model, image)
    config = replace(captioner().parts.config, image=image)
    parts = captioner().parts
    codec = parts.target
    config = Config.build({**config.plain(), "model": {"family": "rnn", "width": 8, "embedding": 6}})
    torch.manual_seed(1)
    model = build(config.model, image, len(codec))
    load_image_encoder(model, image)
    write_model(tmp_path / "m", ModelParts(config, model, ImageInput(image), codec))
    Path(file).unlink()
    again = read_model(tmp_path / "m").model
    pixels = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    assert torch.equal(regions_of(again).features(pixels), regions_of(model.eval()).features(pixels))
    assert not any(weight.requires_grad for weight in regions_of(again).image.parameters())


@pytest.mark.parametrize(
    ("backbone", "width"),
    [("tf_efficientnet_lite0", 320), ("swin_tiny_patch4_window7_224", 768), ("vit_tiny_patch16_224", 192)],
)
def test_networks_of_timm_itself(tmp_path, monkeypatch, backbone, width) -> None:
    monkeypatch.delitem(sys.modules, "timm")
    timm = pytest.importorskip("timm", reason="timm is not installed (extra vision)")
    plain = timm.create_model(backbone).eval()
    file = saved(tmp_path / "w.safetensors", {n: w for n, w in plain.state_dict().items() if w.is_floating_point()})
    image = image_settings({"backbone": backbone, "weights": file, "frozen": True})
    parts = captioner().parts
    config = Config.build({**parts.config.plain(), "image": image})
    assert config.image is not None
    model = build(config.model, config.image, len(parts.target))
    load_image_encoder(model, config.image)
    write_model(tmp_path / "m", ModelParts(config, model, ImageInput(config.image), parts.target))
    again = regions_of(read_model(tmp_path / "m").model)
    pixels = torch.randint(0, 256, (1, 224, 224, 3), dtype=torch.uint8)
    mean, std = (torch.tensor(plain.pretrained_cfg[name]) for name in ("mean", "std"))
    x = ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)
    with torch.no_grad():
        last = plain.forward_intermediates(x, intermediates_only=True, norm=False, output_fmt="NCHW")[-1]
        assert again.features(pixels).shape == (1, config.image.side**2, width)
        assert torch.allclose(again.features(pixels), last.flatten(2).transpose(1, 2), rtol=1e-3, atol=1e-3)


def test_pickles_keep_their_limits() -> None:
    content = io.BytesIO()
    torch.save({"a": torch.zeros(1).expand(10**9)}, content)
    with pytest.raises(ModelError, match="'a' is not a plain tensor"):
        image_weights.load_pickle(content.getvalue(), "x")
