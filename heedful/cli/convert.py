"""`heedful convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import Model, say
from heedful.errors import ConfigError, choose

__all__ = ["convert"]


def convert(
    model: Model,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="heedful|marian", help="Whose format to write.")] = "heedful",
) -> None:
    """Write a model in another format: Marian's as heedful's, or the other way.

    What is written as marian is a folder that the package transformers loads, with the same output. It has to be a
    transformer with model.norm=post and text.kind=sentencepiece; any other model is refused.
    """
    from heedful.interop import write_marian
    from heedful.interop.folder import holds_model, write_model
    from heedful.translator import load

    choose("format", to, ("heedful", "marian"))
    if holds_model(out):
        raise ConfigError(f"{out}: there is a model already; choose another folder")
    parts = load(model, "cpu", say).parts
    (write_marian if to == "marian" else write_model)(out, parts)
    say(f"{out}: written as a {to} model")
