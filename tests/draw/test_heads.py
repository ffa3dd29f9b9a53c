"""Small maps for all heads: what is dark in a head is dark in its map, and the one that is named is enlarged."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import sample_traces as samples
from page_traces import unpack

from heedful.draw import overview, svg, terminal
from heedful.draw.heads import choose_head, picture
from heedful.draw.html import record
from heedful.draw.trace_codec import encode_trace
from heedful.draw.views import View
from heedful.errors import ConfigError
from heedful.trace import Trace
from heedful.trace.alarms import warnings
from heedful.trace.readout import RAW, Readout


def heads(trace: Trace, title: str = "", layer: int | None = None, head: int | None = None) -> str:
    return str(picture(trace, title, layer, head))


NS = "{http://www.w3.org/2000/svg}"


def small(drawn: str) -> dict[str, ET.Element]:
    """The small maps by the name of their head."""
    groups = [g for g in ET.fromstring(drawn).findall(f"{NS}g") if g.find(f"{NS}title") is not None]
    return {(g.find(f"{NS}title").text or "").split(":")[0]: g for g in groups}


def enlarged(drawn: str) -> str:
    return next(t.text for t in ET.fromstring(drawn).iter(f"{NS}text") if t.get("class") == "h" and "head" in t.text)


def test_cells_are_those_of_the_head() -> None:
    trace = samples.heads()
    maps = small(heads(trace))
    assert list(maps) == [f"layer {m}, head {n}" for m in (1, 2) for n in (1, 2, 3, 4)]
    T, S = trace.weights.shape[2:]
    for (m, n), weights in (((m, n), trace.weights[m, n]) for m in (0, 1) for n in range(4)):
        group = maps[f"layer {m + 1}, head {n + 1}"]
        cell = float(group.find(f"{NS}rect").get("width")) / S
        found = np.zeros((T, S))
        for path in group.findall(f"{NS}path"):
            for x, y in re.findall(r"M([\d.]+) ([\d.]+)h", path.get("d")):
                found[round(float(y) / cell), round(float(x) / cell)] = float(path.get("fill-opacity"))
        shown = weights >= 0.04
        assert ((found > 0) == shown).all()
        assert (np.abs(found - weights)[shown] <= 0.13).all()  # eight shades


def test_the_sharpest_is_enlarged_unless_one_is_named() -> None:
    trace = samples.heads()
    means = trace.weights.max(-1).mean(-1)
    m, n = np.unravel_index(means.argmax(), means.shape)
    assert enlarged(heads(trace)) == f"Layer {m + 1}, head {n + 1}"
    assert enlarged(heads(trace, layer=2, head=3)) == "Layer 2, head 3"
    assert enlarged(heads(trace, layer=2)) == f"Layer 2, head {means[1].argmax() + 1}"
    assert enlarged(heads(replace(trace, readout=Readout(2, (4,))))) == "Layer 2, head 4"
    outlined = [
        name for name, g in small(heads(trace, layer=2, head=3)).items() if g.find(f"{NS}rect[@class='o']") is not None
    ]
    assert outlined == ["layer 2, head 3"]


@pytest.mark.parametrize(
    ("layer", "head", "readout", "why"),
    [
        (None, None, Readout(), "the sharpest of all heads: the largest weight of a word is {} on average"),
        (2, None, Readout(), "the sharpest of layer 2: the largest weight of a word is {} on average"),
        (None, 2, Readout(), "the sharpest of head 2 of every layer: the largest weight of a word is {} on average"),
        (1, 2, Readout(), "the requested head"),
        (1, 2, Readout(2, (4,)), "the requested head"),
        (None, None, Readout(2, (1,)), "the head of the read-out"),
        (2, None, Readout(2, (1,)), "the head of the read-out"),
        (None, None, Readout(2), "the sharpest of the heads of the read-out: the largest weight of a word is {}"),
        (
            None,
            None,
            Readout(2, (1, 2)),
            "the sharpest of the heads of the read-out: the largest weight of a word is {}",
        ),
        # What was asked for counts before the read-out, whose head is one of another layer.
        (1, None, Readout(2, (1,)), "the sharpest of layer 1: the largest weight of a word is {} on average"),
    ],
)
def test_why_it_is_this_head_is_said(layer: int | None, head: int | None, readout: Readout, why: str) -> None:
    trace = replace(samples.heads(), readout=readout)
    (row, column), told = choose_head(trace, layer, head)
    sharp = trace.weights.max(-1).mean(-1)
    wanted = why.format(f"{round(100 * sharp[row - 1, column - 1])} %")
    assert told.replace("\u00a0", " ").startswith(wanted)
    among = sharp.copy()  # what is said to be the sharpest of some is
    if layer is not None:
        among[[n for n in range(2) if n != layer - 1]] = 0
    if head is not None:
        among[:, [n for n in range(4) if n != head - 1]] = 0
    if "read-out" in why:
        among[[n for n in range(2) if n != readout.layer - 1]] = 0
        among[:, [n for n in range(4) if readout.heads and n + 1 not in readout.heads]] = 0
    assert (row - 1, column - 1) == np.unravel_index(among.argmax(), among.shape)
    shown = " ".join(t.text for t in ET.fromstring(heads(trace, layer=layer, head=head)).iter(f"{NS}text"))
    assert f"Layer {row}, head {column} {told}" in shown
    (found,) = record([trace], View("heads", None, layer, head))["traces"]
    assert (found["chosen"], found["why"]) == (4 * (row - 1) + column - 1, told)


def test_of_one_head_no_reason_is_given() -> None:
    assert choose_head(samples.HINDI) == ((1, 1), "")


@pytest.mark.parametrize(
    ("layer", "head", "message"), [(3, None, "no layer 3; choose one from 1 to 2"), (1, 0, "no head 0")]
)
def test_heads_that_are_not_there_are_refused(layer: int, head: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        heads(samples.heads(), layer=layer, head=head)


@pytest.mark.parametrize(("layers", "count"), [(1, 1), (6, 16), (12, 8)])
def test_any_number_of_heads_fits(layers: int, count: int) -> None:
    drawn = heads(samples.heads(layers, count))
    root = ET.fromstring(drawn)
    assert len(small(drawn)) == layers * count
    for group in small(drawn).values():
        x, y = (float(n) for n in re.findall(r"[\d.]+", group.get("transform")))
        box = group.find(f"{NS}rect")
        assert x + float(box.get("width")) <= float(root.get("width"))
        assert y + float(box.get("height")) <= float(root.get("height"))


def test_small_maps_of_a_right_to_left_source_begin_at_the_right() -> None:
    (group,) = small(heads(samples.ARABIC)).values()
    cell = float(group.find(f"{NS}rect").get("width")) / 5
    path = next(p for p in group.findall(f"{NS}path") if p.get("fill-opacity") == "1")  # 93 %: ate, at the first word
    assert [round(float(n) / cell) for n in re.match(r"M([\d.]+) ([\d.]+)h", path.get("d")).groups()] == [4, 2]


def test_without_weights_it_says_so() -> None:
    assert "no attention" in heads(replace(samples.heads(), weights=None))


def test_a_cut_trace_keeps_the_names_of_its_layer_and_heads() -> None:
    cut = Trace.build(samples.heads(3, 4).only(2).plain())
    drawn = heads(cut, head=3)
    assert list(small(drawn)) == [f"layer 2, head {n}" for n in (1, 2, 3, 4)]
    assert enlarged(drawn) == "Layer 2, head 3"
    labels = [t.text for t in ET.fromstring(drawn).iter(f"{NS}text")]
    assert "layer 2" in labels
    assert "layer 1" not in labels
    assert "weights of layer 2, head 3; read-out: layer 2" in " ".join(labels)
    alone = Trace.build(samples.heads(3, 4).only(3, 4).plain())
    assert enlarged(heads(alone)) == "Layer 3, head 4"
    assert "1 layer of 1 head, small; layer 3, head 4 large." in heads(alone)
    assert ">Layer 3, head 4</title>" in heads(alone)
    assert list(small(heads(alone))) == ["layer 3, head 4"]
    assert "read-out: layer 3, head 4" in svg.heatmap(alone)
    assert "read-out: layer 3, head 4" in terminal.heatmap(alone)
    assert [line.split()[0] for line in overview(cut).splitlines()] == ["head", "2.1", "2.2", "2.3", "2.4"]
    found = encode_trace(cut, "")
    assert (found["layers"], found["each"]) == ([2], [1, 2, 3, 4])
    assert record([cut], View("heads", None, 2, 3))["traces"][0]["chosen"] == 2


def shown(drawn: str) -> list[str]:
    """The cells and notes of a heat map, and of the large map of all heads, in words."""
    root = ET.fromstring(drawn)
    cells = [t.text for g in root.iter(f"{NS}g") if g.get("class") == "c" for t in g.iter(f"{NS}title")]
    return [*cells, " ".join(t.text for t in root.iter(f"{NS}text") if t.get("class") == "q")]


def test_the_readouts_head_is_the_same_in_every_view() -> None:
    trace = samples.read_later()
    told = "read-out: layer 2, head 3; read at the next step; weighted by norms"
    wanted = svg.heatmap(trace, confidence=False)
    for drawn in (heads(trace), heads(trace, layer=2, head=3), svg.heatmap(trace.only(2, 3), confidence=False)):
        *cells, notes = shown(drawn)
        assert cells == shown(wanted)[:-1]
        assert told in notes
        assert "weights of" not in notes
    assert cells[0] == "I → मैं 93 %"  # not one word late
    assert terminal.heatmap(trace.only(2, 3)) == terminal.heatmap(trace)
    looks = next(line.split()[1:-1] for line in overview(trace).splitlines() if line.startswith("2.3"))
    assert looks == [str(n + 1) for n in trace.words().argmax(1)]
    found = encode_trace(trace, "")
    assert (found["readout"], found["reading"]) == (told, "read at the next step; weighted by norms")
    packed = unpack(found["heads"], *trace.weights.shape[2:])[0]
    np.testing.assert_allclose(packed[4 + 2], trace.tokens(), atol=1e-3)


def test_other_heads_are_read_as_the_readout_is() -> None:
    trace = samples.read_later()
    other = trace.only(1, 4)
    np.testing.assert_allclose(
        other.tokens(), Readout(1, (4,), "next", norms=True).mix(trace.weights, trace.after, trace.norms), atol=1e-6
    )
    *cells, notes = shown(heads(trace, layer=1, head=4))
    assert cells == shown(svg.heatmap(other, confidence=False))[:-1]
    said = "; read at the next step; weighted by norms"
    assert f"weights of layer 1, head 4{said}; read-out: layer 2, head 3{said}" in notes
    packed = unpack(encode_trace(trace, "")["heads"], *trace.weights.shape[2:])[0]
    np.testing.assert_allclose(packed[3], other.tokens(), atol=1e-3)


def test_alarms_are_those_of_the_weights_that_are_drawn() -> None:
    # As they are, most of the looking goes to `</s>`; by norms, next to nothing does.
    trace = samples.read_later()
    weights, after, norms = 0.3 * trace.weights, 0.3 * trace.after, trace.norms.copy()
    weights[..., -1] += 0.7
    after[..., -1] += 0.7
    norms[..., -1] = 0.01
    read = trace.readout.mix(weights, after, norms)
    trace = replace(trace, weights=weights, after=after, norms=norms, read=read)
    raw = replace(trace, readout=Readout(2, (3,)), read=None)
    assert any("of the attention is on punctuation and the end" in one for one in warnings(raw))
    assert warnings(trace) == []
    for drawn in (heads(trace), svg.heatmap(trace.only(2, 3)), terminal.heatmap(trace.only(2, 3))):
        assert "warning:" not in drawn
    assert "warning:" in heads(raw)


def test_heads_without_what_the_readout_takes_are_said_to_be_raw() -> None:
    trace = replace(samples.read_later(), after=None)
    *cells, notes = shown(heads(trace))
    assert cells == shown(svg.heatmap(trace, confidence=False))[:-1]  # of its own head there is what it read
    assert f"weighted by norms; small maps: {RAW}" in notes
    *cells, notes = shown(heads(trace, layer=1, head=4))
    assert cells == shown(svg.heatmap(replace(trace, readout=Readout(1, (4,)), read=None), confidence=False))[:-1]
    assert f"weights of layer 1, head 4; {RAW}; read-out: layer 2, head 3; read at the next step" in notes
    assert f"read-out: layer 1; {RAW}" in " ".join(terminal.heatmap(trace.only(1)).split())
    assert encode_trace(trace, "")["reading"] == RAW
