"""Which head of a BERT finds what `it` refers to: all heads of all-MiniLM-L6-v2 on sentences with marked antecedents.

python benchmarks/antecedents.py [--models DIR] [--pairs 300] [--pictures DIR]

    The animal did not cross the street because it was too tired.      it: the animal, the subject
    The animal did not cross the street because it was too wide.       it: the street, the object

Sentences come from the grammar `heedful.data.pronouns` in pairs that are equal up to `it`; in one the subject is meant,
in the other the object. Whatever does not read on after `it` is right in exactly half of them: a guess, the nearest
noun, the subject, the animal. No two pairs have the same two nouns; as many have an animal as the subject, an animal as
the object, and none. Heads are compared on one half of the pairs; the best one is measured on the other half.

A head is right about an `it` when the antecedent has the largest weight in the row of `it`: of the two nouns, of all
other words, or of everything (with `it` itself, [CLS], [SEP] and the full stop). A head moves with the meaning if its
weight on the subject, less that on the object, is larger where the subject is meant. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from model_packages import MINILM, MODELS, fetch, largest_difference
from numpy.typing import NDArray

import heedful
from heedful.data.pronouns import PronounExample, generate
from heedful.data.pronouns.lexicon import lexicon
from heedful.draw.model_attention import ModelAttention
from heedful.errors import HeedfulError
from heedful.interop.transformers import open_transformers

CLASSIC = "The animal did not cross the street because it was too tired."
OTHER = "The animal did not cross the street because it was too wide."
RULES = ("of the two nouns", "of all words", "of everything")
KINDS = ("animal, thing", "thing, animal", "two things")  # subject and object
GENERATED = 200_000  # sentences among which pairs are searched
Head = tuple[int, int]


class PronounCase(NamedTuple):
    """A sentence with one `it`: the positions of `it` and of subject and object among its words; which one is meant."""

    sentence: str
    pronoun: int
    nouns: tuple[int, int]
    meant: int


class CasePair(NamedTuple):
    """Two sentences that are equal up to `it`, in which subject and object are meant; and the kind of their nouns."""

    subject: PronounCase
    object: PronounCase
    kind: int


class Answers(NamedTuple):
    """For every sentence and head: by each rule whether it is right, and its weight on subject less that on object.

    right: (rules, N, L, H); lean: (N, L, H); kinds: (N,), of the nouns. Sentences 2n and 2n + 1 are a pair.
    """

    right: NDArray[np.bool_]
    lean: NDArray[np.float32]
    kinds: NDArray[np.int64]

    @property
    def halves(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which sentences heads are chosen by, and which they are measured on: of each kind every other pair."""
        pair = np.arange(len(self.kinds)) // 2
        first = np.array([np.sum(self.kinds[: 2 * n] == self.kinds[2 * n]) // 2 % 2 == 0 for n in pair])
        return first, ~first


def case_of(example: PronounExample, persons: Set[str] = frozenset()) -> PronounCase | None:
    """Return the case of a sentence; None if it has not exactly one `it`, or has a person for its subject."""
    words = example.source.split()
    if len(example.antecedents) != 1 or len(example.nouns) != 2 or not set(words).isdisjoint(persons):
        return None
    (pronoun, noun), (first, second) = example.antecedents[0], example.nouns
    if noun not in example.nouns or words[pronoun] != "it" or not first < second < pronoun:
        return None
    return PronounCase(f"{example.source}.", pronoun, (first, second), example.nouns.index(noun))


def find_pairs(examples: Iterable[PronounExample], count: int) -> list[CasePair]:
    """Return so many pairs of each kind in turns; each has two nouns that no other pair has together.

    Raise HeedfulError if the sentences have fewer.
    """
    of_class = {name: {n.english for n in lexicon().nouns if name in n.classes} for name in ("person", "animal")}
    waiting: dict[tuple[str, ...], PronounCase] = {}
    seen: set[frozenset[str]] = set()
    pairs: list[list[CasePair]] = [[] for _ in KINDS]
    for example in examples:
        case = case_of(example, of_class["person"])
        if case is None:
            continue
        words = case.sentence.split()
        subject, thing = (words[i] for i in case.nouns)
        animals = (subject in of_class["animal"], thing in of_class["animal"])
        kind = KINDS.index({(True, False): KINDS[0], (False, True): KINDS[1]}.get(animals, KINDS[2]))
        if all(animals) or len(pairs[kind]) == count or frozenset((subject, thing)) in seen:
            continue
        before = waiting.setdefault(tuple(words[: case.pronoun]), case)
        if before.meant != case.meant:
            seen.add(frozenset((subject, thing)))
            first, second = sorted((before, case), key=lambda one: one.meant)
            pairs[kind].append(CasePair(first, second, kind))
            if all(len(found) == count for found in pairs):
                return [pair for triple in zip(*pairs, strict=True) for pair in triple]
    counts = ", ".join(f"{name}: {len(found)}" for name, found in zip(KINDS, pairs, strict=True))
    raise HeedfulError(f"too few pairs of sentences ({counts}); ask for fewer")


def row_of(seen: ModelAttention, case: PronounCase) -> tuple[NDArray[np.float32], int]:
    """Return the weights of `it` on every word, in every head, and the number of the sentence's first word.

    -> (L, H, words).
    """
    group = seen.group("self")
    texts = [word.text for word in group.source.words]
    words = case.sentence.rstrip(".").split()
    first = texts.index(words[0])
    if texts[first : first + len(words)] != words:
        raise HeedfulError(f"the words of {case.sentence!r} were read as {texts}")
    rows = group.rows_of([first + case.pronoun])
    return np.stack([rows[..., word.first : word.last].sum(-1) for word in group.source.words], axis=-1), first


def judge(row: NDArray[np.float32], first: int, case: PronounCase) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Return for every head whether it is right by each rule, and how it leans.  row (L, H, words)."""
    nouns = [first + i for i in case.nouns]
    it, gold = first + case.pronoun, nouns[case.meant]
    last = first + len(case.sentence.split())
    others = [i for i in range(first, last) if i != it]
    allowed = (nouns, others, range(row.shape[-1]))
    right = [np.asarray(places)[row[..., list(places)].argmax(-1)] == gold for places in allowed]
    return np.stack(right), row[..., nouns[0]] - row[..., nouns[1]]


def answers(model: Any, tokenizer: Any, pairs: Sequence[CasePair]) -> Answers:  # noqa: ANN401
    """Read the row of `it` in every head for all sentences, pair by pair: that of the subject, that of the object."""
    right, lean = [], []
    for case in (case for pair in pairs for case in (pair.subject, pair.object)):
        judged = judge(*row_of(heedful.see(model, tokenizer, case.sentence), case), case)
        right.append(judged[0])
        lean.append(judged[1])
    kinds = np.repeat([pair.kind for pair in pairs], 2)
    return Answers(np.stack(right, axis=1), np.stack(lean), kinds)


def best(shares: NDArray[Any]) -> Head:
    """Return the (layer, head) with the largest share, from 1.  shares (L, H)."""
    layer, head = divmod(int(shares.argmax()), shares.shape[1])
    return layer + 1, head + 1


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    z, share = 1.96, right / count
    middle, space = share + z * z / 2 / count, z * math.sqrt(share * (1 - share) / count + z * z / 4 / count**2)
    return (middle - space) / (1 + z * z / count), (middle + space) / (1 + z * z / count)


def shown(right: NDArray[np.bool_]) -> str:
    """Return a share with its interval."""
    low, high = wilson(int(right.sum()), len(right))
    return f"{right.mean():.0%} ({low:.0%}–{high:.0%})".replace("%", "")


def line(name: str, chosen: NDArray[np.bool_], right: NDArray[np.bool_]) -> str:
    """Return a row of the table of what is right, on the half to choose by and on the other half; both in pairs."""
    pairs = right.reshape(-1, 2)
    both = shown(pairs[:, 0] & pairs[:, 1])
    cells = (f"{chosen.mean():.0%}".replace("%", ""), *map(shown, (right, pairs[:, 0], pairs[:, 1])), both)
    return f"| {name} | {' | '.join(cells)} |"


def moves(lean: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return in which pairs a head leans more to the subject where it is meant.  (N, L, H) -> (N/2, L, H)."""
    found: NDArray[np.bool_] = lean[0::2] > lean[1::2]
    return found


def report(found: Answers, example: Head) -> list[str]:
    """Return all tables."""
    tables = (accuracy_table(found, example), rule_table(found, example), kind_table(found, example), all_heads(found))
    return [text for table in tables for text in (*table, "")]


def accuracy_table(found: Answers, example: Head) -> list[str]:
    """Return a table of the best head by each rule, of the head of the example, and of what needs no model."""
    first, second = found.halves
    lines = [
        f"right in %, of {first.sum()} sentences to choose by, and of {second.sum()} others (95 % interval)",
        "",
        "| largest weight | head | to choose by | others | subject is meant | object is meant | both of a pair |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule, right in zip(RULES, found.right, strict=True):
        chosen = best(right[first].mean(0))
        for m, n in dict.fromkeys((chosen, example)):
            what = " and ".join(["the best"] * ((m, n) == chosen) + ["of the example"] * ((m, n) == example))
            lines.append(line(f"{rule} | {m}.{n}, {what}", right[first, m - 1, n - 1], right[second, m - 1, n - 1]))
    return [
        *lines,
        "| always | the subject | 50 | 50 | 100 | 0 | 0 |",
        "| always | the nearest noun | 50 | 50 | 0 | 100 | 0 |",
        "| at random | one of the two nouns | 50 | 50 | 50 | 50 | 25 |",
    ]


def rule_table(found: Answers, example: Head) -> list[str]:
    """Return a table of the heads that follow a rule, whatever is meant, and of how often they do."""
    first, second = found.halves
    subject = found.lean > 0
    alone = found.kinds != 2
    lines = ["larger weight of the two nouns, whatever is meant, in %:", ""]
    lines += ["| on the | head | to choose by | others | head of the example, others |", "|---|---|---|---|---|"]
    m, n = example
    for name, agrees, which in (
        ("nearest noun", ~subject, np.ones_like(alone)),
        ("subject", subject, np.ones_like(alone)),
        ("animal, where there is one", subject == (found.kinds == 0)[:, None, None], alone),
    ):
        layer, head = best(agrees[first & which].mean(0))
        one = agrees[:, layer - 1, head - 1]
        cells = (f"{one[first & which].mean():.0%}"[:-1], shown(one[second & which]))
        other = shown(agrees[second & which, m - 1, n - 1])
        lines.append(f"| {name} | {layer}.{head} | {' | '.join(cells)} | {other} |")
    return lines


def kind_table(found: Answers, example: Head) -> list[str]:
    """Return a table by the kind of the nouns, on the half that is measured."""
    first, second = found.halves
    right, moved, kinds = found.right[0], moves(found.lean), found.kinds
    lines = [
        "of the two nouns, right in % by what subject and object are; and moves with the meaning in % of pairs:",
        "",
    ]
    lines += ["| head | | " + " | ".join(KINDS) + " |", "|---|---|---|---|---|"]
    chosen = {
        example: "of the example",
        best(right[first].mean(0)): "the best",
        best(moved[first[::2]].mean(0)): "moves most often",
    }
    for (layer, head), name in chosen.items():
        m, n = layer - 1, head - 1
        cells = [shown(right[second & (kinds == kind), m, n]) for kind in range(3)]
        lines.append(f"| {layer}.{head}, {name} | right | {' | '.join(cells)} |")
        cells = [shown(moved[second[::2] & (kinds[::2] == kind), m, n]) for kind in range(3)]
        lines.append(f"| | moves | {' | '.join(cells)} |")
    return lines


def all_heads(found: Answers) -> list[str]:
    """Return how often every head is right about the two nouns, by what is meant, in all sentences."""
    right = found.right[0]
    L, H = right.shape[1:]
    lines = ["the two nouns, right in % of all sentences (subject meant/object meant), by head:"]
    lines.append("layer " + "".join(f"{n:>8}" for n in range(1, H + 1)))
    for m in range(L):
        cells = (f"{100 * right[0::2, m, n].mean():.0f}/{100 * right[1::2, m, n].mean():.0f}" for n in range(H))
        lines.append(f"{m + 1:>5} " + "".join(f"{cell:>8}" for cell in cells))
    return lines


def classic(model: Any, tokenizer: Any) -> tuple[Head, list[str]]:  # noqa: ANN401
    """Return the head that gives `it` → `animal` most in the classic sentence; and what it does, in lines."""
    lines = []
    chosen: Head | None = None
    for sentence, meant in ((CLASSIC, 0), (OTHER, 1)):
        case = PronounCase(sentence, 8, (1, 6), meant)
        row, first = row_of(heedful.see(model, tokenizer, sentence), case)
        animal, street = row[..., first + 1], row[..., first + 6]
        chosen = chosen or best(animal)
        at = (chosen[0] - 1, chosen[1] - 1)
        lines.append(
            f"{sentence} Head {chosen[0]}.{chosen[1]}: it → animal {animal[at]:.2f}, it → street {street[at]:.2f}"
        )
    assert chosen is not None
    return chosen, lines


def main() -> None:
    """Fetch the model, measure all heads, and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder for the model (default: {MODELS})")
    options.add_argument("--pairs", type=int, default=300, help="pairs of sentences of each kind")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--pictures", type=Path, help="write the pictures of docs/guide/self-attention.md here")
    args = options.parse_args()
    opened = open_transformers(str(fetch(MINILM, args.models)))
    model, tokenizer = opened.model, opened.tokenizer
    head, lines = classic(model, tokenizer)
    print("\n".join(lines))
    if args.pictures:
        draw(heedful.see(model, tokenizer, CLASSIC, name=MINILM.model), head, args.pictures)
        return
    begin = time.perf_counter()
    pairs = find_pairs(islice(generate(args.seed, "train"), GENERATED), args.pairs)
    print(f"{len(pairs)} pairs of sentences in {time.perf_counter() - begin:.0f} s, such as")
    print("\n".join(f"  {case.sentence}" for pair in pairs[:3] for case in pair[:2]))
    difference = largest_difference(model, tokenizer, [case.sentence for pair in pairs[:20] for case in pair[:2]])
    print(f"largest difference from eager output_attentions in 40 of them: {difference:.1e}")
    begin = time.perf_counter()
    found = answers(model, tokenizer, pairs)
    print(f"{2 * len(pairs)} sentences read in {time.perf_counter() - begin:.0f} s\n")
    print("\n".join(report(found, head)))


def draw(seen: ModelAttention, head: Head, folder: Path) -> None:
    """Write the pictures of the guide: all heads with one of them enlarged, and `it` in every head."""
    folder.mkdir(parents=True, exist_ok=True)
    layer, number = head
    seen.save(folder / "self-attention-heads.svg", "heads", layer=layer, head=number)
    seen.save(folder / "self-attention-it.svg", word="it")
    print(f"pictures are in {folder}")


if __name__ == "__main__":
    try:
        main()
    except HeedfulError as error:
        sys.exit(f"error: {error}")
