"""`heedful corpus`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Json, check_unused
from heedful.cli.output import print_json
from heedful.errors import ConfigError, choose

if TYPE_CHECKING:
    from heedful.data.hindi import SentenceSide
    from heedful.data.pronouns import PronounExample

CORPORA = ("hindi", "pronouns")


def corpus(
    name: Annotated[
        str,
        typer.Argument(
            metavar="hindi|pronouns",
            help="The corpus: Hindi–English, or English–French with `it` to resolve.",
            show_default=False,
        ),
    ],
    *,
    pairs: Annotated[int, typer.Option(min=1, metavar="N", help="The number of pairs, all different.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed gives the same pairs on every machine.")] = 1,
    split: Annotated[
        str,
        typer.Option(metavar="train|valid|test", help="test and valid have combinations of words that train has not."),
    ] = "train",
    direction: Annotated[
        str,
        typer.Option(
            metavar="hi-en|en-hi", help="The direction of hindi [hi-en]; pronouns is en-fr.", show_default=False
        ),
    ] = "",
    min_words: Annotated[
        int | None, typer.Option(metavar="N", help="Words of the source at least.", show_default=False)
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(metavar="N", help="Words of the source at most [hindi 50, pronouns 32].", show_default=False),
    ] = None,
    alignments: Annotated[bool, typer.Option("--alignments", help="Add a column of gold word links.")] = False,
    antecedents: Annotated[
        bool, typer.Option("--antecedents", help="Add a column: the antecedents of the pronouns of the source.")
    ] = False,
    json: Json = False,
) -> None:
    """Print sentence pairs of an embedded corpus.

    They are TSV: source, target, and the requested columns. Links are in the Pharaoh format, source word-target word;
    antecedents are pronoun-noun, both words of the source. Words are separated by white space and counted from 0.
    """
    from heedful.alignment import text

    choose("corpus", name, CORPORA)
    check_unused(
        "with --json, which always has it", {"--alignments": json and alignments, "--antecedents": json and antecedents}
    )
    sides: Iterator[SentenceSide | PronounExample] = _hindi(seed, split, direction or "hi-en", min_words, max_words)
    if name == "pronouns":
        if direction not in ("", "en-fr"):
            raise ConfigError(f"--direction {direction}: the corpus pronouns is English to French; leave it out")
        sides = _pronouns(seed, split, min_words, max_words)
    for side in islice(sides, pairs):
        if json:
            print_json(side._asdict())
            continue
        columns = [side.source, side.target]
        columns += [text(frozenset(side.links))] if alignments else []
        columns += [text(frozenset(side.antecedents))] if antecedents else []
        print("\t".join(columns))


def _hindi(seed: int, split: str, direction: str, least: int | None, most: int | None) -> Iterator[SentenceSide]:
    from heedful.data.hindi import DIRECTIONS, LONGEST, SHORTEST, generate

    to_hindi = choose("direction", direction, DIRECTIONS) == "en-hi"
    words = (SHORTEST if least is None else least, LONGEST if most is None else most)
    for example in generate(seed, split, *words, count_english=to_hindi):
        yield example.seen_from(direction)


def _pronouns(seed: int, split: str, least: int | None, most: int | None) -> Iterator[PronounExample]:
    from heedful.data.pronouns import LONGEST, SHORTEST, generate

    yield from generate(seed, split, SHORTEST if least is None else least, LONGEST if most is None else most)
