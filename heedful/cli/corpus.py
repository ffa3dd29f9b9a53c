"""`heedful corpus`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from heedful.cli.options import Json, check_unused
from heedful.cli.output import print_json
from heedful.errors import choose


def corpus(
    name: Annotated[str, typer.Argument(metavar="hindi", help="The corpus: hindi.", show_default=False)],
    *,
    pairs: Annotated[int, typer.Option(min=1, metavar="N", help="The number of pairs, all different.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same pairs on every machine.")] = 1,
    split: Annotated[
        str,
        typer.Option(metavar="train|valid|test", help="test and valid have combinations of words that train has not."),
    ] = "train",
    direction: Annotated[str, typer.Option(metavar="hi-en|en-hi", help="The direction.")] = "hi-en",
    min_words: Annotated[int, typer.Option(metavar="N", help="Words of the source at least.")] = 2,
    max_words: Annotated[int, typer.Option(metavar="N", help="Words of the source at most.")] = 50,
    alignments: Annotated[bool, typer.Option("--alignments", help="Add a column of gold word links.")] = False,
    antecedents: Annotated[
        bool, typer.Option("--antecedents", help="Add a column: the antecedents of the pronouns of the source.")
    ] = False,
    json: Json = False,
) -> None:
    """Print sentence pairs of the embedded corpus.

    They are TSV: source, target, and the requested columns. Links are in the Pharaoh format, source word-target word;
    antecedents are pronoun-noun, both words of the source. Words are separated by white space and counted from 0.
    """
    from heedful.alignment import text
    from heedful.data.hindi import DIRECTIONS, generate

    choose("corpus", name, ("hindi",))
    check_unused(
        "with --json, which always has it", {"--alignments": json and alignments, "--antecedents": json and antecedents}
    )
    to_hindi = choose("direction", direction, DIRECTIONS) == "en-hi"
    for example in islice(generate(seed, split, min_words, max_words, count_english=to_hindi), pairs):
        side = example.seen_from(direction)
        if json:
            print_json(side._asdict())
            continue
        columns = [side.source, side.target]
        columns += [text(frozenset(side.links))] if alignments else []
        columns += [text(frozenset(side.antecedents))] if antecedents else []
        print("\t".join(columns))
