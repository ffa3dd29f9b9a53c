"""Other formats: Marian and Opus-MT as the Hugging Face hub lays them out, and models of `transformers`."""

from heedful.interop.hub import HUB, fetch, open_parts
from heedful.interop.marian import is_marian, read_marian
from heedful.interop.marian_export import write_marian
from heedful.interop.transformers import TransformersModel, is_transformers, open_transformers

__all__ = [
    "HUB",
    "TransformersModel",
    "fetch",
    "is_marian",
    "is_transformers",
    "open_parts",
    "open_transformers",
    "read_marian",
    "write_marian",
]
