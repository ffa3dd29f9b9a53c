"""Pictures of a translation: printed, saved, and in a notebook."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import heedful
from heedful.draw import heatmap, overview
from heedful.draw.views import View, read_traces, view
from heedful.errors import ConfigError


def test_it_is_saved_in_every_view(tiny: Path, tmp_path: Path) -> None:
    done = heedful.load(tiny, "cpu").translate("a b c")
    for name in ("heatmap", "braid", "heads"):
        done.save(tmp_path / "x.svg", view=name, title="T")
        assert (tmp_path / "x.svg").read_text(encoding="utf-8") == view([done.trace], View(name), "T")
    done.save(str(tmp_path / "x.json"))
    assert read_traces(tmp_path / "x.json")[0][0].target == done.trace.target
    with pytest.raises(ConfigError, match="unknown view"):
        done.save(tmp_path / "x.svg", view="map")


def test_it_is_shown(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = heedful.load(tiny, "cpu").translate("a b c")
    done.show(width=60)
    assert capsys.readouterr().out == heatmap(done.trace, 60) + "\n"
    done.show(view="heads")
    assert capsys.readouterr().out == f"{heatmap(done.trace)}\n\n{overview(done.trace)}\n"
    with pytest.raises(ConfigError, match=r'is a picture: use save\("x.svg", view="braid"\)'):
        done.show(view="braid")


def test_a_notebook_has_a_picture_for_each_sentence_without_a_script(tiny: Path) -> None:
    done = heedful.load(tiny, "cpu").translate("A b! C d!")
    drawn = done._repr_html_()
    assert drawn is not None
    images = list(ElementTree.fromstring(f"<div>{drawn}</div>").iter("img"))
    assert len(images) == 2
    assert "<script" not in drawn
    for image, sentence in zip(images, done.sentences, strict=True):
        assert " id=" not in drawn  # two outputs of one notebook share no ids
        assert image.get("alt", "").startswith("Attention weights. ")
        kind, _, data = image.get("src", "").partition(",")
        assert kind == "data:image/svg+xml;base64"
        picture = ElementTree.fromstring(base64.b64decode(data))
        ground = next(e for e in picture if e.tag.endswith("rect"))
        assert (ground.get("width"), ground.get("height"), ground.get("class")) == ("100%", "100%", "g")
        assert "prefers-color-scheme:dark" in "".join(picture.itertext())
        assert sentence.text.split()[0] in "".join(picture.itertext())
    assert replace(done, _trace=None)._repr_html_() is None
