"""Other formats: Marian and Opus-MT, CTranslate2, Argos, models of `transformers`, image encoders of `timm`."""

from heedful.interop.argos import read_argos
from heedful.interop.ctranslate2 import write_ctranslate2
from heedful.interop.ctranslate2_import import read_ctranslate2
from heedful.interop.hub import FORMATS, HUB, ForeignFormat, fetch, format_of, open_parts
from heedful.interop.image_weights import image_settings, load_image_encoder
from heedful.interop.indic_xlit import read_indic_xlit
from heedful.interop.marian import read_marian
from heedful.interop.marian_binary import read_marian_binary
from heedful.interop.marian_export import write_marian
from heedful.interop.transformers import TransformersModel, is_transformers, open_transformers

__all__ = [
    "FORMATS",
    "HUB",
    "ForeignFormat",
    "TransformersModel",
    "fetch",
    "format_of",
    "image_settings",
    "is_transformers",
    "load_image_encoder",
    "open_parts",
    "open_transformers",
    "read_argos",
    "read_ctranslate2",
    "read_indic_xlit",
    "read_marian",
    "read_marian_binary",
    "write_ctranslate2",
    "write_marian",
]
