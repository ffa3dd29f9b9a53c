"""Beginning a run, going on with one, or finding out what one would take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shlex import quote

from heedful.data import PairFile, PairList
from heedful.data.links import as_lines
from heedful.data.reading import naming_arguments
from heedful.disk import locked
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts, holds_model, set_aside
from heedful.training.checkpoint import Checkpoint, folders, newest, saying_what_is_left, tidy
from heedful.training.display import Callback, showing
from heedful.training.estimate import Estimate, estimate
from heedful.training.inputs import Inputs
from heedful.training.interrupt import catch_signals, nothing_is_lost
from heedful.training.keywords import with_keywords
from heedful.training.place import Place, left_as_found
from heedful.training.processes import ALONE, joined
from heedful.training.ready import Ready, Settings, make_ready
from heedful.training.records import RESUME, Logged, Outcome, Progress, Silent, Watch
from heedful.training.run import Run
from heedful.training.threads import choose_threads
from heedful.translator import Translator, load

__all__ = ["begin", "train", "try_out"]

Links = Sequence[str | Iterable[tuple[int, int]]]


def train(  # noqa: PLR0913  (what a run can be given)
    pairs: Sequence[tuple[str, str]] | str | Path,
    out: str | Path,
    *,
    valid: Sequence[tuple[str, str]] | str | Path | None = None,
    links: Links | None = None,
    valid_links: Links | None = None,
    settings: Settings | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    preset: str = "auto",
    verbose: bool = True,
    callback: Callable[[Progress], object] | Callback | None = None,
    **keywords: object,
) -> Translator:
    """Train a translator on sentence pairs, write it to the folder `out` and return it.

    `pairs` and `valid` are lists of (sentence, translation), or names of files that `heedful train` reads. Every
    setting can be given by name: `model="transformer", steps=500, batch_tokens=4096, threads=2`; or nested by section,
    as in `config.json`: `settings={"model": {"family": "fixed"}, "training": {"steps": 500}}`. What is not set is
    chosen to fit the pairs (`preset="none"`: the plain defaults). With `init`, the run begins with the weights and
    vocabularies of another model, which is left as it is. With `links`, for each pair either `"0-0 1-2"` or the same as
    numbers, source word and target word from 0, attention learns to look there; `valid_links` are those of `valid`, on
    which it is measured. Ctrl-C leaves a checkpoint to resume from, and raises `KeyboardInterrupt`; `resume=True`, with
    the same pairs, goes on from there.

    Progress is shown as a bar in a terminal or a notebook, elsewhere as a line a minute; `verbose=False` shows nothing.
    Messages go to the logger `heedful.training`. `callback` is a function that is called with a `Progress` (step, loss,
    tokens_per_second, …; after a validation its `validation` has the scores and samples), or an object with the
    methods `on_step(progress)` and `on_validation(validation)`.
    """
    chosen = with_keywords(settings or {}, keywords, train)
    if valid_links is not None and (links is None or valid is None):
        raise ConfigError("valid_links are the links of valid, and go with links; give both")
    held = () if valid is None else (_given(valid, "validation pairs", valid_links),)
    inputs = Inputs((_given(pairs, "", links),), held)
    with naming_arguments("heedful.read_pairs(file, columns={})"), showing(verbose, callback) as watch:
        outcome = begin(inputs, Path(out), chosen, resume=resume, watch=watch, init=init, preset=preset)
    if outcome.signal:
        raise KeyboardInterrupt
    training = chosen.get("training", {})
    return load(out, str(training.get("device", "auto")))


def _given(pairs: Sequence[tuple[str, str]] | str | Path, name: str, links: Links | None) -> PairFile | PairList:
    """Return pairs as they were given, a file or a list, with their links."""
    lines = None if links is None else as_lines(links)
    if isinstance(pairs, str | Path):
        if lines is not None:
            raise ConfigError("links go with a list of pairs; read the file first: heedful.read_pairs(file)")
        return PairFile(str(pairs))
    if not hasattr(pairs, "__len__"):
        kind = type(pairs).__name__
        raise DataError(f"expected pairs as a list of (sentence, translation), or the name of a file; found {kind}")
    return PairList(pairs, name, links=lines) if name else PairList(pairs, links=lines)


@left_as_found()
def begin(
    inputs: Inputs,
    out: Path,
    settings: Settings,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    init: str | Path | None = None,
    preset: str = "auto",
) -> Outcome:
    """Begin a run in the folder `out`, or resume the one that is there; `inputs` and `init` are recorded with it."""
    with joined() as processes:
        heard = (watch or Logged()) if processes.first else Silent()
        # After a process died, torchrun runs the same command again: then it means to go on.
        again = processes.any(processes.restarts > 0)  # not everywhere: each machine counts its own
        resume = resume or processes.share(lambda: again and bool(folders(out)))
        checkpoint, damaged = processes.in_turn(lambda: _find(out, heard)) if resume else (None, {})
        processes.agree({"checkpoint": checkpoint and checkpoint.position.step})
        if not resume:
            processes.share(lambda: _refuse_taken(out))
        if not inputs.training:
            inputs = replace(_recorded(out, checkpoint), strict=inputs.strict)
        elif resume and checkpoint is None:
            heard.say(f"{out} holds no whole checkpoint: starting over")
        found = None if checkpoint is None else (out, checkpoint)
        with nothing_is_lost(heard.say, _standing(out, checkpoint)):
            ready = make_ready(inputs, settings, processes, heard, init, preset, found)
            heard.say(_summary(ready.parts, ready.place))
            before = None if checkpoint is None else checkpoint.run.get("threads")
            threads = choose_threads(ready.parts, ready.data, ready.place, heard, before)
        processes.agree(_facts(ready))
        with ExitStack() as held:
            processes.share(lambda: held.enter_context(locked(out / "checkpoints")))
            processes.share(lambda: _clear(out, resume, checkpoint is None, damaged, heard))
            record = {
                "inputs": inputs.absolute(),
                "digest": ready.data.digest,
                "init": ready.origin,
                "numbers": [ready.place.device.type, ready.place.bf16],
                "threads": threads if ready.place.device.type == "cpu" else None,
            }
            run = Run(out, ready.parts, ready.data, record, heard, ready.place)
            if checkpoint is not None:
                run.restore(checkpoint)
            with catch_signals(heard.say if processes.first else None) as stop, saying_what_is_left(out):
                outcome = run.go(stop)
                signal = max(processes.gather(stop.received)) if outcome.reason == "interrupted" else 0
                return outcome._replace(signal=signal)


@left_as_found()
def try_out(inputs: Inputs, settings: Settings, *, watch: Watch | None = None, preset: str = "auto") -> Estimate:
    """Find out what a run would take, from a few steps; nothing is left behind but what was read, in the cache."""
    heard = watch or Logged()
    with nothing_is_lost(heard.say, "nothing was tried"):
        ready = make_ready(inputs, settings, ALONE, heard, preset=preset)
        heard.say(_summary(ready.parts, ready.place))
        threads = choose_threads(ready.parts, ready.data, ready.place, heard)
        return estimate(ready.parts, ready.data, ready.place, heard, threads)


def _clear(out: Path, resume: bool, new: bool, damaged: dict[Path, str], watch: Watch) -> None:
    """Make the folder ready for a run that holds its lock."""
    if not resume:
        _refuse_taken(out)  # by a run that was quicker
    tidy(out, damaged)
    if new and holds_model(out):
        watch.say(f"the model that was in {out} is kept in {set_aside(out)}")


def _refuse_taken(out: Path) -> None:
    """Refuse a folder that holds a model or a run: neither is ever written over."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: this is a file, expected a folder to write the model to")
    if holds_model(out) and not folders(out):
        raise ConfigError(f"{out}: this folder already holds a model, and no checkpoint to go on from; {_another(out)}")
    if holds_model(out):
        raise ConfigError(
            f"{out}: this folder already holds a model; choose another one, or add {RESUME} to train it on"
        )
    if folders(out):
        raise ConfigError(f"{out}: an unfinished run is in this folder; add {RESUME} to go on, or choose another one")


def _another(out: Path) -> str:
    """Say how a finished model is trained on."""
    return f"choose another folder; to begin with this model there, add --init {quote(str(out))} (in Python, init=…)"


def _find(out: Path, watch: Watch) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the checkpoint to resume from, if a whole one is there, and newer ones that are damaged; say so."""
    checkpoint, damaged = newest(out)
    for reason in damaged.values():
        watch.say(f"passed over a checkpoint that is not whole: {reason}")
    if checkpoint is not None:
        watch.say(f"resuming from step {checkpoint.position.step:,}")
    return checkpoint, damaged


def _recorded(out: Path, checkpoint: Checkpoint | None) -> Inputs:
    """Return where the run in a folder took its pairs from."""
    inputs = None if checkpoint is None else Inputs.recorded(checkpoint.run.get("inputs") or {})
    if inputs is None and not (out / "checkpoints").is_dir():
        hint = f", only a model; {_another(out)}" if holds_model(out) else ""
        raise ConfigError(f"{out} holds no run to go on with{hint}")
    if inputs is None:
        raise ConfigError(f"{out} holds no whole checkpoint that says where its pairs are; name them again")
    if inputs.piped and sys.stdin.isatty():
        raise ConfigError(f"the run in {out} took its pairs from standard input; pipe them in again")
    if missing := inputs.missing:
        raise DataError(
            f"{', '.join(missing)}: there is no such file, and the run in {out} took its pairs from there; if they are "
            f"elsewhere now, name them all again: heedful train PAIRS … --out {quote(str(out))} --resume"
        )
    return inputs


def _standing(out: Path, checkpoint: Checkpoint | None) -> str:
    """Say how a run stands that is stopped before its first step."""
    if checkpoint is None:
        return "nothing was begun that could be lost"
    return f"the run in {out} stands where it stood, after step {checkpoint.position.step:,}"


def _facts(ready: Ready) -> dict[str, object]:
    """Return what has to be the same in all processes."""
    settings = {f"{s}.{k}": v for s, values in ready.parts.config.plain().items() for k, v in values.items()}
    return {"device": ready.place.device.type, **settings, "set of sentence pairs": ready.data.digest}


def _summary(parts: Parts, place: Place) -> str:
    weights = sum(p.numel() for p in parts.model.parameters())
    sizes = f"vocabularies of {len(parts.source):,} and {len(parts.target):,} tokens"
    return f"{parts.config.family} model with {weights:,} weights, {sizes}, on {place}"
