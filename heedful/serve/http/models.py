"""The models of a service: `ModelRegistry`, their names and example sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from heedful.config import FixedConfig, TransformerConfig
from heedful.data.images import resized
from heedful.errors import ConfigError, nearest
from heedful.serve.engine.worker import digest
from heedful.serve.http.errors import HttpProblem, problem_of
from heedful.serve.http.schemas import ModelCard
from heedful.translator import Translator, load

# The Hindi ones are from the embedded corpus; every model of `heedful demo` knows the words of the second.
EXAMPLES = (
    "मेरी दादी वह डिब्बा ढूँढ़ रही हैं जो रसोई में था",
    "राम किताब पढ़ रहा है",
    "The letter that you wrote has arrived",
    "Zwei Kinder spielen im Schnee",
    "Deux enfants jouent dans la neige",
    "Dos niños juegan en la nieve",
    "Due bambini giocano nella neve",
    "Duas crianças brincam na neve",
    "Twee kinderen spelen in de sneeuw",
    "Två barn leker i snön",
    "Kaksi lasta leikkii lumessa",
    "Dvě děti si hrají ve sněhu",
    "Dwoje dzieci bawi się na śniegu",
    "Двое детей играют в снегу",
    "Двоє дітей граються в снігу",
    "Δύο παιδιά παίζουν στο χιόνι",
    "İki çocuk karda oynuyor",
    "طفلان يلعبان في الثلج",
    "دو کودک در برف بازی می‌کنند",
    "دو بچے برف میں کھیل رہے ہیں",
    "שני ילדים משחקים בשלג",
    "দুটি শিশু বরফে খেলছে",
    "இரண்டு குழந்தைகள் பனியில் விளையாடுகிறார்கள்",
    "两个孩子在雪地里玩耍",
    "二人の子供が雪の中で遊んでいる",
    "두 아이가 눈 속에서 놀고 있다",
    "Hai đứa trẻ chơi trong tuyết",
    "Dua anak bermain di salju",
    "Watoto wawili wanacheza kwenye theluji",
)
MOST_TOKENS = 0.45  # per character: a text that takes more is spelled, not known


class ModelRegistry:
    """Translators by name; the first one is the default. A request can choose a name, and never a path."""

    def __init__(self, models: Mapping[str, Translator]) -> None:
        if not models:
            raise ConfigError("a service needs at least one model")
        self.models = dict(models)
        self.folders: dict[str, str] = {}  # of those that were loaded from one
        self.default = next(iter(self.models))

    @classmethod
    def open(cls, models: Sequence[str], device: str = "auto") -> ModelRegistry:
        """Load models, each a folder, `hf:ORG/NAME`, or `NAME=FOLDER`; the name of a folder is the default name."""
        loaded: dict[str, Translator] = {}
        for name, path in map(model_name, models):
            if name in loaded:
                raise ConfigError(f"two models are named '{name}'; give one of them another name: NAME={path}")
            loaded[name] = translator = load(path, device)
            _ = translator.readout  # chosen here, not at a request
            if translator.reads_images:
                resized(np.zeros((1, 1, 3), np.uint8), 2)  # raises an error here, not at a request, without Pillow
        registry = cls(loaded)
        registry.folders = dict(map(model_name, models))
        return registry

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    @property
    def on_cpu(self) -> bool:
        """Whether all models run on the CPU."""
        return all(translator.device.type == "cpu" for translator in self.models.values())

    def digests(self) -> dict[str, str]:
        """Return a digest of the weights of each model that was loaded from a folder."""
        return {name: digest(self.models[name].parts.model) for name in self.folders}

    @property
    def reads_images(self) -> bool:
        """Whether any model captions images."""
        return any(translator.reads_images for translator in self.models.values())

    def find(self, name: str | None, images: bool = False) -> tuple[str, Translator]:
        """Return a model by its name, or the default: the first that translates text, or with `images` captions images.

        Raise HttpProblem: 404 for an unknown name, 422 for a model of the other kind.
        """
        if name is None:
            kinds = (each for each, translator in self.models.items() if translator.reads_images == images)
            name = next(kinds, self.default)
        if name not in self.models:
            known = ", ".join(self.models)
            message = f"there is no model {name!r} here; choose from {known}.{nearest(name, self.models)}"
            raise HttpProblem(404, message, "model")
        translator = self.models[name]
        try:
            _ = translator.parts.image_input if images else translator.parts.source_codec
        except ConfigError as error:
            raise problem_of(error, "model") from None
        return name, translator

    def cards(self) -> list[ModelCard]:
        """Return a description of each model."""
        return [self._card(name, translator) for name, translator in self.models.items()]

    def _card(self, name: str, translator: Translator) -> ModelCard:
        config, image = translator.config.model, translator.config.image
        layers, heads = (config.depth, config.heads) if isinstance(config, TransformerConfig) else (1, 1)
        fixed = isinstance(config, FixedConfig)
        return ModelCard.model_validate(
            {
                "name": name,
                "family": translator.family,
                "layers": 0 if fixed else layers,
                "heads": 0 if fixed else heads,
                "attention": not fixed,
                "reads_images": translator.reads_images,
                "grid": None if image is None else (image.side, image.side),
                "weights": sum(weight.numel() for weight in translator.parts.model.parameters()),
                "default": name == self.default,
                "example": example(translator),
            }
        )


def model_name(model: str) -> tuple[str, str]:
    """Return the name and the path of a model; raise ConfigError if the name is not printable text.

    >>> model_name("runs/small"), model_name("a=runs/small"), model_name("hf:Org/opus-mt-hi-en")
    (('small', 'runs/small'), ('a', 'runs/small'), ('opus-mt-hi-en', 'hf:Org/opus-mt-hi-en'))
    """
    name, sign, path = model.partition("=")
    if not (sign and name and "/" not in name):
        name, path = Path(model.rpartition(":")[2]).resolve().name, model
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):  # controls, and bytes that are not UTF-8
        shown = "".join(ascii(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cs") else c for c in name)
        raise ConfigError(
            f"the name of a model, '{shown}', has characters that cannot be shown, or bytes that are not UTF-8; "
            "choose a name for the service: NAME=FOLDER"
        )
    return name, path


def example(translator: Translator) -> str:
    """Return the sentence that the model's vocabulary cuts into the fewest tokens for its length, or "".

    A vocabulary has long tokens for its own language, and spells others letter by letter. Sentences with unknown
    tokens are left out. A model of images has no example.
    """
    if translator.reads_images:
        return ""

    def tokens(text: str) -> float:
        return (len(translator.parts.source_codec.encode(text).ids) - 1) / len(text)

    known = [text for text in EXAMPLES if not translator.unknown(text)]
    best = min(known, key=tokens, default="")
    return best if best and tokens(best) <= MOST_TOKENS else ""
