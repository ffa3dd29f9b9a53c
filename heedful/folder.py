"""A model is a folder, safe to load from a stranger.

`model.safetensors` holds the weights, `tokenizer.json` (or `source.tokenizer.json` and `target.tokenizer.json`) the
vocabularies, and `config.json` the settings, a format version and the other files' checksums. `config.json` is renamed
into place last: a reader sees a whole model or none. There is no pickle.

`readout.json`, where there is one, says how links between words are read from the model's weights. It is found out
after the model was written, and may be written by hand, so that it stands beside the list of files, not in it.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from heedful.config import Config
from heedful.device import memory_guard
from heedful.disk import make_folder, write_whole, writing
from heedful.errors import HeedfulError, ModelError
from heedful.models import Network, build
from heedful.readout import READOUT, Readout, read_readout
from heedful.text import Codec
from heedful.version import __version__

__all__ = [
    "AVERAGE",
    "BEST",
    "CONFIG",
    "FORMAT",
    "OPTIMIZER",
    "READOUT",
    "RECENT",
    "RUN",
    "WEIGHTS",
    "Parts",
    "about",
    "holds_model",
    "model_of",
    "pack",
    "read_files",
    "read_model",
    "set_aside",
    "unpack",
    "write_model",
    "write_readout",
]

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
OLD_READOUT = "readout.old.json"
JOINT, SOURCE, TARGET = "tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"
# A checkpoint has these, too.
OPTIMIZER, BEST, RUN = "optimizer.safetensors", "best.safetensors", "run.json"
AVERAGE, RECENT = "average.safetensors", "recent.safetensors"
KNOWN = {WEIGHTS, JOINT, SOURCE, TARGET, OPTIMIZER, BEST, RUN, AVERAGE, RECENT}


@dataclass(frozen=True)
class Parts:
    """What a model folder holds; `notes` tell where the weights come from, `readout` how links are read from it.

    Without a read-out, it is the usual one for such a model; `fault` is what is wrong with the file that should say it.
    """

    config: Config
    model: Network
    source: Codec
    target: Codec
    notes: Mapping[str, Any] = field(default_factory=dict)
    readout: Readout | None = None
    fault: str = ""


def holds_model(path: Path) -> bool:
    """Whether a folder holds a finished model."""
    return (path / CONFIG).is_file()


def write_model(path: Path, parts: Parts, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a model folder; `extra` files are listed with it.

    A read-out that is there was measured with the weights that are there: it stays with the same, and with others it is
    set aside as `readout.old.json`.
    """
    files = {WEIGHTS: pack(parts.model.state_dict()), **(extra or {})}
    if parts.config.text.joint:
        files[JOINT] = parts.source.dump().encode()
    else:
        files[SOURCE], files[TARGET] = parts.source.dump().encode(), parts.target.dump().encode()
    make_folder(path)
    # Without its config a folder is no model: a reader never sees a mixture of the old one and the new one.
    with writing(path):
        stays = (path / READOUT).is_file() and _holds(path / WEIGHTS, files[WEIGHTS])
        (path / CONFIG).unlink(missing_ok=True)
        if (path / READOUT).is_file() and not stays:
            (path / READOUT).replace(path / OLD_READOUT)
    if parts.readout is not None and not stays:
        write_readout(path, parts.readout)
    for name, content in files.items():
        write_whole(path / name, content)
    head = {
        "format": FORMAT,
        "heedful": __version__,
        "config": parts.config.plain(),
        "notes": dict(parts.notes),
        "files": {name: {"bytes": len(c), "sha256": sha256(c).hexdigest()} for name, c in sorted(files.items())},
    }
    write_whole(path / CONFIG, (json.dumps(head, indent=2, ensure_ascii=False) + "\n").encode())


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has just this content."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def set_aside(path: Path) -> Path:
    """Move a model that is to be replaced into a folder of its own inside `path`, and return that folder."""
    number = 1
    while (aside := path / f"earlier-{number}").exists():
        number += 1
    make_folder(aside)
    with writing(aside):
        for name in (CONFIG, WEIGHTS, JOINT, SOURCE, TARGET, READOUT):
            if (path / name).exists():
                (path / name).rename(aside / name)
    return aside


def about(path: Path) -> dict[str, Any]:
    """Read `config.json`: its format, version, settings, notes and list of files."""
    if path.is_file():
        raise ModelError(f"{path}: this is a file, expected a model folder")
    if not path.is_dir():
        hub = (
            f"; if it is a name on the Hugging Face hub, write hf:{path}"
            if len(path.parts) == 2 and not path.is_absolute()
            else ""
        )
        raise ModelError(f"{path}: there is no such model folder{hub}")
    if not holds_model(path):
        unfinished = (path / "checkpoints").is_dir()
        hint = "; its training was not finished: go on with heedful train --resume" if unfinished else ""
        raise ModelError(f"{path}: this folder holds no model (there is no {CONFIG}){hint}")
    try:
        head = json.loads((path / CONFIG).read_bytes())
    except (ValueError, RecursionError):
        raise ModelError(f"{path / CONFIG}: this is not JSON; the file is damaged") from None
    except OSError as error:
        raise ModelError(f"{path / CONFIG}: cannot be read ({error.strerror})") from None
    if isinstance(head, dict) and isinstance(kind := head.get("model_type"), str):
        raise ModelError(
            f"{path / CONFIG}: this is a model of the type '{kind}'; of others' models only marian is read"
        )
    if not isinstance(head, dict) or not isinstance(head.get("format"), int):
        raise ModelError(f"{path / CONFIG}: this is not the config of a heedful model (it has no format number)")
    if head["format"] > FORMAT:
        raise ModelError(
            f"{path}: written in format {head['format']} by heedful {head.get('heedful')}; "
            f"this is heedful {__version__}, which reads format {FORMAT}. Upgrade heedful to open it"
        )
    if not all(isinstance(head.get(key), dict) for key in ("config", "notes", "files")):
        raise ModelError(f"{path / CONFIG}: config, notes or files are missing; the file is damaged")
    _check_notes(head["notes"], path / CONFIG)
    return head


def read_model(path: Path, device: torch.device | None = None) -> Parts:
    """Read a model folder; anything in it that is not as it should be is a `ModelError`."""
    head = about(path)
    return model_of(path, head, read_files(path, head), device)


def model_of(
    path: Path, head: Mapping[str, Any], files: Mapping[str, bytes], device: torch.device | None = None
) -> Parts:
    """Return the model in files that were read and checked already."""
    try:
        config = Config.build(head["config"])
        names = (JOINT, JOINT) if config.text.joint else (SOURCE, TARGET)
        if missing := {WEIGHTS, *names} - files.keys():
            raise ModelError(f"{', '.join(sorted(missing))} is not listed in {CONFIG}")
        source = _codec(files, names[0])
        target = source if config.text.joint else _codec(files, names[1])
        model = _fill(config, len(source), len(target), unpack(files[WEIGHTS], WEIGHTS))
    except HeedfulError as error:
        raise ModelError(f"{path}: {error}") from None
    with memory_guard(f"opening {path}", "use --device cpu"):
        return Parts(config, model.to(device).eval(), source, target, head["notes"], *read_readout(path, config))


def write_readout(path: Path, readout: Readout) -> None:
    """Write the read-out of a model into its folder; one that was there is replaced."""
    write_whole(path / READOUT, (json.dumps(readout.plain(), indent=2, ensure_ascii=False) + "\n").encode())


def read_files(path: Path, head: Mapping[str, Any]) -> dict[str, bytes]:
    """Read the files that a `config.json` lists, holding each to its size and checksum."""
    contents = {}
    for name, facts in head["files"].items():
        if name not in KNOWN or not isinstance(facts, dict):
            raise ModelError(f"{path / CONFIG}: '{name!a}' is not a file of a model")
        try:
            # Looked at before it is read: a pipe would never end, and a device neither.
            found = (path / name).stat()
            if not stat.S_ISREG(found.st_mode):
                raise ModelError(f"{path / name}: this is not a plain file")
            if found.st_size != facts.get("bytes"):
                sizes = f"{found.st_size} bytes, expected {facts.get('bytes')}"
                raise ModelError(f"{path / name}: has {sizes}; the file is truncated or changed")
            content = (path / name).read_bytes()
        except OSError as error:
            raise ModelError(f"{path / name}: cannot be read ({error.strerror}); the model is not whole") from None
        if sha256(content).hexdigest() != facts.get("sha256"):
            raise ModelError(f"{path / name}: its checksum is not the one in {CONFIG}; the file is damaged or changed")
        contents[name] = content
    return contents


def _check_notes(notes: Mapping[str, Any], path: Path) -> None:
    """Hold the notes to what a run writes: numbers, the scores of a validation or none, the name of its `init`."""
    scores = notes.get("validation")
    if scores is not None and not (isinstance(scores, dict) and {"loss", "accuracy"} <= scores.keys()):
        raise ModelError(f"{path}: the notes' validation is {scores!r}, expected its scores; the file is damaged")
    if not isinstance(notes.get("init", ""), str):
        raise ModelError(f"{path}: 'init' in the notes is {notes['init']!r}, expected a name; the file is damaged")
    values = {key: value for key, value in notes.items() if key not in ("validation", "init")} | (scores or {})
    for key, value in values.items():
        if not isinstance(value, int | float):
            raise ModelError(f"{path}: '{key}' in the notes is {value!r}, expected a number; the file is damaged")


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    return safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})


def unpack(content: bytes, name: str) -> dict[str, Tensor]:
    """Return the tensors in the content of a safetensors file."""
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"{name}: this is not a safetensors file ({error})") from None


def _codec(files: Mapping[str, bytes], name: str) -> Codec:
    try:
        return Codec.parse(files[name].decode("utf-8"))
    except UnicodeDecodeError:
        raise ModelError(f"{name}: this is not UTF-8") from None
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from None


def _fill(config: Config, source: int, target: int, weights: dict[str, Tensor]) -> Network:
    """Return the model with its weights; built without memory first, so that absurd settings cost nothing."""
    with torch.device("meta"):
        model = build(config.model, source, target)
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name in sorted(wanted.keys() | weights.keys()):
        there = tuple(weights[name].shape) if name in weights else None
        if there != wanted.get(name):
            found, expected = there or "no place", wanted.get(name) or "none of that name"
            raise ModelError(f"{WEIGHTS}: '{name}' has {'shape ' * bool(there)}{found}, expected {expected}")
        if not weights[name].is_floating_point():
            raise ModelError(f"{WEIGHTS}: '{name}' holds {weights[name].dtype}, expected floating point numbers")
    model.load_state_dict({name: t.float() for name, t in weights.items()}, assign=True)
    return model
