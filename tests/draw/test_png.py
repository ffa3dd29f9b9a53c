"""PNG files, read back dot by dot: the right size, ink where words are, the colours of ribbons, fonts for scripts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import sample_traces as samples
from numpy.typing import NDArray
from png_pixels import MISSING, dots

import heedful
from heedful.draw import views
from heedful.draw.fonts import Fonts, faces_of, script_of
from heedful.draw.picture import DARK, DARK_RIBBONS, LIGHT_RIBBONS, NAMES, RIBBONS
from heedful.draw.png import render
from heedful.draw.views import View, view
from heedful.errors import ConfigError, DataError, HeedfulError, install_command


@pytest.fixture(autouse=True)
def _parts(request: pytest.FixtureRequest) -> None:
    if "without" not in request.node.name:
        pytest.importorskip("resvg_py", reason=MISSING)
        pytest.importorskip("fontTools", reason=MISSING)


def need(text: str) -> Fonts:
    """The fonts of this machine; skip where there is none for a text."""
    fonts = Fonts()
    try:
        fonts.choose(text)
    except DataError as error:
        pytest.skip(str(error))
    return fonts


def size_of(svg: str) -> tuple[float, float]:
    width, height = re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2]
    return float(width), float(height)


def ink(picture: NDArray[np.uint8], x: float, y: float, wide: float, high: float) -> int:
    """How many dots are dark around a place, in the units of the SVG."""
    part = picture[int(2 * (y - high)) : int(2 * y), int(2 * (x - wide / 2)) : int(2 * (x + wide / 2)), :3]
    return int((part.astype(int).sum(-1) < 300).sum())


def test_a_braid_has_its_words_and_its_colours() -> None:
    need("मैं")
    svg = view([samples.HINDI], View("braid"), "Hindi")
    picture = dots(render(svg))
    width, height = size_of(svg)
    assert abs(picture.shape[1] - 2 * width) <= 2
    assert abs(picture.shape[0] - 2 * height) <= 2
    assert tuple(picture[0, 0]) == (255, 255, 255, 255)
    move = float(re.search(r"translate\(8 ([\d.]+)\)", svg)[1])
    words = re.findall(r'<text class="m(?: t)?" x="([\d.]+)" y="([\d.]+)">([^<]+)<', svg)
    assert len(words) == 13
    for x, y, _ in words:  # Devanagari above, Latin below: each is there
        assert ink(picture, float(x) + 8, float(y) + move, 30, 12) > 10
    colours = dict(zip(RIBBONS, LIGHT_RIBBONS, strict=True))
    for name in ("d0", "d1", "d2", "d3", "d4"):  # the bars above are of the pure colour
        wanted = [int(colours[name][i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(picture[..., :3].astype(int) - wanted).sum(-1) < 6).sum() > 100


def test_dark_has_dark_colours_that_can_be_seen() -> None:
    need("मैं")
    for name in ("braid", "heatmap"):
        svg = view([samples.HINDI], View(name), "Hindi")
        picture = dots(render(svg, dark=True))[..., :3].astype(float)
        assert picture[0, 0].tolist() == [0x14, 0x16, 0x1A]
        colours = dict(zip((*NAMES, *RIBBONS), (*DARK, *DARK_RIBBONS), strict=True))
        wanted = ("d0", "d1", "d2", "d3", "d4", "ink") if name == "braid" else ("ink", "soft")
        for colour in wanted:
            rgb = np.array([int(colours[colour][i : i + 2], 16) for i in (1, 3, 5)])
            assert (np.abs(picture - rgb).sum(-1) < 6).sum() > 20, colour
        # Letters and ribbons stand out: what is not near the ground is at least three times as light.
        light = np.where(picture <= 10.31, picture / 255 / 12.92, ((picture / 255 + 0.055) / 1.055) ** 2.4)
        light = light @ [0.2126, 0.7152, 0.0722] + 0.05
        assert (light / light[0, 0] >= 3).mean() > 0.02
        assert light.min() >= light[0, 0] * 0.5  # nothing is left black on it


def test_dark_is_asked_for(heedful_cli, tiny, tmp_path: Path) -> None:
    for more, ground in (([], 0xFF), (["--dark"], 0x14)):
        assert heedful_cli("see", tiny, "a b", "--to", tmp_path / "x.png", *more).code == 0
        assert dots((tmp_path / "x.png").read_bytes())[0, 0, 0] == ground
    for to in ([], ["--to", tmp_path / "x.svg"]):
        done = heedful_cli("see", tiny, "a b", "--dark", *to)
        assert (done.code, "--dark has no effect without --to FILE.png" in done.err) == (2, True)
    heedful.load(tiny, "cpu").translate("a b").save(tmp_path / "y.png", view="braid", dark=True)
    assert dots((tmp_path / "y.png").read_bytes())[0, 0, 0] == 0x14


def drawn_words(
    text: str, x: float = 5, kind: str = "", wide: int = 120, font: Path | None = None
) -> NDArray[np.uint8]:
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="heedful" width="{wide}" height="40">'
        "<style>.heedful{font-size:20px}.r{text-anchor:end}.m{text-anchor:middle}</style>"
        f'<text class="{kind}" x="{x}" y="28">{text}</text></svg>'
    )
    return dots(render(svg, font))


def extent(picture: NDArray[np.uint8]) -> float:
    dark = np.flatnonzero((picture[..., :3].astype(int).sum(-1) < 600).any(0))
    return float(dark[-1] - dark[0]) if len(dark) else 0.0


def test_letters_are_shaped() -> None:
    need("कषमرحبا")
    # A conjunct is narrower than its letters, the sign इ stands before the letter that it follows, Arabic letters join.
    assert extent(drawn_words("क्ष")) < 0.8 * extent(drawn_words("कष"))
    assert extent(drawn_words("مرحبا")) < 0.9 * sum(extent(drawn_words(c)) for c in "مرحبا") + 30
    assert (drawn_words("कि") != drawn_words("क")).any()


def shades(picture: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How dark each dot is, from the first column that has ink to the last."""
    dark = 255 - picture[..., 0].astype(int)
    inked = np.flatnonzero((dark > 40).any(0))
    return dark[:, inked[0] : inked[-1] + 1]


def ends_like(line: str, word: str) -> bool:
    """Whether the end of a drawn line looks as a word that is drawn alone; it may stand between two dots."""
    whole = np.pad(shades(drawn_words(line, wide=600)), ((0, 0), (0, 2)))
    for eighth in range(8):
        alone = shades(drawn_words(word, x=5 + eighth / 16, wide=600))
        for back in range(4):
            end = whole[:, whole.shape[1] - alone.shape[1] - back : whole.shape[1] - back]
            # Dots have few shades: one may be off by a quarter at an edge, but few are.
            if end.shape == alone.shape:
                off = np.abs(end - alone)[:, 3:-3]
                if off.max() <= 96 and off.mean() < 2:
                    return True
    return False


WORDS = ("लेकिन", "कुत्ता", "हैं", "क्षत्रिय", "مرحبا", "שלום", "ภาษาไทย", "家東", "ありがとう")


@pytest.mark.slow
@pytest.mark.parametrize("word", WORDS)
def test_a_word_looks_the_same_after_other_scripts(word: str) -> None:
    need(word + "न")
    assert ends_like(word, word)
    for line in (f"at {word}", f"Привет, a: {word}", f"hardly 12 % at 'न', {word}"):
        assert ends_like(line, word), line
    assert not ends_like(f"at {word}", word[::-1])


def block_font(path: Path, text: str) -> Path:
    """Write a font in which every character of a text is a full block, and nothing else is anything."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    block = TTGlyphPen(None)
    for move, point in ((block.moveTo, (0, 0)), *((block.lineTo, at) for at in ((0, 800), (1000, 800), (1000, 0)))):
        move(point)
    block.closePath()
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "block"])
    font.setupCharacterMap(dict.fromkeys(map(ord, text), "block"))
    font.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "block": block.glyph()})
    font.setupHorizontalMetrics({".notdef": (500, 0), "block": (1000, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "3 Blocks & 'Co'", "styleName": "Regular", "psName": "Blocks"})
    font.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    font.setupPost()
    font.save(path)
    return path


@pytest.mark.parametrize("word", ["家東", "ありカタ", "한국", "😀🎉"])
def test_a_script_with_a_font_of_its_own_stands_in_any_line(tmp_path: Path, word: str) -> None:
    """A script for which few machines have a font, with one made here: its blocks are all there."""
    need("लेकिन")
    font = block_font(tmp_path / "blocks.ttf", word)
    for line in (word, f"at {word}", f"लेकिन: {word}", f"{word}, at 'लेकिन'", f"at '{word}' 12 %"):
        dark = drawn_words(line, wide=400, font=font)[..., 0] < 100
        full = dark[26:54].all(0).sum()  # columns that are dark all the way down, as no letter is
        assert abs(full - 40 * len(word)) <= 4, line


def test_lines_end_and_stand_where_they_should() -> None:
    need("लेकिनمرحبا")
    for text in ("end लेकिन", "लेकिन a", "a مرحبا", "mar लेकिन at"):
        for kind, x in (("r", 290), ("m", 150)):
            picture = drawn_words(text, x, kind, wide=300)
            inked = np.flatnonzero((picture[..., 0] < 200).any(0))
            where = inked[-1] if kind == "r" else (inked[0] + inked[-1]) / 2
            assert abs(where - 2 * x) < 8, (text, kind)  # a letter has a little room at its sides
            assert abs(extent(picture) - extent(drawn_words(text, wide=300))) <= 2


def test_headings_are_bold_in_every_script() -> None:
    fonts = need("न")
    face = fonts.choose("न")["न"]
    if not face.path.with_name(face.path.name.replace("Regular", "Bold")).is_file() or "Bold" in face.path.name:
        pytest.skip("there is no bold font of Devanagari on this machine")
    head = samples.trace("a b", "c d", [[0], [1], [2]])
    title = r'(<text class="h"[^>]*>)[^<]*'
    bold, thin = (view([head], View("braid"), word) for word in ("न", "न"))
    thin = re.sub(title, lambda m: m[0].replace('class="h"', 'style="font-size:15px"'), thin)
    drawn = [int((dots(render(svg))[:52, :, 0] < 100).sum()) for svg in (bold, thin)]
    assert drawn[0] > 1.2 * drawn[1]


def test_emoji_have_colours() -> None:
    fonts = need("😀")
    if "emoji" not in fonts.choose("😀")["😀"].family.lower():
        pytest.skip("there is no font of emoji on this machine")
    picture = drawn_words("😀")[..., :3].astype(int)
    assert (picture.max(-1) - picture.min(-1) > 80).sum() > 100
    assert extent(drawn_words("👨\u200d👩\u200d👧")) < 1.3 * extent(drawn_words("😀"))


def test_chinese_and_japanese_are_drawn() -> None:
    fonts = need("家東")
    assert extent(drawn_words("家家")) > 60
    chosen = {text: fonts.choose(text)[text[0]].family for text in ("家", "家は", "家한")}
    if all("CJK" in family for family in chosen.values()):
        assert [family[-2:] for family in chosen.values()] == ["SC", "JP", "KR"]


def test_every_view_can_be_drawn(tmp_path: Path) -> None:
    need("मैं")
    traces = {"self": samples.inside(), "regions": samples.caption()}
    for name in views.VIEWS:
        views.write(tmp_path / "x.png", [traces.get(name, samples.heads())], View(name))
        assert len((tmp_path / "x.png").read_bytes()) > 5_000


def test_text_from_the_data_stays_text() -> None:
    hostile = samples.trace("<b>&amp;</b> \"'", "]]> <svg/onload=x>", [[0], [1], [2]])
    assert len(render(view([hostile], View("braid"), "<script>"))) > 1_000


def test_a_large_picture_is_made_smaller() -> None:
    head = '<svg xmlns="http://www.w3.org/2000/svg" class="heedful" width="40000" height="10">'
    assert dots(render(f"{head}<style></style><text>a</text></svg>")).shape[1] == 16_000


def test_without_a_font_it_says_which_script() -> None:
    pytest.importorskip("fontTools", reason=MISSING)
    nothing = Fonts(places=[])
    for text, message in (
        (
            "मैं",
            "no font for Devanagari found ('म', U+092E); install one (on Debian: fonts-noto-core), or name",
        ),
        ("家", "no font for Chinese characters found ('家', U+5BB6); install one (on Debian: fonts-noto-cjk)"),
        ("😀", "no font for emoji found ('😀', U+1F600); install one (on Debian: fonts-noto-color-emoji)"),
    ):
        with pytest.raises(DataError, match=re.escape(message)):
            nothing.choose(text)
    assert nothing.plain() is None
    assert nothing.choose(" \n\u200d") == {}


def test_without_a_font_the_picture_is_named_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.draw.fonts.PLACES", {"linux": (), sys.platform: ()})
    path = tmp_path / "x.png"
    for old in (False, True):
        if old:
            path.write_bytes(b"old")
        with pytest.raises(DataError, match=re.escape(f"{path}: no font for ")):
            views.write(path, [samples.HINDI])
        assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("x.png", b"old")] * old


def test_what_only_says_how_to_write_needs_no_font() -> None:
    assert Fonts(places=[]).choose("\ufe0f\u200c\u2068") == {}


def test_numbers_are_written_alike_whichever_script_comes_first() -> None:
    fonts = need("مक")
    for text in ("م 1'", "क 1'", "a 1'"):
        chosen = fonts.choose(text)
        assert chosen["1"] == chosen["'"] == fonts.plain()


def test_a_font_that_is_named_comes_first(tmp_path: Path) -> None:
    fonts = need("a")
    other = next(
        (p for p in fonts.files if faces_of(p) and p != fonts.plain().path and ord("a") in faces_of(p)[0].characters),
        None,
    )
    if other is None:
        pytest.skip("this machine has one font only")
    assert Fonts(other).choose("a")["a"].path == other
    (tmp_path / "no.ttf").write_bytes(b"no font")
    for name, said in (("no.ttf", "this is not a font file"), ("none.ttf", "there is no such file")):
        with pytest.raises(ConfigError, match=said):
            Fonts(tmp_path / name)


@pytest.mark.parametrize("name", ["resvg_py", "fontTools.ttLib"])
def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    faces_of.cache_clear()
    monkeypatch.setitem(sys.modules, name, None)
    if name != "resvg_py":
        pytest.importorskip("resvg_py", reason=MISSING)
    with pytest.raises(HeedfulError, match=re.escape(install_command("png"))):
        render(view([samples.HINDI]))


def test_scripts_are_known() -> None:
    assert [script_of(c) for c in "aम家ひ한م😀❤。"] == [
        *("LATIN", "DEVANAGARI", "CJK", "HIRAGANA", "HANGUL", "ARABIC", "EMOJI", "EMOJI", "CJK"),
    ]
