"""`heedful see`."""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import heedful
from heedful.cli import options
from heedful.cli.caption import load_argument
from heedful.cli.output import log, print_json, write_colours
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.draw.model_attention import AttentionView, ModelAttention
    from heedful.draw.views import View


GENERIC = ("model", "checkpoint", "final", "best")  # names of folders that say nothing of the model
IMAGE_STARTS = (b"\x89PNG", b"\xff\xd8", b"RIFF", b"GIF8")  # of PNG, JPEG, WebP and GIF
KINDS = {".json": "record", ".html": "page"}


class _AttentionOptions(NamedTuple):
    """Options for models of transformers; those from `attention` on are for single heads of any model, too."""

    generate: int
    beside: list[str]
    layer: int | None
    head: int | None
    attention: str | None
    mean: bool
    rollout: bool
    word: str | None
    words: bool
    sinks: str | None
    rank: str | None
    trust_remote_code: bool
    heads: bool = False  # whether --sinks is for single heads, too

    def view(self, name: str | None, mass: float | None, dark: bool) -> AttentionView:
        """Return how it is drawn; raise ConfigError for values that do not exist."""
        from heedful.draw.model_attention import AttentionView

        how = AttentionView(
            *(name, self.attention, self.layer, self.head, self.mean, self.rollout, self.word, self.words, self.sinks),
            *(self.rank or "sharpness", mass, dark),
        )
        how.check()
        return how

    @property
    def for_heads(self) -> bool:
        """Whether an option was chosen for which the weights of all heads are needed, not the read-out.

        Sinks are set apart in both.
        """
        return any(chosen for name, chosen in self.for_texts.items() if name != "--sinks" or self.heads)

    @property
    def for_texts(self) -> dict[str, bool]:
        """The options for which the weights of all heads are needed, and whether each was chosen."""
        names = ("--beside", "--attention", "--mean", "--rollout", "--from", "--pieces", "--sinks", "--rank")
        values = (
            self.beside,
            self.attention,
            self.mean,
            self.rollout,
            self.word,
            not self.words,
            self.sinks,
            self.rank,
        )
        return {name: bool(value) for name, value in zip(names, values, strict=True)}


class _ModelTraces(NamedTuple):
    """The traces of a model: its name, the trace of the whole text, and those of its sentences."""

    name: str
    whole: heedful.Trace
    parts: list[heedful.Trace]


def see(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder, hf:ORG/NAME, or a saved trace.", show_default=False)
    ],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="A text, in quotes, or an image file; - is stdin. --beside adds others.",
            show_default=False,
        ),
    ] = None,
    *,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Show the attention for this translation or caption, not the model's own.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        int, typer.Option(min=0, metavar="N", help="Tokens that a decoder-only model writes after TEXT.")
    ] = 0,
    others: Annotated[
        list[Path] | None, typer.Option("--with", metavar="MODEL", help="Another model beside it.", show_default=False)
    ] = None,
    beside: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Another text beside it.", show_default=False)
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="heatmap|braid|heads|self|regions",
            help="The kind of figure; braid only with --to [heatmap; regions for captions of images; heads for models "
            "of transformers].",
            show_default=False,
        ),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="cross|encoder|decoder|self",
            help="Which attention of an encoder-decoder [cross], or self-attention.",
            show_default=False,
        ),
    ] = None,
    inside: Annotated[bool, typer.Option("--self", help="Show self-attention within the source.")] = False,
    layer: Annotated[
        int | None, typer.Option(metavar="N", help="Only this layer, from 1 [as the read-out].", show_default=False)
    ] = None,
    head: Annotated[
        int | None, typer.Option(metavar="N", help="Only this head, from 1 [as the read-out].", show_default=False)
    ] = None,
    mean: Annotated[bool, typer.Option("--mean", help="The mean of all heads, or of those of --layer.")] = False,
    rollout: Annotated[
        bool, typer.Option("--rollout", help="Attention rollout: self-attention followed through all layers.")
    ] = False,
    word: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WORD", help="The row of one word in every head; WORD#2: its second occurrence."
        ),
    ] = None,
    words: Annotated[bool, typer.Option("--words/--pieces", help="By words, or by the tokens of the model.")] = True,
    sinks: Annotated[
        str | None,
        typer.Option(
            metavar="apart|keep",
            help="Set tokens that take much of all weight apart [if they take over half of what is shown, or the "
            "read-out is a default by rule].",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="sharpness|entropy|distance|sink|received",
            help="The measure that ranks the heads in --view heads [sharpness].",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Also compute leave-one-out and gradient × input, and compare.")
    ] = False,
    mass: Annotated[
        float | None,
        typer.Option(
            metavar="WEIGHT", help="Draw the widest ribbons of each word, up to this cumulative weight [0.9]."
        ),
    ] = None,
    smooth: Annotated[
        bool, typer.Option("--smooth", help="Interpolate between the weights of the regions of an image.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write to FILE.svg, .png, .html or .json.", show_default=False),
    ] = None,
    font: Annotated[Path | None, typer.Option(metavar="FILE", help="A font for .png.", show_default=False)] = None,
    dark: Annotated[
        bool, typer.Option("--dark", help="Dark colours for .png; other formats follow the viewer.")
    ] = False,
    ascii_only: options.Ascii = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with a model of transformers.")
    ] = False,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    json: options.Json = False,
) -> None:
    """Show the attention weights of a translation, of a caption, or of any model of transformers.

    In a heat map every row is a target word, every column a source word, and the shade is the weight. The braid has the
    source above, the translation below, and ribbons as wide as the weight. --view heads has every head of every layer.
    --view self, or --self with another view, shows the self-attention of a Transformer's encoder. --json prints the
    record of the tokens, words and weights; --to FILE.json saves it, and a saved record can be given in place of MODEL
    and TEXT.

    Of a model that captions images, TEXT is the name of an image, and the figure is the image once for each word of its
    caption, bright where the weights are; as the grid is, or with --smooth interpolated.

    The weights are those of the model's read-out: the layers and heads, and the rule, by which links between words are
    read from its attention (`heedful readout` selects it). --check measures by leave-one-out (each source word is
    masked in turn) and by gradient × input how much each target word depends on each source word, and prints how well
    the weights agree with that.

    Models of transformers (BERT, GPT-2, Llama, T5 and so on) are read from a folder, a .gguf file or hf:NAME, with the
    extra heedful[hf]: exact weights from their fused attention, and otherwise those of eager attention. Sinks are
    tokens that receive much weight from all others, such as [SEP] or the first token.
    """
    from heedful.draw.views import View, check_path, record, write

    if text == "-":
        text = _stdin_text()
    chosen = _AttentionOptions(
        *(generate, beside or [], layer, head),
        attention,
        mean,
        rollout,
        word,
        words,
        sinks,
        rank,
        trust_remote_code,
        inside or view in ("heads", "self"),
    )
    inside = inside or view == "self"
    shape = chosen.view("self" if inside and view is None else view, mass, dark)
    if to is not None:
        check_path(to)
    if to is None or to.suffix.lower() != ".png":
        options.check_unused("without --to FILE.png", {"--dark": dark, "--font": font is not None})
    shown = _model_attentions(model, text, target, others or [], chosen, device, threads)
    if shown is not None:
        options.check_unused("for the attention of single heads", {"--check": check, "--smooth": smooth})
        if inside and attention is None and shown[0].groups[0].kind == "encoder":
            shape = shape._replace(kind="encoder")
        _show(shown, shape, to, font, ascii_only, json)
        return
    how = View(view or "", mass, *((layer, head) if view == "heads" else (None, None)), dark, smooth, sinks)
    _check(how, to, {"text": text, "target": target}, inside)
    if check and (inside or others or layer or head or view == "heads" or model.suffix.lower() == ".json"):
        raise ConfigError(
            "--check is for one model and a text, by its read-out; leave out --self, --with, --layer, --head, "
            "--view heads and saved traces"
        )
    options.use_threads(threads)
    if model.suffix.lower() == ".json" and model.is_file():
        traces = _saved(model, [text, target, *(others or ())])
        if inside:
            how._replace(name="self").check([one.whole for one in traces])
    else:
        models = (model, *(others or ()))
        traces = [_model_traces(path, text, target, inside, device) for path in models]
        traces = [one._replace(name=name) for one, name in zip(traces, _names(models), strict=True)]
        if check and traces[0].whole.image is not None:
            raise ConfigError("--check is for translations of texts, not for captions of images")
        traces += _dependences(model, traces[0], device) if check else []
    if view != "heads":
        traces = [
            _ModelTraces(s.name, s.whole.only(layer, head), [p.only(layer, head) for p in s.parts]) for s in traces
        ]
    wholes, names = [one.whole for one in traces], [one.name for one in traces]
    how = how.of(wholes)
    how.check(wholes)
    if json:
        print_json(record(wholes, names))
    for i, one in enumerate(() if json else traces):
        gap, name = "\n" * (i > 0 and to is None), f"{one.name}: " * (len(traces) > 1)
        if not (check and i):
            print(gap + name + one_line(one.whole.target.text).strip())
        elif to is None:
            print(f"{gap}{one.name}:")
        if to is None:
            _print(one.parts, how, inside and layer is None and head is None, ascii_only)
    if to is not None:
        attending = [one.name for one in traces if one.whole.words() is not None] or names
        title = "" if wholes[0].image else _title(to, inside, names[:1] if check else attending)
        title += ", and what its words depend on" * bool(check and title)
        note = write(to, wholes, how, title, names, font)
        log(f"the {KINDS.get(to.suffix.lower(), 'picture')} is in {to}")
        if note:
            log(note)


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the names of models: their folders', with the path if two are alike, and numbered if they are the same."""
    alike = len({path.name for path in set(paths)}) < len(set(paths))
    names = [str(path) if alike else path.name for path in paths]
    before = [names[:i].count(name) for i, name in enumerate(names)]
    return [f"{name} ({n + 1})" if n else name for name, n in zip(names, before, strict=True)]


def _title(to: Path, inside: bool, names: Sequence[str]) -> str:
    """Return the title of a page, or of a figure of self-attention; other figures have none."""
    if to.suffix.lower() != ".html":
        return "Self-attention" if inside else ""
    who = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"Self-attention of {who}" if inside else f"Attention of {who}"


def _check(how: View, to: Path | None, texts: dict[str, str | None], inside: bool) -> None:
    """Raise ConfigError for options that exclude each other, before a model is loaded."""
    from heedful.draw.views import check_path

    how.check()
    if to is not None:
        check_path(to)
    elif how.name not in ("", "heatmap", "heads", "self", "regions"):
        raise ConfigError(f"--view {how.name} needs a file: add --to, such as --to {how.name}.svg")
    if inside and texts["target"] is not None:
        raise ConfigError("--self shows the attention within the source, --target that of a translation; choose one")
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise DataError(f"the {name} is blank; give at least one word")


def _saved(path: Path, others: Sequence[object]) -> list[_ModelTraces]:
    """Return the traces of a file that was saved as JSON."""
    from heedful.draw.views import read_traces

    if any(other is not None for other in others):
        raise ConfigError(f"{path} is a saved trace with its own text and translation; give no others")
    return [_ModelTraces(name, trace, [trace]) for trace, name in zip(*read_traces(path), strict=True)]


def _model_traces(path: Path, text: str | None, target: str | None, inside: bool, device: str) -> _ModelTraces:
    """Return the traces of a model."""
    from heedful.interop import HUB, format_of
    from heedful.interop.folder import about

    if text is None:
        if not str(path).startswith(HUB) and format_of(path) is None:
            about(path)  # raises ModelError if this is no model
        raise ConfigError(f"there is no TEXT; give one after {path}")
    translator = heedful.load(path, device, options.log_fault)
    _check_kind(translator, text, {"--self": inside})
    if translator.reads_images:
        trace = _caption_trace(translator, text, target)
        return _ModelTraces(path.name, trace, [trace])
    traces = _self_attention_traces(translator, text) if inside else _translation_traces(translator, text, target)
    return _ModelTraces(path.name, *traces)


def _check_kind(translator: heedful.Translator, text: str, for_texts: dict[str, bool]) -> None:
    """Raise ConfigError for options that are only for texts, and for an image where the model translates text."""
    if not translator.reads_images:
        if _is_image(text):
            raise ConfigError(f"this model translates text, and {text} is an image; name a model that captions images")
        return
    if for_texts.get("--self"):
        raise ConfigError(
            "--self is for texts: a model that captions images has no self-attention over source words; leave it out, "
            "or choose --view regions, heatmap, braid or heads"
        )
    if wrong := ", ".join(name for name, given in for_texts.items() if given):
        raise ConfigError(
            f"{wrong}: only for texts, and this model captions images; leave it out (--view heads shows all heads)"
        )


def _is_image(text: str) -> bool:
    """Whether a text is the name of an image file."""
    from heedful.data.captions import ENDING

    try:
        return bool(ENDING.search(text)) and Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or not one
        return False


def _stdin_text() -> str:
    """Return the text of standard input, or - if an image is there, which is read with the model."""
    buffer = sys.stdin.buffer
    if isinstance(buffer, io.BufferedReader):
        start = buffer.peek(4)
    else:
        start = buffer.read(4)
        buffer.seek(0)
    return "-" if start.startswith(IMAGE_STARTS) else sys.stdin.read().strip()


def _caption_trace(translator: heedful.Translator, path: str, target: str | None) -> heedful.Trace:
    """Return the trace of the caption of an image, the model's own or `target`."""
    image = load_argument(path)
    if target is not None:
        notes = image.notes
        done = translator.score([image], [target])[0]
    else:
        done = translator.caption(image)
        notes = done.notes
    for note in notes:
        log(f"{path}: {options.as_options(note, has_options=False, command='caption')}")
    return done.trace


def _dependences(path: Path, traces: _ModelTraces, device: str) -> list[_ModelTraces]:
    """Return how much target words depend on source words, by every method; print how well the weights agree."""
    translator, dependences = heedful.load(path, device, options.log_fault), []
    for method in heedful.observe.WAYS:
        parts = [translator.influence(part.source.text, part.target.text, method) for part in traces.parts]
        again = translator.reread([p.source.text for p in parts], [p.target.text for p in parts])
        matrices = [(a.words(), b.words()) for a, b in zip(again, parts, strict=True)]
        rows = [
            heedful.observe.agreement(a[:-1, :-1], b[:-1, :-1]) for a, b in matrices if a is not None and b is not None
        ]
        counted = [row for row in rows if row.words]
        words = sum(row.words for row in counted)
        whole = heedful.Trace.join(traces.whole.source.text, traces.whole.target.text, _starts(traces), parts)
        if words:
            mean = [sum(row[i] * row.words for row in counted) / words for i in (0, 1)]
            measured = f"rank correlation with the weights {mean[0]:+.2f}, the same source word first {mean[1]:.0%}"
            log(f"{heedful.observe.NAMES[method]}: {measured}")
            # The label below every figure, so that files have it too.
            whole = replace(whole, readout=replace(whole.readout, label=f"{whole.readout}; {measured}"))
        dependences.append(_ModelTraces(heedful.observe.NAMES[method], whole, parts))
    return dependences


def _starts(traces: _ModelTraces) -> list[tuple[int, int]]:
    """Return the first characters of each sentence in the two texts."""
    starts, before = [], [0, 0]
    for part in traces.parts:
        source, target = (side.words for side in (traces.whole.source, traces.whole.target))
        mine = part.source.words, part.target.words
        starts.append((source[before[0]].start - mine[0][0].start, target[before[1]].start - mine[1][0].start))
        before = [number + len(words) for number, words in zip(before, mine, strict=True)]
    return starts


def _translation_traces(
    translator: heedful.Translator, text: str, target: str | None
) -> tuple[heedful.Trace, list[heedful.Trace]]:
    """Return the traces of a translation: of the whole text, and of each sentence."""
    notes = options.Notes(has_options=False)
    if target is None:
        done = translator.translate(text)
        notes.add(done.notes, translator.unknown(text))
    else:
        (done,) = translator.score([text], [target])
        notes.add((), [*translator.unknown(text), *translator.unknown(target, target=True)])
    notes.log()
    return done.trace, [part.trace for part in done.sentences or (done,)]


def _self_attention_traces(translator: heedful.Translator, text: str) -> tuple[heedful.Trace, list[heedful.Trace]]:
    """Return the self-attention of the source: of the whole text, and of its sentences."""
    sentences, sentence_notes = translator.self_attention_sentences(text)
    notes = options.Notes(has_options=False)
    notes.add(sentence_notes, translator.unknown(text))
    notes.log()
    starts, parts = [(start, start) for start, _ in sentences], [trace for _, trace in sentences]
    return heedful.Trace.join(text, text, starts, parts), parts


def _print(parts: Sequence[heedful.Trace], how: View, all_heads: bool, ascii_only: bool) -> None:
    """Print a heat map for each sentence, of the selected head if there is one, and a table of all heads.

    Of a caption, print its image for each word.
    """
    from heedful.draw import heatmap, overview, regions
    from heedful.draw.heads import choose_head

    for trace in parts:
        if how.name == "regions":
            colours = regions.terminal_colours(sys.stdout)
            write_colours("\n" + regions.terminal(trace, options.width(), ascii_only, how.smooth, colours))
            continue
        named = trace.weights is not None and (how.layer or how.head) is not None
        one = trace.only(*choose_head(trace, how.layer, how.head).at) if named else trace
        sure = not trace.inside
        print("\n" + heatmap(one, options.width(), ascii_only, confidence=sure, sinks=how.sinks))
        if (all_heads or how.name == "heads") and trace.weights is not None and trace.weights[:, :, 0, 0].size > 1:
            how_read = trace.reading and f" ({trace.reading})"
            title = f"For each layer.head, the number of the word with the largest weight{how_read}:"
            print("\n" + textwrap.fill(title, options.width()) + "\n")
            print(overview(trace, options.width()))


def _model_attentions(
    model: Path,
    text: str | None,
    target: str | None,
    others: Sequence[Path],
    chosen: _AttentionOptions,
    device: str,
    threads: int,
) -> list[ModelAttention] | None:
    """Return the attention of all heads, of each model and text; None where a trace with a read-out is shown."""
    from heedful.draw.model_attention import read_attentions
    from heedful.interop import is_transformers

    if model.suffix.lower() == ".json" and model.is_file():
        saved = read_attentions(model)
        if saved is not None and any(other for other in (text, target, others, chosen.generate, chosen.beside)):
            raise ConfigError(f"{model} is a saved record with its own text; give no others")
        return saved
    models = [model, *others]
    foreign = [is_transformers(path) for path in models]
    if not any(foreign):
        unused = {"--generate": bool(chosen.generate), "--trust-remote-code": chosen.trust_remote_code}
        options.check_unused("for this model, which is not one of transformers", unused)
        if not chosen.for_heads:
            return None
    if text is None:
        raise ConfigError(f"there is no TEXT; give one after {model}")
    for what, one in (("text", text), ("target", target), *(("text", other) for other in chosen.beside)):
        if one is not None and not one.strip():
            raise DataError(f"the {what} is blank; give at least one word")
    if target is not None and chosen.beside:
        raise ConfigError("--target belongs to one text; leave out --beside")
    options.use_threads(threads)
    shown = []
    for path, other, name in zip(models, foreign, _names(models), strict=True):
        if other and path.name in GENERIC:
            name = "/".join(path.parts[-2:])
        run = _transformers_run(path, device, chosen, name) if other else _own_run(path, device, chosen, name)
        shown += [run(one, target) for one in (text, *chosen.beside)]
    return shown


def _transformers_run(
    path: Path, device: str, chosen: _AttentionOptions, name: str
) -> Callable[[str, str | None], ModelAttention]:
    """Open a model of transformers; return the function that runs it on a text, with a target or None."""
    from heedful.interop import open_transformers

    opened = open_transformers(path, device, chosen.trust_remote_code)
    hold = [] if chosen.layer is None and chosen.head is None else [(chosen.layer, chosen.head)]

    def run(text: str, target: str | None) -> ModelAttention:
        return heedful.see(
            opened.model,
            opened.tokenizer,
            text,
            target=target,
            generate=chosen.generate,
            hold=hold,
            word=chosen.word,
            words=chosen.words,
            name=name,
        )

    return run


def _own_run(
    path: Path, device: str, chosen: _AttentionOptions, name: str
) -> Callable[[str, str | None], ModelAttention]:
    """Open a model of heedful's own; return the function that runs it on a text, with a target or None."""
    translator = heedful.load(path, device, options.log_fault)

    def run(text: str, target: str | None) -> ModelAttention:
        _check_kind(translator, text, chosen.for_texts)
        return translator.see(text, target, name=name)

    return run


def _show(
    shown: Sequence[ModelAttention],
    how: AttentionView,
    to: Path | None,
    font: Path | None,
    ascii_only: bool,
    json: bool,
) -> None:
    """Print the attention of single heads, or write it to a file."""
    from heedful.draw.model_attention import record, write

    if to is None and how.view == "braid" and not json:
        raise ConfigError("--view braid needs a file: add --to, such as --to braid.svg")
    figures = ["" if to or json else one.text(how, options.width(), ascii_only) for one in shown]
    if json:
        print_json(record(shown))
    for i, one in enumerate(() if json else shown):
        gap, name = "\n" * (i > 0 and to is None), f"{one.name}: " * (len(shown) > 1)
        read = one.written() or ([one.groups[0].source.text] if name else [])
        lines = [f"{name}{one_line(line).strip()}\n" for line in read]
        print(gap + "".join(lines) + figures[i], end="")
        print(end="\n" * (to is None))
    if to is not None:
        note = write(shown, to, how, font=font)
        log(f"the {KINDS.get(to.suffix.lower(), 'picture')} is in {to}")
        if note:
            log(note)
