"""What `cpu_training.py` runs under the interpreter that has Joey NMT 2.3: Joey's own training loop, in turns.

JOEY_PYTHON benchmarks/joey_worker.py rnn|transformer FOLDER TOKENS THREADS UPDATES

FOLDER holds the pairs as token numbers (`train.src`, `train.trg`, `dev.src`, `dev.trg`: `t17 t4 …`) and `vocabulary`.
The number of weights is written first; then, for every line that is read, UPDATES updates are made and a line of JSON
is written: target tokens without padding, seconds, and seconds of the CPU. Nothing of heedful is imported.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args, set_validation_args  # type: ignore[import-not-found]
from joeynmt.prediction import prepare  # type: ignore[import-not-found]
from joeynmt.training import TrainManager  # type: ignore[import-not-found]

SPECIAL = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
Settings = dict[str, Any]


def model_settings(kind: str) -> Settings:
    """Return Joey's settings of a model."""

    def layer(scale: bool) -> Settings:
        return {
            "type": kind,
            "embeddings": {"embedding_dim": 256, "scale": scale, "dropout": 0.1},
            "hidden_size": 256,
            "dropout": 0.1,
        }

    if kind == "transformer":
        side = {**layer(scale=True), "num_layers": 3, "num_heads": 4, "ff_size": 1024, "layer_norm": "pre"}
        return {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": dict(side)}
    side = {**layer(scale=False), "num_layers": 1, "rnn_type": "lstm"}
    own = {"input_feeding": True, "init_hidden": "bridge", "attention": "bahdanau", "hidden_dropout": 0.1}
    return {"encoder": {**side, "bidirectional": True}, "decoder": {**side, **own}}


def settings(kind: str, folder: Path, tokens: int) -> Settings:
    """Return all that Joey wants to be told."""
    kind = "transformer" if kind == "transformer" else "recurrent"
    side = {"level": "word", "lowercase": False, "max_length": 1000, "voc_file": f"{folder}/vocabulary"}
    special = {f"{name}_token": token for name, token in SPECIAL.items()}
    return {
        "name": kind,
        "joeynmt_version": "2.3.0",
        "model_dir": f"{folder}/{kind}",
        "use_cuda": False,
        "fp16": False,
        "random_seed": 1,
        "data": {
            "train": f"{folder}/train",
            "dev": f"{folder}/dev",
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "trg", **side},
            "special_symbols": {**special, **{f"{name}_id": i for i, name in enumerate(SPECIAL)}},
        },
        "model": {"initializer": "xavier_uniform", **model_settings(kind)},
        "testing": {"batch_size": 64},
        "training": {
            "optimizer": "adamw",
            "scheduling": "warmupinversesquareroot",
            "learning_rate": 3e-4,
            "label_smoothing": 0.1,
            "clip_grad_norm": 1.0,
            "batch_size": tokens,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 10**6,
            "validation_freq": 10**9,
            "logging_freq": 10**9,
        },
    }


class Paced:
    """Joey's batches; after some of them it is somebody else's turn."""

    def __init__(self, inner: Any, updates: int, answers: Any) -> None:  # noqa: ANN401
        self.inner, self.updates, self.answers = inner, updates, answers
        self.batch_sampler = inner.batch_sampler
        self.count = self.tokens = 0
        self.begin = self.used = 0.0

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            if self.count % self.updates == 0:
                self._turn()
            self.count += 1
            self.tokens += int(batch.ntokens)
            yield batch

    def _turn(self) -> None:
        if self.count:
            spent = [time.perf_counter() - self.begin, time.process_time() - self.used]
            print(json.dumps([self.tokens, *spent]), file=self.answers, flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self.tokens, self.begin, self.used = 0, time.perf_counter(), time.process_time()


def main() -> None:
    """Train until nobody asks any more."""
    kind, folder, tokens, threads, updates = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.INFO)
    torch.set_num_threads(int(threads))
    chosen = settings(kind, Path(folder), int(tokens))
    Path(chosen["model_dir"]).mkdir()
    args = parse_global_args(chosen, rank=0, mode="train")
    model, train, dev, _ = prepare(args, rank=0, mode="train")
    make_iter = train.make_iter
    train.make_iter = lambda **own: Paced(make_iter(**own), int(updates), answers)
    print(sum(p.numel() for p in model.parameters()), file=answers, flush=True)
    trainer = TrainManager(
        rank=0,
        model=model,
        model_dir=args.model_dir,
        device=args.device,
        n_gpu=args.n_gpu,
        num_workers=args.num_workers,
        autocast=args.autocast,
        seed=args.seed,
        train_args=args.train,
        dev_args=set_validation_args(args.test),
    )
    trainer._save_checkpoint = lambda *_: None
    trainer.train_and_validate(train_data=train, valid_data=dev)


if __name__ == "__main__":
    main()
