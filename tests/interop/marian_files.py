"""Writes small models in Marian's own files, and computes what they translate, by its formulas, without heedful."""

from __future__ import annotations

import functools
import io
import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

TEXTS = [
    "the old cat sees a small dog near my house",
    "a green bird sings in the garden of the king",
    "you know that we are never late for the train",
    "der alte hund sieht die kleine katze im garten",
    "wir essen heute abend brot und trinken wasser",
]
INT8, INT16, FLOAT16, FLOAT32, CHARS = 0x4101, 0x4102, 0x402, 0x404, 0x101


@functools.cache
def spm(size: int = 70, texts: int = 5) -> bytes:
    """Return a SentencePiece model as Marian trains them: </s> 0, <unk> 1, and no <s> and <pad>."""
    import sentencepiece

    into = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS[:texts] * 20),
        model_writer=into,
        vocab_size=size,
        bos_id=-1,
        pad_id=-1,
        eos_id=0,
        unk_id=1,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=3,
    )
    return into.getvalue()


def pieces(model: bytes) -> list[str]:
    """Return the pieces of a SentencePiece model."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.IdToPiece(i) for i in range(len(processor))]


SETTINGS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": 16,
    "enc-depth": 2,
    "dec-depth": 2,
    "dec-cell": "ssru",
    "enc-cell": "gru",
    "transformer-heads": 4,
    "transformer-dim-ffn": 24,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "rnn",
    "transformer-guided-alignment-layer": "last",
    "transformer-tied-layers": [],
    "tied-embeddings": False,
    "tied-embeddings-all": True,
    "tied-embeddings-src": False,
    "input-types": [],
    "ulr": False,
    "layer-normalization": False,
    "version": "v1.9.56 94aeaa46 2021-04-28 00:28:35 +0100",
}


def yaml(settings: dict[str, Any]) -> str:
    """Return settings as Marian writes them."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, list) and value:
            lines += [f"{key}:", *(f"  - {str(one).lower() if isinstance(one, bool) else one}" for one in value)]
        elif isinstance(value, bool):
            lines.append(f"{key}: {str(value).lower()}")
        else:
            lines.append(f"{key}: {value if value != '' else chr(34) * 2}")
    return "\n".join(lines) + "\n"


def random_weights(settings: dict[str, Any], seed: int = 1) -> Arrays:
    """Return random weights of a model with some settings, under Marian's names."""
    pick = np.random.default_rng(seed)
    D, F, (S, T) = settings["dim-emb"], settings["transformer-dim-ffn"], settings["dim-vocabs"]
    weights: Arrays = {}

    def draw(name: str, *shape: int, scale: float = 0.35, around: float = 0.0) -> None:
        weights[name] = (around + scale * pick.standard_normal(shape)).astype(np.float32)

    def norm(name: str, suffix: str = "") -> None:
        draw(f"{name}_ln_scale{suffix}", 1, D, scale=0.2, around=1.0)
        draw(f"{name}_ln_bias{suffix}", 1, D)

    def attention(name: str) -> None:
        for part in "qkvo":
            draw(f"{name}_W{part}", D, D)
            draw(f"{name}_b{part}", 1, D)
        norm(f"{name}_Wo", pre)

    pre = "_pre" if "n" in settings["transformer-preprocess"] else ""
    numbers = settings["transformer-tied-layers"] or range(1, settings["dec-depth"] + 1)
    for side, layers in (("encoder", range(1, settings["enc-depth"] + 1)), ("decoder", sorted(set(numbers)))):
        for i in layers:
            if side == "encoder" or settings["transformer-decoder-autoreg"] == "self-attention":
                attention(f"{side}_l{i}_self")
            else:
                for name in ("W", "Wf"):
                    draw(f"{side}_l{i}_rnn_{name}", D, D)
                draw(f"{side}_l{i}_rnn_bf", 1, D)
                norm(f"{side}_l{i}_rnn" + "_ffn" * (not pre), pre)
            if side == "decoder":
                attention(f"{side}_l{i}_context")
            draw(f"{side}_l{i}_ffn_W1", D, F)
            draw(f"{side}_l{i}_ffn_b1", 1, F)
            draw(f"{side}_l{i}_ffn_W2", F, D)
            draw(f"{side}_l{i}_ffn_b2", 1, D)
            norm(f"{side}_l{i}_ffn_ffn", pre)
        if pre:
            norm(f"{side}_top")
    if settings["tied-embeddings-all"] or settings["tied-embeddings-src"]:
        draw("Wemb", S, D)
    else:
        draw("encoder_Wemb", S, D)
        draw("decoder_Wemb", T, D)
    if not (settings["tied-embeddings-all"] or settings["tied-embeddings"]):
        draw("decoder_ff_logit_out_W", D, T)
    if not settings.get("output-omit-bias"):
        draw("decoder_ff_logit_out_b", 1, T)
    return weights


def quantised(weights: Arrays, bits: int = 8) -> tuple[Arrays, dict[str, float]]:
    """Return the weights rounded to few bits where a student has them, and the multiplier of each."""
    rounded, multipliers = dict(weights), {}
    for name, weight in weights.items():
        if name == "Wemb" or ("_W" in name and "_ln_" not in name and "_Wemb" not in name):
            multiplier = float(np.float32((2 ** (bits - 1) - 1) / np.abs(weight).max()))
            rounded[name] = np.rint(weight * multiplier).astype(np.float32) / np.float32(multiplier)
            multipliers[name] = multiplier
    return rounded, multipliers


def pad_to(content: bytes, size: int = 256) -> bytes:
    """Return the content, filled up to a multiple of a size."""
    return content + bytes(-len(content) % size)


def write_bin(
    settings: dict[str, Any], weights: Arrays, multipliers: dict[str, float] | None = None, bits: int = 8
) -> bytes:
    """Return the content of a .bin; weights with a multiplier are quantised, with one for activations beside them."""
    entries: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, weight in sorted(weights.items()):
        multiplier = (multipliers or {}).get(name)
        if multiplier is None:
            kind = FLOAT16 if weight.dtype == np.float16 else FLOAT32
            entries.append((name, kind, weight.shape, pad_to(weight.tobytes())))
            continue
        numbers = np.rint(weight * np.float32(multiplier)).astype("i1" if bits == 8 else "<i2")
        numbers = numbers if "Wemb" in name else numbers.T
        raw = np.ascontiguousarray(numbers).tobytes() + struct.pack("<f", multiplier)
        entries.append((name, INT8 if bits == 8 else INT16, weight.shape, pad_to(raw)))
        entries.append((f"{name}_QuantMultA", FLOAT32, (1, 1), pad_to(struct.pack("<f", 3.0))))
    text = yaml(settings).encode() + b"\0"
    entries.append(("special:model.yml", CHARS, (len(text),), text))
    names = [entry[0].encode() + b"\0" for entry in entries]
    content = struct.pack("<2Q", 1, len(entries))
    for name, (_, kind, shape, raw) in zip(names, entries, strict=True):
        content += struct.pack("<4Q", len(name), kind, len(shape), len(raw))
    content += b"".join(names)
    content += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in entries)
    offset = -(len(content) + 8) % 256
    return content + struct.pack("<Q", offset) + bytes(offset) + b"".join(entry[3] for entry in entries)


def write_npz(path: Path, settings: dict[str, Any], weights: Arrays) -> None:
    """Write an .npz with its settings."""
    text = np.frombuffer(yaml(settings).encode() + b"\0", np.int8)
    np.savez(path, **weights, **{"special:model.yml": text})


def write_lexicon(first: int, lists: Sequence[Sequence[int]]) -> bytes:
    """Return the content of a binary shortlist."""
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    tokens = np.array([token for one in lists for token in one], "<u4")
    head = struct.pack("<6Q", 0xF11A48D5013417F5, 7, first, 50, len(offsets), len(tokens))
    return head + offsets.tobytes() + tokens.tobytes()


def lexicon(size: int, each: int = 3, seed: int = 2) -> list[list[int]]:
    """Return random lists of target tokens for source tokens."""
    pick = np.random.default_rng(seed)
    return [sorted({int(i) for i in pick.integers(0, size, each)}) for _ in range(size)]


def student(folder: Path, bits: int = 8, shortlist: bool = True, **settings: Any) -> tuple[dict[str, Any], Arrays]:
    """Write the folder of a student; return its settings and its weights, as rounded."""
    folder.mkdir(parents=True, exist_ok=True)
    model = spm()
    size = len(pieces(model))
    settings = {**SETTINGS, "dim-vocabs": [size, size], **{k.replace("_", "-"): v for k, v in settings.items()}}
    weights = random_weights(settings)
    multipliers: dict[str, float] = {}
    if bits < 32:
        weights, multipliers = quantised(weights, bits)
    (folder / "model.xxyy.intgemm.alphas.bin").write_bytes(write_bin(settings, weights, multipliers, bits))
    (folder / "vocab.xxyy.spm").write_bytes(model)
    named: dict[str, Any] = {
        "relative-paths": True,
        "models": ["model.xxyy.intgemm.alphas.bin"],
        "vocabs": ["vocab.xxyy.spm"] * 2,
        "beam-size": 1,
    }
    if shortlist:
        (folder / "lex.50.50.xxyy.s2t.bin").write_bytes(write_lexicon(6, lexicon(size)))
        named["shortlist"] = ["lex.50.50.xxyy.s2t.bin", False]
    (folder / "config.intgemm8bitalpha.yml").write_text(yaml(named))
    return settings, weights


def opus(folder: Path) -> tuple[dict[str, Any], Arrays, list[str]]:
    """Write a folder as OPUS-MT publishes them, without its file of settings; return settings, weights and tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = spm(60, 3), spm(66, 5)
    tokens = ["</s>", "<unk>", *sorted({*pieces(source)[2:], *pieces(target)[2:]}), "'x\"", "<s>"]
    changes = {"transformer-decoder-autoreg": "self-attention", "transformer-ffn-activation": "swish"}
    settings = {**SETTINGS, **changes, "dim-vocabs": [len(tokens)] * 2}
    weights = random_weights(settings)
    write_npz(folder / OPUS, settings, weights)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    lines = (f"{json.dumps(token, ensure_ascii=i % 2 > 0)}: {i}\n" for i, token in enumerate(tokens))
    (folder / "opus.vocab.yml").write_text("".join(lines))
    return settings, weights, tokens


OPUS = "opus.model1.npz.best-perplexity.npz"


class Reference:
    """A model of Marian's, by its formulas, one sentence at a time, in float64."""

    def __init__(self, settings: dict[str, Any], weights: Arrays) -> None:
        self.settings, self.weights = settings, {name: w.astype(np.float64) for name, w in weights.items()}
        self.D, self.pre = settings["dim-emb"], "n" in settings["transformer-preprocess"]

    def tables(self) -> tuple[Array, Array, Array, Array]:
        """Return the embeddings of source and target, and W (V, D) and b (V,) of the output."""
        w, shared = self.weights, self.settings["tied-embeddings-all"] or self.settings["tied-embeddings-src"]
        source, target = (w["Wemb"], w["Wemb"]) if shared else (w["encoder_Wemb"], w["decoder_Wemb"])
        tied = self.settings["tied-embeddings-all"] or self.settings["tied-embeddings"]
        output = target if tied else w["decoder_ff_logit_out_W"].T
        return source, target, output, w.get("decoder_ff_logit_out_b", np.zeros((1, len(output))))[0]

    def positions(self, n: int) -> Array:
        """Return the positions: [sines, cosines] with the frequencies 10000^(-i / (D/2 - 1))."""
        half = self.D // 2
        angles = np.arange(n)[:, None] * np.exp(-np.arange(half) * math.log(10000) / (half - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def norm(self, x: Array, name: str, suffix: str = "") -> Array:
        """Normalise each row."""
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.weights[f"{name}_ln_scale{suffix}"] + self.weights[f"{name}_ln_bias{suffix}"]

    def around(self, x: Array, name: str, layer: Any) -> Array:
        """Return what a sub-layer makes of x."""
        if self.pre:
            return x + layer(self.norm(x, name.removesuffix("_ffn") if "_rnn" in name else name, "_pre"))
        return self.norm(x + layer(x), name)

    def affine(self, x: Array, name: str, part: str) -> Array:
        """Return x W + b."""
        return x @ self.weights[f"{name}_W{part}"] + self.weights[f"{name}_b{part}"]

    def attention(self, name: str, x: Array, h: Array, causal: bool = False) -> tuple[Array, Array]:
        """Return multi-head attention from x to h, and its weights (H, T, S)."""
        H = self.settings["transformer-heads"]
        q, k, v = (
            self.affine(s, name, part).reshape(len(s), H, -1).transpose(1, 0, 2)
            for s, part in ((x, "q"), (h, "k"), (h, "v"))
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(self.D // H)
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return self.affine((weights @ v).transpose(1, 0, 2).reshape(len(x), -1), name, "o"), weights

    def feed_forward(self, name: str, x: Array) -> Array:
        """Return the feed-forward layer."""
        x = self.affine(x, name, "1")
        x = np.maximum(x, 0) if self.settings["transformer-ffn-activation"] == "relu" else x / (1 + np.exp(-x))
        return self.affine(x, name, "2")

    def encode(self, ids: Sequence[int]) -> Array:
        """Return the encoder's output for Marian's ids."""
        x = self.tables()[0][list(ids)] * math.sqrt(self.D) + self.positions(len(ids))
        for i in range(1, self.settings["enc-depth"] + 1):
            name = f"encoder_l{i}_self"
            x = self.around(x, f"{name}_Wo", lambda n, name=name: self.attention(name, n, n)[0])
            x = self.around(x, f"encoder_l{i}_ffn_ffn", lambda n, i=i: self.feed_forward(f"encoder_l{i}_ffn", n))
        return self.norm(x, "encoder_top") if self.pre else x

    def ssru(self, name: str, x: Array) -> Array:
        """Return what the recurrent cell makes of all tokens so far."""
        f = 1 / (1 + np.exp(-(x @ self.weights[f"{name}_Wf"] + self.weights[f"{name}_bf"])))
        y, c, out = x @ self.weights[f"{name}_W"], np.zeros(self.D), []
        for t in range(len(x)):
            c = f[t] * c + (1 - f[t]) * y[t]
            out.append(np.maximum(c, 0))
        return np.stack(out)

    def logits(self, h: Array, ids: Sequence[int]) -> tuple[Array, Array]:
        """Return the scores (T + 1, V) after each of Marian's target ids, and the guided head's weights (T + 1, S)."""
        _, target, output, b = self.tables()
        rows = np.concatenate([np.zeros((1, self.D)), target[list(ids)]])
        x = rows * math.sqrt(self.D) + self.positions(len(rows))
        numbers = self.settings["transformer-tied-layers"] or list(range(1, self.settings["dec-depth"] + 1))
        guided = self.settings["transformer-guided-alignment-layer"]
        guided = self.settings["dec-depth"] if guided == "last" else int(guided)
        kept = np.zeros(0)
        for place, i in enumerate(numbers, 1):
            if self.settings["transformer-decoder-autoreg"] == "rnn":
                x = self.around(x, f"decoder_l{i}_rnn_ffn", lambda n, i=i: self.ssru(f"decoder_l{i}_rnn", n))
            else:
                name = f"decoder_l{i}_self"
                x = self.around(x, f"{name}_Wo", lambda n, name=name: self.attention(name, n, n, causal=True)[0])
            name, n = f"decoder_l{i}_context", x
            if self.pre:
                n = self.norm(x, f"{name}_Wo", "_pre")
            g, weights = self.attention(name, n, h)
            x = x + g if self.pre else self.norm(x + g, f"{name}_Wo")
            kept = weights[0] if place == guided else kept
            x = self.around(x, f"decoder_l{i}_ffn_ffn", lambda n, i=i: self.feed_forward(f"decoder_l{i}_ffn", n))
        x = self.norm(x, "decoder_top") if self.pre else x
        return x @ output.T + b, kept

    def greedy(self, ids: Sequence[int], longest: int, allowed: set[int] | None = None) -> list[int]:
        """Return the most probable tokens one by one, up to </s>, which is 0."""
        h, written = self.encode(ids), list[int]()
        while len(written) < longest:
            scores = self.logits(h, written)[0][-1]
            if allowed is not None:
                scores = np.where(np.isin(np.arange(len(scores)), sorted(allowed)), scores, -np.inf)
            written.append(int(scores.argmax()))
            if written[-1] == 0:
                break
        return written


def allowed(ids: Sequence[int], lists: Sequence[Sequence[int]], first: int, copied: bool) -> set[int]:
    """Return the tokens that a shortlist allows for a source."""
    candidates = {token for i in ids for token in lists[i]}
    return {*range(first), *candidates, *(ids if copied else ())}
