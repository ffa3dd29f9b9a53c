"""`heedful.select_readout` of a model of images: from Python, what it needs, and which captions are held out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from random_translators import random_translator
from tiny_captioner import CAPTIONS, captioner, picture

import heedful
from heedful.alignment.select_readout import select_pointing
from heedful.data.captions import Region
from heedful.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    for i in range(48):
        Image.fromarray(picture(i).pixels).save(folder / f"{i}.png")
    return folder


ROWS = [(f"{i}.png", CAPTIONS[i % 2]) for i in range(48)]
REGIONS = [Region(f"{i}.png", word, 0, 0, 20, 20) for i in range(48) for word in range(1, 3 - i % 2)]


def test_halves_are_alike_if_rows_go_in_turns(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other row has one gold word, the others two."""
    halves = []

    def select(table, gold, *others):
        halves.extend([[len(words) for words in gold[half::2]] for half in (0, 1)])
        return select_pointing(table, gold, *others)

    module = sys.modules["heedful.translator.select_readout"]  # the package has a function of that name
    monkeypatch.setattr(module, "select_pointing", select)
    heedful.select_readout(captioner(), ROWS, images=images, regions=REGIONS, max_pairs=24)
    assert [len(half) for half in halves] == [12, 12]
    assert all(3 <= half.count(1) <= 9 for half in halves)


def test_the_folder_gets_what_was_selected(images: Path, tmp_path: Path) -> None:
    translator = captioner("transformer")
    translator.save(tmp_path / "m")
    made = heedful.select_readout(translator, ROWS, images=images, regions=REGIONS, folder=tmp_path / "m")
    assert made.halves == (24, 24)
    assert made.pointing is not None
    assert made.pointing.total.words == made.pointing.plain()["words"] > 24
    assert not made.why_not_saved()
    assert heedful.load(tmp_path / "m", "cpu").readout == made.readout
    assert "at the next step" in made.readout.chosen
    again = heedful.select_readout(heedful.load(tmp_path / "m", "cpu"), ROWS, images=images, regions=REGIONS)
    assert again.why_not_saved()
    assert again.readout.plain() == made.readout.plain()


def test_what_is_needed(images: Path) -> None:
    with pytest.raises(ConfigError, match="images"):
        heedful.select_readout(captioner(), ROWS)
    with pytest.raises(ConfigError, match="regions"):
        heedful.select_readout(captioner(), ROWS, images=images)
    with pytest.raises(ConfigError, match="translates text"):
        heedful.select_readout(random_translator("rnn"), ROWS, images=images, regions=REGIONS)
    with pytest.raises(ConfigError, match="gold"):
        heedful.select_readout(captioner(), ROWS, [frozenset()], images=images, regions=REGIONS)
    with pytest.raises(ConfigError, match="no attention"):
        heedful.select_readout(captioner("fixed"), ROWS, images=images, regions=REGIONS)
    with pytest.raises(DataError, match="at least two"):
        heedful.select_readout(captioner(), ROWS, images=images, regions=REGIONS[:1])
    few = heedful.select_readout(captioner(), ROWS, images=images, regions=REGIONS[:9])
    assert "too few" in few.why_not_saved()
    assert (few.readout.layer, few.readout.heads, few.readout.step) == (1, (1,), "same")
