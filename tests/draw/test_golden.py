"""Pictures as they were when somebody last looked at them.

When a change of a picture is meant, draw them anew and look at each:

HEEDFUL_GOLDEN=write python -m pytest tests/draw/test_golden.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sample_traces as samples
from documents import compare

from heedful.draw import all_heads, heatmap, overview, regions
from heedful.draw.terminal import heads_table, word_table
from heedful.draw.views import View, view
from heedful.trace.readout import Readout

GOLDEN = Path(__file__).parent / "golden"
ENCODER, DECODER = samples.encoder_group(), samples.decoder_group()
CHOSEN = replace(samples.HINDI, readout=Readout(step="next", norms=True), read=samples.HINDI.weights[0, 0])
CAPTION = samples.caption("एक लाल वर्ग और एक नीला वर्ग")
BARE = replace(CAPTION, image=replace(CAPTION.image, picture=b""))  # no picture, which Pillow would decode
DRAWN: dict[str, Callable[[], str]] = {
    "heatmap.svg": lambda: view([samples.HINDI], title="Hindi to English"),
    "heatmap-arabic.svg": lambda: view([samples.ARABIC]),
    "heatmap-chosen.svg": lambda: view([CHOSEN]),
    "braid.svg": lambda: view([samples.HINDI], View("braid"), "Hindi to English"),
    "braid-arabic.svg": lambda: view([samples.ARABIC], View("braid")),
    "braid-to-arabic.svg": lambda: view([samples.TO_ARABIC], View("braid")),
    "braid-japanese.svg": lambda: view([samples.JAPANESE], View("braid", mass=1.0)),
    "braid-emoji.svg": lambda: view([samples.EMOJI], View("braid")),
    "braid-unseen.svg": lambda: view([samples.UNSEEN], View("braid")),
    "braid-long.svg": lambda: view([samples.long(60)], View("braid")),
    "heads.svg": lambda: view([samples.heads()], View("heads"), "Two layers of four heads"),
    "heads-named.svg": lambda: view([samples.heads()], View("heads", layer=2, head=3)),
    "heads-read-later.svg": lambda: view([samples.read_later()], View("heads")),
    "heads-raw.svg": lambda: view([replace(samples.read_later(), after=None)], View("heads", layer=1, head=4)),
    "self.svg": lambda: view([samples.inside()], View("self")),
    "models.svg": lambda: view([samples.HINDI, samples.heads()], View("braid"), "Two models", ["one", "two"]),
    "heatmap.txt": lambda: heatmap(samples.HINDI),
    "heatmap-ascii.txt": lambda: heatmap(samples.HINDI, ascii_only=True),
    "heatmap-emoji.txt": lambda: heatmap(samples.EMOJI, width=40),
    "heatmap-arabic.txt": lambda: heatmap(samples.ARABIC),
    "heatmap-long.txt": lambda: heatmap(samples.long(40)),
    "regions.txt": lambda: regions.terminal(BARE),
    "regions-ascii.txt": lambda: regions.terminal(BARE, 60, ascii_only=True),
    "overview.txt": lambda: overview(samples.heads()),
    "all-heads.svg": lambda: str(all_heads.group_picture(ENCODER, "Self-attention of a model")),
    "all-heads-apart.svg": lambda: str(all_heads.group_picture(DECODER, rank="distance", sinks="apart", in_order=True)),
    "word.svg": lambda: str(all_heads.word_picture(ENCODER, [6], "One word")),
    "generated.svg": lambda: view([DECODER.trace(1, 2, sinks="keep")]),
    "generated-braid.svg": lambda: view([DECODER.trace(sinks="apart")], View("braid")),
    "all-heads.txt": lambda: heads_table(ENCODER),
    "word.txt": lambda: word_table(ENCODER, [6], sinks="apart"),
    "generated.txt": lambda: heatmap(DECODER.trace(1, 1)),
    "generated-ascii.txt": lambda: heatmap(DECODER.trace(rollout=True), ascii_only=True),
}


def elements(picture: str) -> list[str]:
    """A picture as lines, without names that are made from its contents."""
    return re.split(r"(?<=>)|\n", re.sub(r'"[td][0-9a-f]{8}"', '""', picture))


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_are_as_they_were(name: str) -> None:
    drawn = DRAWN[name]()
    path = GOLDEN / name
    if os.environ.get("HEEDFUL_GOLDEN") == "write":
        path.write_text(drawn, encoding="utf-8")
    there = path.read_text(encoding="utf-8")
    # Numbers may differ by rounding, on another machine.
    difference = compare(elements(there), elements(drawn), counts=False)
    assert difference is None, f"golden/{name}: {difference[1][:300]}"


def test_nothing_golden_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(DRAWN)
