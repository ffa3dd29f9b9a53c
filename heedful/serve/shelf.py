"""The models of a service, by name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from heedful.config import FixedConfig, TransformerConfig
from heedful.errors import ConfigError, nearest
from heedful.interop import is_marian
from heedful.serve.examples import example
from heedful.serve.problems import Trouble
from heedful.serve.schemas import ModelCard
from heedful.serve.scribe import digest
from heedful.translator import Translator, load

__all__ = ["Shelf", "named"]


class Shelf:
    """Translators by name; the first one answers where none is named. Names are all that a request can say."""

    def __init__(self, models: Mapping[str, Translator], marian: Sequence[str] = ()) -> None:
        if not models:
            raise ConfigError("a service needs at least one model")
        self.models, self.marian = dict(models), frozenset(marian)
        self.folders: dict[str, str] = {}  # where they were loaded from
        self.default = next(iter(self.models))

    @classmethod
    def open(cls, given: Sequence[str], device: str = "auto") -> Shelf:
        """Load models, each given as a folder, `hf:ORG/NAME`, or `NAME=FOLDER`; a folder's own name is its name."""
        models: dict[str, Translator] = {}
        marian = []
        for each in given:
            name, path = named(each)
            if name in models:
                raise ConfigError(f"two models are named '{name}'; give one of them another name: NAME={path}")
            models[name] = load(path, device)
            if path.startswith("hf:") or is_marian(Path(path)):
                marian.append(name)
        shelf = cls(models, marian)
        shelf.folders = dict(map(named, given))
        return shelf

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    @property
    def on_cpu(self) -> bool:
        """Whether all of them compute on the CPU."""
        return all(translator.device.type == "cpu" for translator in self.models.values())

    def digests(self) -> dict[str, str]:
        """Return a digest of the weights of each that was loaded from a folder."""
        return {name: digest(self.models[name].parts.model) for name in self.folders}

    def find(self, name: str | None) -> tuple[str, Translator]:
        """Return a model by its name, or the first one."""
        name = self.default if name is None else name
        if name not in self.models:
            known = ", ".join(self.models)
            raise Trouble(
                404, f"there is no model {name!r} here; choose from {known}.{nearest(name, self.models)}", "model"
            )
        return name, self.models[name]

    def cards(self) -> list[ModelCard]:
        """Return what there is to say of each."""
        return [self._card(name, translator) for name, translator in self.models.items()]

    def _card(self, name: str, translator: Translator) -> ModelCard:
        of = translator.config.model
        family = "marian" if name in self.marian else translator.config.family
        shape = (of.depth, of.heads) if isinstance(of, TransformerConfig) else (1, 1)
        fixed = isinstance(of, FixedConfig)
        return ModelCard.model_validate(
            {
                "name": name,
                "family": family,
                "layers": 0 if fixed else shape[0],
                "heads": 0 if fixed else shape[1],
                "attention": not fixed,
                "weights": sum(weight.numel() for weight in translator.parts.model.parameters()),
                "default": name == self.default,
                "example": example(translator),
            }
        )


def named(given: str) -> tuple[str, str]:
    """Return the name of a model and where it is; a name goes into JSON, so that it must be text that can be seen.

    >>> named("runs/small"), named("a=runs/small"), named("hf:Org/opus-mt-hi-en")
    (('small', 'runs/small'), ('a', 'runs/small'), ('opus-mt-hi-en', 'hf:Org/opus-mt-hi-en'))
    """
    name, sign, path = given.partition("=")
    if not (sign and name and "/" not in name):
        name, path = Path(given.rpartition(":")[2]).resolve().name, given
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):  # controls, and bytes that are not UTF-8
        shown = "".join(ascii(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cs") else c for c in name)
        raise ConfigError(
            f"the name of a model, '{shown}', has characters that cannot be shown, or bytes that are not UTF-8; "
            "choose a name for the service: NAME=FOLDER"
        )
    return name, path
