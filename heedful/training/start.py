"""Beginning a run, or going on with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from heedful.config import Config, TransformerConfig
from heedful.data import Pair, Pairs
from heedful.device import check_bf16, memory_guard, pick
from heedful.disk import locked
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts, holds_model, set_aside
from heedful.models import build
from heedful.text import SPECIALS
from heedful.training.checkpoint import Checkpoint, folders, newest, tidy
from heedful.training.inputs import Inputs, in_memory
from heedful.training.interrupt import catch_signals
from heedful.training.origin import open_origin, place_of, say_unknown
from heedful.training.prepare import digest, learn_codecs, prepare, split
from heedful.training.records import Outcome, Silent, Watch
from heedful.training.run import Run
from heedful.translator import Translator, load

__all__ = ["begin", "recorded_inputs", "train"]

# What a resumed run may change: how long it runs, what it leaves behind, and where it computes.
CHANGEABLE = {"steps", "patience", "checkpoint_every", "keep", "log_every", "device", "threads"}

Settings = Mapping[str, Mapping[str, object]]


def recorded_inputs(out: Path) -> Inputs | None:
    """Return where the run in a folder took its pairs from, if it has a whole checkpoint that says so."""
    checkpoint, _ = newest(out)
    found = checkpoint.run.get("inputs") if checkpoint else None
    return Inputs(**{**found, "pairs": tuple(found["pairs"])}) if found else None


def train(
    pairs: Sequence[tuple[str, str]],
    out: str | Path,
    *,
    valid: Sequence[tuple[str, str]] | None = None,
    settings: Settings | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> Translator:
    """Train a translator on sentence pairs, write it to the folder `out` and return it.

    `settings` are nested by section: `{"model": {"family": "fixed"}, "training": {"steps": 500}}`. With `init`, the run
    begins with the weights and vocabularies of another model, which is left as it is. Ctrl-C leaves a checkpoint to
    resume from, and raises `KeyboardInterrupt`.
    """
    inputs = (in_memory(pairs), None if valid is None else in_memory(valid))
    outcome = begin(lambda: inputs, {}, Path(out), settings or {}, resume, watch or Silent(), init)
    if outcome.signal:
        raise KeyboardInterrupt
    return load(out, str((settings or {}).get("training", {}).get("device", "auto")))


def begin(
    read: Callable[[], tuple[Pairs, Pairs | None]],
    inputs: dict[str, Any],
    out: Path,
    settings: Settings,
    resume: bool,
    watch: Watch,
    init: str | Path | None = None,
) -> Outcome:
    """Begin a run in the folder `out`, or resume the one that is there; `inputs` and `init` are recorded with it."""
    checkpoint, damaged = _find(out, watch) if resume else (None, {})
    if not resume:
        _refuse_taken(out)
    origin = None if init is None else place_of(init)
    begun = None
    if checkpoint is not None:
        origin = _same_origin(checkpoint, origin, out)
        config = _resumed(checkpoint, settings, out)
    elif init is not None:
        begun = open_origin(init, settings)
        config = begun.config
    else:
        config = Config.build(settings)
        _check_vocabularies(config)
    _try(config)
    found, valid = read()
    training, held = split(found, valid, config, watch.say)
    checksum = digest(training, held)
    if checkpoint is None:
        parts = begun or _new(config, training)
    elif checkpoint.run.get("digest") == checksum:
        parts = replace(checkpoint.parts, config=config, notes={})
    else:
        raise DataError(
            f"the sentence pairs are not those that the run in {out} began with; give it the same ones, "
            "or start a new run in another folder"
        )
    data = prepare(training, held, (parts.source, parts.target), config, watch.say)
    if begun is not None and origin is not None:
        watch.say(_beginning(origin, settings, config))
        say_unknown(data, (parts.source, parts.target), origin, watch.say)
    with locked(out / "checkpoints"):
        if not resume:
            _refuse_taken(out)  # by a run that was quicker
        tidy(out, damaged)
        if checkpoint is None and holds_model(out):
            watch.say(f"the model that was in {out} is kept in {set_aside(out)}")
        run = Run(out, parts, data, {"inputs": inputs, "digest": checksum, "init": origin}, watch)
        if checkpoint is not None:
            run.restore(checkpoint)
        watch.say(_summary(parts, run.device))
        with catch_signals() as stop:
            return run.go(stop)._replace(signal=stop.received)


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


def _try(config: Config) -> None:
    """Find out what cannot work before the pairs are read: the device, bf16, widths that do not fit."""
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    device = pick(config.training.device)
    if config.training.precision == "bf16":
        check_bf16(device)
    with torch.device("meta"):
        build(config.model, len(SPECIALS), len(SPECIALS))


def _check_vocabularies(config: Config) -> None:
    """Refuse one table of word vectors for two vocabularies, even if these should happen to be of the same size."""
    if isinstance(config.model, TransformerConfig) and config.model.tied == "all" and not config.text.joint:
        raise ConfigError(
            "model.tied=all needs one vocabulary for both languages; set text.joint=true as well, or model.tied=target"
        )


def _same_origin(checkpoint: Checkpoint, given: str | None, out: Path) -> str | None:
    """Return where the run began, which nobody can change any more."""
    recorded: str | None = checkpoint.run.get("init")
    if given not in (None, recorded):
        there = f"with the weights of {recorded}" if recorded else "with new weights"
        raise ConfigError(f"the run in {out} began {there}; it is resumed without --init")
    return recorded


def _beginning(origin: str, settings: Settings, config: Config) -> str:
    rate = config.training.rate
    hint = f"; training.rate is {rate}, as for new weights: a lower one keeps more of what the model knows"
    return f"beginning with the weights of {origin}{'' if 'rate' in settings.get('training', {}) else hint}"


def _new(config: Config, training: Sequence[Pair]) -> Parts:
    """Return an untrained model with vocabularies learned from the pairs."""
    source, target = learn_codecs(training, config)
    torch.manual_seed(config.training.seed)
    with memory_guard("building the model", "make it smaller (model.width, model.layers, text.size)"):
        return Parts(config, build(config.model, len(source), len(target)), source, target)


def _summary(parts: Parts, device: torch.device) -> str:
    weights = sum(p.numel() for p in parts.model.parameters())
    sizes = f"vocabularies of {len(parts.source):,} and {len(parts.target):,} tokens"
    return f"{parts.config.family} model with {weights:,} weights, {sizes}, on {device}"


def _resumed(checkpoint: Checkpoint, settings: Settings, out: Path) -> Config:
    """Return the run's settings with the changes that a resumed run may make."""
    before = checkpoint.parts.config.plain()
    wanted = {section: dict(values) for section, values in before.items()}
    for section, values in settings.items():
        wanted.setdefault(section, {}).update(values)
    config = Config.build(wanted)
    if config.training.decay == "cosine" and config.training.steps != before["training"]["steps"]:
        raise ConfigError(
            f"training.steps is {before['training']['steps']} in the run in {out} and cannot become "
            f"{config.training.steps}: its rate falls to 0 with the last step (training.decay=cosine)"
        )
    for section, values in config.plain().items():
        for key, value in values.items():
            if value != before[section].get(key) and not (section == "training" and key in CHANGEABLE):
                raise ConfigError(
                    f"{section}.{key} is {before[section].get(key)} in the run in {out} and cannot become {value} "
                    "when it is resumed; start a new run in another folder"
                )
    return config
