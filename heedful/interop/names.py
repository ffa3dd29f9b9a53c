"""Marian's names for files, weights and settings, and which of ours each is."""

from __future__ import annotations

from collections.abc import Iterator

from heedful.config import TransformerConfig

__all__ = [
    "BIAS",
    "BIN",
    "CONFIG",
    "GENERATION",
    "POSITIONS",
    "SAFE",
    "SOURCE_SPM",
    "TARGET_SPM",
    "TARGET_VOCABULARY",
    "TOKENIZER",
    "VOCABULARY",
    "embeddings",
    "layers",
]

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
SAFE, BIN = "model.safetensors", "pytorch_model.bin"
SOURCE_SPM, TARGET_SPM = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"

BIAS = "final_logits_bias"
# Sinusoids, which are worked out; old files hold them all the same.
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def embeddings(shared: bool) -> dict[str, tuple[str, ...]]:
    """Return, for each of our tables of word vectors, the names of which a file has one, or several with one value."""
    source, target = "model.encoder.embed_tokens.weight", ("model.decoder.embed_tokens.weight", "lm_head.weight")
    if shared:
        return {"embedding.weight": ("model.shared.weight", source, *target)}
    return {"source.weight": (source,), "embedding.weight": target}


def layers(config: TransformerConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield our name for each weight of a layer, and those of theirs that stand in it one below the other."""
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
