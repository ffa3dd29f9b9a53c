"""Reading Marian's own files: models in `.bin` and `.npz`, as OPUS-MT, Bergamot and Firefox publish them.

| file | what it has |
|---|---|
| `config*.yml`, `decoder.yml` | the names of the others: `models`, `vocabs`, `shortlist`; not necessary |
| `*.npz` | weights as numpy writes them, in fp32, and the settings, `special:model.yml` |
| `*.bin` | the same in a format of Marian's own; a student's matrices have 8 bits (intgemm) |
| `*.spm` | a SentencePiece model, with the ids of its pieces; `vocab.yml` has the ids instead, where there is one |
| `lex*.bin` | a shortlist: for each source token the target tokens that it may become (`heedful.models.shortlist`) |

Quantised weights are widened: w = q / multiplier, in fp32. What Marian multiplies activations by to make them 8 bits
(`alphas`) is ignored, because everything is computed in fp32. Token ids are reordered as in `heedful.interop.marian`.
Marian begins a translation with a vector of zeros, which is the embedding of `<s>` here. Where it has no `<pad>`, that
gets a bias that makes it improbable (`UNLIKELY`).

Nothing is executed and nothing is unpickled. Sizes are compared with the file's before anything is read.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.config import Config, TransformerConfig
from heedful.errors import HeedfulError, ModelError, foreign
from heedful.files import SETTINGS, NotPlainError, max_json, megabytes, open_plain
from heedful.interop.folder import CONFIG, ModelParts, build_empty, check_finite
from heedful.interop.marian import content
from heedful.models import Network
from heedful.models.device import memory_guard
from heedful.models.shortlist import Shortlist
from heedful.models.transformer import Transformer
from heedful.text import END, PAD, SPECIALS, START, UNKNOWN
from heedful.text.sentencepiece import SentencePieces
from heedful.trace.readout import Readout, read_readout

Array = npt.NDArray[Any]

EMBEDDED = "special:model.yml"  # the settings in a file of weights
SUFFIXES, YAML = (".bin", ".npz"), (".yml", ".yaml")
VERSION, ENTRIES, NAMES, RANK = 1, 100_000, 10_000, 8  # of a .bin: its version, tensors, bytes of a name, dimensions
LONG_NAME = 200  # bytes of the name of a file
PADDING = 1024  # bytes behind a tensor at most; Marian fills up to 256
SHORTLIST_MAGIC, SHORTLIST_HEADER = 0xF11A48D5013417F5, 48
UNLIKELY = 50.0  # the bias of a <pad> that Marian does not have is below all others by so much
MAX_LENGTH = 512  # tokens, where the files do not say it
INFLATED = 20  # times the size of an .npz that its arrays may take; weights are hardly compressed at all

# Marian's numbers for types, see its common/types.h; those of a matrix laid out for one processor are not among them.
FLOATS = {0x402: "<f2", 0x404: "<f4", 0x408: "<f8"}
QUANTISED = {0x4101: "i1", 0x4102: "<i2"}
TYPES = {**FLOATS, **QUANTISED, 0x101: "i1"}


def is_marian_binary(path: Path) -> bool:
    """Whether a path is one of Marian's own files of weights or settings, or a folder with them, by names."""
    if path.is_file():
        return path.suffix in (*SUFFIXES, *YAML)
    return path.is_dir() and not (path / CONFIG).exists() and bool(_weights_in(path) or _settings_in(path))


def read_marian_binary(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read a folder of Marian's own files, or that of the one given; raises ModelError for what is not supported."""
    files = MarianFiles.find(path)
    weights = read_weights(files.model)
    try:
        settings = Architecture.build(weights.settings)
    except HeedfulError as error:
        raise ModelError(f"{files.model}: {error}") from None
    sides = _vocabularies(files, settings)
    source, target = (SentencePieces(side.model, side.tokens) for side in sides)
    if settings.shared and sides[0].order != sides[1].order:
        raise ModelError(f"{files.model}: both languages share their embeddings, but their vocabularies differ")
    joint = files.source == files.target and source.model == target.model
    config = _config(files, settings, joint, max(map(len, (source, target))))
    model = build_empty(config, source, target)
    try:
        model = _fill(model, settings, weights, sides)
    except HeedfulError as error:
        raise ModelError(f"{files.model}: {error}") from None
    assert isinstance(model, Transformer)
    remarks = [weights.remark]
    if files.shortlist is not None:
        copied = files.source == files.target
        model.shortlist = read_shortlist(files.shortlist, sides, copied)
    remarks += files.remarks
    readout, fault = read_readout(path, config)
    with memory_guard(f"opening {path}", "choose the device cpu"):
        network: Network = model.to(device).eval()
    return ModelParts(
        config,
        network,
        source,
        source if joint else target,
        readout=readout or settings.readout(config),
        fault=fault,
        format="marian-binary",
        remarks=tuple(remarks),
    )


# Which files


@dataclass(frozen=True)
class MarianFiles:
    """The files of a model: its weights, and for each language a SentencePiece model and, or None, a list of ids."""

    model: Path
    source: Path
    target: Path
    lists: tuple[Path | None, Path | None]
    shortlist: Path | None
    max_length: int
    remarks: tuple[str, ...] = ()

    @classmethod
    def find(cls, path: Path) -> MarianFiles:
        """Return the files that a file of settings names, or else those with the usual names."""
        folder = path if path.is_dir() else path.parent
        named, where = {}, folder
        if path.suffix in YAML and not path.is_dir():
            where, named = path, read_yaml(content(path, SETTINGS, "a file of settings"), str(path))
        else:
            candidates = [(file, plain) for file, plain in _settings_in(folder).items()]
            if path != folder:
                candidates = [(file, plain) for file, plain in candidates if path.name in _named(plain, "models")]
            if len(candidates) > 1:
                raise ModelError(
                    f"{folder}: {len(candidates)} files of settings name models, "
                    f"{_listed([file for file, _ in candidates])}; give one of them as the path"
                )
            where, named = candidates[0] if candidates else (folder, {})
        models = _named(named, "models")
        if path.suffix in SUFFIXES and not path.is_dir():
            models = [path.name]
        elif models:
            if len(models) != 1:
                raise ModelError(f"{where}: names {len(models)} models, an ensemble; give the files as several models")
        else:
            models = [file.name for file in _weights_in(folder)]
            if len(models) != 1:
                what = f"{len(models)} files of weights, {_listed(models)}" if models else "no file of weights"
                raise ModelError(f"{where}: found {what}; give one .bin or .npz file as the path")
        model = _beside(folder, models[0], where)
        source, target, lists = _vocabulary_files(folder, where, _named(named, "vocabs"))
        shortlist, remarks = _shortlist_file(folder, where, named.get("shortlist"))
        longest = named.get("max-length-break", named.get("max-length", MAX_LENGTH))
        if type(longest) is not int or not 0 < longest <= 1_000_000:
            raise ModelError(f"{where}: max-length-break is {longest!r:.40}, expected a number of tokens")
        return cls(model, source, target, lists, shortlist, longest, remarks)


def _settings_in(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return the files of settings in a folder that name models, and what they hold; others are left alone."""
    found = {}
    for path in sorted(_files(folder, *YAML)):
        if "vocab" in path.name.lower() or path.name.endswith(tuple(s + y for s in SUFFIXES for y in YAML)):
            continue
        try:
            settings = read_yaml(content(path, SETTINGS, "a file of settings"), str(path))
        except ModelError:
            if not path.name.startswith(("config", "decoder")):
                continue
            settings = {"models": []}  # it is damaged: said when it is read
            if not _weights_in(folder):
                continue
            raise
        if _named(settings, "models"):
            found[path] = settings
    return found


def _weights_in(folder: Path) -> list[Path]:
    """Return the files in a folder that may be Marian's weights: by name, and other `.bin` files by their beginning."""
    return [
        path
        for path in sorted(_files(folder, *SUFFIXES))
        if path.suffix == ".npz" or "intgemm" in path.name or (not _is_lexicon(path) and _begins_as_bin(path))
    ]


def _is_lexicon(path: Path) -> bool:
    return path.name.startswith("lex")


def _begins_as_bin(path: Path) -> bool:
    try:
        with open_plain(path) as file:
            start = file.read(16)
    except OSError:
        return False
    return (
        len(start) == 16
        and struct.unpack("<Q", start[:8]) == (VERSION,)
        and struct.unpack("<Q", start[8:]) < (ENTRIES,)
    )


def _files(folder: Path, *suffixes: str) -> list[Path]:
    """Return the files of a folder with some suffixes; also those that are no plain files, to be named in an error."""
    try:
        return [path for path in folder.iterdir() if path.suffix in suffixes]
    except OSError as error:
        raise ModelError(f"{folder}: cannot be read ({error.strerror})") from None


def _named(settings: Mapping[str, Any], key: str) -> list[str]:
    value = settings.get(key) or []
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _beside(folder: Path, name: str, where: Path) -> Path:
    """Return the path of a file that settings name; it must lie in their folder, or below."""
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > LONG_NAME:
        raise ModelError(f"{where}: {name[:60]!r} is not the name of a file")
    part = Path(name)
    if part.is_absolute() or ".." in part.parts:
        raise ModelError(f"{where}: names {name!r:.200}; only files in the same folder are opened")
    if part.suffix == ".gz":
        raise ModelError(f"{where}: names {name!r:.200}, which is packed; unpack it first, with gunzip")
    return folder / part


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(Path(str(name)).name for name in names[:8])
    return shown + f" and {len(names) - 8} more" * (len(names) > 8)


def _vocabulary_files(
    folder: Path, where: Path, named: Sequence[str]
) -> tuple[Path, Path, tuple[Path | None, Path | None]]:
    """Return the SentencePiece models of both languages and, where they are kept apart, the lists of tokens."""
    if named:
        if len(named) != 2:
            raise ModelError(f"{where}: names {len(named)} vocabularies, expected two: the source's and the target's")
        source, target = (_beside(folder, name, where) for name in named)
    else:
        source, target = _pair(folder, [*_files(folder, ".spm")], "SentencePiece models (.spm)")
        lists = [path for path in _files(folder, *YAML) if "vocab" in path.name.lower()]
        if lists:
            source, target = _pair(folder, lists, "lists of tokens (vocab.yml)")
    for path in (source, target):
        if path.suffix not in (".spm", *YAML):
            raise ModelError(
                f"{where}: {path.name} is not a vocabulary that is read; these are SentencePiece models (.spm), and "
                "lists of tokens (.yml) with SentencePiece models beside them"
            )
    lists_of = tuple(path if path.suffix in YAML else None for path in (source, target))
    if any(lists_of):
        models = _files(folder, ".spm")
        if not models:
            bpe = [path for path in folder.iterdir() if path.suffix in (".bpe", ".codes") or "bpe" in path.suffixes]
            also = f"; {_listed(bpe)} is another kind of subwords, which is not supported" if bpe else ""
            raise ModelError(
                f"{folder}: {source.name} lists tokens, but there is no SentencePiece model (source.spm, target.spm) "
                f"that cuts texts into them{also}"
            )
        found = _pair(folder, models, "SentencePiece models (.spm)")
        source, target = (
            spm if path.suffix in YAML else path for spm, path in zip(found, (source, target), strict=True)
        )
    return source, target, (lists_of[0], lists_of[1])


SIDES = (("src", "source"), ("trg", "tgt", "target"))


def _pair(folder: Path, files: Sequence[Path], what: str) -> tuple[Path, Path]:
    """Return the files of source and target: the only file for both, or two of which names say the language's side."""
    files = sorted(files)
    if len(files) == 1:
        return files[0], files[0]
    by_side = [[path for path in files if any(word in path.name.lower() for word in words)] for words in SIDES]
    if [len(paths) for paths in by_side] != [1, 1] or by_side[0] == by_side[1]:
        raise ModelError(
            f"{folder}: found {len(files)} {what}{': ' * bool(files)}{_listed(files)}; expected one for both "
            "languages, or two with src and trg (or source and target) in their names. Or name them in a file "
            "config.yml: 'models', 'vocabs' and 'shortlist', each with a list of files"
        )
    return by_side[0][0], by_side[1][0]


def _shortlist_file(folder: Path, where: Path, named: object) -> tuple[Path | None, tuple[str, ...]]:
    """Return the file of the shortlist, if there is one, or what is said about one that is not read."""
    if named is not None:
        first = named[0] if isinstance(named, list) and named else named
        if not isinstance(first, str):
            return None, ()
        if not first.endswith(".bin"):
            return None, (f"shortlist: {first:.200} is not in Marian's binary format (.bin) and not used",)
        return _beside(folder, first, where), ()
    found = sorted(path for path in _files(folder, ".bin") if _is_lexicon(path))
    if len(found) > 1:
        raise ModelError(
            f"{folder}: found {len(found)} shortlists, {_listed(found)}; name one in a file config.yml (shortlist)"
        )
    return (found[0], ()) if found else (None, ())


# Settings

NUMBER = re.compile(r"[-+]?(\d+|\d+\.\d*(e[-+]?\d+)?|\.\d+|\d+e[-+]?\d+)", re.IGNORECASE | re.ASCII)
WORDS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}
NOTHING = ("~", "null", "")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a"}
ESCAPES |= {"b": "\b", "f": "\f", "v": "\v", " ": " ", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
QUOTED = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')""", re.DOTALL)


def read_yaml(raw: bytes, where: str) -> dict[str, Any]:
    """Return settings in the part of YAML that Marian writes; raises ModelError, with the line, for anything else.

    That is `key: value` with a word, a number, true or false, or a quoted text as the value; and `key:` before lines
    `- value`, or `key: [value, value]`. There are no anchors, tags or nested mappings.

    >>> read_yaml(b"vocabs:\\n  - a.spm\\n  - 'b.spm'\\nbeam-size: 1  # greedy", "x")
    {'vocabs': ['a.spm', 'b.spm'], 'beam-size': 1}
    """
    settings: dict[str, Any] = {}
    current = ""  # the key whose list follows
    for number, key, text in _yaml_lines(raw, where):
        if key is None:
            if not current or not isinstance(settings[current], list | None):
                raise ModelError(f"{where}, line {number}: there is no key before this item")
            if settings[current] is None:
                settings[current] = []
            settings[current].append(_value(text, where, number))
            continue
        if key in settings:
            raise ModelError(f"{where}, line {number}: '{key:.100}' is there twice")
        settings[key], current = _value(text, where, number), key
    return settings


def read_ids(raw: bytes, where: str) -> dict[str, int]:
    """Return the ids of tokens, a line `token: id` each."""
    ids: dict[str, int] = {}
    for number, key, text in _yaml_lines(raw, where):
        value = _value(text, where, number)
        if key is None or type(value) is not int:
            raise ModelError(f"{where}, line {number}: expected a token and its id, as in '▁the: 5'")
        if key in ids:
            raise ModelError(f"{where}, line {number}: the token '{key:.100}' is there twice")
        ids[key] = value
    return ids


def _yaml_lines(raw: bytes, where: str) -> Iterator[tuple[int, str | None, str]]:
    """Yield the number of each line with something in it, its key (None for an item of a list), and what follows."""
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ModelError(f"{where}: this is not UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r\0 ")
        bare = line.lstrip(" ")
        if not bare or bare.startswith(("#", "%YAML")) or line[:4].rstrip() in ("---", "..."):
            continue
        if bare == "-" or bare.startswith("- "):
            yield number, None, bare[2:]
            continue
        quoted = QUOTED.match(line)
        if line.startswith(("'", '"')) and quoted:
            key, rest = _unquoted(quoted), line[quoted.end() :]
            if not re.match(r"\s*:(\s|$)", rest):
                raise ModelError(f"{where}, line {number}: expected 'key: value', found {line!r:.80}")
            yield number, key, rest.lstrip()[1:]
            continue
        key, colon, rest = line.partition(": ")
        if not colon:
            key, colon = line.removesuffix(":"), line[-1:]
        if colon not in (": ", ":") or line.startswith((" ", "\t", "?", "&", "*", "!", "|", ">", "{", "[", "@", "`")):
            raise ModelError(f"{where}, line {number}: expected 'key: value', found {line!r:.80}")
        yield number, key.rstrip(), rest


def _value(text: str, where: str, number: int) -> Any:  # noqa: ANN401
    """Return a value, or a list in brackets."""
    text = text.strip()
    if text.startswith("["):
        inner = text[1:].partition(" #")[0].rstrip()
        if not inner.endswith("]"):
            raise ModelError(f"{where}, line {number}: the list does not end: {text!r:.80}")
        parts = inner[:-1].split(",") if inner[:-1].strip() else []
        return [_value(part, where, number) for part in parts if not part.strip().startswith("[")]
    if quoted := QUOTED.match(text):
        if (rest := text[quoted.end() :].strip()) and not rest.startswith("#"):
            raise ModelError(f"{where}, line {number}: expected nothing after the quoted text, found {rest!r:.80}")
        return _unquoted(quoted)
    text = "" if text.startswith("#") else text.partition(" #")[0].rstrip()
    if text.startswith(("&", "*", "!", "|", ">", "{", "'", '"', "@", "`")):
        raise ModelError(
            f"{where}, line {number}: {text!r:.80} is YAML that Marian does not write and that is not read"
        )
    lower = text.lower()
    if lower in NOTHING:
        return None
    if lower in WORDS:
        return WORDS[lower]
    if len(text) <= 30 and NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    return text


def _unquoted(quoted: re.Match[str]) -> str:
    double, single = quoted[1], quoted[2]
    return single.replace("''", "'") if double is None else ESCAPE.sub(_escaped, double)


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    return ESCAPES.get(code, match[0])


class Architecture(NamedTuple):
    """The settings of a model under the names of Marian, with hyphens as underscores, and its defaults."""

    type: str = "amun"
    dim_vocabs: tuple[int, ...] = ()
    dim_emb: int = 512
    enc_depth: int = 1
    dec_depth: int = 1
    dec_cell: str = "gru"
    transformer_heads: int = 8
    transformer_dim_ffn: int = 2048
    transformer_ffn_activation: str = "swish"
    transformer_preprocess: str = ""
    transformer_postprocess: str = "dan"
    transformer_postprocess_emb: str = "d"
    transformer_postprocess_top: str = ""
    transformer_decoder_autoreg: str = "self-attention"
    transformer_guided_alignment_layer: str = "last"
    transformer_tied_layers: tuple[int, ...] = ()
    tied_embeddings: bool = False
    tied_embeddings_all: bool = False
    tied_embeddings_src: bool = False
    output_omit_bias: bool = False
    layer_normalization: bool = False

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> Architecture:
        """Return the settings; raises ModelError for what is not supported, by name."""
        values: dict[str, Any] = {}
        for name, default in cls._field_defaults.items():
            key = name.replace("_", "-")
            value = plain.get(key, default)
            if isinstance(default, tuple):
                value = tuple(value) if isinstance(value, list | tuple) else (value,) if value is not None else ()
                right = all(type(one) is int and 0 < one < 2**31 for one in value) and len(value) <= 100
            elif isinstance(default, str):
                value = "" if value is None else str(value) if type(value) is int else value
                right = isinstance(value, str)
            else:
                right = type(value) is type(default) and (isinstance(value, bool) or 0 < value < 2**31)
            if not right:
                raise ModelError(f"{key} is {plain[key]!r:.80}, expected a value as {default!r}")
            values[name] = value
        settings = cls(**values)
        settings._check(plain)
        return settings

    def _check(self, plain: Mapping[str, Any]) -> None:
        if self.type != "transformer":
            raise ModelError(
                f"type is {self.type:.60}; only type: transformer is supported, not Marian's recurrent models"
            )
        if len(self.dim_vocabs) != 2:
            raise ModelError(f"dim-vocabs has {len(self.dim_vocabs)} sizes; only models of one source are supported")
        allowed: dict[str, tuple[object, ...]] = {
            "transformer-decoder-autoreg": ("self-attention", "rnn"),
            "transformer-ffn-activation": tuple(ACTIVATIONS),
            "transformer-ffn-depth": (2,),
            "transformer-decoder-ffn-depth": (0, 2),
            "transformer-decoder-dim-ffn": (0, self.transformer_dim_ffn),
            **dict.fromkeys(OFF, (False,)),
            **dict.fromkeys(("lemma-dim-emb", "ulr-dim-emb"), (0, None)),
        }
        if self.ssru:
            allowed |= {"dec-cell": ("ssru",), "layer-normalization": (False,)}
        values = {name.replace("_", "-"): value for name, value in self._asdict().items()}
        for name, options in allowed.items():
            value = plain.get(name, values.get(name, options[0]))
            if value not in options:
                shown = " or ".join(str(option).lower() for option in options if option is not None)
                raise ModelError(f"{name} is {value!r:.80}; only {name}: {shown} is supported")
        kinds = plain.get("input-types") or []
        if any(kind not in ("sequence", None) for kind in (kinds if isinstance(kinds, list) else [kinds])):
            raise ModelError(f"input-types is {plain['input-types']!r:.80}; only sequences are supported")
        if self.norms() not in NORMS:
            raise ModelError(
                "transformer-preprocess, -postprocess, -postprocess-emb and -postprocess-top are "
                f"{', '.join(map(repr, self.norms()))} (without dropout); only these are supported: "
                f"{'; '.join(', '.join(map(repr, norms)) for norms in NORMS)}"
            )
        if self.transformer_tied_layers and len(self.transformer_tied_layers) != self.dec_depth:
            raise ModelError(
                f"transformer-tied-layers has {len(self.transformer_tied_layers)} of {self.dec_depth} layers"
            )
        if (self.tied_embeddings_all or self.tied_embeddings_src) and len(set(self.dim_vocabs)) > 1:
            raise ModelError(f"dim-vocabs is {self.dim_vocabs}, but both languages share their embeddings")
        self.guided_layer()

    @property
    def ssru(self) -> bool:
        """Whether the decoder is recurrent."""
        return self.transformer_decoder_autoreg == "rnn"

    def norms(self) -> tuple[str, ...]:
        """Return where LN and the sum are: before a sub-layer, after it, after the embeddings, after all layers."""
        places = (self.transformer_preprocess, self.transformer_postprocess)
        return tuple(
            ops.replace("d", "")
            for ops in (*places, self.transformer_postprocess_emb, self.transformer_postprocess_top)
        )

    def layer(self, number: int) -> int:
        """Return Marian's number of the decoder's layer `number`, both from 1: tied layers have one set of weights."""
        return self.transformer_tied_layers[number - 1] if self.transformer_tied_layers else number

    def guided_layer(self) -> int:
        """Return the layer of the guided head, from 1."""
        word = self.transformer_guided_alignment_layer
        layer = self.dec_depth if word == "last" else int(word) if word.isdecimal() and len(word) < 9 else 0
        if not 1 <= layer <= self.dec_depth:
            raise ModelError(
                f"transformer-guided-alignment-layer is {word!r:.40}, but there are {self.dec_depth} layers"
            )
        return layer

    def readout(self, config: Config) -> Readout:
        """Return the read-out by the guided head: Marian trains the first head of a layer with word alignments."""
        layer = self.guided_layer()
        label = f"guided head (layer {layer}, head 1)"
        chosen = "the head that Marian trains with word alignments, by transformer-guided-alignment-layer"
        return replace(Readout.usual(config), layer=layer, heads=(1,), label=label, chosen=chosen)

    def model_settings(self) -> dict[str, object]:
        """Return the settings of heedful's model."""
        tied = self.tied_embeddings or self.tied_embeddings_all
        return {
            "family": "transformer",
            "cell": "ssru" if self.ssru else "self-attention",
            "layers": self.enc_depth,
            "decoder_layers": self.dec_depth,
            "width": self.dim_emb,
            "heads": self.transformer_heads,
            "inner": self.transformer_dim_ffn,
            "activation": ACTIVATIONS[self.transformer_ffn_activation],
            "norm": NORMS[self.norms()],
            "tied": "all" if tied and self.shared else "target" if tied else "none",
            "bias": True,
            "scale": True,
            "positions": "marian",
        }

    @property
    def shared(self) -> bool:
        """Whether both languages have the same embeddings."""
        return self.tied_embeddings_all or self.tied_embeddings_src


ACTIVATIONS = {"relu": "relu", "swish": "silu"}
NORMS: dict[tuple[str, ...], str] = {("", "an", "", ""): "post", ("n", "a", "", "n"): "pre"}
OFF = (
    *("transformer-no-projection", "transformer-no-bias", "transformer-no-affine", "transformer-pool", "right-left"),
    *("transformer-train-positions", "transformer-train-position-embeddings", "transformer-rnn-projection", "ulr"),
)


def _config(files: MarianFiles, settings: Architecture, joint: bool, size: int) -> Config:
    text = {"kind": "sentencepiece", "size": size, "joint": joint, "max_length": files.max_length}
    try:
        config = Config.build({"model": settings.model_settings(), "text": text})
        assert isinstance(config.model, TransformerConfig)
        _ = config.model.channels
    except HeedfulError as error:
        raise ModelError(f"{files.model}: {error}") from None
    return config


# Weights


class Weight(NamedTuple):
    """The numbers of a weight as they are in the file, and by what quantised ones are divided."""

    numbers: Array
    multiplier: float = 0.0

    def widened(self) -> Tensor:
        """Return the weight in fp32."""
        wide = self.numbers.astype(np.float32)
        return torch.from_numpy(wide / np.float32(self.multiplier) if self.multiplier else wide)


@dataclass(frozen=True)
class MarianWeights:
    """The weights of a file by name, the settings among them, and a word on their precision."""

    weights: dict[str, Weight]
    settings: dict[str, Any]
    remark: str


def read_weights(path: Path) -> MarianWeights:
    """Read a `.bin` or `.npz` file; raises ModelError if anything in it is damaged."""
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            arrays = _read_npz(file, size) if path.suffix == ".npz" else _read_bin(file, size)
    except NotPlainError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); the model is incomplete") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    if EMBEDDED not in arrays:
        raise ModelError(f"{path}: this file has no settings ({EMBEDDED}), so it is not a model of Marian")
    embedded = arrays.pop(EMBEDDED).numbers
    if embedded.nbytes > SETTINGS:
        raise ModelError(f"{path}: {EMBEDDED} has {embedded.nbytes:,} bytes; at most {SETTINGS:,} are read")
    raw = embedded.tobytes()
    settings = read_yaml(raw.partition(b"\0")[0], f"{path}: {EMBEDDED}")
    kinds = sorted({array.numbers.dtype.itemsize * 8 for array in arrays.values() if array.multiplier})
    remark = "weights: fp32"
    if kinds:
        remark = f"weights: {' and '.join(map(str, kinds))} bits, widened to fp32, in which everything is computed"
    elif any(array.numbers.dtype == np.float16 for array in arrays.values()):
        remark = "weights: fp16, widened to fp32, in which everything is computed"
    return MarianWeights(arrays, settings, remark)


def _read_bin(file: io.BufferedReader, size: int) -> dict[str, Weight]:
    """Read a `.bin`: version, number of tensors, a head for each, names, shapes, an offset, and the numbers."""
    left = size

    def take(count: int, what: str) -> bytes:
        nonlocal left
        if count > left:
            raise ModelError(
                f"the file ends in {what}: {megabytes(count)} expected, {megabytes(left)} left; it is damaged"
            )
        left -= count
        some = file.read(count)
        if len(some) < count:
            raise ModelError(f"the file ends in {what}; it changed while it was read")
        return some

    version, count = struct.unpack("<2Q", take(16, "its head"))
    if version != VERSION:
        raise ModelError(f"version {version} is not supported; Marian writes version {VERSION} of its .bin files")
    if count > ENTRIES:
        raise ModelError(f"it has {count:,} tensors; at most {ENTRIES:,} are read")
    heads = list(struct.iter_unpack("<4Q", take(32 * count, "the list of tensors")))
    if any(not 1 < head[0] <= NAMES or head[2] > RANK for head in heads):
        raise ModelError(
            f"a name has more than {NAMES:,} bytes, or a tensor more than {RANK} dimensions; it is damaged"
        )
    names = []
    for head in heads:
        names.append(_name(take(head[0], "the names of tensors")))
    shapes = [struct.unpack(f"<{head[2]}i", take(4 * head[2], "the shapes of tensors")) for head in heads]
    (offset,) = struct.unpack("<Q", take(8, "the offset of the numbers"))
    take(offset, "the gap before the numbers")
    declared = sum(head[3] for head in heads)
    if declared != left:
        raise ModelError(f"its tensors have {megabytes(declared)}, but {megabytes(left)} follow; the file is damaged")
    weights: dict[str, Weight] = {}
    for (_, kind, _, length), name, shape in zip(heads, names, shapes, strict=True):
        raw = take(length, f"'{name}'")
        if name.endswith("QuantMultA"):  # what activations are multiplied by
            continue
        if name in weights:
            raise ModelError(f"'{name}' is there twice")
        weights[name] = _weight(name, kind, shape, raw)
    return weights


def _name(raw: bytes) -> str:
    try:
        name = raw.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if not name.isprintable() or not name:
        raise ModelError(f"{raw[:40]!r} is not the name of a tensor; the file is damaged")
    return name


def _weight(name: str, kind: int, shape: tuple[int, ...], raw: bytes) -> Weight:
    """Return a weight of a `.bin`. A quantised matrix (in, out) lies there as (out, in), but embeddings as they are."""
    if kind not in TYPES:
        raise ModelError(
            f"'{name}' has the type {kind:#x}; supported are float16, float32, float64, and intgemm8 and intgemm16 as "
            "Marian writes them for any processor"
        )
    if any(n < 0 for n in shape):
        raise ModelError(f"'{name}' has the shape {shape}")
    dtype, count = np.dtype(TYPES[kind]), math.prod(shape)
    needed = count * dtype.itemsize + 4 * (kind in QUANTISED)
    if not needed <= len(raw) <= needed + PADDING:
        raise ModelError(
            f"'{name}' has {len(raw):,} bytes, but its shape {shape} needs {needed:,}; the file is damaged"
        )
    if not all(shape):
        raise ModelError(f"'{name}' has the shape {shape!s:.100}, with no numbers; the file is damaged")
    numbers = np.frombuffer(raw, dtype, count)
    if kind not in QUANTISED:
        return Weight(numbers.reshape(shape))
    (multiplier,) = struct.unpack_from("<f", raw, count * dtype.itemsize)
    if not (math.isfinite(multiplier) and multiplier > 0):
        raise ModelError(f"'{name}' is divided by {multiplier}, which is not a positive number; the file is damaged")
    if len(shape) != 2:
        raise ModelError(f"'{name}' is quantised and has the shape {shape}, expected a matrix")
    rows = numbers.reshape(shape) if "Wemb" in name else numbers.reshape(shape[::-1]).T
    return Weight(rows, multiplier)


def _read_npz(file: io.BufferedReader, size: int) -> dict[str, Weight]:
    """Read an `.npz`, without numpy's pickles; what it unpacks to is limited by its size."""
    weights: dict[str, Weight] = {}
    with foreign("this is not an .npz file"), zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > ENTRIES:
            raise ModelError(f"it has {len(members):,} arrays; at most {ENTRIES:,} are read")
        total = sum(member.file_size for member in members)
        if total > INFLATED * size:
            raise ModelError(
                f"it unpacks to {megabytes(total)}, more than {INFLATED} times its size, as weights never do"
            )
        for member in members:
            name = member.filename.removesuffix(".npy")
            if not name.isprintable() or name in weights:
                raise ModelError(f"'{name!a:.60}' is there twice, or is not the name of an array")
            with archive.open(member) as packed:
                raw = packed.read(member.file_size + 1)
            weights[name] = Weight(_array(name, raw, member.file_size))
    return weights


def _array(name: str, raw: bytes, size: int) -> Array:
    """Return an array from the content of an `.npy` file; its size is checked before it is made."""
    stream = io.BytesIO(raw)
    with foreign(f"'{name}' is not an array"):
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ModelError(f"'{name}' is in version {version} of .npy; supported are 1.0 and 2.0")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = header(stream)
    if dtype.kind not in "fiuS" or dtype.itemsize == 0 or (dtype.itemsize > 8 and dtype.kind != "S"):
        raise ModelError(f"'{name}' holds {dtype!s:.60}, expected numbers")
    needed = math.prod(shape) * dtype.itemsize
    if len(raw) != size or len(raw) - stream.tell() != needed or any(n < 0 for n in shape):
        raise ModelError(f"'{name}' has {len(raw) - stream.tell():,} bytes, but its shape {shape} needs {needed:,}")
    numbers = np.frombuffer(raw, dtype, offset=stream.tell())
    return numbers.reshape(shape, order="F" if by_columns else "C")


def _fill(model: Network, settings: Architecture, file: MarianWeights, sides: Sequence[SpmVocabulary]) -> Network:
    """Load the weights into a model on the meta device; raises ModelError if they do not match."""
    left, source, target = dict(file.weights), *sides
    filled: dict[str, Tensor] = {}
    D = settings.dim_emb

    def take(name: str, *shape: int) -> Tensor:
        """Remove a weight of a known shape from those that are left."""
        if name not in file.weights:
            raise ModelError(f"there is no weight '{name}'")
        weight = file.weights[name]
        left.pop(name, None)  # tied layers have it more than once
        if weight.numbers.shape != shape:
            raise ModelError(f"'{name}' has shape {weight.numbers.shape}, expected {shape}")
        if weight.numbers.dtype.kind != "f" and not weight.multiplier:
            raise ModelError(f"'{name}' holds {weight.numbers.dtype}, expected floating point numbers")
        wide = weight.widened()
        check_finite(f"'{name}'", wide)
        return wide

    def matrix(name: str, rows: int, columns: int) -> Tensor:
        return take(name, rows, columns).t()

    def vector(name: str, size: int) -> Tensor:
        return take(name, 1, size)[0]

    def products(prefix: str, names: str, shape: tuple[int, int] = (D, D)) -> tuple[Tensor, Tensor]:
        W = [matrix(f"{prefix}_W{name}", *shape) for name in names]
        return torch.cat(W), torch.cat([vector(f"{prefix}_b{name}", shape[1]) for name in names])

    def attention(ours: str, theirs: str) -> None:
        filled[f"{ours}.W.weight"], filled[f"{ours}.W.bias"] = products(theirs, "qkv")
        filled[f"{ours}.W_o.weight"], filled[f"{ours}.W_o.bias"] = products(theirs, "o")

    def norm(ours: str, theirs: str, suffix: str = "") -> None:
        filled[f"{ours}.weight"] = vector(f"{theirs}_ln_scale{suffix}", D)
        filled[f"{ours}.bias"] = vector(f"{theirs}_ln_bias{suffix}", D)

    pre = "_pre" if settings.norms()[0] else ""
    for side, depth in (("encoder", settings.enc_depth), ("decoder", settings.dec_depth)):
        for number in range(1, depth + 1):
            ours = f"{side}.{number - 1}"
            theirs = f"{side}_l{settings.layer(number) if side == 'decoder' else number}"
            if side == "decoder" and settings.ssru:
                gates = [matrix(f"{theirs}_rnn_{name}", D, D) for name in ("Wf", "W")]
                filled[f"{ours}.inside.W.weight"] = torch.cat(gates)
                filled[f"{ours}.inside.b_f"] = vector(f"{theirs}_rnn_bf", D)
                norm(f"{ours}.around_inside.LN", f"{theirs}_rnn" + "_ffn" * (not pre), pre)
            else:
                attention(f"{ours}.inside", f"{theirs}_self")
                norm(f"{ours}.around_inside.LN", f"{theirs}_self_Wo", pre)
            if side == "decoder":
                attention(f"{ours}.across", f"{theirs}_context")
                norm(f"{ours}.around_across.LN", f"{theirs}_context_Wo", pre)
            inner = settings.transformer_dim_ffn
            for which, shape in (("1", (D, inner)), ("2", (inner, D))):
                W, b = products(f"{theirs}_ffn", which, shape)
                filled[f"{ours}.forward_layer.W_{which}.weight"] = W
                filled[f"{ours}.forward_layer.W_{which}.bias"] = b
            norm(f"{ours}.around_forward.LN", f"{theirs}_ffn_ffn", pre)
        if pre:
            norm("LN_h" if side == "encoder" else "LN_s", f"{side}_top")
    S, T = settings.dim_vocabs
    tied = settings.tied_embeddings or settings.tied_embeddings_all
    names = ("Wemb", "Wemb") if settings.shared else ("encoder_Wemb", "decoder_Wemb")
    filled["embedding.weight"] = target.rows(take(names[1], T, D))
    if not (tied and settings.shared):
        filled["source.weight"] = source.rows(take(names[0], S, D))
    if not tied:
        filled["W_o"] = target.rows(matrix("decoder_ff_logit_out_W", D, T))
    b = torch.zeros(T) if settings.output_omit_bias else vector("decoder_ff_logit_out_b", T)
    filled["b_o"] = target.rows(b, float(b.min()) - UNLIKELY if T else 0.0)
    if unused := [name for name in left if not name.startswith("special:")]:
        raise ModelError(f"'{min(unused)}' is not a weight of a model with these settings")
    model.load_state_dict({name: weight.contiguous() for name, weight in filled.items()}, assign=True)
    return model


# Vocabularies


class SpmVocabulary(NamedTuple):
    """A SentencePiece model, the tokens in heedful's order, and Marian's id of each, -1 where it has none."""

    model: bytes
    tokens: tuple[str, ...]
    order: tuple[int, ...]

    def rows(self, weight: Tensor, missing: float = 0.0) -> Tensor:
        """Return the rows of a weight in heedful's order.  (V, …) -> (V', …)."""
        order = torch.tensor(self.order)
        rows = weight[order.clamp_min(0)]
        rows[order < 0] = missing
        return rows

    def ours(self, size: int) -> Array:
        """Return heedful's id of each of Marian's `size` ids."""
        order, ids = np.array(self.order), np.full(size, UNKNOWN)
        ids[order[order >= 0]] = np.flatnonzero(order >= 0)
        return ids


def _vocabularies(files: MarianFiles, settings: Architecture) -> list[SpmVocabulary]:
    sides: list[SpmVocabulary] = []
    for spm, ids, size in zip((files.source, files.target), files.lists, settings.dim_vocabs, strict=True):
        if sides and (spm, ids) == (files.source, files.lists[0]):
            sides.append(sides[0])
            continue
        model = content(spm, max_json(), "a SentencePiece model")
        try:
            names, special = _pieces(model) if ids is None else _listed_tokens(ids)
            if ids is not None:
                _pieces(model)  # it is one
        except ModelError as error:
            raise ModelError(f"{spm}: {error}" if ids is None else str(error)) from None
        if len(names) != size:
            raise ModelError(
                f"{ids or spm}: has {len(names):,} tokens, but dim-vocabs in {files.model.name} says {size:,}"
            )
        try:
            sides.append(_ordered(model, names, special))
        except ModelError as error:
            raise ModelError(f"{ids or spm}: {error}") from None
    return sides


def _pieces(model: bytes) -> tuple[list[str], tuple[int, int]]:
    """Return the pieces of a SentencePiece model, and the ids of `<unk>` and `</s>`."""
    codec = SentencePieces(model, SPECIALS)  # checks the model
    processor = codec._processor
    if any(processor.IsByte(i) for i in range(len(processor))):
        raise ModelError("this SentencePiece model falls back to bytes (byte_fallback), which is not supported")
    names = [processor.IdToPiece(i) for i in range(len(processor))]
    return names, (processor.unk_id(), processor.eos_id())


def _listed_tokens(path: Path) -> tuple[list[str], tuple[int, int]]:
    ids = read_ids(content(path, max_json(), "a vocabulary (HEEDFUL_MAX_JSON)"), str(path))
    if sorted(ids.values()) != list(range(len(ids))):
        raise ModelError(f"{path}: the ids are not the numbers from 0 to {len(ids) - 1}")
    return sorted(ids, key=ids.__getitem__), (ids.get("<unk>", -1), ids.get("</s>", -1))


def _ordered(model: bytes, names: Sequence[str], special: tuple[int, int]) -> SpmVocabulary:
    """Return a vocabulary in heedful's order."""
    unknown, end = special
    if min(special) < 0 or unknown == end or max(special) >= len(names):
        raise ModelError("there is no token <unk>, or no </s>")
    pad = names.index("<pad>") if "<pad>" in names else -1
    rest = [i for i in range(len(names)) if i not in (pad, unknown, end)]
    taken, others = set(SPECIALS), []
    known = set(names)
    for i in rest:
        name = names[i]
        while name in taken and (name in SPECIALS or names[i] != name):
            name += "_"  # a usual token with the name of a special one, such as <s>, which never comes from text
            if name in known:
                continue
        others.append(name)
    return SpmVocabulary(model, (*SPECIALS, *others), (pad, unknown, -1, end, *rest))


# Shortlists


def read_shortlist(path: Path, sides: Sequence[SpmVocabulary], copied: bool) -> Shortlist:
    """Read a binary shortlist; with `copied`, a source token may also be written as it is."""
    what = "a shortlist for vocabularies of these sizes"
    S, T = (sum(i >= 0 for i in side.order) for side in sides)
    raw = content(path, SHORTLIST_HEADER + 8 * (S + 1) + 4 * S * T, what)
    if len(raw) < SHORTLIST_HEADER:
        raise ModelError(f"{path}: has {len(raw)} bytes; the head of a shortlist has {SHORTLIST_HEADER}")
    magic, _, first, _, offsets_size, size = struct.unpack_from("<6Q", raw)
    if magic != SHORTLIST_MAGIC:
        raise ModelError(f"{path}: this is not a binary shortlist of Marian; it begins with {raw[:8].hex()}")
    if len(raw) != SHORTLIST_HEADER + 8 * offsets_size + 4 * size:
        raise ModelError(
            f"{path}: has {len(raw):,} bytes, but its head says {offsets_size:,} offsets of 8 bytes and {size:,} "
            "tokens of 4; the file is damaged"
        )
    if offsets_size != S + 1:
        raise ModelError(f"{path}: is for {offsets_size - 1:,} source tokens, but the vocabulary has {S:,}")
    offsets = np.frombuffer(raw, "<u8", offsets_size, SHORTLIST_HEADER)
    tokens = np.frombuffer(raw, "<u4", size, SHORTLIST_HEADER + 8 * offsets_size)
    if int(offsets[0]) > size or int(offsets[-1]) > size or bool((offsets[1:] < offsets[:-1]).any()):
        raise ModelError(f"{path}: the offsets of its lists do not rise from 0 to {size:,}; the file is damaged")
    if size and int(tokens.max()) >= T:
        raise ModelError(f"{path}: has the target token {int(tokens.max())}, but the vocabulary has {T:,}")
    source, target = sides
    ours = target.ours(T)
    lists = []
    for token, theirs in enumerate(source.order):
        few = ours[tokens[int(offsets[theirs]) : int(offsets[theirs + 1])]] if theirs >= 0 else ours[:0]
        lists.append(np.append(few, token) if copied and theirs >= 0 else few)
    counts = np.array([len(one) for one in lists])
    always = np.unique(np.append(ours[: min(first, T)], [END]))
    return Shortlist(
        torch.from_numpy(np.append(0, counts.cumsum())),
        torch.from_numpy(np.concatenate(lists).astype(np.int64)),
        torch.from_numpy(always[(always != PAD) & (always != START)]),
        len(target.tokens),
    )
