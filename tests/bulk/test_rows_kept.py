"""Every format keeps its rows, their order, other columns and types, and gets the same columns added."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.bulk.formats import Columns, LineReader, kind_of
from heedful.bulk.parquet import ParquetReader
from heedful.errors import ConfigError, DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
zstandard = pytest.importorskip("zstandard")

TEXTS = ["a b", "", "h g f e", "c", "d d"]


@pytest.fixture(scope="module")
def translator(tiny: Path) -> heedful.Translator:
    return heedful.load(tiny, "cpu", threads=1)


def expected(translator: heedful.Translator) -> list[str]:
    return [one.text for one in translator.translate(TEXTS)]


def written(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = zstandard.compress(content)
    path.write_bytes(content)
    return path


def unpacked(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return content.decode()


def lines(path: Path) -> list[str]:
    return unpacked(path).removesuffix("\n").split("\n")


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_json_lines_stay_as_they_were_written(translator: heedful.Translator, tmp_path: Path, packing: str) -> None:
    rows = [f'{{ "n":1.50, "text" :{json.dumps(text)},"é":"\\u00e9"  }}' for text in TEXTS]
    file = written(tmp_path / f"x.jsonl{packing}", "\n".join(rows).encode())
    heedful.translate_files(translator, file, tmp_path / "out")
    found = lines(tmp_path / "out" / f"x.jsonl{packing}")
    assert [json.loads(line)["translation"] for line in found] == expected(translator)
    assert all(line.startswith(row[:-1].rstrip()) for line, row in zip(found, rows, strict=True))
    assert list(json.loads(found[0])) == ["n", "text", "é", "translation", "score", "confidence", "error"]


def test_blank_lines_and_empty_objects_of_json_lines(translator: heedful.Translator, tmp_path: Path) -> None:
    file = written(tmp_path / "x.jsonl", b'{"text": "a"}\n\n{}\n{ }\n')
    report = heedful.translate_files(translator, file, tmp_path / "out")
    first, blank, *rest = lines(tmp_path / "out" / "x.jsonl")
    assert json.loads(first)["translation"]
    assert blank == ""
    nothing = {"translation": None, "score": None, "confidence": None, "error": "there is no field 'text'"}
    assert [json.loads(line) for line in rest] == [nothing, nothing]
    assert (report.rows, report.null, report.refused) == (4, 0, 2)


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_tsv_with_a_header(translator: heedful.Translator, tmp_path: Path, packing: str) -> None:
    rows = [f"{n}\t{text}\té" for n, text in enumerate(TEXTS)]
    file = written(tmp_path / f"x.tsv{packing}", ("\n".join(["id\ttext\tc", *rows]) + "\n").encode())
    heedful.translate_files(translator, file, tmp_path / "out", alignments=True, alarms=True)
    header, *found = lines(tmp_path / "out" / f"x.tsv{packing}")
    assert header == "id\ttext\tc\ttranslation\tscore\tconfidence\tlinks\talarms\terror"
    assert [line.split("\t")[3] for line in found] == expected(translator)
    assert [line.split("\t")[:3] for line in found] == [row.split("\t") for row in rows]


def test_tsv_without_a_header_takes_a_number(translator: heedful.Translator, tmp_path: Path) -> None:
    file = written(tmp_path / "x.tsv", "".join(f"{n}\t{text}\r\n" for n, text in enumerate(TEXTS)).encode())
    heedful.translate_files(translator, file, tmp_path / "out", column="2")
    found = [line.split("\t") for line in lines(tmp_path / "out" / "x.tsv")]
    assert [row[2] for row in found] == expected(translator)
    assert {len(row) for row in found} == {6}


def test_lines_of_text_become_tsv_or_what_the_name_says(translator: heedful.Translator, tmp_path: Path) -> None:
    file = written(tmp_path / "x.txt", "\n".join([*TEXTS, "a\tb"]).encode())
    for out in ("x.tsv", "x.jsonl", "y.txt"):
        heedful.translate_files(translator, file, tmp_path / "one" / out)
    heedful.translate_files(translator, file, tmp_path / "out")
    header, *found = lines(tmp_path / "one" / "x.tsv")
    assert (tmp_path / "out" / "x.tsv").read_bytes() == (tmp_path / "one" / "x.tsv").read_bytes()
    assert header.split("\t")[:2] == ["text", "translation"]
    assert [line.split("\t")[1] for line in found][:-1] == expected(translator)
    assert found[-1].startswith("a b\t")
    records = [json.loads(line) for line in lines(tmp_path / "one" / "x.jsonl")]
    assert [record["text"] for record in records] == [*TEXTS, "a\tb"]
    assert lines(tmp_path / "one" / "y.txt")[:-1] == expected(translator)


def parquet(path: Path, **columns: Any) -> Path:
    table = pa.table(columns).replace_schema_metadata({"who": "me"})
    pq.write_table(table, path, row_group_size=2, compression="zstd")
    return path


def test_parquet_keeps_types_and_metadata_and_every_row_group_is_a_unit(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    when = pa.array(range(5), pa.timestamp("us", "Europe/Berlin"))
    texts, kinds = pa.array(TEXTS, pa.large_string()), pa.array(list("xyxyx")).dictionary_encode()
    file = parquet(tmp_path / "x.parquet", text=texts, when=when, kind=kinds, list=[[1], [], None, [2], [3]])
    heedful.translate_files(translator, file, tmp_path / "out", alignments=True, alarms=True, n_best=2, beam=2)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [one.name for one in files] == [f"x-{n:05}-of-00003.parquet" for n in range(3)]
    table, before = pa.concat_tables(map(pq.read_table, files)), pq.read_table(file)
    assert table.select(before.column_names).equals(before)
    assert table.schema.metadata[b"who"] == b"me"
    assert pq.ParquetFile(files[0]).metadata.row_group(0).column(0).compression == "ZSTD"
    added = table.column_names[len(before.column_names) :]
    assert added == ["translation", "score", "confidence", "links", "alarms", "n_best", "error"]
    best = translator.translate(TEXTS, beam=2, n_best=2)
    assert table["translation"].to_pylist() == [one.text for one in best]
    assert table["score"].to_pylist() == pytest.approx([one.score for one in best], rel=1e-5)
    assert [[each["text"] for each in one] for one in table["n_best"].to_pylist()] == [
        [each.text for each in one.n_best] for one in best
    ]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
def test_a_whole_parquet_file_is_one_output_by_name_or_if_it_is_packed(
    translator: heedful.Translator, tmp_path: Path, packing: str
) -> None:
    file = parquet(tmp_path / "plain.parquet", text=TEXTS)
    written(tmp_path / f"x.parquet{packing}", file.read_bytes())
    out = tmp_path / "out" / f"y.parquet{packing}"
    heedful.translate_files(translator, tmp_path / f"x.parquet{packing}", out)
    plain = tmp_path / "unpacked"
    content = out.read_bytes()
    plain.write_bytes(
        {"": bytes, ".gz": gzip.decompress, ".zst": zstandard.ZstdDecompressor().decompressobj().decompress}[packing](
            content
        )
    )
    assert pq.read_table(plain)["translation"].to_pylist() == expected(translator)


@pytest.mark.parametrize("kind", [pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.null()], ids=str)
def test_types_that_hold_text_in_parquet(translator: heedful.Translator, tmp_path: Path, kind: Any) -> None:
    texts = [None] * 3 if kind == pa.null() else ["a", None, "b"]
    file = parquet(tmp_path / "x.parquet", text=pa.array(texts, kind))
    report = heedful.translate_files(translator, file, tmp_path / "out" / "y.parquet")
    assert (report.rows, report.null) == (3, texts.count(None))


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.jsonl", b""), ("x.txt", b""), ("x.tsv", b"text\n"), ("x.tsv", b""), ("x.txt.gz", b""), ("x.jsonl.zst", b"")],
)
def test_files_without_rows(translator: heedful.Translator, tmp_path: Path, name: str, content: bytes) -> None:
    file = written(tmp_path / name, content)
    report = heedful.translate_files(translator, file, tmp_path / "out")
    assert (report.rows, len(report.outputs)) == (0, 1)
    text = unpacked(tmp_path / "out" / report.outputs[0])
    assert text.startswith("text\ttranslation\t") if name.startswith("x.txt") or content else text == ""


def test_a_large_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    path, rows = tmp_path / "x.parquet", 40_000
    texts = [f"{number:01000}" for number in range(rows)]
    pq.write_table(pa.table({"text": texts}), path, compression="none", use_dictionary=False, row_group_size=rows)
    kind = kind_of(path)
    assert kind is not None
    reader = ParquetReader(path, kind, Columns("text", ("translation",)))
    tracemalloc.start()
    read = sum(len(portion.cells) for portion in reader.portions(1_000, 1_000_000))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == rows
    assert most < path.stat().st_size / 4


def test_parquet_without_rows(translator: heedful.Translator, tmp_path: Path) -> None:
    file = parquet(tmp_path / "x.parquet", text=pa.array([], pa.string()))
    heedful.translate_files(translator, file, tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "x.parquet").column_names[:2] == ["text", "translation"]


def test_links_of_a_text_of_several_sentences_are_those_of_the_whole(
    translator: heedful.Translator, tmp_path: Path
) -> None:
    from heedful.alignment.links import align_trace

    text = "a b c. D e f! g h"
    file = written(tmp_path / "x.jsonl", json.dumps({"text": text}).encode())
    heedful.translate_files(translator, file, tmp_path / "out", alignments=True)
    whole = translator.translate(text)
    assert len(whole.sentences) > 1
    (line,) = lines(tmp_path / "out" / "x.jsonl")
    assert json.loads(line)["links"] == str(align_trace(whole.trace, spaced=True))


def read_cells(path: Path, column: str = "") -> list[Any]:
    kind = kind_of(path)
    assert kind is not None
    return [
        cell
        for some in LineReader(path, kind, Columns(column, ("translation",))).portions(2, 10)
        for cell in some.cells
    ]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', ("x.jsonl, line 2", "not JSON")),
        ("x.jsonl", b'{"text": "a"}\n[1]\n', ("x.jsonl, line 2", "object")),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', ("x.jsonl, line 2", "not UTF-8", "0xff")),
        ("x.tsv", b"text\tb\na\tb\nc\n", ("x.tsv, line 3", "expected 2", "found 1")),
        ("x.txt", b"\xff\xfea\0", ("x.txt, line 1", "iconv")),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, name: str, content: bytes, facts: tuple[str, ...]) -> None:
    with pytest.raises(DataError) as caught:
        read_cells(written(tmp_path / name, content))
    assert all(fact in str(caught.value) for fact in facts), caught.value


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("x.jsonl", b'{"txt": "a", "id": 1}\n', ("x.jsonl, line 1", "'text'", "txt, id", "Did you mean 'txt'")),
        ("x.jsonl", b'{"text": "a", "translation": 1}\n', ("x.jsonl, line 1", "'translation'", "added_prefix='mt_'")),
        ("x.tsv", b"a\tb\n", ("x.tsv, line 1", "'text'", "a, b", "column='1'")),
        ("x.tsv", b"text\ttranslation\n", ("x.tsv, line 1", "'translation'", "added_prefix='mt_'")),
    ],
)
def test_a_wrong_column_is_named_before_any_work(
    translator: heedful.Translator, tmp_path: Path, name: str, content: bytes, facts: tuple[str, ...]
) -> None:
    file = written(tmp_path / name, content)
    with pytest.raises(ConfigError) as caught:
        heedful.translate_files(translator, file, tmp_path / "out")
    assert all(fact in str(caught.value) for fact in facts), caught.value
    assert not (tmp_path / "out").exists()


def test_wrong_columns_of_parquet(translator: heedful.Translator, tmp_path: Path) -> None:
    file = parquet(tmp_path / "x.parquet", id=[1, 2], text=["a", "b"], error=["", ""])
    for column, fact in (("id", "int64"), ("txt", "Did you mean 'text'"), ("text", "added_prefix")):
        with pytest.raises(ConfigError, match=fact):
            heedful.translate_files(translator, file, tmp_path / "out", column=column)
    heedful.translate_files(translator, file, tmp_path / "out", added_prefix="mt_")
    assert pq.read_table(tmp_path / "out" / "x.parquet").column_names[3:5] == ["mt_translation", "mt_score"]


def test_a_field_that_comes_later_does_not_make_two_of_a_name(translator: heedful.Translator, tmp_path: Path) -> None:
    file = written(tmp_path / "x.jsonl", b'{"text": "a"}\n{"text": "b", "score": 1}\n')
    with pytest.raises(DataError, match=r"x\.jsonl, line 2: .*'score'"):
        heedful.translate_files(translator, file, tmp_path / "out")
