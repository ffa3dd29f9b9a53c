"""Writing a model as a Marian folder that `transformers` loads, with the same output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import ConfigError
from heedful.files import make_folder, write_whole
from heedful.interop import marian
from heedful.interop.folder import ModelParts, write_readout
from heedful.text import END, PAD, SPECIALS, START, UNKNOWN
from heedful.text.sentencepiece import SentencePieces

NEVER = -1e9  # the bias of <s>, which is never predicted


def write_marian(path: Path, parts: ModelParts) -> None:
    """Write a Marian folder; raises ConfigError with the setting that Marian does not support."""
    config = _marian(parts.config)
    source, target = parts.source, parts.target
    if not isinstance(source, SentencePieces) or not isinstance(target, SentencePieces):
        raise ConfigError("text.kind is not sentencepiece, which Marian needs")
    if (path / marian.CONFIG).exists() or path.is_file():
        raise ConfigError(f"{path}: there is already a model, or a file; choose another folder")
    weights = {name: tensor.detach().float().cpu() for name, tensor in parts.model.state_dict().items()}
    separate = source.tokens != target.tokens
    tables = [weights[name] for name in marian.embeddings(config.tied == "all")]
    # Marian usually begins a sentence with <pad>; if <s> has the same embedding, no token is added.
    alike = [torch.equal(table[START], table[PAD]) for table in tables]
    orders = [_order(len(table), separate, all(alike)) for table in tables]
    files = {
        marian.SAFE: safetensors.torch.save(_weights(config, weights, orders), metadata={"format": "pt"}),
        marian.SOURCE_SPM: source.model,
        marian.TARGET_SPM: target.model,
        marian.VOCABULARY: _json(_ids(source.tokens, orders[0])),
        marian.TOKENIZER: _json(_tokenizer(parts.config, separate)),
        marian.GENERATION: _json(_generation(parts.config, orders[-1])),
    }
    if separate:
        files[marian.TARGET_VOCABULARY] = _json(_ids(target.tokens, orders[-1]))
    make_folder(path)
    for name, content in files.items():
        write_whole(path / name, content)
    if parts.readout is not None:
        write_readout(path, parts.readout)
    # Last: a folder without its config is not a model.
    write_whole(path / marian.CONFIG, _json(_settings(parts.config, config, orders)))


def _marian(config: Config) -> TransformerConfig:
    """Return the settings of the model; raises ConfigError for those that Marian does not support."""
    model = config.model
    if not isinstance(model, TransformerConfig):
        raise ConfigError(f"model.family is {config.family}; a Marian model is a transformer")
    obstacles = []
    for name, value, allowed in (
        ("model.cell", model.cell, ("self-attention",)),
        ("model.positions", model.positions, ("sinusoid",)),
        ("model.norm", model.norm, ("post",)),
        ("model.tied", model.tied, ("all", "target")),
        ("text.kind", config.text.kind, ("sentencepiece",)),
    ):
        if value not in allowed:
            obstacles.append(f"{name} is {value}; a Marian model has {name}={' or '.join(allowed)}")
    if obstacles:
        raise ConfigError(". And ".join(obstacles))
    return model


def _order(size: int, separate: bool, alike: bool) -> list[int]:
    """Return heedful's id of each of Marian's ids.

    As in Opus-MT: `</s>` 0, `<unk>` 1, and `<pad>` last. With two vocabularies `<pad>` is 2, as both need the same id.
    """
    start = [] if alike else [START]
    rest = range(len(SPECIALS), size)
    return [END, UNKNOWN, PAD, *start, *rest] if separate else [END, UNKNOWN, *rest, *start, PAD]


def _ids(tokens: Sequence[str], order: Sequence[int]) -> dict[str, int]:
    return {tokens[ours]: theirs for theirs, ours in enumerate(order)}


def _weights(
    config: TransformerConfig, weights: Mapping[str, Tensor], orders: Sequence[Sequence[int]]
) -> dict[str, Tensor]:
    """Return the weights under Marian's names."""
    renamed = {}
    for (ours, names), order in zip(marian.embeddings(config.tied == "all").items(), orders, strict=True):
        renamed[names[0]] = weights[ours][list(order)]
    bias = weights["b_o"].clone() if config.bias else torch.zeros(len(weights["embedding.weight"]))
    bias[START] = NEVER
    renamed[marian.BIAS] = bias[None, list(orders[-1])]
    for ours, names in marian.layers(config):
        for name, part in zip(names, weights[ours].chunk(len(names)), strict=True):
            renamed[name] = part.contiguous()
    return renamed


def _special(order: Sequence[int]) -> dict[str, int]:
    """Return the ids of special tokens for generation."""
    pad, end = order.index(PAD), order.index(END)
    start = order.index(START) if START in order else pad
    return {
        "decoder_start_token_id": start,
        "pad_token_id": pad,
        "eos_token_id": end,
        "forced_eos_token_id": end,
    }


def _settings(config: Config, model: TransformerConfig, orders: Sequence[Sequence[int]]) -> dict[str, object]:
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "dtype": "float32",
        "vocab_size": len(orders[0]),
        "decoder_vocab_size": len(orders[-1]),
        "max_position_embeddings": config.text.max_length,
        "d_model": model.width,
        "encoder_layers": model.layers,
        "decoder_layers": model.depth,
        "num_hidden_layers": model.layers,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.inner,
        "decoder_ffn_dim": model.inner,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.inner_dropout,
        "scale_embedding": model.scale,
        "share_encoder_decoder_embeddings": model.tied == "all",
        "bos_token_id": None,
        **_special(orders[-1]),
        **marian.FIXED,
    }


def _generation(config: Config, order: Sequence[int]) -> dict[str, object]:
    """Return the settings of `generate`: greedy, without tokens that are never predicted."""
    special = _special(order)
    never = sorted({special["pad_token_id"], special["decoder_start_token_id"]})
    return {
        **special,
        "bad_words_ids": [[index] for index in never],
        "max_length": config.text.max_length,
        "num_beams": 1,
    }


def _tokenizer(config: Config, separate: bool) -> dict[str, object]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "separate_vocabs": separate,
        "model_max_length": config.text.max_length,
    }


def _json(record: object) -> bytes:
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
