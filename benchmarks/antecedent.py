"""Where `it` looks: the encoder's self-attention of a small Transformer, English to Hindi, against marked antecedents.

python benchmarks/antecedent.py [--out DIR]

    The animal didn't cross the street because it was too tired.      it: the animal
    The animal didn't cross the street because it was too wide.       it: the street

English does not show what `it` means; Hindi does, by gender, so that a translator has to find out. The corpus marks
it. Nobody tells the model: it is trained on sentence pairs alone, in which sentences with `it` stand more often than
they would.

A head is right about an `it` when, in its row, the antecedent has the largest weight of all words but `it` itself;
"of all positions" counts `it` and the end of the sentence, too. The best of all heads in all layers is found on one
half of the test sentences and measured on the other.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import heedful
from heedful.data.hindi import SentenceSide, generate
from heedful.data.hindi.lexicon import lexicon
from heedful.metrics import exact_match

PLAN: dict[str, dict[str, object]] = {
    "text": {"kind": "word"},
    "model": {
        "family": "transformer",
        "layers": 4,
        "decoder_layers": 1,
        "width": 64,
        "heads": 8,
        "inner": 128,
        "attention_dropout": 0.2,
    },
    "training": {
        "steps": 2500,
        "rate": 0.004,
        "warmup": 200,
        "decay": "cosine",
        "batch_tokens": 1024,
        "valid_every": 1000,
        "valid_pairs": 100,
        "checkpoint_every": 2500,
        "threads": 1,
        "device": "cpu",
    },
}
KINDS = ("subject", "object", "carried on")
VALID = 100


class Case(NamedTuple):
    """An `it` in a sentence: its place, that of its antecedent, what kind of case it is, and its nouns' number.

    "subject" and "object" are those of `… the OBJECT because it was …`, where both could be meant; in the others `it`
    carries on the subject of the clause before. `agreeing` is the Hindi word that shows the gender, where that is an
    adjective or a participle, and `own` the English words that it translates.
    """

    side: SentenceSide
    pronoun: int
    noun: int
    kind: str
    nouns: int
    agreeing: int | None
    own: tuple[int, ...]


class Found(NamedTuple):
    """Which (layer, head) was right about each case, (cases, L, H): by the rule, and of all positions."""

    rule: NDArray[np.bool_]
    everywhere: NDArray[np.bool_]


def cases(side: SentenceSide) -> list[Case]:
    """Return the pronouns `it` of an English sentence whose antecedent is a noun, not another pronoun."""
    words = side.source.split()
    nouns = {form for noun in lexicon().nouns for form in (noun.english, noun.plural)}
    found = []
    for pronoun, noun in side.antecedents:
        if words[pronoun].lower() != "it" or words[noun].lower() not in nouns:
            continue
        both = words[pronoun - 1] == "because" and words[pronoun - 3] == "the" and words[pronoun + 1] in ("is", "was")
        kind = "carried on" if not both else "object" if noun == pronoun - 2 else "subject"
        said = pronoun + (3 if "too" in words[pronoun + 2 : pronoun + 3] else 2)
        agreeing = next((j for i, j in side.links if both and i == said), None)
        own = tuple(i for i, j in side.links if j == agreeing)
        before = sum(word.lower() in nouns for word in words[:pronoun])
        found.append(Case(side, pronoun, noun, kind, before, agreeing, own))
    return found


def with_it(seed: int, split: str, least: int, most: int) -> Iterator[SentenceSide]:
    """Yield sentences with a marked `it`, of so many English words."""
    for example in generate(seed, split, least, most, count_english=True):
        side = example.seen_from("en-hi")
        if cases(side):
            yield side


def balanced(sides: Iterable[SentenceSide], count: int) -> list[SentenceSide]:
    """Return the first sentences with as many of each kind, so that no rule of thumb passes for understanding."""
    found: list[SentenceSide] = []
    left = dict.fromkeys(KINDS, count)
    for side in sides:
        kind = cases(side)[0].kind
        if left[kind]:
            left[kind] -= 1
            found.append(side)
        if not any(left.values()):
            break
    return found


def same_gender(side: SentenceSide) -> bool | None:
    """Whether subject and object are of the same gender in Hindi where both could be meant; else None."""
    nouns, words = {noun.english: noun for noun in lexicon().nouns}, side.source.split()
    for case in cases(side):
        before = [nouns[word] for word in words[: case.pronoun - 1] if word in nouns]
        animals = [noun for noun in before[:-1] if noun.has("animal")]
        if case.kind != "carried on" and animals:
            return animals[-1].feminine == before[-1].feminine
    return None


def corpus(seed: int, marked: int, others: int, share: float) -> list[tuple[str, str]]:
    """Return pairs to train on: those with a marked `it` are repeated until they are a share of all.

    The corpus mostly gives the two nouns different genders, so that one of them tells the gender of the other and a
    model need not look at the antecedent. Those that have the same gender are repeated until they are half.
    """
    found = list(islice(with_it(seed, "train", 8, 22), marked))
    alike, unlike = ([s for s in found if same_gender(s) is kind] for kind in (True, False))
    chosen = found + alike * (round(len(unlike) / len(alike)) - 1 if alike else 0)
    rest = [(e.english, e.hindi) for e in islice(generate(seed + 1000, "train", 2, 20, count_english=True), others)]
    marked_pairs = [(side.source, side.target) for side in chosen]
    return rest + marked_pairs * max(1, round(share / (1 - share) * len(rest) / len(chosen)))


def right(row: NDArray[np.float32], place: int, without: Iterable[int]) -> NDArray[np.bool_]:
    """Whether a place has the largest weight of a row, some places left out.  row (L, H, S) -> (L, H)."""
    left = row.copy()
    left[..., list(without)] = -1.0
    found: NDArray[np.bool_] = left.argmax(-1) == place
    return found


def inside(translator: heedful.Translator, given: Sequence[Case], asking: Sequence[int]) -> Found:
    """Ask the encoder: the row of a word of each sentence."""
    rule, everywhere = [], []
    for case, place in zip(given, asking, strict=True):
        weights = translator.self_attention(case.side.source).weights
        assert weights is not None
        row = weights[:, :, place]
        rule.append(right(row, case.noun, (place, row.shape[-1] - 1)))
        everywhere.append(right(row, case.noun, ()))
    return Found(np.stack(rule), np.stack(everywhere))


def across(translator: heedful.Translator, given: Sequence[Case]) -> Found:
    """Ask the decoder, reading the right translation: the row of the Hindi word that shows the gender.

    The English words that it translates are left out, as `it` is inside.
    """
    traces = translator.reread([c.side.source for c in given], [c.side.target for c in given])
    rule, everywhere = [], []
    for case, trace in zip(given, traces, strict=True):
        assert trace.weights is not None
        assert case.agreeing is not None
        row = trace.weights[:, :, case.agreeing]
        rule.append(right(row, case.noun, (*case.own, row.shape[-1] - 1)))
        everywhere.append(right(row, case.noun, ()))
    return Found(np.stack(rule), np.stack(everywhere))


def halves(given: Sequence[Case]) -> NDArray[np.bool_]:
    """Return which cases are of the first half: every other one of each kind."""
    seen = dict.fromkeys(KINDS, 0)
    first = []
    for case in given:
        first.append(seen[case.kind] % 2 == 0)
        seen[case.kind] += 1
    return np.array(first)


def best_head(rule: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the (layer, head) that is right most often, counted from 0.  rule (cases, L, H)."""
    share = rule.mean(0)
    layer, head = divmod(int(share.argmax()), share.shape[1])
    return layer, head


def told(name: str, given: Sequence[Case], found: Found) -> list[str]:
    """Return what the best head of one half does on the other half, in lines."""
    first = halves(given)
    layer, head = best_head(found.rule[first])
    rule, everywhere = found.rule[~first, layer, head], found.everywhere[~first, layer, head]
    kinds = np.array([case.kind for case in given])[~first]
    by_kind = ", ".join(f"{k} {rule[kinds == k].mean():.1%} ({(kinds == k).sum()})" for k in KINDS if k in kinds)
    chosen = found.rule[first, layer, head].mean()
    return [
        f"{name}: layer {layer + 1}, head {head + 1} ({chosen:.1%} on the half it was chosen on)",
        f"  on the other half: {rule.mean():.1%} of {len(rule)}; by antecedent: {by_kind}",
        f"  of all positions: {everywhere.mean():.1%}",
    ]


def baselines(given: Sequence[Case]) -> list[str]:
    """Return what can be had without understanding, on the half that is measured."""
    second = [case for case, first in zip(given, halves(given), strict=True) if not first]
    two = [case for case in second if case.kind != "carried on"]
    chance = np.mean([1 / case.nouns for case in second])
    subject = np.mean([case.kind == "subject" for case in two])
    return [
        f"one noun of those before it at random: {chance:.1%} ({np.mean([c.nouns for c in second]):.1f} nouns)",
        f"where both could be meant: always the subject {subject:.1%}, always the nearest noun {1 - subject:.1%}",
        f"everywhere: always the subject {np.mean([c.kind != 'object' for c in second]):.1%}",
    ]


def report(translator: heedful.Translator, sides: Sequence[SentenceSide]) -> list[str]:
    """Measure a model on test sentences."""
    given = [case for side in sides for case in cases(side)]
    shown = [case for case in given if case.agreeing is not None]
    outputs = translator.translate([side.source for side in sides])
    exact = np.mean([exact_match(out.text, side.target) for out, side in zip(outputs, sides, strict=True)])
    counts = ", ".join(f"{kind} {sum(c.kind == kind for c in given)}" for kind in KINDS)
    return [
        f"{len(sides)} test sentences, {len(given)} marked: {counts}; translated exactly: {exact:.1%}",
        *baselines(given),
        *told("inside, row of `it`", given, inside(translator, given, [case.pronoun for case in given])),
        *told("inside, row of the adjective", shown, inside(translator, shown, [case.own[0] for case in shown])),
        *told("across, row of the Hindi adjective", shown, across(translator, shown)),
    ]


def main() -> None:
    """Train, measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--out", type=Path, default=Path("runs/antecedent"), help="folder for the model")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--marked", type=int, default=4500, help="sentences with `it` to train on")
    options.add_argument("--others", type=int, default=20000, help="other sentences to train on")
    options.add_argument("--share", type=float, default=0.5, help="share of those with `it`, which are repeated")
    options.add_argument("--test", type=int, default=100, help="test sentences of each kind")
    options.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE")
    args = options.parse_args()
    settings: dict[str, dict[str, Any]] = {name: dict(values) for name, values in PLAN.items()}
    settings["training"]["seed"] = args.seed
    for section, values in heedful.config.settings(args.settings).items():
        settings[section].update(values)
    pairs = corpus(args.seed, args.marked, args.others, args.share)
    valid = [(e.english, e.hindi) for e in islice(generate(args.seed, "valid", 8, 16, count_english=True), VALID)]
    begin = time.perf_counter()
    translator = heedful.train(pairs, args.out, valid=valid, settings=settings)
    print(f"{len(pairs):,} pairs, trained in {time.perf_counter() - begin:.0f} s")
    print("\n".join(report(translator, balanced(with_it(args.seed, "test", 8, 16), args.test))))


if __name__ == "__main__":
    main()
