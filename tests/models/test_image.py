"""Image encoders: shapes, gradients, 2-D positions, and features that are computed before."""

from __future__ import annotations

import ast
import sys

import pytest
import torch
from conftest import ROOT
from tiny_captioner import captioner
from tiny_timm import tiny_timm
from torch import Tensor, nn

from heedful.config import Config, ImageConfig
from heedful.errors import ConfigError, ModelError
from heedful.models import Network, build
from heedful.models.image import (
    IMAGE_ENCODERS,
    BatchNorm,
    GridPositions,
    RegionEncoder,
    Regions,
    regions_of,
    running_statistics,
    timm_sizes,
)

FAMILIES = ("fixed", "rnn", "transformer")
SMALL = {
    "fixed": {"width": 8, "embedding": 6},
    "rnn": {"width": 8, "embedding": 6},
    "transformer": {"width": 8, "heads": 2, "inner": 12, "layers": 1},
}


def settings(**image: object) -> ImageConfig:
    config = Config.build({"image": {"pixels": 16, "patch": 4, "filters": 8, "blocks": 1, **image}}).image
    assert config is not None
    return config


def model(family: str, **image: object) -> Network:
    torch.manual_seed(0)
    return build(Config.build({"model": {"family": family, **SMALL[family]}}).model, settings(**image), 9)


def images(count: int = 3, side: int = 16, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, generator=generator)


@pytest.fixture
def timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", tiny_timm())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("encoder", ["conv", "patches", "timm"])
@pytest.mark.parametrize(("pixels", "patch"), [(16, 4), (12, 2), (20, 4)])
def test_a_memory_has_a_row_for_each_region_and_one_that_is_none(timm, family, encoder, pixels, patch) -> None:
    network = model(family, encoder=encoder, pixels=pixels, patch=patch, backbone="tiny").eval()
    memory = network.encode(images(side=pixels), None)
    regions = (pixels // patch) ** 2
    assert memory.h.shape[:2] == (3, regions + 1)
    assert memory.keep.shape == (3, regions + 1)
    assert memory.keep.all()
    assert memory.h.isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("encoder", ["conv", "patches", "timm"])
def test_features_computed_before_give_the_same_memory(timm, family, encoder) -> None:
    network = model(family, encoder=encoder, backbone="tiny").eval()
    features = regions_of(network).features(images())
    assert features.shape == (3, 16, regions_of(network).image.width)
    whole, cached = network.encode(images(), None), network.encode(features, None)
    assert torch.equal(whole.h, cached.h)
    for a, b in zip((*whole.keys, *whole.last), (*cached.keys, *cached.last), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("encoder", ["conv", "patches", "timm"])
def test_every_weight_gets_a_gradient_unless_the_encoder_is_frozen(timm, family, encoder) -> None:
    for frozen in (False, True):
        network = model(family, encoder=encoder, backbone="tiny", frozen=frozen).train()
        memory = network.encode(images(), None)
        y = torch.randint(4, 9, (3, 5))
        network.logits(network.step(y, network.start(memory, 5), memory).hidden).square().sum().backward()
        without = {name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()}
        image = {name for name, _ in network.named_parameters() if ".image." in name or name.startswith("image.")}
        assert image
        unread = {"encoder.regions.end"} if family == "fixed" else set()  # without attention, only regions are read
        assert without == unread | (image if frozen else set()), frozen


def test_one_image_does_not_change_another() -> None:
    for family in FAMILIES:
        network = model(family).eval()
        many, alone = network.encode(images(), None).h, network.encode(images()[1:2], None).h
        assert torch.allclose(many[1:2], alone, atol=1e-5)


@pytest.mark.parametrize("encoder", ["conv", "patches"])
def test_features_are_the_same_every_time_and_where_the_image_has_them(encoder) -> None:
    """Pixels at equal distances from the middle of a region change its features equally, on the average."""
    black, changed = torch.zeros(1, 32, 32, 3, dtype=torch.uint8), torch.zeros(32, 32)
    spots = (255 * torch.eye(1024, dtype=torch.uint8)).view(1024, 32, 32, 1).expand(-1, -1, -1, 3)
    for seed in range(20):
        torch.manual_seed(seed)
        encode = IMAGE_ENCODERS[encoder](settings(encoder=encoder, pixels=32, blocks=0)).eval()
        assert torch.equal(encode(black), encode(black))
        with torch.no_grad():
            changed += (encode(spots) - encode(black))[:, 3 * 8 + 5].norm(dim=-1).view(32, 32)  # row 3, column 5
    rows, columns = (changed.sum(axis) / changed.sum() for axis in (1, 0))
    places = torch.arange(32) + 0.5
    assert float((rows * places).sum()) == pytest.approx(12 + 2, abs=0.2)
    assert float((columns * places).sum()) == pytest.approx(20 + 2, abs=0.2)


def test_positions_are_the_sum_of_a_row_and_a_column() -> None:
    positions = GridPositions(2, 3, 1)
    with torch.no_grad():
        positions.row.copy_(torch.tensor([[10.0], [20.0]]))
        positions.column.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    assert positions().tolist() == [[11], [12], [13], [21], [22], [23]]


def test_regions_differ_by_their_position_alone() -> None:
    torch.manual_seed(0)
    regions = Regions(settings(), 8, 0.0).eval()
    h = regions(torch.ones(1, 16, regions.image.width))[0]
    assert len({tuple(row) for row in h.tolist()}) == 17


def test_the_last_row_is_the_same_for_all_images() -> None:
    torch.manual_seed(0)
    regions = Regions(settings(), 8, 0.0).eval()
    h = regions(images())
    assert torch.equal(h[0, -1], regions.end)
    assert torch.equal(h[0, -1], h[2, -1])


def test_the_first_state_is_made_of_the_regions_alone() -> None:
    torch.manual_seed(0)
    rnn = Config.build({"model": {"family": "rnn", **SMALL["rnn"]}}).model
    encoder = RegionEncoder(settings(), rnn, 1).eval()
    _, states = encoder(images(), None)
    with torch.no_grad():
        encoder.regions.end.add_(100)
    _, again = encoder(images(), None)
    assert torch.equal(states[0], again[0])


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ({"encoder": "conv", "pixels": 18, "patch": 6}, "image.patch is 6"),
        ({"encoder": "conv", "pixels": 18, "patch": 4}, "18, which is not a multiple of image.patch, 4"),
        (
            {"encoder": "patches", "pixels": 130, "patch": 2},
            "130 and image.patch is 2: 65 × 65 regions; at most 64 × 64",
        ),
        ({"encoder": "conv", "pixels": 2048, "patch": 1}, "image.patch is 1: 2048 × 2048 regions; at most 64 × 64"),
        ({"encoder": "timm", "backbone": "tiny", "patch": 8}, "have sides of 2, 4 pixels"),
        ({"encoder": "timm", "backbone": "tinny"}, "Did you mean 'tiny'"),
        ({"encoder": "timm", "backbone": "hf-hub:somebody/tiny"}, "which is not a name of timm"),
        ({"encoder": "timm", "backbone": "local-dir:x"}, "which is not a name of timm"),
        ({"encoder": "timm"}, "needs image.backbone"),
    ],
)
def test_settings_that_do_not_fit(timm, image, named) -> None:
    with pytest.raises(ConfigError, match=named):
        model("rnn", **image)


def test_no_timm(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"\[vision\]"):
        model("rnn", encoder="timm", backbone="tiny")


def test_images_of_another_size(timm) -> None:
    for encoder in ("conv", "timm"):
        network = model("rnn", encoder=encoder, backbone="tiny")
        with pytest.raises(ModelError, match="25 regions, expected 4 × 4"):
            network.encode(images(side=20), None)


def test_a_network_of_timm_reads_its_own_mean_and_deviation(timm) -> None:
    network = model("rnn", encoder="timm", backbone="tiny").eval()
    image = regions_of(network).image
    x = (images() / 255 - torch.tensor([0.5, 0.25, 0.0])) / torch.tensor([0.5, 0.25, 1.0])
    expected = image.network(x.permute(0, 3, 1, 2))[-1].flatten(2).transpose(1, 2)  # type: ignore[operator]
    assert torch.allclose(image(images()), expected, atol=1e-6)


def test_layers_after_the_regions_are_left_out(timm) -> None:
    assert timm_sizes("tiny") == (16, 4)
    network = model("rnn", encoder="timm", backbone="tiny", patch=2)
    assert not any("blocks" in name for name in regions_of(network).image.state_dict())


def test_batch_statistics_stay_in_training(timm) -> None:
    for frozen in (False, True):
        network = model("rnn", encoder="timm", backbone="tiny", frozen=frozen).train()
        image = regions_of(network).image
        before = {name: buffer.clone() for name, buffer in image.named_buffers()}
        assert any("running_mean" in name for name in before)
        network.encode(images(), None)
        for name, buffer in image.named_buffers():
            assert torch.equal(buffer, before[name]), name


def test_a_frozen_encoder_has_no_dropout(timm) -> None:
    network = model("rnn", encoder="timm", backbone="tiny", frozen=True)
    regions_of(network).image.add_module("extra", nn.Dropout(0.5))
    network.train()
    assert not regions_of(network).image.training
    assert not regions_of(network).image.extra.training  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_statistics_stay_finite(value) -> None:
    """Of the channel that is not finite, those before stay; the others move."""
    normalise = BatchNorm(2).train()
    normalise(torch.randn(2, 2, 4, 4))
    mean, variance = normalise.mean.clone(), normalise.variance.clone()
    x = torch.randn(2, 2, 4, 4)
    x[0, 1, 0, 0] = value
    normalise(x)
    assert torch.equal(normalise.mean[1], mean[1])
    assert torch.equal(normalise.variance[1], variance[1])
    assert not torch.equal(normalise.mean[0], mean[0])
    assert normalise.mean.isfinite().all()


def test_only_statistics_that_training_changes_are_followed() -> None:
    trained, frozen = model("rnn"), model("rnn", frozen=True)
    names = [name for name, _ in trained.named_buffers() if name.endswith((".mean", ".variance"))]
    assert list(running_statistics(trained)) == names
    assert len(names) > 4
    assert not running_statistics(frozen)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_captioner_has_the_decoder_of_a_translator(family) -> None:
    config = Config.build({"model": {"family": family, **SMALL[family]}}).model
    translates, captions = build(config, 9, 9), build(config, settings(), 9)
    assert type(translates) is type(captions)
    inputs = ("encoder.", "source.", "regions.")  # of the Transformer, also the layers of self-attention over them

    def decoder(network: Network) -> dict[str, type]:
        every = {f"{name}.": type(module) for name, module in network.named_modules()}
        return {name: kind for name, kind in every.items() if not name.startswith(inputs)}

    assert decoder(translates) == decoder(captions)
    assert len(decoder(captions)) > 5


def test_images_have_no_decoder_of_their_own() -> None:
    tree = ast.parse((ROOT / "heedful" / "models" / "image.py").read_text(encoding="utf-8"))
    methods = {
        (node.name, item.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    }
    assert ("TimmEncoder", "forward") in methods
    assert not [name for name in methods if name[1] in ("step", "start", "logits", "query")]
    decoders = {"Recurrent", "Bahdanau", "Luong", "Fixed", "Transformer", "DecoderLayer", "Network"}
    for path in (ROOT / "heedful").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and "models" not in path.parts:
                assert not decoders & {ast.unparse(base) for base in node.bases}, (path, node.name)


def test_regions_of_a_model_of_text() -> None:
    config = Config.build({"model": {"family": "rnn", **SMALL["rnn"]}}).model
    with pytest.raises(ConfigError, match="reads text"):
        regions_of(build(config, 9, 9))
    assert isinstance(regions_of(captioner().parts.model), Regions)


def test_batch_normalisation_learns_means_while_training_only() -> None:
    encode = IMAGE_ENCODERS["conv"](settings())
    before = {name: value.clone() for name, value in encode.named_buffers()}
    assert before
    encode.eval()(images())
    assert all(torch.equal(value, before[name]) for name, value in encode.named_buffers())
    encode.train()(images())
    assert all(not torch.equal(value, before[name]) for name, value in encode.named_buffers())


def test_batch_normalisation_is_that_of_pytorch() -> None:
    torch.manual_seed(1)
    x, ours, theirs = torch.randn(3, 5, 4, 4), BatchNorm(5), torch.nn.BatchNorm2d(5)
    assert torch.allclose(ours(x), theirs(x))
    assert torch.allclose(ours.mean, theirs.running_mean)
    assert torch.allclose(ours.variance, theirs.running_var)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x))
    one = torch.randn(1, 5, 1, 1)
    assert torch.allclose(ours.train()(one), theirs(one))  # nothing to take a variance of
