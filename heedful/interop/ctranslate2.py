"""Writing a Transformer as a CTranslate2 folder, which the package ctranslate2 opens, and reading its `model.bin`.

CTranslate2 decodes Transformers fast on CPUs and GPUs, in float32 or with weights of 8 bits. Token ids stay heedful's:
`<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3. `<s>` starts a translation; `<s>` and `<pad>` are never written, as their
outputs have a bias of -10⁹. In heedful's own decoding `<pad>` takes part in the softmax; here it does not, so that
log-probabilities are larger by -log(1 - P(<pad>)). A folder also has the tokenizers and a page on how to use it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import ConfigError, ModelError, install_command
from heedful.files import whole_folder
from heedful.interop.folder import JOINT, SOURCE, TARGET, ModelParts, check_finite, write_readout
from heedful.models.transformer import Transformer, positions
from heedful.text import PAD, START, Codec
from heedful.text.segments import READ
from heedful.text.sentencepiece import SentencePieces

WEIGHTS, CONFIG, README = "model.bin", "config.json", "README.md"
SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
PRECISIONS = ("float32", "int8")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
EPSILON = 1e-5  # of nn.LayerNorm
FEWEST = 512  # positions
RANK = 8  # dimensions of a variable at most
NEVER = -1e9  # the bias of tokens that are never written

Array = npt.NDArray[Any]


def ctranslate2() -> ModuleType:
    """Return the package; raise ConfigError, with the command that installs it, if there is none."""
    try:
        import ctranslate2 as package
        import ctranslate2.specs
    except ImportError:
        raise ConfigError(
            f"CTranslate2 is needed for this and is not installed; get it with: {install_command('fast')}"
        ) from None
    return cast(ModuleType, package)


def check_convertible(parts: ModelParts) -> TransformerConfig:
    """Return the settings of a model that CTranslate2 can run; raise ConfigError with what it cannot, by name."""
    model = parts.config.model
    if not isinstance(model, TransformerConfig):
        raise ConfigError(f"model.family is {parts.config.family}; CTranslate2 runs model.family=transformer only")
    if not isinstance(parts.model, Transformer):
        raise ConfigError("this is an ensemble of several models; CTranslate2 runs one model: choose one of them")
    if parts.config.image is not None:
        raise ConfigError(
            f"this model captions images (image.encoder is {parts.config.image.encoder}); CTranslate2 runs models of "
            "text only"
        )
    if model.cell != "self-attention":
        raise ConfigError(f"model.cell is {model.cell}; CTranslate2 has model.cell=self-attention only")
    if model.activation not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise ConfigError(f"model.activation is {model.activation}; CTranslate2 has {allowed}")
    return model


def max_positions(config: Config) -> int:
    """Return the tokens, `</s>` included, that a converted model reads or writes: 2n + 21 for its longest source n.

    At least 512, as CTranslate2 by itself writes up to 256.
    """
    return max(FEWEST, 2 * min(config.text.max_length, READ) + 21)


def write_ctranslate2(path: Path, parts: ModelParts, int8: bool = False) -> None:
    """Write a CTranslate2 folder, with weights of 8 bits if `int8`; raise ConfigError for models that it cannot run.

    The folder must not exist; it is there when it is complete.
    """
    check_convertible(parts)
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path}: there is already a folder or file of this name; choose another one")
    ctranslate2()  # before anything is written
    with whole_folder(path) as partial:
        save_converted(partial, parts, int8)
        _write_tokenizers(partial, parts)
        if parts.readout is not None:
            write_readout(partial, parts.readout)
        (partial / README).write_text(_readme(parts, int8), encoding="utf-8")


def save_converted(folder: Path, parts: ModelParts, int8: bool) -> None:
    """Save the files that CTranslate2 needs to an existing folder: weights, settings and vocabularies."""
    spec = _spec(parts)
    spec.validate()
    spec.optimize(quantization="int8" if int8 else "float32")
    spec.save(str(folder))


def _spec(parts: ModelParts) -> Any:  # noqa: ANN401  (the package has no types)
    """Return the model as a specification of CTranslate2."""
    config = check_convertible(parts)
    specs = ctranslate2().specs
    spec = specs.TransformerSpec.from_config(
        (config.layers, config.depth),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=specs.Activation[ACTIVATIONS[config.activation]],
    )
    # Copies: quantization overwrites them.
    weights = {
        name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in parts.model.state_dict().items()
    }
    source = "embedding.weight" if config.tied == "all" else "source.weight"
    table = positions(max_positions(parts.config), config.width, kind=config.positions).numpy()
    sides = (
        (spec.encoder, spec.encoder.embeddings[0], source),
        (spec.decoder, spec.decoder.embeddings, "embedding.weight"),
    )
    for side, embeddings, name in sides:
        embeddings.weight = _array(weights, name)
        side.scale_embeddings = config.scale
        side.position_encodings.encodings = table
    for number, layer in enumerate(spec.encoder.layer):
        _fill_layer(layer, weights, f"encoder.{number}")
    for number, layer in enumerate(spec.decoder.layer):
        _fill_layer(layer, weights, f"decoder.{number}")
    if config.norm == "pre":
        _fill_norm(spec.encoder.layer_norm, weights, "LN_h")
        _fill_norm(spec.decoder.layer_norm, weights, "LN_s")
    bias = _array(weights, "b_o").copy() if config.bias else np.zeros(len(parts.target), np.float32)
    bias[[PAD, START]] = NEVER
    spec.decoder.projection.weight = _array(weights, "W_o" if config.tied == "none" else "embedding.weight")
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary(_tokens(parts.source_codec))
    spec.register_target_vocabulary(_tokens(parts.target))
    spec.config.layer_norm_epsilon = EPSILON
    return spec


def _fill_layer(layer: Any, weights: Mapping[str, Tensor], name: str) -> None:  # noqa: ANN401
    """Set the weights of a layer of the encoder or the decoder."""
    _fill_linear(layer.self_attention.linear[0], weights, f"{name}.inside.W")
    _fill_linear(layer.self_attention.linear[1], weights, f"{name}.inside.W_o")
    _fill_norm(layer.self_attention.layer_norm, weights, f"{name}.around_inside.LN")
    if f"{name}.across.W.weight" in weights:
        query, keys, output = layer.attention.linear
        D = weights[f"{name}.across.W.weight"].shape[1]
        _fill_linear(query, weights, f"{name}.across.W", slice(None, D))
        _fill_linear(keys, weights, f"{name}.across.W", slice(D, None))
        _fill_linear(output, weights, f"{name}.across.W_o")
        _fill_norm(layer.attention.layer_norm, weights, f"{name}.around_across.LN")
    _fill_linear(layer.ffn.linear_0, weights, f"{name}.forward_layer.W_1")
    _fill_linear(layer.ffn.linear_1, weights, f"{name}.forward_layer.W_2")
    _fill_norm(layer.ffn.layer_norm, weights, f"{name}.around_forward.LN")


def _fill_linear(spec: Any, weights: Mapping[str, Tensor], name: str, rows: slice = slice(None)) -> None:  # noqa: ANN401
    spec.weight, spec.bias = _array(weights, f"{name}.weight")[rows], _array(weights, f"{name}.bias")[rows]


def _fill_norm(spec: Any, weights: Mapping[str, Tensor], name: str) -> None:  # noqa: ANN401
    spec.gamma, spec.beta = _array(weights, f"{name}.weight"), _array(weights, f"{name}.bias")


def _array(weights: Mapping[str, Tensor], name: str) -> Array:
    check_finite(f"'{name}'", weights[name])
    return weights[name].numpy()


def _tokens(codec: Codec) -> list[str]:
    return [codec.token(index) for index in range(len(codec))]


def _write_tokenizers(folder: Path, parts: ModelParts) -> None:
    """Write heedful's tokenizers, and SentencePiece's own files, which other programs read."""
    source, target = parts.source_codec, parts.target
    files = {JOINT: source.dump()} if parts.config.text.joint else {SOURCE: source.dump(), TARGET: target.dump()}
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    for name, codec in ((SOURCE_SPM, source), (TARGET_SPM, target)):
        if isinstance(codec, SentencePieces):
            (folder / name).write_bytes(codec.model)


def _readme(parts: ModelParts, int8: bool) -> str:
    """Return the page of a folder: how the package ctranslate2 translates with it."""
    joint = parts.config.text.joint
    if isinstance(parts.source, SentencePieces):
        package, cut = (
            "sentencepiece",
            (
                f'source = sentencepiece.SentencePieceProcessor("{SOURCE_SPM}")\n'
                'tokens = source.encode("A sentence.", out_type=str) + ["</s>"]\n'
            ),
        )
        join = f'sentencepiece.SentencePieceProcessor("{TARGET_SPM}").decode(result.hypotheses[0])'
    else:
        package, cut = (
            "tokenizers",
            (
                f'source = tokenizers.Tokenizer.from_file("{JOINT if joint else SOURCE}")\n'
                'tokens = source.encode("A sentence.").tokens + ["</s>"]\n'
            ),
        )
        join = '"".join(result.hypotheses[0]).replace("▁", " ").strip()'
    size = "8 bits" if int8 else "float32"
    return (
        "# A translation model for CTranslate2\n\n"
        f"A Transformer of {parts.config.model.layers} layers, with weights of {size}, "
        "written by `heedful convert --to ctranslate2`.\n"
        f"A source sentence ends with the token `</s>`; at most {min(parts.config.text.max_length, READ):,} tokens are "
        "read.\n\n"
        "```python\n"
        f"import ctranslate2, {package}\n\n"
        'translator = ctranslate2.Translator(".")\n'
        f"{cut}"
        "(result,) = translator.translate_batch([tokens], beam_size=5)\n"
        f"print({join})\n"
        "```\n"
    )


# The types of weights, by their numbers in `model.bin`; numpy has no bfloat16.
TYPES: tuple[str, ...] = ("float32", "int8", "int16", "int32", "float16")
VERSION = 6  # of the format


def read_weights(path: Path) -> dict[str, Array]:
    """Return the variables in a `model.bin`, by name, as stored; raise ModelError if it is damaged.

    A name may be an alias of another variable. `dequantized` returns weights of 8 bits as numbers.
    """
    content = memoryview(path.read_bytes())
    reader = _Reader(content, path)
    version = reader.number("I")
    if version != VERSION:
        raise ModelError(f"{path}: written in version {version} of the format; {VERSION} is read")
    reader.string()  # the name of the specification
    reader.number("I")  # its revision
    variables: dict[str, Array] = {}
    for _ in range(reader.number("I")):
        name, rank = reader.string(), reader.number("B")
        shape = tuple(reader.number("I") for _ in range(rank))
        kind = reader.number("B")
        if kind >= len(TYPES):
            raise ModelError(f"{path}: '{name:.100}' has the type {kind}; {', '.join(TYPES)} are read")
        block = reader.take(reader.number("I"))
        expected = math.prod(shape) * np.dtype(TYPES[kind]).itemsize
        if rank > RANK or len(block) != expected:
            raise ModelError(
                f"{path}: '{name:.100}' has {len(block):,} bytes, expected {expected:,} for {shape[:RANK]}"
            )
        values = np.frombuffer(block, TYPES[kind])
        variables[name] = values.reshape(shape)
    for _ in range(reader.number("I")):
        alias, name = reader.string(), reader.string()
        if name not in variables:
            raise ModelError(f"{path}: '{alias:.100}' stands for '{name:.100}', which is not there")
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:  # CTranslate2 takes it along, too
            variables[f"{alias}_scale"] = variables[f"{name}_scale"]
    return variables


class _Reader:
    """Reads numbers, strings and blocks of a file, one after the other."""

    def __init__(self, content: memoryview, path: Path) -> None:
        self.content, self.path, self.at = content, path, 0

    def take(self, size: int) -> memoryview:
        if self.at + size > len(self.content):
            raise ModelError(f"{self.path}: it ends too early; the file is damaged")
        self.at += size
        return self.content[self.at - size : self.at]

    def number(self, kind: str) -> int:
        (value,) = struct.unpack(f"<{kind}", self.take(struct.calcsize(kind)))
        return int(value)

    def string(self) -> str:
        try:
            return bytes(self.take(self.number("H"))).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise ModelError(f"{self.path}: a name in it is not UTF-8; the file is damaged") from None


def dequantized(variables: Mapping[str, Array], name: str) -> Array:
    """Return a weight as float32: its integers divided by the scale of their row, if it has one."""
    weight = variables[name].astype(np.float32)
    scale = variables.get(f"{name}_scale")
    if scale is None:
        return weight
    scale = scale.astype(np.float32)
    return weight / (scale[:, None] if scale.ndim else scale)
