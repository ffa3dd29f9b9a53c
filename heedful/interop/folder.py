"""The folder of a model, safe to load from a stranger.

`model.safetensors` holds the weights, `tokenizer.json` (or `source.tokenizer.json` and `target.tokenizer.json`) the
vocabularies, and `config.json` the settings, a format version, the other files' checksums and its own: SHA-256 of all
else in it. `config.json` is renamed into place last: a reader sees a complete model or none. There is no pickle.

Files are read in an order in which the size of each is known before: `config.json`, the vocabularies, and then the
weights, whose size follows from the settings and the vocabularies.

`readout.json`, if there is one, says how links between words are read from the attention weights. It is selected after
the model is written, and may be edited, so it is not in the list of files.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
from torch import Tensor

from heedful.config import Config
from heedful.data.images import ImageInput
from heedful.errors import (
    ConfigError,
    HeedfulError,
    ModelError,
    NewerFormatError,
    ShapeError,
    __version__,
    foreign,
    printable,
)
from heedful.files import (
    SETTINGS,
    NotPlainError,
    make_folder,
    max_json,
    megabytes,
    open_plain,
    read_bytes,
    read_json,
    write_whole,
    writing,
)
from heedful.models import Network, build
from heedful.models.device import memory_guard
from heedful.models.shortlist import Shortlist
from heedful.models.transformer import Transformer
from heedful.text import END, Codec
from heedful.text.segments import READ
from heedful.trace.readout import READOUT, Readout, read_readout, readout_file

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
OLD_READOUT = "readout.old.json"
JOINT, SOURCE, TARGET = "tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"
# Only in checkpoints.
SHORTLIST = "shortlist.safetensors"  # which tokens may be decoded, in a model that has one
OPTIMIZER, BEST, RUN = "optimizer.safetensors", "best.safetensors", "run.json"
AVERAGE, RECENT = "average.safetensors", "recent.safetensors"
KNOWN = {WEIGHTS, JOINT, SOURCE, TARGET, SHORTLIST, OPTIMIZER, BEST, RUN, AVERAGE, RECENT}
CHECKSUM = "checksum"
LONGEST_CAPTION = "longest_caption"  # in the notes of a captioner
NAMED = ("init", "teacher", "teacher_checksum")  # notes that are text: models that this one was made with
CAPTION_LENGTH = 32  # tokens, if the notes do not have it
WIDEST = 8  # bytes of a number, in float64
CANDIDATES = 2_000  # of a source token in a shortlist, on average at most
HEADER = 2_000_000, 1_000  # bytes of a safetensors header at most: of all, and more for each weight

logger = logging.getLogger("heedful.interop.folder")


@dataclass(frozen=True)
class ModelParts:
    """The content of a model folder; `notes` are about the training, `readout` says how links are read.

    Without a read-out, the usual one for such a model is used; `fault` is the error of a damaged read-out file. The
    source is a vocabulary, or in a model that captions images, how these are encoded. `format` is that of the files,
    "heedful" or the name of one of `heedful.interop.FORMATS`; `remarks` say how they were read, and what was changed.
    """

    config: Config
    model: Network
    source: Codec | ImageInput
    target: Codec
    notes: Mapping[str, Any] = field(default_factory=dict)
    readout: Readout | None = None
    fault: str = ""
    format: str = "heedful"
    remarks: tuple[str, ...] = ()

    @property
    def source_codec(self) -> Codec:
        """The vocabulary of the source; raises ConfigError for a model of images."""
        if isinstance(self.source, ImageInput):
            raise ConfigError("this model captions images: it does not read text; give it an image to caption")
        return self.source

    @property
    def caption_length(self) -> int:
        """The tokens of the longest training caption, which the notes have, at most `text.max_length` and 2,048."""
        longest = self.notes.get(LONGEST_CAPTION)
        longest = longest if type(longest) is int and longest > 0 else CAPTION_LENGTH
        return min(longest, self.config.text.max_length, READ)

    @property
    def image_input(self) -> ImageInput:
        """How images are encoded; raises ConfigError for a model of text."""
        if isinstance(self.source, ImageInput):
            return self.source
        raise ConfigError("this model translates text: it cannot read images; train one with captions of images")


def holds_model(path: Path) -> bool:
    """Whether a folder has a finished model."""
    return (path / CONFIG).is_file()


def write_model(path: Path, parts: ModelParts, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a model folder; `extra` files are listed with it.

    A read-out in the folder belongs to the weights in the folder. If these change, it is renamed `readout.old.json`, or
    removed if it is the usual one.
    """
    files = {WEIGHTS: pack(parts.model.state_dict()), **(extra or {})}
    if parts.config.image is not None:
        files[TARGET] = parts.target.dump().encode()
    elif parts.config.text.joint:
        files[JOINT] = parts.source_codec.dump().encode()
    else:
        files[SOURCE], files[TARGET] = parts.source_codec.dump().encode(), parts.target.dump().encode()
    if isinstance(parts.model, Transformer) and parts.model.shortlist is not None:
        files[SHORTLIST] = pack(parts.model.shortlist.tensors())
    make_folder(path)
    # A folder without its config is not a model: a reader never sees a mixture of the old one and the new one.
    with writing(path):
        stays = (path / READOUT).is_file() and _holds(path / WEIGHTS, files[WEIGHTS])
        (path / CONFIG).unlink(missing_ok=True)
        if (path / READOUT).is_file() and not stays:
            old, _ = read_readout(path, parts.config)
            if old is not None and old.is_usual(parts.config):
                (path / READOUT).unlink()
            else:
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
    write_whole(path / CONFIG, _json({**head, CHECKSUM: checksum(head)}))


def checksum(head: Mapping[str, Any]) -> str:
    """Return the checksum of the content of a `config.json`, without the checksum itself, in any layout."""
    rest = {key: value for key, value in head.items() if key != CHECKSUM}
    return sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has exactly this content."""
    try:
        return path.stat().st_size == len(content) and read_bytes(path, len(content), "it") == content
    except OSError:
        return False


def set_aside(path: Path) -> Path:
    """Move the model in `path` into a subfolder, and return that."""
    number = 1
    while (aside := path / f"earlier-{number}").exists():
        number += 1
    make_folder(aside)
    with writing(aside):
        for name in (CONFIG, WEIGHTS, JOINT, SOURCE, TARGET, SHORTLIST, READOUT):
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
            if len(path.parts) <= 2 and not path.is_absolute()
            else ""
        )
        raise ModelError(f"{path}: there is no such model folder{hub}")
    if not (path / CONFIG).exists():
        unfinished = (path / "checkpoints").is_dir()
        hint = "; its training was not finished: resume it" if unfinished else ""
        raise ModelError(f"{path}: this folder has no model (there is no {CONFIG}){hint}")
    try:
        head = read_json(path / CONFIG, limit=SETTINGS)
    except OSError as error:
        raise ModelError(f"{path / CONFIG}: cannot be read ({error.strerror})") from None
    if isinstance(head, dict) and isinstance(kind := head.get("model_type"), str):
        raise ModelError(
            f"{path / CONFIG}: this is a model of the type '{kind:.60}'; of other formats only marian translates here "
            "(heedful see shows the attention of any model of transformers)"
        )
    if not isinstance(head, dict) or type(head.get("format")) is not int or head["format"] < 1:
        raise ModelError(f"{path / CONFIG}: this is not the config of a heedful model (it has no format number)")
    if head["format"] > FORMAT:
        raise NewerFormatError(
            f"{path}: written in format {head['format']!s:.40} by heedful {head.get('heedful')!s:.40}; "
            f"this is heedful {__version__}, which reads format {FORMAT}. Upgrade heedful to open it"
        )
    if not all(isinstance(head.get(key), dict) for key in ("config", "notes", "files")):
        raise ModelError(f"{path / CONFIG}: config, notes or files are missing; the file is damaged")
    _check_notes(head["notes"], path / CONFIG)
    if CHECKSUM in head and head[CHECKSUM] != checksum(head):
        raise ModelError(
            f"{path / CONFIG}: the checksum does not match; the file is damaged or changed. If it was changed on "
            f"purpose, remove '{CHECKSUM}' from it"
        )
    return head


def read_model(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read a model folder; raises ModelError if anything in it is damaged."""
    return ModelFolder(path).parts(device)


class ModelFolder:
    """A model folder with its settings and vocabularies; they limit the size of its other files."""

    def __init__(self, path: Path) -> None:
        self.path, self.head = path, about(path)
        for name in self.head["files"]:
            if name not in KNOWN:
                raise ModelError(f"{path / CONFIG}: '{name!a}' is not a file of a model")
        if CHECKSUM not in self.head:
            logger.warning("%s: no checksum in it, so changes are not detected", path / CONFIG)
        try:
            self.config = Config.build(self.head["config"])
            self.source: Codec | ImageInput
            image, joint = self.config.image, self.config.text.joint
            names = (TARGET,) if image else (JOINT,) if joint else (SOURCE, TARGET)
            if missing := {WEIGHTS, *names} - self.head["files"].keys():
                raise ModelError(f"{', '.join(sorted(missing))} is not listed in {CONFIG}")
            codecs = [self._codec(name) for name in names]
            self.source, self.target = codecs[0] if image is None else ImageInput(image), codecs[-1]
            # Built on the meta device first, so that absurd settings take no memory.
            self.model = build_empty(self.config, self.source, self.target)
        except HeedfulError as error:
            raise ModelError(self._in_folder(error)) from None

    def _in_folder(self, error: HeedfulError) -> str:
        """Return the message of an error with the path of the folder, if it does not begin with it."""
        message = str(error)
        return message if message.startswith(printable(str(self.path))) else f"{self.path}: {message}"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight."""
        return {name: tuple(weight.shape) for name, weight in self.model.state_dict().items()}

    def parts(self, device: torch.device | None = None) -> ModelParts:
        """Read the weights and the read-out, and return the model."""
        try:
            weights = self.tensors(WEIGHTS)
            _check_weights(self.model, weights)
            model = load_weights(self.model, weights, self.config, self.source, self.target)
            if SHORTLIST in self.head["files"] and isinstance(model, Transformer):
                model.shortlist = self._shortlist()
        except HeedfulError as error:
            raise ModelError(self._in_folder(error)) from None
        with memory_guard(f"opening {self.path}", "choose the device cpu"):
            read = read_readout(self.path, self.config)
            return ModelParts(self.config, model.to(device).eval(), self.source, self.target, self.head["notes"], *read)

    def _shortlist(self) -> Shortlist:
        """Read the shortlist; raises ModelError if it does not fit the vocabularies."""
        sizes = len(cast(Codec, self.source)), len(self.target)
        limit = 8 * (sizes[0] + 1 + sizes[1] + sizes[0] * min(CANDIDATES, sizes[1])) + HEADER[0]
        tensors = unpack(self.content(SHORTLIST, limit, f"{SHORTLIST} of a model with these vocabularies"), SHORTLIST)
        try:
            shortlist = Shortlist.build(tensors, *sizes)
        except ShapeError as error:
            raise ModelError(f"{SHORTLIST}: {error}") from None
        if not bool((shortlist.always == END).any()):
            raise ModelError(f"{SHORTLIST}: always lacks </s>, so that no translation would end")
        return shortlist

    def tensors(self, name: str, copies: int = 1) -> dict[str, Tensor]:
        """Return the tensors of a listed file, which may have `copies` of each weight."""
        weights = self.model.state_dict()
        numbers = sum(weight.numel() for weight in weights.values())
        limit = copies * (WIDEST * numbers + HEADER[1] * len(weights)) + HEADER[0]
        return unpack(self.content(name, limit, f"{name} of a model with these settings"), name)

    def content(self, name: str, limit: int, what: str) -> bytes:
        """Return the content of a listed file; raises ModelError if size, limit or checksum are violated."""
        path, facts = self.path / name, self.head["files"][name]
        size = facts.get("bytes") if isinstance(facts, dict) else None
        if type(size) is not int or size < 0:
            raise ModelError(f"{self.path / CONFIG}: the size of {name} is missing")
        try:
            with open_plain(path) as file:
                actual = os.fstat(file.fileno()).st_size
                if actual != size:
                    raise ModelError(f"{path}: has {actual} bytes, expected {size}; the file is truncated or changed")
                if size > limit:
                    raise ModelError(f"{path}: has {megabytes(size)}; {what} has at most {megabytes(limit)}")
                content = file.read(size)
        except NotPlainError as error:
            raise ModelError(f"{path}: {error.strerror}") from None
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror}); the model is incomplete") from None
        if sha256(content).hexdigest() != facts.get("sha256"):
            raise ModelError(f"{path}: the checksum is not the one in {CONFIG}; the file is damaged or changed")
        return content

    def _codec(self, name: str) -> Codec:
        try:
            return Codec.parse(self.content(name, max_json(), "a JSON file (HEEDFUL_MAX_JSON)").decode("utf-8"))
        except UnicodeDecodeError:
            raise ModelError(f"{name}: this is not UTF-8") from None
        except ModelError as error:
            named = str(error).startswith(printable(str(self.path)))
            raise ModelError(str(error) if named else f"{name}: {error}") from None


def write_readout(path: Path, readout: Readout) -> None:
    """Write the read-out of a model into its folder, or beside a model that is a file."""
    write_whole(readout_file(path), _json(readout.plain()))


def _json(record: Mapping[str, Any]) -> bytes:
    """Return a record as JSON; bytes of file names that are not UTF-8 are escaped."""
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _check_notes(notes: Mapping[str, Any], path: Path) -> None:
    """Raise ModelError unless the notes are numbers, the scores of a validation or None, and the names of models."""
    scores = notes.get("validation")
    if scores is not None and not (isinstance(scores, dict) and {"loss", "accuracy"} <= scores.keys()):
        raise ModelError(f"{path}: the notes' validation is {scores!r:.100}, expected its scores; the file is damaged")
    for key in NAMED:
        if not isinstance(notes.get(key, ""), str):
            raise ModelError(
                f"{path}: '{key}' in the notes is {notes[key]!r:.100}, expected a name; the file is damaged"
            )
    values = {key: value for key, value in notes.items() if key not in ("validation", *NAMED)} | (scores or {})
    for key, value in values.items():
        if not isinstance(value, int | float):
            raise ModelError(
                f"{path}: '{key:.100}' in the notes is {value!r:.100}, expected a number; the file is damaged"
            )


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    return safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})


def unpack(content: bytes, name: str) -> dict[str, Tensor]:
    """Return the tensors in the content of a safetensors file."""
    with foreign(f"{name}: this is not a safetensors file"):
        return safetensors.torch.load(content)


def build_empty(config: Config, source: Codec | ImageInput, target: Codec) -> Network:
    """Build a model on the meta device, where it takes no memory."""
    with torch.device("meta"):
        return build(config.model, config.image or len(cast(Codec, source)), len(target))


def load_weights(
    model: Network, weights: Mapping[str, Tensor], config: Config, source: Codec | ImageInput, target: Codec
) -> Network:
    """Return a model of `build_empty` with these weights, as float32.

    Networks of timm have buffers that are no weights and that they compute when they are built. With these, the model
    is built again.
    """
    model.load_state_dict({name: weight.float() for name, weight in weights.items()}, assign=True)
    if any(buffer.is_meta for buffer in model.buffers()):
        model = build(config.model, config.image or len(cast(Codec, source)), len(target))
        model.load_state_dict(weights)
    return model


def _check_weights(model: Network, weights: Mapping[str, Tensor]) -> None:
    """Raise ModelError if weights do not match a model, or are not finite."""
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in wanted or name not in weights:
            problem = "is missing" if name in wanted else "is not a weight of this model"
            raise ModelError(f"{WEIGHTS}: '{name}' {problem}")
        if (shape := tuple(weights[name].shape)) != wanted[name]:
            raise ModelError(f"{WEIGHTS}: '{name}' has shape {shape}, expected {wanted[name]}")
        if not weights[name].is_floating_point():
            raise ModelError(f"{WEIGHTS}: '{name}' holds {weights[name].dtype}, expected floating point numbers")
        check_finite(f"{WEIGHTS}: '{name}'", weights[name])


def check_finite(name: str, weight: Tensor) -> None:
    """Raise ModelError if a weight, as float32, has values that are infinite or not a number."""
    finite = torch.isfinite(weight.float())
    if not finite.all():
        bad = finite.numel() - int(finite.sum())
        raise ModelError(
            f"{name} has {bad:,} of {finite.numel():,} numbers that are infinite or not a number; "
            "the weights are damaged, or training diverged: use another checkpoint or copy"
        )
