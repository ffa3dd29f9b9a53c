"""Read-outs: how links between words are read from the attention weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.config import Config, ModelConfig, TransformerConfig
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.files import SETTINGS, NotPlainError, read_json
from heedful.trace.alarms import AlarmRates
from heedful.trace.json_checks import listed, number, whole_number

Weights = NDArray[np.float32]
READOUT = "readout.json"
STEPS = ("same", "next")
ENDS = ("stop", "drop")
MARKS = ("keep", "apart")
BY_RULE = "by rule"  # what `chosen` begins with in the default of an opened model
# How single heads are labelled where a record lacks what its read-out needs.
RAW = "raw weights of the same step, since this record lacks what its read-out takes"
SYMMETRIES = (
    *("none", "product", "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"),
    *("grow-diag-strict", "grow-diag-final-strict"),
)


@dataclass(frozen=True)
class Readout:
    """How to read links from attention weights: which weights, and the link rule (`heedful.alignment.links`).

    `layer` and `heads` are counted from 1; None and () mean the mean of all. `step` is the decoder step whose weights
    belong to y_t: "same", the one that writes y_t, or "next", the one that reads it. With `norms`, a weight is
    multiplied by the norm of the vector it applies to, ‖α f(h_j)‖ (Kobayashi et al. 2020).

    The link rule: a target word is linked to each source word with at least `threshold` times the largest weight of
    its row. `end` says what happens if the largest is on the source's `</s>`: with "stop" the word has no link, with
    "drop" `</s>` is ignored. With `marks="apart"`, punctuation is linked only to punctuation, and words to words. With
    `even`, a weight is divided by what its source word received in all rows. `symmetry` combines the links with those
    of a model for the other direction; "product" multiplies the weights of both.

    `chosen` says how the read-out was selected and measured; `label` replaces layer and heads in figures, for example
    for several models at once. `attention` is False for weights that are not attention, but influence. `alarms` are
    the measured alarm rates of these weights, if there are any.
    """

    layer: int | None = None
    heads: tuple[int, ...] = ()
    step: str = "same"
    norms: bool = False
    end: str = "stop"
    marks: str = "keep"
    threshold: float = 1.0
    symmetry: str = "none"
    chosen: str = ""
    label: str = ""
    attention: bool = True
    even: bool = False
    alarms: AlarmRates | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for values that are not allowed."""
        for name, allowed in (("step", STEPS), ("end", ENDS), ("marks", MARKS), ("symmetry", SYMMETRIES)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"read-out: {name} is {getattr(self, name)!r:.60}; choose from {', '.join(allowed)}")
        if len(set(self.heads)) < len(self.heads):
            raise ConfigError(f"read-out: a head is named twice in {self.heads!s:.100}")
        if not 0 < self.threshold <= 1:
            raise ConfigError(
                f"read-out: the threshold is {self.threshold}; it is a share of the largest weight, up to 1"
            )

    def __str__(self) -> str:
        """The weights that are read, in words, for figures; without the link rule, which does not change weights."""
        heads = f"head{'s' * (len(self.heads) > 1)} {', '.join(map(str, self.heads))}" if self.heads else ""
        layer = "" if self.layer is None else f"layer {self.layer}"
        if self.label:
            return self.label
        parts = [", ".join(filter(None, (layer, heads))) or "mean of all layers and heads"]
        return "; ".join(filter(None, (*parts, self.reading, BY_RULE if self.chosen.startswith(BY_RULE) else "")))

    @property
    def reading(self) -> str:
        """How heads are read, in words; "" for raw weights of the same step."""
        return "; ".join(["read at the next step"] * (self.step == "next") + ["weighted by norms"] * self.norms)

    @property
    def rules(self) -> list[str]:
        """The link rule, in words: all that differs from the default."""
        rules = [f"at least {self.threshold:g} of the largest weight"] * (self.threshold < 1) + ["evened"] * self.even
        rules += ["</s> left out"] * (self.end == "drop") + ["punctuation apart"] * (self.marks == "apart")
        return rules + [f"{self.symmetry} of two directions"] * (self.symmetry != "none")

    def describe(self) -> str:
        """Return which weights are read, and the link rule."""
        return f"{self}; links: {', '.join(self.rules) or 'each word to its largest weight, none to </s>'}"

    def of(self, layer: int | None, heads: tuple[int, ...], raw: bool = False) -> Readout:
        """Return the read-out of another layer and other heads; with `raw`, of their raw weights, labelled so."""
        if (layer, heads) == (self.layer, self.heads) and not raw:
            return self
        label = "" if self.attention else self.label
        other = replace(self, layer=layer, heads=heads, label=label, chosen="")
        if not raw:
            return other
        plain = replace(other, step="same", norms=False)
        return replace(plain, label=f"{plain}; {RAW}")

    def check(self, layers: int, heads: int) -> None:
        """Raise ConfigError for a layer or a head that a model does not have."""
        if self.layer is not None and not 1 <= self.layer <= layers:
            raise ConfigError(f"there is no layer {self.layer!s:.30}; choose one from 1 to {layers}")
        for head in self.heads:
            if not 1 <= head <= heads:
                raise ConfigError(f"there is no head {head!s:.30}; choose one from 1 to {heads}")

    def mix(self, weights: Weights, after: Weights | None = None, norms: Weights | None = None) -> Weights:
        """Return one weight for each pair of tokens.  weights (L, H, T, S) -> (T, S).

        `after` (L, H, S) are the weights of the step that reads the last token, for `step="next"`; `norms` (L, H, S)
        are the norms of the value vectors, for `norms`.
        """
        self.check(*weights.shape[:2])
        layers = slice(None) if self.layer is None else slice(self.layer - 1, self.layer)
        heads = [head - 1 for head in self.heads] if self.heads else slice(None)
        last, lengths = (None if array is None else array[layers][:, heads] for array in (after, norms))
        mean: Weights = self.every(weights[layers][:, heads], last, lengths).mean(axis=(0, 1), dtype=np.float32)
        return mean

    def every(
        self,
        weights: Weights,
        after: Weights | None = None,
        norms: Weights | None = None,
        ends: Sequence[tuple[int, slice]] = ((-1, slice(None)),),
    ) -> Weights:
        """Return the weights of all heads at the step of the read-out, by norms if it has them.  (L, H, T, S).

        `ends` are the rows that end a sentence, each with the source tokens of that sentence.
        """
        if self.step == "next":
            assert after is not None
            moved = np.zeros_like(weights)
            moved[:, :, :-1] = weights[:, :, 1:]
            for row, columns in ends:
                moved[:, :, row] = 0
                moved[:, :, row, columns] = after[:, :, columns]
            weights = moved
        if self.norms:
            assert norms is not None
            weights = weighted(weights, norms)
        return weights

    @classmethod
    def usual(cls, config: Config) -> Readout:
        """Return the read-out of a model without one of its own: its only head, or the mean of all.

        One layer or head may be far better, or worse; `heedful readout` selects one. The link rule for texts was better
        than the default one wherever it was measured (docs/lab/alignments.md). A word of a caption is linked to all
        regions with half of its largest weight.
        """
        layer, heads = (None, ()) if isinstance(config.model, TransformerConfig) else (1, (1,))
        if config.image is not None:
            return cls(layer, heads, threshold=0.5)
        return cls(layer, heads, end="drop", marks="apart", even=True)

    def is_usual(self, config: Config) -> bool:
        """Whether this is the usual read-out, apart from measured alarms."""
        return replace(self, alarms=None) == Readout.usual(config)

    @classmethod
    def naive(cls, config: ModelConfig) -> Readout:
        """Return the naive read-out: the mean of the heads of the last layer, at the same step."""
        return cls(config.depth if isinstance(config, TransformerConfig) else 1)

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; `build` reads it."""
        rates = None if self.alarms is None else self.alarms.plain()
        return {**asdict(replace(self, alarms=None)), "heads": list(self.heads), "alarms": rates}

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "read-out") -> Readout:
        """Return the read-out that `plain` was made from; `where` is the prefix of error messages."""
        names = {field.name for field in fields(cls)}
        if not isinstance(plain, Mapping) or (strange := sorted(set(plain) - names)):
            unknown = f": unknown keys {', '.join(map(repr, strange))[:200]}" if isinstance(plain, Mapping) else ""
            raise DataError(f"{where}: this is not a read-out{unknown}; its keys are {', '.join(sorted(names))}")
        readers: dict[str, Callable[[Any], Any]] = {
            "layer": lambda value: None if value is None else whole_number(value, "layer"),
            "heads": lambda value: tuple(whole_number(head, "heads") for head in listed(value, "heads")),
            "threshold": lambda value: number(value, "threshold"),
            "alarms": lambda value: None if value is None else AlarmRates.build(value),
            **dict.fromkeys(("norms", "attention", "even"), bool),
        }
        try:
            return cls(**{name: readers.get(name, str)(value) for name, value in plain.items()})
        except DataError as error:
            raise DataError(f"{where}: this is not a read-out: {error}") from None
        except ConfigError as error:
            raise DataError(f"{where}: {error}") from None


def readout_file(path: Path) -> Path:
    """Return the file of a model's read-out: in its folder, or beside a model that is a file, as NAME.readout.json."""
    return path.with_name(f"{path.name}.{READOUT}") if path.is_file() else path / READOUT


def read_readout(path: Path, config: Config) -> tuple[Readout | None, str]:
    """Return the read-out of a model folder, if there is one, and what is wrong with its file, or "".

    It may be written by hand, and is checked against the layers and heads of the model.
    """
    file, of = readout_file(path), config.model
    try:
        readout = Readout.build(read_json(file, DataError, SETTINGS), str(file))
        readout.check(*((of.depth, of.heads) if isinstance(of, TransformerConfig) else (1, 1)))
    except FileNotFoundError:
        return None, ""
    except NotPlainError as error:
        why = error.strerror
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except HeedfulError as error:
        why = str(error).removeprefix(f"{file}: ")
    else:
        return readout, ""
    return None, f"{file}: {why}; remove the file; heedful readout makes a new one"


def weighted(weights: Weights, norms: Weights) -> Weights:
    """Return weights times norms, α‖f(h_j)‖, as shares of each row.  (…, T, S), norms (…, S)."""
    lengths = weights * norms[..., None, :]
    sums: Weights = lengths.sum(-1, keepdims=True)
    shares: Weights = np.divide(lengths, sums, out=np.zeros_like(lengths), where=sums > 0)
    return shares
