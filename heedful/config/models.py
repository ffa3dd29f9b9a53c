"""The settings of each family of models."""

from __future__ import annotations

from dataclasses import dataclass, field

from heedful.config.fields import choice, real, switch, whole
from heedful.errors import ConfigError

__all__ = ["MODELS", "SCORES", "FixedConfig", "ModelConfig", "RecurrentConfig", "RnnConfig", "TransformerConfig"]

SCORES = ["additive", "concat", "dot", "general", "scaled"]  # `heedful.attention.SCORES` adds the names set there


@dataclass(frozen=True)
class RecurrentConfig:
    """What every recurrent encoder-decoder has."""

    cell: str = choice("gru", "lstm", "rnn", doc="the recurrent cell")
    layers: int = whole(1, 1, 32, "layers of the encoder, and of the decoder")
    bidirectional: bool = switch(True, "read the source in both directions")
    width: int = whole(256, 1, 16384, "D, the width of the decoder's state")
    encoder_width: int = whole(0, 0, 16384, "width of the encoder's state per direction; 0: h_j gets the width D")
    embedding: int = whole(256, 1, 16384, "width of the word vectors")
    bridge: str = choice("learn", "copy", doc="the decoder's first state: a learned map of h(T), or h(T) itself")
    tied: bool = switch(False, "write with the target embeddings: E·tanh(W[s_t; c_t; y_{t-1}])")
    dropout: float = real(0.2, 0.0, 0.95, "on embeddings, between layers and before the output")

    @property
    def directions(self) -> int:
        """1, or 2 when the source is read both ways."""
        return 2 if self.bidirectional else 1

    @property
    def per_direction(self) -> int:
        """The encoder's width per direction, with the default worked out."""
        if self.encoder_width == 0 and self.width % self.directions:
            raise ConfigError(
                f"model.width is {self.width}, which two directions cannot share; "
                "choose an even one, set model.encoder_width, or set model.bidirectional=false"
            )
        return self.encoder_width or self.width // self.directions

    @property
    def memory_width(self) -> int:
        """The width of h_j: all directions side by side."""
        return self.per_direction * self.directions


@dataclass(frozen=True)
class FixedConfig(RecurrentConfig):
    """The encoder-decoder with one fixed context: the bottleneck that attention cures."""

    context: str = choice("first", "every", doc="the decoder sees h(T) as its first state only, or at every step")


@dataclass(frozen=True)
class RnnConfig(RecurrentConfig):
    """The encoder-decoder whose decoder looks back at all the encoder's states."""

    score: str = field(default="additive", metadata={"allowed": SCORES, "doc": "how well h_j answers s_t"})
    order: str = choice("bahdanau", "luong", doc="who asks: s_{t-1} before the cell, or s_t after it")
    score_width: int = whole(0, 0, 16384, "A, the width of the additive score; 0: D")
    feed: bool = switch(True, "Luong's order only: the attentional state enters the next step")


@dataclass(frozen=True)
class TransformerConfig:
    """The encoder-decoder without recurrence: attention between the sentences, and inside each of them."""

    layers: int = whole(3, 1, 64, "layers of the encoder, and of the decoder")
    decoder_layers: int = whole(0, 0, 64, "layers of the decoder; 0: as many as the encoder has")
    width: int = whole(256, 2, 16384, "D, the width of all states and word vectors")
    heads: int = whole(4, 1, 1024, "H, the heads of each attention; they share the width")
    inner: int = whole(1024, 1, 65536, "the width inside the feed-forward layers")
    activation: str = choice("relu", "gelu", "silu", doc="the function inside the feed-forward layers")
    norm: str = choice("pre", "post", doc="where a sub-layer is normalised: before it, or after its sum")
    tied: str = choice(
        "target",
        "all",
        "none",
        doc="write with the target embeddings; all: they are the source's, too; none: with weights of their own",
    )
    bias: bool = switch(False, "a bias for each word that can be written")
    scale: bool = switch(True, "multiply word vectors by √D before the positions are added")
    dropout: float = real(0.1, 0.0, 0.95, "on embeddings and on what each sub-layer adds")
    attention_dropout: float = real(0.0, 0.0, 0.95, "on the attention weights")
    inner_dropout: float = real(0.0, 0.0, 0.95, "inside the feed-forward layers")

    @property
    def channels(self) -> int:
        """C, the width of one head."""
        if self.width % self.heads:
            raise ConfigError(
                f"model.width is {self.width}, which {self.heads} heads (model.heads) cannot share evenly"
            )
        if self.width % 2:
            raise ConfigError(f"model.width is {self.width}, expected an even number: a sine and a cosine each")
        return self.width // self.heads

    @property
    def depth(self) -> int:
        """The layers of the decoder, with the default worked out."""
        return self.decoder_layers or self.layers


ModelConfig = RecurrentConfig | TransformerConfig

MODELS: dict[str, type[RecurrentConfig] | type[TransformerConfig]] = {
    "fixed": FixedConfig,
    "rnn": RnnConfig,
    "transformer": TransformerConfig,
}
