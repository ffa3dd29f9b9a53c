"""The interactive page of the attention of any model: all heads, and the rows of some of them, in one HTML document.

The page holds a block summary of every head, with 8 bits a block, and the rows of weights of every head if they fit
into `MAX_BYTES`; otherwise those of the heads asked for, or of the sharpest. It says what it does not hold. Rows are
sparse: columns and weights with 16 bits. Each head is a data block of its own, decoded by `heedful/web/explorer` when
the head is shown. Text from the data never becomes markup: it is JSON here, and text nodes there.
"""

from __future__ import annotations

import base64
import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw import html
from heedful.draw.picture import FONTS, Picture, clean
from heedful.draw.trace_codec import FULL, LONGEST, largest
from heedful.errors import ConfigError, DataError, __version__
from heedful.trace import Text
from heedful.trace.model_attention import HELD, MEASURES, AttentionGroup, TopWeights, find_words
from heedful.trace.readout import Weights

if TYPE_CHECKING:
    from heedful.draw.model_attention import AttentionView, ModelAttention

SCRIPTS = ("decode", "weights", "grid", "text", "panel", "explorer")
MAX_BYTES = 19_000_000  # of a page
MOST_LOST = 0.05  # share of the weight that may be left out to hold all heads
FEW_LOST = 0.01  # and to have a page of a quarter of the size
SINGLE = 128  # weights of a row that is held in every head, of a long text
PICKED = {"heads": "text", "heatmap": "heatmap", "braid": "braid", "self": "braid"}  # views of the page
CELLS = 2500  # words of the source times words of the target of the largest static picture
STATIC = 300_000  # characters of the largest static picture; a larger one of all heads becomes one of a single head
NOTHING = "there is no attention to draw"
HEIGHTS = (580, 820)  # of the element in a notebook: least and most, in pixels


def page(attentions: Sequence[ModelAttention], how: AttentionView, title: str = "") -> str:
    """Return runs of one model, or of several, as one HTML document, which loads nothing.

    `how` says what is shown first. Raise DataError for more tokens than 16 bits can number, and for weights that are
    not finite.
    """
    return _document(attentions, how, title, _static(attentions, how))


def _document(attentions: Sequence[ModelAttention], how: AttentionView, title: str, static: str) -> str:
    """Return the page; `static` is its content for readers without scripts."""
    heading = title or " and ".join(dict.fromkeys(run.name for run in attentions if run.name)) or "Attention"
    record, blocks = _record(attentions, how, heading)
    body = (
        f'<h1>{clean(heading)}</h1>\n<div class="heedful-view x-root"><noscript>{static}</noscript></div>\n'
        f'<script type="application/json" id="x-record">{_safe(record)}</script>\n'
        + "".join(f'<script type="text/plain" data-key="{key}">{data}</script>\n' for key, data in blocks.items())
        + f"<script>{script()}</script>\n"
    )
    return html.document(clean(heading), body, html.policy(script()), style(), __version__, "heedful-page x-page")


def element(attentions: Sequence[ModelAttention], how: AttentionView) -> str:
    """Return one self-contained HTML element for notebooks: the page in an `<iframe srcdoc>`, and a static picture.

    A frame keeps styles, ids and keys of the page and of the notebook apart, also of several elements in one notebook.
    `srcdoc` needs no file, no server, no require.js and no message to the kernel, and Jupyter, VS Code and Colab show
    it. It is sandboxed: its script cannot reach the notebook. Where a notebook is not trusted, frames and styles
    are removed, and the picture, an `<img>`, is left; otherwise the style hides it. A sandboxed frame cannot be
    measured from outside, so its height is estimated, and can be changed by dragging its corner.
    """
    document = _document(attentions, how, "", "").replace("&", "&amp;").replace('"', "&quot;")
    try:
        static = _picture(attentions, how).image()
    except (ConfigError, DataError):  # too long, or for the page only
        names = ", ".join(run.name for run in attentions)
        static = f"<p>The attention of {clean(names)}: trust this notebook to see it.</p>"
    return (
        '<div class="heedful-explorer"><style>.heedful-explorer>iframe~div{display:none}</style>'
        '<iframe sandbox="allow-scripts" title="attention" '
        f'style="width:100%;height:{_height(attentions)}px;border:0;resize:vertical;color-scheme:normal" '
        f'srcdoc="{document}"></iframe><div>{static}</div></div>\n'
    )


def _height(attentions: Sequence[ModelAttention]) -> int:
    """Return about how high the page is, in pixels."""
    tallest = 0
    for run in attentions:
        for group in run.groups:
            characters = len(group.source.text) + (0 if group.inside else len(group.target.text))
            tallest = max(tallest, 36 * group.shape[0], 40 * (characters // 55))
    return min(HEIGHTS[1], max(HEIGHTS[0], 330 + tallest))


def _picture(attentions: Sequence[ModelAttention], how: AttentionView) -> Picture:
    """Return the static picture of the first run; raise DataError if it is too large for one."""
    if not attentions:
        raise DataError(NOTHING)
    for group in attentions[0].groups:
        if group.weights is None or len(group.source.words) * len(group.target.words) > CELLS:
            raise DataError("this text is too long for a static picture")
    picture = attentions[0].picture(how)
    return picture if len(picture.body) <= STATIC else attentions[0].picture(how._replace(view="heatmap"))


def _static(attentions: Sequence[ModelAttention], how: AttentionView) -> str:
    """Return the content for readers without scripts: the picture if it is small, and a sentence."""
    try:
        picture = str(_picture(attentions, how))
    except (ConfigError, DataError):
        picture = ""
    return f'<div class="v-static">{picture}</div><p>Heads and words can be chosen where scripts may run.</p>'


def _safe(record: Mapping[str, Any]) -> str:
    """Return JSON that can end no script element and open no comment, and is valid in XML."""
    data = json.dumps(record, separators=(",", ":"))
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _record(
    attentions: Sequence[ModelAttention], how: AttentionView, title: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the page holds: a record for JSON, and blocks of data in base64 by their keys."""
    if not attentions:
        raise DataError(NOTHING)
    runs: list[dict[str, Any]] = []
    every = [(m, g, group) for m, run in enumerate(attentions) for g, group in enumerate(run.groups)]
    blocks: dict[str, str] = {}
    records: dict[tuple[int, int], dict[str, Any]] = {}
    texts: list[list[Text]] = [[] for _ in attentions]
    for m, g, group in every:
        _check(group)
        records[m, g] = _describe(group, texts[m])
        records[m, g]["blocks"] = _add_blocks(blocks, f"{m}.{g}.blocks", group, MAX_BYTES // (3 * len(every)))
    for run, known in zip(attentions, texts, strict=True):
        runs.append({"name": run.name, "texts": [_encode_text(text) for text in known]})
    record = {"title": title, "runs": runs, "state": _first_state(attentions, how, texts)}
    left = MAX_BYTES - len(json.dumps([record, list(records.values())])) - sum(map(len, blocks.values()))
    # A group takes what it needs of the budget, and leaves the rest to the larger ones.
    for n, (m, g, group) in enumerate(sorted(every, key=lambda one: one[2].blocks.size * np.prod(one[2].shape[2:]))):
        before = sum(map(len, blocks.values()))
        records[m, g].update(_add_heads(blocks, f"{m}.{g}", group, how, max(0, left) // (len(every) - n)))
        left -= sum(map(len, blocks.values())) - before
    for (m, _), one in records.items():
        runs[m].setdefault("groups", []).append(one)
    return record, blocks


def _check(group: AttentionGroup) -> None:
    T, S = group.shape[2:]
    if max(T, S) > LONGEST:
        raise DataError(f"this text has {max(T, S):,} tokens; an interactive page holds at most {LONGEST:,}")
    arrays = [group.weights, group.received, group.blocks, *(top.weights for top in group.top.values())]
    if not all(one is None or np.isfinite(one).all() for one in arrays):
        raise DataError("the attention weights are not all finite numbers: they cannot be drawn")


def _describe(group: AttentionGroup, texts: list[Text]) -> dict[str, Any]:
    """Return sizes, measures and sinks of a group; its texts are added to `texts` unless they are there."""
    sides = []
    for text in (group.source, group.target):
        if text not in texts:
            texts.append(text)
        sides.append(texts.index(text))
    measures, (L, H, T, S) = group.measures(), group.shape
    return {
        "kind": group.kind,
        "title": group.title,
        "reading": group.origin,
        "shape": [L, H, T, S],
        "source": sides[0],
        "target": sides[1],
        "generated": group.generated,
        "causal": group.causal,
        "measures": {name: [round(float(x), 4) for x in getattr(measures, name).flat] for name in MEASURES},
        "rank": {name: [(m - 1) * H + n - 1 for m, n in group.rank(name)] for name in MEASURES},
        "sinks": [[sink.word, sink.text, round(sink.share, 4)] for sink in group.sinks()],
    }


def _add_blocks(blocks: dict[str, str], key: str, group: AttentionGroup, most: int) -> list[int]:
    """Add the block means of all heads of each layer, with 8 bits as square roots; return rows and columns of a head.

    Blocks are joined in pairs until they fit into `most` bytes.
    """
    means = group.blocks
    while means.size * 4 / 3 > most and means.shape[2] % 2 == means.shape[3] % 2 == 0:
        rows = (means[:, :, ::2] + means[:, :, 1::2]) / np.float32(2)
        means = (rows[..., ::2] + rows[..., 1::2]).astype(np.float32)
    for i, layer in enumerate(means):
        levels = np.rint(255 * np.sqrt(np.clip(layer, 0, 1))).astype(np.uint8)
        blocks[f"{key}.{i}"] = base64.b64encode(levels.tobytes()).decode("ascii")
    return list(means.shape[2:])


class _SparseRows(NamedTuple):
    """The sparse rows of one head: how many weights a row has, their columns and values, and the rest of each row."""

    counts: NDArray[Any]
    columns: NDArray[Any]
    weights: NDArray[Any]
    rest: NDArray[Any]

    def base64(self, received: Weights) -> str:
        """Return them with the weight received by each key: 32-bit floats, and then numbers of 16 bits."""
        sixteen = [np.rint(np.clip(values, 0, 1) * FULL) for values in (self.rest, self.weights)]
        parts = (self.counts, sixteen[0], self.columns, sixteen[1])
        data = received.astype("<f4").tobytes() + b"".join(part.astype("<u2").tobytes() for part in parts)
        return base64.b64encode(data).decode("ascii")


def _dense_rows(weights: Weights, kept: NDArray[np.bool_]) -> _SparseRows:
    rest = np.maximum(0, weights.sum(1, dtype=np.float64) - weights.sum(1, dtype=np.float64, where=kept))
    return _SparseRows(kept.sum(1), np.nonzero(kept)[1], weights[kept], rest)


def _top_rows(top: TopWeights) -> _SparseRows:
    held = top.positions >= 0
    rest = np.maximum(0, 1 - top.weights.sum(1, dtype=np.float64, where=held))
    return _SparseRows(held.sum(1), top.positions[held], top.weights[held], rest)


def _add_heads(
    blocks: dict[str, str], key: str, group: AttentionGroup, how: AttentionView, max_bytes: int
) -> dict[str, Any]:
    """Add the rows of the heads that fit, the mean of all heads, and rollout; return what is held and what is not.

    All heads are held if few weights have to be left out for that, in a quarter of `max_bytes` if very few.
    """
    if group.weights is None:
        return _add_top(blocks, key, group, max_bytes)
    means = {"mean": group.matrix()}
    if group.inside:
        means["rollout"] = group.matrix(rollout=True)
    L, H, T, S = group.shape
    heads = [(m, n) for m in range(1, L + 1) for n in range(1, H + 1)]
    maps, single = group.weights.reshape(L * H, T, S), []
    room = _room(max_bytes // 4, group, L * H + len(means))
    kept = largest(maps, room * L * H)
    if (lost := _lost(maps, kept)) > FEW_LOST:
        room = _room(max_bytes, group, L * H + len(means))
        kept = largest(maps, room * L * H)
        lost = _lost(maps, kept)
    if lost > MOST_LOST:
        heads = _chosen(group, how)
        maps = np.stack([group.weights[m - 1, n - 1] for m, n in heads])
        room = _room(max_bytes * 3 // 4, group, len(heads) + len(means))
        kept = largest(maps, room * len(heads))
        lost = _lost(maps, kept)
        single = _add_rows(blocks, key, _asked_rows(group, how), max_bytes // 4)
    for (m, n), weights, mask in zip(heads, maps, kept, strict=True):
        blocks[f"{key}.{m}.{n}"] = _dense_rows(weights, mask).base64(group.received[m - 1, n - 1])
    for name, mean in means.items():
        blocks[f"{key}.{name}"] = _dense_rows(mean, largest(mean[None], room)[0]).base64(mean.sum(0))
    floor = float(np.max(maps, where=~kept, initial=0))
    held = [f"{m}.{n}" for m, n in heads]
    return {"held": held, "lost": round(lost, 4), "floor": round(floor, 5), "top": None, "single": single}


def _room(max_bytes: int, group: AttentionGroup, maps: int) -> int:
    """Return how many weights fit for each of some maps: 3 of 4 bytes of base64, 4 bytes a weight."""
    T, S = group.shape[2:]
    return max(0, max_bytes * 3 // (4 * maps) - 4 * (S + T)) // 4


def _add_top(blocks: dict[str, str], key: str, group: AttentionGroup, max_bytes: int) -> dict[str, Any]:
    """Add the largest weights of a long text, of as many of the held heads as fit, and single rows in every head."""
    blocks[f"{key}.mean"] = _SparseRows(*[np.zeros(0)] * 4).base64(group.received.mean((0, 1)))
    single = _add_rows(blocks, key, group.rows, max_bytes // 4)
    heads, lost = [], []
    max_bytes -= sum(len(blocks[f"{key}.row.{token}"]) for token in single)
    for (m, n), top in group.top.items():
        rows = _top_rows(top)
        data = rows.base64(group.received[m - 1, n - 1])
        if len(data) > max_bytes:
            break
        max_bytes -= len(data)
        blocks[f"{key}.{m}.{n}"] = data
        heads.append(f"{m}.{n}")
        lost.append(float(rows.rest.mean()))
    count = max((top.positions.shape[1] for top in group.top.values()), default=0)
    share = round(float(np.mean(lost)), 4) if lost else 0.0
    return {"held": heads, "lost": share, "floor": 0.0, "top": count, "single": single}


def _asked_rows(group: AttentionGroup, how: AttentionView) -> dict[int, Weights]:
    """Return the rows of the tokens of the word that is asked for, in every head.  token -> (L, H, S)."""
    if how.word is None or group.weights is None:
        return {}
    try:
        words = [group.target.words[i] for i in find_words(group.target, how.word)]
    except DataError:  # it is a word of another text
        return {}
    return {token: group.weights[:, :, token] for word in words for token in range(word.first, word.last)}


def _add_rows(blocks: dict[str, str], key: str, rows: Mapping[int, Weights], max_bytes: int) -> list[int]:
    """Add the largest weights of single rows in every head, of as many tokens as fit; return these tokens."""
    tokens = []
    for token, row in rows.items():
        order = np.sort(np.argsort(-row, axis=-1)[..., :SINGLE], axis=-1)
        values = np.take_along_axis(row, order, axis=-1)
        rest = np.maximum(0, row.sum(-1, dtype=np.float64) - values.sum(-1, dtype=np.float64))
        counts = np.full(rest.size, order.shape[-1])
        data = _SparseRows(counts, order.reshape(-1), values.reshape(-1), rest.reshape(-1))
        text = data.base64(np.zeros(0, dtype=np.float32))
        if len(text) > max_bytes:
            break
        max_bytes -= len(text)
        blocks[f"{key}.row.{token}"] = text
        tokens.append(token)
    return tokens


def _lost(maps: Weights, kept: NDArray[np.bool_]) -> float:
    total = float(maps.sum(dtype=np.float64))
    return max(0.0, 1 - float(maps.sum(dtype=np.float64, where=kept)) / max(total, 1e-12))


def _chosen(group: AttentionGroup, how: AttentionView) -> list[tuple[int, int]]:
    """Return the heads asked for, or the sharpest."""
    ranked = group.rank(how.rank)
    if how.layer is None and how.head is None:
        return ranked[:HELD]
    try:
        wanted = set(group.heads(how.layer, how.head))
    except ConfigError:  # of another kind of attention
        return ranked[:HELD]
    return [at for at in ranked if at in wanted]


def _first_state(
    attentions: Sequence[ModelAttention], how: AttentionView, texts: Sequence[Sequence[Text]]
) -> dict[str, Any]:
    """Return what the page shows first, by the names that its address has."""
    group = attentions[0].group(how.kind)
    if how.view == "self" and how.kind is None and not group.inside:
        group = attentions[0].groups[0]
    wanted = group.heads(how.layer, how.head)  # raises if there is no such
    if how.rollout:
        group.matrix(rollout=True)  # raises for cross-attention and long texts
        pick = "rollout"
    elif how.mean:
        pick = "mean" if how.layer is None and how.head is None else f"{how.layer or '*'}.{how.head or '*'}"
    else:
        m, n = _first_head(group, how, wanted)
        pick = f"{m}.{n}"
    sinks = how.sinks or ("apart" if sum(sink.share for sink in group.sinks()) > 0.5 else "keep")
    return {
        "kind": group.kind,
        "picks": [[m, pick] for m in range(len(attentions))],
        "view": PICKED.get(how.view or "heads", "text"),
        "unit": "words" if how.words else "tokens",
        "direction": "to",
        "measure": how.rank if how.word is None else "selected",
        "order": "layer" if how.word is None else "rank",
        "sinks": sinks,
        "share": how.mass,
        "tokens": _selected(attentions, how.word, group.kind, texts),
    }


def _first_head(group: AttentionGroup, how: AttentionView, wanted: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the head that is shown first: with the largest weight of a word on another one, or the first ranked."""
    if how.word is not None and (group.weights is not None or group.rows):
        try:
            trace = group.word_trace(find_words(group.target, how.word), how.layer, how.head, sinks=how.sinks, most=1)
        except (ConfigError, DataError):  # it is a word of the source, or its rows are not held
            pass
        else:
            m, n = trace.target.tokens[0].split(".")
            return int(m), int(n)
    ranked = [at for at in group.rank(how.rank) if at in set(wanted)]
    return next((at for at in ranked if group.weights is not None or at in group.top), ranked[0])


def _selected(
    attentions: Sequence[ModelAttention], phrase: str | Sequence[str] | None, kind: str, texts: Sequence[Sequence[Text]]
) -> list[list[Any]]:
    """Return the tokens of a phrase in each run, as [text, tokens]; raise DataError if it is in none of them."""
    if phrase is None:
        return [[0, []] for _ in attentions]
    selected: list[list[Any]] = []
    failed: DataError | None = None
    for run, known in zip(attentions, texts, strict=True):
        selected.append([0, []])
        group = next((one for one in run.groups if one.kind == kind), run.groups[0])
        for text in (group.target, group.source):
            try:
                words = find_words(text, phrase)
            except DataError as error:
                failed = failed or error
                continue
            tokens = [i for word in words for i in range(text.words[word].first, text.words[word].last)]
            selected[-1] = [known.index(text), tokens]
            break
    if failed is not None and not any(tokens for _, tokens in selected):
        raise failed
    return selected


def _encode_text(text: Text) -> dict[str, Any]:
    """Return a text for JSON: characters, spans of tokens in UTF-16 units, and words by their tokens.

    `names` are those of tokens that are not the characters of their span: special ones, and bytes of one character.
    """
    wide = np.cumsum([0, *(1 + (ord(c) > 0xFFFF) for c in text.text)])
    spans, shared = np.asarray(text.spans, dtype=np.int64).reshape(-1, 2), Counter(text.spans)
    return {
        "text": text.text,
        "starts": _differences(wide[spans[:, 0]]),
        "ends": _differences(wide[spans[:, 1]]),
        "names": {i: text.tokens[i] for i, (a, b) in enumerate(text.spans) if a == b or shared[text.spans[i]] > 1},
        "first": _differences(word.first for word in text.words),
        "last": _differences(word.last for word in text.words),
        "rtl": text.right_to_left,
    }


def _differences(values: Iterable[int] | NDArray[Any]) -> list[int]:
    """Return each number minus the one before it: short ones, in a long text."""
    array = np.asarray(list(values), dtype=np.int64)
    return [int(x) for x in np.diff(array, prepend=0)]


@functools.cache
def script() -> str:
    """Return the code of the page: that of figures, and in a scope of its own that of the explorer."""
    figure = "\n".join(html.web_file("figure", f"{name}.js") for name in html.SCRIPTS)
    code = "\n".join(html.web_file("explorer", f"{name}.js") for name in SCRIPTS)
    # With CDATA, a page is valid XML too.
    return f'//<![CDATA[\n(() => {{\n"use strict";\n{figure}\n{{\n{code}}}\n}})();\n//]]>\n'


@functools.cache
def style() -> str:
    """Return the style sheet: that of figures, and that of the explorer."""
    return html.style() + html.web_file("explorer", "explorer.css").replace("FONTS", FONTS)
