"""Settings as small frozen dataclasses: each field knows what it allows, unknown keys are refused with a guess."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from heedful.errors import ConfigError, choose, nearest

__all__ = [
    "MODELS",
    "Config",
    "FixedConfig",
    "ModelConfig",
    "RecurrentConfig",
    "RnnConfig",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "read_recipe",
    "settings",
]

Section = TypeVar("Section")


def _choice(default: str, *allowed: str, doc: str) -> Any:  # noqa: ANN401  (dataclasses.field is Any too)
    return field(default=default, metadata={"allowed": (default, *allowed), "doc": doc})


def _whole(default: int, low: int, high: int, doc: str) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _real(default: float, low: float, high: float, doc: str) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _switch(default: bool, doc: str) -> Any:  # noqa: ANN401
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class RecurrentConfig:
    """What every recurrent encoder-decoder has."""

    cell: str = _choice("gru", "lstm", "rnn", doc="the recurrent cell")
    layers: int = _whole(1, 1, 32, "layers of the encoder, and of the decoder")
    bidirectional: bool = _switch(True, "read the source in both directions")
    width: int = _whole(256, 1, 16384, "D, the width of the decoder's state")
    encoder_width: int = _whole(0, 0, 16384, "width of the encoder's state per direction; 0: h_j gets the width D")
    embedding: int = _whole(256, 1, 16384, "width of the word vectors")
    bridge: str = _choice("learn", "copy", doc="the decoder's first state: a learned map of h(T), or h(T) itself")
    tied: bool = _switch(False, "write with the target embeddings: E·tanh(W[s_t; c_t; y_{t-1}])")
    dropout: float = _real(0.2, 0.0, 0.95, "on embeddings, between layers and before the output")

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

    context: str = _choice("first", "every", doc="the decoder sees h(T) as its first state only, or at every step")


@dataclass(frozen=True)
class RnnConfig(RecurrentConfig):
    """The encoder-decoder whose decoder looks back at all the encoder's states."""

    score: str = _choice("additive", "concat", "dot", "general", "scaled", doc="how well h_j answers s_t")
    order: str = _choice("bahdanau", "luong", doc="who asks: s_{t-1} before the cell, or s_t after it")
    score_width: int = _whole(0, 0, 16384, "A, the width of the additive score; 0: D")
    feed: bool = _switch(True, "Luong's order only: the attentional state enters the next step")


@dataclass(frozen=True)
class TransformerConfig:
    """The encoder-decoder without recurrence: attention between the sentences, and inside each of them."""

    layers: int = _whole(3, 1, 64, "layers of the encoder, and of the decoder")
    decoder_layers: int = _whole(0, 0, 64, "layers of the decoder; 0: as many as the encoder has")
    width: int = _whole(256, 2, 16384, "D, the width of all states and word vectors")
    heads: int = _whole(4, 1, 1024, "H, the heads of each attention; they share the width")
    inner: int = _whole(1024, 1, 65536, "the width inside the feed-forward layers")
    activation: str = _choice("relu", "gelu", "silu", doc="the function inside the feed-forward layers")
    norm: str = _choice("pre", "post", doc="where a sub-layer is normalised: before it, or after its sum")
    tied: str = _choice(
        "target",
        "all",
        "none",
        doc="write with the target embeddings; all: they are the source's, too; none: with weights of their own",
    )
    bias: bool = _switch(False, "a bias for each word that can be written")
    scale: bool = _switch(True, "multiply word vectors by √D before the positions are added")
    dropout: float = _real(0.1, 0.0, 0.95, "on embeddings and on what each sub-layer adds")
    attention_dropout: float = _real(0.0, 0.0, 0.95, "on the attention weights")
    inner_dropout: float = _real(0.0, 0.0, 0.95, "inside the feed-forward layers")

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


@dataclass(frozen=True)
class TextConfig:
    """How strings become tokens."""

    kind: str = _choice(
        "bpe", "word", "char", "sentencepiece", doc="subwords, whole words, characters, or SentencePiece's subwords"
    )
    size: int = _whole(4000, 5, 1_000_000, "most tokens in a vocabulary")
    joint: bool = _switch(False, "one vocabulary for both languages")
    max_length: int = _whole(256, 1, 1_000_000, "training pairs with a side of more tokens are left out")


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    steps: int = _whole(20_000, 1, 10**9, "updates at most")
    batch_tokens: int = _whole(2048, 1, 10**8, "padded tokens of the longer side in a batch at most")
    batch_sentences: int = _whole(256, 1, 10**6, "pairs in a batch at most")
    rate: float = _real(0.002, 0.0, 10.0, "the highest learning rate, reached after the warm-up")
    warmup: int = _whole(400, 0, 10**9, "updates over which the rate rises")
    decay: str = _choice(
        "root", "cosine", "none", doc="then it falls with the root of the step, as a cosine to 0, or not"
    )
    weight_decay: float = _real(0.01, 0.0, 10.0, "AdamW's pull towards zero")
    clip: float = _real(1.0, 0.0, 1e9, "the gradient's norm at most; 0: any")
    smoothing: float = _real(0.1, 0.0, 0.99, "probability that label smoothing spreads over all tokens")
    valid_every: int = _whole(500, 1, 10**9, "updates between validations")
    valid_pairs: int = _whole(1000, 1, 10**9, "held-out pairs used at a validation at most")
    patience: int = _whole(8, 1, 10**9, "stop after so many validations without a better one")
    checkpoint_every: int = _whole(500, 1, 10**9, "updates between checkpoints")
    keep: int = _whole(2, 1, 10**6, "newest checkpoints that are kept; each holds the best weights so far, too")
    log_every: int = _whole(20, 1, 10**9, "updates between lines in metrics.jsonl")
    seed: int = _whole(1, 0, 2**31 - 1, "everything random follows from it")
    device: str = _choice("auto", "cpu", "cuda", "mps", doc="where to compute")
    threads: int = _whole(0, 0, 4096, "CPU threads; 0: as many as PyTorch takes")
    precision: str = _choice("fp32", "bf16", doc="numbers in the forward pass")


@dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` holds them."""

    model: ModelConfig = field(default_factory=RnnConfig)
    text: TextConfig = field(default_factory=TextConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def family(self) -> str:
        """The name of the model's family: a key of `MODELS`."""
        return next(name for name, kind in MODELS.items() if type(self.model) is kind)

    @classmethod
    def build(cls, given: Mapping[str, object]) -> Config:
        """Check nested settings, as they stand in `config.json`, and fill in what is not given.

        >>> Config.build({"model": {"family": "fixed", "width": 64}}).model.width
        64
        >>> Config.build({"modle": {}})
        Traceback (most recent call last):
        heedful.errors.ConfigError: unknown section 'modle'; choose one of model, text, training. Did you mean 'model'?
        """
        for name, section in given.items():
            choose("section", name, ("model", "text", "training"))
            if not isinstance(section, Mapping):
                raise ConfigError(f"{name} is {section!r}, expected settings by name")
        model = dict(_mapping(given.get("model", {})))
        family = choose("model", str(model.pop("family", "rnn")), MODELS)
        return cls(
            model=_section("model", MODELS[family], model, f" of the model '{family}'"),
            text=_section("text", TextConfig, _mapping(given.get("text", {}))),
            training=_section("training", TrainingConfig, _mapping(given.get("training", {}))),
        )

    def plain(self) -> dict[str, dict[str, object]]:
        """Return nested dicts that `build` takes back."""
        return {
            "model": {"family": self.family, **dataclasses.asdict(self.model)},
            "text": dataclasses.asdict(self.text),
            "training": dataclasses.asdict(self.training),
        }


def settings(assignments: list[str]) -> dict[str, dict[str, object]]:
    """Turn `section.key=value` strings into nested settings.

    >>> settings(["training.rate=0.1", "model.cell=lstm"])
    {'training': {'rate': '0.1'}, 'model': {'cell': 'lstm'}}
    """
    nested: dict[str, dict[str, object]] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(f"cannot read the setting '{assignment}'; expected section.key=value")
        nested.setdefault(section, {})[key] = value.strip()
    return nested


def read_recipe(path: str | Path) -> dict[str, dict[str, object]]:
    """Read nested settings from a TOML file; what they are worth is checked when a `Config` is built."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not TOML ({error})") from None
    if stray := [key for key, value in found.items() if not isinstance(value, dict)]:
        raise ConfigError(f"{path}: '{stray[0]}' stands outside the sections [model], [text], [training]")
    return found


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _section(name: str, kind: type[Section], given: Mapping[str, object], whose: str = "") -> Section:
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in given.items():
        if key not in fields:
            allowed = ", ".join(sorted(fields))
            raise ConfigError(f"unknown setting '{name}.{key}'{whose}; choose one of {allowed}.{nearest(key, fields)}")
        values[key] = _value(f"{name}.{key}", fields[key], value)
    return kind(**values)


def _value(name: str, wanted: dataclasses.Field[Any], value: object) -> object:
    if "allowed" in wanted.metadata:
        return choose(name, str(value), wanted.metadata["allowed"])
    if isinstance(wanted.default, bool):
        switches = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}
        found = value if isinstance(value, bool) else switches.get(str(value).lower())
        if found is None:
            raise ConfigError(f"{name} is '{value}', expected true or false")
        return found
    low, high = wanted.metadata["low"], wanted.metadata["high"]
    kind = int if isinstance(wanted.default, int) else float
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = kind(value)
        if number != float(value) or not low <= number <= high:
            raise ValueError
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name} is '{value}', expected {what} from {low} to {high}") from None
    return number
