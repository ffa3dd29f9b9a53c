"""`heedful demo captions`: train three captioners on drawn scenes, and measure where their words point.

An image encoder is trained first, inside a small captioner. The three models of the comparison share it: it is frozen,
and its features of all images are computed once. They differ only in how they read them: a recurrent model with a fixed
context (the mean of all regions), one with attention (Bahdanau's score), and a Transformer. Nothing tells them where
things are: gold regions are only used to select the read-out, on validation scenes, and to measure pointing accuracy.
"""

from __future__ import annotations

import io
import json
import platform
import re
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import heedful
from heedful.data.captions import CaptionFile
from heedful.data.images import LoadedImage
from heedful.data.scenes import MOST, Scene, scenes, write_scenes
from heedful.demo.run import RECORD, DemoDisplay, demo_folder
from heedful.demo.training import DemoModel, Plan, TrainingStatus, cores, train_models
from heedful.draw import chart
from heedful.draw.html import figure
from heedful.draw.picture import clean
from heedful.evaluation.page import (
    count,
    document,
    duration,
    facts,
    figure_in_two_widths,
    listed,
    marked,
    million,
    scroll,
    tenth,
)
from heedful.files import write_whole
from heedful.metrics import exact_match
from heedful.metrics.pointing import GoldWord, PointingTable, gold_words
from heedful.trace import ImageRegions
from heedful.trace.readout import STEPS, Readout
from heedful.translator.default_readout import weight_table
from heedful.translator.select_readout import select_by_regions

PIXELS = 64  # the side of the scenes, as they are drawn and as the models read them
SHOWN_PIXELS = 256  # of the scenes in the report
ENCODER = "encoder"  # the captioner whose image encoder is shared
SHOWN_FIRST = "attention"
RECURRENT = ("model.width=128", "model.embedding=32", "model.dropout=0")
COMMON = (
    "text.kind=word",
    f"image.pixels={PIXELS}",
    "image.patch=8",
    "image.filters=24",
    "image.blocks=0",
    "training.decay=cosine",
    "training.batch_tokens=4096",
    "training.batch_sentences=32",
    "training.smoothing=0",
)
ENCODED = DemoModel(ENCODER, "image encoder", ("model.family=rnn", *RECURRENT, "training.rate=0.003"), 2_400)
FIXED = DemoModel(
    "fixed", "fixed context", ("model.family=fixed", *RECURRENT, "model.context=every", "training.rate=0.006"), 3_500
)
ATTENTION = DemoModel("attention", "attention", ("model.family=rnn", *RECURRENT, "training.rate=0.004"), 1_200)
TRANSFORMER = DemoModel(
    "transformer",
    "Transformer",
    (
        "model.family=transformer",
        "model.width=96",
        "model.layers=1",
        "model.decoder_layers=2",
        "model.heads=4",
        "model.inner=192",
        "model.dropout=0",
        "training.rate=0.003",
    ),
    1_500,
)
# The first model is trained with its image encoder; the others take it from there.
CAPTIONS = Plan(
    pairs=30_000,
    valid=500,
    test=1_000,
    max_words=0,
    settings=(*COMMON, "training.warmup=100", "training.valid_pairs=200"),
    models=(ENCODED, FIXED, ATTENTION, TRANSFORMER),
    lengths=(),
    validations=1,  # the last weights are kept: those in the middle of a cosine can have a better BLEU by chance
)
FAST_STEPS = {ENCODER: 1_000, "fixed": 900, "attention": 300, "transformer": 350}
CAPTIONS_FAST = replace(
    CAPTIONS,
    pairs=12_000,
    valid=200,
    test=400,
    settings=(*COMMON, "training.warmup=60", "training.valid_pairs=60"),
    models=tuple(model._replace(steps=FAST_STEPS[model.key]) for model in CAPTIONS.models),
)


class StepReadout(NamedTuple):
    """The best read-out of a step, selected on validation scenes, and the pointing accuracy of nouns in test scenes."""

    readout: Readout
    nouns: float


@dataclass(frozen=True)
class CaptionerResult:
    """A trained model.

    `exact` is the share of exact captions in per cent, by the number of objects. `pointing` is measured with the
    read-out that was selected and saved; `steps` has the best of each step. Both are empty without attention.
    """

    key: str
    title: str
    weights: int
    updates: int
    seconds: float
    exact: Mapping[int, float]
    total: float
    pointing: PointingTable | None = None
    steps: Mapping[str, StepReadout] | None = None
    readout: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        steps = {name: {"readout": one.readout.plain(), "nouns": one.nouns} for name, one in (self.steps or {}).items()}
        return {
            "key": self.key,
            "title": self.title,
            "weights": self.weights,
            "updates": self.updates,
            "seconds": self.seconds,
            "exact_by_objects": {str(n): value for n, value in self.exact.items()},
            "exact": self.total,
            "pointing": self.pointing and self.pointing.plain(),
            "steps": steps,
        }


@dataclass(frozen=True)
class SceneResult:
    """A test scene, the caption of each model by its key, and the traces of those with attention."""

    objects: int
    caption: str
    outputs: Mapping[str, str]
    traces: Mapping[str, heedful.Trace]


@dataclass(frozen=True)
class CaptionReport:
    """A whole run. `seconds` has its parts by name, and `total`."""

    models: tuple[CaptionerResult, ...]
    encoder: CaptionerResult
    scenes: tuple[SceneResult, ...]
    counts: Mapping[int, int]
    coverage: float
    seconds: Mapping[str, float]
    plan: Plan
    seed: int
    language: str = "en"
    next: tuple[tuple[str, str], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        return {
            "models": [model.plain() for model in self.models],
            "image_encoder": self.encoder.plain(),
            "scenes": [
                {"objects": one.objects, "caption": one.caption, "outputs": dict(one.outputs)} for one in self.scenes
            ],
            "test_scenes": {str(n): number for n, number in self.counts.items()},
            "gold_box_share": self.coverage,
            "seconds": dict(self.seconds),
            "language": self.language,
            "seed": self.seed,
        }


def run_captions(
    plan: Plan, out: Path, seed: int, display: DemoDisplay, program: str = "heedful", language: str = "en"
) -> CaptionReport:
    """Run the demo in the folder `out` and return its report; `program` is the command in the next steps."""
    begin = time.monotonic()
    with demo_folder(out, display):
        display.log(f"drawing {plan.pairs + plan.valid + plan.test:,} scenes")
        for split, number in (("train", plan.pairs), ("valid", plan.valid), ("test", plan.test)):
            made = scenes(number, seed=seed, split=split, language=language, size=PIXELS)
            write_scenes(out / "corpus" / split, made)
        drawn = time.monotonic()
        first, statuses = train_captioners(plan, out, seed, display)
        trained = time.monotonic()
        display.log("evaluating on test scenes with combinations that are not in the training data")
        report = measure(out, plan, seed, (first, *statuses), language)
        ended = time.monotonic()
        loading = sum(loading_seconds(out / f"{model.key}.log") for model in plan.models)
        report = replace(
            report,
            seconds={
                "drawing": drawn - begin,
                "training": trained - drawn,
                "loading": loading,
                "evaluation": ended - trained,
                "total": ended - begin,
            },
            next=_next(out, program),
        )
        write_whole(out / "report.html", caption_page(report).encode())
        write_whole(out / RECORD, json.dumps(report.plain(), ensure_ascii=False, indent=1).encode())
    return report


def train_captioners(
    plan: Plan, out: Path, seed: int, display: DemoDisplay
) -> tuple[TrainingStatus, list[TrainingStatus]]:
    """Train the first model with its image encoder, then the others side by side with that encoder, frozen."""
    files, options = corpus_options(out)
    encoder, *others = plan.models
    display.log("training an image encoder, inside a small captioner")
    alone = replace(plan, models=(encoder,))
    (first,), _ = train_models(alone, out, files[0], files[1], seed, display.update, options)
    shared = shared_encoder(plan, out)
    rest = replace(plan, models=tuple(model._replace(settings=(*model.settings, *shared)) for model in others))
    display.log(f"training {count(len(others), 'model')} side by side, with that image encoder")
    update = lambda statuses: display.update([first, *statuses])  # noqa: E731
    statuses, _ = train_models(rest, out, files[0], files[1], seed, update, options)
    return first, statuses


def corpus_options(out: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the files of captions for training and validation, and the options of `heedful train` for their images."""
    files = [out / "corpus" / split / "captions.csv" for split in ("train", "valid")]
    return files, ("--images", str(files[0].parent / "images"), "--valid-images", str(files[1].parent / "images"))


def shared_encoder(plan: Plan, out: Path) -> tuple[str, ...]:
    """Return the settings of a model that takes the image encoder of the first model."""
    return f"image.weights={out / plan.models[0].key}", "image.frozen=true"


def loading_seconds(log: Path) -> float:
    """Return the seconds that a training run spent reading images, from its log."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return sum(float(seconds) for seconds in re.findall(r"images, .*\(([0-9.]+) s\)", text))


def measure(
    out: Path, plan: Plan, seed: int, statuses: Sequence[TrainingStatus], language: str = "en"
) -> CaptionReport:
    """Measure the trained models on the test scenes; select and save their read-outs on the validation scenes."""
    import torch  # late, so that this process needs little memory while the models are trained

    torch.set_num_threads(cores())
    test = list(scenes(plan.test, seed=seed, split="test", language=language, size=PIXELS))
    images = pictures(test)
    shown = [next(i for i, s in enumerate(test) if len(s.objects) == n) for n in range(1, MOST + 1)]
    outputs: dict[str, list[str]] = {}
    traces: dict[str, list[heedful.Trace]] = {}
    results = []
    for status in statuses:
        model = status.model
        translator = heedful.load(out / model.key, "cpu")
        pointing = None
        if translator.config.family != "fixed" and model.key != ENCODER:
            pointing = measure_pointing(translator, out, test, images, out / model.key, plan.valid)
            translator = heedful.load(out / model.key, "cpu")  # with its read-out
        exact, total, outputs[model.key] = exact_by_objects(translator, test, images)
        if pointing is not None:
            captioned = translator.caption([images[i] for i in shown])
            traces[model.key] = [_redrawn(t.trace, test[i]) for t, i in zip(captioned, shown, strict=True)]
        results.append(
            CaptionerResult(
                model.key,
                model.title,
                sum(p.numel() for p in translator.parts.model.parameters()),
                status.step,
                status.seconds,
                exact,
                total,
                *(pointing or ()),
            )
        )
    areas = [w * h / PIXELS**2 for scene in test for _, _, _, w, h in scene.regions]
    return CaptionReport(
        models=tuple(one for one in results if one.key != ENCODER),
        encoder=next(one for one in results if one.key == ENCODER),
        scenes=tuple(
            SceneResult(
                len(test[i].objects),
                test[i].caption,
                {one.key: outputs[one.key][i] for one in results if one.key != ENCODER},
                {key: of[place] for key, of in traces.items()},
            )
            for place, i in enumerate(shown)
        ),
        counts=_counts(test),
        coverage=100 * sum(areas) / len(areas),
        seconds={},
        plan=plan,
        seed=seed,
        language=language,
    )


def pictures(test: Sequence[Scene]) -> list[LoadedImage]:
    """Return the pictures of scenes, with the names that their files have."""
    return [LoadedImage(f"{number:06}.png", scene.draw()) for number, scene in enumerate(test, 1)]


def exact_by_objects(
    translator: heedful.Translator, test: Sequence[Scene], images: list[LoadedImage]
) -> tuple[dict[int, float], float, list[str]]:
    """Return the share of exact captions by the number of objects and of all, in per cent, and the captions."""
    outputs = [one.text for one in translator.caption(images, trace=False)]
    right = [exact_match(output, scene.caption) for output, scene in zip(outputs, test, strict=True)]
    by = {n: [r for r, s in zip(right, test, strict=True) if len(s.objects) == n] for n in _counts(test)}
    return {n: 100 * sum(of) / len(of) for n, of in by.items()}, 100 * sum(right) / len(right), outputs


def measure_pointing(
    translator: heedful.Translator,
    out: Path,
    test: Sequence[Scene],
    images: Sequence[LoadedImage],
    folder: Path,
    most: int,
) -> tuple[PointingTable, dict[str, StepReadout], str]:
    """Select the read-out on validation scenes and save it in the model's folder; measure it on the test scenes.

    Return its pointing accuracy, the best read-out of each step with the pointing accuracy of nouns, and its name.
    """
    corpus = out / "corpus" / "valid"
    held_out = CaptionFile(str(corpus / "captions.csv"), str(corpus / "images"), str(corpus / "regions.jsonl"))
    selection = select_by_regions(translator, held_out, max_pairs=most, folder=folder)
    encoded = [translator.parts.image_input.encode(image, picture=False) for image in images]
    gold = [gold_of(scene, one.regions) for scene, one in zip(test, encoded, strict=True)]
    words = [word for of in gold for word in of]
    table = weight_table(translator, encoded, [scene.caption for scene in test])

    def measured(readout: Readout) -> PointingTable:
        return PointingTable.of(words, table.points_right(table.mixed(readout), gold).tolist())

    best = {step: next(row for row in selection.ranked if row.readout.step == step).readout for step in STEPS}
    steps = {step: StepReadout(readout, accuracy(measured(readout), "noun")) for step, readout in best.items()}
    return measured(selection.readout), steps, str(selection.readout)


def gold_of(scene: Scene, regions: ImageRegions) -> list[GoldWord]:
    """Return the words of a scene's caption that have gold regions."""
    boxes = zip(scene.regions, scene.region_kinds, strict=True)
    return gold_words(regions, (((word, (x, y, w, h), kind)) for (word, x, y, w, h), kind in boxes))


def accuracy(table: PointingTable, kind: str) -> float:
    """Return the pointing accuracy of a kind of word, in per cent."""
    return next((row.accuracy for row in table.rows if row.kind == kind), table.total.accuracy)


def _counts(test: Sequence[Scene]) -> dict[int, int]:
    """Return the number of scenes by the number of their objects."""
    return dict(sorted(Counter(len(scene.objects) for scene in test).items()))


def _redrawn(trace: heedful.Trace | None, scene: Scene) -> heedful.Trace:
    """Return a trace whose picture is the scene drawn in more detail than the model reads."""
    from PIL import Image

    assert trace is not None
    assert trace.image is not None

    file = io.BytesIO()
    Image.fromarray(replace(scene, size=SHOWN_PIXELS).draw()).save(file, "PNG")
    return replace(trace, image=replace(trace.image, picture=file.getvalue()))


def _next(out: Path, program: str) -> tuple[tuple[str, str], ...]:
    names = ("attention", "transformer", "fixed", "corpus/test", "corpus/train")
    attention, transformer, fixed, test, train = (quote(str(out / name)) for name in names)
    image = f"{test}/images/000004.png"
    files = f"{test}/captions.csv --images {test}/images"
    return (
        ("caption a scene, with the region of each word", f"{program} caption {attention} {image} --show"),
        ("the same with the model without attention", f"{program} caption {fixed} {image}"),
        ("a page of its attention weights", f"{program} see {transformer} {image} --to caption.html"),
        ("all scores, with pointing", f"{program} evaluate {attention} {files} \\\n  --regions {test}/regions.jsonl"),
        (
            "guide attention with gold regions",
            f"{program} train {train}/captions.csv --images {train}/images \\\n"
            f"  --regions {train}/regions.jsonl --out guided",
        ),
        ("more scenes, with captions in Hindi", f"{program} corpus scenes --pairs 20 --language hi --out scenes-hi"),
    )


def _exact_table(report: CaptionReport) -> list[list[str]]:
    """Return the rows of the table by the number of objects, with their headings."""
    rows = [["objects", "scenes", *(model.title for model in report.models)]]
    rows += [[str(n), f"{c:,}", *(tenth(m.exact[n]) for m in report.models)] for n, c in report.counts.items()]
    return [*rows, ["all", f"{sum(report.counts.values()):,}", *(tenth(m.total) for m in report.models)]]


def _pointing_table(report: CaptionReport) -> list[list[str]]:
    """Return the rows of pointing accuracy by kind of word, with their headings; none without attention."""
    models = [(model, model.pointing) for model in report.models if model.pointing is not None]
    if not models:
        return []
    rows = [["", "words", *(model.title for model, _ in models), "chance", "picture's centre"]]
    base = models[0][1]
    for i, row in enumerate((*base.rows, base.total)):
        values = [tenth((*table.rows, table.total)[i].accuracy) for _, table in models]
        rows.append([row.kind, f"{row.words:,}", *values, tenth(row.chance), tenth(row.centre)])
    return rows


def _step_table(report: CaptionReport) -> list[list[str]]:
    """Return the rows of pointing accuracy by step, with their headings; none without attention."""
    models = [model for model in report.models if model.steps]
    if not models:
        return []
    rows = [["", *(f"{step} step" for step in STEPS), "read-out that was saved"]]
    return [*rows, *([m.title, *(tenth(m.steps[s].nouns) for s in STEPS), m.readout] for m in models if m.steps)]


def _conclusions(report: CaptionReport) -> list[str]:
    """Return what the numbers say, in sentences."""
    by_key = {model.key: model for model in report.models}
    least, most = min(report.counts), max(report.counts)
    ends = [f"{m.title} {tenth(m.exact[least])} and {tenth(m.exact[most])}" for m in report.models]
    lines = [
        f"Exact captions of scenes with {count(least, 'object')} and with {count(most, 'object')}: {listed(ends)}. "
        "A fixed context is one vector for the whole picture, however many objects there are; attention reads the "
        "regions anew for each word."
    ]
    if "fixed" in by_key and SHOWN_FIRST in by_key:
        fixed, attending = by_key["fixed"], by_key[SHOWN_FIRST]
        lost = [m.exact[least] - m.exact[most] for m in (fixed, attending)]
        changes = [f"{'loses' if points > 0 else 'gains'} {abs(points):.1f} points" for points in lost]
        lines.append(
            f"From {least} to {most} objects, {fixed.title} {changes[0]} and {attending.title} {changes[1]}; of all "
            f"{sum(report.counts.values()):,} test scenes they get {tenth(fixed.total)} and {tenth(attending.total)} "
            "exactly right."
        )
    pointing = [m for m in report.models if m.pointing is not None]
    if pointing:
        nouns = listed([f"{m.title} {tenth(accuracy(m.pointing, 'noun'))}" for m in pointing if m.pointing])
        first = pointing[0].pointing
        assert first is not None
        row = next((row for row in first.rows if row.kind == "noun"), first.total)
        lines.append(
            f"The largest weight of a noun is inside the box of its object: {nouns}; a region drawn at random is in "
            f"{tenth(row.chance)}, the picture's centre in {tenth(row.centre)}. Nobody told the models where things "
            f"are. A gold box covers {tenth(report.coverage)} of the picture on average."
        )
        better = [f"{m.title}: the {max(STEPS, key=lambda s: m.steps[s].nouns)} step" for m in pointing if m.steps]  # type: ignore[index]
        lines.append(
            f"Which decoder step points at a word, the same one that writes it or the next one that reads it? "
            f"{listed(better)}."
        )
    return lines


def caption_summary(report: CaptionReport, out: Path, width: int = 80) -> str:
    """Return the report as text for a terminal."""
    lines = ["Exact captions by the number of objects in the scene:", ""]
    lines += _aligned(_exact_table(report))
    if pointing := _pointing_table(report):
        lines += ["", "Pointing accuracy: the largest weight of a word is inside its gold box", "", *_aligned(pointing)]
        lines += ["", "Pointing accuracy of nouns by decoder step", "", *_aligned(_step_table(report))]
    lines.append("")
    for scene in report.scenes[-2:]:
        lines += [f"{'reference':<16}{scene.caption}"]
        lines += [f"{model.title:<16}{scene.outputs[model.key]}" for model in report.models] + [""]
    for line in _conclusions(report):
        lines += [*textwrap.wrap(line.replace("\u00a0", " "), width, break_long_words=False), ""]
    lines.append(f"Report: {out / 'report.html'} ({duration(report.seconds['total'])})".replace("\u00a0", " "))
    lines += ["", "Next steps:", *(f"# {what}\n{command}" for what, command in report.next)]
    return "\n".join(lines) + "\n"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines of text: the first column to the left, the others to the right."""
    cells = [[cell.replace("\u00a0", " ") for cell in row] for row in rows]
    sizes = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        (f"{row[0]:<{sizes[0]}}" + "".join(f"  {c:>{n}}" for c, n in zip(row[1:], sizes[1:], strict=True))).rstrip()
        for row in cells
    ]


def _html_table(rows: Sequence[Sequence[str]], label: str, total: bool = False) -> str:
    head, *body = rows
    titles = "".join(f"<th>{clean(cell)}</th>" for cell in head)
    lines = [f"<tr>{''.join(f'<td>{clean(cell)}</td>' for cell in row)}</tr>" for row in body]
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    return scroll(f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody>{foot}</table>", label)


def _bars(groups: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], title: str, label: str) -> str:
    return figure_in_two_widths(
        chart.bars(groups, series, title, label), chart.rows(groups, series, title, label), title
    )


def caption_page(report: CaptionReport) -> str:
    """Return the report as one HTML document that needs no other file."""
    title = "Captions of drawn scenes, with and without attention"
    lead = "".join(f"<p>{clean(line)}</p>\n" for line in _conclusions(report))
    groups = [count(n, "object") for n in report.counts]
    exact = [(model.title, [model.exact[n] for n in report.counts]) for model in report.models]
    cards = "".join(
        f'<div class="card"><h3>{chart.swatch(i)}{clean(model.title)}</h3><p class="big">{tenth(model.total)}</p>'
        f'<p class="small">of {sum(report.counts.values()):,} captions exactly right</p>{facts(_card(model))}</div>'
        for i, model in enumerate(report.models)
    )
    steps = ""
    for what, command in report.next:
        lines = "\n".join(map(clean, command.splitlines()))
        steps += f'<p>{clean(what)}</p>\n<pre tabindex="0">{lines}</pre>\n'
    return document(
        title,
        heedful.__version__,
        f"""<header><h1>{title}</h1><div class="lead">
{lead}</div></header>
<main>
<div class="cards">{cards}</div>
<section id="scores"><h2>By the number of objects</h2>
{_bars(groups, exact, "Exact captions, by the number of objects", "per cent of the test scenes")}
{_html_table(_exact_table(report), "exact captions", total=True)}
<p class="small">Exact means the same words as the reference, and no others. Every test scene has a combination that no
training scene has: a colour with a kind of thing, or two kinds with a relation between them. A scene with one object
always has a new combination of colour and kind.</p></section>
{_pointing(report)}
<section id="scenes"><h2>Scenes</h2>
<p>The first test scene of each number of objects. The models read {PIXELS} × {PIXELS} pixels; the scenes are drawn here
with {SHOWN_PIXELS} × {SHOWN_PIXELS}.</p>
{"".join(_article(report, scene) for scene in report.scenes)}</section>
<section id="run" class="facts"><h2>How the run was made</h2>
<p>One image encoder was trained first, inside a small captioner with attention, and is shared by the three models. It
stays as it is while they are trained, side by side and for about the same time: they differ in how they read the same
features of the same regions.</p>
{facts(_facts(report))}</section>
<section id="next" class="try"><h2>Next steps</h2>
{steps}</section>
</main>
""",
        figures=any(scene.traces for scene in report.scenes),
    )


def _card(model: CaptionerResult) -> list[tuple[str, str]]:
    """Return further numbers of a model."""
    most = max(model.exact)
    numbers = [(f"with {count(most, 'object')}", tenth(model.exact[most]))]
    if model.pointing is not None:
        numbers.append(("pointing of nouns", tenth(accuracy(model.pointing, "noun"))))
    return numbers


def _pointing(report: CaptionReport) -> str:
    """Return the section on pointing accuracy; "" without attention."""
    table = _pointing_table(report)
    models = [(model, model.pointing) for model in report.models if model.pointing is not None]
    if not models:
        return ""
    base = models[0][1]
    # Chance is first, so that each model has the colour that it has in the other chart.
    series = [("chance", [row.chance for row in base.rows])]
    series += [(model.title, [row.accuracy for row in pointing.rows]) for model, pointing in models]
    series += [("picture's centre", [row.centre for row in base.rows])]
    drawn = ""
    if base.rows:
        drawn = _bars([row.kind for row in base.rows], series, "Pointing accuracy, by kind of word", "per cent")
    return f"""<section id="pointing"><h2>Where words point</h2>
<p>A word points at the region with its largest attention weight. It points right if the centre of that region is inside
the gold box: that of the object, or of all objects of its group. The models read the reference captions meanwhile.</p>
{drawn}
{_html_table(table, "pointing accuracy", total=True)}</section>
<section id="steps"><h2>Which step points</h2>
<p>The decoder attends once to write a word and once more, in the next step, when it has read that word. For each step
the best read-out (layer and heads) was selected on the validation scenes; this is its pointing accuracy of nouns in the
test scenes. The better one on the validation scenes is saved in the folder of the model.</p>
{_html_table(_step_table(report), "pointing accuracy by step")}</section>"""


def _article(report: CaptionReport, scene: SceneResult) -> str:
    """Return a scene with the captions of all models, and the regions of their words."""
    outputs = "".join(
        f'<p><span class="who">{clean(model.title)}</span> '
        f'<span lang="{report.language}">{marked(scene.outputs[model.key], scene.caption)}</span></p>\n'
        for model in report.models
    )
    opened = ' open="open"'
    figures = "".join(
        f"<details{opened if key == SHOWN_FIRST else ''}><summary>Regions of {clean(_title(report, key))}</summary>"
        f"<figure>{figure([trace], 'regions')}</figure></details>"
        for key, trace in scene.traces.items()
    )
    return f"""<article><p class="source" lang="{report.language}">{clean(scene.caption)}</p>
<ul class="tags"><li>{count(scene.objects, "object")}</li></ul>
{outputs}{figures}</article>
"""


def _title(report: CaptionReport, key: str) -> str:
    return next(model.title for model in report.models if model.key == key)


def _facts(report: CaptionReport) -> list[tuple[str, str]]:
    """Return how the run was made."""
    plan, seconds = report.plan, report.seconds
    known = [
        ("trained on", f"{plan.pairs:,} drawn scenes, seed {report.seed}; validated on {plan.valid:,} others"),
        *((name, value) for name, value in (setting.split("=", 1) for setting in plan.settings)),
    ]
    for model, result in zip(plan.models, (report.encoder, *report.models), strict=True):
        trained = f"{million(result.weights)} weights, {result.updates:,} updates in {duration(result.seconds)}"
        known.append((model.title, f"{trained}: {', '.join(model.settings)}"))
    if seconds:
        spent = seconds["drawing"] + seconds["loading"]
        known += [
            ("drawing and loading", f"{spent:.0f} s, {tenth(100 * spent / seconds['total'])} of the whole time"),
            ("training", duration(seconds["training"])),
            ("evaluation", duration(seconds["evaluation"])),
            ("total time", duration(seconds["total"])),
        ]
    import torch

    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}, heedful {heedful.__version__}"
    return [*known, ("software", versions), ("machine", f"{cores()} processor cores, {date.today().isoformat()}")]
