"""Setting up a run: settings, pairs, vocabularies, a model (new or pretrained), a device.

Presets (`fit`) are settings for a number of pairs and a kind of device. A setting that is set explicitly is never
changed; the others come from the first preset for at least so many pairs. docs/lab/recipes.md
says how they were measured.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from heedful.config import MODELS, Config, TransformerConfig, section_of
from heedful.data.cache import Array
from heedful.data.images import ImageInput
from heedful.errors import ConfigError, DataError, choose, known_arguments
from heedful.interop.folder import ModelParts, build_empty, load_weights
from heedful.interop.hub import HUB, open_parts
from heedful.interop.image_weights import image_settings, load_image_encoder
from heedful.models import build, pack_weights
from heedful.models.device import fast_products, memory_guard
from heedful.models.image import library_versions, regions_of
from heedful.models.transformer import Transformer
from heedful.text import SPECIALS, UNKNOWN, Codec
from heedful.text.size import check_size
from heedful.training.callbacks import Reporter
from heedful.training.checkpointing import Checkpoint
from heedful.training.device_setup import SMALLER_MODEL, DeviceSetup, choose_device
from heedful.training.distributed import Processes
from heedful.training.estimate import too_few_images, too_little_data
from heedful.training.losses import auxiliary_losses
from heedful.training.prepare import Inputs, PairSets, TrainingData, learn_codecs, open_pairs, prepare

Settings = Mapping[str, Mapping[str, object]]


# What a resumed run may change: how long it runs, what it leaves behind, and where it computes.
CHANGEABLE = {"steps", "patience", "checkpoint_every", "keep", "log_every", "device", "threads", "precision", "capture"}

# Settings that weights do not depend on: a run that begins with a pretrained model may change them.
CHANGEABLE_WITH_INIT = {
    "model.dropout",
    "model.attention_dropout",
    "model.inner_dropout",
    "text.max_length",
    "image.frozen",
}
UNKNOWN_SHARE = 0.01  # of all tokens, above which unknown tokens are logged
COUNTED = 100_000  # pairs in which unknown tokens are counted
SAMPLE = 2000  # pairs in which examples of them are searched


def with_keywords(settings: Settings, keywords: Mapping[str, object], function: Callable[..., object]) -> Settings:
    """Return nested settings, with those that are passed by name as keyword arguments of a function.

    Raises ArgumentError for an unknown name, and ConfigError for a setting that is set twice.
    """
    sections = section_of()
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    known_arguments(function.__name__, keywords, [*named, *sections])
    merged = {section: dict(values) if isinstance(values, Mapping) else values for section, values in settings.items()}
    for name, value in keywords.items():
        section, key = sections[name], "family" if name == "model" else name
        if key in merged.setdefault(section, {}):
            raise ConfigError(f"{section}.{key} is given twice: as {name}= and in settings; leave one of them out")
        merged[section][key] = value
    return merged


@dataclass(frozen=True)
class RunSetup:
    """A model, its training data, the device, and the name of the pretrained model that it begins with, if any."""

    parts: ModelParts
    data: TrainingData
    device_setup: DeviceSetup
    init: str | None = None


def set_up(
    inputs: Inputs,
    settings: Settings,
    processes: Processes,
    reporter: Reporter,
    init: str | Path | None = None,
    preset: str = "auto",
    resumed: tuple[Path, Checkpoint] | None = None,
) -> RunSetup:
    """Set up a new run, or resume one; raises ConfigError for wrong settings before the pairs are read."""
    if processes.world > 1 and inputs.piped:
        raise ConfigError("standard input (-) cannot be read by several processes; put the pairs into a file")
    if inputs.captions:
        image = settings.get("image", {})
        new = resumed is None and init is None and isinstance(image, Mapping)
        settings = {**settings, "image": image_settings(image) if new else image}
    elif settings.get("image"):
        raise ConfigError("settings of the section image need images; train on captions and their images")
    name = None if init is None else _full_name(init)
    pretrained = None
    if resumed is not None:
        name = _same_init(*resumed, name)
        config = _resumed(*resumed, settings)
    elif init is not None:
        pretrained = open_pretrained(init, settings, reporter.log)
        config = pretrained.config
        if inputs.captions != (config.image is not None):
            kinds = ("captions images", "translates text")
            raise ConfigError(
                f"{init} {kinds[inputs.captions]}; it cannot begin a run that {kinds[not inputs.captions]}"
            )
    else:
        config, _ = apply_preset(settings, 0, preset)  # again when the number of pairs is known
        _check_vocabularies(config)
    _check_losses(config, inputs.linked, settings, preset if resumed is None and pretrained is None else None)
    device_setup = choose_device(config.training, processes, resumed[1].run.get("numbers") or () if resumed else ())
    _check_model(config)
    processes.in_turn(inputs.check)
    pairs = processes.in_turn(lambda: open_pairs(inputs, config, reporter))
    if resumed is not None:
        parts = _same_pairs(*resumed, pairs, config)
    elif pretrained is not None:
        parts = pretrained
        reporter.log(_beginning(str(name), settings, config))
    else:
        config, why = apply_preset(settings, pairs.count, preset, device_setup.device.type)
        _check_vocabularies(config)
        _check_model(config)
        auxiliary_losses(config, inputs.linked)  # raises ConfigError for losses that the model cannot have
        reporter.log(why)
        texts = {side: pairs.training.texts(number) for number, side in enumerate(("source", "target"))}
        if inputs.captions:
            if few := too_few_images(pairs.image_count, config.image):
                reporter.warn(few)
        elif few := processes.share(lambda: too_little_data(pairs.count, texts)):
            reporter.warn(few)
        parts = _new(config, pairs, processes, reporter)
    codecs = (parts.target,) if inputs.captions else (parts.source_codec, parts.target)
    features = _frozen_features(parts, device_setup.device)
    data = processes.in_turn(lambda: prepare(pairs, codecs, parts.config, reporter, features))
    if data.guide is not None:
        parts = replace(parts, readout=data.guide.readout)
    if pretrained is not None:
        _log_unknown(data, codecs, str(name), reporter.log)
    return RunSetup(parts, data, device_setup, name)


def check_settings(
    settings: Settings, preset: str = "auto", init: str | Path | None = None, pairs: int = 0, device: str = "cpu"
) -> Config:
    """Return the settings of a new run on so many pairs; raises ConfigError for wrong ones, before any pair is read."""
    if settings.get("image"):
        raise ConfigError("settings of the section image need images; train on captions and their images")
    if init is not None:
        return open_pretrained(init, settings).config
    config, _ = apply_preset(settings, pairs, preset, device)
    _check_vocabularies(config)
    _check_losses(config, False, settings, preset)
    _check_model(config)
    return config


def _check_model(config: Config) -> None:
    """Raise ConfigError for a model that cannot be built, such as one with widths that do not fit."""
    with torch.device("meta"):
        build(config.model, config.image or len(SPECIALS), len(SPECIALS))


def _check_losses(config: Config, linked: bool, settings: Settings, preset: str | None) -> None:
    """Raise ConfigError for losses that the model cannot have; with `preset`, if no model it may choose can."""
    if preset is None:
        auxiliary_losses(config, linked)
        return
    presets = [name for name in PRESETS if name != "none"] if preset == "auto" else [preset]
    errors = []
    for name, device in product(presets, ("cpu", "cuda")):
        try:
            auxiliary_losses(apply_preset(settings, 0, name, device)[0], linked)
            return
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _check_vocabularies(config: Config) -> None:
    """Raise ConfigError for vocabularies that are too small, and for shared embeddings of two vocabularies."""
    check_size(config.text)
    if config.image is not None and config.text.joint:
        raise ConfigError("text.joint=true shares a vocabulary with the source, but that of captions is an image")
    if isinstance(config.model, TransformerConfig) and config.model.tied == "all" and not config.text.joint:
        raise ConfigError(
            "model.tied=all needs one vocabulary for both languages; set text.joint=true as well, or model.tied=target"
        )


def _new(config: Config, pairs: PairSets, processes: Processes, reporter: Reporter) -> ModelParts:
    """Return an untrained model with vocabularies learned from the pairs by the first process."""
    texts = processes.share(lambda: [codec.dump() for codec in learn_codecs(pairs, config, reporter)])
    source = Codec.parse(texts[0])
    target = source if config.text.joint or config.image is not None else Codec.parse(texts[1])
    config = replace(config, text=replace(config.text, size=config.text.size or max(len(source), len(target))))
    torch.manual_seed(config.training.seed)
    with memory_guard("building the model", SMALLER_MODEL):
        if config.image is None:
            return ModelParts(config, build(config.model, len(source), len(target)), source, target)
        model = build(config.model, config.image, len(target))
        if origin := load_image_encoder(model, config.image):
            reporter.log(origin)
        return ModelParts(config, model, ImageInput(config.image), target)


def _frozen_features(parts: ModelParts, device: torch.device) -> tuple[Callable[[Array], Array], str] | None:
    """Return a function that computes the features of a frozen image encoder, and what they depend on, as text."""
    if parts.config.image is None or not parts.config.image.frozen:
        return None
    encoder = regions_of(parts.model)
    checksum = blake2b(digest_size=16)
    for name, tensor in sorted(encoder.image.state_dict().items()):
        checksum.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())

    @torch.no_grad()  # not inference_mode: weights that move to the device in it could not be loaded again
    def features(pixels: Array) -> Array:
        encoder.image.to(device).eval()
        with memory_guard("encoding images", "lower image.pixels"), fast_products(device):
            return encoder.features(torch.from_numpy(pixels).to(device)).float().cpu().numpy()

    image = parts.config.image
    made_of = checksum.hexdigest(), image.encoder, image.backbone, image.pixels, image.patch, library_versions(image)
    return features, " ".join(map(str, made_of))


def _same_pairs(out: Path, checkpoint: Checkpoint, pairs: PairSets, config: Config) -> ModelParts:
    """Return the model of a checkpoint; raises DataError if it was trained on other pairs."""
    if checkpoint.run.get("digest") != pairs.digest:
        raise DataError(
            f"the sentence pairs are not those that the run in {out} began with; use the same pairs, "
            "or start a new run in another folder"
        )
    return replace(checkpoint.parts, config=config, notes={})


def _same_init(out: Path, checkpoint: Checkpoint, init: str | None) -> str | None:
    """Return the pretrained model that the run began with; raises ConfigError for another one."""
    recorded: str | None = checkpoint.run.get("init")
    if init not in (None, recorded):
        began = f"with the weights of {recorded}" if recorded else "with new weights"
        raise ConfigError(f"the run in {out} began {began}; leave out init when resuming")
    return recorded


def _beginning(init: str, settings: Settings, config: Config) -> str:
    rate = config.training.rate
    hint = f"; training.rate is {rate}, as for new weights: a lower one keeps more of what the model has learned"
    return f"beginning with the weights of {init}{'' if 'rate' in settings.get('training', {}) else hint}"


def _resumed(out: Path, checkpoint: Checkpoint, settings: Settings) -> Config:
    """Return the run's settings with the changes that a resumed run may make."""
    before = checkpoint.parts.config.plain()
    if ("image" in settings) != ("image" in before):
        kind = "captions of images" if "image" in before else "sentence pairs"
        raise ConfigError(f"the run in {out} trains on {kind}; resume it with the same")
    wanted = {section: dict(values) for section, values in before.items()}
    family = settings.get("model", {}).get("family", before["model"]["family"])
    if family != before["model"]["family"]:
        own = before["model"]["family"]
        raise ConfigError(f"the run in {out} trains a model of the family {own}, which cannot become {family}")
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
            was = before[section].get(key)
            if value != was and not (section == "training" and key in CHANGEABLE):
                raise ConfigError(
                    f"{section}.{key} is {was} in the run in {out} and cannot become {value} "
                    "when it is resumed; start a new run in another folder"
                )
    return config


def _full_name(init: str | Path) -> str:
    """Return the name of a model for the record: a name on the hub, or an absolute path."""
    return str(init) if str(init).startswith(HUB) else str(Path(init).resolve())


def open_pretrained(
    init: str | Path, settings: Mapping[str, Mapping[str, object]], log: Callable[[str], None] | None = None
) -> ModelParts:
    """Open a pretrained model, which keeps its settings `model` and `text`, with the run's settings `training`.

    A damaged read-out is only logged: training does not need it.
    """
    parts = open_parts(init, torch.device("cpu"), log)
    pack_weights(parts.model, decoding=False)  # as in a resumed run: other products round differently
    config = _settings(parts.config, settings, init)
    model = parts.model
    if isinstance(model, Transformer):
        model.shortlist = None  # it was made for what the model translated until now
    if config.model != parts.config.model or config.image != parts.config.image:
        empty = build_empty(config, parts.source, parts.target)
        model = load_weights(empty, parts.model.state_dict(), config, parts.source, parts.target)
    source = parts.source if config.image is None else ImageInput(config.image)
    return replace(parts, config=config, model=model, source=source, notes={})


def _settings(before: Config, settings: Mapping[str, Mapping[str, object]], init: str | Path) -> Config:
    """Return the model's settings with the changes that its weights allow; raises ConfigError for others."""
    kept: dict[str, Mapping[str, object]] = {
        section: values for section, values in before.plain().items() if section in ("model", "text", "image")
    }
    family = choose("model", str(settings.get("model", {}).get("family", before.family)), MODELS)
    if family != before.family:
        raise ConfigError(f"{init} is a model of the family {before.family}, which cannot become {family}")
    wanted = {section: {**kept.get(section, {}), **values} for section, values in {**kept, **settings}.items()}
    config = Config.build(wanted)
    fixed = [
        f"{section}.{key} is {value} and cannot become {config.plain()[section][key]}"
        for section, values in kept.items()
        for key, value in values.items()
        if value != config.plain()[section][key] and f"{section}.{key}" not in CHANGEABLE_WITH_INIT
    ]
    if fixed:
        raise ConfigError(
            f"a run that begins with {init} keeps the settings that its weights and vocabularies were made with: "
            f"{'; '.join(fixed)}"
        )
    return config


def _log_unknown(data: TrainingData, codecs: Sequence[Codec], name: str, log: Callable[[str], None]) -> None:
    """Log the share of tokens that are not in the vocabularies, if it is more than 1%."""
    rows = np.arange(0, len(data.corpus), max(1, len(data.corpus) // COUNTED))
    sides = ("source", "target")[-len(codecs) :]  # captions have no text as their source
    for codec, side in zip(codecs, sides, strict=True):
        ids, lengths = getattr(data.corpus, side).rows(rows, 0)
        share = np.count_nonzero(ids == UNKNOWN) / max(1, int(lengths.sum()) - len(rows))
        if share > UNKNOWN_SHARE:
            texts = [getattr(data.corpus.pair(row), side) for row in rows[:SAMPLE]]
            some = ", ".join(f"'{piece}'" for piece in _unknown(codec, texts))
            examples = f" ({some})" if some else ""
            log(f"{share:.1%} of the {side} tokens are not in the vocabulary of {name}{examples}: it cannot learn them")


def _unknown(codec: Codec, texts: Sequence[str]) -> list[str]:
    """Return the five most frequent pieces that are not in a vocabulary."""
    pieces: Counter[str] = Counter()
    for text, encoded in zip(texts, codec.encode_all(texts), strict=True):
        spans = zip(encoded.ids, encoded.spans, strict=True)
        pieces.update(text[start:end] for index, (start, end) in spans if index == UNKNOWN)
    return [piece for piece, _ in pieces.most_common(5)]


class Preset(NamedTuple):
    """Settings for fewer than `pairs` pairs: the best family, and settings common to all or special to each."""

    pairs: float
    family: str
    common: Settings
    rnn: Settings
    transformer: Settings

    @property
    def steps(self) -> int:
        """The limit of updates."""
        return Config.build({"training": self.common.get("training", {})}).training.steps


PRESETS = {
    "none": Preset(0, "rnn", {}, {}, {}),
    "tiny": Preset(5_000, "rnn", {}, {}, {}),
    "small": Preset(
        200_000,
        "transformer",
        {
            "text": {"joint": True},
            "training": {
                "batch_tokens": 4096,
                "batch_sentences": 1024,
                "rate": 0.002,
                "ema": 0.999,
                "steps": 10_000,
                "patience": 12,
            },
        },
        {
            "model": {"width": 512, "embedding": 256, "tied": True, "dropout": 0.3},
            "training": {"warmup": 500, "rdrop": 3.0},
        },
        {
            "model": {"layers": 4, "width": 256, "inner": 512, "heads": 4, "dropout": 0.3, "tied": "all"},
            "training": {"warmup": 1000, "rdrop": 5.0},
        },
    ),
    "medium": Preset(
        2_000_000,
        "transformer",
        {
            "training": {
                "batch_tokens": 8192,
                "batch_sentences": 2048,
                "steps": 60_000,
                "ema": 0.9995,
                "valid_every": 1000,
            }
        },
        {
            "model": {"width": 512, "embedding": 512, "tied": True, "dropout": 0.2},
            "training": {"rate": 0.001, "warmup": 2000},
        },
        {
            "model": {"layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1, "tied": "target"},
            "training": {"rate": 0.0007, "warmup": 4000},
        },
    ),
    "large": Preset(
        float("inf"),
        "transformer",
        {
            "training": {
                "batch_tokens": 16_384,
                "batch_sentences": 4096,
                "steps": 200_000,
                "ema": 0.9999,
                "valid_every": 2000,
                "patience": 20,
            }
        },
        {
            "model": {"width": 1024, "embedding": 512, "layers": 2, "cell": "lstm", "tied": True, "dropout": 0.2},
            "training": {"rate": 0.0007, "warmup": 4000},
        },
        {
            "model": {"layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1, "tied": "target"},
            "training": {"rate": 0.0007, "warmup": 4000, "accumulate": 2},
        },
    ),
}

# A CPU trains on a hundredth of the tokens in the same time. Most of it is for products with the vocabulary and the
# width, so both are small; a Transformer of that size is half as fast as an RNN. The steps take a few hours at most.
SMALL_RNN: Settings = {
    "model": {"width": 256, "embedding": 256, "tied": True, "dropout": 0.3},
    "training": {"warmup": 300},
}
SMALL_TRANSFORMER: Settings = {
    "model": {"layers": 2, "width": 256, "inner": 512, "heads": 4, "dropout": 0.2, "tied": "target"},
    "training": {"warmup": 600},
}
ON_CPU = {
    "small": Preset(
        200_000, "rnn", {"training": {"ema": 0.998, "steps": 5_000, "valid_every": 250}}, SMALL_RNN, SMALL_TRANSFORMER
    ),
    "medium": Preset(2_000_000, "rnn", {"training": {"ema": 0.999, "steps": 20_000}}, SMALL_RNN, SMALL_TRANSFORMER),
    "large": Preset(float("inf"), "rnn", {"training": {"ema": 0.999, "steps": 40_000}}, SMALL_RNN, SMALL_TRANSFORMER),
}


# Captions are short, and an image takes more time than its caption.
CAPTION_TRAINING: Mapping[str, object] = {"batch_sentences": 64, "warmup": 200, "valid_every": 250}
CAPTION_MODELS: tuple[Settings, Settings] = (
    {"model": {"width": 256, "embedding": 128, "tied": True, "dropout": 0.2}, "training": {"rate": 0.003}},
    {
        "model": {"layers": 2, "width": 192, "inner": 384, "heads": 4, "dropout": 0.1, "tied": "target"},
        "training": {"rate": 0.002},
    },
)
CAPTIONS = {
    "none": Preset(0, "rnn", {}, {}, {}),
    "tiny": Preset(5_000, "rnn", {"training": {**CAPTION_TRAINING, "steps": 5_000}}, *CAPTION_MODELS),
    "small": Preset(200_000, "rnn", {"training": {**CAPTION_TRAINING, "steps": 10_000}}, *CAPTION_MODELS),
    "medium": Preset(
        float("inf"),
        "rnn",
        {"training": {**CAPTION_TRAINING, "batch_sentences": 128, "batch_tokens": 4096, "steps": 40_000}},
        *CAPTION_MODELS,
    ),
}
CAPTIONS["large"] = CAPTIONS["medium"]


# A student reads with a Transformer's encoder and writes with two layers of SSRU, whose step takes the least time on a
# CPU (Kim et al. 2019). All else is as for pairs of that number; above, it has the sizes of Marian's tiny students.
STUDENT = "student"
STUDENT_MODEL: Mapping[str, object] = {"cell": "ssru", "decoder_layers": 2}
TINY_STUDENT: Settings = {
    "text": {"joint": True},
    "model": {"layers": 6, "width": 256, "inner": 1536, "heads": 8, "dropout": 0.1, "tied": "all", **STUDENT_MODEL},
}


def _for_student(preset: Preset) -> Preset:
    """Return a preset with a student's Transformer; those for large files, on a GPU, get the tiny student's sizes."""
    own = preset.transformer
    small = preset.pairs <= PRESETS["small"].pairs or preset in ON_CPU.values()
    changed = {"model": {**own.get("model", {}), **STUDENT_MODEL}} if small else TINY_STUDENT
    return preset._replace(family="transformer", transformer={**own, **changed})


def apply_preset(settings: Settings, pairs: int, name: str = "auto", device: str = "cpu") -> tuple[Config, str]:
    """Return all settings for a number of pairs on a kind of device, and a message with those of the preset.

    `student` is `auto` with a Transformer that decodes fast.
    """
    choose("preset", name, ("auto", STUDENT, *PRESETS))
    for section, values in settings.items():
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"expected settings by section, as in {{'training': {{'steps': 500}}}}, but '{section}' is {values!r}"
            )
    known = CAPTIONS if "image" in settings else PRESETS
    if (student := name == STUDENT) and "image" in settings:
        raise ConfigError(f"the preset '{STUDENT}' is for pairs of sentences, not for captions")
    if name in ("auto", STUDENT):
        name = next(name for name, preset in known.items() if pairs < preset.pairs)
    on_cpu = {} if "image" in settings else ON_CPU
    preset = on_cpu.get(name, known[name]) if device == "cpu" else known[name]
    preset = _for_student(preset) if student else preset
    family, because = _family(settings.get("model", {}), preset.family)
    own = preset.transformer if family == "transformer" else preset.rnn
    chosen: dict[str, dict[str, object]] = {"model": {"family": family}}
    for layer in (preset.common, own):
        for section, values in layer.items():
            chosen.setdefault(section, {}).update(values)
    explicit = {(section, key) for section, values in settings.items() for key in values}
    # Ties and joint vocabularies go together: if one is set, the preset sets neither.
    if ("text", "joint") in explicit or ("model", "tied") in explicit:
        chosen.get("model", {}).pop("tied", None)
        chosen.get("text", {}).pop("joint", None)
    kept = {
        section: {key: value for key, value in values.items() if (section, key) not in explicit}
        for section, values in chosen.items()
    }
    merged = {section: {**kept.get(section, {}), **settings.get(section, {})} for section in {**kept, **settings}}
    words = ", ".join(f"{section}.{key}={value}" for section, values in kept.items() for key, value in values.items())
    if name == "none":
        return Config.build(merged), f"no preset: all other settings have their defaults{because}"
    where = " on a CPU" if name in on_cpu and device == "cpu" else ""
    what = "captions" if "image" in settings else "pairs"
    title = f"{name}, {STUDENT}" if student else name
    return Config.build(merged), f"preset '{title}' for {pairs:,} {what}{where}: {words or 'the defaults'}{because}"


def _family(model: Mapping[str, object], preferred: str) -> tuple[str, str]:
    """Return the family that is set, or the preferred one, or one that has the explicit settings, and why."""
    if "family" in model:
        return choose("model", str(model["family"]), MODELS), ""
    having = [name for name in ("rnn", "fixed", "transformer") if _builds(name, model)]
    if preferred in having or not having:
        return preferred, ""
    lacking = ", ".join(f"model.{key}" for key, value in model.items() if not _builds(preferred, {key: value}))
    return having[0], f"; the family is {having[0]}, not {preferred}, because of {lacking}"


def _builds(family: str, model: Mapping[str, object]) -> bool:
    """Whether a family has these settings and allows their values."""
    try:
        Config.build({"model": {"family": family, **model}})
    except ConfigError:
        return False
    return True
