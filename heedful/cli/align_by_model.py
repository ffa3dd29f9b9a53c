"""`heedful align --model`: links as the weights of a model, or of two, speak for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.decoding import naming_options, opened, refuse_wrong_way
from heedful.cli.notes import Notes
from heedful.cli.options import say
from heedful.cli.progress import counting
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.align import Links

__all__ = ["ByModel"]

CHUNK = 1000  # pairs between two moves of the progress bar; enough to be sorted by length


class ByModel(NamedTuple):
    """A model to align by, perhaps one for the other direction, how both are put together, and where to compute."""

    model: Path
    reverse: Path | None = None
    symmetry: str = ""
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 4096
    columns: str = ""  # of the pairs, as they were given

    def align(
        self, given: Sequence[tuple[str, str]], details: bool = False
    ) -> tuple[list[Links], list[dict[str, Any]] | None, str]:
        """Return the links of each pair, with `details` the whole alignment as JSON has it, and how two were joined.

        Pairs with an empty side have no links, and neither have those too long for a model, which is said.
        """
        if self.symmetry and self.symmetry != "forward" and self.reverse is None:
            raise ConfigError(
                f"--symmetry {self.symmetry} puts two directions together; name --reverse, a second model"
            )
        if self.symmetry == "reverse":
            raise ConfigError("--symmetry reverse would leave out the model; align the other way round by --reverse")
        how = "none" if self.symmetry == "forward" else self.symmetry
        used = ""
        found: list[Links] = [frozenset()] * len(given)
        told: list[dict[str, Any]] = [{"links": []} for _ in given] if details else []
        from heedful.translator.aligning import usual_symmetry

        with naming_options(), counting(f"aligning with {self.model}", len(given)) as count:
            translator = opened(self.model, None, self.device, self.threads)
            refuse_wrong_way(self.model, translator, given, self.columns)
            back = None if self.reverse is None else opened(self.reverse, None, self.device, self.threads)
            if back is not None:
                used = self.symmetry or usual_symmetry(translator.readout, back.readout)
            notes = Notes()
            for first in range(0, len(given), CHUNK):
                chunk = given[first : first + CHUNK]
                long = [translator.too_long(x, y) or (back.too_long(y, x) if back else "") for x, y in chunk]
                for why, (x, y) in zip(long, chunk, strict=True):
                    unknown = () if why else [*translator.unknown(x), *translator.unknown(y, target=True)]
                    notes.add([f"{why}; it has no links"] if why else (), unknown)
                whole = [bool(x and y and not why) for (x, y), why in zip(chunk, long, strict=True)]
                sides = ([pair[side] for pair in compress(chunk, whole)] for side in (0, 1))
                aligned = translator.align(*sides, reverse=back, symmetry=how, batch_tokens=self.batch_tokens)
                for row, one in zip(compress(range(first, first + len(chunk)), whole), aligned, strict=True):
                    found[row] = one.pairs
                    if details:
                        told[row] = one.plain()
                count(len(chunk))
        notes.say()
        if blank := sum(not (x and y) for x, y in given):
            say(f"{blank:,} line{'s' * (blank > 1)} with an empty side: no links")
        return found, told or None, used
