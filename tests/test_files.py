"""Every reader has a limit: what is too large, never ends or is no file is refused before it takes memory or time."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from pathlib import Path

import pytest

from heedful import files
from heedful.config import Config
from heedful.data.files import raw_lines
from heedful.data.formats import PairFile, portions
from heedful.errors import ConfigError, DataError, ModelError
from heedful.files import NotPlainError, open_file, open_plain, parse_json, read_bytes, read_json
from heedful.interop.folder import about
from heedful.interop.marian import json_object
from heedful.trace.readout import read_readout


def sparse(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_MAX_LINE", "100")


def test_a_sparse_json_file_is_refused_by_its_size(tmp_path):
    path = sparse(tmp_path / "config.json", 6 * 10**9)
    with pytest.raises(ModelError, match=r"config.json: has 6000 MB; .* at most 64 MB"):
        read_json(path)


def test_the_limit_of_json_can_be_raised(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("[1, 2, 3]")
    monkeypatch.setenv("HEEDFUL_MAX_JSON", "8")
    with pytest.raises(DataError, match=r"has 9 bytes; .*HEEDFUL_MAX_JSON.* at most 8 bytes"):
        read_json(path, DataError)
    monkeypatch.setenv("HEEDFUL_MAX_JSON", "9")
    assert read_json(path) == [1, 2, 3]


@pytest.mark.parametrize("value", ["0", "-1", "ten", "1e6", "²", "9" * 16])
def test_a_limit_that_is_no_number_is_refused(monkeypatch, value):
    monkeypatch.setenv("HEEDFUL_MAX_LINE", value)
    with pytest.raises(ConfigError, match="HEEDFUL_MAX_LINE is .* expected a number of bytes"):
        list(files.lines(io.BytesIO(b"a\n"), "x"))


def test_a_file_whose_size_is_not_known_is_read_up_to_its_limit(tmp_path):
    assert read_bytes(Path("/proc/self/status"), 10**6, "it").startswith(b"Name")
    with pytest.raises(ModelError, match="more than 10 bytes"):
        read_bytes(Path("/proc/self/status"), 10, "it")


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "{", "\ufeff{}", b"\xff\xfe\x00", b""]
)
def test_what_is_not_json(content):
    with pytest.raises(ModelError, match=r"^x.json: this "):
        parse_json(content, "x.json")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "link"])
def test_only_plain_files_are_opened(tmp_path, kind):
    path = tmp_path / "it"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)  # opening it would wait for a writer for ever
    else:
        path.symlink_to("/dev/zero" if kind == "device" else tmp_path)
    with pytest.raises(NotPlainError, match="expected a plain file"), open_plain(path):
        pass


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: .*nothing was written to this pipe for 0.05 s"):
        list(raw_lines(tmp_path / "pipe"))


def test_a_pipe_with_a_slow_writer_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    go = threading.Event()

    def write() -> None:
        with (tmp_path / "pipe").open("wb") as pipe:
            go.wait(10)
            pipe.write(b"late")

    writer = threading.Thread(target=write)
    writer.start()
    with open_file(tmp_path / "pipe") as file:
        threading.Timer(0.2, go.set).start()  # longer than a pipe without a writer is waited for
        assert file.read() == b"late"
    writer.join()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_devices_never_end(device):
    with pytest.raises(DataError, match=f"{device}: this is a device, expected a plain file"):
        list(raw_lines(Path(device)))


@pytest.mark.usefixtures("short_lines")
def test_a_line_that_is_too_long_is_named(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"a\tb\n" + b"c" * 99 + b"\n" + b"d" * 100 + b"\n")
    reading = raw_lines(path)
    assert [len(next(reading)) for _ in range(2)] == [4, 100]
    with pytest.raises(DataError, match=r"pairs.tsv, line 3: longer than 100 bytes, .*HEEDFUL_MAX_LINE"):
        next(reading)


def test_a_sparse_file_of_pairs_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"line 1: longer than 10 MB"):
        list(raw_lines(sparse(tmp_path / "pairs.tsv", 6 * 10**9)))


def zeros(path: Path, size: int, unit: bytes = b"\0") -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(size // 1_000_000):
            file.write(unit * (1_000_000 // len(unit)))
    return path


def test_zeros_in_gzip(tmp_path):
    with pytest.raises(DataError, match=r"zeros.gz"):
        list(raw_lines(zeros(tmp_path / "zeros.gz", 12_000_000)))


def test_lines_in_gzip_that_text_never_is(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "GROWTH", 50)  # packed fast, it is 200 times smaller
    path = zeros(tmp_path / "same.gz", 10_000_000, b"x" * 999_999 + b"\n")
    with pytest.raises(DataError, match=r"same.gz: .*unpacks to more than 50 times its size"):
        sum(1 for _ in raw_lines(path))


def test_text_in_gzip_is_read(tmp_path):
    with gzip.open(tmp_path / "text.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{n} {n * n} {n**3}\n" for n in range(1000))
    assert sum(1 for _ in raw_lines(tmp_path / "text.gz")) == 1000


@pytest.mark.usefixtures("short_lines")
def test_a_row_of_csv_over_many_lines(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text('source,target\na,b\n"' + "x\n" * 60 + '",y\n', encoding="utf-8")
    rows = PairFile(str(path)).rows()
    assert next(rows) == (2, "a", "b")
    with pytest.raises(DataError, match=r"pairs.csv, line 3: this row has more than 100 bytes.* quote"):
        next(rows)


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize(
    ("name", "line"), [("p.tsv", "a\t{}\n"), ("p.jsonl", '{{"source": "a", "target": "{}"}}\n'), ("p.csv", "a,{}\n")]
)
def test_every_format_has_the_limit(tmp_path, name, line):
    path = tmp_path / name
    path.write_text(line.format("x" * 100), encoding="utf-8")
    with pytest.raises(DataError, match=f"{name}, line 1: longer than 100 bytes"):
        list(PairFile(str(path), columns="1,2" if name != "p.jsonl" else "").rows())


@pytest.mark.usefixtures("short_lines")
def test_standard_input_has_the_limit(heedful_cli, tiny):
    done = heedful_cli("translate", tiny, "--device", "cpu", stdin=b"a\n" + b"b" * 101)
    assert (done.code, done.out.count("\n")) == (2, 1)  # the line before it
    assert "standard input, line 2: longer than 100 bytes" in done.err


def test_long_pairs_are_cleaned_a_few_at_a_time():
    rows = ["x" * 10] * 7
    assert [len(some) for some in portions(rows, 100, 25, len)] == [3, 3, 1]
    assert [len(some) for some in portions(rows, 2, 25, len)] == [2, 2, 2, 1]


def test_json_that_would_take_far_more_memory_than_its_text(monkeypatch):
    for name, content in {
        "100 objects and lists": "[" + "[]," * 101 + "0]",
        "50 members of objects": "{" + ",".join(f'"{n}": 0' for n in range(51)) + "}",
        "200 values": "[" + "0," * 201 + "0]",
    }.items():
        monkeypatch.setattr(files, "CONTAINERS", 100)
        monkeypatch.setattr(files, "MEMBERS", 50)
        monkeypatch.setattr(files, "VALUES", 200)
        for each in (content, content.encode(), content.encode("utf-16")):
            with pytest.raises(ModelError, match=f"^x.json: this JSON has more than {name}"):
                parse_json(each, "x.json")
        monkeypatch.setenv("HEEDFUL_MAX_JSON", "640000000")
        parse_json(content, "x.json")
        monkeypatch.delenv("HEEDFUL_MAX_JSON")
    # What stands in strings does not count.
    text = ['[{",:' * 500, '\\"' * 500 + "[" * 500, "\\"]
    assert parse_json(json.dumps(text), "x.json") == text
    with pytest.raises(ModelError, match="more than 100 objects"):
        parse_json('["\\\\", "a", ' + "[]," * 101 + '"]', "x.json")


def test_settings_are_small(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": "' + b"x" * 1_000_000 + b'"}')
    with pytest.raises(ModelError, match="at most 1 MB"):
        read_json(path, limit=files.SETTINGS)
    assert len(read_json(path)["a"]) == 1_000_000
    with pytest.raises(ModelError, match="config.json: has .* at most 1 MB"):
        about(tmp_path)
    with pytest.raises(ModelError, match="at most 1 MB"):
        json_object(path)
    assert len(json_object(path, vocabulary=True)) == 1
    path.rename(tmp_path / "readout.json")
    assert "at most 1 MB" in read_readout(tmp_path, Config.build({}))[1]
