"""Back-translation: English sentences without Hindi get a Hindi made up by a model, to learn Hindi to English from.

python benchmarks/real_back.py MODEL --data FOLDER --out FOLDER [--tag ¤]
python benchmarks/real.py hindi-english --more FOLDER/hindi-english/back.tsv …

MODEL is one of the task english-hindi. The task hindi-english is prepared in the folder of --out if it is not there,
and gets `back.tsv`. The sentences are the English sides of `tatoeba-fra-eng` and of Multi30k's training set, without
those that are in training already. No pair has a sentence of a test or validation set, on either side.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this very heedful, from a bare checkout too

from real_sets import Known, Row, apart, key, lines, read_task, rows_of, write_rows, write_task
from real_tasks import TASKS

import heedful
from heedful.decoding import Decoding
from heedful.errors import DataError, HeedfulError
from heedful.translator import Translator

__all__ = ["alone", "back", "main"]

CHUNK = 10_000  # sentences between two messages


def alone(data: Path, folder: Path) -> tuple[list[str], Known]:
    """Return English sentences, each once, that a prepared task does not know, and what it measures with."""
    _, measured = read_task(folder)
    tests = Known(row for rows in measured.values() for row in rows)
    known = tests.targets | Known(rows_of(folder / "train.tsv")).targets
    found: dict[str, str] = {}
    for text in _english(data):
        name = key(text)
        if name not in known:
            found.setdefault(name, text)
    return list(found.values()), tests


def back(translator: Translator, sentences: Sequence[str], beam: int, tag: str) -> list[Row]:
    """Return pairs of made-up sources, with a tag before each, and the sentences; what became nothing is left out."""
    how = Decoding(beam=beam)
    size = 4096 if translator.device.type == "cpu" else 16384
    rows = []
    for first in range(0, len(sentences), CHUNK):
        part = sentences[first : first + CHUNK]
        done = translator.translate(part, how, split=False, trace=False, batch_tokens=size)
        made = zip(done, part, strict=True)
        rows += [Row(f"{tag} {new.text}".strip(), (text,)) for new, text in made if new.text.strip()]
        print(f"{first + len(part):,} of {len(sentences):,} sentences", file=sys.stderr, flush=True)
    return rows


def _english(data: Path) -> Iterable[str]:
    yield from (line.split("\t")[0] for line in lines(data / "tatoeba-fra-eng" / "fra.txt"))
    yield from lines(data / "multi30k" / "train.en")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make up the sources and write the pairs; return the exit code."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("model", type=Path)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--tag", default="", help="what says to the next model that a source is made up")
    options.add_argument("--beam", type=int, default=1)
    options.add_argument("--most", type=int, default=0, help="sentences at most; 0: all")
    options.add_argument("--device", default="auto")
    given = options.parse_args(arguments)
    try:
        return _run(given)
    except HeedfulError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _run(given: argparse.Namespace) -> int:
    translator = heedful.load(given.model, given.device)
    folder = given.out / "hindi-english"
    if not (folder / "data" / "task.json").exists():
        write_task(TASKS["hindi-english"](given.data), folder / "data")
    sentences, tests = alone(given.data, folder / "data")
    rows = back(translator, sentences[: given.most or None], given.beam, given.tag)
    rows = apart(rows, tests)  # a source that was made up may be one that is measured with
    if not rows:
        raise DataError(f"{given.model} wrote nothing for {len(sentences):,} sentences: is it trained?")
    write_rows(folder / "back.tsv", rows)
    print(f"{len(rows):,} pairs: {folder / 'back.tsv'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
