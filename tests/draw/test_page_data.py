"""What the interactive page carries: weights in few bytes that come back right, text that is only text, one script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import page_traces
import pytest
from page_traces import unpack

from heedful.draw.html import figure, page, policy, record, script, style
from heedful.draw.trace_codec import FINEST, encode_maps, encode_trace
from heedful.errors import ConfigError, DataError
from heedful.trace import Trace
from heedful.trace.alarms import Alarm
from heedful.trace.readout import Readout


def embedded(text: str) -> Any:
    """The data of a page, found as a browser finds it."""

    class Reader(HTMLParser):
        found: str | None = None
        inside = False

        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            self.inside = tag == "script" and ("type", "application/json") in attributes

        def handle_data(self, data: str) -> None:
            if self.inside and self.found is None:
                self.found = data

    reader = Reader()
    reader.feed(text)
    assert reader.found is not None
    return json.loads(reader.found)


def test_weights_come_back():
    random = np.random.default_rng(1)
    maps = random.dirichlet(np.full(40, 0.3), size=(3, 30)).astype(np.float32)
    packed = encode_maps(maps)
    assert packed.floor == FINEST
    back, rest = unpack(packed._asdict(), 30, 40)
    assert np.abs(back - np.where(maps >= FINEST, maps, 0)).max() < 1e-5
    assert np.abs(back.sum(2) + rest - 1).max() < 1e-3


@pytest.mark.parametrize("room", [20_000, 60_000, 200_000])
def test_scarce_room_is_kept_and_what_is_lost_is_known(room):
    maps = np.random.default_rng(2).dirichlet(np.full(200, 0.1), size=(4, 200)).astype(np.float32)
    packed = encode_maps(maps, room)
    assert sum(len(text) for text in packed[:4]) <= room * 1.01
    back, rest = unpack(packed._asdict(), 200, 200)
    assert packed.lost == pytest.approx(rest.sum() / maps.sum(), abs=1e-3)
    assert np.abs(back - np.where(maps > packed.floor, maps, 0)).max() < 1e-5
    assert np.abs(back.sum(2) + rest - 1).max() < 2e-3
    if packed.floor > FINEST:  # what there is room for is there
        assert sum(len(text) for text in packed[:4]) >= room * 0.99


def test_of_equal_weights_as_many_are_kept_as_there_is_room_for():
    maps = np.zeros((2, 50, 100), dtype=np.float32)
    maps[:, :, ::2] = 0.02  # 50 in each of 100 rows
    maps[0, 0] = 0
    maps[0, 0, 7] = 1
    room = 4 * (4 * 2 * 50 + 4 * 1000) // 3 + 2  # what rows need, and 1,000 weights
    packed = encode_maps(maps, room)
    back, rest = unpack(packed._asdict(), 50, 100)
    assert packed.floor == pytest.approx(0.02)
    assert back[0, 0, 7] == 1  # the largest comes first
    assert np.count_nonzero(back) == 1000
    kept = np.count_nonzero(back, axis=2).reshape(-1)[1:]
    assert kept.min() >= 10 - 1  # 999 among 99 rows, evenly
    assert kept.max() <= 11 + 1
    assert packed.lost == pytest.approx((99 * 50 - 999) * 0.02 / 100, abs=1e-6)
    assert np.abs(back.sum(2) + rest - 1).max() < 1e-3


def test_long_words_leave_less_room_for_weights():
    words = page_traces.side([["अंतर्राष्ट्रीय"]] * 199)
    weights = np.random.default_rng(3).dirichlet(np.full(200, 0.5), size=(1, 4, 200)).astype(np.float32)
    made = Trace(words, words, weights, np.full(200, -0.1, dtype=np.float32))
    for room in (180_000, 250_000):
        assert 0.9 * room < len(json.dumps(encode_trace(made, "", room))) < 1.05 * room


def test_more_room_keeps_more():
    maps = np.random.default_rng(2).dirichlet(np.full(200, 0.1), size=(4, 200)).astype(np.float32)
    lost = [encode_maps(maps, room).lost for room in (20_000, 60_000, 200_000, 2_000_000)]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] > 0.2
    assert lost[-1] < 0.02


def test_a_trace_of_two_thousand_tokens_with_heads_is_under_5_mb():
    made = page_traces.long(2000, 1, 3)
    text = page([made])
    assert len(text.encode()) < 5_000_000
    (found,) = embedded(text)["traces"]
    assert found["heads"]["lost"] < 0.12
    back, _ = unpack(found["read"], 2000, 2000)
    assert np.abs(back[0] - made.tokens()).max() < 0.01


def test_the_read_out_comes_first_then_the_heads():
    made = replace(page_traces.heads(), readout=Readout(2, (1, 3)))
    (found,) = record([made])["traces"]
    assert found["readout"] == "read-out: layer 2, heads 1, 3"
    read, _ = unpack(found["read"], 6, 6)
    assert np.allclose(read[0], made.tokens(), atol=1e-4)
    each, _ = unpack(found["heads"], 6, 6)
    assert np.allclose(each, made.weights.reshape(6, 6, 6), atol=1e-4)
    assert (found["layers"], found["each"]) == ([1, 2], [1, 2, 3])
    (one,) = record([page_traces.heads().only(layer=2)])["traces"]
    assert (one["layers"], one["each"]) == ([2], [1, 2, 3])


def test_a_model_without_attention_has_nothing_packed():
    (found,) = record([replace(page_traces.known(), weights=None)])["traces"]
    assert found["read"] is None
    assert found["heads"] is None


def test_alarms_are_found_or_given():
    warned = page_traces.plain_words("a b c d", "w x", [0, 1])
    (found,) = record([warned])["traces"]
    assert [alarm["kind"] for alarm in found["alarms"]] == ["unseen"]
    (found,) = record([warned], alarms=[[]])["traces"]
    assert found["alarms"] == []
    (found,) = record([warned], alarms=[[Alarm("flat", 0.9, (), (1,), "guessing")]])["traces"]
    assert found["alarms"][0]["message"] == "guessing"


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<img",
    "src=x",
    "onerror=alert(1)>",
    "\u2028",
    "\ud800",
    "]]>",
]


def test_text_from_the_data_stays_text():
    trace = page_traces.plain_words(" ".join(HOSTILE), " ".join(reversed(HOSTILE)))
    text = page([trace], title="</title><script>alert(1)</script>", names=["<b>"])
    assert text.encode()
    assert len(re.findall("<script", text)) == 2
    assert len(re.findall("</script", text)) == 2
    assert "<img" not in text
    assert "<!--" not in text
    (found,) = embedded(text)["traces"]
    assert found["source"]["words"][0][0] == HOSTILE[0]
    assert found["name"] == "<b>"


def test_the_page_may_run_its_script_and_nothing_else():
    text = page([page_traces.known()])
    ran = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert ran == [script()]
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'" in policy()
    assert f'content="{policy()}"' in text
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(script()) + len(style()) < 72_000


def test_small_traces_have_a_static_picture_and_long_ones_their_text():
    assert "<svg" in figure([page_traces.known()]).split("v-static")[1]
    far = figure([page_traces.plain_words("b " * 80, "c " * 80)]).split("v-static")[1]
    assert "<svg" not in far
    assert '<p dir="auto">b b' in far


def test_the_page_has_a_heading_and_the_texts():
    text = page([page_traces.known()])
    assert "<title>Attention weights</title>" in text
    assert "<h1>Attention weights</h1>" in text
    label = '<p class="v-text"><span class="v-label">{}</span> <bdi>{}</bdi></p>'
    assert label.format("source", "मैं खाना खा रहा हूँ") in text
    assert label.format("translation", "I am eating food") in text
    other = page_traces.plain_words("मैं खाना खा रहा हूँ", "I eat")
    text = page([page_traces.known(), page_traces.known(), other], "T", names=["a", "b", "c"])
    assert text.count('class="v-text"') == 3
    assert label.format("a, b", "I am eating food") in text
    assert label.format("c", "I eat") in text
    assert page([page_traces.inside()], view="self").count('<p class="v-text"><bdi>') == 1


def test_gold_links_are_carried_and_drawn():
    links = frozenset({(2, 2), (1, 3)})
    (found,) = record([page_traces.known()], gold=[links])["traces"]
    assert found["gold"] == [(1, 3), (2, 2)]
    assert figure([page_traces.known()], gold=[links]).count('class="o"') == 3  # one in the legend
    with pytest.raises(DataError, match="gold link 9-9"):
        figure([page_traces.known()], gold=[frozenset({(9, 9)})])


def bad(**changes: Any) -> Trace:
    return replace(page_traces.known(), **changes)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: page([]), DataError, "no trace"),
        (lambda: page([bad()], view="brade"), ConfigError, "unknown view 'brade'; choose one of"),
        (lambda: page([bad()], view="self"), ConfigError, "self-attention"),
        (lambda: page([bad()], names=["a", "b"]), ConfigError, "1 traces and 2 names"),
        (lambda: page([bad()], alarms=[]), ConfigError, "1 traces and 0 lists of alarms"),
        (lambda: page([bad(weights=np.full((1, 1, 6, 6), np.nan))]), DataError, "not all finite"),
        (lambda: encode_maps(np.zeros((1, 1, 70_000), dtype=np.float32)), DataError, "65,535"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()
