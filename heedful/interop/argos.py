"""Reading Argos Translate's packages: a CTranslate2 model with its SentencePiece model, in a zip file or unpacked.

`NAME.argosmodel` is a zip with one folder: `metadata.json` (the languages), `model/` (the CTranslate2 model) and
`sentencepiece.model`. Nothing is unpacked to the disk. Stanza's files, by which Argos finds sentences, are not read:
heedful splits texts itself. A read-out is kept beside the package, as `NAME.argosmodel.readout.json`.

A package may come from a stranger. Before anything is read: the size of the list of its files; that no name leads out
of the package, and none is twice; that no file is a link or encrypted. A file is read up to the size that its entry
says, at most 20 times the bytes that it takes in the package.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch

from heedful.errors import ModelError
from heedful.files import NotPlainError, megabytes, open_plain
from heedful.interop.ctranslate2 import WEIGHTS
from heedful.interop.ctranslate2_import import ModelFiles, read_files
from heedful.interop.folder import ModelParts

ENDING = ".argosmodel"
METADATA, MODEL = "metadata.json", "model/"
GROWTH, GROWTH_FROM = 20, 1_000_000  # of a file that is unpacked: weights hardly shrink, vocabularies by a factor of 6
DIRECTORY = 2_000_000  # bytes of the list of files
TAIL = (1 << 16) + 22  # bytes at the end of a zip file, in which the place of the list is
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
ENCRYPTED = 1


class PackageFiles(ModelFiles):
    """The files in the folder of a package; raises ModelError for a package that is damaged or not safe."""

    def __init__(self, path: Path, file: IO[bytes], size: int) -> None:
        super().__init__(path)
        self.size = size
        _check_directory(path, file, size)
        try:
            self.zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError) as error:
            raise ModelError(f"{path}: this is not a zip file, or it is damaged ({error})") from None
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member in self.zip.infolist():
            self._check(member)
            self.members[member.filename] = member
        tops = {name[: -len(MODEL + WEIGHTS)] for name in self.members if f"/{name}".endswith(f"/{MODEL}{WEIGHTS}")}
        if len(tops) != 1:
            found = "none" if not tops else f"{len(tops)}"
            raise ModelError(f"{path}: an Argos package has one model, {MODEL}{WEIGHTS}; there is {found} in this file")
        self.top = tops.pop()

    def _check(self, member: zipfile.ZipInfo) -> None:
        name, mode = member.filename, member.external_attr >> 16
        parts = name.replace("\\", "/").split("/")
        why = ""
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            why = "leads out of the package"
        elif stat.S_ISLNK(mode):
            why = "is a link"
        elif member.flag_bits & ENCRYPTED:
            why = "is encrypted"
        elif name in self.members:
            why = "is there twice"
        elif member.compress_type not in METHODS:
            why = f"is compressed by method {member.compress_type}; stored and deflated files are read"
        elif member.header_offset + member.compress_size > self.size:
            why = f"takes {member.compress_size:,} bytes, more than the package has"
        elif member.file_size > max(GROWTH_FROM, GROWTH * member.compress_size):
            why = (
                f"unpacks from {megabytes(member.compress_size)} to {megabytes(member.file_size)}; "
                f"a file of a model may grow {GROWTH} times"
            )
        if why:
            raise ModelError(f"{self.where(name, '')}: {why}")

    def where(self, name: str, top: str | None = None) -> str:
        """Return a file's name for messages."""
        return f"{self.path}: {self.top if top is None else top}{name:.200}"

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.top + name in self.members

    def read(self, name: str, limit: int, what: str) -> bytes:
        """Return the content of a file of at most `limit` bytes; `what` is its kind, for the error."""
        if not self.has(name):
            raise ModelError(f"{self.where(name)}: there is no such file; the package is incomplete")
        member = self.members[self.top + name]
        if member.file_size > limit:
            has = megabytes(member.file_size)
            raise ModelError(f"{self.where(name)}: has {has}; {what} may have at most {megabytes(limit)}")
        try:
            content = self.zip.read(member)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, struct.error, ValueError) as error:
            raise ModelError(f"{self.where(name)}: cannot be unpacked ({error}); the package is damaged") from None
        if len(content) != member.file_size:
            raise ModelError(f"{self.where(name)}: has {len(content):,} bytes, expected {member.file_size:,}")
        return content

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Unpack a file in memory, and return it with its size."""
        content = self.read(name, GROWTH_FROM + GROWTH * self.size, "a file of this package")
        yield io.BytesIO(content), len(content)


def _check_directory(path: Path, file: IO[bytes], size: int) -> None:
    """Raise ModelError unless a file ends as a zip file does, with a list of its files that is not too long."""
    file.seek(max(0, size - TAIL))
    tail = file.read(TAIL)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        raise ModelError(f"{path}: this is not a zip file, or it is not complete; fetch it again")
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        raise ModelError(f"{path}: this zip file has the format for more than 4 GB, which is not read; pack it again")
    (length,) = struct.unpack("<I", tail[at + 12 : at + 16])
    if length > DIRECTORY:
        raise ModelError(
            f"{path}: the list of its files has {megabytes(length)}; at most {megabytes(DIRECTORY)} is read"
        )
    file.seek(0)


def is_argos(path: Path) -> bool:
    """Whether this is an Argos package: a file with its ending, or a folder as it is unpacked to."""
    if path.suffix.lower() == ENDING:
        return True
    return os.path.lexists(path / METADATA) and os.path.lexists(path / MODEL)


def read_argos(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read an Argos package, packed or not; raises ModelError if anything in it is damaged or not supported."""
    with _files(path) as files:
        about = _languages(files)
        parts = read_files(path, files, MODEL, device, "argos")
    return replace(parts, remarks=(*about, *parts.remarks))


@contextmanager
def _files(path: Path) -> Iterator[ModelFiles]:
    if path.is_dir():
        yield ModelFiles(path)
        return
    try:
        with open_plain(path) as file:
            yield PackageFiles(path, file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file") from None
    except NotPlainError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None


def _languages(files: ModelFiles) -> list[str]:
    """Return what `metadata.json` says about the package; raise ModelError for kinds that are not supported."""
    if not files.has(METADATA):
        return []
    plain: Any = files.json(METADATA)
    where = files.where(METADATA)
    if not isinstance(plain, dict):
        raise ModelError(f"{where}: expected a JSON object, found {type(plain).__name__}")
    if plain.get("type", "translate") != "translate":
        raise ModelError(f"{where}: type is {plain['type']!r:.80}; packages that translate are read")
    if plain.get("target_prefix"):
        raise ModelError(
            f"{where}: target_prefix is {plain['target_prefix']!r:.80}; models of several target languages that begin "
            "a translation with a code are not supported"
        )
    names = [plain.get(f"{side}_name") or plain.get(f"{side}_code") for side in ("from", "to")]
    version = plain.get("package_version")
    text = [f"{names[0]!s:.60} to {names[1]!s:.60}"] if all(isinstance(name, str) for name in names) else []
    return [", ".join([*text, f"version {version:.20}"] if isinstance(version, str) else text)] if text else []
