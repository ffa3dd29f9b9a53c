"""Joining the calls of a run: the passes that continue a sequence with a cache, and the layers of each kind.

While a model generates, every layer is called once for the prompt and then once for each token, with the keys of all
tokens so far. Joined, its calls are one map of weights, as if the model had read the whole sequence at once.
"""

from __future__ import annotations

import copy
import inspect
import re
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.draw.model_attention import ModelAttention
from heedful.errors import ConfigError
from heedful.fused.triton.scaled import ScaledWeights
from heedful.fused.triton.scaled_plain import Scores
from heedful.observe.groups import GroupBuilder, Tile, is_dense
from heedful.observe.tokens import text_of
from heedful.trace import Text, Word
from heedful.trace.model_attention import KINDS, AttentionGroup, by_tokens

# Names of modules that attend to the encoder's output, inside a decoder.
CROSS = re.compile("encoder_att|enc_?dec_?att|cross_?att|multihead_attn|encoder_?decoder_?att", re.IGNORECASE)
NEXT = "[next]"  # in place of a written token that the model did not read any more
COMPARED = 8  # keys of a pass that are compared with those of the pass before
CLOSE = 1e-3  # keys of a cache that differ by more are those of another sequence


class Parts(NamedTuple):
    """The modules of a model that read tokens, with their names inside it: one of `transformers`, or `nn.Transformer`.

    `decoder` is None for encoders and for decoder-only models, whose `encoder` is the whole model.
    """

    model: nn.Module
    encoder: nn.Module
    decoder: nn.Module | None
    encoder_name: str
    decoder_name: str

    @classmethod
    def of(cls, model: nn.Module) -> Parts:
        """Return the parts of a model; those of the first model of `transformers` inside, if it is a wrapper."""
        inner = next((m for m in model.modules() if hasattr(m, "config") and hasattr(m, "get_encoder")), None)
        if inner is None:
            inner = next((m for m in model.modules() if isinstance(m, nn.Transformer)), model)
        decodes = isinstance(inner, nn.Transformer) or _has_decoder(inner)
        if inner is model and not decodes:
            return cls(model, model, None, "", "")  # most models; naming all modules takes longer than a layer
        names = {id(module): name for name, module in model.named_modules()}
        if decodes:
            found: Any = inner
            plain = isinstance(inner, nn.Transformer)
            encoder = found.encoder if plain else found.get_encoder()
            decoder = found.decoder if plain else found.get_decoder()
            if id(encoder) in names and id(decoder) in names and encoder is not decoder:
                return cls(inner, encoder, decoder, names[id(encoder)], names[id(decoder)])
        return cls(inner, inner, None, names[id(inner)], "")

    def kind(self, module: str) -> str:
        """Return the kind of the attention of a module, by its name; "" if it is outside of all parts."""
        if self.decoder is None:
            return "self" if _inside(module, self.encoder_name) else ""
        if _inside(module, self.decoder_name):
            return "cross" if CROSS.search(module[len(self.decoder_name) :]) else "decoder"
        return "encoder" if _inside(module, self.encoder_name) else ""


def _inside(module: str, name: str) -> bool:
    return not name or module == name or module.startswith(f"{name}.")


def _has_decoder(model: nn.Module) -> bool:
    """Whether a model of `transformers` has an encoder and a decoder."""
    config: Any = getattr(model, "config", None)
    reads = inspect.signature(model.forward).parameters
    return bool(getattr(config, "is_encoder_decoder", False)) and "decoder_input_ids" in reads


def model_name(model: nn.Module) -> str:
    """Return the name of a model: that of the hub, its folder, or its class."""
    name = str(getattr(model, "name_or_path", "") or "")
    name = "" if name == "None" else name  # of a GGUF file
    return (Path(name).name if name and Path(name).is_dir() else name) or type(model).__name__


class ForwardPass(NamedTuple):
    """The inputs of one forward pass of a model, or of its encoder or decoder.

    `ids` (B, T), None for embeddings; `shape` is (B, T), None for other inputs than tokens. `keep` (B, past + T) is the
    mask of padding, `past` the number of tokens in the cache, and `cached` whether there is one that tells. `own`
    (B, T) tells which tokens of this pass are no padding, by a mask of four axes. `left` is the number of tokens in the
    cache at the end of the block, for the last pass.
    """

    part: str
    ids: Tensor | None
    shape: tuple[int, int] | None
    keep: Tensor | None
    past: int
    cached: bool
    own: Tensor | None = None
    left: int | None = None


@contextmanager
def recording(parts: Parts, passes: list[ForwardPass]) -> Iterator[None]:
    """Record the inputs of every forward pass of a model in this thread."""
    owner = threading.get_ident()
    decodes = parts.decoder is not None
    modules = [("encoder" if decodes else "self", parts.encoder)]
    modules += [("decoder", parts.decoder)] if parts.decoder is not None else []
    caches: dict[str, tuple[int, Any]] = {}  # by part: the number of its last pass, and a layer of the cache
    with ExitStack() as until:
        until.callback(_record_left, passes, caches)
        for part, module in modules:
            made_for, names = weakref.ref(module), list(inspect.signature(module.forward).parameters)

            def record(
                module: nn.Module,
                args: tuple[Any, ...],
                kwargs: dict[str, Any],
                part: str = part,
                made_for: Any = made_for,  # noqa: ANN401
                names: Sequence[str] = names,
            ) -> None:
                # A deep copy of the model shares its hooks.
                if module is made_for() and threading.get_ident() == owner:
                    given = dict(zip(names, args, strict=False)) | kwargs
                    caches[part] = (len(passes), _cache_layer(given.get("past_key_values")))
                    passes.append(_pass(part, given))

            until.callback(module.register_forward_pre_hook(record, with_kwargs=True).remove)
        yield


def _pass(part: str, given: dict[str, Any]) -> ForwardPass:
    ids, embeddings, mask = (given.get(name) for name in ("input_ids", "inputs_embeds", "attention_mask"))
    # Copied, because a loop may write the next tokens into the same tensor.
    ids = ids.detach().clone() if isinstance(ids, Tensor) and ids.dim() == 2 else None
    shape = None if ids is None else (ids.shape[0], ids.shape[1])
    if ids is None and isinstance(embeddings, Tensor) and embeddings.dim() == 3:
        shape = embeddings.shape[0], embeddings.shape[1]
    keep = mask.detach().clone() if isinstance(mask, Tensor) and mask.dim() == 2 else None
    cache: Any = given.get("past_key_values")
    cached = hasattr(cache, "get_seq_length")
    past = int(cache.get_seq_length()) if cached else 0
    return ForwardPass(part, ids, shape, keep, past, cached, None if shape is None else _own(mask, past, shape[1]))


def _own(mask: object, past: int, T: int) -> Tensor | None:
    """Return which tokens of a pass are attended to in it, as all but padding are.  mask (B, 1, T, S) -> (B, T).

    Models with several kinds of layers have a dict of masks. In a window the last column is that of the last token.
    """
    masks = list(mask.values()) if isinstance(mask, Mapping) else [mask]
    mask = next((one for one in masks if isinstance(one, Tensor) and one.dim() == 4 and one.shape[2] == T), None)
    if not isinstance(mask, Tensor) or mask.shape[3] < T:
        return None
    first = min(past, mask.shape[3] - T)
    return _attended(mask.detach()[:, 0, :, first : first + T]).any(1)


def _attended(mask: Tensor) -> Tensor:
    """Return where a mask lets queries attend: True, or a number to add that is not very small."""
    return mask > torch.finfo(mask.dtype).min / 2 if mask.is_floating_point() else mask.bool()


def _cache_layer(cache: Any) -> Any:  # noqa: ANN401
    """Return the first layer of a cache of `transformers`, which tells its length; None if there is none."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None)
    return layers[0] if isinstance(layers, list) and layers and hasattr(layers[0], "get_seq_length") else None


def _record_left(passes: list[ForwardPass], caches: Mapping[str, tuple[int, Any]]) -> None:
    """Record how many tokens a cache has at the end: assisted generation takes back those it rejects."""
    for number, layer in caches.values():
        if layer is not None:
            passes[number] = passes[number]._replace(left=int(layer.get_seq_length()))


class RecordedCall(Protocol):
    """One call of attention, as `watch` keeps it; `run` is the number of its forward pass, or -1."""

    module: str
    shape: tuple[int, int, int, int]
    backend: str
    weights: ScaledWeights | None
    run: int


@dataclass
class _TokenSequence:
    """The tokens of one row of a batch that a part of a model has read.

    `spans` are the tokens of each pass by its number, first and last, with padding; `lengths` is how many it read.
    `positions` are those that are no padding, `ids` their tokens or None, and `generated` the number of the first that
    is not of the first pass, None if later passes read several tokens. `ended`: the last one ends the text, so that
    nothing was written after it.
    """

    row: int
    rows: int
    spans: dict[int, tuple[int, int]]
    lengths: dict[int, int]
    positions: NDArray[np.int64]
    ids: list[int] | None
    generated: int | None
    ended: bool

    @property
    def count(self) -> int:
        """The number of tokens with padding."""
        return max(end for _, end in self.spans.values())


class _CallRows(NamedTuple):
    """A call whose rows are rows `begin` to `end` of the joined map, and whose columns begin at column `offset`."""

    weights: ScaledWeights
    begin: int
    end: int
    offset: int


@dataclass
class _JoinedLayer:
    """The calls of one layer."""

    module: str
    kind: str
    backend: str
    pieces: list[_CallRows] = field(default_factory=list)

    @property
    def keys(self) -> int:
        """The number of keys of the first call."""
        return self.pieces[0].weights.shape[3]


def join(
    parts: Parts,
    passes: Sequence[ForwardPass],
    calls: Sequence[RecordedCall],
    tokenizer: Any,  # noqa: ANN401
    row: int,
) -> ModelAttention:
    """Return the attention of one row of the batch, of the last sequence if several were read.

    Raise ConfigError if calls are missing or were freed, and if rows were reordered, as in beam search.
    """
    if not isinstance(row, int) or isinstance(row, bool):
        raise ConfigError(f"row={row!r}: the number of a row of the batch, from 0")
    if any(call.weights is None for call in calls):
        raise ConfigError("the weights were freed; to join calls, watch without each, and with after='keep' or 'cpu'")
    if not any(call.run >= 0 for call in calls):  # not the model was called, but something inside it
        passes, calls = [ForwardPass("self", None, None, None, 0, False)], _last_calls(calls)
        parts = parts._replace(decoder=None, encoder_name="")
    tokens = _sequences(parts, passes, calls, tokenizer, row)
    layers, unread = _layers(parts, passes, calls, tokens)
    names = ", ".join(list(dict.fromkeys(unread))[:3])
    if not layers:
        raise ConfigError(
            f"no call fits the tokens that the model was called with, nor a cache of transformers: {names}"
        )
    if unread:
        warnings.warn(f"attention that fits no sequence of tokens is left out: {names}", UserWarning, stacklevel=4)
    kinds = [kind for kind in KINDS if any(layer.kind == kind for layer in layers)]
    return ModelAttention(
        model_name(parts.model),
        [_group(kind, [x for x in layers if x.kind == kind], tokens, tokenizer) for kind in kinds],
    )


def _last_calls(calls: Sequence[RecordedCall]) -> list[RecordedCall]:
    """Return the last call of each module, as of one pass."""
    last = {call.module: copy.copy(call) for call in calls}
    for call in last.values():
        call.run = 0
    return list(last.values())


def _sequences(
    parts: Parts,
    passes: Sequence[ForwardPass],
    calls: Sequence[RecordedCall],
    tokenizer: Any,  # noqa: ANN401
    row: int,
) -> dict[str, _TokenSequence]:
    """Return the tokens of the last sequence by part: "self", or "encoder" and "decoder", if they ran."""
    ends = _end_tokens(parts.model, tokenizer)
    if parts.decoder is None:
        return {"self": _sequence(range(len(passes)), passes, calls, row, ends)}
    found = {}
    if decoding := [i for i, one in enumerate(passes) if one.part == "decoder"]:
        found["decoder"] = _sequence(decoding, passes, calls, row, ends)
    first = min(found["decoder"].spans) if found else len(passes)
    if encoding := [i for i, one in enumerate(passes) if one.part == "encoder" and i < first]:
        encoder = _sequence(encoding, passes, calls, 0, _EndTokens())
        if found:  # each row of the encoder may have several in the decoder
            row = row * encoder.rows // found["decoder"].rows
        found["encoder"] = _sequence(encoding, passes, calls, row, _EndTokens())
    return found


class _EndTokens(NamedTuple):
    """The tokens that end a generated text, and those that pad it."""

    ends: frozenset[int] = frozenset()
    padding: frozenset[int] = frozenset()

    def find(self, ids: Sequence[int], first: int) -> int:
        """Return the number of the token that ends the text, from `first` on: only padding may follow it.

        Without one, the number of tokens. In a conversation, further turns may follow such a token.
        """
        for i in range(first, len(ids)):
            rest = set(ids[i + 1 :])
            if ids[i] in self.ends and (rest <= self.ends | self.padding or (not self.padding and len(rest) == 1)):
                return i
        return len(ids)


def _end_tokens(model: nn.Module, tokenizer: Any) -> _EndTokens:  # noqa: ANN401
    """Return the tokens that end a generated text, and those that pad it."""
    settings: Any = getattr(model, "generation_config", None)
    ends = getattr(settings, "eos_token_id", None)
    pads = [getattr(one, "pad_token_id", None) for one in (settings, getattr(model, "config", None), tokenizer)]
    return _EndTokens(
        frozenset(ends if isinstance(ends, list | tuple) else () if ends is None else (int(ends),)),
        frozenset(pad for pad in pads if isinstance(pad, int)),
    )


def _sequence(
    numbers: Sequence[int],
    passes: Sequence[ForwardPass],
    calls: Sequence[RecordedCall],
    row: int,
    ends: _EndTokens,
) -> _TokenSequence:
    """Return the tokens of the last sequence of some passes: one with an empty cache, and those that continue it."""
    starts = [i for i in numbers if passes[i].past == 0]
    if not starts:
        raise ConfigError(
            f"the cache had {passes[numbers[0]].past} tokens before the block began; generate the whole text inside it"
        )
    spans: dict[int, tuple[int, int]] = {}
    lengths: dict[int, int] = {}
    ids: list[int] | None = []
    rows = end = 0
    for i in (i for i in numbers if i >= starts[-1]):
        one = passes[i]
        rows, length = one.shape or _shape(i, calls)
        if not 0 <= row < rows:
            raise ConfigError(f"row={row}: the batch has rows 0 to {rows - 1}")
        if one.past > end:
            raise ConfigError(
                f"{one.past - end} tokens of the cache were read outside of the block, or in another thread"
            )
        # Assisted generation takes tokens back, and reads others in their place.
        spans = {j: (a, min(b, one.past)) for j, (a, b) in spans.items() if a < one.past}
        spans[i], end, lengths[i] = (one.past, one.past + length), one.past + length, length
        ids = None if ids is None or one.ids is None else ids[: one.past] + one.ids[row].tolist()
    begin, left, keep = max(spans.values())[0], passes[max(spans)].left, passes[max(spans)].keep
    if left is not None and begin < left < end:
        spans[max(spans)], end = (begin, left), left
        ids = None if ids is None else ids[:end]
    kept = np.ones(end, dtype=bool)
    for i, (a, b) in spans.items():
        if (own := passes[i].own) is not None and own.shape[0] in (1, rows):
            kept[a:b] = own[row % own.shape[0], : b - a].cpu().numpy()
    if keep is not None and keep.shape[0] == rows and keep.shape[1] >= end:
        kept = keep[row, :end].bool().cpu().numpy()
    first = next(iter(spans.values()))[1]
    ended = False
    if ids is not None and len(spans) > 1:
        # Rows that have ended are padded while others go on.
        last = ends.find(ids, first)
        kept[last + 1 :] = False
        ended = last < end
    positions = np.flatnonzero(kept)
    # After a pass of several tokens it is not known which were generated: a prompt in parts, or a further turn.
    is_generated = len(spans) > 1 and all(lengths[i] == 1 for i in list(spans)[1:])
    return _TokenSequence(
        row,
        rows,
        spans,
        lengths,
        positions,
        None if ids is None else [ids[i] for i in positions],
        int(np.searchsorted(positions, first)) if is_generated else None,
        ended,
    )


def _shape(number: int, calls: Sequence[RecordedCall]) -> tuple[int, int]:
    """Return the size of the batch and the number of tokens of a pass, by its calls."""
    shapes = Counter((call.shape[0], call.shape[2]) for call in calls if call.run == number)
    return max(shapes, key=shapes.__getitem__, default=(1, 0))


def _layers(
    parts: Parts, passes: Sequence[ForwardPass], calls: Sequence[RecordedCall], tokens: Mapping[str, _TokenSequence]
) -> tuple[list[_JoinedLayer], list[str]]:
    """Return the layers in order, and the modules whose calls fit no sequence.

    A module that is called several times in a pass is several layers, as in ALBERT.
    """
    layers: dict[tuple[str, int], _JoinedLayer] = {}
    unread, times = [], Counter[tuple[str, int]]()
    modules = dict.fromkeys(call.module for call in calls)
    kinds = {name: parts.kind(name) for name in modules}
    if parts.decoder is None:
        kinds |= {name: "cross" for name, kind in kinds.items() if kind == "self" and _is_cross(name, modules)}
    keys: int | None = None  # of cross-attention
    for call in calls:
        kind = kinds[call.module]
        sequence = _queries(kind, tokens)
        if sequence is None or call.run not in sequence.spans or call.weights is None:
            continue
        one, (begin, end), (B, _, T, S) = passes[call.run], sequence.spans[call.run], call.shape
        other = tokens["encoder"].count if "encoder" in tokens else S
        if kind == "decoder" and not one.past and T > S == other:
            kind = "cross"  # whatever its name: fewer keys than queries
        fits = (keys or S) == S if kind == "cross" else _fits(one, call.weights.scores)
        if (sequence.rows, sequence.lengths[call.run]) != (B, T) or not fits:
            unread.append(call.module)
            continue
        keys = S if kind == "cross" else keys
        at = (call.module, times[call.module, call.run])
        times[call.module, call.run] += 1
        layer = layers.setdefault(at, _JoinedLayer(call.module, kind, call.backend))
        offset = 0 if layer.kind == "cross" else max(0, one.past + T - S)
        layer.pieces.append(_CallRows(call.weights, begin, end, offset))
    for layer in layers.values():
        sequence = _queries(layer.kind, tokens)
        assert sequence is not None
        if len(layer.pieces) < len(sequence.spans):
            raise ConfigError(
                f"{layer.module} has {len(layer.pieces)} calls for {len(sequence.spans)} passes; to join them, watch "
                "without last"
            )
    # The keys of the last layer depend on all tokens before.
    for layer in [layer for layer in layers.values() if layer.kind != "cross"][-1:]:
        _check_rows(layer.pieces)
    return list(layers.values()), unread


def _is_cross(module: str, modules: Iterable[str]) -> bool:
    """Whether a module attends to another text, by its name, beside self-attention of the same layer."""
    found = CROSS.search(module)
    layer = module[: found.start()] if found else ""
    return found is not None and any(name.startswith(layer) and not CROSS.search(name) for name in modules)


def _queries(kind: str, tokens: Mapping[str, _TokenSequence]) -> _TokenSequence | None:
    """Return the tokens whose queries attend."""
    return tokens.get("decoder", tokens.get("self")) if kind == "cross" else tokens.get(kind)


def _fits(one: ForwardPass, scores: Scores) -> bool:
    """Whether the keys of a call of self-attention are the tokens of the cache and of the pass.

    Those of a window are the last of them. A static cache has more keys, which nothing attends to yet.
    """
    _, _, T, S = scores.shape
    end = one.past + T
    if end >= S:
        return S == T or (one.cached and T < S)
    if not one.cached or scores.bias is not None:
        return False
    mask = scores.mask
    if mask is None:
        return scores.causal
    return mask.shape[-1] == S and not bool(_attended(mask[..., end:]).any())


def _check_rows(pieces: Sequence[_CallRows]) -> None:
    """Raise ConfigError if the keys of a pass are not those of the pass before: then rows were reordered.

    Also those of other rows than the one that is read, because after beam search it may be no row of the result.
    """
    for before, after in pairwise(pieces):
        begin, end = max(before.offset, after.offset, after.begin - COMPARED), after.begin
        one, other = (x.weights.scores.k[:, 0, begin - x.offset : end - x.offset] for x in (before, after))
        if one.shape == other.shape and not torch.allclose(one.float(), other.float(), rtol=CLOSE, atol=CLOSE):
            raise ConfigError(
                "the rows of the batch were reordered between passes, as beam search does, so that they cannot be "
                "joined; generate with num_beams=1"
            )


def _group(
    kind: str,
    layers: Sequence[_JoinedLayer],
    tokens: Mapping[str, _TokenSequence],
    tokenizer: Any,  # noqa: ANN401
) -> AttentionGroup:
    """Return the group of some layers."""
    queries = _queries(kind, tokens)
    assert queries is not None
    rows, columns = queries.positions, queries.positions
    target = source = _text(tokenizer, queries)
    size = queries.count
    if kind == "cross":
        size = layers[0].keys
        keys = tokens.get("encoder")
        if keys is not None and keys.count == size:
            source, columns = _text(tokenizer, keys), keys.positions
        else:
            source, columns = numbered(size), np.arange(size)
        rows = rows[:-1] if queries.ended else rows
        target = _written(tokenizer, queries)
    H = layers[0].pieces[0].weights.shape[1]
    dense = is_dense(len(layers), H, len(rows), len(columns))
    builder = GroupBuilder(kind, (source, target), dense, generated=queries.generated if kind == "self" else None)
    for layer in layers:
        builder.add(layer.module, layer.backend, H, _JoinedTiles(layer.pieces, queries.row, rows, columns, size))
    return builder.build()


@dataclass
class _JoinedTiles:
    """The tiles of a layer: its calls one after the other, without padding. `size` is the number of columns with it."""

    pieces: Sequence[_CallRows]
    row: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    size: int

    def __call__(self, heads: Sequence[int] | None) -> Iterator[Tile]:
        at = slice(None) if heads is None else heads
        padded = len(self.columns) < self.size
        for piece in self.pieces:
            for rows, tile in piece.weights.tiles(self.row, at):
                begin = piece.begin + rows.start
                first, last = np.searchsorted(self.rows, (begin, min(piece.begin + rows.stop, piece.end))).tolist()
                if first == last:
                    continue
                if last - first < tile.shape[1]:
                    tile = tile[:, torch.from_numpy(self.rows[first:last] - begin).to(tile.device)]
                width = min(tile.shape[2], self.size - piece.offset)
                if piece.offset or padded:
                    whole = tile.new_zeros(*tile.shape[:2], self.size)
                    whole[..., piece.offset : piece.offset + width] = tile[..., :width]
                    tile = whole[..., torch.from_numpy(self.columns).to(tile.device)]
                yield slice(first, last), tile[..., : self.size]


def _text(tokenizer: Any, tokens: _TokenSequence) -> Text:  # noqa: ANN401
    """Return the text of tokens; their numbers, without a tokenizer."""
    if tokenizer is None or tokens.ids is None:
        return numbered(len(tokens.positions))
    if tokens.generated is None:
        return text_of(tokenizer, tokens.ids)
    prompt = text_of(tokenizer, tokens.ids[: tokens.generated])
    return text_of(tokenizer, tokens.ids[tokens.generated :], after=prompt)


def _written(tokenizer: Any, tokens: _TokenSequence) -> Text:  # noqa: ANN401
    """Return the text that a decoder writes: each token in the step before it is read."""
    if tokenizer is None or tokens.ids is None:
        return numbered(len(tokens.positions) - tokens.ended)
    written = text_of(tokenizer, tokens.ids[1:])
    if tokens.ended:
        return written
    after = Text("", (NEXT,), ((0, 0),), (Word(NEXT, 0, 0, 0, 1),))
    return Text.join(written.text, (0, len(written.text)), (written, after))


def numbered(count: int) -> Text:
    """Return a text for tokens without a tokenizer: "0 1 2 …", every number a word."""
    names = tuple(map(str, range(count)))
    ends = np.cumsum([len(name) + 1 for name in names]).tolist()
    spans = tuple((end - 1 - len(name), end - 1) for name, end in zip(names, ends, strict=True))
    return by_tokens(Text(" ".join(names), names, spans, ()))
