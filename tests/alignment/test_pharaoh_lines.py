"""Links of many pairs at once are those of each pair by itself."""

from __future__ import annotations

import pytest
from random_translators import MODELS, random_translator

from heedful.alignment.links import align_trace, pharaoh_lines
from heedful.errors import ConfigError
from heedful.trace.readout import Readout

SOURCES = ["a b, c", "bead cafe.", "x", "  a  b ", "(g h) deaf; face: a.", "日本 a", "a" * 40]


@pytest.mark.parametrize("name", [name for name in MODELS if name != "fixed"])
@pytest.mark.parametrize(
    "rule",
    [{}, {"threshold": 0.5}, {"even": True}, {"marks": "apart"}, {"end": "stop"}],
    ids=str,
)
def test_many_are_each(name: str, rule: dict[str, object]) -> None:
    from dataclasses import replace

    translator = random_translator(name)
    traces = [one.trace for one in translator.translate(SOURCES, split=False) if one.length]
    traces = [replace(trace, readout=replace(trace.readout, **rule)) for trace in traces]
    lines = pharaoh_lines(traces)
    assert lines == [str(align_trace(trace, spaced=True)) for trace in traces]
    assert any(lines)


def test_an_empty_side_has_no_links_and_no_attention_is_an_error() -> None:
    translator = random_translator("rnn")
    empty, full = translator.score(["a", "a"], ["", "b"])
    assert pharaoh_lines([empty.trace, full.trace])[0] == ""
    assert pharaoh_lines([]) == []
    assert isinstance(full.trace.readout, Readout)
    with pytest.raises(ConfigError, match="no attention"):
        pharaoh_lines([random_translator("fixed").score(["a"], ["b"])[0].trace])
