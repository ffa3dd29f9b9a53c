"""How links between words are read from the weights of a model: a choice, to be measured and to be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.alarm_rates import AlarmRates
from heedful.bounded import SETTINGS, NotPlainError, read_json
from heedful.config import Config, ModelConfig, TransformerConfig
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.saved import listed, number, whole_number

__all__ = [
    "ENDS",
    "MARKS",
    "RAW",
    "READOUT",
    "STEPS",
    "SYMMETRIES",
    "Readout",
    "Weights",
    "evened",
    "read_readout",
    "weighted",
]

Weights = NDArray[np.float32]
Numbers = NDArray[np.floating[Any]]
READOUT = "readout.json"
EVEN = 0.25  # of a row looks at every source word besides, when weights are evened
STEPS = ("same", "next")
ENDS = ("stop", "drop")
MARKS = ("keep", "apart")
# What is said of single heads where a record has nothing to read them by as its read-out reads.
RAW = "raw weights of the same step, since this record lacks what its read-out takes"
SYMMETRIES = ("none", "product", "intersection", "union", "grow-diag", "grow-diag-final-and")


@dataclass(frozen=True)
class Readout:
    """How to read links from weights.

    `layer` and `heads` are counted from 1; None and () stand for the mean of all. `step` says when y_t is said to look:
    "same", while it is written, or "next", when it is read to write what follows it. With `norms` a weight counts by
    the length of the vector that it lets through, ‖α f(h_j)‖ (Kobayashi et al. 2020), not by α alone.

    `end` is what becomes of a word that looks most at the source's `</s>`: "stop", it has no link; "drop", `</s>` is
    left out, and the rest decides. With `marks` "apart", punctuation is linked to punctuation alone, and words to
    words. With `even`, a weight counts by what share it is of all that its source word got (`evened`): words that
    everybody looks at are less. A target word is linked to every source word that has at least `threshold` times the
    largest weight of its row. `symmetry` joins the links with those of a model for the other direction; "product"
    multiplies the weights of both. `chosen` says on what it was chosen, and what was measured; `label` is what figures
    say in place of layer and heads where these do not tell, as for several models at once. `attention` is False for
    weights that are none, but say what words depended on. `alarms` says how often each alarm of these weights was
    raised for wrong and for right translations, if that was measured.
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
        """Refuse what makes no sense."""
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
        """The weights that are read, in words, for figures: all that differs from the mean of everything.

        What makes links of them, `end`, `marks`, `even`, `threshold`, changes nothing in a picture of weights.
        """
        heads = f"head{'s' * (len(self.heads) > 1)} {', '.join(map(str, self.heads))}" if self.heads else ""
        layer = "" if self.layer is None else f"layer {self.layer}"
        if self.label:
            return self.label
        parts = [", ".join(filter(None, (layer, heads))) or "mean of all layers and heads"]
        return "; ".join(filter(None, (*parts, self.reading)))

    @property
    def reading(self) -> str:
        """How heads are read, in words; "" for their weights as they are, while a word is written."""
        return "; ".join(["read at the next step"] * (self.step == "next") + ["weighted by norms"] * self.norms)

    @property
    def rules(self) -> list[str]:
        """What makes links of the weights, in words: all that `str` leaves out, and that differs from the plainest."""
        found = [f"at least {self.threshold:g} of the largest weight"] * (self.threshold < 1) + ["evened"] * self.even
        found += ["</s> left out"] * (self.end == "drop") + ["punctuation apart"] * (self.marks == "apart")
        return found + [f"{self.symmetry} of two directions"] * (self.symmetry != "none")

    def of(self, layer: int | None, heads: tuple[int, ...], raw: bool = False) -> Readout:
        """Return the same reading of another layer and other heads; `raw`, their weights as they are, and said so."""
        if (layer, heads) == (self.layer, self.heads) and not raw:
            return self
        label = "" if self.attention else self.label
        other = replace(self, layer=layer, heads=heads, label=label, chosen="")
        if not raw:
            return other
        plain = replace(other, step="same", norms=False)
        return replace(plain, label=f"{plain}; {RAW}")

    def check(self, layers: int, heads: int) -> None:
        """Refuse a layer or a head that a model has not."""
        if self.layer is not None and not 1 <= self.layer <= layers:
            raise ConfigError(f"there is no layer {self.layer!s:.30}; choose one from 1 to {layers}")
        for head in self.heads:
            if not 1 <= head <= heads:
                raise ConfigError(f"there is no head {head!s:.30}; choose one from 1 to {heads}")

    def mix(self, weights: Weights, after: Weights | None = None, norms: Weights | None = None) -> Weights:
        """Return one weight for each pair of tokens.  weights (L, H, T, S) -> (T, S).

        `after` (L, H, S) is where the model looked when it had read the last token, which reading at the next step
        takes; `norms` (L, H, S) are the lengths of what it let through, which weighting by norms takes.
        """
        self.check(*weights.shape[:2])
        layers = slice(None) if self.layer is None else slice(self.layer - 1, self.layer)
        heads = [head - 1 for head in self.heads] if self.heads else slice(None)
        last, lengths = (None if given is None else given[layers][:, heads] for given in (after, norms))
        mean: Weights = self.every(weights[layers][:, heads], last, lengths).mean(axis=(0, 1), dtype=np.float32)
        return mean

    def every(
        self,
        weights: Weights,
        after: Weights | None = None,
        norms: Weights | None = None,
        ends: Sequence[tuple[int, slice]] = ((-1, slice(None)),),
    ) -> Weights:
        """Return all heads by the step of the read-out, and by norms if it weighs by them.  (L, H, T, S), as `mix`.

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
    def usual(cls, config: ModelConfig) -> Readout:
        """Return what a model without a read-out of its own is read by: its one head, or the mean of all there are.

        One layer or head may be far better, and far worse: which one, `heedful readout` finds out. What makes links of
        the weights was better than the plainest rules wherever it was measured (docs/alignments.md).
        """
        layer, heads = (None, ()) if isinstance(config, TransformerConfig) else (1, (1,))
        return cls(layer, heads, end="drop", marks="apart", even=True)

    def is_usual(self, config: ModelConfig) -> bool:
        """Whether links are read as from a model without a read-out of its own; its alarms may be measured."""
        return replace(self, alarms=None) == Readout.usual(config)

    @classmethod
    def naive(cls, config: ModelConfig) -> Readout:
        """Return what everybody tries first: the last layer, the mean of its heads, while y_t is written."""
        return cls(config.depth if isinstance(config, TransformerConfig) else 1)

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; `build` takes it back."""
        rates = None if self.alarms is None else self.alarms.plain()
        return {**asdict(replace(self, alarms=None)), "heads": list(self.heads), "alarms": rates}

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "read-out") -> Readout:
        """Return the read-out that `plain` was made from; `where` is for the errors."""
        names = {field.name for field in fields(cls)}
        if not isinstance(plain, Mapping) or (strange := sorted(set(plain) - names)):
            unknown = f": it has no {', '.join(map(repr, strange))[:200]}" if isinstance(plain, Mapping) else ""
            raise DataError(f"{where}: this is not a read-out{unknown}; its keys are {', '.join(sorted(names))}")
        try:
            layer = plain.get("layer")
            return cls(
                None if layer is None else whole_number(layer, "layer"),
                tuple(whole_number(head, "heads") for head in listed(plain.get("heads", ()), "heads")),
                str(plain.get("step", "same")),
                bool(plain.get("norms", False)),
                str(plain.get("end", "stop")),
                str(plain.get("marks", "keep")),
                number(plain.get("threshold", 1.0), "threshold"),
                str(plain.get("symmetry", "none")),
                str(plain.get("chosen", "")),
                str(plain.get("label", "")),
                bool(plain.get("attention", True)),
                bool(plain.get("even", False)),
                None if plain.get("alarms") is None else AlarmRates.build(plain["alarms"]),
            )
        except DataError as error:
            raise DataError(f"{where}: this is not a read-out: {error}") from None
        except ConfigError as error:
            raise DataError(f"{where}: {error}") from None


def read_readout(path: Path, config: Config) -> tuple[Readout | None, str]:
    """Return the read-out of a model folder, if there is one, and what is wrong with its file, if anything is.

    It may be written by hand, and is held to the layers and heads that the model has. To translate takes none.
    """
    file, of = path / READOUT, config.model
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


def evened(weights: Numbers, sums: Numbers) -> Numbers:
    """Return each weight as a share of what its source word got in all rows, and EVEN.  (…, T, S), sums (…, 1, S).

    A word at which every other one looks, such as a full stop, tells little by being looked at. EVEN keeps a word that
    hardly anyone looks at from being the best of its row for that; and where there is one row, and its weights are all
    that the words got, the largest stays the largest.

    >>> weights = np.array([[0.6, 0.4], [0.9, 0.1]])
    >>> evened(weights, weights.sum(0, keepdims=True)).round(2).tolist()
    [[0.34, 0.53], [0.51, 0.13]]
    """
    return weights / (sums + EVEN)


def weighted(weights: Weights, norms: Weights) -> Weights:
    """Return weights by what they let through, α‖f(h_j)‖ as shares of each row.  (…, T, S), norms (…, S)."""
    lengths = weights * norms[..., None, :]
    sums: Weights = lengths.sum(-1, keepdims=True)
    shares: Weights = np.divide(lengths, sums, out=np.zeros_like(lengths), where=sums > 0)
    return shares
