"""The document of the explorer: what it holds, how large it is, and that text never becomes markup."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import explorer_runs
import numpy as np
import pytest

from heedful.draw import explorer
from heedful.draw.model_attention import AttentionView, ModelAttention
from heedful.errors import ConfigError, DataError
from heedful.trace.model_attention import AttentionGroup, block_means


def record(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="x-record">(.*?)</script>', text, re.S)
    assert found
    plain: dict[str, Any] = json.loads(found[1])
    return plain


def blocks(text: str) -> dict[str, bytes]:
    pairs = re.findall(r'<script type="text/plain" data-key="([^"]+)">([^<]*)</script>', text)
    return {key: base64.b64decode(data, validate=True) for key, data in pairs}


def rows(data: bytes, T: int, S: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return received (S,), weights (T, S) and the rests (T,)."""
    received, numbers = np.frombuffer(data[: 4 * S], "<f4"), np.frombuffer(data[4 * S :], "<u2")
    counts, rest = numbers[:T], numbers[T : 2 * T] / 65535
    n = counts.sum()
    assert len(numbers) == 2 * T + 2 * n
    weights = np.zeros((T, S))
    weights[np.repeat(np.arange(T), counts), numbers[2 * T : 2 * T + n]] = numbers[2 * T + n :] / 65535
    return received, weights, rest


def test_all_weights_of_a_short_text_are_held():
    run = explorer_runs.street()
    text = explorer.page([run], AttentionView())
    held, data = record(text)["runs"][0]["groups"][0], blocks(text)
    group = run.groups[0]
    L, H, T, S = group.shape
    assert held["held"] == ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]
    assert (held["lost"], held["top"], held["kind"]) == (0, None, "self")
    assert "flash for the CPU" in held["reading"]
    for m in range(L):
        levels = np.frombuffer(data[f"0.0.blocks.{m}"], np.uint8).reshape(H, *held["blocks"])
        assert np.allclose((levels / 255) ** 2, block_means(group.weights[m]), atol=0.005)
        for n in range(H):
            received, weights, rest = rows(data[f"0.0.{m + 1}.{n + 1}"], T, S)
            assert np.allclose(weights, group.weights[m, n], atol=2e-5)
            assert np.allclose(received, group.received[m, n])
            assert rest.max() == 0
    assert np.allclose(rows(data["0.0.mean"], T, S)[1], group.matrix(), atol=2e-5)
    assert np.allclose(rows(data["0.0.rollout"], T, S)[1], group.matrix(rollout=True), atol=1e-3)


def test_measures_and_sinks():
    run = explorer_runs.street()
    held = record(explorer.page([run], AttentionView()))["runs"][0]["groups"][0]
    group = run.groups[0]
    assert held["measures"]["entropy"] == pytest.approx(group.measures().entropy.reshape(-1).tolist(), abs=1e-4)
    assert [(i // 3 + 1, i % 3 + 1) for i in held["rank"]["sink"]] == group.rank("sink")
    ((word, name, share),) = held["sinks"]
    assert (word, name) == (0, "[CLS]")
    assert share == pytest.approx(group.sinks()[0].share, abs=1e-4)


def test_small_weights_are_left_out_to_hold_all_heads(monkeypatch):
    run = explorer_runs.street()
    monkeypatch.setattr(explorer, "MOST_LOST", 1.0)
    monkeypatch.setattr(explorer, "FEW_LOST", 0.0)
    whole = sum(map(len, blocks(explorer.page([run], AttentionView())).values()))
    monkeypatch.setattr(explorer, "MAX_BYTES", 11_000)
    text = explorer.page([run], AttentionView())
    held, data = record(text)["runs"][0]["groups"][0], blocks(text)
    assert sum(map(len, data.values())) < 0.9 * whole
    assert len(held["held"]) == 6
    assert 0.01 < held["lost"] < 0.6
    T, S = run.groups[0].shape[2:]
    for m, n in ((1, 1), (2, 3)):
        _, weights, rest = rows(data[f"0.0.{m}.{n}"], T, S)
        assert np.allclose(weights.sum(1) + rest, 1, atol=1e-3)
        gone = run.groups[0].weights[m - 1, n - 1][weights == 0]
        assert gone.max(initial=0) <= held["floor"] + 1e-5


def test_too_many_heads_leave_the_sharpest_or_those_asked_for(monkeypatch):
    run = explorer_runs.street()
    monkeypatch.setattr(explorer, "MAX_BYTES", 11_000)
    monkeypatch.setattr(explorer, "HELD", 2)
    held = record(explorer.page([run], AttentionView()))["runs"][0]["groups"][0]
    assert held["held"] == [f"{m}.{n}" for m, n in run.groups[0].rank()[:2]]
    text = explorer.page([run], AttentionView(layer=2, head=3))
    assert record(text)["runs"][0]["groups"][0]["held"] == ["2.3"]
    assert record(text)["state"]["picks"] == [[0, "2.3"]]
    assert {key for key in blocks(text) if "blocks" in key} == {"0.0.blocks.0", "0.0.blocks.1"}
    # The row of a word is there of all heads.
    text = explorer.page([run], AttentionView(word="it"))
    assert record(text)["runs"][0]["groups"][0]["single"] == [9]
    numbers = np.frombuffer(blocks(text)["0.0.row.9"], "<u2")
    assert numbers[:6].tolist() == [16] * 6
    columns, values = np.split(numbers[12:], 2)
    assert values[5 * 16 :][columns[5 * 16 :] == 2] / 65535 == pytest.approx([0.69], abs=1e-4)


def test_a_long_text_holds_the_largest_weights_of_some_heads():
    run = explorer_runs.long(1500)
    group = run.groups[0]
    text = explorer.page([run], AttentionView())
    held, data = record(text)["runs"][0]["groups"][0], blocks(text)
    assert (held["held"], held["top"], held["blocks"]) == (["1.1", "1.2"], 8, [48, 48])
    _, weights, rest = rows(data["0.0.1.2"], 1500, 1500)
    top = group.top[1, 2]
    assert weights[700][top.positions[700]] == pytest.approx(top.weights[700], abs=2e-5)
    assert rest[700] == pytest.approx(1 - top.weights[700].sum(), abs=2e-5)
    assert held["lost"] == pytest.approx(rest.mean(), abs=1e-3)
    assert len(data["0.0.mean"]) == 4 * 1500


def test_single_rows_of_every_head_are_held():
    run = explorer_runs.long(300)
    row = np.random.default_rng(0).random((2, 4, 300), dtype=np.float32)
    row /= row.sum(-1, keepdims=True)
    group = replace(run.groups[0], rows={7: row})
    text = explorer.page([ModelAttention("m", [group])], AttentionView(word=group.target.words[7].text))
    assert record(text)["runs"][0]["groups"][0]["single"] == [7]
    numbers = np.frombuffer(blocks(text)["0.0.row.7"], "<u2")
    assert numbers[:8].tolist() == [explorer.SINGLE] * 8
    columns, values = np.split(numbers[16:], 2)
    head = slice(5 * explorer.SINGLE, 6 * explorer.SINGLE)
    assert values[head] / 65535 == pytest.approx(row[1, 1, columns[head]], abs=2e-5)
    assert row[1, 1].max() == row[1, 1, columns[head]].max()
    sums = values.reshape(8, explorer.SINGLE).sum(1) / 65535
    assert (1 - sums).min() > 0.2
    assert numbers[8:16] / 65535 == pytest.approx(1 - sums, abs=2e-3)


def test_the_size_stays_below_the_limit():
    run = explorer_runs.long(32_000, 22, 32, 8)
    text = explorer.page([run], AttentionView())
    assert 8_000_000 < len(text.encode()) < 20_000_000
    assert len(record(text)["runs"][0]["groups"][0]["held"]) == 8
    both = explorer.page([run, explorer_runs.long(32_000, 22, 32, 8, 1)], AttentionView())
    assert len(both.encode()) < 20_000_000


def test_blocks_of_many_heads_are_joined(monkeypatch):
    run = explorer_runs.long(1000, 2, 4, 1)
    monkeypatch.setattr(explorer, "MAX_BYTES", 60_000)
    text = explorer.page([run], AttentionView())
    held, data = record(text)["runs"][0]["groups"][0], blocks(text)
    assert held["blocks"] == [24, 24]
    levels = np.frombuffer(data["0.0.blocks.1"], np.uint8).reshape(4, 24, 24)
    assert np.allclose(((levels / 255.0) ** 2).sum(-1), 1, atol=0.05)


def test_what_is_shown_first():
    def state(run: ModelAttention, **how: Any) -> dict[str, Any]:
        shown: dict[str, Any] = record(explorer.page([run], AttentionView(**how)))["state"]
        return shown

    street = explorer_runs.street()
    first = state(street)
    assert (first["view"], first["unit"], first["kind"], first["order"]) == ("text", "words", "self", "layer")
    m, n = street.groups[0].rank()[0]
    assert first["picks"] == [[0, f"{m}.{n}"]]
    assert first["sinks"] == "keep"
    assert state(explorer_runs.generated())["sinks"] == "apart"
    assert state(street, sinks="apart")["sinks"] == "apart"
    assert state(street, layer=2)["picks"][0][1].startswith("2.")
    assert state(street, view="heatmap", words=False)["unit"] == "tokens"
    assert state(street, view="self")["view"] == "braid"
    assert state(street, mean=True)["picks"] == [[0, "mean"]]
    assert state(street, mean=True, layer=1)["picks"] == [[0, "1.*"]]
    assert state(street, rollout=True)["picks"] == [[0, "rollout"]]
    assert state(explorer_runs.translation())["kind"] == "cross"
    assert state(explorer_runs.translation(), kind="decoder")["kind"] == "decoder"
    it = state(street, word="it")
    assert it["picks"] == [[0, "2.3"]]  # where it attends to another word most
    assert it["tokens"] == [[0, [9]]]
    assert (it["measure"], it["order"]) == ("selected", "rank")
    # A word of the source of cross-attention.
    assert state(explorer_runs.translation(), word="खाना")["tokens"] == [[0, [1]]]


def test_wrong_choices_are_refused():
    run = explorer_runs.street()
    with pytest.raises(ConfigError, match="layer 3"):
        explorer.page([run], AttentionView(layer=3))
    with pytest.raises(DataError, match="zebra"):
        explorer.page([run], AttentionView(word="zebra"))
    with pytest.raises(ConfigError, match="rollout"):
        explorer.page([explorer_runs.translation()], AttentionView(rollout=True))
    with pytest.raises(DataError, match="no attention"):
        explorer.page([], AttentionView())
    long = explorer_runs.long(70_000, 1, 1, 1)
    with pytest.raises(DataError, match=r"70,000 .* 65,535"):
        explorer.page([long], AttentionView())
    weights = run.groups[0].weights.copy()
    weights[0, 0, 0, 0] = np.nan
    with pytest.raises(DataError, match="finite"):
        explorer.page([ModelAttention("m", [replace(run.groups[0], weights=weights)])], AttentionView())


HOSTILE = "</script><img src=x onerror=alert(1)><!--\u2028&amp;"


def hostile() -> ModelAttention:
    one = explorer_runs.text_of([[HOSTILE], ["b"]])
    n = len(one.tokens)
    weights = np.full((1, 2, n, n), 1 / n, dtype=np.float32)
    return ModelAttention(HOSTILE, [AttentionGroup.from_weights("self", (one, one), (HOSTILE,), HOSTILE, weights)])


def test_text_never_becomes_markup():
    text = explorer.page([hostile()], AttentionView())
    assert "<img" not in text
    assert "<!--" not in text
    assert record(text)["runs"][0]["name"] == HOSTILE
    assert record(text)["runs"][0]["texts"][0]["text"] == f"{HOSTILE} b"
    element = explorer.element([hostile()], AttentionView())
    (source,) = re.findall(r'srcdoc="([^"]*)"', element)
    outside = element.replace(source, "")
    assert "onerror=alert(1)>" not in outside
    inside = source.replace("&quot;", '"').replace("&amp;", "&")
    assert re.sub("<noscript>.*?</noscript>", "", inside, flags=re.S) == re.sub(
        "<noscript>.*?</noscript>", "", text, flags=re.S
    )


def test_characters_beyond_16_bits_are_counted_as_browsers_do():
    one = explorer_runs.text_of([["😀😀"], ["a"]], "", "")
    encoded = explorer._encode_text(one)
    assert np.cumsum(encoded["starts"]).tolist() == [0, 5]
    assert np.cumsum(encoded["ends"]).tolist() == [4, 6]


def test_the_element_has_a_picture_for_notebooks_that_are_not_trusted():
    element = explorer.element([explorer_runs.street()], AttentionView())
    assert element.count("<iframe") == 1
    assert 'sandbox="allow-scripts"' in element
    assert re.search(r"</iframe><div><img src=\"data:image/svg\+xml;base64,", element)
    assert "svg" not in element.split("<noscript>")[1].split("</noscript>")[0]  # it is there once
    long = explorer.element([explorer_runs.long(3000)], AttentionView())
    assert "<img" not in long.split("</iframe>")[1]
