"""Images: reading files that may come from strangers, and folders, zip and tar archives of them.

PNG, JPEG, WebP and GIF are read with Pillow (the extra `images`). The size of an image is read from its header and
compared with the limit before anything is decoded. Every error is a DataError with the name of the image.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from heedful.config import ImageConfig
from heedful.errors import DataError, HeedfulError, install_command
from heedful.files import NotPlainError, Unpacked, has_hole, megabytes, open_plain
from heedful.text import END, Encoded
from heedful.trace import ImageRegions, Text

if TYPE_CHECKING:
    from PIL import Image

Pixels = np.ndarray[Any, np.dtype[np.uint8]]

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
URL = re.compile(r"https?://", re.IGNORECASE)
ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".webp", ".gif")
ALLOWED = "expected PNG, JPEG, WebP or GIF"
# How files begin that are no images, or images that are not read.
STARTS = {
    b"%PDF": "a PDF document",
    b"BM": "a BMP image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"\0\0\1\0": "an icon (ICO)",
    b"PK\3\4": "a zip archive",
    b"\x1f\x8b": "a gzip file",
}
BRANDS = {b"heic": "a HEIC image", b"heix": "a HEIC image", b"mif1": "a HEIF image", b"avif": "an AVIF image"}
SVG = re.compile(rb"^\s*(?:<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>|\s)*<svg[\s>]", re.DOTALL | re.IGNORECASE)
HTML = re.compile(rb"^\s*<(?:!doctype\s+html|html)", re.IGNORECASE)
# The methods of Pillow's `transpose` that each EXIF orientation stands for.
ORIENTATIONS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
ORIENTATION = 0x0112  # the EXIF tag
SCANS = 64  # of a JPEG file: each may be a few bytes, and take as long as all pixels; progressive ones have about 10
SEGMENTS = 10_000  # of a JPEG file
# A marker of a JPEG file; FF00 and FFD0 to FFD7 are part of a scan, and FF01 has no content.
MARKER = re.compile(rb"\xff([\x02-\xcf\xd8-\xfe])")
HOLE = 100_000_000  # bytes of zeros in a tar archive that take no space on disk
EXAMPLES = 3
PICTURE = 512  # pixels of the longer side of an image in a trace


class ImageTooLargeError(DataError):
    """An image has more bytes or pixels than its limits allow."""


@dataclass(frozen=True)
class ImageLimits:
    """The limits of an image: bytes of its file, and pixels of its width times its height."""

    bytes: int = 20_000_000
    pixels: int = 50_000_000


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """A decoded image: its name, RGB pixels uint8 (height, width, 3), and notes on how it was read."""

    name: str
    pixels: Pixels
    notes: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The width in pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """The height in pixels."""
        return int(self.pixels.shape[0])


LIMITS = ImageLimits()


def load_image(image: object, name: str = "", limits: ImageLimits = LIMITS) -> LoadedImage:
    """Return an image as RGB pixels: of a file (str or Path), its bytes, a PIL.Image.Image, or an array.

    The EXIF orientation is applied, transparent pixels are put on white, and of an animation the first frame is read.
    An array is uint8 or float from 0 to 1, (height, width), (height, width, 3) or (height, width, 4).

    Raise DataError if it is not an image, not complete, or larger than `limits`.
    """
    if isinstance(image, str | os.PathLike):
        path = Path(os.fsdecode(image))
        if URL.match(os.fsdecode(image)):
            raise DataError(f"{os.fsdecode(image)[:200]}: URLs are not read; download the image, and name its file")
        content = _content(path, limits)
        try:
            return load_image(content, name or path.name, limits)
        except DataError as error:
            if not name:  # the error has the name without the folder
                error.args = (f"{path}: {str(error).removeprefix(f'{path.name}: ')}",)
            raise
    if isinstance(image, bytes | bytearray | memoryview):
        return _decoded(bytes(image), name or "the image", limits)
    if isinstance(image, np.ndarray):
        return _from_array(image, name or "the image", limits)
    if isinstance(image, _pillow().Image):
        name = name or os.path.basename(str(getattr(image, "filename", "") or "")) or "the image"
        _check_pixels(name, image.size, limits)
        with _errors_of_pillow(name):
            return _converted(image, name)
    raise DataError(
        f"{name or 'the image'}: {type(image).__name__} is no image; expected a file name, bytes, a PIL.Image.Image, "
        "or an array (height, width, 3)"
    )


def resized(pixels: Pixels, size: int) -> Pixels:
    """Return an image stretched to a square, uint8 (size, size, 3), with antialiasing."""
    if pixels.shape[:2] == (size, size):
        return pixels
    pillow = _pillow()
    square = pillow.fromarray(np.ascontiguousarray(pixels)).resize((size, size), pillow.Resampling.BICUBIC)
    return np.asarray(square)


@dataclass(frozen=True, eq=False)
class EncodedImage(Encoded):
    """An image as a model of images reads it: pixels uint8 (P, P, 3), and its regions as a trace has them.

    `ids` identify the image, for random samples that follow from it: one for each region, and `</s>`.
    """

    pixels: Pixels
    regions: ImageRegions
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageInput:
    """The source side of a model of images, as a vocabulary is that of a model of text: how images are encoded."""

    config: ImageConfig

    def dump(self) -> str:
        """Return what two models have in common if they read images in the same way."""
        return f"{self.config.pixels} pixels, {self.config.side} × {self.config.side} regions"

    def grid(self, image: LoadedImage, picture: bytes = b"") -> ImageRegions:
        """Return the regions of an image."""
        side = self.config.side
        return ImageRegions(image.name, image.width, image.height, side, side, picture)

    def encode(self, image: LoadedImage, picture: bool = True) -> EncodedImage:
        """Return an image resized as the model reads it, and its regions, with a `picture` for drawings or without."""
        pixels = resized(image.pixels, self.config.pixels)
        regions = self.grid(image, small_picture(image) if picture else b"")
        digest = hashlib.blake2b(pixels.tobytes(), digest_size=8).digest()
        ids = np.frombuffer(digest, np.uint8).astype(int).tolist()
        repeated = (ids * -(-regions.count // len(ids)))[: regions.count]
        return EncodedImage((*repeated, END), regions.text().spans, pixels, regions, image.notes)

    def trace(self, text: str, encoded: Encoded) -> Text:
        """Return the regions of an image as the source of a trace."""
        assert isinstance(encoded, EncodedImage)
        return encoded.regions.text()

    def batch(self, encoded: Sequence[Encoded]) -> Pixels:
        """Return the pixels of some images: uint8 (B, P, P, 3)."""
        return np.stack([one.pixels for one in encoded if isinstance(one, EncodedImage)])


def small_picture(image: LoadedImage) -> bytes:
    """Return an image for drawings: at most `PICTURE` pixels on its longer side, as PNG if it is small, or JPEG."""
    picture = _pillow().fromarray(image.pixels)
    picture.thumbnail((PICTURE, PICTURE))
    content = {}
    for kind, options in (("PNG", {}), ("JPEG", {"quality": 88})):
        picture.save(file := io.BytesIO(), kind, **options)
        content[kind] = file.getvalue()
    return content["PNG"] if len(content["PNG"]) <= 2 * len(content["JPEG"]) else content["JPEG"]


def _pillow() -> Any:  # noqa: ANN401  (a module of an extra)
    try:
        from PIL import Image
    except ImportError:
        raise HeedfulError(f"images need the extra images: {install_command('images')}") from None
    return Image


def _content(path: Path, limits: ImageLimits) -> bytes:
    """Return the bytes of a file; raise DataError if it cannot be read, or has too many."""
    try:
        with open_plain(path) as file:
            _check_bytes(str(path), os.fstat(file.fileno()).st_size, limits)
            content = file.read(limits.bytes + 1)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except NotPlainError as error:
        files = f"; give its files, such as {path / '*.jpg'}" if path.is_dir() else ""
        raise DataError(f"{path}: {error.strerror}{files}") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    _check_bytes(str(path), len(content), limits)
    return content


def _check_bytes(name: str, size: int, limits: ImageLimits) -> None:
    if size > limits.bytes:
        raise ImageTooLargeError(f"{name}: has {megabytes(size)}; an image may have at most {megabytes(limits.bytes)}")


def _check_pixels(name: str, size: tuple[int, int], limits: ImageLimits) -> None:
    width, height = size
    if width * height > limits.pixels:
        raise ImageTooLargeError(
            f"{name}: has {width:,} × {height:,} pixels; an image may have at most {limits.pixels / 1e6:g} million"
        )
    if width < 1 or height < 1:
        raise DataError(f"{name}: has {width:,} × {height:,} pixels, expected at least 1 × 1")


def _decoded(content: bytes, name: str, limits: ImageLimits) -> LoadedImage:
    """Return the image in the bytes of a file."""
    _check_bytes(name, len(content), limits)
    if not content:
        raise DataError(f"{name}: the file is empty, {ALLOWED}")
    if content.startswith(b"\xff\xd8"):
        _check_jpeg(content, name, limits)
    elif (size := _declared_size(content)) is not None:
        _check_pixels(name, size, limits)
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(content), formats=FORMATS)
    except pillow.DecompressionBombError:
        most = f"{limits.pixels / 1e6:g} million"
        raise ImageTooLargeError(f"{name}: has too many pixels; at most {most} are allowed") from None
    except (MemoryError, RecursionError):
        raise DataError(f"{name}: too large to be decoded") from None
    except Exception:  # Pillow raises many kinds for damaged files
        raise DataError(f"{name}: {_kind(content)}") from None
    with image:
        _check_pixels(name, image.size, limits)
        with _errors_of_pillow(name):
            # A photograph of a telephone may have a second, smaller or deeper one in the same file (MPO).
            animated = bool(getattr(image, "is_animated", False)) and image.format != "MPO"
            image.load()
            loaded = _converted(image, name)
    if animated:
        note = f"{name}: an animation; only its first frame is read"
        return LoadedImage(name, loaded.pixels, (note, *loaded.notes))
    return loaded


@contextmanager
def _errors_of_pillow(name: str) -> Iterator[None]:
    """Turn any error while an image is decoded into DataError."""
    try:
        yield
    except HeedfulError:
        raise
    except MemoryError:
        raise DataError(f"{name}: too large to be decoded: memory ran out") from None
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(f"{name}: the image is damaged or cut short ({reason:.150})") from None


def _converted(image: Image.Image, name: str) -> LoadedImage:
    """Return the pixels of an image as RGB, turned as EXIF says, on white where it is transparent."""
    pillow = _pillow()
    notes: tuple[str, ...] = ()
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:
        orientation, notes = 1, (f"{name}: its EXIF data are damaged; the orientation is not known",)
    if image.mode.startswith("I") or image.mode == "F":
        image = pillow.fromarray(_eight_bits(np.asarray(image), image.mode))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        front = image.convert("RGBA")
        image = pillow.new("RGBA", front.size, (255, 255, 255, 255))
        image.alpha_composite(front)
    image = image.convert("RGB")
    if orientation in ORIENTATIONS:
        image = image.transpose(getattr(pillow.Transpose, ORIENTATIONS[orientation]))
    return LoadedImage(name, np.asarray(image), notes)


def _eight_bits(values: np.ndarray[Any, Any], mode: str) -> Pixels:
    """Return grey values of 16 bits, or floats, as 8 bits."""
    if mode == "F":
        values = np.nan_to_num(values, nan=0.0, posinf=255.0, neginf=0.0)
        values = values * 255 if values.max(initial=0) <= 1 else values
    elif mode != "I" or values.max(initial=0) > 255:
        values = np.clip(values, 0, 65535) >> 8
    return np.asarray(np.clip(values, 0, 255), np.uint8)


def _from_array(array: np.ndarray[Any, Any], name: str, limits: ImageLimits) -> LoadedImage:
    shape = array.shape
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        hint = "; move the axis of the colours to the end" if len(shape) == 3 and shape[0] in (1, 3, 4) else ""
        raise DataError(f"{name}: an array of shape {shape}, expected (height, width, 3){hint}")
    _check_pixels(name, (shape[1], shape[0]), limits)
    if array.dtype != np.uint8:
        if array.dtype.kind not in "f" or not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise DataError(f"{name}: an array of {array.dtype}, expected uint8, or floats from 0 to 1")
        array = np.rint(array * 255).astype(np.uint8)
    array = array[:, :, None] if len(shape) == 2 else array
    if array.shape[2] == 4:
        alpha = array[:, :, 3:].astype(np.uint16)
        array = ((array[:, :, :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return LoadedImage(name, np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3))))


def _kind(content: bytes) -> str:
    """Return why a file is not an image that can be read: what it is instead, if that can be seen."""
    head = content[:4096]
    if SVG.match(head):
        return f"this is an SVG drawing, {ALLOWED}; render it to a PNG first"
    if HTML.match(head):
        return f"this is a page of HTML, {ALLOWED}; was an error page saved in place of the image?"
    for start, what in STARTS.items():
        if head.startswith(start):
            return f"this is {what}, {ALLOWED}"
    if head[4:8] == b"ftyp" and head[8:12] in BRANDS:
        return f"this is {BRANDS[head[8:12]]}, {ALLOWED}"
    if head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")):
        return "the image is damaged or cut short"
    if b"\0" not in head:
        try:
            head.decode("utf-8")
            return f"this is text, not an image; {ALLOWED}"
        except UnicodeDecodeError:
            pass
    return f"this is not an image; {ALLOWED}"


def _declared_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height by the header of a file, without Pillow; None if the header is not understood."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        return struct.unpack(">II", content[16:24])
    if content[:4] == b"GIF8" and len(content) >= 10:
        return struct.unpack("<HH", content[6:10])
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP" and len(content) >= 30:
        return _webp_size(content[12:30])
    return None


def _webp_size(chunk: bytes) -> tuple[int, int] | None:
    if chunk[:4] == b"VP8X":
        return int.from_bytes(chunk[12:15], "little") + 1, int.from_bytes(chunk[15:18], "little") + 1
    if chunk[:4] == b"VP8L":
        bits = int.from_bytes(chunk[9:13], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk[:4] == b"VP8 ":
        return int.from_bytes(chunk[14:16], "little") & 0x3FFF, int.from_bytes(chunk[16:18], "little") & 0x3FFF
    return None


def _check_jpeg(content: bytes, name: str, limits: ImageLimits) -> None:
    """Check the size in the frame header (SOF) of a JPEG file, and the numbers of its scans (SOS) and segments.

    What follows the end of the image, such as a video or a second image, is not decoded and not checked.
    """
    scans, position = 0, 2
    for _ in range(SEGMENTS + 1):
        marker = MARKER.search(content, position)
        if marker is None or marker[1] == b"\xd9":  # the end of the image
            return
        code, begin = marker[1][0], marker.end()
        if 0xC0 <= code <= 0xCF and code not in (0xC4, 0xC8, 0xCC) and begin + 7 <= len(content):
            height, width = struct.unpack(">HH", content[begin + 3 : begin + 7])
            if height:  # 0: it follows after the first scan
                _check_pixels(name, (width, height), limits)
        elif code == 0xDA:
            scans += 1
            if scans > SCANS:
                raise DataError(f"{name}: this JPEG has more than {SCANS} scans, which would take long to decode")
        position = begin + int.from_bytes(content[begin : begin + 2], "big")
    raise DataError(f"{name}: this JPEG has more than {SEGMENTS:,} segments, expected a few for each of its scans")


class ImageFiles:
    """The images of a folder with its subfolders, or of a zip or tar archive (plain or gzip), by name.

    A name is a path with `/`, relative to the folder. Hidden files are left out. In a folder, links to files are
    followed, also to files elsewhere, and links to folders are not. Links and special files in an archive, and entries
    whose path leaves it, are ignored with a note in `notes`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.notes: list[str] = []
        if self.path.is_dir():
            self._archive: _Folder | _Zip | _Tar = _Folder(self.path)
        else:
            self._archive = self._opened()
        for why, names in self._archive.ignored.items():
            shown = ", ".join(f"'{name[:80]}'" for name in names[:EXAMPLES])
            entries = "entry" if len(names) == 1 else "entries"
            self.notes.append(f"{self.path}: ignored {len(names):,} {entries} that {why}: {shown}")

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return list(self._archive.sizes)

    @cached_property
    def images(self) -> list[str]:
        """The names that end as those of images do."""
        return [name for name in self._archive.sizes if name.lower().endswith(ENDINGS)]

    def __len__(self) -> int:
        return len(self._archive.sizes)

    def __contains__(self, name: object) -> bool:
        return name in self._archive.sizes

    def find(self, name: str) -> str | None:
        """Return the file that a name means, or None.

        That is the file of this path, or else the only one of this file name. If the name has folders, those of both
        paths must be equal, counted from the end, as far as both go: data/train/a.png may be train/a.png or a.png, and
        never test/a.png. The ending may be missing if one file has the name with it. Raise DataError if the path leaves
        the folder.
        """
        if name in self._archive.sizes:
            return name
        outside = False
        plain = _normal(name)
        if plain is None:
            plain, outside = self._inside(name)
        if plain in self._archive.sizes and not outside:
            return plain
        *folders, last = plain.split("/")
        for known in (self._by_last, self._by_stem):
            names = {file: _common(folders, file.split("/")[:-1]) for file in known.get(last, ())}
            most = max(names.values(), default=-1)
            best = [file for file, common in names.items() if common == most]
            if len(best) == 1 and most >= int(outside):
                return best[0]
        if outside:
            raise DataError(f"the path '{name[:100]}' leaves {self.path}, expected a path inside it")
        return None

    def read(self, name: str, limits: ImageLimits = LIMITS) -> bytes:
        """Return the bytes of a file; raise DataError if there is none of this name, or it is too large."""
        if name not in self._archive.sizes:
            raise DataError(f"{name}: there is no such file in {self.path}")
        _check_bytes(name, self._archive.sizes[name], limits)
        content = self._archive.read(name, limits)
        _check_bytes(name, len(content), limits)
        return content

    def load(self, name: str, limits: ImageLimits = LIMITS) -> LoadedImage:
        """Return an image; raise DataError if there is none of this name, or it cannot be read."""
        return load_image(self.read(name, limits), name, limits)

    def fingerprint(self, names: Sequence[str] | None = None) -> str:
        """Return a hash of some files, or all: names, with the size and the time or checksum of each.

        Nothing is read.
        """
        stamps = self._archive.stamps(sorted(self._archive.sizes) if names is None else names)
        return hashlib.blake2b(repr(stamps).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @cached_property
    def _by_last(self) -> dict[str, list[str]]:
        return self._grouped(lambda last: last)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        return self._grouped(lambda last: last.rpartition(".")[0] if last.lower().endswith(ENDINGS) else "")

    def _grouped(self, key: Any) -> dict[str, list[str]]:  # noqa: ANN401
        groups: dict[str, list[str]] = {}
        for name in self._archive.sizes:
            groups.setdefault(key(name.rpartition("/")[2]), []).append(name)
        groups.pop("", None)
        return groups

    def _inside(self, name: str) -> tuple[str, bool]:
        """Return an absolute path as one relative to the folder, or else to the root, and whether it is outside."""
        path = name.replace("\\", "/")
        if "\0" in path or ".." in path.split("/") or not path.strip("/."):
            raise DataError(f"the path '{name[:100]}' leaves {self.path}, expected a path inside it")
        for root in (self.path.absolute(), self.path.resolve()):
            if os.path.isabs(name) and Path(name).is_relative_to(root):
                return Path(name).relative_to(root).as_posix(), False
        return "/".join(part for part in path.split("/") if part not in ("", ".")), True

    def _opened(self) -> _Zip | _Tar:
        try:
            with open_plain(self.path) as file:
                head = file.read(512)
                status = os.fstat(file.fileno())
                hole = has_hole(file, HOLE)
            key = str(self.path.resolve()), status.st_ino, status.st_size, status.st_mtime_ns
            if (known := _ARCHIVES.get(key)) is not None:
                return known
            if hole:
                raise DataError(f"{self.path}: has more than {megabytes(HOLE)} of zeros, as no archive of images has")
            archive: _Zip | _Tar
            if head[:2] == b"PK":
                archive = _Zip(self.path)
            elif head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar" or self.path.suffix.lower() == ".tar":
                archive = _Tar(self.path, packed=head[:2] == b"\x1f\x8b")
            else:
                expected = "expected a folder, or a zip or tar archive of images"
                raise DataError(f"{self.path}: this is not an archive; {expected}")
        except DataError:
            raise
        except FileNotFoundError:
            raise DataError(f"{self.path}: there is no such folder or archive of images") from None
        except NotPlainError as error:
            raise DataError(f"{self.path}: {error.strerror}, a folder, or a zip or tar archive of images") from None
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror or error})") from None
        except Exception as error:  # zipfile, tarfile and the decompressors raise many kinds for damaged files
            raise DataError(f"{self.path}: the archive is damaged or cut short ({_reason(error)})") from None
        _ARCHIVES[key] = archive
        return archive


def _reason(error: Exception) -> str:
    return str(error)[:150] or type(error).__name__


def _common(folders: Sequence[str], others: Sequence[str]) -> int:
    """Return how many folders two paths have in common at their ends; -1 if they differ before one of them begins.

    If the first has none, any other is as good.

    >>> _common(["data", "train"], ["train"]), _common(["train"], ["test"]), _common([], ["test"])
    (1, -1, 0)
    """
    count = min(len(folders), len(others))
    return count if folders[len(folders) - count :] == others[len(others) - count :] else -1


def _normal(name: str) -> str | None:
    """Return a path without `.` and with `/`; None if it is absolute or has a part `..`.

    >>> _normal("a/./b.png"), _normal("..\\\\x.png"), _normal("/etc/passwd"), _normal("c:/x.png")
    ('a/b.png', None, None, None)
    """
    path = name.replace("\\", "/")
    if path.startswith("/") or re.match("[A-Za-z]:", path) or "\0" in path:
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


class _Folder:
    """The files of a folder: their sizes by name."""

    def __init__(self, path: Path) -> None:
        self.path, self.ignored = path, dict[str, list[str]]()
        self.sizes: dict[str, int] = {}
        self.times: dict[str, int] = {}
        pending = [""]
        while pending:
            prefix = pending.pop()
            try:
                with os.scandir(path / prefix) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                raise DataError(f"{path / prefix}: cannot be read ({error.strerror or error})") from None
            for entry in found:
                name = prefix + entry.name
                if entry.name.startswith(".") or entry.name == "__MACOSX":
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{name}/")
                        continue
                    status = entry.stat()
                except OSError:  # a link to nothing
                    continue
                if stat.S_ISREG(status.st_mode):
                    self.sizes[name], self.times[name] = status.st_size, status.st_mtime_ns

    def read(self, name: str, limits: ImageLimits) -> bytes:
        return _content(self.path / name, limits)

    def stamps(self, names: Sequence[str]) -> list[tuple[object, ...]]:
        return [(name, self.sizes[name], self.times[name]) for name in names]


class _Zip:
    """The files of a zip archive."""

    def __init__(self, path: Path) -> None:
        self.path, self.ignored = path, dict[str, list[str]]()
        self.archive = zipfile.ZipFile(path)
        weakref.finalize(self, self.archive.close)
        self.entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self.archive.infolist():
            name, kind = _normal(entry.filename), stat.S_IFMT(entry.external_attr >> 16)
            if name is None:
                self.ignored.setdefault("leave the archive", []).append(entry.filename)
            elif entry.is_dir() or _hidden(name):
                continue
            elif kind not in (0, stat.S_IFREG):
                self.ignored.setdefault("are links or special files", []).append(entry.filename)
            else:
                self.entries[name] = entry
        self.sizes = {name: entry.file_size for name, entry in self.entries.items()}

    def read(self, name: str, limits: ImageLimits) -> bytes:
        entry = self.entries[name]
        if entry.flag_bits & 1:
            raise DataError(f"{name}: is encrypted in {self.path}; unpack the archive first")
        try:
            with self.archive.open(entry) as file:
                return file.read(limits.bytes + 1)
        except Exception as error:  # each decompressor has its own kinds
            raise DataError(f"{name}: cannot be read from {self.path} ({_reason(error)})") from None

    def stamps(self, names: Sequence[str]) -> list[tuple[object, ...]]:
        return [(name, self.entries[name].file_size, self.entries[name].CRC) for name in names]


class _Tar:
    """The files of a tar archive; one that is packed with gzip is unpacked to a temporary file."""

    def __init__(self, path: Path, packed: bool) -> None:
        self.path, self.ignored = path, dict[str, list[str]]()
        self.places: dict[str, tuple[int, int]] = {}
        self.lock = threading.Lock()
        with open_plain(path) as plain:
            status = os.fstat(plain.fileno())
            self.stamp = status.st_size, status.st_mtime_ns
            self.file: IO[bytes] = tempfile.TemporaryFile() if packed else os.fdopen(os.dup(plain.fileno()), "rb")  # noqa: SIM115
            weakref.finalize(self, self.file.close)
            if packed:
                self._unpack(io.BufferedReader(Unpacked(plain, str(path)), 1 << 20))
        self.file.seek(0)
        with tarfile.open(fileobj=self.file, mode="r:") as archive:
            while (entry := archive.next()) is not None:
                self._add(entry)
                archive.members = []  # type: ignore[attr-defined]  # an archive may have very many
        self.sizes = {name: size for name, (_, size) in self.places.items()}

    def _unpack(self, packed: IO[bytes]) -> None:
        """Unpack the archive to the temporary file; raise DataError if it takes half of the space that is left."""
        room, size = shutil.disk_usage(tempfile.gettempdir()).free // 2, 0
        while content := packed.read(1 << 20):
            size += len(content)
            if size > room:
                raise DataError(
                    f"{self.path}: unpacks to more than {megabytes(room)}, half of the space that is left in "
                    f"{tempfile.gettempdir()}; unpack it to a folder"
                )
            self.file.write(content)
        self.file.flush()

    def _add(self, entry: tarfile.TarInfo) -> None:
        name = _normal(entry.name)
        if entry.isdir():
            return
        if name is None:
            self.ignored.setdefault("leave the archive", []).append(entry.name)
        elif not entry.isreg() or entry.issparse():
            self.ignored.setdefault("are links or special files", []).append(entry.name)
        elif not _hidden(name):
            self.places[name] = entry.offset_data, entry.size

    def read(self, name: str, limits: ImageLimits) -> bytes:
        begin, size = self.places[name]
        try:
            with self.lock:
                self.file.seek(begin)
                content = self.file.read(min(size, limits.bytes + 1))
        except OSError as error:
            raise DataError(f"{name}: cannot be read from {self.path} ({error.strerror or error})") from None
        if len(content) < min(size, limits.bytes):
            raise DataError(f"{name}: the archive {self.path} is cut short")
        return content

    def stamps(self, names: Sequence[str]) -> list[tuple[object, ...]]:
        return [self.stamp, *((name, *self.places[name]) for name in names)]


# Archives that are open, by path and time: several files of captions may have their images in the same one.
_ARCHIVES: weakref.WeakValueDictionary[tuple[str, int, int, int], _Zip | _Tar] = weakref.WeakValueDictionary()
