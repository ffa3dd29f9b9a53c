"""Views by name, several models in one picture, and files that come back as they went."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sample_traces as samples

from heedful.draw import braid, heads, svg, views
from heedful.draw.html import page
from heedful.draw.views import View, read_traces, view, write
from heedful.errors import ConfigError, DataError
from heedful.trace import Trace
from heedful.trace.alarms import alarms

NS = "{http://www.w3.org/2000/svg}"


def test_each_name_is_its_picture() -> None:
    trace, inside = samples.heads(), samples.inside()
    assert view([trace]) == svg.heatmap(trace)
    assert view([trace], View("braid", 0.7), "T") == str(braid.picture(trace, "T", mass=0.7))
    assert view([trace], View("heads", layer=2, head=1)) == str(heads.picture(trace, layer=2, head=1))
    assert view([inside], View("self")) == str(braid.picture(inside, mass=0.5))
    assert view([inside]) == svg.heatmap(inside, confidence=False)


def test_several_models_stand_below_one_another() -> None:
    one, two = samples.HINDI, samples.heads()
    drawn = view([one, two], View("braid"), "The sentence", ["first", "second"])
    root = ET.fromstring(drawn)
    assert [t.text for t in root.iter(f"{NS}text") if t.get("class") == "h"] == ["The sentence", "first", "second"]
    pictures = [braid.picture(one, "first"), braid.picture(two, "second")]
    assert all(picture.body in drawn for picture in pictures)
    moved = [float(re.findall(r"[\d.]+", g.get("transform"))[1]) for g in root.findall(f"{NS}g")]
    assert moved[1] >= moved[0] + pictures[0].height - 0.01
    assert float(root.get("height")) >= moved[1] + pictures[1].height - 0.02
    assert float(root.get("width")) == max(picture.width for picture in pictures)
    none = replace(one, weights=None)
    assert "no attention" in view([one, none], names=["a", "b"])


@pytest.mark.parametrize(
    ("how", "names", "error", "message"),
    [
        (View("braids"), (), ConfigError, "unknown view 'braids'.*Did you mean 'braid'"),
        (View("braid", 0.0), (), ConfigError, "above 0 and at most 1"),
        (View("braid", 1.5), (), ConfigError, "1.5"),
        (View(), ("a", "b"), DataError, "2 names for 1 traces"),
    ],
)
def test_bad_views(how: View, names: tuple[str, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        view([samples.HINDI], how, "", names)


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_a_translation_is_not_drawn_as_self_attention(tmp_path: Path, ending: str) -> None:
    with pytest.raises(ConfigError, match="for self-attention"):
        write(tmp_path / f"x{ending}", [samples.heads()], View("self"))
    assert not (tmp_path / f"x{ending}").exists()


def test_a_picture_that_is_too_large_is_written_and_that_is_said(tmp_path: Path) -> None:
    large = samples.long(230)
    assert re.match(r"this picture is 4,\d+ units wide .*: write \.html", write(tmp_path / "x.svg", [large]))
    assert (tmp_path / "x.svg").is_file()
    assert write(tmp_path / "x.html", [large]) == write(tmp_path / "y.svg", [samples.HINDI]) == ""


@pytest.mark.parametrize("count", [1, 2])
def test_records_come_back(tmp_path: Path, count: int) -> None:
    traces = [samples.HINDI, samples.heads()][:count]
    path = tmp_path / "seen.json"
    write(path, traces, names=["one", "two"][:count])
    back, names = read_traces(path)
    assert names == (["seen"] if count == 1 else ["one", "two"])
    for trace, other in zip(traces, back, strict=True):
        assert trace.source == other.source
        np.testing.assert_array_equal(trace.weights, other.weights)
    assert view(back, View("braid"), "", names) == view(traces, View("braid"), "", names)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "this is not a trace"),
        ("[]", "expected a JSON object"),
        ("{}", "this is not a trace: it has no 'source'"),
        ('{"traces": 3}', "its traces are not a list"),
        ('{"traces": []}', "0 names for 0 traces"),
        ('{"traces": [3]}', "this is not a trace"),
    ],
)
def test_bad_records(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"t.json: .*{re.escape(message)}"):
        read_traces(path)


def test_weights_that_are_no_numbers_are_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    plain = samples.HINDI.plain()
    plain["weights"][0][0][0][0] = float("nan")
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(DataError, match="weights: nan at layer 1, head 1, row 1, column 1 is not finite"):
        read_traces(path)


def test_pictures_are_written(tmp_path: Path) -> None:
    write(tmp_path / "a.svg", [samples.HINDI], View("braid"), "T")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == view([samples.HINDI], View("braid"), "T")
    write(tmp_path / "A.HTML", [samples.HINDI], View("braid"), "T")
    assert (tmp_path / "A.HTML").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.pdf: pictures are written as \.svg, \.png, \.html, \.json"):
        write(tmp_path / "a.pdf", [samples.HINDI])
    with pytest.raises(ConfigError, match="there is no folder"):
        write(tmp_path / "no" / "a.svg", [samples.HINDI])
    with pytest.raises(ConfigError, match="no attention"):
        write(tmp_path / "a.svg", [replace(samples.HINDI, weights=None)])
    assert not (tmp_path / "a.svg").exists()


def test_all_views_are_there() -> None:
    for name in views.VIEWS:
        trace = samples.caption() if name == "regions" else samples.inside()
        assert view([trace], View(name)).startswith("<svg")


def test_a_translation_that_is_its_source_is_still_a_translation() -> None:
    """Names are copied, and a model may be sure of each: only a record that says so looks inside a sentence."""
    n = len(samples.HINDI.source.tokens)
    weights = np.eye(n, dtype=np.float32)[None, None]
    same = Trace(samples.HINDI.source, samples.HINDI.source, weights, np.zeros(n, dtype=np.float32))
    assert "confidence" in view([same])
    assert View("braid").share(same) == 0.9
    with pytest.raises(ConfigError, match="for self-attention"):
        view([same], View("self"))
    made = page([same])
    assert '<span class="v-label">translation</span>' in made
    assert '"self":false' in made
    odd = replace(same, weights=np.full_like(weights, 1 / n))
    assert [alarm.kind for alarm in alarms(odd)] == ["flat"]
    assert alarms(replace(odd, inside=True)) == ()
