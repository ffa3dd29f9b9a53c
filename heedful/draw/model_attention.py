"""The attention of one run of a model, with its figures: what `heedful.see` and `heedful.watch` return. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, overload

from heedful.draw import all_heads, svg
from heedful.draw.picture import Picture
from heedful.draw.terminal import heads_table, heatmap, word_table
from heedful.draw.views import VIEWS, View, check_path, too_large
from heedful.errors import ConfigError, DataError, choose, known_arguments
from heedful.files import max_json, read_json, write_whole
from heedful.trace import Trace
from heedful.trace.json_checks import field_of, listed
from heedful.trace.model_attention import KINDS, MEASURES, AttentionGroup, TopWeights, find_words, top_weights
from heedful.trace.readout import Weights
from heedful.trace.trace import SINKS

FORMAT = "heedful attention 1"
WORDS = 160  # of a side of the largest heat map or braid
RECORD = 512_000_000  # bytes of the largest .json file: 32,000 tokens of 22 × 32 heads have 280 million


class AttentionView(NamedTuple):
    """Which part of the attention is drawn, and how.

    `view` is one of `heedful.draw.views.VIEWS`; by default "heatmap" if a head, a mean or rollout is chosen, and
    "heads" otherwise. `kind`
    is that of the group, for models with several; `layer` and `head` count from 1. `mean` is the mean of the chosen
    heads, or of all. `word` is a word or a phrase, or a list of them, whose mean row is drawn for every head. `words`
    is False for tokens. `sinks` is "apart", "keep" or None, as in `AttentionGroup.trace`; `rank` is the measure by
    which heads are ranked; with `in_order`, the small maps of "heads" are in that order, and not by layer.
    """

    view: str | None = None
    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    mean: bool = False
    rollout: bool = False
    word: str | Sequence[str] | None = None
    words: bool = True
    sinks: str | None = None
    rank: str = "sharpness"
    mass: float | None = None
    dark: bool = False
    in_order: bool = False

    def check(self) -> None:
        """Raise ConfigError for an option of a wrong type, or with a value that does not exist."""
        self._check_types()
        choose("view", self.name, VIEWS)
        choose("measure of heads", self.rank, MEASURES)
        if self.kind is not None:
            choose("kind of attention", self.kind, KINDS)
        if self.sinks is not None:
            choose("treatment of sinks", self.sinks, SINKS)
        if self.mass is not None and not 0 < self.mass <= 1:
            raise ConfigError(f"the share of the weight that is drawn is {self.mass}; it is above 0 and at most 1")
        if self.rollout and (self.mean or self.layer is not None or self.head is not None):
            raise ConfigError("rollout is of all layers and heads; leave out mean, layer and head")
        if self.word is not None and (self.rollout or self.mean):
            raise ConfigError("the rows of a word are those of single heads; leave out mean and rollout")

    def _check_types(self) -> None:
        for name in ("view", "kind", "sinks", "rank"):
            if not isinstance(value := getattr(self, name), str | None) or (name == "rank" and value is None):
                raise ConfigError(f"{name} is {value!r:.60}; it is a name, as text")
        for name in ("mean", "rollout", "words", "dark", "in_order"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} is {value!r:.60}; it is True or False")
        for name in ("layer", "head"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
                raise ConfigError(f"{name} is {value!r:.60}; it is a whole number from 1 on")
            if value is not None and value < 1:
                raise ConfigError(f"there is no {name} {value}; {name}s are counted from 1")
        if self.mass is not None and (isinstance(self.mass, bool) or not isinstance(self.mass, int | float)):
            raise ConfigError(f"mass is {self.mass!r:.60}; it is a number above 0 and at most 1")
        several = (self.word or "",) if isinstance(self.word, str | None) else self.word
        if not isinstance(several, list | tuple) or not several or not all(isinstance(one, str) for one in several):
            raise ConfigError(f"word is {self.word!r:.60}; it is a word, as text, or a list of words")

    @property
    def name(self) -> str:
        """The name of the view: the one that was chosen, or the default."""
        chosen = self.mean or self.rollout or (self.layer is not None and self.head is not None)
        return self.view or ("heatmap" if chosen else "heads")


class LayerAttention(NamedTuple):
    """One layer of a run: the name of its module, its kind and number, from 1, and its weights, (H, T, S) or None."""

    group: AttentionGroup
    number: int

    def __repr__(self) -> str:
        L, H, T, S = self.group.shape
        return f"LayerAttention({self.kind}, layer {self.number} of {L}, {H} heads, {T} × {S} tokens, {self.module})"

    @property
    def module(self) -> str:
        """The name of the module."""
        return self.group.modules[self.number - 1]

    @property
    def kind(self) -> str:
        """One of "self", "encoder", "decoder" and "cross"."""
        return self.group.kind

    @property
    def weights(self) -> Weights | None:
        """The weights of all heads, (H, T, S); None for a long text."""
        return None if self.group.weights is None else self.group.weights[self.number - 1]

    @property
    def received(self) -> Weights:
        """The sum over queries of the weight on each key.  (H, S)."""
        layer: Weights = self.group.received[self.number - 1]
        return layer

    @property
    def entropy(self) -> Weights:
        """The entropy of each row in nats.  (H, T)."""
        layer: Weights = self.group.entropy[self.number - 1]
        return layer

    def top(self, count: int = 8, head: int | None = None) -> TopWeights:
        """Return the largest weights of every token: (H, T, count), or (T, count) of one head, from 1."""
        at = self.group.heads(self.number, head)
        if head is None and self.weights is not None:
            return top_weights(self.weights, count)
        largest = list(self.group.largest(at, count).values())
        return largest[0] if head is not None else TopWeights(*(stacked(parts) for parts in zip(*largest, strict=True)))


def stacked(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return arrays along a new first axis."""
    import numpy as np

    return np.stack(parts)


class ModelAttention(Sequence[LayerAttention]):
    """The attention of one run of a model: `seen[3]` is its fourth layer, as in any list; options count from 1.

    `groups` has one group for each kind of attention: "self" of encoders and of decoder-only models, or "encoder",
    "decoder" and "cross". `show` prints it, or shows it in a notebook; `save` writes .html, .svg, .png or .json.
    """

    def __init__(self, name: str, groups: Sequence[AttentionGroup]) -> None:
        if not groups:
            raise DataError("there is no attention to show")
        self.name, self.groups = name, tuple(groups)
        self._layers = [LayerAttention(group, i + 1) for group in groups for i in range(len(group.modules))]

    def __len__(self) -> int:
        return len(self._layers)

    @overload
    def __getitem__(self, which: int) -> LayerAttention: ...
    @overload
    def __getitem__(self, which: slice) -> list[LayerAttention]: ...
    def __getitem__(self, which: int | slice) -> LayerAttention | list[LayerAttention]:
        return self._layers[which]

    def group(self, kind: str | None = None) -> AttentionGroup:
        """Return the group of a kind; by default cross-attention, or the only one."""
        kinds = [group.kind for group in self.groups]
        if kind is None:
            kind = "cross" if "cross" in kinds else kinds[0]
        choose("kind of attention", kind, KINDS)
        if kind not in kinds:
            raise ConfigError(f"this model has no {kind} attention; it has {', '.join(kinds)}")
        return self.groups[kinds.index(kind)]

    def __repr__(self) -> str:
        sizes = []
        for group in self.groups:
            L, H, T, S = group.shape
            sizes.append(f"{group.kind}: {L} layers × {H} heads, {T} × {S} tokens, {group.backend}")
        return f"ModelAttention({self.name!r}; {'; '.join(sizes)})"

    def written(self) -> list[str]:
        """Return what the model wrote: a translation, or the prompt and what follows it; nothing for an encoder."""
        kinds = {group.kind: group for group in self.groups}
        if "cross" in kinds:
            return [kinds["cross"].target.text]
        group = self.groups[0]
        return [] if group.generated is None else [group.target.text]

    def text(self, how: AttentionView | None = None, width: int = 80, ascii_only: bool = False) -> str:
        """Return what the terminal shows."""
        how = how or AttentionView()
        how.check()
        group = self._group(how)
        if how.word is not None:
            words = find_words(group.target, how.word)
            return word_table(group, words, width, ascii_only, how.layer, how.head, how.sinks)
        if how.name == "heads":
            return heads_table(group, how.rank, width, ascii_only, how.layer, how.head, how.sinks)
        if how.name not in ("heatmap", "self"):
            raise ConfigError(f"the view {how.name!r} is a picture: use save('x.svg', view={how.name!r})")
        return heatmap(self._trace(group, how), width, ascii_only, confidence=False)

    def picture(self, how: AttentionView | None = None, title: str = "") -> Picture:
        """Return the picture of a view."""
        how = how or AttentionView()
        how.check()
        group = self._group(how)
        model = group.title + f" of {self.name}" * bool(self.name)
        if how.word is not None:
            words = find_words(group.target, how.word)
            text = " ".join(group.target.words[i].text for i in words)
            title = title or f"{model}: from '{text}', in every head"
            return all_heads.word_picture(group, words, title, how.layer, how.head, how.sinks)
        if how.name == "heads":
            return all_heads.group_picture(
                group, title or model, how.rank, how.layer, how.head, how.sinks, how.in_order
            )
        trace = self._trace(group, how)
        title = title or f"{model}, {trace.readout.label}"
        if how.name == "heatmap":
            return svg.picture(trace, title, confidence=False)
        return VIEWS[how.name](trace, title, View(how.name, how.mass, dark=how.dark))

    def _group(self, how: AttentionView) -> AttentionGroup:
        group = self.group(how.kind)
        if how.view == "self" and how.kind is None and not group.inside:
            group = self.groups[0]
        return group if how.words else group.by_pieces()

    def _trace(self, group: AttentionGroup, how: AttentionView) -> Trace:
        """Return the map that a view draws: of the chosen head, of the mean of several, or of the sharpest."""
        if max(len(group.source.words), len(group.target.words)) > WORDS:
            raise ConfigError(
                f"a text of {len(group.source.words):,} words is too long for a heat map or a braid, at most {WORDS}; "
                "single words, the view 'heads', and the page (.html) show it"
            )
        layer, head = how.layer, how.head
        if not (how.mean or how.rollout or (layer is not None and head is not None)):
            wanted = set(group.heads(layer, head))
            layer, head = next(at for at in group.rank(how.rank) if at in wanted)
        return group.trace(layer, head, rollout=how.rollout, sinks=how.sinks)

    def show(self, view: str | None = None, *, width: int = 80, ascii_only: bool = False, **options: Any) -> None:  # noqa: ANN401
        """Print a view, or show it in a notebook; options are those of `AttentionView`."""
        how = _view("show", view, options, ("width", "ascii_only"))
        how.check()
        if in_notebook():
            from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

            display(HTML(self.element(how)))
            return
        print(self.text(how, width, ascii_only))

    def save(self, path: str | Path, view: str | None = None, *, title: str = "", **options: Any) -> str:  # noqa: ANN401
        """Write .html, .svg, .png, or .json; options are those of `AttentionView`. Return a warning, or ""."""
        return write([self], Path(path), _view("save", view, options, ("title",)), title)

    def element(self, how: AttentionView | None = None) -> str:
        """Return one self-contained HTML element for notebooks, which loads nothing."""
        from heedful.draw.explorer import element

        how = how or AttentionView()
        how.check()
        return element([self], how)

    def _repr_html_(self) -> str:
        return self.element()

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; `build` reads it."""
        return {"format": FORMAT, "model": self.name, "groups": [group.plain() for group in self.groups]}

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> ModelAttention:
        """Return the attention that `plain` was made from; raise DataError if it is not one."""
        try:
            if field_of(plain, "format") != FORMAT:
                raise DataError(f"format: {plain['format']!r:.60} is not {FORMAT!r}")
            groups = [AttentionGroup.build(one) for one in listed(field_of(plain, "groups"), "groups")]
            kinds = [group.kind for group in groups]
            for i, kind in enumerate(kinds):
                if kind in kinds[:i]:
                    raise DataError(f"groups: there are two of the kind {kind!r}; each kind is there once")
            return cls(str(field_of(plain, "model")), groups)
        except (DataError, ConfigError) as error:
            raise DataError(f"this is not a record of attention: {error}") from None


def _view(function: str, view: str | None, options: Mapping[str, Any], others: Sequence[str]) -> AttentionView:
    """Return how attention is drawn; raise ArgumentError for an option that neither it nor `others` has."""
    known_arguments(function, options, {*AttentionView._fields, *others})
    return AttentionView(view, **options)


def write(
    attentions: Sequence[ModelAttention],
    path: Path,
    how: AttentionView | None = None,
    title: str = "",
    font: Path | None = None,
) -> str:
    """Write one run, or several, to a file: .html, .svg, .png or .json. Return a warning, or ""."""
    from heedful.draw.picture import stack

    how = how or AttentionView()
    how.check()
    check_path(path)
    kind = path.suffix.lower()
    if kind == ".json":
        write_whole(path, json.dumps(record(attentions), ensure_ascii=False).encode("utf-8", "replace"))
        return ""
    if kind == ".html":
        from heedful.draw.explorer import page

        write_whole(path, page(attentions, how, title).encode("utf-8", "replace"))
        return ""
    document = str(stack([one.picture(how, title) for one in attentions], title, "Attention"))
    if kind == ".png":
        from heedful.draw.png import render

        try:
            write_whole(path, render(document, font, how.dark))
        except DataError as error:  # a script without a font
            raise DataError(f"{path}: {error}") from None
    else:
        write_whole(path, document.encode())
    return too_large(document)


def record(attentions: Sequence[ModelAttention]) -> dict[str, Any]:
    """Return the record of one run, or of several, as JSON can hold it."""
    plain = [one.plain() for one in attentions]
    return plain[0] if len(plain) == 1 else {"format": FORMAT, "runs": plain}


def read_attentions(path: Path) -> list[ModelAttention] | None:
    """Return the runs of a .json file of `write`; None if it holds something else, such as a trace."""
    try:
        plain = read_json(path, DataError, max(max_json(), RECORD))
    except (OSError, DataError):
        return None
    if not isinstance(plain, dict) or not str(plain.get("format")).startswith("heedful attention"):
        return None
    try:
        return [ModelAttention.build(one) for one in listed(plain.get("runs", [plain]), "runs")]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    import sys

    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and shell.__class__.__name__ != "TerminalInteractiveShell"
