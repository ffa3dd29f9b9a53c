"""`heedful see`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.notes import Notes
from heedful.cli.options import Ascii, Device, Json, Model, Threads, print_json, say, use_threads, width
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.trace import Trace
    from heedful.translator import Translator

__all__ = ["see"]


def see(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence, or several.", show_default=False)],
    *,
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this translation, not at the model's own.", show_default=False),
    ] = None,
    inside: Annotated[bool, typer.Option("--self", help="Where each word looks inside the sentence itself.")] = False,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="Only this layer, from 1; otherwise their mean.", show_default=False)
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="Only this head, from 1; otherwise their mean.", show_default=False)
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Write the picture to a file.", show_default=False)
    ] = None,
    ascii_only: Ascii = False,
    device: Device = "auto",
    threads: Threads = 0,
    json: Json = False,
) -> None:
    """See where a model looks: for each word that it writes, or inside the sentence.

    Every row is a word that was written, every column a word of the source, and the shade is the weight. --self shows
    the self-attention of a Transformer's encoder: the mean of all heads, and for each head where every word looks most.
    --json gives the record of the tokens, words and weights.
    """
    if to is not None and to.suffix.lower() != ".svg":
        raise ConfigError(f"{to}: pictures are written as .svg; choose a name that ends with it")
    if to is not None and not to.parent.is_dir():
        raise ConfigError(f"{to}: there is no folder {to.parent}")
    if inside and target is not None:
        raise ConfigError("--self looks inside the source, and --target at a translation; choose one")
    for name, given in (("text", text), ("target", target)):
        if given is not None and not given.strip():
            raise DataError(f"the {name} is blank: there are no words to look at")
    from heedful.translator import load

    use_threads(threads)
    translator = load(model, device)
    whole, parts = _inside(translator, text) if inside else _across(translator, text, target)
    caption = _caption(whole, inside, layer, head)
    whole, chosen = whole.only(layer, head), [part.only(layer, head) for part in parts]
    if json:
        print_json(whole.plain())
    else:
        print(one_line(whole.target.text).strip())
    if to is not None:
        _write(to, whole, caption, not inside)
    elif not json:
        print(f"\n{caption}\n" * bool(caption), end="")
        for part in chosen:
            _print(part, inside, inside and layer is None and head is None, ascii_only)


def _across(translator: Translator, text: str, target: str | None) -> tuple[Trace, list[Trace]]:
    """Return where the words of the translation look, all together and for each sentence."""
    notes = Notes()
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

    found = segments([text], translator.parts.source, translator.config.text.max_length)
    notes = Notes()
    notes.add([note for one in found for note in one.notes], translator.unknown(text))
    parts = [translator.inside(one.text) for one in found]
    notes.say()
    return Trace.join(text, text, [(one.start, one.start) for one in found], parts), parts


def _caption(trace: Trace, inside: bool, layer: int | None, head: int | None) -> str:
    """Say which weights are shown; nothing of a model that has one head in one layer."""
    if trace.weights is None:
        return ""
    L, H = trace.weights.shape[:2]
    layers, heads = f"{L} layer{'s' * (L > 1)}", f"{H} head{'s' * (H > 1)}"
    if layer is None and head is None:
        shown = f"the mean of {layers} with {heads} each" if L * H > 1 else ""
    elif head is None:
        shown = f"layer {layer}, the mean of {heads}"
    else:
        shown = f"head {head}, the mean of {layers}" if layer is None else f"layer {layer}, head {head}"
    return ("self-attention: " * inside + shown).removesuffix(": ").capitalize()


def _print(trace: Trace, inside: bool, all_heads: bool, ascii_only: bool) -> None:
    from heedful.draw import heatmap, overview

    print("\n" + heatmap(trace, width=width(), ascii_only=ascii_only, confidence=not inside))
    if all_heads and trace.weights is not None and trace.weights[:, :, 0, 0].size > 1:
        print("\nFor each layer.head, the number of the word that every word looks at most:\n")
        print(overview(trace, width()))


def _write(path: Path, trace: Trace, caption: str, confidence: bool) -> None:
    from heedful.disk import write_whole
    from heedful.draw import svg

    if trace.weights is None:
        raise ConfigError("this model has no attention: there is nothing to draw")
    write_whole(path, svg.heatmap(trace, caption, confidence=confidence).encode())
    say(f"the picture is in {path}")
