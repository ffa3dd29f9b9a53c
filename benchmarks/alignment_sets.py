"""Language pairs with gold word links that nobody here made, and the text to learn from beside them.

`read_set(data, name)` gives the gold sentences as they are cut into words, their links, and the pairs to train on,
which are cut into words by a simple rule: punctuation stands alone, except in numbers; an apostrophe ends a word in
French (l' homme) and begins one elsewhere (father 's). Everything is lower-cased and in normal form C.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from heedful.alignment import Gold, read_gold
from heedful.data.files import read_lines

__all__ = ["SETS", "AlignmentSet", "cut", "read_set"]

LETTER = r"(?:\w|[\u0300-\u036f\u0900-\u0963\u200c\u200d])"  # a vowel sign of Devanagari is no \w
WORDS = re.compile(rf"\d+(?:[.,]\d+)*|'{LETTER}+|{LETTER}+|\S")
FRENCH = re.compile(rf"\d+(?:[.,]\d+)*|{LETTER}+'|{LETTER}+|\S")

Rows = list[tuple[str, str]]


class AlignmentSet(NamedTuple):
    """Sentence pairs with gold links, and others to learn from; words are what a space separates."""

    title: str
    pairs: Rows
    gold: Gold
    extra: Rows


def read_set(data: Path, name: str) -> AlignmentSet:
    """Read one of SETS from the data folder."""
    return SETS[name](data)


def cut(sentence: str, language: str = "") -> str:
    """Return a sentence with its words separated by spaces.

    >>> cut("L'homme mange 1,5 pomme.", "fr"), cut("It's the dog's.")
    ("l' homme mange 1,5 pomme .", "it 's the dog 's .")
    """
    plain = unicodedata.normalize("NFC", sentence).lower().replace("’", "'")
    return " ".join((FRENCH if language == "fr" else WORDS).findall(plain))


def _set(title: str, pairs: Iterable[tuple[str, str]], gold: list[str], base: int, extra: Rows) -> AlignmentSet:
    plain = [(_plain(x), _plain(y)) for x, y in pairs]
    lengths = [(len(x.split()), len(y.split())) for x, y in plain]
    # Some files have a few links past the end of a sentence; they are left out for every aligner alike.
    found = read_gold(gold, lengths, base=base, name=title, lenient=True)
    languages = title.split()[0].split("-")
    cut_up = [(cut(x, languages[0]), cut(y, languages[1])) for x, y in extra if x.strip() and y.strip()]
    return AlignmentSet(title, plain, found, cut_up)


def _plain(sentence: str) -> str:
    return " ".join(unicodedata.normalize("NFC", sentence).lower().split())


def _lines(path: Path) -> list[str]:
    return list(read_lines(path))


def _columns(path: Path, source: int, target: int) -> Rows:
    rows = (line.split("\t") for line in _lines(path))
    return [(row[source], row[target]) for row in rows]


def _multi30k(data: Path, source: str, target: str) -> Rows:
    sides = (_lines(data / "multi30k" / f"train.{language}.gz") for language in (source, target))
    return list(zip(*sides, strict=True))


def _english_french(data: Path) -> AlignmentSet:
    folder = data / "word-alignment" / "enfr"
    pairs = [tuple(line.split("|||")) for line in _lines(folder / "enfr.src-tgt.gz")]
    tatoeba = _columns(next((data / "tatoeba-fra-eng").glob("fra*.gz")), 0, 1)
    extra = tatoeba + _multi30k(data, "en", "fr")
    return _set("en-fr 447", [(x, y) for x, y in pairs], _lines(folder / "enfr.gold.gz"), 1, extra)


def _german_english(data: Path) -> AlignmentSet:
    folder = data / "word-alignment" / "deen"
    pairs = zip(_lines(folder / "test.de.gz"), _lines(folder / "test.en.gz"), strict=True)
    extra = _columns(next((data / "tatoeba-deu-eng").glob("*.gz")), 2, 3) + _multi30k(data, "de", "en")
    return _set("de-en 100", pairs, _lines(folder / "de-en.wa.gz"), 0, extra)


def _english_hindi(data: Path) -> AlignmentSet:
    folder = data / "word-alignment" / "enhi"
    sides = {side: [] for side in ("en", "hi", "gold")}  # type: dict[str, list[str]]
    for part in ("test", "trial"):
        for side, lines in sides.items():
            lines += _lines(folder / f"enhi.{part}.{side}.gz")
    extra = _columns(data / "hindi-visual-genome" / "hindi-visual-genome-train.txt.gz", 5, 6)
    extra += _columns(next((data / "tatoeba-hin-eng").glob("tatoeba-dev-*.gz")), 2, 3)
    for part in ("dev", "devtest"):
        for number in range(4):
            names = (f"{part}.hi-en.en.{number}.gz", f"{part}.hi-en.hi.gz")
            extra += zip(*(_lines(data / "indian-parallel-hin-eng" / name) for name in names), strict=True)
    return _set("en-hi 90 + 25", zip(sides["en"], sides["hi"], strict=True), sides["gold"], 0, extra)


def _english_czech(data: Path) -> AlignmentSet:
    pairs, gold = [], []
    for part in ("train", "valid"):
        for line in _lines(data / "word-alignment" / "encs" / f"encs.{part}.jsonl.gz"):
            record = json.loads(line)
            pairs.append((" ".join(record["src_words"]), " ".join(record["tgt_words"])))
            gold.append(" ".join(f"{x}-{y}" for x, y in record["alignment"]))
    return _set("en-cs 2,500", pairs, gold, 0, _multi30k(data, "en", "cs"))


def _french_english(data: Path) -> AlignmentSet:
    """Literary texts, of which nothing was ever looked at while the aligner was made."""
    pairs: Rows = []
    gold: list[str] = []
    for folder in sorted((data / "word-alignment" / "fren-alibi").iterdir()):
        french, english = folder.name.split("_")
        files = (f"{french}_sents.txt.gz", f"{english}_sents.txt.gz", f"ali_w2w_{folder.name}.txt.gz")
        x, y, links = (dict(_numbered(line) for line in _lines(folder / name)) for name in files)
        pairs += [(x[key], y[key]) for key in links]
        gold += links.values()
    extra = [(y, x) for x, y in _columns(next((data / "tatoeba-fra-eng").glob("fra*.gz")), 0, 1)]
    return _set("fr-en 522", pairs, gold, 0, extra + _multi30k(data, "fr", "en"))


def _numbered(line: str) -> tuple[str, str]:
    number, _, text = line.partition("\t")
    return number, text


SETS: dict[str, Callable[[Path], AlignmentSet]] = {
    "en-fr": _english_french,
    "de-en": _german_english,
    "en-hi": _english_hindi,
    "en-cs": _english_czech,
    "fr-en": _french_english,
}
