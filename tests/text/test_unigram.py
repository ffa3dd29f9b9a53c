"""A vocabulary learned by pruning."""

import subprocess
import sys
from collections import Counter
from math import exp

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from heedful.text.subwords import _digamma, backward, forward, learn_unigram, pieces

STEMS = [a + b + c for a in ("w", "t", "pl", "sp") for b in ("a", "o", "e") for c in ("lk", "nt", "st", "m", "p")]
ENDS = ("", "s", "ed", "ing", "er", "ers", "able")
WORDS = Counter({"▁" + stem + end: 3 + (i * j) % 7 for i, stem in enumerate(STEMS) for j, end in enumerate(ENDS)})


def cut(word: str, known: dict[str, float]) -> list[str]:
    """The most probable way to cut a word."""
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        ways = [
            (best[b][0] + known[word[b:end]], [*best[b][1], word[b:end]]) for b in range(end) if word[b:end] in known
        ]
        best.append(max(ways) if ways else (-1e9, []))
    return best[-1][1]


def test_stems_and_ends_are_found():
    known = dict(learn_unigram(WORDS, 110))
    assert len(known) == 110
    assert cut("▁walkable", known) == ["▁walk", "able"]
    assert cut("▁spentable", known) == ["▁spent", "able"]
    assert set("".join(WORDS)) <= set(known)
    assert sum(map(exp, known.values())) == pytest.approx(1.0, abs=0.1)


def test_as_good_as_the_library():
    """Words are cut into about as many pieces as with the vocabulary that `tokenizers` learns."""
    theirs = Tokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [" ".join([word] * count) for word, count in WORDS.items()]
    theirs.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=110, show_progress=False, unk_token="<unk>"))
    ours = dict(learn_unigram(WORDS, 110))
    pieces_of_ours = sum(count * len(cut(word, ours)) for word, count in WORDS.items())
    assert pieces_of_ours <= sum(len(theirs.encode(text).ids) for text in texts)


def test_the_same_in_every_process():
    # Sets and dictionaries of strings have another order in every process; ties are decided by a rule all the same.
    code = "from heedful.text.subwords import learn_unigram; import hashlib"
    code += "; w = {a + b: 2 for a in 'abcdefghij' for b in 'klmnop'}"
    code += "; print(hashlib.md5(repr(learn_unigram(w, 40)).encode()).hexdigest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert len(found.pop()) == 33


@pytest.mark.parametrize("words", [{}, {"▁": 3}, {"a": 1}, {"ab": 1, "cd": 1}, {"x" * 300: 2}])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_little_to_learn_from(words, size):
    known = learn_unigram(words, size)
    assert len(known) <= size
    assert all(np.isfinite(score) for _, score in known)
    if words:
        assert known


def test_the_alphabet_is_of_the_frequent():
    assert {piece for piece, _ in learn_unigram({"aaab": 5, "abc": 1, "zzz": 1}, 2)} == {"a", "b"}


def test_sums_over_all_ways():
    ids = {"a": 0, "b": 1, "ab": 2, "ba": 3}
    scores = np.log([0.4, 0.3, 0.2, 0.1])
    found = pieces(["aba"], ids, 16)
    assert found.shape == (1, 3, 3)
    lattice = np.where(found < 0, -np.inf, scores[found])
    total = 0.4 * 0.3 * 0.4 + 0.2 * 0.4 + 0.4 * 0.1
    assert np.exp(forward(lattice)[0]) == pytest.approx([1, 0.4, 0.4 * 0.3 + 0.2, total])
    assert np.exp(backward(lattice)[0]) == pytest.approx([total, 0.3 * 0.4 + 0.1, 0.4, 1])


def test_digamma():
    # ψ(1) = -γ, ψ(1/2) = -γ - 2 log 2, ψ(x + 1) = ψ(x) + 1/x
    gamma = 0.5772156649015329
    x = np.array([1.0, 0.5, 7.3, 1000.0])
    assert _digamma(x)[:2] == pytest.approx([-gamma, -gamma - 2 * np.log(2)], abs=1e-8)
    assert _digamma(x + 1) == pytest.approx(_digamma(x) + 1 / x, abs=1e-8)
