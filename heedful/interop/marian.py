"""Reading a Marian or Opus-MT model as `transformers` saves it, and Marian's names for files, settings and weights.

Token ids are reordered: `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, then all other tokens in Marian's order. Marian
usually has no `<s>` and begins a sentence with `<pad>`: then `<s>` is a copy of that row. Nothing in the folder
is executed: a `pytorch_model.bin` is unpickled with `weights_only`, which only builds tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import HeedfulError, ModelError
from heedful.files import SETTINGS, NotPlainError, max_json, parse_json, read_bytes
from heedful.interop.folder import WIDEST, ModelParts, check_finite, unpack
from heedful.interop.pickles import load_pickle
from heedful.models import Network, build
from heedful.models.device import memory_guard
from heedful.text import SPECIALS
from heedful.text.sentencepiece import SentencePieces
from heedful.trace.readout import read_readout

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
SAFE, BIN = "model.safetensors", "pytorch_model.bin"
SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"

BIAS = "final_logits_bias"
# Sinusoids, which are computed; old files have them too.
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def is_marian(path: Path) -> bool:
    """Whether a folder has a Marian model, by its `config.json`."""
    try:
        return bool(json_object(path / CONFIG).get("model_type") == "marian")
    except ModelError:
        return False


def read_marian(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read a Marian folder; raises ModelError if anything in it is damaged or not supported."""
    plain = json_object(path / CONFIG)
    try:
        settings = MarianConfig.build(plain)
    except HeedfulError as error:
        raise ModelError(f"{path / CONFIG}: {error}") from None
    source, target = vocabularies(path, settings)
    source_codec = _codec(path / SOURCE_SPM, source.tokens)
    target_codec = _codec(path / TARGET_SPM, target.tokens)
    joint = (source_codec.model, source_codec.tokens) == (target_codec.model, target_codec.tokens)
    config = _config(path / CONFIG, settings, joint, max(len(source.tokens), len(target.tokens)))
    # Built on the meta device first, so that absurd settings take no memory.
    with torch.device("meta"):
        model = build(config.model, len(source.tokens), len(target.tokens))
    file, weights = _weights(path, _limit(model, config, settings))
    try:
        model = _fill(model, config.model, settings, (source, target), weights)
    except HeedfulError as error:
        raise ModelError(f"{file}: {error}") from None
    readout, fault = read_readout(path, config)
    with memory_guard(f"opening {path}", "choose the device cpu"):
        model = model.to(device).eval()
    target_codec = source_codec if joint else target_codec
    return ModelParts(config, model, source_codec, target_codec, readout=readout, fault=fault, format="marian")


def _codec(path: Path, tokens: Sequence[str]) -> SentencePieces:
    model = content(path, max_json(), "a SentencePiece model")
    try:
        return SentencePieces(model, tokens)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _config(path: Path, settings: MarianConfig, joint: bool, size: int) -> Config:
    """Return heedful's settings for Marian's."""
    text = {"kind": "sentencepiece", "size": size, "joint": joint, "max_length": settings.max_position_embeddings}
    try:
        config = Config.build({"model": {"family": "transformer", **settings.model_settings()}, "text": text})
        assert isinstance(config.model, TransformerConfig)
        _ = config.model.channels
    except HeedfulError as error:
        raise ModelError(f"{path}: {error}") from None
    return config


# Settings with the only supported values; older files have some that are no longer written.
FIXED = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "is_decoder": False,
}


ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
EXPECTED = {int: "a whole number of at least 0", float: "a number", bool: "true or false", str: "a word"}


class MarianConfig(NamedTuple):
    """Marian's settings under their own names, with the defaults of `transformers`."""

    vocab_size: int = 58101
    decoder_vocab_size: int = 0
    max_position_embeddings: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    activation_function: str = "gelu"
    d_model: int = 1024
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    pad_token_id: int | None = 58100
    eos_token_id: int | None = 0
    decoder_start_token_id: int | None = 58100

    @classmethod
    def build(cls, given: Mapping[str, Any]) -> MarianConfig:
        """Return the settings of a `config.json`; raises ModelError for values that are not supported."""
        if given.get("model_type") != "marian":
            raise ModelError(f"model_type is {given.get('model_type')!r:.100}, expected 'marian'")
        for key, wanted in FIXED.items():
            if given.get(key, wanted) is not wanted:
                raise ModelError(f"{key} is {given[key]!r:.100}; only models with {key}={wanted!r} are supported")
        values: dict[str, Any] = {
            key: _value(key, given[key], default) for key, default in cls._field_defaults.items() if key in given
        }
        settings = cls(**values)
        settings = settings._replace(decoder_vocab_size=settings.decoder_vocab_size or settings.vocab_size)
        for what in ("attention_heads", "ffn_dim"):
            encoder, decoder = getattr(settings, f"encoder_{what}"), getattr(settings, f"decoder_{what}")
            if encoder != decoder:
                raise ModelError(f"encoder_{what} is {encoder} and decoder_{what} is {decoder}; they must be equal")
        if settings.activation_function not in ACTIVATIONS:
            allowed = ", ".join(sorted(ACTIVATIONS))
            raise ModelError(f"activation_function is '{settings.activation_function:.100}', expected one of {allowed}")
        if settings.share_encoder_decoder_embeddings and settings.decoder_vocab_size != settings.vocab_size:
            raise ModelError(
                f"vocab_size is {settings.vocab_size} and decoder_vocab_size is {settings.decoder_vocab_size}, "
                "which cannot share their embeddings (share_encoder_decoder_embeddings)"
            )
        return settings

    def model_settings(self) -> dict[str, object]:
        """Return the settings of heedful's model."""
        return {
            "layers": self.encoder_layers,
            # 0 would mean as many as the encoder has; -1 is not allowed and raises an error.
            "decoder_layers": self.decoder_layers or -1,
            "width": self.d_model,
            "heads": self.encoder_attention_heads,
            "inner": self.encoder_ffn_dim,
            "activation": ACTIVATIONS[self.activation_function],
            "norm": "post",
            "tied": "all" if self.share_encoder_decoder_embeddings else "target",
            "bias": True,
            "scale": self.scale_embedding,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "inner_dropout": self.activation_dropout,
        }


def _value(key: str, value: object, default: object) -> object:
    """Return a value; raises ModelError if it has not the type of the default."""
    if key == "decoder_vocab_size" and value is None:
        return 0
    if key == "eos_token_id" and isinstance(value, list) and len(value) == 1:
        value = value[0]
    kind = type(default)
    right = type(value) is kind or (kind is float and type(value) is int)
    if not right or (kind is int and value < 0):  # type: ignore[operator]
        raise ModelError(f"{key} is {value!r:.80}, expected {EXPECTED[kind]}")
    return value


class MarianVocabulary(NamedTuple):
    """Tokens in heedful's order, and Marian's id of each."""

    tokens: tuple[str, ...]
    order: tuple[int, ...]


def vocabularies(path: Path, settings: MarianConfig) -> tuple[MarianVocabulary, MarianVocabulary]:
    """Read the vocabularies of source and target, which are usually the same."""
    names = _names(path / VOCABULARY, settings.vocab_size)
    if not _separate(path):
        if settings.decoder_vocab_size != settings.vocab_size:
            sizes = f"{settings.vocab_size} source and {settings.decoder_vocab_size} target tokens"
            raise ModelError(f"{path}: {CONFIG} has {sizes}, but there is no {TARGET_VOCABULARY}")
        both = _order(path / VOCABULARY, names, settings)
        return both, both
    loose = settings._replace(pad_token_id=None)  # there is one number, but <pad> may have two ids
    source = _order(path / VOCABULARY, names, loose._replace(eos_token_id=None, decoder_start_token_id=None))
    target_path = path / TARGET_VOCABULARY
    target = _order(target_path, _names(target_path, settings.decoder_vocab_size), loose)
    if settings.share_encoder_decoder_embeddings and source.order != target.order:
        raise ModelError(
            f"{path}: the two languages share their embeddings (share_encoder_decoder_embeddings), but {VOCABULARY} "
            f"and {TARGET_VOCABULARY} have different ids of special tokens"
        )
    if settings.pad_token_id not in (source.order[0], target.order[0]):
        raise ModelError(f"{path / CONFIG}: pad_token_id is {settings.pad_token_id}, which is not <pad>")
    return source, target


def _separate(path: Path) -> bool:
    """Whether the target language has a vocabulary of its own."""
    separate = json_object(path / TOKENIZER).get("separate_vocabs") if (path / TOKENIZER).exists() else None
    return separate if isinstance(separate, bool) else (path / TARGET_VOCABULARY).exists()


def _names(path: Path, size: int) -> list[str]:
    """Read a vocabulary: the tokens in the order of their ids."""
    ids = json_object(path, vocabulary=True)
    if any(isinstance(i, bool) or not isinstance(i, int) for i in ids.values()):
        raise ModelError(f"{path}: expected a whole number for each token")
    if len(ids) != size:
        raise ModelError(f"{path}: has {len(ids)} tokens, but {CONFIG} says {size}")
    if sorted(ids.values()) != list(range(size)):
        raise ModelError(f"{path}: the ids are not the numbers from 0 to {size - 1}")
    return sorted(ids, key=ids.__getitem__)


def _order(path: Path, names: Sequence[str], settings: MarianConfig) -> MarianVocabulary:
    """Return a vocabulary in heedful's order; an id in the settings that is None is not checked."""
    ids = {name: i for i, name in enumerate(names)}
    if missing := [name for name in ("<pad>", "<unk>", "</s>") if name not in ids]:
        raise ModelError(f"{path}: there is no token {missing[0]}")
    pad, unknown, end = (ids[name] for name in ("<pad>", "<unk>", "</s>"))
    for key, name, own in (("pad_token_id", "<pad>", pad), ("eos_token_id", "</s>", end)):
        if getattr(settings, key) not in (None, own):
            raise ModelError(f"{path}: {name} has the id {own}, but {CONFIG} says {key} {getattr(settings, key)}")
    start = ids.get("<s>", pad) if settings.decoder_start_token_id is None else settings.decoder_start_token_id
    if start >= len(names):
        raise ModelError(f"{path}: has {len(names)} tokens, but {CONFIG} says decoder_start_token_id {start}")
    # A start token <s> gets our id; any other start token is copied and keeps its place.
    taken = {pad, unknown, end} | ({start} if names[start] == "<s>" else set())
    rest = [i for i in range(len(names)) if i not in taken]
    others = [names[i] for i in rest]
    if "<s>" in others:  # a usual token, which never comes from text: it is renamed
        free = next(name for n in range(1, len(names) + 2) if (name := "<s>" + "_" * n) not in ids)
        others[others.index("<s>")] = free
    return MarianVocabulary((*SPECIALS, *others), (pad, unknown, start, end, *rest))


def _limit(model: Network, config: Config, settings: MarianConfig) -> int:
    """Return the limit of the weights in bytes; embeddings may be in the file four times."""
    weights = list(model.state_dict().values())
    tables = 4 * (settings.vocab_size + settings.decoder_vocab_size + 1) * settings.d_model
    positions = 2 * config.text.max_length * settings.d_model
    count = sum(weight.numel() for weight in weights)
    return int(WIDEST * (count + tables + positions) + 2_000_000 + 4_000 * len(weights))


def _weights(path: Path, limit: int) -> tuple[Path, dict[str, Tensor]]:
    """Read the file of weights, safetensors if there is one, of at most `limit` bytes."""
    what = f"the weights of a model as {CONFIG} describes it"
    if (path / SAFE).exists() or not (path / BIN).exists():
        return path / SAFE, unpack(content(path / SAFE, limit, what), str(path / SAFE))
    return path / BIN, load_pickle(content(path / BIN, limit, what), str(path / BIN))


def _fill(
    model: Network,
    config: object,
    settings: MarianConfig,
    sides: tuple[MarianVocabulary, MarianVocabulary],
    weights: Mapping[str, Tensor],
) -> Network:
    """Load Marian's weights into a model on the meta device; raises ModelError if they do not match."""
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
    # transformers also replaces a missing bias by zeros.
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
    """Remove a weight of a known shape from those that are left, and return it."""
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
    """Remove a weight that a file may have under several names, and return it."""
    present = [name for name in names if name in weights] or [names[0]]
    values = [_take(weights, name, shape) for name in present]
    for name, value in zip(present, values, strict=True):
        if not torch.equal(value, values[0]):
            raise ModelError(f"'{name}' is not the same as '{present[0]}', as the settings say")
    return values[0]


def embeddings(shared: bool) -> dict[str, tuple[str, ...]]:
    """Return Marian's names of each of heedful's embeddings; a file has one of them, or several with equal values."""
    source, target = "model.encoder.embed_tokens.weight", ("model.decoder.embed_tokens.weight", "lm_head.weight")
    if shared:
        return {"embedding.weight": ("model.shared.weight", source, *target)}
    return {"source.weight": (source,), "embedding.weight": target}


def layers(config: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield heedful's name of each weight of a layer, and Marian's names of the weights that are concatenated in it."""
    for side, depth in (("encoder", config.layers), ("decoder", config.depth)):
        attentions = {"inside": "self_attn", "across": "encoder_attn"}
        if side == "encoder":
            del attentions["across"]
        for number in range(depth):
            ours, theirs = f"{side}.{number}", f"model.{side}.layers.{number}"
            for kind in ("weight", "bias"):
                for place, name in attentions.items():
                    parts = tuple(f"{theirs}.{name}.{part}_proj.{kind}" for part in "qkv")
                    yield f"{ours}.{place}.W.{kind}", parts
                    yield f"{ours}.{place}.W_o.{kind}", (f"{theirs}.{name}.out_proj.{kind}",)
                    yield f"{ours}.around_{place}.LN.{kind}", (f"{theirs}.{name}_layer_norm.{kind}",)
                yield f"{ours}.forward_layer.W_1.{kind}", (f"{theirs}.fc1.{kind}",)
                yield f"{ours}.forward_layer.W_2.{kind}", (f"{theirs}.fc2.{kind}",)
                yield f"{ours}.around_forward.LN.{kind}", (f"{theirs}.final_layer_norm.{kind}",)


def content(path: Path, limit: int, what: str) -> bytes:
    """Return the content of a plain file of at most `limit` bytes; `what` is its kind, for the error."""
    try:
        return read_bytes(path, limit, what)
    except NotPlainError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); the model is incomplete") from None


def json_object(path: Path, vocabulary: bool = False) -> dict[str, Any]:
    """Return the JSON object in a file of settings, or of a vocabulary, which may be far larger."""
    limit, what = (max_json(), "a JSON file (HEEDFUL_MAX_JSON)") if vocabulary else (SETTINGS, "a file of settings")
    value = parse_json(content(path, limit, what), str(path))
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
