"""The tasks on real data: which pairs are learned from, which choose the model, which measure it.

No sentence of a test or validation set is learned from, on either side, whatever its case and punctuation; but for
overlaps that a data set has between its own parts, which stay, as others who publish numbers on it have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from real_sets import Known, Row, Task, apart, by_hash, key, lines

from heedful.errors import DataError

__all__ = ["TASKS", "english_hindi", "french_english", "hindi_english", "multi30k"]

FRENCH = 1500  # English sentences held out for the test, and as many for validation
TATOEBA, WIKIPEDIA = 500, 200  # Hindi sentences held out for validation, beside Hindi Visual Genome's own


def multi30k(data: Path) -> Task:
    """Multi30k, English to German: the parts that it comes in."""
    parts = ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    folder = data / "multi30k"
    train, valid, *tests = (parallel(folder / f"{part}.en", [folder / f"{part}.de"]) for part in parts)
    return Task("multi30k-en-de", train, valid, dict(zip(parts[2:], tests, strict=True)))


def french_english(data: Path) -> Task:
    """Tatoeba's French, split by English sentence: all translations of one are on the same side.

    A French sentence can stand beside several English ones; those pairs that share one with a held-out pair are not
    learned from.
    """
    path = data / "tatoeba-fra-eng" / "fra.txt"
    rows = [Row(cells[1], (cells[0],)) for cells in columns(path, 2)]
    order = by_hash(row.references[0] for row in rows)
    place = {name: number for number, name in enumerate(order)}
    parts: list[list[Row]] = [[], [], []]
    for row in rows:
        parts[min(place[key(row.references[0])] // FRENCH, 2)].append(row)
    test, valid, rest = parts
    valid = mixed(apart(valid, Known(test)))
    training = apart(rest, Known([*test, *valid]))
    left_out = {"pairs with a held-out French sentence": len(rest) - len(training)}
    return Task("french-english", training, valid, {"tatoeba": test}, left_out)


def hindi_english(data: Path) -> Task:
    """All the Hindi there is: captions (Hindi Visual Genome), Tatoeba, and Wikipedia with four translations each.

    Each training set keeps what it shares with the tests of its own data set, and nothing that it shares with others'.
    Validation shares no sentence with training, nor with a test.
    """
    tests, origins = _hindi_tests(data)
    tatoeba, wikipedia = _tatoeba(data, "dev"), [*_wikipedia(data, "dev"), *_wikipedia(data, "devtest")]
    all_tests = Known(row for rows in tests.values() for row in rows)
    held = [*_some(apart(tatoeba, all_tests), TATOEBA), *_some(apart(wikipedia, all_tests), WIKIPEDIA)]
    captions = _captions(data, "train")
    sets = {"captions": captions, "tatoeba": tatoeba, "wikipedia": singles(wikipedia)}
    training: list[Row] = []
    left_out = {}
    known = Known(held)
    for name, rows in sets.items():
        others = Known(row for test, kept in tests.items() if origins[test] != name for row in kept)
        mine = apart(rows, others)
        training += apart(mine, known)
        left_out[f"{name}: pairs with a sentence of another set's test"] = len(rows) - len(mine)
    left_out["pairs with a sentence of validation"] = (
        sum(map(len, sets.values())) - sum(left_out.values()) - len(training)
    )
    dev = apart(apart(_captions(data, "dev"), all_tests), Known(training))
    valid = mixed([*dev, *(row._replace(references=row.references[:1]) for row in held)])
    return Task("hindi-english", training, valid, tests, left_out)


def english_hindi(data: Path) -> Task:
    """The same the other way round; of several English translations, the first is the source."""
    task = hindi_english(data)
    tests = {name: flipped(rows) for name, rows in task.tests.items()}
    return Task("english-hindi", flipped(task.training), flipped(task.validation), tests, task.left_out)


TASKS = {
    "multi30k-en-de": multi30k,
    "hindi-english": hindi_english,
    "english-hindi": english_hindi,
    "french-english": french_english,
}


def parallel(source: Path, references: Sequence[Path]) -> list[Row]:
    """Read parallel files; references that are empty are left out, and lines that have none, or no source."""
    columns = [lines(path) for path in (source, *references)]
    if len({len(column) for column in columns}) > 1:
        raise DataError(f"{source} and its translations have {', '.join(str(len(c)) for c in columns)} lines")
    rows = (Row(x.strip(), tuple(y.strip() for y in ys if y.strip())) for x, *ys in zip(*columns, strict=True))
    return [row for row in rows if row.source and row.references]


def columns(path: Path, least: int) -> list[list[str]]:
    """Read a file of columns, each without space around it."""
    found = [[cell.strip() for cell in line.split("\t")] for line in lines(path)]
    for number, cells in enumerate(found, 1):
        if len(cells) < least:
            raise DataError(f"{path}, line {number}: expected {least} columns separated by tabs, found {len(cells)}")
    return found


def singles(rows: Iterable[Row]) -> list[Row]:
    """Return a pair for each translation of each sentence."""
    return [Row(row.source, (text,)) for row in rows for text in row.references]


def flipped(rows: Iterable[Row]) -> list[Row]:
    """Return rows with their first translation as the source."""
    return [Row(row.references[0], (row.source,)) for row in rows]


def mixed(rows: Sequence[Row]) -> list[Row]:
    """Return rows in an order that mixes where they are from, so that the first thousand are like all of them."""
    place = {name: number for number, name in enumerate(by_hash(row.source for row in rows))}
    return sorted(rows, key=lambda row: place[key(row.source)])


def _some(rows: Sequence[Row], count: int) -> list[Row]:
    """Return the rows of so many sources, by their hashes."""
    chosen = set(by_hash(row.source for row in rows)[:count])
    return [row for row in rows if key(row.source) in chosen]


def _hindi_tests(data: Path) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """Return all test sets, and which data set each is a part of."""
    flores, news = data / "flores200-devtest", data / "wmt14-hin-eng"
    found = {
        "tatoeba": ("tatoeba", _tatoeba(data, "test")),
        "captions": ("captions", _captions(data, "test")),
        "captions-challenge": ("captions", _captions(data, "challenge-test-set")),
        "flores": ("flores", parallel(flores / "hin_Deva.devtest", [flores / "eng_Latn.devtest"])),
        "newstest2014": ("news", parallel(news / "newstest2014.hi", [news / "newstest2014.en"])),
        "wikipedia": ("wikipedia", _wikipedia(data, "test")),
    }
    return {name: rows for name, (_, rows) in found.items()}, {name: origin for name, (origin, _) in found.items()}


def _tatoeba(data: Path, part: str) -> list[Row]:
    path = data / "tatoeba-hin-eng" / f"tatoeba-{part}-v2023-09-26.eng-hin.txt"
    return [Row(cells[3], (cells[2],)) for cells in columns(path, 4)]


def _captions(data: Path, part: str) -> list[Row]:
    path = data / "hindi-visual-genome" / f"hindi-visual-genome-{part}.txt"
    return [Row(cells[6], (cells[5],)) for cells in columns(path, 7)]


def _wikipedia(data: Path, part: str) -> list[Row]:
    folder = data / "indian-parallel-hin-eng"
    return parallel(folder / f"{part}.hi-en.hi", [folder / f"{part}.hi-en.en.{n}" for n in range(4)])
