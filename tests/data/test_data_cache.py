"""The cache: found again when whole, made anew when not, and never in the way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from heedful.data import cache
from heedful.data.cache import Arrays, Writer, key_of, stored
from heedful.errors import DataError, DiskError
from heedful.files import cache_folder

KEY = key_of("test")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(writer: Writer) -> None:
    for begin in range(0, 10, 5):
        writer.add("numbers", np.arange(begin, begin + 5, dtype=np.uint16))
    writer.add("text", "überall".encode())
    writer.add("nothing", np.zeros(0, np.uint64))
    writer.head = {"answer": 42}


def refuse(writer: Writer) -> None:
    raise AssertionError("this should have been in the cache")


def check(arrays: Arrays) -> None:
    assert arrays["numbers"].tolist() == list(range(10))
    assert arrays["numbers"].dtype == np.uint16
    assert arrays["text"].tobytes().decode() == "überall"
    assert arrays["nothing"].tolist() == []
    assert arrays.head["answer"] == 42


def make(key: str | None = KEY, fill=fill) -> tuple[bool, list[str]]:
    """Whether it was there, and what was said."""
    said: list[str] = []
    arrays, known = stored(key, fill, said.append)
    check(arrays)
    return known, said


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("HEEDFUL_CACHE", "/own")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("HEEDFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/heedful")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "heedful"


def test_what_was_made_is_found_again(folder):
    assert make() == (False, [])
    assert make(fill=refuse) == (True, [])
    assert make(key_of("another")) == (False, [])
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {KEY, key_of("another")}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def turn_a_letter(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b"42", b"43"))


def turn_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def sealed(body: str) -> Callable[[Path], object]:
    """A head whose checksum is right."""
    return lambda path: path.write_text(f"{blake2b(body.encode(), digest_size=16).hexdigest()}\n{body}")


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("numbers", cut),
        ("text", grow),
        ("numbers", Path.unlink),
        ("head.json", cut),
        ("head.json", Path.unlink),
        ("head.json", turn_a_letter),
        ("head.json", lambda path: path.write_bytes(b"\xff\xff")),
        ("head.json", sealed('{"files": {"../secret": ["|u1", 0]}, "block": 1048576, "crc32": {"../secret": []}}')),
        ("head.json", sealed('{"files": {"text": ["|O", 8]}, "block": 1048576, "crc32": {"text": [1]}}')),
        ("head.json", sealed('{"files": [1], "block": 1048576}')),
        ("head.json", sealed("[" * 100_000)),
        ("numbers", turn_a_bit),
        ("text", turn_a_bit),
        ("nothing", become_a_pipe),
        ("head.json", become_a_pipe),
        ("text", become_a_folder),
    ],
)
def test_what_is_damaged_is_named_and_made_anew(folder, name, harm):
    make()
    harm(folder / KEY / name)
    known, said = make()
    assert (known, len(said)) == (False, 1)
    assert all(part in said[0] for part in (str(folder / KEY), name, "damaged", "discarded"))
    assert make(fill=refuse) == (True, [])


def test_a_bit_anywhere_in_any_block(folder, monkeypatch):
    """Checksums are of blocks as they lie in the file, however it was written."""
    monkeypatch.setattr(cache, "BLOCK", 64)
    whole = np.random.default_rng(1).integers(0, 2**16, 200, dtype=np.uint16)

    def pieces(writer: Writer) -> None:
        for part in np.split(whole, [1, 3, 40, 110, 111]):
            writer.add("numbers", part)

    stored(KEY, pieces, print)
    path = folder / KEY / "numbers"
    content = path.read_bytes()
    for at in range(0, len(content), 7):
        said: list[str] = []
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        arrays, known = stored(KEY, pieces, said.append)
        assert not known
        assert f"bytes {at // 64 * 64} to " in said[0]
        assert arrays["numbers"].tolist() == whole.tolist()


def test_a_cache_from_before_there_were_checksums_is_made_anew(folder):
    make()
    path = folder / KEY / "head.json"
    head = json.loads(path.read_text().partition("\n")[2])
    del head["block"], head["crc32"]
    sealed(json.dumps(head))(path)
    known, said = make()
    assert not known
    assert "another version of heedful" in said[0]
    assert make(fill=refuse) == (True, [])


@pytest.mark.parametrize("kind", ["file", "link"])
def test_something_else_in_the_place_of_a_folder(folder, kind, tmp_path):
    folder.mkdir()
    if kind == "file":
        (folder / KEY).write_text("x")
    else:
        (folder / KEY).symlink_to(tmp_path)
    make()
    assert make(fill=refuse) == (True, [])


def test_a_lock_that_is_a_pipe_is_not_waited_for(folder):
    folder.mkdir()
    os.mkfifo(folder / f".lock-{KEY[0]}")
    known, said = make()
    assert not known
    assert "the cache cannot be used" in said[0]


def test_an_error_leaves_nothing_behind(folder):
    def fail(writer: Writer) -> None:
        fill(writer)
        raise DataError("line 7 is bad")

    with pytest.raises(DataError, match="line 7 is bad"):
        stored(KEY, fail, print)
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
    assert make() == (False, [])


def test_what_a_killed_process_left_is_no_hindrance(folder):
    (folder / f".{KEY}.partial").mkdir(parents=True)
    (folder / f".{KEY}.partial" / "numbers").write_bytes(b"half")
    assert make() == (False, [])
    assert make(fill=refuse) == (True, [])


@pytest.mark.parametrize("blocked", ["cache", "full"])
def test_without_a_cache_a_temporary_folder_does(folder, monkeypatch, blocked, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if blocked == "cache":
        folder.write_text("a file where the cache should be")
    else:
        folder.mkdir()

    def full(writer: Writer) -> None:
        if blocked == "full" and folder in writer.folder.parents:
            raise OSError(28, "No space left on device")
        fill(writer)

    said: list[str] = []
    arrays, known = stored(KEY, full, said.append)
    check(arrays)
    assert not known
    reason = "File exists" if blocked == "cache" else "No space left on device"
    assert len(said) == 1
    assert said[0].startswith("the cache cannot be used")
    assert reason in said[0]
    place = arrays.folder
    assert place.exists()
    del arrays
    assert not place.parent.exists()


def test_a_full_disk_everywhere_is_an_error(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(writer: Writer) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DiskError, match="No space left on device"):
        stored(KEY, full, lambda message: None)
    assert not list(tmp_path.glob("heedful-*"))


def test_without_a_key_nothing_is_kept(folder):
    assert make(None) == (False, [])
    assert make(None) == (False, [])
    assert not folder.exists()


SCRIPT = """
import sys, time
import numpy as np
from heedful.data.cache import stored

def fill(writer):
    open(sys.argv[2], "a").write("filled\\n")
    for n in range(20):
        writer.add("numbers", np.full(1000, n))
        time.sleep(0.05)

arrays, known = stored(sys.argv[1], fill, print)
print(known, arrays["numbers"].sum())
"""


def test_two_processes_at_once(folder, environment, tmp_path):
    environment = {**environment, "HEEDFUL_CACHE": str(folder)}
    command = [sys.executable, "-c", SCRIPT, KEY, str(tmp_path / "log")]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = sorted(process.communicate(timeout=60)[0] for process in both)
    waited = "another process is preparing sentence pairs: waiting for it\n"
    assert outputs[0] == "False 190000\n"
    assert outputs[1] in (f"{waited}True 190000\n", "True 190000\n")  # the second may have started very late
    assert (tmp_path / "log").read_text() == "filled\n"


def test_what_was_not_used_for_long_is_removed(folder, monkeypatch):
    keys = [key_of(n) for n in range(4)]
    for age, key in enumerate(keys[:3]):
        make(key)
        os.utime(folder / key / "head.json", (1000 + age, 1000 + age))
    make(keys[0])  # which is used again
    size = sum(file.stat().st_size for file in (folder / keys[0]).iterdir())
    monkeypatch.setattr(cache, "MOST", int(2.5 * size))
    (folder / "not ours").mkdir()
    (folder / "not ours" / "head.json").write_text("x" * 10 * size)
    old, new = (folder / f".{key_of(name)}.partial" for name in ("old", "new"))
    for path in (old, new):
        path.mkdir()
    os.utime(old, (1000, 1000))
    make(keys[3])
    left = {path.name for path in folder.iterdir() if path.is_dir()}
    assert left == {keys[0], keys[3], "not ours", new.name}


def test_what_is_open_is_not_removed(folder, monkeypatch, environment):
    """Neither what this process has open, nor what another one has."""
    keys = [key_of(n) for n in range(4)]
    mine, _ = stored(keys[0], fill, print)
    for key in keys[1:3]:
        make(key)
    script = f"from heedful.data.cache import stored; a = stored('{keys[1]}', None, print); print(flush=True); input()"
    environment = {**environment, "HEEDFUL_CACHE": str(folder)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, text=True, **pipes) as other:
        assert other.stdout.readline() == "\n"
        monkeypatch.setattr(cache, "MOST", 1)
        make(keys[3])
        assert {path.name for path in folder.iterdir() if path.is_dir()} == {keys[0], keys[1], keys[3]}
        other.communicate("\n", timeout=60)
    check(mine)
    del mine
    make(key_of("last"))
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {key_of("last")}


def test_what_is_mapped_outlives_its_folder(folder):
    arrays, _ = stored(KEY, fill, print)
    shutil.rmtree(folder)
    check(arrays)


def test_another_version_of_what_cuts_has_another_key(monkeypatch):
    monkeypatch.setattr(cache, "_versions", lambda: {"unicode": "1.1", "tokenizers": "0.0"})
    assert key_of("test") != KEY
    monkeypatch.undo()
    assert set(cache._versions()) >= {"unicode", "tokenizers"}
    assert key_of("test") == KEY


def test_use_is_noted(folder):
    make()
    os.utime(folder / KEY / "head.json", (1000, 1000))
    make()
    assert time.time() - (folder / KEY / "head.json").stat().st_mtime < 100


def test_the_head_is_readable(folder):
    make()
    _, _, body = (folder / KEY / "head.json").read_text().partition("\n")
    assert json.loads(body)["files"] == {"numbers": ["<u2", 20], "text": ["|u1", 8], "nothing": ["<u8", 0]}
