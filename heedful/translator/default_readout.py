"""The read-out of a model without one of its own: the usual one, or for opened models one by a rule without text.

Models of other formats (`heedful.interop.FORMATS`) are often deep, and the mean of all layers and heads is a poor
read-out for a deep decoder. The rule lets the model translate single words of its vocabulary, makes lists of these
words, and reads the weights for the lists and the lists of their translations. Which word of a list belongs to which is
known, so that layers, heads and steps are ranked by their errors. The result is kept in the cache, by a checksum of the
model.

`own_pairs` does the same with a text: it lets the model translate its sentences, and its words, which tell the
statistical aligner what the words mean.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.alignment.links import Links
from heedful.alignment.select_readout import PairWeights, WeightTable, rank_heads
from heedful.config import TransformerConfig
from heedful.data.cache import Writer, key_of, stored
from heedful.data.formats import spread_first
from heedful.data.images import ImageInput
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, HeedfulError
from heedful.interop.folder import ModelParts
from heedful.models import Memory
from heedful.observe import AttentionReading, read_attention
from heedful.text import SPECIALS, UNKNOWN, Codec
from heedful.trace import Text, Word
from heedful.trace.readout import BY_RULE, Readout

if TYPE_CHECKING:
    from heedful.translator.translator import Translator

LOG = logging.getLogger("heedful.translator")
DEEP = 5  # layers of a decoder: with fewer, the mean of all layers and heads is as good
RULE = 1  # version of the rule: part of the key in the cache
CANDIDATES, LONGEST = 192, 4  # words of the vocabulary that are translated, and the most tokens of a translation
LISTS, WORDS = 20, 10  # lists, and the words of each
ENOUGH = 24  # translated words: with fewer, the usual read-out is used
WORST = 0.3  # error rate of a read-out by rule, at most
COMMON = 30_000  # tokens of a vocabulary that words are taken from; the rest is rare
SEED = 1
UNITS = 4_000  # words and pairs of words of a text that are translated alone, at most


class WordLists(NamedTuple):
    """Lists of words and of their translations, with the links between them."""

    sources: list[str]
    targets: list[str]
    links: list[Links]


def default_readout(translator: Translator) -> Readout:
    """Return the read-out that is used without a `readout.json`: the usual one, or for opened models that by rule.

    It is taken from the cache if the rule was applied to the same weights before.
    """
    parts = translator.parts
    usual = Readout.usual(parts.config)
    if not has_rule(parts):
        return usual

    def fill(writer: Writer) -> None:
        writer.add("readout", json.dumps(readout_by_rule(translator).plain()).encode())

    try:
        arrays, cached = stored(key_of("readout", RULE, checksum(parts)), fill, LOG.warning, "the default read-out")
        readout = Readout.build(json.loads(arrays["readout"].tobytes()))
        readout.check(parts.config.model.depth, parts.config.model.heads)  # type: ignore[union-attr]
    except (HeedfulError, ValueError, KeyError) as error:
        LOG.warning("no read-out by rule, so the mean of all layers and heads is used: %s", error)
        return usual
    LOG.debug("the default read-out, %s: %s (%s)", "kept" if cached else "chosen", readout, readout.chosen)
    return readout


def has_rule(parts: ModelParts) -> bool:
    """Whether the default of a model is chosen by rule: an opened Transformer with a deep decoder that translates text.

    Of decoders with few layers, and of heedful's own models, the usual read-out is as good as a chosen one
    (docs/lab/alignments.md).
    """
    config = parts.config.model
    several = isinstance(config, TransformerConfig) and config.depth >= DEEP
    text = not isinstance(parts.source, ImageInput) and not isinstance(parts.model, Ensemble)
    return parts.format != "heedful" and parts.readout is None and several and text


def checksum(parts: ModelParts) -> str:
    """Return a checksum of the weights, settings and vocabularies of a model: CRC-32 of each tensor, which is fast."""
    digest = blake2b(repr(parts.config.plain()["model"]).encode(), digest_size=16)
    for codec in {id(one): one for one in (parts.source_codec, parts.target)}.values():
        digest.update(codec.dump().encode())
    for name, weight in parts.model.state_dict().items():
        content = weight.detach().float().cpu().contiguous().numpy().data.cast("B") if weight.numel() else b""
        digest.update(f"{name} {tuple(weight.shape)} {zlib.crc32(content)}\n".encode())
    return digest.hexdigest()


def readout_by_rule(translator: Translator) -> Readout:
    """Return the layer, heads and step with the fewest errors on lists of words; the usual read-out if none is better.

    Another read-out than the usual one has to be better by two standard errors, and nearly right: where its errors are
    over `WORST`, the model does not know single words, and lists of them say little.
    """
    usual = Readout.usual(translator.config)
    lists = word_lists(translator)
    if not lists.sources:
        LOG.debug("too few words of the vocabulary are translated alone: the usual read-out is used")
        return usual
    table = weight_table(translator, lists.sources, lists.targets)
    gold = table.gold_cells(lists.links)
    best, base = rank_heads(table, gold, usual)[0], table.rate(table.mixed(usual), usual, gold)
    words = len(lists.links) * WORDS
    error = math.sqrt(max(best.rate * (1 - best.rate), 0.25 / words) / words)
    if best.rate > WORST or base - best.rate <= 2 * error:
        LOG.debug("%s has %.1f %% errors on lists of words: the usual one is used", best.readout, 100 * best.rate)
        return usual
    rates = f"{100 * best.rate:.1f} % errors, the mean of all heads {100 * base:.1f} %"
    return replace(best.readout, chosen=f"{BY_RULE}, on lists of {words} words of the vocabulary: {rates}")


def word_lists(translator: Translator) -> WordLists:
    """Return lists of words of the source vocabulary, and of their translations, which the model makes one by one.

    Words whose translation is the word itself, or long, are left out. Returns nothing for too few words.
    """
    codec, target = translator.source_codec, translator.parts.target
    words = list(islice(_vocabulary_words(codec), CANDIDATES))
    known = []
    for word, translation in zip(words, _translated(translator, words), strict=True):
        ids = target.encode(translation).ids
        another = translation and translation.casefold() != word.casefold()
        if another and len(ids) <= LONGEST + 1 and UNKNOWN not in ids:
            known.append((word, translation))
    if len(known) < ENOUGH:
        return WordLists([], [], [])
    random, lists = Random(SEED), WordLists([], [], [])
    for _ in range(LISTS):
        x, y, links = list[str](), list[str](), set[tuple[int, int]]()
        for word, translation in random.sample(known, WORDS):
            parts = translation.split()
            links |= {(len(x), len(y) + i) for i in range(len(parts))}
            x.append(word)
            y += parts
        lists.sources.append(" ".join([*x, "."]))
        lists.targets.append(" ".join([*y, "."]))
        lists.links.append(frozenset({*links, (len(x), len(y))}))
    return lists


def _vocabulary_words(codec: Codec) -> Iterator[str]:
    """Yield tokens that are words, spread over the common part of the vocabulary; none twice."""
    count = min(len(codec), COMMON)
    step = next(step for step in range(count * 618 // 1000 or 1, 2 * count + 2) if math.gcd(step, count) == 1)
    seen = set[str]()
    for number in range(count):
        index = number * step % count
        word = codec.decode([index]) if index >= len(SPECIALS) else ""
        letters = word and all(unicodedata.category(c)[0] in "LM" for c in word)
        if letters and word not in seen and index in (ids := codec.encode(word).ids) and len(ids) <= 3:
            seen.add(word)
            yield word


def _translated(translator: Translator, texts: Sequence[str]) -> list[str]:
    """Return short translations by heedful's own decoding, without their full stops; "" for those that are long."""
    plain = copy.copy(translator)
    plain.engine, plain.slots = None, None
    most = 4 * max((len(text.split()) for text in texts), default=1) + LONGEST
    done = plain.translate(texts, trace=False, split=False, max_length=most)
    return ["" if one.length > most else _without_stop(one.text) for one in done]


def _without_stop(text: str) -> str:
    stripped = text.strip()
    return stripped.rstrip(".。।!?！？… ") or stripped


def weight_table(
    translator: Translator, sources: Sequence[Any], targets: Sequence[str], batch_tokens: int = 0, apart: bool = False
) -> WeightTable:
    """Return the weights of all layers and heads for given pairs, at both steps and with norms.

    Words are what white space separates; with `apart`, those of the trace, with punctuation apart (`words_apart`).
    """
    model = translator.parts.model
    if isinstance(model, Ensemble):
        raise ConfigError("an ensemble is several models; select the read-out of each")
    words = words_apart if apart else Text.spaced

    def read(memory: Memory, ids: Sequence[Sequence[int]]) -> list[AttentionReading]:
        return read_attention(model, memory, ids, after=True, norms=True, log_probs=False)

    readings = translator.pairs(sources, targets, read, batch_tokens)
    done = {
        row: PairWeights.of(words(x), words(y), reading.weights, reading.after, reading.norms)
        for row, x, y, reading in readings
    }
    return WeightTable([done[row] for row in range(len(done))])


def words_apart(text: Text) -> Text:
    """Return a text whose punctuation is apart from its words, as a statistical aligner needs it.

    A token that both belong to is one of each.
    """
    words = []
    for word in text.written:
        for start, end in _runs(word.text, word.start):
            tokens = [i for i in range(word.first, word.last) if text.spans[i][0] < end and text.spans[i][1] > start]
            if tokens:
                words.append(Word(text.text[start:end], start, end, tokens[0], tokens[-1] + 1))
    return replace(text, words=(*words, *(word for word in text.words if word.is_special)))


def _runs(word: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a word that are punctuation, and those that are not; a mark between letters stays inside."""
    marks = [unicodedata.category(c)[0] == "P" for c in word]
    inside = [m and 0 < i < len(word) - 1 and not (marks[i - 1] or marks[i + 1]) for i, m in enumerate(marks)]
    kinds, first = [m and not i for m, i in zip(marks, inside, strict=True)], 0
    for i in range(1, len(word) + 1):
        if i == len(word) or kinds[i] != kinds[first]:
            yield start + first, start + i
            first = i


class OwnPairs(NamedTuple):
    """Sentences with the model's own translations; their words with spaces between them; and single words with theirs.

    `words` are the same pairs as the statistical aligner takes them, and `extra` are words, and every two that stand
    side by side, with their translations, for it to learn from.
    """

    sources: list[str]
    targets: list[str]
    words: list[tuple[str, str]]
    extra: list[tuple[str, str]]


def own_pairs(translator: Translator, texts: Sequence[str], most: int, batch_tokens: int = 0) -> OwnPairs:
    """Translate at most so many sentences of texts, and the words in them alone, `UNITS` at most."""
    done = translator.translate(texts, trace=False, batch_tokens=batch_tokens)
    sentences = [part for one in done for part in one.sentences or (one,)]
    pairs = [(one.source, one.text) for one in sentences if one.source.strip() and one.text.strip()]
    pairs = [pair for pair in spread_first(pairs, most)[:most] if not translator.too_long(*pair)]
    codec, target = translator.source_codec, translator.parts.target
    texts_read = [words_apart(text) for text in _read(codec, [source for source, _ in pairs])]
    single, double = (Counter(unit for text in texts_read for unit in _units(text, n)) for n in (1, 2))
    # Single words first, then pairs of words; of each, the frequent ones.
    units = list(dict.fromkeys(unit for counts in (single, double) for unit, _ in counts.most_common()))[:UNITS]
    known = [(unit, one) for unit, one in zip(units, _translated(translator, units), strict=True) if one]
    return OwnPairs(
        [source for source, _ in pairs],
        [text for _, text in pairs],
        list(zip(map(_spaced, texts_read), map(_spaced, _read(target, [text for _, text in pairs])), strict=True)),
        list(zip(*(map(_spaced, _read(c, [p[i] for p in known])) for i, c in enumerate((codec, target))), strict=True)),
    )


def _read(codec: Codec, texts: Sequence[str]) -> list[Text]:
    return [codec.trace(text, encoded) for text, encoded in zip(texts, codec.encode_all(texts), strict=True)]


def _spaced(text: Text) -> str:
    """Return the words of a text, punctuation apart, with spaces between them."""
    return " ".join(word.text for word in words_apart(text).written)


def _units(text: Text, count: int) -> Iterator[str]:
    """Yield so many words side by side, without punctuation, as they are written."""
    words = text.written
    for i in range(len(words) - count + 1):
        some = words[i : i + count]
        if all(any(c.isalpha() for c in word.text) for word in some):
            yield text.text[some[0].start : some[-1].end]
