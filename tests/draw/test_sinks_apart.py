"""Sinks of a translation in figures: their columns are left out, the rest is rescaled, and the caption names them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from heedful.draw import braid, heatmap, html, svg, views
from heedful.errors import ConfigError
from heedful.text import merge
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout
from heedful.trace.trace import LEAST_REST, sinks_apart

NOTE = "set apart: </s> 40 %, '。' 35 % of the weight, the rest is scaled to 100 %"
BY_RULE = Readout(2, (6,), "next", chosen="by rule, on lists of words")


def texts(drawn: str) -> str:
    """The texts of a drawing, with plain spaces."""
    return " ".join(" ".join(ET.fromstring(drawn).itertext()).split())


def text_of(words: list[str]) -> Text:
    spans, at = [], 0
    for word in words:
        spans.append((at, at + len(word)))
        at += len(word) + 1
    whole = " ".join(words)
    spans.append((len(whole), len(whole)))
    return Text(whole, (*words, "</s>"), tuple(spans), merge(whole, spans))


def trace_of(readout: Readout, end: float = 0.4, mark: float = 0.35) -> Trace:
    """Four words, a full stop and `</s>`; every row has so much of its weight on these two."""
    words = np.array([[6, 1, 1, 1], [1, 6, 1, 1], [1, 1, 6, 1], [1, 1, 1, 6], [1, 1, 1, 1], [1, 1, 1, 1]]) / 10
    words = words / words.sum(1, keepdims=True) * (1 - end - mark)
    rows = np.concatenate([words, np.full((6, 1), mark), np.full((6, 1), end)], axis=1).astype(np.float32)
    source, target = text_of(["a", "b", "c", "d", "。"]), text_of(["A", "B", "C", "D", "."])
    return Trace(source, target, None, np.full(6, -0.1, np.float32), readout, rows)


def test_they_are_left_out_named_and_the_rest_is_rescaled() -> None:
    trace = trace_of(BY_RULE)
    apart = sinks_apart(trace)
    assert [word.text for word in apart.source.words] == ["a", "b", "c", "d"]
    assert apart.target == trace.target
    np.testing.assert_allclose(apart.words()[0], np.array([6, 1, 1, 1]) / 9, rtol=1e-5)
    np.testing.assert_allclose(apart.words().sum(1), 1, rtol=1e-5)
    caption = apart.readout_caption.replace("\u00a0", " ")
    assert caption == f"read-out: layer 2, head 6; read at the next step; by rule; {NOTE}"


def test_a_row_that_has_nearly_all_weight_on_them_is_not_rescaled() -> None:
    trace = trace_of(BY_RULE)
    trace.read[4, 4:] = 0.55, 0.4
    trace.read[4, :4] *= (LEAST_REST / 2) / trace.read[4, :4].sum()
    apart = sinks_apart(trace)
    np.testing.assert_allclose(apart.words()[4].sum(), LEAST_REST / 2, rtol=1e-4)
    np.testing.assert_allclose(apart.words()[:4].sum(1), 1, rtol=1e-5)


def test_when_it_is_done() -> None:
    by_hand = trace_of(Readout(2))
    assert sinks_apart(by_hand) is not by_hand  # 75 % of the weight
    less = trace_of(Readout(2), end=0.35, mark=0.1)
    assert sinks_apart(less) is less
    for asked in ("apart", None):
        assert len(sinks_apart(trace_of(BY_RULE, 0.35, 0.1), asked).source.words) == 5
    assert len(sinks_apart(less, "apart").source.words) == 5
    trace = trace_of(BY_RULE)
    assert sinks_apart(trace, "keep") is trace
    none = trace_of(BY_RULE, 0.15, 0.15)
    assert sinks_apart(none, "apart") is none
    for other in (replace(trace, inside=True), replace(trace, caption="words"), replace(trace, read=None)):
        assert sinks_apart(other) is other
    influence = replace(trace, readout=Readout(label="leave-one-out", attention=False))
    assert sinks_apart(influence, "apart") is influence
    with pytest.raises(ConfigError, match="apart, keep"):
        sinks_apart(trace, "away")


def test_every_figure_does_it() -> None:
    trace = trace_of(BY_RULE)
    shown = {
        "terminal": " ".join(heatmap(trace, width=120).split()),
        "svg": texts(views.view([trace])),
        "braid": texts(views.view([trace], views.View("braid"))),
    }
    for name, content in shown.items():
        assert "set apart: </s> 40%, '。' 35%" in content.replace("\u00a0%", "%").replace(" %", "%"), name
        assert "。" not in content.replace("'。'", ""), name
    page = html.page([trace], view=views.View("heatmap"))
    assert "set apart:" in page
    kept = views.View(sinks="keep")
    assert "set apart" not in views.view([trace], kept) + html.page([trace], view=kept) + heatmap(trace, sinks="keep")
    # Gold links count the words of the whole source.
    assert "set apart" not in html.figure([trace], "heatmap", gold=[frozenset({(4, 4)})])
    assert "set apart" not in str(svg.picture(trace)) + str(braid.picture(trace))
    with pytest.raises(ConfigError, match="apart, keep"):
        views.view([trace], views.View(sinks="away"))
