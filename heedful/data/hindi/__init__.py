"""A Hindi–English grammar that makes sentence pairs with gold word links: lexicon, morphology and rules.

The tables `*.txt` hold the words; `hindi` and `english` how they change; `phrases`, `complements`, `tenses`,
`clauses`, `copulas` and `sentences` how they are put together, in both languages at once; `corpus` makes pairs of
them. A Hindi and an English word that express the same idea are linked.
"""

from heedful.data.hindi.corpus import DIRECTIONS, LONGEST, SHORTEST, SPLITS, HindiExample, SentenceSide, generate, pairs

__all__ = ["DIRECTIONS", "LONGEST", "SHORTEST", "SPLITS", "HindiExample", "SentenceSide", "generate", "pairs"]
