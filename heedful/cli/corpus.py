"""`heedful corpus`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Json, check_unused
from heedful.cli.output import log, print_json, progress_bar
from heedful.errors import ConfigError, choose

if TYPE_CHECKING:
    from heedful.data.hindi import SentenceSide
    from heedful.data.pronouns import PronounExample
    from heedful.data.scenes import Scene

CORPORA = ("hindi", "pronouns", "scenes")


def corpus(
    name: Annotated[
        str,
        typer.Argument(
            metavar="hindi|pronouns|scenes",
            help="The corpus: Hindi–English, English–French with `it` to resolve, or drawn scenes with captions.",
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
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder that scenes are written to.", show_default=False)
    ] = None,
    language: Annotated[
        str, typer.Option(metavar="en|hi", help="The language of captions of scenes [en].", show_default=False)
    ] = "",
    objects: Annotated[
        str,
        typer.Option(metavar="N[-N]", help="The number of named objects in a scene, 1 to 4 [1-4].", show_default=False),
    ] = "",
    pixels: Annotated[
        int | None, typer.Option(metavar="N", help="The side of the picture of a scene [128].", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Print sentence pairs of an embedded corpus, or write a folder of drawn scenes.

    Pairs are TSV: source, target, and the requested columns. Links are in the Pharaoh format, source word-target word;
    antecedents are pronoun-noun, both words of the source. Words are separated by white space and counted from 0.

    Scenes are images/000001.png …, captions.csv (image, caption) and regions.jsonl (image, word index, x, y, w, h in
    pixels, kind of word), which `heedful train DIR/captions.csv --images DIR/images --regions DIR/regions.jsonl` reads.
    """
    from heedful.alignment import text

    choose("corpus", name, CORPORA)
    if name == "scenes":
        check_unused(
            "for scenes",
            {
                "--direction": bool(direction),
                "--min-words": min_words is not None,
                "--max-words": max_words is not None,
                "--alignments": alignments,
                "--antecedents": antecedents,
            },
        )
        _scenes(out, pairs, seed, split, language or "en", objects, pixels, json)
        return
    for_scenes = {
        "--out": bool(out),
        "--language": bool(language),
        "--objects": bool(objects),
        "--pixels": bool(pixels),
    }
    check_unused(f"for {name}, only for scenes", for_scenes)
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


def _scenes(
    out: Path | None, count: int, seed: int, split: str, language: str, objects: str, pixels: int | None, json: bool
) -> None:
    from heedful.data.scenes import MOST, PIXELS, scenes, write_scenes

    if out is None:
        raise ConfigError("scenes are files: name the folder to write them to, such as --out scenes")
    least, _, most = (objects or f"1-{MOST}").partition("-")
    numbers = least.isdecimal() and (most or least).isdecimal()
    if not numbers or not 1 <= int(least) <= int(most or least) <= MOST:
        raise ConfigError(f"--objects {objects}: expected a number from 1 to {MOST}, or a range such as 1-{MOST}")
    if pixels is not None and not 32 <= pixels <= 1024:
        raise ConfigError(f"--pixels {pixels}: expected a whole number from 32 to 1024")
    made = scenes(
        count,
        seed=seed,
        split=split,
        language=language,
        size=PIXELS if pixels is None else pixels,
        objects=(int(least), int(most or least)),
    )
    with progress_bar("scenes", count) as show:

        def each() -> Iterator[Scene]:
            for number, scene in enumerate(made, 1):
                yield scene
                show(1)
                if json:
                    print_json(
                        {
                            "image": f"{number:06}.png",
                            "caption": scene.caption,
                            "captions": scene.captions,
                            "objects": [asdict(thing) for thing in scene.objects],
                            "relations": scene.relations,
                            "regions": scene.regions,
                        }
                    )

        write_scenes(out, each())
    log(f"{count:,} scenes written to {out}: images, captions.csv, regions.jsonl")
