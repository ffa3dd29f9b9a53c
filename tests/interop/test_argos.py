"""heedful/interop/argos.py: a package translates as its folder does, and is read without trusting it."""

from __future__ import annotations

import json
import logging
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ctranslate2_models import foreign_model, pieces, texts

import heedful
from heedful.errors import ModelError
from heedful.interop import format_of, read_argos
from heedful.interop.folder import write_readout
from heedful.text import SPECIALS
from heedful.text.sentencepiece import SentencePieces, ranked_model
from heedful.trace.readout import Readout

pytest.importorskip("ctranslate2")
pytest.importorskip("sentencepiece")

ABOUT = {"from_code": "aa", "from_name": "Small", "to_code": "bb", "to_name": "Large", "package_version": "1.9"}


def unpacked(path: Path, kind: str = "opennmt", **options: Any) -> Path:
    """An Argos package as it is unpacked."""
    folder = path / "translate-aa_bb-1_9"
    foreign_model(folder / "model", kind, "int8", **options)
    for name in ("sentencepiece.model", "source.spm", "target.spm"):
        if (folder / "model" / name).exists():
            (folder / "model" / name).rename(folder / name)
    (folder / "metadata.json").write_text(json.dumps(ABOUT))
    (folder / "README.md").write_text("# Small to Large\n")
    return folder


def packed(folder: Path, name: str = "m.argosmodel") -> Path:
    """The same as one file."""
    path = folder.parent / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(folder.rglob("*")):
            package.write(file, file.relative_to(folder.parent))
    return path


@pytest.mark.parametrize("kind", ["opennmt", "marian"])
def test_a_package_a_folder_and_its_model_translate_alike(tmp_path, kind):
    folder = unpacked(tmp_path, kind)
    package = packed(folder)
    lines = texts(5, seed=8)
    both = [heedful.load(path, "cpu") for path in (package, folder)]
    assert [format_of(path).name for path in (package, folder)] == ["argos", "argos"]  # type: ignore[union-attr]
    assert both[0].parts.remarks[0] == "Small to Large, version 1.9"
    assert "int8" in both[0].parts.remarks[1]
    assert both[0].parts.remarks == both[1].parts.remarks
    ours = [[one.text for one in translator.translate(lines)] for translator in both]
    (folder / "sentencepiece.model").rename(folder / "model" / "sentencepiece.model")
    plain = heedful.load(folder / "model", "cpu")
    assert ours[0] == ours[1] == [one.text for one in plain.translate(lines)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.argosmodel", folder.name]


def test_a_readout_is_kept_beside_the_package(tmp_path):
    package = packed(unpacked(tmp_path))
    write_readout(package, Readout(2, (1,), threshold=0.5))
    assert (tmp_path / "m.argosmodel.readout.json").is_file()
    assert heedful.load(package, "cpu").readout.layer == 2
    (tmp_path / "m.argosmodel.readout.json").write_text("{")
    with pytest.raises(ModelError, match=r"m\.argosmodel\.readout\.json"):
        heedful.load(package, "cpu")


def test_a_missing_model_of_one_side_is_replaced_and_named(tmp_path, caplog):
    folder = unpacked(tmp_path, "marian", separate=True)  # sentencepiece.model is the source's
    with caplog.at_level(logging.WARNING, "heedful"):
        parts = read_argos(packed(folder))
    assert [
        record.getMessage()
        for record in caplog.records
        if "no SentencePiece model of the target" in record.msg % record.args
    ]
    assert "0%" in parts.remarks[-1] or "has" in parts.remarks[-1]
    text = "THE OLD CAT SEES A DOG."
    ids = parts.target.encode(text).ids
    assert SPECIALS.index("<unk>") not in ids
    assert parts.target.decode(ids) == text
    assert parts.source_codec.decode(parts.source_codec.encode("the old cat.").ids) == "the old cat."


def test_a_ranked_model_cuts_mostly_as_the_one_it_stands_for():
    real = pieces(200)
    ranked = SentencePieces(ranked_model(real.tokens[4:], real.model), real.tokens)
    same = sum(a == b for a, b in zip(real.ids(texts(100)), ranked.ids(texts(100)), strict=True))
    assert same > 80
    assert ranked.share == 1
    # The normaliser is the same.
    assert ranked.ids(["ﬁne  cat"]) == ranked.ids(["fine cat"])


def rewritten(package: Path, change: Any) -> Path:
    """A package whose entries were changed: `change` gets the name and the content, and returns entries."""
    with zipfile.ZipFile(package) as old:
        members = [(info, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as new:
        for info, content in members:
            for name, some in change(info.filename, content):
                new.writestr(name, some)
    return package


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


BAD: dict[str, tuple[Any, str]] = {
    "up": (lambda name, content: [(name, content), ("a/../../evil", b"x")], "leads out"),
    "absolute": (lambda name, content: [(name, content), ("/etc/evil", b"x")], "leads out"),
    "windows": (lambda name, content: [(name, content), ("C:\\evil", b"x")], "leads out"),
    "link": (lambda name, content: [(name, content), (link("t/link"), b"/etc/passwd")], "is a link"),
    "bomb": (lambda name, content: [(name, b"\0" * 30_000_000 if name.endswith(".bin") else content)], "grow 20 times"),
    "no model": (lambda name, content: [] if name.endswith("model.bin") else [(name, content)], "there is none"),
    "two models": (lambda name, content: [(name, content), (f"other/{name}", content)], "there is 2"),
    "no vocabulary": (lambda name, content: [] if "vocabulary" in name else [(name, content)], "vocabulary"),
    "no pieces": (lambda name, content: [] if "sentencepiece" in name else [(name, content)], "no tokenizer"),
    "version": (
        lambda name, content: [(name, b"\x09" + content[1:] if name.endswith(".bin") else content)],
        "version 9",
    ),
    "sizes": (
        lambda name, content: [
            (name, content.replace(b"\x10\0\0\0", b"\xff\xff\xff\0") if name.endswith(".bin") else content)
        ],
        "model.bin",
    ),
    "prefix": (
        lambda name, content: [(name, b'{"target_prefix": ">>x<<"}' if name.endswith("metadata.json") else content)],
        "target_prefix",
    ),
    "kind": (lambda name, content: [(name, b'{"type": "sbd"}' if name.endswith("metadata.json") else content)], "sbd"),
    "method": (lambda name, content: [(zipped(name), content)], "method 14"),
}


def zipped(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_LZMA
    return info


@pytest.mark.parametrize("name", list(BAD))
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_package_that_is_not_safe_is_refused(tmp_path, name):
    change, why = BAD[name]
    package = rewritten(packed(unpacked(tmp_path)), lambda *entry: dict(change(*entry)).items())
    with pytest.raises(ModelError, match=why) as error:
        heedful.load(package)
    assert "m.argosmodel" in str(error.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(tmp_path):
    package = packed(unpacked(tmp_path))
    with zipfile.ZipFile(package, "a") as more:
        more.writestr("translate-aa_bb-1_9/metadata.json", b"{}")
    with pytest.raises(ModelError, match="twice"):
        heedful.load(package)


def test_what_is_no_package_is_named(tmp_path):
    package = packed(unpacked(tmp_path))
    content = package.read_bytes()
    at = content.rindex(b"PK\5\6")
    encrypted = bytearray(content)
    for place in [i for i in range(len(content) - 4) if content[i : i + 4] == b"PK\1\2"]:
        encrypted[place + 8] |= 1
    damaged = {
        "not complete": content[: len(content) // 2],
        "not a zip": b"x" * 1000,
        "cannot be unpacked": content[:5000] + bytes(200) + content[5200:],
        "is encrypted": bytes(encrypted),
        "list of its files": content[: at + 12] + struct.pack("<I", 2**30) + content[at + 16 :],
        "damaged": content[: at + 12] + struct.pack("<I", 7) + content[at + 16 :],
    }
    for why, bad in damaged.items():
        package.write_bytes(bad)
        with pytest.raises(ModelError, match=why) as error:
            heedful.load(package)
        assert "m.argosmodel" in str(error.value), why
    package.unlink()
    with pytest.raises(ModelError, match="there is no such file"):
        heedful.load(package)
    os.mkfifo(package)
    with pytest.raises(ModelError, match="pipe"):
        heedful.load(package)
