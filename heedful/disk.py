"""Writing files so that a reader sees the whole or nothing, and saying so when the disk does not let us."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import ConfigError, DiskError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["cache_folder", "locked", "make_folder", "whole_folder", "write_whole", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"{path}: cannot be written ({error.strerror or error})") from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, if they are not there."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, then rename it into place: after a crash the old or the new one is there."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def cache_folder() -> Path:
    """Return where is kept what need not be worked out twice."""
    if own := os.environ.get("HEEDFUL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; refuse while another does. The lock ends with the process, however it ends."""
    make_folder(folder)
    with writing(folder):
        file = (folder / ".lock").open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{folder}: another run is writing to this folder; choose another one") from None
        yield


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill, which is renamed to `path` when everything in it is written; on an error it is removed."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        _remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            _remove(path)
            partial.rename(path)
            _sync(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _remove(path: Path) -> None:
    """Remove a folder, or what stands in its place."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Ask the system to make a renaming last."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
