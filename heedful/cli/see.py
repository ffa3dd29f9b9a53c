"""`heedful see`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from heedful.cli.decoding import say_fault
from heedful.cli.notes import Notes
from heedful.cli.options import Ascii, Device, Json, Threads, print_json, refuse_idle, say, use_threads, width
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.draw.views import View
    from heedful.trace import Trace
    from heedful.translator import Translator

__all__ = ["see"]

KINDS = {".json": "record", ".html": "page"}


class _Seen(NamedTuple):
    """What one model saw: its name, the trace of the whole text, and those of its sentences."""

    name: str
    whole: Trace
    parts: list[Trace]


def see(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder, hf:ORG/NAME, or a saved trace.", show_default=False)
    ],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="A sentence, or several.", show_default=False)
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this translation, not at the model's own.", show_default=False),
    ] = None,
    others: Annotated[
        list[Path] | None, typer.Option("--with", metavar="MODEL", help="Another model beside it.", show_default=False)
    ] = None,
    view: Annotated[
        str, typer.Option(metavar="heatmap|braid|heads|self", help="What the picture is; braid only with --to.")
    ] = "heatmap",
    inside: Annotated[bool, typer.Option("--self", help="Where each word looks inside the sentence itself.")] = False,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="Only this layer, from 1 [as the read-out].", show_default=False)
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="Only this head, from 1 [as the read-out].", show_default=False)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Beside the weights, what the words really depended on.")
    ] = False,
    mass: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Draw each word's widest ribbons until they hold this share [0.9]."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to FILE.svg, .png, .html or .json.", show_default=False),
    ] = None,
    font: Annotated[Path | None, typer.Option(metavar="FILE", help="A font for .png.", show_default=False)] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="Dark colours for .png; others go by the viewer's wish.")
    ] = False,
    ascii_only: Ascii = False,
    device: Device = "auto",
    threads: Threads = 0,
    json: Json = False,
) -> None:
    """See where a model looks: for each word that it writes, or inside the sentence.

    In a heat map every row is a word that was written, every column a word of the source, and the shade is the weight.
    The braid has the source above, the translation below, and ribbons as wide as the weight. --view heads has every
    head of every layer. --view self, or --self with another view, shows the self-attention of a Transformer's encoder.
    --check leaves each source word out in turn, and takes gradients, to see what the words depended on, and says how
    far the weights agree with that. --json prints the record of the tokens, words and weights; --to FILE.json saves it,
    and a saved one can be given in place of MODEL and TEXT.
    """
    from heedful.draw.views import View, record, write

    inside = inside or view == "self"
    how = View(view, mass, *((layer, head) if view == "heads" else (None, None)), dark)
    _check(how, to, {"text": text, "target": target}, inside)
    if to is None or to.suffix.lower() != ".png":
        refuse_idle("without --to FILE.png", {"--dark": dark, "--font": font is not None})
    if check and (inside or others or layer or head or view == "heads" or model.suffix.lower() == ".json"):
        raise ConfigError(
            "--check is for one model and a text, by its read-out; leave out --self, --with, --layer, --head, "
            "--view heads and saved traces"
        )
    use_threads(threads)
    if model.suffix.lower() == ".json" and model.is_file():
        seen = _saved(model, [text, target, *(others or ())])
        how._replace(name="self" if inside else view).check([one.whole for one in seen])
    else:
        models = (model, *(others or ()))
        seen = [_look(path, text, target, inside, device) for path in models]
        seen = [one._replace(name=name) for one, name in zip(seen, _names(models), strict=True)]
        seen += _depended(model, seen[0], device) if check else []
    if view != "heads":
        seen = [_Seen(s.name, s.whole.only(layer, head), [p.only(layer, head) for p in s.parts]) for s in seen]
    wholes, names = [one.whole for one in seen], [one.name for one in seen]
    if json:
        print_json(record(wholes, names))
    for i, one in enumerate(() if json else seen):
        gap, name = "\n" * (i > 0 and to is None), f"{one.name}: " * (len(seen) > 1)
        if not (check and i):
            print(gap + name + one_line(one.whole.target.text).strip())
        elif to is None:
            print(f"{gap}{one.name}:")
        if to is None:
            _print(one.parts, how, inside and layer is None and head is None, ascii_only)
    if to is not None:
        looking = [one.name for one in seen if one.whole.words() is not None] or names
        title = _title(to, inside, names[:1] if check else looking)
        title += ", and what its words depended on" * bool(check and title)
        note = write(to, wholes, how, title, names, font)
        say(f"the {KINDS.get(to.suffix.lower(), 'picture')} is in {to}")
        if note:
            say(note)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return what models are called: their folders' names, with their places where two are alike, and numbered."""
    alike = len({path.name for path in set(paths)}) < len(set(paths))
    names = [str(path) if alike else path.name for path in paths]
    before = [names[:i].count(name) for i, name in enumerate(names)]
    return [f"{name} ({n + 1})" if n else name for name, n in zip(names, before, strict=True)]


def _title(to: Path, inside: bool, names: Sequence[str]) -> str:
    """Return the heading of a page, or of a picture; the picture of a translation needs none."""
    if to.suffix.lower() != ".html":
        return "Self-attention" if inside else ""
    who = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"Where {who} looked inside the sentence" if inside else f"Where {who} looked"


def _check(how: View, to: Path | None, texts: dict[str, str | None], inside: bool) -> None:
    """Refuse what does not fit together before a model is loaded."""
    from heedful.draw.views import check_path

    how.check()
    if to is not None:
        check_path(to)
    elif how.name not in ("heatmap", "heads", "self"):
        raise ConfigError(f"--view {how.name} is a picture: name a file for it with --to, say --to {how.name}.svg")
    if inside and texts["target"] is not None:
        raise ConfigError("--self looks inside the source, and --target at a translation; choose one")
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise DataError(f"the {name} is blank: there are no words to look at")


def _saved(path: Path, others: Sequence[object]) -> list[_Seen]:
    """Return what a file holds that was saved as JSON."""
    from heedful.draw.views import read_traces

    if any(given is not None for given in others):
        raise ConfigError(f"{path} is a saved trace: it has its text and its translation; give no others")
    return [_Seen(name, trace, [trace]) for trace, name in zip(*read_traces(path), strict=True)]


def _look(path: Path, text: str | None, target: str | None, inside: bool, device: str) -> _Seen:
    """Return what a model sees."""
    from heedful.interop import HUB, is_marian
    from heedful.interop.folder import about
    from heedful.translator import load

    if text is None:
        if not str(path).startswith(HUB) and not is_marian(path):
            about(path)  # first of all, whether this is a model
        raise ConfigError(f"there is no text to look at; give one after {path}")
    translator = load(path, device, say_fault)
    return _Seen(path.name, *(_inside(translator, text) if inside else _across(translator, text, target)))


def _depended(path: Path, seen: _Seen, device: str) -> list[_Seen]:
    """Return what the words depended on, in every way there is, and say how far the weights agree with it."""
    from heedful.observe import NAMES, WAYS, agreement
    from heedful.trace import Trace
    from heedful.translator import load

    translator, found = load(path, device, say_fault), []
    for way in WAYS:
        parts = [translator.influence(part.source.text, part.target.text, way) for part in seen.parts]
        again = translator.reread([p.source.text for p in parts], [p.target.text for p in parts])
        matrices = [(a.words(), b.words()) for a, b in zip(again, parts, strict=True)]
        rows = [agreement(a[:-1, :-1], b[:-1, :-1]) for a, b in matrices if a is not None and b is not None]
        counted = [row for row in rows if row.words]
        words = sum(row.words for row in counted)
        whole = Trace.join(seen.whole.source.text, seen.whole.target.text, _starts(seen), parts)
        if words:
            mean = [sum(row[i] * row.words for row in counted) / words for i in (0, 1)]
            told = f"rank correlation with the weights {mean[0]:+.2f}, the same source word first {mean[1]:.0%}"
            say(f"{NAMES[way]}: {told}")
            # What stands below every picture, so that a file says it too.
            whole = replace(whole, readout=replace(whole.readout, label=f"{whole.readout}; {told}"))
        found.append(_Seen(NAMES[way], whole, parts))
    return found


def _starts(seen: _Seen) -> list[tuple[int, int]]:
    """Return at which characters of either text each of its sentences begins."""
    starts, before = [], [0, 0]
    for part in seen.parts:
        source, target = (side.words for side in (seen.whole.source, seen.whole.target))
        mine = part.source.words, part.target.words
        starts.append((source[before[0]].start - mine[0][0].start, target[before[1]].start - mine[1][0].start))
        before = [number + len(words) for number, words in zip(before, mine, strict=True)]
    return starts


def _across(translator: Translator, text: str, target: str | None) -> tuple[Trace, list[Trace]]:
    """Return where the words of the translation look, all together and for each sentence."""
    notes = Notes(here=False)
    if target is None:
        done = translator.translate(text)
        notes.add(done.notes, translator.unknown(text))
    else:
        (done,) = translator.score([text], [target])
        notes.add((), [*translator.unknown(text), *translator.unknown(target, target=True)])
    notes.say()
    return done.trace, [part.trace for part in done.sentences or (done,)]


def _inside(translator: Translator, text: str) -> tuple[Trace, list[Trace]]:
    """Return where the words of the source look inside each of its sentences: they are read one by one."""
    from heedful.text.segments import segments
    from heedful.trace import Trace

    found = segments([text], translator.parts.source, translator.reads)
    notes = Notes(here=False)
    notes.add([note for one in found for note in one.notes], translator.unknown(text))
    parts = [translator.inside(one.text) for one in found]
    notes.say()
    return Trace.join(text, text, [(one.start, one.start) for one in found], parts), parts


def _print(parts: Sequence[Trace], how: View, all_heads: bool, ascii_only: bool) -> None:
    """Print a heat map for each sentence, of the head that is named if one is, and a table of all heads."""
    from heedful.draw import heatmap, overview
    from heedful.draw.heads import choose_head

    for trace in parts:
        named = trace.weights is not None and (how.layer or how.head) is not None
        one = trace.only(*choose_head(trace, how.layer, how.head).at) if named else trace
        print("\n" + heatmap(one, width=width(), ascii_only=ascii_only, confidence=not trace.inside))
        if (all_heads or how.name == "heads") and trace.weights is not None and trace.weights[:, :, 0, 0].size > 1:
            how_read = trace.reading and f" ({trace.reading})"
            told = f"For each layer.head, the number of the word that every word looks at most{how_read}:"
            print("\n" + textwrap.fill(told, width()) + "\n")
            print(overview(trace, width()))
