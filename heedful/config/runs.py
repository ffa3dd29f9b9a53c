"""The settings of a run that are not the model's: pairs, text, training."""

from __future__ import annotations

from dataclasses import dataclass

from heedful.config.fields import choice, real, switch, weights, whole

__all__ = ["DataConfig", "TextConfig", "TrainingConfig"]


@dataclass(frozen=True)
class DataConfig:
    """Which pairs are learned from."""

    max_characters: int = whole(2000, 1, 10**9, "pairs with a side of more characters are dropped")
    max_ratio: float = real(9.0, 1.0, 1e9, "pairs are dropped when one side has so many times the other's characters")
    duplicates: str = choice("drop", "keep", doc="pairs that came before: both sides the same")


@dataclass(frozen=True)
class TextConfig:
    """How strings become tokens."""

    kind: str = choice(
        "bpe",
        "unigram",
        "word",
        "char",
        "sentencepiece",
        doc="subwords by merging or by pruning, whole words, characters, or SentencePiece's subwords",
    )
    size: int = whole(0, 0, 1_000_000, "most tokens in a vocabulary; 0: chosen from the data")
    joint: bool = switch(False, "one vocabulary for both languages")
    max_length: int = whole(256, 1, 1_000_000, "training pairs with a side of more tokens are left out")
    regularise: float = real(
        0.0, 0.0, 1.0, "words are cut anew in every epoch: share of merges left out; with unigram, α is 0.02 / this"
    )


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    steps: int = whole(20_000, 1, 10**9, "updates at most")
    batch_tokens: int = whole(2048, 1, 10**8, "padded tokens of the longer side in a batch at most")
    batch_sentences: int = whole(256, 1, 10**6, "pairs in a batch at most")
    accumulate: int = whole(1, 1, 10**6, "batches whose gradients make one update")
    rate: float = real(0.002, 0.0, 10.0, "the highest learning rate, reached after the warm-up")
    warmup: int = whole(400, 0, 10**9, "updates over which the rate rises")
    decay: str = choice(
        "root",
        "cosine",
        "plateau",
        "none",
        doc="then it falls with the root of the step, as a cosine to 0, by half when nothing gets better, or not",
    )
    plateau: int = whole(2, 1, 10**6, "with decay=plateau: validations without a better one before the rate is halved")
    weight_decay: float = real(0.01, 0.0, 10.0, "AdamW's pull towards zero")
    clip: float = real(1.0, 0.0, 1e9, "the gradient's norm at most; 0: any")
    smoothing: float = real(0.1, 0.0, 0.99, "probability that label smoothing spreads over all tokens")
    rdrop: float = real(
        0.0, 0.0, 100.0, "R-Drop: weight of the difference between two passes with other dropout; 0: one"
    )
    losses: str = weights("auxiliary losses with their weights, by name: NAME=WEIGHT,…")
    guided: float = real(1.0, 0.0, 100.0, "with --links: weight of the loss between attention and links; 0: none")
    guided_layer: int = whole(0, 0, 64, "the Transformer's decoder layer that links guide; 0: the last but one")
    guided_heads: int = whole(1, 0, 1024, "how many heads of that layer links guide, the first ones; 0: all")
    guided_step: str = choice(
        "auto",
        "same",
        "next",
        doc="links guide the step that writes a token, or the one that reads it; auto: the Transformer's next",
    )
    guided_unlinked: str = choice(
        "end", "free", doc="words without links, in pairs that have some, look at the source's </s>, or are left alone"
    )
    ema: float = real(0.0, 0.0, 0.999999, "keep a moving average of the weights with this decay; 0: none")
    average: int = whole(1, 1, 1000, "weights of so many last validations are averaged at the end, if that is better")
    metric: str = choice("bleu", "chrf", "loss", doc="what makes a validation the best")
    valid_every: int = whole(500, 1, 10**9, "updates between validations")
    valid_pairs: int = whole(1000, 1, 10**9, "held-out pairs used at a validation at most")
    patience: int = whole(8, 1, 10**9, "stop after so many validations without a better one")
    checkpoint_every: int = whole(500, 1, 10**9, "updates between checkpoints")
    keep: int = whole(2, 1, 10**6, "newest checkpoints that are kept; each holds the best weights so far, too")
    log_every: int = whole(20, 1, 10**9, "updates between lines in metrics.jsonl")
    seed: int = whole(1, 0, 2**31 - 1, "everything random follows from it")
    device: str = choice("auto", "cpu", "cuda", "mps", doc="where to compute")
    threads: int = whole(0, 0, 4096, "CPU threads; 0: the fastest number, measured before the first step")
    precision: str = choice("auto", "fp32", "bf16", doc="numbers in the forward pass; auto: bf16 where that is faster")
    capture: bool = switch(True, "on a GPU, record what a step of each shape does, and replay it")
