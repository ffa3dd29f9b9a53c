"""From pairs to what a run needs: vocabularies, token ids, batches, and a checksum of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from textwrap import shorten

from heedful.config import Config
from heedful.data import Batches, Pair, Pairs, hold_out, sentence_key
from heedful.errors import DataError
from heedful.text import START, Codec

__all__ = ["Prepared", "digest", "learn_codecs", "prepare", "split"]


@dataclass(frozen=True)
class Prepared:
    """Batches to learn from, the pairs behind them, and the same for validation."""

    pairs: list[Pair]
    batches: Batches
    valid_pairs: list[Pair]
    valid_batches: Batches


def split(
    found: Pairs, valid: Pairs | None, config: Config, say: Callable[[str], None]
) -> tuple[list[Pair], list[Pair]]:
    """Return training and validation pairs, and say what was passed over."""
    for count, what in ((found.blank, "blank lines"), (found.half, "pairs with an empty side")):
        if count:
            say(f"passed over {count:,} {what}")
    most = config.training.valid_pairs
    if valid is None:
        training, held = hold_out(found.pairs, most)
        _show_first(training, say)
        aside = len(found.pairs) - len(training) - len(held)
        say(f"{len(training):,} pairs to learn from, {len(held):,} held out for validation")
        if aside:
            share = f"{aside:,} more pairs ({aside / len(found.pairs):.1%}) are not learned from"
            say(f"{share}: held out too, or with a sentence of a held-out pair; --valid FILE uses all")
        return training, held
    _show_first(found.pairs, say)
    held = valid.pairs[:most]
    if len(valid.pairs) > most:
        say(f"validation uses the first {most:,} of {len(valid.pairs):,} pairs (training.valid_pairs)")
    seen = {sentence_key(p.source) for p in found.pairs}
    both = sum(sentence_key(p.source) in seen for p in held)
    overlap = f" ({both:,} of their sources are also in training: scores on them flatter)" if both else ""
    say(f"{len(found.pairs):,} pairs to learn from, {len(held):,} for validation{overlap}")
    return found.pairs, held


def _show_first(pairs: Sequence[Pair], say: Callable[[str], None]) -> None:
    """Say the first pair: a wrong column is seen at once."""
    say("the first pair: " + " → ".join(shorten(side, 60, placeholder=" …") for side in pairs[0][:2]))


def digest(*sides: Sequence[Pair]) -> str:
    """Return a checksum of pairs, to know them again when a run is resumed."""
    total = sha256()
    for pairs in sides:
        for pair in pairs:
            total.update(f"{pair.source}\t{pair.target}\n".encode())
        total.update(b"\n")
    return total.hexdigest()


def learn_codecs(pairs: Sequence[Pair], config: Config) -> tuple[Codec, Codec]:
    """Learn the vocabularies of source and target, or one for both."""
    sources, targets = [p.source for p in pairs], [p.target for p in pairs]
    text = replace(config.text, size=config.text.size or 4000)
    if config.text.joint:
        both = Codec.train([*sources, *targets], text)
        return both, both
    return Codec.train(sources, text), Codec.train(targets, text)


def prepare(
    training: list[Pair], held: list[Pair], codecs: tuple[Codec, Codec], config: Config, say: Callable[[str], None]
) -> Prepared:
    """Encode all pairs; those over the length limit are counted, reported and left out."""
    most = config.text.max_length
    pairs, x, y = _encode(training, codecs, most, "pairs", say)
    valid_pairs, valid_x, valid_y = _encode(held, codecs, most, "validation pairs", say)
    return Prepared(pairs, _batches(x, y, config), valid_pairs, _batches(valid_x, valid_y, config))


def _encode(
    pairs: list[Pair], codecs: tuple[Codec, Codec], most: int, what: str, say: Callable[[str], None]
) -> tuple[list[Pair], list[tuple[int, ...]], list[tuple[int, ...]]]:
    source, target = codecs
    x = source.ids([p.source for p in pairs])
    y = target.ids([p.target for p in pairs])
    longest = [max(len(a), len(b)) for a, b in zip(x, y, strict=True)]
    short = [i for i, length in enumerate(longest) if length <= most]
    if len(short) < len(pairs):
        say(
            f"left out {len(pairs) - len(short):,} of {len(pairs):,} {what} with a side of more than {most:,} tokens "
            f"(text.max_length; the longest has {max(longest):,})"
        )
    if not short:
        raise DataError(f"all {what} have a side of more than {most} tokens; raise text.max_length")
    return [pairs[i] for i in short], [x[i] for i in short], [y[i] for i in short]


def _batches(x: list[tuple[int, ...]], y: list[tuple[int, ...]], config: Config) -> Batches:
    settings = config.training
    return Batches(
        x, y, start=START, tokens=settings.batch_tokens, sentences=settings.batch_sentences, seed=settings.seed
    )
