"""Reading a Marian or Opus-MT model as `transformers` saves it.

Its ids are put into our order: `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, then all other tokens in theirs. Marian has no
`<s>` as a rule and begins a sentence with `<pad>`: then our `<s>` is a copy of that row. Nothing in the folder is ever
executed: a `pytorch_model.bin` is unpickled with `weights_only`, which builds tensors and nothing else.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import HeedfulError, ModelError
from heedful.files import max_json
from heedful.interop.files import content, json_object
from heedful.interop.folder import WIDEST, Parts, check_finite, unpack
from heedful.interop.names import (
    BIAS,
    BIN,
    CONFIG,
    POSITIONS,
    SAFE,
    SOURCE_SPM,
    TARGET_SPM,
    embeddings,
    layers,
)
from heedful.interop.pickles import check_pickle
from heedful.interop.settings import Marian
from heedful.interop.vocabulary import Vocabulary, vocabularies
from heedful.models import Network, build
from heedful.models.device import memory_guard
from heedful.text.sentencepiece import SentencePieces
from heedful.trace.readout import read_readout

__all__ = ["is_marian", "read_marian"]


def is_marian(path: Path) -> bool:
    """Whether a folder holds a Marian model: its `config.json` says so."""
    try:
        return bool(json_object(path / CONFIG).get("model_type") == "marian")
    except ModelError:
        return False


def read_marian(path: Path, device: torch.device | None = None) -> Parts:
    """Read a Marian folder; anything in it that is not as it should be is a `ModelError`."""
    given = json_object(path / CONFIG)
    try:
        settings = Marian.build(given)
    except HeedfulError as error:
        raise ModelError(f"{path / CONFIG}: {error}") from None
    source, target = vocabularies(path, settings)
    source_codec = _codec(path / SOURCE_SPM, source.tokens)
    target_codec = _codec(path / TARGET_SPM, target.tokens)
    joint = (source_codec.model, source_codec.tokens) == (target_codec.model, target_codec.tokens)
    config = _config(path / CONFIG, settings, joint, max(len(source.tokens), len(target.tokens)))
    # Built without memory first, so that absurd settings cost nothing.
    with torch.device("meta"):
        model = build(config.model, len(source.tokens), len(target.tokens))
    file, weights = _weights(path, _limit(model, config, settings))
    try:
        model = _fill(model, config.model, settings, (source, target), weights)
    except HeedfulError as error:
        raise ModelError(f"{file}: {error}") from None
    readout, fault = read_readout(path, config)
    with memory_guard(f"opening {path}", "use --device cpu"):
        model = model.to(device).eval()
    return Parts(config, model, source_codec, source_codec if joint else target_codec, readout=readout, fault=fault)


def _codec(path: Path, tokens: Sequence[str]) -> SentencePieces:
    model = content(path, max_json(), "a SentencePiece model")
    try:
        return SentencePieces(model, tokens)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _config(path: Path, settings: Marian, joint: bool, size: int) -> Config:
    """Return our settings for theirs."""
    text = {"kind": "sentencepiece", "size": size, "joint": joint, "max_length": settings.max_position_embeddings}
    try:
        config = Config.build({"model": {"family": "transformer", **settings.ours()}, "text": text})
        assert isinstance(config.model, TransformerConfig)
        _ = config.model.channels
    except HeedfulError as error:
        raise ModelError(f"{path}: {error}") from None
    return config


def _limit(model: Network, config: Config, settings: Marian) -> int:
    """Return how many bytes the weights of a model may have: tables of word vectors may be there four times."""
    weights = list(model.state_dict().values())
    tables = 4 * (settings.vocab_size + settings.decoder_vocab_size + 1) * settings.d_model
    positions = 2 * config.text.max_length * settings.d_model
    count = sum(weight.numel() for weight in weights)
    return int(WIDEST * (count + tables + positions) + 2_000_000 + 4_000 * len(weights))


def _weights(path: Path, limit: int) -> tuple[Path, dict[str, Tensor]]:
    """Read the file of weights, of at most so many bytes: safetensors if it is there."""
    what = f"the weights of a model as {CONFIG} describes it"
    if (path / SAFE).exists() or not (path / BIN).exists():
        return path / SAFE, unpack(content(path / SAFE, limit, what), str(path / SAFE))
    packed = content(path / BIN, limit, what)
    try:
        check_pickle(packed)
    except ModelError as error:
        raise ModelError(f"{path / BIN}: these are not plain weights, and nothing else is loaded ({error})") from None
    file = io.BytesIO(packed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own past
            found = torch.load(file, map_location="cpu", weights_only=True)
    except (Exception, RecursionError) as error:  # a damaged file, or one that would have run code: of all kinds
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{path / BIN}: these are not plain weights, and nothing else is loaded ({reason})") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path / BIN}: expected weights by name, found {type(found).__name__}")
    for name, weight in found.items():
        if not isinstance(name, str) or not isinstance(weight, Tensor) or not _plain(weight):
            said = repr(name[:80]) if isinstance(name, str) else f"a name of type {type(name).__name__}"
            raise ModelError(f"{path / BIN}: {said} is not a plain tensor")
    return path / BIN, dict(found)


def _plain(weight: Tensor) -> bool:
    """Whether a tensor is in memory as a whole: one number could pose as billions otherwise."""
    if weight.layout != torch.strided or weight.device.type != "cpu" or weight.is_quantized:
        return False
    return weight.numel() * weight.element_size() <= weight.untyped_storage().nbytes()


def _fill(
    model: Network,
    config: object,
    settings: Marian,
    sides: tuple[Vocabulary, Vocabulary],
    weights: Mapping[str, Tensor],
) -> Network:
    """Give a model that was built without memory its weights."""
    assert isinstance(config, TransformerConfig)
    source, target = sides
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    left = dict(weights)
    filled = {}
    D, S, T = config.width, settings.vocab_size, settings.decoder_vocab_size
    for name in POSITIONS:
        if name in left:
            _take(left, name, (settings.max_position_embeddings, D))
    for ours, names in embeddings(settings.share_encoder_decoder_embeddings).items():
        side, rows = (source, S) if ours == "source.weight" else (target, T)
        filled[ours] = _same(left, names, (rows, D))[list(side.order)]
    # transformers itself takes a missing bias for zeros.
    bias = _take(left, BIAS, (1, T)) if BIAS in left else torch.zeros(1, T)
    filled["b_o"] = bias[0, list(target.order)]
    for ours, names in layers(config):
        first, *others = shapes[ours]
        filled[ours] = torch.cat([_take(left, name, (first // len(names), *others)) for name in names])
    if left:
        raise ModelError(f"'{min(left)}' is not a weight of a Marian model with these settings")
    model.load_state_dict(filled, assign=True)
    return model


def _take(weights: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """Take a weight of a known shape out of those that are left."""
    if name not in weights:
        raise ModelError(f"there is no weight '{name}'")
    weight = weights.pop(name)
    if tuple(weight.shape) != shape:
        raise ModelError(f"'{name}' has shape {tuple(weight.shape)}, expected {shape}")
    if not weight.is_floating_point():
        raise ModelError(f"'{name}' holds {weight.dtype}, expected floating point numbers")
    check_finite(f"'{name}'", weight)
    return weight.float()


def _same(weights: dict[str, Tensor], names: Sequence[str], shape: tuple[int, ...]) -> Tensor:
    """Take a weight that a file may have under several names."""
    there = [name for name in names if name in weights] or [names[0]]
    values = [_take(weights, name, shape) for name in there]
    for name, value in zip(there, values, strict=True):
        if not torch.equal(value, values[0]):
            raise ModelError(f"'{name}' is not the same as '{there[0]}', as the settings say")
    return values[0]
