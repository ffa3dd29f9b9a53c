"""How links between words are read from the weights of a model: a choice, to be measured and to be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from heedful.errors import ConfigError, DataError

__all__ = ["ENDS", "MARKS", "STEPS", "SYMMETRIES", "Readout"]

STEPS = ("same", "next")
ENDS = ("stop", "drop")
MARKS = ("keep", "apart")
SYMMETRIES = ("none", "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and")


@dataclass(frozen=True)
class Readout:
    """How to read links from weights.

    `layer` and `heads` are counted from 1; None and () stand for the mean of all. `step` says when y_t is said to look:
    "same", while it is written, or "next", when it is read to write what follows it. With `norms` a weight counts by
    the length of the vector that it lets through, ‖α f(h_j)‖ (Kobayashi et al. 2020), not by α alone.

    `end` is what becomes of a word that looks most at the source's `</s>`: "stop", it has no link; "drop", `</s>` is
    left out, and the rest decides. With `marks` "apart", punctuation is linked to punctuation alone, and words to
    words. A target word is linked to every source word that has at least `threshold` times the largest weight of its
    row. `symmetry` joins the links with those of a model for the other direction. `chosen` says on what it was chosen,
    and what was measured.
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

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name, allowed in (("step", STEPS), ("end", ENDS), ("marks", MARKS), ("symmetry", SYMMETRIES)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"read-out: {name} is {getattr(self, name)!r}; choose from {', '.join(allowed)}")
        if (self.layer is not None and self.layer < 1) or any(head < 1 for head in self.heads):
            raise ConfigError("read-out: layers and heads are counted from 1")
        if len(set(self.heads)) < len(self.heads):
            raise ConfigError(f"read-out: a head is named twice in {self.heads}")
        if not 0 < self.threshold <= 1:
            raise ConfigError(
                f"read-out: the threshold is {self.threshold}; it is a share of the largest weight, up to 1"
            )

    def __str__(self) -> str:
        """The choice in words, for figures: all that differs from the mean of everything."""
        heads = f"head{'s' * (len(self.heads) > 1)} {', '.join(map(str, self.heads))}" if self.heads else ""
        layer = "" if self.layer is None else f"layer {self.layer}"
        parts = [", ".join(filter(None, (layer, heads))) or "mean of all layers and heads"]
        parts += ["read at the next step"] * (self.step == "next") + ["weighted by norms"] * self.norms
        return "; ".join(parts)

    def check(self, layers: int, heads: int) -> None:
        """Refuse a layer or a head that a model has not."""
        if self.layer is not None and self.layer > layers:
            raise ConfigError(f"there is no layer {self.layer}; choose one from 1 to {layers}")
        for head in self.heads:
            if head > heads:
                raise ConfigError(f"there is no head {head}; choose one from 1 to {heads}")

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; `build` takes it back."""
        return {**asdict(self), "heads": list(self.heads)}

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "read-out") -> Readout:
        """Return the read-out that `plain` was made from; `where` is for the errors."""
        names = {field.name for field in fields(cls)}
        if not isinstance(plain, Mapping) or (strange := sorted(set(plain) - names)):
            unknown = f": it has no {', '.join(map(repr, strange))}" if isinstance(plain, Mapping) else ""
            raise DataError(f"{where}: this is not a read-out{unknown}; its keys are {', '.join(sorted(names))}")
        given = dict(plain)
        try:
            given["heads"] = tuple(int(head) for head in given.get("heads", ()))
            given["layer"] = None if given.get("layer") is None else int(given["layer"])
            given["threshold"] = float(given.get("threshold", 1.0))
            given["norms"] = bool(given.get("norms", False))
            return cls(
                **{
                    name: str(v) if name in ("step", "end", "marks", "symmetry", "chosen") else v
                    for name, v in given.items()
                }
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: this is not a read-out: {error}") from None
        except ConfigError as error:
            raise DataError(f"{where}: {error}") from None
