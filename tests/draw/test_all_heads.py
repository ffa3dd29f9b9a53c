"""All heads of any model: small maps, rankings, one word in every head; special, generated and set apart words."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_traces as samples
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.draw import all_heads, braid, explorer, heatmap, svg
from heedful.draw.model_attention import AttentionView, ModelAttention, read_attentions
from heedful.draw.terminal import columns, heads_table, word_table
from heedful.errors import ArgumentError, ConfigError, DataError
from heedful.trace import Trace
from heedful.trace.alarms import alarms
from heedful.trace.model_attention import MEASURES, AttentionGroup

NS = "{http://www.w3.org/2000/svg}"
ENCODER, DECODER = samples.encoder_group(), samples.decoder_group()
IT, ANIMAL = 6, 2


def maps(drawn: str) -> dict[str, ET.Element]:
    """The small maps by the name of their head."""
    titled = [g for g in ET.fromstring(drawn).iter(f"{NS}g") if g.find(f"{NS}title") is not None]
    named = {(g.find(f"{NS}title").text or "").split(":")[0]: g for g in titled}
    return {name: g for name, g in named.items() if re.fullmatch(r"layer \d+, head \d+", name)}


def shades(group: ET.Element, T: int, S: int) -> np.ndarray:
    """The shades of a small map, read back from its paths; runs of cells are one rectangle."""
    box = group.find(f"{NS}rect")
    wide, high = float(box.get("width")) / S, float(box.get("height")) / T
    found = np.zeros((T, S))
    for path in group.findall(f"{NS}path[@class='c']"):
        for x, y, w in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", path.get("d")):
            first, count = round(float(x) / wide), round(float(w) / wide)
            found[round(float(y) / high), first : first + count] = float(path.get("fill-opacity"))
    return found


def texts(drawn: str) -> list[str]:
    return [(t.text or "").replace("\u00a0", " ") for t in ET.fromstring(drawn).iter(f"{NS}text")]


def long(group: AttentionGroup) -> AttentionGroup:
    """The group as it is held of a long text: without weights, with the largest of its first head."""
    return replace(group, weights=None, top=group.largest(group.rank()[:1]))


def test_small_maps_are_those_of_the_heads() -> None:
    drawn = maps(str(all_heads.group_picture(ENCODER, sinks="keep")))
    assert list(drawn) == [f"layer {m}, head {n}" for m in (1, 2) for n in (1, 2, 3)]
    T = ENCODER.shape[2]
    for (m, n), group in zip(ENCODER.heads(), drawn.values(), strict=True):
        weights, found = ENCODER.weights[m - 1, n - 1], shades(group, T, T)
        shown = weights >= 0.04
        assert ((found > 0) == shown).all()
        assert (np.abs(found - weights)[shown] <= 0.13).all()  # eight shades


def test_sinks_set_apart_have_no_column() -> None:
    assert [sink.text for sink in ENCODER.sinks()] == ["[CLS]"]
    picture = str(all_heads.group_picture(ENCODER, sinks="apart"))
    T = ENCODER.shape[2]
    found = shades(maps(picture)["layer 2, head 2"], T, T - 1)
    weights = ENCODER.weights[1, 1, :, 1:] / ENCODER.weights[1, 1, :, 1:].sum(-1, keepdims=True)
    assert (np.abs(found - weights)[weights >= 0.04] <= 0.13).all()
    assert any("set apart: [CLS]" in text for text in texts(picture))
    assert "[CLS]" in texts(picture)  # still a row
    with pytest.raises(ConfigError, match="'away'.*apart, keep"):
        all_heads.group_picture(ENCODER, sinks="away")


@pytest.mark.parametrize("rank", MEASURES)
def test_the_ranking_is_that_of_the_measure(rank: str) -> None:
    ranked = all_heads.ranked_heads(ENCODER, rank)
    assert [(one.layer, one.head) for one in ranked] == ENCODER.rank(rank)
    values = [float(getattr(ENCODER.measures(), rank)[m - 1, n - 1]) for m, n in ENCODER.rank(rank)]
    share = all_heads.MEASURES[rank].share
    assert [one.measures[rank] for one in ranked] == [f"{100 * v:.0f}\u00a0%" if share else f"{v:.2f}" for v in values]
    names = [one.name for one in ranked]
    drawn = str(all_heads.group_picture(ENCODER, rank=rank))
    assert [text for text in texts(drawn) if re.fullmatch(r"\d\.\d", text)] == names
    best = ranked[0]
    outlined = [name for name, g in maps(drawn).items() if g.find(f"{NS}rect[@class='o']") is not None]
    assert outlined == [f"layer {best.layer}, head {best.head}"]
    table = heads_table(ENCODER, rank).splitlines()
    assert [line.split()[0] for line in table if re.match(r"\d\.\d ", line)] == names


def test_maps_may_be_in_the_order_of_the_ranking() -> None:
    drawn = maps(str(all_heads.group_picture(ENCODER, rank="entropy", in_order=True)))
    assert list(drawn) == [f"layer {m}, head {n}" for m, n in ENCODER.rank("entropy")]


def test_the_largest_pair_of_words_is_named() -> None:
    ranked = {one.name: one for one in all_heads.ranked_heads(ENCODER)}
    one = ranked["2.2"]  # each word at itself, and only it elsewhere
    assert (one.query, one.key) == ("it", "animal")
    assert one.weight == pytest.approx(float(ENCODER.weights[1, 1, IT, ANIMAL]))
    assert "it → animal" in " ".join(texts(str(all_heads.group_picture(ENCODER))))
    assert re.search(r"^2\.2 .* it → animal \d+%$", heads_table(ENCODER), re.M)
    assert re.search(r"^2\.2 .* it -> animal \d+%$", heads_table(ENCODER, ascii_only=True), re.M)


def test_of_a_long_text_pairs_are_those_that_are_held() -> None:
    held = long(ENCODER)
    ranked = all_heads.ranked_heads(held)
    first = all_heads.ranked_heads(ENCODER)[0]
    assert ranked[0] == first._replace(weight=pytest.approx(first.weight))
    assert {(one.query, one.weight) for one in ranked[1:]} == {("", 0.0)}
    drawn = str(all_heads.group_picture(held))
    assert any("block means" in text for text in texts(drawn))
    assert len(maps(drawn)) == 6
    assert "Layer 2, head 2" not in " ".join(texts(drawn))  # no heat map
    assert "words: " not in heads_table(held)


def test_words_of_several_tokens_are_joined_in_maps_and_pairs() -> None:
    x = samples.special_side(["un", "tied", "it"])
    joined = replace(x, words=(x.words[0]._replace(text="untied", last=2, end=7), x.words[2]))
    weights = np.array([[[[0.2, 0.3, 0.5], [0.4, 0.1, 0.5], [0.4, 0.5, 0.1]]]], dtype=np.float32)
    group = AttentionGroup.from_weights("self", (joined, joined), ["a"], "math", weights)
    assert np.allclose(all_heads.words_between(group, weights[0, 0]), [[0.5, 0.5], [0.9, 0.1]])
    gap = replace(x, words=(x.words[0], x.words[2]))  # a token of no word
    holed = replace(group, source=gap, target=gap)
    assert np.allclose(all_heads.words_between(holed, weights[0, 0]), [[0.2, 0.5], [0.4, 0.1]])
    one = all_heads.ranked_heads(group)[0]
    if group.sinks():  # the first word is one, if it has much weight
        assert one.key != "untied"
    held = replace(group, weights=None, top=group.largest([(1, 1)]))
    assert all_heads.ranked_heads(held)[0][3:] == one[3:]


def test_a_chosen_layer_or_head_is_enlarged() -> None:
    drawn = str(all_heads.group_picture(ENCODER, layer=1, head=3))
    assert "Layer 1, head 3" in texts(drawn)
    assert len(maps(drawn)) == 6  # all are still there
    assert [text for text in texts(drawn) if re.fullmatch(r"\d\.\d", text)] == ["1.3"]
    of_layer = texts(str(all_heads.group_picture(ENCODER, layer=1)))
    assert {text for text in of_layer if re.fullmatch(r"\d\.\d", text)} == {"1.1", "1.2", "1.3"}
    with pytest.raises(ConfigError, match="no head 4; choose one from 1 to 3"):
        all_heads.group_picture(ENCODER, layer=1, head=4)
    with pytest.raises(ConfigError, match="no layer 3"):
        heads_table(ENCODER, layer=3)


@pytest.mark.parametrize(("layers", "count"), [(1, 1), (6, 12), (22, 32), (30, 9), (2, 64)])
def test_any_number_of_heads_fits_on_a_page(layers: int, count: int) -> None:
    one = ENCODER.weights[1:2, 1:2]
    weights = np.tile(one, (layers, count, 1, 1))
    texts_ = (ENCODER.source, ENCODER.target)
    group = AttentionGroup.from_weights("self", texts_, ["m"] * layers, "math", weights)
    picture = all_heads.group_picture(group)
    assert picture.width <= all_heads.WIDEST_PAGE
    drawn = maps(str(picture))
    assert len(drawn) == layers * count
    places = []
    for small in drawn.values():
        x, y = (float(n) for n in re.findall(r"[\d.]+", small.get("transform")))
        wide, high = (float(small.find(f"{NS}rect").get(side)) for side in ("width", "height"))
        assert wide >= all_heads.SMALL
        assert x + wide <= picture.width
        assert y + high <= picture.height
        places.append((x, y))
    assert len(set(places)) == len(places)
    for width in (80, 120):
        lines = heads_table(group, width=width).splitlines()
        assert max(map(columns, lines)) <= width
        assert sum(bool(re.match(r"layer +\d+ ", line)) for line in lines) in (layers, 2 * layers)


def test_cells_of_the_grid_stand_below_their_numbers() -> None:
    weights = np.full((2, 12, 3, 3), 0.05, dtype=np.float32)
    weights[..., 0] = 0.9
    weights[1, 10] = [[0.0, 1.0, 0.0]] * 3
    x = samples.special_side(["a", "b"], ["[CLS]"])
    lines = heads_table(AttentionGroup.from_weights("self", (x, x), ["m"] * 2, "math", weights)).splitlines()
    header = next(line for line in lines if line.lstrip().startswith("head  1"))
    row = next(line for line in lines if line.startswith("layer 2"))
    place = header.index("11")
    assert row[place : place + 2] == "██"
    assert row.count("█") == 2


def test_one_word_in_every_head() -> None:
    picture = all_heads.word_picture(ENCODER, [IT], sinks="keep")
    shown = texts(str(picture))
    names = [f"{m}.{n}" for m, n in ENCODER.heads()]
    assert [text for text in shown if re.fullmatch(r"\d\.\d", text)] == names
    cells = [t.text for t in ET.fromstring(str(picture)).iter(f"{NS}title")]
    weight = round(100 * float(ENCODER.weights[1, 1, IT, ANIMAL]))
    assert f"2.2 → animal {weight} %" in cells
    assert "between layers" in shown
    table = word_table(ENCODER, [IT], sinks="keep")
    assert re.search(rf"^ *2\.2 .* {weight}% animal$", table, re.M)
    assert table.startswith("words: 1 [CLS]  2 the  3 animal ")


def test_of_many_heads_those_with_the_largest_weight_are_shown() -> None:
    table = word_table(ENCODER, [IT], limit=2).splitlines()
    rows = [line.split()[0] for line in table if re.match(r" *\d\.\d ", line)]
    others = ENCODER.weights[:, :, IT].copy()
    others[..., [0, IT]] = 0  # neither the sink nor the word itself
    best = np.argsort(-others.max(-1).ravel(), kind="stable")[:2]
    assert rows == [f"{i // 3 + 1}.{i % 3 + 1}" for i in best]
    many = AttentionGroup.from_weights(
        "self", (ENCODER.source,) * 2, ["m"] * 40, "math", np.tile(ENCODER.weights, (20, 1, 1, 1))
    )
    drawn = texts(str(all_heads.word_picture(many, [IT])))
    assert sum(bool(re.fullmatch(r"\d+\.\d", text)) for text in drawn) == all_heads.MOST_HEADS
    assert any(f"the {all_heads.MOST_HEADS} with the largest" in text for text in drawn)


def test_several_words_are_averaged_and_that_is_said() -> None:
    trace = ENCODER.word_trace([1, 2])
    table = word_table(ENCODER, [1, 2])
    assert "mean of the rows of 'the animal'" in " ".join(table.split())
    assert np.allclose(ENCODER.weights[0, 0, [1, 2]].mean(0), ENCODER.rows_of([1, 2])[0, 0])
    assert len(trace.target.words) == 6


def test_of_causal_attention_there_are_no_later_words() -> None:
    drawn = word_table(DECODER, [3], sinks="keep")
    assert drawn.startswith("words: 1 <s>  2 Paris  3 is  4 the\n")
    assert "generated" not in drawn
    shown = texts(str(all_heads.word_picture(DECODER, [5], sinks="keep")))
    assert "of" in shown
    assert "France" not in shown
    assert any("generated" in text for text in shown)


def test_sinks_are_named_with_their_shares() -> None:
    x = samples.special_side(["The", "cat", "sat"])
    weights = np.full((1, 1, 3, 3), 0.1, dtype=np.float32)
    weights[..., 0] = 0.8
    group = AttentionGroup.from_weights("self", (x, x), ["m"], "math", weights)
    assert group.sinks_in_words() == "'The' 80\u00a0%"
    assert "sinks: 'The' 80% of all weight" in heads_table(group).splitlines()
    assert "set apart: 'The' 80% of the weight" in " ".join(heatmap(group.trace(1, 1)).split())


def test_columns_keep_their_numbers_when_sinks_are_set_apart() -> None:
    drawn = heatmap(ENCODER.trace(2, 2, sinks="apart"))
    assert drawn.startswith("words: 2 the  3 animal ")
    lines = drawn.splitlines()
    header = next(i for i, line in enumerate(lines) if line.split()[:2] == ["2", "3"])
    row = next(line for line in lines[header:] if line.split()[0] == str(IT + 1))
    place = lines[header].index(" 3")
    assert row[place : place + 2].strip()  # it -> animal, below its number
    assert "set apart: [CLS]" in " ".join(drawn.split())
    assert word_table(ENCODER, [IT], sinks="apart").startswith("words: 2 the  3 animal ")


def test_generated_words_are_apart() -> None:
    trace = DECODER.trace(1, 2, sinks="keep")
    assert trace.generated_from == (5, 5)
    assert DECODER.trace(sinks="apart").generated_from == (4, 5)  # <s> has no column
    lines = heatmap(trace).splitlines()
    rule = next(i for i, line in enumerate(lines) if "┼" in line)
    assert lines[rule - 1].endswith("capital")
    assert lines[rule + 1].endswith("of")
    bar = lines[rule].index("┼")
    assert all(line[bar] == "│" for line in lines[rule - 5 : rule] + lines[rule + 1 : rule + 3])
    header = next(line for line in lines if line.split()[:2] == ["1", "2"])
    assert header[bar : bar + 3] == "  6"
    assert "│ generated from word 6 on" in lines
    plain = heatmap(trace, ascii_only=True)
    assert plain.isascii()
    assert "| generated from word 6 on" in plain
    for picture in (svg.picture(trace, confidence=False), braid.picture(trace), all_heads.group_picture(DECODER)):
        assert "generated from word 6 on" in texts(str(picture))
        assert 'class="e" stroke-width' in str(picture)
    for picture in (svg.picture(ENCODER.trace(1, 1), confidence=False), all_heads.group_picture(ENCODER)):
        assert not any("generated" in text for text in texts(str(picture)))


def test_the_line_of_the_heat_map_is_before_the_first_generated_word() -> None:
    picture = str(svg.picture(DECODER.trace(1, 2, sinks="keep"), confidence=False))
    root = ET.fromstring(picture)
    (line,) = [p for p in root.findall(f"{NS}path[@class='e']") if "M" in p.get("d")]
    y, x = re.search(r"M[\d.]+ ([\d.]+)H[\d.]+M([\d.]+) ", line.get("d")).groups()
    grid = root.find(f"{NS}rect[@class='g']")
    left, top, wide, high = (float(grid.get(name)) for name in ("x", "y", "width", "height"))
    assert (float(y) - top) / high == pytest.approx(5 / 7, abs=0.01)
    assert (float(x) - left) / wide == pytest.approx(5 / 7, abs=0.01)


@pytest.mark.parametrize("draw", [lambda trace: svg.picture(trace, confidence=False), braid.picture])
def test_special_tokens_are_softer(draw) -> None:
    words = [t for t in ET.fromstring(str(draw(ENCODER.trace(2, 2)))).iter(f"{NS}text") if t.text]
    special = {t.text: "t" in (t.get("class") or "").split() for t in words if t.text in ("[CLS]", "[SEP]", "animal")}
    assert special == {"[CLS]": True, "[SEP]": True, "animal": False}


def test_what_is_drawn_is_said() -> None:
    for trace, said in (
        (DECODER.trace(), "mean of all layers and heads"),
        (ENCODER.trace(2), "layer 2, mean of its 3 heads"),
        (ENCODER.trace(2, 1), "layer 2, head 1"),
        (ENCODER.trace(rollout=True), "rollout"),
    ):
        for drawn in (
            heatmap(trace),
            " ".join(texts(str(svg.picture(trace, confidence=False)))),
            " ".join(texts(str(braid.picture(trace)))),
        ):
            assert said in " ".join(drawn.split())
            assert ("eager" in drawn) == trace.caption.__contains__("eager")
            assert "read-out" not in drawn
    assert "eager" in heads_table(DECODER)
    assert "flash for the CPU" in heads_table(ENCODER)


def test_self_attention_is_of_words_not_of_source_and_target() -> None:
    trace = ENCODER.trace(1, 1)
    assert heatmap(trace).startswith("words: ")
    assert "conf" not in heatmap(trace)
    said = " ".join(texts(str(svg.picture(trace, confidence=False))))
    assert "attending words (queries)" in said
    assert "attended words (keys)" in said
    for picture in (svg.picture(trace, confidence=False), braid.picture(trace)):
        assert "target word" not in str(picture)
        assert picture.title == "Self-attention"


def cross() -> AttentionGroup:
    """Cross-attention of a model whose source does not end with `</s>`, and whose target does."""
    x, y = samples.special_side(["le", "chat"], ["<fr>"]), samples.side(["the", "cat"])
    weights = np.zeros((1, 2, 3, 3), dtype=np.float32)
    weights[..., 0] = 1
    return AttentionGroup.from_weights("cross", (x, y), ["m"], "math", weights)


def test_cross_attention_of_other_models_has_no_alarms_and_no_confidence() -> None:
    group = cross()
    trace = group.trace(1, 1, sinks="keep")
    assert trace.target.words[-1].is_end
    assert alarms(trace, every=True) == ()
    assert alarms(replace(trace, caption=""), every=True) == ()  # the source has no end
    assert "conf" not in heatmap(trace)
    assert heatmap(trace).startswith("source: 1 <fr>")
    assert len(maps(str(all_heads.group_picture(group)))) == 2
    measures = all_heads.ranked_heads(group)[0].measures
    assert measures["distance"].endswith("%")  # of the length
    assert "source: " in word_table(group, [1])


@pytest.mark.parametrize(
    "words",
    [
        "जानवर ने सड़क पार नहीं की",
        "لم يعبر الحيوان الشارع بعد",
        "那 只 动 物 没 有 过",
        "I ❤️ 👨\u200d👩\u200d👧 🇮🇳 too",
    ],
)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_script_fits(words: str, width: int) -> None:
    group = samples.encoder_group(words)
    for drawn in (heads_table(group, width=width), word_table(group, [1, 2], width)):
        assert max(map(columns, drawn.splitlines())) <= width
    ET.fromstring(str(all_heads.group_picture(group)))
    ET.fromstring(str(all_heads.word_picture(group, [1])))


def test_from_right_to_left_maps_begin_at_the_right() -> None:
    group = samples.encoder_group("لم يعبر الحيوان الشارع")
    T = group.shape[2]
    found = shades(maps(str(all_heads.group_picture(group, sinks="keep")))["layer 2, head 2"], T, T)
    weights = group.weights[1, 1][:, ::-1]
    assert (np.abs(found - weights)[weights >= 0.04] <= 0.13).all()
    text = samples.special_side(["لم", "يعبر", "الحيوان", "الشارع"], ["<s>"])
    causal = np.tril(np.ones((5, 5), dtype=np.float32))
    causal /= causal.sum(-1, keepdims=True)
    decoder = AttentionGroup.from_weights("self", (text, text), ["m"], "math", causal[None, None], generated=3)
    lines = heatmap(decoder.trace(1, 1, sinks="keep")).splitlines()
    rule = next(line for line in lines if "┼" in line)
    header = next(line for line in lines if line.split() == list("54321"))
    assert header[rule.index("┼") : rule.index("┼") + 3] == "  3"  # the last word of the prompt is at its right


@given(st.lists(samples.WORDS, min_size=1, max_size=6), st.integers(40, 120), st.booleans(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_word_can_break_it(words: list[str], width: int, ascii_only: bool, seed: int) -> None:
    x = samples.special_side(words, ["<s>"])
    n = len(x.tokens)
    weights = np.random.default_rng(seed).dirichlet(np.full(n, 0.3), size=(2, 2, n)).astype(np.float32)
    group = AttentionGroup.from_weights("self", (x, x), ["a", "b"], "math", weights)
    for drawn in (heads_table(group, width=width, ascii_only=ascii_only), word_table(group, [1], width, ascii_only)):
        assert max(map(columns, drawn.split("\n"))) <= width
    for picture in (all_heads.group_picture(group), all_heads.word_picture(group, [1])):
        ET.fromstring(str(picture))


def test_a_trace_without_special_tokens_is_drawn() -> None:
    x = samples.special_side(["a", "b"])
    trace = Trace(x, x, np.full((1, 1, 2, 2), 0.5, dtype=np.float32), np.zeros(2, dtype=np.float32), inside=True)
    for drawn in (heatmap(trace), str(svg.picture(trace)), str(braid.picture(trace))):
        assert "b" in drawn
    assert alarms(trace, every=True) == ()


def test_of_a_long_text_the_words_with_the_largest_weights_are_columns() -> None:
    n = 300
    x = samples.special_side([f"w{i}" for i in range(n)])
    weights = np.full((1, 1, n, n), 0.5 / n, dtype=np.float32)
    weights[..., [7, 250]] += 0.25
    group = AttentionGroup.from_weights("self", (x, x), ["m"], "math", weights)
    table = word_table(group, [3])
    assert max(map(columns, table.splitlines())) <= 80
    assert len(table.splitlines()) < 30
    assert " 8 w7 " in table
    assert " 251 w250" in table  # by its number in the text
    assert re.search(r"the \d+ of 300 words", " ".join(table.split()))
    picture = all_heads.word_picture(group, [3])
    assert {"w7", "w250"} < set(texts(str(picture)))
    assert picture.width < all_heads.WIDEST_PAGE + 100
    assert f"the {all_heads.MOST_COLUMNS} of 300 words" in " ".join(texts(str(picture)))


def test_traces_of_groups_are_saved_and_read() -> None:
    for trace in (DECODER.trace(1, 2, sinks="apart"), ENCODER.trace(rollout=True), ENCODER.trace(1)):
        again = Trace.build(json.loads(json.dumps(trace.plain())))
        assert (again.caption, again.generated, again.inside) == (trace.caption, trace.generated, True)
        assert heatmap(again) == heatmap(trace)
    record = DECODER.trace(1, 2).plain()
    for wrong in (-1, 8, "x"):
        with pytest.raises(DataError, match="generated"):
            Trace.build({**record, "generated": wrong})


def test_pictures_of_a_run_have_titles_and_options() -> None:
    seen = ModelAttention("some-model", [ENCODER])
    titles = {
        AttentionView(): "Self-attention of some-model",
        AttentionView(layer=2, head=1): "Self-attention of some-model, layer 2, head 1",
        AttentionView(mean=True): "Self-attention of some-model, mean of all layers and heads",
        AttentionView(word="it"): "Self-attention of some-model: from 'it', in every head",
    }
    for how, title in titles.items():
        assert seen.picture(how).title == title
        assert seen.picture(how, "My title").title == "My title"
    drawn = maps(str(seen.picture(AttentionView(rank="distance", in_order=True))))
    assert list(drawn) == [f"layer {m}, head {n}" for m, n in ENCODER.rank("distance")]


def some_run() -> ModelAttention:
    return ModelAttention("some-model", [ENCODER])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "bogus"}, "view.*heatmap"),
        ({"layer": "1"}, "layer is '1'.*from 1"),
        ({"layer": 0}, "no layer 0; .*from 1"),
        ({"head": -1}, "no head -1; .*from 1"),
        ({"head": True}, "head is True"),
        ({"word": 3}, "word is 3"),
        ({"word": []}, "word is"),
        ({"word": ["it", 3]}, "word is"),
        ({"mean": "yes"}, "mean is 'yes'"),
        ({"kind": 3}, "kind is 3"),
        ({"rank": None}, "rank is None"),
        ({"mass": "0.5"}, "mass is '0.5'"),
        ({"sinks": "away"}, "apart, keep"),
    ],
)
def test_wrong_options_are_refused_by_every_way_to_draw(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    run = some_run()
    for draw in (
        lambda: run.show(**options),
        lambda: run.save(tmp_path / "x.svg", **options),
        lambda: run.save(tmp_path / "x.html", **options),
        lambda: run.text(AttentionView(**options)),
        lambda: run.element(AttentionView(**options)),
        lambda: run.picture(AttentionView(**options)),
    ):
        with pytest.raises(ConfigError, match=message):
            draw()
    assert not list(tmp_path.iterdir())


def test_unknown_options_are_named_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"show: unknown argument 'layers'.*'layer'"):
        some_run().show(layers=1)
    with pytest.raises(ArgumentError, match=r"save: unknown argument 'titel'.*'title'"):
        some_run().save(tmp_path / "x.svg", titel="a")


def test_several_words_may_be_given_as_a_list() -> None:
    run = some_run()
    names = [ENCODER.target.words[i].text for i in (1, 2)]
    phrase = " ".join(names)
    assert run.text(AttentionView(word=names)) == run.text(AttentionView(word=tuple(names)))
    assert phrase in run.text(AttentionView(word=names))
    assert phrase in run.picture(AttentionView(word=names)).title
    record = re.search(r'id="x-record">(.*?)</script>', explorer.page([run], AttentionView(word=names)), re.DOTALL)
    assert record is not None
    tokens = [i for n in (1, 2) for i in range(*ENCODER.target.words[n][3:5])]
    assert json.loads(record[1])["state"]["tokens"] == [[0, tokens]]


def test_a_record_has_each_kind_once() -> None:
    plain = some_run().plain()
    with pytest.raises(DataError, match="two of the kind"):
        ModelAttention.build({**plain, "groups": plain["groups"] * 2})


def test_a_large_record_is_read_with_all_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_MAX_JSON", "2000")  # the limit of other files
    monkeypatch.setattr("heedful.trace.model_attention.NESTED", 10)
    some_run().save(tmp_path / "x.json")
    found = read_attentions(tmp_path / "x.json")
    assert found is not None
    (again,) = found
    assert (again.groups[0].weights == ENCODER.weights).all()


def test_only_kernels_are_called_fused() -> None:
    assert "fused" in replace(ENCODER, backend="flash").origin
    assert "fused" not in replace(ENCODER, backend="math").origin


def test_every_column_of_the_table_is_explained() -> None:
    for rank in MEASURES:
        shown = " ".join(heads_table(ENCODER, rank).split())
        for measure in all_heads.measures_of(ENCODER).values():
            assert shown.count(measure.meaning) == 1
