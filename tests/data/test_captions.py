"""Files of captions in every format, names of images that are matched with files, and regions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.config import DataConfig
from heedful.data import corpus
from heedful.data.captions import CaptionFile, CaptionList, Region, caption_source, read_regions
from heedful.data.images import ImageFiles
from heedful.data.store import open_store
from heedful.errors import ConfigError, DataError

ROWS = [("a.png", "a dog runs"), ("a.png", "the dog, running"), ("sub/b.jpg", "two birds")]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with files of three names; nothing here decodes them."""
    folder = tmp_path / "images"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.png", "sub/b.jpg", "c.webp"):
        (folder / name).write_bytes(b"x")
    return folder


def written(folder: Path, name: str, content: str) -> str:
    """Write a file, packed if its name says so, and return its path."""
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return str(path)


COCO = {
    "info": {"year": 2026},
    "images": [{"id": 7, "file_name": "a.png", "width": 3}, {"id": 9, "file_name": "sub/b.jpg"}],
    "annotations": [
        {"id": i, "image_id": image, "caption": caption}
        for i, (image, caption) in enumerate(zip((7, 7, 9), (caption for _, caption in ROWS), strict=True))
    ],
}
CONTENTS = {
    "header.csv": 'image,caption\na.png,a dog runs\na.png,"the dog, running"\nsub/b.jpg,two birds\n',
    "other.csv": 'caption;split;file_name\na dog runs;train;a.png\n"the dog, running";train;a.png\ntwo birds;x;b.jpg\n',
    "without.csv": 'a.png,a dog runs\na.png,"the dog, running"\nsub/b.jpg,two birds\n',
    "swapped.csv": 'a dog runs,a.png\n"the dog, running",a.png\ntwo birds,sub/b.jpg\n',
    "three.csv": 'a.png,0,a dog runs\na.png,1,"the dog, running"\nsub/b.jpg,0,two birds\n',
    "kaggle.txt": 'image,caption\na.png,a dog runs\na.png,"the dog, running"\nb.jpg,two birds\n',
    "token.txt": "a.png#0\ta dog runs\na.png#1\tthe dog, running\nb.jpg#0\ttwo birds\n",
    "plain.tsv": "a.png\ta dog runs\na.png\tthe dog, running\nsub/b.jpg\ttwo birds\n",
    "header.tsv": "Filename\tText\na.png\ta dog runs\na.png\tthe dog, running\nsub/b.jpg\ttwo birds\n",
    "mark.csv": '\ufeffimage,caption\r\na.png,a dog runs\r\na.png,"the dog, running"\r\nb,two birds\r\n',
    "packed.csv.gz": 'image,caption\na.png,a dog runs\na.png,"the dog, running"\nsub/b.jpg,two birds\n',
    "coco.json": json.dumps(COCO),
    "pretty.json": json.dumps(COCO, indent=1),
    "coco.json.gz": json.dumps(COCO),
    "list.json": json.dumps([{"image": image, "caption": caption} for image, caption in ROWS]),
    "language.tsv": "file\ten\na.png\ta dog runs\na.png\tthe dog, running\nsub/b.jpg\ttwo birds\n",
    "objects.jsonl": '{"file_name": "a.png", "captions": [{"text": "a dog runs"}, {"text": "the dog, running"}]}\n'
    '{"file_name": "b.jpg", "captions": [{"id": 3, "caption": "two birds"}]}\n',
    "split.json": json.dumps(
        {
            "images": [
                {"filename": "a.png", "sentences": [{"raw": "a dog runs"}, {"raw": "the dog, running"}]},
                {"filename": "b.jpg", "sentences": [{"raw": "two birds"}]},
            ]
        }
    ),
    "one.jsonl": "".join(json.dumps({"image": image, "caption": caption}) + "\n" for image, caption in ROWS),
    "lines.json": "".join(json.dumps({"file_name": image, "text": caption}) + "\n" for image, caption in ROWS),
    "lists.jsonl": '{"image": "a.png", "captions": ["a dog runs", "the dog, running"]}\n'
    '{"image": "b.jpg", "captions": ["two birds"]}\n',
}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path, images: Path) -> None:
    notes: list[str] = []
    rows = list(CaptionFile(written(tmp_path, name, CONTENTS[name]), str(images)).rows(notes.append))
    assert [(image, caption.strip()) for _, image, caption in rows] == ROWS
    assert all("no image" not in note for note in notes)


def test_lines_are_counted_with_the_header(tmp_path: Path, images: Path) -> None:
    path = written(tmp_path, "c.csv", 'image,caption\na.png,"a\ndog"\nsub/b.jpg,two birds\n')
    assert [row.line for row in CaptionFile(path, str(images)).rows()] == [2, 4]


def test_captions_in_memory(images: Path) -> None:
    source = caption_source(ROWS, images)
    assert isinstance(source, CaptionList)
    assert [tuple(row) for row in source.rows()] == [(i, *row) for i, row in enumerate(ROWS, 1)]
    for wrong in ([("a.png", "x"), "ab"], [("a.png", "x", "y")], [(1, "x")], [("a.png", None)]):
        with pytest.raises(DataError, match=f"row {len(wrong)}"):
            list(caption_source(wrong, images).rows())
    with pytest.raises(DataError, match="generator"):
        caption_source((row for row in ROWS), images)


def test_captions_without_their_image_are_counted_or_an_error(tmp_path: Path, images: Path) -> None:
    content = "image,caption\na.png,a dog\nnone.png,a cat\na.png,dogs\nb.jpg,birds\n"
    notes: list[str] = []
    rows = list(CaptionFile(written(tmp_path, "c.csv", content), str(images)).rows(notes.append))
    assert [row.line for row in rows] == [2, 4, 5]
    assert len(notes) == 2
    assert all(part in notes[0] for part in ("c.csv", "1 of 4", "line 5", "'b.jpg'", "sub/b.jpg"))
    assert all(part in notes[1] for part in ("c.csv", "1 of 4", "line 3", "none.png"))
    bad = CaptionFile(written(tmp_path, "d.csv", "image,caption\na.png,a dog\nx.png,a\ny.png,b\n"), str(images))
    with pytest.raises(DataError, match=r"d\.csv: 2 of 3 .*line 3: 'x\.png', line 4: 'y\.png'.*a\.png"):
        list(bad.rows())


@pytest.mark.parametrize("name", ["../a.png", "/etc/passwd", "sub/../../a.png", "..\\a.png"])
def test_a_path_that_leaves_the_folder_is_an_error_with_its_line(name: str, tmp_path: Path, images: Path) -> None:
    path = written(tmp_path, "c.tsv", f"a.png\ta dog\n{name}\ta cat\n")
    with pytest.raises(DataError, match=r"c\.tsv, line 2.*leaves"):
        list(CaptionFile(path, str(images)).rows())


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("c.csv", "image,caption\na.png\n", ["line 2", "expected 2"]),
        ("c.csv", "image,caption\na.png,a dog,x\n", ["line 2", "found 3"]),
        ("c.csv", "a.png\n", ["line 1", "two columns"]),
        ("c.csv", "id,group,words\n1,2,3\n", ["line 1", "id, group, words", "columns="]),
        ("c.tsv", "a.png\ta dog\nb.jpg\n", ["line 2", "expected 2"]),
        ("c.tsv", "file\tcodes\ten\thi\na.png\t7\tx\ty\n", ["line 1", "columns='file,hi'"]),
        ("c.jsonl", '{"image": "a.png", "captions": [{"words": "x"}]}\n', ["line 1", "words"]),
        ("c.jsonl", '{"image": "a.png", "caption": "x"}\n{"image": "a.png", "words": "x"}\n', ["line 2", "caption"]),
        ("c.jsonl", '{"image": "a.png", "caption": 3}\n', ["line 1", "3"]),
        ("c.jsonl", '{"image": 7, "caption": "x"}\n', ["line 1", "7"]),
        ("c.jsonl", '{"image": "a.png", "caption": "x"}\nx\n', ["line 2", "not JSON"]),
        ("c.jsonl", '{"image": "a.png", "caption": "\\ud800"}\n', ["line 1", "surrogate"]),
        ("c.json", '{"images": [], "annotations": [{"image_id": 3, "caption": "x"}]}', ["annotation 1", "3"]),
        ("c.json", '{"images": [{"id": 3}], "annotations": []}', ["image 1", "file_name"]),
        ("c.json", '{"annotations": []}', ["images"]),
        ("c.json", '{"images":\n [}', ["line 2", "not JSON"]),
        ("c.json", '{"x": 1, "images": 3}', ["annotations"]),
        ("c.json", "[" * 100_000, ["nested"]),
    ],
)
def test_wrong_files(name: str, content: str, parts: list[str], tmp_path: Path, images: Path) -> None:
    with pytest.raises(DataError) as raised:
        list(CaptionFile(written(tmp_path, name, content), str(images)).rows())
    assert all(part in str(raised.value) for part in (name, *parts))


def test_an_object_without_a_caption_is_an_empty_caption(tmp_path: Path, images: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"image": "a.png", "caption": "x"}\n{"image": "a.png", "split": "train"}\n')
    assert [tuple(row) for row in CaptionFile(str(path), str(images)).rows()] == [(1, "a.png", "x"), (2, "a.png", "")]


def test_columns_and_formats_that_are_set(tmp_path: Path, images: Path) -> None:
    path = written(tmp_path, "c.csv", "id,img2,words,caption\n1,a.png,a dog,no\n")
    rows = list(CaptionFile(path, str(images), columns="img2,words").rows())
    assert rows == [(2, "a.png", "a dog")]
    path = written(tmp_path, "c.data", "a dog\ta.png\n")
    assert list(CaptionFile(path, str(images), format="tsv", columns="2,1").rows()) == [(1, "a.png", "a dog")]
    with pytest.raises(ConfigError, match="xml"):
        CaptionFile(path, str(images), format="xml")


def region(**changes: object) -> dict[str, object]:
    """Return a line of a file of regions with changes; None removes a field."""
    line = {"image": "a.png", "word": 1, "x": 1, "y": 2.5, "w": 3, "h": 4} | changes
    return {name: value for name, value in line.items() if value is not None}


def test_regions_are_given_to_their_captions(tmp_path: Path, images: Path) -> None:
    lines = [region(kind="dog"), region(word=0, caption=1), region(image="b.jpg"), region(image="zebra.png")]
    path = written(tmp_path, "r.jsonl", "\n".join(map(json.dumps, lines)))
    assert read_regions(Path(path))[0] == Region("a.png", 1, 1.0, 2.5, 3.0, 4.0, 0, "dog", 1)
    notes: list[str] = []
    source = CaptionFile(written(tmp_path, "c.csv", CONTENTS["header.csv"]), str(images), path)
    boxes = source.boxes(notes.append)
    assert boxes is not None
    taken = boxes.take(list(source.rows()))
    assert [[box.line for box in row] for row in taken] == [[1], [2], [3]]
    boxes.end(notes.append)
    assert len(notes) == 1
    assert "line 4" in notes[0]
    assert CaptionFile(source.path, source.images).boxes() is None


def read_all(source: CaptionFile) -> None:
    """Give all regions to the captions."""
    boxes = source.boxes()
    assert boxes is not None
    boxes.take(list(source.rows()))
    boxes.end(str)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"word": 3}, ["line 2", "word 3", "3 words"]),
        ({"word": -1}, ["line 2", "-1"]),
        ({"word": 1.5}, ["line 2", "1.5"]),
        ({"word": None}, ["line 2", "word", "missing"]),
        ({"x": "left"}, ["line 2", "'x'", "left"]),
        ({"x": True}, ["line 2", "'x'"]),
        ({"h": None}, ["line 2", "'h'", "missing"]),
        ({"w": 0}, ["line 2", "0 × 4"]),
        ({"y": float("nan")}, ["line 2", "nan"]),
        ({"caption": 2}, ["line 2", "caption 2", "2 captions"]),
        ({"image": None}, ["line 2", "image"]),
        ({"image": "../a.png"}, ["line 2", "leaves"]),
    ],
)
def test_wrong_regions(changes: dict[str, object], parts: list[str], tmp_path: Path, images: Path) -> None:
    path = written(tmp_path, "r.jsonl", json.dumps(region()) + "\n" + json.dumps(region(**changes)))
    source = CaptionFile(written(tmp_path, "c.csv", CONTENTS["header.csv"]), str(images), path)
    with pytest.raises(DataError) as raised:
        read_all(source)
    assert all(part in str(raised.value) for part in ("r.jsonl", *parts))


def test_files_of_regions_that_are_none(tmp_path: Path, images: Path) -> None:
    for content in ("", "[]\n", "a.png 1 2 3\n"):
        with pytest.raises(DataError, match=r"r\.jsonl"):
            read_regions(Path(written(tmp_path, "r.jsonl", content)))
    path = written(tmp_path, "r.jsonl", json.dumps(region(image="q.png")))
    with pytest.raises(DataError, match=r"q\.png"):
        CaptionFile(path, str(images), path).boxes()


def test_large_squares_are_decoded_a_few_at_a_time(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(job: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[Any]:
        for chunk in chunks:
            sizes.append(len(chunk))
            yield job(chunk)

    monkeypatch.setattr(corpus, "in_order", counted)
    monkeypatch.setattr(corpus, "SQUARES", 2 * 3 * 16**2)
    source = CaptionList([(name, "a caption") for name in ImageFiles(images).images], str(images))
    store = open_store([source], DataConfig(), print, lambda done, what: None)[0]
    squares = corpus.open_images(store, source.image_files, 16, print, lambda done, what: None)
    assert len(squares) == len(source.pairs) == sum(sizes) > 2
    assert max(sizes) == 2


SPLIT_ROWS = [
    ("a.png", "a dog runs", "train"),
    ("a.png", "the dog", "restval"),
    ("sub/b.jpg", "two birds", "val"),
    ("c.webp", "a cat", "test"),
    ("c.webp", "one cat", "test"),
]
SPLIT_CONTENTS = {
    "s.csv": "image,split,caption\n" + "".join(f"{i},{s},{c}\n" for i, c, s in SPLIT_ROWS),
    "s.tsv": "image\tcaption\tSplit\n" + "".join(f"{i}\t{c}\t{s.upper()} \n" for i, c, s in SPLIT_ROWS),
    "s.jsonl": "".join(json.dumps({"image": i, "caption": c, "split": s}) + "\n" for i, c, s in SPLIT_ROWS),
    "karpathy.json": json.dumps(
        {
            "dataset": "x",
            "images": [{"filename": i, "split": s, "sentences": [{"raw": c}]} for i, c, s in SPLIT_ROWS],
        }
    ),
}


@pytest.mark.parametrize("name", SPLIT_CONTENTS)
def test_the_column_split_chooses_rows(name: str, tmp_path: Path, images: Path) -> None:
    path = written(tmp_path, name, SPLIT_CONTENTS[name])
    for split, values in {
        "": {"train", "restval", "val", "test"},
        "train": {"train", "restval"},
        "valid": {"val"},
        "test": {"test"},
    }.items():
        notes: list[str] = []
        rows = list(CaptionFile(path, str(images), split=split).rows(notes.append))
        assert [row.target for row in rows] == [c for _, c, s in SPLIT_ROWS if s in values]
        logged = [note for note in notes if "split" in note]
        assert len(logged) == bool(split)
        assert all(fact in note for note in logged for fact in ("train 1", "restval 1", "val 1", "test 2"))
    named = CaptionFile(path, str(images), split="test", columns="" if name == "karpathy.json" else "image,caption")
    assert [row.target for row in named.rows()] == ["a cat", "one cat"]
    keys = {str(CaptionFile(path, str(images), split=split).fingerprint()) for split in ("", "train", "valid", "test")}
    assert len(keys) == 4


def test_a_column_split_without_the_rows_that_are_wanted(tmp_path: Path, images: Path) -> None:
    def read(values: str, split: str) -> tuple[int, list[str]]:
        rows = "".join(f"a.png,a dog,{value}\n" for value in values.split())
        notes: list[str] = []
        path = written(tmp_path, "c.csv", f"image,caption,split\n{rows}")
        return len(list(CaptionFile(path, str(images), split=split).rows(notes.append))), notes

    assert read("train train dev", "test")[0] == 1  # rather those for validation than those for training
    assert read("train train test", "valid")[0] == 1
    for values, split in (("train train", "test"), ("1 2", "train"), ("0 1", "test")):
        count, notes = read(values, split)
        assert count == 2
        assert len(notes) == 1
        assert "all rows" in notes[0]
    with pytest.raises(DataError, match=r"c\.csv.*test 2, val 1.*train"):
        read("test val test", "train")
    with pytest.raises(ConfigError, match="tset"):
        CaptionFile("c.csv", str(images), split="tset")
    # Without a header, a cell that is called split is only a cell.
    path = written(tmp_path, "d.csv", "a.png,a dog,split\nsub/b.jpg,two birds,test\n")
    assert len(list(CaptionFile(path, str(images), columns="1,2", split="train").rows())) == 2
