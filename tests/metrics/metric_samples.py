"""Sentences to score: by hand, and drawn at random."""

from __future__ import annotations

import random

OUTPUTS = [
    "I am eating food .",
    "The cat sat on the mat today, didn't it?",
    "मैं घर जाता हूँ।",
    "",
    "nothing alike whatever in these words here",
    "He went home early yesterday evening.",
    "the the the the",
    "A",
]
REFERENCES = [
    ["I am eating food .", "I eat food now.", "I'm having a meal at present."],
    ["The cat sat on a mat today, did it not?", "Today the cat was sitting on the mat, wasn't it?", "The cat sat."],
    ["मैं घर जा रहा हूँ।", "मैं अपने घर जाता हूँ।", "घर जाता हूँ।"],
    ["Something should stand here.", "Some thing stands here.", "x"],
    ["a wholly different sentence of eight words follows", "no", "these words here are alike"],
    ["he went home early yesterday evening.", "Yesterday evening he went home early.", "He left."],
    ["the cat the dog", "the", "a the a the"],
    ["A", "A b c d e", "b"],
]
WORDS = ("the", "a", "cat", "dog", "sat", "on", "mat", "today", "early", "Haus", "घर", "मैं", ",", ".", "!", "didn't")


def corpus(count: int, seed: int = 1, wrong: float = 0.3) -> tuple[list[str], list[str]]:
    """References, and outputs in which a share of the words is left out, changed or moved."""
    pick = random.Random(seed)
    references = [" ".join(pick.choices(WORDS, k=pick.randint(1, 14))) for _ in range(count)]
    return [spoiled(text, pick, wrong) for text in references], references


def spoiled(text: str, pick: random.Random, wrong: float) -> str:
    words = text.split()
    for _ in range(len(words)):
        if words and pick.random() < wrong:
            at = pick.randrange(len(words))
            word = words.pop(at)
            kind = pick.randrange(3)
            if kind:
                words.insert(
                    at if kind == 1 else pick.randrange(len(words) + 1), pick.choice(WORDS) if kind == 1 else word
                )
    return " ".join(words)
