"""`heedful train`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from heedful.cli.options import Columns, Json, PairFiles, Source, Target, check_pairs, print_json, say
from heedful.config import read_recipe, settings
from heedful.errors import ConfigError

__all__ = ["train"]


def train(
    pairs: PairFiles = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the model.", show_default=False)],
    source: Source = None,
    target: Target = None,
    columns: Columns = "1,2",
    valid: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TSV pairs for validation; otherwise 2 % of the pairs are held out."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="rnn|fixed|transformer", help="Recurrent with attention, or without; self-attention [rnn]."
        ),
    ] = None,
    cell: Annotated[str | None, typer.Option(metavar="gru|lstm|rnn", help="The recurrent cell [gru].")] = None,
    score: Annotated[
        str | None, typer.Option(metavar="additive|concat|dot|general|scaled", help="The attention score [additive].")
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="bahdanau|luong", help="Who asks [bahdanau].")] = None,
    init: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Begin with the weights of a model: heedful's, Marian's or hf:ORG/NAME."),
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="Updates at most [20000].")] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Everything random follows from it [1].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR, exactly.")] = False,
    device: Annotated[str | None, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute [auto].")] = None,
    threads: Annotated[str | None, typer.Option(metavar="N", help="CPU threads [as many as PyTorch takes].")] = None,
    precision: Annotated[str | None, typer.Option(metavar="fp32|bf16", help="Numbers to compute with [fp32].")] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Settings from a file.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Train a translator on sentence pairs.

    PAIRS are TSV files: a sentence, a tab, its translation. The best model on the held-out pairs is written to DIR.
    Ctrl-C leaves a checkpoint; --resume goes on from it. `heedful train --out m --resume` needs no PAIRS again.
    With --init, a model is trained on with other pairs; its own folder stays as it is.

    All settings and what they mean: `docs/settings.md`.
    """
    given: dict[str, dict[str, Any]] = read_recipe(recipe) if recipe else {}
    named: dict[str, dict[str, Any]] = {
        "model": {"family": model, "cell": cell, "score": score, "order": order},
        "training": {"steps": steps, "seed": seed, "device": device, "threads": threads, "precision": precision},
    }
    for section, values in [*settings(set_ or []).items(), *named.items()]:
        given.setdefault(section, {}).update({k: v for k, v in values.items() if v is not None})

    from heedful.cli.display import display
    from heedful.training import Inputs, begin, recorded_inputs

    if resume and not (pairs or source or target):
        inputs = _recorded(recorded_inputs(out), out, bool(valid) or columns != "1,2")
    else:
        check_pairs(pairs, source, target)
        sides = [str(p) if p else None for p in (source, target, valid)]
        inputs = Inputs(tuple(str(p) for p in pairs or ()), columns, *sides)
    with display() as watch:
        outcome = begin(inputs.read, inputs.absolute(), out, given, resume, watch, init)
    if json:
        best = None if outcome.best is None else outcome.best._asdict()
        print_json({"out": str(out), "reason": outcome.reason, "step": outcome.step, "best": best})
    _report(outcome, out)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


def _recorded(inputs: Any, out: Path, more: bool) -> Any:  # noqa: ANN401  (its class would load torch)
    """Return where a run that is resumed has its pairs from; `more`: whether other columns or pairs were asked for."""
    if inputs is None:
        raise ConfigError(f"{out} holds no whole checkpoint that says where its pairs are; name them again")
    if more:
        raise ConfigError("--valid and --columns go with PAIRS; a run resumed without PAIRS keeps its own")
    return inputs


def _report(outcome: Any, out: Path) -> None:  # noqa: ANN401  (its class would load torch)
    best = outcome.best
    scores = f"; the best, of step {best.step:,}: BLEU {best.bleu:.1f}, loss {best.loss:.3f}" if best else ""
    if outcome.reason == "interrupted":
        if outcome.step:
            say(f"stopped after step {outcome.step:,}{scores}")
            say(f"{out} holds the weights of step {best.step if best else outcome.step:,}, ready to translate")
            say(f"to go on: heedful train --out {quote(str(out))} --resume")
        else:
            say("stopped before the first step")
        return
    why = "no better model for a while" if outcome.reason == "patience" else "all steps done"
    say(f"{why}, after step {outcome.step:,}{scores}")
    say(f'the model is in {out}; try: heedful translate {quote(str(out))} "…" --show')
