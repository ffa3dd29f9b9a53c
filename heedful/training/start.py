"""Beginning a run, or going on with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from heedful.config import Config
from heedful.data import Pair, Pairs, parse_columns, read_parallel, read_tsv
from heedful.disk import make_folder
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts, holds_model
from heedful.models import build
from heedful.training.checkpoint import Checkpoint, folders, newest
from heedful.training.interrupt import catch_signals
from heedful.training.prepare import digest, learn_codecs, prepare, split
from heedful.training.records import Outcome, Silent, Watch
from heedful.training.run import Run
from heedful.translator import Translator, load

__all__ = ["Inputs", "begin", "recorded_inputs", "train"]

# What a resumed run may change: how long it runs and what it leaves behind, not what it computes.
CHANGEABLE = {"steps", "patience", "checkpoint_every", "keep", "log_every", "device", "threads"}

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class Inputs:
    """Where sentence pairs come from: TSV files with columns, or two parallel files; and a TSV file for validation."""

    pairs: tuple[str, ...] = ()
    columns: str = "1,2"
    source: str | None = None
    target: str | None = None
    valid: str | None = None

    def read(self) -> tuple[Pairs, Pairs | None]:
        """Read the pairs to learn from and, if given, those for validation."""
        columns = parse_columns(self.columns)
        if self.source and self.target:
            found = read_parallel(Path(self.source), Path(self.target))
        else:
            found = read_tsv([Path(p) for p in self.pairs], columns)
        return found, read_tsv([Path(self.valid)], columns) if self.valid else None

    def absolute(self) -> dict[str, Any]:
        """Return the inputs with full paths, for the record."""
        full: Callable[[str | None], str | None] = lambda p: str(Path(p).resolve()) if p else None  # noqa: E731
        files = [str(Path(p).resolve()) for p in self.pairs]
        return {
            **asdict(self),
            "pairs": files,
            "source": full(self.source),
            "target": full(self.target),
            "valid": full(self.valid),
        }


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
    resume: bool = False,
    watch: Watch | None = None,
) -> Translator:
    """Train a translator on sentence pairs, write it to the folder `out` and return it.

    `settings` are nested by section: `{"model": {"family": "fixed"}, "training": {"steps": 500}}`.
    """
    inputs = (_in_memory(pairs), None if valid is None else _in_memory(valid))
    begin(lambda: inputs, {}, Path(out), settings or {}, resume, watch or Silent())
    return load(out)


def begin(
    read: Callable[[], tuple[Pairs, Pairs | None]],
    inputs: dict[str, Any],
    out: Path,
    settings: Settings,
    resume: bool,
    watch: Watch,
) -> Outcome:
    """Begin a run in the folder `out`, or resume the one that is there; `inputs` are recorded with it."""
    checkpoint = _checkpoint(out, resume, watch)
    config = Config.build(settings) if checkpoint is None else _resumed(checkpoint, settings, out)
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    found, valid = read()
    training, held = split(found, valid, config, watch.say)
    checksum = digest(training, held)
    if checkpoint is None:
        codecs = learn_codecs(training, config)
        torch.manual_seed(config.training.seed)
        parts = Parts(config, build(config.model, len(codecs[0]), len(codecs[1])), *codecs)
    else:
        if checkpoint.run.get("digest") != checksum:
            raise DataError(
                f"the sentence pairs are not those that the run in {out} began with; give it the same ones, "
                "or start a new run in another folder"
            )
        parts = Parts(config, checkpoint.parts.model, checkpoint.parts.source, checkpoint.parts.target)
    data = prepare(training, held, (parts.source, parts.target), config, watch.say)
    make_folder(out)
    run = Run(out, parts, data, {"inputs": inputs, "digest": checksum}, watch)
    if checkpoint is not None:
        run.restore(checkpoint)
    parameters = sum(p.numel() for p in parts.model.parameters())
    watch.say(
        f"{config.family} model with {parameters:,} weights, vocabularies of {len(parts.source):,} and "
        f"{len(parts.target):,} tokens, on {run.device}"
    )
    with catch_signals(watch.say) as stop:
        return run.go(stop)._replace(signal=stop.received)


def _checkpoint(out: Path, resume: bool, watch: Watch) -> Checkpoint | None:
    """Return the checkpoint to resume from; refuse to write over a model or a run."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: this is a file, expected a folder to write the model to")
    if not resume:
        if holds_model(out):
            raise ConfigError(
                f"{out}: this folder already holds a model; choose another one, or add --resume to train it on"
            )
        if folders(out):
            raise ConfigError(
                f"{out}: an unfinished run is in this folder; add --resume to go on, or choose another one"
            )
        return None
    checkpoint, skipped = newest(out)
    for reason in skipped:
        watch.say(f"passed over a checkpoint that is not whole: {reason}")
    if checkpoint is not None:
        watch.say(f"resuming from step {checkpoint.position.step:,}")
    elif holds_model(out):
        raise ConfigError(
            f"{out}: this folder holds a model but no whole checkpoint to resume from; choose another one"
        )
    else:
        watch.say(f"{out} holds no whole checkpoint: starting over")
    return checkpoint


def _resumed(checkpoint: Checkpoint, settings: Settings, out: Path) -> Config:
    """Return the run's settings with the changes that a resumed run may make."""
    before = checkpoint.parts.config.plain()
    wanted = {section: dict(values) for section, values in before.items()}
    for section, values in settings.items():
        wanted.setdefault(section, {}).update(values)
    config = Config.build(wanted)
    for section, values in config.plain().items():
        for key, value in values.items():
            if value != before[section].get(key) and not (section == "training" and key in CHANGEABLE):
                raise ConfigError(
                    f"{section}.{key} is {before[section].get(key)} in the run in {out} and cannot become {value} "
                    "when it is resumed; start a new run in another folder"
                )
    return config


def _in_memory(pairs: Sequence[tuple[str, str]]) -> Pairs:
    found = [Pair(str(x).strip(), str(y).strip(), f"pair {i}") for i, (x, y) in enumerate(pairs, 1)]
    whole = [p for p in found if p.source and p.target]
    if not whole:
        raise DataError("there are no sentence pairs with both a source and a target")
    return Pairs(whole, half=len(found) - len(whole))
