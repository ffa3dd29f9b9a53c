"""Reading images, also damaged and hostile ones, and folders and archives of them."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import struct
import tarfile
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from heedful.data.images import ImageFiles, ImageLimits, load_image, resized
from heedful.errors import DataError

PIL = pytest.importorskip("PIL.Image")


def encoded(image: object, kind: str = "PNG", **options: object) -> bytes:
    """Return an image, or an array of one, as the bytes of a file."""
    image = PIL.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def halves(width: int = 8, height: int = 4) -> np.ndarray:
    """Return an image whose left half is red and whose right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 255
    pixels[:, width // 2 :, 2] = 255
    return pixels


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_header(width: int, height: int) -> bytes:
    """Return a PNG file that declares a size and has a little data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_lossless_formats_give_the_pixels(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind.lower()}"
    path.write_bytes(encoded(halves(), kind, lossless=True))
    image = load_image(path)
    assert image.name == path.name
    assert image.notes == ()
    assert (image.width, image.height) == (8, 4)
    assert image.pixels.dtype == np.uint8
    assert (image.pixels == halves()).all()


def test_jpeg_is_near() -> None:
    image = load_image(encoded(np.full((16, 16, 3), 100, np.uint8), "JPEG"))
    assert abs(image.pixels.astype(int) - 100).max() <= 3


def test_first_frame_of_an_animation_with_a_note() -> None:
    frames = [PIL.fromarray(np.full((4, 4, 3), value, np.uint8)) for value in (10, 200)]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    image = load_image(content, "dance.gif")
    assert abs(image.pixels.astype(int) - 10).max() <= 8
    assert len(image.notes) == 1
    assert "dance.gif" in image.notes[0]
    assert "first frame" in image.notes[0]
    assert load_image(encoded(frames[0], "GIF")).notes == ()


def test_orientation_of_exif_is_applied() -> None:
    exif = PIL.Exif()
    exif[0x0112] = 6  # turned: the top of the file is the right side of the picture
    image = load_image(encoded(halves(), "PNG", exif=exif))
    assert image.pixels.shape == (8, 4, 3)
    assert (image.pixels[:4, :, 0] == 255).all()
    assert (image.pixels[4:, :, 2] == 255).all()


def test_transparent_pixels_are_white() -> None:
    clear = np.zeros((2, 2, 4), np.uint8)
    assert (load_image(encoded(clear)).pixels == 255).all()
    assert (load_image(clear).pixels == 255).all()
    half = np.zeros((2, 2, 4), np.uint8)
    half[:, :, 3] = 128
    assert abs(load_image(encoded(half)).pixels.astype(int) - 127).max() <= 1
    grey = PIL.new("LA", (2, 2), (0, 0))
    assert (load_image(encoded(grey)).pixels == 255).all()
    marked = PIL.new("L", (2, 2), 7)
    assert (load_image(encoded(marked, transparency=7)).pixels == 255).all()


def test_palettes_greyscale_bits_and_cmyk() -> None:
    flat = PIL.new("RGB", (4, 4), (255, 0, 0))
    assert (load_image(encoded(flat.convert("P"))).pixels == [255, 0, 0]).all()
    palette = flat.convert("P")
    index = palette.getpixel((0, 0))
    assert (load_image(encoded(palette, transparency=index)).pixels == 255).all()
    assert (load_image(encoded(PIL.new("L", (4, 4), 9))).pixels == 9).all()
    assert (load_image(encoded(PIL.new("1", (4, 4), 1))).pixels == 255).all()
    assert (load_image(encoded(np.full((4, 4), 0x8040, np.uint16))).pixels == 0x80).all()
    assert (load_image(encoded(np.full((4, 4), 100, np.uint16))).pixels == 0).all()
    ink = PIL.new("CMYK", (8, 8), (0, 255, 255, 0))  # red
    red = load_image(encoded(ink, "JPEG")).pixels.astype(int)
    assert red[..., 0].min() > 200
    assert red[..., 1:].max() < 60


def test_pillow_images_and_arrays() -> None:
    assert (load_image(PIL.fromarray(halves())).pixels == halves()).all()
    assert (load_image(halves()).pixels == halves()).all()
    assert (load_image(halves() / 255.0).pixels == halves()).all()
    assert load_image(np.zeros((3, 5), np.uint8)).pixels.shape == (3, 5, 3)
    for wrong in (np.zeros((3, 5, 7), np.uint8), np.zeros(3, np.uint8), np.full((2, 2, 3), 300), np.full((2, 2), 2.0)):
        with pytest.raises(DataError):
            load_image(wrong)
    with pytest.raises(DataError, match="end"):
        load_image(np.zeros((3, 50, 40), np.uint8))
    with pytest.raises(DataError, match="int"):
        load_image(7)


@pytest.mark.parametrize(
    "content",
    [
        png_header(30000, 30000),
        png_header(2**31 - 1, 2**31 - 1),
        b"GIF89a" + struct.pack("<HH", 65000, 65000) + b"0" * 99,
        b"RIFF\xff\x00\x00\x00WEBPVP8X\n\x00\x00\x00" + b"\x00" * 4 + b"\xff\xff\xff" * 2 + b"\x00" * 99,
        b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03" + b"\x00" * 99,
    ],
    ids=["png", "png-largest", "gif", "webp", "jpeg"],
)
def test_too_many_pixels_are_refused_before_decoding(content: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(DataError, match="huge.*pixels.*50 million"):
        load_image(content, "huge")
    assert time.perf_counter() - began < 0.2


def test_limits_are_those_given(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(encoded(halves()))
    with pytest.raises(DataError, match="8 × 4"):
        load_image(path, limits=ImageLimits(pixels=31))
    with pytest.raises(DataError, match=r"x\.png.*50 bytes"):
        load_image(path, limits=ImageLimits(bytes=50))
    with pytest.raises(DataError, match="50 bytes"):
        load_image(path.read_bytes(), limits=ImageLimits(bytes=50))
    with pytest.raises(DataError, match="8 × 4"):
        load_image(halves(), limits=ImageLimits(pixels=31))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_truncated_files_name_the_file(kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    content = encoded(noise, kind)
    for share in (0.003, 0.1, 0.5, 0.9):
        with pytest.raises(DataError, match="cut"):
            load_image(content[: max(4, int(share * len(content)))], "cut")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b'<?xml version="1.0"?>\n<!-- a drawing -->\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"<svg width='3'></svg>", "SVG"),
        (b"%PDF-1.7 ...", "PDF"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"a dog runs\n" * 20, "text"),
        (bytes(range(256)), "not an image"),
        (b"BM" + b"\0" * 60, "BMP"),
        (b"\0\0\0\x1cftypheic" + b"\0" * 60, "HEIC"),
    ],
)
def test_other_files_are_named_as_what_they_are(content: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"a.png.*{what}"):
        load_image(content, "a.png")


def test_damaged_bytes_never_raise_anything_else() -> None:
    random = np.random.default_rng(0)
    for kind in ("PNG", "JPEG", "WEBP", "GIF"):
        original = np.frombuffer(encoded(halves(32, 32), kind), np.uint8)
        for _ in range(60):
            content = original.copy()
            content[random.integers(0, len(content), 3)] = random.integers(0, 256, 3)
            with contextlib.suppress(DataError):
                assert load_image(content.tobytes(), "x").pixels.dtype == np.uint8


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for name, what in (("pipe.png", "pipe"), ("", "folder"), ("none.png", "no such file")):
        with pytest.raises(DataError, match=what):
            load_image(tmp_path / name)
    with pytest.raises(DataError):
        load_image("a\0b.png")


def test_resized_is_a_square_with_antialiasing() -> None:
    stripes = np.zeros((64, 96, 3), np.uint8)
    stripes[:, ::2] = 255
    square = resized(stripes, 16)
    assert square.shape == (16, 16, 3)
    assert abs(square.astype(int) - 127).max() < 30
    same = np.zeros((16, 16, 3), np.uint8)
    assert resized(same, 16) is same


def archives(folder: Path, entries: dict[str, bytes]) -> list[Path]:
    """Return a folder, a zip, a tar and a tar.gz with the same files."""
    for name, content in entries.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_bytes(content)
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    for ending, mode in (("tar", "w:"), ("tar.gz", "w:gz")):
        with tarfile.open(folder / f"a.{ending}", mode) as tar:
            for name, content in entries.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return [folder / name for name in ("files", "a.zip", "a.tar", "a.tar.gz")]


def test_folders_and_archives_hold_the_same(tmp_path: Path) -> None:
    content = encoded(halves())
    entries = {"a.png": content, "sub/deep/b.png": content, "captions.csv": b"x", ".hidden/c.png": content}
    entries["__MACOSX/a.png"] = content
    for path in archives(tmp_path, entries):
        files = ImageFiles(path)
        assert sorted(files.names) == ["a.png", "captions.csv", "sub/deep/b.png"]
        assert len(files) == 3
        assert sorted(files.images) == ["a.png", "sub/deep/b.png"]
        assert files.notes == []
        assert "sub/deep/b.png" in files
        assert "b.png" not in files
        assert (files.load("sub/deep/b.png").pixels == halves()).all()
        assert files.find("b.png") == files.find("./sub//deep/b.png") == files.find("b") == "sub/deep/b.png"
        assert files.find("images/a.png") == "a.png"
        assert files.find("z.png") is None
        with pytest.raises(DataError, match=r"z\.png"):
            files.load("z.png")
        with pytest.raises(DataError, match=r"captions\.csv.*text"):
            files.load("captions.csv")
        for outside in ("../x.png", "/etc/passwd", "a/../../x", "..\\x"):
            with pytest.raises(DataError, match="leaves"):
                files.find(outside)
        assert files.fingerprint() == ImageFiles(path).fingerprint()


def test_an_ambiguous_file_name_is_not_found(tmp_path: Path) -> None:
    for path in archives(tmp_path, {"x/a.png": b"1", "y/a.png": b"2"}):
        assert ImageFiles(path).find("a.png") is None
        assert ImageFiles(path).find("y/a.png") == "y/a.png"
        assert ImageFiles(path).find("data/y/a.png") == "y/a.png"


def test_a_file_of_another_folder_is_not_found(tmp_path: Path) -> None:
    for path in archives(tmp_path, {"test/cat.png": b"1", "set/train/dog.png": b"2", "owl.png": b"3"}):
        files = ImageFiles(path)
        assert [files.find(f"train/cat{ending}") for ending in (".png", "")] == [None, None]
        assert files.find("cat.png") == files.find("data/test/cat.png") == files.find("data/test/cat") == "test/cat.png"
        assert files.find("/abs/path/test/cat.png") == "test/cat.png"
        assert files.find("train/dog.png") == files.find("all/set/train/dog.png") == "set/train/dog.png"
        assert files.find("photos/owl.png") == "owl.png"
        for outside in ("/abs/train/cat.png", "/owl.png", "/abs/owl.png"):
            with pytest.raises(DataError, match="leaves"):
                files.find(outside)


def test_the_longer_path_is_the_better_one(tmp_path: Path) -> None:
    for path in archives(tmp_path, {"a.png": b"1", "train/a.png": b"2"}):
        assert ImageFiles(path).find("data/train/a.png") == "train/a.png"
        assert ImageFiles(path).find("data/test/a.png") == "a.png"


def test_absolute_paths_inside_the_folder(tmp_path: Path) -> None:
    folder = archives(tmp_path, {"x/a.png": b"1"})[0]
    assert ImageFiles(folder).find(str(folder / "x" / "a.png")) == "x/a.png"
    with pytest.raises(DataError, match="leaves"):
        ImageFiles(folder).find(str(tmp_path / "a.zip"))


def test_the_fingerprint_changes_with_a_file(tmp_path: Path) -> None:
    paths = archives(tmp_path, {"a.png": b"1", "b.png": b"2"})
    before = [ImageFiles(path).fingerprint() for path in paths]
    (tmp_path / "files" / "b.png").write_bytes(b"333")
    (tmp_path / "files" / "a.png").write_bytes(b"1")
    after = [ImageFiles(path).fingerprint() for path in archives(tmp_path, {"a.png": b"1", "b.png": b"3"})]
    assert all(x != y for x, y in zip(before, after, strict=True))


def test_entries_that_leave_the_archive_are_ignored_with_a_note(tmp_path: Path) -> None:
    bad = ["../evil.png", "/abs.png", "a/../../b.png", "..\\win.png", "c:/x.png"]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in (*bad, "good.png"):
            archive.writestr(name, b"x")
        link = zipfile.ZipInfo("link.png")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in (*bad, "good.png"):
            tar.addfile(tarfile.TarInfo(name))
        for name, kind in (("link.png", tarfile.SYMTYPE), ("hard.png", tarfile.LNKTYPE), ("f.png", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    for ending, links in (("zip", "1 entry"), ("tar", "3 entries")):
        files = ImageFiles(tmp_path / f"a.{ending}")
        assert files.names == ["good.png"]
        assert len(files.notes) == 2
        assert "5 entries" in files.notes[0]
        assert "../evil.png" in files.notes[0]
        assert links in files.notes[1]
        assert "link.png" in files.notes[1]


def test_zip_bombs_and_encrypted_entries(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", b"\0" * 30_000_000)
    with pytest.raises(DataError, match=r"bomb\.png.*30 MB"):
        ImageFiles(tmp_path / "a.zip").load("bomb.png")
    # Declared as 1,000 bytes, in both headers.
    content = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "b.zip").write_bytes(content.replace(struct.pack("<I", 30_000_000), struct.pack("<I", 1000)))
    with pytest.raises(DataError, match=r"bomb\.png"):
        ImageFiles(tmp_path / "b.zip").load("bomb.png")
    flagged = bytearray(content)
    flagged[content.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "c.zip").write_bytes(flagged)
    with pytest.raises(DataError, match=r"bomb\.png.*encrypted"):
        ImageFiles(tmp_path / "c.zip").read("bomb.png", ImageLimits(bytes=10**9))


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_damaged_entries_of_a_zip(kind: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", kind) as archive:
        archive.writestr("a.png", encoded(halves()) * 20)
    content = (tmp_path / "a.zip").read_bytes()
    begin = 30 + len("a.png")
    for at in (begin, begin + 4, begin + 9, begin + 14, begin + 30):
        (tmp_path / "b.zip").write_bytes(content[:at] + bytes([255 - content[at]]) * 8 + content[at + 8 :])
        with pytest.raises(DataError, match=r"a\.png"):
            ImageFiles(tmp_path / "b.zip").read("a.png")
    unknown = bytearray(content)
    for signature, offset in ((b"PK\1\2", 10), (b"PK\3\4", 8)):
        unknown[content.index(signature) + offset] = 77
    (tmp_path / "c.zip").write_bytes(unknown)
    with pytest.raises(DataError, match=r"a\.png"):
        ImageFiles(tmp_path / "c.zip").read("a.png")


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    for path in archives(tmp_path, {"a.png": encoded(halves())})[1:]:
        first, second = ImageFiles(path), ImageFiles(tmp_path / "files" / ".." / path.name)
        assert first._archive is second._archive
        assert first.load("a.png").pixels.tolist() == second.load("a.png").pixels.tolist() == halves().tolist()
        path.write_bytes(path.read_bytes() + b"\0")
        os.utime(path, (1, 1))
        assert path.suffix == ".zip" or ImageFiles(path)._archive is not first._archive


def test_a_packed_archive_that_does_not_fit_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archives(tmp_path, {"a.png": os.urandom(3_000_000)})[3]
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=4_000_000))
    with pytest.raises(DataError, match=r"a\.tar\.gz.*2 MB"):
        ImageFiles(path)


def progressive(scans: int, side: int = 64) -> bytes:
    """Return a progressive JPEG to which its last scan is added once more, several times."""
    content = encoded(halves(side, side), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * (scans - content.count(b"\xff\xda")) + b"\xff\xd9"


def test_a_jpeg_of_very_many_scans() -> None:
    assert load_image(progressive(20)).width == 64
    for scans in (65, 5_000):
        with pytest.raises(DataError, match=r"bomb\.jpg.*64 scans"):
            load_image(progressive(scans), "bomb.jpg")
    segments = b"\xff\xfe\0\2" * 20_000
    content = progressive(10)
    with pytest.raises(DataError, match="segments"):
        load_image(content[:2] + segments + content[2:])


def test_only_scans_of_the_image_itself_are_counted() -> None:
    """Not what looks like them in a comment, or in the video that some telephones write after the image."""
    content = encoded(halves(), "JPEG")
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 400) + b"\xff\xda" * 200
    assert load_image(content[:2] + comment + content[2:] + b"\xff\xda\0\2" * 1000).notes == ()


def test_bytes_that_are_markers_of_nothing_take_no_time() -> None:
    began = time.perf_counter()
    for filling in (b"\xff" * 5_000_000, b"\xff\1" * 2_500_000, b"\xff\0" * 2_500_000):
        with contextlib.suppress(DataError):
            load_image(b"\xff\xd8" + filling)
    assert time.perf_counter() - began < 20


def test_a_second_image_in_the_file_is_no_animation() -> None:
    second = PIL.fromarray(halves())
    content = encoded(PIL.fromarray(halves()), "MPO", save_all=True, append_images=[second])
    assert PIL.open(io.BytesIO(content)).format == "MPO"
    assert load_image(content).notes == ()


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encoded(halves()))
    paths = archives(tmp_path, {"a.png": os.urandom(5000)})
    for path in paths[1:]:
        (tmp_path / f"cut-{path.name}").write_bytes(path.read_bytes()[:900])
    os.mkfifo(tmp_path / "pipe")
    for name in ("x.png", "none", "pipe", "cut-a.zip", "cut-a.tar.gz"):
        with pytest.raises(DataError, match=name):
            ImageFiles(tmp_path / name)
    with pytest.raises(DataError, match="cut"):
        ImageFiles(tmp_path / "cut-a.tar").load("a.png")


def test_links_in_a_folder(tmp_path: Path) -> None:
    folder = archives(tmp_path, {"a.png": encoded(halves())})[0]
    (folder / "b.png").symlink_to(folder / "a.png")
    (folder / "loop").symlink_to(folder)
    (folder / "none.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "outside.png").write_bytes(encoded(halves(16)))
    (folder / "c.png").symlink_to(tmp_path / "outside.png")
    assert sorted(ImageFiles(folder).names) == ["a.png", "b.png", "c.png"]
    assert ImageFiles(folder).load("c.png").width == 16
