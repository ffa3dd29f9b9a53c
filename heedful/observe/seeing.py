"""Running a model of `transformers` on a text and reading the attention of every layer: `heedful.see`.

The model runs as it is, and `watch` reads the weights from its fused attention. Where that is not possible, it runs
once more with eager attention, which returns its weights.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.draw.model_attention import ModelAttention
from heedful.errors import ConfigError, DataError, HeedfulError, ModelError
from heedful.models.device import memory_guard
from heedful.observe.groups import GroupBuilder, Hold, is_dense
from heedful.observe.joining import Parts, model_name
from heedful.observe.tokens import check_length, text_of, tokenize
from heedful.observe.watching import NOTHING, AttentionCall, described, watch
from heedful.trace import Text
from heedful.trace.model_attention import EAGER, AttentionGroup, find_words

WRITTEN = 128  # tokens that an encoder-decoder model writes at most, if it is not told how many
MOST_EAGER = 1 << 30  # weights of all layers and heads that eager attention may return: 4 GiB
RETURNED = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


class _Texts(NamedTuple):
    """A tokenizer, and whether tokens are joined to words."""

    tokenizer: Any
    words: bool

    def encode(self, text: str, target: bool = False) -> tuple[list[int], Text]:
        return tokenize(self.tokenizer, text, words=self.words, target=target)

    def decode(self, ids: Sequence[int], after: Text | None = None) -> Text:
        return text_of(self.tokenizer, ids, words=self.words, after=after)


class _Run(NamedTuple):
    """One forward pass: its arguments, and for each kind of attention the texts (source, target).

    `generated` is the number of the first generated token of a decoder-only model.
    """

    given: dict[str, Any]
    texts: dict[str, tuple[Text, Text]]
    generated: int | None = None

    def builders(self, dense: Mapping[str, bool], hold: Sequence[Hold], words: Sequence[str]) -> _Builders:
        rows = {kind: [] if dense[kind] else _rows(target, words) for kind, (_, target) in self.texts.items()}
        return _Builders(
            {
                kind: GroupBuilder(kind, texts, dense[kind], hold, rows[kind], self.generated)
                for kind, texts in self.texts.items()
            }
        )


@dataclass
class _Builders:
    """The groups of one forward pass, and the modules whose attention is not read, with the reason."""

    of: dict[str, GroupBuilder]
    unread: list[tuple[str, str]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.unread and all(builder.modules for builder in self.of.values())

    def fitting(self, kind: str, sizes: tuple[int, ...]) -> GroupBuilder | None:
        """Return the builder of a kind, if the numbers of queries and keys fit.

        Cross-attention that its name does not tell from self-attention is told by them.
        """
        kinds = (kind, "cross") if kind == "decoder" else (kind,)
        return next((self.of[name] for name in kinds if name in self.of and self.of[name].sizes == sizes), None)

    def groups(self) -> list[AttentionGroup]:
        """Return all groups; raise ConfigError for a head to hold that none of them has."""
        groups = [builder.build() for builder in self.of.values() if builder.modules]
        if any(group.weights is None for group in groups):
            for layer, head in next(iter(self.of.values())).hold:
                _check_head(groups, layer, head)
        return groups


def _check_head(groups: Sequence[AttentionGroup], layer: int | None, head: int | None) -> None:
    """Raise ConfigError if no group has a head."""
    errors = []
    for group in groups:
        try:
            group.heads(layer, head)
        except ConfigError as error:
            errors.append(error)
    if len(errors) == len(groups):
        raise errors[-1]


def see(  # noqa: PLR0913  (the options of the command)
    model: nn.Module,
    tokenizer: Any,  # noqa: ANN401
    text: str,
    *,
    target: str | None = None,
    generate: int = 0,
    hold: Sequence[Hold] = (),
    word: str | Sequence[str] | None = None,
    words: bool = True,
    name: str = "",
) -> ModelAttention:
    """Run a model of `transformers` on a text and return the attention of every layer: `see(model, tokenizer, "…")`.

    A decoder-only model reads the text; with `generate` it first continues it by so many tokens, greedily, and then
    reads both. An encoder-decoder model reads the text and writes `target`; without it, what it generates itself, at
    most `generate` tokens (by default 128). The model stays on its device, and is unchanged after.

    Of a long text only a summary is held: see `AttentionGroup`. `hold` are the heads whose largest weights are held of
    it, as (layer, head) from 1, None for all; by default the sharpest ones. `word` is a word of the text, or several,
    all of whose weights are held. `words` is False for tokenizers that do not say which characters a token stands for:
    then every token is a word. `name` is that of the model in figures.
    """
    hold = _checked(model, tokenizer, text, target, generate, hold, word)
    model = Parts.of(model).model  # without a wrapper
    if not hasattr(model, "config"):
        raise ConfigError(
            f"model is {type(model).__name__}, no model of transformers; heedful.watch reads any torch.nn.Module"
        )
    parts = Parts.of(model)
    with _lock(model), _unchanged(model):
        prepare = _encoder_decoder if parts.decoder is not None else _single
        run = prepare(model, _Texts(tokenizer, bool(words)), text, target, generate)
        groups = _read(model, parts, run, hold, (word,) if isinstance(word, str) else tuple(word or ()))
    return ModelAttention(name or model_name(model), groups)


def _checked(
    model: object,
    tokenizer: object,
    text: object,
    target: object,
    generate: object,
    hold: Iterable[Hold],
    word: object,
) -> list[Hold]:
    """Raise ConfigError or DataError for wrong arguments of `see`; return the heads to hold."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model is {type(model).__name__}, expected a model of transformers, a torch.nn.Module")
    if not callable(tokenizer):
        raise ConfigError(f"tokenizer is {type(tokenizer).__name__}, expected the model's tokenizer of transformers")
    for what, value in (("text", text), ("target", target)):
        if value is None and what == "target":
            continue
        if not isinstance(value, str):
            raise ConfigError(f"{what} is {type(value).__name__}, expected one text: a str")
        if not value.strip():
            raise DataError(f"the {what} is blank; give at least one word")
    if not isinstance(generate, int) or isinstance(generate, bool) or generate < 0:
        raise ConfigError(f"generate={generate!r}: how many tokens the model writes, a whole number of at least 0")
    if target is not None and generate:
        raise ConfigError("target and generate cannot be combined: the target is either given or generated")
    pairs = [tuple(pair) if isinstance(pair, Sequence) and not isinstance(pair, str) else (pair,) for pair in hold]
    for pair in pairs:
        numbers = all(x is None or (isinstance(x, int) and not isinstance(x, bool) and x >= 1) for x in pair)
        if len(pair) != 2 or not numbers:
            raise ConfigError(f"hold: {pair!r:.60} is not (layer, head), both counted from 1, or None for all")
    if word is not None and not (isinstance(word, Iterable) and all(isinstance(one, str) for one in word)):
        raise ConfigError(f"word={word!r:.60}: a word of the text, or several, each a str")
    return [(pair[0], pair[1]) for pair in pairs]


_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_NEW_LOCK = threading.Lock()


def _lock(model: nn.Module) -> threading.RLock:
    """Return the lock of a model, whose mode and settings are changed while it runs."""
    with _NEW_LOCK:
        return _LOCKS.setdefault(model, threading.RLock())


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Run a model for evaluation, without gradients; restore its mode and the states of random numbers after."""
    import numpy as np

    training = [(module, module.training) for module in model.modules()]
    device = _device(model)
    cuda = [device] if device.type == "cuda" else []
    numbers = np.random.get_state()  # BigBird draws from it
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(cuda):
            yield
    finally:
        np.random.set_state(numbers)
        for module, was in training:
            module.training = was


def _device(model: nn.Module) -> torch.device:
    """Return the device of a model's first weight."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _single(model: nn.Module, texts: _Texts, text: str, target: str | None, generate: int) -> _Run:
    """Return the run of an encoder or of a decoder-only model."""
    architecture = type(model).__name__
    if target is not None:
        raise ConfigError(f"{architecture} is no encoder-decoder model, so that it has no target; leave target out")
    ids, read = texts.encode(text)
    _check_ids(model, ids)
    generated = None
    if generate:
        if not _can_generate(model):
            raise ConfigError(
                f"{architecture} does not generate text; leave generate out, or load a decoder-only model with "
                "AutoModelForCausalLM"
            )
        generated = len(ids)
        _check_ids(model, ids, generate)
        ids = _generate(model, texts.tokenizer, ids, generate)
        read = texts.decode(ids[generated:], read)
    return _Run(_inputs(model, ids), {"self": (read, read)}, generated)


def _encoder_decoder(model: nn.Module, texts: _Texts, text: str, target: str | None, generate: int) -> _Run:
    """Return the run of an encoder-decoder model, whose decoder reads a start token and the target without its end."""
    parts = Parts.of(model)
    ids, source = texts.encode(text)
    _check_ids(model, ids, part=parts.encoder)
    if target is None:
        if not _can_generate(model):
            raise ConfigError(
                f"{type(model).__name__} does not generate text; give target, or load the model with "
                "AutoModelForSeq2SeqLM"
            )
        outputs = _generate(model, texts.tokenizer, ids, generate or WRITTEN)
        inputs, written = outputs[:-1], texts.decode(outputs[1:])
    else:
        ids_written, written = texts.encode(target, target=True)
        inputs = _shifted(model, ids_written)
    _check_ids(model, inputs, part=parts.decoder)
    read = texts.decode(inputs)
    given = {**_inputs(model, ids), "decoder_input_ids": _tensor(model, inputs)}
    return _Run(given, {"encoder": (source, source), "decoder": (read, read), "cross": (source, written)})


def _tensor(model: nn.Module, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=_device(model))


def _inputs(model: nn.Module, ids: Sequence[int]) -> dict[str, Any]:
    """Return the arguments of a forward pass over tokens, without a cache and with as few logits as possible."""
    takes = inspect.signature(model.forward).parameters
    tokens = _tensor(model, ids)
    given: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    given |= {"use_cache": False} if "use_cache" in takes else {}
    return given | ({"logits_to_keep": 1} if "logits_to_keep" in takes else {})


def _shifted(model: nn.Module, written: Sequence[int]) -> list[int]:
    """Return what the decoder reads to write some tokens: a start token, and all of them but the last."""
    prepare = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if prepare is not None:
        with _failing(model):
            ids: list[int] = prepare(labels=_tensor(model, written))[0].tolist()
        return ids
    settings: list[Any] = [getattr(model, "generation_config", None), model.config]
    starts = [getattr(one, name, None) for name in ("decoder_start_token_id", "bos_token_id") for one in settings]
    start = next((value for value in starts if isinstance(value, int)), None)
    if start is None:
        raise ModelError(f"{type(model).__name__} has no decoder_start_token_id, so that no target can be read")
    return [start, *written[:-1]]


def _can_generate(model: nn.Module) -> bool:
    check = getattr(model, "can_generate", None)
    return bool(check is not None and check())


def _check_ids(model: nn.Module, ids: Sequence[int], more: int = 0, part: nn.Module | None = None) -> None:
    """Raise DataError for tokens that the model does not have, and for more tokens than it has positions.

    `part` is its encoder or decoder, which reads them.
    """
    find: Any = getattr(model, "get_input_embeddings", lambda: None)
    embedding = find()
    rows = getattr(embedding, "num_embeddings", None)
    if rows is not None and ids and max(ids) >= rows:
        raise DataError(
            f"the tokenizer gives token {max(ids)}, but the model has {rows:,} tokens; use the tokenizer of this model"
        )
    check_length(model, len(ids) + more, part)


def _generate(model: Any, tokenizer: Any, ids: Sequence[int], count: int) -> list[int]:  # noqa: ANN401
    """Return what a model generates greedily, at most `count` tokens: the prompt, or the start token, and these."""
    settings = copy.deepcopy(model.generation_config)
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "cache_implementation")
    plain = dict.fromkeys(name for name in names if getattr(settings, name, None) is not None)
    settings.update(do_sample=False, num_beams=1, num_return_sequences=1, max_new_tokens=count, **plain)
    settings.update(return_dict_in_generate=False, output_attentions=False, max_length=None)
    if settings.pad_token_id is None:
        ends = settings.eos_token_id
        settings.pad_token_id = ends[0] if isinstance(ends, list) else ends if ends is not None else 0
    if settings.forced_bos_token_id is None:
        settings.forced_bos_token_id = _target_language(tokenizer) if model.config.is_encoder_decoder else None
    tokens = _tensor(model, ids)
    with _quiet(), _failing(model):
        output = model.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=settings)
    written: list[int] = output[0].tolist()
    return written


def _target_language(tokenizer: Any) -> int | None:  # noqa: ANN401
    """Return the token of the language that a tokenizer is set to translate into (`tgt_lang`), or None."""
    language = getattr(tokenizer, "tgt_lang", None)
    if not language:
        return None
    if hasattr(tokenizer, "get_lang_id"):
        return int(tokenizer.get_lang_id(language))
    token = tokenizer.convert_tokens_to_ids(language)
    return token if isinstance(token, int) and token != tokenizer.unk_token_id else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the messages of `transformers` about settings from the terminal; errors are still raised."""
    from transformers.utils import logging as messages

    level = messages.get_verbosity()
    messages.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        messages.set_verbosity(level)


@contextmanager
def _failing(model: nn.Module) -> Iterator[None]:
    """Raise ModelError, with the name of the architecture, for an error of the model."""
    name = type(model).__name__
    try:
        with memory_guard(f"running {name} on this text", "shorten it, or use another device"):
            yield
    except HeedfulError:
        raise
    except Exception as error:
        raise ModelError(f"{name} failed on this text: {described(error)}") from error


def _read(
    model: nn.Module, parts: Parts, run: _Run, hold: Sequence[Hold], words: Sequence[str]
) -> list[AttentionGroup]:
    """Return the groups of a run: from its fused attention, otherwise from eager attention."""
    dense = _dense(model, run.texts)
    if words and not all(dense.values()) and not any(_rows(target, words) for _, target in run.texts.values()):
        find_words(next(iter(run.texts.values()))[1], words[0])  # which raises DataError
    partial: list[AttentionGroup] = []
    why, unread = "it neither calls scaled_dot_product_attention nor returns its weights (output_attentions)", ""
    for way in _ways(model, all(dense.values())):
        builders = run.builders(dense, hold, words)
        try:
            with _attention_by(model, way), _failing(model):
                read = _by_eager if way == EAGER else _by_watching
                read(model, parts, run, builders)
        except (DataError, ConfigError):
            raise
        except ModelError as error:
            why = str(error)
            continue
        if builders.complete:
            return builders.groups()
        if builders.unread:
            why = "; ".join(f"{module or 'the model'}: {reason}" for module, reason in builders.unread[:2])
        if not partial and any(builder.modules for builder in builders.of.values()):
            partial, unread = builders.groups(), why
    if not partial:
        raise ModelError(f"the attention of {type(model).__name__} cannot be read: {why}")
    warnings.warn(f"some attention of {type(model).__name__} is not read: {unread}", UserWarning, stacklevel=3)
    return partial


def _dense(model: nn.Module, texts: Mapping[str, tuple[Text, Text]]) -> dict[str, bool]:
    """Return for each kind whether all weights are held, by the sizes that the model's settings name."""
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    sizes = {
        kind: (
            getattr(config, f"{kind}_layers", None) or getattr(config, "num_hidden_layers", None) or 12,
            getattr(config, f"{kind}_attention_heads", None) or getattr(config, "num_attention_heads", None) or 12,
        )
        for kind in texts
    }
    return {
        kind: is_dense(*sizes[kind], len(target.tokens), len(source.tokens)) for kind, (source, target) in texts.items()
    }


def _ways(model: nn.Module, dense: bool) -> list[str]:
    """Return the implementations of attention to try, in order; "" is the one that the model has."""
    now = str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")
    fused = bool(getattr(model, "_supports_sdpa", False))
    if now == EAGER and (dense or not fused):
        return [EAGER, ""]
    if now in ("", "sdpa") or not fused:
        return ["", EAGER]
    return ["sdpa", EAGER, ""]


@contextmanager
def _attention_by(model: Any, way: str) -> Iterator[None]:  # noqa: ANN401
    """Use one implementation of attention, and restore the settings after."""
    now = str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")
    if way in ("", now) or not hasattr(model, "set_attn_implementation"):
        yield
        return
    configs = {id(one): one for one in _configs(model)}
    before = {key: one._attn_implementation_internal for key, one in configs.items()}
    try:
        with _quiet():
            model.set_attn_implementation(way)
        if model.config._attn_implementation != way:  # then what it returns as its weights may be wrong, as Falcon's is
            raise ModelError(f"{type(model).__name__} cannot be set to {way} attention")
        yield
    finally:
        for key, one in configs.items():
            one._attn_implementation_internal = before[key]


def _configs(model: nn.Module) -> Iterator[Any]:
    """Yield the settings of a model, of its parts, and those inside them."""
    waiting: list[Any] = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        one = waiting.pop()
        if hasattr(one, "_attn_implementation_internal"):
            yield one
            waiting += [getattr(one, name) for name in one.sub_configs if getattr(one, name, None) is not None]


def _by_watching(model: nn.Module, parts: Parts, run: _Run, builders: _Builders) -> None:
    """Read the weights of every call of `scaled_dot_product_attention`, and free its tensors at once."""

    def read(call: AttentionCall) -> None:
        B, H, *sizes = call.shape
        builder, weights = builders.fitting(parts.kind(call.module), tuple(sizes)), call.weights
        assert weights is not None
        if builder is None or B != 1:
            builders.unread.append((call.module, f"weights of {' × '.join(map(str, call.shape))} fit no text"))
            return
        builder.add(call.module, call.backend, H, lambda at: weights.tiles(0, slice(None) if at is None else at))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NOTHING[:40])
        with watch(model, each=read) as calls:
            model(**run.given)
    builders.unread += calls.unread


def _by_eager(model: nn.Module, parts: Parts, run: _Run, builders: _Builders) -> None:
    """Read the weights that the model returns."""
    config: Any = model.config
    for builder in builders.of.values():
        T, S = builder.sizes
        L, H = (int(getattr(config, name, 1) or 1) for name in ("num_hidden_layers", "num_attention_heads"))
        if L * H * T * S > MOST_EAGER:
            most = int((MOST_EAGER / (L * H)) ** 0.5)
            raise DataError(
                f"the text has {max(T, S):,} tokens, but the attention of {type(model).__name__} is not fused, and "
                f"eager attention returns all weights of all heads; shorten it to about {most:,} tokens"
            )
    output = model(**run.given, output_attentions=True, return_dict=True)
    for kind, builder in builders.of.items():
        layers = [layer for layer in getattr(output, RETURNED[kind], None) or () if isinstance(layer, Tensor)]
        names = _layer_names(parts, kind, len(layers))
        for i, (name, layer) in enumerate(zip(names, layers, strict=True)):
            layer = _unfolded(layer, config, i, builder.sizes)
            if layer.dim() != 4 or (layer.shape[0], *layer.shape[2:]) != (1, *builder.sizes):
                shape = " × ".join(map(str, layer.shape))
                builders.unread.append((name, f"eager attention returns weights of {shape}, which fit no text"))
                continue
            builder.add(name, EAGER, layer.shape[1], _tiles_of(layer[0]))


def _unfolded(layer: Tensor, config: Any, number: int, sizes: tuple[int, int]) -> Tensor:  # noqa: ANN401
    """Return Longformer's weights in a window around each token as weights on all tokens; others as they are."""
    windows = getattr(config, "attention_window", None)
    window = windows[number] if isinstance(windows, list) and number < len(windows) else windows
    T, S = sizes
    if not isinstance(window, int) or T != S or layer.dim() != 4 or layer.shape[2:] != (T, window + 1):
        return layer
    shifts = torch.arange(window + 1, device=layer.device) - window // 2
    padded = layer.new_zeros(*layer.shape[:3], T + window)
    at = torch.arange(T, device=layer.device)[:, None] + shifts + window // 2
    return padded.scatter_(3, at.expand(layer.shape), layer)[..., window // 2 : window // 2 + T]


def _tiles_of(weights: Tensor) -> Callable[[Sequence[int] | None], Iterator[tuple[slice, Tensor]]]:
    """Return the tiles of weights that are held.  (H, T, S)."""
    H, T, S = weights.shape
    count = max(1, (1 << 20) // max(1, H * S))

    def tiles(heads: Sequence[int] | None) -> Iterator[tuple[slice, Tensor]]:
        some = weights if heads is None else weights[list(heads)]
        for begin in range(0, T, count):
            yield slice(begin, min(T, begin + count)), some[:, begin : begin + count].float()

    return tiles


def _layer_names(parts: Parts, kind: str, count: int) -> list[str]:
    """Return names for the layers of eager attention: those of the model's list of layers, if it has so many."""
    decodes = parts.decoder is not None and kind in ("decoder", "cross")
    part, name = (parts.decoder, parts.decoder_name) if decodes else (parts.encoder, parts.encoder_name)
    for inner, module in part.named_modules() if part is not None else ():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return [f"{name}.{inner}.{i}".strip(".") for i in range(count)]
    return [f"{kind}.{i}" for i in range(count)]


def _rows(text: Text, words: Sequence[str]) -> list[int]:
    """Return the tokens of words, of those that are in the text."""
    rows: list[int] = []
    for word in words:
        try:
            numbers = find_words(text, word)
        except DataError:
            continue
        rows += [i for n in numbers for i in range(text.words[n].first, text.words[n].last)]
    return list(dict.fromkeys(rows))
