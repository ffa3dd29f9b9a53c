"""Beginning a run with the weights and vocabularies of an existing model: fine-tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from heedful.config import MODELS, Config
from heedful.errors import ConfigError, choose
from heedful.folder import Parts
from heedful.interop import HUB
from heedful.models import build, pack_weights
from heedful.text import UNKNOWN, Codec
from heedful.training.prepare import Prepared
from heedful.translator import load

__all__ = ["name_of", "open_origin", "place_of", "say_unknown"]

# What the weights do not depend on: a model may be trained on with other values.
FREE = {"model.dropout", "model.attention_dropout", "model.inner_dropout", "text.max_length"}
TELLING = 0.01  # the share of unknown tokens from which it is said
LOOKED_AT = 100_000  # pairs in which they are counted
SAMPLE = 2000  # pairs that are searched for examples of them


def place_of(init: str | Path) -> str:
    """Return where a model is, for the record: a name on the hub, or a full path."""
    return str(init) if str(init).startswith(HUB) else str(Path(init).resolve())


def name_of(place: str) -> str:
    """Return what a model is called, for others to read: a path on this machine tells them nothing."""
    return place if place.startswith(HUB) else Path(place).name


def open_origin(
    init: str | Path, settings: Mapping[str, Mapping[str, object]], say: Callable[[str], None] | None = None
) -> Parts:
    """Open the model that a run begins with; its settings `model` and `text` stay, `training` is that of the run.

    A read-out that is broken is only said, to `say`: training needs none.
    """
    parts = load(init, "cpu", say).parts
    pack_weights(parts.model, decoding=False)  # as a run that is resumed has it: other products round differently
    config = _settings(parts.config, settings, init)
    model = parts.model
    if config.model != parts.config.model:
        with torch.device("meta"):
            model = build(config.model, len(parts.source), len(parts.target))
        model.load_state_dict(parts.model.state_dict(), assign=True)
    return replace(parts, config=config, model=model, notes={})


def _settings(before: Config, settings: Mapping[str, Mapping[str, object]], init: str | Path) -> Config:
    """Return the model's settings with the changes that its weights allow."""
    kept = {section: before.plain()[section] for section in ("model", "text")}
    family = choose("model", str(settings.get("model", {}).get("family", before.family)), MODELS)
    if family != before.family:
        raise ConfigError(f"{init} is a model of the family {before.family}, which cannot become {family}")
    wanted = {section: {**kept.get(section, {}), **values} for section, values in {**kept, **settings}.items()}
    config = Config.build(wanted)
    fixed = [
        f"{section}.{key} is {value} and cannot become {config.plain()[section][key]}"
        for section, values in kept.items()
        for key, value in values.items()
        if value != config.plain()[section][key] and f"{section}.{key}" not in FREE
    ]
    if fixed:
        raise ConfigError(
            f"a run that begins with {init} keeps the settings that its weights and vocabularies were made with: "
            f"{'; '.join(fixed)}"
        )
    return config


def say_unknown(data: Prepared, codecs: tuple[Codec, Codec], place: str, say: Callable[[str], None]) -> None:
    """Say how much of the pairs the vocabularies do not know, when it is more than a little."""
    rows = np.arange(0, len(data.corpus), max(1, len(data.corpus) // LOOKED_AT))
    for number, side in enumerate(("source", "target")):
        ids, lengths = getattr(data.corpus, side).rows(rows, 0)
        share = np.count_nonzero(ids == UNKNOWN) / max(1, int(lengths.sum()) - len(rows))
        if share > TELLING:
            texts = [getattr(data.corpus.pair(row), side) for row in rows[:SAMPLE]]
            some = ", ".join(f"'{piece}'" for piece in _unknown(codecs[number], texts))
            examples = f" ({some})" if some else ""
            say(
                f"{share:.1%} of the {side} tokens are not in the vocabulary of {place}{examples}: it cannot learn them"
            )


def _unknown(codec: Codec, texts: Sequence[str]) -> list[str]:
    """Return the pieces that a vocabulary most often does not know."""
    found: Counter[str] = Counter()
    for text, encoded in zip(texts, codec.encode_all(texts), strict=True):
        spans = zip(encoded.ids, encoded.spans, strict=True)
        found.update(text[start:end] for index, (start, end) in spans if index == UNKNOWN)
    return [piece for piece, _ in found.most_common(5)]
