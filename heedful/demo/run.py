"""The demo from beginning to end: corpus, training side by side, measuring, the page."""

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
from typing import Any, Protocol

from heedful.alignment import parse, text
from heedful.config import __version__, settings
from heedful.data.hindi import SentenceSide, generate
from heedful.demo.machine import cores, peak
from heedful.demo.measure import alignment, exact_up_to, examples, scores
from heedful.demo.plan import Plan
from heedful.demo.race import Standing, leaving, race, this_heedful
from heedful.errors import ConfigError, MachineError
from heedful.evaluation.records import CorpusFacts, Machine, ModelResult, RunReport
from heedful.evaluation.run_page import run_page
from heedful.files import locked, make_folder, write_whole, writing

__all__ = ["Watch", "run"]

MARK = "demo.json"  # what is in this file is in the page too; a folder that has it was made by a demo
LOOKING = "attention"  # the model whose weights are shown first
UP_TO = 20  # words of the sentences that the main number is about


class Watch(Protocol):
    """Somebody who watches a demo."""

    def say(self, message: str) -> None:
        """Hear something in words."""
        ...

    def standings(self, standings: Sequence[Standing]) -> None:
        """Hear how the models stand."""
        ...


def run(plan: Plan, out: Path, seed: int, watch: Watch, heedful: str = "heedful") -> RunReport:
    """Make the demo in the folder `out` and return what it found; `heedful` is the command to tell people to type."""
    begin = time.monotonic()
    with _taken(out, watch):
        files, train, valid, test = _corpus(plan, out, seed, watch)
        watch.say(f"training {len(plan.contestants)} models of about the same size side by side, for the same time")
        standings, memory = race(plan, out, files["train"], files["valid"], seed, watch.standings)
        watch.say("measuring on sentences that no model has seen")
        report = _measured(plan, out, standings, train, valid, test)
        report = replace(
            report,
            corpus=report.corpus._replace(seed=seed),
            seconds=time.monotonic() - begin,
            memory=max(memory, peak(os.getpid())) / 1e6,
            next=_next(out, heedful),
        )
        write_whole(out / "report.html", run_page(report).encode())
        write_whole(
            out / MARK, json.dumps(_plain(report), ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
        )
    return report


def _measured(
    plan: Plan,
    out: Path,
    standings: Sequence[Standing],
    train: list[SentenceSide],
    valid: list[SentenceSide],
    test: list[SentenceSide],
) -> RunReport:
    """Return what the trained models can do."""
    import torch  # only now: while the models are trained, the memory is theirs

    from heedful.text import SPECIALS
    from heedful.translator import load

    torch.set_num_threads(cores())
    translators = {c.key: load(out / c.key, "cpu") for c in plan.contestants}
    models, unseen, pairs = [], {}, 0
    for standing in standings:
        key, translator = standing.contestant.key, translators[standing.contestant.key]
        outputs = [t.text for t in translator.translate([side.source for side in test], trace=False)]
        unseen[key], pairs = exact_up_to(UP_TO, outputs, test)
        models.append(
            ModelResult(
                key,
                standing.contestant.title,
                sum(p.numel() for p in translator.parts.model.parameters()),
                standing.seconds,
                standing.step,
                tuple(standing.curve),
                scores(outputs, test),
                str(out / key),
                None if translator.config.family == "fixed" else alignment(translator, valid, test),
            )
        )
    first = translators[LOOKING].parts
    looking = [LOOKING, *(m.key for m in models if m.alignment and m.key != LOOKING)]
    sizes = len(train), len(test), len(first.source) - len(SPECIALS), len(first.target) - len(SPECIALS)
    return RunReport(
        title="Hindi to English, with and without attention",
        corpus=CorpusFacts(*sizes, max(len(s.source.split()) for s in train), 0),
        models=tuple(models),
        examples=examples(translators, plan, {side.source for side in train}, test, looking),
        unseen_exact=unseen,
        machine=Machine(platform.python_version(), torch.__version__, __version__, cores(), _today()),
        seconds=0.0,
        memory=0.0,
        unseen_pairs=pairs,
        settings=_settings(plan),
    )


@contextmanager
def _taken(out: Path, watch: Watch) -> Iterator[None]:
    """Make the folder and hold it; an earlier demo in it is moved aside, anything else is refused."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(out)!r}: the name of this folder is not UTF-8; choose another with --out") from None
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: this is a file, expected a folder for the demo")
    if out.is_dir() and any(out.iterdir()):
        if not (out / MARK).exists():
            raise ConfigError(f"{out}: this folder is not empty and holds no demo; choose another with --out")
        if Path.cwd().is_relative_to(out.resolve()):
            raise ConfigError(f"{out}: the demo in it cannot be moved aside from inside; choose another with --out")
        with locked(out):  # not while another demo is being made there
            aside = next(path for n in range(1, 1000) if not (path := out.with_name(f"{out.name}.{n}")).exists())
            with writing(out):
                out.rename(aside)
        watch.say(f"the earlier demo is now in {aside}")
    make_folder(out)
    with locked(out):
        write_whole(out / MARK, b"{}\n")
        yield


def _corpus(
    plan: Plan, out: Path, seed: int, watch: Watch
) -> tuple[dict[str, Path], list[SentenceSide], list[SentenceSide], list[SentenceSide]]:
    """Write the corpus and return where, with its pairs to learn from, to validate on, and to test with."""
    make_folder(out / "corpus")
    files = {split: out / "corpus" / f"{split}.tsv" for split in ("train", "valid", "test")}
    write_whole(out / "recipe.toml", _recipe(plan).encode())
    watch.say(f"making {plan.pairs:,} sentence pairs from the Hindi–English grammar")
    with leaving(), _apart(plan, "test", seed, plan.test) as test:
        train, valid = _split(plan, "train", seed, plan.pairs), _split(plan, "valid", seed, plan.valid)
        _write(files["train"], train)
        _write(files["valid"], valid)
        rows = [line.split("\t") for line in test()]
    sides = [SentenceSide(source, target, tuple(sorted(parse(links))), ()) for source, target, links in rows]
    _write(files["test"], sides)
    return files, train, valid, sides


@contextmanager
def _apart(plan: Plan, split: str, seed: int, count: int) -> Iterator[Callable[[], list[str]]]:
    """Make a part of the corpus in another process meanwhile, and give a function that waits for its lines."""
    options = {"pairs": count, "seed": seed, "split": split, "max-words": plan.max_words}
    command = [sys.executable, "-P", "-m", "heedful", "corpus", "hindi", "--alignments"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=this_heedful(), start_new_session=True) as process:

        def lines() -> list[str]:
            text, _ = process.communicate()
            if process.returncode:
                raise MachineError(f"making the {split} pairs ended with code {process.returncode}")
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
    chosen = next(c for c in plan.contestants if c.key == LOOKING)
    sections = settings([*plan.settings, *chosen.settings, f"training.steps={chosen.steps}"])
    lines = ["# How the demo trained its model with attention."]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    common = [tuple(setting.split("=", 1)) for setting in plan.settings]
    own = [(c.title, ", ".join((*c.settings, f"training.steps={c.steps}"))) for c in plan.contestants]
    return tuple((name, value) for name, value in [*common, *own])


def _next(out: Path, heedful: str) -> tuple[tuple[str, str], ...]:
    names = ("attention", "fixed", "transformer", "corpus/train.tsv", "recipe.toml")
    attention, fixed, transformer, train, recipe = (quote(str(out / name)) for name in names)
    luong = f"\\\n  --recipe {recipe} --order luong --score dot"
    return (
        ("translate something and see where it looked", f'{heedful} translate {attention} --show "राम किताब पढ़ रहा है"'),
        ("the same from the model without attention", f'{heedful} translate {fixed} "राम किताब पढ़ रहा है"'),
        ("the same from the Transformer", f'{heedful} translate {transformer} --show "राम किताब पढ़ रहा है"'),
        ("more of the corpus, with its gold links", f"{heedful} corpus hindi --pairs 10 --seed 2 --alignments"),
        ("the same with another attention", f"{heedful} train {train} --out m {luong}"),
        ("your own sentence pairs: source, tab, target", f"{heedful} train pairs.tsv --out my-model"),
    )


def _today() -> str:
    return date.today().isoformat()


def _plain(report: RunReport) -> dict[str, Any]:
    """Return the numbers as JSON can hold them."""
    return {
        "title": report.title,
        "corpus": report.corpus._asdict(),
        "models": [
            {
                "key": m.key,
                "title": m.title,
                "weights": m.weights,
                "seconds": m.seconds,
                "steps": m.steps,
                "curve": m.curve,
                "scores": m.scores.plain(),
                "folder": m.folder,
                "alignment": m.alignment and m.alignment._asdict(),
            }
            for m in report.models
        ],
        "examples": [
            {"source": e.source, "reference": e.reference, "seen": e.seen, "outputs": dict(e.outputs)}
            for e in report.examples
        ],
        "unseen_exact": dict(report.unseen_exact),
        "unseen_pairs": report.unseen_pairs,
        "machine": report.machine._asdict(),
        "seconds": report.seconds,
        "memory_mb": report.memory,
    }
