"""Reading files of strangers: whatever is wrong with one is said in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heedful.errors import ModelError
from heedful.files import SETTINGS, NotPlainError, max_json, parse_json, read_bytes

__all__ = ["content", "json_object"]


def content(path: Path, limit: int, what: str) -> bytes:
    """Return what a plain file of at most so many bytes holds; `what` it is, is for the message."""
    try:
        return read_bytes(path, limit, what)
    except NotPlainError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); the Marian model is not whole") from None


def json_object(path: Path, vocabulary: bool = False) -> dict[str, Any]:
    """Return the JSON object in a file of settings, or in that of a vocabulary, which may be far larger."""
    limit, what = (max_json(), "a JSON file (HEEDFUL_MAX_JSON)") if vocabulary else (SETTINGS, "a file of settings")
    found = parse_json(content(path, limit, what), str(path))
    if not isinstance(found, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found
