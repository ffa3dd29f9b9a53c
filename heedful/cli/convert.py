"""`heedful convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import heedful
from heedful.cli.options import Model, check_unused
from heedful.cli.output import log
from heedful.errors import ConfigError, choose


def convert(
    model: Model,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to write.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="heedful|marian|ctranslate2", help="The format to write.")] = "heedful",
    int8: Annotated[bool, typer.Option("--int8", help="With ctranslate2: weights of 8 bits.")] = False,
) -> None:
    """Convert a model to another format.

    From Marian's format to heedful's, or the other way. A folder in Marian's format can be loaded by the package
    transformers, with the same output. The model has to be a transformer with model.norm=post and
    text.kind=sentencepiece. A CTranslate2 folder, of any transformer that translates text, can be loaded by the package
    ctranslate2; its README.md says how.
    """
    from heedful.interop import format_of
    from heedful.interop.ctranslate2 import write_ctranslate2
    from heedful.interop.folder import holds_model, write_model
    from heedful.interop.marian_export import write_marian

    choose("format", to, ("heedful", "marian", "ctranslate2"))
    if to != "ctranslate2":
        check_unused(f"with --to {to}", {"--int8": int8})
    if holds_model(out):
        raise ConfigError(f"{out}: this folder already has a model; choose another one")
    translator = heedful.load(model, "cpu", log)
    parts = translator.parts_to_write() if to == "heedful" else translator.parts
    if to == "ctranslate2":
        write_ctranslate2(out, parts, int8)
    else:
        (write_marian if to == "marian" else write_model)(out, parts)
    same = to == "heedful" and holds_model(model) and format_of(model) is None
    log(f"{out}: written as a {to} model{f', a copy of {model}, which has this format already' * same}")
