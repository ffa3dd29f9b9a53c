"""What goes wrong in bulk: a clear message, nothing lost, and the other files go on."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import heedful
from heedful.bulk import formats, rows
from heedful.bulk.units import Shard
from heedful.errors import ConfigError, DataError, DeviceMemoryError, DiskError, MachineError, ModelError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
zstandard = pytest.importorskip("zstandard")


@pytest.fixture(scope="module")
def translator(tiny: Path) -> heedful.Translator:
    return heedful.load(tiny, "cpu", threads=1)


def json_file(path: Path, texts: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_that_are_no_text_are_kept_with_the_reason(translator: heedful.Translator, tmp_path: Path) -> None:
    long = "a b. " * 2_100_000  # more than 10 MB
    strange = ["a", None, 42, {"x": 1}, ["a"], True, long, "\ud800", "b"]
    report = heedful.translate_files(translator, json_file(tmp_path / "x.jsonl", strange), tmp_path / "out")
    found = records(tmp_path / "out" / "x.jsonl")
    assert [one["text"] for one in found] == strange
    assert [one["translation"] is not None for one in found] == [True, *[False] * 7, True]
    assert found[1]["error"] is None
    facts = ["a number", "an object", "a list", "true or false", "10.5 MB", "surrogate"]
    assert all(fact in one["error"] for fact, one in zip(facts, found[2:8], strict=True))
    assert (report.rows, report.null, report.refused) == (9, 1, 6)


def test_a_text_of_a_million_characters_is_refused_and_a_shorter_one_is_not(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    file = json_file(tmp_path / "x.jsonl", ["a " * 500_001, "a"])
    heedful.translate_files(translator, file, tmp_path / "out")
    first, second = records(tmp_path / "out" / "x.jsonl")
    assert "1,000,002 characters" in first["error"]
    assert second["error"] is None


def test_lines_that_are_not_utf8_are_kept_as_they_are(translator: heedful.Translator, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"a b\nc\xff\nd\n")
    report = heedful.translate_files(translator, tmp_path / "x.txt", tmp_path / "out")
    _, first, second, third = (tmp_path / "out" / "x.tsv").read_bytes().removesuffix(b"\n").split(b"\n")
    assert second.startswith(b"c\xff\t\t")
    assert b"0xff" in second
    assert b"0xff" not in first + third
    assert report.refused == 1


def test_cells_of_parquet_that_are_not_utf8(translator: heedful.Translator, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([b"a", b"\xff", None], pa.binary())}), tmp_path / "x.parquet")
    heedful.translate_files(translator, tmp_path / "x.parquet", tmp_path / "out")
    errors = pq.read_table(tmp_path / "out" / "x.parquet")["error"].to_pylist()
    assert [bool(error) for error in errors] == [False, True, False]


def damaged(path: Path) -> Path:
    """Write a file of a kind, and cut or change it."""
    lines = "".join(f'{{"text": "a {n}"}}\n' for n in range(5000)).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": ["a b c"] * 5000}), path, compression="gzip")
        content = bytearray(path.read_bytes())
        content[20:40] = bytes(20)  # the footer stays whole: only reading the rows fails
        path.write_bytes(content)
    else:
        packed = gzip.compress(lines) if path.suffix == ".gz" else zstandard.compress(lines)
        path.write_bytes(packed[: len(packed) // 2])
    return path


@pytest.mark.parametrize("name", ["b.parquet", "b.jsonl.gz", "b.jsonl.zst"])
def test_a_damaged_file_fails_and_the_others_go_on(translator: heedful.Translator, tmp_path: Path, name: str) -> None:
    files = [json_file(tmp_path / "a.jsonl", ["a"]), damaged(tmp_path / name), json_file(tmp_path / "c.jsonl", ["c"])]
    with pytest.raises(DataError) as caught:
        heedful.translate_files(translator, files, tmp_path / "out")
    assert name in str(caught.value)
    assert "1 input failed; 2 are done" in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".journal",
        "a.jsonl",
        "c.jsonl",
        "manifest.json",
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert list(manifest["missing"]) == [name]
    assert name in manifest["missing"][name]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"], ids=len)
def test_a_parquet_file_without_a_footer(translator: heedful.Translator, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.parquet").write_bytes(content)
    files = [tmp_path / "b.parquet", json_file(tmp_path / "c.jsonl", ["c"])]
    with pytest.raises(DataError, match=r"b\.parquet"):
        heedful.translate_files(translator, files, tmp_path / "out")
    assert (tmp_path / "out" / "c.jsonl").exists()


def test_when_a_damaged_file_is_replaced_only_it_is_translated(translator: heedful.Translator, tmp_path: Path) -> None:
    files = [json_file(tmp_path / "a.jsonl", ["a"]), damaged(tmp_path / "b.jsonl.gz")]
    with pytest.raises(DataError):
        heedful.translate_files(translator, files, tmp_path / "out")
    files[1].write_bytes(gzip.compress(b'{"text": "a"}\n'))
    report = heedful.translate_files(translator, files, tmp_path / "out")
    assert (report.outputs, report.before, report.missing) == (["b.jsonl.gz"], 1, 0)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["missing"] == {}


def test_a_zst_file_that_grows_too_much_is_not_read_to_its_end(translator: heedful.Translator, tmp_path: Path) -> None:
    (tmp_path / "x.txt.zst").write_bytes(zstandard.compress(bytes(100_000_000)))
    with pytest.raises(DataError, match="250 times"):
        heedful.translate_files(translator, tmp_path / "x.txt.zst", tmp_path / "out")


def test_an_input_that_vanishes(translator: heedful.Translator, tmp_path: Path) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "abc"]

    def vanish(progress: object) -> None:
        files[1].unlink(missing_ok=True)

    with pytest.raises(DataError, match=r"b\.jsonl.*vanished"):
        heedful.translate_files(translator, files, tmp_path / "out", progress=vanish)
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == ["a.jsonl", "c.jsonl"]


def test_an_input_that_changes_while_it_is_read(translator: heedful.Translator, tmp_path: Path) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"] * 3)
    with pytest.raises(DataError, match="changed while"):
        heedful.translate_files(
            translator, file, tmp_path / "out", progress=lambda state: os.utime(file, ns=(1, state.rows))
        )
    assert not (tmp_path / "out" / "a.jsonl").exists()


def test_a_full_disk_stops_the_run_and_keeps_what_is_done(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "abc"]
    write = formats.LineWriter.write

    def full(self: formats.LineWriter, portion: formats.Portion, values: Any) -> None:
        if "b" in portion.cells:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, portion, values)

    with monkeypatch.context() as patched:
        patched.setattr(formats.LineWriter, "write", full)
        with pytest.raises(DiskError, match=r"b\.jsonl.*No space left"):
            heedful.translate_files(translator, files, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {".journal", "a.jsonl", "manifest.json"}
    report = heedful.translate_files(translator, files, tmp_path / "out")
    assert (report.outputs, report.before) == (["b.jsonl", "c.jsonl"], 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_parquet(translator: heedful.Translator, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "x.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f".x.parquet.{Shard(1, 2)}.partial").symlink_to(
        "/dev/full"
    )  # where the output is written first
    with pytest.raises(DiskError, match=r"x\.parquet.*No space left"):
        heedful.translate_files(translator, tmp_path / "x.parquet", tmp_path / "out", shard="1/2")


def test_out_of_memory_halves_the_batches(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, tried = translator.parts.model, []
    encode = model.encode

    def small_memory(x: Any, *more: Any) -> Any:
        tried.append(x.numel())
        if x.numel() > 20:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(x, *more)

    files = [json_file(tmp_path / f"{name}.jsonl", ["a b"] * 16) for name in "ab"]
    heedful.translate_files(translator, files, tmp_path / "plain")
    monkeypatch.setattr(model, "encode", small_memory)
    heedful.translate_files(translator, files, tmp_path / "out")
    once = tried[-len(tried) // 2 :]
    assert tried[-2 * len(once) : -len(once)] == once  # every unit begins with the full size
    assert once[0] > 20 >= once[-1]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["batch_tokens"] == 4096
    (size,) = {one["batch_tokens"] for one in manifest["outputs"].values()}
    assert size <= 20
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == (tmp_path / "plain" / "a.jsonl").read_bytes()
    assert "out of memory" in caplog.text


def test_memory_that_is_too_small_for_one_sentence_fails_the_unit(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translate = translator.translate

    def no_memory(texts: Any, how: Any = None, **keywords: Any) -> Any:
        if "h" in texts:
            raise DeviceMemoryError("the device ran out of memory")
        return translate(texts, how, **keywords)

    monkeypatch.setattr(translator, "translate", no_memory)
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "ahb"]
    with pytest.raises(MachineError, match=r"h\.jsonl.*out of memory") as caught:
        heedful.translate_files(translator, files, tmp_path / "out")
    assert caught.value.exit_code == 1
    assert sorted(path.name for path in (tmp_path / "out").glob("*.jsonl")) == ["a.jsonl", "b.jsonl"]


def test_a_text_that_the_model_cannot_read_is_left_out_alone(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translate = translator.translate

    def choosy(texts: Any, how: Any = None, **keywords: Any) -> Any:
        if "h" in texts:
            raise ModelError("the tokenizer cannot read this text")
        return translate(texts, how, **keywords)

    monkeypatch.setattr(translator, "translate", choosy)
    heedful.translate_files(translator, json_file(tmp_path / "x.jsonl", ["a", "h", "b"]), tmp_path / "out")
    errors = [one["error"] for one in records(tmp_path / "out" / "x.jsonl")]
    assert errors == [None, "the tokenizer cannot read this text", None]
    with pytest.raises(ModelError):
        rows.RowTranslator(translator, rows.BulkSettings(), 4096).translate(["h", "h"])


def test_two_runs_into_one_folder(translator: heedful.Translator, tmp_path: Path) -> None:
    file = json_file(tmp_path / "a.jsonl", ["a"])
    messages: list[str] = []

    def other(state: object) -> None:
        for keywords in ({}, {"shard": "1/2"}):
            with pytest.raises(ConfigError) as caught:
                heedful.translate_files(translator, file, tmp_path / "out", **keywords)  # type: ignore[arg-type]
            messages.append(str(caught.value))

    heedful.translate_files(translator, file, tmp_path / "out", progress=other)
    assert messages
    assert all(str(os.getpid()) in message and "another run" in message for message in messages)


def test_shards_side_by_side_exclude_only_themselves_and_other_numbers_of_shards(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    files = [json_file(tmp_path / f"{name}.jsonl", [name]) for name in "abcd"]
    seen: list[str] = []

    def others(state: object) -> None:
        if seen:
            return
        seen.append("")
        heedful.translate_files(translator, files, tmp_path / "out", shard="2/2")
        for shard, fact in (("1/2", "shard 1/2"), ("", "shards"), ("1/3", "shard 1/2")):
            with pytest.raises(ConfigError, match=fact):
                heedful.translate_files(translator, files, tmp_path / "out", shard=shard)

    report = heedful.translate_files(translator, files, tmp_path / "out", shard="1/2", progress=others)
    assert report.missing == 0
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 4


def test_a_model_without_attention_has_no_links(tmp_path: Path) -> None:
    from random_translators import random_translator

    translator = random_translator("fixed")
    with pytest.raises(ConfigError, match="no attention"):
        heedful.translate_files(translator, json_file(tmp_path / "x.jsonl", ["a"]), tmp_path / "out", alignments=True)


@pytest.mark.parametrize(("name", "extra"), [("pyarrow", "bulk"), ("zstandard", "bulk"), ("ray", "ray")])
def test_a_package_that_is_missing_is_named_with_its_extra(
    translator: heedful.Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, name, None)
    file = {"pyarrow": "x.parquet", "zstandard": "x.jsonl.zst", "ray": "x.jsonl"}[name]
    json_file(tmp_path / file, ["a"])
    with pytest.raises(ConfigError, match=rf"\[{extra}\]"):
        heedful.translate_files(translator, tmp_path / file, tmp_path / "out", ray="local" if name == "ray" else "")
