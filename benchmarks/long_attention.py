"""Time and memory of `heedful.see` by the length of the text: a random model with 12 layers of 12 heads.

Each row runs in a process of its own: the plain forward pass, then `see`. Memory is the peak beyond what the process
held before the pass (the model, PyTorch). `--eager` adds the way of other tools: output_attentions=True.

    python benchmarks/long_attention.py [--model gpt2|llama|bert] [--lengths 1000,2000,4000] [--eager]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heedful  # before torch, whose waiting threads then sleep

WORDS = 1000
WAYS = ("forward", "see", "eager")


def make(shape: str, length: int) -> tuple[Any, Any]:
    """Return a random model of 12 layers and 12 heads of 64 channels, and a tokenizer of words."""
    import importlib

    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers

    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 2048}
    sizes |= {"vocab_size": WORDS, "max_position_embeddings": length}
    shapes: dict[str, tuple[Callable[[], Any], str]] = {
        "gpt2": (lambda: transformers.GPT2Config(vocab_size=WORDS, n_positions=length), "GPT2LMHeadModel"),
        "llama": (lambda: transformers.LlamaConfig(**sizes, num_key_value_heads=4), "LlamaForCausalLM"),
        "bert": (lambda: transformers.BertConfig(**sizes), "BertModel"),
    }
    config, kind = shapes[shape]
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = getattr(transformers, kind)(config()).eval()
    return model, transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def measured(run: Callable[[], Any]) -> tuple[float, float, float, Any]:
    """Return the seconds of a call by the clock and of the processor, the peak of memory in MB, and its result."""
    before, peak, stop = resident(), [0], threading.Event()

    def watch_memory() -> None:
        while not stop.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch_memory)
    watcher.start()
    start, used = time.perf_counter(), time.process_time()
    try:
        result = run()
    finally:
        seconds, used = time.perf_counter() - start, time.process_time() - used
        stop.set()
        watcher.join()
    return seconds, used, max(0, peak[0] - before) / 1e6, result


def row(shape: str, length: int, way: str) -> dict[str, Any]:
    """Measure one way at one length, in this process."""
    import torch

    model, tokenizer = make(shape, length)
    text = " ".join(f"w{(i * i + 7 * i) % WORDS}" for i in range(length))
    ids = tokenizer(text, return_tensors="pt")["input_ids"]

    def forward(ids: Any, **more: Any) -> Any:  # noqa: ANN401
        with torch.no_grad():
            return model(ids, **more, **({} if shape == "bert" else {"use_cache": False, "logits_to_keep": 1}))

    forward(ids[:, :64])
    heedful.see(model, tokenizer, "w1 w2")
    if way == "eager":
        model.set_attn_implementation("eager")
    ways: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(ids),
        "see": lambda: heedful.see(model, tokenizer, text),
        "eager": lambda: forward(ids, output_attentions=True),
    }
    seconds, used, peak, result = measured(ways[way])
    held = 0.0
    if way == "see":
        group = result.group()
        arrays = [group.received, group.entropy, group.blocks, *(x for one in group.top.values() for x in one)]
        held = sum(array.nbytes for array in arrays) / 1e6
    return {"length": length, "way": way, "seconds": seconds, "used": used, "peak": peak, "held": held}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("gpt2", "llama", "bert"), default="gpt2")
    parser.add_argument("--lengths", default="1000,2000,4000")
    parser.add_argument("--eager", action="store_true", help="also measure output_attentions=True")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.row:
        length, way = args.row.split(",")
        print(json.dumps(row(args.model, int(length), way)))
        return
    print("| tokens | way | seconds | CPU seconds | peak beyond the model, MB | held, MB |\n|---|---|---|---|---|---|")
    for length in map(int, args.lengths.split(",")):
        for way in WAYS if args.eager else WAYS[:2]:
            command = [sys.executable, __file__, "--model", args.model, "--row", f"{length},{way}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"| {length:,} | {way} | failed: {done.stderr.strip().splitlines()[-1][:80]} | | | |")
                continue
            one = json.loads(done.stdout.strip().splitlines()[-1])
            cells = f"{one['seconds']:.1f} | {one['used']:.1f} | {one['peak']:,.0f} | {one['held']:,.0f}"
            print(f"| {length:,} | {way} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
