"""`heedful demo`: generate the corpus, train the models side by side, evaluate them, write the report."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Protocol

import heedful
from heedful.alignment import AlignmentScores, Readout, align_trace, parse, score, text
from heedful.data.hindi import SentenceSide, generate
from heedful.demo.training import (
    EXAMPLES,
    Plan,
    TrainingStatus,
    cores,
    exit_on_signals,
    package_environment,
    peak_memory,
    train_models,
)
from heedful.errors import ConfigError, MachineError
from heedful.evaluation.page import AlignmentResult, ModelResult
from heedful.evaluation.run_report import (
    CorpusFacts,
    ExampleResult,
    Machine,
    RunReport,
    exact_up_to,
    length_scores,
    run_page,
)
from heedful.files import locked, make_folder, write_whole, writing

RECORD = "demo.json"  # the numbers of the page; a folder with this file was made by a demo
SHOWN_FIRST = "attention"  # the model whose weights are shown first
UP_TO = 20  # words of the sentences that the main number is about
THRESHOLDS = (1.0, 0.7, 0.5, 0.3, 0.2)


class DemoDisplay(Protocol):
    """Shows the progress of a demo."""

    def log(self, message: str) -> None:
        """Print a message."""
        ...

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        """Show the progress of the models."""
        ...


def run(plan: Plan, out: Path, seed: int, display: DemoDisplay, program: str = "heedful") -> RunReport:
    """Run the demo in the folder `out` and return its report; `program` is the command in the next steps."""
    begin = time.monotonic()
    with demo_folder(out, display):
        files, train, valid, test = _corpus(plan, out, seed, display)
        display.log(f"training {len(plan.models)} models of about the same size side by side, for the same time")
        statuses, memory = train_models(plan, out, files["train"], files["valid"], seed, display.update)
        display.log("evaluating on test sentences, which are not in the training data")
        report = _measured(plan, out, statuses, train, valid, test)
        report = replace(
            report,
            corpus=report.corpus._replace(seed=seed),
            seconds=time.monotonic() - begin,
            memory=max(memory, peak_memory(os.getpid())) / 1e6,
            next=_next(out, program),
        )
        write_whole(out / "report.html", run_page(report).encode())
        record = json.dumps(report.plain(), ensure_ascii=False, indent=1)
        write_whole(out / RECORD, record.encode("utf-8", "backslashreplace"))
    return report


def _measured(
    plan: Plan,
    out: Path,
    statuses: Sequence[TrainingStatus],
    train: list[SentenceSide],
    valid: list[SentenceSide],
    test: list[SentenceSide],
) -> RunReport:
    """Evaluate the trained models."""
    import torch  # late, so that this process needs little memory while the models are trained

    torch.set_num_threads(cores())
    translators = {c.key: heedful.load(out / c.key, "cpu") for c in plan.models}
    pairs = [(side.source, side.target) for side in test]
    models, unseen, short = [], {}, 0
    for status in statuses:
        key, translator = status.model.key, translators[status.model.key]
        outputs = [t.text for t in translator.translate([side.source for side in test], trace=False)]
        unseen[key], short = exact_up_to(UP_TO, outputs, pairs)
        models.append(
            ModelResult(
                key,
                status.model.title,
                sum(p.numel() for p in translator.parts.model.parameters()),
                status.seconds,
                status.step,
                tuple(status.curve),
                length_scores(outputs, pairs),
                str(out / key),
                None if translator.config.family == "fixed" else alignment(translator, valid, test),
            )
        )
    shown = [SHOWN_FIRST, *(m.key for m in models if m.alignment and m.key != SHOWN_FIRST)]
    parts = translators[SHOWN_FIRST].parts
    return RunReport(
        title="Hindi to English, with and without attention",
        corpus=CorpusFacts(
            len(train),
            len(test),
            parts.source_codec.regular_tokens,
            parts.target.regular_tokens,
            max(len(s.source.split()) for s in train),
            0,
        ),
        models=tuple(models),
        examples=examples(translators, plan, {side.source for side in train}, test, shown),
        unseen_exact=unseen,
        machine=Machine(
            platform.python_version(), torch.__version__, heedful.__version__, cores(), date.today().isoformat()
        ),
        seconds=0.0,
        memory=0.0,
        unseen_pairs=short,
        settings=_settings(plan),
    )


def alignment(
    translator: heedful.Translator, valid: Sequence[SentenceSide], test: Sequence[SentenceSide]
) -> AlignmentResult:
    """Score the links of a model that re-reads the references against the gold links.

    The threshold of the link rule is selected on the validation pairs.
    """
    traces = _traces(translator, valid)
    best = min(THRESHOLDS, key=lambda threshold: _score(traces, valid, threshold).error_rate)
    scores = _score(_traces(translator, test), test, best)
    rule = "a word is linked to the source word with its largest weight"
    if best < 1:
        rule = f"a word is linked to the source words with at least {best:.0%} of its largest weight"
    several = any(trace.weights is not None and trace.weights.shape[:2] != (1, 1) for trace in traces)
    mean = " in the mean of all layers and heads" if several else ""
    return AlignmentResult(
        scores.error_rate, scores.precision, scores.recall, len(test), f"{rule}{mean}; selected on validation pairs"
    )


def _traces(translator: heedful.Translator, pairs: Sequence[SentenceSide]) -> list[heedful.Trace]:
    return translator.reread([side.source for side in pairs], [side.target for side in pairs])


def _score(traces: Sequence[heedful.Trace], pairs: Sequence[SentenceSide], threshold: float) -> AlignmentScores:
    links = [
        frozenset() if trace.tokens() is None else align_trace(trace, Readout(threshold=threshold)).pairs
        for trace in traces
    ]
    return score(links, [frozenset(side.links) for side in pairs])


def examples(
    translators: dict[str, heedful.Translator],
    plan: Plan,
    training_sources: set[str],
    test: Sequence[SentenceSide],
    shown: Sequence[str],
) -> tuple[ExampleResult, ...]:
    """Translate the fixed examples, and the first test sentence of each length of the plan.

    `shown` are the models whose attention is shown, the first of them at once.
    """
    chosen = [(x, y, parse(gold), "a fixed example") for x, y, gold in EXAMPLES]
    for low, high in plan.lengths:
        side = next((s for s in test if low <= len(s.source.split()) <= high), None)
        if side is not None:
            chosen.append((side.source, side.target, frozenset(side.links), "a new combination of words"))
    sources = [source for source, *_ in chosen]
    outputs = {key: translator.translate(sources) for key, translator in translators.items()}
    first, *others = shown
    return tuple(
        ExampleResult(
            source,
            reference,
            source in training_sources,
            {key: translations[i].text for key, translations in outputs.items()},
            outputs[first][i].trace,
            gold,
            note,
            first,
            {key: outputs[key][i].trace for key in others},
        )
        for i, (source, reference, gold, note) in enumerate(chosen)
    )


@contextmanager
def demo_folder(out: Path, display: DemoDisplay) -> Iterator[None]:
    """Create the folder and lock it; rename the folder of an earlier demo; raise ConfigError for any other content."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(out)!r}: the name of this folder is not UTF-8; choose another folder") from None
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: this is a file, expected a folder for the demo")
    if out.is_dir() and any(out.iterdir()):
        if not (out / RECORD).exists():
            raise ConfigError(f"{out}: this folder is not empty, and is no demo's; choose another folder")
        if Path.cwd().is_relative_to(out.resolve()):
            raise ConfigError(f"{out}: an earlier demo that cannot be renamed from inside; choose another folder")
        with locked(out):  # not while another demo is being made there
            aside = next(path for n in range(1, 1000) if not (path := out.with_name(f"{out.name}.{n}")).exists())
            with writing(out):
                out.rename(aside)
        display.log(f"renamed the earlier demo to {aside}")
    make_folder(out)
    with locked(out):
        write_whole(out / RECORD, b"{}\n")
        yield


def _corpus(
    plan: Plan, out: Path, seed: int, display: DemoDisplay
) -> tuple[dict[str, Path], list[SentenceSide], list[SentenceSide], list[SentenceSide]]:
    """Write the corpus; return its files, and the pairs for training, validation and testing."""
    make_folder(out / "corpus")
    files = {split: out / "corpus" / f"{split}.tsv" for split in ("train", "valid", "test")}
    write_whole(out / "recipe.toml", _recipe(plan).encode())
    display.log(f"generating {plan.pairs:,} sentence pairs with the Hindi–English grammar")
    with exit_on_signals(), _generating(plan, "test", seed, plan.test) as test:
        train, valid = _split(plan, "train", seed, plan.pairs), _split(plan, "valid", seed, plan.valid)
        _write(files["train"], train)
        _write(files["valid"], valid)
        rows = [line.split("\t") for line in test()]
    sides = [SentenceSide(source, target, tuple(sorted(parse(links))), ()) for source, target, links in rows]
    _write(files["test"], sides)
    return files, train, valid, sides


@contextmanager
def _generating(plan: Plan, split: str, seed: int, count: int) -> Iterator[Callable[[], list[str]]]:
    """Generate a part of the corpus in another process; give a function that waits for its lines."""
    options = {"pairs": count, "seed": seed, "split": split, "max-words": plan.max_words}
    command = [sys.executable, "-P", "-m", "heedful", "corpus", "hindi", "--alignments"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=package_environment(), start_new_session=True
    ) as process:

        def lines() -> list[str]:
            text, _ = process.communicate()
            if process.returncode:
                raise MachineError(f"generating the {split} pairs ended with code {process.returncode}")
            return text.decode("utf-8").splitlines()

        try:
            yield lines
        finally:
            process.kill()


def _split(plan: Plan, split: str, seed: int, count: int) -> list[SentenceSide]:
    return [e.seen_from("hi-en") for e in islice(generate(seed, split, max_words=plan.max_words), count)]


def _write(path: Path, sides: Sequence[SentenceSide]) -> None:
    """Write pairs as `heedful corpus hindi --alignments` does."""
    lines = (f"{s.source}\t{s.target}\t{text(frozenset(s.links))}\n" for s in sides)
    write_whole(path, "".join(lines).encode())


def _recipe(plan: Plan) -> str:
    """Return the settings of the model with attention as a recipe that `heedful train` takes."""
    chosen = next(c for c in plan.models if c.key == SHOWN_FIRST)
    sections: dict[str, list[str]] = {}
    for setting in (*plan.settings, *chosen.settings, f"training.steps={chosen.steps}"):
        name, _, value = setting.partition("=")
        section, _, key = name.partition(".")
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}")
    lines = ["# How the demo trained its model with attention."]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *values]
    return "\n".join(lines) + "\n"


def _settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    common = [tuple(setting.split("=", 1)) for setting in plan.settings]
    own = [(c.title, ", ".join((*c.settings, f"training.steps={c.steps}"))) for c in plan.models]
    return tuple((name, value) for name, value in [*common, *own])


def _next(out: Path, program: str) -> tuple[tuple[str, str], ...]:
    names = ("attention", "fixed", "transformer", "corpus/train.tsv", "recipe.toml")
    attention, fixed, transformer, train, recipe = (quote(str(out / name)) for name in names)
    luong = f"\\\n  --recipe {recipe} --order luong --score dot"
    return (
        ("translate and show the attention weights", f'{program} translate {attention} --show "राम किताब पढ़ रहा है"'),
        ("the same with the model without attention", f'{program} translate {fixed} "राम किताब पढ़ रहा है"'),
        ("the same with the Transformer", f'{program} translate {transformer} --show "राम किताब पढ़ रहा है"'),
        ("more pairs of the corpus, with gold links", f"{program} corpus hindi --pairs 10 --seed 2 --alignments"),
        ("train with another attention score", f"{program} train {train} --out m {luong}"),
        ("train on your own sentence pairs (source, tab, target)", f"{program} train pairs.tsv --out my-model"),
    )
