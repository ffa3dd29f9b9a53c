"""Reading a CTranslate2 model without the package ctranslate2: its weights, its vocabularies and its settings.

`model.bin` begins with a version (2 to 6 are read), the name of a specification and its revision. Then there are the
variables, each with its name, shape, type and bytes, and names that are aliases of others. Weights of 8 and 16 bits
are multiplied out to float32, as CTranslate2 itself does for `compute_type="float32"`. Read are Transformers with an
encoder and a decoder that heedful's own has all parts of; a part that it has not is named in the error.

Token ids are reordered as from Marian: `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3. A decoder that starts from a zero
vector, as Marian's, gets zeros as the row of `<s>`. The sines and cosines of OpenNMT-py's positions alternate; heedful
has all sines first: all weights are reordered to match, which changes no result.

Nothing is read before its size is known, and nothing is larger than the file says and has.
"""

from __future__ import annotations

import logging
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import HeedfulError, ModelError
from heedful.files import SETTINGS, NotPlainError, max_json, open_plain, parse_json, read_bytes
from heedful.interop.ctranslate2 import (
    ACTIVATIONS,
    CONFIG,
    EPSILON,
    OWN,
    SOURCE_SPM,
    TARGET_SPM,
    WEIGHTS,
    names,
)
from heedful.interop.folder import JOINT, SOURCE, TARGET, ModelParts, check_finite
from heedful.models import Network, build
from heedful.models.device import memory_guard
from heedful.models.transformer import positions
from heedful.text import PAD, SPECIALS, START, Codec
from heedful.text.sentencepiece import SentencePieces, ranked_model
from heedful.trace.readout import Readout, read_readout

VERSIONS = range(2, 7)
# The types of weights, by their numbers in `model.bin`; numpy has no bfloat16, which is read as int16.
TYPES: tuple[str, ...] = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
SIZES = {"float32": 4, "int8": 1, "int16": 2, "int32": 4, "float16": 2, "bfloat16": 2}
OLD_TYPES = {4: "float32", 2: "int16", 1: "int8"}  # by the size of a number, before version 4
OLD_SCALE = 1000.0  # of 16 bits, in files that have none
VARIABLES, NAME, RANK = 20_000, 1_000, 8  # at most: variables, bytes of a name, dimensions
ALIASED = 4  # times the size of the file at most, by aliases; tied embeddings have three names
LAYERS = 64
LONGEST = 1_024  # tokens of a source, which is where CTranslate2 cuts one by itself
ABSENT = -100.0  # the bias of a token that the file does not have: its probability is 0 in float32
PADS = ("<blank>", "<pad>")
SHARED = "sentencepiece.model"  # one SentencePiece model for both sides
COVERED = 0.95  # of the tokens of a side that a SentencePiece model must have to be that side's
LOST = (
    "there is no SentencePiece model of the {side} ({file} has {share:.0%} of its tokens). What the model writes, and "
    "its words and spans, are exact; a given {side} text (align, score, prefix, training) is cut by the ranks of the "
    "tokens, mostly as in the model's training"
)
LOG = logging.getLogger("heedful.interop")
TABLE = (512, 1e-3, 2e-2)  # positions that must be ours within the first difference; later ones within the second
ENUM = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 4: "gelu_sigmoid", 5: "tanh", 6: "sigmoid"}
# What a model has, by a part of the name of a variable that only such models have.
PARTS = {
    "relative_": "relative positions",
    "rotary_": "rotary positions",
    "linear_0_noact": "gated feed-forward layers",
    "layernorm_embedding": "a norm after the embeddings",
    "num_heads_kv": "fewer heads for keys than for queries",
    "head_dim": "heads of a width of their own",
    "q_norm": "norms of the queries",
    "k_norm": "norms of the keys",
    "v_norm": "norms of the values",
    "queries_scale": "a scale of the queries",
    "sliding_window": "a window of self-attention",
    "project_": "projections around the decoder",
    "embeddings_1": "several features for each source token",
    "weight_zero": "weights of 4 bits",
    "scale_outputs": "a scale of the outputs",
    "input_layer_norm": "parallel sub-layers, or norms before and after a sub-layer",
    "shared_layer_norm": "parallel sub-layers",
    "memory_kv": "self-attention merged with attention to the source",
}
# Variables that change nothing here.
IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")


class ModelFiles:
    """The files of a model in a folder; a package that is one file has them too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def where(self, name: str) -> str:
        """Return a file's name for messages."""
        return str(self.path / name)

    def has(self, name: str) -> bool:
        """Whether there is such a file, whatever it is."""
        return os.path.lexists(self.path / name)

    def read(self, name: str, limit: int, what: str) -> bytes:
        """Return the content of a file of at most `limit` bytes; `what` is its kind, for the error."""
        try:
            return read_bytes(self.path / name, limit, what)
        except NotPlainError as error:
            raise ModelError(f"{self.where(name)}: {error.strerror}") from None
        except OSError as error:
            raise ModelError(f"{self.where(name)}: cannot be read ({error.strerror})") from None

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Open a file that can be searched in, and return it with its size."""
        try:
            with open_plain(self.path / name) as file:
                yield file, os.fstat(file.fileno()).st_size
        except NotPlainError as error:
            raise ModelError(f"{self.where(name)}: {error.strerror}") from None
        except OSError as error:
            raise ModelError(f"{self.where(name)}: cannot be read ({error.strerror})") from None

    def json(self, name: str, vocabulary: bool = False) -> Any:  # noqa: ANN401
        """Return the value in a file of settings, or of a vocabulary, which may be far larger."""
        limit, what = (max_json(), "a JSON file (HEEDFUL_MAX_JSON)") if vocabulary else (SETTINGS, "a file of settings")
        return parse_json(self.read(name, limit, what), self.where(name))


class Variable(NamedTuple):
    """Where a variable lies in the file."""

    shape: tuple[int, ...]
    type: str
    first: int
    size: int


class WeightsFile:
    """The variables of a `model.bin`, by name; the numbers of each are read when it is asked for.

    Raises ModelError for a file that is damaged. `unused` are the names that were not asked for yet.
    """

    def __init__(self, file: IO[bytes], size: int, where: str) -> None:
        self.file, self.size, self.where = file, size, where
        self.variables: dict[str, Variable] = {}
        self.unused: set[str] = set()
        version = self._number("I")
        if version not in VERSIONS:
            raise self._error(
                f"written in version {version} of the format; {VERSIONS[0]} to {VERSIONS[-1]} are read"
                f"{'; it is damaged, or no CTranslate2 model' * (version > 99)}"
            )
        self.version, self.spec, self.revision = version, self._string(), self._number("I")
        for _ in range(self._count("variables")):
            name, variable = self._variable()
            self.variables[name] = variable
        for _ in range(self._count("aliases") if version >= 3 else 0):
            alias, name = self._string(), self._string()
            if name not in self.variables:
                raise self._error(f"'{alias:.100}' stands for '{name:.100}', which is not there")
            self.variables[alias] = self.variables[name]
            if (scale := f"{name}_scale") in self.variables:  # CTranslate2 takes it along, too
                self.variables[f"{alias}_scale"] = self.variables[scale]
        if sum(variable.size for variable in self.variables.values()) > ALIASED * size:
            raise self._error(f"by aliases its variables have more than {ALIASED} times its bytes; the file is damaged")
        if file.tell() != size:
            raise self._error(f"there are {size - file.tell():,} bytes after the last variable; the file is damaged")
        self.unused = set(self.variables)

    def _variable(self) -> tuple[str, Variable]:
        name, rank = self._string(), self._number("B")
        if rank > RANK:
            raise self._error(f"'{name:.100}' has {rank} dimensions; at most {RANK} are read; the file is damaged")
        shape = tuple(self._number("I") for _ in range(rank))
        kind = self._number("B")
        if self.version >= 4:
            type_ = TYPES[kind] if kind < len(TYPES) else ""
            size = self._number("I")
        else:
            type_ = OLD_TYPES.get(kind, "")
            size = self._number("I") * kind
        if not type_:
            raise self._error(f"'{name:.100}' has the type {kind}; {', '.join(TYPES)} are read")
        expected = math.prod(shape) * SIZES[type_]
        if size != expected:
            raise self._error(f"'{name:.100}' has {size:,} bytes, expected {expected:,} for {type_} {shape}")
        first = self.file.tell()
        if first + size > self.size:
            raise self._error(f"it ends in '{name:.100}', which has {size:,} bytes; the file is damaged")
        self.file.seek(first + size)
        return name, Variable(shape, type_, first, size)

    def _count(self, what: str) -> int:
        if (count := self._number("I")) > VARIABLES:
            raise self._error(f"has {count:,} {what}; at most {VARIABLES:,} are read; the file is damaged")
        return count

    def _number(self, kind: str) -> int:
        (value,) = struct.unpack(f"<{kind}", self._take(struct.calcsize(kind)))
        return int(value)

    def _string(self) -> str:
        if (size := self._number("H")) > NAME:
            raise self._error(f"has a name of {size:,} bytes; at most {NAME:,} are read; the file is damaged")
        try:
            return self._take(size).rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise self._error("a name in it is not UTF-8; the file is damaged") from None

    def _take(self, size: int) -> bytes:
        if len(content := self.file.read(size)) < size:
            raise self._error("it ends too early; the file is damaged")
        return content

    def _error(self, why: str) -> ModelError:
        return ModelError(f"{self.where}: {why}")

    def __contains__(self, name: str) -> bool:
        return name in self.variables

    def types(self) -> list[str]:
        """Return the types of the weights, the most usual first."""
        sizes: dict[str, int] = {}
        for variable in set(self.variables.values()):
            if len(variable.shape) > 1:
                sizes[variable.type] = sizes.get(variable.type, 0) + math.prod(variable.shape)
        return sorted(sizes, key=lambda name: -sizes[name])

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable; raise ModelError if there is none of this name."""
        if name not in self.variables:
            raise self._error(f"there is no variable '{name}'")
        return self.variables[name].shape

    def numbers(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a variable as stored; bfloat16 as float32."""
        self.shape(name)
        variable = self.variables[name]
        self.unused.discard(name)
        self.file.seek(variable.first)
        content = self._take(variable.size)
        if variable.type == "bfloat16":  # the upper half of a float32
            return (np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4").reshape(variable.shape)
        return np.frombuffer(content, np.dtype(variable.type).newbyteorder("<")).reshape(variable.shape)

    def value(self, name: str, default: float) -> float:
        """Return a single number, or the default if there is none of this name; raise ModelError for several."""
        if name not in self.variables:
            return default
        if self.shape(name) != ():
            raise self._error(f"'{name}' has the shape {self.shape(name)}, expected a single number")
        number = float(self.numbers(name))
        if not math.isfinite(number):
            raise self._error(f"'{name}' is {number}, expected a finite number; the file is damaged")
        return number

    def used(self, name: str) -> None:
        """Count a variable, and its scale, as used: it was read under another name."""
        self.unused -= {name, f"{name}_scale"}

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Return a variable of a known shape as float32; integers are divided by the scale of their row."""
        if shape is not None and self.shape(name) != shape:
            raise self._error(f"'{name}' has the shape {self.shape(name)}, expected {shape}")
        values = self.numbers(name)
        type_, rows = self.variables[name].type, values.shape[:1]
        scale: np.ndarray[Any, np.dtype[Any]] | None = None
        if f"{name}_scale" in self:
            if self.shape(f"{name}_scale") not in ((), rows) or self.variables[f"{name}_scale"].type != "float32":
                raise self._error(f"'{name}_scale' is not a float32 for each of {rows[0] if rows else 1:,} rows")
            scale = self.numbers(f"{name}_scale")
        elif type_ == "int16":
            scale = np.asarray(OLD_SCALE, np.float32)
        if type_ == "int32" or (type_ == "int8" and scale is None):
            raise self._error(f"'{name}' holds {type_} without a scale; the file is damaged")
        weight = values.astype(np.float32)
        if scale is not None and type_ in ("int8", "int16"):
            if not (np.isfinite(scale) & (scale > 0)).all():
                raise self._error(f"'{name}_scale' has values that are no scales; the file is damaged")
            weight *= np.float32(1) / (scale[:, None] if scale.ndim and weight.ndim > 1 else scale)
        tensor = torch.from_numpy(weight)
        check_finite(f"{self.where}: '{name}'", tensor)
        return tensor


def is_ctranslate2(path: Path) -> bool:
    """Whether a folder has a CTranslate2 model: a `model.bin` that begins as one, or is beside its vocabularies."""
    try:
        return _begins_as_model(path / WEIGHTS) or (
            os.path.lexists(path / WEIGHTS) and any(os.path.lexists(path / name) for name in vocabulary_files())
        )
    except OSError:
        return False


def vocabulary_files() -> list[str]:
    """Return the names that vocabularies have."""
    return [f"{side}_vocabulary.{ending}" for side in ("shared", "source", "target") for ending in ("json", "txt")]


def _begins_as_model(path: Path) -> bool:
    with open_plain(path) as file:
        begin = file.read(9)
    # A version, the length of a name, and the name.
    return len(begin) == 9 and begin[0] in VERSIONS and begin[1:4] == b"\0\0\0" and begin[6:9].isalpha()


def read_ctranslate2(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read a CTranslate2 folder with its tokenizers; raises ModelError if it is damaged or not supported."""
    return read_files(path, ModelFiles(path), "", device)


def read_files(
    path: Path, files: ModelFiles, inner: str, device: torch.device | None = None, format_: str = "ctranslate2"
) -> ModelParts:
    """Read a model whose weights are in the folder `inner` of some files (`""`, or such as `model/`)."""
    settings = _Settings.read(files, inner)
    with files.open(inner + WEIGHTS) as (file, size):
        weights = WeightsFile(file, size, files.where(inner + WEIGHTS))
        settings = settings.of_file(weights)
        layout = _Layout.of(weights, settings)  # before the rest, so that what is not supported is named first
        source, target = _vocabularies(files, inner, settings)
        tokenizers = _Tokenizers.read(files, inner, settings, source, target)
        text = dict(tokenizers.text)
        if settings.own is None:
            text["max_length"] = min(LONGEST, layout.positions)
        with memory_guard(f"opening {path}", "it is too large for this machine"):
            config, model = _model(weights, layout, (source, target), text)
        of_file = _readout_of(weights, config)
    readout, fault = read_readout(path, config)
    with memory_guard(f"opening {path}", "choose the device cpu"):
        model = model.to(device).eval()
    remarks = (_size_remark(weights), *tokenizers.remarks)
    sides = tokenizers.source, tokenizers.target
    return ModelParts(config, model, *sides, {}, readout or of_file, fault, format_, remarks)


def _size_remark(weights: WeightsFile) -> str:
    types = weights.types()
    wide = " and are computed in float32" if types[:1] != ["float32"] else ""
    return f"CTranslate2 format {weights.version}; the weights are stored as {types[0]}{wide}"


class _Settings(NamedTuple):
    """What `config.json` says, or in files before version 6, `model.bin`."""

    where: str
    unknown: str = "<unk>"
    begin: str = "<s>"
    end: str = "</s>"
    start: str | None = "<s>"  # what the decoder reads first
    source_begin: bool = False
    source_end: bool = False
    own: Mapping[str, Any] | None = None  # heedful's settings, of a folder that it wrote
    zero_start: bool = False  # whether the decoder starts from a zero vector

    @classmethod
    def read(cls, files: ModelFiles, inner: str) -> _Settings:
        where = files.where(inner + CONFIG)
        if not files.has(inner + CONFIG):
            return cls(where)
        plain = files.json(inner + CONFIG)
        if not isinstance(plain, dict):
            raise ModelError(f"{where}: expected a JSON object, found {type(plain).__name__}")
        keys = {"unk_token": "unknown", "bos_token": "begin", "eos_token": "end", "decoder_start_token": "start"}
        keys |= {"add_source_bos": "source_begin", "add_source_eos": "source_end", OWN: "own"}
        values = {keys[key]: value for key, value in plain.items() if key in keys}
        for key, name in keys.items():
            kinds = {"own": (dict,), "source_begin": (bool,), "source_end": (bool,), "start": (str, type(None))}
            if name in values and not isinstance(values[name], kinds.get(name, (str,))):
                raise ModelError(f"{where}: {key} is {values[name]!r:.80}, which is not allowed")
        epsilon = plain.get("layer_norm_epsilon")
        if epsilon is not None and epsilon != EPSILON:
            raise ModelError(f"{where}: layer_norm_epsilon is {epsilon!r:.80}; only {EPSILON} is supported")
        return cls(where, **values)

    def of_file(self, weights: WeightsFile) -> _Settings:
        """Return the settings with what the file of weights says; raise ModelError for what is not supported."""
        if not weights.spec.startswith("Transformer") or "Decoder" in weights.spec or weights.revision < 2:
            raise ModelError(
                f"{weights.where}: the model is a '{weights.spec:.100}', revision {weights.revision}; translators with "
                "an encoder and a decoder (TransformerSpec, from revision 2) are read"
            )
        both = self
        if weights.version < 6:
            start = self.begin if weights.value("with_target_bos", 1) else self.end
            both = both._replace(
                source_begin=bool(weights.value("with_source_bos", 0)),
                source_end=bool(weights.value("with_source_eos", 0)),
                start=None if weights.value("user_decoder_start_tokens", 0) else start,
            )
        both = both._replace(zero_start=bool(weights.value("decoder/start_from_zero_embedding", 0)))
        if both.source_begin:
            raise ModelError(
                f"{both.where}: add_source_bos is true; models that begin a source with a token are not read"
            )
        if both.start is None:
            raise ModelError(
                f"{both.where}: decoder_start_token is not given; models that need one for each text are not read"
            )
        # Marian's always read it: of their converters, that from transformers leaves it to the caller, as our export.
        ended = both.source_end or both.zero_start or (self.own or {}).get("source_end") is True
        return both._replace(source_end=ended)


class TokenTable(NamedTuple):
    """Tokens in heedful's order, and the row of each in the file; None for one that the file does not have.

    `added` are tokens whose bias is `ABSENT`.
    """

    tokens: tuple[str, ...]
    order: tuple[int | None, ...]
    names: tuple[str, ...]
    added: tuple[int, ...]

    def rows(self, table: Tensor) -> Tensor:
        """Return the rows of a table in heedful's order, zeros for those that are not there.  (N, …) -> (V, …)."""
        rows = table[[index or 0 for index in self.order]]
        rows[[place for place, index in enumerate(self.order) if index is None]] = 0
        return rows


def _vocabularies(files: ModelFiles, inner: str, settings: _Settings) -> tuple[TokenTable, TokenTable]:
    """Return the vocabularies of source and target, which are often the same."""
    each = []
    for side in ("shared", "source", "target"):
        present = [name for end in ("json", "txt") if files.has(name := f"{inner}{side}_vocabulary.{end}")]
        if not present:
            if side != "shared":
                found = files.where(f"{inner}{side}_vocabulary.json")
                raise ModelError(
                    f"{found}: there is no such file, and no shared_vocabulary.json; the model is incomplete"
                )
            continue
        where = files.where(present[0])
        tokens = _tokens(files, present[0], where)
        if side == "shared":
            both = _order(tokens, settings, where, target=True)
            return both, both
        each.append(_order(tokens, settings, where, target=side == "target"))
    return each[0], each[1]


def _tokens(files: ModelFiles, name: str, where: str) -> list[str]:
    if name.endswith(".txt"):
        try:
            tokens = files.read(name, max_json(), "a vocabulary").decode().split("\n")
        except UnicodeDecodeError:
            raise ModelError(f"{where}: this is not UTF-8") from None
        return tokens[:-1] if tokens[-1] == "" else tokens
    tokens = files.json(name, vocabulary=True)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{where}: expected a list of tokens")
    return tokens


def _order(tokens: Sequence[str], settings: _Settings, where: str, target: bool) -> TokenTable:
    """Return a vocabulary in heedful's order, with the special tokens that the file does not have."""
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
        raise ModelError(f"{where}: has the token '{twice:.100}' twice")
    needed = [settings.unknown] + [settings.end] * (target or settings.source_end)
    if missing := [name for name in needed if name not in ids]:
        raise ModelError(f"{where}: there is no token '{missing[0]:.100}'")
    pad = next((ids[name] for name in PADS if name in ids), None)
    unknown, end, begin = ids[settings.unknown], ids.get(settings.end), ids.get(settings.begin)
    start = begin
    if target:
        start = None if settings.zero_start else ids.get(settings.start or "", unknown)
    special = (pad, unknown, start, end)
    # A start token that is none of a text's gets our id; any other is copied and keeps its place.
    taken = {pad, unknown, end} | ({start} if start == begin else set())
    rest = [index for index in range(len(tokens)) if index not in taken]
    others = []
    for index in rest:
        name = tokens[index]
        while name in SPECIALS or (name != tokens[index] and name in ids):
            name += "_"
        others.append(name)
    added = [PAD] * (pad is None) + [START] * (start is None or start != begin)
    return TokenTable((*SPECIALS, *others), (*special, *rest), tuple(tokens), tuple(added))


class _Tokenizers(NamedTuple):
    """How texts become tokens, the settings of that, and remarks on it."""

    source: Codec
    target: Codec
    text: Mapping[str, object]
    remarks: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        files: ModelFiles,
        inner: str,
        settings: _Settings,
        source: TokenTable,
        target: TokenTable,
    ) -> _Tokenizers:
        if settings.own is not None:
            return _own_tokenizers(files, inner, settings, (source, target))
        given = [_first(files, inner, (name, SHARED)) for name in (SOURCE_SPM, TARGET_SPM)]
        if not any(given):
            raise ModelError(_no_tokenizer(files, inner))
        text = {"kind": "sentencepiece", "size": max(len(source.tokens), len(target.tokens))}
        one = given[0] or given[1]
        if all(given) and given[0] != given[1]:
            codecs = [_codec(files, name, side) for name, side in zip(given, (source, target), strict=True)]
        else:
            codecs = [_codec(files, one, source)]
            codecs.append(codecs[0] if source.tokens == target.tokens else _codec(files, one, target))
        remarks: tuple[str, ...] = ()
        lost = 0 if not given[0] else 1
        if given[0] == given[1] or not all(given):
            share = codecs[lost].share
            if share < COVERED:
                side = (source, target)[lost]
                codecs[lost] = SentencePieces(ranked_model(side.names, codecs[1 - lost].model), side.tokens)
                remarks = (LOST.format(side=("source", "target")[lost], file=Path(one).name, share=share),)
                LOG.warning("%s: %s (heedful info)", files.path, remarks[0].partition(". ")[0])
        joint = codecs[0].model == codecs[1].model and codecs[0].tokens == codecs[1].tokens
        return cls(codecs[0], codecs[0] if joint else codecs[1], {**text, "joint": joint}, remarks)


def _first(files: ModelFiles, inner: str, names: Sequence[str]) -> str:
    """Return the first file that is there, beside the weights or in the folder above; "" if none is."""
    return next((place + name for name in names for place in dict.fromkeys((inner, "")) if files.has(place + name)), "")


def _no_tokenizer(files: ModelFiles, inner: str) -> str:
    """Return the error for a model without tokenizers that are read."""
    if found := _first(files, inner, ("bpe.model",)):
        return (
            f"{files.where(found)}: this model cuts words by subword-nmt after Moses' tokenizer, which is not "
            "supported; models with a SentencePiece model are read"
        )
    above = f"; {files.path.parent} has one: open that" if (files.path.parent / SHARED).is_file() else ""
    return (
        f"{files.where(inner or '.')}: there is no tokenizer: a CTranslate2 folder needs {SOURCE_SPM} and "
        f"{TARGET_SPM}, or {SHARED} for both languages{above}"
    )


def _codec(files: ModelFiles, name: str, vocabulary: TokenTable) -> SentencePieces:
    try:
        return SentencePieces(files.read(name, max_json(), "a SentencePiece model"), vocabulary.tokens)
    except ModelError as error:
        where = files.where(name)
        raise ModelError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _own_tokenizers(
    files: ModelFiles, inner: str, settings: _Settings, sides: tuple[TokenTable, TokenTable]
) -> _Tokenizers:
    """Return the tokenizers of a folder that heedful wrote."""
    joint = files.has(inner + JOINT)
    codecs = []
    for name, side in zip((JOINT,) if joint else (SOURCE, TARGET), sides, strict=False):
        where = files.where(inner + name)
        try:
            dump = files.read(inner + name, max_json(), "a JSON file (HEEDFUL_MAX_JSON)").decode()
            codec = Codec.parse(dump)
        except UnicodeDecodeError:
            raise ModelError(f"{where}: this is not UTF-8") from None
        except ModelError as error:
            raise ModelError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
        if [codec.token(index) for index in range(len(codec))] != list(side.tokens):
            raise ModelError(f"{where}: its tokens are not those of the vocabulary")
        codecs.append(codec)
    if joint and sides[0].tokens != sides[1].tokens:
        raise ModelError(f"{files.where(inner + JOINT)}: is for both languages, but they have two vocabularies")
    text = (settings.own or {}).get(
        "text", {"kind": "sentencepiece" if isinstance(codecs[0], SentencePieces) else "bpe"}
    )
    if not isinstance(text, dict):
        raise ModelError(f"{settings.where}: the settings of the text are {text!r:.80}, expected an object")
    return _Tokenizers(codecs[0], codecs[-1], {**text, "joint": joint})


def _model(
    weights: WeightsFile,
    layout: _Layout,
    sides: tuple[TokenTable, TokenTable],
    text: Mapping[str, object],
) -> tuple[Config, Network]:
    """Return the settings and the model; raise ModelError for weights that do not match, or are not supported."""
    where, order = weights.where, layout.order
    D, N = len(order), {"encoder": sides[0], "decoder": sides[1]}
    tables: dict[object, Tensor] = {}  # what has several names is read once
    three = []
    for name in ("encoder/embeddings_0", "decoder/embeddings", "decoder/projection"):
        side = N[name.split("/")[0]]
        stored = f"{name if f'{name}/weight' in weights else name.removesuffix('_0')}/weight"
        factor = 1.0 if name == "decoder/projection" else _scale(weights, name.split("/")[0], D) / layout.scale
        key = (weights.variables.get(stored), factor, side.order)
        if key not in tables:
            table = weights.tensor(stored, (len(side.names), D))[:, order]
            tables[key] = side.rows(table if factor == 1 else table * factor)
        weights.used(stored)
        three.append(tables[key])
    source, target, output = three
    alike = sides[0].order == sides[1].order and _equal(source, target)
    tied = "none" if not _equal(target, output) else "all" if alike else "target"
    try:
        config = Config.build({"model": {**layout.model, "tied": tied}, "text": dict(text)})
    except HeedfulError as error:
        raise ModelError(f"{where}: {error}") from None
    assert isinstance(config.model, TransformerConfig)
    with torch.device("meta"):
        network = build(config.model, len(sides[0].tokens), len(sides[1].tokens))
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    filled = {"source.weight": source, "embedding.weight": target, "W_o": output}
    # Copies, where what is shared in the file has several weights here.
    filled = {
        name: tensor.clone() if tensor is target and name != "embedding.weight" else tensor
        for name, tensor in filled.items()
        if name in shapes
    }
    bias = "decoder/projection/bias"
    values = weights.tensor(bias, (len(sides[1].names),)) if bias in weights else torch.zeros(len(sides[1].names))
    filled["b_o"] = sides[1].rows(values)
    filled["b_o"][list(sides[1].added)] = ABSENT
    filled["b_o"][[PAD, START]] = filled["b_o"][[PAD, START]].clamp(min=ABSENT)
    for ours, theirs in names(config.model):
        if ours not in filled:
            filled[ours] = _weight(weights, ours, theirs, shapes[ours], order)
    if left := sorted(name for name in weights.unused if not name.endswith(IGNORED)):
        raise ModelError(f"{where}: '{left[0]:.100}' is no variable of a model that is supported")
    network.load_state_dict(filled, assign=True)
    return config, network


def _check_parts(weights: WeightsFile) -> None:
    """Raise ModelError for a part that heedful's Transformer does not have."""
    for name in sorted(weights.variables):
        for part, what in PARTS.items():
            if f"/{part}" in name:
                raise ModelError(f"{weights.where}: models with {what} are not supported ('{name:.100}')")
        if name.endswith("/gamma") and name.removesuffix("gamma") + "beta" not in weights:
            raise ModelError(f"{weights.where}: models with RMSNorm are not supported ('{name:.100}' has no beta)")
    for name, what in (("decoder/alibi", "ALiBi"), ("encoder/multi_query_attention", PARTS["num_heads_kv"])):
        if weights.value(name, 0):
            raise ModelError(f"{weights.where}: models with {what} are not supported ('{name}')")


class _Layout(NamedTuple):
    """The settings of the model but `tied`, what it multiplies embeddings by, and its positions.

    `order` are the dimensions of a state in the file, in heedful's order; `positions` is how many the file has.
    """

    model: Mapping[str, object]
    scale: float
    order: Tensor
    positions: int

    @classmethod
    def of(cls, weights: WeightsFile, settings: _Settings) -> _Layout:
        """Return the layout of a file; raise ModelError for what is not supported."""
        _check_parts(weights)
        where = weights.where
        heads, pre, activation = (_both(weights, name) for name in ("num_heads", "pre_norm", "activation"))
        kind = ENUM.get(int(activation), "unknown")
        if kind not in ACTIVATIONS:
            raise ModelError(
                f"{where}: the activation is {kind} ({activation:g}); {', '.join(ACTIVATIONS)} are supported"
            )
        depth = {side: _depth(weights, side) for side in ("encoder", "decoder")}
        shapes = [weights.shape(name) for name in ("decoder/embeddings/weight", "encoder/layer_0/ffn/linear_0/weight")]
        if any(len(shape) != 2 for shape in shapes):
            raise ModelError(f"{where}: the embeddings or the first feed-forward layer are no matrices; it is damaged")
        D, scale = shapes[0][1], _scale(weights, "decoder", shapes[0][1])
        model = {
            "family": "transformer",
            "layers": depth["encoder"],
            "decoder_layers": depth["decoder"],
            "width": D,
            "heads": int(heads),
            "inner": shapes[1][0],
            "activation": kind,
            "norm": "pre" if pre else "post",
            "bias": True,
            "scale": scale == math.sqrt(D),
            "source_end": settings.source_end,
        }
        try:
            config = Config.build({"model": model}).model
            assert isinstance(config, TransformerConfig)
            _ = config.channels
        except HeedfulError as error:
            raise ModelError(f"{where}: {error}") from None
        (order, rows, positions), other = (_positions(weights, side, D) for side in ("encoder", "decoder"))
        if not torch.equal(order, other[0]) or positions != other[2]:
            raise ModelError(f"{where}: the encoder and the decoder have different positions")
        model["positions"] = positions
        return cls(model, math.sqrt(D) if model["scale"] else 1.0, order, min(rows, other[1]))


def _both(weights: WeightsFile, name: str) -> float:
    """Return a setting that must be the same in the encoder and the decoder; old revisions have one for both."""
    defaults = {"num_heads": 16 if weights.spec == "TransformerBig" else 8, "pre_norm": 1, "activation": 0}
    one = weights.value(name, defaults[name])
    values = {weights.value(f"{side}/{name}", one) for side in ("encoder", "decoder")}
    if len(values) > 1:
        raise ModelError(f"{weights.where}: the encoder and the decoder have different values of {name}, {values}")
    return values.pop()


def _depth(weights: WeightsFile, side: str) -> int:
    """Return how many layers a side has."""
    depth = 0
    while f"{side}/layer_{depth}/self_attention/linear_0/weight" in weights:
        depth += 1
    if not 0 < depth <= LAYERS:
        raise ModelError(f"{weights.where}: the {side} has {depth:,} layers; 1 to {LAYERS} are read")
    return depth


def _scale(weights: WeightsFile, side: str, D: int) -> float:
    """Return what the embeddings of a side are multiplied by: √D, 1, or a number of its own."""
    root, name = math.sqrt(D), f"{side}/scale_embeddings"
    if name not in weights:
        name = f"{side}/embeddings/multiply_by_sqrt_depth"
    value = weights.value(name, 1)
    if name not in weights or weights.variables[name].type == "int8":
        return root if value else 1.0
    return root if abs(value - root) < 1e-3 * root else value


def _equal(one: Tensor, other: Tensor) -> bool:
    return one is other or torch.equal(one, other)


def _positions(weights: WeightsFile, side: str, D: int) -> tuple[Tensor, int, str]:
    """Return the order of dimensions in which a table of positions is heedful's, how many it has, and their kind."""
    name = f"{side}/position_encodings/encodings"
    if name not in weights:
        raise ModelError(
            f"{weights.where}: there is no '{name}'; positions as OpenNMT-tf computes them are not supported"
        )
    shape = weights.shape(name)
    if len(shape) != 2 or shape[1] != D or not 1 <= shape[0] <= 1_000_000:
        raise ModelError(f"{weights.where}: '{name}' has the shape {shape}, expected vectors of {D}")
    table = weights.tensor(name)
    first, near, far = TABLE
    near = max(near, {"float16": 2e-3, "bfloat16": 1e-2}.get(weights.variables[name].type, 0.0))
    alternating = torch.cat([torch.arange(0, D, 2), torch.arange(1, D, 2)])
    for kind in ("sinusoid", "marian"):
        wanted = positions(shape[0], D, kind=kind)
        for order in (torch.arange(D), alternating):
            difference = (table[:, order] - wanted).abs()
            if difference[:first].max() <= near and difference.max() <= far:
                return order, shape[0], kind
    raise ModelError(
        f"{weights.where}: '{name}' are not the usual sines and cosines; other positions are not supported"
    )


def _weight(weights: WeightsFile, ours: str, theirs: Sequence[str], shape: tuple[int, ...], order: Tensor) -> Tensor:
    """Return a weight of a layer under heedful's name, from its parts; a bias that is not there is zeros."""
    D, parts, left = len(order), [], shape[0]
    for name in theirs:
        rows = left if name == theirs[-1] else D
        left -= rows
        missing = name not in weights and name.endswith("/bias")
        parts.append(torch.zeros(rows) if missing else weights.tensor(name, (rows, *shape[1:])))
    weight = torch.cat(parts)
    place = ours.split(".")[-2]
    if place in ("W", "W_1"):  # what reads states; the heads and the inner layer keep their order
        return weight if weight.ndim == 1 else weight[:, order]
    if place in ("LN", "W_o", "W_2", "LN_h", "LN_s"):
        return weight[order]
    raise AssertionError(ours)


def _readout_of(weights: WeightsFile, config: Config) -> Readout | None:
    """Return the read-out of the heads that the file names as those of alignments; None if it names none."""
    assert isinstance(config.model, TransformerConfig)
    layer, heads = int(weights.value("decoder/alignment_layer", -1)), int(weights.value("decoder/alignment_heads", 1))
    if not 0 <= layer < config.model.depth or not 0 <= heads <= config.model.heads:
        return None
    usual = Readout.usual(config)
    chosen = "the heads that the model's file names for alignments"
    return Readout(
        layer + 1, tuple(range(1, heads + 1)), end=usual.end, marks=usual.marks, even=usual.even, chosen=chosen
    )
