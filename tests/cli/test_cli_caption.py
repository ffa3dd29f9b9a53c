"""`heedful caption`, and `heedful see` of a captioner: lines, boxes, pictures, bad files, models of the other kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tiny_captioner import captioner, picture

import heedful
from heedful.draw.views import read_traces, view
from heedful.interop.folder import write_model

pytest.importorskip("PIL")
Run = Callable[..., tuple[int, str, str]]
SHORT = ("--max-length", "4")
ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a captioner of 4 × 4 regions, a Transformer of 2 layers with 2 heads."""
    out = tmp_path_factory.mktemp("caption") / "model"
    write_model(out, captioner("transformer").parts)
    return out


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two images of 48 × 40 pixels."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    for number in range(2):
        Image.fromarray(picture(number).pixels).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@pytest.fixture(autouse=True)
def no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_one_image_gives_a_line_and_several_their_names(heedful_cli: Run, model: Path, images: list[Path]) -> None:
    captions = [one.text for one in heedful.load(model, "cpu").caption(list(images), max_length=4)]
    assert heedful_cli("caption", model, images[0], *SHORT).out == f"{captions[0]}\n"
    done = heedful_cli("caption", model, *images, *SHORT)
    assert done.out == "".join(f"{path}\t{text}\n" for path, text in zip(images, captions, strict=True))
    assert done.code == 0
    assert str(images[0]) in done.err  # the note that the caption was cut off
    piped = heedful_cli("caption", model, "-", *SHORT, stdin=images[0].read_bytes())
    assert piped.out == f"{captions[0]}\n"


def test_n_best_with_boxes(heedful_cli: Run, model: Path, images: list[Path]) -> None:
    done = heedful_cli("caption", model, images[0], *SHORT, "--beam", 3, "--n-best", 2, "--alignments")
    rows = [line.split("\t") for line in done.out.splitlines()]
    made = heedful.load(model, "cpu").caption(images[0], beam=3, n_best=2, max_length=4)
    assert [row[0] for row in rows] == ["1", "2"]
    assert [row[2] for row in rows] == [one.text for one in made.n_best]
    assert float(rows[0][1]) >= float(rows[1][1])
    boxes = dict(item.split(":") for item in rows[0][3].split())
    wanted = {
        str(i): ",".join(f"{n:g}" for n in box)
        for i, box in enumerate(made.n_best[0].trace.boxes())
        if box and i < len(made.text.split())
    }
    assert boxes == wanted
    assert boxes


def test_json_has_weights_and_boxes(heedful_cli: Run, model: Path, images: list[Path]) -> None:
    lines = heedful_cli("caption", model, *images, *SHORT, "--json", "--alignments").out.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["source"] for record in records] == list(map(str, images))
    assert records[0]["image"] == {"name": "0.png", "width": 48, "height": 40, "rows": 4, "columns": 4}
    made = heedful.load(model, "cpu").caption(images[0], max_length=4)
    words = records[0]["words"]
    assert " ".join(word["text"] for word in words) == records[0]["text"] == made.text
    assert np.allclose([word["weights"] for word in words], made.trace.words()[: len(words), :16], atol=1e-4)
    assert [word["box"] for word in words] == [
        box and pytest.approx(box, abs=0.01) for box in made.trace.boxes()[: len(words)]
    ]
    assert not {"source_words", "boxes", "weights"} & records[0].keys()
    short = json.loads(heedful_cli("caption", model, images[0], *SHORT, "--json").out)
    assert "words" not in short


def test_bad_files_among_others(heedful_cli: Run, model: Path, images: list[Path], tmp_path: Path) -> None:
    text, cut = tmp_path / "x.jpg", tmp_path / "cut.png"
    text.write_text("no image")
    cut.write_bytes(images[0].read_bytes()[:200])
    done = heedful_cli("caption", model, text, images[0], cut, tmp_path / "none.png", images[1], *SHORT, "--quiet")
    assert done.code == 2
    assert [line.split("\t")[0] for line in done.out.splitlines()] == list(map(str, images))
    errors = done.err.splitlines()
    assert [bool(re.search(name, line)) for name, line in zip(("x.jpg", "cut.png", "none.png"), errors, strict=True)]
    alone = heedful_cli("caption", model, text)
    assert (alone.code, alone.out) == (2, "")
    assert "x.jpg" in alone.err


def test_the_picture_is_drawn(
    heedful_cli: Run, model: Path, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = heedful_cli("caption", model, images[0], *SHORT, "--show").out
    assert "0.png, 48 × 40 pixels, 4 × 4 regions" in out
    assert ESCAPE not in out
    assert out.count("no region ") == 4
    plain = heedful_cli("caption", model, images[0], *SHORT, "--show", "--ascii").out
    assert plain.isascii()
    monkeypatch.setenv("FORCE_COLOR", "3")
    coloured = heedful_cli("caption", model, images[0], *SHORT, "--show", "--smooth").out
    assert f"{ESCAPE}38;2;" in coloured
    assert "smoothed" in coloured


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--temperature", "2"], "--temperature"),
        (["--ascii"], "--ascii"),
        (["--smooth"], "--smooth"),
        (["--json", "--show", "--smooth"], "--smooth"),
        (["--alpha", "2"], "--alpha"),
        (["--beam", "0"], "--beam"),
        (["--sample", "--beam", "3"], "--beam"),
    ],
)
def test_options_without_effect(
    heedful_cli: Run, model: Path, images: list[Path], options: list[str], named: str
) -> None:
    done = heedful_cli("caption", model, images[0], *options)
    assert done.code == 2
    assert named in done.err


def test_models_of_the_other_kind(heedful_cli: Run, model: Path, tiny: Path, images: list[Path]) -> None:
    text = heedful_cli("caption", tiny, images[0])
    assert text.code == 2
    assert "translates text" in text.err
    image = heedful_cli("translate", model, "a b c")
    assert image.code == 2
    assert "captions images" in image.err
    assert heedful_cli("caption", model, "-", "-").code == 2


def test_a_model_without_attention(heedful_cli: Run, images: list[Path], tmp_path: Path) -> None:
    write_model(tmp_path / "m", captioner("fixed").parts)
    done = heedful_cli("caption", tmp_path / "m", images[0], *SHORT, "--show")
    assert ("no attention" in done.out, "no attention" in done.err) == (True, True)
    done = heedful_cli("caption", tmp_path / "m", images[0], *SHORT, "--alignments")
    assert (done.code, "attention" in done.err) == (2, True)
    done = heedful_cli("see", tmp_path / "m", images[0], "--target", "two birds", "--to", tmp_path / "x.svg")
    assert (done.code, "attention" in done.err) == (2, True)


@pytest.mark.parametrize("ending", ["svg", "html", "json"])
def test_see_writes_files(heedful_cli: Run, model: Path, images: list[Path], tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    done = heedful_cli("see", model, images[0], "--target", "two small birds", "--to", path, "--smooth")
    assert (done.code, done.out) == (0, "two small birds\n")
    if ending == "json":
        (trace,), _ = read_traces(path)
        assert (trace.image.name, trace.image.rows) == ("0.png", 4)
        assert heedful_cli("see", path, "--to", tmp_path / "y.svg").code == 0
        assert (tmp_path / "y.svg").read_text() == view([trace])
        assert heedful_cli("see", path).out == heedful_cli("see", model, images[0], "--target", "two small birds").out
    else:
        assert "smoothed" in path.read_text()
    if ending == "svg":
        words = [text.text for text in ElementTree.parse(path).iter() if text.get("class") == "y"]
        assert words == ["two", "small", "birds"]


def test_see_of_one_head_and_of_stdin(heedful_cli: Run, model: Path, images: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    given = ("--target", "two small birds")
    heedful_cli("see", model, images[0], *given, "--layer", 2, "--head", 1, "--to", path)
    assert "layer 2, head 1" in path.read_text()
    piped = heedful_cli("see", model, "-", *given, stdin=images[0].read_bytes()).out
    assert piped.replace("standard input", "0.png") == heedful_cli("see", model, images[0], *given).out
    record = json.loads(heedful_cli("see", model, images[0], *given, "--json").out)
    assert record["image"]["width"] == 48


def test_two_captioners_in_one_page(heedful_cli: Run, model: Path, images: list[Path], tmp_path: Path) -> None:
    write_model(tmp_path / "other", captioner("rnn").parts)
    path = tmp_path / "x.html"
    done = heedful_cli("see", model, images[0], "--with", tmp_path / "other", "--target", "two birds", "--to", path)
    assert done.out == "model: two birds\nother: two birds\n"
    assert path.read_text().count('<image id="h-image') == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--check"], "--check"),
        (["--view", "braid"], "braid"),
        (["--view", "heatmap", "--smooth"], "smooth"),
        (["--self"], "--view regions, heatmap, braid or heads"),
        (["--view", "self"], "self-attention"),
        (["--mean"], "--mean"),
        (["--beside", "b.png"], "--beside: only for texts"),
    ],
)
def test_see_refuses(heedful_cli: Run, model: Path, images: list[Path], options: list[str], named: str) -> None:
    done = heedful_cli("see", model, images[0], *options)
    assert done.code == 2
    assert named in done.err


def test_see_of_an_image_by_a_model_of_text(heedful_cli: Run, tiny: Path, images: list[Path]) -> None:
    for options in ([], ["--mean"]):
        done = heedful_cli("see", tiny, images[0], *options)
        assert (done.code, done.out) == (2, "")
        assert f"{images[0]} is an image" in done.err


def test_errors_name_what_was_typed(heedful_cli: Run, model: Path, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    path = tmp_path / "bad" / "text.jpg"
    path.write_text("no image")
    assert f"{path}: " in heedful_cli("caption", model, path).err
    assert "download" in heedful_cli("caption", model, "https://example.org/a.png").err
    assert str(tmp_path / "bad" / "*.jpg") in heedful_cli("caption", model, tmp_path / "bad").err
    assert "translates text" in heedful_cli("caption", tiny, path, "--with", model).err


def test_commands_for_texts(heedful_cli: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("a b\tc d\n")
    done = heedful_cli("align", "--model", model, tmp_path / "p.tsv")
    assert (done.code, "captions images" in done.err) == (2, True)
    done = heedful_cli("align", model, tmp_path / "p.tsv")
    assert (done.code, "--model" in done.err) == (2, True)
    done = heedful_cli("convert", model, "--out", tmp_path / "c")
    assert (done.code, f"a copy of {model}" in done.err) == (0, True)


def test_info_of_a_captioner(heedful_cli: Run, model: Path) -> None:
    out = heedful_cli("info", model).out
    assert "pixels as 4 × 4 regions" in out
    assert "regions of words: " in out
    assert "links between words" not in out


def test_see_of_text_has_no_regions(heedful_cli: Run, tiny: Path) -> None:
    for options in (["--view", "regions"], ["--smooth"]):
        done = heedful_cli("see", tiny, "a b c", *options)
        assert done.code == 2
        assert "regions" in done.err
