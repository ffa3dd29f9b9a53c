"""Units of work: the inputs divided into files and row groups, each with the name of its output, and shares of them."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from heedful.bulk.formats import KNOWN, Columns, FileKind, LineReader, check_conversion, kind_of
from heedful.bulk.parquet import row_groups
from heedful.errors import ConfigError, DataError


@dataclass(frozen=True)
class Destination:
    """Where outputs go: a folder, or one file in it; the journal and the manifest are beside them."""

    folder: Path
    file: str = ""

    @property
    def journal(self) -> Path:
        """The folder of the journals and locks."""
        return self.folder / (f".{self.file}.journal" if self.file else ".journal")

    @property
    def manifest(self) -> Path:
        """The file that lists all units."""
        return self.folder / (f"{self.file}.manifest.json" if self.file else "manifest.json")

    @property
    def name(self) -> str:
        """The destination as it was given, for messages."""
        return str(self.folder / self.file)


@dataclass(frozen=True)
class Unit:
    """A file or a row group of it that becomes one output, `name`; `size` in bytes, `fault`: why it cannot be read."""

    name: str
    path: Path
    kind: FileKind
    written: FileKind
    group: int | None = None
    size: int = 0
    fault: str = ""


class Shard(NamedTuple):
    """Part `number` of all units, from 1: every `of`-th one."""

    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}-of-{self.of}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard that is written as 3/64; "" is all.

        >>> Shard.parse("3/64"), Shard.parse("")
        (Shard(number=3, of=64), Shard(number=1, of=1))
        """
        if not text:
            return cls()
        number, slash, of = text.partition("/")
        digits = all(part.isascii() and part.isdecimal() and len(part) < 8 for part in (number, of))
        if not slash or not digits or not 1 <= int(number) <= int(of):
            raise ConfigError(f"shard is '{text[:40]}', expected a part and the number of parts, such as 3/64")
        return cls(int(number), int(of))


def plan(inputs: Sequence[str | Path], out: str | Path, columns: Columns) -> tuple[Destination, list[Unit]]:
    """Return the destination, and all units sorted by name: the same for the same inputs, on every machine.

    Raises DataError for an input that does not exist, and ConfigError for one of an unknown kind, for wrong columns,
    and for outputs that would overwrite inputs. A damaged file is a unit with a `fault`.
    """
    files = _files(inputs, Path(out))
    destination = _destination(out, files)
    names = dict.fromkeys(files, destination.file) if destination.file else output_names(files)
    units = [unit for path in files for unit in _units(path, names[path], columns, whole=bool(destination.file))]
    units.sort(key=lambda unit: unit.name)
    _check_outputs(destination, units)
    return destination, units


def _files(inputs: Sequence[str | Path], out: Path) -> list[Path]:
    """Return the input files, each once: those named, and in folders all of known kinds."""
    files: dict[str, Path] = {}
    for each in map(Path, inputs):
        if each.is_dir():
            if each.resolve() == out.resolve():
                raise ConfigError(f"out is '{out}', the folder of the inputs; choose another one, such as {out}/done")
            inside = [path for path in sorted(each.rglob("*")) if _is_input(path, each, out)]
            if not inside:
                raise ConfigError(f"{each}: there are no files in this folder that end with {KNOWN}")
        else:
            inside = [each]
            if not each.exists():
                raise DataError(f"{each}: there is no such file")
            if kind_of(each) is None:
                raise ConfigError(f"{each}: unknown kind of file; its name has to end with {KNOWN}{_hint(each)}")
        files |= {os.path.abspath(path): path for path in inside}
    if not files:
        raise ConfigError("there are no input files")
    return list(files.values())


def _is_input(path: Path, folder: Path, out: Path) -> bool:
    """Whether a file in a folder is read: not hidden, of a known kind, and not an output of an earlier run."""
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    inside_out = out.resolve() in path.resolve().parents and out.resolve() != folder.resolve()
    return not hidden and not inside_out and kind_of(path) is not None and path.is_file()


def _hint(path: Path) -> str:
    advice = {".csv": "; convert it to .tsv", ".json": "; convert a list with jq -c '.[]' to .jsonl"}
    return advice.get(Path(path.name.lower().removesuffix(".gz")).suffix, "")


def _destination(out: str | Path, files: Sequence[Path]) -> Destination:
    path = Path(out)
    kind = kind_of(path)
    if kind is None and not path.is_dir() and (advice := _hint(path)):
        raise ConfigError(f"out is '{out}'; files end with {KNOWN}{advice} afterwards, or give a folder")
    if path.is_dir() or str(out).endswith(("/", os.sep)) or (kind is None and not path.exists()):
        return Destination(path)
    if kind is None:
        raise ConfigError(f"out is '{out}', which is a file; choose a folder, or a new name that ends with {KNOWN}")
    if len(files) > 1:
        raise ConfigError(f"out is '{out}', the name of one file, but there are {len(files):,} inputs; give a folder")
    return Destination(path.parent, path.name)


def output_names(files: Sequence[Path]) -> dict[Path, str]:
    """Return a name for the output of each file: its own, with folders only where two would have the same.

    Lines of text become TSV, which has room for the added columns.

    >>> names = output_names([Path("a/x.txt"), Path("b/x.txt"), Path("b/y.jsonl.gz")])
    >>> list(names.values())
    ['a/x.tsv', 'b/x.tsv', 'y.jsonl.gz']
    """
    groups = defaultdict(list)
    for path in files:
        groups[_as_output(path.name)].append(path)
    names: dict[Path, str] = {}
    for name, paths in groups.items():
        if len(paths) == 1:
            names[paths[0]] = name
            continue
        absolute = [Path(os.path.abspath(path)) for path in paths]
        parent = os.path.commonpath([path.parent for path in absolute])
        for path, full in zip(paths, absolute, strict=True):
            names[path] = (full.relative_to(parent).parent / name).as_posix()
    uses = Counter(names.values())
    for path in files:  # x.txt beside x.tsv
        if uses[names[path]] > 1 and path.name != Path(names[path]).name:
            names[path] = (Path(names[path]).parent / _as_output(path.name, keep=True)).as_posix()
    return names


def _as_output(name: str, keep: bool = False) -> str:
    kind = kind_of(Path(name))
    if kind is None or kind.format != "txt":
        return name
    stem = name[: len(name) - len(".txt") - len(kind.packing)]
    return f"{stem}{'.txt' if keep else ''}.tsv{kind.packing}"


def _units(path: Path, name: str, columns: Columns, whole: bool) -> list[Unit]:
    """Return the units of a file: one, or one for each row group of Parquet that is not packed or `whole`."""
    kind, written = kind_of(path), kind_of(Path(name))
    assert kind is not None
    assert written is not None
    check_conversion(kind.format, written.format)
    if written.format == "txt" and (lost := {"links", "alarms", "n_best"}.intersection(columns.kinds)):
        raise ConfigError(f"{name}: a .txt has translations only, not {', '.join(sorted(lost))}; write .tsv or .jsonl")
    unit = Unit(name, path, kind, written)
    try:
        unit = replace(unit, size=path.stat().st_size)
        if kind.format != "parquet":
            LineReader(path, kind, columns).check()
            return [unit]
        if kind.packing:
            return [unit]
        groups = row_groups(path, columns)
    except OSError as error:
        return [replace(unit, fault=f"{path}: cannot be read ({error.strerror})")]
    except DataError as error:
        return [replace(unit, fault=str(error))]
    if whole or len(groups) < 2:
        return [unit]
    stem, end = name[: -len(".parquet")], name[-len(".parquet") :]
    return [
        replace(unit, name=f"{stem}-{group.number:05}-of-{len(groups):05}{end}", group=group.number, size=group.size)
        for group in groups
    ]


def _check_outputs(destination: Destination, units: Sequence[Unit]) -> None:
    """Raise ConfigError if two outputs have the same name, or one is an input."""
    inputs = {os.path.realpath(unit.path): unit.path for unit in units}
    seen: dict[str, Unit] = {}
    for unit in units:
        if (other := seen.setdefault(unit.name, unit)) is not unit:
            raise ConfigError(
                f"{other.path} and {unit.path} would both be written to {unit.name}; translate them apart"
            )
        if (same := inputs.get(os.path.realpath(destination.folder / unit.name))) is not None:
            raise ConfigError(f"{same}: the output would overwrite this input; choose another folder or name")
