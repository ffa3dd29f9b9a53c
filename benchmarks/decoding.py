"""Sentences per second in decoding, beside `transformers`' `generate` with the same weights.

python benchmarks/decoding.py [--rounds 7] [--threads 2] [--json FILE]

A Transformer with width 256, inner width 1024, 4 heads, 3 + 3 layers and a vocabulary of 8,000, with random weights;
source sentences of 20 tokens, and exactly 20 tokens written for each, so that both do the same work. Greedy and with a
beam of 5, one sentence at a time and 32 at once. How many sentences both translate alike is printed; greedily it must
be all of them (with a beam, `generate` counts the forced `</s>` at the limit for nothing, and now and then another
hypothesis wins). In a round both are timed in turn; the ratio is taken within a round, and medians over rounds are
printed. Then the RNN (LSTM, 256 per direction, additive attention) under the same conditions, and the time per token at
length 400 and at length 40.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heedful.config import RnnConfig, TransformerConfig
from heedful.decoding import Decoding, beam, greedy
from heedful.interop.marian import layers
from heedful.models import Network, build, pack_weights
from heedful.text import END

V, D, LENGTH = 8000, 256, 20
TRANSFORMER = TransformerConfig(
    layers=3, width=D, heads=4, inner=1024, norm="post", activation="silu", tied="all", bias=True
)
# As Joey NMT has it: the cell first, then the attention, and its vector fed to the next step.
RNN = RnnConfig(cell="lstm", width=D, encoder_width=D, embedding=D, order="luong", score="additive")
CASES = (("greedy", 1, 1), ("greedy", 1, 32), ("beam 5", 5, 1), ("beam 5", 5, 32))


def peer() -> Any:  # noqa: ANN401  (transformers has no types)
    """Return a Marian model of `transformers` with random weights; its ids are ours, `<pad>` 0 to `</s>` 3."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=3,
        decoder_layers=3,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=1024,
        pad_token_id=0,
        eos_token_id=END,
        decoder_start_token_id=2,
        forced_eos_token_id=END,
        init_std=0.06,
    )
    model: Any = MarianMTModel(config)
    model.eval()
    model.generation_config.bad_words_ids = [[0], [2]]
    return model


def ours(theirs: Any) -> Network:  # noqa: ANN401
    """Return heedful's model with the same weights."""
    given = theirs.state_dict()
    weights = {name: torch.cat([given[part] for part in parts]) for name, parts in layers(TRANSFORMER)}
    weights["embedding.weight"] = given["model.shared.weight"].clone()
    weights["b_o"] = given["final_logits_bias"][0].clone()
    model = build(TRANSFORMER, V, V)
    model.load_state_dict(weights)
    return ready(model)


def ready(model: Network) -> Network:
    """Return a model as `heedful.load` has it."""
    pack_weights(model)
    return model.eval()


def sentences(count: int) -> Tensor:
    """Return random source sentences of the same length.  (count, 20)."""
    x = torch.randint(4, V, (count, LENGTH), generator=torch.Generator().manual_seed(1))
    x[:, -1] = END
    return x


@torch.inference_mode()
def write(model: Network, x: Tensor, K: int, length: int = LENGTH) -> list[tuple[int, ...]]:
    """Write exactly `length` tokens for each sentence, `</s>` among them."""
    memory = model.encode(x, x != 0)
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


def seconds(run: Callable[[], object]) -> float:
    """Return how long something takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def speed(run: Callable[[Tensor], object], x: Tensor, size: int) -> float:
    """Return sentences per second, `size` at a time."""
    return len(x) / seconds(lambda: [run(x[i : i + size]) for i in range(0, len(x), size)])


def compare(rounds: int, single: int, many: int) -> list[dict[str, Any]]:
    """Return the speeds of both in all cases."""
    torch.manual_seed(1)
    theirs = peer()
    mine = ours(theirs)
    rows = []
    for name, K, size in CASES:
        x = sentences(single if size == 1 else many)
        same = sum(a == b for a, b in zip(write(mine, x[:32], K), generate(theirs, x[:32], K), strict=True))
        if K == 1 and same < len(x[:32]):
            raise SystemExit(f"only {same} of {len(x[:32])} sentences are translated alike")
        runs = (partial(write, mine, K=K), partial(generate, theirs, K=K))
        pairs = [tuple(speed(run, x, size) for run in runs) for _ in range(rounds)]
        rows.append(
            {
                "case": name,
                "batch": size,
                "heedful": statistics.median(a for a, _ in pairs),
                "generate": statistics.median(b for _, b in pairs),
                "ratio": statistics.median(a / b for a, b in pairs),
                "ratios": [round(a / b, 3) for a, b in pairs],
                "same": f"{same} of {min(32, len(x))}",
            }
        )
    return rows


def alone(rounds: int, single: int, many: int) -> list[dict[str, Any]]:
    """Return the speeds of the RNN in all cases."""
    torch.manual_seed(1)
    model = ready(build(RNN, V, V))
    rows = []
    for name, K, size in CASES:
        x = sentences(single if size == 1 else many)
        found = [speed(partial(write, model, K=K), x, size) for _ in range(rounds)]
        rows.append({"case": name, "batch": size, "heedful": statistics.median(found)})
    return rows


def per_token(rounds: int, lengths: Sequence[int] = (40, 400)) -> dict[str, float]:
    """Return the milliseconds per token of one sentence at two output lengths, for both models."""
    torch.manual_seed(1)
    found = {}
    for name, config in (("transformer", TRANSFORMER), ("rnn", RNN)):
        model = ready(build(config, V, V))
        times: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(rounds):
            for length in lengths:
                times[length].append(seconds(partial(write, model, sentences(1), 1, length)) / length)
        for length in lengths:
            found[f"{name} {length}"] = 1000 * statistics.median(times[length])
        found[f"{name} ratio"] = statistics.median(
            b / a for a, b in zip(times[lengths[0]], times[lengths[1]], strict=True)
        )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--single", type=int, default=10, help="sentences in a round, one at a time")
    parser.add_argument("--many", type=int, default=96, help="sentences in a round, 32 at a time")
    parser.add_argument("--json", help="write the numbers to this file, too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, {platform.processor() or platform.machine()}")
    rows = compare(options.rounds, options.single, options.many)
    print(f"\nTransformer   {'batch':>6} {'heedful':>9} {'generate':>9} {'ratio':>6}   sentences/s; same tokens")
    for row in rows:
        print(
            f"{row['case']:<13} {row['batch']:>6} {row['heedful']:>9.1f} {row['generate']:>9.1f} {row['ratio']:>6.2f}"
            f"   {row['same']}"
        )
    lone = alone(options.rounds, options.single, options.many)
    print(f"\nRNN           {'batch':>6} {'heedful':>9}   sentences/s")
    for row in lone:
        print(f"{row['case']:<13} {row['batch']:>6} {row['heedful']:>9.1f}")
    times = per_token(max(3, options.rounds // 2))
    print("\nmilliseconds per token, one sentence, by length: " + ", ".join(f"{k}: {v:.2f}" for k, v in times.items()))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"transformer": rows, "rnn": lone, "per_token": times}, file, indent=1)


if __name__ == "__main__":
    main()
