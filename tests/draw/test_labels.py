"""What is no attention is not called so: shares of what words depended on are neither weights nor looks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import sample_traces as samples

from heedful.draw.html import record
from heedful.draw.terminal import heatmap
from heedful.draw.views import View, view
from heedful.trace.readout import Readout

SHARES = replace(samples.HINDI, readout=Readout(label="leave-one-out", attention=False))


def said(drawn: str) -> str:
    """All that a picture says, in a row."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", drawn, flags=re.S).replace("\u00a0", " ").split())


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (View("heatmap"), ["share in per cent", "Largest share of each target word", "% of all shares"]),
        (
            View("braid"),
            ["share 100, 50 and 10 %", "the largest shares of each target word that hold 90 % of its shares"],
        ),
        (View("braid", mass=1.0), ["ribbons: all shares of each target word", "hidden: shares under 2 %"]),
    ],
)
def test_pictures_of_what_is_no_attention(how: View, wanted: list[str]) -> None:
    told = said(view([SHARES], how))
    assert told.startswith("Influence of source words ")
    for words in wanted:
        assert words in told
    assert not re.search("weight|look", told)
    both = said(view([samples.HINDI, SHARES], how, names=["weights", "leave-one-out"]))
    assert both.startswith("Attention weights and influence of source words ")
    assert not re.search("share|influence", said(view([samples.HINDI], how)))


def test_the_terminal() -> None:
    assert "\nshare from: " in heatmap(SHARES)
    assert "weight" not in heatmap(SHARES)
    assert "\nweight from: " in heatmap(samples.HINDI)


def test_the_page_is_told_which_it_is() -> None:
    assert [one["attention"] for one in record([samples.HINDI, SHARES])["traces"]] == [True, False]
