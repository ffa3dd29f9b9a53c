"""Beginning a run, going on with one, or finding out what one would take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from heedful.data import PairList
from heedful.disk import locked
from heedful.errors import ConfigError
from heedful.folder import Parts, holds_model, set_aside
from heedful.training.checkpoint import Checkpoint, folders, newest, saying_what_is_left, tidy
from heedful.training.estimate import Estimate, estimate
from heedful.training.inputs import Inputs
from heedful.training.interrupt import catch_signals
from heedful.training.place import Place
from heedful.training.processes import ALONE, joined
from heedful.training.ready import Ready, Settings, make_ready
from heedful.training.records import Outcome, Silent, Watch
from heedful.training.run import Run
from heedful.translator import Translator, load

__all__ = ["begin", "recorded_inputs", "train", "try_out"]


def recorded_inputs(out: Path) -> Inputs | None:
    """Return where the run in a folder took its pairs from, if it has a whole checkpoint that says so."""
    checkpoint, _ = newest(out)
    return Inputs.recorded(checkpoint.run.get("inputs") or {}) if checkpoint else None


def train(
    pairs: Sequence[tuple[str, str]],
    out: str | Path,
    *,
    valid: Sequence[tuple[str, str]] | None = None,
    settings: Settings | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    preset: str = "auto",
    watch: Watch | None = None,
) -> Translator:
    """Train a translator on sentence pairs, write it to the folder `out` and return it.

    `settings` are nested by section: `{"model": {"family": "fixed"}, "training": {"steps": 500}}`; what they do not say
    is chosen to fit the pairs (`preset="none"`: the plain defaults). With `init`, the run begins with the weights and
    vocabularies of another model, which is left as it is. Ctrl-C leaves a checkpoint to resume from, and raises
    `KeyboardInterrupt`.
    """
    inputs = Inputs((PairList(pairs),), () if valid is None else (PairList(valid, "validation pairs"),))
    outcome = begin(inputs, Path(out), settings or {}, resume=resume, watch=watch, init=init, preset=preset)
    if outcome.signal:
        raise KeyboardInterrupt
    return load(out, str((settings or {}).get("training", {}).get("device", "auto")))


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
        heard = watch if watch is not None and processes.first else Silent()
        # After a process died, torchrun runs the same command again: then it means to go on.
        again = processes.any(processes.restarts > 0)  # not everywhere: each machine counts its own
        resume = resume or processes.share(lambda: again and bool(folders(out)))
        checkpoint, damaged = processes.in_turn(lambda: _find(out, heard)) if resume else (None, {})
        processes.agree({"checkpoint": checkpoint and checkpoint.position.step})
        if not resume:
            processes.share(lambda: _refuse_taken(out))
        found = None if checkpoint is None else (out, checkpoint)
        ready = make_ready(inputs, settings, processes, heard, init, preset, found)
        processes.agree(_facts(ready))
        with ExitStack() as held:
            processes.share(lambda: held.enter_context(locked(out / "checkpoints")))
            processes.share(lambda: _clear(out, resume, checkpoint is None, damaged, heard))
            record = {
                "inputs": inputs.absolute(),
                "digest": ready.data.digest,
                "init": ready.origin,
                "numbers": [ready.place.device.type, ready.place.bf16],
            }
            run = Run(out, ready.parts, ready.data, record, heard, ready.place)
            if checkpoint is not None:
                run.restore(checkpoint)
            heard.say(_summary(ready.parts, ready.place))
            with catch_signals(processes.first) as stop, saying_what_is_left(out):
                outcome = run.go(stop)
                signal = max(processes.gather(stop.received)) if outcome.reason == "interrupted" else 0
                return outcome._replace(signal=signal)


def try_out(inputs: Inputs, settings: Settings, *, watch: Watch | None = None, preset: str = "auto") -> Estimate:
    """Find out what a run would take, from a few steps; nothing is left behind but what was read, in the cache."""
    heard = watch or Silent()
    ready = make_ready(inputs, settings, ALONE, heard, preset=preset)
    heard.say(_summary(ready.parts, ready.place))
    return estimate(ready.parts, ready.data, ready.place)


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
    if holds_model(out):
        raise ConfigError(
            f"{out}: this folder already holds a model; choose another one, or add --resume to train it on"
        )
    if folders(out):
        raise ConfigError(f"{out}: an unfinished run is in this folder; add --resume to go on, or choose another one")


def _find(out: Path, watch: Watch) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the checkpoint to resume from, if a whole one is there, and newer ones that are damaged; say so."""
    checkpoint, damaged = newest(out)
    for reason in damaged.values():
        watch.say(f"passed over a checkpoint that is not whole: {reason}")
    if checkpoint is None:
        watch.say(f"{out} holds no whole checkpoint: starting over")
    else:
        watch.say(f"resuming from step {checkpoint.position.step:,}")
    return checkpoint, damaged


def _facts(ready: Ready) -> dict[str, object]:
    """Return what has to be the same in all processes."""
    settings = {f"{s}.{k}": v for s, values in ready.parts.config.plain().items() for k, v in values.items()}
    return {"device": ready.place.device.type, **settings, "set of sentence pairs": ready.data.digest}


def _summary(parts: Parts, place: Place) -> str:
    weights = sum(p.numel() for p in parts.model.parameters())
    sizes = f"vocabularies of {len(parts.source):,} and {len(parts.target):,} tokens"
    return f"{parts.config.family} model with {weights:,} weights, {sizes}, on {place}"
