"""Weights in a pickle file that would take memory or time: refused before torch looks at them."""

from __future__ import annotations

import io
import pickle
import zipfile

import pytest
import torch

from heedful.errors import ModelError
from heedful.interop.pickles import check_pickle


def saved(new: bool = True) -> bytes:
    into = io.BytesIO()
    layer = torch.nn.Linear(3, 4)
    state = {**layer.state_dict(), "again": layer.weight, "half": layer.weight.half()}
    torch.save(state, into, _use_new_zipfile_serialization=new)
    return into.getvalue()


@pytest.mark.parametrize("new", [True, False])
def test_what_torch_writes_passes(new: bool) -> None:
    check_pickle(saved(new))


def packed(kind: int, content: bytes = b"\0" * 50_000_000) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", kind, compresslevel=1) as archive:
        archive.writestr("archive/data/0", content)
    return into.getvalue()


def test_a_packed_archive() -> None:
    content = packed(zipfile.ZIP_DEFLATED)
    assert len(content) < 1_000_000
    with pytest.raises(ModelError, match="'archive/data/0' is compressed"):
        check_pickle(content)


def test_members_that_lie_over_each_other() -> None:
    content = packed(zipfile.ZIP_STORED, b"x" * 1000)
    into = io.BytesIO(content)
    with zipfile.ZipFile(into, "a") as archive:
        first = archive.infolist()[0]
        for number in range(100):
            other = zipfile.ZipInfo(f"archive/data/{number + 1}")
            other.file_size, other.compress_size, other.header_offset = 1000, 1000, first.header_offset
            other.CRC = first.CRC
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
        archive._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="larger than the file"):
        check_pickle(into.getvalue())


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("inside", [True, False])
def test_a_tuple_that_takes_for_ever_to_hash(protocol: int, inside: bool) -> None:
    laughs: tuple[object, ...] = ("x",)
    for _ in range(30):  # not hashed here: of 64 levels it would take centuries
        laughs = (laughs, laughs)
    content = pickle.dumps([laughs], protocol)
    if inside:
        into = io.BytesIO()
        with zipfile.ZipFile(into, "w") as archive:
            archive.writestr("archive/data.pkl", content)
        content = into.getvalue()
    with pytest.raises(ModelError, match="a tuple twice"):
        check_pickle(content)


def archived(content: bytes, name: str = "archive/data.pkl") -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr(name, content)
    return into.getvalue()


def tuples_of_tuples(store: bytes, levels: int = 20) -> bytes:
    """Return a pickle with a key that is a tuple, in which the same tuple stands twice, and so on.

    `store` is what stands between the making of a tuple and its last BINPUT.
    """
    made = b")q\x00" + b"".join(b"h" + bytes([i - 1]) + b"\x86" + store + b"q" + bytes([i]) for i in range(1, levels))
    return b"\x80\x02}q\xff" + made + b"K\x01s."


@pytest.mark.parametrize("store", [b"", b"q\xfe", b"q\xfer\xfd\0\0\0", b"\x80\x02", b"\x95\0\0\0\0\0\0\0\0", b"(u"])
@pytest.mark.parametrize("name", ["archive/data.pkl", "archive/data.PKL", ""])
def test_a_tuple_that_is_used_twice_however_it_was_stored(store: bytes, name: str) -> None:
    content = tuples_of_tuples(store)
    with pytest.raises(ModelError, match="a tuple twice"):
        check_pickle(archived(content, name) if name else content)


def test_numbers_of_the_memo_are_counted_as_the_unpickler_does() -> None:
    """MEMOIZE takes the next number, and BINPUT twice with one number takes one."""
    content = b"\x80\x04}q\x00q\x00)q\x05\x94h\x02\x86."
    with pytest.raises(ModelError, match="a tuple twice"):
        check_pickle(archived(content))


def test_a_pickle_that_cannot_be_checked_to_its_end() -> None:
    for content in (b"\x80\x02}q\x00\xff\xff.", b"\x80\x02}q\x00", b""):
        for each in (content, archived(content)):
            with pytest.raises(ModelError, match="pickle is damaged"):
                check_pickle(each)


def test_an_archive_with_two_lists_of_members() -> None:
    """Python reads the one in front of the end, torch the one that the end names."""
    shown, hidden = archived(b"\x80\x02}.", "archive/shown.pkl"), saved()
    end = bytearray(shown[-22:])
    offset = len(hidden) - 22 - int.from_bytes(hidden[-10:-6], "little")
    end[16:20] = offset.to_bytes(4, "little")
    with pytest.raises(ModelError, match="is not where it should be"):
        check_pickle(hidden + shown[:-22] + bytes(end))
    with pytest.raises(ModelError, match="comment"):
        check_pickle(shown + b"x")


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"PK", b"PK\x05\x06" + b"\xff" * 40])
def test_damaged_archives(content: bytes) -> None:
    with pytest.raises(ModelError, match="damaged"):
        check_pickle(content)


class Counted(io.BytesIO):
    """A file that counts the bytes that are read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def test_of_a_file_only_the_pickle_is_read() -> None:
    into = Counted()
    torch.save({"large": torch.zeros(1_000_000)}, into)
    into.count = 0
    check_pickle(into)
    assert 0 < into.count < 10_000
    with pytest.raises(ModelError, match="compressed"):
        check_pickle(io.BytesIO(packed(zipfile.ZIP_DEFLATED)))
