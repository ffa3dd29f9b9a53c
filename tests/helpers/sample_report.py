"""Reports of runs that never were, with plausible numbers, for the tests of pages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heedful.evaluation.page import AlignmentResult, ModelResult
from heedful.evaluation.report import EvaluationReport, ReportedSentence, SystemResult
from heedful.evaluation.run_report import CorpusFacts, ExampleResult, Machine, RunReport
from heedful.metrics import Difference, Interval, LengthRow, LengthTable
from heedful.trace import Text, Trace, Word

LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 20), (21, 30), (31, 40))
PAIRS = (212, 431, 387, 305, 298, 167)
EXACT = {
    "fixed": (98.1, 93.7, 71.3, 44.6, 9.4, 0.6),
    "attention": (100.0, 99.8, 98.2, 97.4, 91.6, 83.2),
    "transformer": (100.0, 99.3, 98.7, 96.1, 87.9, 61.7),
}
# A clause: its words, and for each word of the translation the words it comes from.
CLAUSES = (
    ("मैं खाना खा रहा हूँ", "I am eating food", ((0,), (3, 4), (2,), (1,))),
    ("सीता किताब नहीं पढ़ रही है", "Sita is not reading a book", ((0,), (4, 5), (2,), (3,), (), (1,))),
    ("लड़के कल स्कूल जाएँगे", "the boys will go to school tomorrow", ((0,), (0,), (3,), (3,), (), (2,), (1,))),
    ("बच्चा घर पर सो रहा था", "the child was sleeping at home", ((0,), (0,), (5,), (3, 4), (2,), (1,))),
    ("मेरी बहन चाय बनाती है", "my sister makes tea", ((0,), (1,), (3, 4), (2,))),
)


def sentence(clauses: list[int]) -> tuple[list[str], list[str], frozenset[tuple[int, int]]]:
    """Return source words, target words and links of clauses joined by `and`."""
    source: list[str] = []
    target: list[str] = []
    links = set()
    for n, which in enumerate(clauses):
        if n:
            links.add((len(source), len(target)))
            source.append("और")
            target.append("and")
        hindi, english, origins = CLAUSES[which]
        links |= {(len(source) + s, len(target) + t) for t, mine in enumerate(origins) for s in mine}
        source += hindi.split()
        target += english.split()
    return source, target, frozenset(links)


def side(words: list[str]) -> Text:
    """Return a text with one token for each word."""
    text, spans, made, start = " ".join(words), [], [], 0
    for i, word in enumerate(words):
        spans.append((start, start + len(word)))
        made.append(Word(word, *spans[-1], i, i + 1))
        start += len(word) + 1
    end = len(text)
    last = Word("</s>", end, end, len(words), len(words) + 1)
    return Text(text, (*words, "</s>"), (*spans, (end, end)), (*made, last))


def trace(source: list[str], target: list[str], links: frozenset[tuple[int, int]], seed: int = 0) -> Trace:
    """Return a trace whose weights mostly follow the links."""
    random = np.random.default_rng(seed)
    x, y = side(source), side(target)
    weights = random.dirichlet(np.full(len(x.tokens), 0.2), size=len(y.tokens)) * random.uniform(
        0.05, 0.5, (len(y.tokens), 1)
    )
    for t in range(len(y.tokens)):
        mine = [s for s, u in links if u == t] or [len(source) if t == len(target) else min(t, len(source))]
        weights[t, mine] += (1 - weights[t].sum()) / len(mine)
    log_probs = np.log(random.beta(12, 1, len(y.tokens)))
    return Trace(x, y, weights.astype(np.float32)[None, None], log_probs.astype(np.float32))


def table(exact: tuple[float, ...]) -> LengthTable:
    rows = tuple(
        LengthRow(low, high, pairs, min(100.0, 12 + 0.88 * e), min(100.0, 31 + 0.69 * e), e)
        for (low, high), pairs, e in zip(LENGTHS, PAIRS, exact, strict=True)
    )
    mean = sum(r.exact * r.pairs for r in rows) / sum(PAIRS)
    total = LengthRow(1, None, sum(PAIRS), 12 + 0.88 * mean, 31 + 0.69 * mean, mean)
    return LengthTable(rows, total, "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", "nrefs:1|case:mixed")


def model(key: str, title: str, weights: int, best: float, alignment: AlignmentResult | None = None) -> ModelResult:
    curve = tuple(
        (4.7 * i, best * (1 - float(np.exp(-i / 6))), 5.3 * float(np.exp(-i * best / 700)) + 0.05) for i in range(1, 26)
    )
    return ModelResult(key, title, weights, 117.5, 2500, curve, table(EXACT[key]), f"demo/{key}", alignment)


def example(clauses: list[int], seen: bool, note: str, wrong: str | None = None) -> ExampleResult:
    source, target, links = sentence(clauses)
    text = " ".join(target)
    worse = wrong if wrong is not None else text
    return ExampleResult(
        " ".join(source), text, seen, {"fixed": worse, "attention": text}, trace(source, target, links), links, note
    )


RULE = "for each target word, the source words with at least half of its largest weight"
ALIGNMENT = AlignmentResult(0.0834, 0.9127, 0.9241, 1800, RULE)


def report() -> RunReport:
    """Return a report of two models with six sentences, three of them long."""
    long = [0, 1, 2, 3, 4, 1]
    _, target, _ = sentence(long)
    lost = " ".join([*target[:9], "the", "boys", "will", "read", "tea", "and", *target[3:9]])
    dropped = example(
        [1, 4, 3], False, "the model with attention is wrong here", "Sita is reading a book and my sister makes tea"
    )
    other = " ".join(dropped.reference.split()[:-1])
    text = side(other.split())
    dropped = replace(
        dropped,
        outputs={**dropped.outputs, "attention": other},
        trace=trace(dropped.source.split(), other.split(), dropped.gold),
    )
    assert text.text == other
    return RunReport(
        title="What attention is for: Hindi to English",
        corpus=CorpusFacts(23517, 1800, 431, 389, 40, 17),
        models=(
            model("fixed", "fixed context", 1213411, 52.0),
            model("attention", "additive attention", 1241923, 97.3, ALIGNMENT),
        ),
        examples=(
            example([0], True, "the first sentence of the tour"),
            example([1], False, "negation", "Sita is reading a book"),
            example([2], False, "", "the boys will go to home tomorrow"),
            dropped,
            example(long, False, "long", lost),
            example([4, 3, 2, 1, 0, 2], False, "long", "my sister makes tea and the child"),
        ),
        unseen_exact={"fixed": 77.9, "attention": 98.6},
        unseen_pairs=1143,
        machine=Machine("3.11.7", "2.13.0", "0.1.0", 2, "2026-11-15"),
        seconds=268.4,
        memory=843.2,
        settings=(("cell", "gru, width 256"), ("batch", "64 sentences")),
        next=(
            (
                "Translate a sentence of your own and see where it looks:",
                "heedful translate demo/attention 'मैं घर जाता हूँ' --show",
            ),
            (
                "Train longer, with another score:",
                "heedful train pairs.tsv --out m \\\n    --score dot --set training.steps=10000",
            ),
        ),
    )


def heads(example: ExampleResult) -> Trace:
    """Return the attention of a model with two layers of two heads to an example's reference."""
    words = example.source.split(), example.reference.split()
    seen = [trace(*words, example.gold, seed).weights for seed in range(1, 5)]
    weights = np.stack([w[0, 0] for w in seen if w is not None]).reshape(2, 2, *seen[0].shape[2:])
    return replace(trace(*words, example.gold), weights=weights)


def full() -> RunReport:
    """Return a report of three models with ten sentences of 40 words."""
    clauses = [0, 1, 2, 3, 4, 1, 0]
    made = report()
    third = model("transformer", "Transformer", 1198200, 93.1, AlignmentResult(0.1312, 0.8611, 0.8767, 1800, RULE))
    examples = [example([*clauses[i % 5 :], *clauses[: i % 5]], False, "long") for i in range(10)]
    more = tuple(
        replace(e, outputs={**e.outputs, "transformer": e.reference}, more={"transformer": heads(e)}) for e in examples
    )
    exact = {**made.unseen_exact, "transformer": 97.1}
    return replace(made, models=(*made.models, third), examples=more, unseen_exact=exact)


def outcome() -> EvaluationReport:
    """Return an evaluation of two systems on two sentences; the second has no attention and is worse."""
    source, target, links = sentence([0])
    first = model("attention", "first", 1241923, 97.3, AlignmentResult(0.0834, 0.9127, 0.9241, 1800, "layer 5"))
    second = replace(model("fixed", "second", 1213411, 52.0), alignment=None)
    scores = {"bleu": 56.1, "chrf": 70.8, "ter": 27.8, "exact": 20.0}
    likely = {name: Interval(value - 3, value + 3) for name, value in scores.items()}
    apart = {"bleu": Difference("bleu", 35.1, 56.1, Interval(-30, -12), 0.007)}
    seen = trace(source, target, links)
    text = " ".join(source)
    return EvaluationReport(
        "test.tsv",
        1800,
        (SystemResult(first, scores, likely, {}), SystemResult(second, {**scores, "bleu": 35.1}, likely, apart)),
        (
            ReportedSentence("test.tsv:7", text, ("I am eating food",), ("I eat", "food"), (31.2, 12.0), (seen, None)),
            ReportedSentence(
                "test.tsv:2", text, ("I am eating", "I eat"), ("I am eating", "no"), (55.5, 2.0), (seen, seen)
            ),
        ),
        ("intervals: bootstrap",),
    )


def hostile() -> RunReport:
    """Return a report that has markup and control characters in every text."""
    made = report()
    bad = HOSTILE.split(" ")
    example = ExampleResult(
        HOSTILE, HOSTILE, True, {"fixed": HOSTILE + " x", "attention": HOSTILE}, trace(bad, bad, frozenset())
    )
    models = tuple(
        replace(
            m,
            title=HOSTILE,
            folder=HOSTILE,
            alignment=AlignmentResult(0.5, 0.5, 0.5, 1, HOSTILE),
            scores=replace(m.scores, bleu_signature=HOSTILE),
        )
        for m in made.models
    )
    return replace(
        made,
        title=HOSTILE,
        models=models,
        examples=(replace(example, note=HOSTILE, gold=frozenset({(0, 0)})),),
        corpus=made.corpus._replace(source='"><script>', target="en' onload='x"),
        machine=Machine(HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE),
        settings=((HOSTILE, HOSTILE),),
        next=((HOSTILE, HOSTILE + "\n" + HOSTILE),),
    )


HOSTILE = "<script>alert(1)</script> & \"'> \x00\x1b[31m \ud800 \u202e </style> ]]> <!-- मैं"
