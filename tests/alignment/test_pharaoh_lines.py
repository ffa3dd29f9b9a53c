"""Links of many pairs at once are those of each pair by itself."""

from __future__ import annotations

import pytest
from random_translators import MODELS, random_translator

from heedful.alignment import links
from heedful.alignment.links import align_trace, pharaoh_lines
from heedful.errors import ConfigError
from heedful.trace import Text
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


def test_the_lines_do_not_depend_on_how_many_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [one.trace for one in random_translator("rnn").translate(SOURCES, split=False) if one.length]
    wanted = pharaoh_lines(traces)
    for cells in (0, 300, 10**9):
        monkeypatch.setattr(links, "CELLS", cells)
        assert pharaoh_lines(traces) == wanted


def test_a_token_that_is_only_a_space_belongs_to_the_next_word() -> None:
    text = Text("ab c", ("ab", "▁", "c", "</s>"), ((0, 2), (2, 3), (3, 4), (4, 4)), ())
    assert links._words_of_tokens(text) == (["ab", "c"], [0, 1, 1, 2])
    assert [(word.first, word.last) for word in text.spaced().words] == [(0, 1), (1, 3), (3, 4)]


def test_an_empty_side_has_no_links_and_no_attention_is_an_error() -> None:
    translator = random_translator("rnn")
    empty, full = translator.score(["a", "a"], ["", "b"])
    assert pharaoh_lines([empty.trace, full.trace])[0] == ""
    assert pharaoh_lines([]) == []
    assert isinstance(full.trace.readout, Readout)
    with pytest.raises(ConfigError, match="no attention"):
        pharaoh_lines([random_translator("fixed").score(["a"], ["b"])[0].trace])
