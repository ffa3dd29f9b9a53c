"""`heedful demo pronouns`: train a small Transformer, find the head that resolves `it`, and knock it out.

The model translates English to French, where `it` is `il` or `elle` by the gender of its antecedent. It is told neither
the antecedents nor any links. A head of the encoder is right about an `it` if the antecedent has the largest weight of
all other words of the sentence. The best head is selected on validation sentences and measured on test sentences, with
other combinations of words.
"""

from __future__ import annotations

import json
import platform
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from pathlib import Path
from random import Random
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import heedful
from heedful.alignment import text
from heedful.data.pronouns import PronounExample, generate
from heedful.data.pronouns.lexicon import lexicon
from heedful.demo.run import RECORD, DemoDisplay, demo_folder
from heedful.demo.training import DemoModel, Plan, cores, train_models
from heedful.draw import svg
from heedful.draw.picture import clean
from heedful.errors import ConfigError
from heedful.evaluation.page import document, duration, facts, scroll, tenth
from heedful.evaluation.run_report import Machine
from heedful.files import make_folder, write_whole
from heedful.metrics import exact_match

if TYPE_CHECKING:
    from heedful.models.transformer import MultiHead

KEY = "transformer"
# The feed-forward layers are narrow: wide ones can look up the gender of a noun by what is said of `it` when `it` has
# attended to both nouns, and then no head has to select one.
SETTINGS = (
    "text.kind=word",
    "model.family=transformer",
    "model.layers=3",
    "model.decoder_layers=1",
    "model.width=64",
    "model.heads=4",
    "model.inner=8",
    "model.dropout=0",
    "training.rate=0.004",
    "training.warmup=200",
    "training.decay=cosine",
    "training.batch_tokens=1024",
)
PRONOUNS = Plan(
    pairs=40_000,
    valid=500,
    test=1_000,
    max_words=32,
    settings=SETTINGS,
    models=(DemoModel(KEY, "Transformer", (), 4_000),),
    lengths=(),
    validations=4,
)
PRONOUNS_FAST = replace(
    PRONOUNS,
    pairs=12_000,
    valid=150,
    test=300,
    models=(DemoModel(KEY, "Transformer", ("training.batch_tokens=512",), 1_000),),
    validations=2,
)
# Sentences that are always shown, with the positions of `it`, of its antecedent, and of the other noun.
CLASSICS = (
    ("The animal did not cross the street because it was too tired", (8, 1, 6)),
    ("The animal did not cross the street because it was too wide", (8, 6, 1)),
    ("The trophy did not fit in the suitcase because it was too big", (9, 1, 7)),
    ("The trophy did not fit in the suitcase because it was too small", (9, 7, 1)),
)


class PronounCase(NamedTuple):
    """A sentence with an `it` that may refer to two nouns: positions of `it`, of its antecedent, of the other noun."""

    example: PronounExample
    pronoun: int
    noun: int
    other: int

    @property
    def genders_differ(self) -> bool:
        """Whether the two nouns have different genders in French."""
        words = self.example.source.split()
        return _feminine(words[self.noun]) != _feminine(words[self.other])


class EncoderHead(NamedTuple):
    """A head of the encoder, counted from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}"


class PronounScores(NamedTuple):
    """What a model does with `it`, in per cent.

    `head` is the best head of the encoder on the validation sentences, `antecedent` how often it gives the antecedent
    of a test sentence the largest weight of all other words, `nouns` how often a larger one than the other noun.
    `pronoun` is how often `il` or `elle` is right where the two nouns differ in gender, `exact` how many translations
    are exactly right.
    """

    name: str
    head: EncoderHead
    antecedent: float
    nouns: float
    pronoun: float
    exact: float


class ClassicResult(NamedTuple):
    """A fixed example: the weights of `it` on its antecedent and on the other noun, and both translations."""

    source: str
    positions: tuple[int, int, int]
    weights: tuple[float, float]
    output: str
    without_head: str
    seen: bool
    trace: heedful.Trace


@dataclass(frozen=True)
class PronounReport:
    """A whole run.

    `heads` (L, H) are the per cent of validation sentences that each head is right about; `chance` and `nearest` are
    what one gets on the test sentences without a model: a random word or noun; always the nearest noun, and the gender
    of that noun where the two differ. `decoder` is for heads that attend from `il` or `elle` to the source: how often
    the best one has its largest weight on the antecedent, and the best one on `it`.
    """

    scores: tuple[PronounScores, ...]
    heads: NDArray[np.float64]
    chance: tuple[float, float]
    nearest: tuple[float, float]
    decoder: tuple[float, float]
    classics: tuple[ClassicResult, ...]
    cases: Mapping[str, int]
    weights: int
    steps: int
    training_seconds: float
    seconds: float
    plan: Plan
    seed: int
    next: tuple[tuple[str, str], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        return {
            "scores": [{**one._asdict(), "head": list(one.head)} for one in self.scores],
            "heads": np.round(self.heads, 2).tolist(),
            "chance": {"words": self.chance[0], "nouns": self.chance[1]},
            "nearest_noun": {"antecedent": self.nearest[0], "pronoun": self.nearest[1]},
            "decoder": {"antecedent": self.decoder[0], "it": self.decoder[1]},
            "examples": [
                {
                    "source": one.source,
                    "output": one.output,
                    "without_head": one.without_head,
                    "weight_on_antecedent": one.weights[0],
                    "weight_on_other": one.weights[1],
                    "seen": one.seen,
                }
                for one in self.classics
            ],
            "cases": dict(self.cases),
            "weights": self.weights,
            "steps": self.steps,
            "training_seconds": self.training_seconds,
            "seconds": self.seconds,
            "seed": self.seed,
        }


def run_pronouns(plan: Plan, out: Path, seed: int, display: DemoDisplay, program: str = "heedful") -> PronounReport:
    """Run the demo in the folder `out` and return its report; `program` is the command in the next steps."""
    begin = time.monotonic()
    with demo_folder(out, display):
        make_folder(out / "corpus")
        files = {split: out / "corpus" / f"{split}.tsv" for split in ("train", "valid", "test")}
        display.log(f"generating {plan.pairs:,} sentence pairs with the English–French grammar")
        train = list(islice(generate(seed, "train", max_words=plan.max_words), plan.pairs))
        valid, test = (
            [case.example for case in islice(cases(seed, split, plan.max_words), count)]
            for split, count in (("valid", plan.valid), ("test", plan.test))
        )
        for split, examples in (("train", train), ("valid", valid), ("test", test)):
            lines = (
                f"{e.source}\t{e.target}\t{text(frozenset(e.links))}\t{text(frozenset(e.antecedents))}\n"
                for e in examples
            )
            write_whole(files[split], "".join(lines).encode())
        display.log("training a Transformer, English to French; it is told neither links nor antecedents")
        (status,), _ = train_models(plan, out, files["train"], files["valid"], seed, display.update)
        display.log("looking for the head that sends `it` to its antecedent")
        report = measure(out / KEY, plan, seed, {e.source for e in train})
        report = replace(
            report,
            steps=status.step,
            training_seconds=status.seconds,
            seconds=time.monotonic() - begin,
            next=_next(out, program, report.scores[0].head),
        )
        write_whole(out / "report.html", pronoun_page(report).encode())
        write_whole(out / RECORD, json.dumps(report.plain(), ensure_ascii=False, indent=1).encode())
    return report


def cases(seed: int, split: str, max_words: int = 32) -> Iterator[PronounCase]:
    """Yield sentences of a split in which `it` may refer to two nouns; each of the two is meant as often."""
    for example in generate(seed, split, max_words=max_words):
        if len(example.nouns) == 2:
            pronoun, noun = example.antecedents[0]
            other = example.nouns[0] if noun == example.nouns[1] else example.nouns[1]
            yield PronounCase(example, pronoun, noun, other)


def measure(folder: Path, plan: Plan, seed: int, training_sources: set[str]) -> PronounReport:
    """Measure a trained model: with all heads, without the best one, and without another one."""
    import torch  # late, so that this process needs little memory while the model is trained

    torch.set_num_threads(cores())
    translator = heedful.load(folder, "cpu")
    valid, test = (
        list(islice(cases(seed, split, plan.max_words), count))
        for split, count in (("valid", plan.valid), ("test", plan.test))
    )
    heads = head_accuracies(translator, valid)[0]
    best = best_head(heads)
    L, H = heads.shape
    rest = [EncoderHead(layer, head) for layer in range(1, L + 1) for head in range(1, H + 1)]
    rest.remove(best)
    scores = [score_pronouns("all heads", translator, valid, test)]
    outputs = translator.translate([source for source, _ in CLASSICS], trace=False)
    with without_head(translator, best):
        scores.append(score_pronouns(f"without {best}", translator, valid, test, knocked_out=best))
        wrong = translator.translate([source for source, _ in CLASSICS], trace=False)
    if rest:
        other = rest[int(Random(seed).random() * len(rest))]
        with without_head(translator, other):
            scores.append(score_pronouns(f"without {other} (random)", translator, valid, test, knocked_out=other))
    classics = []
    for (source, (pronoun, noun, second)), output, without in zip(CLASSICS, outputs, wrong, strict=True):
        trace = translator.self_attention(source).only(best.layer, best.head)
        assert trace.weights is not None
        row = trace.weights[0, 0, pronoun]
        classics.append(
            ClassicResult(
                source,
                (pronoun, noun, second),
                (float(row[noun]), float(row[second])),
                output.text,
                without.text,
                source in training_sources,
                trace,
            )
        )
    words = [len(case.example.source.split()) - 1 for case in test]
    nearest = np.array([case.noun > case.other for case in test])
    differing = np.array([case.genders_differ for case in test])
    return PronounReport(
        scores=tuple(scores),
        heads=heads,
        chance=(100 * float(np.mean([1 / n for n in words])), 50.0),
        nearest=(100 * float(nearest.mean()), 100 * float(nearest[differing].mean())),
        decoder=decoder_accuracies(translator, valid, test),
        classics=tuple(classics),
        cases={"valid": len(valid), "test": len(test), "genders differ": int(differing.sum())},
        weights=sum(p.numel() for p in translator.parts.model.parameters()),
        steps=0,
        training_seconds=0.0,
        seconds=0.0,
        plan=plan,
        seed=seed,
    )


def head_accuracies(
    translator: heedful.Translator, given: Sequence[PronounCase]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how often each head of the encoder sends `it` to its antecedent, in per cent.  (L, H) each.

    First, of all other words; then, of the two nouns.
    """
    words, nouns = [], []
    for case in given:
        weights = translator.self_attention(case.example.source).weights
        assert weights is not None
        row = weights[:, :, case.pronoun, :-1].copy()  # without </s>
        nouns.append(row[..., case.noun] > row[..., case.other])
        row[..., case.pronoun] = -1.0
        words.append(row.argmax(-1) == case.noun)
    return 100 * np.mean(words, axis=0), 100 * np.mean(nouns, axis=0)


def decoder_accuracies(
    translator: heedful.Translator, valid: Sequence[PronounCase], test: Sequence[PronounCase]
) -> tuple[float, float]:
    """Return how often the best decoder head attends from `il` or `elle` to the antecedent, and the best one to `it`.

    Both are selected on `valid` and measured on `test`, while the reference is read; in per cent of the cases.
    """
    found = []
    for given in (valid, test):
        traces = translator.reread([c.example.source for c in given], [c.example.target for c in given])
        most = []
        for case, trace in zip(given, traces, strict=True):
            (written,) = (j for i, j in case.example.links if i == case.pronoun)
            assert trace.weights is not None
            most.append(trace.weights[:, :, written, :-1].argmax(-1))
        of_all = np.array(most)
        found.append(
            [
                of_all == np.array(places)[:, None, None]
                for places in zip(*((c.noun, c.pronoun) for c in given), strict=True)
            ]
        )
    shares = []
    for chosen, measured in zip(*found, strict=True):
        head = np.unravel_index(chosen.mean(0).argmax(), chosen.shape[1:])
        shares.append(100 * float(measured[(slice(None), *head)].mean()))
    return shares[0], shares[1]


def best_head(accuracies: NDArray[np.float64]) -> EncoderHead:
    """Return the head with the highest accuracy.  accuracies (L, H)."""
    layer, head = np.unravel_index(int(accuracies.argmax()), accuracies.shape)
    return EncoderHead(int(layer) + 1, int(head) + 1)


def score_pronouns(
    name: str,
    translator: heedful.Translator,
    valid: Sequence[PronounCase],
    test: Sequence[PronounCase],
    knocked_out: EncoderHead | None = None,
) -> PronounScores:
    """Return the scores of a model as it is now; the head is selected on `valid`, from those not knocked out."""
    accuracies = head_accuracies(translator, valid)[0]
    if knocked_out is not None:
        accuracies[knocked_out.layer - 1, knocked_out.head - 1] = -1.0
    head = best_head(accuracies)
    words, nouns = (part[head.layer - 1, head.head - 1] for part in head_accuracies(translator, test))
    outputs = [t.text for t in translator.translate([case.example.source for case in test], trace=False)]
    right = [pronouns_of(o) == pronouns_of(case.example.target) for o, case in zip(outputs, test, strict=True)]
    differing = [one for one, case in zip(right, test, strict=True) if case.genders_differ]
    exact = [exact_match(o, case.example.target) for o, case in zip(outputs, test, strict=True)]
    return PronounScores(
        name, head, float(words), float(nouns), 100 * float(np.mean(differing)), 100 * float(np.mean(exact))
    )


def pronouns_of(french: str) -> list[str]:
    """Return the pronouns of a French sentence.

    >>> pronouns_of("La vache n'a pas mangé la pomme parce qu'elle dormait et qu'elle avait froid")
    ['elle', 'elle']
    """
    bare = (word.lower().rpartition("'")[2] for word in french.split())
    return [word for word in bare if word in ("il", "elle")]


@contextmanager
def without_head(translator: heedful.Translator, head: EncoderHead) -> Iterator[None]:
    """Knock out a head of the encoder: its output is zero inside the block.

    Its columns of W_o are zero, so that every implementation of attention computes the same.
    """
    attention: MultiHead = translator.parts.model.encoder[head.layer - 1].inside  # type: ignore[index, union-attr]
    if not 1 <= head.head <= attention.W_o.in_features // attention.C:
        raise ConfigError(f"there is no {head}; a layer has {attention.W_o.in_features // attention.C} heads")
    columns = slice((head.head - 1) * attention.C, head.head * attention.C)
    kept = attention.W_o.weight.data[:, columns].clone()
    try:
        attention.W_o.weight.data[:, columns] = 0
        translator.to(translator.device)  # packs the weights anew
        yield
    finally:
        attention.W_o.weight.data[:, columns] = kept
        translator.to(translator.device)


def _feminine(english: str) -> bool:
    return next(noun.feminine for noun in lexicon().nouns if noun.english == english.lower())


def _next(out: Path, program: str, best: EncoderHead) -> tuple[tuple[str, str], ...]:
    model, source = quote(str(out / KEY)), CLASSICS[1][0]
    which = f"--layer {best.layer} --head {best.head}"
    return (
        ("the self-attention of that head", f'{program} see {model} --self {which} \\\n  "{source}"'),
        ("translate and show the attention weights", f'{program} translate {model} --show \\\n  "{source}"'),
        ("more pairs, with marked antecedents", f"{program} corpus pronouns --pairs 10 --seed 2 --antecedents"),
    )


def _table(report: PronounReport) -> list[list[str]]:
    """Return the rows of the main table, with their headings: what, all words, two nouns, il or elle, exact."""
    rows = [["", "of all words", "of two nouns", "il or elle", "exact"]]
    rows += [
        [f"{one.name}: {one.head}" if not i else one.name, *map(tenth, one[2:])] for i, one in enumerate(report.scores)
    ]
    rows.append(["always the nearest noun", tenth(report.nearest[0]), *map(tenth, report.nearest), ""])
    rows.append(["chance", *map(tenth, report.chance), tenth(50.0), ""])
    return rows


def _conclusions(report: PronounReport) -> list[str]:
    """Return what the numbers say, in sentences."""
    whole, knocked, *others = report.scores
    return [
        f"In {tenth(whole.antecedent)} of {report.cases['test']:,} test sentences, {whole.head} of the encoder sends "
        f"`it` to its antecedent. It was selected on {report.cases['valid']:,} validation sentences, where it is right "
        f"about {tenth(float(report.heads.max()))}. Nobody told the model what `it` refers to.",
        f"`il` or `elle` is right in {tenth(whole.pronoun)} of the {report.cases['genders differ']:,} test sentences "
        f"whose nouns differ in gender, and in {tenth(knocked.pronoun)} without that head"
        + (f"; without another one, chosen at random, in {tenth(others[0].pronoun)}." if others else "."),
        f"Without it, the best head that is left ({knocked.head}) sends `it` to its antecedent in "
        f"{tenth(knocked.antecedent)}.",
        f"When the decoder writes `il` or `elle`, a head of it has its largest weight on `it` in "
        f"{tenth(report.decoder[1])} of the test sentences; the head that attends most often to the antecedent does so "
        f"in {tenth(report.decoder[0])}.",
    ]


def pronoun_summary(report: PronounReport, out: Path, width: int = 80) -> str:
    """Return the report as text for a terminal."""
    rows = [[cell.replace("\u00a0", " ") for cell in row] for row in _table(report)]
    sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["How often `it` has its largest weight on its antecedent; right translations:", ""]
    for row in rows:
        lines.append(f"{row[0]:<{sizes[0]}}" + "".join(f"  {c:>{n}}" for c, n in zip(row[1:], sizes[1:], strict=True)))
    lines.append("")
    for one in report.classics:
        words = one.source.split()
        (_, noun, other), (mine, theirs) = one.positions, one.weights
        lines += [one.source, f"  it: {words[noun]} {mine:.0%}, {words[other]} {theirs:.0%}"]
        lines += [f"  {one.output}", f"  without the head: {one.without_head}", ""]
    for line in _conclusions(report):
        plain = line.replace("\u00a0", " ")
        lines += [*textwrap.wrap(plain, width, break_long_words=False, break_on_hyphens=False), ""]
    lines.append(f"Report: {out / 'report.html'} ({duration(report.seconds)})".replace("\u00a0", " "))
    lines += ["", "Next steps:", *(f"# {what}\n{command}" for what, command in report.next)]
    return "\n".join(lines) + "\n"


def pronoun_page(report: PronounReport) -> str:
    """Return the report as one HTML document that needs no other file."""
    head, *rows = _table(report)
    titles = "".join(f"<th>{clean(cell)}</th>" for cell in head)
    body = "".join(f"<tr><td>{clean(row[0])}</td>{''.join(f'<td>{c}</td>' for c in row[1:])}</tr>" for row in rows)
    L, H = report.heads.shape
    numbers = "".join(f"<th>head {h + 1}</th>" for h in range(H))
    grid = "".join(
        f"<tr><td>layer {layer + 1}</td>{''.join(f'<td>{tenth(float(x))}</td>' for x in report.heads[layer])}</tr>"
        for layer in range(L)
    )
    lead = "".join(f"<p>{_coded(line)}</p>\n" for line in _conclusions(report))
    model = report.plan.models[0]
    known = [
        ("trained on", f"{report.plan.pairs:,} sentence pairs, English to French, seed {report.seed}"),
        ("model", f"{report.weights:,} weights, {report.steps:,} steps in {duration(report.training_seconds)}"),
        *(tuple(setting.split("=", 1)) for setting in (*report.plan.settings, *model.settings)),
        ("total time", duration(report.seconds)),
        ("software", " ".join(_machine()[:3])),
        ("machine", f"{cores()} processor cores, {_machine().date}"),
    ]
    steps = ""
    for what, command in report.next:
        lines = "\n".join(map(clean, command.splitlines()))
        steps += f'<p>{clean(what)}</p>\n<pre tabindex="0">{lines}</pre>\n'
    title = "What it refers to"
    return document(
        title,
        heedful.__version__,
        f"""<header><h1>{title}</h1><div class="lead">
{lead}</div></header>
<main>
<section id="scores"><h2>Scores</h2>
{scroll(f"<table><tr>{titles}</tr>{body}</table>", "scores")}
<p class="small">“Of all words”: the antecedent has the largest weight of all words but <code>it</code> in the row of
<code>it</code>. “Of two nouns”: a larger one than the other noun. A head that is knocked out has the output zero; the
best of the other heads is then selected anew. “il or elle”: the French pronoun is right, where the nouns differ in
gender.</p></section>
<section id="heads"><h2>All heads of the encoder</h2>
<p>How often each one sends <code>it</code> to its antecedent, on the validation sentences.</p>
{scroll(f"<table><tr><th></th>{numbers}</tr>{grid}</table>", "heads")}</section>
<section id="sentences"><h2>Sentences</h2>
{"".join(_article(one, report.scores[0].head) for one in report.classics)}</section>
<section id="run" class="facts"><h2>How the run was made</h2>
{facts([(name, value) for name, value in known])}</section>
<section id="next" class="try"><h2>Next steps</h2>
{steps}</section>
</main>
""",
    )


def _article(one: ClassicResult, head: EncoderHead) -> str:
    """Return a sentence with its translations and the picture of the head."""
    pronoun, noun, _ = one.positions
    words = one.source.split()
    drawn = svg.heatmap(one.trace, f"Self-attention, {head}", frozenset(((noun, pronoun),)), confidence=False)
    seen = "in the training data" if one.seen else "not in the training data"
    return f"""<article><p class="source" lang="en">{clean(one.source)}</p>
<ul class="tags"><li>it: {clean(words[noun])}</li><li>{seen}</li></ul>
<p><span class="who">all heads</span> <span lang="fr">{clean(one.output)}</span></p>
<p><span class="who">without {head}</span> <span lang="fr">{clean(one.without_head)}</span></p>
<figure>{scroll(drawn, "attention weights", "chart")}<figcaption>Each row is a word, each column a word that it attends
to. The outlined cell is <code>it</code> and its antecedent.</figcaption></figure></article>
"""


def _coded(line: str) -> str:
    """Return a line with what is between backquotes as code."""
    parts = clean(line).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _machine() -> Machine:
    import torch

    versions = (
        f"Python {platform.python_version()},",
        f"PyTorch {torch.__version__},",
        f"heedful {heedful.__version__}",
    )
    return Machine(*versions, cores(), date.today().isoformat())
