"""Statistics of translations, sentence by sentence: the counts that every score is computed from.

sacrebleu makes the counts, from NFC text. Every metric is a function of counts that are added over sentences: over all
of them for the score of a corpus, of one for its own score, over sentences drawn at random for the bootstrap. CIDEr-D
and ROUGE-L are means of sentence scores (`captions`); the document frequencies of CIDEr-D are those of all sentences,
also for the score of some.
"""

from __future__ import annotations

import socket
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError, ModelError, choose, install_command
from heedful.metrics.captions import caption_tokens, cider_d, rouge_l

METRICS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "cider": "CIDEr-D",
    "rouge": "ROUGE-L",
    "exact": "exact %",
    "pointing": "pointing",
}
TRANSLATION_METRICS = ("bleu", "chrf", "ter", "exact")
CAPTION_METRICS = ("bleu", "chrf", "cider", "rouge", "exact")
TOKENIZERS = ("13a", "intl", "char", "flores200", "none", "zh")  # of BLEU, by sacrebleu's names
DOWNLOAD_SECONDS = 30.0  # without an answer, when the model of flores200 is downloaded
LOWER = frozenset({"ter"})  # the lower the better
# Sentences counted at once. sacrebleu keeps the n-grams of all their references meanwhile, and from 100 sentences on
# that end in " ." it warns that they look tokenised.
CHUNK = 50
ORDERS = 4  # of BLEU, in words
BETA = 2  # chrF counts recall this many times as much as precision

Array = NDArray[np.float64]
References = Sequence[str | Sequence[str]]  # for each sentence one, or several


@dataclass(frozen=True)
class SentenceStats:
    """The statistics of one system: for each metric counts, one row a sentence, and a signature as sacrebleu has."""

    counts: Mapping[str, Array]
    signatures: Mapping[str, str]

    def __len__(self) -> int:
        return len(next(iter(self.counts.values())))

    def scores(self, rows: Sequence[int] | None = None) -> dict[str, float]:
        """Return the corpus scores of all sentences, or of some, by metric."""
        chosen = slice(None) if rows is None else list(rows)
        return {name: float(FORMULAS[name](counts[chosen].sum(0))) for name, counts in self.counts.items()}

    def sentences(self, metric: str) -> Array:
        """Return the score of each sentence, (N,); BLEU counts only the orders that the sentence is long enough for."""
        counts = self.counts[metric]
        return bleu(counts, effective=True) if metric == "bleu" else FORMULAS[metric](counts)


def extract_stats(
    outputs: Sequence[str],
    references: References,
    metrics: Sequence[str] = TRANSLATION_METRICS,
    progress: Callable[[int], object] = lambda done: None,
    *,
    tokenize: str = "",
) -> SentenceStats:
    """Return the statistics of translations, or of captions, against their references.

    A sentence has one reference or several; empty ones are left out. TER takes far more time than the other metrics
    together. CIDEr-D and ROUGE-L are 100 times what `cider_d` and `rouge_l` give, as papers print them. `progress` is
    called with the number of sentences done since the last call. `tokenize` is the tokenizer of BLEU, one of
    TOKENIZERS; by default 13a, or zh or char for references in scripts without spaces.

    >>> {name: round(score) for name, score in extract_stats(["a b c d"], [["a b c d", "e"]]).scores().items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 100}
    """
    if len(outputs) != len(references):
        raise DataError(f"{len(outputs)} translations for {len(references)} references")
    if not outputs:
        raise DataError("there is nothing to score: no sentences")
    written, wanted = [_nfc(text) for text in outputs], [_present(one) for one in references]
    tokens = _tokens([text for each in wanted for text in each])
    extractors = {name: _metric(name, tokens, tokenize) for name in metrics if name in ("bleu", "chrf", "ter")}
    parts: dict[str, list[Any]] = {name: [] for name in metrics}
    for first in range(0, len(written), CHUNK):
        rows = slice(first, first + CHUNK)
        width = max(map(len, wanted[rows]))
        streams = [[each[i] if i < len(each) else None for each in wanted[rows]] for i in range(width)]
        for name, metric in extractors.items():
            parts[name] += metric._extract_corpus_statistics(written[rows], streams)
        progress(len(written[rows]))
    if "exact" in metrics:
        parts["exact"] = [(any(exact_match(o, r) for r in each), 1) for o, each in zip(written, wanted, strict=True)]
    if "cider" in metrics or "rouge" in metrics:
        lists = [caption_tokens(text) for text in written], [[caption_tokens(text) for text in each] for each in wanted]
        for name, function in (("cider", cider_d), ("rouge", rouge_l)):
            if name in metrics:
                parts[name] = [(100 * score, 1) for score in function(*lists)]
    numbers = {len(each) for each in wanted}
    for metric in extractors.values():
        metric.num_refs = -1 if len(numbers) > 1 else max(numbers)  # sacrebleu has it of the last chunk only
    references_each = "var" if len(numbers) > 1 else max(numbers)
    signatures = {name: str(metric.get_signature()) for name, metric in extractors.items()}
    if "cider" in metrics:
        signatures["cider"] = f"nrefs:{references_each}|case:lc|tok:words|n:4|sigma:6|idf:refs|images:{len(written)}"
    if "rouge" in metrics:
        signatures["rouge"] = f"nrefs:{references_each}|case:lc|tok:words|beta:1.2"
    return SentenceStats({name: np.array(rows, dtype=np.float64) for name, rows in parts.items()}, signatures)


def exact_match(output: str, reference: str) -> bool:
    """Whether a translation equals its reference: the same words of NFC text, whatever the white space."""
    return _nfc(output).split() == _nfc(reference).split()


def sign(metric: str) -> int:
    """Return 1 for a metric where higher is better, -1 where lower is."""
    return -1 if metric in LOWER else 1


def _nfc(text: str) -> str:
    """Return a text in NFC: Hindi references often have ड़ as one code point, models write it as two."""
    return unicodedata.normalize("NFC", text)


def _present(references: str | Sequence[str]) -> list[str]:
    """Return the references of a sentence that are not empty, or an empty one if all are."""
    texts = [references] if isinstance(references, str) else references
    return [_nfc(text) for text in texts if text.strip()] or [""]


def check_tokenizer(tokenize: str) -> None:
    """Raise ConfigError for a tokenizer of BLEU that is unknown, and ModelError if its model cannot be had."""
    if tokenize:
        choose("tokenizer", tokenize, TOKENIZERS)
    if tokenize == "flores200":
        _flores200()


def _flores200() -> Any:  # noqa: ANN401  (sacrebleu has no types)
    """Return BLEU of SentencePiece's subwords, by a model that sacrebleu downloads once."""
    if find_spec("sentencepiece") is None:
        raise ConfigError(
            f"SentencePiece is needed for flores200 and is not installed; get it with: {install_command('opus')}"
        )
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    url = SPM_MODELS["flores200"]["url"]
    path = Path(SACREBLEU_DIR) / "models" / Path(url).name
    there, seconds = path.exists(), socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_SECONDS)  # sacrebleu would wait without end
    try:
        return BLEU(tokenize="flores200")
    except (Exception, SystemExit) as error:
        if there:
            raise ModelError(f"{path}: this is not the SentencePiece model of flores200 ({error}); remove it") from None
        path.unlink(missing_ok=True)  # what was written before the connection broke
        raise ModelError(
            f"the tokenizer flores200 needs a SentencePiece model, and it cannot be downloaded ({error}); with a "
            f"network, try again, or download {url} elsewhere and copy it to {path}"
        ) from None
    finally:
        socket.setdefaulttimeout(seconds)


def _metric(name: str, tokens: str, tokenize: str) -> Any:  # noqa: ANN401  (sacrebleu has no types)
    """Return sacrebleu's metric; `tokens` are by the references, `tokenize` is chosen for BLEU, or ""."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        check_tokenizer(tokenize)
        return _flores200() if tokenize == "flores200" else BLEU(tokenize=tokenize or tokens)
    if name == "chrf":
        return CHRF()
    metric: Any = TER()
    if tokens != "13a":
        # TER alone splits at spaces only: a sentence without any would be one word.
        cut, lower = BLEU(tokenize=tokens).tokenizer, metric.tokenizer
        metric._preprocess_segment = lambda text: lower(cut(text.rstrip()))
        metric.tokenizer_signature = f"{tokens}+tercom"
    return metric


def _tokens(references: Sequence[str]) -> str:
    """Return the name of sacrebleu's tokenizer: 13a, or for scripts without spaces one that needs none."""
    names = Counter(
        unicodedata.name(c, "").split(" ")[0].split("-")[0] for text in references for c in text if c.isalpha()
    )
    unspaced = {name: names[name] for name in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")}
    if 2 * sum(unspaced.values()) <= names.total():
        return "13a"
    return "zh" if unspaced["CJK"] == sum(unspaced.values()) else "char"


def bleu(counts: Array, effective: bool = False) -> Array:
    """BLEU with exponential smoothing.  counts (…, 10): lengths of output and reference, 4 matches, 4 totals -> (…).

    `effective` leaves out the orders that an output is too short for, as is usual for single sentences.
    """
    written, wanted = counts[..., 0], counts[..., 1]
    right, total = counts[..., 2 : 2 + ORDERS], counts[..., 2 + ORDERS :]
    there = total > 0
    halved = 2.0 ** np.cumsum(there & (right == 0), axis=-1)
    precision = np.where(right > 0, right, 1 / halved) / np.where(there, total, 1)
    orders = there.sum(-1) if effective else np.full(written.shape, ORDERS)
    mean = np.where(there, np.log(precision), 0).sum(-1) / np.maximum(orders, 1)
    nothing = (right == 0).all(-1) | (there.sum(-1) < orders)
    brevity = np.exp(np.minimum(0, 1 - wanted / np.maximum(written, 1)))
    return np.where(nothing, 0, np.minimum(100 * brevity * np.exp(mean), 100))


def chrf(counts: Array) -> Array:
    """chrF.  counts (…, 18): for 1 to 6 characters how many in the output, in the reference, in both -> (…)."""
    written, wanted, both = (counts[..., i::3] for i in range(3))
    there = (written > 0) & (wanted > 0)
    orders = np.maximum(there.sum(-1), 1)
    precision = (np.where(there, both, 0) / np.where(there, written, 1)).sum(-1) / orders
    recall = (np.where(there, both, 0) / np.where(there, wanted, 1)).sum(-1) / orders
    weighed = BETA**2 * precision + recall
    score: Array = 100 * (1 + BETA**2) * precision * recall / np.where(weighed > 0, weighed, 1)
    return np.minimum(score, 100)


def ter(counts: Array) -> Array:
    """Translation edit rate.  counts (…, 2): edits, and words of the reference -> (…)."""
    edits, words = counts[..., 0], counts[..., 1]
    return np.where(words > 0, 100 * edits / np.where(words > 0, words, 1), np.where(edits > 0, 100.0, 0.0))


def exact(counts: Array) -> Array:
    """Share of sentences, or of words, that are right.  counts (…, 2): how many are, and how many there are -> (…)."""
    return 100 * counts[..., 0] / np.maximum(counts[..., 1], 1)


def mean(counts: Array) -> Array:
    """Mean of sentence scores.  counts (…, 2): the sum of the scores, and how many there are -> (…)."""
    return counts[..., 0] / np.maximum(counts[..., 1], 1)


FORMULAS = {"bleu": bleu, "chrf": chrf, "ter": ter, "cider": mean, "rouge": mean, "exact": exact, "pointing": exact}
