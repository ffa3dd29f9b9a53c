"""Requests and responses of the API; OpenAPI is generated from these types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

# Limits are settings of a service, and its routes check them: here is which one applies, and `static.py` writes its
# number into the OpenAPI document. A length that is never reached makes pydantic reject lone surrogates.
Text = Annotated[str, StringConstraints(max_length=10**12), Field(json_schema_extra={"x-maxLength": "chars"})]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
WIDE: dict[str, Any] = {"x-maximum": "beam"}
SEVERAL: dict[str, Any] = {"x-maxItems": "items"}
MANY = 32  # fields of an object: each unknown one is an error that is listed


class StrictModel(BaseModel):
    """A request without unknown fields or values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def check_field_count(cls, value: Any) -> Any:  # noqa: ANN401
        """Reject an object with so many fields that listing the errors of each would take long."""
        if isinstance(value, dict) and len(value) > MANY:
            raise PydanticCustomError("too_many_fields", f"an object with {len(value):,} fields; at most {MANY}")
        return value


class DecodingOptions(StrictModel):
    """How to decode: the model, the beam, and what to return besides the text."""

    model: Name | None = Field(None, description="One of /v1/models; by default the first one.")
    beam: int = Field(
        1, ge=1, le=1000, description="Hypotheses that are kept at every step; 1: greedy.", json_schema_extra=WIDE
    )
    n_best: int = Field(
        1, ge=1, le=1000, description="How many translations or captions; at most the beam.", json_schema_extra=WIDE
    )
    prefix: Text | None = Field(None, description="What each translation or caption begins with.")
    alignments: bool = Field(False, description="Return the links between words, or of words and regions.")
    trace: bool = Field(
        False, description="Return the weights of every layer and head, packed for the page (`figure`)."
    )


class Options(DecodingOptions):
    """How to translate: the model, the beam, and what to return besides the text."""

    markup: bool = Field(False, description="The text is HTML: tags and {placeholders} are carried over (`markup`).")


class TranslateRequest(Options):
    """One text to translate, or several."""

    text: Text | Annotated[list[Text], Field(fail_fast=True, json_schema_extra=SEVERAL)] = Field(
        description="One text, or several; each may have many sentences."
    )


class StreamRequest(Options):
    """One text to translate token by token."""

    text: Text


class FigureRequest(Options):
    """A figure of the attention of the model's own translation of a text, or of a given one."""

    text: Text
    target: Text | None = Field(None, description="A translation to read; by default the model's own.")
    view: Literal["heatmap", "braid", "heads", "self"] = "heatmap"
    format: Literal["svg", "png", "html"] = "svg"
    title: Annotated[str, StringConstraints(max_length=200)] = ""


class CaptionRequest(DecodingOptions):
    """An image to caption, in base64."""

    image: str = Field(
        min_length=1, description="The file in base64, or as a data: URL: PNG, JPEG, WebP, or the first frame of a GIF."
    )
    name: Annotated[str, StringConstraints(max_length=200)] = Field("", description="Its file name, for messages.")
    stream: bool = Field(False, description="Respond with server-sent events: start, token …, done; or error.")

    @classmethod
    def schemas(cls) -> dict[str, dict[str, Any]]:
        """Return the schemas of the two kinds of request: JSON, and a form with the file."""
        plain = cls.model_json_schema()
        file = {"type": "string", "format": "binary", "description": "The file: PNG, JPEG, WebP or GIF."}
        form = {**plain, "title": "CaptionForm", "description": "An image to caption, as a file in a form."}
        form["properties"] = {**plain["properties"], "image": file}
        return {"CaptionRequest": plain, "CaptionForm": form}


class TextPair(StrictModel):
    """A sentence and its translation."""

    source: Text
    target: Text


class AlignRequest(StrictModel):
    """Sentence pairs to align."""

    pairs: Annotated[list[TextPair], Field(fail_fast=True, json_schema_extra=SEVERAL)]
    model: Name | None = None


class TranslatedWord(BaseModel):
    """A word of a translation: its characters `start:end`, and its probability."""

    text: str
    start: int
    end: int
    confidence: float


class AlarmItem(BaseModel):
    """An alarm; `source` and `target` are numbers of words as the figure counts them."""

    kind: str
    measure: float
    source: list[int]
    target: list[int]
    words: list[str] = Field(description="The words at fault, of the source or else of the translation.")
    text: str


class WordLinks(BaseModel):
    """Links between words; a word has a text, a first character and an end."""

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
    words: list[TranslatedWord]
    notes: list[str] = []
    alarms: list[AlarmItem] | None = Field(None, description="Only where weights were read: alignments, trace, markup.")
    alignment: WordLinks | None = Field(None, description="With `alignments`; none for a model without attention.")
    markup: str | None = Field(None, description="With `markup`: the translation as HTML.")
    figure: dict[str, Any] | None = Field(None, description="With `trace`: what the page draws.")
    rank_score: float | None = Field(None, description="With `n_best` over 1: what alternatives are ranked by.")
    alternatives: list[Item] | None = Field(None, description="With `n_best` over 1: all of them, best first.")


class ImageSize(BaseModel):
    """An image: its name, its size in pixels, and the rows and columns of its regions."""

    name: str
    width: int
    height: int
    rows: int
    columns: int


class CaptionWord(TranslatedWord):
    """A word of a caption, its box in the image, and the weights over the regions."""

    box: tuple[float, float, float, float] | None = Field(
        description="x, y, width and height in pixels; none for a word that names nothing in the image."
    )
    weights: list[float] | None = Field(
        None, description="With `alignments`: the weight of each region, row by row; the rest is on no region."
    )


class CaptionItem(Item):
    """A caption; `source` is the name of the image."""

    image: ImageSize
    words: list[CaptionWord]  # type: ignore[assignment]  # a list of a narrower type
    alternatives: list[CaptionItem] | None = Field(  # type: ignore[assignment]
        None, description="With `n_best` over 1: all of them, best first."
    )


class Caption(BaseModel):
    """The caption of an image."""

    model: str
    caption: CaptionItem


class Translations(BaseModel):
    """Translations, in the order of the texts."""

    model: str
    translations: list[Item]


class Alignments(BaseModel):
    """The links of sentence pairs, in their order."""

    model: str
    alignments: list[WordLinks]


class ModelCard(BaseModel):
    """A model that is loaded."""

    name: str
    family: Literal["fixed", "rnn", "transformer", "marian"]
    layers: int
    heads: int
    attention: bool
    reads_images: bool = Field(description="Whether it captions images; otherwise it translates text.")
    grid: tuple[int, int] | None = Field(None, description="Rows and columns of the regions of an image.")
    weights: int = Field(description="The number of its parameters.")
    default: bool
    example: str = Field(
        "", description="A sentence in its source language, as far as its vocabulary shows; otherwise empty."
    )


class Models(BaseModel):
    """The models that are loaded; the first one is the default."""

    models: list[ModelCard]
    image_bytes: int = Field(description="The most bytes of an image.")
    image_pixels: int = Field(description="The most pixels of an image: its width times its height.")


class ServiceStatus(BaseModel):
    """The status of the service."""

    status: Literal["ok", "stopping"]
    version: str


class FieldError(BaseModel):
    """A field that is not valid."""

    field: str
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    allowed: int | None = Field(None, description="Where a list is too long: the number of items allowed.")
    errors: list[FieldError] | None = None
