"""Other formats: Marian and Opus-MT, as the Hugging Face hub lays them out."""

from heedful.interop.hub import HUB, fetch, open_parts
from heedful.interop.marian import is_marian, read_marian
from heedful.interop.marian_export import write_marian

__all__ = ["HUB", "fetch", "is_marian", "open_parts", "read_marian", "write_marian"]
