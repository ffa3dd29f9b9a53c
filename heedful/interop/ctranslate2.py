"""Writing a Transformer as a CTranslate2 folder, which the package ctranslate2 opens; names of files and weights.

CTranslate2 decodes Transformers fast on CPUs and GPUs, in float32 or with weights of 8 bits. Token ids stay heedful's:
`<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3. `<s>` starts a translation; `<s>` and `<pad>` are never written, as their
outputs have a bias of -10⁹. In heedful's own decoding `<pad>` takes part in the softmax; here it does not, so that
log-probabilities are larger by -log(1 - P(<pad>)). A folder also has the tokenizers and a page on how to use it, and
`config.json` has heedful's settings of the text, so that `heedful.interop.ctranslate2_import` opens the same model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import ConfigError, install_command
from heedful.files import whole_folder
from heedful.interop.folder import JOINT, SOURCE, TARGET, ModelParts, check_finite, write_readout
from heedful.models.transformer import Transformer
from heedful.text import PAD, START, Codec
from heedful.text.segments import READ
from heedful.text.sentencepiece import SentencePieces

WEIGHTS, CONFIG, README = "model.bin", "config.json", "README.md"
SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
PRECISIONS = ("float32", "int8")
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
EPSILON = 1e-5  # of nn.LayerNorm
NORMS = {"weight": "gamma", "bias": "beta"}
FEWEST = 512  # positions
OWN = "heedful"  # the key in `config.json` of what only heedful reads: how texts become tokens, and the source's end
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
    rows = max_positions(parts.config)
    table = cast(Transformer, parts.model).position_vectors(rows)[:rows].detach().float().cpu().numpy()
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = config.scale
        side.position_encodings.encodings = table
    for ours, theirs in names(config):
        weight, first = _array(weights, ours), 0
        for name in theirs:
            last = None if name == theirs[-1] else first + config.width
            _set(spec, name, weight[first:last])
            first = last or 0
    bias = _array(weights, "b_o").copy() if config.bias else np.zeros(len(parts.target), np.float32)
    bias[[PAD, START]] = NEVER
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary(_tokens(parts.source_codec))
    spec.register_target_vocabulary(_tokens(parts.target))
    spec.config.layer_norm_epsilon = EPSILON
    spec.config.add_attribute(OWN, {"text": parts.config.plain()["text"], "source_end": config.source_end})
    return spec


def names(config: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield heedful's name of each weight but the output's bias, and CTranslate2's names of its parts, row by row.

    Only the last part has more rows than the width. A weight that is used in several places has a name for each.
    """
    source, target, output = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"
    yield "embedding.weight" if config.tied == "all" else "source.weight", (source,)
    yield "embedding.weight", (target,)
    yield "W_o" if config.tied == "none" else "embedding.weight", (output,)
    for side, depth in (("encoder", config.layers), ("decoder", config.depth)):
        for number in range(depth):
            ours, theirs = f"{side}.{number}", f"{side}/layer_{number}"
            places: list[tuple[str, str, tuple[str, ...], str]] = [
                ("inside", "self_attention", ("linear_0",), "linear_1")
            ]
            if side == "decoder":
                places.append(("across", "attention", ("linear_0", "linear_1"), "linear_2"))
            for kind in ("weight", "bias"):
                for place, name, keys, output in places:
                    yield f"{ours}.{place}.W.{kind}", tuple(f"{theirs}/{name}/{key}/{kind}" for key in keys)
                    yield f"{ours}.{place}.W_o.{kind}", (f"{theirs}/{name}/{output}/{kind}",)
                    yield f"{ours}.around_{place}.LN.{kind}", (f"{theirs}/{name}/layer_norm/{NORMS[kind]}",)
                yield f"{ours}.forward_layer.W_1.{kind}", (f"{theirs}/ffn/linear_0/{kind}",)
                yield f"{ours}.forward_layer.W_2.{kind}", (f"{theirs}/ffn/linear_1/{kind}",)
                yield f"{ours}.around_forward.LN.{kind}", (f"{theirs}/ffn/layer_norm/{NORMS[kind]}",)
        if config.norm == "pre":
            last = {"encoder": "LN_h", "decoder": "LN_s"}[side]
            yield from ((f"{last}.{kind}", (f"{side}/layer_norm/{NORMS[kind]}",)) for kind in NORMS)


def _set(spec: Any, name: str, value: Array) -> None:  # noqa: ANN401
    """Set a variable of a specification by its name, as in `encoder/layer_0/ffn/linear_0/weight`."""
    *scopes, variable = name.split("/")
    for scope in scopes:
        kind, _, number = scope.rpartition("_")
        spec = getattr(spec, scope) if hasattr(spec, scope) else getattr(spec, kind)[int(number)]
    setattr(spec, variable, value)


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
    joint, ended = parts.config.text.joint, check_convertible(parts).source_end
    end = ' + ["</s>"]' * ended
    if isinstance(parts.source, SentencePieces):
        package, cut = (
            "sentencepiece",
            (
                f'source = sentencepiece.SentencePieceProcessor("{SOURCE_SPM}")\n'
                f'tokens = source.encode("A sentence.", out_type=str){end}\n'
            ),
        )
        join = f'sentencepiece.SentencePieceProcessor("{TARGET_SPM}").decode(result.hypotheses[0])'
    else:
        package, cut = (
            "tokenizers",
            (
                f'source = tokenizers.Tokenizer.from_file("{JOINT if joint else SOURCE}")\n'
                f'tokens = source.encode("A sentence.").tokens{end}\n'
            ),
        )
        join = '"".join(result.hypotheses[0]).replace("▁", " ").strip()'
    size = "8 bits" if int8 else "float32"
    return (
        "# A translation model for CTranslate2\n\n"
        f"A Transformer of {parts.config.model.layers} layers, with weights of {size}, "
        "written by `heedful convert --to ctranslate2`.\n"
        f"A source sentence ends with{'' if ended else 'out'} the token `</s>`; at most "
        f"{min(parts.config.text.max_length, READ):,} tokens are read.\n\n"
        "```python\n"
        f"import ctranslate2, {package}\n\n"
        'translator = ctranslate2.Translator(".")\n'
        f"{cut}"
        "(result,) = translator.translate_batch([tokens], beam_size=5)\n"
        f"print({join})\n"
        "```\n"
    )
