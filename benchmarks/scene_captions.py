"""Captions of drawn scenes: `heedful demo captions` with several seeds, in English or Hindi, and the median scores.

python benchmarks/scene_captions.py [--out DIR] [--seeds 1 2 3] [--language en|hi] [--fast] [--end-to-end]
                                    [--guided] [--longer TIMES] [--set SECTION.KEY=VALUE]

With --end-to-end, the model with a fixed context is trained once more, together with an image encoder of its own, for
as many updates as the shared one had: whether the shared encoder is the reason for its scores. With --guided, the
models with attention are trained once more with the gold regions of the training scenes. --longer multiplies the
updates of all models: Hindi needs more, since its adjectives agree with a noun that follows them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import heedful
from heedful.cli.demo import LoggedLeaderboard
from heedful.data.scenes import LANGUAGES, scenes
from heedful.demo import DemoModel, Plan
from heedful.demo.captions import (
    CAPTIONS,
    CAPTIONS_FAST,
    PIXELS,
    CaptionerResult,
    CaptionReport,
    accuracy,
    corpus_options,
    exact_by_objects,
    measure_pointing,
    pictures,
    run_captions,
    shared_encoder,
)
from heedful.demo.training import train_models


def table(reports: Sequence[CaptionReport]) -> list[str]:
    """Return the scores of all runs in lines, and their medians."""
    lines = [f"{'':34}{'1':>8}{'2':>8}{'3':>8}{'4':>8}{'all':>8}{'noun':>8}{'colour':>8}{'size':>8}{'count':>8}"]
    for key in (model.key for model in reports[0].models):
        rows = []
        for report in reports:
            model = next(one for one in report.models if one.key == key)
            rows.append(numbers(model))
            lines.append(row(f"seed {report.seed}, {model.title}", rows[-1]))
        if len(rows) > 1:
            lines.append(row(f"median, {model.title}", [median(column) for column in zip(*rows, strict=True)]))
    for report in reports:
        for model in report.models:
            if model.steps:
                steps = ", ".join(f"{step} step {one.nouns:.1f}" for step, one in model.steps.items())
                lines.append(f"seed {report.seed}, {model.title}: nouns at the {steps}; saved: {model.readout}")
        base = report.models[1].pointing
        if base is not None:
            for kind in base.rows:
                lines.append(f"seed {report.seed}, {kind.kind}: chance {kind.chance:.1f}, centre {kind.centre:.1f}")
        spent = {name: f"{value:.0f}" for name, value in report.seconds.items()}
        share = 100 * (report.seconds["drawing"] + report.seconds["loading"]) / report.seconds["total"]
        lines.append(f"seed {report.seed}: seconds {spent}; drawing and loading {share:.1f} %")
    return lines


def numbers(model: CaptionerResult) -> list[float]:
    """Return the exact captions by the number of objects and of all, then pointing accuracy by kind of word."""
    exact = [*(model.exact.get(n, 0.0) for n in range(1, 5)), model.total]
    if model.pointing is None:
        return exact
    return [*exact, *(accuracy(model.pointing, kind) for kind in ("noun", "colour", "size", "count"))]


def row(name: str, values: Sequence[float]) -> str:
    """Return a line of the table."""
    return f"{name:34}" + "".join(f"{value:8.1f}" for value in values)


def again(plan: Plan, out: Path, seed: int, language: str, models: Sequence[DemoModel], regions: bool) -> list[str]:
    """Train further models on the corpus of a demo and return their lines of the table."""
    files, options = corpus_options(out)
    if regions:
        options += ("--regions", str(files[0].parent / "regions.jsonl"))
    trained, _ = train_models(
        replace(plan, models=tuple(models)), out, files[0], files[1], seed, LoggedLeaderboard().update, options
    )
    test = list(scenes(plan.test, seed=seed, split="test", language=language, size=PIXELS))
    lines = []
    for status in trained:
        folder = out / status.model.key
        translator = heedful.load(folder, "cpu")
        images = pictures(test)
        attends = translator.config.family != "fixed"
        pointing = measure_pointing(translator, out, test, images, folder, plan.valid) if attends else ()
        exact, total, _ = exact_by_objects(translator, test, images)
        weights = sum(p.numel() for p in translator.parts.model.parameters())
        result = CaptionerResult(
            status.model.key, status.model.title, weights, status.step, status.seconds, exact, total, *pointing
        )
        lines.append(row(f"seed {seed}, {result.title}", numbers(result)))
        for step, one in (result.steps or {}).items():
            lines.append(f"seed {seed}, {result.title}: nouns at the {step} step {one.nouns:.1f}")
    return lines


def main() -> None:
    """Train, measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--out", type=Path, default=Path("runs/scene-captions"), help="folder for the demos")
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--language", choices=LANGUAGES, default="en")
    options.add_argument("--fast", action="store_true", help="the fast demo")
    options.add_argument("--end-to-end", action="store_true", help="the fixed context with an image encoder of its own")
    options.add_argument("--guided", action="store_true", help="attention guided by gold regions")
    options.add_argument("--longer", type=float, default=1.0, metavar="TIMES", help="times the updates of the demo")
    options.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = options.parse_args()
    plan = CAPTIONS_FAST if args.fast else CAPTIONS
    models = tuple(model._replace(steps=round(args.longer * model.steps)) for model in plan.models)
    plan = replace(plan, settings=(*plan.settings, *args.settings), models=models)
    args.out.mkdir(parents=True, exist_ok=True)
    reports, more = [], []
    for seed in args.seeds:
        out = args.out / f"{args.language}-{seed}"
        reports.append(run_captions(plan, out, seed, LoggedLeaderboard(), language=args.language))
        encoder, *others = plan.models
        if args.end_to_end:
            fixed = next(model for model in others if model.key == "fixed")
            own = fixed._replace(key="fixed-own", title="fixed, own encoder", steps=encoder.steps)
            own = own._replace(settings=(*own.settings, "training.rate=0.003"))
            more += again(plan, out, seed, args.language, [own], regions=False)
        if args.guided:
            guided = [
                model._replace(
                    key=f"{model.key}-guided",
                    title=f"{model.title}, guided",
                    settings=(*model.settings, *shared_encoder(plan, out)),
                )
                for model in others
                if model.key != "fixed"
            ]
            more += again(plan, out, seed, args.language, guided, regions=True)
    print("\n".join([*table(reports), *more]))


if __name__ == "__main__":
    main()
