"""From a path, a name on the Hugging Face hub, or several of them, to a translator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from heedful.decoding import Ensemble
from heedful.device import pick
from heedful.errors import ConfigError, ModelError, guessing
from heedful.folder import Parts, read_model
from heedful.interop import HUB, fetch, is_marian, read_marian
from heedful.models import Network
from heedful.translator.looking import reads
from heedful.translator.translator import Translator

__all__ = ["load"]


@guessing
def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    warn: Callable[[str], None] | None = None,
    *,
    threads: int = 0,
) -> Translator:
    """Open the model in a folder: heedful's own, or a Marian (Opus-MT) one as the Hugging Face hub lays it out.

    `hf:ORGANISATION/NAME` is fetched from the hub. Several folders are an ensemble: models with the same vocabularies
    that agree on every word. A `readout.json` that cannot be read is an error; with `warn`, which is told of it, the
    model is read as is usual for its kind. `threads` are those that PyTorch uses while the translator computes on the
    CPU; by default, 0, the number stays as it is.
    """
    chosen = pick(device)
    if isinstance(path, str | Path):
        return Translator(_open(path, chosen, warn), chosen, threads=threads)
    members = [_open(each, chosen, warn) for each in path]
    if not members:
        raise ConfigError("an ensemble needs at least one model")
    for name, other in zip(path, members, strict=True):
        for side in ("source", "target"):
            if getattr(other, side).dump() != getattr(members[0], side).dump():
                raise ModelError(
                    f"{name}: its {side} vocabulary is not that of {path[0]}; the models of an ensemble share both"
                )
    model = cast(Network, Ensemble([member.model for member in members]))
    shortest = min((member.config for member in members), key=lambda config: config.text.max_length)
    parts = replace(members[0], model=model, config=shortest)
    return Translator(parts, chosen, [reads(member) for member in members], threads)


def _open(path: str | Path, device: torch.device, warn: Callable[[str], None] | None) -> Parts:
    folder = fetch(str(path)) if str(path).startswith(HUB) else Path(path)
    parts = read_marian(folder, device) if is_marian(folder) else read_model(folder, device)
    if parts.fault and warn is None:
        raise ModelError(parts.fault)
    if parts.fault and warn is not None:
        warn(parts.fault)
    return parts
