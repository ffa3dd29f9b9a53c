"""CTranslate2 folders with random weights, made by its own specifications, as other programs' converters make them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from heedful.text import SPECIALS
from heedful.text.sentencepiece import SentencePieces

WORDS = ("the", "old", "cat", "sees", "a", "small", "dog", "near", "my", "house", "and", "eats", "green", "apples")


def texts(count: int = 80, seed: int = 1) -> list[str]:
    pick = random.Random(seed)
    return [" ".join(pick.choices(WORDS, k=pick.randint(2, 7))) + "." for _ in range(count)]


def pieces(size: int = 60, seed: int = 1, upper: bool = False) -> SentencePieces:
    return SentencePieces.learn([text.upper() if upper else text for text in texts(seed=seed)], size)


def sinusoids(n: int, D: int, alternating: bool) -> np.ndarray:
    """The positions of OpenNMT-py, sine and cosine by turns, or of Marian."""
    angles = np.arange(n)[:, None] / np.power(10000, np.arange(0, D, 2) / D)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if alternating:
        table = table.reshape(n, 2, D // 2).transpose(0, 2, 1).reshape(n, D)
    return table.astype(np.float32)


def foreign_model(
    folder: Path,
    kind: str = "opennmt",
    type_: str = "float32",
    seed: int = 1,
    alignment: tuple[int, int] = (-1, 1),
    spm: tuple[str, ...] = ("sentencepiece.model",),
    separate: bool = False,
    spread: float = 0.4,
    end: float = 1.0,
) -> Path:
    """Write a model as OpenNMT-py's ("opennmt"), Marian's ("marian") or transformers' ("hf") converter makes it."""
    import ctranslate2.specs as specs

    D, H, inner, draw = 16, 2, 24, np.random.default_rng(seed)
    marian = kind != "opennmt"
    spec = specs.TransformerSpec.from_config(
        (2, 3),
        H,
        pre_norm=not marian,
        activation=specs.Activation.SWISH if marian else specs.Activation.RELU,
        alignment_layer=alignment[0],
        alignment_heads=alignment[1],
    )

    def some(*shape: int) -> np.ndarray:
        return draw.normal(scale=spread, size=shape).astype(np.float32)

    def linear(one: Any, rows: int, columns: int, bias: bool = True) -> None:
        one.weight = some(rows, columns)
        if bias:
            one.bias = some(rows)

    def norm(one: Any) -> None:
        one.gamma, one.beta = 1 + some(D) / 4, some(D) / 4

    def layer(one: Any, cross: bool) -> None:
        biased = marian  # OpenNMT-py has no biases in attention
        linear(one.self_attention.linear[0], 3 * D, D, biased)
        linear(one.self_attention.linear[1], D, D, biased)
        norm(one.self_attention.layer_norm)
        if cross:
            linear(one.attention.linear[0], D, D, biased)
            linear(one.attention.linear[1], 2 * D, D, biased)
            linear(one.attention.linear[2], D, D, biased)
            norm(one.attention.layer_norm)
        linear(one.ffn.linear_0, inner, D)
        linear(one.ffn.linear_1, D, inner)
        norm(one.ffn.layer_norm)

    for one in spec.encoder.layer:
        layer(one, cross=False)
    for one in spec.decoder.layer:
        layer(one, cross=True)
    codecs = [pieces(), pieces(seed=2, upper=True)] if separate else [pieces()] * 2
    regular = [codec.tokens[len(SPECIALS) :] for codec in codecs]
    first = ["</s>", "<unk>"] if marian else ["<unk>", "<blank>", "<s>", "</s>"]
    vocabularies = [[*first, *tokens] for tokens in regular]
    tables = [some(len(each), D) for each in vocabularies]
    tables = [tables[0], tables[1] if separate else tables[0]]
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = tables
    spec.decoder.projection.weight = tables[1].copy() if marian else some(len(vocabularies[1]), D)
    spec.decoder.projection.bias = some(len(vocabularies[1]))
    spec.decoder.projection.bias[vocabularies[1].index("</s>")] += end
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = sinusoids(600, D, alternating=not marian)
        if not marian:
            norm(side.layer_norm)
    if marian:
        spec.decoder.start_from_zero_embedding = True
    spec.config.add_source_eos = kind == "marian"
    spec.config.decoder_start_token = "</s>" if kind == "hf" else "<s>"
    spec.register_source_vocabulary(vocabularies[0])
    spec.register_target_vocabulary(vocabularies[1])
    spec.validate()
    spec.optimize(quantization=type_)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    for name in spm:
        (folder / name).write_bytes(codecs[name == "target.spm"].model)
    return folder
