"""Lines from files: what ends a line, gzip by content, and errors that say where."""

import contextlib
import errno
import gzip
import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import decode, read_lines
from heedful.data.files import check_there
from heedful.errors import DataError


@pytest.fixture
def write(tmp_path):
    def write(content: bytes, name: str = "pairs.tsv") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\nb\n", ["a", "b"]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\rb\n", ["a\rb"]),
        ("\ufeffमैं\nb\n", ["मैं", "b"]),
        ("a\n\ufeffb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u2029c\u0085d\x0ce\x1cf\n", ["a\u2028b\u2029c\u0085d\x0ce\x1cf"]),
        (" a \t\n", [" a \t"]),
    ],
)
def test_lines_by_hand(write, content, lines):
    assert list(read_lines(write(content.encode()))) == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff"))), st.booleans())
def test_any_lines_come_back(lines, crlf):
    end = "\r\n" if crlf else "\n"
    assert list(decode(io.BytesIO("".join(s + end for s in lines).encode()), "a name")) == lines


@pytest.mark.parametrize("name", ["a.tsv.gz", "no_ending", "lies.tsv"])
def test_gzip_is_known_by_its_content(write, name):
    path = write(gzip.compress("\ufeffमैं\tI\r\nb\n".encode()), name)
    assert list(read_lines(path)) == ["मैं\tI", "b"]


def test_plain_text_called_gz(write):
    assert list(read_lines(write(b"a\nb\n", "a.gz"))) == ["a", "b"]


def test_gzip_in_two_members(write):
    assert list(read_lines(write(gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")))) == ["a", "bc", "d"]


@pytest.mark.parametrize("content", [b"a\nb\nc\n", gzip.compress(b"a\nb\nc\n")], ids=["plain", "gzip"])
@pytest.mark.parametrize("lines", [1, 3])
def test_the_file_is_closed(write, monkeypatch, content, lines):
    path, opened, before = write(content), [], os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *args: opened.append(before(*args)) or opened[-1])
    reading = read_lines(path)
    for _ in range(lines):
        next(reading)
    reading.close() if lines == 1 else list(reading)  # a reader may stop half way
    assert [file.closed for file in opened] == [True]


def test_a_pipe_is_read(tmp_path):
    # heedful train <(paste hi.txt en.txt): a pipe cannot be rewound after a look at its first bytes.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader gave up: the assertion below says so
            pipe.write_bytes(b"a\tb\nc\td\n")

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        assert list(read_lines(pipe)) == ["a\tb", "c\td"]
    finally:
        writer.join()


def test_bytes_that_are_not_utf8(write):
    path = write("ab\nमैं ".encode() + b"\xe9t\xe9\n")
    # Before it stand three letters of three bytes each, and a space.
    assert refusal(path) == (f"{path}, line 2: byte 11 is 0xe9, which is not UTF-8; convert the file to UTF-8 first")


def test_a_letter_cut_short_at_the_end(write):
    path = write("म".encode()[:2])
    assert refusal(path).startswith(f"{path}, line 1: byte 1 is 0xe0, which is not UTF-8")


def test_utf16_is_refused(write):
    path = write("a\tb\n".encode("utf-16"))
    assert refusal(path).startswith(f"{path}, line 1: byte 1 is 0xff, which is not UTF-8")


def test_utf8_is_checked_inside_gzip(write):
    path = write(gzip.compress(b"a\n\xff\n"))
    assert refusal(path).startswith(f"{path}, line 2: byte 1 is 0xff")


def test_lines_before_the_mistake_are_given(write):
    reading = read_lines(write(b"a\n\xff\n"))
    assert next(reading) == "a"
    with pytest.raises(DataError, match="line 2"):
        next(reading)


ZIPPED = gzip.compress(os.urandom(2000).hex().encode())


@pytest.mark.parametrize(
    "content",
    [ZIPPED[:2], ZIPPED[:5], ZIPPED[:500], ZIPPED[:-1], ZIPPED[:-8] + b"\0" * 8, ZIPPED[:20] + b"\xff" * 500],
    ids=["magic", "header", "middle", "last byte", "checksum", "garbage"],
)
def test_broken_gzip(write, content):
    path = write(content, "a.gz")
    assert refusal(path).startswith(f"{path}: this gzip file is broken or cut short (")


def test_no_such_file(tmp_path):
    assert refusal(tmp_path / "none.tsv") == f"{tmp_path / 'none.tsv'}: there is no such file"


def test_a_folder(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: this is a folder, expected a file of sentences"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "no permission to read it"),
        (OSError(errno.EIO, "Input/output error"), "cannot be read (Input/output error)"),
    ],
)
def test_what_the_system_refuses(write, monkeypatch, error, words):
    def refuse(*_: object) -> None:
        raise error

    path = write(b"a")
    monkeypatch.setattr(os, "open", refuse)
    assert refusal(path) == f"{path}: {words}"


def test_a_file_below_a_file(write):
    path = write(b"a") / "b"
    assert refusal(path) == f"{path}: cannot be read (Not a directory)"


def test_what_is_refused_before_it_is_read_is_refused_in_the_same_words(write, tmp_path):
    there = write(b"a")
    for path in (tmp_path / "none.tsv", tmp_path, there / "b", tmp_path / ("x" * 300)):
        with pytest.raises(DataError) as caught:
            check_there(path)
        assert str(caught.value) == refusal(path)
    check_there(there)
    check_there(Path("-"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_opened_before_it_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=check_there, args=(pipe,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()  # to open a pipe that nobody writes to is to wait
