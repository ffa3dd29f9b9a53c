"""All settings of a run, and where they come from."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.config.fields import section
from heedful.config.models import MODELS, ModelConfig, RnnConfig
from heedful.config.runs import DataConfig, TextConfig, TrainingConfig
from heedful.errors import ConfigError, choose, closest
from heedful.files import read_bytes

__all__ = ["Config", "read_recipe", "section_of", "settings"]

RECIPE = 1_000_000  # bytes at most
SECTIONS = ("model", "data", "text", "training")


@dataclass(frozen=True)
class Config:
    """All settings of a run; `config.json` holds them."""

    model: ModelConfig = field(default_factory=RnnConfig)
    data: DataConfig = field(default_factory=DataConfig)
    text: TextConfig = field(default_factory=TextConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    @property
    def family(self) -> str:
        """The name of the model's family: a key of `MODELS`."""
        return next(name for name, kind in MODELS.items() if type(self.model) is kind)

    @classmethod
    def build(cls, given: Mapping[str, object]) -> Config:
        """Check nested settings, as they stand in `config.json`, and fill in what is not given.

        >>> Config.build({"model": {"family": "fixed", "width": 64}}).model.width
        64
        >>> Config.build({"txt": {}})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        heedful.errors.ConfigError: unknown section 'txt'; choose one of data, model, text, training. ...
        """
        for name, values in given.items():
            choose("section", name, SECTIONS)
            if not isinstance(values, Mapping):
                raise ConfigError(f"{name} is {values!r:.100}, expected settings by name")
        model = dict(_mapping(given.get("model", {})))
        family = choose("model", str(model.pop("family", "rnn")), MODELS)
        return cls(
            model=section("model", MODELS[family], model, f" of the model '{family}'"),
            data=section("data", DataConfig, _mapping(given.get("data", {}))),
            text=section("text", TextConfig, _mapping(given.get("text", {}))),
            training=section("training", TrainingConfig, _mapping(given.get("training", {}))),
        )

    def plain(self) -> dict[str, dict[str, object]]:
        """Return nested dicts that `build` takes back."""
        return {
            "model": {"family": self.family, **dataclasses.asdict(self.model)},
            "data": dataclasses.asdict(self.data),
            "text": dataclasses.asdict(self.text),
            "training": dataclasses.asdict(self.training),
        }


def section_of() -> dict[str, str]:
    """Return the section of each setting; `model` stands for the family of the model. No name is in two sections."""
    kinds: dict[str, list[type[Any]]] = {
        "data": [DataConfig],
        "text": [TextConfig],
        "training": [TrainingConfig],
        "model": list(MODELS.values()),
    }
    named = {f.name: name for name, classes in kinds.items() for kind in classes for f in dataclasses.fields(kind)}
    return {"model": "model", **named}


def settings(assignments: list[str]) -> dict[str, dict[str, object]]:
    """Turn `section.key=value` strings into nested settings.

    >>> settings(["training.rate=0.1", "model.cell=lstm"])
    {'training': {'rate': '0.1'}, 'model': {'cell': 'lstm'}}
    """
    nested: dict[str, dict[str, object]] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        section, dot, key = name.strip().partition(".")
        if not (equals and dot and section and key):
            raise ConfigError(
                f"cannot read the setting '{assignment}'; expected section.key=value{_guess(name.strip())}"
            )
        nested.setdefault(section, {})[key] = value.strip()
    return nested


def _guess(name: str) -> str:
    """Return the full name of the setting that a name without its section may be, or nothing."""
    known = section_of()
    found = name if name in known else closest(name, list(known))
    key = "family" if found == "model" else found
    return f"; did you mean {known[found]}.{key}?" if found else ""


def read_recipe(path: str | Path) -> dict[str, dict[str, object]]:
    """Read nested settings from a TOML file; what does not exist or is not allowed is refused with the file's name."""
    try:
        found = tomllib.loads(read_bytes(Path(path), RECIPE, "a recipe", ConfigError).decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise ConfigError(f"{path}: this TOML is nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not TOML ({error})") from None
    if stray := [key for key, value in found.items() if not isinstance(value, dict)]:
        raise ConfigError(
            f"{path}: '{stray[0]:.100}' stands outside the sections {', '.join(f'[{name}]' for name in SECTIONS)}"
        )
    try:
        _check(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return found


def _check(given: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse what no run can be set to; without a family, a setting of the model may be of any."""
    model = given.get("model", {})
    if "family" in model:
        Config.build(given)
        return
    Config.build({name: values for name, values in given.items() if name != "model"})
    names = {family: {f.name for f in dataclasses.fields(kind)} for family, kind in MODELS.items()}
    for key, value in model.items():
        choose("model setting", key, set().union(*names.values()))
        having = [family for family in MODELS if key in names[family]]
        faults = [fault for family in having if (fault := _fault(family, key, value))]
        if len(faults) == len(having):
            raise faults[0]


def _fault(family: str, key: str, value: object) -> ConfigError | None:
    try:
        Config.build({"model": {"family": family, key: value}})
    except ConfigError as error:
        return error
    return None


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
