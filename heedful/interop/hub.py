"""Opening a model by its path, or by its name on the Hugging Face hub, as in `hf:Helsinki-NLP/opus-mt-hi-en`."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.errors import ModelError, install_command
from heedful.interop import indic_xlit, marian, marian_binary
from heedful.interop.argos import is_argos, read_argos
from heedful.interop.ctranslate2_import import is_ctranslate2, read_ctranslate2
from heedful.interop.folder import ModelParts, read_model

HUB = "hf:"


class ForeignFormat(NamedTuple):
    """A format of models that others write: its name, what it is called, how it is recognised and read.

    `read` may raise ModelError for anything in the model that is damaged or not supported.
    """

    name: str
    title: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, torch.device | None], ModelParts]


# The formats that are opened besides heedful's own; the first that recognises a path reads it.
FORMATS = (
    ForeignFormat("marian", "a Marian model", marian.is_marian, marian.read_marian),
    ForeignFormat("argos", "an Argos package", is_argos, read_argos),
    ForeignFormat("ctranslate2", "a CTranslate2 model", is_ctranslate2, read_ctranslate2),
    ForeignFormat(
        "marian-binary",
        "a model in Marian's own files",
        marian_binary.is_marian_binary,
        marian_binary.read_marian_binary,
    ),
    ForeignFormat("indic-xlit", "a transliterator of AI4Bharat", indic_xlit.is_indic_xlit, indic_xlit.read_indic_xlit),
)
SMALL = [
    marian.CONFIG,
    marian.GENERATION,
    marian.TOKENIZER,
    marian.SOURCE_SPM,
    marian.TARGET_SPM,
    marian.VOCABULARY,
    marian.TARGET_VOCABULARY,
]
# Parts of a name and of a revision begin with a letter or a digit, so that none of them is `..`, nothing, or an option.
FOLDERS = 1000  # entries of a folder in which models are looked for
PART = r"[A-Za-z0-9][\w.-]*"
NAME = re.compile(rf"({PART}(?:/{PART})?)(?:@({PART}(?:/{PART})*))?", re.ASCII)


def open_parts(path: str | Path, device: torch.device, warn: Callable[[str], None] | None = None) -> ModelParts:
    """Return the model in a folder or file, heedful's or of one of `FORMATS`, or with a name on the hub.

    Raises ModelError for a damaged read-out, or calls `warn` instead.
    """
    folder = fetch(str(path)) if str(path).startswith(HUB) else Path(path)
    foreign = format_of(folder)
    if foreign is None and folder.is_dir() and not (folder / marian.CONFIG).exists():
        _check_inside(folder)
    parts = read_model(folder, device) if foreign is None else foreign.read(folder, device)
    if parts.fault and warn is None:
        raise ModelError(parts.fault)
    if parts.fault and warn is not None:
        warn(parts.fault)
    return parts


def _check_inside(folder: Path) -> None:
    """Raise ModelError for a folder that is no model, but has some in it, as an archive that was unpacked."""
    inside = sorted(each for each in islice(folder.iterdir(), FOLDERS) if each.is_dir())
    models = [each for each in inside if (each / marian.CONFIG).is_file() or format_of(each)]
    if models:
        names = ", ".join(map(str, models[:3]))
        raise ModelError(f"{folder}: this folder has no model, but there is one in {names}; open that")


def format_of(path: Path) -> ForeignFormat | None:
    """Return the format of a model that is not heedful's own; None for heedful's, and for what is no model."""
    return next((foreign for foreign in FORMATS if foreign.recognises(path)), None)


def fetch(name: str) -> Path:
    """Return the folder of `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`, downloaded if it is not in the hub's cache.

    Only the files of a Marian model are downloaded, and only one file of weights, safetensors if there is one.
    """
    folder = snapshot(name, [*SMALL, marian.SAFE], "opus")
    if not (folder / marian.SAFE).exists():
        folder = snapshot(name, [*SMALL, marian.BIN], "opus")
    if not (folder / marian.CONFIG).exists():
        raise ModelError(f"{name}: there is no {marian.CONFIG} in this repository, so it has no Marian model")
    return folder


def parse_name(name: str) -> tuple[str, str | None]:
    """Return the repository and the revision, if there is one, of a name such as `hf:ORG/NAME@REVISION`.

    >>> parse_name("hf:Helsinki-NLP/opus-mt-hi-en@main"), parse_name("hf:gpt2")
    (('Helsinki-NLP/opus-mt-hi-en', 'main'), ('gpt2', None))
    """
    match = NAME.fullmatch(name.removeprefix(HUB))
    if match is None:
        raise ModelError(
            f"'{name}' is not the name of a model on the hub; expected hf:ORG/NAME or hf:NAME, and @REVISION after it "
            "for another one than main"
        )
    return match[1], match[2]


def snapshot(name: str, patterns: list[str], extra: str, **options: Any) -> Path:  # noqa: ANN401
    """Return the folder with the files of `hf:ORG/NAME`, those that match patterns, from the hub or its cache.

    `extra` is the extra of heedful that needs the hub's package; `options` are passed to it.
    """
    repository, revision = parse_name(name)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        raise ModelError(
            f"{name}: huggingface_hub is needed to download it and is not installed; "
            f"install it with: {install_command(extra)}"
        ) from None
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns, **options))
    except HFValidationError as error:
        raise ModelError(f"{name}: this is not a name on the hub ({_first(error)})") from None
    except OSError as error:
        raise ModelError(f"{name}: cannot be downloaded: {_why(error)}") from None
    except Exception as error:  # the errors of a connection depend on the version of huggingface_hub
        raise ModelError(f"{name}: cannot be downloaded ({type(error).__name__}: {_first(error)})") from None


def _why(error: OSError) -> str:
    """Return the reason of an error."""
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
            return "access must be requested on its page on huggingface.co"
        case RepositoryNotFoundError():
            return "there is no such model on huggingface.co, or it is private"
        case RevisionNotFoundError():
            return "it has no such revision (the part after @)"
        case HfHubHTTPError():
            return f"huggingface.co answered: {_first(error)}"
        case OfflineModeIsEnabled() | LocalEntryNotFoundError(__cause__=OfflineModeIsEnabled()):
            return "HF_HUB_OFFLINE is set, and the model is not in the cache"
        case LocalEntryNotFoundError():
            return "huggingface.co cannot be reached, and the model is not in the cache"
    return f"{error.strerror or _first(error)}; is huggingface.co reachable, and is there room on the disk?"


def _first(error: Exception) -> str:
    """Return the first line of an error."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
