"""A Hindi–English grammar that makes sentence pairs with gold word links: lexicon, morphology and rules.

The tables `*.txt` have the words, `hindi` and `english` their morphology. `phrases`, `complements`, `tenses`,
`clauses` and `sentences` combine them, in both languages at once; `sentences` makes the pairs of each split. A
Hindi and an English word that express the same idea are linked.
"""

from heedful.data.hindi.sentences import (
    DIRECTIONS,
    LONGEST,
    SHORTEST,
    SPLITS,
    HindiExample,
    SentenceSide,
    generate,
    pairs,
)

__all__ = ["DIRECTIONS", "LONGEST", "SHORTEST", "SPLITS", "HindiExample", "SentenceSide", "generate", "pairs"]
