"""The settings of a model and its training, as frozen dataclasses.

From top to bottom: fields, which know the values that they allow; the sections `model` (one class for each family),
`data`, `text`, `training` and, for captions, `image`; `Config`, which holds them; settings from the command line and
from TOML files.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from heedful.errors import ConfigError, choose, closest, nearest
from heedful.files import read_bytes

__all__ = [
    "CELLS",
    "MODELS",
    "SCORES",
    "Config",
    "DataConfig",
    "FixedConfig",
    "ImageConfig",
    "ModelConfig",
    "RecurrentConfig",
    "Registry",
    "RnnConfig",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "read_recipe",
    "section_of",
    "settings",
]


Section = TypeVar("Section")
Entry = TypeVar("Entry")
MOST = 1000.0  # of a weight


def _choice(default: str, *allowed: str, doc: str) -> Any:  # noqa: ANN401  (dataclasses.field is Any too)
    """Return a field with a default and the other words that it allows."""
    return field(default=default, metadata={"allowed": (default, *allowed), "doc": doc})


def _registered(default: str, allowed: list[str], registry: str, doc: str) -> Any:  # noqa: ANN401
    """Return a field for a name in a registry of the package, which users may add to."""
    return field(default=default, metadata={"allowed": allowed, "registry": registry, "doc": doc})


def _whole(default: int, low: int, high: int, doc: str) -> Any:  # noqa: ANN401
    """Return a field for a whole number from `low` to `high`."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _real(default: float, low: float, high: float, doc: str) -> Any:  # noqa: ANN401
    """Return a field for a number from `low` to `high`."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _switch(default: bool, doc: str) -> Any:  # noqa: ANN401
    """Return a field for true or false."""
    return field(default=default, metadata={"doc": doc})


def _text(default: str, doc: str) -> Any:  # noqa: ANN401
    """Return a field for any text, such as the name of a file."""
    return field(default=default, metadata={"text": True, "doc": doc})


def _weights(doc: str) -> Any:  # noqa: ANN401
    """Return a field for numbers by name, kept as text: "coverage=0.1,entropy=0.5"."""
    return field(default="", metadata={"weights": True, "doc": doc})


def _section(name: str, kind: type[Section], settings: Mapping[str, object], whose: str = "") -> Section:
    """Return a section with these settings; raises ConfigError for an unknown name or a value that is not allowed."""
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in settings.items():
        if key not in fields:
            unknown = f"unknown setting '{name}.{key:.100}'{whose}"
            families = [family for family, other in MODELS.items() if name == "model" and key in _names(other)]
            hint = f" Models that have {key}: {', '.join(families)}." if families else nearest(key[:100], fields)
            raise ConfigError(f"{unknown}; choose one of {', '.join(sorted(fields))}.{hint}")
        try:
            values[key] = _value(f"{name}.{key}", fields[key], value)
        except ConfigError as error:
            raise ConfigError(f"{error}{_other_families(kind, key, value) if name == 'model' else ''}") from None
    return kind(**values)


def _other_families(kind: type, key: str, value: object) -> str:
    """Return which other families of models allow a value, or ""."""
    allow = {family: _allowed(other, key) for family, other in MODELS.items() if other is not kind}
    families = [family for family, allowed in allow.items() if str(value) in allowed]
    return f" {value} needs model.family={' or '.join(families)}." if families else ""


def _allowed(kind: type, key: str) -> Sequence[str]:
    """Return the words that a setting of a family may be, if it is one of words."""
    return next((f.metadata.get("allowed", ()) for f in dataclasses.fields(kind) if f.name == key), ())


def _names(kind: type) -> set[str]:
    """Return the names of the settings of a section."""
    return {f.name for f in dataclasses.fields(kind)}


def _value(name: str, wanted: dataclasses.Field[Any], value: object) -> object:
    if "allowed" in wanted.metadata:
        text, allowed = str(value), wanted.metadata["allowed"]
        try:
            return choose(name, text, allowed)
        except ConfigError as error:
            registry = "" if closest(text, allowed) else wanted.metadata.get("registry", "")
            if not registry:
                raise
            hint = f"Add one of your own before training or loading: heedful.{registry}[NAME] = …"
            raise ConfigError(f"{error} {hint}") from None
    if isinstance(wanted.default, bool):
        switches = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}
        on = value if isinstance(value, bool) else switches.get(str(value).lower())
        if on is None:
            raise ConfigError(f"{name} is '{value!s:.100}', expected true or false")
        return on
    if "text" in wanted.metadata:
        return str(value)
    if "weights" in wanted.metadata:
        return _named_weights(name, value)
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
        raise ConfigError(f"{name} is '{value!s:.100}', expected {what} from {low} to {high}") from None
    return number


def _named_weights(name: str, value: object) -> str:
    """Return numbers by name as text, from text or from a mapping."""
    try:
        if not isinstance(value, str | Mapping):
            raise ValueError
        parts = value if isinstance(value, Mapping) else dict(p.partition("=")[::2] for p in value.split(",") if p)
        numbers = {str(key).strip(): float(str(number)) for key, number in parts.items()}
        if not all(key and not set(key) & set(",=") and 0 <= number <= MOST for key, number in numbers.items()):
            raise ValueError
    except ValueError:
        shown = str(value)[:100] if isinstance(value, Mapping) else f"'{value!s:.100}'"
        raise ConfigError(
            f"{name} is {shown}, expected weights from 0 to {MOST:g} by name: NAME=WEIGHT,… or, in Python, a dict"
        ) from None
    return ",".join(f"{key}={number}" for key, number in numbers.items())


# The values of model.cell and model.score. `heedful.models.rnn.CELLS` and `heedful.attention.SCORES` add theirs.
CELLS = ["gru", "lstm", "rnn", "ssru"]
SCORES = ["additive", "concat", "dot", "general", "scaled"]


class Registry(UserDict[str, Entry]):
    """What a setting chooses from, by name. A name that is set here becomes one of the setting's allowed values."""

    def __init__(self, allowed: list[str], entries: Mapping[str, Entry]) -> None:
        self.allowed = allowed
        super().__init__(entries)

    def __setitem__(self, name: str, entry: Entry) -> None:
        super().__setitem__(name, entry)
        if name not in self.allowed:
            self.allowed.append(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self.allowed.remove(name)


@dataclass(frozen=True)
class RecurrentConfig:
    """Settings of every recurrent encoder-decoder."""

    cell: str = _registered("gru", CELLS, "models.rnn.CELLS", "the recurrent cell; ssru has no matrix on its state")
    layers: int = _whole(1, 1, 32, "layers of the encoder, and of the decoder")
    bidirectional: bool = _switch(True, "encode the source in both directions")
    width: int = _whole(256, 1, 16384, "D, the width of the decoder's state")
    encoder_width: int = _whole(0, 0, 16384, "width of the encoder's state per direction; 0: h_j gets the width D")
    embedding: int = _whole(256, 1, 16384, "width of the embeddings")
    bridge: str = _choice(
        "learn",
        "copy",
        "directions",
        doc="the decoder's first state: a learned map of h(T), h(T) itself, or one direction of h(T) for each layer",
    )
    tied: bool = _switch(False, "project to the vocabulary with the target embeddings: E·tanh(W[s_t; c_t; y_{t-1}])")
    dropout: float = _real(0.2, 0.0, 0.95, "on embeddings, between layers and before the output")
    nonlinearity: str = _choice("tanh", "relu", doc="the function of the plain RNN (model.cell=rnn)")
    decoder_layers: int = _whole(0, 0, 32, "layers of the decoder; 0: as many as the encoder has")
    output_inner: int = _whole(0, 0, 16384, "width of one more layer before the output projection; 0: none")
    output_activation: str = _choice("tanh", "relu", "leaky_relu", doc="the function of that layer, and of tied's")

    @property
    def depth(self) -> int:
        """The layers of the decoder: `decoder_layers`, or as many as the encoder has."""
        return self.decoder_layers or self.layers

    @property
    def full_cell(self) -> str:
        """The cell, with its nonlinearity if that is not the usual one: `rnn-relu`."""
        if self.nonlinearity == "tanh":
            return self.cell
        if self.cell != "rnn":
            raise ConfigError(
                f"model.nonlinearity is {self.nonlinearity}, which only the plain RNN can have, but model.cell is "
                f"{self.cell}; set model.cell=rnn or model.nonlinearity=tanh"
            )
        return f"{self.cell}-{self.nonlinearity}"

    @property
    def directions(self) -> int:
        """1, or 2 with `bidirectional`."""
        return 2 if self.bidirectional else 1

    @property
    def per_direction(self) -> int:
        """The encoder's width per direction; the default fills the width D."""
        if self.encoder_width == 0 and self.width % self.directions:
            raise ConfigError(
                f"model.width is {self.width}, which two directions cannot share; "
                "choose an even one, set model.encoder_width, or set model.bidirectional=false"
            )
        return self.encoder_width or self.width // self.directions

    @property
    def memory_width(self) -> int:
        """The width of h_j: all directions concatenated."""
        return self.per_direction * self.directions


@dataclass(frozen=True)
class FixedConfig(RecurrentConfig):
    """The encoder-decoder without attention: one fixed context vector."""

    context: str = _choice("first", "every", doc="the decoder sees h(T) as its first state only, or at every step")


@dataclass(frozen=True)
class RnnConfig(RecurrentConfig):
    """The recurrent encoder-decoder with attention."""

    score: str = _registered("additive", SCORES, "attention.SCORES", "the score of h_j for the query s_t")
    order: str = _choice("bahdanau", "luong", doc="the query: s_{t-1} before the cell, or s_t after it")
    score_width: int = _whole(0, 0, 16384, "A, the width of the additive score; 0: D")
    feed: bool = _switch(True, "Luong's order only: the attentional state enters the next step")
    query: str = _choice("top", "sum", doc="what queries of several layers: the state of the top one, or their sum")
    output: str = _choice(
        "after",
        "before",
        "state",
        doc="what predicts y_t: [s_t; c_t], Bahdanau's [s_{t-1}; c_t; y_{t-1}] before the cell, or s_t alone",
    )
    window: str = _choice(
        "global",
        "monotonic",
        "predictive",
        doc="attend to all h_j, or to a window around p_t: p_t = t, or predicted from the query (Luong's local-m, -p)",
    )
    window_width: int = _whole(10, 1, 100_000, "D: a window reaches from p_t - D to p_t + D")


@dataclass(frozen=True)
class TransformerConfig:
    """The Transformer: attention to the source, and self-attention; with `cell="ssru"` the decoder is recurrent."""

    cell: str = _choice(
        "self-attention",
        "ssru",
        doc="what each layer of the decoder reads the tokens before with: self-attention, or a recurrent cell",
    )
    layers: int = _whole(3, 1, 64, "layers of the encoder, and of the decoder")
    decoder_layers: int = _whole(0, 0, 64, "layers of the decoder; 0: as many as the encoder has")
    width: int = _whole(256, 2, 16384, "D, the width of all states and embeddings")
    heads: int = _whole(4, 1, 1024, "H, the heads of each attention; they share the width")
    inner: int = _whole(1024, 1, 65536, "the inner width of the feed-forward layers")
    activation: str = _choice("relu", "gelu", "silu", doc="the function inside the feed-forward layers")
    norm: str = _choice("pre", "post", doc="where a sub-layer is normalised: before it, or after its sum")
    tied: str = _choice(
        "target",
        "all",
        "none",
        doc="the output projection shares the target embeddings; all: the source's, too; none: its own weights",
    )
    bias: bool = _switch(False, "a bias for each target token")
    scale: bool = _switch(True, "multiply embeddings by √D before the positions are added")
    positions: str = _choice(
        "sinusoid", "marian", doc="the frequencies of positions: 10000^(-2i/D), or 10000^(-2i/(D-2)) as Marian has them"
    )
    dropout: float = _real(0.1, 0.0, 0.95, "on embeddings and on the output of each sub-layer")
    attention_dropout: float = _real(0.0, 0.0, 0.95, "on the attention weights")
    inner_dropout: float = _real(0.0, 0.0, 0.95, "inside the feed-forward layers")
    source_end: bool = _switch(
        True, "the encoder reads the source's </s>; false: it is masked, as in OpenNMT-py's models"
    )

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
        """The layers of the decoder: `decoder_layers`, or as many as the encoder has."""
        return self.decoder_layers or self.layers


ModelConfig = RecurrentConfig | TransformerConfig

MODELS: dict[str, type[RecurrentConfig] | type[TransformerConfig]] = {
    "fixed": FixedConfig,
    "rnn": RnnConfig,
    "transformer": TransformerConfig,
}


@dataclass(frozen=True)
class DataConfig:
    """Which pairs a model is trained on."""

    max_characters: int = _whole(2000, 1, 10**9, "pairs with a side of more characters are dropped")
    max_ratio: float = _real(9.0, 1.0, 1e9, "pairs are dropped when one side has so many times the other's characters")
    duplicates: str = _choice("drop", "keep", doc="pairs that occurred before, both sides the same")


MOST_REGIONS = 64  # in a row of an image: attention takes memory for each region and each token


@dataclass(frozen=True)
class ImageConfig:
    """How images become regions, in a model that captions images."""

    encoder: str = _choice("conv", "patches", "timm", doc="convolutions, patches (ViT), or a network of timm")
    pixels: int = _whole(64, 8, 2048, "side of the square that images are resized to; timm: by default its network's")
    patch: int = _whole(
        8, 1, 256, "side of a region in pixels; conv: a power of 2; timm: a stride, by default the last"
    )
    filters: int = _whole(32, 1, 4096, "conv: channels of the first convolution; patches: the width is 8 times this")
    blocks: int = _whole(2, 0, 64, "conv: residual blocks on the grid of regions; patches: layers of self-attention")
    backbone: str = _text("", "timm: the name of the network, as tf_efficientnet_lite0")
    weights: str = _text("", "take the image encoder from here: a file of weights, hf:NAME, or a captioner's folder")
    frozen: bool = _switch(False, "do not train the image encoder: its features are computed once and cached")

    @property
    def side(self) -> int:
        """The regions of a row, and of a column."""
        if self.pixels % self.patch:
            raise ConfigError(f"image.pixels is {self.pixels}, which is not a multiple of image.patch, {self.patch}")
        side = self.pixels // self.patch
        if side > MOST_REGIONS:
            raise ConfigError(
                f"image.pixels is {self.pixels} and image.patch is {self.patch}: {side} × {side} regions; at most "
                f"{MOST_REGIONS} × {MOST_REGIONS} are possible: raise image.patch, or lower image.pixels"
            )
        return side


@dataclass(frozen=True)
class TextConfig:
    """How strings become tokens."""

    kind: str = _choice(
        "bpe",
        "unigram",
        "word",
        "char",
        "sentencepiece",
        "letters",
        doc="subwords by merging or by pruning, whole words, characters, SentencePiece's subwords, or the letters of "
        "single words",
    )
    size: int = _whole(0, 0, 1_000_000, "most tokens in a vocabulary; 0: chosen from the data")
    joint: bool = _switch(False, "one vocabulary for both languages")
    max_length: int = _whole(256, 1, 1_000_000, "training pairs with a side of more tokens are left out")
    regularise: float = _real(
        0.0,
        0.0,
        1.0,
        "segment words anew in every epoch: share of merges left out; unigram samples with α = 0.02 / this",
    )
    normalization: str = _choice(
        "nfkc",
        "none",
        doc="with kind=sentencepiece: NFKC (½ becomes 1⁄2, … becomes ...), or text as it is; the other kinds apply NFC",
    )


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    steps: int = _whole(20_000, 1, 10**9, "updates at most")
    batch_tokens: int = _whole(2048, 1, 10**8, "padded tokens of the longer side in a batch at most")
    batch_sentences: int = _whole(256, 1, 10**6, "pairs in a batch at most")
    accumulate: int = _whole(1, 1, 10**6, "batches whose gradients make one update")
    rate: float = _real(0.002, 0.0, 10.0, "the highest learning rate, reached after the warm-up")
    warmup: int = _whole(400, 0, 10**9, "updates over which the learning rate rises")
    decay: str = _choice(
        "root",
        "cosine",
        "plateau",
        "none",
        doc="after the warm-up the rate falls with the root of the step, as a cosine to 0, by half on a plateau or not",
    )
    plateau: int = _whole(2, 1, 10**6, "with decay=plateau: validations without a better one before the rate is halved")
    weight_decay: float = _real(0.01, 0.0, 10.0, "AdamW's weight decay")
    clip: float = _real(1.0, 0.0, 1e9, "the gradient's norm at most; 0: any")
    smoothing: float = _real(0.1, 0.0, 0.99, "probability that label smoothing spreads over all tokens")
    rdrop: float = _real(
        0.0, 0.0, 100.0, "R-Drop: weight of the difference between two passes with other dropout; 0: one"
    )
    losses: str = _weights("auxiliary losses with their weights, by name: NAME=WEIGHT,…")
    guided: float = _real(
        1.0, 0.0, 100.0, "weight of the loss between attention and links, if pairs have links; 0: none"
    )
    guided_layer: int = _whole(0, 0, 64, "the Transformer's decoder layer that links guide; 0: the last but one")
    guided_heads: int = _whole(1, 0, 1024, "how many heads of that layer links guide, the first ones; 0: all")
    guided_step: str = _choice(
        "auto",
        "same",
        "next",
        doc="links guide the step that predicts a token, or the one that reads it; auto: the Transformer's next",
    )
    guided_unlinked: str = _choice(
        "end", "free", doc="words without links, in pairs that have some, attend to the source's </s>, or are ignored"
    )
    ema: float = _real(0.0, 0.0, 0.999999, "keep a moving average of the weights with this decay; 0: none")
    average: int = _whole(1, 1, 1000, "weights of so many last validations are averaged at the end, if that is better")
    metric: str = _choice("bleu", "chrf", "loss", doc="what makes a validation the best")
    valid_every: int = _whole(500, 1, 10**9, "updates between validations")
    valid_pairs: int = _whole(1000, 1, 10**9, "held-out pairs used at a validation at most")
    patience: int = _whole(8, 1, 10**9, "stop after so many validations without a better one")
    checkpoint_every: int = _whole(500, 1, 10**9, "updates between checkpoints")
    keep: int = _whole(2, 1, 10**6, "newest checkpoints that are kept; each holds the best weights so far, too")
    log_every: int = _whole(20, 1, 10**9, "updates between lines in metrics.jsonl")
    seed: int = _whole(1, 0, 2**31 - 1, "the seed of everything random")
    device: str = _choice("auto", "cpu", "cuda", "mps", doc="where to compute")
    threads: int = _whole(0, 0, 4096, "CPU threads; 0: the fastest number, measured before the first step")
    precision: str = _choice("auto", "fp32", "bf16", doc="numbers in the forward pass; auto: bf16 where that is faster")
    capture: bool = _switch(True, "on a GPU, capture a step of each shape as a CUDA graph and replay it")


RECIPE = 1_000_000  # bytes at most
# The class of each section; that of the model follows from its family.
SECTIONS: dict[str, type[Any] | None] = {
    "model": None,
    "data": DataConfig,
    "text": TextConfig,
    "training": TrainingConfig,
    "image": ImageConfig,
}


@dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` holds them. `image` is None in a model of text."""

    model: ModelConfig = field(default_factory=RnnConfig)
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    image: ImageConfig | None = None  # of a model that captions images

    @property
    def family(self) -> str:
        """The name of the model's family: a key of `MODELS`."""
        return next(name for name, kind in MODELS.items() if type(self.model) is kind)

    @classmethod
    def build(cls, settings: Mapping[str, object]) -> Config:
        """Return the settings in nested mappings, as in `config.json`, with defaults for all others.

        Raises ConfigError for an unknown section or setting, and for a value that is not allowed.

        >>> Config.build({"model": {"family": "fixed", "width": 64}}).model.width
        64
        >>> Config.build({"txt": {}})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        heedful.errors.ConfigError: unknown section 'txt'; choose one of data, image, model, text, training. ...
        """
        for name, values in settings.items():
            choose("section", name, SECTIONS)
            if not isinstance(values, Mapping):
                raise ConfigError(f"{name} is {values!r:.100}, expected settings by name")
        plain = {name: _mapping(settings.get(name)) for name in SECTIONS}
        model = dict(plain["model"])
        family = choose("model", str(model.pop("family", "rnn")), MODELS)
        others = {
            name: _section(name, kind, plain[name])
            for name, kind in SECTIONS.items()
            if kind is not None and (name in settings or name != "image")
        }
        return cls(_section("model", MODELS[family], model, f" of the model '{family}'"), **others)

    def plain(self) -> dict[str, dict[str, object]]:
        """Return nested dicts for `build`."""
        sections = {name: section for name in SECTIONS if (section := getattr(self, name)) is not None}
        plain = {name: dataclasses.asdict(section) for name, section in sections.items()}
        return {**plain, "model": {"family": self.family, **plain["model"]}}


def section_of() -> dict[str, str]:
    """Return the section of each setting; no name is in two sections. `model` is the family of the model."""
    kinds = {name: list(MODELS.values()) if kind is None else [kind] for name, kind in SECTIONS.items()}
    named = {f.name: name for name, classes in kinds.items() for kind in classes for f in dataclasses.fields(kind)}
    return {"model": "model", **named}


def settings(assignments: list[str]) -> dict[str, dict[str, object]]:
    """Return nested settings from `section.key=value` strings.

    >>> settings(["training.rate=0.1", "model.cell=lstm"])
    {'training': {'rate': '0.1'}, 'model': {'cell': 'lstm'}}
    """
    nested: dict[str, dict[str, object]] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(
                f"cannot read the setting '{assignment}'; expected section.key=value{_guess(name.strip())}"
            )
        nested.setdefault(section, {})[key] = value.strip()
    return nested


def _guess(name: str) -> str:
    """Return a hint with the full name of the setting that is most like a name without its section, or ""."""
    sections = section_of()
    setting = name if name in sections else closest(name, list(sections))
    key = "family" if setting == "model" else setting
    return f"; did you mean {sections[setting]}.{key}?" if setting else ""


def read_recipe(path: str | Path) -> dict[str, dict[str, object]]:
    """Read nested settings from a TOML file; raises ConfigError with the file's name for any that are not allowed."""
    try:
        recipe = tomllib.loads(read_bytes(Path(path), RECIPE, "a recipe", ConfigError).decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise ConfigError(f"{path}: this TOML is nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not TOML ({error})") from None
    if stray := [key for key, value in recipe.items() if not isinstance(value, dict)]:
        raise ConfigError(
            f"{path}: '{stray[0]:.100}' stands outside the sections {', '.join(f'[{name}]' for name in SECTIONS)}"
        )
    try:
        _check(recipe)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return recipe


def _check(recipe: Mapping[str, Mapping[str, object]]) -> None:
    """Raise ConfigError for a setting that is not allowed; without a family, one of the model may be of any family."""
    model = recipe.get("model", {})
    if "family" in model:
        Config.build(recipe)
        return
    Config.build({name: values for name, values in recipe.items() if name != "model"})
    names = {family: _names(kind) for family, kind in MODELS.items()}
    for key, value in model.items():
        choose("model setting", key, set().union(*names.values()))
        having = [family for family in MODELS if key in names[family]]
        errors = [error for family in having if (error := _error(family, key, value))]
        if len(errors) == len(having):
            raise errors[0]


def _error(family: str, key: str, value: object) -> ConfigError | None:
    try:
        Config.build({"model": {"family": family, key: value}})
    except ConfigError as error:
        return error
    return None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
