"""What is asked and answered over HTTP: OpenAPI is made from these types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

__all__ = [
    "Aligned",
    "Alignments",
    "Asked",
    "Fault",
    "Figure",
    "Item",
    "Links",
    "ModelCard",
    "Models",
    "Pair",
    "Pairs",
    "Problem",
    "Spoken",
    "State",
    "Strict",
    "Translate",
    "Translations",
    "Warned",
    "WordOf",
]

# Limits are a service's own, and are checked by its routes: here stands which, and `described.py` writes their numbers.
# A bound of its own, which is never reached, lets halves of characters be refused.
Text = Annotated[str, StringConstraints(max_length=10**12), Field(json_schema_extra={"x-maxLength": "chars"})]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
WIDE: dict[str, Any] = {"x-maximum": "beam"}
SEVERAL: dict[str, Any] = {"x-maxItems": "items"}
MANY = 32  # fields of an object: each one that is not known is a fault, and is told


class Strict(BaseModel):
    """A request: names that are not known and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def few(cls, given: Any) -> Any:  # noqa: ANN401
        """Refuse an object with so many fields that only to say what is wrong with each would take long."""
        if isinstance(given, dict) and len(given) > MANY:
            raise PydanticCustomError("too_many_fields", f"an object with {len(given):,} fields; at most {MANY}")
        return given


class Asked(Strict):
    """How to translate: by which model, how wide a beam, and what is wanted besides the text."""

    model: Name | None = Field(None, description="One of /v1/models; the first one, if not given.")
    beam: int = Field(
        1, ge=1, le=1000, description="Hypotheses that are kept at every step; 1: greedy.", json_schema_extra=WIDE
    )
    n_best: int = Field(
        1, ge=1, le=1000, description="How many translations of each text; at most the beam.", json_schema_extra=WIDE
    )
    prefix: Text | None = Field(None, description="What each translation has to begin with.")
    alignments: bool = Field(False, description="Which words belong together.")
    trace: bool = Field(False, description="The weights of every layer and head, packed for the page (`figure`).")
    markup: bool = Field(False, description="The text is HTML: tags and {placeholders} are carried over (`markup`).")


class Translate(Asked):
    """One text to be translated, or several."""

    text: Text | Annotated[list[Text], Field(fail_fast=True, json_schema_extra=SEVERAL)] = Field(
        description="One text, or several; each may have many sentences."
    )


class Spoken(Asked):
    """One text to be translated while one watches."""

    text: Text


class Figure(Asked):
    """A picture of where the model looked when it translated a text, or when it reads a given translation of it."""

    text: Text
    target: Text | None = Field(None, description="A translation to be looked at; otherwise the model's own.")
    view: Literal["heatmap", "braid", "heads", "self"] = "heatmap"
    format: Literal["svg", "png", "html"] = "svg"
    title: Annotated[str, StringConstraints(max_length=200)] = ""


class Pair(Strict):
    """A sentence and its translation."""

    source: Text
    target: Text


class Pairs(Strict):
    """Pairs whose words are to be linked."""

    pairs: Annotated[list[Pair], Field(fail_fast=True, json_schema_extra=SEVERAL)]
    model: Name | None = None


class WordOf(BaseModel):
    """A word of a translation: its characters `start:end`, and how sure the model was of it."""

    text: str
    start: int
    end: int
    confidence: float


class Warned(BaseModel):
    """What the weights warn of; `source` and `target` are numbers of words as the figure counts them."""

    kind: str
    measure: float
    source: list[int]
    target: list[int]
    words: list[str] = Field(description="The words it is about, of the source or else of the translation.")
    text: str


class Links(BaseModel):
    """Which words belong together; words are what the model's tokens make, with their characters' places."""

    source_words: list[tuple[str, int, int]]
    target_words: list[tuple[str, int, int]]
    links: list[tuple[int, int, float]] = Field(description="Source word, target word, weight; counted from 0.")
    pharaoh: str = Field(description="The same as `0-0 1-2`.")


class Item(BaseModel):
    """A translation."""

    source: str
    text: str
    score: float = Field(description="Its log-probability.")
    confidence: float = Field(description="The mean log-probability of its tokens, as a probability.")
    words: list[WordOf]
    notes: list[str] = []
    alarms: list[Warned] | None = Field(None, description="Only where weights were read: alignments, trace, markup.")
    alignment: Links | None = Field(None, description="With `alignments`; none for a model without attention.")
    markup: str | None = Field(None, description="With `markup`: the translation as HTML.")
    figure: dict[str, Any] | None = Field(None, description="With `trace`: what the page draws.")
    rank_score: float | None = Field(None, description="With `n_best` over 1: what alternatives are compared by.")
    alternatives: list[Item] | None = Field(None, description="With `n_best` over 1: all of them, best first.")


class Translations(BaseModel):
    """Translations, in the order of the texts."""

    model: str
    translations: list[Item]


class Aligned(Links):
    """The links of a given pair."""


class Alignments(BaseModel):
    """The links of given pairs, in their order."""

    model: str
    alignments: list[Aligned]


class ModelCard(BaseModel):
    """A model that is loaded."""

    name: str
    family: Literal["fixed", "rnn", "transformer", "marian"]
    layers: int
    heads: int
    attention: bool
    weights: int = Field(description="How many numbers it has learned.")
    default: bool
    example: str = Field(
        "", description="A sentence in the language that it seems to read; none where that is unclear."
    )


class Models(BaseModel):
    """The models that are loaded; the first one answers where none is named."""

    models: list[ModelCard]


class State(BaseModel):
    """How the service is."""

    status: Literal["ok", "stopping"]
    version: str


class Fault(BaseModel):
    """One field that is not what was expected."""

    field: str
    detail: str


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    allowed: int | None = Field(None, description="Where a list is too long: how many there may be.")
    errors: list[Fault] | None = None
