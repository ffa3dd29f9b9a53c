"""Marian's vocabularies, put into our order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.errors import ModelError
from heedful.interop.files import json_object
from heedful.interop.names import CONFIG, TARGET_VOCABULARY, TOKENIZER, VOCABULARY
from heedful.interop.settings import Marian
from heedful.text import SPECIALS

__all__ = ["Vocabulary", "vocabularies"]


class Vocabulary(NamedTuple):
    """Tokens in our order, and at each of our ids the id that Marian has for it."""

    tokens: tuple[str, ...]
    order: tuple[int, ...]


def vocabularies(path: Path, settings: Marian) -> tuple[Vocabulary, Vocabulary]:
    """Read the vocabularies of source and target, which are one as a rule."""
    names = _names(path / VOCABULARY, settings.vocab_size)
    if not _separate(path):
        if settings.decoder_vocab_size != settings.vocab_size:
            sizes = f"{settings.vocab_size} source and {settings.decoder_vocab_size} target tokens"
            raise ModelError(f"{path}: {CONFIG} has {sizes}, but there is no {TARGET_VOCABULARY}")
        both = _order(path / VOCABULARY, names, settings)
        return both, both
    loose = settings._replace(pad_token_id=None)  # one number, and <pad> may have two
    source = _order(path / VOCABULARY, names, loose._replace(eos_token_id=None, decoder_start_token_id=None))
    target_path = path / TARGET_VOCABULARY
    target = _order(target_path, _names(target_path, settings.decoder_vocab_size), loose)
    if settings.share_encoder_decoder_embeddings and source.order != target.order:
        raise ModelError(
            f"{path}: the two languages share their word vectors (share_encoder_decoder_embeddings), but {VOCABULARY} "
            f"and {TARGET_VOCABULARY} do not have the special tokens in the same places"
        )
    if settings.pad_token_id not in (source.order[0], target.order[0]):
        raise ModelError(f"{path / CONFIG}: pad_token_id is {settings.pad_token_id}, which is not <pad>")
    return source, target


def _separate(path: Path) -> bool:
    """Whether the target language has a vocabulary of its own."""
    if (path / TOKENIZER).exists() and isinstance(said := json_object(path / TOKENIZER).get("separate_vocabs"), bool):
        return said
    return (path / TARGET_VOCABULARY).exists()


def _names(path: Path, size: int) -> list[str]:
    """Read a vocabulary: the tokens in the order of their ids."""
    ids = json_object(path, vocabulary=True)
    if any(isinstance(i, bool) or not isinstance(i, int) for i in ids.values()):
        raise ModelError(f"{path}: expected a whole number for each token")
    if len(ids) != size:
        raise ModelError(f"{path}: has {len(ids)} tokens, but {CONFIG} says {size}")
    if sorted(ids.values()) != list(range(size)):
        raise ModelError(f"{path}: the ids are not the numbers from 0 to {size - 1}")
    return sorted(ids, key=ids.__getitem__)


def _order(path: Path, names: Sequence[str], settings: Marian) -> Vocabulary:
    """Put a vocabulary into our order; an id in the settings that is None may be any."""
    places = {name: i for i, name in enumerate(names)}
    if missing := [name for name in ("<pad>", "<unk>", "</s>") if name not in places]:
        raise ModelError(f"{path}: there is no token {missing[0]}")
    pad, unknown, end = (places[name] for name in ("<pad>", "<unk>", "</s>"))
    for key, name, there in (("pad_token_id", "<pad>", pad), ("eos_token_id", "</s>", end)):
        if getattr(settings, key) not in (None, there):
            raise ModelError(f"{path}: {name} has the id {there}, but {CONFIG} says {key} {getattr(settings, key)}")
    start = places.get("<s>", pad) if settings.decoder_start_token_id is None else settings.decoder_start_token_id
    if start >= len(names):
        raise ModelError(f"{path}: has {len(names)} tokens, but {CONFIG} says decoder_start_token_id {start}")
    # A sentence that begins with a token of its own has it under our name; any other is copied and stays, too.
    taken = {pad, unknown, end} | ({start} if names[start] == "<s>" else set())
    rest = [i for i in range(len(names)) if i not in taken]
    others = [names[i] for i in rest]
    if "<s>" in others:  # a token like others, which never comes from text: only its name is taken
        free = next(name for n in range(1, len(names) + 2) if (name := "<s>" + "_" * n) not in places)
        others[others.index("<s>")] = free
    return Vocabulary((*SPECIALS, *others), (pad, unknown, start, end, *rest))
