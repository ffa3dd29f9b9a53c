"""Captions of images: the picture once for each word, with its weights over it; in the terminal, as SVG and as PNG."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import png_pixels
import pytest
import sample_traces as samples
from numpy.typing import NDArray

from heedful.draw import regions, views
from heedful.draw.png import render
from heedful.draw.terminal import columns
from heedful.draw.views import View, read_traces, view, write
from heedful.errors import ConfigError
from heedful.trace import ImageRegions, Trace
from heedful.trace.alarms import alarms, measure

NS = "{http://www.w3.org/2000/svg}"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
WORDS = ["a", "red", "square", "and", "a", "blue", "square"]


def test_the_words_of_a_caption_with_their_regions() -> None:
    words = regions.word_regions(samples.caption())
    assert [one.word.text for one in words] == WORDS
    red, square = words[1], words[2]
    assert (red.weights.shape, red.weights.argmax()) == ((2, 3), 0)
    assert (red.largest, red.no_region) == (pytest.approx(0.8), pytest.approx(0.1))
    assert (square.largest, square.no_region) == (pytest.approx(0.6), pytest.approx(0.2))
    assert red.confidence == pytest.approx(samples.caption().confidences()[1])
    boxes = [None, (0, 0, 200, 200), (0, 0, 200, 200), None, None, (400, 200, 200, 200), (400, 200, 200, 200)]
    assert [one.box for one in words] == boxes


def test_a_box_is_around_regions_that_touch_at_a_corner_but_not_around_others() -> None:
    trace = samples.caption()
    assert trace.weights is not None
    trace.weights[:, :, 1] = [0.4, 0, 0, 0, 0.3, 0, 0.3]
    trace.weights[:, :, 2] = [0.4, 0, 0.3, 0, 0, 0, 0.3]
    assert trace.boxes()[1:3] == ((0, 0, 400, 400), (0, 0, 200, 200))


def test_a_word_without_weights_has_no_box() -> None:
    trace = samples.caption()
    assert trace.weights is not None
    trace.weights[:, :, 1] = 0
    assert trace.boxes()[:3] == (None, None, (0, 0, 200, 200))


def test_a_word_is_as_bright_as_its_share_on_the_picture() -> None:
    a, red = regions.word_regions(samples.caption())[:2]
    assert red.brightness().max() == pytest.approx(0.9)
    assert red.brightness()[1, 2] == pytest.approx(0.9 * 0.02 / 0.8)
    assert a.brightness().max() == pytest.approx(0.1)
    nothing = red._replace(weights=np.zeros((2, 3)), no_region=1.0)
    assert not nothing.brightness().any()


def test_smoothed_weights_are_those_of_the_grid_at_the_centres() -> None:
    weights = np.random.default_rng(0).random((3, 4))
    smooth = regions.smoothed(weights, 9, 12)
    assert np.allclose(smooth[1::3, 1::3], weights)
    assert np.allclose(regions.smoothed(np.full((2, 2), 0.25), 8, 8), 0.25)
    peak = np.zeros((5, 5))
    peak[2, 2] = 1
    assert regions.smoothed(peak, 50, 50).min() == 0


def test_cubic_interpolation_is_that_of_pillow() -> None:
    image = pytest.importorskip("PIL.Image")
    weights = np.random.default_rng(1).random((6, 6)).astype(np.float32)
    theirs = np.asarray(image.fromarray(weights).resize((48, 48), image.Resampling.BICUBIC))
    ours = regions.smoothed(weights.astype(float), 48, 48)
    inside = slice(12, -12)  # at the borders Pillow weighs fewer values, and here the last one goes on
    assert np.allclose(ours[inside, inside], np.maximum(theirs, 0)[inside, inside], atol=1e-5)


def images(document: str) -> list[ET.Element]:
    return list(ET.fromstring(document).iter(f"{NS}image"))


def opacity(uri: str) -> NDArray[np.float64]:
    """The opacity of the pixels of a veil, from 0 to 1."""
    data = base64.b64decode(uri.partition(",")[2])
    at, chunks = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks[data[at + 4 : at + 8]] = data[at + 8 : at + 8 + size]
        at += size + 12
    wide, high = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(high, wide + 1)
    assert (lines[:, 0] == 2).all()
    steps = np.cumsum(lines[:, 1:], axis=0, dtype=np.uint8)
    return np.frombuffer(chunks[b"tRNS"], np.uint8)[steps] / 255


def test_the_picture_is_in_the_file_once_and_a_veil_for_each_word() -> None:
    document = view([samples.caption()])
    picture, *veils = images(document)
    assert base64.b64decode(picture.get("href").partition(",")[2]) == samples.caption().image.picture
    assert len(veils) == len(WORDS)
    uses = [use.get("href") for use in ET.fromstring(document).iter(f"{NS}use")]
    assert uses == [f"#{picture.get('id')}"] * (1 + len(WORDS))
    red, blue = opacity(veils[1].get("href")), opacity(veils[5].get("href"))
    high, wide = red.shape
    assert (high % 2, wide % 3) == (0, 0)
    cells = red.reshape(2, high // 2, 3, wide // 3).transpose(0, 2, 1, 3).reshape(6, -1)
    assert (cells == cells[:, :1]).all()  # the grid as it is
    assert cells[0, 0] < 0.12
    assert (cells[1:] > 0.75).all()
    assert blue[-1, -1] < 0.12


def test_smooth_weights_are_drawn_between_the_cells_and_that_is_said() -> None:
    drawn = {smooth: view([samples.caption()], View(smooth=smooth)) for smooth in (False, True)}
    said = {
        smooth: " ".join(text.text for text in ET.fromstring(document).iter(f"{NS}text"))
        for smooth, document in drawn.items()
    }
    assert regions.NOT_SMOOTHED in said[False]
    assert regions.SMOOTHED not in said[False]
    assert regions.SMOOTHED in said[True]
    assert regions.NOT_SMOOTHED not in said[True]
    veil = opacity(images(drawn[True])[2].get("href"))
    assert len(np.unique(veil)) > 10


def test_labels_have_word_confidence_largest_weight_and_no_region() -> None:
    trace = samples.caption()
    texts = [text.text for text in ET.fromstring(view([trace])).iter(f"{NS}text")]
    for one in regions.word_regions(trace):
        assert one.word.text in texts
        assert f"conf {one.confidence:.0%}".replace("%", "\u00a0%") in texts
    assert "largest 80\u00a0% · no region 10\u00a0%" in texts
    assert "600 × 400 pixels" in texts
    assert "s.png" in texts
    assert trace.readout_caption in " ".join(texts)


def test_a_weight_under_one_per_cent_is_not_zero() -> None:
    trace = samples.caption()
    weights = trace.weights.copy()
    weights[..., :-1], weights[..., -1] = 0.001 / 6, 0.999
    assert "largest <1\u00a0% · no region 100\u00a0%" in [
        text.text for text in ET.fromstring(view([replace(trace, weights=weights)])).iter(f"{NS}text")
    ]


def test_two_models_of_one_image_have_one_picture() -> None:
    two = view([samples.caption(), samples.caption("a blue square")], names=["one", "two"])
    assert two.count(base64.b64encode(samples.caption().image.picture).decode()) == 1
    assert len(images(two)) == 1 + 7 + 3


@pytest.mark.parametrize("text", ["एक लाल वर्ग और एक नीला वर्ग", "مربع أحمر", "<b> & \" '"])
@pytest.mark.parametrize("dark", [False, True])
def test_a_caption_as_png_in_any_script(text: str, dark: bool) -> None:
    pytest.importorskip("resvg_py", reason=png_pixels.MISSING)
    try:
        drawn = render(view([samples.caption(text)], title="A title"), dark=dark)
    except ConfigError as error:
        if "font" not in str(error):
            raise
        pytest.skip(str(error))
    assert drawn.startswith(b"\x89PNG")
    assert drawn != render(view([samples.caption(text)], title="Another title"), dark=dark)


def test_regions_with_weight_are_bright_in_a_png() -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("resvg_py")
    document = view([samples.caption()])
    root = ET.fromstring(document)
    pixels = np.asarray(image.open(io.BytesIO(render(document))).convert("RGB")).astype(int)
    scale = pixels.shape[1] / float(root.get("width"))
    groups = [g for g in root.findall(f"{NS}g") if g.find(f"{NS}use") is not None]
    size = next(root.iter(f"{NS}image"))
    wide, high = float(size.get("width")), float(size.get("height"))

    def colour(word: int, x: float, y: float) -> list[int]:
        left, top = map(float, re.findall(r"[\d.]+", groups[word + 1].get("transform")))
        return pixels[round((top + y * high) * scale), round((left + x * wide) * scale)].tolist()

    assert np.abs(np.array(colour(-1, 0.15, 0.25)) - (200, 30, 30)).max() < 6  # the picture itself
    red, _, blue = colour(1, 0.15, 0.25)
    assert red > 150
    assert blue < 60
    assert max(colour(1, 0.85, 0.75)) < 80  # the blue square is dark for the word 'red'
    assert colour(5, 0.85, 0.75)[2] > 150
    assert max(colour(0, 0.15, 0.25)) < 90  # 'a' attends to no region


def test_captions_are_drawn_as_regions_unless_another_view_is_named() -> None:
    trace = samples.caption()
    assert view([trace]) == str(regions.picture(trace)) == view([trace], View("regions"))
    assert view([trace], View("heatmap")) != view([trace])
    for name in ("heatmap", "heads"):
        assert "1,1" in view([trace], View(name))
    assert "no region" in view([trace], View("heatmap"))
    with pytest.raises(ConfigError, match="braid"):
        view([trace], View("braid"))
    with pytest.raises(ConfigError, match="no image"):
        view([samples.HINDI], View("regions"))
    with pytest.raises(ConfigError, match="smooth"):
        view([trace], View("heatmap", smooth=True))
    with pytest.raises(ConfigError, match="smooth"):
        view([samples.HINDI], View(smooth=True))
    with pytest.raises(ConfigError, match="self"):
        view([trace], View("self"))


def test_a_single_head_of_several() -> None:
    trace = samples.caption(layers=2, count=2)
    assert regions.word_regions(trace.only(2, 2))[1].weights.argmax() == 2
    assert "layer 2, head 2" in view([trace.only(2, 2)])


def test_a_model_without_attention() -> None:
    trace = replace(samples.caption(), weights=None)
    assert "no attention" in view([trace])
    shown = regions.terminal(trace)
    assert "no attention" in shown
    assert "s.png" in shown


def test_without_a_picture_the_grid_is_drawn() -> None:
    trace = samples.caption()
    bare = replace(trace, image=replace(trace.image, picture=b""))
    document = view([bare])
    assert len(images(document)) == len(WORDS)
    assert "no picture" in document
    assert "\u2580" in regions.terminal(bare, colours=256)


@pytest.mark.parametrize("ending", [".json", ".svg", ".html"])
def test_files_of_a_caption(tmp_path: Path, ending: str) -> None:
    path, trace = tmp_path / f"x{ending}", samples.caption()
    assert write(path, [trace]) == ""
    if ending == ".json":
        (back,), _ = read_traces(path)
        assert back.image == trace.image
        assert view([back]) == view([trace])
        assert json.loads(path.read_text())["image"]["columns"] == 3
    else:
        assert base64.b64encode(trace.image.picture).decode() in path.read_text()


def lines_of(text: str) -> list[str]:
    return ESCAPE.sub("", text).splitlines()


@pytest.mark.parametrize("colours", [0, 256, 2**24])
@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_terminal_is_not_wider_than_it_is(colours: int, width: int, ascii_only: bool) -> None:
    for text in ("a red square", "एक लाल वर्ग और एक नीला वर्ग"):
        shown = regions.terminal(samples.caption(text), width, ascii_only, colours=colours)
        assert max(map(columns, lines_of(shown))) <= width
        assert ("\x1b" in shown) == (colours > 0 and not ascii_only)
    if ascii_only:
        assert regions.terminal(samples.caption(), width, True, colours=colours).isascii()


def test_half_blocks_have_the_colours_of_two_pixels() -> None:
    pixels = np.array([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [7, 8, 9]]], dtype=np.uint8)
    (line,) = regions.half_blocks(pixels, 2**24)
    assert line == "\x1b[38;2;1;2;3;48;2;7;8;9m▀\x1b[38;2;4;5;6m▀\x1b[0m"
    (line,) = regions.half_blocks(np.array([[[255, 0, 0]], [[128, 128, 128]]], dtype=np.uint8), 256)
    assert line == "\x1b[38;5;196;48;5;244m▀\x1b[0m"


def test_the_terminal_has_each_word_with_its_numbers() -> None:
    shown = "\n".join(lines_of(regions.terminal(samples.caption(), 200, colours=2**24)))
    assert "s.png, 600 × 400 pixels, 2 × 3 regions" in shown
    assert "largest 80%" in shown
    assert "no region 10%" in shown
    assert "conf 87%" in shown
    assert regions.NOT_SMOOTHED in shown


def test_in_the_terminal_regions_with_weight_are_bright() -> None:
    (line, *_) = regions._Blocks(samples.caption().image, False, False, 2**24).word(
        regions.word_regions(samples.caption())[1]
    )
    upper = [list(map(int, rgb)) for rgb in re.findall(r"38;2;(\d+);(\d+);(\d+)", line)]
    assert upper[0][0] > 170
    assert max(upper[-1]) < 100


def test_without_colours_weights_are_shades() -> None:
    shown = regions.terminal(samples.caption("a red square"), 80).splitlines()
    first = next(i for i, line in enumerate(shown) if line.startswith("······"))
    assert shown[first].split() == ["······", "██····", "▓▓····"]
    assert shown[first + 1].split() == ["······", "······", "······"]


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "colours"),
    [
        (True, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 2**24),
        (True, {"TERM": "xterm-256color"}, 256),
        (True, {"TERM": "dumb"}, 0),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, 0),
        (False, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 0),
        (False, {"FORCE_COLOR": "1", "TERM": "xterm-256color"}, 256),
        (False, {"FORCE_COLOR": "3"}, 2**24),
        (False, {"FORCE_COLOR": "0"}, 0),
    ],
)
def test_colours_of_a_terminal(terminal: bool, environment: dict[str, str], colours: int) -> None:
    assert regions.terminal_colours(_Stream(terminal), environment) == colours


def with_rows(rows: list[int], none: float = 0.1) -> Trace:
    """A caption over 8 × 8 regions; word t has all but `none` of its weight on region rows[t]."""
    image = ImageRegions("s.png", 80, 80, 8, 8)
    y = samples.side([f"w{t}" for t in range(len(rows))])
    weights = np.full((1, 1, len(rows) + 1, 65), 0.0, dtype=np.float32)
    for t, region in enumerate([*rows, 0]):
        weights[0, 0, t, region], weights[0, 0, t, -1] = 1 - none, none
    return Trace(image.text(), y, weights, np.zeros(len(rows) + 1, np.float32), image=image)


def test_alarms_of_a_caption() -> None:
    """Most regions are not attended to, and three words name one thing: that is no alarm."""
    good = with_rows([3, 3, 3, 9, 40, 40])
    assert alarms(good) == ()
    assert measure(good).unseen == 0
    (repeated,) = alarms(with_rows([3] * 8))
    assert (repeated.kind, repeated.source, len(repeated.target)) == ("repeated", (3,), 8)
    (sink,) = alarms(with_rows([3, 9, 40], none=0.7))
    assert sink.kind == "sink"
    assert "70%" in sink.message
    assert "region" in sink.message
    flat = with_rows([3, 9, 40])
    weights = flat.weights.copy()
    weights[0, 0, 1] = 1 / 65
    (uniform,) = alarms(replace(flat, weights=weights))
    assert (uniform.kind, uniform.target) == ("flat", (1,))


def test_a_picture_is_not_larger_than_it_needs_to_be() -> None:
    """A caption of 12 words over 14 × 14 regions: a few kB a word beside the picture."""
    image = ImageRegions("s.png", 640, 480, 14, 14, samples.png(samples.scene()))
    y = samples.side([f"w{t}" for t in range(12)])
    weights = np.random.default_rng(0).random((1, 1, 13, 197), dtype=np.float32) ** 4
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace(image.text(), y, weights, np.zeros(13, np.float32), image=image)
    assert len(view([trace])) < 40_000
    assert len(view([trace], View(smooth=True))) < 160_000
    assert views.too_large(view([trace])) == ""


def test_a_caption_shows_and_saves_its_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heedful.translator.translation import Translation

    made = Translation("s.png", "a red square", -1.0, 4, samples.caption("a red square"))
    made.show(width=60)
    assert capsys.readouterr().out == regions.terminal(made.trace, 60) + "\n"
    made.show(view="heatmap")
    assert "row,column: 1 1,1" in capsys.readouterr().out
    made.save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text() == view([made.trace])
    document = base64.b64decode(re.search(r"base64,([^\"]*)", made._repr_html_())[1]).decode()
    assert len(images(document)) == 4
    record = made.plain()
    assert record["image"] == {"name": "s.png", "width": 600, "height": 400, "rows": 2, "columns": 3}
    assert [word["box"] for word in record["words"]] == [None, [0, 0, 200, 200], [0, 0, 200, 200]]
