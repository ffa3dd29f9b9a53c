"""Captions of images in files, and the regions of an image that words of its captions name.

`CaptionFile` and `CaptionList` are sources of pairs as `PairFile` and `PairList` are: the source of a pair is the name
of an image, its target a caption. An image may have several captions, each a row of its own. Formats:

| format | content |
|---|---|
| csv | columns image and caption (or other usual names), with a header or without one |
| tsv | the same, and `image#0<TAB>caption` as Flickr8k has it |
| jsonl | `{"image": "a.png", "caption": "a dog"}` on each line; `captions` may be a list |
| json | COCO's `images` and `annotations`, or one list of such objects |

A column or field `split` says which rows are for training (train, restval), for validation (val, valid, validation,
dev) and for testing (test): `CaptionFile.split` chooses among them.

Regions are JSON lines: `{"image": "a.png", "word": 1, "x": 10, "y": 20, "w": 32, "h": 32}`, with the word counted from
0 in the caption as it is in its file, and the box in pixels. `caption` (0) says which of the image's captions it is.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.data.columns import parse_columns, shortened, some
from heedful.data.files import BOM, called, is_packed, opened, raw_lines
from heedful.data.formats import PairFile, Raw, digest_of, format_of
from heedful.errors import ConfigError, DataError, choose
from heedful.files import Unpacked, check_depth, max_json, megabytes

if TYPE_CHECKING:
    from heedful.data.images import ImageFiles

FORMATS = ("csv", "tsv", "jsonl", "json")
IMAGES = ("image", "filename", "file_name", "image_id", "image_name", "image_path", "filepath", "path", "file", "img")
CAPTIONS = ("caption", "captions", "text", "sentence", "description")
# What a column `split` calls the rows for training, validation and testing; restval is Karpathy's, for COCO.
SPLITS = {
    "train": ("train", "training", "restval"),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
PURPOSES = {"train": "training", "valid": "validation", "test": "testing"}
# Which of them is read for what, best first.
USES = {"": (), "train": ("train",), "valid": ("valid", "test"), "test": ("test", "valid")}
ENDING = re.compile(r"\.(png|jpe?g|jpe|webp|gif)(#\d+)?$", re.IGNORECASE)
NUMBER = re.compile(r"#\d+$")  # of a caption, in Flickr8k's file
JSON = 512_000_000  # bytes of COCO's file of captions, unless HEEDFUL_MAX_JSON is larger; its own has 92 MB
OBJECTS = 8_000_000  # in such a file
EXAMPLES = 3

Log = Callable[[str], None]


@dataclass(frozen=True)
class Region:
    """A box in pixels of an image that a word of one of its captions names; `line` is that of its file."""

    image: str
    word: int
    x: float
    y: float
    w: float
    h: float
    caption: int = 0
    kind: str = ""
    line: int = 0


@dataclass(frozen=True)
class CaptionFile:
    """A file of captions, and the folder, zip or tar archive of their images; `regions` is a file of boxes.

    `format` is csv, tsv, jsonl or json; by default it follows from the file's name and its first line. `columns` are
    those of image and caption: two names, or two numbers from 1 if there is no header. `split` is what the captions are
    for, train, valid or test: if the file has a column `split`, only such rows are read; "": all are.
    """

    path: str
    images: str
    regions: str = ""
    format: str = ""
    columns: str = ""
    split: str = ""

    def __post_init__(self) -> None:
        choose("split", self.split, tuple(USES))
        if self.format:
            choose("format", self.format, FORMATS)
        if self.columns:
            parse_columns(self.columns)

    @property
    def name(self) -> str:
        """The file's name for messages with a line number."""
        return "stdin" if self.path == "-" else Path(self.path).name

    @property
    def full_name(self) -> str:
        """The name of the file for errors."""
        return called(self.path)

    @property
    def paths(self) -> dict[str, str]:
        """The files, by the name of the field."""
        return {name: path for name in ("path", "regions") if (path := getattr(self, name))}

    @property
    def linked(self) -> bool:
        """Whether there is a file of regions."""
        return bool(self.regions)

    def fingerprint(self) -> list[str]:
        """Return a hash key of the captions: format, all bytes, and the names of all images."""
        contents = [digest_of(Path(path)) if path else "" for path in (self.path, self.regions)]
        names = "\0".join([str(self.image_files.path), *sorted(self.image_files.names)])
        listed = hashlib.blake2b(names.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return [self.format, self.columns, self.split, *contents, listed]

    @cached_property
    def image_files(self) -> ImageFiles:
        """The images."""
        from heedful.data.images import ImageFiles

        return ImageFiles(self.images)

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield the line, the image and the caption of all rows whose image exists.

        `log` receives how many images are missing. Raise DataError if most are, and for a path outside the folder.
        """
        return _matched(self.cells(log), self.image_files, called(self.path), log or (lambda message: None))

    def cells(self, log: Log | None = None) -> Iterator[tuple[int, str, str]]:
        """Yield the line, the image as the file names it, and the caption of each row that `split` chooses."""
        log = log or (lambda message: None)
        values = self._values(log) if self.split else ()
        for line, image, caption, split in self._records(log):
            if not values or _value(split) in values or not (image or caption):
                yield line, image, caption

    @cached_property
    def splits(self) -> dict[str, int]:
        """The values of the column `split` and the number of rows of each; {} if there is none."""
        records = self._records(lambda message: None)
        counts = Counter(_value(split) for _, image, caption, split in records if image or caption)
        return dict(counts) if set(counts) != {""} else {}

    @property
    def parts(self) -> set[str]:
        """What the column `split` says that rows are for: train, valid, test."""
        return {part for part, values in SPLITS.items() if not self.splits.keys().isdisjoint(values)}

    def _values(self, log: Log) -> tuple[str, ...]:
        """Return the values of the column `split` that are read; () for all rows. `log` receives them."""
        if not self.splits:
            return ()
        listed = ", ".join(f"{shortened(value or 'none')} {count:,}" for value, count in self.splits.items())
        part = next((part for part in USES[self.split] if part in self.parts), None)
        if part is None and self.split == "train" and self.parts:
            raise DataError(
                f"{called(self.path)}: no row is for training: the column split has {listed}, expected train; "
                "remove the column if all rows are"
            )
        used = "all rows are used" if part is None else f"only rows for {PURPOSES[part]} are used"
        log(f"the column split has {listed}: {used}")
        return () if part is None else SPLITS[part]

    def _records(self, log: Log) -> Iterator[tuple[int, str, str, str]]:
        """Yield the line, the image, the caption and the split of each row."""
        path, kind = Path(self.path), self._format()
        if kind == "json":
            yield from _json_captions(path)
        elif kind == "jsonl":
            yield from _json_lines(path, self.columns)
        else:
            columns = self.columns or _columns(path, kind, log)
            if self.split:
                names = _first_cells(path, kind)[2]
                split = next((name for name in names if name.lower() == "split"), None)
                if split is not None and {*parse_columns(columns)} <= {*names} - {split}:
                    columns = f"{columns},{split}"
            for line, cells in PairFile(self.path, kind, columns).cells(log):
                yield line, cells[0].removeprefix(BOM).strip(), cells[1], cells[2] if len(cells) > 2 else ""

    def boxes(self, log: Log | None = None) -> RegionIndex | None:
        """Return the regions by image; None if there are none."""
        if not self.regions:
            return None
        return RegionIndex.of(read_regions(Path(self.regions)), self.image_files, self.regions, log)

    def _format(self) -> str:
        """Return the format: as set, by the name, or by the first line."""
        if self.format:
            return self.format
        kind = format_of(self.path)
        if kind in ("csv", "tsv") or self.path.lower().removesuffix(".gz").endswith((".jsonl", ".ndjson")):
            return kind
        first = _first_line(Path(self.path))
        if kind == "jsonl" or first.startswith(("{", "[")):
            return "jsonl" if _is_record(first) else "json"
        return "tsv" if "\t" in first else "csv"


@dataclass(frozen=True)
class CaptionList:
    """Captions in memory, (image name, caption) each, and the folder or archive of their images."""

    pairs: Sequence[tuple[str, str]]
    images: str
    name: str = "captions"
    regions: Sequence[Region] | str = ()

    @property
    def full_name(self) -> str:
        """Their name for errors."""
        return f"the {self.name}"

    @property
    def paths(self) -> dict[str, str]:
        """The files: of regions, if there is one."""
        return {"regions": self.regions} if isinstance(self.regions, str) and self.regions else {}

    @property
    def linked(self) -> bool:
        """Whether there are regions."""
        return bool(self.regions)

    def fingerprint(self) -> None:
        """Return None: captions in memory are not cached."""

    @cached_property
    def image_files(self) -> ImageFiles:
        """The images."""
        from heedful.data.images import ImageFiles

        return ImageFiles(self.images)

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield number, image and caption of all rows whose image exists."""
        return _matched(self.cells(), self.image_files, self.full_name, log or (lambda message: None))

    def cells(self, log: Log | None = None) -> Iterator[tuple[int, str, str]]:
        """Yield the number, the image as it is named, and the caption of each row."""
        for number, pair in enumerate(self.pairs, 1):
            if isinstance(pair, str) or len(pair) != 2 or not isinstance(pair[1], str):
                raise DataError(f"row {number} of {self.full_name} is {pair!r:.200}, expected (image name, caption)")
            if not isinstance(pair[0], str | Path):
                raise DataError(f"row {number} of {self.full_name}: the image is {pair[0]!r:.100}, expected its name")
            yield number, str(pair[0]), pair[1]

    def boxes(self, log: Log | None = None) -> RegionIndex | None:
        """Return the regions by image; None if there are none."""
        if not self.regions:
            return None
        if isinstance(self.regions, str | Path):
            return RegionIndex.of(read_regions(Path(self.regions)), self.image_files, str(self.regions), log)
        return RegionIndex.of(self.regions, self.image_files, "the regions", log)


CaptionSource = CaptionFile | CaptionList


def _matched(cells: Iterator[tuple[int, str, str]], files: ImageFiles, name: str, log: Log) -> Iterator[Raw]:
    """Yield rows with the file of each image; count those without one, and raise DataError if they are the most."""
    missing: list[str] = []
    rows = without = elsewhere = 0
    example = ""
    known: dict[str, str | None] = {}
    for line, image, caption in cells:
        if not image and not caption.strip():
            yield Raw(line, "", "")
            continue
        rows += 1
        if image not in known:
            known[image] = find_image(files, image, f"{name}, line {line}")
        found = known[image]
        if found is None:
            without += 1
            if len(missing) < EXAMPLES:
                missing.append(f"line {line}: '{shortened(image)}'" if image else f"line {line}: no name of an image")
        else:
            if found != image and found != posixpath.normpath(NUMBER.sub("", image)):
                elsewhere += 1
                example = example or f"line {line}: '{shortened(image)}' is {shortened(found)}"
            yield Raw(line, found, caption)
    if elsewhere:
        log(f"{name}: {elsewhere:,} of {rows:,} captions name their image by another path; {example}")
    if without:
        message = (
            f"{name}: {without:,} of {rows:,} captions have no image in {files.path}; {', '.join(missing)}"
            + " …" * (without > EXAMPLES)
        )
        if 2 * without >= rows:
            raise DataError(
                f"{message}; expected names of files in it: {some(files.images[:EXAMPLES]) or 'it has none'}"
            )
        log(f"{message}; these captions are left out")


def find_image(files: ImageFiles, image: str, where: str) -> str | None:
    """Return the file of an image, or None; `#0` at the end, the number of a caption, may be part of the name."""
    if not image:
        return None
    try:
        found = files.find(image)
        return files.find(NUMBER.sub("", image)) if found is None and NUMBER.search(image) else found
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _first_line(path: Path) -> str:
    for line in raw_lines(path) if not _one_line(path) else ():
        if line.strip().strip(BOM):
            return line.removeprefix(BOM).strip()
    return "{" if _one_line(path) else ""


def _one_line(path: Path) -> bool:
    """Whether a file begins with a line that is too long for text, as JSON of one line may be."""
    with opened(path) as file:
        content = io.BufferedReader(Unpacked(file, called(path)), 1 << 16) if is_packed(file) else file
        head = content.read(1 << 20)
    return len(head) == 1 << 20 and b"\n" not in head


def _is_record(line: str) -> bool:
    """Whether a line is a JSON object of its own, with an image."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and "annotations" not in record and "images" not in record


def _columns(path: Path, kind: str, log: Log) -> str:
    """Return the columns of image and caption: by the names of a header, or by what the first line holds."""
    head, separator, names = _first_cells(path, kind)
    if not head:
        return "1,2"
    small = [name.lower() for name in names]
    image = next((names[small.index(name)] for name in IMAGES if name in small), None)
    caption = next((names[small.index(name)] for name in CAPTIONS if name in small), None)
    if image is not None and caption is None and len(names) == 2:
        caption = names[1 - names.index(image)]
    if image is not None and caption is not None:
        return f"{image},{caption}"
    where = f"{called(path)}, line 1"
    if len(names) < 2:
        what = {",": "comma", ";": "semicolon", "\t": "tab"}[separator]
        raise DataError(
            f"{where}: expected two columns, image and caption, separated by a {what}, found one: '{shortened(head)}'"
        )
    named = [number for number, cell in enumerate(names) if ENDING.search(cell)]
    if not named and len(names) > 2:
        raise DataError(
            f"{where}: the columns are {some(names)}; choose those of image and caption, such as "
            f"columns='{shortened(image or names[0])},{shortened(names[-1])}', or columns='1,2' if this is no header"
        )
    first = named[0] if named else 0
    others = [number for number in range(len(names)) if number != first]
    second = max(others, key=lambda number: len(names[number].split()))
    if len(names) > 2:
        log(f"{len(names)} columns; using {first + 1} and {second + 1} (for others, such as columns='1,3')")
    return f"{first + 1},{second + 1}"


def _first_cells(path: Path, kind: str) -> tuple[str, str, list[str]]:
    """Return the first line of a file that is not empty, what separates its cells, and the cells."""
    head = next((line for line in raw_lines(path) if line.strip().strip(BOM)), "")
    head = head.removeprefix(BOM).rstrip("\r\n")
    separator = "\t" if kind == "tsv" else max(",;\t", key=head.count)
    try:
        cells = head.split("\t") if kind == "tsv" else next(csv.reader([head], delimiter=separator, strict=True), [])
    except csv.Error:
        cells = head.split(separator)  # a quoted caption goes on in the next line
    return head, separator, [cell.strip() for cell in cells]


def _value(split: str) -> str:
    return split.strip().lower()


def _json_lines(path: Path, columns: str) -> Iterator[tuple[int, str, str, str]]:
    for number, line in enumerate(raw_lines(path), 1):
        line = line.removeprefix(BOM).strip()
        where = f"{called(path)}, line {number}"
        if not line:
            yield number, "", "", ""
            continue
        yield from ((number, *row) for row in _record(_parsed(line, where), where, columns))


def _parsed(line: str, where: str) -> Any:  # noqa: ANN401  (what JSON holds)
    try:
        record = json.loads(line)
        check_depth(record)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        )
        raise DataError(f"{where}: this is not JSON ({reason}): '{shortened(line)}'") from None
    return record


def _record(record: object, where: str, columns: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield image, caption and split of an object with one caption or a list of them."""
    if not isinstance(record, dict):
        raise DataError(
            f'{where}: expected an object such as {{"image": "a.png", "caption": "…"}}, found {record!r:.80}'
        )
    wanted = parse_columns(columns) if columns else ()
    image = _field(record, wanted[:1] or IMAGES, where, "image")
    captions = record.get("sentences") if not columns and "sentences" in record else None
    if not captions and (wanted or not _without_caption(record)):
        captions = record[_field(record, wanted[1:] or CAPTIONS, where, "caption")]
    if not isinstance(record[image], str):
        raise DataError(f"{where}: '{image}' is {shortened(json.dumps(record[image]))}, expected the name of an image")
    split = record.get("split")
    for caption in captions if isinstance(captions, list) else [captions]:
        if isinstance(caption, dict):  # with other fields, such as an id
            caption = caption[_field(caption, ("raw", *CAPTIONS), where, "caption")]
        if not isinstance(caption, str) and caption is not None:
            raise DataError(f"{where}: a caption is {shortened(json.dumps(caption))}, expected a string")
        yield record[image], _text(caption or "", where), split if isinstance(split, str) else ""


def _without_caption(record: dict[str, Any]) -> bool:
    """Whether an object has no caption, nor any other text that may be one: it is read as an empty caption."""
    others = record.keys() - {*IMAGES, "split"}
    return not any(name in CAPTIONS or isinstance(record[name], str | list | dict) for name in others)


def _field(record: dict[str, Any], names: Sequence[str], where: str, what: str) -> str:
    for name in names:
        if name in record:
            return name
    expected = names[0] if len(names) == 1 else f"{names[0]} (or {', '.join(names[1:])})"
    raise DataError(f"{where}: there is no field for the {what}, expected {expected}, found {some(list(record))}")


def _text(text: str, where: str) -> str:
    """Return a text; raise DataError for a lone surrogate, which JSON can write as an escape but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: the lone surrogate \\u{ord(text[error.start]):04x} is not text") from None
    return text


def _json_captions(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield the captions of COCO's JSON, or of a list of objects; the line is the number of the annotation."""
    name, value = called(path), _whole_json(path)
    if isinstance(value, dict) and isinstance(value.get("annotations"), list):
        yield from _coco(name, value)
        return
    records = value.get("images") if isinstance(value, dict) else value
    if not isinstance(records, list):
        raise DataError(f"{name}: expected COCO's images and annotations, or a list of objects with image and caption")
    for number, record in enumerate(records, 1):
        yield from ((number, *row) for row in _record(record, f"{name}, object {number}"))


def _coco(name: str, value: dict[str, Any]) -> Iterator[tuple[int, str, str, str]]:
    files: dict[object, str] = {}
    if not isinstance(value.get("images"), list):
        raise DataError(f"{name}: there are annotations but no list of images, expected both")
    for number, image in enumerate(value["images"], 1):
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str) or "id" not in image:
            raise DataError(f"{name}, image {number}: expected an object with id and file_name, found {image!r:.80}")
        files[str(image["id"])] = image["file_name"]
    for number, one in enumerate(value["annotations"], 1):
        where = f"{name}, annotation {number}"
        if not isinstance(one, dict) or "image_id" not in one or not isinstance(one.get("caption"), str):
            raise DataError(f"{where}: expected an object with image_id and caption, found {one!r:.80}")
        if str(one["image_id"]) not in files:
            raise DataError(f"{where}: image_id {one['image_id']!r:.50} is not the id of an image in the file")
        yield number, files[str(one["image_id"])], _text(one["caption"], where), ""


def _whole_json(path: Path) -> Any:  # noqa: ANN401
    limit, name = max(JSON, max_json()), called(path)
    with opened(path) as file:
        content = io.BufferedReader(Unpacked(file, name), 1 << 16) if is_packed(file) else file
        data = content.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{name}: has more than {megabytes(limit)}, the limit of JSON (HEEDFUL_MAX_JSON, in bytes)")
    if data.count(b"{") + data.count(b"[") > OBJECTS:
        raise DataError(f"{name}: this JSON has more than {OBJECTS:,} objects and lists")
    try:
        value = json.loads(data.decode("utf-8-sig"))
        check_depth(value)
        return value
    except RecursionError:
        raise DataError(f"{name}: this JSON is nested too deeply") from None
    except ValueError as error:
        where = f", line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:100]
        raise DataError(f"{name}{where}: this is not JSON ({reason})") from None


def read_regions(path: Path) -> list[Region]:
    """Return the regions of a file of JSON lines, in order; raise DataError with the line of a wrong one."""
    regions = []
    for number, line in enumerate(raw_lines(path), 1):
        line = line.removeprefix(BOM).strip()
        if line:
            where = f"{called(path)}, line {number}"
            regions.append(_region(_parsed(line, where), where, number))
    if not regions:
        raise DataError(f"{called(path)}: empty, expected regions as JSON lines: image, word, x, y, w, h")
    return regions


def _region(record: object, where: str, line: int) -> Region:
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected an object with image, word, x, y, w and h, found {record!r:.80}")
    image = record[_field(record, IMAGES, where, "image")]
    if not isinstance(image, str):
        raise DataError(f"{where}: 'image' is {image!r:.80}, expected the name of an image")
    numbers = {name: _number(record, name, where) for name in ("x", "y", "w", "h")}
    if numbers["w"] <= 0 or numbers["h"] <= 0:
        raise DataError(f"{where}: the box is {numbers['w']:g} × {numbers['h']:g} pixels, expected more than 0")
    word, caption = (_index(record, name, where) for name in ("word", "caption"))
    kind = record.get("kind", "")
    return Region(image, word, **numbers, caption=caption, kind=kind if isinstance(kind, str) else "", line=line)


def _number(record: dict[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e9:
        shown = "missing" if name not in record else f"{value!r:.50}"
        raise DataError(f"{where}: '{name}' is {shown}, expected a number of pixels")
    return float(value)


def _index(record: dict[str, Any], name: str, where: str) -> int:
    value = record.get(name, 0 if name == "caption" else None)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1_000_000:
        shown = "missing" if value is None else f"{value!r:.50}"
        raise DataError(f"{where}: '{name}' is {shown}, expected a whole number from 0")
    return value


@dataclass
class RegionIndex:
    """Regions by image and number of the caption, given out as the captions are read in order."""

    name: str
    regions: dict[tuple[str, int], list[Region]]
    read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, regions: Sequence[Region], files: ImageFiles, name: str, log: Log | None = None) -> RegionIndex:
        """Index regions by the files of their images."""
        index: dict[tuple[str, int], list[Region]] = {}
        known: dict[str, str | None] = {}
        unknown: list[Region] = []
        for region in regions:
            if region.image not in known:
                known[region.image] = find_image(files, region.image, f"{name}, line {region.line}")
            image = known[region.image]
            if image is None:
                unknown.append(region)
            else:
                index.setdefault((image, region.caption), []).append(region)
        if unknown and log is not None:
            log(f"{name}: {len(unknown):,} regions have no image in {files.path}; first line {unknown[0].line}")
        if not index:
            raise DataError(
                f"{name}: no region has an image in {files.path}; line 1 has '{shortened(regions[0].image)}'"
            )
        return cls(name, index)

    def take(self, rows: Sequence[Raw]) -> list[list[Region]]:
        """Return the regions of the next rows; raise DataError for a word that a caption does not have."""
        taken = []
        for _, image, caption in rows:
            number = self.read.get(image, 0)
            self.read[image] = number + 1
            mine = self.regions.get((image, number), []) if image else []
            words = len(caption.split())
            for region in mine:
                if region.word >= words:
                    raise DataError(
                        f"{self.name}, line {region.line}: word {region.word} is past the end of the caption, which "
                        f"has {words} word{'s' * (words != 1)}, counted from 0: '{shortened(caption)}'"
                    )
            taken.append(mine)
        return taken

    def end(self, log: Log) -> None:
        """Log, or raise DataError, for regions of captions that were not read."""
        others = [region for (image, number), some in self.regions.items() if image not in self.read for region in some]
        if others:
            log(
                f"{self.name}: {len(others):,} regions are of images without captions here; first line {others[0].line}"
            )
        for (image, number), mine in self.regions.items():
            count = self.read.get(image, 0)
            if 0 < count <= number:
                raise DataError(
                    f"{self.name}, line {mine[0].line}: caption {number} of '{shortened(image)}', which has {count} "
                    f"caption{'s' * (count != 1)}, counted from 0"
                )


def caption_source(
    captions: Sequence[tuple[str, str]] | str | Path,
    images: str | Path,
    name: str = "captions",
    regions: Sequence[Region] | str | Path | None = None,
    split: str = "",
) -> CaptionSource:
    """Return captions as a file or a list, with their images and regions; `split` is that of `CaptionFile`."""
    if isinstance(captions, str | Path):
        if regions is not None and not isinstance(regions, str | Path):
            raise ConfigError("regions of a file of captions are a file, too; give its name")
        return CaptionFile(str(captions), str(images), str(regions or ""), split=split)
    if not hasattr(captions, "__len__"):
        kind = type(captions).__name__
        raise DataError(f"expected captions as a list of (image name, caption), or the name of a file; found {kind}")
    return CaptionList(captions, str(images), name, str(regions) if isinstance(regions, Path) else regions or ())
