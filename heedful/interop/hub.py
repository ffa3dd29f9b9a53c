"""Opening a model by its path, or by its name on the Hugging Face hub, as in `hf:Helsinki-NLP/opus-mt-hi-en`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch

from heedful.errors import ModelError, install_command
from heedful.interop.folder import Parts, read_model
from heedful.interop.marian import (
    BIN,
    CONFIG,
    GENERATION,
    SAFE,
    SOURCE_SPM,
    TARGET_SPM,
    TARGET_VOCABULARY,
    TOKENIZER,
    VOCABULARY,
    is_marian,
    read_marian,
)

__all__ = ["HUB", "fetch", "open_parts"]

HUB = "hf:"
SMALL = [CONFIG, GENERATION, TOKENIZER, SOURCE_SPM, TARGET_SPM, VOCABULARY, TARGET_VOCABULARY]
# Parts of a name and of a revision begin with a letter or a digit, so that none of them is `..`, nothing, or an option.
PART = r"[A-Za-z0-9][\w.-]*"
NAME = re.compile(rf"({PART}/{PART})(?:@({PART}(?:/{PART})*))?", re.ASCII)


def open_parts(path: str | Path, device: torch.device, warn: Callable[[str], None] | None = None) -> Parts:
    """Return the model of a folder, heedful's own or Marian's, or of a name on the hub.

    Raises ModelError for a damaged read-out, unless there is `warn` to report it to.
    """
    folder = fetch(str(path)) if str(path).startswith(HUB) else Path(path)
    parts = read_marian(folder, device) if is_marian(folder) else read_model(folder, device)
    if parts.fault and warn is None:
        raise ModelError(parts.fault)
    if parts.fault and warn is not None:
        warn(parts.fault)
    return parts


def fetch(name: str) -> Path:
    """Return the folder of `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`, fetched if it is not in the hub's cache yet.

    Only the files of a Marian model are fetched, and of its weights those in safetensors if there are any.
    """
    found = NAME.fullmatch(name.removeprefix(HUB))
    if found is None:
        raise ModelError(
            f"'{name}' is not the name of a model on the hub; expected hf:ORG/NAME or hf:ORG/NAME@REVISION"
        )
    repository, revision = found.groups()
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        raise ModelError(
            f"{name}: huggingface_hub is needed to fetch this and is not installed; "
            f"get it with: {install_command('opus')}"
        ) from None
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[*SMALL, SAFE]))
        if not (folder / SAFE).exists():
            folder = Path(snapshot_download(repository, revision=revision, allow_patterns=[*SMALL, BIN]))
    except HFValidationError as error:
        raise ModelError(f"{name}: this is not a name on the hub ({_first(error)})") from None
    except OSError as error:
        raise ModelError(f"{name}: cannot be fetched: {_why(error)}") from None
    except Exception as error:  # what the connection may raise depends on the version of the hub's package
        raise ModelError(f"{name}: cannot be fetched ({type(error).__name__}: {_first(error)})") from None
    if not (folder / CONFIG).exists():
        raise ModelError(f"{name}: there is no {CONFIG} in this repository, so it holds no Marian model")
    return folder


def _why(error: OSError) -> str:
    """Return what went wrong, in words."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    match error:
        case GatedRepoError():
            return "its owner asks for permission first; see its page on huggingface.co"
        case RepositoryNotFoundError():
            return "there is no such model on huggingface.co, or it is private"
        case RevisionNotFoundError():
            return "it has no such revision (what stands after the @)"
        case OfflineModeIsEnabled():
            return "the hub's package is set to stay offline (HF_HUB_OFFLINE), and the model is not in its cache"
        case HfHubHTTPError():
            return f"huggingface.co answered: {_first(error)}"
        case LocalEntryNotFoundError():
            return "huggingface.co cannot be reached, and the model is not in the cache of an earlier time"
    return f"{error.strerror or _first(error)}; is huggingface.co reachable, and is there room on the disk?"


def _first(error: Exception) -> str:
    """Return the first line of what an error says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
