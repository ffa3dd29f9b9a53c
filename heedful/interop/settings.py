"""Marian's settings: those that matter to us, checked, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from heedful.errors import ModelError

__all__ = ["ACTIVATIONS", "FIXED", "Marian"]

ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
# What a model has to be; the older settings among these are no longer written.
FIXED = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "is_decoder": False,
}
EXPECTED = {int: "a whole number of at least 0", float: "a number", bool: "true or false", str: "a word"}


class Marian(NamedTuple):
    """Settings under their own names, with the values that `transformers` gives to those that are not there."""

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
    def build(cls, given: Mapping[str, Any]) -> Marian:
        """Check what stands in a `config.json`."""
        if given.get("model_type") != "marian":
            raise ModelError(f"model_type is {given.get('model_type')!r:.100}, expected 'marian'")
        for key, wanted in FIXED.items():
            if given.get(key, wanted) is not wanted:
                raise ModelError(f"{key} is {given[key]!r:.100}; only models with {key}={wanted!r} can be read")
        values: dict[str, Any] = {
            key: _value(key, given[key], default) for key, default in cls._field_defaults.items() if key in given
        }
        found = cls(**values)
        found = found._replace(decoder_vocab_size=found.decoder_vocab_size or found.vocab_size)
        for what in ("attention_heads", "ffn_dim"):
            encoder, decoder = getattr(found, f"encoder_{what}"), getattr(found, f"decoder_{what}")
            if encoder != decoder:
                raise ModelError(f"encoder_{what} is {encoder} and decoder_{what} is {decoder}; they have to be equal")
        if found.activation_function not in ACTIVATIONS:
            allowed = ", ".join(sorted(ACTIVATIONS))
            raise ModelError(f"activation_function is '{found.activation_function:.100}', expected one of {allowed}")
        if found.share_encoder_decoder_embeddings and found.decoder_vocab_size != found.vocab_size:
            raise ModelError(
                f"vocab_size is {found.vocab_size} and decoder_vocab_size is {found.decoder_vocab_size}, "
                "which cannot share their word vectors (share_encoder_decoder_embeddings)"
            )
        return found

    def ours(self) -> dict[str, object]:
        """Return the settings of our model."""
        return {
            "layers": self.encoder_layers,
            # Ours takes 0 for as many as the encoder's: a decoder without layers would become another model.
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
    """Return a value of the default's kind, or refuse it."""
    if key == "decoder_vocab_size" and value is None:
        return 0
    if key == "eos_token_id" and isinstance(value, list) and len(value) == 1:
        value = value[0]
    kind = type(default)
    right = type(value) is kind or (kind is float and type(value) is int)
    if not right or (kind is int and value < 0):  # type: ignore[operator]
        raise ModelError(f"{key} is {value!r:.80}, expected {EXPECTED[kind]}")
    return value
