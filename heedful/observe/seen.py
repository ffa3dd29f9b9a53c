"""The calls of attention that `watch` has seen, and those that it could not keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import overload

import torch

from heedful.errors import ConfigError, HeedfulError, nearest
from heedful.fused import ScaledWeights

__all__ = ["NOTHING", "Call", "Seen", "called", "told"]

NOTHING = (
    "no scaled_dot_product_attention was seen; likely the model did not run in this block and thread, its attention is "
    "eager or flex (attn_implementation='sdpa' in transformers), or it runs compiled"
)


@dataclass
class Call:
    """One call of attention: the module's name, which call of that module it is (from 0), and its weights.

    `weights` reads them (B, H, T, S), or is None once they were let go; they are from before dropout, and `dropout` is
    the share that was left out of the output's sum. `kept` is what `each` returned.
    """

    module: str
    number: int
    shape: tuple[int, int, int, int]
    backend: str
    dropout: float
    weights: ScaledWeights | None
    kept: object = None


class Seen(Sequence[Call]):
    """The calls that were seen, in order: `seen[0]` is the first one, `seen["decoder.*"]` are those of some modules."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.unread: list[tuple[str, str]] = []  # modules whose call could not be kept, and why

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, which: int) -> Call: ...
    @overload
    def __getitem__(self, which: slice | str) -> list[Call]: ...
    def __getitem__(self, which: int | slice | str) -> Call | list[Call]:
        if not isinstance(which, str):
            return self.calls[which]
        found = [call for call in self.calls if fnmatchcase(call.module, which)]
        if not found:
            near = nearest(which, self.modules)
            raise ConfigError(f"no call was seen in '{which}'; seen were {', '.join(self.modules) or 'none'}.{near}")
        return found

    @property
    def modules(self) -> list[str]:
        """The names of the modules that called, in the order of their first call."""
        return list(dict.fromkeys(call.module for call in self.calls))

    @property
    def memory(self) -> int:
        """How many bytes of tensors are held, each counted once."""
        held: dict[int, int] = {}
        for call in self.calls:
            held |= call.weights.storages() if call.weights else {}
        return sum(held.values())

    def free(self) -> None:
        """Let all tensors go; what `each` returned stays."""
        for call in self.calls:
            call.weights = None

    def to(self, device: torch.device | str) -> None:
        """Move all tensors to a device; what cannot be read any more is let go, and told in `unread`."""
        for call in self.calls:
            try:
                call.weights = call.weights and call.weights.to(device)
            except Exception as error:  # it may be on the way out of another one, which is not to be hidden
                call.weights = None
                self.unread.append((call.module, told(error)))

    def __str__(self) -> str:
        """One line for each module, and how much memory is held."""
        lines = []
        for name in self.modules:
            calls = [call for call in self.calls if call.module == name]
            shapes = ", ".join(dict.fromkeys(" × ".join(map(str, call.shape)) for call in calls))
            backends = ", ".join(dict.fromkeys(call.backend for call in calls))
            lines.append(f"{called(name)}: {len(calls)} × ({shapes}) by {backends}")
        lines += [f"{called(name)}: not read, {why}" for name, why in dict.fromkeys(self.unread)]
        lines += [] if lines else [NOTHING]
        return "\n".join([*lines, f"{len(self)} calls, {self.memory / 1024:,.1f} KiB held"])


def called(name: str) -> str:
    """Return a module's name; the whole model has none."""
    return name or "(the model)"


def told(error: Exception) -> str:
    """Return an error in one line; of one that is not ours, its kind as well."""
    return str(error) if isinstance(error, HeedfulError) else f"{type(error).__name__}: {' '.join(str(error).split())}"
