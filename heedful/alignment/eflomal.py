"""The aligner eflomal, called as a separate program (it has its own licence)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.alignment.pharaoh import Links, parse
from heedful.errors import ConfigError, MachineError, pip_command

__all__ = ["PROGRAM", "eflomal_directions"]

PROGRAM = "eflomal-align"


def eflomal_directions(
    sources: Sequence[str], targets: Sequence[str], *, extra: Sequence[tuple[str, str]] = (), program: str = PROGRAM
) -> Iterator[tuple[int, Links, Links]]:
    """Yield the number of each pair and its links in both directions, as `both_directions` does, by eflomal."""
    path = shutil.which(program)
    if path is None:
        raise ConfigError(
            f"the program {program} was not found; install it with '{pip_command()} install eflomal' "
            "(https://github.com/robertostling/eflomal), or use the method ibm, which needs nothing else"
        )
    whole = [number for number, (x, y) in enumerate(zip(sources, targets, strict=True)) if x.split() and y.split()]
    pairs = [*((sources[n], targets[n]) for n in whole), *((x, y) for x, y in extra if x.split() and y.split())]
    if not whole:
        return
    with tempfile.TemporaryDirectory(prefix="heedful-") as folder:
        names = [Path(folder) / name for name in ("source", "target", "forward", "reverse")]
        for side, name in enumerate(names[:2]):
            # Only spaces separate words for eflomal; other white space would become part of a word.
            text = "".join(" ".join(pair[side].lower().split()) + "\n" for pair in pairs)
            name.write_text(text, encoding="utf-8", newline="\n")
        options = [part for flag, name in zip("stfr", names, strict=True) for part in (f"-{flag}", str(name))]
        done = subprocess.run([path, *options], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            output = (done.stderr or done.stdout).strip().splitlines()
            raise MachineError(
                f"{program} ended with status {done.returncode}: {output[-1] if output else 'it printed nothing'}"
            )
        outputs = [name.read_text(encoding="utf-8").splitlines() for name in names[2:]]
    if not all(len(lines) == len(pairs) for lines in outputs):
        sizes = " and ".join(str(len(lines)) for lines in outputs)
        raise MachineError(f"{program} wrote {sizes} lines for {len(pairs)} sentence pairs")
    for number, forward, reverse in zip(whole, *outputs, strict=False):
        yield number, parse(forward), parse(reverse)
