"""All that a run needs before its first step: settings, pairs, vocabularies, a model, a place to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch

from heedful.config import Config, TransformerConfig
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts
from heedful.models import build
from heedful.text import SPECIALS, Codec
from heedful.text.size import check_size
from heedful.training.checkpoint import Checkpoint
from heedful.training.expectations import too_little_data
from heedful.training.guided import guide_of
from heedful.training.inputs import Inputs
from heedful.training.memory import model_guard
from heedful.training.origin import open_origin, place_of, say_unknown
from heedful.training.place import Place, settle
from heedful.training.prepare import Found, Prepared, learn_codecs, open_pairs, prepare
from heedful.training.presets import PRESETS, fit
from heedful.training.processes import Processes
from heedful.training.records import Watch

__all__ = ["Ready", "Settings", "make_ready"]

# What a resumed run may change: how long it runs, what it leaves behind, and where it computes.
CHANGEABLE = {"steps", "patience", "checkpoint_every", "keep", "log_every", "device", "threads", "precision", "capture"}

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Ready:
    """A model, the pairs to train it on, where to compute, and the model that it begins with, if any."""

    parts: Parts
    data: Prepared
    place: Place
    origin: str | None = None


def make_ready(
    inputs: Inputs,
    settings: Settings,
    processes: Processes,
    watch: Watch,
    init: str | Path | None = None,
    preset: str = "auto",
    resumed: tuple[Path, Checkpoint] | None = None,
) -> Ready:
    """Return what a new run needs, or one that is resumed; what cannot work is refused before the pairs are read."""
    if processes.world > 1 and inputs.piped:
        raise ConfigError("standard input (-) cannot be read by several processes; put the pairs into a file")
    origin = None if init is None else place_of(init)
    begun = None
    if resumed is not None:
        origin = _same_origin(*resumed, origin)
        config = _resumed(*resumed, settings)
    elif init is not None:
        begun = open_origin(init, settings, watch.say)
        config = begun.config
    else:
        config, _ = fit(settings, 0, preset)  # once more when it is known how many pairs there are
        _check_vocabularies(config)
    if inputs.linked:
        _check_guided(config, settings, preset if resumed is None and begun is None else None)
    place = settle(config.training, processes, resumed[1].run.get("numbers") or () if resumed else ())
    _try(config)
    processes.in_turn(inputs.check)
    found = processes.in_turn(lambda: open_pairs(inputs, config, watch))
    if resumed is not None:
        parts = _same_pairs(*resumed, found, config)
    elif begun is not None and origin is not None:
        parts = begun
        watch.say(_beginning(origin, settings, config))
    else:
        config, why = fit(settings, found.pairs, preset, place.device.type)
        _check_vocabularies(config)
        _try(config)
        if inputs.linked:
            guide_of(config)  # which may refuse
        watch.say(why)
        texts = {name: found.training.texts(side) for side, name in enumerate(("source", "target"))}
        if few := processes.share(lambda: too_little_data(found.pairs, texts)):
            watch.warn(few)
        parts = _new(config, found, processes, watch)
    data = processes.in_turn(lambda: prepare(found, (parts.source, parts.target), parts.config, watch))
    if data.guide is not None:
        parts = replace(parts, readout=data.guide.readout)
    if begun is not None and origin is not None:
        say_unknown(data, (parts.source, parts.target), origin, watch.say)
    return Ready(parts, data, place, origin)


def _try(config: Config) -> None:
    """Find out what cannot work before the pairs are read: widths that do not fit."""
    with torch.device("meta"):
        build(config.model, len(SPECIALS), len(SPECIALS))


def _check_guided(config: Config, settings: Settings, preset: str | None) -> None:
    """Refuse links that cannot guide the model; with `preset`, whatever model the number of pairs will choose."""
    if preset is None:
        guide_of(config)
        return
    presets = [name for name in PRESETS if name != "none"] if preset == "auto" else [preset]
    wrong = []
    for name, device in product(presets, ("cpu", "cuda")):
        try:
            guide_of(fit(settings, 0, name, device)[0])
            return
        except ConfigError as error:
            wrong.append(error)
    raise wrong[0]


def _check_vocabularies(config: Config) -> None:
    """Refuse vocabularies without room, and one table of word vectors for two that happen to be of the same size."""
    check_size(config.text)
    if isinstance(config.model, TransformerConfig) and config.model.tied == "all" and not config.text.joint:
        raise ConfigError(
            "model.tied=all needs one vocabulary for both languages; set text.joint=true as well, or model.tied=target"
        )


def _new(config: Config, found: Found, processes: Processes, watch: Watch) -> Parts:
    """Return an untrained model with vocabularies learned from the pairs, by the first process for all."""
    texts = processes.share(lambda: [codec.dump() for codec in learn_codecs(found, config, watch)])
    source = Codec.parse(texts[0])
    target = source if config.text.joint else Codec.parse(texts[1])
    config = replace(config, text=replace(config.text, size=config.text.size or max(len(source), len(target))))
    torch.manual_seed(config.training.seed)
    with model_guard("building the model"):
        return Parts(config, build(config.model, len(source), len(target)), source, target)


def _same_pairs(out: Path, checkpoint: Checkpoint, found: Found, config: Config) -> Parts:
    """Return the model of a checkpoint, if the pairs are those that it was trained on."""
    if checkpoint.run.get("digest") != found.digest:
        raise DataError(
            f"the sentence pairs are not those that the run in {out} began with; give it the same ones, "
            "or start a new run in another folder"
        )
    return replace(checkpoint.parts, config=config, notes={})


def _same_origin(out: Path, checkpoint: Checkpoint, given: str | None) -> str | None:
    """Return where the run began, which nobody can change any more."""
    recorded: str | None = checkpoint.run.get("init")
    if given not in (None, recorded):
        there = f"with the weights of {recorded}" if recorded else "with new weights"
        raise ConfigError(f"the run in {out} began {there}; it is resumed without --init (in Python, init)")
    return recorded


def _beginning(origin: str, settings: Settings, config: Config) -> str:
    rate = config.training.rate
    hint = f"; training.rate is {rate}, as for new weights: a lower one keeps more of what the model knows"
    return f"beginning with the weights of {origin}{'' if 'rate' in settings.get('training', {}) else hint}"


def _resumed(out: Path, checkpoint: Checkpoint, settings: Settings) -> Config:
    """Return the run's settings with the changes that a resumed run may make."""
    before = checkpoint.parts.config.plain()
    wanted = {section: dict(values) for section, values in before.items()}
    family = settings.get("model", {}).get("family", before["model"]["family"])
    if family != before["model"]["family"]:
        there = before["model"]["family"]
        raise ConfigError(f"the run in {out} trains a model of the family {there}, which cannot become {family}")
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
