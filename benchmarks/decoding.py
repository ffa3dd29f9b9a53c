"""Sentences per second in decoding, beside `transformers`' `generate` and CTranslate2 with the same weights.

python benchmarks/decoding.py [--model small|opus] [--rounds 7] [--threads 2] [--json FILE]
python benchmarks/decoding.py --cell ssru [--rounds 31] [--threads 1]

A Transformer with random weights: `small` has width 256, inner width 1024, 4 heads, 3 + 3 layers and a vocabulary of
8,000; `opus` has the sizes of an Opus-MT (512, 2048, 8 heads, 6 + 6 layers, 65,002 tokens: 77 M weights). Source
sentences of 20 tokens, and exactly 20 tokens written for each, so that all do the same work. Greedy and with a beam of
5, one sentence at a time and 32 at once. CTranslate2 (float32, and int8 for information) gets the same number of
threads for one translator, and a process of its own: beside PyTorch it is slower (`ctranslate2_peer.py`).

How many sentences the others translate as heedful does is printed; `generate` and CTranslate2 float32 must greedily be
alike in all. (With a beam, both count the forced `</s>` at the limit for nothing, and now and then another hypothesis
wins.) In a round all are timed in turn; ratios are taken within a round, of wall-clock time and of CPU time, and
medians over rounds are printed. --cell ssru compares Transformers of the width of `small` only, with self-attention
and with SSRUs in decoders of several depths: ratios are to a Transformer with the same encoder and as deep a decoder
with self-attention. Otherwise follows the RNN (LSTM, 256 per direction, additive attention) under the same conditions,
and the time per token at length 400 and at length 40.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from ctranslate2_peer import Peer
from torch import Tensor

from heedful.config import ModelConfig, RnnConfig, TransformerConfig
from heedful.decoding import Decoding, beam, greedy
from heedful.interop.marian import layers
from heedful.models import Network, build, pack_weights
from heedful.text import END, PAD, START

V, D, LENGTH = 8000, 256, 20
CASES = (("greedy", 1, 1), ("greedy", 1, 32), ("beam 5", 5, 1), ("beam 5", 5, 32))
# As Joey NMT has it: the cell first, then the attention, and its vector fed to the next step.
RNN = RnnConfig(cell="lstm", width=D, encoder_width=D, embedding=D, order="luong", score="additive")
Run = Callable[[Tensor], list[tuple[int, ...]]]


class Size(NamedTuple):
    """The size of a Transformer; `std` is the spread of its random weights."""

    vocabulary: int
    width: int
    inner: int
    heads: int
    layers: int
    std: float

    def config(self) -> TransformerConfig:
        """Return the settings of heedful's model."""
        return TransformerConfig(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            inner=self.inner,
            norm="post",
            activation="silu",
            tied="all",
            bias=True,
        )


SIZES = {"small": Size(V, D, 1024, 4, 3, 0.06), "opus": Size(65_002, 512, 2048, 8, 6, 0.06)}
TRANSFORMER = SIZES["small"].config()


def peer(size: Size = SIZES["small"]) -> Any:  # noqa: ANN401  (transformers has no types)
    """Return a Marian model of `transformers` with random weights; its ids are ours, `<pad>` 0 to `</s>` 3."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_ffn_dim=size.inner,
        decoder_ffn_dim=size.inner,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=START,
        forced_eos_token_id=END,
        init_std=size.std,
    )
    model: Any = MarianMTModel(config)
    model.eval()
    model.generation_config.bad_words_ids = [[PAD], [START]]
    return model


def ours(theirs: Any, size: Size = SIZES["small"]) -> Network:  # noqa: ANN401
    """Return heedful's model with the same weights."""
    given, config = theirs.state_dict(), size.config()
    weights = {name: torch.cat([given[part] for part in parts]) for name, parts in layers(config)}
    weights["embedding.weight"] = given["model.shared.weight"].clone()
    weights["b_o"] = given["final_logits_bias"][0].clone()
    model = build(config, size.vocabulary, size.vocabulary)
    model.load_state_dict(weights)
    return ready(model)


def ctranslate2_peers(theirs: Any, threads: int, folder: str) -> dict[str, Peer]:  # noqa: ANN401
    """Return CTranslate2 with the same weights, in float32 and int8, each in a process of its own.

    Nothing if it is not installed.
    """
    try:
        loader = importlib.import_module("ctranslate2.converters.transformers").BartLoader()
    except ImportError:
        return {}
    theirs.config.normalize_before = theirs.config.normalize_embedding = False
    spec = loader.get_model_spec(theirs)  # Marian's own loader assumes that the last token is padding
    vocabulary = theirs.config.vocab_size
    tokens = ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(4, vocabulary))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    config = spec.config
    config.bos_token = config.decoder_start_token = "<s>"
    config.eos_token, config.unk_token = "</s>", "<unk>"
    spec.validate()
    spec.save(folder)
    return {f"CTranslate2 {kind}": Peer(folder, kind, threads, vocabulary) for kind in ("float32", "int8")}


def ready(model: Network) -> Network:
    """Return a model as `heedful.load` has it."""
    pack_weights(model.eval())
    return model


def sentences(count: int, vocabulary: int = V) -> Tensor:
    """Return random source sentences of the same length.  (count, 20)."""
    x = torch.randint(4, vocabulary, (count, LENGTH), generator=torch.Generator().manual_seed(1))
    x[:, -1] = END
    return x


@torch.inference_mode()
def write(model: Network, x: Tensor, K: int, length: int = LENGTH) -> list[tuple[int, ...]]:
    """Write exactly `length` tokens for each sentence, `</s>` among them."""
    memory = model.encode(x, x != PAD)
    how = Decoding(beam=K, min_length=length - 1, max_length=length - 1)
    limits = [length] * len(x)
    if K == 1:
        return [hypothesis.ids for hypothesis in greedy(model, memory, limits, how)]
    return [found[0].ids for found in beam(model, memory, limits, how)]


def generate(model: Any, x: Tensor, K: int) -> list[tuple[int, ...]]:  # noqa: ANN401
    """Do the same with `generate`."""
    found = model.generate(
        input_ids=x,
        attention_mask=torch.ones_like(x),
        num_beams=K,
        do_sample=False,
        min_new_tokens=LENGTH,
        max_new_tokens=LENGTH,
        early_stopping="never" if K > 1 else False,
    )
    return [tuple(row[1:]) for row in found.tolist()]


class Speed(NamedTuple):
    """Sentences per second, and per second of CPU time."""

    wall: float
    cpu: float


def speed(run: Callable[[Tensor], object], x: Tensor, size: int) -> Speed:
    """Return the speed of a run, `size` sentences at a time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(0, len(x), size):
        run(x[i : i + size])
    return Speed(len(x) / (time.perf_counter() - wall), len(x) / (time.process_time() - cpu))


class Local(NamedTuple):
    """A system in this process."""

    name: str
    run: Run

    def decode(self, x: Tensor) -> list[tuple[int, ...]]:
        """Return what it decodes for sentences, all at once."""
        return self.run(x)

    def speed(self, x: Tensor, size: int) -> Speed:
        """Return its speed, `size` sentences at a time."""
        return speed(self.run, x, size)


class Remote(NamedTuple):
    """A system in a process of its own."""

    name: str
    peer: Peer
    K: int

    def decode(self, x: Tensor) -> list[tuple[int, ...]]:
        """Return what it decodes for sentences, all at once."""
        return [tuple(row) for row in self.peer.call(x.tolist(), len(x), self.K, LENGTH)["ids"]]

    def speed(self, x: Tensor, size: int) -> Speed:
        """Return its speed, `size` sentences at a time."""
        answer = self.peer.call(x.tolist(), size, self.K, LENGTH)
        return Speed(len(x) / answer["wall"], len(x) / answer["cpu"])


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the speeds of all systems in all cases."""
    torch.manual_seed(1)
    size = SIZES[options.model]
    theirs = peer(size)
    mine = ours(theirs, size)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        peers = ctranslate2_peers(theirs, options.threads, folder)
        for name, K, batch in CASES:
            x = sentences(options.single if batch == 1 else options.many, size.vocabulary)
            systems: list[Local | Remote] = [
                Local("heedful", partial(write, mine, K=K)),
                Local("generate", partial(generate, theirs, K=K)),
                *(Remote(kind, peer, K) for kind, peer in peers.items()),
            ]
            first = [ids[: LENGTH - 1] for ids in systems[0].decode(x[:32])]
            same = {
                system.name: sum(
                    ids == other[: LENGTH - 1] for ids, other in zip(first, system.decode(x[:32]), strict=True)
                )
                for system in systems
            }
            for system in ("generate", "CTranslate2 float32"):
                if K == 1 and same.get(system, len(first)) < len(first):
                    raise SystemExit(f"only {same[system]} of {len(first)} sentences are those of {system}")
            rounds = [{system.name: system.speed(x, batch) for system in systems} for _ in range(options.rounds)]
            rows.append({"case": name, "batch": batch, "of": len(first), "same": same, "systems": _summary(rounds)})
        for each in peers.values():
            each.close()
    return rows


def _summary(rounds: Sequence[dict[str, Speed]]) -> dict[str, dict[str, float]]:
    """Return the median speeds of each system, and heedful's speed as a ratio to it."""
    median = statistics.median
    return {
        system: {
            "wall": median(speeds[system].wall for speeds in rounds),
            "cpu": median(speeds[system].cpu for speeds in rounds),
            "ratio": median(speeds["heedful"].wall / speeds[system].wall for speeds in rounds),
            "cpu ratio": median(speeds["heedful"].cpu / speeds[system].cpu for speeds in rounds),
        }
        for system in rounds[0]
    }


def alone(rounds: int, single: int, many: int) -> list[dict[str, Any]]:
    """Return the speeds of the RNN in all cases."""
    torch.manual_seed(1)
    model = ready(build(RNN, V, V))
    rows = []
    for name, K, size in CASES:
        x = sentences(single if size == 1 else many)
        speeds = [speed(partial(write, model, K=K), x, size) for _ in range(rounds)]
        wall, cpu = (statistics.median(times) for times in zip(*speeds, strict=True))
        rows.append({"case": name, "batch": size, "heedful": wall, "cpu": cpu})
    return rows


def per_token(rounds: int, models: Mapping[str, ModelConfig], lengths: Sequence[int] = (40, 400)) -> dict[str, float]:
    """Return the milliseconds per token of one sentence at two output lengths, for some models."""
    torch.manual_seed(1)
    found = {}
    for name, config in models.items():
        model = ready(build(config, V, V))
        times: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(rounds):
            for length in lengths:
                run = partial(write, model, K=1, length=length)
                times[length].append(1 / speed(run, sentences(1), 1).wall / length)
        for length in lengths:
            found[f"{name} {length}"] = 1000 * statistics.median(times[length])
        found[f"{name} ratio"] = statistics.median(
            b / a for a, b in zip(times[lengths[0]], times[lengths[1]], strict=True)
        )
    return found


def students(rounds: int, single: int) -> list[dict[str, Any]]:
    """Return the speeds for one sentence of Transformers with self-attention and with SSRUs in their decoders."""
    rows = []
    for L, shapes in ((6, (("self-attention", 2), ("ssru", 6), ("ssru", 2))), (3, (("ssru", 3), ("ssru", 1)))):
        models = {}
        for cell, depth in (("self-attention", L), *shapes):
            torch.manual_seed(1)
            models[f"{L} + {depth} {cell}"] = ready(
                build(replace(TRANSFORMER, layers=L, decoder_layers=depth, cell=cell), V, V)
            )
        first = next(iter(models))
        for name, K, size in CASES:
            if size > 1:
                continue
            x = sentences(single)
            found = [
                {key: speed(partial(write, model, K=K), x, 1) for key, model in models.items()} for _ in range(rounds)
            ]
            for key in models:
                row: dict[str, Any] = {"case": name, "model": key}
                for clock in ("wall", "cpu"):
                    row[clock] = statistics.median(getattr(speeds[key], clock) for speeds in found)
                    ratios = (getattr(speeds[key], clock) / getattr(speeds[first], clock) for speeds in found)
                    row[f"{clock} ratio"] = statistics.median(ratios)
                rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="small", help="the size of the Transformer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--single", type=int, default=10, help="sentences in a round, one at a time")
    parser.add_argument("--many", type=int, default=96, help="sentences in a round, 32 at a time")
    parser.add_argument("--transformer-only", action="store_true", help="without the RNN and the times per token")
    parser.add_argument("--cell", choices=["ssru"], help="compare decoders with this cell and with self-attention only")
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, {platform.processor() or platform.machine()}")
    results: dict[str, Any]
    if options.cell:
        results = {"cells": students(options.rounds, options.single)}
        print("\nlayers                    case       sentences/s, per CPU second; ratio to the first, per CPU second")
        for row in results["cells"]:
            speeds = f"{row['wall']:>8.1f} {row['cpu']:>8.1f}   {row['wall ratio']:>6.2f} {row['cpu ratio']:>6.2f}"
            print(f"{row['model']:<25} {row['case']:<8} {speeds}")
        models = {"self-attention": TRANSFORMER, "ssru": replace(TRANSFORMER, cell="ssru")}
        results["per_token"] = times = per_token(max(3, options.rounds // 5), models)
        each = ", ".join(f"{name}: {value:.2f}" for name, value in times.items())
        print(f"\nmilliseconds per token, one sentence, 3 + 3 layers, by length: {each}")
        if options.json:
            options.json.write_text(json.dumps(results, indent=2), encoding="utf-8")
        return
    rows = compare(options)
    print("\nTransformer    batch   sentences/s, per CPU second; heedful's as a ratio, per CPU second; same tokens")
    for row in rows:
        for system, found in row["systems"].items():
            speeds = f"{found['wall']:>9.1f} {found['cpu']:>8.1f}   {found['ratio']:>6.2f} {found['cpu ratio']:>6.2f}"
            print(f"{row['case']:<13} {row['batch']:>6}   {system:<20} {speeds}   {row['same'][system]} of {row['of']}")
    results = {"transformer": rows}
    if not options.transformer_only:
        results["rnn"] = alone(options.rounds, options.single, options.many)
        print("\nRNN            batch   sentences/s, per CPU second")
        for row in results["rnn"]:
            print(f"{row['case']:<13} {row['batch']:>6}   {row['heedful']:>9.1f} {row['cpu']:>8.1f}")
        results["per_token"] = times = per_token(max(3, options.rounds // 2), {"transformer": TRANSFORMER, "rnn": RNN})
        each = ", ".join(f"{name}: {value:.2f}" for name, value in times.items())
        print(f"\nmilliseconds per token, one sentence, by length: {each}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
