"""Reading files of strangers: whatever is wrong with one is said in words."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from heedful.errors import ModelError

__all__ = ["content", "json_object"]


def content(path: Path) -> bytes:
    """Return what a plain file holds."""
    try:
        # Looked at before it is read: a pipe would never end, and a device neither.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelError(f"{path}: this is not a plain file")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); the Marian model is not whole") from None


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        found = json.loads(content(path))
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: this is not JSON; the file is damaged") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(found).__name__}")
    return found
